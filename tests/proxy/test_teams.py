"""Teams over the port, as an attacker would try them: nothing of one team reaches another."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import json
import os
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from respool import Policy
from respool.errors import PolicyError
from respool.forecast import text_blocks
from respool.markers import reference
from respool.proxy import access
from respool.proxy.access import Gate
from respool.proxy.asgi import ProxyError, Request
from respool.proxy.auth import Admission, decoded
from respool.proxy.decide import Decider
from respool.proxy.log import LineWriter, LogEntry
from respool.proxy.middleware import ParsedRequest
from respool.proxy.tracing import attributes_of
from respool.store import ServerAddress, SQLiteStore, StoreUnavailable
from respool.store.postgres import PostgresStore
from respool.store.teams import Quota, Team, TeamDirectory, TeamUsage, new_team
from tests.proxy.compaction import INVALID, PATHS, STEPS, answer, request_body
from tests.proxy.sockets import ReceivedRequest, Reply, ask, get, post, reply_with
from tests.proxy.teams import ADMIN, KEY, Teamed, at_once, drive, teamed
from tests.proxy.test_without_store import EAGER
from tests.store.postgres_server import serving as serving_postgres
from tests.store.support import bytes_of
from tests.support.formats import Exchange, request, results

__all__ = ["at_once"]  # a fixture
TEXT = STEPS[0][0].result
REF = reference(TEXT)
UNKNOWN = "a" * 20
API = "/respool/api"
JSON_TYPE = "Content-Type: application/json"


def original(ref: str) -> str:
    return f"/respool/originals/{ref}"


def body_of(reply: Reply) -> Any:
    return json.loads(reply.body)


# --- originals ---------------------------------------------------------------------------------


def test_a_team_reads_its_originals_and_no_other_team_learns_of_them(tmp_path: Path):
    async def act(one: Teamed) -> None:
        assert (await one.send("one")).status == 200
        assert REF in results("anthropic", json.loads(one.behind.received[-1].body))[0]
        mine = await one.get("one", original(REF))
        assert (mine.status, mine.body) == (200, TEXT.encode())
        other = await one.get("two", original(REF))
        unknown = await one.get("two", original(UNKNOWN))
        assert other.status == 404
        assert other.raw == unknown.raw  # byte for byte
        # Neither a stored name of the row, nor the key of the other team's request helps.
        row = f"{REF}~{one.teams['one'].space}"
        for guess in (row, row.replace("~", "%7E"), f"{REF}%00", f"{REF}/../{REF}"):
            assert (await one.get("two", original(guess))).raw == unknown.raw, guess
        assert (await one.get("two", original(REF), KEY)).raw == unknown.raw

    drive(tmp_path, act)


def test_one_key_and_one_history_of_two_teams_share_nothing(tmp_path: Path):
    async def act(one: Teamed) -> None:
        await one.send("one")
        await one.send("two")
        first, second = one.store.conversations(None)
        assert first.name != second.name
        assert {first.owner, second.owner} == {one.owner("one"), one.owner("two")}
        assert first.requests == second.requests == 1
        with _connection(one) as found:
            rows = found.execute("SELECT ref FROM originals WHERE ref LIKE ?", (f"{REF}%",))
            assert len(rows.fetchall()) == 2  # the same text is stored once for each
        one.store.forget(owner=first.owner)
        left = "two" if first.owner == one.owner("one") else "one"
        gone = "one" if left == "two" else "two"
        assert (await one.get(left, original(REF))).status == 200
        assert (await one.get(gone, original(REF))).status == 404

    drive(tmp_path, act)


def _connection(one: Teamed) -> Any:
    return contextlib.closing(sqlite3.connect(str(one.store.location)))


def test_a_forged_owner_is_ignored(tmp_path: Path):
    async def act(one: Teamed) -> None:
        owner = one.owner("one")
        forged = (f"x-respool-owner: {owner}", "x-respool-team: one", f"x-owner: {owner}")
        said = json.loads(request_body("anthropic", 3)) | {"owner": owner, "team": "one"}
        await one.send("two", 3, *forged, body=json.dumps(said).encode())
        assert {one_.owner for one_ in one.store.conversations(None)} == {one.owner("two")}
        path = f"{original(REF)}?owner={owner}&team=one"
        assert (await one.get("one", path)).status == 404

    drive(tmp_path, act)


def test_a_gateway_compresses_for_its_team_alone(tmp_path: Path):
    async def act(one: Teamed) -> None:
        said = {"model": "m", **json.loads(request_body("openai-chat", 4))}
        raw = json.dumps(said).encode()
        reply = await ask(one.port, post("/v1/compress", raw, one.header("one")))
        assert body_of(reply)["tokens_saved"] > 0
        assert (await one.get("one", original(REF))).status == 200
        assert (await one.get("two", original(REF))).status == 404
        bearer = f"authorization: Bearer {one.tokens['two']}"
        assert body_of(await ask(one.port, post("/v1/compress", raw, bearer)))["tokens_saved"] > 0
        one.sent += 2
        await one.recorded()
        assert {one_.owner for one_ in one.store.conversations(None)} == {
            one.owner("one"),
            one.owner("two"),
        }

    drive(tmp_path, act)


# --- tokens ------------------------------------------------------------------------------------


def tokens_that_are_none(one: Teamed) -> Iterator[str]:
    good, stored = one.tokens["one"], one.store.teams.tokens()[0]
    yield from ("", " ", "rst_", "*", "%", "%25", "a" * 44, good[:-1], good + "0", good[4:])
    yield from (stored.id, stored.hash, stored.owner, "one", ADMIN[:-1], ADMIN + "x")
    yield from (good.replace("rst_", "rst-"), f"{good},{good}", "' OR '1'='1", "r\xe9st")
    yield good[:-1] + ("0" if good[-1] != "0" else "1")


@pytest.mark.parametrize("token", [ADMIN, None])
def test_without_a_valid_token_nothing_is_answered_also_on_this_machine(
    tmp_path: Path, token: str | None
):
    async def act(one: Teamed) -> None:
        raw = request_body("anthropic", 3)
        refused = await ask(one.port, post(PATHS["anthropic"], raw, KEY))
        assert (refused.status, body_of(refused)["error"]["type"]) == (401, "authentication_error")
        assert one.behind.received == []
        bare = await ask(one.port, get(f"{API}/overview"))
        for guess in tokens_that_are_none(one):
            for path in (f"{API}/overview", original(REF)):
                reply = await ask(one.port, get(path, f"x-respool-token: {guess}"))
                assert (reply.status, reply.body) == (401, bare.body), guess
        for path in ("/", "/respool/", "/metrics", "/v1/compress", original(REF)):
            accept = "accept: text/html"
            assert (await ask(one.port, get(path, accept))).status == 401, path
        health = await ask(one.port, get("/healthz"))
        assert (health.status, health.body) == (200, b'{"status":"ok"}')

    drive(tmp_path, act, token=token)


@pytest.mark.usefixtures("at_once")
def test_tokens_are_rotated_revoked_and_expire_at_every_proxy(tmp_path: Path):
    async def act(one: Teamed) -> None:
        teams, path = one.store.teams, f"{API}/overview"

        async def status(token: str) -> int:
            return (await ask(one.port, get(path, f"x-respool-token: {token}"))).status

        first = one.tokens["one"]
        made, second = teams.issue("one", time.time())
        assert [await status(first), await status(second)] == [200, 200]
        old = next(t for t in teams.tokens() if t.owner == one.owner("one") and t.id != made.id)
        assert teams.revoke(old.id, time.time())
        assert not teams.revoke(old.id, time.time())
        assert [await status(first), await status(second)] == [401, 200]
        ends = time.time() + 1.0
        _, short = teams.issue("one", time.time(), ends)
        while await status(short) == 200:
            assert time.time() < ends + 30.0
        assert time.time() >= ends
        teams.remove("one")
        assert [await status(second), await status(one.tokens["two"])] == [401, 200]
        teams.add(new_team("one", time.time()))  # another team of the name
        assert await status(second) == 401

    drive(tmp_path, act)


@pytest.mark.usefixtures("at_once")
def test_a_team_that_takes_a_name_reads_nothing_of_the_one_before(tmp_path: Path):
    async def act(one: Teamed) -> None:
        await one.send("one")
        one.store.teams.remove("one")
        one.store.teams.add(new_team("one", time.time()))
        new = one.store.teams.issue("one", time.time())[1]
        header = f"x-respool-token: {new}"
        assert (await ask(one.port, get(original(REF), header))).status == 404
        listed = body_of(await ask(one.port, get(f"{API}/conversations", header)))
        assert listed["conversations"] == []

    drive(tmp_path, act)


def test_a_token_is_stored_as_a_keyed_hash_and_shown_nowhere(tmp_path: Path):
    async def act(one: Teamed) -> None:
        token, port, raw = one.tokens["one"], one.port, request_body("anthropic", 3)
        await one.send("one")
        path = f"/respool-token/{token}{PATHS['anthropic']}"
        assert (await ask(port, post(path, raw, KEY))).status == 200
        one.sent += 1
        await one.recorded()
        own = one.header("one")
        misplaced = [
            post(f"{PATHS['anthropic']}?token={token}", raw, KEY, own),
            post(PATHS["anthropic"], raw, f"x-api-key: {token}", own),
            post(PATHS["anthropic"], raw, f"authorization: Bearer {token}", own),
            post(f"/respool-token/{token}/respool-token/{token}/v1/messages", raw, KEY),
        ]
        for sent in misplaced:
            assert (await ask(port, sent)).status == 400
        assert len(one.behind.received) == 2
        for received in one.behind.received:
            assert token not in f"{received.line} {received.headers} {received.body!r}"
        await ask(port, get(f"/respool/{token}", own))
        metrics = (await one.get(None, "/metrics")).body.decode()
        written = repr(one.records), repr([attributes_of(entry) for entry in one.records]), metrics
        for text in written:
            assert token not in decoded(text)
            assert "one" not in {word.strip('"') for word in text.split("=")}
        assert {entry.team for entry in one.records} >= {"one"}
        with _connection(one) as found:
            dump = "\n".join(map(str, found.iterdump()))
        assert token not in dump
        assert one.store.teams.tokens()[0].hash in dump
        found = bytes_of(tmp_path / "respool.db")
        assert token.encode() not in found
        assert one.store.teams.tokens()[0].hash.encode() in found

    drive(tmp_path, act)


def test_no_line_of_the_log_has_a_token(tmp_path: Path):
    path = tmp_path / "log"
    descriptor = path.open("wb")
    writer = LineWriter(descriptor.fileno())
    token = f"rst_{'0a' * 20}"
    writer.write(f"failed: {token} of first_something_long")
    writer.close()
    descriptor.close()
    assert path.read_text() == "failed: *** of first_something_long\n"


# --- pages -------------------------------------------------------------------------------------

CANARIES = ("canary-model", "canary prompt", "/canary/folder", "canary-agent")


async def with_canary(one: Teamed) -> tuple[str, str]:
    """A conversation of team one that shows in every page; its name, and a request's id."""
    said = request("anthropic", CANARIES[1], *STEPS[:3])
    said |= {"model": CANARIES[0], "system": f"Working directory: {CANARIES[2]}"}
    await one.send("one", 3, f"user-agent: {CANARIES[3]}/1.0", body=json.dumps(said).encode())
    (found,) = one.store.conversations(one.owner("one"))
    (record,) = one.store.requests(found.name, None)
    return found.name, record.id


