"""Replay results as plain data: written by `--json`, drawn by the page."""

from __future__ import annotations

from msgspec import Struct


class ReplayBill(Struct, frozen=True):
    """The tokens of some prompts by how they are charged, and what they come to."""

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
    cause: str  # what changed: a reason code of the policy's, or what the client did
    tokens: int  # of the last prompt, behind the change


class CutTotal(Struct, frozen=True):
    """What a policy took out for one reason from one tool's results, over a session."""

    reason: str
    tool: str
    parts: int
    tokens: int  # saved in the last request in which it was in force


class LostTurn(Struct, frozen=True):
    """A turn that needed something that the projection no longer held."""

    request: int
    needs: tuple[str, ...]  # a few of the names and lines it needed, clipped
    count: int  # how many there were
    sources: tuple[str, ...]  # where they had stood: the tool and what it was called on, clipped


class RefetchCounts(Struct, frozen=True):
    """Reads and runs whose answer the history held already, with nothing written in between.

    The agent that was recorded saw all of its history, whatever a policy would have cut: it may
    have asked again without any cut. So what it asked again while a copy stood is told as well.
    """

    after_cut: int = 0  # what it brought had been taken out
    tokens: int = 0  # of these calls and their results
    standing: int = 0  # a copy stood in the projection
    cut: int = 0  # results that were cut at the end of the session
    whole: int = 0  # results that were not


class PolicyScore(Struct, frozen=True, kw_only=True):
    """One session under one policy."""

    policy: str
    requests: int
    bill: ReplayBill
    all_in: float  # the bill, and what asking again for what was lost would cost
    lost_turns: int
    atoms: int  # names, paths and numbers that next actions needed and the history held
    atoms_kept: int  # of them, still in the projection
    lines: int
    lines_kept: int
    peak: int  # tokens of the longest prompt, without its head
    full_at: int | None  # the first request that was larger than the window
    invalid: tuple[tuple[int, str], ...]  # request, and what the provider would say
    breaks: tuple[PrefixBreak, ...]
    cuts: tuple[CutTotal, ...]
    losses: tuple[LostTurn, ...]
    seconds: float  # spent in the policy
    worst: float  # of it, on the slowest request
    points: tuple[RequestPoint, ...]
    failures: tuple[str, ...] = ()  # passes that failed, and how
    again: RefetchCounts | None = None  # None: the policy does not look for it


class CostShare(Struct, frozen=True):
    """What one kind of content weighed in all requests of a session together."""

    name: str
    tokens: int  # as often as it was sent
    cost: float  # in tokens of plain input
    unused: int = 0  # of the tokens, those of results that no later action used


class CostBreakdown(Struct, frozen=True):
    """Where a session's tokens went, without any compaction."""

    kinds: tuple[CostShare, ...]  # head, what the user said, what the model said, calls, results, …
    tools: tuple[CostShare, ...]  # calls and results by tool
    ages: tuple[CostShare, ...]  # results, by how many requests ago they arrived


class ReportedUsage(Struct, frozen=True):
    """What the provider reported for a session, beside what the replay of it says."""

    requests: int  # that have a report
    reported: ReplayBill
    replayed: ReplayBill  # of the same requests, without compaction
    output: int  # tokens that the model wrote, as reported
    head: int  # tokens of system prompt and tools, as inferred from the first request
    hidden: int  # tokens of prompts that no record explains
    output_money: float | None = None
    made_of: dict[str, float] = {}  # the reported prompts' tokens, by what they were
    explained: dict[str, float] = {}  # reported less replayed cost, by what makes the difference
    warm: int = (
        0  # tokens of the head that another conversation had cached before the first request
    )


class Growth(Struct, frozen=True, array_like=True, gc=False):
    """What a request's prompt had beyond the one before it, framing and known output aside."""

    model: str
    counted: int  # by the counter, as it is for o200k
    reported: int  # by the provider

    @property
    def ratio(self) -> float:
        """The provider's tokens for one of the counter's."""
        return self.reported / self.counted


class LoopCost(Struct, frozen=True, kw_only=True):
    """Calls of a session that went round in a circle, and what that cost."""

    kind: str
    what: str  # the tool, its operation and its target, clipped
    calls: int
    again: int  # of them, those behind the first lap
    tokens: int  # of those, with their results, once
    cost: float  # of the same as often as they were sent, in tokens of plain input
    told_after: int  # how many of the calls had been made when it would have been told
    request: int  # the one that would have carried the first advice
    level: str  # how far it came: "advise", "insist" or "stop"
    message: str  # what was said last


class LoopTotals(Struct, frozen=True, kw_only=True):
    """The circles of all sessions together."""

    count: int = 0
    sessions: int = 0  # that ran any
    calls: int = 0
    again: int = 0
    tokens: int = 0
    cost: float = 0.0
    told_after: int = 0


class SessionResult(Struct, frozen=True, kw_only=True):
    """One session: what it was, what it cost, and its score under each policy."""

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
    window: int | None  # of its model, as listed
    scores: tuple[PolicyScore, ...]  # the first is "none"
    spent: CostBreakdown
    recorded: ReportedUsage | None
    notes: tuple[str, ...] = ()
    samples: tuple[Growth, ...] = ()  # what its usage tells of its model's tokenizer
    circles: tuple[LoopCost, ...] = ()  # where its agent went round


class PolicyTotal(Struct, frozen=True, kw_only=True):
    """All sessions together under one policy; ratios are to no compaction."""

    policy: str
    bill: ReplayBill
    bill_ratio: float
    all_in_ratio: float
    captured: float | None  # of what the floor could save
    lost: float  # share of the turns
    lost_turns: int
    atoms_recall: float
    lines_recall: float
    peak_ratio: float
    full: int  # sessions that filled the window
    lasts: float | None  # requests until it was full, as a ratio, over sessions that filled it
    invalid: int
    breaks: dict[str, int]  # by cause
    worse: int  # sessions that cost over 1 % more than without
    ms: float  # a request
    worst_ms: float
    cuts: tuple[CutTotal, ...]
    again: RefetchCounts | None = None  # of all sessions in which it was looked for


class Calibration(Struct, frozen=True):
    """How many tokens of a model's own there are for one of the counter's."""

    model: str
    factor: float
    low: float  # nine in ten requests lie between low and high
    high: float
    requests: int


class SkippedSource(Struct, frozen=True):
    """A file or a part of one that was not replayed, and why."""

    source: str
    why: str


class Replay(Struct, frozen=True, kw_only=True):
    """All that one run of `respool replay` found."""

    version: str  # respool's
    made: float  # seconds since the epoch
    counter: str  # how tokens were counted, for a person
    requests: int
    policies: tuple[str, ...]
    totals: tuple[PolicyTotal, ...]
    spent: CostBreakdown
    calibrations: tuple[Calibration, ...]
    sessions: tuple[SessionResult, ...]
    left: tuple[SkippedSource, ...]
    circles: LoopTotals = LoopTotals()
    twice: int = 0  # requests that several sessions tell, and that are counted once
