"""Retention: deletion by age, by size and on request."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from respool.facts import Facts
from respool.markers import reference
from respool.store import ForgetResult, RejectedRequest, Retention, SQLiteStore
from respool.store.database_file import file_identity, quarantine, quarantined_files
from respool.store.originals import pack_original
from tests.store.support import NOW, OTHER, OWNER, by_ref, bytes_of, record, text_of

DAY = 86_400.0


class Clock:
    """A time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[SQLiteStore]:
    retention = Retention(days=30, megabytes=1)
    store = SQLiteStore(tmp_path / "respool" / "respool.db", clock=clock, retention=retention)
    yield store
    store.close()


def swept(store: SQLiteStore) -> int:
    """Sweep to the end; the number of steps it took."""
    steps = 1
    while store.sweep():
        steps += 1
        assert steps < 10_000
    return steps


def names(store: SQLiteStore) -> set[str]:
    return {one.name for one in store.conversations(None, limit=1_000)}


def noise(number: int, size: int = 250_000) -> str:
    """A text that cannot be packed much."""
    return msgspec.json.encode(list(os.urandom(size // 4))).decode() + str(number)


class TestAge:
    def test_a_conversation_goes_with_all_that_only_it_needs(
        self, store: SQLiteStore, clock: Clock
    ):
        mine, shared = by_ref(text_of(1)), by_ref(text_of(2))
        store.keep(OWNER, "old", mine | shared)
        store.add_facts("old", Facts(cold=frozenset({"0a"})))
        store.add_facts("nothing else", Facts(cold=frozenset({"0b"})))
        store.record(record("r1", conversation="old", time=clock.now))
        store.add_rejected(case("old"))
        assert store.flush()
        clock.now += 20 * DAY
        store.keep(OTHER, "later", shared)
        store.add_facts("later", Facts(cold=frozenset({"0c"})))
        swept(store)
        assert names(store) == {"old", "later"}
        clock.now += 11 * DAY
        swept(store)
        assert names(store) == {"later"}
        assert dict(store.originals(None)) == shared
        assert store.facts("old") == store.facts("nothing else") == Facts()
        assert store.facts("later").cold == {"0c"}
        assert store.edits("r1", None) is None
        assert store.rejected_requests(None) == []

    def test_an_original_stays_while_its_conversation_goes_on(
        self, store: SQLiteStore, clock: Clock
    ):
        """Its marker is in every request, however long ago it was put there."""
        first = by_ref(text_of(1))
        store.keep(OWNER, "c1", first)
        store.keep(OWNER, "c2", by_ref(text_of(2)))
        for day in range(100):
            clock.now += DAY
            if day % 2:
                store.record(record(f"r{day}", time=clock.now))
                assert store.flush()
            else:
                store.keep(OWNER, "c1", first)  # which is there already
            swept(store)
        assert store.readable_refs(first, OWNER)
        assert names(store) == {"c1"}

    def test_goes_in_small_steps_between_which_others_write(self, store: SQLiteStore, clock: Clock):
        texts = by_ref(*(text_of(number, 2) for number in range(1_000)))
        store.keep(OWNER, "old", texts)
        clock.now += 31 * DAY
        assert store.sweep()
        left = store.readable_refs(texts, None)
        assert 0 < len(left) < len(texts)
        store.keep(OWNER, "old", texts)  # just when it goes, it goes on
        assert store.readable_refs(texts, None) == texts.keys()
        swept(store)
        assert store.readable_refs(texts, None) == texts.keys()

    def test_a_damaged_file_is_kept_from_the_move_on(self, store: SQLiteStore, clock: Clock):
        """However old it was when it was moved; side files too."""
        store.keep(OWNER, "c1", by_ref("text"))
        store.close()
        data = store.path.read_bytes()
        store.path.write_bytes(data[:100] + b"\xff" * 3_996 + data[4_096:])
        log = store.path.with_name(f"{store.path.name}-wal")
        log.write_bytes(b"x")
        clock.now = time.time()
        for file in (store.path, log):
            os.utime(file, (clock.now - 40 * DAY,) * 2)
        again = SQLiteStore(store.path, clock=clock)
        quarantine(store.path, file_identity(store.path), 1)
        again.keep(OWNER, "c1", by_ref("text"))
        aside = quarantined_files(store.path)
        assert [file.name[-4:] == "-wal" for file in aside] == [False, True]
        clock.now += 29 * DAY
        again._maintain()
        assert quarantined_files(store.path) == aside
        clock.now += 2 * DAY
        swept(again)
        again._maintain()
        assert quarantined_files(store.path) == []
        again.close()

    def test_a_file_of_another_name_is_nobodys_to_delete(self, store: SQLiteStore, clock: Clock):
        store.keep(OWNER, "c1", by_ref("text"))
        copy = store.path.with_name(f"{store.path.name}.damaged-keep-this")
        copy.write_bytes(b"x")
        os.utime(copy, (NOW - 99 * DAY,) * 2)
        store._maintain()
        store.forget()
        assert copy.exists()

    def test_damaged_files_that_were_moved_aside_go_too(self, store: SQLiteStore, clock: Clock):
        store.keep(OWNER, "c1", by_ref("text"))
        aside = store.path.with_name(store.path.name + ".damaged-20260101-000000")
        aside.write_bytes(b"x")
        os.utime(aside, (NOW - 29 * DAY, NOW - 29 * DAY))
        store._maintain()
        assert quarantined_files(store.path) == [aside]
        clock.now += 2 * DAY
        store._maintain()
        assert quarantined_files(store.path) == []


class TestAhead:
    """What was dated ahead by a clock that was wrong."""

    def ask(self, store: SQLiteStore, clock: Clock, name: str, count: int = 1) -> None:
        for number in range(count):
            id = f"{name} {number} {clock.now}"
            store.record(record(id, conversation=name, time=clock.now))
        assert store.flush()

    def test_ages_once_many_requests_agree_with_the_clock(self, store: SQLiteStore, clock: Clock):
        clock.now += 1_000 * DAY
        self.ask(store, clock, "ahead")
        store.add_facts("ahead of all", Facts(cold=frozenset({"0a"})))
        clock.now -= 1_000 * DAY
        for _ in range(60):
            clock.now += DAY
            self.ask(store, clock, "usual", 4)
            swept(store)
        assert names(store) == {"usual"}
        assert store.facts("ahead of all") == Facts()

    def test_a_clock_that_is_behind_for_a_while_takes_nothing_away(
        self, store: SQLiteStore, clock: Clock
    ):
        """A machine may begin in 1970, until it has asked for the time."""
        self.ask(store, clock, "live", 200)
        clock.now -= 10_000 * DAY
        self.ask(store, clock, "early", 20)
        swept(store)
        clock.now += 10_000 * DAY
        swept(store)
        assert names(store) == {"live"}


class TestSize:
    def test_the_longest_unused_go_first_and_only_as_many_as_must(
        self, store: SQLiteStore, clock: Clock
    ):
        for number in range(12):
            store.keep(OWNER, f"c{number:02}", by_ref(noise(number)))
            clock.now += DAY / 10
        clock.now += 4 * DAY
        swept(store)
        left = sorted(names(store))
        assert 2 <= len(left) < 12
        assert left == [f"c{number:02}" for number in range(12 - len(left), 12)]
        store.close()
        assert 500_000 < store.path.stat().st_size < 1_000_000 + 500 * 4_096  # given back, roughly

    def test_what_went_on_lately_stays_though_it_is_too_much(
        self, store: SQLiteStore, clock: Clock
    ):
        old, live = by_ref(noise(0)), by_ref(*(noise(number) for number in range(1, 30)))
        store.keep(OWNER, "old", old)
        clock.now += 10 * DAY
        store.keep(OWNER, "live", live)
        clock.now += 2 * DAY
        swept(store)
        assert store.readable_refs([*old, *live], None) == live.keys()
        clock.now += 2 * DAY
        swept(store)
        assert names(store) == set()


def test_a_sweep_that_is_due_runs_by_itself(store: SQLiteStore, clock: Clock):
    store.keep(OWNER, "old", by_ref(text_of(1)))
    clock.now += 31 * DAY
    store.record(record("r1", conversation="new", time=clock.now))
    assert store.flush()
    store._queue._maintain_at = 0
    for _ in range(100):
        if names(store) == {"new"}:
            break
        store.flush()
        with store._queue._changed:
            store._queue._changed.wait(0.1)
    assert names(store) == {"new"}


def case(conversation: str, **fields: bytes) -> RejectedRequest:
    return RejectedRequest(
        time=NOW,
        owner=OWNER,
        conversation=conversation,
        format="anthropic",
        status=400,
        request=fields.get("request", b"{}"),
    )


class Left:
    """Texts of one conversation, and the bytes by which each would be found in the file."""

    def __init__(self, store: SQLiteStore, owner: str, name: str) -> None:
        self.short = f"the password of {name} is swordfish"  # too short to be packed
        words = random.Random(name)  # packed, no two of these have a part in common
        self.long = "".join(f"{words.getrandbits(128):x}\n" for _ in range(1_000))
        self.evidence = f"evidence of {name}"
        self.place = f"messages of {name}"
        store.keep(owner, name, by_ref(self.short, self.long))
        store.record(
            record(
                f"r-{name}",
                conversation=name,
                owner=owner,
                time=NOW,
                fallback=self.place,
                failures={"a_pass": self.evidence},
            )
        )
        store.add_facts(name, Facts(cold=frozenset({name.encode().hex()})))
        assert store.flush()

    def traces(self, store: SQLiteStore) -> list[bool]:
        """Which of its texts are still in the bytes of the store's files."""
        data = bytes_of(store.path)
        body = pack_original(reference(self.long), self.long).body
        parts = [body[at : at + 64] for at in range(64, len(body) - 64, 64)]
        return [
            self.short.encode() in data,
            any(part in data for part in parts),
            self.evidence.encode() in data,
            self.place.encode() in data,
            reference(self.short).encode() in data,
        ]


ALL, NONE = [True] * 5, [False] * 5


class TestForget:
    @pytest.fixture
    def left(self, store: SQLiteStore) -> dict[str, Left]:
        owners = {"alpha": OWNER, "beta": OWNER, "gamma": OTHER}
        left = {name: Left(store, owner, name) for name, owner in owners.items()}
        assert all(one.traces(store) == ALL for one in left.values())
        return left

    @pytest.mark.parametrize(
        ("named", "gone"),
        [
            ({}, {"alpha", "beta", "gamma"}),
            ({"owner": OWNER}, {"alpha", "beta"}),
            ({"conversation": "beta"}, {"beta"}),
            ({"owner": OTHER, "conversation": "beta"}, set[str]()),
            ({"before": NOW + 1}, {"alpha", "beta", "gamma"}),
            ({"before": NOW}, set[str]()),
            ({"owner": OWNER, "before": NOW + 1}, {"alpha", "beta"}),
        ],
    )
    def test_takes_the_text_out_of_the_bytes_of_the_file(
        self, store: SQLiteStore, left: dict[str, Left], named: dict[str, str], gone: set[str]
    ):
        done = store.forget(**named)  # type: ignore[arg-type]
        assert done == ForgetResult(len(gone), 2 * len(gone), len(gone), erased=True)
        assert names(store) == left.keys() - gone
        for name, one in left.items():
            assert one.traces(store) == (NONE if name in gone else ALL), name
            assert bool(store.facts(name).cold) == (name not in gone)
        store.close()
        assert all(left[name].traces(store) == NONE for name in gone)

    @pytest.mark.parametrize(
        ("named", "gone"),
        [
            ({}, {"early", "late"}),
            ({"conversation": "late"}, {"late"}),
            ({"before": NOW + 1}, {"early"}),
            ({"owner": OWNER}, set[str]()),  # nobody knows whose they are
        ],
    )
    def test_takes_facts_of_which_nothing_else_is_known(
        self, store: SQLiteStore, clock: Clock, named: dict[str, str], gone: set[str]
    ):
        said = {name: f"what a summary said {name}" for name in ("early", "late")}
        for name, words in said.items():
            store.add_facts(name, Facts(summaries=((reference(name), words),)))
            assert store.flush()
            clock.now += DAY
        assert store.forget(**named).erased  # type: ignore[arg-type]
        data = bytes_of(store.path)
        for name, words in said.items():
            assert (words.encode() in data) is (name not in gone)
            assert bool(store.facts(name).summaries) is (name not in gone)

    def test_of_a_conversation_that_goes_on_what_is_older(self, store: SQLiteStore, clock: Clock):
        old = Left(store, OWNER, "alpha")
        clock.now += DAY
        new = by_ref("said today")
        store.keep(OWNER, "alpha", new)
        store.record(record("r2", conversation="alpha", time=clock.now))
        assert store.forget(before=NOW + DAY / 2).erased
        assert old.traces(store) == NONE
        assert dict(store.originals(OWNER)) == new
        assert [one.id for one in store.requests("alpha", OWNER)] == ["r2"]

    def test_what_another_conversation_needs_stays(self, store: SQLiteStore):
        shared = by_ref(text_of(1))
        store.keep(OWNER, "c1", shared)
        store.keep(OTHER, "c2", shared)
        assert store.forget(conversation="c1") == ForgetResult(1, 0, 0, erased=True)
        assert dict(store.originals(OTHER)) == shared
        assert dict(store.originals(OWNER)) == {}

    def test_everything_takes_damaged_files_along(self, store: SQLiteStore, left: dict[str, Left]):
        aside = store.path.with_name(store.path.name + ".damaged-20260101-000000")
        aside.write_text(left["alpha"].short)
        store.forget(conversation="alpha")
        assert aside.exists()
        store.forget()
        assert all(one.traces(store) == NONE for one in left.values())

    def test_says_when_another_still_reads_the_old_bytes(
        self, store: SQLiteStore, left: dict[str, Left]
    ):
        store._database.wait = 0.1
        store.close()
        again = SQLiteStore(store.path, wait=0.2)
        with contextlib.closing(sqlite3.connect(store.path, isolation_level=None)) as reader:
            again.salt()
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM originals").fetchone()
            assert not again.forget().erased
            assert names(again) == set()
            reader.execute("COMMIT")
        assert again.forget().erased
        assert left["alpha"].traces(again) == NONE
        again.close()

    @pytest.mark.skipif(os.name == "nt", reason="Windows has no permission bits")
    def test_the_file_stays_its_owners_alone(self, store: SQLiteStore, left: dict[str, Left]):
        store.forget()
        modes = {stat.S_IMODE(file.stat().st_mode) for file in store.path.parent.iterdir()}
        assert modes == {0o600}
        store.keep(OWNER, "c1", by_ref("goes on"))
        assert store.refs(OWNER) == [reference("goes on")]
