"""Transcripts read one record at a time, whichever agent left them."""

from __future__ import annotations

import sqlite3
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from ..codecs.json_tree import JSON
from .places import PLACES, SUFFIXES, Place, files_below, find, looked_in
from .records import Contents, Unreadable, opened, sentence
from .session import NO_REQUEST, Session, Skipped

__all__ = [
    "PLACES",
    "SUFFIXES",
    "UNKNOWN",
    "Place",
    "Reader",
    "files_below",
    "find",
    "looked_in",
    "read_file",
]

UNKNOWN = "it is no transcript of an agent that respool knows"
_BROKEN = (OSError, Unreadable, sqlite3.Error, zipfile.BadZipFile, NotImplementedError)


class Reader(Struct, frozen=True):
    """How one agent's transcripts are told and read."""

    agent: str
    recognizes: Callable[[bytes, str], bool]
    read: Callable[[Iterable[JSON], str], Iterator[Session | Skipped]]
    # The records that a file stands for, where they are not what is written in it.
    stored_records: Callable[[Path], Iterator[JSON | Skipped] | None] | None = None
    is_streaming: bool = False  # whether it holds few records, however many one conversation has


def read_file(path: Path, readers: Iterable[Reader]) -> Iterator[Session | Skipped]:
    """The sessions in one file; what cannot be read is named and skipped."""
    source = str(path)
    try:
        if path.is_dir():
            next(path.iterdir(), None)  # which says so if it may not be looked into
            yield Skipped(source, "there is no transcript below this folder")
            return
        with opened(path) as stream:
            yield from _sessions(Contents(path, stream), path, tuple(readers))
    except RecursionError:
        yield Skipped(source, "a record in it is nested too deeply")
    except MemoryError:
        yield Skipped(source, "it needs more memory than there is")
    except _BROKEN as why:
        yield Skipped(source, sentence(why))


def _sessions(
    contents: Contents, path: Path, readers: Sequence[Reader]
) -> Iterator[Session | Skipped]:
    source = str(path)
    reader = next((r for r in readers if r.recognizes(contents.head, path.name)), None)
    if reader is None or not contents.head.strip():
        known = contents.head.strip()
        why = UNKNOWN if known else "it is empty"
        yield Skipped(source, next(contents.problems(), why))
        return
    aside: list[Skipped] = []
    stored = reader.stored_records(path) if reader.stored_records else None
    own = contents.records(not reader.is_streaming)
    for found in reader.read(own if stored is None else _kept(stored, aside), source):
        if not (found == Skipped(source, NO_REQUEST) and [*aside, *contents.problems()]):
            yield found  # else what follows says why
        contents.release()
    yield from aside
    yield from (Skipped(source, why) for why in contents.problems())


def _kept(stored: Iterable[JSON | Skipped], skipped: list[Skipped]) -> Iterator[JSON]:
    """The records; what could not be read is put aside."""
    for record in stored:
        if isinstance(record, Skipped):
            skipped.append(record)
        else:
            yield record
