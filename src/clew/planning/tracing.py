"""Every offer that passes made, taken or not, and what they were kept from: for debugging."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from ..edits import Level, Offer
from ..passes.view import View
from ..protections import Protections
from ..transcript import Ref

Outcome = Literal["taken", "not taken", "protected"]


class Traced(Struct, frozen=True, gc=False, kw_only=True):
    """One offer at one boundary, or one exchange that a protection kept whole there."""

    boundary: int  # how many messages had come
    arrival: bool  # on what had just come, before it was sent
    outcome: Outcome
    ref: Ref  # the place
    reason: str  # the edit's, or the protection
    by: str = ""  # the pass that made the offer
    level: Level | None = None
    evidence: str = ""
    saved: int = 0


def traced(
    made: Iterable[tuple[str, Offer]], taken: Sequence[Offer], view: View, boundary: int
) -> list[Traced]:
    """What passes offered at a boundary, in their order, then what they asked for in vain."""
    chosen = {id(offer) for offer in taken}
    offers = [
        Traced(
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
        for name, offer in made
    ]
    return [*offers, *_kept(view, boundary)]


def _kept(view: View, boundary: int) -> list[Traced]:
    pins = view.pinned
    if not isinstance(pins, Protections):
        return []
    history = view.transcript
    for position in view.kept_results():
        pins.why(position)  # what is kept for its age, passes need not ask about
    return [
        Traced(
            boundary=boundary,
            arrival=view.arrival,
            outcome="protected",
            ref=history.parts[history.exchanges[ordinal].call].ref,
            reason=why,
        )
        for ordinal, why in sorted(pins.asked().items())
    ]
