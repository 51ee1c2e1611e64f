"""The published baselines counted three ways: characters / 4, exactly, and as usage calibrates it.

    python -m bench.beside CORPUS

The first is what the published table says; the others take each session's own model, head, cache
lifetimes and prices, with the counter alone and with what its reported usage teaches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.passes import CONDITIONS, panel
from respool.replay.calibration import evidence_of
from respool.replay.conditions import conditions_of, model_of_session
from respool.replay.one import Options, measure_for, replayed
from respool.replay.reading import Counted, Measure, Plain
from respool.replay.recording import Conditions
from respool.replay.result import SessionResult
from respool.replay.totals import ratio
from respool.sessions.session import Session
from respool.tokens import counter_for

POLICIES = ("none", "mask-10", "clear-100k", "clear-50k-5", "oracle", "floor", "safe", "lean")
Way = Callable[[Session], tuple[Measure, Conditions]]


def plain(session: Session) -> tuple[Measure, Conditions]:
    """As the published table counts and prices."""
    return Plain(), CONDITIONS[session.format]


def exact(session: Session) -> tuple[Measure, Conditions]:
    """The counter of the session's model; its own terms."""
    measure = Counted(counter_for(session.format, model_of_session(session)))
    return measure, conditions_of(session, measure)


def calibrated(session: Session) -> tuple[Measure, Conditions]:
    """The same, with what the reported usage teaches."""
    measure = measure_for(session, Options(POLICIES), evidence_of(session))
    return measure, conditions_of(session, measure)


WAYS: dict[str, Way] = {"characters / 4": plain, "counter": exact, "calibrated": calibrated}


def row(results: list[SessionResult], at: int) -> list[str]:
    """Bill, all-in, lost turns and peak of one policy."""
    scores, base = [one.scores[at] for one in results], [one.scores[0] for one in results]
    lost = sum(one.lost_turns for one in scores) / sum(one.requests for one in scores)
    return [
        f"{ratio(scores, base, lambda one: one.bill.cost):.3f}",
        f"{ratio(scores, base, lambda one: one.all_in):.3f}",
        f"{lost:.3f}",
        f"{ratio(scores, base, lambda one: one.peak):.3f}",
    ]


def main() -> None:
    """Print a table per agent."""
    sessions = list(panel(Path(sys.argv[1])))
    console = Console(width=120)
    for format in ("anthropic", "openai-responses"):
        chosen = [one for one in sessions if one.format == format]
        shown = Table("policy", "counted", "bill", "all-in", "lost", "peak", title=format)
        for name, way in WAYS.items():
            results = [replayed(one, *way(one), POLICIES) for one in chosen]
            for at, policy in enumerate(POLICIES[1:], 1):
                shown.add_row(policy, name, *row(results, at))
            shown.add_section()
        console.print(shown)


if __name__ == "__main__":
    main()
