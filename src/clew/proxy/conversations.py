"""What this process remembers of the conversations that pass: bounded, and lost without harm."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final

from msgspec import Struct, field

from ..facts import Facts
from ..store import Latest

_MOST: Final = 1_024  # conversations; whoever comes back after so many others is read up again
_MOST_SENT: Final = 256  # prefixes of one: a fork seldom goes back further


class Conversation(Struct):
    """One conversation, as this process knows it."""

    id: str
    owner: str
    facts: Facts = Facts()
    last: Latest = Latest()
    durable: set[str] = field(default_factory=set[str])  # references of originals that are kept
    told: set[int] = field(default_factory=set[int])  # hashes of edits that are recorded
    owed: Facts = Facts()  # facts that the store could not be told yet
    read_up: bool = False  # all that the store knows of it is known here
    seen_kept: float = 0.0  # when the store was last asked whether it still has the originals
    answered: dict[bytes, None] = field(default_factory=dict[bytes, None])  # prefixes, projected

    def was_answered(self, prefix: str) -> bool:
        """Whether the model went on from a projection of just this history."""
        return bytes.fromhex(prefix) in self.answered

    def note_answered(self, prefix: str) -> None:
        """The model goes on from a projection of this history."""
        self.answered[bytes.fromhex(prefix)] = None
        if len(self.answered) > _MOST_SENT:
            del self.answered[next(iter(self.answered))]


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
