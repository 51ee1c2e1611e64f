"""Index of identifiers and lines: newest sources and later mentions.

Append-only, and shared along a conversation like the ledger: only the state at its end may append;
a state on a fork gets its own. It is read only at its end, right after an extension, so queries
take no limit.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress, repeat
from threading import RLock
from typing import Final

from msgspec import Struct

from ..history.failures import strip_color
from ..history.line_index import UNNUMBERED, HashNumbers, argument_text
from ..regex import lazy_compile
from ..transcript import Part, Unit
from .line_codes import (
    FIGURE,
    LINE_REMOVED,
    MAX_RARE_COUNT,
    NAME,
    NAME_REMOVED,
    PATH,
    WHOLE,
    LineCache,
    RemovedLines,
    ResultState,
    ResultWords,
    WordIndex,
    encode_format,
    may_fail,
    unique_bins,
)
from .line_parts import SplitText, has_parts, split_lines, unescape

_IDENTIFIER: Final = lazy_compile(r"[A-Za-z0-9_./:@\\-]{5,}")
_TELLING: Final = lazy_compile(r"[_./:@\\-]|\d|[a-z][A-Z]")  # an identifier contains one of these
_PATH: Final = lazy_compile(r"/|\.[A-Za-z]{1,5}$")
_FIGURE: Final = lazy_compile(r"[0-9a-f.:x-]*$")
# Prefixes that tools put before the lines of a file.
_POSITION: Final = r"[ ]{0,6}\d{1,7}(?:→|\t|: ?|\| ?)|(?!\d)[^\s:]{1,200}:\d{1,7}[:-] ?"
_PLACED: Final = lazy_compile(_POSITION)
_PLACED_AFTER: Final = lazy_compile(rf"\n(?:{_POSITION})")
_FILE: Final = lazy_compile(r"/([\w@-][\w.@-]*[\w@-])(?![\w./@-])")
_EDGES: Final = ".:/-"
_TIMING: Final = lazy_compile(r"\d[\d.:-]*[a-zA-Z]{0,3}")  # and other figures that are never needed
_MIN_IDENTIFIER_CHARS: Final = 5
_MIN_LINE_CHARS: Final = 16  # characters; shorter lines are never needed as such
_MAX_LINE_CHARS: Final = 4_000  # characters of one line that are checked
_PATCH: Final = "*** Begin Patch"  # its lines are those of a diff, with signs
_FRESH: Final = 2  # requests
_LINES: Final = 0x5DEECE66D1234567  # separates the hash of a line from that of an equal name
# Approximate bytes: of a result, of a line in replacement texts, and of mentions.
_RESULT_BYTES, _TEXT_BYTES, _MENTION_BYTES, _IDENTIFIER_BYTES = 900, 6, 800, 250
_WITH_ITS_NAMES: Final = bytes((0, NAME_REMOVED)) + bytes(254)
_MAX_CALLS: Final = 512  # calls with a cached count of removed lines
_MAX_SPLIT_CHARS: Final = 120_000  # of results whose lines are held during an evaluation
_MAX_IDENTIFIERS: Final = 4_096  # identifiers cached with their words


class ResultMentions(Struct, frozen=True, gc=False):
    """The lines of a result whose words later calls or messages used."""

    calls: set[int]
    talk: set[int]
    units: list[int]  # units in which a call used something new


class IndexedText(SplitText, frozen=True, dict=True):
    """A result's text with its lines as the index compares them."""

    @cached_property
    def wholes(self) -> list[str]:
        """Its lines without their prefixes."""
        return strip_prefixes(self.text, self.lines)


_NOTHING: Final = ResultMentions(set(), set(), [])


