"""Which of the things seen before a step its repair looked at: only those need to be kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .rules import Seen


class _Watched(dict[str, int]):
    """A dict that reads from another one and remembers which keys were asked for."""

    def __init__(self, source: dict[str, int]) -> None:
        super().__init__()
        self._source = source
        self._read_keys: set[str] = set()
        self._is_all_read = False  # whether it was gone through, in its order

    def __contains__(self, key: object) -> bool:
        self._read_keys.add(str(key))
        return key in self._source

    def __getitem__(self, key: str) -> int:
        self._read_keys.add(key)
        return self._source[key]

    def get(self, key: str, default: Any = None) -> Any:
        self._read_keys.add(key)
        return self._source.get(key, default)

    def __iter__(self) -> Iterator[str]:
        self._is_all_read = True
        return iter(self._source)

    def __len__(self) -> int:
        self._is_all_read = True
        return len(self._source)

    def keys(self) -> Any:
        self._is_all_read = True
        return self._source.keys()

    def values(self) -> Any:
        self._is_all_read = True
        return self._source.values()

    def items(self) -> Any:
        self._is_all_read = True
        return self._source.items()

    def copy(self) -> dict[str, int]:
        self._is_all_read = True
        return self._source.copy()

    def read_entries(self) -> dict[str, int]:
        """The entries that were asked for and are there; all, in their order, where that counts."""
        if self._is_all_read:
            return self._source.copy()
        return {key: self._source[key] for key in self._read_keys if key in self._source}


def watched(state: Seen) -> Seen:
    """The same as `seen`, for reading once, remembering what is read."""
    return Seen(_Watched(state.call_counts), _Watched(state.item_rows), _Watched(state.open_calls), state.pending_rows)


def what_was_seen(state: Seen) -> Seen:
    """What was read of a watched value; rows serve only the end of a history."""
    found = [
        one.read_entries() if isinstance(one, _Watched) else one.copy()
        for one in (state.call_counts, state.item_rows, state.open_calls)
    ]
    return Seen(found[0], found[1], found[2], {})
