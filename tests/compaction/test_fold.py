"""The fold over request boundaries."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import respool.compaction.fold
import respool.compaction.head
import respool.engine
from respool.compaction.evaluation import evaluate
from respool.compaction.fold import initial_prefix, is_consistent
from respool.compaction.memo import Memo
from respool.compaction.state import State
from respool.compaction.window import is_due
from respool.edits import DropReasoning, Offer, Replace
from respool.engine import FoldedRequest, build_compaction, fold_request
from respool.facts import Facts
from respool.passes import Pass
from respool.passes.base import View
from respool.passes.cap_results import cap_results
from respool.policy import Policy
from tests.laws.sessions import long_session
from tests.laws.trial_passes import fail
from tests.support.formats import FIELD, FORMATS, Exchange, request, results
from tests.support.states import state_with

formats = pytest.mark.parametrize("format", FORMATS)
LONG = "\n".join(f"line {number} of what the tool printed" for number in range(200))
CAP = 1_000
EAGER = Policy(
    cap_chars=CAP, reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, keep_exchanges=0
)
NO_FACTS = Facts()


def fold(
    format: str,
    whole: Any,
    policy: Policy = EAGER,
    facts: Facts = NO_FACTS,
    passes: tuple[Pass, ...] = (cap_results,),
    memo: Memo | None = None,
) -> FoldedRequest:
    return fold_request(whole, format=format, policy=policy, facts=facts, memo=memo, passes=passes)


def clipped(format: str, whole: dict[str, Any], policy: Policy = EAGER) -> list[bool]:
    """Of each result in the history, whether it was clipped."""
    out = build_compaction(fold(format, whole, policy), whole)
    return ["[respool: clipped" in text for text in results(format, out.request)]


def exchanges(*said: str) -> list[list[Exchange]]:
    return [[Exchange(text, id=f"c{number}")] for number, text in enumerate(said)]


def spoken(format: str) -> dict[str, Any]:
    """Words of the model."""
    return {
        "anthropic": {"role": "assistant", "content": "Done."},
        "openai-chat": {"role": "assistant", "content": "Done."},
        "openai-responses": {"type": "message", "role": "assistant", "content": "Done."},
        "gemini": {"role": "model", "parts": [{"text": "Done."}]},
    }[format]


def with_rows(format: str, whole: dict[str, Any], *rows: Any) -> dict[str, Any]:
    return {**whole, FIELD[format]: [*whole[FIELD[format]], *rows]}


class Watch:
    """A pass that offers nothing and remembers what it was shown."""

    __name__ = __qualname__ = "watch"

    def __init__(self) -> None:
        self.views: list[View] = []

    def __call__(self, view: View, policy: Policy) -> Iterator[Offer]:
        self.views.append(View(view.state.copy(), view.context, view.phase, view.unseen_from))
        return iter(())

    @property
    def unseen(self) -> list[list[str]]:
        """At each evaluation, what the results say that are protected for being unseen."""
        return [
            [
                view.transcript.parts[at].text
                for at in view.transcript.results
                if at >= view.unseen_from
            ]
            for view in self.views
        ]


# Boundaries.


@formats
def test_an_evaluation_stands_wherever_a_request_was_sent(format: str) -> None:
    watch = Watch()
    fold(format, request(format, "go", *exchanges("one", "two", "three")), passes=(watch,))
    assert watch.unseen == [[], ["one"], ["two"], ["three"]]


@formats
def test_a_request_that_ends_on_model_output_is_no_evaluation_point(format: str) -> None:
    watch = Watch()
    whole = request(format, "go", *exchanges("one"))
    calling = request(format, "go", *exchanges("one", "two"))[FIELD[format]]
    for ending in ([spoken(format)], calling[len(whole[FIELD[format]]) :][:1]):
        watch.views.clear()
        state = fold(format, with_rows(format, whole, *ending), passes=(watch,)).state
        assert watch.unseen == [[], ["one"]]
        assert state.transcript.units[-1].answers_from == state.transcript.units[-1].parts[1]


@formats
def test_a_clip_waits_for_the_boundary_behind_the_answer(format: str) -> None:
    whole = request(format, "go", *exchanges(LONG))
    assert clipped(format, whole) == [False]
    assert clipped(format, with_rows(format, whole, spoken(format))) == [False]
    again = request(format, "and now?")[FIELD[format]]
    assert clipped(format, with_rows(format, whole, spoken(format), *again)) == [True]


@formats
def test_all_that_stands_between_two_answers_of_the_model_is_one_step(format: str) -> None:
    watch = Watch()
    whole = request(format, "go", *exchanges("one"), "wait", "go on")
    state = fold(format, whole, passes=(watch,)).state
    assert len(watch.views) == len(state.transcript.units) == 2
    assert len(state.prefix.boundaries) == 2


# Protection.


@formats
def test_parallel_results_are_unseen_together(format: str) -> None:
    three = [Exchange(LONG, id=f"p{number}") for number in range(3)]
    assert clipped(format, request(format, "go", three)) == [False] * 3
    assert clipped(format, request(format, "go", three, *exchanges("ok"))) == [True] * 3 + [False]


@formats
def test_results_with_words_of_the_user_behind_them_are_still_unseen(format: str) -> None:
    assert clipped(format, request(format, "go", *exchanges(LONG), "and hurry")) == [False]


@formats
def test_the_first_user_message_is_protected_and_no_other(format: str) -> None:
    watch = Watch()
    whole = request(format, "first", *exchanges("one"), "second", *exchanges("two"))
    fold(format, whole, passes=(watch,))
    view = watch.views[-1]
    texts = {
        part.text: view.is_protected(at)
        for at, part in enumerate(view.transcript.parts)
        if part.speaker == "user"
    }
    assert texts == {"first": True, "second": False}


def test_every_part_of_the_first_user_message_is_protected() -> None:
    watch = Watch()
    said = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    whole = request("anthropic", "x", *exchanges("a", "b"))
    whole["messages"][0] = {"role": "user", "content": said}
    fold("anthropic", whole, passes=(watch,))
    assert watch.views[-1].first_user == (0, 2)


SYSTEM: dict[str, Any] = {
    "anthropic": {"role": "system", "content": "Be brief."},
    "openai-chat": {"role": "developer", "content": "Be brief."},
    "openai-responses": {"role": "system", "content": "Be brief."},
}


@pytest.mark.parametrize("format", SYSTEM)
def test_system_messages_are_protected_wherever_they_stand(format: str) -> None:
    watch = Watch()
    whole = request(format, "go", *exchanges("one"), "on", *exchanges("two", "three"))
    whole[FIELD[format]].insert(-6 if format == "openai-responses" else -4, SYSTEM[format])
    fold(
        format,
        whole,
        passes=(watch,),
        policy=Policy(
            reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, repair=False, keep_exchanges=0
        ),
    )
    view = watch.views[-1]
    told = [at for at, part in enumerate(view.transcript.parts) if part.speaker == "system"]
    assert len(told) == 1
    assert told[0] < view.unseen_from
    assert view.is_protected(told[0])


def test_what_the_provider_ran_is_protected() -> None:
    found = [{"type": "web_search_result", "url": "u", "title": LONG, "encrypted_content": "x"}]
    asked = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    answer = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": found}
    whole = request("anthropic", "go", *exchanges("one", "two"))
    whole["messages"].insert(1, {"role": "assistant", "content": [asked, answer]})
    watch = Watch()
    state = fold("anthropic", whole, passes=(cap_results, watch)).state
    assert state.edits.by_part == {}
    view = watch.views[-1]
    served = [at for at, part in enumerate(view.transcript.parts) if part.server]
    assert len(served) == 2
    assert all(view.is_protected(at) for at in served)


def test_what_must_stay_intact_is_not_rewritten_but_may_go() -> None:
    watch = Watch()
    whole = request("anthropic", "go", *exchanges("one", "two"))
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    whole["messages"][1]["content"].insert(0, thinking)
    fold("anthropic", whole, passes=(watch,))
    view = watch.views[-1]
    (at,) = [at for at, part in enumerate(view.transcript.parts) if part.kind == "reasoning"]
    assert not view.is_protected(at)
    assert not view.can_rewrite(at)


@formats
def test_each_result_is_fresh_once(format: str) -> None:
    watch = Watch()
    fold(format, request(format, "go", *exchanges("one", "two", "three", "four")), passes=(watch,))
    fresh = [[v.transcript.parts[at].text for at in v.fresh_results()] for v in watch.views]
    assert fresh == [[], [], ["one"], ["two"], ["three"]]


# Thresholds.

DUE: dict[str, tuple[dict[str, int], dict[str, float], bool]] = {
    "too little is new": (
        {"evaluation__new_tokens": 99, "tokens__estimated_total": 99},
        {"reevaluate_tokens": 100, "reevaluate_ratio": 0.1},
        False,
    ),
    "a step is new": (
        {"evaluation__new_tokens": 100, "tokens__estimated_total": 100},
        {"reevaluate_tokens": 100, "reevaluate_ratio": 0.1},
        True,
    ),
    "less than a tenth": (
        {"evaluation__new_tokens": 199, "tokens__estimated_total": 2_000},
        {"reevaluate_tokens": 100, "reevaluate_ratio": 0.1},
        False,
    ),
    "a tenth": (
        {"evaluation__new_tokens": 200, "tokens__estimated_total": 2_000},
        {"reevaluate_tokens": 100, "reevaluate_ratio": 0.1},
        True,
    ),
    "a tenth of what is left": (
        {"evaluation__new_tokens": 100, "tokens__estimated_total": 2_000, "edits__saved": 1_000},
        {"reevaluate_tokens": 50, "reevaluate_ratio": 0.1},
        True,
    ),
    "without growth the step alone": (
        {"evaluation__new_tokens": 100, "tokens__estimated_total": 10**9},
        {"reevaluate_tokens": 100, "reevaluate_ratio": 0.0},
        True,
    ),
}


@pytest.mark.parametrize("case", DUE)
def test_when_an_evaluation_is_due(case: str) -> None:
    counts, policy, due = DUE[case]
    setting = fold("anthropic", request("anthropic", "go")).context
    setting = replace(setting, policy=Policy(**policy))  # type: ignore[arg-type]
    assert is_due(state_with(**counts), setting) is due  # type: ignore[arg-type]


def test_a_huge_unseen_result_is_clipped_at_the_next_boundary_although_little_else_came() -> None:
    policy = Policy(cap_chars=CAP, reevaluate_tokens=500, reevaluate_ratio=0.1, keep_exchanges=0)
    opening = [*exchanges("short"), "go on"]
    assert clipped("anthropic", request("anthropic", "go", *opening), policy) == [False]
    steps = [*opening, *exchanges(LONG * 5)]
    assert clipped("anthropic", request("anthropic", "go", *steps), policy) == [False, False]
    steps += exchanges("ok")
    assert clipped("anthropic", request("anthropic", "go", *steps), policy) == [False, True, False]


def test_what_no_pass_could_touch_yet_still_counts_as_new() -> None:
    state = fold("anthropic", request("anthropic", "go", *exchanges("one", LONG))).state
    unseen = state.transcript.units[-1].answers_from
    assert state.evaluation.new_tokens == sum(state.tokens.estimates[unseen:]) > 1_000
    assert state.evaluation.fresh_from == unseen


def evaluations(exchanges_: int, monkeypatch: pytest.MonkeyPatch, result: int) -> int:
    count = 0

    def counted(state: State, setting: Any, *, free: bool) -> None:
        nonlocal count
        count += 1
        evaluate(state, setting, free=free)

    with monkeypatch.context() as patch:
        patch.setattr(respool.compaction.fold, "evaluate", counted)
        policy = Policy(
            cap_chars=500,
            reevaluate_tokens=2_000,
            reevaluate_ratio=0.1,
            passes=("cap_results",),
            keep_exchanges=0,
        )
        model = "claude-opus-5-5"  # whose window holds all of it
        session = long_session("anthropic", exchanges_, result=result, model=model)
        fold("anthropic", session, policy)
    return count


@pytest.mark.parametrize("result", [300, pytest.param(3_000, marks=pytest.mark.slow)])
def test_evaluations_grow_slower_than_the_history(
    monkeypatch: pytest.MonkeyPatch, result: int
) -> None:
    """Each reads all there is, so together they are linear only if they become rare."""
    counts = [evaluations(count, monkeypatch, result) for count in (100, 200, 400, 800)]
    gained = [later - sooner for sooner, later in pairwise(counts)]
    assert counts[0] > 5
    assert max(gained) <= 70
    assert gained[-1] <= 1.1 * gained[0] + 5


# Stickiness.


@formats
def test_edits_in_force_stay(format: str) -> None:
    steps = exchanges(LONG, "short", LONG + "x", "more", LONG + "y", "end")
    before: dict[int, Any] = {}
    for count in range(1, len(steps) + 1):
        state = fold(format, request(format, "go", *steps[:count])).state
        assert before.items() <= state.edits.by_part.items()
        before = state.edits.by_part
    assert len(before) == 3


@formats
@pytest.mark.parametrize("more", [0, 1])
def test_a_part_that_was_cut_is_cut_again_only_where_that_saves_more(
    format: str, more: int
) -> None:
    evaluations: list[View] = []

    def deeper(view: View, policy: Policy) -> Iterator[Offer]:
        evaluations.append(view)
        for position in view.transcript.results:
            if not view.is_protected(position):
                part = view.transcript.parts[position]
                saved = 5 + more * len(evaluations)
                edit = Replace(position, part.ref, f"saves {saved}", "ref", "trial", "", saved)
                yield Offer("stub", edit)

    steps = exchanges(LONG, "b", "c", "d")
    state = fold(format, request(format, "go", *steps), passes=(deeper,)).state
    last = 5 + more * len(evaluations)
    assert [edit.text for edit in state.edits.by_part.values()] == [f"saves {last}"] * 3  # type: ignore[union-attr]
    assert state.edits.saved == 3 * last


@formats
def test_tokens_saved_and_originals_follow_the_edits(format: str) -> None:
    state = fold(format, request(format, "go", *exchanges(LONG, LONG, "short"))).state
    assert state.edits.saved == sum(edit.saved for edit in state.edits.by_part.values()) > 0
    assert state.edits.claimed == set(state.edits.by_part)
    assert list(state.edits.originals.values()) == [LONG]  # said twice, kept once


# Passes that fail.


def offer_nothing_real(view: View, policy: Policy) -> Iterator[Offer]:
    """A pass that would drop the reasoning of a unit without any."""
    yield Offer("drop", DropReasoning(0, view.transcript.parts[0].ref, "trial", "", 5))


def fail_late(view: View, policy: Policy) -> Iterator[Offer]:
    """A pass that breaks down after its first offer."""
    for position in view.fresh_results():
        ref = view.transcript.parts[position].ref
        yield Offer("stub", Replace(position, ref, "gone", "ref", "trial", "", 10_000))
        raise KeyError("late")


@formats
def test_a_failing_pass_is_skipped_with_all_it_offered(format: str) -> None:
    whole = request(format, "go", *exchanges(LONG, "short", "end"))
    sound = fold(format, whole).state
    faulty = fold(format, whole, passes=(fail, fail_late, cap_results, offer_nothing_real)).state
    assert faulty.edits == sound.edits != {}
    assert faulty.evaluation.failures == {
        "fail": "ZeroDivisionError: a planted bug",
        "fail_late": "KeyError: 'late'",
    }
    out = build_compaction(fold(format, whole, passes=(fail, cap_results)), whole)
    assert "pass fail skipped: ZeroDivisionError: a planted bug" in out.report.to_text()


def test_a_pass_that_is_stopped_by_the_user_is_not_caught() -> None:
    def interrupted(view: View, policy: Policy) -> Iterator[Offer]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fold("anthropic", request("anthropic", "go"), passes=(interrupted,))


# Facts.


def prefixes(format: str, whole: dict[str, Any]) -> list[str]:
    return [one.hex() for one in fold(format, whole).state.prefix.boundaries]


@formats
def test_prefixes_of_a_longer_history_begin_with_those_of_a_shorter_one(format: str) -> None:
    steps = exchanges("one", "two", "three")
    short, long = (prefixes(format, request(format, "go", *steps[:n])) for n in (2, 3))
    assert long[: len(short)] == short
    assert len(set(long)) == len(long) == 4
    other = prefixes(format, request(format, "went", *steps))
    assert set(other).isdisjoint(long)
    assert initial_prefix(format).hex() not in long


@formats
def test_a_skipped_boundary_only_delays(format: str) -> None:
    whole = request(format, "go", *exchanges(LONG, "two", "three"))
    at = prefixes(format, whole)
    for skipped, epochs in ((at[2], [3]), (at[3], [2]), (at[0], [2])):
        facts = Facts(skipped=frozenset({skipped}))
        told: list[int] = []

        def noting(view: View, policy: Policy, told: list[int] = told) -> Iterator[Offer]:
            for offer in cap_results(view, policy):
                told.append(len(view.transcript.units) - 1)
                yield offer

        fold(format, whole, facts=facts, passes=(noting,))
        assert told == epochs


@formats
def test_left_alone_keeps_what_is_in_force_and_adds_nothing(format: str) -> None:
    whole = request(format, "go", *exchanges(LONG, LONG, LONG, LONG))
    at = prefixes(format, whole)
    counts = [
        len(fold(format, whole, facts=Facts(left_alone=frozenset({prefix}))).state.edits.by_part)
        for prefix in at
    ]
    assert counts == [0, 0, 0, 1, 2]
    assert len(fold(format, whole).state.edits.by_part) == 3


def test_a_state_agrees_with_facts_that_speak_of_other_prefixes() -> None:
    whole = request("anthropic", "go", *exchanges("one", "two"))
    here, elsewhere = prefixes("anthropic", whole)[1], "00" * 32
    told = Facts(skipped=frozenset({here}))
    cases = [
        (NO_FACTS, NO_FACTS, True),
        (NO_FACTS, Facts(skipped=frozenset({elsewhere})), True),
        (NO_FACTS, Facts(left_alone=frozenset({elsewhere})), True),
        (NO_FACTS, told, False),
        (told, NO_FACTS, False),
        (told, told.merge(Facts(left_alone=frozenset({elsewhere}))), True),
        (told, Facts(left_alone=frozenset({here})), False),
    ]
    for under, now, agreed in cases:
        assert is_consistent(fold("anthropic", whole, facts=under).state, now) is agreed


@formats
def test_facts_told_later_find_their_way_around_the_memo(format: str) -> None:
    memo = Memo()
    steps = exchanges(LONG, LONG, LONG, LONG)
    whole = request(format, "go", *steps)
    at = prefixes(format, whole)
    for prefix in (at[2], at[3], "00" * 32, at[2]):
        for facts in (NO_FACTS, Facts(skipped=frozenset({prefix}))):
            warm = fold(format, whole, facts=facts, memo=memo)
            cold = fold(format, whole, facts=facts)
            assert warm.state.edits.by_part == cold.state.edits.by_part
            assert build_compaction(warm, whole).report == build_compaction(cold, whole).report


# What the memo must never mix up.

HISTORY = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}]},
    {"role": "user", "content": "go"},
]


LOOKALIKES: dict[str, tuple[Any, Any]] = {
    "objects, and bytes whose model is spelled like all fields of the objects": (
        msgspec.json.encode({"model": ["m", None, None, None], "messages": HISTORY}),
        {"model": "m", "messages": HISTORY},
    ),
    "a system prompt, and tools of the same bytes": (
        msgspec.json.encode({"system": [{"text": "hello"}], "messages": HISTORY}),
        msgspec.json.encode({"tools": [{"text": "hello"}], "messages": HISTORY}),
    ),
    "a list, and the list in a request": (HISTORY, {"messages": HISTORY}),
    "nothing, and null": ({"messages": HISTORY}, {"system": None, "messages": HISTORY}),
}


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("case", LOOKALIKES)
def test_requests_that_look_alike_are_kept_apart(case: str, swapped: bool) -> None:
    pair = LOOKALIKES[case][::-1] if swapped else LOOKALIKES[case]
    memo = Memo()
    told: list[Any] = []
    for one in pair:
        warm = build_compaction(fold("anthropic", one, memo=memo), one)
        told.append((warm.request, warm.report))
    for one, (projection, report) in zip(pair, told, strict=True):
        respool.compaction.head._HEAD_TOKENS.clear()
        cold = build_compaction(fold("anthropic", one), one)
        assert (cold.request, cold.report) == (projection, report)
