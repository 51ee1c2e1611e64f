"""Search in originals: the terms of a pattern, and a full-text index in a file of its own.

The index is a cache that only selects candidates. Each hit is verified in the original itself, as
its owner reads it from the store. So an index that is missing, old or recognizably damaged costs
time: originals that are not in it are read. Nothing is indexed when originals are stored, only at
a search.

SQLite's FTS5 cannot take a text out of an index without its words. So the index has one table per
bucket of originals. A bucket that holds a deleted original is deleted as a whole, and its pages are
overwritten; `forget` deletes the file. `detail=none` stores which words an original has and nothing
of their order: on source code 17 % of the text's size, of which the store takes 47 %.

A bucket holds originals of one team only. So how long a team's search takes does not depend on the
words that other teams' originals have.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sqlite3
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from ..errors import RespoolError
from ..regex import lazy_compile
from .database_file import SEARCH_SUFFIXES, side_file
from .originals import space_of_row

T = TypeVar("T")

MAX_PATTERN_CHARS = 1_000
NO_FTS5 = "The SQLite of this Python has no FTS5, so every original was read"

_VERSION = 2  # of the tables and of the way texts become words
_BUCKET_ORIGINALS = 1_000
_MAX_WORD_CHARS = 64  # of a word in the index; a longer one is cut
_SNIPPET_BEFORE, _SNIPPET_AFTER = 60, 120  # characters
_WAIT_SECONDS = 1.0  # for another process
_WORD = lazy_compile(r"\w+")
_TERMINAL_CODE = lazy_compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_LONG_WORD = lazy_compile(rf"\w{{{_MAX_WORD_CHARS + 1}}}")
_TERM = lazy_compile(r'"([^"]+)"|(\S+)')
_BUCKETS = f"SELECT DISTINCT id / {_BUCKET_ORIGINALS} FROM indexed"  # noqa: S608 - a number of ours
_TABLES = (
    "PRAGMA auto_vacuum = FULL",  # first: it applies to an empty file only
    "CREATE TABLE indexed (id INTEGER PRIMARY KEY, ref TEXT NOT NULL UNIQUE, space TEXT NOT NULL)",
    "CREATE INDEX indexed_by_space ON indexed (space)",
    f"PRAGMA user_version = {_VERSION}",
)


class UnsearchablePattern(RespoolError):
    """The pattern has no term to search for, or is too long."""


class Snippet(Struct, frozen=True, gc=False):
    """The line of a hit."""

    line: int  # counted from 1
    text: str  # what is around the hit, without line ends


class SearchTerms:
    """The terms of a pattern; a text fits if it has them all.

    Blanks separate terms, except between double quotes. Case does not matter. A term that begins
    with a letter, a digit or `_` fits where a word begins, and may end within a word.
    """

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN_CHARS:
            raise UnsearchablePattern(
                f"The pattern has {len(pattern):,} characters; allowed are {MAX_PATTERN_CHARS:,}."
            )
        found = (quoted or plain for quoted, plain in _TERM.findall(pattern.lower()))
        self._terms = [" ".join(term.split()) for term in found if term.strip()]
        if not self._terms:
            raise UnsearchablePattern("The pattern has nothing to search for; write a word of it.")
        self._expressions = [_expression(term) for term in self._terms]

    def words(self) -> list[tuple[str, bool]]:
        """The words of the terms, as an index holds them; True: it may go on."""
        return [one for term in self._terms for one in _term_words(term)]

    def find(self, text: str) -> Snippet | None:
        """Return where a text has the first term; None if it lacks one."""
        text = _without_terminal_codes(text)
        lowered = text.lower()
        found = [one.search(lowered) for one in self._expressions]
        if not all(found) or found[0] is None:
            return None
        shown = text if len(text) == len(lowered) else lowered  # a few letters become two
        at = found[0].start()
        start = max(shown.rfind("\n", 0, at) + 1, at - _SNIPPET_BEFORE)
        end = shown.find("\n", at)
        end = min(len(shown) if end < 0 else end, at + _SNIPPET_AFTER)
        before = "" if start == 0 or shown[start - 1] == "\n" else "…"
        after = "" if end == len(shown) or shown[end] == "\n" else "…"
        return Snippet(shown.count("\n", 0, at) + 1, f"{before}{shown[start:end].strip()}{after}")


def _expression(term: str) -> re.Pattern[str]:
    start = r"(?<!\w)" if _WORD.match(term) else ""
    return re.compile(start + r"\s+".join(re.escape(word) for word in term.split()))


def _term_words(term: str) -> Generator[tuple[str, bool]]:
    """The words of a term; the last one may go on."""
    for found in _WORD.finditer(term):
        word = found[0]
        goes_on = found.end() == len(term) or len(word) > _MAX_WORD_CHARS
        yield word[:_MAX_WORD_CHARS], goes_on


def _without_terminal_codes(text: str) -> str:
    """Take out codes that end with a letter, which would count as part of a word.

    Colours can stand within a word: where they are taken out, its parts join.
    """
    if "\x1b[" not in text:
        return text
    return _TERMINAL_CODE.sub(lambda found: "" if found[0][-1] in "mK" else " ", text)


def words_of(text: str) -> set[str]:
    """The words of a text, as an index holds them."""
    found = _WORD.findall(_without_terminal_codes(text).lower())
    return {word[:_MAX_WORD_CHARS] for word in found}


def _index_text(text: str) -> str:
    """The words of a text, such that the index separates them as `_WORD` does."""
    text = _without_terminal_codes(text)
    if text.isascii() and not _LONG_WORD.search(text):
        return text.replace("\0", " ")
    return " ".join(word[:_MAX_WORD_CHARS] for word in _WORD.findall(text.lower()))


class Candidates(Struct, frozen=True):
    """References in the index, and those among them that may fit."""

    indexed: frozenset[str] = frozenset()
    fitting: frozenset[str] = frozenset()

    def can_fit(self, ref: str) -> bool:
        """Check that an original may fit: the index has it among those, or does not know it."""
        return ref in self.fitting or ref not in self.indexed


@functools.cache
def has_fts5() -> bool:
    """Check if SQLite was built with FTS5."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute("CREATE VIRTUAL TABLE words USING fts5(text)")
        except sqlite3.OperationalError:
            return False
    return True


