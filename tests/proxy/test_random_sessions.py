"""Sessions by chance through the request path: grown, forked, retried, with all that goes wrong."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path

import pytest

import respool
from respool.proxy import compactor
from tests.providers.signing_provider import BOUND, TOOLS
from tests.proxy.driver import BUDGET, DEADLINE, EAGER_POLICY, PLANNED, Driver

# One a number of workers in every run, four with `make slow`; `FUZZ=200` for some minutes.
RUNS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))]
if fuzz := int(os.environ.get("FUZZ", "0")):
    RUNS = [*range(fuzz)]


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("seed", RUNS)
def test_every_law_holds_whatever_happens(
    tmp_path: Path, seed: int, servers: int, monkeypatch: pytest.MonkeyPatch
):
    """Valid, stable between epochs, signed thoughts where they belong, originals kept, no fault."""
    # A busy machine might send the bytes that came instead, with reasoning that does not fit.
    monkeypatch.setattr(compactor, "_FALLBACK_SECONDS", 60.0)
    logging.disable(logging.CRITICAL)  # the faults are wanted
    try:
        driver = Driver(tmp_path, 1_000 * servers + seed, servers)
        asyncio.run(asyncio.wait_for(driver.play(60), 120))
    finally:
        logging.disable(logging.NOTSET)
    assert sum(driver.kinds.values()) > 30


def directed(folder: Path, seed: int, policy: respool.Policy, servers: int = 1) -> Driver:
    """A driver of one policy, of which no conversation is held out."""
    driver = Driver(folder, seed, servers)
    driver.policy, driver.holdout = policy, 0.0
    driver.servers = [driver._server() for _ in range(servers)]
    return driver


def test_edits_known_for_other_tools_do_not_go_up_with_what_was_signed_for_these(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The store is slow, so a decision comes late that has taught the memo what it comes to."""

    async def play() -> None:
        driver = directed(tmp_path, 6, PLANNED)
        decider, branch = driver.servers[0][1], driver.branches[0]
        branch.model = BOUND
        for _ in range(12):
            await driver.grow(branch)
        keep = decider._guard.keep
        monkeypatch.setattr(
            decider._guard, "keep", lambda *what: (time.sleep(3 * DEADLINE), keep(*what))
        )
        more = {"name": "more", "description": "so " * 9_000, "input_schema": {}}
        branch.tools = [*TOOLS, more]  # with which it would have been cut at other places
        branch.went = None
        await driver.grow(branch)  # judged by the provider: no thought meets what it is not for
        await driver._rest()
        monkeypatch.undo()
        await driver.grow(branch)
        await driver.close()
        assert driver.kinds.get("original", 0) >= 1

    asyncio.run(asyncio.wait_for(play(), 60))


@pytest.mark.parametrize("servers", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize(
    "policy", [EAGER_POLICY, PLANNED, BUDGET], ids=["keen", "planned", "budget"]
)
@pytest.mark.parametrize("first", ["grow", "grow_slowly", "bypass"])
def test_what_was_answered_before_its_like_did_not_fit_stays_without_its_thoughts(
    tmp_path: Path, servers: int, policy: respool.Policy, first: str
):
    """Two go on from one history: the one is answered, the other is too long, and cut there."""

    async def play() -> None:
        driver = directed(tmp_path, 0, policy, servers)
        branch = driver.branches[0]
        branch.model = BOUND
        for _ in range(8):
            await driver.grow(branch)
            await driver._rest()  # of what came late, the other server has to know
        other = branch.fork()
        await getattr(driver, first)(branch)
        await driver._rest()
        await driver.overflow(other)
        for one in (branch, other, branch, other):
            one.went = None
            await driver.grow(one)  # judged by the provider: no thought meets what it is not for
        await driver.close()

    logging.disable(logging.CRITICAL)  # the faults are wanted
    try:
        asyncio.run(asyncio.wait_for(play(), 60))
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", ["quick", "late"])
def test_of_two_that_go_up_from_one_history_neither_passes_over_what_the_other_does_not(
    tmp_path: Path, first: str
):
    """Nobody knows yet what was signed: the provider has answered neither of them."""

    async def play() -> None:
        driver = directed(tmp_path, 0, EAGER_POLICY, 2)
        both = driver.servers
        branch, pick = driver.branches[0], driver.chance.choice
        driver.chance.choice = lambda some: 150 if some == [2, 40, 150] else pick(some)  # type: ignore[method-assign]
        branch.model = BOUND
        driver.servers = both[:1]  # so that it knows all edits, and may pass over the last alone
        for _ in range(8):
            await driver.grow(branch)
        other = branch.fork()
        branch.went = other.went = None
        slow = both[0][1]
        slow.slow, driver.together = True, asyncio.Barrier(2)
        late = asyncio.create_task(driver.grow(branch))
        await asyncio.sleep(0)
        driver.servers = both[1:]
        await asyncio.gather(late, driver.grow(other))
        slow.slow, driver.together, driver.servers = False, None, both
        await driver._rest()
        await driver.toggle_lock(branch)  # no new edit, which would take the thoughts with it
        ones = (branch, other) if first == "late" else (other, branch)
        for one in ones * 2:
            one.went = None
            await driver.grow(one)  # judged by the provider: no thought meets what it is not for
        driver.unlock()
        await driver.close()

    logging.disable(logging.CRITICAL)  # the faults are wanted
    try:
        asyncio.run(asyncio.wait_for(play(), 60))
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("servers", [1, 2])
def test_after_an_original_that_did_not_fit_the_next_one_goes_without_its_thoughts(
    tmp_path: Path, servers: int
):
    """All others went up as they came; this one was cut, and its thoughts are signed for that."""

    async def play() -> None:
        driver = directed(tmp_path, 0, EAGER_POLICY, servers)
        branch, pick = driver.branches[0], driver.chance.choice
        driver.chance.choice = lambda some: 150 if some == [2, 40, 150] else pick(some)  # type: ignore[method-assign]
        branch.model = BOUND
        for _ in range(3):
            await driver.bypass(branch)
        with driver._all(slow=True):  # so that the original goes up first
            await driver.overflow(branch)
        await driver._rest()
        await driver.bypass(branch)  # judged by the provider: no thought meets what it is not for
        await driver.close()
        assert driver.kinds == {"original": 4, "projection": 1}

    logging.disable(logging.CRITICAL)  # the faults are wanted
    try:
        asyncio.run(asyncio.wait_for(play(), 60))
    finally:
        logging.disable(logging.NOTSET)


def test_what_went_up_as_it_came_and_did_not_fit_is_cut_though_thoughts_are_bound(tmp_path: Path):
    async def play() -> None:
        driver = directed(tmp_path, 0, EAGER_POLICY)
        branch = driver.branches[0]
        branch.model = BOUND
        for _ in range(8):
            await driver.grow(branch)
        await driver.restart(branch)  # who begins anew knows no edits, and is late
        driver.kinds, count = {}, len(branch.messages)
        with driver._all(slow=True):
            await driver.overflow(branch)
        assert (len(branch.messages), driver.kinds) == (count + 2, {"projection": 1})
        await driver._rest()
        await driver.grow(branch)
        await driver.close()

    asyncio.run(asyncio.wait_for(play(), 60))
