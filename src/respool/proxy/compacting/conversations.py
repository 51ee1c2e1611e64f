"""What this process remembers of the conversations that pass: bounded, and lost without harm."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Final, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from ...edits import Edit
from ...facts import Facts
from ...store import ParentRequest

T = TypeVar("T")
Told = tuple[str, str, str]  # by what an edit is known that was told: place, reason, evidence

_putting = Lock()
_MOST: Final = 1_024  # conversations; whoever comes back after so many others is read up again
_MOST_ANSWERED: Final = 256  # prefixes of one: a fork seldom goes back further
_MOST_SENT: Final = 128  # requests of one, twice each; the store knows those before


class Last(Struct, frozen=True):
    """The request that another goes on from."""

    latest: ParentRequest = ParentRequest()
    exact: bool = False  # it is that one; else one before it, for that one is not known
    asked: bool = True  # the store could be asked for it

    @property
    def is_lost(self) -> bool:
        """Whether there was one that is not known; else there was none, or it is known."""
        return not self.exact and (bool(self.latest.time) or not self.asked)


class Conversation(Struct):
    """One conversation, as this process knows it."""

    id: str
    owner: str
    facts: Facts = Facts()
    edited: bool = False  # projections were sent that say less than the client holds
    cached_behind: bool = False  # by answers: its history is cached, though the client marks none
    # Requests that were taken, by the history that they ended: the last, and that on these terms.
    sent: dict[bytes, ParentRequest] = field(default_factory=dict[bytes, ParentRequest])
    durable: set[str] = field(default_factory=set[str])  # references of originals that are kept
    shown: set[int] = field(default_factory=set[int])  # editions whose texts are kept, to be shown
    told: set[int] = field(default_factory=set[int])  # hashes of edits that are recorded
    told_edition: int = 0  # of the last edits of which all are recorded
    told_until: int = 0  # the last record of the store's whose edits are among those
    bytes_a_token: float = 4.0  # by the last request that was counted; about, where none was
    owed: Facts = Facts()  # facts that the store could not be told yet
    read_up: bool = False  # all that the store knows of it is known here
    seen_kept: float = 0.0  # when the store was last asked whether it still has the originals
    answered: dict[bytes, None] = field(default_factory=dict[bytes, None])  # prefixes, projected
    # Prefixes that were handed out projected, and by what their request is known; None: elsewhere.
    going_up: dict[bytes, object] = field(default_factory=dict[bytes, object])

    def was_answered(self, prefix: str) -> bool:
        """Whether the model went on from a projection of just this history."""
        return bytes.fromhex(prefix) in self.answered

    def note_answered(self, prefix: str) -> None:
        """The model goes on from a projection of this history."""
        _put(self.answered, bytes.fromhex(prefix), None, _MOST_ANSWERED)

    def is_going_up(self, prefix: str, beside: object) -> bool:
        """Whether a projection of just this history goes up, or went, with another request."""
        place = bytes.fromhex(prefix)
        return place in self.going_up and (beside is None or self.going_up[place] is not beside)

    def note_going_up(self, prefix: str, request: object = None) -> None:
        """A projection of this history goes up."""
        place = bytes.fromhex(prefix)
        _put(self.going_up, place, self.going_up.get(place, request), _MOST_ANSWERED)

    def note_sent(self, prefix: str, latest: ParentRequest, parent: str = "") -> None:
        """The provider took a request that ended this history, and reads its parent's anew."""
        if latest.sent_as == "projection":
            self.note_answered(prefix)
        place = bytes.fromhex(prefix)
        for key in (place, place + latest.terms.encode()):
            here = self.sent.get(key)
            if here is None or _is_later(latest, here):
                _put(self.sent, key, latest, _MOST_SENT)
        key = bytes.fromhex(parent) + latest.terms.encode()
        before = self.sent.get(key) if parent else None
        if before is not None and before.time < latest.time:
            self.sent[key] = replace(before, time=latest.time)

    def untold(self, edits: tuple[Edit, ...], edition: int) -> tuple[Edit, ...]:
        """Those edits that no request before had."""
        if edition and edition == self.told_edition:
            return ()
        return tuple(edit for edit in edits if hash(told_as(edit)) not in self.told)

    def note_told(self, edits: Iterable[Told]) -> None:
        """Edits are recorded, by this process or another."""
        self.told.update(map(hash, edits))

    def last(self, earlier: Sequence[bytes], terms: str) -> Last:
        """The request that one goes on from which has these histories behind it.

        Two may have ended the same history, with other models perhaps: then the one on its terms.
        """
        for back, prefix in enumerate(reversed(earlier)):
            found = self.sent.get(prefix + terms.encode()) or self.sent.get(prefix)
            if found is not None:
                return Last(found, back == 0)
        return Last()

    def last_on(self, earlier: Sequence[bytes], terms: str) -> ParentRequest | None:
        """The latest request on these terms among those that ended these histories."""
        asked = (self.sent.get(prefix + terms.encode()) for prefix in reversed(earlier))
        return next((one for one in asked if one is not None), None)


def told_as(edit: Edit) -> Told:
    """By what an edit is known that was told."""
    return str(edit.ref), edit.reason, edit.evidence


def _is_later(latest: ParentRequest, here: ParentRequest) -> bool:
    """Whether it tells more than what is known; of the same request, a record tells less."""
    known = bool(here.output) and not latest.output
    return here.time < latest.time or (here.time == latest.time and not known)


def _put(held: dict[bytes, T], key: bytes, value: T, most: int) -> None:
    """Hold one more, and not too many; the oldest goes."""
    with _putting:
        held.pop(key, None)
        held[key] = value
        if len(held) > most:
            del held[next(iter(held))]


class Conversations:
    """The conversations of late, by their ids; safe to share by threads."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._known: OrderedDict[str, Conversation] = OrderedDict()
        self._lock = Lock()

    def get(self, id: str) -> Conversation | None:
        """The conversation with this id, if it is remembered."""
        with self._lock:
            found = self._known.get(id)
            if found is not None:
                self._known.move_to_end(id)
            return found

    def add(self, conversation: Conversation) -> Conversation:
        """Remember a conversation; of two that come at once, the first."""
        with self._lock:
            found = self._known.setdefault(conversation.id, conversation)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
            return found
