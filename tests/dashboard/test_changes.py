"""Changes from the dashboard with their protections, filters, tables and the CSV."""

from __future__ import annotations

import csv
import http.client
import io
import json
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from respool.dashboard.queries import to_csv
from respool.store import SQLiteStore
from tests.dashboard.support import Dashboarded, dashboarded, only
from tests.store.support import record
from tests.support.formats import Exchange

TOKEN = "a-token-of-enough-length"
JSON = {"content-type": "application/json"}
DAY = 86_400
MARK = "respool:"


def post(one: Dashboarded, path: str, body: object, **headers: str) -> tuple[int, Any]:
    """Post a change as the page does, or with other headers."""
    connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=10)
    named = {name.replace("_", "-"): value for name, value in (JSON | headers).items()}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("POST", f"{one.prefix}/respool/api/{path}", data, named)
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def was_compacted(one: Dashboarded) -> bool:
    return MARK in one.received[-1].body.decode()


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboarded]:
    """A proxy that one conversation went through."""
    with dashboarded(tmp_path_factory.mktemp("used")) as one:
        one.talk(2)
        yield one


class TestMode:
    def test_pause_and_observe_change_nothing_until_it_compacts_again(self, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            made, task = one.talk(4), "go on with make"
            assert was_compacted(one)
            for mode, recorded in (
                ("pause", "bypassed"),
                ("observe", "observed"),
                ("compact", "compacted"),
            ):
                assert post(one, "mode", {"mode": mode}) == (200, {})
                made.append([Exchange("ok", id=f"call_{len(made)}")])
                one.send(*made, task=task)
                assert was_compacted(one) == (mode == "compact")
                assert only(one)[-1]["mode"] == recorded
                assert one.data("overview")["mode"] == mode
                assert json.loads(one.get("/healthz")[2])["mode"] == mode
            assert only(one)[-3]["fallback"] == "paused"

    def test_a_proxy_that_was_started_to_observe_can_compact(self, tmp_path: Path):
        with dashboarded(tmp_path, observe=True) as one:
            made = one.talk(4)
            assert not was_compacted(one)
            assert post(one, "mode", {"mode": "compact"})[0] == 200
            one.send(*made, [Exchange("ok", id="call_9")], task="go on with make")
            assert was_compacted(one)


class TestPin:
    def test_holds_for_other_servers_with_the_store_and_after_a_restart(self, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            made = one.talk(4)
            name = one.data("conversations")["conversations"][0]["name"]
            assert post(one, "pin", {"conversation": name, "pinned": True}) == (200, {})
            one.send(*made, task="go on with make")
            assert not was_compacted(one)
            assert one.data("conversations")["conversations"][0]["pinned"] is True
            with dashboarded(tmp_path) as other:
                other.sent = one.sent
                made.append([Exchange("ok", id="call_9")])
                other.send(*made, task="go on with make")
                assert not was_compacted(other)
                assert post(other, "pin", {"conversation": name, "pinned": False})[0] == 200
                one.sent = other.sent
            made.append([Exchange("ok", id="call_10")])
            one.send(*made, task="go on with make")
            assert was_compacted(one)

    def test_others_are_compacted_as_before(self, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            one.talk(2)
            name = one.data("conversations")["conversations"][0]["name"]
            post(one, "pin", {"conversation": name, "pinned": True})
            one.talk(3, name="other")
            assert was_compacted(one)

    def test_an_unknown_one_is_said_so(self, used: Dashboarded):
        status, told = post(used, "pin", {"conversation": "x" * 32, "pinned": True})
        assert (status, told) == (
            404,
            {"error": "There is no such conversation, or it was forgotten."},
        )


class TestProtections:
    @pytest.mark.parametrize(
        ("headers", "status"),
        [
            ({"content_type": "text/plain"}, 415),
            ({"content_type": "application/x-www-form-urlencoded"}, 415),
            ({"content_type": "multipart/form-data; boundary=x"}, 415),
            ({"content_type": ""}, 415),
            ({"sec_fetch_site": "cross-site"}, 403),
            ({"sec_fetch_site": "same-site"}, 403),
            ({"origin": "http://evil.example"}, 403),
            ({"origin": "null"}, 403),
            ({"host": "evil.example"}, 403),
            ({"host": "evil.example", "origin": "http://evil.example"}, 403),
        ],
    )
    @pytest.mark.parametrize("path", ["mode", "pin"])
    def test_other_sites_change_nothing(
        self, used: Dashboarded, path: str, headers: dict[str, str], status: int
    ):
        (conversation,) = used.data("conversations")["conversations"]
        body = {
            "mode": {"mode": "pause"},
            "pin": {"conversation": conversation["name"], "pinned": True},
        }[path]
        renamed = {name.replace("_", "-"): value for name, value in headers.items()}
        assert post(used, path, body, **renamed)[0] == status
        assert used.data("overview")["mode"] == "compact"
        assert used.data("conversations")["conversations"][0]["pinned"] is False

    def test_the_token_is_asked_for(self, tmp_path: Path):
        with dashboarded(tmp_path, token=TOKEN) as one:
            prefix, one.prefix = one.prefix, ""
            assert post(one, "mode", {"mode": "pause"})[0] == 401
            one.prefix = prefix
            assert one.data("overview")["mode"] == "compact"
            assert post(one, "mode", {"mode": "pause"})[0] == 200
            assert one.data("overview")["mode"] == "pause"

    @pytest.mark.parametrize(
        ("path", "body", "status"),
        [
            ("mode", {"mode": "off"}, 400),
            ("mode", {"mode": "pause", "more": 1}, 400),
            ("mode", b"{", 400),
            ("mode", b"[" * 4_000, 400),
            ("mode", b" " * 5_000, 413),
            ("pin", {"conversation": 1, "pinned": True}, 400),
            ("pin", {"conversation": "x"}, 400),
            ("overview", {}, 405),
            ("requests.csv", {}, 405),
            ("nothing", {}, 405),
        ],
    )
    def test_what_is_no_change_is_refused(
        self, used: Dashboarded, path: str, body: object, status: int
    ):
        assert post(used, path, body)[0] == status
        assert used.data("overview")["mode"] == "compact"

    def test_changes_are_not_made_by_looking(self, used: Dashboarded):
        for path in ("mode", "pin"):
            status, headers, _ = used.get(f"/respool/api/{path}?mode=pause")
            assert (status, headers["allow"]) == (405, "POST")


def write(path: Path, *records: Any) -> None:
    store = SQLiteStore(path)
    for one in records:
        assert store.record(one)
    store.close()


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboarded]:
    """Requests of two agents in two projects, some of them a month ago."""
    folder = tmp_path_factory.mktemp("mixed")
    now = time.time()
    shop = {"agent": "Claude Code", "project": "/home/a/shop", "prompt": "Fix the LOGIN test"}
    infra = {"agent": "Codex", "project": "/srv/infra", "prompt": "=cmd|' /C calc'!A0"}
    write(
        folder / "respool.db",
        record("a", conversation="c1", time=now - 60, model="large", **shop),
        record("b", conversation="c1", time=now - 50, model="small", **shop),
        record("c", conversation="c2", time=now - 40, model="large", prefix_break="cold", **infra),
        record("d", conversation="c2", time=now - 30 * DAY, model="large", **infra),
    )
    with dashboarded(folder) as one:
        yield one


class TestFilters:
    @pytest.mark.parametrize(
        ("query", "names", "requests"),
        [
            ("", ["c2", "c1"], 3),
            ("agent=Codex", ["c2"], 1),
            ("project=/home/a/shop", ["c1"], 2),
            ("model=small", ["c1"], 1),
            ("model=large", ["c2", "c1"], 2),
            ("agent=Codex&model=small", [], 0),
            ("agent=", [], 0),
            ("search=login", ["c1"], 2),
            ("search=login%20CODEX", [], 0),
            ("search=infra", ["c2"], 1),
            ("search=%25", [], 0),
            ("search=_", [], 0),
            ("search=c1", ["c1"], 2),
        ],
    )
    def test_hold_everywhere(self, mixed: Dashboarded, query: str, names: list[str], requests: int):
        found = mixed.data(f"conversations?{query}")["conversations"]
        assert [one["name"] for one in found] == names
        totals = mixed.data(f"overview?range=day&{query}")["totals"]
        assert sum(one["requests"] for one in totals) == requests
        table = csv.DictReader(io.StringIO(self.table(mixed, query)))
        assert len(list(table)) == requests
        notable = mixed.data(f"notable?{query}")["requests"]
        assert [one["id"] for one in notable] == (["c"] if "c2" in names else [])

    def table(self, one: Dashboarded, query: str) -> str:
        status, headers, body = one.get(f"/respool/api/requests.csv?{query}")
        assert (status, headers["content-type"]) == (200, "text/csv; charset=utf-8")
        assert headers["content-disposition"].startswith("attachment; ")
        return body.decode()

    def test_a_day(self, mixed: Dashboarded):
        since = time.time() - 31 * DAY
        span = f"since={since}&until={since + 2 * DAY}"
        assert [x["name"] for x in mixed.data(f"conversations?{span}")["conversations"]] == ["c2"]
        (total,) = mixed.data(f"overview?{span}")["totals"]
        assert total["requests"] == 1
        assert self.table(mixed, span).count("\n") == 2

    def test_what_can_be_chosen(self, mixed: Dashboarded):
        found = mixed.data("origins")
        assert sorted(found["agents"]) == ["Claude Code", "Codex"]
        assert sorted(found["projects"]) == ["/home/a/shop", "/srv/infra"]
        assert sorted(found["models"]) == ["large", "small"]

    @pytest.mark.parametrize("query", ["search=" + "x" * 201, "agent=" + "x" * 401, "since=x"])
    def test_what_is_too_long_is_refused(self, mixed: Dashboarded, query: str):
        for question in ("conversations", "overview", "notable", "tables", "requests.csv"):
            assert mixed.get(f"/respool/api/{question}?{query}")[0] == 400


class TestTables:
    @pytest.mark.parametrize("period", ["day", "week", "month"])
    def test_sum_up_to_the_same(self, mixed: Dashboarded, period: str):
        found = mixed.data(f"tables?period={period}")
        counted = {
            name: sum(row["requests"] for row in found[name])
            for name in ("periods", "agents", "projects", "models")
        }
        assert set(counted.values()) == {3 if period == "day" else 4}
        money = [sum(row["cost_before"] for row in found[name]) for name in counted]
        assert money == pytest.approx([money[0]] * 4)

    def test_days_are_this_machines(self, mixed: Dashboarded):
        rows = mixed.data("tables?period=day")["periods"]
        today = datetime.now().date().isoformat()
        assert rows[0]["name"] == today or datetime.now().hour == 0

    def test_only_periods(self, mixed: Dashboarded):
        assert mixed.get("/respool/api/tables?period=year")[0] == 400


def test_no_cell_is_a_formula():
    hostile = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"]
    rows = [record(prompt=text, model=text, agent=text, project=text) for text in hostile]
    for row in csv.DictReader(io.StringIO(to_csv(rows).decode(), newline="")):
        for name in ("prompt", "model", "agent", "project"):
            assert row[name].startswith("'"), row
    quoted = next(csv.DictReader(io.StringIO(to_csv([record(prompt='a "b", c\nd')]).decode())))
    assert quoted["prompt"] == 'a "b", c\nd'
