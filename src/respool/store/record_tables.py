"""Tables of request records, facts and rejected requests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from ..errors import PolicyError
from ..facts import Facts
from ..history.repeat_rates import RepeatCell, add_cells
from ..pricing import Usage
from .base import (
    ANY_RECORD,
    ConversationSummary,
    OriginTotal,
    PeriodTotal,
    PriorRequests,
    RecordedEdit,
    RecordFilter,
    RefetchedResult,
    RejectedRequest,
    RequestLineage,
    RequestRecord,
    SentRequest,
    UnitTotal,
)
from .bill_tables import write_tools
from .connection import Connection, DamagedRow
from .meta import not_before_trusted
from .originals import DamagedData, ensure_conversation, pack_bytes, unpack_bytes
from .savings import (
    AFTER_SQL,
    BEFORE_SQL,
    SAVED_SQL,
    UNMEASURED_SQL,
    estimate_range,
)
from .teams import add_usage

_Key = TypeVar("_Key")
_FACT_SETS = ("skipped", "left_alone", "cold", "changed")
_WINDOWS, _BREAKPOINTS, _SUMMARIES = "windows", "breakpoints", "summaries"
CLAIMS = "claims"  # rows of the facts' table: the histories that requests were sent with

FactRow = tuple[str, str, str]  # kind, prefix or reference, tokens or words
_SEPARATOR = "="  # before words: SQLite's column takes a text of figures for a number

_RECORD_COLUMNS = (
    "id", "time", "format", "model", "mode", "status", "tokens_before", "tokens_after", "saved",
    "counted", "cost_before", "cost_after", "cost_uncached", "epochs", "prefix_break", "fallback",
    "milliseconds", "terms", "sent_as", "prefix", "parent",
    "again", "agent", "project", "head_cost", "expired", "expired_cost", "missed", "missed_cost",
    "arm", "unit",
)  # fmt: skip
_NO_FACTS = Facts()
_USAGE_COLUMNS = ("input", "cache_read", "cache_write", "output")
_COLUMNS = (
    *_RECORD_COLUMNS,
    *_USAGE_COLUMNS,
    "conversation",
    "edited",
    "made",
    "refetched",
    "loops",
    "notable",
    "notes",
    "size",
    "packing",
    "edits",
)
_MAX_PRIOR_REQUESTS = 200  # requests with one of a few history hashes: retries, mostly
_INSERT_REQUEST = f"INSERT OR IGNORE INTO requests ({', '.join(_COLUMNS)}) VALUES "  # noqa: S608 - our own
_PLACEHOLDERS = f"({', '.join('?' * len(_COLUMNS))})"
_ROWS_PER_INSERT = 16  # per statement; each statement releases the GIL once
_ROW_COLUMNS = ", ".join(
    f"r.{name}" for name in (*_RECORD_COLUMNS, *_USAGE_COLUMNS, "edited", "made", "notes")
)
_SELECT_REQUEST = (
    f"SELECT c.owner, c.name, c.session, c.prompt, {_ROW_COLUMNS}"  # noqa: S608 - names of our own
    " FROM requests r JOIN conversations c ON c.id = r.conversation"
)
_OBSERVED = "count(CASE r.mode WHEN 'observed' THEN 1 END)"
_ERRORS = "count(CASE WHEN r.status >= 400 OR r.status = 0 THEN 1 END)"
_FALLBACKS = "count(CASE WHEN r.fallback <> '' OR r.again <> '' THEN 1 END)"
_PREFIX_BREAKS = "count(CASE WHEN r.prefix_break <> '' THEN 1 END)"
_UNPRICED = "count(CASE WHEN r.status BETWEEN 1 AND 399 AND r.cost_after IS NULL THEN 1 END)"
_SELECT_CONVERSATIONS = f"""
    SELECT c.id, c.name, c.owner, c.session, c.started, c.last, count(r.id),
        total({BEFORE_SQL}), total({AFTER_SQL}), total({SAVED_SQL}),
        total(r.cost_before), total(r.cost_after), l.model, l.format,
        {_OBSERVED}, {_ERRORS}, {_FALLBACKS}, {_PREFIX_BREAKS}, total(r.refetched), total(r.loops),
        l.agent, l.project, c.prompt, c.pinned
    FROM (SELECT * FROM conversations c WHERE (:owner IS NULL OR owner = :owner)
        AND (:last IS NULL OR (last, id) < (:last, :id)){{filter}}
        ORDER BY last DESC, id DESC LIMIT :limit) c
    LEFT JOIN requests l ON l.rowid = (SELECT x.rowid FROM requests x
        WHERE x.conversation = c.id ORDER BY x.time DESC, x.rowid DESC LIMIT 1)
    LEFT JOIN requests r ON r.conversation = c.id
    GROUP BY c.id, c.name, c.owner, c.session, c.started, c.last, c.prompt, c.pinned,
        l.model, l.format, l.agent, l.project
    ORDER BY c.last DESC, c.id DESC"""  # noqa: S608 - our own
_SELECT_TOTALS = f"""
    SELECT {{group}}, r.format, r.model, count(*),
        total({BEFORE_SQL}), total({AFTER_SQL}), total({SAVED_SQL}), total(input),
        total(cache_read), total(cache_write),
        total(output), total(cost_before), total(cost_after),
        {_ERRORS}, {_FALLBACKS}, {_PREFIX_BREAKS},
        total(cost_uncached), total(refetched), total(loops), {_OBSERVED},
        total(CASE mode WHEN 'observed' THEN {SAVED_SQL} END),
        total(CASE mode WHEN 'observed' THEN cost_before - cost_after END), {_UNPRICED},
        total(CASE WHEN {UNMEASURED_SQL} THEN {SAVED_SQL} END),
        total(CASE WHEN mode = 'observed' AND {UNMEASURED_SQL} THEN {SAVED_SQL} END)
    FROM requests r JOIN conversations c ON c.id = r.conversation
    WHERE (:owner IS NULL OR c.owner = :owner) AND r.time >= :from AND r.time < :to{{filter}}
    GROUP BY {{group}}, r.format, r.model ORDER BY {{group}}"""  # noqa: S608 - our own
# An observed request was paid as it came; its other cost is an estimate.
_SELECT_UNITS = f"""
    SELECT r.unit, r.arm, count(*),
        total(CASE r.mode WHEN 'observed' THEN r.cost_before ELSE r.cost_after END),
        {_UNPRICED}, {_ERRORS}, total(r.refetched)
    FROM requests r JOIN conversations c ON c.id = r.conversation
    WHERE (:owner IS NULL OR c.owner = :owner) AND r.time >= :from AND r.arm <> ''
    GROUP BY r.unit, r.arm ORDER BY r.unit, r.arm"""  # noqa: S608 - our own
_SLOT = "CAST((r.time - :from) / :step AS INTEGER)"
_ORIGIN = "r.agent, r.project"
_SEARCHED = ("c.prompt", "c.name", "r.agent", "r.project", "r.model")
MAX_REJECTED_BYTES = 16_000_000  # of a body; a larger one is omitted
MAX_REJECTED_REQUESTS = 20  # that are kept
_MAX_REJECTED_TEXT = 20_000  # characters of an error or of the settings


def read_facts(connection: Connection, conversation: str) -> Facts:
    """Return the facts of a conversation."""
    rows = connection.execute(
        "SELECT kind, prefix, tokens FROM facts WHERE conversation = ? AND kind <> ?",
        (conversation, CLAIMS),
    ).fetchall()
    sets = {
        name: frozenset(prefix for kind, prefix, _ in rows if kind == name) for name in _FACT_SETS
    }
    texts: dict[str, Any] = {
        name: tuple((key, str(words)[1:]) for kind, key, words in rows if kind == name)
        for name in (_BREAKPOINTS, _SUMMARIES)
    }
    try:
        windows = tuple((prefix, int(tokens)) for kind, prefix, tokens in rows if kind == _WINDOWS)
        return Facts(**sets, windows=windows, **texts)
    except (PolicyError, ValueError) as error:  # a byte of the file has changed
        raise DamagedRow(str(error)) from error


def write_facts(connection: Connection, conversation: str, new: list[FactRow], time: float) -> None:
    """Write facts down, but for those that are known already."""
    time = not_before_trusted(connection, time)
    connection.executemany(
        "INSERT OR IGNORE INTO facts (conversation, kind, prefix, tokens, time)"
        " VALUES (?, ?, ?, ?, ?)",
        [(conversation, *row, time) for row in new],
    )


def new_fact_rows(new: Facts, known: Facts) -> list[FactRow]:
    """Return one row per fact that is new."""
    rows: list[FactRow] = []
    for kind in _FACT_SETS:
        there: frozenset[str] = getattr(new, kind) - getattr(known, kind)
        rows += [(kind, prefix, "0") for prefix in sorted(there)]
    rows += [
        (_WINDOWS, prefix, str(tokens))
        for prefix, tokens in new.windows
        if known.window_at(prefix) is None
    ]
    for kind in (_BREAKPOINTS, _SUMMARIES):
        known_texts: dict[str, str] = dict(getattr(known, kind))
        words: tuple[tuple[str, str], ...] = getattr(new, kind)
        rows += [(kind, key, _SEPARATOR + said) for key, said in words if key not in known_texts]
    return rows


class _Claim(Struct, frozen=True, array_like=True):
    by: str
    sent: SentRequest


_claim_decoder = msgspec.json.Decoder(_Claim)


def write_claim(
    connection: Connection,
    conversation: str,
    prefix: str,
    *,
    by: str,
    sent: SentRequest,
    facts: list[FactRow],
    time: float,
) -> bool:
    """Claim a history and write facts; False: another request has claimed it."""
    value = _SEPARATOR + msgspec.json.encode(_Claim(by, sent)).decode()
    write_facts(connection, conversation, [(CLAIMS, prefix, value)], time)
    ((held,),) = connection.execute(
        "SELECT tokens FROM facts WHERE conversation = ? AND kind = ? AND prefix = ?",
        (conversation, CLAIMS, prefix),
    ).fetchall()
    if held != value and _read_claim(held).by != by:
        return False
    if facts:
        write_facts(connection, conversation, facts, time)
    return True


def _read_claim(value: str) -> _Claim:
    try:
        return _claim_decoder.decode(value[len(_SEPARATOR) :])
    except msgspec.MsgspecError as error:  # a byte of the file has changed
        raise DamagedRow(str(error)) from error


def _read_claims(
    connection: Connection, conversation: str, prefixes: Collection[str]
) -> tuple[tuple[str, str, SentRequest], ...]:
    """Return the claims of histories."""
    rows = connection.execute(
        "SELECT prefix, tokens FROM facts WHERE conversation = ? AND kind = ?"  # noqa: S608 - our own
        f" AND prefix IN ({', '.join('?' * len(prefixes))})",
        (conversation, CLAIMS, *prefixes),
    ).fetchall()
    claims = ((prefix, _read_claim(value)) for prefix, value in rows)
    return tuple((prefix, claim.by, claim.sent) for prefix, claim in claims)


class _RecordNotes(Struct, frozen=True, omit_defaults=True):
    repairs: tuple[str, ...] = ()
    failures: dict[str, str] = {}
    refetched: tuple[RefetchedResult, ...] = ()
    loops: tuple[str, ...] = ()
    waiting_offers: int = 0
    waiting_tokens: int = 0
    error: str = ""
    repeats: tuple[RepeatCell, ...] = ()


_edits_decoder = msgspec.json.Decoder(tuple[RecordedEdit, ...])
_notes_decoder = msgspec.json.Decoder(_RecordNotes)


class _RepeatNotes(Struct, frozen=True):
    repeats: tuple[RepeatCell, ...] = ()


_repeats_decoder = msgspec.json.Decoder(_RepeatNotes)


def write_records(connection: Connection, records: Sequence[RequestRecord]) -> None:
    """Write records; an existing one is not changed.

    One without a conversation, of a request that was not understood, counts for its team's quota.
    """
    recorded = [record for record in records if record.conversation]
    by_conversation: dict[tuple[str, str], list[RequestRecord]] = {}
    for record in recorded:
        by_conversation.setdefault((record.owner, record.conversation), []).append(record)
    # In one order for all processes: two that lock rows in different orders wait for each other.
    ids = {
        key: _ensure_conversation_row(connection, by_conversation[key])
        for key in sorted(by_conversation)
    }
    rows = [_row_values(record, ids[record.owner, record.conversation]) for record in recorded]
    for at in range(0, len(rows), _ROWS_PER_INSERT):
        some = rows[at : at + _ROWS_PER_INSERT]
        statement = _INSERT_REQUEST + ", ".join([_PLACEHOLDERS] * len(some))
        connection.execute(statement, [value for row in some for value in row])
    for record in recorded:
        if record.tools or record.called:
            write_tools(
                connection,
                ids[record.owner, record.conversation],
                time=record.time,
                defined=record.tools,
                called=record.called,
            )
        if record.facts != _NO_FACTS:
            new = new_fact_rows(record.facts, _NO_FACTS)
            write_facts(connection, record.conversation, new, record.time)
    add_usage(connection, records)


def _ensure_conversation_row(connection: Connection, records: Sequence[RequestRecord]) -> int:
    """Return the row id of the records' conversation, created if missing."""
    first, *others = records
    held = (connection, first.owner, first.conversation)
    row = ensure_conversation(*held, time=first.time, session=first.session)
    prompt = next((one.prompt for one in records if one.prompt), "")
    if prompt:
        connection.execute(
            "UPDATE conversations SET prompt = ? WHERE id = ? AND prompt = ''", (prompt, row)
        )
    if others:
        session = next((one.session for one in reversed(others) if one.session), "")
        ensure_conversation(*held, time=max(one.time for one in others), session=session)
    return row


