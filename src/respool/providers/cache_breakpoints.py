"""Cache breakpoints of a request: the client's, and the one respool places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..edits import PlaceBreakpoint
from ..pricing import LONG_TTL_SECONDS, SHORT_TTL_SECONDS, BreakpointUsage
from ..transcript import ReadOnlyTranscript
from ..wire.base import RequestBody, wire_format
from ..wire.json import Object
from .anthropic.request_rules import (
    MAX_BREAKPOINTS,
    head_breakpoints,
    is_one_hour,
    message_breakpoints,
)
from .bound_reasoning import binding_of
from .registry import PROVIDERS

_MAX_DISTANCE = 20  # messages: from a mark that far behind the last one, that would not be found
_CARRIER_KINDS = ("text", "call", "result")  # the parts whose blocks can be marked


def client_breakpoints(body: RequestBody, format: str) -> BreakpointUsage:
    """How a client marks the history of a request; only Anthropic's are looked at.

    A mark that stays where it is has all that comes behind it cached nowhere.
    """
    marks = _history_breakpoints(body, format)
    return _summarize(body, marks) if marks and not _is_far(body, marks) else BreakpointUsage()


def client_breakpoints_so_far(
    body: RequestBody, format: str, fields: Mapping[str, Any] | None
) -> BreakpointUsage:
    """How it marked earlier requests, too, as far as this one tells: for want of a fact.

    A client that marks what its user says comes far away from its mark, and near again with the
    next word. What was decided must not turn with that: all that is cached up to the mark would
    be written again, and reasoning that is signed for what was sent would be rejected. Only a mark
    in front of all answers has nothing worth the name cached up to it.
    """
    marks = _history_breakpoints(body, format)
    if marks and _is_far(body, marks) and _is_before_answers(body, format, marks):
        return _summarize(body, marks) if binding_of(format, fields).is_bound else BreakpointUsage()
    return _summarize(body, marks) if marks else BreakpointUsage()


def _history_breakpoints(body: RequestBody, format: str) -> list[tuple[int, Object]]:
    """The marks of a history, each with its message; what the provider places is in the last."""
    if not wire_format(format).has_client_breakpoints:
        return []
    own = [
        (at, mark)
        for at in body.breakpoint_rows()
        for _, mark in message_breakpoints(body.message(at))
    ]
    return [*own, *((len(body) - 1, mark) for mark in _automatic_breakpoint(body.fields or {}))]


def _is_far(body: RequestBody, breakpoints: Sequence[tuple[int, Object]]) -> bool:
    return len(body) - breakpoints[-1][0] > _MAX_DISTANCE


def _is_before_answers(
    body: RequestBody, format: str, breakpoints: Sequence[tuple[int, Object]]
) -> bool:
    codec = PROVIDERS[format].codec
    before = range(breakpoints[-1][0] + 1)
    return not any(codec.is_model_made(body.message(at)) for at in before)


def _summarize(body: RequestBody, breakpoints: Sequence[tuple[int, Object]]) -> BreakpointUsage:
    lifetime = (
        LONG_TTL_SECONDS if any(is_one_hour(mark) for _, mark in breakpoints) else SHORT_TTL_SECONDS
    )
    count = len(head_breakpoints(body.fields or {})) + len(breakpoints)
    return BreakpointUsage(lifetime, has_spare=count < MAX_BREAKPOINTS)


def _automatic_breakpoint(fields: Mapping[str, Any]) -> Iterator[Object]:
    mark = fields.get("cache_control")
    if isinstance(mark, dict):
        yield mark


def own_breakpoint(
    body: RequestBody,
    history: ReadOnlyTranscript,
    sources: Sequence[int | None],
    cut: int,
    is_gone: Callable[[int], bool],
) -> PlaceBreakpoint | None:
    """The mark on the last block before a cut, like the client's mark that follows it.

    Whoever reads the prefix before the cut the next time finds it there, however far behind the
    client's own mark it has come to stand.
    """
    for position in range(cut - 1, -1, -1):
        part = history.parts[position]
        if part.kind in _CARRIER_KINDS and part.text.strip() and not is_gone(position):
            source = sources[part.ref.row]
            mark = None if source is None else _next_breakpoint(body, source)
            if mark is None:
                return None
            return PlaceBreakpoint(
                position, part.ref, dict(mark), "cut", "the prefix before an epoch"
            )
    return None


def _next_breakpoint(body: RequestBody, source: int) -> Object | None:
    """The first of the client's marks behind a message; None if it carries one itself, or none.

    A mark that the provider is asked to place stands behind all of them.
    """
    for at in body.breakpoint_rows():
        if at < source:
            continue
        marks = message_breakpoints(body.message(at))
        if marks:
            return None if at == source else marks[0][1]
    return next(_automatic_breakpoint(body.fields or {}), None)
