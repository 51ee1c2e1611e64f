"""Facts that wait for the store, where all processes that serve one port see them.

While the store cannot be written to, no process can tell another by it what went up. So each has a
stretch of memory that all of them read and it alone writes. One that dies leaves what stands there
to the one that takes its place.
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

_STRETCH: Final = 128 * 1024  # bytes of one process: the facts of some hundred conversations
_HEAD: Final = 12  # bytes before them: their length, and a hash that tells whether they are whole
_TRIES: Final = 50  # to read what is being written just then

Memory = Any  # an array that processes share; `multiprocessing` has no name for its type


class Waiting(Struct, frozen=True):
    """The facts of one conversation that the store has yet to hear of."""

    owner: str
    facts: Facts


_NONE: Final[Mapping[str, Waiting]] = {}


def memory_for(processes: int) -> Memory:
    """Room for so many processes; may be handed to them when they are started."""
    return sharedctypes.RawArray(ctypes.c_char, _STRETCH * processes)


class Board:
    """What waits in each of several processes; of them, this is the one with number `row`."""

    def __init__(self, memory: Memory, row: int) -> None:
        self._memory = memory
        self._row = row
        self._seen: dict[int, tuple[bytes, Mapping[str, Waiting]]] = {}  # by process: head, content

    def put(self, waiting: Mapping[str, Waiting]) -> None:
        """Let all see what waits here now; the oldest that there is no room for is left out."""
        pieces: list[bytes] = []
        left = _STRETCH - _HEAD - 2
        for name, one in reversed(list(waiting.items())):
            told = [one.owner, one.facts.to_dict()]
            piece = msgspec.json.encode(name) + b":" + msgspec.json.encode(told)
            left -= len(piece) + 1
            if left < 0:
                break
            pieces.append(piece)
        content = b"{" + b",".join(pieces) + b"}"
        at = self._row * _STRETCH
        self._memory[at : at + _HEAD + len(content)] = _head(content) + content

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
        """What a process has put there; what was read of it before, where it is never whole."""
        before, known = self._seen.get(row, (bytes(_HEAD), _NONE))
        at = row * _STRETCH
        for _ in range(_TRIES):
            head: bytes = self._memory[at : at + _HEAD]
            if head == before:
                break
            end = at + _HEAD + min(int.from_bytes(head[8:]), _STRETCH - _HEAD)
            content: bytes = self._memory[at + _HEAD : end]
            if _head(content) == head:
                known = _content(content)
                self._seen[row] = (head, known)
                break
        return known


def _head(content: bytes) -> bytes:
    return xxhash.xxh3_64_digest(content) + len(content).to_bytes(4)


def _content(content: bytes) -> Mapping[str, Waiting]:
    told: dict[str, Any] = msgspec.json.decode(content)
    return {name: Waiting(owner, Facts.from_dict(facts)) for name, (owner, facts) in told.items()}
