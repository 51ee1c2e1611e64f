"""Ledger, line index and hash numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.history.ledger import Ledger
from respool.history.line_index import (
    _MAX_PLACES,
    UNNUMBERED,
    HashNumbers,
    bytes_held,
    match_end,
    parse_line,
    part_text,
)
from respool.markers import OmissionMarker
from respool.tools import Tool, Tools
from respool.transcript import Exchange, Part, Ref
from tests.effort import examples
from tests.support.native_library import accelerated

TOOLS_THAT_WRITE = (
    Tool("put", kind="write", writes="path", replaces=True),
    Tool("amend", kind="write", writes="path"),
)
TOOLS = Tools(
    [
        Tool("look", kind="read", reads="path"),
        *TOOLS_THAT_WRITE,
        Tool("find", kind="search"),
        Tool("go", kind="run"),
    ]
)


@pytest.fixture(autouse=True, scope="module")
def in_python() -> Iterator[None]:
    """The index whose places can be looked at; the accelerator's has none."""
    with accelerated(False):
        yield


class Story:
    """Calls one after the other, in one ledger."""

    def __init__(self, tools: Tools = TOOLS) -> None:
        self.tools = tools
        self.ledger = Ledger()
        self.parts: list[Part] = []
        self.exchanges: list[Exchange] = []

    def add(self, tool: str, result: str = "", *, error: bool = False, **arguments: Any) -> int:
        ordinal, at = len(self.exchanges), len(self.parts)
        text = json.dumps(arguments)
        self.parts += [
            Part(Ref(at, ()), "call", "model", text, tool, f"c{ordinal}"),
            Part(Ref(at + 1, ()), "result", "tool", result, error=error),
        ]
        self.exchanges.append(Exchange(ordinal, ordinal, at, at + 1))
        assert self.note(ordinal)
        return ordinal

    def note(self, at: int) -> bool:
        return self.ledger.extend(
            at, exchanges=self.exchanges[at:], parts=self.parts, tools=self.tools, definitions={}
        )


def test_events_are_told_by_path_and_only_up_to_the_reader() -> None:
    story = Story()
    for tool in ("look", "amend", "look", "put"):
        story.add(tool, path="src/a.py")
    told = [(one.ordinal, one.is_write, one.replaced) for one in story.ledger.events("src/a.py", 4)]
    assert told == [(0, False, False), (1, True, False), (2, False, False), (3, True, True)]
    assert [one.ordinal for one in story.ledger.events("src/a.py", 2)] == [0, 1]
    assert story.ledger.events("src/b.py", 9) == []


SPANS = st.none() | st.tuples(st.integers(1, 6), st.integers(1, 6)).map(
    lambda ends: (min(ends), max(ends))
)


@given(st.lists(st.tuples(st.sampled_from(["look", "put", "amend"]), SPANS), max_size=12))
def test_answers_about_a_file_are_those_of_a_scan_of_its_accesses(
    calls: list[tuple[str, tuple[int, int] | None]],
) -> None:
    tools = Tools([Tool("look", kind="read", reads="path", lines="lines"), *TOOLS_THAT_WRITE])
    story = Story(tools)
    for tool, lines in calls:
        more: dict[str, Any] = {"lines": list(lines)} if lines and tool == "look" else {}
        story.add(tool, path="a.py", **more)
    ledger = story.ledger
    for until in range(len(calls) + 1):
        events = list(ledger.events("a.py", until))
        writes = [one.ordinal for one in events if one.is_write]
        assert ledger.last_write_of("a.py", until) == (writes[-1] if writes else -1)
        for ordinal, use in enumerate(ledger.uses[:until]):
            later = [one for one in events if one.ordinal > ordinal]
            assert ledger.count_events("a.py", ordinal, until) == len(later)
            assert ledger.is_rewritten("a.py", ordinal, until) == any(x.replaced for x in later)
            reads = [one for one in later if not one.is_write]
            assert ledger.is_read("a.py", ordinal, until) == bool(reads)
            for span in use.reads:
                covered = any(one.span.covers(span) for one in reads)
                assert ledger.is_read_again(ordinal, span, until) == covered


