"""Drop the reasoning of units that are no longer recent, where the provider allows it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from ..edits import DropReasoning, Offer
from ..policy import Policy
from ..providers.bound_reasoning import Binding, binding_of, is_turn_start
from .base import View
from .protections import start_of_messages


def droppable_until(view: View, binding: Binding, start: int) -> int:
    """The first unit, from `start` on, whose reasoning must stay."""
    units = view.transcript.units
    last = len(units) - 1  # the model's latest unit must stay unchanged (A9)
    if binding.droppable == "none":
        return start
    if binding.droppable == "all":
        return max(start, last)
    return max(start, view.latest_turn_start)


def old_reasoning(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to drop the reasoning of old units, each as a whole, the oldest first."""
    binding = binding_of(view.format, view.fields)
    if policy.keep_reasoning_messages is None:
        start, stop = _aged_units(view)
    else:
        at = start_of_messages(view.transcript, policy.keep_reasoning_messages)
        view = view.keeping_from(at)
        start, stop = _aged_units(view)[0], _units_before(view, at)
    if start >= stop or binding.droppable == "none":
        return
    if binding.droppable == "turns":
        if view.latest_turn_start <= start:
            return  # it still runs
        start = _start_of_open_turn(view, start)
    stop = min(stop, droppable_until(view, binding, start))
    drops = list(_drops(view, binding, start, stop))
    if binding.oldest_first and drops:
        yield Offer("drop", drops[0], also=tuple(drops[1:]))
    else:
        yield from (Offer("drop", drop) for drop in drops)


def _aged_units(view: View) -> tuple[int, int]:
    """The range of units that may have become old since the last evaluation."""
    exchanges = view.transcript.exchanges
    old = max(0, view.seen_exchanges() - view.recent_count)
    stop = exchanges[old].unit if old < len(exchanges) else len(view.transcript.units) - 1
    start = exchanges[view.aged_from - 1].unit if view.aged_from else 0
    return start, stop


def _units_before(view: View, at: int) -> int:
    """Number of units that begin before a part, without the latest, which stays."""
    units = view.transcript.units
    return min(len(units) - 1, bisect_left(units, at, key=lambda unit: unit.parts[0]))


def _start_of_open_turn(view: View, start: int) -> int:
    """The first unit of the turn that was still running at the last evaluation."""
    while start > 0 and not _is_gone(view, start) and not is_turn_start(view.transcript, start):
        start -= 1
    return start


def _is_gone(view: View, number: int) -> bool:
    reasoning = view.transcript.units[number].reasoning
    return bool(reasoning) and not view.is_whole(reasoning[0])


def _drops(view: View, binding: Binding, start: int, stop: int) -> Iterator[DropReasoning]:
    """One edit per unit; with `oldest_first` none after a unit that stays."""
    for number in range(start, stop):
        reasoning = view.transcript.units[number].reasoning
        if not reasoning or not all(map(view.is_whole, reasoning)):
            continue
        if any(map(view.is_protected, reasoning)):
            if binding.oldest_first:
                return
            continue
        saved = sum(map(view.tokens_of, reasoning))
        if saved > 0 or binding.oldest_first:
            ref = view.transcript.parts[reasoning[0]].ref
            blocks = f"{len(reasoning)} block{'s' if len(reasoning) > 1 else ''}"
            evidence = f"{blocks}, {len(view.transcript.units) - 1 - number} turns ago"
            yield DropReasoning(
                unit=number, ref=ref, reason="old_reasoning", evidence=evidence, saved=saved
            )
