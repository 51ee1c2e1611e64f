"""The store in a PostgreSQL database, for many servers at once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from .location import LOCK_TIMEOUT, ServerAddress
from .postgres_database import PostgresDatabase
from .postgres_search import PostgresIndex
from .retention import Retention, elapsed_seconds
from .sql_store import SQLStore


class PostgresStore(SQLStore):
    """Originals, facts and records in the schema `respool`; opened at first use, by any thread."""

    is_shared = True
    _database: PostgresDatabase

    def __init__(
        self,
        address: ServerAddress,
        *,
        retention: Retention | None = None,
        wait: float = LOCK_TIMEOUT,
        create: bool = True,
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = elapsed_seconds,
    ) -> None:
        database = PostgresDatabase(address, wait, create=create)
        super().__init__(
            address,
            database,
            PostgresIndex(database),
            retention=retention or Retention(),
            clock=clock,
            elapsed=elapsed,
        )

    def size(self) -> int:
        """Return the bytes of its tables on disk."""
        return self._database.used_bytes(math.inf)
