"""The history folded over its request boundaries: what was in force when each request was sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

from msgspec import Struct, field
from msgspec.structs import replace

from .check.rules import Rules, Seen, Step, steps_of
from .check.watching import watched, what_was_seen
from .codecs.codec import Codec, Fields
from .codecs.json_tree import JSON, Object
from .codecs.marks import marks_in
from .codecs.words import as_words
from .edits import Edit, Offer, Replace
from .facts import Facts
from .passes import PASSES, Pass
from .passes.view import View
from .planner import choose, rows_of, touched
from .policy import Policy
from .repair.mending import Mended, Mender, Repair
from .tokens import Counter, part_tokens
from .transcript import Index, Part


class Setting(Struct, frozen=True):
    """All that a fold depends on beside the history itself."""

    codec: Codec
    rules: Rules
    mender: Mender
    counter: Counter
    sizer: Counter  # the counter where it is quick, else the estimate, which decides when to look
    policy: Policy
    passes: tuple[Pass, ...]
    facts: Facts
    fields: Fields | None
    encode: Callable[[int | None, JSON], bytes | None]  # how the request spells a changed message


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
    leaned_on: set[int] = field(default_factory=set[int])  # parts that those edits need whole
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

    def copy(self) -> State:
        """A state that can grow apart from this one."""
        return replace(self, **{name: getattr(self, name).copy() for name in _GROWING})

    def take(self, edits: Iterable[Edit]) -> None:
        """Put edits in force and keep the originals of what they replace."""
        for edit in edits:
            parts = touched(edit, self.index)
            self.edits[parts[0]] = edit
            self.claimed.update(parts)
            self.saved += edit.saved
            for row in rows_of(edit, self.index):
                self.encoded.pop(row, None)
            if isinstance(edit, Replace):
                self.originals[edit.original] = self.index.parts[edit.part].text


_GROWING = (
    "index", "seen", "sizes", "tokens", "sources", "mended", "repairs", "edits", "claimed",
    "leaned_on", "originals", "failures", "encoded", "boundaries",
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
    if prefix in setting.facts.left_alone:
        state.left_alone = True
    sent = len(step.messages) > step.split
    if sent and is_due(state, setting.policy) and prefix not in setting.facts.skipped:
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


def count_all(state: State, counter: Counter) -> int:
    """Tokens of all parts; what was not counted yet is counted now, and remembered."""
    tokens, parts = state.tokens, state.index.parts
    for position, known in enumerate(tokens):
        if known < 0:
            tokens[position] = part_tokens(parts[position], counter)
    return sum(tokens)


def is_due(state: State, policy: Policy) -> bool:
    """Whether enough is new since the last evaluation for another one to be worth its time."""
    projection = state.size - state.saved
    return state.since >= max(policy.step, policy.growth * projection)


def evaluate(state: State, setting: Setting) -> None:
    """Let every pass offer, take what the planner chooses, and keep the originals."""
    unseen_from = state.index.units[-1].answers
    state.since = sum(state.sizes[unseen_from:])  # what no pass could touch yet is still to come
    if state.left_alone:
        return
    transcript = state.index.freeze()
    view = View(
        transcript, state.tokens, state.fresh_from, unseen_from, state.first_user,
        setting.counter, state.edits,
    )  # fmt: skip
    state.fresh_from = unseen_from
    offers: list[Offer] = []
    for offer_pass in setting.passes:
        offers += _run(offer_pass, view, setting.policy, state.failures)
    taken = choose(offers, state.claimed, state.leaned_on, transcript)
    state.take(offer.edit for offer in taken)
    state.leaned_on.update(part for offer in taken for part in offer.leans_on)
    state.epochs += len(taken) > 0


def chosen_passes(policy: Policy) -> tuple[Pass, ...]:
    """The passes that the policy switches on, in its order."""
    if policy.passes is None:
        return PASSES
    named = {one.__name__: one for one in PASSES}
    return tuple(named[name] for name in policy.passes)


def _run(offer_pass: Pass, view: View, policy: Policy, failures: dict[str, str]) -> list[Offer]:
    """A pass's offers; a pass that fails is skipped, and the report says so."""
    try:
        return list(offer_pass(view, policy))
    except Exception as error:  # noqa: BLE001 (a faulty pass must not cost the user a request)
        failures[offer_pass.__name__] = f"{type(error).__name__}: {error}"
        return []
