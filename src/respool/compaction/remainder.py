"""Remainder of a projection: offers that wait, results that stay, and why.

Nothing here decides anything. It is computed for a report, when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Literal

from msgspec import Struct

from ..edits import TIDIED, Offer, touched_parts
from ..limits import UNSEEN_LABEL, protection_label
from ..passes.base import View
from ..passes.protections import Protections
from .context import Context
from .fold import decided_state
from .planner import compatible_waiting
from .state import State
from .window import evaluation_interval

KeptCause = Literal["next", "waiting", "protected", "unseen", "early", "spent"]
Halt = Literal["", "left alone", "skipped", "no passes"]  # why no offer was asked for


class KeptResults(Struct, frozen=True, gc=False):
    """Tool results that stand as they came, for one cause."""

    cause: KeptCause
    label: str  # what they are, in words
    results: int
    tokens: int


class Remainder(Struct, frozen=True, kw_only=True):
    """What stays in a projection, and why."""

    results: int = 0  # tool results in the history
    offers: int = 0  # that wait until they pay
    offer_tokens: int = 0  # that they would save
    interval: int = 0  # tokens that must be new before results are looked at again
    halt: Halt = ""
    kept: tuple[KeptResults, ...] = ()  # the most tokens first

    def sentences(self) -> list[str]:
        """The causes in words, the one that a user can change first."""
        if self.halt:
            return [_HALTS[self.halt]]
        if not self.results:
            return ["there are no tool results in it, and those are what respool takes out"]
        waiting = [describe_waiting(self.offers, self.offer_tokens)] if self.offers else []
        return waiting + [
            said
            for cause in ("next", "early", "protected", "unseen", "spent")
            for said in self._told(cause)
        ]

    def _told(self, cause: KeptCause) -> list[str]:
        found = [one for one in self.kept if one.cause == cause]
        if not found:
            return []
        results = sum(one.results for one in found)
        amount = (
            f"{_count(results, 'result')}, {_count(sum(one.tokens for one in found), 'token')},"
        )
        are, hold, it = ("is", "holds", "it") if results == 1 else ("are", "hold", "them")
        shrink = "shrinks" if results == 1 else "shrink"
        named = ", ".join(f"{one.label} ({one.results:,})" for one in found)
        told = {
            "next": f"{shrink} with the next request: that is decided, and takes effect then",
            "early": f"{are} not looked at yet: that is done whenever {self.interval:,} new tokens "
            "have come",
            "protected": f"{are} protected: {named}",
            "unseen": f"{are} new: the model has not read {it} yet",
            "spent": f"{hold} nothing that may go",
        }
        return [f"{amount} {told[cause]}"]


_HALTS: Final[Mapping[Halt, str]] = {
    "left alone": "this conversation is left alone: the provider refused a projection of it",
    "skipped": "the facts name this request as one at which no new edit is made",
    "no passes": "no pass is switched on",
}


def describe_waiting(offers: int, tokens: int) -> str:
    """Offers that wait, and the setting that takes them.

    >>> describe_waiting(3, 4_100)
    '3 offers, 4,100 tokens, wait until they pay; `eager` takes them now'
    """
    wait, them = ("waits until it pays", "it") if offers == 1 else ("wait until they pay", "them")
    return f"{_count(offers, 'offer')}, {_count(tokens, 'token')}, {wait}; `eager` takes {them} now"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def waiting_total(state: State, context: Context) -> tuple[int, int]:
    """The number of offers that wait until they pay, and the tokens that they would save.

    Both are as of the last evaluation, for only an evaluation adds some.
    """
    if not state.evaluation.waiting or context.policy.eager:
        return 0, 0
    if state.evaluation.waiting_total is None:
        waiting = compatible_waiting(_view(state, context))
        state.evaluation.waiting_total = _total(waiting, state)
    return state.evaluation.waiting_total


def survey(state: State, context: Context) -> Remainder:
    """What stays of a history, and why."""
    if not state.transcript.units:
        return Remainder()
    decided = decided_state(state, context)
    view = _view(decided, context)
    waiting = [] if context.policy.eager else compatible_waiting(view)
    offers, tokens = _total(waiting, decided)
    parts = {
        part
        for one in waiting
        for edit in one.edits
        for part in touched_parts(edit, view.transcript)
    }
    return Remainder(
        results=len(view.transcript.results),
        offers=offers,
        offer_tokens=tokens,
        interval=evaluation_interval(state, context),
        halt=_halt(state, context),
        kept=_kept(_view(state, context), view, parts),
    )


def _view(state: State, context: Context) -> View:
    return View(state, context, "epoch", state.unseen_from)


def _total(offers: Collection[Offer], state: State) -> tuple[int, int]:
    """The number of offers, and what they save beyond the edits in force on their parts."""
    edits = state.edits.by_part
    replaced = {
        part: edits[part].saved
        for offer in offers
        for edit in offer.edits
        for part in touched_parts(edit, state.transcript)
        if part in edits
    }
    return len(offers), sum(offer.saved for offer in offers) - sum(replaced.values())


def _halt(state: State, context: Context) -> Halt:
    if state.prefix.is_left_alone:
        return "left alone"
    if state.prefix.hex() in context.facts.skipped:
        return "skipped"
    return "" if context.passes else "no passes"


def _kept(view: View, decided: View, waiting: Collection[int]) -> tuple[KeptResults, ...]:
    """The results that stand as they came, by cause; `decided`: with what takes force next."""
    found: dict[tuple[KeptCause, str], tuple[int, int]] = {}
    for position in view.transcript.results:
        edit = view.in_force.get(position)
        if not _stands(view, position):
            continue
        if not _stands(decided, position):
            cause: tuple[KeptCause, str] = ("next", "")
        else:
            cause = ("waiting", "") if position in waiting else _cause(decided, position)
        results, tokens = found.get(cause, (0, 0))
        saved = 0 if edit is None else edit.saved
        found[cause] = results + 1, tokens + view.tokens_of(position) - saved
    kept = (KeptResults(*cause, *amount) for cause, amount in found.items())
    return tuple(sorted(kept, key=lambda one: (-one.tokens, one.cause, one.label)))


def _stands(view: View, position: int) -> bool:
    """True if a result stands as it came, or is only tidied."""
    edit = view.in_force.get(position)
    return view.is_whole(position) or (edit is not None and edit.reason == TIDIED)


def _cause(view: View, position: int) -> tuple[KeptCause, str]:
    pins = view.pinned
    assert isinstance(pins, Protections)
    label = protection_label(
        view.transcript, position, view.unseen_from, view.first_user, pins.label_for
    )
    if label == UNSEEN_LABEL:
        return "unseen", label
    if label is not None:
        return "protected", label
    return ("early", "") if position >= view.due_from else ("spent", "")
