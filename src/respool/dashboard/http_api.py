"""ASGI app of the dashboard: its page, its API, its security headers."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

import msgspec

from ..store import SQLStore, StoreUnavailable
from .page import content_security_policy, page
from .queries import (
    DashboardQueries,
    Mode,
    ProxyControl,
    ProxyStatus,
    QueryError,
    parse_query,
)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]

JSON_TYPE: Final = b"application/json"
# No caching, no MIME sniffing, no framing, no cross-origin reads.
_SECURITY_HEADERS: Final[Headers] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_CLOSED_POLICY: Final = b"default-src 'none'; frame-ancestors 'none'"


async def send_response(
    send: Send, status: int, content_type: bytes, body: bytes, *more: tuple[bytes, bytes]
) -> None:
    """Send a complete response; anything but the page may load nothing."""
    named = {key for key, _ in more}
    sealed = (
        ()
        if b"content-security-policy" in named
        else ((b"content-security-policy", _CLOSED_POLICY),)
    )
    headers = [
        (b"content-type", content_type),
        (b"content-length", b"%d" % len(body)),
        *_SECURITY_HEADERS,
        *sealed,
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_if_changed(scope: Scope, send: Send, body: bytes) -> None:
    """Send data, or 304 if the client has the same version."""
    tag = b'"%s"' % hashlib.blake2b(body, digest_size=12).hexdigest().encode()
    if dict(scope["headers"]).get(b"if-none-match") == tag:
        await send_response(send, 304, JSON_TYPE, b"", (b"etag", tag))
    else:
        await send_response(send, 200, JSON_TYPE, body, (b"etag", tag))


def is_cross_site(scope: Scope) -> bool:
    """Report whether the browser flags the request as cross-site, even without an Origin."""
    site = dict(scope["headers"]).get(b"sec-fetch-site", b"none")
    return site not in (b"none", b"same-origin")


class _ModeChange(msgspec.Struct, forbid_unknown_fields=True):
    mode: Mode


class _PinChange(msgspec.Struct, forbid_unknown_fields=True):
    conversation: str
    pinned: bool


async def read_change(scope: Scope, receive: Receive) -> bytes:
    """Read the body of a change; a form or a script of another site cannot send one.

    JSON takes a preflight request there, which is refused. Host and Origin are checked before.
    """
    kind = dict(scope["headers"]).get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != JSON_TYPE:
        raise QueryError(415, "A change is sent as application/json.")
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise QueryError(400, "The request ended before its body did.")
        body, more = body + message.get("body", b""), message.get("more_body", False)
        if len(body) > _MAX_CHANGE_BYTES:
            raise QueryError(413, "That is too long for a change.")
    return body


API: Final = "/respool/api/"
EXPORT: Final = f"{API}requests.csv"
_MAX_CHANGE_BYTES: Final = 4_096
_MAX_CONCURRENT: Final = 2  # concurrent queries: forwarded requests have priority
_MAX_WAITING: Final = 64


class Dashboard:
    """The page, the API that it reads, and the two changes that it can make.

    Access is checked before it is called.
    """

    def __init__(
        self, store: SQLStore, proxy: ProxyStatus, control: ProxyControl | None = None
    ) -> None:
        self._queries = DashboardQueries(store, proxy)
        self._control = control  # None: nothing can be changed
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)
        self._waiting = 0

    @property
    def routes(self) -> Mapping[str, Dashboard]:
        """Paths of the dashboard in the proxy's router."""
        return {"/": self, "/respool/": self}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        change = self._changes().get(scope["path"])
        try:
            if change is not None and scope["method"] == "POST":
                await self._change(scope, receive, send, change)
            else:
                await self._respond(scope, send, is_change=change is not None)
        except QueryError as error:
            body = msgspec.json.encode({"error": error.why})
            allowed = b"POST" if change is not None else b"GET"
            more = ((b"allow", allowed),) if error.status == 405 else ()
            await send_response(send, error.status, JSON_TYPE, body, *more)

    def _changes(self) -> Mapping[str, Callable[[bytes], None]]:
        """Changes by path; none without control of the proxy."""
        if self._control is None:
            return {}
        return {f"{API}mode": self._switch, f"{API}pin": self._pin}

    async def _change(
        self, scope: Scope, receive: Receive, send: Send, change: Callable[[bytes], None]
    ) -> None:
        if is_cross_site(scope):
            raise QueryError(403, "This is not for pages of other sites.")
        body = await read_change(scope, receive)

        def make() -> bytes:
            try:
                change(body)
            except msgspec.MsgspecError as error:
                raise QueryError(400, f"That is no such change: {error}.") from None
            return b"{}"

        await send_response(send, 200, JSON_TYPE, await self._run_query(make))

    def _switch(self, body: bytes) -> None:
        if self._control is not None:
            self._control.switch(msgspec.json.decode(body, type=_ModeChange).mode)

    def _pin(self, body: bytes) -> None:
        asked = msgspec.json.decode(body, type=_PinChange)
        if self._control is not None and not self._control.pin(asked.conversation, asked.pinned):
            raise QueryError(404, "There is no such conversation, or it was forgotten.")

    async def _respond(self, scope: Scope, send: Send, *, is_change: bool) -> None:
        path: str = scope["path"]
        if scope["method"] != "GET" or is_change:
            asks = "a change is sent by POST" if is_change else "here one can only look: GET"
            raise QueryError(405, f"{asks[0].upper()}{asks[1:]}.")
        if path == "/":
            csp = (b"content-security-policy", content_security_policy())
            await send_response(send, 200, b"text/html; charset=utf-8", page(), csp)
            return
        if path == EXPORT:
            await self._export(scope, send)
            return
        question = self._queries.endpoints.get(path.removeprefix(API))
        if question is None or not path.startswith(API):
            raise QueryError(404, "There is nothing of that name here.")
        if is_cross_site(scope):
            raise QueryError(403, "This is not for pages of other sites.")
        query = parse_query(scope["query_string"])
        found = await self._run_query(lambda: msgspec.json.encode(question(query)))
        await send_if_changed(scope, send, found)

    async def _export(self, scope: Scope, send: Send) -> None:
        if is_cross_site(scope):
            raise QueryError(403, "This is not for pages of other sites.")
        query = parse_query(scope["query_string"])
        table = await self._run_query(lambda: self._queries.export(query))
        named = (b"content-disposition", b'attachment; filename="respool-requests.csv"')
        await send_response(send, 200, b"text/csv; charset=utf-8", table, named)

    async def _run_query(self, query: Callable[[], bytes]) -> bytes:
        """Run a query off the event loop, limited in number."""
        if self._waiting >= _MAX_WAITING:
            raise QueryError(503, "Too many ask at once; ask again.")
        self._waiting += 1
        try:
            async with self._slots:
                return await asyncio.to_thread(query)
        except StoreUnavailable as error:
            raise QueryError(503, str(error)) from error
        finally:
            self._waiting -= 1
