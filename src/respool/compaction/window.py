"""Context window and budget: overflow of a projection, and the time of the next evaluation."""

from __future__ import annotations

from ..limits import BYTES_PER_TOKEN, Overflow, RequestLimits, measure_overflow
from .context import Context
from .state import NEAR_RATIO, State

_REGROWTH_RATIO = 1.03  # times the projection after the last evaluation
_NO_OVERFLOW = Overflow()


def is_due(state: State, context: Context) -> bool:
    """Return whether to evaluate: enough is new, or a limit is exceeded.

    The listed window is not exact. Where it is exceeded and nothing more can go, the next
    evaluation waits until the projection has grown a little.
    """
    projection, policy = state.estimated_tokens, context.policy
    enough = max(policy.reevaluate_tokens, policy.reevaluate_ratio * projection)
    if state.evaluation.new_tokens >= enough:
        return True
    over = _overflow(state, context)
    if over.of("tokens") is None or state.limits(context).source != "window":
        return bool(over)
    regrown = _REGROWTH_RATIO * state.evaluation.projected_tokens
    return len(over.exceeded) > 1 or projection >= regrown


def is_over_window(state: State, context: Context) -> bool:
    """Return whether the projection has more tokens than its limit."""
    return _overflow(state, context).of("tokens") is not None


def _overflow(state: State, context: Context) -> Overflow:
    """The limits that the projection exceeds; its bytes are only estimated."""
    limits = state.limits(context)
    tokens = state.count_projection(context, limits) + _join_tokens(state)
    media = state.window.media
    if not media and _is_below(limits, tokens + context.head):
        return _NO_OVERFLOW  # the common case
    present = [one for one in media.values() if one.part not in state.edits.claimed]
    return measure_overflow(
        limits,
        tokens=tokens + context.head,
        bytes=BYTES_PER_TOKEN * tokens + sum(one.bytes for one in present),
        images=sum(one.unit == "image" for one in present),
        side=max((one.side for one in present), default=0),
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
