"""Transcripts of pi, opencode, Gemini CLI, Copilot CLI, OpenHands and Inspect."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from types import ModuleType
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import respool
from respool.pricing import Usage
from respool.sessions import copilot_cli, gemini_cli, inspect_log, opencode, openhands, pi
from respool.sessions.session import RecordedSession, Skipped
from tests.strategies import arbitrary_json

READERS = (copilot_cli, gemini_cli, inspect_log, openhands, opencode, pi)
START = 1_767_225_600  # 2026-01-01, the zeroth second of these transcripts
Record = dict[str, Any]


def iso(second: int) -> str:
    return f"2026-01-01T00:{second // 60:02}:{second % 60:02}.000Z"


def sessions(reader: ModuleType, records: Iterable[Any]) -> list[RecordedSession]:
    """Sessions that a reader makes of records; their requests must be valid."""
    read = list(reader.read(iter(records), "some/file"))
    assert all(isinstance(session, RecordedSession) for session in read), read
    for session in read:
        assert session.source == "some/file"
        for request in session.requests:
            sent = session.messages[: request.cut]
            problems = respool.check(sent, format=session.format)
            assert [p for p in problems if p.severity == "error"] == []
    return read


def only(reader: ModuleType, records: Iterable[Any]) -> RecordedSession:
    (session,) = sessions(reader, records)
    return session


def cuts(session: RecordedSession) -> list[int]:
    return [request.cut for request in session.requests]


def told(session: RecordedSession) -> list[Any]:
    return [(request.time, request.usage, request.model) for request in session.requests]


class Pi:
    """Records as pi writes them."""

    @staticmethod
    def header(**more: Any) -> Record:
        return {"type": "session", "id": "p-1", "timestamp": iso(0), "cwd": "/maze", **more}

    @staticmethod
    def entry(second: int, message: Record, **more: Any) -> Record:
        stamped = {**message, "timestamp": (START + second) * 1000}
        return {"type": "message", "timestamp": iso(second), "message": stamped, **more}

    @staticmethod
    def user(second: int, text: str, **more: Any) -> Record:
        content = [{"type": "text", "text": text}]
        return Pi.entry(second, {"role": "user", "content": content}, **more)

    @staticmethod
    def answer(second: int, *content: Record, stop: str = "toolUse", **more: Any) -> Record:
        usage = {"input": 3, "output": 5, "cacheRead": 70, "cacheWrite": 20, "totalTokens": 98}
        message = {
            "role": "assistant",
            "content": list(content),
            "api": more.pop("api", "anthropic-messages"),
            "provider": "anthropic",
            "model": "claude-opus-4-5",
            "usage": {**usage, "cost": {"total": 0.1}},
            "stopReason": stop,
        }
        return Pi.entry(second, message, **more)

    @staticmethod
    def call(id: str) -> Record:
        return {"type": "toolCall", "id": id, "name": "read", "arguments": {"path": "map.txt"}}

    @staticmethod
    def result(second: int, id: str, text: str, error: bool = False, **more: Any) -> Record:
        message = {"role": "toolResult", "toolCallId": id, "toolName": "read", "isError": error}
        content = [{"type": "text", "text": text}]
        return Pi.entry(second, {**message, "content": content}, **more)


def text(said: str) -> Record:
    return {"type": "text", "text": said}


class TestPi:
    def test_messages_time_and_usage(self):
        thinking = {"type": "thinking", "thinking": "Left?", "thinkingSignature": "s=="}
        session = only(
            pi,
            [
                Pi.header(),
                {"type": "thinking_level_change", "timestamp": iso(0), "thinkingLevel": "low"},
                Pi.user(1, "Find the way."),
                Pi.answer(4, thinking, text("Looking."), Pi.call("t1")),
                Pi.result(5, "t1", "a map"),
                Pi.answer(9, text("Left."), stop="stop"),
            ],
        )
        call = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "map.txt"}}
        result = {"type": "tool_result", "tool_use_id": "t1", "content": [text("a map")]}
        assert session.messages == [
            {"role": "user", "content": [text("Find the way.")]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Left?", "signature": "s=="},
                    text("Looking."),
                    call,
                ],
            },
            {"role": "user", "content": [{**result, "is_error": False}]},
            {"role": "assistant", "content": [text("Left.")]},
        ]
        assert (session.id, session.agent, session.format) == ("p-1", "pi", "anthropic")
        assert cuts(session) == [1, 3]
        usage = Usage(input=3, cache_read=70, cache_write=20, cache_write_1h=0, output=5)
        model = "claude-opus-4-5"
        assert told(session) == [(START + 4, usage, model), (START + 9, usage, model)]
        assert session.notes == ()

    def test_parallel_results_stand_in_the_order_of_their_calls_and_errors_stay(self):
        session = only(
            pi,
            [
                Pi.header(),
                Pi.user(1, "Read both."),
                Pi.answer(2, Pi.call("t1"), Pi.call("t2")),
                Pi.result(3, "t2", "no such file", error=True),
                Pi.user(4, "And hurry."),
                Pi.result(5, "t1", "a map"),
                Pi.answer(6, text("Read."), stop="stop"),
            ],
        )
        content = session.messages[2]["content"]
        assert [block.get("tool_use_id") for block in content] == ["t1", "t2", None]
        assert [block.get("is_error") for block in content] == [False, True, None]

    @pytest.mark.parametrize(
        ("content", "stop", "note"),
        [
            ([Pi.call("t1")], "aborted", "1 answer without content left out"),
            ([], "aborted", "1 answer without content left out"),
            ([text("Lo"), Pi.call("t1")], "aborted", "1 call without a result left out"),
            ([text("Lo")], "error", "1 answer that ended in an error left out"),
            ([text("Lo"), {"type": "x"}], "aborted", "1 block of kind 'x' left out"),
        ],
    )
    def test_a_broken_answer(self, content: list[Record], stop: str, note: str):
        records = [Pi.header(), Pi.user(1, "Go."), Pi.answer(2, *content, stop=stop)]
        more = [Pi.user(3, "Go on."), Pi.answer(4, text("Yes."), stop="stop")]
        session = only(pi, [*records, *more])
        assert note in session.notes
        assert session.messages[-1]["content"] == [text("Yes.")]

    def test_the_last_call_may_be_pending(self):
        session = only(pi, [Pi.header(), Pi.user(1, "Go."), Pi.answer(2, Pi.call("t1"))])
        assert cuts(session) == [1]
        assert session.messages[1]["content"][0]["id"] == "t1"

    def test_what_another_provider_thought_is_text_and_its_ids_are_mended(self):
        thought = {"type": "thinking", "thinking": "Hm.", "thinkingSignature": "rs_1"}
        first = Pi.answer(2, thought, Pi.call("call_1|fc_1"), api="openai-responses")
        session = only(
            pi, [Pi.header(), Pi.user(1, "Go."), first, Pi.result(3, "call_1|fc_1", "a map")]
        )
        assert session.messages[1]["content"][0] == text("Hm.")
        assert session.messages[1]["content"][1]["id"] == "call_1_fc_1"
        assert session.messages[2]["content"][0]["tool_use_id"] == "call_1_fc_1"

    def test_a_command_that_the_user_ran(self):
        ran = {"role": "bashExecution", "command": "ls", "output": "", "exitCode": 2}
        hidden = {**ran, "excludeFromContext": True}
        records = [Pi.header(), Pi.entry(1, ran), Pi.entry(2, hidden), Pi.answer(3, text("Ok."))]
        session = only(pi, records)
        (block,) = session.messages[0]["content"]
        assert block["text"] == "Ran `ls`\n(no output)\n\nCommand exited with code 2"

    @pytest.mark.parametrize("tree", [False, True])
    def test_a_compaction_starts_a_segment_with_what_it_kept(self, tree: bool):
        records = [
            Pi.header(),
            Pi.user(1, "One."),
            Pi.answer(2, text("1")),
            Pi.user(3, "Two."),
            Pi.answer(4, text("2")),
            {"type": "compaction", "timestamp": iso(5), "summary": "Counted.", "tokensBefore": 9},
            Pi.user(6, "Three."),
            Pi.answer(7, text("3")),
        ]
        records[5]["firstKeptEntryId" if tree else "firstKeptEntryIndex"] = "e3" if tree else 3
        for position, record in enumerate(records[1:], 1) if tree else ():
            record.update(id=f"e{position}", parentId=f"e{position - 1}" if position > 1 else None)
        first, second = sessions(pi, records)
        assert (first.segment, second.segment) == (0, 1)
        assert first.id == second.id
        assert cuts(first) == [1, 3]
        assert cuts(second) == [3]  # what was kept was sent before
        assert "Counted." in second.messages[0]["content"][0]["text"]
        assert second.messages[0]["content"][1] == text("Two.")

    def test_branches_tell_each_request_once(self):
        records = [
            Pi.header(version=3),
            Pi.user(1, "Go.", id="a", parentId=None),
            Pi.answer(2, text("Where?"), id="b", parentId="a"),
            Pi.user(3, "Left.", id="c", parentId="b"),
            Pi.answer(4, text("A wall."), id="d", parentId="c"),
            {"type": "branch_summary", "id": "e", "parentId": "b", "summary": "A wall."},
            Pi.user(6, "Right.", id="f", parentId="e"),
            Pi.answer(7, text("Out."), id="g", parentId="f"),
        ]
        left, right = sessions(pi, records)
        assert (left.id, right.id) == ("p-1", "p-1/g")
        assert [request.time for request in left.requests] == [START + 2, START + 4]
        assert [request.time for request in right.requests] == [START + 7]
        assert right.messages[1]["content"] == [text("Where?")]
        assert right.messages[2]["content"][1] == text("Right.")


class Opencode:
    """Messages as opencode exports them."""

    @staticmethod
    def export(*messages: Record, **info: Any) -> Record:
        about = {"id": "ses_1", "version": "1.14.30", "time": {"created": START * 1000}, **info}
        return {"info": about, "messages": list(messages)}

    @staticmethod
    def user(id: str, *parts: Record) -> Record:
        info = {"role": "user", "id": id, "sessionID": "ses_1", "agent": "build"}
        return {"info": info, "parts": list(parts)}

    @staticmethod
    def answer(id: str, second: int, *parts: Record, **more: Any) -> Record:
        info = {
            "role": "assistant",
            "id": id,
            "modelID": "gpt-5.4",
            "time": {"created": (START + second) * 1000},
            "tokens": Opencode.tokens(100),
            **more,
        }
        return {"info": info, "parts": list(parts)}

    @staticmethod
    def tokens(input: int) -> Record:
        cache = {"read": 40, "write": 2}
        return {"total": 0, "input": input, "output": 5, "reasoning": 3, "cache": cache}

    @staticmethod
    def tool(id: str, status: str = "completed", **state: Any) -> Record:
        known = {"status": status, "input": {"path": "map.txt"}, **state}
        return {"type": "tool", "tool": "read", "callID": id, "state": known}


class TestOpencode:
    def test_messages_time_and_usage(self):
        tools = [
            Opencode.tool("c1", output="a map"),
            Opencode.tool("c2", "error", error="no such file"),
            Opencode.tool("c3", "running"),
        ]
        thought = {"type": "reasoning", "text": "Left?"}
        export = Opencode.export(
            Opencode.user("m1", text("Go."), {**text("no"), "ignored": True}),
            Opencode.answer("m2", 2, {"type": "step-start"}, thought, text("Looking."), *tools),
            Opencode.answer("m3", 5, text("Left.")),
            Opencode.answer("m4", 6),
            parentID="ses_0",
        )
        session = only(opencode, [export])
        assert session.messages == [
            {"role": "user", "content": [text("Go.")]},
            {
                "role": "assistant",
                "content": "Looking.",
                "reasoning_content": "Left?",
                "tool_calls": [chat_call("c1"), chat_call("c2")],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "a map"},
            {"role": "tool", "tool_call_id": "c2", "content": "no such file"},
            {"role": "assistant", "content": "Left."},
        ]
        assert (session.id, session.parent, session.format) == ("ses_1", "ses_0", "openai-chat")
        usage = Usage(input=100, cache_read=40, cache_write=2, cache_write_1h=0, output=8)
        assert cuts(session) == [1, 4]
        assert told(session) == [(START + 2, usage, "gpt-5.4"), (START + 5, usage, "gpt-5.4")]
        assert set(session.notes) == {
            "1 call without a result left out",
            "1 answer without content left out",
        }

    def test_each_step_of_a_message_is_a_request(self):
        def step(input: int, *parts: Record) -> list[Record]:
            end = {"type": "step-finish", "tokens": Opencode.tokens(input)}
            return [{"type": "step-start"}, *parts, end]

        first = step(10, Opencode.tool("c1", output="a map"))
        second = step(20, text("Left."))
        answer = Opencode.answer("m2", 2, *first, *second)
        session = only(opencode, [Opencode.export(Opencode.user("m1", text("Go.")), answer)])
        assert cuts(session) == [1, 3]
        assert [request.usage and request.usage.input for request in session.requests] == [10, 20]

    def test_zeros_are_no_usage(self):
        zeros = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
        answer = Opencode.answer("m2", 2, text("Hm."), tokens=zeros)
        session = only(opencode, [Opencode.export(Opencode.user("m1", text("Go.")), answer)])
        assert session.requests[0].usage is None

    def test_a_compaction_starts_a_segment(self):
        export = Opencode.export(
            Opencode.user("m1", text("One.")),
            Opencode.answer("m2", 2, text("1")),
            Opencode.user("m3", text("Two.")),
            Opencode.answer("m4", 3, text("2")),
            Opencode.user("m5", {"type": "compaction", "auto": True, "tail_start_id": "m3"}),
            Opencode.answer("m6", 4, text("Counted."), summary=True, mode="compaction"),
            Opencode.user("m7", text("Three.")),
            Opencode.answer("m8", 5, text("3")),
        )
        first, second = sessions(opencode, [export])
        assert (first.segment, second.segment) == (0, 1)
        assert cuts(first) == [1, 3]
        assert first.notes == ("1 request for a summary left out",)
        said = [message["content"] for message in second.messages]
        assert said[1:] == ["Counted.", [text("Two.")], "2", [text("Three.")], "3"]
        assert cuts(second) == [5]

    def test_images_are_sent_and_other_files_counted(self):
        image = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA"}
        paper = {"type": "file", "mime": "application/pdf", "url": "data:application/pdf,"}
        asked = Opencode.user("m1", text("See."), image, paper)
        session = only(opencode, [Opencode.export(asked, Opencode.answer("m2", 1, text("Ok.")))])
        assert session.messages[0]["content"][1]["image_url"]["url"] == image["url"]
        assert session.notes == ("1 file of kind 'application/pdf' left out",)


def chat_call(id: str, arguments: str = '{"path":"map.txt"}', name: str = "read") -> Record:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


class Gemini:
    """Messages as Gemini CLI records them."""

    ABOUT: ClassVar[Record] = {
        "sessionId": "g-1",
        "projectHash": "ab",
        "startTime": iso(0),
        "lastUpdated": iso(9),
    }

    @staticmethod
    def user(id: str, content: Any) -> Record:
        return {"id": id, "timestamp": iso(1), "type": "user", "content": content}

    @staticmethod
    def answer(id: str, second: int, content: str, *calls: Record, **more: Any) -> Record:
        tokens = {"input": 100, "output": 5, "cached": 40, "thoughts": 3, "tool": 0, "total": 108}
        return {
            "id": id,
            "timestamp": iso(second),
            "type": "gemini",
            "content": content,
            "thoughts": [{"subject": "Way", "description": "Left?", "timestamp": iso(second)}],
            "tokens": tokens,
            "model": "gemini-3-flash-preview",
            **({"toolCalls": list(calls)} if calls else {}),
            **more,
        }

    @staticmethod
    def call(id: str, result: Any = "") -> Record:
        part = Gemini.response(id, {"output": "a map"})
        known = {"id": id, "name": "read_file", "args": {"path": "map.txt"}, "status": "success"}
        return {**known, "result": [part] if result == "" else result}

    @staticmethod
    def response(id: str, response: Record) -> Record:
        return {"functionResponse": {"id": id, "name": "read_file", "response": response}}


class TestGeminiCli:
    def test_messages_time_and_usage(self):
        failed = Gemini.response("c2", {"error": "no such file"})
        chat = {
            **Gemini.ABOUT,
            "messages": [
                {"id": "i", "timestamp": iso(0), "type": "info", "content": "An update!"},
                Gemini.user("m1", [{"text": "Go."}, {"text": ""}]),
                Gemini.answer("m2", 2, "Look.", Gemini.call("c1"), Gemini.call("c2", [failed])),
                Gemini.answer("m3", 5, "Left."),
            ],
        }
        session = only(gemini_cli, [chat])
        asked = {"name": "read_file", "args": {"path": "map.txt"}}
        assert session.messages == [
            {"role": "user", "parts": [{"text": "Go."}]},
            {
                "role": "model",
                "parts": [
                    {"text": "Look."},
                    {"functionCall": {"id": "c1", **asked}},
                    {"functionCall": {"id": "c2", **asked}},
                ],
            },
            {"role": "user", "parts": [Gemini.response("c1", {"output": "a map"}), failed]},
            {"role": "model", "parts": [{"text": "Left."}]},
        ]
        usage, model = (
            Usage(input=60, cache_read=40, cache_write=0, cache_write_1h=0, output=8),
            "gemini-3-flash-preview",
        )
        assert (session.id, session.agent, session.format) == ("g-1", "gemini-cli", "gemini")
        assert cuts(session) == [1, 3]
        assert told(session) == [(START + 2, usage, model), (START + 5, usage, model)]
        assert session.notes == ()

    def test_calls_that_were_recorded_apart_join_their_answer(self):
        messages = [
            Gemini.user("m1", "Go."),
            Gemini.answer("m2", 2, "Looking."),
            {"id": "i", "timestamp": iso(3), "type": "info", "content": "An update!"},
            Gemini.answer("m3", 4, "", Gemini.call("c1"), tokens={"input": 0, "output": 0}),
            Gemini.answer("m4", 5, "Left."),
        ]
        session = only(gemini_cli, [{**Gemini.ABOUT, "messages": messages}])
        assert [len(message["parts"]) for message in session.messages] == [1, 2, 1, 1]
        assert cuts(session) == [1, 3]

    @pytest.mark.parametrize("with_calls", [True, False])
    def test_results_may_stand_in_a_record_of_their_own_and_are_told_once(self, with_calls: bool):
        result = Gemini.response("read_file__c1", {"output": "a map"})
        asked = Gemini.call("read_file__c1", [result] if with_calls else None)
        stray = Gemini.response("c9", {"output": "of no call"})
        messages = [
            Gemini.user("m1", "Go."),
            Gemini.answer("m2", 2, "", asked),
            Gemini.user("m3", [result, stray]),
            Gemini.answer("m4", 4, "Left."),
        ]
        session = only(gemini_cli, [{**Gemini.ABOUT, "messages": messages}])
        told = [part for message in session.messages for part in message["parts"]]
        assert told[1]["functionCall"]["id"] == "c1"
        assert told[2:] == [Gemini.response("c1", {"output": "a map"}), {"text": "Left."}]
        assert session.notes == ("1 result without a call left out",)
        assert [request.time for request in session.requests] == [START + 2, START + 4]

    @pytest.mark.parametrize("with_calls", [True, False])
    def test_calls_may_stand_in_the_content_and_are_told_once(self, with_calls: bool):
        asked = {"functionCall": {"id": "read_file__c1", "name": "read_file", "args": {}}}
        result = Gemini.response("read_file__c1", {"output": "a map"})
        beside = Gemini.response("read_file__c2", {"output": "of a call beside it"})
        calls = [Gemini.call("read_file__c1", [result, beside])] if with_calls else []
        answer = Gemini.answer("m2", 2, "", *calls)
        messages = [
            Gemini.user("m1", "Go."),
            {**answer, "content": [{"text": "Look."}, asked]},
            Gemini.user("m3", [result]),
            Gemini.answer("m4", 4, "Left."),
        ]
        session = only(gemini_cli, [{**Gemini.ABOUT, "messages": messages}])
        told = [list(part) for message in session.messages for part in message["parts"]]
        assert told == [["text"], ["text"], ["functionCall"], ["functionResponse"], ["text"]]
        assert session.messages[1]["parts"][1]["functionCall"]["id"] == "c1"
        assert cuts(session) == [1, 3]

    @pytest.mark.parametrize("result", [None, [], 7])
    def test_a_call_without_a_result_is_cut(self, result: Any):
        answer = Gemini.answer("m2", 2, "Look.", Gemini.call("c1", result))
        messages = [Gemini.user("m1", "Go."), answer, Gemini.user("m3", "Stop.")]
        session = only(gemini_cli, [{**Gemini.ABOUT, "messages": messages}])
        assert session.messages[1]["parts"] == [{"text": "Look."}]
        assert session.notes == ("1 call without a result left out",)

    def test_a_log_of_changes(self):
        records = [
            {**Gemini.ABOUT, "kind": "main"},
            Gemini.user("m1", "Go."),
            Gemini.answer("m2", 2, "Look.", Gemini.call("c1", None)),
            Gemini.answer("m2", 2, "Look.", Gemini.call("c1")),
            {"$set": {"lastUpdated": iso(3)}},
            Gemini.answer("m3", 3, "A wall."),
            {"$rewindTo": "m3"},
            Gemini.answer("m4", 4, "Out."),
        ]
        rewound, session = sessions(gemini_cli, records)
        assert (rewound.id, session.id) == ("g-1/rewound-1", "g-1")
        assert [request.time for request in rewound.requests] == [START + 2, START + 3]
        assert [request.time for request in session.requests] == [START + 4]
        assert session.messages[-1] == {"role": "model", "parts": [{"text": "Out."}]}

    def test_a_replaced_history_is_a_segment(self):
        summary = Gemini.user("m5", "Counted.")
        records = [
            {**Gemini.ABOUT, "messages": []},
            Gemini.user("m1", "One."),
            Gemini.answer("m2", 2, "1"),
            {"$set": {"messages": [Gemini.user("m1", "One."), Gemini.answer("m2", 2, "1")]}},
            {"$set": {"messages": [summary, Gemini.answer("m2", 2, "1")]}},
            Gemini.user("m6", "Two."),
            Gemini.answer("m7", 7, "2"),
        ]
        first, second = sessions(gemini_cli, records)
        assert (first.segment, second.segment) == (0, 1)
        assert (cuts(first), cuts(second)) == ([1], [3])

    def test_a_sub_agent_names_its_parent(self):
        chat: Record = {**Gemini.ABOUT, "kind": "subagent"}
        chat["messages"] = [Gemini.user("m1", "Go."), Gemini.answer("m2", 2, "Left.")]
        (session,) = gemini_cli.read(iter([chat]), "chats/g-0/g-1.json")
        assert isinstance(session, RecordedSession)
        assert session.parent == "g-0"


def event(kind: str, second: int = 0, **data: Any) -> Record:
    """An event of Copilot CLI."""
    return {"type": kind, "data": data, "id": "e", "timestamp": iso(second), "parentId": None}


def asked(id: str, **more: Any) -> Record:
    known = {"toolCallId": id, "name": "read", "arguments": {"path": "map.txt"}}
    return {**known, "type": "function", **more}


def done(id: str, content: str, **more: Any) -> Record:
    result = {"content": content, "detailedContent": f"all of {content}"}
    return event("tool.execution_complete", toolCallId=id, success=True, result=result, **more)


def copilot_answer(second: int, content: str, *requests: Record, **more: Any) -> Record:
    known = {"content": content, "toolRequests": list(requests), "outputTokens": 7}
    return event("assistant.message", second, **known, **more)


COPILOT = [
    event("session.start", sessionId="c-1", version=1, producer="copilot-agent"),
    event("session.model_change", newModel="gpt-5.4"),
    event("hook.start", hookType="sessionStart"),
    event("system.message", role="system", content="Be brief."),
    event("user.message", content="Go.", transformedContent="<now>1</now>\nGo."),
]


class TestCopilotCli:
    def test_messages_and_time(self):
        custom = asked("t2", type="custom", name="apply_patch", arguments="*** Begin")
        session = only(
            copilot_cli,
            [
                *COPILOT,
                copilot_answer(3, "", asked("t1"), custom, asked("t3"), reasoningText="Left?"),
                event("tool.execution_start", toolCallId="t1"),
                done("t2", "patched"),
                event("user.message", content="<skill>", source="skill-x"),
                done("t1", "a map"),
                event(
                    "tool.execution_complete",
                    toolCallId="t3",
                    success=False,
                    error={"message": "no such file", "code": "failure"},
                ),
                copilot_answer(5, "Left."),
                event("assistant.turn_end", turnId="1"),
                event("weather.report", sky="blue"),
            ],
        )
        patch = {"name": "apply_patch", "input": "*** Begin"}
        assert session.messages == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "<now>1</now>\nGo."},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "Left?",
                "tool_calls": [
                    chat_call("t1"),
                    {"id": "t2", "type": "custom", "custom": patch},
                    chat_call("t3"),
                ],
            },
            {"role": "tool", "tool_call_id": "t1", "content": "a map"},
            {"role": "tool", "tool_call_id": "t2", "content": "patched"},
            {"role": "tool", "tool_call_id": "t3", "content": "no such file"},
            {"role": "user", "content": "<skill>"},
            {"role": "assistant", "content": "Left."},
        ]
        assert (session.id, session.agent, session.format) == ("c-1", "copilot-cli", "openai-chat")
        assert cuts(session) == [2, 7]
        assert told(session) == [(START + 3, None, "gpt-5.4"), (START + 5, None, "gpt-5.4")]
        assert session.notes == ("1 record of unknown kind 'weather.report' left out",)

    @pytest.mark.parametrize("answered", [True, False])
    def test_what_is_rewound_is_a_session_of_its_own(self, answered: bool):
        begun = [*COPILOT, copilot_answer(3, "Which way?")]
        wrong = [
            {**event("user.message", content="Left."), "id": "e7"},
            *([copilot_answer(5, "", asked("t1")), done("t1", "a wall")] if answered else []),
        ]
        rest = [event("user.message", content="Right."), copilot_answer(7, "The door.")]
        back = event("session.snapshot_rewind", upToEventId="e7", eventsRemoved=3)
        unknown = event("session.snapshot_rewind", upToEventId="nobody", eventsRemoved=3)
        *gone, main = sessions(copilot_cli, [*begun, *wrong, unknown, back, *rest])
        assert main == only(copilot_cli, [*begun, *rest])
        assert [one.id for one in gone] == ["c-1/rewound-1"] * answered
        for one in gone:
            assert one.messages == only(copilot_cli, [*begun, *wrong]).messages
            assert [sent.time for sent in one.requests] == [START + 5]

    def test_usage_where_it_was_kept(self):
        usage = {"inputTokens": 100, "cacheReadTokens": 40, "outputTokens": 7}
        records = [*COPILOT, event("assistant.usage", **usage), copilot_answer(3, "Left.")]
        assert only(copilot_cli, records).requests[0].usage == Usage(
            input=60, cache_read=40, cache_write=0, cache_write_1h=0, output=7
        )

    def test_a_compaction_starts_a_segment(self):
        compacted = event("session.compaction_complete", success=True, summaryContent="Gone left.")
        more = [event("user.message", content="On."), copilot_answer(6, "Out.")]
        failed = event("session.compaction_complete", success=False)
        first, second = sessions(
            copilot_cli, [*COPILOT, copilot_answer(3, "Left."), failed, compacted, *more]
        )
        assert (first.segment, second.segment) == (0, 1)
        said = [message["content"] for message in second.messages]
        assert said == ["Be brief.", "Gone left.", "On.", "Out."]

    def test_a_sub_agent_is_a_session_of_its_own(self):
        task = asked("t1", name="task", arguments={"prompt": "Scout."})
        inside = {"parentToolCallId": "t1"}
        main, scout = sessions(
            copilot_cli,
            [
                *COPILOT,
                copilot_answer(3, "", task),
                event("subagent.started", toolCallId="t1"),
                copilot_answer(4, "", asked("t2"), **inside),
                done("t2", "a map", **inside),
                copilot_answer(5, "Left.", **inside),
                done("t1", "Left."),
                copilot_answer(6, "Left, then."),
            ],
        )
        assert (scout.id, scout.parent, main.parent) == ("c-1/t1", "c-1", None)
        assert scout.messages[0] == {"role": "user", "content": "Scout."}
        assert (cuts(scout), cuts(main)) == ([1, 3], [2, 4])

    def test_a_sub_agent_may_be_named_by_its_id_and_usage_stand_in_a_record(self):
        def used(given: int) -> Record:
            told = {"inputTokens": given, "cacheReadTokens": 40, "outputTokens": 7}
            return event("session.usage_record", usage=told)

        inside = [
            event("subagent.started", toolCallId="t1"),
            event("session.model_change", newModel="small"),
            event("user.message", content="Scout."),
            event("system.message", role="system", content="You scout."),
            used(100),
            copilot_answer(4, "", asked("t2")),
            done("t2", "a map"),
            copilot_answer(5, "Left."),
        ]
        task = asked("t1", name="task", arguments={"prompt": "Scout."})
        main, scout = sessions(
            copilot_cli,
            [
                COPILOT[0],
                COPILOT[4],
                COPILOT[3],
                used(90),
                copilot_answer(3, "", task),
                *({**one, "agentId": "a-1"} for one in inside),
                done("t1", "Left."),
                copilot_answer(6, "Left, then.", model="gpt-5.4"),
            ],
        )
        assert (scout.id, scout.parent, main.parent) == ("c-1/t1", "c-1", None)
        roles = ["system", "user", "assistant", "tool", "assistant"]
        assert [message["role"] for message in scout.messages] == roles
        assert [message["role"] for message in main.messages] == roles
        assert (cuts(scout), cuts(main)) == ([2, 4], [2, 4])
        assert [request.usage for request in scout.requests] == [
            Usage(input=60, cache_read=40, cache_write=0, cache_write_1h=0, output=7),
            None,
        ]
        assert [request.usage for request in main.requests] == [
            Usage(input=50, cache_read=40, cache_write=0, cache_write_1h=0, output=7),
            None,
        ]
        assert main.requests[0].model is None


def hands_event(id: int, source: str = "agent", **more: Any) -> Record:
    """An event of OpenHands."""
    stamped = {"id": id, "timestamp": f"2026-01-01T08:00:{id:02}.000001", "source": source}
    return {**stamped, "message": "", **more}


def made(answer: str, call: str, *calls: str, usage: Record | None = None) -> Record:
    """Metadata that ties an event to the model's answer."""
    message = {"content": "Looking.", "role": "assistant", "function_call": None}
    given = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
    response = {
        "id": answer,
        "created": START + 2,
        "model": "llama-4",
        "choices": [
            {
                "finish_reason": "stop",
                "index": 0,
                "message": {**message, "tool_calls": [chat_call(id) for id in (call, *calls)]},
            }
        ],
        "usage": usage or {**given, "prompt_tokens_details": {"cached_tokens": 40}},
    }
    return {"function_name": "read", "tool_call_id": call, "model_response": response}


