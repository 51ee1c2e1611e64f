"""Presets on sessions of owners that no weight was fitted on, with figures by session.

    python -m bench.held_out [CORPUS] [--part judge|fit|all] [--agent claude-code|codex]
                             [--preset NAME ...] [--set NAME=VALUE ...] [--sweep NAME=VALUE ...]
                             [--weights PATH] [--real] [--read PRICE ...] [--by kind] [--floor]
                             [--per-repository N] [--processes N] [--json FILE]

Owners of repositories are split: two thirds to fit, one third to judge. A session is taken if it
has 25 requests or more and 200,000 characters or more. --weights takes for each session the weights
that `bench.fit_forecast --folds FOLDER` fitted without its owner, or those of one file for all
(bench/judged_weights.toml has seen no owner that judges). Sessions are counted and priced as the
published baselines are (characters / 4, reads at a tenth); --real takes the tokens, prices,
lifetimes and head that each session's reported usage shows, --read other prices of cached tokens,
a row each. --set changes a setting of every preset; each --sweep is one more row for every preset.
--by kind shows long sessions, those with many sub-agents and those with many pauses apart. --floor
adds the limit: of each result, from its arrival on, only the lines that a later action used.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import compress, pairwise
from multiprocessing import Pool
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

import respool
import respool.forecast.model as forecast_model
from bench.passes import recording_of
from respool.policy import PRESETS
from respool.replay.cache_costs import MANY_AGENTS, MANY_PAUSES
from respool.replay.policies import FLOOR, ProjectionSender, UnchangedSender, sender_factory
from respool.replay.recording import Recording
from respool.replay.score import score_policy
from respool.replay.totals import count_sub_agents
from respool.sessions.readers import READERS, read_file
from respool.sessions.session import RecordedSession

CORPUS = Path(__file__).resolve().parent.parent.parent / "shared" / "corpus"
AGENTS = ("claude-code", "codex")
# Owners whose sessions judge, about a third of the requests of either agent. No weight and no
# setting is chosen by looking at them.
JUDGES = (
    *("7567491", "MythologIQ", "Sarthib7", "ShamsiievDmytro", "Yael-Peretz", "aunshx"),
    *("bumpy-croc", "chikachow", "dougnukem", "konu96", "leolin84200704", "muah1987"),
    *("nakamura-shuta", "swarnasn29", "ta93abe", "theexperiencecompany"),
)
MIN_REQUESTS, MIN_CHARS = 25, 200_000
LONG_REQUESTS = 100  # of a session that is long among these
STARTS_AGENT = frozenset(("Agent", "Task", "spawn_agent"))  # tools that start a sub-agent
KINDS = (
    LONG := f"{LONG_REQUESTS} requests or more",
    AGENTED := f"{MANY_AGENTS} sub-agents or more",
    PAUSED := f"{MANY_PAUSES} pauses or more",
    PLAIN := "none of these",
)
Part = Literal["judge", "fit", "all"]


class SessionFigures(Struct, frozen=True, kw_only=True):
    """One session under one policy; costs in tokens of plain input."""

    agent: str
    owner: str
    repository: str
    session: str
    policy: str
    base: float
    bill: float
    all_in: float
    lost: int
    requests: int
    invalid: int
    breaks: int
    seconds: float
    kinds: tuple[str, ...] = ()


def owner_of(path: Path) -> str:
    """The owner of a corpus file's repository: `agent__owner+repository.jsonl.gz`."""
    return path.name.partition("__")[2].partition("+")[0]


def corpus_files(corpus: Path, part: Part, agents: Sequence[str] = AGENTS) -> list[Path]:
    """The files of these agents whose owners belong to a part."""
    return [
        path
        for path in sorted(corpus.glob("*.jsonl.gz"))
        if path.name.partition("__")[0] in agents
        and (part == "all" or (owner_of(path) in JUDGES) == (part == "judge"))
    ]


def long_sessions(path: Path, limit: int) -> Iterator[RecordedSession]:
    """The first long sessions of a file."""
    taken = 0
    for session in read_file(path, READERS):
        if taken < limit and isinstance(session, RecordedSession) and is_long(session):
            taken += 1
            yield session


