"""What a build or a run printed: its errors and warnings with a line around them, and its ends."""

from __future__ import annotations

from collections.abc import Iterator

from .cutting import Span, cut, head_of, line_end, line_start, lines_in, pick, tail_of
from .shaped import Shaped
from .troubles import TROUBLE, WARNING, is_trouble, lines_with


def shape_log(text: str, budget: int) -> Shaped | None:
    """First and last lines, errors, warnings, then what stands around them."""
    chosen, left = pick(_ranks(text, budget), budget)
    more = [head_of(text, budget // 8 + left // 3), tail_of(text, budget // 4 + left // 2)]
    return cut(text, [*chosen, *more], budget)


def _ranks(text: str, budget: int) -> Iterator[list[Span]]:
    found = [line for line in lines_with(text, TROUBLE) if is_trouble(text, line, TROUBLE)]
    yield lines_in(text, [head_of(text, budget // 8), tail_of(text, budget // 4)])
    yield _each_once(text, found)
    yield [one for line in found for one in around(text, line, 1, 1)]
    yield _each_once(text, lines_with(text, WARNING))


def around(text: str, line: Span, before: int, after: int) -> list[Span]:
    """The lines next to a line."""
    start, end = line
    first, last = start, end
    for _ in range(before):
        first = line_start(text, first - 1) if first else first
    for _ in range(after):
        last = line_end(text, last) if last < len(text) else last
    return [span for span in ((first, start), (end, last)) if span[0] < span[1]]


def _each_once(text: str, lines: list[Span]) -> list[Span]:
    """The lines without those that say, their time aside, what one before them said."""
    seen: set[str] = set()
    found: list[Span] = []
    for start, end in lines:
        said = text[start:end].lstrip("0123456789 :.,-/[]TZ")
        if said not in seen:
            seen.add(said)
            found.append((start, end))
    return found
