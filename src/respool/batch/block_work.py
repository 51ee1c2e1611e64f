"""Work on one block: its records compacted into a shard, bad ones set aside, figures kept.

The entry of the manifest is written last: a block without one is done again.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import IO, Any

import msgspec
from msgspec import Struct

from ..compaction.memo import Memo
from ..regex import lazy_compile
from .addresses import join, write_stream
from .compacted_record import (
    CompactedRecord,
    RecordOptions,
    RejectedRecord,
    compact_record,
)
from .records import Block, Record, UnreadableInput, read_records
from .shards import Shard, open_shard

MANIFEST, REJECTED = "manifest", "rejected"
_MEMO_STATES, _MEMO_BYTES = 64, 128_000_000
_NUMBER = lazy_compile(r"\d[\d,.]*")
_MAX_REASON_CHARS = 200
_MAX_KEPT_CHARS = 4_000_000  # of a record that is set aside; a longer one is named only

Note = Callable[[int, int], None]  # the record about to be worked on, and bytes read before it


class BlockOptions(Struct, frozen=True, kw_only=True):
    """Output of a batch job, and options of its records."""

    folder: str
    to: str | None  # None: as the input
    record: RecordOptions


class BlockFigures(Struct, frozen=True, kw_only=True):
    """Figures of a block, or of many."""

    records: int = 0  # in shards
    changed: int = 0
    untouched: int = 0  # whose history must not be changed
    rejected: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    edits: dict[str, tuple[int, int]] = {}  # by reason: their number and the tokens they save
    reasons: dict[str, int] = {}  # of what was set aside, without its places


class BlockDone(Struct, frozen=True):
    """An entry of the manifest."""

    number: int
    source: str
    shard: str  # its name
    figures: BlockFigures


def shard_kind(block: Block, to: str | None) -> str:
    """The kind of a block's shard."""
    return to or ("parquet" if block.kind == "parquet" else "jsonl")


def part_name(number: int) -> str:
    """The name of a block's files, without suffix."""
    return f"part-{number:06d}"


def shard_name(block: Block, to: str | None) -> str:
    """The name of a block's shard."""
    return f"{part_name(block.number)}.{shard_kind(block, to)}"


def work_on_block(block: Block, options: BlockOptions, note: Note) -> BlockDone:
    """Compact a block; raises OSError if the storage fails, so that it is tried again."""
    part, kind = part_name(block.number), shard_kind(block, options.to)
    name = shard_name(block, options.to)
    with ExitStack() as stack:
        rejects = _RejectFile(join(options.folder, REJECTED, f"{part}.jsonl"), stack)
        stream = _CountedStream(stack.enter_context(write_stream(join(options.folder, name))))
        shard = open_shard(stream, block, kind, with_originals=options.record.with_originals)
        worker = _BlockWorker(block, options, rejects)
        try:
            worker.fill(shard, note)
        finally:
            shard.close()  # what fails is written to nothing that stays
    done = BlockDone(block.number, block.source, name, worker.figures(stream.size))
    with write_stream(join(options.folder, MANIFEST, f"{part}.json")) as out:
        out.write(msgspec.json.encode(done))
    return done


class _CountedStream(io.RawIOBase):
    """A stream that counts its bytes. Closing it leaves the inner one open."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.size = 0

    def write(self, data: Any, /) -> int:
        self.size += memoryview(data).nbytes
        return self._stream.write(data)

    def tell(self) -> int:
        return self.size

    def writable(self) -> bool:
        return True


class _RejectFile:
    """A file of records that are set aside, made with the first one."""

    def __init__(self, address: str, stack: ExitStack) -> None:
        self._address, self._stack = address, stack
        self._stream: IO[bytes] | None = None

    def add(self, entry: dict[str, Any]) -> None:
        if self._stream is None:
            self._stream = self._stack.enter_context(write_stream(self._address))
        self._stream.write(msgspec.json.encode(entry) + b"\n")


class _BlockWorker:
    """Compacts the records of one block in order."""

    def __init__(self, block: Block, options: BlockOptions, rejects: _RejectFile) -> None:
        self._block, self._options, self._rejects = block, options, rejects
        self._for_table = shard_kind(block, options.to) == "parquet"
        self._fatal = dict(block.fatal)
        self._memo = Memo(_MEMO_STATES, _MEMO_BYTES)
        self._counts = Counter[str]()
        self._edits: dict[str, tuple[int, int]] = {}
        self._reasons = Counter[str]()

    def fill(self, shard: Shard, note: Note) -> None:
        read = 0
        for record in self._records():
            note(record.place, read)
            read += record.read
            try:
                if why := self._fatal.get(record.place) or record.why:
                    raise RejectedRecord(why)
                made = compact_record(record.data, self._options.record, self._memo)
                shard.add(made)
            except RejectedRecord as why:
                self._reject(record.place, str(why), record.data)
                continue
            self._count(record, made)
        self._counts["bytes_in"] = read

    def _records(self) -> Iterator[Record]:
        """The records, until the file cannot be read any further."""
        place = -1
        try:
            for record in read_records(self._block, for_table=self._for_table):
                place = record.place
                yield record
        except UnreadableInput as why:
            self._reject(place + 1, f"the rest of the file cannot be read: {why}", None)

    def _count(self, record: Record, made: CompactedRecord) -> None:
        counts = self._counts
        counts["records"] += 1
        counts["untouched"] += made.untouched
        counts["changed"] += bool(made.edits)
        counts["tokens_before"] += made.before
        counts["tokens_after"] += made.after
        for reason, (number, saved) in made.edits.items():
            held = self._edits.get(reason, (0, 0))
            self._edits[reason] = (held[0] + number, held[1] + saved)

    def _reject(self, place: int, why: str, data: bytes | dict[str, Any] | None) -> None:
        self._counts["rejected"] += 1
        self._reasons[general_reason(why)] += 1
        unit = "row" if self._block.kind == "parquet" else "byte"
        entry: dict[str, Any] = {
            "source": self._block.source,
            unit: place,
            "reason": why,
        }
        if isinstance(data, dict):
            data = msgspec.json.encode(data)
        if data is not None and len(data) <= _MAX_KEPT_CHARS:
            entry["record"] = data.decode("utf-8", "replace").rstrip("\n")
        self._rejects.add(entry)

    def figures(self, written: int) -> BlockFigures:
        names = set(BlockFigures.__struct_fields__) - {"edits", "reasons", "bytes_out"}
        return BlockFigures(
            **{name: self._counts[name] for name in names},
            bytes_out=written,
            edits=dict(sorted(self._edits.items())),
            reasons=dict(sorted(self._reasons.items())),
        )


def general_reason(why: str) -> str:
    """A reason without the details of one record, to be counted."""
    return _NUMBER.sub("N", why.partition(":")[0])[:_MAX_REASON_CHARS]


def add_figures(figures: Iterator[BlockFigures]) -> BlockFigures:
    """The sum of figures."""
    sums, edits, reasons = Counter[str](), Counter[tuple[str, int]](), Counter[str]()
    for one in figures:
        for name in BlockFigures.__struct_fields__:
            value = getattr(one, name)
            if isinstance(value, int):
                sums[name] += value
        for reason, pair in one.edits.items():
            edits[reason, 0] += pair[0]
            edits[reason, 1] += pair[1]
        reasons.update(one.reasons)
    names = sorted({reason for reason, _ in edits})
    return BlockFigures(
        **dict(sums),
        edits={reason: (edits[reason, 0], edits[reason, 1]) for reason in names},
        reasons=dict(sorted(reasons.items())),
    )
