"""Old calls of one kind dropped with their results: what that saves, and what it loses.

    python -m bench.old_calls [CORPUS] [--agent claude-code|codex] [--preset NAME ...]
                              [--per-repository N] [--weights FOLDER] [--processes N]

Adds to a preset one pass that offers to drop every exchange of a kind (reads, runs or searches)
once it is no longer recent; the planner takes what pays by the forecast's risk. Sessions are those
of `bench.held_out --part fit`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from multiprocessing import Pool
from pathlib import Path

from bench.held_out import (
    AGENTS,
    CORPUS,
    SessionFigures,
    Task,
    corpus_files,
    long_sessions,
    measure,
    owner_of,
    summary,
    weights_for,
)
from respool.edits import exchange_closure
from respool.passes import DropExchange, Offer, Policy, ToolKind, View
from respool.passes.superseded_writes import can_leave_unit
from respool.policy import PRESETS

_MIN_TOKENS = 40  # of a call and what is left of its result


def _drop_calls(view: View, kind: ToolKind) -> Iterator[Offer]:
    for exchange in view.aged_exchanges():
        use = view.use(exchange.ordinal)
        if use.kind != kind or use.writes or exchange.server or exchange.result is None:
            continue
        parts = exchange_closure(view.transcript, exchange.ordinal)
        if any(map(view.is_protected, parts)) or not can_leave_unit(view, exchange):
            continue
        saved = sum(map(view.tokens_of, parts))
        if saved >= _MIN_TOKENS:
            ref = view.transcript.parts[exchange.call].ref
            yield Offer("drop", DropExchange(exchange.ordinal, ref, "old_call", kind, saved))


def drop_reads(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to drop old reads."""
    return _drop_calls(view, "read")


def drop_runs(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to drop old runs."""
    return _drop_calls(view, "run")


def drop_searches(view: View, policy: Policy) -> Iterator[Offer]:
    """Offer to drop old searches."""
    return _drop_calls(view, "search")


PASSES: tuple[Callable[[View, Policy], Iterator[Offer]], ...] = (
    drop_reads,
    drop_runs,
    drop_searches,
)


def tasks(asked: argparse.Namespace) -> Iterator[Task]:
    """A task for each session: every preset as it is, and with each pass."""
    policies = {name: PRESETS[name] for name in asked.preset}
    for name in asked.preset:
        for one in PASSES:
            policies[f"{name} {one.__name__}"] = {**PRESETS[name], "passes": ["default", one]}
    for path in corpus_files(asked.corpus, "fit", asked.agent):
        for session in long_sessions(path, asked.per_repository):
            yield Task(path, session, policies, weights_for(owner_of(path), asked.weights))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus", nargs="?", type=Path, default=CORPUS)
    parser.add_argument("--agent", nargs="+", choices=AGENTS, default=AGENTS)
    parser.add_argument("--preset", nargs="+", choices=PRESETS, default=("safe", "lean"))
    parser.add_argument("--per-repository", type=int, default=2)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    rows: list[SessionFigures] = []
    with Pool(asked.processes) as pool:
        for found in pool.imap_unordered(measure, tasks(asked)):
            rows += found
    print("\n".join(summary(sorted(rows, key=lambda row: (row.agent, row.policy)))))


if __name__ == "__main__":
    main()
