"""Which headers are for one connection only, and what goes on to the other side."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from .asgi import Headers

OURS: Final = b"x-respool-"  # said to respool, or by it; no provider hears them

# RFC 9110, 7.6.1, and what the two connections settle between themselves.
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
_UP = _HOP | {b"host", b"content-length", b"expect"}  # written anew for the connection upstream
_UNSENDABLE = re.compile(
    rb"[\x00-\x08\x0a-\x1f\x7f]"
)  # the server would give up the answer for one
_OF_THE_BODY = frozenset({b"content-encoding", b"content-digest", b"content-md5", b"digest"})


def going_up(headers: Headers, changed: bool) -> list[tuple[str, str]]:
    """The headers that the provider gets; `changed`: without what described the old body."""
    left_out = (_UP | _OF_THE_BODY if changed else _UP) | _one_hop(headers)
    return [
        (name.decode("ascii"), _text(value))
        for name, value in headers
        if name not in left_out and not name.startswith(OURS)
    ]


def going_down(raw: Iterable[tuple[bytes, bytes]], added: Headers) -> list[tuple[bytes, bytes]]:
    """The headers that the client gets: as they were sent, and respool's own behind them."""
    lowered = tuple((name.lower(), value) for name, value in raw if not _UNSENDABLE.search(value))
    left_out = _HOP | _one_hop(lowered)
    return [*(pair for pair in lowered if pair[0] not in left_out), *added]


def without_length(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of a response that has no body; a length would be that of another's."""
    return [pair for pair in headers if pair[0] != b"content-length"]


def wants_websocket(named: dict[bytes, bytes]) -> bool:
    """Whether a request asks to become a WebSocket."""
    offered = named.get(
        b"upgrade", named.get(b"x-respool-upgrade", b"")
    )  # as our protocol calls it
    return b"websocket" in offered.lower()


def _one_hop(headers: Headers) -> frozenset[bytes]:
    """What the Connection header names: those are for this connection too."""
    listed = [value for name, value in headers if name == b"connection"]
    if not listed:
        return frozenset()
    return frozenset(word.strip().lower() for value in listed for word in value.split(b","))


def _text(value: bytes) -> str:
    """A value as the HTTP client takes it: it writes UTF-8, so that is what is read."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")
