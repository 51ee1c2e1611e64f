"""SQLite file: schema, migrations, opening, permissions and quarantine.

`PRAGMA user_version` in the file's header is the number of migrations that the file has had.
A released migration is never changed; a new one is appended.

Only its owner may read the file: it has mode 0600, and SQLite gives its side files (-wal, -shm)
the same mode. Creating the file and moving it aside happen under a lock on its folder, so that
two processes never do so at once.

A file with bytes in it is used, or moved aside if it is damaged, only if it is respool's: it names
respool in its header or in its log, or its header is lost and it has the default name. The bytes
decide before SQLite opens the file, which could change it or create side files. Any other file is
refused and left as it is. An empty file holds nothing to lose and is used.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import sqlite3
import stat
import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path

from ..regex import lazy_compile
from .base import StoreUnavailable
from .location import FILE_NAME
from .meta import initialize_meta
from .savings import max_scale
from .teams import TEAM_TABLES

try:
    import fcntl
except ImportError:  # Windows, where an open file cannot be deleted
    fcntl = None

Migration = tuple[str, ...]

APPLICATION_ID = 0x5253504C  # "RSPL", in the header of each of our files
FORMER_APPLICATION_ID = 0x434C4557  # "CLEW", the project's name before its first release

_TABLES: Migration = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    # One row per history and API key; its data is deleted with the row.
    """CREATE TABLE conversations (
        id INTEGER PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL, session TEXT NOT NULL,
        started REAL NOT NULL, last REAL NOT NULL, UNIQUE (owner, name))""",
    "CREATE INDEX conversations_by_last ON conversations (last, id)",
    "CREATE INDEX conversations_by_name ON conversations (name)",
    """CREATE TABLE originals (
        ref TEXT NOT NULL UNIQUE, size INTEGER NOT NULL, packing INTEGER NOT NULL,
        body BLOB NOT NULL)""",
    """CREATE TABLE kept (
        conversation INTEGER NOT NULL, ref TEXT NOT NULL, time REAL NOT NULL,
        PRIMARY KEY (conversation, ref)) WITHOUT ROWID""",
    "CREATE INDEX kept_by_ref ON kept (ref)",
    """CREATE TABLE facts (
        conversation TEXT NOT NULL, kind TEXT NOT NULL, prefix TEXT NOT NULL,
        tokens INTEGER NOT NULL, time REAL NOT NULL,
        PRIMARY KEY (conversation, kind, prefix)) WITHOUT ROWID""",
    "CREATE INDEX facts_by_time ON facts (time)",
    # Long columns come last: SQLite reads a row from its start, up to the last column needed.
    """CREATE TABLE requests (
        id TEXT NOT NULL UNIQUE, conversation INTEGER NOT NULL, time REAL NOT NULL,
        format TEXT NOT NULL, model TEXT NOT NULL, mode TEXT NOT NULL, status INTEGER NOT NULL,
        tokens_before INTEGER NOT NULL, tokens_after INTEGER NOT NULL, saved INTEGER NOT NULL,
        counted INTEGER NOT NULL, input INTEGER, cache_read INTEGER, cache_write INTEGER,
        output INTEGER, cost_before REAL, cost_after REAL, cost_uncached REAL,
        epochs INTEGER NOT NULL, refetched INTEGER NOT NULL, loops INTEGER NOT NULL,
        notable INTEGER NOT NULL, prefix_break TEXT NOT NULL, fallback TEXT NOT NULL,
        milliseconds REAL NOT NULL, edited INTEGER NOT NULL, made INTEGER NOT NULL,
        terms TEXT NOT NULL, sent_as TEXT NOT NULL, notes TEXT NOT NULL,
        size INTEGER NOT NULL, packing INTEGER NOT NULL, edits BLOB NOT NULL)""",
    "CREATE INDEX requests_by_conversation ON requests (conversation, time)",
    "CREATE INDEX requests_by_time ON requests (time)",
    "CREATE INDEX requests_of_note ON requests (time) WHERE notable",
    """CREATE TABLE reproductions (
        id INTEGER PRIMARY KEY, conversation INTEGER NOT NULL, time REAL NOT NULL,
        size INTEGER NOT NULL, packing INTEGER NOT NULL, body BLOB NOT NULL)""",
    "CREATE INDEX reproductions_by_conversation ON reproductions (conversation)",
)

_PREFIX_COLUMN: Migration = (
    # A parent request is found by the hash of its history.
    "ALTER TABLE requests ADD COLUMN prefix TEXT NOT NULL DEFAULT ''",
    "CREATE INDEX requests_by_prefix ON requests (prefix)",
)

_PARENT_COLUMN: Migration = (
    # The parent's hash is kept for lineage queries long after.
    "ALTER TABLE requests ADD COLUMN parent TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE requests ADD COLUMN again TEXT NOT NULL DEFAULT ''",
)

_ORIGIN_COLUMNS: Migration = (
    # Sessions that open with the same words are one conversation, but may have several folders.
    "ALTER TABLE requests ADD COLUMN agent TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE requests ADD COLUMN project TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE conversations ADD COLUMN prompt TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE conversations ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0",
)

_BILL_TABLES: Migration = (
    # What a request cost besides its work: head, expired and missed prefixes.
    "ALTER TABLE requests ADD COLUMN head_cost REAL",
    "ALTER TABLE requests ADD COLUMN expired INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE requests ADD COLUMN expired_cost REAL",
    "ALTER TABLE requests ADD COLUMN missed INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE requests ADD COLUMN missed_cost REAL",
    # Keep-alive pings are no requests of a client.
    """CREATE TABLE keep_alive (
        id INTEGER PRIMARY KEY, conversation INTEGER NOT NULL, time REAL NOT NULL,
        model TEXT NOT NULL, kind TEXT NOT NULL, status INTEGER NOT NULL, tokens INTEGER NOT NULL,
        money REAL NOT NULL)""",
    "CREATE INDEX keep_alive_by_conversation ON keep_alive (conversation)",
    "CREATE INDEX keep_alive_by_time ON keep_alive (time)",
    """CREATE TABLE tools (
        id INTEGER PRIMARY KEY, conversation INTEGER NOT NULL, time REAL NOT NULL,
        name TEXT NOT NULL, tokens INTEGER NOT NULL, called INTEGER NOT NULL,
        UNIQUE (conversation, name))""",
)
_HOLDOUT_COLUMNS: Migration = (
    "ALTER TABLE requests ADD COLUMN arm TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE requests ADD COLUMN unit TEXT NOT NULL DEFAULT ''",
)

MIGRATIONS: tuple[Migration, ...] = (
    _TABLES,
    _PREFIX_COLUMN,
    _PARENT_COLUMN,
    _ORIGIN_COLUMNS,
    _BILL_TABLES,
    _HOLDOUT_COLUMNS,
    TEAM_TABLES,
    (),  # PostgreSQL's index of words by team; here it is a file of its own
)

SIDE_FILE_SUFFIXES = ("-wal", "-shm")
SEARCH_SUFFIXES = ("-search", "-search-journal")  # of the search index
_SQLITE_HEADER = b"SQLite format 3\0"  # magic bytes
_VERSION_OFFSET, _APPLICATION_OFFSET = 60, 68  # in the header, four bytes each
_HEADER_BYTES = _APPLICATION_OFFSET + 4
_LOG_MAGIC = (0x377F0682, 0x377F0683)
_LOG_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_MAX_FRAMES = 2_000  # read of a log; SQLite moves a log of 1,000 frames into its file
_QUARANTINE_NAME = lazy_compile(r"\.damaged-\d{8}-\d{6}(\.\d+)?(-wal|-shm)?", re.ASCII)
_LOCK_RETRY_SECONDS = 0.01  # between two attempts
_WRITER_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",  # a commit is on disk when it returns
    "PRAGMA fullfsync = ON",  # macOS: flush the drive's cache too
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA secure_delete = ON",  # overwrite deleted data
    "PRAGMA journal_size_limit = 33554432",
    "PRAGMA cell_size_check = ON",
)


_UNRECOGNIZED = "if respool wrote it, it is damaged beyond recognition: move it away"


class NewerFile(Exception):
    """The file has migrations that this version does not know."""


class ForeignFile(Exception):
    """The file is a database of another program."""


class FormerFile(Exception):
    """The file was written under the project's former name."""


