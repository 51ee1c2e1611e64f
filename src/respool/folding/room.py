"""How much room there is: which limits a projection exceeds, and when it is to be looked at."""

from __future__ import annotations

from ..limits import BYTES_A_TOKEN, Limits, Pressure, limits_for, pressure
from .state import Setting, State, count_all

_MORE = 1.03  # times what was left at the last look
_NEAR = 0.8  # of a window; from there on tokens are counted exactly
_DOUBT = 0.1  # of all that came: so far the estimate may be off
_NO_PRESSURE = Pressure()


def is_due(state: State, setting: Setting) -> bool:
    """Whether another evaluation is worth its time: enough is new, or a limit is exceeded.

    A window that is only listed has slack: where all that may go has gone and it is still
    exceeded, the next look waits until a little more has come.
    """
    projection = state.size - state.saved
    if state.since >= max(setting.policy.reevaluate_tokens, setting.policy.reevaluate_ratio * projection):
        return True
    over = _pressure(state, setting)
    tokens = over.of("tokens")
    if tokens is None or limits_of(state, setting).source != "window":
        return bool(over)
    return len(over.exceeded) > 1 or projection >= _MORE * state.left_over


def is_over(state: State, setting: Setting) -> bool:
    """Whether the projection has more tokens than fit."""
    return _pressure(state, setting).of("tokens") is not None


def limits_of(state: State, setting: Setting) -> Limits:
    """How much this conversation's requests may hold, by all that is known of its window."""
    if state.window is None:
        return setting.limits
    return limits_for(setting.policy, setting.codec.name, setting.fields, state.window)


def _pressure(state: State, setting: Setting) -> Pressure:
    """Which limits the projection exceeds; its bytes are only estimated."""
    limits = limits_of(state, setting)
    tokens = tokens_near(limits, state, setting) + _seams(state)
    if not state.held and _is_far_from(limits, tokens + setting.head):
        return _NO_PRESSURE  # most boundaries
    standing = [one for one in state.held.values() if one.part not in state.claimed]
    return pressure(
        limits,
        tokens=tokens + setting.head,
        bytes=BYTES_A_TOKEN * tokens + sum(one.bytes for one in standing),
        images=sum(one.unit == "image" for one in standing),
        side=max((one.side for one in standing), default=0),
    )


def _seams(state: State) -> int:
    """The tokens that it may take to join what stood around parts that are gone, at most."""
    return len(state.claimed) - len(state.edits)


def _is_far_from(limits: Limits, tokens: int) -> bool:
    """Whether a request of so many tokens, without images and files, exceeds no limit."""
    return (limits.tokens is None or tokens <= limits.tokens) and (
        limits.bytes is None or BYTES_A_TOKEN * tokens <= limits.bytes
    )


def tokens_near(limits: Limits, state: State, setting: Setting) -> int:
    """The tokens of the projection without its head: exact under a budget, or near a window."""
    about = state.size - state.saved
    if limits.tokens is None or setting.sizer is setting.counter:
        return about
    if limits.source == "window" and _at_most(state, setting) <= _NEAR * limits.tokens:
        return about
    return count_all(state, setting.counter) - state.saved


def _at_most(state: State, setting: Setting) -> float:
    """The tokens of the projection and its head, if the estimate is as far off as it may be."""
    doubt = _DOUBT * state.size  # sizes are estimated, and savings are not
    return state.size - state.saved + doubt + setting.head


def note_fullness(state: State, setting: Setting) -> None:
    """Note how full the projection is, and for how much output there has to be room."""
    state.max_request_tokens = max(state.max_request_tokens, _at_most(state, setting))
    allowed = limits_of(state, setting).tokens
    state.was_near_limit |= allowed is not None and state.max_request_tokens > _NEAR * allowed
    state.output_tokens = setting.output_tokens


def minds_output(state: State, setting: Setting, other: int) -> bool:
    """Whether the same may have been decided otherwise for a request with so much output."""
    if other == setting.output_tokens or (setting.policy.budget is not None and state.window is None):
        return False
    allowed = limits_of(state, setting).tokens
    if allowed is None:
        return False
    return state.was_near_limit or state.max_request_tokens > _NEAR * (allowed - max(0, other - setting.output_tokens))


def fits_alike(state: State, setting: Setting) -> bool:
    """Whether a state is what this setting gives, though it was made for more or less output.

    Far from a window it does not matter how much of that is kept free.
    """
    budget, named = setting.policy.budget is not None, state.window is not None
    if state.output_tokens == setting.output_tokens or (budget and not named):
        return True
    if state.was_near_limit or budget:
        return False
    allowed = limits_of(state, setting).tokens
    return allowed is None or state.max_request_tokens <= _NEAR * allowed
