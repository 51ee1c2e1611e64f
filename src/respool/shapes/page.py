"""A page of prose, Markdown or HTML: its headings, and the first sentence of each section."""

from __future__ import annotations

import re

from .cutting import LEAST_LINE, Span, cut, head_of, line_end, pick, tail_of
from .numbered import NUMBER, both, is_numbered
from .shaped import Shaped

_HEADING = both(r"(?:(#{1,6})[ \t]+\S|[ \t]{0,8}<(?:[hH]([1-6])|title)\b)")
_PROSE = re.compile(rf"(?:{NUMBER})?[ \t>*-]{{0,6}}[^\W\d_`]")


def shape_page(text: str, budget: int) -> Shaped | None:
    """Headings, then how each section begins; a page without headings keeps its ends."""
    found = [*_HEADING[is_numbered(text)].finditer(f"\n{text}")]
    if len(found) < 2:
        return cut(text, [head_of(text, budget * 3 // 5), tail_of(text, budget * 2 // 5)], budget)
    headings = [(one.start(), line_end(text, one.start())) for one in found]
    upper = [line for one, line in zip(found, headings, strict=True) if _depth(one) <= 2]
    opening = [line for _, end in headings if (line := _opening(text, end)) is not None]
    ranks = [[head_of(text, 80)], upper, headings, opening]
    chosen, left = pick(ranks, budget)
    return cut(text, [*chosen, head_of(text, left // 2)], budget, limit=LEAST_LINE)


def _depth(heading: re.Match[str]) -> int:
    return len(heading[1] or "") or int(heading[2] or 1)


def _opening(text: str, at: int) -> Span | None:
    """The first line of prose in the section that begins here."""
    for _ in range(4):
        if at >= len(text):
            return None
        end = line_end(text, at)
        if _PROSE.match(text, at, end):
            return at, end
        at = end
    return None
