"""Any text of which nothing else is known: its head and its tail."""

from __future__ import annotations

from .cutting import cut, head_of, tail_of
from .shaped import Shaped
from .troubles import TROUBLE, troubles


def shape_ends(text: str, budget: int) -> Shaped | None:
    """Head and tail on line borders, and the lines between that tell of a failure."""
    failures, left = troubles(text, TROUBLE, budget // 4)
    left += budget - budget // 4
    return cut(text, [head_of(text, left * 3 // 5), *failures, tail_of(text, left * 2 // 5)], budget)
