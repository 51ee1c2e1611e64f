"""Overhead of the proxy: requests per second and time to the first byte, beside other ways.

    python -m bench.proxy [--seconds N] [--memory] [--servers uvicorn,uvloop,granian]
                          [--peers FOLDER] [--cpu] [--think SECONDS]

The other ways are no proxy, a bare pass-through on the same server and, where FOLDER has their
environments, the proxies of others. respool runs without the accelerator, and again with it where
that is installed. Everything runs in one go and alternates, so that ratios hold on a noisy machine.
CPU time per request is that of the server's process: other work on the machine disturbs it least.
With --think, 16 agents also ask in turn with a pause, and the latest responses are shown: what an
agent waits for.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import mean, median
from typing import Any

import msgspec

from bench import proxy_peers
from bench.proxy_load import (
    Growing,
    Limits,
    Round,
    asking,
    first_byte_ms,
    per_second,
    request,
    response_ms,
    warmed,
)
from bench.proxy_table import MEASURES, Absent, Row, compared, row, table
from bench.proxy_upstream import upstream
from respool.accelerator import VARIABLE, accelerator
from respool.proxy.app import App
from respool.proxy.server_options import ServerOptions, upstreams_of

SMALL, LARGE = 1_000, 800_000
MOST_SMALL, MOST_LARGE, MOST_STREAMS = 20_000, 288, 150  # requests of a round
LARGE_SECONDS = 20.0  # for those who do not answer as many
MANY = 20_000  # requests over which memory is to stay flat
CPU_REQUESTS = (1_500, MOST_LARGE)  # small and large ones of a round
WAITS = 960  # requests of agents that think
ROUNDS = 3
AGENTS = 16
BARE, RESPOOL, ACCELERATED = "bare, {}", "respool", "respool, accelerated"


class Way(msgspec.Struct, frozen=True):
    """One way from the clients to the upstream, up and listening."""

    name: str
    port: int
    pid: int | None


def run_upstream(port: Connection) -> None:
    """The upstream, in a process of its own."""

    async def serve() -> None:
        server, at = await upstream()
        port.send(at)
        await server.serve_forever()

    asyncio.run(serve())


def run_uvicorn(port: Connection, upstream_port: int) -> None:
    """respool as it is served."""
    from respool.proxy.server import serving

    async def serve() -> None:
        async with serving(_app(upstream_port)) as running:
            port.send(running.port)
            await asyncio.Event().wait()  # until the process is ended

    asyncio.run(serve())


def run_compacting(port: Connection, upstream_port: int, folder: str, native: str = "off") -> None:
    """Run respool with its defaults: compaction and a store."""
    from respool.proxy.app import build_app
    from respool.proxy.log import log_nothing
    from respool.proxy.server import serving
    from respool.proxy.server_options import CompactionOptions

    os.environ["RESPOOL_STORE"] = f"{folder}/respool-{native}.db"
    os.environ[VARIABLE] = native

    async def serve() -> None:
        app = build_app(_config(upstream_port), CompactionOptions(), log_nothing)
        async with serving(app) as running:
            port.send(running.port)
            await asyncio.Event().wait()  # until the process is ended

    asyncio.run(serve())


def run_granian(port: Connection, upstream_port: int) -> None:
    """The same app on the other server that was tried."""
    from granian.constants import HTTPModes, Interfaces  # pyright: ignore[reportMissingImports]
    from granian.server.embed import Server  # pyright: ignore[reportMissingImports]

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        at = free.getsockname()[1]

    async def serve() -> None:
        server = Server(
            _app(upstream_port),
            port=at,
            interface=Interfaces.ASGI,
            http=HTTPModes.http1,
            websockets=False,
            log_enabled=False,
        )
        asyncio.get_running_loop().call_later(1.0, port.send, at)
        await server.serve()

    asyncio.run(serve())


def run_uvloop(port: Connection, upstream_port: int) -> None:
    """The same app and server on the other event loop that was tried."""
    import uvloop  # pyright: ignore[reportMissingImports]

    uvloop.install()
    run_uvicorn(port, upstream_port)


SERVERS: dict[str, Callable[..., None]] = {
    "uvicorn": run_uvicorn,
    "uvloop": run_uvloop,
    "granian": run_granian,
}


def _app(upstream_port: int) -> App:
    return App(_config(upstream_port))


def _config(upstream_port: int) -> ServerOptions:
    chosen = upstreams_of([f"anthropic=http://127.0.0.1:{upstream_port}"])
    return ServerOptions(port=0, upstreams=chosen)


@contextmanager
def running(name: str, target: Callable[..., None], *args: Any) -> Iterator[Way]:
    """A process of ours that listens, for as long as it is needed."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *args), daemon=True)
    process.start()
    theirs.close()  # so that a process which fails is an end of file, not a wait
    try:
        yield Way(name, ours.recv(), process.pid)
    finally:
        process.terminate()
        process.join()


