"""One small session in every wire format, for tables of cases that must hold in each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

FORMATS = ("anthropic", "openai-chat", "openai-responses", "gemini")
FIELD = {
    "anthropic": "messages",
    "openai-chat": "messages",
    "openai-responses": "input",
    "gemini": "contents",
}


class Exchange:
    """A call and its result, to be written in any format."""

    def __init__(
        self,
        result: str,
        *,
        tool: str = "shell",
        id: str = "call_1",
        error: bool = False,
        args: dict[str, Any] | None = None,
        image: bool = False,
    ) -> None:
        self.result, self.tool, self.id = result, tool, id
        self.error, self.args, self.image = error, args or {"command": "make"}, image


PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


def request(format: str, *steps: Sequence[Exchange] | str) -> dict[str, Any]:
    """A request whose history is these steps: words of the user, or exchanges made in parallel."""
    history: list[Any] = []
    for step in steps:
        history += _WORDS[format](step) if isinstance(step, str) else _STEP[format](step)
    return {**_HEAD[format], FIELD[format]: history}


def results(format: str, request: dict[str, Any]) -> list[str]:
    """The text of every result in a request, in order; images are left out."""
    return [text for message in request[FIELD[format]] for text in _RESULTS[format](message)]


def _anthropic_step(step: Sequence[Exchange]) -> list[Any]:
    calls = [{"type": "tool_use", "id": x.id, "name": x.tool, "input": x.args} for x in step]
    answers = [_anthropic_result(x) for x in step]
    return [{"role": "assistant", "content": calls}, {"role": "user", "content": answers}]


def _anthropic_result(x: Exchange) -> dict[str, Any]:
    content: Any = x.result
    if x.image:
        source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
        content = [{"type": "text", "text": x.result}, {"type": "image", "source": source}]
    result = {"type": "tool_result", "tool_use_id": x.id, "content": content}
    return {**result, "is_error": True} if x.error else result


def _anthropic_results(message: Any) -> list[str]:
    content = message["content"]
    blocks = content if isinstance(content, list) else []
    return [_joined(b["content"]) for b in blocks if b["type"] == "tool_result"]


def _joined(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(item["text"] for item in content if "text" in item)


def _chat_step(step: Sequence[Exchange]) -> list[Any]:
    functions = [{"name": x.tool, "arguments": json.dumps(x.args)} for x in step]
    calls = [
        {"id": x.id, "type": "function", "function": function}
        for x, function in zip(step, functions, strict=True)
    ]
    answers = [{"role": "tool", "tool_call_id": x.id, "content": x.result} for x in step]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *answers]


def _responses_step(step: Sequence[Exchange]) -> list[Any]:
    calls = [
        {"type": "function_call", "call_id": x.id, "name": x.tool, "arguments": json.dumps(x.args)}
        for x in step
    ]
    answers = [_responses_result(x) for x in step]
    return [*calls, *answers]


def _responses_result(x: Exchange) -> dict[str, Any]:
    output: Any = x.result
    if x.image:
        url = f"data:image/png;base64,{PIXEL}"
        image = {"type": "input_image", "image_url": url, "detail": "auto"}
        output = [{"type": "input_text", "text": x.result}, image]
    return {"type": "function_call_output", "call_id": x.id, "output": output}


def _gemini_step(step: Sequence[Exchange]) -> list[Any]:
    calls = [{"functionCall": {"id": x.id, "name": x.tool, "args": x.args}} for x in step]
    answers = [_gemini_result(x) for x in step]
    return [{"role": "model", "parts": calls}, {"role": "user", "parts": answers}]


def _gemini_result(x: Exchange) -> dict[str, Any]:
    response = {"error": x.result} if x.error else {"output": x.result}
    answer: dict[str, Any] = {"id": x.id, "name": x.tool, "response": response}
    if x.image:
        answer["parts"] = [{"inlineData": {"mimeType": "image/png", "data": PIXEL}}]
    return {"functionResponse": answer}


def _gemini_results(message: Any) -> list[str]:
    found = [p["functionResponse"]["response"] for p in message["parts"] if "functionResponse" in p]
    return [next(iter(response.values())) for response in found]


_STEP = {
    "anthropic": _anthropic_step,
    "openai-chat": _chat_step,
    "openai-responses": _responses_step,
    "gemini": _gemini_step,
}
_WORDS: dict[str, Any] = {
    "anthropic": lambda text: [{"role": "user", "content": text}],
    "openai-chat": lambda text: [{"role": "user", "content": text}],
    "openai-responses": lambda text: [{"role": "user", "content": text}],
    "gemini": lambda text: [{"role": "user", "parts": [{"text": text}]}],
}
_RESULTS: dict[str, Any] = {
    "anthropic": _anthropic_results,
    "openai-chat": lambda m: [m["content"]] if m["role"] == "tool" else [],
    "openai-responses": lambda m: [_joined(m["output"])] if "output" in m else [],
    "gemini": _gemini_results,
}
_HEAD: dict[str, dict[str, Any]] = {
    "anthropic": {
        "model": "claude-opus-4-5",
        "max_tokens": 100,
        "tools": [{"name": "shell", "input_schema": {"type": "object"}}],
    },
    "openai-chat": {
        "model": "gpt-4.1",
        "tools": [{"type": "function", "function": {"name": "shell", "parameters": {}}}],
    },
    "openai-responses": {
        "model": "gpt-5.1",
        "tools": [{"type": "function", "name": "shell", "parameters": {}, "strict": False}],
    },
    "gemini": {"tools": [{"functionDeclarations": [{"name": "shell"}]}]},
}
