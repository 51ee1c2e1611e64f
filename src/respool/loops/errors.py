"""How often the same error came from the same target; a success in between does not clear it."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from .circle import MOST_MEMBERS, Limits, Moment, Round
from .seen import Asked, Seen
from .streaks import kept

_MOST_LINES: Final = 8  # different errors of one target
_REACH: Final = 60  # calls; an error that comes back later is another occasion


class _Error(Struct):
    """One error of one target."""

    first: Moment
    last: Moment
    why: str
    ordinals: list[int]
    count: int = 1
    still: int = 1  # of them, those with nothing changed since the one before
    told: int = 0  # how bad it was when it was last said


class Errors:
    """Counters of failures by target; each success on it takes one away, and no more."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[tuple[str, ...], dict[str, _Error]] = {}

    def foresee(self, asked: Asked, now: int, batch: int) -> Round | None:
        """What is known of the target before it is tried again: its most frequent error."""
        error = self._worst(asked, now)
        if error is None or error.last.batch == batch:
            return None
        return self._round(error, asked)

    def say(self, asked: Asked, now: int, fault: str | None = None) -> None:
        """What is known of the target has been said: of one fault, or of its most frequent one."""
        lines = self._open.get(asked.matter, {})
        error = self._worst(asked, now) if fault is None else lines.get(fault)
        if error is not None:
            error.told = max(error.told, self._worth(error))

    def note(self, seen: Seen, at: Moment) -> Round | None:
        """Take in a call with its result."""
        matter = seen.asked.matter
        if not seen.failed:
            self._ease(matter)
            return None
        lines = self._open.get(matter, {})
        kept(self._open, matter, lines)
        error = lines.get(seen.fault)
        if error is None or at.now - error.last.now > _REACH:
            lines.pop(seen.fault, None)
            lines[seen.fault] = _Error(at, at, seen.why, [at.ordinal])
            if len(lines) > _MOST_LINES:
                del lines[next(iter(lines))]
            return None
        if error.last.batch == at.batch:
            return None
        error.count += 1
        error.still = error.still + 1 if at.changes_before == error.last.changes_after else 1
        error.last = at
        if len(error.ordinals) < MOST_MEMBERS:
            error.ordinals.append(at.ordinal)
        return self._round(error, seen.asked)

    def _ease(self, matter: tuple[str, ...]) -> None:
        """Take one off every error of a target."""
        lines = self._open.get(matter)
        if lines is None:
            return
        for fault, error in [*lines.items()]:
            error.count -= 1
            error.still = min(error.still, error.count)
            if error.count <= 0:
                del lines[fault]
        if not lines:
            del self._open[matter]

    def _worst(self, asked: Asked, now: int) -> _Error | None:
        lines = self._open.get(asked.matter, {})
        near = [one for one in lines.values() if now - one.last.now <= _REACH]
        return max(near, key=lambda one: one.count, default=None)

    def _worth(self, error: _Error) -> int:
        """How bad an error is: a change in between makes each try a new attempt."""
        return max(self._limits.worth(error.count, loose=True), error.still)

    def _round(self, error: _Error, asked: Asked) -> Round:
        worth = self._worth(error)
        speaks = self._limits.speaks(worth, error.told)
        return Round(
            kind="error",
            circle=error.first.now,
            asked=asked,
            count=error.count,
            level=self._limits.level(worth),
            speaks=speaks,
            members=tuple(error.ordinals if speaks else error.ordinals[-1:]),
            why=error.why,
        )
