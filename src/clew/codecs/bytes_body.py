"""A request given as bytes: what is not changed keeps its bytes, separators too."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from ..errors import PassedThrough, PlainText, UnreadableRequest
from .body import HISTORIES, NO_HISTORY, PLAIN_TEXT, Kept, Piece
from .codec import Fields
from .json_tree import JSON, encode_like
from .marks import MARKS, identity_bytes
from .spans import candidates
from .unreadable import decode, why
from .words import words_identity


class _Envelope(Struct, gc=False):
    """The request's fields as slices; the history as one slice a message."""

    messages: list[msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET
    input: list[msgspec.Raw] | str | msgspec.UnsetType | None = msgspec.UNSET
    contents: list[msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NEEDLES = {
    "messages": tuple(f'"{mark}"'.encode() for mark in MARKS),
    "input": (b'"prompt_cache_breakpoint"',),
    "contents": (),
}
_WITH_WORDS = (None, "messages")  # where messages of words are spelled in two ways
_HOLLOW = re.compile(rb"\[\s*0\s*\]\Z")  # the history with its messages left out


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
        """One message, decoded when first asked for."""
        if at not in self._decoded:
            self._decoded[at] = decode(self._raws[at], f"message {at}")
        return self._decoded[at]

    def identity(self, at: int) -> Any:
        """Bytes that stand for the message without its marks."""
        raw = self._raws[at]
        said = words_identity(raw) if self.field in _WITH_WORDS else None
        if said is not None:
            return said
        return identity_bytes(bytes(raw), self.message(at)) if self._is_marked(at) else raw

    def identities(self, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        """The same for a run of messages, or for all."""
        return map(self.identity, range(start, len(self._raws) if stop is None else stop))

    def marked(self) -> Sequence[int]:
        """The messages that may carry marks."""
        if self._marked is None:
            needles = _NEEDLES[self.field or "messages"]
            found = {self._at(place) for one in needles for place in _occurrences(self._body, one)}
            self._marked = sorted(found - {-1})
        return self._marked

    def _is_marked(self, at: int) -> bool:
        marked = self.marked()
        spot = bisect_left(marked, at)
        return spot < len(marked) and marked[spot] == at

    def head(self, names: Sequence[str]) -> bytes:
        """Bytes that stand for these fields."""
        if self.field is None:
            return b""
        fields = self._raw_fields()
        return b"|".join(bytes(fields.raw(name)) for name in names if name in fields)

    def encode(self, at: int | None, message: JSON) -> bytes | None:
        """Bytes of the new message, with those of every block it shares with the old one."""
        if at is None:
            return msgspec.json.encode(message)
        return encode_like(self._raws[at], self.message(at), message)

    def splice(self, pieces: Sequence[Piece]) -> Any:
        """The body with these messages; the rest keeps its bytes."""
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
        """The separator before a message: its own where its neighbour still stands before it."""
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
        for starts, ends in candidates(self._body, self.field, self._raws):
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
        """The body with these messages; the rest keeps its bytes."""
        return super().splice(pieces).decode()


def _occurrences(body: bytes, needle: bytes) -> list[int]:
    found: list[int] = []
    at = body.find(needle)
    while at >= 0:
        found.append(at)
        at = body.find(needle, at + len(needle))
    return found


def _split(body: bytes) -> tuple[str | None, list[msgspec.Raw]]:
    """The name of the history's field (None: the body is a bare list) and its messages."""
    try:
        if body.lstrip(b" \t\r\n")[:1] == b"[":
            return None, _ARRAY.decode(body)
        envelope = _ENVELOPE.decode(body)
    except RecursionError as error:
        raise UnreadableRequest("The JSON is nested too deeply.") from error
    except msgspec.ValidationError as error:
        raise UnreadableRequest(f"This is no chat request: {error}.") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise UnreadableRequest(f"The JSON is malformed: {why(error, body)}.") from error
    for name in HISTORIES:
        history = getattr(envelope, name)
        if isinstance(history, list):
            return name, cast(list[msgspec.Raw], history)
        if isinstance(history, str):
            raise PlainText(PLAIN_TEXT)
    raise UnreadableRequest(NO_HISTORY)


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
            value = decode(value, f"field {key!r}")
            self[key] = value
        return value

    def get(self, key: str, default: Any = None) -> Any:
        """The field, decoded, or the default."""
        return self[key] if key in self else default  # noqa: SIM401 (dict.get decodes nothing)
