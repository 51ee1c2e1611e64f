"""Pauses of a conversation: the chance that it goes on, and the worth of a keep-alive ping.

A keep-alive ping is the last request again with one token of output. It reads the prompt from the
provider's cache, which then keeps it for another lifetime.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

WaitsFor = Literal["tool", "user"]  # whose input the next request brings

# Chance that the next request comes before the next ping would, by lifetime in seconds, for each
# ping of a pause. Fitted on recorded sessions of Claude Code and Codex by
# `python -m bench.fit_pauses`; chances too small for any read price are left out.
GOES_ON: Final[Mapping[float, Mapping[WaitsFor, tuple[float, ...]]]] = {
    300.0: {
        "tool": (0.363, 0.182, 0.099, 0.071, 0.053, 0.053, 0.024, 0.024, 0.024, 0.024),
        "user": (0.250, 0.126, 0.083, 0.045, 0.036, 0.029, 0.029, 0.029, 0.024, 0.017),
    },
    3_600.0: {
        "tool": (0.071, 0.038, 0.030, 0.004),
        "user": (0.076, 0.044, 0.017, 0.015, 0.010),
    },
}
PING_AT: Final = 0.9  # of a lifetime after the last request: time for the ping to arrive
MAX_PINGS: Final = max(len(row) for table in GOES_ON.values() for row in table.values())


def ping_seconds(lifetime: float) -> float:
    """Seconds after the last request or ping at which the next ping is due.

    >>> ping_seconds(300.0)
    270.0
    """
    return PING_AT * lifetime


def ping_value(
    number: int,
    *,
    lifetime: float,
    waits_for: WaitsFor,
    read: float,
    write: float,
    fixed: float = 0.0,
) -> float:
    """Expected saving of a pause's ping, per token of the prompt, in tokens of plain input.

    `number` counts the pings of this pause from 1. `read` and `write` are the prices of the cache,
    `fixed` is what a ping costs besides, per token of the prompt. Later pings are made only if they
    pay in their turn. Without a fitted chance a ping is worth nothing.

    >>> ping_value(1, lifetime=300.0, waits_for="user", read=0.1, write=1.25) > 0
    True
    >>> ping_value(1, lifetime=300.0, waits_for="user", read=0.5, write=1.25) > 0
    False
    """
    chances = GOES_ON.get(lifetime, {}).get(waits_for, ())
    worth = 0.0
    for chance in reversed(chances[number - 1 :]):
        worth = chance * (write - read) - read - fixed + (1 - chance) * max(0.0, worth)
    return worth
