"""Claude Code transcripts, in the shape of its records."""

from __future__ import annotations

import copy
import json
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import respool
from respool.pricing import Usage
from respool.sessions import claude_code, codex, request_log
from respool.sessions.session import RecordedSession, Skipped
from tests.strategies import arbitrary_json

START = 1_767_225_600  # 2026-01-01, the zeroth second of these transcripts
Record = dict[str, Any]


def record(kind: str, second: int, **more: Any) -> Record:
    """A record with what stands in each of them."""
    return {
        "parentUuid": None if second == 0 else f"u{second - 1}",
        "isSidechain": False,
        "userType": "external",
        "cwd": "/home/ada/maze",
        "sessionId": "s-1",
        "version": "2.1.47",
        "gitBranch": "main",
        "type": kind,
        "uuid": f"u{second}",
        "timestamp": f"2026-01-01T00:{second // 60:02}:{second % 60:02}.000Z",
        **more,
    }


def user(second: int, content: Any, **more: Any) -> Record:
    return record("user", second, message={"role": "user", "content": content}, **more)


def answer(second: int, id: str, *blocks: Any, tokens: int = 1, **more: Any) -> Record:
    message = {
        "model": more.pop("model", "claude-opus-4-6"),
        "id": id,
        "type": "message",
        "role": "assistant",
        "content": list(blocks),
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 3,
            "cache_creation_input_tokens": 500,
            "cache_read_input_tokens": 9000,
            "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 400},
            "output_tokens": tokens,
            "service_tier": "standard",
        },
    }
    return record("assistant", second, message=message, **{"requestId": f"req_{id}", **more})


def text(said: str) -> Record:
    return {"type": "text", "text": said}


def call(id: str) -> Record:
    return {"type": "tool_use", "id": id, "name": "Read", "input": {"file_path": f"/{id}"}}


def result(id: str) -> Record:
    return {"tool_use_id": id, "type": "tool_result", "content": f"what is in {id}"}


def think(about: str) -> Record:
    return {"type": "thinking", "thinking": about, "signature": "c2ln"}


def message(role: str, *blocks: Record) -> Record:
    return {"role": role, "content": list(blocks)}


def sessions(records: list[Any]) -> list[RecordedSession]:
    found = list(claude_code.read(records, "/home/ada/.claude/projects/maze/s-1.jsonl"))
    assert all(isinstance(one, RecordedSession) for one in found), found
    return [one for one in found if isinstance(one, RecordedSession)]


def only(records: list[Any]) -> RecordedSession:
    (session,) = sessions(records)
    return session


PARALLEL = [
    record("file-history-snapshot", 0, snapshot={}, messageId="m", isSnapshotUpdate=False),
    user(0, "look into both"),
    answer(1, "m1", think("two files")),
    answer(2, "m1", text("I look.")),
    answer(3, "m1", call("a")),
    user(4, [result("a")], toolUseResult={"file": {}}, sourceToolAssistantUUID="u3"),
    answer(5, "m1", call("b"), tokens=77),
    user(6, [result("b")], toolUseResult={"file": {}}, sourceToolAssistantUUID="u5"),
    answer(9, "m2", text("Both are fine."), tokens=5, model="claude-haiku-4-5"),
]


class TestOneConversation:
    def test_the_records_of_an_answer_are_one_message_and_so_are_its_results(self):
        assert only(PARALLEL).messages == [
            message("user", text("look into both")),
            message("assistant", think("two files"), text("I look."), call("a"), call("b")),
            message("user", result("a"), result("b")),
            message("assistant", text("Both are fine.")),
        ]

    def test_a_request_has_its_cut_its_time_and_its_model(self):
        told = [(one.cut, one.time, one.model) for one in only(PARALLEL).requests]
        assert told == [(1, START + 1, "claude-opus-4-6"), (3, START + 9, "claude-haiku-4-5")]

    def test_the_usage_is_that_of_the_answers_last_record(self):
        first, last = only(PARALLEL).requests
        assert first.usage == Usage(
            input=3, cache_read=9000, cache_write=500, cache_write_1h=400, output=77
        )
        assert last.usage is not None
        assert last.usage.output == 5

    def test_it_says_what_it_is(self):
        session = only(PARALLEL)
        assert (session.id, session.agent, session.format) == ("s-1", "claude-code", "anthropic")
        assert session.source.endswith("s-1.jsonl")
        assert (session.segment, session.parent, session.notes) == (0, None, ())

    def test_the_provider_would_take_every_request(self):
        session = only(PARALLEL)
        for one in session.requests:
            assert respool.check(list(session.messages[: one.cut]), format="anthropic") == []

    def test_the_records_stay_as_they_were(self):
        before = copy.deepcopy(PARALLEL)
        sessions(PARALLEL)
        assert before == PARALLEL


