"""Repairs of OpenAI Chat Completions histories."""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings

from respool.providers.base import (
    BLANK_TEXT,
    NO_RESULT_TEXT,
    RepairedRow,
    RuleState,
    Step,
    unpaired_result_text,
)
from respool.providers.openai_chat.check import OpenAIChatRules
from respool.providers.openai_chat.codec import OpenAIChatCodec
from respool.providers.openai_chat.repair import MOVED_TEXT, OpenAIChatRepairer
from respool.providers.openai_string_limit import MAX_STRING_CHARS
from tests.effort import examples
from tests.judges import HISTORY_JUDGES
from tests.strategies import arbitrary_json_messages, broken, requests

RULES = OpenAIChatRules()
REPAIRER = OpenAIChatRepairer()
OPENAI = {"model": "gpt-4.1"}
USER = {"role": "user", "content": "hi"}
WORDS = {"role": "assistant", "content": "words"}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
LONG = "x" * (MAX_STRING_CHARS + 1)

Fields = dict[str, Any] | None


def call(id: Any = "a", arguments: Any = "{}", name: Any = "read") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def custom(input: Any) -> dict[str, Any]:
    return {"id": "a", "type": "custom", "custom": {"name": "patch", "input": input}}


def asks(*calls: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **more}


def tool(id: Any = "a", content: Any = "r") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def stand_in(id: str = "a") -> dict[str, Any]:
    return tool(id, NO_RESULT_TEXT)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def orphan(id: str, text: str = "r") -> dict[str, Any]:
    return user(unpaired_result_text(id, text))


def steps_of(messages: list[Any]) -> list[Step]:
    made = OpenAIChatCodec().is_model_made
    starts = [
        i for i, m in enumerate(messages) if i == 0 or (made(m) and not made(messages[i - 1]))
    ]
    ends = [*starts[1:], len(messages)]
    return [
        Step(messages[i:j], i, sum(1 for _ in itertools.takewhile(made, messages[i:j])))
        for i, j in zip(starts, ends, strict=False)
    ]


def rows_of(messages: list[Any], fields: Fields = None) -> list[RepairedRow]:
    seen = RuleState()
    rows: list[RepairedRow] = []
    for step in steps_of(messages):
        repaired = REPAIRER.repair_step(step, seen, fields)
        untouched = [RepairedRow(m, step.at + k) for k, m in enumerate(step.messages)]
        rows += untouched if repaired is None else repaired.rows
        RULES.advance(step, seen)
    return rows


def repair(messages: list[Any], fields: Fields = None) -> list[Any]:
    return [row.message for row in rows_of(messages, fields)]


def errors(messages: list[Any], fields: Fields = None) -> list[str]:
    return [
        str(problem)
        for step in steps_of(messages)
        for problem in RULES.check_step(step, RuleState(), fields)
        if problem.severity == "error"
    ]


