"""The pipeline: a request read, mended, folded, and put together again."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
import xxhash
from msgspec import Struct
from msgspec.structs import replace

from .binding import binding_of
from .check.formats import RULES
from .check.rules import Step, steps_of
from .codecs.attachments import attachment_of
from .codecs.body import Body, Changed, Kept, Piece
from .codecs.codec import Codec, Fields, FormatName
from .codecs.definitions import definitions_in
from .codecs.detect import detect
from .codecs.formats import CODECS
from .codecs.json_tree import JSON
from .codecs.layout import LazyFields
from .codecs.reading import read_body
from .edits import Edit
from .facts import Facts
from .folding.evaluating import chosen_passes
from .folding.fold import agrees, first_prefix, fold_step, next_prefix
from .folding.memo import Memo
from .folding.originals import Originals
from .folding.room import fits_alike
from .folding.state import Setting, State, count_all
from .limits import limits_for, output_of
from .passes import Pass
from .planning.marking import marking_all_along
from .planning.rates import Marking, rates_for
from .policy import Policy
from .projection import project
from .registered import token_of
from .rendering.definitions import definition_tokens, without_definitions
from .rendering.history import Rendered, render
from .rendering.words import STYLES
from .repair.formats import MENDERS
from .repair.mending import Repair
from .report import Counted, Report
from .tokens import Counter, counter_for, part_tokens, sizer_for
from .tools.fetching import fetching_tool

_Request = TypeVar("_Request")
_NO_FACTS = Facts()


class Compaction(Struct, Generic[_Request], frozen=True):
    """A request made smaller: the projection, the report, and the originals behind its markers."""

    request: _Request
    report: Report
    originals: Mapping[str, str]
    facts: Facts = _NO_FACTS  # those it was made with, and what a hook said since: to be kept

    def __repr__(self) -> str:
        kept = "" if self.report.untouched else f"; {len(self.originals):,} originals"
        return f"<Compaction {self.report.headline()}{kept}>"


class Folded(Struct, frozen=True):
    """A request read to its end: the state after its last message, and its way back."""

    body: Body
    state: State
    context: Setting


def fold_request(  # noqa: PLR0913 - all that a fold depends on
    request: object, format: str | None, policy: Policy, facts: Facts, memo: Memo | None,
    passes: tuple[Pass, ...] | None = None, *, trace: bool = False, model: str | None = None,
    output: int = 0,
) -> Folded:  # fmt: skip
    """Read a request and fold over its boundaries, from the longest prefix already known.

    A trace tells of every boundary, so what is remembered is not used for it. `model` is for
    requests that do not name it themselves, `output` for those that only count their tokens.
    """
    body = read_body(request, None if memo is None else memo.bodies)
    fields = fields_with(body.fields, model, output)
    setting = _setting(body, detect(body, format), policy, facts, fields, passes)
    if memo is None or trace:
        return Folded(body, _fold_anew(body, setting, trace), setting)
    return Folded(body, _fold_on(body, setting, memo), setting)


def fold_on(
    body: Body, format: FormatName, policy: Policy, facts: Facts, before: Folded | None,
    head: int | None = None,
) -> Folded:  # fmt: skip
    """Fold over a request that extends the last one, which is used up by it.

    `head` are the tokens of a system prompt and tools that the body does not hold.
    """
    setting = _setting(body, format, policy, facts, body.fields, head=head)
    state = State(prefix=first_prefix(format), facts=facts) if before is None else before.state
    for step in _steps(body, setting, state.messages):
        fold_step(state, step, _identities(body, step), setting)
    return Folded(body, state, setting)


def fold_known(
    request: object, format: str | None, policy: Policy, facts: Facts, memo: Memo,
    model: str | None = None, output: int = 0,
) -> tuple[Folded, Facts] | None:  # fmt: skip
    """Fold on from the longest known prefix without a new edit; None: no prefix is known.

    The facts say which boundaries were passed over.
    """
    body = read_body(request, memo.bodies)
    fields = fields_with(body.fields, model, output)
    setting = _setting(body, detect(body, format), policy, facts, fields)
    state, known = _resume(memo, prefix_keys(body, setting), body, setting)
    if known is None:
        return None
    steps = _steps(body, setting, state.messages)
    skipped, prefix = set[str](), state.prefix
    for step in steps:
        prefix = next_prefix(prefix, _identities(body, step))
        skipped.add(prefix.hex())
    passed_over = Facts(skipped=frozenset(skipped))
    setting = replace(setting, facts=facts.merge(passed_over))
    for step in steps:
        fold_step(state, step, _identities(body, step), setting)
    return Folded(body, state, setting), passed_over


def prefix_of(body: Body, format: FormatName, before: Folded | None) -> str:
    """The hash under which facts about a request are kept; `before` is one that it extends."""
    codec = CODECS[format]
    prefix = first_prefix(format) if before is None else before.state.prefix
    start = 0 if before is None else before.state.messages
    for step in steps_of(codec, [body.message(at) for at in range(start, len(body))]):
        first = start + step.at
        prefix = next_prefix(prefix, body.identities(first, first + len(step.messages)))
    return prefix.hex()


def _fold_anew(body: Body, setting: Setting, trace: bool) -> State:
    """Fold over the whole history."""
    state = State(prefix=first_prefix(setting.codec.name), facts=setting.facts)
    state.trace = [] if trace else None
    for step in _steps(body, setting, 0):
        fold_step(state, step, _identities(body, step), setting)
    return state


def _fold_on(body: Body, setting: Setting, memo: Memo) -> State:
    """Fold on from the longest known prefix, and remember the last two states."""
    keys = prefix_keys(body, setting)
    state, known = _resume(memo, keys, body, setting)
    for step in _steps(body, setting, state.messages):
        if step.at and step.at + len(step.messages) == len(body):
            known = _remember(memo, keys[step.at], state, known)
        fold_step(state, step, _identities(body, step), setting)
    if len(body) and not setting.codec.is_model_made(body.message(len(body) - 1)):
        _remember(memo, keys[-1], state, known, shares_results=True)
    return state


def _head_tokens(body: Body, codec: Codec, counter: Counter) -> int:
    """Tokens of system prompt and tool definitions, which hardly ever change."""
    if body.fields is None:
        return 0
    key = (codec.name, counter, _spelled(body, codec.head_fields), body.head_bytes(codec.head_fields))
    known = _HEADS.get(key)
    if known is None:
        known = sum(part_tokens(part, counter) for part in codec.decode_head(body.fields))
        if len(_HEADS) >= _MOST_HEADS:
            _HEADS.clear()
        _HEADS[key] = known
    return known


_HEADS: dict[tuple[FormatName, Counter, str, bytes], int] = {}
_MOST_HEADS = 64


def _setting(
    body: Body, format: FormatName, policy: Policy, facts: Facts, fields: Fields | None,
    passes: tuple[Pass, ...] | None = None, head: int | None = None,
) -> Setting:  # fmt: skip
    """All that a fold depends on; what follows from fields that came before is known."""
    marking = marking_all_along(body, format, fields)
    if not isinstance(fields, LazyFields) or passes is not None or head is not None:
        made = _worked_out(body, format, policy, fields, marking, passes, head)
        return replace(made, facts=facts, encode=body.encode)
    known: Setting | None = fields.derived.get((format, marking))
    if known is None or known.policy is not policy:
        made = _worked_out(body, format, policy, fields, marking, None, None)
        # Without the fields that hold it: what holds itself stays until somebody looks for such.
        known = replace(made, start=_start_key(body, made), fields=None)
        fields.derived[format, marking] = known
    return replace(known, facts=facts, encode=body.encode, fields=fields)


def _worked_out(
    body: Body, format: FormatName, policy: Policy, fields: Fields | None, marking: Marking,
    passes: tuple[Pass, ...] | None, head: int | None,
) -> Setting:  # fmt: skip
    """A setting that holds nothing of one request alone: no facts, and no bytes."""
    counter = counter_for(format, _model(fields), policy.counter)
    codec, definitions = CODECS[format], definitions_in(fields)
    sizer = sizer_for(counter)
    if head is None:
        head = _head_tokens(body, codec, counter if policy.budget is not None else sizer)
    return Setting(
        codec, RULES[format], MENDERS[format], counter, sizer, policy,
        chosen_passes(policy) if passes is None else passes, definitions, _NO_FACTS, fields,
        _no_bytes, fetching_tool(definitions), head, rates_for(policy, format, fields, marking),
        binding_of(format, fields), limits_for(policy, format, fields), output_of(fields),
    )  # fmt: skip


def _no_bytes(_source: int | None, _message: JSON) -> bytes | None:
    """How a message is spelled where there is no request."""
    return None


# The memo is this process's own: a secret start keeps hostile texts from being made to collide.
_SECRET = secrets.randbits(64)


# The fields beside the head that rules look at, step by step.
_JUDGED = ("model", "thinking", "previous_response_id", "conversation")


def prefix_keys(body: Body, setting: Setting) -> list[bytes]:
    """The memo's key of every prefix of the history, cache marks left out."""
    return body.prefix_keys(setting.start or _start_key(body, setting), _SECRET)