USER, ANSWER = user(0, "go"), answer(1, "m1", text("Done."))
SAID, DONE = message("user", text("go")), message("assistant", text("Done."))
TIDIED = {
    "a call that was never answered": (
        [USER, answer(1, "m1", text("I look."), call("a")), user(2, "stop"), ANSWER],
        [SAID, message("assistant", text("I look."), text("Done.")), message("user", text("stop"))],
    ),
    "an answer of nothing but such a call": (
        [USER, answer(1, "m0", call("a")), user(2, "again"), ANSWER],
        [message("user", text("go"), text("again")), DONE],
    ),
    "a result behind what the user said meanwhile": (
        [USER, answer(1, "m0", call("a")), user(2, "hurry"), user(3, [result("a")]), ANSWER],
        [SAID, message("assistant", call("a")), message("user", result("a"), text("hurry")), DONE],
    ),
    "a result that comes after the next answer": (
        [USER, answer(1, "m0", call("a")), ANSWER, user(3, [result("a")])],
        [SAID, message("assistant", call("a")), message("user", result("a")), DONE],
    ),
    "a result given twice": (
        [USER, answer(1, "m0", call("a")), user(2, [result("a")]), user(2, [result("a")]), ANSWER],
        [SAID, message("assistant", call("a")), message("user", result("a")), DONE],
    ),
    "a result of no call": ([USER, user(1, [result("x")]), ANSWER], [SAID, DONE]),
    "blank text": ([USER, user(1, " \n"), answer(1, "m0", text("")), ANSWER], [SAID, DONE]),
    "an answer before anything was said": (
        [answer(0, "m0", text("?")), USER, ANSWER],
        [SAID, DONE],
    ),
    "an answer, and its result, before anything was said": (
        [user(0, [result("x")]), answer(0, "m0", call("a")), user(0, [result("a")]), USER, ANSWER],
        [SAID, DONE],
    ),
    "a message that the client made itself": (
        [USER, answer(1, "m0", text("API Error"), model="<synthetic>"), ANSWER],
        [SAID, DONE],
    ),
    "answers without an id": (
        [USER, answer(1, "", text("One.")), user(2, "go"), answer(3, "", text("Two."))],
        [SAID, message("assistant", text("One.")), SAID, message("assistant", text("Two."))],
    ),
}


@pytest.mark.parametrize(("records", "messages"), TIDIED.values(), ids=TIDIED)
def test_messages_stand_as_they_were_sent(records: list[Any], messages: list[Any]):
    assert only(records).messages == messages


def test_what_is_left_out_is_counted():
    odd = [
        record("attachment", 1, attachment={"type": "todo"}),
        record("attachment", 1, attachment={"type": "todo"}),
        record("horoscope", 1),
        record("progress", 1, data={"type": "agent_progress"}),
        answer(1, "m0", call("a")),
        answer(1, "m9", text("no"), model="<synthetic>"),
        7,
    ]
    assert only([USER, *odd, ANSWER]).notes == (
        "2 reminders that were sent along left out",
        "1 records of unknown kind 'horoscope' left out",
        "1 messages that the client made itself left out",
        "1 records that are no objects left out",
        "1 calls without a result left out",
    )


COMPACTED = [
    *PARALLEL,
    record("system", 20, subtype="compact_boundary", compactMetadata={"trigger": "auto"}),
    user(20, "What happened so far: both are fine.", isCompactSummary=True),
    user(21, "go on"),
    answer(22, "m3", text("On.")),
]


