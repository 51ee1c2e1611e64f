"""OpenAI Responses rules: each one broken and kept."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from respool.providers.base import Problem, RuleState, split_steps
from respool.providers.openai_responses.check import (
    PREFIXES,
    OpenAIResponsesRules,
    is_plain,
    relation_problems,
    track_ids,
    track_plain_ids,
)
from respool.providers.openai_responses.codec import KNOWN, OpenAIResponsesCodec, kind_of
from tests.effort import examples
from tests.laws.sessions import long_session
from tests.strategies import arbitrary_json_messages, broken, histories

CODEC = OpenAIResponsesCodec()
RULES = OpenAIResponsesRules()
Items = list[Any]


def problems(items: Items, fields: dict[str, Any] | None = None) -> list[Problem]:
    """Everything found in a history."""
    seen = RuleState()
    found: list[Problem] = []
    for step in split_steps(CODEC, items):
        before = seen.copy()
        found += RULES.check_step(step, seen, fields)
        assert seen == before, "judging must not change what was seen"
        RULES.advance(step, seen)
    found += RULES.check_end(seen, len(items), items.__getitem__, fields)
    return found + RULES.check_fields(items, fields)


def codes(items: Items, fields: dict[str, Any] | None = None) -> list[tuple[str, str]]:
    return [(problem.code, problem.place) for problem in problems(items, fields)]


def say(role: str = "user", content: Any = "hi", **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content, **more}


def call(call_id: Any = "c1", /, kind: str = "function_call", **more: Any) -> dict[str, Any]:
    asked = {"name": "read", "arguments": "{}"} if kind == "function_call" else {}
    return {"type": kind, "call_id": call_id, **asked, **more}


def output(
    call_id: Any = "c1", /, kind: str = "function_call_output", **more: Any
) -> dict[str, Any]:
    return {"type": kind, "call_id": call_id, "output": "ok", **more}


def think(**more: Any) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], **more}


SHELL = {"stdout": "ok", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
SHOT = {"type": "computer_screenshot", "image_url": "https://threads.example/a.png"}
LONG = "x" * 65
BY_ID = {"type": "local_shell_call_output", "id": "lsh_1", "output": "{}"}

# code, place, broken, mended by hand
BROKEN: list[tuple[str, str, str, Items, Items]] = [
    ("R0", "input[0]", "no object", ["hi"], [say()]),
    (
        "R0",
        "input[0]",
        "neither type nor role",
        [{"content": "hi"}],
        [{"role": "user", "content": "hi"}],
    ),
    ("R0", "input[0].type", "type no string", [say(type=5)], [say()]),
    ("R0", "input[0].role", "role of another API", [say("tool")], [say("developer")]),
    ("R0", "input[0].content", "null content", [say(content=None)], [say(content="")]),
    (
        "R0",
        "input[0].content[1]",
        "part no object",
        [say(content=[{"type": "input_text"}, "a"])],
        [say(content=[])],
    ),
    (
        "R0",
        "input[0].arguments",
        "arguments cut off",
        [call(arguments='{"a": "b'), output()],
        [call(arguments='{"a": "b"}'), output()],
    ),
    (
        "R0",
        "input[0].arguments",
        "arguments an object",
        [call(arguments={}), output()],
        [call(arguments=""), output()],
    ),
    (
        "R0",
        "input[0].summary",
        "no summary",
        [{"type": "reasoning"}, say("assistant")],
        [think(), say("assistant")],
    ),
    (
        "R0",
        "input[1].output[0]",
        "output part no object",
        [call(), output(output=[None])],
        [call(), output(output=[])],
    ),
    ("R1", "input[0]", "no output", [call(), say()], [call(), say(), output()]),
    (
        "R1",
        "input[0]",
        "not async",
        [call() | {"async": False}, say()],
        [call() | {"async": True}, say()],
    ),
    (
        "R1",
        "input[0]",
        "one of two",
        [call(), call("c2"), output("c2")],
        [call(), call("c2"), output("c2"), output()],
    ),
    ("R2", "input[0]", "no call", [output(), say()], [call(), output(), say()]),
    ("R2", "input[2]", "two outputs", [call(), output(), output()], [call(), output()]),
    (
        "R2",
        "input[3]",
        "two, far apart",
        [call(), output(), say(), output()],
        [call(), output(), say()],
    ),
    (
        "R3",
        "input[1]",
        "reasoning before a user",
        [say(), think(), say()],
        [say(), think(), say("assistant")],
    ),
    (
        "R3",
        "input[1]",
        "reasoning last",
        [say(), think(id="rs_1")],
        [say(), think(id="rs_1"), call()],
    ),
    (
        "R4",
        "input[0].id",
        "reasoning behind its item",
        [say("assistant", id="msg_1"), think(), say()],
        [think(), say("assistant", id="msg_1"), say()],
    ),
    (
        "R5",
        "input[0].id",
        "prefix rs",
        [think(id="r_1"), say("assistant")],
        [think(id="rs_1"), say("assistant")],
    ),
    (
        "R5",
        "input[0].id",
        "prefix fc",
        [call(id="x_1"), output()],
        [call() | {"id": "fc_1"}, output()],
    ),
    ("R5", "input[0].id", "prefix msg", [say("assistant", id="1")], [say("assistant", id="msg_1")]),
    ("R5", "input[0].id", "id no string", [say("assistant", id=4)], [say("assistant", id=None)]),
    (
        "R5",
        "input[1].id",
        "id twice",
        [say("assistant", id="msg_1"), say("assistant", id="msg_1")],
        [say("assistant", id="msg_1"), say("assistant", id="msg_2")],
    ),
    (
        "R5",
        "input[2].id",
        "id twice, steps apart",
        [say("assistant", id="msg_1"), say(), say("assistant", id="msg_1")],
        [say("assistant", id="msg_1"), say(), say("assistant", id="msg_2")],
    ),
    (
        "R5",
        "input[2].call_id",
        "call_id twice",
        [call(), output(), call(), say()],
        [call(), output(), call("c2"), output("c2"), say()],
    ),
    (
        "R5",
        "input[0].call_id",
        "call_id too long",
        [call(LONG), say()],
        [call(LONG[1:]), say(), output(LONG[1:])],
    ),
    ("R5", "input[0].call_id", "call_id missing", [call(None), say()], [call(), say(), output()]),
    (
        "R9",
        "input[1]",
        "wrong output",
        [call(), output(kind="custom_tool_call_output")],
        [call(), output()],
    ),
    (
        "R9",
        "input[2]",
        "wrong output, steps apart",
        [call(kind="custom_tool_call", input=""), say("assistant"), output()],
        [
            call(kind="custom_tool_call", input=""),
            say("assistant"),
            output(kind="custom_tool_call_output"),
        ],
    ),
    ("R9", "input[1]", "null output", [call(), output(output=None)], [call(), output(output="")]),
    (
        "R9",
        "input[1]",
        "patch without status",
        [call(kind="apply_patch_call"), output(kind="apply_patch_call_output")],
        [
            call(kind="apply_patch_call"),
            {"type": "apply_patch_call_output", "call_id": "c1", "status": "completed"},
        ],
    ),
    (
        "R9",
        "input[1]",
        "shell output a string",
        [call(kind="shell_call"), output(kind="shell_call_output")],
        [call(kind="shell_call"), output(kind="shell_call_output", output=[SHELL])],
    ),
    (
        "R9",
        "input[0]",
        "approval without its request",
        [{"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}],
        [
            {"type": "mcp_approval_request", "id": "mcpr_1", "name": "a", "arguments": "{}"},
            say("assistant"),
            {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
        ],
    ),
    (
        "R10",
        "input[0]",
        "trigger before a message",
        [{"type": "compaction_trigger"}, say()],
        [say(), {"type": "compaction_trigger"}],
    ),
    (
        "R10",
        "input[1]",
        "trigger before the model",
        [say(), {"type": "compaction_trigger"}, say("assistant")],
        [say(), say("assistant"), {"type": "compaction_trigger"}],
    ),
]


@pytest.mark.parametrize(
    ("code", "place", "broken", "whole"),
    [(code, place, broken, whole) for code, place, _, broken, whole in BROKEN],
    ids=[f"{row[0]} {row[2]}" for row in BROKEN],
)
def test_each_rule(code: str, place: str, broken: Items, whole: Items):
    assert (code, place) in codes(broken)
    assert all(problem.severity == "error" for problem in problems(broken))
    assert codes(whole) == []


VALID: list[tuple[str, Items]] = [
    ("pending calls", [say(), think(id="rs_1"), call(), call("c2")]),
    ("text between call and output", [call(), say("assistant"), say(), output()]),
    ("outputs in another order", [call(), call("c2"), output("c2"), output()]),
    ("output right behind each call", [call(), output(), call("c2"), output("c2")]),
    ("late output", [call(), say(), say("assistant"), say(), output()]),
    ("reasoning in a row", [think(id="rs_1"), think(id="rs_2"), call(), output()]),
    (
        "reasoning, search, reasoning, message",
        [think(), {"type": "web_search_call"}, think(), say("assistant")],
    ),
    ("reasoning before what we do not know", [think(id="rs_1"), {"type": "dream"}, say()]),
    (
        "unknown types, repeated ids and all",
        [{"type": "dream", "id": "1"}, {"type": "dream", "id": "1"}],
    ),
    ("output of an unknown call", [{"type": "dream_call", "call_id": "c1"}, output()]),
    (
        "and of one long ago",
        [{"type": "dream_call", "call_id": "c1"}, say(), say("assistant"), output()],
    ),
    ("local shell as Codex answers it", [call(kind="local_shell_call", id="lsh_1"), output()]),
    (
        "local shell by id",
        [
            call(kind="local_shell_call"),
            {"type": "local_shell_call_output", "id": "c1", "output": "{}"},
        ],
    ),
    ("local shell by its own id", [call(kind="local_shell_call", id="lsh_1"), BY_ID]),
    (
        "local shell by its own id, steps apart",
        [call(kind="local_shell_call", id="lsh_1"), say(), say("assistant"), BY_ID],
    ),
    ("local shell without call_id", [call(None, kind="local_shell_call", id="lsh_1"), BY_ID]),
    (
        "local shell without call_id, as Codex answers it",
        [call(None, kind="local_shell_call", id="lsh_1"), output("lsh_1")],
    ),
    (
        "local shell without call_id, steps apart",
        [
            call(None, kind="local_shell_call", id="lsh_1"),
            *(say(), say("assistant")),
            output("lsh_1"),
        ],
    ),
    (
        "local shells, by either id",
        [
            call("c1", kind="local_shell_call", id="lsh_1"),
            call("c2", kind="local_shell_call", id="lsh_2"),
            BY_ID | {"id": "lsh_2"},
            BY_ID | {"id": "c1"},
        ],
    ),
    (
        "local shell by call_id",
        [call(kind="local_shell_call"), output(kind="local_shell_call_output", id="lso_1")],
    ),
    (
        "computer",
        [call(kind="computer_call", id="cu_1"), output(kind="computer_call_output", output=SHOT)],
    ),
    (
        "client tool search",
        [
            call(kind="tool_search_call"),
            {"type": "tool_search_output", "call_id": "c1", "tools": []},
        ],
    ),
    (
        "server tool search, without ids",
        [
            {"type": "tool_search_call", "execution": "server", "call_id": None, "arguments": {}},
            {"type": "tool_search_output", "execution": "server", "call_id": None, "tools": []},
            say("assistant"),
        ],
    ),
    ("a call that runs beside the conversation", [call() | {"async": True}, say()]),
    (
        "and the output of one, some turns later",
        [
            call(kind="custom_tool_call") | {"async": True},
            *(say("assistant"), say(), say("assistant")),
            output(kind="custom_tool_call_output"),
        ],
    ),
    ("a program waits for its calls", [call(kind="program"), call("c2"), output("c2")]),
    (
        "and has its output",
        [call(kind="program"), {"type": "program_output", "call_id": "c1", "result": "4"}],
    ),
    ("items without ids", [think(), call(), output(), say("assistant")]),
    ("arguments that are no object", [call(arguments="[NaN, 1]"), output()]),
    ("arguments too deep to judge", [call(arguments="[" * 100_000 + "]" * 100_000), output()]),
    ("longest call_id", [call("x" * 64), output("x" * 64)]),
    ("compaction, then on", [say(), {"type": "compaction", "encrypted_content": "x"}, say()]),
    ("trigger last", [say(), {"type": "compaction_trigger"}]),
    (
        "settings on the way",
        [say(), {"type": "additional_tools", "role": "developer", "tools": []}, say("assistant")],
    ),
]


@pytest.mark.parametrize("items", [items for _, items in VALID], ids=[name for name, _ in VALID])
def test_accepts(items: Items):
    assert codes(items) == []


HELD_ELSEWHERE: Items = [output(), think(id="rs_1"), say(), call("c2"), say()]


@pytest.mark.parametrize(
    ("items", "fields"),
    [
        (HELD_ELSEWHERE, {"previous_response_id": "resp_1"}),
        (HELD_ELSEWHERE, {"conversation": {"id": "conv_1"}}),
        ([{"type": "item_reference", "id": "fc_1"}, *HELD_ELSEWHERE], None),
        ([{"id": "fc_1"}, *HELD_ELSEWHERE], {"previous_response_id": None}),
        (
            [{"type": "mcp_approval_response", "approval_request_id": "a"}],
            {"previous_response_id": "resp_1"},
        ),
    ],
)
def test_pairs_are_not_judged_where_the_server_holds_the_rest(
    items: Items, fields: dict[str, Any] | None
):
    assert codes(items, fields) == []


def test_the_rest_is_judged_all_the_same():
    fields = {"previous_response_id": "resp_1"}
    assert ("R9", "input[0]") in codes([output(output=None)], fields)
    assert ("R5", "input[0].call_id") in codes([output(LONG)], fields)


def test_an_empty_history_says_nothing_to_answer():
    assert codes([]) == [("R0", "input")]
    assert codes([], {"model": "gpt-5.6"}) == [("R0", "input")]
    assert codes([], {"prompt": {"id": "pmpt_1"}}) == []
    assert codes([], {"previous_response_id": "resp_1"}) == []


def test_two_names_for_one_history():
    both = {"previous_response_id": "resp_1", "conversation": "conv_1"}
    assert codes([say()], both) == [("R8", "previous_response_id")]
    assert codes([say()], {"previous_response_id": "resp_1", "conversation": None}) == []


def test_warnings():
    named = {"type": "function_call_output", "name": "read", "output": "ok"}
    assert [(p.code, p.severity) for p in problems([say(), named])] == [("R2", "warning")]
    phased = [say("assistant", phase="commentary"), say("assistant")]
    assert [(p.code, p.place, p.severity) for p in problems(phased)] == [
        ("R11", "input[1].phase", "warning")
    ]
    assert problems([say("assistant", phase="final_answer"), say()]) == []


def test_an_item_that_its_own_reasoning_leads_is_not_blamed_for_another():
    items = [think(id="rs_1"), call() | {"id": "fc_1"}, think(id="rs_2"), output()]
    assert codes(items) == [("R3", "input[2]")]
    items = [
        think(id="rs_1"),
        call() | {"id": "fc_1"},
        call("c2") | {"id": "fc_2"},
        think(id="rs_2"),
        say(),
    ]
    assert [c for c in codes(items) if c[0] == "R4"] == [("R4", "input[2].id")]


def test_a_local_shell_takes_one_answer_by_whichever_id():
    shell = call(kind="local_shell_call", id="lsh_1")
    assert codes([shell, BY_ID, BY_ID]) == [("R2", "input[2]")]
    assert codes([shell, BY_ID, output()]) == [("R2", "input[2]")]
    assert codes([shell, output(), BY_ID]) == [("R2", "input[2]")]
    apart = [shell, BY_ID, say("assistant"), BY_ID]
    assert codes(apart) == [("R2", "input[3]")]
    assert codes([shell, output("lsh_1"), say()]) == [("R2", "input[1]"), ("R1", "input[0]")]
    twice = [shell, BY_ID, shell | {"call_id": "c2"}, BY_ID]
    assert codes(twice) == [("R5", "input[2].id"), ("R5", "input[3].id")]


def test_problems_say_where_and_what():
    assert [str(problem) for problem in problems([say(), output("call_9")])] == [
        "input[1]: No call is found for the output with call_id 'call_9'. [R2]"
    ]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([*sorted(KNOWN), "user", "assistant", "c1", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "role", "content", "id", "call_id", "output", "arguments", "summary"]
            ),
            inner,
        )
    ),
    max_leaves=8,
)


@given(
    st.lists(JSON, max_size=8),
    st.none() | st.dictionaries(st.sampled_from(["conversation", "input"]), JSON),
)
def test_nothing_raises(items: Items, fields: dict[str, Any] | None):
    problems(items, fields)


def plain_steps_are_sound(items: Items, fields: dict[str, Any] | None = None) -> int:
    """Hold every step that passes for plain against the full rules; how many there were."""
    seen, plain = RuleState(), 0
    for step in split_steps(CODEC, items):
        kinds = [kind_of(item) for item in step.messages]
        before, noted = seen.copy(), seen.copy()
        passes = is_plain(step, kinds, seen)
        assert seen == before
        track_ids(step, kinds, seen)
        if passes:
            plain += 1
            assert relation_problems(step, before, fields) == []
            track_plain_ids(step, kinds, noted)
            assert noted == seen
    return plain


def common(kind: str, id: Any, own: Any, more: dict[str, Any]) -> dict[str, Any]:
    """An item of sound shape, under ids that may be anything."""
    shape = {"content": "", "output": "", "arguments": "", "summary": []}
    own = f"{PREFIXES.get(kind, 'x')}_1" if own == "fitting" else own
    ids = {"call_id": id, "id": own}
    return {"type": kind, **shape, **more, **{k: v for k, v in ids.items() if v is not None}}


PAIRS = ["function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"]
COMMON = st.builds(
    common,
    st.sampled_from(["message", "reasoning", *PAIRS, *PAIRS[:2]])
    | st.sampled_from([*sorted(KNOWN), "future_call"]),
    st.sampled_from(["c1", "c2"]) | st.sampled_from(["c1_2", "", "x" * 57, LONG, None, 5]),
    st.none() | st.sampled_from(["fitting", "c1", 5]),
    st.sampled_from([{"role": "user"}, {"role": "assistant"}, {"execution": "server"}]),
)
FIELDS = st.none() | st.sampled_from([{}, {"conversation": "conv_1"}])


@settings(max_examples=examples(500))
@given(st.lists(COMMON, max_size=8), FIELDS)
@example([call(), output(), output()], None)
@example([say(id="msg_1"), say("assistant", id="msg_2"), say(id="msg_1")], None)
@example([call("c1", "tool_search_call", execution="server")], None)
def test_what_passes_for_plain_passes_the_full_rules(items: Items, fields: dict[str, Any] | None):
    plain_steps_are_sound(items, fields)


@given(histories("openai-responses") | broken("openai-responses").map(lambda one: one["input"]))
def test_what_passes_for_plain_in_a_session_passes_the_full_rules(items: Items):
    if isinstance(items, list):
        plain_steps_are_sound(items)


@given(st.lists(JSON, max_size=8) | arbitrary_json_messages())
def test_what_passes_for_plain_in_any_json_passes_the_full_rules(items: Items):
    plain_steps_are_sound(items)


def test_the_steps_of_common_sessions_are_plain():
    items = long_session("openai-responses", 20)["input"]
    assert plain_steps_are_sound(items) == len(list(split_steps(CODEC, items)))
    patch = [
        think(id="rs_1"),
        say("assistant", id="msg_1"),
        call("c1", "custom_tool_call"),
        call("c2") | {"id": "fc_1"},
        output("c2"),
        output("c1", "custom_tool_call_output"),
        say(),
    ]
    assert plain_steps_are_sound(patch) == 1
