"""Pool of worker processes that replay sessions in parallel.

Each worker reads a file on its own and asks before it replays a session. So several can share a
file that holds many, no session crosses from one process to another, and when a worker dies, the
one session that it was at is known.

A worker that ends before it is ready is an error that names no session.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import Enum
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import Final, TypeVar, cast

from msgspec import Struct, field

from ..batch.worker_process import (
    describe_exit,
    exit_with_parent,
    ignoring_interrupts,
    safe_path,
)
from ..errors import RespoolError
from .result import SkippedSource
from .runner import (
    ItemOutcome,
    OutcomeCollector,
    RunRequest,
    process_item,
    read_items,
    session_bytes,
)

T = TypeVar("T")

_START_SECONDS: Final = 120.0  # until a worker must be ready; it takes less than one


class WorkerStartError(RespoolError):
    """A worker process could not start."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"A worker process of replay did not start: {why}. Check PYTHONPATH and PYTHONHOME, "
            "or use --jobs 1."
        )


class _Reply(Enum):
    """Reply to a worker's claim of a session."""

    GRANTED = "replay it"
    TAKEN = "go on to the next"
    EXHAUSTED = "there is nothing left in this file"


class _Ready(Struct, frozen=True):
    """A worker has started and waits for its request."""


class _Claim(Struct, frozen=True):
    """A worker has read a session and would replay it."""

    index: int
    name: str
    more: bool  # whether another one follows it


class _ItemDone(Struct, frozen=True):
    """The outcome of a claimed session."""

    index: int
    outcome: ItemOutcome
    size: int


class _FileDone(Struct, frozen=True):
    """A worker is done with its file."""


# --- in the worker -----------------------------------------------------------------------------


