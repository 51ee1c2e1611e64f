"""Messages of gateways: each comes back in its place, smaller or as it came."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import respool
from respool import Policy
from respool.markers import reference
from respool.policy import default_pass_names
from respool.proxy.app import build_app
from respool.proxy.compress import COMPRESS, GUARDRAIL, in_place
from respool.proxy.log import LogEntry
from respool.proxy.server import serving
from respool.proxy.server_options import CompactionOptions, ServerOptions, TransferLimits
from respool.store import SQLiteStore
from tests.proxy.compaction import EAGER_POLICY, LONG, STEPS, request_body
from tests.proxy.sockets import Reply, all_to, ask, get, post, upstream

KEY = "authorization: Bearer the-key-of-a-gateway"
TOKEN = "a-token-of-enough-length"
MODEL = "gpt-5"
Act = Callable[[int, Any], Awaitable[None]]


def drive(path: Path, act: Act, policy: Policy = EAGER_POLICY, **server: Any) -> list[LogEntry]:
    """Act on a real proxy; returns its log."""
    options = CompactionOptions(policy=policy, deadline=60.0)

    async def run() -> list[LogEntry]:
        log: list[LogEntry] = []
        async with upstream() as behind:
            config = ServerOptions(port=0, upstreams=all_to(behind.port), **server)
            app = build_app(config, options, log.append, store=SQLiteStore(path / "respool.db"))
            async with serving(app) as one:
                await act(one.port, behind)
        return log

    return asyncio.run(run())


async def compress(port: int, messages: object, **more: Any) -> Any:
    """The decoded answer to messages."""
    body = {"model": MODEL, **more, "messages": messages}
    reply = await ask(port, post(COMPRESS, json.dumps(body).encode(), KEY))
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


async def guard(port: int, messages: object, **more: Any) -> Any:
    """The decoded verdict on messages."""
    body = {"input_type": "request", "structured_messages": messages, "request_data": {}, **more}
    reply = await ask(port, post(GUARDRAIL, json.dumps(body).encode(), KEY))
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


def history(format: str, steps: int) -> list[Any]:
    field = "input" if format == "openai-responses" else "messages"
    return json.loads(request_body(format, steps))[field]


def lone_results(steps: int, *before: Any) -> list[Any]:
    """The messages that LiteLLM's Headroom plug-in sends: neither calls nor the last exchange."""
    results = [one for one in history("openai-chat", steps) if one["role"] == "tool"]
    return [*before, *results]


def size(messages: object) -> int:
    return len(json.dumps(messages))


# --- the contract of Headroom ------------------------------------------------------------------

FIELDS = {
    "messages": list,
    "tokens_before": int,
    "tokens_after": int,
    "tokens_saved": int,
    "compression_ratio": float,
    "transforms_applied": list,
    "ccr_hashes": list,
}


@pytest.mark.parametrize("format", ["openai-chat", "anthropic", "openai-responses"])
def test_messages_come_back_smaller_valid_and_in_their_places(tmp_path: Path, format: Any):
    sent = history(format, 6)

    async def act(port: int, behind: Any) -> None:
        answer = await compress(port, sent)
        got = answer["messages"]
        assert {name: type(answer[name]) for name in FIELDS} == FIELDS
        assert len(got) == len(sent)
        keep = ("role", "type", "tool_call_id", "call_id", "tool_calls")
        assert [[one.get(key) for key in keep] for one in got] == [
            [one.get(key) for key in keep] for one in sent
        ]
        assert size(got) < size(sent) / 2
        before, after = answer["tokens_before"], answer["tokens_after"]
        assert 0 < after < before
        assert answer["tokens_saved"] == before - after
        assert answer["compression_ratio"] == pytest.approx(after / before, abs=1e-3)
        assert answer["transforms_applied"]
        assert not answer["compression_skipped"]
        field = "input" if format == "openai-responses" else "messages"
        body = {"model": MODEL, "tools": [{"name": "shell", "input_schema": {}}], field: got}
        assert respool.check(body, format=format) == []
        assert behind.received == []  # nothing goes upstream

    drive(tmp_path, act)


def test_the_original_is_kept_before_the_answer_goes_out(tmp_path: Path):
    async def act(port: int, behind: Any) -> None:
        answer = await compress(port, history("openai-chat", 3))
        ref = reference(STEPS[0][0].result)
        assert ref in json.dumps(answer["messages"])
        kept = await ask(port, get(f"/respool/originals/{ref}", KEY))
        assert (kept.status, kept.body) == (200, STEPS[0][0].result.encode())

    drive(tmp_path, act)


