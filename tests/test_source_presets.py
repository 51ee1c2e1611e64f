"""Presets that reproduce what clew comes from: each source's own cases, or cases from its text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import clew
from clew import UNLIMITED, Facts, Policy, Tool, Tools
from clew.edits import DropExchange, DropReasoning, Offer, Replace
from clew.engine import Compaction, compacted, fold_request
from clew.evaluating import chosen_passes
from clew.marker import MOST, find_marker, reference
from clew.memo import Memo
from clew.passes.view import View
from clew.policy import PRESETS
from clew.replay.policies import policy_named, told
from clew.tokens import counter_for
from tests.busy_sessions import bash, done, edit, lines, read, requests_of, sessions, write
from tests.formats import FIELD, FORMATS, Exchange, request, results
from tests.laws import laws
from tests.laws.sessions import long_session
from tests.laws.subject import IDLE, Compact
from tests.test_old_reasoning import thinking_session, thoughts
from tests.test_repeated_calls import arguments

SOURCES = ("codetether", "clark", "rfc013", "pi-dcp")
formats = pytest.mark.parametrize("format", FORMATS)
A, B = "/w/loom.py", "/w/heddle.py"
LONG = "pytest " + " ".join(f"tests/unit/weaving/test_part_{n}.py" for n in range(12))
TEXT = "\n".join(f"line {number} of what the tool printed" for number in range(20))  # ~ 600


def compact(preset: str, format: str, *steps: Any, **changes: Any) -> Compaction[Any]:
    """A session under a preset, as the provider accepts it."""
    return compact_body(preset, format, request(format, "Mend the loom.", *steps), **changes)


def compact_body(preset: str, format: str, body: Any, **changes: Any) -> Compaction[Any]:
    policy = Policy.preset(preset).replace(**changes)
    out = clew.compact(body, format=format, policy=policy, memo=None)
    assert [p for p in clew.check(out.request, format=format) if p.severity == "error"] == []
    assert out.report.failures == {}
    return out


def then(messages: int) -> list[Any]:
    """So many messages after what matters: calls with their results, and a word for an odd one."""
    calls = [[bash(f"echo {n}", f"{n}", f"f{n}")] for n in range(messages // 2)]
    return [*calls, *(["Go on."] if messages % 2 else [])]


def reasons(out: Compaction[Any]) -> list[str]:
    return [edit.reason for edit in out.report.edits]


# 000, codetether: repeated calls, and what stands beside them.


def repeated(format: str, *steps: Any) -> list[bool]:
    out = compact("codetether", format, *steps)
    return ["repeat_of" in one for one in arguments(format, out.request)]


class TestCodetether:
    @formats
    def test_second_calls_arguments_reference_the_first(self, format: str):
        steps = [[bash(LONG, "a", "first")], [bash(LONG, "b", "second")], *then(10)]
        out = compact("codetether", format, *steps)
        first, second, *_ = arguments(format, out.request)
        assert first == {"command": LONG}
        assert second["repeat_of"] == "first"
        assert json.loads(clew.expand(second["ref"], out)) == {"command": LONG}
        assert results(format, out.request)[:2] == ["a", "b"], "results stay"

    @formats
    def test_hits_and_bytes_saved_are_counted(self, format: str):
        steps = [[bash(LONG, "a", f"c{n}")] for n in range(3)]
        out = compact("codetether", format, *steps, *then(10))
        assert reasons(out) == ["repeated_call", "repeated_call"]
        assert all(" bytes saved" in one.evidence for one in out.report.edits)

    @formats
    def test_different_names_not_merged(self, format: str):
        one = Exchange("a", tool="Bash", id="1", args={"command": LONG})
        other = Exchange("b", tool="Grep", id="2", args={"command": LONG})
        assert not any(repeated(format, [one], [other], *then(10)))

    @formats
    def test_small_args_preserved(self, format: str):
        short = "ls " + "x" * 40  # under 64 bytes with its braces
        steps = [[bash(short, "a", f"c{n}")] for n in range(3)]
        assert not any(repeated(format, *steps, *then(10)))

    @formats
    @pytest.mark.parametrize(("after", "taken"), [(0, False), (7, False), (8, True), (9, True)])
    def test_recent_calls_preserved(self, format: str, after: int, taken: bool):
        """A call is among the last 8 messages as long as its result is."""
        found = repeated(format, [bash(LONG, "a", "1")], [bash(LONG, "b", "2")], *then(after))
        assert found[:2] == [False, taken]

    @formats
    def test_a_write_in_between_makes_it_another_call(self, format: str):
        steps = [[bash(LONG, "a", "1")], [write(A, TEXT, "w")], [bash(LONG, "b", "2")]]
        assert not any(repeated(format, *steps, *then(10)))

    @formats
    @pytest.mark.parametrize(("after", "taken"), [(0, False), (7, False), (8, True)])
    def test_identical_results_collapse_behind_the_last_8_messages(
        self, format: str, after: int, taken: bool
    ):
        steps = [[bash("ls a", TEXT, "1")], [bash("ls b", TEXT, "2")], *then(after)]
        first, second, *_ = results(format, compact("codetether", format, *steps).request)
        assert first == TEXT
        assert (find_marker(second) is not None) is taken
        assert ("call 1" in second) is taken

    @formats
    @pytest.mark.parametrize(("size", "taken"), [(255, False), (256, True)])
    def test_identical_results_have_at_least_256_bytes(self, format: str, size: int, taken: bool):
        text = TEXT[: size - 1] + "."
        steps = [[bash("ls a", text, "1")], [bash("ls b", text, "2")], *then(8)]
        assert ("identical" in reasons(compact("codetether", format, *steps))) is taken

    @formats
    @pytest.mark.parametrize(
        ("size", "after", "taken"), [(4_096, 8, False), (4_097, 8, True), (4_097, 7, False)]
    )
    def test_long_old_results_keep_head_and_tail(
        self, format: str, size: int, after: int, taken: bool
    ):
        text = "".join(f"{n:5}: a line that is printed\n" for n in range(200))[:size]
        out = compact("codetether", format, [bash("make", text, "1")], *then(after))
        left = results(format, out.request)[0]
        assert (left != text) is taken
        assert left.startswith(text[:1_024])
        assert left.endswith(text[-1_024:])
        assert len(left) <= 4_096 or not taken

    @pytest.mark.parametrize("format", ["anthropic", "openai-responses", "gemini"])
    def test_reasoning_stays_in_the_last_4_messages(self, format: str):
        """Of 10 turns of two messages each the last two keep theirs; the latest one always."""
        out = compact_body("codetether", format, thinking_session(format, 10))
        assert thoughts(out.request) == [8, 9]
        assert all(isinstance(one, DropReasoning) for one in out.report.edits)

    @pytest.mark.parametrize("format", ["anthropic", "openai-responses", "gemini"])
    def test_reasoning_is_message_by_message(self, format: str):
        """A word of the user's is a message, too: one more turn is out of the last 4."""
        body = thinking_session(format, 6, users=(5,))
        assert thoughts(compact_body("codetether", format, body).request) == [5]

    def test_reasoning_that_the_provider_demands_back_stays(self):
        body = thinking_session("openai-chat", 10)
        assert thoughts(compact_body("codetether", "openai-chat", body).request) == list(range(10))

    @formats
    def test_white_space_in_old_prose_goes_but_in_code(self, format: str):
        words = "I looked  at  it.   \n\n\n\nThen:\n```\na  b\n```\n" + "One.  Two.  " * 20
        body = speaking(format, words, [bash("make", "ok", "1")], *then(8))
        sent = json.dumps(compact_body("codetether", format, body).request)
        assert "I looked at it." in sent
        assert "a  b" in sent
        recent = speaking(format, words, [bash("make", "ok", "1")], *then(4))
        assert compact_body("codetether", format, recent).report.edits == ()

    @formats
    def test_the_last_8_messages_are_touched_by_no_pass(self, format: str):
        steps = [[bash(LONG, TEXT * 9, f"c{n}")] for n in range(8)]
        body = request(format, "Mend the loom.", *steps)
        out = compact_body("codetether", format, body)
        assert out.request[FIELD[format]][-8:] == body[FIELD[format]][-8:]
        assert out.request[FIELD[format]][:-8] != body[FIELD[format]][:-8]


