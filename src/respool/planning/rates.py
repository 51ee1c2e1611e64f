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

    lifetime: float = 0  # seconds that its marks ask for; 0: it marks nothing
    room: bool = False  # fewer than the four that a request may have

    @property
    def told(self) -> Marks:
        """The same as a fact says it."""
        return next(told for told, marking in MARKINGS.items() if marking == self)


MINUTES = 300.0  # seconds that a mark asks for when it says nothing
MARKINGS: dict[Marks, Marking] = {
    "none": Marking(),
    "5m": Marking(MINUTES, room=True),
    "5m full": Marking(MINUTES),
    "1h": Marking(HOUR, room=True),
    "1h full": Marking(HOUR),
    "behind": Marking(MINUTES),  # how many marks that sets does not show
}


class Rates(Struct, frozen=True, gc=False):
    """Prices as multiples of plain input, and where a cached prefix may end."""

    read: float = 1.0
    write: float = 1.0
    exact: bool = True  # a prefix is found wherever it ends; else only where a request ended
    reach: int | None = None  # how many positions before the last mark are looked at; None: all
    ends: int | None = None  # how many requests' ends before the last are looked at; None: all
    room: bool = False  # one mark of our own fits, and is found wherever it stands
    minimum: int = 0  # a shorter prompt is not cached; 0: none is, or it is not known

    @property
    def caches(self) -> bool:
        """Whether a prefix that stays the same is cheaper than one that changes."""
        return self.write > self.read


NO_CACHE = Rates()


def rates_for(
    policy: Policy, format: str, fields: Mapping[str, Any] | None, marking: Marking
) -> Rates:
    """The rates of the model that a request names; what the policy sets comes first."""
    model = (fields or {}).get("model")
    terms = terms_for(format, model)
    found = _rates(terms, format, marking)
    read = found.read if policy.read_price is None else policy.read_price
    write = found.write if policy.write_price is None else policy.write_price
    minimum = terms.minimum if model and found.caches else 0
    return replace(found, read=read, write=write, minimum=minimum)


def _rates(terms: Terms, format: str, marking: Marking) -> Rates:
    match terms.cache:
        case "marks" if format != "anthropic":
            # A gateway marks what it passes on, or hands on marks of the client's: neither shows
            # here, and to take it for uncached would have it written again with every edit.
            return Rates(terms.read, terms.write, exact=False, reach=terms.look_back)
        case "marks" if marking.lifetime:
            write = terms.write_1h if marking.lifetime >= HOUR else terms.write
            return Rates(terms.read, write, exact=False, reach=terms.look_back, room=marking.room)
        case "prefix" | "implicit":
            return Rates(terms.read, terms.write)
        case "breakpoints":
            return Rates(terms.read, terms.write, exact=False, ends=terms.look_back)
        case _:
            return NO_CACHE  # nothing is cached, or nothing of the history is marked for it