def test_no_page_shows_anything_of_another_team(tmp_path: Path):
    async def act(one: Teamed) -> None:
        name, id = await with_canary(one)
        now = time.time()
        every = f"since={now - 9_000}&until={now + 9_000}"
        mine = body_of(await one.get("one", f"{API}/conversations"))["conversations"]
        assert [found["name"] for found in mine] == [name]
        edits = body_of(await one.get("one", f"{API}/edits?request={id}"))["edits"]
        assert edits
        before = body_of(await one.get("one", f"{API}/edit?request={id}&at=0"))["before"]
        assert before["text"] == TEXT
        secrets = (name, id, REF, TEXT[:40], one.owner("one"), *CANARIES, str(tmp_path))
        forged = ("", "&team=one", f"&owner={one.owner('one')}", "&team=")
        asked = [
            "overview?", f"overview?{every}", "conversations?limit=200", "notable?range=month",
            "origins?", "tables?period=day", "bill?range=month", "evidence?", "settings?",
            f"requests.csv?{every}", f"requests?conversation={name}",
            f"requests?conversation={name[:6]}", f"edits?request={id}", f"edit?request={id}&at=0",
            f"conversations?search={CANARIES[0]}", f"conversations?last={now + 60}&id=1",
            f"overview?model={CANARIES[0]}", f"notable?search={name[:8]}",
        ]  # fmt: skip
        for path in asked:
            for more in forged:
                reply = await one.get("two", f"{API}/{path}{more}")
                shown = reply.body.decode()
                assert reply.status in (200, 404), (path, reply.body)
                assert not [one_ for one_ in secrets if one_ in shown], path
        overview = body_of(await one.get("two", f"{API}/overview"))
        assert overview["totals"] == []
        assert overview["latest"] is None
        assert overview["calibrations"] == []
        assert overview["store"]["bytes"] == 0

    drive(tmp_path, act)


