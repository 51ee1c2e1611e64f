"""Proxy benchmark: load, counts, peers and table."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import proxy_peers
from bench.proxy_load import (
    KEY,
    Growing,
    Limits,
    Round,
    Tally,
    asking,
    first_byte_ms,
    per_second,
    request,
    warmed,
)
from bench.proxy_peers import PEERS, Peer, headroom, litellm, reason_in, started, version_in
from bench.proxy_table import Absent, Row, compared, row, table
from bench.proxy_upstream import EVENTS, MESSAGE, Framed, Upstream, upstream
from respool.wire.message_identity import count_breakpoints, strip_breakpoints

SOON = Limits(seconds=1.0, requests=10, late=0.5)
REFUSAL = b"HTTP/1.1 429 No\r\nContent-Length: 2\r\n\r\n{}"
LAST_REFUSAL = b"HTTP/1.1 429 No\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"


class Told(Framed):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[bytes, bytes]] = []

    def whole(self, head: bytes, body: bytes) -> None:
        self.told.append((head, body))


class Refusing(Framed):
    """Answers well once, then with an error."""

    def __init__(self, refusal: bytes) -> None:
        super().__init__()
        self._answers = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"]
        self._refusal = refusal

    def whole(self, head: bytes, body: bytes) -> None:
        assert self.transport is not None
        self.transport.write(self._answers.pop() if self._answers else self._refusal)


class Silent(Framed):
    """Never answers."""

    def whole(self, head: bytes, body: bytes) -> None: ...


async def served(made: Any, act: Any) -> Any:
    """Result of an act with the port of a server of this protocol."""
    server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
    async with server:
        return await act(server.sockets[0].getsockname()[1])


def one_client(port: int, limits: Limits = SOON) -> Coroutine[Any, Any, Round]:
    return per_second(port, [lambda: request(port, 1_000)], limits)


@given(
    sizes=st.lists(st.integers(0, 20_000), min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 9_000), min_size=1, max_size=9),
)
def test_messages_are_whole_however_they_are_cut(sizes: list[int], cuts: list[int]):
    told = Told()
    for size in sizes:
        sent = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size + b"b" * size
        for cut in cuts:
            if sent:
                told.data_received(sent[:cut])
                sent = sent[cut:]
        if sent:
            told.data_received(sent)
    assert [head[:6] for head, _ in told.told] == [b"post /"] * len(sizes)
    for (_, body), size in zip(told.told, sizes, strict=True):
        assert b"b" * min(size, 8_192) == body[:8_192]


def test_an_end_that_does_nothing_with_messages_cannot_be_made():
    with pytest.raises(TypeError, match="abstract"):
        Framed()  # type: ignore[abstract]


@pytest.mark.parametrize("size", [200, 1_000, 800_000])
@pytest.mark.parametrize("stream", [False, True])
def test_requests_have_their_size_and_are_anthropics(size: int, stream: bool):
    head, _, body = request(4, size, stream).partition(b"\r\n\r\n")
    assert len(body) == size
    assert json.loads(body).keys() == {"model", "max_tokens", "stream", "messages"}
    assert json.loads(body)["stream"] is stream
    assert f"X-Api-Key: {KEY}".encode() in head
    assert f"Content-Length: {size}".encode() in head


def test_conversations_extend_one_another():
    one = Growing("task", 5_000)
    before = json.loads(one.request(1).partition(b"\r\n\r\n")[2])["messages"]
    after = json.loads(asking(1, one)().partition(b"\r\n\r\n")[2])["messages"]
    assert len(before) > 3
    assert after[: len(before)] == list(map(strip_breakpoints, before))
    assert len(after) == len(before) + 2
    assert [at for at, one in enumerate(after) if count_breakpoints(one)] == [len(after) - 1]


def test_the_upstream_answers_whole_streamed_and_heads_alone():
    async def act(port: int) -> list[bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        ends = (json.dumps(MESSAGE).encode(), b"\r\n0\r\n\r\n", b"\r\n\r\n")
        asked = (
            request(port, 1_000),
            request(port, 1_000, stream=True),
            b"HEAD / HTTP/1.1\r\n\r\n",
        )
        found: list[bytes] = []
        async with asyncio.timeout(10):
            for one, end in zip(asked, ends, strict=True):
                writer.write(one)
                found.append(await reader.readuntil(end))
        writer.write_eof()
        found.append(await reader.read())
        writer.close()
        return found

    whole, stream, head, rest = asyncio.run(served(Upstream, act))
    assert json.loads(whole.partition(b"\r\n\r\n")[2]) == MESSAGE
    told = [line[6:] for line in stream.split(b"\n") if line.startswith(b"data: ")]
    assert [json.loads(one) for one in told] == list(EVENTS)
    assert head.startswith(b"HTTP/1.1 200")
    assert rest == b""


def test_a_round_ends_by_number_and_counts_every_answer():
    async def act() -> Round:
        server, port = await upstream()
        async with server:
            await warmed(port, [Growing("task", 2_000)], SOON)
            asks = [asking(port, Growing(f"task {one}", 2_000)) for one in range(4)]
            return await per_second(port, asks, Limits(30.0, 10))

    start = time.monotonic()
    one = asyncio.run(act())
    assert (one.asked, one.errors) == (10, 0)
    assert one.figure is not None
    assert one.figure > 10 / (time.monotonic() - start)


def test_a_round_ends_by_time():
    async def act() -> Round:
        server, port = await upstream()
        async with server:
            return await one_client(port, Limits(0.1, 10**9))

    start = time.monotonic()
    one = asyncio.run(act())
    assert one.errors == 0
    assert 0 < one.asked < 10**9
    assert time.monotonic() - start < 10


CASES = [
    ("refused each time", lambda: Refusing(REFUSAL), 10, 9),
    ("refused, and hung up on", lambda: Refusing(LAST_REFUSAL), 2, 1),
    ("never answered", Silent, 1, 1),
]


@pytest.mark.parametrize(("made", "asked", "errors"), [each[1:] for each in CASES])
def test_wrong_answers_are_counted(made: Any, asked: int, errors: int):
    one = asyncio.run(served(made, one_client))
    assert (one.asked, one.errors) == (asked, errors)
    assert (one.figure is None) == (asked == errors)


def test_a_port_where_nothing_listens_is_an_error_of_each_client():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    asks = [lambda: request(port, 1_000)] * 3
    assert asyncio.run(per_second(port, asks, SOON)) == Round(None, 3, 3)
    assert asyncio.run(first_byte_ms(port, 1_000, SOON)) == Round(None, 10, 10)


def test_the_first_byte_is_that_of_streams_only():
    patient = Limits(1.0, 10, late=30.0)
    good = asyncio.run(served(Upstream, lambda port: first_byte_ms(port, 1_000, patient)))
    assert (good.asked, good.errors) == (10, 0)
    assert good.figure is not None
    assert good.figure > 0
    bad = asyncio.run(served(Silent, lambda port: first_byte_ms(port, 1_000, SOON)))
    assert bad == Round(None, 1, 1)
    made = lambda: Refusing(REFUSAL)  # noqa: E731 - a protocol's maker
    worse = asyncio.run(served(made, lambda port: first_byte_ms(port, 1_000, SOON)))
    assert worse.figure is None
    assert worse.asked == worse.errors


def test_no_more_is_asked_once_a_round_is_over():
    tally = Tally(5, 1)
    assert tally.may_ask()
    tally.end()
    assert not tally.may_ask()
    assert tally.asked == 1


REASONS = [
    ("", ""),
    ("\n \n", ""),
    ("one\ntwo\n", "two"),
    ("\x1b[31mERROR: no\x1b[0m\n\nset this\n", "ERROR: no"),
    ("Traceback\nValueError: a\nIt refused to start: b\nDo c\n", "It refused to start: b"),
    ("error: No solution\n  cause: Because of this\n", "cause: Because of this"),
    ("error: " + "x" * 500, "error: " + "x" * 193),
]


@pytest.mark.parametrize(("log", "reason"), REASONS)
def test_the_reason_is_the_last_line_that_tells_one(log: str, reason: str):
    assert reason_in(log) == reason


def installed(folder: Path, script: str, version: str = "1.2.3") -> Peer:
    """A peer whose command is this script."""
    (folder / f"it/lib/python3.11/site-packages/it_is-{version}.dist-info").mkdir(parents=True)
    (folder / "it/bin").mkdir()
    command = folder / "it/bin/it"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o700)
    return Peer("it", "it-is", lambda port, upstream, home: ["it", f"{port}"], {}, "/ready")


def test_versions_are_those_installed(tmp_path: Path):
    installed(tmp_path, "")
    assert version_in(tmp_path / "it", "it-is") == "1.2.3"
    assert version_in(tmp_path / "it", "it") is None
    assert version_in(tmp_path, "it-is") is None


def test_a_peer_that_is_not_installed_is_named_with_the_reason(tmp_path: Path):
    peer = PEERS[0]
    one = started(peer, tmp_path, 1, tmp_path)
    assert one == Absent("headroom-ai", "is not installed: make bench-proxy does that")
    (tmp_path / "headroom.log").write_text("error: no such package\n")
    one = started(peer, tmp_path, 1, tmp_path)
    assert one == Absent("headroom-ai", "is not installed: error: no such package")


@pytest.mark.parametrize(
    ("script", "reason"),
    [("echo 'failed: key' >&2; echo bye; exit 3", "failed: key"), ("", "it said nothing")],
)
def test_a_peer_that_does_not_start_is_named_with_the_reason(
    tmp_path: Path, script: str, reason: str
):
    peer = installed(tmp_path / "envs", script)
    one = started(peer, tmp_path / "envs", 1, tmp_path)
    assert one == Absent("it-is 1.2.3", f"did not start: {reason}")


def test_a_peer_that_is_never_ready_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(proxy_peers, "READY_TIMEOUT", 2.0)
    peer = installed(tmp_path / "envs", "echo $$ >pid; exec sleep 60")
    one = started(peer, tmp_path / "envs", 1, tmp_path)
    assert isinstance(one, Absent)
    pid = int((tmp_path / "it" / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_peers_are_pointed_at_this_machine_alone(tmp_path: Path):
    told = headroom(7, 8, tmp_path)
    assert told[told.index("--anthropic-api-url") + 1] == "http://127.0.0.1:8"
    assert told[told.index("--host") + 1] == "127.0.0.1"
    told = litellm(7, 8, tmp_path)
    assert told[told.index("--host") + 1] == "127.0.0.1"
    (model,) = json.loads((tmp_path / "config.yaml").read_text())["model_list"]
    assert model["litellm_params"]["api_base"] == "http://127.0.0.1:8"


def test_every_peer_is_pinned_in_a_group_of_its_own():
    groups = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    for peer in PEERS:
        assert f'\n{peer.name} = ["{peer.package}[proxy]==' in groups


def rounds(*figures: float | None, errors: int = 0) -> list[Round]:
    return [Round(figure, 10, errors) for figure in figures]


def test_a_row_is_the_median_of_the_rounds_that_have_a_figure():
    measured = {"1 KB": rounds(3.0, 1.0, 2.0), "800 KB": rounds(None, 4.0, None), "first byte": []}
    one = row("it", {**measured, "first byte": rounds(None, errors=10)}, 5.0)
    assert one.figures == {"1 KB": 2.0, "800 KB": 4.0, "first byte": None}
    assert (one.asked, one.errors) == (70, 10)


BARE = Row("bare", {"1 KB": 2_000.0, "800 KB": 400.0, "first byte": 0.5}, 9_000, 0, 50.25)
SLOW = Row("slow 1.0", {"1 KB": 12.34, "800 KB": None, "first byte": 3.0}, 1_234, 56, 0.0)


def test_the_table_names_all_with_figures_errors_and_reasons():
    shown = table([BARE, SLOW, Absent("gone", "did not start: no key")]).splitlines()
    assert shown[0].split("  ")[-1].strip() == "MB"
    assert shown[1].split() == ["bare", "2,000", "400", "0.50", "0", "50.2"]
    assert shown[2].split() == ["slow", "1.0", "12.3", "none", "3.00", "56", "of", "1,234", "none"]
    assert shown[3].split(maxsplit=1) == ["gone", "did not start: no key"]
    assert len({len(line) for line in shown[:3]}) == 1


def test_a_way_is_compared_with_the_bare_one():
    assert compared(SLOW, BARE) == (
        "slow 1.0 beside the bare pass-through: 0.006 at 1 KB, none at 800 KB, "
        "first byte 2.50 ms later"
    )
    assert compared(BARE, SLOW).endswith(
        "162.075 at 1 KB, none at 800 KB, first byte -2.50 ms later"
    )
