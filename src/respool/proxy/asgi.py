"""ASGI types, the head of a request, responses of respool itself, and forwarded headers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final

import msgspec

from ..regex import lazy_compile
from .server_options import Provider

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]  # names in lower case, in the order they came

# Browsers must not store or sniff respool's own responses; that includes errors.
_GUARDS: Final[Headers] = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


class Request(msgspec.Struct, frozen=True):
    """The head of a request: everything but its body."""

    method: str
    path: str  # as it came, percent-encoding included
    query: str
    headers: Headers
    named: dict[bytes, bytes]  # the same by name; the last one where a name is repeated


def request_from(scope: Scope) -> Request:
    """The head of the request that a scope describes."""
    headers = tuple(scope["headers"])
    return Request(
        method=scope["method"],
        path=_ascii(scope["raw_path"]),
        query=_ascii(scope["query_string"]),
        headers=headers,
        named=dict(headers),
    )


def _ascii(raw: bytes) -> str:
    """A path or query as text; bytes beyond ASCII are percent-encoded, which means the same."""
    if raw.isascii():
        return raw.decode("ascii")
    return "".join(chr(byte) if byte < 0x80 else f"%{byte:02X}" for byte in raw)


async def send_response(
    send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]
) -> None:
    """Send a whole response of respool's own."""
    every = [*headers, *_GUARDS, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": every})
    await send({"type": "http.response.body", "body": body})


def close_delimited(send: Send) -> Send:
    """For HTTP/1.0 clients: a response ends with its connection, which the server closes."""

    async def sent(message: Message) -> None:
        is_body = message["type"] == "http.response.body"
        await send({**message, "more_body": True} if is_body else message)

    return sent


def closing(send: Send) -> Send:
    """Responses after which the server closes the connection."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        await send(message)

    return sent


# --- errors of the proxy -----------------------------------------------------------------------

_ANTHROPIC: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    504: "timeout_error",
}
_GEMINI: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    426: "FAILED_PRECONDITION",
    429: "RESOURCE_EXHAUSTED",
    502: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class ProxyError(Exception):
    """An error that respool itself answers a request with."""

    def __init__(
        self, status: int, code: str, message: str, cause: str = "", *, headers: Headers = ()
    ) -> None:
        super().__init__(message)
        self.headers = headers  # of the response, besides the usual ones
        self.status = status
        self.cause = cause  # for log and records: where it failed, and why; no key is in it
        self.code = code  # one word for programs, in the header x-respool-error
        self.message = message  # one sentence for people


async def send_error(send: Send, provider: Provider | None, error: ProxyError) -> None:
    """Send an error in the shape of this provider's errors; None: for respool's own pages."""
    headers = [
        (b"content-type", b"application/json"),
        (b"x-respool-error", error.code.encode("ascii")),
    ]
    if error.status == 426:
        headers.append((b"upgrade", b"HTTP/1.1"))
    headers += error.headers
    body = msgspec.json.encode(_error_body(provider, error))
    await send_response(send, error.status, body, *headers)


def _error_body(provider: Provider | None, error: ProxyError) -> dict[str, Any]:
    status, message = error.status, f"respool: {error.message}"
    if provider == "anthropic":
        kind = _ANTHROPIC.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": message}}
    if provider == "bedrock":
        return {"message": message}
    if provider in ("gemini", "vertex"):
        kind = _GEMINI.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
        return {"error": {"code": status, "message": message, "status": kind}}
    kind = "server_error" if status >= 500 else "invalid_request_error"
    kind = "insufficient_quota" if status == 429 else kind
    return {"error": {"message": message, "type": kind, "param": None, "code": error.code}}


# --- forwarded headers -------------------------------------------------------------------------


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
_PRIVATE: Final = frozenset({b"referer"})  # the URL of a page here, which may hold the token
_CONTROL = lazy_compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # one of these would end the response
_OF_BODY = frozenset(
    {b"content-encoding", b"content-digest", b"content-md5", b"digest", b"x-amz-content-sha256"}
)


def upstream_headers(
    headers: Headers, *, changed: bool, signed: bool = False
) -> list[tuple[str, str]]:
    """The headers that the provider receives; `changed`: the body is not the client's any more.

    A signature covers the host that the client named, so a signed request goes up with that.
    """
    reset = (_RESET - {b"host"} if signed else _RESET) | _PRIVATE
    left_out = (reset | _OF_BODY if changed else reset) | _hop_by_hop(headers)
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
