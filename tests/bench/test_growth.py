"""Growth exponents by shape of the history: each shape in each format, and a planted fault."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import respool
from bench.growth import (
    SHAPES,
    cases,
    compact_cold,
    hold_linear_calls,
    hold_linear_growth,
)
from respool.passes import OPT_IN, PASSES, keep_lines
from respool.policy import Policy

# Forecasts take most of the time of a history whose results are read; here they need not.
WITHOUT_FORECASTS = Policy(
    budget=2_000,
    passes=tuple(
        one.__name__ for one in PASSES if one is not keep_lines and one.__name__ not in OPT_IN
    ),
)
QUICK = {
    "over budget": replace(SHAPES["over budget"], count=100, policy=WITHOUT_FORECASTS),
    "images over budget": SHAPES["images over budget"],
    "edits over budget": replace(SHAPES["edits over budget"], count=80),
}


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "format"), cases())
def test_growth_exponents_by_shape(shape: str, format: str) -> None:
    hold_linear_growth(shape, format)


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "format"), cases())
def test_growth_exponents_of_calls_by_shape(shape: str, format: str) -> None:
    hold_linear_calls(SHAPES[shape], format)


@pytest.mark.parametrize("shape", QUICK)
def test_twice_the_history_over_its_budget_takes_about_twice_the_calls(shape: str) -> None:
    hold_linear_calls(QUICK[shape], "anthropic", doublings=1)


@pytest.mark.slow
def test_a_planted_quadratic_is_caught() -> None:
    def scan_all_for_each(body: bytes, format: str, policy: Policy) -> None:
        compact_cold(body, format, policy)
        lines = body.split(b"}")
        for line in lines:
            lines.count(line)

    with pytest.raises(AssertionError, match="tiny turns in anthropic: exponent"):
        hold_linear_growth("tiny turns", "anthropic", scan_all_for_each)


def test_every_shape_has_a_request_in_its_formats() -> None:
    """Each is longer for a larger n, and is read without a repair."""
    for name, format in cases():
        few, more = (SHAPES[name].make(format, n) for n in (2, 6))
        assert len(few) < len(more), name
        assert respool.check(more, format=format) == [], (name, format)
