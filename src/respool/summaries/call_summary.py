"""Summary of one old call, and the stub of its result."""

from __future__ import annotations

import re
from typing import Final, Literal

from msgspec import Struct

from ..history.failures import failure_hint
from ..markers import gap_line
from ..regex import lazy_compile
from ..shapes.excerpt import clip_line as cut
from ..shapes.search_results import count_entries, count_hits
from ..tools.use import END_OF_FILE, Content, Span, ToolKind, Use
from ..transcript import Part
from .outcome import (
    CallOutcome,
    argument_strings,
    clip_text,
    count_line,
    error_line_numbers,
    final_line,
    first_error,
    opening_text,
    parse_outcome,
)

_QUERY_ARGUMENTS: Final = ("pattern", "query", "regex", "search", "q", "glob")
_COMMAND_ARGUMENTS: Final = ("command", "cmd", "commands")  # a description is beside them
_SHELL = lazy_compile(r"^(?:/\S*/)?(?:ba|z|da)?sh -l?c ")
_SENTENCE = lazy_compile(r"(?<=[.!?])\s+(?=[A-Z0-9`\"'(])|\n\s*\n")

LabelSource = Literal["name", "command", "pattern"]

_MAX_LABEL_CHARS: Final = 80  # characters of a command or pattern
_MAX_FINAL_LINE_CHARS: Final = 160  # characters of a run's final line
_MAX_REPORT_CHARS: Final = 400  # characters of a report's beginning
_MAX_ERROR_CHARS: Final = 1_000  # characters of an error that stay
_MAX_ERROR_LINES: Final = 14
# Characters of one error line, so that it does not use the whole budget
_MAX_ERROR_LINE_CHARS: Final = 320
_TRUNCATED = lazy_compile(r"^\(Results (?:are )?truncated", re.MULTILINE)  # Claude Code, opencode
_NOTE_CHARS: Final = 300  # characters at the end of a result that may hold such a note


class CallSummary(Struct, frozen=True):
    """The facts of one call for a summary."""

    kind: ToolKind
    label: str  # a file, a command, a pattern: identifies the call for a reader
    tool: str
    outcome: CallOutcome
    reads: tuple[Span, ...] = ()
    writes: tuple[Span, ...] = ()
    replaces: bool = False
    content: Content | None = None
    rerun: bool = False
    resolved: bool = False  # it failed, and the same operation succeeded since
    reason: str = ""  # the assistant's words before it
    session: str = ""  # a running session that was polled later
    label_source: LabelSource = "name"  # the kind of `label`
    in_shell: bool = False  # a command may have taken partial effect before it failed


def summarize_call(
    call: Part, use: Use, result: Part, *, why: str = "", resolved: bool = False
) -> CallSummary:
    """Extract the facts of one call and its result."""
    outcome = parse_outcome(result.text, result.error, use.outcome_kind)
    session = use.target if use.target and use.target.isdigit() else ""
    label, label_source = _call_label(call, use)
    if session and outcome.command:
        label = _unquote(outcome.command)
    return CallSummary(
        kind=use.kind,
        label=label,
        tool=call.name,
        outcome=outcome,
        reads=use.reads,
        writes=use.writes,
        replaces=use.replaces,
        content=use.content,
        rerun=use.rerun,
        resolved=resolved,
        reason=why,
        session=session,
        label_source=label_source,
        in_shell=use.in_shell,
    )


def _call_label(call: Part, use: Use) -> tuple[str, LabelSource]:
    """The label that identifies a call for a reader."""
    if use.kind == "write" and use.writes:
        return use.writes[0].path, "name"
    if use.kind == "read" and use.reads and use.target == use.reads[0].path:
        return use.reads[0].path, "name"
    label, source = _query_or_command(call, use)
    return " ".join(label.split()), source if use.in_shell or source != "command" else "name"


def _query_or_command(call: Part, use: Use) -> tuple[str, LabelSource]:
    """The command or pattern in a call's arguments; otherwise its target."""
    texts = argument_strings(call.text)
    if use.kind == "search":
        for name in _QUERY_ARGUMENTS:
            if texts.get(name):
                return texts[name], "pattern"
    target = use.target or ""
    program = target.partition(" ")[0].rpartition("/")[2]
    named = sorted(texts, key=lambda name: name not in _COMMAND_ARGUMENTS)
    spoken = [texts[name] for name in named if " " in texts[name].strip()]
    for text in spoken:
        if program and program in text:
            shell = _SHELL.match(text)
            return (_unquote(text[shell.end() :]) if shell else text), "command"
    if target and not target.isdigit() and (use.kind != "search" or not spoken):
        return target, "name"
    return (spoken[0], "command") if spoken else (f"{call.name} {target}".strip(), "name")


