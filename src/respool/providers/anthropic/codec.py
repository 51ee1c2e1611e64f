"""Anthropic Messages: decoding messages into parts, and editing them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec

from ...history.deferred_tools import is_deferred
from ...media import BYTES_PER_TEXT_TOKEN, document_tokens, image_tokens, is_media_marker
from ...transcript import BlockPath, Part, Ref, Speaker
from ...wire.base import HEAD_ROW, Fields, FormatName
from ...wire.json import JSON, Object, compact_json, get, put
from ...wire.message_identity import relocate_text
from ..attachments import (
    countable_text,
    is_text_item,
    replace_media,
    replace_text_items,
    text_and_media_tokens,
)
from ..base import CONTINUE_TEXT

SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
REASONING_TYPES = frozenset({"thinking", "redacted_thinking"})


def is_server_result(kind: object) -> bool:
    """Return whether a block type is the result of a tool that the provider ran."""
    return isinstance(kind, str) and kind.endswith("_tool_result")


class AnthropicCodec:
    """Anthropic Messages."""

    name: FormatName = "anthropic"
    history_field = "messages"
    head_fields: tuple[str, ...] = ("system", "tools")

    def is_model_made(self, message: JSON) -> bool:
        """Return whether the model wrote this message; without a role, a call decides it."""
        role = cast(Object, message).get("role") if isinstance(message, dict) else ""
        return role == "assistant" or (role is None and _holds_call(message))

    def decode(self, row: int, message: JSON) -> list[Part]:
        """The parts of one message, in order."""
        if not isinstance(message, dict):
            return [_opaque(Ref(row, ()), "user", message)]
        holder = cast(Object, message)
        speaker = _speaker(holder.get("role"))
        content = holder.get("content")
        if isinstance(content, str):
            return [Part(Ref(row, ("content",)), "text", speaker, content)] if content else []
        if not isinstance(content, list):
            return [] if content is None else [_opaque(Ref(row, ("content",)), speaker, content)]
        parts: list[Part] = []
        for position, block in enumerate(cast(list[JSON], content)):
            _decode_block(parts, row, path=("content", position), speaker=speaker, block=block)
        return parts

    def decode_head(self, fields: Fields) -> list[Part]:
        """System prompt and tool definitions, but for deferred ones: no prompt begins with them."""
        parts: list[Part] = []
        system = fields.get("system")
        for item in cast(list[JSON], system) if isinstance(system, list) else [system]:
            text = cast(Object, item).get("text") if isinstance(item, dict) else item
            if isinstance(text, str) and text:
                parts.append(Part(Ref(HEAD_ROW, ("system",)), "text", "system", text))
        tools = fields.get("tools")
        all_tools = cast(list[JSON], tools) if isinstance(tools, list) else []
        known = [tool for tool in all_tools if not is_deferred(tool)]
        ref = Ref(HEAD_ROW, ("tools",))
        return parts + [Part(ref, "opaque", "system", compact_json(tool)) for tool in known]

    def has_locked_calls(self, model: Sequence[Part]) -> bool:
        """False: calls of one turn may be removed one by one; the thinking goes with the first."""
        return False

    def is_reasoning_required(self, messages: Sequence[JSON]) -> bool:
        """False: nothing outside reasoning refers to it."""
        return False

    def replace(self, message: JSON, part: Part, text: str) -> JSON:
        """The message with `text` in place of the part's text."""
        part = relocate_text(message, part)
        path = part.ref.path
        if path == ("content",):
            return put(message, path, text)
        if part.kind == "media" and not part.text:
            return replace_media(message, part, text, "text")
        block = get(message, path)
        new = _replace_in(cast(Object, block), part, text) if isinstance(block, dict) else block
        return message if new is block else put(message, path, new)

    def remove(self, message: JSON, parts: Sequence[Part]) -> JSON | None:
        """The message without these blocks; None if nothing is left."""
        parts = [relocate_text(message, part) for part in parts]
        content = cast(Object, message).get("content") if isinstance(message, dict) else None
        if not isinstance(content, list):
            return None
        paths = [part.ref.path for part in parts]
        gone = {path[1] for path in paths if len(path) == 2}
        inner: dict[str | int, set[str | int]] = {}  # items removed from a result that stays
        for path in paths:
            if len(path) > 2:
                inner.setdefault(path[1], set()).add(path[3])
        left = [
            _without_items(block, inner[position]) if position in inner else block
            for position, block in enumerate(cast(list[JSON], content))
            if position not in gone
        ]
        return put(message, ("content",), left) if left else None

    def unbind(self, message: JSON) -> JSON:
        """The message unchanged: nothing outside the thinking blocks refers to them."""
        return message

    def join(self, before: JSON, after: JSON) -> list[JSON] | None:
        """Insert a user turn around a system message where needed; other neighbours stay."""
        roles = (_role(before), _role(after))
        if roles == ("assistant", "system"):
            said = {"role": "user", "content": [{"type": "text", "text": CONTINUE_TEXT}]}
            return [before, said, after]
        return [after, before] if roles == ("system", "user") else None

    def merge(self, messages: Sequence[JSON]) -> JSON | None:
        """None: neighbours stay separate."""
        return None

    def place_breakpoint(self, message: JSON, part: Part, control: JSON) -> JSON:
        """The message with a cache breakpoint on the part's block; thinking cannot carry one."""
        part = relocate_text(message, part)
        path = part.ref.path[:2]
        if path == ("content",) and part.kind == "text":
            block = {"type": "text", "text": part.text, "cache_control": control}
            return put(message, path, [block])
        if part.kind == "reasoning" or not isinstance(get(message, path), dict) or len(path) < 2:
            return message
        return put(message, (*path, "cache_control"), control)


