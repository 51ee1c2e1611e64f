"""The HTTP client: connections upstream, without redirects and without decoding."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.http_parser import RawResponseMessage
from aiohttp.http_writer import HttpVersion
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from ..regex import lazy_compile
from .decoders import ChunkedDecoder, UndecodableBody, header_fields
from .server_options import StartupError, TransferLimits, Upstream, is_loopback

SLICE: Final = 256 * 1024  # bytes of a large body that are written at a time
_SINGLE_WRITE: Final = 1024 * 1024  # bytes of a body that are written at once
_STALE: Final = 1.0  # seconds in which a kept connection turns out to be closed
_HEAD_BYTES: Final = 256 * 1024  # of the status line and all headers of a response
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


class ConnectionProblem(msgspec.Struct, frozen=True):
    """A request that has no response."""

    sentence: str  # what became of it, behind the upstream's address
    cause: str  # where it failed, and why: 127.0.0.1:9: connection refused
    is_timeout: bool = False


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
        connector = aiohttp.TCPConnector(
            limit=0, ttl_dns_cache=60, socket_factory=_keepalive_socket, ssl=_tls_context()
        )
        make: Any = partial(LenientHandler, loop=asyncio.get_running_loop())
        connector._factory = make  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        self._session = aiohttp.ClientSession(
            auto_decompress=False,
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
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
        start, url, proxy = now(), self._url(target), self._proxy(upstream.origin)
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

    def problem_of(self, error: BaseException, upstream: Upstream) -> ConnectionProblem:
        """Describe an error of `send`, without any key."""
        return _describe_problem(error, upstream, self._proxy(upstream.origin), self._connect)

    def _proxy(self, origin: str) -> str | None:
        """The proxy to a host; some hosts of Vertex are known only by the requests."""
        if origin not in self._proxies:
            self._proxies[origin] = _proxy_for(origin)
        return self._proxies[origin]

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


# --- problems ----------------------------------------------------------------------------------

_ERRNO = lazy_compile(
    r"\[Errno (-?\d+)\]"
)  # in the error of several addresses, none of which answers


def upstream_address(upstream: Upstream) -> str:
    """Host and port of an upstream."""
    return _address(upstream.origin)


def _address(url: str) -> str:
    """Host and port of a URL, without a user and a password."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _describe_problem(
    error: BaseException, upstream: Upstream, proxy: str | None, seconds: float
) -> ConnectionProblem:
    where, why = upstream_address(upstream), _reason(error, seconds)
    is_timeout = isinstance(error, asyncio.TimeoutError)
    of_proxy = (aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError)
    if proxy is not None and (isinstance(error, of_proxy) or is_timeout):
        variable = f"{urlsplit(upstream.origin).scheme.upper()}_PROXY"
        where = f"{_address(proxy)} (the proxy that {variable} names)"
        return ConnectionProblem(
            f"cannot be reached through {where}: {why}", f"{where}: {why}", is_timeout
        )
    if is_timeout or isinstance(error, aiohttp.ClientConnectorError):
        return ConnectionProblem(f"cannot be reached: {why}", f"{where}: {why}", is_timeout)
    return ConnectionProblem(why, f"{where}: {why}")


def _reason(error: BaseException, seconds: float) -> str:
    """Why there is no response, in a few words."""
    match error:
        case asyncio.TimeoutError():
            return f"no connection within {seconds:g} s"
        case aiohttp.ClientConnectorCertificateError():
            why = getattr(error.certificate_error, "verify_message", "") or "it is not valid"
            return f"its certificate is not trusted ({why})"
        case aiohttp.ClientConnectorSSLError():
            return f"TLS failed ({_tls_reason(getattr(error, 'os_error', None))})"
        case aiohttp.ClientConnectorDNSError():
            why = error.strerror or str(error.os_error)
            return f"its name cannot be resolved ({why.lower()})"
        case aiohttp.ClientConnectorError():
            return _system_reason(error.os_error)
        case aiohttp.ClientHttpProxyError():
            return f"it answered {error.status}"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError():
            return "closed the connection without an answer"
        case aiohttp.ClientResponseError():
            return f"gave an answer that is not HTTP ({error.message or type(error).__name__})"
        case _:
            return f"gave an answer that is not HTTP ({type(error).__name__})"


