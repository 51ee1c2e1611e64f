"""Records of running transcripts; of one that is known, only what was appended is read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from msgspec import Struct

from ..sessions import opencode
from ..sessions.readers import search_locations
from ..sessions.transcript_file import decode_json, open_regular
from ..wire.json import JSON

_MAX_BYTES = 128 * 1024 * 1024  # of a transcript: a hook has no time for more
_MAX_KNOWN = 8


class UnusableTranscript(ValueError):
    """A transcript that cannot be used as a history."""


class _Known(Struct):
    """What was read of one file."""

    identity: tuple[int, int]  # device and inode
    end: int  # bytes read, up to the end of a line
    records: list[JSON]


class Transcripts:
    """Records of the transcripts that were asked for last."""

    def __init__(self) -> None:
        self._known: dict[Path, _Known] = {}

    def records(self, path: Path | None) -> list[JSON]:
        """All records of a transcript; none where there is no such file yet."""
        if path is None:
            return []
        try:
            with open_regular(path) as stream:
                return self._read(path, stream)
        except FileNotFoundError:
            return []

    def _read(self, path: Path, stream: IO[bytes]) -> list[JSON]:
        about = os.fstat(stream.fileno())
        if about.st_size > _MAX_BYTES:
            raise UnusableTranscript(f"{path.name} has more than {_MAX_BYTES:,} bytes")
        if path.suffix != ".jsonl":
            return [decode_json(stream.read(_MAX_BYTES))]
        identity = (about.st_dev, about.st_ino)
        known = self._known.pop(path, None)
        if known is None or known.identity != identity or known.end > about.st_size:
            known = _Known(identity, 0, [])
        stream.seek(known.end)
        lines = stream.read(_MAX_BYTES)
        whole = lines.rfind(b"\n") + 1  # the last line may be half written
        decoded = map(decode_json, lines[:whole].splitlines())
        known.records += [record for record in decoded if record is not None]
        known.end += whole
        self._known[path] = known
        while len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        return known.records


def opencode_records(session: str, environ: Mapping[str, str], home: Path) -> list[JSON]:
    """The export of one session in opencode's database; none where it is not known."""
    for base, place in search_locations(home, ("opencode",), environ):
        for path in [base] if place.folder == "." else sorted(base.glob(place.folder)):
            if path.suffix == ".db" and path.is_file():
                found = opencode.read_stored_session(path, session)
                if found is not None:
                    return [found]
    return []
