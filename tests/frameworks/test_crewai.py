"""CrewAI agents with CompactionInterceptor: requests at the provider, and the agent's messages."""

from __future__ import annotations

import asyncio
import json
import os
import runpy
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from respool import Policy, PolicyError
from respool.integrations.request_compactor import RequestCompactor
from respool.integrations.requirement import MissingFramework, WrongUse, require
from respool.integrations.shadow import EXPAND_TOOL
from tests.frameworks.agent_runs import (
    EAGER,
    FOLDING,
    MISSING,
    TOOLS,
    Expanding,
    calls_of,
    epochs,
    judge,
    marks,
)
from tests.frameworks.scripts import SCRIPTS
from tests.integrations.upstream import FINAL, MARKER, Ask, Upstream, read_text, reads, upstream

pytestmark = pytest.mark.frameworks
if find_spec("crewai") is None:
    pytest.skip("crewai is not installed", allow_module_level=True)
os.environ |= {  # before the import: it reads them, and would report to its makers
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
    "CREWAI_STORAGE_DIR": tempfile.mkdtemp(prefix="crewai-"),
}

from crewai import LLM, Agent, Crew, Task  # noqa: E402
from crewai.hooks import get_before_tool_call_hooks  # noqa: E402
from crewai.tools import tool  # noqa: E402
from crewai.utilities import agent_utils  # noqa: E402

from respool.integrations.crewai import CompactionInterceptor  # noqa: E402

WIRES = ("anthropic", "chat", "responses")
SNIPPET = Path(__file__).parents[2] / "docs" / "snippets" / "frameworks" / "crewai.py"


def build_model(wire: str, url: str, **more: Any) -> Any:
    """A real model of CrewAI that talks to the scripted provider."""
    if wire == "anthropic":
        return LLM(model="anthropic/claude-sonnet-4-5", base_url=url, api_key="k", **more)
    api = "responses" if wire == "responses" else "completions"
    return LLM(model="openai/gpt-5.2", base_url=f"{url}/v1", api_key="k", api=api, **more)


@tool
def read_file(path: str) -> str:
    """Read a file."""
    if path == MISSING:
        raise OSError(f"No such file: {path}. " + "Look elsewhere. " * 40)
    return read_text(path)


@tool
def write_file(path: str, content: str) -> str:
    """Write a file."""
    return f"{len(content)} characters written to {path}"


def run(
    wire: str,
    script: list[list[Ask]],
    policy: Policy | None,
    *,
    mode: str = "sync",
    interceptor: CompactionInterceptor | None = None,
    **options: Any,
) -> tuple[Upstream, list[Any], str]:
    """One run of a crew: what the provider received, the agent's messages, and the output."""
    if policy is not None:
        interceptor = CompactionInterceptor(policy)
    expand = [interceptor.expand_tool] if isinstance(script, Expanding) and interceptor else []
    more: dict[str, Any] = {"stream": True} if mode == "stream" else {}
    with upstream(script, **options) as server:
        if isinstance(script, Expanding):
            script.server = server
        agent = Agent(
            role="Reader",
            goal="Read files",
            backstory="You read carefully.",
            llm=build_model(wire, server.url, interceptor=interceptor, **more),
            tools=[read_file, write_file, *expand],
            max_iter=60,
        )
        task = Task(description="Read the files.", expected_output="A sentence.", agent=agent)
        crew = Crew(agents=[agent], tasks=[task])
        output = asyncio.run(crew.akickoff()) if mode == "async" else crew.kickoff()
    executor: Any = agent.agent_executor
    return server, executor.messages, output.raw


@cache
def without(wire: str, script: str, mode: str = "sync") -> tuple[Upstream, list[Any]]:
    """A run without respool, which several tests compare with."""
    server, messages, _ = run(wire, SCRIPTS[script], None, mode=mode)
    assert server.problems() == []
    return server, messages


def plain_messages(messages: list[Any]) -> Any:
    """Messages as JSON."""
    return json.loads(json.dumps(messages, default=str))


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("wire", WIRES)
def test_edits(wire: str, mode: str) -> None:
    plain, _ = without(wire, "reads")
    server, _, output = run(wire, SCRIPTS["reads"], EAGER, mode=mode)
    judge(server, plain)
    assert plain.breaks() == 0
    assert output == FINAL


@pytest.mark.parametrize("wire", ["anthropic", "chat"])
def test_edits_of_the_default_policy_rarely_break_the_prefix(wire: str) -> None:
    server, _, _ = run(wire, reads(20), Policy(tools=TOOLS))
    assert server.problems() == []
    assert any(marks(server))
    assert server.breaks() <= 3


@pytest.mark.parametrize("wire", WIRES)
def test_drops_superseded_writes(wire: str) -> None:
    plain, _ = without(wire, "writes")
    server, _, _ = run(wire, SCRIPTS["writes"], EAGER)
    judge(server, plain)
    assert calls_of(server.bodies[-1]) < calls_of(plain.bodies[-1])


@pytest.mark.parametrize("wire", WIRES)
def test_folds(wire: str) -> None:
    plain, _ = without(wire, "all")
    server, _, _ = run(wire, SCRIPTS["all"], FOLDING)
    judge(server, plain, most=0.8)
    assert server.breaks() == epochs(server)
    assert calls_of(server.bodies[-1]) < calls_of(plain.bodies[-1])


