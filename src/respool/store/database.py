"""Database connections shared by threads and processes: parallel reads, batched writes.

A commit costs a sync of the disk, milliseconds; what several threads want to write meanwhile goes
into the next one, all at once. Measured with 16 threads against a connection for each of them:
several times the commits a second, and no one waits for seconds.
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
    read_salt,
    side_file,
)

Connection = sqlite3.Connection
T = TypeVar("T")

_log = logging.getLogger(__name__)
_MAX_TRIES = 3  # of one piece of work, when the file is replaced under it
_BUSY_RETRY_SECONDS = 0.001  # seconds between two tries to be the one process that writes
_MAX_IDLE_READERS = 4  # readers that stay open
_SHORT_WAIT = 0.05  # seconds: once one waited in vain, the next ones wait no longer than this
_INHERITED_CONNECTIONS: list[
    object
] = []  # connections of a parent process: never used, never closed


class _WriteJob:
    """A piece of work that waits to be written, and what came of it."""

    def __init__(self, work: Callable[[Connection], Any]) -> None:
        self.work = work
        self.done = False
        self.value: Any = None
        self.error: Exception | None = None

    def finish(self, value: Any = None, error: Exception | None = None) -> None:
        self.value, self.error, self.done = value, error, True

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


class Database:
    """The file: opened when it is first needed, and again when it was deleted or damaged."""

    def __init__(
        self, path: Path, wait: float, *, create: bool = True, salt: bytes | None = None
    ) -> None:
        self.path = path
        self.wait = wait
        self._create = create
        self._closed = False
        self._last_write_failed = False  # the last write was
        self._is_locked_out = False  # the file could not even be opened, last time
        self.last_error: UnavailableReason | None = (
            None  # why the last write was in vain; None: it was not
        )
        self._salt: bytes | None = None  # the file's, once it was opened
        self._own_salt = salt or secrets.token_bytes(32)  # what a file that is begun here gets
        self.openings = 0  # how often the file had to be opened
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()  # held by whoever writes
        self._waiting: deque[_WriteJob] = deque()
        self._writer: Connection | None = None
        self._readers: list[tuple[FileIdentity, Connection]] = []
        self._file_identity: FileIdentity | None = None  # the file that is open
        self._wal_identity: FileIdentity | None = None  # its write-ahead log

    def write(self, work: Callable[[Connection], T]) -> T:
        """Do work in a transaction, alone or with that of others; durable when this returns."""
        self._check_usable()
        job = _WriteJob(work)
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
        """Do work outside any transaction, while nobody in this process writes."""
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
        """Look at what was last committed; writers are not waited for."""
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

    def salt(self) -> bytes:
        """What hashes of API keys are salted with; the same for all who use the file."""
        return self._salt or self.read(read_salt)

    def provisional_salt(self) -> bytes:
        """The same without a look at the file; until it was opened, that of a new one."""
        return self._salt or self._own_salt

    def close(self) -> None:
        """Close all connections; what was committed is in the file."""
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
        """All that waits, at most as much as waits now."""
        return [self._waiting.popleft() for _ in range(len(self._waiting))]

    def _write_all(self, jobs: Sequence[_WriteJob]) -> None:
        """Write what several threads want; each of them hears how its own ended."""
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
        """All in one transaction; if one of them cannot be done, each in its own."""
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
        """Whether all went well; an error of the file's is raised, one of the work's is told."""
        self._begin_transaction(connection)
        try:
            values = [job.work(connection) for job in jobs]
            connection.execute("COMMIT")
        except sqlite3.Error:
            _roll_back(connection)
            if len(jobs) == 1:
                raise
            return False
        except Exception as error:  # noqa: BLE001 - told to the one thread whose work it was
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
        """Wait for other processes, for a while; SQLite's own way to wait lets some starve."""
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
        """The connection that writes, to the file that is there now; the lock is held."""
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
        """A new connection; while the file is locked to all, only the first one is waited for."""
        try:
            connection = opening(min(_SHORT_WAIT, self.wait) if self._is_locked_out else self.wait)
        except (sqlite3.Error, StoreUnavailable) as error:
            why = error.reason if isinstance(error, StoreUnavailable) else classify_error(error)
            self._is_locked_out = why == "busy"
            raise
        self._is_locked_out = False
        return connection

    def _is_same_file(self) -> bool:
        """Whether the file and its log are those that were opened: both can be deleted."""
        if self._file_identity is None or file_identity(self.path) != self._file_identity:
            return False
        log = file_identity(side_file(self.path, "-wal"))
        if self._wal_identity is None:
            self._wal_identity = log  # SQLite makes it with the first write
        return log == self._wal_identity

    def _borrow_reader(self, now: FileIdentity | None) -> tuple[FileIdentity | None, Connection]:
        """A connection to read from, and the file it reads; None: it is for this once."""
        with contextlib.suppress(IndexError):  # none is idle
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
        """Have a file of the latest version; one that cannot be written can still be read."""
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
        """A new connection to read from, and the file it reads; None: it sees no later changes.

        Such a one is for a folder in which SQLite cannot put its locks, when nothing is in the log.
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
        """Let go of a file that was deleted or is damaged, so that the next try has a sound one.

        A damaged one is opened once more before it is moved aside: perhaps a newer version has
        changed the tables. Only the very file that failed is moved: there may be a new one already.
        """
        told = error if isinstance(error, StoreUnavailable) else _as_unavailable(self.path, error)
        gone = self._file_identity is not None and not self._is_same_file()
        opened_then = told.reason == "read-only" and tries == 1  # and perhaps no longer is
        if tries == _MAX_TRIES or not (gone or opened_then or told.reason == "broken"):
            if told.reason in ("failing", "missing", "read-only"):
                self._close_connections()
            raise told from error
        self._close_connections()
        if told.reason == "broken" and self._create and tries > 1:
            try:
                quarantine(self.path, file, self.wait)
            except OSError as refused:
                raise to_unavailable(self.path, refused) from error

    def _close_connections(self) -> None:
        """Close all connections; in-flight reads keep theirs until they end.

        The one that writes goes last: it tidies the log away.
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


def _file_size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _roll_back(connection: Connection) -> None:
    """Undo; SQLite has done so already where the file failed."""
    with contextlib.suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
