"""Conflicts between offers and edits in force: the best compatible set."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import cast

from ..edits import FOLDED, TIDIED, DropExchange, DropReasoning, Edit, Offer, Replace, touched_parts
from ..transcript import ReadOnlyTranscript


def _saved_tokens(offer: Offer) -> float:
    return offer.saved


def choose_compatible(
    offers: Iterable[Offer],
    *,
    edits: Mapping[int, Edit],
    claimed: Collection[int],
    dependencies: Collection[int],
    transcript: ReadOnlyTranscript,
    value: Callable[[Offer], float] = _saved_tokens,
) -> list[Offer]:
    """The offers to take: of several for one part, the one that is worth most.

    Edits in force stay, unless an offer for the same part saves more. `claimed` are the parts that
    they touch, `dependencies` those that they need whole. An offer that depends on a part is taken
    only while that part stays whole; a tidied part counts as whole.
    """
    taken: list[Offer] = []
    new: set[int] = set()
    cut: set[int] = set()  # those of them that are no longer whole
    needed: set[int] = set()
    for parts, offer in _sort_offers(offers, transcript, value):
        tidies = offer.edit.reason == TIDIED
        if any(p in new for p in parts):
            continue
        frees = not (tidies or offer.depends_on) and _is_dependency(parts, dependencies)
        if frees or (not tidies and any(p in needed for p in parts)):
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


def _is_dependency(parts: Collection[int], dependencies: Collection[int]) -> bool:
    """Return whether an edit in force on another part needs one of these whole."""
    if not isinstance(dependencies, Mapping):
        return any(part in dependencies for part in parts)
    dependents = cast(Mapping[int, Collection[int]], dependencies)
    return any(not set(parts).issuperset(dependents.get(part, ())) for part in parts)


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
