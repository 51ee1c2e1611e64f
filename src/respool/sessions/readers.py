"""Reader registry: locate transcripts on disk and read each with its agent's reader."""

from __future__ import annotations

import os
import sqlite3
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

from msgspec import Struct

from ..regex import lazy_compile
from ..wire.json import JSON
from . import (
    claude_code,
    codex,
    collection,
    copilot_cli,
    gemini_cli,
    inspect_log,
    opencode,
    openhands,
    pi,
    request_log,
    trajectory,
)
from .session import NO_REQUEST, RecordedSession, Skipped
from .transcript_file import TranscriptFile, UnreadableFile, describe_error, open_regular

SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz", ".traj", ".traj.gz", ".eval")

_OPENCODE_DATABASE = "opencode*.db"
# Files that are no transcripts: Claude Code's notes on sub-agents; the later events of a
# conversation of OpenHands, and its state; the messages and parts of opencode's sessions.
_FRAGMENT = lazy_compile(
    r".*/subagents/[^/]*\.meta\.json"
    r"|.*/events/event-(?!0+[-.])[^/]*|.*/conversations/[^/]*/(?:base_state|meta|TASKS)\.json"
    r"|.*/storage/(?:message|part|project|todo|permission|session_diff|session_share|share)/.*"
)

UNKNOWN_AGENT = "it is no transcript of an agent that respool knows"
_READ_ERRORS = (OSError, UnreadableFile, sqlite3.Error, zipfile.BadZipFile, NotImplementedError)


class TranscriptLocation(Struct, frozen=True):
    """A folder, from a variable or below the home folder, and its file patterns."""

    variable: str | None
    folder: str  # a pattern
    pattern: str = "*"  # a pattern, as the folder holds other files too


# Of each agent's places, those of the first variable that is set count, else those below home.
LOCATIONS: dict[str, tuple[TranscriptLocation, ...]] = {
    "claude-code": (
        TranscriptLocation("CLAUDE_CONFIG_DIR", "projects", "*.jsonl"),
        TranscriptLocation(None, ".claude/projects", "*.jsonl"),
        TranscriptLocation(None, ".config/claude/projects", "*.jsonl"),
    ),
    "codex": (
        TranscriptLocation("CODEX_HOME", "sessions", "*.jsonl"),
        TranscriptLocation("CODEX_HOME", "archived_sessions", "*.jsonl"),
        TranscriptLocation(None, ".codex/sessions", "*.jsonl"),
        TranscriptLocation(None, ".codex/archived_sessions", "*.jsonl"),
    ),
    "pi": (
        TranscriptLocation("PI_CODING_AGENT_SESSION_DIR", ".", "*.jsonl"),
        TranscriptLocation("PI_CODING_AGENT_DIR", "sessions", "*.jsonl"),
        TranscriptLocation(None, ".pi/agent/sessions", "*.jsonl"),
    ),
    "opencode": (
        TranscriptLocation("OPENCODE_DB", "."),
        TranscriptLocation("XDG_DATA_HOME", f"opencode/{_OPENCODE_DATABASE}"),
        TranscriptLocation("XDG_DATA_HOME", "opencode/storage"),
        TranscriptLocation(None, f".local/share/opencode/{_OPENCODE_DATABASE}"),
        TranscriptLocation(None, ".local/share/opencode/storage"),
    ),
    "gemini-cli": (
        TranscriptLocation("GEMINI_CLI_HOME", ".gemini/tmp/*/chats"),
        TranscriptLocation(None, ".gemini/tmp/*/chats"),
    ),
    "copilot-cli": (
        TranscriptLocation("COPILOT_HOME", "session-state", "*.jsonl"),
        TranscriptLocation(None, ".copilot/session-state", "*.jsonl"),
    ),
    "openhands": (
        TranscriptLocation("OPENHANDS_CONVERSATIONS_DIR", "."),
        TranscriptLocation("OPENHANDS_PERSISTENCE_DIR", "conversations"),
        TranscriptLocation(None, ".openhands/conversations"),
    ),
    "inspect": (TranscriptLocation("INSPECT_LOG_DIR", "."),),
    "trajectory": (
        TranscriptLocation("MSWEA_GLOBAL_CONFIG_DIR", ".", "*.traj.json"),
        TranscriptLocation(None, ".config/mini-swe-agent", "*.traj.json"),
    ),
}


def find_transcripts(
    home: Path, agents: Iterable[str] | None = None, environ: Mapping[str, str] | None = None
) -> Iterator[Path]:
    """The transcripts that agents left below this home folder, or where variables say."""
    for base, place in search_locations(home, agents, environ):
        yield from _files_at(base, place)


def search_locations(
    home: Path, agents: Iterable[str] | None = None, environ: Mapping[str, str] | None = None
) -> Iterator[tuple[Path, TranscriptLocation]]:
    """Return the locations of these agents' transcripts, each with its folder."""
    for agent in LOCATIONS if agents is None else agents:
        places = LOCATIONS.get(agent, ())
        bases = {place.variable: _base_folder(place, home, environ or {}) for place in places}
        chosen = next((name for name, base in bases.items() if base is not None), None)
        for place in places:
            base = bases[place.variable]
            if base is not None and place.variable == chosen:
                yield base, place


def _base_folder(place: TranscriptLocation, home: Path, environ: Mapping[str, str]) -> Path | None:
    """The folder that a variable names; one that is not absolute names none."""
    if place.variable is None:
        return home
    named = Path(environ.get(place.variable, "")).expanduser()
    return named if named.is_absolute() else None


