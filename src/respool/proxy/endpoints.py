"""Endpoints of the proxy itself: health, metrics and originals; the dashboard is beside them.

The health endpoint answers 200 as long as the proxy runs. If the store cannot be used or the
circuit breaker is open, requests still pass: nothing may take the proxy out of service for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal

import msgspec

from ..store import SQLiteStore, Store, StoreUnavailable
from .asgi import ProxyError, Receive, Request, Scope, Send, send_response
from .auth import ANONYMOUS, owner_of
from .breaker import BreakerState
from .metrics import BREAKER_OPEN, CONTENT_TYPE, DROPPED_RECORDS, STORE_USABLE, Metrics
from .version import installed_version

Endpoint = Callable[[Scope, Receive, Send], Awaitable[None]]

HEALTH: Final = "/healthz"
METRICS: Final = "/metrics"
ORIGINALS: Final = "/respool/originals/"
_JSON: Final = (b"content-type", b"application/json")
# The output of a tool may be hostile HTML: browsers must show it as text.
_AS_TEXT: Final = (
    (b"content-type", b"text/plain; charset=utf-8"),
    (b"content-security-policy", b"default-src 'none'; sandbox"),
)


def is_own(request: Request) -> bool:
    """True if a request is for respool itself; `/` only if a browser asks for a page."""
    path = request.path
    if path == "/":
        return request.method == "GET" and b"text/html" in request.named.get(b"accept", b"")
    return path in (HEALTH, METRICS, "/respool") or path.startswith("/respool/")


def endpoint_for(endpoints: Mapping[str, Endpoint], path: str) -> Endpoint:
    """The endpoint with this path, else that of the longest folder above it."""
    found = endpoints.get(path)
    while found is None and path:
        path = path.rstrip("/").rpartition("/")[0]
        found = endpoints.get(f"{path}/") if path else None
    if found is None:
        raise ProxyError(404, "unknown", "there is no such page.")
    return found


async def bare_health(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Answer that the proxy is up, without any detail."""
    await send_response(send, 200, b'{"status":"ok"}', _JSON)


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the proxy."""

    status: Literal["ok", "degraded"]
    version: str
    mode: Literal["compact", "observe"]
    store: str  # `ok`, or a code for the problem
    circuit_breaker: BreakerState


class HealthEndpoint:
    """Answers with the state of store and circuit breaker."""

    def __init__(
        self, store: SQLiteStore, breaker: Callable[[], BreakerState], *, observe: bool
    ) -> None:
        self._store = store
        self._breaker = breaker
        self._observe = observe
        self._counted_drops = 0

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer in JSON."""
        health = await asyncio.to_thread(self.check)
        await send_response(send, 200, msgspec.json.encode(health), _JSON)

    def check(self) -> Health:
        """The current state."""
        problem, breaker = self._store.last_error(), self._breaker()
        is_well = problem is None and breaker.phase == "closed"
        return Health(
            status="ok" if is_well else "degraded",
            version=installed_version(),
            mode="observe" if self._observe else "compact",
            store=problem or "ok",
            circuit_breaker=breaker,
        )

    def update(self, metrics: Metrics) -> None:
        """Update the metrics that requests do not count."""
        metrics.set(BREAKER_OPEN, float(self._breaker().phase != "closed"))
        before, self._counted_drops = self._counted_drops, self._store.dropped
        if self._counted_drops > before:
            metrics.add(DROPPED_RECORDS, by=self._counted_drops - before)


class MetricsEndpoint:
    """Answers with all metrics in Prometheus's text format."""

    def __init__(self, metrics: Metrics, health: HealthEndpoint) -> None:
        self._metrics = metrics
        self._health = health

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer in text."""
        self._health.update(self._metrics)  # in the event loop, where requests are counted too
        text = await asyncio.to_thread(self._render)
        await send_response(send, 200, text.encode(), (b"content-type", CONTENT_TYPE))

    def _render(self) -> str:
        self._metrics.set(STORE_USABLE, float(self._health.check().store == "ok"))
        return self._metrics.render()


class OriginalsEndpoint:
    """Answers with the original behind a reference, for the API key whose request had it."""

    def __init__(self, store: Store, salt: Callable[[], bytes]) -> None:
        self._store = store
        self._salt = salt

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer with the text that the path's reference leads to."""
        if scope["method"] not in ("GET", "HEAD"):
            raise ProxyError(405, "method", "originals can only be read.")
        owner = owner_of(scope["headers"], scope["query_string"], self._salt())
        if owner == ANONYMOUS:
            raise ProxyError(
                401, "key", "an original is given to the API key whose request had it."
            )
        ref = scope["path"].removeprefix(ORIGINALS)
        try:
            text = await asyncio.to_thread(self._store.original, ref, owner)
        except StoreUnavailable as error:
            raise ProxyError(
                503, "store", f"the store cannot be read now ({error.reason})."
            ) from None
        if text is None:  # malformed, unknown or another owner's: the answer is the same
            raise ProxyError(
                404, "unknown", "no original of this key is kept under that reference."
            )
        await send_response(send, 200, text.encode("utf-8", "surrogatepass"), *_AS_TEXT)
