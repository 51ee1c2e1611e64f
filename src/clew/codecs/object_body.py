"""A request given as objects: what is not changed stays the same object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from ..errors import PlainText, UnreadableRequest
from .body import HISTORIES, NO_HISTORY, PLAIN_TEXT, Kept, Piece, chained
from .codec import Fields
from .json_tree import JSON, Object, compact_text
from .marks import marks_in, strip_marks
from .words import as_words


class ObjectBody:
    """A request dict, or a bare list of messages."""

    def __init__(
        self,
        request: Object | list[JSON],
        marked: Sequence[int] | None = None,
        *,
        shares: bool = False,
    ) -> None:
        self._request = request
        self.shares = shares
        self._marked = marked  # the messages with marks, where the caller knows them
        if isinstance(request, list):
            self.field: str | None = None
            self.fields: Fields | None = None
            self._messages = request
            return
        self.field = _history_field(request)
        self.fields = request
        history = request[self.field]
        if isinstance(history, str):
            raise PlainText(PLAIN_TEXT)
        if not isinstance(history, list):
            raise UnreadableRequest(f"Field {self.field!r} is not a list of messages.")
        self._messages = cast(list[JSON], history)

    def __len__(self) -> int:
        return len(self._messages)

    def message(self, at: int) -> JSON:
        """One message; objects of an SDK are refused."""
        message = self._messages[at]
        _refuse_foreign(at, message)
        return message

    def identity(self, at: int) -> Any:
        """Bytes that stand for the message without its marks."""
        bare = as_words(strip_marks(self._messages[at]))
        told = compact_text(bare).encode("utf-8", "surrogatepass")
        if isinstance(bare, str):
            return b'"' + told  # a string that looks like an object is none
        if not told:  # nothing that could stand for it
            raise UnreadableRequest(f"Message {at} is nested too deeply.")
        return told

    def identities(self, start: int = 0, stop: int | None = None) -> Iterator[Any]:
        """The same for a run of messages, or for all."""
        return map(self.identity, range(start, len(self) if stop is None else stop))

    def keys(self, first: bytes, seed: int) -> list[bytes]:
        """A hash of every prefix of the history."""
        return chained([first], self.identities(), seed)

    def marked(self) -> Sequence[int]:
        """The messages that carry marks."""
        if self._marked is None:
            self._marked = [at for at, one in enumerate(self._messages) if marks_in(one)]
        return self._marked

    def head(self, names: Sequence[str]) -> bytes:
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
    raise UnreadableRequest(NO_HISTORY)
