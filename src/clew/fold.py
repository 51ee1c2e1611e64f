"""The history folded over its request boundaries: what was in force when each request was sent."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from .check.rules import Rules, Seen, Step, steps_of
from .check.watching import watched, what_was_seen
from .codecs.codec import Codec, Fields
from .codecs.json_tree import JSON, Object
from .codecs.marks import marks_in
from .codecs.words import as_words
from .edits import Edit, Offer, PlaceMark, Replace
from .facts import Facts
from .ledger import Ledger
from .marker import reference
from .mimicry import Mimicry, mimicry_in
from .passes import OPT_IN, PASSES, Pass
from .passes.moments import acts_at_arrival, acts_at_epochs
from .passes.view import View
from .planner import choose
from .policy import Policy
from .protections import Protections, fetched_back
from .registered import name_of
from .repair.mending import Mended, Mender, Repair
from .tokens import Counter, part_tokens
from .touching import rows_of, touched
from .tracing import Traced, traced
from .transcript import Index, Part
from .vetting import vet


class Setting(Struct, frozen=True):
    """All that a fold depends on beside the history itself."""

    codec: Codec
    rules: Rules
    mender: Mender
    counter: Counter
    sizer: Counter  # the counter where it is quick, else the estimate, which decides when to look
    policy: Policy
    passes: tuple[Pass, ...]
    definitions: Mapping[str, Any]  # the request's own tools, by name
    facts: Facts
    fields: Fields | None
    encode: Callable[[int | None, JSON], bytes | None]  # how the request spells a changed message
    fetch: str | None = None  # which of those tools gives originals back
    head: int = 0  # tokens of system prompt and tools, where a budget has to count them


class MendedStep(Struct, frozen=True):
    """A step that repair changed; one whose spelling may vary is mended anew in each request."""

    at: int  # its first source message
    length: int  # how many source messages it has
    split: int  # how many of them are the model's
    row: int  # its first row
    changed: dict[int, JSON]  # rows that are not the source's own, as mended here
    varies: bool  # has marks, or words that clients spell in two ways
    seen: Seen  # of what had been seen before it, all that mending looked at


_NO_FACTS = Facts()
_WORDED = ("user", "system", "developer")  # the roles whose messages may be only words


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
    leans: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])  # by edit
    originals: dict[str, str] = field(default_factory=dict[str, str])
    failures: dict[str, str] = field(default_factory=dict[str, str])  # pass -> what went wrong
    encoded: dict[int, bytes] = field(default_factory=dict[int, bytes])  # changed rows' bytes
    messages: int = 0  # source messages read
    size: int = 0  # of all parts together, about, in tokens
    mended_by: int = 0  # tokens that repair added, or took away
    saved: int = 0
    fresh_from: int = 0  # the first part that no evaluation has looked at
    since: int = 0  # tokens of the source since the last evaluation
    epochs: int = 0  # evaluations that put edits in force
    left_alone: bool = False
    prefix: bytes = b""  # the chained hash of the history so far, the same on every machine
    boundaries: list[bytes] = field(default_factory=list[bytes])  # that hash after each step
    facts: Facts = _NO_FACTS  # under which this was folded
    first_user: tuple[int, int] = (-1, -1)
    ledger: Ledger = field(default_factory=Ledger)  # shared along the conversation
    noted: int = 0  # exchanges that stand in the ledger
    aged_from: int = 0  # the first exchange that was recent at the last evaluation
    fetched: dict[str, int] = field(default_factory=dict[str, int])  # text -> its last exchange
    mimicry: list[Mimicry] = field(default_factory=list[Mimicry])
    trace: list[Traced] | None = None  # every offer made, where someone wants to know

    def copy(self) -> State:
        """A state that can grow apart from this one."""
        return replace(self, **{name: getattr(self, name).copy() for name in _GROWING})

    def leaned_on(self) -> dict[int, set[int]]:
        """The parts that edits in force need whole, each with the parts of those edits."""
        found: dict[int, set[int]] = {}
        for leaner, parts in self.leans.items():
            for part in parts:
                found.setdefault(part, set()).add(leaner)
        return found

    def take(self, edits: Iterable[Edit]) -> None:
        """Put edits in force, in place of those on the same parts, and keep the originals."""
        for edit in edits:
            parts = touched(edit, self.index)
            for part in parts:
                self._withdraw(part)
            self.edits[parts[0]] = edit
            self.claimed.update(parts)
            self.saved += edit.saved
            for row in rows_of(edit, self.index):
                self.encoded.pop(row, None)
            self._keep_originals(edit, parts)

    def _withdraw(self, part: int) -> None:
        before = self.edits.pop(part, None)
        self.leans.pop(part, None)
        if before is not None:
            self.saved -= before.saved

    def _keep_originals(self, edit: Edit, parts: Iterable[int]) -> None:
        if isinstance(edit, Replace):
            self.originals[edit.original] = self.index.parts[edit.part].text
        elif not isinstance(edit, PlaceMark):
            texts = (self.index.parts[part].text for part in parts)
            self.originals |= {reference(text): text for text in texts if text}


_GROWING = (
    "index", "seen", "sizes", "tokens", "sources", "mended", "repairs", "edits", "claimed",
    "leans", "originals", "failures", "encoded", "boundaries", "fetched", "mimicry",
)  # fmt: skip


def first_prefix(format: str) -> bytes:
    """The hash that the chain of a history in this format starts with."""
    return sha256(format.encode()).digest()


def agrees(state: State, facts: Facts) -> bool:
    """Whether a state that was folded under other facts is the one these facts give."""
    if facts == state.facts:
        return True
    changed = (facts.skipped ^ state.facts.skipped) | (facts.left_alone ^ state.facts.left_alone)
    return changed.isdisjoint(boundary.hex() for boundary in state.boundaries)


def fold_step(state: State, step: Step, identities: Iterable[bytes], setting: Setting) -> None:
    """Read one more step: mend it, index its parts, and evaluate where a request was sent."""
    link = sha256(state.prefix)
    for identity in identities:
        link.update(identity)
    state.prefix = link.digest()
    state.boundaries.append(state.prefix)
    state.facts = setting.facts
    prefix = state.prefix.hex()
    mended = (
        setting.mender.step(step, state.seen, setting.fields) if setting.policy.repair else None
    )
    before = state.size
    if mended is None:
        sources = range(step.at, step.at + len(step.messages))
        first = _read_rows(state, step.messages, sources, setting)
        setting.rules.advance(Step(step.messages, first, step.split), state.seen)
    else:
        _read_mended(state, step, mended, setting)
    state.messages = step.at + len(step.messages)
    state.since += state.size - before
    _look_at_new(state)
    if prefix in setting.facts.left_alone:
        state.left_alone = True
    sent = len(step.messages) > step.split
    if not sent or prefix in setting.facts.skipped or state.left_alone:
        return
    note_uses(state, setting)
    arrive(state, setting)
    if is_due(state, setting.policy, setting.head):
        evaluate(state, setting)


def _read_mended(state: State, step: Step, mended: Mended, setting: Setting) -> None:
    state.mended.append(_record(state, step, mended, setting))
    state.repairs += mended.repairs
    messages = [row.message for row in mended.rows]
    first = _read_rows(state, messages, [row.source for row in mended.rows], setting)
    for sub in steps_of(setting.codec, messages):  # a mended step may hold more than one run
        setting.rules.advance(Step(sub.messages, first + sub.at, sub.split), state.seen)
    state.mended_by += _tokens_in(messages, setting) - _tokens_in(step.messages, setting)


def _tokens_in(messages: Sequence[JSON], setting: Setting) -> int:
    """Tokens of messages outside the history."""
    parts = (part for message in messages for part in setting.codec.read(0, message))
    return sum(part_tokens(part, setting.counter) for part in parts)


def _record(state: State, step: Step, mended: Mended, setting: Setting) -> MendedStep:
    first = len(state.sources)
    changed = {
        first + offset: row.message
        for offset, row in enumerate(mended.rows)
        if row.source is None or row.message is not step.messages[row.source - step.at]
    }
    varies = any(marks_in(message) or _is_words(message) for message in step.messages)
    if not varies:
        for row, message in changed.items():
            encoded = setting.encode(mended.rows[row - first].source, message)
            if encoded is not None:
                state.encoded[row] = encoded
    looked = watched(state.seen)
    setting.mender.step(step, looked, setting.fields)
    return MendedStep(
        step.at, len(step.messages), step.split, first, changed, varies, what_was_seen(looked)
    )


def _is_words(message: JSON) -> bool:
    """Whether a message may be only words, which are the same as a string and as one block."""
    holder: Object = message
    if not isinstance(message, dict) or holder.get("role") not in _WORDED:
        return False
    return isinstance(holder.get("content"), str) or as_words(holder) is not holder


def _read_rows(
    state: State, messages: Sequence[JSON], sources: Sequence[int | None], setting: Setting
) -> int:
    """Index the parts of these rows as one unit and count them; returns the first row."""
    codec = setting.codec
    first = len(state.sources)
    model: list[Part] = []
    answers: list[Part] = []
    for row, message in enumerate(messages, first):
        read = codec.read(row, message)
        if codec.model_made(message):
            model += read
        else:
            answers += read
    state.sources += sources
    unit = state.index.add_unit((first, len(state.sources)), model, answers, codec.locks(model))
    sizes = [part_tokens(part, setting.sizer) for part in (*model, *answers)]
    state.sizes += sizes
    state.tokens += sizes if setting.sizer is setting.counter else [-1] * len(sizes)
    state.size += sum(sizes)
    if state.first_user[0] < 0:
        state.first_user = _first_user(state.index.parts, unit.parts[0])
    return first


def _first_user(parts: Sequence[Part], start: int) -> tuple[int, int]:
    """The parts of the first message that the user wrote."""
    for position in range(start, len(parts)):
        if parts[position].speaker == "user":
            row = parts[position].ref.row
            end = position
            while end < len(parts) and parts[end].ref.row == row:
                end += 1
            return position, end
    return -1, -1


def _look_at_new(state: State) -> None:
    """Note what the model has of clew's own words, and what came back that was taken out."""
    index, unit = state.index, state.index.units[-1]
    state.mimicry += mimicry_in(index.parts[unit.parts[0] : unit.answers])
    results = index.results[bisect_left(index.results, unit.parts[0]) :]
    if results:
        state.fetched |= fetched_back(index, results, state.originals)