def is_long(session: RecordedSession) -> bool:
    """Check whether a session is long enough to be compacted."""
    if len(session.requests) < MIN_REQUESTS:
        return False
    size = 0
    for message in session.messages:
        size += len(json.dumps(message, ensure_ascii=False))
        if size >= MIN_CHARS:
            return True
    return False


class Task(Struct, frozen=True):
    """One session and the policies to try on it."""

    path: Path
    session: RecordedSession
    policies: Mapping[str, Mapping[str, Any] | None]  # settings by name; None: no respool policy
    weights: Path | None
    real: bool = False
    reads: Sequence[float] = ()  # prices of cached tokens; none: the session's own
    sub_agents: int = 0  # of its conversation, as far as they are recorded


def measure(task: Task) -> list[SessionFigures]:
    """One session under each policy, at each price."""
    if task.weights is not None:
        use_weights(task.weights)
    recording = recording_of(task.session, real=task.real)
    kinds = kinds_of(recording, task.sub_agents)
    found: list[SessionFigures] = []
    for read in task.reads or (None,):
        if read is not None:
            terms = structs.replace(recording.conditions.terms, read=read)
            recording.conditions = structs.replace(recording.conditions, terms=terms)
        found += _measure_at(task, recording, kinds, read)
    return found


def _measure_at(
    task: Task, recording: Recording, kinds: tuple[str, ...], read: float | None
) -> Iterator[SessionFigures]:
    """One session under each policy, at one price of cached tokens."""
    base = score_policy(recording, UnchangedSender(recording), "none").all_in
    agent, _, rest = task.path.name.removesuffix(".jsonl.gz").partition("__")
    price = {} if read is None else {"cache_read_price": read}
    shown = f" read {read:g}" if len(task.reads) > 1 else ""
    for name, settings in task.policies.items():
        if settings is None:
            sender = sender_factory(name)(recording)
        else:
            policy = respool.Policy().with_values({**settings, **price}, "bench")
            sender = ProjectionSender(recording, policy)
        got = score_policy(recording, sender, name)
        yield SessionFigures(
            agent=agent,
            owner=owner_of(task.path),
            repository=rest.replace("+", "/"),
            session=task.session.id,
            policy=f"{name}{shown}",
            base=base,
            bill=got.bill.cost,
            all_in=got.all_in,
            lost=got.lost_turns,
            requests=got.requests,
            invalid=len(got.invalid),
            breaks=len(got.breaks),
            seconds=got.seconds,
            kinds=kinds,
        )


def kinds_of(recording: Recording, sub_agents: int) -> tuple[str, ...]:
    """The kinds of a session; a sub-agent counts if it is recorded, or if a call started it."""
    times = [sent.time for sent in recording.session.requests]
    pauses = sum(
        before is not None
        and after is not None
        and after - before > recording.conditions.cold_after
        for before, after in pairwise(times)
    )
    started = sum(
        block.kind == "call" and block.name in STARTS_AGENT
        for row in recording.rows
        for block in row.blocks
    )
    has = (
        len(recording.cuts) >= LONG_REQUESTS,
        max(sub_agents, started) >= MANY_AGENTS,
        pauses >= MANY_PAUSES,
    )
    return tuple(compress(KINDS, has)) or (PLAIN,)


def sub_agents_of(path: Path) -> Mapping[str, int]:
    """The recorded sub-agents of each session's conversation, by the session's id."""
    sessions = [one for one in read_file(path, READERS) if isinstance(one, RecordedSession)]
    return {one.id: count for one, count in zip(sessions, count_sub_agents(sessions), strict=True)}


def use_weights(path: Path) -> None:
    """Take the forecast's weights from a file, in this process."""
    model = _read_weights(path)
    forecast_model.load_model = lambda: model  # type: ignore[assignment]


@lru_cache
def _read_weights(path: Path) -> forecast_model.ForecastModel:
    return forecast_model.parse_model(tomllib.loads(path.read_text("utf-8")))


def weights_for(owner: str, folder: Path | None) -> Path | None:
    """The weights that were fitted without an owner; of a file, its own; None: the shipped ones."""
    if folder is None or folder.is_file():
        return folder
    files: dict[str, str] = json.loads((folder / "owners.json").read_text("utf-8"))
    return folder / files.get(owner, "fit.toml")


