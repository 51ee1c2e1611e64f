"""Where the store's file is, and how long what is in it stays."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from ..errors import PolicyError
from ..settings import STORE, STORE_DAYS, STORE_MEGABYTES

LIVE_DAYS = 3.0  # a conversation that went on this lately keeps all of its originals
_LEAST = 1
_MOST_DAYS = 36_500
_MOST_MEGABYTES = 10_000_000
_FILE = "respool.db"


class Retention(Struct, frozen=True):
    """How long a conversation stays after its last request, and how large all of them may be."""

    days: float = 30.0  # agents resume sessions of last week; hardly one of last month
    megabytes: float = 1_000.0  # a month of heavy use is a third of it

    def __post_init__(self) -> None:
        _check("days", self.days, _MOST_DAYS)
        _check("megabytes", self.megabytes, _MOST_MEGABYTES)

    @property
    def seconds(self) -> float:
        """The age at which a conversation goes."""
        return self.days * 86_400

    @property
    def live_seconds(self) -> float:
        """The age under which the limit of size cannot touch a conversation."""
        return min(self.days, LIVE_DAYS) * 86_400

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Retention:
        """What RESPOOL_STORE_DAYS and RESPOOL_STORE_MEGABYTES say; the defaults without them."""
        given = os.environ if environ is None else environ
        return cls(
            _number(given, STORE_DAYS, cls().days, _MOST_DAYS),
            _number(given, STORE_MEGABYTES, cls().megabytes, _MOST_MEGABYTES),
        )


def store_path(environ: Mapping[str, str] | None = None, home: Path | None = None) -> Path:
    """The file that RESPOOL_STORE names, or the usual one of this platform."""
    given = os.environ if environ is None else environ
    named = given.get(STORE, "").strip()
    if not named:
        return _folder(given, home or Path.home()) / "respool" / _FILE
    path = Path(named).expanduser()
    if not path.is_absolute():
        raise PolicyError(
            f"environment: {STORE}={named!r} is not allowed; allowed: the whole path of a file"
        )
    return path


def _folder(environ: Mapping[str, str], home: Path) -> Path:
    """Where programs of this platform keep their state."""
    if sys.platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    if sys.platform == "darwin":
        return home / "Library" / "Application Support"
    state = Path(environ.get("XDG_STATE_HOME", ""))
    return state if state.is_absolute() else home / ".local" / "state"


def _number(environ: Mapping[str, str], name: str, default: float, maximum: int) -> float:
    text = environ.get(name, "").strip()
    try:
        value = float(text) if text else default
    except ValueError:
        value = float("nan")  # which is in no range
    if not _LEAST <= value <= maximum:
        raise _refusal(f"environment: {name}={text!r}", maximum)
    return value


def _check(name: str, value: float, maximum: int) -> None:
    if not _LEAST <= value <= maximum:
        raise _refusal(f"Retention: {name}={value!r}", maximum)


def _refusal(what: str, maximum: int) -> PolicyError:
    return PolicyError(f"{what} is not allowed; allowed: a number from {_LEAST} to {maximum:,}")
