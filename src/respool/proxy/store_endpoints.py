"""Endpoints that read the store: originals, search, conversations and their requests."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar, cast
from urllib.parse import parse_qsl

import msgspec
from msgspec.structs import replace

from ..dashboard.http_api import is_cross_site
from ..store import RequestRecord, SQLStore, StoreUnavailable, UnsearchablePattern
from ..store.owned import OwnedStore
from ..store.reader import LocalReader, RecentRequests, StoreReader
from ..store.remote import (
    CONVERSATIONS,
    NAMES,
    ORIGINALS,
    REQUESTS,
    SEARCH,
    UNKNOWN_ORIGINAL,
    UNSEARCHABLE,
)
from ..store.short_names import NameKind
from .access import Grant, grant_in
from .asgi import Headers, ProxyError, Receive, Scope, Send, send_response
from .auth import ANONYMOUS, HEADER, owner_of

T = TypeVar("T")
Query = Mapping[str, str]
Answer = Callable[[StoreReader, Query], object]

_JSON: Final = ((b"content-type", b"application/json"),)
# The output of a tool may be hostile HTML: browsers must show it as text.
_AS_TEXT: Final = (
    (b"content-type", b"text/plain; charset=utf-8"),
    (b"content-security-policy", b"default-src 'none'; sandbox"),
)
_MAX_FIELDS: Final = 20  # of a query
_MAX_HITS: Final = 10_000
_MAX_ROWS: Final = 500  # conversations or requests in one answer
_MAX_NAMES: Final = 20
_MAX_CONCURRENT: Final = 2  # queries at once: forwarded requests have priority
_MAX_WAITING: Final = 64  # queries of one owner
_NAME_KINDS: Final = ("reference", "conversation")


class StoreEndpoints:
    """Endpoints that answer with what a team, an API key or the administrator may read.

    A team's token reads what the team owns, an API key what its requests wrote. The administrator's
    token without a key reads everything. Rows of other owners are answered as unknown ones.
    """

    def __init__(self, store: SQLStore, salt: Callable[[], bytes]) -> None:
        self._store, self._salt = store, salt
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)
        self._waiting: Counter[str | None] = Counter()  # by owner

    @property
    def routes(self) -> Mapping[str, Callable[[Scope, Receive, Send], Awaitable[None]]]:
        """The endpoints by path."""
        return {
            ORIGINALS: self.original,
            **{path: self._query_endpoint(answer) for path, answer in _QUERIES.items()},
        }

    async def original(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer with the text that the path's reference leads to."""
        owner = self._owner_in(scope)
        ref = scope["path"].removeprefix(ORIGINALS)
        text = await self._in_turn(owner, lambda: self._reader(owner).original(ref))
        if text is None:  # malformed, unknown or another owner's: the answer is the same
            of = _whose(grant_in(scope), owner)
            raise ProxyError(
                404, UNKNOWN_ORIGINAL, f"no original{of} is kept under that reference."
            )
        await send_response(send, 200, text.encode("utf-8", "surrogatepass"), *_AS_TEXT)

    def _query_endpoint(self, answer: Answer) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
        """The endpoint that answers a query in JSON."""

        async def endpoint(scope: Scope, _receive: Receive, send: Send) -> None:
            owner = self._owner_in(scope)
            if is_cross_site(scope):
                raise ProxyError(403, "origin", "respool's own pages are not for other sites.")
            query = _parse_query(scope["query_string"])
            body = await self._in_turn(owner, lambda: _encode(answer(self._reader(owner), query)))
            await send_response(send, 200, body, *_JSON)

        return endpoint

    def _owner_in(self, scope: Scope) -> str | None:
        """The owner whose rows a request may read; None: all."""
        if scope["method"] not in ("GET", "HEAD"):
            raise ProxyError(405, "method", "the store can only be read.")
        grant = grant_in(scope)
        if grant.team is not None:
            return grant.team.owner
        owner = owner_of(_without_token(scope, grant), scope["query_string"], self._salt())
        if owner != ANONYMOUS:
            return owner
        if grant.by_token:
            return None
        raise ProxyError(401, "key", "an original is given to the API key whose request had it.")

    def _reader(self, owner: str | None) -> StoreReader:
        return LocalReader(self._store if owner is None else OwnedStore(self._store, owner))

    async def _in_turn(self, owner: str | None, ask: Callable[[], T]) -> T:
        """Ask off the event loop, with a limited number at once."""
        if self._waiting[owner] >= _MAX_WAITING:
            raise ProxyError(503, "busy", "too many queries at once; try again.")
        self._waiting[owner] += 1
        try:
            async with self._slots:
                return await _run(ask)
        finally:
            self._waiting[owner] -= 1
            if not self._waiting[owner]:
                del self._waiting[owner]


