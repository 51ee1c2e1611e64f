"""The proxy as an ASGI app: access, respool's own endpoints, and requests to providers."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, Literal
from urllib.parse import unquote

import msgspec

from ..dashboard.http_api import VISITOR, Dashboard
from ..dashboard.queries import BreakerStatus, CalibrationStatus, ProxyControl, ProxyStatus
from ..plugins import installed_version
from ..store import KeepAliveEvent, Retention, SQLStore, StoreUnavailable, open_store
from ..store.teams import Team
from .access import GRANT, Gate, refuse_over_quota
from .asgi import (
    ProxyError,
    Receive,
    Request,
    Scope,
    Send,
    close_delimited,
    closing,
    request_from,
    send_error,
    send_response,
    wants_websocket,
)
from .auth import (
    Admission,
    admission_of,
    may_send_cookies,
    refuse_misplaced_token,
    refuse_web_page,
    require_same_site,
    with_bearer,
    without_cookies,
    without_foreign_keys,
)
from .breaker import BreakerState
from .client import Client
from .compactor import Compactor, Mode
from .compress import COMPRESS, GUARDRAIL, BorrowedRecorder, CompressEndpoints, in_place
from .decide import Decider
from .forward import ClientClosed, Downstream, Exchange, Forwarder
from .keep_alive import KeepAlive
from .log import Log, LogEntry, entry_for, finish, log_nothing, log_to_all
from .metrics import (
    BREAKER_OPEN,
    CONTENT_TYPE,
    DROPPED_RECORDS,
    KEEP_ALIVE,
    KEEP_ALIVE_DOLLARS,
    STORE_USABLE,
    Metrics,
)
from .middleware import Middleware, PassThrough
from .provenance import Launch
from .recorder import Recorder, RecordListener
from .response import UpstreamClosed
from .router import Route, route_of, select_upstream
from .server_options import CompactionOptions, HoldoutOptions, ServerOptions, Upstream, validated
from .store_endpoints import StoreEndpoints
from .team_policies import TeamPolicies
from .tracing import span_exporter

Endpoint = Callable[[Scope, Receive, Send], Awaitable[None]]

HEALTH: Final = "/healthz"
READY: Final = "/readyz"
METRICS: Final = "/metrics"
# Browsers and crawlers ask for these by themselves; there are none.
BROWSER_FILES: Final = (
    "/favicon.ico",
    "/apple-touch-icon.png",
    "/apple-touch-icon-precomposed.png",
    "/robots.txt",
)
# Pages for a team's token, besides all below /respool/: each answers for that team.
_TEAM_PAGES: Final = frozenset({"/", "/respool", COMPRESS, GUARDRAIL, *BROWSER_FILES})
# What does not wait for a store that hangs: respool's state, and what is compacted for gateways.
_ALWAYS_ANSWERED: Final = frozenset({HEALTH, COMPRESS, GUARDRAIL, *BROWSER_FILES})
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_TRANSFER_ENCODING: Final = b"transfer-encoding"
_JSON: Final = (b"content-type", b"application/json")
_log = logging.getLogger(__name__)


class App:
    """The proxy. `endpoints` maps respool's own paths to endpoints; "/respool/" is a folder."""

    def __init__(  # noqa: PLR0913 - each is a part of the proxy
        self,
        options: ServerOptions,
        middleware: Middleware | None = None,
        endpoints: Mapping[str, Endpoint] | None = None,
        log: Log = log_nothing,
        *,
        on_stop: Callable[[], Awaitable[None]] | None = None,
        on_close: Callable[[], None] | None = None,
        keep_alive: KeepAlive | None = None,
        gate: Gate | None = None,
        meter: Callable[[Team], None] = lambda _: None,
    ) -> None:
        self.options = validated(options)
        self._gate = gate or Gate(options.token)
        self._meter = meter  # called for each request of a team that the middleware does not see
        self._middleware = PassThrough() if middleware is None else middleware
        self._endpoints = {HEALTH: bare_health, **(endpoints or {})}
        self._log = log
        self._on_stop = on_stop  # called first
        self._on_close = on_close  # called last
        self._client = Client(options.upstreams.configured(), options.limits)
        self._keep_alive = keep_alive  # None: no pings
        self._forwarder = Forwarder(self._client, self._middleware, options.limits, keep_alive)
        self._is_started = False
        self.is_ending = False  # shutting down: a balancer sends its requests elsewhere

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or follow the server's lifespan."""
        if scope["type"] == "lifespan":
            await self._follow_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    async def start(self) -> None:
        """Start, in the event loop that serves; a second call does nothing."""
        if not self._is_started:
            self._is_started = True
            await self._client.open()
            await self._middleware.start()
            if self._keep_alive is not None:
                self._keep_alive.start(self._client)

    async def stop(self) -> None:
        """Close everything; no request is open any more."""
        if self._keep_alive is not None:
            await self._keep_alive.stop()
        if self._on_stop is not None:
            await self._on_stop()
        await self._gate.close()
        await self._middleware.stop()
        await self._client.close()
        if self._on_close is not None:
            await asyncio.to_thread(self._on_close)

    async def _follow_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await self.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and log it however it ends."""
        send = close_delimited(send) if scope["http_version"] == "1.0" else send
        send = closing(send) if self.is_ending else send
        admission = admission_of(request_from(scope))
        entry = entry_for(admission.request, self.options.token)
        try:
            await self._handle(scope, admission, receive, send, entry)
        except UpstreamClosed:
            raise  # the server closes the connection, as upstream did
        except Exception as error:
            entry.note = f"failed: {type(error).__name__}"
            _log.exception("A request failed by a fault of respool")
            raise
        finally:
            finish(entry)
            self._log(entry)

    async def _handle(
        self, scope: Scope, admission: Admission, receive: Receive, send: Send, entry: LogEntry
    ) -> None:
        """Answer a request; errors of the proxy are sent in the provider's shape."""
        downstream = Downstream(receive, self.options.limits.idle_seconds)
        request = admission.request
        try:
            if is_own(request):
                await self._answer_own(scope, admission, receive, send, entry)
            else:
                await self._forward(admission, downstream, send, entry)
        except ProxyError as error:
            entry.status, entry.note = error.status, error.cause or error.code
            entry.outcome = "rejected" if entry.outcome == "own_page" else entry.outcome
            await send_error(send, None if is_own(request) else route_of(request).provider, error)
        except ClientClosed:
            entry.outcome = "client_closed"
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not downstream.is_closed or task is None:
                raise
            task.uncancel()
            entry.outcome = "client_closed"

    async def _answer_own(
        self, scope: Scope, admission: Admission, receive: Receive, send: Send, entry: LogEntry
    ) -> None:
        """Answer a request to one of respool's own endpoints."""
        if admission.request.path == READY:
            await self._answer_ready(send)
            return
        admission = with_bearer(admission)
        request = admission.request
        try:
            grant = await self._gate.admit(admission, to_page=request.path not in _ALWAYS_ANSWERED)
        except ProxyError:
            if request.path != HEALTH:
                raise
            grant = None
        if request.path == HEALTH and (grant is None or grant.team is not None):
            await bare_health(scope, receive, send)  # without any detail
            return
        assert grant is not None, "else it was refused"
        entry.team = None if grant.team is None else grant.team.name
        require_same_site(request, self.options, by_token=grant.by_token)
        if grant.team is not None:
            _require_open_to_teams(request.path)
        if request.path in (COMPRESS, GUARDRAIL):
            refuse_over_quota(grant, time.time())
        endpoint = endpoint_for(self._endpoints, request.path)
        path = unquote(request.path)
        inside = {**scope, "path": path, "raw_path": request.path.encode("ascii")}
        inside |= {"headers": list(request.headers), GRANT: grant, VISITOR: grant.team}
        await endpoint({**inside, "root_path": admission.prefix}, receive, send)

    async def _answer_ready(self, send: Send) -> None:
        """Answer, to anyone, whether a balancer may send requests here."""
        status, body = (503, b'{"ready":false}') if self.is_ending else (200, b'{"ready":true}')
        await send_response(send, status, body, _JSON)

    async def _forward(
        self, admission: Admission, downstream: Downstream, send: Send, entry: LogEntry
    ) -> None:
        """Forward a request to its upstream."""
        request, token = admission.request, self.options.token
        grant = await self._gate.admit(admission)
        entry.team = None if grant.team is None else grant.team.name
        refuse_web_page(request, self.options, by_token=grant.by_token)
        _refuse_unsupported(request)
        if request.method not in _READS:
            refuse_over_quota(grant, time.time())
        request, route, upstream = select_upstream(request, self.options.upstreams)
        request = _for_upstream(request, route, upstream)
        refuse_misplaced_token(request, token, has_teams=self._gate.has_teams)
        entry.format, entry.upstream = route.format, upstream.origin
        exchange = Exchange(
            request=request,
            route=route,
            upstream=upstream,
            downstream=downstream,
            send=send,
            entry=entry,
            grant=grant,
        )
        is_free = request.method in _READS or route.operation == "count"
        if grant.team is None or is_free:
            await self._forwarder.forward(exchange)
            return
        with self._gate.in_flight(grant.team):
            try:
                await self._forwarder.forward(exchange)
            finally:
                if exchange.flight is None:  # nobody else records it
                    self._meter(grant.team)


