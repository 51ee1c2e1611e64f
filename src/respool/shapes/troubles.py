"""Lines that tell of a failure: whatever else goes, they stay, as far as there is room."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from .cutting import Span, line_at, pick

TROUBLE: Final = (
    "error", "fail", "exception", "traceback", "fatal", "panic", "denied", "not found", "cannot",
    "abort", "undefined", "no such", "refused", "timed out",
)  # fmt: skip
WARNING: Final = ("warning", "warn:", "deprecated")
_HARMLESS = re.compile(
    r"\b(?:0|no) (?:error|fail|problem)|fail(?:ed|ures?)?[:=] ?0\b|errors?[:=] ?0\b|without error",
    re.IGNORECASE,
)
_DOUBTFUL = ("0 ", ": 0", "=0", ":0", "= 0", "no ", "No ", "without")  # quick to look for
_LINES_AT_MOST = 2_000  # lines with one word that are looked at, from the start of a text


def lines_with(text: str, words: Sequence[str]) -> list[Span]:
    """The lines in which one of these words stands, in small letters or capitals, in order.

    A word that starts with a line break stands at the start of a line.
    """
    small = f"\n{text.lower()}"
    if len(small) != len(text) + 1:  # a few letters have no small one of the same length
        small = f"\n{text}"
    found: dict[int, int] = {}
    for word in words:
        at = small.find(word)
        seen = 0
        while at >= 0 and seen < _LINES_AT_MOST:
            start, end = line_at(text, at + len(word) - 2)  # by its last character
            found[start] = end
            seen += 1
            at = small.find(word, max(at + 1, end))
    return sorted(found.items())


def troubles(text: str, words: Sequence[str], budget: int) -> tuple[list[Span], int]:
    """The lines that tell of a failure, the first and the last if not all fit; the room left."""
    found = [line for line in lines_with(text, words) if is_trouble(text, line, words)]
    return pick([found], budget)


def is_trouble(text: str, line: Span, words: Sequence[str]) -> bool:
    """Whether a line with such a word says more than that nothing failed."""
    said = text[line[0] : min(line[1], line[0] + 400)]
    if not any(word in said for word in _DOUBTFUL):
        return True
    rest, found = _HARMLESS.subn("", said)
    return not found or any(word in f"\n{rest.lower()}" for word in words)
