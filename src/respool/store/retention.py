"""What is too old, or too much, goes: the longest unused conversation first, in small steps.

A conversation goes as a whole, when its last request is too long ago. While it goes on, all of its
originals stay, however old they are: its history still holds their markers. The limit of size
takes conversations before their time, but none that went on in the last days.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from .removal import remove_some
from .settings import Retention

_ROWS = 200  # that one step deletes: milliseconds, for requests wait meanwhile
_AGREEING = 100  # requests by which a clock is believed
_PAGES = 500  # that one step gives back to the disk


def step(connection: sqlite3.Connection, retention: Retention, now: float) -> bool:
    """Delete a little of what is to go; whether there may be more."""
    _bring_back(connection, now)
    oldest = _oldest(connection)
    if oldest is not None and _goes(connection, oldest[1], retention, now):
        remove_some(connection, oldest[0], _ROWS)
        return True
    return _remove_facts(connection, now - retention.seconds) == _ROWS or _shrink(connection)


def _bring_back(connection: sqlite3.Connection, now: float) -> None:
    """What a clock that was wrong has dated ahead is as old as this moment, and ages from here.

    Not before many requests in a row agree with the clock: perhaps it is wrong now, and behind.
    """
    ((latest, count),) = connection.execute(
        "SELECT max(time), count(*) FROM (SELECT time FROM requests ORDER BY rowid DESC LIMIT ?)",
        (_AGREEING,),
    ).fetchall()
    if count < _AGREEING or latest > now:
        return
    connection.execute("UPDATE conversations SET last = ?1 WHERE last > ?1", (now,))
    connection.execute("UPDATE facts SET time = ?1 WHERE time > ?1", (now,))


def remove_old_files(files: Iterable[Path], retention: Retention, now: float) -> None:
    """Delete damaged files that were moved aside longer ago than anything is kept."""
    for file in files:
        with contextlib.suppress(OSError):
            if file.stat().st_mtime < now - retention.seconds:
                file.unlink()


def size_of(connection: sqlite3.Connection) -> int:
    """The bytes in use, without free pages."""
    figures = [
        connection.execute(f"PRAGMA {name}").fetchall()[0][0]
        for name in ("page_count", "freelist_count", "page_size")
    ]
    return (figures[0] - figures[1]) * figures[2]


def _oldest(connection: sqlite3.Connection) -> tuple[int, float] | None:
    rows = connection.execute(
        "SELECT id, last FROM conversations ORDER BY last, id LIMIT 1"
    ).fetchall()
    return rows[0] if rows else None


def _goes(connection: sqlite3.Connection, last: float, retention: Retention, now: float) -> bool:
    """Whether a conversation that was last used then is to go."""
    if last < now - retention.seconds:
        return True
    is_live = last >= now - retention.live_seconds
    return not is_live and size_of(connection) > retention.megabytes * 1_000_000


def _remove_facts(connection: sqlite3.Connection, limit: float) -> int:
    """Delete old facts of conversations of which nothing else is known."""
    done = connection.execute(
        """DELETE FROM facts WHERE (conversation, kind, prefix) IN (
            SELECT conversation, kind, prefix FROM facts WHERE time < ?
            AND NOT EXISTS (SELECT 1 FROM conversations c WHERE c.name = facts.conversation)
            LIMIT ?)""",
        (limit, _ROWS),
    )
    return done.rowcount


def _shrink(connection: sqlite3.Connection) -> bool:
    """Give free pages back to the disk, when they are many."""
    ((free,),) = connection.execute("PRAGMA freelist_count").fetchall()
    if free <= _PAGES:
        return False
    connection.execute(f"PRAGMA incremental_vacuum({_PAGES})").fetchall()
    return True