def count_all(state: State, counter: Counter) -> int:
    """Tokens of all parts; what was not counted yet is counted now, and remembered."""
    tokens, parts = state.tokens, state.index.parts
    for position, known in enumerate(tokens):
        if known < 0:
            tokens[position] = part_tokens(parts[position], counter)
    return sum(tokens)


def is_due(state: State, policy: Policy, head: int = 0) -> bool:
    """Whether another evaluation is worth its time: enough is new, or the budget is exceeded."""
    projection = state.size - state.saved
    if policy.budget is not None and projection + head > policy.budget:
        return True
    return state.since >= max(policy.step, policy.growth * projection)


def note_uses(state: State, setting: Setting) -> None:
    """Write what the new calls did into the ledger; on a fork, all of them into a new one."""
    exchanges, parts, tools = state.index.exchanges, state.index.parts, setting.policy.tools
    new = exchanges[state.noted :]
    if not state.ledger.extend(state.noted, new, parts, tools, setting.definitions):
        state.ledger = Ledger()
        state.ledger.extend(0, exchanges, parts, tools, setting.definitions)
    state.noted = len(exchanges)


def arrive(state: State, setting: Setting) -> None:
    """Take what passes offer on results that just came: they were never sent, so it is free."""
    arriving = [one for one in setting.passes if acts_at_arrival(one)]
    unseen_from = state.index.units[-1].answers
    if not arriving or unseen_from == len(state.index.parts):
        return
    _take_offers(state, setting, arriving, _view(state, setting, unseen_from, arrival=True))


