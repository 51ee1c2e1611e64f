"""Passes that only tests use: together they make every kind of edit that there is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from respool.edits import (
    DropExchange,
    DropReasoning,
    Offer,
    PlaceBreakpoint,
    Replace,
    exchange_closure,
)
from respool.markers import reference
from respool.passes import Pass
from respool.passes.base import View
from respool.policy import Policy


def drop_every_other_exchange(view: View, policy: Policy) -> Iterator[Offer]:
    """Take out every other exchange that has been answered and seen."""
    for exchange in view.fresh_exchanges():
        parts = exchange_closure(view.transcript, exchange.ordinal)
        if exchange.ordinal % 2 or any(view.is_protected(part) for part in parts):
            continue
        saved = sum(view.tokens_of(part) for part in parts)
        ref = view.transcript.parts[exchange.call].ref
        if saved > 0:
            yield Offer("drop", DropExchange(exchange.ordinal, ref, "trial", "old", saved))


def drop_old_reasoning(view: View, policy: Policy) -> Iterator[Offer]:
    """Take out the reasoning of every unit but the last two."""
    units = view.transcript.units
    for number in range(len(units) - 2, -1, -1):
        unit = units[number]
        if unit.parts[0] < view.fresh_from:
            break
        saved = sum(view.tokens_of(part) for part in unit.reasoning)
        if saved > 0 and not any(view.is_protected(part) for part in unit.reasoning):
            ref = view.transcript.parts[unit.reasoning[0]].ref
            yield Offer("drop", DropReasoning(number, ref, "trial", "old", saved))


def shorten_calls(view: View, policy: Policy) -> Iterator[Offer]:
    """Put a back-reference, which is a JSON object, in place of old arguments."""
    for exchange in view.fresh_exchanges():
        part = view.transcript.parts[exchange.call]
        if not view.can_rewrite(exchange.call) or '"repeat_of"' in part.text:
            continue
        ref = reference(part.text)
        text = json.dumps({"repeat_of": ref})
        saved = view.counter.count(part.text) - view.counter.count(text)
        if saved > 0:
            edit = Replace(exchange.call, part.ref, text, ref, "trial", "arguments", saved)
            yield Offer("trim", edit)


def place_last_seen_breakpoint(control: dict[str, Any]) -> Pass:
    """A pass that places this cache mark, once, on the last user text that the model has seen."""

    def place_once(view: View, policy: Policy) -> Iterator[Offer]:
        positions = range(view.unseen_from - 1, -1, -1) if not view.in_force else ()
        for position in positions:
            part = view.transcript.parts[position]
            if part.kind == "text" and part.speaker == "user":
                yield Offer(
                    "trim", PlaceBreakpoint(position, part.ref, control, "trial", "the cut")
                )
                return

    return place_once


def fail(view: View, policy: Policy) -> Iterator[Offer]:
    """A pass with a bug."""
    raise ZeroDivisionError("a planted bug")
