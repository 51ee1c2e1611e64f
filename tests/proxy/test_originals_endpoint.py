"""Originals over the port: one key never reads another's, nor learns whether it is there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from respool import Policy
from respool.markers import reference
from respool.proxy.app import build_app
from respool.proxy.log import LogEntry
from respool.proxy.server import RunningServer, serving
from respool.proxy.server_options import CompactionOptions, ServerOptions
from respool.store import SQLiteStore
from tests.proxy.compaction import EAGER_POLICY, PATHS, STEPS, request_body
from tests.proxy.sockets import all_to, ask, get, post, upstream
from tests.store.support import by_ref
from tests.support.formats import FORMATS, results

ONE, TWO = "the-first-key", "the-second-key"
HEADER = {"anthropic": "x-api-key: {}", "gemini": "x-goog-api-key: {}"}
HOSTILE = "<script>alert(1)</script>"
TOKEN = "a-token-of-enough-length"


def key(format: str, value: str) -> str:
    return HEADER.get(format, "authorization: Bearer {}").format(value)


@asynccontextmanager
async def running(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    token: str | None = None,
    policy: Policy = EAGER_POLICY,
) -> AsyncGenerator[tuple[RunningServer, list[LogEntry], Any]]:
    monkeypatch.setenv("RESPOOL_STORE", str(path))
    records: list[LogEntry] = []
    async with upstream() as behind:
        config = ServerOptions(port=0, upstreams=all_to(behind.port), token=token)
        app = build_app(config, CompactionOptions(policy=policy), records.append)
        async with serving(app) as one:
            yield one, records, behind


def drive(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[int, Any], Awaitable[None]],
    token: str | None = None,
) -> list[LogEntry]:
    async def run() -> list[LogEntry]:
        async with running(path, monkeypatch, token) as (one, records, behind):
            await act(one.port, behind)
            return records

    return asyncio.run(run())


def original(ref: str) -> str:
    return f"/respool/originals/{ref}"


@pytest.mark.parametrize("format", FORMATS)
def test_the_key_whose_request_it_was_gets_it_back_and_no_other_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
):
    async def act(port: int, behind: Any) -> None:
        sent = post(PATHS[format], request_body(format, 3), key(format, ONE))
        assert (await ask(port, sent)).status == 200
        text = STEPS[0][0].result
        ref = reference(text)
        assert ref in results(format, json.loads(behind.received[-1].body))[0]
        mine = await ask(port, get(original(ref), key(format, ONE)))
        assert (mine.status, mine.body) == (200, text.encode())
        others = [
            get(original(ref), key(format, TWO)),
            get(original(ref), key(format, ONE + "x")),
            get(original("a" * 20), key(format, TWO)),
            get(original("a" * 20), key(format, ONE)),
        ]
        replies = [await ask(port, raw) for raw in others]
        assert {reply.status for reply in replies} == {404}
        assert len({reply.raw for reply in replies}) == 1  # byte for byte: there is nothing to tell

    drive(tmp_path / "respool.db", monkeypatch, act)


ODD = [
    "a", "A" * 20, "a" * 21, "a" * 10_000, "", "%00", "..%2f..%2fetc%2fpasswd", "%ff%fe", "*",
    "a'--", "%25", "aaaa/bbbb",
]  # fmt: skip


def test_what_is_no_reference_is_answered_as_an_unknown_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def act(port: int, behind: Any) -> None:
        unknown = await ask(port, get(original("a" * 20), key("anthropic", ONE)))
        for ref in ODD:
            reply = await ask(port, get(original(ref), key("anthropic", ONE)))
            assert reply.raw == unknown.raw, ref
        assert unknown.status == 404
        assert behind.received == []  # and nothing of it goes up

    drive(tmp_path / "respool.db", monkeypatch, act)


def test_without_a_key_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Neither of what came with a key, nor of what came without one."""

    async def act(port: int, behind: Any) -> None:
        for headers in ((), (key("anthropic", ONE),)):
            await ask(port, post(PATHS["anthropic"], request_body("anthropic", 3), *headers))
        ref = reference(STEPS[0][0].result)
        refs = (ref, "a" * 20, "nonsense")
        replies = [await ask(port, get(original(one))) for one in refs]
        assert {reply.status for reply in replies} == {401}
        assert len({reply.raw for reply in replies}) == 1
        assert b'"code":"key"' in replies[0].body

    drive(tmp_path / "respool.db", monkeypatch, act)


