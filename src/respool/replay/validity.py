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
        self._invalid_steps: list[tuple[int, str]] = []  # the steps that are wrong, by number
        self._seen = Seen()
        self._seen_shape = 0
        self._checkpoints: list[tuple[int, int, Seen]] = []  # step, the shape before it, what was seen
        self._interval = _EVERY
        self._has_media = False  # whether any row so far held some

    def first_problem(self, rows: Sequence[Row], same_rows: int, breakpoints: int = 0) -> str | None:
        """The first thing wrong with a request whose first rows are as they were, or None."""
        self._drop_changed(same_rows)
        at = self._spans[-1].end if self._spans else 0
        while at < len(rows):
            span = self._next_span(rows, at)
            verdict = self._verdict(rows, span)
            if verdict is not None:
                self._invalid_steps.append((len(self._spans), verdict))
            self._spans.append(span)
            at = span.end
        return self._invalid_steps[0][1] if self._invalid_steps else self._check_whole(rows, breakpoints)

    def _drop_changed(self, same_rows: int) -> None:
        """Drop the steps that may have changed: all that end at the last kept row or behind it."""
        while self._spans and self._spans[-1].end >= same_rows:
            self._spans.pop()
        while self._invalid_steps and self._invalid_steps[-1][0] >= len(self._spans):
            self._invalid_steps.pop()

    def _next_span(self, rows: Sequence[Row], start: int) -> _Span:
        split = start
        while split < len(rows) and rows[split].is_model_made:
            split += 1
        end = split
        while end < len(rows) and not rows[end].is_model_made:
            end += 1
        before = after = self._spans[-1].after if self._spans else 0
        for row in rows[start:end]:
            after = hash((after, row.shape))
            self._has_media = self._has_media or row.has_media
        return _Span(start, split, end, before, after)

    def _verdict(self, rows: Sequence[Row], span: _Span) -> str | None:
        key = (span.before, *(row.key for row in rows[span.start : span.end]))
        if key not in self._verdicts:
            self._restore_seen(rows, span.before)
            found = self._rules.check_step(_step(rows, span), self._seen, None)
            self._verdicts[key] = _first(found)
            self._advance(rows, span, len(self._spans))
        return self._verdicts[key]

    def _restore_seen(self, rows: Sequence[Row], shape: int) -> None:
        """See what the steps before this one leave behind, unless that is what was seen last."""
        if self._seen_shape == shape:
            return
        first, self._seen_shape, seen = self._nearest_checkpoint()
        self._seen = seen.copy()
        for number in range(first, len(self._spans)):
            self._advance(rows, self._spans[number], number)

    def _nearest_checkpoint(self) -> tuple[int, int, Seen]:
        """The last place kept that all steps so far run through."""
        while self._checkpoints:
            number, shape, _ = self._checkpoints[-1]
            if number <= len(self._spans) and self._spans[number - 1].after == shape:
                return self._checkpoints[-1]
            self._checkpoints.pop()
        return 0, 0, Seen()

    def _advance(self, rows: Sequence[Row], span: _Span, number: int) -> None:
        self._rules.advance(_step(rows, span), self._seen)
        self._seen_shape = span.after
        last = self._checkpoints[-1][0] if self._checkpoints else 0
        if number + 1 >= last + self._interval:
            self._checkpoints.append((number + 1, span.after, self._seen.copy()))
            if len(self._checkpoints) > _MOST_KEPT:
                self._checkpoints = self._checkpoints[1::2]
                self._interval *= 2

    def _check_whole(self, rows: Sequence[Row], breakpoints: int) -> str | None:
        """What is wrong with the end of the history, or with marks and images over all of it."""
        self._restore_seen(rows, self._spans[-1].after if self._spans else 0)
        found = self._rules.check_end(self._seen, len(rows), lambda at: rows[at].message, None)
        if breakpoints > MOST_MARKS:
            return "A21: more than four cache marks with the head's two"
        held = [row.message for row in rows if row.has_media] if self._has_media else []
        return _first(found) or (_first(self._rules.check_fields(held, None)) if held else None)


def _step(rows: Sequence[Row], span: _Span) -> Step:
    messages = [row.message for row in rows[span.start : span.end]]
    return Step(messages, span.start, span.split - span.start)


def _first(problems: Sequence[Problem]) -> str | None:
    """The first problem for which a request is rejected."""
    for problem in problems:
        if problem.severity == "error":
            return f"{problem.code}: {problem.message}"
    return None
