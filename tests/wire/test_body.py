"""Round trips of request bodies: unchanged messages keep bytes or identity."""

from __future__ import annotations

import json
from functools import reduce
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import respool
from respool.engine import build_compaction, complete_fields, fold_request
from respool.errors import PassedThrough, UnreadableRequest
from respool.facts import Facts
from respool.policy import Policy
from respool.wire.base import NewMessage, SourceRun
from respool.wire.body import BytesBody, read_body
from tests.laws.sessions import long_session
from tests.strategies import arbitrary_json

EPHEMERAL = {"type": "ephemeral"}
MESSAGES: list[Any] = [
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": [{"type": "text", "text": 'say "messages": [1, 2]'}]},
    {
        "role": "user",
        "content": [{"type": "text", "text": "größe", "cache_control": EPHEMERAL}],
    },
]
REQUEST = {
    "model": "claude-opus-5-5",
    "system": 'You write "messages": [{"role":"user"}] all day.',
    "tools": [
        {"name": "send", "input_schema": {"properties": {"messages": [1]}}, "messages": [{}]}
    ],
    "messages": MESSAGES,
    "stream": True,
}
STYLES: dict[str, dict[str, Any]] = {
    "compact": {"separators": (",", ":")},
    "spaced": {},
    "indented": {"indent": 4},
    "odd": {"separators": ("\r\n\t, ", " : ")},
    "escaped": {"ensure_ascii": True},
}


def written(value: Any, style: str) -> bytes:
    return json.dumps(value, **{"ensure_ascii": False, **STYLES[style]}).encode()


def whole(body: Any) -> Any:
    return body.splice([SourceRun(0, len(body))] if len(body) else [])


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    "request_",
    [REQUEST, MESSAGES, dict(reversed(REQUEST.items()))],
    ids=["request", "list", "reversed"],
)
def test_bytes_and_text_come_back_as_they_were(request_: Any, style: str) -> None:
    raw = written(request_, style)
    body = read_body(raw)
    assert whole(body) == raw
    assert [body.message(at) for at in range(len(body))] == MESSAGES
    told = read_body(raw.decode())
    assert whole(told) == raw.decode()
    if isinstance(request_, dict):
        assert body.fields is not None
        assert {key: body.fields.get(key) for key in REQUEST if key != "messages"} == {
            key: value for key, value in REQUEST.items() if key != "messages"
        }
        assert body.history_field == "messages"
    else:
        assert body.history_field is None
        assert body.fields is None


def test_objects_come_back_as_they_were() -> None:
    again = whole(read_body(REQUEST))
    assert again == REQUEST
    assert list(again) == list(REQUEST)
    assert all(new is old for new, old in zip(again["messages"], MESSAGES, strict=True))
    assert whole(read_body(MESSAGES)) == MESSAGES


@pytest.mark.parametrize("style", STYLES)
def test_a_changed_message_leaves_its_neighbours_alone(style: str) -> None:
    raw = written(REQUEST, style)
    body = read_body(raw)
    new = {"role": "user", "content": "x"}
    out = body.splice([SourceRun(0, 1), NewMessage(1, new), SourceRun(2, 3)])
    before, after = written(MESSAGES[1], "compact"), msgspec.json.encode(new)
    assert msgspec.json.decode(out) == {**REQUEST, "messages": [MESSAGES[0], new, MESSAGES[2]]}
    if style == "compact":
        assert out == raw.replace(before, after)
    else:
        start = out.index(after)
        assert raw.startswith(out[:start])
        assert raw.endswith(out[start + len(after) :])


MIXED = b'{ "messages" :[ {"a":1} ,{"b":"]}"},\n\n\t{"c":[1,2]},  "d" , null,3,4.5,true ] , "x":1 }'


def test_mixed_separators_stay() -> None:
    body = read_body(MIXED)
    assert len(body) == 8
    assert whole(body) == MIXED
    assert body.splice([SourceRun(0, 2), NewMessage(2, "new"), SourceRun(3, 8)]) == MIXED.replace(
        b'{"c":[1,2]}', b'"new"'
    )
    assert (
        body.splice([SourceRun(0, 1), SourceRun(7, 8)])
        == b'{ "messages" :[ {"a":1} ,true ] , "x":1 }'
    )
    assert body.splice([]) == b'{ "messages" :[  ] , "x":1 }'


