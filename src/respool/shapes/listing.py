"""A listing of files or other things: its ends, and folders before files."""

from __future__ import annotations

import re

from .cutting import Span, cut, head_of, line_at, line_end, lines_in, pick, tail_of
from .shaped import Shaped

_FOLDER = re.compile(r"\nd[rwxsStT-]{9}|/\n|\n040000 tree|:\n")
_COLUMNS = re.compile(r"\S{1,255}(?: {2,40}\S{1,255}){1,60}")
_NO_ENTRY = re.compile(
    r"\n(?:[ \t\r]*(?=\n|$)|total \d|Found \d|No \w+ found|Directory listing for |\(Results are"
    r"|\d+ director"
    r"|\.{0,2}[\w/.-]*:\r?(?=\n|$))"
)


def shape_listing(text: str, budget: int) -> Shaped | None:
    """The first and the last entries, folders, then as many of the others as fit."""
    padded = f"\n{text}"
    others = [found.start() for found in _NO_ENTRY.finditer(padded) if found.start() < len(text)]
    ranks = [
        lines_in(text, [head_of(text, budget // 4), tail_of(text, budget // 6)]),
        [(at, line_end(text, at)) for at in others if not _blank(text, at)],
        _folders(text),
    ]
    chosen, left = pick(ranks, budget)
    return cut(text, [*chosen, head_of(text, budget // 4 + left)], budget, "entries", others)


def count_entries(text: str) -> int | None:
    """How many entries a listing has: not its counts, nor the names of folders above them.

    None where several may stand in one line.

    >>> count_entries("total 8\\na.py\\nb.py\\n"), count_entries("a.py  b.py  lib")
    (2, None)
    """
    if any(_COLUMNS.fullmatch(line.strip()) for line in text.split("\n")):
        return None
    lines = text.count("\n") + (text[-1:] not in ("", "\n"))
    return lines - sum(found.start() < len(text) for found in _NO_ENTRY.finditer(f"\n{text}"))


def _blank(text: str, at: int) -> bool:
    return not text[at : line_end(text, at)].strip()


def _folders(text: str) -> list[Span]:
    places = (found.start() + 1 for found in _FOLDER.finditer(f"\n{text}"))
    found = [line_at(text, min(at - 1, len(text) - 1)) for at in places]
    return sorted(set(found))
