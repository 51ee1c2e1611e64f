"""Errors of respool's own, in the shape that the client knows from its provider."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from .asgi import Send, answer
from .upstreams import Provider

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


class Refusal(Exception):
    """A request that respool answers itself, with an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code  # one word for machines, in the header x-respool-error
        self.message = message  # one sentence for a person


async def refuse(send: Send, provider: Provider | None, refusal: Refusal) -> None:
    """Send a refusal in the shape of this provider's errors; None: for respool's own pages."""
    headers = [
        (b"content-type", b"application/json"),
        (b"x-respool-error", refusal.code.encode("ascii")),
    ]
    if refusal.status == 426:
        headers.append((b"upgrade", b"HTTP/1.1"))
    body = msgspec.json.encode(_shaped(provider, refusal))
    await answer(send, refusal.status, body, *headers)


def _shaped(provider: Provider | None, refusal: Refusal) -> dict[str, Any]:
    status, message = refusal.status, f"respool: {refusal.message}"
    if provider == "anthropic":
        kind = _ANTHROPIC.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": message}}
    if provider == "gemini":
        kind = _GEMINI.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
        return {"error": {"code": status, "message": message, "status": kind}}
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": refusal.code}}
