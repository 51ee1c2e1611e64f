"""`respool explain`: list every edit with its place, reason, evidence and saving."""

from __future__ import annotations

from typing import cast

import click
from msgspec.structs import asdict

import respool

from ..edits import FOLDED, Advise, Edit, PlaceBreakpoint, Replace, touched_parts
from ..engine import FoldedRequest, fold_request
from ..engine import build_compaction as compaction_of
from ..errors import PassedThrough, UnreadableRequest
from ..facts import Facts
from ..markers import reference
from ..providers.registry import PROVIDERS
from ..report import Report
from ..wire.base import FormatName
from .console import Table, pluralize, show
from .edit_diff import list_changes, show_changes
from .options import (
    check_input,
    file_argument,
    format_option,
    json_option,
    notice_if_slow,
    policy_options,
    read_input,
    to_json,
)


@click.command()
@file_argument
@format_option
@policy_options
@click.option("--diff", is_flag=True, help="Show each edited part before and after.")
@click.option("--debug", is_flag=True, help="Tell every offer, taken or not, and what is kept.")
@json_option
def explain(
    file: str,
    format: str | None,
    policy: respool.Policy,
    diff: bool,
    debug: bool,
    as_json: bool,
) -> None:
    """Explain what respool would do to FILE, and why. Nothing is written."""
    report, folded = _fold_and_report(file, format, policy, debug)
    shown = (
        list_changes(folded, folded.context.codec.history_field)
        if diff and folded is not None
        else None
    )
    if as_json:
        parts = {} if shown is None else {"changes": [asdict(change) for change in shown]}
        click.echo(to_json({**report.to_dict(), **parts}))
        return
    show(*explanation(report, folded))
    if shown is not None:
        show_changes(shown)


def _fold_and_report(
    file: str, format: str | None, policy: respool.Policy, debug: bool
) -> tuple[respool.Report, FoldedRequest | None]:
    """Report and folded history of an input; an unreadable input is an error."""
    data = read_input(file)
    try:
        with notice_if_slow(file, data):
            folded = fold_request(
                data, format=format, policy=policy, facts=Facts(), memo=None, trace=debug
            )
            return compaction_of(folded, data).report, folded
    except (PassedThrough, UnreadableRequest) as why:
        check_input(file, data, format)
        return Report(untouched=str(why)), None


def explanation(report: respool.Report, folded: FoldedRequest | None = None) -> list[Table | str]:
    """Sections of a report; with its history also waiting edits and references of drops."""
    if report.untouched is not None:
        return [f"Passed through unchanged: {report.untouched}"]
    sections: list[Table | str] = [_summary_line(report)]
    if not report.edits:
        sections.append(
            _describe_no_edits(
                report, 0 if folded is None else len(folded.state.evaluation.waiting)
            )
        )
    advice = [edit for edit in report.edits if isinstance(edit, Advise)]
    if len(report.edits) > len(advice):
        sections.append(_edit_table(report, folded))
    if advice:
        rows = [(f"{_history_field(report)}{edit.ref}", edit.text) for edit in advice]
        title = f"Advice (+{report.tokens_advised:,} tokens)"
        sections.append(Table(title, ("place", "what is said"), rows))
    if report.refetched:
        sections.append(_refetch_table(report))
    if report.repairs:
        rows = [
            (one.code, one.place, " ".join((one.done, *(f"[{ref}]" for ref in one.originals))))
            for one in report.repairs
        ]
        title = f"Repairs ({report.tokens_repaired:+,} tokens)"
        sections.append(Table(title, ("rule", "place", "what was done"), rows))
    if report.failures:
        rows = [(name, why) for name, why in report.failures.items()]
        sections.append(Table("Passes that failed and were skipped", ("pass", "error"), rows))
    if report.mimicry:
        sections.append(_mimicry_table(report))
    if report.trace:
        sections.append(_trace_table(report))
    return sections