def read_conversations(
    connection: Connection,
    owner: str | None,
    *,
    behind: tuple[float, int] | None,
    limit: int,
    only: RecordFilter = ANY_RECORD,
) -> list[ConversationSummary]:
    """Return a page of conversations, the latest first; `behind` is the last (last, id)."""
    last, id = behind or (None, 0)
    filter, values = _conditions(only)
    if filter:
        filter = f" AND EXISTS (SELECT 1 FROM requests r WHERE r.conversation = c.id{filter})"  # noqa: S608 - our own
    given = {"owner": owner, "last": last, "id": id, "limit": limit, **values}
    rows = connection.execute(_SELECT_CONVERSATIONS.format(filter=filter), given).fetchall()
    return [_to_conversation(row) for row in rows]


def _conditions(only: RecordFilter) -> tuple[str, dict[str, Any]]:
    """Conditions of a filter on requests r of conversations c, and their values."""
    exact = {"agent": only.agent, "project": only.project, "model": only.model}
    found = [f"r.{name} = :{name}" for name, value in exact.items() if value is not None]
    values: dict[str, Any] = {name: value for name, value in exact.items() if value is not None}
    if only.since is not None:
        found.append("r.time >= :since")
        values["since"] = only.since
    if only.until is not None:
        found.append("r.time < :until")
        values["until"] = only.until
    for at, word in enumerate(only.words):
        fits = (f"instr(lower({name}), :word{at}) > 0" for name in _SEARCHED)
        found.append(f"({' OR '.join(fits)})")
        values[f"word{at}"] = word.lower()
    return "".join(f" AND {one}" for one in found), values


