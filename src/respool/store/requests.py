"""Records of requests: written in batches, read by conversation and over time."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ..facts import Facts
from . import facts as known_facts
from .originals import conversation_id
from .packing import Damaged, packed, unpacked
from .record import (
    Conversation,
    EditMade,
    FetchedAgain,
    Latest,
    Lineage,
    Record,
    Sent,
    Total,
    Usage,
)

_SAME = (
    "id", "time", "format", "model", "mode", "status", "tokens_before", "tokens_after", "saved",
    "counted", "cost_before", "cost_after", "cost_uncached", "epochs", "prefix_break", "fallback",
    "milliseconds", "terms", "sent_as", "prefix", "parent",
    "again",
)  # fmt: skip
_NO_FACTS = Facts()
_USAGE = ("input", "cache_read", "cache_write", "output")
_COLUMNS = (
    *_SAME, *_USAGE, "conversation", "edited", "made", "refetched", "loops", "notable", "notes",
    "size", "packing", "edits",
)  # fmt: skip
_MOST_SENT = 200  # requests that ended one of a few histories: retries, and others beside them
_INSERT = f"INSERT OR IGNORE INTO requests ({', '.join(_COLUMNS)}) VALUES "  # noqa: S608 - our own
_VALUES = f"({', '.join('?' * len(_COLUMNS))})"
_AT_ONCE = 16  # rows of a statement: each one gives way to other threads, and has to wait for them
_ROW = ", ".join(f"r.{name}" for name in (*_SAME, *_USAGE, "edited", "made", "notes"))
_ONE = (
    f"SELECT c.owner, c.name, c.session, {_ROW}"  # noqa: S608 - names of our own
    " FROM requests r JOIN conversations c ON c.id = r.conversation"
)
_CONVERSATIONS = """
    SELECT c.id, c.name, c.owner, c.session, c.started, c.last, count(r.id),
        total(r.tokens_before), total(r.tokens_after), total(r.saved),
        total(r.cost_before), total(r.cost_after), r.model, r.format, total(r.mode = 'observed'),
        total(r.status >= 400 OR r.status = 0), total(r.fallback <> '' OR r.again <> ''),
        total(r.prefix_break <> ''), total(r.refetched), total(r.loops), max(r.time)
    FROM (SELECT * FROM conversations WHERE (?1 IS NULL OR owner = ?1)
        AND (?2 IS NULL OR (last, id) < (?2, ?3)) ORDER BY last DESC, id DESC LIMIT ?4) c
    LEFT JOIN requests r ON r.conversation = c.id
    GROUP BY c.id ORDER BY c.last DESC, c.id DESC"""  # model and format: of the row with max(time)
_TOTALS = """
    SELECT CAST((r.time - ?2) / ?4 AS INTEGER) slot, count(*), total(tokens_before),
        total(tokens_after), total(saved), total(input), total(cache_read), total(cache_write),
        total(output), total(cost_before), total(cost_after),
        total(status >= 400 OR status = 0), total(fallback <> '' OR again <> ''),
        total(prefix_break <> ''),
        total(cost_uncached), total(refetched), total(loops), total(mode = 'observed'),
        total((mode = 'observed') * saved),
        total((mode = 'observed') * (cost_before - cost_after)),
        total(status BETWEEN 1 AND 399 AND cost_after IS NULL)
    FROM requests r JOIN conversations c ON c.id = r.conversation
    WHERE (?1 IS NULL OR c.owner = ?1) AND r.time >= ?2 AND r.time < ?3
    GROUP BY slot ORDER BY slot"""


class _Notes(Struct, frozen=True):
    repairs: tuple[str, ...] = ()
    failures: dict[str, str] = {}
    refetched: tuple[FetchedAgain, ...] = ()
    loops: tuple[str, ...] = ()


_edits = msgspec.json.Decoder(tuple[EditMade, ...])
_notes = msgspec.json.Decoder(_Notes)


def write(connection: sqlite3.Connection, records: Sequence[Record]) -> None:
    """Write records down; one that is there already stays as it is."""
    by_conversation: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        by_conversation.setdefault((record.owner, record.conversation), []).append(record)
    ids = {key: _going_on(connection, held) for key, held in by_conversation.items()}
    rows = [_values(record, ids[record.owner, record.conversation]) for record in records]
    for at in range(0, len(rows), _AT_ONCE):
        some = rows[at : at + _AT_ONCE]
        statement = _INSERT + ", ".join([_VALUES] * len(some))
        connection.execute(statement, [value for row in some for value in row])
    for record in records:
        if record.facts != _NO_FACTS:
            new = known_facts.unknown(record.facts, _NO_FACTS)
            known_facts.note(connection, record.conversation, new, record.time)


def _going_on(connection: sqlite3.Connection, records: Sequence[Record]) -> int:
    """The row of the conversation that these records are of, which began with the first of them."""
    first, *others = records
    held = (connection, first.owner, first.conversation)
    row = conversation_id(*held, first.time, first.session)
    if others:
        session = next((one.session for one in reversed(others) if one.session), "")
        conversation_id(*held, max(one.time for one in others), session)
    return row


def conversations(
    connection: sqlite3.Connection,
    owner: str | None,
    behind: tuple[float, int] | None,
    limit: int,
) -> list[Conversation]:
    """A page of conversations, the latest first; the next page is behind (last, id) of this one."""
    last, id = behind or (None, 0)
    rows = connection.execute(_CONVERSATIONS, (owner, last, id, limit)).fetchall()
    return [_conversation(row) for row in rows]


def requests(
    connection: sqlite3.Connection,
    conversation: str,
    owner: str | None,
    after: float,
    limit: int,
) -> list[Record]:
    """A conversation's requests in their order, later than a time, without their edits."""
    query = f"{_ONE} WHERE c.name = ?1 AND (?2 IS NULL OR c.owner = ?2) AND r.time > ?3"
    rows = connection.execute(
        f"{query} ORDER BY r.time, r.rowid LIMIT ?4", (conversation, owner, after, limit)
    ).fetchall()
    return [_record(row) for row in rows]


