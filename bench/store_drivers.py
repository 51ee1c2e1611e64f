"""PostgreSQL drivers with the store's own operations: `python -m bench.store_drivers`.

Both run the same functions of the store's tables, in turns, against one server of tests. asyncpg is
no dependency: install it first (`uv pip install asyncpg`). It only knows event loops, and the store
is called from threads: so a loop in a thread of its own runs each statement.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psycopg

from respool.facts import Facts
from respool.store import ServerAddress, originals, record_tables
from respool.store.connection import Connection, Parameters
from respool.store.postgres import PostgresStore
from respool.store.postgres_database import TranslatedConnection
from respool.store.postgres_dialect import order_parameters, translate
from tests.store.postgres_server import serving
from tests.store.support import NOW, OWNER, by_ref, record

BEGIN = "BEGIN; SELECT pg_advisory_xact_lock_shared(1, 1)"
SETUP = "SET search_path = respool"


class AsyncpgRows(list[Any]):
    """The result of a statement."""

    rowcount = -1

    def fetchall(self) -> list[Any]:
        return self


class AsyncpgConnection:
    """A connection of asyncpg that threads use through a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, url: str) -> None:
        import asyncpg  # pyright: ignore[reportMissingImports]

        self._loop = loop

        async def open() -> Any:
            connection = await asyncpg.connect(url, statement_cache_size=200)
            await connection.execute(SETUP)
            return connection

        self.raw = self._wait(open())

    def _wait(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def execute(self, sql: str, parameters: Parameters = (), /) -> AsyncpgRows:
        text, keys = translate(sql)
        return AsyncpgRows(self._wait(self.raw.fetch(text, *order_parameters(keys, parameters))))

    def executemany(self, sql: str, parameters: Iterable[Parameters], /) -> AsyncpgRows:
        text, keys = translate(sql)
        rows = [order_parameters(keys, one) for one in parameters]
        self._wait(self.raw.executemany(text, rows))
        return AsyncpgRows()

    def run(self, sql: str) -> None:
        self._wait(self.raw.execute(sql))

    def close(self) -> None:
        self._wait(self.raw.close())


class PsycopgConnection(TranslatedConnection):
    """A connection of psycopg 3, as the store has it."""

    def __init__(self, url: str) -> None:
        raw = psycopg.connect(url, autocommit=True, cursor_factory=psycopg.RawCursor)
        raw.execute(SETUP)
        super().__init__(raw)

    def close(self) -> None:
        self.raw.close()


@dataclass(frozen=True)
class Operation:
    """An operation of the store, and how often it is run in one turn."""

    name: str
    count: int
    run: Callable[[Any, int], object]


def in_transaction(work: Callable[[Connection, int], object]) -> Callable[[Any, int], object]:
    def run(connection: Any, at: int) -> None:
        connection.run(BEGIN)
        work(connection, at)
        connection.run("COMMIT")

    return run


_DRAW = random.Random(1)
_NUMBER = iter(range(10**9))
_LOCK = threading.Lock()


def next_number() -> int:
    with _LOCK:
        return next(_NUMBER)


def keep(connection: Connection, at: int) -> None:
    texts = by_ref(f"{next_number()} " + "a line of output\n" * 200)
    ready = {ref: originals.pack_original(ref, text) for ref, text in texts.items()}
    row = originals.ensure_conversation(connection, OWNER, f"c{at % 50}", time=NOW)
    originals.keep_originals(connection, row, texts=texts, ready=ready, time=NOW)


def read_facts(connection: Connection, at: int) -> Facts:
    return record_tables.read_facts(connection, f"c{at % 50}")


def write_records(connection: Connection, at: int) -> None:
    made = [
        record(f"r{next_number()}", conversation=f"c{(at * 7 + n) % 50}", prefix=f"{n:032x}")
        for n in range(100)
    ]
    record_tables.write_records(connection, made)


def read_prior(connection: Connection, at: int) -> object:
    return record_tables.read_prior_requests(
        connection, f"c{at % 50}", [f"{at * 3 + n:032x}" for n in range(8)], 10**9
    )


OPERATIONS = (
    Operation("keep one original", 100, in_transaction(keep)),
    Operation("read facts", 300, read_facts),
    Operation("prior requests", 100, read_prior),
    Operation("write 100 records", 6, in_transaction(write_records)),
)


def measure(connections: list[Any], operation: Operation) -> tuple[float, float]:
    """Wall and CPU microseconds of one operation, with a thread for each connection."""

    def work(connection: Any) -> None:
        for at in range(operation.count):
            operation.run(connection, at)

    wall, cpu = time.perf_counter(), time.process_time()
    if len(connections) == 1:
        work(connections[0])
    else:
        with ThreadPoolExecutor(len(connections)) as threads:
            list(threads.map(work, connections))
    done = operation.count * len(connections)
    return (
        (time.perf_counter() - wall) * 1e6 / done,
        (time.process_time() - cpu) * 1e6 / done,
    )


def compare(url: str, rounds: int) -> Iterator[str]:
    """The rows of a table; drivers take turns in each round."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    for threads in (1, 8):
        opened: dict[str, list[Any]] = {
            "psycopg": [PsycopgConnection(url) for _ in range(threads)],
            "asyncpg": [AsyncpgConnection(loop, url) for _ in range(threads)],
        }
        for operation in OPERATIONS:
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in opened}
            for at in range(rounds + 1):
                for name, connections in opened.items():
                    figures = measure(connections, operation)
                    if at:  # the first round prepares statements
                        found[name].append(figures)
            (wall, cpu), (other_wall, other_cpu) = (
                tuple(statistics.median(column) for column in zip(*found[name], strict=True))
                for name in ("psycopg", "asyncpg")
            )
            yield (
                f"| {operation.name} | {threads} | {wall:,.0f} | {other_wall:,.0f}"
                f" | {other_wall / wall:.2f} | {cpu:,.0f} | {other_cpu:,.0f}"
                f" | {other_cpu / cpu:.2f} |"
            )
        for connections in opened.values():
            for connection in connections:
                connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    with serving() as server:
        url = server.new_database()
        store = PostgresStore(ServerAddress(url))
        store.salt()
        store.close()
        print("| operation | threads | psycopg, µs | asyncpg, µs | ratio | CPU | CPU | ratio |")
        print("|---|---|---|---|---|---|---|---|")
        for row in compare(url, given.rounds):
            print(row, flush=True)


if __name__ == "__main__":
    main()