def _files_at(base: Path, place: TranscriptLocation) -> Iterator[Path]:
    starts = [base] if place.folder == "." else sorted(base.glob(place.folder))
    for start in starts:
        for path in _walk(start) if start.exists() else ():
            if fnmatch(path.name, place.pattern) or path.is_dir():
                yield path


def transcripts_below(path: Path) -> Iterator[Path]:
    """A file itself, or all below a folder that could be transcripts; the folder, if none are."""
    found = False
    for file in _walk(path):
        found = True
        yield file
    if not found:
        yield path


def _walk(path: Path) -> Iterator[Path]:
    """Yield the files in order; an unreadable folder is yielded itself."""
    if not path.is_dir():
        yield path
        return
    if _is_superseded(path):
        return
    denied: list[Path] = []
    walk = os.walk(path, onerror=lambda error: denied.append(Path(error.filename)))
    for folder, inner, names in walk:
        here = Path(folder)
        inner[:] = sorted(name for name in inner if not _is_superseded(here / name))
        yield from (here / name for name in sorted(names) if is_transcript_name(here / name))
    yield from denied


def _is_superseded(folder: Path) -> bool:
    """Check if opencode has migrated this folder to its database."""
    return folder.name == "storage" and any(folder.parent.glob(_OPENCODE_DATABASE))


def is_transcript_name(path: Path) -> bool:
    """Check if a file could be a transcript, by its name and its folder's."""
    named = path.name.endswith(SUFFIXES) or fnmatch(path.name, _OPENCODE_DATABASE)
    return named and not _FRAGMENT.fullmatch(path.as_posix())


__all__ = [
    "LOCATIONS",
    "SUFFIXES",
    "UNKNOWN_AGENT",
    "TranscriptLocation",
    "Reader",
    "transcripts_below",
    "is_transcript_name",
    "find_transcripts",
    "search_locations",
    "read_file",
]


class Reader(Struct, frozen=True):
    """Detection and reading of one agent's transcripts."""

    agent: str
    recognizes: Callable[[bytes, str], bool]
    read: Callable[[Iterable[JSON], str], Iterator[RecordedSession | Skipped]]
    # The records of a file, if they are not its lines.
    stored_records: Callable[[Path], Iterator[JSON | Skipped] | None] | None = None
    is_streaming: bool = False  # whether it holds few records, however many one conversation has


def read_file(path: Path, readers: Iterable[Reader]) -> Iterator[RecordedSession | Skipped]:
    """Yield the sessions in one file; unreadable ones are yielded as Skipped."""
    source = str(path)
    try:
        if path.is_dir():
            next(path.iterdir(), None)  # which raises if the folder is not readable
            yield Skipped(source, "there is no transcript below this folder")
            return
        with open_regular(path) as stream:
            yield from _read_sessions(TranscriptFile(path, stream), path, tuple(readers))
    except RecursionError:
        yield Skipped(source, "a record in it is nested too deeply")
    except MemoryError:
        yield Skipped(source, "it needs more memory than there is")
    except _READ_ERRORS as why:
        yield Skipped(source, describe_error(why))


def _read_sessions(
    contents: TranscriptFile, path: Path, readers: Sequence[Reader]
) -> Iterator[RecordedSession | Skipped]:
    source = str(path)
    reader = next((r for r in readers if r.recognizes(contents.head, path.name)), None)
    if reader is None or not contents.head.strip():
        known = contents.head.strip()
        why = UNKNOWN_AGENT if known else "it is empty"
        yield Skipped(source, next(contents.problems(), why))
        return
    aside: list[Skipped] = []
    stored = reader.stored_records(path) if reader.stored_records else None
    own = contents.records(not reader.is_streaming)
    for found in reader.read(own if stored is None else _split_skipped(stored, aside), source):
        if not (found == Skipped(source, NO_REQUEST) and [*aside, *contents.problems()]):
            yield found  # else the error below has the reason
        contents.release()
    yield from aside
    yield from (Skipped(source, why) for why in contents.problems())


def _split_skipped(stored: Iterable[JSON | Skipped], skipped: list[Skipped]) -> Iterator[JSON]:
    """Yield the records and collect what could not be read."""
    for record in stored:
        if isinstance(record, Skipped):
            skipped.append(record)
        else:
            yield record


READERS: tuple[Reader, ...] = (
    Reader(collection.AGENT, collection.recognizes, collection.read, is_streaming=True),
    Reader(claude_code.AGENT, claude_code.recognizes, claude_code.read),
    Reader(codex.AGENT, codex.recognizes, codex.read),
    Reader(pi.AGENT, pi.recognizes, pi.read),
    Reader(opencode.AGENT, opencode.recognizes, opencode.read, opencode.stored_records),
    Reader(gemini_cli.AGENT, gemini_cli.recognizes, gemini_cli.read),
    Reader(copilot_cli.AGENT, copilot_cli.recognizes, copilot_cli.read),
    Reader(openhands.AGENT, openhands.recognizes, openhands.read, openhands.stored_records),
    Reader(inspect_log.AGENT, inspect_log.recognizes, inspect_log.read, inspect_log.stored_records),
    Reader(request_log.AGENT, request_log.recognizes, request_log.read, is_streaming=True),
    Reader(trajectory.AGENT, trajectory.recognizes, trajectory.read),  # last: any list would do
)
