"""Codex rollouts, in the shape of their records."""

from __future__ import annotations

import copy
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


def record(kind: str, second: int, payload: Any) -> Record:
    stamp = f"2026-01-01T00:{second // 60:02}:{second % 60:02}.000Z"
    return {"timestamp": stamp, "type": kind, "payload": payload}


def meta(**more: Any) -> Record:
    told = {"id": "t-1", "cwd": "/maze", "originator": "codex-tui", "cli_version": "0.118.0"}
    told |= {"source": "cli", "model_provider": "openai", "base_instructions": {"text": "You are"}}
    return record("session_meta", 0, told | more)


def context(model: str) -> Record:
    return record("turn_context", 0, {"cwd": "/maze", "approval_policy": "never", "model": model})


def said(role: str, what: str) -> Record:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": what}]}


def called(id: str) -> Record:
    return {"type": "function_call", "name": "exec", "arguments": "{}", "call_id": id}


def came(id: str) -> Record:
    return {"type": "function_call_output", "call_id": id, "output": f"what came of {id}"}


def patched(id: str) -> Record:
    return {"type": "custom_tool_call", "name": "apply_patch", "input": "***", "call_id": id}


def patch_came(id: str) -> Record:
    return {"type": "custom_tool_call_output", "call_id": id, "output": "ok"}


THOUGHT = {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "ZW5j"}
SEARCH = {"type": "web_search_call", "status": "completed", "action": {"type": "search"}}


def item(second: int, payload: Record) -> Record:
    return record("response_item", second, payload)


def event(second: int, kind: str, **more: Any) -> Record:
    return record("event_msg", second, {"type": kind, **more})


def counted(second: int, total: int, prompt: int, cached: int, output: int) -> Record:
    last = {"input_tokens": prompt, "cached_input_tokens": cached, "output_tokens": output}
    info = {"total_token_usage": {"total_tokens": total}, "last_token_usage": last}
    return event(second, "token_count", info=info, rate_limits={})


def sessions(records: list[Any]) -> list[RecordedSession]:
    found = list(codex.read(records, "/home/ada/.codex/sessions/rollout-1.jsonl"))
    assert all(isinstance(one, RecordedSession) for one in found), found
    return [one for one in found if isinstance(one, RecordedSession)]


def only(records: list[Any]) -> RecordedSession:
    (session,) = sessions(records)
    return session


TURN = [
    meta(),
    event(0, "task_started"),
    item(1, said("developer", "rules")),
    context("gpt-5.4"),
    item(1, said("user", "go")),
    event(1, "user_message", message="go"),
    event(1, "token_count", info=None, rate_limits={}),
    item(2, THOUGHT),
    item(3, said("assistant", "I look.")),
    item(3, called("a")),
    item(3, called("b")),
    counted(4, 110, 100, 60, 10),
    event(4, "exec_command_end", call_id="a"),
    item(4, came("b")),
    item(4, came("a")),
    item(5, patched("c")),
    item(6, patch_came("c")),
    counted(6, 240, 125, 110, 5),
    context("gpt-5.5"),
    counted(7, 240, 125, 110, 5),
    item(8, said("assistant", "Done.")),
    counted(9, 400, 150, 150, 10),
    event(9, "task_complete"),
]


class TestOneConversation:
    def test_the_items_are_the_payloads(self):
        want = [one["payload"] for one in TURN if one["type"] == "response_item"]
        assert only(TURN).messages == want

    def test_a_request_has_its_cut_its_time_and_its_model(self):
        assert [(one.cut, one.time, one.model) for one in only(TURN).requests] == [
            (2, START + 2, "gpt-5.4"),
            (8, START + 5, "gpt-5.4"),
            (10, START + 8, "gpt-5.5"),
        ]

    def test_a_count_belongs_to_the_answer_before_it_and_once(self):
        assert [one.usage for one in only(TURN).requests] == [
            Usage(input=40, cache_read=60, output=10),
            Usage(input=15, cache_read=110, output=5),
            Usage(input=0, cache_read=150, output=10),
        ]

    def test_it_says_what_it_is(self):
        session = only(TURN)
        assert (session.id, session.agent, session.format) == ("t-1", "codex", "openai-responses")
        assert (session.segment, session.parent, session.notes) == (0, None, ())

    def test_the_provider_would_take_every_request(self):
        session = only(TURN)
        for one in session.requests:
            history = list(session.messages[: one.cut])
            assert respool.check(history, format="openai-responses") == []

    def test_without_a_head_it_is_named_for_its_file(self):
        assert only(TURN[1:]).id == "rollout-1"


