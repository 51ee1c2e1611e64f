"""Cost model of a boundary: requests to come, and the price of a refetch."""

from __future__ import annotations

from msgspec import Struct

from ..pricing import Rates

# Fitted on recorded sessions by bench/fit_forecast.py: the number of requests still to come.
_HORIZON_RATIO = 0.5  # of those so far
_MIN_HORIZON = 40.0  # the median, however many there were
# The cost of a lost turn: the model asks again, in so many tokens, and carries the answer.
_ANSWER_TOKENS, _QUESTION_TOKENS, _OUTPUT_PRICE = 1_500, 150, 5.0
_MAX_RISK = 0.01  # lost turns for each token, whatever one costs


class BoundaryTerms(Struct, frozen=True, gc=False):
    """Terms of one boundary, by which offers are priced."""

    requests: int  # sent so far, this one included
    projected: int  # tokens of the projection and its head
    is_rewrite_free: bool = False  # the cache is cold or another model's: all is written anyway
    is_over_budget: bool = False  # the price of a prefix break no longer counts
    caution: float = 1.0  # factor on the cost of a lost turn

    @property
    def horizon(self) -> float:
        """The number of requests expected after this one."""
        return max(_MIN_HORIZON, _HORIZON_RATIO * self.requests)


def token_cost(rates: Rates, terms: BoundaryTerms) -> float:
    """The cost of keeping one token from now on."""
    return rates.read * terms.horizon + rates.write


def refetch_cost(rates: Rates, terms: BoundaryTerms) -> float:
    """The cost of asking again for one removed thing."""
    carried = _ANSWER_TOKENS * (rates.write + rates.read * terms.horizon)
    return rates.read * terms.projected + _OUTPUT_PRICE * _QUESTION_TOKENS + carried


def break_even_risk(rates: Rates, terms: BoundaryTerms) -> float:
    """Turns that may miss something for each token removed, so that the removal still pays."""
    lost = refetch_cost(rates, terms) * terms.caution
    return min(_MAX_RISK, token_cost(rates, terms) / max(1e-9, lost))
