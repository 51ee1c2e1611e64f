"""Rules and pairing: cases from the text of pi-dcp and its rules, which has none of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

import respool
from respool import Policy
from respool.edits import DropExchange, Offer
from respool.passes.view import View
from tests.busy_sessions import bash, done, edit, lines, read, write
from tests.formats import FORMATS, request, results
from tests.source_sessions import TEXT, A, B, compact, reasons, then

formats = pytest.mark.parametrize("format", FORMATS)
OLD, NEW = lines(1, 20, "warp"), lines(1, 20, "weft")
FAILED = "Exit code 1\n" + lines(1, 10) + "\nE   AssertionError: weave(3) is not 4\n1 failed"


@formats
@pytest.mark.parametrize("size", [20, 1])
def test_an_earlier_write_of_a_file_written_again_goes_with_its_result(format: str, size: int):
    first, second = lines(1, size, "warp"), lines(1, size, "weft")
    steps = [[write(A, first, "w1")], [write(A, second, "w2")], *then(10)]
    out = compact("pi-dcp", format, *steps)
    assert [(one.reason, type(one)) for one in out.report.edits] == [("superseded", DropExchange)]
    assert '"w1"' not in json.dumps(out.request)


@formats
@pytest.mark.parametrize(("after", "taken"), [(7, False), (8, True)])
def test_the_last_10_messages_stay_but_count(format: str, after: int, taken: bool):
    """The later write may be among the last 10; the earlier one goes when it no longer is."""
    steps = [[write(A, OLD, "w1")], [write(A, NEW, "w2")], *then(after)]
    assert (reasons(compact("pi-dcp", format, *steps)) == ["superseded"]) is taken


@formats
def test_a_write_that_comes_much_later_supersedes(format: str):
    steps = [[write(A, OLD, "w1")], *then(20), [write(A, NEW, "w2")], done()]
    assert reasons(compact("pi-dcp", format, *steps)) == ["superseded"]


@formats
def test_an_edit_is_not_a_superseding_write(format: str):
    steps = [[write(A, OLD, "w1")], [edit(A, "warp_3", NEW, "e1")], *then(12)]
    assert compact("pi-dcp", format, *steps).report.edits == ()


@formats
def test_a_resolved_error_goes_but_for_the_line_that_tells_it(format: str):
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
def test_an_error_that_is_still_open_stays(format: str):
    steps = [[bash("pytest -q", FAILED, "t1", error=True)], *then(12)]
    assert compact("pi-dcp", format, *steps).report.edits == ()


@formats
@pytest.mark.parametrize(("after", "taken"), [(9, False), (10, True)])
def test_duplicates_go_behind_the_last_10_messages(format: str, after: int, taken: bool):
    steps = [[bash("ls a", TEXT, "1")], [bash("ls b", TEXT, "2")], *then(after)]
    out = compact("pi-dcp", format, *steps)
    assert reasons(out) == (["identical"] if taken else [])


@formats
def test_duplicates_of_user_messages_stay(format: str):
    said = TEXT * 2
    out = compact("pi-dcp", format, said, *then(2), said, *then(12))
    assert out.report.edits == ()


@formats
def test_a_kept_result_protects_its_call_and_the_calls_beside_it_stay(format: str):
    """Part by part: of two calls in one message one goes, with its result; the other stays."""
    steps = [[write(A, OLD, "w1"), read(B, TEXT, "r1")], [write(A, NEW, "w2")], *then(10)]
    out = compact("pi-dcp", format, *steps)
    sent = json.dumps(out.request)
    assert reasons(out) == ["superseded"]
    assert '"w1"' not in sent
    assert '"r1"' in sent
    assert TEXT in results(format, out.request)


@formats
def test_protection_is_visible_in_the_outcome(format: str):
    body = request(format, "go", [write(A, OLD, "w1")], [write(A, NEW, "w2")], *then(4))
    plan = respool.plan(body, format=format, policy=Policy.preset("pi-dcp"), trace=True)
    assert plan.trace is not None
    kept = {one.reason for one in plan.trace if one.outcome == "protected"}
    assert kept == {"recent, kept as it is"}


@formats
def test_a_rule_that_throws_is_skipped_and_told(format: str):
    def broken(view: View, policy: Policy) -> Iterator[Offer]:
        raise LookupError("a rule of the user's")

    policy = Policy.preset("pi-dcp")
    policy = policy.replace(passes=(broken, *(policy.passes or ())))
    body = request(format, "go", [write(A, OLD, "w1")], [write(A, NEW, "w2")], *then(10))
    out = respool.compact(body, format=format, policy=policy, memo=None)
    assert reasons(out) == ["superseded"]
    assert out.report.failures == {"broken": "LookupError: a rule of the user's"}


@formats
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1,)])
def test_the_order_is_the_users_and_off_is_off(format: str, order: tuple[int, ...]):
    """Rules are asked in the order they are given; one that is left out is not asked."""
    asked: list[int] = []

    def rule(number: int) -> Callable[[View, Policy], Iterator[Offer]]:
        def rule_of_mine(view: View, policy: Policy) -> Iterator[Offer]:
            asked.append(number)
            yield from ()

        rule_of_mine.__name__ = f"rule_{number}"
        return rule_of_mine

    body = request(format, "go", [write(A, OLD, "w1")], [write(A, NEW, "w2")], *then(10))
    rules = [rule(number) for number in range(3)]
    policy = Policy.preset("pi-dcp").replace(passes=tuple(rules[number] for number in order))
    respool.compact(body, format=format, policy=policy, memo=None)
    times = len(asked) // len(order)
    assert times > 0
    assert asked == list(order) * times
    off = Policy.preset("pi-dcp").replace(passes=())
    assert respool.compact(body, format=format, policy=off).request is body
    some = Policy.preset("pi-dcp").replace(passes=("identical_results", "resolved_errors"))
    assert respool.compact(body, format=format, policy=some).request is body


@formats
def test_no_pruning_is_counted_twice(format: str):
    """What went as a whole, what was shortened, and both in one message: the sum is the saving."""
    steps = [
        [write(A, OLD, "w1"), bash("ls a", TEXT, "l1")],
        [bash("pytest -q", FAILED, "t1", error=True), bash("ls b", TEXT, "l2")],
        [write(A, NEW, "w2")],
        [bash("pytest -q", "3 passed", "t2")],
        *then(12),
    ]
    out = compact("pi-dcp", format, *steps)
    assert sorted(reasons(out)) == ["identical", "resolved", "superseded"]
    assert sum(one.saved for one in out.report.edits) == out.report.tokens_saved  # type: ignore[union-attr]
    twice = compact("pi-dcp", format, *steps)
    assert twice.report.tokens_saved == out.report.tokens_saved
