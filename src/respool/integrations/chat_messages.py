"""Messages of Chat Completions, as LiteLLM takes them for every provider, and changes in copies."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from .shadow import Call, Role, Row, RowChange, Shadow, ShadowRequest

_ROLES: Final[Mapping[str, Role]] = {
    "assistant": "assistant",
    "developer": "system",
    "system": "system",
    "tool": "tool",
}
_SERVER_HISTORY: Final = ("previous_response_id", "conversation")
_REASONING_FIELDS: Final = ("thinking_blocks", "reasoning_items")  # LiteLLM's own
_REASONING_BLOCKS: Final = ("thinking", "redacted_thinking")
_KEYS: Final = ("signature", "data", "encrypted_content", "id")
_log = logging.getLogger(__name__)


def plain(value: Any) -> Any:
    """Dicts, lists and strings for the objects of LiteLLM and of the OpenAI client."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_dump))


def _dump(value: Any) -> Any:
    if not hasattr(value, "model_dump"):
        raise TypeError(f"{type(value).__name__} is no part of a request")
    return value.model_dump(exclude_none=True)


def read_chat(arguments: Mapping[str, Any]) -> ChatRequest | None:
    """The arguments of a chat completion; None: they are sent as they came."""
    if any(arguments.get(key) for key in _SERVER_HISTORY):
        return None
    try:
        return ChatRequest(arguments)
    except Exception:  # noqa: BLE001 - law 9: a fault of respool fails no request
        _log.exception("A request could not be read; it is sent as it came")
        return None


class ChatRequest:
    """Messages that are dicts, or objects with `model_dump`, read into rows."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._messages: Sequence[Any] = arguments.get("messages") or ()
        self._plain: list[dict[str, Any]] = plain(self._messages)
        tools = plain(arguments.get("tools") or [])
        limit = arguments.get("max_completion_tokens") or arguments.get("max_tokens")
        self.shadow_request = ShadowRequest(
            rows=[_row(message) for message in self._plain],
            model=str(arguments.get("model") or ""),
            tools=[tool["function"] for tool in tools if "function" in tool],
            max_tokens=limit if isinstance(limit, int) else 0,
        )

    def changed(self, shadow: Shadow) -> Sequence[Any]:
        """The messages with the changes in copies; without changes the same list."""
        if not shadow.changes:
            return self._messages
        kept: list[Any] = []
        for at, (message, copy) in enumerate(zip(self._messages, self._plain, strict=True)):
            change = shadow.changes.get(at)
            if change is None:
                kept.append(message)
            elif not change.empties(shadow.request.rows[at]):
                is_answer = copy["role"] == "assistant"
                kept.append(_answer(copy, change) if is_answer else _result(copy, change))
        return kept


def _row(message: Mapping[str, Any]) -> Row:
    role: Role = _ROLES.get(message["role"], "user")
    text = "\n".join(block["text"] for block in _blocks(message) if block.get("type") == "text")
    if role == "tool":
        return Row(role=role, text=text, call_id=message.get("tool_call_id") or "")
    if role != "assistant":
        return Row(role=role, text=text)
    calls = tuple(
        Call(call.get("id") or "", call["function"]["name"], call["function"]["arguments"] or "")
        for call in _calls(message)
    )
    return Row(role=role, text=text, calls=calls, reasoning=tuple(_reasoning(message)))


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content: Any = message.get("content") or []
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [call for call in message.get("tool_calls") or () if "function" in call]


def _reasoning(message: Mapping[str, Any]) -> Iterator[str]:
    """Reasoning beside calls; the signature of a call of Gemini is part of the call."""
    found = [block for name in _REASONING_FIELDS for block in message.get(name) or ()]
    found += [block for block in _blocks(message) if block.get("type") in _REASONING_BLOCKS]
    for block in found:
        yield next((str(block[key]) for key in _KEYS if block.get(key)), "unsigned")


def _result(message: Mapping[str, Any], change: RowChange) -> dict[str, Any]:
    """A result with its new text; media and cache breakpoints stay."""
    if not isinstance(message.get("content"), list):
        return {**message, "content": change.text}
    blocks = _blocks(message)
    texts = [block for block in blocks if block.get("type") == "text"]
    last = {"type": "text"} | (texts[-1] if texts else {})
    media = [block for block in blocks if block.get("type") != "text"]
    return {**message, "content": [{**last, "text": change.text}, *media]}


def _answer(message: Mapping[str, Any], change: RowChange) -> dict[str, Any]:
    """An answer without its dropped calls and reasoning."""
    made = dict(message)
    numbers = {id(call): number for number, call in enumerate(_calls(message))}
    calls: list[dict[str, Any]] = []
    for call in made.pop("tool_calls", None) or ():
        number = numbers.get(id(call), -1)
        if number in change.arguments:
            text = msgspec.json.encode(change.arguments[number]).decode()
            calls.append({**call, "function": {**call["function"], "arguments": text}})
        elif number not in change.dropped_calls:
            calls.append(call)
    if calls:
        made["tool_calls"] = calls
    if change.drops_reasoning:
        for name in (*_REASONING_FIELDS, "reasoning_content"):
            made.pop(name, None)
        if isinstance(made.get("content"), list):
            kept = [one for one in _blocks(made) if one.get("type") not in _REASONING_BLOCKS]
            made["content"] = kept or None
    return made


__all__ = ["ChatRequest", "plain", "read_chat"]
