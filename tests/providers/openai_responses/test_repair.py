"""Repairs of OpenAI Responses histories."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.providers.base import (
    BLANK_TEXT,
    CONTINUE_TEXT,
    NO_RESULT_TEXT,
    Repair,
    RuleState,
    Step,
    split_steps,
    unpaired_result_text,
)
from respool.providers.openai_responses.check import OpenAIResponsesRules
from respool.providers.openai_responses.codec import KNOWN, OpenAIResponsesCodec
from respool.providers.openai_responses.repair import (
    NO_SCREENSHOT,
    RESULT_ABOVE_TEXT,
    OpenAIResponsesRepairer,
)
from tests.effort import examples

CODEC = OpenAIResponsesCodec()
RULES = OpenAIResponsesRules()
REPAIRER = OpenAIResponsesRepairer()
Items = list[Any]
Fields = dict[str, Any] | None


def repair_all(items: Items, fields: Fields = None) -> tuple[Items, list[Repair]]:
    """The history after repair, and what was done to it."""
    seen = RuleState()
    rows: Items = []
    repairs: list[Repair] = []
    for step in split_steps(CODEC, items):
        repaired = REPAIRER.repair_step(step, seen, fields)
        new = list(step.messages)
        if repaired is not None:
            assert repaired.repairs
            new = [row.message for row in repaired.rows]
            repairs += repaired.repairs
            for row in repaired.rows:
                assert row.source is not None
                assert step.at <= row.source < step.at + len(step.messages)
        for sub in split_steps(CODEC, new):
            RULES.advance(Step(sub.messages, len(rows) + sub.at, sub.model_count), seen)
        rows += new
    ending = REPAIRER.repair_end(seen, len(rows), rows.__getitem__, fields)
    if ending is None:
        return rows, repairs
    out: Items = []
    for row, item in enumerate(rows):
        out += [ending.changes.get(row, item), *ending.inserts.get(row, [])]
    return out, repairs + ending.repairs


def repaired(items: Items, fields: Fields = None) -> Items:
    return repair_all(items, fields)[0]


def errors(items: Items, fields: Fields = None) -> list[str]:
    seen = RuleState()
    found = RULES.check_fields(items, fields)
    for step in split_steps(CODEC, items):
        found += RULES.check_step(step, seen, fields)
        RULES.advance(step, seen)
    found += RULES.check_end(seen, len(items), items.__getitem__, fields) if items else []
    return [str(problem) for problem in found if problem.severity == "error"]


def say(role: str = "user", content: Any = "hi", **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content, **more}


def told(text: str) -> dict[str, Any]:
    return say(content=[{"type": "input_text", "text": text}])


def call(call_id: Any = "c1", /, kind: str = "function_call", **more: Any) -> dict[str, Any]:
    asked = {"name": "read", "arguments": "{}"} if kind == "function_call" else {}
    return {"type": kind, "call_id": call_id, **asked, **more}


def output(
    call_id: Any = "c1", /, kind: str = "function_call_output", **more: Any
) -> dict[str, Any]:
    return {"type": kind, "call_id": call_id, "output": "ok", **more}


def nothing(call_id: str = "c1") -> dict[str, Any]:
    return output(call_id, output=NO_RESULT_TEXT)


def think(**more: Any) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], **more}


def orphan(call_id: str, text: str = "ok") -> dict[str, Any]:
    return told(unpaired_result_text(call_id, text))


def shell(call_id: Any) -> dict[str, Any]:
    return call(call_id, kind="local_shell_call", id="lsh_1")


def by_id(id: str = "lsh_1") -> dict[str, Any]:
    return {"type": "local_shell_call_output", "id": id, "output": "x"}


LONG = "x" * 65
SHORT = "call_9537c5fdf120482f7d58d25e"
TRIGGER = {"type": "compaction_trigger"}
EXIT = {"type": "exit", "exit_code": 1}

# Cases as in OpenHands' compliance tests, then the shapes of this wire.
COMPLIANCE: list[tuple[str, Items, Items]] = [
    ("unmatched call", [call(), say()], [call(), nothing(), say()]),
    (
        "unmatched call, late",
        [call(), say(), say("assistant"), say()],
        [call(), nothing(), say(), say("assistant"), say()],
    ),
    ("unmatched output", [say(), output("c9")], [say(), orphan("c9")]),
    ("unmatched, both ways", [call(), output("c9")], [call(), nothing(), orphan("c9")]),
    ("interleaved text", [call(), say(), output()], [call(), say(), output()]),
    (
        "interleaved text of the model",
        [call(), say("assistant"), output()],
        [call(), say("assistant"), output()],
    ),
    ("duplicate output", [call(), output(), output(output="again")], [call(), output()]),
    (
        "duplicate output, late",
        [call(), say(), say("assistant"), output(), output(output="again")],
        [call(), say(), say("assistant"), output()],
    ),
    (
        "duplicate call",
        [call(), call(), output()],
        [call(), call("c1_2"), nothing("c1_2"), output()],
    ),
    (
        "duplicate call and output",
        [call(), output(), call(), output(output="2"), call(), output(output="3")],
        [
            call(),
            output(),
            call("c1_2"),
            output("c1_2", output="2"),
            call("c1_3"),
            output("c1_3", output="3"),
        ],
    ),
    (
        "duplicates in one run",
        [call(), call(), output(), output(output="2")],
        [call(), call("c1_2"), output(), output("c1_2", output="2")],
    ),
    (
        "a duplicate does not take another's id",
        [call(), call(), call("c1_2"), output("c1_2"), output(), output()],
        [call(), call("c1_3"), call("c1_2"), output("c1_2"), output(), output("c1_3")],
    ),
    (
        "wrong order",
        [output(), call(), say()],
        [orphan("c1"), call(), output(output=RESULT_ABOVE_TEXT), say()],
    ),
    (
        "wrong order, the output among an earlier step's",
        [call(), output(), output("c2"), say("assistant"), call("c2"), call("c3"), say()],
        [
            *(call(), output(), orphan("c2"), say("assistant")),
            *(call("c2"), output("c2", output=RESULT_ABOVE_TEXT), call("c3"), nothing("c3"), say()),
        ],
    ),
    (
        "wrong order, parallel",
        [call(), call("c2"), output("c2"), output()],
        [call(), call("c2"), output("c2"), output()],
    ),
    (
        "parallel, one lost",
        [call(), call("c2"), call("c3"), output("c2")],
        [call(), nothing(), call("c2"), call("c3"), nothing("c3"), output("c2")],
    ),
    (
        "mixed with text",
        [say(), say("assistant"), call(), say("assistant"), say(), output(), output("c9")],
        [say(), say("assistant"), call(), say("assistant"), say(), output(), orphan("c9")],
    ),
    ("pending calls stay", [say(), call(), call("c2")], [say(), call(), call("c2")]),
    (
        "front cut off",
        [output("c0"), think(id="rs_1"), call(), output()],
        [orphan("c0"), think(id="rs_1"), call(), output()],
    ),
]
SHAPES: list[tuple[str, Items, Items]] = [
    (
        "custom",
        [call(kind="custom_tool_call"), say()],
        [
            call(kind="custom_tool_call"),
            output(kind="custom_tool_call_output", output=NO_RESULT_TEXT),
            say(),
        ],
    ),
    (
        "local shell, as Codex answers it",
        [call(kind="local_shell_call"), say()],
        [call(kind="local_shell_call"), nothing(), say()],
    ),
    (
        "shell",
        [call(kind="shell_call"), say()],
        [
            call(kind="shell_call"),
            output(
                kind="shell_call_output",
                output=[{"stdout": NO_RESULT_TEXT, "stderr": "", "outcome": EXIT}],
            ),
            say(),
        ],
    ),
    (
        "patch",
        [call(kind="apply_patch_call"), say()],
        [
            call(kind="apply_patch_call"),
            output(kind="apply_patch_call_output", status="failed", output=NO_RESULT_TEXT),
            say(),
        ],
    ),
    (
        "computer",
        [call(kind="computer_call"), say()],
        [
            call(kind="computer_call"),
            output(
                kind="computer_call_output",
                output={"type": "computer_screenshot", "image_url": NO_SCREENSHOT},
            ),
            say(),
        ],
    ),
    (
        "tool search",
        [call(kind="tool_search_call"), say()],
        [
            call(kind="tool_search_call"),
            {
                "type": "tool_search_output",
                "call_id": "c1",
                "execution": "client",
                "status": "completed",
                "tools": [],
            },
            say(),
        ],
    ),
    (
        "none for what is still running",
        [call() | {"async": True}, say()],
        [call() | {"async": True}, say()],
    ),
    ("no program", [call(kind="program"), say()], [call(kind="program"), say()]),
    (
        "local shell output by id",
        [{"type": "local_shell_call_output", "id": "c9", "output": "x"}],
        [orphan("c9", "x")],
    ),
    (
        "a repeat's output by id",
        [
            *(call(kind="local_shell_call"), output()),
            *(
                call(kind="local_shell_call"),
                {"type": "local_shell_call_output", "id": "c1", "output": "x"},
            ),
        ],
        [
            *(call(kind="local_shell_call"), output()),
            *(
                call("c1_2", kind="local_shell_call"),
                {"type": "local_shell_call_output", "id": "c1_2", "output": "x"},
            ),
        ],
    ),
    (
        "a repeat without call_id",
        [shell(None), by_id(), shell(None), by_id()],
        [shell(None), by_id(), call("lsh_1_2", kind="local_shell_call"), by_id("lsh_1_2")],
    ),
    (
        "an own id that is another's",
        [shell("c1"), by_id(), shell("c2"), by_id()],
        [shell("c1"), by_id(), call("c2", kind="local_shell_call"), by_id("c2")],
    ),
    (
        "an own id that goes",
        [shell("c1"), think(id="rs_1"), by_id()],
        [call(kind="local_shell_call"), by_id("c1")],
    ),
    (
        "an own id that goes, without call_id",
        [shell(None), think(id="rs_1"), output("lsh_1")],
        [call("lsh_1", kind="local_shell_call"), output("lsh_1")],
    ),
    (
        "local shell without call_id, unanswered",
        [shell(None), say()],
        [shell(None), nothing("lsh_1"), say()],
    ),
    ("stranded reasoning", [say(), think(id="rs_1"), say()], [say(), say()]),
    (
        "stranded behind its item",
        [call(id="fc_1"), think(id="rs_1"), output()],
        [call(), output()],
    ),
    (
        "stranded, another's stays bound",
        [
            think(id="rs_1"),
            call(id="fc_1"),
            call("c2", id="fc_2"),
            think(id="rs_2"),
            output(),
            output("c2"),
        ],
        [think(id="rs_1"), call(id="fc_1"), call("c2"), output(), output("c2")],
    ),
    (
        "id twice",
        [say("assistant", id="msg_1"), say("assistant", id="msg_1")],
        [say("assistant", id="msg_1"), say("assistant")],
    ),
    (
        "reasoning's id twice",
        [think(id="rs_1"), say("assistant"), say(), think(id="rs_1"), say("assistant")],
        [think(id="rs_1"), say("assistant"), say(), think(id="rs_1_2"), say("assistant")],
    ),
    (
        "a repeat does not take another's id",
        [think(id="rs_1"), say("assistant"), say(), think(id="rs_1"), think(id="rs_1_2"), call()],
        [think(id="rs_1"), say("assistant"), say(), think(id="rs_1_3"), think(id="rs_1_2"), call()],
    ),
    ("wrong prefix", [call(id="call_1"), output()], [call(), output()]),
    ("call_id too long", [call(LONG), output(LONG)], [call(SHORT), output(SHORT)]),
    (
        "call_id too long, steps apart",
        [call(LONG), say(), say("assistant"), output(LONG)],
        [call(SHORT), say(), say("assistant"), output(SHORT)],
    ),
    ("call_id missing", [call(None), output(None)], [call("call_unknown"), output("call_unknown")]),
    (
        "call_ids missing",
        [call(None), call(7), output(None), output("")],
        [
            call("call_unknown"),
            call("call_unknown_2"),
            output("call_unknown"),
            output("call_unknown_2"),
        ],
    ),
    (
        "arguments cut off",
        [call(arguments='{"a'), output()],
        [call(arguments='{"input":"{\\"a"}'), output()],
    ),
    (
        "arguments an object",
        [call(arguments={"a": 1}), output()],
        [call(arguments='{"a":1}'), output()],
    ),
    ("null output", [call(), output(output=None)], [call(), nothing()]),
    ("output an object", [call(), output(output={"a": 1})], [call(), output(output='{"a":1}')]),
    ("wrong type of output", [call(), output(kind="custom_tool_call_output")], [call(), output()]),
    (
        "words for a screenshot",
        [call(kind="computer_call"), output()],
        [
            call(kind="computer_call"),
            output(
                kind="computer_call_output",
                output={"type": "computer_screenshot", "image_url": NO_SCREENSHOT},
            ),
        ],
    ),
    (
        "patch without status",
        [call(kind="apply_patch_call"), output(kind="apply_patch_call_output")],
        [call(kind="apply_patch_call"), output(kind="apply_patch_call_output", status="completed")],
    ),
    (
        "unasked approval",
        [say(), {"type": "mcp_approval_response", "approval_request_id": "a"}],
        [say()],
    ),
    ("trigger not last", [TRIGGER, say()], [say()]),
    (
        "trigger before the model",
        [say(), TRIGGER, say("assistant"), say()],
        [say(), told(CONTINUE_TEXT), say("assistant"), say()],
    ),
    ("two triggers", [say(), TRIGGER, TRIGGER], [say(), TRIGGER]),
    ("no item", [3, "hi", {"content": "ho"}, {}, say()], [told("hi"), told("ho"), say()]),
    ("role of another API", [say("tool"), say(content=None)], [say(), say(content=BLANK_TEXT)]),
    ("parts that are none", [say(content=["a", None])], [told("a")]),
    ("no summary", [{"type": "reasoning"}, say("assistant")], [think(), say("assistant")]),
]


@pytest.mark.parametrize(
    ("broken", "whole"),
    [row[1:] for row in COMPLIANCE + SHAPES],
    ids=[row[0] for row in COMPLIANCE + SHAPES],
)
def test_mends(broken: Items, whole: Items):
    before = copy.deepcopy(broken)
    new, repairs = repair_all(broken)
    assert new == whole
    assert broken == before, "the source is never changed"
    assert errors(new) == []
    assert bool(repairs) == (broken != whole)


def test_what_is_not_touched_is_the_same_object():
    items = [say(), call(), output(), think(id="rs_1"), call("c2", id="fc_2"), say()]
    new = repaired(items)
    kept = [item for item in new if any(item is old for old in items)]
    assert kept == items
    assert len(new) == len(items) + 1


def test_blocks_in_a_changed_item_are_the_same_objects():
    part = {"type": "input_text", "text": "a"}
    items = [call(), output(), call(), output(output=[part])]
    assert repaired(items)[3]["output"][0] is part


def test_a_repair_says_its_rule_and_its_place():
    _, repairs = repair_all([call(), output(), output(), say("tool")])
    assert [(repair.code, repair.place) for repair in repairs] == [
        ("R0", "input[3].role"),
        ("R2", "input[2]"),
    ]


def test_stays_out_where_the_server_holds_the_rest():
    items = [output("c9"), think(id="rs_1"), say(), call(), say()]
    for fields in ({"previous_response_id": "resp_1"}, {"conversation": "conv_1"}):
        assert all(a is b for a, b in zip(repaired(items, fields), items, strict=True))
    referred = [{"type": "item_reference", "id": "fc_9"}, *items]
    assert all(a is b for a, b in zip(repaired(referred), referred, strict=True))


def test_mends_around_what_it_cannot_judge():
    items = [output("c9"), say("tool")]
    new = repaired(items, {"previous_response_id": "resp_1"})
    assert new == [output("c9"), say()]
    assert new[0] is items[0]


def test_warnings_are_left_alone():
    items = [
        {"type": "function_call_output", "name": "read", "output": "x"},
        say("assistant", phase="commentary"),
        say("assistant"),
    ]
    assert all(a is b for a, b in zip(repaired(items), items, strict=True))


def test_nothing_is_put_into_an_empty_history():
    assert repair_all([]) == ([], [])
    assert repaired([5]) == []


def test_marks_are_no_business_of_repair():
    assert REPAIRER.limit_breakpoints([(0, say())], None) is None


def test_steps_before_the_last_are_mended_the_same_when_the_history_grows():
    items = [
        output("c0"),
        call(),
        output(),
        call(),
        output(),
        think(id="rs_1"),
        say(),
        say("assistant", id="x"),
        say(),
    ]
    bounds = [step.at + len(step.messages) for step in split_steps(CODEC, items)]
    whole = repaired(items)
    for end in bounds:
        part = repaired(items[:end])
        assert whole[: len(part)] == part


# Whole histories, and what can happen to them.


def exchange(draw: st.DrawFn, number: int) -> Items:
    """One run of the model with its answers."""
    ids = draw(st.booleans())
    kinds = draw(
        st.lists(
            st.sampled_from(
                ["function_call", "custom_tool_call", "local_shell_call", "shell_call"]
            ),
            max_size=3,
        )
    )
    run: Items = [think(**({"id": f"rs_{number}"} if ids else {}))] if draw(st.booleans()) else []
    if draw(st.booleans()) or not kinds:
        run.append(say("assistant", "ok", **({"id": f"msg_{number}"} if ids else {})))
    answers: Items = []
    for k, kind in enumerate(kinds):
        name = f"call_{number}_{k}"
        run.append(
            call(
                name,
                kind=kind,
                **({"id": f"fc_{number}{k}"} if ids and kind == "function_call" else {}),
            )
        )
        said: Any = (
            [{"stdout": "a", "stderr": "", "outcome": EXIT}]
            if kind == "shell_call"
            else f"ok {name}"
        )
        if kind == "local_shell_call" and ids and draw(st.booleans()):
            own = run[-1]["id"] = f"lsh_{number}{k}"
            if draw(st.booleans()):
                run[-1]["call_id"] = None
            by_call = run[-1]["call_id"] is None and draw(st.booleans())
            answers.append(output(own, output=said) if by_call else by_id(own))
            continue
        out = "function_call_output" if kind == "local_shell_call" else f"{kind}_output"
        answers.append(output(name, kind=out, output=said))
    if draw(st.booleans()):
        answers.reverse()
    return [*run, *answers, *([say()] if draw(st.booleans()) else [])]


@st.composite
def wholes(draw: st.DrawFn) -> Items:
    items: Items = [say()]
    for number in range(draw(st.integers(1, 5))):
        items += exchange(draw, number)
    return items


SPOILT = st.sampled_from(
    [None, "", 7, [], {}, "x" * 70, ["a"], "msg_0", "rs_0", "call_0_0", '{"cut']
)
KEYS = st.sampled_from(
    ["id", "call_id", "output", "arguments", "content", "role", "type", "summary", "status"]
)
ODD = st.sampled_from(
    [
        None,
        5,
        "text",
        [],
        {},
        {"content": "hi"},
        TRIGGER,
        {"type": "item_reference", "id": "fc_1"},
        {"id": "fc_1"},
    ]
    + [{"type": kind} for kind in sorted(KNOWN)]
    + [{"type": kind, "call_id": "call_0_0", "id": "fc_00"} for kind in sorted(KNOWN)]
    + [{"type": "dream_call", "call_id": "call_0_0"}]
)


@st.composite
def damaged(draw: st.DrawFn) -> Items:
    items = copy.deepcopy(draw(wholes()))
    for _ in range(draw(st.integers(1, 4))):
        if not items:
            break
        at, to = draw(st.integers(0, len(items) - 1)), draw(st.integers(0, len(items) - 1))
        how = draw(st.sampled_from(["lose", "double", "swap", "move", "spoil", "insert", "cut"]))
        if how == "lose":
            del items[at]
        elif how == "double":
            items.insert(to, copy.deepcopy(items[at]))
        elif how == "swap":
            items[at], items[to] = items[to], items[at]
        elif how == "move":
            items.insert(to, items.pop(at))
        elif how == "spoil" and isinstance(items[at], dict):
            items[at][draw(KEYS)] = draw(SPOILT)
        elif how == "insert":
            items.insert(at, copy.deepcopy(draw(ODD)))
        elif how == "cut":
            items = items[at:] if draw(st.booleans()) else items[: at + 1]
    return items


@given(wholes(), st.booleans())
def test_a_whole_history_is_left_as_it_is(items: Items, cut: bool):
    if cut:
        last = max(n for n, item in enumerate(items) if CODEC.is_model_made(item))
        items = items[: last + 1]
    while items and items[-1]["type"] == "reasoning":
        items = items[:-1]
    assert errors(items) == []
    new, repairs = repair_all(items)
    assert repairs == []
    assert all(a is b for a, b in zip(new, items, strict=True))


@settings(max_examples=examples(400))
@given(damaged())
def test_whatever_happened_is_mended_once_and_the_same_way(items: Items):
    before = json.dumps(items)
    new, repairs = repair_all(items)
    assert json.dumps(items) == before
    assert errors(new) == []
    assert repair_all(copy.deepcopy(items)) == (new, repairs)
    again, more = repair_all(new)
    assert more == []
    assert all(a is b for a, b in zip(again, new, strict=True))
    if not errors(items):
        assert all(a is b for a, b in zip(new, items, strict=True))


@settings(max_examples=examples(300))
@given(damaged())
def test_a_mended_step_is_clean_by_itself(items: Items):
    seen = RuleState()
    for step in split_steps(CODEC, items):
        known = seen.copy()
        fixed = REPAIRER.repair_step(step, seen, None)
        assert seen == known
        rows = [row.message for row in fixed.rows] if fixed else list(step.messages)
        after = seen.copy()
        for sub in split_steps(CODEC, rows):
            found = RULES.check_step(Step(sub.messages, sub.at, sub.model_count), after, None)
            assert [str(p) for p in found if p.severity == "error"] == []
            RULES.advance(Step(sub.messages, step.at + sub.at, sub.model_count), after)
        seen = after


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


@settings(max_examples=examples(300))
@given(
    st.lists(JSON, max_size=8),
    st.none() | st.dictionaries(st.sampled_from(["conversation", "input"]), JSON),
)
def test_any_json_is_mended(items: Items, fields: Fields):
    new = repaired(items, fields)
    assert errors(new, fields) == []


def many(count: int, same: bool, together: bool) -> Items:
    ids = ["c" * 60 if same else f"call_{n}" for n in range(count)]
    runs: list[Items] = [[call(id), output(id)] for id in ids]
    if together:
        return [*(call(id) for id in ids), *(output(id) for id in ids[1:])]
    return [item for run in runs for item in [think(id="rs_1"), *run]]


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("most", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_ten_thousand_calls_take_no_square_of_time(same: bool, together: bool, most: int):
    def seconds(count: int) -> float:
        items = many(count, same, together)
        start = time.process_time()
        assert len(repaired(items)) >= len(items)
        return time.process_time() - start

    seconds(100)
    small, large = (min(seconds(count) for _ in range(3)) for count in (most // 8, most))
    assert large < max(small, 0.01) * 8 * 4


@pytest.mark.parametrize(
    ("item", "path"),
    [
        ({"type": "function_call_output", "call_id": "a", "output": None}, ("output",)),
        ({"role": "user", "content": None}, ("content",)),
        (
            {"role": "user", "content": [{"type": "input_text", "text": None}]},
            ("content", 0, "text"),
        ),
    ],
)
def test_a_string_too_long_for_the_api_is_cut(item: Any, path: Any) -> None:
    import respool
    from respool.providers.openai_string_limit import MAX_STRING_CHARS
    from respool.wire.json import get, put

    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
    answer = {"type": "function_call_output", "call_id": "a", "output": "x"}
    long = put(item, path, "x" * (MAX_STRING_CHARS + 1))
    history = [{"role": "user", "content": "go"}, call, *([answer] if "role" in item else []), long]
    (problem,) = respool.check(history, format="openai-responses")
    assert (problem.code, problem.severity) == ("C6", "error")
    out = respool.repair(history, format="openai-responses")
    assert respool.check(out.request, format="openai-responses") == []
    assert len(get(out.request[-1], path)) <= MAX_STRING_CHARS
    assert "more characters" in get(out.request[-1], path)[-60:]
    assert out.report.repairs[0].code == "C6"


def test_arguments_too_long_for_the_api_stay_json() -> None:
    import json

    import respool
    from respool.providers.openai_string_limit import MAX_STRING_CHARS

    arguments = json.dumps({"text": "\\n" * (MAX_STRING_CHARS // 3 + 9)})
    assert len(arguments) > MAX_STRING_CHARS
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": arguments}
    answer = {"type": "function_call_output", "call_id": "a", "output": "x"}
    history = [{"role": "user", "content": "go"}, call, answer]
    out = respool.repair(history, format="openai-responses")
    assert respool.check(out.request, format="openai-responses") == []
    assert json.loads(out.request[1]["arguments"])["input"].startswith('{"text"')
