"""Data of the replay page: a replay reduced to a size that a browser opens quickly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import cast

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from ..bill_sentences import COLUMNS, LEGEND, bill_sentences, cost_rows
from ..result import (
    CostBreakdown,
    CostShare,
    PolicyScore,
    PolicyTotal,
    Replay,
    ReplayBill,
    ReportedUsage,
    RequestPoint,
    SessionResult,
)
from ..totals import conversation_count, describe_proxied, sum_bills

JSONValue = object
DrawnPoint = tuple[int, int, int, int]  # request, tokens, of them from the cache, cost


def thin_points(points: Sequence[RequestPoint], max_points: int) -> list[DrawnPoint]:
    """At most so many points of a line; the highest and the lowest of every stretch stay."""
    if len(points) <= max_points:
        return [_drawn_point(points, at) for at in range(len(points))]
    stretches = max_points // 2 - 1
    kept = {0, len(points) - 1}
    for stretch in range(stretches):
        start = stretch * len(points) // stretches
        end = (stretch + 1) * len(points) // stretches
        by_height = sorted(range(start, end), key=lambda at: points[at].tokens)
        kept |= {by_height[0], by_height[-1]}
    return [_drawn_point(points, at) for at in sorted(kept)]


def _drawn_point(points: Sequence[RequestPoint], at: int) -> DrawnPoint:
    point = points[at]
    return at, point.tokens, point.read, round(point.cost)


def clip_strings(value: JSONValue, max_chars: int) -> JSONValue:
    """A JSON value with no string longer than so many characters, and none that UTF-8 lacks."""
    if isinstance(value, str):
        return _clip_text(value, max_chars)
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        fields = cast("dict[str, JSONValue]", value)
        return {
            _clip_text(key, max_chars): clip_strings(item, max_chars)
            for key, item in fields.items()
        }
    if isinstance(value, list | tuple):
        return [clip_strings(item, max_chars) for item in cast("Sequence[JSONValue]", value)]
    return value


def _clip_text(text: str, max_chars: int) -> str:
    short = text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"
    return short.encode("utf-8", "replace").decode("utf-8")


DETAILED_SESSIONS = 30  # sessions, the most expensive ones, whose requests are drawn
DAY_SECONDS = 86_400
MAX_DATA_BYTES = 2_700_000  # bytes of data; with style and script the page stays under 3 MB


class PageLimits(Struct, frozen=True, kw_only=True):
    """Size limits of the page."""

    listed: int  # sessions in the table
    points: int  # of one line
    losses: int  # lost turns of a detailed session under one policy
    cuts: int
    losses_listed: int  # of a session that is not detailed
    cuts_listed: int
    string_chars: int  # characters of one string


# The first that fits is taken.
_PAGE_LIMITS = (
    PageLimits(
        listed=2000,
        points=240,
        losses=60,
        cuts=40,
        losses_listed=4,
        cuts_listed=8,
        string_chars=400,
    ),
    PageLimits(
        listed=1000,
        points=240,
        losses=25,
        cuts=20,
        losses_listed=1,
        cuts_listed=3,
        string_chars=240,
    ),
    PageLimits(
        listed=500, points=120, losses=10, cuts=10, losses_listed=0, cuts_listed=0, string_chars=160
    ),
    PageLimits(
        listed=100, points=60, losses=5, cuts=5, losses_listed=0, cuts_listed=0, string_chars=80
    ),
    PageLimits(
        listed=30, points=40, losses=2, cuts=2, losses_listed=0, cuts_listed=0, string_chars=40
    ),
)
_MAX_REQUESTS = 12  # of one cause, named
_MAX_TOOLS, _MAX_SESSION_TOOLS = 14, 8
_MAX_CUTS = 12
_MAX_SKIPPED = 300


class DaySpending(Struct, frozen=True):
    """Cost of one agent's and model's sessions that began on one day."""

    day: int  # since the epoch, in UTC
    agent: str
    model: str
    costs: tuple[float, ...]  # all-in by policy, in tokens of plain input
    money: tuple[float | None, ...]  # the same in dollars


class BreakCause(Struct, frozen=True):
    """All prefix breaks of one cause."""

    cause: str
    times: int
    tokens: int
    requests: tuple[int, ...]  # the first of them


def encode_page_data(replay: Replay) -> bytes:
    """The page's data as JSON, as much of it as fits."""
    encoded = b""
    for limits in _PAGE_LIMITS:
        encoded = msgspec.json.encode(page_data(replay, limits))
        if len(encoded) <= MAX_DATA_BYTES:
            break
    return encoded


