"""A batch of old calls told in a few lines, by what they did: never longer than it may be."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ..ledger.failures import clipped, telling_line
from ..tokens import replace_surrogates
from ..tools.use import Span
from .deeds import Deed, first_sentences, lines_read
from .outcomes import clip, errors_in, first_error, last_word, opening

Count = Callable[[str], int]


class Detail(Struct, frozen=True, gc=False):
    """How much is told: things in a list, characters of words, errors and lines of each."""

    items: int
    chars: int
    errors: int
    lines: int
    reasons: int  # reasons for the changes of the same files


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


def told(calls: Sequence[Deed], max_tokens: int, count: Count) -> str:
    """The batch in the most detail that fits into so many tokens."""
    text = ""
    for text in _tellings(calls, DETAILS):
        if count(text) <= max_tokens:
            return text
    while count(text) > max_tokens and text:
        text = clip(text, len(text) * 3 // 4)
    return text


def told_in(summary: str, calls: Sequence[Deed], max_tokens: int, count: Count) -> str:
    """The batch in a model's words, as many as fit; what changed and what is broken stays told."""
    below = _common_folder(calls)
    where = f"; … stands for {below}" if below else ""
    head = f"Earlier in this session, {len(calls):,} tool calls of the assistant"
    joined, least = _joined(calls), DETAILS[-1]
    sure = [*_changed(joined, below, least), *_open_errors(joined, below, least)]
    summary, room = replace_surrogates(summary), len(summary)  # half a character cannot be written
    while True:
        said = _unmarked(clip(summary.strip(), room))
        text = "\n".join([f"{head}, as a model sums them up{where}:", said, *sure])
        if count(text) <= max_tokens or room < 40:
            return text
        room = room * 3 // 4


def _unmarked(words: str) -> str:
    """The same words with no line that could be taken for one of respool's own markers."""
    lines = (f"({line[1:]}" if line[:1] == "[" else line for line in words.split("\n"))
    return "\n".join(lines)


def least_told(calls: Sequence[Deed], count: Count) -> int:
    """The tokens of the barest telling that names every changed file and every open error."""
    return max(count(text) for text in _tellings(calls, DETAILS[-1:]))


def _tellings(calls: Sequence[Deed], details: Sequence[Detail]) -> Iterator[str]:
    """The batch in each of these details."""
    below = _common_folder(calls)
    where = f"; … stands for {below}" if below else ""
    head = f"Earlier in this session, {len(calls):,} tool calls of the assistant, in short{where}:"
    joined = _joined(calls)
    for detail in details:
        yield "\n".join([head, *_lines(joined, below, detail)])


def _joined(calls: Sequence[Deed]) -> list[Deed]:
    """The deeds with what went on running told once: as it was started, and as it ended."""
    started: dict[str, int] = {}
    found: list[Deed] = []
    for deed in calls:
        at = started.get(deed.session) if deed.session else None
        if at is not None:
            found[at] = replace(found[at], outcome=deed.outcome, resolved=deed.resolved)
            continue
        if deed.outcome.running:
            started[deed.outcome.running] = len(found)
        found.append(deed)
    return found


def _lines(calls: Sequence[Deed], below: str, detail: Detail) -> list[str]:
    sections = (
        _changed(calls, below, detail),
        _open_errors(calls, below, detail),
        _ran(calls, below, detail),
        _read(calls, below, detail),
        _mended(calls, below, detail),
        _rest(calls, below, detail),
    )
    return [line for section in sections for line in section]


class _Changes(Struct):
    """How often a file was changed, and what was said before."""

    edits: int = 0
    failed: int = 0  # of them, by commands that failed, perhaps before
    reasons: dict[str, None] = {}


