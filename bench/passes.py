"""Each pass alone on recorded sessions: frequency, savings and losses.

    python -m bench.passes CORPUS [pass ...] [--rest | --all] [--json | --markdown] [--jobs N]

Sessions, prices and counting are those of the published baselines; with --rest, the sessions are
all other long ones of the same files; with --all, every session of the corpus in its own way of
counting. "taken" is with every offer taken as soon as it is made, "free" only with those on results
that were not sent yet, so that no sent prefix ever breaks. After the table of all passes, one table
per pass lists its cuts by kind and age, and which were needed later (see cut_recall.py).
--json prints all figures as one line of JSON, --markdown the tables of bench/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from rich.console import Console
from rich.table import Table

import respool
from bench.cut_recall import (
    ALL,
    Tally,
    Watched,
    coded,
    markdown,
    needed_markdown,
    needed_rows,
    needed_table,
    tally_of,
    total,
)
from respool.errors import MAX_VALUE
from respool.policy import pass_names
from respool.pricing import CacheTerms
from respool.replay.policies import ProjectionSender, UnchangedSender
from respool.replay.prompt_cache import HOUR, CharacterMeasure
from respool.replay.reconciliation import infer_evidence
from respool.replay.recording import BillingConditions, Recording, infer_conditions
from respool.replay.runner import ReplayOptions, choose_measure
from respool.replay.score import PolicyRun
from respool.sessions.readers import READERS, read_file, transcripts_below
from respool.sessions.session import RecordedSession

# The sessions of the published baselines: so many of each file, long ones, in file order.
PANEL = (
    ("claude-code__entireio+cli", 8),
    ("claude-code__entireio+git-sync", 6),
    ("claude-code__PackmindHub+context-evaluator", 4),
    ("codex__entireio+git-sync", 8),
)
CONDITIONS = {
    "anthropic": BillingConditions(
        CacheTerms(cache="explicit", read=0.1, write=1.25, write_1h=2.0), 28_000, HOUR
    ),
    "openai-responses": BillingConditions(CacheTerms(cache="prefix", lifetime=600), 12_000),
}
TAKEN, FREE = ", taken", ", free"
# Settings that a pass needs to fire at all.
ALONE: Mapping[str, Mapping[str, Any]] = {"fold_exchanges": {"budget": 60_000}}


class Figures(Struct):
    """Figures of one pass over some sessions."""

    requests: int = 0
    fired: int = 0  # sessions in which it cut anything
    edits: int = 0  # in force at the end
    refused: int = 0  # places of offers that were not taken
    saved: int = 0  # tokens, in the last requests
    last: int = 0  # tokens of the last requests without it
    cost: float = 0.0
    base: float = 0.0
    all_in: float = 0.0
    lost: int = 0
    breaks: int = 0
    invalid: int = 0
    worse: int = 0
    sessions: int = 0
    seconds: float = 0.0
    unplaced: int = 0  # needs that were gone, but not by a cut
    tally: Tally = field(default_factory=Tally)  # of what it cut
    failures: Counter[str] = field(default_factory=Counter[str])

    @property
    def cuts(self) -> int:
        """All edits that were ever put in force."""
        return total(self.tally, "cuts", ALL)

    @property
    def cut_tokens(self) -> int:
        """The tokens that they took out."""
        return total(self.tally, "tokens", ALL)

    @property
    def share_saved(self) -> float:
        """The percentage of the last requests that is gone; repair may have added some."""
        return 100 * max(0, self.saved) / max(1, self.last)

    def add(self, other: Figures) -> None:
        """Put two together."""
        for name in self.__struct_fields__:
            mine, theirs = getattr(self, name), getattr(other, name)
            if isinstance(mine, Counter):
                mine.update(theirs)  # their sum would leave out what is below zero
            else:
                setattr(self, name, mine + theirs)


def figures(recording: Recording, policy: respool.Policy) -> Figures:
    """One policy on one session."""
    base, sender = (
        PolicyRun(recording, UnchangedSender(recording)),
        ProjectionSender(recording, policy),
    )
    run = Watched(recording, sender)
    for request in range(len(recording.cuts)):
        base.send(request)
        run.send(request)
    none, got = base.score("none"), run.score("pass")
    return Figures(
        requests=got.requests,
        fired=int(bool(run.cuts)),
        edits=sum(cut.parts for cut in got.cuts),
        refused=len(run.refused),
        saved=none.points[-1].tokens - got.points[-1].tokens,
        last=none.points[-1].tokens,
        cost=got.bill.cost,
        base=none.bill.cost,
        all_in=got.all_in,
        lost=got.lost_turns,
        breaks=len(got.breaks),
        invalid=len(got.invalid),
        worse=int(got.all_in > 1.01 * none.all_in),
        sessions=1,
        seconds=got.seconds,
        unplaced=run.unplaced,
        tally=tally_of(run.cuts),
        failures=Counter(got.failures),
    )


def panel(corpus: Path, *, rest: bool = False) -> Iterator[RecordedSession]:
    """The long sessions that the published baselines use, or all others of the same files."""
    for name, wanted in PANEL:
        got = 0
        for session in read_file(corpus / f"{name}.jsonl.gz", READERS):
            if isinstance(session, RecordedSession) and _is_long(session):
                got += 1
                if (got > wanted) is rest:
                    yield session
                elif got > wanted:
                    break


def _is_long(session: RecordedSession) -> bool:
    size = sum(len(json.dumps(m, ensure_ascii=False)) for m in session.messages)
    return size >= 200_000 and 25 <= len(session.requests) <= 260


def everything(corpus: Path) -> Iterator[RecordedSession]:
    """Every session there is."""
    for path in transcripts_below(corpus):
        if path.name.endswith(".jsonl.gz"):
            for session in read_file(path, READERS):
                if isinstance(session, RecordedSession):
                    yield session


def recording_of(session: RecordedSession, real: bool) -> Recording:
    """A session counted and priced as the baselines are, or in its own way."""
    if not real:
        return Recording(session, CharacterMeasure(), CONDITIONS[session.format])
    measure = choose_measure(session, ReplayOptions(("none",)), infer_evidence(session))
    return Recording(session, measure, infer_conditions(session, measure))


def policies(names: Sequence[str]) -> dict[str, respool.Policy]:
    """Each pass alone, taken at once and taken only where it is free; then all defaults."""
    found: dict[str, respool.Policy] = {}
    for name in names:
        found[f"{name}{TAKEN}"] = respool.Policy(passes=(name,), eager=True, **ALONE.get(name, {}))
        found[f"{name}{FREE}"] = respool.Policy(passes=(name,), reevaluate_tokens=MAX_VALUE)
    if "keep_lines" in names:
        found["keep_lines, shape_arrivals"] = respool.Policy(
            passes=("keep_lines",), trim_on_arrival=True, reevaluate_tokens=MAX_VALUE
        )
    found[f"defaults{TAKEN}"] = respool.Policy(eager=True)
    found[f"defaults{FREE}"] = respool.Policy(reevaluate_tokens=MAX_VALUE)
    return found


def measured(task: tuple[RecordedSession, tuple[str, ...], bool]) -> tuple[str, dict[str, Figures]]:
    """All policies on one session."""
    session, names, real = task
    recording = recording_of(session, real)
    found = {name: figures(recording, policy) for name, policy in policies(names).items()}
    return session.agent if real else session.format, found


def table(title: str, rows: Mapping[str, Figures]) -> Table:
    """Table of all passes."""
    shown = Table(title=title)
    for column in (
        "pass",
        "fires in",
        "cuts",
        "tokens",
        "refused",
        "saved",
        "bill",
        "all-in",
        "lost",
        "breaks",
        "invalid",
        "worse",
        "ms/request",
    ):
        shown.add_column(column, justify="left" if column == "pass" else "right")
    for name, one in rows.items():
        shown.add_row(
            name,
            f"{one.fired} of {one.sessions}",
            f"{one.cuts:,}",
            f"{one.cut_tokens:,}",
            str(one.refused),
            f"{one.share_saved:.1f} %",
            f"{one.cost / one.base:.4f}",
            f"{one.all_in / one.base:.4f}",
            f"{one.lost / one.requests:.4f}",
            f"{one.breaks:,}",
            str(one.invalid),
            f"{one.worse} of {one.sessions}",
            f"{1000 * one.seconds / one.requests:.2f}",
        )
        for failure, count in one.failures.items():
            shown.add_row(f"[red]{failure} ({count})[/red]")
    return shown


def print_tables(totals: Mapping[str, Mapping[str, Figures]]) -> None:
    """Print all passes side by side, then the cuts of each."""
    console = Console(width=200 if not sys.stdout.isatty() else None)
    for group, rows in totals.items():
        console.print(table(group, rows))
        for name, one in rows.items():
            if one.tally and not name.endswith(FREE):
                console.print(needed_table(f"{group}: {name}", one.tally))
            if one.unplaced:
                console.print(f"{name}: {one.unplaced} needs were gone, but not by a cut")


def print_markdown(totals: Mapping[str, Mapping[str, Figures]]) -> None:
    """Print a table of all passes per agent, and one of their cuts over all sessions."""
    tallies: dict[str, Tally] = {}
    for group, rows in totals.items():
        lines = [
            (*_cells(name, one), _plainly(free.all_in / one.base))
            for name, one in rows.items()
            if not name.endswith(FREE)
            for free in [rows.get(name.removesuffix(TAKEN) + FREE, one)]
        ]
        print(f"\n{group}\n")
        print(
            markdown(
                (
                    "pass",
                    "fires in",
                    "cuts",
                    "tokens",
                    "saved",
                    "breaks",
                    "lost",
                    "needed",
                    "all-in",
                    "all-in, free",
                ),
                lines,
            )
        )
        for name, one in rows.items():
            tallies.setdefault(name, Tally()).update(one.tally)
    print()
    print(needed_markdown({n: one for n, one in tallies.items() if not n.endswith(FREE)}))


def _cells(name: str, one: Figures) -> tuple[str, ...]:
    needed = f"{total(one.tally, 'needed', ALL)} of {one.cuts:,}" if one.cuts else ""
    return (
        coded(name),
        f"{one.fired} of {one.sessions}",
        f"{one.cuts:,}",
        f"{one.cut_tokens:,}",
        f"{one.share_saved:.1f} %",
        str(one.breaks),
        _plainly(one.lost / one.requests),
        needed,
        _plainly(one.all_in / one.base),
    )


def _plainly(share: float) -> str:
    return "0" if not share else f"{share:.3f}".removeprefix("0")


def plain(one: Figures) -> dict[str, Any]:
    """All figures as plain values; time is left out, for it is another one in each run."""
    values = {name: getattr(one, name) for name in one.__struct_fields__ if name != "seconds"}
    return values | {"failures": dict(one.failures), "tally": needed_rows(one.tally)}


def main() -> None:
    """Print the tables."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("corpus", type=Path)
    asked.add_argument("passes", nargs="*")
    which = asked.add_mutually_exclusive_group()
    which.add_argument("--rest", action="store_true")
    which.add_argument("--all", action="store_true")
    form = asked.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true")
    form.add_argument("--markdown", action="store_true")
    asked.add_argument("--jobs", type=int, default=2)
    told = asked.parse_args()
    names = tuple(told.passes or pass_names())
    sessions = everything(told.corpus) if told.all else panel(told.corpus, rest=told.rest)
    totals: dict[str, dict[str, Figures]] = {}
    with ProcessPoolExecutor(told.jobs) as pool:
        for group, rows in pool.map(measured, ((one, names, told.all) for one in sessions)):
            for name, one in rows.items():
                totals.setdefault(group, {}).setdefault(name, Figures()).add(one)
    if told.json:
        print(json.dumps({g: {n: plain(one) for n, one in r.items()} for g, r in totals.items()}))
    elif told.markdown:
        print_markdown(totals)
    else:
        print_tables(totals)


if __name__ == "__main__":
    main()
