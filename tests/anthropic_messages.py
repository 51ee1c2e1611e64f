"""Anthropic messages in few letters, for tables of tests."""

from __future__ import annotations

from typing import Any

from respool.repair.words import NO_RESULT, unpaired_result

OLD, NEW = "claude-sonnet-4-5", "claude-opus-5-5"
MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
IMAGE = {"type": "image", "source": {"type": "url", "url": "https://pics.example/1.png"}}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "ZW5j"}
COMPACTION = {"type": "compaction", "content": "so far"}
SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
EFFORT = {"role": "system", "output_config": {"effort": "low"}}
FUTURE = {"type": "future_gesture", "text": ""}


def text(said: Any = "x", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def use(id: Any = "a", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "read", "input": {}, **more}


def res(id: Any = "a", content: Any = "r", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def none(id: str) -> dict[str, Any]:
    return res(id, NO_RESULT)


def orphan(id: str, said: str = "r") -> dict[str, Any]:
    return text(unpaired_result(id, said))


def u(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks) or "hi"}


def m(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks) or "ok"}


def s(*blocks: Any, **more: Any) -> dict[str, Any]:
    return {"role": "system", "content": list(blocks) or "note", **more}


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}
