"""What the store is asked and told on the way up, and what holds while it cannot be had.

A store that is locked or gone costs each request its whole patience. So once it has failed, it is
left alone for a moment, and requests go on with what this process knows. One that cannot be written
to is still read: others may have told it something meanwhile. Facts that it could not be told then
are told as soon as it can be had, and at the end: who comes after must not miss them.
Until then they stand where the other processes that serve the same port see them, if there are any.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Final, TypeVar

from ...errors import RespoolError
from ...facts import Facts
from ...store import ParentRequest, Store, StoreUnavailable
from .board import Board, Waiting
from .conversations import Conversation
from .journal import Journal, Taken

T = TypeVar("T")

_log = logging.getLogger(__name__)

NO_FACTS: Final = Facts()
_PAUSE: Final = 1.0  # seconds for which a store that has failed is not asked again
_MOST_OWING: Final = 4_096  # conversations whose facts wait for the store; more lose theirs
_MOST_SHOWN: Final = 64  # editions of one conversation that are remembered as kept
_SURE: Final = 2.0  # seconds for which originals that were there are taken to be there


class _Rest:
    """Until when a store is left alone that has failed."""

    error: RespoolError | None = None
    until = 0.0


class Keeping:
    """The store as the request path sees it; safe to share by threads."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float] = time.monotonic,
        board: Board | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._board = board
        self._journal = journal
        self._lock = Lock()
        self._learning = Lock()
        self._reads, self._writes = _Rest(), _Rest()
        self._warned = False  # that it cannot be written to
        # By one that died, whose place this process takes.
        left: Mapping[str, Waiting] = board.own() if board is not None else {}
        self._owing: dict[str, Conversation] = {  # those whose facts the store has yet to hear of
            id: Conversation(id, one.owner, facts=one.facts, owed=one.facts)
            for id, one in left.items()
        }
        self._waits = bool(left)  # some of them wait for a store that could not be had
        self._settling: Thread | None = None
        self._closing = Event()
        if left:
            self._begin_settling()

    def owing(self, id: str) -> Conversation | None:
        """The conversation with this id, if the store does not know all that holds for it."""
        with self._lock:
            return self._owing.get(id)

    def close(self) -> None:
        """Tell the store what it could not be told before, if it can be had at all."""
        with self._lock:
            self._closing.set()
            settling = self._settling
        if settling is not None:
            settling.join()
        self._writes.error = None  # it is the last time to ask
        self._settle_all()

    def read_up(self, known: Conversation) -> None:
        """The facts that are known of a conversation elsewhere, and not in this process.

        Who has told the store takes them off the board then: so that is looked at first.
        """
        waiting = self._board.facts(known.id) if self._board is not None else None
        if waiting is not None:
            self.learn(known, waiting, owed=True)  # whoever can tell the store first does
        try:
            facts = self._asked(lambda store: store.facts(known.id))
        except RespoolError:
            return
        self.learn(known, facts)
        known.read_up = True

    def took(self, known: Conversation, prefix: str, latest: ParentRequest, parent: str) -> None:
        """A provider took the request that ended this history: all processes know at once."""
        known.note_sent(prefix, latest, parent)
        if self._journal is not None:
            self._journal.note(Taken(known.id, prefix, parent, latest, known.edited))

    def goes_up(self, known: Conversation, prefix: str, request: object) -> None:
        """A projection of this history goes up: all processes know before it is answered."""
        known.note_going_up(prefix, request)
        if self._journal is not None:
            self._journal.note(Taken(known.id, prefix, "", ParentRequest(), going_up=True))

    def look_up(self, known: Conversation, prefixes: Collection[str]) -> bool:
        """Learn what is known elsewhere of requests that ended these histories; if it all can be.

        The journal last: of what was taken meanwhile, it alone tells.
        """
        asked = self._look_into_store(known, prefixes)
        self.hear(known)
        return asked

    def hear(self, known: Conversation) -> None:
        """Learn what the journal tells of requests elsewhere."""
        if self._journal is None:
            return
        with self._learning:  # it tells once: another request waits until that is known here
            for one in self._journal.of(known.id):
                known.edited |= one.edited
                if one.going_up:
                    known.note_going_up(one.prefix)
                else:
                    known.note_sent(one.prefix, one.latest, one.parent)

    def _look_into_store(self, known: Conversation, prefixes: Collection[str]) -> bool:
        try:
            found = self._asked(
                lambda store: store.prior_requests(known.id, prefixes, known.told_until)
            )
        except RespoolError:
            return False
        known.edited |= found.edited
        known.note_told((one.place, one.reason, one.evidence) for one in found.edits)
        known.told_until = found.last_id
        for prefix, latest in found.latest:
            known.note_sent(prefix, latest)
        return True

    def note(self, known: Conversation, new: Facts) -> None:
        """Hold facts from now on; the store hears of them now, or as soon as it can be had."""
        if new != NO_FACTS:
            self.learn(known, new, owed=True)
        self.settle(known)

    def hold(self, known: Conversation, new: Facts) -> None:
        """Hold facts from now on, in all processes at once; the store is to hear of them."""
        self.learn(known, new, owed=True)
        with self._lock:
            self._waits = True
            self._show()

    def settle(self, known: Conversation) -> None:
        """Tell the store what it could not be told before; else that is tried again, aside."""
        owed = known.owed
        if owed == NO_FACTS:
            return
        try:
            self._told(lambda store: store.add_facts(known.id, owed))
        except RespoolError:
            self._owe(known)
            return
        self._is_well()
        with self._lock:
            if known.owed is owed:
                known.owed = NO_FACTS
                self._owing.pop(known.id, None)
                self._show()

    def _owe(self, known: Conversation) -> None:
        """Remember whose facts wait, and have the thread that tries again."""
        with self._lock:
            self._remember(known)
            self._waits = True
            self._show()
            self._begin_settling()

    def _begin_settling(self) -> None:
        if self._settling is None and not self._closing.is_set():
            self._settling = Thread(target=self._settle_later, name="respool-facts", daemon=True)
            self._settling.start()

    def _show(self) -> None:
        """Let the other processes see what waits, once something had to; the lock is held."""
        if self._board is not None and self._waits:
            self._board.put({id: Waiting(one.owner, one.owed) for id, one in self._owing.items()})
            self._waits = bool(self._owing)

    def _remember(self, known: Conversation) -> None:
        """Hold on to a conversation whose facts the store has yet to hear of; the lock is held."""
        self._owing[known.id] = known
        if len(self._owing) > _MOST_OWING:
            del self._owing[next(iter(self._owing))]

    def _settle_later(self) -> None:
        while not self._closing.wait(_PAUSE):
            self._settle_all()
            with self._lock:
                if not self._owing:
                    self._settling = None
                    return

    def _settle_all(self) -> None:
        with self._lock:
            waiting = list(self._owing.values())
        for known in waiting:
            self.settle(known)

    def is_sure(self, known: Conversation, originals: Mapping[str, str], edition: int) -> bool:
        """Whether there is nothing to keep for these edits, without a look at the store."""
        if not originals:
            return True
        fresh = self._clock() - known.seen_kept < _SURE
        return fresh and originals.keys() <= known.durable and edition in known.shown

    def keep(
        self,
        known: Conversation,
        originals: Mapping[str, str],
        edition: int,
        beside: Callable[[], dict[str, str]],
    ) -> None:
        """Have all originals of a projection durable; raises where a new one cannot be made so.

        Those of before are asked for now and then: a file that was deleted gets them again. An
        edit in place of another has a text of its own, and no new original.
        """
        seen = edition in known.shown  # then all of them were made durable for it
        new = {} if seen else {ref: originals[ref] for ref in originals if ref not in known.durable}
        if new:
            both = new | beside()
            self._told(lambda store: store.keep(known.owner, known.id, both))
            self._is_well()
            known.durable.update(new)
        elif originals and not seen:
            with suppress(RespoolError):  # it is only to be shown
                texts = beside()
                self._told(lambda store: store.keep(known.owner, known.id, texts))
        _note_shown(known, edition)
        if originals and self._clock() - known.seen_kept >= _SURE:
            self._look_after(known, originals)

    def has(self, known: Conversation, originals: Mapping[str, str]) -> bool:
        """Whether the store has all of these, as far as it can be asked."""
        lacking = originals.keys() - known.durable
        if not lacking:
            return True
        try:
            held = self._asked(lambda store: store.readable_refs(lacking, known.owner))
        except RespoolError:
            return False
        known.durable.update(held)
        return held >= lacking

    def _look_after(self, known: Conversation, originals: Mapping[str, str]) -> None:
        try:
            self._told(lambda store: store.keep(known.owner, known.id, originals))
        except RespoolError:
            return  # they were durable when they were first left out
        known.seen_kept = self._clock()

    def learn(self, known: Conversation, new: Facts, *, owed: bool = False) -> None:
        """Hold facts from now on in this process; `owed`: the store is to hear of them."""
        if new == NO_FACTS:
            return
        with self._lock:
            known.facts = known.facts.merge(new)
            if owed:
                known.owed = known.owed.merge(new)
                self._remember(known)  # at the end they are told, if nobody came to it before

    def _asked(self, work: Callable[[Store], T]) -> T:
        """What the store knows; who cannot even read it does not try to write."""
        return self._tried(work, self._reads, self._writes)

    def _told(self, work: Callable[[Store], T]) -> T:
        """Something is written down in the store."""
        return self._tried(work, self._writes)

    def _tried(self, work: Callable[[Store], T], rest: _Rest, *more: _Rest) -> T:
        failed = rest.error  # another thread may have it well again at any moment
        if failed is not None and self._clock() < rest.until:
            raise failed
        try:
            found = work(self._store)
        except RespoolError as error:
            self._warn(error)
            for one in (rest, *more):
                one.error, one.until = error, self._clock() + _PAUSE
            raise
        rest.error = None
        return found

    def _warn(self, error: RespoolError) -> None:
        """Say once that something is wrong; whoever is to act need not hear it each second."""
        over = (
            isinstance(error, StoreUnavailable) and error.reason == "closed"
        )  # what came too late
        if not self._warned and not over:
            self._warned = True
            _log.warning("%s No new edit is made until it can be.", error)

    def _is_well(self) -> None:
        """Something was written: what was wrong is over."""
        if self._warned:
            self._warned = False
            _log.warning("The store can be used again, and new edits are made.")


def _note_shown(known: Conversation, edition: int) -> None:
    """The texts of these edits are kept, as far as they can be; each branch has its own edits."""
    if len(known.shown) >= _MOST_SHOWN:
        known.shown.clear()
    known.shown.add(edition)
