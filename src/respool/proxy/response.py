"""The response: relayed to the client chunk by chunk, and never ended before upstream ended it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import aiohttp

from .asgi import Headers, Send, downstream_headers, without_length
from .client import CLIENT_ERRORS
from .log import LogEntry, Outcome, elapsed_ms
from .middleware import InFlight, Middleware

_BODY: Final = "http.response.body"
_BODILESS: Final = (204, 304)


class UpstreamClosed(Exception):
    """Upstream closed the connection within its response; the client's must be closed too."""


class Observer:
    """Reports the progress of a response to the middleware, which cannot break it."""

    def __init__(self, middleware: Middleware, flight: InFlight | None, entry: LogEntry) -> None:
        self._middleware = middleware
        self._flight = flight  # None: not to be reported, or the middleware has failed
        self._entry = entry

    def started(self, status: int, headers: Headers) -> None:
        """The response has started."""
        self._call(self._middleware.response_started, status, headers)

    def sent(self, chunk: bytes) -> None:
        """The client has received a chunk."""
        self._call(self._middleware.chunk_sent, chunk)

    async def settle(self) -> None:
        """Wait, but not for long, until what the client has received is read."""
        if self._flight is not None and self._flight.reader is not None:
            await self._flight.reader.settle()

    def ended(self, outcome: Outcome) -> None:
        """The attempt is over."""
        self._call(self._middleware.ended, outcome)
        self._flight = None

    def _call(self, method: Callable[..., None], *given: Any) -> None:
        if self._flight is not None:
            try:
                method(self._flight, *given)
            except Exception as error:  # noqa: BLE001 - law 9: middleware breaks no response
                self._flight = None
                self._entry.note = f"middleware failed: {type(error).__name__}"


async def relay(
    response: aiohttp.ClientResponse,
    *,
    send: Send,
    read_ahead: bytes,
    added: Headers,
    observer: Observer,
    entry: LogEntry,
) -> None:
    """Relay a response to the client; `read_ahead` is the part of its body that was read before."""
    headers = downstream_headers(response.raw_headers, added)
    if response.status in _BODILESS:
        headers = without_length(headers)
    entry.status = response.status
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    observer.started(response.status, tuple(headers))
    content = response.content

    async def send_chunk(chunk: bytes, *, more: bool = True) -> None:
        await send({"type": _BODY, "body": chunk, "more_body": more})
        entry.bytes_down += len(chunk)
        observer.sent(chunk)

    try:
        chunk = read_ahead or await content.readany()
        entry.first_byte_ms = elapsed_ms(entry)
        while chunk and not content.at_eof():
            await send_chunk(chunk)
            chunk = await content.readany()
    except CLIENT_ERRORS as error:
        # What came before the error is only to be had this way.
        left = content._read_nowait(-1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        await send_chunk(left)
        raise UpstreamClosed from error
    await send_chunk(chunk, more=False)
