"""Prices, cache rules and rates by model generation.

`terms_for` knows ratios and cache rules without any table of dollars. `priced` adds the prices that
the package `genai-prices` lists. Usage is what a provider reported and charges for.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from msgspec import Struct, structs
from msgspec.structs import replace

from .facts import BreakpointMode
from .model_names import Version, parse_model_name
from .policy import Policy
from .regex import lazy_compile
from .wire.base import wire_format

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation, TieredPrices

CacheKind = Literal["explicit", "prefix", "breakpoints", "implicit", "none"]
Maker = Literal["anthropic", "openai", "google", "other"]


class Usage(Struct, frozen=True, gc=False):
    """The tokens that the provider reported for one request."""

    input: int = 0  # not read from the cache, and not written to it
    cache_read: int = 0
    cache_write: int = 0  # all tokens written, of any lifetime
    cache_write_1h: int = 0  # of it, written with a lifetime of one hour
    output: int = 0

    @property
    def prompt(self) -> int:
        """All tokens of the prompt, however they were billed."""
        return self.input + self.cache_read + self.cache_write


class CacheTerms(Struct, frozen=True, kw_only=True):
    """Cache rules and prices of one model; prices are multiples of plain input."""

    cache: CacheKind
    read: float = 0.1  # from the cache
    write: float = 1.0  # to the cache
    write_1h: float = 1.0  # to the cache for an hour, if a request can ask for that
    output: float = 5.0
    minimum: int = 0  # a shorter prefix is not cached
    step: int = 1  # cached prefixes are multiples of this many tokens
    lifetime: float = 300.0  # seconds after its last use that an entry is kept
    longest: float = 0.0  # seconds that an entry can be kept at most; 0: its lifetime
    look_back: int = 20  # positions up to a cache breakpoint that are searched for an entry
    window: int | None = None  # listed context window, in tokens
    dollars: float | None = None  # per million tokens of plain input

    @property
    def gone(self) -> float:
        """Seconds after its last use by which an entry is certainly gone."""
        return max(self.lifetime, self.longest)


def terms_for(format: str, model: object) -> CacheTerms:
    """The terms of the model that a request names, on its wire format.

    >>> terms_for("anthropic", "claude-opus-4-7").minimum
    2048
    >>> terms_for("openai-chat", "gpt-5.6-sol").cache
    'breakpoints'
    """
    return _find_terms(
        format, model.lower() if isinstance(model, str) and len(model) <= 200 else ""
    )


@lru_cache(64)  # one request asks several times
def _find_terms(format: str, name: str) -> CacheTerms:
    row = _find_row(_find_maker(format, name), name)
    return structs.replace(
        _TERMS_BY_CACHE[row.cache],
        read=row.read,
        output=row.output,
        minimum=row.minimum,
        window=None if _is_opaque(name) else row.window,
    )


# --- the table ---------------------------------------------------------------------------------

# Rules of each kind of cache, for every model. Google states no lifetime for its implicit cache:
# the shortest lifetime of the others is assumed. OpenAI may keep an entry for up to a day; its
# usual lifetime counts, because on recorded sessions an epoch after a pause pays even if the cache
# is still warm (docs/reference/prices.md). A client's cache breakpoint asks for an hour at most.
_TERMS_BY_CACHE: dict[CacheKind, CacheTerms] = {
    "explicit": CacheTerms(
        cache="explicit", write=1.25, write_1h=2.0, lifetime=300, longest=3_600, look_back=20
    ),
    "prefix": CacheTerms(cache="prefix", step=128, lifetime=600),
    "breakpoints": CacheTerms(
        cache="breakpoints", write=1.25, write_1h=1.25, lifetime=1_800, look_back=80
    ),
    "implicit": CacheTerms(cache="implicit", lifetime=300),
    "none": CacheTerms(cache="none"),
}


class _Row(Struct, frozen=True):
    maker: Maker
    name: str  # a pattern that is searched in the model's name
    since: Version
    cache: CacheKind
    read: float
    output: float
    minimum: int
    window: int | None


# The first matching row counts. An unlisted version has the terms of the last listed one before it:
# an assumption for Fable 5.2, Sonnet 5.5 and Haiku 5.5 (their minimum), and all later. "other" is
# the median of the prices that genai-prices lists for other makers, with the cache that most of
# them and the servers of open models have; its minimum is OpenAI's.
# fmt: off
_PRICE_TABLE: tuple[_Row, ...] = (
    #    maker        name                   since   cache          read   out  min    window
    _Row("anthropic", "fable",               (5, 1), "explicit",    0.025, 5.0, 512,   1_000_000),
    _Row("anthropic", "fable|mythos",        (0, 0), "explicit",    0.1,   5.0, 512,   1_000_000),
    _Row("anthropic", "opus",                (5, 5), "explicit",    0.05,  5.0, 512,   1_000_000),
    _Row("anthropic", "opus",                (5, 0), "explicit",    0.1,   5.0, 512,   1_000_000),
    _Row("anthropic", "opus",                (4, 8), "explicit",    0.1,   5.0, 1_024, 1_000_000),
    _Row("anthropic", "opus",                (4, 7), "explicit",    0.1,   5.0, 2_048, 1_000_000),
    _Row("anthropic", "opus",                (4, 6), "explicit",    0.1,   5.0, 4_096, 1_000_000),
    _Row("anthropic", "opus",                (4, 5), "explicit",    0.1,   5.0, 4_096, 200_000),
    _Row("anthropic", "sonnet",              (5, 5), "explicit",    0.05,  5.0, 1_024, 1_000_000),
    _Row("anthropic", "sonnet",              (4, 6), "explicit",    0.1,   5.0, 1_024, 1_000_000),
    _Row("anthropic", "haiku",               (5, 5), "explicit",    0.1,   5.0, 4_096, 1_000_000),
    _Row("anthropic", "haiku",               (4, 5), "explicit",    0.1,   5.0, 4_096, 200_000),
    _Row("anthropic", "haiku",               (0, 0), "explicit",    0.1,   5.0, 2_048, 200_000),
    _Row("anthropic", "claude-(v?[12]|ins)", (0, 0), "none",        1.0,   3.0, 0,     None),
    _Row("anthropic", "",                    (0, 0), "explicit",    0.1,   5.0, 1_024, 200_000),
    _Row("openai",    "-sol",                (6, 1), "breakpoints", 0.05,  5.0, 1_024, 1_050_000),
    _Row("openai",    "",                    (6, 0), "breakpoints", 0.1,   5.0, 1_024, 1_050_000),
    _Row("openai",    "",                    (5, 6), "breakpoints", 0.1,   6.0, 1_024, 1_050_000),
    _Row("openai",    "-pro",                (5, 4), "prefix",      1.0,   6.0, 1_024, 1_000_000),
    _Row("openai",    "-pro",                (5, 0), "prefix",      1.0,   8.0, 1_024, 400_000),
    _Row("openai",    "-(mini|nano)",        (5, 4), "prefix",      0.1,   6.0, 1_024, 400_000),
    _Row("openai",    "",                    (5, 4), "prefix",      0.1,   6.0, 1_024, 1_000_000),
    _Row("openai",    "",                    (5, 0), "prefix",      0.1,   8.0, 1_024, 400_000),
    _Row("openai",    "",                    (4, 5), "prefix",      0.5,   2.0, 1_024, 128_000),
    _Row("openai",    "",                    (4, 1), "prefix",      0.25,  4.0, 1_024, 1_000_000),
    _Row("openai",    "o[13]-pro",           (0, 0), "prefix",      1.0,   4.0, 1_024, 200_000),
    _Row("openai",    "chatgpt-4o",          (0, 0), "prefix",      1.0,   3.0, 1_024, 128_000),
    _Row("openai",    "gpt-4o",              (0, 0), "prefix",      0.5,   4.0, 1_024, 128_000),
    _Row("openai",    "gpt-[1-4]",           (0, 0), "none",        1.0,   3.0, 0,     None),
    _Row("openai",    "o1-(mini|preview)",   (0, 0), "prefix",      0.5,   4.0, 1_024, 128_000),
    _Row("openai",    "o1|o3-mini",          (0, 0), "prefix",      0.5,   4.0, 1_024, 200_000),
    _Row("openai",    "o[34]|codex-mini",    (0, 0), "prefix",      0.25,  4.0, 1_024, 200_000),
    _Row("openai",    "",                    (0, 0), "prefix",      0.1,   5.0, 1_024, None),
    _Row("google",    r"gemini-(1\.|2\.0)",  (0, 0), "none",        1.0,   4.0, 0,     1_000_000),
    _Row("google",    "flash",               (0, 0), "implicit",    0.1,   6.0, 1_024, 1_000_000),
    _Row("google",    "",                    (0, 0), "implicit",    0.1,   6.0, 4_096, 1_000_000),
    _Row("other",     "",                    (0, 0), "prefix",      0.2,   3.0, 1_024, None),
)
# fmt: on


def _find_row(maker: Maker, name: str) -> _Row:
    found = parse_model_name(name)
    version = found.version if found is not None else (0, 0)
    return next(
        row
        for row in _PRICE_TABLE
        if row.maker == maker and version >= row.since and re.search(row.name, name)
    )


# --- whose model -------------------------------------------------------------------------------

_CLAUDE_PATTERN = lazy_compile(r"claude|(?:^|[/:])(?:opus|sonnet|haiku|fable|mythos)")
_OPENAI_PATTERN = lazy_compile(
    r"(?:^|[/:])(?:(?:chat)?gpt-(?!oss)|o[1-9](?![0-9a-z])|codex|computer-use)"
)


def _find_maker(format: str, name: str) -> Maker:
    """The maker of a model, by its name; its maker's cache serves it on other wire formats too.

    The wire format decides only if the name is missing, or is AWS's for a user's own profile. An
    unknown name is of another maker, also on the formats of Anthropic and OpenAI, which many
    servers accept.
    """
    if _CLAUDE_PATTERN.search(name):
        return "anthropic"
    if "gemini" in name:
        return "google"
    if _OPENAI_PATTERN.search(name):
        return "openai"
    is_named = name and not _is_opaque(name)
    return "other" if is_named else cast(Maker, wire_format(format).maker)


def _is_opaque(name: str) -> bool:
    """True for an ARN that does not name the model (application inference profiles)."""
    return name.startswith("arn:") and parse_model_name(name) is None


# --- listed prices -----------------------------------------------------------------------------

# Each price by its name here and its name in the package.
_PRICES = {
    "read": "cache_read_mtok",
    "write": "cache_write_mtok",
    "write_1h": "cache_write_1h_mtok",
    "output": "output_mtok",
}
_LISTS = {
    "anthropic": "anthropic",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "gemini": "google",
}
_FREE = ":free"  # OpenRouter's suffix for free models
_EDITION = lazy_compile(r"[-@](?:20\d{6}|20\d{2}-\d{2}-\d{2})(?![\d-])|:[a-z]+$", re.ASCII)
_BEDROCK = lazy_compile(r"(?:[a-z-]+\.)+[a-z]")  # "us.anthropic.claude-…"


def priced(terms: CacheTerms, format: str, model: object, at: float | None) -> CacheTerms:
    """Terms with the prices listed for the model at a time, in seconds since 1970.

    Prices come from the snapshot in `genai-prices`, without any network. A model that is not
    listed, or free, keeps the terms as they are. Without a time, today's prices count.
    """
    if not isinstance(model, str) or not 0 < len(model) <= 200:
        return terms
    name = model.strip().lower()
    return terms if name.endswith(_FREE) else _priced(terms, format, name, _day(at))


def _day(at: float | None) -> date:
    now = datetime.now(UTC)
    try:
        return (now if at is None else datetime.fromtimestamp(at, UTC)).date()
    except (OverflowError, OSError, ValueError):  # not a representable time
        return now.date()


@lru_cache(maxsize=4_096)
def _priced(terms: CacheTerms, format: str, name: str, day: date) -> CacheTerms:
    found = _listed(format, name, day)
    plain = None if found is None else _base(found.model_price.input_mtok)
    if found is None or plain is None:
        return terms
    listed = {ours: _base(getattr(found.model_price, theirs)) for ours, theirs in _PRICES.items()}
    known = {ours: price for ours, price in listed.items() if price is not None and plain}
    ratios = {ours: float(price / plain) for ours, price in known.items()}
    window = found.model.context_window or terms.window
    return structs.replace(terms, dollars=float(plain), window=window, **ratios)


def _listed(format: str, name: str, day: date) -> PriceCalculation | None:
    from genai_prices import Usage as NoTokens  # lazily: it takes a third of a second
    from genai_prices import calc_price

    noon = datetime.combine(day, time(12), UTC)  # prices change by the day; some are lower at night
    for ref, provider in _references(format, name):
        try:
            return calc_price(NoTokens(), ref, provider_id=provider, genai_request_timestamp=noon)
        except LookupError:
            continue
    return None


def _references(format: str, name: str) -> Iterator[tuple[str, str | None]]:
    """Names to look up, each with a provider's list; None: the list the name belongs to."""
    yield name, None
    if name.startswith("openrouter/"):
        yield name.removeprefix("openrouter/"), "openrouter"
    bare = name.rpartition("/")[2]
    if _BEDROCK.match(bare):
        yield bare, "aws"
    if "@" in bare:
        yield bare, "google"  # Vertex's names for other makers' models
    yield bare, None
    if format in _LISTS:
        yield bare, _LISTS[format]
    plain = _EDITION.sub("", bare)
    if plain != bare:
        yield plain, None


