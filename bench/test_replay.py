"""The replay's time and memory, as ratios measured in one run, and beside the plain definitions.

Time is that of the processor: a replay waits for nothing, and other work would be measured too.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from bench.test_core import FORMATS, say
from respool.providers.registry import PROVIDERS
from respool.replay.policies import DEFAULT_POLICIES
from respool.replay.runner import ReplayOptions, replay_session
from respool.sessions.session import RecordedSession
from tests.corpus.sessions import corpus
from tests.laws.sessions import long_session
from tests.replay.support import session_of
from tests.replay.test_reference import NAMES, ours, reference, theirs

__all__ = ["reference"]  # a fixture

pytestmark = pytest.mark.bench

MODELS = {
    "anthropic": "claude-opus-4-8",
    "openai-chat": "gpt-5.1",
    "openai-responses": "gpt-5.6-sol",
    "gemini": "gemini-2.5-pro",
}


def generated(format: Any, requests: int, result: int = 2_400) -> RecordedSession:
    """A session of so many requests, with results as long as coding agents' are."""
    history = long_session(format, requests, result=result)[PROVIDERS[format].codec.history_field]
    session = session_of(format, history, model=MODELS[format])
    assert abs(len(session.requests) - requests) <= 1
    return session


def replay_seconds(session: RecordedSession, times: int) -> float:
    """Best time of the default policies."""
    best = float("inf")
    for _ in range(times):
        gc.collect()
        start = time.process_time()
        result = replay_session(session, ReplayOptions(DEFAULT_POLICIES))
        best = min(best, time.process_time() - start)
        assert [score.requests for score in result.scores] == [len(session.requests)] * len(
            DEFAULT_POLICIES
        )
    return best


@pytest.mark.parametrize("format", FORMATS)
def test_a_thousand_requests(format: str) -> None:
    """A session of 1,000 requests under the usual policies, against one of 250."""
    one = replay_seconds(generated(format, 250), 7)
    four = replay_seconds(generated(format, 1_000), 4)
    detail = f"1,000 requests under {len(DEFAULT_POLICIES)} policies: {four:.1f} s"
    say(f"1,000 requests / 250, {format}", four / one, 6.0, detail)
    assert four < 6  # seconds


@pytest.mark.skipif(corpus() is None, reason="the plain definitions stand beside the recordings")
@pytest.mark.parametrize("format", ["anthropic", "openai-responses"])
def test_against_the_plain_definitions(format: str, reference: dict[str, ModuleType]) -> None:
    """The published definitions, on one generated session, every policy that they have."""
    session = generated(format, 300)
    recorded = SimpleNamespace(
        id=session.id,
        agent=session.agent,
        format=format,
        messages=session.messages,
        cuts=[sent.cut for sent in session.requests],
        times=[sent.time for sent in session.requests],
    )
    mine: list[float] = []
    plain: list[float] = []
    got, want = ours(recorded, mine), theirs(recorded, reference, plain)
    for name in NAMES:
        assert got[name].bill.cost == pytest.approx(want[name]["cost"], rel=0.005)
    detail = f"{mine[0]:.2f} s and {plain[0]:.1f} s: {plain[0] / mine[0]:.0f} times faster"
    say(f"replay / plain definitions, {format}", mine[0] / plain[0], 0.2, detail)


MEMORY = """
import sys, time
from pathlib import Path
from bench.test_replay import generated
from respool.replay.runner import Options, replay_session

def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024

options = Options(("none", "safe", "floor"))
replay_session(generated(sys.argv[1], 5), options)
session = generated(sys.argv[1], int(sys.argv[2]), 300)
Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
before, start = status("VmRSS"), time.process_time()
replay_session(session, options)
print((status("VmHWM") - before) / 1e6, time.process_time() - start)
"""


def measured(format: str, requests: int) -> tuple[float, float]:
    """Megabytes and seconds, in a fresh process."""
    run = subprocess.run(
        [sys.executable, "-c", MEMORY, format, str(requests)],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    megabytes, took = map(float, run.stdout.split())
    return megabytes, took


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("format", ["anthropic", "openai-responses"])
def test_memory_of_a_very_long_session(format: str) -> None:
    """10,000 requests are finished, and need about four times the memory of 2,500."""
    short, _ = measured(format, 2_500)
    long, took = measured(format, 10_000)
    detail = f"{short:,.0f} MB and {long:,.0f} MB, {took:.0f} s"
    say(f"memory of 10,000 requests / 2,500, {format}", long / short, 6.0, detail)
