"""Originals: one row for each text, under its reference, and who may read it."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice

from msgspec import Struct

from ..marker import reference
from .packing import Damaged, encoded, packed, unpacked_text
from .schema import stamp_anew

STALE = 3_600.0  # seconds after which a conversation is marked as going on
_AT_ONCE = 500  # values in one query
_READABLE = """
    SELECT o.packing, o.body, o.size FROM originals o WHERE o.ref = ?1 AND (?2 IS NULL OR EXISTS (
        SELECT 1 FROM kept k JOIN conversations c ON c.id = k.conversation
        WHERE k.ref = ?1 AND c.owner = ?2))"""


class Packed(Struct, frozen=True, gc=False):
    """An original as it stands in the file."""

    ref: str
    size: int
    packing: int
    body: bytes


def pack(ref: str, text: str) -> Packed:
    """A text made ready; whoever waits for the disk should not wait for this too."""
    if reference(text) != ref:
        raise ValueError(f"{ref!r} is not the reference of this text, which is {reference(text)!r}")
    data = encoded(text)
    return Packed(ref, len(data), *packed(data))


def conversation_id(
    connection: sqlite3.Connection, owner: str, name: str, time: float, session: str = ""
) -> int:
    """The row of a conversation, which goes on at this time; made if there is none."""
    connection.execute(
        """INSERT INTO conversations (owner, name, session, started, last)
        VALUES (?1, ?2, ?3, ?4, ?4) ON CONFLICT (owner, name) DO UPDATE SET
        last = max(last, excluded.last),
        session = CASE excluded.session WHEN '' THEN session ELSE excluded.session END""",
        (owner, name, session, time),
    )
    found = connection.execute(
        "SELECT id FROM conversations WHERE owner = ? AND name = ?", (owner, name)
    ).fetchall()
    return found[0][0]


class Lacking(Struct, frozen=True):
    """What has to be written so that a conversation has all its originals."""

    refs: frozenset[str]
    unstored: frozenset[str]  # those of them whose text no conversation has
    last_used: float  # when the conversation was last marked as going on


def lacking(
    connection: sqlite3.Connection, owner: str, name: str, refs: Collection[str], time: float
) -> Lacking:
    """What a conversation lacks of these originals.

    One that has not been marked as going on for a while lacks all: retention goes by it.
    """
    found = connection.execute(
        "SELECT id, last FROM conversations WHERE owner = ? AND name = ?", (owner, name)
    ).fetchall()
    row, last = found[0] if found else (0, 0.0)
    wanted = frozenset(refs)
    if last > time - STALE:
        query = "SELECT ref FROM kept WHERE conversation = ? AND ref IN "
        wanted -= _found(connection, query, (row,), wanted)
    return Lacking(wanted, wanted - present(connection, wanted), last)


def keep(
    connection: sqlite3.Connection,
    conversation: int,
    texts: Mapping[str, str],
    ready: Mapping[str, Packed],
    time: float,
) -> None:
    """Keep originals for a conversation; what has vanished since it was looked for is packed."""
    missing = texts.keys() - present(connection, texts.keys())
    rows = (ready.get(ref) or pack(ref, texts[ref]) for ref in sorted(missing))
    connection.executemany(
        "INSERT INTO originals (ref, size, packing, body) VALUES (?, ?, ?, ?)",
        ((row.ref, row.size, row.packing, row.body) for row in rows),
    )
    connection.executemany(
        "INSERT OR IGNORE INTO kept (conversation, ref, time) VALUES (?, ?, ?)",
        ((conversation, ref, time) for ref in sorted(texts)),
    )


def present(connection: sqlite3.Connection, refs: Collection[str]) -> set[str]:
    """Those of the references whose text is in the file."""
    return _found(connection, "SELECT ref FROM originals WHERE ref IN ", (), refs)


def readable(
    connection: sqlite3.Connection, refs: Collection[str], owner: str | None
) -> frozenset[str]:
    """Those of the references that this owner may read; None is the owner of the file."""
    if owner is None:
        return frozenset(present(connection, refs))
    query = """SELECT k.ref FROM conversations c JOIN kept k ON k.conversation = c.id
        JOIN originals o ON o.ref = k.ref WHERE c.owner = ? AND k.ref IN """
    return frozenset(_found(connection, query, (owner,), refs))


def original(connection: sqlite3.Connection, ref: str, owner: str | None) -> str | None:
    """The text behind a reference; None if there is none that this owner may read.

    Damaged is raised if what stands there is not what was kept.
    """
    found = connection.execute(_READABLE, (ref, owner)).fetchall()
    if not found:
        return None
    text = unpacked_text(*found[0])
    if reference(text) != ref:
        raise Damaged(f"{ref} leads to another text")
    return text


def refs(connection: sqlite3.Connection, owner: str | None) -> list[str]:
    """Every reference that leads to a text for this owner."""
    rows = connection.execute(
        """SELECT ref FROM originals o WHERE ?1 IS NULL OR EXISTS (
            SELECT 1 FROM kept k JOIN conversations c ON c.id = k.conversation
            WHERE k.ref = o.ref AND c.owner = ?1) ORDER BY ref""",
        (owner,),
    )
    return [row[0] for row in rows]


def discard(connection: sqlite3.Connection, ref: str) -> None:
    """Delete a text that was damaged, and what says that it is kept: it can be kept anew."""
    stamp_anew(connection)
    connection.execute("DELETE FROM kept WHERE ref = ?", (ref,))
    connection.execute("DELETE FROM originals WHERE ref = ?", (ref,))


def _found(
    connection: sqlite3.Connection, query: str, first: tuple[object, ...], refs: Iterable[str]
) -> set[str]:
    """Those of the references that a query finds."""
    found: set[str] = set()
    for some in _batches(refs):
        marks = ",".join("?" * len(some))
        found.update(row[0] for row in connection.execute(f"{query}({marks})", (*first, *some)))
    return found


def _batches(refs: Iterable[str]) -> Iterator[tuple[str, ...]]:
    rest = iter(refs)
    while some := tuple(islice(rest, _AT_ONCE)):
        yield some
