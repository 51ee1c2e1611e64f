"""`respool serve` with its store in PostgreSQL, also while the server is away."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from respool.store import ServerAddress
from respool.store.postgres import PostgresStore
from tests.proxy.compaction import response_header
from tests.proxy.test_without_store import SOON, recovered, served
from tests.store.postgres_server import PASSWORD, serving

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the server runs on POSIX")


def test_requests_pass_while_the_server_is_away(tmp_path: Path):
    async def act(url: str) -> str:
        async with served(tmp_path / "unused.db", tmp_path, "--store", url) as one:
            for steps in (3, 4):
                assert response_header(await one.ask(steps), "x-respool-sent") == "projection"
                assert one.shortened() == [True] * (steps - 1) + [False]
            postgres.stop()
            for steps in (5, 6):
                reply = await one.ask(steps)
                assert (reply.status, response_header(reply, "x-respool-sent")) == (
                    200,
                    "known-edits",
                )
                assert one.shortened() == [True] * 3 + [False] * (steps - 3)
            assert (await one.look("/healthz"))["store"] == "unreachable"
            overview = await one.look("/respool/api/overview")
            assert "the server cannot be reached" in overview["store"]["trouble"]
            postgres.start()
            until = time.monotonic() + SOON
            while (await one.look("/healthz"))["store"] != "ok":  # after the pause of the store
                assert time.monotonic() < until
                await asyncio.sleep(0.1)
            for steps in (7, 8, 9):
                await asyncio.sleep(1.5)  # longer than the proxy's own pause
                await one.ask(steps)
                if one.shortened() == [True] * (steps - 1) + [False]:
                    break
            else:
                raise AssertionError("no new edit was made")
            health = await one.look("/healthz")
            assert (health["status"], health["store"]) == ("ok", "ok")
            return one.ended() + str(overview)

    with serving() as postgres:
        url = postgres.new_database()
        shown = asyncio.run(asyncio.wait_for(act(url), 90))
        assert "No new edits are made until then." in shown
        assert "The store can be used again; new edits are made." in shown
        assert PASSWORD not in shown
        store = PostgresStore(ServerAddress(url))
        (total,) = store.totals(None, since=0, until=4e9, step=4e9)
        assert total.requests >= 5  # those of the time without a server too
        store.close()


def test_it_starts_without_the_server(tmp_path: Path):
    async def act(url: str) -> None:
        async with served(tmp_path / "unused.db", tmp_path, "--store", url) as one:
            for steps in (3, 4):
                reply = await one.ask(steps)
                assert (reply.status, response_header(reply, "x-respool-saved")) == (200, "0")
            postgres.start()
            await recovered(one)

    with serving() as postgres:
        url = postgres.new_database()
        postgres.stop()
        asyncio.run(asyncio.wait_for(act(url), 90))
