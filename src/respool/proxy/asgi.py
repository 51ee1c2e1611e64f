"""ASGI types, the head of a request, and responses that respool sends itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import msgspec

from .upstreams import Provider

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


# --- errors of the proxy -----------------------------------------------------------------------

_ANTHROPIC: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    504: "timeout_error",
}
_GEMINI: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    426: "FAILED_PRECONDITION",
    502: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class ProxyError(Exception):
    """An error that respool itself answers a request with."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
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
    body = msgspec.json.encode(_error_body(provider, error))
    await send_response(send, error.status, body, *headers)


def _error_body(provider: Provider | None, error: ProxyError) -> dict[str, Any]:
    status, message = error.status, f"respool: {error.message}"
    if provider == "anthropic":
        kind = _ANTHROPIC.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": message}}
    if provider == "gemini":
        kind = _GEMINI.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
        return {"error": {"code": status, "message": message, "status": kind}}
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": error.code}}
