"""Starts, as ratios to a bare interpreter. tests/test_startup.py says what they must not import."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from bench.startup import BARE, HERE, run, starts

pytestmark = pytest.mark.bench

RUNS = 10
MOST = {"import respool": 3.0, "respool.compact": 12.0, "respool --help": 7.5}


def test_starts_cost_a_few_bare_interpreters(tmp_path: Path) -> None:
    measured = [BARE, *(one for one in starts(HERE) if one.name in MOST)]
    for one in measured:
        run(one, tmp_path)  # compile bytecode
    turns = [{one.name: run(one, tmp_path) for one in measured} for _ in range(RUNS)]
    for one in measured[1:]:
        ratio = statistics.median(
            turn[one.name].milliseconds / turn[BARE.name].milliseconds for turn in turns
        )
        print(f"{one.name}: {ratio:.1f} times {BARE.name}")
        assert ratio < MOST[one.name]
