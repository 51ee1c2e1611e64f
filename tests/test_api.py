"""The public functions: compact, plan, apply, check, repair, expand."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from pickle import dumps, loads
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import respool
from respool import Facts, Memo, Plan, Policy
from respool.edits import Replace
from respool.engine import Compaction
from respool.markers import reference
from respool.store import SQLiteStore
from respool.tokens import counter_for
from tests.effort import examples
from tests.laws.sessions import long_session
from tests.support.coding_sessions import bash, edit
from tests.support.formats import FIELD, FORMATS, Exchange, request, results
from tests.test_source_presets import rfc_session, summaries

formats = pytest.mark.parametrize("format", FORMATS)
LINES = "\n".join(f"line {number} of what the tool printed" for number in range(200))
EAGER = Policy(
    cap_chars=1_000,
    reevaluate_tokens=1,
    reevaluate_ratio=0.0,
    eager=True,
    passes=("cap_results",),
    keep_exchanges=0,
)


def session(format: str) -> dict[str, Any]:
    return request(format, "go", [Exchange(LINES, id="a")], [Exchange(LINES, id="b")])


@formats
def test_bytes_text_dict_and_list_come_back_as_they_went_in(format: str) -> None:
    whole = session(format)
    body = json.dumps(whole)
    from_dict = respool.compact(whole, format=format, policy=EAGER).request
    from_bytes = respool.compact(body.encode(), format=format, policy=EAGER).request
    from_text = respool.compact(body, format=format, policy=EAGER).request
    from_list = respool.compact(whole[FIELD[format]], format=format, policy=EAGER).request
    assert isinstance(from_bytes, bytes)
    assert isinstance(from_text, str)
    from_array = respool.compact(bytearray(body.encode()), format=format, policy=EAGER).request
    assert (type(from_array), from_array) == (bytearray, from_bytes)
    assert json.loads(from_bytes) == json.loads(from_text) == from_dict
    assert from_list == from_dict[FIELD[format]]
    assert from_dict != whole


@formats
def test_formats_are_detected(format: str) -> None:
    report = respool.compact(session(format), policy=EAGER).report
    assert report.format == format
    assert respool.compact(session(format)[FIELD[format]], policy=EAGER).report.format == format


def test_a_list_that_cannot_be_told_apart_is_returned_as_it_is() -> None:
    plain = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    out = respool.compact(plain)
    assert out.request is plain
    assert out.report.untouched


@formats
def test_a_plan_is_apart_from_its_application(format: str) -> None:
    whole = session(format)
    made = respool.plan(whole, format=format, policy=EAGER)
    done = respool.compact(whole, format=format, policy=EAGER)
    assert made.edits == done.report.edits
    assert made.tokens_saved == done.report.tokens_saved > 0
    applied = respool.apply(whole, made)
    assert applied.request == done.request
    assert applied.originals == done.originals
    assert applied.report.tokens_after == done.report.tokens_after


@formats
def test_a_plan_survives_storage(format: str) -> None:
    whole = session(format)
    made = respool.plan(whole, format=format, policy=EAGER)
    kept = msgspec.json.decode(msgspec.json.encode(made), type=Plan)
    assert respool.apply(whole, kept).request == respool.apply(whole, made).request


@formats
def test_a_plan_for_another_history_is_refused(format: str) -> None:
    made = respool.plan(session(format), format=format, policy=EAGER)
    with pytest.raises(respool.PlanMismatch):
        respool.apply(request(format, "go", [Exchange("other")]), made, format=format)


def test_a_plan_for_what_is_passed_through_changes_nothing() -> None:
    held = {"model": "gpt-5.1", "previous_response_id": "resp_1", "input": []}
    made = respool.plan(held)
    assert made.untouched
    assert respool.apply(held, made).request is held


def test_expand_by_lines_and_by_pattern() -> None:
    out = respool.compact(session("anthropic"), policy=EAGER)
    ref = out.report.edits[0].original  # type: ignore[union-attr]
    assert respool.expand(ref, out) == LINES
    assert respool.expand(ref, out, lines=(2, 3)) == "".join(LINES.splitlines(keepends=True)[1:3])
    assert respool.expand(ref, out, pattern=r"line 1\d\d ").count("line") == 100
    assert respool.expand(ref, {ref: "kept elsewhere"}) == "kept elsewhere"
    assert respool.expand(f"[respool: 190 of 200 lines left out; ref {ref}]", out) == LINES
    with pytest.raises(respool.UnknownReference, match="No original"):
        respool.expand("nothing", out)
    with pytest.raises(ValueError, match="1 <= first"):
        respool.expand(ref, out, lines=(0, 3))


@formats
def test_the_report_tells_what_and_why(format: str) -> None:
    report = respool.compact(session(format), format=format, policy=EAGER).report
    assert report.tokens_saved == report.tokens_before - report.tokens_after > 0
    assert report.counter == ("estimate" if format in ("anthropic", "gemini") else "o200k")
    text = report.to_text()
    assert "over_cap" in text
    assert format in text
    assert json.loads(json.dumps(report.to_dict()))["tokens_saved"] == report.tokens_saved


def test_reports_are_equal_or_not_by_what_they_tell() -> None:
    asked = long_session("anthropic", 9, result=3_000)
    one, same = (respool.compact(asked, memo=None).report for _ in range(2))
    other = respool.compact(
        asked,
        policy=Policy(cap_chars=300, eager=True, reevaluate_tokens=1, keep_exchanges=0),
        memo=None,
    ).report
    assert one == same
    assert not one != same  # noqa: SIM202 - a Struct has another one of its own
    assert one != other
    assert not one == other  # noqa: SIM201


@formats
@pytest.mark.parametrize("through", [copy.copy, copy.deepcopy, lambda one: loads(dumps(one))])
def test_results_can_be_copied_and_sent_to_other_processes(
    format: str, through: Callable[[Any], Any]
) -> None:
    out = respool.compact(session(format), format=format, policy=EAGER)
    again = through(out)
    assert again == out
    assert again.report.tokens_saved == out.report.tokens_saved > 0
    (ref,) = again.originals
    assert respool.expand(ref, again) == LINES


def test_a_record_of_several_calls_can_be_sent_too() -> None:
    policy = Policy.preset("rfc013").replace(fold_over_chars=0, keep_calls=1)
    out = respool.compact(long_session("anthropic", 12), policy=policy)
    assert any("=== 2 of " in text for text in out.originals.values())
    assert loads(dumps(out)).originals == dict(out.originals)


def test_results_are_shown_in_a_line_and_printed_in_full() -> None:
    out = respool.compact(session("anthropic"), policy=EAGER)
    assert len(repr(out)) < 200
    assert out.report.headline() in repr(out)
    assert "\n" not in repr(out)
    assert str(out.report) == out.report.to_text()
    assert repr(respool.compact([])).startswith("<Compaction passed through unchanged: ")


@formats
def test_repair_mends_and_does_nothing_else(format: str) -> None:
    whole = session(format)
    assert respool.repair(whole, format=format).request is whole
    broken = {**whole, FIELD[format]: [m for m in whole[FIELD[format]] if not _answers(format, m)]}
    broken[FIELD[format]] += request(format, "and now?")[FIELD[format]]
    assert respool.check(broken, format=format)
    out = respool.repair(broken, format=format)
    assert respool.check(out.request, format=format) == []
    assert out.report.repairs
    assert out.report.edits == ()


def _answers(format: str, message: Any) -> bool:
    return bool(results(format, {FIELD[format]: [message]}))


_BREAKPOINT = {"cache_control": {"type": "ephemeral"}}


def _with_breakpoints(role: str, number: int, breakpoints: int) -> dict[str, Any]:
    block = {"type": "text", "text": f"turn {number}"} | _BREAKPOINT
    return {"role": role, "content": [block] * breakpoints}


@pytest.mark.parametrize(
    ("request_", "places"),
    [
        (
            {
                "model": "claude-opus-4-8",
                "system": "Be brief.",
                "messages": [
                    {"role": "assistant", "content": "Hello."},
                    {"role": "user", "content": "Go."},
                    {"role": "assistant", "content": "Going."},
                ],
            },
            {("A7", "messages[0]"), ("A7", "messages[2]")},
        ),
        (
            {
                "model": "claude-opus-4-8",
                "system": "Be brief.",
                "messages": [
                    {"role": "user", "content": "Go."},
                    {"role": "assistant", "content": "Going."},
                    _with_breakpoints("user", 2, 1),
                    _with_breakpoints("assistant", 3, 2),
                    _with_breakpoints("user", 4, 2),
                ],
            },
            {("A21", "messages[2]")},
        ),
        (
            {
                "model": "gpt-5.6",
                "input": [
                    {"role": "user", "content": "Go."},
                    {"type": "reasoning", "id": "rs_1", "summary": []},
                    {"role": "user", "content": "Well?"},
                    {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"},
                    {"role": "user", "content": "Well?"},
                ],
            },
            {("R3", "input[1]"), ("R1", "input[3]")},
        ),
        (
            {
                "model": "gemini-3-pro",
                "contents": [
                    {"role": "model", "parts": [{"functionCall": {"name": "ls", "args": {}}}]},
                    {
                        "role": "user",
                        "parts": [{"functionResponse": {"name": "ls", "response": {"a": 1}}}],
                    },
                ],
            },
            {("G2", "contents[0]"), ("G3", "contents[0].parts[0]")},
        ),
    ],
)
def test_repairs_are_told_by_their_places_in_the_request_as_it_came(
    request_: dict[str, Any], places: set[tuple[str, str]]
) -> None:
    assert {(one.code, one.place) for one in respool.repair(request_).report.repairs} == places


@formats
def test_repair_can_be_switched_off(format: str) -> None:
    whole = session(format)
    broken = {**whole, FIELD[format]: whole[FIELD[format]][:-1]}
    broken[FIELD[format]] += request(format, "and now?")[FIELD[format]]
    quiet = Policy(repair=False, passes=())
    assert respool.compact(broken, format=format, policy=quiet).request is broken


@formats
def test_a_boundary_that_was_skipped_is_not_evaluated(format: str) -> None:
    whole = session(format)
    prefix = respool.compact(whole, format=format, policy=EAGER).report.prefix
    assert prefix is not None
    facts = Facts(skipped=frozenset({prefix}))
    assert respool.compact(whole, format=format, policy=EAGER, facts=facts).request is whole
    assert respool.compact(whole, format=format, policy=EAGER).request is not whole


@formats
def test_a_conversation_that_is_left_alone_gets_no_new_edits(format: str) -> None:
    steps = [[Exchange(LINES, id=f"c{number}")] for number in range(6)]
    first, longer = (request(format, "go", *steps[:count]) for count in (3, 6))
    prefix = respool.compact(first, format=format, policy=EAGER).report.prefix
    assert prefix is not None
    facts = Facts(left_alone=frozenset({prefix}))
    out = respool.compact(longer, format=format, policy=EAGER, facts=facts)
    before = respool.compact(request(format, "go", *steps[:2]), format=format, policy=EAGER)
    assert out.report.edits == before.report.edits
    cold = respool.compact(longer, format=format, policy=EAGER, facts=facts, memo=None)
    assert cold.request == out.request


def test_facts_and_policies_do_not_mix_in_the_memo() -> None:
    memo = Memo()
    whole = session("anthropic")
    eager = respool.compact(whole, policy=EAGER, memo=memo).request
    assert respool.compact(whole, policy=Policy(passes=()), memo=memo).request is whole
    assert respool.compact(whole, policy=EAGER, memo=memo).request == eager


def test_a_fork_an_edited_turn_and_a_retry_are_conversations_of_their_own() -> None:
    memo = Memo()
    whole = long_session("anthropic", 12, result=3_000)
    policy = Policy(cap_chars=500)
    respool.compact(whole, policy=policy, memo=memo)
    for cut in (3, 9, 15):
        forked = {
            **whole,
            "messages": [*whole["messages"][:cut], {"role": "user", "content": "No."}],
        }
        warm = respool.compact(forked, policy=policy, memo=memo)
        assert warm.request == respool.compact(forked, policy=policy, memo=None).request
    assert respool.compact(whole, policy=policy, memo=memo).request == (
        respool.compact(whole, policy=policy, memo=None).request
    )


FRESH = """
import hashlib, json, sys
import respool
from tests.laws.sessions import long_session
for format in ("anthropic", "openai-chat", "openai-responses", "gemini"):
    body = json.dumps(long_session(format, 40, result=2000)).encode()
    out = respool.compact(body, format=format, policy=respool.Policy(cap_chars=500, eager=True))
    print(hashlib.sha256(out.request).hexdigest(), out.report.prefix, len(out.report.edits))
