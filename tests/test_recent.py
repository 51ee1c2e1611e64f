"""How far back the latest messages and calls reach, in every format."""

from __future__ import annotations

from typing import Any

import pytest

import respool
from respool import Policy
from respool.engine import fold_request
from respool.errors import BudgetError
from respool.facts import Facts
from respool.recent import kept_from, start_of_calls, start_of_messages
from respool.transcript import Index
from tests.busy_sessions import bash
from tests.formats import FORMATS, request

formats = pytest.mark.parametrize("format", FORMATS)


def index(format: str, *steps: Any) -> Index:
    """The history that a request holds; its first message is the first part."""
    body = request(format, "go", *steps)
    policy = Policy(passes=(), repair=False)
    return fold_request(body, format, policy, Facts(), None).state.index


def rows(history: Index, first: int) -> int:
    """How many entries of the wire stand from a part on."""
    return len({part.ref.row for part in history.parts[first:]})


@formats
@pytest.mark.parametrize("count", range(1, 8))
def test_messages_count_alike_in_every_format(format: str, count: int):
    history = index(format, [bash("a", "1", "a")], [bash("b", "2", "b")], "and now?")
    # user, call, result, call, result, user: six
    assert rows(history, start_of_messages(history, count)) == min(count, 6)


@formats
def test_what_the_model_says_at_once_is_one_message(format: str):
    together = [bash("a", "1", "a"), bash("b", "2", "b")]
    history = index(format, together, [bash("c", "3", "c")])
    first = start_of_messages(history, 3 + (2 if entries(format) else 1))
    assert first == history.units[1].parts[0]


def entries(format: str) -> bool:
    """Whether results of one turn are entries of their own."""
    return format.startswith("openai")


@formats
def test_no_messages_are_none_and_not_all(format: str):
    history = index(format, [bash("a", "1", "a")])
    assert start_of_messages(history, 0) == len(history.parts)
    assert start_of_calls(history, 0) == len(history.parts)


@formats
@pytest.mark.parametrize(("count", "unit"), [(1, 3), (2, 2), (3, 2), (4, 1), (5, 0), (99, 0)])
def test_calls_made_together_are_not_parted(format: str, count: int, unit: int):
    together = [bash("b", "2", "b"), bash("c", "3", "c")]
    history = index(format, [bash("a", "1", "a")], together, [bash("d", "4", "d")])
    expected = 0 if unit == 0 else history.units[unit].parts[0]
    assert start_of_calls(history, count) == expected


@formats
def test_the_larger_of_both_counts(format: str):
    history = index(format, *([bash("a", "1", f"c{n}")] for n in range(4)))
    both = Policy(keep_messages=2, keep_calls=3)
    assert kept_from(history, both) == kept_from(history, Policy(keep_calls=3))
    assert kept_from(history, Policy()) is None


def test_an_empty_history_has_nothing_to_keep():
    assert start_of_messages(Index(), 8) == 0
    assert start_of_calls(Index(), 8) == 0


@formats
def test_what_is_kept_may_stand_in_the_way_of_a_budget_and_is_named(format: str):
    text = "\n".join(f"line {n} of what was printed here" for n in range(600))
    body = request(format, "go", *([bash(f"make {n}", text, f"c{n}")] for n in range(4)))
    policy = Policy(budget=8_000, keep_calls=4, eager=True)
    with pytest.raises(BudgetError, match="the latest messages and calls"):
        respool.compact(body, format=format, policy=policy, memo=None)
    met = respool.compact(body, format=format, policy=policy.replace(keep_calls=0), memo=None)
    assert met.report.tokens_after <= 8_000