def speaking(format: str, words: str, first: list[Exchange], *steps: Any) -> dict[str, Any]:
    """A session in which the model says something before its first call."""
    body = request(format, "Mend the loom.", first, *steps)
    user, call, *rest = body[FIELD[format]]
    if format == "anthropic":
        said = [{**call, "content": [{"type": "text", "text": words}, *call["content"]]}]
    elif format == "openai-chat":
        said = [{**call, "content": words}]
    elif format == "gemini":
        said = [{**call, "parts": [{"text": words}, *call["parts"]]}]
    else:
        spoken = [{"type": "output_text", "text": words, "annotations": []}]
        said = [{"type": "message", "role": "assistant", "content": spoken}, call]
    return {**body, FIELD[format]: [user, *said, *rest]}


# 001, clark: a cap for each result. Its own cases, by their names.

BIG = "\n".join(f"{number:4} of what the shell printed, and more of it" for number in range(40))


class TestClark:
    @staticmethod
    def left(format: str, *steps: Any, **changes: Any) -> list[str]:
        return results(format, compact("clark", format, *steps, **changes).request)

    def test_the_default_cap_is_clews_own(self):
        assert Policy.preset("clark").cap == Policy().cap == 32_000

    @formats
    def test_clips_oversize_tool_results_above_default_cap(self, format: str):
        steps = [[Exchange(BIG, id="a")], "again", [Exchange(BIG, id="b")]]
        older, newer = self.left(format, *steps, cap=1_000)
        assert find_marker(older) is not None
        assert len(older) <= 1_000
        assert newer == BIG

    @formats
    @pytest.mark.parametrize(("size", "clipped"), [(32_000, False), (32_001, True)])
    def test_only_what_exceeds_the_cap_is_clipped(self, format: str, size: int, clipped: bool):
        text = "".join(f"{n:6} words of a log\n" for n in range(2_000))[:size]
        first, _ = self.left(format, [Exchange(text, id="a")], [Exchange("ok", id="b")])
        assert (first != text) is clipped

    @formats
    def test_preserves_tool_results_within_cap(self, format: str):
        steps = [[Exchange("x" * 50, id="a")], "again", [Exchange("x" * 50, id="b")]]
        assert compact("clark", format, *steps, cap=1_000).report.edits == ()

    @formats
    def test_per_tool_override_unlimited_keeps_verbatim(self, format: str):
        tools = Tools([Tool("publish", cap=UNLIMITED)])
        steps = [[Exchange(BIG, id="a", tool="publish")], "more", *then(4)]
        assert self.left(format, *steps, cap=400, tools=tools)[0] == BIG

    @formats
    def test_per_tool_override_smaller_clips_below_default(self, format: str):
        tools = Tools([Tool("verbose", cap=500)])
        steps = [[Exchange(BIG, id="a", tool="verbose")], [Exchange(BIG, id="b", tool="verbose")]]
        older, newer = self.left(format, *steps, cap=1_000_000, tools=tools)
        assert len(older) <= 500
        assert newer == BIG

    @formats
    def test_idempotent_across_repeated_apply(self, format: str):
        steps = [[Exchange(BIG, id="a")], "again", [Exchange(BIG, id="b")]]
        once = compact("clark", format, *steps, cap=1_000)
        twice = compact_body("clark", format, once.request, cap=1_000)
        assert twice.request == once.request
        assert twice.report.edits == ()

    @formats
    def test_unknown_tool_falls_back_to_default_cap(self, format: str):
        tools = Tools([Tool("shell", cap=UNLIMITED)])
        steps = [[Exchange(BIG, id=id, tool="synthetic")] for id in ("a", "b")]
        older, newer = self.left(format, *steps, cap=1_000, tools=tools)
        assert (len(older) <= 1_000, newer == BIG) == (True, True)

    @formats
    def test_the_last_result_stays_verbatim_when_it_was_seen(self, format: str):
        """In the source it is the newest result that stays, whoever spoke after it."""
        body = ending_in_words(format, [Exchange(BIG, id="a")], [Exchange(BIG, id="b")])
        older, newer = results(format, compact_body("clark", format, body, cap=1_000).request)
        assert find_marker(older) is not None
        assert newer == BIG
        usual = Policy(cap=1_000, passes=("cap_results",), at_once=True, step=1, growth=0.0)
        _, seen = results(format, clew.compact(body, format=format, policy=usual).request)
        assert seen != BIG, "clew's own rule: what was seen may be clipped"

    @formats
    def test_of_calls_made_together_all_results_stay(self, format: str):
        together = [Exchange(BIG, id=f"p{n}") for n in range(3)]
        first, *rest = self.left(format, [Exchange(BIG, id="a")], together, cap=1_000)
        assert first != BIG
        assert rest == [BIG] * 3

    @formats
    def test_the_marker_names_tool_size_cap_and_call(self, format: str):
        long = "a" * 40 + "_" + "b" * 22
        steps = [[Exchange(BIG, id=long, tool="shell")], [Exchange("ok", id="b")]]
        marker = str(find_marker(self.left(format, *steps, cap=1_000)[0]))
        assert len(marker) <= MOST == 256
        assert all(one in marker for one in ("shell", f"{len(BIG):,}", "1,000", "aaaa"))

    @formats
    def test_the_history_itself_stays_and_resuming_gives_the_same(self, format: str):
        body = request(format, "hi", [Exchange(BIG, id="a")], [Exchange(BIG, id="b")])
        before = json.dumps(body)
        first, again = (compact_body("clark", format, body, cap=1_000) for _ in range(2))
        assert json.dumps(body) == before
        assert first.request == again.request
        assert list(first.originals.values()) == [BIG]


