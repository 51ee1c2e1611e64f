"""The proxy put together: forwarding, compaction, the store behind it, and the dashboard."""

from __future__ import annotations

from ..dashboard.around import Around, Breaker, Calibrated
from ..dashboard.serving import Dashboard
from ..store import Retention, SQLiteStore, store_path
from .app import App
from .compacting import Compacting
from .config import Config
from .deciding import Deciding
from .options import Options
from .record import Log
from .recording import Recording


def compacting_app(
    config: Config, options: Options, log: Log, store: SQLiteStore | None = None
) -> App:
    """A proxy that compacts, with a store of its own; to be made in the process that serves."""
    store = store or SQLiteStore(store_path(), retention=Retention.from_env())
    deciding = Deciding(options.policy, store, observe=options.observe, shared=options.shared)
    recording = Recording(store)
    compacting = Compacting(deciding, recording, options, store.salt())
    dashboard = Dashboard(store, around(compacting, recording, options))
    return App(config, compacting, dashboard.own, log)


def around(compacting: Compacting, recording: Recording, options: Options) -> Around:
    """What the dashboard is told of a proxy."""

    def breaker() -> Breaker:
        standing = compacting.breaker.standing()
        return Breaker(standing.phase, standing.why)

    def calibrations() -> tuple[Calibrated, ...]:
        found = sorted(recording.calibrations.all().items())
        return tuple(Calibrated(*key, round(one.factor, 4), one.requests) for key, one in found)

    return Around(
        policy=options.policy, observe=options.observe, breaker=breaker, calibrations=calibrations
    )
