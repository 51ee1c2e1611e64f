"""Reconciliation benchmark: each calibration table, from few growths on."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bench.reconciliation import Found, enough, growth_errors, models
from respool.pricing import Growth
from tests.replay.results import sample

MODEL = "claude-opus-4-7"


def found(growths: int) -> list[Found]:
    """Two sessions of Claude Code with so many growths each, at 1.5 and at 1.6."""
    results = [one for one in sample(8).sessions if one.agent == "claude-code"][:2]
    return [
        Found(name, replace(one, samples=(Growth(MODEL, 1_000, longer),) * growths), {}, ())
        for one, name, longer in zip(results, ("loom", "dye"), (1_500, 1_600), strict=True)
    ]


def test_how_many_growths_are_enough_is_told_from_the_first_on() -> None:
    made = enough(found(30))
    assert list(made.columns[0].cells) == [f"the first {n}" for n in (1, 2, 3, 5, 8, 13, 21)]
    assert set(made.columns[2].cells) == {"0.0"}  # each session's own factor is exact here


@pytest.mark.parametrize("growths", [1, 4, 5, 30])
def test_tables_need_no_more_growths_than_there_are(growths: int) -> None:
    few = found(growths)
    assert len(models(few).rows) == (2 * growths >= 5)
    assert len(growth_errors(few).rows) == 3