def ending_in_words(format: str, *steps: Any) -> dict[str, Any]:
    """A session in which the model has answered, and the user goes on."""
    body = request(format, "Mend the loom.", *steps)
    answer: Any = {"role": "assistant", "content": "Done."}
    if format == "gemini":
        answer = {"role": "model", "parts": [{"text": "Done."}]}
    elif format == "openai-responses":
        spoken = [{"type": "output_text", "text": "Done.", "annotations": []}]
        answer = {"type": "message", "role": "assistant", "content": spoken}
    (user,) = request(format, "And now?")[FIELD[format]]
    return {**body, FIELD[format]: [*body[FIELD[format]], answer, user]}


# 002, RFC 013: tiers. It has no cases of its own; these are from its text.

CODE = "\n".join(f"def thread_{n}(spool): return spool.turn({n})" for n in range(40))  # ~ 1,800


def shown(number: int, size: int) -> str:
    return CODE[: size - 1] + f"{number % 10}"


def rfc_session(calls: int, size: int = 1_700) -> list[Any]:
    return [[read(f"/w/part_{n}.py", shown(n, size), f"r{n}")] for n in range(calls)]


def summaries(format: str, out: Compaction[Any]) -> list[str]:
    found = results(format, out.request)
    return [text for text in found if text.startswith("Earlier in this session, ")]


