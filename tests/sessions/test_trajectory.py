"""Whole conversations in a provider's format, from benchmarks and custom logs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.pricing import Usage
from respool.providers.registry import PROVIDERS, check_request
from respool.sessions import trajectory
from respool.sessions.readers import READERS, read_file, transcripts_below
from respool.sessions.session import RecordedRequest, RecordedSession, Skipped
from tests.strategies import arbitrary_json

FUNCTION = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
CHAT: list[Any] = [
    {"role": "system", "content": "Find the way."},
    {"role": "user", "content": "Where is the door?"},
    {"role": "assistant", "content": None, "tool_calls": [FUNCTION]},
    {"role": "tool", "tool_call_id": "c1", "content": "a door"},
    {"role": "assistant", "content": "There."},
]
WORDS: list[Any] = [
    {"role": "user", "content": "Left or right?"},
    {"role": "assistant", "content": "Left."},
    {"role": "user", "content": "A wall."},
    {"role": "assistant", "content": "Then right."},
]
ANTHROPIC: list[Any] = [
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "ls", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "a"}]},
    {"role": "assistant", "content": "done"},
]
RESPONSES: list[Any] = [
    {"role": "user", "content": "go"},
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "a"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
]
GEMINI: list[Any] = [
    {"role": "user", "parts": [{"text": "go"}]},
    {"role": "model", "parts": [{"functionCall": {"name": "ls", "args": {}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "ls", "response": {"a": 1}}}]},
    {"role": "model", "parts": [{"text": "done"}]},
]


def of(path: Path) -> list[Any]:
    return list(read_file(path, READERS))


def written(folder: Path, value: Any, name: str = "run.json", indent: int | None = None) -> Path:
    path = folder / name
    content = json.dumps(value, indent=indent).encode()
    path.write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
    return path


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    ("history", "format", "cuts"),
    [
        (CHAT, "openai-chat", [2, 4]),
        (WORDS, "openai-chat", [1, 3]),
        (ANTHROPIC, "anthropic", [1, 3]),
        (RESPONSES, "openai-responses", [1, 4]),
        (GEMINI, "gemini", [1, 3]),
    ],
    ids=["chat", "words", "anthropic", "responses", "gemini"],
)
@pytest.mark.parametrize("field", [None, "messages", "history", "trajectory", "traj"])
def test_a_conversation_in_any_format(
    tmp_path: Path, history: list[Any], format: str, cuts: list[int], field: str | None, indent: int
):
    value = history if field is None else {"about": {"a": [1]}, field: history}
    (session,) = of(written(tmp_path, value, indent=indent))
    assert isinstance(session, RecordedSession)
    assert (session.agent, session.id, session.format) == ("trajectory", "run", format)
    assert session.messages == history
    assert [sent.cut for sent in session.requests] == cuts
    codec = PROVIDERS[session.format].codec
    for sent in session.requests:
        found = check_request(codec, session.messages[: sent.cut], None)
        assert [problem for problem in found if problem.severity == "error"] == []


def test_a_run_of_mini_swe_agent(tmp_path: Path):
    usage = {"prompt_tokens": 100, "completion_tokens": 7}
    usage |= {"prompt_tokens_details": {"cached_tokens": 60}}
    response = {"id": "x", "model": "gpt-5", "created": 1_700_000_000, "usage": usage}
    told = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "task"},
        {"role": "assistant", "content": "ls", "extra": {"response": response, "cost": 0.1}},
        {"role": "user", "content": "<output>a</output>"},
        {"role": "assistant", "content": "end", "extra": {"timestamp": 1_700_000_009.5}},
        {"role": "exit", "content": "Submitted", "extra": {}},
    ]
    info = {"config": {"model": {"model_name": "gpt-5-mini"}}}
    run = {"info": info, "messages": told, "trajectory_format": "mini-swe-agent-1.1"}
    (session,) = of(written(tmp_path, {**run, "instance_id": "maze-1"}, "maze.traj.json"))
    assert session.id == "maze-1"
    assert session.requests == (
        RecordedRequest(
            2,
            1_700_000_000.0,
            Usage(input=40, cache_read=60, cache_write=0, cache_write_1h=0, output=7),
            "gpt-5",
        ),
        RecordedRequest(4, 1_700_000_009.5, None, "gpt-5-mini"),
    )
    assert session.messages == [{"role": m["role"], "content": m["content"]} for m in told[:5]]
    assert session.notes == ("1 records that are no messages left out",)


def test_a_run_of_swe_agent_whose_steps_fill_the_head(tmp_path: Path):
    step = {"action": "ls", "observation": "x" * 50_000, "response": "", "thought": ""}
    noted = {"agent": "main", "message_type": "action", "thought": "t", "action": "ls"}
    call = {"role": "assistant", "content": "", "tool_calls": [FUNCTION], **noted}
    result = {"role": "tool", "content": "a", "tool_call_ids": ["c1"], "agent": "main"}
    history = [{"role": "system", "content": "s", "agent": "main"}, CHAT[1], call, result, CHAT[4]]
    run = {"trajectory": [step] * 4, "history": history, "info": {}, "environment": "swe"}
    (session,) = of(written(tmp_path, run, "maze__1.traj"))
    assert [sent.cut for sent in session.requests] == [2, 4]
    assert session.messages[2] == {"role": "assistant", "content": "", "tool_calls": [FUNCTION]}
    assert session.messages[3] == {"role": "tool", "content": "a", "tool_call_id": "c1"}
    assert list(transcripts_below(tmp_path)) == [tmp_path / "maze__1.traj"]


def test_results_of_tau_bench_are_a_session_each(tmp_path: Path):
    results = [
        {"task_id": task, "reward": 1.0, "info": {"a": []}, "traj": CHAT, "trial": 0}
        for task in range(3)
    ]
    results[1]["traj"] = CHAT[:2]
    first, second, third = of(written(tmp_path, results, "gpt-4o.json"))
    assert [first.id, third.id] == ["task-0-trial-0", "task-2-trial-0"]
    assert isinstance(second, Skipped)
    assert second.reason == "conversation task-1-trial-0: no answer of a model is recorded in it"


def test_a_conversation_may_be_a_line(tmp_path: Path):
    path = tmp_path / "runs.jsonl"
    runs = [{"id": "a", "messages": CHAT}, {"score": 1, "messages": GEMINI}, {"messages": []}]
    path.write_text("".join(json.dumps(run) + "\n" for run in runs))
    first, second, skipped = of(path)
    assert skipped.reason == "no conversation is in 1 of its records; the rest was read"
    assert (first.id, first.format) == ("a", "openai-chat")
    assert (second.id, second.format) == ("runs:1", "gemini")


@pytest.mark.parametrize("value", [[], {}, [1], {"messages": []}, {"messages": {}}, {"a": [CHAT]}])
def test_other_documents_are_no_conversation(tmp_path: Path, value: Any):
    (skipped,) = of(written(tmp_path, value))
    assert isinstance(skipped, Skipped)


def test_a_history_that_is_of_no_format_is_named(tmp_path: Path):
    (skipped,) = of(written(tmp_path, {"messages": [{"role": "human", "content": "x"}] * 3}))
    assert "conversation run: " in skipped.reason


@given(st.lists(arbitrary_json(), max_size=4), st.sampled_from(["messages", "traj", None]))
def test_whatever_is_in_it_nothing_raises(values: list[Any], field: str | None):
    record = values if field is None else {field: values}
    for found in trajectory.read([record], "f.json"):
        assert isinstance(found, RecordedSession | Skipped)
