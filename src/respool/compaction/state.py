"""Context of a fold, and its state after a number of messages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from ..edits import (
    FOLDED,
    Advise,
    DropExchange,
    Edit,
    Offer,
    PlaceBreakpoint,
    Replace,
    touched_parts,
    touched_rows,
)
from ..facts import BreakpointMode, Facts
from ..forecast.mentions import Mentions
from ..history.ledger import Ledger
from ..history.refetches import Refetch
from ..limits import HeldMedia, RequestLimits
from ..markers import append_advice, reference
from ..passes import Pass
from ..policy import Policy
from ..pricing import NO_CACHE, Rates
from ..providers.base import Codec, ProviderRules, Repair, Repairer, RuleState
from ..providers.bound_reasoning import Binding
from ..summaries.batch import AttachedOriginal, render_exchanges
from ..tokens import TokenCounter, part_tokens
from ..transcript import Part, ReadOnlyTranscript, TranscriptIndex
from ..wire.base import Fields, Piece
from ..wire.json import JSON
from .mimicry import Mimicry
from .offers import OfferRecord

Original = str | tuple[int, ...]  # a text, or the exchanges whose record it is


class LazyOriginals(Mapping[str, str]):
    """Originals by reference. Records and images are put together only when they are asked for."""

    def __init__(
        self,
        kept: Mapping[str, Original],
        images: Mapping[str, int],
        history: ReadOnlyTranscript,
        held: Mapping[int, AttachedOriginal],
        block: Callable[[int], str],
    ) -> None:
        self._kept = kept
        self._images = images  # by reference their parts
        self._history = history
        self._held = held
        self._block = block  # what an image's block says

    def __getitem__(self, ref: str) -> str:
        if ref in self._images:
            return self._block(self._images[ref])
        original = self._kept[ref]
        if isinstance(original, str):
            return original
        return "".join(render_exchanges(self._history, original, self._held))

    def __contains__(self, ref: object) -> bool:
        return ref in self._kept or ref in self._images

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(chain(self._kept, self._images)))

    def __len__(self) -> int:
        return len(self._kept) + sum(ref not in self._kept for ref in self._images)

    def __reduce__(self) -> tuple[type[dict[str, str]], tuple[dict[str, str]]]:
        """Copied and sent to other processes as the texts alone."""
        return dict, (dict(self),)

    def __repr__(self) -> str:
        return f"Originals({len(self):,})"


_UNBOUND = Binding("nothing", "all")
_NO_LIMITS = RequestLimits()


class Context(Struct, frozen=True):
    """All that a fold depends on beside the history itself."""

    codec: Codec
    rules: ProviderRules
    repairer: Repairer
    counter: TokenCounter
    sizer: (
        TokenCounter  # the counter where it is quick, else the estimate, which decides when to look
    )
    policy: Policy
    passes: tuple[Pass, ...]
    definitions: Mapping[str, Any]  # the request's own tools, by name
    facts: Facts
    fields: Fields | None
    encode: Callable[[int | None, JSON], bytes | None]  # how the request spells a changed message
    fetch_tool: str | None = None  # which of those tools gives originals back
    head: int = 0  # tokens of system prompt and tools
    rates: Rates = NO_CACHE
    binding: Binding = _UNBOUND
    limits: RequestLimits = _NO_LIMITS
    output_tokens: int = 0  # tokens that the request asks for, for which room is kept
    start: bytes = b""  # the memo's key of a history without a message, where it is known already


class RepairedStep(Struct, frozen=True):
    """A step that repair changed; one whose spelling may vary is mended anew in each request."""

    at: int  # its first source message
    length: int  # how many source messages it has
    split: int  # how many of them are the model's
    row: int  # its first row
    changed: dict[int, JSON]  # rows that are not the source's own, as mended here
    is_variable: bool  # has marks, or words that clients spell in two ways
    seen: RuleState  # of what had been seen before it, all that mending looked at


class RowChanges(Struct, gc=False):
    """All that edits do to one row."""

    replaced: tuple[Replace, ...] = ()
    advised: tuple[Advise, ...] = ()
    marked: tuple[PlaceBreakpoint, ...] = ()
    removed: tuple[Part, ...] = ()
    unbound: bool = False


class SettledRows(Struct, frozen=True):
    """What the first rows of a history go out as, until an edit changes one of them."""

    end: int  # the first row after them
    pieces: tuple[Piece, ...]
    changed_sources: frozenset[int]  # source messages among them that do not go out as they came
    steps: int  # after how many steps that was known
    prefix: bytes  # the hash of the history there
    variable_pieces: dict[
        int, int
    ]  # rows that are spelled each time, and which of the pieces they are
    lasting: int  # the first of them that is as the end of the history needs it; `end`: none is


class RenderedRows(Struct):
    """What is remembered of a projection; shared by all states with the same edits in force."""

    changes: dict[int, RowChanges] | None = None  # by row
    variable_rows: frozenset[int] = frozenset()  # rows among them whose bytes are not remembered
    rows_before_removed: frozenset[int] = (
        frozenset()
    )  # rows before one that something is taken out of
    edits: tuple[Edit, ...] | None = None  # in the order of the history
    edition: int = 0  # a number of these edits alone, in this process
    settled: SettledRows | None = None


_NO_FACTS = Facts()


class State(Struct):
    """What is known after so many messages; copied at a boundary, and then only extended."""

    index: TranscriptIndex = field(default_factory=TranscriptIndex)
    seen: RuleState = field(default_factory=RuleState)
    sizes: list[int] = field(default_factory=list[int])  # of each part, about, in tokens
    tokens: list[int] = field(default_factory=list[int])  # the same exactly; -1: not counted yet
    sources: list[int | None] = field(default_factory=list[int | None])  # of each row
    mended: list[RepairedStep] = field(default_factory=list[RepairedStep])
    repairs: list[Repair] = field(default_factory=list[Repair])
    edits: dict[int, Edit] = field(default_factory=dict[int, Edit])  # in force, by part
    claimed: set[int] = field(default_factory=set[int])  # all parts that edits in force touch
    advice: dict[int, Advise] = field(default_factory=dict[int, Advise])  # by part, beside edits
    leans: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])  # by edit
    originals: dict[str, Original] = field(default_factory=dict[str, Original])
    failures: dict[str, str] = field(default_factory=dict[str, str])  # pass -> what went wrong
    encoded: dict[int, bytes] = field(default_factory=dict[int, bytes])  # changed rows' bytes
    ended: dict[int, bytes] = field(default_factory=dict[int, bytes])  # as the end needs them
    rendered: RenderedRows = field(default_factory=RenderedRows)
    messages: int = 0  # source messages read
    size: int = 0  # of all parts together, about, in tokens
    exact: int = 0  # of the first parts, exactly
    counted: int = 0  # how many parts those are
    repair_tokens: int = 0  # tokens that repair added, or took away
    saved: int = 0
    fresh_from: int = 0  # the first part that no evaluation has looked at
    due_from: int = 0  # the first that none could touch
    left_over: int = 0  # tokens of the projection after the last evaluation, about
    since: int = 0  # tokens of the source since the last evaluation
    epochs: int = 0  # evaluations that put edits in force
    requests: int = 0  # boundaries at which a request was sent
    pool: dict[tuple[str, int], tuple[Offer, ...]] = field(  # that wait, by pass and part
        default_factory=dict[tuple[str, int], tuple[Offer, ...]]
    )
    held: dict[int, HeldMedia] = field(
        default_factory=dict[int, HeldMedia]
    )  # images and files, by part
    window: int | None = None  # what an overflow error said would fit
    max_request_tokens: float = 0  # tokens that a request had so far, head and doubt counted
    was_near_limit: bool = False  # at some time they were so many that it mattered what fits
    output_tokens: int = 0  # tokens that the last request asked for
    breakpoint_mode: BreakpointMode | None = (
        None  # how the client marked by now, where a fact tells
    )
    cut: int = -1  # the part before which the last epoch began; -1: there was none
    ends: list[int] = field(default_factory=list[int])  # parts before which a cached prefix ends
    left_alone: bool = False
    prefix: bytes = b""  # the chained hash of the history so far, the same on every machine
    boundaries: list[bytes] = field(default_factory=list[bytes])  # that hash after each step
    facts: Facts = _NO_FACTS  # under which this was folded
    first_user: tuple[int, int] = (-1, -1)
    ledger: Ledger = field(default_factory=Ledger)  # shared along the conversation
    ledger_exchanges: int = 0  # exchanges that stand in the ledger
    mentions: Mentions = field(default_factory=Mentions)  # shared along the conversation, too
    mentioned_units: int = 0  # units that stand in it
    aged_from: int = 0  # the first exchange that was recent at the last evaluation
    fetched: dict[str, int] = field(default_factory=dict[str, int])  # text -> its last exchange
    elsewhere: set[str] = field(default_factory=set[str])  # references of other originals than ours
    refetched: list[Refetch] = field(default_factory=list[Refetch])  # after a cut
    refetch_pins: frozenset[int] = frozenset()  # the exchanges among them that stay
    repeated_requests: int = 0  # exchanges that asked again for what stood there whole
    mimicry: list[Mimicry] = field(default_factory=list[Mimicry])
    trace: list[OfferRecord] | None = None  # every offer made, where someone wants to know

    def copy(self) -> State:
        """A state that can grow apart from this one."""
        return replace(self, **{name: getattr(self, name).copy() for name in _COPIED_FIELDS})

    def dependents(self) -> dict[int, set[int]]:
        """The parts that edits in force need whole, each with the parts of those edits."""
        found: dict[int, set[int]] = {}
        for leaner, parts in self.leans.items():
            for part in parts:
                found.setdefault(part, set()).add(leaner)
        return found

    def take(self, edits: Iterable[Edit]) -> None:
        """Put edits in force, in place of those on the same parts, and keep the originals."""
        for edit in edits:
            if isinstance(edit, Advise):
                self._advise(edit)
                continue
            parts = touched_parts(edit, self.index)
            for part in parts:
                self._withdraw(part)
                if isinstance(edit, DropExchange) or edit.reason == FOLDED:
                    self.withdraw_advice(part)  # it goes with what it was said of
            self.edits[parts[0]] = edit
            self.claimed.update(parts)
            self.saved += edit.saved
            self._forget_rows(touched_rows(edit, self.index))
            self._keep_originals(edit, parts)

    def _advise(self, edit: Advise) -> None:
        """Put advice at the end of a result, beside whatever edit is in force there."""
        self.withdraw_advice(edit.part)
        self.advice[edit.part] = edit
        self.saved += edit.saved
        self._forget_rows({edit.ref.row})

    def withdraw_advice(self, part: int) -> None:
        """Take advice back, if any was given there."""
        before = self.advice.pop(part, None)
        if before is not None:
            self.saved -= before.saved
            self._forget_rows({before.ref.row})

    def recount_advice(self, parts: Iterable[int], counter: TokenCounter) -> None:
        """Count again what advice adds to these parts, for what they say has changed."""
        for part in self.advice.keys() & set(parts):
            edit, count = self.advice[part], counter.count
            said = self.text_of(part)
            self._advise(replace(edit, saved=count(said) - count(append_advice(said, edit.text))))

    def text_of(self, part: int) -> str:
        """What a part says in the projection, advice aside."""
        edit = self.edits.get(part)
        return edit.text if isinstance(edit, Replace) else self.index.parts[part].text

    def withdraw(self, part: int) -> None:
        """Let a part say again what it said."""
        edit = self.edits.get(part)
        if edit is None:
            return
        parts, rows = touched_parts(edit, self.index), touched_rows(edit, self.index)
        self._withdraw(part)
        self.claimed.difference_update(parts)
        self._forget_rows(rows)

    def _forget_rows(self, rows: Collection[int]) -> None:
        """Forget how these rows, and what may hang together with them, go out."""
        for row in rows:
            self.encoded.pop(row, None)
            self.ended.pop(row, None)
        settled = self.rendered.settled
        if settled is not None and min(rows, default=0) < settled.end:
            settled = None
        self.rendered = RenderedRows(settled=settled)  # not the one that others share

    def _withdraw(self, part: int) -> None:
        before = self.edits.pop(part, None)
        self.leans.pop(part, None)
        if before is not None:
            self.saved -= before.saved

    def _keep_originals(self, edit: Edit, parts: Iterable[int]) -> None:
        if isinstance(edit, Replace):
            if edit.stands_for:
                self.originals[edit.original] = edit.stands_for
            elif edit.part not in self.held:
                self.originals[edit.original] = self.index.parts[edit.part].text
            else:  # whose original is in the request at hand
                self.elsewhere.add(edit.original)
        elif not isinstance(edit, PlaceBreakpoint | Advise):
            texts = (self.index.parts[part].text for part in parts)
            self.originals |= {reference(text): text for text in texts if text}


_COPIED_FIELDS = (
    "index", "seen", "sizes", "tokens", "sources", "mended", "repairs", "edits", "claimed",
    "leans", "originals", "failures", "encoded", "ended", "boundaries", "fetched", "elsewhere",
    "mimicry", "pool", "held", "advice", "refetched", "ends",
)  # fmt: skip


def count_parts(state: State, counter: TokenCounter) -> int:
    """Tokens of all parts; what was not counted yet is counted now, and remembered."""
    tokens, parts = state.tokens, state.index.parts
    for position in range(state.counted, len(parts)):
        if tokens[position] < 0:
            tokens[position] = part_tokens(parts[position], counter)
        state.exact += tokens[position]
    state.counted = len(parts)
    return state.exact
