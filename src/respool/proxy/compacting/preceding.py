"""The request that another one goes on from, as this process or another has sent it."""

from __future__ import annotations

from msgspec.structs import replace

from ...facts import MAX_LOOKBACK_REQUESTS
from ...store import ParentRequest
from .conversations import Conversation, Last
from .keeping import Keeping
from .reading import Read


class Preceding:
    """Finds what requests go on from; safe to share by threads."""

    def __init__(self, keeping: Keeping, *, shared: bool) -> None:
        self._keeping = keeping
        self._shared = shared  # other processes decide on the same conversations

    def last(self, read: Read, boundaries: list[bytes]) -> Last:
        """The request that this one goes on from: by its history, for others may run beside it."""
        if not read.found:
            known, earlier = read.conversation, boundaries[-1 - MAX_LOOKBACK_REQUESTS : -1]
            asked = True
            if self._shared or not is_at_hand(known, boundaries):
                prefixes = [prefix.hex() for prefix in (*earlier, *boundaries[-1:])]
                asked = self._keeping.look_up(known, prefixes)
            read.found.append(replace(known.last(earlier, read.terms()), asked=asked))
        return read.found[0]

    def before(self, read: Read, boundaries: list[bytes]) -> ParentRequest:
        """The request before this one, for who counts: that which it repeats, or goes on from."""
        same = read.conversation.last(boundaries[-1:], read.terms())
        return same.latest if same.exact else self.last(read, boundaries).latest


def is_at_hand(known: Conversation, boundaries: list[bytes]) -> bool:
    """Whether what a request goes on from is known without a look at the store."""
    return len(boundaries) < 2 or boundaries[-2] in known.sent
