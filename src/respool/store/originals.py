"""Originals: packing, the table that holds them, and a cache of known references.

zlib at level 1. On tool output it packs 2.9 to 1 at about 90 microseconds per 4,000 bytes; zstd
takes a third of that time for 3.0 to 1. Both are negligible beside the disk's time.

A client sends its whole history each time, and with it all earlier originals. A reference found
in the file stays valid until something is deleted; every deletion changes the file's stamp, in any
process, and a new file has another stamp.
"""

from __future__ import annotations

import contextlib
import threading
import zlib
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice

from msgspec import Struct

from ..markers import reference
from .connection import Connection
from .meta import not_before_trusted, renew_stamp
from .teams import space_of

PLAIN = 0
ZLIB = 1

_ZLIB_LEVEL = 1
_MIN_PACKED_BYTES = 128  # smaller data is stored as it is

STALE_SECONDS = 3_600.0  # age at which a conversation's last use is updated
_REFS_PER_QUERY = 500  # parameters of one query
_READABLE_QUERY = """
    SELECT o.packing, o.body, o.size FROM originals o WHERE o.ref = ?1 AND (?2 IS NULL OR EXISTS (
        SELECT 1 FROM kept k JOIN conversations c ON c.id = k.conversation
        WHERE k.ref = ?1 AND c.owner = ?2))"""
_MAX_CONVERSATIONS = 64  # cached
_MAX_REFS = 5_000  # per conversation
_REF_CHARS = 20
_SPACE_MARK = "~"  # between the reference and the team, in the name of a row


def row_of(ref: str, owner: str) -> str:
    """The name of the row in which an owner's original is stored.

    A team shares no row with others. So what they have stored changes neither what a team can read
    nor how long that takes.

    >>> row_of("a" * 3, "anonymous"), row_of("a" * 3, "team:billing.0a1b")
    ('aaa', 'aaa~0a1b')
    """
    space = space_of(owner)
    return f"{ref}{_SPACE_MARK}{space}" if space else ref


def ref_of(row: str) -> str:
    """The reference in the name of a row."""
    return row[:_REF_CHARS]


def space_of_row(row: str) -> str:
    """The team in the name of a row; empty: none.

    >>> space_of_row("a" * 20 + "~0a1b"), space_of_row("a" * 20)
    ('0a1b', '')
    """
    return row[_REF_CHARS + len(_SPACE_MARK) :]


class DamagedData(ValueError):
    """Data in the store cannot be unpacked."""


def encode_text(text: str) -> bytes:
    """Encode a text, which may hold lone surrogates where an agent cut it."""
    return text.encode("utf-8", "surrogatepass")


def pack_bytes(data: bytes) -> tuple[int, bytes]:
    """Pack bytes; return the packing and the result."""
    if len(data) < _MIN_PACKED_BYTES:
        return PLAIN, data
    small = zlib.compress(data, _ZLIB_LEVEL)
    return (ZLIB, small) if len(small) < len(data) else (PLAIN, data)


def unpack_bytes(packing: int, data: bytes, size: int) -> bytes:
    """Unpack bytes; any other size than `size` is damage."""
    if packing == ZLIB:
        try:  # bounded, even if the file is damaged
            data = zlib.decompressobj().decompress(data, size + 1)
        except zlib.error as error:
            raise DamagedData(str(error)) from error
    if packing not in (PLAIN, ZLIB) or len(data) != size:
        raise DamagedData(f"packed by {packing}, {len(data):,} of {size:,} bytes")
    return data


def unpack_text(packing: int, data: bytes, size: int) -> str:
    """Unpack a text."""
    try:
        return unpack_bytes(packing, data, size).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise DamagedData(str(error)) from error


class PackedOriginal(Struct, frozen=True, gc=False):
    """An original in its stored form."""

    ref: str
    size: int
    packing: int
    body: bytes


def pack_original(ref: str, text: str) -> PackedOriginal:
    """Pack a text outside the write lock, after checking its reference."""
    if reference(text) != ref_of(ref):
        raise ValueError(f"{ref!r} is not the reference of this text, which is {reference(text)!r}")
    data = encode_text(text)
    return PackedOriginal(ref, len(data), *pack_bytes(data))


