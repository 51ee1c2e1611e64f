"""Replay results as plain data: written by `--json`, drawn by the page."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..history.repeat_rates import RepeatCell
from ..pricing import Calibration, Growth


class ReplayBill(Struct, frozen=True):
    """Tokens of some prompts by how they are charged, and their cost."""

    read: float = 0  # found in the provider's cache
    write: float = 0  # written to it, for minutes
    write_1h: float = 0  # written to it, for an hour
    plain: float = 0  # neither
    cost: float = 0  # in tokens of plain input
    money: float | None = None  # in dollars; None where no price is known

    @property
    def tokens(self) -> float:
        """All tokens that were sent."""
        return self.read + self.write + self.write_1h + self.plain


class RequestPoint(Struct, frozen=True, array_like=True):
    """One request of a session under one policy."""

    tokens: int  # of the whole prompt, head included
    read: int  # of it, from the cache
    cost: float  # in tokens of plain input


class PrefixBreak(Struct, frozen=True):
    """A request whose prompt no longer began with all of the one before it."""

    request: int
    cause: str  # a reason code of the policy, or an action of the client
    tokens: int  # of the previous prompt, after the break


class CutTotal(Struct, frozen=True):
    """Tokens a policy elided for one reason from one tool's results, over a session."""

    reason: str
    tool: str
    parts: int
    tokens: int  # saved in the last request with the edit in force


class LostTurn(Struct, frozen=True):
    """A turn that needed something missing from the projection."""

    request: int
    needs: tuple[str, ...]  # a few of the missing names and lines, clipped
    count: int  # of all missing needs
    sources: tuple[str, ...]  # tool and target of their sources, clipped


class RefetchCounts(Struct, frozen=True):
    """Reads and runs whose result the history already held, with no write in between.

    The recorded agent saw its whole history, including what a policy would have cut, so it may have
    refetched without any cut. Refetches with an intact copy are counted for comparison.
    """

    after_cut: int = 0  # the earlier result had been cut
    tokens: int = 0  # of those calls and results
    standing: int = 0  # an intact copy was in the projection
    cut: int = 0  # results cut at the end of the session
    whole: int = 0  # results not cut
    cells: tuple[RepeatCell, ...] = ()  # both by kind and age, for the excess


class PolicyScore(Struct, frozen=True, kw_only=True):
    """One session under one policy."""

    policy: str
    requests: int
    bill: ReplayBill
    all_in: float  # the bill, plus the cost of refetching what was lost
    lost_turns: int
    atoms: int  # needed names, paths and numbers that the history held
    atoms_kept: int  # still in the projection
    lines: int
    lines_kept: int
    peak: int  # tokens of the longest prompt, without the head
    full_at: int | None  # the first request larger than the window
    invalid: tuple[tuple[int, str], ...]  # request, and the provider's error
    # The same finding in the recorded request, which the provider had answered: the check's or the
    # transcript's fault, not the policy's.
    disputed: tuple[tuple[int, str], ...] = ()
    breaks: tuple[PrefixBreak, ...]
    cuts: tuple[CutTotal, ...]
    losses: tuple[LostTurn, ...]
    seconds: float  # in the policy
    worst: float  # seconds of the slowest request
    points: tuple[RequestPoint, ...]
    failures: tuple[str, ...] = ()  # failed passes and their errors
    again: RefetchCounts | None = None  # refetches; None: not measured


class CostShare(Struct, frozen=True):
    """Tokens and cost of one kind of content over all requests of a session."""

    name: str
    tokens: int  # counted each time it was sent
    cost: float  # in tokens of plain input
    unused: int = 0  # tokens of results that no later action used


class CostBreakdown(Struct, frozen=True):
    """Breakdown of a session's tokens, without compaction."""

    kinds: tuple[CostShare, ...]  # head, what the user said, what the model said, calls, results, …
    tools: tuple[CostShare, ...]  # calls and results by tool
    ages: tuple[CostShare, ...]  # results, by how many requests ago they arrived


class ReportedUsage(Struct, frozen=True):
    """Usage reported by the provider for a session, beside the replay's."""

    requests: int  # with reported usage
    reported: ReplayBill
    replayed: ReplayBill  # the same requests, without compaction
    output: int  # reported output tokens
    head: int  # inferred tokens of system prompt and tools
    hidden: int  # prompt tokens that no record explains
    output_money: float | None = None
    made_of: dict[str, float] = {}  # the reported prompts' tokens, by component
    explained: dict[str, float] = {}  # reported less replayed cost, by cause
    warm: int = 0  # tokens of the head in the cache before the first request


class LoopCost(Struct, frozen=True, kw_only=True):
    """A loop in a session, and its cost."""

    kind: str
    what: str  # tool, operation and target, clipped
    calls: int
    again: int  # calls after the first iteration
    tokens: int  # of those calls and their results, counted once
    cost: float  # of the same each time they were sent, in tokens of plain input
    advised_after: int  # calls made before the first advice
    request: int  # the request with the first advice
    level: str  # highest level: "advise", "insist" or "stop"
    message: str  # the last advice


