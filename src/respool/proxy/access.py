"""Access to the proxy: the team of a request's token, and its quota."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

import msgspec

from ..errors import RespoolError
from ..store.teams import QuotaExceeded, Team, TeamDirectory, TeamStore, TeamToken
from .asgi import ProxyError, Scope
from .auth import Admission, is_team_token, missing_token
from .compactor import Executor

_FRESH_SECONDS: Final = 1.0  # age from which the directory is read again, beside the request
_STALE_SECONDS: Final = 3.0  # age from which a request waits for that
_WAIT_SECONDS: Final = 1.0  # for a store that hangs; then the directory that is known counts
_MAX_AGE_SECONDS: Final = 3_600.0  # of a directory while the store cannot be read
_USED_SECONDS: Final = 3_600.0  # the precision of a token's last use


class Grant(msgspec.Struct, frozen=True):
    """The team that a request is admitted for, and its quota."""

    team: Team | None = None  # None: the administrator, or anybody where no token is asked for
    by_token: bool = False
    exceeded: QuotaExceeded | None = None  # the quota that its team has used up


GRANT: Final = "respool.grant"  # in the scope of respool's own pages
NO_GRANT: Final = Grant()


def grant_in(scope: Scope) -> Grant:
    """The grant of a request to respool's own pages."""
    return scope.get(GRANT, NO_GRANT)


class Gate:
    """Admits requests by the administrator's token or a team's.

    Teams are read from the store, which replicas share, and are at most a few seconds old. While
    the store cannot be read, the last known teams count for an hour.
    """

    def __init__(
        self,
        token: str | None,
        teams: TeamStore | None = None,
        *,
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._token = token
        self._teams = teams
        self._clock, self._elapsed = clock, elapsed
        self._known: TeamDirectory | None = None
        self._has_seen_teams = False  # then no store without teams, perhaps a new one, opens it
        self._loaded = self._asked = float("-inf")
        self._loading: asyncio.Task[None] | None = None
        self._in_flight = Counter[str]()  # requests by team
        self._noted: dict[str, float] = {}  # by token: the hour of the last use that was written
        self._writing: set[asyncio.Task[Any]] = set()
        # A thread of its own: however many pages are asked for, a revoked token ends in time.
        self._executor = Executor(1, "respool-teams")

    @property
    def has_teams(self) -> bool:
        """True if teams are, or were, defined, as far as is known."""
        return self._has_seen_teams

    def is_administrator(self, admission: Admission) -> bool:
        """True if a request has the administrator's token."""
        token = self._token
        return token is not None and hmac.compare_digest(
            admission.token.encode("utf-8", "surrogatepass"), token.encode()
        )

    async def admit(self, admission: Admission, *, to_page: bool = False) -> Grant:
        """The grant of a request; raises ProxyError for one without a valid token.

        Before the teams were read once, requests pass. A page, which shows what all teams have,
        waits until they are read or cannot be.
        """
        if self.is_administrator(admission):
            return Grant(by_token=True)
        directory = await self._directory()
        if directory is None and to_page:
            directory = await self._read_now()
        if directory is None:
            return self._admit_without_directory(admission)
        if not directory.teams:
            if self._token is not None or self._has_seen_teams:
                raise missing_token()
            return Grant()
        now = self._clock()
        found = directory.find(admission.token, now)
        if found is None:
            raise missing_token()
        team, token = found
        self._note_used(token, now)
        exceeded = directory.exceeded(team, now, self._in_flight[team.owner])
        return Grant(team, by_token=True, exceeded=exceeded)

    @contextmanager
    def in_flight(self, team: Team) -> Generator[None]:
        """Count a request of a team for its quota, until it is recorded."""
        self._in_flight[team.owner] += 1
        try:
            yield
        finally:
            self._in_flight[team.owner] -= 1
            if not self._in_flight[team.owner]:
                del self._in_flight[team.owner]

    def _admit_without_directory(self, admission: Admission) -> Grant:
        """The grant of a request while the teams are unknown.

        A server without tokens answers it; where there was a token or a team, it is refused.
        """
        if is_team_token(admission.token):
            raise ProxyError(503, "store", "the teams cannot be read now.")
        if self._token is not None or self._has_seen_teams:
            raise missing_token()
        return Grant()

    async def _directory(self) -> TeamDirectory | None:
        """The teams; None: they were never read, or too long ago."""
        if self._teams is None:
            return TeamDirectory()
        now = self._elapsed()
        if now - self._asked >= _FRESH_SECONDS and self._loading is None:
            self._start_loading(self._teams)
        if now - self._loaded >= _STALE_SECONDS and self._loading is not None:
            await asyncio.wait({self._loading}, timeout=_WAIT_SECONDS)
        return self._recent()

    async def _read_now(self) -> TeamDirectory | None:
        """The teams as the store has them now; None: it cannot be read."""
        for _ in range(2):  # a read that runs already may have begun long ago
            if (found := self._recent()) is not None or self._teams is None:
                return found
            await asyncio.wait({self._loading or self._start_loading(self._teams)})
        return self._recent()

    def _recent(self) -> TeamDirectory | None:
        """The teams as they were read last; None: they never were, or too long ago."""
        return self._known if self._elapsed() - self._loaded < _MAX_AGE_SECONDS else None

    def _start_loading(self, teams: TeamStore) -> asyncio.Task[None]:
        self._asked = self._elapsed()
        self._loading = asyncio.create_task(self._load(teams))
        return self._loading

    async def _load(self, teams: TeamStore) -> None:
        asked = self._asked
        try:
            read = partial(teams.directory, self._clock())
            self._known = known = await asyncio.wrap_future(self._executor.submit(read))
            self._loaded = asked
            self._has_seen_teams |= bool(known.teams)
        except RespoolError:
            pass  # tried again with a later request
        finally:
            self._loading = None

    def _note_used(self, token: TeamToken, now: float) -> None:
        """Write the hour of a token's use, once."""
        hour = now // _USED_SECONDS * _USED_SECONDS
        if self._teams is None or max(token.used or 0.0, self._noted.get(token.id, 0.0)) >= hour:
            return
        self._noted[token.id] = hour
        task = asyncio.create_task(self._write_used(self._teams, token.id, hour))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write_used(self, teams: TeamStore, id: str, hour: float) -> None:
        with suppress(RespoolError):  # it is only shown
            await asyncio.to_thread(teams.note_used, id, hour)

    async def close(self) -> None:
        """Wait for running reads and writes of the store."""
        running = {*self._writing, *([self._loading] if self._loading else [])}
        if running:
            await asyncio.wait(running)
        self._executor.close()


def refuse_over_quota(grant: Grant, now: float) -> None:
    """Refuse a request of a team over its quota, unless the team's requests pass."""
    team, exceeded = grant.team, grant.exceeded
    if team is None or exceeded is None or team.quota.when_over == "pass":
        return
    seconds = max(1, int(exceeded.resets - now) + 1)
    raise ProxyError(
        429,
        "quota",
        exceeded.sentence(team.name),
        # Official clients repeat a request after 429 unless they are told not to.
        headers=((b"retry-after", b"%d" % seconds), (b"x-should-retry", b"false")),
    )
