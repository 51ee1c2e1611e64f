"""Evaluation at a boundary: collect the offers of passes, plan, and put edits in force."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

from msgspec.structs import replace

from ..edits import TIDIED, Offer, Replace, touched_parts
from ..forecast.native_mentions import make_mentions
from ..history.ledger import Ledger
from ..history.refetches import Refetch, RepeatedRequest, VisibleHistory, find_repeated_request
from ..passes import OPT_IN, PASSES, Pass
from ..passes.base import View, is_arrival_pass, is_epoch_pass
from ..passes.keep_lines import keep_lines
from ..plugins import pass_name
from ..policy import Policy
from ..providers.bound_reasoning import drop_bound_reasoning, first_breaking_part
from ..shapes.decoration import (
    strip_decoration,
    strip_escape_codes,
    strip_shell_notes,
    thin_tool_numbers,
)
from ..tokens import ExactCounter, differing_heads, part_tokens
from .conflicts import choose_compatible
from .context import Context
from .offers import OfferDecision, log_offers, validate_offers
from .planner import EpochPlan, Planner, is_still_cached
from .state import State
from .window import is_over_window, record_unmet

_REFETCH_KEEP_REQUESTS = 8  # requests for which a refetched result stays over a limit


def select_passes(policy: Policy) -> tuple[Pass, ...]:
    """The passes that the policy switches on, in its order."""
    if policy.passes is None:
        return tuple(one for one in PASSES if one.__name__ not in OPT_IN)
    named = {pass_name(one): one for one in PASSES}
    return tuple(named[one] if isinstance(one, str) else one for one in policy.passes)


def evaluate_arrivals(state: State, context: Context) -> None:
    """Take offers on new results: these were never sent, so no prefix breaks."""
    arriving = [one for one in context.passes if is_arrival_pass(one)]
    unseen_from = state.unseen_from
    is_empty = unseen_from == len(state.transcript.parts)
    if not arriving or _should_keep_arrivals(context) or is_empty:
        return
    with updated_mentions(state, context) if context.policy.trim_on_arrival else nullcontext():
        view = View(state, context, "arrival", unseen_from)
        made = _collect_offers(arriving, view)
        if made:
            taken = choose_compatible(
                [offer for _, offer in made if _can_take_on_arrival(offer, state)],
                edits=state.edits.by_part,
                claimed=state.edits.claimed,
                dependents=state.edits.dependents(),
                transcript=state.transcript,
            )
            if not (is_still_cached(state, context, taken) or is_over_window(state, context)):
                taken = []
            _log(OfferDecision(made, taken), view)
            _take_offers(taken, view)


def _should_keep_arrivals(context: Context) -> bool:
    """Return whether new results stay for a while; arrival passes then act at epochs."""
    return context.policy.keep_messages > 0 or context.policy.keep_calls > 0


def _can_take_on_arrival(offer: Offer, state: State) -> bool:
    """Return whether an offer can be taken on arrival: refetched results are only tidied."""
    pins = state.refetches.pins
    if not pins or offer.edit.reason == TIDIED:
        return True
    parts = (part for edit in offer.edits for part in touched_parts(edit, state.transcript))
    return all(state.transcript.exchange_of[part] not in pins for part in parts)


def evaluate(state: State, context: Context, *, free: bool = False, was_sent: bool = False) -> None:
    """Collect the offers of every pass on what was sent, and take those that pay.

    `free`: the cache is cold, or another model's, so the whole prompt is written anyway.
    `was_sent`: the newest results were sent, too, for the edits take force at the next boundary.
    """
    state.sent.parts = (
        len(state.transcript.parts) if was_sent else state.transcript.units[-1].parts[0]
    )
    state.evaluation.waiting_total = None
    with updated_mentions(state, context):
        _evaluate_with_mentions(state, context, free=free)


def _evaluate_with_mentions(state: State, context: Context, *, free: bool) -> None:
    unseen_from = state.unseen_from
    state.evaluation.new_tokens = sum(state.tokens.estimates[unseen_from:])
    if state.refetches.pins and is_over_window(state, context):
        state.refetches.pins = _recent_pins(state)
    view = View(state, context, "epoch", unseen_from)
    _run_evaluation(view, free=free)
    keeps_some = bool(state.refetches.pins) or context.policy.keep_exchanges > 0
    if keeps_some and is_over_window(state, context):
        state.refetches.pins = frozenset()  # nothing is kept against a limit for being recent
        view = View(state, context, "full", unseen_from)
        _run_evaluation(view, free=free)
    record_unmet(view)


def _recent_pins(state: State) -> frozenset[int]:
    """The pins that hold over a limit: those of the latest requests."""
    first = len(state.transcript.units) - _REFETCH_KEEP_REQUESTS
    exchanges = state.transcript.exchanges
    return frozenset(one for one in state.refetches.pins if exchanges[one].unit >= first)


def _run_evaluation(view: View, *, free: bool) -> None:
    state, context = view.state, view.context
    late = _should_keep_arrivals(context)
    made = _collect_offers([one for one in context.passes if late or is_epoch_pass(one)], view)
    plan = Planner(view, is_rewrite_free=free).plan(made)
    given_up = [
        state.edits.by_part[part] for part in sorted(plan.freed) if part in state.edits.by_part
    ]
    _log(OfferDecision(made, plan.taken, state.evaluation.waiting, given_up), view)
    _record_plan(plan, view, free=free)
    for part in plan.freed:
        state.withdraw(part)
    state.recount_advice(plan.freed, context.counter)
    gone = set(state.edits.claimed) if context.binding.is_bound else ()
    changed = _take_offers(plan.taken, view)
    state.analysis.mentions.release(_removed_parts(plan.taken, state))
    lost = _drop_bound_reasoning(view, plan, gone)
    state.evaluation.epochs += changed or lost
    _advance_cursors(view)


def _record_plan(plan: EpochPlan, view: View, *, free: bool) -> None:
    """Record the cut, the cached prefixes that it leaves, and the offers that wait."""
    if plan.waiting is None:
        return
    evaluation, sent = view.state.evaluation, view.state.sent
    if plan.cut is not None:
        sent.cut = plan.cut.start
        saved = sum(offer.saved for offer in plan.taken)
        evaluation.account = evaluation.account.with_epoch(saved, plan.cut.cost)
    if plan.cut is not None or free:
        before = [end for end in sent.ends if end <= sent.cut]
        if free:  # only our own breakpoint ends a prefix then
            has_own = view.context.rates.has_spare_breakpoint and sent.cut > 0
            before = [sent.cut] if has_own else []
        end = len(view.state.transcript.parts)
        sent.ends = before if sent.parts == end else [*before, end]
    evaluation.waiting = plan.waiting


def _advance_cursors(view: View) -> None:
    state, evaluation, unseen_from = view.state, view.state.evaluation, view.unseen_from
    aged = view.seen_exchanges() - view.recent_count
    evaluation.projected_tokens = state.estimated_tokens
    evaluation.fresh_from = unseen_from
    evaluation.due_from = (
        unseen_from if view.kept_from is None else min(unseen_from, view.kept_from)
    )
    evaluation.aged_from = max(evaluation.aged_from, aged)


def _drop_bound_reasoning(view: View, plan: EpochPlan, gone: Collection[int]) -> bool:
    """Drop all reasoning that is signed for a changed prefix; return whether there was any.

    `gone` are the parts that edits touched before this plan.
    """
    state, context = view.state, view.context
    if not context.binding.is_bound:
        return False
    edits = [edit for offer in plan.taken for edit in offer.edits]
    first = first_breaking_part(state.transcript, edits, gone)
    first = min((one for one in (first, *plan.freed) if one is not None), default=None)
    if state.prefix.hex() in context.facts.changed:  # another model signed it
        first = -1
    if first is None:
        return False
    dropped = drop_bound_reasoning(state.transcript, first, state.edits.claimed, view.tokens_of)
    state.take(dropped)
    return len(dropped) > 0


def _collect_offers(passes: Iterable[Pass], view: View) -> list[tuple[str, Offer]]:
    """All offers of the passes, each with the name of its pass."""
    made: list[tuple[str, Offer]] = []
    for offer_pass in passes:
        offers = _run_pass(offer_pass, view)
        if offer_pass in PASSES:  # the texts of users' passes stay as they are
            offers = [_strip_decoration(offer, view) for offer in offers]
        made += [(pass_name(offer_pass), offer) for offer in offers]
    return made


def _run_pass(offer_pass: Pass, view: View) -> list[Offer]:
    """The offers of a pass; a pass that fails is skipped, and the report says so."""
    policy = view.context.policy
    try:
        offers = list(offer_pass(view, policy))
        if offer_pass in (policy.passes or ()):  # a user's own: respool's are named there
            validate_offers(offers, view)
    except Exception as error:  # noqa: BLE001 (a faulty pass must not cost the user a request)
        view.state.evaluation.failures[pass_name(offer_pass)] = f"{type(error).__name__}: {error}"
        return []
    return offers


def _strip_decoration(offer: Offer, view: View) -> Offer:
    """An offer of a result's own lines without the decoration that tidying removes."""
    edit = offer.edit
    if not isinstance(edit, Replace) or edit.reason == TIDIED:
        return offer
    part = view.transcript.parts[edit.part]
    if part.kind != "result":
        return offer
    ordinal = view.transcript.exchange_of[edit.part]
    use = view.use(ordinal) if ordinal >= 0 else None
    policy = view.context.policy
    strip = strip_decoration if policy.strip_decoration else thin_tool_numbers
    bare = strip(edit.text, use, policy.line_number_interval, original=part.text)
    if not view.arrival:
        bare = strip_shell_notes(bare)  # the model has seen them
    text = strip_escape_codes(bare, use)
    if len(text) == len(edit.text):
        return offer
    saved = _saved_after_stripping(view, edit, text)
    return replace(offer, edit=replace(edit, text=text, saved=saved))