def run_worker(pipe: Connection) -> None:
    """Work on one file after another, until there is no more or nobody who asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started it ends it
    Thread(target=exit_with_parent, daemon=True).start()
    try:
        pipe.send(_Ready())
        request: RunRequest = pipe.recv()
        while (file := pipe.recv()) is not None:
            _process_file(file, pipe, request)
            pipe.send(_FileDone())
    except (EOFError, OSError):  # nobody listens
        return


def _process_file(file: str, pipe: Connection, request: RunRequest) -> None:
    for index, (item, more) in enumerate(_with_more_flag(read_items(file))):
        pipe.send(_Claim(index, getattr(item, "id", ""), more))
        answer: _Reply = pipe.recv()
        if answer is _Reply.EXHAUSTED:
            return
        if answer is _Reply.GRANTED:
            pipe.send(
                _ItemDone(index, process_item(item, (file, index), request), session_bytes(item))
            )


def _with_more_flag(values: Iterator[T]) -> Iterator[tuple[T, bool]]:
    """Each value, and whether another one follows it."""
    last: list[T] = []
    for value in values:
        if last:
            yield last.pop(), True
        last.append(value)
    if last:
        yield last.pop(), False


# --- in the process that hands out the work ----------------------------------------------------


class _SharedFile(Struct):
    """A file while it is worked on."""

    name: str
    size: int
    taken: set[int] = field(default_factory=set[int])
    latest: int = -1
    more: bool = False  # there is more after the latest claim
    is_exhausted: bool = False  # whether somebody has read it to its end
    needs_retry: bool = False  # whether somebody died reading it, and another is to try
    readers: int = 0


class _WorkerProcess(Struct, eq=False):
    """A worker process, its pipe and its current session."""

    process: BaseProcess
    pipe: Connection
    started: float
    is_ready: bool = False
    file: _SharedFile | None = None
    session: tuple[int, str] | None = None


class WorkerPool:
    """Up to so many processes, and the files that they share; the largest come first."""

    def __init__(self, request: RunRequest, jobs: int, collector: OutcomeCollector) -> None:
        self._wanted, self._jobs, self._kept = request, jobs, collector
        self._context = multiprocessing.get_context("spawn")
        self._waiting = _sort_by_size(collector.pending())
        self._open: list[_SharedFile] = []
        self._workers: list[_WorkerProcess] = []

    def run(self) -> None:
        """Replay everything; no process is left when it returns, however it does."""
        try:
            self._assign_files()
            while busy := {worker.pipe: worker for worker in self._workers if worker.file}:
                for line in connection.wait(list(busy), self._time_left()):
                    self._receive(busy[cast(Connection, line)])
                self._assign_files()
        finally:
            for worker in self._workers:
                worker.process.kill()
            for worker in self._workers:
                worker.process.join()

    def _time_left(self) -> float | None:
        """Seconds until a worker must be ready; None if all are."""
        starting = [worker.started for worker in self._workers if not worker.is_ready]
        if not starting:
            return None
        left = min(starting) + _START_SECONDS - time.monotonic()
        if left < 0:
            raise WorkerStartError(f"it was not ready after {_START_SECONDS:g} seconds")
        return left

    def _assign_files(self) -> None:
        """Assign files to idle workers, and start workers while files are left."""
        while file := self._next_file():
            worker = next((one for one in self._workers if one.file is None), None)
            if worker is None and len(self._workers) == self._jobs:
                return
            self._assign(worker or self._start_worker(), file)

    def _next_file(self) -> _SharedFile | None:
        """A file that nobody has begun, else the one that most is left of for each reader."""
        if self._waiting:
            return self._waiting[-1]
        shared = [file for file in self._open if file.more and not file.is_exhausted]
        return max(shared, key=lambda file: file.size / (file.readers + 1), default=None)

    def _assign(self, worker: _WorkerProcess, file: _SharedFile) -> None:
        if self._waiting and self._waiting[-1] is file:
            self._waiting.pop()
        if file not in self._open:
            self._open.append(file)
        file.readers += 1
        worker.file, worker.session = file, None
        if worker.is_ready:
            _send(worker, file.name)

    def _start_worker(self) -> _WorkerProcess:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=run_worker, args=(theirs,), daemon=True)
        with safe_path(), ignoring_interrupts():
            process.start()
            started = time.monotonic()
            self._workers.append(_WorkerProcess(process, cast(Connection, ours), started))
        theirs.close()
        return self._workers[-1]

    def _receive(self, worker: _WorkerProcess) -> None:
        file = worker.file
        assert file is not None
        try:
            said: _Ready | _Claim | _ItemDone | _FileDone = worker.pipe.recv()
        except (EOFError, OSError):
            self._handle_death(worker, file)
            return
        match said:
            case _Ready():
                worker.is_ready = True
                _send(worker, self._wanted)  # now: a pipe that nobody reads would block
                _send(worker, file.name)
            case _Claim():
                _send(worker, self._reply(worker, file, said))
            case _ItemDone():
                worker.session = None
                self._kept.add(file.name, said.index, said.outcome, said.size)
            case _FileDone():
                file.is_exhausted = True
                self._release(worker, file)

    def _reply(self, worker: _WorkerProcess, file: _SharedFile, ask: _Claim) -> _Reply:
        if file.is_exhausted:
            return _Reply.EXHAUSTED
        if ask.index > file.latest:
            file.latest, file.more = ask.index, ask.more
        if ask.index in file.taken:
            return _Reply.TAKEN
        file.taken.add(ask.index)
        worker.session = (ask.index, ask.name)
        return _Reply.GRANTED

    def _handle_death(self, worker: _WorkerProcess, file: _SharedFile) -> None:
        """Skip the session that a dead worker was at, and reassign the rest of its file."""
        session = worker.session
        self._kept.note_death(file.name)
        self._workers.remove(worker)
        worker.pipe.close()
        worker.process.join(1.0)  # it may still be ending by itself, with a status
        worker.process.kill()
        worker.process.join()
        status = worker.process.exitcode
        if not worker.is_ready and status is not None and status >= 0:
            raise WorkerStartError(f"it ended with status {status}")
        why = describe_exit(status)
        if session is not None:
            index, name = session
            what = f"session {name}" if name else "a part of it"
            self._kept.add(file.name, index, SkippedSource(file.name, f"{what}: {why}"))
        elif file.readers == 1 and not file.is_exhausted and file.needs_retry:
            self._kept.abandon(file.name, len(file.taken), why)
            file.is_exhausted = True
        file.needs_retry = session is None
        if file.readers == 1 and not file.is_exhausted:
            self._waiting.append(file)
        self._release(worker, file)

    def _release(self, worker: _WorkerProcess, file: _SharedFile) -> None:
        """A worker is no longer at a file; the last one closes it."""
        worker.file = worker.session = None
        file.readers -= 1
        if not file.readers:
            self._open.remove(file)
            if file.is_exhausted:
                self._kept.finish_file(file.name)


def _send(worker: _WorkerProcess, message: str | RunRequest | _Reply) -> None:
    with suppress(OSError):  # that it died meanwhile is heard next
        worker.pipe.send(message)


def _sort_by_size(sizes: Mapping[str, int]) -> list[_SharedFile]:
    return [_SharedFile(name, size) for name, size in sorted(sizes.items(), key=lambda one: one[1])]
