"""`respool mcp --url`: agents of two teams at a real `respool serve`, by the SDK's own client."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from respool.markers import reference
from respool.store import StoreLocation
from tests.late import late
from tests.proxy.program import KEY, provider
from tests.proxy.replicas import EAGER, SOON, Replica, free_ports
from tests.store.conftest import location, migrated, postgres_server, postgres_url
from tests.store.support import SOURCE
from tests.support.formats import Exchange, request

__all__ = ["location", "migrated", "postgres_server", "postgres_url"]  # fixtures
ADMIN = "the-administrator-token"
EXPAND, HISTORY, SEARCH = "respool_expand", "respool_history", "respool_search"
BRIEF = "respool_brief"
LINES = "".join(f"line {number} of what the tool printed\n" for number in range(200))
TEXTS = {"one": f"zanzibar of the first team\n{LINES}", "two": f"yokohama of the second\n{LINES}"}
REFS = {team: reference(text) for team, text in TEXTS.items()}
NOBODY = "a" * 20
assert EAGER["passes"] == ("cap_results",)  # by which the proxy shortens the texts


def respool(store: str, *words: str) -> str:
    """A command on the server's machine, beside its store."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "RESPOOL_STORE": store}
    done = subprocess.run(
        [sys.executable, "-m", "respool", *words],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


@dataclass
class Shared:
    """A proxy in a process of its own, with a token of each team."""

    port: int
    store: str
    home: Path
    tokens: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def work(self, team: str) -> None:
        """A team's agent sends a conversation whose results are shortened."""
        steps: list[Any] = ["go", [Exchange(TEXTS[team], id="a")], [Exchange("short", id="b")]]
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SOON)
        path = f"/respool-token/{self.tokens[team]}/v1/messages"
        with closing(connection):
            for count in (2, 3):
                body = json.dumps(request("anthropic", *steps[:count])).encode()
                connection.request("POST", path, body, KEY)
                with connection.getresponse() as response:
                    response.read()
                    assert response.status == 200

    @asynccontextmanager
    async def agent(self, token: str) -> AsyncGenerator[Any]:
        """The SDK's client of `respool mcp --url`; its machine has neither store nor transcript."""
        environment = {**os.environ, "HOME": str(self.home), "PYTHONPATH": str(SOURCE)}
        environment |= {"RESPOOL_TOKEN": token, "RESPOOL_STORE": str(self.home / "none.db")}
        server = late("mcp").StdioServerParameters(
            command=sys.executable,
            args=["-m", "respool", "mcp", "--url", self.url],
            env=environment,
            cwd=self.home,
        )
        # By default the stream that stood there at the first import: that of a command in a test.
        transport = late("mcp.client.stdio").stdio_client(server, errlog=sys.__stderr__)
        async with late("mcp").Client(transport, read_timeout_seconds=60) as client:
            yield client


async def said(client: Any, tool: str, **asked: Any) -> tuple[str, bool]:
    result = await client.call_tool(tool, asked)
    return "\n".join(block.text for block in result.content), result.is_error


async def recorded(client: Any) -> None:
    """Wait until both requests of the agent's team are written."""
    for _ in range(100):
        if "  2 requests  " in (await said(client, HISTORY))[0]:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the requests were not recorded")


async def refused(client: Any, tool: str, **asked: Any) -> None:
    """Wait until the proxy has read that the token was revoked."""
    until = time.monotonic() + SOON
    while not (await said(client, tool, **asked))[1]:
        assert time.monotonic() < until
        await asyncio.sleep(0.1)


@pytest.fixture
def shared(location: StoreLocation, tmp_path: Path) -> Iterator[Shared]:
    store = getattr(location, "url", str(location))
    (port,) = free_ports(1)
    home = tmp_path / "home of the agent"
    home.mkdir()
    one = Shared(port, store, home)
    for team in TEXTS:
        respool(store, "team", "add", team)
        printed = respool(store, "team", "token", team)
        (one.tokens[team],) = (word for word in printed.split() if word.startswith("rst_"))
    with provider() as behind:
        replica = Replica(port, behind.port, store, "--shared-store")
        replica.set("RESPOOL_TOKEN", ADMIN)
        try:
            replica.start()
            for team in TEXTS:
                one.work(team)
            yield one
            replica.end()
        finally:
            replica.close()