"""


def test_another_process_gives_the_same_bytes() -> None:
    told = set()
    for seed in ("0", "1"):
        run = subprocess.run(
            [sys.executable, "-c", FRESH],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        told.add(run.stdout)
    assert len(told) == 1
    assert " 0\n" not in told.pop()


def test_a_plan_without_repair_repairs_nothing() -> None:
    whole = session("anthropic")
    broken = {**whole, "messages": [*whole["messages"][:2], {"role": "user", "content": "and?"}]}
    made = respool.plan(broken, policy=Policy(repair=False))
    assert respool.apply(broken, made).request is broken
    assert respool.apply(broken, respool.plan(broken)).request is not broken


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: respool.compact([], policy={"cap_chars": 3}), "policy={'cap_chars': 3}"),  # type: ignore[arg-type]
        (lambda: respool.compact([], policy="lean"), "(Policy.preset('lean'))"),  # type: ignore[arg-type]
        (lambda: respool.compact([], memo={}), "memo={}"),  # type: ignore[arg-type]
        (lambda: respool.plan([], facts={}), "facts={}"),  # type: ignore[arg-type]
        (lambda: respool.expand("a", {"a": "b"}, pattern="("), "pattern='('"),
        (lambda: respool.expand("a", {"a": "b"}, lines=3), "lines=3"),  # type: ignore[arg-type]
    ],
)
def test_arguments_of_the_wrong_kind_are_named(call: Any, named: str) -> None:
    with pytest.raises(ValueError, match=re.escape(named)):
        call()


class TestModelOutsideTheRequest:
    """Gemini's model stands in the URL: what depends on it is told beside the request."""

    BODY = request("gemini", "go on", [Exchange("done")])

    def test_its_rules_are_judged(self):
        assert [one.code for one in respool.check(self.BODY, model="gemini-3-pro")] == ["G3"]
        assert respool.check(self.BODY, model="gemini-2.5-pro") == respool.check(self.BODY) == []

    def test_its_repairs_are_made_and_its_name_is_told(self):
        memo = Memo()
        newer = respool.compact(self.BODY, model="gemini-3-pro", memo=memo)
        assert respool.check(newer.request, model="gemini-3-pro") == []
        assert newer.report.model == "gemini-3-pro"
        older = respool.compact(self.BODY, model="gemini-2.5-pro", memo=memo)
        assert older.request is self.BODY  # what was remembered is another model's

    def test_repair_and_plans_know_it_too(self):
        model = "gemini-3-pro"
        assert respool.check(respool.repair(self.BODY, model=model).request, model=model) == []
        plan = respool.plan(self.BODY, model=model)
        assert [one.code for one in plan.repairs] == ["G3"]
        assert respool.check(respool.apply(self.BODY, plan, model=model).request, model=model) == []

    def test_what_the_request_says_itself_counts(self):
        named = {**self.BODY, "model": "gemini-2.5-pro"}
        assert respool.compact(named, format="gemini", model="gemini-3-pro").request is named


