"""Retention settings, the sweep that applies them, and deletion on request.

A conversation is deleted as a whole when its last request is too old. While it is in use all of its
originals stay, however old they are: its history still holds their markers. The size limit deletes
conversations earlier, except those used in the last days.

The system's clock can be wrong: after a start without a time server, in a resumed virtual machine.
So ages count by a trusted time, which the file holds. It is the clock's time while the clock has
been steady for a day: it has not gone back, and it has not gone ahead by more than the time that
passed. In one process a second clock measures that time. Between processes nothing does: there the
clock may go ahead by a day. After a longer gap the last time before it is trusted, as the clock has
gone on from there, and the time after it in a day. So a machine that was off deletes its old rows
at most a day late, and a clock that is wrong for less than a day deletes nothing. One that is wrong
for longer cannot be distinguished from one that was corrected.

What is used now is never dated before the trusted time, and what is dated after it ages from now,
once the clock is steady.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from ..config import STORE_DAYS, STORE_MEGABYTES
from ..errors import PolicyError
from .base import ForgetResult
from .connection import Connection
from .meta import read_clock, renew_stamp, write_clock
from .record_tables import CLAIMS
from .teams import find_expired_of_team

LIVE_DAYS = 3.0  # a conversation used since then is never deleted for size
_MIN_VALUE = 1
_MAX_DAYS = 36_500
_MAX_MEGABYTES = 10_000_000

NO_LIMIT = 2**31  # rows
_COUNTED_TABLES = ("conversations", "originals", "requests")
# Besides originals and facts; their rows have a conversation and a time. The number of a row is
# its `id`, but for requests.
_CONVERSATION_TABLES = {
    "requests": "rowid",
    "reproductions": "id",
    "keep_alive": "id",
    "tools": "id",
}
_ROWS_PER_STEP = 200  # deleted per step: milliseconds, while requests wait
_STEADY_SECONDS = 86_400.0  # before the clock is trusted, and the largest gap between processes
_CLAIM_SECONDS = 86_400.0  # long after any request of then has ended
_CLOCK_TOLERANCE = 3_600.0  # seconds; difference between the two clocks, and between machines


class Retention(Struct, frozen=True):
    """Retention time of a conversation after its last request, and the size limit of the store."""

    days: float = 30.0  # agents resume last week's sessions, rarely last month's
    megabytes: float = 1_000.0  # three months of heavy use

    def __post_init__(self) -> None:
        _check_range("days", self.days, _MAX_DAYS)
        _check_range("megabytes", self.megabytes, _MAX_MEGABYTES)

    @property
    def seconds(self) -> float:
        """The age at which a conversation is deleted."""
        return self.days * 86_400

    @property
    def bytes(self) -> float:
        """The size above which conversations are deleted earlier."""
        return self.megabytes * 1_000_000

    @property
    def live_seconds(self) -> float:
        """The age under which the size limit does not apply."""
        return min(self.days, LIVE_DAYS) * 86_400

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Retention:
        """Read RESPOOL_STORE_DAYS and RESPOOL_STORE_MEGABYTES, or use the defaults."""
        given = os.environ if environ is None else environ
        return cls(
            _number_from_env(given, STORE_DAYS, cls().days, _MAX_DAYS),
            _number_from_env(given, STORE_MEGABYTES, cls().megabytes, _MAX_MEGABYTES),
        )


def _number_from_env(environ: Mapping[str, str], name: str, default: float, maximum: int) -> float:
    text = environ.get(name, "").strip()
    try:
        value = float(text) if text else default
    except ValueError:
        value = float("nan")  # outside every range
    if not _MIN_VALUE <= value <= maximum:
        raise _range_error(f"environment: {name}={text!r}", maximum)
    return value


def _check_range(name: str, value: float, maximum: int) -> None:
    if not _MIN_VALUE <= value <= maximum:
        raise _range_error(f"Retention: {name}={value!r}", maximum)


def _range_error(what: str, maximum: int) -> PolicyError:
    return PolicyError(f"{what} is not allowed; allowed: a number from {_MIN_VALUE} to {maximum:,}")


def remove_rows(connection: Connection, conversation: int, limit: int) -> bool:
    """Delete some rows of a conversation, originals first; True when nothing is left."""
    if remove_original_links(connection, conversation, limit) == limit:
        return False
    for table, number in _CONVERSATION_TABLES.items():
        done = connection.execute(
            f"DELETE FROM {table} WHERE {number} IN"  # noqa: S608 - names of our own
            f" (SELECT {number} FROM {table} WHERE conversation = ? LIMIT ?)",
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


def remove_original_links(
    connection: Connection, conversation: int, limit: int, before: float | None = None
) -> int:
    """Remove some of a conversation's originals; delete those that no other one uses."""
    renew_stamp(connection)
    refs = connection.execute(
        """SELECT ref FROM kept WHERE conversation = ?1 AND (?3 IS NULL OR time < ?3) LIMIT ?2""",
        (conversation, limit, before),
    ).fetchall()
    connection.executemany(
        "DELETE FROM kept WHERE conversation = ? AND ref = ?",
        [(conversation, *row) for row in refs],
    )
    _remove_unreferenced(connection, [row[0] for row in refs])
    return len(refs)