class TestCompaction:
    def test_it_begins_a_new_segment_with_its_summary(self):
        before, after = sessions(COMPACTED)
        assert before.messages == only(PARALLEL).messages
        assert after.messages == [
            message("user", text("What happened so far: both are fine."), text("go on")),
            message("assistant", text("On.")),
        ]
        assert [one.time for one in after.requests] == [START + 22]

    def test_boundary_and_summary_are_one(self):
        again = [
            user(30, "Summary", isCompactSummary=True),
            answer(31, "m4", text("Yes.")),
        ]
        found = sessions([*COMPACTED, *again])
        assert [(one.id, one.segment) for one in found] == [("s-1", 0), ("s-1", 1), ("s-1", 2)]

    def test_a_file_may_begin_with_one(self):
        assert only(COMPACTED[len(PARALLEL) :]).segment == 1

    def test_segments_come_as_soon_as_they_end(self):
        def records():
            yield from COMPACTED[:-2]
            raise AssertionError("read on")

        assert next(claude_code.read(records(), "x.jsonl")) == next(
            claude_code.read(COMPACTED, "x.jsonl")
        )


def side(made: Record, own: str, before: str | None, agent: str | None = None) -> Record:
    more = {"agentId": agent} if agent else {}
    return {**made, "isSidechain": True, "uuid": own, "parentUuid": before, **more}


class TestSidechains:
    @pytest.mark.parametrize(("one", "two"), [("a1", "a2"), (None, None)])
    def test_each_is_a_session_of_its_own(self, one: str | None, two: str | None):
        found = sessions(
            [
                USER,
                side(user(1, "first task"), "x1", None, one),
                side(user(1, "second task"), "y1", None, two),
                side(answer(2, "n1", text("First.")), "x2", "x1", one),
                side(record("system", 2, subtype="note"), "x3", "x2", one),
                side(answer(3, "n2", text("Second.")), "y2", "y1", two),
                side(user(4, "more"), "x4", "x3", one),
                side(answer(5, "n3", text("More.")), "x5", "x4", one),
                ANSWER,
            ]
        )
        assert [len(session.messages) for session in found] == [2, 4, 2]
        assert [session.id for session in found] == [
            "s-1",
            f"s-1/{one or 'x1'}",
            f"s-1/{two or 'y1'}",
        ]
        assert [session.parent for session in found] == [None, "s-1", "s-1"]
        assert found[1].requests[1].time == START + 5

    def test_one_may_have_a_file_of_its_own(self):
        session = only(
            [
                side(user(1, "task"), "x1", None, "a1"),
                side(answer(2, "n1", text("Done.")), "x2", "x1", "a1"),
            ]
        )
        assert (session.id, session.parent) == ("s-1/a1", "s-1")


@pytest.mark.parametrize("records", [[], [USER], [ANSWER], [record("summary", 0)], [None, 3]])
def test_a_file_without_an_answer_is_skipped(records: list[Any]):
    assert list(claude_code.read(records, "x.jsonl")) == [
        Skipped("x.jsonl", "no answer of a model is recorded in it")
    ]


def lines(*records: Any) -> bytes:
    return b"\n".join(msgspec.json.encode(one) for one in records)


RECOGNISED = {
    "a transcript": (lines(*PARALLEL), True),
    "a sub-agent's": (lines(side(USER, "x", None, "a1")), True),
    "one that begins with a summary": (lines({"type": "summary", "leafUuid": "u"}), True),
    "one that begins with modes": (lines({"type": "mode", "sessionId": "s-1"}), True),
    "a first record longer than the head": (lines(user(0, "x" * 70_000))[:65_536], True),
    "a half-written line": (lines(USER, ANSWER)[:-20], True),
    "another agent's": (lines({"type": "session", "id": "s", "version": 3}), False),
    "a record quoted in another": (lines({"text": lines(USER).decode()}), False),
    "no objects": (lines(1, [USER], "x"), False),
    "kinds of the wrong type": (lines({"type": ["user"], "sessionId": "s"}), False),
    "bytes": (b"\x89PNG\r\n\x1a\n\x00\xff", False),
    "nothing": (b"", False),
}


