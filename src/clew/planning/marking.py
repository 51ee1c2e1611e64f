"""The cache marks of a request: how its client sets them, and where one of our own stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..check.anthropic_request import (
    MOST_MARKS,
    is_automatic,
    is_long,
    marks_of_head,
    marks_of_message,
)
from ..codecs.body import Body
from ..codecs.json_tree import Object
from ..edits import PlaceMark
from ..transcript import History
from .rates import HOUR, MINUTES, Marking

_FAR = 20  # messages: from a mark that far behind the last one, that would not be found
_CARRIERS = ("text", "call", "result")  # the parts whose blocks can be marked


def marking_of(body: Body, format: str) -> Marking:
    """How a client marks the history of a request; only Anthropic's are looked at.

    A mark that stays where it is has all that comes behind it cached nowhere.
    """
    if format != "anthropic":
        return Marking()
    fields = body.fields or {}
    marked = [(at, mark) for at in body.marked() for _, mark in marks_of_message(body.message(at))]
    automatic = is_automatic(fields)
    newest = max((at for at, _ in marked), default=-_FAR)
    if len(body) - newest > _FAR and not automatic:
        return Marking()
    asked: list[Object] = [*(mark for _, mark in marked), *_automatic_mark(fields)]
    lifetime = HOUR if any(map(is_long, asked)) else MINUTES
    count = len(marks_of_head(fields)) + len(marked) + automatic
    return Marking(lifetime, room=count < MOST_MARKS)


def _automatic_mark(fields: Mapping[str, Any]) -> Iterator[Object]:
    mark = fields.get("cache_control")
    if isinstance(mark, dict):
        yield mark


def own_mark(
    body: Body, history: History, sources: Sequence[int | None], cut: int,
    is_gone: Callable[[int], bool],
) -> PlaceMark | None:  # fmt: skip
    """The mark on the last block before a cut, like the client's mark that follows it.

    Whoever reads the prefix before the cut the next time finds it there, however far behind the
    client's own mark it has come to stand.
    """
    for position in range(cut - 1, -1, -1):
        part = history.parts[position]
        if part.kind in _CARRIERS and part.text.strip() and not is_gone(position):
            source = sources[part.ref.row]
            mark = None if source is None else _next_mark(body, source)
            if mark is None:
                return None
            return PlaceMark(position, part.ref, dict(mark), "cut", "the prefix before an epoch")
    return None


def _next_mark(body: Body, source: int) -> Object | None:
    """The first of the client's marks behind a message; None if it carries one itself, or none.

    A mark that the provider is asked to place stands behind all of them.
    """
    for at in body.marked():
        if at < source:
            continue
        marks = marks_of_message(body.message(at))
        if marks:
            return None if at == source else marks[0][1]
    return next(_automatic_mark(body.fields or {}), None)
