"""Input files of a replay: on disk, in object storage, or tables of sessions in Parquet.

Readers need a file on disk. A file in storage is copied for as long as it is read, and rows of
Parquet are written as lines of JSON. Results have the name that was given.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..batch.addresses import (
    FoundFile,
    StorageError,
    file_name,
    find_file,
    find_files,
    is_remote,
    local_copy,
    parent_name,
)
from ..batch.compacted_record import row_bytes
from ..batch.records import Block, UnreadableInput, parquet_module, read_records
from ..sessions.readers import is_transcript_name

PARQUET = ".parquet"


def remote_transcripts(address: str) -> list[FoundFile]:
    """Files below an address that could be transcripts. Without any, the address stands for one."""
    found = [*find_files(address)]
    chosen = [one for one in found if one.address == address or _is_input(one.address)]
    return chosen or [FoundFile(address, 0, "")]


def _is_input(address: str) -> bool:
    return address.endswith(PARQUET) or is_transcript_name(Path(address))


@contextmanager
def readable_copy(name: str) -> Generator[Path]:
    """A file on disk that a reader can read: the file itself, or a temporary copy."""
    if not is_remote(name) and not name.endswith(PARQUET):
        yield Path(name)
        return
    with tempfile.TemporaryDirectory(prefix="respool-") as made:
        folder = Path(made, parent_name(name) or "input")  # agents name sessions by it
        folder.mkdir()
        with local_copy(name, folder) as copy:
            yield _as_lines(copy, folder) if name.endswith(PARQUET) else copy


def _as_lines(table: Path, folder: Path) -> Path:
    """The rows of a Parquet file as a file of JSON lines."""
    lines = folder / f"{Path(file_name(str(table))).stem}.jsonl"
    groups = parquet_module().ParquetFile(str(table)).num_row_groups
    with lines.open("wb") as stream:
        for record in read_records(Block(0, str(table), "parquet", 0, groups, 0)):
            if not isinstance(record.data, dict):
                raise UnreadableInput(f"row {record.place}: {record.why}")
            stream.write(row_bytes(record.data) + b"\n")
    return lines


def edition_of(name: str) -> tuple[int, str] | None:
    """Size and edition of a file; None if its changes cannot be seen."""
    try:
        found = find_file(name)
    except (OSError, ValueError, StorageError):
        return None
    return None if found is None or not found.edition else (found.size, found.edition)


def parquet_below(path: Path) -> Iterator[Path]:
    """Parquet files below a folder."""
    if path.is_dir():
        yield from sorted(path.rglob(f"*{PARQUET}"))
