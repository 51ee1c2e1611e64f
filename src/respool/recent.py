"""How far back the latest messages and calls reach that a policy leaves alone."""

from __future__ import annotations

from .policy import Policy
from .transcript import History, Unit


def kept_from(history: History, policy: Policy) -> int | None:
    """The first part that no pass may touch, seen or not; None: the policy keeps none."""
    starts = [
        start(history, count)
        for start, count in (
            (start_of_messages, policy.keep_messages),
            (start_of_calls, policy.keep_calls),
        )
        if count > 0
    ]
    return min(starts, default=None)


def start_of_messages(history: History, count: int) -> int:
    """The first part of the last so many messages.

    What the model said at once is one message, and so is each entry that came after it: the same
    history counts the same in every format, whatever its wire calls a message.
    """
    for unit in reversed(history.units):
        firsts = _messages(history, unit)
        if count <= len(firsts):
            return firsts[len(firsts) - count] if count > 0 else unit.parts[1]
        count -= len(firsts)
    return 0


def start_of_calls(history: History, count: int) -> int:
    """The first part of the turn that made the last so many calls; no batch of calls is parted."""
    if count <= 0:
        return len(history.parts)
    if count > len(history.exchanges):
        return 0
    return history.units[history.exchanges[-count].unit].parts[0]


def _messages(history: History, unit: Unit) -> list[int]:
    """Where each message of a unit begins."""
    first, end = unit.parts
    firsts = [first] if first < unit.answers_from else []
    row = -1
    for position in range(unit.answers_from, end):
        if history.parts[position].ref.row != row:
            row = history.parts[position].ref.row
            firsts.append(position)
    return firsts
