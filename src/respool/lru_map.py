"""LRU map of values that are made when they are missing, for several threads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruMap(Generic[K, V]):
    """Values by key; of too many the least recently used one is dropped.

    >>> lengths = LruMap[str, int](2)
    >>> [lengths.get_or_make(word, lambda: len(word)) for word in ("a", "bb", "a", "ccc")]
    [1, 2, 1, 3]
    >>> lengths.values()
    [1, 3]
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = Lock()

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key; made once, while other threads wait, if it is missing."""
        with self._lock:
            if key not in self._values:
                self._values[key] = make()
                if len(self._values) > self._max_size:
                    self._values.popitem(last=False)
            self._values.move_to_end(key)
            return self._values[key]

    def values(self) -> list[V]:
        """All values, the least recently used first."""
        with self._lock:
            return list(self._values.values())