def _holds_call(message: JSON) -> bool:
    """Return whether one of a message's blocks is a call."""
    content = cast(Object, message).get("content")
    blocks = cast(list[JSON], content) if isinstance(content, list) else []
    return any(
        isinstance(block, dict) and cast(Object, block).get("type") == "tool_use"
        for block in blocks
    )


def _role(message: JSON) -> object:
    return cast(Object, message).get("role") if isinstance(message, dict) else None


def _speaker(role: object) -> Speaker:
    if role == "assistant":
        return "model"
    return "system" if role == "system" else "user"


def _decode_block(
    parts: list[Part], row: int, *, path: BlockPath, speaker: Speaker, block: JSON
) -> None:
    ref = Ref(row, path)
    if not isinstance(block, dict):
        parts.append(_opaque(ref, speaker, block))
        return
    holder = cast(Object, block)
    kind = holder.get("type")
    if not isinstance(kind, str):
        parts.append(_opaque(ref, speaker, holder))
    elif kind == "text":
        parts.append(Part(ref, "text", speaker, _string(holder.get("text"))))
    elif kind == "tool_use" or kind in SERVER_CALLS:
        parts.append(_call(ref, holder))
    elif kind == "tool_result":
        _decode_result(parts, ref, holder)
    elif is_server_result(kind):
        parts.append(_server_result(ref, holder))
    elif kind in REASONING_TYPES:
        parts.append(_reasoning(ref, holder))
    elif kind in ("image", "document"):
        parts.append(_media(ref, speaker, holder))
    else:
        parts.append(_opaque(ref, speaker, holder))


def _call(ref: Ref, block: Object) -> Part:
    return Part(
        ref,
        "call",
        "model",
        compact_json(block.get("input")),
        name=_string(block.get("name")),
        id=_string(block.get("id")),
        server=block.get("type") != "tool_use",
    )


def _decode_result(parts: list[Part], ref: Ref, block: Object) -> None:
    """A result's text as one part, and each image or document in it as a part of its own."""
    content = block.get("content")
    texts: list[str] = []
    media: list[Part] = []
    if isinstance(content, str):
        texts.append(content)
    elif isinstance(content, list):
        for position, item in enumerate(cast(list[JSON], content)):
            inner = cast(Object, item) if isinstance(item, dict) else {}
            said = _string(inner.get("text"))
            if inner.get("type") == "text" and not is_media_marker(said):
                texts.append(said)
            else:
                nested = Ref(ref.row, (*ref.path, "content", position))
                media.append(
                    _media(nested, "tool", inner) if inner else _opaque(nested, "tool", item)
                )
    elif content is not None:
        texts.append(compact_json(content))
    text = texts[0] if len(texts) == 1 else "\n".join(texts)
    error = block.get("is_error") is True
    parts.append(
        Part(ref, "result", "tool", text, id=_string(block.get("tool_use_id")), error=error)
    )
    parts += media


