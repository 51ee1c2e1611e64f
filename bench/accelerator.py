"""A first look and the next request, with the accelerator and without, beside one exact count.

    python -m bench.accelerator [--corpus FOLDER] [--times N]

CPU time, the best of several, taken in turns in one process. Cold: no memo, and every token counted
exactly, over one exact count of the body; the median of the last three requests. Warm: one exchange
later, the median of the last nine, over decoding and encoding the body once. An evaluation, which
comes every twenty requests or more, takes longer. The bodies are the one of bench/test_core.py, and
recorded sessions of Claude Code and Codex.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

import respool
from bench.projections import CORPUS
from bench.test_core import WARM_REQUESTS, body_of, growing_bodies, warm_seconds
from respool.accelerator import VARIABLE, accelerator
from respool.tokens import ExactCounter
from tests.corpus.sessions import History, read

SESSIONS = (
    ("claude-code__entireio+git-sync", 19),
    ("codex__entireio+git-sync", 2),
    ("codex__entireio+git-sync", 3),
)
EXACT = respool.Policy(counter="o200k")


def bodies(corpus: Path) -> Iterator[tuple[str, str, list[bytes]]]:
    """Name, format, and the last requests of a conversation."""
    yield "bench body", "anthropic", growing_bodies(body_of("anthropic"), "anthropic")
    for name, number in SESSIONS:
        path = corpus / f"{name}.jsonl.gz"
        if path.is_file():
            history = longest_history(path, number)
            last = deque(history.bodies(), WARM_REQUESTS + 1)
            yield f"{name.replace('__entireio+', ' ')} {number}", history.format, [*last]


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


def measure(format: str, requests: list[bytes], times: int) -> dict[str, float]:
    """The best of each, in turns."""
    body = requests[-1]
    text, count = body.decode(), ExactCounter().count
    best: dict[str, float] = {}

    def note(name: str, took: float) -> None:
        best[name] = min(took, best.get(name, took))

    for _ in range(times):
        note("count", seconds(lambda: count(text)))
        note("codec", seconds(lambda: msgspec.json.encode(msgspec.json.decode(body))))
        for name, is_used in (("reference", False), ("accelerator", True)):
            choose(is_used)
            for at, one in enumerate(requests[-3:]):
                note(f"cold, {name} {at}", seconds(lambda: compact(one, format, None)))  # noqa: B023 - run at once
            warm, _ = warm_seconds(requests, lambda one, memo: compact(one, format, memo), rounds=1)
            note(f"warm, {name}", warm)
    for name in ("reference", "accelerator"):
        best[f"cold, {name}"] = median(best[f"cold, {name} {at}"] for at in range(3))
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
    for name, format, requests in bodies(asked.corpus):
        best = measure(format, requests, asked.times)
        cold, fast = (best[f"cold, {one}"] / best["count"] for one in ("reference", "accelerator"))
        warm, quick = (best[f"warm, {one}"] / best["codec"] for one in ("reference", "accelerator"))
        size = f"{len(requests[-1]) / 1e3:.0f}"
        print(
            f"| {name} | {size} | {cold:.1f} | {fast:.1f} | {warm:.2f} | {quick:.2f} |", flush=True
        )


if __name__ == "__main__":
    main()
