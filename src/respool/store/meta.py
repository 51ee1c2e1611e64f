"""Metadata of a store: salt, stamp and trusted time."""

from __future__ import annotations

from typing import Final

from .connection import Connection

# PostgreSQL keeps numbers in a column of their own: see `postgres_dialect.py`.
READ_STAMP_AND_TRUSTED: Final = (
    "SELECT value, (SELECT value FROM meta WHERE key = 'clock trusted')"
    " FROM meta WHERE key = 'stamp'"
)
READ_CLOCK: Final = (
    "SELECT key, value FROM meta WHERE key >= 'clock ' AND key < 'clock!'"
    " AND typeof(value) = 'real'"
)
WRITE_CLOCK: Final = "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)"


def read_salt(connection: Connection) -> bytes:
    """Return the store's salt for hashes of API keys."""
    ((salt,),) = connection.execute("SELECT value FROM meta WHERE key = 'salt'").fetchall()
    return bytes(salt)


def read_stamp(connection: Connection) -> bytes:
    """Return the store's stamp, which every deletion changes."""
    ((stamp,),) = connection.execute("SELECT value FROM meta WHERE key = 'stamp'").fetchall()
    return bytes(stamp)


def read_stamp_and_trusted(connection: Connection) -> tuple[bytes, float]:
    """Return the stamp and the trusted time (0: none yet) with one query, for the request path."""
    ((stamp, trusted),) = connection.execute(READ_STAMP_AND_TRUSTED).fetchall()
    return bytes(stamp), trusted if isinstance(trusted, float) else 0.0


def renew_stamp(connection: Connection) -> None:
    """Change the stamp in the transaction of a deletion, for all processes."""
    connection.execute("UPDATE meta SET value = randomblob(16) WHERE key = 'stamp'")


def initialize_meta(connection: Connection, salt: bytes) -> None:
    """Write the salt and the first stamp of a new store."""
    connection.execute("INSERT INTO meta (key, value) VALUES ('salt', ?)", (salt,))
    connection.execute("INSERT INTO meta (key, value) VALUES ('stamp', randomblob(16))")


def not_before_trusted(connection: Connection, time: float) -> float:
    """Return the time of a use: a clock that is behind must not make it old."""
    return max(time, read_clock(connection).get("clock trusted", time))


def read_clock(connection: Connection) -> dict[str, float]:
    """Return the clock as earlier sweeps have recorded it."""
    return dict(connection.execute(READ_CLOCK))


def write_clock(connection: Connection, seen: float, steady_since: float, trusted: float) -> None:
    """Record the clock for later sweeps."""
    connection.executemany(
        WRITE_CLOCK,
        [("clock seen", seen), ("clock steady since", steady_since), ("clock trusted", trusted)],
    )
