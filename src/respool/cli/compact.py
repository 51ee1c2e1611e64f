"""`respool compact`: write the projection of a request."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import respool

from .console import CommandError
from .options import (
    STANDARD_STREAM,
    compact_input,
    display_name,
    engine_option,
    format_option,
    policy_options,
    read_input,
    to_json,
    write_bytes,
)

_BATCH_OPTIONS = ("column", "to", "with_originals", "engine", "jobs", "quiet")


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    default=STANDARD_STREAM,
    metavar="PATH",
    help="File to write to; with --batch, the folder.",
)
@format_option
@policy_options
@click.option("--report", is_flag=True, help="Print the report on standard error.")
@click.option(
    "--report-json", metavar="PATH", help="Write the report as JSON; with --batch, the summary."
)
@click.option(
    "--originals",
    metavar="PATH",
    help="Write the original behind each marker, by its reference, as JSON.",
)
@click.option(
    "--batch",
    is_flag=True,
    help="Compact every record of the files: JSONL or Parquet, folders of them, or addresses such "
    "as s3://bucket/logs. The same command again continues an interrupted run.",
)
@click.option(
    "--column",
    metavar="NAME",
    help="With --batch: the field of a record that holds the request; default: the whole record.",
)
@click.option(
    "--to",
    type=click.Choice(("jsonl", "parquet")),
    help="With --batch: the format of the output; default: that of the input.",
)
@click.option(
    "--with-originals",
    is_flag=True,
    help="With --batch: add the originals of each record as a field of its own.",
)
@engine_option
@click.option(
    "--jobs",
    type=click.IntRange(1),
    metavar="N",
    help="With --batch: number of processes; default: one per core.",
)
@click.option("--quiet", is_flag=True, help="With --batch: show no progress.")
def compact(
    files: tuple[str, ...], *, batch: bool, output: str, report_json: str | None, **given: Any
) -> None:
    """Write FILE with a smaller tool history: valid, and in its own format.

    The output is exactly what would be sent. Where nothing or little is taken out, standard error
    says why.

    With --batch, FILE is a corpus of requests, and the output a folder of shards. The exit status
    is 1 if records or files were set aside.
    """
    alone = {name: given.pop(name) for name in ("report", "originals")}
    if batch:
        if any(alone.values()):
            raise CommandError("--batch takes --report-json and --with-originals instead.")
        from .batch_job import BatchArguments, run_batch_job  # lazily: no other command needs it

        run_batch_job(BatchArguments(files=files, output=output, summary=report_json, **given))
        return
    file, *others = files
    needed = [name for name in _BATCH_OPTIONS if given.pop(name) not in (None, False, "local")]
    if others or needed:
        named = f"--{needed[0].replace('_', '-')}" if needed else "More than one FILE"
        raise CommandError(f"{named} needs --batch.")
    _compact_file(file, output=output, report_json=report_json, **given, **alone)


def _compact_file(
    file: str,
    *,
    output: str,
    format: str | None,
    policy: respool.Policy,
    report: bool,
    report_json: str | None,
    originals: str | None,
) -> None:
    if [output, report_json, originals].count(STANDARD_STREAM) > 1:
        raise CommandError("Only one of the outputs can go to standard output.")
    _refuse_duplicate_paths([output, originals, report_json])
    _refuse_duplicate_paths([file, originals, report_json])
    data = read_input(file)
    out = compact_input(file, data, format, policy)
    # Originals are on disk before the projection that refers to them.
    if originals is not None:
        write_bytes(originals, to_json(dict(out.originals)).encode())
    if report_json is not None:
        write_bytes(report_json, to_json(out.report.to_dict()).encode())
    write_bytes(output, out.request)
    if report or out.report.untouched is not None:
        click.echo(out.report.to_text(), err=True)
    elif why := out.report.why_so_little():
        click.echo(f"respool: {why}", err=True)


def _refuse_duplicate_paths(paths: Sequence[str | None]) -> None:
    """Refuse a file that is named twice: the last write would replace the others."""
    seen: set[Path] = set()
    for path in paths:
        if path is None or path == STANDARD_STREAM:
            continue
        real = _resolve_path(path)
        if real in seen:
            raise CommandError(
                f"{display_name(path)}: This is named twice; FILE and every output are files of "
                "their own, and only the projection may take the place of FILE."
            )
        if real.is_file() or not real.exists():  # a device is not overwritten
            seen.add(real)


def _resolve_path(path: str) -> Path:
    try:
        return Path(path).resolve()
    except (OSError, ValueError, RuntimeError):
        return Path(path)  # opening it reports the error
