"""ASGI app of the dashboard: its page, its API, its security headers."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import partial
from typing import Any, Final

import msgspec

from ..lru_map import LruMap
from ..policy import Policy
from ..store import SQLStore, StoreUnavailable
from ..store.owned import OwnedStore
from ..store.teams import Team, TeamError
from .page import content_security_policy, page
from .queries import (
    DashboardQueries,
    Mode,
    ProxyControl,
    ProxyStatus,
    Query,
    QueryError,
    describe_error,
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


VISITOR: Final = "respool.team"  # in the scope: the team whose token opened the page, or None
API: Final = "/respool/api/"
EXPORT: Final = f"{API}requests.csv"
_MAX_CHANGE_BYTES: Final = 4_096
_MAX_CONCURRENT: Final = 2  # concurrent queries: forwarded requests have priority
_MAX_WAITING: Final = 64  # of one visitor
_MAX_TEAMS: Final = 128  # whose queries are remembered


class Dashboard:
    """The page, the API that it reads, and the two changes that it can make.

    Access is checked before it is called. A team sees what it owns, and nothing of the server.
    """

    def __init__(
        self,
        store: SQLStore,
        proxy: ProxyStatus,
        control: ProxyControl | None = None,
        *,
        policy_of: Callable[[Team], Policy] | None = None,
    ) -> None:
        self._store, self._proxy, self._policy_of = store, proxy, policy_of
        self._queries = DashboardQueries(store, proxy, teams=store.teams.all)
        # By team, for itself and for the administrator.
        self._of_teams = LruMap[tuple[Team, bool], DashboardQueries](_MAX_TEAMS)
        self._control = control  # None: nothing can be changed
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)
        self._waiting = Counter[str | None]()  # by the owner who asks; None: the administrator

    @property
    def routes(self) -> Mapping[str, Dashboard]:
        """Paths of the dashboard in the proxy's router."""
        return {"/": self, "/respool/": self}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        change = self._changes(scope.get(VISITOR)).get(scope["path"])
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

    def _changes(self, visitor: Team | None) -> Mapping[str, Callable[[bytes], None]]:
        """Changes by path; none without control of the proxy."""
        if self._control is None:
            return {}
        owner = None if visitor is None else visitor.owner
        switch = self._switch if visitor is None else _refuse_switch
        return {f"{API}mode": switch, f"{API}pin": partial(self._pin, owner=owner)}

    def _queries_for(self, scope: Scope, query: Query) -> DashboardQueries:
        """The queries for a visitor: a team's own; for the administrator those of a chosen team."""
        team: Team | None = scope.get(VISITOR)
        is_visitor = team is not None
        if team is None:
            if not query.get("team"):
                return self._queries
            try:
                team = self._store.teams.get(query["team"])
            except TeamError:
                raise QueryError(404, "There is no such team.") from None
        chosen = team
        return self._of_teams.get_or_make(
            (chosen, is_visitor), lambda: self._new_queries(chosen, is_visitor=is_visitor)
        )

    def _new_queries(self, team: Team, *, is_visitor: bool) -> DashboardQueries:
        proxy = self._proxy
        policy = proxy.policy if self._policy_of is None else self._policy_of(team)
        if is_visitor:  # the state of breaker and counters is the work of all teams
            proxy = ProxyStatus(
                version=proxy.version, mode=proxy.mode, can_switch=False, names_files=False
            )
        proxy = msgspec.structs.replace(proxy, policy=policy)
        owned = OwnedStore(self._store, team.owner)
        teams = tuple[Team] if is_visitor else self._store.teams.all
        return DashboardQueries(owned, proxy, teams=teams, team=team)

    async def _change(
        self, scope: Scope, receive: Receive, send: Send, change: Callable[[bytes], None]
    ) -> None:
        if is_cross_site(scope):
            raise QueryError(403, "This is not for pages of other sites.")
        body = await read_change(scope, receive)

        def make(_queries: DashboardQueries) -> bytes:
            try:
                change(body)
            except msgspec.MsgspecError as error:
                raise QueryError(400, f"That is no such change: {error}.") from None
            return b"{}"

        await send_response(send, 200, JSON_TYPE, await self._run_query(scope, {}, make))

    def _switch(self, body: bytes) -> None:
        if self._control is not None:
            self._control.switch(msgspec.json.decode(body, type=_ModeChange).mode)

    def _pin(self, body: bytes, *, owner: str | None) -> None:
        asked = msgspec.json.decode(body, type=_PinChange)
        pinned = asked.conversation, asked.pinned
        if self._control is not None and not self._control.pin(*pinned, owner):
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
        name = path.removeprefix(API)
        if name not in self._queries.endpoints or not path.startswith(API):
            raise QueryError(404, "There is nothing of that name here.")
        if is_cross_site(scope):
            raise QueryError(403, "This is not for pages of other sites.")
        query = parse_query(scope["query_string"])

        def ask(queries: DashboardQueries) -> bytes:
            return msgspec.json.encode(queries.endpoints[name](query))

        await send_if_changed(scope, send, await self._run_query(scope, query, ask))

    async def _export(self, scope: Scope, send: Send) -> None:
        if is_cross_site(scope):
            raise QueryError(403, "This is not for pages of other sites.")
        query = parse_query(scope["query_string"])
        table = await self._run_query(scope, query, lambda queries: queries.export(query))
        named = (b"content-disposition", b'attachment; filename="respool-requests.csv"')
        await send_response(send, 200, b"text/csv; charset=utf-8", table, named)

    async def _run_query(
        self, scope: Scope, query: Query, ask: Callable[[DashboardQueries], bytes]
    ) -> bytes:
        """Ask the queries for a visitor, off the event loop, with a limited number at once."""

        def run() -> bytes:
            return ask(self._queries_for(scope, query))

        visitor: Team | None = scope.get(VISITOR)
        asker = None if visitor is None else visitor.owner
        if self._waiting[asker] >= _MAX_WAITING:
            raise QueryError(503, "Too many ask at once; ask again.")
        self._waiting[asker] += 1
        try:
            async with self._slots:
                return await asyncio.to_thread(run)
        except StoreUnavailable as error:
            raise QueryError(503, describe_error(error, visitor)) from error
        finally:
            self._waiting[asker] -= 1
            if not self._waiting[asker]:
                del self._waiting[asker]


def _refuse_switch(_body: bytes) -> None:
    raise QueryError(403, "The mode is the server's; the administrator's token switches it.")
