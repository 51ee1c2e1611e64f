"""Logs of request bodies, in each format."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.pricing import Usage
from respool.sessions import claude_code, codex, request_log
from respool.sessions.session import RecordedRequest, RecordedSession, Skipped
from tests.strategies import arbitrary_json

Body = dict[str, Any]

USE = {"type": "tool_use", "id": "t1", "name": "ls", "input": {}}
FUNCTION = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
HISTORIES: dict[str, tuple[str, list[Any]]] = {
    "anthropic": (
        "messages",
        [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [USE]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1"}]},
        ],
    ),
    "openai-chat": (
        "messages",
        [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": None, "tool_calls": [FUNCTION]},
            {"role": "tool", "tool_call_id": "c1", "content": "a b"},
        ],
    ),
    "openai-responses": (
        "input",
        [
            {"role": "user", "content": "go"},
            {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "a b"},
        ],
    ),
    "gemini": (
        "contents",
        [
            {"role": "user", "parts": [{"text": "go"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "ls", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "ls", "response": {}}}]},
        ],
    ),
}
FORMATS = pytest.mark.parametrize("format", HISTORIES)


def bodies(format: str, model: str = "m-1") -> list[Body]:
    """Two requests, the second of which has the answer to the first and what came of it."""
    field, history = HISTORIES[format]
    return [{"model": model, "tools": [], field: copy.deepcopy(history[:n])} for n in (1, 3)]


def chat(*said: str, **fields: Any) -> Body:
    """A request of plain text, the roles in turn."""
    roles = ("user", "assistant")
    told = [{"role": roles[at % 2], "content": one} for at, one in enumerate(said)]
    return {"model": "gpt-5", "stream_options": {}, "messages": told, **fields}


def found(*records: Any) -> list[RecordedSession | Skipped]:
    return list(request_log.read(records, "/var/log/requests.jsonl"))


def sessions(*records: Any) -> list[RecordedSession]:
    return [one for one in found(*records) if isinstance(one, RecordedSession)]


@FORMATS
def test_requests_that_extend_one_another_are_one_session(format: str):
    assert found(*bodies(format)) == [
        RecordedSession(
            id="requests.jsonl:1",
            agent="request-log",
            format=format,  # pyright: ignore[reportArgumentType]
            messages=HISTORIES[format][1],
            requests=(RecordedRequest(1, model="m-1"), RecordedRequest(3, model="m-1")),
            source="/var/log/requests.jsonl",
        )
    ]


@FORMATS
def test_a_request_need_not_name_its_model(format: str):
    (session,) = sessions({HISTORIES[format][0]: HISTORIES[format][1]})
    assert session.format == format
    assert session.requests == (RecordedRequest(3),)


def test_a_bare_history_is_read_too():
    (session,) = sessions(HISTORIES["gemini"][1])
    assert session.format == "gemini"


@pytest.mark.parametrize("later", ["go", [{"type": "text", "text": "go"}]])
def test_a_moving_cache_mark_is_no_change(later: Any):
    """Without its mark a text may be a bare string again, as Claude Code has it."""
    first, second = bodies("anthropic")
    breakpoint_field = {"cache_control": {"type": "ephemeral"}}
    first["messages"][0] = {
        "role": "user",
        "content": [{"type": "text", "text": "go"} | breakpoint_field],
    }
    second["messages"][0] = {"role": "user", "content": later}
    second["messages"][-1]["content"][0] |= breakpoint_field
    (session,) = sessions(first, second)
    assert session.messages == second["messages"]
    assert [one.cut for one in session.requests] == [1, 3]


APART = {
    "another history": ([chat("a"), chat("b")], [[1], [1]]),
    "a shorter one": ([chat("a", "b", "c"), chat("a")], [[3], [1]]),
    "one that changed": ([chat("a"), chat("a", "b", "c"), chat("a", "x", "c")], [[1, 3], [3]]),
    "two that take turns": (
        [chat("a"), chat("x"), chat("a", "b", "c"), chat("x", "y", "z")],
        [[1, 3], [1, 3]],
    ),
    "one that fits two goes on with the longer": (
        [chat("a", "b", "c"), chat("a"), chat("a", "b", "c", "d", "e")],
        [[1], [3, 5]],
    ),
    "a model that changed": ([chat("a"), chat("a", "b", "c", model="gpt-6")], [[1, 3]]),
    "nothing": ([], []),
}


@pytest.mark.parametrize(("records", "cuts"), APART.values(), ids=APART)
def test_sessions_are_told_apart(records: list[Body], cuts: list[list[int]]):
    assert [[sent.cut for sent in one.requests] for one in sessions(*records)] == cuts


def test_each_request_has_its_own_model():
    (session,) = sessions(chat("a"), chat("a", "b", "c", model="gpt-6"))
    assert [one.model for one in session.requests] == ["gpt-5", "gpt-6"]


def test_a_retry_is_counted_and_left_out():
    (session,) = sessions(chat("a"), chat("a"), chat("a"), chat("a", "b", "c"))
    assert [one.cut for one in session.requests] == [1, 3]
    assert session.notes == ("2 requests that repeat the one before left out",)


def test_only_so_many_are_held_at_a_time():
    others = [chat(f"other {at}") for at in range(request_log.MAX_OPEN_RUNS)]

    def records():
        yield chat("a")
        yield from others
        raise AssertionError("read on")

    first = next(request_log.read(records(), "x.jsonl"))
    assert isinstance(first, RecordedSession)
    assert first.messages == chat("a")["messages"]


def test_the_format_may_be_told_by_a_later_request():
    first, second = bodies("openai-chat")
    del first["tools"], second["tools"]
    (session,) = sessions(first, second)
    assert (session.format, len(session.requests)) == ("openai-chat", 2)


SKIPPED = {
    "plain text": ({"model": "gpt-5", "input": "hello"}, "plain text"),
    "no request": ({"id": 3}, "no chat request"),
    "no object": (7, "not int"),
    "a history that is none": ({"messages": {}}, "not a list"),
    "an empty history": ({"messages": []}, "empty"),
    "an unknown format": ({"messages": [{"role": "user", "content": "q"}]}, "cannot be detected"),
    "a history that the provider holds": (
        {"input": HISTORIES["openai-responses"][1], "previous_response_id": "r"},
        "provider holds",
    ),
    "a Converse body": (chat("q", inferenceConfig={}), "Bedrock"),
}


@pytest.mark.parametrize(("record", "why"), SKIPPED.values(), ids=SKIPPED)
def test_what_is_no_request_is_named_and_the_rest_goes_on(record: Any, why: str):
    told = found(chat("a"), record, chat("a", "b", "c"))
    skipped = [one for one in told if isinstance(one, Skipped)]
    (session,) = (one for one in told if isinstance(one, RecordedSession))
    assert [one.cut for one in session.requests] == [1, 3]
    assert len(skipped) == 1
    assert skipped[0].source == "/var/log/requests.jsonl"
    assert skipped[0].reason.startswith("request 2: ")
    assert why in skipped[0].reason


def lines(*records: Any) -> bytes:
    return b"\n".join(msgspec.json.encode(one) for one in records)


LONG = "x" * 70_000
RECOGNISED = {
    **{format: (lines(*bodies(format)), True) for format in HISTORIES},
    "no model": (lines({"messages": [{"role": "user", "content": "go"}]}), True),
    "a field of its own": (lines(chat("a", trace="t-1")), True),
    "a history longer than the head": (lines(chat(LONG))[:65_536], True),
    "fields longer than the head": (lines({"model": "m", "system": LONG})[:65_536], True),
    "a cut within an escape": (b'{"model": "m", "system": "' + b"x" * 65_500 + b"\\", True),
    "a history of text": (lines({"model": "m", "input": "hello"}), False),
    "a recorded session": (lines({**chat("a"), "agent": "codex", "format": "codex"}), False),
    "a document with messages": (lines({"messages": [], "info": {}}), False),
    "a request quoted in text": (lines({"text": lines(chat("a")).decode()}), False),
    "the same, cut short": (lines({"text": lines(chat(LONG)).decode()})[:65_536], False),
    "a request within": (lines({"payload": chat("a")}), False),
    "no objects": (lines([chat("a")]), False),
    "bytes": (b"\x89PNG\r\n\x1a\n\x00\xff", False),
    "nothing": (b"", False),
}


@pytest.mark.parametrize(("head", "ours"), RECOGNISED.values(), ids=RECOGNISED)
def test_recognises(head: bytes, ours: bool):
    assert request_log.recognizes(head, "requests.jsonl") is ours
    assert request_log.recognizes(head, "requests.jsonl.gz") is ours
    assert not request_log.recognizes(head, "requests.json")
    assert not claude_code.recognizes(head, "requests.jsonl")
    assert not codex.recognizes(head, "requests.jsonl")


ODD = arbitrary_json() | st.builds(
    lambda field, history: {"stream_options": {}, field: history},
    st.sampled_from(["messages", "input", "contents"]),
    st.lists(arbitrary_json(), max_size=3),
)


@given(st.lists(ODD, max_size=12))
def test_odd_requests_never_raise(records: list[Any]):
    for one in request_log.read(records, "x.jsonl"):
        if isinstance(one, RecordedSession):
            cuts = [sent.cut for sent in one.requests]
            assert cuts == sorted(set(cuts))
            assert cuts[-1] == len(one.messages)


ANTHROPIC_USAGE = {"input_tokens": 3, "cache_read_input_tokens": 90, "output_tokens": 7}
CHAT_USAGE = {"prompt_tokens": 93, "completion_tokens": 7}
CHAT_USAGE |= {"prompt_tokens_details": {"cached_tokens": 90}}
RESPONSES_USAGE = {"input_tokens": 93, "output_tokens": 7}
RESPONSES_USAGE |= {"input_tokens_details": {"cached_tokens": 90}}
GEMINI_USAGE = {"promptTokenCount": 93, "cachedContentTokenCount": 90}
GEMINI_USAGE |= {"candidatesTokenCount": 5, "thoughtsTokenCount": 2}

WRAPPED: dict[str, Any] = {
    "body": lambda body: {"url": "/v1", "body": body, "usage": CHAT_USAGE},
    "request": lambda body: {"request": body, "response": {"usage": ANTHROPIC_USAGE}},
    "request.body": lambda body: {
        "request": {"method": "POST", "headers": {}, "body": body},
        "response": {"status": 200, "body": {"usage": RESPONSES_USAGE}},
    },
    "gemini's answer": lambda body: {"request": body, "response": {"usageMetadata": GEMINI_USAGE}},
    "text": lambda body: {"id": 7, "body": msgspec.json.encode(body).decode(), "usage": CHAT_USAGE},
    "request.body as text": lambda body: {
        "request": {"body": msgspec.json.encode(body).decode()},
        "response": {"usage": CHAT_USAGE},
    },
}


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
@pytest.mark.parametrize("format", list(HISTORIES))
def test_a_body_may_be_wrapped(format: str, wrap: Any):
    field, history = HISTORIES[format]
    bodies = [{"model": "m", field: history[:length]} for length in (1, 3)]
    told = [{**wrap(body), "timestamp": 1_700_000_000 + at} for at, body in enumerate(bodies)]
    head = lines(*told)
    assert request_log.recognizes(head, "log.jsonl")
    assert not request_log.recognizes(head, "log.json")
    (session,) = request_log.read(told, "log.jsonl")
    assert isinstance(session, RecordedSession)
    assert (session.format, session.messages) == (format, history)
    assert session.requests == (
        RecordedRequest(
            1,
            1_700_000_000.0,
            Usage(input=3, cache_read=90, cache_write=0, cache_write_1h=0, output=7),
            "m",
        ),
        RecordedRequest(
            3,
            1_700_000_001.0,
            Usage(input=3, cache_read=90, cache_write=0, cache_write_1h=0, output=7),
            "m",
        ),
    )


@pytest.mark.parametrize(
    "record",
    [
        {"body": {}},
        {"body": {"messages": "x"}},
        {"body": "hello"},
        {"request": {"body": 3}},
        {"request": {"body": "{}"}},
        {"request": {"messages": []}, "sessionId": "s"},
    ],
)
def test_what_is_wrapped_otherwise_is_no_request(record: Any):
    assert not request_log.recognizes(lines(record), "log.jsonl")
    (skipped,) = request_log.read([record], "log.jsonl")
    assert isinstance(skipped, Skipped)


@pytest.mark.parametrize("cut", [1, 2_000, 65_536])
def test_a_wrapped_body_longer_than_the_head(cut: int):
    wrapped = lines({"url": "/v1/messages", "body": chat(LONG)})
    assert request_log.recognizes(wrapped[:cut], "log.jsonl") is (cut > 1)


@pytest.mark.parametrize(
    ("format", "beside", "head"),
    [
        (
            "anthropic",
            {"system": "Be brief.", "tools": [{"name": "ls"}]},
            '[{"name":"ls"}]\nBe brief.',
        ),
        ("anthropic", {"system": [{"type": "text", "text": "x"}]}, '[{"type":"text","text":"x"}]'),
        ("openai-chat", {"tools": [{"type": "function"}]}, '[{"type":"function"}]'),
        ("openai-responses", {"instructions": "Be brief.", "tools": []}, "Be brief."),
        ("gemini", {"systemInstruction": {"parts": []}}, '{"parts":[]}'),
        ("gemini", {"system": None}, ""),
    ],
)
def test_the_head_is_that_of_the_first_request(format: str, beside: Body, head: str) -> None:
    first, second = bodies(format)
    (session,) = request_log.read([{**first, **beside}, {**second, "system": "Other."}], "log")
    assert isinstance(session, RecordedSession)
    assert session.head == head
