"""The pipeline: decode, repair, fold, project and encode one request.

Once projections were sent, what the client holds is no longer what the model's reasoning was signed
for. So a request that goes out as it came leaves that reasoning behind.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
import xxhash
from msgspec import Struct
from msgspec.structs import replace

from .compaction.evaluation import build_view, select_passes
from .compaction.fold import chain_prefix, fold_step, initial_prefix, is_consistent
from .compaction.memo import Memo
from .compaction.projection import project
from .compaction.state import Context, LazyOriginals, State, count_parts
from .compaction.window import current_limits, is_valid_for_output
from .edits import Edit
from .facts import Facts
from .limits import (
    limits_for,
    max_output_tokens,
    measure_overflow,
    protection_label,
    tokens_by_blocker,
)
from .passes import Pass
from .passes.base import View
from .passes.protections import Protections
from .plugins import pass_token
from .policy import Policy
from .pricing import BreakpointUsage, rates_for
from .providers.attachments import attachment_of
from .providers.base import Codec, Repair, Step, split_steps
from .providers.bound_reasoning import binding_of
from .providers.cache_breakpoints import client_breakpoints_so_far
from .providers.registry import PROVIDERS
from .providers.text_history import RenderedHistory, render_as_text
from .providers.text_styles import STYLES
from .providers.tool_definitions import definition_tokens, tool_definitions, without_definitions
from .report import Report, TokenCounts
from .tokens import TokenCounter, counter_for, fast_counter, part_tokens
from .tools.identity import find_expand_tool
from .wire.base import Fields, FormatName, NewMessage, Piece, RequestBody, SourceRun
from .wire.body import read_body
from .wire.detect import detect_format
from .wire.json import JSON
from .wire.layout import LazyFields

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


class FoldedRequest(Struct, frozen=True):
    """A request read to its end: the state after its last message, and its way back."""

    body: RequestBody
    state: State
    context: Context


def fold_request(  # noqa: PLR0913 - all that a fold depends on
    request: object,
    format: str | None,
    policy: Policy,
    facts: Facts,
    memo: Memo | None,
    passes: tuple[Pass, ...] | None = None,
    *,
    trace: bool = False,
    model: str | None = None,
    output: int = 0,
) -> FoldedRequest:
    """Read a request and fold over its boundaries, from the longest prefix already known.

    A trace tells of every boundary, so what is remembered is not used for it. `model` is for
    requests that do not name it themselves, `output` for those that only count their tokens.
    """
    body = read_body(request, None if memo is None else memo.bodies)
    fields = complete_fields(body.fields, model, output)
    setting = _context_for(body, detect_format(body, format), policy, facts, fields, passes)
    if memo is None or trace:
        return FoldedRequest(body, _fold_anew(body, setting, trace), setting)
    return FoldedRequest(body, _fold_from_memo(body, setting, memo), setting)


def extend_fold(
    body: RequestBody,
    format: FormatName,
    policy: Policy,
    facts: Facts,
    before: FoldedRequest | None,
    head: int | None = None,
) -> FoldedRequest:
    """Fold over a request that extends the last one, which is used up by it.

    `head` are the tokens of a system prompt and tools that the body does not hold.
    """
    setting = _context_for(body, format, policy, facts, body.fields, head=head)
    state = State(prefix=initial_prefix(format), facts=facts) if before is None else before.state
    for step in _steps_from(body, setting, state.messages):
        fold_step(state, step, _step_identities(body, step), setting)
    return FoldedRequest(body, state, setting)


def fold_known_prefix(
    request: object,
    format: str | None,
    policy: Policy,
    facts: Facts,
    memo: Memo,
    model: str | None = None,
    output: int = 0,
) -> tuple[FoldedRequest, Facts] | None:
    """Fold on from the longest known prefix without a new edit; None: no prefix is known.

    The facts say which boundaries were passed over.
    """
    body = read_body(request, memo.bodies)
    fields = complete_fields(body.fields, model, output)
    setting = _context_for(body, detect_format(body, format), policy, facts, fields)
    state, known = _resume(memo, prefix_keys(body, setting), body, setting)
    if known is None:
        return None
    steps = _steps_from(body, setting, state.messages)
    skipped, prefix = set[str](), state.prefix
    for step in steps:
        prefix = chain_prefix(prefix, _step_identities(body, step))
        skipped.add(prefix.hex())
    passed_over = Facts(skipped=frozenset(skipped))
    setting = replace(setting, facts=facts.merge(passed_over))
    for step in steps:
        fold_step(state, step, _step_identities(body, step), setting)
    return FoldedRequest(body, state, setting), passed_over


def prefix_hash(body: RequestBody, format: FormatName, before: FoldedRequest | None) -> str:
    """The hash under which facts about a request are kept; `before` is one that it extends."""
    codec = PROVIDERS[format].codec
    prefix = initial_prefix(format) if before is None else before.state.prefix
    start = 0 if before is None else before.state.messages
    for step in split_steps(codec, [body.message(at) for at in range(start, len(body))]):
        first = start + step.at
        prefix = chain_prefix(prefix, body.identities(first, first + len(step.messages)))
    return prefix.hex()


def _fold_anew(body: RequestBody, setting: Context, trace: bool) -> State:
    """Fold over the whole history."""
    state = State(prefix=initial_prefix(setting.codec.name), facts=setting.facts)
    state.trace = [] if trace else None
    for step in _steps_from(body, setting, 0):
        fold_step(state, step, _step_identities(body, step), setting)
    return state


def _fold_from_memo(body: RequestBody, setting: Context, memo: Memo) -> State:
    """Fold on from the longest known prefix, and remember the last two states."""
    keys = prefix_keys(body, setting)
    state, known = _resume(memo, keys, body, setting)
    for step in _steps_from(body, setting, state.messages):
        if step.at and step.at + len(step.messages) == len(body):
            known = _remember(memo, keys[step.at], state, known)
        fold_step(state, step, _step_identities(body, step), setting)
    if len(body) and not setting.codec.is_model_made(body.message(len(body) - 1)):
        _remember(memo, keys[-1], state, known, shares_results=True)
    return state


def _head_tokens(body: RequestBody, codec: Codec, counter: TokenCounter) -> int:
    """Tokens of system prompt and tool definitions, which hardly ever change."""
    if body.fields is None:
        return 0
    key = (
        codec.name,
        counter,
        _field_signature(body, codec.head_fields),
        body.head_bytes(codec.head_fields),
    )
    known = _HEAD_TOKENS.get(key)
    if known is None:
        known = sum(part_tokens(part, counter) for part in codec.decode_head(body.fields))
        if len(_HEAD_TOKENS) >= _MAX_HEADS:
            _HEAD_TOKENS.clear()
        _HEAD_TOKENS[key] = known
    return known


_HEAD_TOKENS: dict[tuple[FormatName, TokenCounter, str, bytes], int] = {}
_MAX_HEADS = 64


def _context_for(
    body: RequestBody,
    format: FormatName,
    policy: Policy,
    facts: Facts,
    fields: Fields | None,
    passes: tuple[Pass, ...] | None = None,
    head: int | None = None,
) -> Context:
    """All that a fold depends on; what follows from fields that came before is known."""
    marking = client_breakpoints_so_far(body, format, fields)
    if not isinstance(fields, LazyFields) or passes is not None or head is not None:
        made = _build_context(body, format, policy, fields, marking, passes, head)
        return replace(made, facts=facts, encode=body.encode)
    known: Context | None = fields.derived.get((format, marking))
    if known is None or known.policy is not policy:
        made = _build_context(body, format, policy, fields, marking, None, None)
        # Without the fields that hold it: what holds itself stays until somebody looks for such.
        known = replace(made, start=_start_key(body, made), fields=None)
        fields.derived[format, marking] = known
    return replace(known, facts=facts, encode=body.encode, fields=fields)


def _build_context(
    body: RequestBody,
    format: FormatName,
    policy: Policy,
    fields: Fields | None,
    marking: BreakpointUsage,
    passes: tuple[Pass, ...] | None,
    head: int | None,
) -> Context:
    """A setting that holds nothing of one request alone: no facts, and no bytes."""
    counter = counter_for(format, _model_name(fields), policy.counter)
    provider, definitions = PROVIDERS[format], tool_definitions(fields)
    codec = provider.codec
    sizer = fast_counter(counter)
    if head is None:
        head = _head_tokens(body, codec, counter if policy.budget is not None else sizer)
    return Context(
        codec,
        provider.rules,
        provider.repairer,
        counter,
        sizer,
        policy,
        select_passes(policy) if passes is None else passes,
        definitions,
        _NO_FACTS,
        fields,
        _encode_nothing,
        find_expand_tool(definitions),
        head,
        rates_for(policy, format, fields, marking),
        binding_of(format, fields),
        limits_for(policy, format, fields),
        max_output_tokens(fields),
    )


def _encode_nothing(_source: int | None, _message: JSON) -> bytes | None:
    """How a message is spelled where there is no request."""
    return None


# The memo is this process's own: a secret start keeps hostile texts from being made to collide.
_SECRET = secrets.randbits(64)


# The fields beside the head that rules look at, step by step.
_RULE_FIELDS = ("model", "thinking", "previous_response_id", "conversation")


def prefix_keys(body: RequestBody, setting: Context) -> list[bytes]:
    """The memo's key of every prefix of the history, cache marks left out."""
    return body.prefix_keys(setting.start or _start_key(body, setting), _SECRET)


