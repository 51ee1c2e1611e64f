"""The forecast: a product of weights, one for each bin, from a file that people can read.

Two numbers for each line: how many later turns will need the line as such, and how many one of the
names that stand only in it. docs/forecast.md tells where the weights come from.
"""

from __future__ import annotations

import tomllib
from array import array
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from importlib.resources import files
from itertools import compress
from math import exp, prod
from operator import getitem, mul
from typing import Any, Final

from msgspec import Struct

from .features import AGES, LINE, RESULT, Known, Lines, bin_of
from .looks import LOOKS
from .owned import OWNED, Missing

Table = tuple[float, ...]  # what each bin of a feature multiplies the rate by

# A turn that needs several lines misses something as soon as one of them is gone, but each of
# them bears only its share of the turn. That holds for names less, of which most turns need few.
_SHARED: Final = 2.0
_NAMED: Final = 1.5
_OWNED: Final = 4  # the first features of a line: where all are 0, nothing in it can be needed
_NEARS: Final = slice(7, 10)  # those that tell what is near it; its place and its look follow
_MOST: Final = 1.0  # turns that one line may be expected to be needed by


class Weights(Struct, frozen=True, dict=True):
    """One forecast: a rate, and what each bin makes of it."""

    rate: float
    result: tuple[Table, ...]
    line: tuple[Table, ...]

    def of_result(self, bins: Sequence[int]) -> float:
        """The rate of a result with these bins, before its lines are looked at."""
        return self.rate * prod(map(getitem, self.result, bins))

    def of_lines(self, lines: Lines) -> array[float]:
        """What each line's bins multiply it by."""
        found = map(self._owned.__getitem__, lines.unique)
        at_place = map(self._looks.__getitem__, lines.places)
        found = map(mul, found, map(getitem, at_place, lines.formats))
        nears, far = (
            zip(self.line[_NEARS], (lines.used, lines.mentioned, lines.discussed), strict=True),
            1.0,
        )
        for table, near in nears:
            if any(near[:1]):
                found = map(mul, found, map(table.__getitem__, near))
            else:  # none is near to anything
                far *= table[0]
        shares = array("d", [far * one for one in found])
        for line, several in lines.folded.items():
            shares[line] *= several
        return shares

    @cached_property
    def _owned(self) -> Table:
        """By what a line has for itself; where it has nothing, nothing in it can be needed."""
        tables = self.line[: _NEARS.start]
        return tuple(
            prod(map(getitem, tables, bins)) if any(bins[:_OWNED]) else 0.0 for bins in OWNED
        )

    @cached_property
    def _looks(self) -> tuple[Table, ...]:
        """By its place, then by what it looks like."""
        place, *tables = self.line[_NEARS.stop :]
        looks = [prod(map(getitem, tables, bins)) for bins in LOOKS]
        return tuple(tuple(first * one for one in looks) for first in place)


class Forecast(Struct, frozen=True):
    """How many later turns will need each line of a result: as such, or for its names."""

    whole: Sequence[float]
    names: Sequence[float]

    def of(self, line: int) -> float:
        """How many turns would miss something if the line were gone."""
        return self.whole[line] + self.names[line]


class Shares(Struct, frozen=True, gc=False):
    """What each line's bins multiply a result's rate by: for lines as such, and for names."""

    whole: Sequence[float]
    names: Sequence[float]


class Model(Struct, frozen=True):
    """All that was fitted."""

    whole: Weights
    names: Weights
    calls: Mapping[str, Table]  # turns for each line of a call's arguments, by kind and age


def forecast(known: Known, model: Model | None = None) -> Forecast:
    """What a result's lines will be needed for."""
    shares = shares_of(known) if model is None else _shares(known.line_bins, model)
    whole, names = bases(known, model)
    return Forecast(_needs(_SHARED, whole, shares.whole), _needs(_NAMED, names, shares.names))


def _needs(times: float, rate: float, shares: Sequence[float]) -> list[float]:
    """For each line, how many turns will need it."""
    if rate * max(shares) <= _MOST:
        return [times * (rate * one) for one in shares]
    return [times * min(_MOST, rate * one) for one in shares]


def bases(known: Known, model: Model | None = None) -> tuple[float, float]:
    """The rates of a result before its lines are looked at: for lines, and for names."""
    model = model or shipped()
    return model.whole.of_result(known.bins), model.names.of_result(known.bins)


def expected_of(known: Known, rates: tuple[float, float], missing: Missing) -> float:
    """How many turns will need one of the lines that are gone where a result says less.

    `rates` are those of the result before its lines are looked at.
    """
    owned = known.owned
    if missing.version != owned.version:
        shares = shares_of(known)
        missing.whole = sum(compress(shares.whole, missing.lines))
        missing.named = sum(compress(shares.names, missing.names))
        missing.version = owned.version
        if owned.max_factors[0] != owned.version:
            owned.max_factors = owned.version, max(shares.whole), max(shares.names)
    whole, names = rates
    if whole * owned.max_factors[1] > _MOST or names * owned.max_factors[2] > _MOST:
        found = forecast(known)
        needed = compress(found.whole, missing.lines), compress(found.names, missing.names)
        return sum(needed[0]) + sum(needed[1])
    return _SHARED * whole * missing.whole + _NAMED * names * missing.named


def shares_of(known: Known) -> Shares:
    """What the lines of a result make of a rate by the shipped weights; remembered for a while."""
    recent = known.mentions.recent
    found = recent.get(known.words.number, known.owned.version)
    if not isinstance(found, Shares):
        found = _shares(known.line_bins, shipped())
        recent.store(known.words.number, known.owned.version, found, known.words.lines)
    return found


def _shares(lines: Lines, model: Model) -> Shares:
    """What each line's bins multiply a result's rate by."""
    return Shares(model.whole.of_lines(lines), model.names.of_lines(lines))


def call_rate(kind: str, age: int) -> float:
    """How many later turns need one line of a call's arguments."""
    table = shipped().calls
    return table["write" if kind == "write" else "other"][bin_of(AGES, age)]


@lru_cache(maxsize=1)
def shipped() -> Model:
    """The weights that come with respool."""
    text = files("respool.forecast").joinpath("weights.toml").read_text("utf-8")
    return read_model(tomllib.loads(text))


def read_model(document: Mapping[str, Any]) -> Model:
    """A model from its document; weights are logarithms there."""
    return Model(
        _weights(document["whole"]),
        _weights(document["names"]),
        {kind: tuple(by_age.values()) for kind, by_age in document["calls"].items()},
    )


def _weights(document: Mapping[str, Any]) -> Weights:
    return Weights(
        exp(document["rate"]),
        tuple(_table(document["result"][name], bins) for name, bins in RESULT.items()),
        tuple(_table(document["line"][name], bins) for name, bins in LINE.items()),
    )


def _table(document: Mapping[str, float], bins: Sequence[str]) -> Table:
    return tuple(exp(document[bin]) for bin in bins)
