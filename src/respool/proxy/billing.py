"""Costs: the bill of a request, calibrated token counts, and the totals of one run."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from threading import Lock
from typing import Final

from msgspec import Struct

from ..pricing import (
    MIN_SAMPLE_TOKENS,
    CacheTerms,
    Calibration,
    Growth,
    Usage,
    calibrations,
    is_plausible_factor,
)
from ..store import RequestRecord
from ..store.savings import Saving, add_savings, saving_of_record, state_saving

_MILLION: Final = 1e6
_MOSTLY_FOUND: Final = 0.5


class Sizes(Struct, frozen=True, gc=False):
    """The tokens of a request by respool's own count, and what the cache had of it."""

    before: int  # as it came
    after: int  # as it was sent
    parent: int = 0  # of its parent request, as that came
    is_warm: bool = False  # the provider still had the parent request
    is_epoch: bool = False  # new edits took effect: everything behind them was written
    has_breakpoints: bool = True  # the client has its history cached, not only its head
    max_scale: float = 1.0  # of what was removed, by a larger count of the provider's

    def scale(self, prompt: int, sent: int) -> float:
        """The provider's tokens per counted one, of a prompt of which respool counted `sent`."""
        return min(self.max_scale, prompt / sent)


class RequestCost(Struct, frozen=True, gc=False):
    """The cost of a request in dollars; the provider's cache counts in all but `uncached`."""

    paid: float
    without: float  # respool
    uncached: float  # the cost of the request that was sent, without the provider's cache


def cost_of(usage: Usage, sizes: Sizes, terms: CacheTerms) -> RequestCost | None:
    """The cost of one request; None if no price is listed, or no usage was reported.

    Without respool no less would have been read from the cache than was: what other conversations
    left there is not to respool's credit.
    """
    if not terms.dollars or not usage.prompt:
        return None
    a_token = terms.dollars / _MILLION
    output = usage.output * terms.output
    paid = (_prompt(usage, terms) + output) * a_token
    uncached = (usage.prompt + output) * a_token
    is_unchanged = sizes.before == sizes.after and not sizes.is_epoch
    if is_unchanged or not sizes.after:  # nothing was changed or counted: nothing is claimed
        return RequestCost(paid, paid, uncached)
    prompt = usage.prompt + _removed(usage, sizes, sizes.after)
    read = min(prompt, max(_cached(usage, sizes, prompt), usage.cache_read))
    rate = _write_rate(usage, terms)
    without = (read * terms.read + (prompt - read) * rate + output) * a_token
    return RequestCost(paid, without, uncached)


def _removed(usage: Usage, sizes: Sizes, sent: int) -> float:
    """The tokens that were removed, as the provider counts; `sent` is respool's count.

    If the provider counts fewer tokens, fewer were removed. It may count far more, for hidden
    reasoning and for the framing of calls, of which respool removes nothing.
    """
    return (sizes.before - sizes.after) * sizes.scale(usage.prompt, sent)


def _cached(usage: Usage, sizes: Sizes, prompt: float) -> float:
    """The tokens that the provider's cache would have held if the parent was sent as it came.

    That is what it did find, and all that was removed. If it found far less than was sent, the
    client has breakpoints on its head only, and the rest of its history is cached nowhere.
    """
    if not sizes.is_warm:
        return 0.0
    parent = prompt - (sizes.before - sizes.parent) * sizes.scale(usage.prompt, sizes.after)
    found = min(parent, usage.cache_read * prompt / usage.prompt)
    if not sizes.has_breakpoints:
        return found
    if sizes.is_epoch:
        return parent
    if found < _MOSTLY_FOUND * parent:
        return found
    return min(parent, usage.cache_read + prompt - usage.prompt)


def observed_cost(usage: Usage, sizes: Sizes, terms: CacheTerms) -> RequestCost | None:
    """The cost of an observed request, which was sent as it came; `paid` is an estimate.

    If new edits would have taken effect, nothing counts as read from the cache. That is more than
    it would have cost.
    """
    real = cost_of(usage, Sizes(0, 0), terms)
    if real is None or not terms.dollars or not sizes.before:
        return real
    share = 1 - _removed(usage, sizes, sizes.before) / usage.prompt
    read = 0.0 if sizes.is_epoch else usage.cache_read * share
    rest = usage.prompt * share - read
    prompt = read * terms.read + rest * _write_rate(usage, terms)
    estimate = (prompt + usage.output * terms.output) * terms.dollars / _MILLION
    return RequestCost(estimate, real.paid, real.uncached) if share < 1 else real


def _prompt(usage: Usage, terms: CacheTerms) -> float:
    """The cost of the prompt, in tokens of plain input."""
    one_hour = usage.cache_write_1h
    written = (usage.cache_write - one_hour) * terms.write + one_hour * terms.write_1h
    return usage.input + usage.cache_read * terms.read + written


def _write_rate(usage: Usage, terms: CacheTerms) -> float:
    """The cost of a token that the cache does not have, by this very request."""
    fresh = usage.input + usage.cache_write
    if not fresh:
        return 1.0
    return (_prompt(usage, terms) - usage.cache_read * terms.read) / fresh


# --- what is paid besides ----------------------------------------------------------------------

_NOISE: Final = 0.05  # of an expected prefix: a smaller gap is an error of the count


