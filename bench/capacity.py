"""Capacity of the proxy: measured demands, a simulation checked against a real server, a plan.

    python -m bench.capacity [CORPUS] [--sessions N] [--requests N] [--store URL] [--check]
                             [--memory MB] [--agents N] [--json FILE]

Recorded sessions of Claude Code are sent through a real server, one request after another. That
gives the CPU time of each request (until its response, and after it), the memory of a conversation
and the growth of the store. With --check, several agents send the same sessions at once with
shortened pauses, and throughput, busy share and waits are compared with the simulation's. The plan
simulates one server with the recorded pauses and more and more agents, until a request in a
hundred waits longer than LATE, or the core is busier than BUSY. A server remembers as many
conversations as its memory holds; a request of another one costs the whole fold of its history.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import islice, pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import mean, median

import msgspec
from msgspec import Struct, structs

from bench.capacity_model import Demand, Memory, Outcome, Step, simulate
from bench.held_out import CORPUS, corpus_files, long_sessions
from bench.proxy import Way, resident, run_upstream, running
from bench.proxy_upstream import HERE
from respool.compaction.memo import Memo
from respool.engine import Session
from respool.facts import Facts
from respool.policy import Policy
from respool.sessions.session import RecordedSession

HEAD_CHARS = 112_000  # system prompt and tools of Claude Code
IDLE = 600.0  # seconds; after a longer pause an agent does not count as at work
LATE, BUSY = 0.1, 0.6  # seconds that one request in a hundred waits; share of a core
SIZES = (100_000, 200_000, 400_000, 800_000, 10**12)
PLANNED = (512, 1_024, 2_048, 4_096, 8_192)  # megabytes for conversations, of one server
_IDLE_SECONDS = 3.0  # over which the use of an idle server is measured
_SETTLE = 0.004  # seconds without CPU time after which a server counts as idle


class Script(Struct, frozen=True):
    """A recorded session as requests: bodies, and the pause before each."""

    messages: tuple[bytes, ...]  # encoded
    cuts: tuple[int, ...]
    pauses: tuple[float, ...]

    def body(self, at: int) -> bytes:
        """The body of a request, with a cache breakpoint on its last message."""
        sent = self.messages[: self.cuts[at]]
        last = msgspec.json.decode(sent[-1])
        content = last["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        marked = {**content[-1], "cache_control": {"type": "ephemeral"}}
        last = msgspec.json.encode({**last, "content": [*content[:-1], marked]})
        return _HEAD + b",".join([*sent[:-1], last]) + b"]}"


_HEAD = (
    b'{"model":"claude-opus-4-7","max_tokens":99,"tools":[{"name":"Bash","description":"'
    + b"word " * (HEAD_CHARS // 5)
    + b'","input_schema":{"type":"object"}}],"messages":['
)


def scripts(corpus: Path, count: int, requests: int) -> list[Script]:
    """Long sessions of as many repositories as possible, their first requests each."""
    files = corpus_files(corpus, "all", ("claude-code",))
    sessions = (session for path in files for session in long_sessions(path, 1))
    return [_script(session, requests) for session in islice(sessions, count)]


def _script(session: RecordedSession, requests: int) -> Script:
    asked = session.requests[:requests]
    times = [one.time for one in asked]
    pauses = [
        later - before if before is not None and later is not None else 0.0
        for before, later in pairwise(times)
    ]
    return Script(
        messages=tuple(map(msgspec.json.encode, session.messages[: asked[-1].cut])),
        cuts=tuple(one.cut for one in asked),
        pauses=(0.0, *(min(max(pause, 0.0), IDLE) for pause in pauses)),
    )


# --- a real server -----------------------------------------------------------------------------


def run_respool(
    port: Connection, upstream_port: int, store: str, shared: bool, megabytes: float = 512.0
) -> None:
    """Run respool with its defaults and this store, alone or as a replica."""
    from respool.proxy.app import build_app
    from respool.proxy.log import log_nothing
    from respool.proxy.server import serving
    from respool.proxy.server_options import CompactionOptions, ServerOptions, upstreams_of

    os.environ["RESPOOL_STORE"] = store
    chosen = upstreams_of([f"anthropic=http://{HERE}:{upstream_port}"])

    async def serve() -> None:
        options = ServerOptions(port=0, upstreams=chosen)
        compaction = CompactionOptions(shared_store=shared, memory=megabytes)
        async with serving(build_app(options, compaction, log_nothing)) as running:
            port.send(running.port)
            await asyncio.Event().wait()  # until the process is ended

    asyncio.run(serve())


class Client:
    """A connection to a server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._link: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, body: bytes, session: str) -> float:
        """Send a request; return the seconds until its response was there."""
        if self._link is None:
            self._link = await asyncio.open_connection(HERE, self._port, limit=2**22)
        reader, writer = self._link
        head = (
            f"POST /v1/messages HTTP/1.1\r\nHost: {HERE}\r\nX-Api-Key: sk-capacity\r\n"
            f"X-Claude-Code-Session-Id: {session}\r\nAnthropic-Version: 2023-06-01\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        start = time.perf_counter()
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"The server answered {answer[:40]!r}.")
        at = answer.lower().index(b"content-length:") + 15
        await reader.readexactly(int(answer[at : answer.index(b"\r\n", at)]))
        return time.perf_counter() - start

    def close(self) -> None:
        """Close the connection."""
        if self._link is not None:
            self._link[1].close()


