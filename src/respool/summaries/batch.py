"""Summary of a batch of old calls, and the original it replaces."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from ..edits import result_with_media
from ..history.failures import clip_error_line, error_line, failure_hint
from ..tokens import replace_surrogates
from ..tools.use import Span
from ..transcript import Exchange, ReadOnlyTranscript, Unit
from .call_summary import CallSummary, first_sentences, line_range_text
from .outcome import clip_text, error_lines, final_line, first_error, opening_text

CountTokens = Callable[[str], int]


class Detail(Struct, frozen=True, gc=False):
    """The level of detail: items in a list, characters of text, errors and lines of each."""

    items: int
    chars: int
    errors: int
    lines: int
    reasons: int  # reasons for changes of the same files


DETAILS: Final = (
    Detail(24, 220, 8, 6, 9),
    Detail(16, 160, 6, 5, 6),
    Detail(12, 120, 4, 4, 4),
    Detail(8, 100, 3, 3, 3),
    Detail(5, 80, 2, 2, 2),
    Detail(4, 60, 2, 1, 1),
    Detail(2, 50, 1, 1, 1),
    Detail(1, 40, 1, 1, 1),
)


def describe_batch(calls: Sequence[CallSummary], max_tokens: int, count: CountTokens) -> str:
    """Describe a batch in the most detail that fits `max_tokens`."""
    text = ""
    for text in _descriptions(calls, DETAILS):
        if count(text) <= max_tokens:
            return text
    while count(text) > max_tokens and text:
        text = clip_text(text, len(text) * 3 // 4)
    return text


def describe_with_summary(
    summary: str, calls: Sequence[CallSummary], max_tokens: int, count: CountTokens
) -> str:
    """A model's summary of the batch, clipped to fit beside its changes and open errors."""
    below = _common_folder(calls)
    where = f"; … stands for {below}" if below else ""
    head = f"Earlier in this session, {len(calls):,} tool calls of the assistant"
    joined, shortest = _join_sessions(calls), DETAILS[-1]
    required = [*_changed_files(joined, below, shortest), *_open_errors(joined, below, shortest)]
    summary, max_chars = (
        replace_surrogates(summary),
        len(summary),
    )  # lone surrogates cannot be encoded
    while True:
        clipped = _without_markers(clip_text(summary.strip(), max_chars))
        text = "\n".join([f"{head}, as a model sums them up{where}:", clipped, *required])
        if count(text) <= max_tokens or max_chars < 40:
            return text
        max_chars = max_chars * 3 // 4


def _without_markers(words: str) -> str:
    """The same text without lines that could be taken for respool's markers."""
    lines = (f"({line[1:]}" if line[:1] == "[" else line for line in words.split("\n"))
    return "\n".join(lines)


def min_batch_tokens(calls: Sequence[CallSummary], count: CountTokens) -> int:
    """The tokens of the shortest description with every changed file and open error."""
    return max(count(text) for text in _descriptions(calls, DETAILS[-1:]))


def _descriptions(calls: Sequence[CallSummary], details: Sequence[Detail]) -> Iterator[str]:
    """The descriptions of the batch, one per level of detail."""
    below = _common_folder(calls)
    where = f"; … stands for {below}" if below else ""
    head = f"Earlier in this session, {len(calls):,} tool calls of the assistant, in short{where}:"
    joined = _join_sessions(calls)
    for detail in details:
        yield "\n".join([head, *_sections(joined, below, detail)])


def _join_sessions(calls: Sequence[CallSummary]) -> list[CallSummary]:
    """The calls with each running session as one: its start with its final outcome."""
    started: dict[str, int] = {}
    found: list[CallSummary] = []
    for call in calls:
        at = started.get(call.session) if call.session else None
        if at is not None:
            found[at] = replace(found[at], outcome=call.outcome, resolved=call.resolved)
            continue
        if call.outcome.running:
            started[call.outcome.running] = len(found)
        found.append(call)
    return found


