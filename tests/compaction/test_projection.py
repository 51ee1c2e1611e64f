"""Projection of rows, edited, repaired and settled."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

import respool
from respool.compaction.memo import Memo
from respool.compaction.projection import project
from respool.edits import DropExchange, DropReasoning, Edit, PlaceBreakpoint, Replace
from respool.engine import Compaction, FoldedRequest, build_compaction, extend_fold, fold_request
from respool.facts import Facts
from respool.policy import Policy
from respool.transcript import PartKind, Ref, TranscriptIndex
from respool.wire.body import ObjectBody
from tests.laws.sessions import long_session
from tests.laws.spans import spans
from tests.support.formats import FIELD, FORMATS, PIXEL

formats = pytest.mark.parametrize("format", FORMATS)
SPELLINGS: dict[str, dict[str, Any]] = {
    "compact": {"separators": (",", ":")},
    "spaced": {},
    "indented": {"indent": 2},
    "odd": {"separators": (" ,\n\t", " : ")},
}
spellings = pytest.mark.parametrize("spelling", SPELLINGS)
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
LINK = {"type": "input_image", "image_url": "https://pics.example/1.png"}
INLINE = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
HOUR = {"type": "ephemeral", "ttl": "1h"}
SHORT = {"type": "ephemeral"}
CONTROLS: dict[str, dict[str, str]] = {
    "anthropic": HOUR,
    "openai-chat": {"mode": "explicit"},
    "openai-responses": {"mode": "explicit"},
    "gemini": {},
}


# One history in every format: reasoning, words and two calls; their results, one with a picture;
# a call on its own and its result; a word, and thanks.


def thinking() -> dict[str, Any]:
    return {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def use(id: str, args: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "x", "input": args}


def told(id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def model(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def anthropic() -> list[Any]:
    return [
        {"role": "user", "content": "go"},
        model(thinking(), said("look"), use("a", {"k": 1}), use("b", {})),
        user(told("a", "A said"), told("b", [said("B said"), PICTURE])),
        model(use("c", {})),
        user(told("c", "C said")),
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "thanks"},
    ]


def function(id: str, args: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "x", "arguments": args}}


def turn(content: Any, *calls: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", **more, "content": content, "tool_calls": list(calls)}


def tool(id: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


A_CALL, B_CALL, C_CALL = function("a", '{"k": 1}'), function("b", "{}"), function("c", "{}")


def chat() -> list[Any]:
    return [
        {"role": "user", "content": "go"},
        turn("look", function("a", '{"k": 1}'), function("b", "{}"), reasoning_content="hm"),
        tool("a", "A said"),
        tool("b", [said("B said"), said("and more")]),
        turn(None, function("c", "{}")),
        tool("c", "C said"),
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "thanks"},
    ]


def asked(call: str, args: str, **more: Any) -> dict[str, Any]:
    return {"type": "function_call", **more, "call_id": call, "name": "x", "arguments": args}


def output(id: str, content: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": content}


def word(text: str, **more: Any) -> dict[str, Any]:
    spoken = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", **more, "role": "assistant", "content": spoken}


def typed(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "input_text", "text": text, **more}


def responses() -> list[Any]:
    summary = [{"type": "summary_text", "text": "hm"}]
    return [
        {"role": "user", "content": "go"},
        {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "gAAA"},
        word("look", id="msg_1"),
        asked("a", '{"k": 1}', id="fc_a"),
        asked("b", "{}", id="fc_b"),
        output("a", "A said"),
        output("b", [typed("B said"), LINK]),
        asked("c", "{}", id="fc_c"),
        output("c", "C said"),
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "thanks"},
    ]


def ask(id: str, args: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"functionCall": {"id": id, "name": "x", "args": args}, **more}


def reply(id: str, text: str, **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"id": id, "name": "x", "response": {"output": text}, **more}}


def content(role: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


THOUGHT: dict[str, Any] = {"text": "hm", "thought": True}


def gemini() -> list[Any]:
    signed = ask("a", {"k": 1}, thoughtSignature="c2ln")
    return [
        content("user", {"text": "go"}),
        content("model", dict(THOUGHT), {"text": "look"}, signed, ask("b", {})),
        content("user", reply("a", "A said"), reply("b", "B said", parts=[INLINE])),
        content("model", ask("c", {})),
        content("user", reply("c", "C said")),
        content("model", {"text": "done"}),
        content("user", {"text": "thanks"}),
    ]


HISTORIES: dict[str, Callable[[], list[Any]]] = {
    "anthropic": anthropic,
    "openai-chat": chat,
    "openai-responses": responses,
    "gemini": gemini,
}


# How edits are made and applied.

Edits = Callable[[str, TranscriptIndex], Iterable[Edit]]
HERE = Ref(0, ())


def find(index: TranscriptIndex, kind: PartKind, text: str) -> int:
    return next(
        at for at, p in enumerate(index.parts) if p.kind == kind and p.text.startswith(text)
    )


def replace(kind: PartKind, text: str, new: str) -> Edits:
    def made(format: str, index: TranscriptIndex) -> list[Edit]:
        at = find(index, kind, text)
        return [Replace(at, index.parts[at].ref, new, "ref", "trial", "", 1)]

    return made


def first_call(format: str, index: TranscriptIndex) -> list[Edit]:
    at = index.exchanges[0].call
    return [Replace(at, index.parts[at].ref, '{"n":2}', "ref", "trial", "", 1)]


def drop(*exchanges: int) -> Edits:
    return lambda format, index: [DropExchange(one, HERE, "trial", "", 1) for one in exchanges]


def mute(format: str, index: TranscriptIndex) -> list[Edit]:
    return [DropReasoning(1, HERE, "trial", "", 1)]


def place_breakpoint(kind: PartKind, text: str) -> Edits:
    def made(format: str, index: TranscriptIndex) -> list[Edit]:
        at = find(index, kind, text)
        return [PlaceBreakpoint(at, index.parts[at].ref, CONTROLS[format], "trial", "")]

    return made


def both(*several: Edits) -> Edits:
    return lambda format, index: [edit for one in several for edit in one(format, index)]


def edited(format: str, request: Any, edits: Edits, memo: Memo | None = None) -> Compaction[Any]:
    folded = fold_request(
        request, format=format, policy=Policy(), facts=Facts(), memo=memo, passes=()
    )
    folded.state.take(edits(format, folded.state.transcript))
    return build_compaction(folded, request)


EDITS: dict[str, Edits] = {
    "nothing": both(),
    "a result": replace("result", "A", "cut"),
    "a result with a picture": replace("result", "B", "cut"),
    "a call": first_call,
    "words of the model": replace("text", "look", "cut"),
    "words of the user": replace("text", "thanks", "cut"),
    "an exchange alone in its turn": drop(2),
    "one of two parallel exchanges": drop(0),
    "both parallel exchanges": drop(0, 1),
    "all exchanges": drop(0, 1, 2),
    "reasoning": mute,
    "a mark on words": place_breakpoint("text", "go"),
    "a mark on a result": place_breakpoint("result", "A"),
    "several in one message, and in others": both(
        replace("result", "A", "cut"),
        replace("result", "B", "slim"),
        replace("text", "look", "see"),
    ),
    "a result, reasoning and an exchange": both(replace("result", "A", "cut"), mute, drop(2)),
    "a result, and a mark beside it": both(
        replace("result", "A", "cut"), place_breakpoint("result", "B")
    ),
}

LOOK = said("look")
WITH_B = user(told("b", [said("B said"), PICTURE]))
UNBOUND = [word("look"), asked("a", '{"k": 1}'), asked("b", "{}")]
SIGNED = ask("a", {"k": 1}, thoughtSignature="c2ln")
B_REPLY = reply("b", "B said", parts=[INLINE])
POINT = {"prompt_cache_breakpoint": CONTROLS["openai-chat"]}
# What comes out; a number is the source's own message.
EXPECTED: dict[str, dict[str, list[Any]]] = {
    "anthropic": {
        "nothing": [0, 1, 2, 3, 4, 5, 6],
        "a result": [
            0, 1, user(told("a", "cut"), told("b", [said("B said"), PICTURE])), 3, 4, 5, 6,
        ],
        "a result with a picture": [
            0, 1, user(told("a", "A said"), told("b", [said("cut"), PICTURE])), 3, 4, 5, 6,
        ],
        "a call": [0, model(thinking(), LOOK, use("a", {"n": 2}), use("b", {})), 2, 3, 4, 5, 6],
        "words of the model": [
            0, model(thinking(), said("cut"), use("a", {"k": 1}), use("b", {})), 2, 3, 4, 5, 6,
        ],
        "words of the user": [0, 1, 2, 3, 4, 5, {"role": "user", "content": "cut"}],
        "an exchange alone in its turn": [0, 1, 2, 5, 6],
        "one of two parallel exchanges": [0, model(LOOK, use("b", {})), WITH_B, 3, 4, 5, 6],
        "both parallel exchanges": [0, model(LOOK), 3, 4, 5, 6],
        "all exchanges": [0, model(LOOK), 5, 6],
        "reasoning": [0, model(LOOK, use("a", {"k": 1}), use("b", {})), 2, 3, 4, 5, 6],
        "a mark on words": [user({**said("go"), "cache_control": HOUR}), 1, 2, 3, 4, 5, 6],
        "a mark on a result": [
            0, 1,
            user(told("a", "A said", cache_control=HOUR), told("b", [said("B said"), PICTURE])),
            3, 4, 5, 6,
        ],
        "several in one message, and in others": [
            0, model(thinking(), said("see"), use("a", {"k": 1}), use("b", {})),
            user(told("a", "cut"), told("b", [said("slim"), PICTURE])), 3, 4, 5, 6,
        ],
        "a result, reasoning and an exchange": [
            0, model(LOOK, use("a", {"k": 1}), use("b", {})),
            user(told("a", "cut"), told("b", [said("B said"), PICTURE])), 5, 6,
        ],
        "a result, and a mark beside it": [
            0, 1,
            user(told("a", "cut"), told("b", [said("B said"), PICTURE], cache_control=HOUR)),
            3, 4, 5, 6,
        ],
    },
    "openai-chat": {
        "nothing": [0, 1, 2, 3, 4, 5, 6, 7],
        "a result": [0, 1, tool("a", "cut"), 3, 4, 5, 6, 7],
        "a result with a picture": [0, 1, 2, tool("b", [said("cut")]), 4, 5, 6, 7],
        "a call": [
            0, turn("look", function("a", '{"n":2}'), B_CALL, reasoning_content="hm"),
            2, 3, 4, 5, 6, 7,
        ],
        "words of the model": [
            0, turn("cut", A_CALL, B_CALL, reasoning_content="hm"), 2, 3, 4, 5, 6, 7,
        ],
        "words of the user": [0, 1, 2, 3, 4, 5, 6, {"role": "user", "content": "cut"}],
        "an exchange alone in its turn": [0, 1, 2, 3, 6, 7],
        "one of two parallel exchanges": [0, turn("look", B_CALL), 3, 4, 5, 6, 7],
        "both parallel exchanges": [0, turn("look", C_CALL), 5, 6, 7],
        "all exchanges": [0, {"role": "assistant", "content": "look\n\ndone"}, 7],
        "reasoning": [0, turn("look", A_CALL, B_CALL), 2, 3, 4, 5, 6, 7],
        "a mark on words": [user({**said("go"), **POINT}), 1, 2, 3, 4, 5, 6, 7],
        "a mark on a result": [0, 1, tool("a", [{**said("A said"), **POINT}]), 3, 4, 5, 6, 7],
        "several in one message, and in others": [
            0, turn("see", A_CALL, B_CALL, reasoning_content="hm"), tool("a", "cut"),
            tool("b", [said("slim")]), 4, 5, 6, 7,
        ],
        "a result, reasoning and an exchange": [
            0, turn("look", A_CALL, B_CALL), tool("a", "cut"), 3, 6, 7,
        ],
        "a result, and a mark beside it": [
            0, 1, tool("a", "cut"), tool("b", [said("B said"), {**said("and more"), **POINT}]),
            4, 5, 6, 7,
        ],
    },
    "openai-responses": {
        "nothing": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
        "a result": [0, 1, 2, 3, 4, output("a", "cut"), 6, 7, 8, 9, 10],
        "a result with a picture": [
            0, 1, 2, 3, 4, 5, output("b", [typed("cut"), LINK]), 7, 8, 9, 10,
        ],
        "a call": [0, 1, 2, asked("a", '{"n":2}', id="fc_a"), 4, 5, 6, 7, 8, 9, 10],
        "words of the model": [0, 1, word("cut", id="msg_1"), 3, 4, 5, 6, 7, 8, 9, 10],
        "words of the user": [
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, {"role": "user", "content": "cut"},
        ],
        "an exchange alone in its turn": [0, 1, 2, 3, 4, 5, 6, 9, 10],
        "one of two parallel exchanges": [0, word("look"), 7, 8, 9, 10],
        "both parallel exchanges": [0, word("look"), 7, 8, 9, 10],
        "all exchanges": [0, word("look"), 9, 10],
        "reasoning": [0, *UNBOUND, 5, 6, 7, 8, 9, 10],
        "a mark on words": [user(typed("go", **POINT)), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
        "a mark on a result": [
            0, 1, 2, 3, 4, output("a", [typed("A said", **POINT)]), 6, 7, 8, 9, 10,
        ],
        "several in one message, and in others": [
            0, 1, word("see", id="msg_1"), 3, 4, output("a", "cut"),
            output("b", [typed("slim"), LINK]), 7, 8, 9, 10,
        ],
        "a result, reasoning and an exchange": [
            0, *UNBOUND, output("a", "cut"), 6, 9, 10,
        ],
        "a result, and a mark beside it": [
            0, 1, 2, 3, 4, output("a", "cut"),
            output("b", [typed("B said"), {**LINK, **POINT}]), 7, 8, 9, 10,
        ],
    },
    "gemini": {
        "nothing": [0, 1, 2, 3, 4, 5, 6],
        "a result": [0, 1, content("user", reply("a", "cut"), B_REPLY), 3, 4, 5, 6],
        "a result with a picture": [
            0, 1, content("user", reply("a", "A said"), reply("b", "cut", parts=[INLINE])),
            3, 4, 5, 6,
        ],
        "a call": [
            0,
            content("model", THOUGHT, {"text": "look"},
                    ask("a", {"n": 2}, thoughtSignature="c2ln"), ask("b", {})),
            2, 3, 4, 5, 6,
        ],
        "words of the model": [
            0, content("model", THOUGHT, {"text": "cut"}, SIGNED, ask("b", {})), 2, 3, 4, 5, 6,
        ],
        "words of the user": [0, 1, 2, 3, 4, 5, content("user", {"text": "cut"})],
        "an exchange alone in its turn": [0, 1, 2, 5, 6],
        "one of two parallel exchanges": [
            0, content("model", {"text": "look"}, ask("c", {})), 4, 5, 6,
        ],
        "both parallel exchanges": [
            0, content("model", {"text": "look"}, ask("c", {})), 4, 5, 6,
        ],
        "all exchanges": [0, content("model", {"text": "look"}, {"text": "done"}), 6],
        "reasoning": [0, content("model", {"text": "look"}, SIGNED, ask("b", {})), 2, 3, 4, 5, 6],
        "a mark on words": [0, 1, 2, 3, 4, 5, 6],
        "a mark on a result": [0, 1, 2, 3, 4, 5, 6],
        "several in one message, and in others": [
            0, content("model", THOUGHT, {"text": "see"}, SIGNED, ask("b", {})),
            content("user", reply("a", "cut"), reply("b", "slim", parts=[INLINE])), 3, 4, 5, 6,
        ],
        "a result, reasoning and an exchange": [
            0, content("model", {"text": "look"}, SIGNED, ask("b", {})),
            content("user", reply("a", "cut"), B_REPLY), 5, 6,
        ],
        "a result, and a mark beside it": [
            0, 1, content("user", reply("a", "cut"), B_REPLY), 3, 4, 5, 6,
        ],
    },
}  # fmt: skip
cases = pytest.mark.parametrize(
    ("format", "case"), [(format, case) for format in FORMATS for case in EDITS]
)


def whole(format: str, history: list[Any]) -> dict[str, Any]:
    """The history in a request, with a field before it and one behind it."""
    return {"model": "some", FIELD[format]: history, "metadata": {"user_id": "é"}}


@cases
def test_edits_in_objects(format: str, case: str) -> None:
    history = HISTORIES[format]()
    source = whole(format, history)
    kept = copy.deepcopy(source)
    out = edited(format, source, EDITS[case]).request
    assert source == kept
    assert len(out[FIELD[format]]) == len(EXPECTED[format][case])
    for message, expected in zip(out[FIELD[format]], EXPECTED[format][case], strict=True):
        if isinstance(expected, int):
            assert message is history[expected]
        else:
            assert message == expected
    assert out["metadata"] is source["metadata"]
    assert (out is source) == (EXPECTED[format][case] == EXPECTED[format]["nothing"])


@cases
def test_blocks_that_no_edit_touches_are_the_same_objects(format: str, case: str) -> None:
    history = HISTORIES[format]()
    out = edited(format, whole(format, history), EDITS[case]).request[FIELD[format]]
    mine = {id(block) for message in history for block in _blocks(message)}
    known = [block for message in history for block in _blocks(message)]
    for message in out:
        for block in _blocks(message):
            assert id(block) in mine or block not in known


def _blocks(message: Any) -> list[Any]:
    held = message.get("content") or message.get("parts") or message.get("output")
    return [*(held if isinstance(held, list) else []), *message.get("tool_calls", [])]


def written(value: Any, spelling: str) -> bytes:
    return json.dumps(value, ensure_ascii=False, **SPELLINGS[spelling]).encode()


@cases
@spellings
def test_edits_in_bytes(format: str, case: str, spelling: str) -> None:
    field, history = FIELD[format], HISTORIES[format]()
    body = written(whole(format, history), spelling)
    out = edited(format, body, EDITS[case]).request
    before, after = spans(body, field), spans(out, field)
    bare = [text.lstrip(" ,\n\t") for text in before]
    gap = before[1].removesuffix(bare[1])
    assert len(after) == len(EXPECTED[format][case])
    for number, (text, expected) in enumerate(zip(after, EXPECTED[format][case], strict=True)):
        message = text.lstrip(" ,\n\t")
        assert text.removesuffix(message) == (gap if number else before[0].removesuffix(bare[0]))
        if isinstance(expected, int):
            assert message == bare[expected]
        else:
            assert json.loads(message) == expected
    opening, closing = body.split(bare[0].encode())[0], body.rsplit(bare[-1].encode(), 1)[1]
    assert out.startswith(opening)
    assert out.endswith(closing)
    assert edited(format, body.decode(), EDITS[case]).request == out.decode()


@formats
@spellings
def test_separators_that_differ_stay_with_their_messages(format: str, spelling: str) -> None:
    history = [written(message, spelling) for message in HISTORIES[format]()]
    gaps = [b"," + b" " * (number % 3) + b"\n" * (number % 2) for number in range(1, len(history))]
    head = b'{"model": "some", "' + FIELD[format].encode() + b'": [ '
    joined = b"".join(one for pair in zip(gaps, history[1:], strict=True) for one in pair)
    body = head + history[0] + joined + b" ] }"
    assert edited(format, body, both()).request == body
    out = edited(format, body, replace("text", "thanks", "cut")).request
    assert out.startswith(body[: body.index(history[-1])])
    assert out.endswith(b" ] }")
    assert json.loads(out)[FIELD[format]][:-1] == HISTORIES[format]()[:-1]


@cases
def test_bytes_and_objects_say_the_same(format: str, case: str) -> None:
    source = whole(format, HISTORIES[format]())
    out = edited(format, source, EDITS[case]).request
    assert json.loads(edited(format, written(source, "indented"), EDITS[case]).request) == out
    bare = edited(format, source[FIELD[format]], EDITS[case]).request
    assert bare == out[FIELD[format]]


def test_a_changed_block_keeps_the_bytes_of_its_neighbours() -> None:
    wide = '{"type" : "tool_result", "tool_use_id":"b",  "content" : "gr\\u00f6\\u00dfe 1.50"}'
    first = json.dumps({"role": "user", "content": "go"})
    calls = json.dumps(model(use("a", {}), use("b", {})))
    results = f'{{"role":"user","content":[{json.dumps(told("a", "A said"))},{wide}]}}'
    rest = f"{json.dumps(model(said('done')))}, {json.dumps(user(said('thanks')))}"
    body = f'{{"messages": [{first}, {calls}, {results}, {rest}]}}'.encode()
    out = edited("anthropic", body, replace("result", "A", "cut")).request
    assert wide.encode() in out
    assert b'"content":"cut"' in out


# Edits on what repair changed too.


def damaged(format: str) -> list[Any]:
    """The history without the result of `b`, which repair puts in again."""
    history = HISTORIES[format]()
    if format in ("anthropic", "gemini"):
        blocks = history[2]["content" if format == "anthropic" else "parts"]
        del blocks[1]
    else:
        del history[3 if format == "openai-chat" else 6]
    return history


@formats
@spellings
def test_edits_on_a_message_that_repair_changed_too(format: str, spelling: str) -> None:
    history = damaged(format)
    cut = replace("result", "A", "cut")
    repaired = edited(format, whole(format, copy.deepcopy(history)), both()).request[FIELD[format]]
    out = edited(format, whole(format, history), cut)
    assert out.report.repairs
    said_there = json.dumps(out.request[FIELD[format]])
    assert "A said" not in said_there
    assert said_there.replace('"cut"', '"A said"') == json.dumps(repaired)
    body = written(whole(format, history), spelling)
    assert json.loads(edited(format, body, cut).request) == out.request


@formats
def test_a_row_that_repair_put_in_can_go_with_its_exchange(format: str) -> None:
    history = damaged(format)
    out = edited(format, whole(format, history), drop(0, 1)).request[FIELD[format]]
    expected = EXPECTED[format]["both parallel exchanges"]
    source = HISTORIES[format]()
    assert out == [source[one] if isinstance(one, int) else one for one in expected]


# Marks.


def test_marks_on_an_edited_block_stay_and_may_move() -> None:
    cut = replace("result", "A", "cut")
    for at in ("result", "item", None):
        history = anthropic()
        item = {**said("A said"), "cache_control": SHORT} if at == "item" else said("A said")
        more = {"cache_control": SHORT} if at == "result" else {}
        history[2]["content"][0] = told("a", [item], **more)
        with_breakpoint = {"cache_control": SHORT} if at == "item" else {}
        new = told("a", [{**said("cut"), **with_breakpoint}], **more)
        for body in (whole("anthropic", history), written(whole("anthropic", history), "spaced")):
            out = edited("anthropic", body, cut).request
            messages = out["messages"] if isinstance(out, dict) else json.loads(out)["messages"]
            assert messages[2]["content"][0] == new


@spellings
def test_marks_that_move_leave_the_same_bytes_behind(spelling: str) -> None:
    """A conversation whose one mark is always on the last block, warm and cold."""
    memo = Memo()
    edits = both(replace("result", "A", "cut"), drop(2))
    for at in (None, 0, 2, 4, 6, None, 2):
        history = [
            user(said(m["content"])) if isinstance(m["content"], str) else m for m in anthropic()
        ]
        if at is not None:
            history[at]["content"][-1] = {**history[at]["content"][-1], "cache_control": SHORT}
        body = written(whole("anthropic", history), spelling)
        warm = edited("anthropic", body, edits, memo).request
        assert warm == edited("anthropic", body, edits).request
        plain = edited("anthropic", written(whole("anthropic", _bare(history)), spelling), edits)
        assert _bare(json.loads(warm)) == json.loads(plain.request)


def _bare(value: Any) -> Any:
    if isinstance(value, list):
        return [_bare(item) for item in value]
    if isinstance(value, dict):
        return {key: _bare(item) for key, item in value.items() if key != "cache_control"}
    return value


def test_a_mark_of_ours_gives_way_to_the_limit_of_four() -> None:
    history = [
        user(said(m["content"])) if isinstance(m["content"], str) else m for m in anthropic()
    ]
    for at in (2, 3, 4, 6):
        history[at]["content"][-1] = {**history[at]["content"][-1], "cache_control": SHORT}
    for body in (whole("anthropic", history), msgspec.json.encode(whole("anthropic", history))):
        out = edited("anthropic", body, place_breakpoint("text", "go"))
        assert [repair.code for repair in out.report.repairs] == ["A21"]
        again = out.request if isinstance(out.request, dict) else json.loads(out.request)
        assert again["messages"] == history


def out_of_order(*, with_breakpoint: bool) -> list[Any]:
    """Text stands before the results, and repair moves them, with a mark, into its message."""
    more = {"cache_control": SHORT} if with_breakpoint else {}
    return [
        user(said("go")),
        model(use("a", {}), use("b", {})),
        user(said("so")),
        user(told("b", "B said"), told("a", "A said", **more)),
        model(said("done")),
        user(said("thanks")),
    ]


@spellings
@pytest.mark.parametrize("first", [False, True])
def test_a_mark_that_repair_moves_is_this_requests_own(spelling: str, first: bool) -> None:
    memo = Memo()
    for with_breakpoint in (first, not first, first, not first):
        body = written(whole("anthropic", out_of_order(with_breakpoint=with_breakpoint)), spelling)
        warm = edited("anthropic", body, both(), memo).request
        assert warm == edited("anthropic", body, both()).request
        assert (b"cache_control" in warm) is with_breakpoint


def test_a_mark_that_repair_moves_counts_among_the_four() -> None:
    history = out_of_order(with_breakpoint=True)
    for at in (1, 4, 5):
        history[at]["content"][-1]["cache_control"] = SHORT
    for body in (whole("anthropic", history), written(whole("anthropic", history), "spaced")):
        out = edited("anthropic", body, place_breakpoint("text", "go")).request
        assert json.dumps(out if isinstance(out, dict) else json.loads(out)).count("_control") == 4


@spellings
@pytest.mark.parametrize("format", ["anthropic", "openai-chat"])
@pytest.mark.parametrize("first", [0, 1])
def test_words_spelled_in_another_way_keep_their_own_bytes(
    format: str, spelling: str, first: int
) -> None:
    """A string and one text block are the same words, also where repair or an edit touches them."""
    words: list[Any] = ["go on", [said("go on")]]
    for edits in (both(), replace("text", "go on", "cut"), place_breakpoint("text", "go on")):
        memo = Memo()
        for at in (first, 1 - first, first):
            history = HISTORIES[format]()
            history[2:3] = [{"role": "user", "content": words[at]}]  # a result is lost
            for body in (written(whole(format, history), spelling), whole(format, history)):
                warm = edited(format, body, edits, memo)
                cold = edited(format, body, edits)
                assert warm.request == cold.request


# What is remembered.


@formats
@spellings
def test_what_was_encoded_is_remembered(
    format: str, spelling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next request encodes nothing that the last one did."""
    import respool.wire.body as bytes_body

    long = "\n".join(f"line {number} of the output" for number in range(100))
    history = json.loads(json.dumps(HISTORIES[format]()).replace("A said", json.dumps(long)[1:-1]))
    policy = Policy(
        cap_chars=300,
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        eager=True,
        passes=("cap_results",),
        keep_exchanges=0,
    )
    memo, counts = Memo(), []
    encode_like = bytes_body.encode_like

    def counted(*args: Any) -> bytes:
        counts.append(1)
        return encode_like(*args)

    monkeypatch.setattr(bytes_body, "encode_like", counted)
    told: list[int] = []
    longer = [*history, history[-2], history[-1]]
    for messages in (history, longer, longer):
        counts.clear()
        body = written(whole(format, messages), spelling)
        warm = build_compaction(
            fold_request(body, format=format, policy=policy, facts=Facts(), memo=memo), body
        )
        told.append(len(counts))
        cold = build_compaction(
            fold_request(body, format=format, policy=policy, facts=Facts(), memo=None), body
        )
        assert (warm.request, warm.report) == (cold.request, cold.report)
        assert len(warm.report.edits) == 1
    assert told == [1, 0, 0]


