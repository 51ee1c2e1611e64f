"""Processes that replay sessions side by side.

Each worker reads a file on its own and asks before it replays a session. So several can share a
file that holds many, no session crosses from one process to another, and when a worker dies, the
one session that it was at is known.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from typing import TypeVar, cast

from msgspec import Struct, field

from .result import Left
from .run import Kept, Outcome, Wanted, items, outcome, size_of

T = TypeVar("T")


class _Answer(Enum):
    """What a worker hears when it asks for a session."""

    YOURS = "replay it"
    TAKEN = "go on to the next"
    OVER = "there is nothing left in this file"


class _Ask(Struct, frozen=True):
    """A worker has read a session and would replay it."""

    index: int
    name: str
    more: bool  # whether another one follows it


class _Told(Struct, frozen=True):
    """What became of it."""

    index: int
    outcome: Outcome
    size: int


class _Through(Struct, frozen=True):
    """A worker is done with its file."""


# --- in the worker -----------------------------------------------------------------------------


def work(line: Connection, wanted: Wanted) -> None:
    """Work on one file after another, until there is no more or nobody who asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started it ends it
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        while (file := line.recv()) is not None:
            _work_on(file, line, wanted)
            line.send(_Through())
    except (EOFError, OSError):  # nobody listens
        return


def _end_with_parent() -> None:
    """However the process that started this one ends, nobody is left behind."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _work_on(file: str, line: Connection, wanted: Wanted) -> None:
    for index, (item, more) in enumerate(_ahead(items(Path(file)))):
        line.send(_Ask(index, getattr(item, "id", ""), more))
        answer: _Answer = line.recv()
        if answer is _Answer.OVER:
            return
        if answer is _Answer.YOURS:
            line.send(_Told(index, outcome(item, (file, index), wanted), size_of(item)))


def _ahead(values: Iterator[T]) -> Iterator[tuple[T, bool]]:
    """Each value, and whether another one follows it."""
    last: list[T] = []
    for value in values:
        if last:
            yield last.pop(), True
        last.append(value)
    if last:
        yield last.pop(), False


# --- in the process that hands out the work ----------------------------------------------------


class _File(Struct):
    """A file while it is worked on."""

    name: str
    size: int
    taken: set[int] = field(default_factory=set[int])
    latest: int = -1
    more: bool = False  # whether there is something behind the latest that was asked for
    over: bool = False  # whether somebody has read it to its end
    again: bool = False  # whether somebody died reading it, and another is to try
    readers: int = 0


class _Worker(Struct, eq=False):
    """A process, the line to it, and what it is at."""

    process: BaseProcess
    line: Connection
    file: _File | None = None
    session: tuple[int, str] | None = None


class Workers:
    """Up to so many processes, and the files that they share; the largest come first."""

    def __init__(self, wanted: Wanted, jobs: int, kept: Kept) -> None:
        self._wanted, self._jobs, self._kept = wanted, jobs, kept
        self._context = multiprocessing.get_context("spawn")
        self._waiting = _smallest_first(kept.ahead())
        self._open: list[_File] = []
        self._workers: list[_Worker] = []

    def run(self) -> None:
        """Replay everything; no process is left when it returns, however it does."""
        try:
            self._hand_out()
            while busy := {worker.line: worker for worker in self._workers if worker.file}:
                for line in connection.wait(list(busy)):
                    self._hear(busy[cast(Connection, line)])
                self._hand_out()
        finally:
            for worker in self._workers:
                worker.process.kill()
            for worker in self._workers:
                worker.process.join()

    def _hand_out(self) -> None:
        """Give whoever is idle a file, and start another process as long as there are files."""
        while file := self._next_file():
            worker = next((one for one in self._workers if one.file is None), None)
            if worker is None and len(self._workers) == self._jobs:
                return
            self._give(worker or self._started(), file)

    def _next_file(self) -> _File | None:
        """A file that nobody has begun, else the one that most is left of for each reader."""
        if self._waiting:
            return self._waiting[-1]
        shared = [file for file in self._open if file.more and not file.over]
        return max(shared, key=lambda file: file.size / (file.readers + 1), default=None)

    def _give(self, worker: _Worker, file: _File) -> None:
        if self._waiting and self._waiting[-1] is file:
            self._waiting.pop()
        if file not in self._open:
            self._open.append(file)
        file.readers += 1
        worker.file, worker.session = file, None
        _say(worker, file.name)

    def _started(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=work, args=(theirs, self._wanted), daemon=True)
        with _without_interrupts():
            process.start()
            self._workers.append(_Worker(process, cast(Connection, ours)))
        theirs.close()
        return self._workers[-1]

    def _hear(self, worker: _Worker) -> None:
        file = worker.file
        assert file is not None
        try:
            said: _Ask | _Told | _Through = worker.line.recv()
        except (EOFError, OSError):
            self._lose(worker, file)
            return
        match said:
            case _Ask():
                _say(worker, self._answer(worker, file, said))
            case _Told():
                worker.session = None
                self._kept.take(file.name, said.index, said.outcome, said.size)
            case _Through():
                file.over = True
                self._leave(worker, file)

    def _answer(self, worker: _Worker, file: _File, ask: _Ask) -> _Answer:
        if file.over:
            return _Answer.OVER
        if ask.index > file.latest:
            file.latest, file.more = ask.index, ask.more
        if ask.index in file.taken:
            return _Answer.TAKEN
        file.taken.add(ask.index)
        worker.session = (ask.index, ask.name)
        return _Answer.YOURS

    def _lose(self, worker: _Worker, file: _File) -> None:
        """A worker died: what it was at is left out, and the rest of its file is not."""
        session = worker.session
        self._workers.remove(worker)
        worker.line.close()
        worker.process.kill()
        worker.process.join()
        why = _why(worker.process.exitcode)
        if session is not None:
            index, name = session
            what = f"session {name}" if name else "a part of it"
            self._kept.take(file.name, index, Left(file.name, f"{what}: {why}"))
        elif file.readers == 1 and not file.over and file.again:
            self._kept.give_up(file.name, len(file.taken), why)
            file.over = True
        file.again = session is None
        if file.readers == 1 and not file.over:
            self._waiting.append(file)
        self._leave(worker, file)

    def _leave(self, worker: _Worker, file: _File) -> None:
        """A worker is no longer at a file; the last one closes it."""
        worker.file = worker.session = None
        file.readers -= 1
        if not file.readers:
            self._open.remove(file)
            if file.over:
                self._kept.finish(file.name)


def _say(worker: _Worker, said: str | _Answer) -> None:
    with suppress(OSError):  # that it died meanwhile is heard next
        worker.line.send(said)


def _smallest_first(sizes: Mapping[str, int]) -> list[_File]:
    return [_File(name, size) for name, size in sorted(sizes.items(), key=lambda one: one[1])]


def _why(status: int | None) -> str:
    """Why a process is no more."""
    if status == -getattr(signal, "SIGKILL", 9):
        return "the process at it was killed, as happens when memory runs out"
    return f"the process at it ended with status {status}"


@contextmanager
def _without_interrupts() -> Generator[None]:
    """Let a process that starts here be deaf to Ctrl-C from its first moment on."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which lets interrupts through when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