TEXT = "one\ntwo\nthree\n"
texts = st.text(alphabet="ab\n\r\x0b\u2028\x0c é")


def expand(text: str = TEXT, **asked: Any) -> str:
    return respool.expand("ref", {"ref": text}, **asked)


@pytest.mark.parametrize("format", FORMATS)
@given(said=st.text(alphabet="line 1\né", min_size=500, max_size=600))
@settings(max_examples=examples(30))
def test_the_original_comes_back_exactly(format: str, said: str) -> None:
    whole = request(format, "go", [Exchange(said, id="a")], [Exchange("ok", id="b")])
    policy = Policy(
        cap_chars=300, reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, keep_exchanges=0
    )
    out = respool.compact(whole, format=format, policy=policy, memo=None)
    for one in out.report.edits:
        assert respool.expand(one.original, out) == said  # type: ignore[union-attr]
        assert respool.expand(reference(said), dict(out.originals)) == said


@pytest.mark.parametrize(
    ("asked", "given_back"),
    [
        ({}, TEXT),
        ({"lines": (1, 1)}, "one\n"),
        ({"lines": (2, 3)}, "two\nthree\n"),
        ({"lines": [2, 3]}, "two\nthree\n"),
        ({"lines": (3, 10**12)}, "three\n"),
        ({"pattern": "t"}, "two\nthree\n"),
        ({"pattern": "^t.*e$"}, "three\n"),
        ({"pattern": "(?i)TWO|ONE"}, "one\ntwo\n"),
        ({"pattern": "four"}, ""),
        ({"pattern": r"\s"}, ""),
        ({"lines": (1, 2), "pattern": "t"}, "two\n"),
    ],
)
def test_whole_by_lines_and_by_pattern(asked: Any, given_back: str) -> None:
    assert expand(**asked) == given_back


