"""Variables in the `.env` and settings files that agents read beside the environment.

Most agents let the environment hold before such a file. So a base URL of respool's own in the
environment would take the key of a file to another host than the one that the file names for it.
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
_LARGEST: Final = 1_000_000  # bytes; a larger file may say anything


class FileVariable(Struct, frozen=True):
    """What a file says that a variable is."""

    value: str
    file: Path
    is_trusted: (
        bool  # a URL in one of the user's files; else whether the agent goes by it is not known
    )


Lookup = Callable[[str], FileVariable | None]


def no_lookup(_name: str) -> FileVariable | None:
    """The agent reads no such file."""
    return None


def dotenv_lookup(working_dir: Path) -> Lookup:
    """For commands that are not known: many read a `.env` of their folder, or of one above."""
    above = (
        one / name for one in (working_dir, *working_dir.parents) for name in (".env.local", ".env")
    )
    finds = [_in(file, own=False) for file in above if is_present(file)]

    def find(name: str) -> FileVariable | None:
        return next((found for one in finds if (found := one(name)) is not None), None)

    return find


def gemini_lookup(environ: Mapping[str, str], working_dir: Path) -> Lookup:
    """The one `.env` that Gemini CLI reads."""
    home = config_folder(environ, "GEMINI_CLI_HOME", "")
    return _nearest(home, home / ".gemini", working_dir)


def mini_lookup(environ: Mapping[str, str]) -> Lookup:
    """The `.env` of mini-swe-agent's own."""
    mac = sys.platform == "darwin"
    usual = Path("Library", "Application Support") if mac else Path(".config")
    base = config_folder(environ, "" if mac else "XDG_CONFIG_HOME", str(usual)) / "mini-swe-agent"
    named = environ.get("MSWEA_GLOBAL_CONFIG_DIR")
    return _in((Path(named) if named else base) / ".env", own=True)


def qwen_lookup(environ: Mapping[str, str], working_dir: Path) -> Lookup:
    """The one `.env` that Qwen Code reads, then its settings."""
    folder = config_folder(environ, "QWEN_HOME", ".qwen")
    in_file = _nearest(config_folder(environ, "", ""), folder, working_dir)
    settings = [one / "settings.json" for one in (working_dir / ".qwen", folder)]
    held = [(path, path.parent == folder, read_object(path)) for path in settings]

    def find(name: str) -> FileVariable | None:
        return in_file(name) or _in_settings(name, held)

    return find


def _in_settings(name: str, held: list[tuple[Path, bool, dict[str, Any]]]) -> FileVariable | None:
    """What Qwen Code's settings say: as a variable, else as the base URL itself."""
    for keys in (("env", name), ("security", "auth", "baseUrl")):
        for path, own, settings in held:
            value = as_text(get_nested(settings, *keys))
            if value:
                return FileVariable(value, path, own and is_http_url(value))
    return None


def _nearest(home: Path, folder: Path, here: Path) -> Lookup:
    """The first `.env` from a folder upwards; else one of the user's home."""
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
    """The variables of a file, and whether all who read such files would find them.

    There are none where it cannot be read; None: it is too large to be looked at.
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
