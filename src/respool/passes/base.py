"""View: all that a pass may look at; and the phases in which a pass acts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from msgspec import Struct

from ..edits import TIDIED, Edit
from ..forecast.mentions import Mentions
from ..forecast.model import RiskEstimator
from ..history.ledger import Ledger
from ..limits import HeldMedia, RequestLimits
from ..tokens import TokenCounter, part_tokens
from ..tools.use import Use
from ..transcript import Exchange, Part, ReadOnlyTranscript

_Pass = TypeVar("_Pass", bound=Callable[..., object])


def acts(*, at_arrival: bool, at_epochs: bool) -> Callable[[_Pass], _Pass]:
    """Say of a pass when it acts; one that says nothing acts at epochs only."""

    def said(offer_pass: _Pass) -> _Pass:
        offer_pass.__dict__.update(at_arrival=at_arrival, at_epochs=at_epochs)
        return offer_pass

    return said


def is_arrival_pass(offer_pass: Callable[..., object]) -> bool:
    """Whether a pass has something to say on results that the model has not seen yet."""
    return getattr(offer_pass, "at_arrival", False)


def is_epoch_pass(offer_pass: Callable[..., object]) -> bool:
    """Whether a pass has something to say on what was sent before."""
    return getattr(offer_pass, "at_epochs", True)


def units_at_doubled_age(last: int, now: int) -> Iterator[tuple[int, int]]:
    """The units, from one up to another, whose age came to a power of two after `last`.

    >>> list(doubled(8, 10))
    [(1, 3), (5, 7), (7, 9), (9, 10)]
    """
    done = 0  # the first unit that is not told yet
    for power in range(now.bit_length(), -1, -1):  # the oldest first
        age = 1 << power
        first, end = max(done, last - age + 1), now - age + 1
        if first < end:
            yield first, end
            done = end


_NO_LEDGER = Ledger()
_NO_LIMITS = RequestLimits()
_NO_MENTIONS = Mentions()


class View(Struct, frozen=True, dict=True):
    """A history as it stood at one evaluation.

    At arrival a pass sees what the model has not seen yet: `unseen_from` on. Whatever it takes out
    there was never sent, so no cached prefix breaks. At an epoch it sees all the rest.
    """

    transcript: ReadOnlyTranscript
    tokens: list[int]  # of each part by the request's one counter; -1: not counted yet
    fresh_from: int  # what stands before was already looked at by the last evaluation
    unseen_from: int  # the model has not seen the parts from here on
    first_user: tuple[int, int]  # the parts of the first user message
    counter: TokenCounter
    in_force: Mapping[int, Edit]  # edits already sent, by part
    claimed: Collection[int] = ()  # all parts that those edits touch
    ledger: Ledger = _NO_LEDGER
    arrival: bool = False
    aged_from: int = 0  # exchanges before this one were old at the last evaluation
    recent_count: int = 0  # how many of the latest exchanges count as recent
    pinned: Container[int] = ()  # parts that must stay as they are
    fetch_tool: str | None = None  # the tool by which this request's model can get originals back
    format: str = ""  # of the wire
    fields: Mapping[str, Any] | None = None  # the request beside its history; None: a bare list
    projected_tokens: int = 0  # about how many tokens the projection has
    dependencies: Mapping[
        int, tuple[int, ...]
    ] = {}  # by part with an edit: the parts it needs whole
    limits: RequestLimits = _NO_LIMITS
    media: Mapping[int, HeldMedia] = {}  # images and files, by part
    mentions: Mentions = _NO_MENTIONS
    fair_risk: float = 1e-4  # turns that may miss something for each token that goes
    kept_from: int | None = None  # the parts from here on stay as they are, seen or not
    due_from: int | None = None  # those before could be touched at the last evaluation
    in_part: Container[int] = ()  # pinned parts of which single lines may go
    summaries: tuple[tuple[str, str], ...] = ()  # by a record's reference: words for its summary

    def is_protected(self, position: int) -> bool:
        """Whether no pass may touch this part at this evaluation."""
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
        """Whether this is a call without a result: somebody may still be asked about it."""
        ordinal = self.transcript.exchange_of[position]
        return ordinal >= 0 and self.transcript.exchanges[ordinal].result is None

    def can_rewrite(self, position: int) -> bool:
        """Whether a pass may change what this part says: not what must stay intact, or go."""
        return not self.is_protected(position) and not self.transcript.parts[position].signed

    def can_lose_lines(self, position: int) -> bool:
        """Whether single lines of this part may go where others of it stay."""
        if self._is_untouchable(position) or self.transcript.parts[position].signed:
            return False
        return position not in self.pinned or position in self.in_part

    def is_whole(self, position: int) -> bool:
        """Whether a part stands in the projection as it came."""
        return position not in self.claimed

    def is_gone(self, position: int) -> bool:
        """Whether a part went with another one, so that nothing is left of it to offer on."""
        return position in self.claimed and position not in self.in_force

    def is_tidy(self, position: int) -> bool:
        """Whether a part says all that it said: nothing was done to it, or it was only tidied."""
        edit = self.in_force.get(position)
        return self.is_whole(position) if edit is None else edit.reason == TIDIED

    def saved_by(self, position: int, text: str) -> int:
        """The tokens that a part saves when it says `text`."""
        part = self.transcript.parts[position]
        named = self.counter.count(part.name) if part.kind == "call" and part.name else 0
        return self.tokens_of(position) - part.weight - named - self.counter.count(text)

    def tokens_of(self, position: int) -> int:
        """The tokens of a part, counted when first asked for."""
        known = self.tokens[position]
        if known < 0:
            known = part_tokens(self.transcript.parts[position], self.counter)
            self.tokens[position] = known
        return known

    @cached_property
    def risks(self) -> RiskEstimator:
        """What offers risk at this evaluation; what is known of a result is looked up once."""
        return RiskEstimator(self, self.mentions)

    def fresh_results(self) -> Sequence[int]:
        """At an epoch: the results that may be touched since the last one, as a rule those seen.

        At arrival: those that just came.
        """
        if self.arrival:
            return self._results_between(self.unseen_from, len(self.transcript.parts))
        first = self.fresh_from if self.due_from is None else self.due_from
        end = self.unseen_from if self.kept_from is None else self.kept_from
        return self._results_between(first, min(end, self.unseen_from))

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
        """The exchanges seen since the last epoch, also those that must stay as they are."""
        return self._exchanges_of(self._results_between(self.fresh_from, self.unseen_from))

    def _exchanges_of(self, results: Sequence[int]) -> tuple[Exchange, ...]:
        ordinals = [self.transcript.exchange_of[at] for at in results]
        return tuple([self.transcript.exchanges[one] for one in ordinals if one >= 0])

    def seen_exchanges(self) -> int:
        """How many exchanges, from the first on, have results that the model has seen."""
        return self._seen_exchanges

    @cached_property
    def _seen_exchanges(self) -> int:
        return bisect_left(self.transcript.exchanges, self.unseen_from, key=completion_position)

    def aged_exchanges(self) -> Sequence[Exchange]:
        """The exchanges that were recent at the last evaluation and are old now."""
        return self.transcript.exchanges[
            self.aged_from : max(0, self.seen_exchanges() - self.recent_count)
        ]

    def use(self, ordinal: int) -> Use:
        """What the call of an exchange does."""
        return self.ledger.uses[ordinal]

    def tool_of(self, position: int) -> str:
        """The name of the tool behind a call or a result."""
        part: Part = self.transcript.parts[position]
        call = self.transcript.call_of(position)
        return part.name or (call.name if call else "")


def completion_position(exchange: Exchange) -> int:
    """Where an exchange is done: at its result, or nowhere yet."""
    return exchange.call if exchange.result is None else exchange.result
