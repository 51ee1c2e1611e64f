"""Validation of Responses requests by the types of the `openai` SDK.

Judged: the whole body (`ResponseCreateParams`), every item and what is inside it. Not judged,
because the types do not know it: pairing, order, what reasoning belongs to. Items and parts of a
kind named `future_…` are skipped. Some keys that the types call required are left out by Codex and
others, and the API takes it: they are put in before judging, see `LEFT_OUT`. Codex also sends two
things that the types do not have; they are taken off, see `_is_added`.
"""

from __future__ import annotations

from typing import Any, cast

from openai.types.responses import ResponseInputItemParam
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)

from tests.judges.future import without_future
from tests.judges.strict_types import Judgement

# With `store: false` clients send items back without their ids.
LEFT_OUT: dict[str, dict[str, Any]] = {
    "reasoning": {"id": "rs_0"},
    "local_shell_call": {"id": "lsh_0"},
    "web_search_call": {"id": "ws_0"},
    "output_text": {"annotations": []},
    "input_image": {"detail": "auto"},
}
_SAID = {"id": "msg_0", "status": "completed"}  # the model's message, cut down to what it says

_ITEMS = Judgement(list[ResponseInputItemParam])
_ONCE = Judgement(ResponseCreateParamsNonStreaming)
_STREAMED = Judgement(ResponseCreateParamsStreaming)


def judge(request: dict[str, Any]) -> list[str]:
    """Complaints of the SDK's types about a request."""
    judgement = _STREAMED if request.get("stream") is True else _ONCE
    body = without_future(request)
    if isinstance(body.get("input"), list):
        body["input"] = _completed(body["input"])
    return judgement.of(body, "request")


def judge_history(history: list[Any]) -> list[str]:
    """Complaints about a bare list of items."""
    return _ITEMS.of(_completed(without_future(history)), "input")


def _completed(value: Any) -> Any:
    """The items with the keys that clients leave out."""
    if isinstance(value, list):
        return [_completed(item) for item in cast(list[Any], value)]
    if not isinstance(value, dict):
        return value
    item = {
        key: _completed(inner) if key in ("content", "output") else inner
        for key, inner in cast(dict[str, Any], value).items()
        if not _is_added(str(value.get("type")), key, inner)
    }
    if (
        item.get("role") == "assistant"
        and item.get("type") == "message"
        and isinstance(item.get("content"), list)
    ):
        return {**_SAID, **item}
    return {**LEFT_OUT.get(str(item.get("type")), {}), **item}


def _is_added(kind: str, key: str, inner: Any) -> bool:
    """A custom call's status, and null as reasoning's content: recorded by Codex."""
    if kind == "custom_tool_call" and key == "status":
        return inner in ("in_progress", "completed", "incomplete")
    return kind == "reasoning" and key == "content" and inner is None
