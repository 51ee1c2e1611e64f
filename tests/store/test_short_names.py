"""Short names: a unique beginning is enough, and nothing is guessed."""

from __future__ import annotations

import pytest

from respool.store import SQLStore, UnclearName, choose_name, resolve_name
from tests.store.support import OTHER, OWNER, by_ref

NAMES = ["aaaa1111", "aaaa2222", "aaab3333", "aaaa"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("aaaa1111", "aaaa1111"),
        ("aaaa1", "aaaa1111"),
        ("aaab", "aaab3333"),
        ("aaaa", "aaaa"),  # exactly one of them, though others begin so
        ("zzzz", "zzzz"),  # none: whoever asks says so
        ("", ""),
    ],
)
def test_a_unique_beginning_is_enough(given: str, meant: str):
    found = NAMES if given else []
    assert choose_name("conversation", given, found) == meant


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("aa", "'aa' is too short for a conversation: give 4 characters or more."),
        ("aaab", ""),
        ("bbbb", "'bbbb' stands for several conversations: bbbb0, bbbb1, bbbb2."),
    ],
)
def test_what_is_unclear_is_refused(given: str, said: str):
    names = [*NAMES, "bbbb0", "bbbb1", "bbbb2"]
    if not said:
        assert choose_name("conversation", given, names) == "aaab3333"
        return
    with pytest.raises(UnclearName) as error:
        choose_name("conversation", given, names)
    assert str(error.value) == said


def test_a_store_finds_names_of_each_kind(store: SQLStore):
    store.keep(OWNER, "5f0c11", by_ref("one"))
    store.keep(OTHER, "5f0c22", by_ref("two"))
    (ref,) = by_ref("one")
    assert resolve_name(store, "reference", ref[:6]) == ref
    assert resolve_name(store, "conversation", "5f0c1") == "5f0c11"
    assert resolve_name(store, "owner", OWNER[:4]) == OWNER
    assert resolve_name(store, "conversation", "5f0c%") == "5f0c%"  # no pattern
    with pytest.raises(UnclearName, match="5f0c11, 5f0c22"):
        resolve_name(store, "conversation", "5f0c")
    many = [f"9999{number:03}" for number in range(30)]
    for name in many:
        store.keep(OWNER, name, by_ref(name))
    with pytest.raises(UnclearName, match=r"9999007 and more\.$"):
        resolve_name(store, "conversation", "9999")