@pytest.mark.parametrize(("head", "ours"), RECOGNISED.values(), ids=RECOGNISED)
def test_recognises(head: bytes, ours: bool):
    assert claude_code.recognizes(head, "s-1.jsonl") is ours
    assert claude_code.recognizes(head, "s-1.jsonl.gz") is ours
    assert not claude_code.recognizes(head, "s-1.json")
    assert not codex.recognizes(head, "s-1.jsonl")
    assert not request_log.recognizes(head, "s-1.jsonl")


PATHS = [("type",), ("message",), ("message", "content"), ("message", "id"), ("message", "usage")]
PATHS += [("message", "usage", "cache_creation"), ("message", "content", 0), ("timestamp",)]
PATHS += [("message", "content", 0, "id"), ("message", "content", 0, "tool_use_id"), ("uuid",)]
PATHS += [("parentUuid",), ("isSidechain",), ("agentId",), ("sessionId",), ("message", "model")]
PATHS += [("message", "content", 0, "type"), ("message", "content", 0, "text")]


@given(
    st.lists(st.tuples(st.integers(0, 12), st.sampled_from(PATHS), arbitrary_json()), max_size=4)
)
def test_odd_records_never_raise(changes: list[tuple[int, tuple[Any, ...], Any]]):
    records: list[Any] = copy.deepcopy(COMPACTED)
    for at, path, value in changes:
        spot: Any = records[at % len(records)]
        for step in path[:-1]:
            inside = isinstance(spot, dict) and step in spot
            inside = inside or (isinstance(spot, list) and step == 0 and len(spot) > 0)
            spot = spot[step] if inside else None
        if isinstance(spot, dict) or (isinstance(spot, list) and spot and path[-1] == 0):
            spot[path[-1]] = value
    for session in claude_code.read(records, "x.jsonl"):
        if isinstance(session, RecordedSession):
            cuts = [one.cut for one in session.requests]
            assert cuts == sorted(set(cuts))
            assert all(session.messages[cut]["role"] == "assistant" for cut in cuts)


@given(st.lists(arbitrary_json(), max_size=5))
def test_what_is_no_record_never_raises(records: list[Any]):
    assert len(list(claude_code.read(records, "x.jsonl"))) == 1


