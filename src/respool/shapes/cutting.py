"""Which lines of a text stay, and the text that they make: whole lines, with holes between them."""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from ..marker import hole
from .shaped import Shaped

Span = tuple[int, int]  # whole lines of a text: from the start of one to behind the end of another

LEAST_LINE = 160  # characters of a line that stay in any case
_HOLE = 15  # about as many characters as a hole takes
_TOO_SMALL = 24  # characters; a hole instead of so few would save nothing
_SHORT_LINE = 60  # characters; a hole instead of one such line would save next to nothing


def line_start(text: str, at: int) -> int:
    """Where the line begins that this place is in."""
    return text.rfind("\n", 0, at) + 1


def line_end(text: str, at: int) -> int:
    """Where the line after the one of this place begins."""
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def line_at(text: str, at: int) -> Span:
    """The line that this place is in."""
    return line_start(text, at), line_end(text, at)


def line_count(text: str, start: int, end: int) -> int:
    """How many lines a stretch of whole lines has."""
    return text.count("\n", start, end) + (start < end and text[end - 1] != "\n")


def longest_line(budget: int) -> int:
    """How much of one line may stay when a text is cut to so much room."""
    return max(LEAST_LINE, budget // 4)


def head_of(text: str, budget: int, start: int = 0) -> Span:
    """As many whole lines from `start` on as fit, one of them in any case."""
    end = text.rfind("\n", start, max(start, start + budget)) + 1
    return start, end if end > start else line_end(text, start)


def tail_of(text: str, budget: int) -> Span:
    """As many whole lines before the end as fit, one of them in any case."""
    least = line_start(text, max(0, len(text) - 1 - text.endswith("\n")))
    start = text.find("\n", max(0, len(text) - budget - 1)) + 1
    return (min(start, least) if start else least), len(text)


def lines_in(text: str, spans: Iterable[Span]) -> list[Span]:
    """The single lines of these spans."""
    found: list[Span] = []
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


def pick(ranks: Iterable[Sequence[Span]], budget: int) -> tuple[list[Span], int]:
    """The spans that fit into the room, and what is left of it.

    Rank after rank; of the first one that does not fit, its two ends.
    """
    most = longest_line(budget) + _HOLE
    chosen: dict[Span, None] = {}
    for rank in ranks:
        new = [span for span in rank if span not in chosen] if chosen else rank
        costs = _costs(new, most)
        needed = sum(costs)
        if needed > budget:
            return [*chosen, *_ends(new, costs, budget)], 0
        chosen.update(dict.fromkeys(new))
        budget -= needed
    return [*chosen], budget


def _costs(rank: Sequence[Span], limit: int) -> list[int]:
    """What each span takes, with a hole before it unless it follows the one before."""
    costs: list[int] = []
    last = -1
    for start, end in rank:
        size = end - start
        costs.append((size if size < limit else limit) + (0 if start == last else _HOLE))
        last = end
    return costs


def _ends(rank: Sequence[Span], costs: Sequence[int], budget: int) -> list[Span]:
    """From the beginning of a rank two spans, from its end one, and so on while there is room."""
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


def joined(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, without overlaps."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def gaps_between(text: str, spans: Iterable[Span]) -> list[Span]:
    """What the spans leave out, where a hole is shorter than that."""
    at = 0
    gaps: list[Span] = []
    for start, end in (*joined(spans), (len(text), len(text))):
        if start - at > _SHORT_LINE or (start - at > _TOO_SMALL and line_end(text, at) < start):
            gaps.append((at, start))
        at = end
    return gaps


def cut(
    text: str, spans: Iterable[Span], budget: int, unit: str = "lines", others: Sequence[int] = (),
    limit: int | None = None, notes: Sequence[tuple[int, str]] = (),
) -> Shaped | None:  # fmt: skip
    """The text with only these lines, and holes; None when nothing is left out.

    Each line is one `unit`, except those that start at `others`: where one of them is left out,
    what is left out is told in lines. Of a longer line than `most` the beginning stays. `notes`
    are said at the end of the lines in which they stand.
    """
    gaps = gaps_between(text, spans)
    if others and _any_in(others, gaps):
        unit, others = "lines", ()
    pieces: list[str] = []
    at = gone = unsaid = 0
    longest = limit or longest_line(budget)
    for start, end in (*gaps, (len(text), len(text))):
        if start - at <= longest and not notes:
            pieces.append(text[at:start])
        else:
            kept, clipped = _clipped(text, (at, start), longest, notes)
            unsaid += clipped
            pieces.append(kept)
        if end > start:
            count = line_count(text, start, end)
            gone += count
            pieces.append(f"{hole(count, unit)}\n")
        at = end
    said = "".join(pieces).removesuffix("\n")
    if gone:
        return Shaped(said, gone, line_count(text, 0, len(text)) - len(others), unit)
    return Shaped(said, unsaid, len(text), "chars") if unsaid else None


def _any_in(places: Sequence[int], gaps: Sequence[Span]) -> bool:
    """Whether one of these places, which are in order, lies in a gap."""
    at = 0
    for place in places:
        while at < len(gaps) and gaps[at][1] <= place:
            at += 1
        if at < len(gaps) and gaps[at][0] <= place:
            return True
    return False


def _clipped(text: str, span: Span, limit: int, notes: Sequence[tuple[int, str]]) -> tuple[str, int]:
    """Whole lines with their notes and none longer than that; how many characters are gone."""
    start, end = span
    if not notes and _longest(text[start:end]) <= limit + _TOO_SMALL:
        return text[start:end], 0
    first = bisect_left(notes, start, key=_place)
    said = {
        line_end(text, place): note
        for place, note in notes[first : bisect_left(notes, end, key=_place)]
    }
    lines: list[str] = []
    unsaid = 0
    for line_from, line_to in lines_in(text, [span]):
        line = text[line_from:line_to].removesuffix("\n")
        short, gap = clip(line, limit)
        unsaid += len(line) - len(short)
        ended = "\n" if text[line_to - 1] == "\n" else ""
        lines.append(f"{short}{gap}{said.get(line_to, '')}{ended}")
    return "".join(lines), unsaid


def _longest(text: str) -> int:
    """How long the longest line is."""
    return max(map(len, text.split("\n")))


def _place(note: tuple[int, str]) -> int:
    return note[0]


def clip(line: str, limit: int) -> tuple[str, str]:
    """The beginning of a line that is too long, and the hole at its end; or all of it, and none."""
    if len(line) <= limit + _TOO_SMALL:
        return line, ""
    end = _phrase_end(line, limit)
    return (line[:end], hole(len(line) - end, "chars")) if end + _HOLE < len(line) else (line, "")


def _phrase_end(line: str, limit: int) -> int:
    """Behind a sentence, or else behind a word, near the place that is asked for."""
    sentence = line.rfind(". ", limit // 2, limit)
    if sentence > 0:
        return sentence + 1
    word = line.rfind(" ", limit - limit // 8, limit)
    return word if word > 0 else character_border(line, limit)


def character_border(text: str, at: int) -> int:
    """The next place that does not part a character from its accents and joiners."""
    while at < len(text) and (
        unicodedata.combining(text[at])
        or text[at] in "\u200d\ufe0e\ufe0f"
        or "\U0001f3fb" <= text[at] <= "\U0001f3ff"
        or text[at - 1 : at] == "\u200d"
    ):
        at += 1
    return at
