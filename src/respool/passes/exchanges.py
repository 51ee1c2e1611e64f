"""Queries on exchanges that passes share: intact copies, call labels, outcomes."""

from __future__ import annotations

from typing import Final

from ..edits import TIDIED
from ..markers import find_marker
from ..policy import Policy
from ..summaries.call_summary import CallSummary, summarize_call
from ..summaries.outcome import parse_outcome
from ..tools.use import Use
from ..transcript import Exchange
from .base import View


def is_intact(view: View, policy: Policy, position: int) -> bool:
    """Return whether a result is whole in the projection and no cap will shorten it."""
    part = view.transcript.parts[position]
    if part.server or not _is_whole_or_tidied(view, position):
        return False
    cap = policy.tools.cap_for(view.tool_of(position), policy.cap_chars)
    over = cap is not None and len(part.text) > cap  # it will be clipped
    return not over and find_marker(part.text) is None


def _is_whole_or_tidied(view: View, position: int) -> bool:
    if view.is_whole(position):
        return True
    edit = view.in_force.get(position)
    return edit is not None and edit.reason == TIDIED


def call_label(view: View, ordinal: int, beside: int) -> str:
    """The name of a call in a marker of another exchange: its id, if that is unique.

    Some wires have no ids, and on some the same id may come again.
    """
    transcript = view.transcript
    call, other = (transcript.parts[transcript.exchanges[one].call] for one in (ordinal, beside))
    if call.id and call.id != other.id:
        return f"call {call.id}"
    return f"call no. {ordinal + 1}"


_MAX_LATER_CALLS: Final = 12  # later calls of the same that are checked for a success


def deed_in_view(view: View, exchange: Exchange, why: str = "") -> CallSummary | None:
    """The facts of an exchange; a failure also by whether the same succeeded since."""
    if exchange.result is None:
        return None
    parts = view.transcript.parts
    use, result = view.use(exchange.ordinal), parts[exchange.result]
    deed = summarize_call(parts[exchange.call], use, result, why=why)
    if deed.outcome.failed and has_succeeded_since(view, exchange, use):
        return summarize_call(parts[exchange.call], use, result, why=why, resolved=True)
    return deed


def has_succeeded_since(view: View, exchange: Exchange, use: Use) -> bool:
    """Return whether the same operation on the same target ended well after this exchange."""
    outcomes = view.ledger.outcomes(use, view.seen_exchanges())
    for outcome in reversed(outcomes[-_MAX_LATER_CALLS:]):
        if outcome.ordinal <= exchange.ordinal:
            return False
        if not outcome.failed and _has_ended_well(view, outcome.ordinal, use):
            return True
    return False


def _has_ended_well(view: View, ordinal: int, use: Use) -> bool:
    """Return whether a call succeeded; the exit of a pipe shows only its last command."""
    later = view.transcript.exchanges[ordinal]
    parts = view.transcript.parts
    piped = "|" in parts[later.call].text and view.use(ordinal).key != use.key
    if later.result is None or piped:
        return False
    result = parts[later.result]
    return not parse_outcome(result.text, result.error, use.outcome_kind).failed
