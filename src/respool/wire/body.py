"""Request bodies as bytes, text or objects: unchanged messages keep bytes or identity."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from ..errors import PlainText, UnreadableRequest
from .base import (
    PLAIN_TEXT_MESSAGE,
    Fields,
    NewMessage,
    Piece,
    RequestBody,
    SourceRun,
    chain_hashes,
    history_fields,
    no_history_error,
)
from .json import JSON, Object, compact_json, decode_json, encode_like
from .layout import Layout, LayoutCache, SplicedBody, parse_layout
from .message_identity import (
    count_breakpoints,
    identity_bytes,
    strip_breakpoints,
    text_identity,
    with_string_content,
)

_SCALARS = frozenset({str, int, float, bool, type(None)})
_NOT_CONVERTED = object()
_UNKNOWN = object()
_TEXT_HISTORY_FIELDS = (None, "messages")  # a text message may have a string or one text block
_NOTHING_SPLICED = SplicedBody(b"", [], [])


def as_plain_data(at: int, message: object) -> JSON:
    """A message as plain data; the same object if it is plain already."""
    try:
        return message if _is_plain(message) else _convert(at, message)
    except RecursionError:
        return message  # reading it reports the error


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, cast(Object, value).values()))
    if isinstance(value, list):
        return all(map(_is_plain, cast(list[Any], value)))
    return type(value) in _SCALARS


def _convert(at: int, value: object) -> JSON:
    if isinstance(value, dict):
        return {key: _convert(at, one) for key, one in cast(Object, value).items()}
    if isinstance(value, list | tuple):
        return [_convert(at, one) for one in cast(list[Any], value)]
    if type(value) in _SCALARS:
        return value
    try:
        plain = _dump(value)
    except Exception as error:
        raise _not_json_error(at, value) from error
    if not _is_plain(plain):
        raise _not_json_error(at, value)
    return plain


def _dump(value: object) -> object:
    """Convert a value as the SDKs of Anthropic, OpenAI and Google do for a request."""
    if isinstance(value, str):  # a subclass, such as a role that is an enumeration
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if not hasattr(value, "model_dump"):
        return msgspec.to_builtins(value)  # bytes in base64, dates, enumerations
    return cast(Any, value).model_dump(
        mode="json",
        by_alias=True,
        exclude_unset=True,
        exclude=getattr(value, "__api_exclude__", None),
        warnings=False,
    )


def _not_json_error(at: int, value: object) -> UnreadableRequest:
    kind = type(value).__name__
    return UnreadableRequest(
        f"Message {at} holds a {kind} object, which is no JSON; pass plain data."
    )


class BytesBody:
    """A request as bytes."""

    can_share = False  # there are no objects to share

    def __init__(self, body: bytes, layout: Layout | None = None) -> None:
        self.layout = parse_layout(body) if layout is None else layout
        self.history_field = self.layout.history_field
        self._body = body
        self._view = memoryview(body)
        self._starts, self._ends = self.layout.starts, self.layout.ends
        self._decoded: dict[int, JSON] = {}
        self._identities: list[Any] = [_UNKNOWN] * len(self._starts)  # None: the message's bytes

    @property
    def fields(self) -> Fields | None:
        """Every field but the history, each decoded at first access."""
        return self.layout.fields

    def __len__(self) -> int:
        return len(self._starts)

    def message(self, at: int) -> JSON:
        """One message, decoded at first access."""
        if at not in self._decoded:
            self._decoded[at] = decode_json(self._raw(at), f"message {at}")
        return self._decoded[at]

    def forget(self, start: int = 0, stop: int | None = None) -> None:
        """Let go of these decoded messages, or of all; they are decoded again when asked for."""
        if stop is None:
            self._decoded.clear()
        else:
            for at in range(start, stop):
                self._decoded.pop(at, None)

    def _raw(self, at: int) -> memoryview:
        return self._view[self._starts[at] : self._ends[at]]

    def identity(self, at: int) -> Any:
        """Bytes that identify the message without its cache breakpoints, computed once."""
        found = self._identities[at]
        if found is _UNKNOWN:
            found = self._identities[at] = self._identity(at)
        return self._raw(at) if found is None else found

    def _identity(self, at: int) -> bytes | None:
        raw = self._raw(at)
        text = text_identity(raw) if self.history_field in _TEXT_HISTORY_FIELDS else None
        if text is not None:
            return text
        return identity_bytes(bytes(raw), self.message(at)) if self._has_breakpoint(at) else None

    def identities(self, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        """The identities of a run of messages, or of all."""
        return map(self.identity, range(start, len(self) if stop is None else stop))

    def prefix_keys(self, first: bytes, seed: int) -> list[bytes]:
        """A hash of every prefix of the history; those of a known prefix are reused."""
        known = self.layout.prefix_keys
        if not known or known[0] != first:
            known = [first]
        keys = chain_hashes(known, self.identities(len(known) - 1), seed)
        self.layout.prefix_keys = keys
        return keys

    def breakpoint_rows(self) -> Sequence[int]:
        """The messages that may carry cache breakpoints."""
        return self.layout.breakpoint_rows

    def _has_breakpoint(self, at: int) -> bool:
        rows = self.layout.breakpoint_rows
        spot = bisect_left(rows, at)
        return spot < len(rows) and rows[spot] == at

    def head_bytes(self, names: Sequence[str]) -> bytes:
        """Bytes that identify these fields."""
        return b"" if self.layout.fields is None else self.layout.fields.head(names)

    def encode(self, at: int | None, message: JSON) -> bytes | None:
        """Bytes of the new message; a block shared with the old one keeps its bytes."""
        if at is None:
            return msgspec.json.encode(message)
        return encode_like(self._raw(at), self.message(at), message)

    def splice(self, pieces: Sequence[Piece]) -> Any:
        """The body with these messages; the rest keeps its bytes."""
        if not self._starts:
            return self._body
        pieces = list(map(by_bytes, pieces))
        known, same = self._last_spliced(pieces)
        between = self._body[self._ends[0] : self._starts[1]] if len(self._starts) > 1 else b","
        done = known.stops[same - 1] if same else 0
        out: list[Any] = [memoryview(known.out)[:done] if same else self._view[: self._starts[0]]]
        stops, at = known.stops[:same], done or self._starts[0]
        for number in range(same, len(pieces)):
            if number:
                out.append(self._gap(pieces[number - 1], pieces[number], between))
                at += len(out[-1])
            out.append(self._bytes_of(pieces[number]))
            at += len(out[-1])
            stops.append(at)
        out.append(self._view[self._ends[-1] :])
        joined = b"".join(out)
        fixed = next(
            (n for n in range(same, len(pieces)) if not _has_fixed_bytes(pieces[n])), len(pieces)
        )
        self.layout.spliced = SplicedBody(joined, pieces[:fixed], stops[:fixed])
        return joined

    def _last_spliced(self, pieces: list[Piece]) -> tuple[SplicedBody, int]:
        """The last spliced body, and the number of leading pieces that are the same again."""
        known = self.layout.spliced
        if known is None:
            return _NOTHING_SPLICED, 0
        low, high = 0, min(len(known.pieces), len(pieces))
        while low < high:
            middle = (low + high + 1) // 2
            if known.pieces[low:middle] == pieces[low:middle]:
                low = middle
            else:
                high = middle - 1
        return known, low

    def _bytes_of(self, piece: Piece) -> Any:
        if isinstance(piece, SourceRun):
            return self._view[self._starts[piece.start] : self._ends[piece.stop - 1]]
        if piece.encoded is not None:
            return piece.encoded
        return self.encode(piece.source, piece.message)

    def _gap(self, before: Piece, after: Piece, between: bytes) -> Any:
        """The separator between two pieces: the source's own if they are neighbours there too."""
        previous = before.stop - 1 if isinstance(before, SourceRun) else before.source
        at = after.start if isinstance(after, SourceRun) else after.source
        if at is None or previous is None or at != previous + 1:
            return between
        return self._view[self._ends[previous] : self._starts[at]]