def _start_key(body: Body, setting: Setting) -> bytes:
    """The memo's key of a history without a message."""
    names = (*_JUDGED, *setting.codec.head_fields)
    told = (
        f"{setting.codec.name}|{_spelled(body, names)}|{setting.counter}|{setting.rates}|"
        f"{_model(setting.fields)}|"
    )
    first = xxhash.xxh3_128(told.encode() + _told_of_policy(setting), seed=_SECRET)
    first.update(body.head_bytes(names))
    return first.digest()


def _told_of_policy(setting: Setting) -> bytes:
    """What tells a policy and its passes from others; most requests are under the last one's."""
    known = _LAST_POLICY[0]
    if known is None or known[0] is not setting.policy or known[1] != setting.passes:
        passes = ",".join(token_of(one) for one in setting.passes)
        spelled = passes.encode() + b"|" + setting.policy.fingerprint()
        known = _LAST_POLICY[0] = (setting.policy, setting.passes, spelled)
    return known[2]


_LAST_POLICY: list[tuple[Policy, tuple[Pass, ...], bytes] | None] = [None]


def _spelled(body: Body, names: Sequence[str]) -> str:
    """What `head` does not tell: whether these are objects or bytes, and which fields are there."""
    present = [name for name in names if name in body.fields] if body.fields is not None else None
    return f"{type(body).__name__} {present}"


