"""Every offer that passes made, taken at once, later or not, and what they were kept from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from ..edits import Edit, Level, Offer
from ..passes.view import View
from ..protections import Protections
from ..transcript import Ref

Outcome = Literal["taken", "not taken", "taken back", "protected"]


class Traced(Struct, frozen=True, gc=False, kw_only=True):
    """One offer at one boundary, one edit given up there, or one exchange that was protected."""

    boundary: int  # how many messages had come
    arrival: bool  # on what had just come, before it was sent
    outcome: Outcome
    ref: Ref  # the place
    reason: str  # the edit's, or the protection
    by: str = ""  # the pass that made the offer
    level: Level | None = None
    evidence: str = ""
    saved: int = 0


class Decided(Struct, frozen=True):
    """What came of the offers at one boundary."""

    made: Sequence[tuple[str, Offer]]  # by the name of the pass, in their order
    taken: Sequence[Offer]
    waited: Mapping[tuple[str, int], Sequence[Offer]] = {}  # since earlier boundaries
    withdrawn: Sequence[Edit] = ()  # that were in force: their parts say again what they said


def note(trace: list[Traced] | None, decided: Decided, view: View, boundary: int) -> None:
    """Add what was decided at a boundary to a trace, where someone wants to know."""
    if trace is not None:
        trace += _traced(decided, view, boundary)


def _traced(decided: Decided, view: View, boundary: int) -> list[Traced]:
    """What passes offered and what was taken, also of what had waited; then what was kept."""
    chosen = {id(offer) for offer in decided.taken}
    new = {id(offer) for _, offer in decided.made}
    waited = [(name, one) for (name, _), offers in decided.waited.items() for one in offers]
    late = [(name, one) for name, one in waited if id(one) in chosen - new]
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
        for name, offer in (*decided.made, *late)
    ]
    return [*offers, *_given_up(decided.withdrawn, boundary), *_kept(view, boundary)]


def _given_up(edits: Iterable[Edit], boundary: int) -> list[Traced]:
    return [
        Traced(
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


def _kept(view: View, boundary: int) -> list[Traced]:
    pins = view.pinned
    if not isinstance(pins, Protections):
        return []
    history = view.transcript
    for position in view.recent_results():
        pins.reason_for(position)  # what is kept for its age, passes need not ask about
    return [
        Traced(
            boundary=boundary,
            arrival=view.arrival,
            outcome="protected",
            ref=history.parts[history.exchanges[ordinal].call].ref,
            reason=why,
        )
        for ordinal, why in sorted(pins.judged().items())
    ]
