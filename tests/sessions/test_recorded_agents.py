"""Transcripts of real agents, compared with the requests their upstream received.

`tests/transcripts/drive.py` made the fixtures. A request as it is read equals the history of the
body that was sent, but for what `comparable` leaves aside:

- the system prompt, reminders, cache marks and Gemini's signatures, which agents do not record, or
  not in the history;
- fields that a client puts beside a message for itself;
- forms that mean the same: a text or one block of it, two messages of one role in a row or one,
  arguments with or without spaces, no content or an empty one beside calls;
- the order of results to parallel calls, and how a call's id is written: they have tests of their
  own.

`WRONG` names what is not read as it was sent yet.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import respool
from respool.pricing import Usage
from respool.sessions.readers import READERS, find_transcripts, read_file
from respool.sessions.session import RecordedSession
from respool.wire.message_identity import strip_breakpoints

HERE = Path(__file__).parents[1] / "transcripts"
HISTORIES = ("messages", "input", "contents")
CLOCK = 0.005  # seconds by which two rounded times may be off

Message = dict[str, Any]

# The folder of each fixture, and the conversations that the upstream saw in it.
CONVERSATIONS = {
    "claude-code": {"main", "main/1", "sub"},
    "claude-code-background": {"main", "sub"},
    "codex": {"main", "sub"},
    "codex-compacted": {"main", "main/1"},
    "copilot-cli": {"main", "sub"},
    "gemini-cli": {"main"},
    "gemini-cli-resumed": {"main"},
    "mini-swe-agent": {"main"},
    "opencode": {"main", "sub"},
    "opencode-compacted": {"main", "main/1"},
    "pi": {"main"},
    "pi-compacted": {"main", "main/1"},
}


def sent(fixture: str) -> dict[str, list[Message]]:
    """Requests that the upstream got, by conversation."""
    lines = (HERE / fixture / "requests.jsonl").read_text().splitlines()
    found: dict[str, list[Message]] = {}
    for one in map(json.loads, lines):
        found.setdefault(one["conversation"], []).append(one)
    found.pop("beside", None)
    return found


def read(fixture: str) -> dict[str, RecordedSession]:
    """Transcripts that the agent left, by conversation."""
    left = sorted(HERE.joinpath(fixture).rglob("*.json*"))
    paths = [path for path in left if path.name.count(".") == 1 and path.stem != "requests"]
    if fixture == "mini-swe-agent":
        paths = left[:1]
    if fixture == "gemini-cli-resumed":
        paths.remove(HERE / fixture / "session-1.jsonl")  # begun by the second run and left at that
    return by_conversation(one for path in paths for one in read_file(path, READERS))


def by_conversation(found: Iterator[Any]) -> dict[str, RecordedSession]:
    sessions: dict[str, RecordedSession] = {}
    for one in found:
        assert isinstance(one, RecordedSession), one
        name = "sub" if one.parent else "main"
        name += f"/{one.segment}" if one.segment else ""
        assert name not in sessions
        sessions[name] = one
    return sessions


# The test, the fixture and the conversation, and why the reader is wrong there: nowhere now.
WRONG: dict[tuple[str, str, str], str] = {}


def cases(test: str) -> list[Any]:
    """Each conversation of each fixture, with what is known of it."""
    return [
        pytest.param(fixture, name, marks=wrong(test, fixture, name), id=f"{fixture}-{name}")
        for fixture, names in CONVERSATIONS.items()
        for name in sorted(names)
    ]


def fixtures(test: str) -> list[Any]:
    """Each fixture, with what is known of it."""
    return [pytest.param(one, marks=wrong(test, one, ""), id=one) for one in CONVERSATIONS]


def wrong(test: str, fixture: str, conversation: str) -> list[pytest.MarkDecorator]:
    why = WRONG.get((test, fixture, conversation))
    return [pytest.mark.xfail(strict=True, reason=why)] if why else []


def pairs(fixture: str, conversation: str) -> list[tuple[list[Message], list[Message]]]:
    """Each request as it was read, and as it was sent."""
    session = read(fixture)[conversation]
    bodies = [history(one["body"]) for one in sent(fixture)[conversation]]
    if fixture == "gemini-cli-resumed":
        bodies = [told_once(body) for body in bodies]
    assert len(session.requests) == len(bodies)
    return [
        (list(session.messages[: request.cut]), body)
        for request, body in zip(session.requests, bodies, strict=True)
    ]


def told_once(messages: list[Message]) -> list[Message]:
    """Gemini CLI sends every result twice when it goes on with a chat that it kept."""
    found: list[Message] = []
    for one in messages:
        parts = [part for at, part in enumerate(one["parts"]) if part not in one["parts"][:at]]
        found.append({**one, "parts": parts})
    return found


def history(body: Message) -> list[Message]:
    (name,) = (name for name in HISTORIES if name in body)
    return body[name]


# What is compared


def comparable(fixture: str, messages: list[Message]) -> list[Message]:
    """A history without what no record holds, in one of the forms that mean the same."""
    return FORMS[read(fixture)["main"].format](messages)


def anthropic(messages: list[Message]) -> list[Message]:
    told = [one for one in messages if one["role"] != "system"]
    turns = [
        {"role": role, "content": in_order(part for one in same for part in anthropic_blocks(one))}
        for role, same in groupby(told, key=lambda one: one["role"])
    ]
    return [turn for turn in turns if turn["content"]]


def anthropic_blocks(message: Message) -> Iterator[Message]:
    for block in blocks(message["content"]):
        plain = {name: value for name, value in block.items() if name != "cache_control"}
        if plain["type"] == "tool_result":
            plain["content"] = blocks(plain["content"])
        if plain["type"] == "text" and message["role"] == "user":
            if plain["text"].startswith("<system-reminder>"):
                continue
            plain["text"] = plain["text"].removesuffix("\n")  # put between texts of one message
        yield plain


def in_order(content: Iterator[Message]) -> list[Message]:
    """Results by the ids of their calls, before all else, where they have to stand."""
    return sorted(content, key=lambda block: block.get("tool_use_id", "~"))


def blocks(content: Any) -> list[Message]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def chat(messages: list[Message]) -> list[Message]:
    return [chat_message(one) for one in messages if one["role"] != "system"]


def chat_message(message: Message) -> Message:
    fields = ("role", "content", "tool_calls", "tool_call_id")
    plain = {name: message[name] for name in fields if message.get(name)}
    if "content" in plain:
        plain["content"] = blocks(plain["content"])
    if "tool_calls" in plain:
        plain["tool_calls"] = [chat_call(call) for call in plain["tool_calls"]]
    return plain


def chat_call(call: Message) -> Message:
    function = call["function"]
    return {**call, "function": {**function, "arguments": json.loads(function["arguments"])}}


def responses(messages: list[Message]) -> list[Message]:
    """Without the instructions, which Codex sends as a developer's first message."""
    first = messages[0]["content"][0]["text"] if messages else ""
    told = messages[1:] if first.startswith("You are a coding agent") else messages
    return [{name: one[name] for name in one if name != CODEX_OWN} for one in told]


