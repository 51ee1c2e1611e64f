"""Evaluation at a boundary: run the passes, plan, and put edits in force."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain

from msgspec.structs import replace

from ..edits import FOLDED, TIDIED, UNLIKELY_NEEDED, Offer, PlaceBreakpoint, Replace, touched_parts
from ..forecast.mentions import Mentions
from ..history.ledger import Ledger
from ..history.refetches import Refetch, RepeatedRequest, VisibleHistory, find_repeated_request
from ..limits import RequestLimits
from ..passes import OPT_IN, PASSES, Pass
from ..passes.base import View, completion_position, is_arrival_pass, is_epoch_pass
from ..passes.keep_lines import keep_lines
from ..passes.protections import Protections, first_kept_part
from ..plugins import pass_name
from ..policy import Policy
from ..providers.bound_reasoning import (
    drop_bound_reasoning,
    first_breaking_part,
    first_changeable_part,
)
from ..shapes.decoration import strip_decoration, strip_escape_codes
from ..tokens import part_tokens
from .conflicts import choose_compatible
from .offers import OfferDecision, log_offers, validate_offers
from .planner import (
    BoundaryTerms,
    EpochCut,
    PricedOffer,
    best_cut,
    break_even_risk,
    cumulative_tokens,
    is_mandatory,
    lost_reasoning_value,
    price_offers,
    price_with_risk,
    price_without_risk,
)
from .state import Context, State
from .window import current_limits, estimate_tokens, is_over_window


def update_ledger(state: State, setting: Context) -> None:
    """Write what the new calls did into the ledger; on a fork, all of them into a new one."""
    exchanges, parts, tools = state.index.exchanges, state.index.parts, setting.policy.tools
    new = exchanges[state.ledger_exchanges :]
    if not state.ledger.extend(
        state.ledger_exchanges,
        exchanges=new,
        parts=parts,
        tools=tools,
        definitions=setting.definitions,
    ):
        state.ledger = Ledger()
        state.ledger.extend(
            0, exchanges=exchanges, parts=parts, tools=tools, definitions=setting.definitions
        )
    state.ledger_exchanges = len(exchanges)


def record_refetches(state: State, setting: Context, first: int) -> None:
    """Note which calls, from this one on, asked again for what earlier ones had brought."""
    seen = VisibleHistory(state.index, state.ledger, state.edits, state.claimed, state.leans)
    for ordinal in range(first, len(state.index.exchanges)):
        again = find_repeated_request(seen, ordinal)
        if again is None:
            continue
        if again.cut is None:
            state.repeated_requests += 1
        else:
            state.refetched.append(_describe_refetch(state, setting, again, again.cut))
            state.refetch_pins |= {ordinal}


def _describe_refetch(
    state: State, setting: Context, again: RepeatedRequest, reason: str
) -> Refetch:
    index, use = state.index, state.ledger.uses[again.exchange]
    exchange, earlier = (index.exchanges[one] for one in (again.exchange, again.earlier))
    assert exchange.result is not None
    assert earlier.result is not None
    call = index.parts[exchange.call]
    asked = (call, index.parts[exchange.result])
    return Refetch(
        ref=index.parts[exchange.result].ref,
        earlier=index.parts[earlier.result].ref,
        tool=call.name,
        target=use.target or (use.reads[0].path if use.reads else ""),
        reason=reason,
        exchange=again.exchange,
        earlier_exchange=again.earlier,
        tokens=sum(part_tokens(part, setting.counter) for part in asked),
    )


@contextmanager
def updated_mentions(state: State, setting: Context) -> Generator[None]:
    """Note where the words of new units stand; on a fork, all of them in a new index.

    As long as this is open, nobody else notes more in the same index: what is decided by it must
    not depend on who comes first.
    """
    if setting.policy.eager and keep_lines not in setting.passes:
        yield  # nobody asks for them
        return
    units, parts, first = state.index.units, state.index.parts, state.mentioned_units
    state.mentioned_units = len(units)
    with state.mentions.lock:
        if state.mentions.extend(units, parts, first):
            yield
            return
    state.mentions = Mentions()
    with state.mentions.lock:
        state.mentions.extend(units, parts, 0)
        yield


_REFETCH_KEEP_REQUESTS = 8  # requests for which what was fetched again stays where there is no room
_MIN_REFETCH_TOKENS = (
    50_000  # tokens at least, of a request that asks again for what was never shown
)
_CACHE_MINIMUM_MARGIN = (
    1.25  # times the shortest prompt that is cached: so far the count may be off
)


def evaluate_arrivals(state: State, setting: Context) -> None:
    """Take what passes offer on results that just came: they were never sent, so it is free."""
    arriving = [one for one in setting.passes if is_arrival_pass(one)]
    unseen_from = state.index.units[-1].answers_from
    if not arriving or _should_keep_arrivals(setting) or unseen_from == len(state.index.parts):
        return
    with updated_mentions(state, setting) if setting.policy.trim_on_arrival else nullcontext():
        view = build_view(state, setting, unseen_from, arrival=True)
        made = _collect_offers(state, setting, arriving, view)
        if made:
            offers = [offer for _, offer in made if _can_take_on_arrival(offer, state)]
            taken = choose_compatible(
                offers, state.edits, state.claimed, state.dependents(), state.index
            )
            if not (_is_still_cached(state, setting, taken) or is_over_window(state, setting)):
                taken = []
            log_offers(state.trace, OfferDecision(made, taken), view, state.messages)
            _apply_offers(state, taken, view)


def _is_still_cached(state: State, setting: Context, taken: Iterable[Offer]) -> bool:
    """Whether what is left is long enough to be cached, or so short that it need not be.

    A prompt that is too short to be cached is paid for in full each time.
    """
    rates, now = setting.rates, setting.head + state.size - state.saved
    left = now - sum(offer.saved for offer in taken)
    if not rates.caches or setting.policy.eager:
        return True
    return left >= _CACHE_MINIMUM_MARGIN * rates.minimum or left <= rates.read * now


def _should_keep_arrivals(setting: Context) -> bool:
    """Whether what arrives stays for a while: passes that act at arrival then act afterwards."""
    return setting.policy.keep_messages > 0 or setting.policy.keep_calls > 0


def _can_take_on_arrival(offer: Offer, state: State) -> bool:
    """Whether an offer may be taken at arrival: what was fetched again is only tidied."""
    if not state.refetch_pins or offer.edit.reason == TIDIED:
        return True
    parts = (part for edit in offer.edits for part in touched_parts(edit, state.index))
    return all(state.index.exchange_of[part] not in state.refetch_pins for part in parts)


def evaluate(state: State, setting: Context, *, free: bool = False) -> None:
    """Let every pass offer on what was sent, and take what pays by now.

    `free`: the cache is cold, or another model's, so whatever goes out is written anyway.
    """
    with updated_mentions(state, setting):
        _evaluate_with_mentions(state, setting, free=free)


def _evaluate_with_mentions(state: State, setting: Context, *, free: bool) -> None:
    unseen_from = state.index.units[-1].answers_from
    state.since = sum(state.sizes[unseen_from:])  # what no pass could touch yet is still to come
    if state.refetch_pins and is_over_window(state, setting):
        state.refetch_pins = _recent_pins(state)
    view = build_view(state, setting, unseen_from, arrival=False)
    _run_evaluation(state, setting, view, free=free)
    if state.refetch_pins and is_over_window(
        state, setting
    ):  # what was fetched again gives way in the end
        state.refetch_pins = frozenset()
        view = build_view(state, setting, unseen_from, arrival=False)
        _run_evaluation(state, setting, replace(view, fresh_from=0, aged_from=0), free=free)


def _recent_pins(state: State) -> frozenset[int]:
    """What was fetched again not long ago: of what is pinned, all that a limit lets stay."""
    first = len(state.index.units) - _REFETCH_KEEP_REQUESTS
    return frozenset(one for one in state.refetch_pins if state.index.exchanges[one].unit >= first)


def _run_evaluation(state: State, setting: Context, view: View, *, free: bool) -> None:
    late = _should_keep_arrivals(setting)
    acting = [one for one in setting.passes if late or is_epoch_pass(one)]
    made, waited = _collect_offers(state, setting, acting, view), state.pool
    taken, freed = _plan_offers(state, setting, view, made, free=free)
    given_up = [state.edits[part] for part in sorted(freed) if part in state.edits]
    log_offers(state.trace, OfferDecision(made, taken, waited, given_up), view, state.messages)
    for part in freed:
        state.withdraw(part)
    state.recount_advice(freed, setting.counter)
    gone = set(state.claimed) if setting.binding.is_bound else ()
    changed = _apply_offers(state, taken, view)
    lost = _drop_bound_reasoning(state, setting, view, taken, freed, gone)
    state.epochs += changed or lost
    state.left_over = state.size - state.saved
    state.fresh_from = view.unseen_from
    state.due_from = (
        view.unseen_from if view.kept_from is None else min(view.unseen_from, view.kept_from)
    )
    state.aged_from = max(state.aged_from, view.seen_exchanges() - view.recent_count)


def _plan_offers(
    state: State, setting: Context, view: View, made: Sequence[tuple[str, Offer]], *, free: bool
) -> tuple[list[Offer], set[int]]:
    """The offers to take now, and the parts whose edits give way to them; the others wait."""
    history = state.index
    floor = first_changeable_part(history, setting.binding, state.claimed)
    if setting.policy.eager:
        offers = [offer for _, offer in made if _can_break_prefix(state, offer, floor)]
        return choose_compatible(
            offers, state.edits, state.claimed, state.dependents(), history
        ), set()
    fresh = [offer for _, offer in made]
    pressed = is_over_window(state, setting)
    moment = _boundary_terms(
        state, setting, view.limits, view.projected_tokens, free=free, pressed=pressed
    )
    found = _candidates(state, setting, view, moment, fresh, floor)
    if moment.is_over_budget and _is_still_over(view, found):  # then whatever may go goes
        moment = replace(moment, caution=0.0)
        found = _candidates(state, setting, view, moment, fresh, floor)
    cut = _find_cut(state, setting, view, found, moment)
    taken = _offers_behind(cut, found)
    if not (
        moment.is_over_budget or _is_still_cached(state, setting, [one.offer for one in taken])
    ):
        cut = _find_cut(
            state, setting, view, [one for one in taken if is_mandatory(one.offer)], moment
        )
        taken = [one for one in _offers_behind(cut, taken) if is_mandatory(one.offer)]
    state.cut = state.cut if cut is None else cut.start
    if cut is not None or free:
        _reset_cached_prefixes(state, setting, free=free)
    _keep_waiting(state, view, made, taken)
    marks = [
        offer for _, offer in made if isinstance(offer.edit, PlaceBreakpoint)
    ]  # break no prefix
    freed = _freed_parts(state, taken)
    if cut is not None and taken and not moment.is_over_budget:
        freed |= _regretted_parts(state, setting, view, moment, taken, cut)
    return [*(one.offer for one in taken), *marks], freed


def _reset_cached_prefixes(state: State, setting: Context, *, free: bool) -> None:
    """Forget the prefixes that the cache no longer has: those behind a cut, or all that had.

    What is written in one go is found where a mark of our own stands, and where it ends.
    """
    before = [end for end in state.ends if end <= state.cut]
    if free:
        before = [state.cut] if setting.rates.has_spare_breakpoint and state.cut > 0 else []
    state.ends = [*before, len(state.index.parts)]


def _offers_behind(cut: EpochCut | None, found: Sequence[PricedOffer]) -> list[PricedOffer]:
    """The offers that change nothing in front of a cut."""
    return [] if cut is None else [one for one in found if one.start >= cut.start]


def _candidates(
    state: State,
    setting: Context,
    view: View,
    moment: BoundaryTerms,
    fresh: Sequence[Offer],
    floor: int,
) -> list[PricedOffer]:
    """The offers that are worth something, and may be taken together."""
    found = _price_candidates(state, setting, view, moment, fresh)
    if not (
        moment.is_over_budget
        or moment.is_rewrite_free
        or _find_cut(state, setting, view, found, moment)
    ):
        return []  # no cut would pay even if nothing were ever missed
    found = price_with_risk(found, state.edits, view.risks.risk_of, setting.rates, moment)
    return [
        one
        for one in _compatible_offers(state, found)
        if _can_break_prefix(state, one.offer, floor)
    ]


def _is_still_over(view: View, found: Sequence[PricedOffer]) -> bool:
    """Whether the limit is exceeded even when all of these are taken."""
    saved = sum(one.offer.saved for one in found)
    return view.limits.tokens is not None and view.projected_tokens - saved > view.limits.tokens


_FORECAST_REASONS = frozenset({"unlikely_needed", "stubbed", "trimmed", "over_cap"})


def _regretted_parts(
    state: State,
    setting: Context,
    view: View,
    moment: BoundaryTerms,
    taken: Sequence[PricedOffer],
    cut: EpochCut,
) -> set[int]:
    """The parts behind a cut that were cut before and would not be cut now: they say all again."""
    new = {
        part
        for one in taken
        for edit in one.offer.edits
        for part in touched_parts(edit, state.index)
    }
    new |= state.leans.keys()
    new |= _refetch_sources(state)
    old = [
        Offer("trim", edit)
        for part, edit in state.edits.items()
        if part >= cut.start and part not in new and edit.reason in _FORECAST_REASONS
    ]
    found = price_offers(old, state.index, {}, {}, view.risks.risk_of, setting.rates, moment)
    kept = {id(one.offer) for one in found}
    return {touched_parts(o.edit, state.index)[0] for o in old if id(o) not in kept}


def _refetch_sources(state: State) -> set[int | None]:
    """The results of which a copy was fetched again, and stays: they need not say it as well."""
    exchanges = state.index.exchanges
    return {exchanges[one.earlier_exchange].result for one in state.refetched}


def _find_cut(
    state: State, setting: Context, view: View, found: Sequence[PricedOffer], moment: BoundaryTerms
) -> EpochCut | None:
    """The cut that pays best, if there is anything to take."""
    if not found:
        return None
    if moment.is_over_budget:
        return best_cut(found, state.index, (), setting.rates, moment, (), state.ends)
    edits = chain(state.edits.items(), state.advice.items())
    sent = cumulative_tokens(state.sizes, edits, state.index.units[-1].parts[0])
    lost = _lost_reasoning(state, setting, view, moment)
    return best_cut(found, state.index, sent, setting.rates, moment, lost, state.ends)


def _keep_waiting(
    state: State, view: View, made: Iterable[tuple[str, Offer]], taken: Iterable[PricedOffer]
) -> None:
    """Keep what was not taken for later; what a pass offers anew stands for what it offered."""
    fresh: dict[tuple[str, int], list[Offer]] = {}
    for name, offer in made:
        if not _is_transient(offer):
            key = name, touched_parts(offer.edit, state.index)[0]
            fresh.setdefault(key, []).append(offer)
    done = {id(one.offer) for one in taken}
    pool = {key: offers for key, offers in state.pool.items() if not view.is_gone(key[1])}
    pool |= {key: tuple(offers) for key, offers in fresh.items()}
    left = ((key, tuple(o for o in offers if id(o) not in done)) for key, offers in pool.items())
    state.pool = {key: offers for key, offers in left if offers}


def _is_transient(offer: Offer) -> bool:
    """Whether an offer is made anew whenever there is need of it."""
    return offer.edit.reason == FOLDED or isinstance(offer.edit, PlaceBreakpoint)


def _can_break_prefix(state: State, offer: Offer, floor: int) -> bool:
    """Whether an offer changes nothing in front of reasoning that must stay and is bound."""
    if not floor:
        return True
    first = first_breaking_part(state.index, offer.edits, state.claimed)
    return first is None or first >= floor


def _lost_reasoning(
    state: State, setting: Context, view: View, moment: BoundaryTerms
) -> Sequence[float]:
    """What goes with a cut in each unit, where the model loses what it thought behind one."""
    if not setting.binding.is_prefix_signed:
        return ()
    bound = drop_bound_reasoning(state.index, -1, state.claimed, view.tokens_of)
    return lost_reasoning_value(state.index, bound, setting.rates, moment)


def _drop_bound_reasoning(
    state: State,
    setting: Context,
    view: View,
    taken: Sequence[Offer],
    freed: Collection[int],
    gone: Collection[int],
) -> bool:
    """Drop all reasoning that is signed for what these edits changed, as a part of them."""
    if not setting.binding.is_bound:
        return False
    edits = [edit for offer in taken for edit in offer.edits]
    first = first_breaking_part(state.index, edits, gone)
    first = min((one for one in (first, *freed) if one is not None), default=None)
    if state.prefix.hex() in setting.facts.changed:  # it was signed by another model, or for it
        first = -1
    if first is None:
        return False
    dropped = drop_bound_reasoning(state.index, first, state.claimed, view.tokens_of)
    state.take(dropped)
    return len(dropped) > 0


def _boundary_terms(
    state: State,
    setting: Context,
    limits: RequestLimits,
    projected: int,
    *,
    free: bool = False,
    pressed: bool = False,
) -> BoundaryTerms:
    sent = projected if limits.tokens is None else min(projected, limits.tokens)
    caution = setting.policy.miss_penalty
    return BoundaryTerms(
        state.requests, sent, is_rewrite_free=free, is_over_budget=pressed, caution=caution
    )


def _price_candidates(
    state: State, setting: Context, view: View, moment: BoundaryTerms, fresh: Sequence[Offer]
) -> list[PricedOffer]:
    """The offers worth something if nothing is missed: new ones, and those that still may be."""
    waited = [
        offer
        for (_, part), offers in state.pool.items()
        if not view.is_gone(part)
        for offer in offers
        if _can_still_take(offer, view)
    ]
    return price_without_risk(
        [*waited, *fresh], state.index, state.edits, state.dependents(), setting.rates, moment
    )


def _compatible_offers(state: State, found: Sequence[PricedOffer]) -> list[PricedOffer]:
    """Those of them that can stand together, and with the edits in force."""
    worth = {id(one.offer): one.value for one in found}
    offers = [one.offer for one in found]
    chosen = choose_compatible(
        offers, state.edits, state.claimed, (), state.index, lambda offer: worth[id(offer)]
    )
    kept = {id(offer) for offer in chosen}
    return [one for one in found if id(one.offer) in kept]


def _freed_parts(state: State, taken: Sequence[PricedOffer]) -> set[int]:
    """The parts whose edits lean on what goes now, where nothing else is put in their place."""
    new = {
        part
        for one in taken
        for edit in one.offer.edits
        for part in touched_parts(edit, state.index)
    }
    return {part for one in taken for part in one.freed} - new


def _can_still_take(offer: Offer, view: View) -> bool:
    """Whether an offer that waited still may: what is protected is judged anew."""
    if isinstance(offer.edit, Replace) and offer.edit.reason == UNLIKELY_NEEDED:
        return view.can_lose_lines(offer.edit.part)
    return not any(
        view.is_protected(part)
        for edit in offer.edits
        for part in touched_parts(edit, view.transcript)
    )


def build_view(state: State, setting: Context, unseen_from: int, *, arrival: bool) -> View:
    """What passes may look at now."""
    fetched = frozenset(state.fetched.values())
    again = frozenset[int]() if arrival else state.refetch_pins
    limits = current_limits(state, setting)
    projected = setting.head + estimate_tokens(limits, state, setting)
    asking = max(projected, _MIN_REFETCH_TOKENS) if arrival else projected
    kept = None if arrival else first_kept_part(state.index, setting.policy)
    protections = Protections(
        state.index,
        state.ledger,
        setting.policy,
        fetched,
        again=again,
        arrival=arrival,
        kept_from=kept,
    )
    return View(
        state.index,
        state.tokens,
        state.fresh_from,
        unseen_from,
        state.first_user,
        setting.counter,
        state.edits,
        state.claimed,
        state.ledger,
        arrival,
        state.aged_from,
        max(setting.policy.keep_exchanges, _count_exchanges(state, kept, unseen_from)),
        protections,
        setting.fetch_tool,
        setting.codec.name,
        setting.fields,
        projected,
        state.leans,
        limits,
        state.held,
        state.mentions,
        break_even_risk(setting.rates, _boundary_terms(state, setting, limits, asking)),
        kept,
        state.due_from,
        protections.partial,
        setting.facts.summaries,
    )


def _count_exchanges(state: State, first: int | None, end: int) -> int:
    """How many exchanges are done at or behind one part, and before another."""
    if first is None:
        return 0
    done = state.index.exchanges
    return max(
        0,
        bisect_left(done, end, key=completion_position)
        - bisect_left(done, first, key=completion_position),
    )


def _collect_offers(
    state: State, setting: Context, passes: Iterable[Pass], view: View
) -> list[tuple[str, Offer]]:
    """All that the passes offer, each with its pass."""
    made: list[tuple[str, Offer]] = []
    for offer_pass in passes:
        offers = _run_pass(offer_pass, view, setting.policy, state.failures)
        if offer_pass in PASSES:  # what a user's own pass says is the user's
            offers = [_strip_decoration(offer, view, setting.policy) for offer in offers]
        made += [(pass_name(offer_pass), offer) for offer in offers]
    return made


def _strip_decoration(offer: Offer, view: View, policy: Policy) -> Offer:
    """An offer of a result's own lines without what tidying would take out of them."""
    edit = offer.edit
    if not isinstance(edit, Replace) or edit.reason == TIDIED:
        return offer
    part = view.transcript.parts[edit.part]
    if part.kind != "result":
        return offer
    ordinal = view.transcript.exchange_of[edit.part]
    use = view.use(ordinal) if ordinal >= 0 else None
    text = strip_escape_codes(
        strip_decoration(edit.text, use, policy.line_number_interval, original=part.text), use
    )
    if len(text) == len(edit.text):
        return offer
    saved = view.saved_by(edit.part, text)
    return replace(offer, edit=replace(edit, text=text, saved=saved))


