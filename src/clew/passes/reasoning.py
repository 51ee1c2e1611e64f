"""How far back a provider lets reasoning go, and what must go with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from msgspec import Struct

from ..models import Model, model_of
from ..transcript import History
from .view import View

# all: of any old unit; turns: only of turns that are over; none: of none.
Reach = Literal["all", "turns", "none"]


class Release(Struct, frozen=True, gc=False):
    """What a provider allows: whose reasoning may go, and whether only the oldest first."""

    reach: Reach
    together: bool = False  # signed for what stands before it: none may go before an older one


def release_of(format: str, fields: Mapping[str, Any] | None) -> Release:
    """What this format, model and mode allow; what is not known counts as forbidden.

    Responses unbinds what followed the reasoning, and Gemini signs the calls, not the thoughts.
    Chat has no reasoning of its own: it comes from a router, or from a server that may demand it
    back (DeepSeek, Kimi), so there only known makers' goes, and never inside a turn.
    """
    told = fields or {}
    model = model_of(told.get("model"))
    if format == "anthropic":
        return _of_claude(model, told.get("thinking"))
    if format == "openai-chat":
        return Release("none") if model is None else Release("turns", together=True)
    return Release("all") if format in ("openai-responses", "gemini") else Release("none")


def _of_claude(model: Model | None, thinking: object) -> Release:
    """In manual mode a turn must still open with its thinking (A10); newer models bind it (A12)."""
    mode = cast(dict[str, Any], thinking).get("type") if isinstance(thinking, dict) else None
    if model is None or mode == "enabled":
        return Release("turns", together=True)
    return Release("all", together=binds(model))


def binds(model: Model) -> bool:
    """Whether a Claude model signs its thinking for all that stands before it."""
    if model.maker != "anthropic":
        return False
    least = (5, 1) if model.family in ("fable", "mythos") else (5, 5)
    return model.version >= least


def droppable_until(view: View, release: Release, start: int) -> int:
    """The first unit, from `start` on, whose reasoning must stay."""
    units = view.transcript.units
    last = len(units) - 1  # the latest turn of the model stays as it came (A9)
    if release.reach == "none":
        return start
    if release.reach == "all":
        return max(start, last)
    for number in range(last, start, -1):
        if opens_turn(view.transcript, number):
            return number
    return start


def opens_turn(transcript: History, number: int) -> bool:
    """Whether the user said something of their own right before this unit."""
    if number == 0:
        return True
    unit = transcript.units[number - 1]
    if unit.parts[1] - unit.answers == len(unit.exchanges) > 0:
        return False  # results, and no more
    answers = [transcript.parts[at] for at in range(unit.answers, unit.parts[1])]
    results = {part.ref.row for part in answers if part.kind == "result"}
    return any(
        part.kind == "text" and part.speaker == "user" and part.ref.row not in results
        for part in answers
    )
