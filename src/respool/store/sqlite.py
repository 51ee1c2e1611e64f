"""The store in one SQLite file."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ..facts import Facts
from . import originals as texts
from . import record_tables
from . import record_tables as cases
from . import record_tables as known_facts
from .base import (
    ConversationSummary,
    ForgetResult,
    PeriodTotal,
    PriorRequests,
    RecordedEdit,
    RejectedRequest,
    RequestLineage,
    RequestRecord,
    StoreUnavailable,
    UnavailableReason,
)
from .database import Connection, Database
from .database_file import quarantined_files, read_stamp
from .originals import DamagedData, ReferenceCache
from .record_queue import RecordQueue
from .retention import Retention, delete_matching, remove_old_files, sweep_step, vacuum

_REFERENCE = re.compile(r"[a-z2-7]{20}", re.ASCII)
_LOCK_TIMEOUT = 2.0  # seconds: no request should wait longer for another process
_CLOSE_TIMEOUT = 5.0
_STEP_INTERVAL = 0.1  # seconds, for others want to write too
_ROUND_INTERVAL = 600.0


class SQLiteStore:
    """Originals, facts and records in one file; opened at first use, by any thread.

    Several processes may share the file, each with a store of its own. Until it can be opened they
    agree on owners only if they are given one `salt`, which is that of a file that they begin.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        retention: Retention | None = None,
        wait: float = _LOCK_TIMEOUT,
        create: bool = True,
        salt: bytes | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = Path(path).resolve()  # SQLite puts its files beside the real one
        self._retention = retention or Retention()
        self._clock = clock
        self._database = Database(self.path, wait, create=create, salt=salt)
        self._reference_cache = ReferenceCache()
        self._queue = RecordQueue(self._write_records, self._maintain)

    def salt(self) -> bytes:
        """What API keys are to be hashed with, before anything here hears of them."""
        return self._database.salt()

    def provisional_salt(self) -> bytes:
        """The same at once; until the file can be opened, what a new one would be given."""
        return self._database.provisional_salt()

    def keep(self, owner: str, conversation: str, originals: Mapping[str, str]) -> None:
        """Keep texts under their references; they are durable when this returns."""
        if not originals:
            return
        now, key, refs = self._clock(), (owner, conversation), originals.keys()
        stamp = self._database.read(self._stamp)
        if self._reference_cache.has_all(key, stamp, refs, now - texts.STALE_SECONDS):
            return
        lacking = self._database.read(
            lambda c: texts.find_missing(c, owner, conversation, refs, now)
        )
        if lacking.refs:
            stamp = self._keep(owner, conversation, originals, lacking, now)
        self._reference_cache.add(key, stamp, refs, now if lacking.refs else lacking.last_used)

    def _keep(
        self,
        owner: str,
        conversation: str,
        originals: Mapping[str, str],
        lacking: texts.MissingOriginals,
        now: float,
    ) -> bytes:
        """Write what a conversation lacks; the stamp under which it then has it."""
        ready = {ref: texts.pack_original(ref, originals[ref]) for ref in lacking.unstored}
        wanted = {ref: originals[ref] for ref in lacking.refs}

        def work(c: Connection) -> bytes:
            row = texts.ensure_conversation(c, owner, conversation, now)
            texts.keep_originals(c, row, wanted, ready, now)
            return self._stamp(c)

        return self._database.write(work)

    def _stamp(self, c: Connection) -> bytes:
        """What stays the same while nothing is deleted, and the file is the one that was opened."""
        return self._database.openings.to_bytes(8) + read_stamp(c)

    def original(self, ref: str, owner: str | None) -> str | None:
        """The text behind a reference; None if this owner has none."""
        if not _REFERENCE.fullmatch(ref):
            return None
        try:
            return self._database.read(lambda c: texts.read_original(c, ref, owner))
        except DamagedData:
            self._database.write(lambda c: texts.discard_original(c, ref))
            return None

    def readable_refs(self, refs: Collection[str], owner: str | None) -> frozenset[str]:
        """Those of the references that lead to a text for this owner."""
        asked = [ref for ref in refs if _REFERENCE.fullmatch(ref)]
        return self._database.read(lambda c: texts.find_readable(c, asked, owner))

    def originals(self, owner: str | None) -> Mapping[str, str]:
        """All that this owner may read, as `respool.expand` takes it; read when it is asked for."""
        return _OriginalMapping(self, owner)

    def refs(self, owner: str | None) -> list[str]:
        """Every reference that leads to a text for this owner."""
        return self._database.read(lambda c: texts.readable_refs(c, owner))

    def facts(self, conversation: str) -> Facts:
        """What is known of a conversation, by any process."""
        return self._database.read(lambda c: known_facts.read_facts(c, conversation))

    def add_facts(self, conversation: str, facts: Facts) -> None:
        """Write facts down for all processes; durable when this returns, the first writer wins."""
        new = known_facts.new_fact_rows(facts, self.facts(conversation))
        if new:
            now = self._clock()
            self._database.write(lambda c: known_facts.write_facts(c, conversation, new, now))

    def record(self, record: RequestRecord) -> bool:
        """Write a request down soon; never waits. False: too many wait already, and it is lost."""
        return self._queue.record(record)

    @property
    def dropped(self) -> int:
        """How many records were lost because too many waited, or could not be written."""
        return self._queue.dropped

    def add_rejected(self, case: RejectedRequest) -> None:
        """Write down a request that the provider rejected once compacted."""
        small = cases.bound_rejected(case)
        body = msgspec.json.encode(small)
        self._database.write(lambda c: cases.write_rejected(c, small, body))

    def rejected_requests(self, owner: str | None) -> list[RejectedRequest]:
        """Those cases, the latest first."""
        return self._database.read(lambda c: cases.read_rejected(c, owner))

    def conversations(
        self, owner: str | None, *, behind: tuple[float, int] | None = None, limit: int = 50
    ) -> list[ConversationSummary]:
        """A page of conversations, the latest first, behind (last, id) of the page before."""
        return self._database.read(
            lambda c: record_tables.read_conversations(c, owner, behind, limit)
        )

    def requests(
        self, conversation: str, owner: str | None, *, after: float = 0.0, limit: int = 1_000
    ) -> list[RequestRecord]:
        """A conversation's requests in their order, without their edits."""
        return self._database.read(
            lambda c: record_tables.read_requests(c, conversation, owner, after, limit)
        )

    def lineage(self, conversation: str, owner: str | None) -> list[RequestLineage]:
        """Where each request of a conversation stands in it, in their order."""
        return self._database.read(lambda c: record_tables.read_lineage(c, conversation, owner))

    def notable(
        self,
        owner: str | None,
        *,
        since: float = 0.0,
        behind: float | None = None,
        limit: int = 100,
    ) -> list[RequestRecord]:
        """Requests that broke a prefix, failed, fell back or fetched again, the latest first."""
        return self._database.read(
            lambda c: record_tables.read_notable(c, owner, since, behind, limit)
        )

    def prior_requests(
        self, conversation: str, prefixes: Collection[str], after: int = 0
    ) -> PriorRequests:
        """What is recorded of those requests of a conversation that ended these histories.

        And the edits of all that were recorded after the one with this number.
        """
        return self._database.read(
            lambda c: record_tables.read_prior_requests(c, conversation, prefixes, after)
        )

    def edits(self, request: str, owner: str | None) -> tuple[RecordedEdit, ...] | None:
        """The edits of a request; None if this owner has no such request."""
        return self._database.read(lambda c: record_tables.read_edits(c, request, owner))

    def totals(
        self, owner: str | None, *, since: float, until: float, step: float
    ) -> list[PeriodTotal]:
        """Sums over each stretch of so many seconds in which there were requests."""
        return self._database.read(
            lambda c: record_tables.read_totals(c, owner, since, until, step)
        )

    def forget(
        self,
        *,
        owner: str | None = None,
        conversation: str | None = None,
        before: float | None = None,
    ) -> ForgetResult:
        """Delete for good all that fits; with nothing named, everything."""
        self.flush()
        gone = self._database.write(lambda c: delete_matching(c, owner, conversation, before))
        if owner is conversation is before is None:
            for file in self.quarantined_files():
                file.unlink(missing_ok=True)
        try:
            return replace(gone, erased=self._database.run_exclusive(vacuum))
        except StoreUnavailable:
            return gone  # deleted, but not erased

    def quarantined_files(self) -> list[Path]:
        """The damaged files in whose place new ones were begun."""
        return quarantined_files(self.path)

    def sweep(self) -> bool:
        """Delete a little of what is too old or too much; whether there may be more."""
        now = self._clock()
        return self._database.write(lambda c: sweep_step(c, self._retention, now))

    def last_error(self) -> UnavailableReason | None:
        """Why the store cannot be read now, or could not be written to last; None: it is well."""
        try:
            self._database.read(read_stamp)
        except StoreUnavailable as error:
            return error.reason
        return self._database.last_error

    def flush(self, timeout: float = _CLOSE_TIMEOUT) -> bool:
        """Wait until all records are written; whether they are."""
        return self._queue.flush(timeout)

    def close(self) -> None:
        """Write what waits and let go of everything."""
        self._queue.close(_CLOSE_TIMEOUT)
        self._database.close()

    def _write_records(self, records: Sequence[RequestRecord]) -> None:
        self._database.write(lambda c: record_tables.write_records(c, records))

    def _maintain(self) -> float:
        """One step of the sweep; says in how many seconds the next one is due."""
        if self.sweep():
            return _STEP_INTERVAL
        remove_old_files(self.quarantined_files(), self._retention, self._clock())
        return _ROUND_INTERVAL


class _OriginalMapping(Mapping[str, str]):
    """The texts that an owner may read, looked up one by one."""

    def __init__(self, store: SQLiteStore, owner: str | None) -> None:
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
