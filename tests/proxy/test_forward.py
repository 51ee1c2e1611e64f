"""Forwarding: requests and responses are passed on unchanged, as they arrive."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator

import aiohttp
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.proxy.app import App
from respool.proxy.asgi import Message, Request
from respool.proxy.client import NO_BODY, Client
from respool.proxy.log import LogEntry, entry_for
from respool.proxy.middleware import PassThrough
from respool.proxy.response import Observer, UpstreamClosed, relay
from respool.proxy.server import RunningServer, serving, serving_in_thread
from respool.proxy.server_options import ServerOptions, TransferLimits, upstreams_of
from respool.proxy.server_options import Upstream as Endpoint
from tests.effort import examples
from tests.proxy.sockets import (
    CHUNKED,
    OK,
    SOON,
    ReceivedRequest,
    Standing,
    Upstream,
    all_to,
    ask,
    get,
    post,
    proxy,
    reply_with,
    run,
    until,
    upstream,
)

UP = [
    ("POST", "/v1/messages?beta=true", b'{"model": "m", "messages":[ ]}'),
    ("POST", "/v1/messages/count_tokens", b"{}"),
    ("POST", "/v1/chat/completions", b"not json"),
    ("POST", "/v1/responses", b"\x00\xff"),
    ("POST", "/v1beta/models/gemini-3:streamGenerateContent?alt=sse&key=k", b"{}"),
    ("GET", "/v1/models", b""),
    ("HEAD", "/", b""),
    ("DELETE", "/v1/files/a%2Fb%20c?x=%2F&y", b""),
    ("PATCH", "/anything/at//all;p=1?q=a+b&q=%41", b"x" * 100),
    ("PUT", "/v1/files/@host", b""),
]


@pytest.mark.parametrize(("method", "path", "body"), UP)
def test_a_request_goes_up_as_it_came(method: str, path: str, body: bytes):
    async def case() -> None:
        async with proxy() as standing:
            extra = ("Accept-Encoding: zstd", "X-Twice: 1", "X-Twice: 2", "Authorization: Bearer k")
            raw = post(path, body, *extra) if body else get(path, *extra)
            await ask(standing.port, raw.replace(raw.split(b" ")[0], method.encode(), 1))
            (received,) = standing.behind.received
            assert received.line == f"{method} {path} HTTP/1.1"
            assert received.body == body
            assert received.named("host") == [f"127.0.0.1:{standing.behind.port}"]
            assert received.named("x-twice") == ["1", "2"]
            assert received.named("accept-encoding") == ["zstd"]
            assert received.named("authorization") == ["Bearer k"]
            added = {"host", "content-length", "x-twice", "accept-encoding", "authorization"}
            assert {name.lower() for name, _ in received.headers} <= added

    run(case)


def test_what_is_for_one_connection_stays_there():
    async def case() -> None:
        async with proxy() as standing:
            extra = ("Connection: keep-alive, X-Hop", "X-Hop: 1", "TE: trailers", "X-Stays: 1")
            await ask(standing.port, post("/v1/files", b"x", *extra, "X-Respool-Bypass: 1"))
            (received,) = standing.behind.received
            assert [name.lower() for name, _ in received.headers if name[:2].lower() == "x-"] == [
                "x-stays"
            ]
            assert not received.named("te")

    run(case)


ANSWERS = [
    OK,
    b"HTTP/1.1 429 Wait\r\nRetry-After: 7\r\nX-RateLimit-Left: 0\r\nContent-Length: 2\r\n\r\nno",
    b"HTTP/1.1 529 Overloaded\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nX-B: 2\r\nSet-Cookie: c=3\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n",
    b"HTTP/1.1 400 Bad Request\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s"
    % (len(gzip.compress(b"{}", mtime=0)), gzip.compress(b"{}", mtime=0)),
    b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 4\r\n\r\nnot!",
]


def test_a_response_comes_down_as_it_was_sent():
    async def case() -> None:
        async with proxy(reply_with(*ANSWERS)) as standing:
            for sent in ANSWERS:
                reply = await ask(standing.port, post("/v1/messages"))
                head, _, body = sent.partition(b"\r\n\r\n")
                status, *headers = head.split(b"\r\n")
                assert reply.status == int(status.split(b" ")[1])
                assert reply.body == body
                lowered = [
                    one.split(b": ")[0].lower() + b": " + one.split(b": ")[1] for one in headers
                ]
                assert reply.raw.split(b"\r\n\r\n")[0].split(b"\r\n")[1:] == lowered

    run(case)


def test_the_length_of_what_head_does_not_send_is_kept():
    async def case() -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"
        async with proxy(reply_with(head)) as standing:
            reply = await ask(standing.port, get("/", method="HEAD"))
            assert (reply.status, reply.body) == (200, b"")
            assert (b"content-length", b"500") in reply.headers

    run(case)


def test_each_chunk_is_there_before_the_next_is_sent():
    """No clock: upstream says the next word only when the client has heard the last one."""

    async def case() -> None:
        heard_it = asyncio.Queue[bytes]()

        async def stream(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            writer.write(CHUNKED)
            assert await heard_it.get() == b""  # the head alone
            for word in (b"one", b"two", b"three"):
                writer.write(b"%x\r\n%s\r\n" % (len(word), word))
                assert await heard_it.get() == word
            writer.write(b"0\r\n\r\n")

        async with proxy(stream) as standing, aiohttp.ClientSession() as session:
            url = f"{standing.running.url}/v1/messages"
            async with asyncio.timeout(SOON), session.post(url, data=b"{}") as response:
                heard_it.put_nowait(b"")
                words = []
                async for word, _ in response.content.iter_chunks():
                    if word:
                        words.append(word)
                        heard_it.put_nowait(word)
            assert words == [b"one", b"two", b"three"]
            assert standing.records[-1].outcome == "complete"

    run(case)


@pytest.mark.parametrize("how", ["closes", "closes at once", "resets", "is short"])
def test_a_stream_that_breaks_off_breaks_off_for_the_client(how: str):
    async def die(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        length = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"
        writer.write(length if how == "is short" else CHUNKED)
        writer.write(b"ab" if how == "is short" else b"2\r\nab\r\n2\r\ncd\r\n")
        await writer.drain()
        if how != "closes at once":
            await asyncio.sleep(0.05)
        if how == "resets":
            writer.transport.abort()
        writer.close()

    async def case() -> None:
        async with proxy(die) as standing:
            reply = await ask(standing.port, post("/v1/messages"), quiet=2)
            assert reply.status == 200
            assert not reply.open
            assert b"ab" in reply.body
            assert (b"cd" in reply.body) == (how != "is short")
            assert b"\r\n0\r\n" not in reply.body  # no end that was not sent
            assert standing.records[-1].outcome == "upstream_closed"
            url = f"http://127.0.0.1:{standing.port}/v1/messages"
            with pytest.raises((aiohttp.ClientPayloadError, aiohttp.ClientConnectionError)):
                async with aiohttp.ClientSession() as session, session.post(url) as response:
                    await response.read()

    run(case)


def test_a_slow_client_gets_all_that_came_before_the_end_that_did_not():
    async def case() -> None:
        size = 12_000_000

        async def pour(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (2 * size))
            writer.write(bytes(size))
            await writer.drain()
            writer.close()

        async with proxy(pour) as standing:
            reader, writer = await asyncio.open_connection("127.0.0.1", standing.port, limit=1024)
            writer.write(post("/v1/messages"))
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(0.3)
            got = 0
            while data := await asyncio.wait_for(reader.read(1 << 16), SOON):
                got += len(data)
            writer.close()
            assert got == size

    run(case)


def test_what_came_while_the_client_was_slow_is_not_lost_when_upstream_breaks_off():
    """The second chunk and the break both arrive while the first is still being given."""

    async def die(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + b"2\r\nab\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.write(b"2\r\ncd\r\n")
        await writer.drain()
        writer.close()

    async def case() -> None:
        given: list[bytes] = []

        async def slowly(message: Message) -> None:
            given.append(message.get("body", b""))
            await asyncio.sleep(0.3 if given[-1] else 0)

        record = entry_for(Request("POST", "/", "", (), {}))
        async with upstream(die) as behind, aiohttp.ClientSession() as session:
            response = await session.post(f"http://127.0.0.1:{behind.port}/")
            with pytest.raises(UpstreamClosed):
                await relay(
                    response,
                    send=slowly,
                    read_ahead=b"",
                    added=(),
                    observer=Observer(PassThrough(), None, record),
                    entry=record,
                )
            response.close()
        assert b"".join(given) == b"abcd"

    run(case)


@pytest.mark.parametrize("moment", ["before the head", "in the stream"])
@pytest.mark.parametrize("size", [2, 3_000_000], ids=["held", "flowing"])
def test_a_client_that_goes_away_cancels_upstream(moment: str, size: int):
    async def case() -> None:
        arrived = asyncio.Event()

        async def hang(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            if moment == "in the stream":
                writer.write(CHUNKED + b"2\r\nab\r\n")
            arrived.set()
            await asyncio.sleep(60)

        async with proxy(hang) as standing:
            reader, writer = await asyncio.open_connection("127.0.0.1", standing.port)
            writer.write(post("/v1/files", b"x" * size))
            await asyncio.wait_for(arrived.wait(), SOON)
            if moment == "in the stream":
                await reader.readuntil(b"ab\r\n")
            writer.close()
            await asyncio.wait_for(standing.behind.lost.wait(), SOON)
            await until(lambda: standing.records)
            assert standing.records[-1].outcome == "client_closed"

    run(case)


SHAPES = [
    ("/v1/messages", lambda said: said["type"] == "error" and said["error"]["type"] == "api_error"),
    ("/v1/chat/completions", lambda said: said["error"]["type"] == "server_error"),
    ("/v1/responses", lambda said: said["error"]["code"] == "unreachable"),
    (
        "/v1beta/models/m:generateContent",
        lambda said: (said["error"]["status"], said["error"]["code"]) == ("UNAVAILABLE", 502),
    ),
]


@pytest.mark.parametrize(
    "trouble", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n"]
)
def test_no_answer_is_told_in_the_providers_words(trouble: bytes):
    async def fail(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(trouble)
        await writer.drain()
        writer.transport.abort() if not trouble else writer.close()

    async def case() -> None:
        async with proxy(fail) as standing:
            for path, fits in SHAPES:
                reply = await ask(standing.port, post(path))
                said = json.loads(reply.body)
                assert reply.status == 502
                assert fits(said)
                assert said["error"]["message"].startswith("respool: http://127.0.0.1:")
                assert (b"x-respool-error", b"unreachable") in reply.headers

    run(case)


@pytest.mark.parametrize(("path", "fits"), SHAPES)
def test_an_upstream_that_is_not_there(path: str, fits):
    async def case() -> None:
        async with serving(App(ServerOptions(port=0, upstreams=all_to(9)))) as running:
            reply = await ask(running.port, post(path))
            assert reply.status == 502
            assert fits(json.loads(reply.body))

    run(case)


# where requests go, the environment, and the cause in the log and in the client's error
NOWHERE: dict[str, tuple[str, dict[str, str], str]] = {
    "refused": ("http://127.0.0.1:9", {}, r"127\.0\.0\.1:9: connection refused"),
    "no such name": (
        "http://no-such-host.invalid",
        {},
        r"no-such-host\.invalid:80: its name cannot be resolved \([a-z -]+\)",
    ),
    "no TLS": ("https://127.0.0.1:{plain}", {}, r"127\.0\.0\.1:\d+: TLS failed \([a-z -]+\)"),
    "no HTTP": (
        "http://127.0.0.1:{port}",
        {},
        r"127\.0\.0\.1:\d+: gave an answer that is not HTTP \(.*\)",
    ),
    "a proxy that is not there": (
        "http://api.example.com",
        {"http_proxy": "http://me:secret@127.0.0.1:9"},
        r"127\.0\.0\.1:9 \(the proxy that HTTP_PROXY names\): connection refused",
    ),
    "a proxy that refuses": (
        "https://api.example.com",
        {"https_proxy": "http://me:secret@127.0.0.1:{refusing}"},
        r"127\.0\.0\.1:\d+ \(the proxy that HTTPS_PROXY names\): it answered 407",
    ),
}


@pytest.mark.parametrize("case", NOWHERE)
def test_the_real_cause_is_named(case: str, monkeypatch: pytest.MonkeyPatch):
    url, environment, cause = NOWHERE[case]
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)

    async def babble(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"garbage\r\n\r\n")
        writer.close()

    async def refuse(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 this is no TLS\r\n")
        writer.close()

    async def test() -> None:
        records: list[LogEntry] = []
        plain = await asyncio.start_server(greet, "127.0.0.1", 0)
        async with upstream(babble) as behind, upstream(refuse) as refusing, plain:
            ports = {"port": behind.port, "refusing": refusing.port}
            ports["plain"] = plain.sockets[0].getsockname()[1]
            for name, value in environment.items():
                monkeypatch.setenv(name, value.format(**ports))
            to = upstreams_of([f"anthropic={url.format(**ports)}"])
            app = App(ServerOptions(port=0, upstreams=to), log=records.append)
            async with serving(app) as running:
                reply = await ask(running.port, post("/v1/messages", b"{}", "x-api-key: sk-hidden"))
        assert reply.status == 502
        (record,) = records
        assert record.note is not None
        assert re.fullmatch(cause, record.note), record.note
        told = json.loads(reply.body)["error"]["message"]
        assert record.note.partition(": ")[2].split("(")[0] in told
        assert not [secret for secret in ("secret", "sk-hidden") if secret in told + record.note]

    run(test)


def test_no_connection_in_time_is_told_as_such():
    upstreams = upstreams_of(["anthropic=https://[2001:db8::1]:8443/v1"])
    client = Client([upstreams.anthropic], TransferLimits(connect_seconds=7.5))
    problem = client.problem_of(TimeoutError(), upstreams.anthropic)
    assert problem.cause == "[2001:db8::1]:8443: no connection within 7.5 s"
    assert problem.sentence == "cannot be reached: no connection within 7.5 s"
    assert problem.is_timeout


def test_a_hanging_upstream_holds_up_nobody_else():
    async def case() -> None:
        async def hang(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            if "hang" in received.target:
                await asyncio.sleep(60)
            writer.write(OK)

        async with proxy(hang) as standing:
            waiting = [await asyncio.open_connection("127.0.0.1", standing.port) for _ in range(50)]
            for _, writer in waiting:
                writer.write(post("/v1/hang"))
            await until(lambda: len(standing.behind.received) == 50)
            reply = await asyncio.wait_for(ask(standing.port, post("/v1/messages")), SOON)
            assert reply.body == b"ok"
            for _, writer in waiting:
                writer.close()

    run(case)


def test_a_kept_connection_that_was_closed_costs_no_request():
    """Upstream takes one request on each connection, and closes at the second without a word."""

    async def case() -> None:
        used: set[asyncio.StreamWriter] = set()

        async def once(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            if writer in used:
                writer.transport.abort()
            else:
                used.add(writer)
                writer.write(OK)

        async with proxy(once) as standing:
            for _ in range(3):
                reply = await ask(standing.port, post("/v1/messages", b"x" * 50_000))
                assert (reply.status, reply.body) == (200, b"ok")
            assert len(standing.behind.received) > 3  # one of them was sent twice
            assert {received.body for received in standing.behind.received} == {b"x" * 50_000}

    run(case)


def test_a_first_connection_that_closes_is_not_tried_twice():
    async def case() -> None:
        async def close(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            writer.close()

        async with proxy(close) as standing:
            assert (await ask(standing.port, post("/v1/messages"))).status == 502
            assert len(standing.behind.received) == 1

    run(case)


def test_a_connection_finds_out_by_itself_that_the_other_end_is_gone():
    """Nothing else would tell, after a suspend: an answer may be hours in coming, or never come."""

    async def case() -> None:
        async with upstream(reply_with(CHUNKED)) as behind:  # and nothing more for now
            there = Endpoint(f"http://127.0.0.1:{behind.port}")
            client = Client([there], TransferLimits())
            await client.open()
            answer = await client.send("GET", there, f"{there.origin}/", [], NO_BODY)
            assert answer.connection is not None
            assert answer.connection.transport is not None
            used = answer.connection.transport.get_extra_info("socket")
            assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            for name, least, most in (
                ("TCP_KEEPIDLE", 30, 120),
                ("TCP_KEEPINTVL", 10, 60),
                ("TCP_USER_TIMEOUT", 60_000, 600_000),
            ):
                if hasattr(socket, name):
                    option = getattr(socket, name)
                    assert least <= used.getsockopt(socket.IPPROTO_TCP, option) <= most
            answer.close()
            await client.close()

    run(case)


@pytest.mark.parametrize("step", [-7200.0, 7200.0])
def test_a_clock_that_is_set_changes_no_duration(monkeypatch: pytest.MonkeyPatch, step: float):
    """Sums of durations would go back, which counters must not."""

    async def case() -> None:
        now = time.time

        async def later(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            monkeypatch.setattr(time, "time", lambda: now() + step)
            writer.write(OK)

        async with proxy(later) as standing:
            before = now()
            assert (await ask(standing.port, post("/v1/messages"))).status == 200
            await until(lambda: standing.records)
            (record,) = standing.records
            assert before <= record.time <= now()
            assert record.first_byte_ms is not None
            assert 0 < record.first_byte_ms <= record.duration_ms < 60_000
            assert b"started" not in msgspec.json.encode(record)

    run(case)


def test_two_hundred_streams_at_once():
    """None ends before all have begun."""

    async def case() -> None:
        begun = 0
        all_begun = asyncio.Event()

        async def stream(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            nonlocal begun
            name = received.body
            writer.write(CHUNKED + b"%x\r\n%s\r\n" % (len(name), name))
            begun += 1
            if begun == 200:
                all_begun.set()
            await all_begun.wait()
            writer.write(b"3\r\nend\r\n0\r\n\r\n")

        async def one(standing: Standing, name: bytes) -> bytes:
            return (await ask(standing.port, post("/v1/messages", name), quiet=SOON)).joined

        async with proxy(stream) as standing:
            names = [b"stream-%d" % number for number in range(200)]
            bodies = await asyncio.gather(*(one(standing, name) for name in names))
            assert bodies == [name + b"end" for name in names]

    run(case)


def test_open_streams_are_finished_at_shutdown():
    async def case() -> None:
        stopping = asyncio.Event()

        async def stream(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            writer.write(CHUNKED + b"2\r\nab\r\n")
            await stopping.wait()
            await asyncio.sleep(0.4)
            writer.write(b"2\r\ncd\r\n0\r\n\r\n")

        async with proxy(stream, limits=TransferLimits(drain_seconds=5.0)) as standing:
            asked = asyncio.create_task(ask(standing.port, post("/v1/messages"), quiet=SOON))
            await until(lambda: standing.behind.received)
            await asyncio.sleep(0.05)
            stopping.set()
            port = standing.port
        assert (await asked).joined == b"abcd"
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)

    run(case)


def test_shutdown_does_not_wait_for_ever():
    async def case() -> None:
        async def hang(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(60)

        async with proxy(hang, limits=TransferLimits(drain_seconds=1.0)) as standing:
            reader, writer = await asyncio.open_connection("127.0.0.1", standing.port)
            writer.write(post("/v1/messages"))
            await until(lambda: standing.behind.received)
            start = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - start < SOON
        assert b"200" not in await reader.read()
        writer.close()

    run(case)


def test_a_websocket_is_answered_426_and_goes_nowhere():
    async def case() -> None:
        async with proxy() as standing:
            wish = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
            reply = await ask(standing.port, get("/v1/responses", *wish, "Sec-WebSocket-Key: aGk="))
            assert reply.status == 426
            assert json.loads(reply.body)["error"]["code"] == "websocket"
            assert standing.behind.connections == 0
            other = await ask(
                standing.port, post("/v1/files", b"x", "Connection: Upgrade", "Upgrade: h2c")
            )
            assert (other.status, standing.behind.received[0].body) == (200, b"x")

    run(case)


def test_bodies_in_chunks_and_bodies_that_wait_to_be_asked_for():
    async def case() -> None:
        async with proxy() as standing:
            head = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n"
            chunked = head + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
            assert (await ask(standing.port, chunked)).body == b"ok"
            reader, writer = await asyncio.open_connection("127.0.0.1", standing.port)
            writer.write(head + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")
            asked = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SOON)
            assert asked.startswith(b"HTTP/1.1 100 ")
            writer.write(b"xyz")
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")
            writer.close()
            assert [received.body for received in standing.behind.received] == [b"abcde", b"xyz"]
            assert standing.behind.received[1].named("expect") == []

    run(case)


def test_a_large_body_flows_before_it_is_whole():
    """Upstream has the first megabyte before the client sends the last one."""

    async def case() -> None:
        first = asyncio.Event()
        size = 6 * 1024 * 1024
        got = bytearray()

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"content-length: %d\r\n" % size in head.lower()
            while len(got) < size:
                got.extend(await reader.read(1 << 16))
                if len(got) >= 1 << 20:
                    first.set()
            writer.write(OK)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(take, "127.0.0.1", 0)
        at = server.sockets[0].getsockname()[1]
        async with serving(App(ServerOptions(port=0, upstreams=all_to(at)))) as running:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            body = bytes(range(256)) * (size // 256)
            raw = post("/v1/files", body)
            writer.write(raw[: size - (1 << 20)])
            await asyncio.wait_for(first.wait(), SOON)
            writer.write(raw[size - (1 << 20) :])
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")
            assert bytes(got) == body
            writer.close()
        server.close()

    run(case)


class Mirror(threading.Thread):
    """An upstream in a thread of its own that sends a request's body and headers back."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.port = 0
        self.ready = threading.Event()
        self.received: list[ReceivedRequest] = []

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        async def mirror(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            self.received.append(received)
            mine = [
                f"{name}: {value}" for name, value in received.headers if name.startswith("x-m")
            ]
            head = ["HTTP/1.1 200 OK", f"Content-Length: {len(received.body)}", *mine]
            writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + received.body)

        server = await asyncio.start_server(Upstream(mirror).serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        await server.serve_forever()


@pytest.fixture(scope="module")
def mirrored() -> Iterator[tuple[RunningServer, Mirror]]:
    mirror = Mirror()
    mirror.start()
    mirror.ready.wait(SOON)
    with serving_in_thread(
        lambda: App(ServerOptions(port=0, upstreams=all_to(mirror.port)))
    ) as running:
        yield running, mirror


VALUES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=40)


@settings(max_examples=examples(60))
@given(
    body=st.binary(max_size=3_000)
    | st.binary(min_size=1, max_size=3).map(lambda one: one * 70_000),
    headers=st.dictionaries(
        st.text("abc-9", min_size=1, max_size=9).map("x-m{}".format), VALUES, max_size=5
    ),
)
def test_any_body_and_headers_pass_both_ways(
    mirrored: tuple[RunningServer, Mirror], body: bytes, headers: dict[str, str]
):
    running, mirror = mirrored
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=SOON)
    connection.request("POST", "/v1/responses", body, headers)
    response = connection.getresponse()
    assert response.read() == body
    assert {name: response.headers[name] for name in headers} == headers
    received = mirror.received.pop()
    assert received.body == body
    assert {name: value for name, value in received.headers if name in headers} == headers
    connection.close()
