"""Cost of the store: each figure relative to the disk's own, in one run."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest

from respool.facts import Facts
from respool.markers import reference
from respool.store import SQLiteStore

pytestmark = pytest.mark.bench

COUNT = 10_000
OWNER = "0" * 32


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteStore]:
    store = SQLiteStore(tmp_path / "respool.db")
    store.salt()
    yield store
    store.close()


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Originals of some 3,000 characters, of words that come again and again."""
    draw = random.Random(1)
    words = [f"{draw.getrandbits(24):x}" for _ in range(4_000)]
    made = ("\n".join(" ".join(draw.choices(words, k=10)) for _ in range(45)) for _ in range(COUNT))
    return {reference(text): text for text in made}


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def sync_of_the_disk(folder: Path) -> float:
    """The seconds that one write of 20 KB takes until it is on the disk."""
    with (folder / "synced").open("wb", buffering=0) as file:

        def once() -> None:
            file.write(os.urandom(20_000))
            os.fsync(file.fileno())

        return sorted(seconds(once) for _ in range(50))[25]


@pytest.mark.parametrize("batch", [1, 10, 100])
def test_keeping(store: SQLiteStore, texts: dict[str, str], tmp_path: Path, batch: int):
    """A commit waits for the disk; its content hardly matters."""
    commits = min(COUNT // batch, 300)
    rest = iter(texts.items())
    batches = [dict(islice(rest, batch)) for _ in range(commits)]
    took = seconds(lambda: [store.keep(OWNER, "c1", some) for some in batches]) / commits
    again = seconds(lambda: [store.keep(OWNER, "c1", some) for some in batches]) / commits
    sync = sync_of_the_disk(tmp_path)
    print(
        f"\nbatches of {batch}: {took / batch * 1e6:,.0f} us an original, {took * 1e3:.1f} ms a"
        f" batch; kept before: {again / batch * 1e6:,.1f} us; a sync alone: {sync * 1e3:.1f} ms"
    )
    assert took < 4 * sync + batch * 1e-3
    assert again < took


def test_keeping_from_many_threads(store: SQLiteStore, texts: dict[str, str]):
    """Threads that wait for the disk share one commit."""
    items = list(texts.items())

    def keep(some: list[tuple[str, str]]) -> None:
        for ref, text in some:
            store.keep(OWNER, "c1", {ref: text})

    alone = seconds(lambda: keep(items[:100])) / 100
    with ThreadPoolExecutor(16) as threads:
        parts = [items[at : at + 50] for at in range(1_000, 1_800, 50)]
        together = seconds(lambda: list(threads.map(keep, parts))) / 800
    print(f"\none thread: {alone * 1e3:.2f} ms; 16 threads: {together * 1e3:.2f} ms an original")
    assert together < alone


def test_reading(store: SQLiteStore, texts: dict[str, str]):
    store.keep(OWNER, "c1", texts)
    store.add_facts("c1", Facts(cold=frozenset(f"{number:032x}" for number in range(20))))
    refs = list(texts)[:1_000]
    original = seconds(lambda: [store.original(ref, OWNER) for ref in refs]) / 1_000
    facts = seconds(lambda: [store.facts("c1") for _ in range(1_000)]) / 1_000
    some = dict(islice(texts.items(), 500))
    store.keep(OWNER, "c2", some)
    all_kept = seconds(lambda: [store.keep(OWNER, "c2", some) for _ in range(100)]) / 100
    size = store.path.stat().st_size / sum(len(text) for text in texts.values())
    print(
        f"\nan original: {original * 1e6:.0f} us; 20 facts: {facts * 1e6:.0f} us; 500 originals"
        f" that are kept already: {all_kept * 1e3:.2f} ms; the file: {size:.2f} of its texts"
    )
    assert original < 0.002
    assert facts < 0.002
    assert all_kept < 0.005
    assert size < 0.8
