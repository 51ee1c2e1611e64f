"""Nobody can make the proxy connect elsewhere, tell secrets, or wait for the slow."""

from __future__ import annotations

import asyncio
import json
import socket

import msgspec
import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from respool.proxy import server
from respool.proxy.app import App
from respool.proxy.asgi import Receive, Scope, Send, send_response
from respool.proxy.client import Client
from respool.proxy.log import LogEntry
from respool.proxy.server import serving
from respool.proxy.server_options import ServerOptions, TransferLimits, upstreams_of
from tests.proxy.sockets import (
    CHUNKED,
    OK,
    SOON,
    ReceivedRequest,
    ask,
    get,
    post,
    proxy,
    reply_with,
    run,
    until,
    upstream,
)

TOKEN = "a-token-of-enough-length"

ELSEWHERE = [
    "GET http://127.0.0.1:{trap}/x HTTP/1.1",
    "GET http://user@127.0.0.1:{trap}/x HTTP/1.1",
    "GET //127.0.0.1:{trap}/x HTTP/1.1",
    "GET /@127.0.0.1:{trap}/x HTTP/1.1",
    "GET @127.0.0.1:{trap}/x HTTP/1.1",
    "GET :{trap}/x HTTP/1.1",
    "GET .127.0.0.1:{trap}/x HTTP/1.1",
    "GET /x/../../@127.0.0.1:{trap} HTTP/1.1",
    "GET /%2e%2e/%2E%2e/x HTTP/1.1",
    "GET /..%2f..%2fx HTTP/1.1",
    "GET /..%5c..%5cx HTTP/1.1",
    "GET /%2F%2F127.0.0.1:{trap}/x HTTP/1.1",
    "GET /http://127.0.0.1:{trap}/x HTTP/1.1",
    "GET /v1/x?url=http://127.0.0.1:{trap}/ HTTP/1.1",
    "GET /v1/x#@127.0.0.1:{trap}/ HTTP/1.1",
    "GET \\\\127.0.0.1:{trap}\\x HTTP/1.1",
    "CONNECT 127.0.0.1:{trap} HTTP/1.1",
    "OPTIONS * HTTP/1.1",
]


def test_no_request_reaches_another_host():
    async def case() -> None:
        async with upstream() as trap, proxy() as standing:
            for line in ELSEWHERE:
                hosts = f"Host: 127.0.0.1:{trap.port}\r\nX-Forwarded-Host: 127.0.0.1:{trap.port}"
                raw = f"{line.format(trap=trap.port)}\r\n{hosts}\r\n\r\n".encode()
                reply = await ask(standing.port, raw)
                assert reply.raw == b"" or reply.status in (200, 400), line
            assert trap.connections == 0
            for received in standing.behind.received:
                assert received.named("host") == [f"127.0.0.1:{standing.behind.port}"]
                assert received.target.startswith("/")
                assert ".." not in received.target.replace("%2e", ".").replace("%2E", ".")

    run(case)


def test_a_redirect_is_passed_down_and_not_followed():
    async def case() -> None:
        async with upstream() as trap:
            there = b"http://127.0.0.1:%d/x" % trap.port
            for status in (b"301", b"302", b"303", b"307", b"308"):
                head = b"HTTP/1.1 %s Go\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n"
                async with proxy(reply_with(head % (status, there))) as standing:
                    reply = await ask(standing.port, post("/v1/messages"))
                    assert reply.status == int(status)
                    assert (b"location", there) in reply.headers
            assert trap.connections == 0

    run(case)


KEYS = [
    (post("/v1/messages", b"{}", "X-Api-Key: k"), "anthropic"),
    (post("/v1/messages/batches", b"{}", "Anthropic-Version: 1"), "anthropic"),
    (get("/v1/models", "X-Api-Key: k"), "anthropic"),
    (get("/v1/models", "Authorization: Bearer sk-ant-1"), "anthropic"),
    (get("/v1/models", "Authorization: Bearer sk-1"), "openai"),
    (post("/v1/responses", b"{}", "Authorization: Bearer sk-1"), "openai"),
    (post("/v1/embeddings", b"{}"), "openai"),
    (get("/v1beta/models", "X-Goog-Api-Key: k"), "gemini"),
    (get("/v1beta/models?key=k"), "gemini"),
    (post("/v1beta/models/g:generateContent", b"{}"), "gemini"),
]


