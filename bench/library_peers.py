"""Another library beside respool on one growing conversation: CPU time, tokens, kept prefix.

    python -m bench.library_peers [--peers FOLDER] [--requests N]

A conversation of 800 KB grows by one exchange a request. For each library: CPU milliseconds of the
first request and the median of those after it, the tokens of the last request before and after by
one exact count, and the least share of an output that the next output begins with, which is what a
prompt cache can read. llmtrim runs in an environment of its own, which `make bench-proxy` makes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

import msgspec

import respool
from bench.accelerator import choose
from bench.test_core import body_of
from respool.accelerator import accelerator
from respool.tokens import ExactCounter

PEERS = Path(__file__).resolve().parent.parent / ".venv" / "peers"
PRESETS = ("agent", "aggressive")  # llmtrim's default for coding agents, and its strongest
WORKER = """
import json, sys, time
import llmtrim
for line in sys.stdin:
    body, preset = json.loads(line)
    start = time.process_time()
    out = llmtrim.compress(body, llmtrim.Provider.ANTHROPIC, preset)
    print(json.dumps([time.process_time() - start, out.request_json]), flush=True)
"""
Outcome = tuple[float, bytes]  # CPU seconds, and the request as it goes out


def growing(count: int) -> list[bytes]:
    """Requests of one conversation, each with one exchange more."""
    whole = json.loads(body_of("anthropic"))
    messages = whole["messages"]
    ends = range(len(messages) - 2 * (count - 1), len(messages) + 1, 2)
    return [msgspec.json.encode({**whole, "messages": messages[:end]}) for end in ends]


def by_respool(requests: Sequence[bytes]) -> Iterator[Outcome]:
    """What respool makes of them, with a memo."""
    memo = respool.Memo()
    for body in requests:
        start = time.process_time()
        out = respool.compact(body, format="anthropic", memo=memo)
        yield time.process_time() - start, out.request


def by_llmtrim(python: Path, preset: str, requests: Sequence[bytes]) -> list[Outcome]:
    """What llmtrim makes of them."""
    lines = "".join(json.dumps([body.decode(), preset]) + "\n" for body in requests)
    environment = {"PATH": os.defpath, "HOME": "/nonexistent"}  # no settings of the user's
    run = subprocess.run(
        [python, "-c", WORKER],
        input=lines,
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    answers = map(json.loads, run.stdout.splitlines())
    return [(seconds, request.encode()) for seconds, request in answers]


def row(name: str, requests: Sequence[bytes], made: Sequence[Outcome]) -> str:
    """A row of the table."""
    count = ExactCounter().count
    before, after = (count(one.decode()) for one in (requests[-1], made[-1][1]))
    first, *others = (1e3 * seconds for seconds, _ in made)
    kept = min(_shared(one, other) for (_, one), (_, other) in pairwise(made))
    return (
        f"| {name} | {first:.0f} ms | {median(others):.1f} ms | {before:,} | {after:,} "
        f"| {100 * kept:.1f} % |"
    )


def _shared(one: bytes, other: bytes) -> float:
    """The share of one request that the other begins with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low / len(one)


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--peers", type=Path, default=PEERS)
    parser.add_argument("--requests", type=int, default=20)
    asked = parser.parse_args()
    requests = growing(asked.requests)
    ExactCounter().count("load the vocabulary")
    print("| | first request | next ones | tokens before | after | kept prefix, least |")
    print("|---|---|---|---|---|---|")
    for name, is_used in (("respool", False), ("respool, accelerated", True)):
        choose(is_used)
        if not is_used or accelerator().library is not None:
            print(row(name, requests, list(by_respool(requests))), flush=True)
    python = asked.peers / "llmtrim" / "bin" / "python"
    for preset in PRESETS if python.exists() else ():
        name = f"llmtrim, `{preset}`"
        print(row(name, requests, by_llmtrim(python, preset, requests)), flush=True)


if __name__ == "__main__":
    main()
