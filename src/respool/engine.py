"""The pipeline: decode, repair, fold, project and encode one request.

Once projections were sent, what the client holds is no longer what the model's reasoning was signed
for. So a request that goes out as it came leaves that reasoning behind.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from operator import itemgetter
from typing import Any, Generic, TypeVar, cast

import msgspec
import xxhash
from msgspec import Struct
from msgspec.structs import replace

from .cache_scope import enter_scope
from .compaction.advice import TranscriptWithoutAdvice
from .compaction.context import Context, Counters, RequestContext, complete_fields
from .compaction.evaluation import select_passes
from .compaction.fold import (
    chain_prefix,
    evaluate_ahead,
    fold_step,
    initial_prefix,
    is_consistent,
    share_pending,
)
from .compaction.head import field_signature, head_tokens
from .compaction.memo import Memo
from .compaction.plain import PlainRequest, find_plain_text, plain_request
from .compaction.projection import originals_at_end, project
from .compaction.remainder import survey, waiting_total
from .compaction.state import LazyOriginals, Prefix, State
from .compaction.window import is_output_sensitive, is_valid_for_output
from .edits import Edit, Replace, touched_parts
from .facts import BreakpointMode, Facts
from .history.deferred_tools import find_defined_expand_tool, is_deferred
from .history.refetches import Refetch, VisibleHistory
from .history.repeat_rates import RepeatCell, repeat_cells
from .limits import (
    limits_for,
    max_output_tokens,
    window_for_prompt,
)
from .loops import advice
from .passes import Pass
from .passes.base import View
from .passes.fold_exchanges import describe_exchanges
from .plugins import pass_token
from .policy import Policy
from .pricing import BREAKPOINT_USAGES, BreakpointUsage, CacheTerms, rates_for, terms_for
from .providers.attachments import attachment_of
from .providers.base import Repair, Step, read_steps, split_steps
from .providers.bound_reasoning import binding_of
from .providers.cache_breakpoints import client_breakpoints, client_breakpoints_so_far
from .providers.registry import PROVIDERS
from .providers.text_history import STYLES, RenderedHistory, render_as_text
from .providers.tool_definitions import definition_tokens, tool_definitions, without_definitions
from .report import Report, TokenCounts
from .tokens import counter_for, fast_counter, part_tokens
from .wire.base import FORMATS, Fields, FormatName, NewMessage, Piece, RequestBody, SourceRun
from .wire.body import by_bytes, read_body
from .wire.detect import detect_format
from .wire.json import JSON, compact_json
from .wire.layout import LazyFields, cached_on_fields

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
    """A request with the state after its last message."""

    body: RequestBody
    state: State
    context: Context

    @property
    def prefix(self) -> str:
        """The hash of the whole history."""
        return self.state.prefix.hex()

    @property
    def boundaries(self) -> list[bytes]:
        """The hash of the history at each of its boundaries."""
        return self.state.prefix.boundaries

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits in force, in the order of the history."""
        return edits_in_force(self.state)

    @property
    def edition(self) -> int:
        """A number that is the same for the very same edits."""
        edits_in_force(self.state)  # numbers them
        return self.state.rendered.edition

    @property
    def originals(self) -> LazyOriginals:
        """All texts that edits put aside, by reference."""
        return collect_originals(self)

    @property
    def failures(self) -> Mapping[str, str]:
        """The passes that failed, with their errors."""
        return self.state.evaluation.failures

    @property
    def tokens_before(self) -> int:
        """The tokens of the request as it came, head included."""
        return self.context.head + self.state.tokens.estimated_total

    @property
    def tokens_after(self) -> int:
        """The tokens of its projection, head included."""
        return self.tokens_before - self.state.edits.saved

    @property
    def epochs(self) -> int:
        """The number of epochs so far."""
        return self.state.evaluation.epochs

    @property
    def results(self) -> int:
        """The number of tool results in the history."""
        return len(self.state.transcript.results)

    @property
    def calls(self) -> int:
        """The number of exchanges in the history."""
        return len(self.state.transcript.exchanges)

    @property
    def evaluated(self) -> tuple[int, int]:
        """The last evaluation, by the parts that it had seen and the epochs until then."""
        return self.state.evaluation.fresh_from, self.state.evaluation.epochs

    @property
    def waiting(self) -> tuple[int, int]:
        """The number of offers that wait until they pay, and the tokens that they would save."""
        return waiting_total(self.state, self.context)

    @property
    def is_pending(self) -> bool:
        """True if an evaluation is due here that takes force at the next boundary."""
        return self.state.evaluation.is_pending

    @property
    def breakpoints(self) -> BreakpointMode | None:
        """The client's cache breakpoints by the facts; None: no fact says."""
        return self.state.evaluation.breakpoint_mode

    @property
    def head_tokens(self) -> int:
        """The tokens of the system prompt and the tool definitions."""
        return self.context.head

    def definition_sizes(self) -> dict[str, int]:
        """The tokens of each tool definition, by the tool's name."""
        counter = self.context.counters.fast
        definitions = self.context.request.definitions
        return {name: counter.count(compact_json(one)) for name, one in definitions.items()}

    def called_tools(self, since: int = 0) -> set[str]:
        """The names of the tools that the history calls, from this exchange on."""
        index = self.state.transcript
        newest = index.units[-1].exchanges if index.units else ()
        first = min([since, *newest[:1]])  # a fork may have fewer of them
        return {index.parts[one.call].name for one in index.exchanges[first:]}

    @property
    def output(self) -> int:
        """The tokens of output that the request asks for; 0: not known."""
        return self.context.output_tokens

    @property
    def is_bound(self) -> bool:
        """True if the model refuses signed reasoning in another history than the signed one."""
        return self.context.binding.is_bound

    def has_reasoning(self) -> bool:
        """True if there is reasoning in the history that no edit has dropped."""
        units, claimed = self.state.transcript.units, self.state.edits.claimed
        return any(unit.reasoning and unit.reasoning[0] not in claimed for unit in units)

    def depends_on_output(self, other: int) -> bool:
        """True if a request for `other` tokens of output may have been decided differently."""
        return is_output_sensitive(self.state, self.context, other)

    def client_cached_tokens(self) -> int:
        """The tokens that a client has cached itself if its newest messages have no breakpoint.

        That is the head, and the history up to the last breakpoint.
        """
        breakpoint_rows = self.body.breakpoint_rows()
        if self.state.evaluation.breakpoint_mode != "none" or not breakpoint_rows:
            return self.context.head
        sources = (self.state.repairs.sources[part.ref.row] for part in self.state.transcript.parts)
        sizes = zip(sources, self.state.tokens.estimates, strict=True)
        return self.context.head + sum(
            size for at, size in sizes if (at or 0) <= breakpoint_rows[-1]
        )

    def dropped_text(self, edit: Edit) -> str:
        """The longest text that an edit takes out."""
        texts = [
            self.state.transcript.parts[at].text
            for at in touched_parts(edit, self.state.transcript)
        ]
        return max(texts, key=len, default="")

    def edited_call(self, edit: Edit) -> tuple[str, str]:
        """The tool and the target of the call that an edit changes; empty: none, or several."""
        transcript, uses = self.state.transcript, self.state.analysis.ledger.uses
        if isinstance(edit, Replace) and len(edit.stands_for) > 1:
            return "", ""
        touched = touched_parts(edit, transcript)
        found = {transcript.exchange_of[at] for at in touched} - {-1}
        if len(found) != 1:
            return "", ""
        ordinal = found.pop()
        use = uses[ordinal] if ordinal < len(uses) else None
        target = use and (use.target or (use.reads[0].path if use.reads else ""))
        return transcript.parts[transcript.exchanges[ordinal].call].name, target or ""

    def describe_calls(self, max_tokens: int) -> str:
        """All calls that have a result, as a summary of them would be; empty: there are none."""
        view = View(self.state, self.context, "epoch", len(self.state.transcript.parts))
        return describe_exchanges(view, max_tokens)

    def last_refetched(self) -> list[Refetch]:
        """The latest results that bring again what had been taken out of earlier ones."""
        if not self._has_new_results():
            return []
        last = frozenset(self.state.transcript.units[-1].exchanges)
        return [one for one in self.state.refetches.found if one.exchange in last]

    def repeat_cells(self) -> tuple[RepeatCell, ...]:
        """Results that this request sends, cut or whole, and those its latest calls repeat."""
        state = self.state
        edits, found = state.edits, state.refetches
        seen = VisibleHistory(
            state.transcript,
            state.analysis.ledger,
            edits.by_part,
            edits.claimed,
            edits.dependencies,
        )
        last = frozenset(state.transcript.units[-1].exchanges if state.transcript.units else ())
        cut = ((one.exchange, one.earlier_exchange, True) for one in found.found)
        whole = ((one.exchange, one.earlier, False) for one in found.repeats)
        return repeat_cells(seen, [one for one in (*cut, *whole) if one[0] in last])

    def last_loops(self) -> list[str]:
        """Advice on the loops that the latest results show, a sentence or two each."""
        if not self._has_new_results():
            return []
        units = self.state.transcript.units
        found = advice(
            TranscriptWithoutAdvice(self.state.transcript),
            self.state.analysis.ledger,
            units[-1].answers_from,
        )
        return [found[at] for at in sorted(found)]

    def _has_new_results(self) -> bool:
        units, results = self.state.transcript.units, self.state.transcript.results
        if not units:
            return False
        return bool(units[-1].exchanges) or (
            bool(results) and results[-1] >= units[-1].answers_from
        )