class TestRfc013:
    @formats
    def test_older_calls_become_a_summary_and_six_stay_in_full(self, format: str):
        out = compact("rfc013", format, *rfc_session(12))
        said = summaries(format, out)
        assert results(format, out.request)[len(said) :] == [shown(n, 1_700) for n in range(6, 12)]
        assert all(f"part_{n}.py" in "".join(said) for n in range(6)), "files are named"
        counts = [int(one.split()[4]) for one in said]
        assert sum(counts) == 6, "and counted"

    @formats
    @pytest.mark.parametrize("calls", [1, 6])
    def test_no_more_than_six_calls_are_left_alone(self, format: str, calls: int):
        assert compact("rfc013", format, *rfc_session(calls, 1_739)).report.edits == ()

    @formats
    def test_under_the_threshold_nothing_happens(self, format: str):
        """10,000 characters of calls and results, exactly, and one more."""
        steps = rfc_session(8, 1_000)
        arguments_ = sum(len(text) for text in call_texts(format, steps))
        room = 10_000 - 8 * 1_000 - arguments_
        exact = [*steps[:7], [read("/w/part_7.py", "y" * (1_000 + room), "r7")]]
        assert compact("rfc013", format, *exact).report.edits == ()
        over = [*steps[:7], [read("/w/part_7.py", "y" * (1_001 + room), "r7")]]
        assert "folded" in reasons(compact("rfc013", format, *over))

    @formats
    def test_the_summary_groups_by_category(self, format: str):
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
    def test_errors_survive(self, format: str):
        said = "Exit code 1\nFAIL tests/loom.test.ts\n  Error: Expected 42 but got undefined"
        steps = [[bash("npm test", said, "t1", error=True)], *rfc_session(12)]
        sent = json.dumps(compact("rfc013", format, *steps).request)
        assert "Expected 42 but got undefined" in sent

    @formats
    def test_system_prompt_and_first_user_message_stay(self, format: str):
        body = request(format, "Mend the loom.", *rfc_session(12))
        out = compact_body("rfc013", format, body)
        assert out.request[FIELD[format]][0] is body[FIELD[format]][0]

    @formats
    def test_the_summary_has_at_most_500_tokens(self, format: str):
        out = compact("rfc013", format, *rfc_session(40, 300))
        counter = counter_for(format, out.request.get("model"))
        said = summaries(format, out)
        assert said
        assert all(counter.count(one) <= 500 for one in said)

    @formats
    def test_a_summary_once_sent_is_not_rewritten(self, format: str):
        one, next_one = (compact("rfc013", format, *rfc_session(calls)) for calls in (10, 12))
        before, after = summaries(format, one), summaries(format, next_one)
        assert len(after) > len(before) > 0
        assert after[: len(before)] == before

    @formats
    def test_the_summary_is_never_put_in_the_users_mouth(self, format: str):
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
    def test_the_cut_never_falls_inside_a_batch_of_parallel_calls(
        self, format: str, after: int, stays: bool
    ):
        """As long as one of three calls made together is among the last six, all three stay."""
        batch = [read(f"/w/batch_{n}.py", CODE, f"b{n}") for n in range(3)]
        steps = [*rfc_session(6), batch, *([bash(f"ls {n}", CODE, f"l{n}")] for n in range(after))]
        out = compact("rfc013", format, *steps)
        assert summaries(format, out)
        assert (results(format, out.request).count(CODE) == after + 3) is stays

    @formats
    def test_keep_0_means_none_and_not_all(self, format: str):
        out = compact("rfc013", format, *rfc_session(6, 1_739), keep_calls=0)
        (summary, unseen) = results(format, out.request)
        assert summary.startswith("Earlier in this session, 5 tool calls")
        assert unseen == shown(5, 1_739)

    @formats
    def test_empty_results_are_results(self, format: str):
        steps = [[bash("true", "", "t1")], *rfc_session(12)]
        compact("rfc013", format, *steps)  # valid, and no pass failed

    @formats
    def test_the_decision_stands_apart_from_its_application(self, format: str):
        body = request(format, "Mend the loom.", *rfc_session(12))
        policy = Policy.preset("rfc013")
        plan = clew.plan(body, format=format, policy=policy)
        gone = [one for one in plan.edits if isinstance(one, DropExchange)]
        assert plan.tokens_saved > 1_000
        assert {one.exchange for one in gone} <= set(range(6)), "which calls go"
        assert gone
        applied = clew.apply(body, plan)
        assert applied.request == clew.compact(body, format=format, policy=policy).request


