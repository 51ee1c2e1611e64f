"""Names of files and URLs, brought to one spelling."""

from __future__ import annotations

import posixpath
import re
from typing import Final

from .use import Content

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{1,20})://([^/?#]*)([^#]*)")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_ESCAPED = re.compile(r"%[0-9A-Fa-f]{2}")
_PORTS = {"http": ":80", "https": ":443", "ws": ":80", "wss": ":443", "ftp": ":21", "ssh": ":22"}
_GLOB = re.compile(r"[*?\[{]")
_BY_SUFFIX: Final[dict[str, Content]] = {
    **dict.fromkeys((".json", ".jsonl", ".ndjson", ".ipynb"), "json"),
    **dict.fromkeys((".csv", ".tsv"), "table"),
    **dict.fromkeys((".log",), "log"),
    **dict.fromkeys((".diff", ".patch"), "diff"),
    **dict.fromkeys((".md", ".markdown", ".mdx", ".rst", ".html", ".htm"), "page"),
}


def normal(path: str, base: str | None = None) -> str:
    """One spelling for each file: no `./`, `//` or `..`, joined to `base` where it is relative.

    >>> normal("./a//b/../c"), normal("c/", "/repo"), normal("HTTPS://Docs.Rs:443/x#top")
    ('a/c', '/repo/c', 'https://docs.rs/x')
    """
    url = _SCHEME.match(path)
    if url and url[1].lower() != "file":
        return _url(url)
    if url:
        path = _ESCAPED.sub(_unescaped, url[3])
    elif _DRIVE.match(path):
        path = path.replace("\\", "/")
    if base is not None and not is_absolute(path):
        path = f"{base}/{path}"
    path = posixpath.normpath(path)
    return path[1:] if path.startswith("//") else path


def is_absolute(path: str) -> bool:
    """Whether a path counts from no folder: from the root, a home, a drive or a host."""
    return path.startswith(("/", "~")) or _DRIVE.match(path) is not None or "://" in path[:24]


def folder_before(pattern: str) -> str:
    """The folder that a glob pattern cannot leave."""
    found = _GLOB.search(pattern)
    before = pattern[: found.start()] if found else pattern
    folder = before[: before.rfind("/") + 1]
    return folder or "."


def content_of(path: str) -> Content:
    """What a file holds, by its ending."""
    return _BY_SUFFIX.get(posixpath.splitext(path)[1].lower(), "code")


def may_reach(written: str, read: str) -> bool:
    """Whether a write to one path may change what was read from the other.

    A folder reaches what is below it, and the other way round: a listing of it has changed. A path
    that is relative may stand for any path that ends like it, for the folder it counts from is not
    always known.

    >>> may_reach("/w/a.py", "a.py"), may_reach("/w", "/w/a.py"), may_reach("/w/a.py", "/w/b.py")
    (True, True, False)
    """
    if "://" in written or "://" in read:
        return written == read
    return _below(written, read) or _below(read, written)


def _below(folder: str, path: str) -> bool:
    """Whether `path` may be `folder` or stand in it."""
    if folder in (".", path) or path.startswith(f"{folder.rstrip('/')}/"):
        return True
    if folder.startswith("..") or path.startswith(".."):
        return True
    if is_absolute(folder) and not is_absolute(path):
        steps = folder.strip("/").split("/")
        tails = ("/".join(steps[at:]) for at in range(len(steps)))
        return any(f"{path}/".startswith(f"{tail}/") for tail in tails)
    return not is_absolute(folder) and is_absolute(path) and f"/{folder}/" in f"{path}/"


def _url(match: re.Match[str]) -> str:
    scheme = match[1].lower()
    user, at, host = match[2].rpartition("@")
    host = host.lower().removesuffix(_PORTS.get(scheme, ":"))
    return f"{scheme}://{user}{at}{host}{match[3] or '/'}"


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[0][1:], 16))