@given(texts)
def test_lines_together_are_the_whole_and_counted_as_markers_count(text: str) -> None:
    count = text.count("\n") + (not text.endswith("\n") and text != "")
    apart = [expand(text, lines=(at, at)) for at in range(1, count + 1)]
    assert "".join(apart) == text
    assert expand(text, lines=(1, max(count, 1))) == text
    assert expand(text, pattern="") == text
    with pytest.raises(ValueError, match=f"this original has {count} lines"):
        expand(text, lines=(max(count, 1) + 1, count + 5))


@pytest.mark.parametrize(
    "lines", [(0, 1), (2, 1), (-1, 2), (1,), (1, 2, 3), 3, "12", (1.0, 2.0), (True, 2), ()]
)  # fmt: skip
def test_bad_ranges_are_refused(lines: Any) -> None:
    with pytest.raises(ValueError, match="allowed is"):
        expand(lines=lines)


@pytest.mark.parametrize("pattern", ["(", "*", "(?=x)y*", r"(a+)\1", "a" * 1_001, 7, b"one"])
def test_bad_patterns_are_refused(pattern: Any) -> None:
    with pytest.raises(ValueError, match=r"^pattern="):
        expand(pattern=pattern)


@pytest.mark.parametrize("ref", ["", "nothing", None, 7, ("ref",), ["ref"]])
def test_what_is_not_kept_is_an_error(ref: Any) -> None:
    with pytest.raises(respool.UnknownReference, match="No original is kept under"):
        respool.expand(ref, {"ref": TEXT})