@pytest.mark.parametrize("wire", WIRES)
def test_parallel_calls(wire: str) -> None:
    plain, _ = without(wire, "both")
    server, _, _ = run(wire, SCRIPTS["both"], EAGER)
    judge(server, plain, most=0.8)


@pytest.mark.parametrize("wire", ["anthropic", "chat"])
def test_errors_of_tools(wire: str) -> None:
    plain, _ = without(wire, "failing")
    server, messages, _ = run(wire, SCRIPTS["failing"], EAGER)
    judge(server, plain)
    assert "No such file: /w/missing.py" in str(messages)


@pytest.mark.parametrize("wire", ["anthropic", "chat"])
def test_streaming(wire: str) -> None:
    plain, whole = without(wire, "reads", mode="stream")
    server, messages, output = run(wire, SCRIPTS["reads"], EAGER, mode="stream")
    judge(server, plain)
    assert server.bodies[0]["stream"] is True
    assert plain_messages(messages) == plain_messages(whole)
    assert output == FINAL


@pytest.mark.parametrize("wire", WIRES)
def test_stored_history_stays_whole(wire: str) -> None:
    _, whole = without(wire, "all")
    server, messages, _ = run(wire, SCRIPTS["all"], FOLDING)
    assert any(marks(server))
    assert MARKER not in str(messages)
    assert plain_messages(messages) == plain_messages(whole)


@pytest.mark.parametrize("mode", ["sync", "async", "stream"])
@pytest.mark.parametrize("wire", ["anthropic", "chat"])
def test_refused_projection_is_sent_again_as_it_came(wire: str, mode: str) -> None:
    plain, _ = without(wire, "reads", mode="stream" if mode == "stream" else "sync")
    interceptor = CompactionInterceptor(EAGER)
    server, _, output = run(
        wire, SCRIPTS["reads"], None, mode=mode, interceptor=interceptor, refuse=400
    )
    # CrewAI counts Anthropic's tokens before each request, and the server refuses that as well.
    assert len(server.refused) == (2 if wire == "anthropic" else 1)
    assert not any(server.markers())
    assert server.bodies == plain.bodies
    assert interceptor.compactor.savings.refused == 1
    assert output == FINAL


@pytest.mark.parametrize("wire", ["anthropic", "chat"])
def test_expand_tool(wire: str) -> None:
    server, messages, _ = run(wire, Expanding(reads(12)), EAGER)
    assert server.problems() == []
    contents = [one.get("content") for one in messages if one["role"] == "tool"]
    assert contents[-1] in {read_text(f"/w/file_{at}.py") for at in range(6)}
    assert EXPAND_TOOL in json.dumps(server.bodies[0]["tools"])


@pytest.mark.parametrize("wire", ["anthropic", "chat"])
def test_loops_are_advised_on_and_refused(wire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_utils, "MAX_REPEATED_TOOL_CALLS", 100)  # CrewAI stops the run
    interceptor = CompactionInterceptor(Policy(tools=TOOLS), loops=True)
    try:
        server, messages, _ = run(wire, SCRIPTS["loop"], None, interceptor=interceptor)
    finally:
        interceptor.close()
    assert server.problems() == []
    found = [str(one.get("content")) for one in messages if one["role"] == "tool"]
    assert "respool noticed" not in found[1]
    assert found[2].startswith(read_text("/w/file_0.py"))
    assert "respool noticed" in found[2]
    assert "value__w_file_0_py" not in found[-1]


def test_loops_of_other_models_are_left_alone() -> None:
    before = get_before_tool_call_hooks()
    other = CompactionInterceptor(Policy(tools=TOOLS), loops=True)
    try:
        _, messages, _ = run("chat", SCRIPTS["loop"][:4], Policy(tools=TOOLS))
    finally:
        other.close()
    assert "respool noticed" not in str(messages)
    assert get_before_tool_call_hooks() == before


@pytest.mark.parametrize(
    ("wire", "mode"),
    [("responses", "sync"), ("anthropic", "stream"), ("chat", "stream"), ("chat", "async")],
)
def test_streaming_usage_is_learnt(wire: str, mode: str) -> None:
    interceptor = CompactionInterceptor(EAGER)
    run(wire, reads(4), None, mode=mode, interceptor=interceptor)
    assert interceptor.compactor.savings.requests == 5
    assert interceptor.compactor.savings.usage.prompt > 1000


def test_wrong_use() -> None:
    with pytest.raises(MissingFramework, match=r"pip install 'crewai>=99'"):
        require("crewai", "99")
    with pytest.raises(PolicyError, match="name of a preset"):
        CompactionInterceptor("quick")
    with pytest.raises(WrongUse, match="leave out policy="):
        CompactionInterceptor(EAGER, compactor=RequestCompactor())
    with pytest.raises(WrongUse, match="RequestCompactor, or None"):
        CompactionInterceptor(compactor="x")
    with pytest.raises(WrongUse, match=r"LLM\(…, interceptor=CompactionInterceptor\(\)\)"):
        CompactionInterceptor().on_outbound({"messages": []})


def test_edits_in_the_snippet(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    with upstream(reads(6)) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        runpy.run_path(str(SNIPPET))["main"]()
    assert server.problems() == []
    assert EXPAND_TOOL in json.dumps(server.bodies[0]["tools"])
    assert FINAL in capsys.readouterr().out
