"""Repair puts right what is there, and keeps an original of what it leaves out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import respool
from respool import Memo, Policy
from respool.providers.base import NO_RESULT_TEXT
from respool.providers.registry import PROVIDERS
from tests.fuzz import vanished
from tests.strategies import FORMATS, HISTORY, broken

IDLE = Policy(passes=())
MODELS = {
    "anthropic": "claude-opus-4-5",
    "openai-chat": "gpt-5",
    "openai-responses": "gpt-5",
    "gemini": "gemini-2.5-pro",
}
FUNCTION = {"name": "n", "arguments": '{"a": 1}'}
CALL = {"type": "function_call", "call_id": "c1", "name": "n", "arguments": "{}"}
USE = {"type": "tool_use", "id": "c1", "name": "n", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "the words"}
GO = {"role": "user", "content": "go"}


def request(format: str, history: list[Any], **more: Any) -> Any:
    return {"model": MODELS[format], HISTORY[format]: history, **more}


def compact(format: str, history: list[Any], **more: Any) -> Any:
    return respool.compact(request(format, history, **more), format=format, policy=IDLE, memo=None)


def chat(*calls: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


# A call and its result, one of them without what names its kind.
UNNAMED: dict[str, tuple[str, list[Any]]] = {
    "an output without type": (
        "openai-responses",
        [CALL, {"call_id": "c1", "output": "the words"}],
    ),
    "an output with a role": (
        "openai-responses",
        [CALL, {"role": "tool", "call_id": "c1", "output": "the words"}],
    ),
    "a call without type": (
        "openai-responses",
        [
            {"call_id": "c1", "name": "n", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "the words"},
        ],
    ),
    "a custom call and its output without type": (
        "openai-responses",
        [
            {"call_id": "c1", "name": "n", "input": "free"},
            {"call_id": "c1", "output": "the words"},
        ],
    ),
    "a message without type": (
        "openai-responses",
        [{"role": "assistant", "content": "the words"}, GO],
    ),
    "calls without role": (
        "openai-chat",
        [
            {"tool_calls": [{"id": "c1", "type": "function", "function": FUNCTION}]},
            {"role": "tool", "tool_call_id": "c1", "content": "the words"},
        ],
    ),
    "a result without role": (
        "openai-chat",
        [
            chat({"id": "c1", "type": "function", "function": FUNCTION}),
            {"tool_call_id": "c1", "content": "the words"},
        ],
    ),
    "a call without body": (
        "openai-chat",
        [
            chat({"id": "c1", **FUNCTION}),
            {"role": "tool", "tool_call_id": "c1", "content": "the words"},
        ],
    ),
    "a result block without type": (
        "anthropic",
        [
            {"role": "assistant", "content": [USE]},
            {"role": "user", "content": [{"tool_use_id": "c1", "content": "the words"}]},
        ],
    ),
    "a call block without type": (
        "anthropic",
        [
            {"role": "assistant", "content": [{"id": "c1", "name": "n", "input": {}}]},
            {"role": "user", "content": [RESULT]},
        ],
    ),
    "a call in a message without role": (
        "anthropic",
        [{"content": [USE]}, {"role": "user", "content": [RESULT]}],
    ),
}


@pytest.mark.parametrize(("format", "history"), UNNAMED.values(), ids=UNNAMED)
def test_the_fields_tell_what_it_is(format: str, history: list[Any]) -> None:
    tools = [{"name": "n", "input_schema": {}}] if format == "anthropic" else None
    out = compact(format, [GO, *history], **({"tools": tools} if tools else {}))
    sent = json.dumps(out.request)
    assert len(out.request[HISTORY[format]]) == len(history) + 1
    assert "the words" in sent
    assert NO_RESULT_TEXT not in sent
    assert "answers no call" not in sent
    assert [p for p in respool.check(out.request, format=format) if p.severity == "error"] == []
    assert dict(out.originals) == {}


def test_a_type_of_any_kind_is_read() -> None:
    item = {"type": {"a": 1}, "name": "n", "arguments": "{}"}
    out = compact("openai-responses", [GO, item, GO])
    assert out.request["input"][1]["type"] == "function_call"


def gemini(*parts: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


# Histories of which a provider accepts only a part; each says "gone words" there.
LEFT_OUT: dict[str, tuple[str, list[Any]]] = {
    "a second output": (
        "openai-responses",
        [
            GO,
            CALL,
            {"type": "function_call_output", "call_id": "c1", "output": "the words"},
            {"type": "function_call_output", "call_id": "c1", "output": "gone words"},
        ],
    ),
    "reasoning that nothing follows": (
        "openai-responses",
        [
            GO,
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "gone words"}],
            },
            GO,
        ],
    ),
    "an output that is no screenshot": (
        "openai-responses",
        [
            GO,
            {"type": "computer_call", "id": "cu_1", "call_id": "c1", "action": {"type": "wait"}},
            {"type": "computer_call_output", "call_id": "c1", "output": "gone words"},
        ],
    ),
    "calls of a user": (
        "openai-chat",
        [
            {
                **GO,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "gone words"}}
                ],
            }
        ],
    ),
    "a call that is text": ("openai-chat", [GO, chat("gone words"), GO]),
    "a second result": (
        "anthropic",
        [
            GO,
            {"role": "assistant", "content": [USE]},
            {"role": "user", "content": [RESULT, {**RESULT, "content": "gone words"}]},
        ],
    ),
    "a block of an unknown type in a result without call": (
        "anthropic",
        [
            GO,
            {
                "role": "user",
                "content": [{**RESULT, "content": [{"type": "t", "s": "gone words"}]}],
            },
        ],
    ),
    "thinking of the user": (
        "anthropic",
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "go"},
                    {"type": "thinking", "thinking": "gone words", "signature": "s"},
                ],
            }
        ],
    ),
    "a second response": (
        "gemini",
        [
            gemini({"text": "go"}),
            gemini({"functionCall": {"id": "c1", "name": "n", "args": {}}}, role="model"),
            gemini(
                {
                    "functionResponse": {
                        "id": "c1",
                        "name": "n",
                        "response": {"output": "the words"},
                    }
                },
                {
                    "functionResponse": {
                        "id": "c1",
                        "name": "n",
                        "response": {"output": "gone words"},
                    }
                },
            ),
        ],
    ),
}


@pytest.mark.parametrize(("format", "history"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_what_is_left_out_is_an_original_that_the_report_names(
    format: str, history: list[Any]
) -> None:
    out = compact(format, history)
    assert "gone words" not in json.dumps(out.request[HISTORY[format]])
    named = [ref for repair in out.report.repairs for ref in repair.originals]
    assert any("gone words" in respool.expand(ref, out) for ref in named)
    assert all(ref in out.report.to_text() for ref in named)


@pytest.mark.parametrize(
    "said",
    [
        {"summary": [], "content": "gone words"},
        {"summary": ["gone words"]},
        {"summary": [{"type": "summary_text", "text": ["gone words"]}]},
    ],
)
def test_reasoning_of_a_wrong_shape_is_read(said: dict[str, Any]) -> None:
    item = {"type": "reasoning", "id": "rs_1", **said}
    (part,) = PROVIDERS["openai-responses"].codec.decode(0, item)
    assert part.kind == "reasoning"
    assert "gone words" in part.text


def test_thinking_that_the_end_may_not_have_is_an_original() -> None:
    said = {"type": "thinking", "thinking": "gone words", "signature": "s"}
    last = {"role": "assistant", "content": [said, {"type": "text", "text": "so far"}]}
    out = compact("anthropic", [GO, last], max_tokens=9, thinking={"type": "disabled"})
    assert "gone words" not in json.dumps(out.request)
    named = [ref for repair in out.report.repairs for ref in repair.originals]
    assert [json.loads(respool.expand(ref, out)) for ref in named] == [last]


def test_a_cache_breakpoint_changes_no_original() -> None:
    """Nor does another spelling of plain text: the message is the same."""
    _, history = LEFT_OUT["a second result"]
    with_breakpoint = json.loads(json.dumps(history))
    with_breakpoint[2]["content"][1]["cache_control"] = {"type": "ephemeral"}
    memo, format = Memo(), "anthropic"
    outs = [
        respool.compact(request(format, one), policy=IDLE, memo=memo)
        for one in (history, with_breakpoint)
    ]
    cold = compact(format, with_breakpoint)
    assert dict(outs[0].originals) == dict(outs[1].originals) == dict(cold.originals)
    assert outs[1].report.repairs[0].originals == cold.report.repairs[0].originals != ()


def test_two_calls_of_one_id_keep_their_responses_when_repaired_again() -> None:
    calls = [{"functionCall": {"id": "c1", "name": name, "args": {}}} for name in ("Edit", "Bash")]
    said = {"response": {"output": "the words"}}
    answers = [
        {"functionResponse": {"id": "c3", "name": "Bash", **said}},
        {"functionResponse": {"id": "c1", "name": "Edit", **said}},
    ]
    history = [gemini({"text": "go"}), gemini(*calls, role="model"), gemini(*answers)]
    out = compact("gemini", history)
    assert [p for p in respool.check(out.request, format="gemini") if p.severity == "error"] == []
    assert compact("gemini", out.request["contents"]).report.repairs == ()


@pytest.mark.parametrize("format", FORMATS)
def test_no_word_of_a_broken_history_vanishes(format: str) -> None:
    @settings(
        max_examples=60,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(broken(format))
    def run(damaged: Any) -> None:
        out = respool.compact(damaged, policy=IDLE, memo=None)
        if not out.report.untouched:
            assert vanished(damaged, out, HISTORY[format]) == set()

    run()