def test_a_team_does_not_learn_the_servers_files_and_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "respool.toml"
    file.write_text(EAGER)
    teams: dict[str, dict[str, Any]] = {"one": {"settings": "miss_penalty = 3.0"}}

    async def act(one: Teamed) -> None:
        settings = body_of(await one.get("one", f"{API}/settings"))["settings"]
        origins = {row["name"]: row["origin"] for row in settings}
        shown = [origins[name] for name in ("miss_penalty", "cap_chars", "budget")]
        assert shown == ["team one", "the server", "default"]
        whole = body_of(await one.get(None, f"{API}/settings?team=one"))["settings"]
        assert str(file) in {row["name"]: row["origin"] for row in whole}["cap_chars"]

        def full(*_: object) -> None:
            raise StoreUnavailable(tmp_path / "respool.db", "full", "at 10.0.0.5, port 5432")

        monkeypatch.setattr(one.store, "keep", full)
        await one.send("one")
        (found,) = one.store.conversations(None)
        for path in (
            f"{API}/requests?conversation={found.name}",
            f"{API}/requests.csv?range=day",
            f"/respool/requests?conversation={found.name}",
        ):
            shown = (await one.get("one", path)).body.decode()
            assert "not kept: there is no space left" in shown, path
            assert str(tmp_path) not in shown
            assert "10.0.0.5" not in shown

    drive(tmp_path, act, teams=teams, policy=Policy.from_toml(file))