@formats
def test_an_empty_history_comes_back_as_it_is(format: str) -> None:
    for nothing in ({FIELD[format]: []}, [], json.dumps({FIELD[format]: []}).encode()):
        assert edited(format, nothing, both()).request is nothing


POLICY = respool.Policy(
    cap_chars=300,
    eager=True,
    reevaluate_tokens=1,
    reevaluate_ratio=0.0,
    passes=("cap_results",),
    keep_exchanges=0,
)
PLANNED = respool.Policy(
    reevaluate_tokens=500, reevaluate_ratio=0.05, miss_penalty=1.0, keep_exchanges=0
)
MODEL = {"anthropic": "claude-opus-4-5"}


def history_of(format: str) -> list[Any]:
    """Thirty exchanges: the results of the first half are too long, the others short."""
    long = long_session(format, 15, result=2_400)[FIELD[format]]
    short = json.dumps(long_session(format, 15, result=200)[FIELD[format]][1:])
    return [*long, *json.loads(short.replace('"toolu_', '"toolu_s').replace('"call_', '"call_s'))]


def with_breakpoint(history: list[Any]) -> list[Any]:
    """A history with Anthropic's mark on its last block, as clients put it."""
    last = copy.deepcopy(history[-1])
    if isinstance(last["content"], str):
        last["content"] = [{"type": "text", "text": last["content"]}]
    last["content"][-1]["cache_control"] = SHORT
    return [*history[:-1], last]


