"""Groups of a holdout: means per unit, intervals, and when there are too few."""

from __future__ import annotations

import random
from typing import Any

import pytest

from respool.store import Arm, UnitTotal
from respool.store.comparison import (
    MIN_UNITS,
    Sample,
    compare_groups,
    comparison_fields,
    describe_comparison,
    describe_verdict,
    sample_of,
    student_quantile,
    welch_interval,
)


def unit(name: str, arm: Arm, **given: Any) -> UnitTotal:
    fields = {"requests": 10, "cost": 1.0, "unpriced": 0, "errors": 0, "refetched": 0, **given}
    return UnitTotal(unit=name, arm=arm, **fields)


def units(arm: Arm, costs: list[float], **given: Any) -> list[UnitTotal]:
    return [unit(f"{arm} {n}", arm, cost=cost, **given) for n, cost in enumerate(costs)]


def drawn(count: int, mean: float, seed: int) -> list[float]:
    chance = random.Random(seed)
    return [chance.lognormvariate(0, 0.5) * mean for _ in range(count)]


# Of published tables of Student's t: degrees of freedom, and the two-sided quantile at 95 %.
@pytest.mark.parametrize(
    ("freedom", "quantile"), [(5, 2.571), (10, 2.228), (30, 2.042), (120, 1.980)]
)
def test_quantiles_are_students(freedom: int, quantile: float):
    assert student_quantile(freedom) == pytest.approx(quantile, abs=0.01)


def test_an_interval_is_welchs():
    # By scipy.stats.ttest_ind with equal_var=False.
    found = welch_interval(sample_of([1, 2, 3, 4, 5]), sample_of([2, 4, 6, 8, 10, 12]))
    assert found == pytest.approx((0.0165, 7.9835), abs=0.02)


def test_intervals_cover_the_difference_as_often_as_they_say():
    covered = 0
    for seed in range(400):
        chance = random.Random(seed)
        one = sample_of([chance.gauss(10, 2) for _ in range(25)])
        two = sample_of([chance.gauss(11, 4) for _ in range(40)])
        low, high = welch_interval(one, two)
        covered += low <= 1 <= high
    assert 0.92 <= covered / 400 <= 0.98


def test_equal_figures_have_an_interval_of_no_width():
    same = Sample(30, 2.0, 0.0)
    assert welch_interval(same, same) == (0.0, 0.0)


def test_a_saving_shows():
    found = units("held-out", drawn(60, 2.0, 1)) + units("compacted", drawn(600, 1.2, 2))
    (compared,) = compare_groups(found)
    cost, requests, *_ = compared.measures
    assert (compared.control_units, compared.other_units) == (60, 600)
    assert cost.verdict == "less"
    assert cost.low < cost.difference < cost.high < 0
    assert describe_verdict(cost).endswith("% less")
    assert requests.verdict == "no-difference"  # ten each
    assert "Too few" not in " ".join(describe_comparison(compared))


def test_too_few_tell_nothing_however_far_they_are_apart():
    found = units("held-out", [100.0] * (MIN_UNITS - 1)) + units("compacted", [1.0] * 500)
    (compared,) = compare_groups(found)
    assert {one.verdict for one in compared.measures} == {"too-few"}
    said = describe_comparison(compared)
    assert f"Too few to tell: each group needs {MIN_UNITS} or more." in said
    assert said[0] == "19 conversations held out, 500 compacted."


def test_groups_treated_alike_show_noise():
    alarms = 0
    for seed in range(100):
        found = units("a", drawn(40, 1.0, seed)) + units("b", drawn(300, 1.0, 1_000 + seed))
        (compared,) = compare_groups(found)
        assert compared.is_aa
        alarms += compared.measures[0].verdict != "no-difference"
        assert "every difference here is noise" in " ".join(describe_comparison(compared))
    assert alarms <= 12  # five in a hundred are to be expected


def test_needed_units_would_show_it():
    found = units("held-out", drawn(50, 1.0, 3)) + units("compacted", drawn(450, 1.0, 4))
    needed = compare_groups(found)[0].measures[0].needed
    assert needed is not None
    shown = 0
    for seed in range(60):
        control = drawn(needed // 10, 1.0, 10_000 + seed)
        other = drawn(needed - needed // 10, 0.9, 20_000 + seed)
        more = units("held-out", control) + units("compacted", other)
        shown += compare_groups(more)[0].measures[0].verdict == "less"
    assert 0.6 <= shown / 60 <= 0.97


def test_units_in_both_groups_are_left_out():
    crossed = [unit("x", "held-out", cost=50.0), unit("x", "compacted", cost=90.0)]
    (compared,) = compare_groups([*crossed, unit("y", "compacted")])
    assert (compared.control_units, compared.other_units, compared.crossed) == (0, 1, 1)
    assert "Left out, as they changed groups: 1 conversation." in describe_comparison(compared)


def test_an_unknown_cost_counts_for_all_but_the_cost():
    found = units("held-out", [1.0] * 30) + units("compacted", [0.0] * 30, unpriced=2)
    (compared,) = compare_groups(found)
    cost, requests, *_ = compared.measures
    assert (cost.other.count, requests.other.count, compared.unpriced) == (0, 30, 30)
    assert (cost.verdict, requests.verdict) == ("too-few", "no-difference")


def test_holdout_and_noise_are_compared_apart():
    found = [unit("1", "a"), unit("2", "b"), unit("3", "held-out"), unit("4", "compacted")]
    assert [one.control for one in compare_groups(found)] == ["held-out", "a"]
    assert compare_groups([]) == []


def test_values_for_json_have_every_measure():
    (compared,) = compare_groups([unit("1", "held-out"), unit("2", "compacted", errors=3)])
    fields = comparison_fields(compared)
    errors = {one["measure"]: one for one in fields["measures"]}["errors"]
    assert (errors["control"], errors["other"], errors["verdict"]) == (0, 3, "too-few")
    assert fields["conversations"] == {"held-out": 1, "compacted": 1}
