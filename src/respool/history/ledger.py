"""Ledger of the effects of calls, by file, by text and by call."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from threading import Lock
from typing import Any, Final, TypeVar, overload

import xxhash
from msgspec import Struct
from msgspec.structs import replace

from ..markers import find_marker, strip_advice
from ..regex import lazy_compile
from ..tools import Tools
from ..tools.paths import can_reach, is_absolute
from ..tools.use import END_OF_FILE, Span, Use
from ..transcript import Exchange, Part
from .failures import is_failed_call
from .line_index import LineIndex
from .native_line_index import make_line_index

_MAX_SCANNED_WRITES = 2_000  # writes searched one by one; beyond that, any file may be written
MIN_TEXT_CHARS = 64  # characters; shorter results are not indexed for copies

# Matches inside JSON arguments.
_FOLDER_CHANGES: Final = lazy_compile(r"(?:[;&|({\"']|\\n)\s*(?:cd|pushd|popd)\b")


class FileEvent(Struct, frozen=True, gc=False):
    """One exchange's access to one file."""

    ordinal: int
    span: Span
    is_write: bool
    replaced: bool = False  # it wrote the whole file


class CallStatus(Struct, frozen=True, gc=False):
    """The outcome of one call of an operation on a target."""

    ordinal: int
    failed: bool


_T = TypeVar("_T")
_K = TypeVar("_K")


class ListPrefix(Sequence[_T]):
    """The first items of a list that only grows, without a copy of them."""

    __slots__ = ("_end", "_items")

    def __init__(self, items: Sequence[_T], end: int) -> None:
        self._items, self._end = items, end

    def __len__(self) -> int:
        return self._end

    @overload
    def __getitem__(self, at: int) -> _T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[_T]: ...
    def __getitem__(self, at: int | slice) -> _T | Sequence[_T]:
        if isinstance(at, slice):
            return self._items[slice(*at.indices(self._end))] if at.step is None else [*self][at]
        if not -self._end <= at < self._end:
            raise IndexError(at)
        return self._items[at if at >= 0 else at + self._end]

    def __iter__(self) -> Iterator[_T]:
        return islice(self._items, self._end)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]


class _FileHistory:
    """The accesses to one path, and the reads of it that a later read covers."""

    __slots__ = ("_covered_by", "_uncovered", "events", "reads", "rewrites", "writes")

    def __init__(self) -> None:
        self.events: list[FileEvent] = []
        self.reads: list[int] = []  # exchanges, as in the two below
        self.writes: list[int] = []
        self.rewrites: list[int] = []  # writes of the whole file
        self._covered_by: dict[tuple[int, Span], int] = {}  # the first later read that covers it
        self._uncovered: list[tuple[int, int, int, Span]] = []  # by first line

    def add(self, event: FileEvent) -> None:
        """Append an access."""
        self.events.append(event)
        if event.is_write:
            self.writes.append(event.ordinal)
            if event.replaced:
                self.rewrites.append(event.ordinal)
            return
        self.reads.append(event.ordinal)
        if not event.span.part:
            self._cover(event)

    def _cover(self, event: FileEvent) -> None:
        """Record the earlier reads that this one covers; each is recorded once."""
        first, last = event.span.lines or _WHOLE_FILE
        known = self._uncovered
        start, end = bisect_left(known, (first,)), bisect_right(known, (last, _BEYOND))
        covered = [one for one in known[start:end] if one[1] <= last and one[2] < event.ordinal]
        if covered:
            self._covered_by.update({one[2:]: event.ordinal for one in covered})
            gone = set(covered)
            known[start:end] = [one for one in known[start:end] if one not in gone]
        insort(known, (first, last, event.ordinal, event.span), key=_line_range)

    def is_covered(self, ordinal: int, span: Span, until: int) -> bool:
        """Return whether a read between the read of an exchange and `until` covers it."""
        return self._covered_by.get((ordinal, span), until) < until


_BEYOND: Final = END_OF_FILE * END_OF_FILE  # over every line
_WHOLE_FILE: Final = (-1, _BEYOND)  # only another one covers it


def _line_range(read: tuple[int, int, int, Span]) -> tuple[int, int]:
    return read[:2]