def hands(*more: Record) -> list[Record]:
    known = {"recall_type": "knowledge", "microagent_knowledge": [{"content": "Of mazes."}]}
    return [
        hands_event(0, action="system", args={"content": "Be brief.", "tools": []}),
        hands_event(1, "user", action="message", args={"content": "Go.", "image_urls": None}),
        hands_event(2, "user", action="recall", args={"query": "Go."}),
        hands_event(3, "environment", observation="recall", content="Added", extras=known),
        *more,
    ]


class TestOpenhands:
    def test_messages_time_and_usage(self):
        about = {"exit_code": 2, "working_dir": "/maze", "prefix": "", "suffix": "", "pid": -1}
        seen = {"observation": "run", "content": "no such file", "extras": {"metadata": about}}
        first, second = made("r1", "t1", "t2"), made("r1", "t2", "t1")
        events = hands(
            hands_event(4, action="run", tool_call_metadata=first, args={}),
            hands_event(5, action="read", tool_call_metadata=second, args={}),
            hands_event(6, observation="read", tool_call_metadata=second, content="a map"),
            hands_event(7, tool_call_metadata=first, **seen),
            hands_event(8, observation="error", content="Not a tool.", extras={}),
            hands_event(9, action="finish", tool_call_metadata=made("r2", "t3"), args={}),
            hands_event(10, "environment", observation="agent_state_changed", content=""),
        )
        session = only(openhands, [{"instance_id": "i-1", "history": events}])
        failed = "no such file\n[Current working directory: /maze]"
        error = "Not a tool.\n[Error occurred in processing last action]"
        said = {"role": "assistant", "content": "Looking."}
        failed += "\n[Command finished with exit code 2]"
        assert session.messages == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Go."},
            {"role": "user", "content": "<EXTRA_INFO>\nOf mazes.\n</EXTRA_INFO>"},
            {**said, "tool_calls": [chat_call("t1"), chat_call("t2")]},
            {"role": "tool", "tool_call_id": "t1", "content": failed},
            {"role": "tool", "tool_call_id": "t2", "content": "a map"},
            {"role": "user", "content": error},
            {**said, "tool_calls": [chat_call("t3")]},  # nothing answers to the end of a run
        ]
        assert (session.id, session.agent, session.format) == ("i-1", "openhands", "openai-chat")
        assert cuts(session) == [3, 7]
        usage = Usage(input=60, cache_read=40, cache_write=0, cache_write_1h=0, output=7)
        assert told(session) == [(START + 2, usage, "llama-4")] * 2

    @pytest.mark.parametrize("lines", [True, False])
    def test_events_may_come_a_line_each_or_as_a_list(self, lines: bool):
        answer = {"action": "message", "args": {"content": "Left."}}
        events = hands(hands_event(4, **answer))
        session = only(openhands, events if lines else [events])
        assert session.messages[-1] == {"role": "assistant", "content": "Left."}
        assert session.requests[0].time == START + 8 * 3600 + 4 + 1e-6

    @pytest.mark.parametrize(
        "forgotten",
        [
            {"forgotten_event_ids": [4, 5]},
            {"forgotten_events_start_id": 4, "forgotten_events_end_id": 5},
        ],
    )
    def test_a_condensation_starts_a_segment(self, forgotten: Record):
        one, two, three = made("r1", "t1"), made("r2", "t2"), made("r3", "t3")
        args = {**forgotten, "summary": "Gone left.", "summary_offset": 2}
        events = hands(
            hands_event(4, action="read", tool_call_metadata=one),
            hands_event(5, observation="read", tool_call_metadata=one, content="a map"),
            hands_event(6, action="read", tool_call_metadata=two),
            hands_event(7, observation="read", tool_call_metadata=two, content="a door"),
            hands_event(8, action="condensation", args=args),
            hands_event(9, action="read", tool_call_metadata=three),
            hands_event(10, observation="read", tool_call_metadata=three, content="out"),
        )
        first, second = sessions(openhands, [events])
        assert (first.segment, second.segment) == (0, 1)
        assert cuts(first) == [3, 5]
        contents = [message["content"] for message in second.messages]
        assert contents[2] == "Gone left."
        assert "a map" not in contents
        assert "a door" in contents
        assert cuts(second) == [6]


