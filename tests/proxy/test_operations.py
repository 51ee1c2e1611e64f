"""Running it: health, numbers, lines, several processes, and an end that loses nothing."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from respool.pricing import Usage
from respool.proxy.app import HealthEndpoint
from respool.proxy.breaker import BreakerState
from respool.proxy.metrics import METRICS, Metrics
from respool.store import SQLiteStore
from respool.store.savings import max_scale, state_tokens
from tests.proxy.program import KEY, MODEL, Client, Provider, provider
from tests.proxy.test_server import SOON, TOKEN, served
from tests.store.support import record
from tests.support.formats import Exchange, request

LONG = "".join(f"line {number} of a long output\n" for number in range(200))
EAGER_POLICY = (
    "--set",
    "cap_chars=500",
    "--set",
    "eager=true",
    "--set",
    "reevaluate_tokens=1",
    "--set",
    "reevaluate_ratio=0",
    "--set",
    "passes=cap_results",
    "--set",
    "keep_exchanges=0",
)

TIGHT = ("--preset", "tight", "--set", "reevaluate_tokens=500")


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while Client.opened:
        Client.opened.pop().close()


def said(steps: int, *, tools: str = "Bash", name: str = "go on") -> bytes:
    """A conversation after so many steps."""
    exchanges = [
        [Exchange(f"{n} {LONG}", id=f"call_{n}", args={"command": f"make {n}"})]
        for n in range(steps)
    ]
    whole = request("anthropic", name, *exchanges)
    offered = [{"name": tools, "input_schema": {"type": "object"}}]
    return json.dumps({**whole, "model": MODEL, "tools": offered, "stream": True}).encode()


def marked(body: bytes) -> bytes:
    """The same from a client that marks what came last."""
    asked = json.loads(body)
    asked["messages"][-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    return json.dumps(asked).encode()


def options(
    behind: Provider, *more: str, policy: tuple[str, ...] = EAGER_POLICY
) -> tuple[str, ...]:
    patient = ("--deadline", "30")  # nothing is late, however slow the machine
    return ("--upstream", f"anthropic=http://127.0.0.1:{behind.port}", *patient, *policy, *more)


def numbers(text: bytes) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every sample, by its name and the values of its labels, by Prometheus's own parser."""
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_a_breaker_that_is_open_is_told(tmp_path: Path):
    store, metrics = SQLiteStore(tmp_path / "respool.db"), Metrics()
    standing = BreakerState("open", "Compaction rests.")
    watch = HealthEndpoint(store, lambda: standing, lambda: "compact")
    found = watch.check()
    assert (found.status, found.store, found.circuit_breaker) == ("degraded", "ok", standing)
    watch.update(metrics)
    assert numbers(metrics.render().encode())["respool_circuit_breaker_open", ()] == 1
    standing = BreakerState("closed", "Requests are compacted.")
    watch.update(metrics)
    assert watch.check().status == "ok"
    assert numbers(metrics.render().encode())["respool_circuit_breaker_open", ()] == 0
    store.close()
    assert watch.check().store == "closed"


def test_records_that_are_lost_are_counted_once(tmp_path: Path):
    store, metrics = SQLiteStore(tmp_path / "respool.db"), Metrics()
    watch = HealthEndpoint(store, lambda: BreakerState("closed", ""), lambda: "compact")
    store.close()
    for expected in (1, 2):
        assert not store.record(record())
        for _ in range(2):
            watch.update(metrics)
        found = numbers(metrics.render().encode())
        assert found["respool_records_dropped_total", ()] == expected