def fold_request(  # noqa: PLR0913 - all that a fold depends on
    request: object,
    *,
    format: str | None,
    policy: Policy,
    facts: Facts,
    memo: Memo | None,
    passes: tuple[Pass, ...] | None = None,
    trace: bool = False,
    model: str | None = None,
    output: int = 0,
) -> FoldedRequest:
    """Read a request and fold over its boundaries, from the longest known prefix.

    A trace covers every boundary, so it does not use the memo. `model` is for requests that do not
    name it themselves, `output` for requests that only count their tokens.
    """
    body = read_body(request, None if memo is None else memo.bodies)
    context = _context_for(
        body,
        format=detect_format(body, format),
        policy=policy,
        facts=facts,
        fields=complete_fields(body.fields, model, output),
        passes=passes,
    )
    if memo is None or trace:
        return FoldedRequest(body, _fold_anew(body, context, trace), context)
    return FoldedRequest(body, _fold_from_memo(body, context, memo), context)


def extend_fold(
    body: RequestBody,
    *,
    format: FormatName,
    policy: Policy,
    facts: Facts,
    before: FoldedRequest | None,
    head: int | None = None,
) -> FoldedRequest:
    """Fold over a request that extends the last one, whose state is reused and changed.

    `head` is the number of tokens of a system prompt and tools that the body does not hold.
    """
    context = _context_for(
        body, format=format, policy=policy, facts=facts, fields=body.fields, head=head
    )
    state = _initial_state(context) if before is None else before.state
    for step in _steps_from(body, context, state.prefix.messages):
        fold_step(state, step, _step_identities(body, step), context)
    return FoldedRequest(body, state, context)


