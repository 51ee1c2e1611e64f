"""State of a fold after a number of messages, in parts that copy themselves.

Two parts have logic of their own: the edits in force with their dependencies and originals, and the
cache of rows, which holds bytes and pieces of a projection that later requests reuse.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from threading import Lock

from msgspec import Struct, field
from msgspec.structs import replace

from ..edits import (
    FOLDED,
    Advise,
    DropExchange,
    DropReasoning,
    Edit,
    Offer,
    PlaceBreakpoint,
    Replace,
    touched_parts,
    touched_rows,
)
from ..facts import BreakpointMode, Facts
from ..forecast.mentions import Mentions
from ..forecast.native_mentions import make_mentions
from ..history.ledger import Ledger
from ..history.refetches import Refetch, RepeatedRequest
from ..limits import HeldMedia, LimitKind, RequestLimits, limits_for
from ..markers import Mimicry, ReferenceCache, append_advice, reference
from ..pricing import Rates
from ..providers.base import Repair, RuleState
from ..providers.bound_reasoning import is_turn_start
from ..summaries.batch import AttachedOriginal, render_exchanges
from ..tokens import LineTokens, TokenCounter, part_tokens, unworded_tokens
from ..transcript import Part, ReadOnlyTranscript, TranscriptIndex
from ..wire.base import Piece
from ..wire.json import JSON
from .context import Context
from .offers import OfferRecord

Original = str | tuple[int, ...]  # a text, or the exchanges that a record is rendered from


class EditSet(Struct):
    """Edits in force by part, with the parts they touch and the originals they replace."""

    by_part: dict[int, Edit] = field(default_factory=dict[int, Edit])
    claimed: set[int] = field(default_factory=set[int])  # all parts that these edits touch
    advice: dict[int, Advise] = field(default_factory=dict[int, Advise])  # by part, beside edits
    dependencies: dict[int, tuple[int, ...]] = field(  # by part: the parts its edit needs whole
        default_factory=dict[int, tuple[int, ...]]
    )
    originals: dict[str, Original] = field(default_factory=dict[str, Original])
    external: set[str] = field(default_factory=set[str])  # references of originals not held here
    saved: int = 0  # tokens, advice included
    removed: int = 0  # those of them that edits took out, nothing being left in their place

    def copy(self) -> EditSet:
        """Return a set that can change apart from this one."""
        return EditSet(
            by_part=self.by_part.copy(),
            claimed=self.claimed.copy(),
            advice=self.advice.copy(),
            dependencies=self.dependencies.copy(),
            originals=self.originals.copy(),
            external=self.external.copy(),
            saved=self.saved,
            removed=self.removed,
        )

    def dependents(self) -> dict[int, set[int]]:
        """The parts that edits need whole, each with the parts of those edits."""
        found: dict[int, set[int]] = {}
        for dependent, parts in self.dependencies.items():
            for part in parts:
                found.setdefault(part, set()).add(dependent)
        return found

    def text_of(self, part: int, transcript: ReadOnlyTranscript) -> str:
        """The text of a part in the projection, without advice."""
        edit = self.by_part.get(part)
        return edit.text if isinstance(edit, Replace) else transcript.parts[part].text

    def take(
        self, edit: Edit, transcript: ReadOnlyTranscript, media: Collection[int]
    ) -> Collection[int]:
        """Put an edit in force in place of those on the same parts; return the changed rows.

        `media` are the parts whose original stays in the request.
        """
        if isinstance(edit, Advise):
            return self._advise(edit)
        parts = touched_parts(edit, transcript)
        rows = set(touched_rows(edit, transcript))
        for part in parts:
            self._remove(part)
            if isinstance(edit, DropExchange) or edit.reason == FOLDED:
                rows.update(self.withdraw_advice(part))
        self.by_part[parts[0]] = edit
        self.claimed.update(parts)
        self.saved += edit.saved
        if isinstance(edit, DropExchange | DropReasoning):
            self.removed += edit.saved
        self._keep_originals(edit, parts, transcript, media)
        return rows

    def withdraw(self, part: int, transcript: ReadOnlyTranscript) -> Collection[int]:
        """Restore the text of a part; return the changed rows."""
        edit = self.by_part.get(part)
        if edit is None:
            return ()
        self._remove(part)
        self.claimed.difference_update(touched_parts(edit, transcript))
        return touched_rows(edit, transcript)

    def withdraw_advice(self, part: int) -> Collection[int]:
        """Remove the advice of a part; return the changed rows."""
        before = self.advice.pop(part, None)
        if before is None:
            return ()
        self.saved -= before.saved
        return (before.ref.row,)

    def recount_advice(
        self, parts: Iterable[int], transcript: ReadOnlyTranscript, counter: TokenCounter
    ) -> Collection[int]:
        """Count again the tokens that advice adds to changed parts; return the changed rows."""
        rows: list[int] = []
        for part in self.advice.keys() & set(parts):
            edit, text = self.advice[part], self.text_of(part, transcript)
            saved = counter.count(text) - counter.count(append_advice(text, edit.text))
            rows += self._advise(replace(edit, saved=saved))
        return rows

    def _advise(self, edit: Advise) -> Collection[int]:
        """Add advice to a result, in addition to the edit in force there."""
        self.withdraw_advice(edit.part)
        self.advice[edit.part] = edit
        self.saved += edit.saved
        return (edit.ref.row,)

    def _remove(self, part: int) -> None:
        before = self.by_part.pop(part, None)
        self.dependencies.pop(part, None)
        if before is not None:
            self.saved -= before.saved
            if isinstance(before, DropExchange | DropReasoning):
                self.removed -= before.saved

    def _keep_originals(
        self,
        edit: Edit,
        parts: Iterable[int],
        transcript: ReadOnlyTranscript,
        media: Collection[int],
    ) -> None:
        if isinstance(edit, Replace):
            if edit.stands_for:
                self.originals[edit.original] = edit.stands_for
            elif edit.part not in media:
                self.originals[edit.original] = transcript.parts[edit.part].text
            else:
                self.external.add(edit.original)
        elif not isinstance(edit, PlaceBreakpoint | Advise):
            texts = (transcript.parts[part].text for part in parts)
            self.originals |= {reference(text): text for text in texts if text}


class LazyOriginals(Mapping[str, str]):
    """Originals by reference; records and media blocks are rendered on access."""

    def __init__(
        self,
        originals: Mapping[str, Original],
        *,
        media: Mapping[str, int],
        transcript: ReadOnlyTranscript,
        attached: Mapping[int, AttachedOriginal],
        media_block: Callable[[int], str],
    ) -> None:
        self._originals = originals
        self._media = media  # parts by reference
        self._transcript = transcript
        self._attached = attached
        self._media_block = media_block  # JSON of a part's block

    def __getitem__(self, ref: str) -> str:
        if ref in self._media:
            return self._media_block(self._media[ref])
        original = self._originals[ref]
        if isinstance(original, str):
            return original
        return "".join(render_exchanges(self._transcript, original, self._attached))

    def __contains__(self, ref: object) -> bool:
        return ref in self._originals or ref in self._media

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(chain(self._originals, self._media)))

    def __len__(self) -> int:
        return len(self._originals) + sum(ref not in self._originals for ref in self._media)

    def __reduce__(self) -> tuple[type[dict[str, str]], tuple[dict[str, str]]]:
        """Pickle as a plain dict of texts."""
        return dict, (dict(self),)

    def __repr__(self) -> str:
        return f"Originals({len(self):,})"


class RowChanges(Struct, gc=False):
    """All changes of edits to one row."""

    replaced: tuple[Replace, ...] = ()
    advised: tuple[Advise, ...] = ()
    breakpoints: tuple[PlaceBreakpoint, ...] = ()
    removed: tuple[Part, ...] = ()
    unbound: bool = False


class SettledRows(Struct, frozen=True, kw_only=True):
    """The output of the first rows of a history, until an edit changes one of them."""

    end: int  # the first row after them
    pieces: tuple[Piece, ...]
    changed_sources: frozenset[int]  # source messages among them that do not go out unchanged
    steps: int  # the number of steps read when they were settled
    prefix: bytes  # the hash of the history there
    variable_pieces: dict[int, int]  # rows that are encoded for each request: their pieces' indexes
    first_recurring: int  # the first row changed by the repair of the end; `end`: none is


class RenderedRows(Struct):
    """Derived values of a projection, shared by all states with the same edits in force."""

    changes: dict[int, RowChanges] | None = None  # by row
    variable_rows: frozenset[int] = frozenset()  # rows among them whose bytes are not cached
    rows_before_removed: frozenset[int] = frozenset()  # rows before one that loses a part
    edits: tuple[Edit, ...] | None = None  # in the order of the history
    edition: int = 0  # a number of these edits alone, in this process
    settled: SettledRows | None = None


class RowCache(Struct):
    """Encoded rows of a projection."""

    encoded: dict[int, bytes] = field(default_factory=dict[int, bytes])  # changed rows
    encoded_at_end: dict[int, bytes] = field(default_factory=dict[int, bytes])  # repaired for it
    shared: RenderedRows = field(default_factory=RenderedRows)

    @property
    def edition(self) -> int:
        """The number of the edits in force."""
        return self.shared.edition

    def copy(self) -> RowCache:
        """Return a cache that can change apart from this one."""
        return RowCache(self.encoded.copy(), self.encoded_at_end.copy(), self.shared)

    def forget(self, rows: Collection[int]) -> None:
        """Drop everything that depends on these rows."""
        for row in rows:
            self.encoded.pop(row, None)
            self.encoded_at_end.pop(row, None)
        settled = self.shared.settled
        if settled is not None and min(rows, default=0) < settled.end:
            settled = None
        self.shared = RenderedRows(settled=settled)  # other states share the old one


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
    lines: LineTokens = field(default_factory=LineTokens)  # shared by all states

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
                exact[position] = self.count_part(parts[position], counter)
            self.exact_total += exact[position]
        self.exact_count = len(parts)
        return self.exact_total

    def count_part(self, part: Part, counter: TokenCounter) -> int:
        """Return the tokens of a part; those of a result's lines are kept."""
        if part.kind != "result" or not part.text:
            return part_tokens(part, counter)
        return self.lines.count(part.text, counter) + unworded_tokens(part, counter)


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


