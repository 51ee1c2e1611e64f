"""Excerpt of a text: the lines within a budget, holes for the rest."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from ..markers import gap_line
from ..regex import lazy_compile

# Line numbers as agents' tools, `cat -n`, `nl -ba` and `rg -n` print them
LINE_NUMBER: Final = r"[ ]{0,6}\d{1,7}(?:→|\t|: ?|\| ?)"
_NUMBERED_LINE: Final = lazy_compile(r"[ ]{0,6}(\d{1,7})(?:→|\t|: ?|\| ?)")
LineSpan = tuple[int, int]  # whole lines of a text: start of the first, end of the last
MIN_LINE_CHARS = 160  # characters of a line that always stay
_HOLE_CHARS = 15  # approximate characters of a hole
_MIN_GAP_CHARS = 24  # characters; a hole in place of fewer would save nothing
_MIN_LINE_GAP_CHARS = 60  # characters; a hole in place of one such line would save almost nothing


class ShapedText(Struct, frozen=True, gc=False):
    """A text with holes, and the amount that was cut, in its own unit."""

    text: str
    removed: int
    total: int
    unit: str


def is_numbered(text: str) -> bool:
    """Check whether the lines of a text are numbered, by its first two lines."""
    first = _NUMBERED_LINE.match(text)
    if first is None:
        return False
    after = text.find("\n") + 1
    if after in (0, len(text)):
        return True
    second = _NUMBERED_LINE.match(text, after)
    return second is not None and int(second[1]) == int(first[1]) + 1


def line_patterns(
    pattern: str, number: str = LINE_NUMBER
) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns for the beginning of lines, without and with line numbers.

    Each match begins at the line break before its line, which is found fast.
    """
    return lazy_compile(rf"\n{pattern}"), lazy_compile(rf"\n{number}{pattern}")


def line_start(text: str, at: int) -> int:
    """The start of the line at this offset."""
    return text.rfind("\n", 0, at) + 1


def line_end(text: str, at: int) -> int:
    """The start of the line after the one at this offset."""
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def line_at(text: str, at: int) -> LineSpan:
    """The line at this offset."""
    return line_start(text, at), line_end(text, at)


def line_count(text: str, start: int, end: int) -> int:
    """The number of lines in a span of whole lines."""
    return text.count("\n", start, end) + (start < end and text[end - 1] != "\n")


