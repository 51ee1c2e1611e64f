"""The compactor: middleware that compacts requests in time, and retries what a provider refuses."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import count
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from ..errors import PassedThrough, RespoolError
from ..store.location import LOCK_TIMEOUT
from .asgi import Headers
from .auth import is_signed, keyed_hash, owner_of
from .breaker import BreakerState, CircuitBreaker, Permit, TeamBreakers
from .conversation import session_id
from .decide import (
    AS_THEY_CAME,
    BYPASSED,
    LEFT_ALONE,
    OBSERVED,
    OVER_QUOTA,
    PAUSED,
    SIGNED,
    Decider,
)
from .holdout import draw_arm
from .log import CompactionSummary, Outcome
from .middleware import (
    FALLBACK_REASONS,
    UNCLEAR_STATUSES,
    Decision,
    ErrorResponse,
    InFlight,
    ParsedRequest,
    Retry,
)
from .provider_errors import ProviderError, classify_error
from .recorder import Recorder, reproduction_of
from .server_options import CompactionOptions
from .usage import FRAMED_TYPE, reader_for

_T = TypeVar("_T")

Mode = Literal["compact", "observe", "pause"]  # pause: every request is sent as it came
BYPASS_HEADER: Final = b"x-respool-bypass"
SAVED_HEADER: Final = b"x-respool-saved"
SENT_HEADER: Final = b"x-respool-sent"
PASSED_THROUGH: Final = "passed through"
_MAX_MODEL_CHARS: Final = 200  # in the log
_FALSE: Final = frozenset({b"", b"0", b"false", b"no", b"off"})
_IMMEDIATE_BYTES: Final = 16 * 1024  # below, a decision in the event loop is faster than a thread
_SIGNATURE_ERROR: Final = b"bound to a different conversation"  # Anthropic, on signed reasoning
_SMALLER: Final = 0.8  # of a prompt that did not fit, if the provider names no limit
_FIT_SECONDS: Final = 4.0  # after the deadline, for a projection whose original may not fit
# For the edits in force; then the bytes that came are sent. A store waits for a lock meanwhile.
_FALLBACK_SECONDS: Final = LOCK_TIMEOUT + 0.5
_HUNG_SECONDS: Final = 60.0  # after which a late decision counts as one that never ends
_MAX_LATE: Final = 1_024  # conversations that were late at their first request
_WRAPPER: Final = "generateContentRequest"  # in Gemini's countTokens, around a whole request
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_log = logging.getLogger(__name__)


class Compactor:
    """Compacts requests; if that is late or fails, sends the edits in force or the original.

    The mode can be switched at any time. An observer decides on observed requests, and its
    projections are never sent. The decider that compacts notes that their originals were.
    """

    reads_bodies = True

    def __init__(
        self,
        decider: Decider,
        recorder: Recorder,
        options: CompactionOptions,
        *,
        salt: Callable[[], bytes],
        clock: Callable[[], float] = time.time,
        observer: Decider | None = None,
    ) -> None:
        self._decider = decider
        self._observer = observer or decider  # may be the decider if the mode is never switched
        self.mode: Mode = "observe" if options.observe else "compact"
        self._has_acted = not options.observe  # the decider may have sent projections
        self._recorder = recorder
        self._options = options
        self._salt = salt
        self._clock = clock
        # A user's own pass may take any time, which the event loop does not have.
        own = [one for one in options.policy.passes or () if not isinstance(one, str)]
        self._immediate_bytes = 0 if own else _IMMEDIATE_BYTES
        self.breaker = CircuitBreaker(time.monotonic)  # of requests without a team
        self._team_breakers = TeamBreakers(time.monotonic)
        # By conversation: the first late decision, and when it was submitted.
        self._late: OrderedDict[str, tuple[asyncio.Future[Decision], float]] = OrderedDict()
        self._numbers = count(1)
        self._executor = Executor(options.threads, "respool")
        self._fallback_executor = Executor(2, "respool-fallback")
        self._ahead_executor = Executor(1, "respool-ahead")

    async def start(self) -> None:
        """Nothing to start: threads start when they are needed."""

    async def stop(self) -> None:
        """Write all facts and records; decisions that still run are not needed any more."""
        self._executor.close()
        self._fallback_executor.close()
        self._ahead_executor.close()
        await asyncio.to_thread(self._decider.close)
        if self._observer is not self._decider:
            await asyncio.to_thread(self._observer.close)
        await asyncio.to_thread(self._recorder.close)

    # --- the mode --------------------------------------------------------------------------

    def switch(self, mode: Mode) -> None:
        """Switch the mode for all requests from now on."""
        self.mode = mode
        self._has_acted |= mode != "observe"

    def note_pinned(self, conversation: str, pinned: bool) -> None:
        """A conversation was pinned or unpinned; the store knows it already."""
        self._decider.note_pinned(conversation, pinned)
        self._observer.note_pinned(conversation, pinned)

    def breaker_state(self) -> BreakerState:
        """The state of the circuit breakers: that of one which is not closed, if there is any."""
        states = [self.breaker.state(), *self._team_breakers.states()]
        return next((one for one in states if one.phase != "closed"), states[0])

    def _breaker_of(self, request: ParsedRequest) -> CircuitBreaker:
        if request.team is None:
            return self.breaker
        return self._team_breakers.of(request.team.owner)

    def _decider_of(self, flight: InFlight) -> Decider:
        return self._observer if flight.is_observed else self._decider

    # --- the request -----------------------------------------------------------------------

    async def request_parsed(self, request: ParsedRequest) -> InFlight:
        """Decide what is sent upstream."""
        started, mode = time.monotonic(), self.mode
        kept = BYPASSED if _is_bypassed(request.headers) else PAUSED if mode == "pause" else ""
        kept = OVER_QUOTA if request.is_over_quota else kept
        inner = _unwrapped(request)
        request = self._identified(request if inner is None else replace(request, body=inner))
        signed = is_signed(request.headers, request.query)
        can_differ = mode == "compact" and not kept and not signed
        request = await self._assigned(request, can_differ=can_differ)
        is_observed = mode == "observe" or request.arm == "held-out"
        decider = self._observer if is_observed else self._decider
        breaker = self._breaker_of(request)
        permit = None if kept or signed else breaker.acquire()
        try:
            if signed:
                decision = await self._decide_unchanged(decider, request, SIGNED)
                decision = replace(decision, body=None, edits=())
            elif kept:
                decision = await self._decide_unchanged(decider, request, kept)
            elif permit is None:
                reason = f"breaker open: {breaker.reason()}"
                decision = await self._decide_without_new_edits(decider, request, reason)
            else:
                decision = await self._decide(decider, request, permit)
        except RespoolError as error:  # the provider may read what respool cannot
            decision = Decision(reason=_reason_of(error))
        took = 1e3 * (time.monotonic() - started)
        flight = InFlight(
            request=request,
            decision=decision,
            milliseconds=took,
            permit=permit,
            is_wrapped=inner is not None,
            is_observed=is_observed,
        )
        if flight.is_observed and self._has_acted and self._observer is not self._decider:
            await self._note_observed(flight)
        return self._prepared(flight)

    async def _note_observed(self, flight: InFlight) -> None:
        """Note that the original of an observed request is sent, for the time after.

        Earlier projections may have been sent: then reasoning that was signed for them goes.
        """
        try:
            original = await self._run(self._decider.decide_original, flight.request, OBSERVED)
        except Exception:  # noqa: BLE001 - law 9: a fault of respool fails no request
            return  # the bytes that came are sent
        flight.original, flight.body = original, original.body

    def _identified(self, request: ParsedRequest) -> ParsedRequest:
        """A request with its owner, session and time."""
        salt, account = self._salt(), ""
        owner = owner_of(request.headers, request.query.encode(), salt)
        if request.team is not None:
            # One key of two teams, or two keys of one, are two accounts.
            account = keyed_hash(salt, "account", f"{request.team.owner} {owner}".encode())
            owner = request.team.owner
        session = session_id(request.headers, None, owner)
        number = next(self._numbers)
        request = replace(request, owner=owner, account=account, session=session, number=number)
        return replace(request, time=self._clock())

    async def _assigned(self, request: ParsedRequest, *, can_differ: bool) -> ParsedRequest:
        """A request with its unit and arm of the holdout.

        It has no arm if all are treated alike. If it cannot be read, it has no unit either.
        """
        if not self._options.holdout.share:
            return request
        try:
            unit = await self._run(self._decider.unit_of, request)
        except Exception:  # noqa: BLE001 - law 9: a fault of respool fails no request
            return request  # reported by the decision, which reads it again
        arm = draw_arm(unit, self._salt(), self._options.holdout) if can_differ else ""
        return replace(request, unit=unit, arm=arm)

    def _prepared(self, flight: InFlight) -> InFlight:
        """A flight with all that is sent: body, headers and summary."""
        decision, observe = flight.decision, flight.is_observed
        if not observe and flight.body is None and decision.body is not None:
            flight.body = decision.body
        if flight.is_wrapped and flight.body is not None:
            flight.body = b'{"%s":%s}' % (_WRAPPER.encode(), flight.body)
        summary = flight.summary = CompactionSummary(
            sent="observed" if observe else decision.kind,
            operation=flight.request.operation,
            model=decision.identity.model[:_MAX_MODEL_CHARS],
            conversation=decision.identity.conversation,
            tokens_before=decision.tokens_before,
            tokens_saved=max(0, decision.tokens_before - decision.tokens_after),
            edits=dict(Counter(edit.reason for edit in decision.edits)) if decision.edits else {},
            epochs=decision.epochs,
            refetched=len(decision.findings.refetched),
            results=decision.results,
            waiting_offers=decision.waiting[0],
            waiting_tokens=decision.waiting[1],
            fallback=_fallback_code(decision),
            why=_plain_reason(decision),
            retry=flight.retry,
            compaction_ms=round(flight.milliseconds, 2),
        )
        flight.response_headers = (
            (SAVED_HEADER, b"%d" % summary.tokens_saved),
            (SENT_HEADER, summary.sent.encode()),
        )
        is_changeable = decision.kind != "untouched" and decision.reason not in (LEFT_ALONE, SIGNED)
        flight.is_retriable = flight.original is not None if observe else is_changeable
        return flight

    # --- the decision ----------------------------------------------------------------------

    async def _decide(self, decider: Decider, request: ParsedRequest, permit: Permit) -> Decision:
        """The projection, if it is decided in time; else the edits in force or the original."""
        try:
            if len(request.body) < self._immediate_bytes:
                decision = decider.decide_immediately(request)
                if decision is not None:
                    return decision
            return await self._decide_in_time(decider, request, permit)
        except RespoolError:
            raise
        except Exception as error:  # noqa: BLE001 - law 9: a fault of respool fails no request
            _log.exception("A request could not be compacted")
            self._breaker_of(request).fail(permit, f"{type(error).__name__}")
            reason = f"failed: {type(error).__name__}"
            return await self._decide_without_new_edits(decider, request, reason)

    async def _decide_in_time(
        self, decider: Decider, request: ParsedRequest, permit: Permit
    ) -> Decision:
        """The projection; if it is late, the edits in force or the original.

        An original that may not fit waits a little longer. The time is bounded for every size.
        """
        late = Event()
        deciding = self._submit(self._executor, decider.decide, request, late)
        await asyncio.wait({deciding}, timeout=self._options.deadline)
        if deciding.done():
            return await deciding
        reason = f"late: over {self._options.deadline:g} s"
        known = await self._decide_known(decider, request, reason, late, must_fit=True)
        if known is None:
            await asyncio.wait({deciding}, timeout=_FIT_SECONDS)
            if deciding.done():
                return await deciding
            known = await self._decide_known(decider, request, reason, late)
        late.set()
        deciding.add_done_callback(_log_late_failure)
        known = known or Decision(reason=reason)
        if permit.is_trial or self._is_slow(known, deciding):
            self._breaker_of(request).fail(permit, "it was late")
        return known

    def _is_slow(self, known: Decision, deciding: asyncio.Future[Decision]) -> bool:
        """True if a late decision shows that compaction is slow, or hangs.

        The first request of a long conversation may be late, and so may those that come until it
        is decided and has filled the memo.
        """
        now = time.monotonic()
        first, since = self._late.setdefault(known.identity.conversation, (deciding, now))
        if len(self._late) > _MAX_LATE:
            self._late.popitem(last=False)
        return first is not deciding and (first.done() or now - since > _HUNG_SECONDS)

    async def _decide_without_new_edits(
        self, decider: Decider, request: ParsedRequest, reason: str
    ) -> Decision:
        """The edits in force or the original; untouched if the request cannot be read."""
        return await self._decide_known(decider, request, reason) or Decision(reason=reason)

    async def _decide_known(
        self,
        decider: Decider,
        request: ParsedRequest,
        reason: str,
        late: Event | None = None,
        *,
        must_fit: bool = False,
    ) -> Decision | None:
        """The edits in force or the original; None if it must fit and may not."""
        decide = partial(
            decider.decide_without_new_edits, request, reason, must_fit=must_fit, late=late
        )
        note = partial(decider.decide_original, request, BYPASSED)
        try:
            return await self._run_in_time(decide, note, reason)
        except RespoolError:
            raise
        except Exception:  # noqa: BLE001 - law 9: a fault of respool fails no request
            _log.exception("A request could not be read")
        try:
            return await self._run(decider.decide_original, request, reason)
        except Exception:  # noqa: BLE001 - law 9: a fault of respool fails no request
            return Decision(reason=reason)

    async def _run_in_time(
        self, decide: Callable[[], Decision | None], note: Callable[[], Decision], reason: str
    ) -> Decision | None:
        """A decision without new edits; if even that is late, the bytes that came.

        That they were sent is noted afterwards.
        """
        deciding = self._submit(self._fallback_executor, decide)
        await asyncio.wait({deciding}, timeout=_FALLBACK_SECONDS)
        if deciding.done():
            return await deciding
        if not deciding.cancel():
            deciding.add_done_callback(_log_late_failure)
        noting = self._submit(self._fallback_executor, note)
        noting.add_done_callback(_log_late_failure)
        return Decision(kind="original", reason=reason)

    async def _decide_unchanged(
        self, decider: Decider, request: ParsedRequest, reason: str
    ) -> Decision:
        try:
            return await self._run(decider.decide_original, request, reason)
        except RespoolError:
            raise
        except Exception:  # noqa: BLE001 - law 9: a fault of respool fails no request
            _log.exception("A request could not be read")
            return Decision(reason=reason)

    # --- retries ---------------------------------------------------------------------------

    async def error_received(self, flight: InFlight, error: ErrorResponse) -> InFlight | None:
        """Decide for less if the prompt did not fit, for the original if it was refused.

        Some statuses may mean that a projection is refused, or have nothing to do with it. After
        such failures in a row the original is tried.
        """
        if flight.is_observed:
            return await self._observed_again(flight, error)
        if flight.decision.kind == "untouched":
            return None
        found = classify_error(error.status, error.headers, error.body)
        if found.kind == "overflow" and "overflow" not in flight.retries:
            if flight.decision.reason in AS_THEY_CAME:
                return None  # somebody wants it unchanged
            return await self._smaller(flight, found)
        if "invalid" in flight.retries:
            return None
        is_unclear = error.status in UNCLEAR_STATUSES and not flight.request.is_count
        if found.kind == "invalid" or (
            is_unclear and self._decider.note_failed(flight.decision, error.status)
        ):
            return await self._original(flight, error)
        return None

    async def _smaller(self, flight: InFlight, error: ProviderError) -> InFlight | None:
        """The request under the limit that the provider has just named."""
        request, before = flight.request, flight.decision
        named = error.max_prompt_by(before.tokens_after)
        tokens = named or int(_SMALLER * before.tokens_after)
        if tokens < 1:
            return None
        started = time.monotonic()
        # A named window holds the output, too, unless the error has named the output itself.
        beside_output = not named or error.output > 0
        await self._run(
            partial(self._decider.note_window, request, tokens, beside_output=beside_output)
        )
        late = Event()
        deciding = self._submit(self._executor, self._decider.decide, request, late)
        await asyncio.wait({deciding}, timeout=self._options.deadline + _FIT_SECONDS)
        if not deciding.done():
            late.set()
            deciding.add_done_callback(_log_late_failure)
            return None  # the client receives the error, as without respool
        decision = await deciding
        if decision.body is None or decision.body == before.body:
            return None
        took = 1e3 * (time.monotonic() - started)
        return self._retry(flight, decision, "overflow", milliseconds=took, permit=flight.permit)

    async def _original(self, flight: InFlight, error: ErrorResponse) -> InFlight | None:
        """The original, once: if the provider accepts it, the projection was wrong."""
        request, refused = flight.request, flight.decision
        if refused.body is None or refused.kind == "original":  # it refused the original
            is_signature = _SIGNATURE_ERROR in error.body
            return await self._without_reasoning(flight) if is_signature else None
        decision = await self._run(self._decider.decide_original, request, "refused")
        policy = self._decider.policy_for(request)
        return self._retry(
            flight,
            decision,
            "invalid",
            body=request.body if decision.body is None else decision.body,
            rejected=reproduction_of(request, refused, error, policy),
            rejected_permit=flight.permit,
        )

    async def _without_reasoning(self, flight: InFlight) -> InFlight | None:
        """The original without reasoning that was signed for projections that nobody knows."""
        request = flight.request
        decision = await self._run(self._decider.decide_without_reasoning, request, "refused")
        if decision.body is None or decision.body == flight.decision.body:
            return None
        return self._retry(flight, decision, "invalid")

    async def _observed_again(self, flight: InFlight, error: ErrorResponse) -> InFlight | None:
        """An observed request without reasoning, if that was signed for projections before it."""
        is_signature = _SIGNATURE_ERROR in error.body
        if flight.original is None or flight.retries or not is_signature:
            return None
        again = await self._run(self._decider.decide_without_reasoning, flight.request, "refused")
        if again.body is None or again.body == flight.body:
            return None
        more = {"is_observed": True, "original": again, "body": again.body}
        return self._retry(flight, flight.decision, "invalid", **more)

    def _retry(self, flight: InFlight, decision: Decision, reason: Retry, **more: Any) -> InFlight:
        return self._prepared(
            InFlight(
                request=flight.request,
                decision=decision,
                retry=reason,
                retries=flight.retries | frozenset[Retry]({reason}),
                is_wrapped=flight.is_wrapped,
                **more,
            )
        )

    # --- the response ----------------------------------------------------------------------

    def response_started(self, flight: InFlight, status: int, headers: Headers) -> None:
        """Read the response; if the provider accepted the request, later decisions know it."""
        flight.status = status
        encodings = [value for name, value in headers if name == b"content-encoding"]
        encoding = b",".join(encodings).decode("latin-1")
        is_framed = any(
            name == b"content-type" and value.lower().startswith(FRAMED_TYPE)
            for name, value in headers
        )
        flight.reader = reader_for(flight.request.format, encoding, is_framed=is_framed)
        pending = flight.take_pending()
        rejected, flight.rejected = flight.rejected, None  # it may hold a whole body
        if status >= 400:
            if rejected is not None:
                self._decider.note_original_failed(flight.decision)
            return
        self._decider_of(flight).note_accepted(flight.request, flight.decision)
        if pending is not None:
            work = partial(self._decider_of(flight).evaluate_ahead, pending, flight.request)
            self._submit(self._ahead_executor, work).add_done_callback(_log_late_failure)
        if flight.original is not None:
            self._decider.note_accepted(flight.request, flight.original)
        if rejected is not None:
            self._recorder.reproduce(rejected)
            # A count asks for no output, and near the window that is another projection.
            if not flight.request.is_count:
                self._leave_alone(flight, rejected.status, rejected.owner)
        elif flight.permit is not None and flight.decision.kind == "projection":
            self._breaker_of(flight.request).succeed(flight.permit)

    def _leave_alone(self, flight: InFlight, status: int, owner: str) -> None:
        """Leave a conversation alone: its projection was refused, its original accepted."""
        if flight.rejected_permit is not None:
            breaker = self._breaker_of(flight.request)
            breaker.fail(flight.rejected_permit, f"a projection was refused: {status}")
        self._fallback_executor.submit(self._decider.leave_alone(flight.decision, owner))

    def note_alive(self, flight: InFlight, time: float) -> None:
        """A keep-alive ping has read the cached prompt of a request at this time."""
        request = replace(flight.request, time=time)
        self._decider_of(flight).note_accepted(request, flight.decision)

    def chunk_sent(self, flight: InFlight, chunk: bytes) -> None:
        """Read the next bytes of the response."""
        if flight.reader is not None:
            flight.reader.feed(chunk)

    def ended(self, flight: InFlight, outcome: Outcome) -> None:
        """Record a request; one that is sent again is recorded with the last attempt."""
        if outcome == "retried":
            return
        flight.release()
        flight.take_pending()
        request, decision, summary = flight.request, flight.decision, flight.summary
        decider = self._decider_of(flight)
        if flight.reader is not None:
            flight.response, flight.reader = flight.reader.finish(), None
        response = flight.response
        if not request.is_count:
            decider.note_usage(decision, response.usage)
        is_recorded = bool(decision.identity.conversation) and not request.is_count
        if is_recorded:
            # Now, and not when the record is written: the next request may end before that.
            flight.new_edits = decider.take_new_edits(decision)
        if summary is not None:
            summary.usage, summary.new_edits = response.usage, len(flight.new_edits)
            summary.response_model = response.model or ""
            summary.stop_reason = response.stop_reason or ""
        if outcome == "unreachable":
            flight.status = 0
        if is_recorded:
            self._recorder.record(flight, decider.pending_facts)
        elif request.team is not None and not request.is_count:
            self._recorder.record(flight)  # for its quota only

    # --- threads ---------------------------------------------------------------------------

    async def _run(self, work: Callable[..., _T], *given: Any) -> _T:
        """Run work in a thread that no late decision can occupy."""
        return await self._submit(self._fallback_executor, work, *given)

    def _submit(
        self, executor: Executor, work: Callable[..., _T], *given: Any
    ) -> asyncio.Future[_T]:
        return asyncio.wrap_future(executor.submit(partial(work, *given)))


def _reason_of(error: RespoolError) -> str:
    """The reason why a request is not read; what is passed through is meant to be."""
    return f"{PASSED_THROUGH}: {error}" if isinstance(error, PassedThrough) else str(error)


def _plain_reason(decision: Decision) -> str:
    """The reason of a fallback, unless it may quote the request."""
    if not decision.reason:
        return ""
    words = decision.reason.partition(": ")[2]
    return "" if _fallback_code(decision) == "unreadable" else words


def _fallback_code(decision: Decision) -> str:
    """The code of a fallback reason; the reason itself may quote a request."""
    if not decision.reason:
        return ""
    code = decision.reason.partition(":")[0].replace(" ", "-")
    return code if code in FALLBACK_REASONS or not code else "unreadable"


def _is_bypassed(headers: Headers) -> bool:
    given = [value.strip().lower() for name, value in headers if name == BYPASS_HEADER]
    return bool(given) and given[-1] not in _FALSE


def _unwrapped(request: ParsedRequest) -> bytes | None:
    """The request inside Gemini's `countTokens`, if that holds nothing else."""
    if request.format != "gemini" or not request.is_count:
        return None
    try:
        found = _members.decode(request.body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return bytes(found[_WRAPPER]) if found.keys() == {_WRAPPER} else None


def _log_late_failure(deciding: asyncio.Future[Any]) -> None:
    """A late decision has filled the memo; log it if it failed."""
    if not deciding.cancelled() and deciding.exception() is not None:
        _log.warning("A late compaction failed: %s", type(deciding.exception()).__name__)


# --- threads -----------------------------------------------------------------------------------


_Task = tuple["Future[object]", Callable[[], object]]


class Executor:
    """A pool of daemon threads that are started as needed; threads may share it.

    The standard library's executor waits for its threads when the process ends. A user's own pass
    that never returns would keep the process alive, and `respool run` with it.
    """

    def __init__(self, max_threads: int, name: str) -> None:
        self._max_threads = max_threads
        self._name = name
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._lock = Lock()
        self._threads: list[Thread] = []
        self._pending = 0  # tasks that run or wait
        self._closed = False

    def submit(self, work: Callable[[], _T]) -> Future[_T]:
        """Run a function in a thread; one that is cancelled before its turn is not started."""
        future: Future[_T] = Future()
        with self._lock:
            if self._closed:
                future.cancel()
                return future
            self._pending += 1
            if len(self._threads) < min(self._pending, self._max_threads):
                self._start()
            self._tasks.put((future, work))  # pyright: ignore[reportArgumentType]  # of any type
        return future

    def close(self) -> None:
        """Start nothing more; what runs already goes on by itself."""
        with self._lock:
            self._closed = True
            while not self._tasks.empty():
                task = self._tasks.get()
                if task is not None:
                    task[0].cancel()
            for _ in self._threads:
                self._tasks.put(None)

    def _start(self) -> None:
        name = f"{self._name}-{len(self._threads)}"
        thread = Thread(target=self._work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            future, work = task
            if future.set_running_or_notify_cancel():
                _run(future, work)
            del task, future, work  # a body may be in there, and the next task may be far away
            with self._lock:
                self._pending -= 1


def _run(future: Future[object], work: Callable[[], object]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised by the future
        future.set_exception(error)
