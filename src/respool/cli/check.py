"""`respool check`: print each problem that the provider would reject, one per line."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec

import respool

from .console import escape_unprintable, pluralize
from .options import (
    check_input,
    display_name,
    file_argument,
    format_option,
    json_option,
    read_input,
    to_json,
)

EXIT_PROBLEMS_FOUND = 1  # the exit status when there are problems


@click.command()
@file_argument
@format_option
@click.option("--strict", is_flag=True, help="Let warnings count as errors.")
@json_option
def check(file: str, format: str | None, strict: bool, as_json: bool) -> None:
    """List what the provider would reject in FILE.

    Exit status 1 if there is any error. Warnings, which rest on conflicting evidence, do not count
    unless --strict is given. respool docs problems explains every rule.
    """
    problems, untouched = check_input(file, read_input(file), format)
    if as_json:
        click.echo(to_json({"problems": msgspec.to_builtins(problems), "untouched": untouched}))
    else:
        for problem in problems:
            click.echo(_format_problem(problem))
    click.echo(f"{display_name(file)}: {_summarize(problems, untouched)}", err=True)
    if any(strict or problem.severity == "error" for problem in problems):
        click.get_current_context().exit(EXIT_PROBLEMS_FOUND)


def _format_problem(problem: respool.Problem) -> str:
    note = " (warning)" if problem.severity == "warning" else ""
    return escape_unprintable(f"{problem.code} {problem.place}: {problem.message}{note}")


def _summarize(problems: Sequence[respool.Problem], untouched: str | None) -> str:
    if untouched is not None:
        return f"not judged: {untouched}"
    errors = sum(problem.severity == "error" for problem in problems)
    warnings = len(problems) - errors
    if not problems:
        return "no problems"
    return f"{pluralize(errors, 'error')}, {pluralize(warnings, 'warning')}"
