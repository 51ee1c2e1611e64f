"""Web pages, misspelled tokens and second keys gain no access to the proxy."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import msgspec
import pytest
from msgspec.structs import replace

from respool.proxy.app import App, build_app
from respool.proxy.asgi import ProxyError, Request
from respool.proxy.auth import hide_secrets, without_foreign_keys
from respool.proxy.log import LineWriter, LogEntry, json_line, log_to
from respool.proxy.router import route_for
from respool.proxy.server import RunningServer, serving
from respool.proxy.server_options import (
    CompactionOptions,
    Provider,
    ServerOptions,
    Upstreams,
    upstreams_of,
)
from respool.store import SQLiteStore
from tests.dashboard.test_dashboard import QUESTIONS
from tests.proxy.compaction import EAGER_POLICY, request_body
from tests.proxy.sockets import Upstream, ask, get, post, proxy, run, until, upstream
from tests.proxy.test_tracing import collector
from tests.store.support import bytes_of

TOKEN = "a-token-of-enough-length"
CHAT = "/v1/chat/completions"
MOZILLA = "User-Agent: Mozilla/5.0 (X11; Linux x86_64) Chrome/146.0"
HTML = "Accept: text/html,application/xhtml+xml,*/*;q=0.8"
NODE = ("Sec-Fetch-Mode: cors", "Accept: */*", "Accept-Language: *", "User-Agent: node")
KEY = "Authorization: Bearer sk-proj-1"

# --- web pages ---------------------------------------------------------------------------------

# What a page can make a browser send, and what a browser sends by itself.
OF_PAGES = [
    ("localhost", ["Origin: http://localhost:9999"]),
    ("localhost", ["Origin: https://evil.example", "Sec-Fetch-Site: cross-site"]),
    ("localhost", ["Origin: null", "Sec-Fetch-Site: cross-site"]),
    ("localhost", ["Origin: http://localhost", "Sec-Fetch-Site: same-origin"]),
    ("localhost", ["Origin: http://evil.tauri.localhost"]),
    ("localhost", ["Origin: vscode-file://vscode-app", "Origin: https://evil.example"]),
    ("localhost", ["Sec-Fetch-Site: cross-site"]),
    ("localhost", ["Sec-Fetch-Site: same-site"]),
    ("localhost", ["Sec-Fetch-Site: same-origin"]),
    ("localhost", ["Sec-Fetch-Site: none", MOZILLA, HTML]),
    ("localhost", [MOZILLA, HTML]),
    ("localhost", ["Origin: null", "Authorization: Basic c2stcHJvai0x"]),
    ("localhost", ["Origin: null", "X-Api-Key: "]),
    ("evil.example", []),
    ("evil.example:7733", [KEY]),  # to its own origin, a page may send any header
    ("evil.example:7733", [KEY, "Origin: http://evil.example:7733"]),
    ("localhost.evil.example", []),
    ("127.0.0.1.evil.example", []),
    ("docker.internal", []),
    ("host.docker.internal", ["Origin: http://host.docker.internal", KEY]),
    ("host.docker.internal", [MOZILLA]),
    ("", [KEY]),
]
OF_AGENTS = [
    ("localhost", []),
    ("127.0.0.1:7733", [KEY]),
    ("[::1]:7733", []),
    ("LocalHost:7733", []),
    ("host.docker.internal:7733", [KEY]),
    ("host.docker.internal:7733", [*NODE]),
    ("host.containers.internal:7733", []),
    ("localhost", [*NODE]),
    ("localhost", ["Origin: vscode-file://vscode-app", "Sec-Fetch-Site: cross-site", MOZILLA]),
    ("localhost", ["Origin: tauri://localhost"]),
    ("localhost", ["Origin: http://tauri.localhost"]),
    ("localhost", ["Origin: null", "Sec-Fetch-Site: cross-site", MOZILLA, KEY]),
    ("localhost", ["Origin: file://", KEY]),
    ("localhost", ["Origin: http://localhost:3000", "X-Api-Key: k"]),
    ("localhost", ["Sec-Fetch-Site: none", "Sec-Fetch-Mode: no-cors", MOZILLA]),  # Electron's net
    ("localhost", ["Accept: text/html, image/gif, */*; q=.2", "User-Agent: Java/21"]),
]
PREFLIGHT = ["Access-Control-Request-Method: POST", "Access-Control-Request-Headers: x-api-key"]


def head(method: str, path: str, host: str, *lines: str) -> bytes:
    told = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Content-Length: 0", *lines]
    return "\r\n".join(told).encode() + b"\r\n\r\n"


def test_what_a_page_can_send_goes_nowhere_and_what_agents_send_passes():
    async def case() -> None:
        async with proxy() as standing:
            for host, lines in OF_PAGES:
                for method, path in (("POST", CHAT), ("GET", "/v1/models?key=k"), ("GET", "/x")):
                    reply = await ask(standing.port, head(method, path, host, *lines))
                    assert reply.status == 403, (host, lines, path)
                    assert b"access-control" not in reply.raw.lower()
            assert standing.behind.connections == 0
            for host, lines in OF_AGENTS:
                for method, path in (("POST", CHAT), ("GET", "/v1/models")):
                    reply = await ask(standing.port, head(method, path, host, *lines))
                    assert reply.status == 200, (host, lines, path)
        async with proxy(token=TOKEN) as standing:  # whoever knows it may use the proxy
            for host, lines in OF_PAGES:
                path = f"/respool-token/{TOKEN}{CHAT}"
                assert (await ask(standing.port, head("POST", path, host, *lines))).status == 200

    run(case)


def test_preflight_requests_of_pages_are_not_answered():
    async def case() -> None:
        async with proxy() as standing:
            for origin in ("https://evil.example", "http://localhost:3000", "null"):
                asked = head("OPTIONS", CHAT, "localhost", f"Origin: {origin}", *PREFLIGHT, KEY)
                reply = await ask(standing.port, asked)
                assert reply.status == 403
                assert b"access-control" not in reply.raw.lower()
            assert standing.behind.connections == 0
            app = head("OPTIONS", CHAT, "localhost", "Origin: app://obsidian.md", *PREFLIGHT)
            assert (await ask(standing.port, app)).status == 200

    run(case)


ICONS = ["/favicon.ico", "/apple-touch-icon.png", "/robots.txt"]


def test_what_browsers_ask_for_by_themselves_is_answered_here():
    async def case() -> None:
        async with proxy() as standing:
            for path in ICONS:
                assert (await ask(standing.port, get(path, KEY, "Cookie: a=1"))).status == 404
            assert standing.behind.connections == 0

    run(case)


COOKIES = [
    ([KEY], True),
    (["X-Api-Key: k", *NODE], True),
    ([], False),
    (["Authorization: Basic eDp5"], False),
    ([KEY, MOZILLA], False),
    ([KEY, "Origin: null"], False),
    ([KEY, "Sec-Fetch-Site: none"], False),
]


def test_cookies_go_up_only_for_a_program_with_a_key_and_no_referer_ever():
    async def case() -> None:
        async with proxy() as standing:
            for lines, goes in COOKIES:
                private = ("Cookie: a=1", "Referer: http://localhost/respool-token/x/")
                assert (await ask(standing.port, post(CHAT, b"{}", *lines, *private))).status == 200
                received = standing.behind.received[-1]
                assert received.named("cookie") == (["a=1"] if goes else []), lines
                assert received.named("referer") == []

    run(case)


# --- the token ---------------------------------------------------------------------------------

CODED = "".join(f"%{ord(char):02x}" for char in TOKEN)
MISSPELLED = [
    f"//respool-token/{TOKEN}/v1/messages",
    f"/RESPOOL-TOKEN/{TOKEN}",
    f"/respool%2Dtoken/{TOKEN}",
    f"/respool%252Dtoken/{TOKEN}",
    f"/v1/respool-token/{TOKEN}",
    f"/respool-token//{TOKEN}/v1/messages",
    f"/respool-token%2F{TOKEN}/v1/messages",
    f"/respool-token/{TOKEN}/respool-token/{TOKEN}/v1/messages",
    f"/v1/{TOKEN}/messages",
    f"/v1/{CODED}",
    f"/v1/{quote(CODED)}/{TOKEN.upper()}",
    f"/respool-token/{CODED}/v1/messages",
    f"/{'x' * 190}{TOKEN}",
]


def is_told(text: str) -> bool:
    """Return whether a text shows the token, or the greater part of it."""
    folded = text.lower()
    return any(one[:10].lower() in folded for one in (TOKEN, CODED, quote(CODED)))


@pytest.mark.parametrize("token", [TOKEN, None])
def test_a_misplaced_token_is_neither_logged_nor_forwarded(token: str | None):
    """A server without a token only sees by the place that something is one."""

    async def case() -> None:
        async with proxy(token=token) as standing:
            for path in MISSPELLED if token else MISSPELLED[:8]:
                for lines in ((), (f"X-Respool-Token: {TOKEN}",)):
                    reply = await ask(standing.port, post(path, b"{}", *lines))
                    assert reply.status == 400 or (reply.status == 401 and token), path
                    assert not is_told(reply.raw.decode())
            assert standing.behind.connections == 0
            assert len(standing.records) == 2 * len(MISSPELLED if token else MISSPELLED[:8])
            assert not is_told(msgspec.json.encode(standing.records).decode())

    run(case)


TOKEN_ELSEWHERE = [
    (f"/v1/messages?token={TOKEN}", ()),
    (f"/v1/messages?x={CODED}", ()),
    ("/v1/messages", (f"X-Api-Key: {TOKEN}",)),
    ("/v1/messages", (f"Authorization: Bearer {TOKEN}",)),
    ("/v1/messages", ("X-Api-Key: k", f"Cookie: t={TOKEN}")),
    ("/v1/messages", (f"User-Agent: x ({TOKEN})",)),
]


def test_a_token_in_query_or_headers_is_not_forwarded():
    async def case() -> None:
        async with proxy(token=TOKEN) as standing:
            for path, lines in TOKEN_ELSEWHERE:
                raw = post(f"/respool-token/{TOKEN}{path}", b"{}", *lines)
                assert (await ask(standing.port, raw)).status == 400, (path, lines)
            assert standing.behind.connections == 0
            clean = post(f"/respool-token/{TOKEN}/v1/messages", b"{}", f"Referer: /{TOKEN}")
            assert (await ask(standing.port, clean)).status == 200

    run(case)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/v1/messages", "/v1/messages"),
        ("/v1/a%20b", "/v1/a%20b"),
        ("/faqs/FAQ.html-of-the-thing", "/faqs/FAQ.html-of-the-thing"),
        ("/v1/models/sk-ant-api03-abc_def/x", "/v1/models/***/x"),
        ("/v1/AIzaSyA-123456%37", "/v1/***"),
        ("/x/%73k-proj-12345678/y", "/x/***/y"),
        ("/x/respool-token/other/y", "/x/respool-token/***/y"),
    ],
)
def test_a_path_is_logged_without_secrets(path: str, shown: str):
    assert hide_secrets(path, TOKEN) == shown


# --- keys --------------------------------------------------------------------------------------

GEMINI = "/v1beta/models/gemini-3-pro:generateContent"
LEGACY = "sk-abcdefghij0123456789T3BlbkFJabcdefghij"
# A request, the provider that receives it, and what of its query and headers is dropped.
SEVERAL: list[tuple[str, str, dict[str, str], Provider | None, set[str]]] = [
    (GEMINI, "key=AIza1", {"authorization": "Bearer sk-proj-1"}, "gemini", {"authorization"}),
    (GEMINI, "key=AIza1", {"authorization": f"Bearer {LEGACY}"}, "gemini", {"authorization"}),
    (GEMINI, "Key=AIza1", {"authorization": "sk-proj-1"}, "gemini", {"authorization"}),
    (GEMINI, "%6bey=%41Iza1", {"x-api-key": "sk-ant-1"}, "gemini", {"x-api-key"}),
    (GEMINI, "key=AIza1", {"authorization": "Bearer ya29.1"}, "gemini", set()),
    (GEMINI, "alt=sse&%4Bey=k", {"x-api-key": "k"}, "gemini", {"x-api-key"}),
    (CHAT, "KEY=AIza1&a=b", {"authorization": "Bearer sk-1"}, "openai", {"KEY=AIza1"}),
    (CHAT, "%6bey=k", {"authorization": "Bearer sk-1"}, "openai", {"%6bey=k"}),
    (CHAT, "", {"authorization": "Bearer t", "x-goog-api-key": "k"}, "openai", {"x-goog-api-key"}),
    (CHAT, "", {"api-key": "t", "x-own": "sk-ant-1"}, "openai", {"x-own"}),
    (CHAT, "x=sk-ant-1&y=1", {"authorization": "t"}, "openai", {"x=sk-ant-1"}),
    (
        "/v1/messages",
        "",
        {"x-api-key": "sk-ant-1", "authorization": "Bearer AIza1"},
        "anthropic",
        {"authorization"},
    ),
    ("/v1/messages", "%6bey=k", {}, "gemini", set()),
    ("/v1/models", "KEY=AIza1", {}, "gemini", set()),
    ("/v1/models", "%6Bey=k", {}, "gemini", set()),
    ("/v1/models", "a=%41Iza1", {}, "gemini", set()),
    ("/v1/models", "", {"x-api-key": "k", "authorization": "sk-proj-1"}, "openai", {"x-api-key"}),
    ("/v1/models", "key=AIza1", {"authorization": "Bearer sk-proj-1"}, None, set()),
    ("/v1/messages", "key=AIza1", {"authorization": "Bearer sk-proj-1"}, None, set()),
]


@pytest.mark.parametrize(("path", "query", "headers", "provider", "dropped"), SEVERAL)
def test_of_several_keys_each_host_receives_its_own(
    path: str, query: str, headers: dict[str, str], provider: Provider | None, dropped: set[str]
):
    pairs = tuple((name.encode(), value.encode()) for name, value in headers.items())
    method = "GET" if path == "/v1/models" else "POST"
    asked = Request(method, path, query, pairs, dict(pairs))
    chosen = upstreams_of(f"{one}=http://localhost:1" for one in ("anthropic", "openai", "gemini"))
    assert route_for(asked, chosen)[1].is_custom
    if provider is None:
        with pytest.raises(ProxyError, match="several providers"):
            route_for(asked, Upstreams())
        return
    route, there = route_for(asked, Upstreams())
    assert (route.provider, there) == (provider, getattr(Upstreams(), provider))
    sent = without_foreign_keys(asked, provider)
    before = {*headers, *query.split("&")}
    assert {*(name.decode() for name in sent.named), *sent.query.split("&")} | {""} == (
        before - dropped
    ) | {""}


@asynccontextmanager
async def of_three(
    *,
    own: bool,
    folder: Path | None = None,
    token: str | None = None,
    log: LineWriter | None = None,
) -> AsyncGenerator[tuple[RunningServer, dict[Provider, Upstream], list[LogEntry]]]:
    """A proxy in front of three providers; `own`: these count as the providers' own hosts."""
    entries: list[LogEntry] = []
    async with upstream() as a, upstream() as o, upstream() as g:
        received: dict[Provider, Upstream] = {"anthropic": a, "openai": o, "gemini": g}
        places = upstreams_of(f"{name}=http://127.0.0.1:{o.port}" for name, o in received.items())
        if own:
            fields = {
                name: replace(getattr(places, name), is_custom=False)
                for name in places.__struct_fields__
                if name != "named" and getattr(places, name) is not None
            }
            places = Upstreams(**fields)
        options = ServerOptions(port=0, upstreams=places, token=token)

        def write(entry: LogEntry) -> None:
            entries.append(entry)
            if log is not None:
                log_to(log)(entry)

        if folder is None:
            app = App(options, log=write)
        else:
            store = SQLiteStore(folder / "respool.db")
            app = build_app(options, CompactionOptions(policy=EAGER_POLICY), write, store=store)
        async with serving(app) as running:
            yield running, received, entries


