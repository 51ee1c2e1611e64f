"""The breaker: when compaction rests, when it is tried again, and what it says of it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from respool.errors import PolicyError
from respool.proxy.breaker import BreakerRules, CircuitBreaker, Permit
from tests.effort import examples

RULES = BreakerRules(max_failures=3, window_seconds=10.0, open_seconds=5.0, max_open_seconds=15.0)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def begun(breaker: CircuitBreaker) -> Permit:
    attempt = breaker.acquire()
    assert attempt is not None
    return attempt


def opened() -> tuple[Clock, CircuitBreaker]:
    clock = Clock()
    breaker = CircuitBreaker(clock, RULES)
    for _ in range(RULES.max_failures):
        breaker.fail(begun(breaker), "the deadline was missed")
    return clock, breaker


def test_it_is_closed_until_there_is_enough_trouble_in_a_short_time() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock, RULES)
    for _ in range(20):  # never three within ten seconds
        breaker.fail(begun(breaker), "a 400")
        clock.now += 5.1
    assert breaker.state().phase == "closed"
    breaker.fail(begun(breaker), "a 400")
    clock.now += 2
    breaker.fail(begun(breaker), "a 400")
    assert breaker.acquire() is None
    assert breaker.state().phase == "open"


def test_it_says_why_it_rests() -> None:
    clock, breaker = opened()
    clock.now += 1
    assert breaker.state().reason == (
        "Compaction is paused after 3 failures within 10 s, the last: the deadline was missed; "
        "it is tried again in 4 s."
    )
    cause = breaker.reason()
    assert cause == "3 failures within 10 s, the last: the deadline was missed"
    clock.now += 1
    assert breaker.reason() == cause  # what is written down of each request in the rest is the same


def test_after_the_rest_one_request_is_tried_and_closes_it() -> None:
    clock, breaker = opened()
    clock.now += 4.9
    assert breaker.acquire() is None
    clock.now += 0.2
    trial = begun(breaker)
    assert trial.is_trial
    assert breaker.acquire() is None  # one at a time
    assert breaker.state().phase == "half_open"
    breaker.succeed(trial)
    assert breaker.state().phase == "closed"
    breaker.fail(begun(breaker), "a 400")  # what was before the rest does not count again
    assert breaker.acquire() is not None


def test_a_trial_that_fails_doubles_the_rest_up_to_the_longest() -> None:
    clock, breaker = opened()
    clock.now += RULES.open_seconds
    for rest in (10.0, 15.0, 15.0):
        breaker.fail(begun(breaker), "again")
        clock.now += rest - 0.1
        assert breaker.acquire() is None
        clock.now += 0.2
    breaker.succeed(begun(breaker))
    for _ in range(RULES.max_failures):
        breaker.fail(begun(breaker), "new")
    clock.now += RULES.open_seconds  # as long as the first
    assert begun(breaker).is_trial


def test_a_trial_that_never_tells_keeps_no_other_out_for_ever() -> None:
    clock, breaker = opened()
    clock.now += RULES.open_seconds
    lost = begun(breaker)
    clock.now += RULES.open_seconds
    second = begun(breaker)
    breaker.succeed(lost)  # too late: the second one is awaited now
    assert breaker.state().phase == "half_open"
    breaker.succeed(second)
    assert breaker.state().phase == "closed"


def test_what_began_before_the_rest_changes_nothing() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock, RULES)
    old = [begun(breaker) for _ in range(6)]
    for attempt in old[:3]:
        breaker.fail(attempt, "late")
    breaker.succeed(old[3])
    breaker.fail(old[4], "later still")
    assert breaker.state().phase == "open"
    assert "the last: late;" in breaker.state().reason
    clock.now += RULES.open_seconds
    trial = begun(breaker)
    breaker.fail(old[5], "late")
    breaker.succeed(trial)
    assert breaker.state().phase == "closed"


@pytest.mark.parametrize(
    "make",
    [
        lambda: BreakerRules(max_failures=0),
        lambda: BreakerRules(window_seconds=-1.0),
        lambda: BreakerRules(open_seconds=0.0),
        lambda: BreakerRules(open_seconds=float("nan")),
        lambda: BreakerRules(open_seconds=60.0, max_open_seconds=59.0),
    ],
)
def test_rules_that_make_no_sense_are_refused(make: Callable[[], BreakerRules]) -> None:
    with pytest.raises(PolicyError, match="breaker"):
        make()


def test_threads_get_one_trial_between_them() -> None:
    clock, breaker = opened()
    clock.now += RULES.open_seconds
    with ThreadPoolExecutor(8) as pool:
        given_out = list(pool.map(lambda _: breaker.acquire(), range(200)))
    assert sum(attempt is not None for attempt in given_out) == 1


class Life(RuleBasedStateMachine):
    """Whatever happens: a rest lasts, and after enough quiet time something is tried again."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.breaker = CircuitBreaker(self.clock, RULES)
        self.going: list[Permit] = []

    @rule()
    def begin(self) -> None:
        attempt = self.breaker.acquire()
        if attempt is not None:
            self.going.append(attempt)

    @rule(good=st.booleans(), at=st.integers(0, 20))
    def finish(self, good: bool, at: int) -> None:
        if self.going:
            attempt = self.going.pop(at % len(self.going))
            if good:
                self.breaker.succeed(attempt)
            else:
                self.breaker.fail(attempt, "x")

    @rule(seconds=st.floats(0, 20))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @invariant()
    def quiet_time_ends_a_rest(self) -> None:
        now = self.clock.now
        if self.breaker.state().phase == "open":
            self.clock.now = now + RULES.max_open_seconds
            assert "in 0 s" in self.breaker.state().reason
        self.clock.now = now


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.floats(0, 8), max_size=40))
def test_it_opens_just_when_enough_troubles_lie_close(gaps: list[float]) -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock, RULES)
    times: list[float] = []
    for gap in gaps:
        clock.now += gap
        times.append(clock.now)
        breaker.fail(begun(breaker), "x")
        close = len(times) >= 3 and times[-1] - times[-3] <= RULES.window_seconds
        assert (breaker.state().phase == "open") == close
        if close:
            return
