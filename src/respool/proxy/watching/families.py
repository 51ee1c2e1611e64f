"""What is counted: every metric, its labels, and all the values that these can have.

They are all known before the first request, so that processes can share the numbers as one array,
and so that no client can make more of them.
"""

from __future__ import annotations

from itertools import product
from typing import Final, Literal

from msgspec import Struct

from ...wire.base import FORMATS
from ..compacting.compacting import REASONS

NONE: Final = "none"
OTHER: Final = "other"
_FORMATS: Final = (*FORMATS, NONE)
_STATUS: Final = ("2xx", "3xx", "4xx", "5xx", NONE)
_ENDS: Final = ("whole", "gone", "broke", "unreachable", "refused", OTHER)
_SENT: Final = ("projection", "known-edits", "original", "untouched", "observed", OTHER)
_SHORT: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_LONG: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Family(Struct, frozen=True):
    """One metric: a number for each combination of its labels' values."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()  # of each label
    bounds: tuple[float, ...] = ()  # of a histogram's buckets, but the last one's

    @property
    def series(self) -> tuple[tuple[str, ...], ...]:
        """Every combination of the labels' values; one empty one where there are no labels."""
        return tuple(product(*self.values))

    @property
    def width(self) -> int:
        """How many numbers one series has: a histogram one for each bucket, and the sum."""
        return len(self.bounds) + 2 if self.kind == "histogram" else 1


REQUESTS: Final = Family(
    "respool_requests_total",
    "counter",
    "Requests for providers, by format and status.",
    ("format", "status"),
    (_FORMATS, _STATUS),
)
ENDED: Final = Family(
    "respool_ended_total",
    "counter",
    "Requests for providers, by how they ended.",
    ("how",),
    (_ENDS,),
)
SENT: Final = Family(
    "respool_sent_total",
    "counter",
    "Requests that were looked at, by what went up.",
    ("sent",),
    (_SENT,),
)
FALLBACKS: Final = Family(
    "respool_fallbacks_total",
    "counter",
    "Requests that went up as something else than a projection.",
    ("why",),
    ((*REASONS, OTHER),),
)
AGAIN: Final = Family(
    "respool_retries_total",
    "counter",
    "Requests that were sent a second time, by why.",
    ("why",),
    (("overflow", "invalid", OTHER),),
)
BEFORE: Final = Family(
    "respool_prompt_tokens_total",
    "counter",
    "Tokens of requests as they came, about.",
    ("format",),
    (_FORMATS,),
)
SAVED: Final = Family(
    "respool_saved_tokens_total",
    "counter",
    "Tokens that did not go up, or would not have; about.",
    ("format",),
    (_FORMATS,),
)
EDITS: Final = Family("respool_edits_total", "counter", "Edits that were made.")
USAGE: Final = Family(
    "respool_usage_tokens_total",
    "counter",
    "Tokens that providers reported.",
    ("type",),
    (("input", "cache_read", "cache_write", "output"),),
)
BYTES: Final = Family(
    "respool_bytes_total", "counter", "Bytes of bodies.", ("direction",), (("up", "down"),)
)
DROPPED: Final = Family(
    "respool_records_dropped_total", "counter", "Records that were not written."
)
TOOK: Final = Family(
    "respool_compaction_seconds", "histogram", "What respool took for a request.", bounds=_SHORT
)
FIRST: Final = Family(
    "respool_first_byte_seconds", "histogram", "Until the client had the first bytes.", bounds=_LONG
)
RESTING: Final = Family("respool_breaker_open", "gauge", "Processes in which compaction rests.")
STORE: Final = Family("respool_store_usable", "gauge", "Whether the store can be read and written.")

FAMILIES: Final = (
    REQUESTS, ENDED, SENT, FALLBACKS, AGAIN, BEFORE, SAVED, EDITS, USAGE, BYTES, DROPPED, TOOK,
    FIRST, RESTING, STORE,
)  # fmt: skip
