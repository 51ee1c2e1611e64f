"""Teams: their tokens, settings, quotas and usage.

A team owns the rows that its requests write. Its owner name has a random part: a team that takes
the name of a removed one reads nothing of it. A token is stored as a keyed hash only, and is
looked up by that hash, so that the time of a lookup reveals nothing about other tokens.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol

from msgspec import Struct
from msgspec.structs import asdict, replace

from ..config import settings_from_text
from ..errors import RespoolError
from ..policy import Policy
from ..regex import lazy_compile
from .base import RequestRecord
from .connection import Connection, Database

QuotaPeriod = Literal["day", "month"]
OverQuota = Literal["refuse", "pass"]  # pass: requests are sent as they came

OWNER_PREFIX: Final = "team:"  # no hash of an API key begins so
TOKEN_PREFIX: Final = "rst_"  # noqa: S105 - the start of every token
TEAM_TABLES: Final = (
    """CREATE TABLE teams (
        name TEXT NOT NULL PRIMARY KEY, owner TEXT NOT NULL UNIQUE, created REAL NOT NULL,
        settings TEXT NOT NULL, quota_dollars REAL, quota_requests INTEGER,
        quota_period TEXT NOT NULL, over_quota TEXT NOT NULL, days REAL)""",
    """CREATE TABLE team_tokens (
        id TEXT NOT NULL PRIMARY KEY, owner TEXT NOT NULL, hash TEXT NOT NULL UNIQUE,
        created REAL NOT NULL, used REAL, expires REAL, revoked REAL)""",
    # By UTC day; it outlives the records, which a short retention deletes within a month.
    """CREATE TABLE team_usage (
        owner TEXT NOT NULL, day INTEGER NOT NULL, requests INTEGER NOT NULL,
        dollars REAL NOT NULL, PRIMARY KEY (owner, day))""",
)
_DAY_SECONDS: Final = 86_400
_TOKEN_BYTES: Final = 20
_ID_BYTES: Final = 4  # of a token's public id
_SPACE_BYTES: Final = 8
_MAX_DAYS: Final = 36_500
_NAME = lazy_compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?", re.ASCII)
_TEAM_COLUMNS = (
    "name, owner, created, settings, quota_dollars, quota_requests, quota_period, over_quota, days"
)
_TOKEN_COLUMNS = "id, owner, hash, created, used, expires, revoked"  # noqa: S105 - names of columns


class TeamError(RespoolError, ValueError):
    """A team or a token that cannot be made or found; the message says why."""


class Quota(Struct, frozen=True):
    """Limits of a team in one period; None: no limit."""

    dollars: float | None = None
    requests: int | None = None
    period: QuotaPeriod = "month"
    when_over: OverQuota = "refuse"

    def __post_init__(self) -> None:
        for name, value in (("dollars", self.dollars), ("requests", self.requests)):
            if value is not None and not 0 <= value < float("inf"):
                raise TeamError(f"A quota of {name} is a number from 0 on, not {value!r}.")


class Team(Struct, frozen=True, kw_only=True):
    """A team and what applies to it."""

    name: str
    owner: str  # of its rows in the store
    created: float
    settings: str = ""  # TOML; what it does not set is the server's
    quota: Quota = Quota()
    days: float | None = None  # retention; None: the store's

    @property
    def space(self) -> str:
        """The random part of the owner, by which its originals are stored apart."""
        return space_of(self.owner)


class TeamToken(Struct, frozen=True, kw_only=True):
    """A token as it is stored: the token itself is not known."""

    id: str
    owner: str
    hash: str
    created: float
    used: float | None = None  # rounded to an hour
    expires: float | None = None
    revoked: float | None = None

    def is_valid(self, now: float) -> bool:
        """True unless it was revoked or has expired."""
        return self.revoked is None and (self.expires is None or now < self.expires)


class TeamUsage(Struct, frozen=True):
    """Sums of a team's recorded requests."""

    requests: int = 0
    dollars: float = 0.0  # paid, where prices are known

    def __add__(self, other: TeamUsage) -> TeamUsage:
        return TeamUsage(self.requests + other.requests, self.dollars + other.dollars)


_NO_USAGE: Final = TeamUsage()