def _changed(calls: Sequence[Deed], below: str, detail: Detail) -> list[str]:
    """Which files were changed, and in the assistant's own words why."""
    changes: dict[str, _Changes] = {}
    for deed in calls:
        failed = deed.outcome.failed
        for span in deed.writes if deed.in_shell or not failed else ():
            change = changes.setdefault(span.path, _Changes())
            change.edits, change.failed = change.edits + 1, change.failed + failed
            if deed.reason:
                change.reasons[first_sentences(deed.reason, detail.chars)] = None
    groups: dict[tuple[str, ...], list[str]] = {}
    for path, change in changes.items():
        groups.setdefault(tuple(change.reasons), []).append(_below(path, below) + _edited(change))
    all = list(groups.items())
    lines = list(_each_change(all[-detail.items :], detail))
    left = [name for _, files in all[: -detail.items] for name in files]
    if left:
        lines.append(f"also {', '.join(left)}")
    return ["- changed:", *(f"  {line}" for line in lines)] if lines else []


def _edited(change: _Changes) -> str:
    """How often, or that it may not have been."""
    if change.failed == change.edits:
        return " (by a command that failed)"
    return f" ({change.edits} edits)" if change.edits > 1 else ""


def _each_change(
    groups: Sequence[tuple[tuple[str, ...], list[str]]], detail: Detail
) -> Iterator[str]:
    """Files that were changed for the same reasons, and the last of these; each is said once."""
    told: set[str] = set()
    for whys, files in groups:
        latest = whys[-detail.reasons :]
        said = [why for why in latest if why not in told]
        told.update(said)
        earlier = "… " if len(latest) < len(whys) else ""
        words = " ".join(f"“{one}”" for one in said) if said else "for a reason given above"
        yield ", ".join(files) + (f": {earlier}{words}" if latest else "")


def _open_errors(calls: Sequence[Deed], below: str, detail: Detail) -> list[str]:
    """The errors that nothing has mended since: the latest nearly as they stood, all by a line."""
    failed: dict[tuple[str, str], list[Deed]] = {}
    for deed in calls:
        if deed.outcome.failed and not deed.resolved:
            line = clipped(telling_line(deed.outcome.body))
            failed.setdefault((deed.label, line), []).append(deed)
    lines: list[str] = []
    for number, ((_, line), same) in enumerate(reversed(failed.items())):
        status = f", exit {same[-1].outcome.status}" if same[-1].outcome.status else ""
        times = f" ({len(same)} times)" if len(same) > 1 else ""
        lines.append(f"- failed{status}: {_what(same[-1], below, detail)}{times}")
        lines += _error(same[-1], line, detail) if number < detail.errors else [f"  {line}"]
    return lines


def _error(call: Deed, main: str, detail: Detail) -> list[str]:
    """The lines that say what went wrong, the main one among them."""
    lines = errors_in(call.outcome.body, detail.chars * 2, detail.lines)
    said = any(main.removesuffix("…") in line for line in lines)
    return [f"  {line}" for line in ([] if said else [main])] + [f"  {line}" for line in lines]


def _mended(calls: Sequence[Deed], below: str, detail: Detail) -> list[str]:
    """The errors whose operation succeeded since, a line each."""
    failed = [deed for deed in calls if deed.outcome.failed and deed.resolved]
    if not failed:
        return []
    told: dict[str, None] = {}
    for deed in failed[-detail.errors :]:
        said = first_error(deed.outcome.body, detail.chars)
        told[f"{_what(deed, below, detail)}{said and f': {said}'}"] = None
    times = f" ({len(failed)} times)" if len(failed) > 1 else ""
    return [f"- failed at first, then succeeded{times}: {'; '.join(told)}"]


class _Runs(Struct):
    """How often the same was run, and how it went."""

    times: int = 0
    failed: int = 0
    last: Deed | None = None


def _ran(calls: Sequence[Deed], below: str, detail: Detail) -> list[str]:
    """What was run, how often, and how it ended the last time."""
    runs: dict[str, _Runs] = {}
    for deed in calls:
        if deed.kind == "run":
            run = runs.setdefault(deed.label, _Runs())
            run.times, run.failed, run.last = run.times + 1, run.failed + deed.outcome.failed, deed
    if not runs:
        return []
    shown = list(runs.values())[-detail.items :]
    items = [_run(run.last, run, below, detail) for run in shown if run.last]
    left = len(runs) - len(shown)
    more = f"{left} other commands; " if left else ""
    return [f"- ran: {more}{'; '.join(items)}"]


