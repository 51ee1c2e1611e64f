"""Terms with the prices that are listed for a model: ratios, window, and dollars."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import structs

from ..pricing import CacheTerms

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation, TieredPrices

# Each price as it is called here, and as the package calls it.
_PRICES = {
    "read": "cache_read_mtok",
    "write": "cache_write_mtok",
    "write_1h": "cache_write_1h_mtok",
    "output": "output_mtok",
}
_WIRES = {
    "anthropic": "anthropic",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "gemini": "google",
}
_FREE = ":free"  # OpenRouter's suffix for free models
_EDITION = re.compile(r"[-@](?:20\d{6}|20\d{2}-\d{2}-\d{2})(?![\d-])|:[a-z]+$", re.ASCII)
_BEDROCK = re.compile(r"(?:[a-z-]+\.)+[a-z]")  # "us.anthropic.claude-…"


def priced(terms: CacheTerms, format: str, model: object, at: float | None) -> CacheTerms:
    """Fill in the model's list prices at a time, in seconds since the epoch.

    Prices come from the snapshot in `genai-prices`, without any network; what it does not list
    stays as it is, and so does what is served for nothing. Without a time, today's prices count.
    """
    if not isinstance(model, str) or not 0 < len(model) <= 200:
        return terms
    name = model.strip().lower()
    return terms if name.endswith(_FREE) else _priced(terms, format, name, _day(at))


def _day(at: float | None) -> date:
    now = datetime.now(UTC)
    try:
        return (now if at is None else datetime.fromtimestamp(at, UTC)).date()
    except (OverflowError, OSError, ValueError):  # no time that a clock could show
        return now.date()


@lru_cache(maxsize=4_096)
def _priced(terms: CacheTerms, format: str, name: str, day: date) -> CacheTerms:
    found = _found(format, name, day)
    plain = None if found is None else _base(found.model_price.input_mtok)
    if found is None or plain is None:
        return terms
    listed = {ours: _base(getattr(found.model_price, theirs)) for ours, theirs in _PRICES.items()}
    known = {ours: price for ours, price in listed.items() if price is not None and plain}
    ratios = {ours: float(price / plain) for ours, price in known.items()}
    window = found.model.context_window or terms.window
    return structs.replace(terms, dollars=float(plain), window=window, **ratios)


def _found(format: str, name: str, day: date) -> PriceCalculation | None:
    from genai_prices import Usage, calc_price  # takes a third of a second, so not before it must

    noon = datetime.combine(day, time(12), UTC)  # prices change by the day; some fall at night
    for ref, provider in _references(format, name):
        try:
            return calc_price(Usage(), ref, provider_id=provider, genai_request_timestamp=noon)
        except LookupError:
            continue
    return None


def _references(format: str, name: str) -> Iterator[tuple[str, str | None]]:
    """Names to look up, each with its provider; None: the provider that the name implies."""
    yield name, None
    if name.startswith("openrouter/"):
        yield name.removeprefix("openrouter/"), "openrouter"
    bare = name.rpartition("/")[2]
    if _BEDROCK.match(bare):
        yield bare, "aws"
    if "@" in bare:
        yield bare, "google"  # as Vertex names the models of others
    yield bare, None
    if format in _WIRES:
        yield bare, _WIRES[format]
    plain = _EDITION.sub("", bare)
    if plain != bare:
        yield plain, None


def _base(price: Decimal | TieredPrices | None) -> Decimal | None:
    """A price below all tiers: those above some length would make one prompt's terms another's."""
    return price if price is None or isinstance(price, Decimal) else price.base
