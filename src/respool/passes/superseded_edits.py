"""Drop an old write whose lines later writes of the file wrote again or removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, cast

from msgspec import Struct

from ..cache_scope import scoped_cache
from ..edits import OVERWRITTEN, DropExchange, Offer, Replace, exchange_closure
from ..history.failures import is_failed_call
from ..history.line_index import argument_text
from ..markers import find_marker
from ..policy import Policy
from ..tools.identity import parse_arguments
from ..transcript import Exchange
from .base import View, call_label
from .superseded_writes import can_leave_unit

_MIN_CHARS = 200  # of arguments: shorter calls save too little
_MIN_LINE_CHARS: Final = 4  # shorter lines, such as a brace, stand everywhere
_MAX_FILE_EVENTS = 100  # latest accesses to one file that are checked
_PATCH: Final = "*** Begin Patch"
_PATCH_END: Final = "*** End Patch"
_MAX_LINES_BEFORE: Final = 4  # a patch: the command that applies it
_OLD_FIELDS: Final = ("old", "search", "find")  # how names of arguments for replaced text begin
_PLACE_WORDS: Final = ("path", "file", "dir", "cwd")  # in names of arguments that say where
_COMMENT_FIELDS: Final = ("description", "justification", "explanation", "instructions")


class WrittenLines(Struct, frozen=True, gc=False):
    """The lines that a write adds, and those with the lines that it removes."""

    added: frozenset[str]
    named: frozenset[str]


def superseded_edits(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to drop writes, call and result, of which later writes left no line.

    Each line that the call wrote was written again by a later write of the same file, or removed
    by one. So was what a failed write did not write, once another attempt did. The arguments of a
    write must not contain a placeholder, so the whole exchange goes or nothing.
    """
    min_chars = _MIN_CHARS if policy.min_chars is None else policy.min_chars
    offered: set[int] = set()
    for ordinal in _due_writes(view):
        if ordinal not in offered and _can_drop(view, ordinal, min_chars):
            offer = _offer(view, ordinal)
            if offer is not None:
                offered.add(ordinal)
                yield offer


def _due_writes(view: View) -> Iterator[int]:
    """Writes that came of age since the last epoch, and old ones overwritten in part since then."""
    for exchange in view.aged_exchanges():
        yield exchange.ordinal
    before = min(view.aged_from, view.aged_until)  # the others are those above
    for exchange in view.newly_seen() if before else ():
        for span in view.use(exchange.ordinal).writes:
            named = _lines_of(view, exchange.ordinal).named
            for event in view.ledger.latest(span.path, exchange.ordinal, _MAX_FILE_EVENTS):
                is_old = event.is_write and event.ordinal < before
                if is_old and not named.isdisjoint(_lines_of(view, event.ordinal).added):
                    yield event.ordinal


def _lines_of(view: View, ordinal: int) -> WrittenLines:
    return written_lines(view.transcript.parts[view.transcript.exchanges[ordinal].call].text)


def _can_drop(view: View, ordinal: int, min_chars: int) -> bool:
    """Return whether an exchange only wrote named files and can go without others."""
    exchange, use = view.transcript.exchanges[ordinal], view.use(ordinal)
    call = view.transcript.parts[exchange.call]
    if use.kind != "write" or not use.writes or use.barrier or use.reads or exchange.server:
        return False
    if use.content not in (None, "edit") or any(span.part for span in use.writes):
        return False
    if exchange.result is None or len(call.text) < min_chars or not view.is_whole(exchange.call):
        return False
    if find_marker(call.text) is not None or not can_leave_unit(view, exchange):
        return False
    parts = exchange_closure(view.transcript, ordinal)
    return not any(map(view.is_protected, parts)) and _is_present(view, exchange)


def _is_present(view: View, exchange: Exchange) -> bool:
    """Return whether the result is there; it may have been cut."""
    result = exchange.result
    assert result is not None  # checked before
    return view.is_whole(result) or isinstance(view.in_force.get(result), Replace)


