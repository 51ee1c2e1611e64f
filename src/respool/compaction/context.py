"""Context: all that a fold depends on beside the history itself, and the costs of a boundary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from msgspec import Struct

from ..facts import Facts
from ..limits import RequestLimits, max_output_tokens
from ..passes import Pass
from ..policy import Policy
from ..pricing import Rates
from ..providers.base import Codec, Provider
from ..providers.bound_reasoning import Binding
from ..tokens import TokenCounter
from ..wire.base import Fields
from ..wire.json import JSON
from ..wire.layout import LazyFields

# Fitted on recorded sessions by bench/fit_forecast.py: the number of requests still to come.
_HORIZON_RATIO = 0.5  # of those so far
_MIN_HORIZON = 40.0  # the median, however many there were
# The cost of a lost turn: the model asks again, in so many tokens, and carries the answer.
_ANSWER_TOKENS, _QUESTION_TOKENS, _OUTPUT_PRICE = 1_500, 150, 5.0
_MAX_RISK = 0.01  # lost turns for each token, at any token price


class BoundaryTerms(Struct, frozen=True, gc=False):
    """Terms of one boundary, by which offers are priced."""

    requests: int  # sent so far, this one included
    projected: int  # tokens of the projection and its head
    is_rewrite_free: bool = False  # the cache is cold or another model's: all is written anyway
    is_over_budget: bool = False  # the price of a prefix break no longer counts
    caution: float = 1.0  # factor on the cost of a lost turn
    max_cost: float = inf  # of an epoch if no request follows

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


class Counters(Struct, frozen=True):
    """Token counters of a request."""

    exact: TokenCounter  # judges savings, budgets and the report
    fast: TokenCounter  # the same where it is fast, else the estimate; schedules evaluations


class RequestContext(Struct, frozen=True, kw_only=True):
    """Properties of one request beside its history."""

    fields: Fields | None
    encode: Callable[[int | None, JSON], bytes | None]  # the encoding of a changed message
    definitions: Mapping[str, Any]  # the tools that the request defines, by name
    fetch_tool: str | None  # the one among them that returns originals; None: see the history
    head: int  # tokens of system prompt and tools
    output_tokens: int  # tokens of output that the request asks for
    binding: Binding
    start_key: bytes = b""  # memo key of the empty history; empty: not computed yet


class Context(Struct, frozen=True, kw_only=True):
    """All that a fold depends on beside the history itself."""

    provider: Provider
    policy: Policy
    passes: tuple[Pass, ...]
    counters: Counters
    rates: Rates
    limits: RequestLimits
    request: RequestContext
    facts: Facts

    @property
    def codec(self) -> Codec:
        """The codec of the request's wire format."""
        return self.provider.codec

    @property
    def counter(self) -> TokenCounter:
        """The exact counter."""
        return self.counters.exact

    @property
    def fields(self) -> Fields | None:
        """The request beside its history; None: a bare list of messages."""
        return self.request.fields

    @property
    def head(self) -> int:
        """Tokens of system prompt and tools."""
        return self.request.head

    @property
    def output_tokens(self) -> int:
        """Tokens of output that the request asks for."""
        return self.request.output_tokens

    @property
    def binding(self) -> Binding:
        """The provider's rule for reasoning that is bound to its prefix."""
        return self.request.binding

    def terms(
        self,
        requests: int,
        tokens: int,
        limits: RequestLimits,
        *,
        is_rewrite_free: bool = False,
        is_over_budget: bool = False,
    ) -> BoundaryTerms:
        """Terms of a boundary after so many requests, with a projection of so many tokens."""
        return BoundaryTerms(
            requests,
            tokens if limits.tokens is None else min(tokens, limits.tokens),
            is_rewrite_free=is_rewrite_free,
            is_over_budget=is_over_budget,
            caution=self.policy.miss_penalty,
        )

    def break_even_risk(self, requests: int, tokens: int, limits: RequestLimits) -> float:
        """Turns that may miss something for each token removed, so that the removal still pays."""
        return break_even_risk(self.rates, self.terms(requests, tokens, limits))


def complete_fields(fields: Fields | None, model: str | None, output: int = 0) -> Fields | None:
    """The fields of a request that says its model elsewhere, or asks for no output itself."""
    more: dict[str, str | int] = {}
    if model is not None and not (fields and "model" in fields):
        more["model"] = model
    if output > 0 and not max_output_tokens(fields):
        more["max_tokens"] = output
    if not more:
        return fields
    if isinstance(fields, LazyFields):  # which give undecoded ones when they are spread
        return fields.with_extra(more)
    return {**(fields or {}), **more}
