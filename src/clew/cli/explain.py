"""`clew explain`: every edit with its place, its reason, its evidence and its saving."""

from __future__ import annotations

from typing import cast

import click

import clew

from ..codecs.codec import FormatName
from ..codecs.formats import CODECS
from ..edits import Edit, Replace
from .reading import (
    compacted,
    file_argument,
    format_option,
    json_option,
    read_input,
    takes_policy,
    to_json,
)
from .showing import Table, show


@click.command()
@file_argument
@format_option
@takes_policy
@json_option
def explain(
    file: str,
    format: str | None,
    policy: clew.Policy,
    as_json: bool,
) -> None:
    """Say what clew would do to FILE, and why; nothing is written."""
    data = read_input(file)
    report = compacted(file, data, format, policy).report
    if as_json:
        click.echo(to_json(report.to_dict()))
    else:
        show(*explanation(report))


def explanation(report: clew.Report) -> list[Table | str]:
    """A report, section by section."""
    if report.untouched is not None:
        return [f"Passed through unchanged: {report.untouched}"]
    sections: list[Table | str] = [_summary(report)]
    if report.edits:
        sections.append(_edits(report))
    if report.repairs:
        rows = [(one.code, one.place, one.done) for one in report.repairs]
        title = f"Repairs ({report.tokens_repaired:+,} tokens)"
        sections.append(Table(title, ("rule", "place", "what was done"), rows))
    if report.failures:
        rows = [(name, why) for name, why in report.failures.items()]
        sections.append(Table("Passes that failed and were skipped", ("pass", "error"), rows))
    return sections


def _summary(report: clew.Report) -> str:
    counted = "tokens" if report.counter == "o200k" else "tokens (estimated)"
    before, after = report.tokens_before, report.tokens_after
    share = f" ({100 * report.tokens_saved / before:.1f} %)" if before else ""
    return (
        f"{report.format}, {report.model or 'no model named'}, {report.messages:,} messages: "
        f"{before:,} -> {after:,} {counted}; saved {report.tokens_saved:,}{share}"
    )


def _edits(report: clew.Report) -> Table:
    """The edits; their places are those of the history after repair."""
    history = CODECS[cast(FormatName, report.format)].history
    rows = [
        (f"{history}{edit.ref}", edit.reason, edit.evidence, f"{edit.saved:,}", _original(edit))
        for edit in report.edits
    ]
    columns = ("place", "reason", "evidence", "saved", "original")
    return Table("Edits", columns, rows, frozenset({"saved"}))


def _original(edit: Edit) -> str:
    """The reference that brings back what an edit took out."""
    return edit.original if isinstance(edit, Replace) else ""