def grown(format: str) -> list[dict[str, Any]]:
    """The requests of a session, each an exchange longer than the one before."""
    history = history_of(format)
    ends = [end for end in range(1, len(history) + 1) if _asks(format, history[end - 1])]
    held = [history[:end] for end in ends]
    if format == "anthropic":
        held = [with_breakpoint(one) for one in held]
    return [{"model": MODEL.get(format, "gpt-5.1"), FIELD[format]: one} for one in held]


def _asks(format: str, message: Any) -> bool:
    """Return whether a request may end with this message."""
    told = message.get("role") in ("user", "tool") or message.get("type") == "function_call_output"
    return told and not (format == "gemini" and message.get("role") == "model")


@formats
@pytest.mark.parametrize("as_bytes", [True, False])
def test_a_warm_projection_is_the_cold_one(format: str, as_bytes: bool) -> None:
    """Whatever was remembered, each request goes out as it would from a new process."""
    memo, settled = Memo(), 0
    for request in grown(format):
        asked: Any = json.dumps(request).encode() if as_bytes else request
        warm = respool.compact(asked, format=format, policy=POLICY, memo=memo)
        assert warm.request == respool.compact(asked, format=format, policy=POLICY).request
        state = fold_request(asked, format=format, policy=POLICY, facts=Facts(), memo=memo).state
        settled += state.rendered.shared.settled is not None
    # Objects that went out are the caller's to change: they are made anew each time.
    assert settled > 10 if as_bytes else settled == 0, settled


