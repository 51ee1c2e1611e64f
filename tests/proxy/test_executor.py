"""Threads beside the event loop: they do what they are given, and hold up nobody's end."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from respool.proxy.compactor import Executor
from respool.proxy.decide import Decider
from respool.store import SQLiteStore
from tests.cli.test_run import bodies, started
from tests.proxy.compaction import EAGER_POLICY, parsed, request_body
from tests.proxy.program import Client, provider
from tests.proxy.test_server import SOURCE, served
from tests.store.support import NOW, OWNER

SOON = 10.0


def test_work_is_done_and_errors_are_told():
    pool = Executor(2, "t")
    assert pool.submit(lambda: 6 * 7).result(SOON) == 42
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 // 0).result(SOON)
    assert pool.submit(lambda: "still there").result(SOON) == "still there"
    pool.close()


def test_as_many_at_a_time_as_may_be_and_no_more():
    pool, go, lock = Executor(3, "t"), threading.Event(), threading.Lock()
    running: list[int] = [0, 0]  # now, and at most

    def work() -> str:
        with lock:
            running[0] += 1
            running[1] = max(running)
        go.wait(SOON)
        with lock:
            running[0] -= 1
        return threading.current_thread().name

    waiting = [pool.submit(work) for _ in range(9)]
    while running[1] < 3:
        time.sleep(0.001)
    go.set()
    assert {one.result(SOON) for one in waiting} <= {"t-0", "t-1", "t-2"}
    assert running == [0, 3]
    pool.close()


def test_one_thread_does_for_those_that_come_one_after_another():
    pool = Executor(4, "t")
    names: set[str] = set()
    for _ in range(20):
        names.add(pool.submit(lambda: threading.current_thread().name).result(SOON))
        while pool._pending:  # until it is idle again
            time.sleep(0.001)
    assert names == {"t-0"}
    pool.close()


def test_what_is_cancelled_or_comes_too_late_is_not_begun():
    pool, go, done = Executor(1, "t"), threading.Event(), list[str]()
    first = pool.submit(lambda: go.wait(SOON))
    while not first.running():
        time.sleep(0.001)
    cancelled, waiting = (pool.submit(lambda name=name: done.append(name)) for name in "ab")
    assert cancelled.cancel()
    pool.close()
    late = pool.submit(lambda: done.append("c"))
    go.set()
    assert first.result(SOON) is True  # what is under way goes on
    for one in (cancelled, waiting, late):
        with pytest.raises(CancelledError):
            one.result(SOON)
    assert done == []


def plugged(folder: Path) -> dict[str, str]:
    """A world in which a pass is installed that never comes back, and a policy that names it."""
    package = folder / "site"
    info = package / "hanging-1.0.dist-info"
    info.mkdir(parents=True)
    (package / "hanging.py").write_text(
        "import time\ndef hang(view, policy):\n    time.sleep(3600)\n    yield\n"
    )
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hanging\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[respool.passes]\nhang = hanging:hang\n")
    (folder / "respool.toml").write_text(
        'reevaluate_tokens = 1\nreevaluate_ratio = 0.0\npasses = ["default", "hang"]\n'
    )
    return {
        "PYTHONPATH": f"{SOURCE}{os.pathsep}{package}",
        "RESPOOL_STORE": str(folder / "respool.db"),
    }


HURRIED = ("--deadline", "0.2", "--policy")


def test_a_pass_that_never_comes_back_keeps_no_request_and_no_proxy(tmp_path: Path):
    world = plugged(tmp_path)
    with provider() as behind:
        options = ("--upstream", f"anthropic=http://127.0.0.1:{behind.port}", *HURRIED)
        with served(*options, str(tmp_path / "respool.toml"), **world) as (process, port):
            client = Client(port)
            for steps in (1, 2, 3):
                assert client.post(request_body("anthropic", steps))[0] == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(SOON) == 0
    assert behind.received == [request_body("anthropic", steps) for steps in (1, 2, 3)]


def test_nor_a_command_that_has_ended(tmp_path: Path):
    world = plugged(tmp_path)
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT)
    with provider() as behind:
        options = (*HURRIED, str(tmp_path / "respool.toml"))
        upstream = ("--upstream", f"anthropic=http://127.0.0.1:{behind.port}")
        command = ("--", sys.executable, str(agent), str(bodies(tmp_path, 2)))
        process = started(tmp_path, *upstream, *options, *command, world=world)
        out, told = process.communicate(timeout=2 * SOON)
    assert (process.returncode, out) == (3, "200\n200\n"), told
    assert "2 requests" in told


AGENT = """
import json, os, sys, urllib.request
base = os.environ["ANTHROPIC_BASE_URL"]
for body in json.load(open(sys.argv[1])):
    sent = urllib.request.Request(base + "/v1/messages", json.dumps(body).encode(),
        {"content-type": "application/json", "x-api-key": "k", "anthropic-version": "x"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sent) as answer:
        print(answer.status)
sys.exit(3)
"""


def test_a_fact_that_waits_for_its_thread_is_told_at_the_end(tmp_path: Path):
    """A projection was refused, its original passed, and the proxy ends before the store heard."""
    store = SQLiteStore(tmp_path / "respool.db")
    decider = Decider(EAGER_POLICY, store)
    decision = decider.decide_original(
        parsed(request_body("anthropic", 2), "anthropic", None, OWNER, NOW), "refused"
    )
    decider.leave_alone(decision, OWNER)  # and nobody calls what it returns
    decider.close()
    assert store.facts(decision.identity.conversation).left_alone == {decision.identity.prefix}
    store.close()
