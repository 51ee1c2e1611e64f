"""The forwarder: one request upstream, its response downstream, byte for byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final

import aiohttp
import msgspec

from ..regex import lazy_compile
from .access import NO_GRANT, Grant
from .asgi import ProxyError, Receive, Request, Send, downstream_headers, upstream_headers
from .auth import is_signed
from .client import CLIENT_ERRORS, NO_BODY, Client, ConnectionProblem, RequestBody, upstream_address
from .decoders import BodyTooLarge, UndecodableBody, decode_body, decode_in_thread
from .keep_alive import KeepAlive, Ping
from .log import LogEntry, Outcome
from .middleware import (
    UNCLEAR_STATUSES,
    ErrorResponse,
    InFlight,
    Middleware,
    ParsedRequest,
)
from .response import Observer, UpstreamClosed, relay
from .router import Route
from .server_options import TransferLimits, Upstream

ALWAYS_HELD: Final = 1024 * 1024  # bytes of a body that are held under all limits
_ENCODING: Final = b"content-encoding"
_ANTHROPIC_VERSION = lazy_compile(rb'"anthropic_version"\s*+:')  # in a text, quotes are escaped
_ATTEMPTS: Final = 3  # the first, one under the limit that an error names, one with the original


class ClientClosed(Exception):
    """The client closed its connection."""


class Downstream:
    """The client's connection: the body that it sends, and whether it is still open."""

    def __init__(self, receive: Receive, idle_seconds: float) -> None:
        self.is_closed = False
        self._receive = receive
        self._idle_seconds = idle_seconds
        self._is_complete = False  # the body
        self._task: asyncio.Task[None] | None = None  # cancelled when the client leaves
        self._watcher: asyncio.Task[None] | None = None

    async def read(self) -> bytes | None:
        """The next bytes of the body; None at its end."""
        if self._is_complete:
            return None
        try:
            async with asyncio.timeout(self._idle_seconds):
                message = await self._receive()
        except TimeoutError:
            raise ProxyError(408, "silence", "the rest of the request did not come.") from None
        if message["type"] == "http.disconnect":
            self.is_closed = True
            raise ClientClosed
        self._is_complete = not message.get("more_body", False)
        self._start_watcher()
        return message.get("body", b"")

    def watch(self) -> None:
        """Cancel the current task as soon as the client closes its connection.

        The watcher starts once the body is complete; until then, `read` notices.
        """
        self._task = asyncio.current_task()
        self._start_watcher()

    def _start_watcher(self) -> None:
        if self._is_complete and self._watcher is None and self._task is not None:
            self._watcher = asyncio.create_task(self._wait_for_close(self._task))

    def unwatch(self) -> None:
        """Stop watching."""
        self._task = None
        if self._watcher is not None:
            self._watcher.cancel()

    async def _wait_for_close(self, task: asyncio.Task[None]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.is_closed = True
        task.cancel()


class BodyBudget:
    """Memory for the bodies of all requests together."""

    def __init__(self, size: int) -> None:
        self.left = size


class BodyShare:
    """The share of the budget that one request takes."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._taken = 0

    def grow(self, size: int) -> bool:
        """Take memory for so many bytes in all; False: there is not enough."""
        more = size - self._taken
        if more > self._budget.left:
            return False
        self._budget.left -= more
        self._taken = size
        return True

    def release(self) -> None:
        """Give the memory back."""
        self._budget.left += self._taken
        self._taken = 0


async def read_body(
    request: Request, downstream: Downstream, max_bytes: int, share: BodyShare
) -> RequestBody:
    """Read a body; it is held if it is within the limit and the budget, else it is streamed."""
    length = _content_length(request.named)
    if length is None and b"transfer-encoding" not in request.named:
        await downstream.read()  # the empty end, so that the client can be watched
        return NO_BODY
    if length is not None and length > max_bytes:
        return RequestBody(None, _stream([], downstream), length)
    chunks: list[bytes] = []
    size = 0
    while (chunk := await downstream.read()) is not None:
        chunks.append(chunk)
        size += len(chunk)
        if size > ALWAYS_HELD and (size > max_bytes or not share.grow(size)):
            return RequestBody(None, _stream(chunks, downstream))
    return RequestBody(b"".join(chunks) if len(chunks) != 1 else chunks[0])


def _content_length(named: dict[bytes, bytes]) -> int | None:
    text = named.get(b"content-length", b"")
    return int(text) if text.isdigit() else None


async def _stream(first: list[bytes], downstream: Downstream) -> AsyncIterator[bytes]:
    """The chunks that were read already, then the rest as fast as it can be forwarded."""
    while first:
        yield first.pop(0)
    while (chunk := await downstream.read()) is not None:
        yield chunk


class Exchange(msgspec.Struct):
    """One request, its upstream, and the client that waits for the response."""

    request: Request
    route: Route
    upstream: Upstream
    downstream: Downstream
    send: Send
    entry: LogEntry
    grant: Grant = NO_GRANT
    body: RequestBody = NO_BODY
    flight: InFlight | None = None  # None: the middleware does not see it
    ping: Ping | None = None  # by which its cached prefix can be kept alive

    def release(self, share: BodyShare) -> None:
        """Drop the bodies: the response may take minutes, and nobody needs them any more."""
        self.body = NO_BODY
        if self.flight is not None:
            self.flight.release()
        share.release()


class Forwarder:
    """Sends requests upstream and relays their responses."""

    def __init__(
        self,
        client: Client,
        middleware: Middleware,
        limits: TransferLimits,
        keep_alive: KeepAlive | None = None,
    ) -> None:
        self._client = client
        self._middleware = middleware
        self._keep_alive = keep_alive  # None: no pings
        self._limits = limits
        self._budget = BodyBudget(limits.total_bytes)

    async def forward(self, exchange: Exchange) -> None:
        """Forward one request and relay its response."""
        reads = self._middleware.reads_bodies and exchange.route.format is not None
        max_bytes = max(self._limits.body_bytes, ALWAYS_HELD) if reads else ALWAYS_HELD
        share = BodyShare(self._budget)
        downstream = exchange.downstream
        try:
            exchange.body = await read_body(exchange.request, downstream, max_bytes, share)
            downstream.watch()
            if reads:
                await self._decide(exchange, share)
            await self._attempt_all(exchange, share)
        finally:
            share.release()
            downstream.unwatch()

    async def _attempt_all(self, exchange: Exchange, share: BodyShare) -> None:
        """Send a request until the middleware replaces it no more."""
        flight, keep_alive = exchange.flight, self._keep_alive
        if flight is not None and keep_alive is not None:
            keep_alive.request_began(flight)
        is_complete = False
        try:
            attempts = _ATTEMPTS
            while not await self._attempt(exchange, share, is_last=attempts == 1):
                attempts -= 1
            is_complete = True
        finally:
            if flight is not None and keep_alive is not None:
                keep_alive.request_ended(flight, exchange.ping, complete=is_complete)

    async def _decide(self, exchange: Exchange, share: BodyShare) -> None:
        """Let the middleware decide on a request, if its body can be read."""
        request = await self._parse(exchange, share)
        if request is None:
            return
        try:
            exchange.flight = await self._middleware.request_parsed(request)
        except Exception as error:  # noqa: BLE001 - law 9: the request is sent as it came
            exchange.entry.note = f"middleware failed: {type(error).__name__}"
        else:
            exchange.entry.compaction = exchange.flight.summary

    async def _parse(self, exchange: Exchange, share: BodyShare) -> ParsedRequest | None:
        """The request that the middleware decides on; None, with a note, if it is unreadable."""
        request, route, held = exchange.request, exchange.route, exchange.body.held
        if held is None or route.format is None:
            exchange.entry.note = "not read: the body is too large"
            return None
        try:
            plain = await self._decode(held, _encoding(request.headers))
            size = len(plain) + len(held)
            if plain is not held and size > ALWAYS_HELD and not share.grow(size):
                raise BodyTooLarge
        except (BodyTooLarge, UndecodableBody) as error:
            why = "too large once decoded" if isinstance(error, BodyTooLarge) else "not decodable"
            exchange.entry.note = f"not read: the body is {why}"
            return None
        if route.provider == "bedrock" and not _is_anthropic(route, plain):
            exchange.entry.note = "not read: the body is not of an Anthropic model"
            return None
        return ParsedRequest(
            method=request.method,
            path=request.path,
            query=request.query,
            headers=request.headers,
            format=route.format,
            operation=route.operation,
            model=route.model,
            stream=route.stream,
            body=plain,
            team=exchange.grant.team,
            is_over_quota=exchange.grant.exceeded is not None,
        )

    async def _decode(self, body: bytes, encoding: bytes) -> bytes:
        """A body without its content-encoding."""
        names, max_bytes = encoding.decode("latin-1"), self._limits.body_bytes
        if not names:
            return decode_body(body, names, max_bytes)
        return await asyncio.wrap_future(decode_in_thread(body, names, max_bytes))

    async def _attempt(self, exchange: Exchange, share: BodyShare, *, is_last: bool) -> bool:
        """Send a request once. False: the middleware has replaced it, and it is sent again."""
        entry, flight = exchange.entry, exchange.flight
        observer = Observer(self._middleware, flight, entry)
        outcome: Outcome = "client_closed"  # if this task is cancelled
        try:
            response = await self._send(exchange)
            try:
                retry, read_ahead = None, b""
                if flight is not None and not is_last:
                    retry, read_ahead = await self._judge(flight, response, entry)
                if retry is None:
                    added = () if flight is None else flight.response_headers
                    exchange.ping = self._ping_of(exchange)
                    exchange.release(share)
                    await relay(
                        response,
                        send=exchange.send,
                        read_ahead=read_ahead,
                        added=added,
                        observer=observer,
                        entry=entry,
                    )
                    exchange.downstream.unwatch()  # the client has all of it
                    await observer.settle()
            finally:
                response.close()
            outcome = "complete" if retry is None else "retried"
        except UpstreamClosed:
            outcome = "upstream_closed"
            entry.note = f"{upstream_address(exchange.upstream)}: closed within its answer"
            raise
        except ProxyError as error:
            outcome = "unreachable"
            entry.note = error.cause or error.code
            raise
        finally:
            entry.outcome = outcome
            if flight is not None and outcome in ("upstream_closed", "unreachable"):
                flight.error = entry.note or ""
            observer.ended(outcome)
        if retry is not None:
            exchange.flight, entry.compaction = retry, retry.summary
        return retry is None

    def _ping_of(self, exchange: Exchange) -> Ping | None:
        """The keep-alive ping of a request, while its body is held."""
        if self._keep_alive is None or exchange.flight is None:
            return None
        try:
            return self._keep_alive.candidate(exchange.flight, exchange.request, exchange.upstream)
        except Exception as error:  # noqa: BLE001 - law 9: the response is forwarded as it came
            exchange.entry.note = f"keep-alive failed: {type(error).__name__}"
            return None

    async def _send(self, exchange: Exchange) -> aiohttp.ClientResponse:
        """Send the request; returns the response, whose body is still to be read."""
        request, upstream = exchange.request, exchange.upstream
        changed = None if exchange.flight is None else exchange.flight.body
        body = exchange.body if changed is None else RequestBody(changed)
        headers = upstream_headers(
            request.headers,
            changed=changed is not None,
            signed=upstream.is_custom and is_signed(request.headers, request.query),
        )
        exchange.entry.bytes_up = body.length or len(body.held or b"")
        target = upstream.url(request.path, request.query)
        try:
            return await self._client.send(request.method, upstream, target, headers, body)
        except CLIENT_ERRORS as error:
            if exchange.downstream.is_closed:
                raise ClientClosed from None
            if isinstance(error.__cause__, ProxyError):  # from reading the client's own body
                raise error.__cause__ from None
            raise _unreachable(upstream, self._client.problem_of(error, upstream)) from None

    async def _judge(
        self, flight: InFlight, response: aiohttp.ClientResponse, entry: LogEntry
    ) -> tuple[InFlight | None, bytes]:
        """Decide on a retry after an error; returns the bytes of the error that were read, too."""
        may_retry = flight.body is not None or flight.is_retriable
        if not may_retry or not _may_be_refusal(response.status):
            return None, b""
        limits = self._limits
        read = await _read_ahead(response, limits.error_bytes, limits.error_seconds)
        if len(read) > limits.error_bytes:
            return None, read
        try:
            headers = downstream_headers(response.raw_headers, ())
            plain = await self._decode(read, _encoding(headers))
            named = tuple(pair for pair in headers if pair[0] != _ENCODING)
            error = ErrorResponse(response.status, named, plain)
            return await self._middleware.error_received(flight, error), read
        except Exception as error:  # noqa: BLE001 - law 9: the response is forwarded as it came
            entry.note = f"middleware failed: {type(error).__name__}"
            return None, read


def _is_anthropic(route: Route, body: bytes) -> bool:
    """True unless Bedrock's path, which serves any maker's models, brings another format."""
    return route.model is None or _ANTHROPIC_VERSION.search(body) is not None


def _encoding(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The content-encoding, which may be spread over several headers."""
    return b",".join(value for name, value in headers if name == _ENCODING)


def _may_be_refusal(status: int) -> bool:
    """True if a status may say that the provider does not accept what a request holds."""
    return 400 <= status < 500 or status in UNCLEAR_STATUSES


async def _read_ahead(response: aiohttp.ClientResponse, max_bytes: int, seconds: float) -> bytes:
    """Read the body of a response, up to a little over `max_bytes`, for so many seconds."""
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            while size <= max_bytes and (chunk := await response.content.readany()):
                chunks.append(chunk)
                size += len(chunk)
    except CLIENT_ERRORS:
        pass  # it fails again, or goes on, when it is relayed
    return b"".join(chunks)


def _unreachable(upstream: Upstream, problem: ConnectionProblem) -> ProxyError:
    """The error that the client receives if there is no response."""
    return ProxyError(
        504 if problem.is_timeout else 502,
        "unreachable",
        f"{upstream.origin} {problem.sentence}.",
        problem.cause,
    )
