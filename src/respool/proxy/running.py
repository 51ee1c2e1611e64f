"""The server, in this process: started on a port, stopped with its open responses finished."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Future
from typing import Final

import uvicorn

from .app import App
from .forwarding.config import Config
from .forwarding.upstreams import Unservable
from .protocol import BoundedProtocol

_BACKLOG: Final = 1024
_KEPT_SECONDS: Final = 120  # that an idle connection is kept for its client


def bound(config: Config) -> socket.socket:
    """A socket that listens where the configuration says."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Connections inherit it. Without it, the second small chunk of a stream waits 40 ms.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.setsockopt(socket.SOL_SOCKET, _alone(), 1)
        listening.bind((config.host, config.port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise Unservable(
            f"respool cannot listen on {config.host} port {config.port}: {error.strerror or error}."
        ) from None
    return listening


def _alone() -> int:
    """The option by which one process has the port, and has it again as soon as it restarts.

    On Windows the usual one would let a second process listen there too, and share the requests.
    """
    return getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)


class _Server(uvicorn.Server):
    """The server without hands on this process's signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to whoever started the server."""
        yield


class Running:
    """A server that runs in the event loop it was started in."""

    def __init__(self, app: App, listening: socket.socket) -> None:
        self._app = app
        self._listening = listening
        self._server = _Server(
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
                timeout_keep_alive=_KEPT_SECONDS,
                timeout_graceful_shutdown=max(1, round(app.config.limits.drain)),
            )
        )
        self._serving: asyncio.Task[None] | None = None
        host, self.port = listening.getsockname()[:2]
        self.url = f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    async def start(self) -> None:
        """Serve from now on."""
        await self._app.start()
        self._serving = asyncio.create_task(self._server.serve([self._listening]))

    async def ended(self) -> None:
        """Wait until it serves no more."""
        assert self._serving is not None, "it was started"
        await self._serving

    async def stop(self) -> None:
        """Take no more connections, finish what is open within the drain limit, and end."""
        self._server.should_exit = True
        await self.ended()
        await self._app.stop()


@contextlib.asynccontextmanager
async def serving(app: App, listening: socket.socket | None = None) -> AsyncGenerator[Running]:
    """A server for as long as the block lasts: on this socket, or where the configuration says."""
    running = Running(app, bound(app.config) if listening is None else listening)
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


@contextlib.contextmanager
def serving_in_thread(
    make: Callable[[], App], listening: socket.socket | None = None
) -> Generator[Running]:
    """The same for code that is not asynchronous: the server has a thread of its own."""
    first: Future[Running] = Future()
    stop: Future[None] = Future()
    served = _served(make, listening, first, stop)
    thread = threading.Thread(target=asyncio.run, args=(served,), daemon=True)
    thread.start()
    running = first.result()
    try:
        yield running
    finally:
        stop.set_result(None)
        thread.join()


async def _served(
    make: Callable[[], App],
    listening: socket.socket | None,
    first: Future[Running],
    stop: Future[None],
) -> None:
    """Serve until told to stop; tells first that it runs, or why it cannot."""
    try:
        async with serving(make(), listening) as running:
            first.set_result(running)
            await asyncio.wrap_future(stop)
    except Exception as error:
        if first.done():
            raise
        first.set_exception(error)