def cpu(pid: int) -> float:
    """CPU seconds of all threads of a process so far."""
    spent = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            spent += int((task / "schedstat").read_text().split()[0])
        except OSError:  # the thread has ended
            continue
    return spent / 1e9


async def settled(pid: int) -> float:
    """CPU seconds of a process once it is idle."""
    before = cpu(pid)
    while True:
        await asyncio.sleep(0.3)  # records are written some tenths of a second later
        now = cpu(pid)
        if now - before < _SETTLE:
            return now
        before = now


class Measured(Struct, frozen=True):
    """The demands of requests, and what a server took in memory and in its store."""

    steps: tuple[tuple[Step, ...], ...]  # by session
    cold: tuple[tuple[int, float], ...]  # size and CPU seconds of a history never seen
    megabytes: float  # for each conversation, as the server counts them
    base_megabytes: float  # resident besides
    store_bytes: float  # for each request


def measure(way: Way, played: Sequence[Script], store: str) -> Measured:
    """Send sessions one after another, and some long histories to a server that never saw them."""
    assert way.pid is not None
    asyncio.run(_play(way, structs.replace(played[0], pauses=(0.0, 0.0)), "warm-up"))
    kept, idle = store_size(store), _idle_share(way.pid)
    steps = [
        asyncio.run(_play(way, script, f"session {at}", idle)) for at, script in enumerate(played)
    ]
    held = remembered(played)
    base = resident(way.pid) - held * len(played)
    grown = (store_size(store) - kept) / sum(map(len, steps))
    cold = asyncio.run(_play_cold(way, played))
    return Measured(tuple(steps), tuple(cold), held, base, grown)


def remembered(played: Sequence[Script]) -> float:
    """Megabytes that are remembered of a session, as a memo counts them; resident they are as many.

    Every request is folded in this process, as a server does.
    """
    memo = Memo()
    session = Session(memo)
    for script in played:
        for at in range(len(script.cuts)):
            folded = session.fold(session.parse(script.body(at), "anthropic"), Policy(), Facts())
            session.evaluate_ahead(folded)
    return memo.size_bytes / 1e6 / len(played)


def _idle_share(pid: int) -> float:
    """The share of a core that a server takes while nobody asks it."""
    before, start = cpu(pid), time.perf_counter()
    time.sleep(_IDLE_SECONDS)
    return (cpu(pid) - before) / (time.perf_counter() - start)


