"""Files in, results out: the same on any number of processes, whatever happens to one of them."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from respool.replay import run
from respool.replay.one import Options
from respool.replay.result import Left
from respool.replay.run import Found, Progress, Wanted, replay_files, weight
from respool.replay.workers import Workers
from tests.replay_files import START, claude_code, codex, collection

OPTIONS = Options(("none", "mask-2"))
WANTED = Wanted(OPTIONS)
POSIX = pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
NOON = START.timestamp()


@pytest.fixture
def _always_processes(monkeypatch: pytest.MonkeyPatch):
    """Let even small input be worth a process."""
    monkeypatch.setattr(run, "SMALL", 0)


def replayed(files: Sequence[Path], wanted: Wanted = WANTED, jobs: int = 1) -> Found:
    return replay_files(files, wanted, jobs, lambda _: None)


def untimed(found: Found) -> Any:
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
            "one", *(f"s{at}" for at in range(6)), "two",
        ]  # fmt: skip
        assert [one.source for one in alone.skipped] == [str(files[2])]
        assert untimed(replayed(files, jobs=3)) == untimed(alone)
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
        whole = Workers._reply

        def answer_and_kill(self: Workers, worker: Any, file: Any, ask: Any) -> Any:
            answer = whole(self, worker, file, ask)
            if ask.name == "s2" and answer.name == "YOURS":
                os.kill(worker.process.pid, signal.SIGKILL)
            return answer

        monkeypatch.setattr(Workers, "_answer", answer_and_kill)
        files = [collection(tmp_path / f"{name}.jsonl.gz", [2, 3, 4, 5]) for name in "ab"]
        found = replayed(files, jobs=2)
        why = "session s2: the process at it was killed, as happens when memory runs out"
        assert found.skipped == tuple(Left(str(file), why) for file in files)
        assert [one.id for one in found.sessions] == ["s0", "s1", "s3"] * 2
        assert multiprocessing.active_children() == []

    @POSIX
    @pytest.mark.parametrize(("deaths", "lost"), [(1, False), (99, True)])
    def test_a_file_that_kills_its_readers_is_given_up(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int, lost: bool
    ):
        whole, killed = Workers._assign, list[int]()

        def give_and_kill(self: Workers, worker: Any, file: Any) -> None:
            if file.name.endswith("a.jsonl.gz") and len(killed) < deaths:
                killed.append(worker.process.pid)
                os.kill(worker.process.pid, signal.SIGKILL)
            whole(self, worker, file)

        monkeypatch.setattr(Workers, "_give", give_and_kill)
        files = [collection(tmp_path / f"{name}.jsonl.gz", [2, 3]) for name in "ab"]
        found = replayed(files, jobs=2)
        why = "the process at it was killed, as happens when memory runs out"
        assert found.skipped == ((Left(str(files[0]), why),) if lost else ())
        assert len(found.sessions) == (2 if lost else 4)
        assert len(killed) == (2 if lost else 1)

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
            assert told[-1] == Progress(2, sum(map(weight, files)), 4, 3 + 3 * 2)
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
        whole = run.replay_session

        def fail(session: Any, options: Options) -> Any:
            if session.id == "one":
                raise error
            return whole(session, options)

        monkeypatch.setattr(run, "replay_session", fail)
        files = [claude_code(tmp_path / "a.jsonl"), codex(tmp_path / "b.jsonl")]
        found = replayed(files)
        assert [one.id for one in found.sessions] == ["two"]
        assert found.skipped == (Left(str(files[0]), why),)

    def test_a_reader_that_fails_costs_its_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        def fail(path: Path, _: Any) -> Any:
            raise LookupError(path.name)

        monkeypatch.setattr(run, "read_file", fail)
        file = claude_code(tmp_path / "a.jsonl")
        why = "reading it failed: LookupError: a.jsonl"
        assert replayed([file]) == Found((), (Left(str(file), why),))


class TestWhatIsWanted:
    def test_only_some_agents(self, tmp_path: Path):
        files = [claude_code(tmp_path / "a.jsonl"), codex(tmp_path / "b.jsonl")]
        found = replayed(files, Wanted(OPTIONS, agents=("codex",)))
        assert ([one.agent for one in found.sessions], found.unselected) == (["codex"], 1)

    @pytest.mark.parametrize(("hours", "ids"), [(-1, ["one", "two"]), (1, ["two"]), (30, [])])
    def test_only_sessions_that_ended_later(self, tmp_path: Path, hours: int, ids: list[str]):
        later = START + timedelta(days=1)
        files = [claude_code(tmp_path / "a.jsonl"), codex(tmp_path / "b.jsonl", start=later)]
        found = replayed(files, Wanted(OPTIONS, since=NOON + 3600 * hours))
        assert [one.id for one in found.sessions] == ids
        assert found.unselected == 2 - len(ids)

    @pytest.mark.parametrize(("written", "kept"), [(-10, 0), (10, 1)])
    def test_without_times_the_file_tells(self, tmp_path: Path, written: int, kept: int):
        file = collection(tmp_path / "a.jsonl.gz", [2])
        os.utime(file, (NOON + written, NOON + written))
        assert len(replayed([file], Wanted(OPTIONS, since=NOON)).sessions) == kept

    def test_what_grows_with_each_request_is_kept_for_those_who_ask(self, tmp_path: Path):
        file = claude_code(tmp_path / "a.jsonl", 8)
        whole = replayed([file]).sessions[0].scores[1]
        lean = replayed([file], Wanted(OPTIONS, with_details=False)).sessions[0].scores[1]
        assert (len(whole.points), lean.points, lean.losses) == (8, (), ())
        assert (lean.bill, lean.all_in, lean.breaks) == (whole.bill, whole.all_in, whole.breaks)
