"""The providers' own clients, through the proxy: they need a base URL and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.late import late
from tests.proxy.sockets import ReceivedRequest, Standing, proxy, run

anthropic, openai, genai = late("anthropic"), late("openai"), late("google.genai")

JSON = "Content-Type: application/json"
SSE = "Content-Type: text/event-stream"


def whole(value: object, status: str = "200 OK", *headers: str) -> Callable[..., Any]:
    body = json.dumps(value).encode()
    head = [f"HTTP/1.1 {status}", JSON, f"Content-Length: {len(body)}", *headers]

    async def script(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)

    return script


def events(*values: tuple[str, object]) -> Callable[..., Any]:
    async def script(_received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\n{SSE}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for name, value in values:
            named = f"event: {name}\n" if name else ""
            said = value if isinstance(value, str) else json.dumps(value)
            event = f"{named}data: {said}\n\n".encode()
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
            await asyncio.sleep(0.01)
        writer.write(b"0\r\n\r\n")

    return script


ASK: list[Any] = [{"role": "user", "content": "hi"}]
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
SPOKEN = events(
    ("message_start", {"type": "message_start", "message": MESSAGE}),
    (
        "content_block_start",
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ),
    *(
        (
            "content_block_delta",
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": word},
            },
        )
        for word in ("one ", "two")
    ),
    ("content_block_stop", {"type": "content_block_stop", "index": 0}),
    ("message_stop", {"type": "message_stop"}),
)


def test_anthropics_client_streams():
    async def case() -> None:
        async with proxy(SPOKEN) as standing:
            async with (
                anthropic.AsyncAnthropic(api_key="k", base_url=standing.running.url) as client,
                client.messages.stream(model="m", max_tokens=9, messages=ASK) as stream,
            ):
                assert [text async for text in stream.text_stream] == ["one ", "two"]
            (received,) = standing.behind.received
            assert (received.target, received.named("authorization")) == (
                "/v1/messages",
                ["Bearer k"],
            )
            assert json.loads(received.body)["messages"] == ASK

    run(case)


def chunk(text: str) -> dict[str, object]:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
    }


def test_openais_client_streams():
    async def case() -> None:
        script = events(("", chunk("one ")), ("", chunk("two")), ("", "[DONE]"))
        async with proxy(script) as standing:
            async with openai.AsyncOpenAI(
                api_key="k", base_url=f"{standing.running.url}/v1"
            ) as client:
                stream = await client.chat.completions.create(model="m", messages=ASK, stream=True)
                words = [part.choices[0].delta.content async for part in stream]
            assert words == ["one ", "two"]
            assert standing.behind.received[0].named("authorization") == ["Bearer k"]

    run(case)


def test_an_error_and_its_headers_reach_the_client():
    said = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
    script = whole(said, "429 Too Many Requests", "retry-after: 7", "request-id: req_1")

    async def case() -> None:
        async with proxy(script) as standing:
            url = standing.running.url
            async with anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0) as client:
                with pytest.raises(anthropic.RateLimitError) as caught:
                    await client.messages.create(model="m", max_tokens=9, messages=ASK)
            assert caught.value.response.headers["retry-after"] == "7"
            assert caught.value.request_id == "req_1"
            assert caught.value.body == said

    run(case)


def asked_of_gemini(standing: Standing) -> str | None:
    options: Any = {"base_url": standing.running.url}
    client = genai.Client(api_key="k", http_options=options)
    return client.models.generate_content(model="gemini-3", contents="hi").text


def test_geminis_client_is_answered():
    content = {"role": "model", "parts": [{"text": "hello"}]}

    async def case() -> None:
        async with proxy(whole({"candidates": [{"content": content}]})) as standing:
            assert await asyncio.to_thread(asked_of_gemini, standing) == "hello"
            (received,) = standing.behind.received
            assert received.target == "/v1/models/gemini-3:generateContent"
            assert received.named("x-goog-api-key") == ["k"]
            assert standing.records[0].format == "gemini"

    run(case)
