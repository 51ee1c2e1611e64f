"""The Gemini generateContent codec: decoding and edits."""

from __future__ import annotations

import copy
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from respool.media import document_tokens, image_tokens
from respool.providers.gemini.codec import AUDIO_TOKENS, VIDEO_TOKENS, GeminiCodec
from respool.transcript import Part, TranscriptIndex
from respool.wire.json import encode_like
from tests.strategies import arbitrary_json, arbitrary_json_messages, requests
from tests.strategies.neutral import PIXEL

CODEC = GeminiCodec()


def snake(value: Any) -> Any:
    """The same value with its keys as the SDK's dicts have them."""
    if isinstance(value, dict):
        return {
            re.sub(r"[A-Z]", lambda m: "_" + m[0].lower(), k): snake(v) for k, v in value.items()
        }
    return [snake(item) for item in value] if isinstance(value, list) else value


def camel(value: Any) -> Any:
    return value


SPELLINGS = pytest.mark.parametrize("spell", [camel, snake])


def content(*parts: Any, role: str = "model") -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


def shape(part: Part) -> dict[str, Any]:
    """Fields of a part, without its place and its unset fields."""
    names = ("kind", "speaker", "text", "name", "id", "error", "signed", "server", "weight")
    return {name: value for name in names if (value := getattr(part, name))}


def call(**fields: Any) -> dict[str, Any]:
    return {"kind": "call", "speaker": "model", **fields}


def result(**fields: Any) -> dict[str, Any]:
    return {"kind": "result", "speaker": "tool", **fields}


