"""The messages of a JSON body as spans of its text, found without clew's own reader."""

from __future__ import annotations

import json
from typing import Any

_SPACE = " \t\r\n"
MARKS = ("cache_control", "prompt_cache_breakpoint")


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


def unmarked(value: Any) -> Any:
    """A value without cache marks, wherever they stand."""
    if isinstance(value, list):
        return [unmarked(item) for item in value]
    if isinstance(value, dict):
        return {key: unmarked(item) for key, item in value.items() if key not in MARKS}
    return value


def spellings(request: Any) -> list[bytes]:
    """One request as different clients would write it."""
    return [
        json.dumps(request, separators=(",", ":"), ensure_ascii=False).encode(),
        json.dumps(request).encode(),
        json.dumps(request, indent=2).encode(),
    ]
