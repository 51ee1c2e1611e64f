"""The dashboard's data and page through a real proxy, its events, and attacks on both."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import Iterator
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import respool
from respool import engine
from respool.dashboard import queries
from respool.dashboard.http_api import Dashboard
from respool.dashboard.page import content_security_policy, page
from respool.dashboard.queries import ProxyStatus
from respool.edits import REASONS
from respool.plugins import installed_version
from respool.proxy.server_options import HoldoutOptions
from respool.store import SQLiteStore
from tests.dashboard.support import EAGER_POLICY, KEY, LONG, Dashboarded, dashboarded, only
from tests.proxy.sockets import get
from tests.support.formats import Exchange

TOKEN = "a-token-of-enough-length"
QUESTIONS = (
    "overview", "conversations", "requests", "edits", "edit", "notable", "settings", "evidence",
)  # fmt: skip
HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboarded]:
    """A proxy that a conversation of five requests went through."""
    with dashboarded(tmp_path_factory.mktemp("used")) as one:
        one.talk(5)
        yield one


class TestData:
    def test_a_conversation_with_its_requests(self, used: Dashboarded):
        (conversation,) = used.data("conversations")["conversations"]
        requests = only(used)
        assert conversation["requests"] == len(requests) == 5
        assert conversation["model"] == "claude-sonnet-4-5"
        assert [one["time"] for one in requests] == sorted(one["time"] for one in requests)
        assert requests[-1]["tokens_before"] > 2 * requests[-1]["tokens_after"] > 0
        assert conversation["saved"] == sum(one["saved"] for one in requests) > 0
        assert conversation["prefix_breaks"] == sum(bool(one["prefix_break"]) for one in requests)

    def test_groups_of_a_holdout_are_compared(self, tmp_path: Path):
        with dashboarded(tmp_path, holdout=HoldoutOptions(0.5)) as one:
            for n in range(10):
                one.talk(2, name=f"task {n}")
            evidence = one.data("evidence")
            (found,) = evidence["holdout"]
            assert sum(found["conversations"].values()) == 10
            assert {measure["verdict"] for measure in found["measures"]} == {"too-few"}
            assert "Too few to tell: each group needs 20 or more." in found["notes"]
            assert evidence["excess_refetch"]["after_cut"] == 0
            requests = one.data("conversations")["conversations"]
            assert all("unit" not in held for held in requests)

    def test_without_a_holdout_there_is_nothing_to_compare(self, used: Dashboarded):
        assert used.data("evidence")["holdout"] == []

    def test_every_edit_with_what_stood_there_and_what_stands_there(self, used: Dashboarded):
        made = [one for one in only(used) if one["made"]]
        assert [one["made"] for one in made] == [1, 1, 1, 1]
        for at, one in enumerate(made):
            (edit,) = used.data(f"edits?request={one['id']}")["edits"]
            assert (edit["reason"], edit["has_before"], edit["has_after"]) == (
                "over_cap",
                True,
                True,
            )
            shown = used.data(f"edit?request={one['id']}&at=0")
            assert shown["before"]["text"] == f"make {at} {LONG}"
            assert shown["before"]["length"] == len(f"make {at} {LONG}")
            assert shown["after"]["text"] in used.received[-1].body.decode().replace("\\n", "\n")

    def test_an_edit_in_place_of_another_has_both_texts_too(self, tmp_path: Path):
        """It takes out nothing that is not kept already, so nothing else had to be kept with it."""
        passes = ("keep_lines", "stub_results")  # on arrival, and once it is old
        policy = EAGER_POLICY.replace(
            passes=passes, keep_exchanges=2, trim_on_arrival=True, miss_penalty=0.1
        )
        steps = [[Exchange(f"make {LONG}", id="call_0", args={"command": "make"})]]
        later = range(1, 5)
        steps += [[Exchange("ok", id=f"call_{n}", args={"command": f"echo {n}"})] for n in later]
        with dashboarded(tmp_path, policy=policy) as one:
            for end in range(1, len(steps) + 1):
                one.send(*steps[:end])
            told = [
                one.data(f"edit?request={x['id']}&at={at}")
                for x in only(one)
                for at in range(x["made"])
            ]
        places = [x["edit"]["place"] for x in told]
        assert places == ["[2].content[0]"] * 2, "it was not edited twice"
        assert told[0]["after"] != told[1]["after"]
        assert all(x["after"] and x["edit"]["replaces"] for x in told)
        assert {x["before"]["text"] for x in told} == {f"make {LONG}"}

    def test_money_by_the_real_bill_and_the_cache_apart(self, used: Dashboarded):
        (total,) = used.data("overview?range=month")["totals"]
        requests = only(used)
        assert total["requests"] == 5
        for name in ("cost_before", "cost_after", "cost_uncached"):
            assert total[name] == pytest.approx(sum(one[name] for one in requests))
        assert total["cost_after"] < total["cost_before"]
        assert total["cost_after"] < total["cost_uncached"]
        assert total["would_saved"] == total["would_cost"] == total["observed"] == 0
        usage = requests[-1]["usage"]
        paid = 50 * 3 + usage["cache_read"] * 0.3 + usage["cache_write"] * 3.75 + 300 * 15
        assert requests[-1]["cost_after"] == pytest.approx(paid / 1e6)
        full = (50 + usage["cache_read"] + usage["cache_write"]) * 3 + 300 * 15
        assert requests[-1]["cost_uncached"] == pytest.approx(full / 1e6)

    def test_what_has_no_price_is_counted_apart(self, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            one.talk(2)
            one.talk(3, name="other", model="a-model-that-nobody-sells")
            (total,) = one.data("overview?range=month")["totals"]
            assert (total["requests"], total["unpriced"]) == (5, 3)

    def test_the_latest_request_however_long_ago(self, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            assert one.data("overview?range=hour")["latest"] is None
            one.talk(2)
            latest = one.data("conversations")["conversations"][0]["last"]
            assert one.data("overview?range=hour")["latest"] == latest

    def test_how_it_stands(self, used: Dashboarded):
        found = used.data("overview")
        assert found["observe"] is False
        assert found["version"] == installed_version()
        assert found["breaker"] == {"phase": "closed", "why": "Requests are compacted."}
        assert [one["model"] for one in found["calibrations"]] == ["claude-sonnet-4-5"]
        assert found["store"]["path"].endswith("respool.db")
        assert found["store"]["bytes"] > 4096
        assert (found["store"]["trouble"], found["store"]["dropped"]) == ("", 0)

    def test_settings_with_where_they_came_from(self, used: Dashboarded):
        told = {one["name"]: one for one in used.data("settings")["settings"]}
        assert told["cap_chars"] == {"name": "cap_chars", "value": 500, "origin": "code"}
        assert told["advise"] == {"name": "advise", "value": False, "origin": "default"}
        assert told["passes"]["value"] == ["cap_results"]
        assert told.keys() | {"tools"} == EAGER_POLICY.origins().keys()

    def test_what_has_not_changed_is_not_sent_again(self, used: Dashboarded):
        for question in ("overview", "conversations", "notable", "settings"):
            status, headers, body = used.get(f"/respool/api/{question}")
            again = used.get(f"/respool/api/{question}", if_none_match=headers["etag"])
            assert (status, again[0], again[2]) == (200, 304, b"")
            assert used.get(f"/respool/api/{question}", if_none_match='"other"')[2] == body

    def test_nothing_tells_whose_key_it_was(self, used: Dashboarded):
        (conversation,) = used.store.conversations(None)
        request = only(used)[-1]["id"]
        for question in (
            "overview",
            "conversations",
            f"requests?conversation={conversation.name}",
            f"edits?request={request}",
            f"edit?request={request}",
            "notable",
            "settings",
        ):
            body = used.get(f"/respool/api/{question}")[2].decode()
            assert KEY not in body
            assert conversation.owner not in body

    def test_pages_of_conversations(self, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            for name in ("a", "b", "c"):
                one.talk(2, name=name)
            first = one.data("conversations?limit=2")
            rest = one.data("conversations?limit=2&last={last}&id={id}".format(**first["next"]))
            times = [x["last"] for x in (*first["conversations"], *rest["conversations"])]
            assert len(times) == 3
            assert times == sorted(times, reverse=True)
            assert rest["next"] is None

    def test_requests_after_a_time(self, used: Dashboarded):
        name = used.data("conversations")["conversations"][0]["name"]
        after = only(used)[2]["time"]
        later = used.data(f"requests?conversation={name}&after={after!r}")["requests"]
        assert [one["id"] for one in later] == [one["id"] for one in only(used)[3:]]

    def test_how_a_name_begins_is_enough(self, used: Dashboarded):
        name = used.data("conversations")["conversations"][0]["name"]
        assert used.data(f"requests?conversation={name[:8]}")["requests"] == only(used)
        assert used.get(f"/respool/api/requests?conversation={name[:2]}")[0] == 400


class TestObserving:
    def test_what_would_have_been_is_told_apart(self, tmp_path: Path):
        with dashboarded(tmp_path, observe=True) as one:
            made = one.talk(4)
            one.send(*made, task="go on with make")
            found = one.data("overview?range=month")
            (total,) = found["totals"]
            assert found["observe"] is True
            assert total["observed"] == total["requests"] == 5
            assert total["would_saved"] == total["saved"] > 0
            assert total["would_cost"] == pytest.approx(total["cost_before"] - total["cost_after"])
            assert {x["mode"] for x in only(one)} == {"observed"}
            assert "respool:" not in one.received[-1].body.decode()
            last = only(one)[-1]
            usage = last["usage"]
            paid = 50 * 3 + usage["cache_read"] * 0.3 + usage["cache_write"] * 3.75 + 300 * 15
            assert last["cost_before"] == pytest.approx(paid / 1e6)
            assert last["cost_after"] < last["cost_before"]

    def test_edits_are_listed_without_texts(self, tmp_path: Path):
        with dashboarded(tmp_path, observe=True) as one:
            one.talk(3)
            made = next(x for x in only(one) if x["made"])
            (edit,) = one.data(f"edits?request={made['id']}")["edits"]
            assert (edit["has_before"], edit["has_after"]) == (False, False)
            shown = one.data(f"edit?request={made['id']}&at=0")
            assert (shown["before"], shown["after"]) == (None, None)


class TestThePage:
    def test_may_do_nothing_but_run_its_own_script(self, used: Dashboarded):
        status, headers, body = used.get("/", accept="text/html,*/*")
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        rules = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
        text = body.decode()
        for kind, tag in (("script-src", "script"), ("style-src", "style")):
            (inside,) = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", text, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
            assert rules[kind] == f"'sha256-{digest}'"
        assert rules["default-src"] == rules["frame-ancestors"] == rules["base-uri"] == "'none'"
        assert rules["connect-src"] == "'self'"
        assert rules["require-trusted-types-for"] == "'script'"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"

    def test_is_the_same_for_everybody_and_names_no_other_host(self, used: Dashboarded):
        text = page().decode()
        assert used.get("/", accept="text/html")[2].decode() == text
        addresses = set(
            re.findall(r"(?:https?:)?//[\w.-]+", re.sub(r"^\s*//.*$", "", text, flags=re.M))
        )
        assert addresses == {"http://www.w3.org"}  # the name of SVG, which nobody asks for
        assert content_security_policy() == content_security_policy()

    @pytest.mark.parametrize(
        "word", ["innerHTML", "outerHTML", "insertAdjacent", "eval(", "write("]
    )
    def test_makes_no_elements_of_texts(self, word: str):
        folders = (files("respool.pages"), files("respool.dashboard.page"))
        scripts = [x for one in folders for x in one.iterdir() if x.name.endswith(".js")]
        assert len(scripts) == 20
        assert all(word not in one.read_text("utf-8") for one in scripts)

    def test_has_words_for_every_reason(self):
        words = files("respool.dashboard.page").joinpath("format.js").read_text("utf-8")
        assert {code for code in REASONS if f"  {code}: " not in words} == set()

    def test_only_a_browser_gets_it(self, used: Dashboarded):
        before = len(used.received)
        assert used.get("/")[2] != page()
        assert len(used.received) == before + 1


FOREIGN = [
    ("evil.example", None),
    ("localhost.evil.example", None),
    ("127.0.0.1.nip.io", None),
    ("evil.example:7733", None),
    ("127.0.0.1@evil.example", None),
    ("evil.example@127.0.0.1", None),
    ("127.0.0.1#evil.example", None),
    ("127.0.0.1/evil.example", None),
    ("127.0.0.1:80:80", None),
    ("localhost:7733, evil.example", None),
    ("localhost\r\nHost: evil.example", None),
    ("evil.example\r\nHost: localhost", None),
    ("localhost.", None),
    ("2130706433", None),
    ("0.0.0.0", None),
    ("localhost", "http://evil.example"),
    ("localhost", "null"),
    ("localhost", "http://localhost.evil.example"),
    ("localhost", "http://localhost:1"),
    ("127.0.0.1", "file://"),
    ("", None),
]
TRICKS = [
    "/respool/../respool/api/overview", "/respool/api/%2e%2e/overview", "/respool/api//overview",
    "/respool/api/overview/", "/respool/api/overview%00", "/respool/api/OVERVIEW",
    "/respool/api/__class__",
    "/respool/api/questions", "/respool//api/overview", "/respool/api\\overview",
    "/respool/%2fapi/overview",
    "/respool/api/overview;x=1", "/respool/api/", "/respool/api", "/respool/",
    "/respool", "/respool/page.js",
    "/respool/api/overview%3frange=day", "/respool/api/%F0%9F%92%A9",
    "/respool/..%2f..%2fetc/passwd",
]  # fmt: skip
HUGE = "9" * 5_000
QUERIES = [
    ("requests", 400), ("edits", 400), ("edit", 400), ("overview?range=century", 400),
    ("overview?range=", 200), ("conversations?limit=201", 400), ("conversations?limit=-1", 400),
    (f"conversations?limit={HUGE}", 400), ("conversations?limit=1e3", 400),
    ("conversations?limit=%D9%A3", 400), ("conversations?last=nan", 400),
    ("conversations?last=inf", 400), ("conversations?last=-1", 400),
    (f"conversations?last={HUGE}", 400),
    (f"conversations?last=1&id={2**63}", 400), (f"conversations?last=1&id={2**63 - 1}", 200),
    (f"requests?conversation={HUGE}", 400), ("requests?conversation=x&after=x", 400),
    ("requests?conversation=' OR 1=1 --".replace(" ", "%20"), 200),
    ("requests?conversation=%00", 200),
    ("requests?conversation=%ff%fe", 200), (f"edits?request={HUGE}", 400),
    ("edits?request=no", 404),
    ("edit?request=no&at=0", 404), (f"edit?request=no&at={HUGE}", 404),
    ("notable?behind=x", 400), ("notable?" + "&".join("a=1" for _ in range(99)), 400),
]  # fmt: skip


class TestAttacks:
    @pytest.mark.parametrize(("host", "origin"), FOREIGN)
    def test_other_sites_and_rebound_names_see_nothing(
        self, used: Dashboarded, host: str, origin: str | None
    ):
        before = len(used.received)
        for path in ("/", "/respool/%61pi/overview", *(f"/respool/api/{one}" for one in QUESTIONS)):
            lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Accept: text/html"]
            lines += [f"Origin: {origin}"] if origin else []
            reply = used.raw("\r\n".join(lines).encode() + b"\r\n\r\n")
            assert reply.status == 403, path
            assert b"claude" not in reply.body
        assert len(used.received) == before

    def test_a_page_elsewhere_cannot_even_load_data_as_something_else(self, used: Dashboarded):
        for site in ("cross-site", "same-site", "anything"):
            status, _, body = used.get("/respool/api/conversations", sec_fetch_site=site)
            assert (status, b"claude" in body) == (403, False)
        for site in ("same-origin", "none"):
            assert used.get("/respool/api/conversations", sec_fetch_site=site)[0] == 200

    @pytest.mark.parametrize("path", TRICKS)
    def test_paths_lead_nowhere_else(self, used: Dashboarded, path: str):
        before = len(used.received)
        reply = used.raw(get(path))
        assert reply.status == 404
        assert json.loads(reply.body)["error"]
        assert len(used.received) == before

    @pytest.mark.parametrize(
        "path", ["/%63lew/api/overview", "//respool/api/overview", "/RESPOOL/api/"]
    )
    def test_what_only_looks_like_respools_own_goes_up(self, used: Dashboarded, path: str):
        before = len(used.received)
        assert b"totals" not in used.raw(get(path)).body
        assert len(used.received) == before + 1

    @pytest.mark.parametrize(("query", "status"), QUERIES)
    def test_odd_questions_have_plain_answers(self, used: Dashboarded, query: str, status: int):
        found, headers, body = used.get(f"/respool/api/{query}")
        assert found == status
        assert headers["content-type"] == "application/json"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        said = json.loads(body)
        assert status == 200 or (len(said["error"]) < 200 and said["error"].endswith("."))
        assert not query.startswith("requests?") or "claude" not in body.decode()

    @pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
    def test_nothing_can_be_changed(self, used: Dashboarded, method: str):
        for question in QUESTIONS:
            reply = used.raw(get(f"/respool/api/{question}", method=method))
            assert reply.status == 405
            assert (b"allow", b"GET") in reply.headers

    def test_names_are_data_and_nothing_else(self, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            one.talk(2, model=HOSTILE, headers=(f"x-session-id: {HOSTILE}",))
            (conversation,) = one.data("conversations")["conversations"]
            assert conversation["model"] == HOSTILE
            assert HOSTILE not in json.dumps(conversation["session"])
            status, headers, _ = one.get("/respool/api/conversations")
            assert (status, headers["content-type"]) == (200, "application/json")
            assert HOSTILE.encode() not in one.get("/", accept="text/html")[2]

    def test_without_the_token_nothing_is_seen(self, tmp_path: Path):
        with dashboarded(tmp_path, token=TOKEN) as one:
            one.talk(2)
            for path in ("/", *(f"/respool/api/{name}" for name in QUESTIONS)):
                for prefix in (
                    "",
                    "/respool-token/",
                    f"/respool-token/{TOKEN[:-1]}",
                    "/respool-token/x",
                ):
                    reply = one.raw(get(f"{prefix}{path}", "Accept: text/html"))
                    assert reply.status == 401, (prefix, path)
            assert one.get("/", accept="text/html")[2] == page()
            assert one.data("conversations")["conversations"][0]["requests"] == 2
            assert TOKEN not in one.get("/respool/api/overview")[2].decode()

    def test_too_many_at_once_are_told_to_wait(self, used: Dashboarded):
        async def storm() -> list[int]:
            board = Dashboard(used.store, ProxyStatus())
            return await asyncio.gather(
                *(asked(board, "/respool/api/overview") for _ in range(100))
            )

        statuses = asyncio.run(storm())
        assert (statuses.count(200), statuses.count(503)) == (64, 36)

    @given(st.binary(max_size=60), st.sampled_from(QUESTIONS))
    def test_no_query_breaks_it(self, used: Dashboarded, query: bytes, question: str):
        board = Dashboard(used.store, ProxyStatus())
        status = asyncio.run(asked(board, f"/respool/api/{question}", query))
        assert status in (200, 400, 404)


async def asked(board: Dashboard, path: str, query: bytes = b"") -> int:
    """The status of an answer, without a server between."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nobody reads a body here")

    scope = {"path": path, "method": "GET", "headers": [], "query_string": query}
    await board(scope, receive, send)
    json.loads(sent[1]["body"])
    return sent[0]["status"]


