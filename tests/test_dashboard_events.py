"""What happened, as the dashboard is told: fetched again, circles, errors, fall-backs, breaks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from respool.proxy.compacting import noticing
from tests.dashboards import Dashboarded, dashboarded, only
from tests.formats import Exchange


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboarded]:
    """A proxy that a conversation of five requests went through."""
    with dashboarded(tmp_path_factory.mktemp("used")) as one:
        one.talk(5)
        yield one


class TestWhatHappened:
    def test_what_was_fetched_again(self, tmp_path: Path):
        source = "".join(f"def function_{n}(): return {n}\n" for n in range(200))
        read = {"tool": "Read", "args": {"file_path": "/w/a.py"}}
        steps = [
            [Exchange(source, id="call_0", **read)],
            [Exchange("done", id="call_1", args={"command": "ls"})],
            [Exchange(source, id="call_2", **read)],
        ]
        with dashboarded(tmp_path) as one:
            for end in (1, 2, 3):
                one.send(*steps[:end])
            found = [x for x in one.data("notable")["requests"] if x["refetched"]]
            (again,) = found[0]["refetched"]
            assert (again["tool"], again["target"], again["reason"]) == (
                "Read", "/w/a.py", "over_cap",
            )  # fmt: skip
            assert len(found) == 1
            assert one.data("overview")["totals"][-1]["refetched"] == 1
            assert one.data("conversations")["conversations"][0]["refetched"] == 1
            assert only(one)[-1]["refetched"] == [again]

    def test_circles(self, tmp_path: Path):
        same = [[Exchange("no change", id=f"call_{n}")] for n in range(4)]
        with dashboarded(tmp_path) as one:
            for end in range(1, 5):
                one.send(*same[:end])
            told = [x["loops"] for x in only(one)]
            assert told[:2] == [[], []]
            assert "was called 3 times with the same result" in told[2][0]
            assert one.data("overview")["totals"][-1]["loops"] == sum(map(len, told))

    def test_what_cannot_be_worked_out_costs_no_projection(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(noticing, "advice", lambda *_: 1 / 0)
        with dashboarded(tmp_path) as one:
            one.talk(3)
            assert {x["sent_as"] for x in only(one)} == {"projection"}
            assert only(one)[-1]["edited"] == 2

    def test_errors_and_fall_backs(self, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            steps, task = one.talk(2), "go on with make"
            one.statuses.append(529)
            one.send(*steps, task=task)
            one.send(*steps, task=task, headers=("x-respool-bypass: 1",))
            error, bypassed = one.data("notable")["requests"][1::-1]
            assert (error["status"], bypassed["fallback"]) == (529, "bypassed")
            (total,) = one.data("overview?range=month")["totals"]
            assert (total["errors"], total["fallbacks"]) == (1, 1)
            paid = [x["cost_after"] for x in only(one)]
            assert all(paid), "what was not compacted was paid for, too"
            assert only(one)[-1]["cost_before"] == only(one)[-1]["cost_after"]

    def test_what_goes_up_as_it_came_is_counted_as_the_others_are(self, tmp_path: Path):
        """Else the context would seem to shrink, or jump, where it only went on."""
        numbers = "".join(f"{n * 7919 % 10007} {n * 104729 % 10009}\n" for n in range(400))
        steps = [[Exchange(numbers, id=f"call_{n}")] for n in range(4)]
        with dashboarded(tmp_path) as one:
            for end in (1, 2, 3):
                one.send(*steps[:end])
            one.send(*steps, headers=("x-respool-bypass: 1",))
            sizes = [x["tokens_before"] for x in only(one)]
            assert only(one)[-1]["fallback"] == "bypassed"
        growth = [after - before for before, after in pairwise(sizes)]
        assert growth[-1] == pytest.approx(growth[0], rel=0.05)

    def test_prefix_breaks_have_causes(self, used: Dashboarded):
        causes = {one["prefix_break"] for one in used.data("notable")["requests"]}
        assert causes == {"over_cap"}
