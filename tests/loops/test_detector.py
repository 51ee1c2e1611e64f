"""Loop detector of a host, and the advice at the end of new results."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import respool
from respool.history.ledger import Ledger
from respool.loops import advice
from respool.loops.detector import loop_calls
from respool.loops.observations import REFUSAL_PREFIX
from respool.markers import ADVICE_START, find_marker, find_mimicry, is_gap_line
from respool.providers.base import split_steps
from respool.providers.registry import PROVIDERS
from respool.tools import Tools
from respool.transcript import Exchange, Part, Ref, TranscriptIndex
from tests.loops.support import (
    FAILED,
    LOOM,
    MISSING,
    Step,
    ask_all,
    call,
    edit,
    history_of,
    read,
    request_of,
    run,
)
from tests.support.formats import FIELD, FORMATS

ANSWERS: dict[str, tuple[list[Step], str]] = {  # a: allowed, !: advised, x: refused
    "the same call": ([read()] * 12, "aa!a!aaxxxxx"),
    "the same edit that does not fit": ([edit("weft", result=MISSING)] * 8, "a!a!aaxx"),
    "a result that changes": ([read(result=f"{n}") for n in range(9)], "aaaaaaaaa"),
    "something written in between": ([read(), edit("weft"), *[read()] * 3], "aaaa!"),
    "the user spoke": ([read(), read(), "again", read(), read(), read()], "aaaa!"),
    "two calls in turn": (
        [read(), run("make", FAILED)] * 9,
        "aaaaa!aaa!aaaaaxxx",
    ),
    "waiting": (
        [run("gh pr checks", "pending")] * 40,
        "".join("!" if n in (12, 20, 32) else "a" for n in range(1, 41)),
    ),
    "one word changed": (
        [run(f"make | tail -{n}", "make: all threads are even, none is loose") for n in range(12)],
        "aaaa!a!aa!aa",
    ),
    "edits that never fit": (
        [edit(f"weft {n} of {n * n}", result=MISSING) for n in range(12)],
        "aaa!a!aa!aa!",
    ),
}  # fmt: skip
MAKE = "make: all threads are even, none is loose"
# The answers where all calls of a step are asked about before one is made; and one by one.
AT_ONCE: dict[str, tuple[list[Step], str, str]] = {
    "the same call thrice at once": ([[read()] * 3], "aaa", "aaa"),
    "and again": ([[read()] * 3] * 4, "aaaaaa!!!aaa", "aaaaaa!aaaaa"),
    "two batches, then one alone": ([[read()] * 2, [read()] * 2, read()], "aaaa!", "aaaa!"),
    "one alone, then at once": ([read(), read(), [read()] * 3], "aa!!!", "aa!aa"),
    "the same error at once": ([[run("make", FAILED)] * 4] * 2, "a" * 8, "a" * 8),
    "one word changed, at once": (
        [[run(f"make | tail -{n}", MAKE) for n in range(6)], run("make | tail -7", MAKE)],
        "a" * 7,
        "a" * 7,
    ),
    "different ones at once, lap after lap": (
        [[read(), read("weft.py")]] * 4,
        "aaaaa!aa",
        "aaaaa!aa",
    ),
}
_LETTER = {"allow": "a", "advise": "!", "refuse": "x"}


@pytest.mark.parametrize("case", ANSWERS)
def test_what_it_answers_before_each_call(case: str) -> None:
    steps, answers = ANSWERS[case]
    got = "".join(_LETTER[one] for one in ask_all(respool.LoopDetector(), steps))
    assert got == answers


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("case", AT_ONCE)
def test_what_was_asked_for_at_once_counts_once(case: str, at_once: bool) -> None:
    """Parallel calls have not seen each other, even if a host makes them one by one."""
    steps, together, one_by_one = AT_ONCE[case]
    got = "".join(_LETTER[one] for one in ask_all(respool.LoopDetector(), steps, at_once=at_once))
    assert got == (together if at_once else one_by_one)


def test_it_says_what_happened_so_far_and_names_operation_and_target() -> None:
    office = respool.Tool("office", kind="read", operation="action", target="path")
    detector = respool.LoopDetector(tools=respool.Tools([office]))
    asked = {"action": "fields", "path": "a.pdf"}
    for _ in range(2):
        detector.tell("office", asked, LOOM)
    verdict = detector.ask("office", asked)
    assert verdict == respool.Verdict(
        "advise",
        f"{ADVICE_START}office fields (a.pdf) was called twice with the same result, and nothing "
        "was changed in between. Use what it returned, or change something before calling it "
        "again.]",
        "repeat",
        "advise",
        "fields",
        "a.pdf",
        3,
    )
    for _ in range(5):
        detector.tell("office", asked, LOOM)
    refused = detector.ask("office", asked)
    assert (refused.action, refused.level, refused.count) == ("refuse", "stop", 8)
    assert refused.message.startswith(f"{REFUSAL_PREFIX}office fields (a.pdf) was called 7 times")


def test_arguments_may_be_an_object_or_text() -> None:
    detector = respool.LoopDetector()
    detector.tell("Read", {"file_path": "a.py", "limit": 3}, LOOM)
    detector.tell("Read", '{"limit": 3,  "file_path": "a.py"}', LOOM)
    assert detector.ask("Read", {"limit": 3, "file_path": "a.py"}).action == "advise"
    assert detector.ask("Read", {"limit": 4, "file_path": "a.py"}).action == "allow"


def test_asking_changes_nothing() -> None:
    detector = respool.LoopDetector()
    for _ in range(2):
        detector.tell("Read", {"file_path": "a.py"}, LOOM)
    verdicts = [detector.ask("Read", {"file_path": "a.py"}) for _ in range(9)]
    assert verdicts == [verdicts[0]] * 9


def test_a_refusal_that_is_told_as_a_result_does_not_count_as_news() -> None:
    detector = respool.LoopDetector(advise=2, insist=3, stop=4)
    for _ in range(3):
        detector.tell("Read", {"file_path": "a.py"}, LOOM)
    for _ in range(3):
        verdict = detector.ask("Read", {"file_path": "a.py"})
        assert verdict.action == "refuse"
        detector.tell("Read", {"file_path": "a.py"}, verdict.message, error=True)


def test_an_error_that_came_back_is_told_before_the_next_try() -> None:
    """Failures of one target are counted across successes, and are never refused."""
    detector = respool.LoopDetector()
    for number in range(5):
        detector.tell("Bash", {"command": "make"}, FAILED)
        detector.tell("Edit", {"file_path": "a", "old_string": f"{number}"}, "Edited.")
    verdict = detector.ask("Bash", {"command": "make"})
    assert (verdict.action, verdict.kind, verdict.count) == ("advise", "error", 5)
    assert "failed 5 times with the same error: FAILED tests/test_loom.py" in verdict.message
    detector.tell("Bash", {"command": "make"}, FAILED)
    assert detector.ask("Bash", {"command": "make"}).action == "allow"


def test_limits_are_settings() -> None:
    hasty = respool.LoopDetector(advise=2, insist=3, stop=4)
    assert ask_all(hasty, [read()] * 5) == ["allow", "advise", "advise", "refuse", "refuse"]
    patient = respool.LoopDetector(patience=1)
    assert ask_all(patient, [run("gh pr checks", "pending")] * 3)[-1] == "advise"
    strict = respool.LoopDetector(leeway=0)
    steps = [run(f"make | tail -{n}", "make: all threads are even, none is loose") for n in "123"]
    assert ask_all(strict, steps)[-1] == "advise"


REFUSED_SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "one is no repeat": ({"advise": 1}, "LoopDetector: advise: 1 is not allowed; allowed: a whole"),
    "out of order": ({"insist": 3}, "insist: 3 is not allowed; allowed: a whole number of calls, "),
    "the last too": ({"stop": 5}, "stop: 5 is not allowed; allowed: a whole number of calls, each"),
    "no number": ({"advise": "3"}, "advise: '3' is not allowed"),
    "a switch": ({"advise": True}, "advise: True is not allowed"),
    "leeway": ({"leeway": -1}, "leeway: -1 is not allowed; allowed: a whole number of calls"),
    "patience": ({"patience": 0}, "patience: 0 is not allowed; allowed: a whole number from 1"),
    "tools": ({"tools": ["Read"]}, "tools: ['Read'] is not allowed; allowed: a respool.Tools"),
}


@pytest.mark.parametrize("case", REFUSED_SETTINGS)
def test_a_setting_out_of_range_is_refused_with_a_sentence(case: str) -> None:
    given_settings, message = REFUSED_SETTINGS[case]
    with pytest.raises(respool.PolicyError) as error:
        respool.LoopDetector(**given_settings)
    assert message in str(error.value)


def test_a_declared_function_that_fails_is_contained() -> None:
    def failing(_: Any) -> str:
        raise KeyError("no such thing")

    tools = respool.Tools([respool.Tool("look", kind="read", target=failing, key=failing)])
    detector = respool.LoopDetector(tools=tools)
    assert ask_all(detector, [call("look", LOOM, at=1)] * 3)[-1] == "advise"
    assert ask_all(detector, [call("look", LOOM, at=2)]) == ["allow"]


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
NAMES = st.sampled_from(["Bash", "Read", "Edit", "exec_command", "write_stdin", "mine", ""])
ARGUMENTS = st.dictionaries(st.sampled_from(["command", "cmd", "file_path", "x"]), ANY) | st.text()
RESULTS = st.text() | st.binary() | ANY | st.just({1: object()})


@given(st.lists(st.tuples(NAMES, ARGUMENTS, RESULTS, st.booleans()), max_size=12))
def test_it_never_raises_and_asking_never_matters(calls: list[Any]) -> None:
    quiet, asked = respool.LoopDetector(), respool.LoopDetector()
    for name, arguments, result, error in calls:
        before = asked.ask(name, arguments)
        assert before == asked.ask(name, arguments) == quiet.ask(name, arguments)
        assert (before.action == "allow") == (before.message == "")
        quiet.tell(name, arguments, result, error)
        asked.tell(name, arguments, result, error)


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["ok, nothing is new here", "other"])),
        max_size=60,
    )
)
def test_a_call_that_was_never_made_with_the_same_result_before_is_allowed(calls: Any) -> None:
    """No false alarm: whatever is advised of a read was made before, twice, with one result."""
    detector = respool.LoopDetector()
    made: dict[str, list[str]] = {}
    for name, result in calls:
        arguments = {"file_path": name}
        verdict = detector.ask("Read", arguments)
        if verdict.action != "allow" and verdict.kind == "repeat":
            assert len(set(made[name][-2:])) == 1
            assert len(made[name]) >= 2
        detector.tell("Read", json.dumps(arguments), result)
        made.setdefault(name, []).append(result)


def test_what_a_host_hands_over_may_fail_to_show_itself() -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("not now")

    detector = respool.LoopDetector()
    for _ in range(2):
        detector.tell("weave", {"thread": Broken()}, Broken())
    assert detector.ask("weave", {"thread": Broken()}).action == "allow"


TOOLS = Tools()


def advised(format: str, steps: list[Step]) -> dict[int, str]:
    """All that is appended, request by request, in one history and one ledger that grow."""
    codec = PROVIDERS[format].codec  # pyright: ignore[reportArgumentType]
    index, ledger = TranscriptIndex(), Ledger()
    said: dict[int, str] = {}
    for step in split_steps(codec, request_of(format, steps)[FIELD[format]]):
        model: list[Part] = []
        answers: list[Part] = []
        for row, message in enumerate(step.messages, step.at):
            made = codec.is_model_made(message)
            (model if made else answers).extend(codec.decode(row, message))
        at = len(index.exchanges)
        unit = index.add_unit((step.at, step.at + len(step.messages)), model, answers, locked=False)
        assert ledger.extend(
            at, exchanges=index.exchanges[at:], parts=index.parts, tools=TOOLS, definitions={}
        )
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
        assert not is_gap_line(text)
        assert find_mimicry([Part(Ref(0, ()), "text", "model", text)]) == []


def test_a_result_that_came_late_is_left_out_whoever_looks() -> None:
    """A result that arrives after the next turn was not there when its call was checked."""
    parts = [
        Part(Ref(0, ()), "call", "model", '{"file_path": "a"}', "Read", "c0"),
        Part(Ref(1, ()), "call", "model", '{"file_path": "a"}', "Read", "c1"),
        Part(Ref(2, ()), "result", "tool", LOOM, id="c1"),
        Part(Ref(3, ()), "call", "model", '{"file_path": "a"}', "Read", "c2"),
        Part(Ref(4, ()), "result", "tool", LOOM, id="c2"),
        Part(Ref(5, ()), "result", "tool", LOOM, id="c0"),
    ]
    index, ledger = TranscriptIndex(), Ledger()
    index.add_unit((0, 3), parts[:2], parts[2:3], locked=False)
    index.add_unit((3, 6), parts[3:4], parts[4:], locked=False)
    assert index.exchanges[0] == Exchange(0, 0, 0, 5)
    ledger.extend(0, exchanges=index.exchanges, parts=index.parts, tools=TOOLS, definitions={})
    assert [one.count for one in loop_calls(index, ledger).values()] == [2]


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
    for one in loop_calls(history, ledger).values():
        if one.should_speak:
            looping = one.kind, one.loop
            assert one.count > spoken.get(looping, 0) + 1
            spoken[looping] = one.count


def _work(of: Callable[[], object]) -> int:
    """Number of function calls, which does not depend on the load of the machine."""
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
    return _work(lambda: loop_calls(history, ledger))


def test_ten_times_the_calls_take_ten_times_the_work() -> None:
    _walked(50)  # what is worked out once and remembered is no part of it
    assert _walked(1_000) < 11 * _walked(100)


def test_one_more_turn_costs_about_that_turn() -> None:
    """Earlier turns are not checked again."""
    steps: list[Step] = [read(f"{n}.py") for n in range(500)]
    history, ledger = history_of("anthropic", steps)
    first = _work(lambda: advice(history, ledger, len(history.parts)))
    again = _work(lambda: advice(history, ledger, len(history.parts)))
    assert again < 20 < 500 < first