@pytest.mark.parametrize("alone", [False, True], ids=["whole", "results alone"])
def test_a_growing_conversation_is_stable_and_gets_smaller(tmp_path: Path, alone: bool):
    """A message that was changed once comes back in the same way ever after."""

    async def act(port: int, behind: Any) -> None:
        changed: dict[int, Any] = {}
        for steps in range(1, len(STEPS) + 1):
            sent = lone_results(steps) if alone else history("openai-chat", steps)
            got = (await compress(port, sent))["messages"]
            assert len(got) == len(sent)
            assert got == (await compress(port, sent))["messages"]
            assert {at: got[at] for at in changed} == changed
            changed = {at: got[at] for at in range(len(got)) if got[at] != sent[at]}
            assert size(got) < size(sent) / 3 or steps < 6

    drive(tmp_path, act)


@pytest.mark.parametrize("policy", [EAGER_POLICY, in_place(Policy())], ids=["eager", "default"])
def test_whole_conversations_are_answered_as_the_proxy_sends_them(tmp_path: Path, policy: Policy):
    async def act(port: int, behind: Any) -> None:
        for steps in range(1, len(STEPS) + 1):
            body = json.loads(request_body("openai-chat", steps)) | {"model": MODEL}
            raw = post("/v1/chat/completions", json.dumps(body).encode(), "authorization: Bearer b")
            await ask(port, raw)
            answer = await compress(port, body.pop("messages"), **body)
            assert answer["messages"] == json.loads(behind.received[-1].body)["messages"]

    drive(tmp_path, act, policy)


def test_results_alone_do_not_depend_on_the_messages_around_them(tmp_path: Path):
    """The plug-in keeps back the last user message, and sends it once there is another."""
    user = {"role": "user", "content": LONG}

    async def act(port: int, behind: Any) -> None:
        alone = (await compress(port, lone_results(5)))["messages"]
        later = (await compress(port, lone_results(5, user)))["messages"]
        assert later == [user, *alone]
        assert size(alone) < size(lone_results(5)) / 2

    drive(tmp_path, act)


def test_each_message_keeps_fields_that_respool_does_not_know(tmp_path: Path):
    sent = [{**one, "x_own": {"n": at}} for at, one in enumerate(history("openai-chat", 4))]

    async def act(port: int, behind: Any) -> None:
        got = (await compress(port, sent))["messages"]
        assert [one["x_own"] for one in got] == [one["x_own"] for one in sent]
        assert size(got) < size(sent)

    drive(tmp_path, act)


def test_no_pass_runs_that_takes_messages_out():
    removing = {"superseded_writes", "superseded_edits", "fold_exchanges", "old_reasoning"}
    assert removing < set(default_pass_names())
    assert in_place(Policy()).passes == tuple(
        one for one in default_pass_names() if one not in removing
    )
    assert in_place(EAGER_POLICY) == EAGER_POLICY


# --- what is passed back -----------------------------------------------------------------------

CALL = {"id": "a", "type": "function", "function": {"name": "sh", "arguments": "{}"}}
UNCHANGED = {
    "empty": [],
    "short": [{"role": "user", "content": "hello"}],
    "no objects": ["hello", 7, None],
    "other fields": [{"rolle": "user"}],
    "odd values": [{"role": ["user"], "content": 7, "tool_calls": 3}],
    "a call without a result": [
        {"role": "user", "content": LONG},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "user", "content": LONG},
    ],
    "results without ids": [{"role": "tool", "content": LONG}] * 3,
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_unreadable_and_small_messages_are_passed_back(tmp_path: Path, name: str):
    async def act(port: int, behind: Any) -> None:
        answer = await compress(port, UNCHANGED[name])
        assert answer["messages"] == UNCHANGED[name]
        assert answer["tokens_saved"] == 0
        assert answer["compression_ratio"] == 1.0
        assert (await guard(port, UNCHANGED[name])) == {"action": "NONE"}

    drive(tmp_path, act)


@pytest.mark.parametrize(
    "more", [{"previous_response_id": "resp_1"}, {"data_sources": []}, {"inferenceConfig": {}}]
)
def test_server_held_and_foreign_requests_are_passed_back(tmp_path: Path, more: Any):
    sent = history("openai-chat", 5)

    async def act(port: int, behind: Any) -> None:
        answer = await compress(port, sent, **more)
        assert answer["messages"] == sent
        assert (answer["compression_skipped"], answer["skip_reason"]) == (True, "passed-through")

    drive(tmp_path, act)


