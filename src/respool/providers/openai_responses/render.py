"""OpenAI Responses messages built from plain text and media."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ...transcript import Part
from ...wire.json import JSON, Object, compact_json, get
from ...wire.message_identity import BREAKPOINT_FIELDS
from ..base import OutputMessage, Role, without_breakpoints
from .codec import HOSTED, OUTPUTS, kind_of, split_images

_ROLES: dict[object, Role] = {"user": "user", "assistant": "model"}
_IDENTITY_FIELDS = frozenset({"type", "id", "call_id", "status", "name", *BREAKPOINT_FIELDS})
_APPROVALS = ("mcp_approval_request", "mcp_approval_response")
_ENCRYPTED_FIELDS = ("encrypted_content", "fingerprint")
# Fields of a call or an output beside its text.
_CALL_FIELDS = ("namespace", "environment", "pending_safety_checks")
_OUTPUT_FIELDS = ("acknowledged_safety_checks",)
_MESSAGE_FIELDS = ("type", "role", "content", "id", "status")


class OpenAIResponsesRenderer:
    """OpenAI Responses."""

    requires_leading_thinking = False

    def role(self, message: JSON) -> Role:
        """The sender of a message; other items keep their place."""
        if kind_of(message) != "message":
            return "other"
        said = get(message, ("role",))
        return _ROLES.get(said, "other") if isinstance(said, str) else "other"

    def block(self, message: JSON, part: Part) -> JSON:
        """The content part; a string becomes one."""
        if part.ref.path == ("content",):
            return self.text_block(part.text, self.role(message), {})
        return get(message, part.ref.path[:2])

    def fields(self, message: JSON, gone: Sequence[Part]) -> Object:
        """The fields of a message beside its content and id."""
        if kind_of(message) != "message":
            return {}
        items = cast(Object, message).items()
        return {key: one for key, one in items if key not in _MESSAGE_FIELDS}

    def join_fields(self, before: Object, after: Object) -> Object:
        """The fields of both; the later ones win."""
        return {**before, **after}

    def text_block(self, text: str, role: Role, breakpoints: Object) -> JSON:
        """A content part; only the user's may carry a breakpoint."""
        if role == "model":
            return {"type": "output_text", "text": text, "annotations": []}
        return {"type": "input_text", "text": text, **breakpoints}

    def extract_text(self, message: JSON, part: Part) -> tuple[str, tuple[str, ...]]:
        """The text, or all of an item if the text is not all of it."""
        kind = kind_of(message)
        item = cast(Object, message)
        if kind in HOSTED:
            return split_images(_without_identity(item, "result"))[0], ()
        if kind in _APPROVALS:
            return compact_json(_without_identity(item)), ()
        if kind == "shell_call_output":
            return self._shell_output(item, part)
        beside = _OUTPUT_FIELDS if kind in OUTPUTS else _CALL_FIELDS
        return part.text, _as_json_texts({key: item[key] for key in beside if item.get(key)})

    def _shell_output(self, item: Object, part: Part) -> tuple[str, tuple[str, ...]]:
        """The output and outcome of a shell; several commands as JSON."""
        chunks = cast(list[JSON], item["output"]) if isinstance(item.get("output"), list) else []
        if part.signed or len(chunks) != 1 or not isinstance(chunks[0], dict):
            return compact_json(item.get("output")), ()
        streams = ("stdout", "stderr")
        rest = {key: one for key, one in cast(Object, chunks[0]).items() if key not in streams}
        return part.text, _as_json_texts(rest)

    def media_blocks(self, message: JSON, part: Part) -> list[JSON]:
        """Images and files as content of a user's message."""
        if part.kind == "call":
            return [_image_block(url) for url in _generated_images(cast(Object, message))]
        block = without_breakpoints(get(message, part.ref.path))
        return [_as_message_block(cast(Object, block)) if isinstance(block, dict) else block]

    def is_model_turn_required(self, before: JSON) -> bool:
        """False: items may follow one another in any order."""
        return False

    def build(self, turn: OutputMessage) -> JSON:
        """The message."""
        role = "assistant" if turn.role == "model" else "user"
        return {"type": "message", "role": role, "content": turn.blocks, **turn.fields}


def _without_identity(item: Object, *names: str) -> Object:
    """An item without ids and encrypted content."""
    gone = {*_IDENTITY_FIELDS, *_ENCRYPTED_FIELDS, *names}
    return {key: one for key, one in item.items() if key not in gone}


def _as_json_texts(rest: Object) -> tuple[str, ...]:
    return (compact_json(rest),) if rest else ()


def _as_message_block(block: Object) -> Object:
    """An image or a file of an output as a block of a message: without nulls, with its detail."""
    held = {key: one for key, one in block.items() if one is not None}
    if held.get("type") == "computer_screenshot":
        held["type"] = "input_image"
    return {"detail": "auto", **held} if held.get("type") == "input_image" else held


def _generated_images(item: Object) -> list[str]:
    """The images that a hosted tool made, as data URLs."""
    found = split_images(_without_identity(item, "result"))[1]
    drawn = item.get("result")
    if item.get("type") == "image_generation_call" and isinstance(drawn, str) and drawn:
        url = drawn if drawn.startswith("data:") else f"data:image/png;base64,{drawn}"
        found = [*found, url]
    return found


def _image_block(url: str) -> JSON:
    return {"type": "input_image", "detail": "auto", "image_url": url}
