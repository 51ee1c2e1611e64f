"""Totals over all sessions of a replay: sums, and ratios to no compaction."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from ..history.repeat_rates import add_cells
from ..pricing import Calibration
from ..sessions.session import RecordedSession
from ..store.savings import Saving, describe_saving
from .cache_costs import LONG_REQUESTS, MANY_AGENTS, MANY_PAUSES, add_costs, merge_unused
from .cost_breakdown import merge_breakdowns, total_loops
from .policies import FLOOR, NONE
from .result import (
    CacheCosts,
    CacheTotals,
    CutTotal,
    HeadTools,
    PolicyScore,
    PolicyTotal,
    RefetchCounts,
    Replay,
    ReplayBill,
    SessionResult,
    SkippedSource,
)

_WORSE_RATIO = 1.01  # above it a session counts as worse
_MAX_CUTS = 40


def sum_up(
    sessions: Sequence[SessionResult],
    skipped: Sequence[SkippedSource],
    calibrations: Sequence[Calibration],
    *,
    counter: str,
    policies: Sequence[str],
    version: str,
    duplicates: int = 0,
) -> Replay:
    """Build the result of a whole run."""
    return Replay(
        version=version,
        made=time.time(),
        counter=counter,
        requests=sum(session.requests for session in sessions),
        policies=tuple(policies),
        totals=tuple(_policy_total(sessions, at, policies) for at in range(len(policies))),
        spent=merge_breakdowns(session.spent for session in sessions),
        calibrations=tuple(calibrations),
        sessions=tuple(sessions),
        left=tuple(skipped),
        loops=total_loops(sessions),
        cache=total_cache_costs(sessions),
        duplicates=duplicates,
    )


def _policy_total(
    sessions: Sequence[SessionResult], at: int, policies: Sequence[str]
) -> PolicyTotal:
    """One policy over all sessions."""
    scores = [session.scores[at] for session in sessions]
    base = [session.scores[policies.index(NONE)] for session in sessions]
    all_in = ratio_to_baseline(scores, base, lambda score: score.all_in)
    return PolicyTotal(
        policy=policies[at],
        bill=sum_bills([score.bill for score in scores]),
        bill_ratio=ratio_to_baseline(scores, base, lambda score: score.bill.cost),
        all_in_ratio=all_in,
        captured=_captured_share(sessions, base, all_in, policies),
        lost=_sum_ratio(scores, lambda score: score.lost_turns, lambda score: score.requests, 0.0),
        lost_turns=sum(score.lost_turns for score in scores),
        atoms_recall=_sum_ratio(
            scores, lambda score: score.atoms_kept, lambda score: score.atoms, 1.0
        ),
        lines_recall=_sum_ratio(
            scores, lambda score: score.lines_kept, lambda score: score.lines, 1.0
        ),
        peak_ratio=ratio_to_baseline(scores, base, lambda score: score.peak),
        full=sum(score.full_at is not None for score in scores),
        lasts=_session_length_ratio(scores, base),
        invalid=sum(len(score.invalid) for score in scores),
        disputed=sum(len(score.disputed) for score in scores),
        breaks=dict(Counter(one.cause for score in scores for one in score.breaks).most_common()),
        worse=sum(
            one.all_in > _WORSE_RATIO * other.all_in
            for one, other in zip(scores, base, strict=True)
        ),
        ms=1000
        * _sum_ratio(scores, lambda score: score.seconds, lambda score: score.requests, 0.0),
        worst_ms=1000 * max((score.worst for score in scores), default=0.0),
        cuts=_cut_totals(scores),
        again=_refetch_total(scores),
    )


def _refetch_total(scores: Sequence[PolicyScore]) -> RefetchCounts | None:
    """Sum up the refetches of all sessions; None if not measured."""
    found = [score.again for score in scores if score.again is not None]
    if not found:
        return None
    cells = add_cells(cell for one in found for cell in one.cells)
    names = (name for name in RefetchCounts.__struct_fields__ if name != "cells")
    sums = {name: sum(getattr(one, name) for one in found) for name in names}
    return RefetchCounts(**sums, cells=cells)


def total_cache_costs(sessions: Sequence[SessionResult]) -> CacheTotals:
    """Sum up what pauses, misses and heads cost: together, by price and by kind of session."""
    measured = [one for one in sessions if one.cache is not None]
    by_price = zip(*(one.cache_prices for one in measured if one.cache_prices), strict=True)
    known = [one.unused_tools for one in sessions if one.unused_tools is not None]
    called = {
        share.name for one in sessions if one.unused_tools is not None for share in one.spent.tools
    }
    return CacheTotals(
        whole=_sum_costs(measured),
        prices=tuple(add_costs(costs) for costs in by_price),
        kinds={name: _sum_costs(some) for name, some in _session_kinds(measured).items() if some},
        tools=HeadTools(sessions=len(known), unused=merge_unused(known, called)),
    )


def _sum_costs(sessions: Sequence[SessionResult]) -> CacheCosts:
    return add_costs(one.cache for one in sessions if one.cache is not None)


def _session_kinds(sessions: Sequence[SessionResult]) -> dict[str, list[SessionResult]]:
    """Sessions by kind; one may be of several kinds, or of none."""
    agents = count_sub_agents(sessions)
    return {
        f"long ({LONG_REQUESTS} requests or more)": [
            one for one in sessions if one.requests >= LONG_REQUESTS
        ],
        f"with {MANY_AGENTS} sub-agents or more": [
            one for count, one in zip(agents, sessions, strict=True) if count >= MANY_AGENTS
        ],
        f"with {MANY_PAUSES} pauses or more": [
            one for one in sessions if one.cache is not None and one.cache.pauses >= MANY_PAUSES
        ],
    }


def count_sub_agents(sessions: Sequence[SessionResult | RecordedSession]) -> list[int]:
    """For each session, count the sub-agents of its conversation."""
    parents = {(one.agent, one.id): one.parent for one in sessions if one.parent is not None}
    roots = [(one.agent, _root_id(one.agent, one.id, parents)) for one in sessions]
    agents = Counter(
        root for root, one in zip(roots, sessions, strict=True) if one.parent is not None
    )
    return [agents[root] for root in roots]


def ratio_to_baseline(
    scores: Sequence[PolicyScore],
    base: Sequence[PolicyScore],
    figure: Callable[[PolicyScore], float],
) -> float:
    """Return the ratio of a policy's total to the baseline's."""
    whole = sum(map(figure, base))
    return sum(map(figure, scores)) / whole if whole else 1.0


def _sum_ratio(
    scores: Sequence[PolicyScore],
    part: Callable[[PolicyScore], float],
    whole: Callable[[PolicyScore], float],
    nothing: float,
) -> float:
    total = sum(map(whole, scores))
    return sum(map(part, scores)) / total if total else nothing


def _captured_share(
    sessions: Sequence[SessionResult],
    base: Sequence[PolicyScore],
    all_in: float,
    policies: Sequence[str],
) -> float | None:
    """Return the share of the floor's savings that this policy achieves."""
    if FLOOR not in policies:
        return None
    at = policies.index(FLOOR)
    floor = ratio_to_baseline(
        [session.scores[at] for session in sessions], base, lambda score: score.all_in
    )
    return (1 - all_in) / (1 - floor) if floor < 1 else None


