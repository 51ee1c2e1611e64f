"""Token counters: exact counts of two libraries, and a monotone estimate."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool import tokens
from respool.tokens import ExactCounter, counter_for, estimate, tokenizer_family
from tests.support.timing import takes_at_most

EXACT = ExactCounter()
anything = st.text() | st.text(alphabet=" \n\t\r'/-_aZ09日é🧵.", max_size=200)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("hello world", 2),
        ("tiktoken is great!", 6),
        ("<|endoftext|>", 7),  # ordinary text, not one special token
        ("1234567", 3),
        ("a" * 1000, 125),
        ("\n" * 16, 1),
        ("\ud800", 1),  # a lone surrogate counts as U+FFFD
        ("a\udfffb", 3),
    ],
)
def test_exact_counts(text: str, count: int) -> None:
    assert EXACT.count(text) == count


@settings(deadline=None)
@given(anything)
def test_the_two_libraries_agree(text: str) -> None:
    first, second = _both()
    clean = tokens.replace_surrogates(text)
    assert first(clean) == second(clean)


@pytest.mark.parametrize(
    "unit", ["word by word, ", "7", "x", " ", "\n", "'s", "日本語。", "🧵", "/\r\n"]
)
def test_the_two_libraries_agree_on_long_text(unit: str) -> None:
    first, second = _both()
    text = unit * (1_200_000 // len(unit))
    assert first(text) == second(text) == EXACT.count(text)


def test_counts_without_rs_bpe(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("bpe_openai")

    def absent() -> Callable[[str], int]:
        raise ImportError

    monkeypatch.setattr(tokens, "load_rs_bpe", absent)
    tokens.load_o200k.cache_clear()
    try:
        assert EXACT.count("hello world") == 2
        assert EXACT.count("\ud800") == 1
    finally:
        tokens.load_o200k.cache_clear()


_BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
NORMAL = "def thread(maze):\n    return [step for step in maze if step.leads_out]\n" * 14_000
HARD: dict[str, Callable[[int], str]] = {
    "one letter": lambda size: "a" * size,
    "spaces": lambda size: " " * size,
    "newlines": lambda size: "\n" * size,
    "base64": lambda size: "".join(random.Random(1).choices(_BASE64, k=size)),
    "emoji": lambda size: "👩‍👩‍👧🧵" * (size // 6),
    "digits": lambda size: "7" * size,
    "rule lines": lambda size: ("-" * 78 + "\n") * (size // 79),
    "punctuation": lambda size: "".join(
        random.Random(2).choices("!@#$%^&*()_+-=[]{};:<>/?", k=size)
    ),
}


@pytest.mark.parametrize(
    "counter", [EXACT, tokens.EstimateCounter("claude")], ids=lambda one: one.name
)
@pytest.mark.parametrize("kind", HARD)
def test_hard_text_costs_no_more_than_a_constant_times_normal_text(
    kind: str, counter: tokens.TokenCounter
) -> None:
    """Of 200,000 characters; `make bench` has a million."""
    costs_little(HARD[kind](200_000), counter)


def costs_little(hard: str, counter: tokens.TokenCounter) -> None:
    counter.count("load")
    normal = NORMAL[: len(hard)]
    takes_at_most(30, lambda: counter.count(hard), lambda: counter.count(normal))


@pytest.mark.parametrize("letter", ["-", "a", " "])
def test_a_long_run_costs_in_proportion(letter: str) -> None:
    once, eight = letter * 40_000, letter * 320_000
    takes_at_most(24, lambda: EXACT.count(eight), lambda: EXACT.count(once))


FAMILIES = tokens.FAMILIES
anything_with_numbers = anything | st.text(alphabet="0123456789 \t\n→", max_size=60)


@given(anything_with_numbers, anything_with_numbers)
def test_the_estimate_only_grows(text: str, more: str) -> None:
    for family in FAMILIES:
        counter = tokens.EstimateCounter(family)
        assert 0 <= counter.count(text) <= counter.count(text + more)
        assert (counter.count(text) == 0) == (text == "")
    assert estimate(text) == tokens.EstimateCounter().count(text)


@given(
    st.text(alphabet=st.characters(max_codepoint=127)) | st.text("0123456789_-.\n", min_size=1),
    st.integers(1, 30),
)
def test_ascii_has_at_most_one_token_a_character(text: str, times: int) -> None:
    for family in FAMILIES:
        assert tokens.EstimateCounter(family).count(text * times) <= len(text * times)


def test_no_weight_lets_ascii_have_more_tokens_than_characters() -> None:
    """Nor is a weight of ASCII nothing, nor one like a digit's, of which every third is free."""
    for at, family in enumerate(FAMILIES):
        weights = {name: each[at] for name, _, each in tokens.CLASSES if name}
        ascii_weights = {
            name: weights[name] for name, members, _ in tokens.CLASSES if members[0] < 128 and name
        }
        assert all(0 < each <= 100 for each in ascii_weights.values()), family
        same = [name for name, each in weights.items() if each == weights["DIGIT"]]
        assert same == ["DIGIT"] or not tokens.TRIPLES[at], family