@pytest.mark.parametrize(
    "raw",
    [b"[11, 22,33,  44]", b'[{"a":1}, {"b":"{{{{"},{"c":2},  {"d":3}]', b"[1 ,2, 3,4 ,5]"],
)
def test_separators_that_only_add_up_are_not_taken_for_even(raw: bytes) -> None:
    body = read_body(raw)
    values = msgspec.json.decode(raw)
    for at in range(len(body)):
        assert msgspec.json.decode(body.splice([SourceRun(at, at + 1)])) == [values[at]]


@given(
    st.lists(arbitrary_json(4), min_size=1, max_size=6),
    st.lists(st.sampled_from(["", " ", "\n", "\t  "]), min_size=14, max_size=14),
)
def test_every_message_is_found_whatever_stands_between(items: list[Any], gaps: list[str]) -> None:
    told = [gaps[k] + json.dumps(item) + gaps[-1 - k] for k, item in enumerate(items)]
    raw = (
        '{"a":{"messages":[' + ",".join(told) + ']},"messages":[' + ",".join(told) + "]}"
    ).encode()
    body = read_body(raw)
    assert whole(body) == raw
    for at in range(len(items)):
        out = msgspec.json.decode(body.splice([SourceRun(at, at + 1)]))
        assert out == {"a": {"messages": items}, "messages": [items[at]]}


DECOYS = [
    b'{"tools":[{"messages":[1,2]}],"messages":[1,2]}',
    b'{"messages":[1,2],"metadata":{"messages":[1,2]}}',
    b'{"metadata":{"messages": [1,2]}, "messages":[1,2], "x":{"messages":[1,2]}}',
    b'{"system":"\\"messages\\":[1,2]","messages":[1,2]}',
    b'{"a":"messages","messages" : [1,2]}',
    b'{"messages":[0],"messages":[1,2]}',
    b'{"messages":[1,2],"messages":[1,2]}',
]


@pytest.mark.parametrize("raw", DECOYS)
def test_the_history_is_the_one_that_decoders_see(raw: bytes) -> None:
    body = read_body(raw)
    before = msgspec.json.decode(raw)
    assert msgspec.json.decode(body.splice([SourceRun(1, 2)])) == {**before, "messages": [2]}


@pytest.mark.parametrize(
    "raw", [rb'{"m\u0065ssages":[1]}', rb'{"m\u0065ssages":[1],"x":{"messages":[1]}}']
)
def test_a_history_under_an_escaped_name_is_passed_through(raw: bytes) -> None:
    with pytest.raises(PassedThrough):
        read_body(raw)


def test_spelling_of_untouched_blocks_stays_in_a_touched_message() -> None:
    digits = b"7" * 400
    odd = (
        rb'{"n":1E5,"z":-0.0,"s":"\u00e9\/\ud83d\ude00","big":'
        + digits
        + rb',"o":{"a" : [ 1 , 2 ]}}'
    )
    raw = b'[{"role":"user","content":[' + odd + b', {"type":"text","text":"old"}]}]'
    body = read_body(raw)
    message = body.message(0)
    blocks = [message["content"][0], {**message["content"][1], "text": "new"}]
    new = {**message, "content": blocks}
    out = body.splice([NewMessage(0, new)])
    assert out == b'[{"role":"user","content":[' + odd + b',{"type":"text","text":"new"}]}]'
    fewer = {**message, "content": [message["content"][0]]}
    assert body.splice([NewMessage(0, fewer)]) == b'[{"role":"user","content":[' + odd + b"]}]"
    more = {**message, "content": [{"type": "text", "text": "x"}, *message["content"]]}
    assert odd in body.splice([NewMessage(0, more)])


def test_the_same_value_spelled_twice_keeps_both_spellings() -> None:
    body = read_body(b'[{"content":[0,-0,{"a":1}]}]')
    message = body.message(0)
    new = {"content": [*message["content"][:2], {"a": 2}]}
    assert body.splice([NewMessage(0, new)]) == b'[{"content":[0,-0,{"a":2}]}]'