class Account(Struct, frozen=True, gc=False):
    """Estimated bill of a conversation so far, in tokens of plain input."""

    billed: float = 0.0  # without compaction
    net: float = 0.0  # won by epochs so far, less what they cost; negative: not won back yet
    saved: int = 0  # tokens that epochs took out, no longer read with each request
    sent: int = 0  # source tokens of the last request

    def with_request(self, tokens: int, rates: Rates) -> Account:
        """The account after one more request, of so many source tokens and its head."""
        fresh = max(0, tokens - self.sent)
        billed = rates.read * (tokens - fresh) + rates.write * fresh
        return Account(self.billed + billed, self.net + rates.read * self.saved, self.saved, tokens)

    def with_epoch(self, saved: int, cost: float) -> Account:
        """The account after an epoch that takes out tokens and costs so much at once."""
        return Account(self.billed, self.net - cost, self.saved + saved, self.sent)


class StandingExchanges(Struct, frozen=True):
    """The exchanges among the first ones that no edit took out."""

    count: int = 0  # of exchanges, the ones taken out included
    ordinals: tuple[int, ...] = ()


class LatestTurn(Struct, frozen=True, gc=False):
    """The turn that was the latest one among the first units."""

    units: int = 0
    start: int = 0  # its first unit


class EvaluationState(Struct):
    """Cursors and outcomes of the evaluations so far."""

    fresh_from: int = 0  # the first part that no evaluation has seen
    due_from: int = 0  # the first part that no evaluation could touch
    aged_from: int = 0  # the first exchange that was recent at the last evaluation
    projected_tokens: int = 0  # of the projection after the last evaluation, estimated
    new_tokens: int = 0  # of the source since the last evaluation, estimated
    is_pending: bool = False  # one is due here, and takes force at the next boundary
    epochs: int = 0  # evaluations that put edits in force
    requests: int = 0  # boundaries at which a request was sent
    account: Account = Account()
    waiting: WaitingOffers = field(default_factory=WaitingOffers)
    waiting_total: tuple[int, int] | None = None  # their number and tokens; None: not counted yet
    unmet: UnmetLimits | None = None  # None: the last evaluation met all limits
    breakpoint_mode: BreakpointMode | None = None  # the client's, where a fact names it
    failures: dict[str, str] = field(default_factory=dict[str, str])  # errors by pass
    trace: list[OfferRecord] | None = None  # every offer made; None: not recorded

    def copy(self) -> EvaluationState:
        """Return a state that can change apart from this one."""
        return replace(
            self,
            waiting=self.waiting.copy(),
            failures=self.failures.copy(),
        )