def call_texts(format: str, steps: list[Any]) -> Iterator[str]:
    """The arguments of calls, as the wire spells them."""
    for step in steps:
        for one in step:
            spaced = format in ("openai-chat", "openai-responses")
            yield json.dumps(one.args, separators=None if spaced else (",", ":"))


# 003, pi-dcp: rules and pairing. Its text holds no cases; these are from it and from its rules.

OLD, NEW = lines(1, 20, "warp"), lines(1, 20, "weft")
FAILED = "Exit code 1\n" + lines(1, 10) + "\nE   AssertionError: weave(3) is not 4\n1 failed"


class TestPiDcp:
    @formats
    @pytest.mark.parametrize("size", [20, 1])
    def test_an_earlier_write_of_a_file_written_again_goes_with_its_result(
        self, format: str, size: int
    ):
        first, second = lines(1, size, "warp"), lines(1, size, "weft")
        steps = [[write(A, first, "w1")], [write(A, second, "w2")], *then(10)]
        out = compact("pi-dcp", format, *steps)
        assert [(one.reason, type(one)) for one in out.report.edits] == [
            ("superseded", DropExchange)
        ]
        assert '"w1"' not in json.dumps(out.request)

    @formats
    @pytest.mark.parametrize(("after", "taken"), [(7, False), (8, True)])
    def test_the_last_10_messages_stay_but_count(self, format: str, after: int, taken: bool):
        """The later write may be among the last 10; the earlier one goes when it no longer is."""
        steps = [[write(A, OLD, "w1")], [write(A, NEW, "w2")], *then(after)]
        assert (reasons(compact("pi-dcp", format, *steps)) == ["superseded"]) is taken

    @formats
    def test_a_write_that_comes_much_later_supersedes(self, format: str):
        steps = [[write(A, OLD, "w1")], *then(20), [write(A, NEW, "w2")], done()]
        assert reasons(compact("pi-dcp", format, *steps)) == ["superseded"]

    @formats
    def test_an_edit_is_not_a_superseding_write(self, format: str):
        steps = [[write(A, OLD, "w1")], [edit(A, "warp_3", NEW, "e1")], *then(12)]
        assert compact("pi-dcp", format, *steps).report.edits == ()

    @formats
    def test_a_resolved_error_goes_but_for_the_line_that_tells_it(self, format: str):
        steps = [
            [bash("pytest -q", FAILED, "t1", error=True)],
            [edit(A, "a", "b", "e1")],
            [bash("pytest -q", "3 passed", "t2")],
            *then(10),
        ]
        out = compact("pi-dcp", format, *steps)
        assert reasons(out) == ["resolved"]
        left = results(format, out.request)[0]
        assert "AssertionError: weave(3) is not 4" in left
        assert "weave(7" not in left

    @formats
    def test_an_error_that_is_still_open_stays(self, format: str):
        steps = [[bash("pytest -q", FAILED, "t1", error=True)], *then(12)]
        assert compact("pi-dcp", format, *steps).report.edits == ()

    @formats
    @pytest.mark.parametrize(("after", "taken"), [(9, False), (10, True)])
    def test_duplicates_go_behind_the_last_10_messages(self, format: str, after: int, taken: bool):
        steps = [[bash("ls a", TEXT, "1")], [bash("ls b", TEXT, "2")], *then(after)]
        out = compact("pi-dcp", format, *steps)
        assert reasons(out) == (["identical"] if taken else [])

    @formats
    def test_duplicates_of_user_messages_stay(self, format: str):
        said = TEXT * 2
        out = compact("pi-dcp", format, said, *then(2), said, *then(12))
        assert out.report.edits == ()

    @formats
    def test_a_kept_result_protects_its_call_and_the_calls_beside_it_stay(self, format: str):
        """Part by part: of two calls in one message one goes, with its result; the other stays."""
        steps = [[write(A, OLD, "w1"), read(B, TEXT, "r1")], [write(A, NEW, "w2")], *then(10)]
        out = compact("pi-dcp", format, *steps)
        sent = json.dumps(out.request)
        assert reasons(out) == ["superseded"]
        assert '"w1"' not in sent
        assert '"r1"' in sent
        assert TEXT in results(format, out.request)

    @formats
    def test_protection_is_visible_in_the_outcome(self, format: str):
        body = request(format, "go", [write(A, OLD, "w1")], [write(A, NEW, "w2")], *then(4))
        plan = clew.plan(body, format=format, policy=Policy.preset("pi-dcp"), trace=True)
        assert plan.trace is not None
        kept = {one.reason for one in plan.trace if one.outcome == "protected"}
        assert kept == {"recent, kept as it is"}

    @formats
    def test_a_rule_that_throws_is_skipped_and_told(self, format: str):
        def broken(view: View, policy: Policy) -> Iterator[Offer]:
            raise LookupError("a rule of the user's")

        policy = Policy.preset("pi-dcp")
        policy = policy.replace(passes=(broken, *(policy.passes or ())))
        body = request(format, "go", [write(A, OLD, "w1")], [write(A, NEW, "w2")], *then(10))
        out = clew.compact(body, format=format, policy=policy, memo=None)
        assert reasons(out) == ["superseded"]
        assert out.report.failures == {"broken": "LookupError: a rule of the user's"}

    @formats
    def test_the_order_is_the_users_and_off_is_off(self, format: str):
        body = request(format, "go", [write(A, OLD, "w1")], [write(A, NEW, "w2")], *then(10))
        off = Policy.preset("pi-dcp").replace(passes=())
        assert clew.compact(body, format=format, policy=off).request is body


