"""Parts, exchanges and units, paired in any wire format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from respool.compaction.state import State
from respool.engine import fold_request
from respool.facts import Facts
from respool.policy import Policy
from respool.providers.base import RuleState
from respool.transcript import Exchange, Part, PartKind, Ref, Transcript, TranscriptIndex, Unit
from tests.support.formats import FIELD, FORMATS, request
from tests.support.formats import Exchange as Pair

formats = pytest.mark.parametrize("format", FORMATS)


def call(id: str = "", name: str = "", *, server: bool = False) -> Part:
    return Part(Ref(0, ()), "call", "model", "{}", name, id, server=server)


def result(id: str = "", name: str = "", *, server: bool = False) -> Part:
    return Part(Ref(0, ()), "result", "tool", "said", name, id, server=server)


def plain(kind: PartKind = "text") -> Part:
    return Part(Ref(0, ()), kind, "model", "words")


class Run(NamedTuple):
    """One unit: what the model made, and what answered it."""

    model: Sequence[Part]
    answers: Sequence[Part] = ()
    locked: bool = False


def indexed(*runs: Run) -> TranscriptIndex:
    index = TranscriptIndex()
    for number, run in enumerate(runs):
        index.add_unit((2 * number, 2 * number + 2), run.model, run.answers, locked=run.locked)
    return index


def pairs(index: TranscriptIndex) -> list[tuple[int, int | None]]:
    """Each call with its result, by their positions."""
    return [(one.call, one.result) for one in index.exchanges]


# The positions count all parts in order: those of the model, then those that answer, unit by unit.
PAIRINGS: dict[str, tuple[list[Run], list[tuple[int, int | None]]]] = {
    "one call": ([Run([call("a")], [result("a")])], [(0, 1)]),
    "a call that nothing has answered": ([Run([call("a")])], [(0, None)]),
    "a result without a call": ([Run([plain()], [result("a")])], []),
    "a result before its call": ([Run([], [result("a")]), Run([call("a")])], [(1, None)]),
    "parallel calls, answered in another order": (
        [Run([call("a"), call("b"), call("c")], [result("c"), result("a"), result("b")])],
        [(0, 4), (1, 5), (2, 3)],
    ),
    "one of three parallel calls not answered": (
        [Run([call("a"), call("b"), call("c")], [result("c"), result("a")])],
        [(0, 4), (1, None), (2, 3)],
    ),
    "text and reasoning between": (
        [Run([plain("reasoning"), plain(), call("a")], [result("a"), plain()])],
        [(2, 3)],
    ),
    "an id repeated in one unit: in order": (
        [Run([call("a"), call("a")], [result("a"), result("a")])],
        [(0, 2), (1, 3)],
    ),
    "an id repeated in later units": (
        [Run([call("a")], [result("a")]), Run([call("a")], [result("a")])],
        [(0, 1), (2, 3)],
    ),
    "an id repeated, the first never answered: the first open one takes it": (
        [Run([call("a")]), Run([call("a")], [result("a")])],
        [(0, 2), (1, None)],
    ),
    "a second answer to a call stays alone": (
        [Run([call("a")], [result("a"), result("a")])],
        [(0, 1)],
    ),
    "a result that comes late": (
        [Run([call("a"), call("b")], [result("b")]), Run([plain()], [result("a")])],
        [(0, 4), (1, 2)],
    ),
    "a result that comes two units late": (
        [Run([call("a")]), Run([call("b")], [result("b")]), Run([plain()], [result("a")])],
        [(0, 4), (1, 2)],
    ),
    "no ids: by tool, in order": (
        [Run([call(name="x"), call(name="y"), call(name="x")],
             [result(name="x"), result(name="x"), result(name="y")])],
        [(0, 3), (1, 5), (2, 4)],
    ),
    "no ids: never across units": (
        [Run([call(name="x")]), Run([plain()], [result(name="x")])],
        [(0, None)],
    ),
    "no ids and no names": ([Run([call(), call()], [result(), result()])], [(0, 2), (1, 3)]),
    "an id on the call only": ([Run([call("a", "x")], [result(name="x")])], [(0, 1)]),
    "an id on the result only": ([Run([call(name="x")], [result("a", "x")])], [(0, 1)]),
    "ids come before names, whatever stands first": (
        [Run([call("a", "x"), call("b", "x")], [result(name="x"), result("a", "x")])],
        [(0, 3), (1, 2)],
    ),
    "an unknown id goes by name to what ids left over": (
        [Run([call("a", "x"), call("b", "x")], [result("z", "x"), result("a", "x")])],
        [(0, 3), (1, 2)],
    ),
    "a second answer takes no other call of its tool": (
        [Run([call("a", "x"), call("b", "x")], [result("a", "x"), result("a", "x")])],
        [(0, 2), (1, None)],
    ),
    "no name pairs with a call behind it": (
        [Run([result(name="x"), call(name="x")])],
        [(1, None)],
    ),
    "a server pair inside the model's run": (
        [Run([call("s", "web", server=True), result("s", server=True), call("a")], [result("a")])],
        [(0, 1), (2, 3)],
    ),
    "server pairs without ids, one after the other": (
        [Run([call(name="code", server=True), result(name="code", server=True)] * 2)],
        [(0, 1), (2, 3)],
    ),
    "a server's result never answers a call of the client's": (
        [Run([call(name="x")], [result(name="x", server=True), result(name="x")])],
        [(0, 2)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PAIRINGS)
def test_pairing(case: str) -> None:
    runs, expected = PAIRINGS[case]
    index = indexed(*runs)
    assert pairs(index) == expected
    transcript = index.freeze()
    for one in transcript.exchanges:
        assert transcript.exchange_of[one.call] == one.ordinal
        if one.result is not None:
            assert transcript.exchange_of[one.result] == one.ordinal
            assert transcript.call_of(one.result) is transcript.parts[one.call]
    paired = {one.call for one in index.exchanges} | {one.result for one in index.exchanges}
    for position, ordinal in enumerate(transcript.exchange_of):
        assert (ordinal >= 0) == (position in paired)


def test_ordinals_survive_repeated_ids() -> None:
    index = indexed(*[Run([call("a")], [result("a")])] * 3)
    assert [one.ordinal for one in index.exchanges] == [0, 1, 2]
    assert [one.unit for one in index.exchanges] == [0, 1, 2]
    assert index.exchange_of == [0, 0, 1, 1, 2, 2]


def test_a_late_result_belongs_to_the_unit_of_its_call() -> None:
    index = indexed(Run([call("a")]), Run([plain()], [result("a")]))
    assert index.exchanges == [Exchange(0, 0, 0, 2)]
    assert [unit.exchanges for unit in index.units] == [(0,), ()]


def test_exchanges_of_the_server_say_so() -> None:
    index = indexed(Run([call("s", server=True), result("s", server=True)]))
    assert index.exchanges == [Exchange(0, 0, 0, 1, server=True)]


def test_what_was_answered_is_forgotten() -> None:
    """A long session keeps no queue for every call it ever made."""
    index = indexed(*[Run([call(f"c{n}")], [result(f"c{n}")]) for n in range(50)])
    again = indexed(Run([call("a"), call("a")], [result(name=""), result("a"), result("a")]))
    assert index._by_id == again._by_id == {}


UNITS: dict[str, tuple[Run, Unit]] = {
    "what the user said first": (
        Run([], [plain(), plain()]),
        Unit((0, 2), (0, 2), 0, (), (), False),
    ),
    "words only": (Run([plain()]), Unit((0, 2), (0, 1), 1, (), (), False)),
    "reasoning, words, calls, results": (
        Run([plain("reasoning"), plain(), call("a"), call("b")], [result("a"), result("b")]),
        Unit((0, 2), (0, 6), 4, (0, 1), (0,), False),
    ),
    "reasoning in several places": (
        Run([plain("reasoning"), call("a"), plain("reasoning")], [result("a")]),
        Unit((0, 2), (0, 4), 3, (0,), (0, 2), False),
    ),
    "calls that are still open": (
        Run([call("a"), call("b")]),
        Unit((0, 2), (0, 2), 2, (0, 1), (), False),
    ),
    "calls that go together or not at all": (
        Run([plain("reasoning"), call("a"), call("b")], [result("a"), result("b")], locked=True),
        Unit((0, 2), (0, 5), 3, (0, 1), (0,), True),
    ),
}


@pytest.mark.parametrize("case", UNITS)
def test_units(case: str) -> None:
    run, unit = UNITS[case]
    assert indexed(run).units == [unit]


def test_units_follow_one_another() -> None:
    one = Run([plain("reasoning"), call("a")], [result("a")])
    index = indexed(Run([], [plain()]), one, one)
    assert [unit.parts for unit in index.units] == [(0, 1), (1, 4), (4, 7)]
    assert [unit.answers_from for unit in index.units] == [0, 3, 6]
    assert [unit.reasoning for unit in index.units] == [(), (1,), (4,)]
    assert index.results == [3, 6]


def test_a_copy_grows_apart() -> None:
    first = indexed(Run([call("a"), call("b")], [result("b")]))
    kept = first.freeze()
    second = first.copy()
    second.add_unit((2, 4), [plain()], [result("a")], locked=False)
    assert first.freeze() == kept
    first.add_unit((2, 4), [call("c")], [result("c")], locked=False)
    assert pairs(second) == [(0, 4), (1, 2)]
    assert pairs(first) == [(0, None), (1, 2), (3, 4)]
    first.add_unit((4, 6), [], [result("a")], locked=False)
    assert pairs(first)[0] == (0, 5)
    assert second.exchange_of == [0, 1, 1, -1, 0]


def test_a_copy_of_a_state_shares_nothing_that_grows() -> None:
    state = State()
    twin = state.copy()
    for name in State.__struct_fields__:
        part, copied = getattr(state, name), getattr(twin, name)
        assert copied is not part or part is None, name
        for field in getattr(part, "__struct_fields__", ()):
            if isinstance(getattr(part, field), list | dict | set | RuleState):
                assert getattr(copied, field) is not getattr(part, field), f"{name}.{field}"


def test_no_part_of_a_state_has_more_than_fifteen_fields() -> None:
    parts = [getattr(State(), name) for name in State.__struct_fields__]
    assert all(len(getattr(one, "__struct_fields__", ())) <= 15 for one in parts)


def test_a_transcript_is_as_it_was_when_it_was_frozen() -> None:
    index = indexed(Run([call("a")]))
    before = index.freeze()
    index.add_unit((2, 4), [], [result("a")], locked=False)
    assert isinstance(before, Transcript)
    assert before.exchanges[0].result is None
    assert len(before.parts) == 1


def test_refs_read_like_places() -> None:
    assert str(Ref(3, ())) == "[3]"
    assert str(Ref(3, ("content", 0, "content", 2))) == "[3].content[0].content[2]"


def index_of(format: str, history: list[Any]) -> TranscriptIndex:
    return fold_request(
        history, format=format, policy=Policy(), facts=Facts(), memo=None
    ).state.transcript


def told(index: TranscriptIndex) -> list[tuple[str, str]]:
    """The id of each answered call, and what its result says."""
    return [
        (index.parts[one.call].id, index.parts[one.result].text)
        for one in index.exchanges
        if one.result is not None
    ]


@formats
def test_parallel_calls_in_every_format(format: str) -> None:
    calls = [Pair(f"said {n}", id=f"c{n}", tool=f"tool{n % 2}") for n in range(4)]
    index = index_of(format, request(format, "go", calls)[FIELD[format]])
    assert told(index) == [(f"c{n}", f"said {n}") for n in range(4)]
    assert [unit.exchanges for unit in index.units] == [(), (0, 1, 2, 3)]


def test_a_late_output_in_responses_is_not_moved() -> None:
    def asked(id: str) -> dict[str, str]:
        return {"type": "function_call", "call_id": id, "name": "x", "arguments": "{}"}

    def output(id: str) -> dict[str, str]:
        return {"type": "function_call_output", "call_id": id, "output": f"of {id}"}

    spoken = {"role": "assistant", "content": "Meanwhile."}
    history = [asked("a"), asked("b"), output("b"), spoken, output("a")]
    index = index_of("openai-responses", history)
    assert told(index) == [("a", "of a"), ("b", "of b")]
    assert [unit.exchanges for unit in index.units] == [(0, 1), ()]
    assert [unit.parts for unit in index.units] == [(0, 3), (3, 5)]
