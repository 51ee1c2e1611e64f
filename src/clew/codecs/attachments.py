"""Images and files in a message: what they are, and text in their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from msgspec import Struct

from ..media import image_size, stands_for_media
from ..transcript import Part
from .json_tree import JSON, Object, compact_text, get, put
from .marks import MARKS, strip_marks

# Blocks in whose place a block of text may stand.
_BLOCKS = frozenset(
    {"image", "document", "image_url", "input_audio", "file", "input_image", "input_file"}
)
_PICTURES = frozenset({"image", "image_url", "input_image", "computer_screenshot"})
_GEMINI = ("inlineData", "inline_data", "fileData", "file_data")


class Attachment(Struct, frozen=True):
    """An image or a file that a message holds."""

    unit: Literal["image", "file"]
    side: int  # pixels of its longer side; 0: not known
    original: str  # its block as JSON, without marks
    fixed: bool  # no text may stand in its place


def attachment_of(message: JSON, part: Part) -> Attachment | None:
    """The image or file that a part of this message is; None: it is something else."""
    block = get(message, part.ref.path)
    if part.kind != "media" or not isinstance(block, dict):
        return None
    holder = cast(Object, block)
    picture, data = _picture(holder)
    size = image_size(data) if picture and data else None
    fixed = bool(part.text) or part.speaker == "model" or not _may_be_text(holder, part)
    original = compact_text(strip_marks(holder))
    return Attachment("image" if picture else "file", max(size or (0,)), original, fixed)


def replace_media(message: JSON, part: Part, text: str, type: str) -> JSON:
    """The message with a block of text in place of an image or a file; its marks stay."""
    block = _object(get(message, part.ref.path))
    if block.get("type") not in _BLOCKS:
        return message
    marks = {mark: block[mark] for mark in MARKS if mark in block}
    return put(message, part.ref.path, {"type": type, "text": text, **marks})


def says_text(block: JSON) -> bool:
    """Whether a block has words of its own, and is not the marker of what stood in its place."""
    text = _object(block).get("text")
    return isinstance(text, str) and not stands_for_media(text)


def counted_text(block: JSON) -> str:
    """What a block that is carried along is counted by: its words, where it is such a marker."""
    holder = _object(block)
    text = holder.get("text")
    if isinstance(text, str) and stands_for_media(text):
        return text
    return compact_text(strip_marks(block))


def _may_be_text(block: Object, part: Part) -> bool:
    """Whether the wire takes a block of text here: not in a screenshot, nor inside a response."""
    if any(key in block for key in _GEMINI):
        return len(part.ref.path) <= 2
    return block.get("type") in _BLOCKS


def _picture(block: Object) -> tuple[bool, str | None]:
    """Whether a block is a picture, and its data, or its address, where it shows."""
    for key in _GEMINI:
        held = block.get(key)
        if isinstance(held, dict):
            return _gemini_picture(cast(Object, held))
    source = _object(block.get("source"))
    url = block.get("image_url")
    data = source.get("data") or _object(url).get("url") or url
    return block.get("type") in _PICTURES, data if isinstance(data, str) else None


def _gemini_picture(held: Object) -> tuple[bool, str | None]:
    kind = held.get("mimeType") or held.get("mime_type") or ""
    data = held.get("data")
    picture = not kind or (isinstance(kind, str) and kind.startswith("image/"))
    return picture, data if isinstance(data, str) else None


def _object(value: object) -> Mapping[str, JSON]:
    return cast(Object, value) if isinstance(value, dict) else {}