def _sections(calls: Sequence[CallSummary], below: str, detail: Detail) -> list[str]:
    sections = (
        _changed_files(calls, below, detail),
        _open_errors(calls, below, detail),
        _commands_run(calls, below, detail),
        _files_read(calls, below, detail),
        _resolved_errors(calls, below, detail),
        _other_calls(calls, below, detail),
    )
    return [line for section in sections for line in section]


class _Changes(Struct):
    """The changes of one file, and the reasons given for them."""

    edits: int = 0
    failed: int = 0  # by commands that failed, perhaps before the write
    reasons: dict[str, None] = {}


def _changed_files(calls: Sequence[CallSummary], below: str, detail: Detail) -> list[str]:
    """The changed files, with the assistant's reasons."""
    changes: dict[str, _Changes] = {}
    for call in calls:
        failed = call.outcome.failed
        for span in call.writes if call.in_shell or not failed else ():
            change = changes.setdefault(span.path, _Changes())
            change.edits, change.failed = change.edits + 1, change.failed + failed
            if call.reason:
                change.reasons[first_sentences(call.reason, detail.chars)] = None
    groups: dict[tuple[str, ...], list[str]] = {}
    for path, change in changes.items():
        groups.setdefault(tuple(change.reasons), []).append(
            _relative_path(path, below) + _edit_count(change)
        )
    all = list(groups.items())
    lines = list(_change_lines(all[-detail.items :], detail))
    left = [name for _, files in all[: -detail.items] for name in files]
    if left:
        lines.append(f"also {', '.join(left)}")
    return ["- changed:", *(f"  {line}" for line in lines)] if lines else []


def _edit_count(change: _Changes) -> str:
    """The number of edits, or that there may have been none."""
    if change.failed == change.edits:
        return " (by a command that failed)"
    return f" ({change.edits} edits)" if change.edits > 1 else ""


def _change_lines(
    groups: Sequence[tuple[tuple[str, ...], list[str]]], detail: Detail
) -> Iterator[str]:
    """Files changed for the same reasons, with the last of these; each reason once."""
    given: set[str] = set()
    for whys, files in groups:
        latest = whys[-detail.reasons :]
        new_reasons = [reason for reason in latest if reason not in given]
        given.update(new_reasons)
        earlier = "… " if len(latest) < len(whys) else ""
        words = (
            " ".join(f"“{one}”" for one in new_reasons)
            if new_reasons
            else "for a reason given above"
        )
        yield ", ".join(files) + (f": {earlier}{words}" if latest else "")


def _open_errors(calls: Sequence[CallSummary], below: str, detail: Detail) -> list[str]:
    """The unresolved errors: the latest almost verbatim, all of them by a line."""
    failed: dict[tuple[str, str], list[CallSummary]] = {}
    for call in calls:
        if call.outcome.failed and not call.resolved:
            line = clip_error_line(error_line(call.outcome.body))
            failed.setdefault((call.label, line), []).append(call)
    lines: list[str] = []
    for number, ((_, line), same) in enumerate(reversed(failed.items())):
        status = f", exit {same[-1].outcome.status}" if same[-1].outcome.status else ""
        times = f" ({len(same)} times)" if len(same) > 1 else ""
        lines.append(f"- failed{status}: {_label(same[-1], below, detail)}{times}")
        lines += _error_details(same[-1], line, detail) if number < detail.errors else [f"  {line}"]
    return lines


def _error_details(call: CallSummary, main: str, detail: Detail) -> list[str]:
    """The lines that say what went wrong, the main one among them."""
    lines = error_lines(call.outcome.body, detail.chars * 2, detail.lines)
    includes_main = any(main.removesuffix("…") in line for line in lines)
    return [f"  {line}" for line in ([] if includes_main else [main])] + [
        f"  {line}" for line in lines
    ]