def test_a_host_of_the_users_own_receives_keys_as_they_came():
    async def case(own: bool) -> None:
        async with of_three(own=own) as (running, received, _):
            raw = post(f"{GEMINI}?key=AIza1", b"{}", "Authorization: Bearer sk-proj-1", "Cookie: a")
            assert (await ask(running.port, raw)).status == 200
            (one,) = received["gemini"].received
            assert one.target == f"{GEMINI}?key=AIza1"
            assert one.named("authorization") == ([] if own else ["Bearer sk-proj-1"])
            assert one.named("cookie") == ([] if own else ["a"])

    run(lambda: case(True))
    run(lambda: case(False))


# --- the log -----------------------------------------------------------------------------------

CONTROLS = "\x9b31m\u202egnp\u2066\u200b\u2028\x07\U000e0041\x85 é 漢"


def test_no_character_of_a_log_line_controls_a_terminal():
    line = json_line({"model": CONTROLS})
    assert line.isprintable()
    assert "é 漢" in line
    assert json.loads(line) == {"model": CONTROLS}


def test_no_line_of_the_log_holds_the_token(tmp_path: Path):
    """Whatever a library warns of."""
    path = tmp_path / "log"
    with path.open("wb") as file:
        writer = LineWriter(file.fileno(), token=TOKEN)
        writer.write(f"it failed at /respool-token/{TOKEN}/v1, {TOKEN}")
        writer.close()
    assert path.read_text() == "it failed at /respool-token/***/v1, ***\n"


