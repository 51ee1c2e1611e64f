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

_MAX_DISTANCE = 20  # messages from a breakpoint to the end, beyond which it is not found
_CARRIER_KINDS = ("text", "call", "result")  # the parts whose blocks can carry a breakpoint


def client_breakpoints(body: RequestBody, format: str) -> BreakpointUsage:
    """The client's use of cache breakpoints in the history of a request.

    A breakpoint far behind the last message counts as none: nothing after it is cached.
    """
    breakpoints = _history_breakpoints(body, format)
    return (
        _summarize(body, breakpoints)
        if breakpoints and not _is_far(body, breakpoints)
        else BreakpointUsage()
    )


def client_breakpoints_so_far(
    body: RequestBody, format: str, fields: Mapping[str, Any] | None
) -> BreakpointUsage:
    """The client's use of cache breakpoints in this and earlier requests, for lack of a fact.

    A client that sets breakpoints on user messages is far from its last one at times. Decisions
    must not change with that: the cached prefix would be written again, and reasoning signed for
    what was sent would be rejected. Only before all model output is there nothing worth caching.
    """
    breakpoints = _history_breakpoints(body, format)
    if breakpoints and _is_far(body, breakpoints) and _is_before_answers(body, format, breakpoints):
        return (
            _summarize(body, breakpoints)
            if binding_of(format, fields).is_bound
            else BreakpointUsage()
        )
    return _summarize(body, breakpoints) if breakpoints else BreakpointUsage()


def _history_breakpoints(body: RequestBody, format: str) -> list[tuple[int, Object]]:
    """The breakpoints of a history, each with its row; an automatic one is in the last."""
    if not wire_format(format).has_client_breakpoints:
        return []
    own = [
        (at, breakpoint)
        for at in body.breakpoint_rows()
        for _, breakpoint in message_breakpoints(body.message(at))
    ]
    return [
        *own,
        *((len(body) - 1, breakpoint) for breakpoint in _automatic_breakpoint(body.fields or {})),
    ]


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
        LONG_TTL_SECONDS
        if any(is_one_hour(breakpoint) for _, breakpoint in breakpoints)
        else SHORT_TTL_SECONDS
    )
    count = len(head_breakpoints(body.fields or {})) + len(breakpoints)
    return BreakpointUsage(lifetime, has_spare=count < MAX_BREAKPOINTS)


def _automatic_breakpoint(fields: Mapping[str, Any]) -> Iterator[Object]:
    breakpoint = fields.get("cache_control")
    if isinstance(breakpoint, dict):
        yield breakpoint


def own_breakpoint(
    body: RequestBody,
    history: ReadOnlyTranscript,
    *,
    sources: Sequence[int | None],
    cut: int,
    is_gone: Callable[[int], bool],
) -> PlaceBreakpoint | None:
    """A breakpoint on the last block before a cut, like the client's next breakpoint.

    The next request finds the prefix before the cut there, however far back the client's own
    breakpoint is.
    """
    for position in range(cut - 1, -1, -1):
        part = history.parts[position]
        if part.kind in _CARRIER_KINDS and part.text.strip() and not is_gone(position):
            source = sources[part.ref.row]
            breakpoint = None if source is None else _next_breakpoint(body, source)
            if breakpoint is None:
                return None
            return PlaceBreakpoint(
                position,
                part.ref,
                control=dict(breakpoint),
                reason="cut",
                evidence="the prefix before an epoch",
            )
    return None


def _next_breakpoint(body: RequestBody, source: int) -> Object | None:
    """The client's first breakpoint after a message; None if it carries one itself.

    An automatic breakpoint comes after all others.
    """
    for at in body.breakpoint_rows():
        if at < source:
            continue
        breakpoints = message_breakpoints(body.message(at))
        if breakpoints:
            return None if at == source else breakpoints[0][1]
    return next(_automatic_breakpoint(body.fields or {}), None)
