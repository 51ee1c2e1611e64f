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
from respool.store import (
    ForgetResult,
    RejectedRequest,
    Retention,
    SentRequest,
    SQLiteStore,
    SQLStore,
    StoreLocation,
    originals,
    retention,
    sql_store,
)
from respool.store.database_file import file_identity, quarantine, quarantined_files
from respool.store.originals import pack_original
from respool.store.postgres import PostgresStore
from respool.store.retention import TrustedTime
from tests.store.support import (
    NOW,
    OTHER,
    OWNER,
    another,
    by_ref,
    open_at,
    record,
    stored_bytes,
    text_of,
)

DAY = 86_400.0


class Clock:
    """A time that passes when it is told to, and a clock that may differ from it."""

    def __init__(self) -> None:
        self.now = NOW
        self.ahead = 0.0  # of the time

    def elapsed(self) -> float:
        return self.now

    def __call__(self) -> float:
        return self.now + self.ahead


def opened(location: StoreLocation, clock: Clock, retention: Retention | None = None) -> SQLStore:
    """A store of a process that starts now, and begins with a sweep."""
    store = open_at(location, clock=clock, elapsed=clock.elapsed, retention=retention)
    store.sweep()
    return store


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(location: StoreLocation, clock: Clock) -> Iterator[SQLStore]:
    store = opened(location, clock, Retention(days=30, megabytes=1))
    yield store
    store.close()


@pytest.fixture
def file_store(tmp_path: Path, clock: Clock) -> Iterator[SQLiteStore]:
    store = opened(tmp_path / "respool" / "respool.db", clock, Retention(days=30, megabytes=1))
    assert isinstance(store, SQLiteStore)
    yield store
    store.close()


def swept(store: SQLStore) -> int:
    """Sweep to the end; the number of steps it took."""
    steps = 1
    while store.sweep():
        steps += 1
        assert steps < 10_000
    return steps


def names(store: SQLStore) -> set[str]:
    return {one.name for one in store.conversations(None, limit=1_000)}


