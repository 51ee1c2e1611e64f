"""Load clients of the proxy's bench, and the outcomes of their requests.

They speak HTTP over raw sockets, so that what is measured is what stands behind them.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from statistics import median
from typing import Any

import msgspec

from bench.proxy_upstream import HERE, Framed
from tests.laws.sessions import exchange

KEY = f"sk-{secrets.token_hex(32)}"  # of this run alone: LiteLLM's proxy starts with no weaker one
BROKEN = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)
FIRST = b"event: message_start"


def request(port: int, size: int, stream: bool = False) -> bytes:
    """A request of this size."""
    head = b'{"model":"claude-opus-4-7","max_tokens":99,"stream":%s,"messages":'
    before = head % json.dumps(stream).encode() + b'[{"role":"user","content":"'
    after = b'"}]}'
    return _post(port, before + b"x" * (size - len(before) - len(after)) + after)


class Growing:
    """An agent's conversation: with every request there is one more turn in it.

    Like Claude Code's, it has a cache breakpoint on the last message, and text as tools print it.
    """

    def __init__(self, name: str, size: int, seed: int = 1) -> None:
        self._chance = random.Random(f"{name} {seed}")
        self._turns = 0
        self._last = [{"role": "user", "content": [{"type": "text", "text": name}]}]
        self._body = (
            b'{"model":"claude-opus-4-7","max_tokens":99,"tools":[{"name":"Bash","description":"",'
            b'"input_schema":{"type":"object"}}],"messages":['
        )
        while len(self._body) < size:
            self.grow()

    def grow(self) -> None:
        """One more call, and its result of about 2,400 characters."""
        self._turns += 1
        self._body += _spelled(self._last) + b","
        self._last = exchange("anthropic", self._turns, self._chance, 2_400)

    def request(self, port: int) -> bytes:
        """Return the current request."""
        *before, last = self._last
        *blocks, block = last["content"]
        marked = {**block, "cache_control": {"type": "ephemeral"}}
        turn = [*before, {**last, "content": [*blocks, marked]}]
        return _post(port, self._body + _spelled(turn) + b"]}")


def _spelled(messages: list[Any]) -> bytes:
    return json.dumps(messages, separators=(",", ":")).encode()[1:-1]


def _post(port: int, body: bytes) -> bytes:
    return (
        b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX-Api-Key: %s\r\n"
        b"Anthropic-Version: 2023-06-01\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % (port, KEY.encode(), len(body))
    ) + body


class Round(msgspec.Struct, frozen=True):
    """Outcome of some requests: a figure, the number sent and the number that failed."""

    figure: float | None
    asked: int
    errors: int


class Limits(msgspec.Struct, frozen=True):
    """Limits of a round: seconds, requests and lateness of responses."""

    seconds: float
    requests: int
    late: float = 20.0


class Tally:
    """Progress of a round of requests, shared by its clients."""

    def __init__(self, most: int, clients: int) -> None:
        self.good = self.bad = self.asked = 0
        self.last = 0.0
        self.quiet = asyncio.Event()
        self._most, self._clients = most, clients

    def may_ask(self) -> bool:
        """Count one more request, if there may be one."""
        more = self.asked < self._most
        self.asked += more
        return more

    def answered(self, well: bool) -> None:
        """Count an answer."""
        self.good, self.bad = self.good + well, self.bad + (not well)
        self.last = time.perf_counter()

    def refused(self) -> None:
        """A client could not even connect."""
        self.asked, self.bad = self.asked + 1, self.bad + 1
        self.left()

    def left(self) -> None:
        """A client is gone."""
        self._clients -= 1
        if not self._clients:
            self.quiet.set()

    def end(self) -> None:
        """Stop sending requests."""
        self._most = 0


class Busy(Framed):
    """A client that asks again as soon as it is answered, until it may not."""

    def __init__(self, ask: Callable[[], bytes], tally: Tally) -> None:
        super().__init__()
        self._ask, self._tally = ask, tally
        self._waits = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._next()

    def whole(self, head: bytes, body: bytes) -> None:
        self._waits = False
        self._tally.answered(head.startswith(b"http/1.1 200"))
        self._next(closing=b"\r\nconnection: close" in head)

    def _next(self, closing: bool = False) -> None:
        assert self.transport is not None
        if closing or not self._tally.may_ask():
            self.transport.close()
            return
        self._waits = True
        self.transport.write(self._ask())

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waits:
            self._tally.answered(well=False)
        self._tally.left()


def asking(port: int, conversation: Growing) -> Callable[[], bytes]:
    """Return the next request of a growing conversation."""

    def ask() -> bytes:
        conversation.grow()
        return conversation.request(port)

    return ask


async def per_second(port: int, asks: Sequence[Callable[[], bytes]], limits: Limits) -> Round:
    """Requests answered well in a second, until time or number is over and all are answered."""
    tally = Tally(limits.requests, len(asks))
    loop = asyncio.get_running_loop()
    start = time.perf_counter()
    made: list[asyncio.Transport] = []
    for ask in asks:
        try:
            made.append((await loop.create_connection(partial(Busy, ask, tally), HERE, port))[0])
        except OSError:
            tally.refused()
    await _quiet(tally, limits.seconds)
    tally.end()
    await _quiet(tally, limits.late)
    for transport in made:
        transport.abort()
    await _quiet(tally, limits.late)
    rate = tally.good / (tally.last - start) if tally.good else None
    return Round(rate, tally.asked, tally.bad)


async def _quiet(tally: Tally, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(tally.quiet.wait(), seconds)


async def first_byte_ms(port: int, size: int, limits: Limits) -> Round:
    """The median time until the first event of a stream is there, one request after another."""
    taken: list[float] = []
    asked, link = 0, None
    with suppress(TimeoutError):
        async with asyncio.timeout(limits.late):
            for asked in range(1, limits.requests + 1):  # noqa: B007 - told when time is over
                try:
                    link = link or await asyncio.open_connection(HERE, port)
                    taken.append(await _first_event(*link, request(port, size, stream=True)))
                except BROKEN:
                    link = _closed(link)
    _closed(link)
    return Round(median(taken) * 1000 if taken else None, asked, asked - len(taken))


async def response_ms(
    port: int, conversations: Sequence[Growing], think: float, limits: Limits
) -> list[float]:
    """Milliseconds to each response, where every agent thinks for a while before it asks again."""
    taken: list[float] = []
    until = time.perf_counter() + limits.seconds
    each = limits.requests // len(conversations)

    async def act(conversation: Growing, delay: float) -> None:
        await asyncio.sleep(delay)  # agents do not ask all at once
        reader, writer = await asyncio.open_connection(HERE, port)
        for _ in range(each):
            if time.perf_counter() > until:
                break
            conversation.grow()
            asked = conversation.request(port)
            start = time.perf_counter()
            writer.write(asked)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            at = head.index(b"content-length:") + 15
            await reader.readexactly(int(head[at : head.index(b"\r\n", at)]))
            taken.append(1e3 * (time.perf_counter() - start))
            await asyncio.sleep(think)
        writer.close()

    steps = think / len(conversations)
    await asyncio.gather(*(act(one, at * steps) for at, one in enumerate(conversations)))
    return taken


async def _first_event(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: bytes
) -> float:
    """Seconds until the first event; the stream is read to its end."""
    start = time.perf_counter()
    writer.write(asked)
    if not (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200"):
        raise ConnectionError
    await reader.readuntil(FIRST)
    taken = time.perf_counter() - start
    await reader.readuntil(b"\r\n0\r\n\r\n")
    return taken


def _closed(link: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None) -> None:
    if link:
        link[1].close()


async def warmed(port: int, conversations: Sequence[Growing], limits: Limits) -> None:
    """Send a small request of each kind and each conversation once, one after another."""
    small = [request(port, 1_000, stream) for stream in (False, True)]
    for one in [*small, *(each.request(port) for each in conversations)]:
        with suppress(TimeoutError, *BROKEN):
            async with asyncio.timeout(limits.late):
                reader, writer = await asyncio.open_connection(HERE, port)
                writer.write(one)
                await reader.readuntil(b"\r\n\r\n")
                writer.close()
