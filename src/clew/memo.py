"""What earlier requests taught: it only makes the next one faster, and is bounded."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from msgspec import Struct

from .state import State

Key = bytes


class _Entry(Struct, frozen=True):
    state: State
    parent: Key | None
    size: int


class Memo:
    """States of the fold by the hash of the prefix that led to them; safe to share by threads."""

    def __init__(self, most: int = 256, most_characters: int = 256_000_000) -> None:
        self._most = most
        self._most_characters = most_characters
        self._characters = 0
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> State | None:
        """The state after this prefix; the caller copies it before extending it."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry.state

    def put(self, key: Key, state: State, parent: Key | None, size: int) -> None:
        """Keep a state, and let go of its grandparent: a conversation needs its last two."""
        with self._lock:
            self._drop(key)
            known = self._entries.get(parent) if parent is not None else None
            if known is not None and known.parent not in (None, key):
                self._drop(known.parent)
            self._entries[key] = _Entry(state, parent, size)
            self._characters += size
            while len(self._entries) > 1 and self._is_full():
                self._drop(next(iter(self._entries)))

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self._characters = 0

    def _is_full(self) -> bool:
        return len(self._entries) > self._most or self._characters > self._most_characters

    def _drop(self, key: Key | None) -> None:
        entry = self._entries.pop(key, None) if key is not None else None
        if entry is not None:
            self._characters -= entry.size