async def _play(way: Way, script: Script, name: str, idle: float = 0.0) -> tuple[Step, ...]:
    assert way.pid is not None
    client, steps = Client(way.port), list[Step]()
    for at, pause in enumerate(script.pauses):
        body = script.body(at)
        before = await settled(way.pid) if at == 0 else cpu(way.pid)
        await client.send(body, name)
        answered, since = cpu(way.pid), time.perf_counter()
        after = await settled(way.pid) - idle * (time.perf_counter() - since)
        demand = Demand(answered - before, max(0.0, after - answered))
        steps.append(Step(pause, len(body), demand))
    client.close()
    return tuple(steps)


async def _play_cold(way: Way, played: Sequence[Script]) -> list[tuple[int, float]]:
    """The last request of each session alone: another first message makes it a new conversation."""
    assert way.pid is not None
    found: list[tuple[int, float]] = []
    for at, script in enumerate(played):
        first = msgspec.json.decode(script.messages[0])
        new = {**first, "content": [{"type": "text", "text": f"never seen {at}"}]}
        stranger = structs.replace(
            script, messages=(msgspec.json.encode(new), *script.messages[1:])
        )
        client, body = Client(way.port), stranger.body(len(script.cuts) - 1)
        before = await settled(way.pid)
        await client.send(body, f"cold {at}")
        found.append((len(body), await settled(way.pid) - before))
        client.close()
    return found


def store_size(store: str) -> int:
    """Bytes that a store takes."""
    if "://" in store:
        import psycopg

        with psycopg.connect(store) as connection:
            found = connection.execute("SELECT pg_database_size(current_database())").fetchone()
            return 0 if found is None else int(found[0])
    if not Path(store).exists():
        return 0
    with closing(sqlite3.connect(store)) as file:
        pages, size = (file.execute(f"PRAGMA {name}").fetchone()[0] for name in _PAGES)
        return pages * size


_PAGES = ("page_count", "page_size")


# --- the simulation beside the server ----------------------------------------------------------


class Figures(Struct, frozen=True):
    """Throughput, busy share of a core and waits in seconds."""

    throughput: float
    busy: float
    p50: float
    p99: float


class Checked(Struct, frozen=True):
    """A run of the server beside the simulation of it."""

    agents: float  # at work, with the recorded pauses
    real: Figures
    modelled: Figures

    def __str__(self) -> str:
        real, modelled = self.real, self.modelled
        return (
            f"| {self.agents:,.0f} | {real.throughput:.1f} | {modelled.throughput:.1f} | "
            f"{real.busy:.2f} | {modelled.busy:.2f} | "
            f"{1e3 * real.p50:.0f} | {1e3 * modelled.p50:.0f} | "
            f"{1e3 * real.p99:.0f} | {1e3 * modelled.p99:.0f} |"
        )


CHECKS = (
    "| agents | requests/s | simulated | busy | simulated | p50, ms | simulated | p99, ms "
    "| simulated |\n|---|---|---|---|---|---|---|---|---|"
)


def _figures(of: Outcome) -> Figures:
    return Figures(of.throughput, of.busy, of.wait(0.5), of.wait(0.99))


def check(
    way: Way, played: Sequence[Script], measured: Measured, speed: float, megabytes: float
) -> Checked:
    """Send all sessions at once with pauses divided by `speed`, and simulate the same."""
    assert way.pid is not None
    before, start = cpu(way.pid), time.perf_counter()
    waits = asyncio.run(_play_together(way, played, speed))
    seconds = time.perf_counter() - start
    spent = asyncio.run(settled(way.pid)) - before
    real = Outcome(tuple(sorted(waits)), seconds, spent)
    modelled = simulate(
        _sped(measured.steps, speed),
        agents=len(played),
        seed=1,
        staggered=False,
        memory=memory_of(measured, megabytes),
    )
    return Checked(len(played) * speed, _figures(real), _figures(modelled))


