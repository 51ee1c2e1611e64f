"""How the proxy stands: for who watches it, and for Prometheus.

The answer is 200 for as long as there is one. A store that cannot be used or a breaker that is open
makes nothing fail: requests still pass, so nothing must take the proxy out of service for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

import msgspec

from ...store import SQLiteStore
from ..compacting.breaker import Standing
from ..forwarding.asgi import Receive, Scope, Send, answer
from ..installed import installed
from .families import DROPPED, RESTING, STORE
from .metrics import CONTENT_TYPE, Metrics


class Health(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How one process stands."""

    status: Literal["ok", "degraded"]
    version: str
    mode: Literal["compact", "observe"]
    store: str  # "ok", or a word for what is wrong with it
    breaker: Standing
    worker: int = 0  # which of several processes; 0: there is one


class Watch:
    """Looks at the store and the breaker when it is asked."""

    def __init__(
        self, store: SQLiteStore, standing: Callable[[], Standing], *, observe: bool, worker: int
    ) -> None:
        self._store = store
        self._standing = standing
        self._observe = observe
        self._worker = worker
        self._dropped = 0  # records that are counted already

    async def health(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer how the proxy stands, in JSON."""
        found = await asyncio.to_thread(self.look)
        await answer(send, 200, msgspec.json.encode(found), (b"content-type", b"application/json"))

    def look(self) -> Health:
        """How the proxy stands now."""
        trouble, standing = self._store.last_error(), self._standing()
        well = trouble is None and standing.phase == "closed"
        return Health(
            status="ok" if well else "degraded",
            version=installed(),
            mode="observe" if self._observe else "compact",
            store=trouble or "ok",
            breaker=standing,
            worker=self._worker,
        )

    def note(self, metrics: Metrics) -> None:
        """Put down what is not counted by requests: at each of them, for others may be asked."""
        metrics.put(RESTING, float(self._standing().phase != "closed"))
        dropped, self._dropped = self._dropped, self._store.dropped
        if self._dropped > dropped:
            metrics.add(DROPPED, by=self._dropped - dropped)


class Scrape:
    """Answers with all numbers."""

    def __init__(self, metrics: Metrics, watch: Watch) -> None:
        self._metrics = metrics
        self._watch = watch

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer with all numbers, in Prometheus's text format."""
        self._watch.note(self._metrics)  # here, where requests are counted too
        text = await asyncio.to_thread(self._shown)
        await answer(send, 200, text.encode(), (b"content-type", CONTENT_TYPE))

    def _shown(self) -> str:
        usable = self._watch.look().store == "ok"
        return self._metrics.shown(only={STORE.name: float(usable)})
