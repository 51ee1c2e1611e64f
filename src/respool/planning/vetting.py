"""What users' own passes offer, looked over before it can be taken: the laws hold for them too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never, cast

import msgspec

from ..binding import binding_of
from ..edits import (
    LEVELS,
    TIDIED,
    Advise,
    DropExchange,
    DropReasoning,
    Edit,
    Offer,
    PlaceMark,
    Replace,
)
from ..errors import RespoolError
from ..marker import reference, reference_of
from ..passes.reasoning import droppable_until
from ..passes.view import View
from ..summaries.record import record
from ..touching import touched
from ..transcript import Part

_HALF = re.compile("[\ud800-\udfff]")
_EXPLICIT = ({"mode": "explicit"},)
_MARKS: Mapping[str, Sequence[Mapping[str, str]]] = {  # as providers take them
    "anthropic": (
        {"type": "ephemeral"},
        {"type": "ephemeral", "ttl": "5m"},
        {"type": "ephemeral", "ttl": "1h"},
    ),
    "openai-chat": _EXPLICIT,
    "openai-responses": _EXPLICIT,
}


class UnsoundOffer(RespoolError, ValueError):
    """A pass offered what must not be done; the sentence says what, and where."""


def vet(offers: Iterable[object], view: View) -> None:
    """Raise for the first of these that would break what respool promises."""
    for offer in offers:
        if not isinstance(offer, Offer):
            raise UnsoundOffer(f"{offer!r:.80} is no Offer.")
        _vet_leans(offer, view)
        if not isinstance(offer.edit, PlaceMark) and offer.saved <= 0:
            raise UnsoundOffer(f"The offer at {offer.edit.ref} saves no tokens.")
        for edit in offer.edits:
            _vet_place(edit, view)
            _vet_words(edit)
            _vet(edit, view)
        _vet_reasoning([one for one in offer.edits if isinstance(one, DropReasoning)], view)


def _vet_leans(offer: Offer, view: View) -> None:
    """A level that there is, and parts that there are, however few."""
    given = cast(object, offer.depends_on)
    leans = cast(Sequence[object], given) if isinstance(given, tuple | list) else [None]
    if not all(type(one) is int and 0 <= one < len(view.transcript.parts) for one in leans):
        raise UnsoundOffer(f"leans_on={given!r:.80} is no tuple of positions, as (position,).")
    if offer.level not in LEVELS:
        raise UnsoundOffer(f"level={offer.level!r:.80} is none of {', '.join(LEVELS)}.")


def _vet_place(edit: Edit, view: View) -> None:
    """A number of something that there is; counted from the end, it would be another's."""
    match edit:
        case Replace() | PlaceMark() | Advise():
            number, there = edit.part, len(view.transcript.parts)
        case DropExchange():
            number, there = edit.exchange, len(view.transcript.exchanges)
        case DropReasoning():
            number, there = edit.unit, len(view.transcript.units)
        case _:
            assert_never(edit)
    if type(number) is not int or not 0 <= number < there or type(edit.saved) is not int:
        raise UnsoundOffer(f"The edit at {edit.ref} is of no part: {number!r:.40} of {there:,}.")


def _vet_words(edit: Edit) -> None:
    """Reports, logs and tables hold them."""
    said: list[object] = [edit.reason, edit.evidence]
    if not all(isinstance(one, str) for one in said):
        raise UnsoundOffer(f"The edit at {edit.ref} has a reason or evidence that is no text.")
    if edit.reason == TIDIED:
        raise UnsoundOffer(
            f"The edit at {edit.ref} has the reason {TIDIED}: by it respool's tidying is known, "
            "after which a result still says all that it said."
        )


def _vet(edit: Edit, view: View) -> None:
    parts = touched(edit, view.transcript)
    if isinstance(edit, PlaceMark):
        if edit.mark not in _MARKS.get(view.format, ()):
            raise UnsoundOffer(f"{edit.mark!r:.80} at {edit.ref} is no cache mark.")
        return
    if isinstance(edit, Advise):
        raise UnsoundOffer(f"The edit at {edit.ref} adds words: only `advise` may do that.")
    if not parts or (not isinstance(edit, Replace) and edit.saved <= 0):
        raise UnsoundOffer(f"The edit at {edit.ref} takes out nothing.")
    if any(view.is_protected(part) for part in parts):
        raise UnsoundOffer(f"The edit at {edit.ref} touches what is protected there.")
    if isinstance(edit, Replace):
        _vet_replaced(edit, view)
    elif edit.saved > (gone := sum(view.tokens_of(part) for part in parts)):
        raise UnsoundOffer(f"The edit at {edit.ref} takes out {gone:,} tokens, not {edit.saved:,}.")


def _vet_reasoning(drops: Sequence[DropReasoning], view: View) -> None:
    """What the provider wants back stays, and where none may go before an older one, none does."""
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


def _vet_replaced(edit: Replace, view: View) -> None:
    part = view.transcript.parts[edit.part]
    if part.ref != edit.ref:
        raise UnsoundOffer(f"The edit at {edit.ref} is of the part at {part.ref}.")
    if not edit.text.strip():
        raise UnsoundOffer(f"The edit at {edit.ref} leaves nothing there, not even a marker.")
    if _HALF.search(edit.text) and not _HALF.search(part.text):
        raise UnsoundOffer(f"The edit at {edit.ref} has half a character, which cannot be written.")
    if part.kind == "call":
        _vet_arguments(edit, part, view)
    if part.signed:
        raise UnsoundOffer(f"What stands at {edit.ref} is signed: it stays intact, or goes.")
    if edit.original != _original(edit, view):
        raise UnsoundOffer(f"The edit at {edit.ref} names another original than the one there.")
    saved = view.saved_by(edit.part, edit.text)
    if edit.saved != saved:
        raise UnsoundOffer(f"The edit at {edit.ref} saves {saved:,} tokens, not {edit.saved:,}.")


def _vet_arguments(edit: Replace, part: Part, view: View) -> None:
    """Arguments are an object wherever they were one, and those of a call that writes stay."""
    ordinal = view.transcript.exchange_of[edit.part]
    if ordinal < 0 or view.use(ordinal).can_write:
        raise UnsoundOffer(
            f"The edit at {edit.ref} changes the arguments of a call that may write: what stands "
            "there finds its way into files."
        )
    if _is_object(part.text) and not _is_object(edit.text):
        raise UnsoundOffer(f"The arguments at {edit.ref} are an object, and must stay one.")


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeError):
        return False


def _original(edit: Replace, view: View) -> str:
    """The reference of what an edit puts aside: what the part says, or a record of exchanges."""
    if edit.stands_for:
        return reference_of(record(view.transcript, edit.stands_for, view.media))
    return reference(view.transcript.parts[edit.part].text)