class Ledger:
    """Append-only ledger, shared by all states of a conversation; readers pass a limit.

    Only the state at its end may append. Any other state is on a fork and gets its own ledger.
    """

    def __init__(self) -> None:
        self.uses: list[Use] = []
        self.lines: LineIndex = make_line_index()
        self._files: dict[str, _FileHistory] = {}
        self._written: list[tuple[int, str]] = []  # ordinal and path
        self._barriers: list[int] = []
        self._moves: list[int] = []  # shell commands that change the folder
        self._writes: list[int] = []  # exchanges that may have written anything
        self._texts: dict[int, list[int]] = {}  # hash of a result's text -> its ordinals
        self._calls: dict[tuple[str, str], list[int]] = {}
        self._outcomes: dict[tuple[str, str, str], list[CallStatus]] = {}
        self._lock = Lock()
        self.extensions: dict[str, Any] = {}  # append-only data of other modules

    def extend(
        self,
        at: int,
        *,
        exchanges: Sequence[Exchange],
        parts: Sequence[Part],
        tools: Tools,
        definitions: Mapping[str, Any],
    ) -> bool:
        """Add the exchanges from number `at` on; False if others were added already."""
        with self._lock:
            if at != len(self.uses):
                return False
            on_time = list(_drop_late_results(exchanges, parts))
            for exchange in on_time:
                call = parts[exchange.call]
                use = tools.use_of(call.name, call.text, definitions.get(call.name))
                result = None if exchange.result is None else parts[exchange.result]
                self._note(exchange.ordinal, call, use, result)
            self._note_lines(on_time, parts)
            return True

    def _note_lines(self, exchanges: Sequence[Exchange], parts: Sequence[Part]) -> None:
        """Index the lines of written text and of whole results, in history order."""
        wrote = [x.call for x in exchanges if self.uses[x.ordinal].kind == "write"]
        results = [x.result for x in exchanges if x.result is not None]
        self.lines.extend(
            (position, parts[position])
            for position in sorted((*wrote, *results))
            if find_marker(parts[position].text) is None  # else nothing may depend on it
        )

    def _note(self, ordinal: int, call: Part, use: Use, result: Part | None) -> None:
        self.uses.append(use)
        if use.can_write:
            self._writes.append(ordinal)
        if use.barrier:
            self._barriers.append(ordinal)
        if use.in_shell and _FOLDER_CHANGES.search(call.text) is not None:
            self._moves.append(ordinal)
        for span in use.reads:
            self._file(span.path).add(FileEvent(ordinal, span, False))
        for span in use.writes:
            self._note_write(ordinal, span, use.replaces)
        _append(self._calls, (call.name, use.key), ordinal)
        if result is not None:
            text = strip_advice(result.text)
            if len(text) >= MIN_TEXT_CHARS:
                _append(self._texts, text_hash(text), ordinal)
            outcome = CallStatus(ordinal, is_failed_call(text, result.error, use.outcome_kind))
            _append(self._outcomes, _operation_key(use), outcome)

    def _note_write(self, ordinal: int, span: Span, replaces: bool) -> None:
        self._file(span.path).add(FileEvent(ordinal, span, True, replaces))
        self._written.append((ordinal, span.path))

    def _file(self, path: str) -> _FileHistory:
        known = self._files.get(path)
        if known is None:
            known = self._files[path] = _FileHistory()
        return known

    def last_write(self, until: int) -> int | None:
        """The last exchange before `until` that writes a named file."""
        at = bisect_left(self._written, until, key=_first)
        return self._written[at - 1][0] if at else None

    def events(self, path: str, until: int) -> Sequence[FileEvent]:
        """All accesses to exactly this path before exchange `until`, in order."""
        events = self._files.get(path, _NO_HISTORY).events
        return ListPrefix(events, bisect_left(events, until, key=_ordinal))

    def latest(self, path: str, until: int, limit: int) -> Sequence[FileEvent]:
        """The last accesses to exactly this path before exchange `until`, newest first."""
        return self.events(path, until)[-limit:][::-1]

    def count_events(self, path: str, after: int, until: int) -> int:
        """The number of accesses to exactly this path between two exchanges."""
        events = self._files.get(path, _NO_HISTORY).events
        start = bisect_right(events, after, key=_ordinal)
        return max(0, bisect_left(events, until, key=_ordinal) - start)

    def is_read(self, path: str, after: int, until: int) -> bool:
        """Check whether an exchange in between reads exactly this path, or a part of it."""
        return _has_any_between(self._files.get(path, _NO_HISTORY).reads, after, until)

    def is_read_again(self, ordinal: int, span: Span, until: int) -> bool:
        """Check whether one read after that of an exchange, before `until`, covers it."""
        return self._files.get(span.path, _NO_HISTORY).is_covered(ordinal, span, until)

    def is_rewritten(self, path: str, after: int, until: int) -> bool:
        """Check whether an exchange in between writes all of exactly this path."""
        return _has_any_between(self._files.get(path, _NO_HISTORY).rewrites, after, until)

    def last_write_of(self, path: str, until: int) -> int:
        """The last exchange before `until` that writes exactly this path; -1: none does."""
        writes = self._files.get(path, _NO_HISTORY).writes
        at = bisect_left(writes, until)
        return writes[at - 1] if at else -1

    def is_written_before(self, path: str, until: int) -> bool:
        """Check whether an exchange before `until` writes exactly this path."""
        return self.last_write_of(path, until) >= 0

    def is_same_path(self, path: str, one: int, later: int) -> bool:
        """Check whether a path names one file for both calls; some shells keep their folder."""
        shell = self.uses[one].in_shell or self.uses[later].in_shell
        return not shell or is_absolute(path) or not _has_any_between(self._moves, one - 1, later)

    def can_be_written(self, path: str, after: int, until: int) -> bool:
        """Check whether a file may have changed between exchange `after` and `until`.

        A write to `a.py` counts for every path with that suffix: its base folder is unknown.
        """
        if _has_any_between(self._barriers, after, until):
            return True
        if self.last_write_of(path, until) > after:
            return True
        start = bisect_right(self._written, after, key=_first)
        end = bisect_left(self._written, until, key=_first)
        if end - start > _MAX_SCANNED_WRITES:
            return True
        return any(_can_change(wrote, path) for _, wrote in self._written[start:end])

    def has_any_write(self, after: int, until: int) -> bool:
        """Check whether any exchange in between may have written something."""
        return _has_any_between(self._writes, after, until)

    def copies(self, text: str, until: int) -> Sequence[int]:
        """The exchanges before `until` whose results probably have exactly this text."""
        found = self._texts.get(text_hash(strip_advice(text)), [])
        return ListPrefix(found, bisect_left(found, until))

    def repeats(self, name: str, use: Use, until: int) -> Sequence[int]:
        """The exchanges before `until` that are the same call."""
        found = self._calls.get((name, use.key), [])
        return ListPrefix(found, bisect_left(found, until))

    def outcomes(self, use: Use, until: int) -> Sequence[CallStatus]:
        """The outcomes of calls of this operation on this target before `until`, in order."""
        found = self._outcomes.get(_operation_key(use), [])
        return ListPrefix(found, bisect_left(found, until, key=_ordinal))

    def last_outcome(self, use: Use, until: int) -> CallStatus | None:
        """The last of these outcomes."""
        found = self._outcomes.get(_operation_key(use))
        if not found or found[0].ordinal >= until:
            return None
        if found[-1].ordinal < until:
            return found[-1]
        return found[bisect_left(found, until, key=_ordinal) - 1]


