"""Forecast model: weights, rates of lines, and the risk of an offer.

Two numbers per line: how many later turns will need the line as such, and how many will need one of
the names that occur only in it. docs/how/forecast.md describes the fit of the weights.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain, compress
from math import prod
from operator import getitem, mul
from typing import Any, Final, Literal, Protocol

from msgspec import Struct

from ..accelerator import FlatFactors, ScaledFactors
from ..edits import (
    OVERWRITTEN,
    STALE,
    SUPERSEDED,
    TIDIED,
    UNLIKELY_NEEDED,
    DropExchange,
    DropReasoning,
    Edit,
    Offer,
    Replace,
)
from ..history.ledger import Ledger
from ..tools.use import Content
from ..transcript import ReadOnlyTranscript
from .features import (
    AGES,
    LINE_FEATURES,
    RESULT_FEATURES,
    LineBins,
    ResultFeatures,
    bin_of,
    result_features,
    session_features,
)
from .line_codes import LINE_FORMATS, UNIQUE_BINS, RemovedLines
from .mentions import Mentions
from .native_mentions import NativeMentions

WeightTable = tuple[float, ...]  # factor of the rate for each bin of a feature

# A turn that needs several lines misses something if one of them is gone, but each line bears
# only its share of the turn. For names this matters less: most turns need few.
_LINE_RATIO: Final = 2.0
_NAME_RATIO: Final = 1.5
_OWNED: Final = 4  # the first features of a line: if all are 0, nothing in it can be needed
_NEARS: Final = slice(7, 10)  # features of its neighbourhood; its place and format follow
_PLACE: Final = 10
_FORMATS: Final = slice(11, 14)
_MAX_FACTORS: Final = 1_000  # results with different bins whose lines' factors are cached
_MAX_RATES: Final = 500  # results with different bins whose rates are cached
_MAX_RATE: Final = 1.0  # maximum turns expected to need one line

_RESULT_NUMBERS: Final = {name: number for number, name in enumerate(RESULT_FEATURES)}
# A feature of a line has a name of its own: some share theirs with one of the result.
_LINE_NUMBERS: Final = {f"line: {name}": number for number, name in enumerate(LINE_FEATURES)}
_OVERWRITTEN_RISK: Final = 0.01  # the same of a write of which no line is left
_REASONING_RISK: Final = 0.012  # turns that miss something of one unit's reasoning
# The most of a write of a file that was wholly written again: 2 of 31 such drops were needed, and
# the rates of the lines add up to several times that.
_MAX_SUPERSEDED_RISK: Final = 0.1


class Pair(Struct, frozen=True):
    """Factors for each two bins of two features; rows are the bins of the first."""

    first: int
    second: int
    table: tuple[WeightTable, ...]


class Weights(Struct, frozen=True, dict=True):
    """One forecast: a base rate, and the factor of each bin and of each two bins of a pair."""

    rate: float
    result: tuple[WeightTable, ...]
    line: tuple[WeightTable, ...]
    of_results: tuple[Pair, ...] = ()  # two features of the result
    mixed: tuple[Pair, ...] = ()  # one of the result, one of the line
    of_line: tuple[Pair, ...] = ()  # two of the line

    def of_result(self, bins: Sequence[int]) -> float:
        """The rate of a result with these bins, before its lines, cached for a while."""
        key = tuple(bins)
        known = self._rates.get(key)
        if known is None:
            if len(self._rates) >= _MAX_RATES:
                self._rates.clear()
            known = self._rates[key] = self._compute_rate(key)
        return known

    def _compute_rate(self, bins: Sequence[int]) -> float:
        found = self.rate * prod(map(getitem, self.result, bins))
        for first, second, table in self._result_pairs:
            found *= table[bins[first]][bins[second]]
        return found

    def of_lines(self, bins: Sequence[int], lines: LineBins) -> array[float]:
        """The factor of each line of a result with these bins."""
        factors = self._line_factors(bins)
        tables = factors.tables
        found = map(factors.unique.__getitem__, lines.unique)
        found = map(mul, found, map(factors.formats.__getitem__, lines.formats))
        found = map(mul, found, map(tables[_PLACE].__getitem__, lines.places))
        far = 1.0
        nears = lines.used, lines.mentioned, lines.discussed
        for feature, near in enumerate(nears, _NEARS.start):
            if any(near[:1]):
                found = map(mul, found, map(tables[feature].__getitem__, near))
            else:  # nothing nearby
                far *= tables[feature][0]
        return array("d", [far * one for one in found])

    def flat_factors(self, bins: Sequence[int]) -> FlatFactors:
        """The same factors for the accelerator."""
        return self._line_factors(bins).flat

    def _line_factors(self, bins: Sequence[int]) -> LineFactors:
        """The factors of lines in a result with these bins, cached for a while."""
        key = tuple([bins[at] for at in self._mixed_features])
        known = self._factors.get(key)
        if known is None:
            if len(self._factors) >= _MAX_FACTORS:
                self._factors.clear()
            known = self._factors[key] = LineFactors(self._line_tables(bins), self._pair_factors)
        return known

    def _line_tables(self, bins: Sequence[int]) -> Sequence[Sequence[float]]:
        """The factors of a line's bins in a result with these bins."""
        tables: list[Sequence[float]] = list(self.line)
        for pair in self.mixed:
            row = pair.table[bins[pair.first]]
            tables[pair.second] = list(map(mul, tables[pair.second], row))
        return tables

    @cached_property
    def _result_pairs(self) -> Sequence[tuple[int, int, tuple[WeightTable, ...]]]:
        return [(pair.first, pair.second, pair.table) for pair in self.of_results]

    @cached_property
    def _mixed_features(self) -> Sequence[int]:
        return sorted({pair.first for pair in self.mixed})

    @cached_property
    def _rates(self) -> dict[tuple[int, ...], float]:
        return {}

    @cached_property
    def _factors(self) -> dict[tuple[int, ...], LineFactors]:
        return {}

    @cached_property
    def _pair_factors(self) -> array[float]:
        """The product of the pairs of a line's features, by its code; 0 if it has nothing own."""
        found = [
            prod([one.table[bins[one.first]][bins[one.second]] for one in self.of_line])
            if any(bins[:_OWNED])
            else 0.0
            for bins in UNIQUE_BINS
        ]
        return array("d", found)