def _base(price: Decimal | TieredPrices | None) -> Decimal | None:
    """Price of the lowest tier."""
    return price if price is None or isinstance(price, Decimal) else price.base


# --- calibrated counts -------------------------------------------------------------------------

MIN_SAMPLES: Final = 5  # growths that a factor needs
MIN_SAMPLE_TOKENS: Final = 300  # a shorter growth is mostly framing
_PLAUSIBLE: Final = (0.5, 3.0)  # outside, record and usage do not match


class Growth(Struct, frozen=True, array_like=True, gc=False):
    """Growth of a prompt over the previous one, without framing and known output."""

    model: str
    counted: int  # by the model's counter
    reported: int  # by the provider

    @property
    def ratio(self) -> float:
        """Provider tokens per counted token."""
        return self.reported / self.counted


class Calibration(Struct, frozen=True):
    """A model's tokens per counted token."""

    model: str
    factor: float
    low: float  # 90 % of the requests lie between low and high
    high: float
    requests: int


def is_plausible_factor(factor: float) -> bool:
    """Check that a tokenizer can have this factor."""
    return _PLAUSIBLE[0] <= factor <= _PLAUSIBLE[1]


def factor_of(growths: Sequence[Growth]) -> float:
    """Median ratio, weighted by the counted tokens."""
    ordered = sorted(growths, key=lambda growth: growth.ratio)
    left = sum(growth.counted for growth in ordered) / 2
    for growth in ordered:
        left -= growth.counted
        if left <= 0:
            return growth.ratio
    return 0.0


