"""Cost of a request by the provider's count, and its cost without respool."""

from __future__ import annotations

import pytest

from respool.pricing import CacheTerms, Usage
from respool.proxy.billing import Sizes, cost_of, observed_cost


@pytest.mark.parametrize(
    ("sizes", "paid", "without"),
    [
        (Sizes(100, 100), 55.0, 55.0),  # nothing would have been taken out
        (Sizes(100, 50), 27.5, 55.0),  # half of what was read and of what was new
        (Sizes(100, 50, is_epoch=True), 50.0, 55.0),  # all of it would have been written anew
        (Sizes(0, 0), 55.0, 55.0),  # nothing was counted
    ],
)
def test_an_observed_request_would_have_cost(sizes: Sizes, paid: float, without: float):
    terms = CacheTerms(cache="breakpoints", dollars=1e6, read=0.1, write=1.0, output=1.0)
    bill = observed_cost(Usage(input=50, cache_read=50), sizes, terms)
    assert bill is not None
    assert (bill.paid, bill.without, bill.uncached) == pytest.approx((paid, without, 100.0))


def test_what_the_provider_alone_counts_would_not_have_gone():
    terms = CacheTerms(cache="breakpoints", dollars=1e6, read=0.1, write=1.0, output=1.0)
    bill = observed_cost(Usage(input=100, cache_read=100), Sizes(100, 50), terms)
    assert bill is not None
    assert (bill.paid, bill.without) == pytest.approx((82.5, 110.0))


@pytest.mark.parametrize(
    ("sizes", "usage", "without"),
    [
        # sent as it came: it cost what it would have cost, whoever filled the cache
        (Sizes(100, 100), Usage(input=50, cache_read=50), 55.0),
        (Sizes(100, 100, 90, is_warm=True), Usage(input=50, cache_read=50), 55.0),
        (Sizes(100, 100, 90, is_warm=True, is_epoch=True), Usage(input=50, cache_read=50), 19.0),
        # half of it: a first request has nothing of its own in the cache
        (Sizes(200, 100), Usage(input=100), 200.0),
        (Sizes(200, 100), Usage(input=50, cache_read=50), 155.0),
        # and a later one all of the request before it
        (Sizes(200, 100, 180, is_warm=True), Usage(input=10, cache_read=90), 38.0),
        (Sizes(200, 100, 40, is_warm=True), Usage(input=10, cache_read=90), 119.0),
        (Sizes(200, 100, 180, is_warm=True), Usage(input=100), 200.0),  # it was gone there
        (Sizes(200, 100, 180, is_warm=True, is_epoch=True), Usage(input=100), 38.0),
        # who marks only a head of 10 tokens, or nothing, has no history in the cache
        (Sizes(200, 100, 180, is_warm=True), Usage(input=90, cache_read=10), 182.0),
        (
            Sizes(200, 100, 180, True, True, has_breakpoints=False),
            Usage(input=90, cache_read=10),
            182.0,
        ),
        (Sizes(200, 100, 180, True, True, has_breakpoints=False), Usage(input=100), 200.0),
        # who marks what the user said last has half of it there
        (Sizes(200, 100, 180, is_warm=True), Usage(input=60, cache_read=40), 128.0),
        (Sizes(0, 0), Usage(input=50, cache_read=50), 55.0),  # nothing was counted
        # of thoughts that are hidden, which only the provider counts, nothing was taken out
        (Sizes(200, 100), Usage(input=300), 400.0),
        (Sizes(200, 100, 180, is_warm=True), Usage(input=20, cache_read=180), 48.0),
        (Sizes(200, 100, 180, is_warm=True, is_epoch=True), Usage(input=200), 48.0),
        # new ones among what the model said since are new without respool, too
        (Sizes(200, 100, 180, is_warm=True), Usage(input=80, cache_read=120), 102.0),
        # who counts less than respool does has had less taken out
        (Sizes(200, 100), Usage(input=50), 100.0),
    ],
)
def test_without_respool_a_request_would_have_cost(sizes: Sizes, usage: Usage, without: float):
    terms = CacheTerms(cache="prefix", dollars=1e6, read=0.1, write=1.0, output=1.0)
    bill = cost_of(usage, sizes, terms)
    assert bill is not None
    assert bill.without == pytest.approx(without)
    assert bill.paid == pytest.approx(usage.input + usage.cache_read * 0.1)


def test_no_price_no_bill():
    unpriced = CacheTerms(cache="breakpoints")
    assert cost_of(Usage(input=50), Sizes(100, 50), unpriced) is None
    assert observed_cost(Usage(input=50), Sizes(100, 50), unpriced) is None