def _require_open_to_teams(path: str) -> None:
    """Refuse a team the pages with figures of all teams."""
    if path in _TEAM_PAGES or path.startswith("/respool/"):
        return
    raise ProxyError(403, "team", "this page is for the administrator's token.")


def _for_upstream(request: Request, route: Route, upstream: Upstream) -> Request:
    """A request without what its upstream must not receive.

    A provider's own host receives no other provider's key, and no cookies: no client has any for
    it. What goes to an upstream that the user configured is the client's affair.
    """
    if not upstream.is_custom:
        return without_cookies(without_foreign_keys(request, route.provider))
    return request if may_send_cookies(request) else without_cookies(request)


def _refuse_unsupported(request: Request) -> None:
    """Refuse WebSockets, tunnels, unknown transfer encodings and paths that lead upwards."""
    if wants_websocket(request.named):
        raise ProxyError(
            426, "websocket", "WebSockets are not passed on; the same works over HTTP."
        )
    encodings = {
        value.strip().lower() for name, value in request.headers if name == _TRANSFER_ENCODING
    }
    if encodings - {b"chunked"}:
        raise ProxyError(501, "coding", "a transfer coding other than chunked is not understood.")
    if request.method == "CONNECT" or not request.path.startswith("/"):
        raise ProxyError(400, "target", "this proxy is no tunnel to other hosts.")
    if ".." in unquote(request.path).replace("\\", "/").split("/"):
        raise ProxyError(400, "target", "a path that leads upwards is not passed on.")


