"""Requests as crashes, truncation and hand-made histories leave them: whole ones, damaged."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

JSON = Any
History = list[Any]
Draw = Callable[[SearchStrategy[Any]], Any]


@dataclass(frozen=True, slots=True)
class Slot:
    """One call or result: the list that holds it, what it is, and where its id stands."""

    holder: list[Any]
    item: dict[str, Any]
    bearer: dict[str, Any]  # the object with the id
    key: str


@dataclass(frozen=True, slots=True)
class Slots:
    """All calls and results of a history, in order."""

    calls: list[Slot]
    results: list[Slot]


def _objects(items: JSON) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _anthropic(history: History) -> Slots:
    slots = Slots([], [])
    for message in _objects(history):
        for block in _objects(message.get("content")):
            kind = str(block.get("type"))
            if kind.endswith("tool_use"):
                slots.calls.append(Slot(message["content"], block, block, "id"))
            elif kind.endswith("tool_result"):
                slots.results.append(Slot(message["content"], block, block, "tool_use_id"))
    return slots


def _chat(history: History) -> Slots:
    slots = Slots([], [])
    for message in _objects(history):
        for call in _objects(message.get("tool_calls")):
            slots.calls.append(Slot(message["tool_calls"], call, call, "id"))
        if message.get("role") == "tool":
            slots.results.append(Slot(history, message, message, "tool_call_id"))
    return slots


def _responses(history: History) -> Slots:
    slots = Slots([], [])
    for item in _objects(history):
        kind = str(item.get("type"))
        key = "id" if kind == "local_shell_call_output" else "call_id"
        if kind.endswith("_output"):
            slots.results.append(Slot(history, item, item, key))
        elif kind.endswith("_call"):
            slots.calls.append(Slot(history, item, item, key))
    return slots


def _gemini(history: History) -> Slots:
    slots = Slots([], [])
    for content in _objects(history):
        for part in _objects(content.get("parts")):
            for kind, found in (("functionCall", slots.calls), ("functionResponse", slots.results)):
                if isinstance(part.get(kind), dict):
                    found.append(Slot(content["parts"], part, part[kind], "id"))
    return slots


_SLOTS: dict[str, Callable[[History], Slots]] = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
}
_FIELD = {
    "anthropic": "messages",
    "openai-chat": "messages",
    "openai-responses": "input",
    "gemini": "contents",
}
_TEXT: dict[str, JSON] = {
    "anthropic": {"type": "text", "text": "by the way"},
    "openai-chat": {"role": "user", "content": "by the way"},
    "openai-responses": {"type": "message", "role": "user", "content": "by the way"},
    "gemini": {"text": "by the way"},
}


def arbitrary_json(leaves: int = 6) -> SearchStrategy[JSON]:
    """Any JSON value, with the keys that codecs look at more often than by chance."""
    words = st.sampled_from(_KEYS) | st.text(max_size=6)
    numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    atoms = st.none() | st.booleans() | numbers | words | st.sampled_from(_VALUES)
    return st.recursive(
        atoms,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
        max_leaves=leaves,
    )


_KEYS = (
    "role",
    "type",
    "content",
    "id",
    "name",
    "text",
    "input",
    "output",
    "arguments",
    "tool_calls",
    "tool_call_id",
    "tool_use_id",
    "call_id",
    "parts",
    "functionCall",
    "functionResponse",
    "function",
    "summary",
    "cache_control",
)
_VALUES = (
    "user",
    "assistant",
    "model",
    "tool",
    "system",
    "tool_use",
    "tool_result",
    "text",
    "thinking",
    "server_tool_use",
    "message",
    "function_call",
    "function_call_output",
    "reasoning",
    "local_shell_call",
    "compaction",
    "{}",
    "",
    " ",
)


def arbitrary_json_messages() -> SearchStrategy[list[JSON]]:
    """A list of any JSON values, many of them objects that look a little like messages."""
    roles = st.sampled_from(
        ("user", "assistant", "model", "tool", "system", "developer", "", None, 3)
    )
    like = st.fixed_dictionaries(
        {},
        optional={
            "role": roles,
            "type": st.sampled_from(_VALUES) | st.none(),
            "content": arbitrary_json(),
            "parts": arbitrary_json(),
            "tool_calls": arbitrary_json(),
            "call_id": st.sampled_from(("a", "b", "", None, 3)),
            "output": arbitrary_json(3),
        },
    )
    return st.lists(like | like | arbitrary_json(), max_size=6)


Damage = Callable[[Draw, str, History], None]


def _one(draw: Draw, slots: list[Slot]) -> Slot | None:
    return slots[draw(st.integers(0, len(slots) - 1))] if slots else None


def _either(draw: Draw, format: str, history: History) -> Slot | None:
    slots = _SLOTS[format](history)
    return _one(draw, slots.calls + slots.results)


def _place(slot: Slot) -> int:
    return next(n for n, item in enumerate(slot.holder) if item is slot.item)


def lose_result(draw: Draw, format: str, history: History) -> None:
    """A result is lost."""
    if slot := _one(draw, _SLOTS[format](history).results):
        del slot.holder[_place(slot)]


def lose_call(draw: Draw, format: str, history: History) -> None:
    """A call is lost."""
    if slot := _one(draw, _SLOTS[format](history).calls):
        del slot.holder[_place(slot)]


def double(draw: Draw, format: str, history: History) -> None:
    """A call or a result is there twice."""
    if slot := _either(draw, format, history):
        slot.holder.insert(draw(st.integers(0, len(slot.holder))), copy.deepcopy(slot.item))


def move_result(draw: Draw, format: str, history: History) -> None:
    """A result stands in another place, perhaps in another message."""
    slots = _SLOTS[format](history)
    slot, other = _one(draw, slots.results), _one(draw, slots.results)
    if slot and other:
        del slot.holder[_place(slot)]
        other.holder.insert(draw(st.integers(0, len(other.holder))), slot.item)


def swap_results(draw: Draw, format: str, history: History) -> None:
    """Two results stand in each other's place."""
    slots = _SLOTS[format](history)
    slot, other = _one(draw, slots.results), _one(draw, slots.results)
    if slot and other:
        here, there = _place(slot), _place(other)
        slot.holder[here], other.holder[there] = other.item, slot.item


