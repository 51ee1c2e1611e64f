"""Conversations: their ids, what this process remembers of them, and what the store holds of them.

What is remembered is bounded, and lost without harm.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Final, TypeVar

import msgspec
from msgspec import Struct, field

from ..edits import Edit
from ..engine import Fields, RequestHistory
from ..errors import RespoolError
from ..facts import Facts
from ..regex import lazy_compile
from ..store import DecisionStore, SentRequest, StoreUnavailable
from ..wire.json import get
from .auth import header_values, keyed_hash
from .lineage import Lineage, ParentRequest
from .middleware import NO_FACTS, ParsedRequest
from .provenance import Launch, Provenance, combine, read_head, read_opening

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

EditKey = tuple[str, str, str]  # place, reason and evidence of a recorded edit

_MAX_CONVERSATIONS: Final = 1_024  # one that returns after so many others is loaded again
_MAX_SESSION_CHARS: Final = 256  # a longer id is ignored
_MAX_USER_CHARS: Final = 4096


class Conversation(Struct):
    """One conversation, as this process knows it."""

    id: str
    owner: str
    facts: Facts = Facts()
    pending_facts: Facts = Facts()  # that are not written to the store yet
    lineage: Lineage = field(default_factory=Lineage)
    is_edited: bool = False  # projections were sent that say less than the client holds
    is_loaded: bool = False  # all that the store knows of it is known here
    is_cached_by_gateway: bool = (
        False  # by its usage: cached although the client sets no breakpoint
    )
    is_pinned: bool = False  # its requests are sent as they came
    opening: Provenance | None = None  # what its first messages tell; None: not read yet
    failed: int = 0  # projections in a row, by a status that may be a refusal
    failed_originals: int = 0  # that were sent after such failures, in a row
    bytes_per_token: float = 4.0  # by the last request that was counted
    stored_originals: set[str] = field(default_factory=set[str])  # references
    stored_editions: set[int] = field(default_factory=set[int])  # whose new texts are stored too
    originals_checked: float = 0.0  # when the store was last asked for the originals
    recorded_edits: set[int] = field(default_factory=set[int])  # hashes of their keys
    recorded_edition: int = 0  # the last edition of which all edits are recorded
    evaluated: tuple[int, int] = (0, 0)  # the last evaluation whose waiting offers are counted
    waiting: tuple[int, int] = (0, 0)  # offers that waited then, and their tokens
    defined_on: str = ""  # the terms whose tool definitions are recorded
    called: set[str] = field(default_factory=set[str])  # tools whose call is recorded
    calls_read: int = 0  # calls of the last request
    recorded_until: int = 0  # the number of the store's last record whose edits are among them

    def new_edits(self, edits: tuple[Edit, ...], edition: int) -> tuple[Edit, ...]:
        """The edits that no recorded request had."""
        if edition and edition == self.recorded_edition:
            return ()
        return tuple(edit for edit in edits if hash(edit_key(edit)) not in self.recorded_edits)

    def note_recorded(self, edits: Iterable[EditKey]) -> None:
        """Edits are recorded, by this process or another."""
        self.recorded_edits.update(map(hash, edits))


class Conversations:
    """LRU cache of conversations by id; threads may share it."""

    def __init__(self, max_size: int = _MAX_CONVERSATIONS) -> None:
        self._max_size = max_size
        self._known: OrderedDict[str, Conversation] = OrderedDict()
        self._lock = Lock()

    def get(self, id: str) -> Conversation | None:
        """The conversation with this id, if it is in the cache."""
        with self._lock:
            found = self._known.get(id)
            if found is not None:
                self._known.move_to_end(id)
            return found

    def add(self, conversation: Conversation) -> Conversation:
        """Add a conversation; if another thread has just added it, return that one."""
        with self._lock:
            found = self._known.setdefault(conversation.id, conversation)
            while len(self._known) > self._max_size:
                self._known.popitem(last=False)
            return found


class Turn:
    """A request in its conversation: its parsed history, and its parent once that was looked up."""

    def __init__(
        self,
        request: ParsedRequest,
        history: RequestHistory,
        conversation: Conversation,
        claimant: str = "",
    ) -> None:
        self.request = request
        self.history = history
        self.conversation = conversation
        self.claimant = claimant  # the name under which it claims its history
        self.parent: ParentRequest | None = None

    def was_answered(self, prefix: str) -> bool:
        """True if another request of this history was answered by a projection, or may be."""
        return self.conversation.lineage.was_answered(prefix, self.claimant)

    def is_left_alone(self) -> bool:
        """True if a fact says that this history is not to be compacted."""
        left_alone = self.conversation.facts.left_alone
        if not left_alone:
            return False
        return any(prefix.hex() in left_alone for prefix in self.history.boundaries())

    def session(self) -> str:
        """The client's own session id, hashed; empty: it has none."""
        request = self.request
        return request.session or session_id((), self.history, request.owner) or ""

    def provenance(self, launch: Launch) -> Provenance:
        """The agent, its folder and the first prompt; nothing if that fails: it is only shown."""
        known = self.conversation
        try:
            if known.opening is None:
                known.opening = read_opening(self.history)
            head = read_head(self.history)
        except Exception:  # noqa: BLE001 - law 9: a name must not cost a projection
            _log.exception("The sender of a request could not be read")
            known.opening = known.opening or Provenance()
            head = Provenance()
        return combine(self.request.headers, head, known.opening, launch)


