"""The breaker: when compaction rests, when it is tried again, and what it says of it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from respool.errors import PolicyError
from respool.proxy.compacting.breaker import Attempt, Breaker, Rules

RULES = Rules(troubles=3, within=10.0, rest=5.0, longest=15.0)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def begun(breaker: Breaker) -> Attempt:
    attempt = breaker.attempt()
    assert attempt is not None
    return attempt


def opened() -> tuple[Clock, Breaker]:
    clock = Clock()
    breaker = Breaker(clock, RULES)
    for _ in range(RULES.troubles):
        breaker.trouble(begun(breaker), "the deadline was missed")
    return clock, breaker


def test_it_is_closed_until_there_is_enough_trouble_in_a_short_time() -> None:
    clock = Clock()
    breaker = Breaker(clock, RULES)
    for _ in range(20):  # never three within ten seconds
        breaker.trouble(begun(breaker), "a 400")
        clock.now += 5.1
    assert breaker.standing().phase == "closed"
    breaker.trouble(begun(breaker), "a 400")
    clock.now += 2
    breaker.trouble(begun(breaker), "a 400")
    assert breaker.attempt() is None
    assert breaker.standing().phase == "open"


def test_it_says_why_it_rests() -> None:
    clock, breaker = opened()
    clock.now += 1
    assert breaker.standing().why == (
        "Compaction rests after 3 troubles within 10 s, the last: the deadline was missed; "
        "it is tried again in 4 s."
    )
    cause = breaker.cause()
    assert cause == "3 troubles within 10 s, the last: the deadline was missed"
    clock.now += 1
    assert breaker.cause() == cause  # what is written down of each request in the rest is the same


def test_after_the_rest_one_request_is_tried_and_closes_it() -> None:
    clock, breaker = opened()
    clock.now += 4.9
    assert breaker.attempt() is None
    clock.now += 0.2
    trial = begun(breaker)
    assert trial.is_trial
    assert breaker.attempt() is None  # one at a time
    assert breaker.standing().phase == "trying"
    breaker.well(trial)
    assert breaker.standing().phase == "closed"
    breaker.trouble(begun(breaker), "a 400")  # what was before the rest does not count again
    assert breaker.attempt() is not None


def test_a_trial_that_fails_doubles_the_rest_up_to_the_longest() -> None:
    clock, breaker = opened()
    clock.now += RULES.rest
    for rest in (10.0, 15.0, 15.0):
        breaker.trouble(begun(breaker), "again")
        clock.now += rest - 0.1
        assert breaker.attempt() is None
        clock.now += 0.2
    breaker.well(begun(breaker))
    for _ in range(RULES.troubles):
        breaker.trouble(begun(breaker), "new")
    clock.now += RULES.rest  # as long as the first
    assert begun(breaker).is_trial


def test_a_trial_that_never_tells_keeps_no_other_out_for_ever() -> None:
    clock, breaker = opened()
    clock.now += RULES.rest
    lost = begun(breaker)
    clock.now += RULES.rest
    second = begun(breaker)
    breaker.well(lost)  # too late: the second one is awaited now
    assert breaker.standing().phase == "trying"
    breaker.well(second)
    assert breaker.standing().phase == "closed"


def test_what_began_before_the_rest_changes_nothing() -> None:
    clock = Clock()
    breaker = Breaker(clock, RULES)
    old = [begun(breaker) for _ in range(6)]
    for attempt in old[:3]:
        breaker.trouble(attempt, "late")
    breaker.well(old[3])
    breaker.trouble(old[4], "later still")
    assert breaker.standing().phase == "open"
    assert "the last: late;" in breaker.standing().why
    clock.now += RULES.rest
    trial = begun(breaker)
    breaker.trouble(old[5], "late")
    breaker.well(trial)
    assert breaker.standing().phase == "closed"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Rules(troubles=0),
        lambda: Rules(within=-1.0),
        lambda: Rules(rest=0.0),
        lambda: Rules(rest=float("nan")),
        lambda: Rules(rest=60.0, longest=59.0),
    ],
)
def test_rules_that_make_no_sense_are_refused(make: Callable[[], Rules]) -> None:
    with pytest.raises(PolicyError, match="breaker"):
        make()


def test_threads_get_one_trial_between_them() -> None:
    clock, breaker = opened()
    clock.now += RULES.rest
    with ThreadPoolExecutor(8) as pool:
        given_out = list(pool.map(lambda _: breaker.attempt(), range(200)))
    assert sum(attempt is not None for attempt in given_out) == 1


class Life(RuleBasedStateMachine):
    """Whatever happens: a rest lasts, and after enough quiet time something is tried again."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.breaker = Breaker(self.clock, RULES)
        self.going: list[Attempt] = []

    @rule()
    def begin(self) -> None:
        attempt = self.breaker.attempt()
        if attempt is not None:
            self.going.append(attempt)

    @rule(good=st.booleans(), at=st.integers(0, 20))
    def finish(self, good: bool, at: int) -> None:
        if self.going:
            attempt = self.going.pop(at % len(self.going))
            if good:
                self.breaker.well(attempt)
            else:
                self.breaker.trouble(attempt, "x")

    @rule(seconds=st.floats(0, 20))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @invariant()
    def quiet_time_ends_a_rest(self) -> None:
        now = self.clock.now
        if self.breaker.standing().phase == "open":
            self.clock.now = now + RULES.longest
            assert "in 0 s" in self.breaker.standing().why
        self.clock.now = now


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 8), max_size=40))
def test_it_opens_just_when_enough_troubles_lie_close(gaps: list[float]) -> None:
    clock = Clock()
    breaker = Breaker(clock, RULES)
    times: list[float] = []
    for gap in gaps:
        clock.now += gap
        times.append(clock.now)
        breaker.trouble(begun(breaker), "x")
        close = len(times) >= 3 and times[-1] - times[-3] <= RULES.within
        assert (breaker.standing().phase == "open") == close
        if close:
            return
