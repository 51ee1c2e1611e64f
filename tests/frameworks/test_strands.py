"""Strands agents with CompactionPlugin: requests at the provider, and the agent's messages."""

from __future__ import annotations

import asyncio
import json
import runpy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from respool import Policy, PolicyError
from respool.integrations.requirement import MissingFramework, WrongUse, require
from respool.integrations.shadow import EXPAND_TOOL, FrameworkCompactor, RowChange
from tests.frameworks.agent_runs import (
    EAGER,
    FOLDING,
    MISSING,
    SIGNATURES,
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
pytest.importorskip("strands")

import openai  # noqa: E402
from google import genai  # noqa: E402
from strands import Agent, tool  # noqa: E402
from strands.agent.conversation_manager import NullConversationManager  # noqa: E402
from strands.models.anthropic import AnthropicModel  # noqa: E402
from strands.models.gemini import GeminiModel  # noqa: E402
from strands.models.openai import OpenAIModel  # noqa: E402
from strands.models.openai_responses import OpenAIResponsesModel  # noqa: E402

from respool.integrations import strands as adapter  # noqa: E402
from respool.integrations.strands import CompactionPlugin  # noqa: E402

WIRES = ("anthropic", "chat", "gemini")
SNIPPET = Path(__file__).parents[2] / "docs" / "snippets" / "frameworks" / "strands.py"


def build_model(wire: str, url: str, reasoning: bool, **more: Any) -> Any:
    """A real model of Strands that talks to the scripted provider."""
    if wire == "anthropic":
        thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
        return AnthropicModel(
            client_args={"api_key": "k", "base_url": url, "max_retries": 0},
            model_id="claude-sonnet-4-5",
            max_tokens=4096,
            params=thinking if reasoning else {},
        )
    if wire == "gemini":
        name = "gemini-3-pro" if reasoning else "gemini-2.5-pro"  # 3 wants signed calls
        client = genai.Client(api_key="k", http_options={"base_url": url})
        return GeminiModel(client=client, model_id=name)
    client = {"api_key": "k", "base_url": f"{url}/v1", "max_retries": 0}
    if wire == "chat":
        return OpenAIModel(client=openai.AsyncOpenAI(**client), model_id="gpt-5.2")
    return OpenAIResponsesModel(client_args=client, model_id="gpt-5.2", **more)


@tool
def read_file(path: str) -> str:
    """Read a file."""
    if path == MISSING:
        raise OSError(f"No such file: {path}. " + "Look elsewhere. " * 40)
    return read_text(path)


@tool
def write_file(path: str, content: str) -> dict[str, Any]:
    """Write a file."""
    return {"status": "success", "content": [{"json": {"path": path, "written": len(content)}}]}


def run(
    wire: str,
    script: list[list[Ask]],
    policy: Policy | None,
    *,
    mode: str = "sync",
    plugin: CompactionPlugin | None = None,
    model: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[Upstream, list[Any]]:
    """One run of an agent: what the provider received, and the agent's messages."""
    if policy is not None:
        plugin = CompactionPlugin(policy, expand="refuse" not in options)
    own = {} if model else {"conversation_manager": NullConversationManager()}
    with upstream(script, **options) as server:
        if isinstance(script, Expanding):
            script.server = server
        agent = Agent(
            build_model(wire, server.url, bool(options.get("reasoning")), **(model or {})),
            tools=[read_file, write_file],
            system_prompt="You read and write files.",
            plugins=[plugin] if plugin else [],
            callback_handler=None,
            **own,
        )
        asked = "Read the files, then say so."
        if mode == "sync":
            agent(asked)
        elif mode == "async":
            asyncio.run(agent.invoke_async(asked))
        else:
            asyncio.run(_stream(agent, asked))
    return server, agent.messages


async def _stream(agent: Any, asked: str) -> None:
    assert [event async for event in agent.stream_async(asked) if "data" in event]


@cache
def without(wire: str, script: str, reasoning: bool = False) -> tuple[Upstream, list[Any]]:
    """A run without respool, which several tests compare with."""
    server, messages = run(wire, SCRIPTS[script], None, reasoning=reasoning)
    assert server.problems() == []
    return server, messages


def plain_messages(messages: list[Any]) -> Any:
    """Messages without what differs between two runs."""
    kept = [{key: one[key] for key in ("role", "content")} for one in messages]
    text = json.dumps(kept)
    uses = (block.get("toolUse") for one in messages for block in one["content"])
    for number, use in enumerate(filter(None, uses)):
        text = text.replace(use["toolUseId"], f"call-{number}")
    return json.loads(text)


def results(messages: list[Any]) -> list[Any]:
    """The results of tools, in order."""
    blocks = (block for one in messages for block in one["content"])
    return [block["toolResult"] for block in blocks if "toolResult" in block]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("wire", WIRES)
def test_edits(wire: str, mode: str) -> None:
    plain, _ = without(wire, "reads")
    server, messages = run(wire, SCRIPTS["reads"], EAGER, mode=mode)
    judge(server, plain)
    assert plain.breaks() == 0
    assert messages[-1]["content"] == [{"text": FINAL}]


@pytest.mark.parametrize("wire", WIRES)
def test_edits_of_the_default_policy_rarely_break_the_prefix(wire: str) -> None:
    server, _ = run(wire, reads(20), Policy(tools=TOOLS))
    assert server.problems() == []
    assert any(marks(server))
    assert server.breaks() <= 3


@pytest.mark.parametrize("wire", WIRES)
def test_drops_superseded_writes(wire: str) -> None:
    plain, _ = without(wire, "writes")
    server, _ = run(wire, SCRIPTS["writes"], EAGER)
    judge(server, plain)
    assert calls_of(server.bodies[-1]) < calls_of(plain.bodies[-1])


@pytest.mark.parametrize("wire", WIRES)
def test_folds(wire: str) -> None:
    plain, _ = without(wire, "all", reasoning=True)
    server, _ = run(wire, SCRIPTS["all"], FOLDING, reasoning=True)
    judge(server, plain, most=0.8)
    assert server.breaks() == epochs(server)
    assert calls_of(server.bodies[-1]) < calls_of(plain.bodies[-1])


@pytest.mark.parametrize("script", ["parallel", "both"])
@pytest.mark.parametrize("wire", WIRES)
def test_parallel_calls(wire: str, script: str) -> None:
    """Of a step only the first call is signed, and may be the one that goes."""
    plain, _ = without(wire, script, reasoning=True)
    policy = FOLDING if script == "parallel" else EAGER
    server, _ = run(wire, SCRIPTS[script], policy, reasoning=True)
    judge(server, plain, most=0.8)


@pytest.mark.parametrize("wire", WIRES)
def test_errors_of_tools(wire: str) -> None:
    plain, _ = without(wire, "failing")
    server, messages = run(wire, SCRIPTS["failing"], EAGER)
    judge(server, plain)
    assert [one for one in results(messages) if one["status"] == "error"]


@pytest.mark.parametrize("wire", WIRES)
def test_streaming(wire: str) -> None:
    plain, whole = without(wire, "all", reasoning=True)
    server, messages = run(wire, SCRIPTS["all"], FOLDING, mode="stream", reasoning=True)
    judge(server, plain, most=0.8)
    assert plain_messages(messages) == plain_messages(whole)


@pytest.mark.parametrize("wire", ["anthropic", "gemini"])
def test_reasoning_stays_where_its_calls_stay(wire: str) -> None:
    plain, _ = without(wire, "reads", reasoning=True)
    server, _ = run(wire, SCRIPTS["reads"], EAGER, reasoning=True)
    judge(server, plain)
    assert SIGNATURES[wire] in server.raw[-1]
    for sent, whole in zip(server.raw, plain.raw, strict=True):
        assert sent.count(SIGNATURES[wire]) == whole.count(SIGNATURES[wire])


def test_reasoning_of_a_dropped_call_leaves_a_step_that_is_accepted() -> None:
    uses = [{"toolUseId": id, "name": "read_file", "input": {}} for id in "abc"]
    uses[0]["reasoningSignature"] = "signed"
    blocks = [{"reasoningContent": {}}, *({"toolUse": use} for use in uses)]
    change = RowChange(
        dropped_calls=frozenset({0}), arguments={2: {"path": "/w"}}, drops_reasoning=True
    )
    made = [block["toolUse"] for block in adapter._answer_blocks(blocks, {None: change})]
    assert [use["input"] for use in made] == [{}, {"path": "/w"}]
    assert made[0]["reasoningSignature"] == adapter._UNSIGNED
    assert "reasoningSignature" not in made[1]
    assert uses[2]["input"] == {}


@pytest.mark.parametrize("wire", WIRES)
def test_stored_history_stays_whole(wire: str) -> None:
    _, whole = without(wire, "all", reasoning=True)
    server, messages = run(wire, SCRIPTS["all"], FOLDING, reasoning=True)
    assert any(marks(server))
    assert MARKER not in str(messages)
    assert plain_messages(messages) == plain_messages(whole)


def test_stored_history_of_the_server_is_left_alone() -> None:
    stateful = {"stateful": True}
    plain, _ = run("responses", reads(6), None, model=stateful)
    plugin = CompactionPlugin(EAGER, expand=False)
    server, _ = run("responses", reads(6), None, plugin=plugin, model=stateful)
    assert server.bodies == plain.bodies
    assert server.bodies[-1]["previous_response_id"]
    assert plugin.compactor.savings.requests == 0


@pytest.mark.parametrize("mode", ["sync", "stream"])
@pytest.mark.parametrize("wire", WIRES)
def test_refused_projection_is_sent_again_as_it_came(wire: str, mode: str) -> None:
    plain, _ = without(wire, "reads")
    server, messages = run(wire, SCRIPTS["reads"], EAGER, mode=mode, refuse=400)
    assert server.refused
    assert not any(server.markers())
    assert server.bodies == plain.bodies
    assert messages[-1]["content"] == [{"text": FINAL}]


@pytest.mark.parametrize("wire", WIRES)
def test_expand_tool(wire: str) -> None:
    server, messages = run(wire, Expanding(reads(12)), EAGER)
    assert server.problems() == []
    text = results(messages)[-1]["content"][0]["text"]
    assert text in {read_text(f"/w/file_{at}.py") for at in range(6)}
    declared = json.dumps(server.bodies[0]["tools"])
    assert EXPAND_TOOL in declared
    assert "20 characters" in declared


@pytest.mark.parametrize("wire", WIRES)
def test_loops_are_advised_on_and_refused(wire: str) -> None:
    plugin = CompactionPlugin(Policy(tools=TOOLS), loops=True)
    server, messages = run(wire, SCRIPTS["loop"], None, plugin=plugin)
    assert server.problems() == []
    found = results(messages)
    assert "respool noticed" not in str(found[1])
    assert found[2]["content"][0] == {"text": read_text("/w/file_0.py")}
    assert "respool noticed" in found[2]["content"][1]["text"]
    assert found[2]["status"] == "success"
    assert found[-1]["status"] == "error"
    assert "value__w_file_0_py" not in str(found[-1])


def test_edits_leave_media_in_a_result() -> None:
    image = {"image": {"format": "png", "source": {"bytes": b"x"}}}
    result = {"toolUseId": "a", "status": "success", "content": [{"text": "old"}, image]}
    (made,) = adapter._result_blocks([{"toolResult": result}], {0: RowChange(text="new")})
    assert made["toolResult"]["content"] == [{"text": "new"}, image]
    assert result["content"][0] == {"text": "old"}


def test_edits_survive_a_fault_of_respool(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(adapter, "_read", fail)
    server, messages = run("chat", reads(4), EAGER)
    assert len(server.raw) == 5
    assert messages[-1]["content"] == [{"text": FINAL}]


def test_streaming_usage_is_learnt() -> None:
    for wire in WIRES:
        plugin = CompactionPlugin(EAGER)
        run(wire, reads(4), None, mode="stream", plugin=plugin)
        assert plugin.compactor.savings.requests == 5
        assert plugin.compactor.savings.usage.prompt > 1000


def test_wrong_use() -> None:
    with pytest.raises(MissingFramework, match=r"pip install 'strands-agents>=99'"):
        require("strands-agents", "99")
    with pytest.raises(PolicyError, match="name of a preset"):
        CompactionPlugin("quick")
    with pytest.raises(WrongUse, match="leave out policy="):
        CompactionPlugin(EAGER, compactor=FrameworkCompactor())
    model = build_model("chat", "http://127.0.0.1", False)
    with pytest.raises(WrongUse, match=r"plugins=\[CompactionPlugin\(\)\]"):
        Agent(model, hooks=[CompactionPlugin()])


def test_edits_in_the_snippet(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    with upstream(reads(6)) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        runpy.run_path(str(SNIPPET))["main"]()
    assert server.problems() == []
    assert EXPAND_TOOL in json.dumps(server.bodies[0]["tools"])
    assert FINAL in capsys.readouterr().out
