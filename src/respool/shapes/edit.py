"""What a tool says after it wrote a file: its first line is enough, for the call shows the rest."""

from __future__ import annotations

from .cutting import cut, line_end
from .shaped import Shaped
from .troubles import TROUBLE, troubles


def shape_edit(text: str, budget: int) -> Shaped | None:
    """The first line."""
    first = (0, line_end(text, 0))
    told = [] if _shows_the_file(text) else troubles(text, TROUBLE, budget // 2)[0]
    return cut(text, [first, *told], budget)


def _shows_the_file(text: str) -> bool:
    """Whether what follows the first line is the file itself: its words are no failure."""
    return "cat -n" in text[: line_end(text, 0)]