def _start_key(body: RequestBody, setting: Context) -> bytes:
    """The memo's key of a history without a message."""
    names = (*_RULE_FIELDS, *setting.codec.head_fields)
    told = (
        f"{setting.codec.name}|{_field_signature(body, names)}|{setting.counter}|{setting.rates}|"
        f"{_model_name(setting.fields)}|"
    )
    first = xxhash.xxh3_128(told.encode() + _policy_key(setting), seed=_SECRET)
    first.update(body.head_bytes(names))
    return first.digest()


def _policy_key(setting: Context) -> bytes:
    """What tells a policy and its passes from others; most requests are under the last one's."""
    known = _LAST_POLICY[0]
    if known is None or known[0] is not setting.policy or known[1] != setting.passes:
        passes = ",".join(pass_token(one) for one in setting.passes)
        spelled = passes.encode() + b"|" + setting.policy.fingerprint()
        known = _LAST_POLICY[0] = (setting.policy, setting.passes, spelled)
    return known[2]


_LAST_POLICY: list[tuple[Policy, tuple[Pass, ...], bytes] | None] = [None]


def _field_signature(body: RequestBody, names: Sequence[str]) -> str:
    """What `head` does not tell: whether these are objects or bytes, and which fields are there."""
    present = [name for name in names if name in body.fields] if body.fields is not None else None
    return f"{type(body).__name__} {present}"


