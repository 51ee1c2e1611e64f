"""A store in this process's memory, for libraries that were given no file."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from threading import Lock
from typing import Final

from ..facts import Facts
from .base import PriorRequests, SentRequest

MAX_CHARS: Final = 256 * 1024 * 1024  # of originals; then the oldest go
_NO_FACTS: Final = Facts()


class MemoryStore:
    """Originals and facts of one process; threads may share it.

    >>> store = MemoryStore()
    >>> store.keep("", "c", {"a": "one"})
    >>> store.original("a", None)
    'one'
    """

    def __init__(self, max_chars: int = MAX_CHARS) -> None:
        self._max_chars = max_chars
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._owners: dict[str, set[str]] = {}
        self._chars = 0
        self._facts: dict[str, Facts] = {}
        self._lock = Lock()

    def keep(self, owner: str, conversation: str, originals: Mapping[str, str]) -> None:
        """Hold texts under their references; the oldest go if there are too many."""
        with self._lock:
            for ref in originals:
                if ref not in self._texts:
                    self._texts[ref] = originals[ref]
                    self._chars += len(self._texts[ref])
                self._texts.move_to_end(ref)
                self._owners.setdefault(ref, set()).add(owner)
            while self._chars > self._max_chars and len(self._texts) > 1:
                ref, text = self._texts.popitem(last=False)
                self._chars -= len(text)
                del self._owners[ref]

    def original(self, ref: str, owner: str | None) -> str | None:
        """Return the text of a reference; None if this owner may not read it."""
        with self._lock:
            allowed = owner is None or owner in self._owners.get(ref, ())
            return self._texts.get(ref) if allowed else None

    def readable_refs(self, refs: Collection[str], owner: str | None) -> frozenset[str]:
        """Return the references that this owner can read."""
        return frozenset(ref for ref in refs if self.original(ref, owner) is not None)

    def facts(self, conversation: str) -> Facts:
        """Return the facts of a conversation."""
        return self._facts.get(conversation, _NO_FACTS)

    def add_facts(self, conversation: str, facts: Facts) -> None:
        """Add facts; those that are known stay."""
        with self._lock:
            self._facts[conversation] = self.facts(conversation).merge(facts)

    def claim(
        self, conversation: str, prefix: str, by: str, sent: SentRequest, facts: Facts
    ) -> bool:
        """Add the facts; no other process can have claimed the history."""
        self.add_facts(conversation, facts)
        return True

    def is_pinned(self, conversation: str) -> bool:
        """No conversation is pinned: nobody could ask for it."""
        return False

    def prior_requests(
        self, conversation: str, prefixes: Collection[str], after: int = 0
    ) -> PriorRequests:
        """No request was recorded before this process."""
        return PriorRequests()
