"""The messages of a JSON body as spans of its text, found without respool's own reader."""

from __future__ import annotations

import json
from typing import Any

_SPACE = " \t\r\n"
BREAKPOINT_FIELDS = ("cache_control", "prompt_cache_breakpoint")


def _skip(text: str, at: int, also: str = "") -> int:
    while text[at] in _SPACE + also:
        at += 1
    return at


def spans(body: bytes, field: str) -> list[str]:
    """The text of each message in the top-level list under `field`, with what stands before it."""
    text = body.decode()
    scan = json.JSONDecoder().raw_decode
    at = _skip(text, 0)
    assert text[at] == "{"
    at = _skip(text, at + 1)
    while text[at] != "}":
        key, at = scan(text, at)
        at = _skip(text, at, ":")
        if key == field:
            return _items(text, at)
        _, at = scan(text, at)
        at = _skip(text, at, ",")
    raise AssertionError(f"no field {field!r}")


def _items(text: str, at: int) -> list[str]:
    assert text[at] == "["
    found: list[str] = []
    start = at + 1
    at = _skip(text, at + 1)
    while text[at] != "]":
        _, end = json.JSONDecoder().raw_decode(text, at)
        found.append(text[start:end])
        start = end
        at = _skip(text, end, ",")
    return found


def without_breakpoints(value: Any) -> Any:
    """A value without cache marks, wherever they stand."""
    if isinstance(value, list):
        return [without_breakpoints(item) for item in value]
    if isinstance(value, dict):
        return {
            key: without_breakpoints(item)
            for key, item in value.items()
            if key not in BREAKPOINT_FIELDS
        }
    return value


def worded(message: Any) -> Any:
    """A message without cache marks; one marked block of words is the same as these words."""
    bare = without_breakpoints(message)
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        block = content[0]
        if block.keys() & set(BREAKPOINT_FIELDS) and without_breakpoints(block).keys() == {
            "type",
            "text",
        }:
            return {**bare, "content": block["text"]}
    return bare


def same_without_breakpoints(one: Any, other: Any) -> bool:
    """Return whether two messages differ at most in cache breakpoints."""
    if json.dumps(without_breakpoints(one)) == json.dumps(without_breakpoints(other)):
        return True
    return json.dumps(worded(one)) == json.dumps(worded(other))


def spellings(request: Any) -> list[bytes]:
    """One request as different clients would write it."""
    return [
        json.dumps(request, separators=(",", ":"), ensure_ascii=False).encode(),
        json.dumps(request).encode(),
        json.dumps(request, indent=2).encode(),
    ]
