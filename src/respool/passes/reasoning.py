"""How far back reasoning may go by itself."""

from __future__ import annotations

from ..binding import Binding, opens_turn
from .view import View


def droppable_until(view: View, binding: Binding, start: int) -> int:
    """The first unit, from `start` on, whose reasoning must stay."""
    units = view.transcript.units
    last = len(units) - 1  # the latest turn of the model stays as it came (A9)
    if binding.droppable == "none":
        return start
    if binding.droppable == "all":
        return max(start, last)
    for number in range(last, start, -1):
        if opens_turn(view.transcript, number):
            return number
    return start
