"""Circles: calls that were made before, to the same end."""

from __future__ import annotations

from collections.abc import Mapping

from .ledger import Ledger
from .transcript import History

_IN_A_ROW = 3


def advice(history: History, ledger: Ledger, unseen_from: int) -> Mapping[int, str]:
    """What to say at the end of results that just came, by the position of each."""
    found: dict[int, str] = {}
    for ordinal in history.units[-1].exchanges:
        exchange = history.exchanges[ordinal]
        if exchange.result is not None and exchange.result >= unseen_from:
            text = _on(history, ledger, ordinal)
            if text is not None:
                found[exchange.result] = text
    return found


def _on(history: History, ledger: Ledger, ordinal: int) -> str | None:
    """Advice on an exchange that is the same as the ones right before it."""
    if ordinal + 1 < _IN_A_ROW:
        return None
    last = range(ordinal + 1 - _IN_A_ROW, ordinal + 1)
    if len({_told(history, ledger, one) for one in last}) > 1:
        return None
    name = history.parts[history.exchanges[ordinal].call].name or "This tool"
    return (
        f"{name} was called {_IN_A_ROW} times in a row with the same arguments and gave the same "
        "result. It will not say anything new: change the arguments, or try something else."
    )


def _told(history: History, ledger: Ledger, ordinal: int) -> tuple[str, str, str | None]:
    """The call and what it brought."""
    exchange = history.exchanges[ordinal]
    result = None if exchange.result is None else history.parts[exchange.result].text
    return history.parts[exchange.call].name, ledger.uses[ordinal].key, result
