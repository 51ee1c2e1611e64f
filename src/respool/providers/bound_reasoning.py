"""Reasoning bound to its prefix: rules by model, and what a change must drop."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from ..edits import DropReasoning, Edit, PlaceBreakpoint, touched_parts
from ..model_names import ModelName, Version, parse_model_name
from ..transcript import ReadOnlyTranscript, Unit

# prefix: all that stands before the block; block: what it says itself; nothing: there is none.
SignedScope = Literal["prefix", "block", "nothing"]
# all: of any unit; turns: only of turns that are over; none: of none.
DroppableScope = Literal["all", "turns", "none"]


class Binding(Struct, frozen=True, gc=False):
    """What the reasoning of a request is signed for, and whose may be taken out."""

    signed_scope: SignedScope
    droppable: DroppableScope
    oldest_first: bool = False  # none may go before an older one
    is_dropped_by_api: bool = False  # the API itself takes out what a change has made invalid

    @property
    def is_bound(self) -> bool:
        """Whether a change of what was sent must take the reasoning behind it along."""
        return self.is_prefix_signed and not self.is_dropped_by_api

    @property
    def is_prefix_signed(self) -> bool:
        """Whether the model loses the reasoning behind a change, whoever takes it out."""
        return self.signed_scope == "prefix"


class BindingRule(Struct, frozen=True, gc=False):
    """What holds for the models of one maker from one version on."""

    wire: str
    maker: str  # "" where the name does not tell
    families: tuple[str, ...]  # empty: all
    since: Version
    binding: Binding


_ANY = "*"
_LARGEST, _OTHERS = ("fable", "mythos"), ("opus", "sonnet", "haiku")
_ALL: tuple[str, ...] = ()

# The first row that fits. Whose wire it is not stands for a router, which may ask for more.
BINDING_RULES: tuple[BindingRule, ...] = (
    BindingRule(_ANY, "demanding", _ALL, (0, 0), Binding("nothing", "none")),
    BindingRule(
        "anthropic", "anthropic", _LARGEST, (5, 1), Binding("prefix", "all", oldest_first=True)
    ),
    BindingRule(
        "anthropic", "anthropic", _OTHERS, (5, 5), Binding("prefix", "all", oldest_first=True)
    ),
    BindingRule("anthropic", "anthropic", _ALL, (0, 0), Binding("block", "all")),
    BindingRule("anthropic", "", _ALL, (0, 0), Binding("prefix", "none", oldest_first=True)),
    BindingRule("anthropic", _ANY, _ALL, (0, 0), Binding("block", "turns", oldest_first=True)),
    BindingRule(_ANY, "anthropic", _LARGEST, (5, 1), Binding("prefix", "turns", oldest_first=True)),
    BindingRule(_ANY, "anthropic", _OTHERS, (5, 5), Binding("prefix", "turns", oldest_first=True)),
    BindingRule("openai-chat", "", _ALL, (0, 0), Binding("prefix", "none", oldest_first=True)),
    BindingRule("openai-chat", _ANY, _ALL, (0, 0), Binding("block", "turns", oldest_first=True)),
    BindingRule("openai-responses", _ANY, _ALL, (0, 0), Binding("block", "all")),
    BindingRule("gemini", _ANY, _ALL, (0, 0), Binding("block", "all")),
    BindingRule(_ANY, _ANY, _ALL, (0, 0), Binding("prefix", "none", oldest_first=True)),
)

# Servers that sign nothing, and may demand every thought back (T4).
_REQUIRES_REASONING = re.compile(
    r"deepseek|kimi|moonshot|glm|qwen|qwq|minimax|mimo|gpt-oss|mistral|llama"
)


def binding_of(format: str, fields: Mapping[str, Any] | None) -> Binding:
    """What holds for this format, model and mode; what is not known may neither break nor go.

    Whether an account is checked does not show in a request, so every model that signs for the
    prefix counts as checked: reasoning that goes where it might have stayed fails nowhere. Of a
    name that tells nothing neither is known, so there no change is made in front of reasoning at
    all. That alone can never fail: were it taken for unbound, a newer Claude would reject what
    stayed; were it taken for Claude, a server that demands thinking back would reject what went.
    """
    told = fields or {}
    name = told.get("model")
    model = parse_model_name(name)
    maker = model.maker if model else _maker_of(name)
    found = next(row.binding for row in BINDING_RULES if _is_match(row, format, maker, model))
    return _apply_mode(found, told.get("thinking")) if format == "anthropic" else found


def _maker_of(name: object) -> str:
    return (
        "demanding"
        if isinstance(name, str) and _REQUIRES_REASONING.search(name[:200].lower())
        else ""
    )


def _is_match(row: BindingRule, format: str, maker: str, model: ModelName | None) -> bool:
    if row.wire not in (format, _ANY) or row.maker not in (maker, _ANY):
        return False
    if model is None or not row.families:
        return True
    return model.family in row.families and model.version >= row.since


def _apply_mode(binding: Binding, thinking: object) -> Binding:
    """In manual mode a running turn must open with its thinking (A10); the API may drop (A12)."""
    mode = cast(dict[str, Any], thinking) if isinstance(thinking, dict) else {}
    if mode.get("type") == "enabled" and binding.droppable == "all":
        binding = replace(binding, droppable="turns", oldest_first=True)
    controls = mode.get("block_binding")
    told = cast(dict[str, Any], controls) if isinstance(controls, dict) else {}
    if told.get("prefix_mismatch_behavior") == "drop_block":
        binding = replace(binding, is_dropped_by_api=True)
    return binding


def first_breaking_part(
    history: ReadOnlyTranscript, edits: Iterable[Edit], dropped: Collection[int]
) -> int | None:
    """The first part whose change makes the reasoning behind it invalid, or None.

    Cache marks never do, nor reasoning that goes while none that is older stays. `gone` are the
    parts that edits in force have taken out.
    """
    taken = [
        (edit, touched_parts(edit, history))
        for edit in edits
        if not isinstance(edit, PlaceBreakpoint)
    ]
    out = {part for _, parts in taken for part in parts}
    oldest = next(
        (
            at
            for unit in history.units
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
    """Whether a change at this part is possible: all that must go along with it may go."""
    return position >= first_changeable_part(history, binding, dropped)


def first_changeable_part(
    history: ReadOnlyTranscript, binding: Binding, dropped: Collection[int]
) -> int:
    """The first part from which on a change is possible."""
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
    """The edits that take out all signed reasoning behind this part, a whole unit each.

    In the unit of the part itself, reasoning in front of it goes too: what the model thought in
    one message stays as it came, or goes (A9). The latest unit is no exception: its reasoning was
    signed for what was sent before this change. Once all of it is gone, nothing tells that there
    was any, and outside manual mode none is demanded (A10).
    """
    return [
        DropReasoning(
            number,
            history.parts[unit.reasoning[0]].ref,
            "bound_reasoning",
            f"{_blocks(len(unit.reasoning))} signed for what stood before",
            sum(map(tokens_of, unit.reasoning)),
        )
        for number, unit in _bound_behind(history, position, dropped)
    ]


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count} blocks"


def _bound_behind(
    history: ReadOnlyTranscript, position: int, dropped: Collection[int]
) -> Iterator[tuple[int, Unit]]:
    """The units with signed reasoning behind a part that is still there."""
    units = history.units
    first = max(0, bisect_right(units, position, key=_first_part) - 1)
    for number in range(first, len(units)):
        unit = units[number]
        if _has_bound_reasoning(history, unit, dropped) and unit.reasoning[-1] > position:
            yield number, unit


def _has_bound_reasoning(history: ReadOnlyTranscript, unit: Unit, dropped: Collection[int]) -> bool:
    """Whether a unit still has reasoning, and it is signed; plain text is bound to nothing."""
    if not unit.reasoning or unit.reasoning[0] in dropped:
        return False
    return any(history.parts[at].signed for at in unit.reasoning)


def _first_part(unit: Unit) -> int:
    return unit.parts[0]


_NEED_RATE, _NEED_OFFSET = 0.08, 3  # fitted: the chance at an age is never below what was recorded
_OUTPUT_PRICE_RATIO = 5  # what a written token costs next to a read one, by Claude's price list


def reasoning_value(age: int, tokens: int, refetch: float) -> float:
    """What a unit's reasoning is still worth, in prompt tokens at full price.

    `age` counts units from the end, the latest one is 1. The chance that a later action needs a
    name, a path, a number or a line that stands in this unit's own words between calls, and
    nowhere else, was .020, .012, .010, .006, .005, .002, .001 at the ages 1, 2, 3, 8, 11, 21, 41
    (5,921 units of 108 recorded sessions). There they are thinking or text; models that sign for
    the prefix give both as thinking. Who needs it has to find it again (`refetch`) and to write
    it again. Conclusions without a name in them are not counted, so the chance is rounded up.
    """
    return _NEED_RATE / (age + _NEED_OFFSET) * (refetch + _OUTPUT_PRICE_RATIO * tokens)


def running_turn_start(history: ReadOnlyTranscript) -> int:
    """The first unit of the turn that is not over; the number of units if none is running."""
    units = history.units
    if not units or (not units[-1].exchanges and is_turn_start(history, len(units))):
        return len(units)
    return next(
        number for number in range(len(units) - 1, -1, -1) if is_turn_start(history, number)
    )


def is_turn_start(history: ReadOnlyTranscript, number: int) -> bool:
    """Whether the user said something of their own right before this unit."""
    if number == 0:
        return True
    unit = history.units[number - 1]
    if unit.parts[1] - unit.answers_from == len(unit.exchanges) > 0:
        return False  # results, and no more
    answers = [history.parts[at] for at in range(unit.answers_from, unit.parts[1])]
    results = {part.ref.row for part in answers if part.kind == "result"}
    return any(
        part.kind == "text" and part.speaker == "user" and part.ref.row not in results
        for part in answers
    )
