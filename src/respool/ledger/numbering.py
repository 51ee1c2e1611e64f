"""Numbers for hashes, in arrays: a conversation has too many lines and words for objects."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final

NONE: Final = 0  # the number of no hash
_FIRST: Final = 1 << 10  # slots; always a power of two
_SMALL: Final = 1 << 15  # slots, up to which growing seldom counts more than room
_FULL: Final = 0.6  # of the slots; beyond that, looking takes long


class Numbers:
    """Hashes numbered from 1 on, in the order they came; none is ever forgotten.

    A slot holds a number, and is found by the last bits of its hash or a little behind. While one
    thread adds, others may ask: the slots are exchanged as one, and a key comes before its slot.
    """

    def __init__(self) -> None:
        self._keys = array("q", [0])  # by number
        self._slots = array("I", [0]) * _FIRST
        self._most = int(_FIRST * _FULL)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def size_bytes(self) -> int:
        """Bytes that all this takes."""
        return held_by(self._keys, self._slots)

    def get(self, key: int) -> int:
        """The number of a hash; NONE: it has none."""
        keys, slots = self._keys, self._slots
        mask = len(slots) - 1
        at = key & mask
        while number := slots[at]:
            if keys[number] == key:
                return number
            at = (at + 1) & mask
        return NONE

    def numbers_of(self, keys: Iterable[int]) -> array[int]:
        """The numbers of these hashes, new ones for those that have none."""
        return array("I", list(map(self.number_of, keys)))

    def number_of(self, key: int) -> int:
        """The number of a hash; the next one if it has none."""
        # Looks as `get` does and is written out: it is asked for each word of a history, and the
        # place where the look ended is where a new number goes.
        keys, slots = self._keys, self._slots
        mask = len(slots) - 1
        at = key & mask
        while number := slots[at]:
            if keys[number] == key:
                return number
            at = (at + 1) & mask
        number = len(keys)
        keys.append(key)
        slots[at] = number
        if number >= self._most:
            self._grow()
        return number

    def _grow(self) -> None:
        more = 4 if len(self._slots) < _SMALL else 2
        slots = array("I", [0]) * (more * len(self._slots))  # from bytes there would be two copies
        for number, key in enumerate(self._keys):
            if number != NONE:
                _place(slots, number, key)
        self._slots, self._most = slots, int(len(slots) * _FULL)


def _place(slots: array[int], number: int, key: int) -> None:
    """Put a number into the first free slot for its hash."""
    mask = len(slots) - 1
    at = key & mask
    while slots[at]:
        at = (at + 1) & mask
    slots[at] = number


def held_by(*arrays: array[int] | bytearray) -> int:
    """Bytes that these take, room to grow included."""
    return sum([one.__sizeof__() for one in arrays])