def rename(draw: Draw, format: str, history: History) -> None:
    """One side of a pair has another id."""
    if slot := _either(draw, format, history):
        slot.bearer[slot.key] = draw(
            st.sampled_from(("toolu_elsewhere", "call_elsewhere", "bad id!", "x" * 70))
        )


def repeat_id(draw: Draw, format: str, history: History) -> None:
    """One call or result has the id of another."""
    slot, other = _either(draw, format, history), _either(draw, format, history)
    if slot and other:
        slot.bearer[slot.key] = other.bearer.get(other.key, "again")


def spoil_id(draw: Draw, format: str, history: History) -> None:
    """An id is empty, missing, or no string."""
    if slot := _either(draw, format, history):
        slot.bearer[slot.key] = draw(st.sampled_from(("", None, 7, True, ["a"], {})))
        if draw(st.booleans()):
            del slot.bearer[slot.key]


def cut_front(draw: Draw, format: str, history: History) -> None:
    """The beginning is cut off."""
    del history[: draw(st.integers(1, max(1, len(history) - 1)))]


def cut_back(draw: Draw, format: str, history: History) -> None:
    """The end is cut off."""
    del history[len(history) - draw(st.integers(1, max(1, len(history) - 1))) :]


def lose_message(draw: Draw, format: str, history: History) -> None:
    """A message is lost."""
    if history:
        del history[draw(st.integers(0, len(history) - 1))]


def double_message(draw: Draw, format: str, history: History) -> None:
    """A message is there twice."""
    if history:
        at = draw(st.integers(0, len(history) - 1))
        history.insert(at, copy.deepcopy(history[at]))


def swap_messages(draw: Draw, format: str, history: History) -> None:
    """Two messages stand in each other's place."""
    if history:
        here, there = draw(st.integers(0, len(history) - 1)), draw(st.integers(0, len(history) - 1))
        history[here], history[there] = history[there], history[here]