# What holds for all of them.

# The same methods with constants that bite in sessions of a few calls.
SMALL: dict[str, dict[str, Any]] = {
    "codetether": {"cap": 600, "keep_messages": 3, "keep_reasoning": 1},
    "clark": {"cap": 600},
    "rfc013": {"keep_calls": 2, "fold_over": 1_000},
    "pi-dcp": {"keep_messages": 3},
}
sources = pytest.mark.parametrize("preset", SOURCES)


def under(usual: Policy, format: str) -> Compact:
    """What the laws take for a compactor."""

    def run(
        request: Any, *, policy: Policy | None = None, memo: Memo | None = None
    ) -> Compaction[Any]:
        chosen = chosen_passes(policy or usual)
        folded = fold_request(request, format, policy or usual, Facts(), memo, passes=chosen)
        return compacted(folded, request)

    return run


@sources
def test_every_law_holds(preset: str):
    policy = Policy.preset(preset).replace(**SMALL[preset])

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(sessions)
    def run(case: tuple[str, dict[str, Any]]) -> None:
        format, body = case
        compact = under(policy, format)
        laws.valid(compact, format, body, whole=True)
        laws.small(compact, format, body)
        laws.reversible(compact, format, body)
        laws.honest(compact, format, body)
        laws.faithful(compact, format, body)
        laws.shapes_nothing_twice(compact, format, body)
        sent = requests_of(body, FIELD[format])
        laws.stable(compact, format, sent)
        laws.reproducible(compact, format, sent)

    run()