def _append(lists: dict[_K, list[_T]], key: _K, value: _T) -> None:
    """Append to the list of a key; most stay at one value, for which no room is left."""
    known = lists.get(key)
    if known is None:
        lists[key] = [value]
    else:
        known.append(value)


_NO_HISTORY: Final = _FileHistory()  # of a path without accesses


def _drop_late_results(exchanges: Sequence[Exchange], parts: Sequence[Part]) -> Iterator[Exchange]:
    """The exchanges, each with its result only if that came before the next model output.

    A ledger extended step by step has not seen later results. On a fork, where all are added at
    once, it must be the same.
    """
    if not exchanges:
        return
    turn, turns = 0, [0]
    first = exchanges[0].call
    for at in range(first + 1, len(parts)):
        before = parts[at - 1]
        turn += parts[at].speaker == "model" and before.speaker != "model" and not before.server
        turns.append(turn)
    for one in exchanges:
        late = one.result is not None and turns[one.result - first] != turns[one.call - first]
        yield replace(one, result=None) if late else one


def _operation_key(use: Use) -> tuple[str, str, str]:
    """The key shared by calls whose outcomes concern one another."""
    return use.kind, use.operation, use.key if use.target is None else use.target


def text_hash(text: str) -> int:
    """A fast hash of a text; equal hashes need a comparison of the texts."""
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))


def _ordinal(event: FileEvent | CallStatus) -> int:
    return event.ordinal


def _first(pair: tuple[int, str]) -> int:
    return pair[0]


def _has_any_between(ordinals: Sequence[int], after: int, until: int) -> bool:
    at = bisect_right(ordinals, after)
    return at < len(ordinals) and ordinals[at] < until


def _can_change(wrote: str, path: str) -> bool:
    """Check whether a write may change a file; relative paths may have different bases."""
    return (
        can_reach(wrote, path)
        or f"/{wrote}".endswith(f"/{path}")
        or f"/{path}".endswith(f"/{wrote}")
    )