def fold_known_prefix(
    request: object,
    *,
    format: str | None,
    policy: Policy,
    facts: Facts,
    memo: Memo,
    model: str | None = None,
    output: int = 0,
) -> tuple[FoldedRequest, Facts] | None:
    """Fold from the longest known prefix without a new edit; None: no prefix is known.

    The facts name the boundaries that were skipped.
    """
    body = read_body(request, memo.bodies)
    context = _context_for(
        body,
        format=detect_format(body, format),
        policy=policy,
        facts=facts,
        fields=complete_fields(body.fields, model, output),
    )
    state, known = _resume(memo, prefix_keys(body, context), body, context)
    if known is None:
        return None
    steps = _steps_from(body, context, state.prefix.messages)
    skipped, prefix = set[str](), state.prefix.hash
    for step in steps:
        prefix = chain_prefix(prefix, _step_identities(body, step))
        skipped.add(prefix.hex())
    passed_over = Facts(skipped=frozenset(skipped))
    context = replace(context, facts=facts.merge(passed_over))
    for step in steps:
        fold_step(state, step, _step_identities(body, step), context)
    return FoldedRequest(body, state, context), passed_over


def prefix_hash(body: RequestBody, format: FormatName, before: FoldedRequest | None) -> str:
    """The hash under which facts about a request are kept; `before` is one that it extends."""
    codec = PROVIDERS[format].codec
    prefix = initial_prefix(format) if before is None else before.state.prefix.hash
    start = 0 if before is None else before.state.prefix.messages
    for step in split_steps(codec, [body.message(at) for at in range(start, len(body))]):
        first = start + step.at
        prefix = chain_prefix(prefix, body.identities(first, first + len(step.messages)))
    return prefix.hex()


