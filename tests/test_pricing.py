"""Prices, cache rules and rates by model generation."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.pricing import CacheKind, priced, terms_for
from respool.wire.base import FORMATS

NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC).timestamp()

# model, read, minimum
CLAUDES = [
    ("claude-fable-5-2", 0.025, 512),
    ("claude-fable-5-1", 0.025, 512),
    ("claude-fable-5", 0.1, 512),
    ("claude-mythos-5", 0.1, 512),
    ("claude-opus-6", 0.05, 512),
    ("claude-opus-5-5", 0.05, 512),
    ("claude-opus-5", 0.1, 512),
    ("claude-opus-4-8", 0.1, 1_024),
    ("claude-opus-4-7", 0.1, 2_048),
    ("claude-opus-4-6", 0.1, 4_096),
    ("claude-opus-4-5-20251101", 0.1, 4_096),
    ("claude-opus-4-1-20250805", 0.1, 1_024),
    ("claude-opus-4-20250514", 0.1, 1_024),
    ("claude-sonnet-5-5", 0.05, 1_024),
    ("claude-sonnet-5", 0.1, 1_024),
    ("claude-sonnet-4-6", 0.1, 1_024),
    ("claude-sonnet-4-5-20250929", 0.1, 1_024),
    ("claude-3-7-sonnet-latest", 0.1, 1_024),
    ("claude-haiku-4-5-20251001", 0.1, 4_096),
    ("claude-3-5-haiku-20241022", 0.1, 2_048),
    ("us.anthropic.claude-opus-4-7-v1:0", 0.1, 2_048),
    ("sonnet", 0.1, 1_024),
    (None, 0.1, 1_024),
]

# model, cache, read, minimum
OPENAI: list[tuple[str, CacheKind, float, int]] = [
    ("gpt-9", "breakpoints", 0.1, 1_024),
    ("gpt-6.1-sol", "breakpoints", 0.05, 1_024),
    ("gpt-6-sol", "breakpoints", 0.1, 1_024),
    ("gpt-5.6-luna", "breakpoints", 0.1, 1_024),
    ("openai/gpt-5.6", "breakpoints", 0.1, 1_024),
    ("gpt-5.5", "prefix", 0.1, 1_024),
    ("gpt-5.4-mini", "prefix", 0.1, 1_024),
    ("gpt-5.2-codex", "prefix", 0.1, 1_024),
    ("gpt-5", "prefix", 0.1, 1_024),
    ("gpt-5.5-pro", "prefix", 1.0, 1_024),
    ("gpt-5-pro", "prefix", 1.0, 1_024),
    ("gpt-4.1-mini", "prefix", 0.25, 1_024),
    ("gpt-4.5-preview", "prefix", 0.5, 1_024),
    ("gpt-4o-2024-08-06", "prefix", 0.5, 1_024),
    ("ft:gpt-4o:me", "prefix", 0.5, 1_024),
    ("o1", "prefix", 0.5, 1_024),
    ("o3-mini", "prefix", 0.5, 1_024),
    ("o3", "prefix", 0.25, 1_024),
    ("o4-mini", "prefix", 0.25, 1_024),
    ("codex-mini-latest", "prefix", 0.25, 1_024),
    ("gpt-4-turbo", "none", 1.0, 0),
    ("gpt-3.5-turbo", "none", 1.0, 0),
    ("gpt-35-turbo-16k", "none", 1.0, 0),
]

# model, cache, minimum
GEMINIS: list[tuple[str | None, CacheKind, int]] = [
    ("gemini-3-pro-preview", "implicit", 4_096),
    ("models/gemini-2.5-pro", "implicit", 4_096),
    ("gemini-2.5-flash-lite", "implicit", 1_024),
    ("gemini-3-flash-preview", "implicit", 1_024),
    ("gemini-flash-latest", "implicit", 1_024),
    (None, "implicit", 4_096),
    ("gemini-2.0-flash", "none", 0),
    ("gemini-1.5-pro", "none", 0),
]

# model, window, output: on both sides of each change
WINDOWS: list[tuple[str, int | None, float]] = [
    ("claude-fable-5-1", 1_000_000, 5.0),
    ("claude-mythos-5", 1_000_000, 5.0),
    ("claude-opus-5-5", 1_000_000, 5.0),
    ("claude-opus-5", 1_000_000, 5.0),
    ("claude-opus-4-8", 1_000_000, 5.0),
    ("claude-opus-4-7", 1_000_000, 5.0),
    ("claude-opus-4-6", 1_000_000, 5.0),
    ("claude-opus-4-5", 200_000, 5.0),
    ("claude-sonnet-5-5", 1_000_000, 5.0),
    ("claude-sonnet-4-6", 1_000_000, 5.0),
    ("claude-sonnet-4-5", 200_000, 5.0),
    ("claude-haiku-5-5", 1_000_000, 5.0),
    ("claude-haiku-4-5", 200_000, 5.0),
    ("claude-3-5-haiku-20241022", 200_000, 5.0),
    ("claude-2.1", None, 3.0),
    ("gpt-6.1-sol", 1_050_000, 5.0),
    ("gpt-6.1-terra", 1_050_000, 5.0),
    ("gpt-6-luna", 1_050_000, 5.0),
    ("gpt-5.6-luna", 1_050_000, 6.0),
    ("gpt-5.5-pro", 1_000_000, 6.0),
    ("gpt-5.4-pro", 1_000_000, 6.0),
    ("gpt-5.2-pro", 400_000, 8.0),
    ("gpt-5.4-nano", 400_000, 6.0),
    ("gpt-5.4", 1_000_000, 6.0),
    ("gpt-5.2", 400_000, 8.0),
    ("gpt-4.5-preview", 128_000, 2.0),
    ("gpt-4.1", 1_000_000, 4.0),
    ("o1-pro", 200_000, 4.0),
    ("chatgpt-4o-latest", 128_000, 3.0),
    ("gpt-4o", 128_000, 4.0),
    ("gpt-4-turbo", None, 3.0),
    ("o1-mini", 128_000, 4.0),
    ("o3-mini", 200_000, 4.0),
    ("o3", 200_000, 4.0),
    ("computer-use-preview", None, 5.0),
    ("gemini-2.0-flash", 1_000_000, 4.0),
    ("gemini-3-flash-preview", 1_000_000, 6.0),
    ("gemini-3-pro-preview", 1_000_000, 6.0),
    ("qwen3-coder", None, 3.0),
]


class TestTerms:
    @pytest.mark.parametrize(("model", "read", "minimum"), CLAUDES)
    def test_of_claude(self, model: str | None, read: float, minimum: int):
        terms = terms_for("anthropic", model)
        assert (terms.cache, terms.read, terms.minimum) == ("explicit", read, minimum)
        assert (terms.write, terms.write_1h, terms.output) == (1.25, 2.0, 5.0)
        assert (terms.lifetime, terms.look_back) == (300, 20)

    @pytest.mark.parametrize(("model", "cache", "read", "minimum"), OPENAI)
    def test_of_openai(self, model: str, cache: CacheKind, read: float, minimum: int):
        terms = terms_for("openai-responses", model)
        assert (terms.cache, terms.read, terms.minimum) == (cache, read, minimum)
        write, lifetime = {"breakpoints": (1.25, 1_800), "prefix": (1.0, 600)}.get(cache, (1, 300))
        assert (terms.write, terms.write_1h, terms.lifetime) == (write, write, lifetime)
        assert terms.step == (128 if cache == "prefix" else 1)
        assert cache != "breakpoints" or terms.look_back == 80

    @pytest.mark.parametrize(("model", "cache", "minimum"), GEMINIS)
    def test_of_gemini(self, model: str | None, cache: CacheKind, minimum: int):
        terms = terms_for("gemini", model)
        assert (terms.cache, terms.minimum, terms.write) == (cache, minimum, 1.0)
        assert terms.read == (0.1 if cache == "implicit" else 1.0)

    @pytest.mark.parametrize(("model", "window", "output"), WINDOWS)
    def test_windows_and_what_output_costs(self, model: str, window: int | None, output: float):
        terms = terms_for("openai-chat", model)
        assert (terms.window, terms.output) == (window, output)

    @pytest.mark.parametrize("model", ["claude-2.1", "claude-v1", "claude-instant-1.2"])
    def test_the_first_claudes_cache_nothing(self, model: str):
        terms = terms_for("anthropic", model)
        assert (terms.cache, terms.read, terms.minimum) == ("none", 1.0, 0)

    def test_a_name_that_goes_on_and_on_is_none(self):
        name = "claude-opus-4-7".ljust(200, "-")
        assert terms_for("anthropic", name) == terms_for("anthropic", "claude-opus-4-7")
        assert terms_for("anthropic", f"{name}-") == terms_for("anthropic", None)

    @pytest.mark.parametrize("format", FORMATS)
    def test_the_maker_decides_on_any_wire(self, format: str):
        claude = terms_for("anthropic", "claude-opus-4-7")
        assert terms_for(format, "openrouter/anthropic/claude-opus-4.7") == claude
        gemini = terms_for("gemini", "gemini-3-pro-preview")
        assert terms_for(format, "google/gemini-3-pro-preview") == gemini
        assert terms_for(format, "GPT-5.6") == terms_for("openai-chat", "gpt-5.6")

    @pytest.mark.parametrize("format", FORMATS)
    @pytest.mark.parametrize(
        "model",
        ["qwen3-coder", "meta-llama/llama-4-maverick", "glm-4.6", "gpt-oss-120b", "mygpt-4"],
    )
    def test_models_of_others_are_cached_by_prefix(self, format: str, model: str):
        terms = terms_for(format, model)
        assert (terms.cache, terms.read, terms.write) == ("prefix", 0.2, 1.0)
        assert (terms.minimum, terms.window, terms.dollars) == (1_024, None, None)

    @given(
        st.sampled_from([*FORMATS, "other"]),
        st.text(max_size=20)
        | st.from_regex(r"(claude|gpt|gemini|o)-?[a-z0-9.-]{0,12}", fullmatch=True)
        | st.sampled_from([None, 4, [], "x" * 300, "\ud800", "claude-opus-\u0664"]),
    )
    def test_every_name_has_terms(self, format: str, model: object):
        terms = terms_for(format, model)
        assert 0 < terms.read <= 1 <= terms.write <= terms.write_1h
        assert (terms.cache == "none") <= (terms.read == 1)
        assert terms.lifetime > 0
        assert terms.dollars is None


# model, dollars for a million tokens of input
AGREEING = [
    ("claude-fable-5-1", 10.0),
    ("claude-opus-5-5", 4.0),
    ("claude-opus-4-8", 5.0),
    ("claude-opus-4-5-20251101", 5.0),
    ("claude-sonnet-5-5", 2.0),
    ("claude-sonnet-4-5-20250929", 3.0),
    ("claude-haiku-4-5-20251001", 1.0),
    ("gpt-6.1-sol", 2.0),
    ("gpt-5.6-terra", 2.0),
    ("gpt-5.5", 5.0),
    ("gpt-5.2-codex", 1.75),
    ("gpt-5-pro", 15.0),
    ("gpt-4.1", 2.0),
    ("gpt-4o", 2.5),
    ("o1", 15.0),
    ("o3", 2.0),
    ("gemini-3-pro-preview", 2.0),
    ("gemini-3-flash-preview", 0.5),
]

# model, and what the package says of reading and writing where the table says otherwise
DISAGREEING = [
    ("gpt-6.1-terra", 0.05, 1.25),
    ("gemini-4-argon", 0.05, 1.0),
    ("claude-3-haiku-20240307", 0.12, 1.2),
]

# name, dollars: as gateways and clouds spell them
SPELLED = [
    ("anthropic/claude-sonnet-4.5", 3.0),
    ("openrouter/anthropic/claude-opus-4.5", 5.0),
    ("openrouter/deepseek/deepseek-chat", 0.2574),
    ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", 3.3),
    ("bedrock/global.anthropic.claude-opus-4-6-v1", 5.0),
    ("claude-opus-4@20250514", 15.0),
    ("google/gemini-3-pro-preview", 2.0),
    ("azure/gpt-4o", 2.5),
    ("codex-mini-latest", 1.5),
    (" GPT-5.4 ", 2.5),
    ("gpt-5.6-2026-07-01", 4.0),
    ("gpt-5.5-pro-2026-04-01", 30.0),
    ("openai/gpt-5.6:nitro", 4.0),
]

SILLY = [
    None,
    4,
    [],
    {},
    "",
    " ",
    "/",
    "x" * 300,
    "\ud800",
    "a b\n",
    "default",
    "claude-",
    "gpt-99",
    "anthropic/claude-sonnet-4.5:free",
    "deepseek/deepseek-chat-v3:FREE",
]

OFFLINE = """
import sys
from respool.pricing import terms_for
from respool.pricing import priced
assert "genai_prices" not in sys.modules

