"""Which offers are taken, and when: for now all of them, at every evaluation."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import assert_never

from .edits import DropExchange, DropReasoning, Edit, Offer, PlaceMark, Replace
from .transcript import Index, Transcript


def choose(
    offers: Iterable[Offer], claimed: Collection[int], whole: Collection[int],
    transcript: Transcript,
) -> list[Offer]:  # fmt: skip
    """The offers to take: of several for one part, the one that saves most.

    Edits in force stay: `claimed` are the parts that they touch, `whole` those that they lean on.
    An offer that leans on a part is taken only while that part stays whole.
    """
    taken: list[Offer] = []
    new: set[int] = set()
    leaned_on: set[int] = set()
    for parts, offer in _in_order(offers, transcript):
        if any(p in claimed or p in new or p in whole or p in leaned_on for p in parts):
            continue
        if any(p in claimed or p in new or p in parts for p in offer.leans_on):
            continue
        taken.append(offer)
        new.update(parts)
        leaned_on.update(offer.leans_on)
    return taken


def _in_order(
    offers: Iterable[Offer], transcript: Transcript
) -> list[tuple[tuple[int, ...], Offer]]:
    """The offers with the parts they touch, by the part they are known by, the best one first."""
    found = [(parts, offer) for offer in offers if (parts := touched(offer.edit, transcript))]
    return sorted(found, key=lambda one: (one[0][0], -one[1].edit.saved))


def touched(edit: Edit, transcript: Transcript | Index) -> tuple[int, ...]:
    """The parts that an edit changes or takes out, the one it is known by first."""
    match edit:
        case Replace() | PlaceMark():
            return (edit.part,)
        case DropReasoning():
            return transcript.units[edit.unit].reasoning
        case DropExchange():
            return closure(transcript, edit.exchange)
        case _:
            assert_never(edit)


def rows_of(edit: Edit, transcript: Transcript | Index) -> set[int]:
    """The rows that an edit can change: a removal may unbind all that its unit's model wrote."""
    rows = {transcript.parts[part].ref.row for part in touched(edit, transcript)}
    if isinstance(edit, DropExchange | DropReasoning):
        unit = transcript.units[
            edit.unit
            if isinstance(edit, DropReasoning)
            else transcript.exchanges[edit.exchange].unit
        ]
        rows.update(range(*unit.rows))
    return rows


def closure(transcript: Transcript | Index, exchange: int) -> tuple[int, ...]:
    """All parts that go when this exchange goes: the call, its result, what is bound to them."""
    unit = transcript.units[transcript.exchanges[exchange].unit]
    together = unit.exchanges if unit.locked else (exchange,)
    parts: list[int] = []
    for ordinal in (exchange, *(other for other in together if other != exchange)):
        pair = transcript.exchanges[ordinal]
        parts.append(pair.call)
        if pair.result is not None:
            parts += _with_media(transcript, pair.result)
    return (*parts, *unit.reasoning)


def _with_media(transcript: Transcript | Index, result: int) -> list[int]:
    """A result and the images and documents inside it."""
    ref = transcript.parts[result].ref
    depth = len(ref.path)
    found = [result]
    for position in range(result + 1, len(transcript.parts)):
        inner = transcript.parts[position].ref
        if inner.row != ref.row or inner.path[:depth] != ref.path:
            break
        found.append(position)
    return found
