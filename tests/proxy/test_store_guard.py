"""The proxy and its store: durable before it goes up, and no request fails when it cannot be."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from respool.facts import Facts
from respool.store import SQLiteStore, StoreUnavailable
from respool.store.database_file import quarantined_files
from tests.providers.signing_provider import BOUND, REF, TOOLS, Signer
from tests.proxy.compaction import (
    INVALID,
    LONG,
    PATHS,
    Compacted,
    answer,
    drive,
    request_body,
    response_header,
)
from tests.proxy.program import USAGE
from tests.proxy.sockets import (
    SOON,
    ReceivedRequest,
    Upstream,
    ask,
    get,
    post,
    reply_with,
    until,
    upstream,
)
from tests.store.support import ROOT, SOURCE, child

BOUNDED = 2.5  # seconds that a broken store may cost a request, at most once


@contextlib.contextmanager
def locked(store: SQLiteStore, how: str) -> Iterator[None]:
    other, patience = child("lock", str(store.path), how), store._database.wait
    assert other.stdout is not None
    assert other.stdout.readline() == "locked\n"
    store._database.wait = 0.3
    try:
        yield
    finally:
        other.communicate("go\n", timeout=20)
        store._database.wait = patience


@contextlib.contextmanager
def refusing(store: SQLiteStore, why: Any) -> Iterator[None]:
    """Whatever is to be written is refused, in the way that the store's own tests bring about."""

    def refuse(_work: object) -> None:
        raise StoreUnavailable(store.path, why)

    written = store._database.write
    store._database.write = refuse  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        store._database.write = written  # type: ignore[method-assign]


@contextlib.contextmanager
def gone(store: SQLiteStore, _how: str) -> Iterator[None]:
    """The file is deleted, and no other can be made in its place."""
    for one in store.path.parent.glob("respool.db*"):
        one.unlink()
    store.path.mkdir()
    try:
        yield
    finally:
        store.path.rmdir()


FAULTS = [
    (locked, "for writing"),
    (gone, ""),
    *((refusing, why) for why in ("full", "read-only", "failing")),
]
faults = pytest.mark.parametrize(("fault", "how"), FAULTS, ids=[how or "gone" for _, how in FAULTS])


def refs_in(bodies: list[bytes]) -> set[str]:
    return {ref for body in bodies for ref in REF.findall(body.decode())}


async def told_all(one: Compacted) -> None:
    """The store was told what it could not be told before: it is found to be well."""
    await until(lambda: not one.decider._guard._pending)


async def timed(asking: Any) -> float:
    begun = time.monotonic()
    reply = await asking
    assert reply.status == 200
    return time.monotonic() - begun


@faults
def test_no_new_edit_is_made_and_those_in_force_stay(tmp_path: Path, fault: Any, how: str):
    async def act(one: Compacted) -> None:
        await one.ask("anthropic", 3)
        before = one.received("anthropic")
        with fault(one.store, how):
            taken = [await timed(one.ask("anthropic", steps)) for steps in (4, 5, 6)]
            assert max(taken) < BOUNDED
            for at in (1, 2, 3):
                assert one.shortened("anthropic", at)[:3] == [True, True, False]
                assert one.received("anthropic", at)[:2] == before[:2]
        await told_all(one)
        reply = await one.ask("anthropic", 7)
        assert response_header(reply, "x-respool-sent") == "projection"
        assert one.shortened("anthropic") == [True] * 6 + [False]
        refs = refs_in(one.bodies)
        assert len(refs) == 6
        await asyncio.sleep(2.1)  # what was deleted is asked for now and then
        await one.ask("anthropic", 7)
        assert one.store.readable_refs(refs, None) == refs

    drive(tmp_path, act)


@faults
def test_a_new_conversation_goes_up_as_it_came(tmp_path: Path, fault: Any, how: str):
    async def act(one: Compacted) -> None:
        one.store.flush()
        with fault(one.store, how):
            assert await timed(one.ask("openai-chat", 3)) < BOUNDED
            assert await timed(one.ask("openai-chat", 4)) < BOUNDED
            assert one.bodies == [request_body("openai-chat", 3), request_body("openai-chat", 4)]
        await told_all(one)
        assert response_header(await one.ask("openai-chat", 5), "x-respool-sent") == "projection"

    drive(tmp_path, act)


