"""The engine's fallbacks, and the error for a budget that cannot be met."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import respool
from respool import BudgetError, Facts, Memo, Policy
from respool.edits import DropExchange
from respool.engine import prefix_hash
from respool.limits import FIRST_USER_LABEL, HEAD_LABEL, UNSEEN_LABEL
from respool.wire.body import ObjectBody
from tests.effort import examples
from tests.laws.sessions import long_session
from tests.support.fallback import apply_known_edits, restore_original
from tests.support.formats import FIELD, FORMATS, Exchange, request, results

EAGER_POLICY = respool.Policy(
    cap_chars=500,
    eager=True,
    reevaluate_tokens=1,
    reevaluate_ratio=0.0,
    passes=("cap_results",),
    keep_exchanges=0,
)
LONG = "".join(f"line {n} of a long output\n" for n in range(200))
STEPS = [[Exchange(f"{n} {LONG}", id=f"call_{n}", args={"command": f"make {n}"})] for n in range(6)]


def said(format: str, steps: int) -> bytes:
    return json.dumps(request(format, "go on", *STEPS[:steps])).encode()


def compacted(format: str, body: bytes, **given: Any) -> bytes:
    return respool.compact(body, format=format, policy=EAGER_POLICY, **given).request


@pytest.mark.parametrize("format", FORMATS)
class TestKnownEdits:
    def test_edits_in_force_stay_and_no_others_are_made(self, format: str):
        memo = Memo()
        sent = json.loads(compacted(format, said(format, 3), memo=memo))
        late = apply_known_edits(
            said(format, 5), format=format, policy=EAGER_POLICY, facts=Facts(), memo=memo
        )
        assert late is not None
        texts = results(format, json.loads(late.compaction.request))
        before = results(format, sent)
        assert texts[:3] == before
        assert len(texts[0]) < 1_000
        assert texts[3:] == [f"{n} {LONG}" for n in (3, 4)]

    def test_its_facts_give_the_same_bytes_in_a_new_process(self, format: str):
        memo = Memo()
        compacted(format, said(format, 3), memo=memo)
        late = apply_known_edits(
            said(format, 4), format=format, policy=EAGER_POLICY, facts=Facts(), memo=memo
        )
        assert late is not None
        assert len(late.facts.skipped) == 1
        assert compacted(format, said(format, 4), facts=late.facts, memo=None) == (
            late.compaction.request
        )

    def test_later_requests_extend_it(self, format: str):
        memo = Memo()
        compacted(format, said(format, 3), memo=memo)
        late = apply_known_edits(
            said(format, 4), format=format, policy=EAGER_POLICY, facts=Facts(), memo=memo
        )
        assert late is not None
        warm = compacted(format, said(format, 5), facts=late.facts, memo=memo)
        assert warm == compacted(format, said(format, 5), facts=late.facts, memo=None)
        assert len(results(format, json.loads(warm))[3]) < 1_000  # what was passed over then

    def test_nothing_is_known_of_a_new_conversation(self, format: str):
        known = apply_known_edits(
            said(format, 3), format=format, policy=EAGER_POLICY, facts=Facts(), memo=Memo()
        )
        assert known is None

    def test_a_retry_is_known_whole(self, format: str):
        memo = Memo()
        sent = compacted(format, said(format, 3), memo=memo)
        again = apply_known_edits(
            said(format, 3), format=format, policy=EAGER_POLICY, facts=Facts(), memo=memo
        )
        assert again is not None
        assert again.compaction.request == sent
        assert again.facts == Facts()

    def test_without_signed_reasoning_the_original_is_the_original(self, format: str):
        body = said(format, 3)
        assert restore_original(body, format=format).compaction.request == body


def thought(steps: int, model: str = "claude-opus-5-5") -> dict[str, Any]:
    """A conversation with a signed thought before each call."""
    body: dict[str, Any] = {**request("anthropic", "go on", *STEPS[:steps]), "model": model}
    for at, message in enumerate(body["messages"]):
        if message["role"] == "assistant":
            thinking = {"type": "thinking", "thinking": f"thought {at}", "signature": "c2ln"}
            message["content"].insert(0, thinking)
    return body


def thoughts(body: dict[str, Any]) -> list[str]:
    return [
        block["thinking"]
        for message in body["messages"]
        for block in message["content"]
        if isinstance(block, dict) and block["type"] == "thinking"
    ]


def prefix(body: dict[str, Any]) -> str:
    return prefix_hash(ObjectBody(body, []), "anthropic", None)


class TestAsItCame:
    def test_reasoning_signed_for_projections_stays_behind(self):
        body = thought(3)
        fallen = restore_original(body)
        assert thoughts(fallen.compaction.request) == []
        assert results("anthropic", fallen.compaction.request) == results("anthropic", body)
        assert respool.check(fallen.compaction.request) == []
        assert fallen.facts == Facts(left_alone=frozenset({prefix(body)}))

    def test_what_was_thought_since_stays(self):
        since = restore_original(thought(3)).facts
        later = restore_original(thought(5), sent=since).compaction.request
        assert thoughts(later) == ["thought 7", "thought 9"]

    def test_where_reasoning_is_bound_to_itself_all_stays(self):
        body = thought(3, "claude-opus-4-5")
        assert restore_original(body).compaction.request is body

    def test_nothing_is_mended(self):
        body = request("anthropic", "go on", *STEPS[:2])
        del body[FIELD["anthropic"]][-1]
        assert restore_original(body).compaction.request is body


formats = pytest.mark.parametrize("format", FORMATS)
WORDS = "and so on, with one word behind the other; "
LONG_OVERRUN = {format: long_session(format, 40, result=2_000) for format in FORMATS}


def tokens(format: str, body: Any) -> int:
    """Tokens of a request, by the report of a run that does nothing."""
    policy = Policy(passes=(), repair=False)
    return respool.compact(body, format=format, policy=policy, memo=None).report.tokens_after


def refused(format: str, body: Any, policy: Policy, **more: Any) -> BudgetError:
    with pytest.raises(BudgetError) as caught:
        respool.compact(body, format=format, policy=policy, memo=None, **more)
    return caught.value


@formats
def test_the_error_names_the_limit_and_all_that_is_in_the_way(format: str) -> None:
    body = request(format, WORDS * 400, [Exchange("x", id="a")], [Exchange(WORDS * 200, id="b")])
    error = refused(format, body, Policy(budget=2_000))
    assert (error.limit, error.allowed) == ("tokens", 2_000)
    assert error.reached == tokens(format, body) > 2_000
    named = dict(error.in_the_way)
    assert {FIRST_USER_LABEL, UNSEEN_LABEL, HEAD_LABEL} <= named.keys()
    assert [size for _, size in error.in_the_way] == sorted(named.values(), reverse=True)
    assert sum(named.values()) == error.reached
    said = str(error)
    assert f"{error.reached:,} tokens" in said
    assert "2,000 are allowed" in said
    assert f"{FIRST_USER_LABEL} ({named[FIRST_USER_LABEL]:,})" in said
    assert error.in_the_way[0][0] == FIRST_USER_LABEL


@formats
def test_what_is_pinned_is_named_too(format: str) -> None:
    steps = [[Exchange(f"{k} {WORDS * 80}", id=f"c{k}")] for k in range(12)]
    body = request(format, "go", *steps)
    pins = tuple(f"c{k}" for k in range(12))
    error = refused(format, body, Policy(budget=3_000, pin_calls=pins))
    free = respool.compact(body, format=format, policy=Policy(budget=3_000), memo=None)
    assert free.report.tokens_after <= 3_000 < error.reached == tokens(format, body)
    largest = error.in_the_way[0]
    assert "pin" in largest[0], error.in_the_way
    assert largest[1] > 0.8 * error.reached


@pytest.mark.parametrize(  # each format with two shares; with all in `make laws`
    ("format", "share"),
    [
        pytest.param(format, share, marks=() if (at + turn) % 2 else pytest.mark.laws)
        for at, format in enumerate(FORMATS)
        for turn, share in enumerate((0.95, 0.7, 0.5, 0.35))
    ],
)
def test_a_budget_that_can_be_met_is_met_by_the_report_s_count(format: str, share: float) -> None:
    body = LONG_OVERRUN[format]
    before = tokens(format, body)
    budget = int(share * before)
    out = respool.compact(body, format=format, policy=Policy(budget=budget), memo=None)
    assert out.report.tokens_before == before
    assert out.report.tokens_after <= budget
    joined = sum(isinstance(edit, DropExchange) for edit in out.report.edits)
    more = tokens(format, out.request) - out.report.tokens_after
    # In Chat, words whose calls are gone are joined into one message, a blank line between them.
    assert 0 <= more <= (joined if format == "openai-chat" else 0)


@formats
def test_exactly_the_budget_is_within_it(format: str) -> None:
    body = request(format, WORDS * 300)
    exact = tokens(format, body)
    assert (
        respool.compact(body, format=format, policy=Policy(budget=exact), memo=None).request is body
    )
    error = refused(format, body, Policy(budget=exact - 1))
    assert (error.allowed, error.reached) == (exact - 1, exact)


@formats
def test_every_request_of_a_session_meets_it_or_is_refused(format: str) -> None:
    """Warm as cold: what was refused once is refused again, and nothing else is."""
    body, field, memo = LONG_OVERRUN[format], FIELD[format], Memo()
    step = 3 if format == "openai-responses" else 2
    policy = Policy(budget=9_000)
    told = []
    for end in range(1, len(body[field]) + 1, 6 * step):
        grown = {**body, field: body[field][:end]}
        warm, again = (outcome(format, grown, policy, memo) for _ in range(2))
        cold = outcome(format, grown, policy, None)
        assert warm == again == cold
        told.append(warm)
    assert not any(isinstance(one, str) for one in told)


def outcome(format: str, body: Any, policy: Policy, memo: Memo | None) -> object:
    """The projection within its budget, or what the error says."""
    try:
        out = respool.compact(body, format=format, policy=policy, memo=memo)
    except BudgetError as error:
        return str(error)
    assert out.report.tokens_after <= (policy.budget or 0)
    return out.request


WINDOWED = {
    "anthropic": "claude-haiku-4-5",
    "openai-chat": "gpt-4o",
    "openai-responses": "gpt-4o",
    "gemini": None,
}


def test_a_budget_below_what_is_cached_is_met_at_arrival_too() -> None:
    """Copies that just came go, though what is left is too short to be cached."""
    said = "\n".join(f"{n}: {WORDS}" for n in range(120))
    body = request("anthropic", "go", [Exchange(said, id="a"), Exchange(said, id="b")])
    body |= {"model": "claude-opus-4-5"}
    body["messages"][-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    budget = tokens("anthropic", body) - 500
    assert budget < 4_096  # tokens: a shorter prompt is not cached
    out = respool.compact(body, policy=Policy(budget=budget), memo=None)
    assert "identical" in [edit.reason for edit in out.report.edits]
    assert out.report.tokens_after <= budget


@pytest.mark.parametrize("format", ["anthropic", "openai-chat", "openai-responses"])
def test_a_window_that_is_only_listed_never_raises(format: str) -> None:
    body = {**request(format, WORDS * 30_000), "model": WINDOWED[format]}
    assert tokens(format, body) > 200_000
    out = respool.compact(body, format=format, policy=Policy(), memo=None)
    assert out.request is body


@formats
def test_nor_does_one_that_an_overflow_error_named(format: str) -> None:
    body = request(format, WORDS * 400)
    prefix = respool.compact(body, format=format, memo=None).report.prefix
    assert prefix is not None
    facts = Facts(windows=((prefix, 1_000),))
    assert respool.compact(body, format=format, facts=facts, memo=None).request is body


@formats
def test_what_is_left_alone_or_passed_over_is_never_refused(format: str) -> None:
    body = request(format, WORDS * 400)
    prefix = respool.compact(body, format=format, memo=None).report.prefix
    assert prefix is not None
    policy = Policy(budget=2_000)
    for facts in (Facts(left_alone=frozenset({prefix})), Facts(skipped=frozenset({prefix}))):
        out = respool.compact(body, format=format, policy=policy, facts=facts, memo=None)
        assert out.request is body
    assert refused(format, body, policy).allowed == 2_000


@formats
def test_a_plan_is_made_all_the_same(format: str) -> None:
    """A plan is reported; only a request that would be sent is refused."""
    body = request(format, WORDS * 400, [Exchange("x", id="a")])
    assert respool.plan(body, format=format, policy=Policy(budget=2_000), memo=None).edits == ()


def test_an_error_changes_nothing() -> None:
    body = LONG_OVERRUN["anthropic"]
    kept = copy.deepcopy(body)
    refused("anthropic", body, Policy(budget=2_000))
    assert body == kept
    as_bytes = json.dumps(body).encode()
    assert str(refused("anthropic", as_bytes, Policy(budget=2_000))) == str(
        refused("anthropic", body, Policy(budget=2_000))
    )


@settings(max_examples=examples(15))
@given(st.sampled_from(FORMATS), st.integers(2_000, 40_000), st.integers(1, 40))
def test_any_budget_is_met_or_refused(format: str, budget: int, exchanges: int) -> None:
    step = 3 if format == "openai-responses" else 2
    field = FIELD[format]
    body = {**LONG_OVERRUN[format], field: LONG_OVERRUN[format][field][: 1 + step * exchanges]}
    refusal: BudgetError | None = None
    try:
        out = respool.compact(body, format=format, policy=Policy(budget=budget), memo=None)
        assert out.report.tokens_after <= budget
    except BudgetError as error:
        refusal = error
    if refusal is not None:
        assert refusal.allowed == budget < refusal.reached
        assert sum(size for _, size in refusal.in_the_way) == refusal.reached
