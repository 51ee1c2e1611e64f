"""Planner: value of offers, price of a prefix break, and the cut that pays.

A provider bills a prompt's unchanged prefix at a tenth or so. Whatever stands behind the first
changed word is written again. So an offer is worth what it saves from now on, less what its loss
is likely to cost, and one scan from the tail to the head finds the cut behind which all that
is offered is worth most above that price.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate, islice

from msgspec import Struct

from ..edits import DropReasoning, Edit, Offer, Replace, touched_parts
from ..pricing import Rates
from ..providers.bound_reasoning import reasoning_value
from ..transcript import ReadOnlyTranscript, Unit

# Fitted on recorded sessions by bench/fit_forecast.py: how many requests are still to come.
_HORIZON_RATIO = 0.5  # of those so far
_MIN_HORIZON = 40.0  # the median, however many there were
# What a lost turn costs: the model asks again, in so many tokens, and carries the answer.
_ANSWER_TOKENS, _QUESTION_TOKENS, _OUTPUT_PRICE = 1_500, 150, 5.0
_MANDATORY_REASONS = frozenset({"folded", "over_limit"})  # made only where a limit is exceeded
_MAX_RISK = 0.01  # turns for each token, whatever is paid for one that misses something
_MIN_RETURN = 1.75  # times its price an epoch must be worth: what is worth less now is surer later


class BoundaryTerms(Struct, frozen=True, gc=False):
    """What holds at one boundary."""

    requests: int  # sent so far, this one counted
    projected: int  # tokens of the projection and its head
    is_rewrite_free: bool = (
        False  # the cache is cold, or another model's: all of it is written anyway
    )
    is_over_budget: bool = False  # over the budget: the price no longer counts
    caution: float = 1.0  # how much more a lost turn counts than what it costs

    @property
    def horizon(self) -> float:
        """How many requests are expected after this one."""
        return max(_MIN_HORIZON, _HORIZON_RATIO * self.requests)


class PricedOffer(Struct, frozen=True, gc=False):
    """An offer with what it is worth, the first part that it changes, and what gives way to it."""

    offer: Offer
    value: float
    start: int
    freed: tuple[int, ...] = ()  # parts whose edits lean on what goes: they say all again
    gain: float = 0.0  # what it would be worth if nothing were ever missed


class EpochCut(Struct, frozen=True, gc=False):
    """Where an epoch begins to change the prompt, what it is worth, and what it costs."""

    start: int  # the first part behind it
    value: float
    price: float


def price_offers(
    offers: Iterable[Offer],
    history: ReadOnlyTranscript,
    edits: Mapping[int, Edit],
    leaners: Mapping[int, Collection[int]],
    risk: Callable[[Offer], float],
    rates: Rates,
    moment: BoundaryTerms,
) -> list[PricedOffer]:
    """The offers that are worth something, each with how much, in tokens of plain input."""
    return price_with_risk(
        price_without_risk(offers, history, edits, leaners, rates, moment),
        edits,
        risk,
        rates,
        moment,
    )


def price_without_risk(
    offers: Iterable[Offer],
    history: ReadOnlyTranscript,
    edits: Mapping[int, Edit],
    leaners: Mapping[int, Collection[int]],
    rates: Rates,
    moment: BoundaryTerms,
) -> list[PricedOffer]:
    """The same if nothing were ever missed.

    What edits in force save on the same parts is saved already, and what those save that lean on
    them is lost: where a text goes, whatever pointed to it says it again.
    """
    kept = rates.read * moment.horizon + rates.write  # what a token costs from now on
    found: list[PricedOffer] = []
    for offer in offers:
        parts = _parts_of_offer(offer, history)
        freed = {one for part in parts for one in leaners.get(part, ())}.difference(parts)
        more = offer.saved - sum([edits[one].saved for one in (*parts, *freed) if one in edits])
        value = gain = more * kept if more > 0 and parts else 0.0
        if more > 0 and is_mandatory(offer):
            value = max(value, 1.0)
        if value > 0:
            start = min((*parts, *freed))
            found.append(PricedOffer(offer, value, start, tuple(sorted(freed)), gain))
    return found


def is_mandatory(offer: Offer) -> bool:
    """Whether a limit demands an offer, whatever it costs."""
    return offer.edit.reason in _MANDATORY_REASONS


def _parts_of_offer(offer: Offer, history: ReadOnlyTranscript) -> Collection[int]:
    if isinstance(offer.edit, Replace) and not offer.also:
        return (offer.edit.part,)  # most of them
    return {part for edit in offer.edits for part in touched_parts(edit, history)}


def price_with_risk(
    found: Iterable[PricedOffer],
    edits: Mapping[int, Edit],
    risk: Callable[[Offer], float],
    rates: Rates,
    moment: BoundaryTerms,
) -> list[PricedOffer]:
    """Those of these that are still worth something when what may be missed is paid for."""
    again = refetch_cost(rates, moment) * moment.caution
    left: list[PricedOffer] = []
    for one in found:
        value = one.gain - _added_risk(one.offer, edits, risk) * again
        if is_mandatory(one.offer):
            value = max(value, 1.0)
        if value > 0:
            left.append(PricedOffer(one.offer, value, one.start, one.freed, one.gain))
    return left


def _added_risk(offer: Offer, edits: Mapping[int, Edit], risk: Callable[[Offer], float]) -> float:
    """What an offer risks beyond what the edit in force in its place risks already."""
    before = edits.get(offer.edit.part) if isinstance(offer.edit, Replace) else None
    if not isinstance(before, Replace):
        return risk(offer)
    return max(0.0, risk(offer) - risk(Offer("trim", before)))


def refetch_cost(rates: Rates, moment: BoundaryTerms) -> float:
    """What it costs to ask again for one thing that was taken out and is missed."""
    carried = _ANSWER_TOKENS * (rates.write + rates.read * moment.horizon)
    return rates.read * moment.projected + _OUTPUT_PRICE * _QUESTION_TOKENS + carried


def break_even_risk(rates: Rates, moment: BoundaryTerms) -> float:
    """How many turns may miss something for each token that goes, so that it still pays."""
    kept = rates.read * moment.horizon + rates.write
    return min(_MAX_RISK, kept / max(1e-9, refetch_cost(rates, moment) * moment.caution))


def best_cut(
    offers: Sequence[PricedOffer],
    history: ReadOnlyTranscript,
    sent: Sequence[int],
    rates: Rates,
    moment: BoundaryTerms,
    lost: Sequence[float] = (),
    ends: Sequence[int] | None = None,
) -> EpochCut | None:
    """The cut behind which the offers are worth most above its price; None: there is none.

    `sent` are the tokens of the projection before each part of what was sent, and of all of it;
    `lost`, where reasoning is bound to what stands before it, what goes with a cut in each unit;
    `ends` are the parts before which a prefix ends that the cache has; None: before all units.
    """
    if moment.is_over_budget:
        first = min((one.start for one in offers), default=-1)
        start = first if rates.matches_any_prefix else _last_prefix_end(first, ends)
        return None if first < 0 else EpochCut(start, sum(one.value for one in offers), 0.0)
    must = min((one.start for one in offers if is_mandatory(one.offer)), default=None)
    spared = moment.is_rewrite_free or not rates.caches
    best: EpochCut | None = None
    gain = total = 0.0
    for one in sorted(offers, key=_start_part, reverse=True):
        total += one.value
        start = cut_start(one.start, history, rates, ends)
        price = 0.0 if spared else _MIN_RETURN * _rewrite_price(start, history, sent, rates)
        if lost:
            price += lost[_unit_of(start, history)]
        if total - price > gain or one.start == must:
            gain, best = total - price, EpochCut(start, total, price)
    return best


def lost_reasoning_value(
    history: ReadOnlyTranscript, bound: Sequence[DropReasoning], rates: Rates, moment: BoundaryTerms
) -> list[float]:
    """For a cut in each unit, what the reasoning that goes with it is worth, less what it costs.

    `bound` is all reasoning that is signed for what stands before it.
    """
    again, last = refetch_cost(rates, moment), len(history.units)
    lost = [0.0] * last
    for edit in bound:
        kept = edit.saved * (rates.read * moment.horizon + rates.write)
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
    """Where the last prefix before a part ends that the cache has."""
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
    """What writing the sent tokens from here on again costs more than reading them."""
    last = len(sent) - 1
    if start >= last:
        return 0.0
    behind = sent[last] - (sent[start] if _is_prefix_found(start, history, rates) else 0)
    return (rates.write - rates.read) * behind


def _is_prefix_found(start: int, history: ReadOnlyTranscript, rates: Rates) -> bool:
    """Whether the provider finds the prefix that ends before a part."""
    if rates.lookback_requests is not None:
        return len(history.units) - _unit_of(start, history) <= rates.lookback_requests
    return (
        rates.lookback_positions is None
        or rates.has_spare_breakpoint
        or _is_within_lookback(start, history, rates.lookback_positions)
    )


def _is_within_lookback(start: int, history: ReadOnlyTranscript, lookback: int) -> bool:
    """Whether few positions, as a cache mark counts them, stand from a part to the end."""
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
