"""Commands on a store in PostgreSQL: what they say, and that no password is in it."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import respool
from respool.cli import main
from respool.markers import reference
from respool.store import RecordedEdit, ServerAddress, StoreUnavailable, open_store, store_location
from respool.store.postgres import PostgresStore
from tests.store.postgres_server import PASSWORD
from tests.store.support import OWNER, by_ref, record

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the server runs on POSIX")
TEXT = "a needle\nin a haystack\n" * 40


@pytest.fixture
def filled(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a store with one conversation, in RESPOOL_STORE."""
    monkeypatch.setenv("RESPOOL_STORE", postgres_url)
    store = PostgresStore(ServerAddress(postgres_url))
    store.keep(OWNER, "c1", by_ref(TEXT))
    edit = RecordedEdit(
        "stale", "messages[3]", "", 600, reference(TEXT), tool="Read", target="a.py"
    )
    store.record(record(time=time.time(), edits=(edit,)))
    assert store.flush()
    store.close()
    return postgres_url


def told(*words: str, status: int = 0) -> str:
    result = CliRunner().invoke(main, words, input="{}")
    assert result.exit_code == status, result.output
    assert PASSWORD not in result.output
    return result.output


@pytest.mark.parametrize("by", ["variable", "option"])
def test_commands_read_it(filled: str, by: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    given: tuple[str, ...] = ()
    if by == "option":
        given = ("--store", filled)
        monkeypatch.setenv("RESPOOL_STORE", str(tmp_path / "another.db"))
    shown = str(ServerAddress(filled))
    assert "saved $0.2500" in told("stats", *given)
    assert f"{shown}: " in told("status", *given, "--url", "http://127.0.0.1:9")
    assert "healthy" in told("doctor", *given)
    assert "saved $0.2500" in told("statusline", *given)
    assert told("expand", reference(TEXT)[:6], *given) == TEXT
    found = json.loads(told("search", "needle", "--json", *given))
    assert [hit["ref"] for hit in found] == [reference(TEXT)]
    assert f"{shown}" in told("expand", "a" * 20, *given, status=2)
    assert "Deleted: 1 conversation, 1 original, 1 record" in told("forget", "--all", "-y", *given)
    assert told("search", "needle", *given, status=1)


def test_a_library_keeps_originals_in_it(filled: str):
    from respool.integrations.request_compactor import RequestCompactor

    compactor = RequestCompactor(store=filled)
    assert compactor.expand(reference(TEXT)) == TEXT
    compactor.close()


def test_what_it_cannot_be_is_said_before_a_proxy_listens(
    filled: str, monkeypatch: pytest.MonkeyPatch
):
    said = told("serve", "--port", "0", "--store", f"{filled}?nonsense=1", status=2)
    assert "its URL cannot be read" in said
    assert "listens" not in said
    monkeypatch.setitem(sys.modules, "respool.store.postgres", None)
    with pytest.raises(StoreUnavailable, match=r"install '\.\[postgres\]' in a clone"):
        open_store()
    assert "listens" not in told("serve", "--port", "0", status=2)


def test_its_url_is_shown_without_its_secrets():
    location = store_location({"RESPOOL_STORE": f"postgres://me:{PASSWORD}@h:1/d?password=x"})
    assert str(location) == repr(location) == "postgresql://me@h:1/d"
    assert str(store_location({"RESPOOL_STORE": "postgresql:///d"})) == "postgresql:///d"
    assert respool.errors  # the package is imported without a driver