def read_records(
    connection: Connection, owner: str | None, *, only: RecordFilter, limit: int
) -> list[RequestRecord]:
    """Return the latest requests that meet a filter, the latest first, without their edits."""
    filter, values = _conditions(only)
    rows = connection.execute(
        f"{_SELECT_REQUEST} WHERE (:owner IS NULL OR c.owner = :owner){filter}"
        " ORDER BY r.time DESC, r.rowid DESC LIMIT :limit",
        {"owner": owner, "limit": limit, **values},
    ).fetchall()
    return [_to_record(row) for row in rows]


def write_pinned(
    connection: Connection, conversation: str, pinned: bool, owner: str | None
) -> bool:
    """Pin or unpin a conversation; False if this owner has none of that name."""
    done = connection.execute(
        "UPDATE conversations SET pinned = ?1 WHERE name = ?2 AND (?3 IS NULL OR owner = ?3)",
        (pinned, conversation, owner),
    )
    return done.rowcount > 0


def read_pinned(connection: Connection, conversation: str) -> bool:
    """Return whether a conversation is pinned."""
    rows = connection.execute(
        "SELECT 1 FROM conversations WHERE name = ? AND pinned", (conversation,)
    ).fetchall()
    return bool(rows)


def read_requests(
    connection: Connection,
    conversation: str,
    owner: str | None,
    *,
    after: float,
    limit: int,
) -> list[RequestRecord]:
    """Return a conversation's requests after a time, in order, without their edits."""
    query = f"{_SELECT_REQUEST} WHERE c.name = ?1 AND (?2 IS NULL OR c.owner = ?2) AND r.time > ?3"
    rows = connection.execute(
        f"{query} ORDER BY r.time, r.rowid LIMIT ?4", (conversation, owner, after, limit)
    ).fetchall()
    return [_to_record(row) for row in rows]


