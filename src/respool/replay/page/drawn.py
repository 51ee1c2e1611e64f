"""What the page draws: a replay cut down to what a browser opens at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from ..result import Bill, Recorded, Replay, Score, SessionResult, Share, Spent, Total
from ..totals import conversations, total_bill
from .clipping import clipped, thinned

DETAILED = 30  # sessions, the most expensive ones, whose requests are drawn
DAY = 86_400
LARGEST = 2_700_000  # bytes of data; with style and script the page stays under 3 MB


class Limits(Struct, frozen=True, kw_only=True):
    """How much of everything the page holds."""

    listed: int  # sessions in the table
    points: int  # of one line
    losses: int  # lost turns of a detailed session under one policy
    cuts: int
    losses_listed: int  # of a session that is not detailed
    cuts_listed: int
    string_chars: int  # characters of one string


# The first that fits is taken.
_LIMITS = (
    Limits(listed=2000, points=240, losses=60, cuts=40, losses_listed=4, cuts_listed=8, string_chars=400),
    Limits(listed=1000, points=240, losses=25, cuts=20, losses_listed=1, cuts_listed=3, string_chars=240),
    Limits(listed=500, points=120, losses=10, cuts=10, losses_listed=0, cuts_listed=0, string_chars=160),
    Limits(listed=100, points=60, losses=5, cuts=5, losses_listed=0, cuts_listed=0, string_chars=80),
    Limits(listed=30, points=40, losses=2, cuts=2, losses_listed=0, cuts_listed=0, string_chars=40),
)
_REQUESTS = 12  # of one cause, named
_TOOLS, _TOOLS_OF_ONE = 14, 8
_CUTS = 12
_LEFT = 300


class Spending(Struct, frozen=True):
    """What the sessions of one agent and model that began on one day came to."""

    day: int  # since the epoch, in UTC
    agent: str
    model: str
    costs: tuple[float, ...]  # all-in by policy, in tokens of plain input
    money: tuple[float | None, ...]  # the same in dollars


class Cause(Struct, frozen=True):
    """All prefix breaks of one cause."""

    cause: str
    times: int
    tokens: int
    requests: tuple[int, ...]  # the first of them


def fitted(replay: Replay) -> bytes:
    """The page's data as JSON, as much of it as fits."""
    encoded = b""
    for limits in _LIMITS:
        encoded = msgspec.json.encode(drawn(replay, limits))
        if len(encoded) <= LARGEST:
            break
    return encoded


def drawn(replay: Replay, limits: Limits) -> object:
    """The page's data, within the limits."""
    ranked = sorted(replay.sessions, key=_cost, reverse=True)
    sessions = [
        _session(session, limits, detailed=rank < DETAILED)
        for rank, session in enumerate(ranked[: limits.listed])
    ]
    whole = {
        **asdict(replay),
        "totals": [_total(total) for total in replay.totals],
        "spent": _spent(replay.spent, _TOOLS),
        "sessions": sessions,
        "left": replay.left[:_LEFT],
        "days": _days(replay),
        "recorded": _recorded(replay.sessions),
        "close": _close(replay.sessions),
        "period": _period(replay.sessions),
        "count": _count(replay),
    }
    return clipped(msgspec.to_builtins(whole), limits.string_chars)


def _none(session: SessionResult) -> Bill:
    """What was charged without any compaction."""
    found = [score.bill for score in session.scores if score.policy == "none"]
    return found[0] if found else Bill()


def _cost(session: SessionResult) -> float:
    return _none(session).cost


def _count(replay: Replay) -> dict[str, int]:
    """How many there are of what may be left out."""
    sessions = replay.sessions
    return {
        "sessions": len(sessions),
        "conversations": conversations(sessions),
        "detailed": DETAILED,
        "parts": sum(session.segment > 0 for session in sessions),
        "children": sum(session.parent is not None for session in sessions),
        "unpriced": sum(_none(session).money is None for session in sessions),
        "undated": sum(session.started is None for session in sessions),
        "left": len(replay.left),
    }


def _total(total: Total) -> dict[str, object]:
    heaviest = sorted(total.cuts, key=lambda cut: cut.tokens, reverse=True)
    return {**asdict(total), "cuts": heaviest[:_CUTS], "cut_count": len(total.cuts)}


def _session(session: SessionResult, limits: Limits, *, detailed: bool) -> dict[str, object]:
    return {
        **asdict(session),
        "scores": [_score(score, limits, detailed=detailed) for score in session.scores],
        "spent": _spent(session.spent, _TOOLS_OF_ONE),
        "samples": (),  # calibrations are made of them
        "circles": session.circles[:_REQUESTS],
        "circle_count": len(session.circles),
    }


