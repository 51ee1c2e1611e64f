"""Requests compacted on their way up: in time, or with what is known; and what a refusal means."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from msgspec import json
from msgspec.structs import replace

from ..errors import ClewError
from ..prices import terms_for
from ..store import Reproduction
from .asgi import Headers
from .breaker import Attempt, Breaker
from .deciding import Asked, Deciding, Decision
from .handling import About, Answer, Incoming, Outgoing
from .installed import installed
from .objections import Objection, objection_of
from .options import Options
from .owners import group_of, owner_of
from .recording import Doing, Listener, Recording

T = TypeVar("T")

BYPASS: Final = b"x-clew-bypass"
SAVED: Final = b"x-clew-saved"
SENT: Final = b"x-clew-sent"
REASONS: Final = (
    "late", "failed", "not-kept", "resting", "refused", "left-alone", "bypassed", "unreadable",
)  # fmt: skip
_LONGEST: Final = 200  # characters of a model's name in the log
_OFF: Final = frozenset({b"", b"0", b"false", b"no", b"off"})
_SMALL: Final = 16 * 1024  # bytes that are decided on at once: a thread would take longer
_BYTES_A_TOKEN: Final = 2  # fewer than in any history: what is over a window by these is over it
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
        self, deciding: Deciding, recording: Recording, options: Options, salt: bytes
    ) -> None:
        self._deciding = deciding
        self._recording = recording
        self._options = options
        self._salt = salt
        self.breaker = Breaker(time.monotonic)
        self._pool = ThreadPoolExecutor(options.threads, thread_name_prefix="clew")
        self._spare = ThreadPoolExecutor(2, thread_name_prefix="clew-spare")

    async def start(self) -> None:
        """Nothing: threads start when they are needed."""

    async def stop(self) -> None:
        """Write down what is over; what is still being decided on is not needed any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._spare.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._recording.close)

    async def outgoing(self, incoming: Incoming) -> Outgoing:
        """What goes up in place of this request."""
        began = time.monotonic()
        asked = self._asked(incoming)
        attempt = self.breaker.attempt()
        try:
            if _is_bypassed(incoming.headers):
                decision = await self._run_spare(
                    self._deciding.decide_as_it_came, asked, "bypassed"
                )
            elif attempt is None:
                why = self.breaker.standing().why
                decision = await self._without_new_edits(asked, f"resting: {why}")
            else:
                decision = await self._decided(asked, attempt)
        except ClewError as why:  # what clew cannot read, the provider may
            decision = Decision(kind="untouched", body=None, why=str(why))
        took = 1e3 * (time.monotonic() - began)
        return self._sending(asked, decision, took, attempt)

    async def again(
        self, incoming: Incoming, outgoing: Outgoing, answer: Answer
    ) -> Outgoing | None:
        """What to try after an error: less where it did not fit, the original where it is wrong."""
        if not isinstance(outgoing, Sending) or outgoing.decision.kind == "untouched":
            return None
        objection = objection_of(answer.status, answer.headers, answer.body)
        if objection.kind == "overflow" and "overflow" not in outgoing.tried:
            return await self._smaller(outgoing, objection)
        if objection.kind == "invalid" and "invalid" not in outgoing.tried:
            return await self._as_it_came(outgoing, answer)
        return None

    def _asked(self, incoming: Incoming) -> Asked:
        owner = owner_of(incoming.headers, incoming.query.encode(), self._salt)
        return Asked(
            incoming.body, incoming.format, incoming.model, owner, time.time(),
            counting=incoming.operation == "count",
            session=group_of(incoming.headers, None, owner),
        )  # fmt: skip

    async def _decided(self, asked: Asked, attempt: Attempt) -> Decision:
        """The projection, if it can be had in time; else what is known."""
        if len(asked.body) < _SMALL:
            return await self._judged(asked, attempt, self._deciding.decide)
        deciding = asyncio.ensure_future(self._run(self._pool, self._deciding.decide, asked))
        await asyncio.wait({deciding}, timeout=self._options.deadline)
        if not deciding.done() and self._may_go_without(asked):
            deciding.add_done_callback(_end_of_late)
            self.breaker.trouble(attempt, "it was late")
            return await self._without_new_edits(asked, f"late: over {self._options.deadline:g} s")
        return await self._judged(asked, attempt, lambda _: deciding)

    async def _judged(
        self, asked: Asked, attempt: Attempt, decide: Callable[[Asked], Any]
    ) -> Decision:
        """A decision; where clew itself fails, what is known."""
        try:
            found = decide(asked)
            return await found if asyncio.isfuture(found) else found
        except ClewError:
            raise
        except Exception as error:  # noqa: BLE001 - law 9: a fault of clew's fails no request
            _log.exception("A request could not be compacted")
            self.breaker.trouble(attempt, f"{type(error).__name__}")
            return await self._without_new_edits(asked, f"failed: {type(error).__name__}")

    async def _without_new_edits(self, asked: Asked, why: str) -> Decision:
        """What is known already; the request itself where nothing is."""
        try:
            return await self._run_spare(self._deciding.decide_without_new_edits, asked, why)
        except ClewError:
            raise
        except Exception:  # noqa: BLE001 - law 9: a fault of clew's fails no request
            _log.exception("A request could not be read")
            return Decision(kind="untouched", body=None, why=why)

    def _may_go_without(self, asked: Asked) -> bool:
        """Whether the request could go up as it is: what does not fit has to wait."""
        window = terms_for(asked.format, self._deciding.model_of(asked)).window
        return window is None or len(asked.body) / _BYTES_A_TOKEN <= window

    async def _smaller(self, sending: Sending, objection: Objection) -> Outgoing | None:
        """The request under the limit that the provider has just named."""
        asked, before = sending.asked, sending.decision
        fits = objection.fitting(before.after) or int(_LESS * before.after)
        if self._options.observe or fits < 1:
            return None
        began = time.monotonic()
        await self._run_spare(self._deciding.fits, asked, fits)
        decision = await self._run(self._pool, self._deciding.decide, asked)
        if decision.body is None or decision.body == before.body:
            return None
        took = 1e3 * (time.monotonic() - began)
        smaller = self._sending(asked, decision, took, sending.attempt, again="overflow")
        return replace(smaller, tried=sending.tried | {"overflow"})

    async def _as_it_came(self, sending: Sending, answer: Answer) -> Outgoing | None:
        """The original, once: if the provider takes it, the projection was wrong."""
        asked, refused = sending.asked, sending.decision
        if refused.body is None or refused.kind == "original":
            return None  # that is what it refused
        decision = await self._run_spare(self._deciding.decide_as_it_came, asked, "refused")

        def passed() -> None:
            if sending.attempt is not None:
                self.breaker.trouble(sending.attempt, f"a projection was refused: {answer.status}")
            self._spare.submit(self._deciding.leave_alone, asked)
            self._recording.refused(self._case(asked, refused, answer))

        original = self._sending(asked, decision, 0.0, None, passed, again="invalid")
        body = asked.body if original.body is None else original.body
        return replace(original, body=body, tried=sending.tried | {"invalid"})

    def _case(self, asked: Asked, refused: Decision, answer: Answer) -> Reproduction:
        return Reproduction(
            time=asked.time, owner=asked.owner, conversation=refused.conversation,
            format=asked.format, status=answer.status, request=asked.body,
            sent=refused.body or b"", policy=self._deciding.policy.fingerprint().hex(),
            facts=json.encode(refused.facts.to_dict()).decode(),
            error=answer.body[:4_096].decode("utf-8", "replace"), version=installed(),
        )  # fmt: skip

    def _sending(
        self, asked: Asked, decision: Decision, took: float, attempt: Attempt | None,
        passed: Callable[[], None] | None = None, again: str = "",
    ) -> Sending:  # fmt: skip
        """What goes up, with who listens to its answer."""
        observe = self._options.observe
        new = self._deciding.untold(decision)
        self._deciding.sent(asked, decision)
        about = _about(asked, decision, observe, took)
        about.edits, about.again = len(new), again
        doing = Doing(
            asked=asked, decision=decision, new=new, milliseconds=took, observed=observe,
            about=about,
        )  # fmt: skip

        def taken() -> None:
            if attempt is not None and decision.kind == "projection":
                self.breaker.well(attempt)

        return Sending(
            body=None if observe else decision.body,
            headers=_told(about),
            tap=Listener(self._recording, doing, passed or taken),
            judged=decision.kind == "projection" and not observe,
            asked=asked, decision=decision, attempt=attempt, about=about,
        )  # fmt: skip

    async def _run_spare(self, work: Callable[..., T], *given: Any) -> T:
        return await self._run(self._spare, work, *given)

    async def _run(self, pool: ThreadPoolExecutor, work: Callable[..., T], *given: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work, *given)


def _told(about: About) -> Headers:
    """What the client is told: the tokens that were saved, about, and what went up."""
    return ((SAVED, b"%d" % about.saved), (SENT, about.sent.encode()))


def _about(asked: Asked, decision: Decision, observe: bool, took: float) -> About:
    """What the log is told, without a word of the request."""
    return About(
        sent="observed" if observe else decision.kind.replace(" ", "-"),
        operation="count" if asked.counting else "generate",
        model=decision.model[:_LONGEST], conversation=decision.conversation, before=decision.before,
        saved=max(0, decision.before - decision.after), why=_word(decision), ms=round(took, 2),
    )  # fmt: skip


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
