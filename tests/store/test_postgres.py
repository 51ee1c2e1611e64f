"""PostgreSQL: several servers at once, faults of the database, and what people are told of them."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from genai_prices.data import providers

from respool.facts import Facts
from respool.markers import reference
from respool.store import (
    Retention,
    ServerAddress,
    StoreUnavailable,
    originals,
    postgres_database,
)
from respool.store import postgres_dialect as dialect
from respool.store.originals import row_of
from respool.store.postgres import PostgresStore
from respool.store.retention import delete_matching
from respool.store.savings import max_scale
from respool.store.teams import new_team
from respool.wire.base import known_formats
from tests.store.postgres_server import PASSWORD, USER, PostgresServer, serving
from tests.store.support import NOW, OTHER, OWNER, by_ref, child, record, text_of

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the server runs on POSIX")
AT_ONCE = 10.0  # seconds on a busy machine; the limits of statements and silence are three times it


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    store = opened(postgres_url)
    yield store
    store.close()


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that tests stop and start."""
    with serving() as server:
        yield server


def opened(url: str, **options: Any) -> PostgresStore:
    return PostgresStore(ServerAddress(url), **options)


def ask(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []


class TestSeveralAtOnce:
    def test_replicas_that_start_together_make_one_schema(self, postgres_server: PostgresServer):
        url = postgres_server.new_database()
        stores = [opened(url) for _ in range(6)]
        with ThreadPoolExecutor(6) as threads:
            salts = list(threads.map(lambda one: one.salt(), stores))
        assert len(set(salts)) == 1
        assert len(salts[0]) == 32
        for one in stores:
            one.close()

    def test_the_first_of_many_processes_wins(self, postgres_url: str):
        children = [child("note", postgres_url, str(tokens)) for tokens in (1_000, 2_000, 3_000)]
        said = [one.communicate(timeout=60)[0] for one in children]
        assert len(set(said)) == 1
        assert len(said[0].split()) == 20

    def test_processes_that_write_at_once_lose_nothing(self, store: PostgresStore):
        url = store.location.url  # type: ignore[union-attr]
        children = [child("write", url, str(start), "40") for start in (0, 100, 200)]
        for one in children:
            one.communicate(timeout=60)
        texts = [text_of(start + n) for start in (0, 100, 200) for n in range(40)]
        assert store.readable_refs(by_ref(*texts), OWNER) == by_ref(*texts).keys()
        (total,) = store.totals(None, since=0, until=4e9, step=4e9)
        assert total.requests == 120

    def test_what_a_writer_has_found_stays_until_it_is_linked(
        self, store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ):
        """Another one forgets the only conversation with it just then."""
        texts, other = by_ref(text_of(1), text_of(2)), opened(postgres_url, wait=20)
        store.keep(OWNER, "c1", texts)
        find, forgotten = originals.find_present, threading.Event()

        def forget() -> None:
            other._database.erase(lambda c: delete_matching(c, OWNER, "c1", None))
            forgotten.set()

        def find_and_forget(connection: Any, refs: Any) -> set[str]:
            found = find(connection, refs)
            monkeypatch.setattr(originals, "find_present", find)
            eraser.start()
            forgotten.wait(0.5)
            return found

        eraser = threading.Thread(target=forget)
        ready = dict[str, originals.PackedOriginal]()

        def keep(c: Any) -> None:
            monkeypatch.setattr(originals, "find_present", find_and_forget)
            row = originals.ensure_conversation(c, OWNER, "c2", time=NOW)
            originals.keep_originals(c, row, texts=texts, ready=ready, time=NOW)

        store._database.write(keep)
        eraser.join(20)
        assert forgotten.is_set()
        assert store.readable_refs(texts, OWNER) == texts.keys()
        assert {one.name for one in store.conversations(None)} == {"c2"}
        for question in DANGLING:
            assert ask(postgres_url, question) == [], question
        other.close()

    def test_one_at_a_time_sweeps(self, postgres_url: str):
        now = NOW
        given: Any = {"clock": lambda: now, "elapsed": lambda: now, "retention": Retention(days=1)}
        store = opened(postgres_url, **given)
        store.sweep()
        store.keep(OWNER, "old", by_ref(*(text_of(number, 2) for number in range(500))))
        now += 86_400
        assert not store.sweep()
        now += 86_400
        lock = (
            f"SELECT pg_advisory_xact_lock({postgres_database._LOCKS}, {postgres_database._SWEEP})"
        )
        with psycopg.connect(postgres_url) as other:
            other.execute(lock)  # type: ignore[arg-type]
            assert not store.sweep()
            assert len(store.refs(None)) == 500
        assert store.sweep()
        assert 0 < len(store.refs(None)) < 500
        store.close()


DANGLING = (
    "SELECT * FROM respool.kept WHERE ref NOT IN (SELECT ref FROM respool.originals)",
    "SELECT * FROM respool.kept WHERE conversation NOT IN (SELECT id FROM respool.conversations)",
    "SELECT ref FROM respool.originals WHERE ref NOT IN (SELECT ref FROM respool.kept)",
)


class TestALostServer:
    @pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
    def test_is_said_at_once_and_taken_up_again(
        self, own_server: PostgresServer, how: signal.Signals
    ):
        url = own_server.new_database()
        store = opened(url)
        kept = by_ref(text_of(1))
        store.keep(OWNER, "c1", kept)
        salt = store.salt()
        own_server.stop(how)
        try:
            for _ in range(3):
                begun = time.monotonic()
                with pytest.raises(StoreUnavailable, match="the server cannot be reached") as said:
                    store.keep(OWNER, "c1", by_ref(text_of(2)))
                assert said.value.reason == "unreachable"
                assert PASSWORD not in str(said.value)
                assert time.monotonic() - begun < AT_ONCE
            assert store.last_error() == "unreachable"
            assert store.record(record("r1"))
            assert not store.flush(0.3)  # it waits
        finally:
            own_server.start()
        until = time.monotonic() + 20
        while store.last_error() is not None:  # after the pause between two attempts
            assert time.monotonic() < until
            time.sleep(0.05)
        assert store.flush(20)
        assert [one.id for one in store.requests("c1", None)] == ["r1"]
        store.keep(OWNER, "c1", by_ref(text_of(2)))
        assert store.readable_refs([*kept, reference(text_of(2))], OWNER) == {
            *kept,
            reference(text_of(2)),
        }
        assert (store.salt(), store.dropped) == (salt, 0)
        store.close()

    def test_a_restart_between_two_uses_is_not_noticed(self, own_server: PostgresServer):
        store = opened(own_server.new_database())
        store.keep(OWNER, "c1", by_ref(text_of(1)))
        for _ in range(2):
            own_server.stop()
            own_server.start()
            store.add_facts("c1", Facts(cold=frozenset({"0a"})))
            own_server.stop()
            own_server.start()
            assert store.facts("c1").cold == {"0a"}
            assert store.readable_refs(by_ref(text_of(1)), OWNER)
        store.close()

    def test_pauses_between_attempts_grow_and_are_bounded(self, monkeypatch: pytest.MonkeyPatch):
        now, attempts = 0.0, list[float]()
        monkeypatch.setattr(postgres_database.time, "monotonic", lambda: now)

        def refuse(*_: object, **__: object) -> None:
            attempts.append(now)
            raise psycopg.OperationalError("connection refused")

        monkeypatch.setattr(postgres_database._Connection, "connect", refuse)
        store = opened("postgresql://nowhere.invalid/x")
        for _ in range(6_000):
            now += 0.01
            with pytest.raises(StoreUnavailable, match="connection refused"):
                store.facts("c1")
        pauses = [after - before for before, after in itertools.pairwise(attempts)]
        assert 0.05 < pauses[0] < 0.2
        assert 3.9 < pauses[-1] < 6.1
        assert len(attempts) < 25

    def test_one_that_says_nothing_is_given_up(
        self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
    ):
        """Its process stands still: no time limit of its own ends the statement."""
        pid = store._database.read(lambda c: c.execute("SELECT pg_backend_pid()").fetchall())[0][0]
        wait = postgres_database._Connection.wait
        monkeypatch.setattr(
            postgres_database._Connection,
            "wait",
            lambda self, gen, interval=0.1: wait(self, gen, interval, 0.3),
        )
        os.kill(pid, signal.SIGSTOP)
        try:
            begun = time.monotonic()
            with pytest.raises(StoreUnavailable, match="the server cannot be reached"):
                store.facts("c1")
            assert 0.3 <= time.monotonic() - begun < AT_ONCE
            store.keep(OWNER, "c1", by_ref(text_of(1)))  # by another connection
        finally:
            os.kill(pid, signal.SIGCONT)


class TestFaults:
    def test_a_read_only_database_is_read(self, own_server: PostgresServer):
        url = own_server.new_database()
        name = url.rpartition("/")[2]
        first = opened(url)
        first.keep(OWNER, "c1", by_ref(text_of(1)))
        first.close()
        own_server.run(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        store = opened(url)
        assert store.original(reference(text_of(1)), OWNER) == text_of(1)
        with pytest.raises(StoreUnavailable, match="it cannot be written to") as said:
            store.keep(OWNER, "c1", by_ref(text_of(2)))
        assert said.value.reason == "read-only"
        assert store.last_error() == "read-only"
        assert store.search("src", OWNER).hits
        own_server.run(f"ALTER DATABASE {name} SET default_transaction_read_only = off")
        store.keep(OWNER, "c1", by_ref(text_of(2)))
        assert store.last_error() is None
        store.close()

    def test_a_lock_of_another_is_waited_for_and_reads_go_on(self, postgres_url: str):
        store = opened(postgres_url, wait=0.2)
        store.keep(OWNER, "c1", by_ref(text_of(1)))
        with psycopg.connect(postgres_url) as other:
            other.execute("LOCK TABLE respool.originals IN EXCLUSIVE MODE")
            begun = time.monotonic()
            with pytest.raises(StoreUnavailable, match="did not answer in time") as said:
                store.keep(OWNER, "c1", by_ref(text_of(2)))
            assert said.value.reason == "busy"
            assert 0.2 <= time.monotonic() - begun < AT_ONCE
            assert store.original(reference(text_of(1)), OWNER) == text_of(1)
        store.keep(OWNER, "c1", by_ref(text_of(2)))
        store.close()

    def test_two_that_wait_for_each_other_both_succeed(self, postgres_url: str):
        store = opened(postgres_url, wait=20)
        store.keep(OWNER, "a", by_ref("a"))
        store.keep(OWNER, "b", by_ref("b"))
        both = threading.Barrier(2)

        def work(first: str, second: str) -> None:
            tries: list[int] = []

            def update(c: Any) -> None:
                c.execute("UPDATE conversations SET prompt = 'x' WHERE name = ?", (first,))
                if not tries:
                    both.wait(20)
                tries.append(1)
                c.execute("UPDATE conversations SET prompt = 'x' WHERE name = ?", (second,))

            store._database.write(update)

        with ThreadPoolExecutor(2) as threads:
            for one in (threads.submit(work, "a", "b"), threads.submit(work, "b", "a")):
                one.result(30)
        assert [one.prompt for one in store.conversations(None)] == ["x", "x"]
        store.close()

    def test_who_is_not_let_in_is_told_why_without_the_password(self, own_server: PostgresServer):
        url = own_server.new_database()
        cases = [
            ("scram-sha-256", url.replace(PASSWORD, "a-wrong-one"), "refused"),
            ("reject", url, "refused"),
            ("trust", url.replace(f"{USER}:", "nobody-known:"), "refused"),
            ("trust", f"{url}_not_there", "missing"),
        ]
        try:
            for how, given, reason in cases:
                own_server.allow(how)
                with contextlib.closing(opened(given)) as store:
                    with pytest.raises(StoreUnavailable) as said:
                        store.salt()
                    assert said.value.reason == reason, (given, said.value)
                    for shown in (str(said.value), repr(said.value), repr(store.location)):
                        assert PASSWORD not in shown
                        assert "a-wrong-one" not in shown
            own_server.allow("scram-sha-256")
            with contextlib.closing(opened(url)) as store:
                assert len(store.salt()) == 32
        finally:
            own_server.allow("trust")

    def test_a_url_that_cannot_be_read_is_not_shown(self):
        with pytest.raises(StoreUnavailable, match="its URL cannot be read") as said:
            opened(f"postgresql://me:{PASSWORD}@host/db?nonsense={PASSWORD}")
        assert PASSWORD not in str(said.value) + repr(said.value)

    def test_schemas_of_others_and_of_newer_versions_are_left_alone(
        self, postgres_server: PostgresServer
    ):
        foreign = postgres_server.new_database()
        ask(foreign, "CREATE SCHEMA respool; CREATE TABLE respool.bookmarks (url text)")
        newer = postgres_server.new_database()
        opened(newer).salt()
        ask(newer, "UPDATE respool.meta SET number = number + 1 WHERE key = 'version'")
        latin = postgres_server.new_database("ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        for url, reason, said in (
            (foreign, "foreign", "another program's"),
            (newer, "newer", "update respool"),
            (latin, "failing", "it has to be UTF8"),
        ):
            with contextlib.closing(opened(url)) as store:
                with pytest.raises(StoreUnavailable, match=said) as raised:
                    store.keep(OWNER, "c1", by_ref("text"))
                assert raised.value.reason == reason
        assert ask(foreign, "SELECT tablename FROM pg_tables WHERE schemaname = 'respool'") == [
            ("bookmarks",)
        ]

    def test_a_command_makes_no_schema(self, postgres_server: PostgresServer):
        url = postgres_server.new_database()
        store = opened(url, create=False)
        with pytest.raises(StoreUnavailable, match="nothing of respool is in it yet"):
            store.refs(None)
        store.close()
        assert ask(url, "SELECT to_regnamespace('respool')") == [(None,)]

    def test_a_schema_that_was_dropped_is_begun_anew(self, postgres_server: PostgresServer):
        url = postgres_server.new_database()
        store, texts = opened(url), by_ref(text_of(1))
        store.keep(OWNER, "c1", texts)
        ask(url, "DROP SCHEMA respool CASCADE")
        with pytest.raises(StoreUnavailable, match="not those that respool made"):
            store.keep(OWNER, "c1", texts)
        store.keep(OWNER, "c1", texts)
        assert store.readable_refs(texts, OWNER) == texts.keys()
        store.close()

    def test_says_when_another_still_sees_what_was_forgotten(self, store: PostgresStore):
        store.keep(OWNER, "c1", by_ref(text_of(1)))
        url = store.location.url  # type: ignore[union-attr]
        with psycopg.connect(url) as other:
            other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            other.execute("SELECT 1 FROM pg_class").fetchall()
            assert not store.forget().erased
            assert store.refs(None) == []
        assert store.forget().erased


def test_a_store_of_an_earlier_version_is_migrated_in_whole_steps(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
):
    url = postgres_server.new_database()
    latest = dialect.MIGRATIONS
    monkeypatch.setattr(dialect, "MIGRATIONS", latest[:1])
    first = opened(url)
    first.salt()
    first._database.write(lambda c: c.execute("INSERT INTO kept VALUES (1, 'a', 1.5)"))
    first.close()
    broken = (*latest, ("DELETE FROM kept", "INSERT INTO nothing VALUES (1)"))
    monkeypatch.setattr(dialect, "MIGRATIONS", broken)
    with contextlib.closing(opened(url)) as store, pytest.raises(StoreUnavailable):
        store.salt()
    assert ask(url, "SELECT number FROM respool.meta WHERE key = 'version'") == [(1.0,)]
    monkeypatch.setattr(dialect, "MIGRATIONS", latest)
    with contextlib.closing(opened(url)) as store:
        store.record(record("r1", prefix="0a"))
        assert store.flush()
        assert [one.prefix for one in store.requests("c1", None)] == ["0a"]
    assert ask(url, "SELECT ref FROM respool.kept") == [("a",)]


def test_words_of_an_earlier_index_are_indexed_again(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
):
    """They were not told apart by team: a search that trusted them would miss its own."""
    url, latest, text = postgres_server.new_database(), dialect.MIGRATIONS, "a needle of the team"
    monkeypatch.setattr(dialect, "MIGRATIONS", latest[:7])
    with contextlib.closing(opened(url)) as store:
        team = new_team("one", NOW)
        store.keep(team.owner, "c1", by_ref(text))
        row = row_of(reference(text), team.owner)
        words = "INSERT INTO search_words VALUES (?, array_to_tsvector(CAST(? AS text[])))"
        store._database.write(lambda c: c.execute(words, (row, ["a", "needle"])))
    monkeypatch.setattr(dialect, "MIGRATIONS", latest)
    with contextlib.closing(opened(url)) as store:
        for _ in range(2):
            for owner in (team.owner, None):
                (hit,) = store.search("needle", owner).hits
                assert hit.ref == reference(text)
    assert ask(url, "SELECT space FROM respool.search_words") == [(team.space,)]


def test_scales_are_those_of_python(store: PostgresStore):
    """They are computed by the database as a record is written."""
    names = {model.id for one in providers for model in one.models}
    names |= {f"openrouter/{name}" for name in list(names)[:50]}
    names |= {"", "GPT-5", "us.anthropic.claude-v2:1", "o1", "o10", "yi-34b", "yield", "step-3"}
    for format in (*known_formats(), "unknown"):
        rows = store._database.read(
            lambda c, format=format: c.execute(
                "SELECT name, max_scale(?1, name) FROM unnest(CAST(?2 AS text[])) name",
                (format, sorted(names)),
            ).fetchall()
        )
        assert len(rows) == len(names)
        assert {name: max_scale(format, name) for name in names} == dict(rows)


def test_zero_bytes_in_texts_are_shown_as_such(store: PostgresStore):
    store.record(record(prompt="a\0b", model="m\0"))
    assert store.flush()
    (found,) = store.conversations(None)
    assert (found.prompt, found.model) == ("a\u2400b", "m\u2400")


def test_connections_are_few(store: PostgresStore):
    store.keep(OWNER, "c1", by_ref(text_of(1)))
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'respool'"

    def work(_: int) -> int:
        store.readable_refs(by_ref(text_of(1)), OWNER)
        return store._database.read(lambda c: c.execute(query).fetchall()[0][0])

    with ThreadPoolExecutor(32) as threads:
        seen = list(threads.map(work, range(300)))
    assert max(seen) <= postgres_database._MAX_CONNECTIONS
    assert len(store._database._idle) <= postgres_database._MAX_IDLE


def test_owners_are_apart_in_sql_too(store: PostgresStore):
    store.keep(OWNER, "c1", by_ref("mine"))
    store.keep(OTHER, "c1", by_ref("theirs"))
    assert store.refs(OWNER) == [reference("mine")]
    assert store.refs(f"{OWNER}' OR '1'='1") == []