def max_line_chars(budget: int) -> int:
    """The characters of one line that may stay within this budget."""
    return max(MIN_LINE_CHARS, budget // 4)


def head_of(text: str, budget: int, start: int = 0) -> LineSpan:
    """The whole lines from `start` on that fit, at least one."""
    end = text.rfind("\n", start, max(start, start + budget)) + 1
    return start, end if end > start else line_end(text, start)


def tail_of(text: str, budget: int) -> LineSpan:
    """The whole lines before the end that fit, at least one."""
    last_line = line_start(text, max(0, len(text) - 1 - text.endswith("\n")))
    start = text.find("\n", max(0, len(text) - budget - 1)) + 1
    return (min(start, last_line) if start else last_line), len(text)


def split_lines(text: str, spans: Iterable[LineSpan]) -> list[LineSpan]:
    """The single lines of these spans."""
    found: list[LineSpan] = []
    for start, end in spans:
        at = start
        *lines, last = text[start:end].split("\n")
        for line in lines:
            after = at + len(line) + 1
            found.append((at, after))
            at = after
        if last:
            found.append((at, end))
    return found


def select_spans(ranks: Iterable[Sequence[LineSpan]], budget: int) -> tuple[list[LineSpan], int]:
    """The spans that fit the budget, rank by rank, and the remaining budget.

    Of the first rank that does not fit, both ends are kept.
    """
    max_chars = max_line_chars(budget) + _HOLE_CHARS
    chosen: dict[LineSpan, None] = {}
    for rank in ranks:
        new = [span for span in rank if span not in chosen] if chosen else rank
        costs = _costs(new, max_chars)
        needed = sum(costs)
        if needed > budget:
            return [*chosen, *_ends(new, costs, budget)], 0
        chosen.update(dict.fromkeys(new))
        budget -= needed
    return [*chosen], budget


def _costs(rank: Sequence[LineSpan], limit: int) -> list[int]:
    """The cost of each span, with a hole before it unless it is adjacent to the previous one."""
    costs: list[int] = []
    last = -1
    for start, end in rank:
        size = end - start
        costs.append((size if size < limit else limit) + (0 if start == last else _HOLE_CHARS))
        last = end
    return costs


def _ends(rank: Sequence[LineSpan], costs: Sequence[int], budget: int) -> list[LineSpan]:
    """Spans from both ends of a rank, two from the start for each from the end, while they fit."""
    first, last = 0, len(rank)
    turn = 0
    while first < last:
        from_end = turn % 3 == 2
        budget -= costs[last - 1] if from_end else costs[first]
        if budget < 0:
            break
        first, last = (first, last - 1) if from_end else (first + 1, last)
        turn += 1
    return [*rank[:first], *rank[last:]]


def merge_spans(spans: Iterable[LineSpan]) -> list[LineSpan]:
    """The spans in order, without overlaps."""
    found: list[LineSpan] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def gaps_between(text: str, spans: Iterable[LineSpan]) -> list[LineSpan]:
    """The gaps between spans that are longer than a hole."""
    at = 0
    gaps: list[LineSpan] = []
    for start, end in (*merge_spans(spans), (len(text), len(text))):
        if start - at > _MIN_LINE_GAP_CHARS or (
            start - at > _MIN_GAP_CHARS and line_end(text, at) < start
        ):
            gaps.append((at, start))
        at = end
    return gaps


def cut_to_spans(
    text: str,
    spans: Iterable[LineSpan],
    budget: int,
    *,
    unit: str = "lines",
    others: Sequence[int] = (),
    limit: int | None = None,
    notes: Sequence[tuple[int, str]] = (),
) -> ShapedText | None:
    """The text with only these lines, and holes; None if nothing is left out.

    Each line is one `unit`, except those that start at `others`: if one of them is left out, the
    hole counts lines. A line longer than `limit` keeps its beginning. `notes` are appended to the
    lines that contain their offsets.
    """
    gaps = gaps_between(text, spans)
    if others and _has_any_in(others, gaps):
        unit, others = "lines", ()
    pieces: list[str] = []
    at = removed = unsaid = 0
    longest = limit or max_line_chars(budget)
    for start, end in (*gaps, (len(text), len(text))):
        if start - at <= longest and not notes:
            pieces.append(text[at:start])
        else:
            kept, clipped = _clip_lines(text, (at, start), longest, notes)
            unsaid += clipped
            pieces.append(kept)
        if end > start:
            count = line_count(text, start, end)
            removed += count
            pieces.append(f"{gap_line(count, unit)}\n")
        at = end
    excerpt = "".join(pieces).removesuffix("\n")
    if removed:
        return ShapedText(excerpt, removed, line_count(text, 0, len(text)) - len(others), unit)
    return ShapedText(excerpt, unsaid, len(text), "chars") if unsaid else None


def _has_any_in(places: Sequence[int], gaps: Sequence[LineSpan]) -> bool:
    """Check whether one of these sorted offsets lies in a gap."""
    at = 0
    for place in places:
        while at < len(gaps) and gaps[at][1] <= place:
            at += 1
        if at < len(gaps) and gaps[at][0] <= place:
            return True
    return False


def _clip_lines(
    text: str, span: LineSpan, limit: int, notes: Sequence[tuple[int, str]]
) -> tuple[str, int]:
    """Whole lines with their notes, clipped to `limit`; the number of removed characters."""
    start, end = span
    if not notes and _max_line_length(text[start:end]) <= limit + _MIN_GAP_CHARS:
        return text[start:end], 0
    first = bisect_left(notes, start, key=_note_position)
    notes_by_line = {
        line_end(text, place): note
        for place, note in notes[first : bisect_left(notes, end, key=_note_position)]
    }
    lines: list[str] = []
    unsaid = 0
    for line_from, line_to in split_lines(text, [span]):
        line = text[line_from:line_to].removesuffix("\n")
        short, gap = clip_line(line, limit)
        unsaid += len(line) - len(short)
        ended = "\n" if text[line_to - 1] == "\n" else ""
        lines.append(f"{short}{gap}{notes_by_line.get(line_to, '')}{ended}")
    return "".join(lines), unsaid


def _max_line_length(text: str) -> int:
    """The length of the longest line."""
    return max(map(len, text.split("\n")))


def _note_position(note: tuple[int, str]) -> int:
    return note[0]


def clip_line(line: str, limit: int) -> tuple[str, str]:
    """The beginning of a long line and the hole at its end, or the whole line and no hole."""
    if len(line) <= limit + _MIN_GAP_CHARS:
        return line, ""
    end = _phrase_end(line, limit)
    return (
        (line[:end], gap_line(len(line) - end, "chars"))
        if end + _HOLE_CHARS < len(line)
        else (line, "")
    )


def _phrase_end(line: str, limit: int) -> int:
    """The end of a sentence, or else of a word, near this offset."""
    sentence = line.rfind(". ", limit // 2, limit)
    if sentence > 0:
        return sentence + 1
    word = line.rfind(" ", limit - limit // 8, limit)
    return word if word > 0 else grapheme_boundary(line, limit)


def grapheme_boundary(text: str, at: int) -> int:
    """The next offset that does not split a character from its accents and joiners."""
    while at < len(text) and (
        unicodedata.combining(text[at])
        or text[at] in "\u200d\ufe0e\ufe0f"
        or "\U0001f3fb" <= text[at] <= "\U0001f3ff"
        or text[at - 1 : at] == "\u200d"
    ):
        at += 1
    return at
