"""A proxy with its dashboard, and traffic through it, for synchronous tests."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import respool
from respool.proxy.app import build_app
from respool.proxy.log import log_nothing
from respool.proxy.server import serving
from respool.proxy.server_options import (
    CompactionOptions,
    HoldoutOptions,
    ServerOptions,
    TransferLimits,
)
from respool.store import SQLiteStore
from tests.proxy.sockets import ReceivedRequest, Reply, all_to, ask, post, upstream
from tests.support.formats import Exchange, request

EAGER_POLICY = respool.Policy(
    cap_chars=500,
    eager=True,
    reevaluate_tokens=1,
    reevaluate_ratio=0.0,
    passes=("cap_results",),
    keep_exchanges=0,
)
KEY = "sk-ant-a-key-that-nobody-may-see"
MODEL = "claude-sonnet-4-5"
LONG = "".join(f"line {n} of a long output\n" for n in range(200))


@dataclass
class Dashboarded:
    """A proxy with a dashboard, and what stands behind it."""

    port: int
    store: SQLiteStore
    loop: asyncio.AbstractEventLoop  # in which it serves
    received: list[ReceivedRequest]
    statuses: list[int] = field(default_factory=list)  # of the next answers; then 200
    sent: int = 0
    prefix: str = ""  # what stands before paths: a token

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}{self.prefix}/"

    def send(
        self,
        *steps: list[Exchange],
        task: str = "go on",
        model: str = MODEL,
        headers: tuple[str, ...] = (),
    ) -> Any:
        """Send one request of a conversation; what is recorded of it can then be read."""
        said = {**request("anthropic", task, *steps), "model": model}
        lines = (f"x-api-key: {KEY}", *headers)
        raw = post(f"{self.prefix}/v1/messages", json.dumps(said).encode(), *lines)
        reply = self.raw(raw)
        self.sent += 1
        self.recorded()
        return reply

    def talk(self, steps: int, *, name: str = "make", **given: Any) -> list[list[Exchange]]:
        """A conversation that grows by a step a request."""
        made = [
            [Exchange(f"{name} {n} {LONG}", id=f"call_{n}", args={"command": f"{name} {n}"})]
            for n in range(steps)
        ]
        for end in range(1, steps + 1):
            self.send(*made[:end], task=f"go on with {name}", **given)
        return made

    def recorded(self) -> None:
        """Wait until all that went through is written down; it is handed over aside."""
        for _ in range(200):
            if self.store.flush(1.0) and self._count() >= self.sent:
                return
            time.sleep(0.01)
        raise AssertionError("a request was not written down")

    def _count(self) -> int:
        totals = self.store.totals(None, since=0.0, until=4e9, step=4e9)
        return sum(total.requests for total in totals)

    def raw(self, data: bytes) -> Reply:
        """Send bytes, and read what comes."""
        asking = asyncio.run_coroutine_threadsafe(ask(self.port, data), self.loop)
        return asking.result(20)

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Get one of respool's own paths, as the local owner does."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", f"{self.prefix}{path}", headers=named)
        answer = connection.getresponse()
        found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        connection.close()
        return found

    def data(self, question: str) -> Any:
        """JSON answer of the dashboard's API."""
        status, _, body = self.get(f"/respool/api/{question}")
        assert status == 200, body
        return json.loads(body)


def only(one: Dashboarded) -> list[dict[str, Any]]:
    """The requests of the only conversation."""
    (conversation,) = one.data("conversations")["conversations"]
    return one.data(f"requests?conversation={conversation['name']}")["requests"]


def usage_of(received: ReceivedRequest) -> dict[str, int]:
    """Usage that a provider might report: most of a prompt read from its cache."""
    size = len(received.body) // 4
    return {
        "input_tokens": 50,
        "cache_read_input_tokens": size * 9 // 10,
        "cache_creation_input_tokens": size // 10,
        "output_tokens": 300,
    }


@contextmanager
def dashboarded(
    folder: Path,
    *,
    observe: bool = False,
    token: str | None = None,
    policy: respool.Policy = EAGER_POLICY,
    port: int = 0,
    holdout: HoldoutOptions = HoldoutOptions(),  # noqa: B008 - a frozen value
) -> Iterator[Dashboarded]:
    """A proxy with its dashboard, in a thread of its own, for as long as the block lasts."""
    first: Future[Dashboarded] = Future()
    stop: Future[None] = Future()
    options = CompactionOptions(policy=policy, observe=observe, holdout=holdout)
    serve = _served(folder, options, token, port, first, stop)
    thread = threading.Thread(target=asyncio.run, args=(serve,), daemon=True)
    thread.start()
    try:
        yield first.result(20)
    finally:
        stop.set_result(None)
        thread.join(20)


async def _served(
    folder: Path,
    options: CompactionOptions,
    token: str | None,
    port: int,
    first: Future[Dashboarded],
    stop: Future[None],
) -> None:
    store = SQLiteStore(folder / "respool.db")
    statuses: list[int] = []

    async def script(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        status = statuses.pop(0) if statuses else 200
        answer = {"type": "message", "model": MODEL, "usage": usage_of(received)}
        body = json.dumps(answer).encode()
        head = f"HTTP/1.1 {status} So\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    async with upstream(script) as behind:
        limits = TransferLimits(drain_seconds=1.0)
        config = ServerOptions(port=port, upstreams=all_to(behind.port), limits=limits, token=token)
        async with serving(build_app(config, options, log_nothing, store=store)) as running:
            prefix = f"/respool-token/{token}" if token else ""
            loop = asyncio.get_running_loop()
            first.set_result(
                Dashboarded(running.port, store, loop, behind.received, statuses, prefix=prefix)
            )
            await asyncio.wrap_future(stop)
