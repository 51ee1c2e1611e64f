"""Images and files in a message: their tokens, and text in their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from msgspec import Struct

from ..media import document_tokens, image_size, image_tokens, is_media_marker
from ..regex import lazy_compile
from ..transcript import Part
from ..wire.json import JSON, Object, compact_json, get, put
from ..wire.message_identity import BREAKPOINT_FIELDS, strip_breakpoints

# Types of blocks that a text block may replace.
_MEDIA_TYPES = frozenset(
    {"image", "document", "image_url", "input_audio", "file", "input_image", "input_file"}
)
_TEXT_TYPES = ("text", "input_text", "output_text")  # of Anthropic and of OpenAI's Responses
_IMAGE_TYPES = frozenset({"image", "image_url", "input_image", "computer_screenshot"})
# Whole JSON strings (inside one, every quote is escaped): a data URL, and bare data too long
# to be text. Encrypted content has other keys.
_DATA_URL = lazy_compile(r'(?<=[:,\[ ])"(data:([^",;\\]{0,100})[^",\\]{0,100};base64,[^"\\]*)"')
_DATA = lazy_compile(r'(?<="data":)"([A-Za-z0-9+/_=-]{1000,})"')
_GEMINI_KEYS = ("inlineData", "inline_data", "fileData", "file_data")


class Attachment(Struct, frozen=True):
    """An image or a file that a message holds."""

    unit: Literal["image", "file"]
    max_side: int  # pixels of its longer side; 0: not known
    original: str  # its block as JSON, without cache breakpoints
    is_fixed: bool  # no text block may replace it


def attachment_of(message: JSON, part: Part) -> Attachment | None:
    """The image or file behind a part of a message; None if it is something else."""
    block = get(message, part.ref.path)
    if part.kind != "media" or not isinstance(block, dict):
        return None
    holder = cast(Object, block)
    picture, data = _image_data(holder)
    size = image_size(data) if picture and data else None
    fixed = bool(part.text) or part.speaker == "model" or not _can_be_text(holder, part)
    original = compact_json(strip_breakpoints(holder))
    return Attachment("image" if picture else "file", max(size or (0,)), original, fixed)


def replace_media(message: JSON, part: Part, text: str, type: str) -> JSON:
    """The message with a text block in place of an image or a file; breakpoints stay."""
    block = _object(get(message, part.ref.path))
    if block.get("type") not in _MEDIA_TYPES:
        return message
    breakpoints = {field: block[field] for field in BREAKPOINT_FIELDS if field in block}
    return put(message, part.ref.path, {"type": type, "text": text, **breakpoints})


def replace_text_items(items: list[JSON], text: str, type: str) -> list[JSON]:
    """Items of a mixed result with all their text replaced by one text item; the rest stays.

    The cache breakpoints of the text items move to the one that is left.
    """
    spoken = [k for k, item in enumerate(items) if is_text_item(item, type)]
    breakpoints = {m: items[k][m] for k in spoken for m in BREAKPOINT_FIELDS if m in items[k]}
    if not spoken:
        return [{"type": type, "text": text}, *items]
    first, others = spoken[0], set(spoken)
    new_text: Object = {**cast(Object, items[first]), "text": text, **breakpoints}
    return [
        new_text if k == first else item
        for k, item in enumerate(items)
        if k == first or k not in others
    ]


def is_text_item(item: JSON, type: str) -> bool:
    """Return whether an item is plain text; one of an unknown type is not."""
    holder = cast(Object, item) if isinstance(item, dict) else {}
    text = holder.get("text")
    if holder.get("type") not in (type, *_TEXT_TYPES) or not isinstance(text, str):
        return False
    return not is_media_marker(text)


def has_text(block: JSON) -> bool:
    """Return whether a block has text other than the marker of a removed image or file."""
    text = _object(block).get("text")
    return isinstance(text, str) and not is_media_marker(text)


def countable_text(format: str, block: JSON) -> tuple[str, int]:
    """The text of an opaque block to count, and the tokens of media in it.

    For the marker of a removed image or file, only the marker is counted.
    """
    text = _object(block).get("text")
    if isinstance(text, str) and is_media_marker(text):
        return text, 0
    return text_and_media_tokens(format, strip_breakpoints(block))


def text_and_media_tokens(format: str, value: JSON) -> tuple[str, int]:
    """A value as text without base64 media, and the tokens of those.

    >>> text_and_media_tokens("openai-chat", {"clip": "data:video/mp4;base64," + "AAAA" * 500})
    ('{"clip":""}', 3)
    """
    text = compact_json(value)
    if isinstance(value, str) or not (";base64," in text or '"data":"' in text):
        return text, 0
    weight = sum(_media_tokens(format, found[1], found[2]) for found in _DATA_URL.finditer(text))
    text = _DATA_URL.sub('""', text)
    weight += sum(_media_tokens(format, found[1], None) for found in _DATA.finditer(text))
    return _DATA.sub('""', text), weight


def _media_tokens(format: str, data: str, kind: str | None) -> int:
    """The tokens of media of this type, or of a type detected from the data."""
    if (kind or "").startswith("image/") or (kind is None and image_size(data)):
        return image_tokens(format, data_base64=data, url=None)
    return document_tokens(format, data_base64=data, media_type=kind)


def _can_be_text(block: Object, part: Part) -> bool:
    """Return whether a text block may replace it: not in a screenshot or a response."""
    if any(key in block for key in _GEMINI_KEYS):
        return len(part.ref.path) <= 2
    return block.get("type") in _MEDIA_TYPES


def _image_data(block: Object) -> tuple[bool, str | None]:
    """Return whether a block is an image, and its data or URL, if present."""
    for key in _GEMINI_KEYS:
        held = block.get(key)
        if isinstance(held, dict):
            return _gemini_image_data(cast(Object, held))
    source = _object(block.get("source"))
    url = block.get("image_url")
    data = source.get("data") or _object(url).get("url") or url
    return block.get("type") in _IMAGE_TYPES, data if isinstance(data, str) else None


def _gemini_image_data(held: Object) -> tuple[bool, str | None]:
    kind = held.get("mimeType") or held.get("mime_type") or ""
    data = held.get("data")
    picture = not kind or (isinstance(kind, str) and kind.startswith("image/"))
    return picture, data if isinstance(data, str) else None


def _object(value: object) -> Mapping[str, JSON]:
    return cast(Object, value) if isinstance(value, dict) else {}