def test_what_was_written_to_the_cache_is_told_apart():
    count = counted(3, 110, 100, 60, 10)
    count["payload"]["info"]["last_token_usage"]["cache_write_input_tokens"] = 30
    (sent,) = only(
        [item(1, said("user", "go")), item(2, said("assistant", "One.")), count]
    ).requests
    assert sent.usage == Usage(input=10, cache_read=60, cache_write=30, output=10)


def test_a_repeated_count_is_not_taken_for_the_next_answer():
    """After an answer without a count of its own, the old one may come again."""
    session = only(
        [
            item(1, said("user", "go")),
            item(2, said("assistant", "One.")),
            counted(3, 110, 100, 0, 10),
            item(4, said("user", "on")),
            item(5, said("assistant", "Two.")),
            counted(6, 110, 100, 0, 10),
        ]
    )
    assert [one.usage is not None for one in session.requests] == [True, False]


GO, DONE = said("user", "go"), said("assistant", "Done.")
TIDIED = {
    "a call that was never answered": ([GO, called("a"), GO, DONE], [GO, GO, DONE]),
    "a result of no call": ([GO, came("a"), DONE], [GO, DONE]),
    "a result before its call": (
        [GO, came("a"), called("a"), came("a")],
        [GO, called("a"), came("a")],
    ),
    "reasoning of which nothing came": ([GO, DONE, GO, THOUGHT], [GO, DONE, GO]),
    "a hosted call": ([GO, THOUGHT, SEARCH, DONE], [GO, THOUGHT, DONE]),
    "items of another kind": ([GO, {"type": "ghost_snapshot"}, DONE], [GO, DONE]),
    "calls without an id": ([GO, {"type": "function_call"}, DONE], [GO, DONE]),
}


@pytest.mark.parametrize(("items", "messages"), TIDIED.values(), ids=TIDIED)
def test_only_whole_pairs_stay(items: list[Record], messages: list[Record]):
    assert only([item(1, one) for one in items]).messages == messages


def test_what_is_left_out_is_counted():
    odd = [item(1, SEARCH), item(1, SEARCH), record("tide", 1, {}), item(1, called("a")), "x"]
    assert only([item(1, GO), *odd, item(1, came("z")), item(2, DONE)]).notes == (
        "2 items of kind 'web_search_call' left out",
        "1 records of unknown kind 'tide' left out",
        "1 records that are no objects left out",
        "1 calls without a result left out",
        "1 results without a call left out",
    )


COMPACTED = [
    *TURN,
    record("compacted", 20, {"message": "", "replacement_history": [GO]}),
    event(20, "context_compacted"),
    counted(20, 500, 90, 0, 10),
    item(21, said("user", "on")),
    item(22, DONE),
    counted(23, 600, 95, 0, 5),
]


def test_a_compaction_begins_a_new_segment():
    before, after = sessions(COMPACTED)
    assert before == only(TURN)
    assert after.messages == [GO, said("user", "on"), DONE]
    assert (after.id, after.segment) == ("t-1", 1)
    assert [(one.cut, one.usage) for one in after.requests] == [(2, Usage(input=95, output=5))]


def test_no_request_was_sent_for_what_a_compaction_put_together():
    put = [GO, DONE, said("user", "a summary")]
    told = record("compacted", 20, {"message": "", "replacement_history": put})
    _, after = sessions([*TURN, told, item(21, said("user", "on")), item(22, DONE)])
    assert after.messages == [*put, said("user", "on"), DONE]
    assert [one.cut for one in after.requests] == [4]


PARENTS = {
    "of its own": ({}, None),
    "told": ({"parent_thread_id": "t-0", "source": {"subagent": "review"}}, "t-0"),
    "told as it was": (
        {"source": {"subagent": {"thread_spawn": {"parent_thread_id": "t-0", "depth": 1}}}},
        "t-0",
    ),
    "a review": ({"source": {"subagent": "review"}}, None),
    "of the wrong type": ({"parent_thread_id": 3, "source": [1]}, None),
}


