"""The circles that a session ran: what they cost, and how early they would have been told."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from ..loops import Circle, circles_in
from ..loops.reading import read_history
from ..loops.words import named
from ..tools import Tools
from ..transcript import Exchange, Index
from .recording import Recording
from .result import Circled, Circles, SessionResult

_TOOLS = Tools()  # it remembers what it has told of a call


def circled(recording: Recording, token_costs: Sequence[float]) -> tuple[Circled, ...]:
    """A session's circles; `paid` is what a token of each block was charged, the head first."""
    messages = recording.session.messages
    history, ledger = read_history(recording.codec, messages, _TOOLS, {})
    circles = circles_in(history, ledger)
    if not circles:
        return ()
    numbers = list(_blocks(recording, history))
    tokens = [block.tokens for block in chain.from_iterable(row.blocks for row in recording.rows)]
    told: list[Circled] = []
    for one in circles:
        again = {number for at in _places(history, one.repeated) for number in (numbers[at],)}
        cost = sum(tokens[number] * token_costs[number + 1] for number in again)
        told.append(_told(recording, history, one, sum(tokens[n] for n in again), cost))
    return tuple(told)


def _told(recording: Recording, history: Index, one: Circle, tokens: int, cost: float) -> Circled:
    result = history.exchanges[one.advised[0]].result or 0
    row = history.parts[result].ref.row
    return Circled(
        kind=one.kind,
        what=named(one.tool, one.operation, one.target),
        calls=len(one.calls),
        again=len(one.repeated),
        tokens=tokens,
        cost=round(cost, 1),
        told_after=one.advised_after,
        request=bisect_left(recording.cuts, row + 1),
        level=one.level,
        message=one.message,
    )


def _places(history: Index, ordinals: Iterable[int]) -> Iterator[int]:
    """Where the calls and results of these exchanges stand."""
    exchanges: Iterator[Exchange] = (history.exchanges[ordinal] for ordinal in ordinals)
    return (at for one in exchanges for at in (one.call, one.result) if at is not None)


def _blocks(recording: Recording, history: Index) -> Iterator[int]:
    """For each part the number of its block; only Anthropic has several parts in one."""
    number, last = -1, None
    for at, part in enumerate(history.parts):
        within = part.ref.path[:2] if recording.codec.name == "anthropic" else at
        number += (part.ref.row, within) != last
        last = part.ref.row, within
        yield number


def circles_of(sessions: Sequence[SessionResult]) -> Circles:
    """The circles of all sessions together."""
    found = [one for session in sessions for one in session.circles]
    return Circles(
        count=len(found),
        sessions=sum(bool(session.circles) for session in sessions),
        calls=sum(one.calls for one in found),
        again=sum(one.again for one in found),
        tokens=sum(one.tokens for one in found),
        cost=round(sum(one.cost for one in found), 1),
        told_after=sum(one.told_after for one in found),
    )