def _without_token(scope: Scope, grant: Grant) -> Headers:
    """The headers without a bearer token that is the proxy's: it is no API key."""
    headers: Headers = scope["headers"]
    named = scope.get("root_path") or any(name == HEADER and value for name, value in headers)
    if not grant.by_token or named:
        return headers
    return tuple(pair for pair in headers if pair[0] != b"authorization")


def _whose(grant: Grant, owner: str | None) -> str:
    if grant.team is not None:
        return " of this team"
    return "" if owner is None else " of this key"


async def _run(ask: Callable[[], T]) -> T:
    """Ask the store off the event loop; errors do not name its location."""
    try:
        return await asyncio.to_thread(ask)
    except StoreUnavailable as error:
        raise ProxyError(503, "store", f"the store cannot be read now ({error.reason}).") from None
    except UnsearchablePattern as error:
        raise ProxyError(400, UNSEARCHABLE, str(error)) from None


# --- queries -----------------------------------------------------------------------------------


def _search(reader: StoreReader, query: Query) -> object:
    limit = _limit_in(query, 20, _MAX_HITS)
    only = query.get("conversation")
    return reader.search(query.get("pattern", ""), conversation=only, limit=limit)


def _conversations(reader: StoreReader, query: Query) -> object:
    found = reader.conversations(_limit_in(query, 20, _MAX_ROWS))
    return [replace(one, id=0, owner="") for one in found]


def _requests(reader: StoreReader, query: Query) -> object:
    limit = _limit_in(query, 20, _MAX_ROWS)
    found = reader.recent_requests(query.get("conversation", ""), limit)
    return RecentRequests(found.count, tuple(map(_public, found.latest)))


def _names(reader: StoreReader, query: Query) -> object:
    kind = query.get("kind", "")
    if kind not in _NAME_KINDS:
        raise ProxyError(400, "kind", f"kind is one of {', '.join(_NAME_KINDS)}.")
    limit = _limit_in(query, _MAX_NAMES, _MAX_NAMES)
    return reader.names(cast(NameKind, kind), query.get("beginning", ""), limit)


_QUERIES: Final[Mapping[str, Answer]] = {
    SEARCH: _search,
    CONVERSATIONS: _conversations,
    REQUESTS: _requests,
    NAMES: _names,
}


def _public(record: RequestRecord) -> RequestRecord:
    """A record without the hashes by which the store knows owner, history and settings."""
    return replace(record, owner="", terms="", prefix="", parent="", unit="", repeats=())


def _parse_query(raw: bytes) -> Query:
    """The fields of a query that are not empty; of repeated fields the last one counts."""
    try:
        return dict(parse_qsl(raw.decode("latin-1"), max_num_fields=_MAX_FIELDS))
    except ValueError:
        raise ProxyError(400, "query", "there are too many fields in the query.") from None


def _limit_in(query: Query, default: int, maximum: int) -> int:
    given = query.get("limit", str(default))
    if not (given.isascii() and given.isdigit() and len(given) < 9 and int(given) > 0):
        raise ProxyError(400, "limit", "limit is a whole number from 1 on.")
    return min(int(given), maximum)


def _encode(value: Any) -> bytes:
    """JSON in ASCII; texts may have lone surrogates, where an agent cut them."""
    return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode("ascii")