def _remove_unreferenced(connection: Connection, refs: Iterable[str]) -> None:
    connection.executemany(
        """DELETE FROM originals WHERE ref = ?1
        AND NOT EXISTS (SELECT 1 FROM kept WHERE kept.ref = ?1)""",
        [(ref,) for ref in refs],
    )


def delete_matching(
    connection: Connection,
    owner: str | None,
    conversation: str | None,
    before: float | None,
) -> ForgetResult:
    """Delete all that matches the owner, the conversation and the time."""
    counted = _row_counts(connection)
    rows = connection.execute(
        """SELECT id, last FROM conversations
        WHERE (?1 IS NULL OR owner = ?1) AND (?2 IS NULL OR name = ?2)""",
        (owner, conversation),
    ).fetchall()
    for id, last in rows:
        if before is None or last < before:
            remove_rows(connection, id, NO_LIMIT)
        else:
            _remove_before(connection, id, before)
    if owner is None:
        _delete_facts(connection, conversation, before)
    left = _row_counts(connection)
    gone = [had - has for had, has in zip(counted, left, strict=True)]
    return ForgetResult(*gone, erased=False)


def _remove_before(connection: Connection, conversation: int, before: float) -> None:
    """Delete the older rows of a conversation that is still in use."""
    remove_original_links(connection, conversation, NO_LIMIT, before)
    for table in _CONVERSATION_TABLES:
        connection.execute(
            f"DELETE FROM {table} WHERE conversation = ? AND time < ?",  # noqa: S608 - our names
            (conversation, before),
        )


def _delete_facts(connection: Connection, conversation: str | None, before: float | None) -> None:
    """Delete facts, including those of conversations without a row."""
    connection.execute(
        """DELETE FROM facts WHERE (?1 IS NULL OR conversation = ?1)
        AND (?2 IS NULL OR time < ?2)""",
        (conversation, before),
    )


def _row_counts(connection: Connection) -> list[int]:
    return [
        connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]  # noqa: S608 - ours
        for table in _COUNTED_TABLES
    ]


class ClockReading(Struct, frozen=True):
    """The time of a sweep, and how it relates to this process's last one."""

    time: float
    elapsed: float  # of the second clock
    since_last: float | None  # seconds by the second clock; None: this is the first sweep
    has_jumped: bool  # the two clocks have drifted apart


class SweepClock:
    """The system's clock beside one that nobody can set."""

    def __init__(self, clock: Callable[[], float], elapsed: Callable[[], float]) -> None:
        self._clock, self._elapsed = clock, elapsed
        self._last: ClockReading | None = None
        self._offset = 0.0  # of the clocks, since the last jump

    def read(self) -> ClockReading:
        """Return the time, and compare the clocks since the last accepted reading."""
        time, elapsed = self._clock(), self._elapsed()
        if self._last is None:
            return ClockReading(time, elapsed, None, has_jumped=False)
        drift = abs(time - elapsed - self._offset)
        return ClockReading(time, elapsed, elapsed - self._last.elapsed, drift > _CLOCK_TOLERANCE)

    def accept(self, reading: ClockReading) -> None:
        """Compare later readings with this one, which the file has taken over."""
        if self._last is None or reading.has_jumped:
            self._offset = reading.time - reading.elapsed
        self._last = reading