def _run(last: Deed, run: _Runs, below: str, detail: Detail) -> str:
    """One command, and of how it went what is known."""
    what, went = _what(last, below, detail), _went(last, detail)
    if run.times > 1:
        failed = f", {run.failed} failed" if run.failed else ""
        went = f"{run.times} times{failed}{went and f'; last {went}'}"
    return what + (went and f" ({went})")


def _went(call: Deed, detail: Detail) -> str:
    """How a run went, as far as it says so."""
    if call.outcome.failed:
        return "failed"
    if call.content == "page":
        return opening(call.outcome.body, 2 * detail.chars)
    said = last_word(call.outcome.body, detail.chars // 2) if call.content == "test" else ""
    ended = "still running" if call.outcome.running else "ok" if call.outcome.succeeded else ""
    return said or ended


def _read(calls: Sequence[Deed], below: str, detail: Detail) -> list[str]:
    """What was read, the ranges of one file together."""
    files: dict[str, list[str]] = {}
    others: dict[str, None] = {}
    for deed in calls:
        if deed.kind == "read" and not deed.outcome.failed:
            for span in deed.reads:
                files.setdefault(span.path, []).append(_range(span, deed))
            if not deed.reads:
                others[_what(deed, below, detail)] = None
    items = [*others, *(f"{_below(path, below)}{_ranges(at)}" for path, at in files.items())]
    if not items:
        return []
    left = len(items) - detail.items
    more = f"{left} other things, " if left > 0 else ""
    return [f"- read: {more}{', '.join(items[-detail.items :])}"]


def _range(span: Span, call: Deed) -> str:
    if span.part or call.outcome.is_truncated:
        return "in part"
    return lines_read(span, call.outcome.lines)


def _ranges(found: Iterable[str]) -> str:
    """Ranges of lines, joined where they meet; nothing when all was read."""
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


def _rest(calls: Sequence[Deed], below: str, detail: Detail) -> list[str]:
    """Searches are only counted; of other calls the tools are named, or the commands."""
    searches = sum(deed.kind == "search" for deed in calls)
    tools: dict[str, int] = {}
    for deed in calls:
        if deed.kind == "other" or (deed.kind == "write" and not deed.writes):
            spoken = _what(deed, below, detail) if deed.label_source == "command" else ""
            name = spoken or deed.tool or "unnamed"
            tools[name] = tools.get(name, 0) + 1
    lines = [f"- searched {_times(searches)}"] if searches else []
    if tools:
        named = [f"{name} {_times(n)}" if n > 1 else name for name, n in tools.items()]
        left = len(named) - detail.items
        more = f" and {left} more" if left > 0 else ""
        lines.append(f"- other calls: {', '.join(named[: detail.items])}{more}")
    return lines


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _what(call: Deed, below: str, detail: Detail) -> str:
    return clip(_below(call.label, below), max(60, detail.chars // 2))


def _below(path: str, folder: str) -> str:
    """A path as it is told: from the folder that all share."""
    return path.replace(folder + "/", "…/") if folder else path


def _common_folder(calls: Sequence[Deed]) -> str:
    """The folder above most of a batch's absolute paths, if several; of equals the first."""
    spans = [span for deed in calls for span in (*deed.reads, *deed.writes)]
    roots: dict[str, set[str]] = {}
    for path in dict.fromkeys(span.path for span in spans if span.path[:1] == "/"):
        folder = posixpath.dirname(path)
        roots.setdefault("/".join(folder.split("/")[:4]), set()).add(folder)
    most = max(roots.values(), key=len, default=set[str]())
    common = posixpath.commonpath(most) if most else ""
    return common if common.count("/") > 1 else ""
