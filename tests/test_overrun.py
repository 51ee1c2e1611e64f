"""A budget is met by the report's own count, or an error says what stands in the way."""

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
from respool.limits import FIRST, HEAD, UNSEEN
from tests.formats import FIELD, FORMATS, Exchange, request
from tests.laws.sessions import long_session

formats = pytest.mark.parametrize("format", FORMATS)
WORDS = "and so on, with one word behind the other; "
LONG = {format: long_session(format, 40, result=2_000) for format in FORMATS}


def tokens(format: str, body: Any) -> int:
    """How many tokens a request has, by the report of a run that does nothing."""
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
    assert {FIRST, UNSEEN, HEAD} <= named.keys()
    assert [size for _, size in error.in_the_way] == sorted(named.values(), reverse=True)
    assert sum(named.values()) == error.reached
    said = str(error)
    assert f"{error.reached:,} tokens" in said
    assert "2,000 are allowed" in said
    assert f"{FIRST} ({named[FIRST]:,})" in said
    assert error.in_the_way[0][0] == FIRST


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


@formats
@pytest.mark.parametrize("share", [0.95, 0.7, 0.5, 0.35])
def test_a_budget_that_can_be_met_is_met_by_the_report_s_count(format: str, share: float) -> None:
    body = LONG[format]
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
    body, field, memo = LONG[format], FIELD[format], Memo()
    step = 3 if format == "openai-responses" else 2
    policy = Policy(budget=9_000)
    told = []
    for end in range(1, len(body[field]) + 1, 3 * step):
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
    """Who asks what would be done is told; only a request that would go out is refused."""
    body = request(format, WORDS * 400, [Exchange("x", id="a")])
    assert respool.plan(body, format=format, policy=Policy(budget=2_000), memo=None).edits == ()


def test_an_error_changes_nothing() -> None:
    body = LONG["anthropic"]
    kept = copy.deepcopy(body)
    refused("anthropic", body, Policy(budget=2_000))
    assert body == kept
    as_bytes = json.dumps(body).encode()
    assert str(refused("anthropic", as_bytes, Policy(budget=2_000))) == str(
        refused("anthropic", body, Policy(budget=2_000))
    )


@settings(max_examples=15)
@given(st.sampled_from(FORMATS), st.integers(2_000, 40_000), st.integers(1, 40))
def test_any_budget_is_met_or_refused(format: str, budget: int, exchanges: int) -> None:
    step = 3 if format == "openai-responses" else 2
    field = FIELD[format]
    body = {**LONG[format], field: LONG[format][field][: 1 + step * exchanges]}
    refusal: BudgetError | None = None
    try:
        out = respool.compact(body, format=format, policy=Policy(budget=budget), memo=None)
        assert out.report.tokens_after <= budget
    except BudgetError as error:
        refusal = error
    if refusal is not None:
        assert refusal.allowed == budget < refusal.reached
        assert sum(size for _, size in refusal.in_the_way) == refusal.reached