def inspect_sample(**more: Any) -> Record:
    calls = [
        {"id": id, "function": "read", "arguments": {"path": "map.txt"}, "type": "function"}
        for id in ("t1", "t2")
    ]
    thought = {"type": "reasoning", "reasoning": "Left?", "signature": "s"}
    return {
        "id": 59,
        "epoch": 2,
        "input": "Go.",
        "target": "out",
        "messages": [
            {"id": "a", "content": "Be brief.", "role": "system"},
            {"id": "b", "content": "attachment://77", "source": "input", "role": "user"},
            {
                "id": "c",
                "content": [thought, text("Looking.")],
                "source": "generate",
                "role": "assistant",
                "tool_calls": calls,
            },
            {
                "id": "d",
                "content": "",
                "role": "tool",
                "tool_call_id": "t2",
                "function": "read",
                "error": {"type": "file_not_found", "message": "no such file"},
            },
            {"id": "e", "content": [text("a map")], "role": "tool", "tool_call_id": "t1"},
            {"id": "f", "content": "Left.", "role": "assistant", "model": "other"},
        ],
        "attachments": {"77": "Go, and take care."},
        **more,
    }


def generated(id: str, second: int, **usage: int) -> Record:
    output = {"model": "claude-x", "choices": [{"message": {"id": id, "role": "assistant"}}]}
    return {"event": "model", "timestamp": iso(second), "output": {**output, "usage": usage}}


