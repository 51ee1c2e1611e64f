"""Requests to clouds and gateways through the real proxy: Bedrock, Vertex, Azure, OpenRouter."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import respool
from respool.pricing import Usage
from respool.proxy.decoders import EventStreamDecoder
from respool.proxy.usage import ResponseInfo, reader_for
from respool.store import RequestRecord
from tests.late import late
from tests.proxy.compaction import STEPS, Compacted, answer, drive
from tests.proxy.sockets import Reply, Script, ask, post, reply_with
from tests.support.client_requests import breakpoints
from tests.support.event_stream import TYPE, event, frame, framed
from tests.support.formats import FIELD, request, results

openai = late("openai")

SONNET = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
INVOKE = f"/model/{SONNET}/invoke"
STREAMED = f"/model/{SONNET}/invoke-with-response-stream"
PLACE = "/v1/projects/p/locations/us-east5/publishers"
BEARER = "Authorization: Bearer bedrock-api-key-YmVkcm9jay5h"
# The example in AWS's reference of Signature Version 4, for another service.
SIGNATURE = (
    "Authorization: AWS4-HMAC-SHA256 "
    "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
    "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
    "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
)
HASHED = "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
USAGE = {"input_tokens": 20, "cache_read_input_tokens": 4_000, "cache_creation_input_tokens": 80}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5-20250929",
    "content": [{"type": "text", "text": "done"}],
    "stop_reason": "end_turn",
    "usage": {**USAGE, "output_tokens": 9},
}
COUNTED = Usage(input=20, cache_read=4_000, cache_write=80, output=9)


def wrapped(version: str, steps: int = 9) -> bytes:
    """A body of Bedrock or Vertex, which does not name its model."""
    body = request("anthropic", "go on", *STEPS[:steps])
    del body["model"]
    return json.dumps({"anthropic_version": version, **body}).encode()


def plain(format: str, **more: Any) -> bytes:
    return json.dumps({**request(format, "go on", *STEPS), **more}).encode()


BEDROCK, VERTEX = wrapped("bedrock-2023-05-31"), wrapped("vertex-2023-10-16")
COMPACTED = [
    (INVOKE, "anthropic", BEDROCK, BEARER, SONNET),
    (STREAMED.replace(":", "%3A"), "anthropic", BEDROCK, BEARER, SONNET),
    (INVOKE, "anthropic", BEDROCK, "x-amzn-trace-id: 1", SONNET),  # a gateway brings the key
    (
        f"{PLACE}/anthropic/models/claude-opus-4-1@20250805:streamRawPredict",
        "anthropic",
        VERTEX,
        "Authorization: Bearer ya29.x",
        "claude-opus-4-1@20250805",
    ),
    (
        f"{PLACE}/google/models/gemini-3-pro:generateContent",
        "gemini",
        plain("gemini"),
        "Authorization: Bearer ya29.x",
        "gemini-3-pro",
    ),
    (
        "/openai/deployments/prod/chat/completions?api-version=2024-10-21",
        "openai-chat",
        plain("openai-chat", model="prod"),
        "api-key: k",
        "prod",
    ),
    (
        "/openai/responses?api-version=2025-04-01-preview",
        "openai-responses",
        plain("openai-responses", model="prod"),
        "api-key: k",
        "prod",
    ),
    (
        "/anthropic/v1/messages",
        "anthropic",
        plain("anthropic", model="claude-sonnet-4-5"),
        "x-api-key: k",
        "claude-sonnet-4-5",
    ),
]


@pytest.mark.parametrize(("path", "format", "body", "key", "model"), COMPACTED)
def test_bodies_of_clouds_are_compacted(
    tmp_path: Path, path: str, format: str, body: bytes, key: str, model: str
):
    async def act(proxy: Compacted) -> None:
        await sent(proxy, path, body, key)
        (received,) = proxy.standing.behind.received
        assert received.target == path
        assert proxy.shortened(format) == [True] * 8 + [False]
        here, there = json.loads(body), json.loads(received.body)
        assert {**here, FIELD[format]: 0} == {**there, FIELD[format]: 0}  # only the history
        (record,) = await proxy.records(1)
        assert (record.model, record.fallback, record.saved > 0) == (model, "", True)

    drive(tmp_path, act, script=reply_with(answer(200, MESSAGE)))


async def sent(proxy: Compacted, path: str, body: bytes, *headers: str) -> Reply:
    return await ask(proxy.standing.port, post(path, body, *headers))


@pytest.mark.parametrize(
    ("path", "more"),
    [(INVOKE, (SIGNATURE, HASHED)), (f"{INVOKE}?X-Amz-Signature=f0e8", ())],
)
def test_what_aws_signed_goes_up_as_it_came_and_that_is_said(
    tmp_path: Path, path: str, more: tuple[str, ...]
):
    async def act(proxy: Compacted) -> None:
        reply = await sent(proxy, path, BEDROCK, *more)
        (received,) = proxy.standing.behind.received
        assert (received.target, received.body) == (path, BEDROCK)
        assert received.named("host") == ["localhost"]  # which is signed, too
        for header in more:
            name, _, value = header.partition(": ")
            assert received.named(name.lower()) == [value]
        assert dict(reply.headers)[b"x-respool-sent"] == b"original"
        (record,) = await proxy.records(1)
        assert (record.fallback, record.saved, record.usage) == ("signed", 0, COUNTED)
        (entry,) = proxy.standing.records
        assert entry.compaction is not None
        assert entry.compaction.fallback == "signed"

    drive(tmp_path, act, script=reply_with(answer(200, MESSAGE)))


def test_a_signed_request_that_is_refused_is_not_sent_again(tmp_path: Path):
    async def act(proxy: Compacted) -> None:
        reply = await sent(proxy, INVOKE, BEDROCK, SIGNATURE)
        assert reply.status == 400
        assert proxy.bodies == [BEDROCK]

    drive(tmp_path, act, script=reply_with(answer(400, {"message": "messages.3: is wrong"})))


def test_the_hash_of_a_body_does_not_outlive_the_body(tmp_path: Path):
    async def act(proxy: Compacted) -> None:
        await sent(proxy, INVOKE, BEDROCK, BEARER, HASHED)
        (received,) = proxy.standing.behind.received
        assert received.body != BEDROCK
        assert received.named("x-amz-content-sha256") == []
        assert received.named("host") == [f"127.0.0.1:{proxy.standing.behind.port}"]

    drive(tmp_path, act)


UNREAD = [
    (INVOKE, plain("openai-chat", model="openai.gpt-oss-120b-1:0")),  # another maker's model
    (INVOKE, b'{"prompt": "<s>[INST] hello [/INST]", "max_gen_len": 9}'),
    (f"/model/{SONNET}/converse", b'{"messages": [], "inferenceConfig": {}}'),
    (f"{PLACE}/google/models/gemini-3-pro:embedContent", plain("gemini")),
    ("/openai/deployments/e/embeddings?api-version=1", b'{"input": ["x"]}'),
]


@pytest.mark.parametrize(("path", "body"), UNREAD)
def test_other_bodies_go_up_as_they_came(tmp_path: Path, path: str, body: bytes):
    async def act(proxy: Compacted) -> None:
        assert (await sent(proxy, path, body, BEARER)).status == 200
        (received,) = proxy.standing.behind.received
        assert (received.target, received.body) == (path, body)

    drive(tmp_path, act)


# --- the stream of AWS -------------------------------------------------------------------------


METRICS = {
    "inputTokenCount": 20,
    "outputTokenCount": 9,
    "cacheReadInputTokenCount": 4_000,
    "cacheWriteInputTokenCount": 80,
}
TEXT = {"type": "text_delta", "text": '{"usage": {"output_tokens": 5}}'}
STARTED = {**USAGE, "output_tokens": 1}
EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": {**MESSAGE, "content": [], "usage": STARTED}},
    *({"type": "content_block_delta", "index": 0, "delta": TEXT} for _ in range(9)),
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop", "amazon-bedrock-invocationMetrics": METRICS},
]
STREAM = b"".join(map(event, EVENTS))
TOLD = ResponseInfo(COUNTED, "claude-sonnet-4-5-20250929", "end_turn")


def read(stream: bytes, size: int, encoding: str = "") -> ResponseInfo:
    reader = reader_for("anthropic", encoding, is_framed=True)
    for at in range(0, len(stream), size):
        reader.feed(stream[at : at + size])
    return reader.finish()


@pytest.mark.parametrize("size", [1, 7, 100, 10**6])
def test_usage_is_read_from_frames_however_they_are_cut(size: int):
    assert read(STREAM, size) == TOLD


def test_bedrocks_own_count_is_read_where_the_events_have_none():
    assert read(event(EVENTS[-1]), 50).usage == COUNTED


def test_an_exception_in_a_stream_is_named():
    names = {":exception-type": "throttlingException", ":message-type": "exception"}
    broken = event(EVENTS[0]) + frame(b'{"message": "Too many requests"}', names)
    assert read(broken, 64).error == "throttlingException"


def broken_streams() -> Iterator[tuple[str, bytes]]:
    """Streams in which only the first frame can be read."""
    first, second = event(EVENTS[0]), event(EVENTS[-2])
    for name, at in (("size", 3), ("sum of the prelude", 9), ("header", 14), ("sum", -1)):
        spoiled = bytearray(second)
        spoiled[at] ^= 0x10
        yield name, first + bytes(spoiled) + second
    yield "cut off", first + second[:-1]
    yield "no frame", first + b"event: message_stop\ndata: {}\n\n"


@pytest.mark.parametrize(("name", "stream"), list(broken_streams()))
def test_nothing_is_read_behind_a_broken_frame(name: str, stream: bytes):
    told = read(stream, 33)
    assert told.usage == Usage(input=20, cache_read=4_000, cache_write=80, output=1), name
    assert len(list(EventStreamDecoder().feed(stream))) == 1


def test_a_long_frame_is_skipped_and_takes_no_memory():
    decoder = EventStreamDecoder()
    stream = frame(b"x" * 3_000_000, {}) + frame(b"after", {":a": "b"})
    held = 0
    found = []
    for at in range(0, len(stream), 1_000):
        found += decoder.feed(stream[at : at + 1_000])
        held = max(held, len(decoder._held))
    assert found == [({":a": "b"}, b"after")]
    assert held <= 2_000


def test_headers_of_every_kind_are_passed_over():
    kinds = b"".join(
        (
            b"\x01a\x00",
            b"\x01b\x01",
            b"\x01c\x02\x01",
            b"\x01d\x03\x00\x02",
            b"\x01e\x04\x00\x00\x00\x03",
            b"\x01f\x05" + bytes(8),
            b"\x01g\x06\x00\x03\xff\x00\xfe",
            b"\x01h\x07\x00\x02hi",
            b"\x01i\x08" + bytes(8),
            b"\x01j\x09" + bytes(16),
            b"\x0b:event-type\x07\x00\x05chunk",
        )
    )
    (found,) = EventStreamDecoder().feed(framed(kinds))
    assert found.headers == {"h": "hi", ":event-type": "chunk"}


def streaming() -> Script:
    async def script(_received: Any, writer: asyncio.StreamWriter) -> None:
        head = ("HTTP/1.1 200 OK", f"Content-Type: {TYPE}")
        writer.write("\r\n".join((*head, f"Content-Length: {len(STREAM)}", "", "")).encode())
        for at in range(0, len(STREAM), 700):
            writer.write(STREAM[at : at + 700])
            await asyncio.sleep(0)

    return script


def test_a_framed_stream_reaches_the_client_and_its_usage_the_record(tmp_path: Path):
    async def act(proxy: Compacted) -> None:
        reply = await sent(proxy, STREAMED, BEDROCK, BEARER)
        assert reply.body == STREAM
        record: RequestRecord
        (record,) = await proxy.records(1)
        assert record.usage == COUNTED
        assert record.cost_after is not None
        assert record.cost_before is not None
        assert 0 < record.cost_after < record.cost_before

    drive(tmp_path, act, script=streaming())


# --- real clients ------------------------------------------------------------------------------


def test_azures_client_is_compacted_and_priced_by_the_model_that_responds(tmp_path: Path):
    body = request("openai-chat", "go on", *STEPS)
    choice = {"index": 0, "message": {"role": "assistant", "content": "done"}}
    usage = {"prompt_tokens": 4_000, "completion_tokens": 9, "total_tokens": 4_009}
    said = {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o-2024-08-06",
        "choices": [{**choice, "finish_reason": "stop"}],
        "usage": usage,
    }

    async def act(proxy: Compacted) -> None:
        async with openai.AsyncAzureOpenAI(
            api_key="k", azure_endpoint=proxy.standing.running.url, api_version="2024-10-21"
        ) as client:
            asked = {**body, "model": "prod"}
            found = await client.chat.completions.create(**asked)
        assert found.choices[0].message.content == "done"
        (received,) = proxy.standing.behind.received
        assert received.target == "/openai/deployments/prod/chat/completions?api-version=2024-10-21"
        assert received.named("api-key") == ["k"]
        assert proxy.shortened("openai-chat") == [True] * 8 + [False]
        assert len(results("openai-chat", json.loads(received.body))) == 9
        (record,) = await proxy.records(1)
        assert record.model == "prod"
        assert record.cost_after is not None

    drive(tmp_path, act, script=reply_with(answer(200, said, "Content-Type: application/json")))


def test_gemini_client_on_vertex_is_compacted(tmp_path: Path):
    body = request("gemini", "go on", *STEPS)
    said = {"candidates": [{"content": {"role": "model", "parts": [{"text": "done"}]}}]}

    def asked(url: str) -> str | None:
        token: Any = late("google.oauth2.credentials").Credentials("ya29.x")
        client = late("google.genai").Client(
            vertexai=True,
            project="p",
            location="us-east5",
            credentials=token,
            http_options={"base_url": url},
        )
        given: Any = body["contents"]
        return client.models.generate_content(model="gemini-3-pro", contents=given).text

    async def act(proxy: Compacted) -> None:
        assert await asyncio.to_thread(asked, proxy.standing.running.url) == "done"
        (received,) = proxy.standing.behind.received
        place = "projects/p/locations/us-east5/publishers/google/models/gemini-3-pro"
        assert received.target == f"/v1beta1/{place}:generateContent"
        assert received.named("authorization") == ["Bearer ya29.x"]
        assert proxy.shortened("gemini") == [True] * 8 + [False]

    drive(tmp_path, act, script=reply_with(answer(200, said, "Content-Type: application/json")))


# --- gateways ----------------------------------------------------------------------------------

MARK = {"cache_control": {"type": "ephemeral"}}
ROUTED = [
    b": OPENROUTER PROCESSING\n\n",
    b'data: {"model": "anthropic/claude-sonnet-4.5", "choices": [{"delta": {"content": "x"}}]}\n\n',
    (
        b'data: {"choices": [], "usage": {"prompt_tokens": 4100, "completion_tokens": 9,'
        b' "prompt_tokens_details": {"cached_tokens": 4000, "cache_write_tokens": 80}}}\n\n'
    ),
    b"data: [DONE]\n\n",
]


def test_claude_behind_openrouter_keeps_its_breakpoints_and_is_priced(tmp_path: Path):
    body = request("openai-chat", "go on", *STEPS)
    history = body["messages"]
    history[0] = {"role": "user", "content": [{"type": "text", "text": "go on", **MARK}]}
    last = history[-1]
    last["content"] = [{"type": "text", "text": last["content"], **MARK}]
    asked = {**body, "model": "anthropic/claude-sonnet-4.5", "stream": True}

    async def script(_received: Any, writer: asyncio.StreamWriter) -> None:
        said = b"".join(ROUTED)
        head = ("HTTP/1.1 200 OK", "Content-Type: text/event-stream")
        writer.write("\r\n".join((*head, f"Content-Length: {len(said)}", "", "")).encode() + said)

    async def act(proxy: Compacted) -> None:
        raw = json.dumps(asked).encode()
        await sent(proxy, "/v1/chat/completions", raw, "Authorization: Bearer sk-or-v1-x")
        (received,) = proxy.standing.behind.received
        assert received.target == "/api/v1/chat/completions"
        there = json.loads(received.body)
        assert len(json.dumps(there)) < 0.5 * len(raw)
        assert respool.check(there, format="openai-chat") == []
        assert breakpoints(there) == breakpoints(asked)
        (record,) = await proxy.records(1)
        assert record.usage == COUNTED
        assert record.cost_after == pytest.approx(3e-6 * (20 + 400 + 100 + 45))

    drive(tmp_path, act, script=script, chosen=("openai={}/api/v1",))
