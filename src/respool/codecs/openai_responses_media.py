"""Images and files in OpenAI Responses: what they weigh, wherever an item holds them."""

from __future__ import annotations

import re

from ..media import document_tokens, image_tokens
from ..transcript import Part, Ref, Speaker
from .json_tree import JSON, Object, compact_text

_FORMAT = "openai-responses"
_DATA_URL = "data:image/"
# A whole JSON string: within a string every quote has a backslash before it.
_PICTURE = re.compile(r'(?<=[:,\[])"(data:image/[^",\\]*;base64,[^"\\]*)"')


def image_part(ref: Ref, speaker: Speaker, block: Object) -> Part:
    """An image or a screenshot."""
    url, data = _split_data_url(block.get("image_url"))
    said = block.get("detail")
    detail = said if isinstance(said, str) and said else None
    weight = image_tokens(_FORMAT, data_base64=data, url=url, detail=detail)
    return Part(ref, "media", speaker, weight=weight)


def file_part(ref: Ref, speaker: Speaker, block: Object) -> Part:
    """A file, by its pages or its length."""
    _, data = _split_data_url(block.get("file_data"))
    name = block.get("filename")
    kind = "application/pdf" if not isinstance(name, str) or name.endswith(".pdf") else None
    weight = document_tokens(_FORMAT, data_base64=data, media_type=kind)
    return Part(ref, "media", speaker, weight=weight)


def picture_tokens(data_base64: str) -> int:
    """What a generated picture weighs."""
    return image_tokens(_FORMAT, data_base64=data_base64, url=None)


def pictures_apart(value: JSON) -> tuple[str, list[str]]:
    """A value as text without the pictures that it holds as data URLs, and those."""
    text = compact_text(value)
    if _DATA_URL not in text or isinstance(value, str):
        return text, []
    return _PICTURE.sub('""', text), [found[1] for found in _PICTURE.finditer(text)]


def _split_data_url(value: object) -> tuple[str | None, str | None]:
    """A link, or the base64 data of a data URL (or of a bare string that is no link)."""
    if not isinstance(value, str):
        return None, None
    if value.startswith(("http:", "https:")):
        return value, None
    return None, value.partition(",")[2] if value.startswith("data:") else value
