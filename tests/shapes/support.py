"""Rules that hold for every shaped text, checked line by line."""

from __future__ import annotations

import re
from typing import NamedTuple

from respool.shapes import ShapedText, ShapeKind, classify, shape

HOLE = re.compile(r"\[… ([\d,]+) ([a-z]+)\]")
CLIPPED = re.compile(r"(.*)\[… ([\d,]+) chars\]", re.DOTALL)
COUNTS = re.compile(r" \[\+\d+ -\d+\]$")


class Case(NamedTuple):
    """A text, and exactly what stays of it in so much room."""

    kind: ShapeKind
    name: str
    room: int
    text: str
    left: str
    told: tuple[int, int, str]

    @property
    def id(self) -> str:
        """Name of a test of it."""
        return f"{self.kind}: {self.name}"


def holds(case: Case) -> None:
    """Exactly this stays of a text, every line is accounted for, and its call tells its kind."""
    shaped = shape(case.text, case.kind, case.room)
    assert shaped is not None
    assert shaped.text == case.left.removesuffix("\n")
    assert (shaped.removed, shaped.total, shaped.unit) == case.told
    if case.kind != "json":  # which is laid out anew: its own tests account for it
        accounts_for(case.text, shaped, counts=case.kind == "diff")
    assert classify(case.text, None if case.kind == "other" else case.kind) == case.kind


def number(digits: str) -> int:
    """A number as it stands in a hole."""
    return int(digits.replace(",", ""))


def accounts_for(text: str, shaped: ShapedText, *, counts: bool = False) -> None:
    """Each line that stayed is the text's own, in its place, and holes stand for all the others."""
    source = text.removesuffix("\n").split("\n")
    at = gone = unsaid = 0
    for line in shaped.text.split("\n"):
        hole = HOLE.fullmatch(line)
        if hole is not None and hole[2] != "chars":
            assert hole[2] == shaped.unit
            gone += number(hole[1])
            at += number(hole[1])
            continue
        unsaid += _unsaid(source[at], COUNTS.sub("", line) if counts else line)
        at += 1
    assert at == len(source), "lines are unaccounted for"
    assert shaped.removed == (unsaid if shaped.unit == "chars" else gone)
    assert 0 < shaped.removed <= shaped.total
    if shaped.unit == "chars":
        assert shaped.total == len(text)
    if shaped.unit == "lines":
        assert shaped.total == len(source)


def _unsaid(source: str, line: str) -> int:
    """Number of removed characters that a line states."""
    if line == source:
        return 0
    clipped = CLIPPED.fullmatch(line)
    assert clipped is not None, f"{line!r} does not stand in the text there"
    assert source.startswith(clipped[1])
    assert len(source) == len(clipped[1]) + number(clipped[2])
    return number(clipped[2])