CODEX_OWN = "internal_chat_message_metadata_passthrough"  # recorded, and not sent


def gemini(messages: list[Message]) -> list[Message]:
    return [
        {"role": role, "parts": [gemini_part(part) for one in same for part in one["parts"]]}
        for role, same in groupby(messages, key=lambda one: one["role"])
    ]


def gemini_part(part: Message) -> Message:
    """Without a signature; Gemini CLI writes a tool's name before the id of its call."""
    plain = {name: value for name, value in part.items() if name != "thoughtSignature"}
    for kind in {"functionCall", "functionResponse"} & plain.keys():
        call = plain[kind]
        plain[kind] = {**call, "id": call["id"].removeprefix(f"{call['name']}__")}
    return plain


def result_ids(messages: list[Message]) -> Iterator[str]:
    """The ids of the calls that results name, in the order of the results."""
    for one in messages:
        content = one.get("content") or one.get("parts")
        parts = content if isinstance(content, list) else []
        for part in (one, *parts):
            found = part.get("functionResponse", part)
            if "functionResponse" in part or part.get("type") == "function_call_output":
                yield found.get("call_id") or found["id"]
            elif "tool_use_id" in part or "tool_call_id" in part:
                yield part.get("tool_use_id") or part["tool_call_id"]


FORMS: dict[str, Callable[[list[Message]], list[Message]]] = {
    "anthropic": anthropic,
    "openai-chat": chat,
    "openai-responses": responses,
    "gemini": gemini,
}


# The tests


@pytest.mark.parametrize("fixture", fixtures("found"))
def test_all_conversations_are_found_and_no_other(fixture):
    assert set(sent(fixture)) == CONVERSATIONS[fixture] == set(read(fixture))


@pytest.mark.parametrize("fixture", fixtures("check"))
def test_the_provider_would_take_every_request(fixture):
    for session in read(fixture).values():
        for request in session.requests:
            problems = respool.check(session.messages[: request.cut], format=session.format)
            assert [one for one in problems if one.severity == "error"] == []


@pytest.mark.parametrize(("fixture", "conversation"), cases("history"))
def test_the_history_is_what_was_sent(fixture, conversation):
    for told, body in pairs(fixture, conversation):
        assert comparable(fixture, told) == comparable(fixture, body)


@pytest.mark.parametrize(("fixture", "conversation"), cases("results"))
def test_results_stand_where_they_stood_with_the_ids_that_they_had(fixture, conversation):
    for told, body in pairs(fixture, conversation):
        assert list(result_ids(told)) == list(result_ids(body))


@pytest.mark.parametrize(("fixture", "conversation"), cases("usage"))
def test_the_usage_is_what_was_reported(fixture, conversation):
    told = [one.usage for one in read(fixture)[conversation].requests]
    reported = [Usage(**one["usage"]) for one in sent(fixture)[conversation]]
    if fixture.startswith("pi"):  # whose records do not tell lifetimes apart
        reported = [replace(one, cache_write_1h=0) for one in reported]
    assert told == reported


