"""Short names: a unique beginning stands for a reference, a conversation or an owner."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, Protocol

from ..errors import RespoolError, quote_value
from .connection import Connection

NameKind = Literal["reference", "conversation", "owner"]

MIN_CHARS: Final = 4
_MAX_LISTED: Final = 8
# A row of a team's original is named by the reference and the team.
_QUERIES: Final[dict[NameKind, str]] = {
    "reference": "SELECT DISTINCT substr(ref, 1, 20) FROM originals"
    " WHERE ref >= ?1 AND ref < ?2 ORDER BY 1 LIMIT ?3",
    "conversation": "SELECT DISTINCT name FROM conversations"
    " WHERE name >= ?1 AND name < ?2 ORDER BY name LIMIT ?3",
    "owner": "SELECT DISTINCT owner FROM conversations"
    " WHERE owner >= ?1 AND owner < ?2 ORDER BY owner LIMIT ?3",
}
# Of one owner: what others have is not even looked at.
_OWN_QUERIES: Final[dict[NameKind, str]] = {
    "reference": "SELECT DISTINCT substr(k.ref, 1, 20) FROM conversations c"
    " JOIN kept k ON k.conversation = c.id WHERE c.owner = ?4 AND k.ref >= ?1 AND k.ref < ?2"
    " AND EXISTS (SELECT 1 FROM originals o WHERE o.ref = k.ref) ORDER BY 1 LIMIT ?3",
    "conversation": "SELECT name FROM conversations"
    " WHERE owner = ?4 AND name >= ?1 AND name < ?2 ORDER BY name LIMIT ?3",
    "owner": "SELECT DISTINCT owner FROM conversations"
    " WHERE owner = ?4 AND owner >= ?1 AND owner < ?2 LIMIT ?3",
}


class UnclearName(RespoolError, ValueError):
    """A short name that is too short, or stands for several; the message lists them."""


class NameSource(Protocol):
    """A store that finds names by their beginning."""

    def names(self, kind: NameKind, beginning: str, limit: int) -> list[str]:
        """Return the first names that begin so."""
        ...


def read_names(
    connection: Connection,
    kind: NameKind,
    beginning: str,
    limit: int,
    owner: str | None = None,
) -> list[str]:
    """Return the first names of a kind that begin so, of what this owner has."""
    given = beginning, f"{beginning}\U0010ffff", limit
    found = (
        connection.execute(_QUERIES[kind], given)
        if owner is None
        else connection.execute(_OWN_QUERIES[kind], (*given, owner))
    )
    return [row[0] for row in found]


def resolve_name(store: NameSource, kind: NameKind, given: str) -> str:
    """The whole name that a short one stands for; the same if there is none.

    It is for what a person types, with the rights of the store's owner.
    """
    return choose_name(kind, given, store.names(kind, given, _MAX_LISTED + 1) if given else [])


def choose_name(kind: NameKind, given: str, found: Iterable[str]) -> str:
    """The one of these names that begins so; an exact one is always meant."""
    fitting = [name for name in found if name.startswith(given)]
    if given in fitting or not fitting:
        return given
    if len(given) < MIN_CHARS:
        raise UnclearName(
            f"{quote_value(given)} is too short for a {kind}: give {MIN_CHARS} characters or more."
        )
    if len(fitting) == 1:
        return fitting[0]
    listed = ", ".join(fitting[:_MAX_LISTED])
    more = " and more" if len(fitting) > _MAX_LISTED else ""
    raise UnclearName(f"{quote_value(given)} stands for several {kind}s: {listed}{more}.")
