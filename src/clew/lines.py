"""Where each line of a conversation's results and writes stands, to find what is shown again."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, cast

import msgspec
import xxhash

from .transcript import Part

# How tools number the lines they show: "    12→", "    12\t", "12: ", "00012| ".
_NUMBERED: Final = re.compile(r" {0,8}([0-9]{1,8})(?:→|\t|: ?|\| ?)")
_LONGEST_NUMBER: Final = 18  # characters that such a number takes at most
_LEAST_LINE: Final = 8  # characters; a shorter line stands everywhere
_LONGEST_LINE: Final = 2_000  # characters of a line that is looked for
_LEAST_TEXT: Final = 200  # characters; a shorter text is not worth a look
_MOST_PLACES: Final = 8  # of one line that are remembered after the first
_MOST_LINES: Final = 500_000  # places that one conversation may take
_OFFSET_BITS: Final = 32

NO_NUMBER: Final = -1
Place = tuple[int, int]  # a part, and where in what it says a line begins


class Line(msgspec.Struct, frozen=True, gc=False):
    """A line as it came, and what it says behind the number that a tool put before it."""

    whole: str
    number: int  # NO_NUMBER: it has none
    bare: str

    @property
    def tells(self) -> bool:
        """Whether it is worth looking for: not so short that it stands everywhere."""
        return _LEAST_LINE <= len(self.bare) <= _LONGEST_LINE


def line_of(whole: str) -> Line:
    """A line taken apart.

    >>> line_of("    12→return loom")
    Line(whole='    12→return loom', number=12, bare='return loom')
    """
    found = _NUMBERED.match(whole)
    if found is None:
        return Line(whole, NO_NUMBER, whole)
    return Line(whole, int(found[1]), whole[found.end() :])


def said(part: Part) -> str:
    """What a part shows a reader: of a call the strings among its arguments."""
    if part.kind != "call":
        return part.text
    try:
        return "\n".join(_strings(msgspec.json.decode(part.text)))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return part.text


def _strings(value: object) -> list[str]:
    """All strings in a value, in their order; names of fields are none."""
    found: list[str] = []
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, dict):
            waiting += reversed(cast(dict[str, object], one).values())
        elif isinstance(one, list):
            waiting += reversed(cast(list[object], one))
    return found


def same_until(lines: Sequence[Line], at: int, end: int, text: str, start: int) -> int:
    """Up to where lines, from one on, are those of a text from this place on.

    Line numbers may differ where they can be told: from the line before, or from the text.
    """
    while at < end and start <= len(text):
        most = start + len(lines[at].whole) + _LONGEST_NUMBER + 1
        stop = text.find("\n", start, most)
        if stop < 0:
            if most < len(text):
                break  # a longer line: not looked at any further, it may be very long
            stop = len(text)
        if not _is_same(lines, at, text[start:stop]):
            break
        at += 1
        start = stop + 1
    return at


def _is_same(lines: Sequence[Line], at: int, other: str) -> bool:
    line = lines[at]
    if line.whole == other:
        return True
    shown = line_of(other)
    if line.bare != shown.bare:
        return False
    if line.number in (NO_NUMBER, shown.number):
        return True
    before = lines[at - 1].number if at else NO_NUMBER
    return before != NO_NUMBER and line.number == before + 1


class Lines:
    """The first places of every line that tells; append-only, and written by one at a time."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}  # by the hash of a line
        self._more: dict[int, list[int]] = {}  # the places after the first, of lines shown again
        self._calls: dict[int, str] = {}  # what calls show, which takes decoding
        self._count = 0

    def note(self, position: int, part: Part) -> None:
        """Remember where the lines of one part stand; parts come in the order of the history."""
        text = said(part)
        if not _LEAST_TEXT <= len(text) < 1 << _OFFSET_BITS:
            return
        if part.kind == "call":
            self._calls[position] = text
        place = position << _OFFSET_BITS
        for whole in text.split("\n"):
            if _LEAST_LINE <= len(whole) <= _LONGEST_LINE + _LONGEST_NUMBER:
                line = line_of(whole)
                if line.tells:
                    self._add(_hash(line.bare), place)
            place += len(whole) + 1

    def _add(self, key: int, place: int) -> None:
        if self._count >= _MOST_LINES:
            return
        if self._first.setdefault(key, place) != place:
            more = self._more.setdefault(key, [])
            if len(more) >= _MOST_PLACES:
                return
            more.append(place)
        self._count += 1

    def places(self, line: Line, before: int) -> Sequence[Place]:
        """Where a line, or one with the same hash, stands in parts before this one."""
        key = _hash(line.bare)
        first = self._first.get(key)
        end = before << _OFFSET_BITS
        if first is None or first >= end:
            return ()
        more = self._more.get(key, ())
        found = (first, *more[: bisect_left(more, end)])
        return [(place >> _OFFSET_BITS, place & ((1 << _OFFSET_BITS) - 1)) for place in found]

    def text(self, position: int, part: Part) -> str:
        """What a part that was noted shows, in which its places are."""
        return self._calls.get(position, part.text)


def _hash(line: str) -> int:
    """The same in every process: which lines share one may decide which are found."""
    return xxhash.xxh3_64_intdigest(line.encode("utf-8", "surrogatepass"))
