"""Conversations: their ids, and what this process remembers of them; bounded, and lost unharmed."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock
from typing import Final

import msgspec
from msgspec import Struct, field

from ..edits import Edit
from ..engine import Fields, RequestHistory
from ..facts import Facts
from ..wire.json import get
from .auth import header_values, keyed_hash
from .lineage import Lineage, ParentRequest
from .middleware import ParsedRequest

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
    bytes_per_token: float = 4.0  # by the last request that was counted
    stored_originals: set[str] = field(default_factory=set[str])  # references
    stored_editions: set[int] = field(default_factory=set[int])  # whose new texts are stored too
    originals_checked: float = 0.0  # when the store was last asked for the originals
    recorded_edits: set[int] = field(default_factory=set[int])  # hashes of their keys
    recorded_edition: int = 0  # the last edition of which all edits are recorded
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
        self, request: ParsedRequest, history: RequestHistory, conversation: Conversation
    ) -> None:
        self.request = request
        self.history = history
        self.conversation = conversation
        self.parent: ParentRequest | None = None

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
_OLD_USER = re.compile(r"_session_([0-9a-fA-F-]{8,64})$")  # Claude Code before it was JSON


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