def _session_length_ratio(
    scores: Sequence[PolicyScore], base: Sequence[PolicyScore]
) -> float | None:
    """Return by how much longer sessions last that would have filled their window."""
    filled = [
        (one, other) for one, other in zip(scores, base, strict=True) if other.full_at is not None
    ]
    before = sum(other.full_at or 0 for _, other in filled)
    after = sum(one.requests if one.full_at is None else one.full_at for one, _ in filled)
    return after / before if before else None


def sum_bills(bills: Sequence[ReplayBill]) -> ReplayBill:
    """Sum up bills; the money is that of the bills with a known price."""
    known = [bill.money for bill in bills if bill.money is not None]
    return ReplayBill(
        read=sum(bill.read for bill in bills),
        write=sum(bill.write for bill in bills),
        write_1h=sum(bill.write_1h for bill in bills),
        plain=sum(bill.plain for bill in bills),
        cost=sum(bill.cost for bill in bills),
        money=sum(known) if known else None,
    )


def _cut_totals(scores: Sequence[PolicyScore]) -> tuple[CutTotal, ...]:
    """Sum up the cuts by reason and tool, the largest first."""
    parts: Counter[tuple[str, str]] = Counter()
    saved: Counter[tuple[str, str]] = Counter()
    for score in scores:
        for cut in score.cuts:
            parts[cut.reason, cut.tool] += cut.parts
            saved[cut.reason, cut.tool] += cut.tokens
    return tuple(
        CutTotal(reason, tool, parts[reason, tool], tokens)
        for (reason, tool), tokens in saved.most_common(_MAX_CUTS)
    )


def describe_proxied(replay: Replay) -> list[str]:
    """Sentences on what respool saved, and on what it would have saved in the other sessions."""
    if replay.proxied is None:
        return []
    count = replay.proxied.conversations
    which = f"{count:,} conversation{'' if count == 1 else 's'} went through respool"
    said = [f"{which}, which {replay.proxied.stated}."]
    others = [one for one in replay.sessions if not one.proxied]
    policy = next((name for name in replay.policies if name != NONE), None)
    if not others or policy is None:
        return said
    at = replay.policies.index(policy)
    before = sum_bills([one.scores[replay.policies.index(NONE)].bill for one in others])
    after = sum_bills([one.scores[at].bill for one in others])
    if before.money and after.money is not None:
        saving = Saving(requests=1, money=before.money - after.money, bill=before.money)
    else:
        tokens = round(before.cost - after.cost)
        saving = Saving(
            requests=1,
            tokens=tokens,
            tokens_low=tokens,
            tokens_high=tokens,
            tokens_before=round(before.cost),
        )
    words = describe_saving(saving).replace("saved", "would have saved", 1)
    rest = conversation_count(others)
    subject = f"In the other {rest:,}" if rest > 1 else "In the other one"
    said.append(f"{subject}, {policy} {words.replace('cost ', 'would have cost ', 1)}.")
    return said


def conversation_count(sessions: Sequence[SessionResult]) -> int:
    """Count conversations: sub-agents and segments after a compaction belong to their parent's."""
    parents = {(one.agent, one.id): one.parent for one in sessions if one.parent is not None}
    named = {(one.agent, one.parent) for one in sessions if one.parent is not None}
    roots: set[tuple[str, ...]] = set()
    for session in sessions:
        root = _root_id(session.agent, session.id, parents)
        alone = root == session.id and (session.agent, root) not in named
        # The ids of some agents are unique in one file only.
        roots.add((session.agent, root, session.source) if alone else (session.agent, root))
    return len(roots)


def _root_id(agent: str, id: str, parents: Mapping[tuple[str, str], str]) -> str:
    seen = {id}
    while (parent := parents.get((agent, id))) is not None and parent not in seen:
        id = parent
        seen.add(id)
    return id
