"""Replicas without sticky sessions: each request of a conversation goes to any of them."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from respool.policy import Policy
from respool.proxy.app import App, build_app
from respool.proxy.log import log_nothing
from respool.proxy.server import serving_in_thread
from respool.proxy.server_options import CompactionOptions, ServerOptions, upstreams_of
from respool.store import StoreLocation, open_store
from tests.proxy.replicas import (
    EAGER,
    Load,
    Upstream,
    assert_as_by_one,
    assert_originals,
    upstream,
)


def _app(location: StoreLocation, to: Upstream, *, shared: bool) -> App:
    chosen = upstreams_of([f"anthropic=http://127.0.0.1:{to.port}"])
    options = CompactionOptions(policy=Policy(**EAGER), deadline=30.0, shared_store=shared)
    return build_app(
        ServerOptions(port=0, upstreams=chosen), options, log_nothing, store=open_store(location)
    )


@contextlib.contextmanager
def _served(location: StoreLocation, to: Upstream, count: int) -> Iterator[list[int]]:
    with contextlib.ExitStack() as opened:
        make = partial(_app, location, to, shared=count > 1)
        yield [opened.enter_context(serving_in_thread(make)).port for _ in range(count)]


def test_scattered_requests_give_the_projections_of_one_process(
    tmp_path: Path, location: StoreLocation
):
    """Right after one another, before any record is written."""
    chance = random.Random(5)
    with upstream() as received, _served(location, received, 3) as ports:
        load = Load(lambda: chance.choice(ports), agents=4)
        with load.running():
            pass  # a conversation each
        assert not load.failed
        assert_originals(received, ports)
    with upstream() as single, _served(tmp_path / "alone.db", single, 1) as (port,):
        assert_as_by_one(received.received, single, port)