def _sped(steps: Sequence[Sequence[Step]], speed: float) -> list[tuple[Step, ...]]:
    return [tuple(structs.replace(step, pause=step.pause / speed) for step in one) for one in steps]


async def _play_together(way: Way, played: Sequence[Script], speed: float) -> list[float]:
    names = random.Random(speed)

    async def act(script: Script) -> list[float]:
        client, waits = Client(way.port), list[float]()
        first = msgspec.json.decode(script.messages[0])
        new = {**first, "content": [{"type": "text", "text": f"again {names.random()}"}]}
        own = structs.replace(script, messages=(msgspec.json.encode(new), *script.messages[1:]))
        for at, pause in enumerate(own.pauses):
            await asyncio.sleep(pause / speed)
            waits.append(await client.send(own.body(at), f"together {speed}"))
        client.close()
        return waits

    every = await asyncio.gather(*(act(script) for script in played))
    return [wait for waits in every for wait in waits]


# --- the plan ----------------------------------------------------------------------------------


class Plan(Struct, frozen=True):
    """What one server carries with so much memory, and what so many agents need."""

    agents: int
    memory: float  # megabytes for conversations, of one server
    agents_per_server: int
    busy: float
    p50: float
    p99: float
    requests_per_second: float  # of all agents
    cores: float  # servers
    memory_gigabytes: float
    store_gigabytes_a_day: float  # of agents that work eight hours
    limit: str  # what ends growth on one server


def memory_of(measured: Measured, megabytes: float) -> Memory:
    """The conversations that so much memory holds, and the price of others."""
    price = mean(seconds / size for size, seconds in measured.cold)
    return Memory(megabytes / measured.megabytes, price)