def read_lineage(
    connection: Connection, conversation: str, owner: str | None
) -> list[RequestLineage]:
    """Return the lineage of each request of a conversation, in order."""
    rows = connection.execute(
        """SELECT r.id, r.prefix, r.parent FROM requests r
        JOIN conversations c ON c.id = r.conversation
        WHERE c.name = ?1 AND (?2 IS NULL OR c.owner = ?2) ORDER BY r.time, r.rowid""",
        (conversation, owner),
    )
    return [RequestLineage(*row) for row in rows]


def read_notable(
    connection: Connection,
    owner: str | None,
    *,
    since: float,
    behind: float | None,
    limit: int,
    only: RecordFilter = ANY_RECORD,
) -> list[RequestRecord]:
    """Return requests with a prefix break, failure, fallback or refetch, the latest first."""
    filter, values = _conditions(only)
    rows = connection.execute(
        f"{_SELECT_REQUEST} WHERE r.notable AND (:owner IS NULL OR c.owner = :owner)"
        f" AND r.time >= :from AND (:behind IS NULL OR r.time < :behind){filter}"
        " ORDER BY r.time DESC, r.rowid DESC LIMIT :limit",
        {"owner": owner, "from": since, "behind": behind, "limit": limit, **values},
    ).fetchall()
    return [_to_record(row) for row in rows]


