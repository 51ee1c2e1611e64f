"""Parsing of model names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.model_names import ModelName, is_always_thinking, parse_model_name

NAMES: list[tuple[object, tuple[str, str, tuple[int, int]] | None]] = [
    ("claude-sonnet-4-5-20250929", ("anthropic", "sonnet", (4, 5))),
    ("claude-opus-4-20250514", ("anthropic", "opus", (4, 0))),
    ("claude-opus-4-1", ("anthropic", "opus", (4, 1))),
    ("claude-opus-4.6", ("anthropic", "opus", (4, 6))),
    ("claude-fable-5-1", ("anthropic", "fable", (5, 1))),
    ("claude-haiku-5-5@20260901", ("anthropic", "haiku", (5, 5))),
    ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", ("anthropic", "sonnet", (4, 5))),
    ("anthropic/claude-opus-5", ("anthropic", "opus", (5, 0))),
    ("Claude-Opus-4-7", ("anthropic", "opus", (4, 7))),
    ("claude-3-5-sonnet-20241022", ("anthropic", "sonnet", (3, 5))),
    ("claude-3.7-sonnet", ("anthropic", "sonnet", (3, 7))),
    ("claude-3-opus-latest", ("anthropic", "opus", (3, 0))),
    ("gpt-5.6", ("openai", "gpt", (5, 6))),
    ("gpt-4o-mini", ("openai", "gpt", (4, 0))),
    ("openai/gpt-5", ("openai", "gpt", (5, 0))),
    ("ft:gpt-4.1:us:me", ("openai", "gpt", (4, 1))),
    ("models/gemini-2.5-pro", ("google", "gemini", (2, 5))),
    ("gemini-3-flash", ("google", "gemini", (3, 0))),
    ("mygpt-4", None),
    ("claude-instant", None),
    ("claude-opus-\u0664", None),
    ("llama-4", None),
    ("", None),
    ("x" * 300 + "gpt-4", None),
    (None, None),
    (4, None),
    ([], None),
]


@pytest.mark.parametrize(("name", "expected"), NAMES)
def test_names(name: object, expected: tuple[str, str, tuple[int, int]] | None) -> None:
    assert parse_model_name(name) == (None if expected is None else ModelName(*expected))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("claude-fable-5-1", True), ("claude-mythos-5-2", True), ("claude-opus-5-5", False)],
)
def test_models_that_always_think(name: str, expected: bool) -> None:
    model = parse_model_name(name)
    assert model is not None
    assert is_always_thinking(model) is expected


@given(st.text(max_size=40) | st.from_regex(r"(claude|gpt|gemini)-[a-z0-9.-]{0,12}"))
def test_no_name_raises(name: str) -> None:
    parse_model_name(name)
