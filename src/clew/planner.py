"""Which offers are taken, and when: for now all of them, at every evaluation."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from .edits import DropExchange, DropReasoning, Edit, Offer, PlaceMark, Replace
from .transcript import Index, Transcript


def choose(
    offers: Iterable[Offer], claimed: Collection[int], transcript: Transcript
) -> list[Edit]:
    """The edits to add: of several for one part, the one that saves most.

    Edits in force stay; `claimed` are the parts that they touch. An offer that leans on a part is taken only while that part stays whole.
    """
    best: dict[int, Offer] = {}
    for offer in offers:
        position = touched(offer.edit, transcript)[0]
        rival = best.get(position)
        if rival is None or offer.edit.saved > rival.edit.saved:
            best[position] = offer
    taken: list[Edit] = []
    new: set[int] = set()
    leaned_on: set[int] = set()
    for _, offer in sorted(best.items()):
        parts = touched(offer.edit, transcript)
        if any(part in claimed or part in new or part in leaned_on for part in parts):
            continue
        if any(part in claimed or part in new for part in offer.leans_on):
            continue
        taken.append(offer.edit)
        new.update(parts)
        leaned_on.update(offer.leans_on)
    return taken


def touched(edit: Edit, transcript: Transcript | Index) -> tuple[int, ...]:
    """The parts that an edit changes or takes out; an exchange takes its bound reasoning along."""
    if isinstance(edit, Replace | PlaceMark):
        return (edit.part,)
    if isinstance(edit, DropReasoning):
        return transcript.units[edit.unit].reasoning or (0,)
    assert isinstance(edit, DropExchange)
    return closure(transcript, edit.exchange)


def closure(transcript: Transcript | Index, exchange: int) -> tuple[int, ...]:
    """All parts that go when this exchange goes, the call first."""
    unit = transcript.units[transcript.exchanges[exchange].unit]
    gone = unit.exchanges if unit.locked else (exchange,)
    parts: list[int] = []
    for ordinal in (exchange, *(o for o in gone if o != exchange)):
        pair = transcript.exchanges[ordinal]
        parts.append(pair.call)
        if pair.result is not None:
            parts.append(pair.result)
    return (*parts, *unit.reasoning)