def _tls_reason(error: object) -> str:
    """The reason that OpenSSL gives, such as `wrong version number`."""
    why = getattr(error, "reason", None) or getattr(error, "strerror", None) or "no reason given"
    return str(why).lower().replace("_", " ")


def _system_reason(error: OSError) -> str:
    """The reason of a system error; of one for several addresses, the first."""
    found = _ERRNO.search(str(error))
    number = error.errno or (int(found[1]) if found else 0)
    if number > 0:
        return os.strerror(number).lower()
    return (error.strerror or type(error).__name__).lower()


# --- responses ---------------------------------------------------------------------------------

_STATUS_LINE = lazy_compile(rb"HTTP/([0-9])\.([0-9]) ([0-9]{3})(?: ([^\x00\n\v\f\r]*+))?\r?\n")
_START: Final = b"HTTP/"
_HEAD_END = lazy_compile(rb"\n\r?\n")
_LENGTH = lazy_compile(rb"[0-9]{1,18}")
_BODILESS: Final = (204, 304)


class ResponseParser:
    """Parses one response and its body by the rules of h11, in place of aiohttp's own parser.

    The providers' clients use h11, which reads what aiohttp refuses: equal lengths that are
    repeated, a length beside chunks, bytes behind the body, any status. After a response that is
    odd in such a way, the connection is closed, so that none of its bytes can be taken for the
    response to another request.
    """

    def __init__(
        self, handler: ResponseHandler, payload: aiohttp.StreamReader, *, has_body: bool
    ) -> None:
        self._handler = handler
        self._payload = payload
        self._has_body = has_body  # False: the request was a HEAD
        self._head: bytes | None = b""  # the part that has come; None: it is complete
        self._searched = 0  # bytes of it without a blank line
        self._chunks: ChunkedDecoder | None = None
        self._left: int | None = None  # bytes of the body; None: unknown, or until it is closed
        self._is_over = False

    def feed_data(self, data: bytes) -> tuple[list[tuple[Any, aiohttp.StreamReader]], bool, bytes]:
        """Parse the next bytes; returns the response once its head is complete."""
        if self._head is None:
            self._feed_body(data)
            return [], False, b""
        self._head += data
        while (end := self._end_of_head()) is not None:
            head, self._head = self._head[:end], self._head[end:]
            message = self._parse(head)
            if message is not None:
                rest, self._head = self._head, None
                self._feed_body(rest)
                return [(message, self._payload)], False, b""
        return [], False, b""

    def feed_eof(self) -> None:
        """The connection is closed; raises if that is within a body."""
        if self._head is not None or self._is_over:
            return
        if self._chunks is not None or self._left is not None:
            raise BadHttpMessage("the response is cut off")
        self._end()

    def pause_reading(self) -> None:
        """Nothing is left to be parsed: all that came is in the payload."""

    def fail(self, error: BaseException) -> None:
        """The connection broke; a body without a length did not end with that."""
        if self._head is None and not self._is_over:
            self._is_over = True
            self._payload.set_exception(aiohttp.ClientPayloadError(str(error)))

    def _end_of_head(self) -> int | None:
        """The position behind the first blank line."""
        head = self._head or b""
        if not _START.startswith(head[: len(_START)]):
            raise BadHttpMessage("the response does not begin with HTTP/")
        found = _HEAD_END.search(head, self._searched)
        if (found.end() if found else len(head)) > _HEAD_BYTES:
            raise BadHttpMessage("the head of the response is too large")
        self._searched = 0 if found else max(0, len(head) - 2)
        return found.end() if found else None

    def _parse(self, head: bytes) -> RawResponseMessage | None:
        """The head of a final response; None for an interim one."""
        line = _STATUS_LINE.match(head)
        blank = 2 if head.endswith(b"\r\n") else 1
        if line is None:
            raise BadHttpMessage("the status line is malformed")
        try:
            fields, is_plain = header_fields(head[line.end() : -blank])
        except UndecodableBody:
            raise BadHttpMessage("a header is malformed") from None
        status = int(line[3])
        if status < 200:
            if status < 100 or status == 101:
                raise BadHttpMessage(f"status {status}")
            return None
        named = [(name.lower(), value) for name, value in fields]
        fields, is_odd = self._frame(status, fields, named)
        connection = b",".join(value for name, value in named if name == b"connection")
        words = {word.strip() for word in connection.lower().split(b",")} if connection else ()
        version = HttpVersion(int(line[1]), int(line[2]))
        is_plain = is_plain and line[0].endswith(b"\r\n")
        should_close = is_odd or not is_plain or version < (1, 1) or b"close" in words
        text = [(a.decode("ascii"), b.decode("utf-8", "surrogateescape")) for a, b in fields]
        return RawResponseMessage(
            version=version,
            code=status,
            reason=(line[4] or b"").decode("utf-8", "surrogateescape"),
            headers=CIMultiDictProxy(CIMultiDict(text)),
            raw_headers=tuple(fields),
            should_close=should_close,
            compression=None,
            upgrade=False,
            chunked=self._chunks is not None,
        )

    def _frame(
        self, status: int, fields: list[tuple[bytes, bytes]], named: list[tuple[bytes, bytes]]
    ) -> tuple[list[tuple[bytes, bytes]], bool]:
        """Choose how the body ends; returns the headers that say so, and if they were odd."""
        lengths = [value for name, value in named if name == b"content-length"]
        codings = [value.lower() for name, value in named if name == b"transfer-encoding"]
        different = {one.strip() for value in lengths for one in value.split(b",")}
        if codings not in ([], [b"chunked"]):
            raise BadHttpMessage("the transfer coding is not known")
        if len(different) > 1 or not all(_LENGTH.fullmatch(one) for one in different):
            raise BadHttpMessage("the lengths of the response contradict each other")
        if not self._has_body or status in _BODILESS:
            self._left = 0
        elif codings:
            self._chunks = ChunkedDecoder()
        elif different:
            self._left = int(next(iter(different)))
        if len(lengths) + len(codings) <= 1 and (not lengths or lengths[0] in different):
            return fields, status >= 600
        kept = [
            pair for pair, (name, _) in zip(fields, named, strict=True) if name != b"content-length"
        ]
        if not codings:
            kept += [(b"Content-Length", one) for one in different]
        return kept, True

    def _feed_body(self, data: bytes) -> None:
        """Pass on the next bytes of the body; the response is over with its last one."""
        if self._is_over:
            if data:  # nobody asked for it
                self._handler.close()
            return
        end: int | None = None
        if self._chunks is not None:
            parts, end = self._chunks.feed(data)
            for part in parts:
                self._payload.feed_data(part)
            if self._chunks.is_broken:
                self._handler.force_close()
                self.fail(BadHttpMessage("a chunk is malformed"))
        elif self._left is not None:
            body = data[: self._left]
            self._left -= len(body)
            end = None if self._left else len(body)
            self._payload.feed_data(body)
        else:
            self._payload.feed_data(data)
        if end is not None:
            if end < len(data):
                self._handler.force_close()
            self._end()

    def _end(self) -> None:
        self._is_over = True
        self._payload.feed_eof()


class LenientHandler(ResponseHandler):
    """aiohttp's connection, with our parser."""

    def set_response_params(self, **given: Any) -> None:
        """Expect a response."""
        early, self._tail = self._tail, b""
        super().set_response_params(**given)
        limit = self._read_bufsize
        payload = aiohttp.StreamReader(self, limit, timer=given.get("timer"), loop=self._loop)
        has_body = not given.get("skip_payload", False)
        self._parser: Any = ResponseParser(self, payload, has_body=has_body)
        self._tail = early
        self._drain_tail()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is closed, or broke."""
        if exc is not None and self._parser is not None:
            self._parser.fail(exc)
        super().connection_lost(exc)
