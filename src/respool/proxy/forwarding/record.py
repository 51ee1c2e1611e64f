"""One line for each request: what it was, where it went, how it ended. Nothing secret."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

import msgspec

from .asgi import Request
from .handling import About
from .printing import Printer

_LONGEST = 200  # characters of a path
_TRACE = re.compile(rb"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_log = logging.getLogger(__name__)


class Record(msgspec.Struct, omit_defaults=True):
    """What is known of one request. Filled in as it goes on."""

    at: float  # seconds since 1970
    method: str
    path: str  # without its query, which may hold a key
    how: str  # `own`, `refused`, or how the exchange with upstream ended
    format: str | None = None
    upstream: str | None = None
    status: int | None = None
    first_ms: float | None = None  # until the client was given the first bytes
    ms: float = 0.0
    up: int = 0  # bytes of the body that went up
    down: int = 0
    note: str | None = None
    worker: int = 0  # which of several processes; 0: there is one
    trace: str | None = None  # the client's own `traceparent`
    respool: About | None = None  # what was done about it, where it was looked at
    began: float = 0.0  # by a clock that nobody sets; put back at the end, so it is not told


Log = Callable[[Record], None]


def record_of(request: Request) -> Record:
    """A record that begins now."""
    given = request.named.get(b"traceparent", b"")
    trace = given.decode("ascii") if _TRACE.fullmatch(given) else None
    path = request.path[:_LONGEST]
    now = time.perf_counter()
    return Record(time.time(), request.method, path, "own", trace=trace, began=now)


def ms_since(record: Record) -> float:
    """Milliseconds since a record began, whatever became of the time of day meanwhile."""
    return round((time.perf_counter() - record.began) * 1000, 2)


def end(record: Record) -> None:
    """A record is whole: how long it took is all that is told of its clock."""
    record.ms, record.began = ms_since(record), 0.0


def to_lines(printer: Printer) -> Log:
    """Have each record printed as one line of JSON."""

    def told(record: Record) -> None:
        printer.print(msgspec.json.encode(record).decode())

    return told


def to_all(*logs: Log) -> Log:
    """Tell several; one that fails keeps nothing from the others, nor from the client."""

    def told(record: Record) -> None:
        for log in logs:
            try:
                log(record)
            except Exception:  # noqa: BLE001 - law 9: who is told breaks nothing
                _log.exception("A request could not be told of")

    return told


def to_nowhere(_record: Record) -> None:
    """Forget a record."""
