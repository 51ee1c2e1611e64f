"""Shared by the store tests: texts, references and child processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psycopg

import respool
from respool.markers import reference
from respool.pricing import Usage
from respool.store import (
    RecordedEdit,
    RequestRecord,
    ServerAddress,
    SQLiteStore,
    SQLStore,
    StoreLocation,
)
from respool.store.postgres import PostgresStore

SOURCE = Path(respool.__file__).parents[1]
ROOT = Path(__file__).parents[2]
OWNER, OTHER = "0" * 32, "f" * 32  # what hashes of two API keys look like
NOW = 1_800_000_000.0


def salt_of(store: SQLiteStore) -> Callable[[], bytes]:
    """The store's salt, as the proxy asks for it; the store is opened."""
    store.salt()
    return store.provisional_salt


def open_at(location: StoreLocation, **options: Any) -> SQLStore:
    """A store with options that only tests give, such as a clock."""
    if isinstance(location, ServerAddress):
        return PostgresStore(location, **options)
    return SQLiteStore(location, **options)


def another(store: SQLStore, **options: Any) -> SQLStore:
    """The same store once more, as another process has it."""
    return open_at(store.location, **options)


def by_ref(*texts: str) -> dict[str, str]:
    return {reference(text): text for text in texts}


def text_of(number: int, lines: int = 20) -> str:
    """A text that no other number has, long enough to be packed."""
    return "".join(f"{number} src/module_{number * 7 + line}.py:{line}\n" for line in range(lines))


def record(id: str = "r1", **fields: Any) -> RequestRecord:
    given: Mapping[str, Any] = {
        "time": NOW,
        "owner": OWNER,
        "conversation": "c1",
        "format": "anthropic",
        "model": "a-model",
        "status": 200,
        "tokens_before": 1_000,
        "tokens_after": 400,
        "saved": 600,
        "usage": Usage(input=10, cache_read=300, cache_write=90, output=5),
        "cost_before": 0.5,
        "cost_after": 0.25,
        "edits": (RecordedEdit("stale", "messages[3]", "read again", 600, "a" * 20),),
    }
    return RequestRecord(**{**given, "id": id, **fields})


def child(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Another process that uses a store: see child_process.py."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.store.child_process", *arguments],
        env={**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{ROOT}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


def bytes_of(path: Path) -> bytes:
    """All that stands in a store's file and in those beside it."""
    return b"".join(file.read_bytes() for file in sorted(path.parent.iterdir()))


def stored_bytes(store: SQLStore) -> bytes:
    """All that stands in a store's files, where the server of tests has them."""
    if isinstance(store, SQLiteStore):
        return bytes_of(store.path)
    assert isinstance(store.location, ServerAddress)
    with psycopg.connect(store.location.url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        found = connection.execute(_FILES).fetchall()
    return b"".join(Path(folder, name).read_bytes() for folder, name in found)


# Tables, their long columns, and the indexes of both.
_FILES = """
    WITH tables AS (SELECT oid, reltoastrelid FROM pg_class
        WHERE relnamespace = 'respool'::regnamespace AND relkind = 'r'),
    all_tables AS (SELECT oid FROM tables UNION SELECT reltoastrelid FROM tables)
    SELECT current_setting('data_directory'), pg_relation_filepath(oid) FROM (
        SELECT oid FROM all_tables WHERE oid <> 0
        UNION SELECT i.indexrelid FROM pg_index i JOIN all_tables t ON i.indrelid = t.oid) every"""
