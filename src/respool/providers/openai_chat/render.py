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

    keep_texts_apart: bool = (
        False  # a part for each text: where marks are set, what they stand on must stay
    )

    @property
    def requires_leading_thinking(self) -> bool:
        """What was thought is a field, wherever it was."""
        return False

    def role(self, message: JSON) -> Role:
        """Whose message it is; results are told by the client."""
        said = get(message, ("role",))
        return _ROLES.get(said, "other") if isinstance(said, str) else "other"

    def block(self, message: JSON, part: Part) -> JSON:
        """A string, or the content part."""
        path = part.ref.path
        if path[:1] != ("content",):
            return None
        return part.text if len(path) == 1 else get(message, path[:2])

    def fields(self, message: JSON, gone: Sequence[Part]) -> Object:
        """What it has beside content and calls; of a result nothing is left."""
        holder = cast(Object, message) if isinstance(message, dict) else {}
        if holder.get("role") in ("tool", "function"):
            return {"role": "user"}
        left_out = {"content", *_CALL_FIELDS, *(part.ref.path[0] for part in gone)}
        return {key: one for key, one in holder.items() if key not in left_out}

    def join_fields(self, before: Object, after: Object) -> Object:
        """Both; what the model thought in both stays."""
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
        """A string, or a part where there is a mark to bear; OpenAI's own not by the model."""
        borne = {
            mark: one
            for mark, one in breakpoints.items()
            if role == "user" or mark == "cache_control"
        }
        return {"type": "text", "text": text, **borne} if borne else text

    def extract_text(self, message: JSON, part: Part) -> tuple[str, tuple[str, ...]]:
        """Its text."""
        return part.text, ()

    def media_blocks(self, message: JSON, part: Part) -> list[JSON]:
        """Images, files and sounds stand in a user's message as they stood in a result."""
        return [without_breakpoints(get(message, part.ref.path))]

    def is_model_turn_required(self, before: JSON) -> bool:
        """A system message may stand anywhere."""
        return False

    def build(self, turn: OutputMessage) -> JSON:
        """The message; neighbouring strings become one."""
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