def test_the_model_that_a_client_names_is_escaped_in_the_log(tmp_path: Path):
    async def case() -> None:
        body = json.loads(request_body("anthropic", 1)) | {"model": f"claude{CONTROLS}"}
        path = tmp_path / "log"
        with path.open("wb") as file:
            writer = LineWriter(file.fileno())
            async with of_three(own=False, folder=tmp_path, log=writer) as (running, _, entries):
                raw = post("/v1/messages", json.dumps(body).encode(), "X-Api-Key: k")
                assert (await ask(running.port, raw)).status == 200
                await until(lambda: entries)
            writer.close()
        (line,) = path.read_text("utf-8").removesuffix("\n").split("\n")
        assert line.isprintable()
        assert CONTROLS in json.loads(line)["compaction"]["model"]

    run(case)


# --- canaries ----------------------------------------------------------------------------------

CANARY = "canary-token-0123456789"
OWN = "sk-ant-api03-own-0123456789"
BODY = json.loads(request_body("anthropic", 3))
ANTHROPIC: frozenset[Provider] = frozenset({"anthropic"})
NOBODY: frozenset[Provider] = frozenset()


class Placed(msgspec.Struct, frozen=True):
    """A request with a secret in one place, and the upstreams that may see the secret."""

    raw: bytes
    seen: frozenset[Provider] = NOBODY


