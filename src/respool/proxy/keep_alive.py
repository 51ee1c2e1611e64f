"""Keep-alive pings: the last request again, with one token of output, before its cache expires.

Off by default. A ping costs money, so it is sent only with an API key, never with a login; only to
a cache with explicit breakpoints and listed prices; only if the chance that the conversation goes
on makes it pay; never while a request of the conversation is in flight; and only within the budget
of the day, which counts what a ping can cost at most.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Literal, Protocol

import msgspec

from ..engine import breakpoint_lifetime
from ..errors import RespoolError
from ..pauses import MAX_PINGS, WaitsFor, ping_seconds, ping_value
from ..pricing import CacheTerms, Usage, priced, terms_for
from ..regex import lazy_compile
from ..store import KeepAliveEvent, KeepAliveTotal
from .asgi import Headers, Request, upstream_headers
from .billing import Sizes, cost_of
from .client import CLIENT_ERRORS, Client, RequestBody
from .decoders import BodyTooLarge, UndecodableBody
from .middleware import InFlight
from .server_options import Upstream
from .usage import ResponseInfo, reader_for

_log = logging.getLogger(__name__)
_TICK_SECONDS: Final = 5.0  # between two looks at what is due
_PING_SECONDS: Final = 30.0  # for a whole ping
_MARGIN_SECONDS: Final = 5.0  # before the end of a lifetime, in which no ping is started any more
_MAX_IDLE: Final = 64  # conversations that wait
_MAX_HELD_BYTES: Final = 64 * 1024 * 1024  # of their bodies
_MAX_RESPONSE_BYTES: Final = 1024 * 1024
_DAY_SECONDS: Final = 86_400.0
_MILLION: Final = 1e6
_FOUND: Final = 0.5  # of the prompt: a ping that reads less has found no cache
_API_KEY: Final = lazy_compile(rb"sk-ant-api\d")  # a login's token is sk-ant-oat…
_KEY_HEADERS: Final = frozenset({b"x-api-key", b"authorization", b"api-key", b"x-goog-api-key"})
_WAITS: Final[dict[str, WaitsFor]] = {"tool_use": "tool", "end_turn": "user"}
# The server may hold a part of such a request, or act on it.
_UNSAFE_FIELDS: Final = frozenset({"thread", "container", "mcp_servers"})
_IDEMPOTENCY: Final = "idempotency-key"
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])

LIFETIMES: Final = (300.0, 3_600.0)


class KeepAliveStore(Protocol):
    """The part of a store that keep-alive needs."""

    def add_keep_alive(self, event: KeepAliveEvent) -> None:
        """Write an event."""
        ...

    def keep_alive_total(self, owner: str | None, *, since: float, until: float) -> KeepAliveTotal:
        """Return the sums of a period."""
        ...


class Ping(msgspec.Struct):
    """A request that can be sent again, once its response has ended."""

    flight: InFlight
    request: Request  # with the client's key: never to be stored
    upstream: Upstream
    body: bytes
    lifetime: float
    terms: CacheTerms
    waits_for: WaitsFor = "user"
    tokens: int = 0  # of the prompt
    asked: float = 0.0  # when the client's request came
    used: float = 0.0  # when the cache was last used: at the request, or at a ping
    count: int = 0  # pings of this pause

    @property
    def due(self) -> float:
        """The time of the next ping."""
        return self.used + ping_seconds(self.lifetime)

    @property
    def write(self) -> float:
        """The price of a cache write, in tokens of plain input."""
        return self.terms.write_1h if self.lifetime == LIFETIMES[1] else self.terms.write

    def price(self) -> bool:
        """Look up the listed prices; False: there are none. The first look takes a while."""
        model = self.flight.decision.identity.model
        self.terms = priced(self.terms, "anthropic", model, self.asked)
        return bool(self.terms.dollars)

    def max_cost(self) -> float:
        """Dollars if nothing of the prompt is found in the cache."""
        tokens = self.tokens * self.write + self.terms.output
        return tokens * (self.terms.dollars or 0.0) / _MILLION

    def pays(self) -> bool:
        """True if the next ping saves more than it costs, by the chance that there is a request."""
        if self.count >= MAX_PINGS:
            return False
        worth = ping_value(
            self.count + 1,
            lifetime=self.lifetime,
            waits_for=self.waits_for,
            read=self.terms.read,
            write=self.write,
            fixed=self.terms.output / max(1, self.tokens),
        )
        return worth > 0


class KeepAlive:
    """Keeps the cached prefixes of idle conversations alive, within a budget of dollars a day."""

    def __init__(
        self,
        budget: float,
        store: KeepAliveStore,
        *,
        note_alive: Callable[[InFlight, float], None],
        is_on: Callable[[], bool] = lambda: True,
        on_event: Callable[[KeepAliveEvent], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._budget = budget
        self._store = store
        self._note_alive = note_alive  # the cache of a request was used again at this time
        self._is_on = is_on
        self._on_event = on_event
        self._clock = clock
        self._client: Client | None = None
        self._idle: OrderedDict[str, Ping] = OrderedDict()  # by conversation, the oldest first
        self._in_flight: Counter[str] = Counter()  # requests by conversation
        self._kept: dict[str, Ping] = {}  # pinged conversations whose next request is in flight
        self._running: dict[str, asyncio.Task[None]] = {}
        self._spent = (0, 0.0)  # a day, and what this process has spent on it
        self._loop: asyncio.Task[None] | None = None
        self._writes: set[asyncio.Future[None]] = set()  # records on their way to the store

    # --- the lifecycle of the proxy --------------------------------------------------------

    def start(self, client: Client) -> None:
        """Start to look for what is due, in the event loop that serves."""
        self._client = client
        self._loop = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop: no ping is sent any more."""
        self._idle.clear()
        tasks = [*self._running.values(), *([self._loop] if self._loop is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*self._writes)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            try:
                await self.tick()
            except Exception:  # noqa: BLE001 - a fault of respool stops pings, nothing else
                _log.exception("Keep-alive failed")

    # --- the lifecycle of a request --------------------------------------------------------

    def request_began(self, flight: InFlight) -> None:
        """A request of a conversation is in flight: it needs no ping any more."""
        conversation = flight.decision.identity.conversation
        if not conversation or flight.request.is_count:
            return
        self._in_flight[conversation] += 1
        waiting = self._idle.pop(conversation, None)
        if waiting is not None and waiting.count:
            self._kept[conversation] = waiting
        running = self._running.get(conversation)
        if running is not None:
            running.cancel()

    def candidate(self, flight: InFlight, request: Request, upstream: Upstream) -> Ping | None:
        """The ping of a request that was just sent; None: it must not have one."""
        identity, lifetime = flight.decision.identity, _lifetime(flight)
        if not self._is_on() or not is_api_key(request.headers) or not lifetime:
            return None
        if flight.request.format != "anthropic" or flight.request.operation != "generate":
            return None
        if flight.request.model is not None or not identity.parent:
            return None  # a cloud's path, or a conversation of one request, which seldom goes on
        terms = terms_for("anthropic", identity.model)
        if terms.cache != "explicit":
            return None
        body = ping_body(flight.request.body if flight.body is None else flight.body)
        if body is None:
            return None
        return Ping(flight, request, upstream, body, lifetime, terms)

    def request_ended(self, began: InFlight, ping: Ping | None, *, complete: bool) -> None:
        """A request has ended; its conversation is idle if no other one is in flight."""
        conversation = began.decision.identity.conversation
        if not conversation or began.request.is_count:
            return
        self._in_flight[conversation] -= 1
        if self._in_flight[conversation] <= 0:
            del self._in_flight[conversation]
        kept = self._kept.pop(conversation, None)
        if ping is None or not complete or ping.flight.status != 200:
            return
        flight = ping.flight
        usage = flight.response.usage
        if usage is None:
            return
        if kept is not None:
            self._note_hit(kept, flight, usage)
        waits_for = _WAITS.get(flight.response.stop_reason or "")
        is_cached = usage.cache_read + usage.cache_write > max(0, ping.terms.minimum)
        if waits_for is None or not is_cached or conversation in self._in_flight:
            return
        ping.waits_for, ping.tokens = waits_for, usage.prompt
        ping.asked = ping.used = flight.request.time
        self._idle[conversation] = ping
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        held = sum(len(one.body) for one in self._idle.values())
        while len(self._idle) > _MAX_IDLE or held > _MAX_HELD_BYTES:
            _, gone = self._idle.popitem(last=False)
            held -= len(gone.body)

    # --- pings -----------------------------------------------------------------------------

    async def tick(self) -> None:
        """Send the pings that are due, and forget conversations that need none any more."""
        now = self._clock()
        due = [(name, one) for name, one in self._idle.items() if one.due <= now]
        for conversation, ping in due:
            expires = ping.used + ping.lifetime - _MARGIN_SECONDS
            is_possible = now <= expires and self._is_on()
            if not (is_possible and await self._should_ping(ping, now)):
                if self._idle.get(conversation) is ping:
                    del self._idle[conversation]
                continue
            if self._idle.get(conversation) is not ping:
                continue  # a request came meanwhile
            task = asyncio.create_task(self._send(conversation, ping))
            self._running[conversation] = task
            try:
                await asyncio.wait({task})
            finally:
                self._running.pop(conversation, None)
            if not task.cancelled():  # a request of the conversation cancels it
                task.result()

    async def _should_ping(self, ping: Ping, now: float) -> bool:
        """True if a ping has a price, pays and is within the budget."""
        is_priced = await asyncio.to_thread(ping.price)
        return is_priced and ping.pays() and await self._is_affordable(ping, now)

    async def _is_affordable(self, ping: Ping, now: float) -> bool:
        """True if the budget of the day holds what a ping can cost at most; False if in doubt."""
        day = int(now // _DAY_SECONDS)
        start = day * _DAY_SECONDS
        try:
            recorded = await asyncio.to_thread(
                lambda: (
                    self._store.keep_alive_total(None, since=start, until=start + _DAY_SECONDS).paid
                )
            )
        except RespoolError:
            return False
        own = self._spent[1] if self._spent[0] == day else 0.0
        if max(recorded, own) + ping.max_cost() <= self._budget:
            return True
        _log.info("No keep-alive ping: the budget of %s is used up", _date(now))
        return False

    async def _send(self, conversation: str, ping: Ping) -> None:
        """Send a ping; whatever comes of it, it counts as paid."""
        sent = self._clock()
        ping.count += 1
        status, found = 0, ResponseInfo()
        is_over = False
        try:
            async with asyncio.timeout(_PING_SECONDS):
                status, found = await self._exchange(ping)
            is_over = True
        except (*CLIENT_ERRORS, UndecodableBody, BodyTooLarge) as error:
            is_over = True
            _log.info("A keep-alive ping failed: %s", type(error).__name__)
        finally:
            usage = found.usage
            cost = None if usage is None else cost_of(usage, Sizes(0, 0), ping.terms)
            refused = is_over and status >= 400  # a refusal is not charged
            money = cost.paid if cost is not None else 0.0 if refused else ping.max_cost()
            self._charge(ping, sent, status=status, usage=usage, money=money)
        is_alive = usage is not None and usage.cache_read >= _FOUND * usage.prompt
        if status != 200 or not is_alive:
            self._idle.pop(conversation, None)  # pings do not help here
            return
        ping.used = sent
        self._note_alive(ping.flight, sent)

    async def _exchange(self, ping: Ping) -> tuple[int, ResponseInfo]:
        """Send a ping and read its response."""
        assert self._client is not None, "it was started"
        request = ping.request
        headers = [
            (name, value)
            for name, value in upstream_headers(request.headers, changed=True)
            if name != _IDEMPOTENCY  # the answer to the client's own request is not wanted again
        ]
        target = ping.upstream.url(request.path, request.query)
        response = await self._client.send(
            "POST", ping.upstream, target, headers, RequestBody(ping.body)
        )
        try:
            encoding = response.headers.get("content-encoding", "")
            reader = reader_for("anthropic", encoding)
            size = 0
            while chunk := await response.content.readany():
                size += len(chunk)
                if size > _MAX_RESPONSE_BYTES:
                    raise BodyTooLarge
                reader.feed(chunk)
            await reader.settle()
            return response.status, reader.finish()
        finally:
            response.close()

    # --- records ---------------------------------------------------------------------------

    def _charge(
        self, ping: Ping, sent: float, *, status: int, usage: Usage | None, money: float
    ) -> None:
        day = int(sent // _DAY_SECONDS)
        before = self._spent[1] if self._spent[0] == day else 0.0
        self._spent = (day, before + money)
        read = 0 if usage is None else usage.cache_read
        self._record(_event(ping, sent, "ping", status=status, tokens=read, money=money))

    def _note_hit(self, kept: Ping, flight: InFlight, usage: Usage) -> None:
        """Record what pings have saved, if the cache would have expired without them."""
        asked = flight.request.time
        found = min(usage.cache_read, kept.tokens)
        if asked - kept.asked <= kept.lifetime or found < _FOUND * kept.tokens:
            return
        saved = found * (kept.write - kept.terms.read) * (kept.terms.dollars or 0.0) / _MILLION
        self._record(_event(kept, asked, "hit", status=200, tokens=found, money=saved))

    def _record(self, event: KeepAliveEvent) -> None:
        self._on_event(event)

        def write() -> None:
            try:
                self._store.add_keep_alive(event)
            except RespoolError as error:
                _log.warning("A keep-alive ping could not be recorded: %s", error)

        writing = asyncio.get_running_loop().run_in_executor(None, write)
        self._writes.add(writing)
        writing.add_done_callback(self._writes.discard)


def _event(
    ping: Ping, at: float, kind: Literal["ping", "hit"], *, status: int, tokens: int, money: float
) -> KeepAliveEvent:
    identity = ping.flight.decision.identity
    return KeepAliveEvent(
        time=at,
        owner=ping.flight.request.owner,
        conversation=identity.conversation,
        model=identity.model,
        kind=kind,
        status=status,
        tokens=tokens,
        money=money,
    )


def _date(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).date().isoformat()


def _lifetime(flight: InFlight) -> float:
    """The lifetime of the client's cache breakpoints; 0: it has none, or they are not known."""
    mode = flight.decision.breakpoints
    lifetime = 0.0 if mode in (None, "none", "behind") else breakpoint_lifetime(mode)
    return lifetime if lifetime in LIFETIMES else 0.0


def is_api_key(headers: Headers) -> bool:
    """True if a request carries Anthropic API keys and no other credential, such as a login's.

    >>> is_api_key(((b"x-api-key", b"sk-ant-api03-x"),))
    True
    >>> is_api_key(((b"authorization", b"Bearer sk-ant-oat01-x"),))
    False
    """
    given = [value.strip() for name, value in headers if name.lower() in _KEY_HEADERS]
    keys = [value.partition(b" ")[2].strip() if b" " in value else value for value in given]
    return bool(keys) and all(_API_KEY.match(key) for key in keys)


def ping_body(body: bytes) -> bytes | None:
    """A request with one token of output and no stream; None: it would not be valid, or not cheap.

    All other fields keep their bytes, as `thinking`, `tool_choice` and `tools` are part of what the
    cache compares. A budget of thinking must be lower than `max_tokens`, so such a request has no
    cheap ping.
    """
    try:
        fields = _fields.decode(body)
        thinking = msgspec.json.decode(fields.get("thinking", b"null"))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if not _UNSAFE_FIELDS.isdisjoint(fields) or "messages" not in fields:
        return None
    if isinstance(thinking, dict) and "budget_tokens" in thinking:
        return None
    kept = {name: value for name, value in fields.items() if name not in ("stream", "max_tokens")}
    return msgspec.json.encode({**kept, "max_tokens": 1})
