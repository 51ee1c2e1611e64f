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
    error: str
    ordinals: list[int]
    count: int = 1
    unchanged: int = 1  # of them, those with nothing changed since the one before
    advised_weight: int = 0  # how bad it was when it was last said


class Errors:
    """Counters of failures by target; each success on it takes one away, and no more."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[tuple[str, ...], dict[str, _Error]] = {}

    def predict(self, call: Asked, now: int, batch: int) -> Round | None:
        """What is known of the target before it is tried again: its most frequent error."""
        error = self._worst(call, now)
        if error is None or error.last.batch == batch:
            return None
        return self._loop_call(error, call)

    def note_advice(self, call: Asked, now: int, fault: str | None = None) -> None:
        """What is known of the target has been said: of one fault, or of its most frequent one."""
        lines = self._open.get(call.failure_key, {})
        error = self._worst(call, now) if fault is None else lines.get(fault)
        if error is not None:
            error.advised_weight = max(error.advised_weight, self._weigh(error))

    def note(self, observed: Seen, at: Moment) -> Round | None:
        """Take in a call with its result."""
        matter = observed.call.failure_key
        if not observed.failed:
            self._decrement(matter)
            return None
        lines = self._open.get(matter, {})
        kept(self._open, matter, lines)
        error = lines.get(observed.failure_key)
        if error is None or at.now - error.last.now > _REACH:
            lines.pop(observed.failure_key, None)
            lines[observed.failure_key] = _Error(at, at, observed.error, [at.ordinal])
            if len(lines) > _MOST_LINES:
                del lines[next(iter(lines))]
            return None
        if error.last.batch == at.batch:
            return None
        error.count += 1
        error.unchanged = error.unchanged + 1 if at.changes_before == error.last.changes_after else 1
        error.last = at
        if len(error.ordinals) < MOST_MEMBERS:
            error.ordinals.append(at.ordinal)
        return self._loop_call(error, observed.call)

    def _decrement(self, matter: tuple[str, ...]) -> None:
        """Take one off every error of a target."""
        lines = self._open.get(matter)
        if lines is None:
            return
        for fault, error in [*lines.items()]:
            error.count -= 1
            error.unchanged = min(error.unchanged, error.count)
            if error.count <= 0:
                del lines[fault]
        if not lines:
            del self._open[matter]

    def _worst(self, call: Asked, now: int) -> _Error | None:
        lines = self._open.get(call.failure_key, {})
        near = [one for one in lines.values() if now - one.last.now <= _REACH]
        return max(near, key=lambda one: one.count, default=None)

    def _weigh(self, error: _Error) -> int:
        """How bad an error is: a change in between makes each try a new attempt."""
        return max(self._limits.weigh(error.count, loose=True), error.unchanged)

    def _loop_call(self, error: _Error, call: Asked) -> Round:
        worth = self._weigh(error)
        speaks = self._limits.should_speak(worth, error.advised_weight)
        return Round(
            kind="error",
            loop=error.first.now,
            call=call,
            count=error.count,
            level=self._limits.level(worth),
            should_speak=speaks,
            members=tuple(error.ordinals if speaks else error.ordinals[-1:]),
            error=error.error,
        )
