"""Each pass alone on recorded sessions: how often it fires, what it saves, what was missed.

    python -m bench.passes CORPUS [pass ...] [--all] [--jobs N]

Sessions, prices and counting are those of the published baselines; with --all, every session of the
corpus in its own way of counting. "taken" is with every offer taken as soon as it is made, "free"
only with those on results that were not sent yet, so that no sent prefix ever breaks.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from msgspec import Struct, field
from rich.console import Console
from rich.table import Table

import clew
from clew.policy import pass_names
from clew.prices import Terms
from clew.ranges import MOST
from clew.replay.calibration import evidence_of
from clew.replay.conditions import conditions_of
from clew.replay.one import Options, measure_for
from clew.replay.projected import Projected
from clew.replay.reading import HOUR, Plain
from clew.replay.recording import Conditions, Recording
from clew.replay.score import _Run
from clew.replay.senders import AsSent
from clew.sessions.readers import READERS
from clew.sessions.reading import files_below, read_file
from clew.sessions.session import Session

# The sessions of the published baselines: so many of each file, long ones, in file order.
PANEL = (
    ("claude-code__entireio+cli", 8),
    ("claude-code__entireio+git-sync", 6),
    ("claude-code__PackmindHub+context-evaluator", 4),
    ("codex__entireio+git-sync", 8),
)
CONDITIONS = {
    "anthropic": Conditions(Terms(cache="marks", read=0.1, write=1.25, write_1h=2.0), 28_000, HOUR),
    "openai-responses": Conditions(Terms(cache="prefix", lifetime=600), 12_000),
}
AGES = ((2, "0–2"), (5, "3–5"), (10, "6–10"), (20, "11–20"), (40, "21–40"), (10**9, ">40"))


class Figures(Struct):
    """What one pass did to some sessions."""

    requests: int = 0
    edits: int = 0
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
    missed: Counter[str] = field(default_factory=Counter[str])  # by tool, and by age
    failures: Counter[str] = field(default_factory=Counter[str])

    def add(self, other: Figures) -> None:
        """Put two together."""
        for name in self.__struct_fields__:
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, mine + theirs)


class Watched(_Run):
    """A run that remembers whence the things came that turns missed."""

    def __init__(self, recording: Recording, sender: Projected) -> None:
        super().__init__(recording, sender)
        self.missed: Counter[str] = Counter()

    def _where(self, lost: Sequence[int], cut: int) -> list[int]:
        sources = super()._where(lost, cut)
        recording = self._recording
        for source in sources:
            place = recording.sources[source]
            block = recording.rows[place.row].blocks[place.block]
            called = recording._calls.get(block.call, block)
            age = sum(place.row < one <= cut for one in recording.cuts) - 1
            self.missed[f"{block.kind} {called.name}"] += 1
            self.missed[next(f"age {name}" for most, name in AGES if age <= most)] += 1
        return sources


def figures(recording: Recording, policy: clew.Policy) -> Figures:
    """One policy on one session."""
    base, sender = _Run(recording, AsSent(recording)), Projected(recording, policy)
    run = Watched(recording, sender)
    for request in range(len(recording.cuts)):
        base.send(request)
        run.send(request)
    none, got = base.score("none"), run.score("pass")
    return Figures(
        requests=got.requests,
        edits=sum(cut.parts for cut in got.cuts),
        saved=sum(cut.tokens for cut in got.cuts),
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
        missed=run.missed,
        failures=Counter(got.failures),
    )


def panel(corpus: Path) -> Iterator[Session]:
    """The long sessions that the published baselines use."""
    import json

    for name, wanted in PANEL:
        got = 0
        for session in read_file(corpus / f"{name}.jsonl.gz", READERS):
            if not isinstance(session, Session) or got >= wanted:
                continue
            size = sum(len(json.dumps(m, ensure_ascii=False)) for m in session.messages)
            if size >= 200_000 and 25 <= len(session.requests) <= 260:
                got += 1
                yield session


def everything(corpus: Path) -> Iterator[Session]:
    """Every session there is."""
    for path in files_below(corpus):
        if path.name.endswith(".jsonl.gz"):
            for session in read_file(path, READERS):
                if isinstance(session, Session):
                    yield session


def recording_of(session: Session, real: bool) -> Recording:
    """A session counted and priced as the baselines are, or in its own way."""
    if not real:
        return Recording(session, Plain(), CONDITIONS[session.format])
    measure = measure_for(session, Options(("none",)), evidence_of(session))
    return Recording(session, measure, conditions_of(session, measure))


def policies(names: Sequence[str]) -> dict[str, clew.Policy]:
    """Each pass alone, taken at once and taken only where it is free; then all defaults."""
    found: dict[str, clew.Policy] = {}
    for name in names:
        found[f"{name}, taken"] = clew.Policy(passes=(name,))
        found[f"{name}, free"] = clew.Policy(passes=(name,), step=MOST)
    found["defaults, taken"] = clew.Policy()
    found["defaults, free"] = clew.Policy(step=MOST)
    return found


def measured(task: tuple[Session, tuple[str, ...], bool]) -> tuple[str, dict[str, Figures]]:
    """All policies on one session."""
    session, names, real = task
    recording = recording_of(session, real)
    told = {name: figures(recording, policy) for name, policy in policies(names).items()}
    return session.agent if real else session.format, told


def table(title: str, rows: dict[str, Figures]) -> Table:
    """What a person reads."""
    shown = Table(title=title)
    for column in ("pass", "edits", "saved", "bill", "all-in", "lost", "breaks", "invalid",
                   "worse", "ms/request", "missed most"):  # fmt: skip
        shown.add_column(column, justify="left" if column in ("pass", "missed most") else "right")
    for name, one in rows.items():
        most = ", ".join(f"{what} {count}" for what, count in one.missed.most_common(4))
        shown.add_row(
            name, f"{one.edits:,}", f"{100 * one.saved / max(1, one.last):.1f} %",
            f"{one.cost / one.base:.4f}", f"{one.all_in / one.base:.4f}",
            f"{one.lost / one.requests:.4f}", f"{one.breaks:,}", str(one.invalid),
            f"{one.worse} of {one.sessions}", f"{1000 * one.seconds / one.requests:.2f}", most,
        )  # fmt: skip
        for failure, count in one.failures.items():
            shown.add_row(f"[red]{failure} ({count})[/red]")
    return shown


def main() -> None:
    """Print the tables."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("corpus", type=Path)
    asked.add_argument("passes", nargs="*")
    asked.add_argument("--all", action="store_true")
    asked.add_argument("--jobs", type=int, default=2)
    told = asked.parse_args()
    names = tuple(told.passes or pass_names())
    sessions = everything(told.corpus) if told.all else panel(told.corpus)
    totals: dict[str, dict[str, Figures]] = {}
    with ProcessPoolExecutor(told.jobs) as pool:
        for group, rows in pool.map(measured, ((one, names, told.all) for one in sessions)):
            for name, one in rows.items():
                totals.setdefault(group, {}).setdefault(name, Figures()).add(one)
    console = Console(width=170 if not sys.stdout.isatty() else None)
    for group, rows in totals.items():
        console.print(table(group, rows))


if __name__ == "__main__":
    main()