class QuotaExceeded(Struct, frozen=True):
    """The limit that a team has reached."""

    kind: Literal["requests", "dollars"]
    used: float
    limit: float
    period: QuotaPeriod
    resets: float  # seconds since 1970

    def sentence(self, name: str) -> str:
        """A sentence with the used quota and the time of its reset."""
        figures = (
            f"{int(self.used):,} of {int(self.limit):,} requests"
            if self.kind == "requests"
            else f"${self.used:,.2f} of ${self.limit:,.2f}"
        )
        until = datetime.fromtimestamp(self.resets, UTC).strftime("%Y-%m-%d %H:%M UTC")
        return f"team {name} has used {figures} of this {self.period}; it resets at {until}."


class TeamDirectory(Struct, frozen=True):
    """All teams with their valid tokens and their usage, as of one moment."""

    salt: bytes = b""
    teams: tuple[Team, ...] = ()
    tokens: Mapping[str, TeamToken] = {}  # by hash
    usage: Mapping[str, TeamUsage] = {}  # by owner, in the period of its quota

    def find(self, token: str, now: float) -> tuple[Team, TeamToken] | None:
        """The team of a token; None for an unknown, a revoked and an expired one alike."""
        found = self.tokens.get(hash_token(token, self.salt))
        if found is None or not found.is_valid(now):
            return None
        team = next((one for one in self.teams if one.owner == found.owner), None)
        return None if team is None else (team, found)

    def named(self, name: str) -> Team | None:
        """The team of this name."""
        return next((one for one in self.teams if one.name == name), None)

    def usage_of(self, team: Team) -> TeamUsage:
        """The usage of a team in the period of its quota."""
        return self.usage.get(team.owner, _NO_USAGE)

    def exceeded(self, team: Team, now: float, in_flight: int = 0) -> QuotaExceeded | None:
        """The quota that a team has used up, requests in flight included; None: none."""
        quota, used = team.quota, self.usage_of(team) + TeamUsage(in_flight)
        _, resets = period_at(quota.period, now)
        if quota.requests is not None and used.requests >= quota.requests:
            return QuotaExceeded("requests", used.requests, quota.requests, quota.period, resets)
        if quota.dollars is not None and used.dollars >= quota.dollars:
            return QuotaExceeded("dollars", used.dollars, quota.dollars, quota.period, resets)
        return None


def period_at(period: QuotaPeriod, now: float) -> tuple[float, float]:
    """Start and end of the UTC day or calendar month of a time."""
    at = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        return at.timestamp(), at.timestamp() + _DAY_SECONDS
    start = at.replace(day=1)
    later = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
    return start.timestamp(), later.timestamp()


def is_team(owner: str) -> bool:
    """Check if an owner is a team."""
    return owner.startswith(OWNER_PREFIX)


def space_of(owner: str) -> str:
    """The random part of a team's owner name; empty for any other owner.

    >>> space_of("team:billing.0a1b"), space_of("anonymous")
    ('0a1b', '')
    """
    return owner.rpartition(".")[2] if is_team(owner) else ""


def new_token() -> str:
    """A random token.

    >>> len(new_token())
    44
    """
    return f"{TOKEN_PREFIX}{secrets.token_hex(_TOKEN_BYTES)}"


def hash_token(token: str, salt: bytes) -> str:
    """The keyed hash by which a token is stored and found."""
    key = salt if len(salt) <= 64 else hashlib.blake2b(salt).digest()
    data = token.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=32, key=key, person=b"team-token").hexdigest()


def team_policy(team: Team, base: Policy) -> Policy:
    """The policy of a team: its settings over the server's. Raises PolicyError."""
    return settings_from_text(team.settings, f"team {team.name}", base) if team.settings else base


def new_team(name: str, created: float, **given: Any) -> Team:
    """A team with an owner name of its own; raises TeamError or PolicyError."""
    if not _NAME.fullmatch(name):
        raise TeamError(
            f"{name!r:.60} is no name for a team: it has up to 40 lower-case letters, digits and "
            "hyphens, with a letter or digit at both ends."
        )
    owner = f"{OWNER_PREFIX}{name}.{secrets.token_hex(_SPACE_BYTES)}"
    return checked_team(Team(name=name, owner=owner, created=created, **given))


def checked_team(team: Team) -> Team:
    """The same team; raises TeamError or PolicyError if it cannot be served."""
    team_policy(team, Policy())
    if team.days is not None and not 0 < team.days <= _MAX_DAYS:
        raise TeamError(f"The days of a team are a number up to {_MAX_DAYS:,}, not {team.days!r}.")
    return team