class LineFactors:
    """The factors of lines in results with equal bins, by code, computed on first use."""

    def __init__(self, tables: Sequence[Sequence[float]], pairs: array[float]) -> None:
        self.tables, self._pairs = tables, pairs
        self.unique = _UniqueFactors(tables, pairs)
        self.formats = _FormatFactors(tables)

    @cached_property
    def flat(self) -> FlatFactors:
        """All factors for the accelerator."""
        return FlatFactors(array("d", chain.from_iterable(self.tables)), self._pairs)


class _UniqueFactors(dict[int, float]):
    """Factors of a line's unique content, by code."""

    def __init__(self, tables: Sequence[Sequence[float]], pairs: Sequence[float]) -> None:
        self._tables, self._pairs = tables, pairs

    def __missing__(self, code: int) -> float:
        bins = UNIQUE_BINS[code]
        found = self[code] = prod(map(getitem, self._tables, bins), start=self._pairs[code])
        return found


class _FormatFactors(dict[int, float]):
    """Factors of a line's form, length and indentation, by code."""

    def __init__(self, tables: Sequence[Sequence[float]]) -> None:
        self._tables = tables[_FORMATS]

    def __missing__(self, code: int) -> float:
        found = self[code] = prod(map(getitem, self._tables, LINE_FORMATS[code]))
        return found


class Calibration(Struct, frozen=True):
    """Observed misses per expected one: a forecast counts a need even if another copy is kept."""

    lines: float  # of a result cut to its likely lines
    results: float  # of other cuts
    lines_by_content: Mapping[str, float] = {}  # where it differs
    results_by_content: Mapping[str, float] = {}


class Forecast(Struct, frozen=True):
    """The number of later turns that need each line of a result: as such, or for its names."""

    whole: Sequence[float]
    names: Sequence[float]

    def of(self, line: int) -> float:
        """The number of turns that would miss something without the line."""
        return self.whole[line] + self.names[line]


class LineShares(Struct, frozen=True, gc=False):
    """The factors of each line on a result's rate: for lines as such, and for names."""

    whole: Sequence[float]
    names: Sequence[float]


class ForecastModel(Struct, frozen=True):
    """All fitted weights."""

    whole: Weights
    names: Weights
    calls: Mapping[str, WeightTable]  # turns per line of a call's arguments, by kind and age
    calibration: Calibration


def forecast_lines(known: ResultFeatures, model: ForecastModel | None = None) -> Forecast:
    """Forecast the need for each line of a result."""
    shares = line_shares(known) if model is None else _compute_shares(known, model)
    whole, names = base_rates(known, model)
    if isinstance(known.mentions, NativeMentions):
        return Forecast(
            ScaledFactors(shares.whole, ratio=_LINE_RATIO, rate=whole, limit=_MAX_RATE),
            ScaledFactors(shares.names, ratio=_NAME_RATIO, rate=names, limit=_MAX_RATE),
        )
    return Forecast(
        _line_rates(_LINE_RATIO, whole, shares.whole), _line_rates(_NAME_RATIO, names, shares.names)
    )


