"""`respool compact --batch`: a corpus compacted into a folder of shards."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

import click
import msgspec
from msgspec import Struct

from ..batch.addresses import EngineName, absolute
from ..batch.block_work import REJECTED, BlockOptions
from ..batch.compacted_record import RecordOptions
from ..batch.job import BatchProgress, BatchSummary, plan_batch, run_batch
from ..policy import Policy
from .console import EXIT_UNUSABLE, CommandError, escape_unprintable, pluralize
from .options import STANDARD_STREAM, core_count, is_stderr_terminal, write_bytes

EXIT_SET_ASIDE = 1  # exit status if records or files were set aside
_MAX_REASONS = 10
_REFRESH_SECONDS = 0.1


class BatchArguments(Struct, frozen=True, kw_only=True):
    """Options of the command as given."""

    files: tuple[str, ...]
    output: str
    format: str | None
    policy: Policy
    summary: str | None
    column: str | None
    to: str | None
    with_originals: bool
    engine: EngineName
    jobs: int | None
    quiet: bool


def run_batch_job(arguments: BatchArguments) -> None:
    """Compact the corpus, print the figures, and exit with their status."""
    if arguments.output == STANDARD_STREAM:
        raise CommandError("--batch needs a folder for its shards: -o DIR, or -o s3://bucket/name.")
    record = RecordOptions(
        policy=arguments.policy,
        column=arguments.column,
        format=arguments.format,
        with_originals=arguments.with_originals,
    )
    options = BlockOptions(folder=absolute(arguments.output), to=arguments.to, record=record)
    plan = plan_batch(arguments.files, options)
    if not plan.blocks:
        for one in plan.unreadable:
            click.echo(f"respool: {escape_unprintable(one.source)}: {one.reason}", err=True)
        if not plan.unreadable:
            click.echo("respool: There is no record in these files.", err=True)
        click.get_current_context().exit(EXIT_UNUSABLE)
    with _progress_bar(arguments.quiet) as note:
        summary = run_batch(
            plan,
            engine=arguments.engine,
            jobs=arguments.jobs or core_count(),
            on_progress=note,
        )
    if arguments.summary is not None:
        encoded = msgspec.json.format(msgspec.json.encode(summary))
        write_bytes(arguments.summary, encoded + b"\n")
    for line in _summary_lines(summary, arguments.output):
        click.echo(escape_unprintable(line), err=arguments.summary == STANDARD_STREAM)
    if not summary.is_clean:
        click.get_current_context().exit(EXIT_SET_ASIDE)


@contextmanager
def _progress_bar(quiet: bool) -> Generator[Callable[[BatchProgress], None]]:
    """Show progress, if standard error is a terminal."""
    if quiet or not is_stderr_terminal():
        yield lambda _: None
        return
    from rich.console import Console  # lazily: only for a terminal
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(20), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        shown = 0.0

        def show(progress: BatchProgress) -> None:
            nonlocal shown
            now = time.monotonic()
            if now - shown >= _REFRESH_SECONDS:
                shown = now
                described = _describe_progress(progress)
                bar.update(
                    task,
                    total=max(1, progress.total),
                    completed=progress.read,
                    description=described,
                )

        yield show


def _describe_progress(progress: BatchProgress) -> str:
    aside = f", {progress.rejected:,} set aside" if progress.rejected else ""
    return f"{progress.done:,} of {progress.blocks:,} shards, {progress.records:,} records{aside}"


def _summary_lines(summary: BatchSummary, folder: str) -> Iterator[str]:
    figures = summary.figures
    yield (
        f"{pluralize(figures.records, 'record')} of {pluralize(summary.files, 'file')} in "
        f"{pluralize(summary.done, 'shard')}; {figures.changed:,} became smaller, "
        f"{figures.untouched:,} must stay as they are."
    )
    saved = figures.tokens_before - figures.tokens_after
    share = 100 * saved / figures.tokens_before if figures.tokens_before else 0.0
    yield (
        f"{figures.tokens_before:,} tokens (estimated) became {figures.tokens_after:,}: "
        f"{share:.1f} % less. {figures.bytes_in:,} bytes became {figures.bytes_out:,}."
    )
    for reason, (count, tokens) in sorted(figures.edits.items(), key=lambda one: -one[1][1]):
        yield f"  {reason}: {pluralize(count, 'edit')}, {tokens:,} tokens"
    yield from _problem_lines(summary, folder)


def _problem_lines(summary: BatchSummary, folder: str) -> Iterator[str]:
    if summary.figures.rejected:
        where = f"{folder.rstrip('/')}/{REJECTED}"
        yield f"Set aside in {where}: {pluralize(summary.figures.rejected, 'record')}"
        reasons = sorted(summary.figures.reasons.items(), key=lambda one: -one[1])
        for reason, count in reasons[:_MAX_REASONS]:
            yield f"  {count:,}: {reason}"
    for one in summary.unreadable[:_MAX_REASONS]:
        yield f"Not read: {one.source}: {one.reason}"
    if summary.failed:
        shards = pluralize(len(summary.failed), "shard")
        yield f"Not done: {shards}. Run the same command again to retry."
        for one in summary.failed[:_MAX_REASONS]:
            yield f"  {one.source}: {one.reason}"