# --- tables ------------------------------------------------------------------------------------


def read_teams(connection: Connection) -> tuple[Team, ...]:
    """All teams, by name."""
    rows = connection.execute(
        f"SELECT {_TEAM_COLUMNS} FROM teams ORDER BY name"  # noqa: S608 - our own
    ).fetchall()
    return tuple(_to_team(row) for row in rows)


def read_tokens(connection: Connection) -> list[TeamToken]:
    """All tokens, the oldest first."""
    rows = connection.execute(
        f"SELECT {_TOKEN_COLUMNS} FROM team_tokens ORDER BY created, id"  # noqa: S608 - our own
    ).fetchall()
    names = TeamToken.__struct_fields__
    return [TeamToken(**dict(zip(names, row, strict=True))) for row in rows]


def read_usage(connection: Connection, since: float) -> dict[str, dict[int, TeamUsage]]:
    """The usage of all teams by day, from the day of a time on."""
    rows = connection.execute(
        "SELECT owner, day, requests, dollars FROM team_usage WHERE day >= ?", (_day(since),)
    ).fetchall()
    found: dict[str, dict[int, TeamUsage]] = {}
    for owner, day, requests, dollars in rows:
        found.setdefault(owner, {})[day] = TeamUsage(requests, dollars)
    return found


def read_directory(connection: Connection, salt: bytes, now: float) -> TeamDirectory:
    """The directory as of now."""
    teams = read_teams(connection)
    if not teams:
        return TeamDirectory(salt)
    tokens = {one.hash: one for one in read_tokens(connection) if one.is_valid(now)}
    by_day = read_usage(connection, period_at("month", now)[0])
    usage = {one.owner: _usage_in_period(one, by_day.get(one.owner, {}), now) for one in teams}
    return TeamDirectory(salt, teams, tokens, usage)


def _usage_in_period(team: Team, by_day: Mapping[int, TeamUsage], now: float) -> TeamUsage:
    first = _day(period_at(team.quota.period, now)[0])
    return sum((used for day, used in by_day.items() if day >= first), _NO_USAGE)


