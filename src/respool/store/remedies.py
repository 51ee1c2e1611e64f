"""Costs that recorded pauses would have had with a longer cache lifetime or with keep-alive pings.

Pure functions over rows of the request records. All requests stay as they were sent. So a prefix
that respool compacted after a pause counts as written again, whatever the remedy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import Struct

from ..pauses import MAX_PINGS, ping_seconds, ping_value
from ..pricing import LONG_TTL_SECONDS, SHORT_TTL_SECONDS, CacheTerms, priced, terms_for
from ..wire.base import wire_format
from .base import Remedies


class Charge(Struct, frozen=True, kw_only=True, gc=False):
    """Usage and dollars of a request, or of many with one model at one price."""

    format: str
    model: str
    time: float
    input: int
    cache_read: int
    cache_write: int
    output: int
    paid: float
    uncached: float  # the same without a prompt cache; 0: not known

    def terms(self) -> CacheTerms | None:
        """The model's terms; None: no price, or the client cannot choose a cache lifetime."""
        if not self.uncached or not wire_format(self.format).has_client_breakpoints:
            return None
        terms = terms_for(self.format, self.model)
        if terms.cache != "explicit":
            return None
        return priced(terms, self.format, self.model, self.time)

    @property
    def prompt(self) -> int:
        """All tokens of the prompt."""
        return self.input + self.cache_read + self.cache_write

    def token_price(self, terms: CacheTerms) -> float:
        """Dollars for a token of plain input."""
        size = self.prompt + self.output * terms.output
        return self.uncached / size if size else 0.0

    def short_writes(self, terms: CacheTerms) -> float:
        """Tokens written for five minutes, by what all writes cost."""
        token = self.token_price(terms)
        if not token or terms.write_1h <= terms.write:
            return float(self.cache_write)
        rest = self.input + self.cache_read * terms.read + self.output * terms.output
        written = self.paid / token - rest
        dear = (written - self.cache_write * terms.write) / (terms.write_1h - terms.write)
        return min(max(0.0, self.cache_write - dear), float(self.cache_write))

    def lifetime(self, terms: CacheTerms) -> float:
        """Seconds that most of what it wrote was kept; five minutes if it wrote nothing."""
        is_short = self.short_writes(terms) * 2 >= self.cache_write
        return SHORT_TTL_SECONDS if is_short else LONG_TTL_SECONDS


class Pause(Struct, frozen=True, kw_only=True, gc=False):
    """A request that came after its cached prefix had expired."""

    charge: Charge
    expired: int  # tokens written again
    expired_cost: float  # dollars for that, beyond reading them
    parent: int | None = None  # row of its parent request; None: not recorded
    seconds: float = 0.0  # since its parent request
    is_compacted: bool = False  # new edits took effect here
    removed: int = 0  # tokens that respool saved, less those that it had saved before


class Idle(Struct, frozen=True, kw_only=True, gc=False):
    """A request, and the time until the next one of its conversation."""

    row: int
    charge: Charge
    seconds: float
    pause: Pause | None = None  # the next request, if its prefix had expired


def value_remedies(
    pauses: Collection[Pause], writes: Iterable[Charge], idle: Iterable[Idle]
) -> Remedies:
    """What the recorded requests would have cost with each remedy, as differences."""
    compacted = [one for one in pauses if one.is_compacted]
    pings, ping_money, kept = _pinged(idle)
    found = [one for one in pauses if _is_found_within_hour(one)]
    short_writes, dearer = _short_writes(writes)
    return Remedies(
        pauses=sum(one.charge.terms() is not None for one in pauses),
        compacted=len(compacted),
        removed=sum(max(0, one.removed) for one in compacted),
        short_writes=short_writes,
        hour_found=len(found),
        hour_saved=sum(one.expired_cost for one in found),
        hour_money=max(0.0, dearer - sum(_dearer(one) for one in found)),
        pings=pings,
        ping_money=ping_money,
        pings_found=len(kept),
        pings_saved=sum(one.expired_cost for one in kept),
    )


def _short_writes(writes: Iterable[Charge]) -> tuple[int, float]:
    """Tokens written for five minutes, and the dollars more that an hour would have cost."""
    tokens = money = 0.0
    for one in writes:
        terms = one.terms()
        if terms is not None:
            short = one.short_writes(terms)
            tokens += short
            money += short * (terms.write_1h - terms.write) * one.token_price(terms)
    return round(tokens), money


def _is_found_within_hour(pause: Pause) -> bool:
    """True if a lifetime of one hour would have kept the prefix."""
    if pause.charge.terms() is None or pause.parent is None or pause.is_compacted:
        return False
    return pause.seconds <= LONG_TTL_SECONDS


def _dearer(pause: Pause) -> float:
    """Dollars more for an hour of what the pause had written again."""
    terms = pause.charge.terms()
    if terms is None:
        return 0.0
    tokens = min(float(pause.expired), pause.charge.short_writes(terms))
    return tokens * (terms.write_1h - terms.write) * pause.charge.token_price(terms)


def _pinged(idle: Iterable[Idle]) -> tuple[int, float, list[Pause]]:
    """Pings as the proxy decides on them, their dollars, and the pauses whose prefix they keep.

    Records do not hold what a conversation waited for. The user is assumed: pings pay less then.
    """
    count, money, kept = 0, 0.0, list[Pause]()
    for one in idle:
        terms = one.charge.terms()
        if terms is None or one.charge.cache_read + one.charge.cache_write <= terms.minimum:
            continue
        lifetime = one.charge.lifetime(terms)
        pings = _pings_within(one, terms, lifetime)
        count += pings
        money += pings * _ping_money(one.charge, terms)
        pause, used = one.pause, pings * ping_seconds(lifetime)
        if not pings or pause is None or pause.is_compacted or pause.parent != one.row:
            continue
        if one.seconds - used <= lifetime:
            kept.append(pause)
    return count, money, kept


def _pings_within(idle: Idle, terms: CacheTerms, lifetime: float) -> int:
    """Pings that pay and are due before the next request."""
    pings = 0
    while pings < MAX_PINGS and (pings + 1) * ping_seconds(lifetime) < idle.seconds:
        worth = ping_value(
            pings + 1,
            lifetime=lifetime,
            waits_for="user",
            read=terms.read,
            write=terms.write if lifetime == SHORT_TTL_SECONDS else terms.write_1h,
            fixed=terms.output / max(1, idle.charge.prompt),
        )
        if worth <= 0:
            break
        pings += 1
    return pings


def _ping_money(charge: Charge, terms: CacheTerms) -> float:
    """Dollars for a request again: its prompt from the cache, and one token of output."""
    cached = charge.cache_read + charge.cache_write
    return (cached * terms.read + charge.input + terms.output) * charge.token_price(terms)
