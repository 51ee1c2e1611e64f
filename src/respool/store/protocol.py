"""What a store offers, whatever keeps it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from ..facts import Facts
from .record import Conversation, EditMade, Forgotten, Record, Reproduction, Sent, Total


class Store(Protocol):
    """Originals, facts and records, shared by threads and processes.

    An owner is a salted hash of an API key; None stands for the owner of the store itself, who may
    read all of it. Whatever cannot be done raises StoreUnavailable.
    """

    def salt(self) -> bytes:
        """What API keys are to be hashed with, before anything here hears of them."""
        ...

    def keep(self, owner: str, conversation: str, originals: Mapping[str, str]) -> None:
        """Keep texts under their references; they are durable when this returns."""
        ...

    def original(self, ref: str, owner: str | None) -> str | None:
        """The text behind a reference; None if this owner has none."""
        ...

    def readable_refs(self, refs: Collection[str], owner: str | None) -> frozenset[str]:
        """Those of the references that lead to a text for this owner."""
        ...

    def originals(self, owner: str | None) -> Mapping[str, str]:
        """All that this owner may read, as `respool.expand` takes it; read when it is asked for."""
        ...

    def facts(self, conversation: str) -> Facts:
        """What is known of a conversation, by any process."""
        ...

    def add_facts(self, conversation: str, facts: Facts) -> None:
        """Write facts down for all processes; durable when this returns, the first writer wins."""
        ...

    def record(self, record: Record) -> bool:
        """Write a request down soon; never waits. False: too many wait already, and it is lost."""
        ...

    def add_rejected(self, case: Reproduction) -> None:
        """Write down a request that the provider rejected once compacted."""
        ...

    def rejected_requests(self, owner: str | None) -> list[Reproduction]:
        """Those cases, the latest first."""
        ...

    def conversations(
        self, owner: str | None, *, behind: tuple[float, int] | None = None, limit: int = 50
    ) -> list[Conversation]:
        """A page of conversations, the latest first, behind (last, id) of the page before."""
        ...

    def requests(
        self, conversation: str, owner: str | None, *, after: float = 0.0, limit: int = 1_000
    ) -> list[Record]:
        """A conversation's requests in their order, without their edits."""
        ...

    def notable(
        self,
        owner: str | None,
        *,
        since: float = 0.0,
        behind: float | None = None,
        limit: int = 100,
    ) -> list[Record]:
        """Requests that broke a prefix, failed, fell back or fetched again, the latest first."""
        ...

    def prior_requests(self, conversation: str, prefixes: Collection[str], after: int = 0) -> Sent:
        """What is recorded of the requests that ended these histories, the latest last.

        And the edits of all that were recorded after the one with this number.
        """
        ...

    def edits(self, request: str, owner: str | None) -> tuple[EditMade, ...] | None:
        """The edits of a request; None if this owner has no such request."""
        ...

    def totals(self, owner: str | None, *, since: float, until: float, step: float) -> list[Total]:
        """Sums over each stretch of so many seconds in which there were requests."""
        ...

    def forget(
        self,
        *,
        owner: str | None = None,
        conversation: str | None = None,
        before: float | None = None,
    ) -> Forgotten:
        """Delete for good all that fits; with nothing named, everything."""
        ...

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all records are written; whether they are."""
        ...

    def close(self) -> None:
        """Write what waits and let go of everything."""
        ...