def page_data(replay: Replay, limits: PageLimits) -> object:
    """The page's data, within the limits."""
    ranked = sorted(replay.sessions, key=_baseline_cost, reverse=True)
    sessions = [
        _session_data(session, limits, detailed=rank < DETAILED_SESSIONS)
        for rank, session in enumerate(ranked[: limits.listed])
    ]
    whole = {
        **asdict(replay),
        "totals": [_total_data(total) for total in replay.totals],
        "spent": _breakdown_data(replay.spent, _MAX_TOOLS),
        "sessions": sessions,
        "proxied": describe_proxied(replay),
        "left": replay.left[:_MAX_SKIPPED],
        "rest": {
            "sentences": bill_sentences(replay.cache),
            "columns": COLUMNS,
            "rows": list(cost_rows(replay.cache)),
            "legend": LEGEND,
            "tools": replay.cache.tools.unused[:_MAX_TOOLS],
        },
        "cache": None,  # told by `rest`
        "days": _daily_spending(replay),
        "recorded": _sum_reported(replay.sessions),
        "close": _cost_ratios(replay.sessions),
        "period": _period(replay.sessions),
        "count": _counts(replay),
    }
    return clip_strings(msgspec.to_builtins(whole), limits.string_chars)


def _baseline_bill(session: SessionResult) -> ReplayBill:
    """Return the bill without compaction."""
    found = [score.bill for score in session.scores if score.policy == "none"]
    return found[0] if found else ReplayBill()


def _baseline_cost(session: SessionResult) -> float:
    return _baseline_bill(session).cost


def _counts(replay: Replay) -> dict[str, int]:
    """Return the full counts of lists that may be cut."""
    sessions = replay.sessions
    return {
        "sessions": len(sessions),
        "conversations": conversation_count(sessions),
        "detailed": DETAILED_SESSIONS,
        "parts": sum(session.segment > 0 for session in sessions),
        "children": sum(session.parent is not None for session in sessions),
        "unpriced": sum(_baseline_bill(session).money is None for session in sessions),
        "undated": sum(session.started is None for session in sessions),
        "left": len(replay.left),
    }


def _total_data(total: PolicyTotal) -> dict[str, object]:
    heaviest = sorted(total.cuts, key=lambda cut: cut.tokens, reverse=True)
    return {**asdict(total), "cuts": heaviest[:_MAX_CUTS], "cut_count": len(total.cuts)}


def _session_data(
    session: SessionResult, limits: PageLimits, *, detailed: bool
) -> dict[str, object]:
    return {
        **asdict(session),
        "scores": [_score_data(score, limits, detailed=detailed) for score in session.scores],
        "spent": _breakdown_data(session.spent, _MAX_SESSION_TOOLS),
        "samples": (),  # calibrations are made of them
        "cache": None,
        "cache_prices": (),
        "unused_tools": None,
        "loops": session.loops[:_MAX_REQUESTS],
        "loop_count": len(session.loops),
    }


def _score_data(score: PolicyScore, limits: PageLimits, *, detailed: bool) -> dict[str, object]:
    losses = limits.losses if detailed else limits.losses_listed
    cuts = limits.cuts if detailed else limits.cuts_listed
    heaviest = sorted(score.cuts, key=lambda cut: cut.tokens, reverse=True)
    return {
        **asdict(score),
        "points": thin_points(score.points, limits.points) if detailed else (),
        "losses": score.losses[:losses],
        "cuts": heaviest[:cuts],
        "cut_count": len(score.cuts),
        "cut_tokens": sum(cut.tokens for cut in score.cuts),
        "breaks": _break_causes(score),
        "break_count": len(score.breaks),
        "invalid": score.invalid[:_MAX_REQUESTS],
        "invalid_count": len(score.invalid),
        "failures": score.failures[:_MAX_REQUESTS],
    }


