"""Analysis of new calls: the ledger, mentions, and results fetched again."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from ..forecast.mentions import Mentions
from ..history.ledger import Ledger
from ..history.refetches import Refetch, RepeatedRequest, VisibleHistory, find_repeated_request
from ..passes.keep_lines import keep_lines
from ..tokens import part_tokens
from .context import Context
from .state import State


def update_ledger(state: State, context: Context) -> None:
    """Add the new calls to the ledger; on a fork, add all calls to a new one."""
    exchanges, parts = state.transcript.exchanges, state.transcript.parts
    tools, definitions = context.policy.tools, context.request.definitions
    analysis = state.analysis
    first = analysis.ledger_exchanges
    if not analysis.ledger.extend(
        first, exchanges=exchanges[first:], parts=parts, tools=tools, definitions=definitions
    ):
        analysis.ledger = Ledger()
        analysis.ledger.extend(
            0, exchanges=exchanges, parts=parts, tools=tools, definitions=definitions
        )
    analysis.ledger_exchanges = len(exchanges)


def record_refetches(state: State, context: Context, first: int) -> None:
    """Record the calls, from this exchange on, that asked again for an earlier result."""
    edits, refetches = state.edits, state.refetches
    seen = VisibleHistory(
        state.transcript, state.analysis.ledger, edits.by_part, edits.claimed, edits.dependencies
    )
    for ordinal in range(first, len(state.transcript.exchanges)):
        again = find_repeated_request(seen, ordinal)
        if again is None:
            continue
        if again.cut is None:
            refetches.repeated_requests += 1
        else:
            refetches.found.append(_describe_refetch(state, context, again, again.cut))
            refetches.pins |= {ordinal}


def _describe_refetch(
    state: State, context: Context, again: RepeatedRequest, reason: str
) -> Refetch:
    index, use = state.transcript, state.analysis.ledger.uses[again.exchange]
    exchange, earlier = (index.exchanges[one] for one in (again.exchange, again.earlier))
    assert exchange.result is not None
    assert earlier.result is not None
    call = index.parts[exchange.call]
    result = index.parts[exchange.result]
    return Refetch(
        ref=result.ref,
        earlier=index.parts[earlier.result].ref,
        tool=call.name,
        target=use.target or (use.reads[0].path if use.reads else ""),
        reason=reason,
        exchange=again.exchange,
        earlier_exchange=again.earlier,
        tokens=sum(part_tokens(part, context.counter) for part in (call, result)),
    )


@contextmanager
def updated_mentions(state: State, context: Context) -> Generator[None]:
    """Add new units to the index of mentions; on a fork, add all units to a new one.

    The index stays locked inside: no other thread may add to it while an evaluation reads it.
    """
    if context.policy.eager and keep_lines not in context.passes:
        yield  # no pass reads it
        return
    analysis, units, parts = state.analysis, state.transcript.units, state.transcript.parts
    first, analysis.mentioned_units = analysis.mentioned_units, len(units)
    with analysis.mentions.lock:
        if analysis.mentions.extend(units, parts, first):
            yield
            return
    analysis.mentions = Mentions()
    with analysis.mentions.lock:
        analysis.mentions.extend(units, parts, 0)
        yield
