"""Storage that splits a session: opencode's files and database, evals, event files."""

from __future__ import annotations

import copy
import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.pricing import Usage
from respool.providers.registry import PROVIDERS, check_request
from respool.sessions import inspect_log, opencode, openhands, transcript_file
from respool.sessions.readers import READERS, find_transcripts, read_file, transcripts_below
from respool.sessions.session import RecordedSession, Skipped
from tests.effort import examples
from tests.strategies import arbitrary_json

CALL = {"type": "tool", "tool": "bash", "callID": "c1"}
DONE = {"status": "completed", "input": {"command": "ls"}, "output": "a door"}
TOKENS = {"input": 10, "output": 4, "reasoning": 1, "cache": {"read": 90, "write": 5}}
PARTS: dict[str, list[dict[str, Any]]] = {
    "msg_1": [{"type": "text", "text": "Where is the door?"}],
    "msg_2": [{"type": "step-start"}, {**CALL, "state": DONE}],
    "msg_3": [{"type": "step-start"}, {"type": "text", "text": "There."}],
}
ANSWER = {"role": "assistant", "modelID": "gpt-x", "tokens": TOKENS}
INFOS: dict[str, dict[str, Any]] = {
    "msg_1": {"role": "user", "time": {"created": 1_000_000_000_000}},
    "msg_2": {**ANSWER, "time": {"created": 1_000_000_001_000}},
    "msg_3": {**ANSWER, "time": {"created": 1_000_000_002_000}},
}
SUB = {"msg_4": {"role": "user"}, "msg_5": {"role": "assistant"}}
SUB_PARTS = {"msg_4": PARTS["msg_1"], "msg_5": PARTS["msg_3"]}
TABLES = """
    CREATE TABLE session (id text PRIMARY KEY, parent_id text, time_created integer);
    CREATE TABLE message (id text, session_id text, time_created integer, data text);
    CREATE TABLE part (id text, message_id text, session_id text, data text);
    INSERT INTO session VALUES ('ses_1', NULL, 1), ('ses_2', 'ses_1', 2), ('ses_3', NULL, 3);
"""


def sessions(path: Path) -> list[RecordedSession]:
    found = list(read_file(path, READERS))
    assert [one for one in found if isinstance(one, Skipped)] == []
    return [one for one in found if isinstance(one, RecordedSession)]


def exported() -> dict[str, Any]:
    """The same session as opencode's export of it."""
    messages = [{"info": {**INFOS[id], "id": id}, "parts": PARTS[id]} for id in INFOS]
    return {"info": {"id": "ses_1", "title": "t"}, "messages": messages}