def lineage(connection: sqlite3.Connection, conversation: str, owner: str | None) -> list[Lineage]:
    """Where each request of a conversation stands in it, in their order."""
    rows = connection.execute(
        """SELECT r.id, r.prefix, r.parent FROM requests r
        JOIN conversations c ON c.id = r.conversation
        WHERE c.name = ?1 AND (?2 IS NULL OR c.owner = ?2) ORDER BY r.time, r.rowid""",
        (conversation, owner),
    )
    return [Lineage(*row) for row in rows]


def notable(
    connection: sqlite3.Connection,
    owner: str | None,
    since: float,
    behind: float | None,
    limit: int,
) -> list[Record]:
    """Requests at which something happened that a person may want to know, the latest first."""
    query = f"{_ONE} WHERE r.notable AND (?1 IS NULL OR c.owner = ?1) AND r.time >= ?2"
    rows = connection.execute(
        f"{query} AND (?3 IS NULL OR r.time < ?3) ORDER BY r.time DESC, r.rowid DESC LIMIT ?4",
        (owner, since, behind, limit),
    ).fetchall()
    return [_record(row) for row in rows]


def sent(
    connection: sqlite3.Connection, conversation: str, prefixes: Collection[str], after: int
) -> Sent:
    """Those requests that ended these histories, the latest last; and edits recorded since."""
    held = "FROM requests r JOIN conversations c ON c.id = r.conversation WHERE c.name = ?"
    # Originals are kept before the first edit goes up: a record may be lost, they are not.
    kept = "FROM kept k JOIN conversations c ON c.id = k.conversation WHERE c.name = ?"
    ((edited,),) = connection.execute(
        f"SELECT EXISTS (SELECT 1 {kept})"
        f" OR EXISTS (SELECT 1 {held} AND r.edited AND r.mode <> 'observed')",
        (conversation, conversation),
    ).fetchall()
    rows = connection.execute(
        "SELECT r.prefix, r.time, r.terms, r.sent_as, r.tokens_before, r.epochs"
        f" {held} AND r.prefix IN ({', '.join('?' * len(prefixes))})"
        " ORDER BY r.time DESC, r.rowid DESC LIMIT ?",
        (conversation, *prefixes, _MOST_SENT),
    ).fetchall()
    found = tuple((prefix, Latest(*told)) for prefix, *told in reversed(rows))
    made = connection.execute(
        f"SELECT r.rowid, r.packing, r.edits, r.size {held} AND r.rowid > ? AND r.made"
        " ORDER BY r.rowid",
        (conversation, after),
    ).fetchall()
    told = tuple(edit for _, *packed_so in made for edit in _edits_in(*packed_so))
    return Sent(found, bool(edited), told, made[-1][0] if made else after)


