"""Keep-alive pings: sent when they pay, never with a login, within the budget, recorded apart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from respool.cli import main
from respool.cli.serve import start_lines
from respool.policy import Policy
from respool.proxy.app import App, build_app
from respool.proxy.compactor import Compactor
from respool.proxy.decide import Decider
from respool.proxy.keep_alive import KeepAlive, is_api_key, ping_body
from respool.proxy.log import log_nothing
from respool.proxy.recorder import Recorder
from respool.proxy.server_options import CompactionOptions, ServerOptions, TransferLimits
from respool.store import KeepAliveEvent, SQLiteStore
from tests.proxy.compaction import answer
from tests.proxy.sockets import all_to, ask, post, serving, until, upstream
from tests.store.support import salt_of

NOON = 1_790_000_000.0 - 1_790_000_000.0 % 86_400 + 43_200
API_KEY = "x-api-key: sk-ant-api03-made-up"
LOGIN = "authorization: Bearer sk-ant-oat01-made-up"
MODEL = "claude-sonnet-4-6"  # $3 a million tokens of input
PROMPT = 40_000  # tokens, by the upstream's report
SENTENCE = "The loom stands still until the weft is wound again. "


def body_of(turns: int, *, ttl: str = "5m", **fields: Any) -> bytes:
    """A conversation of so many requests, with a cache breakpoint on its last block."""
    messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "go on"}]}]
    for turn in range(1, turns):
        call = {"type": "tool_use", "id": f"c{turn}", "name": "Read", "input": {"n": turn}}
        result = {"type": "tool_result", "tool_use_id": f"c{turn}", "content": SENTENCE * 20}
        messages += [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]
    control = {"type": "ephemeral", **({"ttl": "1h"} if ttl == "1h" else {})}
    messages[-1]["content"][-1]["cache_control"] = control
    tools = [{"name": "Read", "input_schema": {"type": "object"}}]
    given = {"model": MODEL, "max_tokens": 900, "stream": False, "tools": tools}
    return json.dumps({**given, **fields, "messages": messages}).encode()


@dataclass
class Stage:
    """A proxy with keep-alive, its upstream, and a clock that only tests move."""

    now: float = NOON
    events: list[KeepAliveEvent] = field(default_factory=list[KeepAliveEvent])
    stop_reason: str = "tool_use"
    read: int = PROMPT  # tokens that the upstream says it read from its cache
    status: int = 200
    hold: asyncio.Event | None = None  # until it is set, the upstream does not answer pings
    port: int = 0
    behind: Any = None
    store: Any = None
    keep_alive: Any = None
    compactor: Any = None

    async def script(self, received: Any, writer: asyncio.StreamWriter) -> None:
        if self.hold is not None and json.loads(received.body).get("max_tokens") == 1:
            await self.hold.wait()
        usage = {
            "input_tokens": 0,
            "cache_read_input_tokens": self.read,
            "cache_creation_input_tokens": PROMPT - self.read,
            "output_tokens": 1,
        }
        said = {"type": "message", "model": MODEL, "stop_reason": self.stop_reason, "usage": usage}
        writer.write(answer(self.status, said if self.status == 200 else {"type": "error"}))

    async def send(self, turns: int, key: str = API_KEY, **fields: Any) -> None:
        headers = (key, "content-type: text/json", "idempotency-key: once")
        request = post("/v1/messages", body_of(turns, **fields), *headers)
        reply = await ask(self.port, request)
        assert reply.status in (200, self.status)

    async def converse(self, key: str = API_KEY, **fields: Any) -> None:
        """Two requests, so that the conversation is known to go on."""
        await self.send(1, key, **fields)
        await self.send(2, key, **fields)

    async def wait(self, seconds: float) -> None:
        self.now += seconds
        await self.keep_alive.tick()

    @property
    def pings(self) -> list[dict[str, Any]]:
        bodies = (json.loads(one.body) for one in self.behind.received)
        return [one for one in bodies if one.get("max_tokens") == 1]


@asynccontextmanager
async def staged(folder: Path, budget: float = 10.0) -> AsyncGenerator[Stage]:
    stage = Stage()
    store = SQLiteStore(folder / "respool.db")
    options = CompactionOptions(policy=Policy(), deadline=20.0)
    decider = Decider(options.policy, store)
    compactor = Compactor(
        decider, Recorder(store), options, salt=salt_of(store), clock=lambda: stage.now
    )
    keep_alive = KeepAlive(
        budget,
        store,
        note_alive=compactor.note_alive,
        is_on=lambda: compactor.mode != "pause",
        on_event=stage.events.append,
        clock=lambda: stage.now,
    )
    async with upstream(stage.script) as behind:
        server = ServerOptions(
            port=0, upstreams=all_to(behind.port), limits=TransferLimits(drain_seconds=1.0)
        )
        app = App(server, compactor, keep_alive=keep_alive)
        async with serving(app) as running:
            stage.port, stage.behind, stage.store = running.port, behind, store
            stage.keep_alive, stage.compactor = keep_alive, compactor
            yield stage


def drive(folder: Path, act: Callable[[Stage], Any], budget: float = 10.0) -> None:
    async def run() -> None:
        async with staged(folder, budget) as stage:
            await act(stage)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_ping_is_the_last_request_with_one_token_of_output(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        await stage.converse(thinking={"type": "adaptive"})
        await stage.wait(200)
        assert not stage.pings
        await stage.wait(80)
        (ping,) = stage.pings
        last = json.loads(stage.behind.received[1].body)
        assert "stream" not in ping
        assert {**ping, "max_tokens": 900, "stream": False} == last
        sent = stage.behind.received[2]
        assert sent.named("x-api-key") == ["sk-ant-api03-made-up"]
        assert sent.named("content-type") == ["text/json"]
        assert sent.named("idempotency-key") == []

    drive(tmp_path, act)


def test_pings_go_on_until_they_do_not_pay(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        await stage.converse()
        for _ in range(400):
            await stage.wait(10)
        # At .1 a ping pays while the chance is over .1 / 1.15; a tool's result seldom stays out.
        assert len(stage.pings) == 3
        assert not stage.keep_alive._idle

    drive(tmp_path, act)


def test_what_waits_for_a_person_has_its_own_chances(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        stage.stop_reason = "end_turn"
        await stage.converse(ttl="1h")
        for _ in range(8):
            await stage.wait(3_240)
        assert len(stage.pings) == 1

    drive(tmp_path, act)


@pytest.mark.parametrize(
    ("key", "fields"),
    [
        (LOGIN, {}),
        ("x-api-key: something-of-a-gateway", {}),
        (API_KEY, {"thinking": {"type": "enabled", "budget_tokens": 1_024}}),
        (API_KEY, {"model": "a-model-without-a-price"}),
        (API_KEY, {"container": "c"}),
    ],
)
def test_no_ping(tmp_path: Path, key: str, fields: dict[str, Any]) -> None:
    async def act(stage: Stage) -> None:
        await stage.converse(key, **fields)
        for _ in range(5):
            await stage.wait(275)
        assert not stage.pings

    drive(tmp_path, act)


def test_no_ping_for_one_request_or_after_the_cache_has_gone(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        await stage.send(1)
        await stage.wait(280)
        await stage.send(2)
        await stage.wait(3_000)  # a suspended machine
        assert not stage.pings
        stage.stop_reason = "refusal"
        await stage.send(3)
        await stage.wait(280)
        assert not stage.pings

    drive(tmp_path, act)


def test_a_count_of_tokens_is_no_request_of_the_conversation(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        await stage.converse()
        counted = {k: v for k, v in json.loads(body_of(2)).items() if k != "max_tokens"}
        body = json.dumps(counted).encode()
        assert (await ask(stage.port, post("/v1/messages/count_tokens", body, API_KEY))).status
        await stage.wait(280)
        assert len(stage.pings) == 1

    drive(tmp_path, act)


def test_no_ping_while_paused(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        await stage.converse()
        stage.compactor.switch("pause")
        await stage.wait(280)
        assert not stage.pings

    drive(tmp_path, act)


def test_a_request_ends_the_pings_before_it(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        await stage.converse()
        stage.hold = asyncio.Event()
        waiting = asyncio.create_task(stage.wait(280))
        await until(lambda: len(stage.pings) == 1)
        await stage.send(3)  # it cancels the ping
        await waiting
        stage.hold.set()
        (event,) = stage.events
        # Nobody knows what it cost: the most that it can have cost counts.
        assert event.money == pytest.approx(3e-6 * (PROMPT * 1.25 + 5))
        await stage.wait(100)
        assert len(stage.pings) == 1  # the pause begins anew

    drive(tmp_path, act)


def test_the_budget_is_a_hard_stop(tmp_path: Path) -> None:
    # A ping costs 1.2 cents, and 15 if it finds nothing: that must be left.
    async def act(stage: Stage) -> None:
        await stage.converse()
        await stage.wait(275)
        await stage.wait(275)
        assert len(stage.pings) == 1
        assert sum(one.money for one in stage.events) < 0.16

    drive(tmp_path, act, budget=0.155)

    async def again(stage: Stage) -> None:  # another process, the same day
        stage.now = NOON + 1_000
        await stage.converse()
        await stage.wait(275)
        assert not stage.pings
        stage.now = NOON + 86_400
        await stage.send(3)
        await stage.wait(275)
        assert len(stage.pings) == 1

    drive(tmp_path, again, budget=0.155)


def test_without_a_store_nothing_is_spent(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        await stage.converse()
        stage.store.close()
        await stage.wait(275)
        assert not stage.pings

    drive(tmp_path, act)


@pytest.mark.parametrize(("read", "status"), [(0, 200), (PROMPT, 400), (PROMPT, 529)])
def test_a_ping_that_does_not_help_is_the_last(tmp_path: Path, read: int, status: int) -> None:
    async def act(stage: Stage) -> None:
        await stage.converse()
        stage.read, stage.status = read, status
        for _ in range(3):
            await stage.wait(275)
        assert len(stage.pings) == 1
        (event,) = stage.events
        assert event.money == (pytest.approx(3e-6 * (PROMPT * 1.25 + 5)) if status == 200 else 0)

    drive(tmp_path, act)


def test_pings_are_recorded_apart_and_so_is_what_they_saved(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        await stage.converse()
        await stage.wait(275)
        stage.now += 200  # 475 seconds after the request: it would have expired
        await stage.send(3)
        await until(lambda: len(stage.events) == 2)
        await until(
            lambda: (
                stage.store.flush()
                and stage.store.keep_alive_total(None, since=NOON, until=NOON + 9e3).hits == 1
            )
        )
        total = stage.store.keep_alive_total(None, since=NOON, until=NOON + 9e3)
        assert (total.pings, total.hits) == (1, 1)
        assert total.paid == pytest.approx(3e-6 * (PROMPT * 0.1 + 5))
        assert total.saved == pytest.approx(3e-6 * PROMPT * 1.15)
        await asyncio.sleep(0.5)
        stage.store.flush()
        (conversation,) = stage.store.conversations(None)
        records = stage.store.requests(conversation.name, None)
        assert len(records) == 3  # the client's own
        assert "cold" not in [one.prefix_break for one in records]

    drive(tmp_path, act)


def test_without_pings_the_same_pause_is_cold(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
        await stage.converse()
        stage.now += 475
        stage.read = 0
        await stage.send(3)
        await asyncio.sleep(0.5)
        stage.store.flush()
        (conversation,) = stage.store.conversations(None)
        last = stage.store.requests(conversation.name, None)[-1]
        assert last.prefix_break == "cold"
        assert last.expired > 0
        assert last.expired_cost is not None
        bill = stage.store.bill(None, since=NOON, until=NOON + 9e3)
        assert (bill.requests, bill.pauses, bill.expired) == (3, 1, last.expired)
        assert bill.tools == ()  # the one tool was called

    drive(tmp_path, act)


def test_keys_and_logins() -> None:
    assert is_api_key(((b"X-Api-Key", b"sk-ant-api03-x"),))
    assert is_api_key(((b"authorization", b"Bearer sk-ant-api03-x"),))
    both = ((b"x-api-key", b"sk-ant-api03-x"), (b"authorization", b"Bearer sk-ant-oat01-x"))
    assert not is_api_key(both)
    assert not is_api_key(((b"authorization", b"Bearer eyJhbGciOi"),))
    assert not is_api_key(((b"x-api-key", b"sk-ant-oat01-x"),))
    assert not is_api_key(())


def test_bodies_without_a_valid_ping() -> None:
    assert ping_body(b"[1]") is None
    assert ping_body(b"{") is None
    assert ping_body(b'{"model": "m"}') is None
    kept = ping_body(b'{"messages": [ 1.0 ], "max_tokens": 5, "stream": true}')
    assert kept == b'{"messages":[ 1.0 ],"max_tokens":1}'


def test_the_complete_proxy_sends_none_unless_asked(tmp_path: Path) -> None:
    server = ServerOptions(port=0)
    for budget, is_on in ((0.0, False), (0.5, True)):
        store = SQLiteStore(tmp_path / "respool.db")
        options = CompactionOptions(keep_alive=budget)
        app = build_app(server, options, log_nothing, store=store)
        assert (app._keep_alive is not None) == is_on
        said = "\n".join(start_lines("http://127.0.0.1:1", server, options))
        assert ("Keep-alive pings may cost $0.50 a day" in said) == is_on
        store.close()


def test_metrics_count_pings_and_dollars(tmp_path: Path) -> None:
    async def act() -> None:
        store = SQLiteStore(tmp_path / "respool.db")
        options = CompactionOptions(keep_alive=0.5)
        async with serving(
            build_app(ServerOptions(port=0), options, log_nothing, store=store)
        ) as r:
            reply = await ask(r.port, b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
            text = reply.body.decode()
            assert 'respool_keep_alive_total{kind="ping"} 0' in text
            assert 'respool_keep_alive_dollars_total{kind="saved"} 0' in text

    asyncio.run(asyncio.wait_for(act(), 60))


@pytest.mark.parametrize("command", [["serve"], ["run", "--", "true"]])
def test_a_budget_below_nothing_is_refused(command: list[str]) -> None:
    found = CliRunner().invoke(main, [command[0], "--keep-alive", "-1", *command[1:]])
    assert found.exit_code == 2
    assert "--keep-alive" in found.output
