"""An executor whose threads do not delay the end of the process.

The standard library's executor waits for its threads when the process ends. A user's own pass that
never returns would keep the process alive, and `respool run` with it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TypeVar

T = TypeVar("T")
_Task = tuple["Future[object]", Callable[[], object]]


class Executor:
    """A pool of daemon threads that are started as needed; threads may share it."""

    def __init__(self, max_threads: int, name: str) -> None:
        self._max_threads = max_threads
        self._name = name
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._lock = Lock()
        self._threads: list[Thread] = []
        self._pending = 0  # tasks that run or wait
        self._closed = False

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run a function in a thread; one that is cancelled before its turn is not started."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                future.cancel()
                return future
            self._pending += 1
            if len(self._threads) < min(self._pending, self._max_threads):
                self._start()
            self._tasks.put((future, work))  # pyright: ignore[reportArgumentType]  # of any type
        return future

    def close(self) -> None:
        """Start nothing more; what runs already goes on by itself."""
        with self._lock:
            self._closed = True
            while not self._tasks.empty():
                task = self._tasks.get()
                if task is not None:
                    task[0].cancel()
            for _ in self._threads:
                self._tasks.put(None)

    def _start(self) -> None:
        name = f"{self._name}-{len(self._threads)}"
        thread = Thread(target=self._work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            future, work = task
            if future.set_running_or_notify_cancel():
                _run(future, work)
            del task, future, work  # a body may be in there, and the next task may be far away
            with self._lock:
                self._pending -= 1


def _run(future: Future[object], work: Callable[[], object]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised by the future
        future.set_exception(error)
