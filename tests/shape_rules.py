"""What holds for every shaped text, whatever its kind: it is checked line by line."""

from __future__ import annotations

import re

from clew.shapes import Shaped

HOLE = re.compile(r"\[… ([\d,]+) ([a-z]+)\]")
CLIPPED = re.compile(r"(.*)\[… ([\d,]+) chars\]", re.DOTALL)
COUNTS = re.compile(r" \[\+\d+ -\d+\]$")


def number(digits: str) -> int:
    """A number as it stands in a hole."""
    return int(digits.replace(",", ""))


def accounts_for(text: str, shaped: Shaped, *, counts: bool = False) -> None:
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
    assert shaped.gone == (unsaid if shaped.unit == "chars" else gone)
    assert 0 < shaped.gone <= shaped.all
    if shaped.unit == "chars":
        assert shaped.all == len(text)
    if shaped.unit == "lines":
        assert shaped.all == len(source)


def _unsaid(source: str, line: str) -> int:
    """How many characters of a line are gone, according to itself."""
    if line == source:
        return 0
    clipped = CLIPPED.fullmatch(line)
    assert clipped is not None, f"{line!r} does not stand in the text there"
    assert source.startswith(clipped[1])
    assert len(source) == len(clipped[1]) + number(clipped[2])
    return number(clipped[2])