class TestInspect:
    def test_messages(self):
        session = only(inspect_log, [inspect_sample()])
        assert session.messages == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Go, and take care."},
            {
                "role": "assistant",
                "content": [text("Looking.")],
                "reasoning_content": "Left?",
                "tool_calls": [chat_call("t1"), chat_call("t2")],
            },
            {"role": "tool", "tool_call_id": "t1", "content": [text("a map")]},
            {"role": "tool", "tool_call_id": "t2", "content": "Error: no such file"},
            {"role": "assistant", "content": "Left."},
        ]
        assert (session.id, session.agent, session.format) == ("59-2", "inspect", "openai-chat")
        assert told(session) == [(None, None, None), (None, None, "other")]

    def test_a_log_tells_time_model_and_usage(self):
        apart = {"input_tokens": 60, "output_tokens": 7, "input_tokens_cache_read": 40}
        inside = {**apart, "input_tokens": 100}
        events = [
            generated("c", 3, **apart, total_tokens=107),
            generated("f", 5, **inside, total_tokens=107),
            {"event": "compaction", "timestamp": iso(6)},
        ]
        about = {"run_id": "r-1", "task": "maze", "model": "anthropic/claude-x"}
        samples = [inspect_sample(events=events), inspect_sample(id=60)]
        log = {"version": 2, "status": "success", "eval": about, "samples": samples}
        first, second = sessions(inspect_log, [log])
        usage = Usage(input=60, cache_read=40, cache_write=0, cache_write_1h=0, output=7)
        assert told(first) == [(START + 3, usage, "claude-x"), (START + 5, usage, "claude-x")]
        assert first.notes == ("1 compaction that the messages do not show left out",)
        assert (first.id, second.id) == ("r-1/59-2", "r-1/60-2")
        assert second.requests[0].model == "anthropic/claude-x"