BAD: list[tuple[str, Any]] = [
    ("malformed", b'{"messages":[1,]}'),
    ("cut off", b'{"messages":[{"role":"us'),
    ("trailing", b'{"messages":[1]} x'),
    ("nothing", b""),
    ("white space", " \n"),
    ("a number", b"3"),
    ("no history", b'{"model":"x"}'),
    ("no history in a dict", {"model": "x"}),
    ("history is an object", b'{"messages":{}}'),
    ("history is an object in a dict", {"messages": {}}),
    ("byte order mark", b'\xef\xbb\xbf{"messages":[1]}'),
    ("NaN", b'{"messages":[{"a":NaN}]}'),
    ("NaN beside", b'{"x":NaN,"messages":[1]}'),
    ("lone surrogate escaped", rb'{"messages":["\ud800"]}'),
    ("lone surrogate in text", '{"messages":["\ud800"]}'),
    ("deep", b'{"messages":[' + b"[" * 10_000 + b"]" * 10_000 + b"]}"),
    ("deep objects", b"[" + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"]"),
    ("deep beside", b'{"x":' + b"[" * 10_000 + b"]" * 10_000 + b',"messages":[1]}'),
    ("a number as request", 3),
    ("none", None),
]


@pytest.mark.parametrize(("name", "request_"), BAD, ids=[row[0] for row in BAD])
def test_what_cannot_be_read_is_told(name: str, request_: Any) -> None:
    with pytest.raises(UnreadableRequest) as told:
        read_body(request_)
    assert len(str(told.value)) > 10


@pytest.mark.parametrize(
    "raw",
    [b'{"messages":["\xff"]}', b'{"messages":[1e999]}', b'{"messages":[' + b"7" * 5000 + b"]}"],
)
def test_a_message_that_cannot_be_read_is_told(raw: bytes) -> None:
    body = read_body(raw)
    assert whole(body) == raw
    with pytest.raises(UnreadableRequest):
        body.message(0)


def test_a_field_that_cannot_be_read_is_told() -> None:
    fields = read_body(b'{"messages":[1],"model":"\xff","x":1}').fields
    assert fields is not None
    assert fields.get("x") == 1
    with pytest.raises(UnreadableRequest):
        fields.get("model")


@pytest.mark.parametrize("given", ["bytes", "text", "objects"])
def test_fields_are_read_where_the_model_stands_elsewhere(given: str) -> None:
    request: dict[str, Any] = {
        "contents": [{"role": "user", "parts": [{"text": "hello"}]}],
        "tools": [{"functionDeclarations": [{"name": "respool_expand"}]}],
        "generationConfig": {"maxOutputTokens": 8_192},
    }
    text = json.dumps(request)
    body = read_body({"bytes": text.encode(), "text": text, "objects": request}[given])
    for model in ("gemini-3-pro", "gemini-3-flash", "gemini-3-pro"):
        fields = complete_fields(body.fields, model) or {}
        said = {"model": model, "generationConfig": request["generationConfig"]}
        assert {name: fields.get(name) for name in said} == said
        setting = fold_request(
            body, format="gemini", policy=Policy(), facts=Facts(), memo=None, model=model
        ).context
        assert setting.request.fetch_tool == "respool_expand"


def test_plain_text_input_is_passed_through() -> None:
    for request in (b'{"input":"hi"}', {"input": "hi"}):
        with pytest.raises(PassedThrough):
            read_body(request)


def test_objects_of_an_unknown_kind_are_refused() -> None:
    class Block:
        pass

    for message in (Block(), {"content": [Block()]}, {"content": (Block(),)}):
        with pytest.raises(UnreadableRequest):
            read_body([message]).message(0)


def test_lone_surrogates_and_huge_numbers_in_objects() -> None:
    odd = [{"content": "\ud800"}, {"content": 10**400}, {"content": float("nan")}]
    body = read_body(odd)
    assert len({body.identity(at) for at in range(3)}) == 3
    assert body.splice([SourceRun(0, 1)])[0] is odd[0]


