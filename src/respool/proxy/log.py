"""The log: a line for each request, and one for each warning. Nothing secret is in it.

A line is JSON, or on a terminal a sentence for a person.

A thread of its own writes the lines. A pipe that nobody reads, or a terminal that was stopped with
Ctrl-S, blocks all writers; no request waits for that.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import Any, Final, Literal

import msgspec

from ..pricing import Usage
from ..regex import lazy_compile
from .asgi import Request
from .auth import HIDDEN, hide_secrets, without_team_tokens
from .router import Operation

Outcome = Literal["complete", "client_closed", "upstream_closed", "unreachable", "retried"]
LoggedOutcome = Literal[
    "own_page", "rejected", "complete", "client_closed", "upstream_closed", "unreachable", "retried"
]

LogFormat = Literal["json", "text"]

_MAX_PATH_CHARS: Final = 200
_SHORT_NAME_CHARS: Final = 8  # of a conversation's name in a line for a person
_MAX_WAITING: Final = 10_000  # lines
_FLUSH_SECONDS: Final = 0.05
_CLOSE_SECONDS: Final = 1.0  # for the lines that wait at the end
_TRACEPARENT: Final = lazy_compile(rb"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_log = logging.getLogger(__name__)


class CompactionSummary(msgspec.Struct, omit_defaults=True):
    """The compaction of one request, in figures and codes; no text of the request is in it."""

    sent: str = ""  # `projection`, `known-edits`, `original`, `untouched` or `observed`
    operation: Operation = "generate"
    model: str = ""
    conversation: str = ""  # a hash
    tokens_before: int = 0  # estimated
    tokens_saved: int = 0
    new_edits: int = 0  # that no earlier request of the conversation had
    edits: dict[str, int] = {}  # in force, by reason
    epochs: int = 0  # so far
    refetched: int = 0  # of the latest results, those that bring again what was taken out
    results: int = 0  # tool results in the history
    waiting_offers: int = 0  # that wait until they pay
    waiting_tokens: int = 0  # that those would save
    fallback: str = ""  # the code of the reason why no projection was sent
    why: str = ""  # that reason in words, if it cannot quote the request
    retry: str = ""  # the code of the reason why it was sent a second time
    compaction_ms: float = 0.0
    response_model: str = ""
    stop_reason: str = ""  # the provider's own word
    usage: Usage | None = None


class LogEntry(msgspec.Struct, omit_defaults=True):
    """The log line of one request, completed as the request proceeds."""

    time: float  # seconds since 1970
    method: str
    path: str  # without its query, which may hold a key
    outcome: LoggedOutcome
    format: str | None = None
    upstream: str | None = None
    status: int | None = None
    first_byte_ms: float | None = None
    duration_ms: float = 0.0
    bytes_up: int = 0  # of the body that was sent upstream
    bytes_down: int = 0
    note: str | None = None
    team: str | None = None  # whose token the request brought
    traceparent: str | None = None  # the client's own
    compaction: CompactionSummary | None = None  # if the body was read
    started: float = 0.0  # by the performance counter; cleared at the end, so it is not logged


Log = Callable[[LogEntry], None]


def entry_for(request: Request, token: str | None = None) -> LogEntry:
    """A log entry that starts now; the token of the proxy is not in it."""
    given = request.named.get(b"traceparent", b"")
    return LogEntry(
        time=time.time(),
        method=request.method,
        path=hide_secrets(request.path, token)[:_MAX_PATH_CHARS],
        outcome="own_page",
        traceparent=given.decode("ascii") if _TRACEPARENT.fullmatch(given) else None,
        started=time.perf_counter(),
    )


def elapsed_ms(entry: LogEntry) -> float:
    """Milliseconds since the start of an entry."""
    return round((time.perf_counter() - entry.started) * 1000, 2)


def finish(entry: LogEntry) -> None:
    """Set the duration of an entry."""
    entry.duration_ms, entry.started = elapsed_ms(entry), 0.0


def json_line(value: object) -> str:
    """A value as one line of JSON, in which no character controls a terminal.

    JSON itself allows C1 controls, bidirectional controls and invisible characters; here they are
    escaped, and read back as they were.
    """
    return _printable(msgspec.json.encode(value).decode())


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def text_line(entry: LogEntry) -> str:
    """An entry as a line for a person, in which no character controls a terminal."""
    done, took = entry.compaction, f"{entry.duration_ms / 1e3:.1f} s"
    what = f"{entry.method} {entry.path}"
    if done is not None and done.model:
        what = f"{'count for ' if done.operation == 'count' else ''}{done.model}"
    words = [
        what,
        _status_text(entry),
        *([] if done is None else _compaction_texts(done)),
        *([entry.note] if entry.note else []),
        took,
    ]
    if done is not None and done.conversation:
        words.append(f"conversation {done.conversation[:_SHORT_NAME_CHARS]}")
    return f"{_clock(entry.time)} {_printable('; '.join(words))}"


def _status_text(entry: LogEntry) -> str:
    ends = {
        "client_closed": "the client closed the connection",
        "upstream_closed": "the upstream closed the connection",
        "unreachable": "no answer",
        "rejected": "refused by respool",
    }
    said = ends.get(entry.outcome, "")
    status = "" if entry.status is None else f"{entry.status}"
    return " ".join(word for word in (status, said) if word) or entry.outcome


def _compaction_texts(done: CompactionSummary) -> list[str]:
    """Tokens and savings of a request, and what stood in the way."""
    found: list[str] = []
    if done.tokens_before:
        would = "would be saved" if done.sent == "observed" else "saved"
        share = round(100 * done.tokens_saved / done.tokens_before)
        found.append(f"{done.tokens_before:,} tokens, {share} % {would}")
    if done.new_edits:
        found.append(f"{done.new_edits:,} new edit{'' if done.new_edits == 1 else 's'}")
    if done.fallback:
        went = "with the edits in force" if done.sent == "known-edits" else "as it came"
        why = f": {done.why.rstrip('.')}" if done.why else ""
        found.append(f"sent {went} ({done.fallback.replace('-', ' ')}{why})")
    if done.retry:
        found.append(f"sent again ({done.retry})")
    return found


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def is_polling(entry: LogEntry) -> bool:
    """True for reads of respool's own pages: the dashboard, health checks, metrics."""
    return entry.outcome == "own_page" and entry.method in ("GET", "HEAD") and not entry.note