def calibrations(samples: Iterable[Growth]) -> tuple[Calibration, ...]:
    """Calibration of each model from the growths of many sessions, most requests first.

    A model with fewer than `MIN_SAMPLES` growths has none.
    """
    by_model: defaultdict[str, list[Growth]] = defaultdict(list)
    for growth in samples:
        by_model[growth.model].append(growth)
    found = [
        _calibration(model, growths)
        for model, growths in by_model.items()
        if len(growths) >= MIN_SAMPLES
    ]
    return tuple(sorted(found, key=lambda one: (-one.requests, one.model)))


def _calibration(model: str, growths: Sequence[Growth]) -> Calibration:
    ratios = sorted(growth.ratio for growth in growths)
    last = len(ratios) - 1
    low, high = ratios[round(0.05 * last)], ratios[round(0.95 * last)]
    return Calibration(
        model,
        factor=round(factor_of(growths), 3),
        low=round(low, 3),
        high=round(high, 3),
        requests=len(ratios),
    )


LONG_TTL_SECONDS = 3_600.0  # the longest lifetime that a cache breakpoint can ask for
SHORT_TTL_SECONDS = 300.0  # the lifetime that a cache breakpoint asks for by default


class BreakpointUsage(Struct, frozen=True, gc=False):
    """A client's use of cache breakpoints: their lifetime, and whether one more is allowed."""

    ttl_seconds: float = 0  # 0: the history has no cache breakpoint
    has_spare: bool = False  # fewer than the four that a request may have

    @property
    def mode(self) -> BreakpointMode:
        """The name of this usage in facts."""
        return next(mode for mode, usage in BREAKPOINT_USAGES.items() if usage == self)


