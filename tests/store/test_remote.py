"""A store read through a proxy: the answers of the store itself, and errors in sentences."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from respool.cli import main
from respool.errors import RespoolError
from respool.markers import reference
from respool.proxy.app import build_app
from respool.proxy.log import log_nothing
from respool.proxy.server import serving_in_thread
from respool.proxy.server_options import CompactionOptions, ServerOptions
from respool.store import SQLiteStore, UnsearchablePattern, resolve_name
from respool.store.owned import OwnedStore
from respool.store.reader import LocalReader
from respool.store.remote import RemoteReader, RemoteStoreError
from respool.store.teams import new_team
from tests.store.support import by_ref, record

TOKEN = "rst_" + "0123456789" * 4
TEXT = "a needle\nhalf \ud83d of it\n" + "".join(f"line {n}\n" for n in range(99))
REF = reference(TEXT)
NAME = "c0ffee0123456789"


@dataclass
class Proxied:
    """A proxy with a store, and a team with a token."""

    url: str
    store: SQLiteStore
    owner: str
    token: str


@pytest.fixture
def proxied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxied]:
    store = SQLiteStore(tmp_path / "respool.db")
    team = new_team("one", time.time())
    store.teams.add(team)
    token = store.teams.issue("one", time.time())[1]
    store.keep(team.owner, NAME, by_ref(TEXT, "another needle"))
    for number in range(3):
        fields: dict[str, Any] = {"owner": team.owner, "conversation": NAME}
        store.record(record(f"r{number}", time=time.time() - 9 + number, **fields))
    assert store.flush()
    monkeypatch.setenv("RESPOOL_STORE", str(tmp_path / "nowhere" / "respool.db"))
    options = CompactionOptions()
    make = partial(build_app, ServerOptions(port=0), options, log_nothing, store=store)
    with serving_in_thread(make) as running:
        yield Proxied(f"http://127.0.0.1:{running.port}", store, team.owner, token)


def test_it_answers_as_the_store_does(proxied: Proxied):
    here = LocalReader(OwnedStore(proxied.store, proxied.owner))
    there = RemoteReader(proxied.url, proxied.token)
    for reader in (here, there):
        assert reader.original(REF) == TEXT
        assert reader.original("a" * 20) is None
        assert resolve_name(reader, "conversation", NAME[:4]) == NAME
        assert resolve_name(reader, "reference", REF[:5]) == REF
        assert resolve_name(reader, "reference", "zzzz") == "zzzz"
        with pytest.raises(UnsearchablePattern, match="The pattern has nothing to search for"):
            reader.search(" ", conversation=None, limit=9)
    for limit in (1, 9):
        asked = here.search("needle", conversation=NAME, limit=limit)
        assert there.search("needle", conversation=NAME, limit=limit) == asked
        assert len(asked.hits) == min(limit, 2)
    assert "\ud83d" in here.search("half", conversation=None, limit=9).hits[0].snippet
    half = here.search("half", conversation=None, limit=9)
    assert there.search("half", conversation=None, limit=9) == half
    listed = [replace(one, id=0, owner="") for one in here.conversations(9)]
    assert there.conversations(9) == listed != []
    mine, theirs = here.recent_requests(NAME, 2), there.recent_requests(NAME, 2)
    assert theirs.count == mine.count == 3
    assert theirs.latest == tuple(replace(one, owner="") for one in mine.latest)
    assert [one.id for one in theirs.latest] == ["r1", "r2"]
    assert theirs.latest[0].edits[0].reason == "stale"


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (None, "asks for a token: set RESPOOL_TOKEN"),
        (TOKEN, "does not accept the token in RESPOOL_TOKEN: it is wrong, has expired or was"),
        ("rst_\n", "RESPOOL_TOKEN holds characters that no token has"),
    ],
)
def test_a_token_that_is_none_is_a_sentence_without_it(
    proxied: Proxied, token: str | None, said: str
):
    with pytest.raises(RemoteStoreError, match=said) as error:
        RemoteReader(proxied.url, token).original(REF)
    assert token is None or token.strip() not in str(error.value)


@pytest.mark.parametrize(
    "url",
    [
        "", "host:7733", "ftp://host", "file:///etc/passwd", "http://", "http://me:secret@host",
        "http://host:x", "http://host?token=secret", "http://host#secret", "http://h\nost",
        "http://[::1", "http://\xe4.example",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_without_its_secrets(url: str):
    with pytest.raises(RemoteStoreError, match="write it as http://host:7733") as error:
        RemoteReader(url, TOKEN)
    assert "secret" not in str(error.value)


# --- what answers may not be a proxy -------------------------------------------------------------

Respond = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Impostor:
    """A server of tests, and the requests that it received."""

    port: int = 0
    tokens: list[str | None] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)


@contextlib.contextmanager
def answering(respond: Respond) -> Iterator[Impostor]:
    made = Impostor()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.paths.append(self.path)
            made.tokens.append(self.headers.get("x-respool-token"))
            respond(self)

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.port = server.server_port
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield made
        server.shutdown()


def send(one: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
    one.send_response(status)
    for name, value in headers.items():
        one.send_header(name.replace("_", "-"), value)
    one.send_header("content-length", str(len(body)))
    one.end_headers()
    one.wfile.write(body)


def healthy(then: Respond) -> Respond:
    """Answers /healthz as a proxy with tokens does, and everything else otherwise."""

    def respond(one: BaseHTTPRequestHandler) -> None:
        if one.path == "/healthz":
            send(one, 200, b'{"status":"ok"}')
        else:
            then(one)

    return respond


def elsewhere(one: BaseHTTPRequestHandler) -> None:
    send(one, 302, b"", location="/elsewhere")


def saying(status: int, body: bytes, **headers: str) -> Respond:
    return lambda one: send(one, status, body, **headers)


SENTENCE = json.dumps({"error": {"message": "respool: go \x1b[2Jaway"}}).encode()
ANSWERS: list[tuple[Respond, str]] = [
    (saying(200, b"<html>"), "The server at http://127.0.0.1:[0-9]+ is not respool"),
    (saying(200, b'{"status":"fine"}'), "is not respool"),
    (saying(404, b""), "is not respool"),
    (elsewhere, "is not respool"),
    (healthy(elsewhere), "does not answer this .status 302.: it is an older respool"),
    (healthy(saying(404, b'{"error":"There is nothing"}')), "status 404.: it is an older respool"),
    (healthy(saying(502, b"bad gateway")), "status 502"),
    (healthy(saying(200, b"[1, 2")), "is not understood: its version differs"),
    (healthy(saying(200, b'{"hits": 7}')), "is not understood: its version differs"),
    (healthy(saying(503, SENTENCE, x_respool_error="store")), r"refuses: go  \[2Jaway"),
    (healthy(saying(503, b"", x_respool_error="store")), "refuses: status 503"),
]


@pytest.mark.parametrize(("respond", "said"), ANSWERS)
def test_every_answer_that_is_none_is_a_sentence(respond: Respond, said: str):
    with answering(respond) as server:
        reader = RemoteReader(f"http://127.0.0.1:{server.port}/", TOKEN)
        with pytest.raises(RemoteStoreError, match=said) as error:
            reader.search("x", conversation=None, limit=9)
    assert TOKEN not in str(error.value)
    assert server.paths[0] == "/healthz"  # it goes to nobody who did not answer as respool does
    assert [one is None for one in server.tokens] == [one == "/healthz" for one in server.paths]
    assert "/elsewhere" not in server.paths  # a redirect would take the token along


@pytest.mark.parametrize("respond", [one for one, _ in ANSWERS[:4]])
def test_the_token_goes_to_nothing_but_a_proxy(respond: Respond):
    with answering(respond) as server, pytest.raises(RemoteStoreError):
        RemoteReader(f"http://127.0.0.1:{server.port}", TOKEN).conversations(9)
    assert set(server.tokens) == {None}


def test_a_proxy_that_is_away_is_a_sentence():
    with answering(saying(200, b"")) as server:
        port = server.port
    with pytest.raises(RespoolError, match="cannot be reached: Connection refused"):
        RemoteReader(f"http://127.0.0.1:{port}", TOKEN).original(REF)


def test_an_address_may_have_a_path_and_the_token_in_it(proxied: Proxied):
    """As a base URL has it; no message shows it."""
    reader = RemoteReader(f"{proxied.url}/respool-token/{proxied.token}", None)
    assert reader.original(REF) == TEXT
    assert reader.shown == proxied.url


# --- commands ----------------------------------------------------------------------------------


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def test_commands_ask_the_proxy(proxied: Proxied, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RESPOOL_TOKEN", proxied.token)
    there = ("--url", proxied.url)
    assert run("expand", REF, *there).stdout_bytes == TEXT.encode("utf-8", "surrogatepass")
    assert run("expand", REF[:4], *there, "--lines", "1").output == "a needle\n"
    missing = run("expand", "a" * 20, *there)
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert f"No original is kept under {'a' * 20} there." in missing.stderr
    found = json.loads(run("search", "needle", "--json", *there).stdout)
    assert {hit["ref"] for hit in found} == {REF, reference("another needle")}
    only = run("search", "needle", "--conversation", NAME[:4], "--limit", "1", *there)
    assert "There are more than 1" in only.stderr
    nothing = run("search", "nowhere", *there)
    assert (nothing.exit_code, nothing.stderr) == (1, "No original has this.\n")
    monkeypatch.setenv("RESPOOL_TOKEN", TOKEN)
    refused = run("search", "needle", *there)
    assert refused.exit_code == 2
    assert "does not accept the token in RESPOOL_TOKEN" in refused.stderr
    assert TOKEN not in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("expand", REF, "--store", "x.db"), "--url asks a proxy and --store opens a store"),
        (("expand", REF, "--originals", "x"), "--url asks a proxy and --originals reads a file"),
        (("search", "x", "--store", "x.db"), "--url asks a proxy and --store opens a store"),
        (("search", "x", "--team", "one"), "--team is not for --url"),
        (("mcp", "--team", "one"), "--team is not for --url"),
        (("mcp", "--store", "x.db"), "--url asks a proxy and --store opens a store"),
    ],
)
def test_options_that_exclude_one_another_are_refused(arguments: tuple[str, ...], said: str):
    result = run(*arguments, "--url", "http://127.0.0.1:9")
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize("command", [("expand", REF), ("search", "x"), ("mcp",)])
def test_a_command_refuses_what_is_no_address(command: tuple[str, ...]):
    result = run(*command, "--url", "host:7733")
    assert result.exit_code == 2
    assert "respool: The URL of the proxy is not allowed" in result.stderr
