"""One old result as a line, by what kind of call it answers."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from ..marker import hole
from ..shapes.cutting import clip as cut
from ..shapes.hits import count_hits
from ..shapes.listing import count_entries
from .deeds import Deed, lines_read
from .outcomes import Ending, clip, first_error, last_word, opening, sum_line, telling_lines

_NAMED: Final = 80  # characters of a command or a pattern
_SAID: Final = 160  # characters of the line that sums a run up
_REPORT: Final = 400  # characters of a report's beginning
_ERRORS: Final = 1_000  # characters of an error that stay
_ERROR_LINES: Final = 14
_ERROR_LINE: Final = 320  # characters of one of them: none may take the room of all others
_MORE = re.compile(r"^\(Results (?:are )?truncated", re.MULTILINE)  # Claude Code, opencode
_NOTES: Final = 300  # characters at the end of a result in which its tool says so


class Stub(Struct, frozen=True, gc=False):
    """What stays of a result: a text, and how many lines of the source are among it."""

    text: str
    kept_lines: int = 0


def stub_of(call: Deed, *, errors_verbatim: bool, framed: int = 0) -> Stub:
    """What stays of an old result; `framed`: so many lines stand around what the call printed."""
    if call.outcome.failed:
        return _failure(call, errors_verbatim and not call.resolved, framed)
    return Stub(f"{_done(call)}{_elsewhere(call)}")


def _elsewhere(call: Deed) -> str:
    """Where all of an output is that was shown in part."""
    return call.outcome.full_output and f"; all of it is in {call.outcome.full_output}"


def _done(call: Deed) -> str:
    match call.kind:
        case "read":
            return _looked(call)
        case "write":
            return _wrote(call)
        case "search":
            return f"{_sought(call)} {clip(call.label, _NAMED)}: {_found(call)}"
        case "run":
            return _ran(call)
        case _:
            first = opening(call.outcome.body, _SAID)
            return f"{call.tool or 'a call'}, {call.outcome.lines:,} lines" + (
                first and f": {first}"
            )


def _ran(call: Deed) -> str:
    ended = _ended(call)
    return f"ran {clip(call.label, _NAMED)}{ended and f': {ended}'}{_said(call)}"


def _wrote(call: Deed) -> str:
    """What was written; of a command that may write anything, what ran."""
    if call.label_source == "command":
        return _ran(call)
    ended = _ended(call)
    how = ", ok" if call.outcome.succeeded else ended and f": {ended}"
    said = "" if call.content == "edit" else _said(call)
    return f"{'wrote' if call.replaces else 'changed'} {_files(call)}{how}{said}"


def _looked(call: Deed) -> str:
    """What was read: a file, or what a command shows."""
    if call.reads and call.label == call.reads[0].path:
        return f"read {_short(call.label)}{_lines(call)}"
    said = sum_line(call.outcome.body, _SAID)
    seen = f"looked at {clip(call.label, _NAMED)}, {_shown(call.outcome)}"
    return seen + (said and f"; {said}")


def _failure(call: Deed, verbatim: bool, framed: int) -> Stub:
    """A failed call: its telling lines as they stand, or one of them when it was mended since."""
    changed = "ran" if call.label_source == "command" else "changed"
    verbs = {"read": "read", "write": changed, "search": _sought(call)}
    verb = verbs.get(call.kind, "ran")
    since = "; the same succeeded later" if call.resolved else ""
    head = f"{verb} {clip(_short(call.label), _NAMED)}: {_ended(call)}{since}{_elsewhere(call)}"
    body = call.outcome.body
    if not verbatim:
        told = first_error(body, _SAID)
        return Stub(head + (told and f": {told}"))
    lines = body.split("\n")
    found = telling_lines(body, _ERRORS, _ERROR_LINES, _ERROR_LINE)
    numbers = _with_lines_between([0, *found] if found[:1] == [1] and not framed else found)
    told = _with_holes(lines, numbers, call.outcome.lines, framed)
    return Stub("\n".join([head, *told]), len(numbers))


def _with_lines_between(numbers: list[int]) -> list[int]:
    """The same with single lines between them: no shorter to leave out than to say."""
    found: list[int] = []
    for number in numbers:
        if found and number - found[-1] == 2:
            found.append(number - 1)
        found.append(number)
    return found


def _with_holes(lines: list[str], numbers: list[int], all: int, framed: int) -> list[str]:
    """Lines in their order, and in each gap how many are missing, the frame's with the first."""
    told: list[str] = []
    expected = -framed
    for number in numbers:
        if number > expected:
            told.append(hole(number - expected, "lines"))
        told.append("".join(cut(lines[number].rstrip(), _ERROR_LINE)))
        expected = number + 1
    return [*told, hole(all - expected, "lines")] if all > expected else told


def _ended(call: Deed) -> str:
    """How a call ended, as far as it is known."""
    ending = call.outcome
    if ending.running:
        return f"still running, session {ending.running}"
    if ending.failed:
        return f"failed, exit {ending.status}" if ending.status else "failed"
    return "" if ending.status is None else f"exit {ending.status}"


def _said(call: Deed) -> str:
    """What a run says last, or a report first."""
    if call.content == "page":
        said = opening(call.outcome.body, _REPORT)
    else:
        said = last_word(call.outcome.body, _SAID)
    return said and f"; {said}"


def _lines(call: Deed) -> str:
    ending = call.outcome
    ranges = [lines_read(span, ending.printed or ending.lines) for span in call.reads]
    if len(call.reads) == 1 and ranges[0]:
        return f", lines {ranges[0]}{' in part' if ending.is_truncated else ''}"
    more = f" and {len(call.reads) - 1} more" if len(call.reads) > 1 else ""
    return f"{more}, {_shown(ending)}"


def _shown(ending: Ending) -> str:
    """How many lines were shown, and of how many."""
    if ending.printed is None:
        return f"{ending.lines:,} lines{' shown' if ending.is_truncated else ''}"
    return f"{ending.lines:,}{f' of {ending.printed:,}' if ending.is_truncated else ''} lines"


def _files(call: Deed) -> str:
    names = [_short(span.path) for span in call.writes] or [clip(call.label, _NAMED)]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _sought(call: Deed) -> str:
    """How a search is told: by its command, by what it lists, or by what it looks for."""
    if call.label_source == "command":
        return "ran"
    listed = call.label_source == "name" and call.content == "listing"
    return "listed" if listed else "searched for"


def _found(call: Deed) -> str:
    """How much a search found; in lines where these may be hits or not."""
    body = call.outcome.body
    more = " and more" if _MORE.search(body, max(0, len(body) - _NOTES)) else ""
    if call.content == "listing" and not call.outcome.is_truncated:
        entries = count_entries(body)
        return f"{_shown(call.outcome) if entries is None else f'{entries:,} entries'}{more}"
    counted = None if call.content == "listing" or call.outcome.is_truncated else count_hits(body)
    if counted is None:
        return f"{_shown(call.outcome)}{more}"
    hits, files = counted
    return f"{hits:,} hits{f' in {files:,} files' if files > 1 else ''}{more}"


def _short(path: str) -> str:
    """A path by its last steps, if it has more: the call above has it whole."""
    if "/" not in path or " " in path or "://" in path:
        return clip(path, _NAMED)
    steps = path.strip("/").split("/")
    return "/".join(steps[-3:]) if len(steps) > 3 else path
