"""The record of each request: what respool did, what the provider answered and charged."""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Final

from msgspec import Struct

from ...edits import Edit, Replace
from ...errors import RespoolError
from ...facts import Facts
from ...markers import reference
from ...pricing import terms_for
from ...replay.money import priced
from ...store import RecordedEdit, RejectedRequest, RequestMode, RequestRecord, Store
from ..answers.billing import Bill, Sizes, bill_of, observed_bill
from ..answers.calibration import Calibrations
from ..answers.usage import Told, UsageReader
from ..forwarding.asgi import Headers
from ..forwarding.handling import About, How
from .decision import BYPASSED, Decision
from .keeping import NO_FACTS
from .reading import Asked

_log = logging.getLogger(__name__)
_ENCODING = b"content-encoding"
_GATHER: Final = 0.2  # seconds
_MOST_WAITING: Final = 20_000  # answers; more in so short a time are not written down
_ID, _DRAWN = 16, 256  # characters of a record's name, and how many are drawn at once
_MOST_CASES: Final = 16  # each may hold two whole requests

Heard = Callable[[RequestRecord], None]


class Doing(Struct, frozen=True, kw_only=True):
    """One request on its way: what was asked, what went up, and how long that took."""

    asked: Asked
    decision: Decision
    milliseconds: float = 0.0
    observed: bool = False
    # Which of its edits no request of the conversation had before; asked once, when it is over.
    untold: Callable[[Decision], tuple[Edit, ...]] = lambda decision: decision.edits
    owed: Callable[[Decision], Facts] = lambda _: NO_FACTS  # what the store was not told yet
    about: About | None = None  # what is logged of it
    heard: Callable[[Decision, Told], None] | None = None  # who else wants to know of the answer


