"""The proxy put together: forwarding, compaction, and the store behind it."""

from __future__ import annotations

import gc
import sys

from ..store import Retention, SQLiteStore, store_path
from .app import App
from .compacting import Compacting
from .config import Config
from .deciding import Deciding
from .options import Options
from .record import Log
from .recording import Recording


def _tune() -> None:
    """Have the event loop wait for no other thread for long, and for the collector seldom.

    The loop gives way at every system call, and gets its turn back after the switch interval when
    another thread computes. What is remembered of histories is large and holds no cycles.
    """
    sys.setswitchinterval(0.0005)
    gc.set_threshold(20_000, 20, 50)


def compacting_app(config: Config, options: Options, log: Log) -> App:
    """A proxy that compacts, with a store of its own; to be made in the process that serves."""
    _tune()
    store = SQLiteStore(store_path(), retention=Retention.from_env())
    deciding = Deciding(options.policy, store, observe=options.observe, shared=options.shared)
    return App(config, Compacting(deciding, Recording(store), options, store.salt()), log=log)
