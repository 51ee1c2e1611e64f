"""Priced planner on recorded sessions that uses the forecast alone: savings and losses."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from msgspec import Struct

from bench.forecast_data import Walk
from respool.forecast.features import result_features
from respool.forecast.line_selection import SelectedLines, select_lines
from respool.forecast.model import ForecastModel, forecast_lines
from respool.markers import OmissionMarker, find_marker, reference
from respool.passes.keep_lines import MIN_CHARS
from respool.replay.policies import ReplacingSender
from respool.replay.prompt_cache import with_breakpoint
from respool.replay.recording import Recording
from respool.wire.json import JSON

_LEAST_SAVED = 20  # tokens
DEPTHS = (1.0,)  # of the rate that prices give, at which a result is offered


class Knobs(Struct, frozen=True):
    """Weights of savings against risk."""

    aversion: float = 2.0  # multiple of a lost turn's cost
    horizon: float = 40  # requests that are still expected
    margin: float = 0.5  # how much more than its cost an epoch must bring
    names: bool = True  # list the names of cut lines


class ResultOffer(Struct, frozen=True):
    """The latest offer for a result: text, tokens and risk."""

    text: str
    tokens: int
    risk: float  # beyond the risk of an earlier cut of the result
    gone: frozenset[int]  # lines


class Planned(ReplacingSender):
    """Results cut to the forecast lines, at epochs that pay."""

    reason = "kept lines"

    def __init__(self, recording: Recording, model: ForecastModel, knobs: Knobs) -> None:
        super().__init__(recording)
        self._model, self._knobs = model, knobs
        self._walk = Walk(recording)
        self._rows = [place.row for place in self.results]
        self._now = [row.tokens for row in recording.rows]  # current tokens of each row
        self._size = [recording.rows[p.row].blocks[p.block].tokens for p in self.results]
        self._offers: dict[int, list[ResultOffer]] = {}
        self._texts: dict[int, str] = {}
        self._gone: dict[int, frozenset[int]] = {}
        self._breakpoint: int | None = None
        self._with_breakpoints: dict[int, JSON] = {}
        self.expected = 0.0
        self.epochs = 0

    def due_count(self, request: int) -> int:
        """Nothing by number alone."""
        return 0

    def replacement(self, result: int) -> str | None:
        """Return the text that the last epoch left of a result."""
        return self._texts[result]

    def send(self, request: int) -> Sequence[JSON]:
        """The request, after an epoch if one pays."""
        self._walk.until(self.recording.cuts[request])
        self._offer(request)
        if request:
            self._decide(request)
        sent = list(super().send(request))
        at = self._breakpoint
        if at is not None and at < len(sent) - 1 and self.recording.session.format == "anthropic":
            sent[at] = self._with_breakpoint(at, sent[at])
        return sent

    def _with_breakpoint(self, at: int, message: JSON) -> JSON:
        if id(message) not in self._with_breakpoints:
            lifetime = self.recording.conditions.lifetime
            self._with_breakpoints[id(message)] = with_breakpoint(message, lifetime)
        return self._with_breakpoints[id(message)]

    def _loss(self, request: int) -> float:
        """Return the weighted cost of a lost turn."""
        conditions = self.recording.conditions
        read, write = conditions.terms.read, conditions.write
        prompt = conditions.head + sum(self._now[: self.recording.cuts[request]])
        again = read * prompt + write * 1_500 + conditions.terms.output * 150
        return self._knobs.aversion * (again + read * 1_500 * self._knobs.horizon)

    def _offer(self, request: int) -> None:
        """Renew the offers of results whose age has doubled."""
        conditions = self.recording.conditions
        read, write = conditions.terms.read, conditions.write
        rate = (read * self._knobs.horizon + write - read) / self._loss(request)
        walk = self._walk
        for number, position in walk.aged():
            text = walk.index.parts[position].text
            found = result_features(position, walk.index, walk.ledger, walk.mentions)
            if len(text) < MIN_CHARS or found is None or find_marker(text) is not None:
                continue
            expected = forecast_lines(found, self._model)
            gone = self._gone.get(number, frozenset())
            offers: list[ResultOffer] = []
            for depth in DEPTHS:
                kept = select_lines(
                    text,
                    found,
                    expected,
                    walk.mentions,
                    rate=depth * rate,
                    named=self._knobs.names,
                    gone_before=gone,
                )
                if kept is not None:
                    offers.append(_standing(text, kept))
            self._offers[number] = offers

    def _decide(self, request: int) -> None:
        """Find the cut that pays most, and take all offers after it."""
        recording, knobs = self.recording, self._knobs
        conditions = recording.conditions
        read, more = conditions.terms.read, conditions.write - conditions.terms.read
        sent = recording.cuts[request - 1]
        loss, cold = self._loss(request), self._is_cold(request)
        seen = bisect_left(self._rows, sent)
        by_row: dict[int, list[tuple[int, int, float, ResultOffer]]] = {}
        for number, offers in self._offers.items():
            if number >= seen or not offers:
                continue
            priced = [
                (
                    (saved := self._size[number] - offer.tokens) * (read * knobs.horizon + more)
                    - loss * offer.risk,
                    saved,
                    offer,
                )
                for offer in offers
            ]
            value, saved, offer = max(priced, key=lambda one: one[0])
            if saved > _LEAST_SAVED and value > 0:
                found = (number, saved, value - more * saved, offer)
                by_row.setdefault(self._rows[number], []).append(found)
        best, cut, value, behind, saved = 0.0, None, 0.0, 0, 0
        for row in range(sent - 1, -1, -1):
            behind += self._now[row]
            for _, tokens, worth, _ in by_row.get(row, ()):
                value += worth
                saved += tokens
            cost = -more * saved if cold else more * (behind - saved) * (1 + knobs.margin)
            if row in by_row and value - cost > best:
                best, cut = value - cost, row
        if cut is not None:
            taken = [one for row in by_row if row >= cut for one in by_row[row]]
            self._cut({number: offer for number, _, _, offer in taken})
            self._breakpoint = cut - 1 if cut else None

    def _is_cold(self, request: int) -> bool:
        conditions = self.recording.conditions
        now, before = (self.recording.session.requests[at].time for at in (request, request - 1))
        lifetime = conditions.lifetime or conditions.terms.lifetime
        return now is not None and before is not None and now - before > lifetime

    def _cut(self, taken: Mapping[int, ResultOffer]) -> None:
        self.epochs += 1
        for number, offer in taken.items():
            self._offers.pop(number)
            row = self._rows[number]
            self.expected += offer.risk
            self._texts[number] = offer.text
            self._gone[number] = offer.gone
            self._replace(number)
            now = self.recording.row(self._messages[row]).tokens
            self._size[number] -= self._now[row] - now
            self._now[row] = now


def _standing(text: str, kept: SelectedLines) -> ResultOffer:
    short = f"{kept.text}\n{OmissionMarker(kept.removed, 'lines', reference(text), kept.total)}"
    return ResultOffer(short, (len(short) + 3) // 4, kept.risk, frozenset(kept.lines))
