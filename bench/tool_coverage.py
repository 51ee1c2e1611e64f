"""Tool coverage on recorded sessions: share of calls with known kind and target, by agent.

    python bench/tool_coverage.py [CORPUS] [--unknown N] [--sample N]

CORPUS (default: ../shared/corpus beside the repository) is a file or folder that `respool replay`
reads. A call is *known* when its kind is (nothing in it had to be taken for a barrier out of
ignorance), and so is its target: a path, a URL, a record or the program that ran. A call of kind
"other" (a plan, a question to the user) needs no target. What is declared to reach further than
can be told (a sub-agent, `git rebase`, `npm install`) is known, and is counted apart as a barrier.
Nothing is written.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from respool.providers.registry import PROVIDERS
from respool.sessions.readers import READERS, read_file
from respool.sessions.session import RecordedSession
from respool.tools import Tools, Use

REPOSITORY = Path(__file__).resolve().parent.parent
CORPUS = REPOSITORY.parent / "shared" / "corpus"


class Called(NamedTuple):
    """One call of a session."""

    agent: str
    name: str
    arguments: str


def calls(corpus: Path) -> Iterator[Called]:
    """Every call in the sessions below a folder."""
    files = [corpus] if corpus.is_file() else sorted(corpus.rglob("*.jsonl.gz"))
    for file in files:
        for session in read_file(file, READERS):
            if isinstance(session, RecordedSession):
                codec = PROVIDERS[session.format].codec
                for row, message in enumerate(session.messages):
                    for part in codec.decode(row, message):
                        if part.kind == "call":
                            yield Called(session.agent, part.name, part.text)


def is_known(use: Use) -> bool:
    """Check if kind and target are known; a call of kind "other" needs no target."""
    return use.known and (use.target is not None or use.kind == "other")


def command_of(called: Called) -> str:
    """Short text of a call."""
    try:
        value = json.loads(called.arguments)
    except ValueError:
        return f"{called.name} {called.arguments}"
    if isinstance(value, dict):
        text = value.get("command") or value.get("cmd")
        return text if isinstance(text, str) else f"{called.name} {called.arguments}"
    return called.name


def main() -> None:
    """Print the shares, the most frequent unknown calls, and the time per call."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus", nargs="?", type=Path, default=CORPUS)
    parser.add_argument("--unknown", type=int, default=25, help="how many of the unknown to list")
    parser.add_argument("--sample", type=int, default=0, help="how many calls to show at random")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    found = list(calls(chosen.corpus))
    tools = Tools()
    tools.use_of("Bash", '{"command": "ls"}')  # load the parser
    began = time.perf_counter()
    uses = [tools.use_of(one.name, one.arguments) for one in found]
    spent = time.perf_counter() - began
    told = list(zip(found, uses, strict=True))
    shares(told)
    unknown(told, chosen.unknown)
    print(f"\n{spent / max(1, len(found)) * 1e6:.1f} µs a call, repeats remembered")
    for one, use in random.Random(chosen.seed).sample(told, min(chosen.sample, len(told))):
        print(f"\n{one.agent} {command_of(one)[:400]!r}\n    {use}")


def shares(told: list[tuple[Called, Use]]) -> None:
    """A row for each agent, and one for all."""
    print(f"{'agent':45} {'calls':>6} {'known':>7} {'kind':>7} {'barrier':>8}")
    agents = sorted({one.agent for one, _ in told})
    for agent in (*agents, "all"):
        uses = [use for one, use in told if agent in (one.agent, "all")]
        known, kinds = sum(map(is_known, uses)), sum(use.known for use in uses)
        barriers = sum(use.barrier for use in uses)
        count = len(uses)
        row = f"{known / count:7.1%} {kinds / count:7.1%} {barriers / count:8.1%}"
        print(f"{agent:45} {count:6} {row}")


def unknown(told: list[tuple[Called, Use]], most: int) -> None:
    """Unknown calls, the most frequent first."""
    missed = Counter(
        f"{one.name}: {' '.join(command_of(one).split())[:90]}"
        for one, use in told
        if not is_known(use)
    )
    print(f"\nnot known: {missed.total():,} calls")
    for text, count in missed.most_common(most):
        print(f"{count:6}  {text}")


if __name__ == "__main__":
    main()
