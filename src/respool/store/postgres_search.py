"""Full-text index of originals in PostgreSQL: their words as tsvector, found by a GIN index.

As in SQLite it only selects candidates, and is extended by searches. An original takes its words
along when it is deleted. The words of a team begin with the team's: so how long its search takes
does not depend on the words that other teams' originals have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from .base import StoreUnavailable
from .connection import Connection, Database
from .originals import space_of_row
from .search_index import Candidates, SearchTerms, words_of

_MAX_WORD_BYTES: Final = 1_000_000  # of a tsvector; a text with more words may always fit
_SPACE_MARK: Final = "~"  # between a team and its word, which has none
_SPACES: Final = "SELECT DISTINCT space FROM search_words"
_INDEXED: Final = "SELECT ref FROM search_words WHERE space = ?"
_FITTING: Final = (
    "SELECT ref FROM search_words WHERE space = ?1 AND words @@ CAST(?2 AS tsquery)"
    " UNION ALL SELECT ref FROM search_words WHERE space = ?1 AND words IS NULL"
)
_ADD: Final = (
    "INSERT OR IGNORE INTO search_words (ref, words)"
    " SELECT o.ref, array_to_tsvector(CAST(?2 AS text[])) FROM originals o WHERE o.ref = ?1"
)


class PostgresIndex:
    """The index of a store; every failure means that there is none."""

    note = ""

    def __init__(self, database: Database) -> None:
        self._database = database

    def candidates(self, terms: SearchTerms, space: str | None) -> Candidates:
        """Return what the index of a team knows of these terms; None: that of all."""
        words = terms.words()
        if not words:
            return Candidates()

        def work(c: Connection) -> Candidates:
            spaces = [one for (one,) in c.execute(_SPACES)] if space is None else [space]
            indexed, fitting = set[str](), set[str]()
            for one in spaces:
                indexed.update(ref for (ref,) in c.execute(_INDEXED, (one,)))
                fitting.update(ref for (ref,) in c.execute(_FITTING, (one, _query(words, one))))
            return Candidates(frozenset(indexed), frozenset(fitting))

        try:
            return self._database.read(work)
        except StoreUnavailable:
            return Candidates()

    def add(self, read: Callable[[], Mapping[str, str]]) -> bool:
        """Index the texts that `read` returns, unless they were deleted meanwhile."""
        rows = [(ref, _bounded_words(text, space_of_row(ref))) for ref, text in read().items()]
        self._database.write(lambda c: c.executemany(_ADD, rows))
        return True

    def discard_missing(self, present: Callable[[], Iterable[str]]) -> bool:
        """Nothing is missing: words go with their originals."""
        return True

    def delete(self) -> None:
        """Delete nothing: what is left in the index belongs to originals that are left."""


def _of_space(word: str, space: str) -> str:
    """A word as the index holds it."""
    return f"{space}{_SPACE_MARK}{word}" if space else word


def _query(words: Iterable[tuple[str, bool]], space: str) -> str:
    """The tsquery for originals of a team that have all words; True: a word may go on."""
    return " & ".join(
        f"'{_of_space(word, space)}'{':*' if goes_on else ''}" for word, goes_on in words
    )


def _bounded_words(text: str, space: str) -> list[str] | None:
    """The words of a text of a team; None if there are too many for a tsvector."""
    words = [_of_space(word, space) for word in words_of(text)]
    size = sum(len(word.encode()) + 3 for word in words)
    return sorted(words) if size < _MAX_WORD_BYTES else None
