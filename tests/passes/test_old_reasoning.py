"""The pass old_reasoning."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import respool
from respool.edits import DropReasoning
from respool.passes.old_reasoning import old_reasoning
from tests.effort import examples
from tests.support.coding_sessions import bash, hold_the_laws, run_on
from tests.support.formats import FIELD, FORMATS, request

formats = pytest.mark.parametrize("format", FORMATS)
THOUGHT = "I wonder which thread of the warp leads out of this maze, and how I would follow it."


def thinking_session(
    format: str, steps: int, users: tuple[int, ...] = (), **about: Any
) -> dict[str, Any]:
    """A session in which the model thinks before every call; `users` are steps the user opens."""
    said: list[Any] = ["go"]
    for number in range(steps):
        said += ["And now?"] if number in users else []
        said.append([bash(f"ls part_{number}", f"ok {number}", f"call_{number}")])
    body = {**request(format, *said), **about}
    history: list[Any] = []
    number = 0
    for message in body[FIELD[format]]:
        if _calls(format, message):
            history += _thinking(format, copy.deepcopy(message), number)
            number += 1
        else:
            history.append(message)
    return {**body, FIELD[format]: history}


def _calls(format: str, message: Any) -> bool:
    kind = "function_call" if format == "openai-responses" else None
    return message.get("type") == kind and message.get("role") in (None, "assistant", "model")


def _thinking(format: str, message: Any, number: int) -> list[Any]:
    text = f"{THOUGHT} ({number})"
    if format == "anthropic":
        thought = {"type": "thinking", "thinking": text, "signature": "c2lnbmVk"}
        message["content"].insert(0, thought)
    elif format == "openai-chat":
        message["reasoning_content"] = text
    elif format == "gemini":
        message["parts"].insert(0, {"text": text, "thought": True})
        message["parts"][1]["thoughtSignature"] = "c2lnbmVk"
    else:
        summary = [{"type": "summary_text", "text": text}]
        message["id"] = f"fc_{number}"
        item = {"type": "reasoning", "id": f"rs_{number}", "summary": summary}
        return [{**item, "encrypted_content": "eA=="}, message]
    return [message]


def thoughts(body: Any) -> list[int]:
    """The numbers of the thoughts that are left."""
    sent = json.dumps(body)
    return [number for number in range(50) if f"{THOUGHT} ({number})" in sent]


def left(body: Any, format: str, keep: int) -> list[int]:
    """The numbers of the thoughts that are left; the request is what the provider accepts."""
    out = run_on(old_reasoning, format, body, keep)
    assert [p for p in respool.check(out.request, format=format) if p.severity == "error"] == []
    assert all(isinstance(edit, DropReasoning) for edit in out.report.edits)
    return thoughts(out.request)


@pytest.mark.parametrize("format", ["anthropic", "openai-responses", "gemini"])
def test_old_reasoning_is_pruned_and_the_last_four_stay(format: str) -> None:
    # keep_recent counts the exchanges that the model has seen; the last one it has not.
    assert left(thinking_session(format, 10), format, keep=3) == [6, 7, 8, 9]


@pytest.mark.parametrize("format", ["anthropic", "openai-responses", "gemini"])
def test_the_latest_turn_keeps_its_reasoning_whatever_is_kept(format: str) -> None:
    assert left(thinking_session(format, 5), format, keep=0) == [4]


@pytest.mark.parametrize("format", ["anthropic", "openai-responses", "gemini"])
def test_nothing_goes_while_all_is_recent(format: str) -> None:
    assert left(thinking_session(format, 4), format, keep=6) == [0, 1, 2, 3]


@formats
def test_calls_and_results_stay(format: str) -> None:
    out = run_on(old_reasoning, format, thinking_session(format, 8, (4,)), 1)
    sent = json.dumps(out.request)
    assert all(f"ls part_{number}" in sent and f"ok {number}" in sent for number in range(8))


@pytest.mark.parametrize("format", ["anthropic", "openai-responses", "gemini"])
def test_the_report_counts_what_goes(format: str) -> None:
    out = run_on(old_reasoning, format, thinking_session(format, 6), 2)
    report = out.report
    assert len(report.edits) == 3
    assert {edit.reason for edit in report.edits} == {"old_reasoning"}
    assert report.edits[0].evidence.startswith("1 block, ")
    assert report.tokens_before - report.tokens_after == sum(edit.saved for edit in report.edits)
    assert any(THOUGHT in text for text in out.originals.values())


def test_responses_items_that_need_the_reasoning_are_unbound() -> None:
    """R4: a call that names its reasoning by id cannot stay without it."""
    out = run_on(old_reasoning, "openai-responses", thinking_session("openai-responses", 5), 1)
    calls = [item for item in out.request["input"] if item.get("type") == "function_call"]
    assert ["id" in call for call in calls] == [False, False, False, True, True]


def test_reasoning_that_led_to_an_approval_stays_with_it() -> None:
    """R4: the answer names the request by its id, so nothing can unbind the request."""
    body = thinking_session("openai-responses", 5)
    asked = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "pay", "arguments": "{}"}
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    items = body["input"]
    items[5:6] = [{**asked, "server_label": "bank"}, items[5]]
    items[7:8] = [items[7], answer]
    out = run_on(old_reasoning, "openai-responses", body, 1).request["input"]
    assert thoughts(out) == [1, 3, 4]
    assert out[out.index(items[5]) - 1] is items[4]


def test_gemini_signatures_of_calls_stay() -> None:
    """G3: the calls of the current turn must still be signed."""
    out = run_on(old_reasoning, "gemini", thinking_session("gemini", 5), 1)
    parts = [part for content in out.request["contents"] for part in content["parts"]]
    calls = [part for part in parts if "functionCall" in part]
    assert all("thoughtSignature" in call for call in calls)


def test_in_manual_mode_only_turns_that_are_over_lose_theirs() -> None:
    """A10: the turn in which calls are being made must open with its thinking."""
    manual: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 50}}
    one_turn = thinking_session("anthropic", 8, **manual)
    assert left(one_turn, "anthropic", keep=1) == list(range(8))
    two_turns = thinking_session("anthropic", 8, (4,), **manual)
    assert left(two_turns, "anthropic", keep=1) == [4, 5, 6, 7]
    assert left(two_turns, "anthropic", keep=5) == [2, 3, 4, 5, 6, 7]


def test_in_manual_mode_what_had_to_wait_goes_when_its_turn_is_over() -> None:
    manual: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 50}}
    body = thinking_session("anthropic", 9, (3, 6), **manual)
    assert left(body, "anthropic", keep=0) == [6, 7, 8]


def test_on_models_that_bind_reasoning_all_that_is_older_goes_too() -> None:
    """A12: only the oldest thinking may go; without a middle one the later ones are invalid."""
    body = thinking_session("anthropic", 8, model="claude-opus-5-5")
    blank = {"type": "thinking", "thinking": "", "signature": "c2lnbmVk"}
    body["messages"][1]["content"][0] = blank  # saves nothing, and must go all the same
    out = run_on(old_reasoning, "anthropic", body, 2)
    assert thoughts(out.request) == [5, 6, 7]
    assert blank not in out.request["messages"][1]["content"]


@pytest.mark.parametrize(
    ("model", "goes"),
    [("anthropic/claude-sonnet-4-5", True), ("openai/gpt-5.1", True), ("google/gemini-3-pro", True),
     ("deepseek-reasoner", False), ("kimi-k2-thinking", False), ("qwen3", False)],
)  # fmt: skip
def test_chat_servers_that_may_demand_it_back_get_it_back(model: str, goes: bool) -> None:
    """T4: the `reasoning_content` in the thinking mode must be passed back to the API."""
    body = thinking_session("openai-chat", 6, (3,), model=model)
    assert left(body, "openai-chat", keep=0) == ([3, 4, 5] if goes else list(range(6)))


@formats
def test_sessions_without_reasoning_are_left(format: str) -> None:
    steps = [[bash(f"ls {n}", "ok", f"c{n}")] for n in range(5)]
    body = request(format, "go", *steps)
    assert run_on(old_reasoning, format, body, 0).request is body


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(FORMATS),
    st.integers(1, 9),
    st.sets(st.integers(0, 8), max_size=3),
    st.sampled_from([None, "enabled", "adaptive"]),
)
def test_the_laws_hold(format: str, steps: int, users: set[int], mode: str | None) -> None:
    budget = {"budget_tokens": 50} if mode == "enabled" else {}
    thinking = {"thinking": {"type": mode, **budget}}
    about: dict[str, Any] = thinking if mode and format == "anthropic" else {}
    body = thinking_session(format, steps, tuple(users), **about)
    if format == "anthropic" and mode == "adaptive":
        body["model"] = "claude-opus-4-6"
    hold_the_laws(old_reasoning, format, body, FIELD[format])
