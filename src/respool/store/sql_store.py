"""A store over an SQL database: what SQLite and PostgreSQL have in common."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import replace

from ..facts import Facts
from ..history.repeat_rates import RepeatCell
from ..markers import find_marker
from ..regex import lazy_compile
from . import bill_tables, record_tables
from . import originals as texts
from .base import (
    ANY_RECORD,
    ConversationSummary,
    ForgetResult,
    KeepAliveEvent,
    KeepAliveTotal,
    OriginTotal,
    PeriodTotal,
    PriorRequests,
    RecordedBill,
    RecordedEdit,
    RecordFilter,
    RejectedRequest,
    RequestLineage,
    RequestRecord,
    SearchHit,
    SearchResult,
    SentRequest,
    StoreUnavailable,
    UnavailableReason,
    UnitTotal,
)
from .connection import Connection, Database
from .location import StoreLocation
from .meta import read_stamp, read_stamp_and_trusted
from .originals import DamagedData, ReferenceCache
from .record_queue import RecordQueue
from .retention import (
    Retention,
    SweepClock,
    TrustedTime,
    delete_matching,
    remove_old_files,
    sweep_step,
    trust_time,
)
from .search_index import Candidates, SearchTerms, Snippet
from .short_names import NameKind, read_names
from .teams import Teams, space_of

_REFERENCE = lazy_compile(r"[a-z2-7]{20}", re.ASCII)
_CLOSE_TIMEOUT = 5.0
_STEP_INTERVAL = 0.1  # seconds between steps, so that other writers get a turn
_ROUND_INTERVAL = 600.0
_SCANNED_AT_ONCE = 100  # originals read in one query of a search
_INDEX_SECONDS = 2.0  # spent on the index at the end of a search


class TextIndex(Protocol):
    """An index that selects candidates for a search; every failure means that there is none."""

    @property
    def note(self) -> str:
        """Say why there is no index; empty: there is one."""
        ...

    def candidates(self, terms: SearchTerms, space: str | None) -> Candidates:
        """Return what the index of a team knows of these terms; None: that of all."""
        ...

    def add(self, read: Callable[[], Mapping[str, str]]) -> bool:
        """Index the texts that `read` returns; False: they are not indexed."""
        ...

    def discard_missing(self, present: Callable[[], Iterable[str]]) -> bool:
        """Take out originals that are no longer in the store; True if done."""
        ...

    def delete(self) -> None:
        """Delete the index; raises OSError if it cannot be."""
        ...


class SQLStore:
    """Originals, facts and records in a database; opened at first use, by any thread.

    Several processes may share the database, each with its own store.
    """

    is_shared = False  # other servers with this store serve the same conversations

    def __init__(
        self,
        location: StoreLocation,
        database: Database,
        index: TextIndex,
        *,
        retention: Retention,
        clock: Callable[[], float],
        elapsed: Callable[[], float],
    ) -> None:
        self.location = location
        self._retention = retention
        self._clock = clock
        self._sweep_clock = SweepClock(clock, elapsed)
        self._trusted = TrustedTime()  # by the last sweep
        self._database = database
        self._reference_cache = ReferenceCache()
        self._index = index
        self._pruned = b""  # the stamp for which the index holds no deleted original
        self._queue = RecordQueue(self._write_records, self._maintain)

    @property
    def teams(self) -> Teams:
        """The teams of this store."""
        return Teams(self._database)

    def salt(self) -> bytes:
        """Return the salt for hashing API keys; the store never receives a key itself."""
        return self._database.salt()

    def provisional_salt(self) -> bytes:
        """Return the salt without opening the file; until it is open, that of a new file."""
        return self._database.provisional_salt()

    def keep(self, owner: str, conversation: str, originals: Mapping[str, str]) -> None:
        """Store texts under their references; durable on return."""
        if not originals:
            return
        originals = {texts.row_of(ref, owner): text for ref, text in originals.items()}
        key, refs = (owner, conversation), originals.keys()
        stamp, trusted = self._database.read(read_stamp_and_trusted)
        stamp, now = self._with_opening(stamp), max(self._clock(), trusted)
        if self._reference_cache.has_all(key, stamp, refs, now - texts.STALE_SECONDS):
            return
        lacking = self._database.read(
            lambda c: texts.find_missing(c, owner=owner, name=conversation, refs=refs, time=now)
        )
        if lacking.refs:
            stamp = self._keep(owner, conversation, originals, lacking=lacking, now=now)
        self._reference_cache.add(key, stamp, refs, now if lacking.refs else lacking.last_used)

    def _keep(
        self,
        owner: str,
        conversation: str,
        originals: Mapping[str, str],
        *,
        lacking: texts.MissingOriginals,
        now: float,
    ) -> bytes:
        """Write the missing originals of a conversation and return the file's stamp."""
        ready = {ref: texts.pack_original(ref, originals[ref]) for ref in lacking.unstored}
        wanted = {ref: originals[ref] for ref in lacking.refs}

        def work(c: Connection) -> bytes:
            row = texts.ensure_conversation(c, owner, conversation, time=now)
            texts.keep_originals(c, row, texts=wanted, ready=ready, time=now)
            return self._stamp(c)

        return self._database.write(work)

    def _stamp(self, c: Connection) -> bytes:
        """Return a value that changes when rows are deleted or the file is opened anew."""
        return self._with_opening(read_stamp(c))

    def _with_opening(self, stamp: bytes) -> bytes:
        return self._database.openings.to_bytes(8) + stamp

    def original(self, ref: str, owner: str | None) -> str | None:
        """Return the text of a reference; None if this owner may not read it."""
        if not _REFERENCE.fullmatch(ref):
            return None
        row = "" if owner is None else texts.row_of(ref, owner)
        row = row or self._database.read(lambda c: texts.find_row(c, ref, None))
        try:
            return self._database.read(lambda c: texts.read_original(c, row, owner))
        except DamagedData:
            self._database.erase(lambda c: texts.discard_original(c, row))
            return None

    def readable_refs(self, refs: Collection[str], owner: str | None) -> frozenset[str]:
        """Return the references that this owner can read."""
        asked = [ref for ref in refs if _REFERENCE.fullmatch(ref)]
        return self._database.read(lambda c: texts.find_readable(c, asked, owner))

    def originals(self, owner: str | None) -> Mapping[str, str]:
        """Lazy mapping of all that this owner may read, for `respool.expand`."""
        return _OriginalMapping(self, owner)

    def refs(self, owner: str | None) -> list[str]:
        """Return every reference that this owner can read."""
        rows = self._database.read(lambda c: texts.readable_refs(c, owner))
        return sorted({texts.ref_of(row) for row in rows})

    def names(
        self, kind: NameKind, beginning: str, limit: int, owner: str | None = None
    ) -> list[str]:
        """Return the first references, conversations or owners that begin so."""
        return self._database.read(lambda c: read_names(c, kind, beginning, limit, owner))

    def search(
        self, pattern: str, owner: str | None, *, conversation: str | None = None, limit: int = 20
    ) -> SearchResult:
        """Return the originals that have all terms of a pattern and this owner may read.

        The latest come first. A shortened text is left out if its original fits too.
        """
        terms = SearchTerms(pattern)
        kept = self._database.read(lambda c: texts.kept_originals(c, owner, conversation))
        known = self._index.candidates(terms, None if owner is None else space_of(owner))
        found: list[tuple[texts.KeptOriginal, Snippet]] = []
        for one, text in self._read_in_order(
            [one for one in kept if known.can_fit(one.ref)], owner
        ):
            snippet = terms.find(text)
            if snippet is not None and not self._has_fitting_original(text, terms, owner):
                found.append((one, snippet))
                if len(found) > limit:
                    break
        self._extend_index([one.ref for one in reversed(kept) if one.ref not in known.indexed])
        hits = self._with_sources(found[:limit], owner)
        return SearchResult(hits, len(found) > limit, self._index.note)

    def _read_in_order(
        self, kept: Sequence[texts.KeptOriginal], owner: str | None
    ) -> Iterator[tuple[texts.KeptOriginal, str]]:
        for at in range(0, len(kept), _SCANNED_AT_ONCE):
            some = kept[at : at + _SCANNED_AT_ONCE]
            held = self._read_texts([one.ref for one in some], owner)
            yield from ((one, held[one.ref]) for one in some if one.ref in held)

    def _read_texts(self, refs: Sequence[str], owner: str | None) -> dict[str, str]:
        return self._database.read(lambda c: texts.read_originals(c, refs, owner))

    def _has_fitting_original(self, text: str, terms: SearchTerms, owner: str | None) -> bool:
        """Check if the marker in a text leads to another one that fits."""
        marker = find_marker(text)
        original = None if marker is None else self.original(marker.ref, owner)
        return original is not None and terms.find(original) is not None

    def _with_sources(
        self, found: Sequence[tuple[texts.KeptOriginal, Snippet]], owner: str | None
    ) -> tuple[SearchHit, ...]:
        """Return the hits with what the records say of them."""
        sources: dict[str, dict[str, RecordedEdit]] = {}
        nothing = RecordedEdit("", "")
        hits: list[SearchHit] = []
        for kept, snippet in found:
            name = kept.conversation
            if name not in sources:
                sources[name] = self._database.read(
                    lambda c, name=name: record_tables.read_sources(c, name, owner)
                )
            ref = texts.ref_of(kept.ref)
            edit = sources[name].get(ref, nothing)
            hits.append(
                SearchHit(
                    ref=ref,
                    conversation=name,
                    time=kept.time,
                    line=snippet.line,
                    snippet=snippet.text,
                    tool=edit.tool,
                    target=edit.target,
                    reason=edit.reason,
                    place=edit.place,
                )
            )
        return tuple(hits)

    def _extend_index(self, refs: Sequence[str]) -> None:
        """Index some originals, for the next search."""
        until = time.monotonic() + _INDEX_SECONDS
        with contextlib.suppress(StoreUnavailable):
            for at in range(0, len(refs), _SCANNED_AT_ONCE):
                some = refs[at : at + _SCANNED_AT_ONCE]
                is_done = self._index.add(lambda some=some: self._read_texts(some, None))
                if not is_done or time.monotonic() > until:
                    break

    def facts(self, conversation: str) -> Facts:
        """Return the facts of a conversation, from all processes."""
        return self._database.read(lambda c: record_tables.read_facts(c, conversation))

    def add_facts(self, conversation: str, facts: Facts) -> None:
        """Write facts for all processes; durable on return, the first writer wins."""
        new = record_tables.new_fact_rows(facts, self.facts(conversation))
        if new:
            now = self._clock()
            self._database.write(lambda c: record_tables.write_facts(c, conversation, new, now))

    def claim(
        self, conversation: str, prefix: str, by: str, sent: SentRequest, facts: Facts
    ) -> bool:
        """Claim a history for a request that is about to be sent, and write its facts."""
        new = record_tables.new_fact_rows(facts, Facts())
        now = self._clock()
        return self._database.write(
            lambda c: record_tables.write_claim(
                c, conversation, prefix, by=by, sent=sent, facts=new, time=now
            ),
            synced=bool(new),  # of a claim alone, no more is lost than the servers beside it
        )

    def record(self, record: RequestRecord) -> bool:
        """Queue a record without blocking. False: the queue is full and the record is lost."""
        return self._queue.record(record)

    @property
    def dropped(self) -> int:
        """Number of records lost to a full queue or a failed write."""
        return self._queue.dropped

    def add_rejected(self, case: RejectedRequest) -> None:
        """Write a compacted request that the provider rejected."""
        small = record_tables.bound_rejected(case)
        body = msgspec.json.encode(small)
        self._database.write(lambda c: record_tables.write_rejected(c, small, body))

    def add_keep_alive(self, event: KeepAliveEvent) -> None:
        """Write a keep-alive ping, or a hit on what pings kept."""
        self._database.write(lambda c: bill_tables.write_event(c, event))

    def keep_alive_total(self, owner: str | None, *, since: float, until: float) -> KeepAliveTotal:
        """Return the sums of keep-alive events in a period."""
        return self._database.read(lambda c: bill_tables.read_keep_alive(c, owner, since, until))

    def bill(self, owner: str | None, *, since: float, until: float) -> RecordedBill:
        """Return what requests cost besides their work: head, pauses, misses, keep-alive."""
        now = self._clock()
        return self._database.read(
            lambda c: bill_tables.read_bill(c, owner, since=since, until=until, now=now)
        )

    def rejected_requests(self, owner: str | None) -> list[RejectedRequest]:
        """Return the rejected requests, the latest first."""
        return self._database.read(lambda c: record_tables.read_rejected(c, owner))

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
        return self._database.read(
            lambda c: record_tables.read_conversations(
                c, owner, behind=behind, limit=limit, only=only
            )
        )

    def set_pinned(self, conversation: str, pinned: bool, owner: str | None = None) -> bool:
        """Pin or unpin a conversation; False if this owner has none of that name."""
        return self._database.write(
            lambda c: record_tables.write_pinned(c, conversation, pinned, owner)
        )

    def is_pinned(self, conversation: str) -> bool:
        """Return whether a conversation is pinned."""
        return self._database.read(lambda c: record_tables.read_pinned(c, conversation))

    def records(
        self, owner: str | None, *, only: RecordFilter = ANY_RECORD, limit: int = 1_000
    ) -> list[RequestRecord]:
        """Return the latest requests that meet a filter, the latest first, without their edits."""
        return self._database.read(
            lambda c: record_tables.read_records(c, owner, only=only, limit=limit)
        )

    def requests(
        self, conversation: str, owner: str | None, *, after: float = 0.0, limit: int = 1_000
    ) -> list[RequestRecord]:
        """Return a conversation's requests in order, without their edits."""
        return self._database.read(
            lambda c: record_tables.read_requests(c, conversation, owner, after=after, limit=limit)
        )

    def lineage(self, conversation: str, owner: str | None) -> list[RequestLineage]:
        """Return the lineage of each request of a conversation, in order."""
        return self._database.read(lambda c: record_tables.read_lineage(c, conversation, owner))

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
        return self._database.read(
            lambda c: record_tables.read_notable(
                c, owner, since=since, behind=behind, limit=limit, only=only
            )
        )

    def prior_requests(
        self, conversation: str, prefixes: Collection[str], after: int = 0
    ) -> PriorRequests:
        """Return the requests whose histories have these hashes, the latest last.

        Includes the edits of all records after the one with the number `after`.
        """
        return self._database.read(
            lambda c: record_tables.read_prior_requests(c, conversation, prefixes, after)
        )

    def edits(self, request: str, owner: str | None) -> tuple[RecordedEdit, ...] | None:
        """Return the edits of a request; None if this owner has no such request."""
        return self._database.read(lambda c: record_tables.read_edits(c, request, owner))

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
        return self._database.read(
            lambda c: record_tables.read_totals(
                c, owner, since=since, until=until, step=step, only=only
            )
        )

    def totals_by_origin(
        self, owner: str | None, *, since: float, until: float, only: RecordFilter = ANY_RECORD
    ) -> list[OriginTotal]:
        """Return sums per agent, project and model."""
        return self._database.read(
            lambda c: record_tables.read_origin_totals(
                c, owner, since=since, until=until, only=only
            )
        )

    def holdout_units(self, owner: str | None, *, since: float = 0.0) -> list[UnitTotal]:
        """Return the totals of each unit of a holdout since a time, by arm."""
        return self._database.read(lambda c: record_tables.read_units(c, owner, since))

    def repeats(self, owner: str | None, *, since: float = 0.0) -> tuple[RepeatCell, ...]:
        """Return the results sent in compacted requests since a time, and those requested again."""
        return self._database.read(lambda c: record_tables.read_repeats(c, owner, since))

    def forget(
        self,
        *,
        owner: str | None = None,
        conversation: str | None = None,
        before: float | None = None,
    ) -> ForgetResult:
        """Erase all that matches; without arguments, everything."""
        self.flush()
        gone = self._database.erase(lambda c: delete_matching(c, owner, conversation, before))
        if owner is conversation is before is None:
            for file in self.quarantined_files():
                file.unlink(missing_ok=True)
        without_index = self._delete_index()  # after the rows: see SearchIndex.add
        try:
            return replace(gone, erased=self._database.vacuum() and without_index)
        except StoreUnavailable:
            return gone  # deleted, not erased

    def quarantined_files(self) -> list[Path]:
        """Return the damaged files that were moved aside."""
        return []

    def size(self) -> int:
        """Return the bytes that the store takes on disk."""
        return self._database.used_bytes(0)

    def sweep(self) -> bool:
        """Delete some expired rows; True if more may remain."""
        reading = self._sweep_clock.read()
        used = self._database.used_bytes(self._retention.bytes)

        def work(c: Connection) -> tuple[TrustedTime, bool]:
            now = trust_time(c, reading)
            return now, sweep_step(c, self._retention, now, used)

        swept = self._database.sweep(work)
        if swept is None:
            return False
        self._trusted, has_more = swept
        self._sweep_clock.accept(reading)
        return has_more or self._database.release()

    def last_error(self) -> UnavailableReason | None:
        """Return why a read fails now or the last write failed; None: neither."""
        try:
            self._database.read(read_stamp)
        except StoreUnavailable as error:
            return error.reason
        return self._database.last_error

    def flush(self, timeout: float = _CLOSE_TIMEOUT) -> bool:
        """Wait until all records are written; False on timeout."""
        return self._queue.flush(timeout)

    def close(self) -> None:
        """Write the queued records and close all connections."""
        self._queue.close(_CLOSE_TIMEOUT)
        self._database.close()

    def _write_records(self, records: Sequence[RequestRecord]) -> None:
        self._database.write(lambda c: record_tables.write_records(c, records))

    def _maintain(self) -> float:
        """Run one step of the sweep; return the seconds until the next one."""
        if self.sweep():
            return _STEP_INTERVAL
        remove_old_files(self.quarantined_files(), self._retention, self._trusted)
        self._prune_index()
        return _ROUND_INTERVAL

    def _delete_index(self) -> bool:
        try:
            self._index.delete()
        except OSError:  # Windows: another process has it open
            return False
        return True

    def _rows(self) -> list[str]:
        """The names of all rows of originals."""
        return self._database.read(lambda c: texts.readable_refs(c, None))

    def _prune_index(self) -> None:
        """Take deleted originals out of the index, if something was deleted."""
        stamp = self._database.read(self._stamp)
        if stamp != self._pruned and self._index.discard_missing(self._rows):
            self._pruned = stamp


class _OriginalMapping(Mapping[str, str]):
    """Lazy mapping of the texts that an owner may read."""

    def __init__(self, store: SQLStore, owner: str | None) -> None:
        self._store = store
        self._owner = owner

    def __getitem__(self, ref: str) -> str:
        text = self._store.original(ref, self._owner)
        if text is None:
            raise KeyError(ref)
        return text

    def __contains__(self, ref: object) -> bool:
        return isinstance(ref, str) and bool(self._store.readable_refs((ref,), self._owner))

    def __iter__(self) -> Iterator[str]:
        return iter(self._store.refs(self._owner))

    def __len__(self) -> int:
        return len(self._store.refs(self._owner))
