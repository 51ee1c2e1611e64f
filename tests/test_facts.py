"""Facts: checks, merging and serialization."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.errors import PolicyError
from respool.facts import BREAKPOINT_MODES, Facts

hashes = st.frozensets(st.binary(min_size=1, max_size=4).map(bytes.hex), max_size=4)
prefixes = st.sampled_from(["0a", "0b", "1c", "ff00"])
windows = st.dictionaries(prefixes, st.integers(1, 3).map(lambda few: few * 100_000))
SETS = ("skipped", "left_alone", "cold", "changed")
modes = st.dictionaries(prefixes, st.sampled_from(BREAKPOINT_MODES))
facts = st.builds(Facts, **dict.fromkeys(SETS, hashes), windows=windows, breakpoints=modes)


def test_nothing_is_known_by_default():
    assert Facts().to_dict() == {**{kind: [] for kind in SETS}, "windows": {}}
    assert Facts.from_dict({}) == Facts()


@given(facts, facts, facts)
def test_merging_is_a_union(one: Facts, other: Facts, third: Facts):
    for kind in SETS:
        assert getattr(one.merge(other), kind) == getattr(one, kind) | getattr(other, kind)
    assert one.merge(other).merge(third) == one.merge(other.merge(third))
    assert one.merge(one) == one.merge(Facts()) == Facts().merge(one) == one


@given(facts, facts)
def test_of_two_windows_the_first_counts(one: Facts, other: Facts):
    known, merged = dict(one.windows), dict(one.merge(other).windows)
    assert merged == dict(other.windows) | known
    assert merged == dict(other.merge(one).windows) | known


@given(facts, prefixes)
def test_a_window_is_found_where_it_was_named(known: Facts, prefix: str):
    assert known.window_at(prefix) == dict(known.windows).get(prefix)
    assert known.window_at(prefix + "0") is None


@given(facts, facts, prefixes)
def test_of_two_ways_to_mark_the_first_counts(one: Facts, other: Facts, prefix: str):
    merged = one.merge(other).breakpoint_mode_at(prefix)
    assert merged == (one.breakpoint_mode_at(prefix) or other.breakpoint_mode_at(prefix))
    assert one.breakpoint_mode_at(prefix) == dict(one.breakpoints).get(prefix)
    assert one.breakpoint_mode_at(prefix + "0") is None


@given(facts, facts)
def test_what_differs_is_named(one: Facts, other: Facts):
    found = one.differing_prefixes(other)
    assert found == other.differing_prefixes(one)
    assert (not found) == (one == other)
    for prefix in found:
        assert _at(one, prefix) != _at(other, prefix)
    for prefix in {entry for kind in SETS for entry in getattr(one, kind)} - found:
        assert _at(one, prefix) == _at(other, prefix)


def _at(known: Facts, prefix: str) -> list[object]:
    sets = (prefix in getattr(known, kind) for kind in SETS)
    return [*sets, known.window_at(prefix), known.breakpoint_mode_at(prefix)]


@given(facts)
def test_what_is_written_is_read_back(known: Facts):
    assert Facts.from_dict(json.loads(json.dumps(known.to_dict()))) == known


@given(facts, facts)
def test_fingerprints_tell_facts_apart(one: Facts, other: Facts):
    assert (one.fingerprint() == other.fingerprint()) == (one == other)


def test_the_fingerprint_is_the_same_in_every_process():
    known = Facts(skipped=frozenset({"0b", "0a"}), left_alone=frozenset({"ff"}))
    assert known.fingerprint().hex() == "cd0e5316d882f69e6cff2c851dda2866"


def test_any_set_is_frozen():
    known = Facts(skipped={"0a"})  # pyright: ignore[reportArgumentType]
    assert known == Facts(skipped=frozenset({"0a"}))
    assert hash(known) == hash(Facts(skipped=frozenset({"0a"})))
    given = {"0b": 2, "0a": 1}
    told = Facts(windows=given)  # pyright: ignore[reportArgumentType]
    given["0c"] = 3
    assert told.windows == (("0a", 1), ("0b", 2))
    assert hash(told) == hash(Facts(windows=(("0b", 2), ("0a", 1), ("0a", 9))))
    with pytest.raises(AttributeError):
        known.skipped = frozenset()  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"skiped": []}, "facts: unknown key 'skiped' (value []); did you mean skipped?"),
        ({3: []}, "unknown key '3'"),
        ({"skipped": "0a"}, "facts: skipped: '0a' is not allowed; allowed: a list of"),
        ({"skipped": {"0a": 1}}, "skipped: {'0a': 1}"),
        ({"skipped": None}, "skipped: None"),
        ({"left_alone": [1]}, "left_alone: 1 is not allowed; allowed: prefix hashes"),
        ({"left_alone": ["0A"]}, "left_alone: '0A'"),
        ({"left_alone": ["0a\n"]}, "left_alone: '0a\\n'"),
        ({"left_alone": [""]}, "left_alone: ''"),
        ({"cold": ["x"]}, "facts: cold: 'x' is not allowed"),
        ({"changed": 7}, "facts: changed: 7 is not allowed"),
        ({"windows": {"0A": 5}}, "facts: windows: '0A' is not allowed; allowed: prefix hashes"),
        ({"windows": {"0a": 0}}, "facts: windows.0a: 0 is not allowed; allowed: a whole number"),
        ({"windows": {"0a": "9"}}, "windows.0a: '9' is not allowed"),
        ({"windows": {"0a": True}}, "windows.0a: True is not allowed"),
        (
            {"breakpoints": {"0a": "2h"}},
            "facts: breakpoints.0a: '2h' is not allowed; allowed: none, 5m",
        ),
        (
            {"breakpoints": {"0A": "5m"}},
            "facts: breakpoints: '0A' is not allowed; allowed: prefix hashes",
        ),
        (
            {"breakpoints": 7},
            "facts: breakpoints: 7 is not allowed; allowed: an object from prefix",
        ),
        ({"windows": 7}, "facts: windows: 7 is not allowed; allowed: an object from prefix"),
        ({"windows": [["0a"]]}, "facts: windows: [['0a']] is not allowed"),
        ([], "facts: [] is not allowed; allowed: an object with skipped, left_alone, cold"),
        (None, "facts: None"),
    ],
)
def test_anything_else_is_refused(data: Any, said: str):
    with pytest.raises(PolicyError) as error:
        Facts.from_dict(data)
    assert said in str(error.value)