def _resolved_errors(calls: Sequence[CallSummary], below: str, detail: Detail) -> list[str]:
    """The errors whose operation succeeded since, one line each."""
    failed = [call for call in calls if call.outcome.failed and call.resolved]
    if not failed:
        return []
    errors: dict[str, None] = {}
    for call in failed[-detail.errors :]:
        error = first_error(call.outcome.body, detail.chars)
        errors[f"{_label(call, below, detail)}{error and f': {error}'}"] = None
    times = f" ({len(failed)} times)" if len(failed) > 1 else ""
    return [f"- failed at first, then succeeded{times}: {'; '.join(errors)}"]


class _Runs(Struct):
    """The runs of one command, and their outcomes."""

    times: int = 0
    failed: int = 0
    last: CallSummary | None = None


def _commands_run(calls: Sequence[CallSummary], below: str, detail: Detail) -> list[str]:
    """The commands that ran, how often, and their last outcome."""
    runs: dict[str, _Runs] = {}
    for call in calls:
        if call.kind == "run":
            run = runs.setdefault(call.label, _Runs())
            run.times, run.failed, run.last = run.times + 1, run.failed + call.outcome.failed, call
    if not runs:
        return []
    shown = list(runs.values())[-detail.items :]
    items = [_describe_command(run.last, run, below, detail) for run in shown if run.last]
    left = len(runs) - len(shown)
    more = f"{left} other commands; " if left else ""
    return [f"- ran: {more}{'; '.join(items)}"]


def _describe_command(last: CallSummary, run: _Runs, below: str, detail: Detail) -> str:
    """One command with its known outcome."""
    label, result = _label(last, below, detail), _run_result(last, detail)
    if run.times > 1:
        failed = f", {run.failed} failed" if run.failed else ""
        result = f"{run.times} times{failed}{result and f'; last {result}'}"
    return label + (result and f" ({result})")