def test_nothing_is_edited_at_arrival_either(tmp_path: Path):
    import respool

    noisy = "\x1b[31mred\x1b[0m trailing    \n" * 50

    async def act(one: Compacted) -> None:
        await one.ask("anthropic", 1)
        asked = json.loads(request_body("anthropic", 2))
        asked["messages"][-1]["content"][0]["content"] = noisy
        with locked(one.store, "for writing"):
            assert (await one.send("anthropic", json.dumps(asked).encode())).status == 200
            assert json.loads(one.bodies[-1])["messages"][-1] == asked["messages"][-1]

    drive(tmp_path, act, policy=respool.Policy())


def test_a_damaged_file_is_put_aside_and_what_is_still_sent_is_kept_again(tmp_path: Path):
    async def act(one: Compacted) -> None:
        await one.ask("anthropic", 3)
        assert one.store.flush()
        for file in one.store.path.parent.glob("respool.db*"):
            file.write_bytes(os.urandom(max(8_192, file.stat().st_size)))
        await asyncio.sleep(2.1)
        for steps in (4, 5):
            assert (await one.ask("anthropic", steps)).status == 200
            await asyncio.sleep(1.2)
        assert (await one.ask("anthropic", 6)).status == 200
        await asyncio.sleep(2.1)
        assert (await one.ask("anthropic", 6)).status == 200
        refs = refs_in(one.bodies)
        assert one.store.readable_refs(refs, None) == refs
        assert one.store.quarantined_files()

    drive(tmp_path, act)


async def fact_while_locked(one: Compacted) -> str:
    """The conversation of a fact that the store could not be told."""
    await one.ask("anthropic", 3)
    (record,) = await one.records(1)
    with locked(one.store, "for writing"):
        await one.ask("anthropic", 4)
        assert not one.store.facts(record.conversation).skipped
    return record.conversation


def test_facts_that_could_not_be_kept_are_kept_later(tmp_path: Path):
    async def act(one: Compacted) -> None:
        conversation = await fact_while_locked(one)
        await told_all(one)
        one.decider.fault = RuntimeError()
        await one.ask("anthropic", 5)
        assert len(one.store.facts(conversation).skipped) == 2

    drive(tmp_path, act)


def test_facts_are_told_as_soon_as_the_store_can_be_had(tmp_path: Path):
    """No request has to come for that: another process may get the next one."""

    async def act(one: Compacted) -> None:
        conversation = await fact_while_locked(one)
        await until(lambda: len(one.store.facts(conversation).skipped) == 1)

    drive(tmp_path, act)


def test_at_the_end_no_fact_is_left_untold(tmp_path: Path):
    """A store that has just become free again is told, though it was to be left alone a while."""
    names: list[str] = []

    async def act(one: Compacted) -> None:
        await one.ask("anthropic", 3)
        (record,) = await one.records(1)
        names.append(record.conversation)
        with locked(one.store, "for writing"):
            await one.ask("anthropic", 4)

    drive(tmp_path, act)
    store = SQLiteStore(tmp_path / "respool.db")
    assert len(store.facts(names[0]).skipped) == 1
    store.close()


def test_facts_that_wait_outlive_a_conversation_that_is_not_remembered(tmp_path: Path):
    async def act(one: Compacted) -> None:
        one.decider._conversations._max_size = 1
        await one.ask("anthropic", 3)
        await one.records(1)
        with locked(one.store, "for writing"):
            await one.ask("anthropic", 4)
            await one.ask("openai-chat", 1)
            await one.ask("anthropic", 5)
            assert one.received("anthropic")[:3] == one.received("anthropic", 1)[:3]
        await told_all(one)
        await one.ask("anthropic", 6)
        one.decider._guard.close()
        names = {found.name for found in one.store.conversations(None)}
        assert sorted(len(one.store.facts(name).skipped) for name in names)[-1] == 2

    drive(tmp_path, act)