def test_what_nothing_can_stand_for_is_refused() -> None:
    deep: Any = reduce(lambda inner, _: [inner], range(10_000), 1)
    with pytest.raises(UnreadableRequest):
        read_body([deep]).identity(0)
    assert read_body([""]).identity(0) == b'"'


def test_a_string_that_looks_like_a_message_is_another_one() -> None:
    message = {"role": "user", "content": "a"}
    told = [read_body([one]).identity(0) for one in (message, '{"role":"user","content":"a"}')]
    assert told[0] != told[1]


@pytest.mark.parametrize("raw", [b'{"messages":[]}', b"[]", b" [ ] ", b'{"messages": [ ], "a": 1}'])
def test_an_empty_history(raw: bytes) -> None:
    body = read_body(raw)
    assert len(body) == 0
    assert whole(body) == raw
    assert list(body.identities()) == []
    assert body.breakpoint_rows() == []


@pytest.mark.parametrize("style", STYLES)
def test_identities_do_not_see_marks(style: str) -> None:
    bare = [{**m} for m in MESSAGES[:2]] + [
        {"role": "user", "content": [{"type": "text", "text": "größe"}]}
    ]
    for one, two in ((MESSAGES, bare), (REQUEST, {**REQUEST, "messages": bare})):
        marked, plain = read_body(written(one, style)), read_body(written(two, style))
        assert [bytes(i) for i in marked.identities()] == [bytes(i) for i in plain.identities()]
        assert [bytes(marked.identity(at)) for at in range(3)] == [
            bytes(i) for i in marked.identities()
        ]
        assert (list(marked.breakpoint_rows()), list(plain.breakpoint_rows())) == ([2], [])
        as_objects = read_body(one), read_body(two)
        assert list(as_objects[0].identities()) == list(as_objects[1].identities())


def test_the_head_tells_fields_apart() -> None:
    one = read_body(b'{"system":"a","tools":[1],"messages":[1]}')
    two = read_body(b'{"system":"b","tools":[1],"messages":[1]}')
    names = ("system", "tools")
    assert one.head_bytes(names) != two.head_bytes(names)
    assert one.head_bytes(names) == read_body(
        b'{"messages":[2],"tools":[1],"system":"a"}'
    ).head_bytes(names)
    assert read_body(b"[1]").head_bytes(names) == b""


@given(arbitrary_json(8) | st.binary(max_size=40) | st.text(max_size=40))
def test_nothing_but_our_own_errors(request: Any) -> None:
    try:
        body = read_body(request)
        assert whole(body) == request
        for at in range(len(body)):
            body.message(at)
            body.identity(at)
    except (UnreadableRequest, PassedThrough):
        pass


def test_a_name_that_is_no_text_is_refused_in_words() -> None:
    raw = b'{"messages": [{"role": "user", "content": "x"}], "tools\x80": []}'
    with pytest.raises(UnreadableRequest, match="not valid UTF-8"):
        read_body(raw)


@pytest.mark.parametrize("style", STYLES)
def test_forgotten_messages_are_decoded_again(style: str) -> None:
    body = read_body(written(REQUEST, style))
    before = [body.message(at) for at in range(len(body))]
    keys = [bytes(one) for one in body.identities()]
    body.forget(0, 2)
    assert body.message(0) is not before[0]
    assert body.message(2) is before[2]
    body.forget()
    assert [body.message(at) for at in range(len(body))] == before
    assert [bytes(one) for one in body.identities()] == keys


def test_a_fold_holds_no_decoded_message_but_the_last() -> None:
    """What a projection edits is decoded again, and its other blocks keep their bytes."""
    body = long_history()
    out = respool.compact(body, policy=Policy(eager=True))
    assert out.report.edits
    folded = fold_request(body, format=None, policy=Policy(eager=True), facts=Facts(), memo=None)
    assert isinstance(folded.body, BytesBody)
    assert set(folded.body._decoded) <= set(range(len(folded.body) - 3, len(folded.body)))
    assert build_compaction(folded, body).request == out.request
    assert set(folded.body._decoded) <= {len(folded.body) - 1}


def long_history() -> bytes:
    return msgspec.json.encode(long_session("anthropic", 12, result=20_000))