def hash_of(message: Record) -> str:
    """A message's name in the records of requests."""
    sorted_text = json.dumps(message, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256(sorted_text.encode()).hexdigest()


def blob(message: Record) -> Record:
    return {"type": "api-request-blob", "sessionId": "s-1", "hash": hash_of(message)} | {
        "message": message
    }


def request(id: str, keep: int, *tail: Record, base: str | None = None) -> Record:
    told = {"type": "api-request", "sessionId": "s-1", "id": id, "keep": keep}
    return told | {"base": base, "tail": [hash_of(one) for one in tail]}


ASKED = message("user", text("<system-reminder>\nBe brief — ü.\n</system-reminder>"), text("Go."))
REMINDER = {"role": "system", "content": [text("The maze is dark.")], "output_config": {"a": 1}}
LOOKED = message("assistant", think("Both."), call("a"), call("b"))
CAME = message("user", result("b"), result("a"))  # in the order in which they came
RECORDED = [
    user(0, "Go."),
    record("attachment", 1, attachment={"type": "date"}),
    blob(ASKED),
    blob(REMINDER),
    request("r1", 0, ASKED, REMINDER),
    answer(2, "m1", think("Both."), call("a")),
    answer(3, "m1", call("b")),
    user(4, [result("b")]),
    user(5, [result("a")]),
    request("r2", 2, LOOKED, CAME, base="r1"),
    answer(6, "m2", text("Left.")),
    user(7, "Thanks."),
]


class TestRecordedRequests:
    """Requests that Claude Code records are read word for word."""

    def test_reminders_stand_where_they_were_sent(self):
        session = only(RECORDED)
        done, thanks = message("assistant", text("Left.")), message("user", text("Thanks."))
        assert session.messages == [ASKED, REMINDER, LOOKED, CAME, done, thanks]
        assert [sent.cut for sent in session.requests] == [2, 4]
        assert session.notes == ()

    @pytest.mark.parametrize(
        "records",
        [
            [one for one in RECORDED if one is not RECORDED[3]],
            [one for one in RECORDED if one is not RECORDED[4]],
            [one for one in RECORDED if one is not RECORDED[9]],
            [*RECORDED[:9], request("r2", 1, LOOKED, CAME, base="r1"), *RECORDED[10:]],
            [*RECORDED[:9], request("r2", 2, CAME, LOOKED, base="r1"), *RECORDED[10:]],
            [*RECORDED[:9], request("r2", 2, base="r1"), *RECORDED[10:]],
            [*RECORDED[:9], {**RECORDED[9], "tail": 7, "keep": "x"}, *RECORDED[10:]],
        ],
        ids=["no blob", "first", "second", "other start", "order", "same", "odd"],
    )
    def test_what_is_not_certain_is_put_together_from_the_records(self, records: list[Any]):
        session = only(records)
        assert session.messages[0] == message("user", text("Go."))
        assert session.messages[2] == message("user", result("a"), result("b"))
        assert [sent.cut for sent in session.requests] == [1, 3]
        assert session.notes == ("1 reminders that were sent along left out",)

    def test_a_sub_agents_requests_are_its_own(self):
        named = [
            one | {"agentId": "scout"} | ({"isSidechain": True} if "uuid" in one else {})
            for one in RECORDED
        ]
        main = [user(20, "Hello."), answer(21, "m9", text("Hi."))]
        first, second = sessions([*main, *named])
        assert len(first.messages) == 2
        assert second.messages[:2] == [ASKED, REMINDER]
        assert second.parent == first.id


def test_what_a_compaction_keeps_stands_behind_its_summary_and_is_told_once():
    kept = {"preservedMessages": {"anchorUuid": "u4", "uuids": ["u2", 7]}}
    boundary = record("system", 3, subtype="compact_boundary", compactMetadata=kept)
    first, second = sessions(
        [
            user(0, "Go."),
            answer(1, "m1", call("a")),
            user(2, [result("a"), text("And now?")]),
            boundary,
            user(4, "All so far.", isCompactSummary=True),
            answer(5, "m2", text("Left.")),
        ]
    )
    assert len(first.messages) == 3
    assert second.messages == [
        message("user", text("All so far."), text("And now?")),
        message("assistant", text("Left.")),
    ]
    assert [len(one.requests) for one in (first, second)] == [1, 1]


def test_an_answer_that_a_compaction_keeps_is_no_request_again():
    kept = {"preservedMessages": {"uuids": ["u1"]}}
    first, second = sessions(
        [
            user(0, "Go."),
            answer(1, "m1", text("Left.")),
            record("system", 2, subtype="compact_boundary", compactMetadata=kept),
            user(3, "All so far.", isCompactSummary=True),
            user(4, "On."),
            answer(5, "m2", text("Right.")),
        ]
    )
    assert [one["role"] for one in second.messages] == ["user", "assistant", "user", "assistant"]
    assert second.messages[1] == message("assistant", text("Left."))
    assert [sent.cut for sent in second.requests] == [3]
    assert first.messages[-1] == message("assistant", text("Left."))


def after(made: Record, before: str) -> Record:
    return {**made, "parentUuid": before}


class TestRewinds:
    BEGUN = (user(0, "Go."), answer(1, "m1", text("Which way?")))

    def test_what_was_taken_back_is_a_session_of_its_own(self):
        wrong = (user(2, "Left."), answer(3, "m2", call("a")), user(4, [result("a")]))
        found = sessions(
            [
                *self.BEGUN,
                *wrong,
                answer(5, "m3", text("A wall.")),
                after(user(6, "Right."), "u1"),
                answer(7, "m4", text("The door.")),
                user(8, "Thanks."),
                answer(9, "m5", text("Ariadne.")),
            ]
        )
        assert [one.id for one in found] == ["s-1/rewound-1", "s-1"]
        assert [one.parent for one in found] == [None, None]
        back, main = found
        assert (
            back.messages == only([*self.BEGUN, *wrong, answer(5, "m3", text("A wall."))]).messages
        )
        assert [one.time for one in back.requests] == [START + 3, START + 5]
        assert [one.time for one in main.requests] == [START + 1, START + 7, START + 9]
        assert main.messages == [
            message("user", text("Go.")),
            message("assistant", text("Which way?")),
            message("user", text("Right.")),
            message("assistant", text("The door.")),
            message("user", text("Thanks.")),
            message("assistant", text("Ariadne.")),
        ]

    def test_a_prompt_that_was_rewritten_before_its_answer_was_never_sent(self):
        note = record("system", 2, subtype="turn_duration")
        session = only(
            [
                *self.BEGUN,
                note,
                user(3, "Lfet."),
                after(user(4, "Left."), "u2"),
                answer(5, "m2", text("Done.")),
            ]
        )
        assert session.messages[2] == message("user", text("Left."))
        assert session.notes == ("1 prompts that were taken back left out",)

    def test_one_can_go_back_again_and_again(self):
        found = sessions(
            [
                *self.BEGUN,
                user(2, "Left."),
                answer(3, "m2", text("A wall.")),
                after(user(4, "Right."), "u1"),
                answer(5, "m3", text("Another wall.")),
                after(user(6, "Up."), "u1"),
                answer(7, "m4", text("The sky.")),
            ]
        )
        assert [(one.id, len(one.messages), len(one.requests)) for one in found] == [
            ("s-1/rewound-1", 4, 1),
            ("s-1/rewound-2", 4, 1),
            ("s-1", 4, 2),
        ]

    @pytest.mark.parametrize(
        "prompt",
        [
            after(user(8, [result("b"), text("late")]), "u1"),  # results follow their own calls
            after(user(8, "Caveat.", isMeta=True), "u1"),
            after(user(8, "On."), "nobody"),
        ],
    )
    def test_what_only_stands_elsewhere_takes_nothing_back(self, prompt: Record):
        found = sessions([*PARALLEL, prompt, answer(9, "m9", text("Yes."))])
        assert [one.id for one in found] == ["s-1"]
        assert len(found[0].requests) == len(only(PARALLEL).requests) + 1


class TestOneIdForManyAnswers:
    @pytest.mark.parametrize("named", [True, False])
    def test_each_request_is_one(self, named: bool):
        """As gateways give them, some without the ids of requests."""
        told = [
            user(0, "Go."),
            answer(1, "m", call("a"), requestId="r1"),
            user(2, [result("a")]),
            answer(3, "m", text("Done."), requestId="r2"),
        ]
        told[3]["message"]["usage"]["input_tokens"] = 70
        if not named:
            told = [{key: one[key] for key in one if key != "requestId"} for one in told]
        assert [sent.cut for sent in only(told).requests] == [1, 3]

    def test_an_answer_whose_first_record_has_no_usage_yet_is_one(self):
        told = [
            user(0, "Go."),
            answer(1, "m", call("a")),
            user(2, [result("a")]),
            answer(3, "m", call("b")),
            user(4, [result("b")]),
        ]
        told = [{key: one[key] for key in one if key != "requestId"} for one in told]
        told[1]["message"]["usage"] = {"input_tokens": 0, "output_tokens": 0}
        [sent] = only(told).requests
        assert (sent.cut, sent.usage and sent.usage.prompt) == (1, 9_503)

    def test_what_is_written_twice_is_said_once(self):
        told = [
            user(0, "Go."),
            answer(1, "m1", text("I look.")),
            answer(2, "m1", call("a")),
            answer(3, "m1", call("a")),
            user(4, [result("a")]),
            answer(5, "m2", text("Done.")),
        ]
        assert only(told).messages == only([*told[:3], *told[4:]]).messages


@pytest.mark.parametrize("tokens", [2**64 - 1, 10**30, -1, True, 1.5, "7", None])
def test_a_number_of_tokens_that_no_request_can_have_is_none(tokens: Any):
    told = copy.deepcopy([USER, ANSWER])
    told[1]["message"]["usage"]["input_tokens"] = tokens
    [sent] = only(told).requests
    assert sent.usage is not None
    assert sent.usage.prompt == 9_500