def _summary_line(report: respool.Report) -> str:
    unit = "tokens" if report.counter == "o200k" else "tokens (estimated)"
    before, after = report.tokens_before, report.tokens_after
    share = f" ({100 * report.tokens_saved / before:.1f} %)" if before else ""
    return (
        f"{report.format}, {report.model or 'no model named'}, "
        f"{pluralize(report.messages, 'message')}: "
        f"{before:,} -> {after:,} {unit}; saved {report.tokens_saved:,}{share}"
    )


def _describe_no_edits(report: respool.Report, waiting: int) -> str:
    """Explain why there is no edit."""
    if not waiting:
        return "Nothing is taken out: the history is short, or holds nothing that may go."
    listed = "" if report.trace is not None else "; --debug lists what was offered"
    wait = "offer waits until it pays" if waiting == 1 else "offers wait until they pay"
    return f"Nothing is taken out yet: {waiting:,} {wait}{listed}."


def _edit_table(report: respool.Report, folded: FoldedRequest | None) -> Table:
    """Table of edits; places refer to the history after repair."""
    history = _history_field(report)
    rows: list[tuple[str, ...]] = []
    for edit in report.edits:
        if isinstance(edit, Advise):
            continue
        told = (f"{history}{edit.ref}", edit.reason, edit.evidence, f"{edit.saved:,}")
        first, *more = _original_refs(edit, folded) or [""]
        rows += [(*told, first), *(("", "", "", "", ref) for ref in more)]
    columns = ("place", "reason", "evidence", "saved", "original")
    return Table("Edits", columns, rows, frozenset({"saved"}), frozenset({"original"}))


def _refetch_table(report: respool.Report) -> Table:
    """Table of results that the model fetched again after they were cut."""
    history = _history_field(report)
    rows = [
        (
            f"{history}{one.ref}",
            f"{one.tool} {one.target}".strip(),
            f"{history}{one.earlier}",
            one.reason,
            f"{one.tokens:,}",
        )
        for one in report.refetched
    ]
    title = "Fetched again after it was taken out; these copies stay"
    columns = ("place", "what", "taken out at", "reason", "tokens")
    return Table(title, columns, rows, frozenset({"tokens"}))


def _mimicry_table(report: respool.Report) -> Table:
    """Table of places where the model imitated a marker; such text may reach files."""
    history = _history_field(report)
    rows = [(f"{history}{one.ref}", one.kind, one.where, one.said) for one in report.mimicry]
    title = "Markers that the model wrote itself"
    return Table(title, ("place", "what", "in", "said"), rows)


def _trace_table(report: respool.Report) -> Table:
    """Table of every offer at every boundary, in order."""
    history = _history_field(report)
    rows = [
        (
            f"{one.boundary:,}{' arrival' if one.arrival else ''}",
            one.by,
            f"{history}{one.ref}",
            one.level or "",
            one.reason,
            one.evidence,
            f"{one.saved:,}" if one.by else "",
            one.outcome,
        )
        for one in report.trace or ()
    ]
    columns = ("after", "pass", "place", "level", "reason", "evidence", "saved", "outcome")
    title = "Offers, by the number of messages that had come"
    return Table(title, columns, rows, frozenset({"saved"}))


def _history_field(report: respool.Report) -> str:
    return PROVIDERS[cast(FormatName, report.format)].codec.history_field


def _original_refs(edit: Edit, folded: FoldedRequest | None) -> list[str]:
    """References of the originals behind an edit.

    No marker names those of a dropped exchange; a summary's marker names those of a fold.
    """
    if isinstance(edit, Replace):
        return [edit.original]
    if folded is None or edit.reason == FOLDED or isinstance(edit, PlaceBreakpoint | Advise):
        return []
    index = folded.state.transcript
    texts = (index.parts[part].text for part in touched_parts(edit, index))
    return [reference(text) for text in texts if text]
