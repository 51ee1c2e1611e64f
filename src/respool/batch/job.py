"""Batch jobs: a corpus split into blocks, each done once, also over interrupted runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec
from msgspec import Struct

from ..errors import RespoolError
from ..plugins import installed_version
from .addresses import (
    EngineName,
    FoundFile,
    absolute,
    file_name,
    find_files,
    is_within,
    join,
    open_stream,
    parent_name,
    remove_unfinished,
    write_stream,
)
from .block_work import (
    MANIFEST,
    REJECTED,
    BlockDone,
    BlockFigures,
    BlockOptions,
    add_figures,
    part_name,
    shard_name,
)
from .local_engine import BlockFailed, Outcome, run_locally, try_block
from .records import Block, UnreadableInput, kind_of, split_file
from .worker_process import KILLED_EACH_TIME

BLOCK_BYTES = 64 * 1024 * 1024
JOB_FILE, SUMMARY_FILE, FILES_FILE = "job.json", "summary.json", "files.jsonl"


class OtherJob(RespoolError):
    """A folder holds the output of another job."""


class UnreadableFile(Struct, frozen=True):
    """A file that was set aside, and the reason."""

    source: str
    reason: str


class BatchPlan(Struct, frozen=True):
    """The blocks of a corpus."""

    files: tuple[FoundFile, ...]
    blocks: tuple[Block, ...]
    unreadable: tuple[UnreadableFile, ...]
    options: BlockOptions


class BatchSummary(Struct, frozen=True, kw_only=True):
    """The figures of a job; the same from any engine, in one run or in several."""

    version: str
    files: int
    blocks: int
    done: int
    figures: BlockFigures
    unreadable: tuple[UnreadableFile, ...]
    failed: tuple[UnreadableFile, ...] = ()  # blocks that another run is to try again

    @property
    def is_clean(self) -> bool:
        """True if nothing was set aside and nothing is left to do."""
        return not (self.failed or self.unreadable or self.figures.rejected)


class BatchProgress(Struct, frozen=True):
    """Progress of a job."""

    total: int  # bytes
    read: int
    blocks: int
    done: int
    records: int
    rejected: int


def plan_batch(
    addresses: Sequence[str], options: BlockOptions, block_bytes: int = BLOCK_BYTES
) -> BatchPlan:
    """Find the files and split them into blocks; a file that cannot be read is set aside."""
    files: dict[str, FoundFile] = {}
    blocks: list[Block] = []
    unreadable: list[UnreadableFile] = []
    for address in addresses:
        found = [*_inputs(absolute(address), options.folder)]
        if not found:
            unreadable.append(UnreadableFile(address, "there is no file to compact"))
        for file in found:
            if file.address in files:
                continue
            files[file.address] = file
            try:
                blocks += split_file(file, block_bytes, len(blocks))
            except (UnreadableInput, OSError) as error:
                unreadable.append(UnreadableFile(file.address, str(error)))
    return BatchPlan(tuple(files.values()), tuple(blocks), tuple(unreadable), options)


def _inputs(address: str, output: str) -> Iterator[FoundFile]:
    """A named file, whatever its suffix, or the files of a folder whose suffix is known."""
    for file in find_files(address):
        if file.address == address or (
            kind_of(file.address) and not is_within(file.address, output)
        ):
            yield file


def run_batch(
    plan: BatchPlan,
    *,
    engine: EngineName,
    jobs: int,
    on_progress: Callable[[BatchProgress], None] = lambda _: None,
) -> BatchSummary:
    """Work on the unfinished blocks; raises OtherJob for a folder of another job."""
    folder = plan.options.folder
    _claim_folder(plan)
    _remove_unfinished(plan)
    done = _read_manifest(plan)
    tracker = _Tracker(plan, done, on_progress)
    waiting = [block for block in plan.blocks if block.number not in done]
    failed: list[UnreadableFile] = []
    outcomes = _outcomes(waiting, plan.options, engine, jobs, tracker.advance)
    for outcome in outcomes:
        tracker.add(outcome)
        if isinstance(outcome, BlockFailed):
            failed.append(UnreadableFile(outcome.block.source, outcome.reason))
    summary = BatchSummary(
        version=installed_version(),
        files=len(plan.files),
        blocks=len(plan.blocks),
        done=len(tracker.done),
        figures=add_figures(tracker.done[number].figures for number in sorted(tracker.done)),
        unreadable=plan.unreadable,
        failed=tuple(sorted(failed, key=lambda one: (one.source, one.reason))),
    )
    with write_stream(join(folder, SUMMARY_FILE)) as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(summary)) + b"\n")
    return summary


def _outcomes(
    blocks: Sequence[Block],
    options: BlockOptions,
    engine: EngineName,
    jobs: int,
    advance: Callable[[int], None],
) -> Iterator[Outcome]:
    if not blocks:
        return
    if engine == "local":
        yield from run_locally(blocks, options, jobs, advance)
        return
    from .ray_engine import run_on_ray  # lazily: only for this engine

    missing = dict(enumerate(blocks))
    for number, outcome in run_on_ray(partial(try_block, options=options), blocks, jobs):
        advance(missing.pop(number).size)
        yield outcome
    for block in missing.values():
        yield BlockFailed(block, KILLED_EACH_TIME)


def _claim_folder(plan: BatchPlan) -> None:
    """Write the description of the job, or compare it with the one that is there."""
    job = _describe_job(plan)
    place = join(plan.options.folder, JOB_FILE)
    try:
        with open_stream(place) as stream:
            before = stream.read()
    except FileNotFoundError:
        _refuse_foreign_shards(plan)
        with write_stream(place) as stream:
            stream.write(job)
        if plan.unreadable:
            with write_stream(join(plan.options.folder, REJECTED, FILES_FILE)) as stream:
                stream.writelines(msgspec.json.encode(one) + b"\n" for one in plan.unreadable)
        return
    if before != job:
        raise OtherJob(
            f"{plan.options.folder}: This folder holds the output of other input, other options or "
            "another version; name another folder, or remove it."
        )


def _refuse_foreign_shards(plan: BatchPlan) -> None:
    """Refuse a folder with files that shards would overwrite: perhaps they are the input."""
    folder = plan.options.folder
    there = {one.address for one in find_files(folder)}
    for block in plan.blocks:
        shard = join(folder, shard_name(block, plan.options.to))
        if shard in there:
            raise OtherJob(
                f"{shard}: This file is of another program, and would be lost; name another folder."
            )


def _remove_unfinished(plan: BatchPlan) -> None:
    """Remove what a killed run left; other files of the folder are left alone."""
    folder, options = plan.options.folder, plan.options
    parts = [part_name(block.number) for block in plan.blocks]
    shards = {shard_name(block, options.to) for block in plan.blocks}
    remove_unfinished(folder, {*shards, JOB_FILE, SUMMARY_FILE})
    remove_unfinished(join(folder, MANIFEST), {f"{part}.json" for part in parts})
    remove_unfinished(join(folder, REJECTED), {*(f"{part}.jsonl" for part in parts), FILES_FILE})


def _describe_job(plan: BatchPlan) -> bytes:
    record = plan.options.record
    job = {
        "version": installed_version(),
        "policy": record.policy.fingerprint().hex(),
        "to": plan.options.to,
        "column": record.column,
        "format": record.format,
        "originals": record.with_originals,
        "blocks": len(plan.blocks),
        "files": plan.files,
        "unreadable": plan.unreadable,
    }
    return msgspec.json.format(msgspec.json.encode(job)) + b"\n"


def _read_manifest(plan: BatchPlan) -> dict[int, BlockDone]:
    """The blocks that are done, and whose shards are there."""
    folder = plan.options.folder
    entries = {file_name(one.address) for one in find_files(join(folder, MANIFEST))}
    shards = {
        file_name(one.address): one.size
        for one in find_files(folder)
        if parent_name(one.address) not in (MANIFEST, REJECTED)
    }
    done: dict[int, BlockDone] = {}
    for block in plan.blocks:
        name = f"{part_name(block.number)}.json"
        if name not in entries:
            continue
        with open_stream(join(folder, MANIFEST, name)) as stream:
            entry = msgspec.json.decode(stream.read(), type=BlockDone)
        if shards.get(entry.shard) == entry.figures.bytes_out:
            done[block.number] = entry
    return done


class _Tracker:
    """Finished blocks and progress of a job."""

    def __init__(
        self,
        plan: BatchPlan,
        done: dict[int, BlockDone],
        on_progress: Callable[[BatchProgress], None],
    ) -> None:
        self.done = done
        self._on_progress = on_progress
        figures = add_figures(one.figures for one in done.values())
        read = sum(block.size for block in plan.blocks if block.number in done)
        self._progress = BatchProgress(
            sum(block.size for block in plan.blocks),
            read,
            len(plan.blocks),
            len(done),
            figures.records,
            figures.rejected,
        )
        on_progress(self._progress)

    def advance(self, size: int) -> None:
        """Add bytes that were read."""
        self._report(read=self._progress.read + size)

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of a block."""
        if isinstance(outcome, BlockDone):
            self.done[outcome.number] = outcome
            self._report(
                done=len(self.done),
                records=self._progress.records + outcome.figures.records,
                rejected=self._progress.rejected + outcome.figures.rejected,
            )

    def _report(self, **changes: int) -> None:
        self._progress = msgspec.structs.replace(self._progress, **changes)
        self._on_progress(self._progress)
