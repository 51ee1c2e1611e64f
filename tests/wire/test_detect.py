"""Format detection, and requests that are passed through."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given

from respool.errors import PassedThrough, RespoolError, UnknownFormat, UnreadableRequest
from respool.wire.base import FORMATS
from respool.wire.body import read_body
from respool.wire.detect import detect_format
from tests.strategies import HISTORY, arbitrary_json_messages, requests

HI = {"role": "user", "content": "hi"}


def detected(request: Any, named: str | None = None) -> str:
    return detect_format(read_body(request), named)


def asked(*blocks: Any, role: str = "user") -> list[Any]:
    return [HI, {"role": role, "content": list(blocks)}]


LISTS: list[tuple[str, list[Any]]] = [
    ("anthropic", asked({"type": "tool_use", "id": "a"}, role="assistant")),
    ("anthropic", asked({"type": "tool_result", "tool_use_id": "a"})),
    ("anthropic", asked({"type": "thinking", "thinking": ""}, role="assistant")),
    ("anthropic", asked({"type": "redacted_thinking"}, role="assistant")),
    ("anthropic", asked({"type": "text", "text": "x"}, {"type": "image", "source": {}})),
    ("anthropic", asked({"type": "server_tool_use"}, role="assistant")),
    ("anthropic", asked({"type": "compaction"}, role="assistant")),
    ("openai-chat", asked({"type": "image_url"})),
    ("openai-chat", [HI, {"role": "tool", "tool_call_id": "a", "content": "x"}]),
    ("openai-chat", [{"role": "developer", "content": "x"}]),
    ("openai-chat", [HI, {"role": "assistant", "content": None, "tool_calls": []}]),
    ("openai-responses", [{"type": "function_call", "call_id": "a"}]),
    ("openai-responses", [{"type": "reasoning", "summary": []}]),
    ("openai-responses", asked({"type": "input_text", "text": "x"})),
    ("openai-responses", [{"type": "message", **HI}, {"type": "web_search_call"}]),
    ("gemini", [{"role": "user", "parts": [{"text": "x"}]}]),
    ("gemini", [{"parts": []}]),
]
BESIDE: list[tuple[str, dict[str, Any]]] = [
    ("anthropic", {"tools": [{"name": "a", "input_schema": {}}]}),
    ("openai-chat", {"tools": [{"type": "function", "function": {}}]}),
    ("openai-chat", {"tools": [{"type": "custom", "custom": {}}]}),
    ("anthropic", {"system": "x"}),
    ("openai-chat", {"reasoning_effort": "low"}),
    ("openai-chat", {"stream_options": {}}),
]


@pytest.mark.parametrize(("format", "messages"), LISTS)
def test_a_list_is_told_by_its_messages(format: str, messages: list[Any]) -> None:
    assert detected(messages) == format
    assert detected(json.dumps(messages)) == format
    assert detected(json.dumps(messages).encode()) == format


@pytest.mark.parametrize(("format", "fields"), BESIDE)
def test_a_request_is_told_by_its_fields(format: str, fields: dict[str, Any]) -> None:
    assert detected({**fields, "messages": [HI]}) == format
    assert detected(json.dumps({"messages": [HI], **fields}).encode()) == format


@pytest.mark.parametrize(
    ("field", "format"), [("input", "openai-responses"), ("contents", "gemini")]
)
def test_a_request_is_told_by_its_history(field: str, format: str) -> None:
    assert detected({field: []}) == format


@pytest.mark.parametrize("format", FORMATS)
def test_whole_requests_of_every_format(format: str) -> None:
    @given(requests(format))
    def told(request: dict[str, Any]) -> None:
        if not isinstance(request[HISTORY[format]], list):
            return
        for form in (request, json.dumps(request)):
            try:
                assert detected(form) == format
            except PassedThrough:  # a conversation without tools can look the same in two formats
                assert "tool" not in json.dumps(request)

    told()


def test_what_is_named_is_taken() -> None:
    assert detected([HI], "anthropic") == "anthropic"
    assert detected({"messages": [HI]}, "openai-chat") == "openai-chat"


def test_a_wrong_name_is_told() -> None:
    with pytest.raises(UnknownFormat, match="anthropic, openai-chat"):
        detected([HI], "bedrock")
    with pytest.raises(UnreadableRequest, match="'contents'"):
        detected({"messages": [HI]}, "gemini")


PASSED: list[tuple[str, Any]] = [
    ("cannot be detected", [HI]),
    ("cannot be detected", {"messages": [HI], "temperature": 1}),
    ("cannot be detected", []),
    ("Converse", {"messages": [HI], "inferenceConfig": {}}),
    ("Converse", {"messages": [HI], "toolConfig": {"tools": []}}),
    ("Converse", [{"role": "assistant", "content": [{"toolUse": {"toolUseId": "a"}}]}]),
    ("Converse", [{"role": "user", "content": [{"text": "x"}, {"toolResult": {}}]}]),
    ("Azure", {"messages": [HI], "data_sources": []}),
    ("previous_response_id", {"input": [HI], "previous_response_id": "resp_1"}),
    ("conversation", {"input": [HI], "conversation": {"id": "conv_1"}}),
    ("cachedContent", {"contents": [{"parts": []}], "cachedContent": "cachedContents/1"}),
    ("thread", {"messages": [HI], "system": "x", "thread": {"type": "continue"}}),
]


@pytest.mark.parametrize(("why", "request_"), PASSED)
def test_what_is_not_ours_is_passed_through(why: str, request_: Any) -> None:
    for form in (request_, json.dumps(request_).encode()):
        with pytest.raises(PassedThrough, match=why):
            detected(form)


@pytest.mark.parametrize("version", ["bedrock-2023-05-31", "vertex-2023-10-16"])
def test_a_body_of_bedrock_or_vertex_is_anthropics(version: str) -> None:
    for first in (HI, {"role": "system", "content": "x"}):
        assert detected({"anthropic_version": version, "messages": [first]}) == "anthropic"


def test_history_that_is_not_held_is_read() -> None:
    held = {"previous_response_id": None, "conversation": None}
    assert detected({"input": [HI], **held}) == "openai-responses"
    assert detected({"messages": [HI], "system": "x", "thread": {"type": "new"}}) == "anthropic"


def test_tool_calls_late_in_a_long_history_are_found() -> None:
    messages = [HI] * 1_000 + asked({"type": "tool_result", "tool_use_id": "a"})
    assert detected(messages) == "anthropic"


@given(arbitrary_json_messages())
def test_nothing_but_our_own_errors(messages: list[Any]) -> None:
    for request in (messages, {"messages": messages, "tools": messages, "model": messages}):
        with suppress(RespoolError):
            assert detected(request) in FORMATS


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "claude-opus-5-5"},
        {"model": "gpt-5.6"},
        {"thinking": {"type": "enabled"}},
        {"top_k": 3},
    ],
)
def test_what_any_gateway_may_send_tells_nothing(fields: dict[str, Any]) -> None:
    plain = [{"role": "user", "content": "u"}]
    with pytest.raises(PassedThrough, match="cannot be detected"):
        detected({**fields, "messages": plain})
    system = [{"role": "system", "content": "s"}, *plain]
    assert detected({**fields, "messages": system}) == "openai-chat"


def test_a_converse_history_without_tools_is_passed_through() -> None:
    history = [{"role": "user", "content": [{"text": "hi"}]}]
    with pytest.raises(PassedThrough, match="Converse"):
        detected({"system": [{"text": "s"}], "messages": history})
