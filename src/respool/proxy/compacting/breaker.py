"""A breaker: after repeated trouble compaction rests, and is then tried again with one request."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Literal

from msgspec import Struct

from ...errors import invalid_value

Phase = Literal["closed", "open", "trying"]


class Rules(Struct, frozen=True, kw_only=True):
    """When compaction rests, and for how long."""

    troubles: int = 5  # one or two are a history that nobody foresaw; five are respool's own fault
    within: float = 120.0  # seconds: an agent sends some ten requests in that time
    rest: float = 60.0  # seconds: long enough for a restart of what failed, or a lock that goes
    longest: float = 3600.0  # seconds: a rest doubles with each trial that fails, up to this

    def __post_init__(self) -> None:
        least = {"troubles": 1, "within": 0.001, "rest": 0.001, "longest": self.rest}
        for name, lowest in least.items():
            if not getattr(self, name) >= lowest:
                raise invalid_value("breaker: ", name, getattr(self, name), f"{lowest} or more")


class Attempt(Struct, frozen=True):
    """Leave to compact one request; how it went is told with it."""

    number: int
    is_trial: bool = False


class Standing(Struct, frozen=True):
    """How the breaker stands, for a person."""

    phase: Phase
    why: str  # a sentence


class Breaker:
    """Says whether a request may be compacted; safe to share by threads.

    Closed it lets all through. Open it lets none through. When its rest is over, it lets one
    through at a time: if that goes well it closes, else it rests for twice as long.
    """

    def __init__(self, clock: Callable[[], float], rules: Rules | None = None) -> None:
        self._clock = clock
        self._rules = rules or Rules()
        self._lock = Lock()
        self._recent: deque[float] = deque(maxlen=self._rules.troubles)  # times of troubles
        self._last = ""  # what the last trouble was
        self._rest = self._rules.rest
        self._until: float | None = None  # when the rest is over; None: it is closed
        self._trial: int | None = None  # the number of the attempt that is tried
        self._number = 0

    def attempt(self) -> Attempt | None:
        """Leave to compact a request; None: send it as it came."""
        with self._lock:
            self._number += 1
            if self._until is None:
                return Attempt(self._number)
            now = self._clock()
            if now < self._until:
                return None
            # One that never tells how it went must not keep all others out.
            self._until, self._trial = now + self._rest, self._number
            return Attempt(self._number, is_trial=True)

    def well(self, attempt: Attempt) -> None:
        """A request was compacted, and the provider took it."""
        with self._lock:
            if self._is_awaited(attempt):
                self._until = self._trial = None
                self._rest = self._rules.rest
                self._recent.clear()

    def trouble(self, attempt: Attempt, what: str) -> None:
        """A request was not compacted as it should be; `what` says it in a few words."""
        with self._lock:
            now = self._clock()
            if self._is_awaited(attempt):
                self._last = what
                self._rest = min(2 * self._rest, self._rules.longest)
                self._until, self._trial = now + self._rest, None
            elif self._until is None:
                self._last = what
                self._recent.append(now)
                full = len(self._recent) == self._rules.troubles
                if full and now - self._recent[0] <= self._rules.within:
                    self._until = now + self._rest

    def standing(self) -> Standing:
        """How it stands, and why."""
        with self._lock:
            if self._until is None:
                return Standing("closed", "Requests are compacted.")
            left = max(0.0, self._until - self._clock())
            why = f"after {self._cause()}"
            if self._trial is not None and left:
                return Standing("trying", f"One request is compacted as a trial {why}.")
            return Standing("open", f"Compaction rests {why}; it is tried again in {left:.0f} s.")

    def cause(self) -> str:
        """What it rests for, in the same words for as long as it does."""
        with self._lock:
            return self._cause()

    def _cause(self) -> str:
        return f"{_times(self._rules)}, the last: {self._last}"

    def _is_awaited(self, attempt: Attempt) -> bool:
        """Whether this is the trial: what began before the rest tells nothing of what is now."""
        return attempt.is_trial and attempt.number == self._trial


def _times(rules: Rules) -> str:
    times = "1 trouble" if rules.troubles == 1 else f"{rules.troubles} troubles"
    return f"{times} within {rules.within:g} s"