def _saved_after_stripping(view: View, edit: Replace, text: str) -> int:
    """The tokens that an edit saves when it says `text`, which seldom differs but in its head."""
    is_exact = isinstance(view.counter, ExactCounter)  # an estimate of pieces is rounded apart
    heads = differing_heads(edit.text, text) if is_exact else None
    if heads is None:
        return view.saved_by(edit.part, text)
    before, after = map(view.counter.count, heads)
    return edit.saved + before - after


def _log(decision: OfferDecision, view: View) -> None:
    log_offers(view.state.evaluation.trace, decision, view, view.state.prefix.messages)


def _take_offers(taken: Sequence[Offer], view: View) -> bool:
    """Put the edits of these offers in force; return whether there were any."""
    state = view.state
    for offer in taken:
        state.take(offer.edits)
        replaced = (edit.part for edit in offer.edits if isinstance(edit, Replace))
        state.recount_advice(replaced, view.counter)
        if offer.depends_on:
            first = touched_parts(offer.edit, state.transcript)[0]
            state.edits.dependencies[first] = offer.depends_on
    return len(taken) > 0


def _removed_parts(taken: Iterable[Offer], state: State) -> Iterator[int]:
    """The parts of which these offers leave nothing."""
    for offer in taken:
        for edit in offer.edits:
            if not isinstance(edit, Replace):
                yield from touched_parts(edit, state.transcript)


