"""Claude Code with an MCP server whose tools it defers: markers name one, and it can be loaded."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from respool.markers import find_marker
from tests.e2e import agents
from tests.e2e.agents import DRIVEN, SOURCE, TASK, drive, missing
from tests.e2e.test_agents import EARLY, extends, holds
from tests.support.client_requests import leaves
from tests.transcripts.upstream import Answer

pytestmark = pytest.mark.e2e

NAME = "mcp__respool__respool_expand"
LOADED_AT = 11  # the call of the model's that loads its definition


def fetch_tools(body: dict[str, Any]) -> list[str | None]:
    """The tools that the markers of a request name, where they name no other copy."""
    markers = (find_marker(leaf) for _, leaf in leaves(body) if isinstance(leaf, str))
    return [one.fetch_tool for one in markers if one is not None and " in the " not in str(one)]


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-sonnet-4-5"])
def test_markers_name_a_deferred_tool_before_and_after_it_is_loaded(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if reason := missing("claude"):
        pytest.skip(reason)
    server = {
        "command": sys.executable,
        "args": ["-m", "respool", "mcp"],
        "env": {"PYTHONPATH": str(SOURCE), "RESPOOL_STORE": str(tmp_path / "respool.db")},
    }
    settings = tmp_path / "mcp.json"
    settings.write_text(json.dumps({"mcpServers": {"respool": server}}))
    words = ("-p", TASK, "--model", model, "--allowedTools", "Bash", "--mcp-config", str(settings))
    script = agents.script

    def with_search(*given: Any) -> list[Answer]:
        answers = script(*given)
        query = {"query": f"select:{NAME}", "max_results": 1}
        answers[LOADED_AT] = Answer("I load it.", (("ToolSearch", query),), "A tool may help.")
        return answers

    monkeypatch.setattr(agents, "script", with_search)
    came = drive(replace(DRIVEN["claude"], words=words), tmp_path / "session", *EARLY)
    assert came.status == 0, came.said
    holds(came, "anthropic")
    assert extends(came, "anthropic") >= 5
    defined = [NAME in {tool["name"] for tool in taken.body["tools"]} for taken in came.main]
    assert defined == [at > LOADED_AT for at in range(len(defined))]
    named = [fetch_tools(taken.body) for taken in came.main]
    assert any(named[: LOADED_AT + 1])
    assert {tool for tools in named for tool in tools} == {NAME}
    loaded = came.records[LOADED_AT + 1]
    assert loaded.terms == came.records[LOADED_AT].terms, "it is no change of tools"
    assert loaded.prefix_break != "changed"
