"""The line that switches a tool off, set for the real agents: its definition is sent no more."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from respool.providers.tool_definitions import tool_definitions
from respool.tools.switch_off import switch_off_line
from tests.e2e import agents
from tests.e2e.agents import DRIVEN, SOURCE, Driven, drive, missing
from tests.transcripts.upstream import Answer

pytestmark = pytest.mark.e2e

_LINE = re.compile(
    r"in (?P<path>\S+?)(?: under \[(?P<table>\S+)\])?: (?P<setting>.*?)(?: \(with .*\))?"
)
EAGER_TOOLS = {"ENABLE_TOOL_SEARCH": "false"}  # Claude Code: nothing is deferred


def apply(line: str, home: Path, work: Path) -> None:
    """Set a line as its words say."""
    found = _LINE.fullmatch(line)
    assert found is not None, line
    path = home / found["path"][2:] if found["path"].startswith("~/") else work / found["path"]
    path.parent.mkdir(parents=True, exist_ok=True)
    known = path.read_text() if path.exists() else ""
    heading = f"[{found['table']}]\n"
    if found["table"] and heading in known:
        path.write_text(known.replace(heading, f"{heading}{found['setting']}\n"))
    elif found["table"]:
        path.write_text(f"{known}\n{heading}{found['setting']}\n")
    else:  # above all tables
        path.write_text(f"{found['setting']}\n{known}")


def defined(
    one: Driven, folder: Path, set_up: Callable[[Path, Path], None] = lambda home, work: None
) -> set[str]:
    """The tools that an agent's requests define."""

    def both(home: Path, url: str) -> None:
        one.set_up(home, url)
        set_up(home, home.parent / "work")

    came = drive(replace(one, set_up=both), folder, turns=1, through=False)
    assert came.main, came.said
    return set().union(*(_names(taken.body) for taken in (*came.main, *came.others)))


def _names(body: dict[str, Any]) -> set[str]:
    hosted = {tool["type"] for tool in body.get("tools", []) if "type" in tool}
    return {*tool_definitions(body), *(hosted & {"web_search"})}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "script", lambda _one, _turns: [Answer("Gauge 7 is the highest.")])


@pytest.mark.parametrize(
    ("name", "agent", "tools"),
    [
        ("claude", "Claude Code", ("Workflow", "Agent", "Skill", "WebSearch")),
        ("codex", "Codex", ("web_search", "get_goal", "spawn_agent", "view_image")),
        ("opencode", "opencode", ("webfetch", "task", "apply_patch")),
        ("gemini", "Gemini CLI", ("google_web_search", "write_todos")),
    ],
)
def test_a_tool_that_is_switched_off_is_defined_no_more(
    name: str, agent: str, tools: tuple[str, ...], tmp_path: Path
) -> None:
    if reason := missing(name):
        pytest.skip(reason)
    known = DRIVEN[name]
    more = EAGER_TOOLS if name == "claude" else {}
    one = replace(known, variables=lambda url: {**known.variables(url), **more})
    before = defined(one, tmp_path / "before")
    assert set(tools) <= before
    for tool in tools:
        line = switch_off_line(agent, tool)
        after = defined(one, tmp_path / tool, lambda home, work, line=line: apply(line, home, work))
        told = {other for other in before if other in line}
        assert before - after == {tool} | told, line


def test_what_loads_deferred_tools_is_not_switched_off(tmp_path: Path) -> None:
    if reason := missing("claude"):
        pytest.skip(reason)
    assert "ToolSearch" in defined(DRIVEN["claude"], tmp_path)
    assert switch_off_line("Claude Code", "ToolSearch") == ""


def test_a_server_of_codex_is_switched_off(tmp_path: Path) -> None:
    if reason := missing("codex"):
        pytest.skip(reason)
    server = f'command = "{sys.executable}"\nargs = ["-m", "respool", "mcp"]\n'
    store = json.dumps(str(tmp_path / "respool.db"))
    world = f'env = {{PYTHONPATH = "{SOURCE}", RESPOOL_STORE = {store}}}\n'

    def with_server(home: Path, _work: Path) -> None:
        with (home / ".codex" / "config.toml").open("a") as file:
            file.write(f"[mcp_servers.tracker]\n{server}{world}")

    def without(home: Path, work: Path) -> None:
        with_server(home, work)
        apply(switch_off_line("codex", "mcp__tracker__respool_expand"), home, work)

    plain = defined(DRIVEN["codex"], tmp_path / "plain")
    served = defined(DRIVEN["codex"], tmp_path / "served", with_server)
    assert served > plain
    assert defined(DRIVEN["codex"], tmp_path / "off", without) == plain
