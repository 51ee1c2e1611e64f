"""Transcripts found on disk and read one record at a time, whichever agent left them."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

import msgspec
from msgspec import Struct

from ..codecs.json_tree import JSON
from .session import Session, Skipped

HEAD = 65_536  # bytes of a file by which its reader is chosen
LONGEST_LINE = 256 * 1024 * 1024  # a record longer than this is left out
LARGEST_DOCUMENT = 512 * 1024 * 1024  # a JSON file that is one value must fit into memory
SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz")

# Where each agent keeps its transcripts, below the home folder.
PLACES: dict[str, str] = {
    "claude-code": ".claude/projects",
    "codex": ".codex/sessions",
    "pi": ".pi/agent/sessions",
    "opencode": ".local/share/opencode/storage",
    "gemini-cli": ".gemini/tmp",
    "copilot-cli": ".copilot",
}


class Reader(Struct, frozen=True):
    """How one agent's transcripts are told and read."""

    agent: str
    recognises: Callable[[bytes, str], bool]
    read: Callable[[Iterable[JSON], str], Iterator[Session | Skipped]]


def find(home: Path, agents: Iterable[str] | None = None) -> Iterator[Path]:
    """The transcripts that agents left below this home folder."""
    for agent in PLACES if agents is None else agents:
        place = home / PLACES[agent] if agent in PLACES else None
        if place is not None and place.is_dir():
            yield from files_below(place)


def files_below(path: Path) -> Iterator[Path]:
    """A file itself, or all files below a folder that could be transcripts, in order."""
    if not path.is_dir():
        yield path
        return
    for found in sorted(path.rglob("*")):
        if found.name.endswith(SUFFIXES) and found.is_file():
            yield found


def read_file(path: Path, readers: Iterable[Reader]) -> Iterator[Session | Skipped]:
    """The sessions in one file; what cannot be read is named and skipped."""
    source = str(path)
    try:
        with _opened(path) as stream:
            head = stream.read(HEAD)
            if not head.strip():
                yield Skipped(source, "it is empty")
                return
            reader = next((r for r in readers if r.recognises(head, path.name)), None)
            if reader is None:
                yield Skipped(source, "it is no transcript of an agent that clew knows")
                return
            yield from reader.read(_records(stream, head, path), source)
    except (OSError, EOFError, _Unreadable) as error:
        yield Skipped(source, str(error) or type(error).__name__)


class _Unreadable(ValueError):
    """The file is not what its name says."""


def _opened(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _records(stream: IO[bytes], head: bytes, path: Path) -> Iterator[JSON]:
    """The file's records: a line each, or the one value that it is."""
    if path.name.removesuffix(".gz").endswith(".jsonl"):
        return _lines(stream, head)
    return iter([_document(stream, head)])


def _lines(stream: IO[bytes], head: bytes) -> Iterator[JSON]:
    """Each line that is JSON; one that is not (the last may be half written) is left out."""
    start, _, rest = head.rpartition(b"\n")
    first = rest + stream.readline(LONGEST_LINE)
    lines: Iterable[bytes] = chain(start.split(b"\n"), [first], _bounded(stream))
    for line in lines:
        if line.strip():
            record = _decoded(line)
            if record is not None:
                yield record


def _bounded(stream: IO[bytes]) -> Iterator[bytes]:
    """The lines that are left; what of a line is beyond the longest is read and forgotten."""
    while line := stream.readline(LONGEST_LINE):
        if line.endswith(b"\n") or len(line) < LONGEST_LINE:
            yield line
            continue
        while (more := stream.readline(LONGEST_LINE)) and not more.endswith(b"\n"):
            pass


def _decoded(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _document(stream: IO[bytes], head: bytes) -> JSON:
    body = head + stream.read(LARGEST_DOCUMENT)
    if len(body) > LARGEST_DOCUMENT:
        raise _Unreadable(f"it is one JSON value of more than {LARGEST_DOCUMENT:,} bytes")
    record = _decoded(body)
    if record is None:
        raise _Unreadable("it is not valid JSON")
    return record