def interleave(draw: Draw, format: str, history: History) -> None:
    """Text stands in front of a result."""
    if slot := _one(draw, _SLOTS[format](history).results):
        slot.holder.insert(_place(slot), copy.deepcopy(_TEXT[format]))


def _message(draw: Draw, history: History) -> dict[str, Any] | None:
    objects = _objects(history)
    return objects[draw(st.integers(0, len(objects) - 1))] if objects else None


_CONTENT = ("content", "parts", "output", "arguments", "input", "summary", "tool_calls")


def spoil_content(draw: Draw, format: str, history: History) -> None:
    """A message's content is null, empty, blank, missing, or of another type."""
    if (message := _message(draw, history)) is not None:
        key = next((key for key in _CONTENT if key in message), "content")
        message[key] = draw(st.sampled_from((None, "", " \n", [], {}, 3, ["text"], [None])))
        if draw(st.integers(0, 4)) == 4:
            del message[key]


def spoil_block(draw: Draw, format: str, history: History) -> None:
    """A block is emptied, blank, or replaced by something else."""
    message = _message(draw, history) or {}
    blocks = next((message[key] for key in _CONTENT if isinstance(message.get(key), list)), None)
    if blocks:
        at = draw(st.integers(0, len(blocks) - 1))
        blank = {"type": "text", "text": pick_blank(draw)}
        blocks[at] = draw(
            st.sampled_from(({}, blank, {"text": ""}, None, "text", [], {"type": None}))
        )


def pick_blank(draw: Draw) -> str:
    """A text that says nothing."""
    return draw(st.sampled_from(("", " ", "\n\t")))


def spoil_call(draw: Draw, format: str, history: History) -> None:
    """A call's arguments, or a result's content, are of the wrong type or cut off."""
    if slot := _either(draw, format, history):
        inner = next(
            (slot.item[key] for key in ("function", "custom") if key in slot.item), slot.bearer
        )
        keys = ("input", "arguments", "args", "response", "content", "output", "name", "action")
        present = [key for key in keys if isinstance(inner, dict) and key in inner]
        if present:
            key = draw(st.sampled_from(present))
            inner[key] = draw(
                st.sampled_from((None, "", '{"cut": "of', "[1]", [], {}, 5, {"a": [1]}))
            )


def wrong_role(draw: Draw, format: str, history: History) -> None:
    """A message has another role, or none."""
    if (message := _message(draw, history)) is not None:
        roles = ("user", "assistant", "model", "tool", "system", "function", "", None, 1)
        message["role"] = draw(st.sampled_from(roles))


def replace_message(draw: Draw, format: str, history: History) -> None:
    """A message is no message at all."""
    if history:
        history[draw(st.integers(0, len(history) - 1))] = draw(arbitrary_json())


DAMAGES: tuple[Damage, ...] = (
    lose_result,
    lose_call,
    double,
    move_result,
    swap_results,
    rename,
    repeat_id,
    spoil_id,
    interleave,
    lose_message,
    double_message,
    swap_messages,
    cut_front,
    cut_back,
    spoil_content,
    spoil_block,
    spoil_call,
    wrong_role,
    replace_message,
)


def damaged(
    wholes: SearchStrategy[dict[str, Any]], format: str, damages: Sequence[Damage] = DAMAGES
) -> SearchStrategy[tuple[dict[str, Any], dict[str, Any]]]:
    """A whole request, and the same with one to three damages: never the same again."""

    @st.composite
    def pairs(draw: DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
        whole = draw(wholes)
        broken = copy.deepcopy(whole)
        history = broken[_FIELD[format]]
        if not isinstance(history, list):
            history = broken[_FIELD[format]] = [history]
        for damage in draw(st.lists(st.sampled_from(damages), min_size=1, max_size=3)):
            damage(draw, format, history)
        if broken == whole:  # there was nothing for those damages to hit
            history.append(draw(arbitrary_json()))
        return whole, broken

    return pairs()
