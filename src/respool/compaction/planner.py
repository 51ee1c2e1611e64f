"""Planner: value of offers, price of a prefix break, and the cut that pays.

A provider bills the unchanged prefix of a prompt at a tenth or so of the input price. Everything
behind the first changed token is written again. An offer is worth the tokens it saves from now on,
less the expected cost of its loss. One scan from the tail to the head finds the cut behind which
the offers are worth most above the price of the prefix break.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate, chain, islice

from msgspec import Struct
from msgspec.structs import replace

from ..edits import (
    FOLDED,
    UNLIKELY_NEEDED,
    DropReasoning,
    Edit,
    Offer,
    PlaceBreakpoint,
    Replace,
    touched_parts,
)
from ..passes.base import View
from ..pricing import Rates
from ..providers.bound_reasoning import (
    drop_bound_reasoning,
    first_breaking_part,
    first_changeable_part,
    reasoning_value,
)
from ..transcript import ReadOnlyTranscript, Unit
from .conflicts import choose_compatible, restored_parts
from .context import BoundaryTerms, Context, refetch_cost, token_cost
from .state import State, WaitingOffers
from .window import is_over_window

_MANDATORY_REASONS = frozenset({"folded", "over_limit"})  # offered only where a limit is exceeded
_FORECAST_REASONS = frozenset({"unlikely_needed", "stubbed", "trimmed", "over_cap"})
_MIN_RETURN = 1.75  # value over price of an epoch: one that is worth less now is surer later
_MAX_REGRET = 0.01  # of the bill so far: the cost of epochs if no request follows
_CACHE_MINIMUM_MARGIN = 1.25  # times the shortest cached prompt: the error of the count


class PricedOffer(Struct, frozen=True, gc=False):
    """An offer with its value, the first part it changes, and the edits it makes obsolete."""

    offer: Offer
    value: float
    start: int
    freed: tuple[int, ...] = ()  # parts whose edits depend on what goes: they are restored
    gain: float = 0.0  # the value if nothing were ever missed


class EpochCut(Struct, frozen=True, gc=False):
    """The start of an epoch in the prompt, with its value and its price."""

    start: int  # the first part behind it
    value: float
    price: float
    cost: float = 0.0  # of the epoch if no request follows; negative: it is won at once


class EpochPlan(Struct, frozen=True, kw_only=True):
    """Offers to take now, parts to restore, and offers that wait."""

    taken: list[Offer]
    freed: set[int]  # parts whose edits are withdrawn
    cut: EpochCut | None = None
    waiting: WaitingOffers | None = None  # None: unchanged


class Planner:
    """Prices the offers of one evaluation and chooses the cut."""

    def __init__(self, view: View, *, is_rewrite_free: bool) -> None:
        self._view = view
        self._state: State = view.state
        self._context: Context = view.context
        self._edits = view.state.edits
        self._is_rewrite_free = is_rewrite_free
        self._floor = first_changeable_part(
            view.state.transcript, view.context.binding, self._edits.claimed
        )

    def plan(self, made: Sequence[tuple[str, Offer]]) -> EpochPlan:
        """Choose the offers that pay now; `made` are the new ones, each with its pass."""
        fresh = [offer for _, offer in made]
        if self._context.policy.eager:
            return EpochPlan(taken=self._compatible_at_once(fresh), freed=set())
        terms = self._terms()
        found = self._candidates(fresh, terms)
        if terms.is_over_budget and self._is_still_over(found):
            terms = replace(terms, caution=0.0)  # then everything that can go goes
            found = self._candidates(fresh, terms)
        cut = self._find_cut(found, terms)
        taken = _offers_behind(cut, found)
        if not terms.is_over_budget and not is_still_cached(
            self._state, self._context, [one.offer for one in taken]
        ):
            cut = self._find_cut([one for one in taken if is_mandatory(one.offer)], terms)
            taken = [one for one in _offers_behind(cut, taken) if is_mandatory(one.offer)]
        freed = self._freed_parts(taken)
        if cut is not None and taken and not terms.is_over_budget:
            freed |= self._regretted_parts(taken, cut, terms)
        breakpoints = [offer for offer in fresh if isinstance(offer.edit, PlaceBreakpoint)]
        return EpochPlan(
            taken=[*(one.offer for one in taken), *breakpoints],  # which break no prefix
            freed=freed,
            cut=cut,
            waiting=self._waiting(made, taken),
        )

    def compatible_waiting(self) -> list[Offer]:
        """The offers that wait, as far as they can be taken together now."""
        return self._compatible_at_once(self._waited())

    def _terms(self) -> BoundaryTerms:
        view = self._view
        is_over = is_over_window(self._state, self._context)
        terms = self._context.terms(
            self._state.evaluation.requests,
            view.projected_tokens,
            view.limits,
            is_rewrite_free=self._is_rewrite_free,
            is_over_budget=is_over,
        )
        return replace(terms, max_cost=self._max_cost())

    def _compatible_at_once(self, fresh: Iterable[Offer]) -> list[Offer]:
        return choose_compatible(
            [offer for offer in fresh if self._can_break_prefix(offer)],
            edits=self._edits.by_part,
            claimed=self._edits.claimed,
            dependents=self._edits.dependents(),
            transcript=self._state.transcript,
        )

    def _candidates(self, fresh: Sequence[Offer], terms: BoundaryTerms) -> list[PricedOffer]:
        """The offers that are worth something and can be taken together."""
        found = price_without_risk(
            [*self._waited(), *fresh],
            history=self._state.transcript,
            edits=self._edits.by_part,
            dependents=self._edits.dependents(),
            rates=self._context.rates,
            terms=terms,
        )
        pays = terms.is_over_budget or terms.is_rewrite_free or self._find_cut(found, terms)
        if not pays:
            return []  # no cut would pay even if nothing were ever missed
        found = price_with_risk(
            found,
            edits=self._edits.by_part,
            risk=self._view.risks.risk_of,
            rates=self._context.rates,
            terms=terms,
        )
        return [one for one in self._compatible(found) if self._can_break_prefix(one.offer)]

    def _waited(self) -> list[Offer]:
        """The offers of earlier evaluations that can still be taken."""
        return [
            offer
            for (_, part), offers in self._state.evaluation.waiting.items()
            if not self._view.is_gone(part)
            for offer in offers
            if self._can_still_take(offer)
        ]

    def _can_still_take(self, offer: Offer) -> bool:
        """Return whether no protection forbids an offer that waited."""
        edit, view = offer.edit, self._view
        if isinstance(edit, Replace) and edit.reason == UNLIKELY_NEEDED:
            return view.can_lose_lines(edit.part)
        return not any(
            view.is_protected(part)
            for edit in offer.edits
            for part in touched_parts(edit, view.transcript)
        )

    def _compatible(self, found: Sequence[PricedOffer]) -> list[PricedOffer]:
        """Those of these offers that fit together and with the edits in force."""
        worth = {id(one.offer): one.value for one in found}
        chosen = choose_compatible(
            [one.offer for one in found],
            edits=self._edits.by_part,
            claimed=self._edits.claimed,
            dependents={},
            transcript=self._state.transcript,
            value=lambda offer: worth[id(offer)],
        )
        kept = {id(offer) for offer in chosen}
        return [one for one in found if id(one.offer) in kept]

    def _can_break_prefix(self, offer: Offer) -> bool:
        """Return whether an offer changes nothing before bound reasoning that must stay."""
        if not self._floor:
            return True
        first = first_breaking_part(self._state.transcript, offer.edits, self._edits.claimed)
        return first is None or first >= self._floor

    def _is_still_over(self, found: Sequence[PricedOffer]) -> bool:
        """Return whether the limit is exceeded even when all of these are taken."""
        saved, limit = sum(one.offer.saved for one in found), self._view.limits.tokens
        return limit is not None and self._view.projected_tokens - saved > limit

    def _find_cut(self, found: Sequence[PricedOffer], terms: BoundaryTerms) -> EpochCut | None:
        """The cut that pays best; None: there is none."""
        if not found:
            return None
        sent: Sequence[int] = ()
        lost: Sequence[float] = ()
        if not terms.is_over_budget:
            edits = chain(self._edits.by_part.items(), self._edits.advice.items())
            end = self._state.sent.parts
            sent = cumulative_tokens(self._state.tokens.estimates, edits, end)
            lost = self._lost_reasoning(terms)
        return best_cut(
            found,
            history=self._state.transcript,
            sent=sent,
            rates=self._context.rates,
            terms=terms,
            lost=lost,
            ends=self._state.sent.ends,
        )

    def _max_cost(self) -> float:
        """The cost that an epoch may have if no request follows."""
        account = self._state.evaluation.account
        return max(0.0, account.net + _MAX_REGRET * account.billed)

    def _lost_reasoning(self, terms: BoundaryTerms) -> Sequence[float]:
        """The value of the reasoning that a cut in each unit would drop."""
        if not self._context.binding.is_prefix_signed:
            return ()
        history = self._state.transcript
        bound = drop_bound_reasoning(history, -1, self._edits.claimed, self._view.tokens_of)
        return lost_reasoning_value(history, bound, self._context.rates, terms)

    def _freed_parts(self, taken: Sequence[PricedOffer]) -> set[int]:
        """The parts whose edits depend on what goes now and that no new edit replaces."""
        return {part for one in taken for part in one.freed} - self._parts_of(taken)

    def _parts_of(self, taken: Sequence[PricedOffer]) -> set[int]:
        return {
            part
            for one in taken
            for edit in one.offer.edits
            for part in touched_parts(edit, self._state.transcript)
        }

    def _regretted_parts(
        self, taken: Sequence[PricedOffer], cut: EpochCut, terms: BoundaryTerms
    ) -> set[int]:
        """The parts behind a cut with edits that would not pay now: they are restored."""
        history, edits = self._state.transcript, self._edits
        refetched = {
            history.exchanges[one.earlier_exchange].result for one in self._state.refetches.found
        }
        excluded = self._parts_of(taken) | edits.dependencies.keys() | refetched
        old = [
            Offer("trim", edit)
            for part, edit in edits.by_part.items()
            if part >= cut.start and part not in excluded and edit.reason in _FORECAST_REASONS
        ]
        found = price_offers(
            old,
            history=history,
            edits={},
            dependents={},
            risk=self._view.risks.risk_of,
            rates=self._context.rates,
            terms=terms,
        )
        kept = {id(one.offer) for one in found}
        return {touched_parts(one.edit, history)[0] for one in old if id(one) not in kept}

    def _waiting(
        self, made: Iterable[tuple[str, Offer]], taken: Iterable[PricedOffer]
    ) -> WaitingOffers:
        """The offers not taken; what a pass offers anew replaces its older offers on that part."""
        fresh: dict[tuple[str, int], list[Offer]] = {}
        for name, offer in made:
            if not _is_transient(offer):
                key = name, touched_parts(offer.edit, self._state.transcript)[0]
                fresh.setdefault(key, []).append(offer)
        done = {id(one.offer) for one in taken}
        before = self._state.evaluation.waiting
        waiting = {key: offers for key, offers in before.items() if not self._view.is_gone(key[1])}
        waiting |= {key: tuple(offers) for key, offers in fresh.items()}
        left = (
            (key, tuple(one for one in offers if id(one) not in done))
            for key, offers in waiting.items()
        )
        return {key: offers for key, offers in left if offers}


def compatible_waiting(view: View) -> list[Offer]:
    """The offers that wait until they pay, as far as they can be taken together now."""
    return Planner(view, is_rewrite_free=False).compatible_waiting()


def is_still_cached(state: State, context: Context, taken: Iterable[Offer]) -> bool:
    """Return whether the rest is long enough to be cached, or so short that it need not be.

    A prompt that is too short to be cached is billed in full each time.
    """
    rates, now = context.rates, context.head + state.estimated_tokens
    left = now - sum(offer.saved for offer in taken)
    if not rates.caches or context.policy.eager:
        return True
    return left >= _CACHE_MINIMUM_MARGIN * rates.minimum or left <= rates.read * now


def _offers_behind(cut: EpochCut | None, found: Sequence[PricedOffer]) -> list[PricedOffer]:
    """The offers that change nothing before a cut."""
    return [] if cut is None else [one for one in found if one.start >= cut.start]


def _is_transient(offer: Offer) -> bool:
    """Return whether a pass makes an offer anew whenever it is needed."""
    return offer.edit.reason == FOLDED or isinstance(offer.edit, PlaceBreakpoint)


def price_offers(
    offers: Iterable[Offer],
    *,
    history: ReadOnlyTranscript,
    edits: Mapping[int, Edit],
    dependents: Mapping[int, Collection[int]],
    risk: Callable[[Offer], float],
    rates: Rates,
    terms: BoundaryTerms,
) -> list[PricedOffer]:
    """The offers that are worth something, with their values in tokens of plain input."""
    found = price_without_risk(
        offers, history=history, edits=edits, dependents=dependents, rates=rates, terms=terms
    )
    return price_with_risk(found, edits=edits, risk=risk, rates=rates, terms=terms)


def price_without_risk(
    offers: Iterable[Offer],
    *,
    history: ReadOnlyTranscript,
    edits: Mapping[int, Edit],
    dependents: Mapping[int, Collection[int]],
    rates: Rates,
    terms: BoundaryTerms,
) -> list[PricedOffer]:
    """The same if nothing were ever missed.

    The savings of edits in force on the same parts count already. The savings of edits that depend
    on these parts are lost: they are restored when what they refer to goes.
    """
    cost = token_cost(rates, terms)
    found: list[PricedOffer] = []
    for offer in offers:
        parts = _parts_of_offer(offer, history)
        freed = restored_parts(offer, parts, dependents, edits)
        more = offer.saved - sum([edits[one].saved for one in (*parts, *freed) if one in edits])
        value = gain = more * cost if more > 0 and parts else 0.0
        if more > 0 and is_mandatory(offer):
            value = max(value, 1.0)
        if value > 0:
            start = min((*parts, *freed))
            found.append(PricedOffer(offer, value, start, tuple(sorted(freed)), gain))
    return found


def is_mandatory(offer: Offer) -> bool:
    """Return whether a limit requires an offer regardless of its cost."""
    return offer.edit.reason in _MANDATORY_REASONS


def _parts_of_offer(offer: Offer, history: ReadOnlyTranscript) -> Collection[int]:
    if isinstance(offer.edit, Replace) and not offer.also:
        return (offer.edit.part,)  # the common case
    return {part for edit in offer.edits for part in touched_parts(edit, history)}


def price_with_risk(
    found: Iterable[PricedOffer],
    *,
    edits: Mapping[int, Edit],
    risk: Callable[[Offer], float],
    rates: Rates,
    terms: BoundaryTerms,
) -> list[PricedOffer]:
    """Those of these offers that are worth something after the expected cost of refetches."""
    again = refetch_cost(rates, terms) * terms.caution
    left: list[PricedOffer] = []
    for one in found:
        value = one.gain - _added_risk(one.offer, edits, risk) * again
        if is_mandatory(one.offer):
            value = max(value, 1.0)
        if value > 0:
            left.append(PricedOffer(one.offer, value, one.start, one.freed, one.gain))
    return left


def _added_risk(offer: Offer, edits: Mapping[int, Edit], risk: Callable[[Offer], float]) -> float:
    """The risk of an offer beyond that of the edit in force in its place."""
    before = edits.get(offer.edit.part) if isinstance(offer.edit, Replace) else None
    if not isinstance(before, Replace):
        return risk(offer)
    return max(0.0, risk(offer) - risk(Offer("trim", before)))


def best_cut(
    offers: Sequence[PricedOffer],
    *,
    history: ReadOnlyTranscript,
    sent: Sequence[int],
    rates: Rates,
    terms: BoundaryTerms,
    lost: Sequence[float] = (),
    ends: Sequence[int] | None = None,
) -> EpochCut | None:
    """The cut behind which the offers are worth most above its price; None: there is none.

    `sent` are the tokens of the sent projection before each part, and of all of it. `lost` is the
    value of the bound reasoning that a cut in each unit drops. `ends` are the parts before which a
    cached prefix ends; None: before every unit. A cut that would cost more than the terms allow
    if no request followed is not taken.
    """
    if terms.is_over_budget:
        first = min((one.start for one in offers), default=-1)
        start = first if rates.matches_any_prefix else _last_prefix_end(first, ends)
        return None if first < 0 else EpochCut(start, sum(one.value for one in offers), 0.0)
    must = min((one.start for one in offers if is_mandatory(one.offer)), default=None)
    spared = terms.is_rewrite_free or not rates.caches
    best: EpochCut | None = None
    gain = total = saved = 0.0
    for one in sorted(offers, key=_start_part, reverse=True):
        total += one.value
        saved += one.gain * rates.write / token_cost(rates, terms)
        start = cut_start(one.start, history, rates, ends)
        rewrite = 0.0 if spared else _rewrite_price(start, history, sent, rates)
        price, cost = _MIN_RETURN * rewrite, rewrite - saved
        if lost:
            price += lost[_unit_of(start, history)]
        pays = total - price > gain and cost <= terms.max_cost
        if pays or one.start == must:
            gain, best = total - price, EpochCut(start, total, price, cost)
    return best


def lost_reasoning_value(
    history: ReadOnlyTranscript, bound: Sequence[DropReasoning], rates: Rates, terms: BoundaryTerms
) -> list[float]:
    """For a cut in each unit, the value of the reasoning it drops, less the cost of keeping it.

    `bound` is all reasoning that is signed for its prefix.
    """
    again, last = refetch_cost(rates, terms), len(history.units)
    lost = [0.0] * last
    for edit in bound:
        kept = edit.saved * token_cost(rates, terms)
        lost[edit.unit] = reasoning_value(last - edit.unit, edit.saved, again) - kept
    return list(accumulate(reversed(lost)))[::-1]


def _start_part(one: PricedOffer) -> int:
    return one.start


def cut_start(
    part: int, history: ReadOnlyTranscript, rates: Rates, ends: Sequence[int] | None = None
) -> int:
    """The first part that is written again when this one changes."""
    if rates.matches_any_prefix:
        return part
    return _last_prefix_end(history.units[_unit_of(part, history)].parts[0], ends)


def _last_prefix_end(part: int, ends: Sequence[int] | None) -> int:
    """The end of the last cached prefix before a part."""
    if ends is None:
        return part
    at = bisect_right(ends, part)
    return ends[at - 1] if at else 0


def _unit_of(part: int, history: ReadOnlyTranscript) -> int:
    return bisect_right(history.units, part, key=_first_part) - 1


def _first_part(unit: Unit) -> int:
    return unit.parts[0]


def _rewrite_price(
    start: int, history: ReadOnlyTranscript, sent: Sequence[int], rates: Rates
) -> float:
    """The extra cost of writing the sent tokens from here on, compared with reading them."""
    last = len(sent) - 1
    if start >= last:
        return 0.0
    behind = sent[last] - (sent[start] if _is_prefix_found(start, history, rates) else 0)
    return (rates.write - rates.read) * behind


def _is_prefix_found(start: int, history: ReadOnlyTranscript, rates: Rates) -> bool:
    """Return whether the provider finds the prefix that ends before a part."""
    if rates.lookback_requests is not None:
        return len(history.units) - _unit_of(start, history) <= rates.lookback_requests
    return (
        rates.lookback_positions is None
        or rates.has_spare_breakpoint
        or _is_within_lookback(start, history, rates.lookback_positions)
    )


def _is_within_lookback(start: int, history: ReadOnlyTranscript, lookback: int) -> bool:
    """Return whether a breakpoint at the end looks back as far as this part."""
    count, run = 0, ""
    for part in islice(history.parts, start, None):
        kind = part.kind if part.kind in ("call", "result") else ""
        count += not kind or kind != run
        run = kind
        if count >= lookback:
            return False
    return True


def cumulative_tokens(
    sizes: Sequence[int], edits: Iterable[tuple[int, Edit]], end: int
) -> list[int]:
    """The projection's tokens before each part up to `end`, and of all of these."""
    left = list(sizes[:end])
    for part, edit in edits:
        if part < end:
            left[part] -= edit.saved
    return [0, *accumulate(left)]