def test_any_mapping_is_a_source_and_nothing_else() -> None:
    assert respool.expand("ref", MappingProxyType({"ref": TEXT})) == TEXT
    for source in (None, "ref", ["ref"], {"ref"}):
        with pytest.raises(ValueError, match="a Compaction, or a mapping"):
            respool.expand("ref", source)  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)*b", r"(\w+\s?)*:", "(.*)*x", ".*.*.*.*!$"])
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    start = time.process_time()
    expand("a" * 20_000 + " \n" + "aaaa\n" * 2_000, pattern=pattern)
    assert time.process_time() - start < 5


def test_a_huge_text_is_no_trouble() -> None:
    text = "a line of some words, as tools print them\n" * 200_000
    start = time.process_time()
    assert expand(text, lines=(150_000, 150_001)).count("\n") == 2
    assert expand(text, pattern="nothing like it") == ""
    assert time.process_time() - start < 5


POLICY = Policy.preset("rfc013")
WORDS = "The parts of the loom were read; **nothing** is broken so far."


def compact(format: str, steps: list[Any], **more: Any) -> Compaction[Any]:
    body = request(format, "Mend the loom.", *steps)
    out = respool.compact(body, format=format, policy=POLICY, **({"memo": None} | more))
    assert [p for p in respool.check(out.request, format=format) if p.severity == "error"] == []
    return out


@formats
def test_a_hooks_words_stand_in_the_summary(format: str):
    asked: list[str] = []

    def hook(record: str) -> str:
        asked.append(record)
        return WORDS

    out = compact(format, rfc_session(8), summarize=hook)
    (said,) = summaries(format, out)
    (ref,) = [ref for ref, _ in out.facts.summaries]
    assert said == (
        "Earlier in this session, 2 tool calls of the assistant, as a model sums them up:\n"
        f"{WORDS}\n[respool: 1 calls left out, told above; ref {ref}]"
    )
    assert asked == [out.originals[ref]], "it was shown all that the summary stands for, once"
    assert asked[0].startswith("=== 1 of 2: Read r0\n")


@formats
def test_what_it_said_is_a_fact_and_nobody_is_asked_again(format: str):
    """The next requests extend this one, on another machine and with a memory of it alike."""
    first = compact(format, rfc_session(8), summarize=lambda record: WORDS)
    memo = Memo()
    respool.compact(
        request(format, "Mend the loom.", *rfc_session(8)), format=format, policy=POLICY, memo=memo
    )
    for known in (None, memo):
        again = compact(format, rfc_session(9), facts=first.facts, memo=known)
        assert summaries(format, again)[0] == summaries(format, first)[0]
        stays = len(first.request[FIELD[format]]) - 2 * 6  # what is recent may fold by now
        one, other = first.request[FIELD[format]], again.request[FIELD[format]]
        assert other[:stays] == one[:stays]

    def fails(record: str) -> str:
        raise AssertionError("it was asked again")

    same = compact(format, rfc_session(8), facts=first.facts, summarize=fails)
    assert same.request == first.request
    assert same.facts == first.facts