class SentPrompt(Struct):
    """The part of a conversation that was sent, as the provider may have cached it."""

    parts: int = 0  # sent before the edits of the last evaluation take force
    cut: int = -1  # the first part that the last epoch changed; -1: there was none
    ends: list[int] = field(default_factory=list[int])  # parts before which a cached prefix ends

    def copy(self) -> SentPrompt:
        """Return a value that can change apart from this one."""
        return replace(self, ends=self.ends.copy())


class MediaTally(Struct):
    """The images and files that stand in the projection, and their running count."""

    counted: int = 0  # of all media so far
    parts: set[int] = field(default_factory=set[int])
    images: int = 0
    bytes: int = 0
    sides: list[int] = field(default_factory=list[int])  # pixels, sorted

    def copy(self) -> MediaTally:
        """Return a tally that can change apart from this one."""
        return replace(self, parts=self.parts.copy(), sides=self.sides.copy())

    def include(self, media: dict[int, HeldMedia], claimed: Collection[int]) -> None:
        """Count the media that came since the last time."""
        more = len(media) - self.counted
        self.counted = len(media)
        for part in islice(reversed(media), more):
            if part not in claimed:
                self.add(media[part])

    def add(self, one: HeldMedia) -> None:
        """Count one that stands again, or for the first time."""
        self.parts.add(one.part)
        self.images += one.unit == "image"
        self.bytes += one.bytes
        insort(self.sides, one.side)

    def remove(self, one: HeldMedia) -> None:
        """Count one less: an edit replaces it."""
        self.parts.remove(one.part)
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
    repeats: list[RepeatedRequest] = field(default_factory=list[RepeatedRequest])  # of whole ones

    def copy(self) -> RefetchLog:
        """Return a log that can grow apart from this one."""
        return replace(
            self,
            fetched_back=self.fetched_back.copy(),
            found=self.found.copy(),
            repeats=self.repeats.copy(),
        )


