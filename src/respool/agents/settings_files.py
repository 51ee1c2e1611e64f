"""Read-only access to agents' settings files: JSON with comments, TOML, and `.env` files.

In most agents the environment overrides such a file. A base URL set in the environment would
therefore send the file's key to a host other than the one the file names.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct

from ..regex import lazy_compile

# An unterminated string or comment runs to the end, so the scan stays linear.
_STRING: Final = r'"(?:[^"\\]|\\.?)*(?:"|\Z)'
_COMMENTS: Final = lazy_compile(rf"({_STRING})|//[^\r\n]*|/\*(?:.*?\*/|.*)", re.DOTALL)
_LAST_COMMAS: Final = lazy_compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)


def config_folder(environ: Mapping[str, str], variable: str, below: str) -> Path:
    """Folder named by a variable; otherwise the default in the home folder."""
    named = environ.get(variable)
    return Path(named) if named else Path(environ.get("HOME") or Path.home()) / below


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file; empty if missing or invalid."""
    return parse_object(read_text(path)) or {}


def is_present(path: Path) -> bool:
    """Report whether a path exists and can be read."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def list_files(folder: Path, suffix: str) -> list[Path]:
    """Files of a folder with a suffix, by name; none if the folder cannot be read."""
    try:
        return sorted(one for one in folder.iterdir() if one.name.endswith(suffix))
    except OSError:
        return []


def read_text(path: Path) -> str:
    """Read a text file with replacement characters for invalid bytes.

    Empty if it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except (OSError, ValueError):
        return ""


def parse_object(text: str) -> dict[str, Any] | None:
    """Parse a JSON object with comments and trailing commas; None: not an object."""
    try:
        found: Any = json.loads(_plain(text))
    except (ValueError, RecursionError):
        return None
    return cast(dict[str, Any], found) if isinstance(found, dict) else None


def _plain(text: str) -> str:
    """Replace a comment or a trailing comma by nothing."""
    for pattern in (_COMMENTS, _LAST_COMMAS):
        text = pattern.sub(lambda found: found[1] or "", text)
    return text


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; empty if missing or invalid."""
    try:
        return tomllib.loads(read_text(path))
    except ValueError:
        return {}


def merge_settings(settings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge settings; later ones override, objects are merged."""
    made: dict[str, Any] = {}
    for one in settings:
        for key, value in one.items():
            below = made.get(key)
            both = isinstance(below, dict) and isinstance(value, dict)
            made[key] = merge_settings([as_object(below), as_object(value)]) if both else value
    return made


def get_nested(value: Any, *keys: str) -> Any:
    """Value under a path of keys; None if missing."""
    for key in keys:
        value = as_object(value).get(key)
    return value


def as_object(value: Any) -> dict[str, Any]:
    """Value if it is an object; otherwise an empty one."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def as_text(value: Any) -> str:
    """Value if it is a string; otherwise an empty one."""
    return value.strip() if isinstance(value, str) else ""


def is_http_url(url: str) -> bool:
    """Report whether a text is an http(s) URL, not a placeholder that only the agent resolves."""
    return url.startswith(("https://", "http://")) and "{" not in url


# --- environment variables in settings files ---------------------------------------------------


_LINE: Final = lazy_compile(
    r"""^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)(?:[ \t]*=|(:)[ \t])[ \t]*"""
    r"""(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^#\r\n]*?))[ \t]*(?:\#[^\r\n]*)?\r?$""",
    re.MULTILINE,
)
_LARGEST: Final = 1_000_000  # bytes; a larger file is not read


class FileVariable(Struct, frozen=True):
    """Variable defined in a file."""

    value: str
    file: Path
    is_trusted: bool  # a URL in the user's own file; otherwise the agent may ignore it


Lookup = Callable[[str], FileVariable | None]


def no_lookup(_name: str) -> FileVariable | None:
    """Lookup for agents that read no such file."""
    return None


def dotenv_lookup(working_dir: Path) -> Lookup:
    """Lookup for unknown commands: many read a `.env` of the working folder or a parent."""
    above = (
        one / name for one in (working_dir, *working_dir.parents) for name in (".env.local", ".env")
    )
    finds = [_in(file, own=False) for file in above if is_present(file)]

    def find(name: str) -> FileVariable | None:
        return next((found for one in finds if (found := one(name)) is not None), None)

    return find


def gemini_lookup(environ: Mapping[str, str], working_dir: Path) -> Lookup:
    """Lookup in the `.env` that Gemini CLI reads."""
    home = config_folder(environ, "GEMINI_CLI_HOME", "")
    return _nearest(home, home / ".gemini", working_dir)


