"""Validation of the structure of Chat Completions requests by `mistral-common`'s request validator.

Checked, unlike by the SDK types: that every call is answered exactly once, by id,
before the next assistant message; that nothing stands between calls and results; which role may
follow which; that the history ends on a user or a tool message; tool names.

It is Mistral's rule book and not OpenAI's, so a request is brought into Mistral's world first:
`developer` becomes `system`; a custom call becomes a function call; parts other than text and
pictures become text; a system message behind results, which OpenAI takes and Mistral does not, is
left out unless a result follows it; the last message, if it is a system message, too. Model and
sampling settings are not passed on.

Not for: requests in other formats; histories that end on pending calls (an error here, and none
for respool); bodies whose messages are not objects (those are reported as they are).
"""

from __future__ import annotations

import json
from typing import Any, cast

from mistral_common.exceptions import MistralCommonException
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.protocol.instruct.validator import ValidationMode, get_validator
from mistral_common.tokens.tokenizers.base import TokenizerVersion

from tests.judges.future import without_future

Message = dict[str, Any]

_VALIDATOR = get_validator(TokenizerVersion.v13, ValidationMode.serving)


def judge(request: dict[str, Any]) -> list[str]:
    """The first complaint of Mistral's validator about a request."""
    return judge_history(request["messages"], request.get("tools"))


def judge_history(history: list[Any], tools: list[Any] | None = None) -> list[str]:
    """Complaints about a bare list of messages."""
    if not all(isinstance(message, dict) for message in history):
        return ["messages: not all of them are objects"]
    try:
        messages = [_as_mistral_has_it(message) for message in without_future(history)]
        functions = [tool for tool in tools or [] if tool.get("type") == "function"]
        read = ChatCompletionRequest.from_openai(
            cast(Any, _without_late_system(messages)), functions or None, model="judge"
        )
        _VALIDATOR.validate_request(read)
    except (MistralCommonException, ValueError, KeyError, TypeError, AttributeError) as error:
        return [f"messages: {type(error).__name__}: {error}"]
    return []


def _as_mistral_has_it(message: Message) -> Message:
    told = dict(message)
    if told.get("role") == "developer":
        told["role"] = "system"
    if isinstance(told.get("content"), list):
        told["content"] = [_part(part) for part in told["content"]]
    if isinstance(told.get("tool_calls"), list):
        told["tool_calls"] = [_call(call) for call in told["tool_calls"]]
    return told


def _part(part: Any) -> Any:
    if isinstance(part, dict) and part.get("type") == "text":
        return {"type": "text", "text": part.get("text")}  # Mistral has no cache breakpoints
    if isinstance(part, dict) and part.get("type") in ("file", "refusal"):
        return {"type": "text", "text": json.dumps(part)}
    return part


def _call(call: Any) -> Any:
    if not isinstance(call, dict) or call.get("type") != "custom":
        return call
    name, input = call["custom"]["name"], call["custom"]["input"]
    function = {"name": name, "arguments": json.dumps({"input": input})}
    return {"id": call.get("id"), "type": "function", "function": function}


def _without_late_system(messages: list[Message]) -> list[Message]:
    """Remove system messages after results, unless they separate results from their calls."""
    kept: list[Message] = []
    for at, message in enumerate(messages):
        following = messages[at + 1].get("role") if at + 1 < len(messages) else None
        late = bool(kept) and kept[-1].get("role") == "tool" and following != "tool"
        if message.get("role") != "system" or not (late or (kept and following is None)):
            kept.append(message)
    return kept