@pytest.mark.parametrize(("more", "parent"), PARENTS.values(), ids=PARENTS)
def test_a_sub_agent_names_its_parent(more: Record, parent: str | None):
    session = only([meta(**more), meta(id="t-9"), *TURN[1:]])
    assert (session.id, session.parent) == ("t-1", parent)


@pytest.mark.parametrize("records", [[], [meta()], [item(1, GO)], [item(1, DONE)], [None, 3]])
def test_a_file_without_an_answer_is_skipped(records: list[Any]):
    assert list(codex.read(records, "x.jsonl")) == [
        Skipped("x.jsonl", "no answer of a model is recorded in it")
    ]


def lines(*records: Any) -> bytes:
    return b"\n".join(msgspec.json.encode(one) for one in records)


RECOGNISED = {
    "a rollout": (lines(*TURN), True),
    "a head longer than what is looked at": (lines(meta(x="x" * 70_000))[:65_536], True),
    "another agent's": (lines({"type": "session.start", "data": {}}), False),
    "a record quoted in another": (lines({"text": lines(*TURN).decode()}), False),
    "the same, cut short": (lines({"text": lines(*TURN).decode() * 50})[:65_536], False),
    "records within a document": (lines({"document": [meta(x="x" * 70_000)]})[:65_536], False),
    "no objects": (lines(1, [meta()], "x"), False),
    "kinds of the wrong type": (lines({"type": ["session_meta"], "payload": {}}), False),
    "bytes": (b"\x89PNG\r\n\x1a\n\x00\xff", False),
    "nothing": (b"", False),
}


@pytest.mark.parametrize(("head", "ours"), RECOGNISED.values(), ids=RECOGNISED)
def test_recognises(head: bytes, ours: bool):
    assert codex.recognizes(head, "rollout-1.jsonl") is ours
    assert codex.recognizes(head, "rollout-1.jsonl.gz") is ours
    assert not codex.recognizes(head, "rollout-1.json")
    assert not claude_code.recognizes(head, "rollout-1.jsonl")
    assert not request_log.recognizes(head, "rollout-1.jsonl")


PATHS = [("type",), ("timestamp",), ("payload",), ("payload", "type"), ("payload", "call_id")]
PATHS += [("payload", "role"), ("payload", "info"), ("payload", "id"), ("payload", "source")]
PATHS += [("payload", "model"), ("payload", "parent_thread_id")]
PATHS += [("payload", "info", "last_token_usage"), ("payload", "info", "total_token_usage")]


@given(
    st.lists(st.tuples(st.integers(0, 28), st.sampled_from(PATHS), arbitrary_json()), max_size=4)
)
def test_odd_records_never_raise(changes: list[tuple[int, tuple[str, ...], Any]]):
    records: list[Any] = copy.deepcopy(COMPACTED)
    for at, path, value in changes:
        spot: Any = records[at % len(records)]
        for step in path[:-1]:
            spot = spot.get(step) if isinstance(spot, dict) else None
        if isinstance(spot, dict):
            spot[path[-1]] = value
    for session in codex.read(records, "x.jsonl"):
        if isinstance(session, RecordedSession):
            cuts = [one.cut for one in session.requests]
            assert cuts == sorted(set(cuts))


@given(st.lists(arbitrary_json(), max_size=5))
def test_what_is_no_record_never_raises(records: list[Any]):
    assert len(list(codex.read(records, "x.jsonl"))) == 1


OLD_HEAD = {"id": "t-old", "timestamp": "2025-06-01T00:00:00.000Z", "instructions": "Be brief."}
OLD = [
    {**OLD_HEAD, "git": {"branch": "main"}},
    {"record_type": "state"},
    said("user", "Where?"),
    {**THOUGHT, "id": "rs_1"},
    called("c1"),
    came("c1"),
    {"record_type": "state"},
    said("assistant", "There."),
]