def ensure_conversation(
    connection: Connection, owner: str, name: str, *, time: float, session: str = ""
) -> int:
    """Return the row id of a conversation, created if missing, and update its last use."""
    time = not_before_trusted(connection, time)
    connection.execute(
        """INSERT INTO conversations (owner, name, session, started, last)
        VALUES (?1, ?2, ?3, ?4, ?4) ON CONFLICT (owner, name) DO UPDATE SET
        last = max(conversations.last, excluded.last), session = CASE excluded.session
            WHEN '' THEN conversations.session ELSE excluded.session END""",
        (owner, name, session, time),
    )
    found = connection.execute(
        "SELECT id FROM conversations WHERE owner = ? AND name = ?", (owner, name)
    ).fetchall()
    return found[0][0]


class MissingOriginals(Struct, frozen=True):
    """The originals that a conversation lacks."""

    refs: frozenset[str]
    unstored: frozenset[str]  # those whose text is not in the file
    last_used: float  # time of the conversation's last recorded use


def find_missing(
    connection: Connection, *, owner: str, name: str, refs: Collection[str], time: float
) -> MissingOriginals:
    """Return which of these originals a conversation lacks.

    A conversation with an old last use lacks all of them: retention depends on that time.
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
    connection: Connection,
    conversation: int,
    *,
    texts: Mapping[str, str],
    ready: Mapping[str, PackedOriginal],
    time: float,
) -> None:
    """Store originals for a conversation; those deleted since the check are packed here."""
    missing = texts.keys() - find_present(connection, texts.keys())
    rows = (ready.get(ref) or pack_original(ref, texts[ref]) for ref in sorted(missing))
    connection.executemany(
        "INSERT OR IGNORE INTO originals (ref, size, packing, body) VALUES (?, ?, ?, ?)",
        ((row.ref, row.size, row.packing, row.body) for row in rows),
    )
    connection.executemany(
        "INSERT OR IGNORE INTO kept (conversation, ref, time) VALUES (?, ?, ?)",
        ((conversation, ref, time) for ref in sorted(texts)),
    )


def find_row(connection: Connection, ref: str, owner: str | None) -> str:
    """The row of an owner's original; without an owner, the first row of that reference."""
    if owner is not None:
        return row_of(ref, owner)
    if find_present(connection, (ref,)):
        return ref
    end = f"{ref}{_SPACE_MARK}\U0010ffff"
    found = connection.execute(
        "SELECT ref FROM originals WHERE ref >= ? AND ref < ? ORDER BY ref LIMIT 1", (ref, end)
    ).fetchall()
    return found[0][0] if found else ref


def find_present(connection: Connection, refs: Collection[str]) -> set[str]:
    """Return the references whose text is in the file."""
    return _matching_refs(connection, "SELECT ref FROM originals WHERE ref IN ", (), refs)


def find_readable(
    connection: Connection, refs: Collection[str], owner: str | None
) -> frozenset[str]:
    """Return the references that this owner may read; None is the owner of the file."""
    if owner is None:
        rows = {find_row(connection, ref, None) for ref in refs}
        return frozenset(map(ref_of, find_present(connection, rows)))
    query = """SELECT k.ref FROM conversations c JOIN kept k ON k.conversation = c.id
        JOIN originals o ON o.ref = k.ref WHERE c.owner = ? AND k.ref IN """
    rows = (row_of(ref, owner) for ref in refs)
    return frozenset(map(ref_of, _matching_refs(connection, query, (owner,), rows)))


def read_original(connection: Connection, ref: str, owner: str | None) -> str | None:
    """Return the text of a reference; None if this owner may not read it.

    Raises DamagedData if the stored text is not the one that was kept.
    """
    found = connection.execute(_READABLE_QUERY, (ref, owner)).fetchall()
    if not found:
        return None
    text = unpack_text(*found[0])
    if reference(text) != ref_of(ref):
        raise DamagedData(f"{ref} leads to another text")
    return text


