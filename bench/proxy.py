"""What the proxy costs: requests per second and the first streamed byte, beside none at all.

    python -m bench.proxy [--seconds N] [--memory] [--servers uvicorn,granian]

Everything runs in one go and alternates, so that ratios hold on a noisy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import median
from typing import Any

from bench.proxy_load import Growing, first_byte_ms, per_second, upstream, warmed
from clew.proxy.app import App
from clew.proxy.config import Config
from clew.proxy.upstreams import upstreams_of

SIZES = {"1 KB": 1_000, "800 KB": 800_000}
ROUNDS = 3
AGENTS = 16
CLEW = "clew"


def run_upstream(port: Connection) -> None:
    """The upstream, in a process of its own."""

    async def serve() -> None:
        server, at = await upstream()
        port.send(at)
        await server.serve_forever()

    asyncio.run(serve())


def run_uvicorn(port: Connection, upstream_port: int) -> None:
    """clew as it is served."""
    from clew.proxy.running import serving

    async def serve() -> None:
        async with serving(_app(upstream_port)) as running:
            port.send(running.port)
            await running.ended()

    asyncio.run(serve())


def run_compacting(port: Connection, upstream_port: int, folder: str) -> None:
    """clew as people run it: it compacts, and keeps what it takes out."""
    from clew.proxy.assembling import compacting_app
    from clew.proxy.options import Options
    from clew.proxy.record import to_nowhere
    from clew.proxy.running import serving

    os.environ["CLEW_STORE"] = f"{folder}/clew.db"

    async def serve() -> None:
        app = compacting_app(_config(upstream_port), Options(), to_nowhere)
        async with serving(app) as running:
            port.send(running.port)
            await running.ended()

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


SERVERS: dict[str, Callable[..., None]] = {"uvicorn": run_uvicorn, "granian": run_granian}


def _app(upstream_port: int) -> App:
    return App(_config(upstream_port))


def _config(upstream_port: int) -> Config:
    chosen = upstreams_of([f"anthropic=http://127.0.0.1:{upstream_port}"])
    return Config(port=0, upstreams=chosen)


def started(target: Callable[..., None], *args: Any) -> tuple[BaseProcess, int]:
    """A process, and the port that it listens on."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *args), daemon=True)
    process.start()
    return process, ours.recv()


def measured(ports: dict[str, int], seconds: float) -> dict[str, dict[str, float]]:
    """The median of several rounds, for each way and each measure."""
    rows: dict[str, dict[str, list[float]]] = {name: {} for name in ports}
    agents = {
        name: [Growing(f"task {one}", SIZES["800 KB"]) for one in range(AGENTS)] for name in ports
    }
    for name, port in ports.items():
        asyncio.run(warmed(port, agents[name]))
    for _ in range(ROUNDS):
        for name, port in ports.items():
            row = rows[name]
            rate = asyncio.run(per_second(port, SIZES["1 KB"], seconds))
            row.setdefault("1 KB", []).append(rate)
            rate = asyncio.run(per_second(port, 0, seconds, conversations=agents[name]))
            row.setdefault("800 KB", []).append(rate)
            time.sleep(1.0)  # until what was late is over
            first = asyncio.run(first_byte_ms(port, SIZES["1 KB"]))
            row.setdefault("first byte", []).append(first)
    return {name: {key: median(each) for key, each in row.items()} for name, row in rows.items()}


def resident(pid: int | None) -> float:
    """Megabytes that a process holds; 0 where that is not told."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return 0.0
    lines = (line.split() for line in status.read_text().splitlines())
    return next(int(words[1]) / 1024 for words in lines if words[0] == "VmRSS:")


def grown(pid: int | None, port: int, requests: int = 20_000) -> tuple[float, float]:
    """Megabytes held before and after so many requests of 1 KB."""
    asyncio.run(per_second(port, SIZES["1 KB"], 1.0))
    before, left = resident(pid), float(requests)
    while left > 0:
        left -= 2.0 * asyncio.run(per_second(port, SIZES["1 KB"], 2.0))
    return before, resident(pid)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--servers", default="uvicorn")
    parser.add_argument("--memory", action="store_true", help="also 20,000 requests in a row")
    given = parser.parse_args()
    up, up_port = started(run_upstream)
    processes, ports = [up], {"no proxy": up_port}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for name in given.servers.split(","):
                process, ports[f"bare, {name}"] = started(SERVERS[name], up_port)
                processes.append(process)
            process, ports[CLEW] = started(run_compacting, up_port, folder)
            processes.append(process)
            rows = measured(ports, given.seconds)
            if given.memory:
                _tell_memory(process.pid, ports[CLEW])
        finally:
            for process in processes:
                process.terminate()
                process.join()
    _tell(rows)


def _tell_memory(pid: int | None, port: int) -> None:
    before, after = grown(pid, port)
    print(f"resident after warming up {before:.1f} MB, 20,000 requests later {after:.1f} MB")


def _tell(rows: dict[str, dict[str, float]]) -> None:
    """A table, and how what compacts stands beside what does not."""
    print(f"{'':<16}{'1 KB/s':>10}{'800 KB/s':>10}{'first byte, ms':>16}")
    for name, row in rows.items():
        print(f"{name:<16}{row['1 KB']:>10,.0f}{row['800 KB']:>10,.0f}{row['first byte']:>16.2f}")
    bare, clew = rows["bare, uvicorn"], rows[CLEW]
    later = clew["first byte"] - bare["first byte"]
    print(
        f"clew beside the bare pass-through: {clew['1 KB'] / bare['1 KB']:.2f} at 1 KB, "
        f"{clew['800 KB'] / bare['800 KB']:.2f} at 800 KB, first byte {later:.2f} ms later"
    )


if __name__ == "__main__":
    main()
