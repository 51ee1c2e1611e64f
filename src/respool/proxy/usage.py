"""Usage, model and stop reason of a response, read as its chunks pass.

Chunks may be cut anywhere. A response is one JSON value, an array of them, or a stream of events
with one value each: server-sent events, or AWS's frames. A few members of each value are extracted
and the rest is skipped, so that a long response needs no more memory than a short one.
"""

from __future__ import annotations

import re
from asyncio import timeout, wrap_future
from base64 import b64decode
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from threading import Lock
from typing import Final, cast

import msgspec
from msgspec import Struct

from ..engine import FormatName
from ..errors import MAX_VALUE
from ..pricing import Usage
from ..regex import lazy_compile
from ..sessions.session import (
    anthropic_usage,
    chat_usage,
    gemini_usage,
    responses_usage,
    text_at,
    token_count,
    usage_or_none,
)
from ..wire.json import JSON, Object
from .decoders import SLICE, THREAD, EventStreamDecoder, LenientDecoder

FRAMED_TYPE: Final = b"application/vnd.amazon.eventstream"
MAX_VALUE_BYTES: Final = 64 * 1024  # of a value that is held; a longer one is scanned as it passes
MAX_WAITING_BYTES: Final = 4 * 1024 * 1024  # of a compressed response that is not read yet

_SETTLE_SECONDS = 1.0  # for reading the rest of a response that the client has received
_MAX_COUNTS = 64  # numbers of one usage that are kept; providers report about ten
_MAX_NAME_CHARS = 200  # of a model or a stop reason


# --- the scanner -------------------------------------------------------------------------------

MAX_MEMBER_BYTES: Final = 64 * 1024  # of a member that is extracted; a usage has some hundred

_MAX_DEPTH = 16  # containers on the way to a member; the longest path has three
_MAX_SKIPPED = 1_000  # containers within one another that are skipped; more are no response

Path = tuple[str, ...]  # the keys on the way to a member; arrays do not count


class Selection(Struct, frozen=True):
    """The members to extract, and the containers on the way to them."""

    paths: frozenset[Path]
    parents: frozenset[Path]


# All parts of these patterns are possessive: none can backtrack.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_STRING_REST = lazy_compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_FLAT = rb'(?:[^"{}\[\]]++|' + _STRING + rb")*+"  # no bracket and no open string
_SKIPPED = lazy_compile(  # the same, and containers without inner ones
    rb'(?:[^"{}\[\]]++|' + _STRING + rb"|[{\[]" + _FLAT + rb"[}\]])*+", re.DOTALL
)
_PLAIN = lazy_compile(rb'[^"{}\[\],]*+')


def _take_nothing(_found: Mapping[Path, JSON]) -> None:
    """Take no value."""


