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

    def round(self, limits: Limits, kind: Kind, count: int, asked: Asked) -> Round:
        """The round that the call of this number is."""
        exact, waits = kind == "repeat", self.seen.waits
        sure = exact and self.seen.void  # then one call less tells as much
        worth, before = (
            limits.worth(number + sure, loose=not exact, waits=waits)
            for number in (count, count - 1)
        )
        speaks = limits.speaks(worth, before)
        return Round(
            kind=kind,
            circle=self.first.now,
            asked=asked,
            count=count,
            level=limits.level(worth),
            speaks=speaks,
            members=tuple(self.ordinals if speaks else self.ordinals[-1:]),
            why=self.seen.why,
            waits=waits,
            exact=exact,
        )

    def go_on(self, seen: Seen, at: Moment) -> None:
        """One more of them."""
        self.count += 1
        self.last, self.seen = at, seen
        if len(self.ordinals) < MOST_MEMBERS:
            self.ordinals.append(at.ordinal)

    def goes_on(self, now: int, changes: int) -> bool:
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

    def foresee(self, asked: Asked, now: int, changes: int, batch: int) -> Round | None:
        """What the call is if its result is the same again."""
        streak = self._open.get(asked.call)
        if streak is None or streak.last.batch == batch or not streak.goes_on(now, changes):
            return None
        return streak.round(self._limits, "repeat", streak.count + 1, asked)

    def note(self, seen: Seen, at: Moment) -> Round | None:
        """Take in a call with its result."""
        call = seen.asked.call
        streak = self._open.get(call)
        if streak is None or not self._is_again(streak, seen, at):
            if seen.tells:
                kept(self._open, call, _Streak(at, at, seen, [at.ordinal]))
            else:
                self._open.pop(call, None)
            return None
        kept(self._open, call, streak)
        if streak.last.batch == at.batch:  # the model had not seen the other's result
            streak.last, streak.seen = at, seen
            return None
        streak.go_on(seen, at)
        return streak.round(self._limits, "repeat", streak.count, seen.asked)

    def _is_again(self, streak: _Streak, seen: Seen, at: Moment) -> bool:
        same = streak.seen.says_the_same(seen)
        return same and seen.tells and streak.goes_on(at.now, at.changes_before)


class Variations:
    """Calls that differ in one word, and whose results show nothing new."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[tuple[str, ...], _Streak] = {}

    def foresee(self, asked: Asked, now: int, changes: int, batch: int) -> Round | None:
        """What the call is if it shows nothing new."""
        streak = self._open.get(asked.group)
        if streak is None or streak.count < 2 or not streak.goes_on(now, changes):
            return None
        if streak.last.batch == batch:
            return None
        if variation(streak.seen.asked.words, asked.words) is None:
            return None
        return streak.round(self._limits, "variation", streak.count + 1, asked)

    def note(self, seen: Seen, at: Moment) -> Round | None:
        """Take in a call with its result."""
        group = seen.asked.group
        streak = self._open.get(group)
        if not _can_vary(seen):
            self._open.pop(group, None)
            return None
        if streak is not None and streak.last.batch == at.batch:
            return None
        lines = None if streak is None else self._nothing_new(streak, seen, at)
        if streak is None or lines is None:
            kept(self._open, group, _Streak(at, at, seen, [at.ordinal]))
            return None
        streak.varied += streak.seen.asked.words != seen.asked.words
        streak.lines = lines
        streak.go_on(seen, at)
        kept(self._open, group, streak)
        if streak.varied < _VARIED:
            return None
        return streak.round(self._limits, "variation", streak.count, seen.asked)

    def _nothing_new(self, streak: _Streak, seen: Seen, at: Moment) -> frozenset[int] | None:
        """What the calls have shown by now, if this one added nothing to it; else None."""
        before = streak.seen
        ended = before.failed == seen.failed and before.waits == seen.waits
        if not ended or not streak.goes_on(at.now, at.changes_before):
            return None
        varied = variation(before.asked.words, seen.asked.words)
        if varied is None:
            return streak.lines if before.says_the_same(seen) else None
        if not seen.failed and before.asked.use.reads != seen.asked.use.reads:
            return None  # it reads on
        known = streak.lines | lines_in(before.said, varied[0])
        if len(known) > _MOST_LINES or not lines_in(seen.said, varied[1]) <= known:
            return None
        return known


def _can_vary(seen: Seen) -> bool:
    """Whether a call with one word changed may be the same attempt.

    Not one that wrote: it did another thing. Not one without a target: it may be about another.
    Not a search, nor what shows hardly anything: that there is nothing is news, for each word. Nor
    one whose result is too long to be compared line by line.
    """
    use = seen.asked.use
    found = seen.failed or (use.kind != "search" and len(seen.said) >= _FOUND)
    told = use.target is not None and bool(seen.asked.words)
    return told and found and not seen.wrote and not seen.long
