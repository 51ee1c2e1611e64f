"""Tables of keep-alive events and tool definitions, and sums over what requests cost besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .base import DefinedTool, KeepAliveEvent, KeepAliveTotal, RecordedBill
from .connection import Connection
from .originals import ensure_conversation


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


_SUMS = """
    SELECT count(*), total(r.cost_after), total(r.head_cost),
        count(CASE WHEN r.expired > 0 THEN 1 END), total(r.expired), total(r.expired_cost),
        count(CASE WHEN r.missed > 0 THEN 1 END), total(r.missed), total(r.missed_cost)
    FROM requests r JOIN conversations c ON c.id = r.conversation
    WHERE (:owner IS NULL OR c.owner = :owner) AND r.time >= :since AND r.time < :until"""
_EVENTS = """
    SELECT k.kind, count(*), total(k.money)
    FROM keep_alive k JOIN conversations c ON c.id = k.conversation
    WHERE (:owner IS NULL OR c.owner = :owner) AND k.time >= :since AND k.time < :until
    GROUP BY k.kind"""
# A conversation's requests may have several agents; the last one's name counts for its tools.
_TOOLS = """
    SELECT n.agent, t.name, max(t.tokens), total(n.requests), max(t.called)
    FROM tools t JOIN (
        SELECT r.conversation, r.agent,
            count(*) OVER (PARTITION BY r.conversation) AS requests,
            row_number() OVER (PARTITION BY r.conversation ORDER BY r.time DESC) AS place
        FROM requests r JOIN conversations c ON c.id = r.conversation
        WHERE (:owner IS NULL OR c.owner = :owner) AND r.time >= :since AND r.time < :until
        ) n ON n.conversation = t.conversation AND n.place = 1
    GROUP BY n.agent, t.name ORDER BY n.agent, t.name"""


def read_keep_alive(
    connection: Connection, owner: str | None, since: float, until: float
) -> KeepAliveTotal:
    """Sum up the keep-alive events of a period."""
    given = {"owner": owner, "since": since, "until": until}
    found = {kind: (count, money) for kind, count, money in connection.execute(_EVENTS, given)}
    pings, hits = found.get("ping", (0, 0.0)), found.get("hit", (0, 0.0))
    return KeepAliveTotal(pings=pings[0], paid=pings[1], hits=hits[0], saved=hits[1])


def read_bill(
    connection: Connection, owner: str | None, since: float, until: float
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
    return RecordedBill(
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
