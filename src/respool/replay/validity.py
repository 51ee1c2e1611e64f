"""Which requests a provider would reject, judged step by step so that old steps cost nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..check.formats import RULES
from ..check.problem import Problem
from ..check.rules import Seen, Step
from ..codecs.codec import Codec
from .reading import Row

MOST_MARKS = 2  # beside the two that clients set in their head
_EVERY = 32  # steps between two places from which what was seen can be told again
_MOST_KEPT = 64  # such places; a longer session has them farther apart


class _Span(NamedTuple):
    """Where a step stands among the rows, and the shape of all that is before it."""

    start: int
    split: int
    end: int
    before: int
    after: int


class Judge:
    """Judges the requests of one session, each of which mostly repeats the one before it.

    What a step's rules look back at are roles, kinds and ids. So a step's verdict holds as long as
    its own messages and the shape of all before it are the same.
    """

    def __init__(self, codec: Codec) -> None:
        self._rules = RULES[codec.name]
        self._verdicts: dict[tuple[int, ...], str | None] = {}
        self._spans: list[_Span] = []
        self._bad: list[tuple[int, str]] = []  # the steps that are wrong, by number
        self._seen = Seen()
        self._seen_shape = 0
        self._kept: list[tuple[int, int, Seen]] = []  # step, the shape before it, what was seen
        self._every = _EVERY
        self._media = False  # whether any row so far held some

    def problem(self, rows: Sequence[Row], kept: int, marks: int = 0) -> str | None:
        """The first thing wrong with a request whose first rows are as they were, or None."""
        self._forget(kept)
        at = self._spans[-1].end if self._spans else 0
        while at < len(rows):
            span = self._next(rows, at)
            verdict = self._verdict(rows, span)
            if verdict is not None:
                self._bad.append((len(self._spans), verdict))
            self._spans.append(span)
            at = span.end
        return self._bad[0][1] if self._bad else self._around(rows, marks)

    def _forget(self, kept: int) -> None:
        """Drop the steps that may have changed: all that end at the last kept row or behind it."""
        while self._spans and self._spans[-1].end >= kept:
            self._spans.pop()
        while self._bad and self._bad[-1][0] >= len(self._spans):
            self._bad.pop()

    def _next(self, rows: Sequence[Row], start: int) -> _Span:
        split = start
        while split < len(rows) and rows[split].made:
            split += 1
        end = split
        while end < len(rows) and not rows[end].made:
            end += 1
        before = after = self._spans[-1].after if self._spans else 0
        for row in rows[start:end]:
            after = hash((after, row.shape))
            self._media = self._media or row.media
        return _Span(start, split, end, before, after)

    def _verdict(self, rows: Sequence[Row], span: _Span) -> str | None:
        key = (span.before, *(row.key for row in rows[span.start : span.end]))
        if key not in self._verdicts:
            self._look_back(rows, span.before)
            found = self._rules.step(_step(rows, span), self._seen, None)
            self._verdicts[key] = _first(found)
            self._advance(rows, span, len(self._spans))
        return self._verdicts[key]

    def _look_back(self, rows: Sequence[Row], shape: int) -> None:
        """See what the steps before this one leave behind, unless that is what was seen last."""
        if self._seen_shape == shape:
            return
        first, self._seen_shape, seen = self._nearest()
        self._seen = seen.copy()
        for number in range(first, len(self._spans)):
            self._advance(rows, self._spans[number], number)

    def _nearest(self) -> tuple[int, int, Seen]:
        """The last place kept that all steps so far run through."""
        while self._kept:
            number, shape, _ = self._kept[-1]
            if number <= len(self._spans) and self._spans[number - 1].after == shape:
                return self._kept[-1]
            self._kept.pop()
        return 0, 0, Seen()

    def _advance(self, rows: Sequence[Row], span: _Span, number: int) -> None:
        self._rules.advance(_step(rows, span), self._seen)
        self._seen_shape = span.after
        last = self._kept[-1][0] if self._kept else 0
        if number + 1 >= last + self._every:
            self._kept.append((number + 1, span.after, self._seen.copy()))
            if len(self._kept) > _MOST_KEPT:
                self._kept = self._kept[1::2]
                self._every *= 2

    def _around(self, rows: Sequence[Row], marks: int) -> str | None:
        """What is wrong with the end of the history, or with marks and images over all of it."""
        self._look_back(rows, self._spans[-1].after if self._spans else 0)
        found = self._rules.end(self._seen, len(rows), lambda at: rows[at].message, None)
        if marks > MOST_MARKS:
            return "A21: more than four cache marks with the head's two"
        held = [row.message for row in rows if row.media] if self._media else []
        return _first(found) or (_first(self._rules.whole(held, None)) if held else None)


def _step(rows: Sequence[Row], span: _Span) -> Step:
    messages = [row.message for row in rows[span.start : span.end]]
    return Step(messages, span.start, span.split - span.start)


def _first(problems: Sequence[Problem]) -> str | None:
    """The first problem for which a request is rejected."""
    for problem in problems:
        if problem.severity == "error":
            return f"{problem.code}: {problem.message}"
    return None
