"""How long one string of an OpenAI request may be, and which strings of an item are longer."""

from __future__ import annotations

from collections.abc import Iterator

from ..codecs.json_tree import JSON, Object
from ..transcript import Path

LONGEST = 10_485_760  # characters in one string

_SINGLE = ("output", "arguments", "input", "content", "result")
_LISTED = ("content", "output")


def may_be_long(item: JSON) -> bool:
    """Whether any string or list directly in the item could hold a string too long; quick."""
    holder: Object = item
    if not isinstance(item, dict):
        return False
    for value in holder.values():
        if isinstance(value, str):
            if len(value) > LONGEST:
                return True
        elif isinstance(value, list):
            return True
    return False


def too_long(item: JSON) -> Iterator[Path]:
    """The paths of an item's strings that are longer than one string may be."""
    holder: Object = item
    if not isinstance(item, dict):
        return
    for field in _SINGLE:
        said = holder.get(field)
        if isinstance(said, str) and len(said) > LONGEST:
            yield (field,)
    for field in _LISTED:
        items: list[JSON] = holder.get(field, [])
        if isinstance(holder.get(field), list):
            yield from _too_long_blocks(field, items)


def _too_long_blocks(field: str, blocks: list[JSON]) -> Iterator[Path]:
    for position, block in enumerate(blocks):
        holder: Object = block
        text = holder.get("text") if isinstance(block, dict) else None
        if isinstance(text, str) and len(text) > LONGEST:
            yield field, position, "text"
