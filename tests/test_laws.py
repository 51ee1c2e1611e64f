"""Every law, for every pass, in every format, on histories whole and broken.

A conversation is drawn once a format, and all laws look at the one compaction of it. Each pass
meets each conversation in one of the formats, which one follows from the conversation; what runs
by itself in agents meets it in two. `make laws` holds every pass to every law in every format.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from respool.compaction.evaluation import select_passes
from respool.engine import Compaction
from respool.passes import OPT_IN, PASSES, Pass
from respool.policy import Policy
from tests import effort
from tests.laws import laws
from tests.laws.examples import Example, Once, examples, is_listed
from tests.laws.sessions import long_session
from tests.laws.subject import (
    EAGER,
    LEAN,
    MARKERS,
    ORDINARY,
    PRICED,
    SMALL_SOURCES,
    SUBJECTS,
    compactor,
    real,
)
from tests.laws.trial_passes import fail
from tests.strategies import FORMATS, arbitrary_json, arbitrary_json_messages

quick = settings(
    max_examples=effort.examples(20),
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
)
formats = pytest.mark.parametrize("format", FORMATS)
# Every pass takes all at once; together they also wait until what they offer pays.
USUAL = tuple(one for one in PASSES if one.__name__ not in OPT_IN)
CASES: dict[str, tuple[tuple[Pass, ...], Policy]] = {
    **{name: (passes, EAGER) for name, passes in SUBJECTS.items()},
    "priced": (USUAL, PRICED),
    "lean": (USUAL, LEAN),
    "all, priced": (SUBJECTS["all"], PRICED),
    **{name: (select_passes(policy), policy) for name, policy in SMALL_SOURCES.items()},
    "advised": (USUAL, EAGER.replace(advise=True)),
}
MEETS_TWICE = ("all", "priced")
MEETS_ONCE = tuple(name for name in CASES if name not in MEETS_TWICE)
# Edits that shape a part are recognised again; those that take parts out leave nothing to shape.
SHAPING = {one.__name__ for one in PASSES}

Idle = dict[Any, Compaction[Any]]


def hold(name: str, example: Example, idle: Idle) -> None:
    """Hold one case of CASES to every law, on one example."""
    format, (passes, policy) = example.format, CASES[name]
    compact = Once(compactor(*passes, format=format, usual=policy), idle)
    for request in listed(example.whole):
        laws.faithful(compact, format, request)
        laws.valid(compact, format, request, whole=True)
        laws.small(compact, format, request)
        laws.reversible(compact, format, request)
    for request in listed(example.broken):
        laws.valid(compact, format, request, whole=False)
        laws.small(compact, format, request)
        laws.reproducible(compact, format, [request])
    if example.growing:
        laws.stable(compact, format, example.growing)
        laws.reproducible(compact, format, example.growing)
    if name in SHAPING:
        hold_shaping(name, compact, example)
    else:
        for request in listed(example.whole, example.broken):
            laws.keeps_what_is_shaped(compact, format, request)


def hold_shaping(name: str, compact: Once, example: Example) -> None:
    """Laws of a single pass that shapes parts."""
    format, (passes, _) = example.format, CASES[name]
    priced = compactor(*passes, format=format, usual=PRICED)
    for request in listed(example.whole, example.broken):
        laws.honest(compact, format, request)
    for request in listed(example.whole):
        if name == "keep_lines":  # lines that were cut here may make lines elsewhere unlikely
            laws.shapes_nothing_twice(compact, format, request)
        else:
            laws.idempotent(compact, format, request)
        laws.shapes_nothing_twice(priced, format, request)


def listed(*requests: Any) -> Iterator[Any]:
    return (request for request in requests if is_listed(request))


@formats
def test_every_law_holds_for_those_whose_turn_it_is(format: str) -> None:
    failed: list[str] = []  # once one has failed, a smaller example is looked for with it alone

    @quick
    @given(examples(format))
    def run(example: Example) -> None:
        idle: Idle = {}
        in_turn = [*example.rotated(MEETS_ONCE), *example.rotated(MEETS_TWICE, formats=2)]
        for name in tuple(failed or in_turn):
            try:
                hold(name, example, idle)
            except Exception as problem:
                failed[:] = [name]
                problem.add_note(f"This was: {name}, in {format}")
                raise

    run()


@pytest.mark.laws
@formats
@pytest.mark.parametrize("name", CASES)
def test_every_law_holds(name: str, format: str) -> None:
    @quick
    @given(examples(format))
    def run(example: Example) -> None:
        hold(name, example, {})

    run()


def test_every_case_meets_every_conversation() -> None:
    """In one format, or in two; and over all conversations in each."""
    for names, times in ((MEETS_ONCE, 1), (MEETS_TWICE, 2)):
        for number in range(40):
            each = [Example(format, number, {}, {}, []) for format in FORMATS]
            met = [name for example in each for name in example.rotated(names, times)]
            assert sorted(met) == sorted(names * times)
    for format in FORMATS:
        each = [Example(format, number, {}, {}, []) for number in range(4)]
        met = {name for example in each for name in example.rotated(MEETS_ONCE)}
        assert met == set(MEETS_ONCE)


def test_a_failure_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever case breaks a law, and also in the smallest example."""

    def planted(name: str, example: Example, idle: Idle) -> None:
        assert name != "cap_results" or len(str(example.whole)) < 300

    monkeypatch.setattr(sys.modules[__name__], "hold", planted)
    with pytest.raises(AssertionError) as failure:
        test_every_law_holds_for_those_whose_turn_it_is("anthropic")
    assert "This was: cap_results, in anthropic" in failure.value.__notes__


@formats
def test_repair_touches_only_what_is_broken_and_a_failing_pass_is_skipped(format: str) -> None:
    idle_one, faulty_one = compactor(format=format), compactor(fail, *PASSES)

    @quick
    @given(examples(format))
    def run(example: Example) -> None:
        for request in listed(example.whole, example.broken):
            laws.repairs_only_what_is_broken(idle_one, format, request)
        faulty, sound = faulty_one(example.whole), real(example.whole)
        assert faulty.request == sound.request
        if sound.report.epochs:
            assert faulty.report.failures == {"fail": "ZeroDivisionError: a planted bug"}

    run()


@quick
@given(arbitrary_json() | arbitrary_json_messages())
def test_harmless(anything: Any) -> None:
    laws.harmless(real, anything)


def hold_linear(name: str, format: str) -> None:
    passes, policy = CASES[name]
    ordinary = ORDINARY.replace(eager=policy.eager)
    laws.linear(compactor(*passes), lambda count: long_session(format, count), policy=ordinary)


@formats
def test_linear(format: str) -> None:
    """All passes together; `make bench` has each of them alone."""
    hold_linear("all, priced", format)


@pytest.mark.parametrize("format", MARKERS)
def test_a_mark_of_our_own_is_valid_and_changes_nothing_else(format: str) -> None:
    @quick
    @given(examples(format))
    def run(example: Example) -> None:
        compact = Once(compactor(MARKERS[format], format=format), {})
        for request in listed(example.whole):
            laws.valid(compact, format, request, whole=True)
        if example.growing:
            laws.stable(compact, format, example.growing)
            laws.reproducible(compact, format, example.growing)

    run()
