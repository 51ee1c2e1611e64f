"""What goes up and what providers took of late, where all processes that serve one port see it.

A record is written some tenths of a second after its answer, or minutes where the store is locked.
The next request of a conversation may be at another process by then, and must know what it goes on
from. So each process has a ring of memory that all of them read and it alone writes.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict, deque
from collections.abc import Iterator
from multiprocessing import sharedctypes
from threading import Lock
from typing import Any, Final

import msgspec
import xxhash
from msgspec import Struct

from ...store import ParentRequest

_SLOTS: Final = 512  # requests of one process; those before are in the store, as a rule
_SLOT: Final = 512  # bytes of one; what is longer, for the name of its model, the store tells
_COUNT: Final = 8  # bytes: how many were written so far
_HEAD: Final = 10  # bytes of a slot: a hash that tells whether it is whole, and the length
_ROW: Final = _COUNT + _SLOTS * _SLOT
_MOST_HELD: Final = 2_048  # conversations nobody has asked for here yet
_MOST_OF_ONE: Final = 64  # requests of one of them; those before are in the store, as a rule

Ring = Any  # an array that processes share; `multiprocessing` has no name for its type


class Taken(Struct, frozen=True, array_like=True):
    """A request that the provider took, or one that is about to be sent."""

    conversation: str
    prefix: str  # the hash of the history that it ended
    parent: str  # of that which it goes on from
    latest: ParentRequest
    edited: bool = False  # projections were sent that say less than the client holds
    going_up: bool = False  # a projection of it is; nothing else is told of it yet


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Taken).decode


def ring_for(processes: int) -> Ring:
    """Room for so many processes; may be handed to them when they are started."""
    return sharedctypes.RawArray(ctypes.c_char, _ROW * processes)


class Journal:
    """What each of several processes sent; of them, this is the one with number `row`."""

    def __init__(self, ring: Ring, row: int) -> None:
        self._ring = memoryview(ring).cast("B")
        self._row = row
        self._read = [0] * (len(self._ring) // _ROW)  # of each process, how many are read
        self._held: OrderedDict[str, deque[Taken]] = OrderedDict()
        self._lock = Lock()

    def note(self, taken: Taken) -> None:
        """Let all see that a request was taken, or is about to be sent."""
        content = _encode(taken)
        if len(content) > _SLOT - _HEAD:
            return
        with self._lock:
            count = self._count(self._row)
            at = _place(self._row, count)
            head = _head(count, content)
            self._ring[at : at + len(head) + len(content)] = head + content
            start = self._row * _ROW
            self._ring[start : start + _COUNT] = (count + 1).to_bytes(_COUNT)

    def of(self, conversation: str) -> list[Taken]:
        """What is new of a conversation since this was last asked: each is told once."""
        with self._lock:
            for row in range(len(self._read)):
                for taken in self._new(row):
                    self._hold(taken)
            return list(self._held.pop(conversation, ()))

    def _hold(self, taken: Taken) -> None:
        held = self._held.setdefault(taken.conversation, deque(maxlen=_MOST_OF_ONE))
        held.append(taken)
        self._held.move_to_end(taken.conversation)
        if len(self._held) > _MOST_HELD:
            self._held.popitem(last=False)

    def _new(self, row: int) -> Iterator[Taken]:
        """What a process has written since; at the start also what one that died had, here too."""
        count = self._count(row)
        for number in range(max(self._read[row], count - _SLOTS), count):
            taken = self._slot(row, number)
            if taken is None and self._count(row) - number < _SLOTS:
                self._read[row] = number  # counted, and not to be seen yet: memory has its own pace
                return
            if taken is not None:
                yield taken
        self._read[row] = count

    def _slot(self, row: int, number: int) -> Taken | None:
        """What stands where this request was written; None: it is not there, or no longer."""
        at = _place(row, number)
        head = bytes(self._ring[at : at + _HEAD])
        length = min(int.from_bytes(head[8:]), _SLOT - _HEAD)
        content = bytes(self._ring[at + _HEAD : at + _HEAD + length])
        return _decode(content) if _head(number, content) == head else None

    def _count(self, row: int) -> int:
        return int.from_bytes(self._ring[row * _ROW : row * _ROW + _COUNT])


def _place(row: int, number: int) -> int:
    return row * _ROW + _COUNT + number % _SLOTS * _SLOT


def _head(number: int, content: bytes) -> bytes:
    """Says of which request it is, too: a slot is used again and again."""
    return xxhash.xxh3_64_digest(content, seed=number) + len(content).to_bytes(2)