def test_a_store_that_cannot_be_read_is_said_so(tmp_path: Path):
    path = tmp_path / "respool.db"
    path.mkdir()
    with dashboarded(tmp_path / "other") as one:
        one.talk(1)
    store = SQLiteStore(path)
    board = Dashboard(store, ProxyStatus())
    found: list[Any] = []

    async def send(message: Any) -> None:
        found.append(message)

    async def receive() -> Any:
        raise AssertionError("nobody reads a body here")

    for name in ("overview", "conversations"):
        scope = {
            "path": f"/respool/api/{name}", "method": "GET", "headers": [], "query_string": b"",
        }  # fmt: skip
        asyncio.run(board(scope, receive, send))
    overview, conversations = found[1]["body"], found[3]["body"]
    assert found[0]["status"] == 200
    assert "cannot be used" in json.loads(overview)["store"]["trouble"]
    assert found[2]["status"] == 503
    assert "cannot be used" in json.loads(conversations)["error"]


@pytest.mark.parametrize("seconds", ["0", "1.5", "1794771204.3170972"])
def test_times_that_are_taken(seconds: str):
    assert queries.parse_time({"at": seconds}, "at") == float(seconds)


def test_users_own_passes_and_tools_are_shown_by_name(tmp_path: Path):
    def my_pass(view: Any, policy: Any) -> Iterator[Any]:
        yield from ()

    policy = respool.Policy(
        passes=("cap_results", my_pass),
        tools=respool.Tools([respool.Tool("Read", cap_chars=9_000)]),
    )
    with dashboarded(tmp_path, policy=policy) as one:
        told = {x["name"]: x["value"] for x in one.data("settings")["settings"]}
        assert told["passes"] == ["cap_results", "my_pass"]
        assert told["tools.Read"] == "Tool(name='Read', cap_chars=9000)"


