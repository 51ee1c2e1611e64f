"""Made-up replay results: any size, priced or not, and hostile ones."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from respool.pricing import Calibration
from respool.replay.result import (
    CostBreakdown,
    CostShare,
    CutTotal,
    LostTurn,
    PolicyScore,
    PolicyTotal,
    PrefixBreak,
    Replay,
    ReplayBill,
    ReportedUsage,
    RequestPoint,
    SessionResult,
    SkippedSource,
)

POLICIES = ("none", "safe", "mask-10", "clear-100k", "floor")
START = 1_785_000_000.0  # an afternoon in July 2026
DAY = 86_400.0

# Of a policy: what of the results' growth stays, the share of turns it loses, breaks a request.
_NATURE = {
    "none": (1.0, 0.0, 0.0),
    "safe": (0.72, 0.004, 0.004),
    "mask-10": (0.4, 0.12, 0.5),
    "clear-100k": (0.75, 0.05, 0.02),
    "floor": (0.5, 0.0, 0.0),
}
_AGENTS = (
    ("claude-code", "anthropic", "claude-sonnet-4-5", 200_000),
    ("claude-code", "anthropic", "claude-opus-4-8", 200_000),
    ("codex", "openai-responses", "gpt-5.1-codex", 272_000),
    ("pi", "openai-chat", "a-model-of-their-own", None),
)
_TOOLS = (
    "Bash",
    "Read",
    "Edit",
    "Grep",
    "Glob",
    "WebFetch",
    "Task",
    "TodoWrite",
    "mcp__internal_documentation_server__search_architecture_decision_records",
)
_NAMES = (
    "src/ledger/accounts/reconcile.py",
    "reconcile_month_end",
    "test_rounding_of_thirds",
    "TOLERANCE = Decimal('0.005')",
    "0x7ffd9c4e",
    "packages/very/deeply/nested/folder/of/a/monorepo/with/long/names/service.config.json",
    "    raise LedgerClosed(f'{period} is closed since {closed:%d %b}')",
)
_SOURCES = (
    "Read src/ledger/accounts/reconcile.py",
    "Bash pytest -q tests/ledger",
    "Grep TOLERANCE",
)
_AGES = ("1", "2–4", "5–9", "10–19", "20–49", "50 and more")
_KINDS = ("results", "head", "calls", "what the model said", "what the user said", "reasoning")
_REASONS = ("over_cap", "superseded_read", "old_result")
_CAUSES = ("over_cap", "the client removed messages", "the cache had expired")


def sample(
    count: int, *, policies: tuple[str, ...] = POLICIES, priced: bool = True, seed: int = 7
) -> Replay:
    """A replay of so many sessions."""
    random = Random(seed)
    sessions = tuple(_session(random, at, policies, priced) for at in range(count))
    return Replay(
        version="0.1.0",
        made=START + 130 * DAY,
        counter="exactly, with the o200k tokenizer; Claude's by its measured factor",
        requests=sum(session.requests for session in sessions),
        policies=policies,
        totals=tuple(_total(sessions, policy) for policy in policies),
        spent=_all_spent(sessions),
        calibrations=_calibrations() if sessions else (),
        sessions=sessions,
        left=_left() if sessions else (),
    )


def hostile(text: str) -> Replay:
    """A replay in which every string is this text; policies also keep their names, to differ."""

    def told(value: Any) -> Any:
        if isinstance(value, str):
            return text + value if value in POLICIES[1:] else value if value == "none" else text
        if isinstance(value, dict):
            return {(text if key in _CAUSES else key): told(item) for key, item in value.items()}
        return [told(item) for item in value] if isinstance(value, list | tuple) else value

    return msgspec.convert(told(msgspec.to_builtins(sample(8))), Replay)


def _session(random: Random, at: int, policies: tuple[str, ...], priced: bool) -> SessionResult:
    agent, format, model, window = _AGENTS[random.choice((0, 0, 0, 1, 2, 2, 3))]
    requests = max(3, int(random.lognormvariate(4.2, 1.0)))
    growth = [int(random.lognormvariate(6.6, 1.1)) for _ in range(requests)]
    started = START + random.random() ** 0.7 * 110 * DAY
    dollars = 3.0 if priced and window else None
    folder = f"/home/someone/.{agent}/projects/ledger"
    return SessionResult(
        id=f"{random.getrandbits(64):016x}",
        agent=agent,
        format=format,
        model=model,
        source=f"{folder}/2026/{random.getrandbits(128):032x}.jsonl",
        segment=int(random.random() < 0.1),
        parent=None if random.random() < 0.85 else f"{random.getrandbits(64):016x}",
        started=None if at % 41 == 40 else started,
        ended=started + requests * 40,
        requests=requests,
        window=window,
        scores=tuple(_score(random, policy, growth, window, dollars) for policy in policies),
        spent=_spent(random, sum(growth) * 9),
        recorded=_recorded(random, growth, dollars) if agent == "claude-code" else None,
        notes=("The last line is half-written and was left out.",) if at % 9 == 0 else (),
    )


def _score(
    random: Random, policy: str, growth: list[int], window: int | None, dollars: float | None
) -> PolicyScore:
    keep, losing, breaking = _NATURE.get(policy, (0.8, 0.02, 0.01))
    points = _points(random, policy, growth, keep)
    requests = len(points)
    breaks = tuple(
        PrefixBreak(at, random.choice(_CAUSES), points[at - 1].tokens // 2)
        for at in range(1, requests)
        if random.random() < breaking
    )
    losses = tuple(_lost(random, at) for at in range(1, requests) if random.random() < losing)
    over = [at for at, point in enumerate(points) if window and point.tokens > window]
    cost = sum(point.cost for point in points) + sum(one.tokens for one in breaks) * 1.15
    bill = _bill(points, cost, dollars)
    cut = policy not in ("none", "floor")
    return PolicyScore(
        policy=policy,
        requests=requests,
        bill=bill,
        all_in=cost + len(losses) * 4200,
        lost_turns=len(losses),
        atoms=requests * 6,
        atoms_kept=requests * 6 - len(losses) * 2,
        lines=requests * 3,
        lines_kept=requests * 3 - len(losses),
        peak=max(point.tokens for point in points) - 18_000,
        full_at=over[0] if over else None,
        invalid=((3, "tool_use ids were found without tool_result blocks"),)
        if policy == "mask-10" and requests > 150
        else (),
        breaks=breaks,
        cuts=_cuts(random) if cut else (),
        losses=losses,
        seconds=requests * 0.004 if cut else 0.0,
        worst=0.031 if cut else 0.0,
        points=points,
        failures=("cap_results: a result had no text",) if policy == "safe" and cost < 60e3 else (),
    )


def _points(
    random: Random, policy: str, growth: list[int], keep: float
) -> tuple[RequestPoint, ...]:
    tokens, found = 18_000.0, []
    for grown in growth:
        before = tokens
        tokens += grown * keep
        if policy == "clear-100k" and tokens > 100_000:
            tokens = 45_000.0
        if policy == "mask-10":
            tokens = min(tokens, 30_000 + grown * 4)
        if tokens > 265_000:
            tokens = 40_000.0  # the agent's own compaction
        read = min(before, tokens) if random.random() > 0.03 else 0.0
        found.append(RequestPoint(int(tokens), int(read), read * 0.1 + (tokens - read) * 1.25))
    return tuple(found)


def _bill(points: tuple[RequestPoint, ...], cost: float, dollars: float | None) -> ReplayBill:
    read = sum(point.read for point in points)
    rest = sum(point.tokens for point in points) - read
    money = None if dollars is None else cost * dollars / 1e6
    return ReplayBill(read=read, write=rest * 0.9, plain=rest * 0.1, cost=cost, money=money)


def _lost(random: Random, at: int) -> LostTurn:
    needs = tuple(random.sample(_NAMES, random.randrange(1, 4)))
    sources = tuple(random.sample(_SOURCES, random.randrange(1, 3)))
    return LostTurn(at, needs, len(needs) + random.randrange(4), sources)


def _cuts(random: Random) -> tuple[CutTotal, ...]:
    kinds = [(reason, tool) for reason in _REASONS for tool in _TOOLS]
    return tuple(
        CutTotal(reason, tool, random.randrange(1, 40), int(random.lognormvariate(8.5, 1)))
        for reason, tool in random.sample(kinds, random.randrange(1, 9))
    )


def _spent(random: Random, tokens: int) -> CostBreakdown:
    def shares(names: tuple[str, ...], fall: float) -> tuple[CostShare, ...]:
        weights = [fall**at * random.uniform(0.6, 1.4) for at in range(len(names))]
        parts = [int(tokens * weight / sum(weights)) for weight in weights]
        return tuple(
            CostShare(name, part, part * 0.16, int(part * random.uniform(0.2, 0.8)))
            for name, part in zip(names, parts, strict=True)
        )

    kinds = tuple(
        share if share.name == "results" else msgspec.structs.replace(share, unused=0)
        for share in shares(_KINDS, 0.5)
    )
    return CostBreakdown(kinds=kinds, tools=shares(_TOOLS, 0.6), ages=shares(_AGES, 0.9))


def _recorded(random: Random, growth: list[int], dollars: float | None) -> ReportedUsage:
    points = _points(random, "none", growth, 1.0)
    bill = _bill(points, sum(point.cost for point in points), dollars)
    off = random.gauss(1.0, 0.03)
    told = ReplayBill(
        read=bill.read * off,
        write=bill.write * off,
        plain=bill.plain,
        cost=bill.cost * off,
        money=None if bill.money is None else bill.money * off,
    )
    return ReportedUsage(
        requests=len(points),
        reported=told,
        replayed=bill,
        output=len(points) * 380,
        head=18_000,
        hidden=len(points) * 90,
        output_money=None if dollars is None else len(points) * 380 * dollars * 5 / 1e6,
        made_of={"system prompt and tools": 18e3 * len(points), "shown, but not sent": -900.0},
        explained={"more or less new text": (off - 1) * bill.cost},
    )


def _total(sessions: tuple[SessionResult, ...], policy: str) -> PolicyTotal:
    scores = [one for session in sessions for one in session.scores if one.policy == policy]
    nones = [session.scores[0] for session in sessions]
    cost = sum(one.bill.cost for one in scores)
    base = sum(one.bill.cost for one in nones) or 1.0
    turns = sum(one.requests for one in scores) or 1
    money = [one.bill.money for one in scores if one.bill.money is not None]
    causes = [one.cause for score in scores for one in score.breaks]
    all_in = sum(one.all_in for one in scores) / base if sessions else 1.0
    return PolicyTotal(
        policy=policy,
        bill=ReplayBill(
            read=sum(one.bill.read for one in scores),
            write=sum(one.bill.write for one in scores),
            plain=sum(one.bill.plain for one in scores),
            cost=cost,
            money=sum(money) if money else None,
        ),
        bill_ratio=cost / base if sessions else 1.0,
        all_in_ratio=all_in,
        captured=None if policy == "none" or not sessions else (1 - all_in) / 0.42,
        lost=sum(one.lost_turns for one in scores) / turns,
        lost_turns=sum(one.lost_turns for one in scores),
        atoms_recall=_share(scores, "atoms"),
        lines_recall=_share(scores, "lines"),
        peak_ratio=sum(one.peak for one in scores) / (sum(one.peak for one in nones) or 1),
        full=sum(one.full_at is not None for one in scores),
        lasts=None if policy == "none" else 1.31,
        invalid=sum(len(one.invalid) for one in scores),
        breaks={cause: causes.count(cause) for cause in _CAUSES if cause in causes},
        worse=sum(a.bill.cost > b.bill.cost * 1.01 for a, b in zip(scores, nones, strict=True)),
        ms=sum(one.seconds for one in scores) * 1000 / turns,
        worst_ms=max((one.worst for one in scores), default=0.0) * 1000,
        cuts=_all_cuts(scores),
    )


def _all_cuts(scores: list[PolicyScore]) -> tuple[CutTotal, ...]:
    found: dict[tuple[str, str], list[CutTotal]] = {}
    for cut in (cut for one in scores for cut in one.cuts):
        found.setdefault((cut.reason, cut.tool), []).append(cut)
    return tuple(
        CutTotal(reason, tool, sum(one.parts for one in cuts), sum(one.tokens for one in cuts))
        for (reason, tool), cuts in found.items()
    )


def _share(scores: list[PolicyScore], what: str) -> float:
    held = sum(getattr(one, what) for one in scores)
    return sum(getattr(one, f"{what}_kept") for one in scores) / held if held else 1.0


def _all_spent(sessions: tuple[SessionResult, ...]) -> CostBreakdown:
    def together(what: str) -> tuple[CostShare, ...]:
        found: dict[str, list[CostShare]] = {}
        for session in sessions:
            for share in getattr(session.spent, what):
                found.setdefault(share.name, []).append(share)
        return tuple(
            CostShare(
                name,
                sum(one.tokens for one in shares),
                sum(one.cost for one in shares),
                sum(one.unused for one in shares),
            )
            for name, shares in found.items()
        )

    return CostBreakdown(kinds=together("kinds"), tools=together("tools"), ages=together("ages"))


def _calibrations() -> tuple[Calibration, ...]:
    return (
        Calibration("claude-opus-4-8", factor=1.32, low=1.21, high=1.46, requests=1_204),
        Calibration("claude-sonnet-4-5", factor=1.18, low=1.11, high=1.27, requests=5_310),
    )


def _left() -> tuple[SkippedSource, ...]:
    folder = "/home/someone/.claude/projects/ledger"
    return (
        SkippedSource(f"{folder}/empty.jsonl", "is empty"),
        SkippedSource(
            f"{folder}/2026/a/very/long/path/that/goes/on/and/on/photo.png", "is not text"
        ),
        SkippedSource(
            f"{folder}/other.jsonl", "is no transcript of an agent that respool can read"
        ),
        SkippedSource(f"{folder}/more.jsonl", "is no transcript of an agent that respool can read"),
    )
