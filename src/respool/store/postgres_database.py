"""PostgreSQL connections shared by threads: borrowed, given back, and opened again with back-off.

Many processes on many machines may use one database. A write holds a lock that others can share; a
transaction that deletes rows holds it alone. So no row that a writer has found is deleted before
its transaction ends, as in SQLite, which has one writer at a time.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, LiteralString, TypeVar, cast

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from .base import StoreUnavailable, UnavailableReason
from .connection import Connection, DamagedRow, Parameters, Rows
from .location import ServerAddress
from .meta import initialize_meta, read_salt
from .postgres_dialect import (
    functions,
    functions_stamp,
    order_parameters,
    translate,
    translate_migrations,
)

T = TypeVar("T")

MIN_SERVER_VERSION: Final = 13
_MAX_CONNECTIONS: Final = 8  # of a process
_MAX_IDLE: Final = 4
_MAX_TRIES: Final = 4  # of a transaction that ran into another one
_CONNECT_SECONDS: Final = 3
_STATEMENT_SECONDS: Final = 30.0  # that a report over all records may take
_SILENCE_SECONDS: Final = 35.0  # then a server that says nothing counts as lost
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds between two attempts to connect
_INHERITED: list[object] = []  # a parent process's connections: never used or closed

# The keys of advisory locks: respool's own number, "RSPL", and which one.
_LOCKS: Final = 0x5253504C
_MIGRATION, _ROWS, _SWEEP = 1, 2, 3
_SCHEMA: Final = "respool"

_REASONS: Final[dict[str, UnavailableReason]] = {
    "25006": "read-only",  # read_only_sql_transaction
    "3D000": "missing",  # invalid_catalog_name
    "3F000": "broken",  # invalid_schema_name
    "42501": "refused",  # insufficient_privilege
    "42703": "broken",  # undefined_column
    "42883": "broken",  # undefined_function
    "42P01": "broken",  # undefined_table
    "40001": "busy",  # serialization_failure
    "40P01": "busy",  # deadlock_detected
    "55P03": "busy",  # lock_not_available
    "57014": "busy",  # query_canceled: it took too long
    "53100": "full",  # disk_full
    "53300": "unreachable",  # too_many_connections
}
_REASON_CLASSES: Final[dict[str, UnavailableReason]] = {
    "08": "unreachable",  # connection exceptions
    "28": "refused",  # invalid authorization
    "57": "unreachable",  # the server stops or starts
    "XX": "broken",  # corrupted data
}
_REASONS_TO_RECONNECT: Final = ("broken", "missing", "read-only", "refused")
# Errors before a connection is established have no code.
_REASONS_BY_MESSAGE: Final[tuple[tuple[str, UnavailableReason], ...]] = (
    ("authentication failed", "refused"),
    ("pg_hba.conf", "refused"),
    ("no password supplied", "refused"),
    ("permission denied", "refused"),
    ("role ", "refused"),
    ("database ", "missing"),
)
_MAX_DETAIL: Final = 200


class _Connection(psycopg.Connection[Any]):
    """A connection that gives up a silent server."""

    def wait(
        self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = _SILENCE_SECONDS
    ) -> T:
        return super().wait(gen, interval, timeout)


class TranslatedConnection:
    """A connection that takes the tables' SQL."""

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self.raw = raw

    def execute(self, sql: str, parameters: Parameters = (), /) -> Rows:
        """Run a statement."""
        text, keys = translate(sql)
        values = order_parameters(keys, parameters)
        return self.raw.execute(cast(LiteralString, text), values or None)

    def executemany(self, sql: str, parameters: Iterable[Parameters], /) -> Rows:
        """Run a statement once for each of these parameters, without waiting in between."""
        text, keys = translate(sql)
        cursor = self.raw.cursor()
        cursor.executemany(
            cast(LiteralString, text), [order_parameters(keys, one) for one in parameters]
        )
        return cursor

    def run(self, sql: str) -> None:
        """Run statements in PostgreSQL's own words."""
        self.raw.execute(cast(LiteralString, sql))

    def value(self, sql: str) -> Any:
        """Return the first value that a query in PostgreSQL's own words finds."""
        row = self.raw.execute(cast(LiteralString, sql)).fetchone()
        return None if row is None else row[0]


