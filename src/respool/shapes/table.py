"""A table: its head, its first and its last rows."""

from __future__ import annotations

import re

from .cutting import cut, head_of, line_end, lines_in, tail_of
from .shaped import Shaped

_FOOT = re.compile(r"\(\d[\d,]* rows?\)|\d+ rows? in set|\[\d+ rows x ")


def shape_table(text: str, budget: int) -> Shaped | None:
    """The head with its rule, then first and last rows as far as they fit."""
    head = _head(text)
    others = sorted({*(start for start, _ in lines_in(text, [(0, head)])), *_no_rows(text, head)})
    left = max(0, budget - head)
    first, last = head_of(text, head + left * 2 // 3), tail_of(text, left // 3)
    return cut(text, [(0, head), first, last], budget, "rows", others)


def is_rule(line: str) -> bool:
    """Whether a line is drawn between the head of a table and its rows."""
    return "--" in line and ("|" in line or "+" in line) and not line.strip(" \t\r\n|+:=-")


def _head(text: str) -> int:
    """Where the first row begins: behind the names and the rules around them."""
    at = line_end(text, 0)
    if is_rule(text[:at]):  # one above the names too
        at = line_end(text, at)
    after = line_end(text, at)
    return after if is_rule(text[at:after]) else at


def _no_rows(text: str, head: int) -> list[int]:
    """The lines at the end of a table that are not rows: blank, a rule, the count."""
    found: list[int] = []
    end = len(text)
    while end > head and len(found) < 6:
        start = text.rfind("\n", 0, max(0, end - 1)) + 1
        line = text[start:end].strip()
        if line and not is_rule(line) and not _FOOT.match(line):
            break
        found.append(start)
        end = start
    return found
