"""Codes of result lines: form, length, indentation, unique words."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import product
from math import prod
from typing import Final

from msgspec import Struct

from ..history.line_index import UNNUMBERED, bytes_held
from ..regex import lazy_compile

FORMS: Final = (
    "blank", "definition", "import", "comment", "failure", "path", "closing", "block", "other",
)  # fmt: skip
LENGTHS: Final = ("0-15", "16-39", "40-79", "80-159", "160+")
INDENTS: Final = ("0", "1-4", "5-8", "9+")
LINE_FORMATS: Final = tuple(product(range(len(FORMS)), range(len(LENGTHS)), range(len(INDENTS))))
_LENGTHS, _INDENTS = (15, 39, 79, 159), (0, 4, 8)
_LOOK = 120  # characters of a line that are checked

_FAILURE = (
    r"(?P<failure>.{0,100}\b(?:[Ee]rror|ERROR|FAIL(?:ED)?|[Ff]ail(?:ed|ure)|panic|fatal"
    r"|Exception|undefined)\b|[✗×✘✖])"
)
_FAILURE_HINTS = lazy_compile(r"[✗×✘✖]|rror|RROR|FAIL|ail[eu]|panic|fatal|xception|undefined")
_OTHERS = (
    r"(?P<definition>(?:(?:export|default|pub|public|private|protected|static|abstract|async"
    r"|override)\s)*(?:def|class|func|fn|function|interface|type|struct|enum|trait|impl|module"
    r"|const|let|var|describe|it|test|#{1,4})\b)"
    r"|(?P<import>(?:import|from|use|using|require|#include|package)\b)"
    r"|(?P<comment>//|#|/\*|\*|--|<!--|\"\"\")"
    r"|(?P<closing>[)\]}>;,]+$|end$|else\b)"
    r"|(?P<path>(?:\S*/)?[\w.-]+\.\w{1,5}(?::\d+)?(?=\s|$)|\S+/\S+)"
)
_FORM: Final = lazy_compile(f"{_FAILURE}|{_OTHERS}")
_OTHER_FORM: Final = lazy_compile(_OTHERS)  # for lines without a failure: most
_NUMBER_OF: Final = {form: number for number, form in enumerate(FORMS)}
_OPENS: Final = ("{", ":", "(", "[")

# Sorts of words: a whole line, or one of three sorts of names.
WHOLE, NAME, PATH, FIGURE = 0, 1, 2, 3
MAX_RARE_COUNT: Final = 3  # results; a word in more of them says little
_REPEATED: Final = (0, 1, 2, 5)
_SIZES: Final = (4, 4, 3, 3, 5, 3, 3)  # number of bins of each feature
# By line code: bins of the line itself, its names, paths, figures, count, mentions, and
# earlier occurrences.
UNIQUE_BINS: Final[tuple[tuple[int, ...], ...]] = tuple(product(*map(range, _SIZES)))
HAS_NAMES: Final = bytes(  # by line code
    bool(names or paths or figures) for _, names, paths, figures, _, _, _ in UNIQUE_BINS
)
ONLY_HERE: Final = 3  # a bin of the line itself
_OWN_BINS: Final = tuple(bins[0] for bins in UNIQUE_BINS)
_NAME_BINS: Final = tuple(bins[1] + bins[2] for bins in UNIQUE_BINS)
_OWN, _NAMES = (0.1, 0.3, 0.6, 0.9), (0, 3, 12, 40)
WAS_MENTIONED: Final = bytes(bins[5] > 0 for bins in UNIQUE_BINS)
# What one bin of each feature adds to a line code.
_WORTH: Final = tuple(prod(_SIZES[at + 1 :]) for at in range(7))
_SHOWN: Final = bytes((0, 0, 1, 2, 2))  # by number of results with the line, this one included
_NOWHERE: Final = 2**31 - 1  # after all lines
_RESULT_BYTES: Final = 400  # bytes, without its lines
_GROWTH: Final = 256  # words added at a time
_NONE_YET: Final = array("i", [-1]) * _GROWTH
_MAX_SIZE: Final = 60_000  # characters of a word; longer ones are never checked
_MAX_CACHED_LINES: Final = 30_000  # lines
LINE_REMOVED, NAME_REMOVED = 1, 2  # missing from a shorter text
_WITH_NAME: Final = bytes(value == NAME_REMOVED for value in range(256))
_MAX_TEXTS: Final = 4  # replacement texts stored per result


def unique_bins(codes: Sequence[int]) -> tuple[int, int]:
    """The share of a result that occurs nowhere else: lines, and names, in bins."""
    own = [_OWN_BINS[one] for one in codes]
    share = own.count(ONLY_HERE) / max(1, len(own) - own.count(0))
    names = sum([_NAME_BINS[one] for one in codes])
    return bisect_left(_OWN, share), bisect_left(_NAMES, names)


def may_fail(text: str) -> bool:
    """Return whether a line of a text may tell of a failure."""
    return _FAILURE_HINTS.search(text) is not None


def encode_format(line: str, whole: str, may_fail: bool = True) -> int:
    """A line's form, length and indentation; `whole` is the line without its prefix."""
    length = bisect_left(_LENGTHS, len(whole))
    set_in = bisect_left(_INDENTS, _indent(line, whole))
    return (_form(whole, may_fail) * len(LENGTHS) + length) * len(INDENTS) + set_in


