"""A request given as objects: what is not changed stays the same object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from ..errors import PlainText, UnreadableRequest
from .body import HISTORIES, NO_HISTORY, PLAIN_TEXT, Kept, Piece, chained
from .codec import Fields
from .foreign import plain
from .json_tree import JSON, Object, compact_text
from .marks import marks_in, strip_marks
from .words import as_words

_UNREAD = object()


class ObjectBody:
    """A request dict, or a bare list of messages; an SDK's objects are read as it sends them."""

    def __init__(
        self,
        request: Object | list[JSON],
        breakpoint_rows: Sequence[int] | None = None,
        *,
        shares: bool = False,
    ) -> None:
        self._request = request
        self.can_share = shares
        self._breakpoint_rows = breakpoint_rows  # the messages with marks, where the caller knows them
        self.history_field = None if isinstance(request, list) else _history_field(request)
        self.fields: Fields | None = None if isinstance(request, list) else request
        self._messages = request if isinstance(request, list) else _history(request, self.history_field)
        # Who shares its messages has read them from JSON, and asks for them again and again.
        self._plain = self._messages if shares else [_UNREAD] * len(self._messages)

    def __len__(self) -> int:
        return len(self._messages)

    def message(self, at: int) -> JSON:
        """One message, as plain data."""
        if self._plain[at] is _UNREAD:
            self._plain[at] = plain(at, self._messages[at])
        return self._plain[at]

    def identity(self, at: int) -> Any:
        """Bytes that stand for the message without its marks."""
        bare = as_words(strip_marks(self.message(at)))
        told = compact_text(bare).encode("utf-8", "surrogatepass")
        if isinstance(bare, str):
            return b'"' + told  # a string that looks like an object is none
        if not told:  # nothing that could stand for it
            raise UnreadableRequest(f"Message {at} is nested too deeply.")
        return told

    def identities(self, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        """The same for a run of messages, or for all."""
        return map(self.identity, range(start, len(self) if stop is None else stop))

    def prefix_keys(self, first: bytes, seed: int) -> list[bytes]:
        """A hash of every prefix of the history."""
        return chained([first], self.identities(), seed)

    def breakpoint_rows(self) -> Sequence[int]:
        """The messages that carry marks."""
        if self._breakpoint_rows is None:
            self._breakpoint_rows = [at for at in range(len(self)) if marks_in(self.message(at))]
        return self._breakpoint_rows

    def head_bytes(self, names: Sequence[str]) -> bytes:
        """Bytes that stand for these fields."""
        told = [(self.fields or {}).get(name) for name in names]
        return compact_text(told).encode("utf-8", "surrogatepass")

    def encode(self, at: int | None, message: JSON) -> bytes | None:
        """Objects are wanted, so there are none."""
        return None

    def splice(self, pieces: Sequence[Piece]) -> Any:
        """The dict or list with these messages."""
        messages: list[JSON] = []
        for piece in pieces:
            if isinstance(piece, Kept):
                messages += self._messages[piece.start : piece.stop]
            else:
                messages.append(piece.message)
        if self.history_field is None:
            return messages
        return {**cast(Object, self._request), self.history_field: messages}


def _history_field(request: Object) -> str:
    for name in HISTORIES:
        if name in request:
            return name
    raise UnreadableRequest(NO_HISTORY)


def _history(request: Object, field: str | None) -> list[JSON]:
    history: object = request.get(field or "")
    if isinstance(history, str):
        raise PlainText(PLAIN_TEXT)
    if not isinstance(history, list):
        raise UnreadableRequest(f"Field {field!r} is not a list of messages.")
    return cast(list[JSON], history)
