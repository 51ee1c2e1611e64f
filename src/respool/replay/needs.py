"""What an agent's next action is made of: identifiers and lines, and where they had stood."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ahocorasick_rs import AhoCorasick

from ..tokens import replace_surrogates

_ATOM = re.compile(r"[A-Za-z0-9_./:@\\-]{5,}")
_IDENTIFIER = re.compile(r"[_./:@\\-]|\d|[a-z][A-Z]")
_SHORTEST_ATOM = 5
_SHORTEST_LINE = 16
_PIECE = 65_536  # characters looked through at once, so that matches never fill the memory


def needs_in(call_text: str) -> tuple[set[str], set[str]]:
    """The identifiers (names, paths, numbers; not plain words) and the lines of a call."""
    _, _, arguments = call_text.partition("\n")
    atoms = {atom.strip(".:/-") for atom in _ATOM.findall(arguments)}
    lines = {line.strip() for line in arguments.splitlines()}
    return (
        {atom for atom in atoms if len(atom) >= _SHORTEST_ATOM and _IDENTIFIER.search(atom)},
        {line for line in lines if len(line) >= _SHORTEST_LINE},
    )


class Finder:
    """Finds all of a session's needs in a text at one go."""

    def __init__(self, needs: Iterable[str]) -> None:
        self.needs = sorted(needs)
        self.numbers = {need: number for number, need in enumerate(self.needs)}
        self._max_length = max(map(len, self.needs), default=0)
        spelled = [_encodable(need) for need in self.needs]
        self._automaton = AhoCorasick(spelled) if spelled else None

    def find(self, text: str) -> set[int]:
        """The numbers of the needs that stand in a text."""
        if self._automaton is None or not text:
            return set()
        piece = max(_PIECE, 4 * self._max_length)
        if len(text) <= piece:
            return self._find_in_chunk(text)
        found: set[int] = set()
        for start in range(0, len(text), piece):
            found |= self._find_in_chunk(text[start : start + piece + self._max_length - 1])
        return found

    def _find_in_chunk(self, text: str) -> set[int]:
        assert self._automaton is not None
        matches = self._automaton.find_matches_as_indexes(_encodable(text), overlapping=True)
        return {match[0] for match in matches}


def _encodable(text: str) -> str:
    """The text without lone surrogates, which the automaton cannot take."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return replace_surrogates(text)
    return text
