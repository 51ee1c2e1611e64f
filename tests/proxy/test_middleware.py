"""Input of a middleware, its possible changes, and the isolation of its faults."""

from __future__ import annotations

import asyncio
import gzip
import json
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import brotli  # pyright: ignore[reportMissingTypeStubs]
import msgspec
import pytest
import zstandard

from respool.proxy.asgi import Headers
from respool.proxy.log import Outcome
from respool.proxy.middleware import ErrorResponse, InFlight, ParsedRequest, PassThrough
from respool.proxy.server_options import TransferLimits
from tests.proxy.sockets import (
    CHUNKED,
    OK,
    ReceivedRequest,
    ask,
    get,
    post,
    proxy,
    reply_with,
    run,
    until,
)

NO = b"HTTP/1.1 400 Bad Request\r\nX-Why: 1\r\nContent-Length: 3\r\n\r\nno!"


class Ear:
    """Remembers the lifecycle of one attempt."""

    def __init__(self, breaks: bool = False) -> None:
        self.status = 0
        self.chunks: list[bytes] = []
        self.ends: list[Outcome] = []
        self._breaks = breaks

    def started(self, status: int) -> None:
        self.status = status

    def seen(self, chunk: bytes) -> None:
        self.chunks.append(chunk)
        if self._breaks:
            raise ValueError

    def ended(self, outcome: Outcome) -> None:
        self.ends.append(outcome)


@dataclass
class Outgoing:
    """A request to send, and the listener of its response."""

    body: bytes | None = None
    headers: Headers = ()
    judged: bool = False
    tap: Ear | None = None


UNCHANGED = Outgoing()


class Heedful(PassThrough):
    """Remembers what it was shown, and does as it is told."""

    reads_bodies = True

    def __init__(
        self,
        outgoing: Callable[[ParsedRequest], Outgoing] = lambda _: UNCHANGED,
        again: Callable[[ErrorResponse], Outgoing | None] = lambda _: None,
    ) -> None:
        self.shown: list[ParsedRequest] = []
        self.answers: list[ErrorResponse] = []
        self.life: list[str] = []
        self._outgoing, self._again = outgoing, again
        self._ears: list[tuple[InFlight, Ear]] = []

    async def start(self) -> None:
        self.life.append("start")

    async def stop(self) -> None:
        self.life.append("stop")

    async def request_parsed(self, request: ParsedRequest) -> InFlight:
        self.shown.append(request)
        return self._flight(request, self._outgoing(request))

    async def error_received(self, flight: InFlight, error: ErrorResponse) -> InFlight | None:
        assert flight.request is self.shown[-1]
        self.answers.append(error)
        following = self._again(error)
        return None if following is None else self._flight(flight.request, following)

    def response_started(self, flight: InFlight, status: int, headers: Headers) -> None:
        for ear in self._of(flight):
            ear.started(status)

    def chunk_sent(self, flight: InFlight, chunk: bytes) -> None:
        for ear in self._of(flight):
            ear.seen(chunk)

    def ended(self, flight: InFlight, outcome: Outcome) -> None:
        for ear in self._of(flight):
            ear.ended(outcome)

    def _flight(self, request: ParsedRequest, outgoing: Outgoing) -> InFlight:
        made = InFlight(
            request=request,
            body=outgoing.body,
            response_headers=outgoing.headers,
            is_retriable=outgoing.judged,
        )
        if outgoing.tap is not None:
            self._ears.append((made, outgoing.tap))
        return made

    def _of(self, flight: InFlight) -> list[Ear]:
        return [ear for one, ear in self._ears if one is flight]


def test_it_lives_as_long_as_the_server():
    middleware = Heedful()

    async def case() -> None:
        async with proxy(middleware=middleware):
            assert middleware.life == ["start"]

    run(case)
    assert middleware.life == ["start", "stop"]


def test_what_it_is_shown():
    middleware = Heedful()

    async def case() -> None:
        async with proxy(middleware=middleware) as standing:
            await ask(
                standing.port, post("/v1/messages?beta=true", b'{"a":1}', "X-Respool-Bypass: 1")
            )
            await ask(standing.port, post("/v1beta/models/g:streamGenerateContent", b"{}"))
            await ask(standing.port, post("/v1/messages/count_tokens", b"{}"))
            await ask(standing.port, post("/v1/files", b"{}"))
            await ask(standing.port, get("/v1/messages"))

    run(case)
    first, second, third = middleware.shown
    assert (first.method, first.path, first.query) == ("POST", "/v1/messages", "beta=true")
    assert (first.format, first.operation, first.model) == ("anthropic", "generate", None)
    assert first.body == b'{"a":1}'
    assert (b"x-respool-bypass", b"1") in first.headers
    assert (second.format, second.model, second.stream) == ("gemini", "g", True)
    assert third.operation == "count"