def read_prior_requests(
    connection: Connection, conversation: str, prefixes: Collection[str], after: int
) -> PriorRequests:
    """Return the requests with these history hashes, the latest last, and the edits since."""
    held = "FROM requests r JOIN conversations c ON c.id = r.conversation WHERE c.name = ?"
    # Originals are stored before the first edit is sent: a record may be lost, they are not.
    kept = "FROM kept k JOIN conversations c ON c.id = k.conversation WHERE c.name = ?"
    ((edited,),) = connection.execute(
        f"SELECT EXISTS (SELECT 1 {kept})"
        f" OR EXISTS (SELECT 1 {held} AND r.edited <> 0 AND r.mode <> 'observed')",
        (conversation, conversation),
    ).fetchall()
    rows = connection.execute(
        "SELECT r.prefix, r.time, r.terms, r.sent_as, r.tokens_before, r.epochs, 0, r.unit"
        f" {held} AND r.prefix IN ({', '.join('?' * len(prefixes))})"
        " ORDER BY r.time DESC, r.rowid DESC LIMIT ?",
        (conversation, *prefixes, _MAX_PRIOR_REQUESTS),
    ).fetchall()
    found = tuple((prefix, SentRequest(*values)) for prefix, *values in reversed(rows))
    made = connection.execute(
        f"SELECT r.rowid, r.packing, r.edits, r.size {held} AND r.rowid > ? AND r.made <> 0"
        " ORDER BY r.rowid",
        (conversation, after),
    ).fetchall()
    edits = tuple(edit for _, *packed_so in made for edit in _decode_edits(*packed_so))
    claims = _read_claims(connection, conversation, prefixes)
    return PriorRequests(found, bool(edited), edits, made[-1][0] if made else after, claims)


def read_edits(
    connection: Connection, request: str, owner: str | None
) -> tuple[RecordedEdit, ...] | None:
    """Return the edits of a request; None if this owner has no such request."""
    rows = connection.execute(
        """SELECT r.packing, r.edits, r.size FROM requests r
        JOIN conversations c ON c.id = r.conversation
        WHERE r.id = ?1 AND (?2 IS NULL OR c.owner = ?2)""",
        (request, owner),
    ).fetchall()
    return _decode_edits(*rows[0]) if rows else None


def read_sources(
    connection: Connection, conversation: str, owner: str | None
) -> dict[str, RecordedEdit]:
    """Return the first edit for each text of a conversation that an edit replaced or wrote."""
    rows = connection.execute(
        """SELECT r.packing, r.edits, r.size FROM requests r
        JOIN conversations c ON c.id = r.conversation
        WHERE c.name = ?1 AND (?2 IS NULL OR c.owner = ?2) AND r.made <> 0
        ORDER BY r.time, r.rowid""",
        (conversation, owner),
    )
    found: dict[str, RecordedEdit] = {}
    for row in rows:
        for edit in _decode_edits(*row):
            for ref in (edit.ref, edit.after):
                if ref:
                    found.setdefault(ref, edit)
    return found


