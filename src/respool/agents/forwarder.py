"""Plain forwarder: requests go on to their upstreams as they came.

It is what agents are left with when respool itself cannot run: after its environment was deleted
or its packages were broken. `respool install` copies this file beside its records, so it imports
nothing but the standard library and runs on any Python from 3.8 on:

    python3 forwarder.py UPSTREAMS.json PORT
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

if TYPE_CHECKING:  # only there: Python 3.8 cannot make these types when it runs
    from collections.abc import Iterator

    Upstream = dict[str, Any]  # origin, prefix, replaces_version
    Upstreams = dict[str, Upstream]  # by the name of a format or provider; and `named`

TIMEOUT = 600.0  # seconds without a byte from upstream
CHUNK = 65_536
FIRST_INHERITED = 3  # descriptor of a socket that a service manager opened
LOOPBACK = ("127.0.0.1", "localhost", "::1")
HOP = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"}
    | {"upgrade", "content-length", "host", "x-respool-token"}
)
PATHS = (
    (re.compile(r"/v1/messages(?:/|$)"), "anthropic"),
    (re.compile(r"/v1/chat/completions$"), "openai_chat"),
    (re.compile(r"/v1/responses(?:/|$)"), "openai_responses"),
    (re.compile(r"/v1(?:alpha|beta)?/models/[^/:]+:"), "gemini"),
)
VERSION = re.compile(r"/v\d{1,2}(?:alpha|beta)?\d{0,2}")
NAMED = re.compile(r"/respool-upstream/([^/]+)")  # an upstream that a base URL names
TOKEN_PREFIX = re.compile(r"/respool-token/([^/]+)")


def route(path: str, query: str, headers: Any) -> str:
    """Name of the upstream of a request, by its path, else by its headers."""
    for pattern, name in PATHS:
        if pattern.match(path):
            return name
    if headers.get("anthropic-version") or headers.get("x-api-key"):
        return "anthropic"
    if headers.get("x-goog-api-key") or re.search(r"(?:^|&)key=", query):
        return "gemini"
    return "openai"


def choose(upstreams: Upstreams, path: str, query: str, headers: Any) -> tuple[Upstream, str]:
    """Upstream of a request, and its path there."""
    found = NAMED.match(path)
    known = upstreams.get("named", {})
    if found and found.group(1) in known:
        return known[found.group(1)], path[found.end() :]
    return upstreams[route(path, query, headers)], path


def target(upstream: Upstream, path: str, query: str) -> str:
    """Path and query of a request at its upstream."""
    prefix = str(upstream.get("prefix", ""))
    versioned = prefix and VERSION.fullmatch(prefix, prefix.rfind("/"))
    if upstream.get("replaces_version") or versioned:
        found = VERSION.match(path)
        if found and path[found.end() : found.end() + 1] in ("", "/"):
            path = path[found.end() :]
    return prefix + path + ("?" + query if query else "")


def connect(origin: str) -> http.client.HTTPConnection:
    """Connect to a host, through the HTTP proxy that the environment names for it."""
    parts = urlsplit(origin)
    host = parts.hostname or ""
    is_secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
    named = None if host in LOOPBACK or proxy_bypass(host) else getproxies().get(parts.scheme)
    if not named or not is_secure:
        return kind(host, parts.port, timeout=TIMEOUT)
    proxy = urlsplit(named if "://" in named else "http://" + named)
    made = kind(proxy.hostname or "", proxy.port, timeout=TIMEOUT)
    made.set_tunnel(host, parts.port or 443)
    return made


class Forwarder(BaseHTTPRequestHandler):
    """Forwards each request, and answers with what comes back."""

    protocol_version = "HTTP/1.1"
    upstreams: Upstreams
    token = ""
    why = ""

    def do_request(self) -> None:
        """Answer one request."""
        path, _, query = self.path.partition("?")
        given = TOKEN_PREFIX.match(path)
        path = path[given.end() :] if given else path
        token = given.group(1) if given else self.headers.get("x-respool-token", "")
        body = b"".join(self._body())
        if path == "/healthz":
            self._answer(200, health(self.why))
        elif not self._is_local() or (self.token and token != self.token):
            self._answer(403, {"error": {"message": "respool: this request is not allowed."}})
        else:
            self._forward(path, query, body)

    def _is_local(self) -> bool:
        """Report whether the request was made on this machine, and by no page of a browser's."""
        sites = ["http://" + self.headers.get("host", ""), self.headers.get("origin", "")]
        return all(not site or urlsplit(site).hostname in LOOPBACK for site in sites)

    def _body(self) -> Iterator[bytes]:
        if "chunked" not in self.headers.get("transfer-encoding", "").lower():
            yield self.rfile.read(int(self.headers.get("content-length") or 0))
            return
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers

    def _forward(self, path: str, query: str, body: bytes) -> None:
        upstream, path = choose(self.upstreams, path, query, self.headers)
        connection = connect(upstream["origin"])
        try:
            connection.putrequest(
                self.command, target(upstream, path, query), skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                if name.lower() not in HOP:
                    connection.putheader(name, value)
            if body or self.command in ("POST", "PUT", "PATCH"):
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            message = "respool forwards only, and {} cannot be reached: {}".format(
                upstream["origin"], error
            )
            self._answer(502, {"error": {"message": message}})
            return
        with contextlib.closing(connection):
            self._pass_back(response)

    def _pass_back(self, response: http.client.HTTPResponse) -> None:
        self.send_response_only(response.status, response.reason)
        for name, value in response.getheaders():
            if name.lower() not in HOP:
                self.send_header(name, value)
        has_body = self.command != "HEAD" and response.status not in (204, 304)
        length = response.getheader("content-length")
        if length is not None:
            self.send_header("Content-Length", length)
        elif has_body:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while has_body and (data := response.read1(CHUNK)):
            self.wfile.write(data if length is not None else b"%x\r\n%s\r\n" % (len(data), data))
        if has_body and length is None:
            self.wfile.write(b"0\r\n\r\n")

    def _answer(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = do_request  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def health(why: str) -> dict[str, Any]:
    """Answer to the question how the proxy is, in the shape of respool's own."""
    breaker = {"phase": "open", "reason": "requests are forwarded as they come: " + why}
    state = {"status": "degraded", "version": "", "mode": "forward", "store": "unused"}
    return {**state, "circuit_breaker": breaker}


class Server(ThreadingHTTPServer):
    """The forwarder's server, on a socket that exists already or on a port."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, listening: socket.socket | None, port: int) -> None:
        super().__init__(("127.0.0.1", port), Forwarder, bind_and_activate=listening is None)
        if listening is not None:
            self.socket.close()
            self.socket = listening

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that have gone."""


def inherited_socket() -> socket.socket | None:
    """Socket that a service manager opened for this process; None: there is none."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or not os.environ.get("LISTEN_FDS"):
        return None
    return socket.socket(fileno=FIRST_INHERITED)


def serve(upstreams: Upstreams, listening: socket.socket | None, port: int, why: str = "") -> None:
    """Forward until the process is ended; `why` is told to whom asks how it is."""
    Forwarder.upstreams = upstreams
    Forwarder.why = why or "respool cannot run"
    Forwarder.token = os.environ.get("RESPOOL_TOKEN", "")
    with Server(listening, port) as server:
        server.serve_forever()


def main(arguments: tuple[str, ...]) -> None:
    """Serve by the words of a command line."""
    file, port = arguments
    if hasattr(os, "setsid"):
        with contextlib.suppress(OSError):
            os.setsid()  # whoever started it may end its whole process group
    serve(json.loads(Path(file).read_text(encoding="utf-8")), inherited_socket(), int(port))


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