class TestWhatHappened:
    def test_what_was_fetched_again(self, tmp_path: Path):
        source = "".join(f"def function_{n}(): return {n}\n" for n in range(200))
        read = {"tool": "Read", "args": {"file_path": "/w/a.py"}}
        steps = [
            [Exchange(source, id="call_0", **read)],
            [Exchange("done", id="call_1", args={"command": "ls"})],
            [Exchange(source, id="call_2", **read)],
        ]
        with dashboarded(tmp_path) as one:
            for end in (1, 2, 3):
                one.send(*steps[:end])
            found = [x for x in one.data("notable")["requests"] if x["refetched"]]
            (again,) = found[0]["refetched"]
            assert (again["tool"], again["target"], again["reason"]) == (
                "Read",
                "/w/a.py",
                "over_cap",
            )
            assert len(found) == 1
            assert one.data("overview")["totals"][-1]["refetched"] == 1
            assert one.data("conversations")["conversations"][0]["refetched"] == 1
            assert only(one)[-1]["refetched"] == [again]

    def test_circles(self, tmp_path: Path):
        same = [[Exchange("no change", id=f"call_{n}")] for n in range(4)]
        with dashboarded(tmp_path) as one:
            for end in range(1, 5):
                one.send(*same[:end])
            told = [x["loops"] for x in only(one)]
            assert told[:2] == [[], []]
            assert "was called 3 times with the same result" in told[2][0]
            assert one.data("overview")["totals"][-1]["loops"] == sum(map(len, told))

    def test_what_cannot_be_worked_out_costs_no_projection(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(engine, "advice", lambda *_: 1 / 0)
        with dashboarded(tmp_path) as one:
            one.talk(3)
            assert {x["sent_as"] for x in only(one)} == {"projection"}
            assert only(one)[-1]["edited"] == 2

    def test_errors_and_fall_backs(self, tmp_path: Path):
        with dashboarded(tmp_path) as one:
            steps, task = one.talk(2), "go on with make"
            one.statuses.append(529)
            one.send(*steps, task=task)
            one.send(*steps, task=task, headers=("x-respool-bypass: 1",))
            error, bypassed = one.data("notable")["requests"][1::-1]
            assert (error["status"], bypassed["fallback"]) == (529, "bypassed")
            (total,) = one.data("overview?range=month")["totals"]
            assert (total["errors"], total["fallbacks"]) == (1, 1)
            paid = [x["cost_after"] for x in only(one)]
            assert all(paid), "what was not compacted was paid for, too"
            assert only(one)[-1]["cost_before"] == only(one)[-1]["cost_after"]

    def test_what_goes_up_as_it_came_is_counted_as_the_others_are(self, tmp_path: Path):
        """Else the context would seem to shrink, or jump, where it only went on."""
        numbers = "".join(f"{n * 7919 % 10007} {n * 104729 % 10009}\n" for n in range(400))
        steps = [[Exchange(numbers, id=f"call_{n}")] for n in range(4)]
        with dashboarded(tmp_path) as one:
            for end in (1, 2, 3):
                one.send(*steps[:end])
            one.send(*steps, headers=("x-respool-bypass: 1",))
            assert only(one)[-1]["fallback"] == "bypassed"
            (conversation,) = one.store.conversations(None)
            sizes = [x.tokens_before for x in one.store.requests(conversation.name, None)]
        growth = [after - before for before, after in pairwise(sizes)]
        assert growth[-1] == pytest.approx(growth[0], rel=0.05)

    def test_prefix_breaks_have_causes(self, used: Dashboarded):
        causes = {one["prefix_break"] for one in used.data("notable")["requests"]}
        assert causes == {"over_cap"}
