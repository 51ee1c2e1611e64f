"""A conversation in one format: whole, broken and request by request, drawn once for all laws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from respool.compaction.memo import Memo
from respool.engine import Compaction
from respool.policy import Policy
from tests.strategies import FORMATS, HISTORY, conversations, render
from tests.strategies.breaking import damaged
from tests.strategies.neutral import moments

from .subject import IDLE, Compact


@dataclass(frozen=True)
class Example:
    """Example that the laws are checked against. `number` follows from the conversation alone."""

    format: str
    number: int
    whole: Any
    broken: Any
    growing: Sequence[Any]

    def rotated(self, names: Sequence[str], formats: int = 1) -> list[str]:
        """The names whose turn it is: each conversation meets each in so many of the formats."""
        here = FORMATS.index(self.format)
        turns = ((self.number + at + here) % len(FORMATS) for at in range(len(names)))
        return [name for name, turn in zip(names, turns, strict=True) if turn < formats]


@st.composite
def examples(draw: DrawFn, format: str) -> Example:
    """Conversations whose history is a list. The same ones are drawn in every format."""
    conversation = draw(conversations())
    whole = render(format, conversation)
    _, broken = draw(damaged(st.just(whole), format))
    growing = [render(format, moment) for moment in moments(conversation)]
    growing = growing if is_listed(growing[-1]) else []
    return Example(format, crc32(repr(conversation).encode()), whole, broken, growing)


def is_listed(request: Any) -> bool:
    """Return whether the history is a list: a string is no history of calls."""
    return all(not isinstance(request.get(field), str) for field in set(HISTORY.values()))


class Once:
    """A compactor that compacts each request once, so that all laws look at one compaction.

    With a memo it compacts each time: what is remembered is what such a law is about.
    """

    def __init__(self, compact: Compact, idle: dict[Any, Compaction[Any]]) -> None:
        """`idle` holds what comes out with nothing to do, which is the same for all passes."""
        self._compact = compact
        self._idle = idle
        self._done: dict[Any, Compaction[Any]] = {}

    def __call__(
        self, request: Any, *, policy: Policy | None = None, memo: Memo | None = None
    ) -> Compaction[Any]:
        if memo is not None or not (policy is None or policy is IDLE):
            return self._compact(request, policy=policy, memo=memo)
        done = self._done if policy is None else self._idle
        key = request if isinstance(request, bytes) else id(request)
        if key not in done:
            done[key] = self._compact(request, policy=policy)
        return done[key]