def log_to(writer: LineWriter) -> Log:
    """A log that writes each entry as a line in the writer's format, without polling."""
    line_of: Callable[[LogEntry], str] = text_line if writer.format == "text" else json_line

    def log(entry: LogEntry) -> None:
        if not is_polling(entry):
            writer.write(line_of(entry))

    return log


def log_to_all(*logs: Log) -> Log:
    """A log that passes entries to several; one that fails does not affect the others."""

    def log_all(entry: LogEntry) -> None:
        for log in logs:
            try:
                log(entry)
            except Exception:  # noqa: BLE001 - law 9: logging breaks nothing
                _log.exception("A request could not be logged")

    return log_all


def log_nothing(_entry: LogEntry) -> None:
    """Discard an entry."""


# --- warnings and errors -----------------------------------------------------------------------


class JSONFormatter(logging.Formatter):
    """Formats a warning or an error as one line of JSON.

    An exception is logged by its type and traceback. Its message may quote a request.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            line["error"] = type(error).__name__
            line["traceback"] = [
                f"{frame.filename}:{frame.lineno} {frame.name}"
                for frame in traceback.extract_tb(error.__traceback__)
            ]
        return json_line(line)


class TextFormatter(logging.Formatter):
    """Formats a warning or an error as one line for a person.

    An exception is named by its type and place. Its message may quote a request.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        said = f"{record.levelname.lower()}: {record.getMessage()}"
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            frames = traceback.extract_tb(error.__traceback__)
            place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
            said = f"{said} ({type(error).__name__}{place})"
        return f"{_clock(record.created)} {_printable(said)}"


class _LineHandler(logging.Handler):
    """Passes lines to a writer."""

    def __init__(self, writer: LineWriter) -> None:
        super().__init__()
        self._writer = writer
        self.setFormatter(TextFormatter() if writer.format == "text" else JSONFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Write one more line."""
        self._writer.write(self.format(record))


def log_warnings_to(writer: LineWriter) -> None:
    """Write all warnings and errors of this process as lines in the writer's format."""
    root = logging.getLogger()
    root.handlers[:] = [_LineHandler(writer)]
    root.setLevel(logging.WARNING)


# --- the writer --------------------------------------------------------------------------------


class LineWriter:
    """Writes lines in order from a thread of its own; never waits and never raises.

    The token of the proxy and those of teams are hidden everywhere in a line.
    """

    def __init__(
        self,
        descriptor: int | None,
        max_waiting: int = _MAX_WAITING,
        *,
        token: str | None = None,
        format: LogFormat = "json",
    ) -> None:
        self.format: LogFormat = format
        self._descriptor = descriptor
        self._token = token
        self._max_waiting = max_waiting
        self._waiting: deque[str] = deque()
        self._dropped = 0
        self._stopping = Event()
        self._lock = Lock()
        self._thread: Thread | None = None

    def write(self, line: str) -> None:
        """Write a line soon; if too many wait already, drop and count it."""
        if self._descriptor is None:
            return
        if len(self._waiting) >= self._max_waiting:
            self._dropped += 1
            return
        line = line if self._token is None else line.replace(self._token, HIDDEN)
        self._waiting.append(without_team_tokens(line))
        if self._thread is None:
            self._start()

    def close(self, timeout: float = _CLOSE_SECONDS) -> None:
        """Write the lines that wait, within the timeout."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = Thread(target=self._run, name="respool-log", daemon=True)
                self._thread.start()
                atexit.register(self.close)

    def _run(self) -> None:
        while not self._stopping.wait(_FLUSH_SECONDS):
            self._write_all()
        self._write_all()

    def _write_all(self) -> None:
        while self._waiting:
            self._write(self._waiting.popleft())
            if self._dropped and not self._waiting:
                count, self._dropped = self._dropped, 0
                self._write(_dropped_line(count, self.format))

    def _write(self, line: str) -> None:
        """Write a whole line, so that it does not mix with those of other writers."""
        assert self._descriptor is not None, "else no line is accepted"
        left = memoryview(line.encode("utf-8", "backslashreplace") + b"\n")
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:  # the descriptor was set to non-blocking
                time.sleep(_FLUSH_SECONDS)
            except OSError:
                return  # nobody reads any more


def standard_error() -> int | None:
    """The descriptor of standard error; None if it is closed, as its number may be reused."""
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return None


def default_format() -> LogFormat:
    """Lines for a person if standard error is a terminal, else JSON."""
    descriptor = standard_error()
    return "text" if descriptor is not None and os.isatty(descriptor) else "json"


def _dropped_line(count: int, format: LogFormat) -> str:
    message = f"{count:,} lines were dropped here because nobody read the ones before them."
    now = round(time.time(), 3)
    if format == "text":
        return f"{_clock(now)} warning: {message}"
    line = {"time": now, "level": "warning", "logger": __name__, "message": message}
    return json_line(line)
