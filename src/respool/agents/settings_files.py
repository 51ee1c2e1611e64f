"""Read-only access to agents' settings files: JSON with comments, and TOML."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, cast

# An unterminated string or comment runs to the end, so the scan stays linear.
_STRING: Final = r'"(?:[^"\\]|\\.?)*(?:"|\Z)'
_COMMENTS: Final = re.compile(rf"({_STRING})|//[^\r\n]*|/\*(?:.*?\*/|.*)", re.DOTALL)
_LAST_COMMAS: Final = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)


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
