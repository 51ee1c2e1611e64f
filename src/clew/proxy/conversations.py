"""What this process remembers of the conversations that pass: bounded, and lost without harm."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final

from msgspec import Struct, field

from ..facts import Facts
from ..store import Latest

_MOST: Final = 4_096  # conversations; whoever comes back after so many others is read up again


class Conversation(Struct):
    """One conversation, as this process knows it."""

    id: str
    owner: str
    facts: Facts = Facts()
    last: Latest = Latest()
    durable: set[str] = field(default_factory=set[str])  # references of originals that are kept
    told: set[int] = field(default_factory=set[int])  # hashes of edits that are recorded


class Conversations:
    """The conversations of late, by their ids; safe to share by threads."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._known: OrderedDict[str, Conversation] = OrderedDict()
        self._lock = Lock()

    def get(self, id: str) -> Conversation | None:
        """The conversation with this id, if it is remembered."""
        with self._lock:
            found = self._known.get(id)
            if found is not None:
                self._known.move_to_end(id)
            return found

    def add(self, conversation: Conversation) -> Conversation:
        """Remember a conversation; of two that come at once, the first."""
        with self._lock:
            found = self._known.setdefault(conversation.id, conversation)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
            return found
