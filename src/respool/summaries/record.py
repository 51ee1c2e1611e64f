"""What a summary stands for, whole: every call with its result, in order, to be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ..touching import with_media
from ..transcript import Exchange, History, Unit


class Attached(Protocol):
    """An image or a file that has an original of its own."""

    @property
    def unit(self) -> str:
        """What it is."""
        ...

    @property
    def ref(self) -> str:
        """The reference of its original."""
        ...


def record(
    history: History, ordinals: Sequence[int], held: Mapping[int, Attached]
) -> Iterator[str]:
    """The text of these exchanges, piece by piece, and where images in them are kept.

    The last one stays, for the summary stands in it; so do its images and its unit's reasoning.
    """
    exchanges, units = history.exchanges, history.units
    last, unit = exchanges[ordinals[-1]], -1
    for number, ordinal in enumerate(ordinals, 1):
        exchange = exchanges[ordinal]
        yield f"=== {number:,} of {len(ordinals):,}: {_name(history, exchange)}\n"
        if exchange.unit not in (unit, last.unit):
            for position in units[exchange.unit].reasoning:
                yield from _told(history, position, held)
        unit = exchange.unit
        yield f"{history.parts[exchange.call].text}\n"
        stays = exchange is last or (unit == last.unit and stays_beside(units[unit]))
        for position in _answer(history, exchange, media=not stays):
            yield from _told(history, position, held)


def stays_beside(unit: Unit) -> bool:
    """Whether the other exchanges of a unit must stay when one of them does."""
    return unit.locked or bool(unit.reasoning)


def _answer(history: History, exchange: Exchange, *, media: bool) -> list[int]:
    """The result of an exchange, and what it holds beside its text."""
    if exchange.result is None:
        return []
    return with_media(history, exchange.result) if media else [exchange.result]


def _name(history: History, exchange: Exchange) -> str:
    call = history.parts[exchange.call]
    return " ".join(f"{call.name or 'unnamed'} {call.id}".split())


def _told(history: History, position: int, held: Mapping[int, Attached]) -> Iterator[str]:
    part, attached = history.parts[position], held.get(position)
    if attached is not None:
        yield f"--- {attached.unit}; ref {attached.ref}\n"
    elif part.text or part.kind == "result":
        yield f"--- {part.kind}{', failed' if part.error else ''}\n"
        yield part.text
        yield "\n"
