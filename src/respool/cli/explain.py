"""`respool explain`: every edit with its place, reason, evidence and saving, and line diffs."""

from __future__ import annotations

import json
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import cast

import click
from msgspec import Struct
from msgspec.structs import asdict

import respool

from ..edits import FOLDED, Advise, Edit, PlaceBreakpoint, Replace, touched_parts
from ..engine import FoldedRequest, edits_in_force, fold_request
from ..engine import build_compaction as compaction_of
from ..errors import PassedThrough, UnreadableRequest
from ..facts import Facts
from ..markers import append_advice, reference
from ..providers.registry import PROVIDERS
from ..report import Report, describe_waiting
from ..transcript import Part
from ..wire.base import FormatName
from .console import Table, escape_unprintable, is_terminal, pluralize, show
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
@click.option(
    "--debug", is_flag=True, help="Show every offer, taken or not, and what is protected."
)
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
    sections += _describe_remainder(report)
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


def _describe_remainder(report: respool.Report) -> list[str]:
    """Say why nothing or little is taken out; else, what waits."""
    left = report.remainder
    hint = ["--debug lists the offers, --set eager=on takes them."] if left.offers else []
    hint = [] if report.trace is not None else hint
    if why := report.why_lines():
        return ["\n".join([why[0], *(f"  {cause}" for cause in why[1:]), *hint])]
    if left.offers:
        return ["\n".join([f"{describe_waiting(left.offers, left.offer_tokens)}.", *hint])]
    return []


def _edit_table(report: respool.Report, folded: FoldedRequest | None) -> Table:
    """Table of edits; places refer to the history after repair."""
    history = _history_field(report)
    rows: list[tuple[str, ...]] = []
    for edit in report.edits:
        if isinstance(edit, Advise):
            continue
        cells = (f"{history}{edit.ref}", edit.reason, edit.evidence, f"{edit.saved:,}")
        first, *more = _original_refs(edit, folded) or [""]
        rows += [(*cells, first), *(("", "", "", "", ref) for ref in more)]
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


# --- line diffs of edited parts ----------------------------------------------------------------


DiffBlock = tuple[
    str, int, int, int, int
]  # "equal" or not; start and end in the old text; start and end in the new
DiffLine = tuple[str, str]  # a sign (" ", "-", "+", or "@" for collapsed lines) and the line

_CONTEXT_LINES = 3  # unchanged lines shown on each side of a change
_HEAD, _TAIL = 6, 3  # lines shown of a long run that was removed or added
_MAX_LINE_CHARS = 300  # characters of a line that are shown
_MAX_PAIRS = 100_000  # max equal lines to compare; beyond, everything between counts as new
_COLOURS = {"-": "red", "+": "green", "@": "cyan"}


class PartChange(Struct, frozen=True):
    """One edited part."""

    place: str
    part: str  # kind of part
    reason: str
    evidence: str
    before: str
    after: str

    @property
    def title(self) -> str:
        """Edit and its place."""
        return f"{self.place}  {self.part}: {self.reason}, {self.evidence}"


def list_changes(folded: FoldedRequest, history: str) -> Iterator[PartChange]:
    """List every part that an edit changes or removes, in order."""
    parts = folded.state.transcript.parts
    for edit in edits_in_force(folded.state):
        for position in sorted(touched_parts(edit, folded.state.transcript)):
            part = parts[position]
            before, after = part.text, _text_after(edit)
            if isinstance(edit, Advise):
                before = folded.state.text_of(position)
                after = append_advice(before, edit.text)
            if after is None or (not part.text and not after):
                continue
            yield PartChange(
                f"{history}{part.ref}",
                part.kind,
                edit.reason,
                edit.evidence,
                _pretty_print(part, before),
                _pretty_print(part, after),
            )


def _text_after(edit: Edit) -> str | None:
    """Text of a part after an edit; None if it is unchanged."""
    if isinstance(edit, PlaceBreakpoint):
        return None
    return edit.text if isinstance(edit, Replace) else ""


def _pretty_print(part: Part, text: str) -> str:
    """Format arguments one per line; leave other text unchanged."""
    if part.kind != "call" or not text:
        return text
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def show_changes(changes: Iterator[PartChange]) -> None:
    """Print each change under its title, coloured on a terminal."""
    coloured = is_terminal() and not os.environ.get("NO_COLOR")
    for change in changes:
        click.echo()
        title = escape_unprintable(change.title)
        click.echo(click.style(title, bold=True) if coloured else title)
        for sign, text in diff_lines(change.before, change.after):
            line = escape_unprintable(f"{sign} {text}")
            colour = _COLOURS.get(sign) if coloured else None
            click.echo(click.style(line, fg=colour) if colour else line)


