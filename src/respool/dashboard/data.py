"""What the dashboard shows, as data: read from the store, nothing changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from ..store import EditMade, Record, SQLiteStore, StoreUnavailable, Total
from . import asking
from .around import Around, Breaker, Calibrated, Setting, settings_of
from .asking import Query, Unanswerable
from .branches import branches

RANGES: Final[Mapping[str, tuple[float, float]]] = {  # how far back, in steps of how many seconds
    "hour": (3_600.0, 60.0),
    "day": (86_400.0, 1_800.0),
    "week": (604_800.0, 21_600.0),
    "month": (2_592_000.0, 86_400.0),
}
_PAGE: Final = 50
_LARGEST_PAGE: Final = 200
_REQUESTS: Final = 500  # of a conversation at a time
_NOTABLE: Final = 100
_UNSHOWN: Final = ("owner", "terms", "edits", "prefix", "parent", "facts")
_TEXT: Final = 400_000  # characters of one text: more than anybody reads


class Health(Struct, frozen=True, kw_only=True):
    """How the store is."""

    path: str
    bytes: int
    dropped: int  # records that could not be written
    moved_aside: list[str]  # damaged files in whose place new ones were begun
    trouble: str  # why it cannot be read, or could not be written to; empty: it is well


class Overview(Struct, frozen=True, kw_only=True):
    """All in all, over a stretch of time."""

    version: str
    observe: bool
    since: float
    step: float
    totals: list[Total]
    latest: float | None  # when the latest request came that is known of, however long ago
    breaker: Breaker
    calibrations: tuple[Calibrated, ...]
    store: Health


class Listed(Struct, frozen=True):
    """One edit of a request."""

    at: int  # which of its edits
    reason: str
    place: str
    evidence: str
    saved: int
    has_before: bool
    has_after: bool
    replaces: bool  # something stands in its place, kept or not; else nothing does


class Text(Struct, frozen=True):
    """One side of an edit."""

    text: str
    length: int  # characters of all of it


class Shown(Struct, frozen=True):
    """One edit with what stood there and what stands there; None: that is not kept."""

    edit: Listed
    before: Text | None
    after: Text | None


class Data:
    """Answers questions from the store; the owner of the store's file may see all of it."""

    def __init__(
        self, store: SQLiteStore, proxy: Around, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._proxy = proxy
        self._clock = clock
        self.endpoints: Mapping[str, Callable[[Query], Any]] = {
            "overview": self.overview,
            "conversations": self.conversations,
            "requests": self.requests,
            "edits": self.edits,
            "edit": self.edit,
            "notable": self.notable,
            "settings": self.settings,
        }

    def overview(self, query: Query) -> Overview:
        """Totals over time, and how the proxy and its store stand."""
        since, until, step = self._time_range(query)
        totals, latest, trouble = list[Total](), None, ""
        try:
            latest = next((one.last for one in self._store.conversations(None, limit=1)), None)
            totals = self._store.totals(None, since=since, until=until, step=step)
            if why := self._store.last_error():
                trouble = str(StoreUnavailable(self._store.path, why))
        except StoreUnavailable as error:
            trouble = str(error)
        around = self._proxy
        return Overview(
            version=around.version, observe=around.observe, since=since, step=step,
            totals=totals, latest=latest, breaker=around.breaker(),
            calibrations=around.calibrations(), store=self._health(trouble),
        )  # fmt: skip

    def conversations(self, query: Query) -> dict[str, Any]:
        """A page of conversations, the latest first, and where the next one begins."""
        limit = asking.whole(query, "limit", _PAGE, _LARGEST_PAGE)
        last, id = asking.moment(query, "last"), asking.whole(query, "id", 0, asking.LARGEST)
        behind = None if last is None else (last, id)
        found = self._store.conversations(None, behind=behind, limit=limit)
        more = bool(found) and len(found) == limit
        return {
            "conversations": [_without_owner(one) for one in found if one.requests],
            "next": {"last": found[-1].last, "id": str(found[-1].id)} if more else None,
        }

    def requests(self, query: Query) -> dict[str, Any]:
        """The requests of a conversation in their order, later than a time."""
        conversation = asking.name(query, "conversation")
        after = asking.moment(query, "after") or 0.0
        found = self._store.requests(conversation, None, after=after, limit=_REQUESTS)
        at = branches(self._store.lineage(conversation, None)) if found else {}
        told = [{**_without_owner(one), "branch": at.get(one.id, 1)} for one in found]
        return {"requests": told, "more": len(found) == _REQUESTS}

    def notable(self, query: Query) -> dict[str, Any]:
        """Requests that broke a prefix, failed, fell back or fetched again, the latest first."""
        since, _, _ = self._time_range(query)
        behind = asking.moment(query, "behind")
        found = self._store.notable(None, since=since, behind=behind, limit=_NOTABLE)
        return {"requests": [_without_owner(one) for one in found], "more": len(found) == _NOTABLE}

    def edits(self, query: Query) -> dict[str, Any]:
        """The edits that a request was the first to have."""
        made = self._edits(query)
        kept = self._store.readable_refs({ref for one in made for ref in (one.ref, one.after) if ref}, None)
        return {"edits": [_listed(at, one, kept) for at, one in enumerate(made)]}

    def edit(self, query: Query) -> Shown:
        """One edit, with what stood there and what stands there."""
        made, at = self._edits(query), asking.whole(query, "at", 0, asking.LARGEST)
        if at >= len(made):
            raise Unanswerable(404, "That request has no such edit.")
        one = made[at]
        before, after = self._text(one.ref), self._text(one.after)
        kept = frozenset(ref for ref in (one.ref, one.after) if ref)
        return Shown(_listed(at, one, kept), before, after)

    def settings(self, _query: Query) -> dict[str, list[Setting]]:
        """The settings in force."""
        return {"settings": settings_of(self._proxy.policy)}

    def _edits(self, query: Query) -> tuple[EditMade, ...]:
        found = self._store.edits(asking.name(query, "request"), None)
        if found is None:
            raise Unanswerable(404, "There is no such request, or it was forgotten.")
        return found

    def _text(self, ref: str) -> Text | None:
        text = self._store.original(ref, None) if ref else None
        if text is None:
            return None
        # Agents cut texts in the middle of a character; JSON has no halves.
        sound = text[:_TEXT].encode("utf-8", "replace").decode("utf-8")
        return Text(sound, len(text))

    def _time_range(self, query: Query) -> tuple[float, float, float]:
        """From when to when, in which steps: whole ones, so that few answers differ."""
        named = query.get("range", "day")
        if named not in RANGES:
            raise Unanswerable(400, f"range has to be one of {', '.join(RANGES)}.")
        back, step = RANGES[named]
        until = (self._clock() // step + 1) * step
        return until - back, until, step

    def _health(self, trouble: str) -> Health:
        store = self._store
        try:
            beside = store.path.with_name(f"{store.path.name}-wal")
            size = store.path.stat().st_size + (beside.stat().st_size if beside.exists() else 0)
            aside = [path.name for path in store.quarantined_files()]
        except OSError:
            size, aside = 0, []
        return Health(
            path=str(store.path), bytes=size, dropped=store.dropped, moved_aside=aside,
            trouble=trouble,
        )  # fmt: skip


def _listed(at: int, one: EditMade, stored: frozenset[str]) -> Listed:
    return Listed(
        at, one.reason, one.place, one.evidence, one.saved, one.ref in stored, one.after in stored,
        bool(one.after),
    )  # fmt: skip


def _without_owner(one: Struct | Record) -> dict[str, Any]:
    """What is known, without whose key it was: not even its hash leaves the store."""
    told: dict[str, Any] = msgspec.to_builtins(one)
    return {key: value for key, value in told.items() if key not in _UNSHOWN}
