"""Read-only access to agents' settings files: JSON with comments, and TOML."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, cast

# What has no end goes on to that of the text: so each is looked at once, whatever a file holds.
_STRING: Final = r'"(?:[^"\\]|\\.?)*(?:"|\Z)'
_COMMENTS: Final = re.compile(rf"({_STRING})|//[^\r\n]*|/\*(?:.*?\*/|.*)", re.DOTALL)
_LAST_COMMAS: Final = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)


def config_folder(environ: Mapping[str, str], variable: str, below: str) -> Path:
    """The folder that a variable names; else the one of this name in the user's home."""
    named = environ.get(variable)
    return Path(named) if named else Path(environ.get("HOME") or Path.home()) / below


def read_object(path: Path) -> dict[str, Any]:
    """A file's object; nothing where it is not there, or is none."""
    return parse_object(read_text(path)) or {}


def is_present(path: Path) -> bool:
    """Whether there is something; what cannot be looked at is not."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def read_text(path: Path) -> str:
    """What a file says, as agents read it: a byte that is wrong harms that character alone.

    Nothing where it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except (OSError, ValueError):
        return ""


def parse_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is, comments and last commas aside; None: it is none."""
    try:
        found: Any = json.loads(_plain(text))
    except (ValueError, RecursionError):
        return None
    return cast(dict[str, Any], found) if isinstance(found, dict) else None


def _plain(text: str) -> str:
    """JSON without what JSON does not know."""
    for pattern in (_COMMENTS, _LAST_COMMAS):
        text = pattern.sub(lambda found: found[1] or "", text)
    return text


def read_toml(path: Path) -> dict[str, Any]:
    """A file's table; nothing where it is not there, or is none."""
    try:
        return tomllib.loads(read_text(path))
    except ValueError:
        return {}


def merge_settings(settings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Settings laid over one another: the later holds, objects are merged."""
    made: dict[str, Any] = {}
    for one in settings:
        for key, value in one.items():
            below = made.get(key)
            both = isinstance(below, dict) and isinstance(value, dict)
            made[key] = merge_settings([as_object(below), as_object(value)]) if both else value
    return made


def get_nested(value: Any, *keys: str) -> Any:
    """What stands in an object under these keys, one below the other; None where nothing does."""
    for key in keys:
        value = as_object(value).get(key)
    return value


def as_object(value: Any) -> dict[str, Any]:
    """A value where it is an object; else an empty one."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def as_text(value: Any) -> str:
    """A value where it is a text; else an empty one."""
    return value.strip() if isinstance(value, str) else ""


def is_http_url(url: str) -> bool:
    """Whether a URL is one, and no name for something that the agent alone can look up."""
    return url.startswith(("https://", "http://")) and "{" not in url
