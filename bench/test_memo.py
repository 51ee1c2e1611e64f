"""Memory of the memo."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

import respool
from respool import Memo
from tests.compaction.test_memo import told_at_length

pytestmark = pytest.mark.bench


def test_it_really_holds_about_as_many_bytes_as_it_may() -> None:
    bound, bodies = 2_500_000, [told_at_length(number, 40) for number in range(5)]
    respool.compact(bodies[0], memo=None)  # what a process loads once is not the memo's
    gc.collect()
    tracemalloc.start()
    try:
        memo = Memo(max_bytes=bound)
        for body in bodies:
            respool.compact(body, memo=memo)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 2 <= len(memo) < 2 * len(bodies)
    assert bound / 2 < held < 1.5 * bound
