"""Upstream of the proxy's bench: it answers every request at once.

It speaks HTTP over raw sockets, so that what is measured is what stands before it.
"""

from __future__ import annotations

import asyncio
import json
import re
from abc import ABC, abstractmethod

HERE = "127.0.0.1"
STREAMS = re.compile(rb'"stream": ?true')
KEPT = 8_192  # bytes of a body that are inspected; only small requests ask for a stream
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-4-7",
    "content": [{"type": "text", "text": "x" * 900}], "stop_reason": "end_turn",
    "stop_sequence": None, "usage": {"input_tokens": 9, "output_tokens": 3},
}  # fmt: skip
EVENTS = (
    {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
)


def _whole() -> bytes:
    body = json.dumps(MESSAGE).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


def _stream() -> bytes:
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    told = (f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in EVENTS)
    return head + b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in told) + b"0\r\n\r\n"


WHOLE, STREAM = _whole(), _stream()


class Framed(asyncio.Protocol, ABC):
    """One end of a connection, told of each whole message of known length from the other end."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._head = b""
        self._body = b""  # its beginning
        self._left = 0  # bytes of the body that are still to come

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._left:
            head, found, data = (self._head + data).partition(b"\r\n\r\n")
            self._head = head.lower()
            if not found:
                return
            at = self._head.find(b"content-length:")
            self._left = int(self._head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self._body) < KEPT:
            self._body += data[:KEPT]
        self._left -= len(data)
        if self._left <= 0:
            head, body = self._head, self._body
            self._head, self._body, self._left = b"", b"", 0
            self.whole(head, body)

    @abstractmethod
    def whole(self, head: bytes, body: bytes) -> None:
        """A message is there: its head in lower case, and its body's beginning."""


class Upstream(Framed):
    """Answers everything at once, with a stream where the body asks for one."""

    def whole(self, head: bytes, body: bytes) -> None:
        assert self.transport is not None
        if head.startswith(b"head "):  # as some probe; a body would be taken for the next answer
            self.transport.write(WHOLE.partition(b"{")[0])
            return
        self.transport.write(STREAM if STREAMS.search(body) else WHOLE)


async def upstream() -> tuple[asyncio.Server, int]:
    """An upstream that answers everything at once, and its port."""
    server = await asyncio.get_running_loop().create_server(Upstream, HERE, 0)
    return server, server.sockets[0].getsockname()[1]
