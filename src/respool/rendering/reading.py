"""A history read for its rendering: what is a tool's, who answers whom, what thinking stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from ..binding import Binding
from ..check.rules import steps_of
from ..codecs.codec import Codec
from ..codecs.json_tree import JSON
from ..transcript import Index, Part, Unit

_TOOLS = ("call", "result")


class Group(Struct, frozen=True, gc=False):
    """One part of a message, with the parts inside it: images and files of a result."""

    position: int  # among all parts
    part: Part
    inner: tuple[Part, ...] = ()


class Turns(Struct, frozen=True):
    """What the model's turns hold."""

    calls_by_model: bool  # calls stay in them
    requires_leading_thinking: bool  # one that holds a thought must begin with one


class Read(Struct, frozen=True):
    """A whole history, by rows."""

    index: Index
    rows: list[list[Group]]
    unit_of: list[int]  # of each row
    dropped: frozenset[int]  # the reasoning that cannot stay, by position
    call_numbers: dict[int, int]  # of each exchange, its place among the calls of its turn

    def has_tools(self) -> bool:
        """Whether there is anything to be told."""
        return any(is_tool(group.part) for row in self.rows for group in row)


def is_tool(part: Part) -> bool:
    """A call or a result, also a call that is not understood."""
    return part.kind in _TOOLS or (part.kind == "opaque" and part.ref.path[:1] == ("tool_calls",))


def is_words(part: Part) -> bool:
    """Something that stays in the message it stands in, and that is not blank."""
    if is_tool(part) or part.kind == "reasoning":
        return False
    return part.kind != "text" or bool(part.text.strip())


def read_history(codec: Codec, messages: Sequence[JSON], binding: Binding, turns: Turns) -> Read:
    """Read all rows."""
    index = Index()
    rows: list[list[Group]] = []
    unit_of: list[int] = []
    for step in steps_of(codec, messages):
        parts = [codec.decode(step.at + k, message) for k, message in enumerate(step.messages)]
        model = [part for row in parts[: step.model_count] for part in row]
        answers = [part for row in parts[step.model_count :] for part in row]
        position = len(index.parts)
        index.add_unit((step.at, step.at + len(parts)), model, answers, False)
        for row in parts:
            rows.append(list(_groups(position, row)))
            unit_of.append(len(index.units) - 1)
            position += len(row)
    gone = frozenset(_gone(index, rows, binding, turns))
    numbers = {
        ordinal: place for unit in index.units for place, ordinal in enumerate(unit.exchanges, 1)
    }
    return Read(index, rows, unit_of, gone, numbers)


def _groups(position: int, parts: Sequence[Part]) -> Iterator[Group]:
    at = 0
    while at < len(parts):
        part, end = parts[at], at + 1
        if part.kind == "result":
            while end < len(parts) and _is_inside(parts[end], part):
                end += 1
        yield Group(position + at, part, tuple(parts[at + 1 : end]))
        at = end


def _is_inside(part: Part, result: Part) -> bool:
    path = result.ref.path
    return len(part.ref.path) > len(path) and part.ref.path[: len(path)] == path


def _gone(index: Index, rows: list[list[Group]], binding: Binding, turns: Turns) -> Iterator[int]:
    """The reasoning that loses its place, or what it is signed for."""
    rendered = False  # whether a call was told before
    for unit in index.units:
        own = [rows[row] for row in range(*unit.rows)]
        here = any(is_tool(group.part) for row in own for group in row)
        rendered = rendered or here
        signed = [at for at in unit.reasoning if index.parts[at].signed]
        lost = [
            at
            for at in unit.reasoning
            if (here and not _has_place(index, unit, at, own, turns.calls_by_model))
            or (turns.requires_leading_thinking and not _is_led_by_thought(at, own, turns.calls_by_model))
        ]
        if not (rendered or lost):
            continue
        # One signed block that cannot stay takes the others along: what the model thought in one
        # turn stays as it came, or goes.
        if binding.is_bound or any(at in lost for at in signed):
            yield from signed
        yield from (at for at in lost if at not in signed)


def _has_place(
    index: Index, unit: Unit, at: int, own: Sequence[Sequence[Group]], by_model: bool
) -> bool:
    """Whether words of the model stand behind a thought, with nothing of a tool's in between.

    What is signed never stands before a call that became words.
    """
    part = index.parts[at]
    row = own[part.ref.row - unit.rows[0]]
    behind = [group.part for group in row if group.position > at]
    if not any(
        is_words(one) or is_tool(one) for one in behind
    ):  # an item, or a message, of its own
        following = own[part.ref.row - unit.rows[0] + 1 :]
        behind = [group.part for after in following for group in after]
    told = [one for one in behind if one.kind != "reasoning" and (is_tool(one) or is_words(one))]
    if not told or told[0].speaker != "model":
        return False
    if is_tool(told[0]):
        return by_model and told[0].kind == "call" and not part.signed
    return not part.signed or _is_one_piece(row)


def _is_led_by_thought(at: int, own: Sequence[Sequence[Group]], by_model: bool) -> bool:
    """Whether the turn that a thought comes into begins with one: neighbours are joined."""
    leads: Part | None = None
    for part in reversed([group.part for row in own for group in row if group.position < at]):
        stays = part.kind == "call" and by_model if is_tool(part) else part.speaker == "model"
        if not stays:
            break
        if is_tool(part) or is_words(part) or part.kind == "reasoning":
            leads = part
    return leads is None or leads.kind == "reasoning"


def _is_one_piece(row: Sequence[Group]) -> bool:
    """Whether nothing of the model's own stands behind the first call of a message."""
    kinds = [is_tool(group.part) for group in row]
    first = kinds.index(True) if True in kinds else len(kinds)
    return all(kinds[first:])