def noise(number: int, size: int = 250_000) -> str:
    """A text that cannot be packed much."""
    return msgspec.json.encode(list(os.urandom(size // 4))).decode() + str(number)


class TestAge:
    def test_a_conversation_goes_with_all_that_only_it_needs(self, store: SQLStore, clock: Clock):
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
        assert store.claim("later", "0c", "one", SentRequest(time=clock.now), Facts())
        swept(store)
        assert len(store.prior_requests("later", ["0c"]).claims) == 1
        clock.now += 2 * DAY
        swept(store)
        assert store.prior_requests("later", ["0c"]).claims == ()
        assert names(store) == {"old", "later"}
        clock.now += 9 * DAY
        swept(store)
        assert names(store) == {"later"}
        assert dict(store.originals(None)) == shared
        assert store.facts("old") == store.facts("nothing else") == Facts()
        assert store.facts("later").cold == {"0c"}
        assert store.edits("r1", None) is None
        assert store.rejected_requests(None) == []

    def test_an_original_stays_while_its_conversation_goes_on(self, store: SQLStore, clock: Clock):
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

    def test_goes_in_small_steps_between_which_others_write(self, store: SQLStore, clock: Clock):
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

    def test_a_damaged_file_is_kept_from_the_move_on(self, file_store: SQLiteStore, clock: Clock):
        """However old it was when it was moved; side files too."""
        file_store.keep(OWNER, "c1", by_ref("text"))
        file_store.close()
        data = file_store.path.read_bytes()
        file_store.path.write_bytes(data[:100] + b"\xff" * 3_996 + data[4_096:])
        log = file_store.path.with_name(f"{file_store.path.name}-wal")
        log.write_bytes(b"x")
        clock.now = time.time()
        for file in (file_store.path, log):
            os.utime(file, (clock.now - 40 * DAY, clock.now - 40 * DAY))
        quarantine(file_store.path, file_identity(file_store.path), 1)
        again = opened(file_store.location, clock)
        again.keep(OWNER, "c1", by_ref("text"))
        aside = quarantined_files(file_store.path)
        assert [file.name[-4:] == "-wal" for file in aside] == [False, True]
        clock.now += 29 * DAY
        again._maintain()
        assert quarantined_files(file_store.path) == aside
        clock.now += 2 * DAY
        swept(again)
        again._maintain()
        assert quarantined_files(file_store.path) == []
        again.close()

    def test_a_file_of_another_name_is_nobodys_to_delete(
        self, file_store: SQLiteStore, clock: Clock
    ):
        file_store.keep(OWNER, "c1", by_ref("text"))
        copy = file_store.path.with_name(f"{file_store.path.name}.damaged-keep-this")
        copy.write_bytes(b"x")
        os.utime(copy, (NOW - 99 * DAY, NOW - 99 * DAY))
        file_store._maintain()
        file_store.forget()
        assert copy.exists()

    def test_damaged_files_that_were_moved_aside_go_too(
        self, file_store: SQLiteStore, clock: Clock
    ):
        file_store.keep(OWNER, "c1", by_ref("text"))
        aside = file_store.path.with_name(file_store.path.name + ".damaged-20260101-000000")
        aside.write_bytes(b"x")
        os.utime(aside, (NOW - 29 * DAY, NOW - 29 * DAY))
        file_store._maintain()
        assert quarantined_files(file_store.path) == [aside]
        clock.now += 2 * DAY
        file_store._maintain()
        assert quarantined_files(file_store.path) == []


class TestClock:
    """Clocks that are wrong for a while, and machines that were off."""

    def use(self, store: SQLStore, clock: Clock, name: str) -> None:
        store.record(record(f"{name} {clock.now}", conversation=name, time=clock()))
        store.add_facts(f"facts of {name}", Facts(cold=frozenset({"0a"})))
        assert store.flush()

    def let_pass(self, store: SQLStore, clock: Clock, days: float) -> None:
        """Sweep four times a day."""
        for _ in range(round(days * 4)):
            clock.now += DAY / 4
            swept(store)

    @pytest.mark.parametrize("ahead", [31 * DAY, 10_000 * DAY, -31 * DAY, -5 / 24 * DAY])
    @pytest.mark.parametrize("steady", [2, 40])
    @pytest.mark.parametrize("restarts", [False, True])
    def test_one_that_is_wrong_for_less_than_a_day_deletes_nothing(
        self, store: SQLStore, clock: Clock, ahead: float, steady: int, restarts: bool
    ):
        self.let_pass(store, clock, steady)
        self.use(store, clock, "before")
        clock.ahead = ahead
        used = opened(store.location, clock) if restarts else store
        clock.now += 1
        swept(used)
        self.use(used, clock, "meanwhile")
        self.let_pass(used, clock, 0.75)
        clock.ahead = 0
        later = opened(store.location, clock) if restarts else store
        self.let_pass(later, clock, 25)
        assert names(store) == {"before", "meanwhile"}
        self.let_pass(later, clock, 30)
        assert names(store) == set()
        assert store.facts("facts of before") == store.facts("facts of meanwhile") == Facts()
        for one in {used, later} - {store}:
            one.close()

    def test_two_jumps_in_a_row_delete_nothing(self, store: SQLStore, clock: Clock):
        self.let_pass(store, clock, 2)
        self.use(store, clock, "before")
        for _ in range(10):
            clock.now += 600
            clock.ahead += 31 * DAY
            swept(store)
        assert names(store) == {"before"}

    def test_a_process_with_another_clock_deletes_nothing(self, store: SQLStore, clock: Clock):
        other = Clock()
        other.ahead = 31 * DAY
        wrong = opened(store.location, other)
        for _ in range(20):
            other.now = clock.now = clock.now + DAY / 4
            self.use(store, clock, "live")
            swept(store)
            swept(wrong)
        assert names(store) == {"live"}
        wrong.close()

    @pytest.mark.parametrize("start", [True, False])
    def test_after_forty_days_off_the_old_goes_in_a_day(
        self, store: SQLStore, clock: Clock, start: bool
    ):
        """The process starts anew, or the machine slept: then a clock of its own went on."""
        self.let_pass(store, clock, 2)
        self.use(store, clock, "old")
        clock.now += 40 * DAY
        again = opened(store.location, clock) if start else store
        assert names(store) == {"old"}
        self.use(again, clock, "new")
        self.let_pass(again, clock, 1)
        assert names(store) == {"new"}
        again.close()

    def test_a_process_a_week_for_minutes_deletes_what_is_old(self, store: SQLStore, clock: Clock):
        for week in range(12):
            with contextlib.closing(opened(store.location, clock)) as one:
                self.use(one, clock, f"week {week:02}")
                clock.now += 600
                swept(one)
            clock.now += 7 * DAY
        assert names(store) == {f"week {week:02}" for week in range(6, 12)}

    def test_a_day_after_a_reboot_still_counts_by_the_clock(self, store: SQLStore, clock: Clock):
        """Processes that run for an hour a day age their rows day by day."""
        self.use(store, clock, "old")
        for _ in range(33):
            clock.now += 0.9 * DAY
            opened(store.location, clock).close()
            assert names(store) == {"old"}
        clock.now += 0.9 * DAY
        opened(store.location, clock).close()
        assert names(store) == set()

    def test_what_was_dated_ahead_does_not_stay_for_ever(
        self, store: SQLStore, clock: Clock, tmp_path: Path
    ):
        clock.ahead = 1_000 * DAY
        self.use(store, clock, "ahead")
        store.keep(OWNER, "ahead", by_ref("text"))
        aside = tmp_path / "state" / "respool" / "respool.db.damaged-20260101-000000"
        aside.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(b"x")
        os.utime(aside, (clock(), clock()))
        clock.ahead = 0
        for _ in range(33 * 4):
            self.let_pass(store, clock, 0.25)
            store._maintain()
        assert names(store) == set()
        assert store.facts("facts of ahead") == Facts()
        assert aside.exists() is isinstance(store, PostgresStore)

    def test_what_is_used_on_after_it_was_dated_ahead_stays(self, store: SQLStore, clock: Clock):
        """A cache that knows its first date must not keep it from the file."""
        texts = by_ref(text_of(1))
        clock.ahead = 1_000 * DAY
        store.keep(OWNER, "c1", texts)
        clock.ahead = 0
        for _ in range(40):
            self.let_pass(store, clock, 1)
            store.keep(OWNER, "c1", texts)
        assert store.readable_refs(texts, OWNER) == texts.keys()

    def test_the_size_limit_takes_nothing_by_a_wrong_clock(self, store: SQLStore, clock: Clock):
        self.let_pass(store, clock, 2)
        store.keep(OWNER, "live", by_ref(*(noise(number) for number in range(6))))
        clock.ahead = 31 * DAY
        swept(store)
        assert names(store) == {"live"}


class OddClock:
    """A store under odd clocks, and the honest time of each conversation's last use.

    A fault of the clock lasts for less than a day, and two days without one follow it.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = Clock()
        self.path = folder / "respool.db"
        self.stood: float | None = None  # the time at which the clock stands still
        self.used: dict[str, float] = {}
        self.store = self.open()

    def read(self) -> float:
        return self.clock() if self.stood is None else self.stood

    def open(self) -> SQLiteStore:
        store = SQLiteStore(self.path, clock=self.read, elapsed=self.clock.elapsed)
        swept(store)
        store._database.run_exclusive(lambda c: c.execute("PRAGMA synchronous = OFF"))  # faster
        return store

    def restart(self, off: float = 0.0) -> None:
        self.store.close()
        self.clock.now += off
        self.store = self.open()

    def use(self) -> None:
        name = f"c{self.chance.randrange(40)}"
        if self.chance.random() < 0.5:
            self.store.keep(OWNER, name, by_ref(name))
        else:
            self.store.record(
                record(f"{name} {self.clock.now}", conversation=name, time=self.read())
            )
            assert self.store.flush()
        self.used[name] = self.clock.now

    def go_on(self, days: float) -> None:
        """Use and sweep the store, by this clock; the law is checked after each sweep."""
        over = self.clock.now + days * DAY
        while self.clock.now < over:
            self.clock.now += self.chance.uniform(0.5, 3) * 3_600
            for _ in range(self.chance.choice([0, 0, 1, 2])):
                self.use()
            if self.chance.random() < 0.1:
                self.restart()
            swept(self.store)
            self.check()

    def check(self) -> None:
        """Used within 30 days, less the day for which a clock may be wrong: it is there."""
        live = {name for name, time in self.used.items() if time > self.clock.now - 28.8 * DAY}
        assert live <= names(self.store), "deleted too early"

    def play(self, faults: int) -> None:
        for _ in range(faults):
            self.go_on(self.chance.uniform(2, 6))
            match self.chance.randrange(6):
                case 0 | 1:
                    self.clock.ahead = self.chance.choice([31, -31, 400, -20_000]) * DAY
                case 2:
                    self.clock.ahead = -self.chance.uniform(1.5, 20) * 3_600
                case 3:
                    self.stood = self.read()
                case 4:
                    self.restart(off=self.chance.uniform(1, 45) * DAY)
                case _:
                    self.restart()
            if self.chance.random() < 0.5:
                self.restart()
            self.go_on(self.chance.uniform(0.05, 0.8))
            self.clock.ahead, self.stood = 0.0, None
        self.used.clear()
        self.let_age()

    def let_age(self) -> None:
        """Everything stale goes: nothing that was used before is there a good month later."""
        for _ in range(34):
            self.clock.now += DAY
            swept(self.store)
        assert names(self.store) == set(), "never deleted"
        self.store.close()


ODD_SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))]


@pytest.mark.parametrize("seed", ODD_SEEDS)
def test_odd_clocks(tmp_path: Path, seed: int):
    OddClock(tmp_path, seed).play(6 if seed == 0 else 25)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ("the clock is believed", "deleted too early"),
        ("nothing is ever trusted", "never deleted"),
        ("what is behind stays behind", "deleted too early"),
        ("what is ahead stays ahead", "never deleted"),
    ],
)
def test_odd_clocks_can_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str, said: str
):
    match planted:
        case "the clock is believed":
            monkeypatch.setattr(
                sql_store, "trust_time", lambda _c, now: TrustedTime(now.time, True)
            )
        case "nothing is ever trusted":
            monkeypatch.setattr(sql_store, "trust_time", lambda *_: TrustedTime())
        case "what is behind stays behind":
            monkeypatch.setattr(originals, "not_before_trusted", lambda _c, time: time)
        case _:
            monkeypatch.setattr(retention, "_clamp_future_times", lambda *_: None)
    with pytest.raises(AssertionError, match=said):
        _play_all(tmp_path)


def _play_all(folder: Path) -> None:
    for seed in range(1, 12):
        (folder / str(seed)).mkdir()
        OddClock(folder / str(seed), seed).play(25)


class TestSize:
    def test_the_longest_unused_go_first_and_only_as_many_as_must(
        self, store: SQLStore, clock: Clock
    ):
        for number in range(12):
            store.keep(OWNER, f"c{number:02}", by_ref(noise(number)))
            clock.now += DAY / 10
        clock.now += 4 * DAY
        swept(store)
        left = sorted(names(store))
        assert 2 <= len(left) < 12
        assert left == [f"c{number:02}" for number in range(12 - len(left), 12)]
        assert 400_000 < store._database.used_bytes(0) <= 1_000_000
        if isinstance(store, SQLiteStore):
            store.close()
            assert 500_000 < store.size() < 1_000_000 + 500 * 4_096  # given back, roughly

    def test_what_went_on_lately_stays_though_it_is_too_much(self, store: SQLStore, clock: Clock):
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


def test_a_sweep_that_is_due_runs_by_itself(store: SQLStore, clock: Clock):
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

    def __init__(self, store: SQLStore, owner: str, name: str) -> None:
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

    def traces(self, store: SQLStore) -> list[bool]:
        """Texts that are still in the bytes of the store's files."""
        data = stored_bytes(store)
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
    def left(self, store: SQLStore) -> dict[str, Left]:
        return self.leave(store)

    @pytest.fixture
    def file_left(self, file_store: SQLiteStore) -> dict[str, Left]:
        return self.leave(file_store)

    def leave(self, store: SQLStore) -> dict[str, Left]:
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
        self, store: SQLStore, left: dict[str, Left], named: dict[str, str], gone: set[str]
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
        self, store: SQLStore, clock: Clock, named: dict[str, str], gone: set[str]
    ):
        said = {name: f"what a summary said {name}" for name in ("early", "late")}
        for name, words in said.items():
            store.add_facts(name, Facts(summaries=((reference(name), words),)))
            assert store.flush()
            clock.now += DAY
        assert store.forget(**named).erased  # type: ignore[arg-type]
        data = stored_bytes(store)
        for name, words in said.items():
            assert (words.encode() in data) is (name not in gone)
            assert bool(store.facts(name).summaries) is (name not in gone)

    def test_of_a_conversation_that_goes_on_what_is_older(self, store: SQLStore, clock: Clock):
        old = Left(store, OWNER, "alpha")
        clock.now += DAY
        new = by_ref("said today")
        store.keep(OWNER, "alpha", new)
        store.record(record("r2", conversation="alpha", time=clock.now))
        assert store.forget(before=NOW + DAY / 2).erased
        assert old.traces(store) == NONE
        assert dict(store.originals(OWNER)) == new
        assert [one.id for one in store.requests("alpha", OWNER)] == ["r2"]

    def test_what_another_conversation_needs_stays(self, store: SQLStore):
        shared = by_ref(text_of(1))
        store.keep(OWNER, "c1", shared)
        store.keep(OTHER, "c2", shared)
        assert store.forget(conversation="c1") == ForgetResult(1, 0, 0, erased=True)
        assert dict(store.originals(OTHER)) == shared
        assert dict(store.originals(OWNER)) == {}

    def test_everything_takes_damaged_files_along(
        self, file_store: SQLiteStore, file_left: dict[str, Left]
    ):
        aside = file_store.path.with_name(file_store.path.name + ".damaged-20260101-000000")
        aside.write_text(file_left["alpha"].short)
        file_store.forget(conversation="alpha")
        assert aside.exists()
        file_store.forget()
        assert all(one.traces(file_store) == NONE for one in file_left.values())

    def test_says_when_another_still_reads_the_old_bytes(
        self, file_store: SQLiteStore, file_left: dict[str, Left]
    ):
        file_store._database.wait = 0.1
        file_store.close()
        again = another(file_store, wait=0.2)
        with contextlib.closing(sqlite3.connect(file_store.path, isolation_level=None)) as reader:
            again.salt()
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM originals").fetchone()
            assert not again.forget().erased
            assert names(again) == set()
            reader.execute("COMMIT")
        assert again.forget().erased
        assert file_left["alpha"].traces(again) == NONE
        again.close()

    @pytest.mark.skipif(os.name == "nt", reason="Windows has no permission bits")
    def test_the_file_stays_its_owners_alone(
        self, file_store: SQLiteStore, file_left: dict[str, Left]
    ):
        file_store.forget()
        modes = {stat.S_IMODE(file.stat().st_mode) for file in file_store.path.parent.iterdir()}
        assert modes == {0o600}
        file_store.keep(OWNER, "c1", by_ref("goes on"))
        assert file_store.refs(OWNER) == [reference("goes on")]