def test_foreign_ids_are_answered_as_unknown_ones(tmp_path: Path):
    async def act(one: Teamed) -> None:
        name, id = await with_canary(one)
        for known, unknown in (
            (f"requests?conversation={name}", f"requests?conversation={'0' * 32}"),
            (f"requests?conversation={name[:5]}", "requests?conversation=00000"),
            (f"requests?conversation={name[:2]}", "requests?conversation=00"),
            (f"edits?request={id}", "edits?request=0000000000000000"),
            (f"edit?request={id}&at=0", "edit?request=0000000000000000&at=0"),
        ):
            first, second = [await one.get("two", f"{API}/{path}") for path in (known, unknown)]
            assert first.raw == second.raw, known
        for pinned in (True, False):
            made = [
                await ask(
                    one.port,
                    post(
                        f"{API}/pin",
                        json.dumps({"conversation": guess, "pinned": pinned}).encode(),
                        one.header("two"),
                        JSON_TYPE,
                    ),
                )
                for guess in (name, "0" * 32)
            ]
            assert [reply.status for reply in made] == [404, 404]
            assert made[0].raw == made[1].raw
            assert not one.store.is_pinned(name)

    drive(tmp_path, act)


def test_a_team_pins_its_own_and_switches_nothing(tmp_path: Path):
    async def act(one: Teamed) -> None:
        name, _ = await with_canary(one)
        pin = json.dumps({"conversation": name, "pinned": True}).encode()
        own = post(f"{API}/pin", pin, one.header("one"), JSON_TYPE)
        assert (await ask(one.port, own)).status == 200
        assert one.store.is_pinned(name)
        switch = post(f"{API}/mode", b'{"mode": "pause"}', one.header("one"), JSON_TYPE)
        assert (await ask(one.port, switch)).status == 403
        assert body_of(await one.get("one", f"{API}/overview"))["mode"] == "compact"
        assert (await one.get("one", "/metrics")).status == 403
        assert (await one.get("one", "/healthz")).body == b'{"status":"ok"}'
        assert b"version" in (await one.get(None, "/healthz")).body

    drive(tmp_path, act)


def test_the_administrator_sees_all_and_each_team(tmp_path: Path):
    async def act(one: Teamed) -> None:
        await with_canary(one)
        await one.send("two")
        await one.send("two", 4)

        async def count(query: str) -> int:
            found = body_of(await one.get(None, f"{API}/overview?range=day{query}"))
            return sum(total["requests"] for total in found["totals"])

        assert [await count(query) for query in ("", "&team=one", "&team=two")] == [3, 1, 2]
        assert (await one.get(None, f"{API}/overview?team=none")).status == 404
        assert body_of(await one.get(None, f"{API}/origins"))["teams"] == ["one", "two"]
        rows = body_of(await one.get(None, f"{API}/tables"))["teams"]
        assert {row["name"]: row["requests"] for row in rows} == {"one": 1, "two": 2}
        own = body_of(await one.get("two", f"{API}/tables"))
        assert own["teams"] == []
        assert body_of(await one.get("two", f"{API}/origins"))["teams"] == []
        assert (await one.get("two", "/", "accept: text/html")).status == 200

    drive(tmp_path, act)


def test_row_ids_do_not_count_what_other_teams_do(tmp_path: Path):
    """The ids of a team's pages are masked, and lead on to the next page all the same."""

    async def act(one: Teamed) -> None:
        for at in range(5):
            said = request("anthropic", f"task {at}", *STEPS[:2])
            await one.send("one" if at % 2 else "two", body=json.dumps(said).encode())
        seen: list[str] = []
        query = "limit=1"
        while True:
            page = body_of(await one.get("two", f"{API}/conversations?{query}"))
            seen += [found["name"] for found in page["conversations"]]
            if page["next"] is None:
                break
            query = f"limit=1&last={page['next']['last']!r}&id={page['next']['id']}"
            assert int(page["next"]["id"]) > 1_000_000
        known = one.store.conversations(one.owner("two"))
        assert seen == [found.name for found in known]
        assert len(seen) == 3

    drive(tmp_path, act)


# --- policy and quota --------------------------------------------------------------------------


def test_each_team_has_its_settings_and_they_may_change(tmp_path: Path):
    lax = "passes = []\n"
    teams: dict[str, dict[str, Any]] = {"one": {}, "two": {"settings": lax}}

    async def act(one: Teamed) -> None:
        await one.send("one")
        await one.send("two")
        first, second = [len(received.body) for received in one.behind.received]
        assert first < second == len(request_body("anthropic", 3))
        shown = body_of(await one.get("two", f"{API}/settings"))["settings"]
        assert next(row for row in shown if row["name"] == "passes")["value"] == []
        other = body_of(await one.get("one", f"{API}/settings"))["settings"]
        assert next(row for row in other if row["name"] == "passes")["value"] == ["cap_results"]

    drive(tmp_path, act, teams=teams)