# The kinds of damage that OpenHands names: what came, and what is sent.
PAIRING: list[tuple[str, list[Any], list[Any]]] = [
    ("unmatched call", [USER, asks(call()), USER], [USER, asks(call()), stand_in(), USER]),
    ("unmatched result", [USER, tool("z"), WORDS], [USER, orphan("z"), WORDS]),
    (
        "both unmatched",
        [asks(call("a")), tool("z"), USER],
        [asks(call("a")), stand_in("a"), orphan("z"), USER],
    ),
    (
        "interleaved with the user's words",
        [asks(call()), USER, tool()],
        [asks(call()), tool(), USER],
    ),
    (
        "interleaved with the model's words",
        [asks(call()), WORDS, tool()],
        [asks(call()), tool(), WORDS],
    ),
    (
        "interleaved turns",
        [asks(call("a")), asks(call("b")), tool("b", "s"), tool("a")],
        [asks(call("a")), tool("a"), asks(call("b")), tool("b", "s")],
    ),
    (
        "interleaved with system words, in parallel",
        [asks(call("a"), call("b")), tool("a"), {"role": "system", "content": "s"}, tool("b")],
        [asks(call("a"), call("b")), tool("a"), tool("b"), {"role": "system", "content": "s"}],
    ),
    ("duplicate result", [asks(call()), tool(), tool()], [asks(call()), tool()]),
    ("blank duplicate", [asks(call()), tool(), tool("a", " ")], [asks(call()), tool()]),
    (
        "duplicate that says something else",
        [asks(call()), tool(), tool("a", "s")],
        [asks(call()), tool(), orphan("a", "s")],
    ),
    (
        "duplicate behind words",
        [asks(call()), tool(), USER, tool()],
        [asks(call()), tool(), USER],
    ),
    (
        "result before its call",
        [USER, tool(), asks(call()), USER],
        [USER, orphan("a"), asks(call()), stand_in(), USER],
    ),
    (
        "result only in a later turn",
        [asks(call("a")), USER, WORDS, tool("a"), USER],
        [asks(call("a")), stand_in(), USER, WORDS, orphan("a"), USER],
    ),
    (
        "parallel, one lost",
        [asks(call("a"), call("b"), call("c")), tool("c"), tool("a")],
        [asks(call("a"), call("b"), call("c")), tool("c"), tool("a"), stand_in("b")],
    ),
    (
        "parallel with one id",
        [asks(call("a"), call("a")), tool("a"), USER],
        [asks(call("a"), call("a")), tool("a"), stand_in("a"), USER],
    ),
    (
        "one id in two turns and one result: the nearer one has it",
        [asks(call("a")), asks(call("a")), tool("a")],
        [asks(call("a")), stand_in("a"), asks(call("a")), tool("a")],
    ),
    (
        "mixed with text",
        [asks(call("a"), content="on it"), user("wait"), tool("z", "?"), tool("a"), USER],
        [asks(call("a"), content="on it"), tool("a"), user("wait"), orphan("z", "?"), USER],
    ),
    (
        "pending calls stay, earlier ones do not",
        [asks(call("a")), asks(call("b"))],
        [asks(call("a")), stand_in("a"), asks(call("b"))],
    ),
]