def test_an_agent_reads_what_its_team_has_and_no_other(shared: Shared):
    async def own(client: Any) -> None:
        """What the first team's agent is told."""
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == [EXPAND, HISTORY, SEARCH, BRIEF]
        await recorded(client)
        assert await said(client, EXPAND, ref=REFS["one"]) == (TEXTS["one"], False)
        line, _ = await said(client, EXPAND, ref=REFS["one"], lines="1")
        assert line.startswith("zanzibar of the first team\n")
        found, is_error = await said(client, SEARCH, pattern="zanzibar")
        assert (f"ref {REFS['one']}" in found, is_error) == (True, False)
        latest, _ = await said(client, HISTORY, conversation="latest")
        assert f"ref {REFS['one']}" in latest
        assert "These are the last 2 of 2 requests" in latest
        local, is_error = await said(client, BRIEF)
        assert is_error
        assert "No transcript of an agent that works in this folder" in local

    async def other(client: Any, name: str) -> None:
        """What the second team's agent is told of the first's, and of what nobody has."""
        await recorded(client)
        for known, unknown, tool, key in (
            (REFS["one"], NOBODY, EXPAND, "ref"),
            (REFS["one"][:8], NOBODY[:8], EXPAND, "ref"),
            ("zanzibar", "qqqqqqqq", SEARCH, "pattern"),
            (name, "b" * len(name), HISTORY, "conversation"),
            (name[:6], "b" * 6, HISTORY, "conversation"),
        ):
            answer, is_error = await said(client, tool, **{key: known})
            expected, was_error = await said(client, tool, **{key: unknown})
            assert answer.replace(known, unknown) == expected
            assert is_error == was_error
        within = [
            await said(client, SEARCH, pattern="first", conversation=one)
            for one in (name, "b" * len(name), name[:6])
        ]
        assert within[0] == within[1] == within[2]
        latest, _ = await said(client, HISTORY, conversation="latest")
        assert f"ref {REFS['two']}" in latest
        assert REFS["one"] not in latest
        everything, _ = await said(client, SEARCH, pattern="line of")
        assert (REFS["two"] in everything, REFS["one"] in everything) == (True, False)

    async def run() -> None:
        async with shared.agent(shared.tokens["one"]) as client:
            await own(client)
            listed, _ = await said(client, HISTORY)
            name = listed.split()[0]
        async with shared.agent(shared.tokens["two"]) as client:
            await other(client, name)
            answered = await said(client, EXPAND, ref=REFS["two"])
            assert answered == (TEXTS["two"], False)
            (id,) = (
                token["id"]
                for team in json.loads(respool(shared.store, "team", "list", "--json"))
                for token in team["tokens"]
                if team["name"] == "two"
            )
            respool(shared.store, "team", "revoke", id)
            await refused(client, EXPAND, ref=REFS["two"])
            revoked = [
                await said(client, tool, **asked)
                for tool, asked in (
                    (EXPAND, {"ref": REFS["two"]}),
                    (SEARCH, {"pattern": "yokohama"}),
                    (HISTORY, {"conversation": "latest"}),
                )
            ]
        async with shared.agent("rst_" + "0" * 40) as client:
            unknown = await said(client, EXPAND, ref=REFS["two"])
        assert [*revoked, unknown] == [unknown] * 4
        assert unknown[1]
        assert "does not accept the token in RESPOOL_TOKEN" in unknown[0]
        assert shared.tokens["two"] not in unknown[0]
        async with shared.agent(ADMIN) as client:
            for team, text in TEXTS.items():
                assert await said(client, EXPAND, ref=REFS[team]) == (text, False)

    asyncio.run(asyncio.wait_for(run(), 150))
    assert not (shared.home / "none.db").exists()  # no store is opened where the agent runs