def _break_causes(score: PolicyScore) -> tuple[BreakCause, ...]:
    by_cause: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for one in score.breaks:
        by_cause[one.cause].append((one.request, one.tokens))
    causes = [
        BreakCause(
            cause=cause,
            times=len(found),
            tokens=sum(tokens for _, tokens in found),
            requests=tuple(request for request, _ in found[:_MAX_REQUESTS]),
        )
        for cause, found in by_cause.items()
    ]
    return tuple(sorted(causes, key=lambda cause: cause.tokens, reverse=True))


def _breakdown_data(spent: CostBreakdown, tools: int) -> CostBreakdown:
    ranked = sorted(spent.tools, key=lambda share: share.tokens, reverse=True)
    rest = ranked[tools:]
    shown = ranked if len(rest) <= 1 else [*ranked[:tools], _sum_shares(rest)]
    kinds = sorted(spent.kinds, key=lambda share: share.tokens, reverse=True)
    return CostBreakdown(kinds=tuple(kinds), tools=tuple(shown), ages=spent.ages)


def _sum_shares(shares: Sequence[CostShare]) -> CostShare:
    return CostShare(
        name=f"{len(shares)} other tools",
        tokens=sum(share.tokens for share in shares),
        cost=sum(share.cost for share in shares),
        unused=sum(share.unused for share in shares),
    )


def _daily_spending(replay: Replay) -> list[DaySpending]:
    """Sum up the cost by start day, agent and model."""
    by_day: dict[tuple[int, str, str], list[SessionResult]] = defaultdict(list)
    for session in replay.sessions:
        if session.started is not None:
            day = int(session.started // DAY_SECONDS)
            by_day[day, session.agent, session.model or "unknown model"].append(session)
    return [
        DaySpending(
            day=day,
            agent=agent,
            model=model,
            costs=tuple(_all_in(sessions, policy) for policy in replay.policies),
            money=tuple(_all_in_money(sessions, policy) for policy in replay.policies),
        )
        for (day, agent, model), sessions in sorted(by_day.items())
    ]


def _policy_scores(sessions: Iterable[SessionResult], policy: str) -> list[PolicyScore]:
    return [score for one in sessions for score in one.scores if score.policy == policy]


def _all_in(sessions: Iterable[SessionResult], policy: str) -> float:
    return sum(score.all_in for score in _policy_scores(sessions, policy))


def _all_in_money(sessions: Iterable[SessionResult], policy: str) -> float | None:
    """All-in in dollars, of the sessions that have a price; None if none has."""
    found = [
        score.bill.money * (score.all_in / score.bill.cost if score.bill.cost else 1.0)
        for score in _policy_scores(sessions, policy)
        if score.bill.money is not None
    ]
    return sum(found) if found else None


def _period(sessions: Iterable[SessionResult]) -> tuple[float, float] | None:
    times = [at for one in sessions for at in (one.started, one.ended) if at is not None]
    return (min(times), max(times)) if times else None


def _sum_reported(sessions: Iterable[SessionResult]) -> ReportedUsage | None:
    """Sum up the reported usage and the replay's."""
    found = [session.recorded for session in sessions if session.recorded is not None]
    if not found:
        return None
    output = [one.output_money for one in found if one.output_money is not None]
    return ReportedUsage(
        requests=sum(one.requests for one in found),
        reported=sum_bills([one.reported for one in found]),
        replayed=sum_bills([one.replayed for one in found]),
        output=sum(one.output for one in found),
        head=sum(one.head for one in found) // len(found),  # on average, as is `warm`
        warm=sum(one.warm for one in found) // len(found),
        hidden=sum(one.hidden for one in found),
        output_money=sum(output) if output else None,
        made_of=_sum_parts(one.made_of for one in found),
        explained=_sum_parts(one.explained for one in found),
    )


def _sum_parts(parts: Iterable[dict[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for part in parts:
        for name, amount in part.items():
            sums[name] += amount
    return dict(sums)


def _cost_ratios(sessions: Iterable[SessionResult]) -> list[float]:
    """Replayed to reported cost of every session that has both, at most a thousand."""
    ratios = sorted(
        one.recorded.replayed.cost / one.recorded.reported.cost
        for one in sessions
        if one.recorded is not None and one.recorded.reported.cost > 0
    )
    step = max(1, -(-len(ratios) // 1000))
    return [round(ratio, 4) for ratio in ratios[::step]]