def _score(score: Score, limits: Limits, *, detailed: bool) -> dict[str, object]:
    losses = limits.losses if detailed else limits.losses_listed
    cuts = limits.cuts if detailed else limits.cuts_listed
    heaviest = sorted(score.cuts, key=lambda cut: cut.tokens, reverse=True)
    return {
        **asdict(score),
        "points": thinned(score.points, limits.points) if detailed else (),
        "losses": score.losses[:losses],
        "cuts": heaviest[:cuts],
        "cut_count": len(score.cuts),
        "cut_tokens": sum(cut.tokens for cut in score.cuts),
        "breaks": _causes(score),
        "break_count": len(score.breaks),
        "invalid": score.invalid[:_REQUESTS],
        "invalid_count": len(score.invalid),
        "failures": score.failures[:_REQUESTS],
    }


def _causes(score: Score) -> tuple[Cause, ...]:
    by_cause: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for one in score.breaks:
        by_cause[one.cause].append((one.request, one.tokens))
    causes = [
        Cause(
            cause=cause,
            times=len(found),
            tokens=sum(tokens for _, tokens in found),
            requests=tuple(request for request, _ in found[:_REQUESTS]),
        )
        for cause, found in by_cause.items()
    ]
    return tuple(sorted(causes, key=lambda cause: cause.tokens, reverse=True))


def _spent(spent: Spent, tools: int) -> Spent:
    ranked = sorted(spent.tools, key=lambda share: share.tokens, reverse=True)
    rest = ranked[tools:]
    shown = ranked if len(rest) <= 1 else [*ranked[:tools], _together(rest)]
    kinds = sorted(spent.kinds, key=lambda share: share.tokens, reverse=True)
    return Spent(kinds=tuple(kinds), tools=tuple(shown), ages=spent.ages)


def _together(shares: Sequence[Share]) -> Share:
    return Share(
        name=f"{len(shares)} other tools",
        tokens=sum(share.tokens for share in shares),
        cost=sum(share.cost for share in shares),
        unused=sum(share.unused for share in shares),
    )


def _days(replay: Replay) -> list[Spending]:
    """What was spent, by the day on which the session began, agent and model."""
    by_day: dict[tuple[int, str, str], list[SessionResult]] = defaultdict(list)
    for session in replay.sessions:
        if session.started is not None:
            day = int(session.started // DAY)
            by_day[day, session.agent, session.model or "unknown model"].append(session)
    return [
        Spending(
            day=day,
            agent=agent,
            model=model,
            costs=tuple(_all_in(sessions, policy) for policy in replay.policies),
            money=tuple(_all_in_money(sessions, policy) for policy in replay.policies),
        )
        for (day, agent, model), sessions in sorted(by_day.items())
    ]


def _scores(sessions: Iterable[SessionResult], policy: str) -> list[Score]:
    return [score for one in sessions for score in one.scores if score.policy == policy]


def _all_in(sessions: Iterable[SessionResult], policy: str) -> float:
    return sum(score.all_in for score in _scores(sessions, policy))


def _all_in_money(sessions: Iterable[SessionResult], policy: str) -> float | None:
    """All-in in dollars, of the sessions that have a price; None if none has."""
    found = [
        score.bill.money * (score.all_in / score.bill.cost if score.bill.cost else 1.0)
        for score in _scores(sessions, policy)
        if score.bill.money is not None
    ]
    return sum(found) if found else None


def _period(sessions: Iterable[SessionResult]) -> tuple[float, float] | None:
    times = [at for one in sessions for at in (one.started, one.ended) if at is not None]
    return (min(times), max(times)) if times else None


def _recorded(sessions: Iterable[SessionResult]) -> Recorded | None:
    """Everything that was reported, beside the same as replayed."""
    found = [session.recorded for session in sessions if session.recorded is not None]
    if not found:
        return None
    output = [one.output_money for one in found if one.output_money is not None]
    return Recorded(
        requests=sum(one.requests for one in found),
        reported=total_bill([one.reported for one in found]),
        replayed=total_bill([one.replayed for one in found]),
        output=sum(one.output for one in found),
        head=sum(one.head for one in found) // len(found),  # on average, as is `warm`
        warm=sum(one.warm for one in found) // len(found),
        hidden=sum(one.hidden for one in found),
        output_money=sum(output) if output else None,
        made_of=_added(one.made_of for one in found),
        explained=_added(one.explained for one in found),
    )


def _added(parts: Iterable[dict[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for part in parts:
        for name, amount in part.items():
            sums[name] += amount
    return dict(sums)


def _close(sessions: Iterable[SessionResult]) -> list[float]:
    """Replayed to reported cost of every session that has both, at most a thousand."""
    ratios = sorted(
        one.recorded.replayed.cost / one.recorded.reported.cost
        for one in sessions
        if one.recorded is not None and one.recorded.reported.cost > 0
    )
    step = max(1, -(-len(ratios) // 1000))
    return [round(ratio, 4) for ratio in ratios[::step]]