BREAKPOINT_USAGES: dict[BreakpointMode, BreakpointUsage] = {
    "none": BreakpointUsage(),
    "5m": BreakpointUsage(SHORT_TTL_SECONDS, has_spare=True),
    "5m full": BreakpointUsage(SHORT_TTL_SECONDS),
    "1h": BreakpointUsage(LONG_TTL_SECONDS, has_spare=True),
    "1h full": BreakpointUsage(LONG_TTL_SECONDS),
    "behind": BreakpointUsage(SHORT_TTL_SECONDS),  # the number of breakpoints is unknown
}


class Rates(Struct, frozen=True, gc=False):
    """Prices as multiples of plain input, and the places where a cached prefix may end."""

    read: float = 1.0
    write: float = 1.0
    matches_any_prefix: bool = True  # else only prefixes that end where a request ended
    lookback_positions: int | None = None  # before the last breakpoint; None: unlimited
    lookback_requests: int | None = None  # before the last request; None: unlimited
    has_spare_breakpoint: bool = False  # respool may set one cache breakpoint anywhere
    minimum: int = 0  # a shorter prompt is not cached; 0: no cache, or not known

    @property
    def caches(self) -> bool:
        """True if an unchanged prefix is cheaper than a changed one."""
        return self.write > self.read


NO_CACHE = Rates()


