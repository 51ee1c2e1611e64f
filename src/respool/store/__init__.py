"""The store: originals, facts and request records, kept on this machine only."""

from ..pricing import Usage
from .base import (
    ANY_RECORD,
    Arm,
    ConversationSummary,
    DecisionStore,
    ForgetResult,
    OriginTotal,
    PeriodTotal,
    PriorRequests,
    RecordedEdit,
    RecordFilter,
    RefetchedResult,
    RejectedRequest,
    RequestLineage,
    RequestMode,
    RequestRecord,
    SearchHit,
    SearchResult,
    SentAs,
    SentRequest,
    Store,
    StoreUnavailable,
    UnavailableReason,
    UnitTotal,
)
from .memory import MemoryStore
from .retention import Retention, store_path
from .search_index import UnsearchablePattern
from .short_names import UnclearName, choose_name, resolve_name
from .sqlite import SQLiteStore

__all__ = [
    "ANY_RECORD",
    "Arm",
    "OriginTotal",
    "RecordFilter",
    "ConversationSummary",
    "DecisionStore",
    "MemoryStore",
    "RecordedEdit",
    "RefetchedResult",
    "ForgetResult",
    "SentRequest",
    "RequestLineage",
    "RequestMode",
    "RequestRecord",
    "RejectedRequest",
    "Retention",
    "SQLiteStore",
    "SearchHit",
    "SearchResult",
    "PriorRequests",
    "SentAs",
    "Store",
    "StoreUnavailable",
    "PeriodTotal",
    "Usage",
    "UnavailableReason",
    "UnitTotal",
    "UnclearName",
    "UnsearchablePattern",
    "choose_name",
    "resolve_name",
    "store_path",
]
