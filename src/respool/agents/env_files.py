"""Variables in the `.env` and settings files that agents read beside the environment.

In most agents the environment overrides such a file. A base URL set in the environment would
therefore send the file's key to a host other than the one the file names.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from .settings_files import (
    as_text,
    config_folder,
    get_nested,
    is_http_url,
    is_present,
    read_object,
    read_text,
)

_LINE: Final = re.compile(
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
    mac = sys.platform == "darwin"
    usual = Path("Library", "Application Support") if mac else Path(".config")
    base = config_folder(environ, "" if mac else "XDG_CONFIG_HOME", str(usual)) / "mini-swe-agent"
    named = environ.get("MSWEA_GLOBAL_CONFIG_DIR")
    return _in((Path(named) if named else base) / ".env", own=True)


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
