"""`respool hook`: what it prints to be installed, and that the agent's call goes through."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from respool.cli import main
from respool.hooks.hook_command import AGENTS, AgentName, hook_words
from respool.hooks.snippets import hook_command

SOURCE = Path(__file__).parents[2] / "src"
EVENT = {
    "hook_event_name": "PostToolUse",
    "session_id": "s",
    "transcript_path": "/none.jsonl",
    "tool_name": "Bash",
    "tool_input": {"command": "make"},
    "tool_response": {"stdout": "\n".join(f"\x1b[31mgauge {n}\x1b[0m" for n in range(60))},
}


@pytest.mark.parametrize("agent", AGENTS)
def test_it_prints_what_makes_an_agent_call_it(agent: AgentName):
    options = ("--expand-tool", "mcp__respool__respool_expand")
    done = CliRunner().invoke(main, ["hook", agent, "--print", *options])
    assert done.exit_code == 0
    if agent in ("claude", "gemini"):
        hooks = json.loads(done.stdout)["hooks"]
        commands = {one["command"] for (entry,) in hooks.values() for one in entry["hooks"]}
        assert commands == {hook_command(agent, options)}
    else:
        assert f"const COMMAND = {json.dumps(hook_words(agent, options))}\n" in done.stdout
    assert done.stderr.startswith("For ~/.")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no resident process")
def test_the_command_itself_answers_as_the_hook_does():
    with tempfile.TemporaryDirectory(prefix="hk") as run:
        world = {"HOME": run, "XDG_RUNTIME_DIR": run, "PYTHONPATH": str(SOURCE)}
        done = subprocess.run(
            [sys.executable, "-m", "respool", "hook", "claude"],
            input=json.dumps(EVENT).encode(),
            env={**os.environ, **world, "RESPOOL_STORE": f"{run}/respool.db"},
            capture_output=True,
            check=True,
            timeout=30,
        )
        output = json.loads(done.stdout)["hookSpecificOutput"]["updatedToolOutput"]
        assert output["stdout"].startswith("gauge 0\ngauge 1\n")


@pytest.mark.parametrize(("data", "told"), [(json.dumps(EVENT), True), ("{", False)])
def test_on_windows_a_call_does_the_work_itself(data: str, told: bool, tmp_path: Path):
    program = "import sys; from respool.cli import main; sys.platform = 'win32'; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "hook", "claude"],
        input=data,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "RESPOOL_STORE": str(tmp_path / "r.db")},
        capture_output=True,
        check=True,
        timeout=30,
    )
    assert ("gauge 0\\ngauge 1" in done.stdout) is told
    assert done.stderr == ""


def test_an_unknown_agent_is_refused():
    done = CliRunner().invoke(main, ["hook", "nobody"])
    assert done.exit_code == 2
    assert "claude" in done.stderr
