"""A request taken apart into its history and its other fields, and the way back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import xxhash
from msgspec import Struct

from .codec import Fields
from .json_tree import JSON

HISTORIES = ("messages", "input", "contents")
NO_HISTORY = "This is no chat request: it has none of the fields messages, input, contents."
PLAIN_TEXT = "The input is plain text: there is no tool history in it."


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


def chained(known: Sequence[bytes], identities: Iterable[Any], seed: int) -> list[bytes]:
    """Hashes of ever longer prefixes: those that are known, and one more for each message."""
    keys = list(known)
    key = keys[-1]
    for identity in identities:
        link = xxhash.xxh3_128(key, seed=seed)
        link.update(identity)
        key = link.digest()
        keys.append(key)
    return keys


def apart(piece: Piece, single: set[int]) -> list[Piece]:
    """A run of kept messages with these ones on their own."""
    if not isinstance(piece, Kept):
        return [piece]
    within = sorted(one for one in single if piece.start <= one < piece.stop)
    if not within:
        return [piece]
    found: list[Piece] = []
    start = piece.start
    for at in within:
        if start < at:
            found.append(Kept(start, at))
        found.append(Kept(at, at + 1))
        start = at + 1
    if start < piece.stop:
        found.append(Kept(start, piece.stop))
    return found


class Body(Protocol):
    """A request: its fields, its messages, and the way back."""

    @property
    def history_field(self) -> str | None:
        """Where the history stands; None for a bare list."""
        ...

    @property
    def fields(self) -> Fields | None:
        """The request beside its history; None for a bare list."""
        ...

    @property
    def can_share(self) -> bool:
        """Whether objects that went out may go out again, since nobody changes them."""
        ...

    def __len__(self) -> int: ...

    def message(self, at: int) -> JSON:
        """One message, decoded."""
        ...

    def identity(self, at: int) -> Any:
        """Bytes that stand for the message whatever cache marks it carries."""
        ...

    def identities(self, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        """The same for a run of messages, or for all."""
        ...

    def prefix_keys(self, first: bytes, seed: int) -> list[bytes]:
        """A hash of every prefix of the history; `first` is that of the empty one."""
        ...

    def breakpoint_rows(self) -> Sequence[int]:
        """The messages that may carry cache marks."""
        ...

    def head_bytes(self, names: Sequence[str]) -> bytes:
        """Bytes that stand for these fields."""
        ...

    def encode(self, at: int | None, message: JSON) -> bytes | None:
        """Bytes of a message that replaces this one, or none; None where objects are wanted."""
        ...

    def splice(self, pieces: Sequence[Piece]) -> Any:
        """The request with these messages, in the type it came in."""
        ...
