"""What a token of a request costs: read from the provider's cache, or written behind a cut."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..facts import Marks
from ..policy import Policy
from ..prices import Terms, terms_for

HOUR = 3_600.0  # seconds that a mark can ask for


class Marking(Struct, frozen=True, gc=False):
    """How a client marks its history: for how long, and whether one more mark fits."""

    ttl_seconds: float = 0  # seconds that its marks ask for; 0: it marks nothing
    has_spare: bool = False  # fewer than the four that a request may have

    @property
    def mode(self) -> Marks:
        """The same as a fact says it."""
        return next(told for told, marking in MARKINGS.items() if marking == self)


MINUTES = 300.0  # seconds that a mark asks for when it says nothing
MARKINGS: dict[Marks, Marking] = {
    "none": Marking(),
    "5m": Marking(MINUTES, has_spare=True),
    "5m full": Marking(MINUTES),
    "1h": Marking(HOUR, has_spare=True),
    "1h full": Marking(HOUR),
    "behind": Marking(MINUTES),  # how many marks that sets does not show
}


class Rates(Struct, frozen=True, gc=False):
    """Prices as multiples of plain input, and where a cached prefix may end."""

    read: float = 1.0
    write: float = 1.0
    matches_any_prefix: bool = True  # a prefix is found wherever it ends; else only where a request ended
    lookback_positions: int | None = None  # how many positions before the last mark are looked at; None: all
    lookback_requests: int | None = None  # how many requests' ends before the last are looked at; None: all
    has_spare_breakpoint: bool = False  # one mark of our own fits, and is found wherever it stands
    minimum: int = 0  # a shorter prompt is not cached; 0: none is, or it is not known

    @property
    def caches(self) -> bool:
        """Whether a prefix that stays the same is cheaper than one that changes."""
        return self.write > self.read


NO_CACHE = Rates()


def rates_for(
    policy: Policy, format: str, fields: Mapping[str, Any] | None, usage: Marking
) -> Rates:
    """The rates of the model that a request names; what the policy sets comes first."""
    model = (fields or {}).get("model")
    terms = terms_for(format, model)
    found = _rates(terms, format, usage)
    read = found.read if policy.cache_read_price is None else policy.cache_read_price
    write = found.write if policy.cache_write_price is None else policy.cache_write_price
    minimum = terms.minimum if model and found.caches else 0
    return replace(found, read=read, write=write, minimum=minimum)


def _rates(terms: Terms, format: str, usage: Marking) -> Rates:
    match terms.cache:
        case "marks" if format != "anthropic":
            # A gateway marks what it passes on, or hands on marks of the client's: neither shows
            # here, and to take it for uncached would have it written again with every edit.
            return Rates(terms.read, terms.write, matches_any_prefix=False, lookback_positions=terms.look_back)
        case "marks" if usage.ttl_seconds:
            write = terms.write_1h if usage.ttl_seconds >= HOUR else terms.write
            return Rates(terms.read, write, matches_any_prefix=False, lookback_positions=terms.look_back, has_spare_breakpoint=usage.has_spare)
        case "prefix" | "implicit":
            return Rates(terms.read, terms.write)
        case "breakpoints":
            return Rates(terms.read, terms.write, matches_any_prefix=False, lookback_requests=terms.look_back)
        case _:
            return NO_CACHE  # nothing is cached, or nothing of the history is marked for it