def put(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def split(root: Path) -> Path:
    for id, info in INFOS.items():
        put(root / "message" / "ses_1" / f"{id}.json", {**info, "id": id, "sessionID": "ses_1"})
        for number, part in enumerate(PARTS[id]):
            put(root / "part" / id / f"prt_{number}.json", {**part, "id": f"prt_{number}"})
    put(root / "project" / "maze.json", {"id": "maze"})
    about = {"id": "ses_1", "version": "0.9", "projectID": "maze", "title": "t"}
    return put(root / "session" / "maze" / "ses_1.json", about)


def database(path: Path, journal: str = "wal") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as base:
        base.execute(f"PRAGMA journal_mode={journal}")
        base.executescript(TABLES)
        for session, infos, parts in (("ses_1", INFOS, PARTS), ("ses_2", SUB, SUB_PARTS)):
            for at, (id, info) in enumerate(infos.items()):
                row = (id, session, at, json.dumps(info))
                base.execute("INSERT INTO message VALUES (?, ?, ?, ?)", row)
                for number, part in enumerate(parts[id]):
                    row = (f"prt_{id}_{number}", id, session, json.dumps(part))
                    base.execute("INSERT INTO part VALUES (?, ?, ?, ?)", row)
        base.commit()
    return path


class TestOpencode:
    def test_pieces_make_the_session_that_an_export_is(self, tmp_path: Path):
        (export,) = sessions(put(tmp_path / "export.json", exported()))
        (whole,) = sessions(split(tmp_path / "storage"))
        assert whole.messages == export.messages
        assert whole.requests == export.requests
        assert whole.id == "ses_1"
        assert [sent.usage for sent in whole.requests] == [
            Usage(input=10, cache_read=90, cache_write=5, cache_write_1h=0, output=5)
        ] * 2

    @pytest.mark.parametrize("journal", ["wal", "delete"])
    def test_a_database_holds_what_exports_do(self, tmp_path: Path, journal: str):
        (export,) = sessions(put(tmp_path / "export.json", exported()))
        main, sub = sessions(database(tmp_path / "opencode.db", journal))
        assert (main.messages, main.requests) == (export.messages, export.requests)
        assert (sub.id, sub.parent) == ("ses_2", "ses_1")

    @pytest.mark.parametrize("journal", ["wal", "delete"])
    def test_a_database_is_read_while_it_is_written(self, tmp_path: Path, journal: str):
        path = database(tmp_path / "opencode.db", journal)
        with closing(sqlite3.connect(path, isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            writer.execute("INSERT INTO session VALUES ('ses_9', NULL, 9)")
            assert [one.id for one in sessions(path)] == ["ses_1", "ses_2"]
            writer.execute("COMMIT")  # which no reader stands in the way of

    def test_a_database_is_not_changed(self, tmp_path: Path):
        path = database(tmp_path / "opencode.db")
        before = path.read_bytes()
        sessions(path)
        assert path.read_bytes() == before

    def test_a_session_that_does_not_fit_is_named_and_the_rest_is_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(opencode, "MAX_CONVERSATION_BYTES", 150)
        (sub, skipped) = read_file(database(tmp_path / "opencode.db"), READERS)
        assert isinstance(sub, RecordedSession)
        assert sub.id == "ses_2"
        assert isinstance(skipped, Skipped)
        assert skipped.reason == "session ses_1 has more than 150 bytes"

    def test_a_piece_that_cannot_be_read_is_named_and_the_rest_is_read(self, tmp_path: Path):
        path = split(tmp_path / "storage")
        (tmp_path / "storage" / "part" / "msg_3" / "prt_0.json").write_text("{half")
        (tmp_path / "storage" / "part" / "msg_1" / "prt_8.json").symlink_to("gone")
        session, skipped = read_file(path, READERS)
        assert isinstance(session, RecordedSession)
        assert len(session.requests) == 2
        assert isinstance(skipped, Skipped)
        assert skipped.reason == "prt_8.json: no such file or directory, and 1 more"

    def test_a_session_without_messages_is_named(self, tmp_path: Path):
        (skipped,) = read_file(put(tmp_path / "session/p/ses_1.json", {"id": "ses_1"}), READERS)
        assert isinstance(skipped, Skipped)

    def test_another_database_is_named(self, tmp_path: Path):
        path = tmp_path / "opencode.db"
        with closing(sqlite3.connect(path)) as base:
            base.execute("CREATE TABLE other (a)")
        (skipped,) = read_file(path, READERS)
        assert isinstance(skipped, Skipped)
        assert "no such table" in skipped.reason

    @pytest.mark.parametrize("damage", [b"no database at all " * 99, b"SQLite format 3\0" * 99])
    def test_one_that_is_none_is_not_held_open(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes
    ):
        opened: list[sqlite3.Connection] = []
        connect = sqlite3.connect

        def noted(*args: Any, **given: Any) -> sqlite3.Connection:
            opened.append(connect(*args, **given))
            return opened[-1]

        monkeypatch.setattr(opencode.sqlite3, "connect", noted)
        path = tmp_path / "opencode.db"
        path.write_bytes(damage)
        (skipped,) = read_file(path, READERS)
        assert isinstance(skipped, Skipped)
        for one in opened:
            with pytest.raises(sqlite3.ProgrammingError, match="closed"):
                one.execute("SELECT 1")

    def test_only_sessions_are_found_and_only_once(self, tmp_path: Path):
        data = tmp_path / ".local" / "share" / "opencode"
        path = split(data / "storage")
        assert list(find_transcripts(tmp_path)) == [path]
        assert list(transcripts_below(tmp_path)) == [path]
        base = database(data / "opencode.db")  # which took over what was in the files
        assert list(find_transcripts(tmp_path)) == [base]
        assert list(transcripts_below(tmp_path)) == [base]


def sample(number: int) -> dict[str, Any]:
    messages = [
        {"role": "user", "content": "Where?", "id": "u"},
        {"role": "assistant", "content": "There.", "id": "a", "model": "m"},
    ]
    return {"id": f"maze-{number}", "epoch": 1, "target": "x", "messages": messages}


def packed(path: Path, *, running: bool = False, samples: int = 3) -> Path:
    about = {"eval": {"run_id": "run", "task": "maze", "model": "m"}, "version": 2}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as log:
        log.writestr("_journal/start.json", json.dumps(about))
        for number in range(samples):
            text = json.dumps(sample(number))
            log.writestr(f"samples/maze-{number}_epoch_1.json", text)
        if not running:
            log.writestr("header.json", json.dumps({**about, "status": "success"}))
            log.writestr("summaries.json", "[]")
    return path


class TestInspect:
    @pytest.mark.parametrize("running", [False, True])
    def test_each_sample_is_a_session(self, tmp_path: Path, running: bool):
        path = packed(tmp_path / "a.eval", running=running)
        found = sessions(path)
        assert [one.id for one in found] == ["run/maze-0-1", "run/maze-1-1", "run/maze-2-1"]
        assert list(transcripts_below(tmp_path)) == [path]

    def test_a_sample_that_is_broken_or_too_large_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        path = packed(tmp_path / "a.eval")
        with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as log:
            log.writestr("samples/broken.json", "{")
            log.writestr("samples/large.json", json.dumps("x" * 10_000))
        monkeypatch.setattr(inspect_log, "MAX_DOCUMENT_BYTES", 5_000)
        *whole, broken, large = read_file(path, READERS)
        assert all(isinstance(one, RecordedSession) for one in whole)
        assert isinstance(broken, Skipped)
        assert isinstance(large, Skipped)
        assert (broken.reason[:19], large.reason[:18]) == (
            "samples/broken.json",
            "samples/large.json",
        )

    def test_a_sample_whose_bytes_were_changed_is_named(self, tmp_path: Path):
        path = packed(tmp_path / "a.eval", samples=1)
        content = bytearray(path.read_bytes())
        at = content.index(b"samples/maze-0") + 60
        content[at : at + 20] = b"\xff" * 20
        path.write_bytes(content)
        assert all(isinstance(one, Skipped) for one in read_file(path, READERS))

    def test_half_an_archive_is_named(self, tmp_path: Path):
        path = packed(tmp_path / "a.eval")
        path.write_bytes(path.read_bytes()[:200])
        (skipped,) = read_file(path, READERS)
        assert isinstance(skipped, Skipped)
        assert "zip" in skipped.reason


def text(said: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": said, "cache_prompt": False}]


def event(kind: str, number: int, source: str = "agent", **more: Any) -> dict[str, Any]:
    stamp = f"2026-01-01T00:00:{number:02}"
    return {"kind": kind, "id": f"e{number}", "timestamp": stamp, "source": source, **more}


def action(number: int, call: str, response: str, thought: str = "") -> dict[str, Any]:
    made = {"id": call, "name": "terminal", "arguments": '{"command":"ls"}', "origin": "completion"}
    more = {"tool_name": "terminal", "tool_call_id": call, "tool_call": made}
    said = text(thought) if thought else []
    return event("ActionEvent", number, thought=said, llm_response_id=response, **more)


def observation(number: int, call: str, **seen: Any) -> dict[str, Any]:
    more = {"tool_name": "terminal", "tool_call_id": call, "observation": seen}
    return event("ObservationEvent", number, "environment", **more)


RAN = {"working_dir": "/maze", "exit_code": 0, "prefix": "", "suffix": ""}
EVENTS = [
    event(
        "SystemPromptEvent",
        0,
        system_prompt=text("Find it.")[0],
        dynamic_context=text("Here.")[0],
        tools=[],
    ),
    event(
        "MessageEvent",
        1,
        "user",
        llm_message={"role": "user", "content": text("Where is the door?")},
        extended_content=text("A hint."),
    ),
    action(2, "c1", "r1", "I look."),
    action(3, "c2", "r1"),
    event("ConversationStateUpdateEvent", 4, "environment", key="stats", value={}),
    observation(5, "c2", content=text("a wall"), is_error=True),
    observation(6, "c1", content=text("a door"), metadata=RAN),
    action(7, "c3", "r2"),
    event("AgentErrorEvent", 8, error="no such tool", tool_name="x", tool_call_id="c3"),
    event(
        "MessageEvent",
        9,
        llm_message={"role": "assistant", "content": text("There."), "reasoning_content": "hm"},
        llm_response_id="r3",
    ),
]
STATS = {
    "usage_to_metrics": {
        "agent": {
            "token_usages": [
                {
                    "response_id": "r1",
                    "model": "gpt-x",
                    "prompt_tokens": 100,
                    "completion_tokens": 7,
                    "cache_read_tokens": 60,
                    "cache_write_tokens": 30,
                }
            ]
        }
    }
}


def conversation(home: Path, events: list[dict[str, Any]]) -> Path:
    folder = home / ".openhands" / "conversations" / "abc"
    put(folder / "base_state.json", {"id": "abc", "stats": STATS})
    for number, one in enumerate(events):
        put(folder / "events" / f"event-{number:05}-{one['id']}.json", one)
    return folder / "events" / f"event-00000-{events[0]['id']}.json"


class TestOpenHands:
    def test_events_make_a_conversation(self, tmp_path: Path):
        (session,) = sessions(conversation(tmp_path, EVENTS))
        assert (session.id, session.agent) == ("abc", "openhands")
        assert [message["role"] for message in session.messages] == [
            "system",
            "user",
            "assistant",
            "tool",
            "tool",
            "assistant",
            "tool",
            "assistant",
        ]
        assert [sent.cut for sent in session.requests] == [2, 5, 7]
        first = session.requests[0]
        assert (first.usage, first.model) == (
            Usage(input=10, cache_read=60, cache_write=30, cache_write_1h=0, output=7),
            "gpt-x",
        )
        codec = PROVIDERS[session.format].codec
        found = check_request(codec, session.messages[: session.requests[-1].cut], None)
        assert [problem for problem in found if problem.severity == "error"] == []

    def test_messages_say_what_was_sent(self, tmp_path: Path):
        (session,) = sessions(conversation(tmp_path, EVENTS))
        plain = [
            "".join(part["text"] for part in message["content"] or ())
            for message in session.messages
        ]
        assert plain == [
            "Find it.Here.",
            "Where is the door?A hint.",
            "I look.",
            "a door\n[Current working directory: /maze]\n[Command finished with exit code 0]",
            "[An error occurred during execution.]\na wall",
            "",
            "no such tool",
            "There.",
        ]
        calls = session.messages[2]["tool_calls"]
        assert [call["id"] for call in calls] == ["c1", "c2"]
        assert calls[0]["function"] == {"name": "terminal", "arguments": '{"command":"ls"}'}
        assert session.messages[7]["reasoning_content"] == "hm"

    def test_a_condensation_begins_a_segment(self, tmp_path: Path):
        forgotten = ["e1", "e2", "e3", "e5", "e6"]
        more = {"forgotten_event_ids": forgotten, "summary": "A door was seen."}
        condensed = event("Condensation", 20, "environment", summary_offset=1, **more)
        first, second = sessions(conversation(tmp_path, [*EVENTS[:9], condensed, EVENTS[9]]))
        assert (first.segment, second.segment) == (0, 1)
        assert [sent.cut for sent in first.requests] == [2, 5]
        assert [message["role"] for message in second.messages] == [
            "system",
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
        assert second.messages[1]["content"] == [{"type": "text", "text": "A door was seen."}]
        assert [sent.cut for sent in second.requests] == [4]

    def test_a_conversation_is_found_once(self, tmp_path: Path):
        path = conversation(tmp_path, EVENTS)
        assert list(find_transcripts(tmp_path)) == [path]
        assert list(transcripts_below(tmp_path)) == [path]
        elsewhere = {"OPENHANDS_CONVERSATIONS_DIR": str(path.parents[2])}
        assert list(find_transcripts(tmp_path / "nowhere", ["openhands"], elsewhere)) == [path]

    def test_an_event_that_cannot_be_read_is_named(self, tmp_path: Path):
        path = conversation(tmp_path, EVENTS)
        (path.parent / "event-00010-x.json").write_text("{")
        session, skipped = read_file(path, READERS)
        assert isinstance(session, RecordedSession)
        assert isinstance(skipped, Skipped)
        assert "event-00010-x.json" in skipped.reason

    def test_events_that_do_not_fit_are_left_out_and_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        path = conversation(tmp_path, EVENTS)
        monkeypatch.setattr(transcript_file, "MAX_CONVERSATION_BYTES", 900)
        found = list(read_file(path, READERS))
        assert isinstance(found[-1], Skipped)
        assert found[-1].reason == "its files have more than 900 bytes"

    def test_a_list_of_events_is_read_too(self, tmp_path: Path):
        (session,) = sessions(put(tmp_path / "trajectory.json", EVENTS))
        assert [sent.cut for sent in session.requests] == [2, 5, 7]


@given(st.data())
def test_odd_events_never_raise(data: st.DataObject):
    events: list[Any] = copy.deepcopy(EVENTS)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(events) - 1))
        if isinstance(events[at], dict) and data.draw(st.booleans()):
            key = data.draw(st.sampled_from(sorted(events[at]) or ["kind"]))
            events[at][key] = data.draw(arbitrary_json())
        else:
            events[at] = data.draw(arbitrary_json())
    record = {"history": events, "stats": data.draw(st.just(STATS) | arbitrary_json())}
    for found in openhands.read([record], "f.json"):
        assert isinstance(found, RecordedSession | Skipped)


@settings(max_examples=examples(30))
@given(st.lists(arbitrary_json(), max_size=4), arbitrary_json())
def test_odd_rows_never_raise(parts: list[Any], info: Any):
    with closing(sqlite3.connect(":memory:")) as base:
        base.executescript(TABLES)
        base.execute("INSERT INTO message VALUES (?, ?, ?, ?)", ("m", "ses_1", 1, encoded(info)))
        for part in parts:
            base.execute("INSERT INTO part VALUES ('p', 'm', 'ses_1', ?)", (encoded(part),))
        record, *odd = opencode._exported_session(base, "opencode.db", "ses_1", None)
    assert bool(odd) == (not all(isinstance(value, dict) for value in (info, *parts)))
    for found in opencode.read([record], "opencode.db"):
        assert isinstance(found, RecordedSession | Skipped)


def encoded(value: Any) -> Any:
    """A value as a column may hold it: JSON, or not."""
    return value if isinstance(value, int | None) else json.dumps(value)
