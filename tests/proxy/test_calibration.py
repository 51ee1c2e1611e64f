"""Calibration of respool's counts by the provider's: a robust factor, in bounded memory."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.pricing import MIN_SAMPLE_TOKENS, MIN_SAMPLES, Calibration
from respool.proxy.billing import MAX_MODELS, MAX_SAMPLES, Calibrations
from tests.effort import examples


def taught(*pairs: tuple[int, int]) -> Calibrations:
    known = Calibrations()
    for counted, reported in pairs:
        known.note("anthropic", "m", counted, reported)
    return known


def test_the_factor_is_that_of_most_requests() -> None:
    known = taught(*[(1000, 1100)] * 6, (1000, 2900), (1000, 600))  # two that do not belong
    assert known.of("anthropic", "m") == Calibration("m", 1.1, 0.6, 2.9, 8)
    assert known.scaled("anthropic", "m", 500) == 550


def test_long_prompts_weigh_more() -> None:
    found = taught(*[(400, 800)] * 6, (100_000, 120_000)).of("anthropic", "m")
    assert found is not None
    assert found.factor == 1.2


@pytest.mark.parametrize(
    ("counted", "reported"),
    [(MIN_SAMPLE_TOKENS - 1, MIN_SAMPLE_TOKENS), (0, 10), (1000, 0), (1000, 400), (1000, 3100)],
)
def test_what_no_tokenizer_does_teaches_nothing(counted: int, reported: int) -> None:
    known = Calibrations()
    assert not known.note("p", "m", counted, reported)
    assert known.all() == {}


def test_a_few_requests_tell_nothing() -> None:
    known = taught(*[(1000, 1100)] * (MIN_SAMPLES - 1))
    assert known.of("anthropic", "m") is None
    assert known.scaled("anthropic", "m", 500) == 500


def test_providers_and_models_are_apart() -> None:
    known = Calibrations()
    for _ in range(MIN_SAMPLES):
        known.note("a", "m", 1000, 1100)
        known.note("b", "m", 1000, 1300)
        known.note("a", "n", 1000, 1500)
    factors = {key: one.factor for key, one in known.all().items()}
    assert factors == {("a", "m"): 1.1, ("b", "m"): 1.3, ("a", "n"): 1.5}


def test_the_latest_pairs_count() -> None:
    known = taught(*[(1000, 2000)] * 500, *[(1000, 1100)] * MAX_SAMPLES)
    found = known.of("anthropic", "m")
    assert found is not None
    assert (found.factor, found.requests) == (1.1, MAX_SAMPLES)


def test_the_models_that_are_kept_are_bounded_and_the_oldest_go() -> None:
    known = Calibrations()
    for at in range(3 * MAX_MODELS):
        for _ in range(MIN_SAMPLES):
            known.note("p", f"m{at}", 1000, 1100)
    kept = known.all()
    assert len(kept) == MAX_MODELS
    assert ("p", f"m{3 * MAX_MODELS - 1}") in kept
    assert ("p", "m0") not in kept
    assert sys.getsizeof(kept) < 100_000


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(st.tuples(st.integers(-5, 10**6), st.integers(-5, 10**6)), max_size=80),
)
def test_a_factor_lies_between_its_bounds(pairs: list[tuple[int, int]]) -> None:
    found = taught(*pairs).of("anthropic", "m")
    if found is not None:
        assert 0.5 <= found.low <= found.high <= 3.0
        assert 0.5 <= found.factor <= 3.0
        assert MIN_SAMPLES <= found.requests <= MAX_SAMPLES


def test_a_model_that_is_still_heard_of_stays() -> None:
    known = taught(*[(1000, 1100)] * MIN_SAMPLES)
    for at in range(2 * MAX_MODELS):
        known.note("p", f"m{at}", 1000, 1100)
        known.note("anthropic", "m", 1000, 1100)
    assert known.of("anthropic", "m") is not None