# --- analysis of new calls ---------------------------------------------------------------------


def update_ledger(state: State, context: Context) -> None:
    """Add the new calls to the ledger; on a fork, add all calls to a new one."""
    exchanges, parts = state.transcript.exchanges, state.transcript.parts
    tools, definitions = context.policy.tools, context.request.definitions
    analysis = state.analysis
    first = analysis.ledger_exchanges
    if not analysis.ledger.extend(
        first, exchanges=exchanges[first:], parts=parts, tools=tools, definitions=definitions
    ):
        analysis.ledger = Ledger()
        analysis.ledger.extend(
            0, exchanges=exchanges, parts=parts, tools=tools, definitions=definitions
        )
    analysis.ledger_exchanges = len(exchanges)


def record_refetches(state: State, context: Context, first: int) -> None:
    """Record the calls, from this exchange on, that asked again for an earlier result."""
    edits, refetches = state.edits, state.refetches
    seen = VisibleHistory(
        state.transcript, state.analysis.ledger, edits.by_part, edits.claimed, edits.dependencies
    )
    for ordinal in range(first, len(state.transcript.exchanges)):
        again = find_repeated_request(seen, ordinal)
        if again is None:
            continue
        if again.cut is None:
            refetches.repeats.append(again)
        else:
            refetches.found.append(_describe_refetch(state, context, again, again.cut))
            refetches.pins |= {ordinal}


def _describe_refetch(
    state: State, context: Context, again: RepeatedRequest, reason: str
) -> Refetch:
    index, use = state.transcript, state.analysis.ledger.uses[again.exchange]
    exchange, earlier = (index.exchanges[one] for one in (again.exchange, again.earlier))
    assert exchange.result is not None
    assert earlier.result is not None
    call = index.parts[exchange.call]
    result = index.parts[exchange.result]
    return Refetch(
        ref=result.ref,
        earlier=index.parts[earlier.result].ref,
        tool=call.name,
        target=use.target or (use.reads[0].path if use.reads else ""),
        reason=reason,
        exchange=again.exchange,
        earlier_exchange=again.earlier,
        tokens=sum(part_tokens(part, context.counter) for part in (call, result)),
    )


@contextmanager
def updated_mentions(state: State, context: Context) -> Generator[None]:
    """Add new units to the index of mentions; on a fork, add all units to a new one.

    The index stays locked inside: no other thread may add to it while an evaluation reads it.
    """
    if context.policy.eager and keep_lines not in context.passes:
        yield  # no pass reads it
        return
    analysis, units, parts = state.analysis, state.transcript.units, state.transcript.parts
    first, analysis.mentioned_units = analysis.mentioned_units, len(units)
    with analysis.mentions.lock:
        if analysis.mentions.extend(units, parts, first):
            yield
            analysis.mentions.forget_lines()
            return
    analysis.mentions = make_mentions()
    with analysis.mentions.lock:
        analysis.mentions.extend(units, parts, 0)
        yield
        analysis.mentions.forget_lines()
