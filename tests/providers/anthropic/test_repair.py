"""Repairs of Anthropic histories: cases, the end of a history, and laws."""

from __future__ import annotations

import copy
import time
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import respool
from respool.providers.anthropic.check import RESULT_TYPES
from respool.providers.base import (
    BLANK_TEXT,
    CONTINUE_TEXT,
    EARLIER_TEXT,
    Repair,
    split_steps,
    unpaired_result_text,
)
from respool.providers.registry import check_request
from tests.effort import examples
from tests.providers.anthropic.support import (
    CODEC,
    COMPACTION,
    EFFORT,
    EPHEMERAL,
    FOUND,
    HOUR,
    IMAGE,
    NEW,
    OLD,
    SEARCH,
    THINKING,
    Messages,
    Repaired,
    m,
    none,
    orphan,
    repairable,
    res,
    s,
    said,
    same,
    text,
    u,
    use,
)
from tests.strategies import arbitrary_json, arbitrary_json_messages, broken, pending, requests

LOST = {
    "type": "web_search_tool_result",
    "tool_use_id": "s",
    "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"},
}

TABLE: list[tuple[str, Messages, Messages]] = [
    # Pairs: unmatched, interleaved, duplicate, in the wrong order, parallel, mixed with text.
    ("call without result", [u(), m(use()), u()], [u(), m(use()), u(none("a"), text("hi"))]),
    (
        "call without anything before the next turn",
        [u(), m(use()), m(), u(res())],
        [u(), m(use()), m(), u(res())],
    ),
    (
        "call without result, only a system message",
        [u(), m(use()), s()],
        [u(), m(use()), u(none("a")), s()],
    ),
    ("result without call", [u(res())], [u(orphan("a"))]),
    (
        "result without call keeps its pictures",
        [u(res(content=[text("r"), IMAGE]))],
        [u(orphan("a"), IMAGE)],
    ),
    ("result without id", [u({"type": "tool_result"})], [u(orphan("", ""))]),
    (
        "result before its call",
        [u(res()), m(use()), u()],
        [u(orphan("a")), m(use()), u(none("a"), text("hi"))],
    ),
    (
        "one of two parallel results",
        [u(), m(use(), use("b")), u(res("b"))],
        [u(), m(use(), use("b")), u(res("b"), none("a"))],
    ),
    (
        "parallel results in two messages",
        [u(), m(use(), use("b"), use("c")), u(res()), u(res("b"))],
        [u(), m(use(), use("b"), use("c")), u(res()), u(res("b"), none("c"))],
    ),
    (
        "interleaved: the second result comes a turn late",
        [u(), m(use(), use("b")), u(res()), m(), u(res("b"))],
        [u(), m(use(), use("b")), u(res(), none("b")), m(), u(orphan("b"))],
    ),
    (
        "text before the result",
        [u(), m(use()), u(text(), res())],
        [u(), m(use()), u(res(), text())],
    ),
    (
        "text between results",
        [u(), m(use(), use("b")), u(res(), text(), res("b"))],
        [u(), m(use(), use("b")), u(res(), res("b"), text())],
    ),
    (
        "message before the results",
        [u(), m(use()), u(), u(res())],
        [u(), m(use()), u(res(), text("hi"))],
    ),
    (
        "message before results and more",
        [u(), m(use()), u(), u(res(), text("y"))],
        [u(), m(use()), u(res(), text("hi")), u(text("y"))],
    ),
    (
        "results in another order are fine",
        [u(), m(use(), use("b")), u(res("b"), res())],
        [u(), m(use(), use("b")), u(res("b"), res())],
    ),
    (
        "two results for one call: the first stays",
        [u(), m(use()), u(res(), res(content="again"))],
        [u(), m(use()), u(res())],
    ),
    (
        "a result told again later",
        [u(), m(use()), u(res()), m(), u(res())],
        [u(), m(use()), u(res()), m(), u(orphan("a"))],
    ),
    (
        "one id for two calls of a turn",
        [u(), m(use(), use()), u(res(content="1"), res(content="2"))],
        [u(), m(use(), use("a_2")), u(res(content="1"), res("a_2", "2"))],
    ),
    (
        "one id for calls of three turns",
        [u(), m(use()), u(res()), m(use()), u(res()), m(use()), u(res())],
        [u(), m(use()), u(res()), m(use("a_2")), u(res("a_2")), m(use("a_3")), u(res("a_3"))],
    ),
    (
        "a repeat meets an id that is taken",
        [u(), m(use("a_2"), use()), u(res("a_2"), res()), m(use()), u(res())],
        [u(), m(use("a_2"), use()), u(res("a_2"), res()), m(use("a_3")), u(res("a_3"))],
    ),
    (
        "ids that are none",
        [u(), m(use("a b!"), use(""), use(None)), u(res("a b!"), res(""), res(None))],
        [
            u(),
            m(use("a_b_"), use("call"), use("call_2")),
            u(res("a_b_"), res("call"), res("call_2")),
        ],
    ),
    (
        "a result whose id is a number",
        [u(), m(use("7")), u(res(7))],
        [u(), m(use("7")), u(res("7"))],
    ),
    ("pending calls stay", [u(), m(use())], [u(), m(use())]),
    (
        "pending calls are mended all the same",
        [u(), m(use("a b", input=None))],
        [u(), m(use("a_b"))],
    ),
    # Calls and results of the wrong shape, or in the wrong place.
    (
        "arguments as text",
        [u(), m(use(input='{"p": 1}')), u(res())],
        [u(), m(use(input={"p": 1})), u(res())],
    ),
    (
        "arguments cut off",
        [u(), m(use(input='{"p": ')), u(res())],
        [u(), m(use(input={"input": '{"p": '})), u(res())],
    ),
    ("arguments empty", [u(), m(use(input="")), u(res())], [u(), m(use()), u(res())]),
    (
        "arguments as list",
        [u(), m(use(input=[1])), u(res())],
        [u(), m(use(input={"input": [1]})), u(res())],
    ),
    ("no name", [u(), m(use(name=None)), u(res())], [u(), m(use(name="unknown")), u(res())]),
    (
        "result of a number",
        [u(), m(use()), u(res(content=3))],
        [u(), m(use()), u(res(content="3"))],
    ),
    (
        "result of odd items",
        [u(), m(use()), u(res(content=["r", None, {"text": "t"}, IMAGE]))],
        [u(), m(use()), u(res(content=[text("r"), text("t"), IMAGE]))],
    ),
    (
        "result in the assistant's message",
        [u(), m(use(), res(), text())],
        [u(), m(use(), text()), u(res())],
    ),
    (
        "result in the assistant's message, and words after",
        [u(), m(use(), res()), u()],
        [u(), m(use()), u(res(), text("hi"))],
    ),
    (
        "stray result in the assistant's message",
        [u(), m(res("z")), u()],
        [u(), m(orphan("z")), u()],
    ),
    (
        "result in a system message",
        [u(), m(use()), u(), s(res(), text())],
        [u(), m(use()), u(res(), text("hi")), s(text())],
    ),
    (
        "call in the user's message",
        [u(use(input={"p": 1}))],
        [u(text('[tool call that is not the assistant\'s: read {"p":1}]'))],
    ),
    ("thinking in the user's message", [u(THINKING, text())], [u(text())]),
    # Messages and blocks that say nothing, or are none.
    ("blank user", [said("user", " ")], [u(text(BLANK_TEXT))]),
    ("no blocks", [said("user", [])], [u(text(BLANK_TEXT))]),
    ("blank blocks", [u(text(" "), text())], [u(text())]),
    ("blank user beside another", [said("user", ""), u()], [u()]),
    ("blank assistant", [u(), said("assistant", ""), u()], [u(), m(text(BLANK_TEXT)), u()]),
    ("blank assistant beside another", [u(), said("assistant", " "), m(), u()], [u(), m(), u()]),
    ("blank words beside a call", [u(), m(text(""), use()), u(res())], [u(), m(use()), u(res())]),
    ("empty end", [u(), said("assistant", "")], [u(), said("assistant", "")]),
    ("null message", [u(), None, m(), u()], [u(), m(), u()]),
    ("only a null", [None], [u(text(BLANK_TEXT))]),
    ("a string as message", [u(), "words"], [u(), u(text("words"))]),
    ("content that is one block", [said("user", text())], [u(text())]),
    ("content that is a number", [said("user", 3)], [u(text("3"))]),
    ("content that is null", [u(), said("assistant", None), u()], [u(), m(text(BLANK_TEXT)), u()]),
    (
        "blocks that are strings",
        [u("words", None, {"text": "t"}, {})],
        [u(text("words"), text("t"))],
    ),
    ("unknown role", [said("tool", "x")], [said("user", "x")]),
    (
        "empty compaction",
        [u(), m({"type": "compaction", "content": ""}, text()), u()],
        [u(), m(text()), u()],
    ),
    # Where things stand.
    ("assistant first", [m(), u()], [u(text(EARLIER_TEXT)), m(), u()]),
    ("cut behind a call", [u(res()), m(), u()], [u(orphan("a")), m(), u()]),
    ("system first", [s(), u(), m(), u()], [u(), s(), m(), u()]),
    ("only a system message", [s()], [u(text(EARLIER_TEXT)), s()]),
    (
        "effort first, then the assistant",
        [EFFORT, m(), u()],
        [u(text(EARLIER_TEXT)), EFFORT, m(), u()],
    ),
    (
        "system between call and result",
        [u(), m(use()), s(), u(res())],
        [u(), m(use()), u(res()), s()],
    ),
    (
        "system before the user",
        [u(), m(), s(), u(), EFFORT, m(), u()],
        [u(), m(), u(), s(), EFFORT, m(), u()],
    ),
    (
        "system after words",
        [u(), m(), s(), m(), u()],
        [u(), m(), u(text(CONTINUE_TEXT)), s(), m(), u()],
    ),
    ("cleared and no text", [u(), s(IMAGE, clear_at="x")], [u(), s(IMAGE)]),
    # Thinking stays whole and in its place, or goes.
    ("thinking last", [u(), m(THINKING), u()], [u(), m(THINKING, text(BLANK_TEXT)), u()]),
    (
        "thinking last after words",
        [u(), m(THINKING, text(), THINKING), u()],
        [u(), m(THINKING, text(), THINKING, text(BLANK_TEXT)), u()],
    ),
    (
        "thinking not first",
        [u(), m(text(), THINKING, use()), u(res())],
        [u(), m(text(), use()), u(res())],
    ),
    (
        "thinking not whole",
        [u(), m({"type": "thinking", "thinking": "x"}, text()), m(THINKING, text()), u()],
        [u(), m(text()), m(text()), u()],
    ),
    (
        "thinking before a blank",
        [u(), m(THINKING, text("")), u()],
        [u(), m(THINKING, text(BLANK_TEXT)), u()],
    ),
    (
        "a stray result keeps its mark",
        [u(), m(use()), u(res(), {**res("z"), "cache_control": {"type": "ephemeral"}})],
        [
            u(),
            m(use()),
            u(res(), text(unpaired_result_text("z", "r"), cache_control={"type": "ephemeral"})),
        ],
    ),
    (
        "thinking of a mended turn stays",
        [u(), m(THINKING, use("a b")), u(res("a b"))],
        [u(), m(THINKING, use("a_b")), u(res("a_b"))],
    ),
    # Tools that the provider runs.
    ("server-side result without call", [u(), m(FOUND, text()), u()], [u(), m(text()), u()]),
    (
        "server-side result of another tool's type",
        [u(), m(text(), {**SEARCH, "name": "web_fetch"}, FOUND), u()],
        [u(), m(text()), u()],
    ),
    (
        "server-side result of another tool's type, a step later",
        [u(), m(SEARCH, use()), u(res()), m({**FOUND, "type": "mcp_tool_result"}, text()), u()],
        [u(), m(SEARCH, use()), u(res()), m(LOST, text()), u()],
    ),
    (
        "server-side result of the right type behind one of the wrong",
        [u(), m(SEARCH, {**FOUND, "type": "mcp_tool_result"}, FOUND), u()],
        [u(), m(SEARCH, FOUND), u()],
    ),
    (
        "nulls in a compaction",
        [u(), m({**COMPACTION, "signature": None, "cache_control": None}, text()), u()],
        [u(), m({**COMPACTION, "cache_control": None}, text()), u()],
    ),
    (
        "nulls in a failed compaction",
        [u(), m({**COMPACTION, "content": None, "signature": None}, text()), u()],
        [u(), m({**COMPACTION, "content": None}, text()), u()],
    ),
    (
        "a mark on an empty text in a result",
        [u(), m(use()), u(res(content=[text(), text("", cache_control=EPHEMERAL)]))],
        [u(), m(use()), u(res(content=[text(), text("")]))],
    ),
    ("server-side call without result", [u(), m(text(), SEARCH), u()], [u(), m(text()), u()]),
    (
        "server-side call alone",
        [u(), m(SEARCH), u(), m(FOUND), u()],
        [u(), m(text(BLANK_TEXT)), u(), m(text(BLANK_TEXT)), u()],
    ),
    (
        "server-side call that a client's call was made from",
        [u(), m(SEARCH, use(caller={"type": "code", "tool_id": "s"})), u(res(), text())],
        [u(), m(use()), u(res(), text())],
    ),
    (
        "server-side call whose result never came",
        [u(), m(SEARCH, use()), u(res()), m(THINKING, text()), u()],
        [u(), m(SEARCH, use()), u(res()), m(THINKING, LOST, text()), u()],
    ),
    (
        "server-side call pending beside a stray result",
        [u(), m(SEARCH), u(res("z"))],
        [u(), m(text(BLANK_TEXT)), u(orphan("z"))],
    ),
    (
        "server-side call pending before a system message",
        [u(), m(SEARCH), s()],
        [u(), m(text(BLANK_TEXT)), u(text(CONTINUE_TEXT)), s()],
    ),
]


