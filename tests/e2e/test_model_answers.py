"""Usage and overflow of a real model server, streamed and not."""

from __future__ import annotations

from typing import Any

import pytest

from respool.proxy.provider_errors import classify_error
from respool.proxy.usage import ResponseInfo, ResponseReader
from respool.wire.base import FormatName
from tests.e2e.model_process import CONTEXT
from tests.e2e.model_server import ModelServer

pytestmark = pytest.mark.e2e

MOST: dict[FormatName, str] = {
    "anthropic": "max_tokens",
    "openai-chat": "max_tokens",
    "openai-responses": "max_output_tokens",
}
wires = pytest.mark.parametrize("format", MOST)


def asking(format: FormatName, text: str, **more: Any) -> dict[str, Any]:
    history = "input" if format == "openai-responses" else "messages"
    said = [{"role": "user", "content": text}]
    return {"model": "m", history: said, MOST[format]: 4, "temperature": 0, **more}


def told(format: FormatName, data: bytes) -> ResponseInfo:
    reader = ResponseReader(format)
    for at in range(0, len(data), 7):
        reader.feed(data[at : at + 7])
    return reader.finish()


@wires
def test_a_stream_tells_the_usage_that_a_whole_answer_tells(
    server: ModelServer, format: FormatName
) -> None:
    more = {"stream_options": {"include_usage": True}} if format == "openai-chat" else {}
    found: list[ResponseInfo] = []
    for streamed in (False, True):
        request = asking(format, "Which way out?", stream=streamed, **(more if streamed else {}))
        status, data = server.bytes_of(format, request)
        assert status == 200
        assert data.startswith((b"data:", b"event:")) == streamed
        found.append(told(format, data))
    whole, streamed_one = found
    assert whole.usage is not None
    assert streamed_one.usage is not None
    assert streamed_one.usage.prompt == whole.usage.prompt > 4
    assert streamed_one.usage.output == whole.usage.output == 4
    assert streamed_one.usage.cache_read > 0  # the same prompt as just before
    assert streamed_one.model == whole.model
    assert (whole.stop_reason, streamed_one.stop_reason) in (
        ("max_tokens",) * 2,
        ("length",) * 2,
        ("completed",) * 2,
    )
    assert (whole.error, streamed_one.error) == (None, None)


@wires
def test_its_overflow_is_understood_with_both_numbers(
    server: ModelServer, format: FormatName
) -> None:
    for streamed in (False, True):
        request = asking(format, "word " * 3 * CONTEXT, stream=streamed)
        status, data = server.bytes_of(format, request)
        refusal = classify_error(status, (), data)
        assert (refusal.kind, refusal.limit, refusal.max_prompt) == ("overflow", CONTEXT, CONTEXT)
        assert refusal.count is not None
        assert refusal.count > 3 * CONTEXT
        assert refusal.code == "exceed_context_size_error"
