"""The calls of a conversation, one after the other, and the circles that they run."""

from __future__ import annotations

from typing import Final

from .circle import Limits, Moment, Round
from .cycles import Cycles
from .errors import Errors
from .seen import Asked, Seen
from .streaks import Repeats, Variations

_RANK: Final = {None: 0, "advise": 1, "insist": 2, "stop": 3}


class Watch:
    """Linear, and bounded in memory, whatever is called how often."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._now = 0
        self._changes = 0
        self._start()

    def _start(self) -> None:
        self._repeats = Repeats(self._limits)
        self._variations = Variations(self._limits)
        self._cycles = Cycles(self._limits)
        self._errors = Errors(self._limits)

    def heard(self) -> None:
        """The user said something: whatever is called now has another reason."""
        self._start()

    def foresee(self, asked: Asked, batch: int) -> Round | None:
        """The circle that this call would be a part of if it brought nothing new.

        One that is made at once with the last one is no answer to that one's result.
        """
        now, changes = self._now + 1, self._changes
        return self._cycles.foresee(asked) or _worst(
            self._repeats.foresee(asked, now, changes, batch),
            self._variations.foresee(asked, now, changes, batch),
            self._errors.foresee(asked, now, batch),
        )

    def note(self, seen: Seen, ordinal: int, batch: int, *, ahead: bool = False) -> Round | None:
        """Take in a call with its result, and tell which circle it is a part of, if any.

        `ahead`: what is to be said is said before a call, not after it.
        """
        if ahead:
            self._said(seen.asked, batch)
        self._now += 1
        before = self._changes
        self._changes += seen.wrote
        at = Moment(self._now, ordinal, batch, before, self._changes)
        cycle = self._cycles.note(seen, at)
        alone = _worst(
            self._repeats.note(seen, at),
            self._variations.note(seen, at),
            self._errors.note(seen, at),
        )
        found = cycle or alone  # each call of a cycle is repeated too, but that says less
        if not ahead and found is not None and found.level is not None:
            self._errors.say(seen.asked, self._now, seen.fault)
        return found

    def _said(self, asked: Asked, batch: int) -> None:
        """Note what is known to be bad since this call was asked about: it is not told twice."""
        told = self.foresee(asked, batch)
        if told is not None and told.level is not None:
            self._errors.say(asked, self._now + 1)


def _worst(*found: Round | None) -> Round | None:
    """The circle that is told of: the worst one; of equals the first, which says more."""
    circles = [one for one in found if one is not None]
    return max(circles, key=lambda one: _RANK[one.level], default=None)