def _run_result(call: CallSummary, detail: Detail) -> str:
    """The outcome of a run, if its output says so."""
    if call.outcome.failed:
        return "failed"
    if call.content == "page":
        return opening_text(call.outcome.body, 2 * detail.chars)
    final = final_line(call.outcome.body, detail.chars // 2) if call.content == "test" else ""
    if call.outcome.succeeded:
        return final or "ok"
    hint = clip_text(failure_hint(call.outcome.body), detail.chars // 2)
    return hint or final or ("still running" if call.outcome.running else "")


def _files_read(calls: Sequence[CallSummary], below: str, detail: Detail) -> list[str]:
    """The files that were read, with the joined ranges of each."""
    files: dict[str, list[str]] = {}
    others: dict[str, None] = {}
    for call in calls:
        if call.kind == "read" and not call.outcome.failed:
            for span in call.reads:
                files.setdefault(span.path, []).append(_range_text(span, call))
            if not call.reads:
                others[_label(call, below, detail)] = None
    items = [
        *others,
        *(f"{_relative_path(path, below)}{_join_ranges(at)}" for path, at in files.items()),
    ]
    if not items:
        return []
    left = len(items) - detail.items
    more = f"{left} other things, " if left > 0 else ""
    return [f"- read: {more}{', '.join(items[-detail.items :])}"]


def _range_text(span: Span, call: CallSummary) -> str:
    if span.part or call.outcome.is_truncated:
        return "in part"
    return line_range_text(span, call.outcome.lines)


def _join_ranges(found: Iterable[str]) -> str:
    """Ranges of lines, joined where they meet; empty if all was read."""
    pairs: list[tuple[int, int]] = []
    given = set(found)
    if "" in given:
        return ""
    for one in given - {"in part"}:
        first, _, last = one.partition("-")
        pairs.append((int(first), int(last)))
    joined: list[tuple[int, int]] = []
    for first, last in sorted(pairs):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return " " + ", ".join(f"{first}-{last}" for first, last in joined) if joined else " (parts)"


def _other_calls(calls: Sequence[CallSummary], below: str, detail: Detail) -> list[str]:
    """The number of searches; of other calls the tools or the commands."""
    searches = sum(call.kind == "search" for call in calls)
    tools: dict[str, int] = {}
    for call in calls:
        if call.kind == "other" or (call.kind == "write" and not call.writes):
            spoken = _label(call, below, detail) if call.label_source == "command" else ""
            name = spoken or call.tool or "unnamed"
            tools[name] = tools.get(name, 0) + 1
    lines = [f"- searched {_count_text(searches)}"] if searches else []
    if tools:
        named = [f"{name} {_count_text(n)}" if n > 1 else name for name, n in tools.items()]
        left = len(named) - detail.items
        more = f" and {left} more" if left > 0 else ""
        lines.append(f"- other calls: {', '.join(named[: detail.items])}{more}")
    return lines


def _count_text(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _label(call: CallSummary, below: str, detail: Detail) -> str:
    return clip_text(_relative_path(call.label, below), max(60, detail.chars // 2))


def _relative_path(path: str, folder: str) -> str:
    """A path relative to the common folder."""
    return path.replace(folder + "/", "…/") if folder else path


def _common_folder(calls: Sequence[CallSummary]) -> str:
    """The folder above most of a batch's absolute paths, if several; of equals the first."""
    spans = [span for call in calls for span in (*call.reads, *call.writes)]
    roots: dict[str, set[str]] = {}
    for path in dict.fromkeys(span.path for span in spans if span.path[:1] == "/"):
        folder = posixpath.dirname(path)
        roots.setdefault("/".join(folder.split("/")[:4]), set()).add(folder)
    largest = max(roots.values(), key=len, default=set[str]())
    common = posixpath.commonpath(largest) if largest else ""
    return common if common.count("/") > 1 else ""


class AttachedOriginal(Protocol):
    """An image or file with an original of its own."""

    @property
    def unit(self) -> str:
        """Its kind."""
        ...

    @property
    def ref(self) -> str:
        """The reference of its original."""
        ...


def render_exchanges(
    history: ReadOnlyTranscript, ordinals: Sequence[int], held: Mapping[int, AttachedOriginal]
) -> Iterator[str]:
    """Render the text of these exchanges, piece by piece, with references to their images.

    The last exchange stays, because the summary replaces its result; so do its images and its
    unit's reasoning.
    """
    exchanges, units = history.exchanges, history.units
    last, unit = exchanges[ordinals[-1]], -1
    for number, ordinal in enumerate(ordinals, 1):
        exchange = exchanges[ordinal]
        yield f"=== {number:,} of {len(ordinals):,}: {_exchange_name(history, exchange)}\n"
        if exchange.unit not in (unit, last.unit):
            for position in units[exchange.unit].reasoning:
                yield from _render_part(history, position, held)
        unit = exchange.unit
        yield f"{history.parts[exchange.call].text}\n"
        stays = exchange is last or (unit == last.unit and is_inseparable(units[unit]))
        for position in _result_parts(history, exchange, media=not stays):
            yield from _render_part(history, position, held)


def is_inseparable(unit: Unit) -> bool:
    """Check whether the exchanges of a unit can only be removed together."""
    return unit.locked or bool(unit.reasoning)


def _result_parts(history: ReadOnlyTranscript, exchange: Exchange, *, media: bool) -> list[int]:
    """The result of an exchange and its attachments."""
    if exchange.result is None:
        return []
    return result_with_media(history, exchange.result) if media else [exchange.result]


def _exchange_name(history: ReadOnlyTranscript, exchange: Exchange) -> str:
    call = history.parts[exchange.call]
    return " ".join(f"{call.name or 'unnamed'} {call.id}".split())


def _render_part(
    history: ReadOnlyTranscript, position: int, held: Mapping[int, AttachedOriginal]
) -> Iterator[str]:
    part, attached = history.parts[position], held.get(position)
    if attached is not None:
        yield f"--- {attached.unit}; ref {attached.ref}\n"
    elif part.text or part.kind == "result":
        yield f"--- {part.kind}{', failed' if part.error else ''}\n"
        yield part.text
        yield "\n"
