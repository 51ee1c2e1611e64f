"""Long sessions of any length, for laws and benchmarks that speak of time."""

from __future__ import annotations

import json
import random
from typing import Any

WORDS = [
    "parser",
    "index",
    "value",
    "return",
    "file",
    "path",
    "config",
    "test",
    "module",
    "thread",
    "lock",
    "build",
    "cache",
    "token",
    "request",
    "message",
    "result",
    "handler",
    "buffer",
    "socket",
    "schema",
    "branch",
    "commit",
    "merge",
    "layout",
]


def prose(source: random.Random, characters: int) -> str:
    """Lines as tools print them: a third each of words, code, and log lines with paths."""
    lines: list[str] = []
    length = 0
    while length < characters:
        line = source.choice((_words, _code, _log))(source)
        lines.append(line)
        length += len(line) + 1
    return "\n".join(lines)[:characters]


def _words(source: random.Random) -> str:
    return f"{' '.join(source.choices(WORDS, k=9))} {source.randint(0, 99999)}"


def _code(source: random.Random) -> str:
    a, b, c, d = source.choices(WORDS, k=4)
    return (
        f"\tif err := {a}.{b.title()}(ctx, {c}Id[{source.randint(0, 99)}]); err != nil {{ {d}() }}"
    )


def _log(source: random.Random) -> str:
    a, b = source.choices(WORDS, k=2)
    where = f"src/{a}/{b}_{source.randint(0, 99)}.go:{source.randint(1, 900)}"
    return f"{where}: 0x{source.getrandbits(40):010x} {a}={b}"


def _command(source: random.Random) -> str:
    """A shell command as agents run them."""
    a, b, number = *source.choices(WORDS, k=2), source.randint(1, 900)
    return source.choice(
        (
            f"cd src/{a} && rg -n '{b}_{number}' --glob '*.go' . | head -{number}",
            f"sed -n '{number},{number + 80}p' src/{a}/{b}_{number}.go",
            f"go test ./src/{a}/... -run Test{b.title()}{number} -count=1 2>&1 | tail -40",
        )
    )


def long_session(
    format: str, exchanges: int, result: int = 300, seed: int = 1, model: str | None = None
) -> dict[str, Any]:
    """A request with so many exchanges, each result of about so many characters."""
    source = random.Random(seed)
    messages = _OPEN[format]("Please find out why the build fails, and mend it.")
    for number in range(exchanges):
        messages += exchange(format, number, source, result)
    return {**_HEAD[format], **({"model": model} if model else {}), _FIELD[format]: messages}


def exchange(format: str, number: int, source: random.Random, result: int) -> list[Any]:
    """A call and its result of about so many characters, in the messages of this format."""
    text, command = prose(source, 60), _command(source)
    return _EXCHANGE[format](number, text, command, prose(source, result))


def broken_session(format: str, exchanges: int) -> dict[str, Any]:
    """The same with the result of every exchange lost, and a word of the user's in its place."""
    whole = long_session(format, exchanges)
    said = _OPEN[format]("Go on.")[0]
    history = [said if _is_answer(message) else message for message in whole[_FIELD[format]]]
    return {**whole, _FIELD[format]: history}


def _is_answer(message: dict[str, Any]) -> bool:
    text = json.dumps(message)
    return any(word in text for word in ('"tool_result"', '"tool"', '_output"', "functionResponse"))


def _anthropic(number: int, text: str, command: str, result: str) -> list[Any]:
    id = f"toolu_{number}"
    call = {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": command}}
    answer = {"type": "tool_result", "tool_use_id": id, "content": result}
    return [
        {"role": "assistant", "content": [{"type": "text", "text": text}, call]},
        {"role": "user", "content": [answer]},
    ]


def _chat(number: int, text: str, command: str, result: str) -> list[Any]:
    id = f"call_{number}"
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    call = {"id": id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": text, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": id, "content": result},
    ]


def _responses(number: int, text: str, command: str, result: str) -> list[Any]:
    id = f"call_{number}"
    arguments = json.dumps({"command": command})
    said = [{"type": "output_text", "text": text, "annotations": []}]
    return [
        {"type": "message", "role": "assistant", "content": said},
        {"type": "function_call", "call_id": id, "name": "shell", "arguments": arguments},
        {"type": "function_call_output", "call_id": id, "output": result},
    ]


def _gemini(number: int, text: str, command: str, result: str) -> list[Any]:
    call = {"functionCall": {"name": "shell", "args": {"command": command}}}
    answer = {"functionResponse": {"name": "shell", "response": {"output": result}}}
    return [
        {"role": "model", "parts": [{"text": text}, call]},
        {"role": "user", "parts": [answer]},
    ]


_EXCHANGE = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
}
_OPEN: dict[str, Any] = {
    "anthropic": lambda text: [{"role": "user", "content": text}],
    "openai-chat": lambda text: [{"role": "user", "content": text}],
    "openai-responses": lambda text: [{"type": "message", "role": "user", "content": text}],
    "gemini": lambda text: [{"role": "user", "parts": [{"text": text}]}],
}
_FIELD = {
    "anthropic": "messages",
    "openai-chat": "messages",
    "openai-responses": "input",
    "gemini": "contents",
}
_HEAD: dict[str, dict[str, Any]] = {
    "anthropic": {
        "model": "claude-sonnet-4-5",
        "max_tokens": 1024,
        "tools": [{"name": "Bash", "input_schema": {"type": "object"}}],
    },
    "openai-chat": {
        "model": "gpt-4.1",
        "tools": [{"type": "function", "function": {"name": "bash", "parameters": {}}}],
    },
    "openai-responses": {
        "model": "gpt-5.1",
        "tools": [{"type": "function", "name": "shell", "parameters": {}, "strict": False}],
    },
    "gemini": {"tools": [{"functionDeclarations": [{"name": "shell"}]}]},
}
