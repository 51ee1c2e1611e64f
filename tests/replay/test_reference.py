"""Fixed policies, oracle and floor agree with the published definitions.

They stand as plain code beside the recorded sessions; each figure of each session is compared, and
the time that both take.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from respool.pricing import CacheTerms
from respool.replay.policies import sender_factory
from respool.replay.prompt_cache import HOUR, CharacterMeasure
from respool.replay.recording import BillingConditions, Recording
from respool.replay.result import PolicyScore
from respool.replay.score import score_policy
from respool.sessions.session import RecordedRequest, RecordedSession
from tests.corpus.sessions import corpus

CORPUS = corpus() or Path()
pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(corpus() is None, reason="CORPUS names no folder of recorded sessions"),
]
REFERENCE = CORPUS.parent / "reference"
TOLERANCE = 0.005
SHARDS = 8
FIGURES = ("cost", "allin", "lost", "peak", "atoms", "lines")

# As the published table: Claude Code's and Codex's own prices, lifetimes and heads.
CONDITIONS = {
    "anthropic": BillingConditions(
        CacheTerms(cache="explicit", read=0.1, write=1.25, write_1h=2.0), 28_000, HOUR
    ),
    "openai-responses": BillingConditions(CacheTerms(cache="prefix", lifetime=600), 12_000),
}
NAMES = {
    "mask-10": "mask10", "clear-100k": "clear100k", "clear-50k-5": "clear50k",
    "oracle": "oracle", "floor": "floor",
}  # fmt: skip


@pytest.fixture(scope="module")
def reference() -> Iterator[dict[str, ModuleType]]:
    """The modules of the published definitions, which import one another by bare names."""
    if not REFERENCE.is_dir():
        pytest.skip("the published definitions are not beside the recorded sessions")
    names = ("wire", "corpus", "score", "policies", "oracle", "baselines")
    before = {name: sys.modules.pop(name, None) for name in names}
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(REFERENCE))
    try:
        modules = {name: importlib.import_module(name) for name in names}
        _in_order(modules["score"])
        yield modules
    finally:
        sys.path.remove(str(REFERENCE))
        sys.dont_write_bytecode = written
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


def _in_order(score: Any) -> None:
    """Let needs come in one order: of a turn that lost many, the sources of the first 50 count.

    They are sets there, so that which 50 these are changes from one run of Python to the next.
    """
    needs = score.needs
    score.needs = lambda *given: tuple(map(sorted, needs(*given)))


def ours(recorded: Any, seconds: list[float]) -> dict[str, PolicyScore]:
    """The scores of every policy on a session that the reference has read."""
    sent = tuple(
        RecordedRequest(cut, at) for cut, at in zip(recorded.cuts, recorded.times, strict=True)
    )
    session = RecordedSession(
        id=recorded.id,
        agent=recorded.agent,
        format=recorded.format,
        messages=recorded.messages,
        requests=sent,
    )
    started = time.perf_counter()
    recording = Recording(session, CharacterMeasure(), CONDITIONS[recorded.format])
    scores = {
        name: score_policy(recording, sender_factory(name)(recording), name)
        for name in ("none", *NAMES)
    }
    seconds.append(time.perf_counter() - started)
    return scores


def theirs(recorded: Any, reference: dict[str, ModuleType], seconds: list[float]) -> Any:
    replay, table = reference["score"].replay, reference["baselines"].TABLE
    started = time.perf_counter()
    found = {"none": replay(recorded, reference["policies"].none, profile="real")}
    for name, known in NAMES.items():
        found[name] = replay(recorded, table[known](recorded), profile="real")
    seconds.append(time.perf_counter() - started)
    return found


def told(got: PolicyScore, base: PolicyScore) -> dict[str, float]:
    return {
        "cost": got.bill.cost / base.bill.cost,
        "allin": got.all_in / base.all_in,
        "lost": got.lost_turns / got.requests,
        "peak": got.peak / base.peak,
        "atoms": got.atoms_kept / max(got.atoms, 1),
        "lines": got.lines_kept / max(got.lines, 1),
    }


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_figure_agrees(shard: int, reference: dict[str, ModuleType]) -> None:
    mine: list[float] = []
    plain: list[float] = []
    compared = 0
    for number, recorded in enumerate(reference["baselines"].panel(CORPUS)):
        if number % SHARDS != shard:
            continue
        got, want = ours(recorded, mine), theirs(recorded, reference, plain)
        for name in NAMES:
            total = reference["score"].total([want[name]], [want["none"]])
            figures = told(got[name], got["none"])
            off = {
                key: (figures[key], total[key])
                for key in FIGURES
                if abs(figures[key] - total[key]) > TOLERANCE
            }
            assert off == {}, (recorded.id, name)
            assert len(got[name].breaks) == total["busts"], (recorded.id, name)
        compared += 1
    assert compared == 3  # 24 segments in 8 shards
    print(f"{sum(plain) / sum(mine):.1f} times faster than the plain definitions")
    assert sum(mine) * 3 < sum(plain)
