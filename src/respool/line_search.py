"""Search of lines by regular expression in linear time.

Python's engine backtracks, which takes exponential time for some patterns. Here a pattern becomes a
nondeterministic automaton, whose sets of states are cached as they are reached. Backreferences and
lookarounds are rejected. Python's engine matches single characters and classes, so they have the
same meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from .regex import lazy_compile

MAX_STATES: Final = 2_000  # of one pattern, with its repeats expanded
MAX_PATTERN_CHARS: Final = 1_000

_MAX_CACHED_STEPS = 20_000  # from a set of states to the next
_BACKTRACKING = frozenset("*+?{|")  # a pattern without these never backtracks
_TOKEN = lazy_compile(
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
_FLAGS = lazy_compile(r"\(\?([aims]+)\)")
_WORD = lazy_compile(r"\w")

CharacterTest = Callable[[str], object]


class Unsearchable(ValueError):
    """The pattern is invalid or cannot be searched in linear time."""


def searcher(pattern: str) -> Callable[[str], bool]:
    """Compile a pattern to a function that tests if a line contains a match."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise Unsearchable(f"it has more than {MAX_PATTERN_CHARS:,} characters")
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise Unsearchable(f"it is no regular expression: {error}") from error
    if _BACKTRACKING.isdisjoint(pattern):
        return lambda line: compiled.search(line) is not None
    try:
        return _Machine(pattern).has_match
    except RecursionError:
        raise Unsearchable("its groups are nested too deeply") from None


def whole_matcher(pattern: str) -> Callable[[str], bool]:
    """Compile a pattern of respool's own to a function that tests whole texts.

    The pattern may have any length, and `.` matches every character.

    >>> fits = whole_matcher(r"docs/.*\\.md")
    >>> fits("docs/a.md"), fits("docs/a.md.txt")
    (True, False)
    """
    return _Machine(rf"(?s)\A(?:{pattern})\Z", max_states=None).has_match


class _State(Struct, gc=False):
    """A state of the automaton: the character it reads and the states after it."""

    accepts: CharacterTest | None = None  # tests the next character; None: reads none
    at: str = ""  # the anchor of a state that reads none
    next: tuple[int, ...] = ()


class _ParserState(Struct):
    """The tokens of a pattern and the position of the parser."""

    tokens: list[re.Match[str]]
    flags: int
    at: int = 0


class _Node(dict[str, "_Node | None"]):
    """A set of states; maps the next character to the next node, None for a match.

    Steps are computed when first needed.
    """

    __slots__ = ("active", "before", "ends", "first", "machine")

    def __init__(
        self, machine: _Machine, active: frozenset[int], *, before: bool, first: bool
    ) -> None:
        super().__init__()
        self.machine = machine
        self.active = active
        self.before = before  # the character before is a word character
        self.first = first  # the line begins here
        self.ends: bool | None = None  # matches if the line ends here; None: not computed yet

    def __missing__(self, character: str) -> _Node | None:
        return self.machine.step(self, character)