class Mentions:
    """Index of identifiers and lines over the parts of one conversation."""

    def __init__(self) -> None:
        self.results: dict[int, ResultWords] = {}  # by part position
        self.used: dict[int, ResultMentions] = {}  # by result number, if anything was used
        self.user_units: list[int] = []  # units with user input
        self.patched = False  # a call wrote by a patch
        self.late_uses = 0  # times that a call used something from an older result
        self.word_index = WordIndex()
        self.recent = LineCache()
        self.lock = RLock()  # hold it while an evaluation reads: the index must not grow then
        self._numbers = HashNumbers()  # of identifiers and line hashes
        self._words = len(self._numbers)  # the next of these numbers
        self._atoms: dict[str, tuple[int, ...]] = {}  # the words of identifier candidates
        self._plain: set[str] = set()  # candidates that are plain words
        self._owned: dict[int, ResultState] = {}  # by result number
        self._removed_of_calls: dict[tuple[int, int], int] = {}  # by hashes of arguments and text
        self._units = array("I")  # unit of each result
        self._firsts = array("I")  # its first line
        self._noted = 0  # parts
        self._split: dict[str, IndexedText] = {}  # results of this evaluation
        self._split_chars = 0

    @property
    def size_bytes(self) -> int:
        """Approximate bytes in memory."""
        remembered = self._bytes_remembered(len(self.word_index.changed))
        return (
            self.word_index.size_bytes
            + self._numbers.size_bytes
            + self.recent.size_bytes
            + _MENTION_BYTES * len(self.used)
            + remembered
        )

    def _bytes_remembered(self, lines: int) -> int:
        """Approximate bytes of what is remembered of results with so many lines."""
        remembered = len(self._atoms) + len(self._plain) + len(self._removed_of_calls)
        results = _RESULT_BYTES * len(self._owned) + _TEXT_BYTES * lines
        return results + _IDENTIFIER_BYTES * remembered

    def extend(self, units: Sequence[Unit], parts: Sequence[Part], first: int) -> bool:
        """Add the units from number `first` on; False if others were added already."""
        with self.lock:
            for number, unit in enumerate(units[first:], first):
                start, end = unit.parts
                if start != self._noted:
                    return False
                for position in range(start, end):
                    self._note(position, parts[position], number)
                self._noted = end
            return not units or self._noted == units[-1].parts[1]

    def split(self, text: str) -> IndexedText:
        """The lines of a result, held until `forget_lines`."""
        known = self._split.get(text)
        if known is None:
            known = IndexedText(text)
            self._split_chars += len(text)
            if self._split_chars > _MAX_SPLIT_CHARS:
                self.forget_lines()
            self._split[text] = known
        return known

    def forget_lines(self) -> None:
        """Let go of the lines of results."""
        self._split.clear()
        self._split_chars = 0

    def last_mention(self, path: str) -> int:
        """The last unit in which a call or message named a file, by path or name; -1 if none."""
        return self.word_index.mentioned[self._numbers.get(hash(path.rpartition("/")[2]))]

    def mentions_of(self, words: ResultWords) -> ResultMentions:
        """The mentions of a result."""
        return self.used.get(words.number, _NOTHING)

    def stamp_of(self, words: ResultWords) -> tuple[int, int]:
        """The numbers of a result's lines that calls and messages used."""
        taken = self.mentions_of(words)
        return len(taken.calls), len(taken.talk)

    def uses_of(self, words: ResultWords) -> tuple[int, int]:
        """The number of units in which a call used something new of a result, and the last."""
        units = self.mentions_of(words).units
        return len(units), units[-1] if units else -1

    def used_lines_of(self, words: ResultWords) -> tuple[set[int], set[int]]:
        """The lines of a result that calls used, and those that messages used."""
        taken = self.mentions_of(words)
        return taken.calls, taken.talk

    def codes_of(self, words: ResultWords) -> array[int]:
        """The codes of a result's lines."""
        return self.word_index.codes_of(words)

    def unique_bins_of(self, words: ResultWords) -> tuple[int, int]:
        """The share of a result that occurs nowhere else: lines, and names, in bins."""
        return unique_bins(self.word_index.codes_of(words))

    def owned(self, words: ResultWords) -> tuple[ResultState, bool]:
        """The state of a result, and whether a line's unique words changed."""
        index, found, changed = self.word_index, self._owned.get(words.number), True
        if found is None:
            found = self._owned[words.number] = ResultState()
            index.encode(words)
        else:
            changed = index.refresh(words, found.seen_events)
        found.seen_events = len(index.events)
        return found, changed

    def release(self, positions: Iterable[int]) -> None:
        """Let go of what is cached of results at these positions: they were taken out."""
        with self.lock:
            for words in filter(None, map(self.results.get, positions)):
                self._owned.pop(words.number, None)
                self.recent.forget(words.number, words.lines)

    def missing(self, words: ResultWords, original: str, text: str) -> RemovedLines:
        """The lines of a result, and the names, that a replacement `text` lacks."""
        owned = self._owned.get(words.number) or self.owned(words)[0]
        return owned.find(hash(text)) or owned.store(self._missing(words, original, text))

    def _missing(self, words: ResultWords, original: str, text: str) -> RemovedLines:
        key, split = hash(text), self.split(original)
        before = split.lines
        if "\x1b" in original:  # other passes remove colors
            before, original = list(map(strip_color, before)), strip_color(original)
            were = strip_prefixes(original, before)
        else:
            were = split.wholes
        text = strip_color(text)
        lines = split_lines(text)
        stays = set(strip_prefixes(text, lines))
        # Without its number a line may begin like a place.
        shown = stays.union(map(str.strip, lines))
        removed = bytes([line not in shown for line in were])
        if _is_searched_by_line(text, lines) or _is_searched_by_line(original, before):
            named = {word for line in lines for word in self._atoms_of(unescape(line))}
        else:
            named = set(self._atoms_of("\n".join(stays.difference(were))))
            named.update(*self.word_index.words_of_runs(words, removed))
        lacks = bytearray(removed.translate(_WITH_ITS_NAMES))
        for line in (
            compress(range(len(removed)), removed) if self.word_index.has_any(words, named) else ()
        ):
            own = self.word_index.words_of_line(words.first + line)
            if own and named.issuperset(own):
                lacks[line] = LINE_REMOVED
        return RemovedLines(key, bytes(lacks))

    def removed_call_lines(self, arguments: str, text: str) -> int:
        """The number of lines of a call's arguments that a replacement `text` lacks."""
        key = hash(arguments), hash(text)
        removed = self._removed_of_calls.get(key)
        if removed is None:
            if len(self._removed_of_calls) >= _MAX_CALLS:
                self._removed_of_calls.clear()
            stays = set(argument_text(text).split("\n"))
            removed = sum(line not in stays for line in argument_text(arguments).split("\n"))
            self._removed_of_calls[key] = removed
        return removed

    def own_names(self, words: ResultWords, line: int) -> dict[int, int]:
        """The unmentioned names of a line that no newer result has, with their lengths.

        Lengths include the separator; a timing is not a name.
        """
        index, place = self.word_index, words.first + line
        home, mentioned, sizes = index.home, index.mentioned, index.sizes
        return {
            word: sizes[word]
            for word in index.words_of_line(place)
            if home[word] == place and mentioned[word] < 0 and sizes[word]
        }

    def spelled(self, own: Mapping[int, int], line: str) -> list[str]:
        """These names as a line spells them; a name inside another is left out."""
        if not own:
            return []
        found: list[str] = []
        known, plain, words = self._atoms, self._plain, own.keys()
        min_length, keys = min(own.values()) - 2, set(map(self._numbers.key_of, own))
        for raw in _IDENTIFIER.findall(line, 0, _MAX_LINE_CHARS):
            if len(raw) < min_length or raw in plain or words.isdisjoint(known.get(raw, words)):
                continue
            for atom in identifiers_of(raw):
                if hash(atom) in keys and not _is_in_any(atom, found):
                    found.append(atom)
        return found

    def _note(self, position: int, part: Part, unit: int) -> None:
        if part.kind == "result":
            self._note_result(position, part.text, unit)
        elif part.kind == "call":
            self._take_up(argument_text(part.text), unit, called=True)
            self.patched = self.patched or _PATCH in part.text
        elif part.kind in ("text", "reasoning") and part.text:
            self._take_up(part.text, unit, called=False)
            if part.speaker == "user" and self.user_units[-1:] != [unit]:
                self.user_units.append(unit)

    def _note_result(self, position: int, text: str, unit: int) -> None:
        split = self.split(text)
        wholes = split.wholes
        fails = repeat(split.has_parts or may_fail(text))  # parts are without their escapes
        formats = bytes(map(encode_format, split.lines, wholes, fails))
        first = self.word_index.add(list(map(self._words_of, split.plain, wholes)))
        self.results[position] = ResultWords(
            number=len(self._units),
            unit=unit,
            first=first,
            formats=formats,
        )
        self._units.append(unit)
        self._firsts.append(first)

    def _words_of(self, line: str, whole: str) -> list[int]:
        """A line as a whole, then its identifiers, by number."""
        found = [UNNUMBERED if len(whole) < _MIN_LINE_CHARS else self._number_of_line(whole)]
        self._add_atoms(found, _IDENTIFIER.findall(line, 0, _searched_length(line)))
        return found

    def _atoms_of(self, line: str) -> list[int]:
        """The identifiers of a line, or of many short ones, by number."""
        found: list[int] = []
        self._add_atoms(found, _IDENTIFIER.findall(line, 0, _searched_length(line)))
        return found

    def _add_atoms(self, found: list[int], raws: Sequence[str]) -> None:
        """Add the words of identifier candidates, most of which are plain words."""
        known, plain = self._atoms, self._plain
        for raw in raws:
            if raw not in plain:
                found += known.get(raw) or self._learn(raw)

    def _learn(self, raw: str) -> tuple[int, ...]:
        """The words of an identifier candidate, cached for a while."""
        found = tuple(map(self._number_of, identifiers_of(raw)))
        known = self._atoms if found else self._plain
        if len(known) >= _MAX_IDENTIFIERS:
            known.clear()
        if found:
            self._atoms[raw] = found
        else:
            self._plain.add(raw)
        return found

    def _number_of(self, atom: str) -> int:
        number = self._numbers.number_of(hash(atom))
        if number == self._words:
            self._words += 1
            self.word_index.number(
                number, _identifier_sort(atom), 0 if _is_timing(atom) else len(atom) + 2
            )
        return number

    def _number_of_line(self, whole: str) -> int:
        number = self._numbers.number_of(hash(whole) ^ _LINES)
        if number == self._words:
            self._words += 1
            self.word_index.number(number, WHOLE, 0)
        return number

    def _take_up(self, text: str, unit: int, *, called: bool) -> None:
        """Record the words of a call or message, and the results they came from."""
        index = self.word_index
        lines = split_lines(text)
        for line, whole in zip(lines, strip_prefixes(text, lines), strict=True):
            for word in self._words_of(line, whole):
                if word != UNNUMBERED:
                    self._taken_from(word, unit, called)
                    index.mention(word, unit)
            if "/" in whole:
                for name in _FILE.findall(whole):  # a file is also named without its folder
                    index.mention(self._number_of(name), unit)

    def _taken_from(self, word: int, unit: int, called: bool) -> None:
        """Record the line that a word came from, if a result contains it."""
        index = self.word_index
        place, new = index.home[word], index.mentioned[word] < 0
        if place < 0 or not (new or index.count[word] <= MAX_RARE_COUNT):
            return
        result = bisect_right(self._firsts, place) - 1
        line = place - self._firsts[result]
        taken = self.used.get(result)
        if taken is None:
            taken = self.used[result] = ResultMentions(set(), set(), [])
        if not called:
            taken.talk.add(line)
            return
        taken.calls.add(line)
        if new and taken.units[-1:] != [unit]:
            taken.units.append(unit)
            self.late_uses += unit - self._units[result] > _FRESH


