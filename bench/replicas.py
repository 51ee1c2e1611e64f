"""Price of replicas: the same requests through one server, one with claims, and several at random.

    python -m bench.replicas [CORPUS] [--sessions N] [--requests N] [--replicas N] [--store URL]

Recorded sessions are sent without pauses. CPU time is that of all servers together, after their
records are written; the rows are measured in turns, session by session.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from msgspec import Struct

from bench.capacity import Client, Script, run_respool, scripts, settled
from bench.held_out import CORPUS
from bench.proxy import Way, run_upstream, running


class Played(Struct):
    """What some servers spent on the sessions so far."""

    name: str
    servers: list[Way]
    cpu: float = 0.0
    waits: list[float] = []
    first: list[tuple[float, float]] = []  # bytes and seconds of requests new to their server

    async def play(self, script: Script, name: str, chance: random.Random) -> None:
        """Send a session, each request to any of the servers."""
        before = [await _settled(way) for way in self.servers]
        clients = [Client(way.port) for way in self.servers]
        seen = set[int]()
        for at in range(len(script.cuts)):
            chosen = chance.randrange(len(clients))
            body = script.body(at)
            started = time.perf_counter()
            await clients[chosen].send(body, name)
            took = time.perf_counter() - started
            self.waits.append(took)
            if chosen not in seen:
                seen.add(chosen)
                self.first.append((len(body), took))
        for client in clients:
            client.close()
        after = [await _settled(way) for way in self.servers]
        self.cpu += sum(after) - sum(before)

    def row(self, one: Played) -> str:
        """The row of a table; ratios to one server alone."""
        requests = len(self.waits)
        cells = (
            f"{1e3 * self.cpu / requests:.1f} | {self.cpu / one.cpu:.2f} | "
            f"{1e3 * median(self.waits):.1f} | {median(self.waits) / median(one.waits):.2f}"
        )
        return f"| {self.name} | {requests:,} | {cells} |"


async def _settled(way: Way) -> float:
    assert way.pid is not None
    return await settled(way.pid)


def compare(ways: Sequence[Played], played: Sequence[Script]) -> None:
    """Play each session through each of the ways."""
    for at, script in enumerate(played):
        for way in ways:
            asyncio.run(way.play(script, f"session {at}", random.Random(at)))


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus", nargs="?", type=Path, default=CORPUS)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--requests", type=int, default=60, help="of each session")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--store", default="", help="a PostgreSQL URL for those that share one")
    asked = parser.parse_args()
    played = scripts(asked.corpus, asked.sessions, asked.requests)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        behind = stack.enter_context(running("upstream", run_upstream))

        def serve(name: str, store: str, shared: bool) -> Way:
            return stack.enter_context(running(name, run_respool, behind.port, store, shared))

        several = asked.store or f"{folder}/several.db"
        ways = [
            Played("one server", [serve("one", f"{folder}/one.db", False)]),
            Played("one, --shared-store", [serve("shared", f"{folder}/shared.db", True)]),
            Played(
                f"{asked.replicas} at random",
                [serve(f"replica {at}", several, True) for at in range(asked.replicas)],
            ),
        ]
        compare(ways, played)
    print("| servers | requests | CPU ms per request | ratio | median wait, ms | ratio |")
    print("|---|---|---|---|---|---|")
    for way in ways:
        print(way.row(ways[0]))


if __name__ == "__main__":
    main()
