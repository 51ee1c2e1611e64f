"""View: all that a pass may read; the phases in which a pass acts; queries that passes share."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

from msgspec import Struct

from ..edits import TIDIED, Edit, Offer, Replace
from ..forecast.mentions import Mentions
from ..forecast.model import HistoryView, RiskEstimator
from ..history.ledger import Ledger
from ..limits import HeldMedia, RequestLimits
from ..markers import find_marker
from ..policy import Policy
from ..summaries.call_label import describe_call, join_descriptions
from ..summaries.call_summary import CallSummary, summarize_call
from ..summaries.outcome import parse_outcome
from ..tokens import TokenCounter, unworded_tokens
from ..tools.use import Use
from ..transcript import Exchange, Part, ReadOnlyTranscript
from .protections import Protections, first_kept_part

if TYPE_CHECKING:
    from ..compaction.context import Context
    from ..compaction.state import MediaTally, State

_Pass = TypeVar("_Pass", bound=Callable[..., object])


def acts(*, at_arrival: bool, at_epochs: bool) -> Callable[[_Pass], _Pass]:
    """Declare the phases of a pass; without a declaration it acts at epochs only."""

    def said(offer_pass: _Pass) -> _Pass:
        offer_pass.__dict__.update(at_arrival=at_arrival, at_epochs=at_epochs)
        return offer_pass

    return said


def is_arrival_pass(offer_pass: Callable[..., object]) -> bool:
    """Return whether a pass offers on results that the model has not seen yet."""
    return getattr(offer_pass, "at_arrival", False)


def is_epoch_pass(offer_pass: Callable[..., object]) -> bool:
    """Return whether a pass offers on what was sent before."""
    return getattr(offer_pass, "at_epochs", True)


def units_at_doubled_age(last: int, now: int) -> Iterator[tuple[int, int]]:
    """The units, from one up to another, whose age came to a power of two after `last`.

    >>> list(units_at_doubled_age(8, 10))
    [(1, 3), (5, 7), (7, 9), (9, 10)]
    """
    done = 0  # the first unit not yielded yet
    for power in range(now.bit_length(), -1, -1):  # the oldest first
        age = 1 << power
        first, end = max(done, last - age + 1), now - age + 1
        if first < end:
            yield first, end
            done = end


# full: an epoch over a limit. Everything that stands counts as fresh, keep_exchanges does not hold.
Phase = Literal["arrival", "epoch", "full"]
_MIN_REFETCH_TOKENS = 50_000  # tokens at least of the request that asks for an unseen result


class View(Struct, frozen=True, dict=True, eq=False):
    """A history at one evaluation, as passes read it.

    On arrival a pass sees the results that the model has not seen yet: `unseen_from` on. What it
    removes there was never sent, so no cached prefix breaks. At an epoch it sees all the rest.
    """

    state: State
    context: Context
    phase: Phase
    unseen_from: int  # the model has not seen the parts from here on

    def keeping_from(self, part: int) -> View:
        """The same view with the parts from this one on protected."""
        twin = View(self.state, self.context, self.phase, self.unseen_from)
        known: dict[str, object] = vars(twin)  # of cached properties
        known.update(pinned=self.pinned, recent_count=self.recent_count, kept_from=part)
        return twin

    def over_limit(self) -> View:
        """The same view as over a limit, where `keep_exchanges` keeps nothing."""
        if self.phase != "epoch" or not self.context.policy.keep_exchanges:
            return self
        return View(self.state, self.context, "full", self.unseen_from)

    @cached_property
    def transcript(self) -> ReadOnlyTranscript:
        """The parts, exchanges and units of the history."""
        return self.state.transcript

    @cached_property
    def tokens(self) -> list[int]:
        """Exact tokens by part; -1: not counted yet."""
        return self.state.tokens.exact

    @cached_property
    def first_user(self) -> tuple[int, int]:
        """The parts of the first user message."""
        return self.state.transcript.first_user

    @cached_property
    def in_force(self) -> Mapping[int, Edit]:
        """Edits already sent, by part."""
        return self.state.edits.by_part

    @cached_property
    def claimed(self) -> Collection[int]:
        """All parts that those edits touch."""
        return self.state.edits.claimed

    @cached_property
    def dependencies(self) -> Mapping[int, tuple[int, ...]]:
        """By part with an edit: the parts that it needs whole."""
        return self.state.edits.dependencies

    @cached_property
    def ledger(self) -> Ledger:
        """The effects of all calls."""
        return self.state.analysis.ledger

    @cached_property
    def mentions(self) -> Mentions:
        """The index of the words in later calls and texts."""
        return self.state.analysis.mentions

    @cached_property
    def media(self) -> Mapping[int, HeldMedia]:
        """Images and files, by part."""
        return self.state.window.media

    @property
    def standing_media(self) -> MediaTally:
        """The images and files that no edit touches."""
        return self.state.window.present_media(self.state.edits.claimed)

    @cached_property
    def counter(self) -> TokenCounter:
        """The one counter of the request."""
        return self.context.counters.exact

    @cached_property
    def format(self) -> str:
        """The name of the wire format."""
        return self.context.codec.name

    @cached_property
    def fields(self) -> Mapping[str, Any] | None:
        """The request beside its history; None: a bare list of messages."""
        return self.context.request.fields

    @cached_property
    def fetch_tool(self) -> str | None:
        """The tool that returns originals to the model of this request."""
        return self.context.request.fetch_tool or self.state.analysis.listed_tool

    @cached_property
    def summaries(self) -> tuple[tuple[str, str], ...]:
        """Words for a summary, by the reference of its record."""
        return self.context.facts.summaries

    @cached_property
    def arrival(self) -> bool:
        """Return whether this is the evaluation of new results."""
        return self.phase == "arrival"

    @cached_property
    def fresh_from(self) -> int:
        """The first part that no evaluation has seen."""
        return 0 if self.phase == "full" else self.state.evaluation.fresh_from

    @cached_property
    def aged_from(self) -> int:
        """The first exchange that was recent at the last evaluation."""
        return 0 if self.phase == "full" else self.state.evaluation.aged_from

    @cached_property
    def due_from(self) -> int:
        """The first part that no evaluation could touch."""
        return self.state.evaluation.due_from

    @cached_property
    def kept_from(self) -> int | None:
        """The first part that the policy keeps for being recent; None: it keeps none."""
        if self.arrival:
            return None
        first, keep = first_kept_part(self.transcript, self.context.policy), self._keep_exchanges
        if not keep or not self._seen_exchanges:
            return first
        oldest = self.transcript.exchanges[max(0, self._seen_exchanges - keep)].call
        return oldest if first is None else min(first, oldest)

    @property
    def _keep_exchanges(self) -> int:
        """The number of the latest seen exchanges that stay whole; none over a limit."""
        return 0 if self.phase == "full" else self.context.policy.keep_exchanges

    @cached_property
    def recent_count(self) -> int:
        """The number of the latest exchanges that count as recent."""
        keep, first = self._keep_exchanges, self.kept_from
        if first is None:
            return keep
        done = self.transcript.exchanges
        count = bisect_left(done, self.unseen_from, key=completion_position)
        return max(keep, count - bisect_left(done, first, key=completion_position))

    @cached_property
    def pinned(self) -> Container[int]:
        """Parts that must stay as they are."""
        return Protections(
            self.transcript,
            self.ledger,
            self.context.policy,
            frozenset(self.state.refetches.fetched_back.values()),
            again=frozenset() if self.arrival else self.state.refetches.pins,
            arrival=self.arrival,
            kept_from=self.kept_from,
        )

    @cached_property
    def in_part(self) -> Container[int]:
        """Pinned parts of which single lines may go."""
        return self.pinned.partial if isinstance(self.pinned, Protections) else ()

    @cached_property
    def limits(self) -> RequestLimits:
        """The limits of the request."""
        return self.state.limits(self.context)

    @cached_property
    def projected_tokens(self) -> int:
        """Tokens of the projection and its head; estimated far from a limit."""
        return self.context.head + self.state.count_projection(self.context, self.limits)

    @cached_property
    def fair_risk(self) -> float:
        """Turns that may miss something for each token removed."""
        tokens = self.projected_tokens
        if self.arrival:
            tokens = max(tokens, _MIN_REFETCH_TOKENS)
        return self.context.break_even_risk(self.state.evaluation.requests, tokens, self.limits)

    def is_protected(self, position: int) -> bool:
        """Return whether no pass may touch this part at this evaluation."""
        return self._is_untouchable(position) or position in self.pinned

    def _is_untouchable(self, position: int) -> bool:
        part = self.transcript.parts[position]
        first, end = self.first_user
        return (
            (position >= self.unseen_from) is not self.arrival
            or part.speaker == "system"
            or part.server
            or first <= position < end
            or (self.kept_from is not None and position >= self.kept_from)
            or self._is_pending(position)
        )

    def _is_pending(self, position: int) -> bool:
        """Return whether this is a call without a result: it may still be answered."""
        ordinal = self.transcript.exchange_of[position]
        return ordinal >= 0 and self.transcript.exchanges[ordinal].result is None

    def can_rewrite(self, position: int) -> bool:
        """Return whether a pass may change the text of this part; signed parts stay or go whole."""
        return not self.is_protected(position) and not self.transcript.parts[position].signed

    def can_lose_lines(self, position: int) -> bool:
        """Return whether single lines of this part may go where others of it stay."""
        if self._is_untouchable(position) or self.transcript.parts[position].signed:
            return False
        return position not in self.pinned or position in self.in_part

    def is_whole(self, position: int) -> bool:
        """Return whether a part stands in the projection as it came."""
        return position not in self.claimed

    def is_gone(self, position: int) -> bool:
        """Return whether a part was removed, so that nothing of it is left."""
        return position in self.claimed and position not in self.in_force

    def is_tidy(self, position: int) -> bool:
        """Return whether a part is whole or only tidied."""
        edit = self.in_force.get(position)
        return self.is_whole(position) if edit is None else edit.reason == TIDIED

    def reference_of(self, position: int) -> str:
        """The reference of a part's text, computed once."""
        return self.state.analysis.references.of(self.transcript.parts[position].text)

    def saved_by(self, position: int, text: str) -> int:
        """The tokens that a part saves when it says `text`."""
        part = self.transcript.parts[position]
        before = self.tokens_of(position) - unworded_tokens(part, self.counter)
        return before - self.state.tokens.lines.count_cut(text, part.text, self.counter)

    def tokens_of(self, position: int) -> int:
        """The tokens of a part, counted when first asked for."""
        known = self.tokens[position]
        if known < 0:
            known = self.state.tokens.count_part(self.transcript.parts[position], self.counter)
            self.tokens[position] = known
        return known

    @cached_property
    def risks(self) -> RiskEstimator:
        """Risks of offers at this evaluation; features of a result are computed once."""
        return RiskEstimator(cast(HistoryView, self), self.mentions)

    def fresh_results(self) -> Sequence[int]:
        """At an epoch: the results that may be touched since the last one, as a rule those seen.

        At arrival: those that just came.
        """
        if self.arrival:
            return self._results_between(self.unseen_from, len(self.transcript.parts))
        end = self.unseen_from if self.kept_from is None else self.kept_from
        return self._results_between(self.due_from, min(end, self.unseen_from))

    def recent_results(self) -> Sequence[int]:
        """The results that the model has seen and the policy keeps for being recent."""
        end = self.unseen_from
        return self._results_between(end if self.kept_from is None else self.kept_from, end)

    def _results_between(self, first: int, end: int) -> Sequence[int]:
        results = self.transcript.results
        return results[bisect_left(results, first) : bisect_left(results, end)]

    def fresh_exchanges(self) -> tuple[Exchange, ...]:
        """The exchanges of those results."""
        return self._fresh_exchanges

    @cached_property
    def _fresh_exchanges(self) -> tuple[Exchange, ...]:
        return self._exchanges_of(self.fresh_results())

    def newly_seen(self) -> tuple[Exchange, ...]:
        """The exchanges seen since the last epoch, also those that must stay as they are.

        Over a limit all of them, but for those that edits have taken out.
        """
        return self._newly_seen

    @cached_property
    def _newly_seen(self) -> tuple[Exchange, ...]:
        if self.phase == "full":
            return tuple(
                [
                    one
                    for one in self.standing_exchanges
                    if one.result is not None and one.result < self.unseen_from
                ]
            )
        return self._exchanges_of(self._results_between(self.fresh_from, self.unseen_from))

    def _exchanges_of(self, results: Sequence[int]) -> tuple[Exchange, ...]:
        ordinals = [self.transcript.exchange_of[at] for at in results]
        return tuple([self.transcript.exchanges[one] for one in ordinals if one >= 0])

    def seen_exchanges(self) -> int:
        """The number of exchanges, from the first on, whose results the model has seen."""
        return self._seen_exchanges

    @cached_property
    def _seen_exchanges(self) -> int:
        return bisect_left(self.transcript.exchanges, self.unseen_from, key=completion_position)

    @cached_property
    def latest_turn_start(self) -> int:
        """The first unit of the latest turn of the user's."""
        return self.state.latest_turn_start()

    @cached_property
    def standing_exchanges(self) -> Sequence[Exchange]:
        """The exchanges that no edit in force took out."""
        return [self.transcript.exchanges[one] for one in self.state.standing_exchanges()]

    def aged_exchanges(self, age: int = 0) -> Sequence[Exchange]:
        """The exchanges that were recent at the last evaluation and are old now.

        Those that reached this age, in exchanges after the recent ones. Over a limit all old ones,
        but for those that edits have taken out.
        """
        end = max(0, self.aged_until - age)
        if self.phase != "full":
            return self.transcript.exchanges[max(0, self.aged_from - age) : end]
        standing = self.standing_exchanges
        return standing[: bisect_left(standing, end, key=_ordinal)]

    @cached_property
    def aged_until(self) -> int:
        """The first exchange that is recent now."""
        return max(0, self.seen_exchanges() - self.recent_count)

    def use(self, ordinal: int) -> Use:
        """The effects of the call of an exchange."""
        return self.ledger.uses[ordinal]

    def tool_of(self, position: int) -> str:
        """The name of the tool behind a call or a result."""
        part: Part = self.transcript.parts[position]
        call = self.transcript.call_of(position)
        return part.name or (call.name if call else "")


