"""A session under a policy, request by request: the bill, what was lost, what broke."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from itertools import compress, count
from operator import is_not

from msgspec import Struct

from ..codecs.json_tree import JSON
from .caches import Billed, Caches, Prompt
from .reading import Row
from .recording import Recording
from .result import Bill, Break, Cut, Lost, Point, Score
from .senders import Sender
from .validity import Judge

# What asking again brings in, and what it costs to say.
REFETCH_IN, REFETCH_OUT = 1_500, 150
MOST_REFETCHED = 3  # sources that a lost turn asks for again
_MOST_LOST = 50  # needs of a lost turn whose sources are looked for
_SHOWN, _WIDTH = 5, 80  # how many losses of a turn are told, and how much of each


def score(recording: Recording, sender: Sender, name: str) -> Score:
    """The score of one policy on one session."""
    run = _Run(recording, sender)
    for request in range(len(recording.cuts)):
        run.send(request)
    return run.score(name)


class _Charged(Struct):
    """What the requests so far came to."""

    read: int = 0
    write: int = 0
    write_1h: int = 0
    plain: int = 0

    def add(self, billed: Billed) -> None:
        self.read += billed.read
        self.write += billed.write
        self.write_1h += billed.write_1h
        self.plain += billed.plain


class _Run:
    """One policy on its way through one session."""

    def __init__(self, recording: Recording, sender: Sender) -> None:
        self._recording, self._sender = recording, sender
        conditions = recording.conditions
        self._terms, self._head, self._window = (
            conditions.terms, conditions.head, conditions.window,
        )  # fmt: skip
        self._prompt = Prompt(conditions.head)
        self._caches = Caches(conditions.terms, conditions.lifetime, conditions.warm)
        self._checker = Judge(recording.codec)
        self._rows: list[Row] = []
        self._messages: Sequence[JSON] = ()
        self._need_counts: Counter[int] = Counter()  # need -> rows of the projection that carry it
        self._charged = _Charged()
        self._money: float | None = None
        self._refetch_total = 0.0
        self._kept_needs = [0, 0]  # atoms, lines
        self._peak = 0
        self._full_at: int | None = None
        self._seconds = self._max_seconds = 0.0
        self._points: list[Point] = []
        self._breaks: list[Break] = []
        self._losses: list[Lost] = []
        self._invalid: list[tuple[int, str]] = []

    def send(self, request: int) -> None:
        """One request: what goes out, what it costs, what the next turn misses in it."""
        started = time.perf_counter()
        messages = self._sender.send(request)
        took = time.perf_counter() - started
        self._seconds += took
        self._max_seconds = max(self._max_seconds, took)
        same = _same(self._messages, messages)
        rows = self._rows[:same] + [self._recording.row(message) for message in messages[same:]]
        kept = _alike(self._rows, rows, same)
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
            self._breaks.append(Break(request, self._sender.change_reason(same_rows), gone))

    def _update_needs(self, rows: Sequence[Row], same_rows: int) -> None:
        """Count anew what the rows carry, where they changed."""
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
        self._points.append(Point(tokens, billed.read, round(cost, 1)))

    def _record_losses(self, request: int) -> None:
        """What the next turn needed and no longer had, and what asking again would cost."""
        needed, carried = self._recording.turn_needs[request], self._need_counts
        lost = [need for need in needed.atoms if carried[need] <= 0]
        self._kept_needs[0] += len(needed.atoms) - len(lost)
        lines = [need for need in needed.lines if carried[need] <= 0]
        self._kept_needs[1] += len(needed.lines) - len(lines)
        lost += lines
        if lost:
            sources = self._lost_sources(lost, self._recording.cuts[request])
            self._losses.append(self._lost_turn(request, lost, sources))
            asked = min(max(len(sources), 1), MOST_REFETCHED)
            self._refetch_total += asked * self._refetch_cost(len(self._recording.cuts) - request)

    def _lost_sources(self, lost: Sequence[int], cut: int) -> list[int]:
        """The sources in which these needs stood last."""
        found = (self._recording.newest_source(need, cut) for need in lost[:_MOST_LOST])
        return sorted({source for source in found if source is not None})

    def _lost_turn(self, request: int, lost: Sequence[int], sources: Sequence[int]) -> Lost:
        needs = self._recording.finder.needs
        told = tuple(needs[need][:_WIDTH] for need in lost[:_SHOWN])
        places = tuple(self._recording.describe_source(source) for source in sources[:_SHOWN])
        return Lost(request, told, len(lost), places)

    def _refetch_cost(self, left: int) -> float:
        """One more request, its answer, and the answer carried from then on."""
        terms, write = self._terms, self._recording.conditions.write
        again = terms.read * self._prompt.tokens + write * REFETCH_IN
        return again + terms.output * REFETCH_OUT + terms.read * REFETCH_IN * left

    def score(self, name: str) -> Score:
        """All of it together."""
        needed = self._recording.turn_needs
        bill = self._total_bill()
        return Score(
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
            cuts=_cuts(self._sender),
            losses=tuple(self._losses),
            seconds=self._seconds,
            worst=self._max_seconds,
            points=tuple(self._points),
            failures=tuple(self._sender.failures()),
            again=self._sender.refetch_counts(),
        )

    def _total_bill(self) -> Bill:
        charged = self._charged
        billed = Billed(charged.read, charged.write, charged.write_1h, charged.plain)
        cost = billed.cost(self._terms)
        return Bill(billed.read, billed.write, billed.write_1h, billed.plain, cost, self._money)


def _same(before: Sequence[JSON], after: Sequence[JSON]) -> int:
    """How many messages are the very objects of the request before."""
    changed = compress(count(), map(is_not, before, after))
    return next(changed, min(len(before), len(after)))


def _alike(before: Sequence[Row], after: Sequence[Row], same: int) -> int:
    """How many rows two requests begin with in common, marks aside; the first `same` are."""
    least = min(len(before), len(after))
    for at in range(same, least):
        if before[at] is not after[at] and before[at].key != after[at].key:
            return at
    return least


def _cuts(sender: Sender) -> tuple[Cut, ...]:
    """The edits in force at the end, by reason and tool, the largest first."""
    parts: Counter[tuple[str, str]] = Counter()
    saved: Counter[tuple[str, str]] = Counter()
    for edit in sender.active_edits():
        parts[edit.reason, edit.tool] += 1
        saved[edit.reason, edit.tool] += edit.saved
    return tuple(
        Cut(reason, tool, parts[reason, tool], tokens)
        for (reason, tool), tokens in saved.most_common()
    )
