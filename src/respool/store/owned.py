"""The store as one owner sees it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path

from msgspec.structs import replace

from ..history.repeat_rates import RepeatCell
from .base import (
    ANY_RECORD,
    ConversationSummary,
    KeepAliveTotal,
    OriginTotal,
    PeriodTotal,
    RecordedBill,
    RecordedEdit,
    RecordFilter,
    RejectedRequest,
    RequestLineage,
    RequestRecord,
    SearchResult,
    UnavailableReason,
    UnitTotal,
)
from .short_names import NameKind
from .sql_store import SQLStore


class OwnedStore:
    """Reads of a store for one owner, under the names of the store's own methods.

    The owner that a caller names is ignored. Methods that are missing here cannot be called: a new
    one of the store shows nothing until it is added.
    """

    location = Path()  # not shown to an owner
    dropped = 0

    def __init__(self, store: SQLStore, owner: str) -> None:
        self._store, self._owner = store, owner

    def last_error(self) -> UnavailableReason | None:
        """Return why the store cannot be used now; None: it can."""
        return self._store.last_error()

    def size(self) -> int:
        """Return 0: the size of the store depends on all owners."""
        return 0

    def quarantined_files(self) -> list[Path]:
        """Return nothing: damaged files hold originals of all owners."""
        return []

    def original(self, ref: str, _owner: str | None = None) -> str | None:
        """Return the text of a reference; None if this owner may not read it."""
        return self._store.original(ref, self._owner)

    def originals(self, _owner: str | None = None) -> Mapping[str, str]:
        """Lazy mapping of all that this owner may read."""
        return self._store.originals(self._owner)

    def readable_refs(self, refs: Collection[str], _owner: str | None = None) -> frozenset[str]:
        """Return the references that this owner can read."""
        return self._store.readable_refs(refs, self._owner)

    def names(
        self, kind: NameKind, beginning: str, limit: int, _owner: str | None = None
    ) -> list[str]:
        """Return the first names that begin so."""
        return self._store.names(kind, beginning, limit, self._owner)

    def search(
        self,
        pattern: str,
        _owner: str | None = None,
        *,
        conversation: str | None = None,
        limit: int = 20,
    ) -> SearchResult:
        """Return the originals that have all terms of a pattern."""
        return self._store.search(pattern, self._owner, conversation=conversation, limit=limit)

    def keep_alive_total(
        self, _owner: str | None = None, *, since: float, until: float
    ) -> KeepAliveTotal:
        """Return the sums of keep-alive events in a period."""
        return self._store.keep_alive_total(self._owner, since=since, until=until)

    def bill(self, _owner: str | None = None, *, since: float, until: float) -> RecordedBill:
        """Return what requests cost besides their work."""
        return self._store.bill(self._owner, since=since, until=until)

    def rejected_requests(self, _owner: str | None = None) -> list[RejectedRequest]:
        """Return the rejected requests, the latest first."""
        return self._store.rejected_requests(self._owner)

    def conversations(
        self,
        _owner: str | None = None,
        *,
        behind: tuple[float, int] | None = None,
        limit: int = 50,
        only: RecordFilter = ANY_RECORD,
    ) -> list[ConversationSummary]:
        """Return a page of conversations, the latest first.

        Their ids are masked: those of the store count everybody's conversations.
        """
        if behind is not None:
            behind = behind[0], self._masked(behind[1], behind[0])
        found = self._store.conversations(self._owner, behind=behind, limit=limit, only=only)
        return [replace(one, id=self._masked(one.id, one.last)) for one in found]

    def _masked(self, id: int, last: float) -> int:
        """A row's id with the bits of a keyed hash flipped; the same call gives the id back."""
        data = f"{self._owner} {last!r}".encode()
        digest = hashlib.blake2b(data, digest_size=8, key=self._store.salt()[:64]).digest()
        return id ^ (int.from_bytes(digest) >> 1)

    def set_pinned(self, conversation: str, pinned: bool, _owner: str | None = None) -> bool:
        """Pin or unpin a conversation; False if this owner has none of that name."""
        return self._store.set_pinned(conversation, pinned, self._owner)

    def requests(
        self,
        conversation: str,
        _owner: str | None = None,
        *,
        after: float = 0.0,
        limit: int = 1_000,
    ) -> list[RequestRecord]:
        """Return a conversation's requests in order, without their edits."""
        return self._store.requests(conversation, self._owner, after=after, limit=limit)

    def lineage(self, conversation: str, _owner: str | None = None) -> list[RequestLineage]:
        """Return the lineage of each request of a conversation, in order."""
        return self._store.lineage(conversation, self._owner)

    def records(
        self,
        _owner: str | None = None,
        *,
        only: RecordFilter = ANY_RECORD,
        limit: int = 1_000,
    ) -> list[RequestRecord]:
        """Return the latest requests that meet a filter, the latest first."""
        return self._store.records(self._owner, only=only, limit=limit)

    def notable(
        self,
        _owner: str | None = None,
        *,
        since: float = 0.0,
        behind: float | None = None,
        limit: int = 100,
        only: RecordFilter = ANY_RECORD,
    ) -> list[RequestRecord]:
        """Return requests with a prefix break, failure, fallback or refetch, the latest first."""
        return self._store.notable(self._owner, since=since, behind=behind, limit=limit, only=only)

    def edits(self, request: str, _owner: str | None = None) -> tuple[RecordedEdit, ...] | None:
        """Return the edits of a request; None if this owner has no such request."""
        return self._store.edits(request, self._owner)

    def totals(
        self,
        _owner: str | None = None,
        *,
        since: float,
        until: float,
        step: float,
        only: RecordFilter = ANY_RECORD,
    ) -> list[PeriodTotal]:
        """Return sums per period of `step` seconds."""
        return self._store.totals(self._owner, since=since, until=until, step=step, only=only)

    def totals_by_origin(
        self,
        _owner: str | None = None,
        *,
        since: float,
        until: float,
        only: RecordFilter = ANY_RECORD,
    ) -> list[OriginTotal]:
        """Return sums per agent, project and model."""
        return self._store.totals_by_origin(self._owner, since=since, until=until, only=only)

    def holdout_units(self, _owner: str | None = None, *, since: float = 0.0) -> list[UnitTotal]:
        """Return the totals of each unit of a holdout since a time, by arm."""
        return self._store.holdout_units(self._owner, since=since)

    def repeats(self, _owner: str | None = None, *, since: float = 0.0) -> tuple[RepeatCell, ...]:
        """Return the results sent in compacted requests, and those requested again."""
        return self._store.repeats(self._owner, since=since)
