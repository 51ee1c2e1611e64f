"""Ledger of the effects of calls, by file, by text and by call."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, Final

import xxhash
from msgspec import Struct
from msgspec.structs import replace

from ..markers import find_marker, strip_advice
from ..tools import Tools
from ..tools.paths import can_reach, is_absolute
from ..tools.use import Span, Use
from ..transcript import Exchange, Part
from .failures import is_failed_call
from .line_index import LineIndex

_MAX_SCANNED_WRITES = 2_000  # writes searched one by one; beyond that, any file may be written
MIN_TEXT_CHARS = 64  # characters; shorter results are not indexed for copies

# Matches inside JSON arguments.
_FOLDER_CHANGES: Final = re.compile(r"(?:[;&|({\"']|\\n)\s*(?:cd|pushd|popd)\b")


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


class Ledger:
    """Append-only ledger, shared by all states of a conversation; readers pass a limit.

    Only the state at its end may append. Any other state is on a fork and gets its own ledger.
    """

    def __init__(self) -> None:
        self.uses: list[Use] = []
        self.lines = LineIndex()
        self._paths: dict[str, list[FileEvent]] = {}
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
            self._paths.setdefault(span.path, []).append(FileEvent(ordinal, span, False))
        for span in use.writes:
            self._note_write(ordinal, span, use.replaces)
        self._calls.setdefault((call.name, use.key), []).append(ordinal)
        if result is not None:
            text = strip_advice(result.text)
            if len(text) >= MIN_TEXT_CHARS:
                self._texts.setdefault(text_hash(text), []).append(ordinal)
            outcome = CallStatus(ordinal, is_failed_call(text, result.error, use.outcome_kind))
            self._outcomes.setdefault(_operation_key(use), []).append(outcome)

    def _note_write(self, ordinal: int, span: Span, replaces: bool) -> None:
        self._paths.setdefault(span.path, []).append(FileEvent(ordinal, span, True, replaces))
        self._written.append((ordinal, span.path))

    def last_write(self, until: int) -> int | None:
        """The last exchange before `until` that writes a named file."""
        at = bisect_left(self._written, until, key=_first)
        return self._written[at - 1][0] if at else None

    def events(self, path: str, until: int) -> Sequence[FileEvent]:
        """All accesses to exactly this path before exchange `until`, in order."""
        events = self._paths.get(path, [])
        return events[: bisect_left(events, until, key=_ordinal)]

    def latest(self, path: str, until: int, limit: int) -> Sequence[FileEvent]:
        """The last accesses to exactly this path before exchange `until`, newest first."""
        events = self._paths.get(path, [])
        end = bisect_left(events, until, key=_ordinal)
        return events[max(0, end - limit) : end][::-1]

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
        return found[: bisect_left(found, until)]

    def repeats(self, name: str, use: Use, until: int) -> Sequence[int]:
        """The exchanges before `until` that are the same call."""
        found = self._calls.get((name, use.key), [])
        return found[: bisect_left(found, until)]

    def outcomes(self, use: Use, until: int) -> Sequence[CallStatus]:
        """The outcomes of calls of this operation on this target before `until`, in order."""
        found = self._outcomes.get(_operation_key(use), [])
        return found[: bisect_left(found, until, key=_ordinal)]


def _drop_late_results(exchanges: Sequence[Exchange], parts: Sequence[Part]) -> Iterator[Exchange]:
    """The exchanges, each with its result only if that came before the next model output.

    A ledger extended step by step has not seen later results. On a fork, where all are added at
    once, it must be the same.
    """
    turn, turns = 0, [0]
    first = exchanges[0].call if exchanges else 0
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
