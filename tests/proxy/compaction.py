"""A real proxy that compacts, with a real store, between raw sockets."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import respool
from respool.proxy.compactor import Compactor
from respool.proxy.decide import Decider
from respool.proxy.middleware import Decision, ParsedRequest
from respool.proxy.recorder import Recorder
from respool.proxy.server_options import CompactionOptions, TransferLimits
from respool.store import RequestRecord, SQLiteStore
from tests.proxy.sockets import SOON, Reply, Script, Standing, ask, post, proxy, reply_with, until
from tests.store.support import salt_of
from tests.support.formats import Exchange, request, results

EAGER_POLICY = respool.Policy(
    cap_chars=500,
    eager=True,
    reevaluate_tokens=1,
    reevaluate_ratio=0.0,
    passes=("cap_results",),
    keep_exchanges=0,
)
LONG = "".join(f"line {n} of a long output\n" for n in range(200))
STEPS = [[Exchange(f"{n} {LONG}", id=f"call_{n}", args={"command": f"make {n}"})] for n in range(9)]
DEADLINE = 0.4  # seconds, in tests of late decisions; elsewhere no decision is late
PATHS = {
    "anthropic": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "gemini": "/v1beta/models/gemini-2.5-pro:generateContent",
}
KEYS = {"anthropic": "x-api-key: one", "gemini": "x-goog-api-key: one"}


def parsed(
    body: bytes,
    format: Any,
    model: str | None,
    owner: str,
    time: float,
    *,
    counting: bool = False,
    session: str | None = None,
) -> ParsedRequest:
    """A parsed request without headers."""
    return ParsedRequest(
        method="POST",
        path="",
        query="",
        headers=(),
        format=format,
        operation="count" if counting else "generate",
        model=model,
        stream=None,
        body=body,
        owner=owner,
        time=time,
        session=session,
    )


def request_body(format: str, steps: int) -> bytes:
    return json.dumps(request(format, "go on", *STEPS[:steps])).encode()


def answer(status: int, body: object, *headers: str) -> bytes:
    """A complete response of a provider."""
    raw = json.dumps(body).encode()
    head = [f"HTTP/1.1 {status} .", f"Content-Length: {len(raw)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + raw


def refusal(message: str, status: int = 400) -> bytes:
    error = {"type": "invalid_request_error", "message": message}
    return answer(status, {"type": "error", "error": error})


INVALID = refusal("messages.3: something is wrong with it")
OVERFLOW = refusal("prompt is too long: 9000 tokens > 3000 maximum")


def answer_by_body(judge: Callable[[bytes], bytes]) -> Script:
    """Answer each request by its body."""

    async def script(received: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(judge(received.body))

    return script


class Unsteady(Decider):
    """A decider that is late or fails on demand."""

    held: threading.Event | None = None  # decisions wait for it, so long at most
    at_most = SOON
    fault: Exception | None = None

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.running: list[ParsedRequest] = []

    def decide(self, request: ParsedRequest, late: Any = None) -> Decision:
        if self.fault is not None:
            raise self.fault
        self.running.append(request)
        try:
            if self.held is not None:
                self.held.wait(self.at_most)
            return super().decide(request, late)
        finally:
            self.running.remove(request)

    def decide_immediately(self, request: ParsedRequest) -> Decision | None:
        held = self.held is not None or self.fault is not None
        return None if held else super().decide_immediately(request)


@dataclass
class Compacted:
    """A proxy that compacts, with its store and decider."""

    standing: Standing
    store: SQLiteStore
    compactor: Compactor
    decider: Unsteady

    async def ask(self, format: str, steps: int, *headers: str) -> Reply:
        return await self.send(format, request_body(format, steps), *headers)

    async def send(self, format: str, body: bytes, *headers: str, patience: float = SOON) -> Reply:
        key = KEYS.get(format, "authorization: Bearer one")
        return await ask(self.standing.port, post(PATHS[format], body, key, *headers), patience)

    def received(self, format: str, at: int = -1) -> list[str]:
        """The results in a request that the provider received."""
        return results(format, json.loads(self.bodies[at]))

    @property
    def bodies(self) -> list[bytes]:
        return [one.body for one in self.standing.behind.received]

    def shortened(self, format: str, at: int = -1) -> list[bool]:
        return [len(text) < 1_000 for text in self.received(format, at)]

    @asynccontextmanager
    async def late(self, at_most: float = SOON) -> AsyncGenerator[threading.Event]:
        """Delay every decision until the event or the end of the block."""
        options, go = self.compactor._options, threading.Event()
        self.compactor._options = replace(options, deadline=DEADLINE)
        self.decider.held, self.decider.at_most = go, at_most
        try:
            yield go
        finally:
            self.compactor._options, self.decider.held = options, None
            go.set()
            await until(lambda: not self.decider.running)

    async def records(self, count: int) -> list[RequestRecord]:
        """Stored records, once there are so many of them."""
        over = time.monotonic() + SOON
        while time.monotonic() < over:
            await asyncio.sleep(0.02)  # records are written by another thread
            self.store.flush()
            for conversation in self.store.conversations(None):
                found = self.store.requests(conversation.name, None)
                if len(found) >= count:
                    return found
        raise AssertionError("too few records")


def response_header(reply: Reply, name: str) -> str:
    return dict(reply.headers)[name.encode()].decode()


@asynccontextmanager
async def compacting(
    folder: Path,
    script: Script | None = None,
    clock: Callable[[], float] = time.time,
    limits: TransferLimits = TransferLimits(drain_seconds=1.0),  # noqa: B008 - a frozen value
    wait: float = SOON,  # for a slow disk
    salt: bytes | None = None,
    chosen: tuple[str, ...] = (),
    **given: Any,
) -> AsyncGenerator[Compacted]:
    options = CompactionOptions(**{"policy": EAGER_POLICY, "deadline": SOON, **given})
    store = SQLiteStore(folder / "respool.db", wait=wait, salt=salt)
    decider = Unsteady(
        options.policy,
        store,
        observe=options.observe,
        shared_store=options.shared_store,
        text_formats=options.text_formats,
    )
    observer = None
    if options.holdout.share:
        observer = Decider(options.policy, store, observe=True, shared_store=options.shared_store)
    compactor = Compactor(
        decider, Recorder(store), options, salt=salt_of(store), clock=clock, observer=observer
    )
    script = script or reply_with(answer(200, {}))
    async with proxy(script, compactor, limits=limits, chosen=chosen) as standing:
        yield Compacted(standing, store, compactor, decider)


def drive(folder: Path, act: Callable[[Compacted], Awaitable[None]], **given: Any) -> None:
    async def run() -> None:
        async with compacting(folder, **given) as standing:
            await act(standing)

    asyncio.run(asyncio.wait_for(run(), 60))
