"""What respool answers itself: its page, its data, its health."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from .forwarding.asgi import Receive, Request, Scope, Send, answer
from .forwarding.refusals import Refusal

Own = Callable[[Scope, Receive, Send], Awaitable[None]]

HEALTH: Final = "/healthz"
METRICS: Final = "/metrics"


def is_own(request: Request) -> bool:
    """Whether a request is for respool itself; `/` only when a browser asks for a page."""
    path = request.path
    if path == "/":
        return request.method == "GET" and b"text/html" in request.named.get(b"accept", b"")
    return path in (HEALTH, METRICS, "/respool") or path.startswith("/respool/")


def own_of(pages: Mapping[str, Own], path: str) -> Own:
    """What answers at this path: the page of just that name, else of the longest folder above."""
    found = pages.get(path)
    while found is None and path:
        path = path.rstrip("/").rpartition("/")[0]
        found = pages.get(f"{path}/") if path else None
    if found is None:
        raise Refusal(404, "unknown", "there is no such page.")
    return found


async def healthy(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Say that the proxy is up, and nothing else: whoever asks."""
    await answer(send, 200, b'{"status":"ok"}', (b"content-type", b"application/json"))
