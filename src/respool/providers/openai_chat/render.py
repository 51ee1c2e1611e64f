"""OpenAI Chat Completions messages built from plain text and media."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from msgspec import Struct

from ...transcript import Part
from ...wire.json import JSON, Object, get
from ..base import OutputMessage, Role, without_breakpoints
from .check import can_lack_content
from .codec import REASONING_FIELDS

_ROLES: dict[str, Role] = {
    "user": "user",
    "tool": "user",
    "function": "user",
    "assistant": "model",
}
_CALL_FIELDS = ("tool_calls", "function_call")
_JOINED_FIELDS = (*REASONING_FIELDS, "refusal")


class OpenAIChatRenderer(Struct, frozen=True):
    """OpenAI Chat Completions."""

    keep_texts_apart: bool = False  # a part for each text, so that breakpoints keep their place

    @property
    def requires_leading_thinking(self) -> bool:
        """False: reasoning is a field of the message."""
        return False

    def role(self, message: JSON) -> Role:
        """The sender of a message; results belong to the user."""
        said = get(message, ("role",))
        return _ROLES.get(said, "other") if isinstance(said, str) else "other"

    def block(self, message: JSON, part: Part) -> JSON:
        """A string, or the content part."""
        path = part.ref.path
        if path[:1] != ("content",):
            return None
        return part.text if len(path) == 1 else get(message, path[:2])

    def fields(self, message: JSON, gone: Sequence[Part]) -> Object:
        """The fields beside content and calls; none of a result."""
        holder = cast(Object, message) if isinstance(message, dict) else {}
        if holder.get("role") in ("tool", "function"):
            return {"role": "user"}
        left_out = {"content", *_CALL_FIELDS, *(part.ref.path[0] for part in gone)}
        return {key: one for key, one in holder.items() if key not in left_out}

    def join_fields(self, before: Object, after: Object) -> Object:
        """The fields of both; reasoning of both is joined."""
        both = {**before, **after}
        for name in _JOINED_FIELDS:
            one, other = before.get(name), after.get(name)
            if isinstance(one, str) and isinstance(other, str) and one and other:
                both[name] = f"{one}\n\n{other}"
            elif isinstance(one, list) and isinstance(other, list):
                both[name] = [*cast(list[JSON], one), *cast(list[JSON], other)]
            elif one and not other:
                both[name] = one
        return both

    def text_block(self, text: str, role: Role, breakpoints: Object) -> JSON:
        """A string, or a content part if there is a breakpoint; model text has none of OpenAI's."""
        borne = {
            field: one
            for field, one in breakpoints.items()
            if role == "user" or field == "cache_control"
        }
        return {"type": "text", "text": text, **borne} if borne else text

    def extract_text(self, message: JSON, part: Part) -> tuple[str, tuple[str, ...]]:
        """The text of a call or result."""
        return part.text, ()

    def media_blocks(self, message: JSON, part: Part) -> list[JSON]:
        """Images, files and sounds, unchanged."""
        return [without_breakpoints(get(message, part.ref.path))]

    def is_model_turn_required(self, before: JSON) -> bool:
        """False: a system message may stand anywhere."""
        return False

    def build(self, turn: OutputMessage) -> JSON:
        """The message of a turn; neighbouring strings become one."""
        role = "assistant" if turn.role == "model" else "user"
        fields = {key: one for key, one in turn.fields.items() if key != "role"}
        said = {"role": role, "content": self._content(turn.blocks), **fields}
        return {**said, "content": None} if not turn.blocks and can_lack_content(said) else said

    def _content(self, blocks: list[JSON]) -> JSON:
        if not self.keep_texts_apart and all(isinstance(one, str) for one in blocks):
            return "\n\n".join(cast(list[str], blocks))
        parts: list[JSON] = []
        texts: list[str] = []
        for one in (*blocks, None):
            if isinstance(one, str) and not (self.keep_texts_apart and texts):
                texts.append(one)
                continue
            if texts:
                parts.append({"type": "text", "text": "\n\n".join(texts)})
            texts = [one] if isinstance(one, str) else []
            if one is not None and not isinstance(one, str):
                parts.append(one)
        return parts