@sources
@formats
def test_one_more_turn_costs_one_more_turn(preset: str, format: str):
    compact = under(Policy.preset(preset), format)
    laws.linear(
        compact, lambda count: long_session(format, count, 600), policy=Policy.preset(preset)
    )


@sources
@formats
def test_with_nothing_to_do_the_output_is_the_input(preset: str, format: str):
    body = request(format, "go", [bash("ls", "a", "1")], done())
    assert clew.compact(body, format=format, policy=Policy.preset(preset)).request is body
    assert clew.compact(body, format=format, policy=IDLE).request is body


@sources
def test_presets_say_where_their_values_come_from(preset: str):
    origins = Policy.preset(preset).origins()
    assert {origins[name] for name in PRESETS[preset]} == {f"preset {preset}"}


@sources
def test_the_replay_knows_them_by_name(preset: str):
    assert callable(policy_named(preset))
    assert told(preset)


@formats
@pytest.mark.parametrize("keep", [{"keep_messages": 6}, {"keep_calls": 3}])
def test_what_is_kept_is_kept_from_every_pass(format: str, keep: dict[str, int]):
    """With all that clew can do: what passes would do at arrival, they do when it leaves."""
    names = ("default", "repeated_calls", "squeeze_prose")
    shared: dict[str, Any] = {"at_once": True, "step": 1, "growth": 0.0, "cap": 500}
    steps = [[bash(LONG, TEXT * 2 + "   \n" * 9, f"c{n}")] for n in range(6)]
    body = request(format, "go", *steps)
    policy = Policy(passes=names, **shared, **keep)
    out = clew.compact(body, format=format, policy=policy, memo=None)
    assert out.request[FIELD[format]][-6:] == body[FIELD[format]][-6:]
    assert out.request[FIELD[format]][:-6] != body[FIELD[format]][:-6]
    assert all(reference(text) == ref for ref, text in out.originals.items())
