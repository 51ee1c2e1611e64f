"""What a request cost by the provider's own count, and what it would have cost without respool."""

from __future__ import annotations

from msgspec import Struct

from ...pricing import CacheTerms, Usage

_MILLION = 1e6
_MOST_OF_IT = 0.5


class Sizes(Struct, frozen=True, gc=False):
    """How large a request was by respool's own count, and how much of it the cache had seen."""

    before: int  # tokens as it came
    after: int  # as it went up
    last: int = 0  # tokens of the request before it in its conversation, as that came
    warm: bool = False  # that was short ago: the provider still had it
    epoch: bool = False  # edits were put in force just now: what stands behind them was written
    marked: bool = True  # the client has its history cached, and not its head alone


class Bill(Struct, frozen=True, gc=False):
    """Dollars. What the provider's own cache saved is in both: `uncached - paid`, shown apart."""

    paid: float
    without: float
    uncached: float  # what the very request that was sent would have cost without a cache


def bill_of(usage: Usage, sizes: Sizes, terms: CacheTerms) -> Bill | None:
    """The bill of one request; None where no price is listed, or nothing was reported.

    Without respool never less would have been read from the cache than was: what conversations
    left there is not to respool's credit.
    """
    if not terms.dollars or not usage.prompt:
        return None
    a_token = terms.dollars / _MILLION
    output = usage.output * terms.output
    paid = (_prompt(usage, terms) + output) * a_token
    uncached = (usage.prompt + output) * a_token
    same = sizes.before == sizes.after and not sizes.epoch
    if same or not sizes.after:  # nothing was changed, or counted: nothing is claimed
        return Bill(paid, paid, uncached)
    whole = usage.prompt + _taken_out(usage, sizes, sizes.after)
    read = min(whole, max(_known(usage, sizes, whole), usage.cache_read))
    rate = _write_rate(usage, terms)
    without = (read * terms.read + (whole - read) * rate + output) * a_token
    return Bill(paid, without, uncached)


def _taken_out(usage: Usage, sizes: Sizes, sent: int) -> float:
    """What was taken out, in tokens of the provider's; `sent` is respool's count of what went up.

    As many as respool counts, or fewer where the provider does. It may count far more, for thoughts
    that it hides and for what it puts around calls: of these respool takes nothing out.
    """
    return (sizes.before - sizes.after) * min(1.0, usage.prompt / sent)


def _known(usage: Usage, sizes: Sizes, whole: float) -> float:
    """What the provider would have found of the last request, had that gone up as it came.

    What it did find of it, and all that was taken out, unless it found far less than what did go
    up: a client that marks only its head, or no more than what the user said, has the rest of its
    history nowhere.
    """
    if not sizes.warm:
        return 0.0
    last = whole - (sizes.before - sizes.last) * min(1.0, usage.prompt / sizes.after)
    found = min(last, usage.cache_read * whole / usage.prompt)
    if not sizes.marked:
        return found
    if sizes.epoch:
        return last
    taken_out = whole - usage.prompt
    return min(last, usage.cache_read + taken_out) if found >= _MOST_OF_IT * last else found


def observed_bill(usage: Usage, sizes: Sizes, terms: CacheTerms) -> Bill | None:
    """The same of a request that went up as it came: `paid` is what it would have been, about.

    Where edits would have been put in force just now, nothing is taken to be read from the cache,
    which is more than it would have cost.
    """
    real = bill_of(usage, Sizes(0, 0), terms)
    if real is None or not terms.dollars or not sizes.before:
        return real
    share = 1 - _taken_out(usage, sizes, sizes.before) / usage.prompt
    read = 0.0 if sizes.epoch else usage.cache_read * share
    rest = usage.prompt * share - read
    prompt = read * terms.read + rest * _write_rate(usage, terms)
    would = (prompt + usage.output * terms.output) * terms.dollars / _MILLION
    return Bill(would, real.paid, real.uncached) if share < 1 else real


def _prompt(usage: Usage, terms: CacheTerms) -> float:
    """What the prompt cost, in tokens of plain input."""
    longer = usage.cache_write_1h
    written = (usage.cache_write - longer) * terms.write + longer * terms.write_1h
    return usage.input + usage.cache_read * terms.read + written


def _write_rate(usage: Usage, terms: CacheTerms) -> float:
    """What a token costs that the cache did not have: as much as it did in this very request."""
    fresh = usage.input + usage.cache_write
    if not fresh:
        return 1.0
    return (_prompt(usage, terms) - usage.cache_read * terms.read) / fresh
