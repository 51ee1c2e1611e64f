"""Input of a replay from storage and Parquet, and checkpoints: the figures of files on disk."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fsspec
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from respool.batch.addresses import FoundFile
from respool.replay import runner
from respool.replay.checkpoint import Checkpoint
from respool.replay.input_file import remote_transcripts
from respool.replay.result import SkippedSource
from respool.replay.runner import (
    Execution,
    Progress,
    ReplayOptions,
    RunRequest,
    RunResult,
    replay_files,
)
from tests.replay.test_runner import untimed
from tests.replay.transcripts import claude_code, codex, collection

WANTED = RunRequest(ReplayOptions(("none", "mask-2")))


@pytest.fixture
def storage() -> Iterator[Any]:
    """Storage in memory, empty."""
    found = fsspec.filesystem("memory")
    found.store.clear()
    yield found
    found.store.clear()


def replayed(
    files: Sequence[Any], execution: Execution | int = 1, wanted: RunRequest = WANTED
) -> RunResult:
    return replay_files(files, wanted, execution, lambda _: None)


def folder_of_sessions(folder: Path) -> list[Path]:
    folder.mkdir()
    claude_code(folder / "a.jsonl", 6)
    (folder / "b.jsonl").write_bytes((folder / "a.jsonl").read_bytes())
    return [
        folder / "a.jsonl",
        folder / "b.jsonl",
        codex(folder / "c.jsonl", 5),
        collection(folder / "d.jsonl.gz", [3, 2, 9]),
    ]


def test_storage_gives_what_a_folder_gives(tmp_path: Path, storage: Any):
    files = folder_of_sessions(tmp_path / "logs")
    for file in files:
        storage.pipe(f"/logs/{file.name}", file.read_bytes())
    storage.pipe("/logs/notes.txt", b"no transcript")
    found = remote_transcripts("memory://logs")
    assert [one.address for one in found] == [f"memory://logs/{file.name}" for file in files]
    told, local = untimed(replayed(found)), untimed(replayed(files))
    text = json.dumps(local).replace(str(tmp_path / "logs"), "memory://logs")
    assert json.loads(json.dumps(told)) == json.loads(text)
    assert told["duplicates"] > 0


def test_a_missing_object_is_named(storage: Any):
    found = replayed(remote_transcripts("memory://nothing"))
    assert [one.source for one in found.skipped] == ["memory://nothing"]


def test_rows_of_parquet_are_sessions_or_requests(tmp_path: Path):
    lines = collection(tmp_path / "d.jsonl.gz", [3, 2, 9])
    rows = [json.loads(line) for line in gzip.decompress(lines.read_bytes()).splitlines()]
    texts = [
        {name: json.dumps(one) if isinstance(one, list) else one for name, one in row.items()}
        for row in rows
    ]
    pq.write_table(pa.Table.from_pylist(texts), tmp_path / "d.parquet")
    told = untimed(replayed([tmp_path / "d.parquet"]))
    local = untimed(replayed([lines]))
    assert json.dumps(told).replace("d.parquet", "d.jsonl.gz") == json.dumps(local)
    assert len(told["sessions"]) == 3


def test_a_broken_table_is_skipped(tmp_path: Path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    (one,) = replayed([tmp_path / "a.parquet"]).skipped
    assert one.source == str(tmp_path / "a.parquet")
    after = pa.array([253_402_300_800_000_000], pa.timestamp("us"))  # the year 10000
    pq.write_table(pa.table({"messages": ["[]"], "time": after}), tmp_path / "b.parquet")
    (one,) = replayed([tmp_path / "b.parquet"]).skipped
    assert "row 0: it has a value that Python has not" in one.reason


class TestCheckpoints:
    def test_a_run_that_is_started_again_takes_what_is_finished(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        files = folder_of_sessions(tmp_path / "logs")
        whole = untimed(replayed(files))
        execution = Execution(1, checkpoint=Checkpoint(str(tmp_path / "kept")))

        def interrupt(progress: Progress) -> None:
            if progress.files == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            replay_files(files, WANTED, execution, interrupt)
        worked = list[str]()
        process = runner.process_item

        def note(item: Any, place: Any, request: RunRequest) -> Any:
            worked.append(place[0])
            return process(item, place, request)

        monkeypatch.setattr(runner, "process_item", note)
        assert untimed(replayed(files, execution)) == whole
        assert {*worked} == {str(one) for one in files[2:]}
        worked.clear()
        assert untimed(replayed(files, execution)) == whole
        assert worked == []

    @pytest.mark.parametrize("change", ["policies", "agents", "file", "details"])
    def test_what_changes_an_outcome_changes_its_name(self, tmp_path: Path, change: str):
        files = folder_of_sessions(tmp_path / "logs")
        execution = Execution(1, checkpoint=Checkpoint(str(tmp_path / "kept")))
        replayed(files, execution)
        wanted = WANTED
        match change:
            case "policies":
                wanted = replace(WANTED, options=ReplayOptions(("none", "mask-1")))
            case "agents":
                wanted = replace(WANTED, agents=("codex",))
            case "details":
                wanted = replace(WANTED, with_details=False)
            case _:
                claude_code(files[0], 9)
        changed = untimed(replayed(files, execution, wanted))
        assert changed == untimed(replayed(files, 1, wanted))
        assert changed != untimed(replayed(files, execution)) or change == "file"

    def test_a_policy_file_that_changes_is_another(self, tmp_path: Path):
        files = [claude_code(tmp_path / "a.jsonl", 12, result=3_000)] * 2
        execution = Execution(1, checkpoint=Checkpoint(str(tmp_path / "kept")))
        policy, told = tmp_path / "own.toml", list[Any]()
        wanted = RunRequest(ReplayOptions(("none", str(policy))))
        for text in ("budget = 5000\n", "repair = true\n"):
            policy.write_text(text)
            told.append(untimed(replayed(files, execution, wanted)))
            assert told[-1] == untimed(replayed(files, 1, wanted))
        assert told[0] != told[1]

    def test_a_file_at_which_a_process_died_is_not_kept(self, tmp_path: Path):
        file = claude_code(tmp_path / "a.jsonl", 3)
        collector = runner.OutcomeCollector({str(file): 1}, lambda _: None)
        part = Checkpoint(str(tmp_path / "kept")).of(WANTED)
        collector.use_checkpoint(part)
        collector.note_death(str(file))
        collector.add(str(file), 0, SkippedSource(str(file), "killed"))
        collector.finish_file(str(file))
        assert part.load(str(file)) is None

    def test_a_read_that_failed_is_tried_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        files = folder_of_sessions(tmp_path / "logs")
        execution = Execution(1, checkpoint=Checkpoint(str(tmp_path / "kept")))
        whole, reader = untimed(replayed(files)), runner.read_file

        def refuse(path: Path, readers: Any) -> Any:
            if path == files[2]:
                raise TimeoutError
            return reader(path, readers)

        monkeypatch.setattr(runner, "read_file", refuse)
        reasons = {one.source: one.reason for one in replayed(files, execution).skipped}
        assert reasons[str(files[2])].startswith("reading it failed: TimeoutError")
        monkeypatch.undo()
        assert untimed(replayed(files, execution)) == whole

    def test_a_damaged_entry_is_made_again(self, tmp_path: Path):
        files = folder_of_sessions(tmp_path / "logs")
        execution = Execution(1, checkpoint=Checkpoint(str(tmp_path / "kept")))
        whole = untimed(replayed(files, execution))
        for kept in (tmp_path / "kept").iterdir():
            kept.write_bytes(kept.read_bytes()[:-1])
        assert untimed(replayed(files, execution)) == whole


def test_found_files_are_named_by_their_address():
    found = FoundFile("s3://b/a.jsonl.gz", 10, "x")
    assert str(found) == "s3://b/a.jsonl.gz"
    assert runner.estimate_bytes(found) == 10 * runner.GZIP_RATIO
    assert msgspec.json.decode(msgspec.json.encode(found), type=FoundFile) == found
