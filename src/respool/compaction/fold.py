"""Fold over request boundaries: read one step, evaluate where a request was sent."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from hashlib import sha256

from msgspec.structs import replace

from ..edits import FOLDED
from ..facts import Facts
from ..history.deferred_tools import SEARCH_TOOL, find_listed_expand_tool
from ..limits import held_media
from ..markers import find_marker, find_mimicry, reference
from ..passes.protections import find_fetched_back
from ..pricing import BREAKPOINT_USAGES, rates_for
from ..providers.base import (
    Repair,
    Step,
    StepRepair,
    name_originals,
    shortened_messages,
    split_steps,
    track_reads,
    tracked_reads,
)
from ..tokens import part_tokens
from ..transcript import Part
from ..wire.json import JSON, Object
from ..wire.message_identity import count_breakpoints, with_string_content
from .advice import give_advice, withdraw_if_over
from .context import Context
from .evaluation import evaluate, evaluate_arrivals, record_refetches, update_ledger
from .state import PendingEvaluation, Prefix, RepairedStep, State
from .window import is_due, is_over_limit, record_fullness

_TEXT_ROLES = ("user", "system", "developer")  # roles whose messages may be plain text


@cache
def initial_prefix(format: str) -> bytes:
    """The first hash of the chain of a history in this format."""
    return sha256(format.encode()).digest()


def chain_prefix(prefix: bytes, identities: Iterable[bytes]) -> bytes:
    """The chained hash after one more step."""
    link = sha256(prefix)
    for identity in identities:
        link.update(identity)
    return link.digest()


def is_consistent(state: State, facts: Facts) -> bool:
    """Return whether these facts give the same state as those it was folded under."""
    before = state.prefix.facts
    if facts == before:
        return True
    if facts.summaries != before.summaries and _has_folded(state):
        return False
    changed = facts.differing_prefixes(before)
    return changed.isdisjoint(boundary.hex() for boundary in state.prefix.boundaries)


def _has_folded(state: State) -> bool:
    """Return whether a summary was sent: its words may differ now."""
    return any(edit.reason == FOLDED for edit in state.edits.by_part.values())


def fold_step(state: State, step: Step, identities: Iterable[bytes], context: Context) -> None:
    """Read one more step: repair it, index its parts, and evaluate where a request was sent."""
    facts, known = context.facts, tuple(identities)
    _finish_pending(state, context, chain_prefix(state.prefix.hash, known).hex())
    evaluation = state.evaluation
    _extend_prefix(state.prefix, step, known, facts)
    prefix = state.prefix.hex()
    _read_step(state, step, context)
    _inspect_new_parts(state, context)
    window = facts.window_at(prefix)
    if window is not None:
        state.window.size = min(window, state.window.size or window)
    record_fullness(state, context)
    evaluation.breakpoint_mode = facts.breakpoint_mode_at(prefix) or evaluation.breakpoint_mode
    sent = len(step.messages) > step.model_count
    if sent:
        evaluation.requests += 1
        state.sent.ends.append(len(state.transcript.parts))
    # A request that overflowed was not answered, so an evaluation cannot contradict what was sent.
    skipped = prefix in facts.skipped and window is None
    priced = _with_breakpoint_rates(state, context)
    if sent:
        source = context.head + state.tokens.estimated_total
        evaluation.account = evaluation.account.with_request(source, priced.rates)
    if not sent or skipped or state.prefix.is_left_alone:
        return
    _evaluate_boundary(
        state,
        priced,
        free=prefix in facts.cold or prefix in facts.changed,
    )


def _extend_prefix(prefix: Prefix, step: Step, identities: Iterable[bytes], facts: Facts) -> None:
    prefix.hash = chain_prefix(prefix.hash, identities)
    prefix.boundaries.append(prefix.hash)
    prefix.messages = step.at + len(step.messages)
    prefix.facts = facts
    if prefix.hex() in facts.left_alone:
        prefix.is_left_alone = True


def _evaluate_boundary(state: State, context: Context, *, free: bool) -> None:
    first = state.analysis.ledger_exchanges
    update_ledger(state, context)
    record_refetches(state, context, first)
    evaluate_arrivals(state, context)
    given = give_advice(state, context)
    if free or is_due(state, context):
        if free or _takes_force_here(state, context):
            evaluate(state, context, free=free)
        else:
            state.evaluation.is_pending = True
    withdraw_if_over(state, context, given)
    record_fullness(state, context)


def _takes_force_here(state: State, context: Context) -> bool:
    """Return whether an evaluation takes force at its own boundary, and not at the next one.

    It does where the request must get smaller now, and where nothing is cached. Bound reasoning is
    signed for what was sent: the next boundary would have to drop the answer to this one.
    """
    is_at_once = context.policy.eager or not context.rates.caches or context.binding.is_bound
    return is_at_once or is_over_limit(state, context)


def share_pending(state: State) -> None:
    """Let all copies of this state share the outcome of a pending evaluation."""
    if state.evaluation.is_pending and state.pending is None:
        state.pending = PendingEvaluation()


def evaluate_ahead(
    state: State, context: Context, complete: Callable[[State, Context], object]
) -> None:
    """Compute the evaluation that takes force at the next boundary, before that is there.

    `complete` computes what else is asked of its outcome.
    """
    if state.pending is not None and state.evaluation.is_pending:
        _pending_outcome(state, context, state.pending, complete)


def decided_state(state: State, context: Context) -> State:
    """The state with all that is decided here, also what takes force at the next boundary."""
    if not state.evaluation.is_pending:
        return state
    outcome = state.copy()
    _evaluate_late(outcome, context)
    return outcome


def _finish_pending(state: State, context: Context, following: str) -> None:
    """Put the edits in force that the last boundary decided, unless a fact speaks against it.

    At a free moment the next boundary decides itself, and a skipped one changes nothing.
    """
    if not state.evaluation.is_pending:
        return
    facts, pending = context.facts, state.pending
    excepted = (facts.skipped, facts.left_alone, facts.cold, facts.changed)
    if any(following in one for one in excepted):
        state.evaluation.is_pending, state.pending = False, None
    elif pending is None:
        _evaluate_late(state, context)
    else:
        state.become(_pending_outcome(state, context, pending).copy())


def _pending_outcome(
    state: State,
    context: Context,
    pending: PendingEvaluation,
    complete: Callable[[State, Context], object] | None = None,
) -> State:
    with pending.lock:
        if pending.outcome is None:
            outcome = state.copy()
            _evaluate_late(outcome, context)
            if complete is not None:
                complete(outcome, context)
            pending.outcome = outcome
        return pending.outcome


def _evaluate_late(state: State, context: Context) -> None:
    state.evaluation.is_pending, state.pending = False, None
    evaluate(state, _with_breakpoint_rates(state, context), was_sent=True)


def _with_breakpoint_rates(state: State, context: Context) -> Context:
    """The context with the rates for the client's cache breakpoints, where a fact names them."""
    mode = state.evaluation.breakpoint_mode
    if mode is None:
        return context
    usage = BREAKPOINT_USAGES[mode]
    rates = rates_for(context.policy, context.codec.name, context.fields, usage)
    return replace(context, rates=rates)


