"""What each line of a result has that stands nowhere else, as one number for each line."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Final

from msgspec import Struct, field

RARE: Final = 3  # results; a word that more of them say tells little
LINE_BITS: Final = 24  # of a place: a result's number, and a line of it
NO_WORD: Final = 0  # in place of a line that is too short to be one

_REPEATED: Final = (0, 1, 2, 5)
_SIZES: Final = (4, 4, 3, 3, 5, 3)  # how many bins each of these features has
# By the number of a line: its own bin, its names, paths, figures, how often, what was said.
OWNED: Final[tuple[tuple[int, ...], ...]] = tuple(product(*map(range, _SIZES)))
HAS_NAMES: Final = bytes(any(bins[1:4]) for bins in OWNED)  # by the same number
_WORTH: Final = tuple(OWNED.index(tuple(int(at == one) for one in range(6))) for at in range(6))
_MOST_TEXTS: Final = 32  # of one result that are remembered


class Words(Struct, frozen=True, gc=False):
    """What one result says, by number: for each line the line itself, then its identifiers."""

    number: int  # of the result, in order
    unit: int  # the unit it came in
    starts: array[int]  # where each line's words begin; one more at the end
    words: array[int]
    looks: bytes  # what each line looks like

    @property
    def lines(self) -> int:
        """How many lines it has."""
        return len(self.looks)


class Gone(Struct, frozen=True, gc=False):
    """Which lines a shorter text lacks, and in which of these it lacks a name; one byte each."""

    lines: bytes
    names: bytes


class Known(Struct, frozen=True, gc=False):
    """What an index knows of all words, by their numbers."""

    home: Sequence[int]  # the newest result that says it, and its first line in it
    said: Sequence[int]  # the last unit in which a call or a talk had it
    count: Sequence[int]  # how many results say it
    sorts: Sequence[int]


class Owned(Struct):
    """The numbers of a result's lines, brought up to date where a word of them has changed."""

    words: Words
    codes: list[int] = field(default_factory=list[int])
    counts: list[int] = field(default_factory=list[int])  # own names of each line: ever fewer
    told: set[int] = field(default_factory=set[int])  # lines of which something was said
    places: dict[int, list[int]] = field(default_factory=dict[int, list[int]])  # lines by word
    looked: int = 0  # how many changes of words it knows
    lines: object = None  # what was made of them last, and how much was taken up by then
    stamp: tuple[int, int] = (0, 0)
    texts: dict[str, Gone] = field(default_factory=dict[str, Gone])  # that stood in its place

    def begin(self, known: Known, changes: int) -> None:
        """Look at all lines."""
        flat, starts, places = self.words.words, self.words.starts, self.places
        for line in range(self.words.lines):
            for word in flat[starts[line] : starts[line + 1]]:
                places.setdefault(word, []).append(line)
        places.pop(NO_WORD, None)
        self.codes, self.counts = [0] * self.words.lines, [0] * self.words.lines
        self._look(range(self.words.lines), known)
        self.looked = changes

    def renew(self, changes: Sequence[int], known: Known) -> bool:
        """Look again at the lines of words that changed; whether any has something else now."""
        if self.looked == len(changes):
            return False
        new = self.places.keys() & changes[self.looked :]
        self.looked = len(changes)
        lines = {line for word in new for line in self.places[word]}
        return bool(lines) and self._look(lines, known)

    def keep(self, text: str, gone: Gone) -> Gone:
        """Remember what a text lacks."""
        if len(self.texts) >= _MOST_TEXTS:
            self.texts.clear()
        self.texts[text] = gone
        return gone

    def _look(self, lines: Iterable[int], known: Known) -> bool:
        """Number these lines; whether any number, or how many names one has, is new."""
        home, said, count, sorts = known.home, known.said, known.count, known.sorts
        flat, starts, places, codes = self.words.words, self.words.starts, self.places, self.codes
        first, counts, changed = self.words.number << LINE_BITS, self.counts, False
        for line in lines:
            start, place = starts[line], first + line
            whole = flat[start]
            names = [0, 0, 0, 0]
            own = repeated = told = 0
            if whole != NO_WORD:
                own = 2 if said[whole] >= 0 else 3 if home[whole] == place else 1
            for word in flat[start + 1 : starts[line + 1]]:
                if said[word] >= 0:
                    told += count[word] <= RARE
                elif home[word] == place:
                    names[sorts[word]] += 1
                    repeated = max(repeated, len(places[word]))
            code = own * _WORTH[0]
            if told:
                code += min(2, told)
                self.told.add(line)
            else:
                self.told.discard(line)
            if repeated:
                code += min(3, names[1]) * _WORTH[1] + min(2, names[2]) * _WORTH[2]
                code += min(2, names[3]) * _WORTH[3] + bisect_left(_REPEATED, repeated) * _WORTH[4]
            own_names = sum(names)
            if codes[line] != code or counts[line] != own_names:
                codes[line], counts[line], changed = code, own_names, True
        return changed
