"""The ledger tells what was read and written, up to wherever its reader stands."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clew.ledger import Ledger
from clew.tools import Tool, Tools
from clew.transcript import Exchange, Part, Ref

TOOLS = Tools(
    [
        Tool("look", kind="read", reads="path"),
        Tool("put", kind="write", writes="path", replaces=True),
        Tool("amend", kind="write", writes="path"),
        Tool("find", kind="search"),
        Tool("go", kind="run"),
    ]
)


class Story:
    """Calls one after the other, in one ledger."""

    def __init__(self) -> None:
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
        return self.ledger.extend(at, self.exchanges[at:], self.parts, TOOLS, {})


def test_events_are_told_by_path_and_only_up_to_the_reader() -> None:
    story = Story()
    for tool in ("look", "amend", "look", "put"):
        story.add(tool, path="src/a.py")
    told = [(one.ordinal, one.wrote, one.replaced) for one in story.ledger.events("src/a.py", 4)]
    assert told == [(0, False, False), (1, True, False), (2, False, False), (3, True, True)]
    assert [one.ordinal for one in story.ledger.events("src/a.py", 2)] == [0, 1]
    assert story.ledger.events("src/b.py", 9) == []


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
    assert story.ledger.may_be_written("src/a.py", first, last) is may
    assert not story.ledger.may_be_written("src/a.py", between, last)
    assert not story.ledger.may_be_written("src/a.py", first, between)


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


def test_only_who_stands_at_the_end_may_write_on() -> None:
    story = Story()
    story.add("look", path="a")
    assert not story.note(0)
    assert len(story.ledger.uses) == 1
    story.add("look", path="b")
    assert len(story.ledger.uses) == 2
