"""Savings over records: one definition, one rounding and one sentence for every face.

Money is what the same requests would have cost without respool, less what was paid. Tokens are the
provider's: what was sent is what it reported, and what was taken out is scaled by the same report.
Before a provider has reported, tokens are estimated and have a range.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..pricing import Usage, format_dollars
from ..tokens import ESTIMATE_RANGES, MAX_SCALES, tokenizer_family
from .base import PeriodTotal, RequestRecord


class StatedTokens(Struct, frozen=True, gc=False):
    """The tokens of a request by the provider's report, else by respool's count."""

    before: int
    after: int
    saved: int  # not sent; of an observed request: would not have been
    is_measured: bool  # the provider has reported its prompt


@lru_cache(1024)
def max_scale(format: str, model: str) -> int:
    """The most that a provider's count scales a saving of this model, in thousandths."""
    return MAX_SCALES[tokenizer_family(format, model)]


def state_tokens(
    before: int, saved: int, usage: Usage | None, *, is_observed: bool, limit: int = 1000
) -> StatedTokens:
    """The tokens of a request as every face states them; `limit` is its `max_scale`.

    What the provider counts far beyond respool's count is hidden reasoning and framing, of which
    nothing was taken out: it enlarges the prompt, but not the saving.

    >>> state_tokens(3_000, 1_000, Usage(input=1_000), is_observed=False)
    StatedTokens(before=1500, after=1000, saved=500, is_measured=True)
    """
    sent = before if is_observed else before - saved
    prompt = 0 if usage is None else usage.prompt
    if sent <= 0 or prompt <= 0:
        return StatedTokens(before, before - saved, saved, is_measured=False)
    scaled = abs(saved) * min(1000 * prompt, limit * sent) // (1000 * sent)
    saved = scaled if saved > 0 else -scaled  # towards zero: as SQLite divides
    before = prompt if is_observed else prompt + saved
    return StatedTokens(before, before - saved, saved, is_measured=True)


def state_record(record: RequestRecord) -> RequestRecord:
    """The record with its tokens as they are stated."""
    stated = _stated(record)
    return replace(
        record, tokens_before=stated.before, tokens_after=stated.after, saved=stated.saved
    )


def _stated(record: RequestRecord) -> StatedTokens:
    is_observed = record.mode == "observed"
    limit = max_scale(record.format, record.model)
    return state_tokens(
        record.tokens_before, record.saved, record.usage, is_observed=is_observed, limit=limit
    )


# The same in SQL, for sums over many records; r is the table of requests, and `max_scale` is a
# function of each connection.
_PROMPT = "(coalesce(r.input, 0) + coalesce(r.cache_read, 0) + coalesce(r.cache_write, 0))"
_SENT = "(CASE r.mode WHEN 'observed' THEN r.tokens_before ELSE r.tokens_before - r.saved END)"
_IS_MEASURED = f"({_PROMPT} > 0 AND {_SENT} > 0)"
SAVED_SQL = (
    f"(CASE WHEN {_IS_MEASURED} THEN r.saved"
    f" * min(1000 * {_PROMPT}, max_scale(r.format, r.model) * {_SENT}) / (1000 * {_SENT})"
    " ELSE r.saved END)"
)
BEFORE_SQL = (
    f"(CASE WHEN NOT {_IS_MEASURED} THEN r.tokens_before WHEN r.mode = 'observed' THEN {_PROMPT}"
    f" ELSE {_PROMPT} + {SAVED_SQL} END)"
)
AFTER_SQL = f"({BEFORE_SQL} - {SAVED_SQL})"
UNMEASURED_SQL = f"(NOT {_IS_MEASURED} AND r.status BETWEEN 1 AND 399)"


def estimate_range(tokens: int, format: str, model: str) -> tuple[float, float]:
    """The range of an estimated number of tokens, in which nine in ten sessions are."""
    low, high = ESTIMATE_RANGES[tokenizer_family(format, model)]
    return min(tokens * low, tokens * high), max(tokens * low, tokens * high)


class Saving(Struct, frozen=True, kw_only=True):
    """Sums of some requests, as every face states them."""

    requests: int = 0
    observed: int = 0  # requests that were measured but not changed
    unpriced: int = 0  # answered requests of unknown cost
    tokens_before: int = 0
    tokens: int = 0  # tokens saved
    tokens_low: float = 0  # the range of them; the same where all are reported
    tokens_high: float = 0
    money: float = 0.0  # dollars saved
    bill: float = 0.0  # dollars without respool
    would_tokens: int = 0  # tokens that observed requests would have saved
    would_low: float = 0
    would_high: float = 0
    would_money: float = 0.0

    @property
    def is_priced(self) -> bool:
        """Report whether a price is known."""
        return self.bill > 0

    @property
    def is_only_observed(self) -> bool:
        """Report whether nothing was changed, only observed."""
        return self.observed > 0 and not self.tokens

    def to_dict(self) -> dict[str, Any]:
        """Values for JSON; dollars are null where no price is known."""
        return {
            "saved_usd": self.money if self.is_priced else None,
            "bill_without_respool_usd": self.bill if self.is_priced else None,
            "requests": self.requests,
            "tokens_before": self.tokens_before,
            "tokens_saved": self.tokens,
            "tokens_saved_low": round(self.tokens_low),
            "tokens_saved_high": round(self.tokens_high),
            "observed_requests": self.observed,
            "would_have_saved_usd": self.would_money if self.is_priced else None,
            "would_have_saved_tokens": self.would_tokens,
            "unpriced_requests": self.unpriced,
        }


