"""Reasoning bound to its prefix, and the reasoning that a change must drop."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from ..edits import DropReasoning, Edit, PlaceBreakpoint, touched_parts
from ..model_names import ModelName, parse_model_name
from ..regex import lazy_compile
from ..transcript import ReadOnlyTranscript, Unit
from .base import ANY_MAKER, ROUTED_CLAUDE_RULES, Binding, BindingRule
from .registry import PROVIDERS

_REQUIRED = Binding("nothing", "none")  # of servers that require all reasoning back
_UNKNOWN = Binding("prefix", "none", oldest_first=True)
_NEED_RATE, _NEED_OFFSET = 0.08, 3  # fitted: never below the recorded probability
_OUTPUT_PRICE_RATIO = 5  # price of an output token relative to input, by Claude's price list

# Servers that sign nothing, and may require every thought back (T4).
_REQUIRES_REASONING = lazy_compile(
    r"deepseek|kimi|moonshot|glm|qwen|qwq|minimax|mimo|gpt-oss|mistral|llama"
)


def binding_of(format: str, fields: Mapping[str, Any] | None) -> Binding:
    """The binding for this format, model and mode; unknown models get the strictest.

    A request does not show whether its account is checked, so every model that signs for the
    prefix counts as checked: dropping reasoning that might have stayed never fails. With an
    unknown model name, nothing before reasoning is changed. As unbound, a newer Claude would
    reject the reasoning that stayed; as Claude, a server that requires reasoning back would
    reject the request without it.
    """
    known = fields or {}
    name = known.get("model")
    model, provider = parse_model_name(name), PROVIDERS.get(format)
    rules = ROUTED_CLAUDE_RULES if provider is None else provider.binding_rules
    if model is None and _is_reasoning_required(name):
        binding = _REQUIRED
    else:
        binding = next((row.binding for row in rules if _is_match(row, model)), _UNKNOWN)
    return binding if provider is None else provider.adjust_binding(binding, known)


def _is_reasoning_required(name: object) -> bool:
    return isinstance(name, str) and bool(_REQUIRES_REASONING.search(name[:200].lower()))


def _is_match(row: BindingRule, model: ModelName | None) -> bool:
    if row.maker not in ("" if model is None else model.maker, ANY_MAKER):
        return False
    if model is None or not row.families:
        return True
    return model.family in row.families and model.version >= row.since


def first_breaking_part(
    history: ReadOnlyTranscript, edits: Iterable[Edit], dropped: Collection[int]
) -> int | None:
    """The first part whose change invalidates the reasoning after it, or None.

    Cache breakpoints never do, nor does dropping the oldest reasoning. `dropped` are the parts
    that edits in force have removed.
    """
    taken = [
        (edit, touched_parts(edit, history))
        for edit in edits
        if not isinstance(edit, PlaceBreakpoint)
    ]
    out = {part for _, parts in taken for part in parts}
    drops = any(isinstance(edit, DropReasoning) for edit, _ in taken)
    oldest = next(
        (
            at
            for unit in (history.units if drops else ())
            for at in unit.reasoning
            if at not in dropped and at not in out
        ),
        len(history.parts),
    )
    breaking = (
        min(parts)
        for edit, parts in taken
        if parts and not (isinstance(edit, DropReasoning) and parts[-1] < oldest)
    )
    return min(breaking, default=None)


def can_change_at(
    history: ReadOnlyTranscript, position: int, binding: Binding, dropped: Collection[int]
) -> bool:
    """Return whether a change at this part is possible: all it must drop may be dropped."""
    return position >= first_changeable_part(history, binding, dropped)


def first_changeable_part(
    history: ReadOnlyTranscript, binding: Binding, dropped: Collection[int]
) -> int:
    """The first part at which a change is possible."""
    if not binding.is_bound or binding.droppable == "all":
        return 0
    units = history.units
    stays_from = running_turn_start(history) if binding.droppable == "turns" else 0
    for number in range(len(units) - 1, stays_from - 1, -1):
        if _has_bound_reasoning(history, units[number], dropped):
            return units[number].reasoning[-1] + 1
    return 0


def drop_bound_reasoning(
    history: ReadOnlyTranscript,
    position: int,
    dropped: Collection[int],
    tokens_of: Callable[[int], int],
) -> list[DropReasoning]:
    """The edits that drop all signed reasoning after this part, a whole unit each.

    In the part's own unit, earlier reasoning is dropped too: the reasoning of one message stays
    unchanged, or goes as a whole (A9). The latest unit is no exception: its reasoning was signed
    for what was sent before this change. Outside manual mode no reasoning is required (A10).
    """
    return [
        DropReasoning(
            number,
            history.parts[unit.reasoning[0]].ref,
            reason="bound_reasoning",
            evidence=f"{_blocks(len(unit.reasoning))} signed for what stood before",
            saved=sum(map(tokens_of, unit.reasoning)),
        )
        for number, unit in _bound_behind(history, position, dropped)
    ]


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count} blocks"


def _bound_behind(
    history: ReadOnlyTranscript, position: int, dropped: Collection[int]
) -> Iterator[tuple[int, Unit]]:
    """The units after a part that still have signed reasoning."""
    units = history.units
    first = max(0, bisect_right(units, position, key=_first_part) - 1)
    for number in range(first, len(units)):
        unit = units[number]
        if _has_bound_reasoning(history, unit, dropped) and unit.reasoning[-1] > position:
            yield number, unit


def _has_bound_reasoning(history: ReadOnlyTranscript, unit: Unit, dropped: Collection[int]) -> bool:
    """Return whether a unit still has signed reasoning; unsigned reasoning is not bound."""
    if not unit.reasoning or unit.reasoning[0] in dropped:
        return False
    return any(history.parts[at].signed for at in unit.reasoning)


def _first_part(unit: Unit) -> int:
    return unit.parts[0]


def reasoning_value(age: int, tokens: int, refetch: float) -> float:
    """The value of a unit's reasoning, in prompt tokens at full price.

    `age` counts units from the end, the latest one is 1. The chance that a later action needs a
    name, a path, a number or a line that stands in this unit's own words between calls, and
    nowhere else, was .020, .012, .010, .006, .005, .002, .001 at the ages 1, 2, 3, 8, 11, 21, 41
    (5,921 units of 108 recorded sessions). Models that sign for the prefix give both as thinking.
    A needed text must be found again (`refetch`) and written again. Conclusions without a name
    are not counted, so the chance is rounded up.
    """
    return _NEED_RATE / (age + _NEED_OFFSET) * (refetch + _OUTPUT_PRICE_RATIO * tokens)


def running_turn_start(history: ReadOnlyTranscript) -> int:
    """The first unit of the running turn; the number of units if none is running."""
    units = history.units
    if not units or (not units[-1].exchanges and is_turn_start(history, len(units))):
        return len(units)
    return next(
        number for number in range(len(units) - 1, -1, -1) if is_turn_start(history, number)
    )


def is_turn_start(history: ReadOnlyTranscript, number: int) -> bool:
    """Return whether the user wrote a message right before this unit."""
    if number == 0:
        return True
    unit = history.units[number - 1]
    if unit.parts[1] - unit.answers_from == len(unit.exchanges) > 0:
        return False  # only results
    answers = [history.parts[at] for at in range(unit.answers_from, unit.parts[1])]
    results = {part.ref.row for part in answers if part.kind == "result"}
    return any(
        part.kind == "text" and part.speaker == "user" and part.ref.row not in results
        for part in answers
    )