def evaluate(state: State, setting: Setting) -> None:
    """Let every pass offer on what was sent, and take what the planner chooses."""
    unseen_from = state.index.units[-1].answers
    state.since = sum(state.sizes[unseen_from:])  # what no pass could touch yet is still to come
    view = _view(state, setting, unseen_from, arrival=False)
    acting = [one for one in setting.passes if acts_at_epochs(one)]
    state.epochs += _take_offers(state, setting, acting, view)
    state.fresh_from = unseen_from
    state.aged_from = max(state.aged_from, view.seen_exchanges() - view.keep)


def _view(state: State, setting: Setting, unseen_from: int, *, arrival: bool) -> View:
    fetched = frozenset(state.fetched.values())
    return View(
        state.index, state.tokens, state.fresh_from, unseen_from, state.first_user,
        setting.counter, state.edits, state.claimed, state.ledger, arrival, state.aged_from,
        setting.policy.keep_recent,
        Protections(state.index, state.ledger, setting.policy, fetched, arrival=arrival),
        setting.fetch,
        setting.codec.name, setting.fields, setting.head + state.size - state.saved, state.leans,
    )  # fmt: skip


def _take_offers(state: State, setting: Setting, passes: Iterable[Pass], view: View) -> bool:
    """Take what is chosen of all that the passes offer; whether that was anything."""
    offers: list[Offer] = []
    made: list[tuple[str, Offer]] = []
    for offer_pass in passes:
        offered = _run(offer_pass, view, setting.policy, state.failures)
        offers += offered
        if state.trace is not None:
            made += ((name_of(offer_pass), offer) for offer in offered)
    if not offers and state.trace is None:
        return False
    taken = choose(offers, state.edits, state.claimed, state.leaned_on(), state.index)
    if state.trace is not None:
        state.trace += traced(made, taken, view, state.messages)
    for offer in taken:
        state.take(offer.edits)
        if offer.leans_on:
            state.leans[touched(offer.edit, state.index)[0]] = offer.leans_on
    return len(taken) > 0


def chosen_passes(policy: Policy) -> tuple[Pass, ...]:
    """The passes that the policy switches on, in its order."""
    if policy.passes is None:
        return tuple(one for one in PASSES if one.__name__ not in OPT_IN)
    named = {name_of(one): one for one in PASSES}
    return tuple(named[one] if isinstance(one, str) else one for one in policy.passes)


def _run(offer_pass: Pass, view: View, policy: Policy, failures: dict[str, str]) -> list[Offer]:
    """A pass's offers; a pass that fails is skipped, and the report says so."""
    try:
        offers = list(offer_pass(view, policy))
        if offer_pass in (policy.passes or ()):  # the user's own: clew's are named there
            vet(offers, view)
    except Exception as error:  # noqa: BLE001 (a faulty pass must not cost the user a request)
        failures[name_of(offer_pass)] = f"{type(error).__name__}: {error}"
        return []
    return offers
