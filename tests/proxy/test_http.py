"""Rare but valid HTTP: framing, interim responses, old versions, odd responses."""

from __future__ import annotations

import asyncio
import gzip
import inspect
import json
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_parser import RawResponseMessage
from multidict import CIMultiDict, CIMultiDictProxy
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from respool.proxy import server
from respool.proxy.app import App
from respool.proxy.log import JSONFormatter
from respool.proxy.server import serving
from respool.proxy.server_options import ServerOptions, TransferLimits
from tests.proxy.compaction import Compacted, compacting, drive, request_body
from tests.proxy.sockets import (
    CHUNKED,
    OK,
    SOON,
    ReceivedRequest,
    all_to,
    ask,
    get,
    post,
    proxy,
    reply_with,
    run,
    until,
)

TOKEN = "a-token-of-enough-length"
PIECES = [
    b": a comment\r\n\r\n",
    b"event: message_start\r\ndata: {}\r\n\r\n",
    b"data: one\rdata: two\r\r",
    b": ping\n\n",
    b"data: \xe2\x82\xac and half of one \xe2\x82",
    b"\xac\n\ndata: [DONE]\n\n",
]


def chunked(body: bytes, *trailers: bytes) -> bytes:
    behind = b"".join(one + b"\r\n" for one in trailers)
    return b"%x\r\n%s\r\n0\r\n%s\r\n" % (len(body), body, behind)