def test_a_request_reaches_the_provider_that_its_key_names_and_no_other():
    async def case() -> None:
        async with upstream() as a, upstream() as o, upstream() as g:
            all_of_them = {"anthropic": a, "openai": o, "gemini": g}
            urls = [f"{name}=http://127.0.0.1:{one.port}" for name, one in all_of_them.items()]
            async with serving(App(ServerOptions(port=0, upstreams=upstreams_of(urls)))) as running:
                for raw, name in KEYS:
                    assert (await ask(running.port, raw)).status == 200
                    received = {n: len(one.received) for n, one in all_of_them.items()}
                    assert received == {n: int(n == name) for n in all_of_them}, raw
                    all_of_them[name].received.clear()

    run(case)


def test_a_token_is_asked_for_and_goes_no_further():
    async def case() -> None:
        async with proxy(token=TOKEN) as standing:
            for raw in (
                post("/v1/messages"),
                post("/respool-token/wrong/v1/messages"),
                post(f"/respool-token/{TOKEN}x/v1/messages"),
                post("/v1/messages", b"{}", "X-Respool-Token: wrong"),
                post("/v1/messages", b"{}", "X-Respool-Token: \xff"),
                get("/respool/x"),
                get("/metrics"),
            ):
                reply = await ask(standing.port, raw)
                assert reply.status == 401
                assert (b"x-respool-error", b"token") in reply.headers
            assert standing.behind.connections == 0
            await ask(standing.port, post(f"/respool-token/{TOKEN}/v1/messages?a=1"))
            await ask(standing.port, post("/v1/messages", b"{}", f"X-Respool-Token: {TOKEN}"))
            one, two = standing.behind.received
            assert (one.target, two.target) == ("/v1/messages?a=1", "/v1/messages")
            assert TOKEN not in f"{one.headers}{two.headers}"
            assert (await ask(standing.port, get("/healthz"))).status == 200

    run(case)


async def _page(scope: Scope, _receive: Receive, send: Send) -> None:
    await send_response(send, 200, f"{scope['root_path']}|{scope['path']}".encode())


FOREIGN = [
    ("localhost", None, 200),
    ("localhost:7733", None, 200),
    ("127.0.0.1:7733", "http://127.0.0.1:7733", 200),
    ("[::1]:7733", None, 200),
    ("LOCALHOST", None, 200),
    ("evil.com", None, 403),
    ("localhost.evil.com", None, 403),
    ("127.0.0.1.evil.com:7733", None, 403),
    ("user@localhost@evil.com", None, 403),
    ("[::1", None, 403),
    ("", None, 403),
    ("localhost:7733", "http://evil.com", 403),
    ("localhost:7733", "http://localhost:9999", 403),
    ("localhost:7733", "null", 403),
]


def test_pages_of_other_sites_see_nothing():
    async def case() -> None:
        pages = {"/": _page, "/respool/": _page, "/metrics": _page}
        async with proxy(endpoints=pages) as standing:
            for host, origin, status in FOREIGN:
                for path in ("/", "/respool/data", "/metrics", "/healthz"):
                    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Accept: text/html"]
                    lines += [f"Origin: {origin}"] if origin else []
                    reply = await ask(standing.port, "\r\n".join(lines).encode() + b"\r\n\r\n")
                    assert reply.status == status, (host, origin, path)
            assert (await ask(standing.port, get("/respool/data"))).body == b"|/respool/data"
            assert (await ask(standing.port, get("/respool"))).status == 404
            assert standing.behind.connections == 0
        async with proxy(endpoints=pages, token=TOKEN) as standing:
            reply = await ask(standing.port, get(f"/respool-token/{TOKEN}/respool/data"))
            assert reply.body == f"/respool-token/{TOKEN}|/respool/data".encode()

    run(case)


REFUSED = [
    (post("/v1/messages"), 401),
    (get("/respool/x"), 401),
    (get(f"/respool-token/{TOKEN}/respool/x"), 404),
    (get(f"/respool-token/{TOKEN}/respool/x", "Origin: http://evil.com"), 403),
    (get(f"/respool-token/{TOKEN}/v1/responses", "Upgrade: websocket", "Connection: Upgrade"), 426),
    (get(f"/respool-token/{TOKEN}/v1/../x"), 400),
    (post(f"/respool-token/{TOKEN}/v1/messages"), 502),
    (get("/healthz"), 200),
    (b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000, 431),
]


