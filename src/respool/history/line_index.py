"""Index of the lines in results and writes, to find repeated lines."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, cast

import msgspec

from ..regex import lazy_compile
from ..transcript import Part

UNNUMBERED: Final = 0  # number of an unknown hash
_FIRST_SLOTS: Final = 1 << 10  # initial slots; always a power of two
_SMALL: Final = 1 << 15  # slots up to which fewer resizes matter more than memory
_FULL: Final = 0.6  # load factor

# Line numbers as tools print them: "    12→", "    12\t", "12: ", "00012| ".
_NUMBER: Final = r" {0,8}([0-9]{1,8})(?:→|\t|: ?|\| ?)"
NUMBERED: Final = lazy_compile(_NUMBER)
_NUMBERED_AFTER: Final = lazy_compile(rf"\n{_NUMBER}")  # a line after another
_MAX_NUMBER_CHARS: Final = 18  # maximum length of such a number
_MIN_LINE_CHARS: Final = 8  # characters; shorter lines occur everywhere
_MAX_LINE_CHARS: Final = 2_000  # maximum length of an indexed line
MIN_TEXT_CHARS: Final = 200  # characters; shorter texts are not indexed
_MAX_PLACES: Final = 8  # repeats of one line that are stored
_REPEAT_BYTES: Final = 200  # bytes per repeated line
_MAX_LINES: Final = 500_000  # lines stored per conversation
NO_NUMBER: Final = -1
_MIN_RUN_CHARS: Final = 160  # of a run of repeated lines
LineRun = tuple[int, int, int]  # first line, end, and the earlier part that has these lines
LinePlace = tuple[int, int]  # part position, and offset of the line in its text


class HashNumbers:
    """Hashes numbered from 1 in order of arrival; none is removed.

    Open addressing: a slot holds a number and is found by the last bits of its hash. One thread may
    add while others read: the slots are swapped as one, and a key is written before its slot.
    """

    def __init__(self) -> None:
        self._keys = array("q", [0])  # by number
        self._slots = array("I", [0]) * _FIRST_SLOTS
        self._capacity = int(_FIRST_SLOTS * _FULL)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def size_bytes(self) -> int:
        """Bytes in memory."""
        return bytes_held(self._keys, self._slots)

    def get(self, key: int) -> int:
        """The number of a hash; UNNUMBERED if it has none."""
        keys, slots = self._keys, self._slots
        mask = len(slots) - 1
        at = key & mask
        while number := slots[at]:
            if keys[number] == key:
                return number
            at = (at + 1) & mask
        return UNNUMBERED

    def key_of(self, number: int) -> int:
        """The hash with a number."""
        return self._keys[number]

    def numbers_of(self, keys: Iterable[int]) -> array[int]:
        """The numbers of these hashes; unknown ones get new numbers."""
        return array("I", list(map(self.number_of, keys)))

    def number_of(self, key: int) -> int:
        """The number of a hash; a new one if it has none."""
        # Repeats the probe of `get` inline: this runs for each word of a history, and a new number
        # goes where the probe ended.
        keys, slots = self._keys, self._slots
        mask = len(slots) - 1
        at = key & mask
        while number := slots[at]:
            if keys[number] == key:
                return number
            at = (at + 1) & mask
        number = len(keys)
        keys.append(key)
        slots[at] = number
        if number >= self._capacity:
            self._grow()
        return number

    def _grow(self) -> None:
        more = 4 if len(self._slots) < _SMALL else 2
        slots = array("I", [0]) * (more * len(self._slots))  # from bytes there would be two copies
        for number, key in enumerate(self._keys):
            if number != UNNUMBERED:
                _insert(slots, number, key)
        self._slots, self._capacity = slots, int(len(slots) * _FULL)


def _insert(slots: array[int], number: int, key: int) -> None:
    """Put a number into the first free slot for its hash."""
    mask = len(slots) - 1
    at = key & mask
    while slots[at]:
        at = (at + 1) & mask
    slots[at] = number


def bytes_held(*arrays: array[int] | bytearray) -> int:
    """Bytes in memory, with spare capacity."""
    return sum([one.__sizeof__() for one in arrays])


class NumberedLine(msgspec.Struct, frozen=True, gc=False):
    """A line, and its text without the tool's line number."""

    whole: str
    number: int  # UNNUMBERED if it has none
    bare: str

    @property
    def is_indexed(self) -> bool:
        """Check whether the line is long enough to be indexed."""
        return _is_indexed(self.bare)


