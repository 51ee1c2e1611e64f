"""Requests that a provider rejected once they were compacted: enough to see each again."""

from __future__ import annotations

import sqlite3

import msgspec
from msgspec.structs import replace

from .originals import conversation_id
from .packing import Damaged, packed, unpacked
from .record import Reproduction

MOST_BYTES = 16_000_000  # of a body; a larger one is left out, and what remains says so
MOST = 20  # the latest so many stay
_MOST_TEXT = 20_000  # characters of an error or of settings

_decoder = msgspec.json.Decoder(Reproduction)


def bounded(case: Reproduction) -> Reproduction:
    """The case without what is too large to keep."""
    return replace(
        case,
        request=case.request if len(case.request) <= MOST_BYTES else b"",
        sent=case.sent if len(case.sent) <= MOST_BYTES else b"",
        policy=case.policy[:_MOST_TEXT],
        facts=case.facts[:MOST_BYTES],
        error=case.error[:_MOST_TEXT],
    )


def reproduce(connection: sqlite3.Connection, case: Reproduction, body: bytes) -> None:
    """Write a case down, and let the oldest go."""
    row = conversation_id(connection, case.owner, case.conversation, case.time)
    connection.execute(
        "INSERT INTO reproductions (conversation, time, size, packing, body)"
        " VALUES (?, ?, ?, ?, ?)",
        (row, case.time, len(body), *packed(body)),
    )
    connection.execute(
        "DELETE FROM reproductions WHERE id NOT IN"
        " (SELECT id FROM reproductions ORDER BY id DESC LIMIT ?)",
        (MOST,),
    )


def reproductions(connection: sqlite3.Connection, owner: str | None) -> list[Reproduction]:
    """The cases that were written down, the latest first."""
    rows = connection.execute(
        """SELECT p.packing, p.body, p.size FROM reproductions p
        JOIN conversations c ON c.id = p.conversation
        WHERE ?1 IS NULL OR c.owner = ?1 ORDER BY p.id DESC""",
        (owner,),
    )
    return [case for row in rows if (case := _case(*row)) is not None]


def _case(packing: int, body: bytes, size: int) -> Reproduction | None:
    """A case as it was written; None if it is damaged."""
    try:
        return _decoder.decode(unpacked(packing, body, size))
    except (Damaged, msgspec.DecodeError):
        return None
