"""Sessions by chance through the request path: grown, forked, retried, with all that goes wrong."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from tests.driving import Driver

RUNS = int(os.environ.get("FUZZ", "4"))  # `FUZZ=200` for some minutes


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("seed", range(RUNS))
def test_every_law_holds_whatever_happens(tmp_path: Path, seed: int, workers: int):
    """Valid, stable between epochs, signed thoughts where they belong, originals kept, no fault."""
    logging.disable(logging.CRITICAL)  # the faults are wanted
    try:
        driver = Driver(tmp_path, 1_000 * workers + seed, workers)
        asyncio.run(asyncio.wait_for(driver.play(60), 120))
    finally:
        logging.disable(logging.NOTSET)
    assert sum(driver.kinds.values()) > 30
