"""What a fold depends on, and what it knows after so many messages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from ..binding import Binding
from ..check.rules import Rules, Seen
from ..codecs.body import Piece
from ..codecs.codec import Codec, Fields
from ..codecs.json_tree import JSON
from ..edits import FOLDED, Advise, DropExchange, Edit, Offer, PlaceMark, Replace
from ..facts import Facts, Marks
from ..forecast.mentions import Mentions
from ..ledger.ledger import Ledger
from ..limits import Held, Limits
from ..marker import advised, reference
from ..passes import Pass
from ..planning.rates import NO_CACHE, Rates
from ..planning.tracing import Traced
from ..policy import Policy
from ..repair.mending import Mender, Repair
from ..tokens import Counter, part_tokens
from ..touching import rows_of, touched
from ..transcript import Index, Part
from .mimicry import Mimicry
from .originals import Original
from .refetching import Refetched

_UNBOUND = Binding("nothing", "all")
_NO_LIMITS = Limits()


class Setting(Struct, frozen=True):
    """All that a fold depends on beside the history itself."""

    codec: Codec
    rules: Rules
    repairer: Mender
    counter: Counter
    sizer: Counter  # the counter where it is quick, else the estimate, which decides when to look
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
    limits: Limits = _NO_LIMITS
    output_tokens: int = 0  # tokens that the request asks for, for which room is kept
    start: bytes = b""  # the memo's key of a history without a message, where it is known already


class MendedStep(Struct, frozen=True):
    """A step that repair changed; one whose spelling may vary is mended anew in each request."""

    at: int  # its first source message
    length: int  # how many source messages it has
    split: int  # how many of them are the model's
    row: int  # its first row
    changed: dict[int, JSON]  # rows that are not the source's own, as mended here
    is_variable: bool  # has marks, or words that clients spell in two ways
    seen: Seen  # of what had been seen before it, all that mending looked at


class RowChanges(Struct, gc=False):
    """All that edits do to one row."""

    replaced: tuple[Replace, ...] = ()
    advised: tuple[Advise, ...] = ()
    marked: tuple[PlaceMark, ...] = ()
    removed: tuple[Part, ...] = ()
    unbound: bool = False


class Settled(Struct, frozen=True):
    """What the first rows of a history go out as, until an edit changes one of them."""

    end: int  # the first row after them
    pieces: tuple[Piece, ...]
    changed_sources: frozenset[int]  # source messages among them that do not go out as they came
    steps: int  # after how many steps that was known
    prefix: bytes  # the hash of the history there
    variable_pieces: dict[int, int]  # rows that are spelled each time, and which of the pieces they are
    lasting: int  # the first of them that is as the end of the history needs it; `end`: none is


class Outgoing(Struct):
    """What is remembered of a projection; shared by all states with the same edits in force."""

    changes: dict[int, RowChanges] | None = None  # by row
    variable_rows: frozenset[int] = frozenset()  # rows among them whose bytes are not remembered
    rows_before_removed: frozenset[int] = frozenset()  # rows before one that something is taken out of
    edits: tuple[Edit, ...] | None = None  # in the order of the history
    edition: int = 0  # a number of these edits alone, in this process
    settled: Settled | None = None


_NO_FACTS = Facts()


class State(Struct):
    """What is known after so many messages; copied at a boundary, and then only extended."""

    index: Index = field(default_factory=Index)
    seen: Seen = field(default_factory=Seen)
    sizes: list[int] = field(default_factory=list[int])  # of each part, about, in tokens
    tokens: list[int] = field(default_factory=list[int])  # the same exactly; -1: not counted yet
    sources: list[int | None] = field(default_factory=list[int | None])  # of each row
    mended: list[MendedStep] = field(default_factory=list[MendedStep])
    repairs: list[Repair] = field(default_factory=list[Repair])
    edits: dict[int, Edit] = field(default_factory=dict[int, Edit])  # in force, by part
    claimed: set[int] = field(default_factory=set[int])  # all parts that edits in force touch
    advice: dict[int, Advise] = field(default_factory=dict[int, Advise])  # by part, beside edits
    leans: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])  # by edit
    originals: dict[str, Original] = field(default_factory=dict[str, Original])
    failures: dict[str, str] = field(default_factory=dict[str, str])  # pass -> what went wrong
    encoded: dict[int, bytes] = field(default_factory=dict[int, bytes])  # changed rows' bytes
    ended: dict[int, bytes] = field(default_factory=dict[int, bytes])  # as the end needs them
    rendered: Outgoing = field(default_factory=Outgoing)
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
    held: dict[int, Held] = field(default_factory=dict[int, Held])  # images and files, by part
    window: int | None = None  # what an overflow error said would fit
    max_request_tokens: float = 0  # tokens that a request had so far, head and doubt counted
    was_near_limit: bool = False  # at some time they were so many that it mattered what fits
    output_tokens: int = 0  # tokens that the last request asked for
    breakpoint_mode: Marks | None = None  # how the client marked by now, where a fact tells
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
    refetched: list[Refetched] = field(default_factory=list[Refetched])  # after a cut
    refetch_pins: frozenset[int] = frozenset()  # the exchanges among them that stay
    repeated_requests: int = 0  # exchanges that asked again for what stood there whole
    mimicry: list[Mimicry] = field(default_factory=list[Mimicry])
    trace: list[Traced] | None = None  # every offer made, where someone wants to know

    def copy(self) -> State:
        """A state that can grow apart from this one."""
        return replace(self, **{name: getattr(self, name).copy() for name in _GROWING})

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
            parts = touched(edit, self.index)
            for part in parts:
                self._withdraw(part)
                if isinstance(edit, DropExchange) or edit.reason == FOLDED:
                    self.withdraw_advice(part)  # it goes with what it was said of
            self.edits[parts[0]] = edit
            self.claimed.update(parts)
            self.saved += edit.saved
            self._forget_rows(rows_of(edit, self.index))
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

    def recount_advice(self, parts: Iterable[int], counter: Counter) -> None:
        """Count again what advice adds to these parts, for what they say has changed."""
        for part in self.advice.keys() & set(parts):
            edit, count = self.advice[part], counter.count
            said = self.text_of(part)
            self._advise(replace(edit, saved=count(said) - count(advised(said, edit.text))))

    def text_of(self, part: int) -> str:
        """What a part says in the projection, advice aside."""
        edit = self.edits.get(part)
        return edit.text if isinstance(edit, Replace) else self.index.parts[part].text

    def withdraw(self, part: int) -> None:
        """Let a part say again what it said."""
        edit = self.edits.get(part)
        if edit is None:
            return
        parts, rows = touched(edit, self.index), rows_of(edit, self.index)
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
        self.rendered = Outgoing(settled=settled)  # not the one that others share

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
        elif not isinstance(edit, PlaceMark | Advise):
            texts = (self.index.parts[part].text for part in parts)
            self.originals |= {reference(text): text for text in texts if text}


_GROWING = (
    "index", "seen", "sizes", "tokens", "sources", "mended", "repairs", "edits", "claimed",
    "leans", "originals", "failures", "encoded", "ended", "boundaries", "fetched", "elsewhere",
    "mimicry", "pool", "held", "advice", "refetched", "ends",
)  # fmt: skip


def count_all(state: State, counter: Counter) -> int:
    """Tokens of all parts; what was not counted yet is counted now, and remembered."""
    tokens, parts = state.tokens, state.index.parts
    for position in range(state.counted, len(parts)):
        if tokens[position] < 0:
            tokens[position] = part_tokens(parts[position], counter)
        state.exact += tokens[position]
    state.counted = len(parts)
    return state.exact
