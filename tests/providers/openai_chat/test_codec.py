"""The OpenAI Chat Completions codec: decoding and edits."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.providers.openai_chat.codec import OpenAIChatCodec
from respool.transcript import BlockPath, Part, Ref, TranscriptIndex
from tests.strategies import arbitrary_json, arbitrary_json_messages

CODEC = OpenAIChatCodec()
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"  # the head of a PNG of one pixel
STAND_IN = "[respool: 1 image left out; ref bbidnwiqv5awc2eneyyx]"
IMAGE: dict[str, Any] = {
    "type": "image_url",
    "image_url": {"url": f"data:image/png;base64,{PIXEL}", "detail": "high"},
}
FUTURE = {"type": "future_gesture", "strokes": [1]}
EPHEMERAL = {"type": "ephemeral"}
BREAKPOINT = {"mode": "explicit"}


def call(id: str, name: str = "read", arguments: str = '{"path":"a"}') -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def custom(id: str, input: str) -> dict[str, Any]:
    return {"id": id, "type": "custom", "custom": {"name": "patch", "input": input}}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def assistant(content: Any, *calls: Any, **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **more}
    return {**message, "tool_calls": list(calls)} if calls else message


def tool(id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content, **more}


def parts_of(message: Any) -> list[Part]:
    return CODEC.decode(0, message)


def part_at(message: Any, *path: str | int) -> Part:
    return next(part for part in parts_of(message) if part.ref.path == path)


def told(message: Any) -> list[tuple[Any, ...]]:
    """Kind, place and text of a part; name and id where it has one."""
    return [
        (p.ref.path, p.kind, p.speaker, p.text, *(x for x in (p.name, p.id) if x))
        for p in parts_of(message)
    ]


C = ("content",)
READ: list[tuple[str, Any, list[tuple[Any, ...]]]] = [
    ("system", {"role": "system", "content": "s"}, [(C, "text", "system", "s")]),
    ("developer", {"role": "developer", "content": "s"}, [(C, "text", "system", "s")]),
    ("user", {"role": "user", "content": "hi"}, [(C, "text", "user", "hi")]),
    ("empty string", {"role": "user", "content": ""}, []),
    ("null", assistant(None), []),
    ("no content", {"role": "assistant"}, []),
    ("not an object", "hello", [((), "opaque", "user", "hello")]),
    ("null message", None, [((), "opaque", "user", "null")]),
    ("unknown role", {"role": "critic", "content": "x"}, [(C, "text", "user", "x")]),
    ("odd content", {"role": "user", "content": {"a": 1}}, [(C, "opaque", "user", '{"a":1}')]),
    (
        "parts",
        {"role": "user", "content": [text("a"), FUTURE, "b", {"type": "text", "text": 3}]},
        [
            (("content", 0), "text", "user", "a"),
            (("content", 1), "opaque", "user", '{"type":"future_gesture","strokes":[1]}'),
            (("content", 2), "opaque", "user", "b"),
            (("content", 3), "opaque", "user", '{"type":"text","text":3}'),
        ],
    ),
    (
        "refusals",
        assistant([{"type": "refusal", "refusal": "no"}], refusal="never"),
        [(("content", 0), "text", "model", "no"), (("refusal",), "text", "model", "never")],
    ),
    (
        "calls of every type",
        assistant(
            None,
            call("a"),
            custom("b", "free text"),
            {"id": "c", "type": "mcp", "mcp": {"name": "m", "arguments": "{}"}},
            {"function": {"name": "f", "arguments": {"x": 1}}},
            "junk",
        ),
        [
            (("tool_calls", 0), "call", "model", '{"path":"a"}', "read", "a"),
            (("tool_calls", 1), "call", "model", "free text", "patch", "b"),
            (("tool_calls", 2), "call", "model", "{}", "m", "c"),
            (("tool_calls", 3), "call", "model", '{"x":1}', "f"),
            (("tool_calls", 4), "opaque", "model", "junk"),
        ],
    ),
    (
        "reasoning, words and a call in this order",
        assistant("on it", call("a"), reasoning_content="think"),
        [
            (("reasoning_content",), "reasoning", "model", "think"),
            (C, "text", "model", "on it"),
            (("tool_calls", 0), "call", "model", '{"path":"a"}', "read", "a"),
        ],
    ),
    (
        "the same reasoning told twice counts once",
        assistant(
            "x",
            reasoning="think",
            reasoning_details=[{"type": "reasoning.text", "text": "think", "signature": "s"}],
        ),
        [
            (("reasoning",), "reasoning", "model", "think"),
            (("reasoning_details",), "reasoning", "model", ""),
            (C, "text", "model", "x"),
        ],
    ),
    (
        "reasoning of a user is none",
        {"role": "user", "content": "x", "reasoning": "y"},
        [(C, "text", "user", "x")],
    ),
    (
        "legacy call",
        assistant(None, function_call={"name": "f", "arguments": "{}"}),
        [(("function_call",), "call", "model", "{}", "f")],
    ),
    (
        "legacy result",
        {"role": "function", "name": "f", "content": "r"},
        [(C, "result", "tool", "r", "f")],
    ),
    ("audio", assistant(None, audio={"id": "audio_1"}), [(("audio",), "media", "model", "")]),
    ("result", tool("a", "r"), [(C, "result", "tool", "r", "a")]),
    ("named result", tool("a", "r", name="read"), [(C, "result", "tool", "r", "read", "a")]),
    ("empty result", tool("a", ""), [(C, "result", "tool", "", "a")]),
    ("null result", tool("a", None), [(C, "result", "tool", "", "a")]),
    ("result in parts", tool("a", [text("r"), text("s")]), [(C, "result", "tool", "r\ns", "a")]),
    (
        "result with a picture",
        tool("a", [text("r"), IMAGE, FUTURE]),
        [
            (C, "result", "tool", "r", "a"),
            (("content", 1), "media", "tool", ""),
            (("content", 2), "opaque", "tool", '{"type":"future_gesture","strokes":[1]}'),
        ],
    ),
    ("object as result", tool("a", {"n": 1}), [(C, "result", "tool", '{"n":1}', "a")]),
]


@pytest.mark.parametrize(("name", "message", "expected"), READ, ids=[row[0] for row in READ])
def test_every_shape_is_read(name: str, message: Any, expected: list[tuple[Any, ...]]) -> None:
    assert told(message) == expected


@pytest.mark.parametrize(
    ("details", "signed", "weight"),
    [
        ([{"type": "reasoning.text", "text": "t"}], False, 0),
        ([{"type": "reasoning.text", "text": "t", "signature": "s"}], True, 0),
        ([{"type": "reasoning.summary", "summary": "t"}], False, 0),
        ([{"type": "reasoning.encrypted", "data": "x" * 80}], True, 10),
        ([3, None], False, 0),
    ],
)
def test_reasoning_with_hidden_or_signed_content_is_signed(
    details: list[Any], signed: bool, weight: int
) -> None:
    part = part_at(assistant("x", reasoning_details=details), "reasoning_details")
    assert (part.signed, part.weight) == (signed, weight)


def test_a_call_with_a_thought_signature_is_signed() -> None:
    signed = {**call("a"), "extra_content": {"google": {"thought_signature": "s"}}}
    assert [part.signed for part in parts_of(assistant(None, signed, call("b")))] == [True, False]


@pytest.mark.parametrize(
    "item",
    [
        IMAGE,
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "image_url", "image_url": "https://example.org/a.png"},
        {"type": "image_url"},
        {"type": "input_audio", "input_audio": {"data": "A" * 64_000, "format": "wav"}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "file", "file": {"file_data": "data:text/plain;base64,aGVsbG8gd29ybGQ="}},
    ],
)
def test_media_weigh_something(item: dict[str, Any]) -> None:
    (part,) = parts_of({"role": "user", "content": [item]})
    assert (part.kind, part.text, part.weight > 0) == ("media", "", True)


def test_low_detail_weighs_less() -> None:
    urls = [{"url": "https://example.org/a.png", "detail": detail} for detail in ("low", "high")]
    items = [{"type": "image_url", "image_url": url} for url in urls]
    cheap, dear = parts_of({"role": "user", "content": items})
    assert cheap.weight < dear.weight


def test_a_failed_result_is_an_error_where_the_client_says_so() -> None:
    assert parts_of(tool("a", "r", is_error=True))[0].error


def test_head_holds_tools_and_legacy_functions() -> None:
    fields = {"tools": [{"type": "function"}, {"type": "custom"}], "functions": [{"name": "f"}]}
    assert [part.text for part in CODEC.decode_head(fields)] == [
        '{"type":"function"}',
        '{"type":"custom"}',
        '{"name":"f"}',
    ]
    assert CODEC.decode_head({"tools": 3}) == []


def test_legacy_calls_pair_by_name() -> None:
    index = TranscriptIndex()
    ask = assistant(None, function_call={"name": "f", "arguments": "{}"})
    answer = {"role": "function", "name": "f", "content": "r"}
    index.add_unit(
        (0, 2), CODEC.decode(0, ask), CODEC.decode(1, answer), locked=CODEC.has_locked_calls([])
    )
    assert [(e.call, e.result) for e in index.freeze().exchanges] == [(0, 1)]


WITH_BREAKPOINT = text("a", cache_control=EPHEMERAL)
REPLACE: list[tuple[str, Any, BlockPath, str, Any]] = [
    ("words", {"role": "user", "content": "a"}, C, "b", {"role": "user", "content": "b"}),
    (
        "a marked part",
        {"role": "user", "content": [WITH_BREAKPOINT, IMAGE]},
        ("content", 0),
        "b",
        {"role": "user", "content": [text("b", cache_control=EPHEMERAL), IMAGE]},
    ),
    (
        "a refusal",
        assistant([{"type": "refusal", "refusal": "no"}]),
        ("content", 0),
        "b",
        assistant([{"type": "refusal", "refusal": "b"}]),
    ),
    (
        "arguments",
        assistant(None, call("a"), call("b")),
        ("tool_calls", 1),
        "{}",
        assistant(None, call("a"), call("b", arguments="{}")),
    ),
    (
        "free text",
        assistant(None, custom("a", "x")),
        ("tool_calls", 0),
        "{}",
        assistant(None, custom("a", "{}")),
    ),
    (
        "legacy arguments",
        assistant(None, function_call={"name": "f", "arguments": "x"}),
        ("function_call",),
        "{}",
        assistant(None, function_call={"name": "f", "arguments": "{}"}),
    ),
    (
        "a call without a body",
        assistant(None, {"id": "a"}),
        ("tool_calls", 0),
        "{}",
        assistant(None, {"id": "a"}),
    ),
    ("a result", tool("a", "r", name="f"), C, "s", tool("a", "s", name="f")),
    ("a null result", tool("a", None), C, "s", tool("a", "s")),
    (
        "a result in parts keeps its mark and its media",
        tool("a", [IMAGE, text("r"), FUTURE, text("s", cache_control=EPHEMERAL)]),
        C,
        "t",
        tool("a", [IMAGE, text("t", cache_control=EPHEMERAL), FUTURE]),
    ),
    ("a result without text", tool("a", [IMAGE]), C, "t", tool("a", [text("t"), IMAGE])),
    (
        "a picture in a result keeps its mark",
        tool("a", [text("r"), {**IMAGE, "cache_control": EPHEMERAL}]),
        ("content", 1),
        "t",
        tool("a", [text("r"), text("t", cache_control=EPHEMERAL)]),
    ),
    (
        "the marker of a picture in a result stays",
        tool("a", [text("r"), text(STAND_IN), text("s")]),
        C,
        "t",
        tool("a", [text("t"), text(STAND_IN)]),
    ),
    (
        "what the model spoke stays",
        assistant(None, audio={"id": "audio_1", "transcript": "a"}),
        ("audio",),
        "t",
        assistant(None, audio={"id": "audio_1", "transcript": "a"}),
    ),
    (
        "reasoning",
        assistant("x", reasoning="long"),
        ("reasoning",),
        "b",
        assistant("x", reasoning="b"),
    ),
    (
        "reasoning details",
        assistant("x", reasoning_details=[{"type": "reasoning.text", "text": "long"}]),
        ("reasoning_details",),
        "b",
        assistant("x", reasoning_details=[{"type": "reasoning.text", "text": "b"}]),
    ),
]


@pytest.mark.parametrize(
    ("name", "message", "path", "said", "expected"), REPLACE, ids=[row[0] for row in REPLACE]
)
def test_replace(name: str, message: Any, path: BlockPath, said: str, expected: Any) -> None:
    before = copy.deepcopy(message)
    assert CODEC.replace(message, part_at(message, *path), said) == expected
    assert message == before


def test_replace_shares_what_it_does_not_touch() -> None:
    message = assistant([text("x")], call("a"), call("b"))
    new = CODEC.replace(message, part_at(message, "tool_calls", 1), "{}")
    assert new["content"] is message["content"]
    assert new["tool_calls"][0] is message["tool_calls"][0]
    answer = tool("a", [text("r"), IMAGE])
    assert CODEC.replace(answer, part_at(answer, "content"), "s")["content"][1] is IMAGE


BOTH = assistant("words", call("a"), call("b"), reasoning_content="think")
REMOVE: list[tuple[str, Any, list[BlockPath], Any]] = [
    (
        "one call",
        BOTH,
        [("tool_calls", 0)],
        assistant("words", call("b"), reasoning_content="think"),
    ),
    (
        "all calls: the key goes, words and reasoning stay",
        BOTH,
        [("tool_calls", 0), ("tool_calls", 1)],
        assistant("words", reasoning_content="think"),
    ),
    (
        "words beside calls: null",
        BOTH,
        [C],
        assistant(None, call("a"), call("b"), reasoning_content="think"),
    ),
    (
        "words and calls: reasoning does not stay alone",
        BOTH,
        [C, ("tool_calls", 0), ("tool_calls", 1)],
        None,
    ),
    ("reasoning", BOTH, [("reasoning_content",)], assistant("words", call("a"), call("b"))),
    ("calls beside null", assistant(None, call("a")), [("tool_calls", 0)], None),
    ("calls beside an empty string", assistant("", call("a")), [("tool_calls", 0)], None),
    (
        "a legacy call",
        assistant(None, function_call={"name": "f", "arguments": ""}),
        [("function_call",)],
        None,
    ),
    (
        "one part",
        {"role": "user", "content": [text("a"), text("b")]},
        [("content", 0)],
        {"role": "user", "content": [text("b")]},
    ),
    ("all parts", {"role": "user", "content": [text("a")]}, [("content", 0)], None),
    (
        "all parts beside a call",
        assistant([text("a")], call("a")),
        [("content", 0)],
        assistant(None, call("a")),
    ),
    ("a result goes whole", tool("a", [text("r"), IMAGE]), [C], None),
    ("a legacy result goes whole", {"role": "function", "name": "f", "content": "r"}, [C], None),
    ("media of a result", tool("a", [text("r"), IMAGE]), [("content", 1)], tool("a", [text("r")])),
    ("all media of a result", tool("a", [IMAGE]), [("content", 0)], tool("a", "")),
    ("no message at all", "junk", [()], None),
    (
        "words, and a refusal stays",
        assistant("x", refusal="no"),
        [C],
        assistant(None, refusal="no"),
    ),
]


@pytest.mark.parametrize(
    ("name", "message", "paths", "expected"), REMOVE, ids=[row[0] for row in REMOVE]
)
def test_remove(name: str, message: Any, paths: list[BlockPath], expected: Any) -> None:
    before = copy.deepcopy(message)
    left = CODEC.remove(message, [part_at(message, *path) for path in paths])
    assert left == expected
    assert message == before
    if isinstance(left, dict) and isinstance(message, dict):
        assert [key for key in message if key in left] == list(left)


def test_remove_shares_what_it_does_not_touch() -> None:
    left = CODEC.remove(BOTH, [part_at(BOTH, "tool_calls", 0)])
    assert left is not None
    assert left["tool_calls"][0] is BOTH["tool_calls"][1]


PLACED: list[tuple[str, Any, BlockPath, Any, Any]] = [
    (
        "words become a part",
        {"role": "user", "content": "a"},
        C,
        EPHEMERAL,
        {"role": "user", "content": [WITH_BREAKPOINT]},
    ),
    (
        "a part",
        {"role": "user", "content": [text("a"), text("b")]},
        ("content", 1),
        BREAKPOINT,
        {"role": "user", "content": [text("a"), text("b", prompt_cache_breakpoint=BREAKPOINT)]},
    ),
    (
        "a result",
        tool("a", "r"),
        C,
        BREAKPOINT,
        tool("a", [text("r", prompt_cache_breakpoint=BREAKPOINT)]),
    ),
    (
        "the last part of a result",
        tool("a", [text("r"), text("s")]),
        C,
        EPHEMERAL,
        tool("a", [text("r"), text("s", cache_control=EPHEMERAL)]),
    ),
    ("nothing to mark", tool("a", ""), C, EPHEMERAL, tool("a", "")),
    ("no part to mark", tool("a", []), C, EPHEMERAL, tool("a", [])),
    (
        "a call: its message",
        assistant(None, call("a")),
        ("tool_calls", 0),
        EPHEMERAL,
        assistant(None, call("a"), cache_control=EPHEMERAL),
    ),
    (
        "no breakpoint on a call",
        assistant(None, call("a")),
        ("tool_calls", 0),
        BREAKPOINT,
        assistant(None, call("a")),
    ),
    ("no breakpoint on the model's words", assistant("x"), C, BREAKPOINT, assistant("x")),
    ("no message at all", 3, (), EPHEMERAL, 3),
]


@pytest.mark.parametrize(
    ("name", "message", "path", "control", "expected"), PLACED, ids=[row[0] for row in PLACED]
)
def test_mark(name: str, message: Any, path: BlockPath, control: Any, expected: Any) -> None:
    assert CODEC.place_breakpoint(message, part_at(message, *path), control) == expected


def test_two_turns_of_the_model_become_one() -> None:
    one, two = assistant("a", reasoning_content="x"), assistant("b", call("c"))
    assert CODEC.join(one, two) == [assistant("a\n\nb", call("c"), reasoning_content="x")]
    assert CODEC.join(assistant(None), two) == [assistant("b", call("c"))]
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert CODEC.join(assistant(parts[:1]), two) == [assistant(parts, call("c"))]
    assert CODEC.join(two, one) is None
    assert CODEC.join({"role": "user", "content": "a"}, one) is None
    assert CODEC.unbind(one) is one


contents = st.sampled_from([None, "", "a", "b\n", [], [text("c")], [text("d"), text("e")]])
turns = st.fixed_dictionaries(
    {"role": st.just("assistant")},
    optional={"content": contents, "refusal": st.text(), "reasoning": st.text()},
)


@given(st.lists(turns, min_size=2, max_size=6), st.booleans())
def test_a_run_becomes_what_its_turns_become_one_by_one(run: list[Any], calls: bool) -> None:
    run = [*run, assistant("so", call("c"))] if calls else run
    whole = run[0]
    for turn in run[1:]:
        (whole,) = CODEC.join(whole, turn) or [None]
    assert json.dumps(CODEC.merge(run)) == json.dumps(whole), "the order of keys counts too"


def test_only_assistant_messages_are_the_models() -> None:
    assert CODEC.is_model_made(assistant("x"))
    for message in ({"role": "user"}, tool("a", "b"), {}, "assistant", None, {"role": []}):
        assert not CODEC.is_model_made(message)


@given(arbitrary_json_messages() | st.lists(arbitrary_json(20), max_size=2))
def test_nothing_raises_on_any_json(messages: list[Any]) -> None:
    for row, message in enumerate(messages):
        parts = CODEC.decode(row, message)
        CODEC.is_model_made(message)
        for part in parts:
            CODEC.remove(message, [part])
            CODEC.place_breakpoint(message, part, EPHEMERAL)
            CODEC.place_breakpoint(message, part, BREAKPOINT)
            if part.kind in ("text", "call", "result", "reasoning"):
                CODEC.replace(message, part, "{}")
        CODEC.remove(message, parts)


def test_ten_thousand_calls_are_read_and_removed_in_one_go() -> None:
    message = assistant(None, *(call(f"c{i}") for i in range(10_000)))
    parts = CODEC.decode(0, message)
    assert len(parts) == 10_000
    assert parts[-1].ref == Ref(0, ("tool_calls", 9_999))
    left = CODEC.remove(message, parts[1:])
    assert left is not None
    assert left["tool_calls"] == [message["tool_calls"][0]]
