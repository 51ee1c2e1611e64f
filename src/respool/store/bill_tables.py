"""Tables of keep-alive events and tool definitions, and sums over what requests cost besides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ..pauses import ping_seconds
from ..pricing import SHORT_TTL_SECONDS
from .base import DefinedTool, KeepAliveEvent, KeepAliveTotal, RecordedBill, Remedies
from .connection import Connection
from .originals import ensure_conversation
from .remedies import Charge, Idle, Pause, value_remedies


def write_event(connection: Connection, event: KeepAliveEvent) -> None:
    """Write a keep-alive event."""
    row = ensure_conversation(connection, event.owner, event.conversation, time=event.time)
    connection.execute(
        "INSERT INTO keep_alive (conversation, time, model, kind, status, tokens, money)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (row, event.time, event.model, event.kind, event.status, event.tokens, event.money),
    )


def write_tools(
    connection: Connection,
    conversation: int,
    *,
    time: float,
    defined: Mapping[str, int],
    called: Sequence[str],
) -> None:
    """Write a conversation's tool definitions with their tokens, and the tools it has called."""
    connection.executemany(
        "INSERT INTO tools (conversation, time, name, tokens, called) VALUES (?1, ?2, ?3, ?4, 0)"
        " ON CONFLICT (conversation, name) DO UPDATE SET tokens = ?4, time = max(tools.time, ?2)",
        [(conversation, time, name, tokens) for name, tokens in defined.items()],
    )
    connection.executemany(
        "INSERT INTO tools (conversation, time, name, tokens, called) VALUES (?1, ?2, ?3, 0, 1)"
        " ON CONFLICT (conversation, name) DO UPDATE SET called = 1, time = max(tools.time, ?2)",
        [(conversation, time, name) for name in called],
    )


# An observed request was paid as it came; its other cost is an estimate.
_PAID = "CASE r.mode WHEN 'observed' THEN r.cost_before ELSE r.cost_after END"
_SUMS = f"""
    SELECT count(*), total({_PAID}), total(r.head_cost),
        count(CASE WHEN r.expired > 0 THEN 1 END), total(r.expired), total(r.expired_cost),
        count(CASE WHEN r.missed > 0 THEN 1 END), total(r.missed), total(r.missed_cost)
    FROM requests r JOIN conversations c ON c.id = r.conversation
    WHERE (:owner IS NULL OR c.owner = :owner) AND r.time >= :since AND r.time < :until"""  # noqa: S608 - our own
_EVENTS = """
    SELECT k.kind, count(*), total(k.money)
    FROM keep_alive k JOIN conversations c ON c.id = k.conversation
    WHERE (:owner IS NULL OR c.owner = :owner) AND k.time >= :since AND k.time < :until
    GROUP BY k.kind"""
# A conversation's requests may have several agents; the last one's name counts for its tools.
_TOOLS = """
    SELECT n.agent, t.name, max(t.tokens), total(n.requests), max(t.called)
    FROM tools t JOIN (
        SELECT m.conversation, m.requests, l.agent FROM (
            SELECT r.conversation, count(*) AS requests, max(r.time) AS latest
            FROM requests r JOIN conversations c ON c.id = r.conversation
            WHERE (:owner IS NULL OR c.owner = :owner) AND r.time >= :since AND r.time < :until
            GROUP BY r.conversation) m
        JOIN requests l ON l.rowid = (SELECT max(x.rowid) FROM requests x
            WHERE x.conversation = m.conversation AND x.time = m.latest)
        ) n ON n.conversation = t.conversation
    GROUP BY n.agent, t.name ORDER BY n.agent, t.name"""
_CHARGE = (
    "r.format, r.model, r.time, r.input, r.cache_read, r.cache_write, r.output,"
    f" {_PAID}, r.cost_uncached"
)
_IN_PERIOD = """requests r JOIN conversations c ON c.id = r.conversation
    WHERE (:owner IS NULL OR c.owner = :owner) AND r.time >= :since AND r.time < :until"""
_PRICED = f"r.cost_uncached > 0 AND r.input IS NOT NULL AND {_PAID} IS NOT NULL"
_WRITES = f"""
    SELECT r.format, r.model, max(r.time), total(r.input), total(r.cache_read),
        total(r.cache_write), total(r.output), total({_PAID}), total(r.cost_uncached)
    FROM {_IN_PERIOD} AND {_PRICED}
    GROUP BY r.format, r.model, CAST(r.time / 86400 AS INTEGER)
    ORDER BY r.format, r.model, max(r.time)"""  # noqa: S608 - our own
_PAUSES = f"""
    SELECT r.rowid, r.expired, r.expired_cost, r.mode, r.epochs, r.saved, {_CHARGE},
        p.rowid, p.time, p.epochs, p.saved
    FROM (SELECT r.rowid AS child, (SELECT x.rowid FROM requests x
            WHERE x.prefix = r.parent AND x.conversation = r.conversation AND x.time < r.time
            ORDER BY x.time DESC, x.rowid DESC LIMIT 1) AS parent
        FROM {_IN_PERIOD} AND r.expired > 0) n
    JOIN requests r ON r.rowid = n.child
    LEFT JOIN requests p ON p.rowid = n.parent AND r.parent <> ''
    ORDER BY r.time, r.rowid"""  # noqa: S608 - our own
