"""The pass repeated_calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import respool
from respool.api import expand
from respool.edits import Replace
from respool.markers import reference
from respool.passes.repeated_calls import repeated_calls
from tests.effort import examples
from tests.support.coding_sessions import (
    bash,
    done,
    edit,
    hold_the_laws,
    run,
    run_on,
    sessions,
    write,
)
from tests.support.formats import FIELD, FORMATS, Exchange, request

formats = pytest.mark.parametrize("format", FORMATS)
LONG = "pytest " + " ".join(f"tests/unit/weaving/test_part_{n}.py" for n in range(12))
ARGS = json.dumps({"command": LONG}, separators=(",", ":"))


def arguments(format: str, body: dict[str, Any]) -> list[Any]:
    """The arguments of every call, decoded."""
    found: list[Any] = []
    for message in body[FIELD[format]]:
        blocks = [block for block in message.get("content") or [] if isinstance(block, dict)]
        found += [block["input"] for block in blocks if block.get("type") == "tool_use"]
        found += [json.loads(c["function"]["arguments"]) for c in message.get("tool_calls", ())]
        if message.get("type") == "function_call":
            found.append(json.loads(message["arguments"]))
        parts = [part.get("functionCall") for part in message.get("parts", ())]
        found += [part["args"] for part in parts if part]
    return found


def shortened(format: str, *steps: Any, keep: int = 0) -> list[bool]:
    """Calls with a reference in place of their arguments."""
    out = run(repeated_calls, format, *steps, done(), keep=keep)
    assert [p for p in respool.check(out.request, format=format) if p.severity == "error"] == []
    return ["repeat_of" in one for one in arguments(format, out.request)][:-1]


@formats
def test_a_later_call_is_replaced_by_a_back_reference_to_the_first(format: str) -> None:
    out = run(repeated_calls, format, [bash(LONG, "a", "c1")], [bash(LONG, "b", "c2")], done())
    first, second, _ = arguments(format, out.request)
    assert first == {"command": LONG}
    text = next(edit for edit in out.report.edits if isinstance(edit, Replace))
    assert second == {"repeat_of": "c1", "bytes": second["bytes"], "ref": text.original}
    assert second["bytes"] in (len(ARGS), len(ARGS) + 1)  # as the wire spells them


@formats
def test_the_reference_never_dangles(format: str) -> None:
    out = run(repeated_calls, format, [bash(LONG, "a", "c1")], [bash(LONG, "b", "c2")], done())
    ref = arguments(format, out.request)[1]["ref"]
    assert json.loads(expand(ref, out)) == {"command": LONG}
    assert reference(expand(ref, out)) == ref


@formats
def test_result_name_and_id_stay(format: str) -> None:
    body = request(format, "go", [bash(LONG, "a", "c1")], [bash(LONG, "b", "c2")], done())
    out = run_on(repeated_calls, format, body)
    changed = json.dumps(out.request)
    for word in ('"c2"', '"b"', '"Bash"'):
        assert changed.count(word) == json.dumps(body).count(word)


@formats
def test_recent_calls_are_never_touched(format: str) -> None:
    steps = [[bash(LONG, "a", f"c{n}")] for n in range(4)]
    assert shortened(format, *steps, keep=2) == [False, True, False, False]


@formats
def test_short_arguments_are_never_touched(format: str) -> None:
    steps = [[bash("pytest -q", "a", f"c{n}")] for n in range(3)]
    assert shortened(format, *steps) == [False, False, False]


@formats
def test_the_first_occurrence_wins(format: str) -> None:
    steps = [[bash(LONG, "a", f"c{n}")] for n in range(4)]
    out = run(repeated_calls, format, *steps, done())
    assert [one.get("repeat_of") for one in arguments(format, out.request)] == [
        None,
        "c0",
        "c0",
        "c0",
        None,
    ]


@formats
def test_hits_and_bytes_are_counted(format: str) -> None:
    steps = [[bash(LONG, "a", f"c{n}")] for n in range(3)]
    out = run(repeated_calls, format, *steps, done())
    assert len(out.report.edits) == 2
    for one in out.report.edits:
        assert isinstance(one, Replace)
        size = len(out.originals[one.original])
        assert one.evidence == f"same as c0, {size - len(one.text)} of {size} bytes saved"


@formats
def test_key_order_and_white_space_do_not_matter(format: str) -> None:
    def call(id: str, **args: Any) -> Exchange:
        return Exchange("x", tool="Bash", id=id, args=args)

    one = call("c1", command=LONG, timeout=1_000)
    two = call("c2", timeout=1_000, command=LONG)
    assert shortened(format, [one], [two]) == [False, True]


@formats
def test_other_arguments_are_another_call(format: str) -> None:
    assert shortened(format, [bash(LONG, "a", "c1")], [bash(LONG + " -q", "a", "c2")]) == [
        False,
        False,
    ]


@formats
def test_a_write_in_between_makes_it_a_different_call(format: str) -> None:
    """Two runs of the tests before and after an edit are no duplicates."""
    steps = ([bash(LONG, "a", "c1")], [edit("/w/a.py", "x", "y", "e1")], [bash(LONG, "b", "c2")])
    assert shortened(format, *steps) == [False, False, False]
    again = (*steps, [bash(LONG, "b", "c3")])
    out = run(repeated_calls, format, *again, done())
    assert arguments(format, out.request)[3]["repeat_of"] == "c2"


@formats
@pytest.mark.parametrize("command", ["python build.py", "make deploy > log.txt", "./mend.sh"])
def test_whatever_may_have_written_is_a_write(format: str, command: str) -> None:
    steps = ([bash(LONG, "a", "c1")], [bash(command, "", "b1")], [bash(LONG, "b", "c2")])
    assert shortened(format, *steps) == [False, False, False]


@formats
@pytest.mark.parametrize("tool", ["Write", "Edit", "a_tool_nobody_knows"])
def test_a_call_that_may_write_never_carries_a_placeholder(format: str, tool: str) -> None:
    args = {"file_path": "/w/a.py", "content": "x" * 400, "old_string": "x", "new_string": "y"}
    steps = [[Exchange("done", tool=tool, id=f"c{n}", args=args)] for n in range(3)]
    assert shortened(format, *steps) == [False, False, False]
    writes = [[write("/w/a.py", "x" * 400, f"w{n}")] for n in range(3)]
    assert shortened(format, *writes) == [False, False, False]


@formats
def test_the_same_arguments_of_another_tool_are_another_call(format: str) -> None:
    one = Exchange("x", tool="Bash", id="c1", args={"command": LONG})
    two = Exchange("x", tool="shell", id="c2", args={"command": LONG})
    assert shortened(format, [one], [two]) == [False, False]


@formats
def test_only_when_smaller_in_tokens(format: str) -> None:
    plain = "rg --files-with-matches the the the the the the the the the the the"
    steps = [[bash(plain, "a", f"c{n}")] for n in range(2)]
    assert shortened(format, *steps) == [False, False]


def test_repeated_ids_are_told_apart() -> None:
    body = request("gemini", "go", [bash(LONG, "a", "x")], [bash(LONG, "b", "x")], done())
    for content in body["contents"]:
        for part in content["parts"]:
            for held in part.values():
                if isinstance(held, dict):
                    held.pop("id", None)
    out = run_on(repeated_calls, "gemini", body)
    assert arguments("gemini", out.request)[1]["repeat_of"] == "call no. 1"


def test_signed_parts_are_never_touched() -> None:
    body = request("gemini", "go", [bash(LONG, "a", "c1")], [bash(LONG, "b", "c2")], done())
    body["contents"][3]["parts"][0]["thoughtSignature"] = "c2lnbmVk"
    assert run_on(repeated_calls, "gemini", body).report.edits == ()


def test_custom_tools_with_raw_text_are_not_touched() -> None:
    body = request("openai-responses", "go", done("c0"))
    patch = "rg --files " + "src/weaving/part " * 20
    for id in ("c1", "c2", "c3"):
        call = {"type": "custom_tool_call", "call_id": id, "name": "grep", "input": patch}
        answer = {"type": "custom_tool_call_output", "call_id": id, "output": "ok"}
        body["input"] += [call, answer]
    assert run_on(repeated_calls, "openai-responses", body).report.edits == ()


@formats
def test_a_reference_is_not_referred_to(format: str) -> None:
    steps = [[bash(LONG, "a", f"c{n}")] for n in range(4)]
    once = run(repeated_calls, format, *steps, done())
    assert run_on(repeated_calls, format, once.request).report.edits == ()


@pytest.mark.laws
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sessions)
def test_the_laws_hold(session: tuple[str, dict[str, Any]]) -> None:
    hold_the_laws(repeated_calls, *session, FIELD[session[0]])
