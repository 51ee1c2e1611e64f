"""Originals: packing, the table that holds them, and a cache of known references.

zlib at its fastest. On tool output it packs 2.9 to 1 at about 90 microseconds for 4,000 bytes;
zstd takes a third of that time for 3.0 to 1, and both are nothing beside the disk's own time.

A client sends its whole history each time, and with it come all the originals of before. What was
found in the file once is there until something is deleted; whatever deletes changes the file's
stamp, in any process, and a new file has another one.
"""

from __future__ import annotations

import sqlite3
import threading
import zlib
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice

from msgspec import Struct

from ..markers import reference
from .database_file import renew_stamp

PLAIN = 0
ZLIB = 1

_ZLIB_LEVEL = 1
_MIN_PACKED_BYTES = 128  # bytes that are not worth it


class DamagedData(ValueError):
    """What stands in the store cannot be unpacked."""


def encode_text(text: str) -> bytes:
    """A text's bytes; it may hold halves of characters, as agents cut them."""
    return text.encode("utf-8", "surrogatepass")


def pack_bytes(data: bytes) -> tuple[int, bytes]:
    """How these bytes are packed, and what that makes of them."""
    if len(data) < _MIN_PACKED_BYTES:
        return PLAIN, data
    small = zlib.compress(data, _ZLIB_LEVEL)
    return (ZLIB, small) if len(small) < len(data) else (PLAIN, data)


def unpack_bytes(packing: int, data: bytes, size: int) -> bytes:
    """The bytes that were packed: exactly so many, or they are damaged."""
    if packing == ZLIB:
        try:  # never more than was put in, whatever the file now says
            data = zlib.decompressobj().decompress(data, size + 1)
        except zlib.error as error:
            raise DamagedData(str(error)) from error
    if packing not in (PLAIN, ZLIB) or len(data) != size:
        raise DamagedData(f"packed by {packing}, {len(data):,} of {size:,} bytes")
    return data


def unpack_text(packing: int, data: bytes, size: int) -> str:
    """The text that was packed."""
    try:
        return unpack_bytes(packing, data, size).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise DamagedData(str(error)) from error


STALE_SECONDS = 3_600.0  # seconds after which a conversation is marked as going on
_REFS_PER_QUERY = 500  # values in one query
_READABLE_QUERY = """
    SELECT o.packing, o.body, o.size FROM originals o WHERE o.ref = ?1 AND (?2 IS NULL OR EXISTS (
        SELECT 1 FROM kept k JOIN conversations c ON c.id = k.conversation
        WHERE k.ref = ?1 AND c.owner = ?2))"""


class PackedOriginal(Struct, frozen=True, gc=False):
    """An original as it stands in the file."""

    ref: str
    size: int
    packing: int
    body: bytes


def pack_original(ref: str, text: str) -> PackedOriginal:
    """A text made ready; whoever waits for the disk should not wait for this too."""
    if reference(text) != ref:
        raise ValueError(f"{ref!r} is not the reference of this text, which is {reference(text)!r}")
    data = encode_text(text)
    return PackedOriginal(ref, len(data), *pack_bytes(data))