def by_bytes(piece: Piece) -> Piece:
    """A piece with its bytes alone, if they are known: its object need not be kept."""
    if isinstance(piece, SourceRun) or piece.message is None or piece.encoded is None:
        return piece
    return NewMessage(piece.source, None, piece.encoded)


def _has_fixed_bytes(piece: Piece) -> bool:
    """Return whether a piece determines its bytes."""
    return isinstance(piece, SourceRun) or piece.encoded is not None


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


class ObjectBody:
    """A request dict, or a bare list of messages; objects of an SDK are converted as it does."""

    def __init__(
        self,
        request: Object | list[JSON],
        breakpoint_rows: Sequence[int] | None = None,
        *,
        shares: bool = False,
    ) -> None:
        self._request = request
        self.can_share = shares
        self._breakpoint_rows = (
            breakpoint_rows  # the messages with cache breakpoints, if the caller knows them
        )
        self.history_field = None if isinstance(request, list) else _history_field(request)
        self.fields: Fields | None = None if isinstance(request, list) else request
        self._messages = (
            request if isinstance(request, list) else _history(request, self.history_field)
        )
        # Shared messages come from JSON, so they are plain already.
        self._plain = self._messages if shares else [_NOT_CONVERTED] * len(self._messages)

    def __len__(self) -> int:
        return len(self._messages)

    def message(self, at: int) -> JSON:
        """One message, as plain data."""
        if self._plain[at] is _NOT_CONVERTED:
            self._plain[at] = as_plain_data(at, self._messages[at])
        return self._plain[at]

    def forget(self, start: int = 0, stop: int | None = None) -> None:
        """Let go of nothing: the messages are the caller's."""

    def identity(self, at: int) -> Any:
        """Bytes that identify the message without its cache breakpoints."""
        bare = with_string_content(strip_breakpoints(self.message(at)))
        encoded = compact_json(bare).encode("utf-8", "surrogatepass")
        if isinstance(bare, str):
            return b'"' + encoded  # keep a string apart from the object it may look like
        if not encoded:  # it cannot be encoded
            raise UnreadableRequest(f"Message {at} is nested too deeply.")
        return encoded

    def identities(self, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        """The identities of a run of messages, or of all."""
        return map(self.identity, range(start, len(self) if stop is None else stop))

    def prefix_keys(self, first: bytes, seed: int) -> list[bytes]:
        """A hash of every prefix of the history."""
        return chain_hashes([first], self.identities(), seed)

    def breakpoint_rows(self) -> Sequence[int]:
        """The messages that carry cache breakpoints."""
        if self._breakpoint_rows is None:
            self._breakpoint_rows = [
                at for at in range(len(self)) if count_breakpoints(self.message(at))
            ]
        return self._breakpoint_rows

    def head_bytes(self, names: Sequence[str]) -> bytes:
        """Bytes that identify these fields."""
        values = [(self.fields or {}).get(name) for name in names]
        return compact_json(values).encode("utf-8", "surrogatepass")

    def encode(self, at: int | None, message: JSON) -> bytes | None:
        """None: this body is made of objects."""
        return None

    def splice(self, pieces: Sequence[Piece]) -> Any:
        """The dict or list with these messages."""
        messages: list[JSON] = []
        for piece in pieces:
            if isinstance(piece, SourceRun):
                messages += self._messages[piece.start : piece.stop]
            else:
                messages.append(piece.message)
        if self.history_field is None:
            return messages
        return {**cast(Object, self._request), self.history_field: messages}


def _history_field(request: Object) -> str:
    for name in history_fields():
        if name in request:
            return name
    raise no_history_error()


def _history(request: Object, field: str | None) -> list[JSON]:
    history: object = request.get(field or "")
    if isinstance(history, str):
        raise PlainText(PLAIN_TEXT_MESSAGE)
    if not isinstance(history, list):
        raise UnreadableRequest(f"Field {field!r} is not a list of messages.")
    return cast(list[JSON], history)


def read_body(request: object, layouts: LayoutCache | None = None) -> RequestBody:
    """Parse a request of any type; a body that is parsed already is returned unchanged.

    With a cache of layouts, a request that extends a recent one is parsed only from there on.
    """
    if isinstance(request, BytesBody | TextBody | ObjectBody):
        return request
    if isinstance(request, str):
        return TextBody(request)
    if isinstance(request, bytes | bytearray):
        body = bytes(request)
        return BytesBody(body, None if layouts is None else layouts.parse_layout(body))
    if isinstance(request, dict | list):
        return ObjectBody(cast("Object | list[JSON]", request))
    kind = type(request).__name__
    raise UnreadableRequest(f"A request is bytes, text, a dict or a list of messages, not {kind}.")
