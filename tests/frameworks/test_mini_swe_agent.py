"""mini-swe-agent with CompactionModel: a real agent that runs commands in a folder."""

from __future__ import annotations

import json
import os
import re
import runpy
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from respool import Policy, PolicyError
from respool.integrations.requirement import MissingFramework, WrongUse, require
from tests.frameworks.agent_runs import EAGER, FOLDING, SIGNATURES, calls_of, epochs, judge, marks
from tests.integrations.upstream import (
    FILES,
    MARKER,
    Ask,
    Upstream,
    history_of,
    read_text,
    upstream,
)

pytestmark = pytest.mark.frameworks
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # the list of prices is not fetched
os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")
os.environ["MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT"] = "1"
pytest.importorskip("minisweagent")

from minisweagent.agents.default import DefaultAgent  # noqa: E402
from minisweagent.environments.local import LocalEnvironment  # noqa: E402
from minisweagent.models import get_model  # noqa: E402

from respool.integrations.mini_swe_agent import CompactionModel  # noqa: E402

SNIPPET = Path(__file__).parents[2] / "docs" / "snippets" / "frameworks" / "mini_swe_agent.py"
CLASS = "respool.integrations.mini_swe_agent.CompactionModel"
MODELS = {"chat": ("openai/gpt-5.2", "/v1"), "anthropic": ("anthropic/claude-sonnet-4-5", "")}
WIRES = tuple(MODELS)
END = ("bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo done"})


def bash(*commands: str) -> list[Ask]:
    return [("bash", {"command": command}) for command in commands]


def cats(turns: int, parallel: int = 1) -> list[list[Ask]]:
    """A script that reads six files again and again, so many at once."""
    return [
        bash(*(f"cat file_{(turn * parallel + at) % FILES}.py" for at in range(parallel)))
        for turn in range(turns)
    ]


def breaks(server: Upstream) -> int:
    """Prefix breaks; LiteLLM writes a result with a cache breakpoint as a block, others as text."""
    histories = [
        [re.sub(r'\[{"text": ("(?:[^"\\]|\\.)*"), "type": "text"}\]', r"\1", row) for row in rows]
        for rows in map(history_of, server.bodies)
    ]
    return sum(after[: len(before)] != before for before, after in pairwise(histories))


class Run:
    """One run of an agent: what the provider received, and the agent's own messages."""

    def __init__(
        self,
        folder: Path,
        wire: str,
        script: Sequence[list[Ask]],
        policy: Policy | None,
        *,
        config: dict[str, Any] | None = None,
        runs: int = 1,
        **options: Any,
    ) -> None:
        for at in range(FILES):
            (folder / f"file_{at}.py").write_text(read_text(f"/w/file_{at}.py"))
        name, path = MODELS[wire]
        with upstream([*script, [END]] * runs, **options) as self.server:
            arguments = {"api_base": self.server.url + path, "api_key": "k", "max_retries": 0}
            if options.get("reasoning") and wire == "anthropic":
                thinking = {"type": "enabled", "budget_tokens": 1024}
                arguments |= {"thinking": thinking, "max_tokens": 4096}
            settings = {"model_kwargs": arguments, "cost_tracking": "ignore_errors"}
            if policy is not None:
                settings |= {"model_class": CLASS, "policy": policy, **(config or {})}
            self.model: Any = get_model(name, settings)
            self.agent = DefaultAgent(
                self.model,
                LocalEnvironment(cwd=str(folder)),
                system_template="You run commands.",
                instance_template="{{task}}",
                cost_limit=0,
                output_path=folder / "run.json",
            )
            for _ in range(runs):
                result = self.agent.run("Read the files, then say so.")
                assert result["exit_status"] == "Submitted"

    @property
    def stored(self) -> list[Any]:
        """The agent's messages without times and costs."""
        return [
            {key: value for key, value in one.items() if key != "extra"}
            for one in self.agent.messages
        ]


