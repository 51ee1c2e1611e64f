"""Records of a block: lines of JSONL from one byte to another, or row groups of Parquet.

A line belongs to the block in which it begins. A gzip file is one block: it can only be read from
its start.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import IO, Any, Literal, cast

from msgspec import Struct

from .addresses import (
    FoundFile,
    file_name,
    is_remote,
    missing_package,
    naming_failures,
    open_stream,
)

Kind = Literal["jsonl", "gzip", "parquet"]

SUFFIXES: dict[str, Kind] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".jsonl.gz": "gzip",
    ".ndjson.gz": "gzip",
    ".parquet": "parquet",
}
MAX_LINE_BYTES = 256 * 1024 * 1024  # a longer line is set aside
_ROWS = 64  # rows of Parquet in memory at a time
_CHUNK = 8 * 1024 * 1024  # skipped at a time in a line that is too long


class UnreadableInput(ValueError):
    """The reason why a file, or the rest of it, cannot be read."""


class Record(Struct, frozen=True):
    """One record and its place: the byte at which its line begins, or the number of its row."""

    place: int
    data: bytes | dict[str, Any] | None  # None: it is too long, or cannot be read
    read: int  # bytes of the block that are read with it
    why: str = ""  # it cannot be read


class Block(Struct, frozen=True):
    """A part of a file that is worked on at once and becomes one shard."""

    number: int
    source: str
    kind: Kind
    start: int  # a byte, or a row group
    end: int
    size: int  # bytes, about
    fatal: tuple[tuple[int, str], ...] = ()  # records that ended their process, and how


def kind_of(address: str) -> Kind | None:
    """The kind of a file by its name; None: it is none that can be read."""
    name = file_name(address).lower()
    return next((kind for suffix, kind in SUFFIXES.items() if name.endswith(suffix)), None)


def split_file(file: FoundFile, block_bytes: int, first: int) -> list[Block]:
    """The blocks of a file, numbered from the first one on; raises UnreadableInput."""
    kind = kind_of(file.address)
    if kind is None:
        raise UnreadableInput(f"its name ends with none of {', '.join(SUFFIXES)}")
    if kind == "parquet":
        return _row_group_blocks(file, block_bytes, first)
    step = block_bytes if kind == "jsonl" else max(file.size, 1)
    starts = range(0, file.size, step)
    ends = [min(start + step, file.size) for start in starts]
    return [
        Block(first + at, file.address, kind, start, end, end - start)
        for at, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def _row_group_blocks(file: FoundFile, block_bytes: int, first: int) -> list[Block]:
    """Row groups together up to a size."""
    with ExitStack() as stack:
        if is_remote(file.address):
            stack.enter_context(naming_failures(file.address, UnreadableInput))
        groups = _open_parquet(file.address, stack).metadata
        sizes = [groups.row_group(at).total_byte_size for at in range(groups.num_row_groups)]
    blocks: list[Block] = []
    start = size = 0
    for at, own in enumerate(sizes):
        size += own
        if size >= block_bytes or at == len(sizes) - 1:
            number = first + len(blocks)
            blocks.append(Block(number, file.address, "parquet", start, at + 1, size))
            start, size = at + 1, 0
    return blocks


def parquet_module() -> Any:
    """Pyarrow's reader and writer of Parquet."""
    try:
        return import_module("pyarrow.parquet")  # lazily: only Parquet needs it
    except ImportError as error:
        raise missing_package("Parquet", error) from None


def _open_parquet(address: str, stack: ExitStack) -> Any:
    parquet = parquet_module()
    stream = stack.enter_context(open_stream(address))
    try:
        return parquet.ParquetFile(stream, pre_buffer=False)
    except (ValueError, OSError) as error:
        if not _is_broken_data(error):
            raise
        raise UnreadableInput(f"it is no Parquet file ({_one_line(error)})") from None


def _is_broken_data(error: ValueError | OSError) -> bool:
    """Report whether Arrow refuses data; what storage refuses is tried again.

    ArrowInvalid is a ValueError. For broken compression Arrow raises an OSError without a number.
    """
    return isinstance(error, ValueError) or (type(error) is OSError and error.errno is None)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def read_schema(address: str) -> Any:
    """The Arrow schema of a Parquet file."""
    with ExitStack() as stack:
        return _open_parquet(address, stack).schema_arrow


def read_records(block: Block, *, for_table: bool = False) -> Iterator[Record]:
    """The records of a block; raises UnreadableInput where its data is broken.

    Python's times have no nanoseconds. Those of Parquet are texts, or numbers `for_table`, which
    go into a table again.
    """
    if block.kind == "parquet":
        yield from _rows(block, for_table=for_table)
        return
    with open_stream(block.source) as stream:
        if block.kind == "gzip":
            yield from _gzip_lines(stream, block.size)
        else:
            yield from _lines(stream, block.start, block.end)


