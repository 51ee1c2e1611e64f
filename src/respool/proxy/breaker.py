"""The circuit breaker: after repeated failures compaction pauses, then one request tries it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Literal

from msgspec import Struct

from ..errors import invalid_value
from ..lru_map import LruMap

Phase = Literal["closed", "open", "half_open"]

_MAX_TEAMS = 256  # whose circuit breakers are remembered


class BreakerRules(Struct, frozen=True, kw_only=True):
    """Thresholds and durations of the pauses of compaction."""

    max_failures: int = 5  # one or two are an unforeseen history; five are respool's own fault
    window_seconds: float = 120.0  # an agent sends some ten requests in that time
    open_seconds: float = 60.0  # long enough for a restart of what failed, or for a lock to go
    max_open_seconds: float = 3600.0  # a pause doubles with each trial that fails, up to this

    def __post_init__(self) -> None:
        minimum = {
            "max_failures": 1,
            "window_seconds": 0.001,
            "open_seconds": 0.001,
            "max_open_seconds": self.open_seconds,
        }
        for name, lowest in minimum.items():
            if not getattr(self, name) >= lowest:
                raise invalid_value("breaker: ", name, getattr(self, name), f"{lowest} or more")


class Permit(Struct, frozen=True):
    """Permission to compact one request; its result is reported with it."""

    number: int
    is_trial: bool = False


class BreakerState(Struct, frozen=True):
    """The state of the circuit breaker, for people."""

    phase: Phase
    reason: str  # a sentence


class CircuitBreaker:
    """Permits or denies the compaction of requests; threads may share it.

    Closed, it permits all. Open, it denies all. After the pause it permits one at a time: if that
    one succeeds it closes, else it stays open for twice as long.
    """

    def __init__(self, clock: Callable[[], float], rules: BreakerRules | None = None) -> None:
        self._clock = clock
        self._rules = rules or BreakerRules()
        self._lock = Lock()
        self._failures: deque[float] = deque(maxlen=self._rules.max_failures)  # their times
        self._last = ""  # the last failure
        self._pause = self._rules.open_seconds
        self._until: float | None = None  # the end of the pause; None: it is closed
        self._trial: int | None = None  # the number of the permit that is the trial
        self._number = 0

    def acquire(self) -> Permit | None:
        """A permit to compact a request; None: send it without new edits."""
        with self._lock:
            self._number += 1
            if self._until is None:
                return Permit(self._number)
            now = self._clock()
            if now < self._until:
                return None
            # A trial that never reports its result must not deny all others.
            self._until, self._trial = now + self._pause, self._number
            return Permit(self._number, is_trial=True)

    def succeed(self, permit: Permit) -> None:
        """A request was compacted, and the provider accepted it."""
        with self._lock:
            if self._is_trial(permit):
                self._until = self._trial = None
                self._pause = self._rules.open_seconds
                self._failures.clear()

    def fail(self, permit: Permit, failure: str) -> None:
        """A request could not be compacted as it should; `failure` names it in a few words."""
        with self._lock:
            now = self._clock()
            if self._is_trial(permit):
                self._last = failure
                self._pause = min(2 * self._pause, self._rules.max_open_seconds)
                self._until, self._trial = now + self._pause, None
            elif self._until is None:
                self._last = failure
                self._failures.append(now)
                full = len(self._failures) == self._rules.max_failures
                if full and now - self._failures[0] <= self._rules.window_seconds:
                    self._until = now + self._pause

    def state(self) -> BreakerState:
        """Its phase, and the reason for it."""
        with self._lock:
            if self._until is None:
                return BreakerState("closed", "Requests are compacted.")
            left = max(0.0, self._until - self._clock())
            why = f"after {self._reason()}"
            if self._trial is not None and left:
                return BreakerState("half_open", f"One request is compacted as a trial {why}.")
            again = f"it is tried again in {left:.0f} s"
            return BreakerState("open", f"Compaction is paused {why}; {again}.")

    def reason(self) -> str:
        """The reason that it is open, the same text until it closes."""
        with self._lock:
            return self._reason()

    def _reason(self) -> str:
        count, seconds = self._rules.max_failures, self._rules.window_seconds
        failures = "1 failure" if count == 1 else f"{count} failures"
        return f"{failures} within {seconds:g} s, the last: {self._last}"

    def _is_trial(self, permit: Permit) -> bool:
        """True for the current trial; permits from before the pause say nothing about now."""
        return permit.is_trial and permit.number == self._trial


class TeamBreakers:
    """A circuit breaker for each team, so that failures of one do not pause the others."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known = LruMap[str, CircuitBreaker](_MAX_TEAMS)  # by owner

    def of(self, owner: str) -> CircuitBreaker:
        """The circuit breaker of a team."""
        return self._known.get_or_make(owner, lambda: CircuitBreaker(self._clock))

    def states(self) -> list[BreakerState]:
        """The states of all."""
        return [one.state() for one in self._known.values()]