def with_secret(secret: str) -> Iterator[Placed]:
    """Requests for Anthropic that hold a secret, a different place each."""

    def sent(path: str, *lines: str, body: Any = BODY, key: str = OWN) -> bytes:
        told = (f"X-Api-Key: {key}", "Anthropic-Version: 2023-06-01", *lines)
        return post(path, json.dumps(body).encode(), *told)

    prefix = f"/respool-token/{CANARY}"
    messages = f"{prefix}/v1/messages"
    for name in ("X-Api-Key", "Authorization", "X-Goog-Api-Key", "Api-Key", "X-Own"):
        for value in (secret, f"Bearer {secret}"):
            yield Placed(sent(messages, f"{name}: {value}"))
    for name in ("Referer", "X-Respool-Token", "Proxy-Authorization", "X-Respool-Session"):
        yield Placed(sent(messages, f"{name}: http://x/{secret}/"))
    yield Placed(sent(messages, f"Cookie: a={secret}"))
    for name in ("key", "Key", "%6bey", "api_key", "access_token", "x"):
        coded = "".join(f"%{ord(char):02X}" for char in secret)
        for value in (secret, coded):
            yield Placed(sent(f"{messages}?a=1&{name}={value}"))
    yield Placed(sent(messages).replace(b"POST /", b"POST http://user:%s@x/" % secret.encode()))
    yield Placed(sent(f"{prefix}/v1/%2F/{secret}/x"), ANTHROPIC)
    yield Placed(sent(f"{prefix}/respool/originals/{secret}"))
    yield Placed(sent(f"{prefix}/respool/api/edits?request={secret}"))
    for fields in ({"metadata": {"user_id": secret}}, {"api_key": secret}, {"user": secret}):
        yield Placed(sent(messages, body={**BODY, **fields}), ANTHROPIC)
    yield Placed(post(messages, secret.encode(), f"X-Api-Key: {OWN}"), ANTHROPIC)  # no JSON