# As for the proxy, a conversation of one request is not pinged, nor one that failed.
_IDLE = f"""
    SELECT r.rowid, n.later, n.next_row, {_CHARGE}
    FROM (SELECT r.rowid AS earlier, r.time AS time,
            lead(r.time, 1) OVER seq AS later, lead(r.rowid, 1) OVER seq AS next_row
        FROM {_IN_PERIOD}
        WINDOW seq AS (PARTITION BY r.conversation ORDER BY r.time, r.rowid)) n
    JOIN requests r ON r.rowid = n.earlier
    WHERE (n.later > n.time + :shortest OR n.later IS NULL)
        AND r.parent <> '' AND r.status = 200 AND {_PRICED}
    ORDER BY r.time, r.rowid"""  # noqa: S608 - our own


def read_keep_alive(
    connection: Connection, owner: str | None, since: float, until: float
) -> KeepAliveTotal:
    """Sum up the keep-alive events of a period."""
    given = {"owner": owner, "since": since, "until": until}
    found = {kind: (count, money) for kind, count, money in connection.execute(_EVENTS, given)}
    pings, hits = found.get("ping", (0, 0.0)), found.get("hit", (0, 0.0))
    return KeepAliveTotal(pings=pings[0], paid=pings[1], hits=hits[0], saved=hits[1])


def read_bill(
    connection: Connection, owner: str | None, *, since: float, until: float, now: float
) -> RecordedBill:
    """Sum up what the requests of a period cost besides their work."""
    given = {"owner": owner, "since": since, "until": until}
    (sums,) = connection.execute(_SUMS, given).fetchall()
    requests, money, head, pauses, expired, expired_money, misses, missed, missed_money = sums
    tools = [
        DefinedTool(agent=agent, name=name, tokens=tokens, requests=int(count), called=bool(called))
        for agent, name, tokens, count, called in connection.execute(_TOOLS, given)
        if tokens
    ]
    unused = sorted(
        (one for one in tools if not one.called),
        key=lambda one: (-one.tokens * one.requests, one.agent, one.name),
    )
    bill = RecordedBill(
        requests=requests,
        money=money,
        head_money=head,
        pauses=int(pauses),
        expired=int(expired),
        expired_money=expired_money,
        misses=int(misses),
        missed=int(missed),
        missed_money=missed_money,
        keep_alive=read_keep_alive(connection, owner, since, until),
        tools=tuple(unused),
        tools_known=len(tools),
    )
    return replace(bill, remedies=_read_remedies(connection, given, bill, now)) if pauses else bill


def _read_remedies(
    connection: Connection, given: Mapping[str, Any], bill: RecordedBill, now: float
) -> Remedies:
    """Value the remedies of a period's pauses; pings only if none was sent."""
    pauses = dict(_to_pauses(connection.execute(_PAUSES, given)))
    if not any(one.charge.terms() for one in pauses.values()):
        return value_remedies(pauses.values(), (), ())
    writes = [_to_charge(row) for row in connection.execute(_WRITES, given)]
    idle: Iterable[Idle] = ()
    if not bill.keep_alive.pings:
        shortest = ping_seconds(SHORT_TTL_SECONDS)
        end = min(now, given["until"])
        rows = connection.execute(_IDLE, {**given, "shortest": shortest})
        idle = _to_idle(rows, pauses, end)
    return value_remedies(pauses.values(), writes, idle)


def _to_pauses(rows: Iterable[Sequence[Any]]) -> Iterator[tuple[int, Pause]]:
    for id, expired, cost, mode, epochs, saved, *rest in rows:
        charge = _to_charge(rest[:-4])
        parent, sent, epochs_then, saved_then = rest[-4:]
        is_known = parent is not None
        yield (
            id,
            Pause(
                charge=charge,
                expired=expired,
                expired_cost=cost or 0.0,
                parent=parent,
                seconds=charge.time - sent if is_known else 0.0,
                is_compacted=is_known and mode == "compacted" and epochs > epochs_then,
                removed=saved - saved_then if is_known else 0,
            ),
        )


def _to_idle(
    rows: Iterable[Sequence[Any]], pauses: Mapping[int, Pause], end: float
) -> Iterator[Idle]:
    for id, later, next_row, *rest in rows:
        charge = _to_charge(rest)
        until = end if later is None else later
        yield Idle(row=id, charge=charge, seconds=until - charge.time, pause=pauses.get(next_row))


def _to_charge(row: Sequence[Any]) -> Charge:
    format, model, time, input, read, write, output, paid, uncached = row
    return Charge(
        format=format,
        model=model,
        time=time,
        input=int(input or 0),
        cache_read=int(read or 0),
        cache_write=int(write or 0),
        output=int(output or 0),
        paid=paid or 0.0,
        uncached=uncached or 0.0,
    )