@pytest.mark.parametrize(("name", "messages", "expected"), TABLE, ids=[row[0] for row in TABLE])
def test_a_history(name: str, messages: Messages, expected: Messages) -> None:
    before = copy.deepcopy(messages)
    repaired = Repaired(messages)
    assert repaired.rows == expected
    assert messages == before
    assert bool(repaired.repairs) == (messages != expected)
    assert check_request(CODEC, repaired.rows, None) == []


@pytest.mark.parametrize(
    ("name", "code", "kind"),
    [
        ("mcp_tool_use", "mcp", "mcp_tool_result"),
        ("server_tool_use", "bash_code_execution", "bash_code_execution_tool_result"),
        ("server_tool_use", "tool_search_tool_regex", "tool_search_tool_result"),
    ],
)
def test_stand_ins_for_server_side_results(name: str, code: str, kind: str) -> None:
    call = {"type": name, "id": "s", "name": code, "input": {}}
    rows = Repaired([u(), m(call, use()), u(res()), m(), u()]).rows
    stand_in = rows[3]["content"][0]
    assert (stand_in["type"], stand_in["tool_use_id"]) == (kind, "s")
    assert rows[3]["content"][1] == text("ok")


DONE: list[tuple[str, Messages, tuple[str, str, str]]] = [
    ("stand-in", [u(), m(use()), u()], ("A1", "messages[1]", "put a stand-in result for call 'a'")),
    ("rename", [u(), m(use(), use())], ("A3", "messages[1].content[1]", "renamed the id to a_2")),
    (
        "thinking",
        [u(), m(text(), THINKING, use()), u(res())],
        ("A11", "messages[1]", "dropped the turn's thinking"),
    ),
    (
        "thinking last",
        [u(), m(THINKING), u()],
        ("A11", "messages[1]", "put [blank] behind the thinking"),
    ),
    (
        "moved",
        [u(), m(use()), u(text(), res())],
        ("A1", "messages[2].content[1]", "moved the result right behind its call"),
    ),
    (
        "the result of a renamed call",
        [u(), m(use(), use()), u(res(), res())],
        ("A3", "messages[2].content[1]", "made the result fit its call"),
    ),
    (
        "a result that is neither text nor blocks",
        [u(), m(use()), u(res(content={"rows": 3}))],
        ("A0", "messages[2].content[0]", "made its content text or blocks"),
    ),
    (
        "a result that comes once more",
        [u(), m(use()), u(res()), m(), u(res())],
        ("A2", "messages[4].content[0]", "made the result a text: it has no call"),
    ),
    ("opening", [m(), u()], ("A7", "messages[0]", "put a user message in front of it")),
]


