"""Shorten an old error once the same operation on the same target has succeeded."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from ..edits import Offer, Replace
from ..history.failures import (
    clip_error_line,
    error_line,
    has_failed_ending,
    has_failure_count,
    is_failed,
    is_success,
    is_user_refusal,
    running_session,
)
from ..markers import OmissionMarker, find_marker, reference
from ..policy import Policy
from ..tools.use import Use
from ..transcript import Exchange, Part
from .base import View, call_label, describe_source

_MIN_CHARS = 300  # a line and a marker in place of fewer characters save nothing
_MAX_OUTCOMES = 20  # outcomes of one operation on one target that are checked


def resolved_errors(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to reduce old resolved errors to the line that names the cause."""
    judge = _OutcomeJudge(view, _MIN_CHARS if policy.min_chars is None else policy.min_chars)
    for exchange in view.aged_exchanges():
        later = judge.resolved_by(exchange)
        if later is not None:
            yield from _offers(view, exchange, later)
        elif judge.is_left_running(exchange):  # its outcome is known by now
            for earlier in judge.resolved_now(exchange):
                yield from _offers(view, earlier, exchange)
    for exchange in view.newly_seen() if view.aged_from else ():
        for earlier in judge.resolved_now(exchange):
            yield from _offers(view, earlier, exchange)


class _OutcomeJudge:
    """Outcomes of the calls of a view, each judged once."""

    def __init__(self, view: View, min_chars: int) -> None:
        self._view = view
        self._min_chars = min_chars  # of an error that is worth a stub
        self._failed: dict[int, bool] = {}

    def resolved_by(self, exchange: Exchange) -> Exchange | None:
        """The first later exchange that resolves this one's long error."""
        view, use = self._view, self._view.use(exchange.ordinal)
        outcomes = view.ledger.outcomes(use, view.seen_exchanges())
        if not outcomes or outcomes[-1].ordinal <= exchange.ordinal:
            return None
        if not self._is_long_error(exchange):
            return None
        first = bisect_right(outcomes, exchange.ordinal, key=lambda one: one.ordinal)
        for ordinal in [one.ordinal for one in outcomes[first : first + _MAX_OUTCOMES]]:
            other = view.transcript.exchanges[ordinal]
            if view.use(ordinal).kind == use.kind and self._resolves(other, exchange):
                return other
        return None

    def resolved_now(self, exchange: Exchange) -> Iterator[Exchange]:
        """Old errors, since the last success before it, that this exchange resolves."""
        if not self._view.aged_from:
            return
        view, use = self._view, self._view.use(exchange.ordinal)
        for outcome in reversed(view.ledger.outcomes(use, exchange.ordinal)[-_MAX_OUTCOMES:]):
            if view.use(outcome.ordinal).kind != use.kind:
                continue
            earlier = view.transcript.exchanges[outcome.ordinal]
            if not self._may_have_failed(earlier) or self._may_have_failed(exchange):
                return
            is_old = outcome.ordinal < view.aged_from
            if is_old and self._is_long_error(earlier) and self._resolves(exchange, earlier):
                yield earlier

    def is_left_running(self, exchange: Exchange) -> bool:
        """Return whether a call returned while its process was still running."""
        part = self._result(exchange)
        return part is not None and running_session(part.text) is not None

    def _resolves(self, later: Exchange, error: Exchange) -> bool:
        """Return whether a call resolves an error; piped output must end in success."""
        if self._may_have_failed(later):
            return False
        view = self._view
        if view.use(later.ordinal).key == view.use(error.ordinal).key:
            return True
        part = self._ended(later)
        arguments = view.transcript.parts[later.call].text.replace("||", "")
        return "|" not in arguments or (part is not None and is_success(part.text))

    def _is_long_error(self, exchange: Exchange) -> bool:
        """Return whether a result is an error worth a stub.

        The output of a failed read is not, nor is the user's refusal of a call.
        """
        part = self._result(exchange)
        kind = self._view.use(exchange.ordinal).outcome_kind
        if part is None or len(part.text) < self._min_chars or kind in ("read", "search"):
            return False
        return _is_error(part, kind) and not is_user_refusal(part.text)

    def _may_have_failed(self, exchange: Exchange) -> bool:
        """Return whether a call failed or has an unknown outcome."""
        known = self._failed.get(exchange.ordinal)
        if known is None:
            part = self._ended(exchange)
            kind = self._view.use(exchange.ordinal).outcome_kind
            known = part is None or _is_error(part, kind) or _has_bad_end(part, kind)
            self._failed[exchange.ordinal] = known
        return known

    def _ended(self, exchange: Exchange) -> Part | None:
        """The result with the outcome of a call: its own, or the last poll of its process."""
        part = self._result(exchange)
        process = None if part is None else running_session(part.text)
        if process is None:
            return part
        view = self._view
        polls = view.ledger.outcomes(Use("run", target=process), view.seen_exchanges())
        if not process or not polls or polls[-1].ordinal <= exchange.ordinal:
            return None
        last = self._result(view.transcript.exchanges[polls[-1].ordinal])
        return None if last is None or running_session(last.text) is not None else last

    def _result(self, exchange: Exchange) -> Part | None:
        return None if exchange.result is None else self._view.transcript.parts[exchange.result]


def _is_error(part: Part, kind: str) -> bool:
    """Return whether a result is an error; a pipe may have hidden a run's exit code."""
    return is_failed(part.text, part.error) or (kind == "run" and has_failure_count(part.text))


def _has_bad_end(part: Part, kind: str) -> bool:
    """Return whether a run's last output says it failed, for any exit code."""
    return kind == "run" and has_failed_ending(part.text)


def _offers(view: View, exchange: Exchange, later: Exchange) -> Iterator[Offer]:
    at = exchange.result
    if at is None or not view.can_rewrite(at):
        return
    part = view.transcript.parts[at]
    if find_marker(part.text) is not None:
        return
    by = f"resolved by {call_label(view, later.ordinal, exchange.ordinal)}"
    ref = reference(part.text)
    why = f"{describe_source(view, later.ordinal)} succeeded further down"
    text = _stub_text(part.text, ref, why, view)
    saved = view.saved_by(at, text)
    if saved > 0:
        evidence = f"{by}, {_count_lines(part.text):,} lines"
        yield Offer(
            "stub",
            Replace(
                part=at,
                ref=part.ref,
                text=text,
                original=ref,
                reason="resolved",
                evidence=evidence,
                saved=saved,
            ),
        )


def _stub_text(text: str, ref: str, why: str, view: View) -> str:
    """The line that names the cause, and a marker for the rest."""
    line = error_line(text)
    kept = clip_error_line(line)
    total = _count_lines(text)
    omitted = total - 1 if kept == line else total
    marker = OmissionMarker(omitted, "lines", ref, total, reason=why, fetch_tool=view.fetch_tool)
    return f"{kept}\n{marker}"


def _count_lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))