def _unquote(command: str) -> str:
    """The command of a shell without its quotes; the last one may be cut off."""
    quote = command[:1]
    return command[1:].removesuffix(quote) if quote in ("'", '"') else command


def line_range_text(span: Span, shown: int) -> str:
    """The lines that were read, limited to those that exist."""
    if span.lines is None or span.part:
        return ""
    first, last = span.lines
    there = first + max(shown, 1) - 1
    if first == 1 and there < last:
        return ""  # the file ended before the requested range
    return f"{first}-{min(last, there) if last < END_OF_FILE else there}"


def first_sentences(text: str, budget: int) -> str:
    """The first sentences that fit; at least a part of the first.

    If the first is only an opening ("Right."), a part of the next follows.
    """
    clipped = ""
    for sentence in _SENTENCE.split(text.strip()):
        longer = f"{clipped} {sentence}".strip()
        if clipped and len(longer) > budget:
            clipped = longer if len(clipped) < budget // 3 else clipped
            break
        clipped = longer
        if len(clipped) > budget // 2:
            break
    return clip_text(" ".join(clipped.split()), budget)


class Stub(Struct, frozen=True, gc=False):
    """The replacement of a result: a text, and the number of source lines in it."""

    text: str
    kept_lines: int = 0


def build_stub(call: CallSummary, *, errors_verbatim: bool, framed: int = 0) -> Stub:
    """Build the stub of an old result.
    `framed` is the number of frame lines around the output.
    """
    if call.outcome.failed:
        return _failure_stub(call, errors_verbatim and not call.resolved, framed)
    return Stub(f"{_describe(call)}{_full_output_note(call)}")


def _full_output_note(call: CallSummary) -> str:
    """The file with the full output, if only part was shown."""
    return call.outcome.full_output and f"; all of it is in {call.outcome.full_output}"


def _describe(call: CallSummary) -> str:
    match call.kind:
        case "read":
            return _describe_read(call)
        case "write":
            return _describe_write(call)
        case "search":
            label = clip_text(call.label, _MAX_LABEL_CHARS)
            return f"{_describe_search(call)} {label}: {_search_count(call)}"
        case "run":
            return _describe_run(call)
        case _:
            first = opening_text(call.outcome.body, _MAX_FINAL_LINE_CHARS)
            return f"{call.tool or 'a call'}, {call.outcome.lines:,} lines" + (
                first and f": {first}"
            )


def _describe_run(call: CallSummary) -> str:
    ended = _ending_text(call)
    return (
        f"ran {clip_text(call.label, _MAX_LABEL_CHARS)}{ended and f': {ended}'}{_output_line(call)}"
    )


def _describe_write(call: CallSummary) -> str:
    """Describe a write; for a command that may write anything, the command."""
    if call.label_source == "command":
        return _describe_run(call)
    ended = _ending_text(call)
    how = ", ok" if call.outcome.succeeded else ended and f": {ended}"
    output = "" if call.content == "edit" else _output_line(call)
    return f"{'wrote' if call.replaces else 'changed'} {_file_names(call)}{how}{output}"


def _describe_read(call: CallSummary) -> str:
    """Describe a read: a file, or the command that printed it."""
    if call.reads and call.label == call.reads[0].path:
        return f"read {_short_path(call.label)}{_line_count_text(call)}"
    count = count_line(call.outcome.body, _MAX_FINAL_LINE_CHARS)
    seen = f"looked at {clip_text(call.label, _MAX_LABEL_CHARS)}, {_shown_lines_text(call.outcome)}"
    return seen + (count and f"; {count}")


def _failure_stub(call: CallSummary, verbatim: bool, framed: int) -> Stub:
    """The stub of a failed call: its informative lines, or one of them if resolved since."""
    changed = "ran" if call.label_source == "command" else "changed"
    verbs = {"read": "read", "write": changed, "search": _describe_search(call)}
    verb = verbs.get(call.kind, "ran")
    since = "; the same succeeded later" if call.resolved else ""
    label = clip_text(_short_path(call.label), _MAX_LABEL_CHARS)
    head = f"{verb} {label}: {_ending_text(call)}{since}{_full_output_note(call)}"
    body = call.outcome.body
    if not verbatim:
        shown = first_error(body, _MAX_FINAL_LINE_CHARS)
        return Stub(head + (shown and f": {shown}"))
    lines = body.split("\n")
    found = error_line_numbers(body, _MAX_ERROR_CHARS, _MAX_ERROR_LINES, _MAX_ERROR_LINE_CHARS)
    numbers = _with_lines_between([0, *found] if found[:1] == [1] and not framed else found)
    shown = _with_holes(lines, numbers, call.outcome.lines, framed)
    return Stub("\n".join([head, *shown]), len(numbers))


