"""What is written down of each request: what clew did, what the provider answered and charged."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct

from ..edits import Edit, Replace
from ..errors import ClewError
from ..marker import reference
from ..prices import terms_for
from ..replay.money import priced
from ..store import EditMade, Mode, Record, Reproduction, Store, Usage
from .asgi import Headers
from .billing import Bill, Sizes, bill_of, observed_bill
from .calibration import Calibrations
from .deciding import Asked, Decision
from .handling import About, How
from .usage import Told, UsageReader

_log = logging.getLogger(__name__)
_ENCODING = b"content-encoding"

Heard = Callable[[Record], None]


class Doing(Struct, frozen=True, kw_only=True):
    """One request on its way: what was asked, what went up, and how long that took."""

    asked: Asked
    decision: Decision
    new: tuple[Edit, ...] = ()  # edits that no request of the conversation had before
    milliseconds: float = 0.0
    observed: bool = False
    about: About | None = None  # what is logged of it


class Recording:
    """Writes requests down once their answers have passed."""

    def __init__(self, store: Store, heard: Heard | None = None) -> None:
        self._store = store
        self._heard = heard
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="clew-records")
        self.calibrations = Calibrations()

    def close(self) -> None:
        """Write down what waits, and let go of the store."""
        self._aside.shutdown(wait=True)
        self._store.close()

    def over(self, doing: Doing, status: int, how: How, answer: UsageReader | None) -> None:
        """A request has had its answer; it is written down aside."""
        told = Told() if answer is None else answer.end()
        if doing.about is not None:
            doing.about.usage = _usage(told)
            doing.about.answered_by, doing.about.stop = told.model or "", told.stop or ""
        if doing.decision.conversation and not doing.asked.counting:
            self._aside.submit(self._write, doing, status if how != "unreachable" else 0, told)

    def refused(self, case: Reproduction) -> None:
        """A projection was refused whose original passed: all that is needed to see it again."""
        self._aside.submit(self._reproduce, case)

    def _reproduce(self, case: Reproduction) -> None:
        try:
            self._store.reproduce(case)
        except ClewError as error:
            _log.warning("A refused projection could not be written down: %s", error)

    def _write(self, doing: Doing, status: int, told: Told) -> None:
        try:
            record = self._record(doing, status, told)
            if self._heard is not None:
                self._heard(record)
            self._store.record(record)
        except Exception:  # noqa: BLE001 - it is over already, and nobody waits for this
            _log.exception("A request could not be written down")

    def _record(self, doing: Doing, status: int, told: Told) -> Record:
        asked, decision = doing.asked, doing.decision
        bill = self._bill(doing, told)
        return Record(
            id=secrets.token_hex(8),
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
            usage=_usage(told),
            cost_before=None if bill is None else bill.without,
            cost_after=None if bill is None else bill.paid,
            cost_uncached=None if bill is None else bill.uncached,
            epochs=decision.epochs,
            prefix_break=_break(doing),
            fallback=decision.why,
            milliseconds=round(doing.milliseconds, 3),
            repairs=tuple(f"{one.code} {one.place}: {one.done}" for one in decision.repairs),
            failures=dict(decision.failures),
            refetched=decision.noticed.refetched,
            loops=decision.noticed.loops,
            edits=tuple(_made(edit, decision.dropped) for edit in doing.new),
            edited=len(decision.edits),
            terms=decision.terms,
            sent_as="original" if decision.kind == "original" or doing.observed else "projection",
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
        sizes = Sizes(decision.before, decision.after, last.size, warm, epoch)
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
        if status < 400 and self._passed is not None:
            self._passed()

    def seen(self, chunk: bytes) -> None:
        """The next bytes of it."""
        if self._answer is not None:
            self._answer.feed(chunk)

    def ended(self, how: How) -> None:
        """It is over."""
        if how != "replaced":
            self._recording.over(self._doing, self._status, how, self._answer)


def _made(edit: Edit, dropped: Mapping[str, str]) -> EditMade:
    place = str(edit.ref)
    before = edit.original if isinstance(edit, Replace) else dropped.get(place, "")
    after = reference(edit.text) if isinstance(edit, Replace) else ""
    saved = getattr(edit, "saved", 0)
    return EditMade(edit.reason, place, edit.evidence, saved, before, after)


def _mode(doing: Doing) -> Mode:
    if doing.decision.why == "bypassed":
        return "bypassed"
    return "observed" if doing.observed else "compacted"


def _break(doing: Doing) -> str:
    """Why the provider's cache could not be read on; empty where it could."""
    decision = doing.decision
    if decision.moment:
        return decision.moment
    if not decision.last.time or decision.epochs <= decision.last.epochs:
        return ""
    return ", ".join(sorted({edit.reason for edit in doing.new})) or "edits"


def _usage(told: Told) -> Usage | None:
    found = told.usage
    if found is None:
        return None
    return Usage(found.input, found.cache_read, found.cache_write, found.output)