def elapsed_seconds() -> float:
    """Seconds on a clock that cannot be set and goes on while the machine sleeps."""
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):  # Linux; macOS
        if hasattr(time, name):
            return time.clock_gettime(getattr(time, name))
    return time.monotonic()


class TrustedTime(Struct, frozen=True):
    """The time by which ages count."""

    time: float = 0.0  # 0: none yet
    is_current: bool = False  # it is the clock's own time now


def trust_time(connection: Connection, now: ClockReading) -> TrustedTime:
    """Compare a reading with the earlier ones in the file, and return the trusted time."""
    known = read_clock(connection)
    seen = known.get("clock seen", now.time)
    since = known.get("clock steady since", now.time)
    trusted = known.get("clock trusted", 0.0)
    passed = now.time - seen
    most = max(_STEADY_SECONDS, (now.since_last or 0.0) + _CLOCK_TOLERANCE)
    is_current = False
    if now.has_jumped or not -_CLOCK_TOLERANCE <= passed <= most:
        since = now.time
        if passed > most and now.since_last is None:  # nothing ran meanwhile
            trusted = seen
    elif now.time - since >= _STEADY_SECONDS:
        trusted, is_current = now.time, True
    write_clock(connection, now.time, since, trusted)
    return TrustedTime(trusted, is_current)


def sweep_step(
    connection: Connection, retention: Retention, now: TrustedTime, used_bytes: int
) -> bool:
    """Delete some expired rows of a store of this size; True if more may remain."""
    if now.is_current:
        _clamp_future_times(connection, now.time)
    oldest = _oldest_conversation(connection)
    if oldest is not None and _is_expired(oldest[1], retention, now.time, used_bytes):
        remove_rows(connection, oldest[0], _ROWS_PER_STEP)
        return True
    of_team = find_expired_of_team(connection, now.time)
    if of_team is not None:
        remove_rows(connection, of_team, _ROWS_PER_STEP)
        return True
    limit = now.time - retention.seconds
    expired = max(_expire_facts(connection, limit), _expire_claims(connection, now.time))
    return expired == _ROWS_PER_STEP


def _clamp_future_times(connection: Connection, now: float) -> None:
    """Set times in the future, from a wrong clock, to now."""
    for statement in (
        "UPDATE conversations SET last = ?1 WHERE last > ?1",
        "UPDATE facts SET time = ?1 WHERE time > ?1",
    ):
        if connection.execute(statement, (now,)).rowcount:
            renew_stamp(connection)  # caches hold the time of the last use


def remove_old_files(files: Iterable[Path], retention: Retention, now: TrustedTime) -> None:
    """Delete quarantined files that are older than the retention time."""
    for file in files:
        with contextlib.suppress(OSError):
            moved = file.stat().st_mtime
            if moved < now.time - retention.seconds:
                file.unlink()
            elif now.is_current and moved > now.time:
                os.utime(file, (now.time, now.time))


def _oldest_conversation(connection: Connection) -> tuple[int, float] | None:
    rows = connection.execute(
        "SELECT id, last FROM conversations ORDER BY last, id LIMIT 1"
    ).fetchall()
    return rows[0] if rows else None


def _is_expired(last: float, retention: Retention, now: float, used_bytes: int) -> bool:
    """Check if a conversation with this last use is to be deleted."""
    if last < now - retention.seconds:
        return True
    is_live = last >= now - retention.live_seconds
    return not is_live and used_bytes > retention.bytes


def _expire_facts(connection: Connection, limit: float) -> int:
    """Delete old facts of conversations without a row."""
    done = connection.execute(
        """DELETE FROM facts WHERE (conversation, kind, prefix) IN (
            SELECT conversation, kind, prefix FROM facts WHERE time < ?
            AND NOT EXISTS (SELECT 1 FROM conversations c WHERE c.name = facts.conversation)
            LIMIT ?)""",
        (limit, _ROWS_PER_STEP),
    )
    return done.rowcount


def _expire_claims(connection: Connection, now: float) -> int:
    """Delete old claims: their requests are recorded."""
    done = connection.execute(
        """DELETE FROM facts WHERE (conversation, kind, prefix) IN (
            SELECT conversation, kind, prefix FROM facts WHERE time < ? AND kind = ? LIMIT ?)""",
        (now - _CLAIM_SECONDS, CLAIMS, _ROWS_PER_STEP),
    )
    return done.rowcount