FILES: dict[ModuleType, list[Any]] = {
    copilot_cli: [
        *COPILOT,
        copilot_answer(3, "", asked("t1"), asked("t2")),
        done("t1", "a map"),
        copilot_answer(4, "", asked("t3"), parentToolCallId="t2"),
        event("assistant.usage", inputTokens=9),
        event("session.compaction_complete", success=True, summaryContent="Gone left."),
        copilot_answer(5, "Left."),
    ],
    gemini_cli: [
        {**Gemini.ABOUT, "messages": [Gemini.user("m1", "Go.")]},
        Gemini.answer("m2", 2, "Look.", Gemini.call("c1")),
        {"$rewindTo": "m2"},
        {"$set": {"messages": [Gemini.user("m3", ["Go."])]}},
        Gemini.answer("m4", 4, "Left."),
    ],
    inspect_log: [inspect_sample(events=[generated("c", 3, input_tokens=3)])],
    openhands: hands(
        hands_event(4, action="read", tool_call_metadata=made("r1", "t1")),
        hands_event(5, observation="read", tool_call_metadata=made("r1", "t1"), content="a map"),
        hands_event(6, action="condensation", args={"forgotten_event_ids": [1], "summary": "x"}),
        hands_event(7, action="message", args={"content": "Left."}),
    ),
    opencode: [
        Opencode.export(
            Opencode.user("m1", text("Go."), {"type": "compaction", "tail_start_id": "m1"}),
            Opencode.answer("m2", 2, text("Look."), Opencode.tool("c1", output="a map")),
            Opencode.answer("m3", 2, text("Gone left."), summary=True),
            Opencode.answer("m4", 2, text("Left.")),
        )
    ],
    pi: [
        Pi.header(),
        Pi.user(1, "Go."),
        Pi.answer(2, text("Looking."), Pi.call("t1")),
        Pi.result(3, "t1", "a map"),
        Pi.entry(4, {"role": "bashExecution", "command": "ls", "output": "x", "exitCode": 0}),
        {"type": "compaction", "summary": "Gone left.", "firstKeptEntryIndex": 2},
        Pi.answer(5, text("Left.")),
    ],
}


