"""Gemini generateContent messages built from plain text and media."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ...transcript import Part
from ...wire.json import JSON, Object, compact_json, get
from ..base import OutputMessage, Role
from .codec import data_of, is_model_made, kind_of, response_text, spelling_of

_RENDERED_FIELDS = (
    "id",
    "name",
    "response",
    "parts",
)  # fields of a functionResponse that are rendered or moved


class GeminiRenderer:
    """Gemini generateContent."""

    requires_leading_thinking = False

    def role(self, message: JSON) -> Role:
        """The sender of a content."""
        if not isinstance(message, dict):
            return "other"
        if is_model_made(message):
            return "model"
        return "other" if cast(Object, message).get("role") == "system" else "user"

    def block(self, message: JSON, part: Part) -> JSON:
        """The part itself."""
        return get(message, part.ref.path[:2])

    def fields(self, message: JSON, gone: Sequence[Part]) -> Object:
        """All fields beside its parts."""
        holder = cast(Object, message) if isinstance(message, dict) else {}
        return {key: one for key, one in holder.items() if key != "parts"}

    def join_fields(self, before: Object, after: Object) -> Object:
        """The fields of both; the later ones win."""
        return {**before, **after}

    def text_block(self, text: str, role: Role, breakpoints: Object) -> JSON:
        """A text part."""
        return {"text": text}

    def extract_text(self, message: JSON, part: Part) -> tuple[str, tuple[str, ...]]:
        """The text, and the other values of a response."""
        held = get(message, part.ref.path[:2])
        if kind_of(held) == "executableCode":
            language = get(held, (spelling_of(held, "executableCode") or "", "language"))
            return part.text, (compact_json({"language": language}),) if language else ()
        data = data_of(held, "functionResponse")
        if data is None:
            return part.text, _outcome(held)
        return part.text, _other_values(data)

    def media_blocks(self, message: JSON, part: Part) -> list[JSON]:
        """Images and documents, unchanged."""
        return [get(message, part.ref.path)]

    def is_model_turn_required(self, before: JSON) -> bool:
        """False: a history has no system messages."""
        return False

    def build(self, turn: OutputMessage) -> JSON:
        """The content."""
        role = "model" if turn.role == "model" else "user"
        return {**turn.fields, "role": role, "parts": turn.blocks}


def _outcome(held: JSON) -> tuple[str, ...]:
    """The outcome of code that the provider ran."""
    data = data_of(held, "codeExecutionResult") or {}
    values = {key: one for key, one in data.items() if key != "output"}
    return (compact_json(values),) if values else ()


def _other_values(data: Object) -> tuple[str, ...]:
    """The values of a response beside its text."""
    response = data.get("response")
    text = response_text(data)
    rest = {key: one for key, one in data.items() if key not in _RENDERED_FIELDS}
    if isinstance(response, dict):
        values = cast(Object, response)
        main = next((key for key, one in values.items() if one is text or one == text), None)
        if main is not None:
            rest = {**{key: one for key, one in values.items() if key != main}, **rest}
    return (compact_json(rest),) if rest else ()