def diff_lines(before: str, after: str) -> Iterator[DiffLine]:
    """Diff of two texts by line; long runs are collapsed and counted.

    >>> list(diff_lines("a\\nb\\nc", "a\\nc"))
    [(' ', 'a'), ('-', 'b'), (' ', 'c')]
    """
    old, new = _lines(before), _lines(after)
    blocks = _blocks(old, new)
    for number, (tag, first, last, start, end) in enumerate(blocks):
        if tag == "equal":
            yield from _context_lines(old[first:last], number > 0, number < len(blocks) - 1)
        else:
            yield from _collapse("-", old[first:last], "taken out")
            yield from _collapse("+", new[start:end], "put in")


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _blocks(old: Sequence[str], new: Sequence[str]) -> list[DiffBlock]:
    """Blocks of both texts in order: equal runs and what is between."""
    found: list[DiffBlock] = []
    first, start = 0, 0
    for here, there in (*_anchors(old, new), (len(old), len(new))):
        for block in _match_between(old[first:here], new[start:there], first, start):
            _append_block(found, block)
        if here < len(old):
            _append_block(found, ("equal", here, here + 1, there, there + 1))
        first, start = here + 1, there + 1
    return found


def _append_block(found: list[DiffBlock], block: DiffBlock) -> None:
    """Append a block; join adjacent equal blocks."""
    if found and found[-1][0] == block[0] == "equal":
        block = ("equal", found[-1][1], block[2], found.pop()[3], block[4])
    found.append(block)


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Anchors: lines that occur once in both texts, in the same order (patience diff)."""
    counts, others = Counter(old), Counter(new)
    places = {line: at for at, line in enumerate(new) if others[line] == 1 == counts.get(line)}
    pairs = [(at, places[line]) for at, line in enumerate(old) if line in places]
    ends: list[int] = []  # for each length, where the longest increasing run ends in `new`
    chosen: list[int] = []  # the pair at that end
    before: list[int] = []  # the predecessor of each pair
    for number, (_, there) in enumerate(pairs):
        length = bisect_left(ends, there)
        before.append(chosen[length - 1] if length else -1)
        ends[length : length + 1] = [there]
        chosen[length : length + 1] = [number]
    run: list[tuple[int, int]] = []
    number = chosen[-1] if chosen else -1
    while number >= 0:
        run.append(pairs[number])
        number = before[number]
    return run[::-1]


def _match_between(
    old: Sequence[str], new: Sequence[str], first: int, start: int
) -> list[DiffBlock]:
    """Blocks between two anchors, by difflib where the range is small."""
    if not old and not new:
        return []
    counts = Counter(new)
    if sum(counts[line] for line in old) > _MAX_PAIRS:
        return [("replace", first, first + len(old), start, start + len(new))]
    matched = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [(tag, a + first, b + first, c + start, d + start) for tag, a, b, c, d in matched]


def _context_lines(lines: Sequence[str], after: bool, before: bool) -> Iterator[DiffLine]:
    """Context lines next to a change, and the number of collapsed ones."""
    head, tail = _CONTEXT_LINES * after, _CONTEXT_LINES * before
    hidden = len(lines) - head - tail
    if hidden <= 1:
        yield from ((" ", _truncate(line)) for line in lines)
        return
    yield from ((" ", _truncate(line)) for line in lines[:head])
    yield "@", f"… {hidden:,} lines unchanged"
    yield from ((" ", _truncate(line)) for line in lines[len(lines) - tail :])


def _collapse(sign: str, lines: Sequence[str], done: str) -> Iterator[DiffLine]:
    hidden = len(lines) - _HEAD - _TAIL
    if hidden <= 1:
        yield from ((sign, _truncate(line)) for line in lines)
        return
    yield from ((sign, _truncate(line)) for line in lines[:_HEAD])
    yield "@", f"… {hidden:,} more lines {done}"
    yield from ((sign, _truncate(line)) for line in lines[len(lines) - _TAIL :])


def _truncate(line: str) -> str:
    if len(line) <= _MAX_LINE_CHARS:
        return line
    return f"{line[:_MAX_LINE_CHARS]}… ({len(line) - _MAX_LINE_CHARS:,} more characters)"