def _decode_edits(packing: int, body: bytes, size: int) -> tuple[RecordedEdit, ...]:
    """Decode edits; empty if they are damaged."""
    try:
        return _edits_decoder.decode(unpack_bytes(packing, body, size))
    except (DamagedData, msgspec.DecodeError):
        return ()


def read_totals(
    connection: Connection,
    owner: str | None,
    *,
    since: float,
    until: float,
    step: float,
    only: RecordFilter = ANY_RECORD,
) -> list[PeriodTotal]:
    """Return sums per period of `step` seconds; periods without requests are omitted."""
    filter, values = _conditions(only)
    rows = connection.execute(
        _SELECT_TOTALS.format(group=_SLOT, filter=filter),
        {"owner": owner, "from": since, "to": until, "step": step, **values},
    ).fetchall()
    found = _merge_totals((slot, _to_total(row, since + slot * step)) for slot, *row in rows)
    return list(found.values())


def read_origin_totals(
    connection: Connection,
    owner: str | None,
    *,
    since: float,
    until: float,
    only: RecordFilter = ANY_RECORD,
) -> list[OriginTotal]:
    """Return sums per agent, project and model."""
    filter, values = _conditions(only)
    rows = connection.execute(
        _SELECT_TOTALS.format(group=_ORIGIN, filter=filter),
        {"owner": owner, "from": since, "to": until, **values},
    ).fetchall()
    found = _merge_totals(
        ((agent, project, row[1]), _to_total(row, since)) for agent, project, *row in rows
    )
    return [OriginTotal(*origin, total) for origin, total in found.items()]


def read_units(connection: Connection, owner: str | None, since: float) -> list[UnitTotal]:
    """Return the totals of each unit of a holdout, by arm."""
    rows = connection.execute(_SELECT_UNITS, {"owner": owner, "from": since})
    return [
        UnitTotal(
            unit=unit,
            arm=arm,
            requests=requests,
            cost=cost,
            unpriced=int(unpriced),
            errors=int(errors),
            refetched=int(refetched),
        )
        for unit, arm, requests, cost, unpriced, errors, refetched in rows
    ]


def read_repeats(connection: Connection, owner: str | None, since: float) -> tuple[RepeatCell, ...]:
    """Return the sums of the results that compacted requests sent, and of those repeated."""
    rows = connection.execute(
        """SELECT r.notes FROM requests r JOIN conversations c ON c.id = r.conversation
        WHERE (?1 IS NULL OR c.owner = ?1) AND r.time >= ?2 AND r.mode = 'compacted'""",
        (owner, since),
    )
    return add_cells(cell for (notes,) in rows for cell in _decode_repeats(notes))


def _decode_repeats(notes: str) -> tuple[RepeatCell, ...]:
    """Decode the results that a record counts; empty if they are damaged."""
    try:
        return _repeats_decoder.decode(notes).repeats
    except msgspec.DecodeError:
        return ()


def _merge_totals(totals: Iterable[tuple[_Key, PeriodTotal]]) -> dict[_Key, PeriodTotal]:
    """Sums by key; a key has one row for each format and model."""
    found: dict[_Key, PeriodTotal] = {}
    for key, total in totals:
        found[key] = _add_totals(found[key], total) if key in found else total
    return found


def _row_values(record: RequestRecord, conversation: int) -> tuple[object, ...]:
    usage = record.usage
    edits = msgspec.json.encode(record.edits)
    notes = _RecordNotes(*(getattr(record, name) for name in _RecordNotes.__struct_fields__))
    return (
        *(getattr(record, name) for name in _RECORD_COLUMNS),
        *(None if usage is None else getattr(usage, name) for name in _USAGE_COLUMNS),
        conversation,
        record.edited or len(record.edits),
        record.made or len(record.edits),
        len(record.refetched),
        len(record.loops),
        _is_notable(record),
        msgspec.json.encode(notes).decode(),
        len(edits),
        *pack_bytes(edits),
    )


def _is_notable(record: RequestRecord) -> bool:
    """Check for a prefix break, failure, fallback, retry, refetch or loop."""
    failed = record.status >= 400 or record.status == 0
    events = (
        record.prefix_break,
        record.fallback,
        record.again,
        record.failures,
        record.refetched,
        record.loops,
    )
    return failed or any(events)


