"""Holdout: conversations that are sent as they came, so that a comparison shows what respool does.

A unit is what is drawn as a whole: a session with its sub-agents, its forks and what resumes it, or
a conversation where the client names no session. The draw is a hash with the store's salt, so it is
the same after a restart and on every server with that store.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..store import Arm
from .auth import keyed_hash
from .server_options import HoldoutOptions

_PURPOSE = "holdout"


def draw_arm(unit: str, salt: bytes, options: HoldoutOptions) -> Arm:
    """The arm of a unit; a larger share holds out the same units and more.

    >>> draw_arm("a", b"salt", HoldoutOptions(0.0)), draw_arm("", b"salt", HoldoutOptions(0.9))
    ('', '')
    """
    if not unit or not options.share:
        return ""
    is_chosen = int(keyed_hash(salt, _PURPOSE, unit.encode()), 16) < options.share * 2**128
    if options.is_aa:
        return "a" if is_chosen else "b"
    return "held-out" if is_chosen else "compacted"


def inherited_unit(ancestors: Sequence[str | None], own: str) -> str:
    """The unit of the nearest known ancestor, else a request's own; empty: no unit.

    `ancestors` are units, the nearest last; None: not known. An ancestor without a unit was sent
    before the experiment began, and its conversation takes no part.

    >>> inherited_unit([None, "b", None], "own"), inherited_unit([None], "own")
    ('b', 'own')
    """
    return next((unit for unit in reversed(ancestors) if unit is not None), own)