class PostgresDatabase:
    """A database with respool's schema: opened at first use, and again when it was lost."""

    def __init__(self, address: ServerAddress, wait: float, *, create: bool = True) -> None:
        self.address = address
        self.wait = wait
        self._create = create
        self._closed = False
        self.last_error: UnavailableReason | None = None  # of the last write; None: it succeeded
        self.openings = 0  # after each loss of a connection: rows may be lost with a server
        self._salt: bytes | None = None
        self._own_salt = secrets.token_bytes(32)  # until the store's is known
        self._options = _options_of(address)
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._slots = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self._idle: list[TranslatedConnection] = []
        self._opening = threading.Lock()
        self._is_prepared = False  # the schema was seen to be of this version
        self._pause = 0.0  # seconds after the last failure to connect; 0: it succeeded
        self._try_at = 0.0
        self._failure: StoreUnavailable | None = None

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run work on the last committed state; once more if an idle connection was lost."""
        while True:
            with self._borrow() as (connection, was_idle):
                try:
                    return work(connection)
                except (psycopg.Error, DamagedRow) as error:
                    is_lost = connection.raw.closed
                    unavailable = self._note_failure(connection, error)
                    if not (was_idle and is_lost):
                        raise unavailable from error

    def write(self, work: Callable[[Connection], T], *, synced: bool = True) -> T:
        """Run work in a transaction beside other writers; durable on return.

        Not synced: all processes see it on return, but the server may lose it if it crashes.
        """
        lock = f"pg_advisory_xact_lock_shared({_LOCKS}, {_ROWS})"
        return self._transact(work, lock, is_synced=synced)

    def erase(self, work: Callable[[Connection], T]) -> T:
        """Run work that deletes rows, while nobody writes."""
        return self._transact(work, f"pg_advisory_xact_lock({_LOCKS}, {_ROWS})", is_long=True)

    def sweep(self, work: Callable[[Connection], T]) -> T | None:
        """Run a step of the sweep, while nobody writes; None if another process is at it."""

        def work_alone(connection: Connection) -> T | None:
            assert isinstance(connection, TranslatedConnection)
            if not connection.value(f"SELECT pg_try_advisory_xact_lock({_LOCKS}, {_SWEEP})"):
                return None
            connection.run(f"SELECT pg_advisory_xact_lock({_LOCKS}, {_ROWS})")
            return work(connection)

        return self._transact(work_alone, "")

    def used_bytes(self, limit: float) -> int:
        """Return the bytes on disk if they are within the limit, else about those of the rows.

        Space of deleted rows is used again, but seldom given back: only the rows' own bytes shrink.
        """
        on_disk = self.read(lambda c: c.execute(_DISK_BYTES).fetchall()[0][0])
        return on_disk if on_disk <= limit else self.read(_row_bytes)

    def release(self) -> bool:
        """PostgreSQL looks after its own files."""
        return False

    def vacuum(self) -> bool:
        """Write the tables anew; True if no deleted row is left in their files."""
        left: list[str] = []
        with self._borrow() as (connection, _):
            connection.raw.add_notice_handler(
                lambda notice: left.append(notice.message_detail or "")
            )
            try:
                connection.run("SET statement_timeout = 0")
                for table in self._tables(connection):
                    connection.run(f"VACUUM (FULL, VERBOSE) {_SCHEMA}.{table}")
            except psycopg.Error as error:
                raise self._unavailable(error) from error
            finally:
                connection.raw.close()  # with what was set and is listening
        # "0 dead row versions cannot be removed yet", by which number another one still sees some.
        return all(detail.startswith("0 ") for detail in left if detail)

    def salt(self) -> bytes:
        """Return the store's salt for hashes of API keys."""
        return self._salt or self.read(read_salt)

    def provisional_salt(self) -> bytes:
        """Return the salt without connecting; until it is known, one of this process."""
        return self._salt or self._own_salt

    def close(self) -> None:
        """Close all connections that are not in use."""
        self._closed = True
        self._drop_idle()

    # --- transactions --------------------------------------------------------------------------

    def _transact(
        self,
        work: Callable[[Connection], T],
        lock: str,
        *,
        is_long: bool = False,
        is_synced: bool = True,
    ) -> T:
        """Run work in a transaction, again if another one was in its way."""
        settings = "SET LOCAL statement_timeout = 0;" if is_long else ""
        settings += "" if is_synced else "SET LOCAL synchronous_commit = off;"
        begin = f"BEGIN; {settings} SELECT {lock}"
        try:
            for tries in range(1, _MAX_TRIES + 1):
                with self._borrow() as (connection, was_idle):
                    try:
                        done = self._attempt(connection, begin, work)
                    except (psycopg.Error, DamagedRow) as error:
                        unavailable = self._note_failure(connection, error)
                        if tries == _MAX_TRIES or not _is_worth_another(error, was_idle):
                            raise unavailable from error
                    else:
                        self.last_error = None
                        return done
        except StoreUnavailable as error:
            self.last_error = error.reason
            raise
        raise AssertionError("the last try returns or raises")

    def _attempt(
        self, connection: TranslatedConnection, begin: str, work: Callable[[Connection], T]
    ) -> T:
        try:
            connection.run(begin)
            done = work(connection)
        except BaseException:
            _roll_back(connection)
            raise
        try:
            connection.run("COMMIT")
        except psycopg.Error as error:
            if connection.raw.closed:  # it may have been committed: that is not tried again
                raise _Undecided(str(error)) from error
            raise
        return done

    # --- connections ---------------------------------------------------------------------------

    @contextlib.contextmanager
    def _borrow(self) -> Generator[tuple[TranslatedConnection, bool]]:
        """Lend a connection for one use; True: it was idle, and may have been lost meanwhile."""
        self._check_usable()
        if not self._slots.acquire(timeout=self.wait):
            raise StoreUnavailable(self.address, "busy", "all connections of this process are used")
        slots = self._slots
        try:
            connection, was_idle = self._take_idle(), True
            if connection is None:
                connection, was_idle = self._open(), False
            try:
                yield connection, was_idle
            finally:
                self._give_back(connection)
        finally:
            slots.release()

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreUnavailable(self.address, "closed")
        if os.getpid() != self._pid:  # a connection must not be shared with a parent
            _INHERITED.append(self._idle)
            self._reset()

    def _take_idle(self) -> TranslatedConnection | None:
        with contextlib.suppress(IndexError):
            while True:
                connection = self._idle.pop()
                if not connection.raw.closed:
                    return connection
        return None

    def _give_back(self, connection: TranslatedConnection) -> None:
        raw = connection.raw
        is_usable = not raw.closed and raw.info.transaction_status == TransactionStatus.IDLE
        if self._closed or not is_usable or len(self._idle) >= _MAX_IDLE:
            raw.close()
        else:
            self._idle.append(connection)

    def _note_failure(self, connection: TranslatedConnection, error: Exception) -> StoreUnavailable:
        """The error that callers see.

        A lost connection, or a reason that may change with the server, ends the idle ones as well:
        the next use connects anew.
        """
        unavailable = self._unavailable(error)
        if connection.raw.info.transaction_status == TransactionStatus.ACTIVE:
            connection.raw.close()  # it still waits for an answer
        if connection.raw.closed:
            self.openings += 1
        if connection.raw.closed or unavailable.reason in _REASONS_TO_RECONNECT:
            connection.raw.close()
            self._drop_idle()
            self._is_prepared = False
        return unavailable

    def _drop_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.raw.close()

    def _open(self) -> TranslatedConnection:
        """Connect; after a failure, at the earliest after a pause that grows."""
        if not self._opening.acquire(timeout=self.wait):
            raise self._failure or StoreUnavailable(self.address, "unreachable")
        try:
            if self._failure is not None and time.monotonic() < self._try_at:
                raise StoreUnavailable(self.address, self._failure.reason, self._failure.detail)
            try:
                connection = self._connect()
            except StoreUnavailable as error:
                self._pause = min(max(_FIRST_PAUSE, 2 * self._pause), _LONGEST_PAUSE)
                self._try_at = time.monotonic() + self._pause * random.uniform(0.8, 1.2)  # noqa: S311 - replicas apart
                self._failure = error
                raise
            self._pause, self._failure = 0.0, None
            return connection
        finally:
            self._opening.release()

    def _connect(self) -> TranslatedConnection:
        try:
            raw = _Connection.connect(
                **self._options, autocommit=True, cursor_factory=psycopg.RawCursor
            )
        except psycopg.Error as error:
            raise self._unavailable(error) from error
        connection = TranslatedConnection(raw)
        try:
            connection.run(
                f"SET search_path = {_SCHEMA}; SET client_min_messages = warning;"
                f" SET lock_timeout = {round(self.wait * 1000)};"
                f" SET statement_timeout = {round(_STATEMENT_SECONDS * 1000)};"
                " SET idle_in_transaction_session_timeout = 60000;"
                # A commit is on disk when it returns, whatever is usual there.
                " SELECT set_config('synchronous_commit', 'on', false)"
                " WHERE current_setting('synchronous_commit') = 'off'"
            )
            if not self._is_prepared:
                self._prepare(connection)
        except BaseException as error:
            raw.close()
            if isinstance(error, psycopg.Error):
                raise self._unavailable(error) from error
            raise
        return connection

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(self.address, _classify(error), self._detail(error))

    def _detail(self, error: Exception) -> str:
        """The first line of what was said, without the password."""
        lines = str(error).strip().splitlines() or [type(error).__name__]
        said = lines[0].removeprefix("connection failed: ")
        password = self._options.get("password")
        if password:
            said = said.replace(str(password), "…")
        return said[:_MAX_DETAIL].rstrip(".")

    # --- the schema ----------------------------------------------------------------------------

    def _prepare(self, connection: TranslatedConnection) -> None:
        """Create the schema, or migrate it to this version; several processes may start at once."""
        self._reject_unsuitable(connection)
        version = self._version(connection)
        latest = len(translate_migrations())
        if version < latest or not _has_functions(connection):
            if not self._create and version == 0:
                raise StoreUnavailable(self.address, "missing")
            self._migrate(connection)
        self._salt = read_salt(connection)
        self._is_prepared = True

    def _reject_unsuitable(self, connection: TranslatedConnection) -> None:
        info = connection.raw.info
        if info.server_version < MIN_SERVER_VERSION * 10_000:
            said = (
                f"PostgreSQL {info.server_version // 10_000}; from {MIN_SERVER_VERSION} on it works"
            )
            raise StoreUnavailable(self.address, "failing", said)
        encoding = info.parameter_status("server_encoding")
        if encoding != "UTF8":
            said = f"the database's encoding is {encoding}; it has to be UTF8"
            raise StoreUnavailable(self.address, "failing", said)

    def _version(self, connection: TranslatedConnection) -> int:
        """Return the number of migrations that the schema has had; 0: there is none."""
        if connection.value(f"SELECT to_regclass('{_SCHEMA}.meta')") is None:
            if next(self._tables(connection), None) is not None:
                raise StoreUnavailable(self.address, "foreign")
            return 0
        version = int(connection.value("SELECT number FROM meta WHERE key = 'version'") or 0)
        if version > len(translate_migrations()):
            raise StoreUnavailable(self.address, "newer")
        return version

    def _tables(self, connection: TranslatedConnection) -> Generator[str]:
        for (name,) in connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = ?", (_SCHEMA,)
        ):
            yield name

    def _migrate(self, connection: TranslatedConnection) -> None:
        """Run the missing migrations in one transaction, one process at a time."""
        connection.run("BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
        try:
            connection.run(f"SELECT pg_advisory_xact_lock({_LOCKS}, {_MIGRATION})")
            if not connection.value(f"SELECT to_regnamespace('{_SCHEMA}') IS NOT NULL"):
                connection.run(f"CREATE SCHEMA {_SCHEMA}")
            for statement in functions():
                connection.run(statement)
            before = self._version(connection)  # another process may have been first
            for statements in translate_migrations()[before:]:
                for statement in statements:
                    connection.run(statement)
            if before == 0:
                initialize_meta(connection, self._own_salt)
            connection.run(
                "INSERT INTO meta (key, number, value) VALUES"  # noqa: S608 - ours
                f" ('version', {len(translate_migrations())}, NULL),"
                f" ('functions', NULL, '\\x{functions_stamp().hex()}')"
                " ON CONFLICT (key) DO UPDATE SET number = excluded.number, value = excluded.value"
            )
            connection.run("COMMIT")
        except BaseException:
            _roll_back(connection)
            raise


class _Undecided(psycopg.OperationalError):
    """The connection was lost while a transaction was committed."""


def _options_of(address: ServerAddress) -> dict[str, Any]:
    """The parameters of a connection; what the URL says goes before respool's own."""
    try:
        given = conninfo_to_dict(address.url)
    except psycopg.Error:  # whose words would show the URL
        raise StoreUnavailable(address, "failing", "its URL cannot be read") from None
    return {
        "application_name": "respool",
        "connect_timeout": _CONNECT_SECONDS,
        "client_encoding": "UTF8",
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
        **given,
    }


def _classify(error: Exception) -> UnavailableReason:
    """Map an error of PostgreSQL or of its driver to the reason that callers see."""
    if isinstance(error, errors.DiskFull):
        return "full"
    code = getattr(error, "sqlstate", None)
    if code:
        return _REASONS.get(code) or _REASON_CLASSES.get(code[:2], "failing")
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return "failing"
    said = str(error)
    if "FATAL" in said or "no password" in said:
        for words, reason in _REASONS_BY_MESSAGE:
            if words in said:
                return reason
    return "unreachable"


def _is_worth_another(error: Exception, was_idle: bool) -> bool:
    """Check if a transaction may succeed if it is run again at once."""
    if isinstance(error, _Undecided):
        return False
    if getattr(error, "sqlstate", None) in ("40001", "40P01"):
        return True
    # An error of a connection that was idle may not occur on a new one.
    return was_idle and _classify(error) in ("unreachable", "read-only")


def _roll_back(connection: TranslatedConnection) -> None:
    """Roll back; a connection that still waits for an answer is closed instead."""
    raw = connection.raw
    if raw.info.transaction_status == TransactionStatus.ACTIVE:
        raw.close()
    with contextlib.suppress(psycopg.Error):
        if not raw.closed:
            connection.run("ROLLBACK")


def _has_functions(connection: TranslatedConnection) -> bool:
    """Check that the schema's functions are those of this version."""
    found = connection.value("SELECT value FROM meta WHERE key = 'functions'")
    return found is not None and bytes(found) == functions_stamp()


_DISK_BYTES: Final = (
    "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c"  # noqa: S608 - ours
    f" WHERE c.relnamespace = '{_SCHEMA}'::regnamespace AND c.relkind = 'r'"
    " AND c.relname <> 'search_words'"
)
_ROW_BYTES: Final = (
    "SELECT coalesce(sum(octet_length(body) + 200), 0)::bigint FROM originals",
    (
        "SELECT coalesce(sum(octet_length(edits) + octet_length(notes) + 600), 0)::bigint"
        " FROM requests"
    ),
    "SELECT coalesce(sum(octet_length(body)), 0)::bigint FROM reproductions",
)


def _row_bytes(connection: Connection) -> int:
    """Return about the bytes that the rows take, by reading their lengths."""
    return sum(connection.execute(one).fetchall()[0][0] for one in _ROW_BYTES)
