"""Search of lines by regular expression in linear time.

Python's own engine tries one way after another, and some patterns have more ways than there is
time. Here all ways are walked side by side: a pattern becomes states, and a set of states is looked
up by the next character. References back and looks around cannot be had that way, and are refused.
Characters and classes are judged by Python's engine, so they mean what they mean there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct

MOST_STATES: Final = 2_000  # of one pattern, with its repeats written out
MOST_PATTERN: Final = 1_000  # characters

_REMEMBERED = 20_000  # steps from a set of states to the next one
_TRIES = frozenset("*+?{|")  # a pattern without these leaves nothing to try
_TOKEN = re.compile(
    r"(?P<repeat>[*+?]|\{\d+(?:,\d*)?\}|\{,\d+\})(?P<how>[?+]?)"
    r"|(?P<open>\((?:\?:|\?P<[A-Za-z_]\w*>|(?!\?)))"
    r"|(?P<close>\))"
    r"|(?P<or>\|)"
    r"|(?P<at>\^|\$|\\[bBAZ])"
    r"|(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|(?P<escape>\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[^0-9xuUNbBAZ]))"
    r"|(?P<one>[^\\\[()])",
    re.DOTALL,
)
_FLAGS = re.compile(r"\(\?([aims]+)\)")
_WORD = re.compile(r"\w")

Fits = Callable[[str], object]


class Unsearchable(ValueError):
    """A pattern that is wrong, or that cannot be searched for in linear time."""


def searcher(pattern: str) -> Callable[[str], bool]:
    """Whether a line holds what a pattern describes."""
    if len(pattern) > MOST_PATTERN:
        raise Unsearchable(f"it has more than {MOST_PATTERN:,} characters")
    try:
        known = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise Unsearchable(f"it is no regular expression: {error}") from error
    if _TRIES.isdisjoint(pattern):
        return lambda line: known.search(line) is not None
    try:
        return _Machine(pattern).finds
    except RecursionError:
        raise Unsearchable("its groups are nested too deeply") from None


def whole_matcher(pattern: str) -> Callable[[str], bool]:
    """Matcher of whole texts, for a pattern that respool itself has put together.

    It may be of any length, and `.` fits every character.

    >>> fits = whole_matcher(r"docs/.*\\.md")
    >>> fits("docs/a.md"), fits("docs/a.md.txt")
    (True, False)
    """
    return _Machine(rf"(?s)\A(?:{pattern})\Z", most_states=None).finds


class _State(Struct, gc=False):
    """A place in the pattern: what must come next, and where that leads."""

    fits: Fits | None = None  # of the next character; None: nothing is read here
    at: str = ""  # a place in the line that this stands for, if it reads nothing
    next: tuple[int, ...] = ()


class _Reading(Struct):
    """A pattern on its way to states."""

    tokens: list[re.Match[str]]
    flags: int
    at: int = 0


class _Node(dict[str, "_Node | None"]):
    """A set of states at one kind of place in a line; maps the next character to the next node.

    None stands for a match. Steps are worked out when they are first needed, and kept.
    """

    __slots__ = ("before", "ends", "first", "live", "machine")

    def __init__(
        self, machine: _Machine, live: frozenset[int], *, before: bool, first: bool
    ) -> None:
        super().__init__()
        self.machine = machine
        self.live = live
        self.before = before  # the character before is a word character
        self.first = first  # the line begins here
        self.ends: bool | None = None  # the pattern fits if the line ends here; None: not known yet

    def __missing__(self, character: str) -> _Node | None:
        return self.machine.step(self, character)


class _Machine:
    """The states of a pattern, and the steps between sets of them that were needed so far."""

    def __init__(self, pattern: str, most_states: int | None = MOST_STATES) -> None:
        found = _FLAGS.match(pattern)
        flags = sum(getattr(re, letter.upper()) for letter in set(found[1])) if found else 0
        self._most_states = most_states
        self._states: list[_State] = [_State()]
        self._nodes: dict[tuple[frozenset[int], bool], _Node] = {}
        self._steps = 0
        reading = _Reading(_tokens(pattern, found.end() if found else 0), flags)
        self._start = self._either(reading, 0)
        self._first = _Node(self, frozenset({self._start}), before=False, first=True)

    def finds(self, line: str) -> bool:
        """Whether any part of the line fits."""
        node = self._first
        for character in line:
            following = node[character]
            if following is None:
                return True
            node = following
        if node.ends is None:
            node.ends = 0 in self._reached(node.live, node.before, False, node.first, last=True)
        return node.ends

    def step(self, node: _Node, character: str) -> _Node | None:
        """The node after one more character, with a match that begins behind it.

        State 0 says that the pattern fits; None stands for that.
        """
        after = _WORD.match(character) is not None
        here = self._reached(node.live, node.before, after, node.first, last=False)
        reads = (self._states[one] for one in here)
        ways = [one.next for one in reads if one.fits and one.fits(character)]
        live = frozenset({self._start, *(to for way in ways for to in way)})
        if self._steps >= _REMEMBERED:
            self._forget()
        self._steps += 1
        following = None if 0 in here or 0 in live else self._node(live, after)
        node[character] = following
        return following

    def _node(self, live: frozenset[int], before: bool) -> _Node:
        known = self._nodes.get((live, before))
        if known is None:
            known = self._nodes[live, before] = _Node(self, live, before=before, first=False)
        return known

    def _forget(self) -> None:
        for node in (self._first, *self._nodes.values()):
            node.clear()
        self._nodes.clear()
        self._steps = 0

    def _reached(
        self, live: frozenset[int], before: bool, after: bool, first: bool, *, last: bool
    ) -> frozenset[int]:
        """All states that can be reached from these without reading a character."""
        seen, todo = set(live), list(live)
        while todo:
            state = self._states[todo.pop()]
            if state.fits is not None or (
                state.at and not _holds(state.at, before, after, first, last)
            ):
                continue
            new = [to for to in state.next if to not in seen]
            seen.update(new)
            todo += new
        return frozenset(seen)

    def _add(self, state: _State) -> int:
        if self._most_states is not None and len(self._states) >= self._most_states:
            raise Unsearchable("written out it is too long")
        self._states.append(state)
        return len(self._states) - 1

    def _either(self, reading: _Reading, then: int) -> int:
        """Ways parted by `|`: the state that begins them all; each goes on at `then`."""
        ways = [self._sequence(reading, then)]
        while reading.at < len(reading.tokens) and reading.tokens[reading.at]["or"]:
            reading.at += 1
            ways.append(self._sequence(reading, then))
        return ways[0] if len(ways) == 1 else self._add(_State(next=tuple(ways)))

    def _sequence(self, reading: _Reading, then: int) -> int:
        """Items one after another, built from the last to the first, for each names its next."""
        items: list[tuple[int, int, str]] = []  # where an item begins and ends, and its repeat
        while reading.at < len(reading.tokens):
            token = reading.tokens[reading.at]
            if token["or"] or token["close"]:
                break
            start = reading.at
            reading.at = _end_of_item(reading.tokens, start)
            end = reading.at
            repeat = ""
            if reading.at < len(reading.tokens) and reading.tokens[reading.at]["repeat"]:
                repeat = reading.tokens[reading.at]["repeat"]
                reading.at += 1
            items.append((start, end, repeat))
        end_of_sequence = reading.at
        for start, end, repeat in reversed(items):
            then = self._repeated(reading, start, end, repeat, then)
        reading.at = end_of_sequence
        return then

    def _repeated(self, reading: _Reading, start: int, end: int, repeat: str, then: int) -> int:
        """An item as often as its repeat says; what is written out is built anew each time."""
        least, most = _bounds(repeat)
        if most is None:
            loop = self._add(_State())
            self._states[loop].next = (self._item(reading, start, end, loop), then)
            then = loop
        for _ in range(0 if most is None else most - least):
            then = self._add(_State(next=(self._item(reading, start, end, then), then)))
        for _ in range(least):
            then = self._item(reading, start, end, then)
        return then

    def _item(self, reading: _Reading, start: int, end: int, then: int) -> int:
        """One character, place or group."""
        token = reading.tokens[start]
        if token["open"]:
            reading.at = start + 1
            return self._add(_State(next=(self._either(reading, then),)))  # counts, even if empty
        if token["at"]:
            return self._add(_State(at=token["at"], next=(then,)))
        return self._add(_State(fits=_fits(token, reading.flags), next=(then,)))


def _tokens(pattern: str, at: int) -> list[re.Match[str]]:
    found: list[re.Match[str]] = []
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None or token["how"] == "+":
            raise Unsearchable(f"{pattern[at : at + 10]!r} cannot be searched for in linear time")
        found.append(token)
        at = token.end()
    return found


def _fits(token: re.Match[str], flags: int) -> Fits:
    """Test of one character; a literal is compared, which is quicker to build."""
    literal = (token["escape"] or "")[1:] or token["one"] or ""
    stands_for_more = literal.isalnum() if token["escape"] else literal in ("", ".")
    if stands_for_more or flags & re.IGNORECASE:
        return re.compile(token[0], flags).fullmatch
    return literal.__eq__


def _end_of_item(tokens: list[re.Match[str]], at: int) -> int:
    """Where the item that begins here ends: a group at its closing bracket."""
    depth = 0
    while True:
        depth += (tokens[at]["open"] is not None) - (tokens[at]["close"] is not None)
        at += 1
        if depth == 0:
            return at


def _bounds(repeat: str) -> tuple[int, int | None]:
    """How often at least, and at most."""
    match repeat:
        case "":
            return 1, 1
        case "*":
            return 0, None
        case "+":
            return 1, None
        case "?":
            return 0, 1
        case _:
            least, comma, most = repeat.strip("{}").partition(",")
            low = int(least or "0")
            return low, (int(most) if most else None) if comma else low


def _holds(place: str, before: bool, after: bool, first: bool, last: bool) -> bool:
    """Whether a place in the line is what the pattern wants there."""
    match place:
        case "^" | "\\A":
            return first
        case "$" | "\\Z":
            return last
        case "\\b":
            return before != after
        case _:
            return before == after
