"""The branches of a conversation: a table of cases, and the law over trees of histories."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.dashboard.queries import assign_branches
from respool.store import RequestLineage
from tests.dashboard.support import LONG, dashboarded
from tests.support.formats import Exchange

# Requests as "history that it ended" "history that it goes on from"; "-" is none, or a failure.
CASES = {
    "one session": ("a- ba cb dc", "1111"),
    "two sessions that part with the first answer": ("a- a- ba ca db ec fd", "1112121"),
    "the second begins when the first has ended": ("a- ba cb a- da ed", "111122"),
    "a retry": ("a- ba ba cb", "1111"),
    "gone back to an earlier place, and on from there": ("a- ba cb db ed fc", "111221"),
    "three ways from one place": ("a- ba ca da ec fd", "112323"),
    "a failure, and then it goes well": ("a- ba -b cb", "1111"),
    "a failure beside another session": ("a- ba -a ca dc", "11122"),
    "an earlier history lost": ("a- ba xz yx", "1111"),
    "lost in the second branch": ("a- ba ca xz yx", "11222"),
    "written down before parents were": ("a- b- c- d-", "1111"),
    "nothing that was taken": ("-- -- --", "111"),
    "none": ("", ""),
}


def told(text: str) -> list[RequestLineage]:
    """Requests by the histories that they ended and go on from."""
    return [
        RequestLineage(f"r{n}", *(name.strip("-") for name in pair))
        for n, pair in enumerate(text.split())
    ]


@pytest.mark.parametrize("case", CASES)
def test_branches(case: str):
    text, expected = CASES[case]
    assert "".join(str(at) for at in assign_branches(told(text)).values()) == expected


@st.composite
def trees(draw: st.DrawFn) -> list[RequestLineage]:
    """A history that forks, each request after that which it goes on from; some are repeated."""
    parents = draw(st.lists(st.integers(0, 30), max_size=30))
    made = [RequestLineage("r0", "h0", "")]
    for n, at in enumerate(parents, 1):
        made.append(RequestLineage(f"r{n}", f"h{n}", made[at % n].prefix))
    again = draw(st.lists(st.sampled_from(made), max_size=5))
    return [*made, *(RequestLineage(f"again{n}", x.prefix, x.parent) for n, x in enumerate(again))]


@given(trees())
def test_each_branch_is_one_line_and_there_are_as_many_as_ends(requests: list[RequestLineage]):
    found = assign_branches(requests)
    at = {one.prefix: found[one.id] for one in requests}
    assert all(found[one.id] == at[one.prefix] for one in requests)
    followers = Counter(
        (one.parent, found[one.id]) for one in requests if not one.id.startswith("again")
    )
    inside = [
        count for (parent, branch), count in followers.items() if at.get(parent, branch) == branch
    ]
    assert set(inside) <= {1}
    ends = {one.prefix for one in requests} - {one.parent for one in requests}
    assert len(set(found.values())) == len(ends)
    assert set(found.values()) == set(range(1, len(ends) + 1))


@given(st.lists(st.tuples(st.sampled_from("-abcde"), st.sampled_from("-abcde")), max_size=20))
def test_whatever_is_recorded_every_request_has_a_branch(pairs: list[tuple[str, str]]):
    requests = told(" ".join("".join(pair) for pair in pairs))
    found = assign_branches(requests)
    assert list(found) == [one.id for one in requests]
    assert set(found.values()) == set(range(1, len(set(found.values())) + 1))


def test_two_sessions_with_the_same_opening_are_told_apart(tmp_path: Path):
    """One conversation by definition: what they open with is the same, and so is the key."""
    first, second = (
        [[Exchange(f"{name} {n} {LONG}", id=f"{name}_{n}")] for n in range(3)] for name in "ab"
    )
    with dashboarded(tmp_path) as one:
        for end in range(4):
            for steps in (first, second):
                one.send(*steps[:end], task="fix the tests")
        (conversation,) = one.data("conversations")["conversations"]
        requests = one.data(f"requests?conversation={conversation['name']}")["requests"]
        assert [x["branch"] for x in requests] == [1, 1, 1, 2, 1, 2, 1, 2]
        assert not {"prefix", "parent"} & requests[0].keys()
        later = f"requests?conversation={conversation['name']}&after={requests[5]['time']!r}"
        assert [x["branch"] for x in one.data(later)["requests"]] == [1, 2]
