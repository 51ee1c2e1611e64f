"""The two ends of the proxy's bench: an upstream that answers at once, and busy clients.

Both speak HTTP over raw sockets, so that what is measured is what stands between them.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence
from functools import partial

EVENT = b'event: ping\r\ndata: {"type": "ping"}\r\n\r\n'
ANSWER = b'{"id":"msg_1","type":"message","content":[{"type":"text","text":"' + b"x" * 900 + b'"}]}'
WHOLE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(ANSWER)
) + ANSWER
STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
) + b"".join(b"%x\r\n%s\r\n" % (len(EVENT), EVENT) for _ in range(3))


class _Framed(asyncio.Protocol):
    """One end of a connection, told of each whole message that the other end sends."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._head = b""
        self._left = 0  # bytes of the body that are still to come

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._left:
            self._head += data
            head, found, body = self._head.partition(b"\r\n\r\n")
            if not found:
                return
            lowered = head.lower()
            at = lowered.find(b"content-length:")
            self._left = int(lowered[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            data = body
        self._left -= len(data)
        if self._left <= 0:
            head, self._head, self._left = self._head, b"", 0
            self.whole(head)

    def whole(self, head: bytes) -> None:
        raise NotImplementedError


class _Upstream(_Framed):
    def whole(self, head: bytes) -> None:
        assert self.transport is not None
        streams = b"x-stream" in head.lower()
        self.transport.write(STREAM + b"0\r\n\r\n" if streams else WHOLE)


async def upstream() -> tuple[asyncio.Server, int]:
    """An upstream that answers everything at once, and its port."""
    server = await asyncio.get_running_loop().create_server(_Upstream, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


def request(port: int, size: int, stream: bool = False) -> bytes:
    """A request of this size."""
    body = b'{"model":"m","messages":[{"role":"user","content":"' + b"x" * (size - 53) + b'"}]}'
    return _post(port, body, b"X-Stream: 1\r\n" if stream else b"")


class Growing:
    """An agent's conversation: with every request there is one more turn in it."""

    def __init__(self, name: str, size: int, seed: int = 1) -> None:
        self._chance = random.Random(f"{name} {seed}")
        self._turns = 0
        self._body = (
            b'{"model":"claude-opus-4-7","max_tokens":99,"tools":[{"name":"shell","description":"",'
            b'"input_schema":{"type":"object"}}],"messages":[{"role":"user","content":"%s"}'
            % name.encode()
        )
        while len(self._body) < size:
            self.grow()

    def grow(self) -> None:
        """One more call, and its result of about 3 KB."""
        self._turns += 1
        words = [f"name_{self._chance.randrange(5_000)}" for _ in range(240)]
        lines = (" ".join(words[at : at + 6]) for at in range(0, len(words), 6))
        call = {"type": "tool_use", "id": f"call_{self._turns}", "name": "shell"}
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": "\n".join(lines)}
        turn = [
            {"role": "assistant", "content": [{**call, "input": {"command": words[0]}}]},
            {"role": "user", "content": [result]},
        ]
        self._body += b"," + json.dumps(turn, separators=(",", ":")).encode()[1:-1]

    def request(self, port: int) -> bytes:
        """The request as it stands."""
        return _post(port, self._body + b"]}", b"")


def _post(port: int, body: bytes, extra: bytes) -> bytes:
    return (
        b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX-Api-Key: k\r\n%s"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (port, extra, len(body))
    ) + body


class _Busy(_Framed):
    """A client that asks again as soon as it is answered."""

    def __init__(self, ask: Callable[[], bytes], done: list[float]) -> None:
        super().__init__()
        self._ask, self._done = ask, done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        transport.write(self._ask())  # type: ignore[attr-defined]

    def whole(self, head: bytes) -> None:
        assert head.startswith(b"HTTP/1.1 200"), head[:200]
        self._done.append(time.perf_counter())
        assert self.transport is not None
        self.transport.write(self._ask())


def asking(port: int, conversation: Growing) -> Callable[[], bytes]:
    """What a client of a growing conversation sends next."""

    def ask() -> bytes:
        conversation.grow()
        return conversation.request(port)

    return ask


async def warmed(port: int, conversations: Sequence[Growing]) -> None:
    """Send each conversation once, one after another."""
    for one in conversations:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(one.request(port))
        await reader.readuntil(b"\r\n\r\n")
        writer.close()


async def per_second(
    port: int, size: int, seconds: float, clients: int = 16,
    conversations: Sequence[Growing] = (),
) -> float:  # fmt: skip
    """Requests answered in a second; those of the first fifth of the time don't count."""
    done: list[float] = []
    asked = request(port, size)
    loop = asyncio.get_running_loop()
    start = time.perf_counter()
    asks = [asking(port, one) for one in conversations] or [lambda: asked] * clients
    made = [
        (await loop.create_connection(partial(_Busy, ask, done), "127.0.0.1", port))[0]
        for ask in asks
    ]
    await asyncio.sleep(seconds)
    for transport in made:
        transport.abort()
    begun = start + seconds / 5
    counted = [moment for moment in done if moment >= begun]
    return len(counted) / (counted[-1] - begun) if counted else 0.0


async def first_byte_ms(port: int, size: int, times: int = 150) -> float:
    """The median time until the first event of a stream is there, one request after another."""
    asked = request(port, size, stream=True)
    taken: list[float] = []
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(times):
        start = time.perf_counter()
        writer.write(asked)
        await reader.readuntil(b"event: ping")
        taken.append(time.perf_counter() - start)
        await reader.readuntil(b"\r\n0\r\n\r\n")
    writer.close()
    return sorted(taken)[times // 2] * 1000