class _Machine:
    """The automaton of a pattern, with a cache of steps."""

    def __init__(self, pattern: str, max_states: int | None = MAX_STATES) -> None:
        found = _FLAGS.match(pattern)
        flags = sum(getattr(re, letter.upper()) for letter in set(found[1])) if found else 0
        self._max_states = max_states
        self._states: list[_State] = [_State()]
        self._nodes: dict[tuple[frozenset[int], bool], _Node] = {}
        self._steps = 0
        parser = _ParserState(_tokens(pattern, found.end() if found else 0), flags)
        self._start = self._alternatives(parser, 0)
        self._first = _Node(self, frozenset({self._start}), before=False, first=True)

    def has_match(self, line: str) -> bool:
        """Return whether any part of the line matches."""
        node = self._first
        for character in line:
            following = node[character]
            if following is None:
                return True
            node = following
        if node.ends is None:
            node.ends = 0 in self._reachable(node, after=False, last=True)
        return node.ends

    def step(self, node: _Node, character: str) -> _Node | None:
        """The node after one more character, where another match may begin; None: a match.

        State 0 is the accepting state.
        """
        after = _WORD.match(character) is not None
        here = self._reachable(node, after=after, last=False)
        reads = (self._states[one] for one in here)
        branches = [one.next for one in reads if one.accepts and one.accepts(character)]
        active = frozenset({self._start, *(to for branch in branches for to in branch)})
        if self._steps >= _MAX_CACHED_STEPS:
            self._clear_cache()
        self._steps += 1
        following = None if 0 in here or 0 in active else self._node(active, after)
        node[character] = following
        return following

    def _node(self, active: frozenset[int], before: bool) -> _Node:
        known = self._nodes.get((active, before))
        if known is None:
            known = self._nodes[active, before] = _Node(self, active, before=before, first=False)
        return known

    def _clear_cache(self) -> None:
        for node in (self._first, *self._nodes.values()):
            node.clear()
        self._nodes.clear()
        self._steps = 0

    def _reachable(self, node: _Node, *, after: bool, last: bool) -> frozenset[int]:
        """All states reachable from these without a character."""
        seen, todo = set(node.active), list(node.active)
        while todo:
            state = self._states[todo.pop()]
            if state.accepts is not None:
                continue
            if state.at and not _matches_anchor(state.at, node, after=after, last=last):
                continue
            new = [to for to in state.next if to not in seen]
            seen.update(new)
            todo += new
        return frozenset(seen)

    def _add(self, state: _State) -> int:
        if self._max_states is not None and len(self._states) >= self._max_states:
            raise Unsearchable("written out it is too long")
        self._states.append(state)
        return len(self._states) - 1

    def _alternatives(self, parser: _ParserState, next_state: int) -> int:
        """The state before all alternatives of `|`; each of them continues at `next_state`."""
        branches = [self._sequence(parser, next_state)]
        while parser.at < len(parser.tokens) and parser.tokens[parser.at]["or"]:
            parser.at += 1
            branches.append(self._sequence(parser, next_state))
        return branches[0] if len(branches) == 1 else self._add(_State(next=tuple(branches)))

    def _sequence(self, parser: _ParserState, next_state: int) -> int:
        """A sequence of items, built from the last to the first, because each needs its next."""
        items: list[tuple[int, str]] = []  # the start of an item, and its repeat
        while parser.at < len(parser.tokens):
            token = parser.tokens[parser.at]
            if token["or"] or token["close"]:
                break
            start = parser.at
            parser.at = _end_of_item(parser.tokens, start)
            repeat = ""
            if parser.at < len(parser.tokens) and parser.tokens[parser.at]["repeat"]:
                repeat = parser.tokens[parser.at]["repeat"]
                parser.at += 1
            items.append((start, repeat))
        end_of_sequence = parser.at
        for start, repeat in reversed(items):
            next_state = self._repeated(parser, start, repeat, next_state)
        parser.at = end_of_sequence
        return next_state

    def _repeated(self, parser: _ParserState, start: int, repeat: str, next_state: int) -> int:
        """An item with its repeat; each copy has its own states."""
        low, high = _bounds(repeat)
        if high is None:
            loop = self._add(_State())
            self._states[loop].next = (self._item(parser, start, loop), next_state)
            next_state = loop
        for _ in range(0 if high is None else high - low):
            next_state = self._add(_State(next=(self._item(parser, start, next_state), next_state)))
        for _ in range(low):
            next_state = self._item(parser, start, next_state)
        return next_state

    def _item(self, parser: _ParserState, start: int, next_state: int) -> int:
        """One character, anchor or group."""
        token = parser.tokens[start]
        if token["open"]:
            parser.at = start + 1
            inner = self._alternatives(parser, next_state)
            return self._add(_State(next=(inner,)))  # counts, even if empty
        if token["at"]:
            return self._add(_State(at=token["at"], next=(next_state,)))
        return self._add(_State(accepts=_character_test(token, parser.flags), next=(next_state,)))


def _tokens(pattern: str, at: int) -> list[re.Match[str]]:
    found: list[re.Match[str]] = []
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None or token["how"] == "+":
            raise Unsearchable(f"{pattern[at : at + 10]!r} cannot be searched for in linear time")
        found.append(token)
        at = token.end()
    return found


def _character_test(token: re.Match[str], flags: int) -> CharacterTest:
    """The test of one character; a literal is compared, which is faster to build."""
    literal = (token["escape"] or "")[1:] or token["one"] or ""
    is_class = literal.isalnum() if token["escape"] else literal in ("", ".")
    if is_class or flags & re.IGNORECASE:
        return re.compile(token[0], flags).fullmatch
    return literal.__eq__


def _end_of_item(tokens: list[re.Match[str]], at: int) -> int:
    """The end of the item that begins here: of a group its closing bracket."""
    depth = 0
    while True:
        depth += (tokens[at]["open"] is not None) - (tokens[at]["close"] is not None)
        at += 1
        if depth == 0:
            return at


def _bounds(repeat: str) -> tuple[int, int | None]:
    """The minimum and maximum number of repeats; None: no maximum."""
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
            first, comma, last = repeat.strip("{}").partition(",")
            low = int(first or "0")
            return low, (int(last) if last else None) if comma else low


def _matches_anchor(anchor: str, node: _Node, *, after: bool, last: bool) -> bool:
    """Return whether an anchor matches here."""
    match anchor:
        case "^" | "\\A":
            return node.first
        case "$" | "\\Z":
            return last
        case "\\b":
            return node.before != after
        case _:
            return node.before == after
