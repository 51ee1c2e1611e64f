"""What is done at a boundary: passes offer, and what pays by now is put in force."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext
from itertools import chain

from msgspec.structs import replace

from ..binding import cut_from, cut_of, reasoning_behind
from ..edits import FOLDED, KEPT_LINES, TIDIED, Offer, PlaceMark, Replace
from ..limits import Limits
from ..passes import OPT_IN, PASSES, Pass
from ..passes.moments import acts_at_arrival, acts_at_epochs
from ..passes.plain import plainer, without_codes
from ..passes.view import View, place_of
from ..planning.choosing import choose
from ..planning.planner import (
    Cut,
    Moment,
    Priced,
    best_cut,
    fair_risk,
    is_demanded,
    priced,
    reasoning_lost,
    risked,
    riskless,
    sent_tokens,
)  # fmt: skip
from ..planning.tracing import Decided, note
from ..planning.vetting import vet
from ..policy import Policy
from ..protections import Protections
from ..recent import kept_from
from ..registered import name_of
from ..touching import touched
from .noting import words_noted
from .room import is_over, limits_of, tokens_near
from .state import Setting, State

_LATE = 8  # requests for which what was fetched again stays where there is no room
_LATER = 50_000  # tokens at least, of a request that asks again for what was never shown
_SHORT = 1.25  # times the shortest prompt that is cached: so far the count may be off


def arrive(state: State, setting: Setting) -> None:
    """Take what passes offer on results that just came: they were never sent, so it is free."""
    arriving = [one for one in setting.passes if acts_at_arrival(one)]
    unseen_from = state.index.units[-1].answers_from
    if not arriving or _keeps_arrivals(setting) or unseen_from == len(state.index.parts):
        return
    with words_noted(state, setting) if setting.policy.trim_on_arrival else nullcontext():
        view = view_of(state, setting, unseen_from, arrival=True)
        made = _offers(state, setting, arriving, view)
        if made:
            offers = [offer for _, offer in made if _may_arrive(offer, state)]
            taken = choose(offers, state.edits, state.claimed, state.dependents(), state.index)
            if not (_stays_cached(state, setting, taken) or is_over(state, setting)):
                taken = []
            note(state.trace, Decided(made, taken), view, state.messages)
            _put_in_force(state, taken, view)


def _stays_cached(state: State, setting: Setting, taken: Iterable[Offer]) -> bool:
    """Whether what is left is long enough to be cached, or so short that it need not be.

    A prompt that is too short to be cached is paid for in full each time.
    """
    rates, now = setting.rates, setting.head + state.size - state.saved
    left = now - sum(offer.saved for offer in taken)
    if not rates.caches or setting.policy.eager:
        return True
    return left >= _SHORT * rates.minimum or left <= rates.read * now


def _keeps_arrivals(setting: Setting) -> bool:
    """Whether what arrives stays for a while: passes that act at arrival then act afterwards."""
    return setting.policy.keep_messages > 0 or setting.policy.keep_calls > 0


def _may_arrive(offer: Offer, state: State) -> bool:
    """Whether an offer may be taken at arrival: what was fetched again is only tidied."""
    if not state.refetch_pins or offer.edit.reason == TIDIED:
        return True
    parts = (part for edit in offer.edits for part in touched(edit, state.index))
    return all(state.index.exchange_of[part] not in state.refetch_pins for part in parts)


def evaluate(state: State, setting: Setting, *, free: bool = False) -> None:
    """Let every pass offer on what was sent, and take what pays by now.

    `free`: the cache is cold, or another model's, so whatever goes out is written anyway.
    """
    with words_noted(state, setting):
        _evaluate(state, setting, free=free)


def _evaluate(state: State, setting: Setting, *, free: bool) -> None:
    unseen_from = state.index.units[-1].answers_from
    state.since = sum(state.sizes[unseen_from:])  # what no pass could touch yet is still to come
    if state.refetch_pins and is_over(state, setting):
        state.refetch_pins = _of_late(state)
    view = view_of(state, setting, unseen_from, arrival=False)
    _look_once(state, setting, view, free=free)
    if state.refetch_pins and is_over(state, setting):  # what was fetched again gives way in the end
        state.refetch_pins = frozenset()
        view = view_of(state, setting, unseen_from, arrival=False)
        _look_once(state, setting, replace(view, fresh_from=0, aged_from=0), free=free)


def _of_late(state: State) -> frozenset[int]:
    """What was fetched again not long ago: of what is pinned, all that a limit lets stay."""
    first = len(state.index.units) - _LATE
    return frozenset(one for one in state.refetch_pins if state.index.exchanges[one].unit >= first)


def _look_once(state: State, setting: Setting, view: View, *, free: bool) -> None:
    late = _keeps_arrivals(setting)
    acting = [one for one in setting.passes if late or acts_at_epochs(one)]
    made, waited = _offers(state, setting, acting, view), state.pool
    taken, freed = _planned(state, setting, view, made, free=free)
    given_up = [state.edits[part] for part in sorted(freed) if part in state.edits]
    note(state.trace, Decided(made, taken, waited, given_up), view, state.messages)
    for part in freed:
        state.withdraw(part)
    state.recount_advice(freed, setting.counter)
    gone = set(state.claimed) if setting.binding.is_bound else ()
    changed = _put_in_force(state, taken, view)
    lost = _let_go_of_bound(state, setting, view, taken, freed, gone)
    state.epochs += changed or lost
    state.left_over = state.size - state.saved
    state.fresh_from = view.unseen_from
    state.due_from = (
        view.unseen_from if view.kept_from is None else min(view.unseen_from, view.kept_from)
    )
    state.aged_from = max(state.aged_from, view.seen_exchanges() - view.recent_count)


def _planned(
    state: State, setting: Setting, view: View, made: Sequence[tuple[str, Offer]], *, free: bool
) -> tuple[list[Offer], set[int]]:
    """The offers to take now, and the parts whose edits give way to them; the others wait."""
    history = state.index
    floor = cut_from(history, setting.binding, state.claimed)
    if setting.policy.eager:
        offers = [offer for _, offer in made if _may_break(state, offer, floor)]
        return choose(offers, state.edits, state.claimed, state.dependents(), history), set()
    fresh = [offer for _, offer in made]
    pressed = is_over(state, setting)
    moment = _moment(state, setting, view.limits, view.projected_tokens, free=free, pressed=pressed)
    found = _found(state, setting, view, moment, fresh, floor)
    if moment.is_over_budget and _stays_over(view, found):  # then whatever may go goes
        moment = replace(moment, caution=0.0)
        found = _found(state, setting, view, moment, fresh, floor)
    cut = _cut(state, setting, view, found, moment)
    taken = _behind(cut, found)
    if not (moment.is_over_budget or _stays_cached(state, setting, [one.offer for one in taken])):
        cut = _cut(state, setting, view, [one for one in taken if is_demanded(one.offer)], moment)
        taken = [one for one in _behind(cut, taken) if is_demanded(one.offer)]
    state.cut = state.cut if cut is None else cut.start
    if cut is not None or free:
        _write_anew(state, setting, free=free)
    _let_wait(state, view, made, taken)
    marks = [offer for _, offer in made if isinstance(offer.edit, PlaceMark)]  # break no prefix
    freed = _freed(state, taken)
    if cut is not None and taken and not moment.is_over_budget:
        freed |= _regretted(state, setting, view, moment, taken, cut)
    return [*(one.offer for one in taken), *marks], freed


def _write_anew(state: State, setting: Setting, *, free: bool) -> None:
    """Forget the prefixes that the cache no longer has: those behind a cut, or all that had.

    What is written in one go is found where a mark of our own stands, and where it ends.
    """
    before = [end for end in state.ends if end <= state.cut]
    if free:
        before = [state.cut] if setting.rates.has_spare_breakpoint and state.cut > 0 else []
    state.ends = [*before, len(state.index.parts)]


def _behind(cut: Cut | None, found: Sequence[Priced]) -> list[Priced]:
    """The offers that change nothing in front of a cut."""
    return [] if cut is None else [one for one in found if one.start >= cut.start]


def _found(
    state: State, setting: Setting, view: View, moment: Moment, fresh: Sequence[Offer], floor: int
) -> list[Priced]:
    """The offers that are worth something, and may be taken together."""
    found = _worthwhile(state, setting, view, moment, fresh)
    if not (moment.is_over_budget or moment.is_rewrite_free or _cut(state, setting, view, found, moment)):
        return []  # no cut would pay even if nothing were ever missed
    found = risked(found, state.edits, view.risks.risk_of, setting.rates, moment)
    return [one for one in _standing(state, found) if _may_break(state, one.offer, floor)]


def _stays_over(view: View, found: Sequence[Priced]) -> bool:
    """Whether the limit is exceeded even when all of these are taken."""
    saved = sum(one.offer.saved for one in found)
    return view.limits.tokens is not None and view.projected_tokens - saved > view.limits.tokens


_GUESSED = frozenset({"unlikely_needed", "stubbed", "trimmed", "over_cap"})


def _regretted(
    state: State, setting: Setting, view: View, moment: Moment, taken: Sequence[Priced], cut: Cut
) -> set[int]:
    """The parts behind a cut that were cut before and would not be cut now: they say all again."""
    new = {part for one in taken for edit in one.offer.edits for part in touched(edit, state.index)}
    new |= state.leans.keys()
    new |= _fetched_from(state)
    old = [
        Offer("trim", edit)
        for part, edit in state.edits.items()
        if part >= cut.start and part not in new and edit.reason in _GUESSED
    ]
    found = priced(old, state.index, {}, {}, view.risks.risk_of, setting.rates, moment)
    kept = {id(one.offer) for one in found}
    return {touched(o.edit, state.index)[0] for o in old if id(o) not in kept}


def _fetched_from(state: State) -> set[int | None]:
    """The results of which a copy was fetched again, and stays: they need not say it as well."""
    exchanges = state.index.exchanges
    return {exchanges[one.earlier_exchange].result for one in state.refetched}


def _cut(
    state: State, setting: Setting, view: View, found: Sequence[Priced], moment: Moment
) -> Cut | None:
    """The cut that pays best, if there is anything to take."""
    if not found:
        return None
    if moment.is_over_budget:
        return best_cut(found, state.index, (), setting.rates, moment, (), state.ends)
    edits = chain(state.edits.items(), state.advice.items())
    sent = sent_tokens(state.sizes, edits, state.index.units[-1].parts[0])
    lost = _reasoning_lost(state, setting, view, moment)
    return best_cut(found, state.index, sent, setting.rates, moment, lost, state.ends)


def _let_wait(
    state: State, view: View, made: Iterable[tuple[str, Offer]], taken: Iterable[Priced]
) -> None:
    """Keep what was not taken for later; what a pass offers anew stands for what it offered."""
    fresh: dict[tuple[str, int], list[Offer]] = {}
    for name, offer in made:
        if not _is_of_the_moment(offer):
            key = name, touched(offer.edit, state.index)[0]
            fresh.setdefault(key, []).append(offer)
    done = {id(one.offer) for one in taken}
    pool = {key: offers for key, offers in state.pool.items() if not view.is_gone(key[1])}
    pool |= {key: tuple(offers) for key, offers in fresh.items()}
    left = ((key, tuple(o for o in offers if id(o) not in done)) for key, offers in pool.items())
    state.pool = {key: offers for key, offers in left if offers}


def _is_of_the_moment(offer: Offer) -> bool:
    """Whether an offer is made anew whenever there is need of it."""
    return offer.edit.reason == FOLDED or isinstance(offer.edit, PlaceMark)


def _may_break(state: State, offer: Offer, floor: int) -> bool:
    """Whether an offer changes nothing in front of reasoning that must stay and is bound."""
    if not floor:
        return True
    first = cut_of(state.index, offer.edits, state.claimed)
    return first is None or first >= floor


def _reasoning_lost(state: State, setting: Setting, view: View, moment: Moment) -> Sequence[float]:
    """What goes with a cut in each unit, where the model loses what it thought behind one."""
    if not setting.binding.is_prefix_signed:
        return ()
    bound = reasoning_behind(state.index, -1, state.claimed, view.tokens_of)
    return reasoning_lost(state.index, bound, setting.rates, moment)


def _let_go_of_bound(
    state: State, setting: Setting, view: View, taken: Sequence[Offer], freed: Collection[int],
    gone: Collection[int],
) -> bool:  # fmt: skip
    """Drop all reasoning that is signed for what these edits changed, as a part of them."""
    if not setting.binding.is_bound:
        return False
    edits = [edit for offer in taken for edit in offer.edits]
    first = cut_of(state.index, edits, gone)
    first = min((one for one in (first, *freed) if one is not None), default=None)
    if state.prefix.hex() in setting.facts.changed:  # it was signed by another model, or for it
        first = -1
    if first is None:
        return False
    dropped = reasoning_behind(state.index, first, state.claimed, view.tokens_of)
    state.take(dropped)
    return len(dropped) > 0


def _moment(
    state: State, setting: Setting, limits: Limits, projected: int, *,
    free: bool = False, pressed: bool = False,
) -> Moment:  # fmt: skip
    sent = projected if limits.tokens is None else min(projected, limits.tokens)
    caution = setting.policy.miss_penalty
    return Moment(state.requests, sent, is_rewrite_free=free, is_over_budget=pressed, caution=caution)


def _worthwhile(
    state: State, setting: Setting, view: View, moment: Moment, fresh: Sequence[Offer]
) -> list[Priced]:
    """The offers worth something if nothing is missed: new ones, and those that still may be."""
    waited = [
        offer
        for (_, part), offers in state.pool.items()
        if not view.is_gone(part)
        for offer in offers
        if _may_be_taken(offer, view)
    ]
    return riskless(
        [*waited, *fresh], state.index, state.edits, state.dependents(), setting.rates, moment
    )


def _standing(state: State, found: Sequence[Priced]) -> list[Priced]:
    """Those of them that can stand together, and with the edits in force."""
    worth = {id(one.offer): one.value for one in found}
    offers = [one.offer for one in found]
    chosen = choose(
        offers, state.edits, state.claimed, (), state.index, lambda offer: worth[id(offer)]
    )
    kept = {id(offer) for offer in chosen}
    return [one for one in found if id(one.offer) in kept]


def _freed(state: State, taken: Sequence[Priced]) -> set[int]:
    """The parts whose edits lean on what goes now, where nothing else is put in their place."""
    new = {part for one in taken for edit in one.offer.edits for part in touched(edit, state.index)}
    return {part for one in taken for part in one.freed} - new


def _may_be_taken(offer: Offer, view: View) -> bool:
    """Whether an offer that waited still may: what is protected is judged anew."""
    if isinstance(offer.edit, Replace) and offer.edit.reason == KEPT_LINES:
        return view.can_lose_lines(offer.edit.part)
    return not any(
        view.is_protected(part) for edit in offer.edits for part in touched(edit, view.transcript)
    )


def view_of(state: State, setting: Setting, unseen_from: int, *, arrival: bool) -> View:
    """What passes may look at now."""
    fetched = frozenset(state.fetched.values())
    again = frozenset[int]() if arrival else state.refetch_pins
    limits = limits_of(state, setting)
    projected = setting.head + tokens_near(limits, state, setting)
    asking = max(projected, _LATER) if arrival else projected
    kept = None if arrival else kept_from(state.index, setting.policy)
    protections = Protections(
        state.index, state.ledger, setting.policy, fetched, again=again, arrival=arrival,
        kept_from=kept,
    )  # fmt: skip
    return View(
        state.index, state.tokens, state.fresh_from, unseen_from, state.first_user,
        setting.counter, state.edits, state.claimed, state.ledger, arrival, state.aged_from,
        max(setting.policy.keep_exchanges, _exchanges_between(state, kept, unseen_from)),
        protections,
        setting.fetch_tool,
        setting.codec.name, setting.fields, projected, state.leans, limits, state.held,
        state.mentions, fair_risk(setting.rates, _moment(state, setting, limits, asking)),
        kept, state.due_from, protections.partial, setting.facts.summaries,
    )  # fmt: skip


def _exchanges_between(state: State, first: int | None, end: int) -> int:
    """How many exchanges are done at or behind one part, and before another."""
    if first is None:
        return 0
    done = state.index.exchanges
    return max(0, bisect_left(done, end, key=place_of) - bisect_left(done, first, key=place_of))


def _offers(
    state: State, setting: Setting, passes: Iterable[Pass], view: View
) -> list[tuple[str, Offer]]:
    """All that the passes offer, each with its pass."""
    made: list[tuple[str, Offer]] = []
    for offer_pass in passes:
        offers = _run(offer_pass, view, setting.policy, state.failures)
        if offer_pass in PASSES:  # what a user's own pass says is the user's
            offers = [_plainer(offer, view, setting.policy) for offer in offers]
        made += [(name_of(offer_pass), offer) for offer in offers]
    return made


def _plainer(offer: Offer, view: View, policy: Policy) -> Offer:
    """An offer of a result's own lines without what tidying would take out of them."""
    edit = offer.edit
    if not isinstance(edit, Replace) or edit.reason == TIDIED:
        return offer
    part = view.transcript.parts[edit.part]
    if part.kind != "result":
        return offer
    ordinal = view.transcript.exchange_of[edit.part]
    use = view.use(ordinal) if ordinal >= 0 else None
    text = without_codes(plainer(edit.text, use, policy.line_number_interval, original=part.text), use)
    if len(text) == len(edit.text):
        return offer
    saved = view.saved_by(edit.part, text)
    return replace(offer, edit=replace(edit, text=text, saved=saved))


def _put_in_force(state: State, taken: Sequence[Offer], view: View) -> bool:
    """Put the edits of these offers in force; whether there were any."""
    for offer in taken:
        state.take(offer.edits)
        state.recount_advice(
            (edit.part for edit in offer.edits if isinstance(edit, Replace)), view.counter
        )
        if offer.depends_on:
            state.leans[touched(offer.edit, state.index)[0]] = offer.depends_on
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
        if offer_pass in (policy.passes or ()):  # the user's own: respool's are named there
            vet(offers, view)
    except Exception as error:  # noqa: BLE001 (a faulty pass must not cost the user a request)
        failures[name_of(offer_pass)] = f"{type(error).__name__}: {error}"
        return []
    return offers
