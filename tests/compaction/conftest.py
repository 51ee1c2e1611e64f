"""Epochs in short histories, which a bound on regret would put off."""

from __future__ import annotations

from math import inf

import pytest


@pytest.fixture(autouse=True)
def no_bound_on_regret(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lift the bound, except where a test is about it."""
    if "bound_on_regret" not in request.node.name:
        monkeypatch.setattr("respool.compaction.planner._MAX_REGRET", inf)
