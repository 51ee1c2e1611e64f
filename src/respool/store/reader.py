"""Readers of a store for agents and commands: of an open store, or through a proxy."""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from .base import ConversationSummary, RequestRecord, SearchResult, Store
from .owned import OwnedStore
from .short_names import NameKind

_MAX_REQUESTS: Final = 100_000  # of a conversation


class RecentRequests(Struct, frozen=True):
    """The last requests of a conversation in their order, with their edits."""

    count: int = 0  # of all its requests
    latest: tuple[RequestRecord, ...] = ()


class StoreReader(Protocol):
    """Reads of a store, limited to its caller. Raises RespoolError if the store cannot be read."""

    def original(self, ref: str) -> str | None:
        """Return the text of a reference; None if there is none for this caller."""
        ...

    def names(self, kind: NameKind, beginning: str, limit: int) -> list[str]:
        """Return the first references or conversations that begin so."""
        ...

    def search(self, pattern: str, *, conversation: str | None, limit: int) -> SearchResult:
        """Return the latest originals that have all terms of a pattern."""
        ...

    def conversations(self, limit: int) -> list[ConversationSummary]:
        """Return the latest conversations."""
        ...

    def recent_requests(self, conversation: str, limit: int) -> RecentRequests:
        """Return the last requests of a conversation."""
        ...


class LocalReader:
    """Reader of an open store, as its owner or as one of its teams or keys."""

    def __init__(self, store: Store | OwnedStore) -> None:
        self._store = store

    def original(self, ref: str) -> str | None:
        """Return the text of a reference."""
        return self._store.original(ref, None)

    def names(self, kind: NameKind, beginning: str, limit: int) -> list[str]:
        """Return the first references or conversations that begin so."""
        return self._store.names(kind, beginning, limit)

    def search(self, pattern: str, *, conversation: str | None, limit: int) -> SearchResult:
        """Return the latest originals that have all terms of a pattern."""
        return self._store.search(pattern, None, conversation=conversation, limit=limit)

    def conversations(self, limit: int) -> list[ConversationSummary]:
        """Return the latest conversations."""
        return self._store.conversations(None, limit=limit)

    def recent_requests(self, conversation: str, limit: int) -> RecentRequests:
        """Return the last requests of a conversation."""
        every = self._store.requests(conversation, None, limit=_MAX_REQUESTS)
        latest = every[-limit:]
        edited = (replace(one, edits=self._store.edits(one.id, None) or ()) for one in latest)
        return RecentRequests(len(every), tuple(edited))