# --- the complete proxy ------------------------------------------------------------------------


def build_app(
    server: ServerOptions,
    options: CompactionOptions,
    log: Log,
    *,
    store: SQLStore | None = None,
    listener: RecordListener | None = None,
) -> App:
    """A proxy that compacts, with store, dashboard, metrics and tracing.

    `listener` is called with each record that is written.
    """
    _tune_interpreter()
    store = store or open_store(retention=Retention.from_env())
    if store.is_shared:
        options = msgspec.structs.replace(options, shared_store=True)
    decide = partial(
        Decider,
        options.policy,
        store,
        shared_store=options.shared_store,
        text_formats=options.text_formats,
        launch=Launch(options.agent, options.project),
        memory=options.memory,
    )
    recorder = Recorder(store, listener)
    _open(store)
    compactor = Compactor(
        decide(), recorder, options, salt=store.provisional_salt, observer=decide(observe=True)
    )
    metrics = Metrics()
    health = HealthEndpoint(store, compactor.breaker_state, lambda: compactor.mode)
    spans = span_exporter(os.environ)
    status = _around(compactor, recorder, options)
    policy_of = TeamPolicies(options.policy).of
    dashboard = Dashboard(store, status, _control(compactor, store), policy_of=policy_of)
    gateways = _gateways(server, options, store, listener, compactor)
    endpoints = {
        **dashboard.routes,
        **gateways.routes,
        HEALTH: health,
        METRICS: MetricsEndpoint(metrics, health),
        **StoreEndpoints(store, store.provisional_salt).routes,
    }

    others = [log] if log is not log_nothing else []
    logs = log_to_all(*others, metrics.count, *([spans] if spans else []))
    on_close = spans.close if spans else None
    return App(
        server,
        compactor,
        endpoints,
        logs,
        on_stop=gateways.stop,
        on_close=on_close,
        keep_alive=_keep_alive(options.keep_alive, compactor, store, metrics),
        gate=Gate(server.token, store.teams),
        meter=lambda team: recorder.count(team.owner, time.time()),
    )


