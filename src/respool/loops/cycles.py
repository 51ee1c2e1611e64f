"""Several calls in the same order, lap after lap, with the same results."""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct

from .circle import Limits, Moment, Round
from .seen import Asked, Seen

LONGEST: Final = 8  # calls in a lap
_TWICE: Final = 2


class _Step(Struct, frozen=True):
    """One call of a lap."""

    seen: Seen
    at: Moment

    def equals(self, other: _Step) -> bool:
        """Whether it is the same call with the same result."""
        one, two = self.seen, other.seen
        return one.has_same_result(two) and one.call.repeat_key == two.call.repeat_key


class Cycles:
    """For every length of a lap: how many calls in a row equal those one lap before."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._steps: deque[_Step] = deque(maxlen=_TWICE * LONGEST)
        self._same = [0] * (LONGEST + 1)

    def predict(self, call: Asked) -> Round | None:
        """What the call is if it goes on with the lap."""
        lap = self._lap()
        if lap is None or self._steps[-lap].seen.call.repeat_key != call.repeat_key:
            return None
        return self._loop_call(lap, self._same[lap] + 1, call, ())

    def note(self, observed: Seen, at: Moment) -> Round | None:
        """Take in a call with its result."""
        step = _Step(observed, at)
        for lap in range(1, LONGEST + 1):
            again = len(self._steps) >= lap and step.equals(self._steps[-lap])
            self._same[lap] = self._same[lap] + 1 if again else 0
        self._steps.append(step)
        lap = self._lap()
        if lap is None:
            return None
        same = self._same[lap]
        steps = list(self._steps)[-_TWICE * lap :] if same == lap else [step]
        return self._loop_call(lap, same, observed.call, tuple(one.at.ordinal for one in steps))

    def _lap(self) -> int | None:
        """The shortest lap that was run twice, of several calls that show if anything changed."""
        if self._same[1] >= _TWICE:
            return None  # one call after itself is a repeat
        for lap in range(2, LONGEST + 1):
            if self._same[lap] >= lap:
                steps = list(self._steps)[-lap:]
                return lap if any(one.seen.is_informative for one in steps) else None
        return None

    def _loop_call(self, lap: int, same: int, call: Asked, members: tuple[int, ...]) -> Round:
        """The circle after so many calls that equal those one lap before."""
        steps = [one.seen for one in list(self._steps)[-lap:]]
        laps, waits = same // lap + 1, any(one.is_waiting for one in steps)
        worth, before = (self._limits.weigh(count, waits=waits) for count in (laps, laps - 1))
        return Round(
            kind="cycle",
            loop=self._steps[-1].at.now - self._same[lap],
            call=call,
            count=laps,
            level=self._limits.level(worth),
            should_speak=same % lap == 0 and self._limits.should_speak(worth, before),
            members=members,
            is_waiting=waits,
            is_exact=True,
            lap=tuple(one.call for one in steps),
        )