def _ids() -> Iterator[str]:
    """Names for records, many drawn at once: each draw gives the interpreter's lock away."""
    while True:
        drawn = secrets.token_hex(_DRAWN * _ID // 2)
        yield from (drawn[at : at + _ID] for at in range(0, len(drawn), _ID))


class Recording:
    """Writes requests down once their answers have passed."""

    def __init__(self, store: Store, heard: Heard | None = None) -> None:
        self._store = store
        self._heard = heard
        self._over: deque[tuple[Doing, tuple[Edit, ...], int, Told]] = deque(maxlen=_MOST_WAITING)
        self._cases: deque[RejectedRequest] = deque(maxlen=_MOST_CASES)
        self._lock = Lock()
        self._stopping = Event()
        self._thread: Thread | None = None
        self._ids = _ids()
        self.calibrations = Calibrations()

    def close(self) -> None:
        """Write down what waits, and let go of the store."""
        self.settle()
        self._store.close()

    def settle(self) -> None:
        """Write down what waits; nothing is written down any more."""
        with self._lock:
            self._stopping.set()
            thread = self._thread
        if thread is not None:
            thread.join()

    def over(self, doing: Doing, status: int, how: How, answer: UsageReader | None) -> None:
        """A request has had its answer; it is written down aside."""
        told = Told() if answer is None else answer.end()
        if doing.heard is not None and not doing.asked.counting:
            doing.heard(doing.decision, told)
        recorded = bool(doing.decision.conversation) and not doing.asked.counting
        # Now, and not when it is written: the next request may be over before that.
        new = doing.untold(doing.decision) if recorded else ()
        if doing.about is not None:
            doing.about.usage, doing.about.edits = told.usage, len(new)
            doing.about.answered_by, doing.about.stop = told.model or "", told.stop or ""
        if recorded:
            self._over.append((doing, new, status if how != "unreachable" else 0, told))
            self._begin()

    def refused(self, case: RejectedRequest) -> None:
        """A projection was refused whose original passed: all that is needed to see it again."""
        self._cases.append(case)
        self._begin()

    def _begin(self) -> None:
        """Have the thread that writes; it looks now and then, so that no request wakes it."""
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._stopping.is_set():
                    self._thread = Thread(target=self._run, name="respool-records", daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(_GATHER):
            self._write_all()
        self._write_all()

    def _write_all(self) -> None:
        with suppress(IndexError):
            while True:
                self._reproduce(self._cases.popleft())
        with suppress(IndexError):
            while True:
                self._write(*self._over.popleft())

    def _reproduce(self, case: RejectedRequest) -> None:
        try:
            self._store.add_rejected(case)
        except RespoolError as error:
            _log.warning("A refused projection could not be written down: %s", error)
        except Exception:  # noqa: BLE001 - the records of others are written by the same thread
            _log.exception("A refused projection could not be written down")

    def _write(self, doing: Doing, new: tuple[Edit, ...], status: int, told: Told) -> None:
        try:
            record = self._record(doing, new, status, told)
            if self._heard is not None:
                self._heard(record)
            self._store.record(record)
        except Exception:  # noqa: BLE001 - it is over already, and nobody waits for this
            _log.exception("A request could not be written down")

    def _record(
        self, doing: Doing, new: tuple[Edit, ...], status: int, told: Told
    ) -> RequestRecord:
        asked, decision = doing.asked, doing.decision
        bill = self._bill(doing, told)
        return RequestRecord(
            id=next(self._ids),
            time=asked.time,
            owner=asked.owner,
            conversation=decision.conversation,
            session=decision.session,
            format=asked.format,
            model=decision.model,
            mode=_mode(doing),
            status=status,
            tokens_before=decision.before,
            tokens_after=decision.after,
            saved=decision.before - decision.after,
            usage=told.usage,
            cost_before=None if bill is None else bill.without,
            cost_after=None if bill is None else bill.paid,
            cost_uncached=None if bill is None else bill.uncached,
            epochs=decision.epochs,
            prefix_break=_break(decision, new),
            fallback=decision.why,
            again="" if doing.about is None else doing.about.again,
            milliseconds=round(doing.milliseconds, 3),
            repairs=tuple(f"{one.code} {one.place}: {one.done}" for one in decision.repairs),
            failures=dict(decision.failures),
            refetched=decision.noticed.refetched,
            loops=decision.noticed.loops,
            edits=tuple(_made(edit, decision.dropped) for edit in new),
            edited=len(decision.edits),
            terms=decision.terms,
            sent_as="original" if decision.kind == "original" or doing.observed else "projection",
            prefix=decision.prefix if 0 < status < 400 else "",
            parent=decision.parent,
            facts=doing.owed(decision),
        )

    def _bill(self, doing: Doing, told: Told) -> Bill | None:
        usage, decision, format = told.usage, doing.decision, doing.asked.format
        if usage is None:
            return None
        if decision.kind == "projection":
            sent = decision.before if doing.observed else decision.after
            self.calibrations.note(format, decision.model, sent, usage.prompt)
        terms = priced(terms_for(format, decision.model), format, decision.model, doing.asked.time)
        last = decision.last
        warm = bool(last.time) and decision.moment == ""
        epoch = decision.epochs > last.epochs
        marked = decision.marks != "none"
        sizes = Sizes(decision.before, decision.after, last.size, warm, epoch, marked)
        if decision.kind == "original":
            sizes = Sizes(0, 0)  # it cost what it would have cost
        bill = observed_bill if doing.observed else bill_of
        return bill(usage, sizes, terms)


class Listener:
    """Listens to one answer: its status, and what it tells of its usage."""

    def __init__(
        self, recording: Recording, doing: Doing, passed: Callable[[], None] | None = None
    ) -> None:
        self._recording = recording
        self._doing = doing
        self._passed = passed  # told when the provider takes the request
        self._status = 0
        self._answer: UsageReader | None = None

    def began(self, status: int, headers: Headers) -> None:
        """The response begins."""
        self._status = status
        encoding = dict(headers).get(_ENCODING, b"").decode("latin-1")
        self._answer = UsageReader(self._doing.asked.format, encoding)
        passed, self._passed = self._passed, None  # it may hold a whole body
        if status < 400 and passed is not None:
            passed()

    def seen(self, chunk: bytes) -> None:
        """The next bytes of it."""
        if self._answer is not None:
            self._answer.feed(chunk)

    def ended(self, how: How) -> None:
        """It is over."""
        if how != "replaced":
            self._recording.over(self._doing, self._status, how, self._answer)


def _made(edit: Edit, dropped: Mapping[str, str]) -> RecordedEdit:
    place = str(edit.ref)
    before = edit.original if isinstance(edit, Replace) else dropped.get(place, "")
    after = reference(edit.text) if isinstance(edit, Replace) else ""
    saved = getattr(edit, "saved", 0)
    return RecordedEdit(edit.reason, place, edit.evidence, saved, before, after)


def _mode(doing: Doing) -> RequestMode:
    if doing.decision.why == BYPASSED:
        return "bypassed"
    return "observed" if doing.observed else "compacted"


def _break(decision: Decision, new: tuple[Edit, ...]) -> str:
    """Why the provider's cache could not be read on; empty where it could."""
    if decision.moment:
        return decision.moment
    if not decision.last.time or decision.epochs <= decision.last.epochs:
        return ""
    return ", ".join(sorted({edit.reason for edit in new})) or "edits"