def ensure_conversation(
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


class MissingOriginals(Struct, frozen=True):
    """What has to be written so that a conversation has all its originals."""

    refs: frozenset[str]
    unstored: frozenset[str]  # those of them whose text no conversation has
    last_used: float  # when the conversation was last marked as going on


def find_missing(
    connection: sqlite3.Connection, owner: str, name: str, refs: Collection[str], time: float
) -> MissingOriginals:
    """What a conversation lacks of these originals.

    One that has not been marked as going on for a while lacks all: retention goes by it.
    """
    found = connection.execute(
        "SELECT id, last FROM conversations WHERE owner = ? AND name = ?", (owner, name)
    ).fetchall()
    row, last = found[0] if found else (0, 0.0)
    wanted = frozenset(refs)
    if last > time - STALE_SECONDS:
        query = "SELECT ref FROM kept WHERE conversation = ? AND ref IN "
        wanted -= _matching_refs(connection, query, (row,), wanted)
    return MissingOriginals(wanted, wanted - find_present(connection, wanted), last)


def keep_originals(
    connection: sqlite3.Connection,
    conversation: int,
    texts: Mapping[str, str],
    ready: Mapping[str, PackedOriginal],
    time: float,
) -> None:
    """Keep originals for a conversation; what has vanished since it was looked for is packed."""
    missing = texts.keys() - find_present(connection, texts.keys())
    rows = (ready.get(ref) or pack_original(ref, texts[ref]) for ref in sorted(missing))
    connection.executemany(
        "INSERT INTO originals (ref, size, packing, body) VALUES (?, ?, ?, ?)",
        ((row.ref, row.size, row.packing, row.body) for row in rows),
    )
    connection.executemany(
        "INSERT OR IGNORE INTO kept (conversation, ref, time) VALUES (?, ?, ?)",
        ((conversation, ref, time) for ref in sorted(texts)),
    )


def find_present(connection: sqlite3.Connection, refs: Collection[str]) -> set[str]:
    """Those of the references whose text is in the file."""
    return _matching_refs(connection, "SELECT ref FROM originals WHERE ref IN ", (), refs)


def find_readable(
    connection: sqlite3.Connection, refs: Collection[str], owner: str | None
) -> frozenset[str]:
    """Those of the references that this owner may read; None is the owner of the file."""
    if owner is None:
        return frozenset(find_present(connection, refs))
    query = """SELECT k.ref FROM conversations c JOIN kept k ON k.conversation = c.id
        JOIN originals o ON o.ref = k.ref WHERE c.owner = ? AND k.ref IN """
    return frozenset(_matching_refs(connection, query, (owner,), refs))


def read_original(connection: sqlite3.Connection, ref: str, owner: str | None) -> str | None:
    """The text behind a reference; None if there is none that this owner may read.

    Damaged is raised if what stands there is not what was kept.
    """
    found = connection.execute(_READABLE_QUERY, (ref, owner)).fetchall()
    if not found:
        return None
    text = unpack_text(*found[0])
    if reference(text) != ref:
        raise DamagedData(f"{ref} leads to another text")
    return text


def readable_refs(connection: sqlite3.Connection, owner: str | None) -> list[str]:
    """Every reference that leads to a text for this owner."""
    rows = connection.execute(
        """SELECT ref FROM originals o WHERE ?1 IS NULL OR EXISTS (
            SELECT 1 FROM kept k JOIN conversations c ON c.id = k.conversation
            WHERE k.ref = o.ref AND c.owner = ?1) ORDER BY ref""",
        (owner,),
    )
    return [row[0] for row in rows]


def discard_original(connection: sqlite3.Connection, ref: str) -> None:
    """Delete a text that was damaged, and what says that it is kept: it can be kept anew."""
    renew_stamp(connection)
    connection.execute("DELETE FROM kept WHERE ref = ?", (ref,))
    connection.execute("DELETE FROM originals WHERE ref = ?", (ref,))


def _matching_refs(
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
    while some := tuple(islice(rest, _REFS_PER_QUERY)):
        yield some


_MAX_CONVERSATIONS = 64  # that are remembered
_MAX_REFS = 5_000  # of one conversation; more than any had

ConversationKey = tuple[str, str]  # owner, conversation


class _KnownRefs(Struct, frozen=True):
    stamp: bytes
    last_used: float  # when the conversation was last marked as going on
    refs: frozenset[str]


class ReferenceCache:
    """The references that were seen in the file, for as long as its stamp is the same."""

    def __init__(self) -> None:
        self._known: OrderedDict[ConversationKey, _KnownRefs] = OrderedDict()
        self._lock = threading.Lock()

    def has_all(
        self, key: ConversationKey, stamp: bytes, refs: Collection[str], since: float
    ) -> bool:
        """Whether all of these are there, for a conversation that was marked since then."""
        with self._lock:
            known = self._known.get(key)
        if known is None or known.stamp != stamp or known.last_used <= since:
            return False
        return known.refs.issuperset(refs)

    def add(
        self, key: ConversationKey, stamp: bytes, refs: Collection[str], last_used: float
    ) -> None:
        """These were seen there, under this stamp."""
        with self._lock:
            known = self._known.pop(key, None)
            before = known.refs if known is not None and known.stamp == stamp else frozenset[str]()
            together = before.union(refs)
            if len(together) <= _MAX_REFS:
                self._known[key] = _KnownRefs(stamp, last_used, together)
            if len(self._known) > _MAX_CONVERSATIONS:
                self._known.popitem(last=False)
