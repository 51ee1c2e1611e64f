"""Chat messages read into rows, and changes in copies of them."""

from __future__ import annotations

import copy
import json
import logging
from typing import Any

import pytest

import respool
from respool import Policy, Tool, Tools
from respool.integrations.chat_messages import ChatRequest, read_chat
from respool.integrations.request_compactor import unread
from respool.integrations.shadow import FrameworkCompactor, RowChange, Shadow

TOOLS = Tools([Tool("read_file", kind="read", reads="path")])
EAGER = Policy(eager=True, keep_exchanges=2, reevaluate_tokens=1, tools=TOOLS)
FOLDING = EAGER.replace(budget=20_000, passes=("fold_exchanges",))


class Message:
    """An object of a client."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    def model_dump(self, *, exclude_none: bool) -> dict[str, Any]:
        return self.fields


def history(turns: int, parallel: int = 2) -> list[Any]:
    """A history as agents with LiteLLM have it: answers are objects, results are dicts."""
    messages: list[Any] = [{"role": "user", "content": "Read the files."}]
    for turn in range(turns):
        ids = [f"call_{turn}_{at}" for at in range(parallel)]
        arguments = [json.dumps({"path": f"/w/{turn % 5}_{at}.py"}) for at in range(parallel)]
        calls = [
            {"id": id, "type": "function", "function": {"name": "read_file", "arguments": text}}
            for id, text in zip(ids, arguments, strict=True)
        ]
        messages.append(Message({"role": "assistant", "content": None, "tool_calls": calls}))
        for id in ids:
            text = "\n".join(f"{id} line {at} of a file" for at in range(250))
            messages.append({"role": "tool", "tool_call_id": id, "content": text})
    return messages


@pytest.mark.parametrize("model", ["gpt-5.2", "claude-sonnet-4-5", "gemini-3-pro"])
@pytest.mark.parametrize("policy", [EAGER, FOLDING])
def test_projections_are_valid_and_leave_other_messages_the_same_objects(
    policy: Policy, model: str
) -> None:
    compactor = FrameworkCompactor(policy)
    given = history(16)
    before = copy.deepcopy([getattr(one, "fields", one) for one in given])
    found: list[Any] = []
    for turns in range(1, 17):
        chat = read_chat({"model": model, "messages": given[: 1 + 3 * turns]})
        assert chat is not None
        shadow = compactor.shadow(chat.shadow_request)
        compactor.accepted(shadow.sent)
        found = list(chat.changed(shadow))
        body = {"model": "gpt-5.2", "messages": [getattr(one, "fields", one) for one in found]}
        assert list(respool.check(body, format="openai-chat")) == []
    changed = [one for one in found if not any(one is other for other in given)]
    assert 0 < len(changed) < len(found)
    assert len(json.dumps(found, default=vars)) < 0.7 * len(json.dumps(given, default=vars))
    assert [getattr(one, "fields", one) for one in given] == before


def test_changes_in_every_place_of_a_message() -> None:
    function = {"name": "write_file", "arguments": '{"content": "x"}'}
    calls = [{"id": id, "type": "function", "function": function} for id in ("a", "b")]
    thought = {"type": "thinking", "thinking": "t", "signature": "s"}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    cached = {"type": "text", "text": "old", "cache_control": {"type": "ephemeral"}}
    messages = [
        {"role": "assistant", "tool_calls": calls, "thinking_blocks": [thought], "content": "x"},
        {"role": "tool", "tool_call_id": "b", "content": [cached, image]},
    ]
    chat = ChatRequest({"model": "claude-sonnet-4-5", "messages": messages})
    assert chat.shadow_request.rows[0].reasoning == ("s",)
    change = RowChange(
        dropped_calls=frozenset({0}), arguments={1: {"content": "y"}}, drops_reasoning=True
    )
    shadow = Shadow(chat.shadow_request, unread("test"), {0: change, 1: RowChange(text="new")})
    assert chat.changed(shadow) == [
        {
            "role": "assistant",
            "tool_calls": [{**calls[1], "function": {**function, "arguments": '{"content":"y"}'}}],
            "content": "x",
        },
        {"role": "tool", "tool_call_id": "b", "content": [{**cached, "text": "new"}, image]},
    ]


def test_requests_that_are_sent_as_they_came(caplog: pytest.LogCaptureFixture) -> None:
    messages = [{"role": "user", "content": "hi"}]
    assert read_chat({"messages": messages, "previous_response_id": "resp_1"}) is None
    assert caplog.records == []
    with caplog.at_level(logging.ERROR):
        assert read_chat({"messages": [{"role": "user", "content": object()}]}) is None
    assert "sent as it came" in caplog.text