def lines(records: list[Any]) -> bytes:
    return b"\n".join(msgspec.json.encode(record) for record in records)


def short(reader: ModuleType) -> str:
    return reader.__name__.rpartition(".")[2]


@pytest.mark.parametrize("reader", READERS, ids=short)
class TestEveryReader:
    def test_knows_its_own_files_and_no_others(self, reader: ModuleType):
        heads = {other: lines(records) for other, records in FILES.items()}
        assert [other for other in READERS if reader.recognizes(heads[other], "f")] == [reader]

    def test_knows_its_documents_however_they_are_laid_out(self, reader: ModuleType):
        documents = {reader: FILES[reader][0] for reader in (gemini_cli, inspect_log, opencode)}
        documents[openhands] = FILES[openhands]
        about = {"run_id": "r-1", "task": "maze"}
        log = {"version": 2, "status": "success", "eval": about, "samples": [inspect_sample()]}
        for other, document in [*documents.items(), (inspect_log, log)]:
            head = msgspec.json.format(msgspec.json.encode(document), indent=2)
            assert reader.recognizes(head, "f") == (other is reader)

    @pytest.mark.parametrize("head", [b"", b"\x00\xff", b"[]", b"{", b'"x"', b"null\n{}", b"[1"])
    def test_does_not_know_other_files(self, reader: ModuleType, head: bytes):
        assert not reader.recognizes(head, "session.json")

    @pytest.mark.parametrize("records", [[], [None], [{}], [[]], [{"messages": 3}], ["x", 1]])
    def test_names_a_file_without_requests(self, reader: ModuleType, records: list[Any]):
        assert list(reader.read(iter(records), "f")) == [
            Skipped("f", "no answer of a model is recorded in it")
        ]

    def test_reads_its_file(self, reader: ModuleType):
        assert sessions(reader, FILES[reader])

    def test_leaves_the_records_as_they_were(self, reader: ModuleType):
        records = copy.deepcopy(FILES[reader])
        list(reader.read(iter(records), "f"))
        assert records == FILES[reader]

    def test_tells_the_same_twice(self, reader: ModuleType):
        first, second = (list(reader.read(iter(FILES[reader]), "f")) for _ in range(2))
        assert first == second


def places(value: Any) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    if not isinstance(value, dict | list):
        return [()]
    below = value.items() if isinstance(value, dict) else enumerate(value)
    return [(), *((key, *rest) for key, item in below for rest in places(item))]


@given(st.data())
def test_nothing_in_a_record_makes_a_reader_fail(data: st.DataObject):
    reader = data.draw(st.sampled_from(READERS))
    records = copy.deepcopy(FILES[reader])
    for _ in range(data.draw(st.integers(1, 3))):
        *path, last = data.draw(st.sampled_from([p for p in places(records) if p]))
        holder: Any = records
        for step in path:
            holder = holder[step]
        holder[last] = data.draw(arbitrary_json())
    for session in reader.read(iter(records), "f"):
        if isinstance(session, RecordedSession):
            inside = [request.cut for request in session.requests]
            assert inside == sorted(set(inside))
            assert all(0 < cut <= len(session.messages) for cut in inside)
