"""All circles of a whole history, each with its calls and when it would have been told."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ..ledger.ledger import Ledger
from ..transcript import History
from .circle import Kind, Level, Limits, Round
from .walk import Walk
from .words import told


class Circle(Struct, frozen=True, kw_only=True):
    """Calls that went round in a circle, of which the detector would have spoken."""

    kind: Kind
    tool: str
    operation: str
    target: str | None
    calls: tuple[int, ...]  # the exchanges, in their order
    repeated: tuple[int, ...]  # of them, those behind the first lap: what was for nothing
    advised: tuple[int, ...]  # the exchanges at whose results it would have spoken
    level: Level  # how far it came
    count: int  # calls, or laps of a cycle, as it was last told
    message: str  # what was said last

    @property
    def advised_after(self) -> int:
        """After how many of the calls the detector would first have spoken."""
        return sum(one <= self.advised[0] for one in self.calls)


def circles_in(history: History, ledger: Ledger, limits: Limits | None = None) -> list[Circle]:
    """The circles of a history that the ledger has been told of, in the order they began."""
    walk = Walk(limits or Limits())
    walk.extend(history, ledger)
    return grouped(walk.loop_calls)


def grouped(rounds: Mapping[int, Round]) -> list[Circle]:
    """Rounds put together to the circles that they are parts of; only those that are told."""
    by_circle: dict[tuple[str, int], dict[int, Round]] = {}
    for ordinal, one in sorted(rounds.items()):
        by_circle.setdefault((one.kind, one.loop), {})[ordinal] = one
    circles = [_circle(of) for of in by_circle.values() if any(one.should_speak for one in of.values())]
    return sorted(circles, key=lambda one: one.calls)


def _circle(rounds: Mapping[int, Round]) -> Circle:
    spoke = [ordinal for ordinal, one in rounds.items() if one.should_speak]
    last = rounds[spoke[-1]]
    calls = sorted({ordinal for one in rounds.values() for ordinal in one.members})
    return Circle(
        kind=last.kind,
        tool=last.tool,
        operation=last.operation,
        target=last.target,
        calls=tuple(calls),
        repeated=tuple(calls[max(1, len(last.lap)) :]),
        advised=tuple(spoke),
        level=last.level or "advise",
        count=last.count,
        message=told(last),
    )
