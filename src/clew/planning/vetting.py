"""What users' own passes offer, looked over before it can be taken: the laws hold for them too."""

from __future__ import annotations

from collections.abc import Iterable

from ..edits import Advise, Edit, Offer, PlaceMark, Replace
from ..errors import ClewError
from ..marker import reference, reference_of
from ..passes.view import View
from ..summaries.record import record
from ..touching import touched


class UnsoundOffer(ClewError, ValueError):
    """A pass offered what must not be done; the sentence says what, and where."""


def vet(offers: Iterable[object], view: View) -> None:
    """Raise for the first of these that would break what clew promises."""
    for offer in offers:
        if not isinstance(offer, Offer):
            raise UnsoundOffer(f"{offer!r:.80} is no Offer.")
        if not isinstance(offer.edit, PlaceMark) and offer.saved <= 0:
            raise UnsoundOffer(f"The offer at {offer.edit.ref} saves no tokens.")
        for edit in offer.edits:
            _vet(edit, view)


def _vet(edit: Edit, view: View) -> None:
    parts = touched(edit, view.transcript)
    if isinstance(edit, PlaceMark):
        return
    if isinstance(edit, Advise):
        raise UnsoundOffer(f"The edit at {edit.ref} adds words: only `advise` may do that.")
    if not parts or (not isinstance(edit, Replace) and edit.saved <= 0):
        raise UnsoundOffer(f"The edit at {edit.ref} takes out nothing.")
    if any(view.is_protected(part) for part in parts):
        raise UnsoundOffer(f"The edit at {edit.ref} touches what is protected there.")
    if isinstance(edit, Replace):
        _vet_replaced(edit, view)


def _vet_replaced(edit: Replace, view: View) -> None:
    part = view.transcript.parts[edit.part]
    if part.ref != edit.ref:
        raise UnsoundOffer(f"The edit at {edit.ref} is of the part at {part.ref}.")
    if part.signed:
        raise UnsoundOffer(f"What stands at {edit.ref} is signed: it stays intact, or goes.")
    if edit.original != _original(edit, view):
        raise UnsoundOffer(f"The edit at {edit.ref} names another original than the one there.")
    saved = view.saved_by(edit.part, edit.text)
    if edit.saved != saved:
        raise UnsoundOffer(f"The edit at {edit.ref} saves {saved:,} tokens, not {edit.saved:,}.")


def _original(edit: Replace, view: View) -> str:
    """The reference of what an edit puts aside: what the part says, or a record of exchanges."""
    if edit.stands_for:
        return reference_of(record(view.transcript, edit.stands_for, view.held))
    return reference(view.transcript.parts[edit.part].text)
