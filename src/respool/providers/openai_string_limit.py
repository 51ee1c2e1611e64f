"""Maximum string length of OpenAI requests: detection and truncation."""

from __future__ import annotations

from collections.abc import Iterator

from ..transcript import BlockPath
from ..wire.json import JSON, Object, compact_json

MAX_STRING_CHARS = 10_485_760  # characters in one string

_STRING_FIELDS = ("output", "arguments", "input", "content", "result")
_LIST_FIELDS = ("content", "output")


def has_long_candidate(item: JSON) -> bool:
    """Return whether a string or list of the item could be too long; a fast pre-check."""
    holder: Object = item
    if not isinstance(item, dict):
        return False
    for value in holder.values():
        if isinstance(value, str):
            if len(value) > MAX_STRING_CHARS:
                return True
        elif isinstance(value, list):
            return True
    return False


def overlong_paths(item: JSON) -> Iterator[BlockPath]:
    """The paths of an item's strings over the limit."""
    holder: Object = item
    if not isinstance(item, dict):
        return
    for field in _STRING_FIELDS:
        said = holder.get(field)
        if isinstance(said, str) and len(said) > MAX_STRING_CHARS:
            yield (field,)
    for field in _LIST_FIELDS:
        items: list[JSON] = holder.get(field, [])
        if isinstance(holder.get(field), list):
            yield from _overlong_block_paths(field, items)


def _overlong_block_paths(field: str, blocks: list[JSON]) -> Iterator[BlockPath]:
    for position, block in enumerate(blocks):
        holder: Object = block
        text = holder.get("text") if isinstance(block, dict) else None
        if isinstance(text, str) and len(text) > MAX_STRING_CHARS:
            yield field, position, "text"


_NOTE_CHARS = 100  # characters reserved for the note on the cut


def truncate(text: str) -> str:
    """The text, cut to the limit with a note if it is longer."""
    return (
        text
        if len(text) <= MAX_STRING_CHARS
        else _truncate_with_note(text, MAX_STRING_CHARS - _NOTE_CHARS)
    )


def arguments_from_text(text: str) -> str:
    """JSON arguments with the text inside, cut to the limit."""
    if (
        len(text) <= MAX_STRING_CHARS
        and len(whole := compact_json({"input": text})) <= MAX_STRING_CHARS
    ):
        return whole
    # Escaping makes a character up to twelve long, so the last share always fits.
    return next(
        said
        for share in (1, 2, 4, 16)
        if len(
            said := compact_json(
                {
                    "input": _truncate_with_note(
                        text, min(len(text), MAX_STRING_CHARS // share) - _NOTE_CHARS
                    )
                }
            )
        )
        <= MAX_STRING_CHARS
    )


def _truncate_with_note(text: str, keep: int) -> str:
    return f"{text[:keep]}\n[cut here: {len(text) - keep:,} more characters]"
