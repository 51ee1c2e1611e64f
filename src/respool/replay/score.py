"""Score of a session under a policy: bill, losses, prefix breaks, invalid requests."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from itertools import compress, count
from operator import is_not
from typing import NamedTuple

from msgspec import Struct

from ..providers.base import Codec, Problem, RuleState, Step
from ..providers.registry import PROVIDERS
from ..wire.json import JSON
from .policies import Sender
from .prompt_cache import BilledTokens, MessageRow, ModelCaches, Prompt
from .recording import Recording
from .result import CutTotal, LostTurn, PolicyScore, PrefixBreak, ReplayBill, RequestPoint

MAX_BREAKPOINTS = 2  # besides the two that clients set in the head
_CHECKPOINT_INTERVAL = 32  # steps between two saved states
_MAX_CHECKPOINTS = 64  # such places; a longer session has them farther apart

# Tokens of a refetched result, and of the call.
REFETCH_INPUT_TOKENS, REFETCH_OUTPUT_TOKENS = 1_500, 150
MAX_REFETCHED = 3  # sources that a lost turn asks for again
_MAX_LOST_NEEDS = 50  # needs of a lost turn whose sources are searched
_MAX_LOSSES_SHOWN, _MAX_LOSS_CHARS = (
    5,
    80,
)  # losses of a turn that are listed, and characters of each


class _StepSpan(NamedTuple):
    """Position of a step among the rows, and the shape of all rows before it."""

    start: int
    split: int
    end: int
    before: int
    after: int


class ValidityChecker:
    """Judges the requests of one session, each of which mostly repeats the one before it.

    A step's rules depend on earlier roles, kinds and ids only. So a step's verdict holds as long as
    its own messages and the shape of all before it are the same.
    """

    def __init__(self, codec: Codec) -> None:
        self._rules = PROVIDERS[codec.name].rules
        self._verdicts: dict[tuple[int, ...], str | None] = {}
        self._spans: list[_StepSpan] = []
        self._invalid_steps: list[tuple[int, str]] = []  # the steps that are wrong, by number
        self._seen = RuleState()
        self._seen_shape = 0
        self._checkpoints: list[
            tuple[int, int, RuleState]
        ] = []  # step, the shape before it, the saved state
        self._interval = _CHECKPOINT_INTERVAL
        self._has_media = False  # whether any row so far held some

    def first_problem(
        self, rows: Sequence[MessageRow], same_rows: int, breakpoints: int = 0
    ) -> str | None:
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
        return (
            self._invalid_steps[0][1]
            if self._invalid_steps
            else self._check_whole(rows, breakpoints)
        )

    def _drop_changed(self, same_rows: int) -> None:
        """Drop the steps that may have changed: all that end at or after the last kept row."""
        while self._spans and self._spans[-1].end >= same_rows:
            self._spans.pop()
        while self._invalid_steps and self._invalid_steps[-1][0] >= len(self._spans):
            self._invalid_steps.pop()

    def _next_span(self, rows: Sequence[MessageRow], start: int) -> _StepSpan:
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
        return _StepSpan(start=start, split=split, end=end, before=before, after=after)

    def _verdict(self, rows: Sequence[MessageRow], span: _StepSpan) -> str | None:
        key = (span.before, *(row.key for row in rows[span.start : span.end]))
        if key not in self._verdicts:
            self._restore_seen(rows, span.before)
            found = self._rules.check_step(_rule_step(rows, span), self._seen, None)
            self._verdicts[key] = _first_error(found)
            self._advance(rows, span, len(self._spans))
        return self._verdicts[key]

    def _restore_seen(self, rows: Sequence[MessageRow], shape: int) -> None:
        """Restore the state before this step, unless it is the current one."""
        if self._seen_shape == shape:
            return
        first, self._seen_shape, seen = self._nearest_checkpoint()
        self._seen = seen.copy()
        for number in range(first, len(self._spans)):
            self._advance(rows, self._spans[number], number)

    def _nearest_checkpoint(self) -> tuple[int, int, RuleState]:
        """The last place kept that all steps so far run through."""
        while self._checkpoints:
            number, shape, _ = self._checkpoints[-1]
            if number <= len(self._spans) and self._spans[number - 1].after == shape:
                return self._checkpoints[-1]
            self._checkpoints.pop()
        return 0, 0, RuleState()

    def _advance(self, rows: Sequence[MessageRow], span: _StepSpan, number: int) -> None:
        self._rules.advance(_rule_step(rows, span), self._seen)
        self._seen_shape = span.after
        last = self._checkpoints[-1][0] if self._checkpoints else 0
        if number + 1 >= last + self._interval:
            self._checkpoints.append((number + 1, span.after, self._seen.copy()))
            if len(self._checkpoints) > _MAX_CHECKPOINTS:
                self._checkpoints = self._checkpoints[1::2]
                self._interval *= 2

    def _check_whole(self, rows: Sequence[MessageRow], breakpoints: int) -> str | None:
        """Check the end of the history, and breakpoints and images over all of it."""
        self._restore_seen(rows, self._spans[-1].after if self._spans else 0)
        found = self._rules.check_end(self._seen, len(rows), lambda at: rows[at].message, None)
        if breakpoints > MAX_BREAKPOINTS:
            return "A21: more than four cache breakpoints with the head's two"
        held = [row.message for row in rows if row.has_media] if self._has_media else []
        return _first_error(found) or (
            _first_error(self._rules.check_fields(held, None)) if held else None
        )


def _rule_step(rows: Sequence[MessageRow], span: _StepSpan) -> Step:
    messages = [row.message for row in rows[span.start : span.end]]
    return Step(messages, span.start, span.split - span.start)


def _first_error(problems: Sequence[Problem]) -> str | None:
    """The first problem for which a request is rejected."""
    for problem in problems:
        if problem.severity == "error":
            return f"{problem.code}: {problem.message}"
    return None


def score_policy(recording: Recording, sender: Sender, name: str) -> PolicyScore:
    """The score of one policy on one session."""
    run = PolicyRun(recording, sender)
    for request in range(len(recording.cuts)):
        run.send(request)
    return run.score(name)


class _ChargedTokens(Struct):
    """Running totals of the requests."""

    read: int = 0
    write: int = 0
    write_1h: int = 0
    plain: int = 0

    def add(self, billed: BilledTokens) -> None:
        self.read += billed.read
        self.write += billed.write
        self.write_1h += billed.write_1h
        self.plain += billed.plain


class PolicyRun:
    """One policy on its way through one session."""

    def __init__(self, recording: Recording, sender: Sender) -> None:
        self._recording, self._sender = recording, sender
        conditions = recording.conditions
        self._terms, self._head, self._window = (
            conditions.terms,
            conditions.head,
            conditions.window,
        )
        self._prompt = Prompt(conditions.head)
        self._caches = ModelCaches(conditions.terms, conditions.lifetime, conditions.warm)
        self._checker = ValidityChecker(recording.codec)
        self._rows: list[MessageRow] = []
        self._messages: Sequence[JSON] = ()
        self._need_counts: Counter[int] = Counter()  # need -> rows of the projection that carry it
        self._charged = _ChargedTokens()
        self._money: float | None = None
        self._refetch_total = 0.0
        self._kept_needs = [0, 0]  # atoms, lines
        self._peak = 0
        self._full_at: int | None = None
        self._seconds = self._max_seconds = 0.0
        self._points: list[RequestPoint] = []
        self._breaks: list[PrefixBreak] = []
        self._losses: list[LostTurn] = []
        self._invalid: list[tuple[int, str]] = []

    def send(self, request: int) -> None:
        """Send one request: bill it and record what the next turn lacks."""
        started = time.perf_counter()
        messages = self._sender.send(request)
        took = time.perf_counter() - started
        self._seconds += took
        self._max_seconds = max(self._max_seconds, took)
        same = _identical_messages(self._messages, messages)
        rows = self._rows[:same] + [self._recording.row(message) for message in messages[same:]]
        kept = _common_rows(self._rows, rows, same)
        self._record_break(request, kept)
        self._update_needs(rows, kept)
        self._prompt.update(rows, kept, same)
        self._rows, self._messages = rows, messages
        self._bill(request)
        self._record_losses(request)
        problem = self._checker.first_problem(rows, kept, len(self._prompt.breakpoints))
        if problem is not None:
            self._invalid.append((request, problem))

    def _record_break(self, request: int, same_rows: int) -> None:
        if same_rows < len(self._rows):
            gone = sum(row.tokens for row in self._rows[same_rows:])
            self._breaks.append(PrefixBreak(request, self._sender.change_reason(same_rows), gone))

    def _update_needs(self, rows: Sequence[MessageRow], same_rows: int) -> None:
        """Update the counts of needs for the rows that changed."""
        gone, come = self._rows[same_rows:], rows[same_rows:]
        if gone:
            stay = {id(row) for row in gone} & {id(row) for row in come}
            gone = [row for row in gone if id(row) not in stay]
            come = [row for row in come if id(row) not in stay]
        for row in gone:
            self._need_counts.subtract(self._recording.needs_in_row(row))
        for row in come:
            self._need_counts.update(self._recording.needs_in_row(row))

    def _bill(self, request: int) -> None:
        sent = self._recording.session.requests[request]
        billed = self._caches.bill(self._prompt, sent.time, sent.model)
        self._charged.add(billed)
        cost = billed.cost(self._terms)
        money = self._recording.conditions.dollars(cost, sent.model)
        self._money = self._money if money is None else (self._money or 0.0) + money
        tokens = self._prompt.tokens
        self._peak = max(self._peak, tokens - self._head)
        if self._full_at is None and self._window is not None and tokens > self._window:
            self._full_at = request
        self._points.append(RequestPoint(tokens, billed.read, round(cost, 1)))

    def _record_losses(self, request: int) -> None:
        """Record what the next turn lacks, and the cost of refetching it."""
        needed, carried = self._recording.turn_needs[request], self._need_counts
        lost = [need for need in needed.atoms if carried[need] <= 0]
        self._kept_needs[0] += len(needed.atoms) - len(lost)
        lines = [need for need in needed.lines if carried[need] <= 0]
        self._kept_needs[1] += len(needed.lines) - len(lines)
        lost += lines
        if lost:
            sources = self._lost_sources(lost, self._recording.cuts[request])
            self._losses.append(self._lost_turn(request, lost, sources))
            asked = min(max(len(sources), 1), MAX_REFETCHED)
            self._refetch_total += asked * self._refetch_cost(len(self._recording.cuts) - request)

    def _lost_sources(self, lost: Sequence[int], cut: int) -> list[int]:
        """Return the newest sources of these needs."""
        found = (self._recording.newest_source(need, cut) for need in lost[:_MAX_LOST_NEEDS])
        return sorted({source for source in found if source is not None})

    def _lost_turn(self, request: int, lost: Sequence[int], sources: Sequence[int]) -> LostTurn:
        needs = self._recording.finder.needs
        shown = tuple(needs[need][:_MAX_LOSS_CHARS] for need in lost[:_MAX_LOSSES_SHOWN])
        places = tuple(
            self._recording.describe_source(source) for source in sources[:_MAX_LOSSES_SHOWN]
        )
        return LostTurn(request, shown, len(lost), places)

    def _refetch_cost(self, left: int) -> float:
        """One more request, its answer, and the answer carried from then on."""
        terms, write = self._terms, self._recording.conditions.write
        again = terms.read * self._prompt.tokens + write * REFETCH_INPUT_TOKENS
        return (
            again + terms.output * REFETCH_OUTPUT_TOKENS + terms.read * REFETCH_INPUT_TOKENS * left
        )

    def score(self, name: str) -> PolicyScore:
        """All of it together."""
        needed = self._recording.turn_needs
        bill = self._total_bill()
        return PolicyScore(
            policy=name,
            requests=len(self._points),
            bill=bill,
            all_in=bill.cost + self._refetch_total,
            lost_turns=len(self._losses),
            atoms=sum(len(one.atoms) for one in needed),
            atoms_kept=self._kept_needs[0],
            lines=sum(len(one.lines) for one in needed),
            lines_kept=self._kept_needs[1],
            peak=self._peak,
            full_at=self._full_at,
            invalid=tuple(self._invalid),
            breaks=tuple(self._breaks),
            cuts=_cut_totals(self._sender),
            losses=tuple(self._losses),
            seconds=self._seconds,
            worst=self._max_seconds,
            points=tuple(self._points),
            failures=tuple(self._sender.failures()),
            again=self._sender.refetch_counts(),
        )

    def _total_bill(self) -> ReplayBill:
        charged = self._charged
        billed = BilledTokens(charged.read, charged.write, charged.write_1h, charged.plain)
        cost = billed.cost(self._terms)
        return ReplayBill(
            read=billed.read,
            write=billed.write,
            write_1h=billed.write_1h,
            plain=billed.plain,
            cost=cost,
            money=self._money,
        )


def _identical_messages(before: Sequence[JSON], after: Sequence[JSON]) -> int:
    """Return the number of leading messages that are the previous request's objects."""
    changed = compress(count(), map(is_not, before, after))
    return next(changed, min(len(before), len(after)))


def _common_rows(before: Sequence[MessageRow], after: Sequence[MessageRow], same: int) -> int:
    """Return the length of the common prefix of two requests, cache breakpoints aside."""
    least = min(len(before), len(after))
    for at in range(same, least):
        if before[at] is not after[at] and before[at].key != after[at].key:
            return at
    return least


def _cut_totals(sender: Sender) -> tuple[CutTotal, ...]:
    """The edits in force at the end, by reason and tool, the largest first."""
    parts: Counter[tuple[str, str]] = Counter()
    saved: Counter[tuple[str, str]] = Counter()
    for edit in sender.active_edits():
        parts[edit.reason, edit.tool] += 1
        saved[edit.reason, edit.tool] += edit.saved
    return tuple(
        CutTotal(reason, tool, parts[reason, tool], tokens)
        for (reason, tool), tokens in saved.most_common()
    )
