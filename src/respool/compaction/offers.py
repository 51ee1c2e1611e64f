"""Offers of passes: log of their outcomes, and validation of users' own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, assert_never, cast

import msgspec
from msgspec import Struct

from ..edits import (
    LEVELS,
    TIDIED,
    Advise,
    DropExchange,
    DropReasoning,
    Edit,
    Level,
    Offer,
    PlaceBreakpoint,
    Replace,
    touched_parts,
)
from ..errors import RespoolError
from ..markers import reference, reference_of_pieces
from ..passes.base import View
from ..passes.old_reasoning import droppable_until
from ..passes.protections import Protections
from ..providers.bound_reasoning import binding_of
from ..providers.registry import PROVIDERS
from ..regex import lazy_compile
from ..summaries.batch import render_exchanges
from ..transcript import Part, Ref

OfferOutcome = Literal["taken", "not taken", "taken back", "protected"]


class OfferRecord(Struct, frozen=True, gc=False, kw_only=True):
    """One offer at one boundary, one edit given up there, or one exchange that was protected."""

    boundary: int  # how many messages had come
    arrival: bool  # on what had just come, before it was sent
    outcome: OfferOutcome
    ref: Ref  # the place
    reason: str  # the edit's, or the protection
    by: str = ""  # the pass that made the offer
    level: Level | None = None
    evidence: str = ""
    saved: int = 0


class OfferDecision(Struct, frozen=True):
    """Decision on the offers of one boundary."""

    made: Sequence[tuple[str, Offer]]  # by the name of the pass, in their order
    taken: Sequence[Offer]
    waited: Mapping[tuple[str, int], Sequence[Offer]] = {}  # since earlier boundaries
    withdrawn: Sequence[Edit] = ()  # that were in force: their parts say again what they said


def log_offers(
    trace: list[OfferRecord] | None, decided: OfferDecision, view: View, boundary: int
) -> None:
    """Add what was decided at a boundary to a trace, where someone wants to know."""
    if trace is not None:
        trace += _offer_records(decided, view, boundary)


def _offer_records(decided: OfferDecision, view: View, boundary: int) -> list[OfferRecord]:
    """Records of all offers, of withdrawn edits, and of protections."""
    chosen = {id(offer) for offer in decided.taken}
    new = {id(offer) for _, offer in decided.made}
    waited = [(name, one) for (name, _), offers in decided.waited.items() for one in offers]
    late = [(name, one) for name, one in waited if id(one) in chosen - new]
    offers = [
        OfferRecord(
            boundary=boundary,
            arrival=view.arrival,
            outcome="taken" if id(offer) in chosen else "not taken",
            ref=offer.edit.ref,
            reason=offer.edit.reason,
            by=name,
            level=offer.level,
            evidence=offer.edit.evidence,
            saved=offer.saved,
        )
        for name, offer in (*decided.made, *late)
    ]
    return [
        *offers,
        *_withdrawn_records(decided.withdrawn, boundary),
        *_protected_records(view, boundary),
    ]


def _withdrawn_records(edits: Iterable[Edit], boundary: int) -> list[OfferRecord]:
    return [
        OfferRecord(
            boundary=boundary,
            arrival=False,
            outcome="taken back",
            ref=edit.ref,
            reason=edit.reason,
            evidence=edit.evidence,
            saved=edit.saved,
        )
        for edit in edits
    ]


def _protected_records(view: View, boundary: int) -> list[OfferRecord]:
    pins = view.pinned
    if not isinstance(pins, Protections):
        return []
    history = view.transcript
    if view.context.policy.keep_messages or view.context.policy.keep_calls:
        for position in view.recent_results():
            pins.reason_for(position)  # what is kept for its age, passes need not ask about
    return [
        OfferRecord(
            boundary=boundary,
            arrival=view.arrival,
            outcome="protected",
            ref=history.parts[history.exchanges[ordinal].call].ref,
            reason=why,
        )
        for ordinal, why in sorted(pins.judged().items())
    ]


_SURROGATE = lazy_compile("[\ud800-\udfff]")


class UnsoundOffer(RespoolError, ValueError):
    """An offer that breaks a rule; the message names the rule and the place."""


def validate_offers(offers: Iterable[object], view: View) -> None:
    """Raise UnsoundOffer for the first offer that breaks a rule."""
    for offer in offers:
        if not isinstance(offer, Offer):
            raise UnsoundOffer(f"{offer!r:.80} is no Offer.")
        _validate_dependencies(offer, view)
        if not isinstance(offer.edit, PlaceBreakpoint) and offer.saved <= 0:
            raise UnsoundOffer(f"The offer at {offer.edit.ref} saves no tokens.")
        for edit in offer.edits:
            _validate_position(edit, view)
            _validate_text(edit)
            _validate_edit(edit, view)
        _validate_reasoning([one for one in offer.edits if isinstance(one, DropReasoning)], view)


def _validate_dependencies(offer: Offer, view: View) -> None:
    """Reject unknown levels and dependencies on no part."""
    given = cast(object, offer.depends_on)
    needed = cast(Sequence[object], given) if isinstance(given, tuple | list) else [None]
    if not all(type(one) is int and 0 <= one < len(view.transcript.parts) for one in needed):
        raise UnsoundOffer(f"depends_on={given!r:.80} is no tuple of positions, as (position,).")
    if offer.level not in LEVELS:
        raise UnsoundOffer(f"level={offer.level!r:.80} is none of {', '.join(LEVELS)}.")


def _validate_position(edit: Edit, view: View) -> None:
    """Reject numbers of no part; a negative one would name another part."""
    match edit:
        case Replace() | PlaceBreakpoint() | Advise():
            number, there = edit.part, len(view.transcript.parts)
        case DropExchange():
            number, there = edit.exchange, len(view.transcript.exchanges)
        case DropReasoning():
            number, there = edit.unit, len(view.transcript.units)
        case _:
            assert_never(edit)
    if type(number) is not int or not 0 <= number < there or type(edit.saved) is not int:
        raise UnsoundOffer(f"The edit at {edit.ref} is of no part: {number!r:.40} of {there:,}.")


def _validate_text(edit: Edit) -> None:
    """Reject reasons that are no text, or respool's own."""
    said: list[object] = [edit.reason, edit.evidence]
    if not all(isinstance(one, str) for one in said):
        raise UnsoundOffer(f"The edit at {edit.ref} has a reason or evidence that is no text.")
    if edit.reason == TIDIED:
        raise UnsoundOffer(
            f"The edit at {edit.ref} has the reason {TIDIED}: by it respool's tidying is known, "
            "after which a result still says all that it said."
        )


