"""Batch jobs: what each record becomes, on any number of processes, whatever ends a run."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import respool
from respool import Policy
from respool.batch import block_work, job, local_engine
from respool.batch.addresses import (
    StorageError,
    find_files,
    is_remote,
    join,
    open_stream,
    write_stream,
)
from respool.batch.block_work import BlockOptions
from respool.batch.compacted_record import CompactedRecord, RecordOptions, RejectedRecord
from respool.batch.job import BatchProgress, BatchSummary, OtherJob, plan_batch, run_batch
from respool.batch.records import Block, read_records
from respool.batch.shards import open_shard
from respool.cli import main
from tests.batch.corpora import (
    BAD,
    POLICY,
    contents,
    lines,
    records,
    rejects,
    requests,
    write_lines,
)

POSIX = pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")


def options(folder: Path | str, to: str | None = None, **record: Any) -> BlockOptions:
    record = {"policy": POLICY, **record}
    return BlockOptions(folder=str(folder), to=to, record=RecordOptions(**record))


def ran(
    source: Path | str,
    out: BlockOptions,
    *,
    jobs: int = 1,
    block: int = job.BLOCK_BYTES,
    note: Callable[[BatchProgress], None] = lambda _: None,
) -> BatchSummary:
    plan = plan_batch([str(source)], out, block)
    return run_batch(plan, engine="local", jobs=jobs, on_progress=note)


@pytest.fixture
def _always_processes(monkeypatch: pytest.MonkeyPatch):
    """Let even small input be worth a process."""
    monkeypatch.setattr(local_engine, "_MIN_PARALLEL_BYTES", 0)


class TestRecords:
    def test_each_is_what_compact_makes_of_it(self, tmp_path: Path):
        given = lines()
        summary = ran(write_lines(tmp_path / "in.jsonl", given), options(tmp_path / "out"))
        before = after = changed = 0
        for line, made in zip(given, records(tmp_path / "out"), strict=True):
            whole = json.loads(made)
            figures = whole.pop("respool_tokens_before"), whole.pop("respool_tokens_after")
            alone = respool.compact(line, policy=POLICY, memo=None)
            assert whole == json.loads(alone.request)
            assert made.startswith(alone.request[:-1])  # with its bytes
            assert (figures[1] < figures[0]) == bool(alone.report.edits)
            before, after = before + figures[0], after + figures[1]
            changed += bool(alone.report.edits)
        assert changed > 10
        figures = summary.figures
        assert (figures.records, figures.changed, figures.rejected) == (len(given), changed, 0)
        assert (figures.tokens_before, figures.tokens_after) == (before, after)
        assert before - after == sum(saved for _, saved in figures.edits.values())
        assert summary.is_clean

    def test_originals_are_kept_where_that_is_asked_for(self, tmp_path: Path):
        given = lines("anthropic")
        out = options(tmp_path / "out", with_originals=True)
        ran(write_lines(tmp_path / "in.jsonl", given), out)
        alone = respool.compact(given[-1], policy=POLICY, memo=None)
        assert json.loads(records(tmp_path / "out")[-1])["respool_originals"] == dict(
            alone.originals
        )
        assert alone.originals

    @pytest.mark.parametrize("as_text", [False, True])
    def test_a_field_holds_the_request(self, tmp_path: Path, as_text: bool):
        given = [json.loads(line) for line in lines("openai-chat")]
        wrapped = [
            {"a": [1.50, None], "request": json.dumps(one) if as_text else one, "z": "\u2028"}
            for one in given
        ]
        source = write_lines(tmp_path / "in.jsonl", [json.dumps(one).encode() for one in wrapped])
        ran(source, options(tmp_path / "out", column="request"))
        for one, made in zip(given, records(tmp_path / "out"), strict=True):
            row = json.loads(made)
            assert [*row][:3] == ["a", "request", "z"]
            assert (row["a"], row["z"]) == ([1.5, None], "\u2028")
            sent = json.loads(row["request"]) if as_text else row["request"]
            assert sent == respool.compact(one, policy=POLICY, memo=None).request

    def test_a_bare_list_of_messages(self, tmp_path: Path):
        messages = [*requests("openai-chat")][-1]["messages"]
        source = write_lines(tmp_path / "in.jsonl", [json.dumps(messages).encode()])
        ran(source, options(tmp_path / "out"))
        (made,) = map(json.loads, records(tmp_path / "out"))
        assert made["messages"] == respool.compact(messages, policy=POLICY, memo=None).request
        assert made["messages"] != messages

    def test_bad_ones_are_set_aside_with_place_and_reason(self, tmp_path: Path):
        good = lines("anthropic")
        mixed = [line for pair in zip(BAD, good, strict=False) for line in pair]
        source = write_lines(tmp_path / "in.jsonl", mixed)
        summary = ran(source, options(tmp_path / "out"), block=2_000)
        found = rejects(tmp_path / "out")
        data = source.read_bytes()
        assert len(found) == len(BAD) == summary.figures.rejected
        for one, (line, why) in zip(found, BAD.items(), strict=True):
            assert data[one["byte"] :].startswith(line + b"\n")
            assert one["source"] == str(source)
            assert one["reason"].startswith(why or "")
            assert one["reason"]
            assert one["record"] == line.decode("utf-8", "replace")
        assert len(records(tmp_path / "out")) == len(BAD)
        assert sum(summary.figures.reasons.values()) == len(BAD)
        assert not summary.is_clean

    def test_a_budget_that_cannot_be_met_sets_aside(self, tmp_path: Path):
        given = lines("anthropic")
        policy = Policy(budget=2_000)
        ran(write_lines(tmp_path / "in.jsonl", given), options(tmp_path / "out", policy=policy))
        assert {one["reason"].partition(" tokens")[2][:8] for one in rejects(tmp_path / "out")} == {
            " with al"
        }

    def test_what_must_stay_stays(self, tmp_path: Path):
        line = b'{"input": "hello", "model": "gpt-5.1"}'
        summary = ran(write_lines(tmp_path / "in.jsonl", [line]), options(tmp_path / "out"))
        assert summary.figures.untouched == 1
        assert summary.is_clean
        assert json.loads(records(tmp_path / "out")[0])["input"] == "hello"


class TestBlocks:
    @pytest.mark.parametrize("size", [1, 7, 8, 9, 40, 1_000])
    def test_each_line_is_in_one(self, tmp_path: Path, size: int):
        given = [b"1", b"", b"22222222222222", b"   ", b"3" * 300, b"4"]
        source = tmp_path / "in.jsonl"
        source.write_bytes(b"\n".join(given))
        plan = plan_batch([str(source)], options(tmp_path / "out"), size)
        found = [one for block in plan.blocks for one in read_records(block)]
        assert [cast(bytes, one.data).strip() for one in found] == [
            one for one in given if one.strip()
        ]
        data = source.read_bytes()
        assert all(data[one.place :].startswith(cast(bytes, one.data)) for one in found)
        assert [(one.start, two.start) for one, two in pairwise(plan.blocks)] == [
            (one.start, one.end) for one, _ in pairwise(plan.blocks)
        ]

    def test_a_line_that_is_too_long_is_set_aside(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr("respool.batch.records.MAX_LINE_BYTES", 100)
        short = b'{"messages":[]}'
        source = write_lines(tmp_path / "in.jsonl", [short, b"7" * 250, short])
        for size in (60, 1_000):
            ran(source, options(tmp_path / f"out{size}"), block=size)
            assert [one["byte"] for one in rejects(tmp_path / f"out{size}")] == [16]

    @pytest.mark.usefixtures("_always_processes")
    def test_the_same_on_any_number_of_processes_and_blocks(self, tmp_path: Path):
        found = [*lines(), *BAD]
        source = write_lines(tmp_path / "in" / "a.jsonl", found)
        (tmp_path / "in" / "b.jsonl.gz").write_bytes(gzip.compress(source.read_bytes()))
        ran(source.parent, options(tmp_path / "one"), jobs=1, block=50_000)
        ran(source.parent, options(tmp_path / "two"), jobs=2, block=50_000)
        assert contents(tmp_path / "two") == contents(tmp_path / "one")
        assert len(contents(tmp_path / "one")) > 20
        ran(source.parent, options(tmp_path / "whole"), jobs=2)
        assert records(tmp_path / "whole") == records(tmp_path / "one")
        summary = [
            json.loads((tmp_path / name / "summary.json").read_bytes()) for name in ("one", "whole")
        ]
        assert summary[0]["figures"] == summary[1]["figures"]

    def test_a_broken_file_gives_what_can_be_read(self, tmp_path: Path):
        given = lines("anthropic")
        packed = gzip.compress(b"".join(line + b"\n" for line in given))
        (tmp_path / "cut.jsonl.gz").write_bytes(packed[: len(packed) // 2])
        (tmp_path / "no.parquet").write_bytes(b"PAR1 and nothing")
        (tmp_path / "notes.txt").write_bytes(b"hello")
        summary = ran(tmp_path, options(tmp_path / "out"))
        assert 0 < len(records(tmp_path / "out")) < len(given)
        (unreadable,) = summary.unreadable
        assert Path(unreadable.source).name == "no.parquet"
        assert unreadable.reason.startswith("it is no Parquet file")
        cut, listed = sorted(rejects(tmp_path / "out"), key=lambda one: one["source"])
        assert Path(cut["source"]).name == "cut.jsonl.gz"
        assert cut["reason"].startswith("the rest of the file cannot be read: its gzip data")
        assert listed == {"source": unreadable.source, "reason": unreadable.reason}
        assert not summary.is_clean


class TestAnotherRun:
    def test_does_only_what_is_not_done(self, tmp_path: Path):
        source = write_lines(tmp_path / "in.jsonl", [*lines(), *BAD])
        ran(source, options(tmp_path / "whole"), block=30_000)
        out = tmp_path / "out"

        def interrupt(progress: BatchProgress) -> None:
            if progress.done == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            ran(source, options(out), block=30_000, note=interrupt)
        kept = {name: (out / name).stat().st_mtime_ns for name in contents(out)}
        assert len([name for name in kept if name.startswith("part-")]) == 3
        told: list[BatchProgress] = []
        ran(source, options(out), block=30_000, note=told.append)
        assert contents(out) == contents(tmp_path / "whole")
        assert {name: (out / name).stat().st_mtime_ns for name in kept} == kept
        assert told[0].done == 3
        assert told[-1].done == told[-1].blocks > 3
        assert told[-1].read == told[-1].total == source.stat().st_size

    def test_its_own_output_is_no_input(self, tmp_path: Path):
        write_lines(tmp_path / "a.jsonl", lines("anthropic"))
        first = ran(tmp_path, options(tmp_path / "out"))
        assert ran(tmp_path, options(tmp_path / "out")) == first
        assert first.files == 1

    @POSIX
    @pytest.mark.parametrize("named", ["elsewhere/../in/out", "link/out"])
    def test_its_own_output_is_no_input_by_whatever_path(self, tmp_path: Path, named: str):
        (tmp_path / "elsewhere").mkdir()
        write_lines(tmp_path / "in" / "a.jsonl", lines("anthropic"))
        (tmp_path / "link").symlink_to(tmp_path / "in")
        first = ran(tmp_path / "in", options(tmp_path / named))
        assert ran(tmp_path / "in", options(tmp_path / named)) == first
        assert first.files == 1

    @pytest.mark.parametrize("is_input", [True, False])
    def test_no_file_of_another_program_is_overwritten(self, tmp_path: Path, is_input: bool):
        """Other programs name their files so, too."""
        theirs = write_lines(tmp_path / "part-000000.jsonl", lines("anthropic"))
        before = theirs.read_bytes()
        source = theirs if is_input else write_lines(tmp_path / "in" / "a.jsonl", lines())
        with pytest.raises(OtherJob, match=r"part-000000\.jsonl: This file is of another program"):
            ran(source, options(tmp_path))
        assert theirs.read_bytes() == before
        assert not (tmp_path / "job.json").exists()
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        assert ran(source, options(tmp_path / "out")).is_clean

    def test_only_what_a_killed_run_left_is_removed(self, tmp_path: Path):
        source, out = write_lines(tmp_path / "in.jsonl", lines()), tmp_path / "out"
        ours = [
            "part-000000.jsonl.77.part",
            "job.json.77.part",
            "manifest/part-000000.json.77.part",
        ]
        theirs = ["film.mkv.part", "film.mkv.77.part", "a/part-000000.jsonl.77.part"]
        for name in (*ours, *theirs):
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(b"half of it")
        ran(source, options(out))
        assert not [name for name in ours if (out / name).exists()]
        assert all((out / name).exists() for name in theirs)

    @pytest.mark.parametrize("loss", ["part-000001.jsonl", "manifest/part-000001.json"])
    def test_makes_again_what_is_gone(self, tmp_path: Path, loss: str):
        source, out = write_lines(tmp_path / "in.jsonl", lines()), tmp_path / "out"
        ran(source, options(out), block=30_000)
        whole = contents(out)
        (out / loss).unlink()
        ran(source, options(out), block=30_000)
        assert contents(out) == whole

    @POSIX
    def test_goes_on_after_a_kill(self, tmp_path: Path):
        source = write_lines(tmp_path / "in.jsonl", lines("anthropic", exchanges=30))
        ran(source, options(tmp_path / "whole", policy=Policy()), block=40_000)
        code = (
            "import sys; from respool.batch import job, local_engine\n"
            "from tests.batch.test_batch import Policy, options, ran\n"
            "local_engine._MIN_PARALLEL_BYTES = 0\n"
            "if __name__ == '__main__':\n"
            "    out = options(sys.argv[2], policy=Policy())\n"
            "    ran(sys.argv[1], out, jobs=2, block=40_000)\n"
        )
        script, out = tmp_path / "run.py", tmp_path / "out"
        script.write_text(code)
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        words = [sys.executable, str(script), str(source), str(out)]
        running = subprocess.Popen(words, env=env, stdout=subprocess.PIPE)
        while not [*out.glob("manifest/*.json")] and running.poll() is None:
            time.sleep(0.01)
        running.send_signal(signal.SIGKILL)
        running.communicate()  # until its processes have ended, which have the same output
        done = len([*out.glob("manifest/*.json")])
        assert 0 < done < len([*(tmp_path / "whole" / "manifest").iterdir()])
        ran(source, options(out, policy=Policy()), block=40_000)
        assert contents(out) == contents(tmp_path / "whole")

    @pytest.mark.parametrize("change", [{"to": "parquet"}, {"policy": Policy()}, {"column": "x"}])
    def test_of_another_job_is_refused(self, tmp_path: Path, change: dict[str, Any]):
        source = write_lines(tmp_path / "in.jsonl", lines("anthropic"))
        ran(source, options(tmp_path / "out"))
        with pytest.raises(OtherJob):
            ran(source, options(tmp_path / "out", **change))
        write_lines(source, lines("openai-chat"))
        with pytest.raises(OtherJob):
            ran(source, options(tmp_path / "out"))

    def test_tries_what_the_storage_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        source, out = write_lines(tmp_path / "in.jsonl", lines()), tmp_path / "out"
        ran(source, options(tmp_path / "whole"), block=30_000)
        whole, calls = block_work.write_stream, list[str]()

        def refuse(address: str) -> Any:
            calls.append(address)
            if len(calls) == 4:
                raise OSError(28, "No space left on device")
            return whole(address)

        monkeypatch.setattr(block_work, "write_stream", refuse)
        first = ran(source, options(out), block=30_000)
        assert [one.reason for one in first.failed] == [
            "OSError: [Errno 28] No space left on device"
        ]
        assert first.done == first.blocks - 1
        assert not first.is_clean
        assert ran(source, options(out), block=30_000).is_clean
        assert contents(out) == contents(tmp_path / "whole")


@POSIX
@pytest.mark.usefixtures("_always_processes")
class TestProcessesThatDie:
    def test_one_costs_the_record_that_it_was_at(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        source = write_lines(tmp_path / "in.jsonl", lines(exchanges=16))
        ran(source, options(tmp_path / "whole"), block=200_000)
        whole, killed = local_engine._Pool._receive, list[int]()

        def receive_and_kill(self: Any, worker: Any) -> Any:
            outcome = whole(self, worker)
            if worker.at is not None and worker.at.read and not killed:
                killed.append(worker.process.pid)
                os.kill(worker.process.pid, signal.SIGKILL)
            return outcome

        monkeypatch.setattr(local_engine._Pool, "_receive", receive_and_kill)
        told: list[BatchProgress] = []
        out = tmp_path / "out"
        summary = ran(source, options(out), jobs=2, block=200_000, note=told.append)
        (entry,) = rejects(out)
        assert entry["reason"] == ("its process was killed, as happens when memory runs out")
        others = records(tmp_path / "whole")
        assert [one for one in others if one not in records(out)] != []
        assert len(records(out)) == len(others) - 1 == summary.figures.records
        assert told[-1].read == told[-1].total

    def test_before_any_record_fails_the_block(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        source = write_lines(tmp_path / "in.jsonl", lines("anthropic"))
        whole = local_engine._Pool._assign

        def assign_and_kill(self: Any) -> None:
            idle = [worker for worker in self._workers if worker.block is None]
            whole(self)
            for worker in idle:
                worker.process.kill()  # it is still starting

        monkeypatch.setattr(local_engine._Pool, "_assign", assign_and_kill)
        summary = ran(source, options(tmp_path / "out"), jobs=2)
        assert (len(summary.failed), summary.done) == (1, 0)


def as_table(found: list[dict[str, Any]], *, nested: bool) -> pa.Table:
    """Rows with a column of messages, as text or nested, and others beside it."""
    rows = [
        {
            "number": at,
            "messages": one["messages"] if nested else json.dumps(one["messages"]),
            "model": one.get("model"),
            "note": None if at % 2 else b"\x00\xff",
        }
        for at, one in enumerate(found)
    ]
    return pa.Table.from_pylist(rows)


class TestParquet:
    @pytest.mark.parametrize("column", [None, "messages"])
    @pytest.mark.parametrize("nested", [False, True])
    def test_rows_keep_their_schema_and_other_columns(
        self, tmp_path: Path, nested: bool, column: str | None
    ):
        found = [*requests("openai-chat", 12)]
        table = as_table(found, nested=nested)
        pq.write_table(table, tmp_path / "in.parquet", row_group_size=5)
        ran(tmp_path / "in.parquet", options(tmp_path / "out", column=column), block=1)
        shards = sorted((tmp_path / "out").glob("part-*.parquet"))
        assert len(shards) == -(-len(found) // 5)
        made = pa.concat_tables([pq.read_table(one) for one in shards])
        names = ["respool_tokens_before", "respool_tokens_after"]
        assert made.schema.remove_metadata() == pa.schema(
            [*table.schema, *(pa.field(name, pa.int64()) for name in names)]
        )
        for kept in ("number", "model", "note"):
            assert made[kept] == table[kept]
        changed = 0
        for one, row in zip(found, made["messages"].to_pylist(), strict=True):
            request = one if column is None else one["messages"]
            if column is None:
                request = {"messages": one["messages"], "model": one.get("model")}
            alone = respool.compact(request, policy=POLICY, memo=None)
            sent: Any = alone.request["messages"] if column is None else alone.request
            assert without_nulls(row if nested else json.loads(row)) == without_nulls(sent)
            changed += bool(alone.report.edits)
        assert changed > 3

    def test_the_other_kind_comes_out_where_that_is_asked_for(self, tmp_path: Path):
        found = [*requests("openai-chat", 12)]
        pq.write_table(as_table(found, nested=False), tmp_path / "in.parquet")
        table = as_table(found, nested=False).drop_columns("note")
        pq.write_table(table, tmp_path / "in.parquet")
        ran(tmp_path / "in.parquet", options(tmp_path / "lines", to="jsonl"))
        rows = [json.loads(one) for one in records(tmp_path / "lines")]
        assert [one["number"] for one in rows] == [*range(len(found))]
        source = write_lines(tmp_path / "in.jsonl", lines("openai-chat"))
        ran(source, options(tmp_path / "plain"))
        ran(source, options(tmp_path / "table", to="parquet", with_originals=True))
        made = pq.read_table(tmp_path / "table" / "part-000000.parquet").to_pylist()
        for row, line in zip(made, records(tmp_path / "plain"), strict=True):
            whole = json.loads(line)
            assert row["respool_tokens_before"] == whole.pop("respool_tokens_before")
            assert row["respool_tokens_after"] == whole.pop("respool_tokens_after")
            assert json.loads(row["record"]) == whole
            assert isinstance(json.loads(row["respool_originals"]), dict)

    def test_rows_that_cannot_be_compacted_are_set_aside(self, tmp_path: Path):
        rows = [
            {"request": json.dumps([*requests("openai-chat")][-1])},
            {"request": None},
            {"request": "{"},
        ]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
        ran(tmp_path / "in.parquet", options(tmp_path / "out", column="request"))
        found = rejects(tmp_path / "out")
        assert [one["row"] for one in found] == [1, 2]
        assert found[0]["reason"] == "it has no value in the column 'request'"

    @pytest.mark.parametrize("compression", ["snappy", "zstd"])
    def test_broken_data_is_set_aside_and_the_other_rows_are_done(
        self, tmp_path: Path, compression: Any
    ):
        file, found = tmp_path / "in.parquet", [*requests("openai-chat", 12)]
        table = as_table(found, nested=False)
        pq.write_table(table, file, row_group_size=4, compression=compression, use_dictionary=False)
        groups = pq.ParquetFile(file).metadata
        second = groups.row_group(1).column(1)
        data, at = bytearray(file.read_bytes()), second.data_page_offset
        middle = at + second.total_compressed_size // 2
        data[middle : middle + 60] = b"\xff" * 60
        file.write_bytes(data)
        summary = ran(file, options(tmp_path / "out"), block=1)
        assert (summary.failed, summary.done) == ((), summary.blocks)
        (entry,) = rejects(tmp_path / "out")
        assert "its Parquet data is broken" in entry["reason"]
        assert summary.figures.records == len(found) - min(4, len(found) - 4)

    @pytest.mark.parametrize("to", ["parquet", "jsonl"])
    def test_nanoseconds_are_kept(self, tmp_path: Path, to: str):
        """Python's own times have none; pandas writes them by default."""
        ns, exact = pa.timestamp("ns"), 1_700_000_000_123_456_789
        nested = pa.list_(pa.struct([("at", ns), ("n", pa.int64())]))
        columns = {
            "request": pa.array([json.dumps([*requests("openai-chat")][-1])] * 2),
            "at": pa.array([exact, None], ns),
            "zoned": pa.array([exact, 0], pa.timestamp("ns", "UTC")),
            "time": pa.array([1_001, 2], pa.time64("ns")),
            "took": pa.array([1_001, 2], pa.duration("ns")),
            "nested": pa.array([[{"at": exact, "n": 1}], []], nested),
            "map": pa.array([[("a", exact)], []], pa.map_(pa.string(), ns)),
        }
        table = pa.table(columns)
        pq.write_table(table, tmp_path / "in.parquet")
        summary = ran(tmp_path / "in.parquet", options(tmp_path / "out", to, column="request"))
        assert (summary.figures.records, summary.figures.changed) == (2, 2)
        if to == "parquet":
            made = pq.read_table(tmp_path / "out" / "part-000000.parquet")
            for name in columns.keys() - {"request"}:
                assert made[name].equals(table[name]), name
            return
        first, second = (json.loads(one) for one in records(tmp_path / "out"))
        assert first["at"] == "2023-11-14 22:13:20.123456789"
        assert first["zoned"] == "2023-11-14 22:13:20.123456789Z"
        assert (first["time"], first["took"]) == ("00:00:00.000001001", 1_001)
        assert first["nested"] == [{"at": first["at"], "n": 1}]
        assert (second["at"], second["nested"]) == (None, [])

    def test_a_value_that_python_has_not_costs_its_row_alone(self, tmp_path: Path):
        request = json.dumps([*requests("openai-chat")][-1])
        after = 253_402_300_800_000_000  # the first microsecond of the year 10000
        table = pa.table(
            {"request": [request] * 3, "at": pa.array([0, after, 1], pa.timestamp("us"))}
        )
        pq.write_table(table, tmp_path / "in.parquet")
        summary = ran(tmp_path / "in.parquet", options(tmp_path / "out", column="request"))
        assert (summary.figures.records, summary.failed) == (2, ())
        (entry,) = rejects(tmp_path / "out")
        assert (entry["row"], entry["reason"][:31]) == (1, "it has a value that Python has ")

    def test_what_storage_refuses_is_tried_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        file, out = tmp_path / "in.parquet", options(tmp_path / "out")
        pq.write_table(as_table([*requests("openai-chat")], nested=False), file)

        def refuse(*_: Any, **__: Any) -> Any:
            raise TimeoutError("read timed out")  # an OSError, as those of storage are

        with monkeypatch.context() as patch:
            patch.setattr(pq.ParquetFile, "iter_batches", refuse)
            (failed,) = ran(file, out).failed
        assert "read timed out" in failed.reason
        assert ran(file, out).is_clean

    @pytest.mark.parametrize("own", ["respool_tokens_after", "respool_originals"])
    def test_a_column_of_respools_own_is_refused(self, tmp_path: Path, own: str):
        rows = [{"messages": "[]", own: 1}]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
        write_lines(tmp_path / "in.jsonl", [json.dumps(rows[0]).encode()])
        for name in ("in.parquet", "in.jsonl"):
            out = options(tmp_path / f"of-{name}", to="jsonl", with_originals=True)
            ran(tmp_path / name, out)
            (entry,) = rejects(tmp_path / f"of-{name}")
            assert f"{own} already" in entry["reason"]

    @pytest.mark.parametrize(
        "message", [{"role": "user", "content": "x", "new": 1}, {"role": "user", "content": ["x"]}]
    )
    def test_a_projection_that_the_column_cannot_hold_is_refused(
        self, tmp_path: Path, message: dict[str, Any]
    ):
        old = {"role": "user", "content": "x"}
        pq.write_table(pa.Table.from_pylist([{"messages": [old]}]), tmp_path / "in.parquet")
        (block,) = plan_batch([str(tmp_path)], options(tmp_path / "out")).blocks
        with (tmp_path / "shard.parquet").open("wb") as stream:
            shard = open_shard(stream, block, "parquet", with_originals=False)
            for held in (old, message):
                made = CompactedRecord({"messages": [held]}, 1, 1, {}, False, {}, ("messages",))
                if held is old:
                    shard.add(made)
                    continue
                with pytest.raises(RejectedRecord, match="does not fit the column 'messages'"):
                    shard.add(made)
            shard.close()
        assert pq.read_table(tmp_path / "shard.parquet")["messages"].to_pylist() == [[old]]


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(one) for name, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