@contextmanager
def peering(
    peer: proxy_peers.Peer, environments: Path, upstream_port: int, folder: Path
) -> Iterator[Way | Absent]:
    """A proxy that others made, or why there is none."""
    one = proxy_peers.started(peer, environments, upstream_port, folder)
    if isinstance(one, Absent):
        yield one
        return
    try:
        yield Way(one.name, one.port, one.process.pid)
    finally:
        proxy_peers.stopped(one)


def growing_agents(name: str) -> list[Growing]:
    """Conversations of 720 to 870 KB: over a run of rounds each is evaluated, never all at once."""
    return [Growing(f"{name} {at}", LARGE + 10_000 * (at - 8)) for at in range(AGENTS)]


def measured(ways: Sequence[Way], seconds: float) -> list[Row]:
    """Several rounds of each measure, one way after another in each."""
    agents = {way.name: growing_agents("task") for way in ways}
    rounds: dict[str, dict[str, list[Round]]] = {
        way.name: {measure: [] for measure in MEASURES} for way in ways
    }
    for way in ways:
        asyncio.run(warmed(way.port, agents[way.name], Limits(seconds, 0)))
    for _ in range(ROUNDS):
        for way in ways:
            for measure, one in zip(MEASURES, _round(way, agents[way.name], seconds), strict=True):
                rounds[way.name][measure].append(one)
    return [row(way.name, rounds[way.name], resident(way.pid)) for way in ways]


def _round(way: Way, agents: Sequence[Growing], seconds: float) -> Iterator[Round]:
    """A round of each measure."""
    asked = request(way.port, SMALL)
    same = [lambda: asked] * AGENTS
    yield asyncio.run(per_second(way.port, same, Limits(seconds, MOST_SMALL)))
    grown = [asking(way.port, one) for one in agents]
    yield asyncio.run(per_second(way.port, grown, Limits(LARGE_SECONDS, MOST_LARGE)))
    time.sleep(1.0)  # until late responses are over
    yield asyncio.run(first_byte_ms(way.port, SMALL, Limits(seconds, MOST_STREAMS)))


