"""What passes between the server and the app (ASGI), and whole answers of respool's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import msgspec

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]  # names in lower case, in the order they came

# Of what respool answers itself, no browser keeps anything or guesses what it is; refusals too.
_GUARDS: Final[Headers] = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


class Request(msgspec.Struct, frozen=True):
    """The head of a request: all but its body."""

    method: str
    path: str  # as it came, percent-encoding included
    query: str
    headers: Headers
    named: dict[bytes, bytes]  # the same by name; of a repeated one the last


def request_of(scope: Scope) -> Request:
    """The head of the request that a scope describes."""
    headers = tuple(scope["headers"])
    return Request(
        method=scope["method"],
        path=_plain(scope["raw_path"]),
        query=_plain(scope["query_string"]),
        headers=headers,
        named=dict(headers),
    )


def _plain(raw: bytes) -> str:
    """The text of a path or query; bytes beyond ASCII are percent-encoded, which means the same."""
    if raw.isascii():
        return raw.decode("ascii")
    return "".join(chr(byte) if byte < 0x80 else f"%{byte:02X}" for byte in raw)


async def answer(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    """Send a whole answer of respool's own."""
    told = [*headers, *_GUARDS, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": body})


def until_closed(send: Send) -> Send:
    """For a client of HTTP/1.0: no answer ends but with its connection, which the server closes."""

    async def sent(message: Message) -> None:
        is_body = message["type"] == "http.response.body"
        await send({**message, "more_body": True} if is_body else message)

    return sent
