"""What every codec offers: how one wire format is read, changed and joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from ..transcript import Part
from .json_tree import JSON

FormatName = Literal["anthropic", "openai-chat", "openai-responses", "gemini"]
FORMATS: tuple[FormatName, ...] = ("anthropic", "openai-chat", "openai-responses", "gemini")

CONTINUE = "[continue]"  # what a user turn says that only has to be there

Fields = Mapping[str, Any]  # the request beside its history: model, system, tools, …


class Codec(Protocol):
    """One wire format. Messages are decoded JSON and are never mutated: changes return new ones.

    Whatever a message holds (wrong types, missing fields, unknown blocks), reading it must not
    raise: what is not understood becomes an opaque part.
    """

    name: FormatName
    history_field: str  # the field that holds the history: "messages", "input" or "contents"
    head_fields: tuple[str, ...]  # the fields that read_head counts

    def is_model_made(self, message: JSON) -> bool:
        """Whether the model wrote this message or item."""
        ...

    def decode(self, row: int, message: JSON) -> list[Part]:
        """The parts of one message, in order."""
        ...

    def decode_head(self, fields: Fields) -> list[Part]:
        """System prompt, instructions and tool definitions, as parts that are only counted."""
        ...

    def has_locked_calls(self, model: Sequence[Part]) -> bool:
        """Whether the calls in this run of model output can only go together."""
        ...

    def is_reasoning_required(self, messages: Sequence[JSON]) -> bool:
        """Whether the reasoning among these must stay: something in them cannot be without it."""
        ...

    def replace(self, message: JSON, part: Part, text: str) -> JSON:
        """The message with `text` in place of what the part said; media in it and marks stay.

        For a call, `text` is its new arguments as a JSON object.
        """
        ...

    def remove(self, message: JSON, parts: Sequence[Part]) -> JSON | None:
        """The message without these parts; None when nothing is left to send."""
        ...

    def unbind(self, message: JSON) -> JSON:
        """A model-made message whose unit lost its reasoning, without what ties it to it."""
        ...

    def join(self, before: JSON, after: JSON) -> list[JSON] | None:
        """What must stand in place of two messages that a removal made neighbours; None: both."""
        ...

    def merge(self, messages: Sequence[JSON]) -> JSON | None:
        """One message in place of a run of which `join` makes one; None: this wire has none."""
        ...

    def place_breakpoint(self, message: JSON, part: Part, control: JSON) -> JSON:
        """The message with a cache mark on the block that holds this part."""
        ...
