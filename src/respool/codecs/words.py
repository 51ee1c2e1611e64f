"""Messages that only say words: clients spell them as a string, or as one block to hang a mark on.

Such a message is the same in both spellings, as the mark that makes the difference is no change.
"""

from __future__ import annotations

import re
from typing import cast

import msgspec

from ..transcript import Part, Ref
from .json_tree import JSON, Object
from .marks import MARKS

_RAW_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RAW_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_WORDS = re.compile(
    rb'\s*\{\s*"role"\s*:\s*"(?:user|system|developer)"\s*,\s*"content"\s*:\s*'
    rb'(?:"|\[\s*\{\s*"type"\s*:\s*"text")'
)
_BLOCK = {"type", "text", *MARKS}


def words_identity(raw: memoryview) -> bytes | None:
    """Bytes that stand for a message of words in either spelling; None when it is no such one."""
    if _WORDS.match(raw) is None:
        return None
    try:
        fields = _RAW_OBJECT.decode(raw)
        content = bytes(fields.pop("content"))
        said = content if content[:1] == b'"' else _only_text(content)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    if said is None:
        return None
    rest = sorted((name, bytes(one)) for name, one in fields.items() if name not in MARKS)
    return b"".join([said, *(name.encode() + value for name, value in rest)])


def _only_text(content: bytes) -> bytes | None:
    """The text of the one block that this content is, as it is spelled."""
    blocks = _RAW_ARRAY.decode(content)
    if len(blocks) != 1:
        return None
    block = _RAW_OBJECT.decode(blocks[0])
    return bytes(block["text"]) if block.keys() <= _BLOCK and "text" in block else None


def as_words(message: JSON) -> JSON:
    """The message with one plain text block spelled as a string; else the same object."""
    holder: Object = message
    content: JSON = holder.get("content") if isinstance(message, dict) else None
    blocks: list[JSON] = content
    if not isinstance(content, list) or len(blocks) != 1 or not isinstance(blocks[0], dict):
        return holder
    block = cast(Object, blocks[0])
    if block.keys() != {"type", "text"} or block["type"] != "text":
        return holder
    return {**holder, "content": block["text"]}


def settled(message: JSON, part: Part) -> Part:
    """A part of words where they stand now, if the message was spelled the other way when read."""
    content = cast(Object, message).get("content") if isinstance(message, dict) else None
    path = part.ref.path
    if part.kind != "text":
        return part
    if path == ("content", 0) and isinstance(content, str):
        path = ("content",)
    elif path == ("content",) and isinstance(content, list):
        path = ("content", 0)
    if path == part.ref.path:
        return part
    return Part(Ref(part.ref.row, path), part.kind, part.speaker, part.text)
