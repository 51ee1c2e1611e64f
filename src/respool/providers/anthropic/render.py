"""Anthropic Messages messages built from plain text and media."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ...transcript import Part
from ...wire.json import JSON, Object, compact_json, get, without
from ..base import OutputMessage, Role, without_breakpoints
from .check import is_effort_only

_ROLES: dict[object, Role] = {"user": "user", "assistant": "model"}
_OWNER_FIELDS = ("server_name", "toolset_name")  # the owner of a called tool
_ENCRYPTED_FIELDS = (
    "encrypted_content",
    "encrypted_index",
    "encrypted_stdout",
)  # for the provider alone


class AnthropicRenderer:
    """Anthropic Messages."""

    requires_leading_thinking = True  # A11

    def role(self, message: JSON) -> Role:
        """The sender of a message."""
        said = get(message, ("role",))
        return _ROLES.get(said, "other") if isinstance(said, str) else "other"

    def block(self, message: JSON, part: Part) -> JSON:
        """The block, without citations of search results that are removed."""
        if part.ref.path == ("content",):
            return {"type": "text", "text": part.text}
        block = get(message, part.ref.path[:2])
        return without(block, ("citations",)) if _has_citations(block, part) else block

    def fields(self, message: JSON, gone: Sequence[Part]) -> Object:
        """The role, and all other fields."""
        holder = cast(Object, message) if isinstance(message, dict) else {}
        return {key: one for key, one in holder.items() if key != "content"}

    def join_fields(self, before: Object, after: Object) -> Object:
        """The fields of both; the later ones win."""
        return {**before, **after}

    def text_block(self, text: str, role: Role, breakpoints: Object) -> JSON:
        """A text block."""
        breakpoint = (
            {"cache_control": breakpoints["cache_control"]}
            if "cache_control" in breakpoints
            else {}
        )
        return {"type": "text", "text": text, **breakpoint}

    def extract_text(self, message: JSON, part: Part) -> tuple[str, tuple[str, ...]]:
        """The text; encrypted content of server-side results is left out."""
        if part.kind == "call":
            block = cast(Object, get(message, part.ref.path))
            whose = {key: block[key] for key in _OWNER_FIELDS if block.get(key)}
            return part.text, (compact_json(whose),) if whose else ()
        if not part.server:
            return part.text, ()
        return compact_json(_without_encrypted(get(message, (*part.ref.path, "content")), 40)), ()

    def media_blocks(self, message: JSON, part: Part) -> list[JSON]:
        """Images and documents, unchanged."""
        return [without_breakpoints(get(message, part.ref.path))]

    def is_model_turn_required(self, before: JSON) -> bool:
        """Return whether this is a system message: it precedes the assistant, or is last (A16)."""
        is_system = get(before, ("role",)) == "system"
        return is_system and not is_effort_only(before)

    def build(self, turn: OutputMessage) -> JSON:
        """The message."""
        role = "assistant" if turn.role == "model" else "user"
        return {**turn.fields, "role": role, "content": turn.blocks}


def _has_citations(block: JSON, part: Part) -> bool:
    return part.speaker == "model" and isinstance(block, dict) and "citations" in block


def _without_encrypted(value: JSON, depth: int) -> JSON:
    """A value without its encrypted fields."""
    if depth and isinstance(value, list):
        return [_without_encrypted(one, depth - 1) for one in cast(list[JSON], value)]
    if not depth or not isinstance(value, dict):
        return value
    items = cast(Object, value).items()
    return {
        key: _without_encrypted(one, depth - 1)
        for key, one in items
        if key not in _ENCRYPTED_FIELDS
    }
