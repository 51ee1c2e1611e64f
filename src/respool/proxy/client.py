"""The HTTP client: connections upstream, without redirects and without decoding."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterable
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from yarl import URL

from .server_options import StartupError, TransferLimits, Upstream, is_loopback

SLICE: Final = 256 * 1024  # bytes of a large body that are written at a time
_SINGLE_WRITE: Final = 1024 * 1024  # bytes of a body that are written at once
_STALE: Final = 1.0  # seconds in which a kept connection turns out to be closed
_HEADER_BYTES: Final = 256 * 1024  # of one header of a response
_MAX_URLS: Final = 256  # parsed ones that are kept; some formats name the model in the path
_NO_DEFAULTS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
# A connection whose other end has silently gone, as after a suspend, is closed after six minutes.
# The providers' own clients do the same, but behind a proxy they only see the proxy.
_PROBES: Final = (
    ("TCP_KEEPIDLE", 60),
    ("TCP_KEEPALIVE", 60),  # its name on macOS
    ("TCP_KEEPINTVL", 60),
    ("TCP_KEEPCNT", 5),
    ("TCP_USER_TIMEOUT", 360_000),  # milliseconds, for sent data that is not acknowledged
)

CLIENT_ERRORS = (aiohttp.ClientError, OSError, asyncio.TimeoutError)


class RequestBody(msgspec.Struct, frozen=True):
    """A request's body as it came: held in memory, or streamed."""

    held: bytes | None  # None: it is streamed, or there is none
    stream: AsyncIterator[bytes] | None = None
    length: int | None = None  # of a stream, if the client announced it


NO_BODY: Final = RequestBody(None)


class Client:
    """Sends requests upstream. It must be opened in the event loop that uses it."""

    def __init__(self, upstreams: Iterable[Upstream], limits: TransferLimits) -> None:
        self._proxies = {one.origin: _proxy_for(one.origin) for one in upstreams}
        self._connect = limits.connect_seconds
        self._urls: dict[str, URL] = {}
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Open the client session."""
        tracing = aiohttp.TraceConfig()
        tracing.on_connection_reuseconn.append(_record_reuse)
        self._session = aiohttp.ClientSession(
            auto_decompress=False,
            connector=aiohttp.TCPConnector(
                limit=0, ttl_dns_cache=60, socket_factory=_keepalive_socket, ssl=_tls_context()
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            max_field_size=_HEADER_BYTES,
            max_headers=1_000,
            max_line_size=_HEADER_BYTES,
            skip_auto_headers=_NO_DEFAULTS,
            timeout=aiohttp.ClientTimeout(total=None, connect=self._connect),
            trace_configs=[tracing],
        )

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    async def send(
        self,
        method: str,
        upstream: Upstream,
        target: str,
        headers: list[tuple[str, str]],
        body: RequestBody,
    ) -> aiohttp.ClientResponse:
        """Send a request and return its response, whose body is still to be read.

        The other end may have closed a kept connection. That shows at once, before any byte of a
        response, and the request is then sent on another connection.
        """
        assert self._session is not None, "the client is open"
        now = asyncio.get_running_loop().time
        start, url, proxy = now(), self._url(target), self._proxies[upstream.origin]
        while True:
            sent = SimpleNamespace(reused=False)
            try:
                return await self._session.request(
                    method,
                    url,
                    headers=_with_length(headers, body),
                    data=_payload(body),
                    allow_redirects=False,
                    proxy=proxy,
                    trace_request_ctx=sent,
                )
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                retry = sent.reused and body.stream is None and now() - start < _STALE
                if not retry:
                    raise

    def _url(self, target: str) -> URL:
        """A parsed URL; those without a query are cached."""
        known = self._urls.get(target)
        if known is None:
            known = URL(target, encoded=True)
            if "?" not in target and len(self._urls) < _MAX_URLS:  # a query may hold a key
                self._urls[target] = known
        return known


def _tls_context() -> ssl.SSLContext:
    """The TLS context: certificates are verified alike in every version of Python.

    Since 3.13, Python refuses authorities without key identifiers, which many companies have.
    Agents accept them, so a request would fail that passes without respool.
    """
    made = ssl.create_default_context()
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    made.set_alpn_protocols(["http/1.1"])
    return made


def _keepalive_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket with keepalive probes, which detect that the other end has gone."""
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES:
        if hasattr(socket, name):
            with contextlib.suppress(OSError):  # some systems know the name but not the option
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


async def _record_reuse(_session: object, context: SimpleNamespace, _params: object) -> None:
    context.trace_request_ctx.reused = True


def _payload(body: RequestBody) -> Any:
    if body.held is None:
        return body.stream
    return body.held if len(body.held) <= _SINGLE_WRITE else _slices(body.held)


def _with_length(headers: list[tuple[str, str]], body: RequestBody) -> list[tuple[str, str]]:
    """The headers, with the length of a body that is written in slices."""
    length = body.length if body.held is None else len(body.held)
    if length is None or (body.held is not None and length <= _SINGLE_WRITE):
        return headers
    return [*headers, ("Content-Length", str(length))]


async def _slices(data: bytes) -> AsyncIterator[bytes]:
    """A large body in slices, so that other tasks can run in between."""
    for at in range(0, len(data), SLICE):
        yield data[at : at + SLICE]


def _proxy_for(origin: str) -> str | None:
    """The proxy that the environment names for a host."""
    parts = urlsplit(origin)
    host = parts.hostname or ""
    if is_loopback(host) or proxy_bypass(host) or proxy_bypass(parts.netloc):
        return None
    named = getproxies().get(parts.scheme)
    if not named:
        return None
    proxy = named if "://" in named else f"http://{named}"
    if urlsplit(proxy).scheme not in ("http", "https"):
        raise StartupError(
            f"The environment names a proxy for {parts.scheme} that is not one for HTTP "
            f"({urlsplit(proxy).scheme}), and respool can go through no other; {host} in NO_PROXY "
            "goes around it."
        )
    return proxy