def _to_record(row: tuple[Any, ...]) -> RequestRecord:
    owner, conversation, session, prompt, *rest = row
    same: dict[str, Any] = dict(zip(_RECORD_COLUMNS, rest, strict=False))
    same["counted"] = bool(same["counted"])
    *usage, edited, made, notes = rest[len(_RECORD_COLUMNS) :]
    decoded = _notes_decoder.decode(notes)
    return RequestRecord(
        **same,
        owner=owner,
        conversation=conversation,
        session=session,
        prompt=prompt,
        usage=None if usage[0] is None else Usage(**dict(zip(_USAGE_COLUMNS, usage, strict=True))),
        edited=edited,
        made=made,
        **asdict(decoded),
    )


def _to_conversation(row: tuple[Any, ...]) -> ConversationSummary:
    id, name, owner, session, started, last, count, before, after, saved = row[:10]
    return ConversationSummary(
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
        agent=row[20] or "",
        project=row[21] or "",
        prompt=row[22],
        pinned=bool(row[23]),
    )


def _to_total(row: Sequence[Any], start: float) -> PeriodTotal:
    """Totals of one format and model."""
    format, model, *figures = row
    whole = [int(figure) for figure in figures]
    saved, would, unmeasured, would_unmeasured = whole[3], whole[17], whole[20], whole[21]
    low, high = estimate_range(unmeasured, format, model)
    would_low, would_high = estimate_range(would_unmeasured, format, model)
    return PeriodTotal(
        start=start,
        requests=whole[0],
        tokens_before=whole[1],
        tokens_after=whole[2],
        saved=saved,
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
        would_saved=would,
        would_cost=figures[18],
        unpriced=whole[19],
        saved_low=saved - unmeasured + low,
        saved_high=saved - unmeasured + high,
        would_low=would - would_unmeasured + would_low,
        would_high=would - would_unmeasured + would_high,
    )


def _add_totals(one: PeriodTotal, other: PeriodTotal) -> PeriodTotal:
    """Totals of two models in the same period."""
    names = (name for name in PeriodTotal.__struct_fields__ if name != "start")
    return replace(one, **{name: getattr(one, name) + getattr(other, name) for name in names})


_rejected_decoder = msgspec.json.Decoder(RejectedRequest)


def bound_rejected(case: RejectedRequest) -> RejectedRequest:
    """Return the case without what is too large to store."""
    return replace(
        case,
        request=case.request if len(case.request) <= MAX_REJECTED_BYTES else b"",
        sent=case.sent if len(case.sent) <= MAX_REJECTED_BYTES else b"",
        policy=case.policy[:_MAX_REJECTED_TEXT],
        facts=case.facts[:MAX_REJECTED_BYTES],
        error=case.error[:_MAX_REJECTED_TEXT],
    )


def write_rejected(connection: Connection, case: RejectedRequest, body: bytes) -> None:
    """Write a rejected request and delete the oldest beyond the limit."""
    row = ensure_conversation(connection, case.owner, case.conversation, time=case.time)
    connection.execute(
        "INSERT INTO reproductions (conversation, time, size, packing, body)"
        " VALUES (?, ?, ?, ?, ?)",
        (row, case.time, len(body), *pack_bytes(body)),
    )
    connection.execute(
        "DELETE FROM reproductions WHERE id NOT IN"
        " (SELECT id FROM reproductions ORDER BY id DESC LIMIT ?)",
        (MAX_REJECTED_REQUESTS,),
    )


def read_rejected(connection: Connection, owner: str | None) -> list[RejectedRequest]:
    """Return the rejected requests, the latest first."""
    rows = connection.execute(
        """SELECT p.packing, p.body, p.size FROM reproductions p
        JOIN conversations c ON c.id = p.conversation
        WHERE ?1 IS NULL OR c.owner = ?1 ORDER BY p.id DESC""",
        (owner,),
    )
    return [case for row in rows if (case := _decode_rejected(*row)) is not None]


def _decode_rejected(packing: int, body: bytes, size: int) -> RejectedRequest | None:
    """Decode a rejected request; None if it is damaged."""
    try:
        return _rejected_decoder.decode(unpack_bytes(packing, body, size))
    except (DamagedData, msgspec.DecodeError):
        return None