def test_settings_of_another_version_leave_the_servers_in_force(tmp_path: Path):
    async def act(one: Teamed) -> None:
        with _connection(one) as found:
            found.execute("UPDATE teams SET settings = 'not_yet_known = 1' WHERE name = 'one'")
            found.commit()
        await one.send("one")
        assert len(one.behind.received[0].body) < len(request_body("anthropic", 3))

    drive(tmp_path, act)
    with pytest.raises(PolicyError, match="not_yet_known"):
        new_team("three", 1.0, settings="not_yet_known = 1")


ERRORS: dict[str, Callable[[Any], Any]] = {
    "anthropic": lambda body: body["error"]["type"] == "rate_limit_error",
    "openai-chat": lambda body: body["error"]["type"] == "insufficient_quota",
    "openai-responses": lambda body: body["error"]["code"] == "quota",
    "gemini": lambda body: body["error"]["status"] == "RESOURCE_EXHAUSTED",
}


@pytest.mark.usefixtures("at_once")
def test_a_used_quota_is_refused_in_the_providers_shape_and_counts_over_all_servers(
    tmp_path: Path,
):
    quota = Quota(requests=2, period="day")
    teams: dict[str, dict[str, Any]] = {"one": {"quota": quota}, "two": {}}

    async def act(one: Teamed) -> None:
        await one.send("one")
        async with teamed(tmp_path, teams={}) as other:  # a second server with the same store
            other.teams, other.tokens, other.sent = one.teams, one.tokens, 1
            assert (await other.send("one", 4)).status == 200
        one.sent = 2
        for format, is_in_shape in ERRORS.items():
            raw = request_body(format, 3)
            reply = await ask(one.port, post(PATHS[format], raw, KEY, one.header("one")))
            headers = dict(reply.headers)
            assert reply.status == 429, format
            assert is_in_shape(body_of(reply)), format
            assert b"2 of 2 requests of this day; it resets at" in reply.body
            assert 0 < int(headers[b"retry-after"]) <= 86_400
            assert headers[b"x-should-retry"] == b"false"
        assert len(one.behind.received) == 1
        assert (await one.get("one", f"{API}/overview")).status == 200
        assert (await ask(one.port, get("/v1/models", KEY, one.header("one")))).status == 200
        raw = json.dumps({"model": "m", **json.loads(request_body("openai-chat", 4))}).encode()
        compress = await ask(one.port, post("/v1/compress", raw, one.header("one")))
        assert compress.status == 429
        assert (await one.send("two")).status == 200
        one.store.teams.change("one", quota=Quota(requests=9, period="day"))
        assert (await one.send("one", 5)).status == 200

    drive(tmp_path, act, teams=teams)


@pytest.mark.usefixtures("at_once")
def test_over_a_quota_of_dollars_requests_may_pass_as_they_came(tmp_path: Path):
    usage = {"input_tokens": 1_000_000, "output_tokens": 10}
    paid = answer(200, {"type": "message", "model": "claude-sonnet-4-5", "usage": usage})
    quota = Quota(dollars=1.0, when_over="pass")
    said = request("anthropic", "go on", *STEPS[:3]) | {"model": "claude-sonnet-4-5"}
    raw = json.dumps(said).encode()

    async def act(one: Teamed) -> None:
        for _ in range(2):
            assert (await one.send("one", body=raw)).status == 200
        sizes = [len(received.body) for received in one.behind.received]
        assert sizes[0] < sizes[1] == len(raw)
        (last,) = [r for r in one.store.records(one.owner("one")) if r.mode == "bypassed"]
        assert last.fallback == "over quota"
        used = one.store.teams.directory(time.time()).usage_of(one.teams["one"])
        assert (used.requests, round(used.dollars)) == (2, 6)

    given = {"quota": quota}
    drive(tmp_path, act, teams={"one": given}, script=reply_with(paid))


