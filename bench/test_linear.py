"""Linear-time checks: every pass alone, every shape of history, and hard texts for counters."""

from __future__ import annotations

import pytest

from bench.growth import cases, hold_linear_growth
from respool.tokens import EstimateCounter, ExactCounter, TokenCounter
from tests import test_source_presets as sources
from tests.strategies import FORMATS
from tests.test_laws import CASES, hold_linear
from tests.test_tokens import HARD, costs_little

pytestmark = pytest.mark.bench


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", CASES)
def test_four_times_the_history_takes_about_four_times_as_long(name: str, format: str) -> None:
    hold_linear(name, format)


@pytest.mark.parametrize("counter", [ExactCounter(), EstimateCounter()], ids=lambda one: one.name)
@pytest.mark.parametrize("kind", HARD)
def test_a_million_hard_characters_cost_little_more_than_others(
    kind: str, counter: TokenCounter
) -> None:
    costs_little(HARD[kind](1_000_000), counter)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("preset", sources.SOURCES)
def test_a_sources_preset_too(preset: str, format: str) -> None:
    sources.test_one_more_turn_costs_one_more_turn(preset, format)


@pytest.mark.parametrize(("shape", "format"), cases())
def test_a_shape_of_history_in_linear_time(shape: str, format: str) -> None:
    hold_linear_growth(shape, format)
