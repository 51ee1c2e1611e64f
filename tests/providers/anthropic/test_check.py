"""Anthropic's rules for histories: each one broken and kept."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.providers.anthropic.check import AnthropicRules, is_plain
from respool.providers.anthropic.codec import AnthropicCodec
from respool.providers.base import RuleState, Step, split_steps
from respool.providers.registry import check_request
from tests.effort import examples
from tests.laws.sessions import long_session
from tests.providers.anthropic.support import (
    COMPACTION,
    EFFORT,
    EPHEMERAL,
    FOUND,
    FUTURE,
    HOUR,
    REDACTED,
    SEARCH,
    THINKING,
    m,
    res,
    s,
    said,
    text,
    u,
    use,
)
from tests.strategies import arbitrary_json, arbitrary_json_messages, broken, pending, requests

CODEC = AnthropicCodec()


def errors(messages: list[Any], fields: dict[str, Any] | None = None) -> list[tuple[str, str]]:
    found = check_request(CODEC, messages, fields)
    assert all(len(p.message) > 10 for p in found)
    return [(p.code, p.place) for p in found if p.severity == "error"]


# A name, a history, and what is wrong with it (nothing: it is fine).
STEPS: list[tuple[str, list[Any], list[tuple[str, str]]]] = [
    ("A0 no object", [u(), "x"], [("A0", "messages[1]")]),
    ("A0 null", [u(), None], [("A0", "messages[1]")]),
    ("A0 role", [u(), said("tool", "x")], [("A0", "messages[1]")]),
    ("A0 role is a list", [u(), {"role": [], "content": "x"}], [("A0", "messages[1]")]),
    ("A0 content", [said("user", 3)], [("A0", "messages[0]")]),
    ("A0 no content", [{"role": "user"}], [("A0", "messages[0]")]),
    ("A0 block", [u(text(), "x")], [("A0", "messages[0].content[1]")]),
    ("A0 block without type", [u({"text": "x"})], [("A0", "messages[0].content[0]")]),
    ("A0 type is a list", [u({"type": []})], [("A0", "messages[0].content[0]")]),
    ("A0 unknown blocks are fine", [u(FUTURE), m(FUTURE)], []),
    ("A0 call in a user message", [u(use())], [("A0", "messages[0].content[0]")]),
    ("A0 thinking in a user message", [u(THINKING)], [("A0", "messages[0].content[0]")]),
    (
        "A0 result in an assistant message",
        [u(), m(res("z"), text())],
        [("A0", "messages[1].content[0]")],
    ),
    ("A0 result in a system message", [u(), s(res())], [("A0", "messages[1].content[0]")]),
    ("A0 call without a name", [u(), m(use(name=None))], [("A0", "messages[1].content[0].name")]),
    (
        "A0 result of a number",
        [u(), m(use()), u(res(content=3))],
        [("A0", "messages[2].content[0]")],
    ),
    (
        "A0 result of null blocks",
        [u(), m(use()), u(res(content=[None]))],
        [("A0", "messages[2].content[0]")],
    ),
    (
        "A0 result without content is fine",
        [u(), m(use()), u({"type": "tool_result", "tool_use_id": "a"})],
        [],
    ),
    ("A1 no result", [u(), m(use()), u()], [("A1", "messages[1].content[0]")]),
    ("A1 one of two", [u(), m(use(), use("b")), u(res("b"))], [("A1", "messages[1].content[0]")]),
    ("A1 after text", [u(), m(use()), u(text(), res())], [("A1", "messages[2].content[1]")]),
    ("A1 after a message", [u(), m(use()), u(), u(res())], [("A1", "messages[3].content[0]")]),
    ("A1 fine", [u(), m(text(), use(), use("b")), u(res("b"), res(), text())], []),
    ("A1 over merged neighbours", [u(), m(use()), m(use("b")), u(res()), u(res("b"))], []),
    ("A1 pending calls are no problem", [u(), m(use(), use("b"))], []),
    (
        "A1 an earlier turn is not pending",
        [u(), m(use()), u(), m(use("b"))],
        [("A1", "messages[1].content[0]")],
    ),
    ("A2 no call", [u(res())], [("A2", "messages[0].content[0]")]),
    (
        "A2 two turns back",
        [u(), m(use()), u(res()), m(), u(res())],
        [("A2", "messages[4].content[0]")],
    ),
    (
        "A3 same id in one turn",
        [u(), m(use(), use()), u(res())],
        [("A3", "messages[1].content[1].id")],
    ),
    (
        "A3 same id later",
        [u(), m(use()), u(res()), m(use()), u(res())],
        [("A3", "messages[3].content[0].id")],
    ),
    ("A3 two results", [u(), m(use()), u(res(), res())], [("A3", "messages[2].content[1]")]),
    ("A4 id", [u(), m(use("a b")), u(res("a b"))], [("A4", "messages[1].content[0].id")]),
    ("A4 empty id", [u(), m(use("")), u(res(""))], [("A4", "messages[1].content[0].id")]),
    (
        "A4 newline at the end",
        [u(), m(use("a\n")), u(res("a\n"))],
        [("A4", "messages[1].content[0].id")],
    ),
    (
        "A4 no id",
        [u(), m(use(None)), u(res(None))],
        [("A4", "messages[2].content[0]"), ("A4", "messages[1].content[0].id")],
    ),
    ("A4 number as result's id", [u(), m(use("7")), u(res(7))], [("A4", "messages[2].content[0]")]),
    ("A4 input", [u(), m(use(input="{}")), u(res())], [("A4", "messages[1].content[0].input")]),
    ("A4 fine", [u(), m(use("toolu_-9Z", input={"a": 1})), u(res("toolu_-9Z"))], []),
    ("A6 empty string", [said("user", "")], [("A6", "messages[0]")]),
    ("A6 blank string", [said("user", " \n")], [("A6", "messages[0]")]),
    ("A6 no blocks", [said("user", [])], [("A6", "messages[0]")]),
    ("A6 blank text", [u(text(), text("\t"))], [("A6", "messages[0].content[1]")]),
    ("A6 text is no string", [u(text(None))], [("A6", "messages[0].content[0]")]),
    ("A6 blank assistant", [u(), said("assistant", " "), u()], [("A6", "messages[1]")]),
    (
        "A6 empty assistant before the end",
        [u(), said("assistant", ""), u()],
        [("A6", "messages[1]")],
    ),
    ("A6 blank assistant at the end", [u(), said("assistant", " ")], [("A6", "messages[1]")]),
    ("A6 empty assistant at the end is fine", [u(), said("assistant", "")], []),
    ("A6 no blocks at the end are fine", [u(), said("assistant", [])], []),
    ("A7 assistant first", [m(), u()], [("A7", "messages[0]")]),
    ("A7 compaction first is fine", [m(COMPACTION), u()], []),
    ("A7 neighbours of one role are fine", [u(), u(), m(), m()], []),
    ("A7 nothing", [], [("A7", "messages")]),
    ("A7 effort only", [EFFORT, m(), u()], [("A7", "messages[0]")]),
    ("A8 result without its call", [u(), m(FOUND, text())], [("A8", "messages[1].content[0]")]),
    ("A8 call without result", [u(), m(SEARCH), u()], [("A8", "messages[1].content[0]")]),
    ("A8 pair", [u(), m(SEARCH, FOUND, text()), u()], []),
    ("A8 pair over two messages", [u(), m(SEARCH), m(FOUND, text()), u()], []),
    ("A8 pending at the end", [u(), m(SEARCH)], []),
    ("A8 pending beside a call", [u(), m(SEARCH, use()), u(res()), m(FOUND), u()], []),
    (
        "A8 pending over several calls",
        [u(), m(SEARCH, use()), u(res()), m(use("b")), u(res("b")), m(FOUND)],
        [],
    ),
    (
        "A8 words while pending",
        [u(), m(SEARCH, use()), u(res(), text()), m()],
        [("A8", "messages[1].content[0]")],
    ),
    (
        "A8 never answered, told once",
        [u(), m(SEARCH, use()), u(res()), m(), u(), m(), u()],
        [("A8", "messages[3]")],
    ),
    ("A8 answered twice", [u(), m(SEARCH, FOUND, FOUND)], [("A8", "messages[1].content[2]")]),
    (
        "A9 no signature",
        [u(), m({"type": "thinking", "thinking": ""}, text()), u()],
        [("A9", "messages[1].content[0]")],
    ),
    (
        "A9 no data",
        [u(), m({"type": "redacted_thinking"}, text()), u()],
        [("A9", "messages[1].content[0]")],
    ),
    (
        "A9 empty thinking is whole",
        [u(), m({**THINKING, "thinking": ""}, REDACTED, text()), u()],
        [],
    ),
    (
        "A11 not first",
        [u(), m(text(), THINKING, use()), u(res())],
        [("A11", "messages[1].content[0]")],
    ),
    ("A11 last", [u(), m(THINKING), u()], [("A11", "messages[1]")]),
    ("A11 interleaved is fine", [u(), m(THINKING, text(), THINKING, use()), u(res())], []),
    (
        "A11 behind a compaction or fallback is fine",
        [u(), m(COMPACTION, {"type": "fallback"}, THINKING, text()), u()],
        [],
    ),
    (
        "A11 alone before its turn's next message is fine",
        [u(), m(THINKING), m(use()), u(res())],
        [],
    ),
    ("A11 in a later message of its turn is fine", [u(), m(text()), m(THINKING, text()), u()], []),
    ("A16 first", [s(), m(COMPACTION), u()], [("A16", "messages[0]")]),
    ("A16 after words of the assistant", [u(), m(), s(), m(), u()], [("A16", "messages[2]")]),
    ("A16 before a user turn", [u(), s(), u()], [("A16", "messages[1]")]),
    (
        "A16 between call and result",
        [u(), m(use()), s(), u(res())],
        [("A16", "messages[2]"), ("A16", "messages[2]")],
    ),
    ("A16 after user, in a group, at the end", [u(), s(), s(), m(use()), u(res()), s()], []),
    ("A16 after a server-side result", [u(), m(SEARCH, FOUND), s(), m(), u()], []),
    ("A16 effort only goes anywhere", [EFFORT, u(), EFFORT, u(), m(), EFFORT, u()], []),
    ("A16 cleared text", [u(), s(text(), clear_at="next_user_message")], []),
    (
        "A16 cleared and no text",
        [u(), s({"type": "tool_addition", "tool": {}}, clear_at="x")],
        [("A16", "messages[1]")],
    ),
    (
        "A16 cleared and marked",
        [u(), s(text(cache_control=EPHEMERAL), clear_at="x")],
        [("A16", "messages[1]")],
    ),
    (
        "A18 empty compaction",
        [u(), m({"type": "compaction", "content": ""}, text()), u()],
        [("A18", "messages[1].content[0]")],
    ),
    (
        "A15 nulls in a compaction",
        [u(), m({**COMPACTION, "signature": None, "tool_changes": None}, text()), u()],
        [("A15", "messages[1].content[0]")],
    ),
    (
        "A15 a failed compaction, and no mark",
        [u(), m({"type": "compaction", "content": None, "cache_control": None}, text()), u()],
        [],
    ),
    (
        "A6 a mark on an empty text in a result",
        [u(), m(use()), u(res(content=[text(), text("", cache_control=EPHEMERAL)]))],
        [("A6", "messages[2].content[0].content[1]")],
    ),
    (
        "A6 an empty text in a result, and a mark on another",
        [
            u(),
            m(use()),
            u(
                res(
                    content=[text(""), text(cache_control=EPHEMERAL)],
                    cache_control=EPHEMERAL,
                )
            ),
        ],
        [],
    ),
    ("A18 with content", [u(), m(COMPACTION, text()), u()], []),
    (
        "A21 five marks",
        [u(*(text(cache_control=EPHEMERAL) for _ in range(5)))],
        [("A21", "messages[0].content[4]")],
    ),
    ("A21 four marks", [u(*(text(cache_control=EPHEMERAL) for _ in range(4)))], []),
    ("A21 null is no mark", [u(*(text(cache_control=None) for _ in range(5)))], []),
    (
        "A21 in a tool's input is none",
        [u(), m(*(use(str(n), input={"cache_control": EPHEMERAL}) for n in range(6)))],
        [],
    ),
    (
        "A21 marks inside results count",
        [u(), m(use()), u(res(content=[text(cache_control=EPHEMERAL)] * 5))],
        [("A21", "messages[2].content[0].content[4]")],
    ),
    (
        "A21 an hour late",
        [u(text(cache_control=EPHEMERAL), text(cache_control=HOUR))],
        [("A21", "messages[0].content[1]")],
    ),
    (
        "A21 an hour first",
        [u(text(cache_control=HOUR), text(cache_control={**EPHEMERAL, "ttl": "5m"}))],
        [],
    ),
]

# A server-side tool by its type of call and its name, a type of result, and whether they fit.
RESULTS = [
    ("server_tool_use", "web_fetch", "web_fetch_tool_result", True),
    ("server_tool_use", "web_fetch", "web_search_tool_result", False),
    ("server_tool_use", "web_search", "web_fetch_tool_result", False),
    ("server_tool_use", "code_execution", "code_execution_tool_result", True),
    ("server_tool_use", "bash_code_execution", "bash_code_execution_tool_result", True),
    ("server_tool_use", "bash_code_execution", "code_execution_tool_result", False),
    (
        "server_tool_use",
        "text_editor_code_execution",
        "text_editor_code_execution_tool_result",
        True,
    ),
    (
        "server_tool_use",
        "text_editor_code_execution",
        "bash_code_execution_tool_result",
        False,
    ),
    ("server_tool_use", "tool_search_tool_bm25", "tool_search_tool_result", True),
    ("server_tool_use", "tool_search_tool_regex", "tool_search_tool_result", True),
    ("server_tool_use", "tool_search_tool_regex", "web_search_tool_result", False),
    ("server_tool_use", "advisor", "advisor_tool_result", True),
    ("mcp_tool_use", "web_fetch", "mcp_tool_result", True),
    ("mcp_tool_use", "web_fetch", "web_fetch_tool_result", False),
    ("server_tool_use", "future_tool", "web_fetch_tool_result", True),
    ("server_tool_use", None, "web_fetch_tool_result", True),
]


@pytest.mark.parametrize(("kind", "name", "result", "fit"), RESULTS)
def test_the_result_of_a_server_side_tool_is_of_its_type(
    kind: str, name: str | None, result: str, fit: bool
) -> None:
    call = {"type": kind, "id": "s", "name": name, "input": {}}
    told = {"type": result, "tool_use_id": "s", "content": []}
    both = [("A8", "messages[1].content[1]"), ("A8", "messages[1].content[0]")]
    assert errors([u(), m(call, told), u()]) == ([] if fit else both)
    late = [("A8", "messages[3].content[0]"), ("A8", "messages[3]")]
    over_steps = [u(), m(call, use()), u(res()), m(told, text()), u()]
    assert errors(over_steps) == ([] if fit else late)
    pending = [u(), m(call, use()), u(res()), m(told, text())]
    assert errors(pending) == ([] if fit else late[:1])


@pytest.mark.parametrize(("name", "messages", "expected"), STEPS, ids=[row[0] for row in STEPS])
def test_a_history(name: str, messages: list[Any], expected: list[tuple[str, str]]) -> None:
    assert errors(messages) == expected


@given(requests("anthropic"))
def test_whole_requests_have_no_problems(request: dict[str, Any]) -> None:
    assert check_request(CODEC, request["messages"], request) == []
    assert check_request(CODEC, request["messages"], None) == []


@given(pending("anthropic"))
def test_pending_calls_are_no_problem(messages: list[Any]) -> None:
    assert check_request(CODEC, messages, None) == []


@given(arbitrary_json_messages(), arbitrary_json(12))
def test_nothing_raises_on_any_json(messages: list[Any], fields: Any) -> None:
    check_request(CODEC, messages, fields if isinstance(fields, dict) else None)
    check_request(CODEC, messages, dict.fromkeys(("tools", "system", "thinking", "model"), fields))


RULES, CODEC_CHECK_ANTHROPIC_PLAIN = AnthropicRules(), AnthropicCodec()
thorough = settings(max_examples=examples(200), deadline=None)

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


def holds(history: list[Any], seen: RuleState | None = None) -> None:
    """Every step of the history that is plain passes every rule."""
    seen = seen or RuleState()
    for step in split_steps(CODEC_CHECK_ANTHROPIC_PLAIN, history):
        if is_plain(step, seen):
            assert RULES.check_every_rule(step, seen) == []
        RULES.advance(step, seen)


@thorough
@given(requests("anthropic") | broken("anthropic"))
def test_plain_steps_of_sessions_pass_every_rule(request: dict[str, Any]) -> None:
    holds(request["messages"])


@settings(max_examples=examples(600), deadline=None)
@given(st.lists(messages, max_size=5))
def test_plain_steps_of_nearly_sound_histories_pass_every_rule(history: list[Any]) -> None:
    holds(history)
    holds([{"role": "user", "content": "a"}, *history], RuleState(call_counts={"b": 1}))


@thorough
@given(arbitrary_json_messages())
def test_plain_steps_of_anything_pass_every_rule(history: list[Any]) -> None:
    holds(history)


def test_most_steps_are_plain() -> None:
    seen = RuleState()
    history = long_session("anthropic", 20)["messages"]
    for step in split_steps(CODEC_CHECK_ANTHROPIC_PLAIN, history):
        assert is_plain(step, seen)
        RULES.advance(step, seen)
    assert is_plain(Step(history[1:2], 1, 1), RuleState()), "calls that are still pending"
    assert not is_plain(Step(history[1:], 1, 1), RuleState(open_calls={"x": 0}))
