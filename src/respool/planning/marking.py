"""The cache marks of a request: how its client sets them, and where one of our own stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..binding import binding_of
from ..check.anthropic_request import (
    MOST_MARKS,
    is_long,
    marks_of_head,
    marks_of_message,
)
from ..codecs.body import Body
from ..codecs.formats import CODECS
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
    marks = _marks_in(body, format)
    return _marking(body, marks) if marks and not _are_far(body, marks) else Marking()


def marking_all_along(body: Body, format: str, fields: Mapping[str, Any] | None) -> Marking:
    """How it marked earlier requests, too, as far as this one tells: for want of a fact.

    A client that marks what its user says comes far away from its mark, and near again with the
    next word. What was decided must not turn with that: all that is cached up to the mark would
    be written again, and reasoning that is signed for what was sent would be rejected. Only a mark
    in front of all answers has nothing worth the name cached up to it.
    """
    marks = _marks_in(body, format)
    if marks and _are_far(body, marks) and _precede_answers(body, marks):
        return _marking(body, marks) if binding_of(format, fields).is_bound else Marking()
    return _marking(body, marks) if marks else Marking()


def _marks_in(body: Body, format: str) -> list[tuple[int, Object]]:
    """The marks of a history, each with its message; what the provider places is in the last."""
    if format != "anthropic":
        return []
    own = [(at, mark) for at in body.breakpoint_rows() for _, mark in marks_of_message(body.message(at))]
    return [*own, *((len(body) - 1, mark) for mark in _automatic_mark(body.fields or {}))]


def _are_far(body: Body, breakpoints: Sequence[tuple[int, Object]]) -> bool:
    return len(body) - breakpoints[-1][0] > _FAR


def _precede_answers(body: Body, breakpoints: Sequence[tuple[int, Object]]) -> bool:
    before = range(breakpoints[-1][0] + 1)
    return not any(CODECS["anthropic"].is_model_made(body.message(at)) for at in before)


def _marking(body: Body, breakpoints: Sequence[tuple[int, Object]]) -> Marking:
    lifetime = HOUR if any(is_long(mark) for _, mark in breakpoints) else MINUTES
    count = len(marks_of_head(body.fields or {})) + len(breakpoints)
    return Marking(lifetime, has_spare=count < MOST_MARKS)


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
    for at in body.breakpoint_rows():
        if at < source:
            continue
        marks = marks_of_message(body.message(at))
        if marks:
            return None if at == source else marks[0][1]
    return next(_automatic_mark(body.fields or {}), None)