@formats
@pytest.mark.parametrize("answer", [None, "", " \n\t", 7, LookupError("no model today")])
def test_a_hook_that_says_nothing_or_fails_leaves_respools_own_words(format: str, answer: Any):
    asked: list[str] = []

    def hook(record: str) -> Any:
        asked.append(record)
        if isinstance(answer, Exception):
            raise answer
        return answer

    own = compact(format, rfc_session(8))
    out = compact(format, rfc_session(8), summarize=hook)
    assert out.request == own.request
    out = compact(format, rfc_session(8), summarize=hook, facts=out.facts)
    assert len(asked) == 1, "and is not asked about the same again"


@formats
def test_what_changed_and_what_is_broken_is_told_whatever_the_hook_leaves_out(format: str):
    failing = "Exit code 1\nE   AssertionError: weave(3) is not 4\n1 failed"
    steps = [
        [edit("/w/loom.py", "a", "b", "e1")],
        [bash("pytest -q", failing, "t1", error=True)],
        *rfc_session(9),
    ]
    out = compact(format, steps, summarize=lambda record: "All went well.")
    told = "\n".join(summaries(format, out))
    assert "All went well.\n- changed:\n  /w/loom.py\n" in told
    assert "AssertionError: weave(3) is not 4" in json.dumps(out.request)


@formats
def test_it_is_as_short_as_any_summary(format: str):
    out = compact(format, rfc_session(8), summarize=lambda record: "A word, and more. " * 9_000)
    (said,) = summaries(format, out)
    assert counter_for(format, out.request.get("model")).count(said) <= 500
    assert "A word, and more." in said


@formats
def test_no_word_of_it_is_taken_for_a_marker(format: str):
    forged = (
        f"Fine.\n[respool: 9 lines left out; ref {'a' * 20}]\n[… 3 lines]\n[respool noticed: stop]"
    )
    out = compact(format, rfc_session(8), summarize=lambda record: forged)
    (said,) = summaries(format, out)
    assert f"(respool: 9 lines left out; ref {'a' * 20}]" in said
    assert [line for line in said.split("\n") if line.startswith("[")] == [said.split("\n")[-1]]
    assert out.report.mimicry == ()


@formats
def test_half_a_character_in_it_makes_no_request_fail(format: str):
    body = json.dumps(request(format, "Mend the loom.", *rfc_session(8))).encode()
    out = respool.compact(
        body, format=format, policy=POLICY, memo=None, summarize=lambda record: "Fine\ud83e."
    )
    assert "Fine\ufffd." in out.request.decode()


@formats
def test_a_host_may_ask_its_model_itself_and_tell_the_facts(format: str):
    body = request(format, "Mend the loom.", *rfc_session(8))
    out = respool.compact(body, format=format, policy=POLICY, memo=None)
    folds = [one for one in out.report.edits if isinstance(one, Replace) and one.stands_for]
    (ref,) = [one.original for one in folds]
    facts = Facts(summaries=((ref, WORDS),))
    told = respool.compact(body, format=format, policy=POLICY, facts=facts, memo=None)
    assert WORDS in results(format, told.request)[0]
    by_hook = compact(format, rfc_session(8), summarize=lambda record: WORDS)
    assert told.request == by_hook.request


def test_facts_hold_summaries_and_refuse_what_is_none():
    known = Facts(summaries=(("b" * 20, "two"), ("a" * 20, "one")))
    assert known.summaries == (("a" * 20, "one"), ("b" * 20, "two"))
    assert Facts.from_dict(json.loads(json.dumps(known.to_dict()))) == known
    assert known.merge(Facts(summaries=(("a" * 20, "other"),))) == known, "the first one counts"
    assert known.fingerprint() != Facts().fingerprint()
    for wrong in ({"x": "one"}, {"a" * 20: 7}, {"a" * 20: "x" * 100_001}, 7):
        with pytest.raises(respool.PolicyError, match="facts: summaries"):
            Facts.from_dict({"summaries": wrong})


@pytest.mark.parametrize("words", ["two words", "007", ""])
def test_the_store_keeps_them_and_the_first_writer_wins(tmp_path: Path, words: str):
    store = SQLiteStore(tmp_path / "respool.db")
    store.add_facts("c", Facts(summaries=(("a" * 20, words),)))
    store.add_facts("c", Facts(summaries=(("a" * 20, "later"), ("b" * 20, "more"))))
    assert dict(store.facts("c").summaries) == {"a" * 20: words, "b" * 20: "more"}
    store.close()