class SearchIndex:
    """The index of a store, in a file beside it; every failure means that there is none."""

    def __init__(self, store: Path) -> None:
        self._paths = [side_file(store, suffix) for suffix in SEARCH_SUFFIXES]
        self._path = self._paths[0]

    @property
    def note(self) -> str:
        """Say why there is no index; empty: there is one."""
        return "" if has_fts5() else NO_FTS5

    def exists(self) -> bool:
        """Check if there is an index."""
        return self._path.exists()

    def candidates(self, terms: SearchTerms, space: str | None) -> Candidates:
        """Return what the index of a team knows of these terms; None: that of all."""
        query = " AND ".join(f'"{word}"{"*" if goes_on else ""}' for word, goes_on in terms.words())
        if not query or not has_fts5() or not self.exists():
            return Candidates()

        of_space, given = ("", ()) if space is None else (" WHERE space = ?", (space,))

        def work(connection: sqlite3.Connection) -> Candidates:
            refs = connection.execute(f"SELECT ref FROM indexed{of_space}", given)  # noqa: S608 - ours
            indexed = frozenset(ref for (ref,) in refs)
            fitting: set[str] = set()
            for (bucket,) in connection.execute(f"{_BUCKETS}{of_space}", given).fetchall():
                fitting.update(
                    ref
                    for (ref,) in connection.execute(
                        f"SELECT ref FROM indexed WHERE id IN (SELECT rowid FROM words_{bucket}"  # noqa: S608 - a number of ours
                        f" WHERE words_{bucket} MATCH ?)",
                        (query,),
                    )
                )
            return Candidates(indexed, frozenset(fitting))

        return self._run("BEGIN", work) or Candidates()

    def add(self, read: Callable[[], Mapping[str, str]]) -> bool:
        """Index the texts that `read` returns; False: they are not indexed.

        They are read when this file is open and locked. So what is deleted from the store meanwhile
        goes: `forget` deletes this file after the rows, and `discard_missing` waits for the lock.
        """
        if not has_fts5():
            return False

        def work(connection: sqlite3.Connection) -> bool:
            for ref, text in read().items():
                _insert(connection, ref, text)
            return True

        return self._run("BEGIN IMMEDIATE", work) or False

    def discard_missing(self, present: Callable[[], Iterable[str]]) -> bool:
        """Delete the buckets with an original that is no longer in the store; True if done."""

        def work(connection: sqlite3.Connection) -> bool:
            rows = connection.execute("SELECT id, ref FROM indexed").fetchall()
            held = set(present())
            for bucket in sorted({id // _BUCKET_ORIGINALS for id, ref in rows if ref not in held}):
                connection.execute(f"DROP TABLE words_{bucket}")
                connection.execute(
                    f"DELETE FROM indexed WHERE id / {_BUCKET_ORIGINALS} = ?",  # noqa: S608 - ours
                    (bucket,),
                )
            return True

        if not self.exists():
            return True
        if not has_fts5():
            self.delete()
            return True
        return self._run("BEGIN IMMEDIATE", work) or False

    def delete(self) -> None:
        """Delete the index; raises OSError if it cannot be."""
        for path in self._paths:
            path.unlink(missing_ok=True)

    def _run(self, begin: str, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Run work in a transaction; None if it failed. A damaged index is deleted."""
        try:
            with contextlib.closing(self._open()) as connection:
                connection.execute(begin)
                found = work(connection)
                connection.execute("COMMIT")
                return found
        except OSError:
            return None
        except sqlite3.Error as error:
            if _is_damage(error):
                with contextlib.suppress(OSError):
                    self.delete()
            return None

    def _open(self) -> sqlite3.Connection:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=_WAIT_SECONDS,
            isolation_level=None,
        )
        try:
            _prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def _is_damage(error: sqlite3.Error) -> bool:
    """Check that an index is damaged, and not only locked, read-only or without space."""
    if not isinstance(error, sqlite3.OperationalError):
        return True
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_ERROR  # no such table


def _prepare(connection: sqlite3.Connection) -> None:
    """Create the tables of a new file; an index of another version counts as damaged."""
    connection.execute("PRAGMA secure_delete = ON").fetchall()  # overwrite deleted data
    ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    if version == _VERSION:
        return
    ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    if version or tables:
        raise sqlite3.DatabaseError(f"the index has version {version}")
    connection.execute(_TABLES[0])
    connection.execute("BEGIN IMMEDIATE")
    for statement in _TABLES[1:]:
        connection.execute(statement)
    connection.execute("COMMIT")


def _insert(connection: sqlite3.Connection, ref: str, text: str) -> None:
    space = space_of_row(ref)
    id = _next_id(connection, space)
    done = connection.execute(
        "INSERT OR IGNORE INTO indexed (id, ref, space) VALUES (?, ?, ?)", (id, ref, space)
    )
    if not done.rowcount:  # another process was first
        return
    bucket = id // _BUCKET_ORIGINALS
    connection.execute(
        f"CREATE VIRTUAL TABLE IF NOT EXISTS words_{bucket} USING fts5"
        "(text, content='', columnsize=0, detail=none, tokenize=\"ascii tokenchars '_'\")"
    )
    connection.execute(
        f"INSERT INTO words_{bucket} (rowid, text) VALUES (?, ?)",  # noqa: S608 - a number of ours
        (id, _index_text(text)),
    )


def _next_id(connection: sqlite3.Connection, space: str) -> int:
    """The id of a team's next original: in its last bucket, or in a new one."""
    ((last,),) = connection.execute(
        "SELECT max(id) FROM indexed WHERE space = ?", (space,)
    ).fetchall()
    if last is not None and (last + 1) % _BUCKET_ORIGINALS:
        return last + 1
    ((last,),) = connection.execute("SELECT max(id) FROM indexed").fetchall()
    return 1 if last is None else (last // _BUCKET_ORIGINALS + 1) * _BUCKET_ORIGINALS
