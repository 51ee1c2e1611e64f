"""A real proxy between raw sockets: a scripted upstream, and the replies that a client gets."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from respool.proxy.app import App, Endpoint
from respool.proxy.log import LogEntry
from respool.proxy.middleware import Middleware
from respool.proxy.server import RunningServer, serving
from respool.proxy.server_options import ServerOptions, TransferLimits, Upstreams, upstreams_of

SOON = 20.0  # seconds after which a test gives up
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass
class ReceivedRequest:
    """A request as an upstream got it."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def target(self) -> str:
        return self.line.split(" ")[1]

    def named(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]


Script = Callable[[ReceivedRequest, asyncio.StreamWriter], Awaitable[None]]


async def reply_ok(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(OK)


def reply_with(*answers: bytes) -> Script:
    """Send these answers, one to each request, and repeat the last one."""
    left = list(answers)

    async def script(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0) if len(left) > 1 else left[0])

    return script


@dataclass
class Upstream:
    """A server that follows a script, and the requests that it received."""

    script: Script = reply_ok
    received: list[ReceivedRequest] = field(default_factory=list)
    connections: int = 0
    lost: asyncio.Event = field(default_factory=asyncio.Event)  # a connection ended
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                received = await read_request(reader)
                self.received.append(received)
                answering = asyncio.ensure_future(self.script(received, writer))
                gone = asyncio.ensure_future(until(reader.at_eof))
                await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
                gone.cancel()
                if not answering.done():
                    answering.cancel()
                    break
                answering.result()
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.lost.set()
            writer.close()


async def until(true: Callable[[], object]) -> None:
    """Wait for something to become true."""
    while not true():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.01)


async def read_request(reader: asyncio.StreamReader) -> ReceivedRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("utf-8")
    line, *rest = head.removesuffix("\r\n\r\n").split("\r\n")
    headers = [(name, value.strip()) for name, _, value in (one.partition(":") for one in rest)]
    received = ReceivedRequest(line, headers, b"")
    if received.named("transfer-encoding"):
        received.body = await _chunked(reader)
    elif received.named("content-length"):
        received.body = await reader.readexactly(int(received.named("content-length")[0]))
    return received


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body


@asynccontextmanager
async def upstream(
    script: Script = reply_ok, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[Upstream]:
    made = Upstream(script)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, limit=1 << 20, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for writer in made.writers:
            writer.transport.abort()


@dataclass
class Standing:
    """A proxy, its upstream, and its log entries."""

    running: RunningServer
    behind: Upstream
    records: list[LogEntry]

    @property
    def port(self) -> int:
        return self.running.port


@asynccontextmanager
async def proxy(
    script: Script = reply_ok,
    middleware: Middleware | None = None,
    endpoints: Mapping[str, Endpoint] | None = None,
    limits: TransferLimits = TransferLimits(drain_seconds=1.0),  # noqa: B008 - a frozen value
    token: str | None = None,
    chosen: tuple[str, ...] = (),
) -> AsyncGenerator[Standing]:
    """A proxy in front of one upstream for everything, or for what is chosen (`name=…{}…`)."""
    async with upstream(script) as behind:
        records: list[LogEntry] = []
        there = all_to(behind.port)
        if chosen:
            there = upstreams_of([one.format(f"http://127.0.0.1:{behind.port}") for one in chosen])
        options = ServerOptions(port=0, upstreams=there, limits=limits, token=token)
        async with serving(App(options, middleware, endpoints, records.append)) as running:
            yield Standing(running, behind, records)


def all_to(port: int) -> Upstreams:
    """One upstream for everything."""
    names = ("anthropic", "openai", "gemini", "bedrock", "vertex", "azure")
    return upstreams_of([f"{name}=http://127.0.0.1:{port}" for name in names])


@dataclass
class Reply:
    """Bytes of a response received over a connection."""

    raw: bytes
    open: bool  # whether the connection was still open

    @property
    def status(self) -> int:
        return int(self.raw.split(b" ", 2)[1])

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        lines = self.raw.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
        return [
            (name, value.strip()) for name, _, value in (line.partition(b":") for line in lines)
        ]

    @property
    def body(self) -> bytes:
        return self.raw.partition(b"\r\n\r\n")[2]

    @property
    def joined(self) -> bytes:
        """The body of a whole chunked response."""
        rest, joined = self.body, b""
        while True:
            size, _, rest = rest.partition(b"\r\n")
            if not int(size, 16):
                return joined
            joined, rest = joined + rest[: int(size, 16)], rest[int(size, 16) + 2 :]


def post(path: str, body: bytes = b"{}", *headers: str) -> bytes:
    """A whole request."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    """A whole request without a body."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers]).encode() + (
        b"\r\n\r\n"
    )


async def ask(port: int, raw: bytes, quiet: float = SOON) -> Reply:
    """Send bytes; read until the body is complete, the connection closes, or nothing arrives."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    got = b""
    still_open = True
    try:
        while not _whole(got, raw.startswith(b"HEAD")):
            wait = max(quiet, SOON) if not got else quiet
            data = await asyncio.wait_for(reader.read(1 << 16), wait)
            if not data:
                still_open = False
                break
            got += data
    except TimeoutError:
        pass
    except ConnectionError:
        still_open = False
    writer.close()
    return Reply(got, still_open)


def _whole(got: bytes, head_only: bool) -> bool:
    """Return whether a response is complete by its own framing."""
    head, found, body = got.partition(b"\r\n\r\n")
    if not found or head.startswith(b"HTTP/1.1 100"):
        return False
    lowered = head.lower()
    if head_only or b" 204 " in head[:14] or b" 304 " in head[:14]:
        return True
    if b"transfer-encoding: chunked" in lowered:
        return body.endswith(b"0\r\n\r\n") and (body == b"0\r\n\r\n" or b"\r\n0\r\n\r\n" in body)
    at = lowered.find(b"content-length:")
    return at >= 0 and len(body) >= int(lowered[at + 15 :].split(b"\r\n")[0])


def run(case: Callable[[], Awaitable[Any]]) -> Any:
    """Run a case with a time limit."""

    async def bounded() -> Any:
        try:
            return await asyncio.wait_for(case(), 3 * SOON)
        finally:
            await asyncio.sleep(0.02)  # closed connections end before the loop does

    return asyncio.run(bounded())