def _resume(
    memo: Memo, keys: Sequence[bytes], body: RequestBody, setting: Context
) -> tuple[State, bytes | None]:
    """The state of the longest known prefix that ends where a step ends."""
    for count in range(len(body), 0, -1):
        state = memo.get(keys[count])
        if state is None or not (
            is_consistent(state, setting.facts) and is_valid_for_output(state, setting)
        ):
            continue
        if count == len(body):  # nothing extends it: it may go on sharing all that grows
            return replace(state), keys[count]
        if setting.codec.is_model_made(body.message(count)):
            return state.copy(), keys[count]
    return State(prefix=initial_prefix(setting.codec.name), facts=setting.facts), None


def _remember(
    memo: Memo, key: bytes, state: State, parent: bytes | None, *, shares_results: bool = False
) -> bytes:
    if key != parent:
        kept = state.copy()
        if shares_results:  # so that what is encoded and counted next is remembered too
            kept.encoded, kept.ended, kept.tokens = state.encoded, state.ended, state.tokens
        memo.put(key, kept, parent)
    return key


def _step_identities(body: RequestBody, step: Step) -> Iterator[Any]:
    """For each message of a step, bytes that stand for it on every machine."""
    return body.identities(step.at, step.at + len(step.messages))


def _steps_from(body: RequestBody, setting: Context, start: int) -> list[Step]:
    """The steps of the history from this message on."""
    messages = [body.message(at) for at in range(start, len(body))]
    return [
        Step(step.messages, start + step.at, step.model_count)
        for step in split_steps(setting.codec, messages)
    ]