@pytest.mark.parametrize(("name", "messages", "expected"), DONE, ids=[row[0] for row in DONE])
def test_what_was_done_is_told(
    name: str, messages: Messages, expected: tuple[str, str, str]
) -> None:
    assert Repair(*expected) in Repaired(messages).repairs


def test_untouched_blocks_and_messages_are_the_same_objects() -> None:
    messages = [
        u(),
        m(THINKING, text(), use("a b")),
        u(res("a b"), text("y")),
        m(use("c")),
        u(res("c")),
    ]
    rows = Repaired(messages).rows
    assert rows[0] is messages[0]
    assert [
        new is old for new, old in zip(rows[1]["content"], messages[1]["content"], strict=True)
    ] == [True, True, False]
    assert rows[2]["content"][1] is messages[2]["content"][1]
    assert rows[3] is messages[3]
    assert rows[4] is messages[4]


def test_many_lost_results_get_stand_ins_in_the_order_of_their_calls() -> None:
    """Mended a second time from what the first looked at, and that in its order."""
    tools = [tool for tool in RESULT_TYPES if tool != "mcp"]
    asked = [
        {"type": "server_tool_use", "id": f"srvtoolu_{tool}", "name": tool, "input": {}}
        for tool in tools
    ]
    history = [u(), m(*asked, use()), u(res()), m(text("so")), u(text("and?"))]
    repaired = respool.repair(history, format="anthropic").request
    put = [block for block in repaired[3]["content"] if block["type"] != "text"]
    assert [block["tool_use_id"] for block in put] == [f"srvtoolu_{tool}" for tool in tools]
    assert [block["type"] for block in put] == [RESULT_TYPES[tool] for tool in tools]
    assert respool.check(repaired, format="anthropic") == []