def write_half(address: str) -> None:
    with write_stream(address) as stream:
        stream.write(b"half")
        raise KeyError


class TestAddresses:
    def test_storage_gives_what_a_folder_gives(self, tmp_path: Path):
        found = [*lines(), *BAD]
        source = write_lines(tmp_path / "in" / "a.jsonl", found)
        storage = fsspec.filesystem("memory")
        storage.pipe("/corpus/a.jsonl", source.read_bytes())
        table = as_table([*requests("openai-chat")], nested=False)
        pq.write_table(table, tmp_path / "in" / "b.parquet")
        storage.pipe("/corpus/b.parquet", (tmp_path / "in" / "b.parquet").read_bytes())
        ran(source.parent, options(tmp_path / "out"), block=50_000)
        ran("memory://corpus", options("memory://made"), block=50_000)
        stored = {name.removeprefix("/made/"): storage.cat(name) for name in storage.find("/made")}
        local = contents(tmp_path / "out")
        assert stored.keys() == local.keys()
        for name, data in local.items():
            if name.startswith("part-"):
                assert stored[name] == data
        told = json.loads(stored["summary.json"])
        assert told["figures"] == json.loads(local["summary.json"])["figures"]
        before = storage.modified("/made/part-000000.jsonl")
        ran("memory://corpus", options("memory://made"), block=50_000)
        assert storage.modified("/made/part-000000.jsonl") == before
        storage.rm("/made", recursive=True)
        storage.rm("/corpus", recursive=True)

    def test_storage_that_fails_at_the_start_is_said_and_nothing_is_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        """Else the files that it could not open would be set aside for good."""
        storage = fsspec.filesystem("memory")
        pq.write_table(as_table([*requests("openai-chat")], nested=False), tmp_path / "b.parquet")
        storage.pipe("/failing/a.jsonl", b"\n".join(lines("anthropic")))
        storage.pipe("/failing/b.parquet", (tmp_path / "b.parquet").read_bytes())
        words = ["--batch", "memory://failing", "-o", str(tmp_path / "out")]

        def refuse(*_: Any, **__: Any) -> Any:
            raise RuntimeError("Could not connect to the endpoint")  # what boto's errors are

        for broken in ("find", "info", "_open"):
            with monkeypatch.context() as patch:
                patch.setattr(type(storage), broken, refuse)
                done = run(*words)
            assert done.exit_code == 2, broken
            assert "Could not connect to the endpoint" in done.stderr
            assert not (tmp_path / "out").exists()
        assert run(*words).exit_code == 0
        storage.rm("/failing", recursive=True)

    def test_a_write_that_fails_leaves_nothing(self, tmp_path: Path):
        for address in ("memory://half/file", str(tmp_path / "file")):
            with pytest.raises(KeyError):
                write_half(address)
            with pytest.raises(FileNotFoundError):
                open_stream(address)
        assert [*tmp_path.iterdir()] == []

    @pytest.mark.parametrize(
        ("address", "remote"),
        [
            ("s3://b/k", True),
            ("memory://x", True),
            ("a/b", False),
            ("C:\\a", False),
            ("c://a", False),
        ],
    )
    def test_a_scheme_has_two_letters(self, address: str, remote: bool):
        assert is_remote(address) == remote

    def test_an_unknown_scheme_is_an_error(self):
        with pytest.raises(StorageError, match="unheard-of"):
            next(find_files("unheard-of://x"))

    def test_join(self, tmp_path: Path):
        assert join("s3://b/k/", "a", "b") == "s3://b/k/a/b"
        assert join(str(tmp_path), "a") == str(tmp_path / "a")


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["compact", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


class TestCommand:
    def test_figures_and_exit_status(self, tmp_path: Path):
        source = write_lines(tmp_path / "in.jsonl", lines())
        out, told = tmp_path / "out", tmp_path / "told.json"
        done = run("--batch", str(source), "-o", str(out), "--report-json", str(told))
        assert done.exit_code == 0
        assert re_lines(done.stdout)[0].startswith(f"{len(lines())} records of 1 file in 1 shard;")
        assert json.loads(told.read_bytes()) == json.loads((out / "summary.json").read_bytes())

    def test_what_is_set_aside_is_said(self, tmp_path: Path):
        source = write_lines(tmp_path / "in.jsonl", [*lines("anthropic"), *BAD])
        done = run("--batch", str(source), str(tmp_path / "none.jsonl"), "-o", str(tmp_path / "o"))
        assert done.exit_code == 1
        assert f"Set aside in {tmp_path / 'o'}/rejected: {len(BAD)} records" in done.stdout
        assert f"Not read: {tmp_path / 'none.jsonl'}: there is no file to compact" in done.stdout

    def test_nothing_to_do(self, tmp_path: Path):
        done = run("--batch", str(tmp_path / "none"), "-o", str(tmp_path / "o"))
        assert done.exit_code == 2
        assert "there is no file to compact" in done.stderr

    def test_no_record(self, tmp_path: Path):
        (tmp_path / "a.jsonl").write_bytes(b"")
        done = run("--batch", str(tmp_path), "-o", str(tmp_path / "o"))
        assert done.exit_code == 2
        assert "There is no record in these files." in done.stderr

    @pytest.mark.parametrize(
        ("words", "why"),
        [
            (["--batch", "a.jsonl"], "--batch needs a folder"),
            (["a.json", "b.json"], "More than one FILE needs --batch"),
            (["a.json", "--jobs", "2"], "--jobs needs --batch"),
            (["a.json", "--engine", "ray"], "--engine needs --batch"),
            (["a.json", "--with-originals"], "--with-originals needs --batch"),
            (["--batch", "a.jsonl", "-o", "x", "--report"], "--batch takes"),
        ],
    )
    def test_options_that_do_not_go_together(self, words: list[str], why: str):
        done = run(*words)
        assert done.exit_code == 2
        assert why in done.stderr


def re_lines(text: str) -> list[str]:
    return text.splitlines()


def test_a_gzip_block_is_one(tmp_path: Path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"1\n2\n" * 1000))
    plan = plan_batch([str(tmp_path)], options(tmp_path / "out"), 1)
    assert [(one.kind, one.start) for one in plan.blocks] == [("gzip", 0)]
    assert isinstance(plan.blocks[0], Block)
    assert len([*read_records(plan.blocks[0])]) == 2_000
