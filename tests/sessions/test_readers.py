"""Reader registry: files recognized by content, unreadable ones named and skipped."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from respool.sessions.readers import (
    LOCATIONS,
    READERS,
    Reader,
    find_transcripts,
    read_file,
    transcripts_below,
)
from respool.sessions.session import RecordedRequest, RecordedSession, Skipped

STAMP = "2026-01-01T00:00:00Z"
CLAUDE = [
    {
        "type": "user", "uuid": "u1", "parentUuid": None, "sessionId": "s", "isSidechain": False,
        "timestamp": STAMP, "message": {"role": "user", "content": "hello"},
    },
    {
        "type": "assistant", "uuid": "u2", "parentUuid": "u1", "sessionId": "s",
        "isSidechain": False, "timestamp": STAMP,
        "message": {
            "id": "m1", "role": "assistant", "model": "claude-sonnet-4-5",
            "content": [{"type": "text", "text": "hi"}], "usage": {"input_tokens": 3},
        },
    },
    {
        "type": "user", "uuid": "u3", "parentUuid": "u2", "sessionId": "s", "isSidechain": False,
        "timestamp": STAMP, "message": {"role": "user", "content": "bye"},
    },
]  # fmt: skip


def lines(records: list[Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def sessions(path: Path) -> list[Any]:
    return list(read_file(path, READERS))


def test_a_transcript_is_read_whatever_its_packing(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"
    plain.write_bytes(lines(CLAUDE))
    packed.write_bytes(gzip.compress(lines(CLAUDE), mtime=0))
    (one,), (other,) = sessions(plain), sessions(packed)
    assert isinstance(one, RecordedSession)
    assert one.agent == "claude-code"
    assert one.messages == other.messages
    assert [sent.cut for sent in one.requests] == [1]


def test_a_half_written_last_line_is_normal(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(CLAUDE) + b'{"type": "user", "mess')
    (session,) = sessions(path)
    assert isinstance(session, RecordedSession)
    assert len(session.messages) == 3


def test_a_record_across_the_head_is_whole(tmp_path: Path) -> None:
    long = json.loads(json.dumps(CLAUDE))
    long[0]["message"]["content"] = "x" * 100_000
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(long))
    (session,) = sessions(path)
    assert "x" * 100_000 in json.dumps(session.messages[0])


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.jsonl", b"", "empty"),
        ("a.jsonl", b"  \n\n", "empty"),
        ("a.jsonl", b'{"hello": 1}\n', "no transcript"),
        ("a.jsonl", bytes(range(256)) * 10, "no transcript"),
        ("a.json", b"[1, 2", "no transcript"),
        ("a.jsonl.gz", b"not gzip at all", "gzip"),
        ("a.jsonl.gz", gzip.compress(lines(CLAUDE), mtime=0)[:60], "end"),
    ],
    ids=["empty", "blank", "other JSON", "binary", "half a list", "no gzip", "half a gzip"],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes, why: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    (skipped,) = sessions(path)
    assert isinstance(skipped, Skipped)
    assert skipped.source == str(path)
    assert why in skipped.reason


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (skipped,) = sessions(tmp_path / "none.jsonl")
    assert isinstance(skipped, Skipped)


def test_transcripts_are_found_below_a_home(tmp_path: Path) -> None:
    place = tmp_path / ".claude" / "projects" / "here"
    place.mkdir(parents=True)
    (place / "b.jsonl").write_bytes(lines(CLAUDE))
    (place / "notes.txt").write_text("no transcript")
    assert list(find_transcripts(tmp_path)) == [place / "b.jsonl"]
    assert list(find_transcripts(tmp_path, ["codex"])) == []
    assert list(transcripts_below(place / "b.jsonl")) == [place / "b.jsonl"]
    assert list(find_transcripts(tmp_path / "nowhere")) == []


AGENTS_FILES = {
    "claude-code": ".claude/projects/maze/a.jsonl",
    "codex": ".codex/sessions/2026/01/01/rollout-a.jsonl",
    "pi": ".pi/agent/sessions/maze/a.jsonl",
    "opencode": ".local/share/opencode/storage/session/maze/ses_1.json",
    "gemini-cli": ".gemini/tmp/maze/chats/session-a.json",
    "copilot-cli": ".copilot/session-state/c-1/events.jsonl",
    "openhands": ".openhands/conversations/abc/events/event-00000-e0.json",
    "trajectory": ".config/mini-swe-agent/last_mini_run.traj.json",
}
BESIDE = [
    ".claude/projects/maze/s/subagents/agent-1.meta.json",
    ".claude/history.jsonl",
    ".codex/history.jsonl",
    ".pi/agent/auth.json",
    ".gemini/tmp/maze/logs.json",
    ".copilot/config.json",
    ".openhands/conversations/abc/base_state.json",
    ".openhands/conversations/abc/events/event-00001-e1.json",
    ".local/share/opencode/storage/message/ses_1/msg_1.json",
    ".local/share/opencode/storage/part/msg_1/prt_1.json",
    ".config/mini-swe-agent/settings.json",
]
# What each variable names, and where a transcript lies below it.
VARIABLES = [
    ("claude-code", "CLAUDE_CONFIG_DIR", "projects/maze/a.jsonl"),
    ("codex", "CODEX_HOME", "archived_sessions/rollout-a.jsonl"),
    ("pi", "PI_CODING_AGENT_DIR", "sessions/maze/a.jsonl"),
    ("pi", "PI_CODING_AGENT_SESSION_DIR", "maze/a.jsonl"),
    ("opencode", "XDG_DATA_HOME", "opencode/opencode-dev.db"),
    ("opencode", "XDG_DATA_HOME", "opencode/storage/session/maze/ses_1.json"),
    ("gemini-cli", "GEMINI_CLI_HOME", ".gemini/tmp/maze/chats/a.jsonl"),
    ("copilot-cli", "COPILOT_HOME", "session-state/c-1/events.jsonl"),
    ("openhands", "OPENHANDS_PERSISTENCE_DIR", "conversations/abc/events/event-00000-e0.json"),
    ("openhands", "OPENHANDS_CONVERSATIONS_DIR", "abc/events/event-00000-e0.json"),
    ("inspect", "INSPECT_LOG_DIR", "2026/a.eval"),
    ("trajectory", "MSWEA_GLOBAL_CONFIG_DIR", "last_mini_run.traj.json"),
]


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    return path


def test_each_agents_transcripts_are_found_and_nothing_beside_them(tmp_path: Path) -> None:
    left = {agent: put(tmp_path / name) for agent, name in AGENTS_FILES.items()}
    for name in BESIDE:
        put(tmp_path / name)
    for agent, path in left.items():
        assert list(find_transcripts(tmp_path, [agent])) == [path]
    assert sorted(find_transcripts(tmp_path)) == sorted(left.values())
    assert set(left) | {"inspect"} == set(LOCATIONS)


@pytest.mark.parametrize(("agent", "variable", "name"), VARIABLES)
def test_a_variable_says_where_they_are(
    tmp_path: Path, agent: str, variable: str, name: str
) -> None:
    home, named = tmp_path / "home", tmp_path / "named"
    path = put(named / name)
    if agent in AGENTS_FILES:
        put(home / AGENTS_FILES[agent])
    assert list(find_transcripts(home, [agent], {variable: str(named)})) == [path]
    assert path not in find_transcripts(home, [agent], {})


@pytest.mark.parametrize("value", ["", "relative/folder"])
def test_a_variable_that_names_no_folder_is_as_if_not_set(tmp_path: Path, value: str) -> None:
    path = put(tmp_path / AGENTS_FILES["codex"])
    assert list(find_transcripts(tmp_path, ["codex"], {"CODEX_HOME": value})) == [path]


def test_a_home_with_nothing_has_no_files(tmp_path: Path) -> None:
    for name in (".claude/projects", ".codex", ".openhands/conversations/abc/events"):
        (tmp_path / name).mkdir(parents=True)
    assert list(find_transcripts(tmp_path)) == []
    assert list(find_transcripts(tmp_path, ["no such agent"])) == []
    named = {place.variable: str(tmp_path / "gone") for row in LOCATIONS.values() for place in row}
    named.pop(None)
    assert list(find_transcripts(tmp_path, environ={str(key): named[key] for key in named})) == []


def test_every_agent_has_a_name_of_its_own() -> None:
    assert len({reader.agent for reader in READERS}) == len(READERS) == 11


def test_records_are_read_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n": 1}\n{"n": 2}\n{"n": 3}\n')
    taken: list[int] = []

    def read(records: Any, source: str) -> Iterator[RecordedSession | Skipped]:
        for record in records:
            taken.append(record["n"])
            yield RecordedSession(
                id=source,
                agent="x",
                format="anthropic",
                messages=[],
                requests=(RecordedRequest(0),),
            )

    stream = read_file(path, [Reader("x", lambda head, name: True, read)])
    next(stream)
    assert taken == [1]
