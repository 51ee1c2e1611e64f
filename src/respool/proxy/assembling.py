"""The proxy put together: forwarding, compaction, the store, the dashboard, and who watches."""

from __future__ import annotations

import gc
import logging
import os
import secrets
import sys

from msgspec import Struct

from ..dashboard.http_api import Dashboard
from ..dashboard.queries import BreakerStatus, CalibrationStatus, ProxyStatus
from ..store import Retention, SQLiteStore, StoreUnavailable, store_path
from .app import App
from .compacting.board import Board, Memory, memory_for
from .compacting.compacting import Compacting
from .compacting.deciding import Deciding
from .compacting.journal import Journal, Ring, ring_for
from .compacting.options import Options
from .compacting.recording import Heard, Recording
from .forwarding.config import Config
from .forwarding.record import Log, Record, to_all
from .given_back import FOLDER, GivenBack
from .installed import installed
from .own import HEALTH, METRICS
from .watching.health import Scrape, Watch
from .watching.metrics import Cells, Metrics, cells_for
from .watching.spans import spans_of

_log = logging.getLogger(__name__)


def _tune() -> None:
    """Have the event loop wait for no other thread for long, and for the collector seldom.

    The loop gives way at every system call, and gets its turn back after the switch interval when
    another thread computes. What is remembered of histories is large and holds no cycles.
    """
    sys.setswitchinterval(0.0005)
    gc.set_threshold(20_000, 20, 50)


class Shared(Struct, frozen=True):
    """What processes that serve one port have in common; made by the one that starts them."""

    cells: Cells  # their numbers
    memory: Memory  # for facts that wait for the store
    ring: Ring  # for what was taken of late
    salt: bytes  # of a store that they begin: so they agree on names from the start


def shared_by(processes: int) -> Shared:
    """What so many processes share."""
    salt = secrets.token_bytes(32)
    return Shared(cells_for(processes), memory_for(processes), ring_for(processes), salt)


def compacting_app(
    config: Config,
    options: Options,
    log: Log,
    shared: Shared | None = None,
    worker: int = 0,
    store: SQLiteStore | None = None,
    heard: Heard | None = None,
) -> App:
    """A proxy that compacts, with a store of its own; to be made in the process that serves.

    Of several processes, `worker` is this one's number, from 1 on.
    `heard` is told of each record that is written down.
    """
    _tune()
    shared = shared or shared_by(1)
    row = max(0, worker - 1)
    store = store or SQLiteStore(store_path(), retention=Retention.from_env(), salt=shared.salt)
    deciding = Deciding(
        options.policy,
        store,
        observe=options.observe,
        shared=options.shared,
        board=Board(shared.memory, row) if options.shared else None,
        journal=Journal(shared.ring, row) if options.shared else None,
        texts=options.texts,
    )
    recording = Recording(store, heard)
    _open(store)
    compacting = Compacting(deciding, recording, options, store.provisional_salt)
    metrics = Metrics(shared.cells, row)
    watch = Watch(store, compacting.breaker.standing, observe=options.observe, worker=worker)
    spans = spans_of(os.environ)
    dashboard = Dashboard(store, around(compacting, recording, options))
    own = {
        **dashboard.routes,
        HEALTH: watch.health,
        METRICS: Scrape(metrics, watch),
        FOLDER: GivenBack(store, store.provisional_salt),
    }

    def count(record: Record) -> None:
        metrics.count(record)
        watch.note(metrics)

    told = to_all(_numbered(worker), log, count, *([spans] if spans else []))
    return App(config, compacting, own, told, spans.close if spans else None)


def _open(store: SQLiteStore) -> None:
    """Have the store ready; without it requests still pass, and it is tried again with them."""
    try:
        store.salt()
    except StoreUnavailable as error:
        _log.warning("%s Until it can be, requests go up as they came.", error)


def _numbered(worker: int) -> Log:
    def number(record: Record) -> None:
        record.worker = worker

    return number


def around(compacting: Compacting, recording: Recording, options: Options) -> ProxyStatus:
    """What the dashboard is told of a proxy."""

    def breaker() -> BreakerStatus:
        standing = compacting.breaker.standing()
        return BreakerStatus(standing.phase, standing.why)

    def calibrations() -> tuple[CalibrationStatus, ...]:
        found = sorted(recording.calibrations.all().items())
        return tuple(
            CalibrationStatus(*key, round(one.factor, 4), one.requests) for key, one in found
        )

    return ProxyStatus(
        version=installed(),
        policy=options.policy,
        observe=options.observe,
        breaker=breaker,
        calibrations=calibrations,
    )
