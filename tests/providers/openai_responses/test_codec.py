"""The OpenAI Responses codec: decoding and edits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from respool.providers.openai_responses.codec import CALLS, KNOWN, OUTPUTS, OpenAIResponsesCodec
from respool.transcript import Part, TranscriptIndex
from respool.wire.message_identity import strip_breakpoints

CODEC = OpenAIResponsesCodec()
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mP4DwABAQEAHLCMmQAAAABJRU5ErkJggg=="
)
PICTURE = f"data:image/png;base64,{PIXEL}"
EXIT = {"type": "exit", "exit_code": 0}


def message(role: str, content: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


def text(said: str, type: str = "input_text") -> dict[str, Any]:
    return {"type": type, "text": said}


def call(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "call_id": "c1", **more}


def read(item: Any) -> list[Part]:
    return CODEC.decode(3, item)


def facts(part: Part) -> tuple[Any, ...]:
    return part.kind, part.speaker, part.text, part.name, part.id, part.server


READ: list[tuple[str, Any, list[tuple[Any, ...]]]] = [
    ("bare user", {"role": "user", "content": "hi"}, [("text", "user", "hi", "", "", False)]),
    (
        "developer",
        message("developer", [text("be brief")]),
        [("text", "system", "be brief", "", "", False)],
    ),
    ("system", message("system", "be kind"), [("text", "system", "be kind", "", "", False)]),
    (
        "assistant, two texts and a refusal",
        message("assistant", [text("a", "output_text"), {"type": "refusal", "refusal": "no"}]),
        [("text", "model", "a", "", "", False), ("text", "model", "no", "", "", False)],
    ),
    ("empty string", message("user", ""), []),
    ("null content", message("user", None), []),
    (
        "function call",
        call("function_call", name="read", arguments='{"p": 1}'),
        [("call", "model", '{"p": 1}', "read", "c1", False)],
    ),
    (
        "custom call",
        call("custom_tool_call", name="patch", input="*** Begin"),
        [("call", "model", "*** Begin", "patch", "c1", False)],
    ),
    (
        "local shell",
        call("local_shell_call", action={"type": "exec"}),
        [("call", "model", '{"type":"exec"}', "local_shell", "c1", False)],
    ),
    (
        "shell",
        call("shell_call", action={"commands": ["ls"]}),
        [("call", "model", '{"commands":["ls"]}', "shell", "c1", False)],
    ),
    (
        "shell in the provider's container",
        call("shell_call", action={}, environment={"type": "container_reference"}),
        [("call", "model", "{}", "shell", "c1", True)],
    ),
    (
        "patch",
        call("apply_patch_call", operation={"path": "a"}),
        [("call", "model", '{"path":"a"}', "apply_patch", "c1", False)],
    ),
    (
        "computer, batched",
        call("computer_call", actions=[{"type": "wait"}]),
        [("call", "model", '[{"type":"wait"}]', "computer", "c1", False)],
    ),
    ("program", call("program", code="f()"), [("call", "model", "f()", "program", "c1", True)]),
    (
        "mcp call holds its output",
        {"type": "mcp_call", "id": "mcp_1", "name": "find", "arguments": "{}", "output": "x"},
        [("call", "model", '{"name":"find","arguments":"{}","output":"x"}', "find", "mcp_1", True)],
    ),
    (
        "web search",
        {"type": "web_search_call", "status": "completed", "action": {"query": "q"}},
        [("call", "model", '{"action":{"query":"q"}}', "web_search", "", True)],
    ),
    (
        "approval asked",
        {"type": "mcp_approval_request", "id": "mcpr_1", "name": "rm", "arguments": "{}"},
        [("call", "model", "{}", "rm", "mcpr_1", True)],
    ),
    (
        "approval given",
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
        [("result", "user", '{"approve":true}', "", "mcpr_1", True)],
    ),
    (
        "output",
        call("function_call_output", output="ok"),
        [("result", "tool", "ok", "", "c1", False)],
    ),
    (
        "null output",
        call("function_call_output", output=None),
        [("result", "tool", "", "", "c1", False)],
    ),
    (
        "named output without a call",
        {"type": "function_call_output", "name": "read", "output": "ok"},
        [("result", "tool", "ok", "read", "", False)],
    ),
    (
        "output in parts, with a picture",
        call(
            "custom_tool_call_output",
            output=[text("a"), {"type": "input_image", "image_url": PICTURE}, text("b")],
        ),
        [("result", "tool", "a\nb", "", "c1", False), ("media", "tool", "", "", "", False)],
    ),
    (
        "local shell output, by id",
        {"type": "local_shell_call_output", "id": "c1", "output": "{}"},
        [("result", "tool", "{}", "local_shell", "c1", False)],
    ),
    (
        "local shell output, by call_id",
        call("local_shell_call_output", id="lso_1", output="{}"),
        [("result", "tool", "{}", "local_shell", "c1", False)],
    ),
    (
        "shell output",
        call(
            "shell_call_output",
            output=[
                {"stdout": "a", "stderr": "", "outcome": EXIT},
                {"stdout": "b", "stderr": "c", "outcome": EXIT},
            ],
        ),
        [("result", "tool", "a\nb\nc", "", "c1", False)],
    ),
    (
        "patch output without a log",
        call("apply_patch_call_output", status="completed"),
        [("result", "tool", "", "", "c1", False)],
    ),
    (
        "screenshot",
        call("computer_call_output", output={"type": "computer_screenshot", "image_url": PICTURE}),
        [("result", "tool", "", "", "c1", False), ("media", "tool", "", "", "", False)],
    ),
    (
        "program output",
        call("program_output", result="4"),
        [("result", "tool", "4", "", "c1", True)],
    ),
    (
        "tools found",
        call("tool_search_output", tools=[]),
        [("result", "tool", "[]", "", "c1", True)],
    ),
    (
        "more tools",
        {"type": "additional_tools", "role": "developer", "tools": []},
        [
            (
                "opaque",
                "system",
                '{"type":"additional_tools","role":"developer","tools":[]}',
                "",
                "",
                False,
            )
        ],
    ),
    (
        "reference",
        {"type": "item_reference", "id": "fc_1"},
        [("opaque", "user", '{"type":"item_reference","id":"fc_1"}', "", "", False)],
    ),
    (
        "unknown call",
        {"type": "dream_call"},
        [("opaque", "model", '{"type":"dream_call"}', "", "", False)],
    ),
    ("unknown", {"type": "dream"}, [("opaque", "user", '{"type":"dream"}', "", "", False)]),
    ("no object", 7, [("opaque", "user", "7", "", "", False)]),
]


@pytest.mark.parametrize(("item", "parts"), [row[1:] for row in READ], ids=[row[0] for row in READ])
def test_reads(item: Any, parts: list[tuple[Any, ...]]):
    assert [facts(part) for part in read(item)] == parts
    assert all(part.ref.row == 3 for part in read(item))


def test_a_call_of_a_fixed_schema_goes_whole_or_stays_as_it_is():
    typed = ("local_shell_call", "shell_call", "apply_patch_call", "computer_call")
    assert all(read(call(kind))[0].signed for kind in typed)
    assert not any(read(call(kind))[0].signed for kind in ("function_call", "custom_tool_call"))


def test_every_known_type_is_read_as_something():
    for kind in KNOWN - {"message"}:
        assert read({"type": kind}), kind


def test_reasoning_is_signed_by_its_encrypted_content():
    item = {
        "type": "reasoning",
        "summary": [text("so", "summary_text")],
        "content": [text("then", "reasoning_text")],
        "encrypted_content": "x" * 80,
    }
    (part,) = read(item)
    assert (part.kind, part.text, part.signed, part.weight) == ("reasoning", "so\nthen", True, 10)
    (plain,) = read({"type": "reasoning", "summary": [], "content": None})
    assert (plain.text, plain.signed, plain.weight) == ("", False, 0)


@pytest.mark.parametrize("kind", ["mcp_list_tools", "dream_call"])
def test_what_is_unbound_counts_as_much_as_before(kind: str):
    """Its id may be given anew when reasoning before it goes: that must not undo the saving."""
    item = {"type": kind, "id": "mcpl_1", "server_label": "docs", "tools": []}
    assert CODEC.unbind(item) != item
    assert CODEC.decode(0, CODEC.unbind(item)) == CODEC.decode(0, item)


def test_compaction_is_opaque_and_weighed():
    (part,) = read({"type": "compaction", "encrypted_content": "x" * 800})
    assert (part.kind, part.text, part.signed, part.weight) == ("opaque", "", True, 100)


def test_pictures_are_weighed_not_read():
    (part,) = read(
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": PIXEL}
    )
    assert part.weight > 0
    assert PIXEL not in part.text
    (file,) = read(
        message("user", [{"type": "input_file", "filename": "a.pdf", "file_data": PICTURE}])
    )
    assert (file.kind, file.text) == ("media", "")
    assert file.weight > 0


LARGE = f"data:image/png;base64,{PIXEL}{'A' * 40_000}"


@pytest.mark.parametrize(
    "item",
    [
        {
            "type": "code_interpreter_call",
            "outputs": [{"type": "logs", "logs": "kept"}, {"type": "image", "url": LARGE}],
        },
        {"type": "dream_call", "note": "kept", "pictures": {"a": [LARGE]}},
        {"type": "dream", "note": "kept", "url": LARGE},
        message("user", [{"type": "image_url", "image_url": {"url": LARGE}, "note": "kept"}]),
    ],
)
def test_a_picture_inside_any_item_is_weighed_not_read(item: Any):
    (part,) = read(item)
    assert "kept" in part.text
    assert len(part.text) < 200
    (plain,) = read(json.loads(json.dumps(item).replace(LARGE, "")))
    assert plain.weight == 0
    assert part.text == plain.text
    image = {"type": "input_image", "image_url": LARGE}
    assert part.weight == read(message("user", [image]))[0].weight


def test_a_picture_quoted_in_a_text_is_text():
    logs = f'<img src="{PICTURE}">'
    item = {"type": "code_interpreter_call", "outputs": [{"type": "logs", "logs": logs}]}
    (part,) = read(item)
    assert (PIXEL in part.text, part.weight) == (True, 0)
    (part,) = read(PICTURE)
    assert (part.text, part.weight) == (PICTURE, 0)


def test_both_pictures_of_an_item_are_weighed():
    one = {"type": "code_interpreter_call", "outputs": [{"type": "image", "url": PICTURE}]}
    two = one | {"outputs": one["outputs"] * 2}
    assert read(two)[0].weight == 2 * read(one)[0].weight > 0


LOCAL_SHELL = {"type": "local_shell_call", "id": "lsh_1", "action": {}}
BY_ID = {"type": "local_shell_call_output", "id": "lsh_1", "output": "{}"}


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (LOCAL_SHELL | {"call_id": None}, BY_ID),
        (LOCAL_SHELL, BY_ID),
        (LOCAL_SHELL | {"call_id": "c1"}, BY_ID),
        (LOCAL_SHELL | {"call_id": "c1"}, BY_ID | {"id": "c1"}),
        (LOCAL_SHELL | {"call_id": "c1"}, call("function_call_output", output="{}")),
        (LOCAL_SHELL, call("function_call_output", output="{}") | {"call_id": "lsh_1"}),
    ],
)
def test_a_local_shell_output_pairs_with_its_call_by_either_id(asked: Any, answer: Any):
    index = TranscriptIndex()
    index.add_unit((0, 2), CODEC.decode(0, asked), CODEC.decode(1, answer), locked=False)
    assert index.freeze().exchange_of == (0, 0)


def test_unbinding_leaves_the_name_by_which_an_output_answers():
    bound = LOCAL_SHELL | {"call_id": None}
    unbound = {"type": "local_shell_call", "call_id": "lsh_1", "action": {}}
    assert CODEC.unbind(bound) == unbound
    assert CODEC.unbind(LOCAL_SHELL | {"call_id": "c1"}) == unbound | {"call_id": "c1"}
    assert read(unbound)[0].id == read(bound)[0].id


@pytest.mark.parametrize(
    ("item", "failed"),
    [
        (call("apply_patch_call_output", status="failed"), True),
        (call("apply_patch_call_output", status="completed"), False),
        (call("shell_call_output", output=[{"stdout": "", "outcome": {"type": "timeout"}}]), True),
        (call("shell_call_output", output=[{"outcome": {"type": "exit", "exit_code": 2}}]), True),
        (call("shell_call_output", output=[{"outcome": EXIT}]), False),
        (call("function_call_output", output="x", status="incomplete"), False),
    ],
)
def test_failure_is_what_the_wire_says(item: Any, failed: bool):
    assert read(item)[0].error is failed


MADE = {
    True: [
        {"role": "assistant", "content": ""},
        *(
            {"type": kind}
            for kind in ("reasoning", "function_call", "program", "mcp_list_tools", "compaction")
        ),
        {"type": "dream_call"},
    ],
    False: [
        {"role": "user", "content": ""},
        *(
            {"type": kind}
            for kind in (
                *OUTPUTS,
                "mcp_approval_response",
                "compaction_trigger",
                "additional_tools",
            )
        ),
        {"type": "item_reference", "id": "fc_1"},
        {"id": "fc_1"},
        {"type": "dream"},
        {},
        [],
        None,
    ],
}


@pytest.mark.parametrize(
    ("item", "made"), [(item, made) for made, items in MADE.items() for item in items]
)
def test_knows_what_the_model_made(item: Any, made: bool):
    assert CODEC.is_model_made(item) is made


BREAKPOINT = {"mode": "explicit"}
REPLACED: list[tuple[str, Any, str, Any]] = [
    ("text", message("user", "long"), "short", message("user", "short")),
    (
        "part",
        message("user", [text("long") | {"prompt_cache_breakpoint": BREAKPOINT}]),
        "short",
        message("user", [text("short") | {"prompt_cache_breakpoint": BREAKPOINT}]),
    ),
    (
        "refusal",
        message("assistant", [{"type": "refusal", "refusal": "long"}]),
        "no",
        message("assistant", [{"type": "refusal", "refusal": "no"}]),
    ),
    (
        "arguments",
        call("function_call", arguments='{"a": 1}'),
        "{}",
        call("function_call", arguments="{}"),
    ),
    ("input", call("custom_tool_call", input="long"), "s", call("custom_tool_call", input="s")),
    (
        "action",
        call("shell_call", action={"commands": ["ls"]}),
        '{"a":1}',
        call("shell_call", action={"a": 1}),
    ),
    (
        "operation",
        call("apply_patch_call", operation={}),
        '{"a":1}',
        call("apply_patch_call", operation={"a": 1}),
    ),
    ("actions", call("computer_call", actions=[]), "[1]", call("computer_call", actions=[1])),
    (
        "output",
        call("function_call_output", output="long"),
        "s",
        call("function_call_output", output="s"),
    ),
    (
        "output in parts",
        call(
            "function_call_output",
            output=[
                text("a"),
                {"type": "input_image"},
                text("b") | {"prompt_cache_breakpoint": BREAKPOINT},
            ],
        ),
        "s",
        call(
            "function_call_output",
            output=[text("s") | {"prompt_cache_breakpoint": BREAKPOINT}, {"type": "input_image"}],
        ),
    ),
    (
        "shell output keeps its outcome",
        call("shell_call_output", output=[{"stdout": "a", "stderr": "", "outcome": EXIT}]),
        "s",
        call("shell_call_output", output=[{"stdout": "s", "stderr": "", "outcome": EXIT}]),
    ),
    (
        "and its stream",
        call("shell_call_output", output=[{"stdout": "", "stderr": "a", "outcome": EXIT}]),
        "s",
        call("shell_call_output", output=[{"stdout": "", "stderr": "s", "outcome": EXIT}]),
    ),
    (
        "patch log",
        call("apply_patch_call_output", status="failed", output="long"),
        "s",
        call("apply_patch_call_output", status="failed", output="s"),
    ),
    (
        "a screenshot has no words",
        call("computer_call_output", output={"type": "computer_screenshot"}),
        "s",
        call("computer_call_output", output={"type": "computer_screenshot"}),
    ),
    (
        "reasoning in its content",
        {
            "type": "reasoning",
            "summary": [text("a", "summary_text")],
            "content": [text("b", "reasoning_text")],
        },
        "s",
        {"type": "reasoning", "summary": [], "content": [text("s", "reasoning_text")]},
    ),
    (
        "reasoning in its summary",
        {"type": "reasoning", "summary": [text("a", "summary_text")]},
        "s",
        {"type": "reasoning", "summary": [text("s", "summary_text")]},
    ),
]


@pytest.mark.parametrize(
    ("item", "said", "new"), [row[1:] for row in REPLACED], ids=[row[0] for row in REPLACED]
)
def test_replaces(item: Any, said: str, new: Any):
    before = json.dumps(item)
    assert CODEC.replace(item, read(item)[0], said) == new
    assert json.dumps(item) == before


STAND_IN = "[respool: 1 image left out; ref bbidnwiqv5awc2eneyyx]"
IMAGE = {"type": "input_image", "image_url": PICTURE, "prompt_cache_breakpoint": BREAKPOINT}


def test_pictures_and_files_are_replaced_by_text():
    said = text("b") | {"prompt_cache_breakpoint": BREAKPOINT}
    asked = message("user", [text("a"), IMAGE, {"type": "input_file", "file_id": "file_1"}])
    changed = CODEC.replace(asked, read(asked)[1], "b")
    assert changed == message("user", [text("a"), said, asked["content"][2]])
    assert CODEC.replace(changed, read(asked)[2], "c")["content"][2] == text("c")
    answer = call("function_call_output", output=[text("r"), IMAGE])
    assert CODEC.replace(answer, read(answer)[1], "b")["output"] == [text("r"), said]


def test_the_marker_of_a_picture_is_no_word_of_its_result():
    answer = call("function_call_output", output=[text("r"), text(STAND_IN), text("s")])
    result, marker = read(answer)
    assert (result.text, marker.kind, marker.text) == ("r\ns", "opaque", STAND_IN)
    assert CODEC.replace(answer, result, "t")["output"] == [text("t"), text(STAND_IN)]


def test_a_screenshot_stays_for_no_text_may_stand_there():
    answer = call(
        "computer_call_output", output={"type": "computer_screenshot", "image_url": PICTURE}
    )
    assert CODEC.replace(answer, read(answer)[1], "b") is answer


@pytest.mark.parametrize(
    "chunks",
    [
        [{"stdout": "a", "stderr": "b", "outcome": EXIT}],
        [{"stdout": "a", "outcome": EXIT}, {"stdout": "b", "outcome": {"type": "timeout"}}],
        [{"stdout": "a", "outcome": EXIT}, {"stdout": "", "outcome": EXIT}],
        [],  # which has no place for it either
    ],
)
def test_what_several_commands_or_streams_wrote_is_not_put_into_one(chunks: Any):
    item = call("shell_call_output", output=chunks)
    (part,) = read(item)
    assert part.signed
    assert CODEC.replace(item, part, "s") is item


@pytest.mark.parametrize("chunks", [[{"stdout": "a"}], [{"stderr": "a"}], [{}], None, "a"])
def test_what_one_stream_wrote_can_be_put_in_other_words(chunks: Any):
    assert not read(call("shell_call_output", output=chunks))[0].signed


def test_what_is_replaced_is_read_back():
    for _, item, said, _ in REPLACED:
        (part, *_) = read(item)
        if part.kind in ("text", "result") and part.text:
            assert read(CODEC.replace(item, part, said))[0].text == said


def test_removes_single_parts_of_a_message_and_any_other_item_whole():
    item = message("user", [text("a"), text("b")])
    first, second = read(item)
    assert CODEC.remove(item, [first]) == message("user", [text("b")])
    assert CODEC.remove(item, [first, second]) is None
    assert CODEC.remove(message("user", "a"), read(message("user", "a"))) is None
    output = call("function_call_output", output=[text("a"), {"type": "input_image"}])
    result, picture = read(output)
    assert CODEC.remove(output, [result, picture]) is None
    assert CODEC.remove(output, [picture]) == call("function_call_output", output=[text("a")])
    for kind in (*CALLS, "reasoning"):
        assert CODEC.remove({"type": kind}, read({"type": kind})) is None


def test_unbind_takes_off_the_id_that_reasoning_is_looked_up_by():
    bound = call("function_call", id="fc_1", name="a", arguments="{}")
    assert CODEC.unbind(bound) == call("function_call", name="a", arguments="{}")
    assert CODEC.unbind({"type": "web_search_call", "id": "ws_1"}) == {"type": "web_search_call"}
    computer = CODEC.unbind(call("computer_call", id="cu_1"))
    assert computer["id"].startswith("cu_")
    assert computer["id"] != "cu_1"
    for kept in (
        {"type": "reasoning", "id": "rs_1"},
        {"type": "mcp_approval_request", "id": "mcpr_1"},
        message("user", "a") | {"id": "msg_1"},
        call("function_call"),
        7,
    ):
        assert CODEC.unbind(kept) is kept


def test_locks_a_run_with_reasoning_or_a_program():
    reasoning, program = read({"type": "reasoning"}), read(call("program"))
    plain = read(call("function_call"))
    assert CODEC.has_locked_calls([*reasoning, *plain])
    assert CODEC.has_locked_calls([*program, *plain])
    assert not CODEC.has_locked_calls(plain)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (
            message("user", "a"),
            message("user", [text("a") | {"prompt_cache_breakpoint": BREAKPOINT}]),
        ),
        (
            message("user", [text("a")]),
            message("user", [text("a") | {"prompt_cache_breakpoint": BREAKPOINT}]),
        ),
        (
            call("function_call_output", output="a"),
            call(
                "function_call_output", output=[text("a") | {"prompt_cache_breakpoint": BREAKPOINT}]
            ),
        ),
        (
            call("custom_tool_call_output", output=[text("a"), text("b")]),
            call(
                "custom_tool_call_output",
                output=[text("a"), text("b") | {"prompt_cache_breakpoint": BREAKPOINT}],
            ),
        ),
    ],
)
def test_marks(item: Any, expected: Any):
    assert CODEC.place_breakpoint(item, read(item)[0], BREAKPOINT) == expected


@pytest.mark.parametrize(
    "item",
    [
        message("assistant", [text("a", "output_text")]),
        call("function_call", arguments="{}"),
        call("shell_call_output", output=[{"stdout": "a", "outcome": EXIT}]),
        call("function_call_output", output=[]),
        call("function_call_output", output=["a"]),
    ],
)
def test_a_mark_stands_only_where_the_api_takes_one(item: Any):
    assert CODEC.place_breakpoint(item, read(item)[0], BREAKPOINT) is item


def test_a_mark_is_no_part_of_what_an_item_says():
    item = message("user", [text("a")])
    expected = CODEC.place_breakpoint(item, read(item)[0], BREAKPOINT)
    assert read(expected) == read(item)
    assert strip_breakpoints(expected) == item


def test_reads_the_head():
    fields = {
        "instructions": "be brief",
        "tools": [{"type": "function", "name": "a"}, {"type": "web_search"}],
    }
    assert [(part.kind, part.speaker) for part in CODEC.decode_head(fields)] == [
        ("text", "system"),
        ("opaque", "system"),
        ("opaque", "system"),
    ]
    for odd in ({}, {"instructions": 3, "tools": "x"}, {"instructions": None, "tools": [None]}):
        CODEC.decode_head(odd)


KEYS = st.sampled_from(
    ["type", "role", "content", "id", "call_id", "output", "arguments", "input", "action", "text"]
) | st.sampled_from(["summary", "tools", "result", "name", "encrypted_content", "image_url"])
VALUES = st.sampled_from(
    [*sorted(KNOWN), "user", "assistant", "input_text", "input_image", "input_file", "", "{}"]
)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | VALUES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=12,
)
LIKE_ITEMS = st.fixed_dictionaries(
    {"type": VALUES},
    optional={
        "role": VALUES | ANY_JSON,
        "content": ANY_JSON,
        "output": ANY_JSON,
        "id": ANY_JSON,
        "call_id": ANY_JSON,
        "summary": ANY_JSON,
        "arguments": ANY_JSON,
        "result": ANY_JSON,
        "action": ANY_JSON,
    },
)


@given(ANY_JSON | LIKE_ITEMS)
@example({"type": "message", "role": "user", "content": [{"type": []}]})
@example({"type": "function_call_output", "call_id": "c1", "output": [{"type": {}}]})
def test_nothing_that_is_read_raises(item: Any):
    parts = CODEC.decode(0, item)
    CODEC.is_model_made(item)
    CODEC.unbind(item)
    CODEC.has_locked_calls(parts)
    for part in parts:
        CODEC.remove(item, [part])
        CODEC.place_breakpoint(item, part, BREAKPOINT)
        if part.kind in ("text", "result", "reasoning"):
            CODEC.replace(item, part, "short")
        if part.kind == "call" and not part.server:
            CODEC.replace(item, part, "{}")