class ProjectedRequest(Struct, frozen=True):
    """A request as it goes out, and what its report is made of."""

    request: Any
    pieces: list[Piece]
    rendered: RenderedHistory
    end_repairs: list[Repair]


def project_request(folded: FoldedRequest, request: Any) -> ProjectedRequest:
    """The projection of a folded request."""
    pieces, repairs = project(folded.body, folded.state, folded.context)
    rendered = _render_pieces(pieces, folded)
    changed = _is_changed(rendered.pieces, len(folded.body))
    projection = folded.body.splice(rendered.pieces) if changed else request
    if changed and isinstance(request, bytearray):
        projection = bytearray(projection)
    if not _should_define_tools(folded):
        projection = without_definitions(projection, folded.context.codec.name)
    return ProjectedRequest(projection, pieces, rendered, repairs)


def build_compaction(folded: FoldedRequest, request: Any) -> Compaction[Any]:
    """The projection of a folded request, with its report and its originals."""
    made, state = project_request(folded, request), folded.state
    report = Report(
        format=folded.context.codec.name,
        model=_model_name(folded.context.fields),
        counter=folded.context.counter.name,
        tally=_TokenTally(folded, made.pieces, made.rendered, bool(made.end_repairs)),
        messages=len(folded.body),
        edits=edits_in_force(state),
        repairs=all_repairs(folded, made),
        failures=state.failures,
        epochs=state.epochs,
        prefix=state.prefix.hex(),
        mimicry=tuple(state.mimicry),
        refetched=tuple(state.refetched),
        trace=None if state.trace is None else tuple(state.trace),
    )
    return Compaction(made.request, report, collect_originals(folded), folded.context.facts)


def all_repairs(folded: FoldedRequest, made: ProjectedRequest) -> tuple[Repair, ...]:
    """All that was mended, in the order of the history."""
    return (*folded.state.repairs, *made.end_repairs)


def collect_originals(folded: FoldedRequest) -> LazyOriginals:
    """All that edits put aside, by reference; images and files are in the request at hand."""
    state = folded.state
    gone = (state.held[position] for position in sorted(state.held.keys() & state.claimed))
    images = {one.ref: one.part for one in gone if _source_message(folded, one.part) is not None}
    return LazyOriginals(
        state.originals.copy(), images, state.index, state.held, lambda at: _media_block(folded, at)
    )


def _source_message(folded: FoldedRequest, position: int) -> int | None:
    """The source message that a part stands in; None: repair put it there."""
    return folded.state.sources[folded.state.index.parts[position].ref.row]


def _media_block(folded: FoldedRequest, position: int) -> str:
    """The block of an image or a file, as JSON."""
    source = _source_message(folded, position)
    assert source is not None  # as in originals_of
    found = attachment_of(folded.body.message(source), folded.state.index.parts[position])
    assert found is not None  # for it is among those held
    return found.original