def _with_lines_between(numbers: list[int]) -> list[int]:
    """The numbers with single missing lines filled in: a hole would be no shorter."""
    found: list[int] = []
    for number in numbers:
        if found and number - found[-1] == 2:
            found.append(number - 1)
        found.append(number)
    return found


def _with_holes(lines: list[str], numbers: list[int], all: int, framed: int) -> list[str]:
    """Lines in order, with the number missing in each gap; the first includes the frame."""
    shown: list[str] = []
    expected = -framed
    for number in numbers:
        if number > expected:
            shown.append(gap_line(number - expected, "lines"))
        shown.append("".join(cut(lines[number].rstrip(), _MAX_ERROR_LINE_CHARS)))
        expected = number + 1
    return [*shown, gap_line(all - expected, "lines")] if all > expected else shown


def _ending_text(call: CallSummary) -> str:
    """The known outcome of a call."""
    outcome = call.outcome
    if outcome.running:
        return f"still running, session {outcome.running}"
    if outcome.failed:
        return f"failed, exit {outcome.status}" if outcome.status else "failed"
    return "" if outcome.status is None else f"exit {outcome.status}"


def _output_line(call: CallSummary) -> str:
    """The last line of a run, or the first of a report."""
    if call.content == "page":
        line = opening_text(call.outcome.body, _MAX_REPORT_CHARS)
    else:
        line = final_line(call.outcome.body, _MAX_FINAL_LINE_CHARS)
        hint = "" if call.outcome.succeeded else failure_hint(call.outcome.body)
        if hint and hint not in line:
            line = f"{clip_text(hint, _MAX_FINAL_LINE_CHARS)}; {line}"
    return line and f"; {line}"


def _line_count_text(call: CallSummary) -> str:
    outcome = call.outcome
    ranges = [line_range_text(span, outcome.printed or outcome.lines) for span in call.reads]
    if len(call.reads) == 1 and ranges[0]:
        return f", lines {ranges[0]}{' in part' if outcome.is_truncated else ''}"
    more = f" and {len(call.reads) - 1} more" if len(call.reads) > 1 else ""
    return f"{more}, {_shown_lines_text(outcome)}"


def _shown_lines_text(outcome: CallOutcome) -> str:
    """The number of lines shown, and of all lines."""
    if outcome.printed is None:
        return f"{outcome.lines:,} lines{' shown' if outcome.is_truncated else ''}"
    return f"{outcome.lines:,}{f' of {outcome.printed:,}' if outcome.is_truncated else ''} lines"


def _file_names(call: CallSummary) -> str:
    names = [_short_path(span.path) for span in call.writes] or [
        clip_text(call.label, _MAX_LABEL_CHARS)
    ]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _describe_search(call: CallSummary) -> str:
    """A search by its command, by what it lists, or by its pattern."""
    if call.label_source == "command":
        return "ran"
    listed = call.label_source == "name" and call.content == "listing"
    return "listed" if listed else "searched for"


def _search_count(call: CallSummary) -> str:
    """The number of matches of a search; in lines if these may not all be hits."""
    body = call.outcome.body
    more = " and more" if _TRUNCATED.search(body, max(0, len(body) - _NOTE_CHARS)) else ""
    if call.content == "listing" and not call.outcome.is_truncated:
        entries = count_entries(body)
        count = _shown_lines_text(call.outcome) if entries is None else f"{entries:,} entries"
        return f"{count}{more}"
    counted = None if call.content == "listing" or call.outcome.is_truncated else count_hits(body)
    if counted is None:
        return f"{_shown_lines_text(call.outcome)}{more}"
    hits, files = counted
    return f"{hits:,} hits{f' in {files:,} files' if files > 1 else ''}{more}"


def _short_path(path: str) -> str:
    """The last components of a long path; the call above has it whole."""
    if "/" not in path or " " in path or "://" in path:
        return clip_text(path, _MAX_LABEL_CHARS)
    steps = path.strip("/").split("/")
    return "/".join(steps[-3:]) if len(steps) > 3 else path