def _offer(view: View, ordinal: int) -> Offer | None:
    """Offer to drop one write, if none of its lines is left."""
    exchange = view.transcript.exchanges[ordinal]
    call = view.transcript.parts[exchange.call]
    left = set(_lines_of(view, ordinal).added)
    if not left:
        return None
    last = -1
    for later in _later_writes(view, ordinal):
        found = left & _lines_of(view, later.ordinal).named
        if found and _has_succeeded(view, later):
            last = max(last, later.ordinal)
            left -= found
        if not left:
            break
    if left:
        return None
    parts = exchange_closure(view.transcript, ordinal)
    by, files = call_label(view, last, ordinal), view.use(ordinal).writes
    where = files[0].path if len(files) == 1 else f"{len(files):,} files"
    total = len(_lines_of(view, ordinal).added)
    return Offer(
        "drop",
        DropExchange(
            exchange=ordinal,
            ref=call.ref,
            reason=OVERWRITTEN,
            evidence=f"{total:,} lines for {where} were written again or removed, last by {by}",
            saved=sum(map(view.tokens_of, parts)),
        ),
    )


def _later_writes(view: View, ordinal: int) -> Iterator[Exchange]:
    """The later writes of the files of an exchange that stand whole, the newest of a file first."""
    seen = view.seen_exchanges()
    for path in dict.fromkeys(span.path for span in view.use(ordinal).writes):
        for event in view.ledger.latest(path, seen, _MAX_FILE_EVENTS):
            if event.ordinal <= ordinal:
                break
            later = view.transcript.exchanges[event.ordinal]
            if not event.is_write or not view.is_whole(later.call):
                continue
            if view.ledger.is_same_path(path, ordinal, event.ordinal):
                yield later


def _has_succeeded(view: View, exchange: Exchange) -> bool:
    if exchange.result is None:
        return False
    result = view.transcript.parts[exchange.result]
    return not is_failed_call(result.text, result.error, view.use(exchange.ordinal).outcome_kind)


@scoped_cache(512)
def written_lines(arguments: str) -> WrittenLines:
    """The lines that a call adds and those that it names, without indentation.

    >>> lines = written_lines("*** Begin Patch\\n*** Update File: a\\n-warp()\\n+weft()\\n")
    >>> sorted(lines.added), sorted(lines.named)
    (['weft()'], ['warp()', 'weft()'])
    """
    patch, more = _split_patch(argument_text(arguments))
    if patch:
        lines = patch.split("\n")
        new = [*(_without_sign(line) for line in lines), *more.split("\n")]
        old = [line[1:] for line in lines if line[:1] == "-"]
    else:
        added, removed = list[str](), list[str]()
        _sort_strings(parse_arguments(arguments), added, removed)
        new, old = "\n".join(added).split("\n"), "\n".join(removed).split("\n")
    return WrittenLines(_long_lines(new), _long_lines((*new, *old)))


def _without_sign(line: str) -> str:
    """The text that a line of a patch adds; a line without any sign was meant to add it."""
    if line.startswith((" ", "-", "@@", "*** ")):
        return ""
    return line.removeprefix("+")


def _split_patch(text: str) -> tuple[str, str]:
    """The patch that a call applies, and what stands behind it; a file may quote one."""
    start = text.find(_PATCH)
    head = text[: max(0, start)]
    if start < 0 or head.count("\n") > _MAX_LINES_BEFORE or (head.strip() and "patch" not in head):
        return "", ""
    end = text.find(_PATCH_END, start)
    return (text[start:], "") if end < 0 else (text[start:end], text[end + len(_PATCH_END) :])


def _long_lines(lines: Iterable[str]) -> frozenset[str]:
    found = (line.strip() for line in lines)
    return frozenset(line for line in found if len(line) >= _MIN_LINE_CHARS)


def _sort_strings(value: object, new: list[str], old: list[str]) -> None:
    """Add the strings of arguments to the new text or to the text that it replaces."""
    waiting: list[tuple[object, list[str]]] = [(value, new)]
    while waiting:
        one, kind = waiting.pop()
        if isinstance(one, str):
            kind.append(one)
        elif isinstance(one, list):
            waiting += [(item, kind) for item in cast(list[object], one)]
        elif isinstance(one, dict):
            named = ((key.lower(), item) for key, item in cast(dict[str, object], one).items())
            waiting += [
                (item, old if name.startswith(_OLD_FIELDS) else kind)
                for name, item in named
                if not _is_aside(name, item)
            ]


def _is_aside(name: str, value: object) -> bool:
    """Return whether an argument is no text that is written: a place or a comment."""
    if name.startswith(_COMMENT_FIELDS):
        return True
    is_line = isinstance(value, str) and "\n" not in value
    return is_line and any(word in name for word in _PLACE_WORDS)
