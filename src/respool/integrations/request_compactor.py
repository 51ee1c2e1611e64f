"""Requests of one client or framework, decided on in this process as the proxy does it."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from typing import Final

from msgspec import Struct

from ..api import expand
from ..edits import Edit
from ..engine import FormatName
from ..errors import PolicyError, RespoolError, UnknownReference, quote_value
from ..policy import PRESETS, Policy
from ..pricing import Usage
from ..proxy.decide import Decider
from ..proxy.middleware import UNCLEAR_STATUSES, Decision, ParsedRequest
from ..proxy.provider_errors import classify_error
from ..store import DecisionStore, MemoryStore, open_store, parse_location

MAX_THREADS: Final = 4
_SIGNATURE_ERROR: Final = b"bound to a different conversation"  # Anthropic
_SMALLER: Final = 0.8  # of a prompt that did not fit, if the error names no number
_log = logging.getLogger(__name__)


class Outgoing(Struct, frozen=True):
    """A request that is sent, and the decision behind it."""

    request: ParsedRequest
    decision: Decision
    retried: bool = False  # in place of one that the provider refused

    @property
    def body(self) -> bytes:
        """The bytes to send."""
        return self.request.body if self.decision.body is None else self.decision.body

    @property
    def is_changed(self) -> bool:
        """True if the bytes differ from those that came."""
        return self.decision.body is not None

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits in force."""
        return self.decision.edits if self.is_changed else ()


class Savings(Struct):
    """Totals of all requests that were accepted."""

    requests: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    refused: int = 0  # projections that the provider refused; the original was sent
    usage: Usage = Usage()

    @property
    def tokens_saved(self) -> int:
        """The tokens that were not sent."""
        return self.tokens_before - self.tokens_after


