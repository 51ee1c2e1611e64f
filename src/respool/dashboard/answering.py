"""Answers of the dashboard: what may be done with them, and when nothing has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]

JSON: Final = b"application/json"
# Nothing of it is kept by a browser, guessed at, framed, or handed to another site's page.
_GUARDS: Final[Headers] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_SEALED: Final = b"default-src 'none'; frame-ancestors 'none'"


async def answer(
    send: Send, status: int, content_type: bytes, body: bytes, *more: tuple[bytes, bytes]
) -> None:
    """Send a whole answer; what is no page may load nothing at all."""
    named = {key for key, _ in more}
    sealed = () if b"content-security-policy" in named else ((b"content-security-policy", _SEALED),)
    headers = [
        (b"content-type", content_type), (b"content-length", b"%d" % len(body)), *_GUARDS, *sealed, *more,
    ]  # fmt: skip
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def answer_if_changed(scope: Scope, send: Send, body: bytes) -> None:
    """Send data, unless who asks has the very same already."""
    tag = b'"%s"' % hashlib.blake2b(body, digest_size=12).hexdigest().encode()
    if dict(scope["headers"]).get(b"if-none-match") == tag:
        await answer(send, 304, JSON, b"", (b"etag", tag))
    else:
        await answer(send, 200, JSON, body, (b"etag", tag))


def is_from_elsewhere(scope: Scope) -> bool:
    """Whether a browser says that another site's page asks; it says so without an origin, too."""
    site = dict(scope["headers"]).get(b"sec-fetch-site", b"none")
    return site not in (b"none", b"same-origin")
