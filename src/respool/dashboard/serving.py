"""The dashboard's page and its data, as the proxy serves them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from ..store import SQLiteStore, StoreUnavailable
from .answering import (
    JSON,
    Receive,
    Scope,
    Send,
    answer,
    answer_if_changed,
    is_from_elsewhere,
)
from .around import Around
from .asking import Unanswerable, query_of
from .data import Data
from .page import page, policy

API: Final = "/respool/api/"
_AT_ONCE: Final = 2  # questions that are looked up side by side: requests on their way go first
_MOST_WAITING: Final = 64


class Dashboard:
    """One page and what it asks for. It changes nothing: there is nothing to ask for but to look.

    Who may look is decided before it is called.
    """

    def __init__(self, store: SQLiteStore, proxy: Around) -> None:
        self._queries = Data(store, proxy)
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0

    @property
    def routes(self) -> Mapping[str, Dashboard]:
        """The paths that it answers at, as the proxy takes them."""
        return {"/": self, "/respool/": self}

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            await self._respond(scope, send)
        except Unanswerable as error:
            body = msgspec.json.encode({"error": error.why})
            more = ((b"allow", b"GET"),) if error.status == 405 else ()
            await answer(send, error.status, JSON, body, *more)

    async def _respond(self, scope: Scope, send: Send) -> None:
        path: str = scope["path"]
        if scope["method"] != "GET":
            raise Unanswerable(405, "Here one can only look: GET.")
        if path == "/":
            csp = (b"content-security-policy", policy())
            await answer(send, 200, b"text/html; charset=utf-8", page(), csp)
            return
        question = self._queries.endpoints.get(path.removeprefix(API))
        if question is None or not path.startswith(API):
            raise Unanswerable(404, "There is nothing of that name here.")
        if is_from_elsewhere(scope):
            raise Unanswerable(403, "This is not for pages of other sites.")
        query = query_of(scope["query_string"])
        found = await self._run_query(lambda: msgspec.json.encode(question(query)))
        await answer_if_changed(scope, send, found)

    async def _run_query(self, query: Callable[[], bytes]) -> bytes:
        """Look something up off the event loop, when it is its turn."""
        if self._waiting >= _MOST_WAITING:
            raise Unanswerable(503, "Too many ask at once; ask again.")
        self._waiting += 1
        try:
            async with self._slots:
                return await asyncio.to_thread(query)
        except StoreUnavailable as error:
            raise Unanswerable(503, str(error)) from error
        finally:
            self._waiting -= 1
