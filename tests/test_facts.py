"""Facts: merged as a union, written and read exactly, refused when they are something else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import PolicyError
from clew.facts import Facts

hashes = st.frozensets(st.binary(min_size=1, max_size=4).map(bytes.hex), max_size=4)
facts = st.builds(Facts, skipped=hashes, left_alone=hashes)


def test_nothing_is_known_by_default():
    assert Facts().to_dict() == {"skipped": [], "left_alone": []}
    assert Facts.from_dict({}) == Facts()


@given(facts, facts, facts)
def test_merging_is_a_union(one: Facts, other: Facts, third: Facts):
    assert one.merge(other).skipped == one.skipped | other.skipped
    assert one.merge(other).left_alone == one.left_alone | other.left_alone
    assert one.merge(other) == other.merge(one)
    assert one.merge(other).merge(third) == one.merge(other.merge(third))
    assert one.merge(one) == one.merge(Facts()) == one


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
        ([], "facts: [] is not allowed; allowed: an object with skipped and left_alone"),
        (None, "facts: None"),
    ],
)
def test_anything_else_is_refused(data: Any, said: str):
    with pytest.raises(PolicyError) as error:
        Facts.from_dict(data)
    assert said in str(error.value)