def migrate(
    connection: sqlite3.Connection,
    salt: bytes | None,
    migrations: Sequence[Migration],
) -> None:
    """Migrate a file to the latest version in whole steps; a new file gets its salt."""
    reject_foreign(connection, len(migrations))
    if read_version(connection) == len(migrations):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for at in range(
            read_version(connection), len(migrations)
        ):  # another process may have been first
            for statement in migrations[at]:
                connection.execute(statement)
            if at == 0:
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                initialize_meta(connection, salt or secrets.token_bytes(32))
            connection.execute(f"PRAGMA user_version = {at + 1}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def reject_foreign(connection: sqlite3.Connection, latest: int) -> None:
    """Raise for a file of another program, of the former name, or of a newer version."""
    ((application,),) = connection.execute("PRAGMA application_id").fetchall()
    if application == FORMER_APPLICATION_ID:
        raise FormerFile
    ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    if application != APPLICATION_ID and (application or tables):
        raise ForeignFile
    if read_version(connection) > latest:
        raise NewerFile


def read_version(connection: sqlite3.Connection) -> int:
    """Return the number of migrations that a file has had."""
    ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    return version


FileIdentity = tuple[int, int]

_log = logging.getLogger(__name__)

_OPEN_FILES: dict[Path, tuple[FileIdentity, int]] = {}  # descriptors, the latest used one last
_OPEN_FILES_LOCK = threading.Lock()
_MAX_OPEN_FILES = 32


def open_writer(
    path: Path, wait: float, *, create: bool = True, salt: bytes | None = None
) -> sqlite3.Connection:
    """Open a write connection to a file of the latest version, creating it if needed."""
    if create:
        _create_folder(path.parent)
    with _folder_lock(path, wait):
        if not path.exists():
            if not create:
                raise StoreUnavailable(path, "missing")
            _create_file(path)
        if _reject_by_header(path):
            _restrict_permissions(path)  # before SQLite creates side files
        connection = connect(path, wait)
        try:
            _reject_unsuitable(path, connection)
            _restrict_permissions(path)
            _prepare(connection, salt)
        except BaseException:
            connection.close()
            raise
        return connection


def open_reader(path: Path, wait: float, *, immutable: bool = False) -> sqlite3.Connection:
    """Open a read-only connection; `immutable` if lock files cannot be written either."""
    with contextlib.suppress(OSError):  # SQLite reports it
        _reject_by_header(path)
    uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if immutable else ''}"
    connection = _connect(uri, wait)
    try:
        _reject_unsuitable(path, connection)
        if read_version(connection) < len(MIGRATIONS):  # its tables differ from those that are read
            raise StoreUnavailable(path, "busy", "it is not migrated to this version yet")
    except BaseException:
        connection.close()
        raise
    return connection


