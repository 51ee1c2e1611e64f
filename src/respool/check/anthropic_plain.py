"""The shape that most steps have, told at one look: it breaks none of Anthropic's rules."""

from __future__ import annotations

import re
from collections.abc import Container

from ..codecs.json_tree import JSON, Object
from .rules import Seen, Step

_ID = re.compile(r"[a-zA-Z0-9_-]+\Z")


def is_plain(step: Step, state: Seen) -> bool:
    """Whether a step has the shape of most, which breaks no rule; False tells nothing.

    One turn of the model with text, calls and at most one thinking block in front; all its calls
    answered at once, then words of the user. Whatever passes here passes every rule.
    """
    if step.model_count != (step.at > 0) or state.open_calls:
        return False
    calls: set[str] = set()
    if step.model_count and not _is_plain_turn(step.messages[0], calls, state.call_counts):
        return False
    talked = False
    for message in step.messages[step.model_count :]:
        said = _plain_answer(message, calls, talked)
        if said is None:
            return False
        talked = said
    return not calls or len(step.messages) == step.model_count


def _is_plain_turn(message: JSON, calls: set[str], state: Container[str]) -> bool:
    """Whether the model's turn is plain; notes its calls."""
    content: JSON = message.get("content")
    if isinstance(content, str):
        return _says_something(content)
    blocks: list[JSON] = content
    if not isinstance(content, list) or not content:
        return False
    last = len(blocks) - 1
    for position, block in enumerate(blocks):
        holder: Object = block
        if not isinstance(block, dict):
            return False
        kind = holder.get("type")
        if kind == "tool_use":
            if not _is_plain_call(holder, calls, state):
                return False
        elif kind == "thinking":
            whole = isinstance(holder.get("thinking"), str) and isinstance(
                holder.get("signature"), str
            )
            if position or not last or not whole:
                return False
        elif kind != "text" or not _says_something(holder.get("text")):
            return False
    return True


def _is_plain_call(call: Object, calls: set[str], state: Container[str]) -> bool:
    id = call.get("id")
    if not isinstance(id, str) or id in calls or id in state or not _ID.match(id):
        return False
    calls.add(id)
    name = call.get("name")
    return isinstance(call.get("input"), dict) and isinstance(name, str) and name != ""


def _plain_answer(message: JSON, calls: set[str], talked: bool) -> bool | None:
    """Whether the user has spoken after this message; None when it is not plain."""
    holder: Object = message
    if not isinstance(message, dict) or holder.get("role") != "user":
        return None
    content: JSON = holder.get("content")
    if isinstance(content, str):
        return True if _says_something(content) else None
    blocks: list[JSON] = content
    if not isinstance(content, list) or not content:
        return None
    for block in blocks:
        inner: Object = block
        if not isinstance(block, dict):
            return None
        if inner.get("type") == "text" and _says_something(inner.get("text")):
            talked = True
        elif talked or not _is_plain_result(inner, calls):
            return None
    return talked


def _is_plain_result(block: Object, calls: set[str]) -> bool:
    """Whether the block is the text result of a waiting call, which then waits no more."""
    id = block.get("tool_use_id")
    if block.get("type") != "tool_result" or not isinstance(id, str) or id not in calls:
        return False
    calls.remove(id)
    return isinstance(block.get("content", ""), str)


def _says_something(text: object) -> bool:
    return isinstance(text, str) and bool(text) and not text.isspace()