class TestAnOlderRollout:
    """Its first record has no kind, and its items stand there bare."""

    def test_the_items_are_the_records(self):
        session = only(OLD)
        assert session.id == "t-old"
        assert session.messages == [OLD[at] for at in (2, 3, 4, 5, 7)]
        assert [request.cut for request in session.requests] == [1, 4]
        assert [request.time for request in session.requests] == [None, None]
        assert session.notes == ()

    @pytest.mark.parametrize("instructions", [None, "", "Be brief."])
    def test_it_is_recognised(self, instructions: str | None):
        head = lines({**OLD_HEAD, "instructions": instructions}, *OLD[1:])
        assert codex.recognizes(head, "rollout-2025.jsonl")
        assert not claude_code.recognizes(head, "rollout-2025.jsonl")
        assert not request_log.recognizes(head, "rollout-2025.jsonl")

    def test_another_record_without_a_kind_is_counted(self):
        assert only([*OLD, {"what": "ever"}]).notes == ("1 records of unknown kind '' left out",)


def test_what_codex_notes_on_an_item_for_itself_is_left_out():
    noted = {**said("user", "Where?"), "internal_chat_message_metadata_passthrough": {"a": 1}}
    session = only([meta(), item(1, noted), item(2, said("assistant", "There."))])
    assert session.messages[0] == said("user", "Where?")


@pytest.mark.parametrize(("summary", "left"), [("So far:\nWent left.", True), ("", False)])
def test_the_answer_that_became_a_summary_is_no_turn(summary: str, left: bool):
    records = [
        meta(),
        item(1, said("user", "Go.")),
        item(2, said("assistant", "Hm.")),
        item(3, said("user", "On.")),
        item(4, said("assistant", "Went left.")),
        record("compacted", 5, {"message": summary}),
    ]
    session = only(records)
    assert [request.cut for request in session.requests] == ([1] if left else [1, 3])
    assert session.notes == (("1 answers with a summary left out",) if left else ())


def asked(second: int, text: str) -> list[Record]:
    return [item(second, said("user", text)), event(second, "user_message", message=text)]


class TestRolledBack:
    BEGUN = (meta(), *asked(0, "go"), item(1, said("assistant", "Which way?")))
    LEFT = (
        *asked(2, "left"),
        item(3, called("a")),
        item(4, came("a")),
        item(5, said("assistant", "A wall.")),
    )

    @pytest.mark.parametrize("turns", [1, 2, 9])
    def test_the_turns_are_a_session_of_their_own(self, turns: int):
        more = [] if turns == 1 else [*asked(6, "up"), item(7, said("assistant", "Glass."))]
        begun = self.BEGUN if turns < 9 else self.BEGUN[:1]
        left = self.LEFT if turns < 9 else [*self.BEGUN[1:], *self.LEFT]
        rest = [*asked(8, "right"), item(9, said("assistant", "The door."))]
        back, main = sessions(
            [*begun, *left, *more, event(8, "thread_rolled_back", num_turns=turns), *rest]
        )
        assert (back.id, main.id) == (f"{main.id}/rewound-1", only([*self.BEGUN]).id)
        assert back.messages == only([*begun, *left, *more]).messages
        assert main.messages == only([*begun, *rest]).messages
        times = [one.time for one in only([*begun, *left, *more, *rest]).requests]
        told = [one.time for one in (*back.requests, *main.requests)]
        assert sorted(told, key=str) == sorted(times, key=str)
        cuts = [one.cut for one in only([*begun, *rest]).requests]
        assert [one.cut for one in main.requests] == cuts

    @pytest.mark.parametrize("turns", [0, -1, "two", None, 1.5])
    def test_of_none_nothing_is_taken(self, turns: Any):
        told = [*self.BEGUN, *self.LEFT]
        assert only([*told, event(8, "thread_rolled_back", num_turns=turns)]) == only(told)

    def test_what_was_not_answered_was_not_sent(self):
        rolled = [*asked(2, "lfet"), event(3, "thread_rolled_back", num_turns=1)]
        rest = [*asked(4, "left"), item(5, said("assistant", "A wall."))]
        assert only([*self.BEGUN, *rolled, *rest]) == only([*self.BEGUN, *rest])


def test_ids_of_answers_are_those_of_their_copies_and_no_others():
    told = [one.answer for one in only(TURN).requests]
    late = [{**one, "timestamp": "2026-01-02T00:00:00.000Z"} for one in TURN]
    assert [one.answer for one in only([meta(), *late]).requests] == told
    assert len({*told}) == len(told)