def parse_line(whole: str) -> NumberedLine:
    """Split a line into number and text.

    >>> parse_line("    12→return loom")
    NumberedLine(whole='    12→return loom', number=12, bare='return loom')
    """
    found = NUMBERED.match(whole)
    if found is None:
        return NumberedLine(whole, NO_NUMBER, whole)
    return NumberedLine(whole, int(found[1]), whole[found.end() :])


def _is_indexed(bare: str) -> bool:
    return _MIN_LINE_CHARS <= len(bare) <= _MAX_LINE_CHARS


class _LazyLines(dict[int, NumberedLine]):
    """The lines of a text by their place, parsed when they are asked for: few of most texts are."""

    def __init__(self, wholes: Sequence[str]) -> None:
        self._wholes = wholes

    def __missing__(self, at: int) -> NumberedLine:
        found = self[at] = parse_line(self._wholes[at])
        return found


def part_text(part: Part) -> str:
    """The text that a part shows; for a call, the strings in its arguments."""
    return argument_text(part.text) if part.kind == "call" else part.text


def argument_text(arguments: str) -> str:
    """The strings in a call's arguments."""
    try:
        return "\n".join(_strings(msgspec.json.decode(arguments)))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return arguments


def _strings(value: object) -> list[str]:
    """All strings in a value, in order, without field names."""
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


def match_end(
    lines: Sequence[NumberedLine] | Mapping[int, NumberedLine],
    *,
    at: int,
    end: int,
    text: str,
    start: int,
    exact: bool = False,
) -> int:
    """The end of the run of lines that match a text from this offset on.

    Line numbers may differ where they can be derived from the line before, unless `exact`. A line
    without a number may have one in the text.
    """
    while at < end and start <= len(text):
        limit = start + len(lines[at].whole) + _MAX_NUMBER_CHARS + 1
        stop = text.find("\n", start, limit)
        if stop < 0:
            if limit < len(text):
                break  # a longer line, possibly very long: not compared
            stop = len(text)
        if not _is_same(lines, at, text[start:stop], exact=exact):
            break
        at += 1
        start = stop + 1
    return at


def _is_same(
    lines: Sequence[NumberedLine] | Mapping[int, NumberedLine], at: int, other: str, *, exact: bool
) -> bool:
    line = lines[at]
    if line.whole == other:
        return True
    shown = parse_line(other)
    if line.bare != shown.bare:
        return False
    if line.number in (NO_NUMBER, shown.number):
        return True
    before = lines[at - 1].number if at and not exact else NO_NUMBER
    return before != NO_NUMBER and line.number == before + 1


def unnumbered_lines(text: str) -> list[str]:
    """The lines of a text without the tool's line numbers."""
    if _NUMBERED_AFTER.search(text) is None and NUMBERED.match(text) is None:
        return text.split("\n")  # most texts
    return _NUMBERED_AFTER.sub("\n", f"\n{text}")[1:].split("\n")


def _line_hashes(text: str) -> list[int]:
    """The hashes of the indexed lines of a text, in order.

    They differ between processes, so nothing may depend on their order.
    """
    return [
        hash(bare)
        for bare in unnumbered_lines(text)
        if _MIN_LINE_CHARS <= len(bare) <= _MAX_LINE_CHARS
    ]