def test_no_browser_keeps_what_respool_answers_itself_or_guesses_what_it_is():
    """A refusal too: a page that was refused once must not be so out of a cache for ever."""

    async def case() -> None:
        async with proxy(reply_with(b"none"), token=TOKEN) as standing:
            for raw, status in REFUSED:
                reply = await ask(standing.port, raw)
                headers = dict(reply.headers)
                assert reply.status == status, raw[:80]
                assert headers[b"cache-control"] == b"no-store"
                assert status == 431 or headers[b"x-content-type-options"] == b"nosniff"

    run(case)


SECRETS = ("key-in-bearer", "key-in-header", "key-in-query", "key-for-google", "cookie", TOKEN)


def test_no_secret_is_recorded():
    async def case() -> None:
        async with proxy(token=TOKEN) as standing:
            await ask(
                standing.port,
                post(
                    f"/respool-token/{TOKEN}/v1/messages?key=key-in-query",
                    b"{}",
                    "Authorization: Bearer key-in-bearer",
                    "X-Api-Key: key-in-header",
                    "X-Goog-Api-Key: key-for-google",
                    "Cookie: cookie",
                ),
            )
            await ask(standing.port, post(f"/respool-token/{TOKEN}x/v1/messages"))
            assert len(standing.records) == 2
            written = msgspec.json.encode(standing.records).decode()
            assert [secret for secret in SECRETS if secret in written] == []
            first = standing.records[0]
            assert (first.path, first.format, first.status) == ("/v1/messages", "anthropic", 200)
            assert (first.outcome, first.bytes_up, first.bytes_down) == ("complete", 2, 2)

    run(case)


def test_a_record_is_one_line_whatever_is_in_a_path():
    async def case() -> None:
        async with proxy() as standing:
            await ask(standing.port, get("/%0a%22" + "x" * 500))
            line = msgspec.json.encode(standing.records[0])
            assert b"\n" not in line
            assert len(json.loads(line)["path"]) == 200
            assert msgspec.json.decode(line, type=LogEntry) == standing.records[0]

    run(case)


def test_heads_that_are_too_large_or_too_slow(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "MAX_HEAD_SECONDS", 0.4)

    async def case() -> None:
        async with proxy() as standing:
            large = await ask(standing.port, b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000)
            assert large.status == 431
            fits = await ask(standing.port, get("/v1/x", "X: " + "x" * 100_000))
            assert fits.status == 200
            assert standing.behind.received[0].named("x") == ["x" * 100_000]
            slow = [await asyncio.open_connection("127.0.0.1", standing.port) for _ in range(60)]
            for number, (_, writer) in enumerate(slow):
                writer.write(b"POST / HTTP/1.1\r\nX-A"[: number % 20])
            assert (await ask(standing.port, get("/v1/x"))).status == 200
            for reader, writer in slow:
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await asyncio.wait_for(reader.readexactly(1), SOON)
                writer.close()

    run(case)


@pytest.mark.parametrize("at", [1, 5, 30, -30, -3, -2, -1])
def test_a_head_may_come_in_two_pieces_behind_another_request(at: int):
    async def case() -> None:
        async with proxy() as standing:
            second = get("/v1/b", "Upgrade: h2c", "Connection: Upgrade")
            reader, writer = await asyncio.open_connection("127.0.0.1", standing.port)
            writer.write(post("/v1/a", b"1") + second[:at])
            await asyncio.wait_for(reader.readuntil(b"ok"), SOON)
            writer.write(second[at:])
            await asyncio.wait_for(reader.readuntil(b"ok"), SOON)
            writer.close()
            assert [received.target for received in standing.behind.received] == ["/v1/a", "/v1/b"]

    run(case)


def test_a_head_behind_another_request_has_its_limits_too():
    async def case() -> None:
        async with proxy() as standing:
            endless = b"GET / HTTP/1.1\r\nX: "
            raw = post("/v1/a", b"1") + endless
            reader, writer = await asyncio.open_connection("127.0.0.1", standing.port)
            writer.write(raw)
            await asyncio.wait_for(reader.readuntil(b"ok"), SOON)
            for size in (*[10_000] * 13, 1_200):  # the last one is over 128 KB
                writer.write(b"x" * size)
                await asyncio.sleep(0.005)
            refused = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SOON)
            assert refused.startswith(b"HTTP/1.1 431 ")
            writer.close()

    run(case)


