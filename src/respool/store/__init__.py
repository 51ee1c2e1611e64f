"""The store: originals, facts and records, kept on this machine and nowhere else."""

from .protocol import Store
from .record import (
    Conversation,
    EditMade,
    FetchedAgain,
    Forgotten,
    Latest,
    Lineage,
    Mode,
    Record,
    Reproduction,
    Sent,
    SentAs,
    Total,
    Usage,
)
from .settings import Retention, store_path
from .sqlite import SQLiteStore
from .unavailable import StoreUnavailable, Why

__all__ = [
    "Conversation",
    "EditMade",
    "FetchedAgain",
    "Forgotten",
    "Latest",
    "Lineage",
    "Mode",
    "Record",
    "Reproduction",
    "Retention",
    "SQLiteStore",
    "Sent",
    "SentAs",
    "Store",
    "StoreUnavailable",
    "Total",
    "Usage",
    "Why",
    "store_path",
]
