"""What an answer tells of itself on its way down: its usage, its model, how it ended.

Bytes are read as they pass, wherever they are cut. An answer is one JSON value, an array of them,
or a stream of events that hold one each; whichever it is, a few members of each value are picked
out of it and the rest is passed over, so that a long answer needs no more memory than a short one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, cast

from msgspec import Struct

from ...errors import MAX_VALUE
from ...pricing import Usage
from ...sessions.session import (
    anthropic_usage,
    chat_usage,
    gemini_usage,
    responses_usage,
    text_at,
    usage_or_none,
)
from ...wire.base import FormatName
from ...wire.json import JSON, Object
from .picking import Path, Values, Wanted
from .unpacking import Unpacking

LONGEST_HELD: Final = 64 * 1024  # bytes of a value that are held; a longer one is read in passing

_MOST_COUNTS = 64  # numbers of one usage that are kept: providers report about ten
_LONGEST_NAME = 200  # characters of a model's name, or of the word for how an answer ended


class Told(Struct, frozen=True):
    """What an answer told of itself."""

    usage: Usage | None = None  # None: it reported none
    model: str | None = None  # the model that answered
    stop: str | None = None  # why it ended, in the provider's word; None: it did not say
    error: str | None = None  # the type of an error, where the answer turned into one


class UsageReader:
    """Reads one answer as it passes; never raises, whatever comes."""

    def __init__(self, format: FormatName, encoding: str = "") -> None:
        self._words = _WORDS[format]
        self._unpacking = Unpacking(encoding)
        self._values = Values(_WANTED[format], self._take)
        self._events: _Events | None = None
        self._begun = False
        self._body: bytearray | None = bytearray()  # None: too long to be held
        self._usage: Object = {}
        self._model: str | None = None
        self._stop: str | None = None
        self._error: str | None = None

    def feed(self, chunk: bytes) -> None:
        """The next bytes of the answer, as they came from the provider."""
        for piece in self._unpacking.feed(chunk):
            self._read(piece)

    def end(self) -> Told:
        """The answer stops here, or is cut off: what it told."""
        if self._events is not None:
            self._events.end()
        elif self._body:
            self._values.whole(bytes(self._body))
        self._values.end()
        usage = usage_or_none(self._words.usage(self._usage))
        sane = usage is not None and usage.prompt <= MAX_VALUE and usage.output <= MAX_VALUE
        return Told(usage if sane else None, self._model, self._stop, self._error)

    def _read(self, piece: bytes) -> None:
        if not self._begun:
            piece = piece.lstrip(b"\xef\xbb\xbf \t\r\n")
            if not piece:
                return
            self._begun = True
            if piece[:1] not in b"{[":
                self._events = _Events(self._values)
        if self._events is not None:
            self._events.feed(piece)
        elif self._body is None:
            self._values.feed(piece)
        else:
            self._body += piece
            if len(self._body) > LONGEST_HELD:
                self._values.feed(bytes(self._body))
                self._body = None

    def _take(self, found: Mapping[Path, JSON]) -> None:
        """Learn from the members of one whole value; later ones know better."""
        words = self._words
        for path in words.usages:
            self._usage = _newer(self._usage, found.get(path))
        self._model = self._model or _first(found, words.models)
        self._stop = _first(found, words.stops) or self._stop
        self._error = _error_in(found, words.errors) or self._error


def _newer(known: Object, usage: JSON, nested: bool = True) -> Object:
    """Both together; a number that came later counts, unless it is zero."""
    merged = dict(known)
    for name, value in cast(Object, usage).items() if isinstance(usage, dict) else ():
        if name not in merged and len(merged) >= _MOST_COUNTS:
            continue
        if isinstance(value, int) and (value or name not in merged):
            merged[name] = value
        elif isinstance(value, dict) and nested:
            before = merged.get(name)
            held = cast(Object, before) if isinstance(before, dict) else {}
            merged[name] = _newer(held, cast(Object, value), nested=False)
    return merged


def _first(found: Mapping[Path, JSON], paths: tuple[Path, ...]) -> str | None:
    """The first of these members that is a word."""
    for path in paths:
        value = found.get(path)
        if isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME:
            return value
    return None


def _error_in(found: Mapping[Path, JSON], paths: tuple[Path, ...]) -> str | None:
    """The type of the error that a value is, or tells of."""
    for path in paths:
        error = found.get(path)
        if error:
            names = (text_at(error, name) for name in ("code", "type", "status"))
            return next((name[:_LONGEST_NAME] for name in names if name), "error")
    if found.get(("type",)) == "error":
        return _first(found, (("code",),)) or "error"
    return None


# --- the words of each provider ----------------------------------------------------------------


class _Words(Struct, frozen=True):
    """Where an answer in one format tells what; what stands first is believed first."""

    usage: Callable[[JSON], Usage]
    usages: tuple[Path, ...]
    models: tuple[Path, ...]
    stops: tuple[Path, ...]
    errors: tuple[Path, ...] = (("error",),)
    beside: tuple[Path, ...] = ()

    def wanted(self) -> Wanted:
        """All that is picked."""
        paths = (*self.usages, *self.models, *self.stops, *self.errors, *self.beside)
        ways = (path[:count] for path in paths for count in range(len(path)))
        return Wanted(frozenset(paths), frozenset(ways))


_WORDS: dict[FormatName, _Words] = {
    # The stream's first event has the prompt, its last ones have totals that grow.
    "anthropic": _Words(
        anthropic_usage,
        usages=(("message", "usage"), ("usage",)),
        models=(("message", "model"), ("model",)),
        stops=(("delta", "stop_reason"), ("message", "stop_reason"), ("stop_reason",)),
    ),
    # A last chunk without choices has the usage, if the request asked for it; Moonshot's has it in
    # its choice.
    "openai-chat": _Words(
        chat_usage,
        usages=(("choices", "usage"), ("usage",)),
        models=(("model",),),
        stops=(("choices", "finish_reason"),),
    ),
    # Events hold the response; an error's event may hold its words itself.
    "openai-responses": _Words(
        responses_usage,
        usages=(("response", "usage"), ("usage",)),
        models=(("response", "model"), ("model",)),
        stops=(
            ("response", "incomplete_details", "reason"),
            ("incomplete_details", "reason"),
            ("response", "status"),
            ("status",),
        ),
        errors=(("response", "error"), ("error",)),
        beside=(("type",), ("code",)),
    ),
    "gemini": _Words(
        gemini_usage,
        usages=(("usageMetadata",),),
        models=(("modelVersion",),),
        stops=(("candidates", "finishReason"), ("promptFeedback", "blockReason")),
    ),
}
_WANTED = {format: words.wanted() for format, words in _WORDS.items()}

# An event without any of these has nothing to tell. In a text the quotes would be escaped.
_TELLING = re.compile(
    rb'"(?:usage|usageMetadata|error|stop_reason|finish_reason|finishReason|blockReason)"'
    rb'\s*+:\s*+["{]|"type"\s*+:\s*+"error"'
)


# --- events ------------------------------------------------------------------------------------

_END = re.compile(rb"[\r\n]")


class _Events:
    """Server-sent events: what their data lines hold goes on to the values."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._line = bytearray()
        self._passing = False  # whether the line is too long to be held
        self._is_data = False  # of a line that is passed on
        self._returned = False  # whether the last byte was a carriage return

    def feed(self, data: bytes) -> None:
        """The next bytes of the stream."""
        at = 0
        if self._returned and data[:1] == b"\n":
            at = 1
        while (found := _END.search(data, at)) is not None:
            self._add(data[at : found.start()])
            self._end_line()
            at = found.end()
            if found[0] == b"\r" and data[at : at + 1] == b"\n":
                at += 1
        self._returned = data.endswith(b"\r")
        self._add(data[at:])

    def end(self) -> None:
        """The stream stops here, in the middle of a line or behind one."""
        if self._line or self._passing:
            self._end_line()

    def _add(self, piece: bytes) -> None:
        if self._passing:
            if self._is_data:
                self._values.feed(piece)
            return
        self._line += piece
        if len(self._line) > LONGEST_HELD:
            self._passing = True
            self._is_data = self._line.startswith(b"data:")
            if self._is_data:
                self._values.feed(bytes(self._line[5:]))
            self._line.clear()

    def _end_line(self) -> None:
        if self._passing:
            self._passing = False
        elif not self._line:
            self._values.end()  # a blank line ends an event, and whatever it left open
        elif self._line.startswith(b"data:"):
            payload = bytes(self._line[5:]).strip()
            whole = self._values.idle and payload[:1] == b"{" and payload[-1:] == b"}"
            if not whole:
                self._values.feed(payload + b"\n")
            elif _TELLING.search(payload):
                self._values.whole(payload)
        self._line.clear()