def _render_pieces(pieces: list[Piece], folded: FoldedRequest) -> RenderedHistory:
    """The projection as plain messages, where the policy asks for that."""
    setting = folded.context
    style = setting.policy.rendering
    if style == "calls":
        return RenderedHistory(pieces, [], [])
    return render_as_text(
        pieces, folded.body, codec=setting.codec, style=style, binding=setting.binding
    )


def _should_define_tools(folded: FoldedRequest) -> bool:
    """Whether the request may offer tools: with `text-only` it goes to a model that takes none."""
    style = folded.context.policy.rendering
    return style == "calls" or STYLES[style].keep_definitions


class _TokenTally:
    """Counts a request when its report is first asked for figures: most are never asked."""

    def __init__(
        self,
        folded: FoldedRequest,
        pieces: Sequence[Piece],
        rendered: RenderedHistory,
        mended: bool,
    ) -> None:
        self._folded, self._pieces, self._rendered = folded, pieces, rendered
        self._mended = mended  # the end of the history was

    def __call__(self) -> TokenCounts:
        folded, state = self._folded, self._folded.state
        codec, counter = folded.context.codec, folded.context.counter
        head = _head_tokens(folded.body, codec, counter)
        read, went = count_parts(state, counter), self._went()
        at_the_end = went - (read - state.saved) if self._mended else 0
        repaired = state.repair_tokens + at_the_end
        told = self._tokens(self._rendered.after) - self._tokens(self._rendered.before)
        if not _should_define_tools(folded):
            told -= definition_tokens(folded.body.fields, codec, counter)
        given = -sum(edit.saved for edit in state.advice.values())
        return TokenCounts(
            head + read - state.repair_tokens, head + went + told, repaired, told, given
        )

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
            if isinstance(piece, SourceRun):
                went += sum(as_they_came[piece.start : piece.stop])
            else:
                went += self._tokens([_message_of(piece)])
        return went

    def _tokens(self, messages: Sequence[JSON]) -> int:
        codec, counter = self._folded.context.codec, self._folded.context.counter
        parts = (part for message in messages for part in codec.decode(0, message))
        return sum(part_tokens(part, counter) for part in parts)


def _message_of(piece: NewMessage) -> JSON:
    encoded = piece.encoded
    return piece.message if encoded is None else msgspec.json.decode(encoded)


_EDITION_NUMBERS = itertools.count(1)


def edits_in_force(state: State) -> tuple[Edit, ...]:
    """The edits in force, in the order of the history; advice after the edit on its result."""
    outgoing = state.rendered
    if outgoing.edits is None:
        edits = [*state.edits.items(), *state.advice.items()]
        outgoing.edits = tuple(edit for _, edit in sorted(edits, key=_part_position))
        outgoing.edition = next(_EDITION_NUMBERS)
    return outgoing.edits


def _part_position(one: tuple[int, Edit]) -> int:
    return one[0]


def complete_fields(fields: Fields | None, model: str | None, output: int = 0) -> Fields | None:
    """The fields of a request that says its model elsewhere, or asks for no output itself."""
    more: dict[str, str | int] = {}
    if model is not None and not (fields and "model" in fields):
        more["model"] = model
    if output > 0 and not max_output_tokens(fields):
        more["max_tokens"] = output
    if not more:
        return fields
    if isinstance(fields, LazyFields):  # which give undecoded ones when they are spread
        return fields.with_extra(more)
    return {**(fields or {}), **more}


def _model_name(fields: Fields | None) -> str | None:
    model = (fields or {}).get("model")
    return model if isinstance(model, str) else None


def _is_changed(pieces: Sequence[Piece], count: int) -> bool:
    return list(pieces) != ([SourceRun(0, count)] if count else [])


__all__ = [
    "Compaction",
    "FoldedRequest",
    "ProjectedRequest",
    "Repair",
    "build_compaction",
    "edits_in_force",
    "complete_fields",
    "fold_known_prefix",
    "extend_fold",
    "fold_request",
    "collect_originals",
    "prefix_hash",
    "project_request",
    "all_repairs",
]


