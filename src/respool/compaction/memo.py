"""Memo: bounded LRU cache of fold states by prefix hash."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Final

from msgspec import Struct

from ..edits import Edit, Replace
from ..transcript import Part
from ..wire.layout import LayoutCache
from .state import State

PrefixKey = bytes

_BYTES_PER_PART: Final = 900  # bytes, about: its place in all indexes, and what its call did
_BYTES_PER_EDIT: Final = 500  # bytes beside its text
_BYTES_PER_POSITION: Final = 80  # bytes in the lists of one state for each part
_BODIES_DIVISOR: Final = (
    16  # the part of its bytes, one in so many, that bodies may take beside states
)
_RECOUNT_INTERVAL: Final = (
    16  # states of a conversation, after which all that they share is added up again
)
_SCOPED_BODIES_BYTES: Final = 8_000_000  # that the bodies of one scope may take
_BYTES_PER_STATE: Final = 8_000  # bytes, however short the history


class _MemoEntry(Struct, frozen=True):
    state: State
    parent: PrefixKey | None


class _SharedSize(Struct):
    """Number of the states of one conversation, and the size of what they share."""

    states: int = 0
    size: int = 0
    parts: int = 0  # whose texts are in that
    epochs: int = -1  # when all of it was added up
    since: int = 0  # states that came after that


class Memo:
    """LRU cache of fold states by prefix hash; threads may share it.

    It drops the least recently used states beyond its limits; the last state always stays.
    """

    def __init__(self, max_states: int = 256, max_bytes: int = 512_000_000) -> None:
        self._max_states = max_states
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[PrefixKey, _MemoEntry] = OrderedDict()
        self._shared: dict[int, _SharedSize] = {}  # by conversation
        self._lock = Lock()
        self.bodies = LayoutCache(max_bytes // _BODIES_DIVISOR)

    @classmethod
    def of_megabytes(cls, megabytes: float) -> Memo:
        """A memo of this size; conversations take some megabytes, in two states each."""
        return cls(max(256, int(megabytes)), int(megabytes * 1_000_000))

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        """Estimated size in bytes."""
        return self._bytes

    def get(self, key: PrefixKey) -> State | None:
        """The state after this prefix; the caller copies it before extending it."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry.state

    def put(self, key: PrefixKey, state: State, parent: PrefixKey | None) -> None:
        """Keep a state, and drop its grandparent: a conversation needs its last two."""
        with self._lock:
            self._drop(key)
            known = self._entries.get(parent) if parent is not None else None
            if known is not None and known.parent not in (None, key):
                self._drop(known.parent)
            self._entries[key] = _MemoEntry(state, parent)
            self._count(state)
            while len(self._entries) > 1 and self._is_full():
                self._drop(next(iter(self._entries)))

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self._shared.clear()
            self._bytes = 0
        self.bodies.clear()

    def scoped(self, scope: bytes) -> Memo:
        """A memo within the limits of this one that finds only what was put through itself.

        >>> shared = Memo()
        >>> shared.scoped(b"one").get(b"key") is shared.scoped(b"two").get(b"key") is None
        True
        """
        return _ScopedMemo(self, scope)

    def _is_full(self) -> bool:
        return len(self._entries) > self._max_states or self._bytes > self._max_bytes

    def _count(self, state: State) -> None:
        shared = self._shared.setdefault(id(state.analysis.ledger), _SharedSize())
        before = shared.size
        _update_shared_size(shared, state)
        self._bytes += _own_bytes(state) + shared.size - before
        shared.states += 1

    def _drop(self, key: PrefixKey | None) -> None:
        entry = self._entries.pop(key, None) if key is not None else None
        if entry is None:
            return
        conversation = id(entry.state.analysis.ledger)
        shared = self._shared[conversation]
        shared.states -= 1
        self._bytes -= _own_bytes(entry.state)
        if not shared.states:
            self._bytes -= shared.size
            del self._shared[conversation]


class _ScopedMemo(Memo):
    """A memo whose keys begin with a scope of their own in another one."""

    def __init__(self, whole: Memo, scope: bytes) -> None:
        super().__init__()
        self._whole, self._scope = whole, scope
        self.bodies = LayoutCache(_SCOPED_BODIES_BYTES)

    def get(self, key: PrefixKey) -> State | None:
        """The state after this prefix."""
        return self._whole.get(self._scope + key)

    def put(self, key: PrefixKey, state: State, parent: PrefixKey | None) -> None:
        """Keep a state."""
        before = None if parent is None else self._scope + parent
        self._whole.put(self._scope + key, state, before)


def _own_bytes(state: State) -> int:
    """Bytes that no other state of its conversation holds."""
    copies = 2 if state.evaluation.is_pending else 1  # with the outcome of that evaluation
    return copies * (_BYTES_PER_STATE + _BYTES_PER_POSITION * len(state.transcript.parts))


def _update_shared_size(shared: _SharedSize, state: State) -> None:
    """Bring the size up to date: with each state its new texts, now and then all of it."""
    parts = state.transcript.parts
    shared.since += 1
    if (
        shared.epochs == state.evaluation.epochs
        and shared.since < _RECOUNT_INTERVAL
        and shared.parts <= len(parts)
    ):
        shared.size += _text_bytes(parts[shared.parts :])
    else:
        shared.size, shared.epochs, shared.since = _shared_bytes(state), state.evaluation.epochs, 0
    shared.parts = len(parts)


def _shared_bytes(state: State) -> int:
    """Bytes of texts, indexes and offers, which all states of a conversation share."""
    waiting = (offer.edit for offers in state.evaluation.waiting.values() for offer in offers)
    edits = _edit_bytes([*waiting, *state.edits.by_part.values()])
    encoded = sum(map(len, state.rendered.encoded.values())) + sum(
        map(len, state.rendered.encoded_at_end.values())
    )
    known = state.analysis.ledger.lines.size_bytes + state.analysis.mentions.size_bytes
    known += state.tokens.lines.size_bytes
    return _text_bytes(state.transcript.parts) + edits + encoded + known


def _text_bytes(parts: Sequence[Part]) -> int:
    return sum([part.text.__sizeof__() + _BYTES_PER_PART for part in parts])


def _edit_bytes(edits: Sequence[Edit]) -> int:
    texts = sum([edit.text.__sizeof__() for edit in edits if isinstance(edit, Replace)])
    return texts + _BYTES_PER_EDIT * len(edits)
