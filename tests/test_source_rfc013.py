"""Tiers of tool history: cases from the text of RFC 013, which has none of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import respool
from respool import Policy
from respool.edits import DropExchange, Replace
from respool.engine import Compaction
from respool.tokens import counter_for
from tests.busy_sessions import bash, edit, read
from tests.formats import FIELD, FORMATS, request, results
from tests.source_sessions import A, compact, compact_body, reasons, then

formats = pytest.mark.parametrize("format", FORMATS)
CODE = "\n".join(f"def thread_{n}(spool): return spool.turn({n})" for n in range(40))  # ~ 1,800


def shown(number: int, size: int) -> str:
    return CODE[: size - 1] + f"{number % 10}"


def rfc_session(calls: int, size: int = 1_700) -> list[Any]:
    return [[read(f"/w/part_{n}.py", shown(n, size), f"r{n}")] for n in range(calls)]


def with_system(format: str, body: dict[str, Any]) -> dict[str, Any]:
    """The request with a system prompt, wherever its wire has one."""
    words = "You weave. " * 200
    if format == "anthropic":
        return {**body, "system": words}
    if format == "gemini":
        return {**body, "systemInstruction": {"parts": [{"text": words}]}}
    role = "system" if format == "openai-chat" else "developer"
    return {**body, FIELD[format]: [{"role": role, "content": words}, *body[FIELD[format]]]}


def summaries(format: str, out: Compaction[Any]) -> list[str]:
    found = results(format, out.request)
    return [text for text in found if text.startswith("Earlier in this session, ")]


def call_texts(format: str, steps: list[Any]) -> Iterator[str]:
    """The arguments of calls, as the wire spells them."""
    for step in steps:
        for one in step:
            spaced = format in ("openai-chat", "openai-responses")
            yield json.dumps(one.args, separators=None if spaced else (",", ":"))


@formats
def test_older_calls_become_a_summary_and_six_stay_in_full(format: str):
    out = compact("rfc013", format, *rfc_session(12))
    said = summaries(format, out)
    assert results(format, out.request)[len(said) :] == [shown(n, 1_700) for n in range(6, 12)]
    assert all(f"part_{n}.py" in "".join(said) for n in range(6)), "files are named"
    counts = [int(one.split()[4]) for one in said]
    assert sum(counts) == 6, "and counted"


@formats
@pytest.mark.parametrize("calls", [1, 6])
def test_no_more_than_six_calls_are_left_alone(format: str, calls: int):
    assert compact("rfc013", format, *rfc_session(calls, 1_739)).report.edits == ()


@formats
def test_under_the_threshold_nothing_happens(format: str):
    """10,000 characters of calls and results, exactly, and one more."""
    steps = rfc_session(8, 1_000)
    arguments_ = sum(len(text) for text in call_texts(format, steps))
    room = 10_000 - 8 * 1_000 - arguments_
    exact = [*steps[:7], [read("/w/part_7.py", "y" * (1_000 + room), "r7")]]
    assert compact("rfc013", format, *exact).report.edits == ()
    over = [*steps[:7], [read("/w/part_7.py", "y" * (1_001 + room), "r7")]]
    assert "folded" in reasons(compact("rfc013", format, *over))


@formats
def test_the_summary_groups_by_category(format: str):
    steps = [
        [read(A, CODE, "r1")],
        [edit(A, "thread_3", "thread_x", "e1")],
        [bash("pytest -q", "3 passed", "t1")],
        [bash("npm test", "Exit code 1\nE   AssertionError: 42 is not 41", "t2", error=True)],
        [bash("npm test", "5 passed\n" + CODE * 6, "t3")],
        *then(14),
    ]
    summary = summaries(format, compact("rfc013", format, *steps))[0].splitlines()
    kinds = {line.split(":")[0]: line for line in summary if line.startswith("- ")}
    assert {"- changed", "- ran"} <= set(kinds)
    assert any(line.strip().startswith(A) for line in summary), "what changed is named"
    assert "npm test" in kinds["- ran"]


@formats
def test_errors_survive(format: str):
    said = "Exit code 1\nFAIL tests/loom.test.ts\n  Error: Expected 42 but got undefined"
    steps = [[bash("npm test", said, "t1", error=True)], *rfc_session(12)]
    sent = json.dumps(compact("rfc013", format, *steps).request)
    assert "Expected 42 but got undefined" in sent


@formats
def test_system_prompt_and_first_user_message_stay(format: str):
    body = with_system(format, request(format, "Mend the loom.", *rfc_session(12)))
    out = compact_body("rfc013", format, body)
    assert summaries(format, out)
    first = 1 if format in ("openai-chat", "openai-responses") else 0
    for at in range(first + 1):
        assert out.request[FIELD[format]][at] is body[FIELD[format]][at]
    for field in ("system", "systemInstruction"):
        assert out.request.get(field) is body.get(field)


@formats
def test_the_summary_has_at_most_500_tokens(format: str):
    out = compact("rfc013", format, *rfc_session(40, 300))
    counter = counter_for(format, out.request.get("model"))
    said = summaries(format, out)
    assert said
    assert all(counter.count(one) <= 500 for one in said)


@formats
def test_a_summary_once_sent_is_not_rewritten(format: str):
    one, next_one = (compact("rfc013", format, *rfc_session(calls)) for calls in (10, 12))
    before, after = summaries(format, one), summaries(format, next_one)
    assert len(after) > len(before) > 0
    assert after[: len(before)] == before


@formats
def test_the_summary_is_never_put_in_the_users_mouth(format: str):
    """It stands in a result, so no turn is made up and nobody says "Acknowledged"."""
    body = request(format, "Mend the loom.", *rfc_session(12))
    out = compact_body("rfc013", format, body)
    assert "Acknowledged" not in json.dumps(out.request)
    assert len(out.request[FIELD[format]]) < len(body[FIELD[format]])
    told_in = [one for one in out.report.edits if isinstance(one, Replace)]
    assert {one.reason for one in told_in} == {"folded"}
    assert len(told_in) == len(summaries(format, out))


@formats
@pytest.mark.parametrize(("after", "stays"), [(3, True), (5, True), (6, False)])
def test_the_cut_never_falls_inside_a_batch_of_parallel_calls(format: str, after: int, stays: bool):
    """As long as one of three calls made together is among the last six, all three stay."""
    batch = [read(f"/w/batch_{n}.py", CODE, f"b{n}") for n in range(3)]
    steps = [*rfc_session(6), batch, *([bash(f"ls {n}", CODE, f"l{n}")] for n in range(after))]
    out = compact("rfc013", format, *steps)
    assert summaries(format, out)
    assert (results(format, out.request).count(CODE) == after + 3) is stays


@formats
def test_keep_0_means_none_and_not_all(format: str):
    out = compact("rfc013", format, *rfc_session(6, 1_739), keep_calls=0)
    (summary, unseen) = results(format, out.request)
    assert summary.startswith("Earlier in this session, 5 tool calls")
    assert unseen == shown(5, 1_739)


@formats
def test_empty_results_are_results(format: str):
    steps = [[bash("true --now", "", "t1")], *rfc_session(13)]
    said = summaries(format, compact("rfc013", format, *steps))
    assert said[0].startswith("Earlier in this session, 2 tool calls of the assistant, in short:")
    assert "\n- other calls: true --now\n" in said[0], "it is named"
    assert sum(int(one.split()[4]) for one in said) == 8, "and counted with seven reads"


@formats
def test_the_decision_stands_apart_from_its_application(format: str):
    body = request(format, "Mend the loom.", *rfc_session(12))
    policy = Policy.preset("rfc013")
    plan = respool.plan(body, format=format, policy=policy)
    gone = [one for one in plan.edits if isinstance(one, DropExchange)]
    assert plan.tokens_saved > 1_000
    assert {one.exchange for one in gone} <= set(range(6)), "which calls go"
    assert gone
    applied = respool.apply(body, plan)
    assert applied.request == respool.compact(body, format=format, policy=policy).request