def _ordinal(exchange: Exchange) -> int:
    return exchange.ordinal


def completion_position(exchange: Exchange) -> int:
    """The part that completes an exchange: its result, or its call while it is pending."""
    return exchange.call if exchange.result is None else exchange.result


# --- what passes share -------------------------------------------------------------------------


def trim_offer(
    view: View,
    position: int,
    text: str,
    *,
    original: str,
    reason: str,
    evidence: str,
    saved: int,
) -> Offer:
    """Offer a shorter text for a part; `original` is the reference of what it says now."""
    edit = Replace(
        part=position,
        ref=view.transcript.parts[position].ref,
        text=text,
        original=original,
        reason=reason,
        evidence=evidence,
        saved=saved,
    )
    return Offer("trim", edit)


def is_intact(view: View, policy: Policy, position: int) -> bool:
    """Return whether a result is whole in the projection and no cap will shorten it."""
    part = view.transcript.parts[position]
    if part.server or not _is_whole_or_tidied(view, position):
        return False
    cap = policy.tools.cap_for(view.tool_of(position), policy.cap_chars)
    over = cap is not None and len(part.text) > cap  # it will be clipped
    return not over and find_marker(part.text) is None


def _is_whole_or_tidied(view: View, position: int) -> bool:
    if view.is_whole(position):
        return True
    edit = view.in_force.get(position)
    return edit is not None and edit.reason == TIDIED