def test_a_mark_of_ours_is_put_anew_into_what_is_settled() -> None:
    """The row that bears it is spelled each time, and all others go out as they did."""
    memo, anew = Memo(), 0
    for request in grown("anthropic"):
        asked = json.dumps(request).encode()
        warm = respool.compact(asked, policy=PLANNED, memo=memo)
        assert warm.request == respool.compact(asked, policy=PLANNED).request
        known = fold_request(
            asked, format="anthropic", policy=PLANNED, facts=Facts(), memo=memo
        ).state.rendered.shared.settled
        if known is None or not known.variable_pieces:
            continue
        anew += 1
        ((row, at),) = known.variable_pieces.items()
        assert known.pieces[at].source == row  # type: ignore[union-attr]
    assert anew > 5


@formats
def test_objects_are_shared_where_nobody_changes_them(format: str) -> None:
    """The same objects go out as long as no edit changes them, and they say the same."""
    before: FoldedRequest | None = None
    again, last = 0, dict[int, int]()
    for request in grown(format):
        body = ObjectBody(request, shares=True)
        before = extend_fold(body, format=format, policy=POLICY, facts=Facts(), before=before)  # type: ignore[arg-type]
        pieces, _ = project(body, before.state, before.context)
        out = body.splice(pieces)
        assert out == respool.compact(request, format=format, policy=POLICY).request
        ids = {at: id(one) for at, one in enumerate(out[FIELD[format]])}
        changed = [at for at, one in ids.items() if last.get(at) == one]
        again += len(changed)
        last = ids
    assert again > 100