def rates_for(
    policy: Policy, format: str, fields: Mapping[str, Any] | None, usage: BreakpointUsage
) -> Rates:
    """The rates of the request's model; prices of the policy take precedence."""
    model = (fields or {}).get("model")
    terms = terms_for(format, model)
    found = _listed_rates(terms, format, usage)
    read = found.read if policy.cache_read_price is None else policy.cache_read_price
    write = found.write if policy.cache_write_price is None else policy.cache_write_price
    minimum = terms.minimum if model and found.caches else 0
    return replace(found, read=read, write=write, minimum=minimum)


def _listed_rates(terms: CacheTerms, format: str, usage: BreakpointUsage) -> Rates:
    match terms.cache:
        case "explicit" if not wire_format(format).has_client_breakpoints:
            # A gateway may set or pass on cache breakpoints that the request does not show. If it
            # counted as uncached, every edit would make the provider write the prompt again.
            return Rates(
                terms.read,
                terms.write,
                matches_any_prefix=False,
                lookback_positions=terms.look_back,
            )
        case "explicit" if usage.ttl_seconds:
            write = terms.write_1h if usage.ttl_seconds >= LONG_TTL_SECONDS else terms.write
            return Rates(
                terms.read,
                write,
                matches_any_prefix=False,
                lookback_positions=terms.look_back,
                has_spare_breakpoint=usage.has_spare,
            )
        case "prefix" | "implicit":
            return Rates(terms.read, terms.write)
        case "breakpoints":
            return Rates(
                terms.read, terms.write, matches_any_prefix=False, lookback_requests=terms.look_back
            )
        case _:
            return NO_CACHE  # no cache, or no cache breakpoint in the history


def format_dollars(amount: float) -> str:
    """Format an amount: cents from one dollar on, else four decimals.

    >>> format_dollars(1234.5), format_dollars(0.01234), format_dollars(-2)
    ('$1,234.50', '$0.0123', '-$2.00')
    """
    sign, size = "-" if amount <= -0.00005 else "", abs(amount)
    return f"{sign}${size:,.2f}" if size >= 0.995 else f"{sign}${size:.4f}"
