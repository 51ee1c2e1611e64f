"""Usage in responses, for any split of their bytes and any content."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import sys
import threading
import tracemalloc
import weakref
import zlib
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.pricing import Usage
from respool.proxy import decoders
from respool.proxy.decoders import LenientDecoder
from respool.proxy.usage import (
    MAX_MEMBER_BYTES,
    MAX_VALUE_BYTES,
    MAX_WAITING_BYTES,
    ResponseInfo,
    ResponseReader,
    Selection,
    ThreadedReader,
    ValueScanner,
    reader_for,
)
from respool.sessions.session import chat_usage, responses_usage
from respool.wire.base import FORMATS, FormatName
from tests.effort import examples
from tests.support.timing import takes_at_most
from tests.transcripts import upstream

USAGE = upstream.Usage(input=11, cache_read=2000, cache_write=300, cache_write_1h=30, output=40)
ANSWER = upstream.Answer(
    'Say "usage": {"input_tokens": 9} — \\ 🧵', (("read", {"usage": {"input_tokens": 5}}),), "Hm."
)
WIRES: dict[FormatName, upstream.Wire] = {
    "anthropic": upstream.anthropic,
    "openai-chat": upstream.chat,
    "openai-responses": upstream.responses,
    "gemini": upstream.gemini,
}
# What each format can tell of USAGE: only Anthropic's scripted one tells of writes.
WHOLE = Usage(input=11, cache_read=2000, cache_write=300, cache_write_1h=30, output=40)
READS = Usage(input=311, cache_read=2000, cache_write=0, cache_write_1h=0, output=40)
EXPECTED: dict[FormatName, tuple[Usage, str, str]] = {
    "anthropic": (WHOLE, "claude-sonnet-4-5", "tool_use"),
    "openai-chat": (READS, "gpt-5", "tool_calls"),
    "openai-responses": (READS, "gpt-5", "completed"),
    "gemini": (READS, "gemini-2.5-pro", "STOP"),
}
formats = pytest.mark.parametrize("format", FORMATS)


def taken() -> upstream.Received:
    return upstream.Received("main", "/", 0.0, {}, 3, USAGE)


def stream(format: FormatName) -> bytes:
    return "".join(WIRES[format](ANSWER, taken())).encode()


def whole(format: FormatName) -> bytes:
    value = upstream.WHOLE[WIRES[format]](ANSWER, taken())
    return json.dumps(value, ensure_ascii=False).encode()


def read(format: FormatName, chunks: Iterable[bytes], encoding: str = "") -> ResponseInfo:
    reader = ResponseReader(format, encoding)
    for chunk in chunks:
        reader.feed(chunk)
    return reader.finish()


def events(*values: Any, end: str = "\n") -> bytes:
    return "".join(f"data: {json.dumps(value)}{end}{end}" for value in values).encode()


@formats
def test_a_stream_tells_what_a_whole_answer_tells(format: FormatName) -> None:
    usage, model, stop = EXPECTED[format]
    told = ResponseInfo(usage, model, stop, None)
    assert read(format, [stream(format)]) == told
    assert read(format, [whole(format)]) == told


def test_gemini_streams_an_array_where_no_events_are_asked_for() -> None:
    data = stream("gemini").decode()
    values = [line.removeprefix("data: ") for line in data.splitlines() if line]
    assert len(values) > 1
    array = "[" + ",\r\n".join(values) + "]"
    usage, model, stop = EXPECTED["gemini"]
    assert read("gemini", [array.encode()]) == ResponseInfo(usage, model, stop, None)


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places})
    return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(sorted(FORMATS)), st.booleans(), st.booleans(),
    st.lists(st.integers(0, 1 << 16), max_size=12),
)  # fmt: skip
def test_where_the_bytes_are_cut_changes_nothing(
    format: FormatName, streamed: bool, returns: bool, places: list[int]
) -> None:
    data = stream(format) if streamed else whole(format)
    data = data.replace(b"\n", b"\r\n") if returns else data
    assert read(format, cut(data, places)) == read(format, [data])


@formats
def test_one_byte_at_a_time(format: FormatName) -> None:
    data = stream(format)
    one_by_one = [data[at : at + 1] for at in range(len(data))]
    assert read(format, one_by_one) == read(format, [data])


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(sorted(FORMATS)), st.binary(max_size=400), st.integers(0, 1 << 16),
    st.sampled_from(["", "gzip", "deflate", "br", "zstd", "br, gzip", "rot13"]),
)  # fmt: skip
def test_garbage_is_borne(format: FormatName, garbage: bytes, at: int, encoding: str) -> None:
    data = stream(format)
    at %= len(data)
    assert isinstance(read(format, [data[:at], garbage, data[at:]], encoding), ResponseInfo)
    assert isinstance(read(format, [garbage, data], encoding), ResponseInfo)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.sampled_from(sorted(FORMATS)),
    st.text(alphabet='{}[]",:\\ \nadtusge0', max_size=80),
    st.lists(st.integers(0, 1 << 16), max_size=4),
)
def test_what_looks_like_json_is_borne_and_cuts_change_nothing(
    format: FormatName, text: str, places: list[int]
) -> None:
    for data in (text.encode(), b"data: " + text.encode()):
        assert read(format, cut(data, places)) == read(format, [data])


members = st.sampled_from(["a", "usage", "model", "choices", "delta"])
values = st.recursive(
    st.none() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(members, inner, max_size=4),
    max_leaves=20,
)
WANTED = Selection(
    frozenset({("usage",), ("choices", "usage"), ("delta", "a", "model")}),
    frozenset({(), ("choices",), ("delta",), ("delta", "a")}),
)


@settings(max_examples=examples(150), deadline=None)
@given(st.dictionaries(members, values, max_size=4), st.integers(0, 1 << 16))
def test_a_value_at_once_and_a_value_in_passing_give_the_same_members(
    value: dict[str, Any], at: int
) -> None:
    data = json.dumps(value).encode()
    at_once: list[Any] = []
    in_passing: list[Any] = []
    ValueScanner(WANTED, at_once.append).scan_value(data)
    passing = ValueScanner(WANTED, in_passing.append)
    for chunk in cut(data, [at]):
        passing.feed(chunk)
    assert at_once == in_passing


def test_an_event_that_is_broken_spoils_no_other() -> None:
    broken = b'data: {"a": [{"b": "never closed\n\n'
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    told = read("openai-chat", [broken, events({"choices": [], "usage": usage})])
    assert told.usage == Usage(input=5, cache_read=0, cache_write=0, cache_write_1h=0, output=2)


def begun(**usage: Any) -> Any:
    return {"type": "message_start", "message": {"model": "m", "stop_reason": None, "usage": usage}}


def ended(stop: str | None, **usage: Any) -> Any:
    return {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage}


def chosen(told: Any, **choice: Any) -> Any:
    return {"model": "m", "choices": [{"delta": {"content": "hi"}, **choice}], "usage": told}


def response(status: str, usage: Any = None, **more: Any) -> Any:
    held = {"model": "m", "status": status, "usage": usage, "error": None, **more}
    return {"type": f"response.{status}", "response": held}


def generated(usage: Any, **candidate: Any) -> Any:
    text = {"content": {"parts": [{"text": "a"}]}}
    return {"candidates": [text | candidate], "modelVersion": "g", "usageMetadata": usage}


DETAILS = {"cached_tokens": 10, "cache_write_tokens": 15}
OVERLONG = {"type": "invalid_request_error", "code": "context_length_exceeded", "message": "no"}


@pytest.mark.parametrize(
    ("format", "values", "told"),
    [
        (  # as llama.cpp streams it: the prompt comes first, the last event has the output alone
            "anthropic",
            [
                begun(cache_read_input_tokens=9, input_tokens=1, output_tokens=0),
                ended("max_tokens", output_tokens=4),
            ],
            ResponseInfo(
                Usage(input=1, cache_read=9, cache_write=0, cache_write_1h=0, output=4),
                "m",
                "max_tokens",
            ),
        ),
        (  # totals grow with tools that the provider runs
            "anthropic",
            [
                begun(
                    input_tokens=3,
                    cache_creation={"ephemeral_1h_input_tokens": 7},
                    cache_creation_input_tokens=8,
                    output_tokens=1,
                ),
                ended(None, input_tokens=50, output_tokens=4, cache_creation_input_tokens=None),
                ended("end_turn", input_tokens=90, output_tokens=9),
            ],
            ResponseInfo(
                Usage(input=90, cache_read=0, cache_write=8, cache_write_1h=7, output=9),
                "m",
                "end_turn",
            ),
        ),
        (  # cut off behind its start
            "anthropic",
            [begun(input_tokens=3, output_tokens=1)],
            ResponseInfo(
                Usage(input=3, cache_read=0, cache_write=0, cache_write_1h=0, output=1), "m", None
            ),
        ),
        (
            "anthropic",
            [
                begun(input_tokens=3, output_tokens=1),
                {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            ],
            ResponseInfo(
                Usage(input=3, cache_read=0, cache_write=0, cache_write_1h=0, output=1),
                "m",
                None,
                "overloaded_error",
            ),
        ),
        (  # nobody asked for usage
            "openai-chat",
            [chosen(None, finish_reason=None), chosen(None, finish_reason="stop")],
            ResponseInfo(None, "m", "stop"),
        ),
        (  # in its choice, as Moonshot has it
            "openai-chat",
            [chosen(None, finish_reason="stop", usage={"prompt_tokens": 7})],
            ResponseInfo(Usage(7), "m", "stop"),
        ),
        (
            "openai-chat",
            [{"error": {"message": "no", "type": "server_error", "code": None}}],
            ResponseInfo(None, None, None, "server_error"),
        ),
        ("openai-chat", [{"error": "no"}], ResponseInfo(None, None, None, "error")),
        (
            "openai-responses",
            [
                response("created"),
                response(
                    "incomplete",
                    {"input_tokens": 30, "input_tokens_details": DETAILS, "output_tokens": 6},
                    incomplete_details={"reason": "max_output_tokens"},
                ),
            ],
            ResponseInfo(
                Usage(input=5, cache_read=10, cache_write=15, cache_write_1h=0, output=6),
                "m",
                "max_output_tokens",
            ),
        ),
        (
            "openai-responses",
            [response("failed", error={"code": "server_error", "message": "no"})],
            ResponseInfo(None, "m", "failed", "server_error"),
        ),
        (
            "openai-responses",
            [{"type": "error", "code": "rate_limit_exceeded", "message": "no"}],
            ResponseInfo(None, None, None, "rate_limit_exceeded"),
        ),
        (
            "openai-responses",
            [{"type": "error", "sequence_number": 2, "error": OVERLONG}],
            ResponseInfo(None, None, None, "context_length_exceeded"),
        ),
        (  # the last chunk lacks what an earlier one had
            "gemini",
            [
                generated(
                    {"promptTokenCount": 20, "cachedContentTokenCount": 5, "thoughtsTokenCount": 4}
                ),
                generated({"promptTokenCount": 20, "candidatesTokenCount": 3}, finishReason="STOP"),
            ],
            ResponseInfo(
                Usage(input=15, cache_read=5, cache_write=0, cache_write_1h=0, output=7),
                "g",
                "STOP",
            ),
        ),
        (
            "gemini",
            [
                {
                    "promptFeedback": {"blockReason": "SAFETY"},
                    "usageMetadata": {"promptTokenCount": 2},
                }
            ],
            ResponseInfo(Usage(2), None, "SAFETY"),
        ),
        (
            "gemini",
            [{"error": {"code": 503, "message": "no", "status": "UNAVAILABLE"}}],
            ResponseInfo(None, None, None, "UNAVAILABLE"),
        ),
    ],
)
def test_shapes_of_streams(format: FormatName, values: list[Any], told: ResponseInfo) -> None:
    assert read(format, [events(*values)]) == told
    assert read(format, [events(*values, end="\r\n")]) == told
    assert read(format, [events(*values, end="\r")]) == told


def test_comments_names_and_the_end_mark_are_passed_over() -> None:
    data = b": keep-alive\n\nevent: x\nid: 7\nretry: 5\n\n" + stream("openai-chat")
    assert data.endswith(b"data: [DONE]\n\n")
    assert read("openai-chat", [data]) == read("openai-chat", [stream("openai-chat")])


def test_a_value_may_span_data_lines() -> None:
    lines = (b'{"model": "m",', b'"choices": [],', b'"usage": {"prompt_tokens": 4}', b"}", b"")
    data = b"".join(b"data: " + line + b"\n" for line in lines) + b"\n"
    assert read("openai-chat", [data]) == ResponseInfo(Usage(4), "m")
    returned = data.replace(b"\n", b"\r\n")  # cut between the two, no line is empty
    one_by_one = [returned[at : at + 1] for at in range(len(returned))]
    assert read("openai-chat", one_by_one) == ResponseInfo(Usage(4), "m")


def test_an_escape_may_be_cut_in_two() -> None:
    data = rb'{"a": "x\"}", "b": [{"c": "\\"}], "usage": {"d\"": "\\\""}}'
    picked: list[Any] = []
    values = ValueScanner(WANTED, picked.append)
    for at in range(len(data)):
        values.feed(data[at : at + 1])
    assert picked == [{("usage",): {'d"': '\\"'}}]


def test_a_stream_that_stops_without_a_line_end_is_read_to_its_end() -> None:
    data = events({"choices": [], "model": "m", "usage": {"prompt_tokens": 4}}).rstrip()
    assert read("openai-chat", [data]) == ResponseInfo(Usage(4), "m")


@pytest.mark.parametrize(
    "usage",
    [{"prompt_tokens": 10**15}, {"prompt_tokens": -4}, {"prompt_tokens": True}, {}, [], "no", 7],
)
def test_what_is_no_count_is_not_believed(usage: Any) -> None:
    assert read("openai-chat", [events({"usage": usage})]).usage is None


def test_a_name_that_is_none_is_not_kept() -> None:
    assert read("openai-chat", [events({"model": "m" * 5000, "usage": {}})]).model is None


def test_usage_with_writes_in_the_words_of_newer_models() -> None:
    details = {"cached_tokens": 2, "cache_write_tokens": 9654}
    chat = {"prompt_tokens": 9657, "completion_tokens": 78, "prompt_tokens_details": details}
    assert chat_usage(chat) == Usage(
        input=1, cache_read=2, cache_write=9654, cache_write_1h=0, output=78
    )
    responses = {"input_tokens": 9657, "output_tokens": 78, "input_tokens_details": details}
    assert responses_usage(responses) == Usage(
        input=1, cache_read=2, cache_write=9654, cache_write_1h=0, output=78
    )
    assert chat_usage({"prompt_tokens": 100, "prompt_cache_hit_tokens": 64}) == Usage(36, 64)


# --- content-encodings -------------------------------------------------------------------------


def bare_deflate(data: bytes) -> bytes:
    packing = zlib.compressobj(wbits=-15)
    return packing.compress(data) + packing.flush()


def brotli(data: bytes) -> bytes:
    return pytest.importorskip("brotli").compress(data)


def zstd(data: bytes) -> bytes:
    return pytest.importorskip("zstandard").ZstdCompressor().compress(data)


PACKED = {
    "gzip": gzip.compress,
    "x-gzip": lambda data: gzip.compress(data[:40]) + gzip.compress(data[40:]),
    "deflate": zlib.compress,
    "Deflate": bare_deflate,
    "br": brotli,
    "zstd": zstd,
    "identity": bytes,
    "gzip, br": lambda data: brotli(gzip.compress(data)),
}


@pytest.mark.parametrize("encoding", PACKED)
@settings(max_examples=examples(15), deadline=None)
@given(st.sampled_from(sorted(FORMATS)), st.lists(st.integers(0, 1 << 16), max_size=8))
def test_packed_answers_are_read_wherever_they_are_cut(
    encoding: str, format: FormatName, places: list[int]
) -> None:
    packed = PACKED[encoding](stream(format))
    usage, model, stop = EXPECTED[format]
    assert read(format, cut(packed, places), encoding) == ResponseInfo(usage, model, stop, None)


@pytest.mark.parametrize("encoding", PACKED)
def test_packed_answers_are_read_in_a_thread_while_they_pass(encoding: str) -> None:
    async def case(format: FormatName) -> ResponseInfo:
        reader = reader_for(format, encoding)
        for chunk in cut(PACKED[encoding](stream(format)), [5, 90, 400]):
            reader.feed(chunk)
        await reader.settle()
        return reader.finish()

    for format in FORMATS:
        usage, model, stop = EXPECTED[format]
        assert asyncio.run(case(format)) == ResponseInfo(usage, model, stop, None)


def test_an_answer_that_cannot_be_read_as_fast_as_it_comes_is_given_up() -> None:
    """Nothing waits for it, and no more of it is held than so much."""
    held = threading.Event()
    decoders.THREAD.add(lambda: not held.wait(20))
    reader = ThreadedReader("anthropic", "gzip")
    packed = gzip.compress(stream("anthropic"))
    reader.feed(packed)
    for _ in range(6):
        reader.feed(bytes(MAX_WAITING_BYTES // 5))
    assert sum(map(len, reader._chunks)) == 0
    assert reader.finish() == ResponseInfo()
    late = ThreadedReader("anthropic", "gzip")
    late.feed(packed)
    asyncio.run(late.settle())  # a second at most
    assert late.finish() == ResponseInfo()
    held.set()


def test_no_decoder_is_left_to_the_garbage_collector() -> None:
    """Each has a window of megabytes, and the collector seldom comes."""
    gc.disable()
    try:
        whole, broken = ResponseReader("anthropic", "gzip"), ResponseReader("anthropic", "gzip")
        held = [weakref.ref(one._decoder._decoder) for one in (whole, broken)]  # pyright: ignore[reportArgumentType, reportOptionalMemberAccess]
        whole.feed(gzip.compress(stream("anthropic")))
        broken.feed(b"no gzip")
        assert whole.finish().usage is not None
        assert [one() for one in held] == [None, None]
    finally:
        gc.enable()


def test_containers_without_end_are_given_up() -> None:
    scanner = ResponseReader("gemini")
    for _ in range(100):
        scanner.feed(b'{"a": ' + b"[" * 100_000)
    assert scanner._values._depth <= 1_001
    assert scanner.finish() == ResponseInfo()


def test_an_unknown_encoding_tells_nothing() -> None:
    assert read("anthropic", [stream("anthropic")], "rot13") == ResponseInfo()


@pytest.mark.parametrize(("encoding", "package"), [("br", "brotli"), ("zstd", "zstandard")])
def test_an_encoding_whose_package_is_missing_tells_nothing(
    encoding: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert read("anthropic", [stream("anthropic")], encoding) == ResponseInfo()


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_a_bomb_is_given_up_in_bounded_memory(encoding: str) -> None:
    bomb = PACKED[encoding](b" " * 50_000_000)
    tracemalloc.start()
    unpacking = LenientDecoder(encoding, max_bytes=2_000_000)
    given = sum(len(piece) for piece in unpacking.feed(bomb))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert given <= 2_000_000
    assert peak < 4_000_000
    assert list(unpacking.feed(bomb)) == []


# --- memory ------------------------------------------------------------------------------------


def long_answers() -> dict[str, tuple[FormatName, list[bytes]]]:
    text = json.dumps("line of text \\ \n" * 500).encode()[1:-1]
    usage = b'"usage": {"input_tokens": 3, "output_tokens": 2}'
    members = b'"model": "m", "status": "completed", '
    long = [b'{"output": [{"text": "', *([text] * 2000), b'"}], ', members, usage, b"}"]
    event = [b'data: {"response": ', *long, b"}\n\n"]
    small = b'data: {"type": "response.output_text.delta", "delta": "word"}\n\n'
    many = [small * 100] * 200
    garbage = [b'[{"usage": "' + b"x" * 8000] * 2000
    return {
        "whole": ("openai-responses", long),
        "event": ("openai-responses", event),
        "events": ("openai-responses", [*many, b"data: ", *long, b"\n\n"]),
        "garbage": ("openai-responses", garbage),
        "line": ("openai-responses", [b"x" * 8000] * 2000),
        "nested": ("gemini", [b"[" * 8000] * 30),
        "keys": ("openai-chat", [events({"usage": {f"k{at}": at}}) for at in range(20_000)]),
    }


@pytest.mark.parametrize("name", ["whole", "event", "events"])
def test_a_long_answer_is_read(name: str) -> None:
    """The memory that this needs is measured by `make bench`."""
    format, chunks = long_answers()[name]
    tracemalloc.start()
    told = read(format, chunks)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * (MAX_VALUE_BYTES + MAX_MEMBER_BYTES)
    if name in ("whole", "event", "events"):
        assert told == ResponseInfo(
            Usage(input=3, cache_read=0, cache_write=0, cache_write_1h=0, output=2),
            "m",
            "completed",
        )


@pytest.mark.parametrize(
    "piece",
    [
        b'{"text": "some \\" words", "n": [1, {"a": []}]}, ',  # small members
        b"words without an end \\n ",  # one long string
    ],
)
def test_ten_times_the_answer_takes_about_ten_times_as_long(piece: bytes) -> None:
    def answer(times: int) -> bytes:
        inside = piece * times if piece[:1] == b"{" else b'"' + piece * times + b'", '
        return b'data: {"output": [' + inside + b'0], "usage": {"input_tokens": 3}}\n\n'

    def reads(data: bytes, size: int) -> None:
        chunks = [data[at : at + size] for at in range(0, len(data), size)]
        assert read("openai-responses", chunks).usage == Usage(3)

    few, many = answer(3000), answer(30_000)
    for size in (16, 4_096):
        takes_at_most(25, partial(reads, many, size), partial(reads, few, size))
