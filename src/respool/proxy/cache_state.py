"""The state of the provider's cache: its lifetime, cache breakpoints, and facts about both."""

from __future__ import annotations

from typing import Final

from ..engine import FoldedRequest, breakpoint_lifetime
from ..facts import MAX_LOOKBACK_REQUESTS, BreakpointMode, Facts
from ..pricing import Usage
from .conversation import Turn
from .middleware import NO_FACTS, Decision

_ALWAYS_WARM: Final = 60.0  # seconds: no provider's cache lives shorter
_MIN_UNMARKED_TOKENS: Final = 1_000  # for fewer, an estimate proves nothing
_CACHED_SHARE: Final = 0.5


def is_cold(turn: Turn, sent: float, breakpoints: BreakpointMode | None = None) -> bool:
    """True if the provider has surely dropped what it was sent at that time.

    `breakpoints` are those of that request, if known: the client may have set longer ones then. A
    cache that is wrongly taken for cold is written again for nothing, so in doubt it is warm.
    """
    since = turn.request.time - sent
    known = 0.0 if breakpoints is None else breakpoint_lifetime(breakpoints)
    return since > max(_ALWAYS_WARM, known) and since > turn.history.cache_lifetime


def is_warm_on_these_terms(turn: Turn, boundaries: list[bytes]) -> bool:
    """True if the cache still has an earlier request with the same model and tools."""
    earlier = boundaries[-1 - MAX_LOOKBACK_REQUESTS : -1]
    before = turn.conversation.lineage.latest_on(earlier, turn.history.terms())
    return before is not None and not is_cold(turn, before.time)


def first_breakpoints(turn: Turn) -> Facts:
    """A fact about the client's breakpoints from the first boundary on; no fact if none matter."""
    if len(turn.history.body) < 2 or not _depends_on_breakpoints(turn):
        return NO_FACTS
    first = turn.history.boundaries()[0].hex()
    return Facts(breakpoints=((first, turn.history.breakpoints),))


def new_breakpoints(turn: Turn, folded: FoldedRequest) -> Facts:
    """A fact about the client's breakpoints if the known facts say otherwise, or nothing.

    Earlier decisions depended on the earlier breakpoints, and stay so.
    """
    boundaries, known = folded.boundaries, folded.breakpoints
    found = _breakpoints(turn, known)
    if len(boundaries) < 2 or found == known or not _depends_on_breakpoints(turn):
        return NO_FACTS
    if known is None:
        return Facts(breakpoints=((boundaries[0].hex(), found),))
    here = boundaries[-1].hex()
    if turn.was_answered(here):
        return NO_FACTS  # a retry gets the same projection again
    return Facts(breakpoints=((here, found),))


def window_fact(turn: Turn, tokens: int, *, beside_output: bool) -> Facts:
    """A fact: from here on, a prompt may have so many tokens (or so many beside the output).

    An answer to the same history may have been signed for a longer prompt.
    """
    here, history = turn.history.prefix, turn.history
    tokens = history.window_for(tokens) if beside_output else tokens
    answered = history.is_bound and turn.was_answered(here)
    doubted = frozenset({here} if answered else ())
    return Facts(windows=((here, tokens),), skipped=doubted, changed=doubted)


def is_cached_by_gateway(decision: Decision, usage: Usage | None) -> bool:
    """True if a usage shows that most of the history is cached although the client did not ask."""
    unmarked = decision.tokens_after - decision.client_cached
    if decision.breakpoints != "none" or usage is None or unmarked < _MIN_UNMARKED_TOKENS:
        return False
    return usage.input < _CACHED_SHARE * usage.prompt * unmarked / decision.tokens_after


def _breakpoints(turn: Turn, known: BreakpointMode | None) -> BreakpointMode:
    """The breakpoints of a request, set by its client or by a gateway behind it."""
    found = turn.history.breakpoints
    behind = turn.conversation.is_cached_by_gateway or known == "behind"
    return "behind" if found == "none" and behind else found


def _depends_on_breakpoints(turn: Turn) -> bool:
    """True if decisions on a request depend on its cache breakpoints."""
    if turn.request.is_count or turn.history.format != "anthropic":
        return False
    return turn.history.pricing.cache == "explicit"
