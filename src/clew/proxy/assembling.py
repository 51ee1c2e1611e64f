"""The proxy put together: forwarding, compaction, and the store behind it."""

from __future__ import annotations

from ..store import Retention, SQLiteStore, store_path
from .app import App
from .compacting import Compacting
from .config import Config
from .deciding import Deciding
from .options import Options
from .record import Log
from .recording import Heard, Recording


def compacting_app(config: Config, options: Options, log: Log, heard: Heard | None = None) -> App:
    """A proxy that compacts, with a store of its own; to be made in the process that serves.

    `heard` is told of each record that is written down.
    """
    store = SQLiteStore(store_path(), retention=Retention.from_env())
    deciding = Deciding(options.policy, store, observe=options.observe, shared=options.shared)
    return App(
        config, Compacting(deciding, Recording(store, heard), options, store.salt()), log=log
    )