def _initial_state(context: Context) -> State:
    """The state before the first message."""
    return State(prefix=Prefix(hash=initial_prefix(context.codec.name), facts=context.facts))


def _fold_anew(body: RequestBody, context: Context, trace: bool) -> State:
    """Fold over the whole history."""
    state = _initial_state(context)
    state.evaluation.trace = [] if trace else None
    for step in read_steps(context.codec, body, 0):
        fold_step(state, step, _step_identities(body, step), context)
    return state


def _fold_from_memo(body: RequestBody, context: Context, memo: Memo) -> State:
    """Fold on from the longest known prefix, and remember the last two states."""
    keys = prefix_keys(body, context)
    state, known = _resume(memo, keys, body, context)
    for step in read_steps(context.codec, body, state.prefix.messages):
        if step.at and step.at + len(step.messages) == len(body):
            known = _remember(memo, keys[step.at], state, known)
        fold_step(state, step, _step_identities(body, step), context)
    if len(body) and not context.codec.is_model_made(body.message(len(body) - 1)):
        _remember(memo, keys[-1], state, known, is_last=True)
    return state


def _context_for(
    body: RequestBody,
    *,
    format: FormatName,
    policy: Policy,
    facts: Facts,
    fields: Fields | None,
    passes: tuple[Pass, ...] | None = None,
    head: int | None = None,
) -> Context:
    """The context of a request; the part that follows from known fields is reused."""
    usage = client_breakpoints_so_far(body, format, fields)
    if not isinstance(fields, LazyFields) or passes is not None or head is not None:
        made = _build_context(
            body,
            format=format,
            policy=policy,
            fields=fields,
            usage=usage,
            passes=passes,
            head=head,
        )
        return replace(made, facts=facts, request=replace(made.request, encode=body.encode))
    known: Context | None = fields.derived.get((format, usage))
    if known is None or known.policy is not policy:
        made = _build_context(body, format=format, policy=policy, fields=fields, usage=usage)
        # Without the fields that hold it: a reference cycle would live until the collector runs.
        start_key = _start_key(body, made)
        known = replace(made, request=replace(made.request, start_key=start_key, fields=None))
        fields.derived[format, usage] = known
    request = replace(known.request, encode=body.encode, fields=fields)
    return replace(known, facts=facts, request=request)


def _build_context(
    body: RequestBody,
    *,
    format: FormatName,
    policy: Policy,
    fields: Fields | None,
    usage: BreakpointUsage,
    passes: tuple[Pass, ...] | None = None,
    head: int | None = None,
) -> Context:
    """A context without facts and without the encoder of one request."""
    exact = counter_for(format, _model_name(fields), policy.counter)
    counters = Counters(exact, fast_counter(exact))
    provider, definitions = PROVIDERS[format], tool_definitions(fields)
    if head is None:
        counter = exact if policy.budget is not None else counters.fast
        head = head_tokens(body, provider.codec, counter)
    return Context(
        provider=provider,
        policy=policy,
        passes=select_passes(policy) if passes is None else passes,
        counters=counters,
        rates=rates_for(policy, format, fields, usage),
        limits=limits_for(policy, format, fields),
        request=RequestContext(
            fields=fields,
            encode=_encode_nothing,
            definitions=definitions,
            fetch_tool=find_defined_expand_tool(definitions),
            head=head,
            output_tokens=max_output_tokens(fields),
            binding=binding_of(format, fields),
        ),
        facts=_NO_FACTS,
    )


def _encode_nothing(_source: int | None, _message: JSON) -> bytes | None:
    """Encode no message: there is no request."""
    return None


