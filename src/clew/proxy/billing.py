"""What a request cost by the provider's own count, and what it would have cost without clew."""

from __future__ import annotations

from msgspec import Struct

from ..prices import Terms
from ..sessions.session import Usage

_MILLION = 1e6


class Sizes(Struct, frozen=True, gc=False):
    """How large a request was by clew's own count, and how much of it the cache had seen."""

    before: int  # tokens as it came
    after: int  # as it went up
    last: int = 0  # tokens of the request before it in its conversation, as that came
    warm: bool = False  # that was short ago: the provider still had it
    epoch: bool = False  # edits were put in force just now: what stands behind them was written


class Bill(Struct, frozen=True, gc=False):
    """Dollars; what the provider's own cache saved is in both."""

    paid: float
    without: float
    uncached: float  # what it would have cost with neither clew nor a cache


def bill_of(usage: Usage, sizes: Sizes, terms: Terms) -> Bill | None:
    """The bill of one request; None where no price is listed, or nothing was reported.

    Without clew the same conversation would have been read from the cache as far as the last
    request went, unless the provider did not even have the part that clew left as it was.
    """
    if not terms.dollars or not usage.prompt or not sizes.after:
        return None
    whole = sizes.before * usage.prompt / sizes.after
    had = sizes.warm and (usage.cache_read > 0 or sizes.epoch)
    read = min(whole, sizes.last * usage.prompt / sizes.after) if had else 0.0
    rate = _write_rate(usage, terms)
    a_token = terms.dollars / _MILLION
    output = usage.output * terms.output
    return Bill(
        paid=(_prompt(usage, terms) + output) * a_token,
        without=(read * terms.read + (whole - read) * rate + output) * a_token,
        uncached=(whole + output) * a_token,
    )


def _prompt(usage: Usage, terms: Terms) -> float:
    """What the prompt cost, in tokens of plain input."""
    longer = usage.cache_write_1h
    written = (usage.cache_write - longer) * terms.write + longer * terms.write_1h
    return usage.input + usage.cache_read * terms.read + written


def _write_rate(usage: Usage, terms: Terms) -> float:
    """What a token costs that the cache did not have: as much as it did in this very request."""
    fresh = usage.input + usage.cache_write
    if not fresh:
        return 1.0
    return (_prompt(usage, terms) - usage.cache_read * terms.read) / fresh
