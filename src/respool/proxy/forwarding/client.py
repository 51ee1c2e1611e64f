"""The connections upstream: kept, never followed elsewhere, nothing decoded."""

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
from yarl import URL

from .caller import Body
from .config import Limits, is_loopback
from .upstreams import Unservable, Upstream

SLICE: Final = 256 * 1024  # bytes of a large body that are written at a time
_AT_ONCE: Final = 1024 * 1024  # bytes of a body that are written in one go
_STALE: Final = 1.0  # seconds in which a kept connection shows that it had been closed
_HEAD: Final = 256 * 1024  # bytes of one header of a response
_MOST_URLS: Final = 256  # that are kept: some formats name the model in theirs
_SILENT = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")  # what no client asked for
# A connection whose other end is gone without a word, as after a suspend, is given up after six
# minutes; so do the providers' own clients, which see no more than a server that is well: this one.
_PROBES: Final = (
    ("TCP_KEEPIDLE", 60),
    ("TCP_KEEPALIVE", 60),  # its name on a Mac
    ("TCP_KEEPINTVL", 60),
    ("TCP_KEEPCNT", 5),
    ("TCP_USER_TIMEOUT", 360_000),  # milliseconds, for what was sent and not confirmed
)

TROUBLE = (aiohttp.ClientError, OSError, asyncio.TimeoutError)


class Client:
    """Sends requests to upstreams. To be opened in the event loop that uses it."""

    def __init__(self, upstreams: Iterable[Upstream], limits: Limits) -> None:
        self._proxies = {one.origin: _proxy_for(one.origin) for one in upstreams}
        self._connect = limits.connect
        self._urls: dict[str, URL] = {}
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Make ready."""
        tracing = aiohttp.TraceConfig()
        tracing.on_connection_reuseconn.append(_note_reuse)
        self._session = aiohttp.ClientSession(
            auto_decompress=False,
            connector=aiohttp.TCPConnector(
                limit=0, ttl_dns_cache=60, socket_factory=_probing, ssl=_trusting_as_clients_do()
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            max_field_size=_HEAD,
            max_headers=1_000,
            max_line_size=_HEAD,
            skip_auto_headers=_SILENT,
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
        body: Body,
    ) -> aiohttp.ClientResponse:
        """The head of the response; its body is still to be read.

        A kept connection may have been closed at the other end in the meantime. That shows at once
        and before any byte of an answer, and then the request is sent on another one.
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
                again = sent.reused and body.flowing is None and now() - start < _STALE
                if not again:
                    raise

    def _url(self, target: str) -> URL:
        """A target as the client takes it; the few that come again and again are kept."""
        known = self._urls.get(target)
        if known is None:
            known = URL(target, encoded=True)
            if "?" not in target and len(self._urls) < _MOST_URLS:  # a query may hold a key
                self._urls[target] = known
        return known


def _trusting_as_clients_do() -> ssl.SSLContext:
    """What certificates are verified with: the same in every version of Python.

    Since 3.13 it refuses authorities without identifiers of their keys, as many a company's own
    is. Agents take those: a request would fail that passes without respool.
    """
    made = ssl.create_default_context()
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    made.set_alpn_protocols(["http/1.1"])
    return made


def _probing(address: tuple[Any, ...]) -> socket.socket:
    """A socket that finds out by itself when the other end is gone."""
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES:
        if hasattr(socket, name):
            with contextlib.suppress(OSError):  # a system may know the name and not the option
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


async def _note_reuse(_session: object, context: SimpleNamespace, _params: object) -> None:
    context.trace_request_ctx.reused = True


def _payload(body: Body) -> Any:
    if body.held is None:
        return body.flowing
    return body.held if len(body.held) <= _AT_ONCE else _slices(body.held)


def _with_length(headers: list[tuple[str, str]], body: Body) -> list[tuple[str, str]]:
    """The headers, with the length of a body that is written piece by piece."""
    length = body.length if body.held is None else len(body.held)
    if length is None or (body.held is not None and length <= _AT_ONCE):
        return headers
    return [*headers, ("Content-Length", str(length))]


async def _slices(data: bytes) -> AsyncIterator[bytes]:
    """A large body in pieces, so that others get their turn."""
    for at in range(0, len(data), SLICE):
        yield data[at : at + SLICE]


def _proxy_for(origin: str) -> str | None:
    """The proxy that this machine's environment names for a host, as other clients use it."""
    parts = urlsplit(origin)
    host = parts.hostname or ""
    if is_loopback(host) or proxy_bypass(host) or proxy_bypass(parts.netloc):
        return None
    named = getproxies().get(parts.scheme)
    if not named:
        return None
    proxy = named if "://" in named else f"http://{named}"
    if urlsplit(proxy).scheme not in ("http", "https"):
        raise Unservable(
            f"The environment names a proxy for {parts.scheme} that is not one for HTTP "
            f"({urlsplit(proxy).scheme}), and respool can go through no other; {host} in NO_PROXY "
            "goes around it."
        )
    return proxy