def placed(*controls: Any) -> dict[str, Any]:
    return u(*(text(cache_control=control) if control else text() for control in controls))


# The name, the history, the fields beside it, the history after.
ENDS: list[tuple[str, Messages, dict[str, Any], Messages]] = [
    ("words at the end", [u(), m()], {"model": NEW}, [u(), m(), u(text(CONTINUE_TEXT))]),
    ("words at the end of an older model", [u(), m()], {"model": OLD}, [u(), m()]),
    ("white space at the end", [u(), m(text("x \n"))], {"model": OLD}, [u(), m(text("x"))]),
    (
        "white space at the end of a string",
        [u(), said("assistant", "x ")],
        {"model": OLD},
        [u(), said("assistant", "x")],
    ),
    (
        "nothing at the end",
        [u(), said("assistant", "")],
        {"model": NEW},
        [u(), m(text(BLANK_TEXT)), u(text(CONTINUE_TEXT))],
    ),
    ("a pending call", [u(), m(use())], {"model": NEW}, [u(), m(use())]),
    ("a paused turn", [u(), m(SEARCH)], {"model": NEW}, [u(), m(SEARCH)]),
    (
        "a paused turn with words",
        [u(), m(SEARCH, text())],
        {"model": NEW},
        [u(), m(SEARCH, text())],
    ),
    (
        "thinking at the end",
        [u(), m(THINKING, text())],
        {"model": OLD, "thinking": {"type": "disabled"}},
        [u(), m(text())],
    ),
    (
        "thinking with a call at the end",
        [u(), m(THINKING, use())],
        {"model": OLD, "thinking": {"type": "disabled"}},
        [u(), m(use())],
    ),
    (
        "thinking at the end of a newer model",
        [u(), m(THINKING, text())],
        {"model": NEW, "thinking": {"type": "disabled"}},
        [u(), m(text()), u(text(CONTINUE_TEXT))],
    ),
    (
        "thinking and white space",
        [u(), m(THINKING, text("x "))],
        {"model": OLD, "thinking": {"type": "disabled"}},
        [u(), m(text("x"))],
    ),
    (
        "five marks",
        [
            placed(EPHEMERAL, EPHEMERAL),
            placed(EPHEMERAL, EPHEMERAL, EPHEMERAL),
        ],
        {},
        [
            placed(None, EPHEMERAL),
            placed(EPHEMERAL, EPHEMERAL, EPHEMERAL),
        ],
    ),
    (
        "five marks with the head's",
        [placed(EPHEMERAL, EPHEMERAL, EPHEMERAL)],
        {"system": [text(cache_control=EPHEMERAL)] * 2},
        [placed(None, EPHEMERAL, EPHEMERAL)],
    ),
    (
        "five marks with the automatic one",
        [placed(EPHEMERAL, EPHEMERAL, EPHEMERAL, EPHEMERAL)],
        {"cache_control": EPHEMERAL},
        [placed(None, EPHEMERAL, EPHEMERAL, EPHEMERAL)],
    ),
    (
        "a mark inside a result",
        [
            u(),
            m(use()),
            u(res(content=[text(cache_control=EPHEMERAL)])),
            placed(EPHEMERAL, EPHEMERAL, EPHEMERAL, EPHEMERAL),
        ],
        {},
        [
            u(),
            m(use()),
            u(res(content=[text()])),
            placed(EPHEMERAL, EPHEMERAL, EPHEMERAL, EPHEMERAL),
        ],
    ),
    (
        "an hour behind five minutes",
        [placed(EPHEMERAL, HOUR)],
        {},
        [placed(EPHEMERAL, EPHEMERAL)],
    ),
    (
        "an hour behind five minutes of the head",
        [placed(HOUR)],
        {"system": [text(cache_control=EPHEMERAL)]},
        [placed(EPHEMERAL)],
    ),
    (
        "an hour behind a mark that goes",
        [placed(EPHEMERAL, HOUR, HOUR, HOUR, HOUR)],
        {},
        [placed(None, HOUR, HOUR, HOUR, HOUR)],
    ),
    (
        "an hour, then five minutes",
        [placed(HOUR, EPHEMERAL)],
        {},
        [placed(HOUR, EPHEMERAL)],
    ),
    (
        "what only looks like marks",
        [u(), m(*(use(str(n), input={"cache_control": EPHEMERAL}) for n in range(6)))],
        {},
        [u(), m(*(use(str(n), input={"cache_control": EPHEMERAL}) for n in range(6)))],
    ),
    (
        "a mark on what is to be cleared",
        [u(), s(text(cache_control=EPHEMERAL), clear_at="x")],
        {},
        [u(), s(text(), clear_at="x")],
    ),
    (
        "a head with too many marks",
        [placed(EPHEMERAL)],
        {"system": [text(cache_control=EPHEMERAL)] * 5},
        [placed(EPHEMERAL)],
    ),
]