def with_trailers(path: str, *trailers: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head.encode() + chunked(b"hi", *trailers)


@pytest.mark.parametrize("together", [True, False], ids=["in one piece", "behind the rest"])
def test_what_comes_behind_a_body_is_no_header(together: bool):
    """A key, a token or a wish there would be one that nobody in front of respool has seen."""
    raw = with_trailers("/v1/x", b"X-Api-Key: k", b"X-Respool-Bypass: 1", b"Cookie: a=b")

    async def case() -> None:
        async with proxy() as standing:
            assert (await ask(standing.port, raw)).status == 200
            (received,) = standing.behind.received
            assert received.body == b"hi"
            assert {name.lower() for name, _ in received.headers} == {"host", "content-length"}
        async with proxy(token=TOKEN) as standing:
            behind = with_trailers("/v1/x", f"X-Respool-Token: {TOKEN}".encode())
            assert (await ask(standing.port, behind)).status == 401
            reader, writer = await asyncio.open_connection("127.0.0.1", standing.port)
            for piece in [behind] if together else [behind[:-40], behind[-40:]]:
                writer.write(piece)
                await asyncio.sleep(0.05)
            assert b" 401 " in await reader.readuntil(b"\r\n")
            writer.close()
            assert standing.behind.received == []

    run(case)


AMBIGUOUS = [
    b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi!",
    b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    b"Content-Length: +2\r\n\r\nhi",
    b"Content-Length: 2,2\r\n\r\nhi",
    b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhi\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi!!\r\n0\r\n\r\n",
    b"X-A: one\r\n two\r\nContent-Length: 2\r\n\r\nhi",
    b"X-A: one\rX-B: two\r\nContent-Length: 2\r\n\r\nhi",
    b"X-A : one\r\nContent-Length: 2\r\n\r\nhi",
    b"X\x00A: one\r\nContent-Length: 2\r\n\r\nhi",
    b"X-A: o\x00ne\r\nContent-Length: 2\r\n\r\nhi",
]


@pytest.mark.parametrize("rest", AMBIGUOUS)
def test_what_two_could_read_differently_is_read_by_nobody(rest: bytes):
    """Whatever it smuggles behind its body, no other request comes of it."""
    smuggled = b"GET /v1/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"

    async def case() -> None:
        async with proxy() as standing:
            raw = b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\n" + rest
            reply = await ask(standing.port, raw + smuggled)
            assert reply.status == 400
            assert (b"connection", b"close") in reply.headers
            assert standing.behind.received == []

    run(case)


def test_requests_sent_ahead_are_answered_in_their_order():
    async def script(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.1 if received.target == "/v1/a" else 0)
        body = received.target.encode() + received.body
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    async def case() -> None:
        async with proxy(script) as standing:
            raw = get("/v1/a") + post("/v1/b", b"bb") + with_trailers("/v1/c") + get("/v1/d")
            reader, writer = await asyncio.open_connection("127.0.0.1", standing.port)
            writer.write(raw)
            got = b""
            while got.count(b"HTTP/1.1 200") < 4 or not got.endswith(b"/v1/d"):
                got += await reader.read(1 << 16)
            writer.close()
            bodies = [one.partition(b"\r\n\r\n")[2] for one in got.split(b"HTTP/1.1 ")[1:]]
            assert bodies == [b"/v1/a", b"/v1/bbb", b"/v1/chi", b"/v1/d"]

    run(case)


def echo(received: ReceivedRequest, writer: asyncio.StreamWriter) -> Awaitable[None]:
    body = received.target.encode() + received.body[:9]
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    return asyncio.sleep(0)


OFFER = ("Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABk")
BEHIND_CHUNKS = {
    "head in two": (get("/v1/b", "X-A: b"), 30, b"/v1/b"),
    "head in two, then a body": (post("/v1/b", b"bb", "X-A: b"), 30, b"/v1/bbb"),
    "upgrade in one read": (post("/v1/b", b"bb", *OFFER), 999, b"/v1/bbb"),
    "upgrade in two": (post("/v1/b", b"bb", *OFFER), 60, b"/v1/bbb"),
}


@pytest.mark.parametrize("size", [2, 400_000])
@pytest.mark.parametrize("name", BEHIND_CHUNKS)
def test_a_request_behind_a_chunked_body_is_read_as_any_other(name: str, size: int):
    """Its head is counted by itself, and an offered upgrade does not take its body."""
    second, at, expected = BEHIND_CHUNKS[name]
    head = b"POST /v1/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    first = head + chunked(b"a" * size)

    async def case() -> None:
        async with proxy(echo) as standing:
            reader, writer = await asyncio.open_connection("127.0.0.1", standing.port)
            writer.write(first + second[:at])
            await asyncio.sleep(0.1)
            writer.write(second[at:])
            got = b""
            while not got.endswith(expected):
                data = await asyncio.wait_for(reader.read(1 << 16), SOON)
                assert data, got
                got += data
            writer.close()
            bodies = [one.partition(b"\r\n\r\n")[2] for one in got.split(b"HTTP/1.1 ")[1:]]
            assert bodies == [b"/v1/a" + b"a" * min(size, 9), expected]

    run(case)


HALF_CLOSED = {
    "one": (get("/v1/a"), [b"/v1/a"]),
    "with a body": (post("/v1/a", b"1"), [b"/v1/a1"]),
    "pipelined": (get("/v1/a") + post("/v1/b", b"22"), [b"/v1/a", b"/v1/b22"]),
    "old": (b"GET /v1/a HTTP/1.0\r\n\r\n", [b"/v1/a"]),
    "cut off": (post("/v1/a", b"1")[:-1], []),
}


@pytest.mark.parametrize("name", HALF_CLOSED)
def test_a_client_that_sends_nothing_more_still_gets_its_answer(name: str):
    raw, expected = HALF_CLOSED[name]

    async def script(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.7)
        await echo(received, writer)

    async def case() -> None:
        async with proxy(script) as standing:
            reader, writer = await asyncio.open_connection("127.0.0.1", standing.port)
            writer.write(raw)
            writer.write_eof()
            got = await asyncio.wait_for(reader.read(), SOON)
            writer.close()
            final = got.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")
            bodies = [one.partition(b"\r\n\r\n")[2] for one in final.split(b"HTTP/1.1 ")[1:]]
            assert bodies == expected
            wanted = ["complete"] * len(expected) or ["client_closed"]
            assert [one.outcome for one in standing.records] == wanted

    run(case)


@pytest.mark.parametrize("blank", [b"", b"\r\n", b"\r\n\r\n"])
def test_requests_sent_ahead_may_offer_an_upgrade(blank: bytes):
    """As Java's client does with every one; its body belongs to it all the same."""

    async def script(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        body = received.target.encode() + received.body
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    async def case() -> None:
        async with proxy(script) as standing:
            offer = ("Upgrade: h2c", "Connection: Upgrade")
            raw = (post("/v1/a", b"1", *offer), post("/v1/b", b"22", *offer), post("/v1/c", b"333"))
            reader, writer = await asyncio.open_connection("127.0.0.1", standing.port)
            writer.write(blank + blank.join(raw))
            got = b""
            while not got.endswith(b"/v1/c333"):
                got += await asyncio.wait_for(reader.read(1 << 16), SOON)
            writer.close()
            bodies = [one.partition(b"\r\n\r\n")[2] for one in got.split(b"HTTP/1.1 ")[1:]]
            assert bodies == [b"/v1/a1", b"/v1/b22", b"/v1/c333"]

    run(case)


def test_a_client_that_speaks_tls_is_told_at_once_that_this_is_none():
    """As one does whose base URL begins with https: it would wait for as long as for any head."""

    async def case() -> None:
        async with proxy() as standing:
            speaking = asyncio.open_connection("127.0.0.1", standing.port, ssl=True)
            with pytest.raises(ssl.SSLError):
                await asyncio.wait_for(speaking, server.MAX_HEAD_SECONDS / 2)
            assert (await ask(standing.port, get("/v1/x"))).status == 200

    run(case)


@pytest.mark.parametrize("coding", ["gzip, chunked", "gzip\r\nTransfer-Encoding: chunked"])
def test_a_transfer_coding_that_is_not_understood_is_said_not_to_be(coding: str):
    """Taken off, it would leave a body that nobody could read."""

    async def case() -> None:
        async with proxy() as standing:
            head = f"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: {coding}\r\n\r\n"
            assert (await ask(standing.port, head.encode() + chunked(b"hi"))).status == 501
            assert standing.behind.received == []

    run(case)


def test_a_fault_of_respools_own_is_answered_and_logged_without_what_it_says(
    caplog: pytest.LogCaptureFixture,
):
    async def fail(*_given: object) -> None:
        raise RuntimeError("a word of a request")

    async def case() -> None:
        async with proxy(endpoints={"/respool/x": fail}) as standing:
            assert (await ask(standing.port, get("/respool/x"))).status == 500
            assert [one.note for one in standing.records] == ["failed: RuntimeError"]
            assert (await ask(standing.port, get("/v1/x"))).status == 200

    run(case)
    (logged,) = [one for one in caplog.records if "fault of respool" in one.getMessage()]
    line = JSONFormatter().format(logged)
    assert json.loads(line)["error"] == "RuntimeError"
    assert "a word" not in line


@pytest.mark.parametrize("keeping", ["", "Connection: keep-alive\r\n"])
@pytest.mark.parametrize(
    "answer",
    [
        CHUNKED + b"2\r\nhi\r\n3\r\n ho\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi ho",
        b"HTTP/1.1 500 No\r\nContent-Length: 5\r\n\r\nhi ho",
    ],
)
def test_a_client_of_http_1_0_gets_no_chunks_and_the_end_is_the_end(answer: bytes, keeping: str):
    async def case() -> None:
        async with proxy(reply_with(answer)) as standing:
            raw = f"GET /v1/x HTTP/1.0\r\n{keeping}\r\n".encode()
            reply = await ask(standing.port, raw, quiet=2.0)
            assert reply.status == int(answer[9:12])
            assert (reply.body, b"transfer-encoding" in dict(reply.headers)) == (b"hi ho", False)
            reader, writer = await asyncio.open_connection("127.0.0.1", standing.port)
            writer.write(raw)
            assert (await asyncio.wait_for(reader.read(), SOON)).endswith(b"\r\n\r\nhi ho")
            writer.close()
            assert [one.outcome for one in standing.records] == ["complete", "complete"]
            own = await ask(standing.port, b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
            assert json.loads(own.body) == {"status": "ok"}

    run(case)


INTERIM = [
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n",
    b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n",
]


@pytest.mark.parametrize("before", INTERIM)
def test_interim_answers_are_passed_over(before: bytes):
    async def case() -> None:
        async with proxy(reply_with(before + OK)) as standing:
            reply = await ask(standing.port, post("/v1/x"))
            assert (reply.status, reply.body) == (200, b"ok")

    run(case)


@pytest.mark.parametrize("length", [b"", b"Content-Length: 10\r\n", b"Content-Length: 0\r\n"])
@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_a_body_leaves_the_connection_open(status: int, length: bytes):
    if (status, length) == (204, b"Content-Length: 10\r\n"):
        pytest.skip("that promises a body which such an answer cannot have")
    head = b"HTTP/1.1 %d .\r\nETag: x\r\n%s\r\n" % (status, length)

    async def case() -> None:
        async with proxy(reply_with(head, OK)) as standing:
            reader, writer = await asyncio.open_connection("127.0.0.1", standing.port)
            writer.write(get("/v1/x"))
            first = await reader.readuntil(b"\r\n\r\n")
            assert first.startswith(b"HTTP/1.1 %d" % status)
            assert b"etag: x" in first
            writer.write(get("/v1/y"))
            assert b" 200 " in await reader.readuntil(b"\r\n")
            writer.close()
            assert standing.records[0].outcome == "complete"

    run(case)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 099 Low\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nno",
        b"\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nno!",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nno!",
        b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nno",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A : b\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 300_000 + b"\r\nContent-Length: 2\r\n\r\nno",
    ],
)
def test_an_answer_that_no_client_could_read_is_told_as_such(answer: bytes):
    async def case() -> None:
        async with proxy(reply_with(answer)) as standing:
            reply = await ask(standing.port, post("/v1/messages", b"{}", "x-api-key: k"))
            assert reply.status == 502
            error = json.loads(reply.body)
            assert error["type"] == "error"
            assert "not HTTP" in error["error"]["message"]
            assert [one.outcome for one in standing.records] == ["unreachable"]

    run(case)


TWO = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
ODD = {
    "length twice": (TWO + b"Content-Length: 2\r\n\r\nhi", 200),
    "length listed": (b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nhi", 200),
    "length and chunks": (TWO + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 200),
    "chunks and length": (CHUNKED[:-2] + b"Content-Length: 9\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 200),
    "bytes behind": (TWO + b"\r\nhi" + OK, 200),
    "bytes behind, closing": (TWO + b"Connection: close\r\n\r\nhi\r\n\r\n", 200),
    "bytes behind chunks": (CHUNKED + b"2\r\nhi\r\n0\r\n\r\n" + OK, 200),
    "folded header": (TWO + b"X-A: one\r\n two\r\n\r\nhi", 200),
    "bare line feeds": (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", 200),
    "status 999": (b"HTTP/1.1 999 Denied\r\nContent-Length: 2\r\n\r\nhi", 999),
    "status 600": (b"HTTP/1.1 600\r\nContent-Length: 2\r\n\r\nhi", 600),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_answer_comes_down_and_its_connection_is_used_no_more(name: str):
    """Nothing behind it can be taken for the answer to the next request."""
    answer, status = ODD[name]

    async def case() -> None:
        async with proxy(reply_with(answer, OK)) as standing:
            reply = await ask(standing.port, post("/v1/x"))
            body = reply.joined if b"chunks" in name.encode() else reply.body
            assert (reply.status, body) == (status, b"hi")
            lengths = [value for key, value in reply.headers if key == b"content-length"]
            assert lengths == ([] if "chunks" in name else [b"2"])
            second = await ask(standing.port, post("/v1/y"))
            assert (second.status, second.body) == (200, b"ok")
            assert (standing.behind.connections, len(standing.behind.received)) == (2, 2)
            assert [one.outcome for one in standing.records] == ["complete", "complete"]

    run(case)


def test_what_comes_over_an_idle_connection_answers_nothing():
    async def script(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        if received.target == "/v1/a":
            await asyncio.sleep(0.1)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")

    async def case() -> None:
        async with proxy(script) as standing:
            assert (await ask(standing.port, post("/v1/a"))).body == b"ok"
            await asyncio.sleep(0.3)
            assert (await ask(standing.port, post("/v1/b"))).body == b"ok"
            assert standing.behind.connections == 2

    run(case)


def test_an_answer_without_a_length_did_not_end_where_its_connection_broke():
    async def script(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await writer.drain()
        await asyncio.sleep(0.1)
        linger = struct.pack("ii", 1, 0)
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    async def case() -> None:
        async with proxy(script) as standing:
            reply = await ask(standing.port, get("/v1/x"))
            assert (b"half" in reply.raw, b"0\r\n\r\n" in reply.raw) == (True, False)
            assert [one.outcome for one in standing.records] == ["upstream_closed"]

    run(case)


def test_a_header_that_cannot_be_sent_costs_itself_and_not_the_answer():
    head = b"HTTP/1.1 200 OK\r\nX-A: b\x01c\r\nX-Latin: \xe9\xff\r\nContent-Length: 2\r\n\r\nok"

    async def case() -> None:
        async with proxy(reply_with(head)) as standing:
            reply = await ask(standing.port, get("/v1/x"))
            assert (reply.status, reply.body) == (200, b"ok")
            names = dict(reply.headers)
            assert (b"x-a" in names, names[b"x-latin"]) == (False, b"\xe9\xff")

    run(case)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("framing", ["chunked", "closed"])
def test_events_come_down_byte_for_byte(framing: str, packed: bool, tmp_path: Path):
    """Comments, any line end, a character cut in two, packed or not: as they were sent."""
    pieces = [gzip.compress(one) for one in PIECES] if packed else PIECES
    extra = b"Content-Encoding: gzip\r\n" if packed else b""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + extra

    async def script(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if framing == "chunked":
            writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
            for piece in pieces:
                writer.write(b"%x;ext=1\r\n%s\r\n" % (len(piece), piece))
                await asyncio.sleep(0.01)
            writer.write(b"0\r\nX-Trailer: 1\r\n\r\n")
        else:
            writer.write(head + b"Connection: close\r\n\r\n" + b"".join(pieces))
            await writer.drain()
            writer.close()

    async def case() -> None:
        async with compacting(tmp_path, script) as one:
            reply = await one.ask("anthropic", 2)
            assert reply.joined == b"".join(pieces)
            await until(lambda: one.standing.records)  # once it is read, aside
            assert [record.outcome for record in one.standing.records] == ["complete"]

    run(case)


@pytest.mark.parametrize("size", [200, 1 << 20, (1 << 20) + 1, 5_000_000])
def test_an_error_of_any_size_comes_down_as_it_was_sent(tmp_path: Path, size: int):
    """A small error is read before it is passed down, a large one is not."""
    body = b'{"error": {"message": "overloaded ' + b"x" * size + b'"}}'
    head = b"HTTP/1.1 429 .\r\nRetry-After: 7\r\nX-RateLimit-Left: 0\r\nContent-Length: %d\r\n\r\n"

    async def act(one: Compacted) -> None:
        for steps in (1, 3):
            reply = await one.ask("anthropic", steps)
            assert (reply.status, reply.body == body) == (429, True)
            assert dict(reply.headers)[b"retry-after"] == b"7"
        assert len(one.bodies) == 2
        assert len(one.bodies[1]) < len(request_body("anthropic", 3))

    drive(tmp_path, act, script=reply_with(head % len(body) + body))


@pytest.mark.parametrize(("status", "sent"), [(429, 1), (400, 2)])
def test_an_error_that_does_not_end_is_passed_down_as_it_comes(
    tmp_path: Path, status: int, sent: int
):
    """A refused projection is followed by its original all the same: that much is known of it."""
    come = asyncio.Event()

    async def script(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 %d .\r\nTransfer-Encoding: chunked\r\n\r\n" % status
        writer.write(head + b"6\r\nnot ye\r\n")
        await come.wait()
        writer.write(b"1\r\nt\r\n0\r\n\r\n")

    async def act(one: Compacted) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", one.standing.port)
        writer.write(post("/v1/messages", request_body("anthropic", 3), "x-api-key: one"))
        assert b" %d " % status in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SOON)
        come.set()
        assert (await reader.readuntil(b"0\r\n\r\n")).replace(b"\r\n", b"") == b"6not ye1t0"
        assert len(one.bodies) == sent
        writer.close()

    drive(tmp_path, act, script=script, limits=TransferLimits(drain_seconds=1.0, error_seconds=0.3))


@pytest.mark.parametrize("size", [300_000, 5_000_000])
def test_an_answer_that_comes_before_the_body_is_whole_is_passed_down(size: int):
    """A provider that refuses by the head alone does not wait for megabytes."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.close()

    async def case() -> None:
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as behind:
            there = all_to(behind.sockets[0].getsockname()[1])
            async with serving(App(ServerOptions(port=0, upstreams=there))) as running:
                for path in ("/v1/messages", "/v1/files"):  # held, and flowing
                    reply = await ask(running.port, post(path, b"x" * size))
                    assert (reply.status, reply.body) == (401, b"no")

    run(case)


# --- private parts of aiohttp and uvicorn ------------------------------------------------------


def _connector() -> aiohttp.TCPConnector:
    async def made() -> aiohttp.TCPConnector:
        connector = aiohttp.TCPConnector()
        await connector.close()
        return connector

    return asyncio.run(made())


def _protocol() -> HttpToolsProtocol:
    async def app(_scope: Any, _receive: Any, _send: Any) -> None: ...

    async def made() -> HttpToolsProtocol:
        config = uvicorn.Config(app, log_config=None, lifespan="off")
        return HttpToolsProtocol(config, ServerState(), {})

    return asyncio.run(made())


def _handler() -> ResponseHandler:
    async def made() -> ResponseHandler:
        return ResponseHandler(asyncio.get_running_loop())

    return asyncio.run(made())


def _cycle() -> set[str]:
    return set(inspect.getsource(RequestResponseCycle.__init__).split())


FIELDS: dict[str, Any] = {
    "version": aiohttp.HttpVersion11,
    "code": 200,
    "reason": "OK",
    "headers": CIMultiDictProxy(CIMultiDict()),
    "raw_headers": ((b"A", b"b"),),
    "should_close": False,
    "compression": None,
    "upgrade": False,
    "chunked": False,
}
RELIANCES: dict[str, Callable[[], bool]] = {
    "aiohttp's TCPConnector makes each connection with _factory(), which the client replaces": (
        lambda: (
            callable(_connector()._factory)
            and "self._factory" in inspect.getsource(aiohttp.TCPConnector)
        )
    ),
    "aiohttp's ResponseHandler has _parser, _tail, _read_bufsize, _loop and _drain_tail": lambda: (
        all(
            hasattr(_handler(), name)
            for name in ("_parser", "_tail", "_read_bufsize", "_loop", "_drain_tail")
        )
    ),
    "aiohttp's ResponseHandler parses with _parser.feed_data(data) and .feed_eof()": lambda: (
        "messages, upgraded, tail = self._parser.feed_data(data)"
        in inspect.getsource(ResponseHandler.data_received)
        and "self._parser.feed_eof()" in inspect.getsource(ResponseHandler.connection_lost)
    ),
    "aiohttp's ResponseHandler takes the parameters of a response by keyword": lambda: (
        {"timer", "skip_payload", "read_bufsize"}
        <= inspect.signature(ResponseHandler.set_response_params).parameters.keys()
    ),
    "aiohttp's RawResponseMessage has the fields that the parser fills": lambda: (
        RawResponseMessage(**FIELDS).raw_headers == FIELDS["raw_headers"]  # pyright: ignore[reportCallIssue, reportArgumentType]
    ),
    "aiohttp's StreamReader has _read_nowait(n), which reads what came before an error": lambda: (
        list(inspect.signature(aiohttp.StreamReader._read_nowait).parameters) == ["self", "n"]
    ),
    "uvicorn's HttpToolsProtocol has the state and methods that BoundedProtocol uses": lambda: all(
        hasattr(_protocol(), name)
        for name in (
            *("loop", "transport", "scope", "headers", "cycle", "pipeline", "parser"),
            *("_unset_keepalive_if_required", "send_400_response", "on_header"),
            *("on_headers_complete", "on_message_complete", "eof_received"),
        )
    ),
    "uvicorn's RequestResponseCycle has the state that BoundedProtocol sets and asks": lambda: (
        {
            "self.keep_alive",
            "self.response_started",
            "self.chunked_encoding:",
            "self.expected_content_length",
        }
        <= _cycle()
    ),
    "uvicorn's STATUS_LINE is the table by which the server writes each status": lambda: (
        STATUS_LINE[200] == b"HTTP/1.1 200 OK\r\n"
        and "STATUS_LINE[status_code]" in inspect.getsource(RequestResponseCycle.send)
    ),
}


@pytest.mark.parametrize("sentence", RELIANCES)
def test_what_others_keep_to_themselves_is_still_as_the_proxy_needs_it(sentence: str):
    """Their versions are bounded by the next minor one; a bound is raised when this passes."""
    try:
        holds = RELIANCES[sentence]()
    except (AttributeError, KeyError, TypeError):
        holds = False
    assert holds, f"It was so, and is not any more: {sentence}."
