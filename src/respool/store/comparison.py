"""Comparison of the two groups of a holdout, with intervals and plain verdicts.

What is compared are means per unit: a session with its sub-agents, or a conversation. Requests of
one unit depend on each other, so they are never counted one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from math import ceil, sqrt
from statistics import NormalDist
from typing import Any, Final, Literal

from msgspec import Struct

from ..history.repeat_rates import ExcessRefetch
from .base import Arm, UnitTotal

MIN_UNITS: Final = 20  # of each group; with fewer, an interval of skewed figures means little
CONFIDENCE: Final = 0.95
_POWER: Final = 0.8  # the chance to see a difference that is there
_SHOWN_DIFFERENCE: Final = 0.1  # of the mean, for the number of units that would show it

Verdict = Literal["too-few", "no-difference", "less", "more"]
Measure = Literal["cost", "requests", "errors", "refetched"]
_MEASURES: Final[dict[Measure, Callable[[UnitTotal], float]]] = {
    "cost": lambda unit: unit.cost,
    "requests": lambda unit: unit.requests,
    "errors": lambda unit: unit.errors,
    "refetched": lambda unit: unit.refetched,
}
# The group that is compared with, and the other one.
_PAIRS: Final[tuple[tuple[Arm, Arm], ...]] = (("held-out", "compacted"), ("a", "b"))


class Sample(Struct, frozen=True):
    """Count, mean and variance of some figures."""

    count: int
    mean: float
    variance: float


class MeasuredDifference(Struct, frozen=True, kw_only=True):
    """One figure per unit in both groups, and their difference with its interval."""

    measure: Measure
    control: Sample
    other: Sample
    low: float  # of the other mean less the control's
    high: float
    verdict: Verdict
    needed: int | None  # units in all that would show a difference of 10 %; None: not known

    @property
    def difference(self) -> float:
        """The other mean less the control's."""
        return self.other.mean - self.control.mean


class HoldoutComparison(Struct, frozen=True, kw_only=True):
    """Both groups of a holdout, or of an A/A run."""

    control: Arm
    other: Arm
    control_units: int
    other_units: int
    crossed: int  # units that were in both groups and are left out
    unpriced: int  # units of unknown cost, which are left out of the costs
    measures: tuple[MeasuredDifference, ...]

    @property
    def is_aa(self) -> bool:
        """True if both groups were treated alike."""
        return self.control == "a"


def sample_of(figures: Collection[float]) -> Sample:
    """Summarise figures; the variance of fewer than two is 0.

    >>> sample_of([1.0, 3.0])
    Sample(count=2, mean=2.0, variance=2.0)
    """
    count = len(figures)
    mean = sum(figures) / count if count else 0.0
    squares = sum((one - mean) ** 2 for one in figures)
    return Sample(count, mean, squares / (count - 1) if count > 1 else 0.0)


def welch_interval(control: Sample, other: Sample) -> tuple[float, float]:
    """The interval of the difference of two means whose variances differ (Welch)."""
    parts = [one.variance / one.count for one in (control, other)]
    variance = sum(parts)
    difference = other.mean - control.mean
    if not variance:
        return difference, difference
    squares = (
        part * part / (one.count - 1)
        for part, one in zip(parts, (control, other), strict=True)
        if one.count > 1
    )
    reach = student_quantile(variance * variance / sum(squares)) * sqrt(variance)
    return difference - reach, difference + reach


def student_quantile(freedom: float) -> float:
    """The quantile of Student's t for a two-sided interval, by its expansion.

    >>> round(student_quantile(10), 2), round(student_quantile(1e9), 2)
    (2.23, 1.96)
    """
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def compare_groups(units: Sequence[UnitTotal]) -> list[HoldoutComparison]:
    """Compare the groups of a holdout, and of an A/A run, if there are any."""
    found = (_compare(units, *pair) for pair in _PAIRS)
    return [one for one in found if one.control_units or one.other_units]


def _compare(units: Sequence[UnitTotal], control: Arm, other: Arm) -> HoldoutComparison:
    held = {arm: {unit.unit: unit for unit in units if unit.arm == arm} for arm in (control, other)}
    crossed = held[control].keys() & held[other].keys()
    first, second = (
        [unit for name, unit in held[arm].items() if name not in crossed]
        for arm in (control, other)
    )
    return HoldoutComparison(
        control=control,
        other=other,
        control_units=len(first),
        other_units=len(second),
        crossed=len(crossed),
        unpriced=sum(unit.unpriced > 0 for unit in (*first, *second)),
        measures=tuple(_difference(name, first, second) for name in _MEASURES),
    )


