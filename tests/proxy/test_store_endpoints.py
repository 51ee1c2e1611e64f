"""Search, conversations and requests over the port, as an attacker would try them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from respool.dashboard import http_api
from respool.markers import reference
from respool.proxy import store_endpoints
from respool.proxy.auth import owner_of
from respool.store import RecordedEdit, SQLStore, StoreLocation
from tests.proxy.sockets import Reply, ask, get, post
from tests.proxy.teams import ADMIN, Teamed, at_once, drive
from tests.proxy.test_teams import tokens_that_are_none
from tests.store.support import by_ref, open_at, record, text_of

__all__ = ["at_once"]  # a fixture
HALF = "half \ud83d of it"
SECRET = f"zanzibar is a word of the first team\n{HALF}\n{text_of(1)}"
REF = reference(SECRET)
MINE = f"a word of both\n{text_of(2)}"
NAME, OTHER_NAME = "c0ffee0123456789", "deadbeef98765432"
SEARCH, NAMES = "/respool/search", "/respool/names"
CONVERSATIONS, REQUESTS = "/respool/conversations", "/respool/requests"


def fill(store: SQLStore, owner: str, name: str, text: str) -> None:
    """One conversation of an owner, with an original and a request."""
    store.keep(owner, name, by_ref(text))
    edit = RecordedEdit("stale", "messages[3]", "read again", 600, reference(text), tool="Read")
    fields: dict[str, Any] = {"owner": owner, "conversation": name, "prompt": f"prompt of {name}"}
    store.record(record(f"request of {name}", time=time.time(), edits=(edit,), **fields))
    assert store.flush()


def fill_both(one: Teamed) -> None:
    fill(one.store, one.owner("one"), NAME, SECRET)
    fill(one.store, one.owner("two"), OTHER_NAME, MINE)


def at(path: str, **query: object) -> str:
    return f"{path}?{urlencode(query)}"


def told(reply: Reply) -> Any:
    assert reply.status == 200, reply.raw
    return json.loads(reply.body)


# --- isolation ---------------------------------------------------------------------------------


def probes() -> Iterator[tuple[str, str]]:
    """Questions about what only team one has, each with the same about what nobody has."""
    unknown = "a" * 20
    yield f"/respool/originals/{REF}", f"/respool/originals/{unknown}"
    for count in (1, 4, 8, 19, 20):
        for kind, known, nobody in (("reference", REF, unknown), ("conversation", NAME, "b" * 16)):
            asked = (at(NAMES, kind=kind, beginning=name[:count]) for name in (known, nobody))
            yield next(asked), next(asked)
    yield at(REQUESTS, conversation=NAME), at(REQUESTS, conversation="b" * 16)
    for words in ("zanzibar", "zan", '"zanzibar is a"', REF, NAME, "request"):
        nobody = "qqqq" + "q" * len(words)
        yield at(SEARCH, pattern=words), at(SEARCH, pattern=nobody)
        for name in (NAME, OTHER_NAME):
            yield (
                at(SEARCH, pattern=words, conversation=name),
                at(SEARCH, pattern=nobody, conversation="b" * 16),
            )
    yield at(SEARCH, pattern="word", conversation=NAME), at(SEARCH, pattern="nowhere")


def test_what_another_team_has_is_answered_as_what_nobody_has(
    tmp_path: Path, location: StoreLocation
):
    async def act(one: Teamed) -> None:
        fill_both(one)
        for _ in range(2):  # without an index, then with one
            for known, nobody in probes():
                other, unknown = await one.get("two", known), await one.get("two", nobody)
                assert other.raw == unknown.raw, known
                assert b"zanzibar" not in other.raw
        answered = {known: (await one.get("one", known)).raw for known, _ in probes()}
        unknown = {nobody: (await one.get("one", nobody)).raw for _, nobody in probes()}
        told_apart = sum(answered[known] != unknown[nobody] for known, nobody in probes())
        assert told_apart >= 17  # the probes can tell, to whom it belongs

    drive(tmp_path, act, store=open_at(location))


def test_a_team_sees_its_own_and_the_administrator_everything(
    tmp_path: Path, location: StoreLocation
):
    async def act(one: Teamed) -> None:
        fill_both(one)
        owned = {"one": (NAME, SECRET), "two": (OTHER_NAME, MINE)}
        for team, (name, text) in owned.items():
            (listed,) = told(await one.get(team, CONVERSATIONS))
            assert (listed["name"], listed["prompt"]) == (name, f"prompt of {name}")
            assert (listed["id"], listed["owner"]) == (0, "")  # which count and name others
            (hit,) = told(await one.get(team, at(SEARCH, pattern="word")))["hits"]
            assert (hit["ref"], hit["conversation"]) == (reference(text), name)
            found = told(await one.get(team, at(REQUESTS, conversation=name)))
            assert found["count"] == 1
            (request,) = found["latest"]
            assert request["edits"][0]["ref"] == reference(text)
            assert [request[key] for key in ("owner", "prefix", "parent")] == ["", "", ""]
            original = await one.get(team, f"/respool/originals/{reference(text)}")
            assert original.body.decode("utf-8", "surrogatepass") == text
            asked = at(NAMES, kind="reference", beginning=reference(text)[:4])
            assert told(await one.get(team, asked)) == [reference(text)]
        names = {found["name"] for found in told(await one.get(None, CONVERSATIONS))}
        assert names == {NAME, OTHER_NAME}
        assert len(told(await one.get(None, at(SEARCH, pattern="word")))["hits"]) == 2
        (half,) = told(await one.get(None, at(SEARCH, pattern="half")))["hits"]
        assert half["snippet"] == HALF
        assert (await one.get(None, f"/respool/originals/{REF}")).status == 200
        bearer = f"authorization: Bearer {ADMIN}"
        assert len(told(await ask(one.port, get(CONVERSATIONS, bearer)))) == 2

    drive(tmp_path, act, store=open_at(location))


def test_a_forged_owner_changes_nothing(tmp_path: Path):
    async def act(one: Teamed) -> None:
        fill_both(one)
        plain = await one.get("two", CONVERSATIONS)
        owner = quote(one.owner("one"))
        for query in (f"owner={owner}", "team=one", f"_owner={owner}&kind=owner"):
            assert (await one.get("two", f"{CONVERSATIONS}?{query}")).raw == plain.raw
        header = f"x-respool-owner: {one.owner('one')}"
        assert (await one.get("two", CONVERSATIONS, header)).raw == plain.raw
        key = "x-api-key: of the first team"
        assert (await one.get("two", CONVERSATIONS, key)).raw == plain.raw
        refused = await one.get("two", at(NAMES, kind="owner", beginning="team"))
        assert refused.status == 400

    drive(tmp_path, act)


# --- tokens ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("token", [ADMIN, None])
def test_tokens_that_are_malformed_revoked_or_expired_are_refused_alike(
    tmp_path: Path, token: str | None
):
    async def act(one: Teamed) -> None:
        fill_both(one)
        teams = one.store.teams
        revoked, secret = teams.issue("one", time.time())
        path = at(SEARCH, pattern="zanzibar")
        header = f"x-respool-token: {secret}"
        assert len(told(await ask(one.port, get(path, header)))["hits"]) == 1
        teams.revoke(revoked.id, time.time())
        _, expired = teams.issue("one", time.time(), time.time() - 1)
        bare = await ask(one.port, get(path))
        assert bare.status == 401
        for guess in (*tokens_that_are_none(one), secret, expired, "rst_" + "0" * 40):
            for route in (path, CONVERSATIONS, REQUESTS, NAMES, f"/respool/originals/{REF}"):
                reply = await ask(one.port, get(route, f"x-respool-token: {guess}"))
                assert reply.raw == bare.raw, (guess, route)
            bearer = guess.encode("latin-1").decode("latin-1")
            reply = await ask(one.port, get(path, f"authorization: Bearer {bearer}"))
            assert reply.raw == bare.raw, guess

    drive(tmp_path, act, token=token)


def test_without_teams_a_key_reads_what_its_requests_left(tmp_path: Path):
    async def act(one: Teamed) -> None:
        keys = {name: f"x-api-key: key-of-{name}" for name in ("first", "second")}
        for (name, key), text in zip(keys.items(), (SECRET, MINE), strict=True):
            header = [(b"x-api-key", key.removeprefix("x-api-key: ").encode())]
            fill(one.store, owner_of(header, b"", one.store.salt()), f"c {name}", text)
        fill(one.store, "anonymous", "c3", text_of(3))
        for name, key in keys.items():
            (listed,) = told(await ask(one.port, get(CONVERSATIONS, key)))
            assert listed["name"] == f"c {name}"
        asked = at(SEARCH, pattern="zanzibar")
        assert told(await ask(one.port, get(asked, keys["second"])))["hits"] == []
        for path in (CONVERSATIONS, asked, at(REQUESTS, conversation="c3"), NAMES):
            assert (await ask(one.port, get(path))).status == 401

    drive(tmp_path, act, token=None, teams={})


# --- web pages, and what is no query -------------------------------------------------------------


def test_pages_of_other_sites_are_refused(tmp_path: Path):
    async def act(one: Teamed) -> None:
        for header in ("Origin: https://elsewhere.example", "Sec-Fetch-Site: cross-site"):
            for path in (SEARCH, CONVERSATIONS, REQUESTS, NAMES):
                assert (await one.get("one", path, header)).status == 403
        for path in (SEARCH, CONVERSATIONS, REQUESTS, NAMES):
            sent = post(path, b"{}", one.header("one"), "content-type: application/json")
            assert (await ask(one.port, sent)).status == 405
        answer = await one.get("one", CONVERSATIONS)
        headers = dict(answer.headers)
        assert headers[b"content-type"] == b"application/json"
        assert headers[b"cache-control"] == b"no-store"
        assert headers[b"x-content-type-options"] == b"nosniff"

    async def rebound(one: Teamed) -> None:
        raw = get(CONVERSATIONS, "x-api-key: k").replace(b"localhost", b"elsewhere.example")
        assert (await ask(one.port, raw)).status == 403

    drive(tmp_path / "a", act)
    drive(tmp_path / "b", rebound, token=None, teams={})


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (SEARCH, "pattern"),
        (at(SEARCH, pattern="  "), "pattern"),
        (at(SEARCH, pattern="x" * 1_001), "pattern"),
        (at(SEARCH, pattern="x", limit=0), "limit"),
        (at(CONVERSATIONS, limit="-1"), "limit"),
        (at(REQUESTS, conversation="c", limit="9" * 30), "limit"),
        (NAMES, "kind"),
        (f"{NAMES}?{'&'.join(f'a{n}=1' for n in range(30))}", "query"),
    ],
)
def test_what_is_no_query_is_refused_in_a_sentence(tmp_path: Path, path: str, code: str):
    async def act(one: Teamed) -> None:
        reply = await one.get("one", path)
        assert reply.status == 400
        assert dict(reply.headers)[b"x-respool-error"] == code.encode()
        assert json.loads(reply.body)["error"]["message"].endswith((".", "it.")), reply.body

    drive(tmp_path, act)


ODD = ["%00", "%ff%fe", "a%00b", "..%2f..%2fetc%2fpasswd", "'%20OR%20'1'='1", "%25", "%F0%9F%99%82"]


def test_odd_names_are_answered_as_unknown_ones(tmp_path: Path, location: StoreLocation):
    async def act(one: Teamed) -> None:
        fill_both(one)
        unknown = await one.get("two", at(REQUESTS, conversation="b" * 16))
        none = await one.get("two", at(NAMES, kind="conversation", beginning="bbbb"))
        for odd in ODD:
            reply = await one.get("two", f"{REQUESTS}?conversation={odd}")
            assert reply.raw == unknown.raw, odd
            reply = await one.get("two", f"{NAMES}?kind=conversation&beginning={odd}")
            assert reply.raw == none.raw, odd
            assert (await one.get("two", f"{SEARCH}?pattern=x&conversation={odd}")).status == 200

    drive(tmp_path, act, store=open_at(location))


def test_a_store_that_cannot_be_read_is_told_without_its_place(tmp_path: Path):
    folder = tmp_path / "state"
    folder.mkdir()

    async def act(one: Teamed) -> None:
        fill_both(one)
        assert (await one.get("one", CONVERSATIONS)).status == 200
        for file in folder.iterdir():
            file.unlink()
        (folder / "respool.db").mkdir()
        reply = await one.get("one", CONVERSATIONS)
        assert reply.status == 503
        assert str(tmp_path).encode() not in reply.raw

    drive(folder, act)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("search", at(SEARCH, pattern="word")),
        ("original", f"/respool/originals/{REF}"),
        ("totals_by_origin", "/respool/api/origins"),
    ],
)
def test_one_team_cannot_fill_the_queue_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, path: str
):
    for place in (store_endpoints, http_api):
        monkeypatch.setattr(place, "_MAX_WAITING", 3)

    async def act(one: Teamed) -> None:
        fill_both(one)
        ask_store, held = getattr(one.store, method), asyncio.get_running_loop().create_future()

        def slow(*given: Any, **named: Any) -> Any:
            asyncio.run_coroutine_threadsafe(asyncio.wait_for(held, 20), loop).result()
            return ask_store(*given, **named)

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(one.store, method, slow)
        asked = [asyncio.create_task(one.get("one", path)) for _ in range(4)]
        done, _ = await asyncio.wait(asked, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        assert [reply.result().status for reply in done] == [503]
        others = [
            asyncio.create_task(one.get("two", path))
            for path in (CONVERSATIONS, "/respool/api/overview")
        ]
        await asyncio.sleep(0.1)
        held.set_result(None)
        assert [(await other).status for other in others] == [200, 200]
        statuses = [(await reply).status for reply in asked]
        assert sorted(statuses) == [200, 200, 200, 503]

    drive(tmp_path, act)