def test_a_head_that_goes_on_behind_its_end_holds_up_nobody(monkeypatch: pytest.MonkeyPatch):
    """That of HTTP/2 does; behind a body, the server was busy with no bytes at all for ever."""
    feed, fed = HttpToolsProtocol.data_received, list[bytes]()

    def counted(self: HttpToolsProtocol, data: bytes) -> None:
        fed.append(data)
        assert len(fed) < 50
        feed(self, data)

    monkeypatch.setattr(HttpToolsProtocol, "data_received", counted)

    async def case() -> None:
        async with proxy() as standing:
            reader, writer = await asyncio.open_connection("127.0.0.1", standing.port)
            writer.write(post("/v1/a", b"1") + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            await asyncio.wait_for(reader.read(), SOON)
            assert (await ask(standing.port, get("/healthz"))).status == 200
            writer.close()

    run(case)
    assert b"" not in fed


def test_a_body_that_never_comes_is_not_waited_for_for_ever():
    async def case() -> None:
        async with proxy(limits=TransferLimits(idle_seconds=0.3, drain_seconds=1.0)) as standing:
            raw = post("/v1/messages", b"x" * 100)[:-50]
            reply = await ask(standing.port, raw, quiet=2)
            assert reply.status == 408
            assert json.loads(reply.body)["error"]["type"] == "timeout_error"
            assert standing.behind.connections == 0

    run(case)


def test_a_client_that_does_not_read_stops_upstream_and_fills_no_memory():
    async def case() -> None:
        taken = 0

        async def pour(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            nonlocal taken
            writer.write(CHUNKED)
            for _ in range(4_000):
                writer.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
                await writer.drain()
                taken += 65_536

        async with proxy(pour) as standing:
            connection = socket.create_connection(("127.0.0.1", standing.port))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            connection.sendall(post("/v1/messages"))
            await until(lambda: taken)
            before = -1
            while taken != before:  # until nothing moves any more
                before = taken
                await asyncio.sleep(0.4)
            assert 0 < taken < 40_000_000  # what sockets hold; all of it would be 262 MB
            assert (await ask(standing.port, get("/healthz"))).status == 200
            connection.close()
            await asyncio.wait_for(standing.behind.lost.wait(), SOON)

    run(case)


def test_a_connection_is_used_again_and_what_is_left_over_harms_nobody():
    """Two requests on one connection, sent at once, are answered in their order."""

    async def case() -> None:
        async with proxy(reply_with(OK, OK.replace(b"ok", b"no"))) as standing:
            reader, writer = await asyncio.open_connection("127.0.0.1", standing.port)
            writer.write(post("/v1/a", b"1") + post("/v1/b", b"2"))
            assert (await asyncio.wait_for(reader.readuntil(b"ok"), SOON)).startswith(
                b"HTTP/1.1 200"
            )
            assert (await asyncio.wait_for(reader.readuntil(b"no"), SOON)).startswith(
                b"HTTP/1.1 200"
            )
            writer.close()
            assert [received.body for received in standing.behind.received] == [b"1", b"2"]
            await until(lambda: len(standing.records) == 2)
            smuggled = (
                b"POST /v1/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
                b"GET /v1/evil HTTP/1.1\r\nHost: x\r\n\r\n"
            )
            reply = await ask(standing.port, smuggled)
            assert reply.status == 400
            assert "/v1/evil" not in [received.target for received in standing.behind.received]

    run(case)


def test_few_urls_are_kept_and_none_that_may_hold_a_key() -> None:
    client = Client((), TransferLimits())
    kept = client._urls  # pyright: ignore[reportPrivateUsage]
    for number in range(1_000):
        for target in (f"http://127.0.0.1/v1/{number}%2F", f"http://127.0.0.1/{number}?key=secret"):
            for _ in range(2):
                assert str(client._url(target)) == target  # pyright: ignore[reportPrivateUsage]
    assert 0 < len(kept) < 1_000
    assert not any("?" in target for target in kept)