def decode_form(code: int) -> int:
    """The form in a format code."""
    return code // (len(LENGTHS) * len(INDENTS))


def decode_length(code: int) -> int:
    """The length in a format code."""
    return code // len(INDENTS) % len(LENGTHS)


def decode_indent(code: int) -> int:
    """The indentation in a format code."""
    return code % len(INDENTS)


def _form(whole: str, may_fail: bool) -> int:
    if not whole:
        return 0
    start = whole[:_LOOK]
    found = (_FORM if may_fail and _FAILURE_HINTS.search(start) else _OTHER_FORM).match(start)
    if found is not None:
        assert found.lastgroup is not None
        return _NUMBER_OF[found.lastgroup]
    return _NUMBER_OF["block" if whole.endswith(_OPENS) else "other"]


def _indent(line: str, whole: str) -> int:
    """The blanks before a line's words; a tab counts four."""
    before = line[: line.find(whole[:8])] if whole else ""
    blanks = before[len(before.rstrip(" \t")) :]
    return len(blanks) + 3 * blanks.count("\t")


class ResultWords(Struct, frozen=True, gc=False):
    """One result in the index of all lines."""

    number: int  # of the result, in order
    unit: int  # the unit it arrived in
    first: int  # its first line
    formats: bytes  # format code of each line

    @property
    def lines(self) -> int:
        """The number of its lines."""
        return len(self.formats)