class CountedParts(list[Part]):
    """Parts that count how often one is looked at."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        self.looks += 1
        return super().__getitem__(at)


def test_a_turn_without_a_call_looks_at_no_part() -> None:
    parts = CountedParts(Part(Ref(at, ()), "text", "user", "two words") for at in range(50))
    assert Ledger().extend(0, exchanges=[], parts=parts, tools=TOOLS, definitions={})
    assert parts.looks == 0


WRITES = {
    "the very file": ("amend", {"path": "src/a.py"}, True),
    "another file": ("amend", {"path": "src/b.py"}, False),
    "a path that ends in it": ("amend", {"path": "/home/me/src/a.py"}, True),
    "a path it ends in": ("amend", {"path": "a.py"}, True),
    "a name that only ends alike": ("amend", {"path": "src/aa.py"}, False),
    "a tool that nobody knows": ("mystery", {"path": "src/b.py"}, True),
    "a search": ("find", {}, False),
    "a read": ("look", {"path": "src/a.py"}, False),
}


@pytest.mark.parametrize("case", WRITES)
def test_whether_a_file_may_have_been_written(case: str) -> None:
    tool, arguments, may = WRITES[case]
    story = Story()
    first = story.add("look", path="src/a.py")
    between = story.add(tool, **arguments)
    last = story.add("look", path="src/a.py")
    assert story.ledger.can_be_written("src/a.py", first, last) is may
    assert not story.ledger.can_be_written("src/a.py", between, last)
    assert not story.ledger.can_be_written("src/a.py", first, between)


def test_copies_repeats_and_outcomes() -> None:
    story = Story()
    long = "the same long text, again and again, " * 3
    first = story.add("go", long, command="make")
    story.add("go", "x" * 100, command="make")
    story.add("go", long, command="test", error=True)
    end = story.add("go", long, command="test")
    ledger = story.ledger
    assert ledger.copies(long, end) == [first, 2]
    assert ledger.copies("short", end) == []
    assert ledger.repeats("go", ledger.uses[0], end) == [0, 1]
    assert [one.failed for one in ledger.outcomes(ledger.uses[2], end + 1)] == [True, False]


def test_the_last_outcome_is_the_last_of_all() -> None:
    story = Story()
    for number in range(12):
        name = ("make", "test", "lint")[number % 3]
        story.add("go", "x" * 100, command=name, error=number % 2 == 0)
    ledger = story.ledger
    for use in ledger.uses:
        for until in range(len(ledger.uses) + 2):
            before = ledger.outcomes(use, until)
            assert ledger.last_outcome(use, until) == (before[-1] if before else None)


def test_only_who_stands_at_the_end_may_write_on() -> None:
    story = Story()
    story.add("look", path="a")
    assert not story.note(0)
    assert len(story.ledger.uses) == 1
    story.add("look", path="b")
    assert len(story.ledger.uses) == 2


# Lines: where each stands, up to wherever the reader is.

LONG = "".join(f"thread {number} of the loom\n" for number in range(12))
WEFT = parse_line("thread 3 of the loom")
AT = LONG.index(WEFT.bare)


def test_lines_of_results_and_writes_are_found_up_to_the_reader() -> None:
    story = Story()
    story.add("look", LONG, path="a")
    story.add("put", "ok", path="a", text=LONG)
    story.add("find", "", text=LONG)
    head = f"    1→{WEFT.bare}\n"
    story.add("look", head + LONG, path="a")
    lines = story.ledger.lines
    assert lines.places(WEFT, 9) == [(1, AT), (2, len("a\n") + AT), (7, 0), (7, len(head) + AT)]
    assert lines.places(WEFT, 2) == [(1, AT)]
    assert lines.places(WEFT, 1) == ()
    assert lines.places(parse_line("never said by anyone"), 9) == ()
    for position, start in lines.places(WEFT, 9):
        text = lines.text(position)
        assert parse_line(text[start:].partition("\n")[0]).bare == WEFT.bare


NOT_NOTED = {
    "a short line": "thread\n" * 40,
    "a short text": "thread 3 of the loom\n" * 5,
    "a line that is very long": "thread 3 of the loom " * 200,
    "what has a marker": LONG + str(OmissionMarker(2, "lines", "a" * 20)),
}


@pytest.mark.parametrize("case", NOT_NOTED)
def test_lines_that_are_not_worth_a_place(case: str) -> None:
    story = Story()
    story.add("look", NOT_NOTED[case], path="a")
    for line in NOT_NOTED[case].splitlines():
        assert story.ledger.lines.places(parse_line(line), 9) == ()


def test_of_a_line_that_stands_everywhere_the_first_places_are_known() -> None:
    story = Story()
    for _ in range(100):
        story.add("look", LONG, path="a")
    places = story.ledger.lines.places(WEFT, 1_000)
    assert [position for position, _ in places] == list(range(1, 2 * _MAX_PLACES + 3, 2))


def test_a_conversation_takes_so_many_places_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("respool.history.line_index._MAX_LINES", 5)
    story = Story()
    for _ in range(3):
        story.add("look", LONG, path="a")
    found = [story.ledger.lines.places(parse_line(line), 99) for line in LONG.splitlines()]
    assert [len(places) for places in found] == [1] * 5 + [0] * 7


@pytest.mark.parametrize("kept", [True, False])
def test_noted_one_by_one_or_at_once_it_is_the_same_ledger(kept: bool) -> None:
    """A result that comes after the model spoke again was not there when its call was noted."""
    story = Story()
    story.add("look", LONG, path="a")
    late = story.add("go", LONG, command="make")
    if not kept:
        story.exchanges[late] = Exchange(late, late, 2, 6)
        story.parts[3] = Part(Ref(3, ()), "text", "user", "wait")
    story.add("look", LONG, path="b")
    story.parts.append(Part(Ref(6, ()), "result", "tool", LONG))
    forked = Ledger()
    assert forked.extend(
        0, exchanges=story.exchanges, parts=story.parts, tools=TOOLS, definitions={}
    )
    one_by_one = Ledger()
    for exchange in story.exchanges:
        known = exchange if exchange.result != 6 else Exchange(late, late, 2, None)
        assert one_by_one.extend(
            exchange.ordinal, exchanges=[known], parts=story.parts[:6], tools=TOOLS, definitions={}
        )
    positions = [1, 3, 5] if kept else [1, 5]
    for ledger in (forked, one_by_one):
        assert [position for position, _ in ledger.lines.places(WEFT, 9)] == positions
        assert list(ledger.copies(LONG, 9)) == ([0, 1, 2] if kept else [0, 2])


SOME = st.sampled_from(["", "}", "    pass", "def weave(thread):", "return loom", "x = 1  ", "#"])
FIRST = st.sampled_from([None, 1, 7])


def _numbers(lines: list[str], first: int | None) -> str:
    counted = enumerate(lines, first or 0)
    return "\n".join(line if first is None else f"{n}\t{line}" for n, line in counted)


@given(st.lists(SOME, min_size=1, max_size=40), st.integers(0, 39), FIRST, FIRST)
def test_lines_are_the_same_up_to_the_first_that_differs(
    some: list[str], at: int, first: int | None, there: int | None
) -> None:
    at = min(at, len(some) - 1)
    changed = _numbers([*some[:at], f"{some[at]} differs", *some[at + 1 :]], there)
    lines = [parse_line(one) for one in _numbers(some, first).split("\n")]
    told = first in (None, there)  # nothing but the other text tells the number of the first line
    assert match_end(lines, at=0, end=len(some), text=changed, start=0) == (at if told else 0)


SAID = {
    "strings in their order": ('{"a": "x\\ny", "b": [{"c": "z", "d": 3}, "w"]}', "x\ny\nz\nw"),
    "no JSON": ("*** Begin Patch", "*** Begin Patch"),
    "half a character": ('{"a": "\\ud800"}', '{"a": "\\ud800"}'),
    "too deep": ("[" * 200_000 + "]" * 200_000, "[" * 200_000 + "]" * 200_000),
}


@pytest.mark.parametrize("case", SAID)
def test_what_a_call_shows(case: str) -> None:
    text, shows = SAID[case]
    assert part_text(Part(Ref(0, ()), "call", "model", text)) == shows
    assert part_text(Part(Ref(0, ()), "result", "tool", text)) == text


KEYS = st.integers(-(2**63), 2**63 - 1)
# So that many fall on the same slots.
CLOSE = st.builds(lambda high, low: (high << 40) | low, st.integers(0, 200), st.integers(1, 3))


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(KEYS | CLOSE, max_size=1_500))
def test_each_hash_has_one_number_in_the_order_they_came(keys: list[int]) -> None:
    numbers, known = HashNumbers(), dict[int, int]()
    found = numbers.numbers_of(keys)
    for key in keys:
        known.setdefault(key, len(known) + 1)
    assert list(found) == [known[key] for key in keys]
    assert [numbers.get(key) for key in known] == list(known.values())
    assert len(numbers) == len(known) + 1


def test_what_has_none_is_told() -> None:
    numbers = HashNumbers()
    assert numbers.get(7) == UNNUMBERED
    assert numbers.number_of(7) == 1
    assert (numbers.get(7), numbers.get(8)) == (1, UNNUMBERED)


def test_it_grows_and_stays_small() -> None:
    numbers, count = HashNumbers(), 50_000
    found = numbers.numbers_of(range(1, count + 1))
    assert (found[0], found[-1]) == (1, count)
    assert numbers.get(count // 2) == count // 2
    assert 8 * count < numbers.size_bytes < 30 * count  # a dict of ints takes over a hundred
    assert numbers.size_bytes > bytes_held(found)


def test_one_thread_may_add_while_another_asks() -> None:
    numbers, known = HashNumbers(), range(1, 2_000)
    numbers.numbers_of(known)
    with ThreadPoolExecutor(1) as threads:
        adding = threads.submit(numbers.numbers_of, range(2_000, 150_000))
        while not adding.done():
            assert [numbers.get(key) for key in known] == list(known)
        assert adding.result()[-1] == 149_999