def _line_rates(times: float, rate: float, shares: Sequence[float]) -> list[float]:
    """For each line, the number of turns that will need it."""
    if rate * max(shares) <= _MAX_RATE:
        return [times * (rate * one) for one in shares]
    return [times * min(_MAX_RATE, rate * one) for one in shares]


def base_rates(known: ResultFeatures, model: ForecastModel | None = None) -> tuple[float, float]:
    """The rates of a result before its lines: for lines, and for names."""
    model = model or load_model()
    return model.whole.of_result(known.bins), model.names.of_result(known.bins)


def expected_misses(
    known: ResultFeatures, rates: tuple[float, float], missing: RemovedLines
) -> float:
    """The number of turns that will need one of the removed lines.

    `rates` are those of the result before its lines.
    """
    owned = known.owned
    if missing.version != owned.version:
        _sum_removed(known, missing)
    whole, names = rates
    if whole * owned.max_factors[1] > _MAX_RATE or names * owned.max_factors[2] > _MAX_RATE:
        found = forecast_lines(known)
        needed = compress(found.whole, missing.lines), compress(found.names, missing.names)
        return sum(needed[0]) + sum(needed[1])
    return _LINE_RATIO * whole * missing.whole + _NAME_RATIO * names * missing.named


def _sum_removed(known: ResultFeatures, missing: RemovedLines) -> None:
    """Bring the sums of the removed lines' factors up to date."""
    owned, shares = known.owned, line_shares(known)
    missing.version = owned.version
    native = known.mentions
    if isinstance(native, NativeMentions):
        sums = native.removed_sums(shares.whole, shares.names, missing)
        missing.whole, missing.named, max_whole, max_names = sums
        owned.max_factors = owned.version, max_whole, max_names
        return
    missing.whole = sum(compress(shares.whole, missing.lines))
    missing.named = sum(compress(shares.names, missing.names))
    if owned.max_factors[0] != owned.version:
        owned.max_factors = owned.version, max(shares.whole), max(shares.names)


def line_shares(known: ResultFeatures) -> LineShares:
    """The line factors of a result by the shipped weights, cached for a while."""
    recent = known.mentions.recent
    found = recent.get(known.words.number, known.owned.version)
    if not isinstance(found, LineShares):
        found = _compute_shares(known, load_model())
        recent.store(known.words.number, known.owned.version, found, known.words.lines)
    return found


def _compute_shares(known: ResultFeatures, model: ForecastModel) -> LineShares:
    """The line factors of a result."""
    native, bins = known.mentions, known.bins
    if isinstance(native, NativeMentions):
        whole, names = model.whole.flat_factors(bins), model.names.flat_factors(bins)
        return LineShares(*native.line_shares(known.words, whole, names))
    lines = known.line_bins
    return LineShares(model.whole.of_lines(bins, lines), model.names.of_lines(bins, lines))


def call_rate(kind: str, age: int) -> float:
    """The number of later turns that need one line of a call's arguments."""
    table = load_model().calls
    return table["write" if kind == "write" else "other"][bin_of(AGES, age)]


@lru_cache(maxsize=1)
def load_model() -> ForecastModel:
    """The weights shipped with respool."""
    import tomllib  # lazily, as the file is read at the first forecast
    from importlib.resources import files

    text = files("respool.forecast").joinpath("weights.toml").read_text("utf-8")
    return parse_model(tomllib.loads(text))


def parse_model(document: Mapping[str, Any]) -> ForecastModel:
    """Parse a model from its document."""
    return ForecastModel(
        _weights(document["whole"]),
        _weights(document["names"]),
        {kind: tuple(by_age.values()) for kind, by_age in document["calls"].items()},
        Calibration(**document["calibration"]),
    )


def _weights(document: Mapping[str, Any]) -> Weights:
    pairs = [_pair(one) for one in document["pairs"]]
    return Weights(
        document["rate"],
        tuple(_table(document["result"][name], bins) for name, bins in RESULT_FEATURES.items()),
        tuple(_table(document["line"][name], bins) for name, bins in LINE_FEATURES.items()),
        tuple(pair for group, pair in pairs if group == "result"),
        tuple(pair for group, pair in pairs if group == "mixed"),
        tuple(pair for group, pair in pairs if group == "line"),
    )


def _table(document: Mapping[str, float], bins: Sequence[str]) -> WeightTable:
    return tuple(document[bin] for bin in bins)


def _pair(document: Mapping[str, Any]) -> tuple[Literal["result", "mixed", "line"], Pair]:
    """A pair of features with its group."""
    first, second = document["of"]
    rows: list[list[float]] = document["table"]
    table = tuple([tuple(row) for row in rows])
    if first in _LINE_NUMBERS:
        return "line", Pair(_LINE_NUMBERS[first], _LINE_NUMBERS[second], table)
    number = _RESULT_NUMBERS[first]
    if second in _RESULT_NUMBERS:
        return "result", Pair(number, _RESULT_NUMBERS[second], table)
    return "mixed", Pair(number, _LINE_NUMBERS[second], table)


