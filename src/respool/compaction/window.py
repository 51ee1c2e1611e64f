"""Context window and budget: overflow of a projection, and when to reevaluate."""

from __future__ import annotations

from ..limits import BYTES_PER_TOKEN, Overflow, RequestLimits, limits_for, measure_overflow
from .state import Context, State, count_parts

_REGROWTH_RATIO = 1.03  # times what was left at the last look
_NEAR_RATIO = 0.8  # of a window; from there on tokens are counted exactly
_ESTIMATE_ERROR_RATIO = 0.1  # of all that came: so far the estimate may be off
_NO_OVERFLOW = Overflow()


def is_due(state: State, setting: Context) -> bool:
    """Whether another evaluation is worth its time: enough is new, or a limit is exceeded.

    A window that is only listed has slack: where all that may go has gone and it is still
    exceeded, the next look waits until a little more has come.
    """
    projection = state.size - state.saved
    if state.since >= max(
        setting.policy.reevaluate_tokens, setting.policy.reevaluate_ratio * projection
    ):
        return True
    over = _overflow(state, setting)
    tokens = over.of("tokens")
    if tokens is None or current_limits(state, setting).source != "window":
        return bool(over)
    return len(over.exceeded) > 1 or projection >= _REGROWTH_RATIO * state.left_over


def is_over_window(state: State, setting: Context) -> bool:
    """Whether the projection has more tokens than fit."""
    return _overflow(state, setting).of("tokens") is not None


def current_limits(state: State, setting: Context) -> RequestLimits:
    """How much this conversation's requests may hold, by all that is known of its window."""
    if state.window is None:
        return setting.limits
    return limits_for(setting.policy, setting.codec.name, setting.fields, state.window)


def _overflow(state: State, setting: Context) -> Overflow:
    """Which limits the projection exceeds; its bytes are only estimated."""
    limits = current_limits(state, setting)
    tokens = estimate_tokens(limits, state, setting) + _join_tokens(state)
    if not state.held and _is_below(limits, tokens + setting.head):
        return _NO_OVERFLOW  # most boundaries
    standing = [one for one in state.held.values() if one.part not in state.claimed]
    return measure_overflow(
        limits,
        tokens=tokens + setting.head,
        bytes=BYTES_PER_TOKEN * tokens + sum(one.bytes for one in standing),
        images=sum(one.unit == "image" for one in standing),
        side=max((one.side for one in standing), default=0),
    )


def _join_tokens(state: State) -> int:
    """The tokens that it may take to join what stood around parts that are gone, at most."""
    return len(state.claimed) - len(state.edits)


def _is_below(limits: RequestLimits, tokens: int) -> bool:
    """Whether a request of so many tokens, without images and files, exceeds no limit."""
    return (limits.tokens is None or tokens <= limits.tokens) and (
        limits.bytes is None or BYTES_PER_TOKEN * tokens <= limits.bytes
    )


def estimate_tokens(limits: RequestLimits, state: State, setting: Context) -> int:
    """The tokens of the projection without its head: exact under a budget, or near a window."""
    about = state.size - state.saved
    if limits.tokens is None or setting.sizer is setting.counter:
        return about
    if limits.source == "window" and _max_tokens(state, setting) <= _NEAR_RATIO * limits.tokens:
        return about
    return count_parts(state, setting.counter) - state.saved


def _max_tokens(state: State, setting: Context) -> float:
    """The tokens of the projection and its head, if the estimate is as far off as it may be."""
    doubt = _ESTIMATE_ERROR_RATIO * state.size  # sizes are estimated, and savings are not
    return state.size - state.saved + doubt + setting.head


def record_fullness(state: State, setting: Context) -> None:
    """Note how full the projection is, and for how much output there has to be room."""
    state.max_request_tokens = max(state.max_request_tokens, _max_tokens(state, setting))
    allowed = current_limits(state, setting).tokens
    state.was_near_limit |= allowed is not None and state.max_request_tokens > _NEAR_RATIO * allowed
    state.output_tokens = setting.output_tokens


def is_output_sensitive(state: State, setting: Context, other: int) -> bool:
    """Whether the same may have been decided otherwise for a request with so much output."""
    if other == setting.output_tokens or (
        setting.policy.budget is not None and state.window is None
    ):
        return False
    allowed = current_limits(state, setting).tokens
    if allowed is None:
        return False
    return state.was_near_limit or state.max_request_tokens > _NEAR_RATIO * (
        allowed - max(0, other - setting.output_tokens)
    )


def is_valid_for_output(state: State, setting: Context) -> bool:
    """Whether a state is what this setting gives, though it was made for more or less output.

    Far from a window it does not matter how much of that is kept free.
    """
    budget, named = setting.policy.budget is not None, state.window is not None
    if state.output_tokens == setting.output_tokens or (budget and not named):
        return True
    if state.was_near_limit or budget:
        return False
    allowed = current_limits(state, setting).tokens
    return allowed is None or state.max_request_tokens <= _NEAR_RATIO * allowed
