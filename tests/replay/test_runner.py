"""Replay runner: the same results on any number of processes, duplicates counted once."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from respool.cli import main
from respool.replay import runner, worker_pool
from respool.replay.result import SkippedSource
from respool.replay.runner import (
    Progress,
    ReplayOptions,
    RunRequest,
    RunResult,
    estimate_bytes,
    replay_files,
)
from respool.replay.worker_pool import WorkerPool
from tests.replay.transcripts import START, claude_code, codex, collection

OPTIONS = ReplayOptions(("none", "mask-2"))
WANTED = RunRequest(OPTIONS)
POSIX = pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
NOON = START.timestamp()


@pytest.fixture
def _always_processes(monkeypatch: pytest.MonkeyPatch):
    """Let even small input be worth a process."""
    monkeypatch.setattr(runner, "MIN_PARALLEL_BYTES", 0)


def replayed(files: Sequence[Path], wanted: RunRequest = WANTED, jobs: int = 1) -> RunResult:
    return replay_files(files, wanted, jobs, lambda _: None)


def untimed(found: RunResult) -> Any:
    """All figures but those that a clock tells."""
    told = msgspec.to_builtins(found)
    for session in told["sessions"]:
        for score in session["scores"]:
            del score["seconds"], score["worst"]
    return told


@pytest.mark.usefixtures("_always_processes")
class TestProcesses:
    def test_the_figures_are_the_same_on_any_number_of_them(self, tmp_path: Path):
        files = [
            claude_code(tmp_path / "a.jsonl", 6),
            collection(tmp_path / "b.jsonl.gz", [3, 20, 2, 9, 1, 4]),
            tmp_path / "nothing.jsonl",
            codex(tmp_path / "c.jsonl", 5),
        ]
        alone = replayed(files)
        assert [one.id for one in alone.sessions] == [
            "one",
            *(f"s{at}" for at in range(6)),
            "two",
        ]
        assert [one.source for one in alone.skipped] == [str(files[2])]
        assert untimed(replayed(files, jobs=2)) == untimed(alone)
        assert multiprocessing.active_children() == []

    def test_one_file_of_many_sessions_is_shared(self, tmp_path: Path):
        seen: set[int | None] = set()

        def look(_: Progress) -> None:
            seen.update(child.pid for child in multiprocessing.active_children())

        file = collection(tmp_path / "many.jsonl.gz", [30] * 12)
        found = replay_files([file], WANTED, 2, look)
        assert len(found.sessions) == 12
        assert len(seen) == 2

    def test_a_file_of_one_session_needs_none(self, tmp_path: Path):
        seen: list[Any] = []
        file = claude_code(tmp_path / "a.jsonl")
        replay_files([file], WANTED, 4, lambda _: seen.extend(multiprocessing.active_children()))
        assert seen == []

    @POSIX
    def test_one_that_is_killed_costs_what_it_was_at(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        whole = WorkerPool._reply

        def answer_and_kill(self: WorkerPool, worker: Any, file: Any, ask: Any) -> Any:
            answer = whole(self, worker, file, ask)
            if ask.name == "s2" and answer.name == "GRANTED":
                os.kill(worker.process.pid, signal.SIGKILL)
            return answer

        monkeypatch.setattr(WorkerPool, "_reply", answer_and_kill)
        files = [collection(tmp_path / f"{name}.jsonl.gz", [2, 3, 4, 5]) for name in "ab"]
        found = replayed(files, jobs=2)
        why = "session s2: its process was killed, as happens when memory runs out"
        assert found.skipped == tuple(SkippedSource(str(file), why) for file in files)
        assert [one.id for one in found.sessions] == ["s0", "s1", "s3"] * 2
        assert multiprocessing.active_children() == []

    @POSIX
    @pytest.mark.parametrize(("deaths", "lost"), [(1, False), (99, True)])
    def test_a_file_that_kills_its_readers_is_given_up(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int, lost: bool
    ):
        whole, killed = WorkerPool._assign, list[int]()

        def give_and_kill(self: WorkerPool, worker: Any, file: Any) -> None:
            if file.name.endswith("a.jsonl.gz") and len(killed) < deaths:
                killed.append(worker.process.pid)
                os.kill(worker.process.pid, signal.SIGKILL)
            whole(self, worker, file)

        monkeypatch.setattr(WorkerPool, "_assign", give_and_kill)
        files = [collection(tmp_path / f"{name}.jsonl.gz", [2, 3]) for name in "ab"]
        found = replayed(files, jobs=2)
        why = "its process was killed, as happens when memory runs out"
        assert found.skipped == ((SkippedSource(str(files[0]), why),) if lost else ())
        assert len(found.sessions) == (2 if lost else 4)
        assert len(killed) == (2 if lost else 1)

    def test_one_that_hangs_at_its_start_is_not_waited_for(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        hangs = (
            "import sys, time\nif any('spawn_main' in one for one in sys.orig_argv): time.sleep(99)"
        )
        (tmp_path / "sitecustomize.py").write_text(hangs)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(worker_pool, "_START_SECONDS", 0.5)
        files = [collection(tmp_path / f"{name}.jsonl.gz", [2, 3]) for name in "ab"]
        with pytest.raises(worker_pool.WorkerStartError, match="not ready after"):
            replayed(files, jobs=2)
        assert multiprocessing.active_children() == []

    def test_an_interrupt_leaves_none_behind(self, tmp_path: Path):
        def interrupt(_: Progress) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            replay_files([collection(tmp_path / "a.jsonl.gz", [9] * 4)], WANTED, 2, interrupt)
        assert multiprocessing.active_children() == []

    def test_progress_ends_where_the_files_do(self, tmp_path: Path):
        files = [
            claude_code(tmp_path / "a.jsonl", 3),
            collection(tmp_path / "b.jsonl.gz", [2, 2, 2]),
        ]
        for jobs in (1, 2):
            told: list[Progress] = []
            replay_files(files, WANTED, jobs, told.append)
            assert told[-1] == Progress(2, sum(map(estimate_bytes, files)), 4, 3 + 3 * 2)
            assert [one.size for one in told] == sorted(one.size for one in told)
            assert 0 < told[0].size < told[-1].size  # it moves within a file


class TestWhatGoesWrong:
    @pytest.mark.parametrize(
        ("error", "why"),
        [
            (RecursionError(), "session one: it is nested too deeply"),
            (MemoryError(), "session one: it needs more memory than there is"),
            (KeyError("a\nb"), "session one: KeyError: 'a\\nb'"),
        ],
    )
    def test_a_session_that_fails_costs_itself(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
    ):
        whole = runner.replay_session

        def fail(session: Any, options: ReplayOptions) -> Any:
            if session.id == "one":
                raise error
            return whole(session, options)

        monkeypatch.setattr(runner, "replay_session", fail)
        files = [claude_code(tmp_path / "a.jsonl"), codex(tmp_path / "b.jsonl")]
        found = replayed(files)
        assert [one.id for one in found.sessions] == ["two"]
        assert found.skipped == (SkippedSource(str(files[0]), why),)

    def test_a_reader_that_fails_costs_its_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        def fail(path: Path, _: Any) -> Any:
            raise LookupError(path.name)

        monkeypatch.setattr(runner, "read_file", fail)
        file = claude_code(tmp_path / "a.jsonl")
        why = "reading it failed: LookupError: a.jsonl"
        assert replayed([file]) == RunResult((), (SkippedSource(str(file), why),))


class TestWhatIsWanted:
    def test_only_some_agents(self, tmp_path: Path):
        files = [claude_code(tmp_path / "a.jsonl"), codex(tmp_path / "b.jsonl")]
        found = replayed(files, RunRequest(OPTIONS, agents=("codex",)))
        assert ([one.agent for one in found.sessions], found.unselected) == (["codex"], 1)

    @pytest.mark.parametrize(("hours", "ids"), [(-1, ["one", "two"]), (1, ["two"]), (30, [])])
    def test_only_sessions_that_ended_later(self, tmp_path: Path, hours: int, ids: list[str]):
        later = START + timedelta(days=1)
        files = [claude_code(tmp_path / "a.jsonl"), codex(tmp_path / "b.jsonl", start=later)]
        found = replayed(files, RunRequest(OPTIONS, since=NOON + 3600 * hours))
        assert [one.id for one in found.sessions] == ids
        assert found.unselected == 2 - len(ids)

    @pytest.mark.parametrize(("written", "kept"), [(-10, 0), (10, 1)])
    def test_without_times_the_file_tells(self, tmp_path: Path, written: int, kept: int):
        file = collection(tmp_path / "a.jsonl.gz", [2])
        os.utime(file, (NOON + written, NOON + written))
        assert len(replayed([file], RunRequest(OPTIONS, since=NOON)).sessions) == kept

    def test_what_grows_with_each_request_is_kept_for_those_who_ask(self, tmp_path: Path):
        file = claude_code(tmp_path / "a.jsonl", 8)
        whole = replayed([file]).sessions[0].scores[1]
        lean = replayed([file], RunRequest(OPTIONS, with_details=False)).sessions[0].scores[1]
        assert (len(whole.points), lean.points, lean.losses) == (8, (), ())
        assert (lean.bill, lean.all_in, lean.breaks) == (whole.bill, whole.all_in, whole.breaks)


def replayed_files(*files: Path, wanted: RunRequest | None = None, jobs: int = 1) -> RunResult:
    return replay_files(files, wanted or RunRequest(OPTIONS), jobs, lambda _: None)


def requests(found: RunResult) -> list[tuple[str, int]]:
    return [(one.id, one.requests) for one in found.sessions]


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def lines(path: Path, told: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(one)}\n" for one in told))
    return path


def fork_of_claude_code(source: Path, path: Path, records_kept: int, longer: Path) -> Path:
    """As Claude Code copies: under another session's id, with the same ids and times."""
    copied = [{**one, "sessionId": "fork"} for one in records(source)[:records_kept]]
    own = [{**one, "sessionId": "fork"} for one in records(longer)[records_kept:]]
    return lines(path, [*copied, *own])


