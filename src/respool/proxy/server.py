"""The HTTP server: on one port, with limits on heads; it ends after its open responses."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import signal
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Future
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from ..regex import lazy_compile
from .app import App
from .decoders import ChunkedDecoder
from .port_owner import describe_port_owner
from .server_options import ServerOptions, StartupError

_BACKLOG: Final = 1024
_FIRST_INHERITED: Final = 3  # descriptor, by the protocol of systemd
_KEEPALIVE_SECONDS: Final = 120
MAX_HEAD_BYTES: Final = 128 * 1024  # request line and headers
MAX_HEAD_SECONDS: Final = 30.0  # from the connection, or the first byte, to the end of the head
_UNTIL_CLOSED: Final = 2**62  # bytes: more than any body has

# After an Upgrade header, the parser takes the body for another protocol's. Some clients offer an
# upgrade with every request, so the header is renamed.
_UPGRADE = lazy_compile(rb"\r\nupgrade(?=[ \t]*:)", re.IGNORECASE)
_RENAMED: Final = b"\r\nx-respool-upgrade"

# After the end of what a client sends, an interim response shows if it still receives: a client
# that has closed its connection resets it, and the next write fails.
_INTERIM: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_PROBE_SECONDS: Final = (0.0, 0.05, 0.5, 3.0)  # between interim responses

_TLS: Final = b"\x16\x03"  # the first bytes of a client whose base URL says https
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\ncache-control: no-store\r\n"
    b"x-respool-error: headers\r\n\r\n"
)


def bind(options: ServerOptions) -> socket.socket:
    """A socket that listens on the host and port of the options."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Connections inherit it. Without it, the second small chunk of a stream comes 40 ms late.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.setsockopt(socket.SOL_SOCKET, _exclusive(), 1)
        listening.bind((options.host, options.port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise StartupError(
            f"respool cannot listen on {options.host} port {options.port}: "
            f"{_bind_problem(error, options.port)}"
        ) from None
    return listening


def _bind_problem(error: OSError, port: int) -> str:
    """Why a port cannot be had, and what to do."""
    problem = f"{error.strerror or error}"
    if error.errno == errno.EADDRINUSE:
        owner = describe_port_owner(port)
        holder = f" by {owner}" if owner else "; by which process cannot be seen from here"
        return f"{problem}{holder}. --port chooses another port."
    if error.errno == errno.EACCES:
        return f"{problem}. --port chooses another port; those below 1024 are the system's."
    return f"{problem}."


def inherited_socket() -> socket.socket | None:
    """The socket that a service manager opened for this process; None: it opened none.

    It is a duplicate: after an error, another server can still be given the same one.
    """
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    count = os.environ.get("LISTEN_FDS", "")
    if count != "1":
        raise StartupError(
            f"A service manager passes one socket to respool, not {count or 'none'}."
        )
    listening = socket.socket(fileno=os.dup(_FIRST_INHERITED))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _exclusive() -> int:
    """The socket option by which one process has the port, also right after a restart.

    On Windows, SO_REUSEADDR would let a second process listen on the same port.
    """
    return getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)


class _UvicornServer(uvicorn.Server):
    """The server, without its signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none: the process that started the server handles them."""
        yield


class RunningServer:
    """A server in the event loop in which it was started."""

    def __init__(self, app: App, listening: socket.socket) -> None:
        self._app = app
        self._listening = listening
        self._server = _UvicornServer(
            uvicorn.Config(
                app,
                http=BoundedProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",
                access_log=False,
                date_header=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=_KEEPALIVE_SECONDS,
                timeout_graceful_shutdown=max(1, round(app.options.limits.drain_seconds)),
            )
        )
        self._serving: asyncio.Task[None] | None = None
        host, self.port = listening.getsockname()[:2]
        self.url = f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    async def start(self) -> None:
        """Start serving."""
        await self._app.start()
        self._serving = asyncio.create_task(self._server.serve([self._listening]))

    async def give_notice(self, seconds: float, ended: asyncio.Event) -> None:
        """Serve for so many seconds more, but answer that it is not ready; `ended` ends it."""
        self._app.is_ending = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await ended.wait()

    async def stop(self) -> None:
        """Accept no more connections, finish open responses within the limit, and end."""
        assert self._serving is not None, "it was started"
        self._server.should_exit = True
        await self._serving
        await self._app.stop()


@contextlib.asynccontextmanager
async def serving(
    app: App, listening: socket.socket | None = None
) -> AsyncGenerator[RunningServer]:
    """A server for the duration of the block, on this socket or by the app's options."""
    running = RunningServer(app, bind(app.options) if listening is None else listening)
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


@contextlib.contextmanager
def serving_in_thread(
    make: Callable[[], App], listening: socket.socket | None = None
) -> Generator[RunningServer]:
    """A server in a thread of its own for the duration of the block."""
    first: Future[RunningServer] = Future()
    stop: Future[None] = Future()
    served = _serve_until(make, listening, first, stop)
    thread = threading.Thread(target=asyncio.run, args=(served,), daemon=True)
    thread.start()
    running = first.result()
    try:
        yield running
    finally:
        stop.set_result(None)
        thread.join()


async def _serve_until(
    make: Callable[[], App],
    listening: socket.socket | None,
    first: Future[RunningServer],
    stop: Future[None],
) -> None:
    """Serve until `stop` is set; `first` is the server, or the error that prevents it."""
    try:
        async with serving(make(), listening) as running:
            first.set_result(running)
            await asyncio.wrap_future(stop)
    except Exception as error:
        if first.done():
            raise
        first.set_exception(error)


def serve(make: Callable[[], App], listening: socket.socket) -> None:
    """Serve in this process until a signal ends it; a second SIGINT ends it at once."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve_until_signal(make, listening))


async def _serve_until_signal(make: Callable[[], App], listening: socket.socket) -> None:
    loop, ending, at_once = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def end(number: int) -> None:
        if number != signal.SIGTERM:  # somebody at a terminal
            at_once.set()
        ending.set()
        loop.remove_signal_handler(number)

    for number in _ending_signals():
        with contextlib.suppress(NotImplementedError):  # on Windows; there Ctrl-C ends it at once
            loop.add_signal_handler(number, end, number)
    app = make()
    async with serving(app, listening) as running:
        await ending.wait()
        await running.give_notice(app.options.limits.notice_seconds, at_once)


def _ending_signals() -> list[signal.Signals]:
    """The signals that end it; SIGHUP only if it is not ignored, as under `nohup`."""
    hang_up: signal.Signals | None = getattr(signal, "SIGHUP", None)  # there is none on Windows
    if hang_up is None or signal.getsignal(hang_up) is signal.SIG_IGN:
        return [signal.SIGINT, signal.SIGTERM]
    return [signal.SIGINT, signal.SIGTERM, hang_up]


# --- the protocol ------------------------------------------------------------------------------


# Statuses that no standard names; clients take them, and so must the server.
for _status in range(600, 1000):
    STATUS_LINE.setdefault(_status, b"HTTP/1.1 %d \r\n" % _status)


class BoundedProtocol(HttpToolsProtocol):
    """The server's HTTP protocol, with limits on heads, which it lacks.

    Each head and each body is passed to the parser by itself. Where a body ends is found by its
    length or its chunks; if the parser does not agree, the request is refused.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = True
        self._head = b""  # the part that has come
        self._left = 0  # bytes of a body that are still to come
        self._chunks: ChunkedDecoder | None = None  # of a body without a length
        self._timer: asyncio.TimerHandle | None = None
        self._probe: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]  # as in its base
        """Start the timer of the first head."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(MAX_HEAD_SECONDS, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._stop_timer()
        if self._probe is not None:
            self._probe.cancel()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]  # as asyncio has it
        """The client sends nothing more; True: it still waits for a response.

        Clients do that right behind a request. During a response it means that they have gone.
        """
        cycle: Any = self.cycle
        if cycle is None or cycle.response_started or not self._in_head:
            return False
        cycle.keep_alive = False  # its response is the last one
        self._stop_timer()
        if self._probe is None:
            self._probe_client(0)
        return True

    def _probe_client(self, count: int) -> None:
        """Send an interim response if one may be sent now, and again a little later."""
        cycle = self.cycle
        is_next = not cycle.response_started and not self.pipeline
        if is_next and cycle.scope["http_version"] == "1.1" and not self.transport.is_closing():
            self.transport.write(_INTERIM)
        if count + 1 < len(_PROBE_SECONDS):
            seconds = _PROBE_SECONDS[count + 1]
            self._probe = self.loop.call_later(seconds, self._probe_client, count + 1)

    def data_received(self, data: bytes) -> None:
        """Pass on a head once it is complete, its body as it comes, then pipelined requests."""
        while data and not self.transport.is_closing():
            data = self._feed_head(data) if self._in_head else self._feed_body(data)

    def _feed_head(self, data: bytes) -> bytes:
        """Pass on a head if these bytes complete it; returns the bytes behind it."""
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if self._head.startswith(_TLS):  # the parser refuses it
            super().data_received(self._head)
            return b""
        if end < 0:
            self._wait_for_head(len(self._head))
            return b""
        head, rest = self._head[:end], self._head[end + 4 :]
        self._head = b""
        super().data_received(_UPGRADE.sub(_RENAMED, head) + b"\r\n\r\n")
        if not self._in_head:  # a body follows
            named = dict(self.headers)
            self._chunks = ChunkedDecoder() if b"transfer-encoding" in named else None
            self._left = int(named.get(b"content-length", b"0"))
        return rest

    def _feed_body(self, data: bytes) -> bytes:
        """Pass on bytes of a body; returns the bytes behind it."""
        end: int | None
        if self._chunks is None:
            end = self._left if self._left <= len(data) else None
            self._left -= len(data[:end])
        else:
            _, end = self._chunks.feed(data)
        super().data_received(data[:end])
        has_ended = end is not None
        is_broken = self._chunks is not None and self._chunks.is_broken
        if (is_broken or self._in_head != has_ended) and not self.transport.is_closing():
            self.send_400_response("Invalid HTTP request received.")
        return data[end:] if has_ended else b""

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers behind a body are dropped, as they could add a key or a token."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is complete. HTTP/1.0 has no chunks: the response ends with the connection."""
        self._in_head = False
        self._stop_timer()
        super().on_headers_complete()
        if self.scope["http_version"] == "1.0":
            self.cycle.chunked_encoding = False
            self.cycle.expected_content_length = _UNTIL_CLOSED

    def on_message_complete(self) -> None:
        """Another head may follow."""
        self._in_head = True
        super().on_message_complete()

    def _wait_for_head(self, size: int) -> None:
        """Wait for the rest of a head, unless it is too long already."""
        self._unset_keepalive_if_required()
        if size > MAX_HEAD_BYTES:
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        elif self._timer is None:
            self._timer = self.loop.call_later(MAX_HEAD_SECONDS, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