def _day(time: float) -> int:
    return int(time // _DAY_SECONDS)


def _to_team(row: Sequence[Any]) -> Team:
    name, owner, created, settings, dollars, requests, period, when_over, days = row
    quota = Quota(dollars, requests, period, when_over)
    return Team(name=name, owner=owner, created=created, settings=settings, quota=quota, days=days)


def write_team(connection: Connection, team: Team) -> None:
    """Write a team; one of the same owner is replaced."""
    connection.execute("DELETE FROM teams WHERE owner = ?", (team.owner,))
    quota = asdict(team.quota)
    row = (team.name, team.owner, team.created, team.settings, *quota.values(), team.days)
    connection.execute(
        f"INSERT INTO teams ({_TEAM_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - our own
        row,
    )


def delete_team(connection: Connection, owner: str) -> None:
    """Delete a team with its tokens and its usage; what it owns in the store stays."""
    for table in ("team_tokens", "team_usage", "teams"):
        connection.execute(f"DELETE FROM {table} WHERE owner = ?", (owner,))  # noqa: S608 - our own


def write_token(connection: Connection, token: TeamToken) -> None:
    """Write a new token."""
    connection.execute(
        f"INSERT INTO team_tokens ({_TOKEN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - our own
        tuple(asdict(token).values()),
    )


def write_revoked(connection: Connection, id: str, now: float) -> bool:
    """Revoke a token; False: there is none of this id that is not revoked already."""
    done = connection.execute(
        "UPDATE team_tokens SET revoked = ? WHERE id = ? AND revoked IS NULL", (now, id)
    )
    return done.rowcount > 0


def write_used(connection: Connection, id: str, time: float) -> None:
    """Write when a token was last used."""
    connection.execute(
        "UPDATE team_tokens SET used = ? WHERE id = ? AND (used IS NULL OR used < ?)",
        (time, id, time),
    )


def add_usage(connection: Connection, records: Iterable[RequestRecord]) -> None:
    """Count the requests of teams, in the transaction that writes their records."""
    sums: dict[tuple[str, int], TeamUsage] = {}
    for record in records:
        if is_team(record.owner):
            key = record.owner, _day(record.time)
            sums[key] = sums.get(key, _NO_USAGE) + TeamUsage(1, _paid(record))
    for (owner, day), used in sorted(sums.items()):
        connection.execute(
            "INSERT INTO team_usage (owner, day, requests, dollars) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (owner, day) DO UPDATE SET"
            " requests = team_usage.requests + excluded.requests,"
            " dollars = team_usage.dollars + excluded.dollars",
            (owner, day, used.requests, used.dollars),
        )


def _paid(record: RequestRecord) -> float:
    """The cost of a request; an observed one was sent as it came."""
    cost = record.cost_before if record.mode == "observed" else record.cost_after
    return cost or 0.0


def find_expired_of_team(connection: Connection, now: float) -> int | None:
    """A conversation that is older than the days of its team; None: there is none."""
    rows = connection.execute("SELECT owner, days FROM teams WHERE days IS NOT NULL").fetchall()
    for owner, days in rows:
        found = connection.execute(
            "SELECT id FROM conversations WHERE owner = ? AND last < ? LIMIT 1",
            (owner, now - days * _DAY_SECONDS),
        ).fetchall()
        if found:
            return found[0][0]
    return None


# --- the teams of a store ----------------------------------------------------------------------


class TeamStore(Protocol):
    """The teams of a store, for the proxy and the command line. Raises StoreUnavailable."""

    def directory(self, now: float) -> TeamDirectory:
        """Return all teams with valid tokens and usage."""
        ...

    def note_used(self, id: str, time: float) -> None:
        """Write when a token was last used."""
        ...


class Teams:
    """The teams of a store on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def directory(self, now: float) -> TeamDirectory:
        """Return all teams with valid tokens and usage."""
        salt = self._database.salt()
        return self._database.read(lambda c: read_directory(c, salt, now))

    def all(self) -> tuple[Team, ...]:
        """Return all teams, by name."""
        return self._database.read(read_teams)

    def tokens(self) -> list[TeamToken]:
        """Return all tokens, also revoked and expired ones, the oldest first."""
        return self._database.read(read_tokens)

    def get(self, name: str) -> Team:
        """Return the team of this name; raises TeamError if there is none."""
        found = next((one for one in self.all() if one.name == name), None)
        if found is None:
            raise TeamError(f"There is no team {name!r:.60}; respool team list shows all.")
        return found

    def add(self, team: Team) -> None:
        """Add a team; raises TeamError if there is one of its name."""

        def work(connection: Connection) -> bool:
            if any(one.name == team.name for one in read_teams(connection)):
                return False
            write_team(connection, team)
            return True

        if not self._database.write(work):
            raise TeamError(f"There is a team {team.name!r} already; respool team set changes it.")

    def change(self, name: str, **given: Any) -> Team:
        """Change a team; raises TeamError if there is none of this name."""
        team = checked_team(replace(self.get(name), **given))
        self._database.write(lambda c: write_team(c, team))
        return team

    def remove(self, name: str) -> Team:
        """Remove a team with its tokens; what it owns in the store stays under its owner name."""
        team = self.get(name)
        self._database.write(lambda c: delete_team(c, team.owner))
        return team

    def issue(self, name: str, now: float, expires: float | None = None) -> tuple[TeamToken, str]:
        """Make a token of a team; return what is stored, and the token, which is not."""
        team, secret = self.get(name), new_token()
        token = TeamToken(
            id=secrets.token_hex(_ID_BYTES),
            owner=team.owner,
            hash=hash_token(secret, self._database.salt()),
            created=now,
            expires=expires,
        )
        self._database.write(lambda c: write_token(c, token))
        return token, secret

    def revoke(self, id: str, now: float) -> bool:
        """Revoke a token; False: there is no valid one of this id."""
        return self._database.write(lambda c: write_revoked(c, id, now))

    def note_used(self, id: str, time: float) -> None:
        """Write when a token was last used."""
        self._database.write(lambda c: write_used(c, id, time))


__all__ = [
    "OWNER_PREFIX",
    "Quota",
    "QuotaExceeded",
    "Team",
    "TeamDirectory",
    "TeamError",
    "TeamStore",
    "TeamToken",
    "TeamUsage",
    "Teams",
    "team_policy",
]
