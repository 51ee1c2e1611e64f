"""Advice at the tail of new results: the same for the same history, and never taken back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.check.rules import steps_of
from respool.codecs.formats import CODECS
from respool.folding.mimicry import mimicry_in
from respool.ledger.ledger import Ledger
from respool.loops import advice
from respool.loops.walk import rounds_of
from respool.marker import find_marker, is_hole
from respool.tools import Tools
from respool.transcript import Exchange, Index, Part, Ref
from tests.formats import FIELD, FORMATS
from tests.looping import FAILED, LOOM, MISSING, Step, edit, history_of, read, request_of, run

TOOLS = Tools()


def advised(format: str, steps: list[Step]) -> dict[int, str]:
    """All that is appended, request by request, in one history and one ledger that grow."""
    codec = CODECS[format]  # pyright: ignore[reportArgumentType]
    index, ledger = Index(), Ledger()
    said: dict[int, str] = {}
    for step in steps_of(codec, request_of(format, steps)[FIELD[format]]):
        model: list[Part] = []
        answers: list[Part] = []
        for row, message in enumerate(step.messages, step.at):
            made = codec.is_model_made(message)
            (model if made else answers).extend(codec.decode(row, message))
        at = len(index.exchanges)
        unit = index.add_unit((step.at, step.at + len(step.messages)), model, answers, False)
        assert ledger.extend(at, index.exchanges[at:], index.parts, TOOLS, {})
        new = advice(index, ledger, unit.answers_from)
        assert new == advice(index, ledger, unit.answers_from)
        assert all(position >= unit.answers_from for position in new)
        said |= new
    return said


def at_once(format: str, steps: list[Step]) -> Mapping[int, str]:
    """The same for a history that is read as a whole."""
    return advice(*history_of(format, steps), 0)


@pytest.mark.parametrize("format", FORMATS)
def test_it_goes_to_the_result_that_closes_the_circle(format: str) -> None:
    steps: list[Step] = [read(), run("git log", "abc"), read(), read(), read(), read()]
    said = advised(format, steps)
    history, _ = history_of(format, steps)
    assert [history.exchange_of[position] for position in said] == [3, 5]
    assert all(history.parts[position].kind == "result" for position in said)
    assert next(iter(said.values())) == (
        "Read (loom.py) was called 3 times with the same result, and nothing was changed "
        "in between. Use what it returned, or change something before calling it again."
    )


def test_it_is_no_marker_and_nobody_takes_it_for_one() -> None:
    steps: list[Step] = [*[read()] * 8, *[edit("weft", result=MISSING)] * 2]
    said = advised("anthropic", steps)
    assert len(said) == 4
    for text in said.values():
        assert "\n" not in text
        assert find_marker(text) is None
        assert not is_hole(text)
        assert mimicry_in([Part(Ref(0, ()), "text", "model", text)]) == []


def test_a_result_that_came_late_is_left_out_whoever_looks() -> None:
    """What arrives after the model spoke again was not there when its call was looked at."""
    parts = [
        Part(Ref(0, ()), "call", "model", '{"file_path": "a"}', "Read", "c0"),
        Part(Ref(1, ()), "call", "model", '{"file_path": "a"}', "Read", "c1"),
        Part(Ref(2, ()), "result", "tool", LOOM, id="c1"),
        Part(Ref(3, ()), "call", "model", '{"file_path": "a"}', "Read", "c2"),
        Part(Ref(4, ()), "result", "tool", LOOM, id="c2"),
        Part(Ref(5, ()), "result", "tool", LOOM, id="c0"),
    ]
    index, ledger = Index(), Ledger()
    index.add_unit((0, 3), parts[:2], parts[2:3], False)
    index.add_unit((3, 6), parts[3:4], parts[4:], False)
    assert index.exchanges[0] == Exchange(0, 0, 0, 5)
    ledger.extend(0, index.exchanges, index.parts, TOOLS, {})
    assert [one.count for one in rounds_of(index, ledger).values()] == [2]


def test_a_shorter_history_of_the_same_ledger_hears_only_its_own() -> None:
    """A ledger is shared by all states of a conversation; an early one may ask late."""
    steps: list[Step] = [read()] * 6
    _, ledger = history_of("anthropic", steps)
    early, _ = history_of("anthropic", steps[:3])
    late, _ = history_of("anthropic", steps)
    assert len(advice(early, ledger, 0)) == 1
    assert len(advice(late, ledger, 0)) == 2
    assert len(advice(early, ledger, 0)) == 1


STEPS: list[Step] = [
    read(), read("weft.py"), read(result="another text"), run("make", FAILED),
    run("make | tail -5", FAILED), run("make | tail -9", FAILED), run("make", "all is even now"),
    edit("weft", result=MISSING), edit("warp", result=MISSING), edit("weft"), "And now?",
    edit("loose ends", result="Error: The file was changed."),
    [read(), run("make", FAILED)], [read(), read()],
]  # fmt: skip


@given(st.lists(st.sampled_from(STEPS), max_size=30), st.sampled_from(FORMATS))
def test_what_was_said_stays_whatever_comes_after(steps: list[Any], format: str) -> None:
    """Step by step or as a whole, and for every beginning of the history."""
    whole = advised(format, steps)
    assert at_once(format, steps) == whole
    for count in range(len(steps)):
        parts = len(history_of(format, steps[:count])[0].parts)
        before = {position: text for position, text in whole.items() if position < parts}
        assert at_once(format, steps[:count]) == before


@given(st.lists(st.sampled_from(STEPS), max_size=40))
def test_it_does_not_nag(steps: list[Any]) -> None:
    """Between two advices on the same circle there is always another call of it that is silent."""
    history, ledger = history_of("anthropic", steps)
    spoken: dict[tuple[str, int], int] = {}
    for one in rounds_of(history, ledger).values():
        if one.should_speak:
            circle = one.kind, one.loop
            assert one.count > spoken.get(circle, 0) + 1
            spoken[circle] = one.count


def _work(of: Callable[[], object]) -> int:
    """How many functions are called, which no other work on the machine changes."""
    count = 0

    def called(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        of()
    finally:
        sys.setprofile(None)
    return count


def _walked(count: int) -> int:
    kinds = [read(f"{n}.py", LOOM * 20) for n in range(20)] + [run("make", FAILED * 20)] * 3
    history, ledger = history_of("anthropic", [kinds[n % 23] for n in range(count)])
    return _work(lambda: rounds_of(history, ledger))


def test_ten_times_the_calls_take_ten_times_the_work() -> None:
    _walked(50)  # what is worked out once and remembered is no part of it
    assert _walked(1_000) < 11 * _walked(100)


def test_one_more_turn_costs_about_that_turn() -> None:
    """What was looked at is not looked at again."""
    steps: list[Step] = [read(f"{n}.py") for n in range(500)]
    history, ledger = history_of("anthropic", steps)
    first = _work(lambda: advice(history, ledger, len(history.parts)))
    again = _work(lambda: advice(history, ledger, len(history.parts)))
    assert again < 20 < 500 < first
