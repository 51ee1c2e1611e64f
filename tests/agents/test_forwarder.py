"""The plain forwarder: on any Python, to the same upstreams as the proxy, and as it came."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from respool.agents import forwarder
from respool.agents.service import port_state
from respool.proxy.asgi import request_from
from respool.proxy.router import select_upstream
from respool.proxy.server_options import Upstream, Upstreams, upstream_at, upstreams_of
from tests.support.ports import free_port

OPENAI = {"authorization": "Bearer sk-proj-1"}
CLAUDE = {"x-api-key": "sk-ant-1", "anthropic-version": "2023-06-01"}
REQUESTS: list[tuple[str, str, str, dict[str, str]]] = [
    ("POST", "/v1/messages", "beta=true", CLAUDE),
    ("POST", "/v1/messages/count_tokens", "", CLAUDE),
    ("GET", "/v1/models", "", CLAUDE),
    ("HEAD", "/", "", CLAUDE),
    ("POST", "/v1/chat/completions", "", OPENAI),
    ("POST", "/v1/responses", "", OPENAI),
    ("GET", "/v1/models", "", OPENAI),
    ("POST", "/v1beta/models/gemini-2.5-pro:streamGenerateContent", "alt=sse", {}),
    ("GET", "/v1beta/models", "key=AIza1", {}),
    ("GET", "/v1beta/models", "", {"x-goog-api-key": "AIza1"}),
    ("POST", "/respool-upstream/host/v1/chat/completions", "", OPENAI),
]
UPSTREAMS = [
    Upstreams(),
    upstreams_of(("anthropic=https://gateway/claude", "openai-chat=https://host/api/v1")),
    upstreams_of(
        (), {"openai": upstream_at("https://chatgpt.com/backend-api/codex", replaces_version=True)}
    ),
    upstreams_of(
        ("gemini=http://10.0.0.1:9/v1beta",), {}, {"host": Upstream("https://host", "/v1")}
    ),
]


@pytest.mark.parametrize("upstreams", UPSTREAMS)
@pytest.mark.parametrize(("method", "path", "query", "headers"), REQUESTS)
def test_requests_go_where_the_proxy_sends_them(
    method: str, path: str, query: str, headers: dict[str, str], upstreams: Upstreams
):
    scope: dict[str, Any] = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    if "respool-upstream" in path and not upstreams.named:
        return  # the proxy refuses it
    request, _, expected = select_upstream(request_from(scope), upstreams)
    chosen, there = forwarder.choose(msgspec.to_builtins(upstreams), path, query, headers)
    url = chosen["origin"] + forwarder.target(chosen, there, query)
    assert url == expected.url(request.path, query)


class Echo(BaseHTTPRequestHandler):
    """Answers with what came; in chunks if asked to."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        said = json.dumps({"path": self.path, "headers": headers, "body": body.decode()}).encode()
        self.send_response(418, "Teapot")
        if "stream" in self.path:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for at in range(0, len(said), 50):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(said[at : at + 50]), said[at : at + 50]))
            self.wfile.write(b"0\r\n\r\n")
            return
        said = gzip.compress(said)
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def forwarding(folder: Path, python: str, **variables: str) -> Iterator[int]:
    """A forwarder in a process of its own, before an upstream that echoes."""
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    going = upstreams_of((f"anthropic=http://127.0.0.1:{upstream.server_port}/gw",))
    file = folder / "upstreams.json"
    file.write_bytes(msgspec.json.encode(going))
    script = shutil.copy(forwarder.__file__, folder / "forwarder.py")
    port = free_port()
    process = subprocess.Popen(
        [python, "-I", script, file, str(port)], env={**os.environ, **variables}
    )
    try:
        until = time.monotonic() + 10
        while port_state(port) != "respool":
            assert time.monotonic() < until
            time.sleep(0.02)
        yield port
    finally:
        process.kill()
        process.wait()
        upstream.shutdown()
        upstream.server_close()


def system_pythons() -> list[str]:
    known = {shutil.which(name) for name in ("python3", "/usr/bin/python3")}
    return sorted({sys.executable, *filter(None, known)})


@pytest.mark.parametrize("python", system_pythons())
def test_a_request_passes_and_its_answer_comes_back_as_it_was(python: str, tmp_path: Path):
    with forwarding(tmp_path, python) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        for path in ("/v1/messages?beta=true", "/v1/messages?stream"):
            connection.request(
                "POST", path, iter([b"a" * 70_000, b"b"]), CLAUDE, encode_chunked=True
            )
            response = connection.getresponse()
            said = response.read()
            said = gzip.decompress(said) if response.headers["content-encoding"] else said
            came = json.loads(said)
            assert (response.status, response.reason) == (418, "Teapot")
            assert came["path"] == f"/gw{path}"
            assert came["body"] == "a" * 70_000 + "b"
            assert came["headers"]["x-api-key"] == "sk-ant-1"
            assert "transfer-encoding" not in came["headers"]
        connection.close()


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/messages", {}, 403),
        ("/respool-token/wrong-wrong-wrong/v1/messages", {}, 403),
        ("/respool-token/right-right-right/v1/messages", {}, 418),
        ("/v1/messages", {"x-respool-token": "right-right-right"}, 418),
        ("/respool-token/right-right-right/v1/messages", {"origin": "http://evil.example"}, 403),
        ("/respool-token/right-right-right/v1/messages", {"host": "evil.example"}, 403),
        ("/healthz", {}, 200),
    ],
)
def test_it_asks_for_the_token_and_refuses_web_pages(
    path: str, headers: dict[str, str], status: int, shared: int
):
    connection = http.client.HTTPConnection("127.0.0.1", shared, timeout=10)
    connection.request("POST", path, b"{}", {**CLAUDE, **headers})
    assert connection.getresponse().status == status
    connection.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    token = "right-right-right"
    with forwarding(
        tmp_path_factory.mktemp("forwarder"), sys.executable, RESPOOL_TOKEN=token
    ) as port:
        yield port


def test_an_upstream_that_cannot_be_reached_is_named(tmp_path: Path):
    taken = free_port()
    upstreams = {"anthropic": {"origin": f"http://127.0.0.1:{taken}", "prefix": ""}}
    forwarder.Forwarder.upstreams = upstreams
    with forwarder.Server(None, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        connection.request("POST", "/v1/messages", b"{}", CLAUDE)
        response = connection.getresponse()
        assert response.status == 502
        assert f"127.0.0.1:{taken} cannot be reached" in response.read().decode()
        connection.close()
        server.shutdown()