def connect(path: Path, wait: float) -> sqlite3.Connection:
    """Open a plain connection to an existing file."""
    return _connect(f"{path.absolute().as_uri()}?mode=rw", wait)


def _connect(uri: str, wait: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri, uri=True, timeout=wait, isolation_level=None, check_same_thread=False
    )
    connection.create_function("max_scale", 2, max_scale, deterministic=True)
    return connection


def file_identity(path: Path) -> FileIdentity | None:
    """Return the device and inode of a file; None if it does not exist."""
    try:
        found = os.stat(path)  # noqa: PTH116 - faster than Path.stat, and called twice per write
    except OSError:
        return None
    return found.st_dev, found.st_ino


def quarantine(path: Path, known: FileIdentity | None, wait: float) -> Path | None:
    """Move a damaged file and its side files aside; None if another process did.

    The move counts as their last change: from it on they are kept for the retention time.
    """
    with _folder_lock(path, wait):
        if known is None or file_identity(path) != known:
            return None
        _reject_by_header(path)
        aside = _free_name(path)
        for ending in ("", *SIDE_FILE_SUFFIXES):
            with contextlib.suppress(FileNotFoundError):
                os.utime(side_file(path, ending))  # first: a kill in between must not make it old
                side_file(path, ending).rename(side_file(aside, ending))
    _log.warning("The store %s was damaged. It is now %s, and a new one is begun.", path, aside)
    return aside


def quarantined_files(path: Path) -> list[Path]:
    """Return the damaged files that were moved aside, and their side files."""
    found = path.parent.glob(f"{_glob_escape(path.name)}.damaged-*")
    return sorted(
        file for file in found if _QUARANTINE_NAME.fullmatch(file.name.removeprefix(path.name))
    )


def side_file(path: Path, suffix: str) -> Path:
    """Return the path of an SQLite side file."""
    return path.with_name(path.name + suffix)


def _prepare(connection: sqlite3.Connection, salt: bytes | None) -> None:
    ((pages,),) = connection.execute("PRAGMA page_count").fetchall()
    if not pages:
        # At once: a file without the id, as a kill in between would leave it, is another program's.
        connection.execute("BEGIN")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")  # in its first bytes
        connection.execute("COMMIT")
    for statement in _WRITER_PRAGMAS:
        connection.execute(statement).fetchall()
    migrate(connection, salt, MIGRATIONS)


def _reject_unsuitable(path: Path, connection: sqlite3.Connection) -> None:
    try:
        reject_foreign(connection, len(MIGRATIONS))
    except NewerFile:
        raise StoreUnavailable(path, "newer") from None
    except ForeignFile:
        raise StoreUnavailable(path, "foreign") from None
    except FormerFile:
        raise StoreUnavailable(path, "former") from None


