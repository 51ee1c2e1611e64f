"""A first look and the next request, with the accelerator and without, beside one exact count.

    python -m bench.accelerator [--corpus FOLDER] [--times N]

CPU time, the best of several, taken in turns in one process. Cold: no memo, and every token counted
exactly, over one exact count of the body. Warm: one message later, over decoding and encoding the
body once. The bodies are the one of bench/test_core.py, and the last requests of recorded sessions
of Claude Code and Codex.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

import respool
from bench.projections import CORPUS
from bench.test_core import body_of
from respool.accelerator import VARIABLE, accelerator
from respool.tokens import ExactCounter
from tests.corpus.sessions import History, read

SESSIONS = (
    ("claude-code__entireio+git-sync", 19),
    ("codex__entireio+git-sync", 2),
    ("codex__entireio+git-sync", 3),
)
EXACT = respool.Policy(counter="o200k")


def bodies(corpus: Path) -> Iterator[tuple[str, str, bytes, bytes]]:
    """Name, format, the request before the last, and the last one."""
    whole = json.loads(body_of("anthropic"))
    before = {**whole, "messages": whole["messages"][:-2]}
    yield "bench body", "anthropic", msgspec.json.encode(before), msgspec.json.encode(whole)
    for name, number in SESSIONS:
        path = corpus / f"{name}.jsonl.gz"
        if path.is_file():
            history = longest_history(path, number)
            *_, earlier, last = history.bodies()
            yield f"{name.replace('__entireio+', ' ')} {number}", history.format, earlier, last


def longest_history(path: Path, number: int) -> History:
    """The longest history of a session in a file of the corpus."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        line = next(line for at, line in enumerate(lines) if at == number)
    return max(read(json.loads(line)).histories, key=lambda one: len(one.messages))


def choose(is_used: bool) -> None:
    """Use the installed accelerator for what begins from now on, or Python alone."""
    os.environ[VARIABLE] = "on" if is_used else "off"
    accelerator.cache_clear()
    accelerator()


def seconds(run: Callable[[], Any]) -> float:
    """CPU time of one run."""
    gc.collect()
    start = time.process_time()
    run()
    return time.process_time() - start


def measure(format: str, before: bytes, body: bytes, times: int) -> dict[str, float]:
    """The best of each, in turns."""
    text, count = body.decode(), ExactCounter().count
    best: dict[str, float] = {}

    def note(name: str, took: float) -> None:
        best[name] = min(took, best.get(name, took))

    for _ in range(times):
        note("count", seconds(lambda: count(text)))
        note("codec", seconds(lambda: msgspec.json.encode(msgspec.json.decode(body))))
        for name, is_used in (("reference", False), ("accelerator", True)):
            choose(is_used)
            note(f"cold, {name}", seconds(lambda: compact(body, format, None)))
            memo = respool.Memo()
            compact(before, format, memo)
            note(f"warm, {name}", seconds(lambda: compact(body, format, memo)))  # noqa: B023 - run at once
    return best


def compact(body: bytes, format: str, memo: respool.Memo | None) -> None:
    """One request with every token counted exactly."""
    respool.compact(body, format=format, policy=EXACT, memo=memo)


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--times", type=int, default=5)
    asked = parser.parse_args()
    choose(True)
    status = accelerator()
    if status.library is None:
        raise SystemExit(f"no accelerator: {status.detail}; make native builds one")
    print("| body | KB | cold | with the accelerator | warm | with the accelerator |")
    print("|---|---|---|---|---|---|")
    for name, format, before, body in bodies(asked.corpus):
        best = measure(format, before, body, asked.times)
        cold, fast = (best[f"cold, {one}"] / best["count"] for one in ("reference", "accelerator"))
        warm, quick = (best[f"warm, {one}"] / best["codec"] for one in ("reference", "accelerator"))
        size = f"{len(body) / 1e3:.0f}"
        print(
            f"| {name} | {size} | {cold:.1f} | {fast:.1f} | {warm:.2f} | {quick:.2f} |", flush=True
        )


if __name__ == "__main__":
    main()
