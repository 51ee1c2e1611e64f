"""Validation of Chat Completions requests by the types of the `openai` SDK.

Judged: the whole body (`CompletionCreateParams`), every message, content part and tool call. Not
judged, because the types do not know it: pairing and order. Parts of a kind named `future_…` are
skipped. The types are OpenAI's, so what compatible servers add is taken off first: see `ADDED`.
"""

from __future__ import annotations

from typing import Any, cast

from openai.types.chat import ChatCompletionMessageParam
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)

from tests.judges.future import without_future
from tests.judges.strict_types import Judgement

# Sent by real clients, unknown to OpenAI's types: reasoning that DeepSeek and its likes want back,
# and the tool's name beside its id.
ADDED = {"assistant": ("reasoning_content", "reasoning"), "tool": ("name",)}

_MESSAGES = Judgement(list[ChatCompletionMessageParam])
_ONCE = Judgement(CompletionCreateParamsNonStreaming)
_STREAMED = Judgement(CompletionCreateParamsStreaming)


def judge(request: dict[str, Any]) -> list[str]:
    """Complaints of the SDK's types about a request."""
    judgement = _STREAMED if request.get("stream") is True else _ONCE
    body = without_future(request)
    if isinstance(body.get("messages"), list):
        body["messages"] = [_as_openai_has_it(message) for message in body["messages"]]
    return judgement.of(body, "request")


def judge_history(history: list[Any]) -> list[str]:
    """Complaints about a bare list of messages."""
    return _MESSAGES.of(
        [_as_openai_has_it(message) for message in without_future(history)], "messages"
    )


def _as_openai_has_it(message: Any) -> Any:
    """The message without what only compatible servers know, where that is a string."""
    if not isinstance(message, dict):
        return message
    known = cast(dict[str, Any], message)
    added = ADDED.get(str(known.get("role")), ())
    return {
        key: item for key, item in known.items() if key not in added or not isinstance(item, str)
    }
