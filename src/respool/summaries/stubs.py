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
    kept: int = 0


def stub_of(deed: Deed, *, errors_verbatim: bool, framed: int = 0) -> Stub:
    """What stays of an old result; `framed`: so many lines stand around what the call printed."""
    if deed.ending.failed:
        return _failure(deed, errors_verbatim and not deed.resolved, framed)
    return Stub(f"{_done(deed)}{_elsewhere(deed)}")


def _elsewhere(deed: Deed) -> str:
    """Where all of an output is that was shown in part."""
    return deed.ending.kept_in and f"; all of it is in {deed.ending.kept_in}"


def _done(deed: Deed) -> str:
    match deed.kind:
        case "read":
            return _looked(deed)
        case "write":
            return _wrote(deed)
        case "search":
            return f"{_sought(deed)} {clip(deed.what, _NAMED)}: {_found(deed)}"
        case "run":
            return _ran(deed)
        case _:
            first = opening(deed.ending.body, _SAID)
            return f"{deed.tool or 'a call'}, {deed.ending.lines:,} lines" + (
                first and f": {first}"
            )


def _ran(deed: Deed) -> str:
    ended = _ended(deed)
    return f"ran {clip(deed.what, _NAMED)}{ended and f': {ended}'}{_said(deed)}"


def _wrote(deed: Deed) -> str:
    """What was written; of a command that may write anything, what ran."""
    if deed.known_by == "command":
        return _ran(deed)
    ended = _ended(deed)
    how = ", ok" if deed.ending.well else ended and f": {ended}"
    said = "" if deed.content == "edit" else _said(deed)
    return f"{'wrote' if deed.replaces else 'changed'} {_files(deed)}{how}{said}"


def _looked(deed: Deed) -> str:
    """What was read: a file, or what a command shows."""
    if deed.reads and deed.what == deed.reads[0].path:
        return f"read {_short(deed.what)}{_lines(deed)}"
    said = sum_line(deed.ending.body, _SAID)
    seen = f"looked at {clip(deed.what, _NAMED)}, {_shown(deed.ending)}"
    return seen + (said and f"; {said}")


def _failure(deed: Deed, verbatim: bool, framed: int) -> Stub:
    """A failed call: its telling lines as they stand, or one of them when it was mended since."""
    changed = "ran" if deed.known_by == "command" else "changed"
    verbs = {"read": "read", "write": changed, "search": _sought(deed)}
    verb = verbs.get(deed.kind, "ran")
    since = "; the same succeeded later" if deed.resolved else ""
    head = f"{verb} {clip(_short(deed.what), _NAMED)}: {_ended(deed)}{since}{_elsewhere(deed)}"
    body = deed.ending.body
    if not verbatim:
        told = first_error(body, _SAID)
        return Stub(head + (told and f": {told}"))
    lines = body.split("\n")
    found = telling_lines(body, _ERRORS, _ERROR_LINES, _ERROR_LINE)
    numbers = _with_lines_between([0, *found] if found[:1] == [1] and not framed else found)
    told = _with_holes(lines, numbers, deed.ending.lines, framed)
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


def _ended(deed: Deed) -> str:
    """How a call ended, as far as it is known."""
    ending = deed.ending
    if ending.running:
        return f"still running, session {ending.running}"
    if ending.failed:
        return f"failed, exit {ending.status}" if ending.status else "failed"
    return "" if ending.status is None else f"exit {ending.status}"


def _said(deed: Deed) -> str:
    """What a run says last, or a report first."""
    if deed.content == "page":
        said = opening(deed.ending.body, _REPORT)
    else:
        said = last_word(deed.ending.body, _SAID)
    return said and f"; {said}"


def _lines(deed: Deed) -> str:
    ending = deed.ending
    ranges = [lines_read(span, ending.printed or ending.lines) for span in deed.reads]
    if len(deed.reads) == 1 and ranges[0]:
        return f", lines {ranges[0]}{' in part' if ending.in_part else ''}"
    more = f" and {len(deed.reads) - 1} more" if len(deed.reads) > 1 else ""
    return f"{more}, {_shown(ending)}"


def _shown(ending: Ending) -> str:
    """How many lines were shown, and of how many."""
    if ending.printed is None:
        return f"{ending.lines:,} lines{' shown' if ending.in_part else ''}"
    return f"{ending.lines:,}{f' of {ending.printed:,}' if ending.in_part else ''} lines"


def _files(deed: Deed) -> str:
    names = [_short(span.path) for span in deed.writes] or [clip(deed.what, _NAMED)]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _sought(deed: Deed) -> str:
    """How a search is told: by its command, by what it lists, or by what it looks for."""
    if deed.known_by == "command":
        return "ran"
    listed = deed.known_by == "name" and deed.content == "listing"
    return "listed" if listed else "searched for"


def _found(deed: Deed) -> str:
    """How much a search found; in lines where these may be hits or not."""
    body = deed.ending.body
    more = " and more" if _MORE.search(body, max(0, len(body) - _NOTES)) else ""
    if deed.content == "listing" and not deed.ending.in_part:
        entries = count_entries(body)
        return f"{_shown(deed.ending) if entries is None else f'{entries:,} entries'}{more}"
    counted = None if deed.content == "listing" or deed.ending.in_part else count_hits(body)
    if counted is None:
        return f"{_shown(deed.ending)}{more}"
    hits, files = counted
    return f"{hits:,} hits{f' in {files:,} files' if files > 1 else ''}{more}"


def _short(path: str) -> str:
    """A path by its last steps, if it has more: the call above has it whole."""
    if "/" not in path or " " in path or "://" in path:
        return clip(path, _NAMED)
    steps = path.strip("/").split("/")
    return "/".join(steps[-3:]) if len(steps) > 3 else path
