"""Where the words and lines of a conversation stand: their newest sources, and who took them up.

Append-only, and shared along a conversation like the ledger: only the state that stands at its end
may write on; another one is on a fork, and gets one of its own. It is read at its end alone, right
after it was extended, so nothing in it asks up to where.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from threading import RLock
from typing import Final, cast

from msgspec import Struct

from ..lines import spoken
from ..transcript import Part, Unit
from .looks import look_of
from .owned import LINE_BITS, NO_WORD, RARE, Gone, Known, Owned, Words

_ATOM: Final = re.compile(r"[A-Za-z0-9_./:@\\-]{5,}")
_TELLING: Final = re.compile(r"[_./:@\\-]|\d|[a-z][A-Z]")  # an identifier has one of these
_PATH: Final = re.compile(r"/|\.[A-Za-z]{1,5}$")
_FIGURE: Final = re.compile(r"[0-9a-f.:x-]*$")
# What tools put before the lines of a file.
_PLACE: Final = r"[ ]{0,6}\d{1,7}(?:→|\t|: ?|\| ?)|(?!\d)[^\s:]{1,200}:\d{1,7}[:-] ?"
_PLACED: Final = re.compile(_PLACE)
_PLACED_AFTER: Final = re.compile(rf"\n(?:{_PLACE})")
_FILE: Final = re.compile(r"/([\w@-][\w.@-]*[\w@-])(?![\w./@-])")
_EDGES: Final = ".:/-"
_TIMING: Final = re.compile(r"\d[\d.:-]*[a-zA-Z]{0,3}")  # and other figures that nobody asks for
_SHORTEST_ATOM: Final = 5
_SHORTEST_LINE: Final = 16  # characters; shorter lines are never asked for as such
_LONGEST_LINE: Final = 4_000  # characters of one line that are looked at
_FRESH: Final = 2  # requests
_LINE_MASK: Final = (1 << LINE_BITS) - 1

WHOLE, NAME, PATH, FIGURE = 0, 1, 2, 3  # what a word is: a line, or one of three sorts of names


class TakenUp(Struct, frozen=True, gc=False):
    """The lines of a result that later calls, or later talk, took words from."""

    calls: set[int]
    talk: set[int]
    units: list[int]  # those in which a call took up something new


class Mentions:
    """An index of identifiers and lines over the parts of one conversation."""

    def __init__(self) -> None:
        self.results: dict[int, Words] = {}  # by position among the parts
        self.taken: list[TakenUp] = []  # by number of result
        self.asked: list[int] = []  # the units in which a user spoke
        self.late = 0  # times that a call took up something of a result that was not fresh
        # By word; the first one is no word.
        self.home: list[int] = [-1]  # the newest result that says it, and its first line in it
        self.said: list[int] = [-1]  # the last unit in which a call or a talk had it
        self.count: list[int] = [0]  # how many results say it
        self.sorts: bytearray = bytearray(1)
        self.lock = RLock()  # to be held while an evaluation reads it: it must not grow meanwhile
        self._numbers: dict[str | int, int] = {}  # of identifiers, and of hashes of lines
        self._spelled = [""]  # identifiers
        self._atoms: dict[str, tuple[int, ...]] = {}  # the words in what may be an identifier
        self._changes: list[int] = []  # words of results that were said, or said again elsewhere
        self._owned: dict[int, Owned] = {}  # by number of result
        self._born: list[int] = []  # the unit of each result
        self._noted = 0  # parts

    def extend(self, units: Sequence[Unit], parts: Sequence[Part], first: int) -> bool:
        """Note the units from number `first` on; False when others were noted already."""
        with self.lock:
            for number, unit in enumerate(units[first:], first):
                start, end = unit.parts
                if start != self._noted:
                    return False
                for position in range(start, end):
                    self._note(position, parts[position], number)
                self._noted = end
            return not units or self._noted == units[-1].parts[1]

    def said_last(self, path: str) -> int:
        """The last unit in which a call or a talk named a file, by its path or name; -1: none."""
        number = self._numbers.get(path.rpartition("/")[2])
        return -1 if number is None else self.said[number]

    def owned(self, words: Words) -> tuple[Owned, bool]:
        """What the lines of a result have for themselves, and whether that changed."""
        found = self._owned.get(words.number)
        known = Known(self.home, self.said, self.count, self.sorts)
        if found is not None:
            return found, found.renew(self._changes, known)
        found = self._owned[words.number] = Owned(words)
        found.begin(known, len(self._changes))
        return found, True

    def gone(self, words: Words, original: str, text: str) -> Gone:
        """Which lines of a result are gone, and which with a name, where it says `text`."""
        owned = self._owned.get(words.number) or self.owned(words)[0]
        known = owned.texts.get(text)
        return known or owned.keep(text, self._gone(words, original, text))

    def _gone(self, words: Words, original: str, text: str) -> Gone:
        lines = text.split("\n")
        stays = {line.strip() for line in lines}
        gone = bytes([line.strip() not in stays for line in original.split("\n")])
        short = len(text) <= _LONGEST_LINE or len(max(lines, key=len)) <= _LONGEST_LINE
        named = {word for line in ([text] if short else lines) for word in self._atoms_of(line)}
        flat, starts, names = words.words, words.starts, bytearray(gone)
        for line, is_gone in enumerate(gone):
            own = flat[starts[line] + 1 : starts[line + 1]]
            if is_gone and own and named.issuperset(own):
                names[line] = 0
        return Gone(gone, bytes(names))

    def names_only_in(self, words: Words, line: int) -> list[str]:
        """The names of a line that stand in no newer result, and that nobody has said."""
        place = words.number << LINE_BITS | line
        home, said, spelled = self.home, self.said, self._spelled
        found: list[str] = []
        for word in words.words[words.starts[line] + 1 : words.starts[line + 1]]:
            if home[word] == place and said[word] < 0:
                atom = spelled[word]
                if not _TIMING.fullmatch(atom) and not any(atom in longer for longer in found):
                    found.append(atom)
        return found

    def _note(self, position: int, part: Part, unit: int) -> None:
        if part.kind == "result":
            self._note_result(position, part.text, unit)
        elif part.kind == "call":
            self._take_up(spoken(part.text), unit, called=True)
        elif part.kind in ("text", "reasoning") and part.text:
            self._take_up(part.text, unit, called=False)
            if part.speaker == "user" and self.asked[-1:] != [unit]:
                self.asked.append(unit)

    def _note_result(self, position: int, text: str, unit: int) -> None:
        number = len(self.taken)
        lines = text.split("\n")
        starts, words = [0], list[int]()
        home, count, changes = self.home, self.count, self._changes
        first = place = number << LINE_BITS
        wholes = bare_lines(text, lines)
        for line, whole in zip(lines, wholes, strict=True):
            for word in self._words_of(line, whole):
                words.append(word)
                before = home[word]
                if before < first:
                    home[word] = place
                    count[word] += 1
                    if before >= 0:
                        changes.append(word)
            starts.append(len(words))
            place += 1
        home[NO_WORD] = -1
        looks = bytes(map(look_of, lines, wholes))
        self.results[position] = Words(number, unit, array("I", starts), array("I", words), looks)
        self.taken.append(TakenUp(set(), set(), []))
        self._born.append(unit)

    def _words_of(self, line: str, whole: str) -> list[int]:
        """A line as a whole, then its identifiers, by number."""
        if len(whole) < _SHORTEST_LINE:
            return [NO_WORD, *self._atoms_of(line)]
        key = hash(whole)
        number = self._numbers.get(key) or self._number(key, WHOLE)
        return [number, *self._atoms_of(line)]

    def _atoms_of(self, line: str) -> list[int]:
        """The identifiers of a line, or of many short ones, by number."""
        known = self._atoms
        found: list[int] = []
        end = _LONGEST_LINE if "\n" not in line else len(line)
        for raw in _ATOM.findall(line, 0, end):
            atoms = known.get(raw)
            if atoms is None:
                atoms = known[raw] = tuple(map(self._number, atoms_of(raw)))
            if atoms:
                found += atoms
        return found

    def _number(self, word: str | int, sort: int | None = None) -> int:
        number = self._numbers.get(word)
        if number is None:
            number = self._numbers[word] = len(self.home)
            self.home.append(-1)
            self.said.append(-1)
            self.count.append(0)
            self.sorts.append(_sort(cast(str, word)) if sort is None else sort)
            self._spelled.append(cast(str, word) if sort is None else "")
        return number

    def _take_up(self, text: str, unit: int, *, called: bool) -> None:
        """Note what a call or a talk is made of, and the results that it had it from."""
        home, said, count = self.home, self.said, self.count
        lines = text.split("\n")
        for line, whole in zip(lines, bare_lines(text, lines), strict=True):
            for word in self._words_of(line, whole):
                place, new = home[word], said[word] < 0
                if place >= 0:
                    if new:
                        self._changes.append(word)
                    if new or count[word] <= RARE:
                        self._taken_from(place, unit, called, new)
                said[word] = unit
            if "/" in whole:
                for name in _FILE.findall(whole):  # a file is named by its name alone, too
                    word = self._number(name)
                    if said[word] < 0 <= home[word]:
                        self._changes.append(word)
                    said[word] = unit
        said[NO_WORD] = -1

    def _taken_from(self, place: int, unit: int, called: bool, new: bool) -> None:
        result, line = place >> LINE_BITS, place & _LINE_MASK
        taken = self.taken[result]
        if not called:
            taken.talk.add(line)
            return
        taken.calls.add(line)
        if new and taken.units[-1:] != [unit]:
            taken.units.append(unit)
            self.late += unit - self._born[result] > _FRESH


def atoms_in(line: str) -> Iterator[str]:
    """The identifiers of a line (names, paths, numbers; not plain words), and those inside them.

    >>> list(atoms_in("see pkg/io.go:12: calls text.ReadAllLines"))
    ['pkg/io.go:12', 'pkg/io.go', 'text.ReadAllLines', 'ReadAllLines']
    """
    for raw in _ATOM.findall(line, 0, _LONGEST_LINE):
        yield from atoms_of(raw)


def atoms_of(raw: str) -> Iterator[str]:
    """The identifiers in what may be one."""
    if raw.isalpha() and (raw.islower() or raw[1:].islower()):
        return  # most of them: plain words
    atom = raw.strip(_EDGES)
    if len(atom) < _SHORTEST_ATOM or not _TELLING.search(atom):
        return
    yield atom
    for inner in atom.split(":") if ":" in atom else _last_of(atom):
        piece = inner.strip(_EDGES)
        if len(piece) >= _SHORTEST_ATOM and piece != atom and _TELLING.search(piece):
            yield piece


def _last_of(atom: str) -> tuple[str, ...]:
    """The last of several names that dots join."""
    return () if "/" in atom or "." not in atom else (atom.rpartition(".")[2],)


def bare(line: str) -> str:
    """A line without the number or place that a tool put before it, and without its blanks.

    >>> bare("   12→  return x"), bare("src/a.py:7:import os")
    ('return x', 'import os')
    """
    line = line[:_LONGEST_LINE]
    found = _PLACED.match(line)
    return (line if found is None else line[found.end() :]).strip()


def bare_lines(text: str, lines: Sequence[str]) -> list[str]:
    """The same for all lines of a text."""
    if len(max(lines, key=len)) > _LONGEST_LINE:
        return [bare(line) for line in lines]
    return [line.strip() for line in _PLACED_AFTER.sub("\n", f"\n{text}")[1:].split("\n")]


def _sort(atom: str) -> int:
    if _FIGURE.match(atom):
        return FIGURE
    return PATH if _PATH.search(atom) else NAME
