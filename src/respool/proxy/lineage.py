"""Lineage: the requests of a conversation by the hashes of their histories, and parent requests."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ..store import SentRequest

_MAX_ANSWERED: Final = 256  # prefixes of one conversation: a fork seldom goes back further
_MAX_ACCEPTED: Final = 128  # requests of one, with two keys each; the store knows earlier ones

_T = TypeVar("_T")
_lock = Lock()


class ParentRequest(Struct, frozen=True):
    """The request that another one extends."""

    latest: SentRequest = SentRequest()
    is_exact: bool = False  # else an earlier ancestor, as the parent itself is not known
    was_looked_up: bool = True  # the store could be asked for it

    @property
    def is_lost(self) -> bool:
        """True if there may have been a parent request that is not known."""
        return not self.is_exact and (bool(self.latest.time) or not self.was_looked_up)


class Lineage:
    """The requests of one conversation, as far as this process knows them; bounded."""

    def __init__(self) -> None:
        # By prefix: the last accepted request, and by prefix and terms the last one on those terms.
        self.accepted: dict[bytes, SentRequest] = {}
        self._answered: dict[bytes, None] = {}  # prefixes of projections
        self._in_flight: dict[bytes, object] = {}  # prefixes of projections, and their requests
        self._claims: dict[bytes, tuple[str, SentRequest]] = {}  # with who made them

    def was_answered(self, prefix: str, besides: str = "") -> bool:
        """True if the model answered a projection of exactly this history, or may do so.

        A claim of the request `besides` does not count.
        """
        return bytes.fromhex(prefix) in self._answered or self.is_claimed(prefix, besides)

    def is_claimed(self, prefix: str, besides: str) -> bool:
        """True if another request has claimed exactly this history."""
        held = self._claims.get(bytes.fromhex(prefix))
        return held is not None and held[0] != besides

    def note_claim(self, prefix: str, by: str, sent: SentRequest) -> None:
        """A request has claimed this history; its record, if there is one, knows less."""
        place = bytes.fromhex(prefix)
        _put(self._claims, place, (by, sent), _MAX_ACCEPTED)
        recorded = self.accepted.get(place)
        if recorded is not None and recorded.time == sent.time:
            self.note_accepted(prefix, sent)

    def is_in_flight(self, prefix: str, besides: object) -> bool:
        """True if a projection of this history is, or was, in flight with another request."""
        key, held = bytes.fromhex(prefix), self._in_flight
        return key in held and (besides is None or held[key] is not besides)

    def note_in_flight(self, prefix: str, request: object = None) -> None:
        """A projection of this history is sent."""
        key = bytes.fromhex(prefix)
        _put(self._in_flight, key, self._in_flight.get(key, request), _MAX_ANSWERED)

    def note_accepted(self, prefix: str, latest: SentRequest, parent: str = "") -> None:
        """The provider accepted a request with this history, and read its parent again."""
        place = bytes.fromhex(prefix)
        if latest.sent_as == "projection":
            _put(self._answered, place, None, _MAX_ANSWERED)
        for key in (place, place + latest.terms.encode()):
            here = self.accepted.get(key)
            if here is None or _is_newer(latest, here):
                _put(self.accepted, key, latest, _MAX_ACCEPTED)
        key = bytes.fromhex(parent) + latest.terms.encode()
        before = self.accepted.get(key) if parent else None
        if before is not None and before.time < latest.time:
            self.accepted[key] = replace(before, time=latest.time)

    def is_known(self, boundaries: Sequence[bytes]) -> bool:
        """True if the parent of a request with these boundaries is known, or it has none."""
        return len(boundaries) < 2 or boundaries[-2] in self.accepted

    def parent(self, earlier: Sequence[bytes], terms: str) -> ParentRequest:
        """The parent of a request with these prefixes, or the nearest known ancestor.

        Two requests may have had the same history with different models. The one on the same terms
        counts.
        """
        for back, prefix in enumerate(reversed(earlier)):
            found = self.accepted.get(prefix + terms.encode()) or self.accepted.get(prefix)
            if found is None and prefix in self._claims:  # answered, but not recorded yet
                found = self._claims[prefix][1]
            if found is not None:
                return ParentRequest(found, back == 0)
        return ParentRequest()

    def latest_on(self, earlier: Sequence[bytes], terms: str) -> SentRequest | None:
        """The latest request on these terms with one of these prefixes."""
        asked = (self.accepted.get(prefix + terms.encode()) for prefix in reversed(earlier))
        return next((one for one in asked if one is not None), None)


def parent_prefix(boundaries: Sequence[bytes]) -> str:
    """The hash of the parent request's history; empty: there is none."""
    return boundaries[-2].hex() if len(boundaries) > 1 else ""


def _is_newer(latest: SentRequest, here: SentRequest) -> bool:
    """True if `latest` is later; of the same request, a stored record knows less."""
    is_fuller = bool(here.output) and not latest.output
    return here.time < latest.time or (here.time == latest.time and not is_fuller)


def _put(held: dict[bytes, _T], key: bytes, value: _T, max_size: int) -> None:
    """Add an entry; the oldest is dropped if there are too many."""
    with _lock:
        held.pop(key, None)
        held[key] = value
        if len(held) > max_size:
            del held[next(iter(held))]
