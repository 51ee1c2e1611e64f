"""The store's file: made, opened, told from another one in its place, moved aside when damaged.

Only its owner may read it: the file has mode 0600, and SQLite gives the files beside it (-wal,
-shm) the same. Whoever makes the file or moves it aside holds its folder's lock, so that two
processes never do so at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import stat
import time
from collections.abc import Generator
from pathlib import Path

from .schema import (
    APPLICATION,
    MIGRATIONS,
    ForeignFile,
    NewerFile,
    migrate,
    refuse_others,
    version_of,
)
from .unavailable import StoreUnavailable

try:
    import fcntl
except ImportError:  # Windows, where no file can be deleted while it is open
    fcntl = None

BESIDE = ("-wal", "-shm")
Identity = tuple[int, int]

_log = logging.getLogger(__name__)
_SQLITE = b"SQLite format 3\0"  # how a database begins
_DATABASES = (".db", ".sqlite", ".sqlite3")
_VERSION_AT, _APPLICATION_AT = 60, 68  # where its header holds these, in four bytes each
_PAUSE = 0.01  # seconds between two tries for a lock
_WRITING = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",  # a commit is on the disk when it returns
    "PRAGMA fullfsync = ON",  # on a Mac, really on the disk
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA secure_delete = ON",  # what is deleted is overwritten
    "PRAGMA journal_size_limit = 33554432",
    "PRAGMA cell_size_check = ON",
)


def open_writer(
    path: Path, wait: float, *, create: bool = True, salt: bytes | None = None
) -> sqlite3.Connection:
    """A connection that can write, to a file of the latest version; it is made if need be."""
    if create:
        _make_folder(path.parent)
    with _folder_locked(path, wait):
        if not path.exists():
            if not create:
                raise StoreUnavailable(path, "missing")
            _make_file(path)
        _refuse_unopened(path)
        connection = connected(path, wait)
        try:
            _refusing(path, connection)
            _tighten(path)
            _make_ready(connection, salt)
        except BaseException:
            connection.close()
            raise
        return connection


def open_reader(path: Path, wait: float, *, immutable: bool = False) -> sqlite3.Connection:
    """A connection that cannot write; `immutable` where not even its locks can be written."""
    uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if immutable else ''}"
    connection = sqlite3.connect(
        uri, uri=True, timeout=wait, isolation_level=None, check_same_thread=False
    )
    try:
        _refusing(path, connection)
        if version_of(connection) < len(MIGRATIONS):  # its tables are not those that will be read
            raise StoreUnavailable(path, "busy", "it has yet to be brought to this version")
    except BaseException:
        connection.close()
        raise
    return connection


def connected(path: Path, wait: float) -> sqlite3.Connection:
    """A bare connection to a file that exists."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=wait,
        isolation_level=None,
        check_same_thread=False,
    )


def identity(path: Path) -> Identity | None:
    """What tells a file from any other, whatever its name; None if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - the quicker of the two, and asked twice a write
    except OSError:
        return None
    return found.st_dev, found.st_ino


def quarantine(path: Path, known: Identity | None, wait: float) -> Path | None:
    """Move a damaged file aside, with those beside it; None if another was there first."""
    with _folder_locked(path, wait):
        if known is None or identity(path) != known:
            return None
        aside = _free_name(path)
        path.rename(aside)
        for ending in BESIDE:
            with contextlib.suppress(FileNotFoundError):
                beside(path, ending).rename(beside(aside, ending))
    _log.warning("The store %s was damaged. It is now %s, and a new one is begun.", path, aside)
    return aside


def quarantined(path: Path) -> list[Path]:
    """The damaged files that were moved aside, and those beside them."""
    return sorted(path.parent.glob(f"{_literal(path.name)}.damaged-*"))


def beside(path: Path, suffix: str) -> Path:
    """The file that SQLite puts beside another."""
    return path.with_name(path.name + suffix)


def _make_ready(connection: sqlite3.Connection, salt: bytes | None) -> None:
    ((pages,),) = connection.execute("PRAGMA page_count").fetchall()
    if not pages:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    for statement in _WRITING:
        connection.execute(statement).fetchall()
    migrate(connection, salt, MIGRATIONS)


def _refusing(path: Path, connection: sqlite3.Connection) -> None:
    try:
        refuse_others(connection, len(MIGRATIONS))
    except NewerFile:
        raise StoreUnavailable(path, "newer") from None
    except ForeignFile:
        raise StoreUnavailable(path, "foreign") from None


def _refuse_unopened(path: Path) -> None:
    """Look before SQLite does: opening a newer file could change it.

    What is no database and is not named like one is not ours to move aside: RESPOOL_STORE is wrong.
    """
    with path.open("rb") as file:
        header = file.read(_APPLICATION_AT + 4)
    if not header.startswith(_SQLITE):
        if header and path.suffix not in _DATABASES:
            raise StoreUnavailable(path, "foreign")
        return
    if int.from_bytes(header[_APPLICATION_AT:]) != APPLICATION:
        return  # of another program, or so new that all is in its log yet: SQLite will say
    if int.from_bytes(header[_VERSION_AT : _VERSION_AT + 4]) > len(MIGRATIONS):
        raise StoreUnavailable(path, "newer")
    _tighten(path)


def _make_folder(folder: Path) -> None:
    """The folder and those above it, each for its owner alone where it is new."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    _sync_folder(folder.parent)


def _make_file(path: Path) -> None:
    """An empty file; what an earlier one left beside it must not be taken for its own."""
    for ending in BESIDE:
        beside(path, ending).unlink(missing_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    _sync_folder(path.parent)


def _tighten(path: Path) -> None:
    """Take from others what they may do with the file; what is beside it is for the same people.

    SQLite gives those files the mode that the file has when they are made, and it may change.
    """
    if os.name != "posix":
        return
    mode = stat.S_IMODE(path.stat().st_mode) & 0o600
    for file in (path, *(beside(path, ending) for ending in BESIDE)):
        with contextlib.suppress(OSError):  # it is not there, or not ours
            if stat.S_IMODE(file.stat().st_mode) != mode:
                file.chmod(mode)


def _sync_folder(folder: Path) -> None:
    """Make a new name durable; where folders cannot be synced, they need not be."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _folder_locked(path: Path, wait: float) -> Generator[None]:
    """Alone in making or moving the file; other processes of ours wait, for a while."""
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
            time.sleep(_PAUSE)
        except OSError:
            return  # a file system without locks: as good as alone
        else:
            return


def _free_name(path: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    names = (f"{path.name}.damaged-{stamp}{more}" for more in ("", *(f".{n}" for n in range(999))))
    return next(one for name in names if not (one := path.with_name(name)).exists())


def _literal(name: str) -> str:
    """A name as a pattern that fits it alone."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
