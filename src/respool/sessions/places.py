"""Where agents keep their transcripts, and the files below a folder that could be some."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path

from msgspec import Struct

SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz", ".traj", ".traj.gz", ".eval")

_DATABASE = "opencode*.db"
# What is no transcript of its own: what Claude Code notes on sub-agents; the later events of a
# conversation of OpenHands, and its state; the messages and parts of opencode's sessions.
_PIECE = re.compile(
    r".*/subagents/[^/]*\.meta\.json"
    r"|.*/events/event-(?!0+[-.])[^/]*|.*/conversations/[^/]*/(?:base_state|meta|TASKS)\.json"
    r"|.*/storage/(?:message|part|project|todo|permission|session_diff|session_share|share)/.*"
)


class Place(Struct, frozen=True):
    """A folder that a variable names, or the home folder, and what to look for below it."""

    variable: str | None
    folder: str  # a pattern
    pattern: str = "*"  # a pattern: other files lie beside the transcripts


# Of each agent's places, those of the first variable that is set count, else those below home.
PLACES: dict[str, tuple[Place, ...]] = {
    "claude-code": (
        Place("CLAUDE_CONFIG_DIR", "projects", "*.jsonl"),
        Place(None, ".claude/projects", "*.jsonl"),
        Place(None, ".config/claude/projects", "*.jsonl"),
    ),
    "codex": (
        Place("CODEX_HOME", "sessions", "*.jsonl"),
        Place("CODEX_HOME", "archived_sessions", "*.jsonl"),
        Place(None, ".codex/sessions", "*.jsonl"),
        Place(None, ".codex/archived_sessions", "*.jsonl"),
    ),
    "pi": (
        Place("PI_CODING_AGENT_SESSION_DIR", ".", "*.jsonl"),
        Place("PI_CODING_AGENT_DIR", "sessions", "*.jsonl"),
        Place(None, ".pi/agent/sessions", "*.jsonl"),
    ),
    "opencode": (
        Place("OPENCODE_DB", "."),
        Place("XDG_DATA_HOME", f"opencode/{_DATABASE}"),
        Place("XDG_DATA_HOME", "opencode/storage"),
        Place(None, f".local/share/opencode/{_DATABASE}"),
        Place(None, ".local/share/opencode/storage"),
    ),
    "gemini-cli": (
        Place("GEMINI_CLI_HOME", ".gemini/tmp/*/chats"),
        Place(None, ".gemini/tmp/*/chats"),
    ),
    "copilot-cli": (
        Place("COPILOT_HOME", "session-state", "*.jsonl"),
        Place(None, ".copilot/session-state", "*.jsonl"),
    ),
    "openhands": (
        Place("OPENHANDS_CONVERSATIONS_DIR", "."),
        Place("OPENHANDS_PERSISTENCE_DIR", "conversations"),
        Place(None, ".openhands/conversations"),
    ),
    "inspect": (Place("INSPECT_LOG_DIR", "."),),
    "trajectory": (
        Place("MSWEA_GLOBAL_CONFIG_DIR", ".", "*.traj.json"),
        Place(None, ".config/mini-swe-agent", "*.traj.json"),
    ),
}


def find(
    home: Path, agents: Iterable[str] | None = None, environ: Mapping[str, str] | None = None
) -> Iterator[Path]:
    """The transcripts that agents left below this home folder, or where variables say."""
    for base, place in looked_in(home, agents, environ):
        yield from _found(base, place)


def looked_in(
    home: Path, agents: Iterable[str] | None = None, environ: Mapping[str, str] | None = None
) -> Iterator[tuple[Path, Place]]:
    """The places where these agents' transcripts are looked for, each with the folder it is in."""
    for agent in PLACES if agents is None else agents:
        places = PLACES.get(agent, ())
        bases = {place.variable: _base(place, home, environ or {}) for place in places}
        chosen = next((name for name, base in bases.items() if base is not None), None)
        for place in places:
            base = bases[place.variable]
            if base is not None and place.variable == chosen:
                yield base, place


def _base(place: Place, home: Path, environ: Mapping[str, str]) -> Path | None:
    """The folder that a variable names; one that is not absolute names none."""
    if place.variable is None:
        return home
    named = Path(environ.get(place.variable, "")).expanduser()
    return named if named.is_absolute() else None


def _found(base: Path, place: Place) -> Iterator[Path]:
    starts = [base] if place.folder == "." else sorted(base.glob(place.folder))
    for start in starts:
        for path in _below(start) if start.exists() else ():
            if fnmatch(path.name, place.pattern) or path.is_dir():
                yield path


def files_below(path: Path) -> Iterator[Path]:
    """A file itself, or all below a folder that could be transcripts; the folder, if none are."""
    found = False
    for file in _below(path):
        found = True
        yield file
    if not found:
        yield path


def _below(path: Path) -> Iterator[Path]:
    """The files in order; a folder that cannot be looked into stands for what is in it."""
    if not path.is_dir():
        yield path
        return
    if _superseded(path):
        return
    denied: list[Path] = []
    walk = os.walk(path, onerror=lambda error: denied.append(Path(error.filename)))
    for folder, inner, names in walk:
        here = Path(folder)
        inner[:] = sorted(name for name in inner if not _superseded(here / name))
        yield from (here / name for name in sorted(names) if _could_be(here / name))
    yield from denied


def _superseded(folder: Path) -> bool:
    """Whether opencode took what is in this folder over into its database."""
    return folder.name == "storage" and any(folder.parent.glob(_DATABASE))


def _could_be(path: Path) -> bool:
    named = path.name.endswith(SUFFIXES) or fnmatch(path.name, _DATABASE)
    return named and not _PIECE.fullmatch(path.as_posix())
