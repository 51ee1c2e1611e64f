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

    def reset(self) -> None:
        """The user said something: whatever is called now has another reason."""
        self._start()

    def predict(self, call: Asked, batch: int) -> Round | None:
        """The circle that this call would be a part of if it brought nothing new.

        One that is made at once with the last one is no answer to that one's result.
        """
        now, changes = self._now + 1, self._changes
        return self._cycles.predict(call) or _worst(
            self._repeats.predict(call, now, changes, batch),
            self._variations.predict(call, now, changes, batch),
            self._errors.predict(call, now, batch),
        )

    def note(self, observed: Seen, ordinal: int, batch: int, *, ahead: bool = False) -> Round | None:
        """Take in a call with its result, and tell which circle it is a part of, if any.

        `ahead`: what is to be said is said before a call, not after it.
        """
        if ahead:
            self._note_advised(observed.call, batch)
        self._now += 1
        before = self._changes
        self._changes += observed.has_written
        at = Moment(self._now, ordinal, batch, before, self._changes)
        cycle = self._cycles.note(observed, at)
        alone = _worst(
            self._repeats.note(observed, at),
            self._variations.note(observed, at),
            self._errors.note(observed, at),
        )
        found = cycle or alone  # each call of a cycle is repeated too, but that says less
        if not ahead and found is not None and found.level is not None:
            self._errors.note_advice(observed.call, self._now, observed.failure_key)
        return found

    def _note_advised(self, call: Asked, batch: int) -> None:
        """Note what is known to be bad since this call was asked about: it is not told twice."""
        told = self.predict(call, batch)
        if told is not None and told.level is not None:
            self._errors.note_advice(call, self._now + 1)


def _worst(*found: Round | None) -> Round | None:
    """The circle that is told of: the worst one; of equals the first, which says more."""
    circles = [one for one in found if one is not None]
    return max(circles, key=lambda one: _RANK[one.level], default=None)