@pytest.mark.parametrize(
    ("name", "messages", "fields", "expected"), ENDS, ids=[row[0] for row in ENDS]
)
def test_an_end(name: str, messages: Messages, fields: dict[str, Any], expected: Messages) -> None:
    before = copy.deepcopy(messages)
    repaired = Repaired(messages, fields)
    assert repaired.rows == expected
    assert messages == before
    assert bool(repaired.repairs) == (messages != expected)
    assert same(repaired.rows, messages) == (messages == expected)


@given(requests("anthropic"))
def test_what_the_provider_accepts_is_not_touched(request: dict[str, Any]) -> None:
    assert same(Repaired(request["messages"], request).rows, request["messages"])
    assert same(Repaired(request["messages"]).rows, request["messages"])


@given(pending("anthropic"))
def test_pending_calls_stay(messages: Messages) -> None:
    assert same(Repaired(messages).rows, messages)


@given(broken("anthropic"), st.booleans())
def test_damage_is_mended_once_and_the_same_way(request: dict[str, Any], bare: bool) -> None:
    messages, fields = request["messages"], None if bare else request
    before = copy.deepcopy(messages)
    repaired = Repaired(messages, fields)
    assert messages == before
    assert repairable(repaired.rows, fields) == []
    assert same(Repaired(repaired.rows, fields).rows, repaired.rows)
    assert Repaired(copy.deepcopy(messages), fields).rows == repaired.rows
    sound = not repairable(messages, fields)
    assert same(repaired.rows, messages) == sound
    assert bool(repaired.repairs) != sound