def describe_source(view: View, ordinal: int) -> str:
    """A call in the marker of another exchange, by what a model sees of it."""
    call = view.transcript.parts[view.transcript.exchanges[ordinal].call]
    return describe_call(call, view.use(ordinal))


def describe_sources(view: View, ordinals: Collection[int]) -> str:
    """Several calls in the marker of another exchange; the same description once."""
    return join_descriptions([describe_source(view, one) for one in sorted(ordinals)])


def call_label(view: View, ordinal: int, beside: int) -> str:
    """The name of a call in the evidence of another exchange's edit: its id, if that is unique.

    Some wires have no ids, and on some the same id may come again.
    """
    transcript = view.transcript
    call, other = (transcript.parts[transcript.exchanges[one].call] for one in (ordinal, beside))
    if call.id and call.id != other.id:
        return f"call {call.id}"
    return f"call no. {ordinal + 1}"


_MAX_LATER_CALLS: Final = 12  # later calls of the same that are checked for a success


def deed_in_view(view: View, exchange: Exchange, why: str = "") -> CallSummary | None:
    """The facts of an exchange; a failure also by whether the same succeeded since."""
    if exchange.result is None:
        return None
    parts = view.transcript.parts
    use, result = view.use(exchange.ordinal), parts[exchange.result]
    deed = summarize_call(parts[exchange.call], use, result, why=why)
    if deed.outcome.failed and has_succeeded_since(view, exchange, use):
        return summarize_call(parts[exchange.call], use, result, why=why, resolved=True)
    return deed


def has_succeeded_since(view: View, exchange: Exchange, use: Use) -> bool:
    """Return whether the same operation on the same target ended well after this exchange."""
    outcomes = view.ledger.outcomes(use, view.seen_exchanges())
    for outcome in reversed(outcomes[-_MAX_LATER_CALLS:]):
        if outcome.ordinal <= exchange.ordinal:
            return False
        if not outcome.failed and _has_ended_well(view, outcome.ordinal, use):
            return True
    return False


def _has_ended_well(view: View, ordinal: int, use: Use) -> bool:
    """Return whether a call succeeded; the exit of a pipe shows only its last command."""
    later = view.transcript.exchanges[ordinal]
    parts = view.transcript.parts
    piped = "|" in parts[later.call].text and view.use(ordinal).key != use.key
    if later.result is None or piped:
        return False
    result = parts[later.result]
    return not parse_outcome(result.text, result.error, use.outcome_kind).failed
