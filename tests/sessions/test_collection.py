"""Collections: one whole session of any agent per line, read by its agent's reader."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.sessions import collection
from respool.sessions.readers import READERS, read_file
from respool.sessions.session import RecordedSession, Skipped
from tests.strategies import arbitrary_json

STAMP = "2026-01-01T00:00:00Z"


def record(kind: str, id: str, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": kind, "id": f"m-{id}", "model": "claude-x", "content": content}
    holder = {"type": kind, "uuid": id, "parentUuid": None, "sessionId": "own-id"}
    return {**holder, "isSidechain": False, "timestamp": STAMP, "message": message, **more}


TEXT = [{"type": "text", "text": "there"}]
SIDE = {"isSidechain": True, "agentId": "scout"}
CLAUDE = [
    record("user", "1", "where?"),
    record("assistant", "2", TEXT),
    record("user", "3", "look", **SIDE),
    record("assistant", "4", TEXT, **SIDE),
]
ITEM = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
CODEX = [
    {"type": "session_meta", "timestamp": STAMP, "payload": {"id": "own-id"}},
    {"type": "response_item", "timestamp": STAMP, "payload": ITEM},
    {"type": "response_item", "timestamp": STAMP, "payload": SAID},
]
PI = [
    {"type": "session", "id": "own-id", "cwd": "/maze", "timestamp": STAMP},
    {"type": "message", "timestamp": STAMP, "message": {"role": "user", "content": "go"}},
    {"type": "message", "timestamp": STAMP, "message": {"role": "assistant", "content": TEXT}},
]
OPENCODE = [
    {"info": {"id": "msg_1", "role": "user"}, "parts": [{"type": "text", "text": "go"}]},
    {"info": {"id": "msg_2", "role": "assistant"}, "parts": [{"type": "text", "text": "a"}]},
]
GEMINI = [
    {"id": "1", "type": "user", "content": "go", "timestamp": STAMP},
    {"id": "2", "type": "gemini", "content": "there", "timestamp": STAMP},
]
COPILOT = [
    {"type": "session.start", "data": {"sessionId": "own-id"}, "timestamp": STAMP},
    {"type": "user.message", "data": {"content": "go"}, "timestamp": STAMP},
    {"type": "assistant.message", "data": {"content": "a"}, "timestamp": STAMP},
]
OPENHANDS = [
    {"id": 1, "source": "user", "action": "message", "args": {"content": "go"}},
    {"id": 2, "source": "agent", "action": "message", "args": {"content": "there"}},
]
CHAT = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "there"}]

LINES: dict[str, dict[str, Any]] = {
    "claude-code": {"format": "claude-code", "agent": "Claude Code", "messages": CLAUDE},
    "codex": {"agent": "Codex CLI", "recs": CODEX},
    "pi": {"format": "pi", "messages": PI},
    "opencode": {"format": "opencode", "meta": {"info": {"id": "ses_1"}}, "messages": OPENCODE},
    "gemini-cli": {"format": "gemini-cli", "meta": {"sessionId": "own-id"}, "messages": GEMINI},
    "copilot-cli": {"format": "copilot-cli", "messages": COPILOT},
    "openhands": {"format": "openhands-events", "messages": OPENHANDS},
    "inspect": {"format": "inspect", "messages": CHAT},
    "some agent": {"format": "openai-chat", "agent": "some agent", "messages": CHAT},
    "collection": {"format": "anthropic", "messages": CHAT},
}


def written(folder: Path, *lines: Any) -> Path:
    path = folder / "all.jsonl.gz"
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return path


@pytest.mark.parametrize("agent", list(LINES))
def test_each_line_is_read_by_its_own_reader_and_has_its_own_id(tmp_path: Path, agent: str):
    path = written(tmp_path, {"id": "one/maze", **LINES[agent]})
    first, *rest = read_file(path, READERS)
    assert isinstance(first, RecordedSession)
    assert (first.id, first.agent, first.source) == ("one/maze", agent, str(path))
    assert len(first.requests) == 1
    assert rest == [] or agent == "claude-code"


def test_a_sub_agent_is_named_for_its_line(tmp_path: Path):
    line = {"id": "one", **LINES["claude-code"]}
    found = read_file(written(tmp_path, line, line), READERS)
    told = [session for session in found if isinstance(session, RecordedSession)]
    assert [(found.id, found.parent) for found in told[:2]] == [("one", None), ("one/scout", "one")]
    assert len(told) == 4


def test_all_kinds_may_stand_in_one_file(tmp_path: Path):
    lines = [{"id": f"line-{n}", **line} for n, line in enumerate(LINES.values())]
    told = list(read_file(written(tmp_path, *lines), READERS))
    ids = [found.id for found in told if isinstance(found, RecordedSession)]
    assert [id for id in ids if "/" not in id] == [f"line-{n}" for n in range(len(LINES))]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (3, "session 2: it is no object"),
        ({"id": "b", "format": "x", "messages": []}, "session b: it is of no agent"),
        ({"id": "b", "format": "codex"}, "session b: it has neither messages nor recs"),
        ({"id": "b", "format": "codex", "messages": []}, "session b: no answer"),
        ({"id": "b", "format": "gemini", "messages": [1]}, "conversation b: no answer"),
    ],
)
def test_a_line_that_is_no_session_is_named_and_the_rest_is_read(
    tmp_path: Path, line: Any, why: str
):
    whole = {"id": "a", **LINES["codex"]}
    first, skipped, last = read_file(written(tmp_path, whole, line, whole), READERS)
    assert isinstance(first, RecordedSession)
    assert isinstance(last, RecordedSession)
    assert isinstance(skipped, Skipped)
    assert skipped.reason.startswith(why)


def test_a_line_nested_too_deeply_for_its_reader_is_named_and_the_rest_is_read(tmp_path: Path):
    deep: Any = "x"
    for _ in range(300):
        deep = {"more": [deep]}
    sample = {"role": "user", "content": deep}
    aside = {"format": "inspect", "messages": [sample, CHAT[1]]}
    whole = {"id": "a", **LINES["codex"]}
    found = list(read_file(written(tmp_path, whole, {"id": "b", **aside}, whole), READERS))
    assert isinstance(found[0], RecordedSession)
    assert isinstance(found[-1], RecordedSession)
    assert isinstance(found[1], RecordedSession | Skipped)


def test_lines_are_read_one_at_a_time():
    taken: list[int] = []

    def lines() -> Any:
        for number in range(3):
            taken.append(number)
            yield {"id": str(number), **LINES["codex"]}

    next(collection.read(lines(), "f"))
    assert taken == [0]


@given(st.sampled_from(list(LINES)), st.lists(arbitrary_json(), max_size=4), arbitrary_json())
def test_whatever_is_in_it_nothing_raises(agent: str, records: list[Any], meta: Any):
    line = {**LINES[agent], "id": "x", "messages": records, "meta": meta}
    for found in collection.read([line], "f.jsonl"):
        assert isinstance(found, RecordedSession | Skipped)
