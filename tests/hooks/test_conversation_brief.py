"""Briefs of a recorded conversation of Claude Code, and the transcript that is the current one."""

from __future__ import annotations

import json
import os
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from respool.hooks.conversation_brief import (
    answer_brief,
    describe_transcript,
    find_current_transcript,
)
from respool.hooks.transcripts import Transcripts

TRANSCRIPTS = Path(__file__).parents[1] / "transcripts"
COMPACTED = TRANSCRIPTS / "claude-code" / "00000000-0000-4000-8000-000000000001.jsonl"
FAILED = "failed, exit 1: echo out; false"


def before_compaction(folder: Path) -> Path:
    """The same conversation up to its compaction."""
    lines = COMPACTED.read_text("utf-8").splitlines(keepends=True)
    path = folder / "early.jsonl"
    path.write_text("".join(line for line in lines[:52] if "compact_boundary" not in line))
    return path


# By event, its source, and whether the conversation was compacted: whether there is a brief.
EVENTS = [
    ("PreCompact", "", False, True),
    ("PreCompact", "", True, True),
    ("SessionStart", "startup", False, False),
    ("SessionStart", "resume", False, False),  # all of it is still there
    ("SessionStart", "resume", True, True),
    ("SessionStart", "compact", True, True),
    ("SessionStart", "compact", False, True),  # the boundary is not written yet
    ("SessionStart", "clear", True, False),
]


@pytest.mark.parametrize(("name", "source", "compacted", "told"), EVENTS)
def test_what_is_gone_or_about_to_go_is_told(
    name: str, source: str, compacted: bool, told: bool, tmp_path: Path
) -> None:
    path = COMPACTED if compacted else before_compaction(tmp_path)
    event = {"hook_event_name": name, "source": source, "transcript_path": str(path)}
    answer = answer_brief(event, Transcripts()).decode()
    if name == "SessionStart" and told:
        answer = json.loads(answer)["hookSpecificOutput"]["additionalContext"]
    assert (FAILED in answer) is told
    assert bool(answer) is told


def test_a_conversation_without_a_transcript_has_no_brief(tmp_path: Path):
    for name in ("PreCompact", "SessionStart"):
        event = {"hook_event_name": name, "transcript_path": str(tmp_path / "none.jsonl")}
        assert answer_brief({**event, "source": "compact"}, Transcripts()) == b""


AGENTS = ("claude-code", "pi", "gemini-cli", "codex", "copilot-cli", "opencode")


@pytest.mark.parametrize("agent", AGENTS)
def test_every_agents_transcript_has_a_brief(agent: str):
    files = [one for one in (TRANSCRIPTS / agent).glob("*.json*") if one.stem != "requests"]
    assert any("echo out; false" in describe_transcript(one, 2_000) for one in files)


def test_the_current_transcript_is_the_latest_of_this_folder(tmp_path: Path):
    home, here = tmp_path / "home", tmp_path / "here"
    projects = home / ".claude" / "projects" / "x"
    projects.mkdir(parents=True)

    def write(name: str, folder: Path, time: int) -> None:
        record = {"type": "user", "sessionId": name, "cwd": str(folder), "message": {}}
        (projects / f"{name}.jsonl").write_text(json.dumps(record) + "\n")
        os.utime(projects / f"{name}.jsonl", (time, time))

    def found(session: str | None = None) -> str | None:
        path = find_current_transcript(here, home, {}, session)
        return path and path.name

    assert found() is None
    write("old", here, 1_000)
    write("new", here, 2_000)
    write("elsewhere", tmp_path / "here2", 3_000)
    assert found() == "new.jsonl"
    assert found("old") == "old.jsonl"
    assert found("elsewhere") is None  # it is not of this folder
    chats = home / ".gemini" / "tmp" / "y" / "chats"
    chats.mkdir(parents=True)
    hashed = sha256(str(here).encode()).hexdigest()
    (chats / "session-1.json").write_text(json.dumps({"sessionId": "g", "projectHash": hashed}))
    os.utime(chats / "session-1.json", (4_000, 4_000))
    assert found() == "session-1.json"
    shutil.rmtree(home)
