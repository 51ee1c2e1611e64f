"""State of a fold after a number of messages, in parts that copy themselves."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from msgspec import Struct, field
from msgspec.structs import replace

from ..edits import Advise, Edit, Offer, touched_parts
from ..facts import BreakpointMode, Facts
from ..forecast.mentions import Mentions
from ..history.ledger import Ledger
from ..history.refetches import Refetch
from ..limits import HeldMedia, LimitKind, RequestLimits, limits_for
from ..providers.base import Repair, RuleState
from ..tokens import TokenCounter, part_tokens
from ..transcript import Part, TranscriptIndex
from ..wire.json import JSON
from .context import Context
from .edit_set import EditSet
from .mimicry import Mimicry
from .offers import OfferRecord
from .row_cache import RowCache

NEAR_RATIO = 0.8  # of a window; beyond it tokens are counted exactly
_ESTIMATE_ERROR_RATIO = 0.1  # of all estimated tokens: the largest error of the estimate
_NO_FACTS = Facts()


class TokenTally(Struct):
    """Tokens of the parts of a transcript."""

    estimates: list[int] = field(default_factory=list[int])  # by part
    exact: list[int] = field(default_factory=list[int])  # by part; -1: not counted yet
    estimated_total: int = 0
    exact_total: int = 0  # of the first `exact_count` parts
    exact_count: int = 0

    def copy(self) -> TokenTally:
        """Return a tally that can grow apart from this one."""
        return replace(self, estimates=self.estimates.copy(), exact=self.exact.copy())

    def add(self, sizes: Sequence[int], *, are_exact: bool) -> None:
        """Append the tokens of new parts."""
        self.estimates += sizes
        self.exact += sizes if are_exact else [-1] * len(sizes)
        self.estimated_total += sum(sizes)

    def count_exactly(self, parts: Sequence[Part], counter: TokenCounter) -> int:
        """Return the exact tokens of all parts; count those that were not counted yet."""
        exact = self.exact
        for position in range(self.exact_count, len(parts)):
            if exact[position] < 0:
                exact[position] = part_tokens(parts[position], counter)
            self.exact_total += exact[position]
        self.exact_count = len(parts)
        return self.exact_total


class RepairedStep(Struct, frozen=True, kw_only=True):
    """A step that repair changed; a variable one is repaired again for each request."""

    at: int  # its first source message
    length: int  # the number of its source messages
    model_count: int  # the number of those that the model made
    row: int  # its first row
    changed: dict[int, JSON]  # repaired messages by row
    is_variable: bool  # has cache breakpoints, or text that clients encode in two ways
    rule_state: RuleState  # the part of the state before it that the repair depended on


class RepairLog(Struct):
    """Repairs of the history, and the source of each row."""

    rule_state: RuleState = field(default_factory=RuleState)
    sources: list[int | None] = field(default_factory=list[int | None])  # source message by row
    steps: list[RepairedStep] = field(default_factory=list[RepairedStep])
    made: list[Repair] = field(default_factory=list[Repair])
    tokens: int = 0  # added by repair; negative: removed

    def copy(self) -> RepairLog:
        """Return a log that can grow apart from this one."""
        return RepairLog(
            rule_state=self.rule_state.copy(),
            sources=self.sources.copy(),
            steps=self.steps.copy(),
            made=self.made.copy(),
            tokens=self.tokens,
        )


WaitingOffers = dict[tuple[str, int], tuple[Offer, ...]]  # by pass and part


class UnmetLimits(Struct, frozen=True):
    """Limits that an evaluation left exceeded, and the parts that only later ones may touch.

    Those are protected parts and the latest exchanges.
    """

    kinds: frozenset[LimitKind]
    tokens: int  # of those parts, estimated
    media: int  # images and files among those parts
    counted_media: int  # of the history that it could touch


class EvaluationState(Struct):
    """Cursors and outcomes of the evaluations so far."""

    fresh_from: int = 0  # the first part that no evaluation has seen
    due_from: int = 0  # the first part that no evaluation could touch
    aged_from: int = 0  # the first exchange that was recent at the last evaluation
    projected_tokens: int = 0  # of the projection after the last evaluation, estimated
    new_tokens: int = 0  # of the source since the last evaluation, estimated
    epochs: int = 0  # evaluations that put edits in force
    requests: int = 0  # boundaries at which a request was sent
    waiting: WaitingOffers = field(default_factory=WaitingOffers)
    cut: int = -1  # the first part that the last epoch changed; -1: there was none
    prefix_ends: list[int] = field(default_factory=list[int])  # parts before which one is cached
    unmet: UnmetLimits | None = None  # None: the last evaluation met all limits
    breakpoint_mode: BreakpointMode | None = None  # the client's, where a fact names it
    failures: dict[str, str] = field(default_factory=dict[str, str])  # errors by pass
    trace: list[OfferRecord] | None = None  # every offer made; None: not recorded

    def copy(self) -> EvaluationState:
        """Return a state that can change apart from this one."""
        return replace(
            self,
            waiting=self.waiting.copy(),
            prefix_ends=self.prefix_ends.copy(),
            failures=self.failures.copy(),
        )


class MediaTally(Struct):
    """Running count of the images and files that stand in the projection."""

    counted: int = 0  # of all media so far
    images: int = 0
    bytes: int = 0
    sides: list[int] = field(default_factory=list[int])  # pixels, sorted

    def copy(self) -> MediaTally:
        """Return a tally that can change apart from this one."""
        return replace(self, sides=self.sides.copy())

    def include(self, media: dict[int, HeldMedia], claimed: Collection[int]) -> None:
        """Count the media that came since the last time."""
        more = len(media) - self.counted
        self.counted = len(media)
        for part in islice(reversed(media), more):
            if part not in claimed:
                self.add(media[part])

    def add(self, one: HeldMedia) -> None:
        """Count one that stands again, or for the first time."""
        self.images += one.unit == "image"
        self.bytes += one.bytes
        insort(self.sides, one.side)

    def remove(self, one: HeldMedia) -> None:
        """Count one less: an edit replaces it."""
        self.images -= one.unit == "image"
        self.bytes -= one.bytes
        del self.sides[bisect_left(self.sides, one.side)]


class WindowUse(Struct):
    """Use of the context window."""

    size: int | None = None  # the window that an overflow error named
    max_request_tokens: float = 0  # of all requests so far, head and estimation error included
    was_near_limit: bool = False
    output_tokens: int = 0  # that the last request asked for
    media: dict[int, HeldMedia] = field(default_factory=dict[int, HeldMedia])  # by part
    tally: MediaTally = field(default_factory=MediaTally)

    def copy(self) -> WindowUse:
        """Return a value that can change apart from this one."""
        return replace(self, media=self.media.copy(), tally=self.tally.copy())

    def present_media(self, claimed: Collection[int]) -> MediaTally:
        """The count of the media outside `claimed`, the parts that edits touch."""
        if self.tally.counted < len(self.media):
            self.tally.include(self.media, claimed)
        return self.tally


class RefetchLog(Struct):
    """Results that were fetched again."""

    fetched_back: dict[str, int] = field(default_factory=dict[str, int])  # text -> last exchange
    found: list[Refetch] = field(default_factory=list[Refetch])  # after a cut
    pins: frozenset[int] = frozenset()  # the exchanges among them that stay
    repeated_requests: int = 0  # exchanges that asked again for what was still there

    def copy(self) -> RefetchLog:
        """Return a log that can grow apart from this one."""
        return replace(self, fetched_back=self.fetched_back.copy(), found=self.found.copy())


class Analysis(Struct):
    """Indexes of a conversation, shared by its states, and the part of them that is read here."""

    ledger: Ledger = field(default_factory=Ledger)
    ledger_exchanges: int = 0  # exchanges of this state in the ledger
    mentions: Mentions = field(default_factory=Mentions)
    mentioned_units: int = 0  # units of this state in the mentions
    mimicry: list[Mimicry] = field(default_factory=list[Mimicry])

    def copy(self) -> Analysis:
        """Return a value that can grow apart from this one; the indexes stay shared."""
        return replace(self, mimicry=self.mimicry.copy())


class Prefix(Struct):
    """Identity of the history read so far."""

    hash: bytes = b""  # chained over the steps, the same on every machine
    boundaries: list[bytes] = field(default_factory=list[bytes])  # that hash after each step
    messages: int = 0  # source messages read
    facts: Facts = _NO_FACTS  # under which they were folded
    is_left_alone: bool = False  # a fact forbids further edits

    def copy(self) -> Prefix:
        """Return a prefix that can grow apart from this one."""
        return replace(self, boundaries=self.boundaries.copy())

    def hex(self) -> str:
        """The hash as facts refer to it."""
        return self.hash.hex()


class State(Struct, kw_only=True):
    """State of a fold after a number of messages."""

    transcript: TranscriptIndex = field(default_factory=TranscriptIndex)
    tokens: TokenTally = field(default_factory=TokenTally)
    edits: EditSet = field(default_factory=EditSet)
    repairs: RepairLog = field(default_factory=RepairLog)
    evaluation: EvaluationState = field(default_factory=EvaluationState)
    window: WindowUse = field(default_factory=WindowUse)
    refetches: RefetchLog = field(default_factory=RefetchLog)
    analysis: Analysis = field(default_factory=Analysis)
    rendered: RowCache = field(default_factory=RowCache)
    prefix: Prefix = field(default_factory=Prefix)

    def copy(self) -> State:
        """Return a state that can grow apart from this one."""
        return State(
            transcript=self.transcript.copy(),
            tokens=self.tokens.copy(),
            edits=self.edits.copy(),
            repairs=self.repairs.copy(),
            evaluation=self.evaluation.copy(),
            window=self.window.copy(),
            refetches=self.refetches.copy(),
            analysis=self.analysis.copy(),
            rendered=self.rendered.copy(),
            prefix=self.prefix.copy(),
        )

    def share(self) -> State:
        """Return a state that reads all that this one has; neither may be extended."""
        return replace(self, tokens=replace(self.tokens), rendered=replace(self.rendered))

    @property
    def estimated_tokens(self) -> int:
        """Tokens of the projection without its head, estimated."""
        return self.tokens.estimated_total - self.edits.saved

    @property
    def unseen_from(self) -> int:
        """The first part that the model has not seen."""
        return self.transcript.units[-1].answers_from

    def take(self, edits: Iterable[Edit]) -> None:
        """Put edits in force, in place of those on the same parts, and keep the originals."""
        for edit in edits:
            for one in self._media_of(edit):
                if one.part not in self.edits.claimed:
                    self.window.tally.remove(one)
            self.rendered.forget(self.edits.take(edit, self.transcript, self.window.media))

    def withdraw(self, part: int) -> None:
        """Restore the text of a part."""
        if part in self.edits.by_part:
            for one in self._media_of(self.edits.by_part[part]):
                if one.part in self.edits.claimed:
                    self.window.tally.add(one)
            self.rendered.forget(self.edits.withdraw(part, self.transcript))

    def _media_of(self, edit: Edit) -> list[HeldMedia]:
        """The images and files that an edit touches, all of which are counted."""
        media = self.window.media
        if not media or isinstance(edit, Advise):
            return []
        self.window.present_media(self.edits.claimed)
        return [media[part] for part in touched_parts(edit, self.transcript) if part in media]

    def withdraw_advice(self, part: int) -> None:
        """Remove the advice of a part."""
        if part in self.edits.advice:
            self.rendered.forget(self.edits.withdraw_advice(part))

    def recount_advice(self, parts: Iterable[int], counter: TokenCounter) -> None:
        """Count again the tokens that advice adds to changed parts."""
        rows = self.edits.recount_advice(parts, self.transcript, counter)
        if rows:
            self.rendered.forget(rows)

    def text_of(self, part: int) -> str:
        """The text of a part in the projection, without advice."""
        return self.edits.text_of(part, self.transcript)

    def count_parts(self, counter: TokenCounter) -> int:
        """Return the exact tokens of all parts as they came."""
        return self.tokens.count_exactly(self.transcript.parts, counter)

    def limits(self, context: Context) -> RequestLimits:
        """The limits of this conversation's requests."""
        if self.window.size is None:
            return context.limits
        return limits_for(context.policy, context.codec.name, context.fields, self.window.size)

    def count_projection(self, context: Context, limits: RequestLimits) -> int:
        """Tokens of the projection without its head: exact under a budget or near a window."""
        estimated = self.estimated_tokens
        if limits.tokens is None or context.counters.fast is context.counters.exact:
            return estimated
        if limits.source == "window" and self.max_tokens(context) <= NEAR_RATIO * limits.tokens:
            return estimated
        return self.count_parts(context.counters.exact) - self.edits.saved

    def max_tokens(self, context: Context) -> float:
        """Tokens of the projection and its head if the estimate has its largest error."""
        error = _ESTIMATE_ERROR_RATIO * self.tokens.estimated_total  # savings are exact
        return self.estimated_tokens + error + context.head