READ = [
    ("text", {"text": "Hello."}, {"kind": "text", "speaker": "model", "text": "Hello."}),
    (
        "signed text",
        {"text": "Hello.", "thoughtSignature": "c2ln"},
        {"kind": "text", "speaker": "model", "text": "Hello.", "signed": True},
    ),
    (
        "thought",
        {"text": "Hm.", "thought": True},
        {"kind": "reasoning", "speaker": "model", "text": "Hm."},
    ),
    (
        "signed thought",
        {"text": "Hm.", "thought": True, "thoughtSignature": "c2ln"},
        {"kind": "reasoning", "speaker": "model", "text": "Hm.", "signed": True},
    ),
    (
        "call",
        {"functionCall": {"id": "1", "name": "read", "args": {"path": "a"}}},
        call(text='{"path":"a"}', name="read", id="1"),
    ),
    (
        "signed call",
        {"functionCall": {"name": "read"}, "thoughtSignature": "c2ln"},
        call(text="{}", name="read", signed=True),
    ),
    (
        "nulls are absent",
        {"text": None, "functionCall": {"id": None, "name": "ls", "args": None}, "thought": None},
        call(text="{}", name="ls"),
    ),
    (
        "response",
        {"functionResponse": {"id": "1", "name": "read", "response": {"output": "text"}}},
        result(text="text", name="read", id="1"),
    ),
    (
        "failed response",
        {"functionResponse": {"name": "read", "response": {"error": "no such file"}}},
        result(text="no such file", name="read", error=True),
    ),
    (
        "response with a status",
        {"functionResponse": {"name": "run", "response": {"output": "ok", "exit": 0, "error": ""}}},
        result(text="ok", name="run"),
    ),
    (
        "response with two texts",
        {"functionResponse": {"name": "run", "response": {"output": "ok", "log": "x" * 101}}},
        result(text='{"output":"ok","log":"' + "x" * 101 + '"}', name="run"),
    ),
    (
        "structured response",
        {"functionResponse": {"name": "run", "response": {"rows": [1, 2]}}},
        result(text='{"rows":[1,2]}', name="run"),
    ),
    (
        "response of the wrong type",
        {"functionResponse": {"name": "run", "response": "plain"}},
        result(text="plain", name="run"),
    ),
    (
        "code",
        {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
        call(text="print(1)", name="code_execution", server=True),
    ),
    (
        "its outcome",
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {**result(text="1", name="code_execution", server=True), "speaker": "model"},
    ),
    (
        "server-side call",
        {"toolCall": {"id": "s", "toolType": "GOOGLE_SEARCH_WEB", "args": {"q": 1}}},
        call(text='{"q":1}', name="GOOGLE_SEARCH_WEB", id="s", server=True),
    ),
    (
        "server-side response",
        {"toolResponse": {"id": "s", "toolType": "GOOGLE_SEARCH_WEB", "response": {"n": 1}}},
        {
            **result(text='{"n":1}', name="GOOGLE_SEARCH_WEB", id="s", server=True),
            "speaker": "model",
        },
    ),
    (
        "image",
        {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
        {
            "kind": "media",
            "speaker": "model",
            "weight": image_tokens("gemini", data_base64=PIXEL, url=None),
        },
    ),
    (
        "document behind an address",
        {"fileData": {"mimeType": "application/pdf", "fileUri": "gs://a/b.pdf"}},
        {
            "kind": "media",
            "speaker": "model",
            "weight": document_tokens("gemini", data_base64=None, media_type="application/pdf"),
        },
    ),
    (
        "sound behind an address",
        {"fileData": {"mimeType": "audio/wav", "fileUri": "gs://a/b.wav"}},
        {"kind": "media", "speaker": "model", "weight": AUDIO_TOKENS},
    ),
    (
        "film behind an address",
        {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://a/b.mp4"}},
        {"kind": "media", "speaker": "model", "weight": VIDEO_TOKENS},
    ),
    (
        "unknown",
        {"hologram": {"depth": 3}},
        {"kind": "opaque", "speaker": "model", "text": '{"hologram":{"depth":3}}'},
    ),
]


@SPELLINGS
@pytest.mark.parametrize(("part", "expected"), [r[1:] for r in READ], ids=[r[0] for r in READ])
def test_each_kind_of_part_is_read(part: Any, expected: dict[str, Any], spell: Any) -> None:
    parts = CODEC.decode(3, content({"text": "before"}, spell(part)))
    assert [shape(p) for p in parts[1:]] == [expected]
    assert (parts[1].ref.row, parts[1].ref.path) == (3, ("parts", 1))


@SPELLINGS
def test_media_in_a_response_are_parts_of_their_own(spell: Any) -> None:
    held = spell(
        {
            "functionResponse": {
                "name": "shot",
                "response": {"output": "see"},
                "parts": [{"inlineData": {"mimeType": "image/png", "data": PIXEL}}, {"odd": 1}],
            }
        }
    )
    key = next(iter(held))
    said, picture, odd = CODEC.decode(0, content(held, role="user"))
    assert (said.kind, picture.kind, odd.kind) == ("result", "media", "opaque")
    assert picture.ref.path == ("parts", 0, key, "parts", 0)
    changed = CODEC.replace(content(held, role="user"), said, "short")
    assert changed["parts"][0][key]["parts"] is held[key]["parts"]
    assert changed["parts"][0][key]["response"] == {"output": "short"}


@pytest.mark.parametrize(
    ("parts", "path"),
    [({"text": "one"}, ("parts",)), ([{"text": "one"}], ("parts", 0))],
)
def test_a_single_part_is_read_and_replaced_like_a_list_of_one(parts: Any, path: Any) -> None:
    message = {"role": "user", "parts": parts}
    (part,) = CODEC.decode(0, message)
    assert (part.text, part.ref.path) == ("one", path)
    assert CODEC.decode(0, CODEC.replace(message, part, "two"))[0].text == "two"
    assert CODEC.remove(message, [part]) is None


@pytest.mark.parametrize("message", [None, 3, "hi", [1], {}, {"parts": None}, {"parts": "x"}])
def test_what_is_no_content_is_carried_along(message: Any) -> None:
    assert all(part.kind == "opaque" for part in CODEC.decode(0, message))


@pytest.mark.parametrize(
    ("message", "made"),
    [
        ({"role": "model", "parts": [{"text": "a"}]}, True),
        ({"role": "assistant", "parts": [{"text": "a"}]}, True),
        ({"role": "user", "parts": [{"text": "a"}]}, False),
        ({"parts": [{"text": "a"}]}, False),
        ({"parts": [{"functionCall": {"name": "f"}}]}, True),
        ({"role": "user", "parts": [{"function_call": {"name": "f"}}]}, True),
        ({"role": "model", "parts": [{"functionResponse": {"name": "f"}}]}, False),
        ({"role": "function", "parts": [{"functionResponse": {"name": "f"}}]}, False),
        ({"functionCall": {"name": "f"}}, True),
        ({"functionResponse": {"name": "f"}}, False),
        ("model", False),
    ],
)
def test_what_a_content_holds_says_who_made_it(message: Any, made: bool) -> None:
    assert CODEC.is_model_made(message) is made


@SPELLINGS
@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ({"output": "long"}, {"output": "short"}),
        ({"result": "long", "ok": True}, {"result": "short", "ok": True}),
        ({"error": "long"}, {"error": "short"}),
        ({"content": "long"}, {"content": "short"}),
        ({"rows": [1, 2]}, {"output": "short"}),
        ({"error": {"code": 5, "why": ["a"]}}, {"error": "short"}),
        ({"output": "", "error": "boom"}, {"output": "", "error": "short"}),
    ],
)
def test_a_response_says_its_new_text_where_the_old_one_stood(
    response: Any, expected: Any, spell: Any
) -> None:
    message = content(spell({"functionResponse": {"name": "f", "response": response}}), role="user")
    (part,) = CODEC.decode(0, message)
    changed = CODEC.replace(message, part, "short")
    assert changed == content(
        spell({"functionResponse": {"name": "f", "response": expected}}), role="user"
    )
    (again,) = CODEC.decode(0, changed)
    assert (again.text, again.error) == ("short", part.error)


@SPELLINGS
def test_a_call_gets_new_arguments_and_keeps_its_signature(spell: Any) -> None:
    held = spell({"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "c2ln"})
    message = content({"text": "t"}, held)
    part = CODEC.decode(0, message)[1]
    changed = CODEC.replace(message, part, '{"a":2}')
    assert changed["parts"][0] is message["parts"][0]
    assert changed["parts"][1] == spell(
        {"functionCall": {"name": "f", "args": {"a": 2}}, "thoughtSignature": "c2ln"}
    )


def test_text_and_media_are_replaced_by_text() -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": PIXEL}, "mediaResolution": {}}
    message = content({"text": "a"}, picture, {"fileData": {"fileUri": "https://a.example/b"}})
    for position, part in enumerate(CODEC.decode(0, message)):
        changed = CODEC.replace(message, part, "b")
        assert changed["parts"][position] == {"text": "b"}
        assert [p for p in changed["parts"] if p in message["parts"]] == [
            p for p in message["parts"] if p is not message["parts"][position]
        ]
    alone = {"role": "user", "parts": picture}
    assert CODEC.replace(alone, CODEC.decode(0, alone)[0], "b")["parts"] == {"text": "b"}


def test_media_stay_where_no_text_may_stand() -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
    answer = content({"functionResponse": {"name": "f", "response": {}, "parts": [picture]}})
    made = content({**picture, "thoughtSignature": "c2ln"}, role="model")
    assert CODEC.replace(answer, CODEC.decode(0, answer)[1], "b") is answer
    assert CODEC.replace(made, CODEC.decode(0, made)[0], "b") is made


def test_removing_parts_leaves_the_others_or_nothing() -> None:
    message = content({"text": "a"}, {"text": "b"}, {"text": "c"})
    parts = CODEC.decode(0, message)
    assert CODEC.remove(message, [parts[1]]) == content({"text": "a"}, {"text": "c"})
    assert CODEC.remove(message, parts) is None


def test_only_signed_calls_lock_their_step() -> None:
    unsigned = CODEC.decode(0, content({"functionCall": {"name": "f"}}))
    signed = [with_fields(unsigned[0], signed=True)]
    said = CODEC.decode(0, content({"text": "a", "thoughtSignature": "c2ln"}))
    assert (
        CODEC.has_locked_calls(unsigned),
        CODEC.has_locked_calls(said),
        CODEC.has_locked_calls(signed),
    ) == (False, False, True)


def test_two_turns_of_the_model_become_one() -> None:
    first, second = content({"text": "a"}), content({"functionCall": {"name": "f"}})
    (joined,) = CODEC.join(first, second) or [None]
    assert joined is not None
    assert joined == content({"text": "a"}, {"functionCall": {"name": "f"}})
    assert joined["parts"][1] is second["parts"][0]
    user = content({"text": "b"}, role="user")
    assert CODEC.join(user, user) is None
    assert CODEC.join(first, user) is None
    assert CODEC.join(None, second) is None


turns = st.builds(
    lambda texts, extra: {**content(*texts), **extra},
    st.lists(st.builds(lambda said: {"text": said}, st.text()), min_size=1, max_size=3),
    st.sampled_from([{}, {"kept": 1}]),
)


@given(st.lists(turns, min_size=2, max_size=6))
def test_a_run_becomes_what_its_turns_become_one_by_one(run: list[Any]) -> None:
    whole = run[0]
    for turn in run[1:]:
        (whole,) = CODEC.join(whole, turn) or [None]
    assert msgspec.json.encode(CODEC.merge(run)) == msgspec.json.encode(whole)


def test_marks_and_bonds_do_not_exist() -> None:
    message = content({"text": "a"})
    assert (
        CODEC.place_breakpoint(message, CODEC.decode(0, message)[0], {"type": "ephemeral"})
        is message
    )
    assert CODEC.unbind(message) is message


@pytest.mark.parametrize(
    "fields",
    [
        {"systemInstruction": {"parts": [{"text": "Be brief."}]}, "tools": [{"googleSearch": {}}]},
        {"system_instruction": {"parts": {"text": "Be brief."}}, "tools": [{"googleSearch": {}}]},
        {"config": {"system_instruction": "Be brief.", "tools": [{"googleSearch": {}}]}},
        {"systemInstruction": [{"text": "Be brief."}], "tools": [{"googleSearch": {}}]},
    ],
)
def test_the_head_is_counted(fields: Any) -> None:
    assert [(p.kind, p.text) for p in CODEC.decode_head(fields)] == [
        ("text", "Be brief."),
        ("opaque", '{"googleSearch":{}}'),
    ]


def test_calls_and_responses_without_ids_pair_by_name_in_order() -> None:
    calls = [{"functionCall": {"name": name}} for name in ("a", "b", "a")]
    answers = [
        {"functionResponse": {"name": name, "response": {"output": str(n)}}}
        for n, name in enumerate(("b", "a", "a"))
    ]
    index = TranscriptIndex()
    index.add_unit(
        (0, 2), CODEC.decode(0, content(*calls)), CODEC.decode(1, content(*answers)), locked=False
    )
    parts = index.parts
    results = [parts[e.result].text for e in index.exchanges if e.result is not None]
    assert results == ["1", "0", "2"]


def test_server_side_pairs_are_found_without_ids() -> None:
    parts = [
        {"executableCode": {"code": "1"}},
        {"codeExecutionResult": {"output": "1"}},
        {"toolCall": {"toolType": "URL_CONTEXT"}},
        {"toolResponse": {"toolType": "URL_CONTEXT"}},
    ]
    index = TranscriptIndex()
    index.add_unit((0, 1), CODEC.decode(0, content(*parts)), [], locked=False)
    assert [(e.call, e.result, e.server) for e in index.exchanges] == [(0, 1, True), (2, 3, True)]


def test_untouched_branches_keep_their_bytes() -> None:
    response = b'{"functionResponse":{"name":"f", "response" :{"output":"long"}}}'
    raw = b'{ "role":"user", "parts": [ {"text" : "a"},' + response + b"] }"
    message = msgspec.json.decode(raw)
    changed = CODEC.replace(message, CODEC.decode(0, message)[1], "s")
    assert b'{"text" : "a"}' in encode_like(raw, message, changed)


@given(arbitrary_json_messages(), st.lists(arbitrary_json(), max_size=2))
def test_reading_never_raises(messages: list[Any], more: list[Any]) -> None:
    before = copy.deepcopy(messages)
    for row, message in enumerate([*messages, *more]):
        parts = CODEC.decode(row, message)
        CODEC.is_model_made(message)
        CODEC.has_locked_calls(parts)
        CODEC.remove(message, parts)
        for part in parts:
            CODEC.replace(message, part, "{}")
        CODEC.join(message, message)
    CODEC.decode_head({"systemInstruction": messages, "tools": messages, "config": more})
    assert messages == before


@given(requests("gemini"))
def test_what_a_part_says_can_be_put_back(request: dict[str, Any]) -> None:
    for row, message in enumerate(request["contents"]):
        for spelled in (message, snake(message)):
            for at, part in enumerate(CODEC.decode(row, spelled)):
                if part.kind in ("text", "result") and not part.server:
                    again = CODEC.decode(row, CODEC.replace(spelled, part, "said anew"))
                    assert shape(again[at]) == {**shape(part), "text": "said anew"}
