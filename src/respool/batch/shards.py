"""Shards: files of compacted records, JSONL or Parquet."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol, cast

import msgspec

from .compacted_record import (
    AFTER,
    BEFORE,
    ORIGINALS,
    CompactedRecord,
    RejectedRecord,
    without_nulls,
)
from .records import Block, parquet_module, read_schema

_ROW_GROUP_BYTES = 16 * 1024 * 1024  # of JSON, about, that are held before they are written


class Sink(Protocol):
    """A file that is written to; for Parquet, a whole one of Python's."""

    def write(self, data: bytes, /) -> int:
        """Write all of it."""
        ...


class Shard(Protocol):
    """A shard that is being written."""

    def add(self, record: CompactedRecord) -> None:
        """Add a record; raises RejectedRecord for one that does not fit."""
        ...

    def close(self) -> None:
        """Write what is held."""
        ...


def open_shard(stream: Sink, block: Block, to: str, *, with_originals: bool) -> Shard:
    """A shard of the records of a block."""
    if to == "jsonl":
        return _JsonlShard(stream, with_originals)
    schema = read_schema(block.source) if block.kind == "parquet" else None
    return _ParquetShard(stream, schema, with_originals)


class _JsonlShard:
    """One line a record."""

    def __init__(self, stream: Sink, with_originals: bool) -> None:
        self._stream, self._with_originals = stream, with_originals

    def add(self, record: CompactedRecord) -> None:
        figures = record.figures(self._with_originals)
        if isinstance(record.data, dict):
            line = msgspec.json.encode({**record.data, **figures})
        else:
            line = append_fields(record.data, figures)
        self._stream.write(line + b"\n")

    def close(self) -> None:
        pass


def append_fields(record: bytes, fields: dict[str, Any]) -> bytes:
    """An object of JSON with more fields; its own bytes stay."""
    start = record.rstrip()[:-1].rstrip()
    comma = b"" if start == b"{" else b","
    return start + comma + msgspec.json.encode(fields)[1:]


class _ParquetShard:
    """The columns of the input and those of the figures; a line of JSON is one column, `record`."""

    def __init__(self, stream: Sink, schema: Any, with_originals: bool) -> None:
        self._arrow: Any = import_module("pyarrow")  # lazily: only Parquet needs it
        self._with_originals = with_originals
        self._has_columns = schema is not None
        base = self._arrow.schema([("record", "string")]) if schema is None else schema
        self._fields = {one.name: one.type for one in base}
        for name in (BEFORE, AFTER):
            base = base.append(self._arrow.field(name, self._arrow.int64()))
        if with_originals:
            base = base.append(self._arrow.field(ORIGINALS, self._arrow.string()))
        self._schema = base
        self._writer = parquet_module().ParquetWriter(stream, base, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._held = 0

    def add(self, record: CompactedRecord) -> None:
        figures = record.figures(self._with_originals)
        if self._with_originals:
            figures[ORIGINALS] = msgspec.json.encode(figures[ORIGINALS]).decode()
        row = record.data if isinstance(record.data, dict) else {"record": record.data.decode()}
        for name in record.changed:
            if isinstance(row[name], list | dict):
                self._refuse_loss(name, row[name])
        self._rows.append({**row, **figures})
        self._held += _size(row)
        if self._held >= _ROW_GROUP_BYTES:
            self._write()

    def _refuse_loss(self, name: str, value: object) -> None:
        """Refuse a nested value that the column's type cannot hold."""
        try:
            held = self._arrow.array([value], self._fields[name]).to_pylist()[0]
        except (ValueError, TypeError) as error:
            raise RejectedRecord(
                f"its projection does not fit the column {name!r}: {error}"
            ) from None
        if without_nulls(held) != without_nulls(value):
            raise RejectedRecord(f"its projection does not fit the column {name!r}")

    def _write(self) -> None:
        if self._rows:
            self._writer.write_table(self._arrow.Table.from_pylist(self._rows, self._schema))
        self._rows, self._held = [], 0

    def close(self) -> None:
        try:
            self._write()
            self._writer.close()
        finally:
            self._writer.is_open = False  # else it writes once more when it is collected


def _size(row: dict[str, Any]) -> int:
    return sum(
        len(cast(Any, value)) if isinstance(value, str | bytes) else len(msgspec.json.encode(value))
        for value in row.values()
    )
