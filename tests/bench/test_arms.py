"""Arms of benchmarks: tasks loaded, run through respool and written for the grader."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bench.arms import __main__ as arms
from bench.arms.tasks import Task, TaskError, load_ids, load_tasks
from respool.policy import Policy
from respool.store import SQLiteStore

# Made up; with the fields of SWE-bench, the answers among them.
INSTANCE = {
    "instance_id": "acme__gauge-7",
    "repo": "acme/gauge",
    "base_commit": "0" * 40,
    "problem_statement": "The gauge shows {folder} in place of a number.\nIt should not.",
    "hints_text": "SECRET",
    "patch": "SECRET",
    "test_patch": "SECRET",
    "version": "1.0",
    "FAIL_TO_PASS": '["tests/test_gauge.py::test_shows"]',
    "PASS_TO_PASS": "[]",
    "environment_setup_commit": "0" * 40,
    "created_at": "2026-01-01T00:00:00Z",
}
# An agent: it sends one request, and writes the issue into a file.
AGENT = """
import json, os, sys, urllib.request
said = [{"role": "user", "content": "hi"}]
body = {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": said}
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
headers = {"content-type": "application/json", "x-api-key": "k"}
urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)).read()
open("answer.txt", "w").write(open(sys.argv[1]).read())
open("gauge.py", "a").write("fixed = True\\n")
"""


def lines_of(path: Path, *instances: Any) -> Path:
    path.write_text("".join(f"{json.dumps(one)}\n" for one in instances), "utf-8")
    return path


class TestTasks:
    def test_four_fields_are_read_and_no_answer(self, tmp_path: Path):
        (task,) = load_tasks(lines_of(tmp_path / "t.jsonl", INSTANCE))
        assert task == Task(
            "acme__gauge-7", "acme/gauge", "0" * 40, str(INSTANCE["problem_statement"])
        )
        assert task.folder == "acme__gauge"
        assert "SECRET" not in repr(task)

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"problem_statement": None}, "line 1: problem_statement is missing"),
            ({"instance_id": "../../etc"}, "instance_id is '../../etc'"),
            ({"repo": "acme"}, "repo is 'acme'"),
            ({"base_commit": "--exec=x"}, "base_commit is '--exec=x'"),
        ],
    )
    def test_what_cannot_be_a_task_is_refused(
        self, tmp_path: Path, change: dict[str, Any], said: str
    ):
        with pytest.raises(TaskError, match=said):
            load_tasks(lines_of(tmp_path / "t.jsonl", {**INSTANCE, **change}))

    def test_a_line_that_is_no_json_is_named(self, tmp_path: Path):
        path = lines_of(tmp_path / "t.jsonl", INSTANCE)
        path.write_text(path.read_text("utf-8") + "\n{", "utf-8")
        with pytest.raises(TaskError, match="line 3: this is no JSON"):
            load_tasks(path)

    def test_the_same_task_twice_is_refused(self, tmp_path: Path):
        with pytest.raises(TaskError, match="line 2: acme__gauge-7 is there twice"):
            load_tasks(lines_of(tmp_path / "t.jsonl", INSTANCE, INSTANCE))

    def test_a_list_of_code_compression_bench_chooses(self, tmp_path: Path):
        ids = tmp_path / "tasks.json"
        ids.write_text(json.dumps({"name": "a", "n": 1, "instances": ["acme__gauge-8"]}), "utf-8")
        other = {**INSTANCE, "instance_id": "acme__gauge-8"}
        path = lines_of(tmp_path / "t.jsonl", INSTANCE, other)
        assert [task.id for task in load_tasks(path, load_ids(ids))] == ["acme__gauge-8"]
        with pytest.raises(TaskError, match=r"t\.jsonl has no acme__gauge-9"):
            load_tasks(path, ["acme__gauge-9"])
        ids.write_text("{}", "utf-8")
        with pytest.raises(TaskError, match="no list of instances"):
            load_ids(ids)


class Handler(BaseHTTPRequestHandler):
    """A provider that answers every request."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        usage = {"input_tokens": 10, "output_tokens": 2}
        said = {"type": "message", "model": "claude-sonnet-4-5", "content": [], "usage": usage}
        body = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def provider() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def repository(folder: Path) -> str:
    """A clone with one commit; its hash."""
    folder.mkdir(parents=True)
    (folder / "gauge.py").write_text("fixed = False\n", "utf-8")
    who = ("-c", "user.name=n", "-c", "user.email=e@example.org")
    for words in (("init", "-q"), ("add", "-A"), (*who, "commit", "-q", "-m", "first")):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    found = subprocess.run(
        ["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def test_a_made_up_task_runs_in_two_arms_and_not_again(
    tmp_path: Path,
    provider: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    commit = repository(tmp_path / "repos" / "acme__gauge")
    tasks = lines_of(tmp_path / "t.jsonl", {**INSTANCE, "base_commit": commit})
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT, "utf-8")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", provider)
    out = tmp_path / "out"
    given = [str(tasks), "--repos", str(tmp_path / "repos"), "--out", str(out)]
    command = [sys.executable, str(agent), "{problem_file}"]
    arms.main([*given, "--arm", "none", "safe", "--", *command])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["arm"], row["tasks"], row["patches"]) for row in rows] == [
        ("none", 1, 1),
        ("safe", 1, 1),
    ]
    assert [(row["requests"], row["errors"]) for row in rows] == [(1, 0), (1, 0)]
    for arm, mode in (("none", "observed"), ("safe", "compacted")):
        (line,) = (out / f"predictions-{arm}.jsonl").read_text("utf-8").splitlines()
        prediction = json.loads(line)
        assert prediction["instance_id"] == "acme__gauge-7"
        assert prediction["model_name_or_path"] == f"respool-{arm}"
        assert "+fixed = True" in prediction["model_patch"]
        assert "+The gauge shows {folder} in place" in prediction["model_patch"]
        store = SQLiteStore(out / arm / "respool.db", create=False)
        assert [record.mode for record in store.records(None)] == [mode]
        store.close()
    listed = subprocess.run(
        ["git", "-C", str(tmp_path / "repos" / "acme__gauge"), "worktree", "list"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert len(listed.stdout.splitlines()) == 1  # nothing is left behind
    agent.write_text("raise SystemExit(1)", "utf-8")
    arms.main([*given, "--arm", "none", "safe", "--", *command])
    assert len((out / "predictions-safe.jsonl").read_text("utf-8").splitlines()) == 1


@pytest.mark.parametrize("arm", arms.ARMS)
def test_arms_are_options_that_respool_takes(arm: str):
    from respool.cli.run import run

    options = arms.ARMS[arm]
    context = run.make_context("run", [*options, "--", "true"])
    changes = context.params["changes"]
    assert context.params["observe"] == (arm == "none")
    if arm == "placebo":
        assert changes == ('passes=["tidy_results", "stub_results"]', "miss_penalty=0")
        assert Policy(passes=("tidy_results", "stub_results"), miss_penalty=0)


def test_arms_come_in_another_order_for_each_task():
    tasks = [Task(f"t{n}", "a/b", "0" * 40, "p") for n in range(20)]
    runs = list(arms.runs_of(tasks, list(arms.ARMS)))
    firsts = {arm for _, arm in runs[:: len(arms.ARMS)]}
    assert firsts == set(arms.ARMS)
    assert runs == list(arms.runs_of(tasks, list(arms.ARMS)))


def test_without_a_command_mini_swe_agent_runs():
    _, command = arms.parse(["t.jsonl", "--repos", "r", "--out", "o", "--model", "openai/gpt-5"])
    assert command[0] == "mini"
    assert command[-2:] == ("-m", "openai/gpt-5")


class FakeArm:
    """The part of code-compression-bench's contract that an arm inherits."""

    kind = "proxy"


def test_the_arm_for_code_compression_bench_follows_its_contract(
    monkeypatch: pytest.MonkeyPatch, provider: str
):
    registered: dict[str, type] = {}

    def register(name: str) -> Any:
        return lambda made: registered.setdefault(name, made)

    contract = types.ModuleType("bench.arm")
    contract.__dict__.update(ProxyArm=FakeArm, register=register)
    monkeypatch.setitem(sys.modules, "bench.arm", contract)
    path = Path(arms.__file__).with_name("code_compression_bench.py")
    spec = importlib.util.spec_from_file_location("arms_respool", path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    arm: Any = registered["respool"]()
    monkeypatch.delenv("ARM_RESPOOL_URL", raising=False)
    assert arm.ready() == (False, "missing env: ARM_RESPOOL_URL")
    monkeypatch.setenv("ARM_RESPOOL_URL", "http://127.0.0.1:9/")
    assert arm.model_base_url() == "http://127.0.0.1:9"
    assert arm.ready()[0] is False
