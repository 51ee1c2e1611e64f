"""The store: originals, facts and request records, kept on this machine only."""

from .base import (
    ConversationSummary,
    ForgetResult,
    ParentRequest,
    PeriodTotal,
    PriorRequests,
    RecordedEdit,
    RefetchedResult,
    RejectedRequest,
    RequestLineage,
    RequestMode,
    RequestRecord,
    SentAs,
    Store,
    StoreUnavailable,
    UnavailableReason,
)
from .retention import Retention, store_path
from .sqlite import SQLiteStore

__all__ = [
    "ConversationSummary",
    "RecordedEdit",
    "RefetchedResult",
    "ForgetResult",
    "ParentRequest",
    "RequestLineage",
    "RequestMode",
    "RequestRecord",
    "RejectedRequest",
    "Retention",
    "SQLiteStore",
    "PriorRequests",
    "SentAs",
    "Store",
    "StoreUnavailable",
    "PeriodTotal",
    "UnavailableReason",
    "store_path",
]
