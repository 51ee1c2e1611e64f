"""Checkpoints of a replay: outcomes of finished files, for the next run."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

import msgspec
from msgspec import Struct

from ..batch.addresses import join, open_stream, write_stream
from ..plugins import installed_version
from .input_file import edition_of
from .result import SessionResult, SkippedSource
from .runner import ItemOutcome, RunRequest, SessionTrace


class _Entry(Struct, frozen=True, omit_defaults=True):
    """One outcome; without any, the session was not selected."""

    index: int
    result: SessionResult | None = None
    trace: SessionTrace | None = None
    skipped: SkippedSource | None = None

    @property
    def outcome(self) -> ItemOutcome:
        return self.result or self.trace or self.skipped


_ENTRIES = list[_Entry]


class Checkpoint(Struct, frozen=True):
    """A folder of finished files, on disk or in object storage."""

    folder: str

    def of(self, request: RunRequest) -> PassCheckpoint:
        """The checkpoint of one pass over the files."""
        return PassCheckpoint(self.folder, request, _request_key(request))


class PassCheckpoint(Struct, frozen=True):
    """Finished files of one pass, named by a hash of all that their outcomes depend on."""

    folder: str
    request: RunRequest
    key: bytes

    def load(self, file: str) -> list[tuple[int, ItemOutcome]] | None:
        """The outcomes of a file; None: it is not finished, or has changed."""
        address = self._address(file)
        if address is None:
            return None
        try:
            with open_stream(address) as stream:
                entries = msgspec.msgpack.decode(stream.read(), type=_ENTRIES)
        except (OSError, msgspec.DecodeError):
            return None
        return [(one.index, one.outcome) for one in entries]

    def save(self, file: str, outcomes: Mapping[int, ItemOutcome]) -> None:
        """Keep the outcomes of a finished file."""
        address = self._address(file)
        if address is not None:
            entries = [_entry(index, outcome) for index, outcome in outcomes.items()]
            with write_stream(address) as stream:
                stream.write(msgspec.msgpack.encode(entries))

    def _address(self, file: str) -> str | None:
        edition = edition_of(file)
        if edition is None:
            return None
        own = {place: one for place, one in self.request.duplicates.items() if place[0] == file}
        duplicates = [(place, sorted(one.requests), one.source) for place, one in own.items()]
        about = msgspec.msgpack.encode([self.key, file, edition, duplicates])
        return join(self.folder, f"{blake2b(about, digest_size=16).hexdigest()}.msgpack")


def _entry(index: int, outcome: ItemOutcome) -> _Entry:
    match outcome:
        case SessionResult():
            return _Entry(index, result=outcome)
        case SessionTrace():
            return _Entry(index, trace=outcome)
        case SkippedSource():
            return _Entry(index, skipped=outcome)
        case None:
            return _Entry(index)


def _request_key(request: RunRequest) -> bytes:
    """A hash of all options that an outcome depends on."""
    is_proxied = request.is_proxied
    about = [
        installed_version(),
        request.options,
        [_file_hash(name) for name in request.options.policies],
        request.agents,
        request.since,
        request.with_details,
        request.trace_only,
        is_proxied if isinstance(is_proxied, Struct) else None,
    ]
    return blake2b(msgspec.msgpack.encode(about), digest_size=16).digest()


def _file_hash(policy: str) -> bytes | None:
    """A hash of a policy's file; None: it is a name."""
    file = Path(policy)
    return blake2b(file.read_bytes()).digest() if file.is_file() else None
