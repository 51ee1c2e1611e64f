"""Deleting conversations, with all that only they need."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from .schema import stamp_anew

ALL = 2**31  # more rows than any conversation has


def remove_some(connection: sqlite3.Connection, conversation: int, limit: int) -> bool:
    """Delete some rows of a conversation, its originals first; whether it is gone altogether."""
    if remove_kept(connection, conversation, limit) == limit:
        return False
    for table in ("requests", "reproductions"):
        done = connection.execute(
            f"DELETE FROM {table} WHERE rowid IN"  # noqa: S608 - a name of our own
            f" (SELECT rowid FROM {table} WHERE conversation = ? LIMIT ?)",
            (conversation, limit),
        )
        if done.rowcount == limit:
            return False
    connection.execute(
        """DELETE FROM facts WHERE conversation = (SELECT name FROM conversations WHERE id = ?1)
        AND NOT EXISTS (SELECT 1 FROM conversations c WHERE c.name = facts.conversation
            AND c.id <> ?1)""",
        (conversation,),
    )
    connection.execute("DELETE FROM conversations WHERE id = ?", (conversation,))
    return True


def remove_kept(
    connection: sqlite3.Connection, conversation: int, limit: int, before: float | None = None
) -> int:
    """Let a conversation go without some of its originals; those that no other has are deleted."""
    stamp_anew(connection)
    refs = connection.execute(
        """SELECT ref FROM kept WHERE conversation = ?1 AND (?3 IS NULL OR time < ?3) LIMIT ?2""",
        (conversation, limit, before),
    ).fetchall()
    connection.executemany(
        "DELETE FROM kept WHERE conversation = ? AND ref = ?",
        [(conversation, *row) for row in refs],
    )
    _remove_unneeded(connection, [row[0] for row in refs])
    return len(refs)


def _remove_unneeded(connection: sqlite3.Connection, refs: Iterable[str]) -> None:
    connection.executemany(
        """DELETE FROM originals WHERE ref = ?1
        AND NOT EXISTS (SELECT 1 FROM kept WHERE kept.ref = ?1)""",
        [(ref,) for ref in refs],
    )
