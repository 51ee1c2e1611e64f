"""Local engine: one process per core, each at one block at a time.

A process reports each record that it begins. So when one dies, another one does the block again
without that record.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from .block_work import BlockDone, BlockOptions, Note, work_on_block
from .records import Block, UnreadableInput
from .worker_process import (
    can_start_workers,
    describe_exit,
    exit_with_parent,
    ignoring_interrupts,
    safe_path,
)

_MAX_DEATHS = 20  # of processes at one block, before it is given up
_MIN_PARALLEL_BYTES = 1_000_000  # less is done faster in this process
_NOTE_INTERVAL = 64 * 1024  # bytes between two notes of progress

Advance = Callable[[int], None]  # bytes read since the last call


class BlockFailed(Struct, frozen=True):
    """A block that could not be done, and the reason; another run tries it again."""

    block: Block
    reason: str


class _RecordBegun(Struct, frozen=True):
    """Message of a process that begins a record."""

    place: int
    read: int


Outcome = BlockDone | BlockFailed


def try_block(
    block: Block, options: BlockOptions, note: Note = lambda _place, _read: None
) -> Outcome:
    """Work on a block; a failure is a value."""
    try:
        return work_on_block(block, options, note)
    except UnreadableInput as error:
        return BlockFailed(block, str(error))
    except Exception as error:  # noqa: BLE001 - one block must not fail the others
        said = " ".join(str(error).split())
        return BlockFailed(block, f"{type(error).__name__}: {said}")


def run_locally(
    blocks: Iterable[Block], options: BlockOptions, jobs: int, advance: Advance
) -> Iterator[Outcome]:
    """The outcome of each block, in the order in which they end."""
    waiting = deque(blocks)
    small = sum(block.size for block in waiting) < _MIN_PARALLEL_BYTES
    if jobs == 1 or small or not can_start_workers():
        yield from _run_here(waiting, options, advance)
        return
    pool = _Pool(waiting, options, min(jobs, len(waiting)), advance)
    try:
        yield from pool.run()
    finally:
        pool.close()


def _run_here(
    blocks: Iterable[Block], options: BlockOptions, advance: Advance
) -> Iterator[Outcome]:
    for block in blocks:
        seen = 0

        def note(_: int, read: int) -> None:
            nonlocal seen
            if read - seen >= _NOTE_INTERVAL:
                advance(read - seen)
                seen = read

        outcome = try_block(block, options, note)
        advance(max(0, block.size - seen))
        yield outcome


def _run_worker(pipe: Connection, options: BlockOptions) -> None:
    """Work on one block after another, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started it ends it
    Thread(target=exit_with_parent, daemon=True).start()
    try:
        while (block := cast("Block | None", pipe.recv())) is not None:
            pipe.send(
                try_block(block, options, lambda place, read: pipe.send(_RecordBegun(place, read)))
            )
    except (EOFError, OSError):  # nobody listens
        return


class _Worker(Struct, eq=False):
    process: BaseProcess
    pipe: Connection
    block: Block | None = None
    at: _RecordBegun | None = None
    seen: int = 0  # bytes of its block that were reported


class _Pool:
    def __init__(
        self, waiting: deque[Block], options: BlockOptions, jobs: int, advance: Advance
    ) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._waiting, self._options, self._advance = waiting, options, advance
        self._workers = [self._start() for _ in range(jobs)]

    def _start(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_run_worker, args=(theirs, self._options), daemon=True
        )
        with safe_path(), ignoring_interrupts():
            process.start()
        theirs.close()
        return _Worker(process, cast(Connection, ours))

    def run(self) -> Iterator[Outcome]:
        self._assign()
        while busy := {worker.pipe: worker for worker in self._workers if worker.block}:
            for line in connection.wait(list(busy)):
                outcome = self._receive(busy[cast(Connection, line)])
                if outcome is not None:
                    yield outcome
            self._assign()

    def _assign(self) -> None:
        for at, worker in enumerate(self._workers):
            if worker.block is None and self._waiting:
                if not worker.process.is_alive():
                    worker = self._workers[at] = self._start()  # noqa: PLW2901 - in its place
                worker.block, worker.at, worker.seen = self._waiting.popleft(), None, 0
                worker.pipe.send(worker.block)

    def _receive(self, worker: _Worker) -> Outcome | None:
        block = worker.block
        assert block is not None
        try:
            said: _RecordBegun | Outcome = worker.pipe.recv()
        except (EOFError, OSError):
            return self._handle_death(worker, block)
        if isinstance(said, _RecordBegun):
            worker.at = said
            self._report(worker, said.read)
            return None
        self._report(worker, block.size)
        worker.block = None
        return said

    def _report(self, worker: _Worker, read: int) -> None:
        if read > worker.seen:
            self._advance(read - worker.seen)
            worker.seen = read

    def _handle_death(self, worker: _Worker, block: Block) -> Outcome | None:
        """Do the block again without the record at which a process died."""
        worker.pipe.close()
        worker.process.join(1.0)
        worker.process.kill()
        worker.process.join()
        worker.block = None
        why = describe_exit(worker.process.exitcode)
        self._advance(-worker.seen)
        if worker.at is None or len(block.fatal) >= _MAX_DEATHS:
            self._advance(block.size)
            return BlockFailed(block, why)
        self._waiting.appendleft(replace(block, fatal=(*block.fatal, (worker.at.place, why))))
        return None

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