UNSIGNED = "gemini-3-pro-preview"


def unsigned(exchanges: int, model: str, asks_at: int) -> list[dict[str, Any]]:
    """The requests of a session without signatures, in which the user speaks again midway."""
    history: list[Any] = long_session("gemini", exchanges, result=60)["contents"]
    said = {"role": "user", "parts": [{"text": "Go on, please."}]}
    history = [*history[: 2 * asks_at + 1], said, *history[2 * asks_at + 1 :]]
    return [{"model": model, "contents": history[:end]} for end in range(1, len(history) + 1, 2)]


@pytest.mark.parametrize("asks_at", [5, 40, 70])
def test_what_an_unsigned_turn_needs_is_settled_too(asks_at: int) -> None:
    """Each request of a long turn costs about its own exchange, and says what it would say cold."""
    memo, ends = Memo(), list[int]()
    for request in unsigned(70, UNSIGNED, asks_at):
        asked = json.dumps(request).encode()
        warm = respool.compact(asked, memo=memo)
        cold = respool.compact(asked)
        assert (warm.request, warm.report) == (cold.request, cold.report)
        settled = fold_request(
            asked, format="gemini", policy=respool.Policy(), facts=Facts(), memo=memo
        ).state.rendered.shared.settled
        ends.append(len(request["contents"]) - (0 if settled is None else settled.end))
        assert respool.check(json.loads(warm.request)) == []
    assert max(ends[40:]) < 40, "rows are looked at again"