def _difference(
    measure: Measure, control: Iterable[UnitTotal], other: Iterable[UnitTotal]
) -> MeasuredDifference:
    read, is_cost = _MEASURES[measure], measure == "cost"
    one, two = (
        sample_of([read(unit) for unit in units if not (is_cost and unit.unpriced)])
        for units in (control, other)
    )
    is_enough = min(one.count, two.count) >= MIN_UNITS
    low, high = welch_interval(one, two) if min(one.count, two.count) > 1 else (0.0, 0.0)
    return MeasuredDifference(
        measure=measure,
        control=one,
        other=two,
        low=low,
        high=high,
        verdict=_verdict(low, high) if is_enough else "too-few",
        needed=_needed_units(one, two),
    )


def _verdict(low: float, high: float) -> Verdict:
    if low > 0:
        return "more"
    return "less" if high < 0 else "no-difference"


def _needed_units(control: Sample, other: Sample) -> int | None:
    """The units in all, shared as now, that would most likely show a difference of 10 %."""
    total = control.count + other.count
    if min(control.count, other.count) < 2 or not control.mean:
        return None
    spread = total * (control.variance / control.count + other.variance / other.count)
    normal = NormalDist()
    reach = normal.inv_cdf((1 + CONFIDENCE) / 2) + normal.inv_cdf(_POWER)
    return ceil(spread * (reach / (_SHOWN_DIFFERENCE * control.mean)) ** 2)


# --- in words ----------------------------------------------------------------------------------

ARM_NAMES: Final[dict[Arm, str]] = {
    "held-out": "held out",
    "compacted": "compacted",
    "a": "group A",
    "b": "group B",
}
MEASURE_NAMES: Final[dict[Measure, str]] = {
    "cost": "Cost",
    "requests": "Requests",
    "errors": "Errors",
    "refetched": "Fetched again after a cut",
}


def describe_comparison(found: HoldoutComparison) -> list[str]:
    """Sentences on the two groups: how many there are, and if they can tell anything."""
    groups = (
        f"{_count(found.control_units)} {ARM_NAMES[found.control]}, "
        f"{found.other_units:,} {ARM_NAMES[found.other]}."
    )
    lines = [groups]
    if found.is_aa:
        lines.append("Both groups were compacted: every difference here is noise.")
    if min(found.control_units, found.other_units) < MIN_UNITS:
        lines.append(f"Too few to tell: each group needs {MIN_UNITS} or more.")
    cost = found.measures[0]
    if cost.verdict in ("too-few", "no-difference") and cost.needed is not None:
        lines.append(f"About {_count(cost.needed)} in all would show a cost that differs by 10 %.")
    if found.crossed:
        lines.append(f"Left out, as they changed groups: {_count(found.crossed)}.")
    if found.unpriced:
        lines.append(f"Left out of the cost, as no price is known: {_count(found.unpriced)}.")
    return lines


def _count(units: int) -> str:
    return f"{units:,} conversation{'' if units == 1 else 's'}"


def describe_verdict(found: MeasuredDifference) -> str:
    """A verdict in a few words; a share where the control's mean is not 0."""
    match found.verdict:
        case "too-few":
            return "too few to tell"
        case "no-difference":
            return "no difference beyond noise"
        case "less" | "more":
            share = abs(found.difference) / found.control.mean if found.control.mean else 0.0
            return f"{f'{100 * share:.0f} % ' if share else ''}{found.verdict}"


def describe_excess(found: ExcessRefetch) -> str:
    """A sentence on excess refetch.

    >>> describe_excess(ExcessRefetch(after_cut=9, expected=5.0, error=3.0, cut=100))
    '9 results were fetched again after a cut; 5.0 would have been if they were whole, by others \
of the same kind and age: an excess of +4.0 (-1.9 to +9.9).'
    """
    low, high = found.interval
    one = found.after_cut == 1
    return (
        f"{found.after_cut:,} result{' was' if one else 's were'} fetched again after a cut; "
        f"{found.expected:,.1f} would have been if they were whole, by others of the same kind "
        f"and age: an excess of {found.excess:+,.1f} ({low:+,.1f} to {high:+,.1f})."
    )


def comparison_fields(found: HoldoutComparison) -> dict[str, Any]:
    """Values for JSON."""
    return {
        "control": found.control,
        "other": found.other,
        "conversations": {found.control: found.control_units, found.other: found.other_units},
        "crossed": found.crossed,
        "unpriced": found.unpriced,
        "is_aa": found.is_aa,
        "notes": describe_comparison(found),
        "measures": [
            {
                "measure": one.measure,
                "name": MEASURE_NAMES[one.measure],
                "control": one.control.mean,
                "other": one.other.mean,
                "difference": one.difference,
                "low": one.low,
                "high": one.high,
                "verdict": one.verdict,
                "says": describe_verdict(one),
                "needed": one.needed,
            }
            for one in found.measures
        ],
    }


def excess_fields(found: ExcessRefetch) -> dict[str, Any]:
    """Values for JSON."""
    low, high = found.interval
    return {
        "after_cut": found.after_cut,
        "expected": found.expected,
        "excess": found.excess,
        "low": low,
        "high": high,
        "cut": found.cut,
        "unmatched": found.unmatched,
        "says": describe_excess(found),
    }
