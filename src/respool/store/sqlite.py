"""The store in one SQLite file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from .database import SQLiteDatabase
from .database_file import quarantined_files, side_file
from .location import LOCK_TIMEOUT
from .retention import Retention, elapsed_seconds
from .search_index import SearchIndex
from .sql_store import SQLStore


class SQLiteStore(SQLStore):
    """Originals, facts and records in one file; opened at first use, by any thread.

    Several processes may share the file, each with its own store. Until the file can be opened they
    agree on owners only if they get the same `salt`, which a new file then takes over.
    """

    _database: SQLiteDatabase
    _index: SearchIndex

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        retention: Retention | None = None,
        wait: float = LOCK_TIMEOUT,
        create: bool = True,
        salt: bytes | None = None,
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = elapsed_seconds,
    ) -> None:
        self.path = Path(path).resolve()  # SQLite puts its side files beside the target of a link
        super().__init__(
            self.path,
            SQLiteDatabase(self.path, wait, create=create, salt=salt),
            SearchIndex(self.path),
            retention=retention or Retention(),
            clock=clock,
            elapsed=elapsed,
        )

    def quarantined_files(self) -> list[Path]:
        """Return the damaged files that were moved aside."""
        return quarantined_files(self.path)

    def size(self) -> int:
        """Return the size of the file and its log."""
        files = (self.path, side_file(self.path, "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())