class ValueScanner:
    """Extracts a few members of JSON values that follow one another, and skips the rest.

    An array is transparent: its elements have the path of the array itself.
    """

    def __init__(self, selection: Selection, take: Callable[[Mapping[Path, JSON]], None]) -> None:
        self._paths, self._parents = selection.paths, selection.parents
        self._take = take
        self._found: dict[Path, JSON] = {}
        self._is_lost = False  # nothing more is scanned
        self._reset()

    def close(self) -> None:
        """Let go of the function that takes values, which may refer back to this object."""
        self._take = _take_nothing

    @property
    def is_idle(self) -> bool:
        """True if no value is open."""
        return not self._open and not self._depth and not self._in_string

    def scan_value(self, data: bytes) -> None:
        """Scan one complete value; if it is one, that is faster than `feed`."""
        value = _decoded(data) if self.is_idle else None
        if not isinstance(value, dict):
            self.feed(data)
            return
        self._extract(cast(Object, value), ())
        self._give()

    def _extract(self, value: JSON, path: Path, depth: int = 0) -> None:
        if path in self._paths:
            if isinstance(value, str | dict | list):
                self._found[path] = value
        elif isinstance(value, dict) and path in self._parents:
            for key, inner in cast(Object, value).items():
                inside = (*path, key)
                if inside in self._paths or inside in self._parents:
                    self._extract(inner, inside, depth + 1)
        elif isinstance(value, list) and path in self._parents and depth < _MAX_DEPTH:
            for inner in cast(list[JSON], value):
                self._extract(inner, path, depth + 1)

    def feed(self, data: bytes) -> None:
        """Scan the next bytes."""
        at = 0
        while at < len(data) and not self._is_lost:
            start = at
            held, self._closed = self._held, False
            if self._in_string:
                at = self._string(data, at)
            elif self._depth:
                at = self._skip(data, at)
            else:
                at = self._next(data, at)
            if held is not None:
                held += data[start:at]
                if len(held) > MAX_MEMBER_BYTES:
                    self._held = None
            if self._closed:
                self._close()

    def finish(self) -> None:
        """The open value ends here; its members so far count."""
        self._give()
        self._reset()

    def _reset(self) -> None:
        self._open: list[str | None] = []  # the key of each container on the way; None: an array
        self._depth: int = 0  # of skipped containers
        self._in_string = self._escaped = False
        self._is_key = False  # the open string is a key
        self._awaits_key = False
        self._closed = False  # a member or a key has just ended
        self._held: bytearray | None = None  # the bytes of the member

    def _give(self) -> None:
        if self._found:
            found, self._found = self._found, {}
            self._take(found)

    @property
    def _path(self) -> Path:
        return tuple(key for key in self._open if key is not None)

    def _string(self, data: bytes, at: int) -> int:
        """The rest of a string, as far as it has come."""
        if self._escaped:
            self._escaped = False
            at += 1
        found = _STRING_REST.match(data, at)
        at = found.end() if found else at
        if at == len(data):
            return at
        if data[at] == 0x5C:  # a backslash at the very end of what is there
            self._escaped = True
        else:
            self._in_string = False
            self._closed = not self._depth
        return at + 1

    def _skip(self, data: bytes, at: int) -> int:
        """Skip a container without members to extract."""
        depth: int = self._depth
        while depth:
            found = _SKIPPED.match(data, at)
            at = found.end() if found else at
            if at == len(data):
                break
            byte, at = data[at], at + 1
            if byte == 0x22:
                self._in_string = True
                break
            depth += 1 if byte in b"{[" else -1
            if depth > _MAX_SKIPPED:
                self._is_lost = True
                at = len(data)
                break
        self._depth = depth
        self._closed = not depth
        return at

    def _next(self, data: bytes, at: int) -> int:
        """Go to the next string or bracket in a container on the way, or between values."""
        found = _PLAIN.match(data, at)
        at = found.end() if found else at
        if at == len(data):
            return at
        byte = data[at]
        if byte == 0x22:
            self._in_string = True
            self._is_key = self._awaits_key
            if self._is_key or self._path in self._paths:
                self._held = bytearray(b'"')
        elif byte in b"{[":
            self._open_container(byte)
        elif byte in b"}]":
            self._leave()
        else:
            self._awaits_key = bool(self._open) and self._open[-1] is not None
        return at + 1

    def _open_container(self, byte: int) -> None:
        path = self._path
        if path in self._parents and len(self._open) < _MAX_DEPTH:
            self._awaits_key = byte == 0x7B
            self._open.append("" if self._awaits_key else None)
            return
        self._depth = 1
        if path in self._paths:
            self._held = bytearray((byte,))

    def _leave(self) -> None:
        if self._open:
            self._open.pop()
        self._awaits_key = False
        if all(key is None for key in self._open):
            self._give()

    def _close(self) -> None:
        """A string or a container has ended."""
        held, self._held = self._held, None
        value = _decoded(held) if held is not None else None
        if self._is_key:
            self._is_key = self._awaits_key = False
            self._open[-1] = value if isinstance(value, str) else ""
        elif value is not None:
            self._found[self._path] = value


