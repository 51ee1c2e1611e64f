"""Stores of both kinds, for tests of what they have in common."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from respool.store import ServerAddress, SQLStore, StoreLocation
from respool.store.postgres import PostgresStore
from tests.store.postgres_server import PostgresServer, serving
from tests.store.support import open_at

BOTH = (
    "sqlite",
    pytest.param(
        "postgres", marks=pytest.mark.skipif(os.name == "nt", reason="the server runs on POSIX")
    ),
)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server for all tests of this process."""
    with serving() as server:
        yield server


@pytest.fixture(scope="session")
def migrated(postgres_server: PostgresServer) -> str:
    """The URL of a database with respool's schema."""
    url = postgres_server.new_database()
    store = PostgresStore(ServerAddress(url))
    store.salt()
    store.close()
    return url


@pytest.fixture
def postgres_url(migrated: str) -> str:
    """The URL of a database with respool's schema, and nothing in it."""
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute("SET search_path = respool")
        for (table,) in connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'respool' AND tablename <> 'meta'"
        ).fetchall():
            connection.execute(f"DELETE FROM {table}")  # type: ignore[arg-type]
        connection.execute("DELETE FROM meta WHERE key LIKE 'clock %'")
    return migrated


@pytest.fixture(params=BOTH)
def location(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    """Where a new store of each kind is."""
    if request.param == "sqlite":
        return tmp_path / "state" / "respool" / "respool.db"
    return ServerAddress(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(location: StoreLocation) -> Iterator[SQLStore]:
    """A new store of each kind."""
    opened = open_at(location)
    yield opened
    opened.close()
