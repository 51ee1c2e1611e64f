"""The recorder: writes the record of each request, and the projections that a provider refused."""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Any, Final, cast

from msgspec import json, structs

from ..edits import Edit, Replace
from ..engine import Session
from ..errors import RespoolError
from ..facts import Facts
from ..markers import reference
from ..plugins import installed_version, pass_name
from ..policy import NAMES, Policy
from ..pricing import CacheTerms, priced, terms_for
from ..store import RecordedEdit, RejectedRequest, RequestMode, RequestRecord, Store
from ..store.savings import max_scale
from ..tools import Tool, Tools
from .billing import (
    CacheLoss,
    Calibrations,
    RequestCost,
    Sizes,
    cache_loss,
    cost_of,
    observed_cost,
)
from .decide import AS_THEY_CAME
from .middleware import NO_FACTS, Decision, ErrorResponse, InFlight, ParsedRequest
from .router import CLOUD_PATHS

_log = logging.getLogger(__name__)
_FLUSH_SECONDS: Final = 0.2
_MAX_WAITING: Final = 20_000  # requests; more in so short a time are not recorded
_ID_CHARS, _IDS_DRAWN = 16, 256  # ids are drawn many at a time: each draw releases the GIL
_MAX_CACHING: Final = 1_024  # models
_MAX_REPRODUCTIONS: Final = 16  # that wait; each may hold two whole requests
_MAX_ERROR_BYTES: Final = 4_096  # of an error response

RecordListener = Callable[[RequestRecord], None]
PendingFacts = Callable[[Decision], Facts]


def _no_facts(_decision: Decision) -> Facts:
    return NO_FACTS


