"""Threads that compute beside the event loop, and hold up nobody's end.

The standard library's pool waits, when the process ends, for whatever its threads still do: a pass
of the user's own that never comes back would keep the process for ever, and `respool run` with it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TypeVar

T = TypeVar("T")
_Job = tuple["Future[object]", Callable[[], object]]


class Pool:
    """So many threads, started as they are needed; safe to share by threads."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = Lock()
        self._threads: list[Thread] = []
        self._busy = 0  # jobs that are done or wait to be
        self._closed = False

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Have work done; what is cancelled before its turn is not begun."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                future.cancel()
                return future
            self._busy += 1
            if len(self._threads) < min(self._busy, self._most):
                self._start()
            self._jobs.put((future, work))  # pyright: ignore[reportArgumentType]  # of any type
        return future

    def close(self) -> None:
        """Begin nothing more; what is under way is left to itself."""
        with self._lock:
            self._closed = True
            while not self._jobs.empty():
                job = self._jobs.get()
                if job is not None:
                    job[0].cancel()
            for _ in self._threads:
                self._jobs.put(None)

    def _start(self) -> None:
        name = f"{self._name}-{len(self._threads)}"
        thread = Thread(target=self._work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, work = job
            if future.set_running_or_notify_cancel():
                _do(future, work)
            del job, future, work  # a body may be in there, and the next job may be long in coming
            with self._lock:
                self._busy -= 1


def _do(future: Future[object], work: Callable[[], object]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - told to whoever waits for it
        future.set_exception(error)
