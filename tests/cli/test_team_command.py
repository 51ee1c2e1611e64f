"""`respool team`, and --team of other commands, on both kinds of store."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from respool.cli import main
from respool.markers import reference
from respool.store import StoreLocation
from respool.store.teams import Quota
from tests.store.conftest import BOTH, location, migrated, postgres_server, postgres_url
from tests.store.support import NOW, by_ref, open_at, record, text_of

__all__ = ["BOTH", "location", "migrated", "postgres_server", "postgres_url"]  # fixtures


class Command:
    """The command line with a store."""

    def __init__(self, location: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> None:
        self.location = location
        monkeypatch.setenv("RESPOOL_STORE", getattr(location, "url", str(location)))

    def __call__(self, *words: str, fails: str = "") -> str:
        done = CliRunner().invoke(main, words)
        assert (done.exit_code != 0) == bool(fails), done.output
        if fails:
            assert fails in done.output
        return done.stdout

    def teams(self) -> dict[str, Any]:
        return {one["name"]: one for one in json.loads(self("team", "list", "--json"))}


@pytest.fixture
def run(location: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(location, monkeypatch)


def test_a_team_is_added_changed_listed_and_removed(run: Command, tmp_path: Path):
    policy = tmp_path / "billing.toml"
    policy.write_text("cap_chars = 9000\n")
    run(
        "team", "add", "billing", "--policy", str(policy), "--preset", "lean",
        "--quota-dollars", "5.5", "--quota-requests", "100", "--per", "day", "--days", "7",
    )  # fmt: skip
    run("team", "add", "search")
    found = run.teams()
    assert found.keys() == {"billing", "search"}
    assert found["billing"]["settings"] == 'preset = "lean"\ncap_chars = 9000\n'
    assert Quota(**found["billing"]["quota"]) == Quota(5.5, 100, "day", "refuse")
    assert found["billing"]["days"] == 7
    assert Quota(**found["search"]["quota"]) == Quota()
    run("team", "set", "billing", "--quota-requests", "-", "--over-quota", "pass", "--days", "-")
    changed = run.teams()["billing"]
    assert Quota(**changed["quota"]) == Quota(5.5, None, "day", "pass")
    assert changed["days"] is None
    assert "$5.50" in run("team", "list")
    assert "No team is left" not in run("team", "remove", "search", "--yes")
    assert run.teams().keys() == {"billing"}
    assert "proxies that start from now on ask for no token" in run(
        "team", "remove", "billing", "--yes"
    )


def test_tokens_are_shown_once_rotated_and_revoked(run: Command):
    run("team", "add", "billing")
    done = CliRunner().invoke(main, ["team", "token", "billing", "--expires", "90d"])
    token = done.stdout.strip()
    assert len(token) == 44
    run("team", "token", "billing")
    first, second = run.teams()["billing"]["tokens"]
    assert first["expires"] == pytest.approx(time.time() + 90 * 86_400, abs=60)
    assert second["expires"] is None
    assert f"Token {first['id']} of team billing, valid until" in done.stderr
    assert "hash" not in first
    assert token not in run("team", "list") + run("team", "list", "--json")
    run("team", "revoke", first["id"])
    assert run.teams()["billing"]["tokens"][0]["revoked"]
    run("team", "revoke", first["id"], fails="revoked already")
    assert "revoked" in run("team", "list")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("team add Bad_Name", "is no name for a team"),
        ("team add billing", "already"),
        ("team token nobody", "There is no team 'nobody'"),
        ("team token billing --expires soon", "no time such as"),
        ("team set billing", "Say what to change"),
        ("team set billing --days 0", "days of a team"),
        ("team add x --policy missing.toml", "missing.toml"),
        ("team add x --quota-dollars many", "neither a number"),
        ("team remove billing", "--yes"),
        ("stats --team nobody", "There is no team"),
    ],
)
def test_mistakes_are_answered_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, said: str
):
    run = Command(tmp_path / "respool.db", monkeypatch)
    monkeypatch.chdir(tmp_path)
    run("team", "add", "billing")
    run(*words.split(), fails=said)


def test_other_commands_show_one_team(run: Command):
    run("team", "add", "one")
    run("team", "add", "two")
    owners = {name: one["owner"] for name, one in run.teams().items()}
    store = open_at(run.location)
    for name, number in (("one", 1), ("two", 2)):
        store.keep(owners[name], f"c{number}", by_ref(f"shared words\n{text_of(number)}"))
        store.record(record(f"r{number}", owner=owners[name], conversation=f"c{number}", time=NOW))
    assert store.flush()
    store.close()
    assert json.loads(run("stats", "--json", "--team", "one"))["all"]["requests"] == 1
    assert json.loads(run("stats", "--json"))["all"]["requests"] == 2
    hits = json.loads(run("search", "shared", "--json", "--team", "two"))
    assert [hit["ref"] for hit in hits] == [reference(f"shared words\n{text_of(2)}")]
    assert len(json.loads(run("search", "shared", "--json"))) == 2
    run("team", "remove", "one", "--forget", "--yes")
    assert json.loads(run("stats", "--json"))["all"]["requests"] == 1
