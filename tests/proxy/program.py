"""`respool serve` as a program, in front of an upstream that answers as Anthropic does."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from tests.proxy.test_server import SOON

USAGE = {"input_tokens": 10, "cache_read_input_tokens": 300, "cache_creation_input_tokens": 90}
MODEL = "claude-sonnet-4-5"
WRONG = b'{"type":"error","error":{"type":"invalid_request_error","message":"messages: wrong"}}'
KEY = {"x-api-key": "sk-ant-secret-key", "anthropic-version": "2023-06-01"}


def events() -> list[bytes]:
    """A streamed answer, event by event."""
    message = {"model": MODEL, "usage": {**USAGE, "output_tokens": 1}}
    end = {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}
    told: list[tuple[str, dict[str, Any]]] = [
        ("message_start", {"message": message}),
        ("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "well"}}),
        ("message_delta", end),
        ("message_stop", {}),
    ]
    return [
        f"event: {kind}\ndata: {json.dumps({'type': kind, **rest})}\n\n".encode()
        for kind, rest in told
    ]


@dataclass
class Provider:
    """Requests that a provider received, and the gates of its streams."""

    port: int = 0
    received: list[bytes] = field(default_factory=list)
    refuses: Callable[[bytes], bool] = lambda _body: False
    go_on: threading.Event = field(default_factory=threading.Event)


@contextlib.contextmanager
def provider() -> Iterator[Provider]:
    """A server that streams an answer to each request; it stops after the first event if told."""
    made = Provider()
    made.go_on.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            made.received.append(self.rfile.read(int(self.headers["content-length"])))
            if made.refuses(made.received[-1]):
                self.send_response(400)
                self.send_header("content-length", str(len(WRONG)))
                self.end_headers()
                self.wfile.write(WRONG)
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for event in events():
                self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
                self.wfile.flush()
                made.go_on.wait(SOON)
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.port = server.server_port
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield made
        server.shutdown()


class Client:
    """One connection that is kept."""

    opened: ClassVar[list[Client]] = []

    def __init__(self, port: int) -> None:
        self.opened.append(self)
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SOON)

    def post(self, body: bytes, path: str = "/v1/messages", **headers: str) -> tuple[int, bytes]:
        return self.ask(body, path, {**KEY, **headers})

    def ask(self, body: bytes, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
        self._connection.request("POST", path, body, headers)
        with self._connection.getresponse() as response:
            return response.status, response.read()

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        self._connection.request("GET", path, headers=headers)
        with self._connection.getresponse() as response:
            return response.status, response.read()

    def close(self) -> None:
        self._connection.close()