def _resume(
    memo: Memo, keys: Sequence[bytes], body: Body, setting: Setting
) -> tuple[State, bytes | None]:
    """The state of the longest known prefix that ends where a step ends."""
    for count in range(len(body), 0, -1):
        state = memo.get(keys[count])
        if state is None or not (agrees(state, setting.facts) and fits_alike(state, setting)):
            continue
        if count == len(body):  # nothing extends it: it may go on sharing all that grows
            return replace(state), keys[count]
        if setting.codec.is_model_made(body.message(count)):
            return state.copy(), keys[count]
    return State(prefix=first_prefix(setting.codec.name), facts=setting.facts), None


def _remember(
    memo: Memo, key: bytes, state: State, parent: bytes | None, *, shares_results: bool = False
) -> bytes:
    if key != parent:
        kept = state.copy()
        if shares_results:  # so that what is encoded and counted next is remembered too
            kept.encoded, kept.ended, kept.tokens = state.encoded, state.ended, state.tokens
        memo.put(key, kept, parent)
    return key


def _identities(body: Body, step: Step) -> Iterator[Any]:
    """For each message of a step, bytes that stand for it on every machine."""
    return body.identities(step.at, step.at + len(step.messages))


def _steps(body: Body, setting: Setting, start: int) -> list[Step]:
    """The steps of the history from this message on."""
    messages = [body.message(at) for at in range(start, len(body))]
    return [
        Step(step.messages, start + step.at, step.model_count)
        for step in steps_of(setting.codec, messages)
    ]


class Projected(Struct, frozen=True):
    """A request as it goes out, and what its report is made of."""

    request: Any
    pieces: list[Piece]
    rendered: Rendered
    end_repairs: list[Repair]


def projected(folded: Folded, request: Any) -> Projected:
    """The projection of a folded request."""
    pieces, repairs = project(folded.body, folded.state, folded.context)
    rendered = _rendered(pieces, folded)
    changed = _is_changed(rendered.pieces, len(folded.body))
    projection = folded.body.splice(rendered.pieces) if changed else request
    if changed and isinstance(request, bytearray):
        projection = bytearray(projection)
    if not _defines_tools(folded):
        projection = without_definitions(projection, folded.context.codec.name)
    return Projected(projection, pieces, rendered, repairs)


def compacted(folded: Folded, request: Any) -> Compaction[Any]:
    """The projection of a folded request, with its report and its originals."""
    made, state = projected(folded, request), folded.state
    report = Report(
        format=folded.context.codec.name,
        model=_model(folded.context.fields),
        counter=folded.context.counter.name,
        tally=_Tally(folded, made.pieces, made.rendered, bool(made.end_repairs)),
        messages=len(folded.body),
        edits=edits_of(state),
        repairs=repairs_of(folded, made),
        failures=state.failures,
        epochs=state.epochs,
        prefix=state.prefix.hex(),
        mimicry=tuple(state.mimicry),
        refetched=tuple(state.refetched),
        trace=None if state.trace is None else tuple(state.trace),
    )
    return Compaction(made.request, report, originals_of(folded), folded.context.facts)


def repairs_of(folded: Folded, made: Projected) -> tuple[Repair, ...]:
    """All that was mended, in the order of the history."""
    return (*folded.state.repairs, *made.end_repairs)


def originals_of(folded: Folded) -> Originals:
    """All that edits put aside, by reference; images and files are in the request at hand."""
    state = folded.state
    gone = (state.held[position] for position in sorted(state.held.keys() & state.claimed))
    images = {one.ref: one.part for one in gone if _source_of(folded, one.part) is not None}
    return Originals(
        state.originals.copy(), images, state.index, state.held, lambda at: _block(folded, at)
    )