def test_two_keys_that_left_the_same_text_each_have_it_until_theirs_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def act(port: int, behind: Any) -> None:
        for value in (ONE, TWO):
            await ask(
                port,
                post(PATHS["anthropic"], request_body("anthropic", 3), key("anthropic", value)),
            )
        asked = get(original(reference(STEPS[0][0].result)), key("anthropic", ONE))
        assert (await ask(port, asked)).status == 200
        store = SQLiteStore(tmp_path / "respool.db")
        assert store.flush()
        owners = {one.owner for one in store.conversations(None)}
        assert len(owners) == 2
        forgotten = owners.pop()
        store.forget(owner=forgotten)
        store.close()
        seen = [
            (
                await ask(
                    port, get(original(reference(STEPS[0][0].result)), key("anthropic", value))
                )
            ).status
            for value in (ONE, TWO)
        ]
        assert sorted(seen) == [200, 404]

    drive(tmp_path / "respool.db", monkeypatch, act)


def test_what_a_tool_printed_is_text_to_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from respool.proxy.auth import owner_of

    path = tmp_path / "respool.db"
    store = SQLiteStore(path)
    owner = owner_of([(b"x-api-key", ONE.encode())], b"", store.salt())
    store.keep(owner, "c", by_ref(HOSTILE, "half \ud83d"))
    store.close()

    async def act(port: int, behind: Any) -> None:
        reply = await ask(port, get(original(reference(HOSTILE)), key("anthropic", ONE)))
        assert reply.body == HOSTILE.encode()
        headers = dict(reply.headers)
        assert headers[b"content-type"] == b"text/plain; charset=utf-8"
        assert headers[b"x-content-type-options"] == b"nosniff"
        assert b"sandbox" in headers[b"content-security-policy"]
        assert headers[b"cache-control"] == b"no-store"
        half = await ask(port, get(original(reference("half \ud83d")), key("anthropic", ONE)))
        assert half.body == "half \ud83d".encode("utf-8", "surrogatepass")
        head = await ask(port, get(original("a" * 20), key("anthropic", ONE), method="HEAD"))
        assert head.status == 404
        wrong = await ask(port, post(original(reference(HOSTILE)), b"", key("anthropic", ONE)))
        assert wrong.status == 405

    drive(path, monkeypatch, act)


def test_other_sites_and_strangers_are_refused_before_any_key_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def foreign(port: int, behind: Any) -> None:
        asked = get(original("a" * 20), key("anthropic", ONE), "Origin: https://elsewhere.example")
        assert (await ask(port, asked)).status == 403

    async def strange(port: int, behind: Any) -> None:
        assert (await ask(port, get(original("a" * 20), key("anthropic", ONE)))).status == 401
        inside = get(original("a" * 20), key("anthropic", ONE), f"x-respool-token: {TOKEN}")
        assert (await ask(port, inside)).status == 404

    drive(tmp_path / "respool.db", monkeypatch, foreign)
    drive(tmp_path / "respool.db", monkeypatch, strange, TOKEN)


def test_a_store_that_cannot_be_read_is_told_without_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "state"
    folder.mkdir()

    async def act(port: int, behind: Any) -> None:
        await ask(
            port, post(PATHS["anthropic"], request_body("anthropic", 3), key("anthropic", ONE))
        )
        for file in folder.iterdir():
            file.unlink()
        (folder / "respool.db").mkdir()
        reply = await ask(port, get(original("a" * 20), key("anthropic", ONE)))
        assert reply.status == 503
        assert str(tmp_path).encode() not in reply.raw

    drive(folder / "respool.db", monkeypatch, act)


def test_no_line_of_the_log_has_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def act(port: int, behind: Any) -> None:
        await ask(port, get(original("a" * 20), key("anthropic", ONE)))
        await ask(port, get(f"{original('a' * 20)}?key={ONE}"))

    records = drive(tmp_path / "respool.db", monkeypatch, act)
    assert [record.status for record in records] == [404, 404]
    assert ONE not in repr(records)