def summary(rows: Sequence[SessionFigures]) -> Iterator[str]:
    """A line for each agent and policy."""
    for agent, policy in dict.fromkeys((row.agent, row.policy) for row in rows):
        of = [row for row in rows if (row.agent, row.policy) == (agent, policy)]
        base, requests = sum(row.base for row in of), sum(row.requests for row in of)
        bill, all_in = sum(row.bill for row in of), sum(row.all_in for row in of)
        lost, worse = sum(row.lost for row in of), [r for r in of if r.all_in > 1.01 * r.base]
        repositories = {row.repository for row in of}
        mean = sum(_ratio(of, name) for name in repositories) / len(repositories)
        yield (
            f"{agent:12} {policy:24} bill {bill / base:.4f}  all-in {all_in / base:.4f}  by "
            f"repository {mean:.4f}  lost {lost / requests:.4f}  worse {len(worse)} of {len(of)}  "
            f"invalid {sum(r.invalid for r in of)}  breaks {sum(r.breaks for r in of)}  "
            f"{len(repositories)} repositories, {requests} requests, "
            f"{1e3 * sum(r.seconds for r in of) / requests:.1f} ms"
        )


def kind_summary(rows: Sequence[SessionFigures]) -> Iterator[str]:
    """A line for each agent and policy, by kind of session."""
    for kind in KINDS:
        of = [row for row in rows if kind in row.kinds]
        if of:
            yield f"{kind}:"
            yield from summary(of)


def _ratio(rows: Sequence[SessionFigures], repository: str) -> float:
    of = [row for row in rows if row.repository == repository]
    return sum(row.all_in for row in of) / sum(row.base for row in of)


def tasks_of(asked: argparse.Namespace) -> Iterator[Task]:
    """A task for each session."""
    extra = dict(parse_setting(one) for one in asked.set)
    sweep = [(one, dict([parse_setting(one)])) for one in asked.sweep] or [("", {})]
    policies: dict[str, Mapping[str, Any] | None] = {
        f"{name} {one}".strip(): {**PRESETS[name], **extra, **changed}
        for name in asked.preset
        for one, changed in sweep
    }
    if asked.floor:
        policies[FLOOR] = None
    for path in corpus_files(asked.corpus, asked.part, asked.agent):
        weights = weights_for(owner_of(path), asked.weights)
        known = sub_agents_of(path) if asked.by else {}
        for session in long_sessions(path, asked.per_repository):
            agents = known.get(session.id, 0)
            yield Task(path, session, policies, weights, asked.real, asked.read, agents)


def parse_setting(text: str) -> tuple[str, Any]:
    """A setting and its TOML value."""
    name, _, value = text.partition("=")
    return name, tomllib.loads(f"x = {value}")["x"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus", nargs="?", type=Path, default=CORPUS)
    parser.add_argument("--part", choices=("judge", "fit", "all"), default="judge")
    parser.add_argument("--agent", nargs="+", choices=AGENTS, default=AGENTS)
    parser.add_argument("--preset", nargs="+", choices=PRESETS, default=("safe", "lean"))
    parser.add_argument("--set", nargs="*", default=(), metavar="NAME=VALUE")
    parser.add_argument("--sweep", nargs="*", default=(), metavar="NAME=VALUE")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--read", type=float, nargs="+", default=(), metavar="PRICE")
    parser.add_argument("--by", choices=("kind",))
    parser.add_argument("--floor", action="store_true")
    parser.add_argument("--per-repository", type=int, default=1_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows: list[SessionFigures] = []
    began, shown = time.monotonic(), 0.0
    with Pool(asked.processes) as pool:
        for number, found in enumerate(pool.imap_unordered(measure, tasks_of(asked)), 1):
            rows += found
            if asked.json:  # as they come: a run may take an hour
                asked.json.write_bytes(msgspec.json.encode(rows))
            if time.monotonic() - shown > 10:
                shown = time.monotonic()
                print(f"\r{number} sessions, {shown - began:.0f} s", end="", file=sys.stderr)
    print(file=sys.stderr)
    rows.sort(key=lambda row: (row.agent, row.policy))
    print("\n".join([*summary(rows), *(kind_summary(rows) if asked.by else ())]))


if __name__ == "__main__":
    main()