def _validate_edit(edit: Edit, view: View) -> None:
    parts = touched_parts(edit, view.transcript)
    if isinstance(edit, PlaceBreakpoint):
        if edit.control not in PROVIDERS[view.format].breakpoint_controls:
            raise UnsoundOffer(f"{edit.control!r:.80} at {edit.ref} is no cache breakpoint.")
        return
    if isinstance(edit, Advise):
        raise UnsoundOffer(f"The edit at {edit.ref} adds words: only `advise` may do that.")
    if not parts or (not isinstance(edit, Replace) and edit.saved <= 0):
        raise UnsoundOffer(f"The edit at {edit.ref} takes out nothing.")
    if any(view.is_protected(part) for part in parts):
        raise UnsoundOffer(f"The edit at {edit.ref} touches what is protected there.")
    if isinstance(edit, Replace):
        _validate_replacement(edit, view)
    elif edit.saved > (gone := sum(view.tokens_of(part) for part in parts)):
        raise UnsoundOffer(f"The edit at {edit.ref} takes out {gone:,} tokens, not {edit.saved:,}.")


def _validate_reasoning(drops: Sequence[DropReasoning], view: View) -> None:
    """Reject drops of reasoning that the provider requires, or out of order."""
    if not drops:
        return
    binding = binding_of(view.format, view.fields)
    until = droppable_until(view, binding, 0)
    gone = {drop.unit for drop in drops}
    for drop in drops:
        older = view.transcript.units[: drop.unit] if binding.oldest_first else ()
        left = (unit for number, unit in enumerate(older) if number not in gone)
        if drop.unit >= until or any(view.is_whole(part) for one in left for part in one.reasoning):
            raise UnsoundOffer(f"The provider wants the reasoning at {drop.ref} back.")


def _validate_replacement(edit: Replace, view: View) -> None:
    part = view.transcript.parts[edit.part]
    if part.ref != edit.ref:
        raise UnsoundOffer(f"The edit at {edit.ref} is of the part at {part.ref}.")
    if not edit.text.strip():
        raise UnsoundOffer(f"The edit at {edit.ref} leaves nothing there, not even a marker.")
    if _SURROGATE.search(edit.text) and not _SURROGATE.search(part.text):
        raise UnsoundOffer(f"The edit at {edit.ref} has half a character, which cannot be written.")
    if part.kind == "call":
        _validate_arguments(edit, part, view)
    if part.signed:
        raise UnsoundOffer(f"What stands at {edit.ref} is signed: it stays intact, or goes.")
    if edit.original != _original_reference(edit, view):
        raise UnsoundOffer(f"The edit at {edit.ref} names another original than the one there.")
    saved = view.saved_by(edit.part, edit.text)
    if edit.saved != saved:
        raise UnsoundOffer(f"The edit at {edit.ref} saves {saved:,} tokens, not {edit.saved:,}.")


def _validate_arguments(edit: Replace, part: Part, view: View) -> None:
    """Keep arguments an object if they were one, and keep those of a call that writes."""
    ordinal = view.transcript.exchange_of[edit.part]
    if ordinal < 0 or view.use(ordinal).can_write:
        raise UnsoundOffer(
            f"The edit at {edit.ref} changes the arguments of a call that may write: what stands "
            "there finds its way into files."
        )
    if _is_json_object(part.text) and not _is_json_object(edit.text):
        raise UnsoundOffer(f"The arguments at {edit.ref} are an object, and must stay one.")


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeError):
        return False


def _original_reference(edit: Replace, view: View) -> str:
    """The reference of what an edit puts aside: what the part says, or a record of exchanges."""
    if edit.stands_for:
        return reference_of_pieces(render_exchanges(view.transcript, edit.stands_for, view.media))
    return reference(view.transcript.parts[edit.part].text)
