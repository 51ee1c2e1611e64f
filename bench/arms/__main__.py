"""Run tasks of SWE-bench through respool, once for each arm.

    python -m bench.arms TASKS.jsonl --repos FOLDER --out FOLDER [--ids FILE] [--arm NAME ...]
                         [--minutes N] [--model NAME | -- COMMAND …]

TASKS.jsonl holds instances of SWE-bench; --ids takes those that a list of code-compression-bench
names. FOLDER/owner__name is a clone of each repository. Without a command mini-swe-agent runs. In a
command, {problem} stands for the issue, {problem_file} for a file with it, {folder} for a folder
of the run. What is finished is not run again. See docs/operate/arms.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench.arms.tasks import Task, load_ids, load_tasks
from respool.store import PeriodTotal, SQLiteStore

# Options of `respool run` for each arm. The control goes through the proxy as well, which then
# changes nothing. The placebo cuts old results when that pays, whatever will be needed of them.
ARMS: Mapping[str, tuple[str, ...]] = {
    "none": ("--observe",),
    "safe": ("--preset", "safe"),
    "lean": ("--preset", "lean"),
    "placebo": (
        *("--set", 'passes=["tidy_results", "stub_results"]'),
        *("--set", "miss_penalty=0"),
    ),
}
SEED = 7
_MINI = ("mini", "-y", "--exit-immediately", "-o", "{folder}/trajectory.json", "-t", "{problem}")


class ArmResult(Struct, frozen=True):
    """One task in one arm."""

    task: str
    arm: str
    patch: str
    exit_status: int | None  # None: the time was up
    seconds: float


class Bench(Struct, frozen=True):
    """Where tasks are run, and how."""

    repos: Path
    out: Path
    command: tuple[str, ...]
    seconds: float

    def folder_of(self, task: Task, arm: str) -> Path:
        """The folder of one run."""
        return self.out / arm / task.id

    def store_of(self, arm: str) -> Path:
        """The store of an arm."""
        return self.out / arm / "respool.db"


def command_for(bench: Bench, task: Task, arm: str) -> list[str]:
    """The command line of one run."""
    folder = bench.folder_of(task, arm)
    values = {
        "{problem}": task.problem,
        "{problem_file}": str(folder / "problem.md"),
        "{folder}": str(folder),
    }
    words: list[str] = []
    for word in bench.command:
        # One after the other would fill in braces that stand in an issue.
        named = next((name for name in values if name in word), None)
        words.append(word if named is None else word.replace(named, values[named]))
    return [sys.executable, "-m", "respool", "run", *ARMS[arm], "--", *words]


def run_task(bench: Bench, task: Task, arm: str) -> ArmResult:
    """Run one task in one arm, in a work tree of its own."""
    folder = bench.folder_of(task, arm)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "problem.md").write_text(task.problem, "utf-8")
    work, clone = folder / "work", bench.repos / task.folder
    _git(clone, "worktree", "remove", "--force", str(work), check=False)
    _git(clone, "worktree", "prune")
    _git(clone, "worktree", "add", "--force", "--detach", str(work), task.commit)
    began = time.monotonic()
    status: int | None = None
    environment = {**os.environ, "RESPOOL_STORE": str(bench.store_of(arm))}
    with (folder / "log.txt").open("wb") as log:
        try:
            status = subprocess.run(
                command_for(bench, task, arm),
                cwd=work,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=bench.seconds,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            log.write(b"\nThe time was up.\n")
    took = time.monotonic() - began
    _git(work, "add", "--all")
    patch = _git(work, "diff", "--cached", "--binary", task.commit)
    _git(clone, "worktree", "remove", "--force", str(work))
    return ArmResult(task.id, arm, patch, status, round(took, 1))


def _git(folder: Path, *words: str, check: bool = True) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words],
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
    )
    if check and done.returncode:
        raise RuntimeError(f"git {' '.join(words[:2])} in {folder}: {done.stderr.strip()}")
    return done.stdout


def runs_of(tasks: Iterable[Task], arms: Sequence[str]) -> Iterable[tuple[Task, str]]:
    """All runs; the order of arms differs by task, so that no arm always goes first."""
    chance = random.Random(SEED)
    for task in tasks:
        order = list(arms)
        chance.shuffle(order)
        yield from ((task, arm) for arm in order)


def predictions_file(out: Path, arm: str) -> Path:
    """The file of an arm that SWE-bench's harness grades."""
    return out / f"predictions-{arm}.jsonl"


def write_result(out: Path, result: ArmResult) -> None:
    """Add a prediction, as SWE-bench's harness reads it."""
    line = {
        "instance_id": result.task,
        "model_name_or_path": f"respool-{result.arm}",
        "model_patch": result.patch,
        "exit_status": result.exit_status,
        "seconds": result.seconds,
    }
    with predictions_file(out, result.arm).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def finished(out: Path, arm: str) -> set[str]:
    """The tasks that an arm has finished."""
    path = predictions_file(out, arm)
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return {json.loads(line)["instance_id"] for line in lines}


def summary(out: Path, arms: Sequence[str]) -> list[dict[str, Any]]:
    """Tasks, patches, requests, errors and cost of each arm, by its store."""
    rows: list[dict[str, Any]] = []
    for arm in arms:
        lines = predictions_file(out, arm)
        done = [json.loads(line) for line in lines.read_text("utf-8").splitlines()]
        totals = _totals(out / arm / "respool.db")
        row = {
            "arm": arm,
            "tasks": len(done),
            "patches": sum(bool(one["model_patch"]) for one in done),
            "requests": sum(one.requests for one in totals),
            "errors": sum(one.errors for one in totals),
            # An observed request was paid as it came.
            "paid_usd": round(sum(one.cost_after + one.would_cost for one in totals), 4),
            "refetched": 0 if arm == "none" else sum(one.refetched for one in totals),
        }
        rows.append(row)
    return rows


def _totals(path: Path) -> list[PeriodTotal]:
    """The totals of a store; none if no request was recorded."""
    if not path.exists():
        return []
    store = SQLiteStore(path, create=False)
    try:
        return store.totals(None, since=0.0, until=4e11, step=4e11)
    finally:
        store.close()


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, tuple[str, ...]]:
    """The options, and the agent's command."""
    given = list(arguments)
    at = given.index("--") if "--" in given else len(given)
    parser = argparse.ArgumentParser(prog="python -m bench.arms")
    parser.add_argument("tasks", type=Path)
    parser.add_argument("--repos", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ids", type=Path)
    parser.add_argument("--arm", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--model")
    asked = parser.parse_args(given[:at])
    command = tuple(given[at + 1 :])
    if not command:
        command = (*_MINI, "-m", asked.model) if asked.model else _MINI
    return asked, command


def main(arguments: Sequence[str]) -> None:
    """Run what is not finished, then print a line for each arm."""
    asked, command = parse(arguments)
    only = None if asked.ids is None else load_ids(asked.ids)
    tasks = load_tasks(asked.tasks, only)
    out = asked.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    bench = Bench(asked.repos.resolve(), out, command, 60 * asked.minutes)
    done = {arm: finished(out, arm) for arm in asked.arm}
    for task, arm in runs_of(tasks, asked.arm):
        if task.id not in done[arm]:
            result = run_task(bench, task, arm)
            write_result(out, result)
            print(f"{arm:8} {task.id}: {result.seconds:.0f} s", file=sys.stderr)
    for row in summary(out, asked.arm):
        print(json.dumps(row))


if __name__ == "__main__":
    main(sys.argv[1:])