SHAPE: list[tuple[str, list[Any], list[Any]]] = [
    (
        "ids missing on both sides",
        [USER, asks(call(None), call("")), tool(None), tool(3, "s")],
        [USER, asks(call("call_1_0"), call("call_1_1")), tool("call_1_0"), tool("call_1_1", "s")],
    ),
    (
        "id missing on the result",
        [asks(call("a"), call("b")), {"role": "tool", "content": "s"}, tool("a")],
        [
            asks(call("a"), call("b")),
            {"role": "tool", "content": "s", "tool_call_id": "b"},
            tool("a"),
        ],
    ),
    (
        "id missing on the call",
        [asks(call(None)), tool("x")],
        [asks(call("call_0_0")), tool("call_0_0")],
    ),
    ("id missing on a pending call", [USER, asks(call(None))], [USER, asks(call("call_1_0"))]),
    (
        "more results without id than calls",
        [asks(call()), tool(None), tool(None, "s")],
        [asks(call()), tool("a"), orphan("", "s")],
    ),
    ("no object", ["hello", None, ["a"]], [user("hello"), user(BLANK_TEXT), user('["a"]')]),
    ("unknown role", [{"role": "ai", "content": "x", "id": 3}], [user("x")]),
    ("unknown role without content", [{"role": "ai", "x": 1}], [user('{"role":"ai","x":1}')]),
    ("unknown role of a result", [asks(call()), {**tool(), "role": None}], [asks(call()), tool()]),
    ("calls of a user", [{**USER, "tool_calls": [call()]}], [USER]),
    ("no calls", [{**WORDS, "tool_calls": []}, USER], [WORDS, USER]),
    (
        "null calls and no words",
        [asks() | {"tool_calls": None}],
        [{"role": "assistant", "content": ""}],
    ),
    ("calls that are none", [asks("x", call(), 3), tool()], [asks(call()), tool()]),
    (
        "a call without anything",
        [asks({})],
        [
            asks(
                {
                    "id": "call_0_0",
                    "type": "function",
                    "function": {"name": "unknown", "arguments": "{}"},
                }
            )
        ],
    ),
    (
        "a call without type",
        [asks({"id": "a", "custom": {"name": "p", "input": "x"}})],
        [asks({"id": "a", "custom": {"name": "p", "input": "x"}, "type": "custom"})],
    ),
    ("a legacy call that is none", [{**WORDS, "function_call": 3}], [WORDS]),
    (
        "a legacy result without name",
        [{"role": "function", "content": ["a", {"type": "text", "text": "b"}]}],
        [{"role": "function", "content": "a\nb", "name": "unknown"}],
    ),
    (
        "null content",
        [user(None), {"role": "system"}, {"role": "assistant", "content": None}],
        [user(""), {"role": "system", "content": ""}, {"role": "assistant", "content": ""}],
    ),
    ("null result", [asks(call()), tool("a", None)], [asks(call()), tool("a", "")]),
    (
        "an object as result",
        [asks(call()), tool("a", {"n": [1]})],
        [asks(call()), tool("a", '{"n":[1]}')],
    ),
    (
        "parts without type",
        [user(["a", {"text": "b"}, {"n": 1}, {"type": "text"}])],
        [user([{"type": "text", "text": t} for t in ("a", "b", '{"n":1}', "")])],
    ),
    (
        "arguments that are an object",
        [asks(call(arguments={"a": 1}))],
        [asks(call(arguments='{"a":1}'))],
    ),
    (
        "arguments that are nothing",
        [asks(call(arguments=None), call(arguments=" "))],
        [asks(call(), call())],
    ),
    (
        "arguments cut off",
        [asks(call(arguments='{"a": "b'))],
        [asks(call(arguments='{"input":"{\\"a\\": \\"b"}'))],
    ),
    (
        "free text that is none",
        [asks(custom({"a": 1}), custom(None))],
        [asks(custom('{"a":1}'), custom(""))],
    ),
    (
        "an orphan in parts",
        [tool("z", [{"type": "text", "text": "r"}, IMAGE])],
        [
            user(
                [
                    {"type": "text", "text": unpaired_result_text("z", "")},
                    {"type": "text", "text": "r"},
                    IMAGE,
                ]
            )
        ],
    ),
    (
        "an orphan with a mark",
        [{**tool("z"), "cache_control": {}}],
        [{**orphan("z"), "cache_control": {}}],
    ),
]

CASES = PAIRING + SHAPE


@pytest.mark.parametrize(("name", "came", "sent"), CASES, ids=[row[0] for row in CASES])
def test_mended(name: str, came: list[Any], sent: list[Any]) -> None:
    before = copy.deepcopy(came)
    assert errors(came)
    assert repair(came) == sent
    assert errors(sent) == []
    assert HISTORY_JUDGES["openai-chat"](sent) == [] or "cache_control" in str(sent)
    assert repair(sent) == sent
    assert came == before


def test_media_of_results_move_behind_them_for_openais_models() -> None:
    said = {"type": "text", "text": "r"}
    came = [asks(call("a"), call("b")), tool("a", [said, IMAGE]), tool("b", [IMAGE]), WORDS]
    moved = {"type": "text", "text": MOVED_TEXT}
    sent = repair(came, OPENAI)
    assert sent[1:3] == [tool("a", [said, moved]), tool("b", [moved])]
    assert sent[1]["content"][0] is said
    assert sent[3]["role"] == "user"
    assert sent[3]["content"][1:] == [IMAGE, IMAGE]
    assert sent[4:] == [WORDS]
    assert errors(sent, OPENAI) == []
    # Other servers may take them: there they stay, even where something else is mended.
    assert repair(came)[1] is came[1]
    assert repair([came[0], USER, *came[1:3]])[1] is came[1]


def test_a_long_string_keeps_its_head_and_says_what_is_missing() -> None:
    (sent,) = repair([user(LONG + "y")])
    head, note = sent["content"].split("\n")
    assert len(sent["content"]) <= MAX_STRING_CHARS
    assert note == f"[cut here: {MAX_STRING_CHARS + 2 - len(head):,} more characters]"
    assert repair([sent]) == [sent]


