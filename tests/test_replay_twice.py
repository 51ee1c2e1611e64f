"""A request that several sessions tell is counted once: forks, resumed sessions, copies."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from respool.cli import main
from respool.replay import run
from respool.replay.one import Options
from respool.replay.run import Found, Wanted, replay_files
from tests.replay_files import START, claude_code, codex

OPTIONS = Options(("none", "mask-2"))


def replayed(*files: Path, wanted: Wanted | None = None, jobs: int = 1) -> Found:
    return replay_files(files, wanted or Wanted(OPTIONS), jobs, lambda _: None)


def requests(found: Found) -> list[tuple[str, int]]:
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
        found = replayed(main, fork)
        assert requests(found) == [("one", 6), ("fork", 5)]
        assert found.duplicates == 4
        [note] = found.sessions[1].notes
        assert note == f"4 requests that stand in {main} as well left out"

    def test_of_codex(self, tmp_path: Path):
        main = codex(tmp_path / "b.jsonl", 6)
        longer = codex(tmp_path / "c.jsonl", 8)
        fork = fork_of_codex(main, tmp_path / "a.jsonl", 12, longer)
        longer.unlink()
        alone, both = replayed(main), replayed(fork, main)
        assert requests(replayed(fork)) == [("fork", 8)]
        assert requests(both) == [("fork", 5), ("two", 6)]
        assert both.duplicates == 3
        assert both.sessions[1].started == alone.sessions[0].started

    def test_calls_that_a_server_numbers_have_the_same_ids_in_every_session(self, tmp_path: Path):
        one, other = (codex(tmp_path / f"{name}.jsonl", 6, id=name) for name in "ab")
        asked = other.read_text().replace("Please", "Kindly").replace("output_text", "text")
        other.write_text(asked.replace("src/", "lib/"))
        assert replayed(one, other).duplicates == 0

    def test_what_was_said_again_only_looks_alike(self, tmp_path: Path):
        """The same words at another time were sent, and paid for, again."""
        one = claude_code(tmp_path / "a.jsonl", 3, id="one")
        two = claude_code(tmp_path / "b.jsonl", 3, id="one", start=START + timedelta(hours=1))
        other = claude_code(tmp_path / "c.jsonl", 3, id="other")
        found = replayed(one, two, other)
        assert (found.duplicates, len(found.sessions)) == (0, 3)

    @pytest.mark.parametrize("jobs", [1, 2])
    def test_on_any_number_of_processes(
        self, tmp_path: Path, jobs: int, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(run, "SMALL", 0)
        main = claude_code(tmp_path / "b.jsonl", 6)
        longer = claude_code(tmp_path / "c.jsonl", 9)
        found = replayed(main, longer, jobs=jobs)
        assert requests(found) == [("one", 6), ("one", 3)]


class TestCopies:
    def test_is_named_and_left_out(self, tmp_path: Path):
        main = claude_code(tmp_path / "a.jsonl", 3)
        copy = tmp_path / "copy.jsonl"
        copy.symlink_to(main)
        found = replayed(main, copy)
        assert requests(found) == [("one", 3)]
        [left] = found.skipped
        assert left.source == str(copy)
        assert left.why == f"session one: its 3 requests stand in another session of {main} as well"

    def test_counts_if_the_other_one_is_not_wanted(self, tmp_path: Path):
        main = claude_code(tmp_path / "a.jsonl", 3)
        longer = claude_code(tmp_path / "b.jsonl", 9)
        last = records(main)[-1]["timestamp"]
        after = START.fromisoformat(last).timestamp() + 1
        found = replayed(main, longer, wanted=Wanted(OPTIONS, since=after))
        assert (requests(found), found.duplicates, found.unselected) == ([("one", 9)], 0, 1)

    def test_is_said_on_the_screen_and_in_json(self, tmp_path: Path):
        claude_code(tmp_path / "a.jsonl", 3)
        claude_code(tmp_path / "b.jsonl", 9)
        shown = CliRunner().invoke(main, ["replay", str(tmp_path)]).stdout
        assert "3 repetitions of requests, as forks and copies of sessions have them" in shown
        told = json.loads(CliRunner().invoke(main, ["replay", "--json", str(tmp_path)]).stdout)
        assert (told["requests"], told["twice"]) == (9, 3)
