"""Migrations: an older file is brought to the latest version in whole steps."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from respool.facts import Facts
from respool.markers import reference
from respool.store import SQLiteStore, StoreUnavailable, database_file
from respool.store.database_file import (
    MIGRATIONS,
    Migration,
    migrate,
    quarantined_files,
    read_version,
)
from respool.store.meta import read_salt
from tests.store.support import NOW, OWNER, by_ref, record, text_of

LATEST = len(MIGRATIONS)
TITLES: Migration = (
    "ALTER TABLE conversations ADD COLUMN title TEXT NOT NULL DEFAULT ''",
    "UPDATE conversations SET title = 'about ' || name",
)
BROKEN: Migration = ("DELETE FROM conversations", "INSERT INTO nothing VALUES (1)")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of this version with something in it."""
    path = tmp_path / "respool.db"
    store = SQLiteStore(path)
    store.keep(OWNER, "c1", by_ref(text_of(1)))
    store.add_facts("c1", Facts(cold=frozenset({"0a"})))
    store.record(record())
    store.close()
    return path


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def test_every_version_leads_to_the_same_tables(tmp_path: Path):
    """Step by step or all at once: a file's age does not show."""
    shapes: set[tuple[tuple[str, ...], ...]] = set()
    for first in range(LATEST + 1):
        with opened(tmp_path / f"{first}.db") as connection:
            migrate(connection, b"s" * 32, MIGRATIONS[:first])
            migrate(connection, None, MIGRATIONS)
            assert read_version(connection) == LATEST
            assert read_salt(connection) == b"s" * 32 or first == 0
            rows = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name")
            shapes.add(tuple(rows.fetchall()))
    assert len(shapes) == 1


def test_a_store_without_agents_and_prompts_opens_and_goes_on(path: Path):
    """As an earlier version wrote it: three migrations, and a record without the new columns."""
    losses = ("head_cost", "expired", "expired_cost", "missed", "missed_cost")
    new = {
        "requests": ("agent", "project", *losses, "arm", "unit"),
        "conversations": ("prompt", "pinned"),
    }
    with opened(path) as connection:
        for table in ("keep_alive", "tools", "teams", "team_tokens", "team_usage"):
            connection.execute(f"DROP TABLE {table}")
        for table, columns in new.items():
            for column in columns:
                connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.execute("PRAGMA user_version = 3")
        rows = connection.execute("SELECT sql FROM sqlite_master WHERE type = 'table'").fetchall()
        assert not any("prompt" in sql for (sql,) in rows)
    store = SQLiteStore(path)
    (old,) = store.conversations(None)
    assert (old.agent, old.project, old.prompt, old.pinned) == ("", "", "", False)
    assert old.requests == 1
    store.record(record("r2", agent="Codex", project="/w", prompt="first"))
    store.record(record("r3", agent="pi", project="/x", prompt="second", time=NOW + 1))
    assert store.flush()
    (both,) = store.conversations(None)
    assert (both.agent, both.project, both.prompt) == ("pi", "/x", "first")
    totals = store.totals_by_origin(None, since=0.0, until=4e9)
    assert [(one.agent, one.total.requests) for one in totals] == [("", 1), ("Codex", 1), ("pi", 1)]
    assert store.set_pinned(both.name, True)
    assert store.is_pinned(both.name)
    store.close()


def test_what_was_there_is_there_and_the_step_is_taken_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as newer:
        newer.setattr(database_file, "MIGRATIONS", (*MIGRATIONS, TITLES))
        for _ in range(2):  # a step that is taken twice fails
            store = SQLiteStore(path)
            assert store.original(reference(text_of(1)), OWNER) == text_of(1)
            assert store.facts("c1").cold == {"0a"}
            assert [one.id for one in store.requests("c1", OWNER)] == ["r1"]
            store.close()
    with opened(path) as connection:
        assert read_version(connection) == LATEST + 1
        assert connection.execute("SELECT title FROM conversations").fetchall() == [("about c1",)]
    data = path.read_bytes()
    store = SQLiteStore(path)
    with pytest.raises(StoreUnavailable, match="a newer version of respool has written it"):
        store.original(reference(text_of(1)), OWNER)
    store.close()
    assert path.read_bytes() == data


def test_a_step_that_fails_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch):
    with opened(path) as connection:
        with pytest.raises(sqlite3.OperationalError):
            migrate(connection, None, (*MIGRATIONS, TITLES, BROKEN))
        assert read_version(connection) == LATEST
        assert connection.execute("SELECT name FROM conversations").fetchall() == [("c1",)]
    store = SQLiteStore(path)
    assert store.original(reference(text_of(1)), OWNER) == text_of(1)
    store.close()


def test_one_that_has_to_wait_finds_it_done(path: Path):
    steps = (*MIGRATIONS, TITLES)
    with opened(path) as first, opened(path) as second:
        assert read_version(second) == LATEST
        migrate(first, None, steps)
        migrate(second, None, steps)
        assert read_version(second) == LATEST + 1


def test_a_file_that_cannot_be_brought_up_now_is_no_damaged_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(database_file, "MIGRATIONS", (*MIGRATIONS, TITLES))
    store = SQLiteStore(path, wait=0.1)
    with opened(path) as other:
        other.execute("BEGIN IMMEDIATE")
        for attempt in (
            lambda: store.original(reference(text_of(1)), OWNER),
            lambda: store.keep(OWNER, "c1", by_ref(text_of(2))),
        ):
            with pytest.raises(StoreUnavailable) as error:
                attempt()
            assert error.value.reason == "busy"
        other.execute("ROLLBACK")
    assert store.original(reference(text_of(1)), OWNER) == text_of(1)
    store.close()
    assert quarantined_files(path) == []


def test_a_file_that_was_only_just_made_is_one(tmp_path: Path):
    """A process that is killed then leaves an empty file behind."""
    path = tmp_path / "respool.db"
    path.touch()
    store = SQLiteStore(path)
    store.keep(OWNER, "c1", by_ref(text_of(1)))
    assert store.refs(OWNER) == [reference(text_of(1))]
    store.close()
    assert quarantined_files(path) == []
