"""What is told to be plain at one look passes every rule, and most steps are plain."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from respool.check.anthropic import AnthropicRules
from respool.check.anthropic_plain import is_plain
from respool.check.rules import Seen, Step, steps_of
from respool.codecs.anthropic import AnthropicCodec
from tests.laws.sessions import long_session
from tests.strategies import arbitrary_json_messages, broken, requests

RULES, CODEC = AnthropicRules(), AnthropicCodec()
thorough = settings(max_examples=200, deadline=None)

texts = st.sampled_from(["a", " ", "", None, 3])
ids = st.sampled_from(["a", "b", "a b", "", None, []])
blocks = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": texts}),
    st.fixed_dictionaries(
        {"type": st.just("tool_use"), "id": ids, "name": texts, "input": st.just({}) | texts}
    ),
    st.fixed_dictionaries(
        {"type": st.just("tool_result"), "tool_use_id": ids, "content": texts | st.just([{}])}
    ),
    st.fixed_dictionaries(
        {"type": st.just("thinking"), "thinking": texts, "signature": texts},
        optional={"cache_control": st.just({"type": "ephemeral"})},
    ),
    st.sampled_from([{"type": "redacted_thinking", "data": "x"}, {"type": []}, {}, 3, None]),
)
messages = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "user", "assistant", "system", "tool"]),
        "content": st.lists(blocks, max_size=4) | texts,
    }
)


def holds(history: list[Any], seen: Seen | None = None) -> None:
    """Every step of the history that is plain passes every rule."""
    seen = seen or Seen()
    for step in steps_of(CODEC, history):
        if is_plain(step, seen):
            assert RULES.check_every_rule(step, seen) == []
        RULES.advance(step, seen)


@thorough
@given(requests("anthropic") | broken("anthropic"))
def test_plain_steps_of_sessions_pass_every_rule(request: dict[str, Any]) -> None:
    holds(request["messages"])


@settings(max_examples=600, deadline=None)
@given(st.lists(messages, max_size=5))
def test_plain_steps_of_nearly_sound_histories_pass_every_rule(history: list[Any]) -> None:
    holds(history)
    holds([{"role": "user", "content": "a"}, *history], Seen(call_counts={"b": 1}))


@thorough
@given(arbitrary_json_messages())
def test_plain_steps_of_anything_pass_every_rule(history: list[Any]) -> None:
    holds(history)


def test_most_steps_are_plain() -> None:
    seen = Seen()
    history = long_session("anthropic", 20)["messages"]
    for step in steps_of(CODEC, history):
        assert is_plain(step, seen)
        RULES.advance(step, seen)
    assert is_plain(Step(history[1:2], 1, 1), Seen()), "calls that are still pending"
    assert not is_plain(Step(history[1:], 1, 1), Seen(open_calls={"x": 0}))