@pytest.mark.usefixtures("at_once")
def test_requests_sent_at_once_are_counted_while_they_are_in_flight(tmp_path: Path):
    teams: dict[str, dict[str, Any]] = {"one": {"quota": Quota(requests=3)}, "two": {}}
    held = asyncio.Event()

    async def script(_: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await held.wait()
        writer.write(answer(200, {}))

    async def act(one: Teamed) -> None:
        raw = request_body("anthropic", 3)
        sent = [
            asyncio.create_task(ask(one.port, post(PATHS["anthropic"], raw, KEY, one.header(team))))
            for team in ("one",) * 7 + ("two",)
        ]
        ended = itertools.islice(asyncio.as_completed(sent, timeout=20), 4)
        first = [await one_ for one_ in ended]
        assert [reply.status for reply in first] == [429] * 4
        assert b"3 of 3 requests" in first[0].body
        held.set()
        statuses = [(await reply).status for reply in sent]
        assert sorted(statuses) == [200] * 4 + [429] * 4
        assert len(one.behind.received) == 4

    drive(tmp_path, act, teams=teams, script=script)


@pytest.mark.usefixtures("at_once")
def test_requests_that_are_not_read_count_for_the_quota_and_are_not_shown(tmp_path: Path):
    """Else a team could send what it likes behind an id of the provider, or in pieces too large."""
    usage = {"input_tokens": 1_000_000, "output_tokens": 0}
    paid = answer(200, {"object": "response", "model": "gpt-5", "usage": usage})
    teams: dict[str, dict[str, Any]] = {"one": {"quota": Quota(requests=4)}, "two": {}}
    stored = {"model": "gpt-5", "previous_response_id": "resp_1", "input": "go on"}
    unread: list[tuple[str, bytes]] = [
        ("/v1/responses", json.dumps(stored).encode()),
        ("/v1/responses", b"no JSON"),
        ("/v1/embeddings", b'{"model": "m", "input": "x"}'),
        ("//v1/messages", request_body("anthropic", 3)),
    ]
    free = [
        post("/v1/messages/count_tokens", request_body("anthropic", 3), KEY),
        get("/v1/models", KEY),
    ]

    async def act(one: Teamed) -> None:
        def used() -> TeamUsage:
            return one.store.teams.directory(time.time()).usage_of(one.teams["one"])

        for sent in free:
            head, _, rest = sent.partition(b"\r\n")
            named = b"%b\r\n%b\r\n%b" % (head, one.header("one").encode(), rest)
            assert (await ask(one.port, named)).status == 200
        for path, raw in unread:
            reply = await ask(one.port, post(path, raw, KEY, one.header("one")))
            assert reply.status == 200, path
        for _ in range(400):
            if used().requests >= len(unread):
                break
            await asyncio.sleep(0.05)
        assert used().requests == len(unread)
        assert used().dollars == pytest.approx(2 * 1.25)  # by the answers' usage
        assert one.store.records(None) == []
        path, raw = unread[2]
        assert (await ask(one.port, post(path, raw, KEY, one.header("one")))).status == 429
        assert (await ask(one.port, post(path, raw, KEY, one.header("two")))).status == 200

    drive(tmp_path, act, teams=teams, script=reply_with(paid))


def test_a_team_whose_requests_fail_opens_its_own_circuit_breaker(tmp_path: Path):
    async def script(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        is_projection = b"respool:" in received.body and b"task of one" in received.body
        writer.write(INVALID if is_projection else answer(200, {}))

    async def act(one: Teamed) -> None:
        for at in range(6):
            said = request("anthropic", f"task of one, {at}", *STEPS[:3])
            await one.send("one", body=json.dumps(said).encode())
        assert dict((await one.send("one")).headers)[b"x-respool-sent"] != b"projection"
        health = body_of(await one.get(None, "/healthz"))
        assert health["circuit_breaker"]["phase"] == "open"
        assert dict((await one.send("two")).headers)[b"x-respool-sent"] == b"projection"
        overview = body_of(await one.get("two", f"{API}/overview"))
        assert overview["breaker"]["phase"] == "closed"

    drive(tmp_path, act, script=script)


# --- the store cannot be read ------------------------------------------------------------------


class Directory:
    """Teams that can be read, or not."""

    def __init__(self, known: TeamDirectory) -> None:
        self.known, self.fails, self.reads = known, False, 0
        self.used: list[tuple[str, float]] = []

    def directory(self, now: float) -> TeamDirectory:
        self.reads += 1
        if self.fails:
            raise StoreUnavailable(Path("x"), "busy")
        return self.known

    def note_used(self, id: str, time: float) -> None:
        self.used.append((id, time))


def admission(token: str) -> Admission:
    return Admission(Request("GET", "/", "", (), {}), token, "")


def test_known_teams_count_for_an_hour_while_the_store_cannot_be_read(tmp_path: Path):
    store, now = SQLiteStore(tmp_path / "respool.db"), [0.0]
    store.teams.add(new_team("one", 1.0))
    token = store.teams.issue("one", 1.0)[1]
    source = Directory(store.teams.directory(2.0))
    store.close()

    async def run() -> None:
        gate = Gate(None, source, clock=lambda: 7_300.0, elapsed=lambda: now[0])

        async def refusal(token: str) -> int:
            try:
                await gate.admit(admission(token))
            except ProxyError as error:
                return error.status
            return 0

        assert [await refusal(token), await refusal("x")] == [0, 401]
        assert source.reads == 1  # within a second the teams are read once
        source.fails = True
        for now[0], status in ((2.0, 0), (60.0, 0), (3_599.0, 0), (3_700.0, 503)):
            assert await refusal(token) == status, now
        assert await refusal("x") == 401  # where teams were known, nobody comes in without
        source.fails, now[0] = False, 3_800.0
        assert await refusal(token) == 0
        source.known = replace(source.known, tokens={})
        now[0] = 3_803.0  # the bound that the documentation names
        assert await refusal(token) == 401
        await gate.close()
        assert [time for _, time in source.used] == [7_200.0]  # once an hour

        fresh = Gate(None, source, elapsed=lambda: now[0])
        source.fails = True
        assert (await fresh.admit(admission(""))).team is None  # as without teams
        with pytest.raises(ProxyError, match="teams cannot be read"):
            await fresh.admit(admission(token))

    asyncio.run(run())


def test_a_server_without_teams_serves_on_however_long_its_store_is_lost():
    source, now = Directory(TeamDirectory()), [0.0]

    async def run() -> None:
        gate = Gate(None, source, elapsed=lambda: now[0])
        for now[0] in (0.0, 3_000.0, 4_000.0, 90_000.0):
            for to_page in (False, True):
                assert (await gate.admit(admission(""), to_page=to_page)).team is None
            source.fails = True
        await gate.close()

    asyncio.run(run())


def test_a_store_that_has_lost_its_teams_opens_no_proxy_that_knew_them(tmp_path: Path):
    """A database that was dropped and begun anew would be filled by the requests in flight."""
    store = SQLiteStore(tmp_path / "respool.db")
    source = Directory(store.teams.directory(1.0))
    store.teams.add(new_team("one", 1.0))
    token = store.teams.issue("one", 1.0)[1]
    elapsed = itertools.count(0.0, 10.0)

    async def run() -> None:
        gate = Gate(None, source, elapsed=lambda: next(elapsed))
        assert (await gate.admit(admission(""))).team is None  # before there was a team
        empty, source.known = source.known, store.teams.directory(2.0)
        assert (await gate.admit(admission(token))).team is not None
        source.known = empty
        for given in ("", token):
            for to_page in (False, True):
                with pytest.raises(ProxyError, match="asks for its token"):
                    await gate.admit(admission(given), to_page=to_page)
        await gate.close()

    asyncio.run(run())
    store.close()


def test_teams_are_read_however_busy_the_pages_are(tmp_path: Path):
    """A team that is about to be revoked cannot keep the proxy from reading that."""
    store, now = SQLiteStore(tmp_path / "respool.db"), [0.0]
    store.teams.add(new_team("one", 1.0))
    made, token = store.teams.issue("one", 1.0)

    async def run() -> None:
        gate = Gate(None, store.teams, elapsed=lambda: now[0])
        assert (await gate.admit(admission(token))).team is not None
        store.teams.revoke(made.id, 2.0)
        held, loop = threading.Event(), asyncio.get_running_loop()
        busy = [loop.run_in_executor(None, held.wait, 20) for _ in range(64)]
        now[0] = 5.0
        try:
            with pytest.raises(ProxyError, match="asks for its token"):
                await gate.admit(admission(token))
        finally:
            held.set()
            await asyncio.gather(*busy)
        await gate.close()

    asyncio.run(run())
    store.close()


class SlowDirectory(Directory):
    """Teams that take a while to be read."""

    def __init__(self, known: TeamDirectory) -> None:
        super().__init__(known)
        self.may_end = threading.Event()

    def directory(self, now: float) -> TeamDirectory:
        assert self.may_end.wait(20)
        return super().directory(now)


def test_no_page_is_shown_before_it_is_known_that_there_are_no_teams(
    monkeypatch: pytest.MonkeyPatch,
):
    """A proxy that has just started, without a token of its own, and a store that is slow."""
    monkeypatch.setattr(access, "_WAIT_SECONDS", 0.01)

    async def refusal(gate: Gate, *, to_page: bool) -> int:
        try:
            await gate.admit(admission(""), to_page=to_page)
        except ProxyError as error:
            return error.status
        return 0

    async def run(known: TeamDirectory, expected: int) -> None:
        slow = SlowDirectory(known)
        gate = Gate(None, slow)
        assert await refusal(gate, to_page=False) == 0  # requests go on
        pages = [asyncio.create_task(refusal(gate, to_page=True)) for _ in range(3)]
        done, _ = await asyncio.wait(pages, timeout=0.1)
        assert not done
        slow.may_end.set()
        assert [await page for page in pages] == [expected] * 3

        failing = Directory(known)
        failing.fails = True
        gate = Gate(None, failing, elapsed=lambda: 0.0)
        assert await refusal(gate, to_page=True) == 0  # it says why the store cannot be read
        failing.fails = False
        assert await refusal(gate, to_page=False) == 0  # within a second the teams are read once
        assert await refusal(gate, to_page=True) == expected

    asyncio.run(run(TeamDirectory(teams=(new_team("one", 1.0),)), 401))
    asyncio.run(run(TeamDirectory(), 0))


# --- time --------------------------------------------------------------------------------------


def _parsed(body: bytes, team: Team) -> ParsedRequest:
    return ParsedRequest(
        method="POST",
        path="",
        query="",
        headers=(),
        format="anthropic",
        operation="generate",
        model=None,
        stream=None,
        body=bytes(bytearray(body)),
        team=team,
        owner=team.owner,
        account=f"{team.owner} key",
        time=1e9,
    )


def _body(seed: int) -> bytes:
    rows = [f"{seed * 7 + at} of {'abcdefghij'[at % 10] * 9} src/m_{at}.py" for at in range(300)]
    steps = [
        [Exchange("\n".join(rows[at:]), id=f"call_{at}", args={"command": f"make {seed}_{at} | x"})]
        for at in range(6)
    ]
    schema = {"type": "object", "properties": {"command": {"type": "string"}}}
    tools = [{"name": f"tool_{seed}", "description": f"runs {seed}", "input_schema": schema}]
    said = request("anthropic", f"go on {seed}", *steps)
    return json.dumps(said | {"system": f"You are {seed}.", "tools": tools}).encode()


def _work(task: Callable[[], object]) -> Counter[tuple[str, ...]]:
    """Every call of a function, by name: what a task does, whatever else the machine does."""
    seen: Counter[tuple[str, ...]] = Counter()

    def profile(frame: Any, event: str, arg: Any) -> None:
        if event == "call":
            seen[frame.f_code.co_filename, frame.f_code.co_qualname] += 1
        elif event == "c_call":
            seen["C", getattr(arg, "__qualname__", str(arg))] += 1

    gc.collect()
    gc.disable()  # its callbacks are calls, too
    sys.setprofile(profile)
    try:
        task()
    finally:
        sys.setprofile(None)
        gc.enable()
    return seen


@pytest.mark.parametrize(("preset", "seed"), [("safe", 10), ("lean", 20), ("tight", 30)])
def test_a_request_costs_the_same_work_whether_another_team_has_sent_it_or_not(
    tmp_path: Path, preset: str, seed: int, monkeypatch: pytest.MonkeyPatch
):
    """Memo, caches of texts and the store: none of them is faster for what others have sent.

    No other test of this process sends these bodies, so the unknown one comes first. The cache of
    blocks is a new one: what other tests left in it would be evicted in one trial or the other.
    """
    monkeypatch.setattr(text_blocks, "_BLOCKS", text_blocks._BlockCache())  # pyright: ignore[reportPrivateUsage]

    def trial(name: str, *, is_known: bool, at: int = 0) -> Counter[tuple[str, ...]]:
        store = SQLiteStore(tmp_path / f"{name}.db")
        decider = Decider(Policy.preset(preset), store)
        one, two = new_team("one", 1.0), new_team("two", 1.0)
        decider.decide(_parsed(_body(seed if is_known else seed + 1), one))
        work = _work(lambda: decider.decide(_parsed(_body(seed + at), two)))
        store.close()
        return work

    trial("warm", is_known=False, at=2)  # patterns and tables are made with their first use
    unknown, known = trial("unknown", is_known=False), trial("known", is_known=True)
    assert sum(unknown.values()) > 10_000
    differing = {key: (known[key], unknown[key]) for key in known | unknown}
    assert {key: pair for key, pair in differing.items() if pair[0] != pair[1]} == {}


def test_the_same_request_again_is_less_work(tmp_path: Path):
    """The measure of the test above sees what a cache saves."""
    store = SQLiteStore(tmp_path / "respool.db")
    decider, one = Decider(Policy.preset("lean"), store), new_team("one", 1.0)
    first = _work(lambda: decider.decide(_parsed(_body(1), one)))
    again = _work(lambda: decider.decide(_parsed(_body(1), one)))
    store.close()
    assert sum(again.values()) < sum(first.values()) / 2


def test_log_entries_name_the_team(tmp_path: Path):
    async def act(one: Teamed) -> None:
        await one.send("one")
        await one.get("two", f"{API}/overview")
        await ask(one.port, get(f"{API}/overview"))
        assert [entry.team for entry in one.records] == ["one", "two", None]
        assert isinstance(one.records[0], LogEntry)

    drive(tmp_path, act)


@pytest.mark.skipif(os.name == "nt", reason="the server runs on POSIX")
@pytest.mark.usefixtures("at_once")
def test_teams_in_a_database_are_those_of_every_server(tmp_path: Path):
    """What one server keeps for a team, another gives to that team alone."""

    async def act(url: str) -> None:
        def opened() -> PostgresStore:
            return PostgresStore(ServerAddress(url))

        async with (
            teamed(tmp_path, store=opened(), teams={"one": {"days": 3.0}, "two": {}}) as first,
            teamed(tmp_path, store=opened(), teams={}) as second,
        ):
            second.teams, second.tokens = first.teams, first.tokens
            await first.send("one")
            unknown = await second.get("two", original(UNKNOWN))
            assert (await second.get("one", original(REF))).body == TEXT.encode()
            assert (await second.get("two", original(REF))).raw == unknown.raw
            assert (await second.get("two", original(REF), KEY)).raw == unknown.raw
            used = second.store.teams.directory(time.time()).usage_of(first.teams["one"])
            assert used.requests == 1
            (token,) = [
                t for t in second.store.teams.tokens() if t.owner == first.teams["one"].owner
            ]
            second.store.teams.revoke(token.id, time.time())
            assert (await first.get("one", original(REF))).status == 401

    with serving_postgres() as server:
        asyncio.run(asyncio.wait_for(act(server.new_database()), 60))