class WordIndex:
    """The words of all results, by number: each line as a whole, then its identifiers.

    Stored in growing arrays: there are several words per hundred characters.
    """

    def __init__(self) -> None:
        # By word; number 0 is unused.
        self.home = array("i", [_NOWHERE])  # first line of the newest result with the word
        self.mentioned = array("i", [-1])  # last unit in which a call or message mentioned it
        self.count = bytearray(1)  # results with the word, saturating above the rare count
        self.sorts = bytearray(1)
        # Length of a name with its separator; 0 for a timing.
        self.sizes = array("H", [0])
        # By line, plus one at the end.
        self.starts = array("I", [0])  # start of its words
        self.changed = bytearray()  # lines to encode again
        self.codes = array("H")
        self.shown = bytearray()  # results that had it before
        self.words = array("I")  # by position
        self.events = array("I")  # words whose lines must all be encoded again
        self._since: tuple[int, int, frozenset[int]] = (0, 0, frozenset())  # cached subset of these

    @property
    def size_bytes(self) -> int:
        """Bytes in memory."""
        of_words = bytes_held(self.home, self.mentioned, self.count, self.sorts, self.sizes)
        of_lines = bytes_held(self.starts, self.changed, self.codes, self.shown)
        return of_words + of_lines + bytes_held(self.words, self.events)

    def number(self, word: int, sort: int, size: int) -> None:
        """Add a word that takes this many characters when listed."""
        if word >= len(self.home):
            self.home.extend(_NONE_YET)
            self.mentioned.extend(_NONE_YET)
            self.count.extend(bytes(_GROWTH))
            self.sorts.extend(bytes(_GROWTH))
            self.sizes.extend(array("H", bytes(2 * _GROWTH)))
        self.sorts[word] = sort
        self.sizes[word] = min(size, _MAX_SIZE)

    def add(self, lines: Sequence[list[int]]) -> int:
        """Add the words of a result's lines; return the number of the first line."""
        home, count, starts, first = self.home, self.count, self.starts, len(self.starts) - 1
        self.changed.extend(bytes(len(lines)))
        self.codes.extend(array("H", bytes(2 * len(lines))))
        for line, words in enumerate(lines, first):
            self.words.extend(words)
            starts.append(len(self.words))
            for word in words:
                before = home[word]
                if before < 0:  # a new word: most of them
                    home[word], count[word] = line, 1
                elif before < first:
                    self._move(word, line)
            self.shown.append(_SHOWN[count[words[0]]])
        return first

    def _move(self, word: int, line: int) -> None:
        """Move a word to a newer result."""
        before, count = self.home[word], self.count[word]
        self.home[word] = line
        if count <= MAX_RARE_COUNT:
            self.count[word] = count + 1
        if self.mentioned[word] < 0:
            self.changed[before] = 1
        elif count == MAX_RARE_COUNT:  # it is no longer rare
            self.events.append(word)

    def mention(self, word: int, unit: int) -> None:
        """Record that a call or message mentions a word."""
        if self.mentioned[word] < 0 <= self.home[word]:
            if self.count[word] <= MAX_RARE_COUNT or self.sorts[word] == WHOLE:
                self.events.append(word)
            else:
                self.changed[self.home[word]] = 1
        self.mentioned[word] = unit

    def words_of_line(self, line: int) -> array[int]:
        """The identifiers of a line."""
        return self.words[self.starts[line] + 1 : self.starts[line + 1]]

    def words_of_runs(self, words: ResultWords, removed: bytes) -> Iterator[array[int]]:
        """The words of a result's remaining lines, run by run."""
        at = removed.find(0)
        while at >= 0:
            end = removed.find(1, at)
            end = len(removed) if end < 0 else end
            first, last = words.first + at, words.first + end
            yield self.words[self.starts[first] : self.starts[last]]
            at = removed.find(0, end)

    def has_any(self, words: ResultWords, some: Set[int]) -> bool:
        """Check whether a result has one of these words."""
        return not some.isdisjoint(self._words_of(words))

    def codes_of(self, words: ResultWords) -> array[int]:
        """The codes of a result's lines."""
        return self.codes[words.first : words.first + words.lines]

    def encode(self, words: ResultWords) -> None:
        """Encode all lines of a result."""
        first, end = words.first, words.first + words.lines
        self.changed[first:end] = bytes(words.lines)
        self._encode(range(first, end), words)

    def refresh(self, words: ResultWords, seen_events: int) -> bool:
        """Encode the lines that changed after an event; return whether any code is new."""
        changed, first, end = self.changed, words.first, words.first + words.lines
        if seen_events < len(self.events):
            self._flag_changed(words, self._events_since(seen_events))
        lines: list[int] = []
        at = changed.find(1, first, end)
        while at >= 0:
            changed[at] = 0
            lines.append(at)
            at = changed.find(1, at + 1, end)
        return bool(lines) and self._encode(lines, words)

    def _events_since(self, seen_events: int) -> frozenset[int]:
        """The words of the events after this one, with a cache of the last answer."""
        count = len(self.events)
        if self._since[:2] != (seen_events, count):
            self._since = seen_events, count, frozenset(self.events[seen_events:])
        return self._since[2]

    def _flag_changed(self, words: ResultWords, events: frozenset[int]) -> None:
        """Flag the lines of a result that have one of these words."""
        result_words = self._words_of(words)
        if events.isdisjoint(result_words):
            return
        start = self.starts[words.first]
        for place, word in enumerate(result_words, start):
            if word in events:
                self.changed[bisect_right(self.starts, place) - 1] = 1

    def _words_of(self, words: ResultWords) -> array[int]:
        """All words of a result."""
        return self.words[self.starts[words.first] : self.starts[words.first + words.lines]]

    def _encode(self, lines: Iterable[int], words: ResultWords) -> bool:
        """Encode these lines of a result; return whether any code is new."""
        codes, changed = self.codes, False
        times = Counter(self._words_of(words))
        for line in lines:
            code = self._code(line, times)
            if codes[line] != code:
                codes[line], changed = code, True
        return changed

    def _code(self, line: int, times: Mapping[int, int]) -> int:
        """The code of a line's unique words."""
        home, mentioned, words, begin = self.home, self.mentioned, self.words, self.starts[line]
        code, whole = 0, words[begin]
        if whole != UNNUMBERED:
            code = (2 if mentioned[whole] >= 0 else 3 if home[whole] == line else 1) * _WORTH[0]
        own: list[int] = []
        mention_bin = 0
        for word in words[begin + 1 : self.starts[line + 1]]:
            if mentioned[word] >= 0:
                mention_bin += self.count[word] <= MAX_RARE_COUNT
            elif home[word] == line:
                own.append(word)
        if own:
            code += self._code_of_names(own, times)
        return code + min(2, mention_bin) * _WORTH[5] + self.shown[line]

    def _code_of_names(self, own: Sequence[int], times: Mapping[int, int]) -> int:
        """The part of the code for unique names: how many of each sort, and how often."""
        names = [0, 0, 0, 0]
        for word in own:
            names[self.sorts[word]] += 1
        repeated = max([times[word] for word in own])
        code = min(3, names[1]) * _WORTH[1] + min(2, names[2]) * _WORTH[2]
        return code + min(2, names[3]) * _WORTH[3] + bisect_left(_REPEATED, repeated) * _WORTH[4]


