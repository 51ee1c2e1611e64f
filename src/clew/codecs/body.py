"""A request taken apart into its history and its other fields, and put together again.

What is not changed keeps its bytes, separators too; objects that are not changed stay the same.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Protocol, cast

import msgspec
from msgspec import Struct

from ..errors import PassedThrough, UnreadableRequest
from .codec import Fields
from .json_tree import JSON, Object, compact_text, encode_like
from .marks import MARKS, identity_bytes, marks_in, strip_marks

HISTORIES = ("messages", "input", "contents")


class Kept(Struct, frozen=True, gc=False):
    """A run of source messages that go out as they came."""

    start: int
    stop: int


class Changed(Struct, frozen=True, gc=False):
    """A new message, in the place of a source message or beside them."""

    source: int | None  # the source message it replaces; None: it is put in
    message: JSON
    encoded: bytes | None = None  # its bytes, where they are already known


Piece = Kept | Changed


class Body(Protocol):
    """A request: its fields, its messages, and the way back."""

    field: str | None  # where the history stands; None for a bare list
    fields: Fields | None  # None for a bare list

    def __len__(self) -> int: ...

    def message(self, at: int) -> JSON:
        """One message, decoded."""
        ...

    def identity(self, at: int) -> Any:
        """Bytes that stand for the message whatever cache marks it carries."""
        ...

    def identities(self) -> Iterator[Any]:
        """The same for every message in order."""
        ...

    def marked(self) -> Sequence[int]:
        """The messages that may carry cache marks."""
        ...

    def head(self, names: Sequence[str]) -> bytes:
        """Bytes that stand for these fields."""
        ...

    def encode(self, at: int | None, message: JSON) -> bytes | None:
        """Bytes of a message that replaces this one, or none; None where objects are wanted."""
        ...

    def splice(self, pieces: Sequence[Piece]) -> Any:
        """The request with these messages, in the type it came in."""
        ...


def read_body(request: object) -> Body:
    """A request given as bytes, text, a dict or a list, taken apart."""
    if isinstance(request, str):
        return TextBody(request)
    if isinstance(request, bytes | bytearray):
        return BytesBody(bytes(request))
    if isinstance(request, dict | list):
        return ObjectBody(cast("Object | list[JSON]", request))
    kind = type(request).__name__
    raise UnreadableRequest(f"A request is bytes, text, a dict or a list of messages, not {kind}.")


class ObjectBody:
    """A request dict, or a bare list of messages."""

    def __init__(self, request: Object | list[JSON]) -> None:
        self._request = request
        self._marked: list[int] | None = None
        if isinstance(request, list):
            self.field, self.fields, self._messages = None, None, request
            return
        self.field = _history_field(request)
        self.fields = request
        history = request[self.field]
        if isinstance(history, str):
            raise PassedThrough("The input is plain text: there is no tool history in it.")
        if not isinstance(history, list):
            raise UnreadableRequest(f"Field {self.field!r} is not a list of messages.")
        self._messages = cast(list[JSON], history)

    def __len__(self) -> int:
        return len(self._messages)

    def message(self, at: int) -> JSON:
        message = self._messages[at]
        _refuse_foreign(at, message)
        return message

    def identity(self, at: int) -> Any:
        told = compact_text(strip_marks(self._messages[at])).encode("utf-8", "surrogatepass")
        if not told and self._messages[at] != "":  # nothing that could stand for it
            raise UnreadableRequest(f"Message {at} is nested too deeply.")
        return told

    def identities(self) -> Iterator[Any]:
        return map(self.identity, range(len(self)))

    def marked(self) -> Sequence[int]:
        if self._marked is None:
            self._marked = [at for at, one in enumerate(self._messages) if marks_in(one)]
        return self._marked

    def head(self, names: Sequence[str]) -> bytes:
        told = [(self.fields or {}).get(name) for name in names]
        return compact_text(told).encode("utf-8", "surrogatepass")

    def encode(self, at: int | None, message: JSON) -> bytes | None:
        return None

    def splice(self, pieces: Sequence[Piece]) -> Any:
        messages: list[JSON] = []
        for piece in pieces:
            if isinstance(piece, Kept):
                messages += self._messages[piece.start : piece.stop]
            else:
                messages.append(piece.message)
        if self.field is None:
            return messages
        return {**cast(Object, self._request), self.field: messages}


_JSON_TYPES = (dict, list, str, int, float, bool, type(None))


def _refuse_foreign(at: int, message: object) -> None:
    """Objects of an SDK are not JSON: changing a copy of them would lose what they are."""
    for value in (message, *_inner(message)):
        if not isinstance(value, _JSON_TYPES):
            kind = type(value).__name__
            raise UnreadableRequest(
                f"Message {at} holds a {kind} object; pass plain data (its model_dump())."
            )


def _inner(message: object) -> list[Any]:
    if not isinstance(message, dict):
        return []
    found: list[Any] = []
    for field in ("content", "parts", "tool_calls", "output", "summary"):
        items = cast(Object, message).get(field)
        if isinstance(items, list):
            found += cast(list[Any], items)
        elif items is not None:
            found.append(items)
    return found


def _history_field(request: Object) -> str:
    for name in HISTORIES:
        if name in request:
            return name
    raise UnreadableRequest(
        "This is no chat request: it has none of the fields messages, input, contents."
    )


class _Envelope(Struct, gc=False):
    """The request's fields as slices; the history as one slice a message."""

    messages: list[msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET
    input: list[msgspec.Raw] | str | None | msgspec.UnsetType = msgspec.UNSET
    contents: list[msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BETWEEN = re.compile(rb"[\s,]*")
_SPACE = b" \t\r\n"
_NEEDLES = {
    "messages": tuple(f'"{mark}"'.encode() for mark in MARKS),
    "input": (b'"prompt_cache_breakpoint"',),
    "contents": (),
}


class BytesBody:
    """A request as bytes."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._view = memoryview(body)
        self.field, self._raws = _split(body)
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._decoded: dict[int, JSON] = {}
        self._fields: _LazyFields | None = None
        self._marked: list[int] | None = None
        self._locate()

    @property
    def fields(self) -> Fields | None:
        """Every field but the history, each decoded when first asked for."""
        return None if self.field is None else self._raw_fields()

    def __len__(self) -> int:
        return len(self._raws)

    def message(self, at: int) -> JSON:
        if at not in self._decoded:
            self._decoded[at] = _decode(self._raws[at], f"message {at}")
        return self._decoded[at]

    def identity(self, at: int) -> Any:
        if at in self.marked():
            return identity_bytes(bytes(self._raws[at]), self.message(at))
        return self._raws[at]

    def identities(self) -> Iterator[Any]:
        done = 0
        for at in self.marked():
            yield from self._raws[done:at]
            yield self.identity(at)
            done = at + 1
        yield from self._raws[done:] if done else self._raws

    def marked(self) -> Sequence[int]:
        if self._marked is None:
            needles = _NEEDLES[self.field or "messages"]
            found = {self._at(place) for one in needles for place in _occurrences(self._body, one)}
            self._marked = sorted(found - {-1})
        return self._marked

    def head(self, names: Sequence[str]) -> bytes:
        raws = self._raw_fields() if self.field is not None else {}
        return b"|".join(bytes(raws.raw(name)) for name in names if name in raws)

    def encode(self, at: int | None, message: JSON) -> bytes | None:
        if at is None:
            return msgspec.json.encode(message)
        return encode_like(self._raws[at], self.message(at), message)

    def splice(self, pieces: Sequence[Piece]) -> Any:
        if not self._raws:
            return self._body
        between = self._body[self._ends[0] : self._starts[1]] if len(self._raws) > 1 else b","
        out: list[Any] = [self._view[: self._starts[0]]]
        previous: int | None = None  # the source message that stands before, if it does
        for number, piece in enumerate(pieces):
            first = piece.start if isinstance(piece, Kept) else piece.source
            if number:
                out.append(self._gap(previous, first, between))
            out.append(self._bytes_of(piece))
            previous = piece.stop - 1 if isinstance(piece, Kept) else piece.source
        out.append(self._view[self._ends[-1] :])
        return b"".join(out)

    def _bytes_of(self, piece: Piece) -> Any:
        if isinstance(piece, Kept):
            return self._view[self._starts[piece.start] : self._ends[piece.stop - 1]]
        if piece.encoded is not None:
            return piece.encoded
        return self.encode(piece.source, piece.message)

    def _gap(self, previous: int | None, at: int | None, between: bytes) -> Any:
        """The separator before a message: its own one where its neighbour is still its neighbour."""
        if at is None or previous is None or at != previous + 1:
            return between
        return self._view[self._ends[previous] : self._starts[at]]

    def _at(self, offset: int) -> int:
        """The message that this offset lies in, or -1."""
        at = bisect_right(self._starts, offset) - 1
        return at if at >= 0 and offset < self._ends[at] else -1

    def _locate(self) -> None:
        """Find where each message stands: in the history, not in an array that looks like it."""
        if not self._raws:
            return
        for starts, ends in _candidates(self._body, self.field, self._raws):
            self._starts, self._ends, self._fields = starts, ends, None
            if self.field is None or _HOLLOW.match(self._raw_fields().raw(self.field)):
                return
        raise PassedThrough(f"The field {self.field!r} is not spelled out in the body.")

    def _raw_fields(self) -> _LazyFields:
        if self._fields is None:
            body = self._body
            if self._raws:  # the history is most of the body: leave it out
                body = body[: self._starts[0]] + b"0" + body[self._ends[-1] :]
            self._fields = _LazyFields(body, self.field or "")
        return self._fields


class TextBody(BytesBody):
    """A request as JSON text."""

    def __init__(self, body: str) -> None:
        try:
            super().__init__(body.encode())
        except UnicodeEncodeError as error:
            raise UnreadableRequest("The text holds a lone surrogate: it is no JSON.") from error

    def splice(self, pieces: Sequence[Piece]) -> Any:
        return super().splice(pieces).decode()


def _occurrences(body: bytes, needle: bytes) -> list[int]:
    found: list[int] = []
    at = body.find(needle)
    while at >= 0:
        found.append(at)
        at = body.find(needle, at + len(needle))
    return found


def _decode(raw: Any, what: str) -> JSON:
    try:
        return msgspec.json.decode(raw)
    except RecursionError as error:
        raise UnreadableRequest(f"The JSON of {what} is nested too deeply.") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise UnreadableRequest(f"The JSON of {what} cannot be read: {_why(error, raw)}.") from error


def _why(error: Exception, raw: Any) -> str:
    """What is wrong with JSON, for a person."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not valid UTF-8"
    if _SURROGATE.search(bytes(raw)):
        return "it holds a lone surrogate, half of a character"
    return str(error).removeprefix("JSON is malformed: ")


# An escape of the first half of a character without the second, or of the second alone.
_SURROGATE = re.compile(rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]")


def _split(body: bytes) -> tuple[str | None, list[msgspec.Raw]]:
    """The name of the history's field (None: the body is a bare list) and its messages."""
    try:
        if body.lstrip(_SPACE)[:1] == b"[":
            return None, _ARRAY.decode(body)
        envelope = _ENVELOPE.decode(body)
    except RecursionError as error:
        raise UnreadableRequest("The JSON is nested too deeply.") from error
    except msgspec.ValidationError as error:
        raise UnreadableRequest(f"This is no chat request: {error}.") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise UnreadableRequest(f"The JSON is malformed: {_why(error, body)}.") from error
    for name in HISTORIES:
        history = getattr(envelope, name)
        if isinstance(history, list):
            return name, cast(list[msgspec.Raw], history)
        if isinstance(history, str):
            raise PassedThrough("The input is plain text: there is no tool history in it.")
    raise UnreadableRequest(
        "This is no chat request: it has none of the fields messages, input, contents."
    )


def _candidates(
    body: bytes, field: str | None, raws: list[msgspec.Raw]
) -> Iterator[tuple[list[int], list[int]]]:
    """Where each message may start and end in the body, for every array that holds the same."""
    key = f'"{field}"'.encode()
    at = body.find(key) if field is not None else body.index(b"[")
    while at >= 0:
        opening = _OPENING.match(body, at + len(key)) if field is not None else None
        start = opening.end() if opening else at + 1
        found = _positions(body, start, raws) if opening or field is None else None
        if found is not None:
            yield found
        at = body.find(key, at + 1) if field is not None else -1


_HOLLOW = re.compile(rb"\[\s*0\s*\]\Z")  # the history with its messages left out
_OPENING = re.compile(rb"\s*:\s*\[")


def _positions(
    body: bytes, at: int, raws: list[msgspec.Raw]
) -> tuple[list[int], list[int]] | None:
    """The spans of the messages if the array that starts here is the history, else None."""
    gap = _BETWEEN.match(body, at)
    start = gap.end() if gap else at
    if not body.startswith(bytes(raws[0]), start):
        return None
    return _evenly_spaced(body, start, raws) or _one_by_one(body, start, raws)


def _evenly_spaced(
    body: bytes, start: int, raws: list[msgspec.Raw]
) -> tuple[list[int], list[int]] | None:
    """The spans when all separators are as long as the first: what every serialiser writes."""
    first_gap = _BETWEEN.match(body, start + len(raws[0]))
    width = first_gap.end() - first_gap.start() if first_gap and len(raws) > 1 else 0
    starts = list(accumulate((len(raw) + width for raw in raws), initial=start))
    starts.pop()
    ends = [at + len(raw) for at, raw in zip(starts, raws, strict=True)]
    last = bytes(raws[-1])
    if not body.startswith(last, starts[-1]) or not _is_closed(body, ends[-1]):
        return None
    gap = body[ends[0] : ends[0] + width]
    if any(body[e:s] != gap or body[s] in _SPACE for e, s in zip(ends, starts[1:], strict=False)):
        return None
    return starts, ends


def _one_by_one(
    body: bytes, start: int, raws: list[msgspec.Raw]
) -> tuple[list[int], list[int]] | None:
    """The spans with separators of any length, each message compared."""
    starts: list[int] = []
    ends: list[int] = []
    for raw in raws:
        gap = _BETWEEN.match(body, start)
        at = gap.end() if gap else start
        if not body.startswith(bytes(raw), at):
            return None
        start = at + len(raw)
        starts.append(at)
        ends.append(start)
    return (starts, ends) if _is_closed(body, start) else None


def _is_closed(body: bytes, at: int) -> bool:
    gap = _BETWEEN.match(body, at)
    return gap is not None and body[gap.end() : gap.end() + 1] == b"]"


class _LazyFields(dict[str, Any]):
    """The request's fields beside the history, each decoded when it is read."""

    def __init__(self, body: bytes, history: str) -> None:
        raws = _FIELDS.decode(body)
        super().__init__({key: raw for key, raw in raws.items() if key != history})
        self._raws = raws

    def raw(self, key: str) -> msgspec.Raw:
        """The field's own bytes."""
        return self._raws[key]

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if isinstance(value, msgspec.Raw):
            value = _decode(value, f"field {key!r}")
            self[key] = value
        return value

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default
