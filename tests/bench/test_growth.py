"""Growth exponents by shape of the history: each shape in each format, and a planted fault."""

from __future__ import annotations

import pytest

import respool
from bench.growth import SHAPES, cases, compact_cold, hold_linear_growth
from respool.policy import Policy


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "format"), cases())
def test_growth_exponents_by_shape(shape: str, format: str) -> None:
    hold_linear_growth(shape, format)


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