class CacheLoss(Struct, frozen=True, gc=False):
    """What a request paid for its head, and for prefixes that the cache had held; in dollars."""

    head_cost: float | None = None  # None: no price is listed
    expired: int = 0  # tokens
    expired_cost: float | None = None
    missed: int = 0  # tokens
    missed_cost: float | None = None


def cache_loss(
    usage: Usage, sizes: Sizes, terms: CacheTerms, *, head: int, moment: str
) -> CacheLoss:
    """Price a request's head, and the part of its parent that was written again.

    It had expired if the cache was cold, and was missed if it was warm. New edits, and another
    model or other tools, explain themselves and count as neither.
    """
    sent = sizes.after
    if not sent or not usage.prompt or terms.cache == "none":
        return CacheLoss()
    scale = usage.prompt / sent
    a_token = None if terms.dollars is None else terms.dollars / _MILLION
    rate = _write_rate(usage, terms)
    in_head = min(usage.prompt, head * scale)
    read = min(usage.cache_read, in_head)
    head_cost = None if a_token is None else (read * terms.read + (in_head - read) * rate) * a_token
    prefix = max(0.0, min(sent, sent - (sizes.before - sizes.parent))) * scale
    lost = max(0, round(prefix - usage.cache_read)) if sizes.parent else 0
    if lost <= _NOISE * prefix or prefix < terms.minimum:
        return CacheLoss(head_cost)
    cost = None if a_token is None else lost * (rate - terms.read) * a_token
    if moment == "cold":
        return CacheLoss(head_cost, expired=lost, expired_cost=cost)
    if moment or sizes.is_epoch or not sizes.is_warm:
        return CacheLoss(head_cost)
    return CacheLoss(head_cost, missed=lost, missed_cost=cost)


# --- calibration -------------------------------------------------------------------------------

MAX_MODELS: Final = 256  # of which samples are kept, the most recently used
MAX_SAMPLES: Final = 64  # of each model, the latest: a provider may change its tokenizer

ModelKey = tuple[str, str]  # format and model


class Calibrations:
    """The ratio of a provider's token counts to respool's, by model; bounded; threads may share it.

    It changes reports and never a projection: two machines would learn different factors.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._samples: OrderedDict[ModelKey, deque[Growth]] = OrderedDict()

    def note(self, format: str, model: str, counted: int, reported: int) -> bool:
        """Add respool's count of a prompt and the provider's; False: they are no sample.

        A short prompt is mostly framing. A ratio that no tokenizer has is from another cause, such
        as a prompt with more in it than the request.
        """
        if counted < MIN_SAMPLE_TOKENS or not is_plausible_factor(reported / counted):
            return False
        with self._lock:
            samples = self._samples.setdefault((format, model), deque(maxlen=MAX_SAMPLES))
            samples.append(Growth(model, counted, reported))
            self._samples.move_to_end((format, model))
            if len(self._samples) > MAX_MODELS:
                self._samples.popitem(last=False)
        return True

    def of(self, format: str, model: str) -> Calibration | None:
        """The factor of a model, the median weighted by length; None: there are too few samples."""
        with self._lock:
            samples = tuple(self._samples.get((format, model), ()))
        return next(iter(calibrations(samples)), None)

    def scaled(self, format: str, model: str, counted: int) -> int:
        """Respool's count scaled to the provider's, if the factor is known."""
        found = self.of(format, model)
        return counted if found is None else round(found.factor * counted)

    def all(self) -> dict[ModelKey, Calibration]:
        """The factors of all models with enough samples."""
        with self._lock:
            known = list(self._samples)
        found = ((key, self.of(*key)) for key in known)
        return {key: one for key, one in found if one is not None}


# --- the totals of a run -----------------------------------------------------------------------


class RunTotals:
    """The totals of one run, over the records as they are written."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.saving = Saving()
        self.errors = 0  # responses with status 400 and above, or none
        self.priced = 0  # requests whose price is known
        self.fallbacks: Counter[str] = Counter()

    @property
    def requests(self) -> int:
        """The number of requests."""
        return self.saving.requests

    def add(self, record: RequestRecord) -> None:
        """Add the record of a request."""
        with self._lock:
            self.saving = add_savings((self.saving, saving_of_record(record)))
            self.errors += record.status == 0 or record.status >= 400
            self.priced += record.cost_before is not None and record.cost_after is not None
            if record.fallback and record.mode == "compacted":
                self.fallbacks[record.fallback] += 1

    def sentences(self) -> list[str]:
        """The totals in words."""
        if not self.requests:
            return ["no request that could be compacted came through"]
        return [self._requests(), self._saving(), *self._fallbacks()]

    def _requests(self) -> str:
        failed = f", {self.errors} of them not answered well" if self.errors else ""
        return f"{_counted(self.requests)}{failed}"

    def _saving(self) -> str:
        """The saving as every face states it, and of how many requests the price is known."""
        is_partly_priced = 0 < self.priced < self.requests - self.errors
        of = f" (priced: {_counted(self.priced)})" if is_partly_priced else ""
        return f"{state_saving(self.saving)}{of}"

    def _fallbacks(self) -> list[str]:
        count = self.fallbacks.total()
        if not count:
            return []
        why, _ = self.fallbacks.most_common(1)[0]
        return [f"{count} fallback{'s' if count > 1 else ''} (mostly {why})"]


def _counted(requests: int) -> str:
    """A number of requests, in words."""
    return f"{requests:,} request{'' if requests == 1 else 's'}"
