"""The store in memory: who may read, what goes first, which facts win."""

from __future__ import annotations

from respool import Facts
from respool.store import MemoryStore


def test_only_owners_read() -> None:
    store = MemoryStore()
    store.keep("me", "c", {"a": "one"})
    assert store.original("a", "me") == store.original("a", None) == "one"
    assert store.original("a", "you") is None
    assert store.readable_refs(["a", "b"], "me") == {"a"}
    assert store.readable_refs(["a"], "you") == frozenset()
    store.keep("you", "d", {"a": "one"})
    assert store.original("a", "you") == "one"


def test_the_oldest_go_and_the_last_stays() -> None:
    store = MemoryStore(max_chars=10)
    store.keep("", "c", {"a": "12345", "b": "12345"})
    store.keep("", "c", {"a": "12345"})  # used again
    store.keep("", "c", {"d": "1"})
    assert store.readable_refs(["a", "b", "d"], None) == {"a", "d"}
    store.keep("", "c", {"e": "x" * 50})
    assert store.original("e", None) == "x" * 50


def test_the_first_writer_of_a_fact_wins() -> None:
    store = MemoryStore()
    store.add_facts("c", Facts(windows=(("0a", 1_000),)))
    store.add_facts("c", Facts(windows=(("0a", 2_000),), cold=frozenset({"0b"})))
    assert store.facts("c") == Facts(windows=(("0a", 1_000),), cold=frozenset({"0b"}))
    assert store.facts("d") == Facts()
