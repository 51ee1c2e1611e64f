"""The Anthropic Messages codec: decoding and edits."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.providers.anthropic.codec import AnthropicCodec, is_server_result
from respool.providers.attachments import replace_text_items
from respool.transcript import Part
from tests.strategies import arbitrary_json, arbitrary_json_messages

CODEC = AnthropicCodec()
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
)
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
STAND_IN = "[respool: 1 image left out; ref bbidnwiqv5awc2eneyyx]"
LINK = {"type": "image", "source": {"type": "url", "url": "https://pics.example/1.png"}}
PDF = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjEK"},
}
PLAIN = {
    "type": "document",
    "source": {"type": "text", "media_type": "text/plain", "data": "red thread"},
    "title": "T",
}
NESTED = {"type": "document", "source": {"type": "content", "content": "in blocks"}}
FUTURE = {"type": "future_gesture", "text": "not ours", "strokes": [1]}
REFERENCE = {"type": "tool_reference", "tool_name": "grep"}
EPHEMERAL = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "x" * 80}
COMPACTION = {"type": "compaction", "content": "what happened", "signature": "s"}
ADDITION = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "grep"}}
SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "q"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"url": "u"}]}
ASKED = {"type": "mcp_tool_use", "id": "mcp_1", "name": "notes", "server_name": "n", "input": {}}
TOLD = {"type": "mcp_tool_result", "tool_use_id": "mcp_1", "content": [{"type": "text"}]}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def use(id: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "read", "input": {"path": "a"}, **more}


def result(id: str, content: Any = "r", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


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


BOUND = {
    "type": "document",
    "source": {"type": "content", "content": [text("one"), IMAGE, text("two")]},
}
C = ("content",)
C0, C1, C2 = ("content", 0), ("content", 1), ("content", 2)
READ: list[tuple[str, Any, list[tuple[Any, ...]]]] = [
    ("a string", {"role": "user", "content": "hi"}, [(C, "text", "user", "hi")]),
    ("an empty string", {"role": "user", "content": ""}, []),
    ("null", {"role": "assistant", "content": None}, []),
    ("no content", {"role": "user"}, []),
    ("odd content", {"role": "user", "content": {"a": 1}}, [(C, "opaque", "user", '{"a":1}')]),
    ("not an object", "hello", [((), "opaque", "user", "hello")]),
    ("a null message", None, [((), "opaque", "user", "null")]),
    ("an unknown role", {"role": "critic", "content": "x"}, [(C, "text", "user", "x")]),
    ("a role that is a list", {"role": [], "content": "x"}, [(C, "text", "user", "x")]),
    ("a system message", {"role": "system", "content": "s"}, [(C, "text", "system", "s")]),
    (
        "system blocks",
        {"role": "system", "content": [text("s"), ADDITION]},
        [
            (C0, "text", "system", "s"),
            (
                C1,
                "opaque",
                "system",
                '{"type":"tool_addition","tool":{"type":"tool_reference","name":"grep"}}',
            ),
        ],
    ),
    ("effort only", {"role": "system", "output_config": {"effort": "low"}}, []),
    (
        "words and what is no block",
        user(text("a"), "b", None, {"type": "text", "text": 3}, {"type": []}),
        [
            (C0, "text", "user", "a"),
            (C1, "opaque", "user", "b"),
            (C2, "opaque", "user", "null"),
            (("content", 3), "text", "user", ""),
            (("content", 4), "opaque", "user", '{"type":[]}'),
        ],
    ),
    (
        "a turn with everything",
        assistant(THINKING, REDACTED, text("on it"), use("a")),
        [
            (C0, "reasoning", "model", "hm"),
            (C1, "reasoning", "model", ""),
            (C2, "text", "model", "on it"),
            (("content", 3), "call", "model", '{"path":"a"}', "read", "a"),
        ],
    ),
    (
        "a call with nothing right about it",
        assistant({"type": "tool_use", "id": 7, "name": None, "input": "x"}),
        [(C0, "call", "model", "x")],
    ),
    (
        "server-side tools",
        assistant(SEARCH, FOUND, ASKED, TOLD),
        [
            (C0, "call", "model", '{"query":"q"}', "web_search", "srv_1"),
            (C1, "result", "model", '[{"url":"u"}]', "srv_1"),
            (C2, "call", "model", "{}", "notes", "mcp_1"),
            (("content", 3), "result", "model", '[{"type":"text"}]', "mcp_1"),
        ],
    ),
    ("a result", user(result("a")), [(C0, "result", "tool", "r", "a")]),
    (
        "a result without content",
        user({"type": "tool_result", "tool_use_id": "a"}),
        [(C0, "result", "tool", "", "a")],
    ),
    ("a null result", user(result("a", None)), [(C0, "result", "tool", "", "a")]),
    ("an odd result", user(result("a", {"n": 1})), [(C0, "result", "tool", '{"n":1}', "a")]),
    (
        "a result in blocks",
        user(result("a", [text("r"), text("s")])),
        [(C0, "result", "tool", "r\ns", "a")],
    ),
    (
        "a result with media and the unknown",
        user(result("a", [IMAGE, text("r"), PLAIN, FUTURE, "junk", REFERENCE])),
        [
            (C0, "result", "tool", "r", "a"),
            ((*C0, "content", 0), "media", "tool", ""),
            ((*C0, "content", 2), "media", "tool", "red thread"),
            (
                (*C0, "content", 3),
                "opaque",
                "tool",
                '{"type":"future_gesture","text":"not ours","strokes":[1]}',
            ),
            ((*C0, "content", 4), "opaque", "tool", "junk"),
            ((*C0, "content", 5), "opaque", "tool", '{"type":"tool_reference","tool_name":"grep"}'),
        ],
    ),
    (
        "documents",
        user(PDF, PLAIN, NESTED),
        [
            (C0, "media", "user", ""),
            (C1, "media", "user", "red thread"),
            (C2, "media", "user", "in blocks"),
        ],
    ),
    (
        "a compaction",
        assistant(COMPACTION),
        [
            (
                C0,
                "opaque",
                "model",
                '{"type":"compaction","content":"what happened","signature":"s"}',
            )
        ],
    ),
]


@pytest.mark.parametrize(("name", "message", "expected"), READ, ids=[row[0] for row in READ])
def test_every_shape_is_read(name: str, message: Any, expected: list[tuple[Any, ...]]) -> None:
    assert told(message) == expected


def test_what_a_part_carries_beside_its_text() -> None:
    thinking, redacted, search, found = parts_of(assistant(THINKING, REDACTED, SEARCH, FOUND))
    assert thinking.signed
    assert (redacted.signed, redacted.weight) == (True, 10)
    assert search.server
    assert found.server
    failed, fine = parts_of(user(result("a", is_error=True), result("b", is_error=False)))
    assert (failed.error, fine.error) == (True, False)
    assert not parts_of(assistant(use("a")))[0].server


@pytest.mark.parametrize("block", [IMAGE, LINK, PDF, {"type": "image"}, {"type": "document"}])
def test_media_weigh_something(block: dict[str, Any]) -> None:
    (part,) = parts_of(user(block))
    assert (part.kind, part.text) == ("media", "")
    assert part.weight > 0


def test_a_document_of_blocks_counts_by_them() -> None:
    (image,) = parts_of(user(IMAGE))
    (document,) = parts_of(user(BOUND))
    assert (document.kind, document.text) == ("media", "one\ntwo")
    assert document.weight == image.weight
    (inner,) = parts_of(user(result("a", [BOUND])))[1:]
    assert (inner.text, inner.weight) == (document.text, document.weight)
    odd = {"type": "document", "source": {"type": "content", "content": [3, {"type": "x" * 80}]}}
    (part,) = parts_of(user(odd))
    assert part.text == ""
    assert 20 <= part.weight <= 30


def test_head_holds_system_and_tools() -> None:
    fields = {"system": [text("s"), {"type": "text"}, "t", 3], "tools": [{"name": "read"}]}
    assert [part.text for part in CODEC.decode_head(fields)] == ["s", "t", '{"name":"read"}']
    assert [part.text for part in CODEC.decode_head({"system": "s"})] == ["s"]
    assert CODEC.decode_head({"system": {"text": 3}, "tools": 3}) == []


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("web_search_tool_result", True), ("tool_result", False), (None, False), ([], False)],
)
def test_results_of_server_side_tools(kind: object, expected: bool) -> None:
    assert is_server_result(kind) is expected


REPLACE: list[tuple[str, Any, tuple[str | int, ...], str, Any]] = [
    ("a string", {"role": "user", "content": "a"}, C, "b", {"role": "user", "content": "b"}),
    (
        "marked words",
        user(text("a", cache_control=EPHEMERAL, citations=None), IMAGE),
        C0,
        "b",
        user(text("b", cache_control=EPHEMERAL, citations=None), IMAGE),
    ),
    ("arguments", assistant(use("a"), use("b")), C1, "{}", assistant(use("a"), use("b", input={}))),
    (
        "a result keeps mark and error",
        user(result("a", cache_control=EPHEMERAL, is_error=True)),
        C0,
        "s",
        user(result("a", "s", cache_control=EPHEMERAL, is_error=True)),
    ),
    (
        "a result without content",
        user({"type": "tool_result", "tool_use_id": "a"}),
        C0,
        "s",
        user(result("a", "s")),
    ),
    (
        "a result in blocks keeps inner marks, media and the unknown",
        user(result("a", [IMAGE, text("r"), FUTURE, text("s", cache_control=EPHEMERAL)])),
        C0,
        "t",
        user(result("a", [IMAGE, text("t", cache_control=EPHEMERAL), FUTURE])),
    ),
    (
        "a result without text",
        user(result("a", [IMAGE])),
        C0,
        "t",
        user(result("a", [text("t"), IMAGE])),
    ),
    ("an empty result", user(result("a", [])), C0, "t", user(result("a", [text("t")]))),
    (
        "a plain document",
        user(PLAIN),
        C0,
        "b",
        user({**PLAIN, "source": {"type": "text", "media_type": "text/plain", "data": "b"}}),
    ),
    (
        "a document of blocks",
        user(NESTED),
        C0,
        "b",
        user({"type": "document", "source": {"type": "content", "content": "b"}}),
    ),
    (
        "a document with pictures",
        user(BOUND),
        C0,
        "b",
        user({"type": "document", "source": {"type": "content", "content": [text("b"), IMAGE]}}),
    ),
    (
        "a document inside a result",
        user(result("a", [text("r"), PLAIN])),
        (*C0, "content", 1),
        "b",
        user(
            result(
                "a",
                [
                    text("r"),
                    {**PLAIN, "source": {"type": "text", "media_type": "text/plain", "data": "b"}},
                ],
            )
        ),
    ),
    ("a picture", user(IMAGE), C0, "b", user(text("b"))),
    ("a picture behind a link", user(text("a"), LINK), C1, "b", user(text("a"), text("b"))),
    (
        "a picture keeps its mark",
        user({**IMAGE, "cache_control": EPHEMERAL}),
        C0,
        "b",
        user(text("b", cache_control=EPHEMERAL)),
    ),
    ("a PDF", user(PDF), C0, "b", user(text("b"))),
    (
        "a picture inside a result",
        user(result("a", [text("r"), IMAGE, text("s")])),
        (*C0, "content", 1),
        "b",
        user(result("a", [text("r"), text("b"), text("s")])),
    ),
    (
        "the marker of a picture in a result stays",
        user(result("a", [text("r"), text(STAND_IN), text("s")])),
        C0,
        "t",
        user(result("a", [text("t"), text(STAND_IN)])),
    ),
    (
        "a result with nothing but the marker of a picture",
        user(result("a", [text(STAND_IN)])),
        C0,
        "t",
        user(result("a", [text("t"), text(STAND_IN)])),
    ),
    ("a string is a result's words", user(result("a", STAND_IN)), C0, "t", user(result("a", "t"))),
    ("thinking stays", assistant(THINKING), C0, "b", assistant(THINKING)),
    ("a server-side result stays", assistant(SEARCH, FOUND), C1, "b", assistant(SEARCH, FOUND)),
    ("a server-side call stays", assistant(SEARCH, FOUND), C0, "{}", assistant(SEARCH, FOUND)),
    ("the unknown stays", user(FUTURE), C0, "b", user(FUTURE)),
    ("what is no block stays", user("x"), C0, "b", user("x")),
]


@pytest.mark.parametrize(
    ("name", "message", "path", "said", "expected"), REPLACE, ids=[row[0] for row in REPLACE]
)
def test_replace(
    name: str, message: Any, path: tuple[str | int, ...], said: str, expected: Any
) -> None:
    before = copy.deepcopy(message)
    new = CODEC.replace(message, part_at(message, *path), said)
    assert new == expected
    assert message == before
    if expected == before:
        assert new is message


def test_replace_shares_what_it_does_not_touch() -> None:
    message = assistant(THINKING, use("a"), use("b"))
    new = CODEC.replace(message, part_at(message, "content", 2), '{"path":"z"}')
    assert new["content"][0] is THINKING
    assert new["content"][1] is message["content"][1]
    answer = user(result("a", [text("r"), IMAGE]), result("b"))
    new = CODEC.replace(answer, part_at(answer, *C0), "s")
    assert new["content"][0]["content"][1] is IMAGE
    assert new["content"][1] is answer["content"][1]


def test_one_object_twice_is_replaced_once() -> None:
    same = text("r")
    assert replace_text_items([same, same], "t", "text") == [text("t")]


def test_many_items_are_replaced_in_linear_time() -> None:
    items = [text(str(n)) for n in range(50_000)]
    assert replace_text_items([*items, IMAGE], "t", "text") == [text("t"), IMAGE]


REMOVE: list[tuple[str, Any, list[tuple[str | int, ...]], Any]] = [
    ("one call", assistant(text("x"), use("a"), use("b")), [C1], assistant(text("x"), use("b"))),
    ("thinking", assistant(THINKING, use("a")), [C0], assistant(use("a"))),
    ("everything", assistant(use("a")), [C0], None),
    ("a string", {"role": "user", "content": "x"}, [C], None),
    (
        "a picture in a result",
        user(result("a", [text("r"), IMAGE])),
        [(*C0, "content", 1)],
        user(result("a", [text("r")])),
    ),
    (
        "all of a result's content",
        user(result("a", [IMAGE])),
        [(*C0, "content", 0)],
        user(result("a", [])),
    ),
    (
        "a result with its picture",
        user(result("a", [IMAGE]), text("x")),
        [C0, (*C0, "content", 0)],
        user(text("x")),
    ),
    ("no message at all", "junk", [()], None),
]


@pytest.mark.parametrize(
    ("name", "message", "paths", "expected"), REMOVE, ids=[row[0] for row in REMOVE]
)
def test_remove(name: str, message: Any, paths: list[tuple[str | int, ...]], expected: Any) -> None:
    before = copy.deepcopy(message)
    left = CODEC.remove(message, [part_at(message, *path) for path in paths])
    assert left == expected
    assert message == before


def test_remove_shares_what_it_does_not_touch() -> None:
    message = assistant(text("x", cache_control=EPHEMERAL), use("a"), use("b"))
    left = CODEC.remove(message, [part_at(message, *C1)])
    assert left is not None
    assert left["content"][0] is message["content"][0]
    assert left["content"][1] is message["content"][2]


PLACED: list[tuple[str, Any, tuple[str | int, ...], Any]] = [
    (
        "a string becomes a block",
        {"role": "user", "content": "a"},
        C,
        user(text("a", cache_control=HOUR)),
    ),
    ("a block", user(text("a"), text("b")), C1, user(text("a"), text("b", cache_control=HOUR))),
    (
        "a marked block",
        user(text("a", cache_control=EPHEMERAL)),
        C0,
        user(text("a", cache_control=HOUR)),
    ),
    ("a result", user(result("a", [IMAGE])), C0, user(result("a", [IMAGE], cache_control=HOUR))),
    (
        "a picture in a result marks the result",
        user(result("a", [IMAGE])),
        (*C0, "content", 0),
        user(result("a", [IMAGE], cache_control=HOUR)),
    ),
    ("a call", assistant(use("a")), C0, assistant(use("a", cache_control=HOUR))),
    ("thinking carries none", assistant(THINKING), C0, assistant(THINKING)),
    ("nor what is no block", user("x"), C0, user("x")),
    (
        "nor odd content",
        {"role": "user", "content": {"a": 1}},
        C,
        {"role": "user", "content": {"a": 1}},
    ),
    ("nor what is no message", 3, (), 3),
]


@pytest.mark.parametrize(
    ("name", "message", "path", "expected"), PLACED, ids=[row[0] for row in PLACED]
)
def test_mark(name: str, message: Any, path: tuple[str | int, ...], expected: Any) -> None:
    assert CODEC.place_breakpoint(message, part_at(message, *path), HOUR) == expected


def test_neighbours_and_unbound_messages_stay_as_they_are() -> None:
    one, two = assistant(THINKING, use("a")), assistant(text("x"))
    assert CODEC.join(one, two) is None
    assert CODEC.unbind(one) is one
    assert not CODEC.has_locked_calls(parts_of(one))


def test_only_assistant_messages_are_the_models() -> None:
    assert CODEC.is_model_made(assistant())
    for message in ({"role": "user"}, {}, "assistant", None, {"role": []}):
        assert not CODEC.is_model_made(message)


@given(arbitrary_json_messages() | st.lists(arbitrary_json(20), max_size=2))
def test_nothing_raises_on_any_json(messages: list[Any]) -> None:
    for row, message in enumerate(messages):
        CODEC.is_model_made(message)
        for part in CODEC.decode(row, message):
            CODEC.remove(message, [part])
            CODEC.place_breakpoint(message, part, EPHEMERAL)
            if part.ref.path:
                CODEC.replace(message, part, "{}")


@given(arbitrary_json(10))
def test_no_head_raises(fields: Any) -> None:
    CODEC.decode_head(fields if isinstance(fields, dict) else {"system": fields, "tools": fields})
