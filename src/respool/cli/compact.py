"""`respool compact`: write the projection of a request."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

import respool

from .console import CommandError
from .options import (
    STANDARD_STREAM,
    compact_input,
    display_name,
    file_argument,
    format_option,
    policy_options,
    read_input,
    to_json,
    write_bytes,
)


@click.command()
@file_argument
@click.option("-o", "--output", default=STANDARD_STREAM, metavar="PATH", help="File to write to.")
@format_option
@policy_options
@click.option("--report", is_flag=True, help="Print the report on standard error.")
@click.option("--report-json", metavar="PATH", help="Write the report as JSON.")
@click.option(
    "--originals",
    metavar="PATH",
    help="Write the original behind each marker, by its reference, as JSON.",
)
def compact(
    file: str,
    output: str,
    format: str | None,
    policy: respool.Policy,
    report: bool,
    report_json: str | None,
    originals: str | None,
) -> None:
    """Write FILE with a smaller tool history: valid, and in its own format.

    The output is exactly what would be sent. Where nothing or little is taken out, standard error
    says why.
    """
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
