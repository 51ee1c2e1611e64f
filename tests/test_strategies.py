"""The strategies make what they say: whole requests that judges take, and broken ones."""

from __future__ import annotations

import copy
import json
import os
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from tests.effort import THOROUGH, examples
from tests.judges import HISTORY_JUDGES, JUDGES
from tests.strategies import (
    FORMATS,
    HISTORY,
    arbitrary_json_messages,
    broken,
    damaged,
    growing,
    histories,
    pending,
    requests,
)
from tests.strategies.breaking import DAMAGES

JUDGED = [(format, judge) for format in FORMATS for judge in JUDGES[format]]
quick = settings(max_examples=examples(100), deadline=None)


@pytest.mark.parametrize(("format", "judge"), JUDGED, ids=[judge.__module__ for _, judge in JUDGED])
def test_whole_requests_are_taken(format: str, judge: Any) -> None:
    @quick
    @given(requests(format))
    def run(request: dict[str, Any]) -> None:
        assert judge(request) == []

    run()


@pytest.mark.parametrize("format", FORMATS)
def test_histories_are_lists_that_judges_take(format: str) -> None:
    @quick
    @given(histories(format) | pending(format))
    def run(history: list[Any]) -> None:
        assert history
        assert HISTORY_JUDGES[format](history) == []

    run()


def _without_breakpoints(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_breakpoints(item) for item in value]
    if isinstance(value, dict):
        breakpoint_fields = ("cache_control", "prompt_cache_breakpoint")
        return {
            key: _without_breakpoints(item)
            for key, item in value.items()
            if key not in breakpoint_fields
        }
    return value


@pytest.mark.parametrize("format", FORMATS)
def test_growing_requests_extend_each_other(format: str) -> None:
    field = HISTORY[format]

    @quick
    @given(growing(format))
    def run(sent: list[dict[str, Any]]) -> None:
        bare = [_without_breakpoints(request) for request in sent]
        for before, after in pairwise(bare):
            assert len(before[field]) < len(after[field])
            assert after[field][: len(before[field])] == before[field]
            assert {**before, field: 0} == {**after, field: 0}
        for request in sent:
            assert all(judge(request) == [] for judge in JUDGES[format])

    run()


def test_the_mark_moves() -> None:
    moved = 0

    @quick
    @given(growing("anthropic"))
    def run(sent: list[dict[str, Any]]) -> None:
        nonlocal moved
        for before, after in pairwise(sent):
            moved += after["messages"][: len(before["messages"])] != before["messages"]
            assert json.dumps(after).count('"cache_control"') <= 4

    run()
    assert moved


@pytest.mark.parametrize("format", FORMATS)
def test_broken_requests_are_no_longer_whole(format: str) -> None:
    refused = 0

    @quick
    @given(damaged(format))
    def run(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
        nonlocal refused
        whole, made = pair
        assert made != whole
        assert all(judge(whole) == [] for judge in JUDGES[format])  # breaking a copy
        refused += any(judge(made) for judge in JUDGES[format])
        json.dumps(made)

    run()
    assert refused


@pytest.mark.laws
@pytest.mark.parametrize("format", FORMATS)
def test_every_damage_hits(format: str) -> None:
    hits: Counter[str] = Counter()

    @settings(max_examples=50, deadline=None, derandomize=True, database=None)
    @given(histories(format), st.data())
    def run(history: list[Any], data: st.DataObject) -> None:
        for damage in DAMAGES:
            copied = copy.deepcopy(history)
            damage(data.draw, format, copied)
            hits[damage.__name__] += copied != history

    run()
    assert [damage.__name__ for damage in DAMAGES if not hits[damage.__name__]] == []


@settings(max_examples=examples(200), deadline=None)
@given(st.one_of(*(broken(format) for format in FORMATS)), arbitrary_json_messages())
def test_everything_is_json(request: dict[str, Any], messages: list[Any]) -> None:
    assert json.loads(json.dumps([request, messages])) == [request, messages]


# What must turn up, so that a strategy cannot grow poor unseen.
KINDS = {
    "anthropic": (
        '"type": "thinking"',
        '"redacted_thinking"',
        '"server_tool_use"',
        '"web_search_tool_result"',
        '"mcp_tool_use"',
        '"mcp_tool_result"',
        '"compaction"',
        '"image"',
        '"document"',
        '"search_result"',
        '"role": "system"',
        '"is_error": true',
        '"ttl": "1h"',
        '"future_sketch"',
        '"future_scent"',
        '"enabled", "budget_tokens"',
    ),
    "openai-chat": (
        '"content": null',
        '"reasoning_content"',
        '"custom"',
        '"developer"',
        '"image_url"',
        '"file"',
        '"prompt_cache_breakpoint"',
        '"future_gesture"',
    ),
    "openai-responses": (
        '"function_call_output"',
        '"custom_tool_call_output"',
        '"local_shell_call_output"',
        '"shell_call_output"',
        '"apply_patch_call_output"',
        '"computer_screenshot"',
        '"tool_search_output"',
        '"mcp_call"',
        '"web_search_call"',
        '"code_interpreter_call"',
        '"encrypted_content"',
        '"compaction"',
        '"phase"',
        '"id": "rs_',
        '"gpt-5.6", "input": "',
        '"input_image"',
        '"future_plan"',
    ),
    "gemini": (
        '"thought": true',
        '"thoughtSignature"',
        '"inlineData"',
        '"fileData"',
        '"executableCode"',
        '"codeExecutionResult"',
        '"toolCall"',
        '"functionResponse": {"id"',
        '"functionResponse": {"name"',
        '"error"',
        '"future_sketch"',
    ),
}


def _longest(value: Any) -> int:
    """The length of the longest text of several lines."""
    if isinstance(value, str):
        return len(value) if value.count("\n") > 3 else 0
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max(map(_longest, inner), default=0)


@pytest.mark.laws
@pytest.mark.parametrize("format", FORMATS)
def test_every_kind_turns_up(format: str) -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=300, deadline=None, derandomize=True, database=None)
    @given(requests(format))
    def run(request: dict[str, Any]) -> None:
        text = json.dumps({**request, "tools": []})
        seen.update(kind for kind in KINDS[format] if kind in text)
        seen["long"] += _longest(request) > 600

    run()
    assert [kind for kind in (*KINDS[format], "long") if not seen[kind]] == []


@pytest.mark.skipif(THOROUGH or "FUZZ" in os.environ, reason="draws constants of modules as well")
def test_examples_depend_on_no_module_that_is_loaded() -> None:
    """Else a test alone and a test among others draw other examples."""
    assert list(providers.HypothesisProvider(None)._local_constants) == []
