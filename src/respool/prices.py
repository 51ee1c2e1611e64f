"""What a provider charges for a prompt, and how its cache works, by model."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from msgspec import Struct, structs

from .models import Version, model_of

Cache = Literal["marks", "prefix", "breakpoints", "implicit", "none"]
Maker = Literal["anthropic", "openai", "google", "other"]


class Terms(Struct, frozen=True, kw_only=True):
    """How one model's prompts are cached and charged; prices are multiples of plain input."""

    cache: Cache
    read: float = 0.1  # what is found in the cache
    write: float = 1.0  # what is written to it
    write_1h: float = 1.0  # what is written to it for an hour, where that can be asked for
    output: float = 5.0
    minimum: int = 0  # a shorter prefix is not cached
    step: int = 1  # cached prefixes are multiples of this many tokens
    lifetime: float = 300.0  # seconds after its last use that an entry lives
    longest: float = 0.0  # seconds after which it is gone for sure; 0: after its lifetime
    look_back: int = 20  # positions before a mark that are looked at, its own counted
    window: int | None = None  # tokens that fit, as listed
    dollars: float | None = None  # for a million tokens of plain input

    @property
    def gone(self) -> float:
        """Seconds after its last use by which an entry is gone for sure."""
        return max(self.lifetime, self.longest)


def terms_for(format: str, model: object) -> Terms:
    """The terms of the model that a request names, on its wire format.

    >>> terms_for("anthropic", "claude-opus-4-7").minimum
    2048
    >>> terms_for("openai-chat", "gpt-5.6-sol").cache
    'breakpoints'
    """
    return _terms(format, model.lower() if isinstance(model, str) and len(model) <= 200 else "")


@lru_cache(64)  # one request asks several times
def _terms(format: str, name: str) -> Terms:
    row = _row(_maker(format, name), name)
    return structs.replace(
        _CACHES[row.cache], read=row.read, output=row.output, minimum=row.minimum, window=row.window
    )


# --- the table ---------------------------------------------------------------------------------

# How each kind of cache works, whichever model it serves. Google states no lifetime for its
# implicit cache; "a few minutes" is said of it, and the shortest of the others' is taken for that.
# OpenAI may keep an entry for up to a day; what is usual counts, for on recorded sessions an epoch
# after a pause pays even where the cache is still there (docs/prices.md). A mark that somebody else
# sets asks for an hour at the most.
_CACHES: dict[Cache, Terms] = {
    "marks": Terms(
        cache="marks", write=1.25, write_1h=2.0, lifetime=300, longest=3_600, look_back=20
    ),
    "prefix": Terms(cache="prefix", step=128, lifetime=600),
    "breakpoints": Terms(
        cache="breakpoints", write=1.25, write_1h=1.25, lifetime=1_800, look_back=80
    ),
    "implicit": Terms(cache="implicit", lifetime=300),
    "none": Terms(cache="none"),
}


class _Row(Struct, frozen=True):
    maker: Maker
    name: str  # a pattern that the model's name has somewhere
    since: Version
    cache: Cache
    read: float
    output: float
    minimum: int
    window: int | None


# The first row that fits counts. A version that is not listed has the terms of the last one
# before it: an assumption for Fable 5.2, Sonnet 5.5 and Haiku 5.5 (their minimum), and all later.
# "other" is the median of what genai-prices lists for makers that are not here, on the form of
# cache that most of them and the servers of open models have; its minimum is OpenAI's.
# fmt: off
_TABLE: tuple[_Row, ...] = (
    #    maker        name                   since   cache          read   out  least  window
    _Row("anthropic", "fable",               (5, 1), "marks",       0.025, 5.0, 512,   1_000_000),
    _Row("anthropic", "fable|mythos",        (0, 0), "marks",       0.1,   5.0, 512,   1_000_000),
    _Row("anthropic", "opus",                (5, 5), "marks",       0.05,  5.0, 512,   1_000_000),
    _Row("anthropic", "opus",                (5, 0), "marks",       0.1,   5.0, 512,   1_000_000),
    _Row("anthropic", "opus",                (4, 8), "marks",       0.1,   5.0, 1_024, 1_000_000),
    _Row("anthropic", "opus",                (4, 7), "marks",       0.1,   5.0, 2_048, 1_000_000),
    _Row("anthropic", "opus",                (4, 6), "marks",       0.1,   5.0, 4_096, 1_000_000),
    _Row("anthropic", "opus",                (4, 5), "marks",       0.1,   5.0, 4_096, 200_000),
    _Row("anthropic", "sonnet",              (5, 5), "marks",       0.05,  5.0, 1_024, 1_000_000),
    _Row("anthropic", "sonnet",              (4, 6), "marks",       0.1,   5.0, 1_024, 1_000_000),
    _Row("anthropic", "haiku",               (5, 5), "marks",       0.1,   5.0, 4_096, 1_000_000),
    _Row("anthropic", "haiku",               (4, 5), "marks",       0.1,   5.0, 4_096, 200_000),
    _Row("anthropic", "haiku",               (0, 0), "marks",       0.1,   5.0, 2_048, 200_000),
    _Row("anthropic", "claude-(v?[12]|ins)", (0, 0), "none",        1.0,   3.0, 0,     None),
    _Row("anthropic", "",                    (0, 0), "marks",       0.1,   5.0, 1_024, 200_000),
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


def _row(maker: Maker, name: str) -> _Row:
    found = model_of(name)
    version = found.version if found is not None else (0, 0)
    return next(
        row
        for row in _TABLE
        if row.maker == maker and version >= row.since and re.search(row.name, name)
    )


# --- whose model -------------------------------------------------------------------------------

_CLAUDE = re.compile(r"claude|(?:^|[/:])(?:opus|sonnet|haiku|fable|mythos)")
_OPENAI = re.compile(r"(?:^|[/:])(?:(?:chat)?gpt-(?!oss)|o[1-9](?![0-9a-z])|codex|computer-use)")
_WIRES: dict[str, Maker] = {"anthropic": "anthropic", "gemini": "google"}


def _maker(format: str, name: str) -> Maker:
    """Who made the model, for its maker's cache serves it on other wires too: by its name.

    A wire tells only where the name is missing. A name of nobody's is another maker's, on
    Anthropic's wire too, which many servers speak; OpenAI's are spoken by all.
    """
    if _CLAUDE.search(name):
        return "anthropic"
    if "gemini" in name:
        return "google"
    if _OPENAI.search(name):
        return "openai"
    return "other" if name else _WIRES.get(format, "other")
