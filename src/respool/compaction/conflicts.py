"""Conflicts between offers and edits in force: the best compatible set."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from ..edits import (
    FOLDED,
    STALE,
    TIDIED,
    DropExchange,
    DropReasoning,
    Edit,
    Offer,
    Replace,
    touched_parts,
)
from ..transcript import ReadOnlyTranscript


def _saved_tokens(offer: Offer) -> float:
    return offer.saved


def choose_compatible(
    offers: Iterable[Offer],
    *,
    edits: Mapping[int, Edit],
    claimed: Collection[int],
    dependents: Mapping[int, Collection[int]],
    transcript: ReadOnlyTranscript,
    value: Callable[[Offer], float] = _saved_tokens,
) -> list[Offer]:
    """The offers to take: of several for one part, the one that is worth most.

    Edits in force stay, unless an offer for the same part saves more. `claimed` are the parts that
    they touch, `dependents` the parts of edits that need a part whole. An offer that depends on a
    part is taken only while that part stays whole; a tidied part counts as whole.
    """
    taken: list[Offer] = []
    new: set[int] = set()
    cut: set[int] = set()  # those of them that are no longer whole
    needed: set[int] = set()
    for parts, offer in _sort_offers(offers, transcript, value):
        tidies = offer.edit.reason == TIDIED
        if any(p in new for p in parts):
            continue
        if not tidies and (
            any(p in needed for p in parts) or restored_parts(offer, parts, dependents, edits)
        ):
            continue
        if not _saves_more(offer, edits, claimed, transcript):
            continue
        if any(
            p in cut or p in parts or not _is_intact(p, edits, claimed) for p in offer.depends_on
        ):
            continue
        taken.append(offer)
        new.update(parts)
        cut.update(() if tidies else parts)
        needed.update(offer.depends_on)
    return taken


def restored_parts(
    offer: Offer,
    parts: Collection[int],
    dependents: Mapping[int, Collection[int]],
    edits: Mapping[int, Edit],
) -> Collection[int]:
    """The other parts whose edits in force need one of these whole: they would be restored.

    A read that was shown again stays replaced if the later one is shown again as well.
    """
    if not dependents:
        return ()
    found = {one for part in parts for one in dependents.get(part, ())}.difference(parts)
    if offer.edit.reason == STALE and offer.depends_on:
        found = {one for one in found if one not in edits or edits[one].reason != STALE}
    return found


def _saves_more(
    offer: Offer,
    edits: Mapping[int, Edit],
    claimed: Collection[int],
    transcript: ReadOnlyTranscript,
) -> bool:
    """Return whether an offer saves more than all edits in force on its parts."""
    before: dict[int, int] = {}
    for edit in offer.edits:
        for part in touched_parts(edit, transcript):
            if part not in claimed:
                continue
            known = _edit_on(part, edit, edits, transcript)
            if known is None or not _can_be_replaced(edits[known], edit):
                return False  # gone, or with a breakpoint: it cannot change again
            before[known] = edits[known].saved
    total = sum(before.values())
    return offer.saved > total or not total


def _edit_on(
    part: int, new: Edit, edits: Mapping[int, Edit], transcript: ReadOnlyTranscript
) -> int | None:
    """The key of the edit on a part: the part, or the first reasoning of its unit."""
    if part in edits:
        return part
    if not isinstance(new, DropExchange):
        return None
    reasoning = transcript.units[transcript.exchanges[new.exchange].unit].reasoning
    return reasoning[0] if part in reasoning and reasoning[0] in edits else None


def _can_be_replaced(before: Edit, new: Edit) -> bool:
    """Return whether an edit can be replaced: a text, or reasoning that goes with its calls.

    A summary gives way only to another one.
    """
    if isinstance(before, DropReasoning):
        return isinstance(new, DropExchange)
    if before.reason == FOLDED and new.reason != FOLDED:
        return False  # it summarizes others too
    return isinstance(before, Replace)


def _is_intact(part: int, edits: Mapping[int, Edit], claimed: Collection[int]) -> bool:
    """Return whether a part is whole or only tidied."""
    if part not in claimed:
        return True
    edit = edits.get(part)
    return edit is not None and edit.reason == TIDIED


def _sort_offers(
    offers: Iterable[Offer], transcript: ReadOnlyTranscript, value: Callable[[Offer], float]
) -> list[tuple[tuple[int, ...], Offer]]:
    """The offers with the parts they touch, by the first of these, the best one first.

    Those of several edits come before all others, which could each take a part away from them.
    """
    found: list[tuple[tuple[int, ...], Offer]] = []
    for offer in offers:
        parts = tuple(part for edit in offer.edits for part in touched_parts(edit, transcript))
        if parts:
            found.append((parts, offer))
    return sorted(found, key=lambda one: (not one[1].also, min(one[0]), -value(one[1])))