class Recorder:
    """Writes records from a thread of its own, once the responses have ended."""

    def __init__(self, store: Store, listener: RecordListener | None = None) -> None:
        self._store = store
        self._listener = listener
        self._ended: deque[tuple[InFlight, PendingFacts]] = deque(maxlen=_MAX_WAITING)
        self._rejected: deque[RejectedRequest] = deque(maxlen=_MAX_REPRODUCTIONS)
        self._lock = Lock()
        self._stopping = Event()
        self._thread: Thread | None = None
        self._ids = _ids()
        self.calibrations = Calibrations()
        self._caching: set[tuple[str, str]] = set()  # models whose provider has read from a cache

    def close(self) -> None:
        """Write what waits, and close the store."""
        self.stop()
        self._store.close()

    def stop(self) -> None:
        """Write what waits; nothing is recorded afterwards."""
        with self._lock:
            self._stopping.set()
            thread = self._thread
        if thread is not None:
            thread.join()

    def record(self, flight: InFlight, pending_facts: PendingFacts = _no_facts) -> None:
        """Record a request soon; its pending facts are asked for when the record is written."""
        self._ended.append((flight, pending_facts))
        self._start()

    def count(self, owner: str, time: float) -> None:
        """Count a request of a team that was not read, for its quota."""
        self._store.record(
            RequestRecord(
                id=secrets.token_hex(_ID_CHARS // 2),
                time=time,
                owner=owner,
                conversation="",
                format="",
            )
        )

    def reproduce(self, case: RejectedRequest) -> None:
        """Store a projection that was refused although its original was accepted."""
        self._rejected.append(case)
        self._start()

    def _start(self) -> None:
        """Start the thread; it polls, so that no request has to wake it."""
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._stopping.is_set():
                    self._thread = Thread(target=self._run, name="respool-records", daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(_FLUSH_SECONDS):
            self._write_all()
        self._write_all()

    def _write_all(self) -> None:
        with suppress(IndexError):
            while True:
                self._write_rejected(self._rejected.popleft())
        with suppress(IndexError):
            while True:
                self._write(*self._ended.popleft())

    def _write_rejected(self, case: RejectedRequest) -> None:
        try:
            self._store.add_rejected(case)
        except RespoolError as error:
            _log.warning("A refused projection could not be stored: %s", error)
        except Exception:  # noqa: BLE001 - the same thread writes the records of others
            _log.exception("A refused projection could not be stored")

    def _write(self, flight: InFlight, pending_facts: PendingFacts) -> None:
        try:
            record = self._record(flight, pending_facts(flight.decision))
            if self._listener is not None and record.conversation:
                self._listener(record)
            self._store.record(record)
        except Exception:  # noqa: BLE001 - nobody waits for this any more
            _log.exception("A request could not be recorded")

    def _record(self, flight: InFlight, facts: Facts) -> RequestRecord:
        request, decision = flight.request, flight.decision
        cost, loss = self._cost(flight)
        is_original = decision.kind == "original" or flight.is_observed
        return RequestRecord(
            id=next(self._ids),
            time=request.time,
            owner=request.owner,
            conversation=decision.identity.conversation,
            session=decision.identity.session,
            format=request.format,
            model=decision.identity.model,
            agent=decision.identity.agent,
            project=decision.identity.project,
            prompt=_kept_prompt(flight),
            mode=_mode(flight),
            status=flight.status,
            tokens_before=decision.tokens_before,
            tokens_after=decision.tokens_after,
            saved=decision.tokens_before - decision.tokens_after,
            usage=flight.response.usage,
            cost_before=None if cost is None else cost.without,
            cost_after=None if cost is None else cost.paid,
            cost_uncached=None if cost is None else cost.uncached,
            epochs=decision.epochs,
            prefix_break=_prefix_break(decision, flight.new_edits),
            fallback=decision.reason,
            again=flight.retry,
            milliseconds=round(flight.milliseconds, 3),
            repairs=tuple(
                f"{one.code} {one.place}: {one.done}" for one in decision.findings.repairs
            ),
            failures=dict(decision.findings.failures),
            refetched=decision.findings.refetched,
            loops=decision.findings.loops,
            edits=tuple(_edit_made(edit, decision) for edit in flight.new_edits),
            edited=len(decision.edits),
            waiting_offers=decision.waiting[0],
            waiting_tokens=decision.waiting[1],
            error=flight.error,
            terms=decision.identity.terms,
            sent_as="original" if is_original else "projection",
            prefix=decision.identity.prefix if 0 < flight.status < 400 else "",
            parent=decision.identity.parent,
            head_cost=loss.head_cost,
            expired=loss.expired,
            expired_cost=loss.expired_cost,
            missed=loss.missed,
            missed_cost=loss.missed_cost,
            tools=dict(decision.tools),
            called=decision.called,
            arm=request.arm,
            unit=request.unit,
            repeats=decision.findings.repeats,
            facts=facts,
        )

    def _cost(self, flight: InFlight) -> tuple[RequestCost | None, CacheLoss]:
        usage, decision = flight.response.usage, flight.decision
        format, parent = flight.request.format, decision.identity.parent_request
        if usage is None:
            return None, CacheLoss()
        if decision.kind == "projection":
            is_observed = flight.is_observed
            sent = decision.tokens_before if is_observed else decision.tokens_after
            self.calibrations.note(format, decision.identity.model, sent, usage.prompt)
        if usage.cache_read and len(self._caching) < _MAX_CACHING:
            self._caching.add((format, decision.identity.model))
        terms = _terms(flight, format)
        sizes = Sizes(
            decision.tokens_before,
            decision.tokens_after,
            parent=parent.size,
            is_warm=bool(parent.time)
            and decision.moment == ""
            and (format, decision.identity.model) in self._caching,
            is_epoch=decision.epochs > parent.epochs,
            has_breakpoints=decision.breakpoints != "none",
            max_scale=max_scale(format, decision.identity.model) / 1000,
        )
        if decision.kind == "original":
            sizes = Sizes(0, 0)  # it cost what it would have cost
        cost = (observed_cost if flight.is_observed else cost_of)(usage, sizes, terms)
        if flight.is_observed:
            sizes = structs.replace(sizes, after=sizes.before, is_epoch=False)
        loss = cache_loss(usage, sizes, terms, head=decision.head, moment=decision.moment)
        return cost, loss


def _terms(flight: InFlight, format: str) -> CacheTerms:
    """The terms of the model asked for.

    Deployments and profiles of clouds have any name: there the model that responded counts, as for
    a request that was not understood. A local server may respond with the name of a model that it
    is not.
    """
    asked, model = flight.decision.identity.model, flight.response.model
    terms = priced(terms_for(format, asked), format, asked, flight.request.time)
    is_cloud = flight.request.path.startswith(CLOUD_PATHS)
    if terms.dollars is None and model and (is_cloud or not asked):
        return priced(terms_for(format, model), format, model, flight.request.time)
    return terms


def _ids() -> Iterator[str]:
    """Random ids of records."""
    while True:
        drawn = secrets.token_hex(_IDS_DRAWN * _ID_CHARS // 2)
        yield from (drawn[at : at + _ID_CHARS] for at in range(0, len(drawn), _ID_CHARS))


def _edit_made(edit: Edit, decision: Decision) -> RecordedEdit:
    place = str(edit.ref)
    tool, target = decision.calls.get(place, ("", ""))
    return RecordedEdit(
        reason=edit.reason,
        place=place,
        evidence=edit.evidence,
        saved=getattr(edit, "saved", 0),
        ref=edit.original if isinstance(edit, Replace) else decision.dropped.get(place, ""),
        after=reference(edit.text) if isinstance(edit, Replace) else "",
        tool=tool,
        target=target,
    )


def _mode(flight: InFlight) -> RequestMode:
    if flight.decision.reason in AS_THEY_CAME:
        return "bypassed"
    return "observed" if flight.is_observed else "compacted"


def _kept_prompt(flight: InFlight) -> str:
    """The first prompt; empty if no text of the request may be kept."""
    return flight.decision.identity.prompt if _mode(flight) == "compacted" else ""


def _prefix_break(decision: Decision, new: tuple[Edit, ...]) -> str:
    """The reason why the cached prefix could not be read on; empty: it could."""
    if decision.moment:
        return decision.moment
    parent = decision.identity.parent_request
    if not parent.time or decision.epochs <= parent.epochs:
        return ""
    return ", ".join(sorted({edit.reason for edit in new})) or "edits"


# --- refused projections -----------------------------------------------------------------------


def reproduction_of(
    request: ParsedRequest, refused: Decision, error: ErrorResponse, policy: Policy
) -> RejectedRequest:
    """All that a refused projection was made of, and the provider's error."""
    return RejectedRequest(
        time=request.time,
        owner=request.owner,
        conversation=refused.identity.conversation,
        format=request.format,
        model=request.model or "",
        status=error.status,
        request=request.body,
        sent=refused.body or b"",
        policy=json.encode(changed_settings(policy)).decode(),
        facts=json.encode(refused.facts.to_dict()).decode(),
        error=error.body[:_MAX_ERROR_BYTES].decode("utf-8", "replace"),
        version=installed_version(),
    )


def project_again(case: RejectedRequest) -> bytes:
    """The refused projection, made again; the user's own passes must be installed."""
    session = Session()
    history = session.parse(case.request, case.format, case.model or None)
    policy = policy_with(json.decode(case.policy))
    folded = session.fold(history, policy, Facts.from_dict(json.decode(case.facts)))
    return session.project(folded, case.request)[0]


def changed_settings(policy: Policy) -> dict[str, Any]:
    """The settings that differ from the defaults, as JSON values."""
    default = Policy()
    given = {name: getattr(policy, name) for name in NAMES}
    return {
        name: _json_value(value) for name, value in given.items() if value != getattr(default, name)
    }


def policy_with(settings: Mapping[str, Any]) -> Policy:
    """The policy with these settings."""
    declared = cast("list[dict[str, Any]]", settings.get("tools", []))
    return Policy().replace(**{**settings, "tools": Tools(Tool(**one) for one in declared)})


def _json_value(value: object) -> object:
    if isinstance(value, Tools):
        return [{key: _json_value(one) for key, one in tool.declared().items()} for tool in value]
    if isinstance(value, tuple):
        return [_json_value(one) for one in cast("tuple[object, ...]", value)]
    return pass_name(value) if callable(value) else value
