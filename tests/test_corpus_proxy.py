"""Every recorded request through `respool serve`: upstream gets what the library makes of it.

Part of `make corpus`. The upstream says back what it got, so that is what the client reads.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from pathlib import Path

import pytest

from respool import compact
from respool.compaction.memo import Memo
from tests.corpus.sessions import corpus, sessions, shards
from tests.proxy.compaction import PATHS
from tests.proxy.program import Client
from tests.proxy.test_server import served

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(corpus() is None, reason="CORPUS names no folder of recorded sessions"),
]

BEARER = {"authorization": "Bearer k"}
KEYS = {
    "anthropic": {"x-api-key": "k", "anthropic-version": "2023-06-01"},
    "openai-chat": BEARER,
    "openai-responses": BEARER,
    "gemini": {"x-goog-api-key": "k"},
}
UPSTREAMS = ("anthropic", "openai", "gemini")
SOME = 3  # every so many-th slice goes through two servers as well
MODEL = "gemini-2.5-pro"  # that Gemini's path names
RUNS = [(1, shard) for shard in shards()] + [(2, shard) for shard in shards()[::SOME]]


class Echo(BaseHTTPRequestHandler):
    """Says what it was told."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture(scope="module")
def echo() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@contextlib.contextmanager
def proxied(echo: int, servers: int, folder: Path) -> Iterator[list[Client]]:
    """A connection to each of several servers with one store in front of the echo."""
    to = [f"--upstream={name}=http://127.0.0.1:{echo}" for name in UPSTREAMS]
    shared = ("--shared-store",) if servers > 1 else ()
    options = ("--quiet", "--deadline=60", *shared, *to)
    store = str(folder / "respool.db")
    with contextlib.ExitStack() as all:
        ports = [
            all.enter_context(served(*options, RESPOOL_STORE=store))[1] for _ in range(servers)
        ]
        clients = [Client(port) for port in ports]
        try:
            yield clients
        finally:
            for client in clients:
                client.close()


@pytest.mark.parametrize(
    ("servers", "shard"),
    RUNS,
    ids=[f"{name.split('.')[0]}-{at}-{servers}" for servers, (name, at, _) in RUNS],
)
def test_upstream_gets_what_the_library_makes(
    servers: int, shard: tuple[str, int, int], echo: int, tmp_path: Path
) -> None:
    with proxied(echo, servers, tmp_path) as clients:
        turns = cycle(clients)
        for session in sessions(shard):
            for history in session.histories:
                memo, model = Memo(), MODEL if history.format == "gemini" else None
                for number, body in enumerate(history.bodies()):
                    status, got = next(turns).ask(body, PATHS[history.format], KEYS[history.format])
                    made = compact(body, format=history.format, memo=memo, model=model)
                    assert status == http.client.OK
                    assert got == made.request, f"{history.id}, request {number}"
