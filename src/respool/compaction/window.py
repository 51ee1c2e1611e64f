"""Context window and budget: overflow of a projection, and the time of the next evaluation."""

from __future__ import annotations

import math
from itertools import takewhile
from typing import TYPE_CHECKING

from ..edits import result_with_media
from ..limits import (
    BYTES_PER_TOKEN,
    ExceededLimit,
    Overflow,
    RequestLimits,
    measure_overflow,
    protection_label,
    tokens_by_blocker,
)
from ..passes.base import View
from ..passes.protections import Protections
from .context import Context
from .state import NEAR_RATIO, State, UnmetLimits

if TYPE_CHECKING:
    from ..report import Report

_REGROWTH_RATIO = 0.03  # of all that an evaluation goes over
_MAX_REGROWTH_RATIO = 0.1  # of the projection after the last evaluation
_ESTIMATE_MARGIN = 1.25  # times estimated tokens: the most that they can be
_LATEST_EXCHANGES = 48  # a batch that is folded at once, and those that are too recent to fold
_NO_OVERFLOW = Overflow()


def is_due(state: State, context: Context) -> bool:
    """Return whether to evaluate: enough is new, or a limit is exceeded.

    Where the last evaluation left a limit exceeded although all went that may, the next one waits
    until that may be met, or the projection has grown a little: by a part of all that an evaluation
    goes over, so that all evaluations together take linear time. The listed window is not exact:
    there only growth counts.
    """
    projection = state.estimated_tokens
    if state.evaluation.new_tokens >= evaluation_interval(state, context):
        return True
    over = _overflow(state, context)
    is_listed = state.limits(context).source == "window"
    known = state.evaluation.projected_tokens
    looked_at = known if is_listed else max(known, state.standing_tokens)
    growth = min(_REGROWTH_RATIO * looked_at, _MAX_REGROWTH_RATIO * known)
    if not over or projection >= known + growth:
        return bool(over)
    return any(
        not (is_listed and one.kind == "tokens") and _can_be_met(state, one)
        for one in over.exceeded
    )


def is_over_limit(state: State, context: Context) -> bool:
    """Return whether the projection exceeds any limit."""
    return bool(_overflow(state, context))


def evaluation_interval(state: State, context: Context) -> int:
    """The tokens that must be new before the next evaluation, unless a limit is exceeded."""
    policy = context.policy
    return math.ceil(
        max(policy.reevaluate_tokens, policy.reevaluate_ratio * state.estimated_tokens)
    )


def _can_be_met(state: State, over: ExceededLimit) -> bool:
    """Return whether what has changed since the last evaluation may be enough to meet a limit."""
    unmet = state.evaluation.unmet
    if unmet is None or over.kind not in unmet.kinds:
        return True
    excess = over.reached - over.allowed
    tokens = _ESTIMATE_MARGIN * (state.evaluation.new_tokens + unmet.tokens)
    if over.kind == "tokens":
        return tokens >= excess
    media = unmet.media + len(state.window.media) - unmet.counted_media
    if over.kind == "images":
        return media >= excess
    return media > 0 or (over.kind == "bytes" and BYTES_PER_TOKEN * tokens >= excess)


def record_unmet(view: View) -> None:
    """Record the limits that the evaluation of this view left exceeded."""
    state = view.state
    over = _overflow(state, view.context)
    state.evaluation.unmet = None
    if not over:
        return
    seen, end = view.seen_exchanges(), view.unseen_from
    kept_from = end if view.kept_from is None else min(end, view.kept_from)
    protected = view.pinned.judged() if isinstance(view.pinned, Protections) else ()
    tokens = media = 0
    for ordinal in {*protected, *range(max(0, seen - _LATEST_EXCHANGES), seen)}:
        exchange = state.transcript.exchanges[ordinal]
        result = exchange.result
        shown = [] if result is None else result_with_media(state.transcript, result)
        for part in (exchange.call, *shown):
            if view.is_gone(part):
                continue
            edit = state.edits.by_part.get(part)
            tokens += max(0, state.tokens.estimates[part] - (0 if edit is None else edit.saved))
            media += part in state.window.media and view.is_whole(part)
    late = sum(1 for _ in takewhile(lambda one: one >= kept_from, reversed(state.window.media)))
    state.evaluation.unmet = UnmetLimits(
        frozenset(one.kind for one in over.exceeded), tokens, media, len(state.window.media) - late
    )


def is_over_window(state: State, context: Context) -> bool:
    """Return whether the projection has more tokens than its limit."""
    return _overflow(state, context).of("tokens") is not None