def saving_of_record(record: RequestRecord) -> Saving:
    """Saving of one request."""
    stated, is_observed = _stated(record), record.mode == "observed"
    is_answered = 0 < record.status < 400
    low = high = float(stated.saved)
    if is_answered and not stated.is_measured:
        low, high = estimate_range(stated.saved, record.format, record.model)
    cost = record.cost_before or 0.0
    money = cost - (record.cost_after or 0.0)
    sums = Saving(
        requests=1,
        unpriced=int(is_answered and record.cost_after is None),
        tokens_before=stated.before,
        bill=cost,
    )
    if is_observed:
        return replace(
            sums,
            observed=1,
            would_tokens=stated.saved,
            would_low=low,
            would_high=high,
            would_money=money,
        )
    return replace(sums, tokens=stated.saved, tokens_low=low, tokens_high=high, money=money)


def saving_of_total(total: PeriodTotal) -> Saving:
    """Saving in a period."""
    return Saving(
        requests=total.requests,
        observed=total.observed,
        unpriced=total.unpriced,
        tokens_before=total.tokens_before,
        tokens=total.saved - total.would_saved,
        tokens_low=total.saved_low - total.would_low,
        tokens_high=total.saved_high - total.would_high,
        money=total.cost_before - total.cost_after - total.would_cost,
        bill=total.cost_before,
        would_tokens=total.would_saved,
        would_low=total.would_low,
        would_high=total.would_high,
        would_money=total.would_cost,
    )


def add_savings(savings: Iterable[Saving]) -> Saving:
    """Sum of savings."""
    every = list(savings)
    sums = {name: sum(getattr(one, name) for one in every) for name in Saving.__struct_fields__}
    return Saving(**sums)


# --- in words ----------------------------------------------------------------------------------


def describe_saving(saving: Saving) -> str:
    """Describe a saving in a few words: money, or tokens where no price is known.

    >>> describe_saving(Saving(requests=1, money=1.5, bill=6.0, tokens=100, tokens_before=500))
    'saved $1.50 (25 %)'
    """
    if saving.is_priced:
        return f"{_money_words(saving)}{_brackets(_money_share(saving))}"
    verb, amount, of = _token_words(saving)
    return f"{verb} {amount}{of}"


def state_saving(saving: Saving) -> str:
    """State a saving in full: money and its share of the bill, then tokens.

    >>> state_saving(Saving(requests=1, money=1.5, bill=6.0, tokens=100, tokens_before=500))
    'saved $1.50, 25 % of a bill of $6.00; 100 of 500 tokens (20 %)'
    """
    verb, amount, of = _token_words(saving)
    of_or_to = "of" if verb.endswith("saved") else "to"
    before = f" {of_or_to} {saving.tokens_before:,}" if saving.tokens_before else ""
    tokens = f"{amount.removesuffix(_TOKENS)}{before}{_TOKENS}{of}"
    if not saving.is_priced:
        return f"{verb} {tokens}"
    share = _money_share(saving) or "0 %"
    money = f"{_money_words(saving)}, {share} of a bill of {format_dollars(saving.bill)}"
    verb = verb.removeprefix("would have ")
    is_saved = (saving.would_money if saving.is_only_observed else saving.money) >= 0
    return f"{money}; {tokens}" if is_saved and verb == "saved" else f"{money}, and {verb} {tokens}"


_TOKENS = " tokens"


def _money_words(saving: Saving) -> str:
    would = saving.is_only_observed
    money = saving.would_money if would else saving.money
    if money < 0:
        return f"{'would have cost' if would else 'cost'} {format_dollars(-money)} more"
    return f"{'would have saved' if would else 'saved'} {format_dollars(money)}"


def _money_share(saving: Saving) -> str:
    money = saving.would_money if saving.is_only_observed else saving.money
    return format_share(abs(money), saving.bill)


def _token_words(saving: Saving) -> tuple[str, str, str]:
    """A verb, an amount and, in brackets, its share with its range."""
    would = saving.is_only_observed
    tokens = saving.would_tokens if would else saving.tokens
    low = saving.would_low if would else saving.tokens_low
    high = saving.would_high if would else saving.tokens_high
    verb = ("would have " if would else "") + ("saved" if tokens >= 0 else "added")
    ends = sorted((round(abs(low)), round(abs(high))))
    if ends[0] == ends[1]:
        amount, spread = f"{abs(tokens):,}", ""
    else:
        amount, spread = f"about {abs(tokens):,}", f"{ends[0]:,} to {ends[1]:,}"
    share = format_share(abs(tokens), saving.tokens_before)
    return verb, f"{amount}{_TOKENS}", _brackets("; ".join(one for one in (share, spread) if one))


def format_share(part: float, whole: float) -> str:
    """Format a share in whole per cent; empty if it is nothing."""
    share = round(100 * part / whole) if whole > 0 else 0
    return f"{share} %" if share else ""


def _brackets(words: str) -> str:
    return f" ({words})" if words else ""