ENCODED = {
    "gzip": gzip.compress(b'{"a":1}', mtime=0),
    "br": brotli.compress(b'{"a":1}'),
    "zstd": zstandard.ZstdCompressor().compress(b'{"a":1}'),
}


@pytest.mark.parametrize("name", ENCODED)
def test_a_compressed_body_is_shown_plain_and_goes_up_as_it_came(name: str):
    middleware = Heedful()

    async def case() -> None:
        async with proxy(middleware=middleware) as standing:
            raw = post("/v1/messages", ENCODED[name], f"Content-Encoding: {name}")
            await ask(standing.port, raw)
            (received,) = standing.behind.received
            assert received.body == ENCODED[name]
            assert received.named("content-encoding") == [name]

    run(case)
    assert middleware.shown[0].body == b'{"a":1}'


def test_a_changed_body_goes_up_plain():
    middleware = Heedful(lambda _: Outgoing(b"shorter", ((b"x-respool-saved", b"1"),)))

    async def case() -> None:
        async with proxy(middleware=middleware) as standing:
            body = ENCODED["gzip"]
            extra = ("Content-Encoding: gzip", "Content-MD5: x", "X-Api-Key: k")
            reply = await ask(standing.port, post("/v1/messages", body, *extra))
            (received,) = standing.behind.received
            assert (received.body, received.named("content-length")) == (b"shorter", ["7"])
            assert received.named("content-encoding") == received.named("content-md5") == []
            assert received.named("x-api-key") == ["k"]
            assert reply.headers[-1] == (b"x-respool-saved", b"1")
            assert standing.records[0].bytes_up == 7

    run(case)


def test_a_body_of_megabytes_that_was_changed_arrives_whole():
    large = bytes(range(256)) * 12_000
    middleware = Heedful(lambda _: Outgoing(large))

    async def case() -> None:
        async with proxy(middleware=middleware) as standing:
            await ask(standing.port, post("/v1/messages"))
            assert standing.behind.received[0].body == large

    run(case)


BOMB = gzip.compress(bytes(30_000_000))
NOT_SHOWN = [
    (post("/v1/messages", BOMB, "Content-Encoding: gzip"), BOMB, "too large once decoded"),
    (post("/v1/messages", b"x", "Content-Encoding: gzip"), b"x", "not decodable"),
    (post("/v1/messages", b"x", "Content-Encoding: rot13"), b"x", "not decodable"),
    (post("/v1/messages", b"x" * 5_000_000), b"x" * 5_000_000, "too large"),
    (
        b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2dc6c0\r\n" + b"y" * 3_000_000 + b"\r\n0\r\n\r\n",
        b"y" * 3_000_000,
        "too large",
    ),
]


@pytest.mark.parametrize(("raw", "body", "why"), NOT_SHOWN, ids=[case[2] for case in NOT_SHOWN])
def test_what_cannot_be_looked_at_goes_up_as_it_came(raw: bytes, body: bytes, why: str):
    middleware = Heedful()

    async def case() -> None:
        limits = TransferLimits(body_bytes=2_000_000, drain_seconds=1.0)
        async with proxy(middleware=middleware, limits=limits) as standing:
            assert (await ask(standing.port, raw, quiet=3)).body == b"ok"
            assert standing.behind.received[0].body == body
            assert why in (standing.records[0].note or "")

    run(case)
    assert middleware.shown == []


def test_no_more_is_held_than_may_be():
    """While one large body is being looked at, there is no room for a second: it goes unread."""

    async def case() -> None:
        looking, release = asyncio.Event(), asyncio.Event()

        class Slow(Heedful):
            async def request_parsed(self, request: ParsedRequest) -> InFlight:
                self.shown.append(request)
                looking.set()
                await release.wait()
                return InFlight(request=request)

        middleware = Slow()
        body = b"x" * 1_500_000
        limits = TransferLimits(total_bytes=2_600_000, drain_seconds=1.0)
        async with proxy(middleware=middleware, limits=limits) as standing:
            first = asyncio.create_task(ask(standing.port, post("/v1/messages", body)))
            await looking.wait()
            assert (await ask(standing.port, post("/v1/messages", body))).body == b"ok"
            release.set()
            assert (await first).body == b"ok"
            assert len(middleware.shown) == 1
            assert [received.body for received in standing.behind.received] == [body, body]
            await ask(standing.port, post("/v1/messages", body))
            assert len(middleware.shown) == 2  # and there is room again

    run(case)


