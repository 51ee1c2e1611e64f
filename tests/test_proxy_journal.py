"""What providers took of late, seen by all processes that serve one port."""

from __future__ import annotations

import multiprocessing
from multiprocessing import synchronize
from pathlib import Path
from threading import Event, Thread

from respool.proxy.compacting import journal
from respool.proxy.compacting.conversations import Conversation
from respool.proxy.compacting.journal import Journal, Ring, Taken, ring_for
from respool.proxy.compacting.keeping import Keeping
from respool.store import ParentRequest, SQLiteStore
from tests.proxying import SOON


def taken(number: int, conversation: str = "c", model: str = "m") -> Taken:
    latest = ParentRequest(float(number), f"{model} tools", "projection", 10 * number, number)
    return Taken(conversation, f"{number:032x}", f"{number - 1:032x}", latest, number % 2 == 1)


def test_what_one_notes_all_others_read_once():
    ring = ring_for(3)
    one, other, third = (Journal(ring, row) for row in range(3))
    one.note(taken(1))
    third.note(taken(2))
    third.note(taken(3, "d"))
    assert other.of("c") == [taken(1), taken(2)]
    assert other.of("c") == []
    one.note(taken(4))
    assert other.of("c") == [taken(4)]
    assert other.of("d") == [taken(3, "d")]
    assert third.of("c") == [taken(1), taken(4), taken(2)]


def test_who_takes_a_dead_ones_place_reads_what_it_had_and_goes_on_behind_it():
    ring = ring_for(2)
    Journal(ring, 0).note(taken(1))
    after = Journal(ring, 0)
    after.note(taken(2))
    assert after.of("c") == [taken(1), taken(2)]
    assert Journal(ring, 1).of("c") == [taken(1), taken(2)]


def test_who_reads_seldom_gets_the_latest():
    ring = ring_for(2)
    writer, reader = Journal(ring, 0), Journal(ring, 1)
    count = 3 * journal._SLOTS + 7
    for number in range(1, count + 1):
        writer.note(taken(number, f"c{number % 16}"))
    for at in range(16):
        latest = range(count + 1 - journal._SLOTS, count + 1)
        assert reader.of(f"c{at}") == [taken(n, f"c{at}") for n in latest if n % 16 == at]


def test_what_is_counted_before_it_can_be_seen_is_read_later():
    """As may happen where a processor shows what another one wrote in its own order."""
    ring = ring_for(2)
    writer, reader = Journal(ring, 0), Journal(ring, 1)
    writer.note(taken(1))
    at, size = journal._place(0, 1), journal._SLOT
    writer.note(taken(2))
    hidden = ring[at : at + size]
    ring[at : at + size] = bytes(size)
    writer.note(taken(3))
    assert reader.of("c") == [taken(1)]
    assert reader.of("c") == []
    ring[at : at + size] = hidden
    assert reader.of("c") == [taken(2), taken(3)]


def test_conversations_that_nobody_asks_for_are_not_held_for_ever():
    ring = ring_for(2)
    writer, reader = Journal(ring, 0), Journal(ring, 1)
    for number in range(1, journal._MOST_HELD + 2):
        writer.note(taken(number, f"c{number}"))
        if number % journal._SLOTS == 0:
            reader.of("another")
    assert reader.of("c1") == []
    assert len(reader._held) == journal._MOST_HELD
    assert reader.of("c2") == [taken(2, "c2")]


def test_what_is_too_long_for_its_place_harms_nobody():
    ring = ring_for(2)
    writer, reader = Journal(ring, 0), Journal(ring, 1)
    longest = journal._SLOT - journal._HEAD - len(journal._encode(taken(1, model="")))
    for model in ("m" * (longest - 8), "m" * longest * 2, "m"):
        writer.note(taken(1, model=model))
    assert [len(one.latest.terms) for one in reader.of("c")] == [longest - 2, 7]


def write_on(ring: Ring, enough: synchronize.Event) -> None:
    """Note one after another until it is enough."""
    one, number = Journal(ring, 0), 0
    while not enough.is_set():
        for _ in range(100):
            number += 1
            one.note(taken(number, model="m" * (number % 97)))


def test_what_is_read_while_it_is_written_is_whole():
    spawn = multiprocessing.get_context("spawn")
    ring, enough = ring_for(2), spawn.Event()
    writer = spawn.Process(target=write_on, args=(ring, enough))
    writer.start()
    try:
        reader, last, read = Journal(ring, 1), 0, 0
        while read < 20 * journal._SLOTS:
            assert writer.is_alive()
            for one in reader.of("c"):
                number = one.latest.epochs
                assert one == taken(number, model="m" * (number % 97))
                assert number > last
                last, read = number, read + 1
    finally:
        enough.set()
        writer.join()
    assert writer.exitcode == 0


def test_another_process_knows_what_was_taken_before_the_store_does(tmp_path: Path):
    ring = ring_for(2)
    store = SQLiteStore(tmp_path / "respool.db")
    one, other = (Keeping(store, journal=Journal(ring, row)) for row in range(2))
    here, there = Conversation("c", "owner", edited=True), Conversation("c", "owner")
    for number in (1, 2):
        told = taken(number)
        one.took(here, told.prefix, told.latest, told.parent)
    assert other.look_up(there, [taken(2).prefix])
    assert there.sent == here.sent
    assert there.edited
    assert there.was_answered(taken(1).prefix)
    for keeping in (one, other):
        keeping.close()
    store.close()


def test_a_conversation_that_nobody_asks_for_is_not_held_for_ever_longer():
    """One process may have a conversation to itself, for months; the others hear of it, too."""
    ring = ring_for(2)
    writer, reader = Journal(ring, 0), Journal(ring, 1)
    for number in range(1, 1_001):
        writer.note(taken(number))
        reader.of("another")
    latest = range(1_001 - journal._MOST_OF_ONE, 1_001)
    assert reader.of("c") == [taken(number) for number in latest]


def test_two_requests_at_once_both_know_what_was_taken(tmp_path: Path):
    """While one is being told, another must not go on as if there were nothing."""
    ring = ring_for(2)
    store = SQLiteStore(tmp_path / "respool.db")
    one, other = (Keeping(store, journal=Journal(ring, row)) for row in range(2))
    told = taken(1)
    one.took(Conversation("c", "owner"), told.prefix, told.latest, told.parent)
    asked, go, knows = Event(), Event(), list[bool]()

    class Slow(Conversation):
        def note_sent(self, prefix: str, latest: ParentRequest, parent: str = "") -> None:
            asked.set()
            go.wait(SOON)
            super().note_sent(prefix, latest, parent)

    there = Slow("c", "owner")

    def ask() -> None:
        other.look_up(there, [told.prefix])
        knows.append(there.was_answered(told.prefix))

    threads = [Thread(target=ask) for _ in range(2)]
    threads[0].start()
    assert asked.wait(SOON)
    threads[1].start()
    threads[1].join(0.2)  # it waits, or has gone on without knowing
    go.set()
    for thread in threads:
        thread.join(SOON)
    assert knows == [True, True]
    for keeping in (one, other):
        keeping.close()
    store.close()
