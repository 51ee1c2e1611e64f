"""The circles of a history, exchange by exchange: noted once, shared by all who stand on it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from threading import Lock
from typing import Final

from ..ledger.ledger import Ledger
from ..transcript import Exchange, History, Part
from .circle import Limits, Round
from .seen import answered, asked
from .watch import Watch
from .words import told

_NAME: Final = "loops"  # under which they are kept beside a ledger


class Walk:
    """Append-only, like the ledger it goes along with: what it says of an exchange stays."""

    def __init__(self, limits: Limits) -> None:
        self.loop_calls: dict[int, Round] = {}  # by exchange, where it is a part of a circle
        self._watch = Watch(limits)
        self._done = 0  # exchanges that were looked at
        self._place = 0  # the first part behind the last of them
        self._lock = Lock()

    def extend(self, history: History, ledger: Ledger) -> None:
        """Look at the exchanges that the ledger has and that were not looked at yet.

        The ledger may have more of the same conversation than this history.
        """
        known = min(len(ledger.uses), len(history.exchanges))
        with self._lock:
            for ordinal in range(self._done, known):
                exchange = history.exchanges[ordinal]
                if heard(history, self._place, exchange.call):
                    self._watch.reset()
                self._place = exchange.call + 1
                self._note(history, ledger, exchange)
            self._done = max(self._done, known)

    def _note(self, history: History, ledger: Ledger, exchange: Exchange) -> None:
        result = _in_time(history, exchange)
        if result is None or exchange.server:
            return
        call = history.parts[exchange.call]
        seen = answered(
            asked(call.name, call.text, ledger.uses[exchange.ordinal]), result.text, result.error
        )
        if seen is not None:
            found = self._watch.note(seen, exchange.ordinal, exchange.unit)
            if found is not None:
                self.loop_calls[exchange.ordinal] = found


def rounds_of(history: History, ledger: Ledger) -> Mapping[int, Round]:
    """By exchange: the circle it is a part of, for all exchanges that the ledger has."""
    if _NAME not in ledger.extensions:
        ledger.extensions.setdefault(_NAME, Walk(Limits()))  # of two at once, one is kept
    walk: Walk = ledger.extensions[_NAME]
    walk.extend(history, ledger)
    return walk.loop_calls


def advice(history: History, ledger: Ledger, unseen_from: int) -> Mapping[int, str]:
    """What to append to results that just came, by their positions; most often nothing.

    The same for the same history, whoever asks and how often: what is said of an exchange depends
    on what stands before it, and on nothing else.
    """
    rounds = rounds_of(history, ledger)
    fresh = history.results[bisect_left(history.results, unseen_from) :]
    found = ((at, rounds.get(history.exchange_of[at])) for at in fresh)
    return {at: told(one) for at, one in found if one is not None and one.should_speak}


def _in_time(history: History, exchange: Exchange) -> Part | None:
    """The result, if it came before the model spoke again: a later one was not there to be seen."""
    at = exchange.result
    if at is None or at >= history.units[exchange.unit].parts[1]:
        return None
    return history.parts[at]


def heard(history: History, start: int, end: int) -> bool:
    """Whether the user said something among these parts: words in a message without results."""
    parts = history.parts
    answering = {parts[at].ref.row for at in range(start, end) if parts[at].kind == "result"}
    return any(
        parts[at].speaker == "user"
        and parts[at].kind in ("text", "media")
        and parts[at].ref.row not in answering
        for at in range(start, end)
    )
