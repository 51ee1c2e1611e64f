"""Requests compacted on their way up: in time, or with what is known; and what a refusal means."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from threading import Event
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from ...errors import RespoolError
from ..forwarding.asgi import Headers
from ..forwarding.handling import About, Answer, Incoming, Outgoing
from .breaker import Attempt, Breaker
from .deciding import Deciding
from .decision import BYPASSED, LEFT_ALONE, Decision
from .keeping import NO_FACTS
from .objections import Objection, objection_of
from .options import Options
from .owners import group_of, owner_of
from .pool import Pool
from .reading import Asked
from .recording import Doing, Listener, Recording
from .reproducing import case_of
from .wrapping import inner_of, wrapped

T = TypeVar("T")

BYPASS: Final = b"x-respool-bypass"
SAVED: Final = b"x-respool-saved"
SENT: Final = b"x-respool-sent"
REASONS: Final = (
    "late", "failed", "not-kept", "resting", "refused", "left-alone", "bypassed", "unreadable",
    "sent-as-it-came-before",
)  # fmt: skip
_LONGEST: Final = 200  # characters of a model's name in the log
_OFF: Final = frozenset({b"", b"0", b"false", b"no", b"off"})
_SMALL: Final = 16 * 1024  # bytes that are decided on at once: a thread would take longer
_SIGNED: Final = b"bound to a different conversation"  # what Anthropic says of reasoning
_LESS: Final = 0.8  # of what did not fit, where the provider does not say how much would
_log = logging.getLogger(__name__)


class Sending(Outgoing, frozen=True, kw_only=True):
    """What goes up, and what `again` must know of it."""

    asked: Asked
    decision: Decision
    attempt: Attempt | None = None
    tried: frozenset[str] = frozenset()  # what was done about earlier refusals


class Compacting:
    """Compacts requests; where that is late or fails, what is known goes up, or what came."""

    reads = True

    def __init__(
        self,
        deciding: Deciding,
        recording: Recording,
        options: Options,
        salt: Callable[[], bytes],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._deciding = deciding
        self._recording = recording
        self._options = options
        self._salt = salt
        self._clock = clock
        # A user's own pass may take any time, and the event loop has none.
        own = [one for one in options.policy.passes or () if not isinstance(one, str)]
        self._at_once = 0 if own else _SMALL
        self.breaker = Breaker(time.monotonic)
        self._pool = Pool(options.threads, "respool")
        self._spare = Pool(2, "respool-spare")

    async def start(self) -> None:
        """Nothing: threads start when they are needed."""

    async def stop(self) -> None:
        """Write down what is over; what is still being decided on is not needed any more."""
        self._pool.close()
        self._spare.close()
        await asyncio.to_thread(self._deciding.close)
        await asyncio.to_thread(self._recording.close)

    async def outgoing(self, incoming: Incoming) -> Outgoing:
        """What goes up in place of this request."""
        inner = inner_of(incoming)
        if inner is not None:
            return wrapped(await self._outgoing(replace(incoming, body=inner)))
        return await self._outgoing(incoming)

    async def _outgoing(self, incoming: Incoming) -> Outgoing:
        began = time.monotonic()
        asked = self._asked(incoming)
        bypassed = _is_bypassed(incoming.headers)
        attempt = None if bypassed else self.breaker.attempt()
        try:
            if bypassed:
                decision = await self._bypassed(asked)
            elif attempt is None:
                why = f"resting: {self.breaker.cause()}"
                decision = await self._without_new_edits(asked, why)
            else:
                decision = await self._decided(asked, attempt)
        except RespoolError as why:  # what respool cannot read, the provider may
            decision = Decision(kind="untouched", body=None, why=str(why))
        took = 1e3 * (time.monotonic() - began)
        return self._sending(asked, decision, took, attempt)

    async def again(
        self, incoming: Incoming, outgoing: Outgoing, answer: Answer
    ) -> Outgoing | None:
        """What to try after an error: less where it did not fit, the original where it is wrong."""
        if not isinstance(outgoing, Sending) or outgoing.decision.kind == "untouched":
            return None
        following = await self._following(outgoing, answer)
        if following is not None and inner_of(incoming) is not None:
            return wrapped(following)
        return following

    async def _following(self, outgoing: Sending, answer: Answer) -> Outgoing | None:
        objection = objection_of(answer.status, answer.headers, answer.body)
        if objection.kind == "overflow" and "overflow" not in outgoing.tried:
            if outgoing.decision.why == BYPASSED:
                return None  # what was wanted as it came stays so
            return await self._smaller(outgoing, objection)
        if objection.kind == "invalid" and "invalid" not in outgoing.tried:
            return await self._as_it_came(outgoing, answer)
        return None

    def _asked(self, incoming: Incoming) -> Asked:
        owner = owner_of(incoming.headers, incoming.query.encode(), self._salt())
        return Asked(
            incoming.body,
            incoming.format,
            incoming.model,
            owner,
            self._clock(),
            counting=incoming.operation == "count",
            session=group_of(incoming.headers, None, owner),
        )

    async def _decided(self, asked: Asked, attempt: Attempt) -> Decision:
        """The projection, if it can be had in time; else what is known."""
        try:
            small = len(asked.body) < self._at_once
            return (self._deciding.decide_at_once(asked) if small else None) or (
                await self._in_time(asked, attempt)
            )
        except RespoolError:
            raise
        except Exception as error:  # noqa: BLE001 - law 9: a fault of respool's fails no request
            _log.exception("A request could not be compacted")
            self.breaker.trouble(attempt, f"{type(error).__name__}")
            return await self._without_new_edits(asked, f"failed: {type(error).__name__}")

    async def _in_time(self, asked: Asked, attempt: Attempt) -> Decision:
        """The projection; where it is late, what is known, unless that would not fit."""
        late = Event()
        deciding = self._begun(self._pool, self._deciding.decide, asked, late)
        await asyncio.wait({deciding}, timeout=self._options.deadline)
        if not deciding.done():
            self.breaker.trouble(attempt, "it was late")
            why = f"late: over {self._options.deadline:g} s"
            known = await self._known(asked, why, late)
            if known is not None:
                late.set()
                deciding.add_done_callback(_end_of_late)
                return known
        return await deciding

    async def _without_new_edits(self, asked: Asked, why: str) -> Decision:
        """What is known already; the request itself where nothing is."""
        found = await self._known(asked, why)
        return found or Decision(kind="untouched", body=None, why=why)

    async def _known(self, asked: Asked, why: str, late: Event | None = None) -> Decision | None:
        """The edits in force, or the original; where it is late, None if that may be too long."""
        decide = partial(
            self._deciding.decide_without_new_edits,
            asked,
            why,
            must_fit=late is not None,
            late=late,
        )
        try:
            return await self._run_spare(decide)
        except RespoolError:
            raise
        except Exception:  # noqa: BLE001 - law 9: a fault of respool's fails no request
            _log.exception("A request could not be read")
            return await self._unread(asked, why)

    async def _bypassed(self, asked: Asked) -> Decision:
        try:
            return await self._run_spare(self._deciding.decide_as_it_came, asked, BYPASSED)
        except RespoolError:
            raise
        except Exception:  # noqa: BLE001 - law 9: a fault of respool's fails no request
            _log.exception("A request could not be read")
            return Decision(kind="untouched", body=None, why=BYPASSED)

    async def _unread(self, asked: Asked, why: str) -> Decision:
        """The original, without the reasoning that no longer matches it, if that can be had."""
        try:
            return await self._run_spare(self._deciding.decide_as_it_came, asked, why)
        except Exception:  # noqa: BLE001 - law 9: a fault of respool's fails no request
            return Decision(kind="untouched", body=None, why=why)

    async def _smaller(self, sending: Sending, objection: Objection) -> Outgoing | None:
        """The request under the limit that the provider has just named."""
        asked, before = sending.asked, sending.decision
        named = objection.fitting(before.after)
        fits = named or int(_LESS * before.after)
        if self._options.observe or fits < 1:
            return None
        began = time.monotonic()
        # A window that is named alone holds the output, too; else it is off already.
        alone = not named or objection.output > 0
        await self._run_spare(partial(self._deciding.fits, asked, fits, beside_output=alone))
        decision = await self._run(self._pool, self._deciding.decide, asked)
        if decision.body is None or decision.body == before.body:
            return None
        took = 1e3 * (time.monotonic() - began)
        smaller = self._sending(asked, decision, took, sending.attempt, again="overflow")
        return replace(smaller, tried=sending.tried | {"overflow"})

    async def _as_it_came(self, sending: Sending, answer: Answer) -> Outgoing | None:
        """The original, once: if the provider takes it, the projection was wrong."""
        asked, refused = sending.asked, sending.decision
        if refused.body is None or refused.kind == "original":  # that is what it refused
            return await self._without_reasoning(sending) if _SIGNED in answer.body else None
        decision = await self._run_spare(self._deciding.decide_as_it_came, asked, "refused")

        case = case_of(asked, refused, answer, self._deciding.policy_for(asked.format))
        attempt = sending.attempt

        def passed() -> None:
            self._recording.refused(case)
            if asked.counting:
                return  # it asked for no output, and near a window that makes it another projection
            if attempt is not None:
                self.breaker.trouble(attempt, f"a projection was refused: {case.status}")
            self._spare.submit(self._deciding.leave_alone(told, case.owner))

        told = replace(decision, body=None, facts=NO_FACTS)
        original = self._sending(asked, decision, 0.0, None, passed, again="invalid")
        body = asked.body if original.body is None else original.body
        return replace(original, body=body, tried=sending.tried | {"invalid"})

    async def _without_reasoning(self, sending: Sending) -> Outgoing | None:
        """The original without what was signed for projections that nobody knows of any more."""
        asked = sending.asked
        decision = await self._run_spare(self._deciding.decide_without_reasoning, asked, "refused")
        if decision.body is None or decision.body == sending.decision.body:
            return None
        original = self._sending(asked, decision, 0.0, None, again="invalid")
        return replace(original, tried=sending.tried | {"invalid"})

    def _sending(
        self,
        asked: Asked,
        decision: Decision,
        took: float,
        attempt: Attempt | None,
        passed: Callable[[], None] | None = None,
        again: str = "",
    ) -> Sending:
        """What goes up, with who listens to its answer."""
        observe = self._options.observe
        about = _about(asked, decision, observe, took)
        about.again = again
        # The answer may take minutes, and nobody needs the bodies until its end.
        light = replace(decision, body=None, facts=NO_FACTS)
        doing = Doing(
            asked=replace(asked, body=b""),
            decision=light,
            milliseconds=took,
            observed=observe,
            untold=self._deciding.untold,
            owed=self._deciding.owed,
            about=about,
            heard=self._deciding.heard,
        )

        def taken() -> None:
            self._deciding.sent(doing.asked, light)
            if passed is not None:
                passed()
            elif attempt is not None and light.kind == "projection":
                self.breaker.well(attempt)

        return Sending(
            body=None if observe else decision.body,
            headers=_told(about),
            tap=Listener(self._recording, doing, taken),
            judged=not observe and decision.kind != "untouched" and decision.why != LEFT_ALONE,
            asked=asked,
            decision=decision,
            attempt=attempt,
            about=about,
        )

    async def _run_spare(self, work: Callable[..., T], *given: Any) -> T:
        return await self._run(self._spare, work, *given)

    async def _run(self, pool: Pool, work: Callable[..., T], *given: Any) -> T:
        return await self._begun(pool, work, *given)

    def _begun(self, pool: Pool, work: Callable[..., T], *given: Any) -> asyncio.Future[T]:
        return asyncio.wrap_future(pool.submit(partial(work, *given)))


def _told(about: About) -> Headers:
    """What the client is told: the tokens that were saved, about, and what went up."""
    return ((SAVED, b"%d" % about.saved), (SENT, about.sent.encode()))


def _about(asked: Asked, decision: Decision, observe: bool, took: float) -> About:
    """What the log is told, without a word of the request."""
    return About(
        sent="observed" if observe else decision.kind.replace(" ", "-"),
        operation="count" if asked.counting else "generate",
        model=decision.model[:_LONGEST],
        conversation=decision.conversation,
        before=decision.before,
        saved=max(0, decision.before - decision.after),
        why=_word(decision),
        ms=round(took, 2),
    )


def _word(decision: Decision) -> str:
    """Why something else than the projection goes up, in a word: an error may quote a request."""
    word = decision.why.partition(":")[0].replace(" ", "-")
    return word if word in REASONS or not word else "unreadable"


def _is_bypassed(headers: Headers) -> bool:
    asked = [value.strip().lower() for name, value in headers if name == BYPASS]
    return bool(asked) and asked[-1] not in _OFF


def _end_of_late(deciding: asyncio.Future[Decision]) -> None:
    """What came too late has filled the memo; whether it failed is told there, and only there."""
    if not deciding.cancelled() and deciding.exception() is not None:
        _log.warning("A late compaction failed: %s", type(deciding.exception()).__name__)