def _lines(stream: IO[bytes], start: int, end: int) -> Iterator[Record]:
    place = start
    if start:
        stream.seek(start - 1)
        place += _skip_line(stream) - 1  # up to the end of the line that the last block has
    while place < end and (found := _next_line(stream)):
        line, length = found
        if line is None or line.strip():
            yield Record(place, line, length)
        place += length


def _next_line(stream: IO[bytes]) -> tuple[bytes | None, int] | None:
    """The next line and its length; None at the end."""
    line = stream.readline(MAX_LINE_BYTES)
    if len(line) < MAX_LINE_BYTES or line.endswith(b"\n"):
        return (line, len(line)) if line else None
    return None, len(line) + _skip_line(stream)


def _skip_line(stream: IO[bytes]) -> int:
    """Skip what is left of a line, and count its bytes."""
    skipped = 0
    while chunk := stream.readline(_CHUNK):
        skipped += len(chunk)
        if chunk.endswith(b"\n"):
            break
    return skipped


def _gzip_lines(stream: IO[bytes], size: int) -> Iterator[Record]:
    """The lines of a gzip file; bytes read are those of the packed file."""
    place = read = 0
    with gzip.GzipFile(fileobj=stream) as unpacked:
        try:
            while found := _next_line(cast(IO[bytes], unpacked)):
                line, length = found
                now = min(stream.tell(), size)
                if line is None or line.strip():
                    yield Record(place, line, now - read)
                    read = now
                place += length
        except (zlib.error, EOFError, gzip.BadGzipFile) as error:
            raise UnreadableInput(f"its gzip data is broken ({_one_line(error)})") from error


def _rows(block: Block, *, for_table: bool) -> Iterator[Record]:
    with ExitStack() as stack:
        file = _open_parquet(block.source, stack)
        groups = range(block.start, block.end)
        row = sum(file.metadata.row_group(at).num_rows for at in range(block.start))
        count = sum(file.metadata.row_group(at).num_rows for at in groups)
        each = block.size // max(count, 1)
        try:
            for batch in file.iter_batches(_ROWS, row_groups=[*groups]):
                for data, why in _values(_with_times(batch, for_table=for_table)):
                    yield Record(row, data, each, why)
                    row += 1
        except (ValueError, OSError) as error:
            if not _is_broken_data(error):
                raise
            raise UnreadableInput(f"its Parquet data is broken ({_one_line(error)})") from error


def _values(batch: Any) -> Iterator[tuple[dict[str, Any] | None, str]]:
    """The rows of a batch as Python's values, and why one has none, such as a year after 9999."""
    found: Sequence[dict[str, Any]]
    try:
        found = batch.to_pylist()
    except (ValueError, OverflowError) as error:
        if batch.num_rows == 1:
            yield None, f"it has a value that Python has not: {_one_line(error)}"
            return
        for at in range(batch.num_rows):
            yield from _values(batch.slice(at, 1))
    else:
        yield from ((data, "") for data in found)


def _with_times(batch: Any, *, for_table: bool) -> Any:
    """A batch with numbers or texts in place of nanoseconds."""
    arrow: Any = import_module("pyarrow")
    number, text = arrow.int64(), arrow.string()
    fields = [
        field.with_type(_without_nanoseconds(arrow, field.type, number if for_table else text))
        for field in batch.schema
    ]
    schema = arrow.schema(fields, batch.schema.metadata)
    return batch if schema.equals(batch.schema) else batch.cast(schema)


def _without_nanoseconds(arrow: Any, type: Any, other: Any) -> Any:
    """A type with another one in place of nanoseconds, also within."""
    types = arrow.types
    if types.is_timestamp(type) or types.is_time64(type):
        return other if type.unit == "ns" else type
    if types.is_duration(type):
        return arrow.int64() if type.unit == "ns" else type
    if types.is_struct(type):
        fields = (type.field(at) for at in range(type.num_fields))
        return arrow.struct(
            [one.with_type(_without_nanoseconds(arrow, one.type, other)) for one in fields]
        )
    if types.is_map(type):
        kinds = (_without_nanoseconds(arrow, one, other) for one in (type.key_type, type.item_type))
        return arrow.map_(*kinds)
    if types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type):
        field = type.value_field
        field = field.with_type(_without_nanoseconds(arrow, field.type, other))
        if types.is_fixed_size_list(type):
            return arrow.list_(field, type.list_size)
        return arrow.large_list(field) if types.is_large_list(type) else arrow.list_(field)
    return type
