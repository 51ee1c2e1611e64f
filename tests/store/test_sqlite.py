"""The store in a file: permissions, names, commits, and what its bytes hold."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from respool.markers import reference
from respool.store import SQLiteStore
from tests.store.support import OWNER, by_ref, bytes_of, record, text_of
from tests.store.test_store import TestFacts, case

POSIX = pytest.mark.skipif(os.name == "nt", reason="Windows has no permission bits")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "respool" / "respool.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteStore]:
    store = SQLiteStore(path)
    yield store
    store.close()


@POSIX
def test_only_its_owner_may_read_the_file(path: Path):
    before = os.umask(0)
    try:
        store = SQLiteStore(path)
        store.keep(OWNER, "c1", by_ref("text"))
        files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        store.close()
    finally:
        os.umask(before)
    assert files == dict.fromkeys(("respool.db", "respool.db-shm", "respool.db-wal"), 0o600)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700


@POSIX
def test_a_file_that_others_may_read_is_closed_to_them(store: SQLiteStore):
    store.keep(OWNER, "c1", by_ref("text"))
    store.close()
    store.path.chmod(0o644)
    again = SQLiteStore(store.path)
    again.keep(OWNER, "c1", by_ref("another"))
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    again.close()


def test_no_key_is_in_the_file(store: SQLiteStore):
    key = "sk-ant-a-key-of-my-own-0123456789"
    owner = hashlib.blake2b(key.encode(), key=store.salt(), digest_size=16).hexdigest()
    store.keep(owner, "c1", by_ref(text_of(1)))
    store.add_facts("c1", TestFacts.ALL)
    store.record(record(owner=owner))
    store.add_rejected(case(owner=owner))
    assert store.flush()
    written = bytes_of(store.path)
    assert owner.encode() in written  # what was looked for could have been found
    assert key.encode() not in written
    assert hashlib.sha256(key.encode()).hexdigest().encode() not in written


def test_the_salt_is_one_for_all_who_use_the_file(tmp_path: Path, store: SQLiteStore):
    second, elsewhere = SQLiteStore(store.path), SQLiteStore(tmp_path / "another.db")
    assert len(store.salt()) == 32
    assert second.salt() == store.salt() != elsewhere.salt()
    store.path.unlink()
    store.keep(OWNER, "c1", by_ref("a new file"))
    again = SQLiteStore(store.path)
    assert again.salt() == store.salt()  # so that running processes and new ones agree
    for one in (second, elsewhere, again):
        one.close()


def test_work_of_one_thread_that_fails_does_not_fail_anothers(store: SQLiteStore):
    """Both wait for the same commit: one is told its error, the other is durable."""
    store.keep(OWNER, "c1", by_ref("first"))
    database = store._database
    outcomes: list[object] = []

    def wrong(_: object) -> None:
        raise KeyError("mine")

    def attempt(work: object) -> None:
        try:
            outcomes.append(database.write(work))  # type: ignore[arg-type]
        except KeyError as error:
            outcomes.append(error)

    database._lock.acquire()
    works = (wrong, lambda c: c.execute("INSERT INTO meta VALUES ('a', 'b')").rowcount)
    threads = [threading.Thread(target=attempt, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    while len(database._waiting) < 2:
        time.sleep(0.001)
    database._lock.release()
    for thread in threads:
        thread.join()
    assert {type(one) for one in outcomes} == {KeyError, int}
    assert database.read(lambda c: c.execute("SELECT value FROM meta WHERE key='a'").fetchall())


def test_a_commit_waits_for_the_disk(store: SQLiteStore):
    pragmas = ("journal_mode", "synchronous", "secure_delete", "fullfsync")
    values = store._database.run_exclusive(
        lambda c: [c.execute(f"PRAGMA {name}").fetchall()[0][0] for name in pragmas]
    )
    assert values == ["wal", 2, 1, 1]


@pytest.mark.parametrize("name", ["a b.db", "per%20cent?.db", "#1&mode=ro.db", "ä [x].db"])
def test_a_file_may_have_any_name(tmp_path: Path, name: str):
    store = SQLiteStore(tmp_path / name)
    store.keep(OWNER, "c1", by_ref("text"))
    assert store.refs(OWNER) == [reference("text")]
    store.close()
    assert [file.name for file in tmp_path.iterdir()] == [name]


@POSIX
def test_a_link_to_the_file_leads_to_the_same_store(tmp_path: Path, store: SQLiteStore):
    store.keep(OWNER, "c1", by_ref("text"))
    link = tmp_path / "link.db"
    link.symlink_to(store.path)
    second = SQLiteStore(link)
    second.keep(OWNER, "c1", by_ref("more"))
    assert store.readable_refs(by_ref("text", "more"), OWNER) == by_ref("text", "more").keys()
    store.path.unlink()
    second.keep(OWNER, "c1", by_ref("more"))
    assert second.readable_refs(by_ref("text", "more"), OWNER) == by_ref("more").keys()
    second.close()