# Nothing is decided and nothing is mended: what the client wrote is what goes out.
_UNCHANGED_POLICY = Policy(passes=(), repair=False)


class Fallback(Struct, Generic[_Request], frozen=True):
    """What goes out instead, and the facts that make every later request agree with it."""

    compaction: Compaction[_Request]
    facts: Facts
    folded: FoldedRequest


def apply_known_edits(
    request: _Request,
    *,
    format: str | None,
    policy: Policy,
    facts: Facts,
    memo: Memo,
    model: str | None = None,
    output: int = 0,
) -> Fallback[_Request] | None:
    """The request with the edits of its longest known prefix and no others; None: none is known.

    The facts say which boundaries were skipped, so that no edit is made at them later either.
    """
    found = fold_known_prefix(request, format, policy, facts, memo, model, output)
    if found is None:
        return None
    folded, skipped = found
    return Fallback(build_compaction(folded, request), skipped, folded)


def restore_original(
    request: _Request,
    *,
    format: str | None = None,
    sent: Facts | None = None,
    model: str | None = None,
) -> Fallback[_Request]:
    """The request without the reasoning that was signed for what was sent in its place.

    `sent.left_alone` are the prefixes up to which projections were sent; without them, all of it.
    """
    body = read_body(request)
    here = prefix_hash(body, detect_format(body, format), None)
    until = frozenset({here}) if sent is None else sent.left_alone
    facts = Facts(changed=until)
    folded = fold_request(request, format, _UNCHANGED_POLICY, facts, None, model=model)
    return Fallback(build_compaction(folded, request), Facts(left_alone=until), folded)


_SAFE_RATIO = 0.97  # of the budget: joining messages takes a token or two


def raise_over_budget(folded: FoldedRequest, report: Report) -> None:
    """Raise when a budget that the policy sets is not met, and say what stands in the way.

    A window that is only listed is no reason: the provider may accept what was estimated. What
    the rendering adds does not count: no edit could have made room for it.
    """
    state, setting = folded.state, folded.context
    limits = current_limits(state, setting)
    if limits.source != "budget" or limits.tokens is None or _is_skipped(folded):
        return
    if (
        setting.head + count_parts(state, setting.counter) - state.saved
        <= _SAFE_RATIO * limits.tokens
    ):
        return  # what goes out is counted anew only where it may matter
    sent = report.tokens_after - report.tokens_rendered
    over = measure_overflow(limits, tokens=sent).of("tokens")
    if over is not None:
        raise over.error(_with_join_tokens(sent, _blockers(folded)))


def _is_skipped(folded: FoldedRequest) -> bool:
    """Whether facts say that nothing more is taken out here."""
    state, facts = folded.state, folded.context.facts
    return state.left_alone or state.prefix.hex() in facts.skipped


def _with_join_tokens(sent: int, found: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """What stands in the way, and the few tokens that joining messages adds or saves."""
    rest = sent - sum(size for _, size in found)
    return (*found, ("messages that were joined", rest)) if rest else found


def _blockers(folded: FoldedRequest) -> tuple[tuple[str, int], ...]:
    state, setting = folded.state, folded.context
    sizes = list(state.tokens)  # exact by now, for the report has counted them
    for position in state.claimed:
        edit = state.edits.get(position)
        sizes[position] = 0 if edit is None else max(0, sizes[position] - edit.saved)
    for position, advice in state.advice.items():
        sizes[position] -= advice.saved
    unseen_from = state.index.units[-1].answers_from if state.index.units else 0
    view = build_view(state, setting, unseen_from, arrival=False)
    return tokens_by_blocker(
        state.index.parts, sizes, lambda at: _protection_of(view, at), setting.head
    )


def _protection_of(view: View, position: int) -> str | None:
    pins = view.pinned
    assert isinstance(pins, Protections)
    return protection_label(
        view.transcript, position, view.unseen_from, view.first_user, pins.label_for
    )