ids = st.sampled_from(["s", "t"])
names = st.sampled_from(["web_fetch", "web_search", "tool_search_tool_bm25", "future", None])
kinds = st.sampled_from(["web_fetch", "web_search", "tool_search", "mcp", "future"])
controls = st.sampled_from([None, {"type": "ephemeral"}])
served = st.one_of(
    st.builds(lambda id, name: {**SEARCH, "id": id, "name": name}, ids, names),
    st.builds(lambda id: {**SEARCH, "id": id, "type": "mcp_tool_use"}, ids),
    st.builds(lambda id, kind: {"type": f"{kind}_tool_result", "tool_use_id": id}, ids, kinds),
    st.builds(lambda null: {"type": "compaction", "content": "x", "signature": null}, controls),
)
inner = st.builds(
    lambda said, control: text(said, cache_control=control), st.sampled_from(["x", ""]), controls
)
turns = st.builds(
    lambda n, blocks, said, content: (m(*blocks, use(n)), u(res(n, content), *said)),
    st.uuids().map(str),
    st.lists(served, max_size=4),
    st.sampled_from([[], [text()]]),
    st.lists(inner, max_size=2),
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(turns, min_size=1, max_size=4), st.lists(served, max_size=3))
def test_tools_of_the_provider_are_mended(pairs: list[Any], last: list[Any]) -> None:
    messages = [u(), *(message for pair in pairs for message in pair), m(*last, text())]
    repaired = Repaired(messages)
    assert repairable(repaired.rows, None) == []
    assert same(Repaired(repaired.rows).rows, repaired.rows)
    sound = not repairable(messages, None)
    assert same(repaired.rows, messages) == sound
    assert bool(repaired.repairs) != sound