def coloured(format: str) -> dict[str, Any]:
    """A session in which every line of a result has a colour."""
    session = json.dumps(long_session(format, 60, result=600))
    return json.loads(session.replace("\\n", "\\u001b[0m\\n\\u001b[32m"))


@formats
@pytest.mark.parametrize("place_breakpoint", [True, False])
def test_rows_are_settled_where_what_comes_is_tidied(format: str, place_breakpoint: bool) -> None:
    """No two untouched rows stand behind the last one that is not, and that may carry a mark."""
    memo, policy, session = Memo(), respool.Policy(passes=("tidy_results",)), coloured(format)
    history, left = session[FIELD[format]], list[int]()
    for end in range(1, len(history) + 1):
        if not _asks(format, history[end - 1]):
            continue
        held = (
            history[:end]
            if not place_breakpoint or format != "anthropic"
            else with_breakpoint(history[:end])
        )
        asked = json.dumps({**session, FIELD[format]: held}).encode()
        warm = respool.compact(asked, format=format, policy=policy, memo=memo)
        assert warm.request == respool.compact(asked, format=format, policy=policy).request
        settled = fold_request(
            asked, format=format, policy=policy, facts=Facts(), memo=memo
        ).state.rendered.shared.settled
        left.append(end - (0 if settled is None else settled.end))
    assert max(left[40:]) < 50, "rows are looked at again"


def test_rows_are_settled_where_a_mark_of_ours_stands_beside_what_folded() -> None:
    """Neighbours that stay apart do so however the marked one of them is spelled."""
    memo, policy = Memo(), respool.Policy(budget=6_000, keep_exchanges=2)
    history, left = long_session("anthropic", 60, result=600)["messages"], list[int]()
    for end in range(41, len(history) + 1, 2):
        asked = json.dumps(
            {"model": MODEL["anthropic"], "messages": with_breakpoint(history[:end])}
        )
        warm = respool.compact(asked, policy=policy, memo=memo)
        assert warm.request == respool.compact(asked, policy=policy).request
        state = fold_request(
            asked, format="anthropic", policy=policy, facts=Facts(), memo=memo
        ).state
        beside = state.rendered.shared.settled
        if state.sent.cut > 0 and any(edit.reason == "folded" for edit in warm.report.edits):
            left.append(end - (0 if beside is None else beside.end))
    assert len(left) > 10
    assert sorted(left)[len(left) // 2] < 30, left