@pytest.mark.parametrize(
    "text",
    [
        LONG,
        f'{{"a":"{LONG}"}}',
        "\x01" * (MAX_STRING_CHARS // 2),
        "\ud800" + "\U0001f600" * MAX_STRING_CHARS,
    ],
    ids=["no JSON", "JSON", "grows by escaping", "grows most"],
)
def test_long_arguments_stay_json_with_their_head(text: str) -> None:
    (sent,) = repair([asks(call(arguments=text))])
    arguments = sent["tool_calls"][0]["function"]["arguments"]
    assert len(arguments) <= MAX_STRING_CHARS
    kept = json.loads(arguments)["input"]
    assert kept.startswith(text[:1000])
    assert "more characters]" in kept[-60:]
    assert errors([sent]) == []


def test_an_unpaired_result_of_full_length_is_still_not_too_long() -> None:
    (sent,) = repair([tool("z", "x" * MAX_STRING_CHARS)])
    assert len(sent["content"]) <= MAX_STRING_CHARS


def test_what_is_not_broken_stays_the_same_object() -> None:
    part, good = {"type": "text", "text": "a"}, call("b")
    came = [USER, {**asks(call(None), good), "content": [part]}, USER, tool("b"), tool(None)]
    rows = rows_of(came)
    assert [row.source for row in rows] == [0, 1, 3, 4, 2]
    assert rows[0].message is USER
    assert rows[1].message["content"] is came[1]["content"]
    assert rows[1].message["tool_calls"][1] is good
    assert rows[2].message is came[3]
    assert rows[4].message is came[2]


def test_each_repair_is_named() -> None:
    (step,) = steps_of([asks(call(arguments=3)), USER])
    repaired = REPAIRER.repair_step(step, RuleState(), None)
    assert repaired is not None
    assert [(r.code, r.place) for r in repaired.repairs] == [
        ("C5", "messages[0].tool_calls[0].function.arguments"),
        ("C1", "messages[0].tool_calls[0]"),
    ]
    assert [row.source for row in repaired.rows] == [0, None, 1]


def test_nothing_is_asked_of_the_end_or_of_marks() -> None:
    assert REPAIRER.repair_end(RuleState(), 1, [WORDS].__getitem__, OPENAI) is None
    assert REPAIRER.limit_breakpoints([(0, {**USER, "cache_control": {}})], OPENAI) is None


@given(requests("openai-chat"))
def test_whole_requests_are_not_touched(request: dict[str, Any]) -> None:
    messages = request["messages"]
    for fields in (None, request):
        assert all(a is b for a, b in zip(messages, repair(messages, fields), strict=True))


def assert_repairs(messages: list[Any], fields: Fields) -> None:
    """No error is left, nothing changes when mended again, and the input is as it was."""
    before = copy.deepcopy(messages)
    sent = repair(messages, fields)
    assert errors(sent, fields) == []
    assert repair(messages, fields) == sent
    assert all(a is b for a, b in zip(sent, repair(sent, fields), strict=True))
    assert messages == before
    if not errors(messages, fields):
        assert all(a is b for a, b in zip(messages, sent, strict=True))


@settings(max_examples=examples(200))
@given(broken("openai-chat"))
def test_damage_is_mended(request: dict[str, Any]) -> None:
    assert_repairs(request["messages"], request)


@given(arbitrary_json_messages())
def test_any_json_is_mended(messages: list[Any]) -> None:
    assert_repairs(messages, None)
    assert_repairs(messages, OPENAI)


@given(broken("openai-chat"))
def test_what_was_mended_stays_whatever_follows(request: dict[str, Any]) -> None:
    messages = request["messages"]
    whole = repair(messages, request)
    for step in steps_of(messages):
        first = repair(messages[: step.at], request)
        assert whole[: len(first)] == first


def test_ten_thousand_calls_in_one_message() -> None:
    many = 10_000
    ids = [f"c{i}" for i in range(many)]
    came = [asks(*map(call, ids)), USER, *(tool(id) for id in reversed(ids[1:]))]
    sent = repair(came)
    assert len(sent) == many + 2
    assert sent[-2:] == [stand_in("c0"), USER]
