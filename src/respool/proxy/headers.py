"""Headers that are forwarded upstream and downstream, and those of one connection only."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from .asgi import Headers

OWN: Final = b"x-respool-"  # to respool or from it; no provider receives them

# RFC 9110, 7.6.1: hop-by-hop headers.
_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_RESET = _HOP | {b"host", b"content-length", b"expect"}  # set again for the upstream connection
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # one of these would end the response
_OF_BODY = frozenset({b"content-encoding", b"content-digest", b"content-md5", b"digest"})


def upstream_headers(headers: Headers, *, changed: bool) -> list[tuple[str, str]]:
    """The headers that the provider receives; `changed`: the body is not the client's any more."""
    left_out = (_RESET | _OF_BODY if changed else _RESET) | _hop_by_hop(headers)
    return [
        (name.decode("ascii"), _text(value))
        for name, value in headers
        if name not in left_out and not name.startswith(OWN)
    ]


def downstream_headers(
    raw: Iterable[tuple[bytes, bytes]], added: Headers
) -> list[tuple[bytes, bytes]]:
    """The headers that the client receives: the provider's, followed by respool's own."""
    lowered = tuple((name.lower(), value) for name, value in raw if not _CONTROL.search(value))
    left_out = _HOP | _hop_by_hop(lowered)
    return [*(pair for pair in lowered if pair[0] not in left_out), *added]


def without_length(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of a response without a body, which has no length either."""
    return [pair for pair in headers if pair[0] != b"content-length"]


def wants_websocket(named: dict[bytes, bytes]) -> bool:
    """True if a request asks for an upgrade to WebSocket."""
    # The server's protocol renames the header.
    offered = named.get(b"upgrade", named.get(b"x-respool-upgrade", b""))
    return b"websocket" in offered.lower()


def _hop_by_hop(headers: Headers) -> frozenset[bytes]:
    """The headers that the Connection header names."""
    listed = [value for name, value in headers if name == b"connection"]
    if not listed:
        return frozenset()
    return frozenset(word.strip().lower() for value in listed for word in value.split(b","))


def _text(value: bytes) -> str:
    """A value as text, for the HTTP client, which encodes it as UTF-8."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")
