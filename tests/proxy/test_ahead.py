"""What takes force at the next request is evaluated once this one was accepted."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import respool
import respool.compaction.fold as fold_module
from tests.proxy.compaction import INVALID, Compacted, answer_by_body, drive, request_body
from tests.proxy.sockets import until

# Results may go once they were seen, at prices by which that pays: at every boundary some do.
POLICY = respool.Policy(
    cap_chars=500,
    reevaluate_tokens=1,
    reevaluate_ratio=0.0,
    miss_penalty=0.0,
    passes=("cap_results",),
    keep_exchanges=0,
    cache_read_price=0.9,
    cache_write_price=1.0,
)
FORMAT = "openai-responses"
STEPS = range(2, 9)


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that evaluated."""
    found: list[str] = []
    real = fold_module.evaluate

    def named(*given: Any, **more: Any) -> None:
        found.append(threading.current_thread().name)
        real(*given, **more)

    monkeypatch.setattr(fold_module, "evaluate", named)
    return found


def ahead(evaluations: list[str]) -> int:
    """The number of those that no request waited for."""
    return sum(name.startswith("respool-ahead") for name in evaluations)


@pytest.mark.parametrize("patient", [True, False], ids=["thinking", "at once"])
def test_it_goes_up_with_the_next_request_whoever_computed_it(
    tmp_path: Path, evaluations: list[str], patient: bool
):
    async def act(one: Compacted) -> None:
        for number, steps in enumerate(STEPS, 1):
            assert (await one.ask(FORMAT, steps)).status == 200
            if patient:
                await until(lambda number=number: ahead(evaluations) == number)
        sent = [
            respool.compact(request_body(FORMAT, steps), format=FORMAT, policy=POLICY, memo=None)
            for steps in STEPS
        ]
        assert one.bodies == [each.request for each in sent]
        assert sum(one.shortened(FORMAT)) == STEPS[-1] - 2

    drive(tmp_path, act, policy=POLICY)
    if patient:
        waited = [name for name in evaluations if name in ("respool-0", "respool-1")]
        assert len(waited) == STEPS[0], "at the boundaries before the first request alone"


def test_a_refused_request_is_not_evaluated(tmp_path: Path, evaluations: list[str]):
    async def act(one: Compacted) -> None:
        assert (await one.ask(FORMAT, 1)).status == 400
        assert (await one.ask(FORMAT, 1)).status == 400

    drive(tmp_path, act, policy=POLICY, script=answer_by_body(lambda _body: INVALID))
    assert ahead(evaluations) == 0