class LineIndex:
    """Append-only index of the first places of every indexed line, with one writer.

    Most lines occur once, so only the part that contains each hash is stored. The offset in the
    part is computed at lookup.
    """

    def __init__(self) -> None:
        self._numbers = HashNumbers()  # of line hashes
        self._first = array("I", [0])  # by number: the first part that contains the line
        self._more: dict[int, list[int]] = {}  # the later parts of repeated lines
        self._texts: dict[int, str] = {}  # texts of the parts
        self._latest: dict[int, Sequence[int]] = {}  # numbers in the latest parts
        self._starts: dict[int, dict[int, list[int]]] = {}  # line offsets, by part and hash
        self._started = 0  # lines in `_starts`
        self._count = 0

    @property
    def size_bytes(self) -> int:
        """Approximate bytes in memory, without the texts."""
        again = _REPEAT_BYTES * (len(self._more) + self._started)
        return self._numbers.size_bytes + bytes_held(self._first) + again

    def extend(self, parts: Iterable[tuple[int, Part]]) -> None:
        """Index the lines of these parts, which come in history order."""
        latest: dict[int, Sequence[int]] = {}
        for position, part in parts:
            text = part_text(part)
            if len(text) >= MIN_TEXT_CHARS and self._count < _MAX_LINES:
                self._texts[position] = text
                keys = _line_hashes(text)
                numbers = self._note(position, keys[: _MAX_LINES - self._count])
                if len(numbers) == len(keys):
                    latest[position] = numbers
        self._latest = latest

    def _note(self, position: int, keys: Sequence[int]) -> Sequence[int]:
        """Add the lines of a part by their hashes; return their numbers."""
        first, known = self._first, len(self._first)
        numbers = self._numbers.numbers_of(keys)
        new = len(self._numbers) - known
        first.extend(array("I", [position]) * new)
        self._count += new
        for number in {one for one in numbers if one < known} if new < len(numbers) else ():
            more = self._more.setdefault(number, [])
            if len(more) < _MAX_PLACES:
                more.append(position)
                self._count += 1
        return numbers

    def can_occur_before(self, position: int, part: Part) -> bool:
        """Check whether an earlier part may contain a line of this part, by hash."""
        numbers = self._latest.get(position)
        if numbers is None:
            numbers = [self._numbers.get(key) for key in _line_hashes(part_text(part))]
        return any(self._first_of(number, position) < position for number in numbers)

    def places(self, line: NumberedLine, before: int) -> Sequence[LinePlace]:
        """The places of a line, or of one with the same hash, in earlier parts."""
        return self._places_of(line.bare, before)

    def _places_of(self, bare: str, before: int) -> Sequence[LinePlace]:
        key = hash(bare)
        number = self._numbers.get(key)
        first = self._first_of(number, before)
        if first >= before:
            return ()
        more = self._more.get(number, ())
        found: list[LinePlace] = []
        for position in (first, *more[: bisect_left(more, before)]):
            starts = self._starts_in(position)[key][: _MAX_PLACES + 1 - len(found)]
            found += [(position, start) for start in starts]
            if len(found) > _MAX_PLACES:
                break
        return found

    def runs(
        self,
        text: str,
        at: int,
        end: int,
        *,
        before: int,
        exact: bool,
        min_lines_of: Callable[[int], int],
        max_sources: int,
    ) -> Iterator[LineRun]:
        """The runs of lines of a text that parts before a position have, greedily.

        `min_lines_of` is the length of the shortest run to take from a part; 0: none.
        """
        lines, bare = _LazyLines(text.split("\n")), unnumbered_lines(text)
        sources: set[int] = set()
        while at < end:
            run: LineRun | None = None
            for source, start in self._places_of(bare[at], before) if _is_indexed(bare[at]) else ():
                if len(sources) == max_sources and source not in sources:
                    continue
                min_lines = min_lines_of(source)
                if not min_lines:
                    continue
                of_source = self.text(source)
                until = match_end(lines, at=at, end=end, text=of_source, start=start, exact=exact)
                if (run is None or until > run[1]) and until - at >= min_lines:
                    run = at, until, source
            if run is None or sum(map(len, bare[at : run[1]])) < _MIN_RUN_CHARS:
                at += 1
                continue
            yield run
            sources.add(run[2])
            at = run[1]

    def _first_of(self, number: int, unknown: int) -> int:
        """The first part that contains a line; `unknown` while another thread adds it."""
        return self._first[number] if UNNUMBERED < number < len(self._first) else unknown

    def _starts_in(self, position: int) -> dict[int, list[int]]:
        """The offsets of the indexed lines of a part, by hash."""
        known = self._starts.get(position)
        if known is None:
            known = self._starts[position] = _line_starts(self._texts[position])
            self._started += len(known)
        return known

    def text(self, position: int) -> str:
        """The text of an indexed part."""
        return self._texts[position]


def _line_starts(text: str) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    start = 0
    for whole, bare in zip(text.split("\n"), unnumbered_lines(text), strict=True):
        if _MIN_LINE_CHARS <= len(bare) <= _MAX_LINE_CHARS:
            found.setdefault(hash(bare), []).append(start)
        start += len(whole) + 1
    return found