class LoopTotals(Struct, frozen=True, kw_only=True):
    """Loops of all sessions."""

    count: int = 0
    sessions: int = 0  # with a loop
    calls: int = 0
    again: int = 0
    tokens: int = 0
    cost: float = 0.0
    advised_after: int = 0


class CacheCosts(Struct, frozen=True, kw_only=True):
    """Costs of pauses, cache misses and the head, and the bill that each remedy would have given.

    Costs are in tokens of plain input, without compaction. A remedy that does not apply to a
    session leaves its bill as it is.
    """

    sessions: int = 1
    requests: int = 0
    read_price: float = 0.0  # of a token from the cache
    bill: float = 0.0
    head: float = 0.0  # system prompt and tool definitions
    pauses: int = 0  # requests that came after a prefix of theirs had expired
    expired: int = 0  # tokens of those prefixes
    expired_cost: float = 0.0  # writing them again, less reading them
    expired_money: float | None = None  # in dollars; None: no price is known
    missed: int = 0  # tokens sent within the lifetime, and not found in the cache
    beyond_lookback: int = 0  # of them, with an entry too far before the cache breakpoint
    missed_cost: float = 0.0
    one_hour: float = 0.0  # the bill with a lifetime of one hour
    keep_alive: float = 0.0  # the bill with keep-alive pings, which it includes
    pings: int = 0
    ping_cost: float = 0.0
    cold: float = 0.0  # all-in with compaction after expired pauses only; 0: not replayed
    cold_lost: int = 0  # turns that would have missed something


class UnusedTool(Struct, frozen=True, kw_only=True):
    """A tool that was defined and never called."""

    name: str
    tokens: int  # of its definition
    requests: int  # with the definition
    off: str = ""  # the setting that switches it off; empty: not known


class HeadTools(Struct, frozen=True, kw_only=True):
    """Tool definitions of all sessions, as far as they are recorded."""

    sessions: int = 0  # whose tool definitions are recorded
    unused: tuple[UnusedTool, ...] = ()  # the dearest first


class CacheTotals(Struct, frozen=True, kw_only=True):
    """Cache costs of all sessions: together, by price generation and by kind of session."""

    whole: CacheCosts = CacheCosts(sessions=0)
    prices: tuple[CacheCosts, ...] = ()  # the sessions with cache breakpoints, at other prices
    kinds: dict[str, CacheCosts] = {}  # a session may be of several kinds
    tools: HeadTools = HeadTools()


class SessionResult(Struct, frozen=True, kw_only=True):
    """One session: its origin, its cost and its score under each policy."""

    id: str
    agent: str
    format: str
    model: str | None
    source: str
    segment: int
    parent: str | None
    started: float | None  # seconds since the epoch
    ended: float | None
    requests: int
    window: int | None  # of its model
    scores: tuple[PolicyScore, ...]  # the first is "none"
    spent: CostBreakdown
    recorded: ReportedUsage | None
    notes: tuple[str, ...] = ()
    samples: tuple[Growth, ...] = ()  # calibration samples from its usage
    loops: tuple[LoopCost, ...] = ()  # loops
    proxied: bool = False  # it went through respool: its usage is that of projections
    cache: CacheCosts | None = None  # pauses, misses and head; None: not measured
    cache_prices: tuple[CacheCosts, ...] = ()  # the same at the read price of each generation
    unused_tools: tuple[UnusedTool, ...] | None = None  # None: no tool definition is recorded


class PolicyTotal(Struct, frozen=True, kw_only=True):
    """All sessions under one policy; ratios are to no compaction."""

    policy: str
    bill: ReplayBill
    bill_ratio: float
    all_in_ratio: float
    captured: float | None  # share of the floor's savings
    lost: float  # share of the turns
    lost_turns: int
    atoms_recall: float
    lines_recall: float
    peak_ratio: float
    full: int  # sessions that filled the context window
    lasts: float | None  # ratio of requests until the window is full, over those sessions
    invalid: int
    disputed: int = 0  # findings in requests that the provider had answered as they were
    breaks: dict[str, int]  # by cause
    worse: int  # sessions that cost over 1 % more than without compaction
    ms: float  # a request
    worst_ms: float
    cuts: tuple[CutTotal, ...]
    again: RefetchCounts | None = None  # refetches in all sessions that measure them


class ProxiedTotal(Struct, frozen=True, kw_only=True):
    """Sessions that went through respool, by the store's records."""

    conversations: int
    saving: dict[str, Any]
    stated: str  # the saving in words


class SkippedSource(Struct, frozen=True):
    """A file, or part of one, that was not replayed, and the reason."""

    source: str
    reason: str


class Replay(Struct, frozen=True, kw_only=True):
    """Result of one run of `respool replay`."""

    version: str  # respool's
    made: float  # seconds since the epoch
    counter: str  # description of the token counter
    requests: int
    policies: tuple[str, ...]
    totals: tuple[PolicyTotal, ...]
    spent: CostBreakdown
    calibrations: tuple[Calibration, ...]
    sessions: tuple[SessionResult, ...]
    left: tuple[SkippedSource, ...]
    loops: LoopTotals = LoopTotals()
    cache: CacheTotals = CacheTotals()
    duplicates: int = 0  # requests recorded in several sessions, counted once
    proxied: ProxiedTotal | None = None  # None: no session went through respool
