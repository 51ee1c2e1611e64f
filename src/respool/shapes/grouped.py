"""Search hits by file: the path once, above its lines, as `rg --heading` prints them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

# A path, the number of a line, and what stands in it; a path may hold no colon and no blank.
_HIT: Final = re.compile(r"((?!\d+[:\n])[^\s:]{1,240}):(?=\d{1,7}:)")
_AROUND: Final = re.compile(r"-\d{1,7}-")  # between a path and a line beside a hit
_FEWEST: Final = 2  # lines of a file, one behind the other
_NONE: Final = ""


def by_file(text: str) -> str:
    """The text with the path of neighbouring hits above them, and no longer before each of them.

    >>> by_file("lib/loom.py:3:import warp\\nlib/loom.py:9:warp()")
    'lib/loom.py\\n3:import warp\\n9:warp()'
    """
    lines = text.split("\n")
    paths = [_path_of(line) for line in lines]
    if not any(paths):
        return text
    _join_those_around(lines, paths)
    grouped = "\n".join(_told(lines, paths))
    return grouped if len(grouped) < len(text) else text


def _path_of(line: str) -> str:
    found = _HIT.match(line)
    return found[1] if found is not None else _NONE


def _join_those_around(lines: Sequence[str], paths: list[str]) -> None:
    """Give lines that a search shows beside its hits the path of the hit before, or behind."""
    for order in (range(1, len(lines)), range(len(lines) - 2, -1, -1)):
        beside = -1 if order.step > 0 else 1
        for at in order:
            path = paths[at + beside]
            if paths[at] == _NONE != path and _is_around(lines[at], path):
                paths[at] = path


def _is_around(line: str, path: str) -> bool:
    return line.startswith(path) and _AROUND.match(line, len(path)) is not None


def _told(lines: Sequence[str], paths: Sequence[str]) -> Iterator[str]:
    """The lines with headings; a blank line parts those of a file from what is before them."""
    at, headed = 0, False
    for path, run in groupby(paths):
        count = len(list(run))
        heads = path != _NONE and count >= _FEWEST
        if at and (heads or headed) and lines[at - 1] and lines[at]:
            yield ""
        if heads:
            yield path
        for line in lines[at : at + count]:
            yield line[len(path) + 1 :] if heads else line
        at, headed = at + count, heads