@cache
def _secret() -> int:
    """The start of a memo's keys: this process's own, so that no text can be made to collide."""
    import secrets  # lazily: only a memo needs it

    return secrets.randbits(64)


# The fields beside the head that rules of steps depend on.
_RULE_FIELDS = ("model", "thinking", "previous_response_id", "conversation")


def prefix_keys(body: RequestBody, context: Context) -> list[bytes]:
    """Memo keys of all prefixes of the history, without cache breakpoints."""
    return body.prefix_keys(context.request.start_key or _start_key(body, context), _secret())


def _start_key(body: RequestBody, context: Context) -> bytes:
    """The memo's key of a history without a message."""
    names = (*_RULE_FIELDS, *context.codec.head_fields)
    signature = (
        f"{context.codec.name}|{field_signature(body, names)}|{context.counter}|{context.rates}|"
        f"{_model_name(context.fields)}|"
    )
    first = xxhash.xxh3_128(signature.encode() + _policy_key(context), seed=_secret())
    first.update(body.head_bytes(names))
    return first.digest()


def _policy_key(context: Context) -> bytes:
    """Identity of a policy and its passes; the last one is cached."""
    known = _LAST_POLICY[0]
    if known is None or known[0] is not context.policy or known[1] != context.passes:
        passes = ",".join(pass_token(one) for one in context.passes)
        key = passes.encode() + b"|" + context.policy.fingerprint()
        known = _LAST_POLICY[0] = (context.policy, context.passes, key)
    return known[2]


_LAST_POLICY: list[tuple[Policy, tuple[Pass, ...], bytes] | None] = [None]


def _resume(
    memo: Memo, keys: Sequence[bytes], body: RequestBody, context: Context
) -> tuple[State, bytes | None]:
    """The state of the longest known prefix that ends where a step ends."""
    for count in range(len(body), 0, -1):
        state = memo.get(keys[count])
        if state is None or not (
            is_consistent(state, context.facts) and is_valid_for_output(state, context)
        ):
            continue
        if count == len(body):  # nothing extends it: it may go on sharing all that grows
            return state.share(), keys[count]
        if context.codec.is_model_made(body.message(count)):
            return state.copy(), keys[count]
    return _initial_state(context), None


def _remember(
    memo: Memo, key: bytes, state: State, parent: bytes | None, *, is_last: bool = False
) -> bytes:
    if key != parent:
        share_pending(state)
        # At the end nothing extends it, and what is encoded and counted next is remembered too.
        memo.put(key, state.share() if is_last else state.copy(), parent)
    return key


def _step_identities(body: RequestBody, step: Step) -> Iterator[Any]:
    """For each message of a step, bytes that stand for it on every machine."""
    return body.identities(step.at, step.at + len(step.messages))