def test_middleware_that_fails_changes_nothing():
    def fail(_: object) -> Outgoing:
        raise ZeroDivisionError

    async def case() -> None:
        async with proxy(middleware=Heedful(fail)) as standing:
            assert (await ask(standing.port, post("/v1/messages", b"{ }"))).body == b"ok"
            assert standing.behind.received[0].body == b"{ }"
            assert standing.records[0].note == "middleware failed: ZeroDivisionError"
        async with proxy(reply_with(NO), Heedful(lambda _: Outgoing(b"1"), fail)) as standing:
            assert (await ask(standing.port, post("/v1/messages"))).body == b"no!"

    run(case)


def test_a_refused_change_is_tried_again():
    bodies = iter([b"second", b"third", b"fourth"])
    middleware = Heedful(lambda _: Outgoing(b"first"), lambda _: Outgoing(next(bodies)))

    async def case() -> None:
        async with proxy(reply_with(NO, OK), middleware) as standing:
            reply = await ask(standing.port, post("/v1/messages"))
            assert (reply.status, reply.body) == (200, b"ok")
            assert [received.body for received in standing.behind.received] == [b"first", b"second"]
            assert standing.records[0].outcome == "complete"

    run(case)
    (answer,) = middleware.answers
    assert (answer.status, answer.body) == (400, b"no!")
    assert (b"x-why", b"1") in answer.headers


def test_it_is_not_tried_for_ever_and_the_last_word_is_the_providers():
    middleware = Heedful(lambda _: Outgoing(b"first"), lambda _: Outgoing(b"more"))

    async def case() -> None:
        async with proxy(reply_with(NO), middleware) as standing:
            reply = await ask(standing.port, post("/v1/messages"))
            assert (reply.status, reply.body) == (400, b"no!")
            assert len(standing.behind.received) == 3

    run(case)


NOT_AGAIN = [
    (OK, Outgoing(b"changed")),
    (b"HTTP/1.1 503 No\r\nContent-Length: 3\r\n\r\nno!", Outgoing(b"changed")),
    (NO, UNCHANGED),
    (
        b"HTTP/1.1 400 No\r\nContent-Length: 3000000\r\n\r\n" + b"z" * 3_000_000,
        Outgoing(b"changed"),
    ),
]


@pytest.mark.parametrize(("answer", "outgoing"), NOT_AGAIN)
def test_what_is_not_asked_again(answer: bytes, outgoing: Outgoing):
    middleware = Heedful(lambda _: outgoing, lambda _: Outgoing(b"again"))

    async def case() -> None:
        async with proxy(reply_with(answer), middleware) as standing:
            reply = await ask(standing.port, post("/v1/messages"), quiet=2)
            assert reply.body == answer.partition(b"\r\n\r\n")[2]
            assert len(standing.behind.received) == 1

    run(case)
    assert middleware.answers == []


def test_an_error_is_shown_plain_and_passed_down_as_it_came():
    packed = gzip.compress(b'{"error":1}', mtime=0)
    head = b"HTTP/1.1 400 No\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    middleware = Heedful(lambda _: Outgoing(b"changed"))

    async def case() -> None:
        async with proxy(reply_with(head + packed), middleware) as standing:
            assert (await ask(standing.port, post("/v1/messages"))).body == packed

    run(case)
    assert json.loads(middleware.answers[0].body) == {"error": 1}