class HistoryView(Protocol):
    """A history at one evaluation; every view satisfies it."""

    @property
    def transcript(self) -> ReadOnlyTranscript:
        """The history."""
        ...

    @property
    def ledger(self) -> Ledger:
        """The ledger of its calls."""
        ...


def estimate_risk(offer: Offer, moment: HistoryView, mentions: Mentions) -> float:
    """The number of later turns that would miss something removed by this offer."""
    return RiskEstimator(moment, mentions).risk_of(offer)


class RiskEstimator:
    """Estimator of the risk of offers at one moment; caches the features of each result."""

    def __init__(self, moment: HistoryView, mentions: Mentions) -> None:
        self._history, self._ledger = moment.transcript, moment.ledger
        self._mentions = mentions
        self._session = session_features(moment.transcript, moment.ledger, mentions)
        self._known: dict[int, tuple[ResultFeatures, tuple[float, float]] | None] = {}

    def risk_of(self, offer: Offer) -> float:
        """The number of later turns that would miss something removed by an offer.

        Tidying misses nothing, nor does an edit that depends on a copy that stays whole, unless
        the copy is a later read, which may show other lines.
        """
        if offer.depends_on and offer.edit.reason != STALE:
            return 0.0
        return sum([self._edit(edit) * self._calibration(edit) for edit in offer.edits])

    def _edit(self, edit: Edit) -> float:
        if edit.reason == TIDIED:
            return 0.0
        if isinstance(edit, Replace):
            return self._part(edit.part, edit.text)
        if isinstance(edit, DropReasoning):
            return _REASONING_RISK
        if edit.reason == OVERWRITTEN:
            return _OVERWRITTEN_RISK
        if isinstance(edit, DropExchange):
            exchange = self._history.exchanges[edit.exchange]
            gone = [exchange.call] if exchange.result is None else [exchange.call, exchange.result]
            risk = sum(self._part(part, "") for part in gone)
            return min(risk, _MAX_SUPERSEDED_RISK) if edit.reason == SUPERSEDED else risk
        return 0.0

    def _part(self, position: int, text: str) -> float:
        """The risk of replacing a part's text with `text`."""
        part = self._history.parts[position]
        if part.kind == "call":
            return self._call(position, text)
        features = self.result_features(position) if part.kind == "result" else None
        if features is None:
            return 0.0
        found, rates = features
        return expected_misses(found, rates, self._mentions.missing(found.words, part.text, text))

    def _call(self, position: int, text: str) -> float:
        history, uses = self._history, self._ledger.uses
        ordinal = history.exchange_of[position]
        kind = uses[ordinal].kind if 0 <= ordinal < len(uses) else "other"
        age = len(history.units) - 1 - history.exchanges[ordinal].unit if ordinal >= 0 else 0
        gone = self._mentions.removed_call_lines(history.parts[position].text, text)
        return call_rate(kind, age) * gone

    def result_features(self, position: int) -> tuple[ResultFeatures, tuple[float, float]] | None:
        """The features of a result and its rates; None if it is not indexed."""
        if position not in self._known:
            found = result_features(
                position, self._history, self._ledger, self._mentions, session=self._session
            )
            self._known[position] = None if found is None else (found, base_rates(found))
        return self._known[position]

    def _calibration(self, edit: Edit) -> float:
        """The calibration factor of the forecast for an edit."""
        if not isinstance(edit, Replace):
            return 1.0
        ordinal, uses = self._history.exchange_of[edit.part], self._ledger.uses
        content = uses[ordinal].content if 0 <= ordinal < len(uses) else None
        if edit.reason == UNLIKELY_NEEDED:
            return line_calibration(content)
        known = load_model().calibration
        return known.results_by_content.get(content or "", known.results)


def line_calibration(content: Content | None) -> float:
    """The calibration factor of the forecast for lines of such a result."""
    known = load_model().calibration
    return known.lines_by_content.get(content or "", known.lines)


def line_risks(position: int, moment: HistoryView, mentions: Mentions) -> Sequence[float]:
    """For each line of a result, the number of later turns that would miss it or a name in it."""
    found = forecast_result(position, moment, mentions)
    return [] if found is None else [found.of(line) for line in range(len(found.whole))]


def forecast_result(position: int, moment: HistoryView, mentions: Mentions) -> Forecast | None:
    """The forecast for a result; None if it is not indexed."""
    found = result_features(position, moment.transcript, moment.ledger, mentions)
    return None if found is None else forecast_lines(found)