@contextlib.contextmanager
def serving(
    store: Path, port: int, deadline: float = 30.0, cap: int = 500, **environment: str
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`respool serve` in a process of its own, that clips whatever was seen.

    By default nothing is late, however slow the machine.
    """
    command = [sys.executable, "-m", "respool", "serve", "--port", "0", "--quiet"]
    command += ["--deadline", str(deadline)]
    upstreams = ["--upstream", f"anthropic=http://127.0.0.1:{port}"]
    settings = store.parent / "respool.toml"
    settings.write_text(
        f"cap_chars = {cap}\neager = true\nkeep_exchanges = 0\n"
        'reevaluate_tokens = 1\nreevaluate_ratio = 0.0\npasses = ["cap_results"]\n'
    )
    process = subprocess.Popen(
        [*command, *upstreams, "--policy", str(settings)],
        env={
            **os.environ,
            "PYTHONPATH": f"{SOURCE}{os.pathsep}{ROOT}",
            "RESPOOL_STORE": str(store),
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    said_so = process.stdout.readline()
    found = re.search(r"listens on http://[\w.]+:(\d+)", said_so)
    assert found, process.communicate()[1]
    try:
        yield process, int(found[1])
    finally:
        process.kill()
        process.communicate()


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs limits on a running process")
def test_files_that_can_grow_no_more_cost_no_request_and_no_original(tmp_path: Path):
    """The system refuses every write, as a full disk does, and after a while no more."""
    store = tmp_path / "respool.db"
    free = resource.RLIM_INFINITY

    async def play() -> list[bytes]:
        async with upstream() as behind:
            with serving(store, behind.port) as (process, port):

                async def say_all(*steps: int) -> None:
                    for count in steps:
                        raw = post(
                            PATHS["anthropic"], request_body("anthropic", count), "x-api-key: k"
                        )
                        assert (await ask(port, raw)).status == 200

                await say_all(1, 2, 3)
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (4_096, free))
                await say_all(4, 5, 6)
                health = json.loads((await ask(port, get("/healthz"))).body)
                assert (health["status"], health["store"]) in (
                    ("degraded", "full"),
                    ("degraded", "failing"),
                )
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (free, free))
                await asyncio.sleep(1.2)
                await say_all(7, 8)
                health = json.loads((await ask(port, get("/healthz"))).body)
                assert (health["status"], health["store"]) == ("ok", "ok")
                await until(lambda: recorded(store) == 8)  # they waited until they could be written
                process.terminate()
                process.communicate(timeout=20)
            return [one.body for one in behind.received]

    bodies = asyncio.run(asyncio.wait_for(play(), 60))
    marked = [body.count(b"left out") for body in bodies]
    assert marked == [0, 1, 2, 2, 2, 2, 6, 7]  # none is made while they cannot be kept
    refs = refs_in(bodies)
    kept = SQLiteStore(store)
    assert len(refs) == 7
    assert kept.readable_refs(refs, None) == refs
    kept.close()


def recorded(path: Path) -> int:
    """The number of requests that are written down."""
    with contextlib.closing(SQLiteStore(path, create=False)) as store:
        return sum(one.requests for one in store.conversations(None))


def test_a_kill_loses_no_record_older_than_a_second_and_a_clean_stop_none(tmp_path: Path):
    store, asked = tmp_path / "respool.db", 0

    async def ask_some(port: int, count: int) -> None:
        nonlocal asked
        for _ in range(count):
            asked += 1
            body = json.dumps({"messages": [{"role": "user", "content": f"question {asked}"}]})
            reply = await ask(port, post(PATHS["anthropic"], body.encode(), "x-api-key: k"))
            assert reply.status == 200

    async def play(ending: signal.Signals, first: int, last: int) -> None:
        async with upstream(reply_with(answer(200, {}))) as behind:
            with serving(store, behind.port) as (process, port):
                await ask_some(port, first)
                if first:
                    await until(lambda: recorded(store) == asked)  # a second later, when idle
                await ask_some(port, last)
                process.send_signal(ending)
                process.wait(SOON)

    asyncio.run(play(signal.SIGKILL, 8, 5))
    after_kill = recorded(store)
    assert 8 <= after_kill <= 13
    asyncio.run(play(signal.SIGTERM, 0, 9))
    assert recorded(store) == after_kill + 9


def test_killed_under_load_no_marker_is_left_without_its_original(tmp_path: Path):
    """Six conversations grow until the process is killed, again and again."""
    store = tmp_path / "respool.db"

    async def talk(port: int, name: str, rounds: int) -> None:
        for steps in range(1, 9):
            body = json.loads(request_body("anthropic", steps))
            for message in body["messages"]:
                for block in message["content"] if isinstance(message["content"], list) else []:
                    if block["type"] == "tool_result":
                        block["content"] = f"{name} {rounds} {block['tool_use_id']} {LONG}"
            body["messages"][0]["content"] = f"{name} {rounds}"
            with contextlib.suppress(OSError, IndexError):
                await ask(port, post(PATHS["anthropic"], json.dumps(body).encode(), "x-api-key: k"))

    async def play() -> set[str]:
        async with upstream() as behind:
            for rounds in range(4):
                with serving(store, behind.port) as (process, port):
                    enough = len(behind.received) + 5 + 8 * rounds
                    talks = (talk(port, f"task {n}", rounds) for n in range(6))
                    talking = asyncio.gather(*talks)
                    received = until(lambda enough=enough: len(behind.received) > enough)
                    await asyncio.wait_for(received, 60)
                    process.send_signal(signal.SIGKILL)
                    await asyncio.wait_for(talking, 60)
            return refs_in([one.body for one in behind.received])

    refs = asyncio.run(play())
    assert len(refs) > 5
    kept = SQLiteStore(store)
    assert kept.readable_refs(refs, None) == refs
    for ref in list(refs)[:20]:
        assert LONG in (kept.original(ref, None) or "")
    kept.close()


class KilledAgain:
    """Conversations that go on through many kills, with a provider that signs and verifies."""

    def __init__(
        self, store: Path, seed: int, caps: tuple[int, ...] = (500,), **environment: str
    ) -> None:
        self.store = store
        self.caps = caps
        self.chance = random.Random(seed)
        self.environment = environment
        self.provider = Signer()
        self.port = 0  # of the process that serves now; 0: none does
        self.is_over = False
        self.refused: list[str] = []
        self.answered: list[int] = []  # statuses that clients got
        self.facts: dict[str, Facts] = {}

    async def provide(self, received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if problems := self.provider.problems(received.body):
            self.refused += problems
            writer.write(INVALID)
            return
        blocks = self.provider.answer(received.body)
        await asyncio.sleep(self.chance.uniform(0, 0.02))
        writer.write(answer(200, {"role": "assistant", "content": blocks, "usage": USAGE}))

    async def talk(self, name: str) -> None:
        """A conversation of one client: it asks again what was not answered."""
        messages: list[Any] = [{"role": "user", "content": name}]
        while not self.is_over:
            if not self.port:
                await asyncio.sleep(0.02)
                continue
            told = {"model": BOUND, "max_tokens": 99, "tools": TOOLS, "messages": messages}
            raw = post(PATHS["anthropic"], json.dumps(told).encode(), f"x-api-key: {name[:6]}")
            try:
                reply = await ask(self.port, raw)
                status, blocks = reply.status, json.loads(reply.body)["content"]
            except (OSError, IndexError, ValueError, KeyError):  # killed meanwhile
                await asyncio.sleep(0.02)
                continue
            self.answered.append(status)
            text = f"{name} {len(messages)} {LONG}"
            result = {"type": "tool_result", "tool_use_id": blocks[-1]["id"], "content": text}
            messages += [
                {"role": "assistant", "content": blocks},
                {"role": "user", "content": [result]},
            ]
            if len(messages) > 60:
                messages[1:] = []
                messages[0]["content"] += " again"
                name = messages[0]["content"]

    async def play(self, rounds: int) -> None:
        async with upstream(self.provide) as behind:
            talks = asyncio.gather(*(self.talk(f"task {n}") for n in range(6)))
            try:
                for round in range(rounds):
                    await self.play_round(behind, self.caps[round % len(self.caps)])
            finally:
                self.is_over = True
                await asyncio.wait_for(talks, 60)
        assert len(self.answered) > 5 * rounds
        assert set(self.answered) == {200}
        assert len(self.provider.refs) > rounds

    async def play_round(self, behind: Upstream, cap: int) -> None:
        """One process, until it is killed; what is late becomes a fact."""
        deadline = self.chance.choice([0.02, 30.0])
        with serving(self.store, behind.port, deadline, cap, **self.environment) as (process, port):
            self.port, enough = port, len(behind.received) + self.chance.randrange(1, 40)
            await asyncio.wait_for(until(lambda: len(behind.received) > enough), 60)
            await asyncio.sleep(self.chance.uniform(0, 0.4))
            process.send_signal(signal.SIGKILL)
            process.wait()
            self.port = 0
            self.check()

    def check(self) -> None:
        """All that is said elsewhere of the store holds of what the kill has left."""
        kept = SQLiteStore(self.store)
        lost = self.provider.refs - kept.readable_refs(self.provider.refs, None)
        assert not lost, "an original is lost"
        for ref in self.chance.sample(sorted(self.provider.refs), min(20, len(self.provider.refs))):
            assert LONG in (kept.original(ref, None) or ""), "an original is another text"
        assert self.refused == [], "the provider refused a request"
        for conversation in kept.conversations(None, limit=1_000):
            facts, before = (
                kept.facts(conversation.name),
                self.facts.get(conversation.name, Facts()),
            )
            assert before.merge(facts) == facts, "a fact is gone or another"
            self.facts[conversation.name] = facts
        kept.close()
        assert quarantined_files(self.store) == []
        with contextlib.closing(sqlite3.connect(self.store)) as connection:
            for question in DANGLING:
                assert connection.execute(question).fetchall() in ([], [("ok",)]), question


DANGLING = (
    "PRAGMA integrity_check",
    "SELECT * FROM kept WHERE ref NOT IN (SELECT ref FROM originals)",
    "SELECT * FROM kept WHERE conversation NOT IN (SELECT id FROM conversations)",
    "SELECT ref FROM originals WHERE ref NOT IN (SELECT ref FROM kept)",
    "SELECT id FROM requests WHERE conversation NOT IN (SELECT id FROM conversations)",
)
KEEPS_NOTHING = "from respool.store import SQLiteStore\nSQLiteStore.keep = lambda *_: None"
KEEPS_REASONING = """
from respool.compaction import evaluation
evaluation._drop_bound_reasoning = lambda *_: False
"""  # though no two processes decide alike
FORGETS_FACTS = """
from respool.store import record_tables
whole = record_tables.write_facts
def write_facts(connection, *given):
    connection.execute("DELETE FROM facts")
    whole(connection, *given)
record_tables.write_facts = write_facts
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_again_and_again_conversations_go_on(tmp_path: Path, seed: int):
    """Nothing that a marker names is lost, and the provider verifies each request."""
    asyncio.run(KilledAgain(tmp_path / "respool.db", seed).play(12))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "caps", "said_then"),
    [
        (KEEPS_NOTHING, (500,), "an original is lost"),
        (FORGETS_FACTS, (500,), "a fact is gone"),
        (KEEPS_REASONING, (500, 1_500), "the provider refused a request"),
    ],
    ids=["originals", "facts", "refusal"],
)
def test_killed_again_and_again_can_fail(
    tmp_path: Path, planted: str, caps: tuple[int, ...], said_then: str
):
    (tmp_path / "sitecustomize.py").write_text(planted)
    paths = os.pathsep.join(map(str, (tmp_path, SOURCE, ROOT)))
    one = KilledAgain(tmp_path / "respool.db", 1, caps, PYTHONPATH=paths)
    with pytest.raises(AssertionError, match=said_then):
        asyncio.run(one.play(12))