class TestOneProcess:
    def test_health_tells_how_the_store_and_the_breaker_stand(self, tmp_path: Path):
        path = tmp_path / "respool.db"
        with provider() as behind, served(*options(behind), RESPOOL_STORE=str(path)) as (_, port):
            client = Client(port)
            status, body = client.get("/healthz")
            found = json.loads(body)
            assert status == 200
            assert found.pop("version")
            assert found == {
                "status": "ok",
                "mode": "compact",
                "store": "ok",
                "circuit_breaker": {"phase": "closed", "reason": "Requests are compacted."},
            }

    def test_a_store_that_cannot_be_used_is_told_and_no_reason_to_be_taken_out(
        self, tmp_path: Path
    ):
        path = tmp_path / "respool.db"
        with provider() as behind, served(*options(behind), RESPOOL_STORE=str(path)) as (_, port):
            client = Client(port)
            assert client.post(said(1))[0] == 200
            for file in tmp_path.iterdir():
                file.unlink()
            path.mkdir()  # where the file was: it can be neither read nor made again
            status, body = client.get("/healthz")
            assert (status, json.loads(body)["status"]) == (200, "degraded")
            assert json.loads(body)["store"] != "ok"
            assert str(tmp_path).encode() not in body
            assert client.post(said(2))[0] == 200
            assert numbers(client.get("/metrics")[1])["respool_store_usable", ()] == 0

    def test_a_stranger_is_told_that_it_is_up_and_nothing_else(self, tmp_path: Path):
        with served(RESPOOL_TOKEN=TOKEN, RESPOOL_STORE=str(tmp_path / "respool.db")) as (_, port):
            client = Client(port)
            assert client.get("/healthz") == (200, b'{"status":"ok"}')
            assert client.get("/metrics")[0] == 401
            assert client.get(f"/respool-token/{TOKEN}/metrics")[0] == 200
            _, body = client.get("/healthz", **{"x-respool-token": TOKEN})
            assert json.loads(body)["store"] == "ok"

    def test_requests_are_counted_and_logged_without_a_word_of_them(self, tmp_path: Path):
        store = {"RESPOOL_STORE": str(tmp_path / "respool.db")}
        with provider() as behind, served(*options(behind), **store) as (process, port):
            client = Client(port)
            for steps in (1, 2, 3):
                assert client.post(said(steps))[0] == 200
            bypass = {"x-respool-bypass": "1", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
            assert client.post(said(3), **bypass)[0] == 200
            assert client.post(said(3), "/v1/messages/count_tokens")[0] == 200
            assert client.post(b"{not json", traceparent="secret")[0] == 200
            found = numbers(client.get("/metrics")[1])
            process.terminate()
            _, logged = process.communicate(timeout=SOON)
        lines = [json.loads(line) for line in logged.splitlines()]
        check_numbers(found, lines)
        check_lines(lines)
        for secret in ("secret", "long output", "go on", "make 1"):
            assert secret not in logged

    def test_a_stream_is_finished_and_written_down_before_it_ends(self, tmp_path: Path):
        path = tmp_path / "respool.db"
        with (
            provider() as behind,
            served(*options(behind), RESPOOL_STORE=str(path)) as (process, port),
        ):
            behind.go_on.clear()
            got: list[tuple[int, bytes]] = []
            asking = threading.Thread(target=lambda: got.append(Client(port).post(said(3))))
            asking.start()
            until = time.monotonic() + SOON
            while not behind.received and time.monotonic() < until:
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            assert process.poll() is None  # it waits for the stream
            assert is_refused(port)  # who comes now is told at once
            behind.go_on.set()
            _, logged = process.communicate(timeout=SOON)
            asking.join()
        assert process.returncode == 0
        assert got[0][0] == 200
        assert got[0][1].endswith(b'data: {"type": "message_stop"}\n\n')
        (line,) = [json.loads(line) for line in logged.splitlines()]
        assert line["outcome"] == "complete"
        store = SQLiteStore(path)
        (conversation,) = store.conversations(None)
        (kept,) = store.requests(conversation.name, None)
        store.close()
        assert kept.usage is not None
        assert (kept.status, kept.usage.output, kept.usage.cache_read) == (200, 5, 300)
        assert line["compaction"]["conversation"] == kept.conversation


def is_refused(port: int) -> bool:
    """Return whether connections are refused within a while."""
    until = time.monotonic() + SOON
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except ConnectionRefusedError:
            return True
        time.sleep(0.05)
    return False


def check_numbers(found: dict[Any, float], lines: list[dict[str, Any]]) -> None:
    """Metrics and log agree."""
    over = [line for line in lines if line["outcome"] != "own_page"]
    about = [line["compaction"] for line in over]
    paid = [one for one in about if one.get("operation") != "count"]
    assert found["respool_requests_total", ("anthropic", "2xx")] == len(over) == 6
    assert found["respool_outcomes_total", ("complete",)] == 6
    assert found["respool_sent_total", ("projection",)] == 4
    assert found["respool_sent_total", ("original",)] == 1
    assert found["respool_sent_total", ("untouched",)] == 1
    assert found["respool_fallbacks_total", ("bypassed",)] == 1
    assert found["respool_fallbacks_total", ("unreadable",)] == 1
    assert found["respool_fallbacks_total", ("late",)] == 0
    stated = [
        state_tokens(
            one.get("tokens_before", 0),
            one.get("tokens_saved", 0),
            Usage(**one["usage"]) if one.get("usage") else None,
            is_observed=False,
            limit=max_scale("anthropic", one.get("model", "")),
        )
        for one in paid
    ]
    saved = sum(one.saved for one in stated)
    assert found["respool_saved_tokens_total", ("anthropic",)] == saved > 500
    before = sum(one.before for one in stated)
    assert found["respool_prompt_tokens_total", ("anthropic",)] == before > saved
    assert found["respool_usage_tokens_total", ("cache_read",)] == 5 * 300
    assert found["respool_usage_tokens_total", ("output",)] == 5 * 5
    assert found["respool_bytes_total", ("up",)] == sum(line["bytes_up"] for line in over)
    assert found["respool_bytes_total", ("down",)] == sum(line["bytes_down"] for line in over)
    assert found["respool_compaction_seconds_count", ()] == 6
    assert found["respool_first_byte_seconds_bucket", ("+Inf",)] == 6
    assert found["respool_circuit_breaker_open", ()] == 0
    assert found["respool_store_usable", ()] == 1


def check_lines(lines: list[dict[str, Any]]) -> None:
    """Each line says what was done about its request."""
    first, second, third, bypassed, counted, unreadable = lines  # no scrape of the metrics
    assert {one["compaction"]["conversation"] for one in (first, second, third, bypassed)} == {
        first["compaction"]["conversation"]
    }
    assert len(first["compaction"]["conversation"]) == 32
    assert third["compaction"]["sent"] == "projection"
    assert third["compaction"]["model"] == third["compaction"]["response_model"] == MODEL
    assert third["compaction"]["tokens_saved"] > 500
    assert third["compaction"]["stop_reason"] == "end_turn"
    assert third["compaction"]["usage"] == {
        "input": 10,
        "cache_read": 300,
        "cache_write": 90,
        "cache_write_1h": 0,
        "output": 5,
    }
    assert (bypassed["compaction"]["sent"], bypassed["compaction"]["fallback"]) == (
        "original",
        "bypassed",
    )
    assert bypassed["traceparent"] == f"00-{'a' * 32}-{'b' * 16}-01"
    assert counted["compaction"]["operation"] == "count"
    told = ("response_model", "stop_reason", "usage")
    assert unreadable["compaction"] == {
        "sent": "untouched",
        "fallback": "unreadable",
        "compaction_ms": unreadable["compaction"]["compaction_ms"],
        **{name: unreadable["compaction"][name] for name in told},
    }
    assert "traceparent" not in unreadable


class TestReplicas:
    @pytest.mark.parametrize(
        "policy",
        [EAGER_POLICY, pytest.param(TIGHT, marks=pytest.mark.slow)],
        ids=["eager", "tight"],
    )
    def test_one_conversation_is_the_same_whoever_answers(
        self, tmp_path: Path, policy: tuple[str, ...]
    ):
        """Requests that go to two servers in turn give the bytes that one server gives."""
        steps = [
            marked(said(count, tools="Bash" if count < 5 else "Shell")) for count in range(1, 12)
        ]
        with provider() as behind:
            store = {"RESPOOL_STORE": str(tmp_path / "one.db")}
            with served(*options(behind, "--quiet", policy=policy), **store) as (_, port):
                client = Client(port)
                for body in steps:
                    assert client.post(body)[0] == 200
            alone, behind.received = behind.received, []
            store = {"RESPOOL_STORE": str(tmp_path / "two.db")}
            more = options(behind, "--quiet", "--shared-store", policy=policy)
            with served(*more, **store) as (_, one), served(*more, **store) as (_, other):
                clients = Client(one), Client(other)
                written = SQLiteStore(tmp_path / "two.db")
                for at, body in enumerate(steps):
                    assert clients[at % 2].post(body)[0] == 200
                    eventually(
                        lambda at=at: sum(one.requests for one in written.conversations(None)) > at
                    )
                written.close()
        assert behind.received == alone
        assert sum(map(len, alone)) < 0.9 * sum(map(len, steps))
        if policy is EAGER_POLICY:  # under the other there are epochs
            check_prefixes(alone)

    def test_what_one_server_learns_holds_for_all(self, tmp_path: Path):
        """A projection is refused whose original passes: from then on nobody compacts there."""
        store = {"RESPOOL_STORE": str(tmp_path / "respool.db")}
        with provider() as behind, contextlib.ExitStack() as both:
            more = options(behind, "--quiet", "--shared-store")
            ports = [both.enter_context(served(*more, **store))[1] for _ in range(2)]
            first, second = map(Client, ports)
            for client, steps in ((first, 1), (second, 2), (first, 3)):
                assert client.post(said(steps))[0] == 200
            assert len(behind.received[-1]) < len(said(3))
            behind.refuses = lambda body: b"[respool:" in body
            behind.received = []
            assert first.post(said(4))[0] == 200  # the second try, as it came
            assert [body == said(4) for body in behind.received] == [False, True]
            learnt = SQLiteStore(tmp_path / "respool.db")
            (name,) = eventually(lambda: [one.name for one in learnt.conversations(None)])
            eventually(lambda: learnt.facts(name).left_alone)
            learnt.close()
            behind.received = []
            assert second.post(said(5))[0] == 200
            assert behind.received == [said(5)]
            counted = [numbers(client.get("/metrics")[1]) for client in (first, second)]
            assert counted[0]["respool_retries_total", ("invalid",)] == 1
            assert counted[0]["respool_fallbacks_total", ("refused",)] == 1
            assert counted[1]["respool_fallbacks_total", ("left-alone",)] == 1


def eventually(true: Callable[[], Any]) -> Any:
    until = time.monotonic() + SOON
    while not (found := true()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return found


def check_prefixes(sent: list[bytes]) -> None:
    """Projections extend one another message by message, but where the tools changed."""
    histories = [json.loads(body)["messages"] for body in sent]
    for at, (shorter, longer) in enumerate(pairwise(histories), start=1):
        if at != 4:  # there, other tools were named: a free moment
            assert longer[: len(shorter) - 1] == shorter[:-1], at


def test_a_key_is_in_no_file_of_the_store(tmp_path: Path):
    store = {"RESPOOL_STORE": str(tmp_path / "respool.db")}
    with provider() as behind, served(*options(behind), **store) as (process, port):
        assert Client(port).post(said(3))[0] == 200
        process.terminate()
        process.communicate(timeout=SOON)
    held = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert held
    assert KEY["x-api-key"].encode() not in held


@pytest.mark.parametrize("family", METRICS, ids=lambda family: family.name)
def test_names_are_as_prometheus_wants_them(family: Any):
    assert family.name.startswith("respool_")
    assert family.name.endswith("_total") == (family.kind == "counter")
    assert family.help.endswith(".")
    assert len(family.labels) == len(family.values)
    assert list(family.bounds) == sorted(family.bounds)