@given(broken("anthropic"))
def test_what_follows_never_changes_what_was_mended(request: dict[str, Any]) -> None:
    messages = request["messages"]
    steps = Repaired(messages, ending=False).steps
    for count, step in enumerate(split_steps(CODEC, messages)):
        assert Repaired(messages[: step.at], ending=False).steps == steps[:count]


@given(arbitrary_json_messages() | st.lists(arbitrary_json(20), max_size=3), arbitrary_json(10))
def test_any_json_is_mended(messages: Messages, beside: Any) -> None:
    fields = beside if isinstance(beside, dict) else None
    assert repairable(Repaired(messages, fields).rows, fields) == []


@cache
def long_histories(count: int) -> dict[str, Messages]:
    ids = [f"a{n}" for n in range(count)]
    turns = [x for _ in range(count) for x in (m(use()), u(res()))]
    return {
        "many calls, no results": [u(), m(*map(use, ids)), u()],
        "many calls of one id": [u(), m(*[use()] * count), u(*[res()] * count)],
        "one id in many turns": [u(), *turns],
        "taken names, then one id": [
            u(),
            *(x for n in range(2, 2000) for x in (m(use(f"a_{n}")), u(res(f"a_{n}")))),
            *turns[:4000],
        ],
        "many stray results": [u(*map(res, ids))],
        "many server-side calls": [u(), m(*({**SEARCH, "id": id} for id in ids)), u()],
        "server-side calls that stay open": [
            u(),
            *(x for id in ids for x in (m({**SEARCH, "id": f"s{id}"}, use(id)), u(res(id)))),
            m(),
            u(),
        ],
        "many late results": [u(), m(*map(use, ids)), u(), *(u(res(id)) for id in ids)],
    }


@pytest.mark.parametrize("name", long_histories(1))
@pytest.mark.parametrize("count", [3_000, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_long_histories_take_linear_time(name: str, count: int) -> None:
    messages = long_histories(count)[name]
    start = time.process_time()
    repaired = Repaired(messages)
    assert time.process_time() - start < count / 2_000  # a quadratic way takes minutes
    assert repaired.repairs
    assert repairable(repaired.rows, None) == []
