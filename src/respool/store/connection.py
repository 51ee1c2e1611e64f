"""Protocols of a database and its connections, as the tables use them.

The tables' SQL is written for SQLite; `postgres_dialect.py` translates it for PostgreSQL.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from .base import UnavailableReason

T = TypeVar("T")
Parameters = Sequence[Any] | Mapping[str, Any]


class DamagedRow(sqlite3.DataError):
    """A row cannot be read: a byte of it has changed. Both databases report it as damage."""


class Rows(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """Number of rows that the statement changed."""
        ...

    def fetchall(self) -> list[Any]:
        """Return all rows."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rows."""
        ...


class Connection(Protocol):
    """A connection that runs the tables' SQL."""

    def execute(self, sql: str, parameters: Parameters = ..., /) -> Rows:
        """Run a statement."""
        ...

    def executemany(self, sql: str, parameters: Iterable[Parameters], /) -> Rows:
        """Run a statement once for each of these parameters."""
        ...


class Database(Protocol):
    """A database that threads and processes share. Every failure raises StoreUnavailable."""

    last_error: UnavailableReason | None  # of the last write; None: it succeeded
    openings: int  # how often it was opened; what was seen before may be gone

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run work on the last committed state, without waiting for writers."""
        ...

    def write(self, work: Callable[[Connection], T], *, synced: bool = True) -> T:
        """Run work in a transaction; durable on return. Work may be run more than once.

        Not synced: all processes see it on return, but a crash of the machine may lose it.
        """
        ...

    def erase(self, work: Callable[[Connection], T]) -> T:
        """Run work that deletes originals: as `write`, while nobody else writes."""
        ...

    def sweep(self, work: Callable[[Connection], T]) -> T | None:
        """Run a step of the sweep; None if another process runs one."""
        ...

    def used_bytes(self, limit: float) -> int:
        """Return the bytes in use; exact if there are more than `limit`."""
        ...

    def release(self) -> bool:
        """Give some unused space back; True if there is more."""
        ...

    def vacuum(self) -> bool:
        """Rewrite the data without what was deleted; True if none of that is left."""
        ...

    def salt(self) -> bytes:
        """Return the salt for hashes of API keys."""
        ...

    def provisional_salt(self) -> bytes:
        """Return the salt without opening the database."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...