def _searched_length(line: str) -> int:
    """The number of characters of a line, or of many short ones, that are searched."""
    return len(line) if len(line) <= _MAX_LINE_CHARS or "\n" in line else _MAX_LINE_CHARS


def _is_timing(atom: str) -> bool:
    return atom[0].isdigit() and _TIMING.fullmatch(atom) is not None


def _is_in_any(name: str, longer: Sequence[str]) -> bool:
    return any(name in one for one in longer) if longer else False


def identifiers_in(line: str) -> Iterator[str]:
    """The identifiers of a line (names, paths, numbers; not plain words), and those inside them.

    >>> list(identifiers_in("see pkg/io.go:12: calls text.ReadAllLines"))
    ['pkg/io.go:12', 'pkg/io.go', 'text.ReadAllLines', 'ReadAllLines']
    """
    for raw in _IDENTIFIER.findall(line, 0, _MAX_LINE_CHARS):
        yield from identifiers_of(raw)


def identifiers_of(raw: str) -> Sequence[str]:
    """The identifiers in a candidate."""
    if raw.isalpha() and (raw.islower() or raw[1:].islower()):
        return ()  # most are plain words
    atom = raw.strip(_EDGES)
    if len(atom) < _MIN_IDENTIFIER_CHARS or not _TELLING.search(atom):
        return ()
    if ":" not in atom and "." not in atom:
        return (atom,)
    found = [atom]
    for inner in atom.split(":") if ":" in atom else _last_name(atom):
        piece = inner.strip(_EDGES)
        if len(piece) >= _MIN_IDENTIFIER_CHARS and piece != atom and _TELLING.search(piece):
            found.append(piece)
    return found


