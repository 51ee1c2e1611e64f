"""How a compactor is run by the laws: the real one, or one with a planted fault."""

from __future__ import annotations

from typing import Any, Protocol

from respool.engine import Compaction, compacted, fold_request
from respool.errors import PassedThrough, UnreadableRequest
from respool.facts import Facts
from respool.folding.memo import Memo
from respool.passes import PASSES, Pass
from respool.policy import Policy
from respool.report import Report

from .trial_passes import (
    drop_every_other_exchange,
    drop_old_reasoning,
    mark_the_last_seen,
    shorten_calls,
)

# Evaluate at every boundary, with a cap that bites: the most that the fold can do.
EAGER = Policy(cap=200, step=1, growth=0.0, at_once=True)
# Edits wait until they pay, at prices at which some do in histories of a few hundred tokens.
PRICED = Policy(cap=200, step=1, growth=0.0, caution=0.0, read_price=0.1, write_price=0.2)
# The same before the model has seen it, as far as the policy lets that happen.
LEAN = PRICED.replace(shape_arrivals=True)
ORDINARY = Policy(cap=200)
# What respool comes from, with constants that bite in sessions of a few calls.
SMALL_SOURCES = {
    "codetether": Policy.preset("codetether").replace(cap=700, keep_messages=2, keep_reasoning=1),
    "clark": Policy.preset("clark").replace(cap=200),
    "rfc013": Policy.preset("rfc013").replace(keep_calls=2, fold_over=200),
    "pi-dcp": Policy.preset("pi-dcp").replace(keep_messages=2),
}
IDLE = Policy(cap=None, passes=())


class Compact(Protocol):
    """A compactor as the laws see it."""

    def __call__(
        self, request: Any, *, policy: Policy | None = None, memo: Memo | None = None
    ) -> Compaction[Any]: ...


def compactor(*passes: Pass, format: str | None = None, usual: Policy = EAGER) -> Compact:
    """The real engine with these passes and this policy, told the format or not."""

    def run(
        request: Any, *, policy: Policy | None = None, memo: Memo | None = None
    ) -> Compaction[Any]:
        policy = usual if policy is None else policy
        chosen = () if policy.passes == () else passes
        try:
            folded = fold_request(request, format, policy, Facts(), memo, passes=chosen)
            return compacted(folded, request)
        except (PassedThrough, UnreadableRequest) as why:
            return Compaction(request, Report(untouched=str(why)), {})

    return run


real = compactor(*PASSES)

# Every pass that exists, each alone and all together; the trial passes make the other edits.
SUBJECTS: dict[str, tuple[Pass, ...]] = {
    **{one.__name__: (one,) for one in PASSES},
    "drop_every_other_exchange": (drop_every_other_exchange,),
    "drop_old_reasoning": (drop_old_reasoning,),
    "shorten_calls": (shorten_calls,),
    "all": (*PASSES, drop_every_other_exchange, drop_old_reasoning, shorten_calls),
}

# Marks of the lifetime that may stand before any other, in the shape that each wire knows.
MARKERS: dict[str, Pass] = {
    "anthropic": mark_the_last_seen({"type": "ephemeral", "ttl": "1h"}),
    "openai-chat": mark_the_last_seen({"mode": "explicit"}),
    "openai-responses": mark_the_last_seen({"mode": "explicit"}),
}
