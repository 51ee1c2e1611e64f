"""`respool serve` where its store cannot be used: it starts, says so, and every request passes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from respool.store import SQLiteStore
from respool.store.database_file import APPLICATION_ID, MIGRATIONS
from tests.proxy.compaction import PATHS, request_body, response_header
from tests.proxy.sockets import Reply, Upstream, ask, get, post, upstream
from tests.store.support import SOURCE
from tests.support.formats import results

KEY = "x-api-key: one"
EAGER = (
    "cap_chars = 500\neager = true\nkeep_exchanges = 0\n"
    'reevaluate_tokens = 1\nreevaluate_ratio = 0.0\npasses = ["cap_results"]\n'
)
SOON = 20.0


@contextlib.contextmanager
def a_folder_in_its_place(path: Path) -> Iterator[None]:
    path.mkdir(parents=True)
    yield
    path.rmdir()


@contextlib.contextmanager
def a_file_where_its_folder_should_be(path: Path) -> Iterator[None]:
    path.parent.write_text("no folder")
    yield
    path.parent.unlink()


@contextlib.contextmanager
def a_file_of_something_else(path: Path) -> Iterator[None]:
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE bookmarks (url TEXT)")
    before = path.read_bytes()
    yield
    assert path.read_bytes() == before
    path.unlink()


@contextlib.contextmanager
def a_newer_file(path: Path) -> Iterator[None]:
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        other.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    yield
    path.unlink()


@contextlib.contextmanager
def locked_by_another(path: Path) -> Iterator[None]:
    store = SQLiteStore(path)
    store.salt()
    store.close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


FAULTS: list[tuple[Callable[[Path], Any], str]] = [
    (a_folder_in_its_place, "missing"),
    (a_file_where_its_folder_should_be, "missing"),
    (a_file_of_something_else, "foreign"),
    (a_newer_file, "newer"),
    (locked_by_another, "busy"),
]
# One fault of each kind; the two first with `make slow`.
CASES = [
    pytest.param(*case, id=case[0].__name__, marks=pytest.mark.slow if at < 2 else ())
    for at, case in enumerate(FAULTS)
]


class Served:
    """The command in a process of its own, in front of a provider that takes everything."""

    def __init__(self, process: subprocess.Popen[str], port: int, behind: Upstream) -> None:
        self.process = process
        self.port = port
        self.behind = behind

    async def ask(self, steps: int) -> Reply:
        return await ask(
            self.port, post(PATHS["anthropic"], request_body("anthropic", steps), KEY), SOON
        )

    async def look(self, path: str) -> Any:
        return json.loads((await ask(self.port, get(path))).body)

    def shortened(self) -> list[bool]:
        received = results("anthropic", json.loads(self.behind.received[-1].body))
        return [len(text) < 1_000 for text in received]

    def ended(self) -> str:
        """Standard error of a process that has ended."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=SOON)[1]


def started(store: Path, folder: Path, *options: str) -> subprocess.Popen[str]:
    settings = folder / "respool.toml"
    settings.write_text(EAGER)
    command = [sys.executable, "-m", "respool", "serve", "--port", "0"]
    return subprocess.Popen(
        [*command, "--policy", str(settings), *options],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "RESPOOL_STORE": str(store)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextlib.asynccontextmanager
async def served(store: Path, folder: Path, *options: str) -> AsyncGenerator[Served]:
    async with upstream() as behind:
        to = f"anthropic=http://127.0.0.1:{behind.port}"
        process = started(store, folder, "--upstream", to, *options)
        assert process.stdout is not None
        found = re.search(r"listens on http://[\w.]+:(\d+)", process.stdout.readline())
        try:
            assert found
            yield Served(process, int(found[1]), behind)
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.mark.parametrize(("fault", "word"), CASES)
def test_it_starts_says_so_and_passes_requests_on(tmp_path: Path, fault: Any, word: str):
    store = tmp_path / "state" / "respool.db"

    async def act(repaired: contextlib.ExitStack) -> None:
        async with served(store, tmp_path) as one:
            for steps in (3, 4):
                reply = await one.ask(steps)
                assert (reply.status, response_header(reply, "x-respool-saved")) == (200, "0")
                assert one.behind.received[-1].body == request_body("anthropic", steps)
            health = await one.look("/healthz")
            assert (health["status"], health["store"]) == ("degraded", word)
            overview = await one.look("/respool/api/overview")
            assert "cannot be used" in overview["store"]["trouble"]
            repaired.close()
            await recovered(one)
            health = await one.look("/healthz")
            assert (health["status"], health["store"]) == ("ok", "ok")
            logged = [json.loads(line) for line in one.ended().splitlines()]
        warnings = [line["message"] for line in logged if "level" in line]
        assert warnings[0].startswith(f"The store {store} cannot be used: ")
        assert warnings[0].endswith(" Until it can be, requests are sent as they came.")
        assert "not-kept" in [
            line["compaction"].get("fallback") for line in logged if "compaction" in line
        ]

    with contextlib.ExitStack() as repaired:
        repaired.enter_context(fault(store))
        asyncio.run(asyncio.wait_for(act(repaired), 90))


async def recovered(one: Served) -> None:
    """It has taken the store up again, without a restart."""
    begun = time.monotonic()
    for steps in range(5, 100):
        reply = await one.ask(steps)
        assert reply.status == 200
        if response_header(reply, "x-respool-sent") == "projection" and any(one.shortened()):
            return
        assert time.monotonic() - begun < SOON
        await asyncio.sleep(0.3)
    raise AssertionError("it never compacts again")


def test_a_damaged_file_is_moved_aside_at_the_start(tmp_path: Path):
    store = tmp_path / "respool.db"
    store.write_bytes(os.urandom(10_000))

    async def act() -> None:
        async with served(store, tmp_path) as one:
            assert response_header(await one.ask(3), "x-respool-sent") == "projection"
            assert one.shortened() == [True, True, False]
            assert (await one.look("/healthz"))["store"] == "ok"
            (aside,) = (await one.look("/respool/api/overview"))["store"]["moved_aside"]
            assert f"It is now {tmp_path / aside}" in one.ended()

    asyncio.run(asyncio.wait_for(act(), 60))


def test_a_command_is_run_without_it_too(tmp_path: Path):
    store = tmp_path / "respool.db"
    store.mkdir()
    command = [
        sys.executable,
        "-m",
        "respool",
        "run",
        "--",
        sys.executable,
        "-c",
        "print('ran')",
    ]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "RESPOOL_STORE": str(store)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert f"The store {store} cannot be used" in done.stderr
