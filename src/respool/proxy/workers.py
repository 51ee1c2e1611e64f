"""Serving until told to stop: in this process, or in several that share one port."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import signal
import socket
import time
from collections.abc import Callable, Iterable
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from threading import Thread
from types import FrameType
from typing import Final

from .app import App
from .forwarding.upstreams import Unservable
from .running import serving

_SPARE: Final = 5.0  # seconds beyond the drain that a process has to end
_LOSSES: Final = 5  # processes that may die within a minute; after more, the next would die too
_log = logging.getLogger(__name__)

Make = Callable[[], App]
MakeNumbered = Callable[[int], App]  # for the process with this number, from 1 on


def serve_here(make: Make, listening: socket.socket) -> None:
    """Serve in this process until it is interrupted or terminated."""
    with contextlib.suppress(KeyboardInterrupt):  # at the second one, it ends at once
        asyncio.run(_until_told(make, listening))


def serve_in_processes(
    make: MakeNumbered, listening: socket.socket, count: int, drain: float
) -> None:
    """Serve in so many processes; one that dies is replaced by another of its number.

    At the end the socket is closed.
    """
    stopping: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        stopping.append(number)

    before = {number: signal.signal(number, note) for number in _endings()}
    processes = _started(make, listening, range(1, count + 1))
    losses: list[float] = []
    try:
        while not stopping:
            wait([one.sentinel for one in processes.values()], timeout=0.2)
            dead = [number for number, one in processes.items() if not one.is_alive()]
            for number in dead:
                _log.warning(
                    "Worker %d ended with status %s, and another takes its place.",
                    number,
                    processes[number].exitcode,
                )
            losses += [time.monotonic()] * len(dead)
            losses = [moment for moment in losses if time.monotonic() - moment < 60]
            if len(losses) > max(_LOSSES, 2 * count):  # all of them may be killed at once
                raise Unservable("Workers end as soon as they are started; see what they said.")
            processes |= _started(make, listening, dead)
    finally:
        listening.close()  # who comes now is told at once, and does not wait until all have ended
        _end(list(processes.values()), drain + _SPARE)
        for number, handler in before.items():
            signal.signal(number, handler)


def _endings() -> list[signal.Signals]:
    """The signals that end it; a closed terminal's only where nobody said that it goes on."""
    hung_up: signal.Signals | None = getattr(signal, "SIGHUP", None)  # there is none on Windows
    if hung_up is None or signal.getsignal(hung_up) is signal.SIG_IGN:
        return [signal.SIGINT, signal.SIGTERM]
    return [signal.SIGINT, signal.SIGTERM, hung_up]


async def _until_told(make: Make, listening: socket.socket) -> None:
    loop, told = asyncio.get_running_loop(), asyncio.Event()

    def tell(number: int) -> None:
        told.set()
        loop.remove_signal_handler(number)

    for number in _endings():
        with contextlib.suppress(NotImplementedError):  # on Windows; there Ctrl-C ends it at once
            loop.add_signal_handler(number, tell, number)
    above = multiprocessing.parent_process()
    if above is not None:  # a worker ends with the process that started it, however that ended
        tell_loop = partial(loop.call_soon_threadsafe, told.set)
        Thread(target=_when_ended, args=(above.sentinel, tell_loop), daemon=True).start()
    async with serving(make(), listening):
        await told.wait()


def _when_ended(sentinel: int, tell: Callable[[], object]) -> None:
    """Tell when a process has ended; waited for in a thread, as not every event loop can."""
    wait([sentinel])
    with contextlib.suppress(RuntimeError):  # the loop has ended before
        tell()


def _started(
    make: MakeNumbered, listening: socket.socket, numbers: Iterable[int]
) -> dict[int, BaseProcess]:
    context = multiprocessing.get_context("spawn")
    made = {
        number: context.Process(target=serve_here, args=(partial(make, number), listening))
        for number in numbers
    }
    for one in made.values():
        one.start()
    return dict(made)


def _end(processes: list[BaseProcess], within: float) -> None:
    """Let them finish what is open; end those that do not."""
    until = time.monotonic() + within
    for one in processes:
        one.terminate()
    for one in processes:
        one.join(max(0.0, until - time.monotonic()))
        if one.is_alive():
            one.kill()
            one.join()