def fork_of_codex(source: Path, path: Path, records_kept: int, longer: Path) -> Path:
    """As Codex copies: behind a head of its own, all in a moment."""
    now = (START + timedelta(days=1)).isoformat()
    head = {"type": "session_meta", "timestamp": now, "payload": {"id": "fork"}}
    copied = [{**one, "timestamp": now} for one in records(source)[:records_kept]]
    own = json.dumps(records(longer)[records_kept:]).replace('"call_id": "', '"call_id": "own')
    return lines(path, [head, *copied, *json.loads(own)])


class TestForks:
    def test_of_claude_code(self, tmp_path: Path):
        main = claude_code(tmp_path / "b.jsonl", 6)
        longer = claude_code(tmp_path / "c.jsonl", 9, id="fork", start=START + timedelta(hours=1))
        fork = fork_of_claude_code(main, tmp_path / "a.jsonl", 9, longer)
        longer.unlink()
        found = replayed_files(main, fork)
        assert requests(found) == [("one", 6), ("fork", 5)]
        assert found.duplicates == 4
        [note] = found.sessions[1].notes
        assert note == f"4 requests that stand in {main} as well left out"

    def test_of_codex(self, tmp_path: Path):
        main = codex(tmp_path / "b.jsonl", 6)
        longer = codex(tmp_path / "c.jsonl", 8)
        fork = fork_of_codex(main, tmp_path / "a.jsonl", 12, longer)
        longer.unlink()
        alone, both = replayed_files(main), replayed_files(fork, main)
        assert requests(replayed_files(fork)) == [("fork", 8)]
        assert requests(both) == [("fork", 5), ("two", 6)]
        assert both.duplicates == 3
        assert both.sessions[1].started == alone.sessions[0].started

    def test_calls_that_a_server_numbers_have_the_same_ids_in_every_session(self, tmp_path: Path):
        one, other = (codex(tmp_path / f"{name}.jsonl", 6, id=name) for name in "ab")
        asked = other.read_text().replace("Please", "Kindly").replace("output_text", "text")
        other.write_text(asked.replace("src/", "lib/"))
        assert replayed_files(one, other).duplicates == 0

    def test_what_was_said_again_only_looks_alike(self, tmp_path: Path):
        """The same words at another time were sent, and paid for, again."""
        one = claude_code(tmp_path / "a.jsonl", 3, id="one")
        two = claude_code(tmp_path / "b.jsonl", 3, id="one", start=START + timedelta(hours=1))
        other = claude_code(tmp_path / "c.jsonl", 3, id="other")
        found = replayed_files(one, two, other)
        assert (found.duplicates, len(found.sessions)) == (0, 3)

    @pytest.mark.parametrize("jobs", [1, 2])
    def test_on_any_number_of_processes(
        self, tmp_path: Path, jobs: int, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(runner, "MIN_PARALLEL_BYTES", 0)
        main = claude_code(tmp_path / "b.jsonl", 6)
        longer = claude_code(tmp_path / "c.jsonl", 9)
        found = replayed_files(main, longer, jobs=jobs)
        assert requests(found) == [("one", 6), ("one", 3)]


class TestCopies:
    def test_is_named_and_left_out(self, tmp_path: Path):
        main = claude_code(tmp_path / "a.jsonl", 3)
        copy = tmp_path / "copy.jsonl"
        copy.symlink_to(main)
        found = replayed_files(main, copy)
        assert requests(found) == [("one", 3)]
        [left] = found.skipped
        assert left.source == str(copy)
        assert (
            left.reason == f"session one: its 3 requests stand in another session of {main} as well"
        )

    def test_counts_if_the_other_one_is_not_wanted(self, tmp_path: Path):
        main = claude_code(tmp_path / "a.jsonl", 3)
        longer = claude_code(tmp_path / "b.jsonl", 9)
        last = records(main)[-1]["timestamp"]
        after = START.fromisoformat(last).timestamp() + 1
        found = replayed_files(main, longer, wanted=RunRequest(OPTIONS, since=after))
        assert (requests(found), found.duplicates, found.unselected) == ([("one", 9)], 0, 1)

    def test_is_said_on_the_screen_and_in_json(self, tmp_path: Path):
        claude_code(tmp_path / "a.jsonl", 3)
        claude_code(tmp_path / "b.jsonl", 9)
        shown = CliRunner().invoke(main, ["replay", str(tmp_path)]).stdout
        assert "3 repetitions of requests, as forks and copies of sessions have them" in shown
        told = json.loads(CliRunner().invoke(main, ["replay", "--json", str(tmp_path)]).stdout)
        assert (told["requests"], told["duplicates"]) == (9, 3)
