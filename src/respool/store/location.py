"""Location of a store: a file on this machine, or a PostgreSQL database."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from ..config import STORE
from ..errors import PolicyError, describe_missing_package

if TYPE_CHECKING:
    from .retention import Retention
    from .sql_store import SQLStore

FILE_NAME = "respool.db"  # the default
LOCK_TIMEOUT = 2.0  # seconds; the longest wait for another process
_SCHEMES = ("postgresql://", "postgres://")


class ServerAddress(Struct, frozen=True):
    """The URL of a PostgreSQL database, shown without password and parameters.

    >>> ServerAddress("postgresql://team:secret@db.example:5433/respool?sslmode=require")
    postgresql://team@db.example:5433/respool
    """

    url: str

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        login, _, hosts = parts.netloc.rpartition("@")
        user = login.partition(":")[0]
        return f"postgresql://{user}{'@' if user else ''}{hosts}{parts.path}"

    def __repr__(self) -> str:
        return str(self)


StoreLocation = Path | ServerAddress


def parse_location(text: str) -> StoreLocation:
    """The location in an option: the path of a file, or a PostgreSQL URL."""
    if text.startswith(_SCHEMES):
        return ServerAddress(text)
    return Path(text)


def store_location(
    environ: Mapping[str, str] | None = None, home: Path | None = None
) -> StoreLocation:
    """Return the store in RESPOOL_STORE, or the platform's default file."""
    given = os.environ if environ is None else environ
    named = given.get(STORE, "").strip()
    return ServerAddress(named) if named.startswith(_SCHEMES) else store_path(given, home)


def store_path(environ: Mapping[str, str] | None = None, home: Path | None = None) -> Path:
    """Return the path in RESPOOL_STORE, or the platform's default."""
    given = os.environ if environ is None else environ
    named = given.get(STORE, "").strip()
    if not named:
        return _state_folder(given, home or Path.home()) / "respool" / FILE_NAME
    path = Path(named).expanduser()
    if not path.is_absolute():
        raise PolicyError(
            f"environment: {STORE}={named!r} is not allowed; allowed: the whole path of a file, or "
            "postgresql://…"
        )
    return path


def _state_folder(environ: Mapping[str, str], home: Path) -> Path:
    """Return the platform's folder for program state."""
    if sys.platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    if sys.platform == "darwin":
        return home / "Library" / "Application Support"
    state = Path(environ.get("XDG_STATE_HOME", ""))
    return state if state.is_absolute() else home / ".local" / "state"


def open_store(
    location: StoreLocation | None = None,
    *,
    retention: Retention | None = None,
    create: bool = True,
    wait: float = LOCK_TIMEOUT,
) -> SQLStore:
    """A store that opens at its first use; without a location, that of RESPOOL_STORE."""
    location = store_location() if location is None else location
    if isinstance(location, Path):
        from .sqlite import SQLiteStore  # lazily: it needs this module

        return SQLiteStore(location, retention=retention, create=create, wait=wait)
    try:
        from .postgres import PostgresStore  # lazily: the extra `postgres` has its driver
    except ImportError as error:
        from .base import StoreUnavailable  # lazily: it needs this module

        said = describe_missing_package("PostgreSQL", error, "postgres").rstrip(".")
        raise StoreUnavailable(location, "failing", said) from None
    return PostgresStore(location, retention=retention, create=create, wait=wait)