def plan(measured: Measured, agents: int, megabytes: float) -> Plan:
    """The most agents on one server within LATE and BUSY, and the needs of many."""
    memory = memory_of(measured, megabytes)

    def carries(count: int) -> bool:
        got = simulate(measured.steps, agents=count, seed=2, memory=memory)
        return got.busy <= BUSY and got.wait(0.99) <= LATE

    low, high = 1, 2
    while carries(high):
        low, high = high, high * 2
    while high - low > max(1, low // 20):
        middle = (low + high) // 2
        low, high = (middle, high) if carries(middle) else (low, middle)
    at = simulate(measured.steps, agents=low, seed=2, memory=memory)
    over = simulate(measured.steps, agents=high, seed=2)
    rate, servers = at.throughput / low, agents / low
    held = min(megabytes, low * measured.megabytes)
    return Plan(
        agents=agents,
        memory=megabytes,
        agents_per_server=low,
        busy=at.busy,
        p50=at.wait(0.5),
        p99=at.wait(0.99),
        requests_per_second=rate * agents,
        cores=servers,
        memory_gigabytes=servers * (held + measured.base_megabytes) / 1024,
        store_gigabytes_a_day=rate * agents * 8 * 3600 * measured.store_bytes / 1e9,
        limit="memory" if over.busy <= BUSY and over.wait(0.99) <= LATE else "CPU",
    )


def as_rows(plans: Sequence[Plan]) -> Iterator[str]:
    """A table of plans."""
    yield (
        "| memory for conversations, each | agents | limit | busy | p50, ms | p99, ms "
        "| servers (cores) | memory in all, GB |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for one in plans:
        yield (
            f"| {one.memory:,.0f} MB | {one.agents_per_server:,} | {one.limit} | {one.busy:.0%} | "
            f"{1e3 * one.p50:.0f} | {1e3 * one.p99:.0f} | {one.cores:,.0f} | "
            f"{one.memory_gigabytes:,.0f} |"
        )


def curve(measured: Measured, found: Plan) -> list[tuple[int, Figures]]:
    """The figures of one server with fewer and more agents than it carries."""
    counts = sorted({max(1, int(found.agents_per_server * share / 10)) for share in _SHARES})
    memory = memory_of(measured, found.memory)
    return [
        (count, _figures(simulate(measured.steps, agents=count, seed=3, memory=memory)))
        for count in counts
    ]


# Tenths of the agents that it carries.
_SHARES = (1, 2, 4, 6, 8, 9, 9.5, 10, 10.5, 11, 11.5, 12, 13, 14, 16, 18, 20)


def by_size(measured: Measured) -> Iterator[str]:
    """A row of a table for each size of a request."""
    yield "| request | requests | CPU ms until the response | after it | requests/s per core |"
    yield "|---|---|---|---|---|"
    every = [step for one in measured.steps for step in one[1:]]
    for low, high in pairwise((0, *SIZES)):
        of = [step.demand for step in every if low <= step.size < high]
        if of:
            first, later = (1e3 * mean(part) for part in zip(*map(_pair, of), strict=True))
            cells = f"{len(of):,} | {first:.1f} | {later:.1f} | {1e3 / (first + later):.0f}"
            yield f"| {_size_name(low, high)} | {cells} |"
    for low, high in pairwise((0, *SIZES)):
        cold = [seconds for size, seconds in measured.cold if low <= size < high]
        if cold:
            cells = f"{len(cold)} | {1e3 * median(cold):.0f} in all | | "
            yield f"| {_size_name(low, high)}, never seen | {cells} |"


def _size_name(low: int, high: int) -> str:
    return f"under {high // 1000:,} KB" if high < SIZES[-1] else f"{low // 1000:,} KB on"


def _pair(demand: Demand) -> tuple[float, float]:
    return demand.until, demand.after


def describe(found: Plan, measured: Measured) -> Iterator[str]:
    """Sentences on what does not depend on the memory."""
    yield (
        f"A conversation holds {measured.megabytes:.1f} MB, an idle server "
        f"{measured.base_megabytes:.0f} MB. A million requests grow the store by "
        f"{measured.store_bytes / 1e3:.1f} GB."
    )
    yield (
        f"{found.agents:,} agents send {found.requests_per_second:,.0f} requests/s and need "
        f"{found.store_gigabytes_a_day:,.0f} GB of store for each day of eight hours."
    )


def main() -> None:
    """Measure, check and plan."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus", nargs="?", type=Path, default=CORPUS)
    parser.add_argument("--sessions", type=int, default=24)
    parser.add_argument("--requests", type=int, default=60, help="of each session")
    parser.add_argument("--store", default="", help="a PostgreSQL URL; else a file of this run")
    parser.add_argument("--check", type=float, nargs="*", default=(), metavar="SPEED")
    parser.add_argument("--memory", type=float, default=512.0, help="megabytes of the server")
    parser.add_argument("--agents", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    played = scripts(asked.corpus, asked.sessions, asked.requests)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        store = asked.store or f"{folder}/respool.db"
        behind = stack.enter_context(running("upstream", run_upstream))
        way = stack.enter_context(
            running("respool", run_respool, behind.port, store, True, asked.memory)
        )
        measured = measure(way, played, store)
        print("\n".join(by_size(measured)), flush=True)
        checks = [check(way, played, measured, speed, asked.memory) for speed in asked.check]
        print("\n".join([CHECKS, *map(str, checks)]), flush=True)
    plans = [plan(measured, asked.agents, megabytes) for megabytes in PLANNED]
    print("\n".join([*describe(plans[0], measured), *as_rows(plans)]))
    if asked.json:
        curves = [(one.memory, curve(measured, one)) for one in plans]
        results = {"plans": plans, "checks": checks, "curves": curves, "measured": measured}
        asked.json.write_bytes(msgspec.json.encode(results))
    print(f"{len(played)} sessions, load {os.getloadavg()[0]:.1f}", file=sys.stderr)


if __name__ == "__main__":
    main()
