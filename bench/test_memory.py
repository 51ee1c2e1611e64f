"""Memory over ten thousand requests: bounded, so it stays flat."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.test_core import say

pytestmark = pytest.mark.bench

# Each round has 250 requests: a long conversation, a fork of it that goes on beside it, and nine
# short ones that start anew; 440 conversations in all. No two rounds have a text in common.
REQUESTS = """
import gc
from pathlib import Path
import msgspec
import respool
from tests.laws.sessions import long_session

FORMATS = ("anthropic", "openai-chat", "openai-responses", "gemini")
FIELD = {"openai-responses": "input", "gemini": "contents"}
ROUNDS, EACH, LONG, SHORT = 40, 250, 150, 10

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

def upto(format, exchanges):
    return 1 + exchanges * (3 if format == "openai-responses" else 2)

def requests(format, seed):
    field = FIELD.get(format, "messages")
    def cut(whole, exchanges):
        return {**whole, field: whole[field][: upto(format, exchanges)]}
    whole, fork = (long_session(format, LONG, result=600, seed=seed + n) for n in (0, 1))
    half = upto(format, LONG // 2)
    fork[field][:half] = whole[field][:half]
    for count in range(1, LONG + 1):
        yield cut(whole, count)
        if count > LONG // 2 and count % 5 == 0:
            yield cut(fork, count)
    while True:
        seed += 2
        short = long_session(format, SHORT, result=900, seed=seed)
        for count in range(1, SHORT + 1):
            yield cut(short, count)

found, edited = [], 0
for number in range(ROUNDS):
    format = FORMATS[number % len(FORMATS)]
    for _, request in zip(range(EACH), requests(format, 1 + number * 1_000)):
        out = respool.compact(msgspec.json.encode(request), format=format)
        edited += bool(out.report.edits)
    gc.collect()
    found.append(resident())
assert edited >= 400  # so many of them went out with edits
print(*found)
"""
WARM = 16  # rounds until the memo is as full as it gets
LAST = 8


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_memory_stays_flat() -> None:
    """Ten thousand requests in all formats, by the default policy and with the default memo."""
    run = subprocess.run(
        [sys.executable, "-c", REQUESTS], capture_output=True, text=True, check=True, timeout=600
    )
    sizes = [float(one) for one in run.stdout.split()]
    early, late = max(sizes[WARM : WARM + LAST]), max(sizes[-LAST:])
    detail = f"{early:.0f} MB, then {late:.0f} MB"
    say("memory, last of 10,000 requests / first", late / early, 1.1, detail)
