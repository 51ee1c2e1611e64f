"""Calls that are alike and bring nothing new: the same again, or with one word changed."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, TypeVar

from msgspec import Struct

from .circle import MOST_MEMBERS, Kind, Limits, Moment, Round
from .seen import Asked, Seen, lines_in, variation

REACH: Final = 30  # calls; one that comes back later is another occasion
_MOST: Final = 256  # that may be open at once; the oldest is forgotten
_VARIED: Final = 2  # variations from which on it is no plain repeat
_FOUND: Final = 40  # characters; a shorter result may say that there is nothing
_MOST_LINES: Final = 2_000  # that are remembered of what variations showed

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class _Streak(Struct):
    """Calls that are alike, since something changed."""

    first: Moment
    last: Moment
    seen: Seen  # the last of them
    ordinals: list[int]  # of their exchanges
    count: int = 1
    lines: frozenset[int] = frozenset()  # what all of them showed
    varied: int = 0

    def loop_call(self, limits: Limits, kind: Kind, count: int, call: Asked) -> Round:
        """The round that the call of this number is."""
        exact, waits = kind == "repeat", self.seen.is_waiting
        sure = exact and self.seen.is_rejected  # then one call less tells as much
        worth, before = (
            limits.weigh(number + sure, loose=not exact, waits=waits)
            for number in (count, count - 1)
        )
        speaks = limits.should_speak(worth, before)
        return Round(
            kind=kind,
            loop=self.first.now,
            call=call,
            count=count,
            level=limits.level(worth),
            should_speak=speaks,
            members=tuple(self.ordinals if speaks else self.ordinals[-1:]),
            error=self.seen.error,
            is_waiting=waits,
            is_exact=exact,
        )

    def add(self, observed: Seen, at: Moment) -> None:
        """One more of them."""
        self.count += 1
        self.last, self.seen = at, observed
        if len(self.ordinals) < MOST_MEMBERS:
            self.ordinals.append(at.ordinal)

    def can_continue(self, now: int, changes: int) -> bool:
        """Whether a call that comes now can belong to it: nobody else changed anything since."""
        return now - self.last.now <= REACH and changes == self.last.changes_after


def kept(table: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Keep a value as the newest of its table; the oldest goes when it is full."""
    table.pop(key, None)
    table[key] = value
    if len(table) > _MOST:
        del table[next(iter(table))]


class Repeats:
    """The same call with the same result."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[tuple[str, str], _Streak] = {}

    def predict(self, call: Asked, now: int, changes: int, batch: int) -> Round | None:
        """What the call is if its result is the same again."""
        streak = self._open.get(call.repeat_key)
        if streak is None or streak.last.batch == batch or not streak.can_continue(now, changes):
            return None
        return streak.loop_call(self._limits, "repeat", streak.count + 1, call)

    def note(self, observed: Seen, at: Moment) -> Round | None:
        """Take in a call with its result."""
        call = observed.call.repeat_key
        streak = self._open.get(call)
        if streak is None or not self._is_repeat(streak, observed, at):
            if observed.is_informative:
                kept(self._open, call, _Streak(at, at, observed, [at.ordinal]))
            else:
                self._open.pop(call, None)
            return None
        kept(self._open, call, streak)
        if streak.last.batch == at.batch:  # the model had not seen the other's result
            streak.last, streak.seen = at, observed
            return None
        streak.add(observed, at)
        return streak.loop_call(self._limits, "repeat", streak.count, observed.call)

    def _is_repeat(self, streak: _Streak, observed: Seen, at: Moment) -> bool:
        same = streak.seen.has_same_result(observed)
        return same and observed.is_informative and streak.can_continue(at.now, at.changes_before)


class Variations:
    """Calls that differ in one word, and whose results show nothing new."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[tuple[str, ...], _Streak] = {}

    def predict(self, call: Asked, now: int, changes: int, batch: int) -> Round | None:
        """What the call is if it shows nothing new."""
        streak = self._open.get(call.variation_key)
        if streak is None or streak.count < 2 or not streak.can_continue(now, changes):
            return None
        if streak.last.batch == batch:
            return None
        if variation(streak.seen.call.words, call.words) is None:
            return None
        return streak.loop_call(self._limits, "variation", streak.count + 1, call)

    def note(self, observed: Seen, at: Moment) -> Round | None:
        """Take in a call with its result."""
        group = observed.call.variation_key
        streak = self._open.get(group)
        if not _can_vary(observed):
            self._open.pop(group, None)
            return None
        if streak is not None and streak.last.batch == at.batch:
            return None
        lines = None if streak is None else self._shown_lines(streak, observed, at)
        if streak is None or lines is None:
            kept(self._open, group, _Streak(at, at, observed, [at.ordinal]))
            return None
        streak.varied += streak.seen.call.words != observed.call.words
        streak.lines = lines
        streak.add(observed, at)
        kept(self._open, group, streak)
        if streak.varied < _VARIED:
            return None
        return streak.loop_call(self._limits, "variation", streak.count, observed.call)

    def _shown_lines(self, streak: _Streak, observed: Seen, at: Moment) -> frozenset[int] | None:
        """What the calls have shown by now, if this one added nothing to it; else None."""
        before = streak.seen
        ended = before.failed == observed.failed and before.is_waiting == observed.is_waiting
        if not ended or not streak.can_continue(at.now, at.changes_before):
            return None
        varied = variation(before.call.words, observed.call.words)
        if varied is None:
            return streak.lines if before.has_same_result(observed) else None
        if not observed.failed and before.call.use.reads != observed.call.use.reads:
            return None  # it reads on
        known = streak.lines | lines_in(before.text, varied[0])
        if len(known) > _MOST_LINES or not lines_in(observed.text, varied[1]) <= known:
            return None
        return known


def _can_vary(observed: Seen) -> bool:
    """Whether a call with one word changed may be the same attempt.

    Not one that wrote: it did another thing. Not one without a target: it may be about another.
    Not a search, nor what shows hardly anything: that there is nothing is news, for each word. Nor
    one whose result is too long to be compared line by line.
    """
    use = observed.call.use
    found = observed.failed or (use.kind != "search" and len(observed.text) >= _FOUND)
    told = use.target is not None and bool(observed.call.words)
    return told and found and not observed.has_written and not observed.is_long