def _server_result(ref: Ref, block: Object) -> Part:
    """A server-side result; a fetched file counts as a document."""
    text, weight = text_and_media_tokens("anthropic", block.get("content", ""))
    id = _string(block.get("tool_use_id"))
    return Part(ref, "result", "model", text, id=id, server=True, weight=weight)


def _reasoning(ref: Ref, block: Object) -> Part:
    hidden = _string(block.get("data"))
    return Part(
        ref,
        "reasoning",
        "model",
        _string(block.get("thinking")),
        signed=True,
        weight=len(hidden) // 8,
    )


def _media(ref: Ref, speaker: Speaker, block: Object) -> Part:
    """An image or document; one with plain text is counted by its text."""
    source = block.get("source")
    origin = cast(Object, source) if isinstance(source, dict) else {}
    data = origin.get("data") if isinstance(origin.get("data"), str) else None
    url = origin.get("url") if isinstance(origin.get("url"), str) else None
    if block.get("type") == "image":
        weight = image_tokens("anthropic", data_base64=data, url=url)
        return Part(ref, "media", speaker, weight=weight)
    if block.get("type") != "document":
        return _opaque(ref, speaker, block)
    if origin.get("type") == "content" and isinstance(origin.get("content"), list):
        return _document_of_blocks(ref, speaker, cast(list[JSON], origin["content"]))
    if origin.get("type") in ("text", "content"):
        said = data or compact_json(origin.get("content", ""))
        return Part(ref, "media", speaker, said)
    kind = origin.get("media_type")
    weight = document_tokens(
        "anthropic", data_base64=data, media_type=kind if isinstance(kind, str) else None
    )
    return Part(ref, "media", speaker, weight=weight)


def _document_of_blocks(ref: Ref, speaker: Speaker, items: list[JSON]) -> Part:
    """The text of a document made of blocks, and the tokens of its images."""
    spoken = [item for item in items if is_text_item(item, "text")]
    said = "\n".join(cast(str, item["text"]) for item in spoken)
    weight = 0
    for item in items:
        if isinstance(item, dict) and cast(Object, item).get("type") == "image":
            weight += _media(ref, speaker, cast(Object, item)).weight
        elif not is_text_item(item, "text"):
            weight += len(compact_json(item)) // BYTES_PER_TEXT_TOKEN
    return Part(ref, "media", speaker, said, weight=weight)


def _opaque(ref: Ref, speaker: Speaker, block: JSON) -> Part:
    """A block that is never edited; its text is only counted."""
    text, weight = countable_text("anthropic", block)
    return Part(ref, "opaque", speaker, text, weight=weight)


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _replace_in(block: Object, part: Part, text: str) -> Object:
    """The block with new text, its media and breakpoints; the block itself if it has no text."""
    if part.server:
        return block
    if part.kind == "call":
        return {**block, "input": msgspec.json.decode(text)}
    if part.kind == "text":
        return {**block, "text": text}
    if part.kind == "media" and part.text:
        source = cast(Object, block["source"])
        field = "data" if source.get("type") == "text" else "content"
        inner = source.get(field)
        said = (
            replace_text_items(cast(list[JSON], inner), text, "text")
            if isinstance(inner, list)
            else text
        )
        return {**block, "source": {**source, field: said}}
    if part.kind != "result":
        return block
    content = block.get("content")
    if not isinstance(content, list):
        return {**block, "content": text}
    return {**block, "content": replace_text_items(cast(list[JSON], content), text, "text")}


def _without_items(block: JSON, gone: set[str | int]) -> JSON:
    """A result without some of its content."""
    items = cast(list[JSON], cast(Object, block)["content"])
    return {**cast(Object, block), "content": [i for k, i in enumerate(items) if k not in gone]}