def canaries(kind: str) -> list[tuple[str, Placed]]:
    """Secrets, and the requests that hold them: a key for each place, or the token in all."""
    if kind == "token":
        paths = [path.replace(TOKEN, CANARY) for path in MISSPELLED]
        both = itertools.product(paths, [(), (f"X-Respool-Token: {CANARY}",)])
        lost = [Placed(post(path, b"{}", f"X-Api-Key: {OWN}", *lines)) for path, lines in both]
        return [(CANARY, one) for one in (*with_secret(CANARY), *lost)]
    keys = [f"sk-proj-canary-{at:04}" for at, _ in enumerate(with_secret(""))]
    return [(key, list(with_secret(key))[at]) for at, key in enumerate(keys)]


def holds(text: bytes, secret: str) -> bool:
    """Return whether a text contains a secret, percent-encoded or not, in any case."""
    plain = text.decode("latin-1")
    folded = (plain + unquote(plain) + unquote(unquote(plain))).lower()
    return secret.lower() in folded


def seen_by(behind: Mapping[Provider, Upstream], secret: str) -> set[Provider]:
    """The upstreams that received a secret since they were asked last."""
    found: set[Provider] = set()
    for name, there in behind.items():
        for received in there.received:
            if holds(f"{received.line}\n{received.headers}\n".encode() + received.body, secret):
                found.add(name)
        there.received.clear()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["key", "token"])
