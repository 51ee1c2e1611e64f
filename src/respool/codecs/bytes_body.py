"""A request given as bytes: what is not changed keeps its bytes, separators too."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ..errors import UnreadableRequest
from .body import Changed, Kept, Piece, chained
from .codec import Fields
from .json_tree import JSON, encode_like
from .layout import Joined, Layout, laid_out
from .marks import identity_bytes
from .unreadable import decode
from .words import words_identity

_WITH_WORDS = (None, "messages")  # where messages of words are spelled in two ways
_NOTHING_JOINED = Joined(b"", [], [])


class BytesBody:
    """A request as bytes."""

    can_share = False  # there are no objects that could be shared

    def __init__(self, body: bytes, layout: Layout | None = None) -> None:
        self.layout = laid_out(body) if layout is None else layout
        self.history_field = self.layout.history_field
        self._body = body
        self._view = memoryview(body)
        self._starts, self._ends = self.layout.starts, self.layout.ends
        self._decoded: dict[int, JSON] = {}
        self._identities: dict[int, Any] = {}

    @property
    def fields(self) -> Fields | None:
        """Every field but the history, each decoded when first asked for."""
        return self.layout.fields

    def __len__(self) -> int:
        return len(self._starts)

    def message(self, at: int) -> JSON:
        """One message, decoded when first asked for."""
        if at not in self._decoded:
            self._decoded[at] = decode(self._raw(at), f"message {at}")
        return self._decoded[at]

    def _raw(self, at: int) -> memoryview:
        return self._view[self._starts[at] : self._ends[at]]

    def identity(self, at: int) -> Any:
        """Bytes that stand for the message without its marks, worked out once."""
        if at not in self._identities:
            self._identities[at] = self._identity(at)
        return self._identities[at]

    def _identity(self, at: int) -> Any:
        raw = self._raw(at)
        said = words_identity(raw) if self.history_field in _WITH_WORDS else None
        if said is not None:
            return said
        return identity_bytes(bytes(raw), self.message(at)) if self._has_breakpoint(at) else raw

    def identities(self, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        """The same for a run of messages, or for all."""
        return map(self.identity, range(start, len(self) if stop is None else stop))

    def prefix_keys(self, first: bytes, seed: int) -> list[bytes]:
        """A hash of every prefix of the history; those of a known one are not worked out again."""
        known = self.layout.prefix_keys
        if not known or known[0] != first:
            known = [first]
        keys = chained(known, self.identities(len(known) - 1), seed)
        self.layout.prefix_keys = keys
        return keys

    def breakpoint_rows(self) -> Sequence[int]:
        """The messages that may carry marks."""
        return self.layout.breakpoint_rows

    def _has_breakpoint(self, at: int) -> bool:
        marked = self.layout.breakpoint_rows
        spot = bisect_left(marked, at)
        return spot < len(marked) and marked[spot] == at

    def head_bytes(self, names: Sequence[str]) -> bytes:
        """Bytes that stand for these fields."""
        return b"" if self.layout.fields is None else self.layout.fields.head(names)

    def encode(self, at: int | None, message: JSON) -> bytes | None:
        """Bytes of the new message, with those of every block it shares with the old one."""
        if at is None:
            return msgspec.json.encode(message)
        return encode_like(self._raw(at), self.message(at), message)

    def splice(self, pieces: Sequence[Piece]) -> Any:
        """The body with these messages; the rest keeps its bytes."""
        if not self._starts:
            return self._body
        pieces = [
            one if isinstance(one, Kept) or one.message is None else _named(one) for one in pieces
        ]
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
        told = next((n for n in range(same, len(pieces)) if not _is_told(pieces[n])), len(pieces))
        self.layout.spliced = Joined(joined, pieces[:told], stops[:told])
        return joined

    def _last_spliced(self, pieces: list[Piece]) -> tuple[Joined, int]:
        """What was put together last, and how many of the first pieces are the same again."""
        known = self.layout.spliced
        if known is None:
            return _NOTHING_JOINED, 0
        least, most = 0, min(len(known.pieces), len(pieces))
        while least < most:
            middle = (least + most + 1) // 2
            if known.pieces[least:middle] == pieces[least:middle]:
                least = middle
            else:
                most = middle - 1
        return known, least

    def _bytes_of(self, piece: Piece) -> Any:
        if isinstance(piece, Kept):
            return self._view[self._starts[piece.start] : self._ends[piece.stop - 1]]
        if piece.encoded is not None:
            return piece.encoded
        return self.encode(piece.source, piece.message)

    def _gap(self, before: Piece, after: Piece, between: bytes) -> Any:
        """The separator between two: the source's own where they are neighbours there too."""
        previous = before.stop - 1 if isinstance(before, Kept) else before.source
        at = after.start if isinstance(after, Kept) else after.source
        if at is None or previous is None or at != previous + 1:
            return between
        return self._view[self._ends[previous] : self._starts[at]]


def _named(piece: Changed) -> Changed:
    """A piece by its bytes alone, where they are known: those of late are not kept as objects."""
    return piece if piece.encoded is None else Changed(piece.source, None, piece.encoded)


def _is_told(piece: Piece) -> bool:
    """Whether a piece says which bytes it is, so that the same piece is the same bytes."""
    return isinstance(piece, Kept) or piece.encoded is not None


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