def edit_key(edit: Edit) -> EditKey:
    """The key by which an edit is known in records."""
    return str(edit.ref), edit.reason, edit.evidence


def conversation_id(history: RequestHistory, owner: str) -> str:
    """The hash of all messages before the model's first output; extensions and forks share it."""
    return keyed_hash(owner.encode(), "opening", history.opening())


# --- the session id ----------------------------------------------------------------------------

_SESSION_HEADERS = (
    b"x-claude-code-session-id",
    b"session-id",  # Codex; its older versions with an underscore
    b"session_id",
    b"thread-id",
    b"x-session-id",  # opencode
    b"x-qwen-code-session-id",
)
_SESSION_NAMES = frozenset(_SESSION_HEADERS)
_OLD_USER = lazy_compile(r"_session_([0-9a-fA-F-]{8,64})$")  # Claude Code before it was JSON


def session_id(
    headers: Iterable[tuple[bytes, bytes]], history: RequestHistory | None, owner: str
) -> str | None:
    """The hash of the session id that a client sends; it only groups conversations."""
    held = [one for one in headers if one[0].lower() in _SESSION_NAMES]
    named = (
        value.decode("latin-1") for name in _SESSION_HEADERS for value in header_values(held, name)
    )
    found = (next(named, None) if held else None) or _session_in_body(history)
    if not found or len(found) > _MAX_SESSION_CHARS:
        return None
    return keyed_hash(owner.encode(), "session", found.encode("utf-8", "surrogatepass"))


def _session_in_body(history: RequestHistory | None) -> str | None:
    if history is None or not history.fields:
        return None
    fields = history.fields
    return history.once("session", lambda: _session_field(fields))


def _session_field(fields: Fields) -> str | None:
    user = get(fields.get("metadata"), ("user_id",))
    if isinstance(user, str) and len(user) <= _MAX_USER_CHARS:
        session = get(_json(user), ("session_id",))
        if isinstance(session, str):
            return session
        old = _OLD_USER.search(user)
        if old is not None:
            return old[1]
    key = fields.get("prompt_cache_key")
    return key if isinstance(key, str) else None


def _json(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


# --- the store ---------------------------------------------------------------------------------


_PAUSE: Final = 1.0  # seconds for which a store that has failed is not used
_MAX_PENDING: Final = 4_096  # conversations with pending facts; more lose theirs
_MAX_EDITIONS: Final = 64  # of one conversation that are known to be stored
_FRESH: Final = 2.0  # seconds for which originals that were found count as stored


class _BackOff:
    """The error of a store, and the end of its pause."""

    error: RespoolError | None = None
    until = 0.0


class StoreGuard:
    """The store as the request path uses it; threads may share it.

    A store that is locked or gone costs each request its whole timeout. Once it has failed it is
    left alone for a moment, and requests go on with what this process knows. A store that cannot be
    written is still read, as another server may have written to it. Facts that could not be written
    wait in memory. They are written as soon as the store can be used, and at the end.
    """

    def __init__(self, store: DecisionStore, clock: Callable[[], float] = time.monotonic) -> None:
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
            facts, known.is_pinned = self._read(
                lambda store: (store.facts(known.id), store.is_pinned(known.id))
            )
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

    def claim(
        self, known: Conversation, prefix: str, by: str, *, sent: SentRequest, new: Facts
    ) -> bool:
        """Claim a history and write new facts; False: another request has claimed it.

        If the store cannot be written, the request goes on, and the facts are written later.
        """
        facts = known.pending_facts.merge(new)
        try:
            is_first = self._write(lambda store: store.claim(known.id, prefix, by, sent, facts))
        except RespoolError:
            self.learn(known, new, pending=True)
            self._write_later(known)
            return True
        if is_first:
            self._report_recovery()
            with self._lock:
                known.facts = known.facts.merge(new)
                if known.pending_facts.merge(new) == facts:
                    known.pending_facts = NO_FACTS
                    self._pending.pop(known.id, None)
        return is_first

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
        for prefix, by, sent in found.claims:
            known.lineage.note_claim(prefix, by, sent)
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

    def _read(self, work: Callable[[DecisionStore], _T]) -> _T:
        """Read from the store; if that fails, it is not written either."""
        return self._try(work, self._reads, self._writes)

    def _write(self, work: Callable[[DecisionStore], _T]) -> _T:
        return self._try(work, self._writes)

    def _try(
        self, work: Callable[[DecisionStore], _T], back_off: _BackOff, *others: _BackOff
    ) -> _T:
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