class RemovedLines(Struct, gc=False):
    """The lines that a shorter text lacks."""

    text: int  # its hash
    lines: bytes  # by line: 0 if it stays, LINE_REMOVED, NAME_REMOVED if a name is gone with it
    version: int = -1  # version of the result's lines that the sums are for
    whole: float = 0.0  # sum of the removed lines' factors
    named: float = 0.0

    @property
    def names(self) -> bytes:
        """The removed lines that take a name with them."""
        return self.lines.translate(_WITH_NAME)


class ResultState(Struct, gc=False):
    """The cached state of one result."""

    seen_events: int = 0  # events applied
    version: int = 0  # incremented with every change of its lines
    stamp: tuple[int, int] = (0, 0)  # mentions by then
    mixed: tuple[int, ...] = ()  # bins of the result that change what a line's bins say
    unique_bins: tuple[int, int] = (0, 0)  # share that occurs nowhere else, in bins
    shape: tuple[str | None, str] | None = None  # its content kind, and that of its call
    # The kind of its call, and the line that names the cause
    failure: tuple[str, str] | None = None
    max_factors: tuple[int, float, float] = (
        -1,
        0.0,
        0.0,
    )  # factor of any line, and its version
    texts: tuple[RemovedLines, ...] = ()  # replacement texts, most recently used first

    def find(self, text: int) -> RemovedLines | None:
        """The lines that a text lacks, by its hash."""
        for at, found in enumerate(self.texts):
            if found.text == text:
                if at:
                    self._put_first(found)
                return found
        return None

    def store(self, missing: RemovedLines) -> RemovedLines:
        """Store the lines that a text lacks; drop the least recently used entry."""
        for one in self.texts:
            if one.lines == missing.lines:  # many texts lack all lines
                missing.lines = one.lines
        self._put_first(missing)
        return missing

    def _put_first(self, missing: RemovedLines) -> None:
        others = [one for one in self.texts if one is not missing]
        self.texts = (missing, *others[: _MAX_TEXTS - 1])


class LineCache:
    """Cache of values computed for the lines of results, bounded by lines."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[int, object]] = {}  # by result number: version and value
        self._lines = 0

    @property
    def size_bytes(self) -> int:
        """Approximate bytes in memory."""
        return 2 * 8 * self._lines + _RESULT_BYTES * len(self._found)

    def get(self, number: int, version: int) -> object:
        """The value for this version of a result's lines; None if it is not cached."""
        known = self._found.get(number)
        return None if known is None or known[0] != version else known[1]

    def store(self, number: int, version: int, found: object, lines: int) -> None:
        """Store the value for a result with this many lines."""
        if number not in self._found:
            self._lines += lines
            if self._lines > _MAX_CACHED_LINES:
                self._found.clear()
                self._lines = lines
        self._found[number] = version, found

    def forget(self, number: int, lines: int) -> None:
        """Let go of the value for a result with this many lines."""
        if self._found.pop(number, None) is not None:
            self._lines -= lines