def mini_lookup(environ: Mapping[str, str]) -> Lookup:
    """Lookup in mini-swe-agent's `.env`."""
    return _in(mini_folder(environ) / ".env", own=True)


def mini_folder(environ: Mapping[str, str]) -> Path:
    """Folder of mini-swe-agent's own settings."""
    mac = sys.platform == "darwin"
    usual = Path("Library", "Application Support") if mac else Path(".config")
    base = config_folder(environ, "" if mac else "XDG_CONFIG_HOME", str(usual)) / "mini-swe-agent"
    named = environ.get("MSWEA_GLOBAL_CONFIG_DIR")
    return Path(named) if named else base


def aider_lookup(environ: Mapping[str, str], working_dir: Path, given: str) -> Lookup:
    """Lookup in aider's `.env` files, all of which override the environment.

    `given` is the file that its option --env-file names; without it, the root's comes last.
    """
    above = (working_dir, *working_dir.parents)
    root = next((one for one in above if is_present(one / ".git")), None)
    home = config_folder(environ, "", "")
    last = working_dir / given if given else (root or working_dir) / ".env"
    places = [home / ".env", *([root / ".env"] if root else []), working_dir / ".env", last]
    order = list(dict.fromkeys(reversed(places)))
    finds = [_in(one, own=one == home / ".env" or bool(given and one == last)) for one in order]

    def find(name: str) -> FileVariable | None:
        return next((found for one in finds if (found := one(name)) is not None), None)

    return find


def aider_config_url(environ: Mapping[str, str], working_dir: Path) -> FileVariable | None:
    """`openai-api-base` of aider's configuration files, the nearest of which holds."""
    try:
        import yaml  # lazily: no other agent needs it here
    except ImportError:
        return None
    above = (working_dir, *working_dir.parents)
    root = next((one for one in above if is_present(one / ".git")), None)
    home = config_folder(environ, "", "")
    for folder in (working_dir, *([root] if root else []), home):
        file = folder / ".aider.conf.yml"
        try:
            held: Any = yaml.safe_load(read_text(file))
        except (yaml.YAMLError, ValueError, RecursionError):
            held = None
        if url := as_text(as_object(held).get("openai-api-base")):
            return FileVariable(url, file, folder == home and is_http_url(url))
    return None


def qwen_lookup(environ: Mapping[str, str], working_dir: Path) -> Lookup:
    """Lookup in the `.env` that Qwen Code reads, then in its settings."""
    folder = config_folder(environ, "QWEN_HOME", ".qwen")
    in_file = _nearest(config_folder(environ, "", ""), folder, working_dir)
    settings = [one / "settings.json" for one in (working_dir / ".qwen", folder)]
    held = [(path, path.parent == folder, read_object(path)) for path in settings]

    def find(name: str) -> FileVariable | None:
        return in_file(name) or _in_settings(name, held)

    return find


def _in_settings(name: str, held: list[tuple[Path, bool, dict[str, Any]]]) -> FileVariable | None:
    """Value in Qwen Code's settings: a variable, or the base URL."""
    for keys in (("env", name), ("security", "auth", "baseUrl")):
        for path, own, settings in held:
            value = as_text(get_nested(settings, *keys))
            if value:
                return FileVariable(value, path, own and is_http_url(value))
    return None


def _nearest(home: Path, folder: Path, here: Path) -> Lookup:
    """Nearest `.env` from a folder upwards; otherwise that of the home folder."""
    own = (folder / ".env", home / ".env")
    places = [
        place
        for one in (here, *here.parents)
        for place in (own if one == home else (one / folder.name / ".env", one / ".env"))
    ]
    file = next((one for one in (*places, *own) if is_present(one)), None)
    return _in(file, own=file in own)


def _in(file: Path | None, *, own: bool) -> Lookup:
    held = _variables(file) if file is not None else {}

    def find(name: str) -> FileVariable | None:
        if file is None:
            return None
        if held is None:
            return FileVariable("", file, is_trusted=False)
        value, plain = held.get(name, ("", True))
        return FileVariable(value, file, own and plain and is_http_url(value)) if value else None

    return find


def _variables(file: Path) -> dict[str, tuple[str, bool]] | None:
    """Variables of a file, and whether every dotenv reader finds the same ones.

    An unreadable file has none; None: the file is too large.
    """
    try:
        if file.stat().st_size > _LARGEST:
            return None
    except OSError:
        return {}
    found = (line.groups() for line in _LINE.finditer(read_text(file)))
    return {
        name: (next(value for value in (*values, "") if value is not None).strip(), not colon)
        for name, colon, *values in found
    }
