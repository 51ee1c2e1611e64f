"""Cache breakpoints in messages: found, counted and stripped."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.wire.message_identity import count_breakpoints, identity_bytes, strip_breakpoints
from tests.strategies import arbitrary_json

EPHEMERAL = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
STYLES: dict[str, dict[str, Any]] = {
    "compact": {"separators": (",", ":")},
    "spaced": {},
    "indented": {"indent": 2},
    "odd": {"separators": (" ,\n\t", " : ")},
}


def written(value: Any, style: str) -> bytes:
    return json.dumps(value, ensure_ascii=False, **STYLES[style]).encode()


def put_in(block: dict[str, Any], position: int, mark: Any, name: str) -> dict[str, Any]:
    """The block with a mark as its first, a middle or its last member."""
    members = list(block.items())
    members.insert(position, (name, mark))
    return dict(members)


BLOCK = {"type": "tool_result", "tool_use_id": "a", "content": "größe"}
LOOKALIKE = {"cache_control": {"type": "ephemeral"}, "note": '"cache_control":{"type":"x"}'}
MESSAGES: dict[str, Any] = {
    "plain": lambda block: {"role": "user", "content": [{"type": "text", "text": "a"}, block]},
    "beside data that looks like a mark": lambda block: {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "a", "name": "b", "input": LOOKALIKE}, block],
    },
    "beside a name that is a mark's": lambda block: {
        "role": "assistant",
        "content": [
            {"type": "tool_use", "name": "cache_control", "input": {"cache_control": 3}},
            block,
        ],
    },
    "inside a result": lambda block: {
        "role": "user",
        "content": [{"type": "tool_result", "content": [block, {"data": LOOKALIKE}]}],
    },
    "on an output": lambda block: {"type": "function_call_output", "output": [block]},
    "on the message": lambda block: {**block, "role": "user"},
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("position", [0, 1, 3])
@pytest.mark.parametrize("name", ["cache_control", "prompt_cache_breakpoint"])
@pytest.mark.parametrize("mark", [EPHEMERAL, HOUR, None, {"a": {"b": ["}", 1]}}, "on"], ids=repr)
@pytest.mark.parametrize("around", MESSAGES)
def test_a_mark_leaves_no_trace(
    around: str, mark: Any, name: str, position: int, style: str
) -> None:
    bare = MESSAGES[around](BLOCK)
    marked = MESSAGES[around](put_in(BLOCK, position, mark, name))
    raw = written(marked, style)
    assert identity_bytes(raw, msgspec.json.decode(raw)) == written(bare, style)
    assert strip_breakpoints(marked) == bare
    assert count_breakpoints(marked) == (mark is not None)


@pytest.mark.parametrize("style", STYLES)
def test_two_marks_of_one_block_leave_no_trace(style: str) -> None:
    marked = {
        "cache_control": EPHEMERAL,
        "prompt_cache_breakpoint": EPHEMERAL,
        **BLOCK,
        "id": 1,
    }
    raw = written({"role": "user", "content": [marked, {**marked}]}, style)
    bare = {**BLOCK, "id": 1}
    assert identity_bytes(raw, msgspec.json.decode(raw)) == written(
        {"role": "user", "content": [bare, bare]}, style
    )


def test_the_client_s_own_spelling_stays() -> None:
    raw = rb'{"content":[{"text":"\u00e9\/","n":1E5,"z":-0.0, "cache_control":{"type":"x"}}]}'
    bare = rb'{"content":[{"text":"\u00e9\/","n":1E5,"z":-0.0}]}'
    assert identity_bytes(raw, msgspec.json.decode(raw)) == bare


def test_nothing_marked_nothing_copied() -> None:
    message = {"role": "user", "content": [{"type": "tool_use", "input": LOOKALIKE}, "x", None]}
    raw = written(message, "spaced")
    assert strip_breakpoints(message) is message
    assert identity_bytes(raw, message) is raw
    assert count_breakpoints(message) == 0


def test_untouched_blocks_are_shared() -> None:
    message = {
        "role": "user",
        "content": [BLOCK, {"type": "text", "text": "a", "cache_control": EPHEMERAL}],
    }
    before = copy.deepcopy(message)
    bare = strip_breakpoints(message)
    assert bare["content"][0] is BLOCK
    assert message == before


@pytest.mark.parametrize("message", ["x", None, 3, [], {}, {"content": None}, {"content": [[]]}])
def test_odd_messages_hold_no_marks(message: Any) -> None:
    assert count_breakpoints(message) == 0
    assert strip_breakpoints(message) is message


@given(arbitrary_json(12), st.sampled_from(sorted(STYLES)))
def test_any_json_is_stripped_once(message: Any, style: str) -> None:
    bare = strip_breakpoints(message)
    assert strip_breakpoints(bare) is bare
    assert count_breakpoints(bare) == 0
    raw = written(message, style)
    value = msgspec.json.decode(raw)
    assert msgspec.json.decode(identity_bytes(raw, value)) == strip_breakpoints(value)


@pytest.mark.parametrize(
    ("format", "history"),
    [
        ("anthropic", [{"role": "user", "content": [{"type": "future_thing", "x": "y"}]}]),
        ("openai-chat", [{"role": "user", "content": [{"type": "future_thing", "x": "y"}]}]),
        ("openai-responses", [{"type": "future_thing", "x": "y"}]),
    ],
)
def test_a_mark_on_an_unknown_block_is_not_counted(format: str, history: list[Any]) -> None:
    import respool

    mark = {"cache_control": {"type": "ephemeral"}}
    message = history[0]
    block = {**message.get("content", [message])[0], **mark}
    marked = [{**message, "content": [block]} if "content" in message else block]
    plain, other = (respool.compact(one, format=format).report for one in (history, marked))
    assert plain.tokens_before == other.tokens_before > 0
