"""Which parts an edit changes or takes out, and all that must go along."""

from __future__ import annotations

from typing import assert_never

from .edits import Advise, DropExchange, DropReasoning, Edit, PlaceMark, Replace
from .transcript import History


def touched(edit: Edit, transcript: History) -> tuple[int, ...]:
    """The parts that an edit changes or takes out, the one it is known by first."""
    match edit:
        case Replace() | PlaceMark() | Advise():
            return (edit.part,)
        case DropReasoning():
            return transcript.units[edit.unit].reasoning
        case DropExchange():
            return closure(transcript, edit.exchange)
        case _:
            assert_never(edit)


def rows_of(edit: Edit, transcript: History) -> set[int]:
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


def closure(transcript: History, exchange: int) -> tuple[int, ...]:
    """All parts that go when this exchange goes: the call, its result, what is bound to them."""
    unit = transcript.units[transcript.exchanges[exchange].unit]
    together = unit.exchanges if unit.locked else (exchange,)
    parts: list[int] = []
    for ordinal in (exchange, *(other for other in together if other != exchange)):
        pair = transcript.exchanges[ordinal]
        parts.append(pair.call)
        if pair.result is not None:
            parts += with_media(transcript, pair.result)
    return (*parts, *unit.reasoning)


def with_media(transcript: History, result: int) -> list[int]:
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
