"""Ray and object storage: the figures of the local engine, to the last digit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.batch.corpora import BAD, contents, lines, write_lines
from tests.late import late
from tests.replay.transcripts import claude_code, codex, collection

pytestmark = pytest.mark.batch

fsspec = late("fsspec")
moto_server = late("moto.server")
ROOT = Path(__file__).parents[2]
CORPUS = Path(os.environ.get("CORPUS", ROOT.parent / "shared" / "corpus"))
SAMPLE = 6_000_000  # bytes of recorded sessions


@pytest.fixture(scope="module")
def storage() -> Iterator[Any]:
    """A server of object storage, named by the variables that its clients read."""
    server = moto_server.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    own = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in own.items():
            patch.setenv(name, value)
        made = fsspec.filesystem("s3", skip_instance_cache=True)
        made.mkdir("bucket")
        yield made
    server.stop()


def respool(*words: str, folder: Path, status: int = 0, errors: bool = False) -> str:
    """Run the command as a user does, in a folder where modules of other names lie."""
    (folder / "select.py").write_text("raise SystemExit('imported from the working directory')")
    env = {**os.environ, "PYTHONSAFEPATH": "1", "RESPOOL_STORE": str(folder / "none.db")}
    done = subprocess.run(
        [sys.executable, "-m", "respool", *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done.stderr if errors else done.stdout


def figures(told: str) -> dict[str, Any]:
    """All figures of a replay but those that a clock tells."""
    found = json.loads(told)
    del found["made"]
    for total in found["totals"]:
        del total["ms"], total["worst_ms"]
    for session in found["sessions"]:
        for score in session["scores"]:
            del score["seconds"], score["worst"]
    return found


def transcripts(folder: Path) -> Path:
    """Sessions of several agents, one of them twice, and what is none."""
    folder.mkdir()
    claude_code(folder / "a.jsonl", 6)
    (folder / "copy.jsonl").write_bytes((folder / "a.jsonl").read_bytes())
    claude_code(folder / "longer.jsonl", 9, result=3_000)
    codex(folder / "b.jsonl", 5)
    collection(folder / "many.jsonl.gz", [3, 20, 2, 9, 1, 4])
    (folder / "none.jsonl").write_text("{}\n")
    return folder


def corpus_sample(folder: Path) -> Path:
    """Some files of recorded sessions."""
    if not CORPUS.is_dir():
        pytest.skip(f"there are no recorded sessions at {CORPUS}")
    folder.mkdir()
    size = 0
    for file in sorted(CORPUS.glob("*.jsonl.gz"))[::5]:
        if size + file.stat().st_size < SAMPLE:
            size += file.stat().st_size
            (folder / file.name).symlink_to(file)
    return folder


@pytest.mark.parametrize("source", [transcripts, corpus_sample])
def test_a_replay_on_ray_has_the_figures_of_the_local_engine(source: Any, tmp_path: Path):
    folder = source(tmp_path / "in")
    words = ["replay", "--json", "--quiet", "--policy", "safe", folder.name]
    local = figures(respool(*words, "--jobs", "2", folder=tmp_path))
    on_ray = figures(respool(*words, "--engine", "ray", "--jobs", "2", folder=tmp_path))
    assert on_ray == local
    assert len(local["sessions"]) > 5
    if source is transcripts:
        assert local["duplicates"] > 0


@pytest.mark.parametrize("to", ["jsonl", "parquet"])
def test_shards_made_on_ray_are_those_of_the_local_engine(to: str, tmp_path: Path):
    write_lines(tmp_path / "in" / "a.jsonl", [*lines(), *BAD])
    write_lines(tmp_path / "in" / "b.jsonl", [*lines("gemini"), *BAD])
    (tmp_path / "in" / "c.parquet").write_bytes(b"nothing")
    words = ["compact", "--batch", "in", "--to", to, "--set", "budget=5000", "--jobs", "2"]
    respool(*words, "-o", "local", folder=tmp_path, status=1)
    respool(*words, "-o", "on-ray", "--engine", "ray", folder=tmp_path, status=1)
    local = contents(tmp_path / "local")
    assert contents(tmp_path / "on-ray") == local
    assert {"part-000001." + to, "rejected/part-000001.jsonl", "rejected/files.jsonl"} <= {*local}


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_a_corpus_in_object_storage(storage: Any, engine: str, tmp_path: Path):
    write_lines(tmp_path / "in" / "a.jsonl", [*lines(exchanges=40), *BAD])
    write_lines(tmp_path / "in" / "b.jsonl", [*lines("gemini", exchanges=40), *BAD])
    storage.put(str(tmp_path / "in"), f"bucket/{engine}", recursive=True)
    words = ["compact", "--batch", "--set", "budget=5000", "--jobs", "2", "--engine", engine]
    respool(*words, "in", "-o", "out", folder=tmp_path, status=1)
    address = f"s3://bucket/{engine}-out"
    respool(*words, f"s3://bucket/{engine}", "-o", address, folder=tmp_path, status=1)
    local = contents(tmp_path / "out")
    stored = {
        name.partition("-out/")[2]: storage.cat(name)
        for name in storage.find(f"bucket/{engine}-out")
    }
    assert stored.keys() == local.keys()
    for name in local:
        if name.startswith("part-"):
            assert stored[name] == local[name]
    told = json.loads(stored["summary.json"])["figures"]
    assert told == json.loads(local["summary.json"])["figures"]
    gone = f"bucket/{engine}-out/manifest/part-000001.json"
    storage.rm_file(gone)
    before = storage.info(f"bucket/{engine}-out/part-000000.jsonl")["LastModified"]
    respool(*words, f"s3://bucket/{engine}", "-o", address, folder=tmp_path, status=1)
    storage.invalidate_cache()
    assert storage.cat(gone) == stored["manifest/part-000001.json"]
    assert storage.info(f"bucket/{engine}-out/part-000000.jsonl")["LastModified"] == before


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_a_replay_of_object_storage(storage: Any, engine: str, tmp_path: Path):
    folder = transcripts(tmp_path / "in")
    storage.put(str(folder), f"bucket/sessions-{engine}", recursive=True)
    words = ["replay", "--json", "--quiet", "--policy", "safe", "--jobs", "2"]
    local = respool(*words, "in", folder=tmp_path)
    address = f"s3://bucket/sessions-{engine}"
    found = respool(*words, "--engine", engine, address, folder=tmp_path)
    assert figures(found) == figures(
        local.replace('"in/', f'"{address}/').replace(" in/", f" {address}/")
    )
    kept = [*words, "--engine", engine, "--checkpoint", f"s3://bucket/kept-{engine}", address]
    assert figures(respool(*kept, folder=tmp_path)) == figures(found)
    assert len(storage.find(f"bucket/kept-{engine}")) >= 2 * 6
    assert figures(respool(*kept, folder=tmp_path)) == figures(found)


def die(unit: tuple[str, bool]) -> str:
    """Die at every try, or at the first one."""
    marker = Path(unit[0])
    if unit[1] or not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def test_a_unit_whose_worker_dies_is_done_again_or_left_out(tmp_path: Path):
    code = (
        "import sys; from tests.batch.test_ray_and_storage import die\n"
        "from respool.batch.ray_engine import run_on_ray\n"
        "units = [(sys.argv[1] + '/once', False), (sys.argv[1] + '/always', True)]\n"
        "print([*run_on_ray(die, units, 1)])\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "[(0, 'done')]\n"


def test_what_is_not_there(storage: Any, tmp_path: Path):
    respool("replay", "s3://bucket/nothing", folder=tmp_path, status=2)
    words = ["compact", "--batch"]
    told = respool(*words, "s3://no-bucket/x", "-o", "o", folder=tmp_path, status=2, errors=True)
    assert told == "respool: s3://no-bucket/x: there is no file to compact\n"
    write_lines(tmp_path / "a.jsonl", lines("anthropic"))
    told = respool(
        *words, "a.jsonl", "-o", "s3://no-bucket/x", folder=tmp_path, status=2, errors=True
    )
    assert told.startswith("respool: s3://no-bucket/x/job.json: ")