def edits(
    connection: sqlite3.Connection, request: str, owner: str | None
) -> tuple[EditMade, ...] | None:
    """The edits of one request; None if there is no such request for this owner."""
    rows = connection.execute(
        """SELECT r.packing, r.edits, r.size FROM requests r
        JOIN conversations c ON c.id = r.conversation
        WHERE r.id = ?1 AND (?2 IS NULL OR c.owner = ?2)""",
        (request, owner),
    ).fetchall()
    return _edits_in(*rows[0]) if rows else None


def _edits_in(packing: int, body: bytes, size: int) -> tuple[EditMade, ...]:
    """The edits as they were written; none if they are damaged."""
    try:
        return _edits.decode(unpacked(packing, body, size))
    except (Damaged, msgspec.DecodeError):
        return ()


def totals(
    connection: sqlite3.Connection, owner: str | None, since: float, until: float, step: float
) -> list[Total]:
    """Sums over each stretch of so many seconds; stretches without a request are left out."""
    rows = connection.execute(_TOTALS, (owner, since, until, step)).fetchall()
    return [_total(row, since, step) for row in rows]


def _values(record: Record, conversation: int) -> tuple[object, ...]:
    usage = record.usage
    edits = msgspec.json.encode(record.edits)
    notes = _Notes(record.repairs, record.failures, record.refetched, record.loops)
    return (
        *(getattr(record, name) for name in _SAME),
        *(None if usage is None else getattr(usage, name) for name in _USAGE),
        conversation,
        record.edited or len(record.edits),
        record.made or len(record.edits),
        len(record.refetched),
        len(record.loops),
        _is_notable(record),
        msgspec.json.encode(notes).decode(),
        len(edits),
        *packed(edits),
    )


def _is_notable(record: Record) -> bool:
    """Whether a request broke a prefix, failed, fell back, or shows something fetched again."""
    failed = record.status >= 400 or record.status == 0
    told = (
        record.prefix_break, record.fallback, record.again, record.failures, record.refetched,
        record.loops,
    )  # fmt: skip
    return failed or any(told)


def _record(row: tuple[Any, ...]) -> Record:
    owner, conversation, session, *rest = row
    same: dict[str, Any] = dict(zip(_SAME, rest, strict=False))
    same["counted"] = bool(same["counted"])
    *usage, edited, made, notes = rest[len(_SAME) :]
    told = _notes.decode(notes)
    return Record(
        **same,
        owner=owner,
        conversation=conversation,
        session=session,
        usage=None if usage[0] is None else Usage(*usage),
        edited=edited,
        made=made,
        repairs=told.repairs,
        failures=told.failures,
        refetched=told.refetched,
        loops=told.loops,
    )


def _conversation(row: tuple[Any, ...]) -> Conversation:
    id, name, owner, session, started, last, count, before, after, saved = row[:10]
    return Conversation(
        id=id,
        name=name,
        owner=owner,
        session=session,
        started=started,
        last=last,
        requests=count,
        tokens_before=int(before),
        tokens_after=int(after),
        saved=int(saved),
        cost_before=row[10],
        cost_after=row[11],
        model=row[12] or "",
        format=row[13] or "",
        observed=int(row[14]),
        errors=int(row[15]),
        fallbacks=int(row[16]),
        prefix_breaks=int(row[17]),
        refetched=int(row[18]),
        loops=int(row[19]),
    )


def _total(row: tuple[Any, ...], since: float, step: float) -> Total:
    slot, *figures = row
    whole = [int(figure) for figure in figures]
    return Total(
        start=since + slot * step,
        requests=whole[0],
        tokens_before=whole[1],
        tokens_after=whole[2],
        saved=whole[3],
        input=whole[4],
        cache_read=whole[5],
        cache_write=whole[6],
        output=whole[7],
        cost_before=figures[8],
        cost_after=figures[9],
        errors=whole[10],
        fallbacks=whole[11],
        prefix_breaks=whole[12],
        cost_uncached=figures[13],
        refetched=whole[14],
        loops=whole[15],
        observed=whole[16],
        would_saved=whole[17],
        would_cost=figures[18],
        unpriced=whole[19],
    )
