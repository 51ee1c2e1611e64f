"""Memory that the proxy takes: it stays flat, and a long answer needs no more than a short one."""

from __future__ import annotations

import gc
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from respool.proxy.usage import MAX_MEMBER_BYTES, MAX_VALUE_BYTES
from respool.wire.layout import LayoutCache
from tests.proxy.compaction import Compacted, drive, request_body
from tests.proxy.sockets import SOON, until
from tests.proxy.test_usage import long_answers, read

pytestmark = pytest.mark.bench


def test_memory_is_flat(tmp_path: Path):
    """Many conversations, each for a while; `make bench-proxy` does it with 20,000 requests."""

    async def act(one: Compacted) -> None:
        async def some(first: int) -> None:
            for number in range(first, first + 60):
                for steps in (2, 3):
                    body: Any = json.loads(request_body("anthropic", steps))
                    body["messages"][0]["content"] = f"task {number}"
                    await one.send("anthropic", json.dumps(body).encode())
            one.standing.behind.received.clear()
            one.standing.behind.writers.clear()
            one.standing.records.clear()
            await until(lambda: not one.compactor._recorder._ended)
            assert one.store.flush(SOON)
            gc.collect()

        one.decider._session._memo._max_states = 16
        one.decider._session._memo.bodies = LayoutCache(max_bytes=200_000)
        one.decider._conversations._max_size = 16
        await some(0)
        tracemalloc.start()
        await some(100)  # by then each thread has what it needs
        before = tracemalloc.get_traced_memory()[0]
        await some(200)
        after = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert after - before < 1_000_000

    drive(tmp_path, act)


@pytest.mark.parametrize("name", long_answers())
def test_a_long_answer_needs_no_more_memory_than_a_short_one(name: str) -> None:
    format, chunks = long_answers()[name]
    tracemalloc.start()
    read(format, chunks)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * (MAX_VALUE_BYTES + MAX_MEMBER_BYTES)
