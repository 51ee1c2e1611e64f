"""What an exchange did and how it ended, as far as later ones tell: what stubs and folds say."""

from __future__ import annotations

from typing import Final

from ..summaries.deeds import Deed, deed_of
from ..summaries.outcomes import ending_of
from ..tools.use import Use
from ..transcript import Exchange
from .view import View

_MOST_TRIES: Final = 12  # later calls of the same that are looked at for one that succeeded


def told_deed(view: View, exchange: Exchange, why: str = "") -> Deed | None:
    """The facts of an exchange; a failure also by whether the same succeeded since."""
    if exchange.result is None:
        return None
    parts = view.transcript.parts
    use, result = view.use(exchange.ordinal), parts[exchange.result]
    deed = deed_of(parts[exchange.call], use, result, why=why)
    if deed.outcome.failed and succeeded_since(view, exchange, use):
        return deed_of(parts[exchange.call], use, result, why=why, resolved=True)
    return deed


def succeeded_since(view: View, exchange: Exchange, use: Use) -> bool:
    """Whether the same operation on the same target ended well after this exchange."""
    outcomes = view.ledger.outcomes(use, view.seen_exchanges())
    for outcome in reversed(outcomes[-_MOST_TRIES:]):
        if outcome.ordinal <= exchange.ordinal:
            return False
        if not outcome.failed and _ended_well(view, outcome.ordinal, use):
            return True
    return False


def _ended_well(view: View, ordinal: int, use: Use) -> bool:
    """Whether a call ended well; of one with a pipe its last command alone would tell."""
    later = view.transcript.exchanges[ordinal]
    parts = view.transcript.parts
    piped = "|" in parts[later.call].text and view.use(ordinal).key != use.key
    if later.result is None or piped:
        return False
    result = parts[later.result]
    return not ending_of(result.text, result.error, use.outcome_kind).failed
