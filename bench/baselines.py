"""The published baselines under three token measures: characters / 4, exact, calibrated.

    python -m bench.baselines CORPUS

The first gives the published table; the others use each session's own model, head, cache
lifetimes and prices, with the counter alone and with what its reported usage teaches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.passes import CONDITIONS, panel
from respool.replay.prompt_cache import CharacterMeasure, CounterMeasure, TokenMeasure
from respool.replay.reconciliation import infer_evidence
from respool.replay.recording import BillingConditions, infer_conditions, main_model
from respool.replay.result import SessionResult
from respool.replay.runner import ReplayOptions, choose_measure, replay_under
from respool.replay.totals import ratio_to_baseline
from respool.sessions.session import RecordedSession
from respool.tokens import counter_for

POLICIES = ("none", "mask-10", "clear-100k", "clear-50k-5", "oracle", "floor", "safe", "lean")
Way = Callable[[RecordedSession], tuple[TokenMeasure, BillingConditions]]


def plain(session: RecordedSession) -> tuple[TokenMeasure, BillingConditions]:
    """As the published table counts and prices."""
    return CharacterMeasure(), CONDITIONS[session.format]


def exact(session: RecordedSession) -> tuple[TokenMeasure, BillingConditions]:
    """The counter of the session's model; its own terms."""
    measure = CounterMeasure(counter_for(session.format, main_model(session)))
    return measure, infer_conditions(session, measure)


def calibrated(session: RecordedSession) -> tuple[TokenMeasure, BillingConditions]:
    """Return the recording with a measure calibrated by reported usage."""
    measure = choose_measure(session, ReplayOptions(POLICIES), infer_evidence(session))
    return measure, infer_conditions(session, measure)


WAYS: dict[str, Way] = {"characters / 4": plain, "counter": exact, "calibrated": calibrated}


def row(results: list[SessionResult], at: int) -> list[str]:
    """Bill, all-in, lost turns and peak of one policy."""
    scores, base = [one.scores[at] for one in results], [one.scores[0] for one in results]
    lost = sum(one.lost_turns for one in scores) / sum(one.requests for one in scores)
    return [
        f"{ratio_to_baseline(scores, base, lambda one: one.bill.cost):.3f}",
        f"{ratio_to_baseline(scores, base, lambda one: one.all_in):.3f}",
        f"{lost:.3f}",
        f"{ratio_to_baseline(scores, base, lambda one: one.peak):.3f}",
    ]


def main() -> None:
    """Print a table per agent."""
    sessions = list(panel(Path(sys.argv[1])))
    console = Console(width=120)
    for format in ("anthropic", "openai-responses"):
        chosen = [one for one in sessions if one.format == format]
        shown = Table("policy", "counted", "bill", "all-in", "lost", "peak", title=format)
        for name, way in WAYS.items():
            results = [replay_under(one, *way(one), policies=POLICIES) for one in chosen]
            for at, policy in enumerate(POLICIES[1:], 1):
                shown.add_row(policy, name, *row(results, at))
            shown.add_section()
        console.print(shown)


if __name__ == "__main__":
    main()
