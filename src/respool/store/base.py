"""Store protocol, the values it exchanges, and the error of an unavailable store."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from ..errors import RespoolError
from ..facts import Facts

UnavailableReason = Literal[
    "busy",
    "full",
    "read-only",
    "missing",
    "broken",
    "newer",
    "foreign",
    "former",
    "closed",
    "failing",
]

_REASON_TEXTS: dict[UnavailableReason, str] = {
    "busy": "another process has held it locked for too long",
    "full": "there is no space left for it",
    "read-only": "it cannot be written to",
    "missing": "there is no such file, or it cannot be opened",
    "broken": "it is damaged",
    "newer": "a newer version of respool has written it; update respool, or set RESPOOL_STORE to "
    "another",
    "foreign": "it is another program's file, not respool's; set RESPOOL_STORE to another file",
    "former": "it was written by clew, respool's former name. Nothing was released under that name, "
    "so respool does not read it: delete or move the file, or set RESPOOL_STORE to another path",
    "closed": "it was closed",
    "failing": "it cannot be read or written",
}
_REASON_BY_CODE: dict[int, UnavailableReason] = {
    sqlite3.SQLITE_BUSY: "busy",
    sqlite3.SQLITE_LOCKED: "busy",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_READONLY: "read-only",
    sqlite3.SQLITE_PERM: "read-only",
    sqlite3.SQLITE_CANTOPEN: "missing",
    sqlite3.SQLITE_CORRUPT: "broken",
    sqlite3.SQLITE_NOTADB: "broken",
}
_REASON_BY_ERRNO: dict[int, UnavailableReason] = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EROFS: "read-only",
    errno.EACCES: "read-only",
    errno.EPERM: "read-only",
}
_SCHEMA_ERRORS = ("no such table", "no such column")  # the schema is not the one that was made


class StoreUnavailable(RespoolError):
    """The store cannot do this now; nothing that was asked for counts as kept."""

    def __init__(self, path: Path, reason: UnavailableReason, detail: str = "") -> None:
        self.path = path
        self.reason: UnavailableReason = reason
        self.detail = detail
        super().__init__(path, reason, detail)

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"The store {self.path} cannot be used: {_REASON_TEXTS[self.reason]}{detail}."


def classify_error(error: sqlite3.Error) -> UnavailableReason:
    """What an error of SQLite's means for whoever asked."""
    code: int = getattr(error, "sqlite_errorcode", 0)  # the driver's own errors have none
    if code == sqlite3.SQLITE_READONLY_DBMOVED:
        return "missing"
    if any(said in str(error) for said in _SCHEMA_ERRORS):
        return "broken"
    if code == 0 and isinstance(error, sqlite3.ProgrammingError):
        return "closed"
    return _REASON_BY_CODE.get(code & 0xFF, "failing")


def to_unavailable(path: Path, error: sqlite3.Error | OSError) -> StoreUnavailable:
    """The error that a caller sees for one of SQLite's or of the system's."""
    if isinstance(error, OSError):
        why = _REASON_BY_ERRNO.get(error.errno or 0, "missing")
        return StoreUnavailable(path, why, error.strerror or str(error))
    return StoreUnavailable(path, classify_error(error), str(error))


RequestMode = Literal["compacted", "observed", "bypassed"]
SentAs = Literal["nothing", "projection", "original"]