def refuse(event, arguments):
    if event.startswith("socket."):
        raise RuntimeError(event)

sys.addaudithook(refuse)
for model in ("claude-opus-4-7", "nobody/knows-this"):
    print(priced(terms_for("anthropic", model), "anthropic", model, None).dollars)
"""


def listed(model: object, at: float | None = NOVEMBER, format: str = "openai-chat"):
    return priced(terms_for(format, model), format, model, at)


class TestPriced:
    @pytest.mark.parametrize(("model", "dollars"), AGREEING)
    def test_agrees_with_the_table(self, model: str, dollars: float):
        terms, found = terms_for("openai-chat", model), listed(model)
        assert found.dollars == dollars
        assert found.read == pytest.approx(terms.read)
        assert found.write == pytest.approx(terms.write)
        assert found.write_1h == pytest.approx(terms.write_1h)
        assert found.output == pytest.approx(terms.output)

    @pytest.mark.parametrize(("model", "read", "write"), DISAGREEING)
    def test_what_is_listed_counts(self, model: str, read: float, write: float):
        terms, found = terms_for("openai-chat", model), listed(model)
        assert (found.read, found.write) == pytest.approx((read, write))
        assert (terms.read, terms.write) != pytest.approx((read, write))

    def test_leaves_the_cache_as_it_is(self):
        terms, found = terms_for("anthropic", "claude-opus-4-7"), listed("claude-opus-4-7")
        for name in ("cache", "minimum", "step", "lifetime", "look_back"):
            assert getattr(found, name) == getattr(terms, name)

    @pytest.mark.parametrize(("name", "dollars"), SPELLED)
    def test_names_as_others_spell_them(self, name: str, dollars: float):
        assert listed(name).dollars == dollars

    @pytest.mark.parametrize("format", FORMATS)
    def test_the_price_is_the_same_on_any_wire(self, format: str):
        assert listed("claude-opus-4-7", format=format).dollars == 5.0

    @pytest.mark.parametrize(
        ("model", "day", "dollars"),
        [
            ("o3", (2025, 6, 9), 10.0),
            ("o3", (2025, 6, 10), 2.0),
            ("gpt-5.6-sol", (2026, 8, 20), 5.0),
            ("gpt-5.6-sol", (2026, 8, 21), 4.0),
        ],
    )
    def test_the_price_is_that_of_the_day(
        self, model: str, day: tuple[int, int, int], dollars: float
    ):
        assert listed(model, datetime(*day, 1, tzinfo=UTC).timestamp()).dollars == dollars

    def test_the_price_is_that_below_all_tiers(self):
        found = listed("gpt-5.4")
        assert (found.dollars, found.read, found.output) == (2.5, 0.1, 6.0)

    def test_windows_are_the_listed_ones(self):
        assert terms_for("gemini", "gemini-2.5-flash").window == 1_000_000
        assert listed("gemini-2.5-flash").window == 1_048_576
        assert listed("gemini-3-pro-preview").window == 1_000_000  # not listed

    @pytest.mark.parametrize("format", FORMATS)
    @pytest.mark.parametrize("model", SILLY, ids=repr)
    def test_what_nobody_lists_stays_as_it_is(self, format: str, model: object):
        terms = terms_for(format, model)
        assert priced(terms, format, model, NOVEMBER) == terms
        assert terms.dollars is None

    @pytest.mark.parametrize("at", [None, float("nan"), float("inf"), -1e30, 1e30])
    def test_times_that_no_clock_shows_are_today(self, at: float | None):
        assert listed("claude-opus-4-7", at) == listed("claude-opus-4-7", None)

    def test_needs_no_network(self):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(
            [sys.executable, "-c", OFFLINE],
            capture_output=True,
            check=False,
            text=True,
            env=environment,
        )
        assert (done.stdout.split(), done.stderr) == (["5.0", "None"], "")
