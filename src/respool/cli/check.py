"""`respool check`: what the provider would reject, one problem a line."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec

import respool

from .reading import (
    file_argument,
    format_option,
    json_option,
    problems_of,
    read_input,
    shown_name,
    to_json,
)
from .showing import counted, printable

FOUND = 1  # the exit status when there are problems


@click.command()
@file_argument
@format_option
@click.option("--strict", is_flag=True, help="Let warnings count as errors.")
@json_option
def check(file: str, format: str | None, strict: bool, as_json: bool) -> None:
    """Say what the provider would reject in FILE.

    Exit status 1 if there is any error. Warnings, which rest on conflicting evidence, do not count
    unless --strict is given. docs/problems.md explains every rule.
    """
    problems, untouched = problems_of(file, read_input(file), format)
    if as_json:
        click.echo(to_json({"problems": msgspec.to_builtins(problems), "untouched": untouched}))
    else:
        for problem in problems:
            click.echo(_line(problem))
    click.echo(f"{shown_name(file)}: {_summary(problems, untouched)}", err=True)
    if any(strict or problem.severity == "error" for problem in problems):
        click.get_current_context().exit(FOUND)


def _line(problem: respool.Problem) -> str:
    note = " (warning)" if problem.severity == "warning" else ""
    return printable(f"{problem.code} {problem.place}: {problem.message}{note}")


def _summary(problems: Sequence[respool.Problem], untouched: str | None) -> str:
    if untouched is not None:
        return f"not judged: {untouched}"
    errors = sum(problem.severity == "error" for problem in problems)
    warnings = len(problems) - errors
    if not problems:
        return "no problems"
    return f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
