"""A proxy with teams, between raw sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from respool import Policy
from respool.proxy import access
from respool.proxy.app import build_app
from respool.proxy.log import LogEntry
from respool.proxy.server import serving
from respool.proxy.server_options import CompactionOptions, ServerOptions, TransferLimits
from respool.store import SQLiteStore
from respool.store.teams import Team, new_team
from tests.proxy.compaction import EAGER_POLICY, PATHS, request_body
from tests.proxy.sockets import Reply, Script, Upstream, all_to, ask, get, post, reply_ok, upstream

ADMIN = "the-administrator-token"
KEY = "x-api-key: one-key-of-both-teams"


@dataclass
class Teamed:
    """A proxy, its store, and two teams with a token each."""

    port: int
    store: SQLiteStore
    behind: Upstream
    records: list[LogEntry]
    teams: dict[str, Team] = field(default_factory=dict[str, Team])
    tokens: dict[str, str] = field(default_factory=dict[str, str])
    sent: int = 0

    async def send(
        self, team: str, steps: int = 3, *headers: str, body: bytes | None = None
    ) -> Any:
        """A request of a team, once it is recorded."""
        raw = request_body("anthropic", steps) if body is None else body
        reply = await ask(
            self.port, post(PATHS["anthropic"], raw, KEY, self.header(team), *headers)
        )
        self.sent += reply.status == 200
        await self.recorded()
        return reply

    async def recorded(self) -> None:
        for _ in range(500):
            self.store.flush()
            totals = self.store.totals(None, since=0.0, until=4e9, step=4e9)
            if sum(one.requests for one in totals) >= self.sent:
                return
            await asyncio.sleep(0.02)
        raise AssertionError("a request was not recorded")

    async def get(self, team: str | None, path: str, *headers: str) -> Reply:
        """One of respool's own pages as a team, or as the administrator."""
        return await ask(self.port, get(path, self.header(team), *headers))

    def header(self, team: str | None) -> str:
        return f"x-respool-token: {ADMIN if team is None else self.tokens[team]}"

    def owner(self, team: str) -> str:
        return self.teams[team].owner


@asynccontextmanager
async def teamed(
    folder: Path,
    *,
    token: str | None = ADMIN,
    policy: Policy = EAGER_POLICY,
    script: Script = reply_ok,
    teams: dict[str, dict[str, Any]] | None = None,
    store: SQLiteStore | None = None,
) -> AsyncGenerator[Teamed]:
    """A proxy with the teams `one` and `two`, or with these."""
    path = folder / "respool.db"
    store = store or SQLiteStore(path)
    records: list[LogEntry] = []
    made, tokens = dict[str, Team](), dict[str, str]()
    for name, fields in ({"one": {}, "two": {}} if teams is None else teams).items():
        made[name] = new_team(name, time.time(), **fields)
        store.teams.add(made[name])
        tokens[name] = store.teams.issue(name, time.time())[1]
    async with AsyncExitStack() as stack:
        behind = await stack.enter_async_context(upstream(script))
        limits = TransferLimits(drain_seconds=1.0)
        server = ServerOptions(port=0, upstreams=all_to(behind.port), token=token, limits=limits)
        options = CompactionOptions(policy=policy, deadline=20.0)
        app = build_app(server, options, records.append, store=store)
        running = await stack.enter_async_context(serving(app))
        yield Teamed(running.port, store, behind, records, made, tokens)


def drive(folder: Path, act: Callable[[Teamed], Awaitable[None]], **given: Any) -> None:
    async def run() -> None:
        async with teamed(folder, **given) as one:
            await act(one)

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the teams again for every request."""
    monkeypatch.setattr(access, "_FRESH_SECONDS", 0.0)
    monkeypatch.setattr(access, "_STALE_SECONDS", 0.0)
