"""Database connections shared by threads and processes: parallel reads, batched writes.

A commit costs a disk sync, milliseconds. Jobs that arrive meanwhile from several threads go into
the next commit together. Measured with 16 threads against one connection per thread: several
times the commits per second, and no thread waits for seconds.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from .base import StoreUnavailable, UnavailableReason, classify_error, to_unavailable
from .database_file import (
    FileIdentity,
    file_identity,
    open_reader,
    open_writer,
    quarantine,
    side_file,
)
from .meta import read_salt

Connection = sqlite3.Connection
T = TypeVar("T")

_log = logging.getLogger(__name__)
_MAX_TRIES = 3  # attempts of one job when the file is replaced meanwhile
_BUSY_RETRY_SECONDS = 0.001  # between two attempts to get the write lock
_MAX_IDLE_READERS = 4  # read connections kept open
_PAGES_PER_STEP = 500  # released per step
_SHORT_WAIT = 0.05  # seconds; the wait after a previous timeout
_INHERITED_CONNECTIONS: list[object] = []  # a parent process's connections: never used or closed


class _WriteJob:
    """A queued write and its outcome."""

    def __init__(self, work: Callable[[Connection], Any], synced: bool) -> None:
        self.work = work
        self.synced = synced
        self.done = False
        self.value: Any = None
        self.error: Exception | None = None

    def finish(self, value: Any = None, error: Exception | None = None) -> None:
        self.value, self.error, self.done = value, error, True

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


class SQLiteDatabase:
    """The database file: opened at first use, reopened if it was deleted or damaged."""

    def __init__(
        self, path: Path, wait: float, *, create: bool = True, salt: bytes | None = None
    ) -> None:
        self.path = path
        self.wait = wait
        self._create = create
        self._closed = False
        self._last_write_failed = False  # with "busy"
        self._is_locked_out = False  # the last attempt to open failed with "busy"
        self.last_error: UnavailableReason | None = None  # of the last write; None: it succeeded
        self._salt: bytes | None = None  # the file's, once opened
        self._own_salt = salt or secrets.token_bytes(32)  # for a file created here
        self.openings = 0  # count of openings of the file
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()  # held while writing
        self._waiting: deque[_WriteJob] = deque()
        self._writer: Connection | None = None
        self._readers: list[tuple[FileIdentity, Connection]] = []
        self._file_identity: FileIdentity | None = None  # the file that is open
        self._wal_identity: FileIdentity | None = None  # its write-ahead log

    def write(self, work: Callable[[Connection], T], *, synced: bool = True) -> T:
        """Run work in a transaction, possibly batched with other jobs; durable on return.

        Not synced: all processes see it on return, but the machine may lose it if it fails.
        """
        self._check_usable()
        job = _WriteJob(work, synced)
        self._waiting.append(job)
        self._take_lock(job)
        try:
            if not job.done:
                taken = self._drain_jobs()
                self._write_all(taken if job in taken else [*taken, job])
        finally:
            self._lock.release()
        return job.outcome()

    def run_exclusive(self, work: Callable[[Connection], T]) -> T:
        """Run work outside a transaction, with the write lock of this process held."""
        self._check_usable()
        self._take_lock(None)
        try:
            connection = self._open()
            connection.execute(f"PRAGMA busy_timeout = {int(self.wait * 1000)}").fetchall()
            return work(connection)
        except (sqlite3.Error, OSError) as error:
            raise to_unavailable(self.path, error) from error
        finally:
            self._lock.release()

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run work on the last committed state, without waiting for writers."""
        self._check_usable()
        for tries in range(1, _MAX_TRIES + 1):
            file = file_identity(self.path)
            try:
                known, reader = self._borrow_reader(file)
            except sqlite3.Error as error:
                self._recover(error, tries, file)
                continue
            try:
                self._salt = self._salt or read_salt(reader)
                found = work(reader)
            except sqlite3.Error as error:
                reader.close()
                self._recover(error, tries, known or file)
            except BaseException:
                reader.close()
                raise
            else:
                self._return_reader(known, reader)
                return found
        raise AssertionError("the last try returns or raises")

    def erase(self, work: Callable[[Connection], T]) -> T:
        """Run work that deletes originals; SQLite has one writer at a time."""
        return self.write(work)

    def sweep(self, work: Callable[[Connection], T]) -> T | None:
        """Run a step of the sweep."""
        return self.write(work)

    def used_bytes(self, limit: float) -> int:
        """Return the bytes in use, without free pages."""
        pages, free, size = (
            self.read(lambda c, name=name: c.execute(f"PRAGMA {name}").fetchall()[0][0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    def release(self) -> bool:
        """Release free pages to the file system, if there are many."""
        return self.write(_release_pages)

    def vacuum(self) -> bool:
        """Rewrite the file without deleted data; True if none is left in it or its log."""
        return self.run_exclusive(_vacuum)

    def salt(self) -> bytes:
        """Return the file's salt for hashes of API keys."""
        return self._salt or self.read(read_salt)

    def provisional_salt(self) -> bytes:
        """Return the salt without opening the file; until it is open, that of a new file."""
        return self._salt or self._own_salt

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._closed = True
            self._close_connections()

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreUnavailable(self.path, "closed")
        if os.getpid() != self._pid:  # a connection must not be shared with a parent
            _INHERITED_CONNECTIONS.append((self._writer, self._readers, self._lock))
            self._reset()

    def _take_lock(self, job: _WriteJob | None) -> None:
        if self._lock.acquire(
            timeout=min(_SHORT_WAIT * 4, self.wait) if self._last_write_failed else self.wait
        ):
            if self._closed:
                self._lock.release()
                raise StoreUnavailable(self.path, "closed")
            return
        with contextlib.suppress(ValueError):
            if job is not None:
                self._waiting.remove(job)
        raise StoreUnavailable(self.path, "busy")

    def _drain_jobs(self) -> list[_WriteJob]:
        """Take all jobs that are queued now."""
        return [self._waiting.popleft() for _ in range(len(self._waiting))]

    def _write_all(self, jobs: Sequence[_WriteJob]) -> None:
        """Write the jobs of several threads and set the outcome of each."""
        for tries in range(1, _MAX_TRIES + 1):
            file = file_identity(self.path)
            try:
                self._commit(jobs)
                if self._is_same_file():
                    self._last_write_failed, self.last_error = False, None
                    return
                raise StoreUnavailable(self.path, "missing", "it was deleted just now")
            except (sqlite3.Error, StoreUnavailable, OSError) as error:
                try:
                    self._recover_locked(error, tries, self._file_identity or file)
                except StoreUnavailable as ended:
                    self._last_write_failed, self.last_error = ended.reason == "busy", ended.reason
                    for job in jobs:
                        job.finish(error=ended)
                    return

    def _commit(self, jobs: Sequence[_WriteJob]) -> None:
        """Run all jobs in one transaction; if one fails, each in its own."""
        connection = self._open()
        if self._in_transaction(connection, jobs) or len(jobs) == 1:
            return
        for job in jobs:
            try:
                self._in_transaction(connection, [job])
            except sqlite3.Error as error:
                if classify_error(error) in ("broken", "missing"):
                    raise
                job.finish(error=to_unavailable(self.path, error))

    def _in_transaction(self, connection: Connection, jobs: Sequence[_WriteJob]) -> bool:
        """Run jobs in a transaction; True on success. Raises database errors, not a job's own."""
        level = "FULL" if any(job.synced for job in jobs) else "NORMAL"
        connection.execute(f"PRAGMA synchronous = {level}")
        self._begin_transaction(connection)
        try:
            values = [job.work(connection) for job in jobs]
            connection.execute("COMMIT")
        except sqlite3.Error:
            _roll_back(connection)
            if len(jobs) == 1:
                raise
            return False
        except Exception as error:  # noqa: BLE001 - passed to the thread that queued the job
            _roll_back(connection)
            if len(jobs) == 1:
                jobs[0].finish(error=error)
            return False
        except BaseException:
            _roll_back(connection)
            raise
        for job, value in zip(jobs, values, strict=True):
            job.finish(value)
        return True

    def _begin_transaction(self, connection: Connection) -> None:
        """Begin with bounded retries: SQLite's own busy handler lets some processes starve."""
        until = time.monotonic() + (_SHORT_WAIT if self._last_write_failed else self.wait)
        connection.execute("PRAGMA busy_timeout = 0").fetchall()
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if classify_error(error) != "busy" or time.monotonic() > until:
                    raise
                time.sleep(_BUSY_RETRY_SECONDS)
            else:
                return

    def _open(self) -> Connection:
        """Return the write connection to the current file; the caller holds the lock."""
        if self._writer is not None and not self._is_same_file():
            self._close_connections()
        if self._writer is None:
            salt = self.provisional_salt()
            self._writer = self._open_connection(
                lambda wait: open_writer(self.path, wait, create=self._create, salt=salt)
            )
            self.openings += 1
            self._file_identity = file_identity(self.path)
            self._wal_identity = file_identity(side_file(self.path, "-wal"))
        return self._writer

    def _open_connection(self, opening: Callable[[float], Connection]) -> Connection:
        """Open a connection; after a timeout, the next attempts wait only briefly."""
        try:
            connection = opening(min(_SHORT_WAIT, self.wait) if self._is_locked_out else self.wait)
        except (sqlite3.Error, StoreUnavailable) as error:
            why = error.reason if isinstance(error, StoreUnavailable) else classify_error(error)
            self._is_locked_out = why == "busy"
            raise
        self._is_locked_out = False
        return connection

    def _is_same_file(self) -> bool:
        """Check that the file and its log are still those that were opened."""
        if self._file_identity is None or file_identity(self.path) != self._file_identity:
            return False
        log = file_identity(side_file(self.path, "-wal"))
        if self._wal_identity is None:
            self._wal_identity = log  # SQLite creates it with the first write
        return log == self._wal_identity

    def _borrow_reader(self, now: FileIdentity | None) -> tuple[FileIdentity | None, Connection]:
        """Return the file's identity (None: for one use only) and a read connection."""
        with contextlib.suppress(IndexError):  # no idle reader
            while True:
                known, reader = self._readers.pop()
                if known == now:
                    return known, reader
                reader.close()
        if self._writer is None or now != self._file_identity:
            self._ensure_file()
        now = file_identity(self.path)
        if now is None:
            raise StoreUnavailable(self.path, "missing")
        return self._new_reader(now)

    def _ensure_file(self) -> None:
        """Create or migrate the file; a file that cannot be written can still be read."""
        self._take_lock(None)
        try:
            self._open()
        except StoreUnavailable as error:
            if error.reason not in ("busy", "missing") or file_identity(self.path) is None:
                raise
        except (sqlite3.Error, OSError) as error:
            if isinstance(error, sqlite3.Error) and classify_error(error) == "broken":
                raise
            if file_identity(self.path) is None or isinstance(error, IsADirectoryError):
                raise to_unavailable(self.path, error) from error
        finally:
            self._lock.release()

    def _new_reader(self, now: FileIdentity) -> tuple[FileIdentity | None, Connection]:
        """Open a read connection; the identity is None if it sees no later changes.

        That is the case in a folder where SQLite cannot create its lock files and the log is empty.
        """
        try:
            return now, self._open_connection(lambda wait: open_reader(self.path, wait))
        except sqlite3.OperationalError as error:
            log = side_file(self.path, "-wal")
            if classify_error(error) not in ("missing", "read-only") or _file_size(log):
                raise
            return None, open_reader(self.path, self.wait, immutable=True)

    def _return_reader(self, known: FileIdentity | None, reader: Connection) -> None:
        if known is None or self._closed or len(self._readers) >= _MAX_IDLE_READERS:
            reader.close()
        else:
            self._readers.append((known, reader))

    def _recover(self, error: Exception, tries: int, file: FileIdentity | None) -> None:
        self._take_lock(None)
        try:
            self._recover_locked(error, tries, file)
        finally:
            self._lock.release()

    def _recover_locked(self, error: Exception, tries: int, file: FileIdentity | None) -> None:
        """Close a file that was deleted, and quarantine a damaged one, before the next attempt.

        A damaged file is opened once more before it is moved aside: a newer version may have
        changed the tables. Only the file that failed is moved: a new one may exist already.
        """
        unavailable = (
            error if isinstance(error, StoreUnavailable) else _as_unavailable(self.path, error)
        )
        gone = self._file_identity is not None and not self._is_same_file()
        opened_then = unavailable.reason == "read-only" and tries == 1  # it may be writable now
        if tries == _MAX_TRIES or not (gone or opened_then or unavailable.reason == "broken"):
            if unavailable.reason in ("failing", "missing", "read-only"):
                self._close_connections()
            raise unavailable from error
        self._close_connections()
        if unavailable.reason == "broken" and self._create and tries > 1:
            try:
                quarantine(self.path, file, self.wait)
            except OSError as refused:
                raise to_unavailable(self.path, refused) from error

    def _close_connections(self) -> None:
        """Close all connections; in-flight reads keep theirs until they end.

        The write connection is closed last: that removes the log.
        """
        readers, self._readers = self._readers, []
        for connection in (*(reader for _, reader in readers), self._writer):
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    connection.close()
        self._writer = self._file_identity = self._wal_identity = None


def _as_unavailable(path: Path, error: Exception) -> StoreUnavailable:
    assert isinstance(error, sqlite3.Error | OSError)
    return to_unavailable(path, error)


def _release_pages(connection: Connection) -> bool:
    ((free,),) = connection.execute("PRAGMA freelist_count").fetchall()
    if free <= _PAGES_PER_STEP:
        return False
    connection.execute(f"PRAGMA incremental_vacuum({_PAGES_PER_STEP})").fetchall()
    return True


def _vacuum(connection: Connection) -> bool:
    """Rewrite the file and empty its log.

    Deleted rows are overwritten already, but copies of small ones can remain in unused parts of
    pages, and old versions of pages in the log.
    """
    anew = _try_statement(connection, "VACUUM")  # fails without space for a copy, or during a write
    return _try_statement(connection, "PRAGMA wal_checkpoint(TRUNCATE)") and anew


def _try_statement(connection: Connection, statement: str) -> bool:
    """Run a statement; False if it failed. A checkpoint reports failure in its result."""
    try:
        rows = connection.execute(statement).fetchall()
    except sqlite3.OperationalError:
        return False
    return not rows or not rows[0][0]


def _file_size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _roll_back(connection: Connection) -> None:
    """Roll back, unless SQLite already did."""
    with contextlib.suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