def _read_step(state: State, step: Step, context: Context) -> None:
    """Repair a step, index its parts and count them."""
    rule_state, rules = state.repairs.rule_state, context.provider.rules
    before = state.tokens.estimated_total
    repaired = (
        context.provider.repairer.repair_step(step, rule_state, context.fields)
        if context.policy.repair
        else None
    )
    if repaired is None:
        sources = range(step.at, step.at + len(step.messages))
        first = _read_rows(state, step.messages, sources, context)
        rules.advance(Step(step.messages, first, step.model_count), rule_state)
    else:
        state.repairs.steps.append(_record_repair(state, step, repaired, context))
        state.repairs.made += _keep_shortened(state, step, repaired)
        messages = [row.message for row in repaired.rows]
        first = _read_rows(state, messages, [row.source for row in repaired.rows], context)
        for one in split_steps(context.codec, messages):  # repair may split a step
            rules.advance(Step(one.messages, first + one.at, one.model_count), rule_state)
        added = _tokens_in(messages, context) - _tokens_in(step.messages, context)
        state.repairs.tokens += added
    state.evaluation.new_tokens += state.tokens.estimated_total - before


def _keep_shortened(state: State, step: Step, repaired: StepRepair) -> list[Repair]:
    """Keep the messages of which repair left something out; return the repairs that name them."""
    kept = {id(row.message) for row in repaired.rows}
    changed = {
        row: message
        for row, message in enumerate(step.messages, step.at)
        if id(message) not in kept
    }
    found = shortened_messages(changed, [row.message for row in repaired.rows])
    references = {row: reference(text) for row, text in found.items()}
    state.edits.originals |= {references[row]: text for row, text in found.items()}
    return name_originals(repaired.repairs, references)