def _source_of(folded: Folded, position: int) -> int | None:
    """The source message that a part stands in; None: repair put it there."""
    return folded.state.sources[folded.state.index.parts[position].ref.row]


def _block(folded: Folded, position: int) -> str:
    """The block of an image or a file, as JSON."""
    source = _source_of(folded, position)
    assert source is not None  # as in originals_of
    found = attachment_of(folded.body.message(source), folded.state.index.parts[position])
    assert found is not None  # for it is among those held
    return found.original


def _rendered(pieces: list[Piece], folded: Folded) -> Rendered:
    """The projection as plain messages, where the policy asks for that."""
    setting = folded.context
    style = setting.policy.rendering
    if style == "calls":
        return Rendered(pieces, [], [])
    return render(pieces, folded.body, setting.codec, style, setting.binding)


def _defines_tools(folded: Folded) -> bool:
    """Whether the request may offer tools: with `text-only` it goes to a model that takes none."""
    style = folded.context.policy.rendering
    return style == "calls" or STYLES[style].keep_definitions


class _Tally:
    """Counts a request when its report is first asked for figures: most are never asked."""

    def __init__(
        self, folded: Folded, pieces: Sequence[Piece], rendered: Rendered, mended: bool
    ) -> None:
        self._folded, self._pieces, self._rendered = folded, pieces, rendered
        self._mended = mended  # the end of the history was

    def __call__(self) -> Counted:
        folded, state = self._folded, self._folded.state
        codec, counter = folded.context.codec, folded.context.counter
        head = _head_tokens(folded.body, codec, counter)
        read, went = count_all(state, counter), self._went()
        at_the_end = went - (read - state.saved) if self._mended else 0
        repaired = state.repair_tokens + at_the_end
        told = self._tokens(self._rendered.after) - self._tokens(self._rendered.before)
        if not _defines_tools(folded):
            told -= definition_tokens(folded.body.fields, codec, counter)
        given = -sum(edit.saved for edit in state.advice.values())
        return Counted(head + read - state.repair_tokens, head + went + told, repaired, told, given)

    def _went(self) -> int:
        """The tokens of the projection's own messages; two that were joined are not their sum."""
        state, body = self._folded.state, self._folded.body
        as_they_came = [0] * len(body)
        for part, tokens in zip(state.index.parts, state.tokens, strict=True):
            source = state.sources[part.ref.row]
            if source is not None:
                as_they_came[source] += tokens
        went = 0
        for piece in self._pieces:
            if isinstance(piece, Kept):
                went += sum(as_they_came[piece.start : piece.stop])
            else:
                went += self._tokens([_message_of(piece)])
        return went

    def _tokens(self, messages: Sequence[JSON]) -> int:
        codec, counter = self._folded.context.codec, self._folded.context.counter
        parts = (part for message in messages for part in codec.decode(0, message))
        return sum(part_tokens(part, counter) for part in parts)


def _message_of(piece: Changed) -> JSON:
    encoded = piece.encoded
    return piece.message if encoded is None else msgspec.json.decode(encoded)


_EDITIONS = itertools.count(1)


def edits_of(state: State) -> tuple[Edit, ...]:
    """The edits in force, in the order of the history; advice after the edit on its result."""
    outgoing = state.rendered
    if outgoing.edits is None:
        edits = [*state.edits.items(), *state.advice.items()]
        outgoing.edits = tuple(edit for _, edit in sorted(edits, key=_position))
        outgoing.edition = next(_EDITIONS)
    return outgoing.edits


def _position(one: tuple[int, Edit]) -> int:
    return one[0]


def fields_with(fields: Fields | None, model: str | None, output: int = 0) -> Fields | None:
    """The fields of a request that says its model elsewhere, or asks for no output itself."""
    more: dict[str, str | int] = {}
    if model is not None and not (fields and "model" in fields):
        more["model"] = model
    if output > 0 and not output_of(fields):
        more["max_tokens"] = output
    if not more:
        return fields
    if isinstance(fields, LazyFields):  # which give undecoded ones when they are spread
        return fields.with_extra(more)
    return {**(fields or {}), **more}


def _model(fields: Fields | None) -> str | None:
    model = (fields or {}).get("model")
    return model if isinstance(model, str) else None


def _is_changed(pieces: Sequence[Piece], count: int) -> bool:
    return list(pieces) != ([Kept(0, count)] if count else [])


__all__ = [
    "Compaction", "Folded", "Projected", "Repair", "compacted", "edits_of", "fields_with",
    "fold_known", "fold_on", "fold_request", "originals_of", "prefix_of", "projected", "repairs_of",
]  # fmt: skip
