"""Facts that wait for the store, seen by all processes that serve one port."""

from __future__ import annotations

import multiprocessing
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from respool.facts import Facts
from respool.proxy.compacting import board
from respool.proxy.compacting.board import Board, Memory, Waiting, memory_for
from respool.proxy.compacting.conversations import Conversation
from respool.proxy.compacting.keeping import Keeping
from respool.store import SQLiteStore
from tests.store import test_sqlite

ALL = test_sqlite.TestFacts.ALL


def skipped(number: int) -> Facts:
    return Facts(skipped=frozenset({f"{number:032x}"}))


def test_what_one_puts_there_all_others_read():
    memory = memory_for(3)
    one, other, third = (Board(memory, row) for row in range(3))
    assert one.facts("c") is None
    one.put({"c": Waiting("owner", ALL), "d": Waiting("owner", skipped(1))})
    third.put({"d": Waiting("owner", skipped(2))})
    assert other.facts("c") == ALL
    assert other.facts("d") == skipped(1).merge(skipped(2))
    assert one.facts("c") is None  # it knows its own
    assert (
        one.own()
        == Board(memory, 0).own()
        == {
            "c": Waiting("owner", ALL),
            "d": Waiting("owner", skipped(1)),
        }
    )
    one.put({})
    assert other.facts("c") is None
    assert other.facts("d") == skipped(2)


def test_what_there_is_no_room_for_is_the_oldest():
    memory = memory_for(2)
    many = {f"{number:032x}": Waiting("owner", skipped(number)) for number in range(2_000)}
    Board(memory, 0).put(many)
    held = Board(memory, 0).own()
    assert 300 < len(held) < len(many)
    assert held.keys() == set(list(many)[-len(held) :])
    assert Board(memory, 1).own() == {}


def put_many(memory: Memory, row: int) -> None:
    chance, one = random.Random(row), Board(memory, row)
    for number in range(1_500):
        names = [f"c{at}" for at in range(chance.randrange(60))]
        one.put({name: Waiting(str(number), skipped(number)) for name in names})
    one.put({"last": Waiting(str(row), ALL)})


def test_what_is_read_while_it_is_written_is_whole():
    memory = memory_for(2)
    writer = multiprocessing.get_context("spawn").Process(target=put_many, args=(memory, 0))
    writer.start()
    reader = Board(memory, 1)
    while reader.facts("last") != ALL:
        held = reader._read(0)
        assert len({one.owner for one in held.values()}) < 2
        assert writer.is_alive() or reader.facts("last") == ALL
    writer.join()
    assert writer.exitcode == 0


def test_what_is_never_whole_is_what_it_was():
    memory = memory_for(2)
    one, other = Board(memory, 0), Board(memory, 1)
    one.put({"c": Waiting("owner", ALL)})
    assert other.facts("c") == ALL
    memory[: board._HEAD] = b"x" * board._HEAD
    assert other.facts("c") == ALL


@pytest.fixture
def store(tmp_path: Path) -> SQLiteStore:
    made = SQLiteStore(tmp_path / "respool.db", wait=0.01)
    made.salt()
    return made


def test_who_takes_a_dead_ones_place_tells_the_store(store: SQLiteStore):
    memory = memory_for(2)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as lock:
        lock.execute("BEGIN IMMEDIATE")
        dead = Keeping(store, board=Board(memory, 0))
        dead._closing.set()  # nothing of it runs on
        dead.note(Conversation("c", "owner"), ALL)
        beside = Keeping(store, board=Board(memory, 1))
        known = Conversation("c", "owner")
        beside.read_up(known)
        assert known.facts == known.owed == ALL
        after = Keeping(store, board=Board(memory, 0))
        assert after.owing("c") is not None
        lock.execute("ROLLBACK")
    after.close()
    beside.close()
    assert store.facts("c") == ALL
    assert Board(memory, 0).own() == {}
    store.close()


def test_what_must_hold_at_once_is_seen_before_the_store_is_told(store: SQLiteStore):
    memory = memory_for(2)
    one, other = (Keeping(store, board=Board(memory, row)) for row in range(2))
    known, elsewhere = Conversation("c", "owner"), Conversation("c", "owner")
    one.hold(known, ALL)
    assert store.facts("c") == Facts()
    other.read_up(elsewhere)
    assert elsewhere.facts == ALL
    one.settle(known)
    assert store.facts("c") == ALL
    assert Board(memory, 0).own() == {}
    one.close()
    other.close()
    store.close()


def test_who_could_not_write_still_reads_what_others_have_written(store: SQLiteStore):
    """A lock is over, one process has not found out yet, and another has told the store."""
    memory = memory_for(2)
    one, other = (Keeping(store, board=Board(memory, row)) for row in range(2))
    with closing(sqlite3.connect(store.path, isolation_level=None)) as lock:
        lock.execute("BEGIN IMMEDIATE")
        other.note(Conversation("d", "owner"), skipped(1))
        lock.execute("ROLLBACK")
    one.note(Conversation("c", "owner"), ALL)
    elsewhere = Conversation("c", "owner")
    other.read_up(elsewhere)
    assert elsewhere.facts == ALL
    one.close()
    other.close()
    store.close()


class Killed(Exception):
    """The process is gone in the middle of what it was doing."""


class Torn:
    """Memory of one that is killed when half of what it writes is written."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def __len__(self) -> int:
        return len(self.memory)

    def __getitem__(self, at: slice) -> bytes:
        return self.memory[at]

    def __setitem__(self, at: slice, data: bytes) -> None:
        half = len(data) // 2
        self.memory[at.start : at.start + half] = data[:half]
        raise Killed


@pytest.mark.parametrize("puts", [1, 2, 3])
def test_one_that_is_killed_while_it_writes_leaves_what_stood_there(puts: int):
    memory = memory_for(2)
    reader = Board(memory, 1)
    for number in range(puts):
        Board(memory, 0).put({"c": Waiting("owner", skipped(number))})
        assert reader.facts("c") == skipped(number)
    with pytest.raises(Killed):
        Board(Torn(memory), 0).put({"c": Waiting("owner", ALL), "d": Waiting("owner", ALL)})
    left = {"c": Waiting("owner", skipped(puts - 1))}
    assert Board(memory, 0).own() == left
    for one in (reader, Board(memory, 1)):
        assert (one.facts("c"), one.facts("d")) == (skipped(puts - 1), None)
    Board(memory, 0).put({"d": Waiting("owner", ALL)})
    assert (reader.facts("c"), reader.facts("d")) == (None, ALL)


def test_one_with_too_many_facts_takes_the_room_of_no_other():
    memory = memory_for(1)
    many = Facts(skipped=frozenset(f"{number:032x}" for number in range(9_000)))
    some = {f"c{number}": Waiting("owner", skipped(number)) for number in range(50)}
    Board(memory, 0).put({**some, "many": Waiting("owner", many), "last": Waiting("owner", ALL)})
    assert Board(memory, 0).own() == {**some, "last": Waiting("owner", ALL)}
