"""Which originals each conversation is known to have, so that asking for them again is cheap.

A client sends its whole history each time, and with it come all the originals of before. What was
found in the file once is there until something is deleted; whatever deletes changes the file's
stamp, in any process, and a new file has another one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection

from msgspec import Struct

_CONVERSATIONS = 64  # that are remembered
_REFS = 5_000  # of one conversation; more than any had

Key = tuple[str, str]  # owner, conversation


class _Known(Struct, frozen=True):
    stamp: bytes
    last_used: float  # when the conversation was last marked as going on
    refs: frozenset[str]


class Remembered:
    """The references that were seen in the file, for as long as its stamp is the same."""

    def __init__(self) -> None:
        self._known: OrderedDict[Key, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def has_all(self, key: Key, stamp: bytes, refs: Collection[str], since: float) -> bool:
        """Whether all of these are there, for a conversation that was marked since then."""
        with self._lock:
            known = self._known.get(key)
        if known is None or known.stamp != stamp or known.last_used <= since:
            return False
        return known.refs.issuperset(refs)

    def add(self, key: Key, stamp: bytes, refs: Collection[str], last_used: float) -> None:
        """These were seen there, under this stamp."""
        with self._lock:
            known = self._known.pop(key, None)
            before = known.refs if known is not None and known.stamp == stamp else frozenset[str]()
            together = before.union(refs)
            if len(together) <= _REFS:
                self._known[key] = _Known(stamp, last_used, together)
            if len(self._known) > _CONVERSATIONS:
                self._known.popitem(last=False)