def _gateways(
    server: ServerOptions,
    options: CompactionOptions,
    store: SQLStore,
    listener: RecordListener | None,
    compactor: Compactor,
) -> CompressEndpoints:
    """The endpoints that gateways call, with a compactor of their own."""
    own = Compactor(
        Decider(
            in_place(options.policy),
            store,
            shared_store=options.shared_store,
            adapt=in_place,
            memory=options.memory,
        ),
        BorrowedRecorder(store, listener),
        # A gateway sends the request itself: what it does with the answer is not seen.
        msgspec.structs.replace(options, holdout=HoldoutOptions()),
        salt=store.provisional_salt,
    )
    return CompressEndpoints(own, server.limits, lambda: compactor.mode)


def _tune_interpreter() -> None:
    """Let the event loop run soon after another thread computed, and collect garbage seldom.

    The loop releases the GIL at every system call, and has it back after the switch interval if
    another thread computes. What is remembered of histories is large and holds no cycles.
    """
    sys.setswitchinterval(0.0005)
    gc.set_threshold(20_000, 20, 50)


def _open(store: SQLStore) -> None:
    """Open the store; if that fails, requests still pass, and it is tried again with them."""
    try:
        store.salt()
    except StoreUnavailable as error:
        _log.warning("%s Until it can be, requests are sent as they came.", error)


def _keep_alive(
    budget: float, compactor: Compactor, store: SQLStore, metrics: Metrics
) -> KeepAlive | None:
    """Keep-alive pings within a budget; None: there is no budget."""
    if budget <= 0:
        return None

    def count(event: KeepAliveEvent) -> None:
        metrics.add(KEEP_ALIVE, event.kind)
        metrics.add(KEEP_ALIVE_DOLLARS, "paid" if event.kind == "ping" else "saved", by=event.money)

    return KeepAlive(
        budget,
        store,
        note_alive=compactor.note_alive,
        is_on=lambda: compactor.mode != "pause",
        on_event=count,
    )


def _around(compactor: Compactor, recorder: Recorder, options: CompactionOptions) -> ProxyStatus:
    """The proxy, as its dashboard shows it."""

    def breaker() -> BreakerStatus:
        state = compactor.breaker_state()
        return BreakerStatus(state.phase, state.reason)

    def calibrations() -> tuple[CalibrationStatus, ...]:
        found = sorted(recorder.calibrations.all().items())
        return tuple(
            CalibrationStatus(*key, round(one.factor, 4), one.requests) for key, one in found
        )

    return ProxyStatus(
        version=installed_version(),
        policy=options.policy,
        mode=lambda: compactor.mode,
        breaker=breaker,
        calibrations=calibrations,
    )


def _control(compactor: Compactor, store: SQLStore) -> ProxyControl:
    """What may be changed from the dashboard."""

    def pin(conversation: str, pinned: bool, owner: str | None) -> bool:
        found = store.set_pinned(conversation, pinned, owner)
        if found:
            compactor.note_pinned(conversation, pinned)
        return found

    return ProxyControl(switch=compactor.switch, pin=pin)


# --- respool's own endpoints -------------------------------------------------------------------


def is_own(request: Request) -> bool:
    """True if a request is for respool itself; `/` only if a browser asks for a page."""
    path = request.path
    if path == "/":
        return request.method == "GET" and b"text/html" in request.named.get(b"accept", b"")
    own = (HEALTH, READY, METRICS, COMPRESS, GUARDRAIL, "/respool", *BROWSER_FILES)
    return path in own or path.startswith("/respool/")


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
    mode: Mode
    store: str  # `ok`, or a code for the problem
    circuit_breaker: BreakerState


class HealthEndpoint:
    """Answers with the state of store and circuit breaker.

    It answers 200 as long as the proxy runs. If the store cannot be used or the circuit breaker is
    open, requests still pass: nothing may take the proxy out of service for that.
    """

    def __init__(
        self, store: SQLStore, breaker: Callable[[], BreakerState], mode: Callable[[], Mode]
    ) -> None:
        self._store = store
        self._breaker = breaker
        self._mode = mode
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
            mode=self._mode(),
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
