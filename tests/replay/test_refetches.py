"""Refetches in the replay: reads repeated after a cut, and while a copy was present."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from respool import Policy
from respool.cli.replay_screen import show_replay
from respool.history.repeat_rates import RepeatCell, excess_refetch
from respool.replay.page import render_page
from respool.replay.policies import ProjectionSender, sender_factory
from respool.replay.result import RefetchCounts
from respool.replay.score import score_policy
from respool.replay.totals import sum_up
from tests.history.test_refetches import NOTE, STUB, edit, read, steps_of
from tests.replay.results import sample
from tests.replay.support import recording_of
from tests.support.formats import FIELD, FORMATS, request

formats = pytest.mark.parametrize("format", FORMATS)
DID = [
    read("a"), NOTE, read("a"), NOTE, read("a"), edit("a"), read("a"), NOTE, read("b"), NOTE,
    read("b"), NOTE,
]  # fmt: skip
# The first "a" and the first "b" were cut when they were read again; the second "a" stood.
FOUND = (2, 1)


def score_of(format: str, policy: Policy) -> Any:
    recording = recording_of(format, request(format, "go", *steps_of(DID))[FIELD[format]])
    return score_policy(recording, ProjectionSender(recording, policy), "stub")


@formats
def test_what_is_read_again_is_counted(format: str) -> None:
    again = score_of(format, STUB).again
    assert (again.after_cut, again.standing) == FOUND
    assert again.tokens > 2 * 60 * 8
    assert again.cut + again.whole == len(DID)
    assert again.cut >= 3


@formats
def test_with_nothing_cut_all_of_it_stood(format: str) -> None:
    again = score_of(format, STUB.replace(passes=())).again
    assert (again.after_cut, again.tokens, again.standing) == (0, 0, sum(FOUND))
    assert (again.cut, again.whole) == (0, len(DID))


@pytest.mark.parametrize("name", ["none", "mask-10", "clear-100k", "oracle", "floor"])
def test_policies_that_are_not_respools_do_not_look(name: str) -> None:
    recording = recording_of("anthropic", request("anthropic", "go", *steps_of(DID))["messages"])
    assert score_policy(recording, sender_factory(name)(recording), name).again is None


def replayed(again: RefetchCounts | None) -> Any:
    """A replay of four sessions, of which one policy says this."""
    made = sample(4)
    sessions = [
        replace(
            one,
            scores=tuple(
                replace(s, again=again if s.policy == "safe" else None) for s in one.scores
            ),
        )
        for one in made.sessions
    ]
    return sum_up(sessions, (), (), counter="o200k", policies=made.policies, version="0")


def test_sessions_are_summed() -> None:
    totals = {one.policy: one.again for one in replayed(RefetchCounts(2, 300, 5, 10, 40)).totals}
    assert totals["safe"] == RefetchCounts(8, 1_200, 20, 40, 160)
    assert all(again is None for policy, again in totals.items() if policy != "safe")


def test_the_screen_tells_it_beside_what_stood(capsys: pytest.CaptureFixture[str]) -> None:
    replay = replayed(RefetchCounts(2, 300, 5, 10, 40))
    show_replay(replay, detail=True)
    said = " ".join(capsys.readouterr().out.split())
    rate = 100 * 8 / replay.requests
    assert f"Read again after a cut by safe: 8 ({rate:.2f} per 100 requests), 1.2k tokens" in said
    assert "20.0 % of the results it cut" in said
    assert f"While a copy stood: 20 ({100 * 20 / replay.requests:.2f} per 100 requests)" in said
    assert "12.5 % of the others" in said
    assert "may have asked without the cut" in said
    assert "an excess of" not in said  # nothing was counted by kind and age


def test_the_screen_tells_the_excess(capsys: pytest.CaptureFixture[str]) -> None:
    cells = (RepeatCell("read", 2, 100, 9, 200, 10), RepeatCell("run", 0, 5, 1, 0, 0))
    replay = replayed(RefetchCounts(2, 300, 5, 10, 40, cells))
    show_replay(replay, detail=True)
    said = " ".join(capsys.readouterr().out.split())
    assert "that would be 20.0 times in place of 36: an excess of +16.0 (+2.7 to +29.3)." in said
    assert "Only requests through the proxy show that." in said


@formats
def test_results_are_counted_by_kind_and_age_once_per_request(format: str) -> None:
    again = score_of(format, STUB).again
    assert sum(cell.cut_again for cell in again.cells) == again.after_cut
    assert sum(cell.whole_again for cell in again.cells) == again.standing
    # The n-th request sends n results; the edit is none that could be repeated.
    sent = sum(range(1, len(DID) + 1)) - (len(DID) - 5)
    assert sum(cell.cut + cell.whole for cell in again.cells) == sent
    bare = score_of(format, STUB.replace(passes=())).again.cells
    assert sum(cell.whole for cell in bare) == sent
    assert excess_refetch(bare).after_cut == 0


def test_the_screen_says_nothing_where_nobody_looked(capsys: pytest.CaptureFixture[str]) -> None:
    show_replay(replayed(None), detail=True)
    assert "Read again" not in capsys.readouterr().out


def test_the_screen_says_nothing_where_nothing_was_cut(capsys: pytest.CaptureFixture[str]) -> None:
    show_replay(replayed(RefetchCounts(0, 0, 5, 0, 40)), detail=True)
    assert "Read again" not in capsys.readouterr().out


def test_the_page_has_it() -> None:
    shown = render_page(replayed(RefetchCounts(2, 300, 5, 10, 40)))
    assert '"again":{"after_cut":8,"tokens":1200,"standing":20,"cut":40,"whole":160' in shown
    assert "Read again after a cut" in shown
