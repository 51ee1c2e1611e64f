"""Strings cut to the length that one string may have, saying so."""

from __future__ import annotations

from ..check.lengths import LONGEST
from ..codecs.json_tree import compact_text

_ROOM = 100  # characters kept free for the sentence that says where a string was cut


def shortened(text: str) -> str:
    """The text itself, or as much of its head as one string may hold, and a word on the rest."""
    return text if len(text) <= LONGEST else _cut(text, LONGEST - _ROOM)


def as_arguments(text: str) -> str:
    """Text as JSON arguments: an object that holds as much of it as one string may."""
    if len(text) <= LONGEST and len(whole := compact_text({"input": text})) <= LONGEST:
        return whole
    # Escaping makes a character up to twelve long, so that the last share always fits.
    return next(
        said
        for share in (1, 2, 4, 16)
        if len(
            said := compact_text({"input": _cut(text, min(len(text), LONGEST // share) - _ROOM)})
        )
        <= LONGEST
    )


def _cut(text: str, keep: int) -> str:
    return f"{text[:keep]}\n[cut here: {len(text) - keep:,} more characters]"