@pytest.mark.parametrize("wire", WIRES)
def test_edits(wire: str, tmp_path: Path) -> None:
    plain = Run(tmp_path, wire, cats(12), None)
    run = Run(tmp_path, wire, cats(12), EAGER)
    judge(run.server, plain.server)
    assert breaks(plain.server) == 0
    savings = run.model.compactor.savings
    assert savings.requests == 13
    assert savings.usage.input == sum(len(raw) // 4 for raw in run.server.raw)
    assert run.server.raw[-1].count(b"cache_control") == (wire == "anthropic")
    saved = json.loads((tmp_path / "run.json").read_text())
    assert saved["info"]["config"]["model_type"] == CLASS
    assert MARKER not in str(saved["messages"])


@pytest.mark.parametrize("wire", WIRES)
def test_edits_of_the_default_policy_rarely_break_the_prefix(wire: str, tmp_path: Path) -> None:
    run = Run(tmp_path, wire, cats(24), Policy())
    assert run.server.problems() == []
    assert any(marks(run.server))
    assert breaks(run.server) <= 3


@pytest.mark.parametrize("wire", WIRES)
def test_folds(wire: str, tmp_path: Path) -> None:
    plain = Run(tmp_path, wire, cats(18), None, reasoning=True)
    run = Run(tmp_path, wire, cats(18), FOLDING, reasoning=True)
    judge(run.server, plain.server)
    assert breaks(run.server) == epochs(run.server)
    assert calls_of(run.server.bodies[-1]) < calls_of(plain.server.bodies[-1])


@pytest.mark.parametrize("wire", WIRES)
def test_drops_superseded_writes(wire: str, tmp_path: Path) -> None:
    script: list[list[Ask]] = []
    for turn in range(5):
        text = read_text(f"/w/out_{turn}.py")
        script += [bash(f"cat > out.py <<'EOF'\n{text}\nEOF"), *cats(turn + 1)[turn:]]
    plain = Run(tmp_path, wire, script, None)
    run = Run(tmp_path, wire, script, EAGER)
    judge(run.server, plain.server)
    assert calls_of(run.server.bodies[-1]) < calls_of(plain.server.bodies[-1])


@pytest.mark.parametrize("wire", WIRES)
def test_parallel_calls_and_stored_history(wire: str, tmp_path: Path) -> None:
    plain = Run(tmp_path, wire, cats(8, 3), None)
    run = Run(tmp_path, wire, cats(8, 3), FOLDING)
    judge(run.server, plain.server)
    assert run.stored == plain.stored


def test_stored_history_stays_whole(tmp_path: Path) -> None:
    plain = Run(tmp_path, "anthropic", cats(12, 2), None, reasoning=True)
    run = Run(tmp_path, "anthropic", cats(12, 2), FOLDING, reasoning=True)
    assert any(marks(run.server))
    assert run.stored == plain.stored


@pytest.mark.parametrize("wire", WIRES)
def test_errors_of_commands(wire: str, tmp_path: Path) -> None:
    script = cats(10)
    script[2] = [*bash("cat missing.py"), *script[2]]
    plain = Run(tmp_path, wire, script, None)
    run = Run(tmp_path, wire, script, EAGER)
    judge(run.server, plain.server)
    assert "missing.py: No such file" in str(run.server.bodies[3])


def test_errors_of_format_are_answered_as_before(tmp_path: Path) -> None:
    script = [*cats(6), [("no_such_tool", {})], *cats(6)]
    plain = Run(tmp_path, "chat", script, None)
    run = Run(tmp_path, "chat", script, EAGER)
    judge(run.server, plain.server)
    assert run.stored == plain.stored
    assert "Unknown tool" in str(run.stored)


def test_reasoning_stays_where_its_calls_stay(tmp_path: Path) -> None:
    plain = Run(tmp_path, "anthropic", cats(12), None, reasoning=True)
    run = Run(tmp_path, "anthropic", cats(12), EAGER, reasoning=True)
    judge(run.server, plain.server)
    key = SIGNATURES["anthropic"]
    for sent, whole in zip(run.server.raw, plain.server.raw, strict=True):
        assert sent.count(key) == whole.count(key)
    assert run.server.raw[-1].count(key)


@pytest.mark.parametrize("wire", WIRES)
def test_refused_projection_is_sent_again_as_it_came(wire: str, tmp_path: Path) -> None:
    plain = Run(tmp_path, wire, cats(8), None)
    run = Run(tmp_path, wire, cats(8), EAGER, refuse=400)
    assert len(run.server.refused) == 1
    assert run.server.bodies == plain.server.bodies
    assert run.model.compactor.savings.refused == 1


def test_expand_by_a_command(tmp_path: Path) -> None:
    store = tmp_path / "originals.db"
    first = Run(tmp_path, "chat", cats(12), EAGER, config={"store": str(store)})
    command = f"{sys.executable} -m respool expand {first.server.refs()[0]} --store {store}"
    first.model.compactor.close()
    run = Run(tmp_path, "chat", [bash(command)], None)
    text = run.agent.messages[3]["extra"]["raw_output"]
    assert text == first.agent.messages[3]["content"]


def test_loops_are_advised_on(tmp_path: Path) -> None:
    """After a command has run: a model class cannot refuse it. A new run begins anew."""
    script = bash(*["cat file_0.py"] * 5)
    turns = [[one] for one in script]
    plain = Run(tmp_path, "chat", turns, EAGER)
    for runs in (1, 2):
        run = Run(tmp_path, "chat", turns, EAGER, config={"loops": True}, runs=runs)
        pairs = enumerate(zip(run.stored, plain.stored, strict=True))
        advised = [at for at, (one, other) in pairs if one["content"] != other["content"]]
        assert advised == [7, 11]
        advice = run.stored[7]["content"].removeprefix(plain.stored[7]["content"])
        assert "bash (file_0.py) was called" in advice


def test_wrong_use() -> None:
    with pytest.raises(MissingFramework, match=r"pip install 'mini-swe-agent>=99'"):
        require("mini-swe-agent", "99")
    with pytest.raises(PolicyError, match="name of a preset"):
        CompactionModel(model_name="openai/gpt-5.2", policy="quick")
    with pytest.raises(WrongUse, match="subclass of CompactionModelConfig"):
        CompactionModel(model_name="openai/gpt-5.2", config_class=dict)


def test_edits_in_the_snippet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MSWEA_COST_TRACKING", "ignore_errors")
    (tmp_path / "file_0.py").write_text(read_text("0"))
    with upstream([*[bash("cat file_0.py")] * 6, [END]]) as server:
        monkeypatch.setenv("ANTHROPIC_API_BASE", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        found = runpy.run_path(str(SNIPPET))
        found["main"]()
    assert server.problems() == []
    assert found["model"].compactor.savings.requests == 7
