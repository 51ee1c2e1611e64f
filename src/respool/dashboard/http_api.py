"""ASGI app of the dashboard: its page, its API, its security headers."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

import msgspec

from ..store import SQLiteStore, StoreUnavailable
from .page import content_security_policy, page
from .queries import DashboardQueries, ProxyStatus, QueryError, parse_query

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


API: Final = "/respool/api/"
_MAX_CONCURRENT: Final = 2  # concurrent queries: forwarded requests have priority
_MAX_WAITING: Final = 64


class Dashboard:
    """The page and its read-only API.

    Access is checked before it is called.
    """

    def __init__(self, store: SQLiteStore, proxy: ProxyStatus) -> None:
        self._queries = DashboardQueries(store, proxy)
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)
        self._waiting = 0

    @property
    def routes(self) -> Mapping[str, Dashboard]:
        """Paths of the dashboard in the proxy's router."""
        return {"/": self, "/respool/": self}

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            await self._respond(scope, send)
        except QueryError as error:
            body = msgspec.json.encode({"error": error.why})
            more = ((b"allow", b"GET"),) if error.status == 405 else ()
            await send_response(send, error.status, JSON_TYPE, body, *more)

    async def _respond(self, scope: Scope, send: Send) -> None:
        path: str = scope["path"]
        if scope["method"] != "GET":
            raise QueryError(405, "Here one can only look: GET.")
        if path == "/":
            csp = (b"content-security-policy", content_security_policy())
            await send_response(send, 200, b"text/html; charset=utf-8", page(), csp)
            return
        question = self._queries.endpoints.get(path.removeprefix(API))
        if question is None or not path.startswith(API):
            raise QueryError(404, "There is nothing of that name here.")
        if is_cross_site(scope):
            raise QueryError(403, "This is not for pages of other sites.")
        query = parse_query(scope["query_string"])
        found = await self._run_query(lambda: msgspec.json.encode(question(query)))
        await send_if_changed(scope, send, found)

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
