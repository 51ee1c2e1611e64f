"""Why the store cannot do what it was asked to, as a type with a sentence for a person."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path
from typing import Literal

from ..errors import RespoolError

Why = Literal[
    "busy", "full", "read-only", "missing", "broken", "newer", "foreign", "closed", "failing"
]

_SAID: dict[Why, str] = {
    "busy": "another process has held it locked for too long",
    "full": "there is no space left for it",
    "read-only": "it cannot be written to",
    "missing": "there is no such file, or it cannot be opened",
    "broken": "it is damaged",
    "newer": "a newer version of respool has written it; update respool, or set RESPOOL_STORE to "
    "another",
    "foreign": "it is another program's file, not respool's; set RESPOOL_STORE to another file",
    "closed": "it was closed",
    "failing": "it cannot be read or written",
}
_BY_CODE: dict[int, Why] = {
    sqlite3.SQLITE_BUSY: "busy",
    sqlite3.SQLITE_LOCKED: "busy",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_READONLY: "read-only",
    sqlite3.SQLITE_PERM: "read-only",
    sqlite3.SQLITE_CANTOPEN: "missing",
    sqlite3.SQLITE_CORRUPT: "broken",
    sqlite3.SQLITE_NOTADB: "broken",
}
_BY_ERRNO: dict[int, Why] = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EROFS: "read-only",
    errno.EACCES: "read-only",
    errno.EPERM: "read-only",
}
_NO_SUCH = ("no such table", "no such column")  # the schema is not the one that was made


class StoreUnavailable(RespoolError):
    """The store cannot do this now; nothing that was asked for counts as kept."""

    def __init__(self, path: Path, reason: Why, detail: str = "") -> None:
        self.path = path
        self.reason: Why = reason
        self.detail = detail
        super().__init__(path, reason, detail)

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"The store {self.path} cannot be used: {_SAID[self.reason]}{detail}."


def reason_of(error: sqlite3.Error) -> Why:
    """What an error of SQLite's means for whoever asked."""
    code: int = getattr(error, "sqlite_errorcode", 0)  # the driver's own errors have none
    if code == sqlite3.SQLITE_READONLY_DBMOVED:
        return "missing"
    if any(said in str(error) for said in _NO_SUCH):
        return "broken"
    if code == 0 and isinstance(error, sqlite3.ProgrammingError):
        return "closed"
    return _BY_CODE.get(code & 0xFF, "failing")


def unavailable(path: Path, error: sqlite3.Error | OSError) -> StoreUnavailable:
    """The error that a caller sees for one of SQLite's or of the system's."""
    if isinstance(error, OSError):
        why = _BY_ERRNO.get(error.errno or 0, "missing")
        return StoreUnavailable(path, why, error.strerror or str(error))
    return StoreUnavailable(path, reason_of(error), str(error))
