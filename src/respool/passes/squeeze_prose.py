"""Remove redundant whitespace from old assistant text; code stays unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..edits import Offer
from ..markers import find_marker, reference
from ..policy import Policy
from ..regex import lazy_compile
from ..transcript import Unit
from .base import View, trim_offer

_FENCE_PATTERN = lazy_compile(r"[ \t>]*+(`{3,}|~{3,})(.*)")
# An indent, a quote sign, a list bullet.
_LEAD_PATTERN = lazy_compile(r"[ \t>]*+(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?")
# Inline code, tables, columns, drawings.
_NOT_PROSE_PATTERN = lazy_compile(r"`|\t|\||   |[\u2500-\u257f]")
_INDENTED = (" " * 4, "\t")


def squeeze_prose(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer old assistant text without trailing spaces, double spaces and double blank lines."""
    transcript = view.transcript
    before, now = (_old_units(view, count) for count in _old_exchanges(view))
    for unit in transcript.units[before:now]:
        for position in _model_texts(view, unit):
            offer = _offer(view, position)
            if offer is not None:
                yield offer


def _old_exchanges(view: View) -> tuple[int, int]:
    """Number of old exchanges at the last evaluation, and now."""
    return view.aged_from, max(view.aged_from, view.aged_until)


def _old_units(view: View, exchanges: int) -> int:
    """Number of units whose exchanges are all among these old ones."""
    if not exchanges:
        return 0
    last = view.transcript.exchanges[exchanges - 1]
    unit = view.transcript.units[last.unit]
    return last.unit + (unit.exchanges[-1] == last.ordinal)


def _model_texts(view: View, unit: Unit) -> Iterator[int]:
    """Texts of the model in a unit, if no reasoning is bound to them."""
    if unit.locked:
        return
    for position in range(unit.parts[0], unit.answers_from):
        part = view.transcript.parts[position]
        if part.kind == "text" and part.speaker == "model" and view.can_rewrite(position):
            yield position


def _offer(view: View, position: int) -> Offer | None:
    part = view.transcript.parts[position]
    text = _squeeze(part.text)
    if len(text) >= len(part.text) or not text.strip() or find_marker(part.text) is not None:
        return None
    saved = view.saved_by(position, text)
    if saved <= 0:
        return None
    evidence = f"{len(part.text) - len(text):,} of {len(part.text):,} chars"
    ref = reference(part.text)
    return trim_offer(
        view, position, text, original=ref, reason="whitespace", evidence=evidence, saved=saved
    )


def _squeeze(text: str) -> str:
    """Prose without redundant whitespace; fenced and indented code and tables stay unchanged.

    >>> _squeeze("One.  Two.   \\n\\n\\n\\n```\\na  b\\n```")
    'One. Two.\\n\\n```\\na  b\\n```'
    """
    if not ("  " in text or " \n" in text or "\n\n\n" in text) or "<pre" in text.lower():
        return text
    kept: list[str] = []
    blank: list[str] = []  # blank lines since the last other line
    fence, code = "", False  # the fence of the open code block; the last line was indented
    for line in text.split("\n"):
        if not fence and not line.strip():
            blank.append(line)
            continue
        edge, indented = _FENCE_PATTERN.match(line), line.startswith(_INDENTED)
        kept += blank if code and indented else [""] * bool(blank and kept)
        blank, code = [], indented and not fence
        kept.append(line if fence or edge or indented else _collapse_spaces(line.rstrip(" \t")))
        fence = _fence_after(fence, edge)
    return "\n".join((*kept, *[""] * bool(blank)))


def _fence_after(fence: str, edge: re.Match[str] | None) -> str:
    """The fence that is open after a line."""
    if edge is None:
        return fence
    if not fence:
        return "" if edge[1][0] in edge[2] else edge[1]  # "```x``` y" is inline code
    closes = edge[1].startswith(fence) and not edge[2].strip()
    return "" if closes else fence


def _collapse_spaces(line: str) -> str:
    """A line of prose with single spaces between words; its indent stays."""
    if "  " not in line:
        return line
    lead = _LEAD_PATTERN.match(line)
    start = lead.end() if lead else 0
    words = line[start:]
    if "  " not in words or _NOT_PROSE_PATTERN.search(words):
        return line
    return line[:start] + words.replace("  ", " ")