def _apply_offers(state: State, taken: Sequence[Offer], view: View) -> bool:
    """Put the edits of these offers in force; whether there were any."""
    for offer in taken:
        state.take(offer.edits)
        state.recount_advice(
            (edit.part for edit in offer.edits if isinstance(edit, Replace)), view.counter
        )
        if offer.depends_on:
            state.leans[touched_parts(offer.edit, state.index)[0]] = offer.depends_on
    return len(taken) > 0


def select_passes(policy: Policy) -> tuple[Pass, ...]:
    """The passes that the policy switches on, in its order."""
    if policy.passes is None:
        return tuple(one for one in PASSES if one.__name__ not in OPT_IN)
    named = {pass_name(one): one for one in PASSES}
    return tuple(named[one] if isinstance(one, str) else one for one in policy.passes)


def _run_pass(
    offer_pass: Pass, view: View, policy: Policy, failures: dict[str, str]
) -> list[Offer]:
    """A pass's offers; a pass that fails is skipped, and the report says so."""
    try:
        offers = list(offer_pass(view, policy))
        if offer_pass in (policy.passes or ()):  # the user's own: respool's are named there
            validate_offers(offers, view)
    except Exception as error:  # noqa: BLE001 (a faulty pass must not cost the user a request)
        failures[pass_name(offer_pass)] = f"{type(error).__name__}: {error}"
        return []
    return offers