def read_originals(
    connection: Connection, refs: Iterable[str], owner: str | None
) -> dict[str, str]:
    """Return the texts that this owner may read, without damaged ones."""
    found: dict[str, str] = {}
    for ref in refs:
        with contextlib.suppress(DamagedData):
            text = read_original(connection, ref, owner)
            if text is not None:
                found[ref] = text
    return found


class KeptOriginal(Struct, frozen=True, gc=False):
    """An original of a conversation."""

    ref: str
    conversation: str
    time: float


def kept_originals(
    connection: Connection, owner: str | None, conversation: str | None
) -> list[KeptOriginal]:
    """Return each original that an owner may read, in its latest conversation, the latest first."""
    of_owner, given = ("", ()) if owner is None else (" AND c.owner = ?2", (owner,))
    rows = connection.execute(
        "SELECT k.ref, c.name, k.time FROM conversations c JOIN kept k ON k.conversation = c.id"  # noqa: S608 - ours
        f" WHERE (?1 IS NULL OR c.name = ?1){of_owner} ORDER BY k.time DESC, k.ref, c.id DESC",
        (conversation, *given),
    )
    latest: dict[str, KeptOriginal] = {}
    for ref, name, time in rows:
        if ref not in latest:
            latest[ref] = KeptOriginal(ref, name, time)
    return list(latest.values())


def readable_refs(connection: Connection, owner: str | None) -> list[str]:
    """Return every reference that this owner can read."""
    rows = connection.execute(
        """SELECT ref FROM originals o WHERE ?1 IS NULL OR EXISTS (
            SELECT 1 FROM kept k JOIN conversations c ON c.id = k.conversation
            WHERE k.ref = o.ref AND c.owner = ?1) ORDER BY ref""",
        (owner,),
    )
    return [row[0] for row in rows]


def discard_original(connection: Connection, ref: str) -> None:
    """Delete a damaged text and its links, so that it can be stored again."""
    renew_stamp(connection)
    connection.execute("DELETE FROM kept WHERE ref = ?", (ref,))
    connection.execute("DELETE FROM originals WHERE ref = ?", (ref,))


def _matching_refs(
    connection: Connection, query: str, first: tuple[object, ...], refs: Iterable[str]
) -> set[str]:
    """Return the references that a query finds."""
    found: set[str] = set()
    for some in _batches(refs):
        parameters = ",".join("?" * len(some))
        found.update(
            row[0] for row in connection.execute(f"{query}({parameters})", (*first, *some))
        )
    return found


def _batches(refs: Iterable[str]) -> Iterator[tuple[str, ...]]:
    rest = iter(refs)
    while some := tuple(islice(rest, _REFS_PER_QUERY)):
        yield some


ConversationKey = tuple[str, str]  # owner, conversation


class _KnownRefs(Struct, frozen=True):
    stamp: bytes
    last_used: float  # time of the conversation's last recorded use
    refs: frozenset[str]


class ReferenceCache:
    """LRU cache of the references in the file, valid for one stamp."""

    def __init__(self) -> None:
        self._known: OrderedDict[ConversationKey, _KnownRefs] = OrderedDict()
        self._lock = threading.Lock()

    def has_all(
        self, key: ConversationKey, stamp: bytes, refs: Collection[str], since: float
    ) -> bool:
        """Check that all of these are cached for a conversation used since then."""
        with self._lock:
            known = self._known.get(key)
        if known is None or known.stamp != stamp or known.last_used <= since:
            return False
        return known.refs.issuperset(refs)

    def add(
        self, key: ConversationKey, stamp: bytes, refs: Collection[str], last_used: float
    ) -> None:
        """Remember references seen under this stamp."""
        with self._lock:
            known = self._known.pop(key, None)
            before = known.refs if known is not None and known.stamp == stamp else frozenset[str]()
            together = before.union(refs)
            if len(together) <= _MAX_REFS:
                self._known[key] = _KnownRefs(stamp, last_used, together)
            if len(self._known) > _MAX_CONVERSATIONS:
                self._known.popitem(last=False)