def test_a_secret_in_any_place_is_found_nowhere_but_where_it_belongs(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store, log = tmp_path / "store" / "respool.db", tmp_path / "log"
    store.parent.mkdir()
    told: dict[str, bytes] = {}
    wrong: list[tuple[set[Provider], bytes]] = []
    received_count = 0

    async def case() -> None:
        nonlocal received_count
        with log.open("wb") as file:
            writer = LineWriter(file.fileno(), token=CANARY)
            options = {"own": True, "folder": store.parent, "token": CANARY, "log": writer}
            async with of_three(**options) as (running, behind, entries):
                for at, (secret, one) in enumerate(canaries(kind)):
                    told[f"answer {at}"] = (await ask(running.port, one.raw)).raw
                    received_count += len(behind["anthropic"].received)
                    if seen := seen_by(behind, secret) - one.seen:
                        wrong.append((seen, one.raw[:400]))
                assert len(entries) == len(canaries(kind))
                for path in ("/metrics", "/", *(f"/respool/api/{one}" for one in QUESTIONS)):
                    raw = get(f"/respool-token/{CANARY}{path}", "Accept: text/html")
                    told[path] = (await ask(running.port, raw)).raw
            writer.close()

    with collector() as (url, spans):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        run(case)
        told["spans"] = b"".join(one.SerializeToString() for one in spans)
    told["log"], told["store"] = log.read_bytes(), bytes_of(store)
    assert all(told.values())
    assert received_count > 8
    assert [name for name, text in told.items() if holds(text, "canary")] == []
    assert [name for name, text in told.items() if holds(text, OWN)] == []
    assert wrong == []
