"""A table runs every case as one test, and names those that fail."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import rows_of, run_rows

SEEN: list[int] = []


def marks_of(test: Callable[..., Any]) -> list[pytest.Mark]:
    return test.pytestmark  # type: ignore[attr-defined]


@pytest.mark.parametrize("letter", ["x", pytest.param("y", id="why"), "z"])
@pytest.mark.parametrize(("word", "number"), [("a", 1), ("b", 2)], ids=["one", "two"])
def table(letter: str, word: str, number: int) -> None:
    assert (word, letter) != ("b", "y"), "planted"
    if word == "a":
        pytest.fail("planted, too")


def test_every_case_runs_and_those_that_fail_are_named() -> None:
    rows = rows_of(table, marks_of(table))
    assert rows is not None
    seen: list[tuple[str, int, str]] = []

    def noted(letter: str, word: str, number: int) -> None:
        seen.append((word, number, letter))
        table(letter, word, number)

    with pytest.raises(BaseExceptionGroup) as failure:
        run_rows(noted, rows)
    assert sorted(seen) == [(word, n, one) for word, n in (("a", 1), ("b", 2)) for one in "xyz"]
    assert len(failure.value.exceptions) == 4
    told = str(failure.value)
    assert "4 of 6 cases failed" in told
    assert all(name in told for name in ("x-one", "why-one", "z-one", "why-two"))
    assert "x-two" not in told


def test_a_table_of_skips_is_skipped() -> None:
    @pytest.mark.parametrize("number", range(6))
    def skips(number: int) -> None:
        if number < limit:
            pytest.skip("not here")

    rows = rows_of(skips, marks_of(skips))
    assert rows is not None
    limit = 5
    run_rows(skips, rows)
    limit = 6
    with pytest.raises(pytest.skip.Exception):
        run_rows(skips, rows)


def test_what_is_no_table() -> None:
    six = pytest.mark.parametrize("number", range(6))

    def takes_more(number: int, tmp_path: int) -> None: ...
    def plain(number: int) -> None: ...

    @given(st.integers())
    def drawn(number: int) -> None: ...

    marked = pytest.param(5, marks=pytest.mark.slow)
    assert rows_of(plain, [six.mark]) is not None
    for test, marks in (
        (takes_more, [six]),
        (drawn, [six]),
        (plain, []),
        (plain, [six, pytest.mark.cases]),
        (plain, [six, pytest.mark.usefixtures("tmp_path")]),
        (plain, [pytest.mark.parametrize("number", range(5))]),
        (plain, [pytest.mark.parametrize("number", range(6), indirect=True)]),
        (plain, [pytest.mark.parametrize("number", [*range(5), marked])]),
    ):
        assert rows_of(test, [one.mark for one in marks]) is None


@pytest.mark.parametrize("number", range(6))
def test_a_table_is_one_test_here(number: int) -> None:
    SEEN.append(number)


def test_it_ran_as_one(request: pytest.FixtureRequest) -> None:
    own = [item.name for item in request.session.items if item.path == request.path]
    assert ("test_a_table_is_one_test_here[6 cases]" in own) != request.config.option.cases
    if "PYTEST_XDIST_WORKER" not in os.environ and len(own) > 1:
        assert [*range(6)] == SEEN
