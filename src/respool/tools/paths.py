"""Normalized file paths and URLs, and the files that a patch names."""

from __future__ import annotations

import posixpath
import re
from typing import Final

from ..regex import lazy_compile
from .use import Content, Span

_SCHEME = lazy_compile(r"([A-Za-z][A-Za-z0-9+.-]{1,20})://([^/?#]*)([^#]*)")
_DRIVE = lazy_compile(r"[A-Za-z]:[\\/]")
_ESCAPED = lazy_compile(r"%[0-9A-Fa-f]{2}")
_PORTS = {"http": ":80", "https": ":443", "ws": ":80", "wss": ":443", "ftp": ":21", "ssh": ":22"}
_GLOB = lazy_compile(r"[*?\[{]")
_BY_SUFFIX: Final[dict[str, Content]] = {
    **dict.fromkeys((".json", ".jsonl", ".ndjson", ".ipynb"), "json"),
    **dict.fromkeys((".csv", ".tsv"), "table"),
    **dict.fromkeys((".log",), "log"),
    **dict.fromkeys((".diff", ".patch"), "diff"),
    **dict.fromkeys((".md", ".markdown", ".mdx", ".rst", ".html", ".htm"), "page"),
}

MAX_PATCHED_FILES: Final = 500  # longer patches are not listed
_ENVELOPE = lazy_compile(
    r"^\*\*\* (Add File|Update File|Delete File|Move to): ?([^\r\n]{1,1000})", re.MULTILINE
)
_UNIFIED = lazy_compile(r"^(?:---|\+\+\+) (?:[ab]/)?([^\t\r\n]{1,1000})", re.MULTILINE)
_BEGINS = "*** Begin Patch"


def normalize(path: str, base: str | None = None) -> str:
    """One spelling of a path: no `./`, `//` or `..`, joined to `base` if relative.

    >>> normalize("./a//b/../c"), normalize("c/", "/repo"), normalize("HTTPS://Docs.Rs:443/x#top")
    ('a/c', '/repo/c', 'https://docs.rs/x')
    """
    url = _SCHEME.match(path)
    if url and url[1].lower() != "file":
        return _normalize_url(url)
    if url:
        path = _ESCAPED.sub(_unescape, url[3])
    elif _DRIVE.match(path):
        path = path.replace("\\", "/")
    if base is not None and not is_absolute(path):
        path = f"{base}/{path}"
    path = posixpath.normpath(path)
    return path[1:] if path.startswith("//") else path


def is_absolute(path: str) -> bool:
    """Check whether a path starts at the root, a home, a drive or a host."""
    return path.startswith(("/", "~")) or _DRIVE.match(path) is not None or "://" in path[:24]


def glob_root(pattern: str) -> str:
    """The folder above everything a glob pattern can match."""
    found = _GLOB.search(pattern)
    before = pattern[: found.start()] if found else pattern
    folder = before[: before.rfind("/") + 1]
    return folder or "."


def content_by_suffix(path: str) -> Content:
    """The content kind of a file, by its suffix."""
    return _BY_SUFFIX.get(posixpath.splitext(path)[1].lower(), "code")


def can_reach(written: str, read: str) -> bool:
    """Check whether a write to one path may change what was read from the other.

    A folder reaches what is below it, and a file reaches its folder, whose listing changes. A
    relative path may stand for any path with that suffix, because its base folder is not always
    known.

    >>> can_reach("/w/a.py", "a.py"), can_reach("/w", "/w/a.py"), can_reach("/w/a.py", "/w/b.py")
    (True, True, False)
    """
    if "://" in written or "://" in read:
        return written == read
    return _is_below(written, read) or _is_below(read, written)


def _is_below(folder: str, path: str) -> bool:
    """Check whether `path` may be `folder` or lie below it."""
    if folder in (".", path) or path.startswith(f"{folder.rstrip('/')}/"):
        return True
    if folder.startswith("..") or path.startswith(".."):
        return True
    if is_absolute(folder) and not is_absolute(path):
        steps = folder.strip("/").split("/")
        tails = ("/".join(steps[at:]) for at in range(len(steps)))
        return any(f"{path}/".startswith(f"{tail}/") for tail in tails)
    return not is_absolute(folder) and is_absolute(path) and f"/{folder}/" in f"{path}/"


def _normalize_url(match: re.Match[str]) -> str:
    scheme = match[1].lower()
    user, at, host = match[2].rpartition("@")
    host = host.lower().removesuffix(_PORTS.get(scheme, ":"))
    return f"{scheme}://{user}{at}{host}{match[3] or '/'}"


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[0][1:], 16))


def patched_files(text: str, base: str | None = None) -> tuple[tuple[Span, ...], bool] | None:
    """The files a patch writes, and whether it replaces each of them; None if unclear.

    >>> patched_files("*** Begin Patch\\n*** Add File: a.py\\n+x\\n*** End Patch")
    ((Span(path='a.py', lines=None, part=False),), True)
    """
    if _BEGINS in text[:2_000]:
        return _envelope_files(text, base)
    return _unified_files(text, base)


def _envelope_files(text: str, base: str | None) -> tuple[tuple[Span, ...], bool] | None:
    """The files of a patch in the `apply_patch` format."""
    found = [(match[1], match[2].strip()) for match in _ENVELOPE.finditer(text)]
    if not found or len(found) > MAX_PATCHED_FILES or not all(path for _, path in found):
        return None
    replaces = all(action in ("Add File", "Delete File") for action, _ in found)
    return _spans([path for _, path in found], base), replaces


def _unified_files(text: str, base: str | None) -> tuple[tuple[Span, ...], bool] | None:
    """The files of a unified diff, as `diff -u` and `git diff` write it."""
    found = [match[1].strip() for match in _UNIFIED.finditer(text)]
    paths = [path for path in found if path != "/dev/null"]
    if not paths or len(paths) > MAX_PATCHED_FILES:
        return None
    return _spans(paths, base), False


def _spans(paths: list[str], base: str | None) -> tuple[Span, ...]:
    return tuple(Span(path) for path in dict.fromkeys(normalize(path, base) for path in paths))