def _overflow(state: State, context: Context) -> Overflow:
    """The limits that the projection exceeds; its bytes are only estimated."""
    limits = state.limits(context)
    tokens = state.count_projection(context, limits) + _join_tokens(state)
    if not state.window.media and _is_below(limits, tokens + context.head):
        return _NO_OVERFLOW  # the common case
    present = state.window.present_media(state.edits.claimed)
    return measure_overflow(
        limits,
        tokens=tokens + context.head,
        bytes=BYTES_PER_TOKEN * tokens + present.bytes,
        images=present.images,
        side=present.sides[-1] if present.sides else 0,
    )


def _join_tokens(state: State) -> int:
    """The most tokens that joining the neighbours of removed parts can add."""
    return len(state.edits.claimed) - len(state.edits.by_part)


def _is_below(limits: RequestLimits, tokens: int) -> bool:
    """Return whether a request of so many tokens, without media, exceeds no limit."""
    return (limits.tokens is None or tokens <= limits.tokens) and (
        limits.bytes is None or BYTES_PER_TOKEN * tokens <= limits.bytes
    )


def record_fullness(state: State, context: Context) -> None:
    """Record the size of the projection and of the output that the request asks for."""
    window = state.window
    window.max_request_tokens = max(window.max_request_tokens, state.max_tokens(context))
    allowed = state.limits(context).tokens
    if allowed is not None and window.max_request_tokens > NEAR_RATIO * allowed:
        window.was_near_limit = True
    window.output_tokens = context.output_tokens


def is_output_sensitive(state: State, context: Context, other: int) -> bool:
    """Return whether a request with so much output may have led to other decisions."""
    budget_rules = context.policy.budget is not None and state.window.size is None
    if other == context.output_tokens or budget_rules:
        return False
    allowed = state.limits(context).tokens
    if allowed is None:
        return False
    return state.window.was_near_limit or state.window.max_request_tokens > NEAR_RATIO * (
        allowed - max(0, other - context.output_tokens)
    )


def is_valid_for_output(state: State, context: Context) -> bool:
    """Return whether this context gives the same state, though made for another output size.

    Far from a window the size of the output changes nothing.
    """
    window, has_budget = state.window, context.policy.budget is not None
    if window.output_tokens == context.output_tokens or (has_budget and window.size is None):
        return True
    if window.was_near_limit or has_budget:
        return False
    allowed = state.limits(context).tokens
    return allowed is None or window.max_request_tokens <= NEAR_RATIO * allowed


# --- a budget that is not met ---------------------------------------------------------------------

_SAFE_RATIO = 0.97  # of the budget: joining messages takes a token or two


def raise_over_budget(state: State, context: Context, report: Report) -> None:
    """Raise when a budget that the policy sets is not met, and say what stands in the way.

    A window that is only listed is no reason: the provider may accept what was estimated. What
    the rendering adds does not count: no edit could have avoided it.
    """
    limits = state.limits(context)
    if limits.source != "budget" or limits.tokens is None or _is_skipped(state, context):
        return
    if (
        context.head + state.count_parts(context.counter) - state.edits.saved
        <= _SAFE_RATIO * limits.tokens
    ):
        return  # what goes out is counted anew only where it may matter
    sent = report.tokens_after - report.tokens_rendered
    over = measure_overflow(limits, tokens=sent).of("tokens")
    if over is not None:
        raise over.error(_with_join_tokens(sent, _blockers(state, context)))


def _is_skipped(state: State, context: Context) -> bool:
    """Return whether facts forbid new edits here."""
    return state.prefix.is_left_alone or state.prefix.hex() in context.facts.skipped


def _with_join_tokens(sent: int, found: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """The blockers, and the few tokens that joining messages adds or saves."""
    rest = sent - sum(size for _, size in found)
    return (*found, ("messages that were joined", rest)) if rest else found


def _blockers(state: State, context: Context) -> tuple[tuple[str, int], ...]:
    sizes = list(state.tokens.exact)  # exact by now, for the report has counted them
    for position in state.edits.claimed:
        edit = state.edits.by_part.get(position)
        sizes[position] = 0 if edit is None else max(0, sizes[position] - edit.saved)
    for position, advised in state.edits.advice.items():
        sizes[position] -= advised.saved
    unseen_from = state.transcript.units[-1].answers_from if state.transcript.units else 0
    view = View(state, context, "full", unseen_from)  # what holds over a limit
    return tokens_by_blocker(
        state.transcript.parts, sizes, lambda at: _protection_of(view, at), context.head
    )


def _protection_of(view: View, position: int) -> str | None:
    pins = view.pinned
    assert isinstance(pins, Protections)
    return protection_label(
        view.transcript, position, view.unseen_from, view.first_user, pins.label_for
    )