class RequestCompactor:
    """Decides on requests, keeps originals, and learns from responses; threads may share it.

    Originals are kept in memory, or in the file that `store` names. With a `deadline` in seconds a
    decision that takes longer is left to finish in its thread, and the edits in force are sent.
    """

    def __init__(
        self,
        policy: Policy | str | None = None,
        *,
        store: DecisionStore | str | os.PathLike[str] | None = None,
        deadline: float | None = None,
    ) -> None:
        self.policy = check_policy(policy)
        self.store = _open_store(store)
        self.savings = Savings()
        self._deadline = _check_deadline(deadline)
        self._decider = Decider(self.policy, self.store)
        self._lock = Lock()
        self._threads: ThreadPoolExecutor | None = None

    # --- before a request is sent ----------------------------------------------------------

    def decide(
        self, body: bytes, format: FormatName, *, model: str | None = None, count: bool = False
    ) -> Outgoing:
        """Decide what to send in place of a request; never raises.

        `count` is for requests that only ask for the number of tokens.
        """
        request = _parsed(body, format, model, count)
        if self._deadline is None:
            return self._decide(request, Event())
        late = Event()
        deciding = self._executor().submit(self._decide, request, late)
        try:
            return deciding.result(self._deadline)
        except TimeoutError:
            return self._decide_late(request, late)

    async def decide_async(
        self, body: bytes, format: FormatName, *, model: str | None = None, count: bool = False
    ) -> Outgoing:
        """The same in a thread, so that the event loop goes on."""
        request, late = _parsed(body, format, model, count), Event()
        loop = asyncio.get_running_loop()
        deciding = loop.run_in_executor(self._executor(), self._decide, request, late)
        await asyncio.wait({deciding}, timeout=self._deadline)
        if deciding.done():
            return await deciding
        return await asyncio.to_thread(self._decide_late, request, late)

    def _decide(self, request: ParsedRequest, late: Event) -> Outgoing:
        try:
            return Outgoing(request, self._decider.decide(request, late))
        except RespoolError as error:
            return Outgoing(request, Decision(reason=str(error)))
        except Exception as error:  # noqa: BLE001 - law 9: a fault of respool fails no request
            _log.exception("A request could not be compacted; it is sent as it came")
            return Outgoing(request, Decision(reason=f"failed: {type(error).__name__}"))

    def _decide_late(self, request: ParsedRequest, late: Event) -> Outgoing:
        """The edits in force, or the original."""
        try:
            known = self._decider.decide_without_new_edits(request, "late", late=late)
        except RespoolError as error:
            known = Decision(reason=str(error))
        except Exception:  # noqa: BLE001 - law 9: a fault of respool fails no request
            _log.exception("A request could not be read; it is sent as it came")
            known = None
        late.set()
        return Outgoing(request, known or Decision(reason="late"))

    def _executor(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(MAX_THREADS, "respool")
            return self._threads

    # --- after a response ------------------------------------------------------------------

    def retry(self, sent: Outgoing, status: int, error: bytes = b"") -> Outgoing | None:
        """Decide what to send after an error response; None: nothing else, the error stands.

        A refused projection is replaced by the original, one that did not fit by a smaller one.
        """
        if sent.retried or sent.decision.kind == "untouched":
            return None
        try:
            return self._retry(sent, status, error)
        except Exception:  # noqa: BLE001 - law 9: the caller gets the provider's error
            _log.exception("A refused request could not be decided on again")
            return None

    def _retry(self, sent: Outgoing, status: int, error: bytes) -> Outgoing | None:
        request, before = sent.request, sent.decision
        found = classify_error(status, (), error)
        if found.kind == "overflow":
            named = found.max_prompt_by(before.tokens_after)
            tokens = named or int(_SMALLER * before.tokens_after)
            beside_output = not named or found.output > 0
            if tokens < 1:
                return None
            self._decider.note_window(request, tokens, beside_output=beside_output)
            smaller = self._decider.decide(request)
            is_same = smaller.body is None or smaller.body == before.body
            return None if is_same else Outgoing(request, smaller, retried=True)
        is_unclear = status in UNCLEAR_STATUSES and not request.is_count
        if found.kind != "invalid" and not (
            is_unclear and self._decider.note_failed(before, status)
        ):
            return None
        if before.body is None or before.kind == "original":
            if _SIGNATURE_ERROR not in error:
                return None
            bare = self._decider.decide_without_reasoning(request, "refused")
            is_same = bare.body is None or bare.body == before.body
            return None if is_same else Outgoing(request, bare, retried=True)
        return Outgoing(request, self._decider.decide_original(request, "refused"), retried=True)

    def accepted(self, sent: Outgoing) -> None:
        """The provider accepted a request: the next decision depends on that."""
        request, decision = sent.request, sent.decision
        if request.is_count or not decision.identity.conversation:
            return
        try:
            self._decider.note_accepted(request, decision)
            if sent.retried and decision.kind == "original":
                self._decider.leave_alone(decision, request.owner)()
                _log.warning("The provider refused a projection; the original was accepted")
        except Exception:  # noqa: BLE001 - law 9: the response goes on
            _log.exception("An accepted request could not be noted")
        with self._lock:
            self.savings.requests += 1
            self.savings.tokens_before += decision.tokens_before
            self.savings.tokens_after += decision.tokens_after
            self.savings.refused += sent.retried and decision.kind == "original"

    def failed(self, sent: Outgoing) -> None:
        """The provider refused the original as well: the projection was not the cause."""
        if sent.retried:
            self._decider.note_original_failed(sent.decision)

    def used(self, sent: Outgoing, usage: Usage | None) -> None:
        """The usage that the provider reported for a request."""
        if usage is None or sent.request.is_count:
            return
        self._decider.note_usage(sent.decision, usage)
        with self._lock:
            total = self.savings.usage
            self.savings.usage = Usage(
                input=total.input + usage.input,
                cache_read=total.cache_read + usage.cache_read,
                cache_write=total.cache_write + usage.cache_write,
                cache_write_1h=total.cache_write_1h + usage.cache_write_1h,
                output=total.output + usage.output,
            )

    # --- the way back ----------------------------------------------------------------------

    def expand(
        self, ref: str, *, lines: tuple[int, int] | None = None, pattern: str | None = None
    ) -> str:
        """The original behind a marker; raises UnknownReference."""
        text = self.store.original(ref, None)
        if text is None:
            raise UnknownReference(f"No original is kept under {quote_value(ref)}.")
        return expand(ref, {ref: text}, lines=lines, pattern=pattern)

    def answer(self, ref: str) -> str:
        """The text of the expand tool: the original, or a sentence for the model."""
        from ..markers import find_marker

        marker = find_marker(ref)
        try:
            return self.expand(ref.strip() if marker is None else marker.ref)
        except UnknownReference as error:
            return f"{error.args[0]} Copy the reference from a marker: ref and 20 characters."

    def close(self) -> None:
        """Write what is not written yet, and end the threads."""
        self._decider.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def check_policy(given: object) -> Policy:
    """The policy of an integration: a Policy, the name of a preset, or the default."""
    if given is None:
        return Policy()
    if isinstance(given, str) and given in PRESETS:
        return Policy.preset(given)
    if not isinstance(given, Policy):
        names = ", ".join(PRESETS)
        raise PolicyError(
            f"policy={quote_value(given)} is not allowed; allowed: a respool.Policy, the name of a "
            f"preset ({names}), or None"
        )
    return given


def unread(reason: str) -> Outgoing:
    """Nothing was decided: what came is sent."""
    return Outgoing(_parsed(b"", "openai-chat", None, False), Decision(reason=reason))


def _open_store(given: DecisionStore | str | os.PathLike[str] | None) -> DecisionStore:
    if given is None:
        return MemoryStore()
    if isinstance(given, str | os.PathLike):
        return open_store(parse_location(os.fspath(given)))
    return given


def _check_deadline(given: float | None) -> float | None:
    if given is not None and not given > 0:
        raise PolicyError(f"deadline={quote_value(given)} is not allowed; allowed: seconds above 0")
    return given


def _parsed(body: bytes, format: FormatName, model: str | None, count: bool) -> ParsedRequest:
    return ParsedRequest(
        method="POST",
        path="",
        query="",
        headers=(),
        format=format,
        operation="count" if count else "generate",
        model=model,
        stream=None,
        body=body,
        time=time.time(),
    )


__all__ = ["Outgoing", "RequestCompactor", "Savings", "check_policy", "unread"]