def _tokens_in(messages: Sequence[JSON], context: Context) -> int:
    """Tokens of messages outside the history."""
    parts = (part for message in messages for part in context.codec.decode(0, message))
    return sum(part_tokens(part, context.counter) for part in parts)


def _record_repair(
    state: State, step: Step, repaired: StepRepair, context: Context
) -> RepairedStep:
    first = len(state.repairs.sources)
    changed = {
        first + offset: row.message
        for offset, row in enumerate(repaired.rows)
        if row.source is None or row.message is not step.messages[row.source - step.at]
    }
    is_variable = any(
        count_breakpoints(message) or _is_plain_text(message) for message in step.messages
    )
    if not is_variable:
        for row, message in changed.items():
            encoded = context.request.encode(repaired.rows[row - first].source, message)
            if encoded is not None:
                state.rendered.encoded[row] = encoded
    tracked = track_reads(state.repairs.rule_state)
    context.provider.repairer.repair_step(step, tracked, context.fields)
    return RepairedStep(
        at=step.at,
        length=len(step.messages),
        model_count=step.model_count,
        row=first,
        changed=changed,
        is_variable=is_variable,
        rule_state=tracked_reads(tracked),
    )


def _is_plain_text(message: JSON) -> bool:
    """Return whether a message may be plain text, which clients encode in two ways."""
    holder: Object = message
    if not isinstance(message, dict) or holder.get("role") not in _TEXT_ROLES:
        return False
    return isinstance(holder.get("content"), str) or with_string_content(holder) is not holder


def _read_rows(
    state: State, messages: Sequence[JSON], sources: Sequence[int | None], context: Context
) -> int:
    """Index the parts of these rows as one unit and count them; return the first row."""
    codec, all_sources, counters = context.codec, state.repairs.sources, context.counters
    first = len(all_sources)
    model: list[Part] = []
    answers: list[Part] = []
    for row, message in enumerate(messages, first):
        read = codec.decode(row, message)
        if codec.is_model_made(message):
            model += read
        else:
            answers += read
    all_sources += sources
    locked = codec.has_locked_calls(model)
    unit = state.transcript.add_unit(
        (first, len(all_sources)),
        model,
        answers,
        locked=locked,
        keeps_reasoning=locked and codec.is_reasoning_required(messages),
    )
    _record_media(state, unit.parts[0], messages, first)
    sizes = [part_tokens(part, counters.fast) for part in (*model, *answers)]
    state.tokens.add(sizes, are_exact=counters.fast is counters.exact)
    return first


def _record_media(state: State, start: int, messages: Sequence[JSON], first: int) -> None:
    """Record the images and files among the parts from `start` on."""
    parts = state.transcript.parts
    for position in range(start, len(parts)):
        part = parts[position]
        if part.kind == "media":
            found = held_media(position, part, messages[part.ref.row - first])
            if found is not None:
                state.window.media[position] = found


def _inspect_new_parts(state: State, context: Context) -> None:
    """Record mimicry, a list of deferred tools, and new results that bring originals back."""
    index, unit, edits = state.transcript, state.transcript.units[-1], state.edits
    state.analysis.mimicry += find_mimicry(index.parts[unit.parts[0] : unit.answers_from])
    if SEARCH_TOOL in context.request.definitions:
        new = index.parts[unit.answers_from : unit.parts[1]]
        state.analysis.listed_tool = find_listed_expand_tool(new, state.analysis.listed_tool)
    results = index.results[bisect_left(index.results, unit.parts[0]) :]
    if results:
        fetched = find_fetched_back(index, results, edits.originals, edits.external)
        state.refetches.fetched_back |= fetched
        markers = (find_marker(index.parts[position].text) for position in results)
        edits.external |= {marker.ref for marker in markers if marker is not None}