def _decoded(raw: bytes | bytearray) -> JSON:
    """A JSON value; None if it is malformed."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


# --- the response ------------------------------------------------------------------------------


class ResponseInfo(Struct, frozen=True):
    """Usage, model, stop reason and error that a response reports."""

    usage: Usage | None = None
    model: str | None = None  # that responded
    stop_reason: str | None = None  # the provider's own word
    error: str | None = None  # the type of an error, if the stream ended with one


class ResponseReader:
    """Reads one response as it passes; never raises, on any bytes."""

    def __init__(self, format: FormatName, encoding: str = "", *, is_framed: bool = False) -> None:
        self._paths = _PATHS[format]
        self._decoder = LenientDecoder(encoding) if encoding else None
        self._values = ValueScanner(_SELECTIONS[format], self._take)
        self._events: _EventStream | _FrameStream | None = (
            _FrameStream(self._values) if is_framed else None
        )
        self._started = is_framed
        self._body: bytearray | None = bytearray()  # None: too large to be held
        self._usage: Object = {}
        self._model: str | None = None
        self._stop_reason: str | None = None
        self._error: str | None = None

    def feed(self, chunk: bytes) -> None:
        """Read the next bytes, as they came from the provider."""
        for piece in (chunk,) if self._decoder is None else self._decoder.feed(chunk):
            self._read(piece)

    def steps(self, chunk: bytes) -> Iterator[int]:
        """Read the next bytes step by step; each step gives the decoded bytes that it read."""
        for piece in (chunk,) if self._decoder is None else self._decoder.feed(chunk):
            self._read(piece)
            yield len(piece)

    async def settle(self) -> None:
        """Wait until all that was fed is read, which it is."""

    def close(self) -> None:
        """Drop the decoder: garbage that refers to itself may stay for long."""
        if self._decoder is not None:
            self._decoder.close()

    def finish(self) -> ResponseInfo:
        """The response ends here, or is cut off."""
        self.close()
        if self._events is not None:
            self._events.finish()
        elif self._body:
            self._values.scan_value(bytes(self._body))
        self._values.finish()
        self._values.close()
        usage = usage_or_none(self._paths.usage(self._usage))
        sane = usage is not None and usage.prompt <= MAX_VALUE and usage.output <= MAX_VALUE
        return ResponseInfo(usage if sane else None, self._model, self._stop_reason, self._error)

    def _read(self, piece: bytes) -> None:
        if not self._started:
            piece = piece.lstrip(b"\xef\xbb\xbf \t\r\n")
            if not piece:
                return
            self._started = True
            if piece[:1] not in b"{[":
                self._events = _EventStream(self._values)
        if self._events is not None:
            self._events.feed(piece)
        elif self._body is None:
            self._values.feed(piece)
        else:
            self._body += piece
            if len(self._body) > MAX_VALUE_BYTES:
                self._values.feed(bytes(self._body))
                self._body = None

    def _take(self, found: Mapping[Path, JSON]) -> None:
        """Take the members of one value; later values replace earlier ones."""
        paths = self._paths
        for path in paths.usages:
            self._usage = _merged(self._usage, found.get(path))
        self._model = self._model or _first(found, paths.models)
        self._stop_reason = _first(found, paths.stop_reasons) or self._stop_reason
        self._error = _error_in(found, paths.errors) or self._error


class ThreadedReader:
    """Reads a compressed response in the decoders' thread; nothing waits for it while it passes.

    A response that comes faster than it can be decoded is given up: it is a bomb, or too large.
    """

    def __init__(self, format: FormatName, encoding: str, *, is_framed: bool = False) -> None:
        self._reader = ResponseReader(format, encoding, is_framed=is_framed)
        self._lock = Lock()  # of what follows; it is never held while something is decoded
        self._chunks: deque[bytes] = deque()
        self._waiting = 0  # bytes of them
        self._is_reading = False  # the thread has it
        self._is_given_up = False
        self._steps: Iterator[int] = iter(())  # of the current chunk; only the thread uses it
        self._settled: Future[None] | None = None

    def feed(self, chunk: bytes) -> None:
        """Read the next bytes soon."""
        with self._lock:
            self._waiting += len(chunk)
            if self._waiting > MAX_WAITING_BYTES:
                self._is_given_up = True
            if self._is_given_up:
                self._chunks.clear()
                return
            self._chunks.append(chunk)
            if self._is_reading:
                return
            self._is_reading = True
        THREAD.add(self._step)

    async def settle(self) -> None:
        """Wait until all that was fed is read, but not for long."""
        with self._lock:
            if not self._is_reading:
                return
            self._settled = settled = Future[None]()
        with suppress(TimeoutError):
            async with timeout(_SETTLE_SECONDS):
                await wrap_future(settled)

    def finish(self) -> ResponseInfo:
        """The response ends here; without what it says if it is not read by now."""
        with self._lock:
            if self._is_reading:
                self._is_given_up = True  # the thread closes it
                self._chunks.clear()
                return ResponseInfo()
        told = self._reader.finish()
        return ResponseInfo() if self._is_given_up else told

    def _step(self) -> bool:
        """Read one slice, in the thread; True: there is more."""
        size = 0
        while size < SLICE:
            made = None if self._is_given_up else next(self._steps, None)
            if made is not None:
                size += made
            elif not self._take_chunk():
                return False
        return True

    def _take_chunk(self) -> bool:
        with self._lock:
            if self._chunks and not self._is_given_up:
                chunk = self._chunks.popleft()
                self._waiting -= len(chunk)
                self._steps = self._reader.steps(chunk)
                return True
            self._is_reading = False
            self._steps = iter(())
            if self._is_given_up:
                self._reader.close()
            settled, self._settled = self._settled, None
        if settled is not None:
            with suppress(InvalidStateError):  # nobody waits any more
                settled.set_result(None)
        return False


def reader_for(
    format: FormatName, encoding: str, *, is_framed: bool = False
) -> ResponseReader | ThreadedReader:
    """The reader of a response with this content-encoding; empty: it has none."""
    if encoding:
        return ThreadedReader(format, encoding, is_framed=is_framed)
    return ResponseReader(format, is_framed=is_framed)


def _merged(known: Object, usage: JSON, nested: bool = True) -> Object:
    """Both usages; the later number counts unless it is zero."""
    merged = dict(known)
    for name, value in cast(Object, usage).items() if isinstance(usage, dict) else ():
        if name not in merged and len(merged) >= _MAX_COUNTS:
            continue
        if isinstance(value, int) and (value or name not in merged):
            merged[name] = value
        elif isinstance(value, dict) and nested:
            before = merged.get(name)
            held = cast(Object, before) if isinstance(before, dict) else {}
            merged[name] = _merged(held, cast(Object, value), nested=False)
    return merged


def _first(found: Mapping[Path, JSON], paths: tuple[Path, ...]) -> str | None:
    """The first of these members that is a name."""
    for path in paths:
        value = found.get(path)
        if isinstance(value, str) and 0 < len(value) <= _MAX_NAME_CHARS:
            return value
    return None


def _error_in(found: Mapping[Path, JSON], paths: tuple[Path, ...]) -> str | None:
    """The type of the error in a value, or of an error event."""
    for path in paths:
        error = found.get(path)
        if error:
            names = (text_at(error, name) for name in ("code", "type", "status"))
            return next((name[:_MAX_NAME_CHARS] for name in names if name), "error")
    if found.get(("type",)) == "error":
        return _first(found, (("code",),)) or "error"
    return None


# --- the members by format ---------------------------------------------------------------------


class _Paths(Struct, frozen=True):
    """The paths of the members in one format, in order of precedence."""

    usage: Callable[[JSON], Usage]
    usages: tuple[Path, ...]
    models: tuple[Path, ...]
    stop_reasons: tuple[Path, ...]
    errors: tuple[Path, ...] = (("error",),)
    others: tuple[Path, ...] = ()

    def selection(self) -> Selection:
        """All members to extract."""
        paths = (*self.usages, *self.models, *self.stop_reasons, *self.errors, *self.others)
        parents = (path[:count] for path in paths for count in range(len(path)))
        return Selection(frozenset(paths), frozenset(parents))


_BEDROCK_METRICS: Final = "amazon-bedrock-invocationMetrics"  # in the last event


def _anthropic_usage(found: JSON) -> Usage:
    """Anthropic's own usage, or else Bedrock's count of it."""
    usage = anthropic_usage(found)
    if usage.prompt:
        return usage
    return Usage(
        input=token_count(found, "inputTokenCount"),
        cache_read=token_count(found, "cacheReadInputTokenCount"),
        cache_write=token_count(found, "cacheWriteInputTokenCount"),
        output=usage.output or token_count(found, "outputTokenCount"),
    )


_PATHS: dict[FormatName, _Paths] = {
    # The stream's first event has the prompt, its last ones have totals that grow.
    "anthropic": _Paths(
        _anthropic_usage,
        usages=((_BEDROCK_METRICS,), ("message", "usage"), ("usage",)),
        models=(("message", "model"), ("model",)),
        stop_reasons=(("delta", "stop_reason"), ("message", "stop_reason"), ("stop_reason",)),
    ),
    # The last chunk has the usage if the request asked for it; Moonshot has it in the choice.
    "openai-chat": _Paths(
        chat_usage,
        usages=(("choices", "usage"), ("usage",)),
        models=(("model",),),
        stop_reasons=(("choices", "finish_reason"),),
    ),
    # Events hold the response; an error event may hold the error's members itself.
    "openai-responses": _Paths(
        responses_usage,
        usages=(("response", "usage"), ("usage",)),
        models=(("response", "model"), ("model",)),
        stop_reasons=(
            ("response", "incomplete_details", "reason"),
            ("incomplete_details", "reason"),
            ("response", "status"),
            ("status",),
        ),
        errors=(("response", "error"), ("error",)),
        others=(("type",), ("code",)),
    ),
    "gemini": _Paths(
        gemini_usage,
        usages=(("usageMetadata",),),
        models=(("modelVersion",),),
        stop_reasons=(("candidates", "finishReason"), ("promptFeedback", "blockReason")),
    ),
}
_SELECTIONS = {format: paths.selection() for format, paths in _PATHS.items()}

# Events without any of these members are skipped. In a text the quotes would be escaped.
_RELEVANT = lazy_compile(
    rb'"(?:usage|usageMetadata|error|stop_reason|finish_reason|finishReason|blockReason'
    rb'|amazon-bedrock-invocationMetrics)"'
    rb'\s*+:\s*+["{]|"type"\s*+:\s*+"error"'
)


# --- events ------------------------------------------------------------------------------------

_END = lazy_compile(rb"[\r\n]")


class _EventStream:
    """Server-sent events, whose data lines are passed to a scanner."""

    def __init__(self, values: ValueScanner) -> None:
        self._values = values
        self._line = bytearray()
        self._is_long = False  # the line is too long to be held
        self._is_data = False  # of such a line
        self._after_return = False  # the last byte was a carriage return

    def feed(self, data: bytes) -> None:
        """Read the next bytes of the stream."""
        at = 0
        if self._after_return and data[:1] == b"\n":
            at = 1
        while (found := _END.search(data, at)) is not None:
            self._add(data[at : found.start()])
            self._end_line()
            at = found.end()
            if found[0] == b"\r" and data[at : at + 1] == b"\n":
                at += 1
        self._after_return = data.endswith(b"\r")
        self._add(data[at:])

    def finish(self) -> None:
        """The stream ends here, within a line or after one."""
        if self._line or self._is_long:
            self._end_line()

    def _add(self, piece: bytes) -> None:
        if self._is_long:
            if self._is_data:
                self._values.feed(piece)
            return
        self._line += piece
        if len(self._line) > MAX_VALUE_BYTES:
            self._is_long = True
            self._is_data = self._line.startswith(b"data:")
            if self._is_data:
                self._values.feed(bytes(self._line[5:]))
            self._line.clear()

    def _end_line(self) -> None:
        if self._is_long:
            self._is_long = False
        elif not self._line:
            self._values.finish()  # a blank line ends an event, and a value that it left open
        elif self._line.startswith(b"data:"):
            payload = bytes(self._line[5:]).strip()
            is_object = self._values.is_idle and payload[:1] == b"{" and payload[-1:] == b"}"
            if not is_object:
                self._values.feed(payload + b"\n")
            elif _RELEVANT.search(payload):
                self._values.scan_value(payload)
        self._line.clear()


class _FramedChunk(Struct):
    """The payload of a frame: one event of the model, in base64."""

    bytes: str = ""


class _FrameStream:
    """Frames of AWS, whose events are passed to a scanner."""

    def __init__(self, values: ValueScanner) -> None:
        self._values = values
        self._decoder = EventStreamDecoder()
        self._chunks = msgspec.json.Decoder(_FramedChunk)

    def feed(self, data: bytes) -> None:
        """Read the next bytes of the stream."""
        for headers, payload in self._decoder.feed(data):
            kind = headers.get(":exception-type") or headers.get(":error-code")
            if kind:
                self._values.scan_value(msgspec.json.encode({"error": {"type": kind}}))
                continue
            with suppress(msgspec.MsgspecError, ValueError, RecursionError):
                event = b64decode(self._chunks.decode(payload).bytes)
                if _RELEVANT.search(event):
                    self._values.scan_value(event)
                    self._values.finish()

    def finish(self) -> None:
        """The stream ends here; a frame that is not complete does not count."""
