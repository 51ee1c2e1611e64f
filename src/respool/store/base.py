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
from ..history.repeat_rates import RepeatCell
from ..pricing import Usage
from .location import ServerAddress, StoreLocation
from .short_names import NameKind

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
    "unreachable",
    "refused",
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
    "former": "it was written by clew, respool's former name. Nothing was released under that "
    "name, so respool does not read it: delete or move the file, or set RESPOOL_STORE to another "
    "path",
    "closed": "it was closed",
    "failing": "it cannot be read or written",
    "unreachable": "the server cannot be reached",
    "refused": "the server refuses it; check the user, the password and what the user may do",
}
_SERVER_TEXTS: dict[UnavailableReason, str] = {
    "busy": "it did not answer in time, or another process has locked it for too long",
    "missing": "there is no such database, or nothing of respool is in it yet",
    "broken": "its tables are not those that respool made",
    "newer": "a newer version of respool has written it; update respool",
    "foreign": "its schema respool is another program's",
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
    """The store is unavailable; the operation had no effect."""

    def __init__(
        self, location: StoreLocation, reason: UnavailableReason, detail: str = ""
    ) -> None:
        self.location = location
        self.reason: UnavailableReason = reason
        self.detail = detail
        super().__init__(location, reason, detail)

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"The store {self.location} cannot be used: {self.why()}{detail}."

    def why(self) -> str:
        """The reason in words, without the store's place, which is no affair of its teams."""
        text = _REASON_TEXTS[self.reason]
        if isinstance(self.location, ServerAddress):
            text = _SERVER_TEXTS.get(self.reason, text)
        return text


def classify_error(error: sqlite3.Error) -> UnavailableReason:
    """Map an SQLite error to the reason that callers see."""
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
Arm = Literal["", "compacted", "held-out", "a", "b"]  # of a holdout; a and b are both compacted


class RecordedEdit(Struct, frozen=True, gc=False):
    """One edit that was in force."""

    reason: str
    place: str
    evidence: str = ""
    saved: int = 0
    ref: str = ""  # reference of the replaced text; empty if it is not kept
    after: str = ""  # reference of the new text; empty if it is not kept
    tool: str = ""  # the call whose result or arguments it changed; empty: none
    target: str = ""  # of the call: a path or a command


class RefetchedResult(Struct, frozen=True, gc=False):
    """A result that repeats content elided from an earlier one."""

    tool: str
    target: str  # the path or command
    reason: str  # of the edit that elided it
    place: str
    earlier: str  # place of the result that was cut
    tokens: int = 0


class RequestRecord(Struct, frozen=True, kw_only=True):
    """One proxied request: figures, reasons and names, and the first prompt of the history."""

    id: str
    time: float
    owner: str  # a salted hash of the API key, never the key
    conversation: str  # empty: the request was not understood, and counts for a quota only
    session: str = ""  # the client's own session id; used for grouping only
    format: str
    model: str = ""
    agent: str = ""  # the client's name; empty: unknown
    project: str = ""  # the folder that it works in; empty: unknown
    prompt: str = ""  # the first prompt, shortened; kept once per conversation
    mode: RequestMode = "compacted"
    status: int = 0  # HTTP status of the response; 0: no response
    tokens_before: int = 0
    tokens_after: int = 0
    saved: int = 0
    counted: bool = False  # True: tokens are exact; False: estimated
    usage: Usage | None = None
    cost_before: float | None = None
    cost_after: float | None = None  # of an observed request: estimated
    cost_uncached: float | None = None  # cost of this request without a prompt cache
    epochs: int = 0  # in this conversation until now
    prefix_break: str = ""  # cause of a prefix break; empty: none
    fallback: str = ""  # cause if the projection was not sent; else empty
    again: str = ""  # cause of a retry, in one word; empty: no retry
    milliseconds: float = 0.0  # spent in respool
    repairs: tuple[str, ...] = ()
    failures: dict[str, str] = {}
    refetched: tuple[RefetchedResult, ...] = ()  # in this request
    loops: tuple[str, ...] = ()  # loops detected at this request, one or two sentences each
    edits: tuple[RecordedEdit, ...] = ()
    edited: int = 0  # edits in force; request lists omit the edits themselves
    made: int = 0  # edits that are new in this conversation
    waiting_offers: int = 0  # offers that wait until they pay
    waiting_tokens: int = 0  # tokens that those would save
    error: str = ""  # why there was no response, or why it was cut off
    terms: str = ""  # hash of the model and the tools
    sent_as: SentAs = "projection"
    prefix: str = ""  # hash of its history; empty: the provider rejected it
    parent: str = ""  # hash of the parent request's history; empty: no parent
    head_cost: float | None = None  # dollars for the system prompt and the tool definitions
    expired: int = 0  # tokens written again because the cache had gone cold
    expired_cost: float | None = None  # dollars for that, beyond reading them
    missed: int = 0  # tokens that a warm cache did not find
    missed_cost: float | None = None
    arm: Arm = ""  # of a holdout; empty: it took no part
    unit: str = ""  # that was drawn for the holdout: a session or a conversation
    repeats: tuple[RepeatCell, ...] = ()  # results sent, cut or whole, and requested again
    # New tools, facts of this request: written in the same transaction. Records that are read have
    # none.
    tools: dict[str, int] = {}  # tokens of definitions that no earlier request had
    called: tuple[str, ...] = ()  # tools that no earlier request had called
    facts: Facts = Facts()


class SentRequest(Struct, frozen=True, gc=False):
    """The properties of a parent request that its child depends on."""

    time: float = 0.0  # time sent; 0: unknown
    terms: str = ""  # hash of the model and the tools
    sent_as: SentAs = "nothing"
    size: int = 0  # approximate tokens of the client's request
    epochs: int = 0  # epochs until then
    output: int = 0  # requested max output tokens; 0: unknown (not recorded)
    unit: str = ""  # of a holdout


class RequestLineage(Struct, frozen=True, gc=False):
    """Lineage of one request, by the hashes of histories."""

    id: str
    prefix: str  # hash of its history; empty: the provider rejected it
    parent: str  # hash of the parent's history; empty: none, or not recorded


class PriorRequests(Struct, frozen=True):
    """Recorded requests of a conversation whose histories have given hashes."""

    latest: tuple[tuple[str, SentRequest], ...] = ()  # hash of the history, and the request
    edited: bool = False  # a projection with less than the client's history was sent
    edits: tuple[RecordedEdit, ...] = ()  # edits recorded after the given record
    last_id: int = 0  # the last record with edits
    # Claims, recorded or not: hash of the history, claimant, and request.
    claims: tuple[tuple[str, str, SentRequest], ...] = ()


class ConversationSummary(Struct, frozen=True, kw_only=True):
    """Totals of one conversation."""

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
    agent: str = ""  # of its last request
    project: str = ""  # of its last request
    prompt: str = ""  # its first prompt, shortened; empty: not kept
    pinned: bool = False  # its requests are sent as they came
    observed: int = 0  # requests that were measured but not changed
    errors: int = 0
    fallbacks: int = 0
    prefix_breaks: int = 0
    refetched: int = 0
    loops: int = 0


class PeriodTotal(Struct, frozen=True, kw_only=True, gc=False):
    """Totals of all requests in one period."""

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
    errors: int  # responses with status 400 and above, or no response
    fallbacks: int
    prefix_breaks: int
    cost_uncached: float = 0.0
    refetched: int = 0
    loops: int = 0
    observed: int = 0  # requests that were measured but not changed
    would_saved: int = 0  # tokens of `saved` that belong to observed requests
    saved_low: float = 0.0  # the range of `saved`; the same where the provider has reported
    saved_high: float = 0.0
    would_low: float = 0.0
    would_high: float = 0.0
    would_cost: float = 0.0  # cost_before - cost_after of observed requests
    unpriced: int = 0  # answered requests of unknown cost


class UnitTotal(Struct, frozen=True, kw_only=True, gc=False):
    """Totals of the requests of one unit of a holdout in one arm."""

    unit: str
    arm: Arm
    requests: int
    cost: float  # paid
    unpriced: int  # answered requests of unknown cost
    errors: int  # responses with status 400 and above, or no response
    refetched: int  # results that brought again what was cut; held out: what would have been


class OriginTotal(Struct, frozen=True):
    """Totals of all requests of one agent in one project with one model."""

    agent: str
    project: str
    model: str
    total: PeriodTotal


class RecordFilter(Struct, frozen=True, kw_only=True):
    """Conditions on requests; None: any."""

    agent: str | None = None
    project: str | None = None
    model: str | None = None
    since: float | None = None
    until: float | None = None
    words: tuple[str, ...] = ()  # all in the prompt, agent, project, model or conversation's name


ANY_RECORD = RecordFilter()


class RejectedRequest(Struct, frozen=True, kw_only=True):
    """A compacted request that the provider rejected, with all that reproduces it."""

    time: float
    owner: str
    conversation: str
    format: str
    model: str = ""  # if the request does not name it
    status: int
    request: bytes  # as the client sent it; empty if too large
    sent: bytes = b""  # the projection; empty if too large
    policy: str = ""  # settings that differ from the defaults, as JSON
    facts: str = ""  # as JSON
    error: str = ""  # the provider's error
    version: str = ""  # of respool


KeepAliveKind = Literal["ping", "hit"]


class KeepAliveEvent(Struct, frozen=True, kw_only=True):
    """A keep-alive ping, or a later request that found the prefix which pings had kept."""

    time: float
    owner: str
    conversation: str
    model: str
    kind: KeepAliveKind
    status: int = 0  # HTTP status of a ping's response; 0: none
    tokens: int = 0  # of the prefix that was read
    money: float = 0.0  # dollars that a ping cost, or that a hit saved


class KeepAliveTotal(Struct, frozen=True, kw_only=True):
    """Keep-alive events of a period."""

    pings: int = 0
    paid: float = 0.0
    hits: int = 0
    saved: float = 0.0


class DefinedTool(Struct, frozen=True, kw_only=True):
    """A tool that one agent's requests defined."""

    agent: str
    name: str
    tokens: int  # of its definition
    requests: int  # of the conversations that defined it
    called: bool


class Remedies(Struct, frozen=True, kw_only=True):
    """What would have changed after pauses, with the same requests; money in dollars.

    Only requests count whose client can choose a cache lifetime, and whose prices are known.
    """

    pauses: int = 0  # of the bill's pauses, those that a remedy could help
    compacted: int = 0  # pauses after which new edits took effect
    removed: int = 0  # tokens that respool took out at these
    short_writes: int = 0  # tokens written for five minutes
    hour_found: int = 0  # expired prefixes that a lifetime of one hour would have kept
    hour_saved: float = 0.0
    hour_money: float = 0.0  # more for all other writes
    pings: int = 0  # keep-alive pings that would have been sent; 0: also if some were
    ping_money: float = 0.0
    pings_found: int = 0  # expired prefixes that they would have kept
    pings_saved: float = 0.0


class RecordedBill(Struct, frozen=True, kw_only=True):
    """What the recorded requests cost besides their work; money in dollars, where prices are known.

    The tokens are the provider's, by its reported usage.
    """

    requests: int = 0
    money: float = 0.0  # of all requests
    head_money: float = 0.0  # system prompt and tool definitions
    pauses: int = 0  # requests that came after the cache had gone cold
    expired: int = 0  # tokens that were written again after a pause
    expired_money: float = 0.0
    misses: int = 0  # requests with a warm cache that did not find their prefix
    missed: int = 0  # tokens of it
    missed_money: float = 0.0
    keep_alive: KeepAliveTotal = KeepAliveTotal()
    remedies: Remedies = Remedies()
    tools: tuple[DefinedTool, ...] = ()  # that were never called, the dearest first
    tools_known: int = 0  # defined tools, called or not


class SearchHit(Struct, frozen=True, kw_only=True):
    """An original with all terms of a pattern."""

    ref: str
    conversation: str
    time: float  # when this conversation stored it
    line: int  # of the first hit, counted from 1
    snippet: str  # what is around it
    tool: str = ""  # the call whose result or arguments it was; empty: not recorded
    target: str = ""  # of the call: a path or a command
    reason: str = ""  # of the edit that took it out
    place: str = ""  # where it was in the request


class SearchResult(Struct, frozen=True):
    """The latest hits of a search."""

    hits: tuple[SearchHit, ...] = ()
    has_more: bool = False  # the limit was reached, and more may fit
    note: str = ""  # why the search was slow


class ForgetResult(Struct, frozen=True):
    """Counts of the rows that `forget` deleted."""

    conversations: int
    originals: int
    requests: int
    erased: bool  # the bytes are out of the file; False: a reader still uses them


class DecisionStore(Protocol):
    """The part of a store that decisions on requests need."""

    def keep(self, owner: str, conversation: str, originals: Mapping[str, str]) -> None:
        """Store texts under their references; durable on return."""
        ...

    def original(self, ref: str, owner: str | None) -> str | None:
        """Return the text of a reference; None if this owner may not read it."""
        ...

    def readable_refs(self, refs: Collection[str], owner: str | None) -> frozenset[str]:
        """Return the references that this owner can read."""
        ...

    def facts(self, conversation: str) -> Facts:
        """Return the facts of a conversation, from all processes."""
        ...

    def add_facts(self, conversation: str, facts: Facts) -> None:
        """Write facts for all processes; durable on return, the first writer wins."""
        ...

    def claim(
        self, conversation: str, prefix: str, by: str, sent: SentRequest, facts: Facts
    ) -> bool:
        """Claim a history for a request that is about to be sent, and write its facts.

        All processes see it on return. False: the history is claimed by another request, and
        nothing is written.
        """
        ...

    def is_pinned(self, conversation: str) -> bool:
        """Return whether somebody asked to leave a conversation as it is."""
        ...

    def prior_requests(
        self, conversation: str, prefixes: Collection[str], after: int = 0
    ) -> PriorRequests:
        """Return the requests whose histories have these hashes, the latest last.

        Includes the edits of all records after the one with the number `after`.
        """
        ...


class Store(DecisionStore, Protocol):
    """Originals, facts and records, shared by threads and processes.

    An owner is a salted hash of an API key. None is the owner of the store itself, who may read
    everything. Every failure raises StoreUnavailable.
    """

    def salt(self) -> bytes:
        """Return the salt for hashing API keys; the store never receives a key itself."""
        ...

    def originals(self, owner: str | None) -> Mapping[str, str]:
        """Lazy mapping of all that this owner may read, for `respool.expand`."""
        ...

    def names(
        self, kind: NameKind, beginning: str, limit: int, owner: str | None = None
    ) -> list[str]:
        """Return the first references, conversations or owners that begin so."""
        ...

    def search(
        self, pattern: str, owner: str | None, *, conversation: str | None = None, limit: int = 20
    ) -> SearchResult:
        """Return the originals that have all terms of a pattern and this owner may read."""
        ...

    def record(self, record: RequestRecord) -> bool:
        """Queue a record without blocking. False: the queue is full and the record is lost."""
        ...

    def add_rejected(self, case: RejectedRequest) -> None:
        """Write a compacted request that the provider rejected."""
        ...

    def add_keep_alive(self, event: KeepAliveEvent) -> None:
        """Write a keep-alive ping, or a hit on what pings kept."""
        ...

    def keep_alive_total(self, owner: str | None, *, since: float, until: float) -> KeepAliveTotal:
        """Return the sums of keep-alive events in a period."""
        ...

    def bill(self, owner: str | None, *, since: float, until: float) -> RecordedBill:
        """Return what requests cost besides their work: head, pauses, misses, keep-alive."""
        ...

    def rejected_requests(self, owner: str | None) -> list[RejectedRequest]:
        """Return the rejected requests, the latest first."""
        ...

    def conversations(
        self,
        owner: str | None,
        *,
        behind: tuple[float, int] | None = None,
        limit: int = 50,
        only: RecordFilter = ANY_RECORD,
    ) -> list[ConversationSummary]:
        """Return a page of conversations, the latest first; `behind` is the last (last, id).

        With a filter, those with a request that meets it; the totals are of all their requests.
        """
        ...

    def set_pinned(self, conversation: str, pinned: bool, owner: str | None = None) -> bool:
        """Pin or unpin a conversation; False if this owner has none of that name."""
        ...

    def requests(
        self, conversation: str, owner: str | None, *, after: float = 0.0, limit: int = 1_000
    ) -> list[RequestRecord]:
        """Return a conversation's requests in order, without their edits."""
        ...

    def records(
        self, owner: str | None, *, only: RecordFilter = ANY_RECORD, limit: int = 1_000
    ) -> list[RequestRecord]:
        """Return the latest requests that meet a filter, the latest first, without their edits."""
        ...

    def notable(
        self,
        owner: str | None,
        *,
        since: float = 0.0,
        behind: float | None = None,
        limit: int = 100,
        only: RecordFilter = ANY_RECORD,
    ) -> list[RequestRecord]:
        """Return requests with a prefix break, failure, fallback or refetch, the latest first."""
        ...

    def edits(self, request: str, owner: str | None) -> tuple[RecordedEdit, ...] | None:
        """Return the edits of a request; None if this owner has no such request."""
        ...

    def totals(
        self,
        owner: str | None,
        *,
        since: float,
        until: float,
        step: float,
        only: RecordFilter = ANY_RECORD,
    ) -> list[PeriodTotal]:
        """Return sums per period of `step` seconds; periods without requests are omitted."""
        ...

    def totals_by_origin(
        self, owner: str | None, *, since: float, until: float, only: RecordFilter = ANY_RECORD
    ) -> list[OriginTotal]:
        """Return sums per agent, project and model."""
        ...

    def holdout_units(self, owner: str | None, *, since: float = 0.0) -> list[UnitTotal]:
        """Return the totals of each unit of a holdout since a time, by arm."""
        ...

    def repeats(self, owner: str | None, *, since: float = 0.0) -> tuple[RepeatCell, ...]:
        """Return the results sent in compacted requests since a time, and those requested again."""
        ...

    def forget(
        self,
        *,
        owner: str | None = None,
        conversation: str | None = None,
        before: float | None = None,
    ) -> ForgetResult:
        """Erase all that matches; without arguments, everything."""
        ...

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all records are written; False on timeout."""
        ...

    def close(self) -> None:
        """Write the queued records and close all connections."""
        ...
