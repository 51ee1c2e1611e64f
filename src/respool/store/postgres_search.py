"""Full-text index of originals in PostgreSQL: their words as tsvector, found by a GIN index.

As in SQLite it only selects candidates, and is extended by searches. An original takes its words
along when it is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from .base import StoreUnavailable
from .connection import Connection, Database
from .search_index import Candidates, SearchTerms, words_of

_MAX_WORD_BYTES: Final = 1_000_000  # of a tsvector; a text with more words may always fit
_INDEXED: Final = "SELECT ref FROM search_words"
_FITTING: Final = (
    "SELECT ref FROM search_words WHERE words @@ CAST(? AS tsquery)"
    " UNION ALL SELECT ref FROM search_words WHERE words IS NULL"
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

    def candidates(self, terms: SearchTerms) -> Candidates:
        """Return what the index knows of these terms."""
        query = " & ".join(f"'{word}'{':*' if goes_on else ''}" for word, goes_on in terms.words())
        if not query:
            return Candidates()

        def work(c: Connection) -> Candidates:
            indexed = frozenset(ref for (ref,) in c.execute(_INDEXED))
            fitting = frozenset(ref for (ref,) in c.execute(_FITTING, (query,)))
            return Candidates(indexed, fitting)

        try:
            return self._database.read(work)
        except StoreUnavailable:
            return Candidates()

    def add(self, read: Callable[[], Mapping[str, str]]) -> bool:
        """Index the texts that `read` returns, unless they were deleted meanwhile."""
        rows = [(ref, _bounded_words(text)) for ref, text in read().items()]
        self._database.write(lambda c: c.executemany(_ADD, rows))
        return True

    def discard_missing(self, present: Callable[[], Iterable[str]]) -> bool:
        """Nothing is missing: words go with their originals."""
        return True

    def delete(self) -> None:
        """Delete nothing: what is left in the index belongs to originals that are left."""


def _bounded_words(text: str) -> list[str] | None:
    """The words of a text; None if there are too many for a tsvector."""
    words = words_of(text)
    size = sum(len(word.encode()) + 3 for word in words)
    return sorted(words) if size < _MAX_WORD_BYTES else None