def test_a_fault_passes_the_messages_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sent = history("openai-chat", 5)

    def fail(*_given: object) -> None:
        raise RuntimeError("a planted fault")

    monkeypatch.setattr("respool.proxy.compress._answer", fail)

    async def act(port: int, behind: Any) -> None:
        answer = await compress(port, sent)
        assert (answer["messages"], answer["skip_reason"]) == (sent, "failed")
        assert (await guard(port, sent)) == {"action": "NONE"}

    drive(tmp_path, act)


def test_a_bypassed_request_is_passed_back(tmp_path: Path):
    sent = history("openai-chat", 5)

    async def act(port: int, behind: Any) -> None:
        body = json.dumps({"messages": sent, "model": MODEL}).encode()
        reply = await ask(port, post(COMPRESS, body, KEY, "x-respool-bypass: 1"))
        assert json.loads(reply.body)["messages"] == sent

    drive(tmp_path, act)


# --- the contract of LiteLLM -------------------------------------------------------------------


def test_a_guardrail_gets_all_messages_if_one_is_changed(tmp_path: Path):
    sent = history("openai-chat", 5)

    async def act(port: int, behind: Any) -> None:
        verdict = await guard(port, sent, model=MODEL, tools=None, texts=[])
        assert verdict.keys() == {"action", "structured_messages"}
        assert verdict["action"] == "GUARDRAIL_INTERVENED"
        got = verdict["structured_messages"]
        assert got == (await compress(port, sent))["messages"]
        assert size(got) < size(sent) / 2

    drive(tmp_path, act)


@pytest.mark.parametrize("more", [{"input_type": "response"}, {"structured_messages": None}])
def test_a_guardrail_leaves_the_rest_alone(tmp_path: Path, more: Any):
    async def act(port: int, behind: Any) -> None:
        given = {"input_type": "request", "structured_messages": history("openai-chat", 5), **more}
        reply = await ask(port, post(GUARDRAIL, json.dumps(given).encode(), KEY))
        assert (reply.status, json.loads(reply.body)) == (200, {"action": "NONE"})

    drive(tmp_path, act)


# --- errors and access -------------------------------------------------------------------------

WRONG = [b"", b"{", b"[]", b"7", b"\xff", b"{}", b'{"messages": 7}', b'{"messages": {}}']


def said(reply: Reply) -> str:
    return json.loads(reply.body)["error"]["message"]


def test_a_wrong_body_is_answered_with_what_is_allowed(tmp_path: Path):
    async def act(port: int, behind: Any) -> None:
        for body in WRONG:
            reply = await ask(port, post(COMPRESS, body, KEY))
            assert reply.status == 400, body
            assert "`messages`, a list of messages, and `model`" in said(reply)
        reply = await ask(port, post(GUARDRAIL, b'{"structured_messages": 7}', KEY))
        assert reply.status == 400
        assert "`structured_messages`, a list of messages" in said(reply)
        for path in (COMPRESS, GUARDRAIL):
            reply = await ask(port, get(path, KEY))
            assert (reply.status, "POST" in said(reply)) == (405, True)
        assert behind.received == []

    drive(tmp_path, act)


def test_a_body_over_the_limit_is_refused(tmp_path: Path):
    async def act(port: int, behind: Any) -> None:
        reply = await ask(port, post(COMPRESS, request_body("openai-chat", 5), KEY))
        assert (reply.status, "at most 1,000 bytes" in said(reply)) == (413, True)

    drive(tmp_path, act, limits=TransferLimits(body_bytes=1_000, drain_seconds=1.0))


@pytest.mark.parametrize("path", [COMPRESS, GUARDRAIL])
def test_the_token_is_required_if_there_is_one(tmp_path: Path, path: str):
    field = "messages" if path == COMPRESS else "structured_messages"
    body = json.dumps({field: history("openai-chat", 5), "model": MODEL}).encode()

    async def act(port: int, behind: Any) -> None:
        wrong = [post(path, body, KEY), post(f"/respool-token/{TOKEN}x{path}", body, KEY)]
        assert [(await ask(port, raw)).status for raw in wrong] == [401, 401]
        right = [
            post(f"/respool-token/{TOKEN}{path}", body, KEY),
            post(path, body, KEY, f"x-respool-token: {TOKEN}"),
        ]
        assert [(await ask(port, raw)).status for raw in right] == [200, 200]
        assert behind.received == []

    drive(tmp_path, act, token=TOKEN)


@pytest.mark.parametrize("path", [COMPRESS, GUARDRAIL])
def test_pages_of_other_sites_are_refused(tmp_path: Path, path: str):
    async def act(port: int, behind: Any) -> None:
        body = b'{"messages": [], "structured_messages": []}'
        reply = await ask(port, post(path, body, "origin: https://example.com"))
        assert reply.status == 403
        assert behind.received == []

    drive(tmp_path, act)
