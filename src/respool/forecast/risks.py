"""What an offer risks: how many later turns would miss something of what it takes away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from ..edits import KEPT_LINES, TIDIED, DropExchange, DropReasoning, Edit, Offer, Replace
from ..ledger.ledger import Ledger
from ..tools.use import Content
from ..transcript import History
from .features import Known, known, session_of
from .mentions import Mentions
from .model import Forecast, bases, call_rate, expected_of, forecast


class Moment(Protocol):
    """A history as it stands at one evaluation; every view is one."""

    @property
    def transcript(self) -> History:
        """The history."""
        ...

    @property
    def ledger(self) -> Ledger:
        """What its calls did."""
        ...


def risk(offer: Offer, moment: Moment, mentions: Mentions) -> float:
    """How many later turns would miss something that this offer takes away."""
    return Risks(moment, mentions).risk_of(offer)


class Risks:
    """What offers risk at one moment; what is known of each result is looked up once."""

    def __init__(self, moment: Moment, mentions: Mentions) -> None:
        self._history, self._ledger = moment.transcript, moment.ledger
        self._mentions = mentions
        self._session = session_of(moment.transcript, moment.ledger, mentions)
        self._known: dict[int, tuple[Known, tuple[float, float]] | None] = {}

    def risk_of(self, offer: Offer) -> float:
        """How many later turns would miss something that an offer takes away.

        What is only tidied misses nothing; nor does what leans on a copy that stays whole.
        """
        if offer.depends_on:
            return 0.0
        return sum([self._edit(edit) * self._calibration(edit) for edit in offer.edits])

    def _edit(self, edit: Edit) -> float:
        if edit.reason == TIDIED:
            return 0.0
        if isinstance(edit, Replace):
            return self._part(edit.part, edit.text)
        if isinstance(edit, DropReasoning):
            return _REASONING
        if isinstance(edit, DropExchange):
            exchange = self._history.exchanges[edit.exchange]
            gone = [exchange.call] if exchange.result is None else [exchange.call, exchange.result]
            return sum(self._part(part, "") for part in gone)
        return 0.0

    def _part(self, position: int, text: str) -> float:
        """What is at risk when a part says `text` from now on."""
        part = self._history.parts[position]
        if part.kind == "call":
            return self._call(position, text)
        looked = self.result_features(position) if part.kind == "result" else None
        if looked is None:
            return 0.0
        found, rates = looked
        return expected_of(found, rates, self._mentions.missing(found.words, part.text, text))

    def _call(self, position: int, text: str) -> float:
        history, uses = self._history, self._ledger.uses
        ordinal = history.exchange_of[position]
        kind = uses[ordinal].kind if 0 <= ordinal < len(uses) else "other"
        age = len(history.units) - 1 - history.exchanges[ordinal].unit if ordinal >= 0 else 0
        gone = self._mentions.removed_call_lines(history.parts[position].text, text)
        return call_rate(kind, age) * gone

    def result_features(self, position: int) -> tuple[Known, tuple[float, float]] | None:
        """What is known of a result, and its rates; None: nothing was noted of it."""
        if position not in self._known:
            found = known(position, self._history, self._ledger, self._mentions, self._session)
            self._known[position] = None if found is None else (found, bases(found))
        return self._known[position]

    def _calibration(self, edit: Edit) -> float:
        """What the forecast for an edit must be multiplied by."""
        if not isinstance(edit, Replace):
            return 1.0
        ordinal, uses = self._history.exchange_of[edit.part], self._ledger.uses
        content = uses[ordinal].content if 0 <= ordinal < len(uses) else None
        if edit.reason == KEPT_LINES:
            return missed_of_lines(content)
        return _WHOLE.get(content or "", _OTHERS)


# What was really missed for each turn that the forecast expected, in 91 recorded sessions that are
# not among those of the published figures: it counts a need even where another copy is kept.
_KEPT_LINES: Final = 0.3
_KEPT_LINES_OF: Final[Mapping[str, float]] = {"diff": 8.0}  # patches say its lines again
_WHOLE: Final[Mapping[str, float]] = {"code": 0.45, "diff": 8.0, "hits": 0.4, "test": 0.2}
_OTHERS: Final = 0.6
_REASONING: Final = 0.012  # turns that miss something of one unit's reasoning


def missed_of_lines(content: Content | None) -> float:
    """What the forecast for lines of such a result must be multiplied by."""
    return _KEPT_LINES_OF.get(content or "", _KEPT_LINES)


def line_risks(position: int, moment: Moment, mentions: Mentions) -> Sequence[float]:
    """For each line of a result, how many later turns would miss it or a name in it."""
    found = forecast_of(position, moment, mentions)
    return [] if found is None else [found.of(line) for line in range(len(found.whole))]


def forecast_of(position: int, moment: Moment, mentions: Mentions) -> Forecast | None:
    """The forecast for a result; None: nothing is known of it."""
    found = known(position, moment.transcript, moment.ledger, mentions)
    return None if found is None else forecast(found)
