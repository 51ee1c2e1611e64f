"""Facts that wait for the store, where all processes that serve one port see them.

While the store cannot be written to, no process can tell another by it what went up. So each has a
stretch of memory that all of them read and it alone writes. One that dies leaves what stands there
to the one that takes its place. It writes into one half of it and into the other in turn: whenever
it dies, one of them is whole.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from multiprocessing import sharedctypes
from typing import Any, Final

import msgspec
import xxhash
from msgspec import Struct

from ...facts import Facts

_HALF: Final = 128 * 1024  # bytes: the facts of some hundred conversations
_STRETCH: Final = 2 * _HALF  # of one process
_NUMBER: Final = 8  # bytes: how often it was written; the half with the higher one counts
_HEAD: Final = _NUMBER + 12  # with a hash that tells whether the facts are whole, and their length
_LEAST: Final = 128  # bytes: no conversation takes less
_TRIES: Final = 50  # to read what is written over just then

Memory = Any  # an array that processes share; `multiprocessing` has no name for its type


class Waiting(Struct, frozen=True):
    """The facts of one conversation that the store has yet to hear of."""

    owner: str
    facts: Facts


_NOTHING: Final[tuple[bytes, Mapping[str, Waiting]]] = (bytes(_HEAD), {})


def memory_for(processes: int) -> Memory:
    """Room for so many processes; may be handed to them when they are started."""
    return sharedctypes.RawArray(ctypes.c_char, _STRETCH * processes)


class Board:
    """What waits in each of several processes; of them, this is the one with number `row`."""

    def __init__(self, memory: Memory, row: int) -> None:
        self._memory = memory
        self._row = row
        self._seen: dict[int, tuple[bytes, Mapping[str, Waiting]]] = {}  # by process: head, content
        self._read(row)
        self._number = _number(self._seen.get(row, _NOTHING)[0])

    def put(self, waiting: Mapping[str, Waiting]) -> None:
        """Let all see what waits here now; the oldest that there is no room for is left out."""
        content = b"{" + b",".join(_pieces(waiting)) + b"}"
        number = self._number + 1
        at = self._row * _STRETCH + number % 2 * _HALF
        self._memory[at : at + _HEAD + len(content)] = _head(number, content) + content
        self._number = number

    def own(self) -> Mapping[str, Waiting]:
        """What stands in this process's own stretch: at its start, what one that died had there."""
        return self._read(self._row)

    def facts(self, conversation: str) -> Facts | None:
        """What waits in other processes of what holds for a conversation; None: nothing does."""
        found = [one.facts for one in self._of_others(conversation)]
        if not found:
            return None
        facts = found[0]
        for other in found[1:]:
            facts = facts.merge(other)
        return facts

    def _of_others(self, conversation: str) -> Iterator[Waiting]:
        for row in range(len(self._memory) // _STRETCH):
            if row != self._row:
                found = self._read(row).get(conversation)
                if found is not None:
                    yield found

    def _read(self, row: int) -> Mapping[str, Waiting]:
        """What a process has put there last; what was read of it before, where none is whole."""
        seen, known = self._seen.get(row, _NOTHING)
        for _ in range(_TRIES):
            for head, at in sorted(self._halves(row), reverse=True):
                if head == seen:
                    return known
                end = at + _HEAD + min(int.from_bytes(head[-4:]), _HALF - _HEAD)
                content: bytes = self._memory[at + _HEAD : end]
                if _head(_number(head), content) == head:
                    self._seen[row] = (head, _content(content))
                    return self._seen[row][1]
        return known

    def _halves(self, row: int) -> Iterator[tuple[bytes, int]]:
        for at in (row * _STRETCH, row * _STRETCH + _HALF):
            yield self._memory[at : at + _HEAD], at


def _pieces(waiting: Mapping[str, Waiting]) -> Iterator[bytes]:
    """The members of an object, as many as there is room for, the latest first."""
    left = _HALF - _HEAD - 2
    for name, one in reversed(list(waiting.items())):
        told = [one.owner, one.facts.to_dict()]
        piece = msgspec.json.encode(name) + b":" + msgspec.json.encode(told)
        if len(piece) < left:
            left -= len(piece) + 1
            yield piece
        if left < _LEAST:
            return


def _number(head: bytes) -> int:
    return int.from_bytes(head[:_NUMBER])


def _head(number: int, content: bytes) -> bytes:
    told = xxhash.xxh3_64_digest(content, seed=number)
    return number.to_bytes(_NUMBER) + told + len(content).to_bytes(4)


def _content(content: bytes) -> Mapping[str, Waiting]:
    told: dict[str, Any] = msgspec.json.decode(content)
    return {name: Waiting(owner, Facts.from_dict(facts)) for name, (owner, facts) in told.items()}
