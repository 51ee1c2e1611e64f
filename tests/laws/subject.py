"""Compactors that the laws run: the real one, or one with a planted fault."""

from __future__ import annotations

from typing import Any, Protocol

from respool.compaction.memo import Memo
from respool.engine import Compaction, build_compaction, fold_request
from respool.errors import PassedThrough, UnreadableRequest
from respool.facts import Facts
from respool.passes import PASSES, Pass
from respool.policy import Policy
from respool.report import Report
from tests.laws.trial_passes import (
    drop_every_other_exchange,
    drop_old_reasoning,
    place_last_seen_breakpoint,
    shorten_calls,
)

# Evaluate at every boundary, with a cap that bites: the most that the fold can do.
EAGER = Policy(
    cap_chars=200, reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, keep_exchanges=0
)
# Edits wait until they pay, at prices at which some do in histories of a few hundred tokens.
PRICED = Policy(
    cap_chars=200,
    reevaluate_tokens=1,
    reevaluate_ratio=0.0,
    miss_penalty=0.0,
    cache_read_price=0.1,
    cache_write_price=0.2,
    keep_exchanges=0,
)
# The same before the model has seen it, as far as the policy lets that happen.
LEAN = PRICED.replace(trim_on_arrival=True)
ORDINARY = Policy(cap_chars=200)
# What respool comes from, with constants that bite in sessions of a few calls.
SMALL_SOURCES = {
    "codetether": Policy.preset("codetether").replace(
        cap_chars=700, keep_messages=2, keep_reasoning_messages=1
    ),
    "clark": Policy.preset("clark").replace(cap_chars=200),
    "rfc013": Policy.preset("rfc013").replace(keep_calls=2, fold_over_chars=200),
    "pi-dcp": Policy.preset("pi-dcp").replace(keep_messages=2),
}
IDLE = Policy(cap_chars=None, passes=())


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
            folded = fold_request(
                request, format=format, policy=policy, facts=Facts(), memo=memo, passes=chosen
            )
            return build_compaction(folded, request)
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
    "anthropic": place_last_seen_breakpoint({"type": "ephemeral", "ttl": "1h"}),
    "openai-chat": place_last_seen_breakpoint({"mode": "explicit"}),
    "openai-responses": place_last_seen_breakpoint({"mode": "explicit"}),
}
