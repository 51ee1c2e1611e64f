"""What a circle is, how bad it is, and when that is said."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from ..ranges import refusal, whole
from .seen import Asked

Kind = Literal["repeat", "variation", "cycle", "error"]
Level = Literal["advise", "insist", "stop"]

KINDS: Final[tuple[Kind, ...]] = ("repeat", "variation", "cycle", "error")
_COUNT = "a whole number of calls from 2"
_LATER = "a whole number of calls, each larger than the one before: advise < insist < stop"
_MORE = "a whole number of calls from 0"
_TIMES = "a whole number from 1"


class Limits(Struct, frozen=True):
    """After how many calls the detector advises, insists and says stop; each for a reason.

    Two calls alike happen to everybody: a look to be sure, a test that may be flaky. The third that
    shows nothing new is where a circle begins (docs/loops.md has the measure).
    """

    advise: int = 3
    insist: int = 5
    stop: int = 8
    leeway: int = 2  # calls more for variations and errors: each of them may be a new attempt
    patience: int = 4  # times as many for what waits: nothing new is then what is expected

    def __post_init__(self) -> None:
        last = 1
        for name in ("advise", "insist", "stop"):
            last = self._validate(name, max(2, last + 1), _COUNT if last == 1 else _LATER)
        self._validate("leeway", 0, _MORE)
        self._validate("patience", 1, _TIMES)

    def _validate(self, name: str, min_value: int, allowed: str) -> int:
        value: object = getattr(self, name)
        try:
            return whole(value, min_value, allowed)
        except ValueError as error:
            raise refusal("LoopDetector: ", name, value, str(error)) from None

    def weigh(self, count: int, *, loose: bool = False, waits: bool = False) -> int:
        """So many calls, in those of plain repeats."""
        tight = count - self.leeway if loose else count
        return tight // self.patience if waits else tight

    def level(self, worth: int) -> Level | None:
        """How bad it is."""
        if worth >= self.stop:
            return "stop"
        if worth >= self.insist:
            return "insist"
        return "advise" if worth >= self.advise else None

    def should_speak(self, worth: int, before: int) -> bool:
        """Whether it is said now: when a level is reached, and beyond the last now and then."""
        return self._advice_count(worth) > self._advice_count(before)

    def _advice_count(self, worth: int) -> int:
        """How often something is said until it is as bad as this."""
        if worth < self.stop:
            return (worth >= self.advise) + (worth >= self.insist)
        return 3 + (worth - self.stop) // (self.stop - self.insist)


MOST_MEMBERS: Final = 200  # exchanges of one circle that are told; a longer one is bad enough


class Moment(Struct, frozen=True, gc=False):
    """When a call was made."""

    now: int  # how many calls there were
    ordinal: int  # of its exchange
    batch: int  # the same for calls that were made at once
    changes_before: int  # how many calls so far may have changed something
    changes_after: int


class Round(Struct, frozen=True, kw_only=True):
    """One call that goes round in a circle."""

    kind: Kind
    loop: int  # the same number for the calls of one circle of a kind
    call: Asked
    count: int  # how often by now: calls, or laps of a cycle
    level: Level | None
    should_speak: bool  # whether it is said at this call
    members: tuple[int, ...] = ()  # its exchange; when it is said, those before it too
    error: str = ""  # the error that came back
    is_waiting: bool = False  # it waits for something
    is_exact: bool = False  # the same call had the same result: nothing is lost by not making it
    lap: tuple[Asked, ...] = ()  # the calls of one lap of a cycle

    @property
    def tool(self) -> str:
        """The tool that was called."""
        return self.call.name

    @property
    def operation(self) -> str:
        """What it was to do."""
        return self.call.use.operation

    @property
    def target(self) -> str | None:
        """What it was to do that to."""
        return self.call.use.target