class Analysis(Struct):
    """Indexes of a conversation, shared by its states, and the part of them that is read here."""

    ledger: Ledger = field(default_factory=Ledger)
    ledger_exchanges: int = 0  # exchanges of this state in the ledger
    mentions: Mentions = field(default_factory=make_mentions)
    mentioned_units: int = 0  # units of this state in the mentions
    mimicry: list[Mimicry] = field(default_factory=list[Mimicry])
    references: ReferenceCache = field(default_factory=ReferenceCache)  # of results
    listed_tool: str | None = None  # the expand tool, where a list of deferred tools names it
    standing: StandingExchanges = StandingExchanges()  # when they were last asked for
    turn: LatestTurn = LatestTurn()  # the same

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


class PendingEvaluation(Struct, eq=False):
    """The outcome of an evaluation that takes force at the next boundary, for all who need it.

    Whoever comes first computes it and holds the lock meanwhile.
    """

    lock: Lock = field(default_factory=Lock)
    outcome: State | None = None  # None: not computed yet


class State(Struct, kw_only=True):
    """State of a fold after a number of messages."""

    transcript: TranscriptIndex = field(default_factory=TranscriptIndex)
    tokens: TokenTally = field(default_factory=TokenTally)
    edits: EditSet = field(default_factory=EditSet)
    repairs: RepairLog = field(default_factory=RepairLog)
    evaluation: EvaluationState = field(default_factory=EvaluationState)
    sent: SentPrompt = field(default_factory=SentPrompt)
    window: WindowUse = field(default_factory=WindowUse)
    refetches: RefetchLog = field(default_factory=RefetchLog)
    analysis: Analysis = field(default_factory=Analysis)
    rendered: RowCache = field(default_factory=RowCache)
    prefix: Prefix = field(default_factory=Prefix)
    pending: PendingEvaluation | None = None  # of a state that others may extend, too

    def copy(self) -> State:
        """Return a state that can grow apart from this one."""
        return State(
            transcript=self.transcript.copy(),
            tokens=self.tokens.copy(),
            edits=self.edits.copy(),
            repairs=self.repairs.copy(),
            evaluation=self.evaluation.copy(),
            sent=self.sent.copy(),
            window=self.window.copy(),
            refetches=self.refetches.copy(),
            analysis=self.analysis.copy(),
            rendered=self.rendered.copy(),
            prefix=self.prefix.copy(),
            pending=self.pending,
        )

    def become(self, other: State) -> None:
        """Take over all that another state has, which is not used any more."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(other, name))

    def share(self) -> State:
        """Return a state that reads all that this one has; neither may be extended."""
        return replace(self, tokens=replace(self.tokens), rendered=replace(self.rendered))

    @property
    def estimated_tokens(self) -> int:
        """Tokens of the projection without its head, estimated."""
        return self.tokens.estimated_total - self.edits.saved

    @property
    def standing_tokens(self) -> int:
        """Tokens of the source without what edits took out, estimated."""
        return self.tokens.estimated_total - self.edits.removed

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
        edit = self.edits.by_part.get(part)
        if edit is not None:
            for one in self._media_of(edit):
                if one.part in self.edits.claimed:
                    self.window.tally.add(one)
            self.rendered.forget(self.edits.withdraw(part, self.transcript))
            if isinstance(edit, DropExchange):
                self.analysis.standing = StandingExchanges()

    def standing_exchanges(self) -> tuple[int, ...]:
        """The exchanges that no edit took out; those that one did are looked at once."""
        known, exchanges = self.analysis.standing, self.transcript.exchanges
        by_part, claimed = self.edits.by_part, self.edits.claimed
        count = len(exchanges)
        calls = [
            (ordinal, exchanges[ordinal].call)
            for ordinal in chain(known.ordinals, range(known.count, count))
        ]
        ordinals = tuple(
            [
                ordinal
                for ordinal, call in calls
                if call not in claimed or not isinstance(by_part.get(call), DropExchange | None)
            ]
        )
        self.analysis.standing = StandingExchanges(count, ordinals)
        return ordinals

    def latest_turn_start(self) -> int:
        """The first unit of the latest turn; each unit is looked at once."""
        known, units = self.analysis.turn, len(self.transcript.units)
        later = range(units - 1, known.units - 1, -1)
        start = next((one for one in later if is_turn_start(self.transcript, one)), known.start)
        self.analysis.turn = LatestTurn(units, start)
        return start

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