def cpu_seconds(pid: int | None) -> float:
    """CPU time of a process so far; 0 if unknown."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return 0.0
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_per_request(ways: Sequence[Way], requests: tuple[int, int]) -> Iterator[str]:
    """CPU milliseconds of each server per request of 1 KB and 800 KB, in a sentence each."""
    agents = {way.name: growing_agents("cpu") for way in ways}
    spent: dict[str, tuple[list[float], list[float]]] = {way.name: ([], []) for way in ways}
    for way in ways:
        asyncio.run(warmed(way.port, agents[way.name], Limits(60.0, 0)))
    for way in [way for _ in range(ROUNDS) for way in ways]:
        asked = request(way.port, SMALL)
        grown = [asking(way.port, one) for one in agents[way.name]]
        for at, asks in enumerate(([lambda asked=asked: asked] * AGENTS, grown)):
            before = cpu_seconds(way.pid)
            done = asyncio.run(per_second(way.port, asks, Limits(120.0, requests[at]))).asked
            time.sleep(1.0)  # until records are written
            spent[way.name][at].append(1e3 * (cpu_seconds(way.pid) - before) / done)
    # The mean at 800 KB: an evaluation, which comes in one of fifty requests, is part of the cost.
    costs = {name: (median(small), mean(large)) for name, (small, large) in spent.items()}
    bare = next(one for name, one in costs.items() if name.startswith("bare"))
    for name, (small, large) in costs.items():
        yield (
            f"{name}: {small:.3f} ms CPU at 1 KB, {large:.2f} at 800 KB; "
            f"the bare pass-through's are {bare[0] / small:.2f} and {bare[1] / large:.2f} of that"
        )


def waits(ways: Sequence[Way], think: float) -> Iterator[str]:
    """Times to the response of agents that think for a while, in a sentence for each way."""
    for way in ways:
        agents = growing_agents("wait")
        asyncio.run(warmed(way.port, agents, Limits(60.0, 0)))
        found = sorted(asyncio.run(response_ms(way.port, agents, think, Limits(900.0, WAITS))))
        p50, p95, p99 = (found[int(share * len(found))] for share in (0.5, 0.95, 0.99))
        yield f"{way.name}, {AGENTS} agents: p50 {p50:.1f}, p95 {p95:.1f}, p99 {p99:.1f} ms"


def resident(pid: int | None) -> float:
    """Resident megabytes of a process; 0 if unknown."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return 0.0
    lines = (line.split() for line in status.read_text().splitlines())
    return next((int(words[1]) / 1024 for words in lines if words[0] == "VmRSS:"), 0.0)


def flatness(way: Way) -> str:
    """Megabytes held before and after many requests of 1 KB, in a sentence."""
    asked = request(way.port, SMALL)
    before = resident(way.pid)
    sent = asyncio.run(per_second(way.port, [lambda: asked] * AGENTS, Limits(60.0, MANY))).asked
    return (
        f"{way.name} held {before:.1f} MB when all was measured, "
        f"{sent:,} requests later {resident(way.pid):.1f} MB"
    )


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--servers", default="uvicorn")
    parser.add_argument("--memory", action="store_true", help="also 20,000 requests in a row")
    parser.add_argument("--cpu", action="store_true", help="also CPU time per request")
    parser.add_argument("--think", type=float, help="also agents that pause for so many seconds")
    parser.add_argument("--peers", type=Path, help="where the environments of the others are")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ways = _ways(stack, given.servers.split(","), given.peers, folder)
        up = [way for way in ways if isinstance(way, Way)]
        rows = {one.name: one for one in measured(up, given.seconds)}
        more = list(cpu_per_request(up[1:], CPU_REQUESTS)) if given.cpu else []
        more += list(waits(up, given.think)) if given.think else []
        flat = [flatness(way) for way in up if given.memory and way.name == RESPOOL]
    print(table([one if isinstance(one, Absent) else rows[one.name] for one in ways]))
    bare, *others = [rows[way.name] for way in up[1:]]
    print(*(compared(one, bare) for one in others), *more, *flat, sep="\n")


def _ways(
    stack: ExitStack, servers: Sequence[str], environments: Path | None, folder: Path
) -> list[Way | Absent]:
    """All that is measured, up; peers come last, so that less of ours waits for them."""
    none = stack.enter_context(running("no proxy", run_upstream))
    to = none.port
    bare = [stack.enter_context(running(BARE.format(name), SERVERS[name], to)) for name in servers]
    respool = [stack.enter_context(running(RESPOOL, run_compacting, to, f"{folder}"))]
    if accelerator().library is not None:
        fast = running(ACCELERATED, run_compacting, to, f"{folder}", "on")
        respool.append(stack.enter_context(fast))
    if environments is None:
        return [none, *bare, *respool]
    peers = (peering(peer, environments, to, folder) for peer in proxy_peers.PEERS)
    return [none, *bare, *respool, *(stack.enter_context(peer) for peer in peers)]


if __name__ == "__main__":
    main()
