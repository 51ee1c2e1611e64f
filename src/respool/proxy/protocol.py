"""HTTP as the server speaks it, with limits on what a client may send before its request begins."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES: Final = 128 * 1024  # request line and headers
HEAD_SECONDS: Final = 30.0  # from the connection, or their first byte, to their end
_UNTIL_CLOSED: Final = 2**62  # bytes: more than any body has

# The parser takes a body that follows an Upgrade for another protocol's, and some clients offer
# one with every request: so it does not see the word (but behind a body in chunks).
_UPGRADE = re.compile(rb"\r\nupgrade(?=[ \t]*:)", re.IGNORECASE)
_RENAMED: Final = b"\r\nx-respool-upgrade"

_TLS: Final = b"\x16\x03"  # how a client begins whose base URL says https
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\ncache-control: no-store\r\n"
    b"x-respool-error: headers\r\n\r\n"
)


class BoundedProtocol(HttpToolsProtocol):
    """The server's own protocol; it has no limits here itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = True
        self._head = b""  # what has come of it so far
        self._fed = 0  # bytes of a head that the parser has in part
        self._begun = False  # whether it has one
        self._left: int | None = None  # bytes of a body that are still to come; None: nobody knows
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]  # as its base has it
        """Wait for a head, but not for ever."""
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_SECONDS, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Hand on a head once it is whole, its body as it comes, and then what was sent ahead."""
        while data and not self.transport.is_closing():
            if self._in_head and not self._begun:
                data = self._behind_head(data)
                continue
            now, data = data[: self._left], data[self._left :] if self._left is not None else b""
            super().data_received(now)
            if self._left is not None:
                self._left -= len(now)
            if self._begun:  # a head that came right behind a body in chunks, and not whole
                self._fed += len(now)
                self._wait_on(self._fed)

    def _behind_head(self, data: bytes) -> bytes:
        """Hand on a head, if it is whole with these bytes; those of them that stand behind it."""
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if self._head.startswith(_TLS):  # the parser refuses it at once
            super().data_received(self._head)
            return b""
        if end < 0:
            self._wait_on(len(self._head))
            return b""
        head, rest = self._head[:end], self._head[end + 4 :]
        self._head = b""
        super().data_received(_UPGRADE.sub(_RENAMED, head) + b"\r\n\r\n")
        if not self._in_head:  # a body follows; else it has none, or was no head
            named = dict(self.headers)
            chunked = b"transfer-encoding" in named
            self._left = None if chunked else int(named.get(b"content-length", b"0"))
        return rest

    def on_message_begin(self) -> None:
        """The parser reads a head; what was left of a body before it says nothing of this one."""
        self._begun, self._fed, self._left = True, 0, None
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; what comes behind a body is none, and nobody may add a key or a token there."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole. A client of HTTP/1.0 knows no chunks: its body ends where all does."""
        self._in_head = self._begun = False
        self._stop_waiting()
        super().on_headers_complete()
        if self.scope["http_version"] == "1.0":
            self.cycle.chunked_encoding = False
            self.cycle.expected_content_length = _UNTIL_CLOSED

    def on_message_complete(self) -> None:
        """Another head may follow."""
        self._in_head = True
        super().on_message_complete()

    def _wait_on(self, size: int) -> None:
        """Wait for the rest of a head, if it is not too long already."""
        self._unset_keepalive_if_required()
        if size > HEAD_BYTES:
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        elif self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
