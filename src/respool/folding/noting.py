"""What a fold notes before passes look at it: what new calls did, asked for again, and said."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from ..forecast.mentions import Mentions
from ..ledger.ledger import Ledger
from ..passes.keep_lines import keep_lines
from ..tokens import part_tokens
from .refetching import Again, Refetched, Standing, asked_again
from .state import Setting, State


def note_uses(state: State, setting: Setting) -> None:
    """Write what the new calls did into the ledger; on a fork, all of them into a new one."""
    exchanges, parts, tools = state.index.exchanges, state.index.parts, setting.policy.tools
    new = exchanges[state.ledger_exchanges :]
    if not state.ledger.extend(state.ledger_exchanges, new, parts, tools, setting.definitions):
        state.ledger = Ledger()
        state.ledger.extend(0, exchanges, parts, tools, setting.definitions)
    state.ledger_exchanges = len(exchanges)


def note_refetched(state: State, setting: Setting, first: int) -> None:
    """Note which calls, from this one on, asked again for what earlier ones had brought."""
    seen = Standing(state.index, state.ledger, state.edits, state.claimed, state.leans)
    for ordinal in range(first, len(state.index.exchanges)):
        again = asked_again(seen, ordinal)
        if again is None:
            continue
        if again.cut is None:
            state.repeated_requests += 1
        else:
            state.refetched.append(_refetched(state, setting, again, again.cut))
            state.refetch_pins |= {ordinal}


def _refetched(state: State, setting: Setting, again: Again, reason: str) -> Refetched:
    index, use = state.index, state.ledger.uses[again.exchange]
    exchange, earlier = (index.exchanges[one] for one in (again.exchange, again.earlier))
    assert exchange.result is not None
    assert earlier.result is not None
    call = index.parts[exchange.call]
    asked = (call, index.parts[exchange.result])
    return Refetched(
        ref=index.parts[exchange.result].ref,
        earlier=index.parts[earlier.result].ref,
        tool=call.name,
        target=use.target or (use.reads[0].path if use.reads else ""),
        reason=reason,
        exchange=again.exchange,
        earlier_exchange=again.earlier,
        tokens=sum(part_tokens(part, setting.counter) for part in asked),
    )


@contextmanager
def words_noted(state: State, setting: Setting) -> Generator[None]:
    """Note where the words of new units stand; on a fork, all of them in a new index.

    As long as this is open, nobody else notes more in the same index: what is decided by it must
    not depend on who comes first.
    """
    if setting.policy.eager and keep_lines not in setting.passes:
        yield  # nobody asks for them
        return
    units, parts, first = state.index.units, state.index.parts, state.mentioned_units
    state.mentioned_units = len(units)
    with state.mentions.lock:
        if state.mentions.extend(units, parts, first):
            yield
            return
    state.mentions = Mentions()
    with state.mentions.lock:
        state.mentions.extend(units, parts, 0)
        yield