class StoredUsage(Struct, frozen=True, gc=False):
    """The tokens that the provider reported."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0


class RecordedEdit(Struct, frozen=True, gc=False):
    """One edit that was in force."""

    reason: str
    place: str
    evidence: str = ""
    saved: int = 0
    ref: str = ""  # of what stood there before; empty where nothing is kept
    after: str = ""  # of what stands there now, if that is kept too


class RefetchedResult(Struct, frozen=True, gc=False):
    """A result that brings again what had been taken out of an earlier one."""

    tool: str
    target: str  # what was read or run again
    reason: str  # of the edit that had taken it out
    place: str
    earlier: str  # the place of the result that was cut
    tokens: int = 0


class RequestRecord(Struct, frozen=True, kw_only=True):
    """One request that went through: figures and reasons, and of the history names at most."""

    id: str
    time: float
    owner: str  # a salted hash of the API key, never the key
    conversation: str
    session: str = ""  # the client's own name for what this belongs to; it only groups
    format: str
    model: str = ""
    mode: RequestMode = "compacted"
    status: int = 0  # of the provider's answer; 0: none came
    tokens_before: int = 0
    tokens_after: int = 0
    saved: int = 0
    counted: bool = False  # tokens are exact; else they are estimated
    usage: StoredUsage | None = None
    cost_before: float | None = None
    cost_after: float | None = None  # of one that was observed: what it would have been, about
    cost_uncached: float | None = None  # what this very request would have cost without a cache
    epochs: int = 0  # so far in this conversation
    prefix_break: str = ""  # why the provider's cache could not be read on; empty: it could
    fallback: str = ""  # why something else than the projection was sent; empty: it was sent
    again: str = ""  # why it was sent a second time, in a word; empty: it was not
    milliseconds: float = 0.0  # that respool took
    repairs: tuple[str, ...] = ()
    failures: dict[str, str] = {}
    refetched: tuple[RefetchedResult, ...] = ()  # what came again with this request
    loops: tuple[str, ...] = ()  # the circles that showed with this request, a sentence or two each
    edits: tuple[RecordedEdit, ...] = ()
    edited: int = 0  # how many edits were in force; lists of requests come without the edits
    made: int = 0  # how many of them no request of the conversation had before
    terms: str = ""  # the model and the tools that it named, in few characters
    sent_as: SentAs = "projection"
    prefix: str = ""  # the hash of the history that it ended; empty: the provider did not take it
    parent: str = ""  # and of that which the request before it ended; empty: there was none
    # What it rests on and was not written down yet: it is, in one commit with this. None is read.
    facts: Facts = Facts()


class ParentRequest(Struct, frozen=True, gc=False):
    """What a request must know of the one that it goes on from."""

    time: float = 0.0  # when it was sent; 0: not known
    terms: str = ""  # the model and the tools that it named
    sent_as: SentAs = "nothing"
    size: int = 0  # its tokens as it came, about
    epochs: int = 0  # how often edits had been put in force
    output: int = 0  # tokens of output that it asked for; 0: not known, and no record tells


class RequestLineage(Struct, frozen=True, gc=False):
    """Where a request stands in its conversation, by the hashes of histories."""

    id: str
    prefix: str  # that it ended; empty: the provider did not take it
    parent: str  # that it goes on from; empty: there is none, or it was not written down


class PriorRequests(Struct, frozen=True):
    """What is recorded of the requests of a conversation that ended certain histories."""

    latest: tuple[tuple[str, ParentRequest], ...] = ()  # the hash of that history, and the request
    edited: bool = False  # projections were sent in it that say less than the client holds
    edits: tuple[
        RecordedEdit, ...
    ] = ()  # edits that are recorded of it, since the record asked for
    last_id: int = 0  # the last record that had some


class ConversationSummary(Struct, frozen=True, kw_only=True):
    """What is known of one conversation."""

    id: int
    name: str
    owner: str
    session: str
    started: float
    last: float
    requests: int
    tokens_before: int
    tokens_after: int
    saved: int
    cost_before: float
    cost_after: float
    model: str  # of its last request
    format: str
    observed: int = 0  # requests that were measured and not changed
    errors: int = 0
    fallbacks: int = 0
    prefix_breaks: int = 0
    refetched: int = 0
    loops: int = 0


class PeriodTotal(Struct, frozen=True, kw_only=True, gc=False):
    """All requests of one stretch of time."""

    start: float
    requests: int
    tokens_before: int
    tokens_after: int
    saved: int
    input: int
    cache_read: int
    cache_write: int
    output: int
    cost_before: float
    cost_after: float
    errors: int  # answers with status 400 and above, or none
    fallbacks: int
    prefix_breaks: int
    cost_uncached: float = 0.0
    refetched: int = 0
    loops: int = 0
    observed: int = 0  # requests that were measured and not changed
    would_saved: int = 0  # tokens of `saved` that only would have been: they were observed
    would_cost: float = 0.0  # the same of cost_before - cost_after
    unpriced: int = 0  # requests that were answered, and whose cost is not known


class RejectedRequest(Struct, frozen=True, kw_only=True):
    """A request that the provider rejected once compacted: all that is needed to see it again."""

    time: float
    owner: str
    conversation: str
    format: str
    model: str = ""  # where the request itself does not name it
    status: int
    request: bytes  # as the client sent it; empty if it was too large to keep
    sent: bytes = b""  # its projection; empty if that was too large
    policy: str = ""  # its settings that are not the usual ones, as JSON
    facts: str = ""  # that held, as JSON
    error: str = ""  # what the provider said
    version: str = ""  # of respool


class ForgetResult(Struct, frozen=True):
    """What `forget` deleted."""

    conversations: int
    originals: int
    requests: int
    erased: bool  # its bytes are out of the file; else a reader still holds on to the old ones


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

    def record(self, record: RequestRecord) -> bool:
        """Write a request down soon; never waits. False: too many wait already, and it is lost."""
        ...

    def add_rejected(self, case: RejectedRequest) -> None:
        """Write down a request that the provider rejected once compacted."""
        ...

    def rejected_requests(self, owner: str | None) -> list[RejectedRequest]:
        """Those cases, the latest first."""
        ...

    def conversations(
        self, owner: str | None, *, behind: tuple[float, int] | None = None, limit: int = 50
    ) -> list[ConversationSummary]:
        """A page of conversations, the latest first, behind (last, id) of the page before."""
        ...

    def requests(
        self, conversation: str, owner: str | None, *, after: float = 0.0, limit: int = 1_000
    ) -> list[RequestRecord]:
        """A conversation's requests in their order, without their edits."""
        ...

    def notable(
        self,
        owner: str | None,
        *,
        since: float = 0.0,
        behind: float | None = None,
        limit: int = 100,
    ) -> list[RequestRecord]:
        """Requests that broke a prefix, failed, fell back or fetched again, the latest first."""
        ...

    def prior_requests(
        self, conversation: str, prefixes: Collection[str], after: int = 0
    ) -> PriorRequests:
        """What is recorded of the requests that ended these histories, the latest last.

        And the edits of all that were recorded after the one with this number.
        """
        ...

    def edits(self, request: str, owner: str | None) -> tuple[RecordedEdit, ...] | None:
        """The edits of a request; None if this owner has no such request."""
        ...

    def totals(
        self, owner: str | None, *, since: float, until: float, step: float
    ) -> list[PeriodTotal]:
        """Sums over each stretch of so many seconds in which there were requests."""
        ...

    def forget(
        self,
        *,
        owner: str | None = None,
        conversation: str | None = None,
        before: float | None = None,
    ) -> ForgetResult:
        """Delete for good all that fits; with nothing named, everything."""
        ...

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all records are written; whether they are."""
        ...

    def close(self) -> None:
        """Write what waits and let go of everything."""
        ...
