"""The store as the request path uses it: with back-off, pending facts and durable originals.

A store that is locked or gone costs each request its whole timeout. Once it has failed it is left
alone for a moment, and requests go on with what this process knows. A store that cannot be written
is still read, as another server may have written to it. Facts that could not be written wait in
memory. They are written as soon as the store can be used, and at the end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Final, TypeVar

from ..errors import RespoolError
from ..facts import Facts
from ..store import Store, StoreUnavailable
from .conversation import Conversation
from .middleware import NO_FACTS

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

_PAUSE: Final = 1.0  # seconds for which a store that has failed is not used
_MAX_PENDING: Final = 4_096  # conversations with pending facts; more lose theirs
_MAX_EDITIONS: Final = 64  # of one conversation that are known to be stored
_FRESH: Final = 2.0  # seconds for which originals that were found count as stored


class _BackOff:
    """The error of a store, and the end of its pause."""

    error: RespoolError | None = None
    until = 0.0


class StoreGuard:
    """The store for the request path; threads may share it."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._lock = Lock()
        self._reads, self._writes = _BackOff(), _BackOff()
        self._has_warned = False  # that it cannot be written
        self._pending: dict[str, Conversation] = {}  # with facts that are not written yet
        self._writer: Thread | None = None
        self._closing = Event()

    def pending(self, id: str) -> Conversation | None:
        """The conversation with this id, if it has facts that are not written yet."""
        with self._lock:
            return self._pending.get(id)

    def close(self) -> None:
        """Write all pending facts, if the store can be used at all."""
        with self._lock:
            self._closing.set()
            writer = self._writer
        if writer is not None:
            writer.join()
        self._writes.error = None  # this is the last chance
        self._write_pending()

    # --- facts -----------------------------------------------------------------------------

    def load_facts(self, known: Conversation) -> None:
        """Merge the stored facts of a conversation into those that this process knows."""
        try:
            facts = self._read(lambda store: store.facts(known.id))
        except RespoolError:
            return
        self.learn(known, facts)
        known.is_loaded = True

    def learn(self, known: Conversation, new: Facts, *, pending: bool = False) -> None:
        """Add facts in this process; `pending`: they are to be written to the store, too."""
        if new == NO_FACTS:
            return
        with self._lock:
            known.facts = known.facts.merge(new)
            if pending:
                known.pending_facts = known.pending_facts.merge(new)
                self._add_pending(known)  # so that they are written at the end at the latest

    def note(self, known: Conversation, new: Facts) -> None:
        """Add facts, and write them now or as soon as the store can be used."""
        if new != NO_FACTS:
            self.learn(known, new, pending=True)
        self.write_facts(known)

    def write_facts(self, known: Conversation) -> None:
        """Write the pending facts of a conversation; if that fails, a thread tries it again."""
        facts = known.pending_facts
        if facts == NO_FACTS:
            return
        try:
            self._write(lambda store: store.add_facts(known.id, facts))
        except RespoolError:
            self._write_later(known)
            return
        self._report_recovery()
        with self._lock:
            if known.pending_facts is facts:
                known.pending_facts = NO_FACTS
                self._pending.pop(known.id, None)

    def _write_later(self, known: Conversation) -> None:
        with self._lock:
            self._add_pending(known)
            if self._writer is None and not self._closing.is_set():
                self._writer = Thread(target=self._run, name="respool-facts", daemon=True)
                self._writer.start()

    def _add_pending(self, known: Conversation) -> None:
        """Remember a conversation with pending facts; the lock is held."""
        self._pending[known.id] = known
        if len(self._pending) > _MAX_PENDING:
            del self._pending[next(iter(self._pending))]

    def _run(self) -> None:
        while not self._closing.wait(_PAUSE):
            self._write_pending()
            with self._lock:
                if not self._pending:
                    self._writer = None
                    return

    def _write_pending(self) -> None:
        with self._lock:
            waiting = list(self._pending.values())
        for known in waiting:
            self.write_facts(known)

    # --- records ---------------------------------------------------------------------------

    def load_requests(self, known: Conversation, prefixes: Collection[str]) -> bool:
        """Load the recorded requests with these prefixes; False: the store could not be asked."""
        try:
            found = self._read(
                lambda store: store.prior_requests(known.id, prefixes, known.recorded_until)
            )
        except RespoolError:
            return False
        known.is_edited |= found.edited
        known.note_recorded((one.place, one.reason, one.evidence) for one in found.edits)
        known.recorded_until = found.last_id
        for prefix, latest in found.latest:
            known.lineage.note_accepted(prefix, latest)
        return True

    # --- originals -------------------------------------------------------------------------

    def has_surely(self, known: Conversation, originals: Collection[str], edition: int) -> bool:
        """True if all originals of an edition are stored, without asking the store."""
        if not originals:
            return True
        is_fresh = self._clock() - known.originals_checked < _FRESH
        stored = known.stored_originals.issuperset(originals)
        return is_fresh and stored and edition in known.stored_editions

    def has(self, known: Conversation, originals: Mapping[str, str]) -> bool:
        """True if the store has all of these originals; False if it cannot be asked."""
        missing = originals.keys() - known.stored_originals
        if not missing:
            return True
        try:
            held = self._read(lambda store: store.readable_refs(missing, known.owner))
        except RespoolError:
            return False
        known.stored_originals.update(held)
        return held >= missing

    def keep(
        self,
        known: Conversation,
        originals: Mapping[str, str],
        edition: int,
        replacements: Callable[[], dict[str, str]],
    ) -> None:
        """Store the originals of a projection; raises if a new one cannot be stored.

        The new texts are stored beside them, to be shown. Earlier originals are stored again now
        and then, in case the file was deleted.
        """
        is_stored = edition in known.stored_editions
        stored = known.stored_originals
        new = {} if is_stored else {ref: originals[ref] for ref in originals if ref not in stored}
        if new:
            texts = new | replacements()
            self._write(lambda store: store.keep(known.owner, known.id, texts))
            self._report_recovery()
            stored.update(new)
        elif originals and not is_stored:
            with suppress(RespoolError):  # they are only to be shown
                shown = replacements()
                self._write(lambda store: store.keep(known.owner, known.id, shown))
        if len(known.stored_editions) >= _MAX_EDITIONS:
            known.stored_editions.clear()
        known.stored_editions.add(edition)
        if originals and self._clock() - known.originals_checked >= _FRESH:
            self._keep_again(known, originals)

    def _keep_again(self, known: Conversation, originals: Mapping[str, str]) -> None:
        try:
            self._write(lambda store: store.keep(known.owner, known.id, originals))
        except RespoolError:
            return  # they were durable when they were first left out
        known.originals_checked = self._clock()

    # --- back-off --------------------------------------------------------------------------

    def _read(self, work: Callable[[Store], _T]) -> _T:
        """Read from the store; if that fails, it is not written either."""
        return self._try(work, self._reads, self._writes)

    def _write(self, work: Callable[[Store], _T]) -> _T:
        return self._try(work, self._writes)

    def _try(self, work: Callable[[Store], _T], back_off: _BackOff, *others: _BackOff) -> _T:
        failed = back_off.error  # another thread may clear it at any moment
        if failed is not None and self._clock() < back_off.until:
            raise failed
        try:
            found = work(self._store)
        except RespoolError as error:
            self._warn(error)
            for one in (back_off, *others):
                one.error, one.until = error, self._clock() + _PAUSE
            raise
        back_off.error = None
        return found

    def _warn(self, error: RespoolError) -> None:
        """Log the first failure only."""
        is_closed = isinstance(error, StoreUnavailable) and error.reason == "closed"
        if not self._has_warned and not is_closed:
            self._has_warned = True
            _log.warning("%s No new edits are made until then.", error)

    def _report_recovery(self) -> None:
        """Log the first success after a failure."""
        if self._has_warned:
            self._has_warned = False
            _log.warning("The store can be used again; new edits are made.")
