"""Anthropic's blocks and messages made sound, each on its own."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from operator import is_
from typing import cast

from ..check.anthropic import ID, is_sound_content, type_of
from ..check.rules import Seen
from ..codecs.anthropic import REASONING
from ..codecs.json_tree import JSON, Object, compact_text, put
from .words import BLANK, NO_RESULT, renamed, unpaired_result

_NOT_ID = re.compile(r"[^a-zA-Z0-9_-]")
_SHOWABLE = frozenset({"image", "document", "search_result"})  # what a user can show as well


def text_block(text: str) -> Object:
    """A block that says this."""
    return {"type": "text", "text": text}


def user_message(text: str) -> Object:
    """A message in which the user says this."""
    return {"role": "user", "content": [text_block(text)]}


def with_blocks(message: JSON, blocks: list[JSON]) -> JSON:
    """The message with these blocks; the same object when nothing changed."""
    old = cast(Object, message).get("content")
    if isinstance(old, str):
        same = blocks == [text_block(old)]
    else:
        items = cast(list[JSON], old) if isinstance(old, list) else [None]
        same = len(items) == len(blocks) and all(map(is_, items, blocks))
    if same and blocks:
        return message
    return put(message, ("content",), blocks or [text_block(BLANK)])


def without_thinking(blocks: Sequence[JSON]) -> list[JSON]:
    """The blocks that are no thinking."""
    return [block for block in blocks if type_of(block) not in REASONING]


def typed(item: JSON) -> JSON | None:
    """Something without a type as a text block; None when it says nothing."""
    holder = cast(Object, item) if isinstance(item, dict) else {}
    if isinstance(holder.get("text"), str):
        return {**holder, "type": "text"} if holder["text"].strip() else None
    said = compact_text(item) if item else ""
    return text_block(said) if said.strip() else None


def sound_result(result: Object, id: str) -> Object:
    """A result that answers this id, with content that it can have."""
    if result.get("tool_use_id") != id:
        result = {**result, "tool_use_id": id}
    content = result.get("content")
    if is_sound_content(content):
        return result
    if not isinstance(content, list):
        return {**result, "content": compact_text(content)}
    items = [i if type_of(i) else typed(i) for i in cast(list[JSON], content)]
    return {**result, "content": [item for item in items if item is not None]}


def told_result(result: Object) -> list[JSON]:
    """A result without its call, as words and pictures that a user can send, with its mark."""
    content = result.get("content")
    items = cast(list[JSON], content) if isinstance(content, list) else [content or ""]
    shown = [item for item in items if type_of(item) in _SHOWABLE]
    said = "\n".join(_words_of(item) for item in items if type_of(item) not in _SHOWABLE)
    told: list[JSON] = [text_block(unpaired_result(_id_of(result), said)), *shown]
    if result.get("cache_control") is not None:
        told[-1] = {**told[-1], "cache_control": result["cache_control"]}
    return told


def _words_of(item: JSON) -> str:
    """What an item of a result says; one of an unknown type is only named."""
    kind = type_of(item)
    if kind is None:
        return compact_text(item)
    text = cast(Object, item).get("text")
    return text if isinstance(text, str) else f"[{kind}]"


def _id_of(result: Object) -> str:
    id = result.get("tool_use_id")
    return id if isinstance(id, str) else ""


def server_stand_in(id: str, name: str) -> Object:
    """The result of a server-side tool whose result is lost: the provider's own error."""
    if name == "mcp":
        said = [text_block(NO_RESULT)]
        return {"type": "mcp_tool_result", "tool_use_id": id, "is_error": True, "content": said}
    kind = "tool_search" if name.startswith("tool_search_tool") else name
    error = {"type": f"{kind}_tool_result_error", "error_code": "unavailable"}
    return {"type": f"{kind}_tool_result", "tool_use_id": id, "content": error}


class Names:
    """Ids of this step's calls that are well formed and new to the history."""

    def __init__(self, state: Seen) -> None:
        self._seen = state.call_counts
        self._here: dict[str, int] = {}
        self._waiting: dict[str, deque[str]] = {}  # old id -> new ids that wait for a result

    def of_call(self, old: JSON) -> str:
        """The id for the next call."""
        id = old if isinstance(old, str) else "" if old is None else str(old)
        new = self._fresh(id if ID.match(id) else _NOT_ID.sub("_", id) or "call")
        self._waiting.setdefault(str(old), deque()).append(new)
        return new

    def _fresh(self, id: str) -> str:
        times = self._seen.get(id, 0) + self._here.get(id, 0)
        new, stride = id, 1
        while new in self._seen or new in self._here:
            new = renamed(id, times)
            times, stride = times + stride, stride * 2  # few tries, however many names are taken
        self._here[id] = self._here.get(id, 0) + 1
        self._here.setdefault(new, 1)
        return new

    def of_result(self, old: JSON) -> str | None:
        """The id that the next result with this old id answers."""
        waiting = self._waiting.get(str(old))
        return waiting.popleft() if waiting else None

    def has_result_id(self, old: JSON) -> bool:
        """Whether a call of this step had this id."""
        return str(old) in self._waiting

    def unanswered(self) -> list[str]:
        """The ids that no result has answered."""
        return [id for waiting in self._waiting.values() for id in waiting]