def _reject_by_header(path: Path) -> bool:
    """Raise for a file that is not respool's or of a newer version; False if the file is empty."""
    kind = path.stat().st_mode
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):  # a pipe or a device
        raise StoreUnavailable(path, "foreign")
    header = _read_header(path)
    if not header:
        return False
    if not header.startswith(_SQLITE_HEADER) or len(header) < _HEADER_BYTES:
        if path.name != FILE_NAME:
            raise StoreUnavailable(path, "foreign", _UNRECOGNIZED)
        return True
    application = int.from_bytes(header[_APPLICATION_OFFSET:]) or _application_in_log(path)
    if application == FORMER_APPLICATION_ID:
        raise StoreUnavailable(path, "former")
    if application != APPLICATION_ID:
        raise StoreUnavailable(path, "foreign")
    if int.from_bytes(header[_VERSION_OFFSET : _VERSION_OFFSET + 4]) > len(MIGRATIONS):
        raise StoreUnavailable(path, "newer")
    return True


def _read_header(path: Path) -> bytes:
    """Return the first bytes of a file, which stays open.

    A process that closes a file loses all its locks on it, those of SQLite too. Another process
    would then take itself for the last one and delete the log that this one writes.
    """
    if fcntl is None:  # Windows, where locks belong to one opening of a file
        with path.open("rb") as file:
            return file.read(_HEADER_BYTES)
    with _OPEN_FILES_LOCK:
        identity, descriptor = _OPEN_FILES.pop(path, (None, -1))
        if identity is None or identity != file_identity(path):
            before, descriptor = descriptor, os.open(path, os.O_RDONLY)
            if before >= 0:
                os.close(before)
            found = os.fstat(descriptor)
            identity = found.st_dev, found.st_ino
        _OPEN_FILES[path] = identity, descriptor
        if len(_OPEN_FILES) > _MAX_OPEN_FILES:
            os.close(_OPEN_FILES.pop(next(iter(_OPEN_FILES)))[1])
        return os.pread(descriptor, _HEADER_BYTES, 0)


def _application_in_log(path: Path) -> int:
    """Return the application id in a file's log, where it may be after an early kill; 0: none.

    The log is read as bytes: SQLite would create or change a side file.
    """
    with contextlib.suppress(FileNotFoundError), side_file(path, "-wal").open("rb") as log:
        header = log.read(_LOG_HEADER_BYTES)
        if int.from_bytes(header[:4]) not in _LOG_MAGIC:
            return 0
        page_bytes, salts = int.from_bytes(header[8:12]), header[16:24]
        for _ in range(_MAX_FRAMES):
            frame = log.read(_FRAME_HEADER_BYTES)
            if len(frame) < _FRAME_HEADER_BYTES or frame[8:16] != salts:  # the rest is older
                break
            page = log.read(page_bytes)
            application = int.from_bytes(page[_APPLICATION_OFFSET:_HEADER_BYTES])
            if int.from_bytes(frame[:4]) == 1 and application:
                return application
    return 0


def _create_folder(folder: Path) -> None:
    """Create a folder and its parents, each with mode 0700."""
    if folder.is_dir():
        return
    _create_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    _sync_folder(folder.parent)


def _create_file(path: Path) -> None:
    """Create an empty file and remove side files of a deleted one."""
    for ending in (*SIDE_FILE_SUFFIXES, *SEARCH_SUFFIXES):
        side_file(path, ending).unlink(missing_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    _sync_folder(path.parent)


def _restrict_permissions(path: Path) -> None:
    """Restrict the file and its side files to their owner.

    SQLite creates side files with the mode that the file has then.
    """
    if os.name != "posix":
        return
    mode = stat.S_IMODE(path.stat().st_mode) & 0o600
    for file in (path, *(side_file(path, ending) for ending in SIDE_FILE_SUFFIXES)):
        with contextlib.suppress(OSError):  # missing, or of another user
            if stat.S_IMODE(file.stat().st_mode) != mode:
                file.chmod(mode)


def _sync_folder(folder: Path) -> None:
    """Make a new directory entry durable, where folders can be synced."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _folder_lock(path: Path, wait: float) -> Generator[None]:
    """Hold the folder's lock while the file is created or moved."""
    if fcntl is None:
        yield
        return
    try:
        descriptor = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        raise StoreUnavailable(path, "missing", error.strerror or "") from None
    try:
        _lock(descriptor, path, time.monotonic() + wait)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path, until: float) -> None:
    assert fcntl is not None
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise StoreUnavailable(path, "busy") from None
            time.sleep(_LOCK_RETRY_SECONDS)
        except OSError:
            return  # a file system without locks
        else:
            return


def _free_name(path: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    names = (f"{path.name}.damaged-{stamp}{more}" for more in ("", *(f".{n}" for n in range(999))))
    return next(one for name in names if not (one := path.with_name(name)).exists())


def _glob_escape(name: str) -> str:
    """Escape a name for use in a glob pattern."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