def _last_name(atom: str) -> tuple[str, ...]:
    """The last of several names joined by dots."""
    return () if "/" in atom or "." not in atom else (atom.rpartition(".")[2],)


def strip_prefix(line: str) -> str:
    """A line without blanks and without its tool's number or position prefix.

    >>> strip_prefix("   12→  return x"), strip_prefix("src/a.py:7:import os")
    ('return x', 'import os')
    """
    line = line[:_MAX_LINE_CHARS]
    found = _PLACED.match(line)
    return (line if found is None else line[found.end() :]).strip()


def strip_prefixes(text: str, lines: Sequence[str]) -> list[str]:
    """The lines of a text without their prefixes, parts of long ones without their escapes."""
    if has_parts(text, lines):
        return [strip_prefix(unescape(line)) for line in lines]
    if _has_long_line(text, lines):
        return [strip_prefix(line) for line in lines]
    return list(map(str.strip, _PLACED_AFTER.sub("\n", f"\n{text}")[1:].split("\n")))


def _has_long_line(text: str, lines: Sequence[str]) -> bool:
    """Check whether a line of a text is too long to be searched completely."""
    return len(text) > _MAX_LINE_CHARS and len(max(lines, key=len)) > _MAX_LINE_CHARS


def _is_searched_by_line(text: str, lines: Sequence[str]) -> bool:
    """Check whether a text must be searched line by line: it has parts, or very long lines."""
    return has_parts(text, lines) or _has_long_line(text, lines)


def _identifier_sort(atom: str) -> int:
    if atom.isdecimal() or _FIGURE.match(atom):
        return FIGURE
    return PATH if _PATH.search(atom) else NAME
