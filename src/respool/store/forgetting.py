"""Deleting for good: out of the tables, and out of the bytes of the file."""

from __future__ import annotations

import sqlite3

from .record import Forgotten
from .removal import ALL, remove_kept, remove_some

_TABLES = ("conversations", "originals", "requests")


def forget(
    connection: sqlite3.Connection,
    owner: str | None,
    conversation: str | None,
    before: float | None,
) -> Forgotten:
    """Delete all that fits: of this owner, of this conversation, from before this time."""
    counted = _counts(connection)
    rows = connection.execute(
        """SELECT id, last FROM conversations
        WHERE (?1 IS NULL OR owner = ?1) AND (?2 IS NULL OR name = ?2)""",
        (owner, conversation),
    ).fetchall()
    for id, last in rows:
        if before is None or last < before:
            remove_some(connection, id, ALL)
        else:
            _remove_before(connection, id, before)
    if owner is None:
        _remove_facts(connection, conversation, before)
    left = _counts(connection)
    gone = [had - has for had, has in zip(counted, left, strict=True)]
    return Forgotten(*gone, erased=False)


def erase(connection: sqlite3.Connection) -> bool:
    """Write the file anew without what was deleted; whether no old byte is left in it or its log.

    Deleted rows were overwritten already, but copies of small ones can remain in parts of pages
    that are not in use, and older versions of pages in the log.
    """
    anew = _done(connection, "VACUUM")  # not without space for a second copy, or beside a writer
    return _done(connection, "PRAGMA wal_checkpoint(TRUNCATE)") and anew


def _done(connection: sqlite3.Connection, statement: str) -> bool:
    """Whether a statement could be carried out; a checkpoint says of itself whether it was not."""
    try:
        rows = connection.execute(statement).fetchall()
    except sqlite3.OperationalError:
        return False
    return not rows or not rows[0][0]


def _remove_before(connection: sqlite3.Connection, conversation: int, before: float) -> None:
    """Of a conversation that goes on, only what is older."""
    remove_kept(connection, conversation, ALL, before)
    for table in ("requests", "reproductions"):
        connection.execute(
            f"DELETE FROM {table} WHERE conversation = ? AND time < ?",  # noqa: S608 - our names
            (conversation, before),
        )


def _remove_facts(
    connection: sqlite3.Connection, conversation: str | None, before: float | None
) -> None:
    """Delete facts, those of conversations of which nothing else is known too."""
    connection.execute(
        """DELETE FROM facts WHERE (?1 IS NULL OR conversation = ?1)
        AND (?2 IS NULL OR time < ?2)""",
        (conversation, before),
    )


def _counts(connection: sqlite3.Connection) -> list[int]:
    return [
        connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]  # noqa: S608 - ours
        for table in _TABLES
    ]