def _steps_from(body: RequestBody, context: Context, start: int) -> list[Step]:
    """The steps of the history from this message on."""
    messages = [body.message(at) for at in range(start, len(body))]
    return [
        Step(step.messages, start + step.at, step.model_count)
        for step in split_steps(context.codec, messages)
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
    whole = [SourceRun(0, len(folded.body))] if len(folded.body) else []
    changed = list(rendered.pieces) != whole
    projection = folded.body.splice(rendered.pieces) if changed else request
    if changed and isinstance(request, bytearray):
        projection = bytearray(projection)
    if not _should_define_tools(folded):
        projection = without_definitions(projection, folded.context.codec.name)
    folded.body.forget()
    return ProjectedRequest(projection, list(map(by_bytes, pieces)), rendered, repairs)


def build_compaction(folded: FoldedRequest, request: Any) -> Compaction[Any]:
    """The projection of a folded request, with its report and its originals."""
    made, state = project_request(folded, request), folded.state
    report = Report(
        format=folded.context.codec.name,
        model=_model_name(folded.context.fields),
        counter=folded.context.counter.name,
        tally=_TokenTally(folded, made.pieces, made.rendered, bool(made.end_repairs)),
        survey=partial(survey, state, folded.context),
        messages=len(folded.body),
        edits=edits_in_force(state),
        repairs=all_repairs(folded, made),
        failures=state.evaluation.failures,
        epochs=state.evaluation.epochs,
        prefix=state.prefix.hex(),
        mimicry=tuple(state.analysis.mimicry),
        refetched=tuple(state.refetches.found),
        trace=None if state.evaluation.trace is None else tuple(state.evaluation.trace),
    )
    return Compaction(made.request, report, collect_originals(folded), folded.context.facts)


def all_repairs(folded: FoldedRequest, made: ProjectedRequest) -> tuple[Repair, ...]:
    """All repairs, in the order of the history."""
    return (*folded.state.repairs.made, *made.end_repairs)


def collect_originals(folded: FoldedRequest) -> LazyOriginals:
    """All originals by reference; images and files are read from the request."""
    state = folded.state
    gone = (
        state.window.media[position]
        for position in sorted(state.window.media.keys() & state.edits.claimed)
    )
    images = {one.ref: one.part for one in gone if _source_message(folded, one.part) is not None}
    at_end = originals_at_end(folded.body, state, folded.context)
    return LazyOriginals(
        state.edits.originals | at_end,
        media=images,
        transcript=state.transcript,
        attached=state.window.media,
        media_block=lambda at: _media_block(folded, at),
    )


def _source_message(folded: FoldedRequest, position: int) -> int | None:
    """The source message that a part stands in; None: repair put it there."""
    return folded.state.repairs.sources[folded.state.transcript.parts[position].ref.row]


def _media_block(folded: FoldedRequest, position: int) -> str:
    """The block of an image or a file, as JSON."""
    source = _source_message(folded, position)
    assert source is not None  # as in originals_of
    found = attachment_of(folded.body.message(source), folded.state.transcript.parts[position])
    assert found is not None  # for it is among those held
    return found.original


def _render_pieces(pieces: list[Piece], folded: FoldedRequest) -> RenderedHistory:
    """The projection as plain messages, where the policy asks for that."""
    context = folded.context
    style = context.policy.rendering
    if style == "calls":
        return RenderedHistory(pieces, [], [])
    return render_as_text(
        pieces, folded.body, codec=context.codec, style=style, binding=context.binding
    )


def _should_define_tools(folded: FoldedRequest) -> bool:
    """Return whether the request may define tools; `text-only` is for models without them."""
    style = folded.context.policy.rendering
    return style == "calls" or STYLES[style].keep_definitions


class _TokenTally:
    """Lazy count of a request's tokens for its report."""

    def __init__(
        self,
        folded: FoldedRequest,
        pieces: Sequence[Piece],
        rendered: RenderedHistory,
        end_repaired: bool,
    ) -> None:
        self._folded, self._pieces, self._rendered = folded, pieces, rendered
        self._end_repaired = end_repaired

    def __call__(self) -> TokenCounts:
        folded, state = self._folded, self._folded.state
        codec, counter = folded.context.codec, folded.context.counter
        head = head_tokens(folded.body, codec, counter)
        read, went = state.count_parts(counter), self._went()
        at_the_end = went - (read - state.edits.saved) if self._end_repaired else 0
        repaired = state.repairs.tokens + at_the_end
        rendered = self._tokens(self._rendered.after) - self._tokens(self._rendered.before)
        if not _should_define_tools(folded):
            rendered -= definition_tokens(folded.body.fields, codec, counter)
        given = -sum(edit.saved for edit in state.edits.advice.values())
        return TokenCounts(
            head + read - state.repairs.tokens, head + went + rendered, repaired, rendered, given
        )

    def _went(self) -> int:
        """The tokens of the projection's own messages; two that were joined are not their sum."""
        state, body = self._folded.state, self._folded.body
        as_they_came = [0] * len(body)
        for part, tokens in zip(state.transcript.parts, state.tokens.exact, strict=True):
            source = state.repairs.sources[part.ref.row]
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
    outgoing = state.rendered.shared
    if outgoing.edits is None:
        edits = [*state.edits.by_part.items(), *state.edits.advice.items()]
        outgoing.edits = tuple(edit for _, edit in sorted(edits, key=itemgetter(0)))
        outgoing.edition = next(_EDITION_NUMBERS)
    return outgoing.edits


def _model_name(fields: Fields | None) -> str | None:
    model = (fields or {}).get("model")
    return model if isinstance(model, str) else None


# --- the one door for those outside the core ---------------------------------------------------

_TOOLS = ("tools", "functions")
_T = TypeVar("_T")
# Nothing is decided and nothing is repaired: what the client wrote is what goes out.
_UNCHANGED = Policy(passes=(), repair=False)


class RequestHistory:
    """A parsed request, and the hashes by which its history and its prefixes are known."""

    def __init__(
        self, source: object, body: RequestBody, format: FormatName, model: str | None
    ) -> None:
        self.source = source
        self.body = body
        self.format: FormatName = format
        self.given_model = model  # where the request itself does not name it
        named = (complete_fields(body.fields, model) or {}).get("model")
        self.model = named if isinstance(named, str) else ""
        self._boundaries: list[bytes] | None = None
        self._opening: bytes | None = None
        self._terms: str | None = None

    @property
    def fields(self) -> Fields | None:
        """The fields of the request beside its history."""
        return self.body.fields

    def once(self, name: str, work: Callable[[], _T]) -> _T:
        """A value that depends on the fields alone, computed once for requests that share them."""
        return (
            work() if self.body.fields is None else cached_on_fields(self.body.fields, name, work)
        )

    def boundaries(self) -> list[bytes]:
        """The hash of the history at each of its boundaries, computed once."""
        if self._boundaries is None:
            body, prefix, found = self.body, initial_prefix(self.format), list[bytes]()
            messages = [body.message(at) for at in range(len(body))]
            for step in split_steps(PROVIDERS[self.format].codec, messages):
                prefix = chain_prefix(prefix, _step_identities(body, step))
                found.append(prefix)
            self._boundaries = found
        return self._boundaries

    @property
    def prefix(self) -> str:
        """The hash of the whole history."""
        boundaries = self.boundaries()
        return (boundaries[-1] if boundaries else initial_prefix(self.format)).hex()

    def opening(self) -> bytes:
        """The hash of all messages before the model's first output, computed once."""
        if self._opening is None:
            codec, count, first = PROVIDERS[self.format].codec, len(self.body), 0
            while first < count and not codec.is_model_made(self.body.message(first)):
                first += 1
            start, identities = initial_prefix(self.format), self.body.identities(0, first)
            self._opening = chain_prefix(start, identities) if first else start
        return self._opening

    def plain(self, policy: Policy) -> PlainRequest | None:
        """The request if nothing in it can be compacted; None: that is not sure."""
        text = find_plain_text(self.body, PROVIDERS[self.format].codec, policy)
        if text is None:
            return None
        body, fields = self.body, complete_fields(self.body.fields, self.given_model)
        found = _context_for(
            body, format=self.format, policy=policy, facts=_NO_FACTS, fields=fields
        )
        return plain_request(found, text, self.opening())

    def terms(self) -> str:
        """The model and the tools that the request names, in few characters."""
        if self._terms is None:
            self._terms = f"{self.model} {self.once('tools', self._tools)}"
        return self._terms

    def head_texts(self) -> Iterator[str]:
        """The texts of the system prompt beside the history."""
        parts = PROVIDERS[self.format].codec.decode_head(self.body.fields or {})
        return (part.text for part in parts if part.kind == "text")

    def first_texts(self, messages: int) -> Iterator[tuple[str, str]]:
        """The speakers and texts of the first messages."""
        codec = PROVIDERS[self.format].codec
        for row in range(min(messages, len(self.body))):
            for part in codec.decode(row, self.body.message(row)):
                if part.kind == "text":
                    yield part.speaker, part.text

    def _tools(self) -> str:
        """A hash of the tools in the prompt: a deferred one may come and no prefix breaks."""
        head, tools = self.body.head_bytes(_TOOLS), (self.body.fields or {}).get("tools")
        if b'"defer_loading"' in head and isinstance(tools, list):
            loaded = [one for one in cast(list[JSON], tools) if not is_deferred(one)]
            head = compact_json(loaded).encode("utf-8", "surrogatepass")
        return xxhash.xxh3_64_hexdigest(head)

    @property
    def is_bound(self) -> bool:
        """True if the model refuses signed reasoning in another history than the signed one."""
        return binding_of(self.format, complete_fields(self.body.fields, self.given_model)).is_bound

    @property
    def pricing(self) -> CacheTerms:
        """The cache rules and prices of its model."""
        return terms_for(self.format, self.model)

    @property
    def breakpoints(self) -> BreakpointMode:
        """The client's cache breakpoints in this request, as a fact names them."""
        return client_breakpoints(self.body, self.format).mode

    @property
    def cache_lifetime(self) -> float:
        """Seconds after which the provider has surely dropped a cached prefix of this request."""
        return client_breakpoints(self.body, self.format).ttl_seconds or self.pricing.gone

    def window_for(self, tokens: int) -> int:
        """The window in which a prompt of so many tokens fits beside the requested output."""
        return window_for_prompt(tokens, self.body.fields)


class Session:
    """The door to the core: parses requests, folds their histories and projects them.

    It remembers what it has parsed and folded; that makes it faster and changes no result. Threads
    may share it.
    """

    def __init__(
        self, memo: Memo | None = None, *, megabytes: float = 512.0, scope: bytes = b""
    ) -> None:
        self._memo = Memo.of_megabytes(megabytes) if memo is None else memo
        self._scope = scope  # of all caches

    def scoped(self, scope: bytes) -> Session:
        """A session within this one's limits that finds nothing in its caches.

        This holds for all that it parses, in the thread or task that parses it.
        """
        return Session(self._memo.scoped(scope), scope=scope)

    def parse(
        self, request: object, format: str | None = None, model: str | None = None
    ) -> RequestHistory:
        """Parse a request; `model` is for those that do not name it. Raises what is unreadable."""
        enter_scope(self._scope)
        body = read_body(request, self._memo.bodies)
        return RequestHistory(request, body, detect_format(body, format), model)

    def fold(
        self, history: RequestHistory, policy: Policy, facts: Facts, *, output: int = 0
    ) -> FoldedRequest:
        """Fold a history under a policy; `output` is for requests that only count tokens."""
        return fold_request(
            history.body,
            format=history.format,
            policy=policy,
            facts=facts,
            memo=self._memo,
            model=history.given_model,
            output=output,
        )

    def fold_known(
        self, history: RequestHistory, policy: Policy, facts: Facts, *, output: int = 0
    ) -> tuple[FoldedRequest, Facts] | None:
        """Fold with the edits of the longest known prefix and no new one; None: none is known.

        The facts name the boundaries that were skipped, so that later requests skip them too.
        """
        return fold_known_prefix(
            history.body,
            format=history.format,
            policy=policy,
            facts=facts,
            memo=self._memo,
            model=history.given_model,
            output=output,
        )

    def evaluate_ahead(self, folded: FoldedRequest) -> None:
        """Compute what takes force at the next boundary, so that the next request finds it."""
        enter_scope(self._scope)
        evaluate_ahead(folded.state, folded.context, waiting_total)

    def fold_original(self, history: RequestHistory, signed_until: frozenset[str]) -> FoldedRequest:
        """Fold without any edit but one: drop reasoning that was signed for projections.

        `signed_until` are the prefixes up to which projections were sent.
        """
        facts = Facts(changed=signed_until)
        return fold_request(
            history.source,
            format=history.format,
            policy=_UNCHANGED,
            facts=facts,
            memo=None,
            model=history.given_model,
        )

    def project(
        self, folded: FoldedRequest, request: _Request
    ) -> tuple[_Request, tuple[Repair, ...]]:
        """The projection of a folded request, and its repairs; `request` itself if unchanged."""
        made = project_request(folded, request)
        return made.request, all_repairs(folded, made)


def breakpoint_lifetime(breakpoints: BreakpointMode) -> float:
    """The seconds that a cached prefix lives with these breakpoints; 0: not known."""
    return BREAKPOINT_USAGES[breakpoints].ttl_seconds


__all__ = [
    "FORMATS",
    "Compaction",
    "Fields",
    "FoldedRequest",
    "FormatName",
    "PlainRequest",
    "ProjectedRequest",
    "Refetch",
    "Repair",
    "RepeatCell",
    "RequestHistory",
    "Session",
    "breakpoint_lifetime",
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