@pytest.mark.parametrize(("fixture", "conversation"), cases("model"))
def test_the_model_is_what_was_asked(fixture, conversation):
    told = [one.model for one in read(fixture)[conversation].requests]
    assert told == [one["model"] for one in sent(fixture)[conversation]]


@pytest.mark.parametrize(("fixture", "conversation"), cases("time"))
def test_the_time_is_after_the_answer_before_and_before_the_next_request(fixture, conversation):
    bodies = sent(fixture)[conversation]
    after = [bodies[0]["came"] - 5, *(one["answered"] for one in bodies)]
    before = [*(one["came"] for one in bodies[1:]), bodies[-1]["answered"] + 5]
    for at, request in enumerate(read(fixture)[conversation].requests):
        assert request.time is not None
        assert after[at] - CLOCK <= request.time <= before[at] + CLOCK


@pytest.mark.parametrize(("fixture", "conversation"), cases("fields"))
def test_no_message_has_a_field_that_was_not_sent(fixture, conversation):
    if FORMS[read(fixture)["main"].format] is responses:  # others are written in another form
        for told, body in pairs(fixture, conversation):
            assert [sorted(one) for one in told] == [sorted(one) for one in responses(body)]


# Where the agents of the fixtures really left what they left, below their home.
LEFT = {
    "claude-code": [
        ".claude/projects/-tmp-maze/00000000-0000-4000-8000-000000000001.jsonl",
        ".claude/projects/-tmp-maze/00000000-0000-4000-8000-000000000001/subagents/agent-a1.jsonl",
    ],
    "codex": [".codex/sessions/2026/11/15/rollout-2026-11-15T12-01-49-01a1df15.jsonl"],
    "copilot-cli": [".copilot/session-state/5f5be775-548a-4a4f-9399-d607f7c01113/events.jsonl"],
    "gemini-cli": [".gemini/tmp/maze/chats/session-2026-11-15T11-59-18f0863b.jsonl"],
    "opencode": [".local/share/opencode/opencode.db"],
    "pi": [".pi/agent/sessions/--tmp-maze--/2026-11-15T11-59-21-095Z_01a1df13.jsonl"],
}
# What they left beside it, which is no transcript.
BESIDE = [
    ".claude/projects/-tmp-maze/00000000-0000-4000-8000-000000000001/subagents/agent-a1.meta.json",
    ".copilot/config.json",
    ".copilot/session-state/5f5be775-548a-4a4f-9399-d607f7c01113/rewind-file-snapshots/t.json",
    ".gemini/settings.json",
    ".local/share/opencode/log/opencode.log",
    ".pi/agent/models.json",
]


@pytest.mark.parametrize("agent", LEFT)
def test_what_an_agent_leaves_is_found_and_nothing_else(tmp_path, agent):
    for name in [*(name for names in LEFT.values() for name in names), *BESIDE]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    found = [path.relative_to(tmp_path).as_posix() for path in find_transcripts(tmp_path, [agent])]
    assert sorted(found) == LEFT[agent]


@pytest.mark.parametrize(
    ("fixture", "conversation"),
    [case for case in cases("older") if case.values[0] == "claude-code"],
)
def test_where_claude_code_did_not_record_its_requests_they_are_put_together(
    tmp_path, fixture, conversation
):
    sessions = by_conversation(
        one for path in without_requests(fixture, tmp_path) for one in read_file(path, READERS)
    )
    session, bodies = sessions[conversation], sent(fixture)[conversation]
    for request, one in zip(session.requests, bodies, strict=True):
        told = list(session.messages[: request.cut])
        assert anthropic(told) == anthropic(history(one["body"]))


def without_requests(fixture: str, folder: Path) -> Iterator[Path]:
    """The transcripts as they were before Claude Code recorded its requests in them."""
    for path in sorted((HERE / fixture).rglob("*.jsonl")):
        if path.stem != "requests":
            lines = path.read_text().splitlines(keepends=True)
            kept = [one for one in lines if '"type": "api-request' not in one]
            (folder / path.name).write_text("".join(kept))
            yield folder / path.name


@pytest.mark.parametrize(
    ("fixture", "conversation"),
    [case for case in cases("reminders") if str(case.values[0]).startswith("claude-code")],
)
def test_where_claude_code_recorded_its_requests_they_are_read_with_all_reminders(
    fixture, conversation
):
    for told, body in pairs(fixture, conversation):
        assert list(map(spelt_out, told)) == list(map(spelt_out, body))


def spelt_out(message: Message) -> Message:
    """A message with its content as blocks, which have no marks."""
    return {**message, "content": blocks(strip_breakpoints(message)["content"])}


@pytest.mark.parametrize("fixture", ["opencode", "opencode-compacted"])
def test_the_database_of_opencode_holds_what_its_exports_do(tmp_path, fixture):
    path = tmp_path / "opencode.db"
    with sqlite3.connect(path) as base:
        base.executescript((HERE / fixture / "opencode.sql").read_text())
    base.close()
    found = by_conversation(read_file(path, READERS))
    exported = read(fixture)
    assert found.keys() == exported.keys()
    for name, session in found.items():
        assert session.messages == exported[name].messages
        assert session.requests == exported[name].requests
