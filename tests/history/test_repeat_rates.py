"""Excess refetch: arithmetic over results that were cut and whole."""

from __future__ import annotations

import pytest

from respool.history.repeat_rates import (
    MAX_AGES,
    ExcessRefetch,
    RepeatCell,
    add_cells,
    excess_refetch,
    group_of,
)


def test_ages_are_grouped():
    assert [group_of(age) for age in (0, 1, 2, 3, 5, 6, 20, 21, 50)] == [0, 1, 1, 2, 2, 3, 4, 5, 5]
    assert group_of(MAX_AGES[-1] + 1) is None


def test_what_is_cut_as_often_as_what_stands_has_no_excess():
    cells = [
        RepeatCell("read", 1, cut=1_000, cut_again=50, whole=2_000, whole_again=100),
        RepeatCell("run", 4, cut=300, cut_again=3, whole=100, whole_again=1),
    ]
    found = excess_refetch(cells)
    assert found.excess == pytest.approx(0)
    assert found.interval[0] < 0 < found.interval[1]


def test_kinds_and_ages_are_matched():
    # Reads are repeated ten times as often as runs, and mostly runs are cut.
    whole = RepeatCell("read", 1, whole=1_000, whole_again=100)
    runs = RepeatCell("run", 1, cut=1_000, cut_again=10, whole=100, whole_again=1)
    found = excess_refetch([whole, runs])
    assert (found.after_cut, found.expected) == (10, 10.0)
    crude = 10 - 1_000 * 101 / 1_100
    assert crude < -80  # without the match it would seem that a cut prevents refetches


def test_what_has_no_match_is_left_out_and_counted():
    cells = [RepeatCell("search", 5, cut=7, cut_again=2), RepeatCell("read", 5, whole=3)]
    assert excess_refetch(cells) == ExcessRefetch(unmatched=7)


def test_an_excess_that_is_more_than_noise_shows():
    cell = RepeatCell("read", 2, cut=2_000, cut_again=120, whole=4_000, whole_again=80)
    low, high = excess_refetch([cell]).interval
    assert 0 < low < 80 < high


def test_cells_are_added_by_kind_and_age():
    one, other = RepeatCell("run", 1, 1, 2, 3, 4), RepeatCell("run", 2, 5, 6, 7, 8)
    assert add_cells([one, other, one]) == (RepeatCell("run", 1, 2, 4, 6, 8), other)
