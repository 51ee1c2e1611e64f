"""Every shape of answer, asked for directly and through the proxy: a client gets the same."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import brotli  # pyright: ignore[reportMissingTypeStubs]
import h11
import pytest
import zstandard
from aiohttp.http_exceptions import HttpProcessingError
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.proxy.client import ResponseParser
from tests.late import late
from tests.proxy.compaction import compacting
from tests.proxy.sockets import CHUNKED, OK, SOON, ReceivedRequest, proxy, run, upstream

httpx, anthropic, openai = late("httpx2"), late("anthropic"), late("openai")

BODY = json.dumps({"id": "x", "usage": {"input_tokens": 3, "output_tokens": 2}}).encode()
EVENTS = b"".join(b'event: ping\ndata: {"type": "ping", "n": %d}\n\n' % n for n in range(40))
START = b"HTTP/1.1 200 OK\r\n"
TWO = START + b"Content-Length: 2\r\n"
HI = b"2\r\nhi\r\n0\r\n\r\n"


def whole(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunks(data: bytes, size: int = 7) -> bytes:
    parts = (data[at : at + size] for at in range(0, len(data), size))
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@dataclass(frozen=True)
class Shape:
    """One answer: its bytes, in these pieces, and how its connection goes on."""

    pieces: tuple[bytes, ...]
    then: str = "keep"  # or "close", or "reset"
    method: str = "POST"
    pause: float = 0.02


def shape(*pieces: bytes, **how: Any) -> Shape:
    return Shape(pieces, **how)


SHAPES = {
    "length": shape(whole(b"hi")),
    "no body": shape(whole(b"")),
    "json": shape(whole(BODY, "Content-Type: application/json")),
    "length twice": shape(TWO + b"content-length: 2\r\n\r\nhi"),
    "length listed": shape(START + b"Content-Length: 2, 2\r\n\r\nhi"),
    "lengths that differ": shape(TWO + b"Content-Length: 3\r\n\r\nhi!"),
    "length with a sign": shape(START + b"Content-Length: +2\r\n\r\nhi"),
    "length and chunks": shape(TWO + b"Transfer-Encoding: chunked\r\n\r\n" + HI),
    "length of another size and chunks": shape(CHUNKED[:-2] + b"Content-Length: 7\r\n\r\n" + HI),
    "length too long": shape(START + b"Content-Length: 9\r\n\r\nhi", then="close"),
    "bytes behind": shape(TWO + b"\r\nhi" + OK),
    "bytes behind, closing": shape(TWO + b"Connection: close\r\n\r\nhi\r\n\r\n", then="close"),
    "bytes behind chunks": shape(CHUNKED + HI + OK),
    "chunks": shape(CHUNKED + chunks(BODY)),
    "chunks in pieces": shape(CHUNKED, b"2", b"\r\nh", b"i\r", b"\n0\r\n", b"\r\n"),
    "chunks with extensions": shape(CHUNKED + b'2;a="b"\r\nhi\r\n0;c\r\n\r\n'),
    "chunks with trailers": shape(CHUNKED + b"2\r\nhi\r\n0\r\nX-Sum: 1\r\nX-B: 2\r\n\r\n"),
    "chunks with a space behind the size": shape(CHUNKED + b"2 \r\nhi\r\n0\r\n\r\n"),
    "chunk of no size": shape(CHUNKED + b"zz\r\nhi\r\n0\r\n\r\n"),
    "chunk that is too long": shape(CHUNKED + b"2\r\nhi!!\r\n0\r\n\r\n"),
    "chunks cut off": shape(CHUNKED + b"9\r\nhi", then="close"),
    "chunks without their end": shape(CHUNKED + b"2\r\nhi\r\n", then="close"),
    "unknown transfer coding": shape(START + b"Transfer-Encoding: gzip\r\n\r\nhi", then="close"),
    "until it is closed": shape(START + b"\r\nhi", b" ho", then="close"),
    "until it is reset": shape(START + b"\r\nhi", b" ho", then="reset"),
    "reset in a length": shape(START + b"Content-Length: 9\r\n\r\nhi", then="reset"),
    "closed without an answer": shape(then="close"),
    "reset without an answer": shape(then="reset"),
    "closed in the head": shape(START + b"X-A: b", then="close"),
    "old version": shape(b"HTTP/1.0 200 OK\r\n\r\nhi", then="close"),
    "old version with a length": shape(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi"),
    "interim": shape(b"HTTP/1.1 100 Continue\r\n\r\n" + OK),
    "interim answers": shape(
        b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early\r\nLink: </x>\r\n\r\n", OK
    ),
    "switching": shape(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
    "no content": shape(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "no content, with a length": shape(b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"),
    "not modified": shape(b"HTTP/1.1 304 .\r\nETag: x\r\nContent-Length: 5\r\n\r\n"),
    "head": shape(whole(b"hi")[:-2], method="HEAD"),
    "head of chunks": shape(CHUNKED, method="HEAD"),
    "status 299": shape(whole(b"hi", status="299 .")),
    "status 418": shape(whole(b"hi", status="418 Teapot")),
    "status 529": shape(whole(BODY, "Retry-After: 1", status="529 Overloaded")),
    "status 600": shape(whole(b"hi", status="600 Far")),
    "status 999": shape(whole(b"hi", status="999 Denied")),
    "status 099": shape(whole(b"hi", status="099 Low")),
    "status of two digits": shape(whole(b"hi", status="20 OK")),
    "redirect": shape(whole(b"hi", "Location: /v1/other", status="307 Elsewhere")),
    "no reason": shape(b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nhi"),
    "odd reason": shape(whole(b"hi", status="200 \u20ac all: right?")),
    "not HTTP": shape(b"SSH-2.0-OpenSSH_9.6\r\n", then="close"),
    "HTML": shape(b"<html><body>Bad gateway</body></html>\n\n", then="close"),
    "blank line first": shape(b"\r\n" + OK),
    "folded header": shape(TWO + b"X-A: one\r\n\ttwo\r\n\r\nhi"),
    "bare line feeds": shape(b"HTTP/1.1 200 OK\nX-A: b\nContent-Length: 2\n\nhi"),
    "headers twice": shape(whole(b"hi", "X-A: one", "X-A: two", "Set-Cookie: a=1", "Server: s")),
    "header without a value": shape(whole(b"hi", "X-A:", "X-B: \t ")),
    "header of other bytes": shape(TWO + b"X-A: \xe2\x82\xac \xff\r\n\r\nhi"),
    "header with a space in its name": shape(TWO + b"X A: b\r\n\r\nhi"),
    "header with a space before its colon": shape(TWO + b"X-A : b\r\n\r\nhi"),
    "header without a colon": shape(TWO + b"X-A\r\n\r\nhi"),
    "header with a zero byte": shape(TWO + b"X-A: a\x00b\r\n\r\nhi"),
    "large header": shape(whole(b"hi", "X-A: " + "a" * 60_000)),
    "many headers": shape(whole(b"hi", *(f"X-{n}: {n}" for n in range(900)))),
    "too large a header": shape(whole(b"hi", "X-A: " + "a" * 400_000)),
    "gzip": shape(whole(gzip.compress(BODY), "Content-Encoding: gzip")),
    "br": shape(whole(brotli.compress(BODY), "Content-Encoding: br")),
    "zstd": shape(whole(zstandard.compress(BODY), "Content-Encoding: zstd")),
    "gzip that is none": shape(whole(BODY, "Content-Encoding: gzip")),
    "gzip twice": shape(
        whole(
            gzip.compress(gzip.compress(BODY)), "Content-Encoding: gzip", "Content-Encoding: gzip"
        )
    ),
    "unknown encoding": shape(whole(BODY, "Content-Encoding: rot13")),
    "events": shape(
        START + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        *(b"%x\r\n%s\r\n" % (len(EVENTS), EVENTS) for _ in range(3)),
        b"0\r\n\r\n",
    ),
    "packed events": shape(
        CHUNKED[:-2] + b"Content-Encoding: gzip\r\n\r\n" + chunks(gzip.compress(EVENTS))
    ),
    "slow drip": shape(*(bytes((byte,)) for byte in whole(b"hi")), pause=0.005),
    "large": shape(whole(bytes(range(256)) * 8_000)),
}

# Differences on purpose: without a response that can be read, the client gets a 502 that says so,
# in place of a broken connection. Most clients retry after both.
TOLD = (
    "lengths that differ",
    "length with a sign",
    "unknown transfer coding",
    "closed without an answer",
    "reset without an answer",
    "closed in the head",
    "switching",
    "status 099",
    "status of two digits",
    "not HTTP",
    "HTML",
    "blank line first",
    "header with a space in its name",
    "header with a space before its colon",
    "header without a colon",
    "header with a zero byte",
    "too large a header",
)
# And of every response: the server writes the reason phrase of the standard, trailers are dropped,
# header names are in lower case, and these headers belong to the connection.
OF_CONNECTION = {"connection", "transfer-encoding", "content-length", "trailer", "keep-alive"}
ADDED = "x-respool-"


@dataclass
class Seen:
    """A response as a client sees it."""

    status: int = 0
    body: bytes = b""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    length: set[str] = field(default_factory=set)
    error: str = ""


def script_of(one: Shape) -> Callable[[ReceivedRequest, asyncio.StreamWriter], Awaitable[None]]:
    async def script(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if received.target != "/v1/messages":
            writer.write(OK)
            return
        for piece in one.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(one.pause if len(one.pieces) > 1 else 0)
        if one.then == "reset":
            await asyncio.sleep(0.05)
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        elif one.then == "close":
            writer.close()

    return script


async def seen(port: int, method: str) -> Seen:
    """Response that httpx sees; afterwards the same client is answered as before."""
    found = Seen()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=SOON) as client:
        body = None if method == "HEAD" else b'{"messages": []}'
        try:
            async with client.stream(method, "/v1/messages", content=body) as response:
                found.status = response.status_code
                every = [(name.lower(), value) for name, value in response.headers.raw]
                kept = [
                    (name, value)
                    for name, value in every
                    if name.decode() not in OF_CONNECTION and not name.startswith(ADDED.encode())
                ]
                found.headers = sorted(kept)
                found.length = {v.decode() for n, v in every if n == b"content-length"}
                async for piece in response.aiter_raw():
                    found.body += piece
        except httpx.TransportError as error:
            broken = isinstance(error, httpx.RemoteProtocolError | httpx.ReadError)
            found.error = "broken" if broken else type(error).__name__
        with contextlib.suppress(httpx.TransportError):  # httpx keeps a connection with odd bytes
            await client.get("/v1/after")
        after = await client.get("/v1/after")
        assert (after.status_code, after.content) == (200, b"ok")
    return found


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize("is_compacting", [False, True], ids=["bare", "compacting"])
@pytest.mark.parametrize("name", SHAPES)
def test_an_answer_of_any_shape_is_what_it_is_without_the_proxy(
    name: str, is_compacting: bool, tmp_path: Path
):
    one = SHAPES[name]
    script = script_of(one)

    async def case() -> None:
        async with upstream(script) as behind:
            direct = await seen(behind.port, one.method)
        if is_compacting:
            async with compacting(tmp_path, script) as standing:
                through = await seen(standing.standing.port, one.method)
        else:
            async with proxy(script) as standing:
                through = await seen(standing.port, one.method)
        if name in TOLD:
            assert (direct.status, direct.error) == (0, "broken")
            assert (through.status, through.error) == (502, "")
            assert json.loads(through.body)["type"] == "error"
            return
        if direct.length and through.length:
            assert direct.length == through.length
        direct.length = through.length = set()
        assert through == direct

    run(case)


def test_the_table_of_differences_names_shapes_that_exist():
    assert set(TOLD) < set(SHAPES)
    assert len(SHAPES) > 60


# --- the providers' own clients ----------------------------------------------------------------

MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "hi"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
COMPLETION = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}
    ],
}
ERROR = b'{"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}'
JSON = "Content-Type: application/json"


def answers(body: bytes) -> dict[str, Shape]:
    length = f"Content-Length: {len(body)}"
    half = len(body) // 2
    return {
        "plain": shape(whole(body, JSON)),
        "length twice": shape(whole(body, JSON, length)),
        "length listed": shape(
            f"HTTP/1.1 200 OK\r\n{JSON}\r\n{length}, {len(body)}\r\n\r\n".encode() + body
        ),
        "length and chunks": shape(
            f"HTTP/1.1 200 OK\r\n{JSON}\r\n{length}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
            + chunks(body)
        ),
        "bytes behind, closing": shape(
            whole(body, JSON, "Connection: close") + b"\r\n", then="close"
        ),
        "gzip": shape(whole(gzip.compress(body), JSON, "Content-Encoding: gzip")),
        "status 529": shape(whole(ERROR, JSON, status="529 Overloaded")),
        "status 429": shape(whole(ERROR, JSON, "Retry-After: 0", status="429 Slow")),
        "status 999": shape(whole(ERROR, JSON, status="999 Denied")),
        "status 401": shape(whole(ERROR, JSON, status="401 Who")),
        "cut off": shape(whole(body, JSON)[:-half], then="close"),
        "reset": shape(whole(body, JSON)[:-half], then="reset"),
    }


async def asked_by_anthropic(port: int) -> tuple[str, str]:
    async with anthropic.AsyncAnthropic(
        api_key="k", base_url=f"http://127.0.0.1:{port}", max_retries=0
    ) as client:
        try:
            said = await client.messages.create(
                model="m", max_tokens=1, messages=[{"role": "user", "content": "hi"}]
            )
        except anthropic.APIError as error:
            return type(error).__name__, str(getattr(error, "status_code", ""))
        return "said", said.model_dump_json()


async def asked_by_openai(port: int) -> tuple[str, str]:
    async with openai.AsyncOpenAI(
        api_key="k", base_url=f"http://127.0.0.1:{port}/v1", max_retries=0
    ) as client:
        try:
            said = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}]
            )
        except openai.APIError as error:
            return type(error).__name__, str(getattr(error, "status_code", ""))
        return "said", said.model_dump_json()


CLIENTS = {"anthropic": (asked_by_anthropic, MESSAGE), "openai": (asked_by_openai, COMPLETION)}


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_the_providers_own_clients_see_the_same_answers_and_errors(client: str):
    asked, value = CLIENTS[client]

    async def case() -> None:
        for name, one in answers(json.dumps(value).encode()).items():
            script = script_of(one)

            async def always(
                received: ReceivedRequest, writer: asyncio.StreamWriter, script: Any = script
            ) -> None:
                await script(ReceivedRequest("POST /v1/messages HTTP/1.1", [], b""), writer)

            async with proxy(always) as standing:
                direct = await asked(standing.behind.port)
                assert await asked(standing.port) == direct, name
                is_well = name.split()[0] in ("plain", "length", "bytes", "gzip")
                assert (direct[0] == "said") == is_well, name

    run(case)


# --- the parser beside h11 ---------------------------------------------------------------------


class Payload:
    """A body as the parser gives it."""

    def __init__(self) -> None:
        self.body, self.is_whole, self.error = b"", False, False

    def feed_data(self, data: bytes) -> None:
        self.body += data

    def feed_eof(self) -> None:
        self.is_whole = True

    def set_exception(self, _error: BaseException) -> None:
        self.error = True


Parsed = tuple[int, list[tuple[bytes, bytes]], bytes, bool] | None


def by_ours(pieces: list[bytes]) -> Parsed:
    payload: Any = Payload()
    handler: Any = SimpleNamespace(force_close=lambda: None, close=lambda: None)
    parser = ResponseParser(handler, payload, has_body=True)
    found: Any = None
    for piece in pieces:
        try:
            messages = parser.feed_data(piece)[0]
        except HttpProcessingError:
            return None
        found = messages[0][0] if messages else found
    if found is None:
        return None
    with contextlib.suppress(HttpProcessingError):
        parser.feed_eof()
    named = [(name.lower(), value) for name, value in found.raw_headers]
    coding = b"transfer-encoding"
    headers = [(name, value.lower() if name == coding else value) for name, value in named]
    return found.code, sorted(headers), payload.body, payload.is_whole and not payload.error


def by_h11(pieces: list[bytes]) -> Parsed:
    side = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 18)
    side.send(h11.Request(method="POST", target="/", headers=[("host", "x")]))
    side.send(h11.EndOfMessage())
    head: Any = None
    body, is_whole = b"", False
    try:
        for piece in [*pieces, b""]:
            side.receive_data(piece)
            while not is_whole and (event := side.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Response):
                    head = event
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    is_whole = True
                elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                    break
    except h11.RemoteProtocolError:
        pass
    if head is None:
        return None
    headers = [(bytes(name), bytes(value)) for name, value in head.headers]
    chunked = (b"transfer-encoding", b"chunked") in headers
    kept = [pair for pair in headers if not chunked or pair[0] != b"content-length"]
    return head.status_code, sorted(kept), body, is_whole


LINES = st.sampled_from(
    [
        b"Content-Length: 5",
        b"content-length:5 ",
        b"Content-Length: 5, 5",
        b"Content-Length: 6",
        b"Content-Length: 5x",
        b"Content-Length:",
        b"Transfer-Encoding: chunked",
        b"transfer-encoding: Chunked",
        b"Transfer-Encoding: gzip",
        b"X-A: b c\t d",
        b"X-A:",
        b" folded",
        b"\tfolded: more",
        b"X-A : b",
        b"X\x7f: b",
        b"X-A: b\x01",
        b"X-A: b\x0b",
        b"X-A: \xff",
        b": b",
        b"X-A",
    ]
)
STATUS = st.sampled_from(
    [b"HTTP/1.1 200 OK"] * 5
    + [
        b"HTTP/1.0 200 OK",
        b"HTTP/1.1 204 .",
        b"HTTP/1.1 999",
        b"HTTP/1.1 200 ",
        b"HTTP/1.1  200 OK",
        b"HTTP/1.1 199 .",
        b"HTTP/1.1 100 .\r\n\r\nHTTP/1.1 200 OK",
        b"HTTP/11 200 OK",
        b"http/1.1 200 OK",
    ]
)
BODIES = st.sampled_from(
    [
        b"hello",
        b"hell",
        b"hello and more",
        b"",
        b"5\r\nhello\r\n0\r\n\r\n",
        b"5;a=b\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\r\n0\r\nX-A: b\r\n\r\n",
        b"5\r\nhello\r\n0\r\nX A: b\r\n\r\n",
        b"5\r\nhello\r\n0\r\n\r\nmore",
        b"5\nhello\n0\n\n",
        b"5\r\nhelloo\r\n0\r\n\r\n",
        b"05\r\nhello\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"\r\n",
    ]
)
ENDS = st.sampled_from([b"\r\n"] * 4 + [b"\n"])


@pytest.mark.slow
@settings(max_examples=4_000, deadline=None)
@given(
    status=STATUS,
    lines=st.lists(LINES, max_size=4),
    end=ENDS,
    body=BODIES,
    places=st.lists(st.integers(0, 200), max_size=3),
)
def test_the_parser_reads_what_h11_reads(
    status: bytes, lines: list[bytes], end: bytes, body: bytes, places: list[int]
):
    raw = end.join([status, *lines, b"", b""]) + body
    cuts = [0, *sorted(places), len(raw)]
    pieces = [raw[a:b] for a, b in pairwise(cuts) if a < b]
    assert by_ours(pieces) == by_h11(pieces)