def test_a_tap_hears_all_after_the_client_has_it():
    async def case() -> None:
        ear = Ear()
        go_on = asyncio.Event()

        async def stream(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            writer.write(CHUNKED + b"2\r\nab\r\n")
            await go_on.wait()
            writer.write(b"2\r\ncd\r\n0\r\n\r\n")

        async with proxy(stream, Heedful(lambda _: Outgoing(tap=ear))) as standing:
            asked = asyncio.create_task(ask(standing.port, post("/v1/messages"), quiet=5))
            await until(lambda: ear.chunks)
            assert (ear.status, ear.chunks, ear.ends) == (200, [b"ab"], [])
            go_on.set()
            assert (await asked).joined == b"abcd"
            await until(lambda: ear.ends)
            assert (b"".join(ear.chunks), ear.ends) == (b"abcd", ["complete"])

    run(case)


def test_a_tap_that_fails_breaks_nothing():
    ear = Ear(breaks=True)

    async def case() -> None:
        async with proxy(middleware=Heedful(lambda _: Outgoing(tap=ear))) as standing:
            assert (await ask(standing.port, post("/v1/messages"))).body == b"ok"
            await until(lambda: standing.records)
            assert standing.records[0].note == "middleware failed: ValueError"

    run(case)
    assert ear.chunks == [b"ok"]


def test_a_tap_hears_how_it_ended():
    async def case() -> None:
        async def breaks(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            writer.write(CHUNKED + b"2\r\nab\r\n")
            await writer.drain()
            await asyncio.sleep(0.05)
            writer.close()

        async def closes(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            writer.close()

        for script, how in ((breaks, "upstream_closed"), (closes, "unreachable")):
            ear = Ear()
            async with proxy(script, Heedful(lambda _, ear=ear: Outgoing(tap=ear))) as standing:
                await ask(standing.port, post("/v1/messages"), quiet=2)
            assert ear.ends == [how]
        first, second = Ear(), Ear()
        middleware = Heedful(lambda _: Outgoing(b"1", tap=first), lambda _: Outgoing(tap=second))
        async with proxy(reply_with(NO, OK), middleware) as standing:
            await ask(standing.port, post("/v1/messages"))
        assert (first.ends, second.ends) == (["retried"], ["complete"])

    run(case)


def test_a_tap_hears_that_the_client_went_away():
    async def case() -> None:
        ear = Ear()

        async def hang(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            writer.write(CHUNKED + b"2\r\nab\r\n")
            await asyncio.sleep(60)

        async with proxy(hang, Heedful(lambda _: Outgoing(tap=ear))) as standing:
            reader, writer = await asyncio.open_connection("127.0.0.1", standing.port)
            writer.write(post("/v1/messages"))
            await reader.readuntil(b"ab")
            writer.close()
            await until(lambda: ear.ends)
            assert ear.ends == ["client_closed"]

    run(case)


def test_a_client_that_leaves_while_its_request_is_looked_at_never_reaches_upstream():
    async def case() -> None:
        class Slow(Heedful):
            async def request_parsed(self, request: ParsedRequest) -> InFlight:
                self.shown.append(request)
                await asyncio.sleep(60)
                return InFlight(request=request)

        middleware = Slow()
        async with proxy(middleware=middleware) as standing:
            _, writer = await asyncio.open_connection("127.0.0.1", standing.port)
            writer.write(post("/v1/messages"))
            await until(lambda: middleware.shown)
            writer.close()
            await until(lambda: standing.records)
            assert (standing.records[0].outcome, standing.behind.connections) == (
                "client_closed",
                0,
            )

    run(case)


def test_nothing_is_asked_of_middleware_that_does_not_read():
    class Blind(Heedful):
        reads_bodies = False

    middleware = Blind()

    async def case() -> None:
        async with proxy(middleware=middleware) as standing:
            await ask(standing.port, post("/v1/messages", b"x", "Content-Encoding: gzip"))
            assert standing.records[0].note is None

    run(case)
    assert middleware.shown == []


def test_what_went_up_is_let_go_when_the_answer_begins():
    class Watched(ParsedRequest, frozen=True, weakref=True):
        pass

    class Watching(PassThrough):
        reads_bodies = True

        async def request_parsed(self, request: ParsedRequest) -> InFlight:
            one = Watched(**msgspec.structs.asdict(request))
            made.append(weakref.ref(one))
            return InFlight(request=one, body=b"x" * 1000)

    made: list[weakref.ref[ParsedRequest]] = []

    async def case() -> None:
        go_on = asyncio.Event()

        async def stream(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            writer.write(CHUNKED + b"2\r\nab\r\n")
            await go_on.wait()
            writer.write(b"0\r\n\r\n")

        async with proxy(stream, Watching()) as standing:
            reader, writer = await asyncio.open_connection("127.0.0.1", standing.port)
            writer.write(post("/v1/messages"))
            await reader.readuntil(b"ab")
            await until(lambda: made[0]() is None)
            go_on.set()
            await reader.readuntil(b"0\r\n\r\n")
            writer.close()

    run(case)