@given(
    st.lists(anything_with_numbers, max_size=40),
    st.sampled_from(["7", "🧵", "\U0010ffff", "ÿ", "\ud800", "→"]),
    st.sampled_from(FAMILIES),
)
def test_the_estimate_is_the_sum_of_its_weights(
    texts: list[str], heavy: str, family: tokens.TokenizerFamily
) -> None:
    text = "".join(texts) + heavy * 900  # longer than a block, at the largest weights
    at = FAMILIES.index(family)
    weight = {byte: each[at] for _, members, each in tokens.CLASSES for byte in members}
    total = sum(weight[byte] for byte in text.encode("utf-8", "surrogatepass"))
    if tokens.TRIPLES[at]:
        total -= weight[ord("0")] * len(re.findall(r"[0-9]{3}", text))
    assert tokens.EstimateCounter(family).count(text) == max(1, (total + 50) // 100)


def test_every_byte_is_in_one_class() -> None:
    members = b"".join(members for _, members, _ in tokens.CLASSES)
    assert sorted(members) == list(range(256))


@pytest.mark.parametrize("family", [one for one in FAMILIES if one != "openai"])
@pytest.mark.parametrize("numbers", ["{}\t", "{:6d}→", "{}:", "{} "])
def test_line_numbers_count_about_as_a_tokenizer_has_them(
    numbers: str, family: tokens.TokenizerFamily
) -> None:
    """At most twice o200k's: every tokenizer has long tokens for digits and for spaces."""
    text = "\n".join(numbers.format(line) for line in range(1, 601))
    assert 0.5 < tokens.EstimateCounter(family).count(text) / EXACT.count(text) < 2


def test_the_estimate_is_near_on_code_prose_and_json() -> None:
    prose = "The thread leads back out of the maze, and every word put aside can be had again. "
    record = '{"path": "src/respool/tokens.py", "line": 120, "text": "return weight", "ok": true}\n'
    for text in (NORMAL[:2000], prose * 20, record * 20):
        assert 0.75 < estimate(text) / EXACT.count(text) < 1.35


@pytest.mark.parametrize(
    ("format", "model", "family"),
    [
        ("openai-chat", None, "openai"),
        ("openai-responses", "", "openai"),
        ("openai-chat", "my-deployment", "openai"),
        ("openai-chat", "gpt-4o-mini", "openai"),
        ("openai-responses", "gpt-5.1-codex", "openai"),
        ("openai-chat", "o3", "openai"),
        ("openai-chat", "openai/o4-mini", "openai"),
        ("openai-chat", "ft:gpt-4o:acme::x1", "openai"),
        ("openai-chat", "openai/gpt-oss-120b", "openai"),
        ("anthropic", "gpt-5", "openai"),
        ("openai-chat", "anthropic/claude-opus-4.8", "claude"),
        ("anthropic", "claude-opus-4-7", "claude"),
        ("anthropic", "claude-sonnet-5-5", "claude"),
        ("anthropic", "claude-opus-4-10", "claude"),
        ("anthropic", "claude-sonnet-4-6", "claude-to-4.6"),
        ("anthropic", "claude-opus-4-5-20251101", "claude-to-4.6"),
        ("anthropic", "claude-sonnet-4-20250514", "claude-to-4.6"),
        ("openai-chat", "anthropic/claude-sonnet-4.5", "claude-to-4.6"),
        ("openai-chat", "anthropic/claude-3.7-sonnet:thinking", "claude-to-4.6"),
        ("anthropic", "claude-haiku-4-5@20251001", "claude-to-4.6"),
        ("anthropic", "claude-sonnet-4", "claude-to-4.6"),
        ("anthropic", "us.anthropic.claude-3-5-sonnet-20241022-v2:0", "claude-to-4.6"),
        ("anthropic", None, "claude"),
        ("anthropic", "kimi-k2", "other"),
        ("anthropic", "glm-4.6", "other"),
        ("gemini", None, "gemini"),
        ("gemini", "models/gemini-3-pro", "gemini"),
        ("openai-chat", "google/gemini-3-pro-preview", "gemini"),
        ("openai-chat", "qwen3-coder-plus", "other"),
        ("openai-chat", "deepseek/deepseek-r1", "other"),
        ("openai-chat", "deepseek-chat", "other"),
        ("openai-chat", "mistral-large-latest", "other"),
        ("openai-chat", "devstral-medium", "other"),
        ("openai-chat", "meta-llama/Llama-3.3-70B-Instruct", "other"),
        ("openai-chat", "x-ai/grok-4", "other"),
        ("openai-chat", "MiniMaxAI/MiniMax-M2", "other"),
    ],
)
def test_families(format: str, model: str | None, family: tokens.TokenizerFamily) -> None:
    assert tokenizer_family(format, model) == family
    counter = counter_for(format, model)
    assert counter.name == ("o200k" if family == "openai" else "estimate")
    assert counter_for(format, model, "o200k") == EXACT
    assert counter_for(format, model, "estimate") == tokens.EstimateCounter(family)


@cache
def _both() -> tuple[Callable[[str], int], Callable[[str], int]]:
    """The counters of both libraries, where both are installed."""
    pytest.importorskip("rs_bpe")
    pytest.importorskip("bpe_openai")
    return tokens.load_rs_bpe(), tokens.load_bpe_openai()


def test_counting_leaves_a_text_as_large_as_it_was() -> None:
    text = "→ " + "weave the thread " * 500
    before = sys.getsizeof(text)
    assert ExactCounter().count(text) > 0
    assert sys.getsizeof(text) == before


# --- counts by line ----------------------------------------------------------------------------

# Everything that o200k may join with a line break, beside what it never does.
lines_of_signs = st.text(
    alphabet=" \n\t\r'/-_aZ09日é🧵.*)]…\x0b\x0c\x1c\x85\xa0\u0301\u2028\u3000\ud800", max_size=40
)
line = st.one_of(
    lines_of_signs, st.sampled_from(["", "  ", "/x", "\t// y", "*/", "don't", "12345", "  )", "]"])
)
texts = st.lists(line, max_size=60).map("\n".join)


@settings(deadline=None, max_examples=300)
@given(texts)
def test_tokens_end_where_lines_are_counted_apart(text: str) -> None:
    pieces = tokens._TOKEN_END.split(text)
    for count in _both():
        counted = [count(tokens.replace_surrogates(f"{one}\n")) for one in pieces[:-1]]
        counted.append(count(tokens.replace_surrogates(pieces[-1])))
        assert sum(counted) == count(tokens.replace_surrogates(text))


@settings(deadline=None)
@given(texts, st.data())
def test_counts_by_line_are_exact(text: str, data: st.DataObject) -> None:
    known = tokens.LineTokens()
    text = text * (1 + tokens.MIN_LINED_CHARS // max(1, len(text)))
    assert known.count(text, EXACT) == EXACT.count(text)
    kept = [
        one if keeps else "[… 7 lines]"
        for one, keeps in zip(
            text.split("\n"), data.draw(st.iterables(st.booleans(), min_size=3)), strict=False
        )
    ]
    cut = "\n".join([*kept, "[respool: 7 lines left out]"])
    assert known.count_cut(cut, text, EXACT) == EXACT.count(cut)
    assert known.count(text, EXACT) == EXACT.count(text)


@settings(deadline=None)
@given(texts, texts, texts)
def test_texts_that_end_alike_differ_by_their_heads(one: str, other: str, rest: str) -> None:
    heads = tokens.differing_heads(f"{one}\n{rest}", f"{other}\n{rest}")
    if heads is not None:
        before, after = map(EXACT.count, heads)
        counted = EXACT.count(f"{one}\n{rest}") - EXACT.count(f"{other}\n{rest}")
        assert before - after == counted


def test_what_is_kept_of_lines_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_MAX_LINES", 1_000)
    known = tokens.LineTokens()
    for at in range(100):
        text = "".join(f"line {at} {number}\n" for number in range(200))
        assert known.count(text, EXACT) == EXACT.count(text)
        assert known.size_bytes < 10_000
