"""Pydantic AI agents with Compaction: requests at the provider, and the agent's history."""

from __future__ import annotations

import asyncio
import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from respool import Policy, PolicyError
from respool.integrations.shadow import EXPAND_TOOL, FrameworkCompactor, RowChange
from tests.frameworks.agent_runs import (
    EAGER,
    FOLDING,
    MISSING,
    SIGNATURES,
    TOOLS,
    WIRES,
    Expanding,
    calls_of,
    epochs,
    judge,
    marks,
)
from tests.integrations.upstream import (
    FINAL,
    MARKER,
    Ask,
    Upstream,
    read_text,
    reads,
    upstream,
    writes,
)

pytestmark = pytest.mark.frameworks
pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent, Tool, ToolFailed, UsageLimits  # noqa: E402
from pydantic_ai.exceptions import ModelHTTPError  # noqa: E402
from pydantic_ai.messages import (  # noqa: E402
    BinaryContent,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
)

from respool.integrations import pydantic_ai as adapter  # noqa: E402
from respool.integrations.pydantic_ai import Compaction  # noqa: E402
from respool.integrations.requirement import MissingFramework, WrongUse, require  # noqa: E402

SNIPPET = Path(__file__).parents[2] / "docs" / "snippets" / "frameworks" / "pydantic_ai.py"
PROMPT = "Read the files, then say so."


def chat_model(wire: str, url: str, settings: dict[str, Any], *, reasoning: bool = False) -> Any:
    """A real model of Pydantic AI that talks to the scripted provider."""
    if wire == "anthropic":
        from anthropic import AsyncAnthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        if reasoning:
            settings["anthropic_thinking"] = {"type": "enabled", "budget_tokens": 1024}
        client = AsyncAnthropic(base_url=url, api_key="k", max_retries=0)
        provider = AnthropicProvider(anthropic_client=client)
        return AnthropicModel("claude-sonnet-4-5", provider=provider, settings=settings)
    if wire == "gemini":
        from pydantic_ai.models.google import GoogleModel
        from pydantic_ai.providers.google import GoogleProvider

        return GoogleModel(
            "gemini-3-pro", provider=GoogleProvider(api_key="k", base_url=url), settings=settings
        )
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
    kind = OpenAIResponsesModel if wire == "responses" else OpenAIChatModel
    if reasoning and wire == "responses":
        settings["openai_reasoning_effort"] = "low"
    return kind("gpt-5.2", provider=OpenAIProvider(openai_client=client), settings=settings)


def read_file(path: str) -> str:
    """Read a file."""
    if path == MISSING:
        raise ToolFailed(f"No such file: {path}. " + "Look elsewhere. " * 40)
    return read_text(path)


def write_file(path: str, content: str) -> str:
    """Write a file."""
    return f"{len(content)} characters written to {path}"


def run(
    wire: str,
    script: list[list[Ask]],
    policy: Policy | None,
    *,
    mode: str = "async",
    compaction: Compaction | None = None,
    **options: Any,
) -> tuple[Upstream, Any]:
    """One run of an agent: what the provider received, and the result with its messages."""
    settings = dict(options.pop("settings", {}))
    tools: list[Callable[..., Any]] = options.pop("tools", [read_file, write_file])
    if policy is not None:
        compaction = Compaction(policy, expand="refuse" not in options)
    with upstream(script, **options) as server:
        if isinstance(script, Expanding):
            script.server = server
        model = chat_model(wire, server.url, settings, reasoning=bool(options.get("reasoning")))
        agent = Agent(
            model,
            instructions="You read and write files.",
            tools=tools,
            capabilities=[compaction] if compaction else [],
            retries=3,
        )
        limits = UsageLimits(request_limit=200)
        if mode == "sync":
            return server, agent.run_sync(PROMPT, usage_limits=limits)
        if mode == "stream":
            return server, asyncio.run(_streamed(agent, limits))
        return server, asyncio.run(agent.run(PROMPT, usage_limits=limits))


_WITHOUT: dict[str, tuple[Upstream, Any]] = {}


def run_without(wire: str, script: list[list[Ask]], **options: Any) -> tuple[Upstream, Any]:
    """The same run without respool; several tests share it."""
    key = json.dumps([wire, script, options])
    if key not in _WITHOUT:
        _WITHOUT[key] = run(wire, script, None, **options)
    return _WITHOUT[key]


async def _streamed(agent: Any, limits: Any) -> Any:
    async with agent.run_stream(PROMPT, usage_limits=limits) as result:
        async for _ in result.stream_output():
            pass
        return result


def plain_messages(result: Any) -> list[Any]:
    """Messages of a result without what differs between two runs."""
    hidden = {"timestamp", "run_id", "usage", "provider_url", "conversation_id"}

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(one) for key, one in value.items() if key not in hidden}
        return [strip(one) for one in value] if isinstance(value, list) else value

    dumped = json.loads(ModelMessagesTypeAdapter.dump_json(result.all_messages()))
    ids: dict[str, str] = {}
    for message in result.all_messages():
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                ids[part.tool_call_id] = f"call-{len(ids)}"
    text = json.dumps(strip(dumped), sort_keys=True)
    for id, name in ids.items():
        text = text.replace(f'"{id}"', f'"{name}"')
    return json.loads(text)


@pytest.mark.parametrize(
    ("wire", "mode"), [*((wire, "async") for wire in WIRES), ("anthropic", "sync")]
)
def test_edits(wire: str, mode: str) -> None:
    plain, _ = run_without(wire, reads(12))
    server, result = run(wire, reads(12), EAGER, mode=mode)
    judge(server, plain)
    assert plain.breaks() == 0
    assert result.output == FINAL


@pytest.mark.parametrize("wire", WIRES)
def test_edits_of_the_default_policy_rarely_break_the_prefix(wire: str) -> None:
    server, _ = run(wire, reads(24), Policy(tools=TOOLS))
    assert server.problems() == []
    assert any(marks(server))
    assert server.breaks() <= 3


@pytest.mark.parametrize(
    ("wire", "reasoning"),
    [*((wire, False) for wire in WIRES), ("anthropic", True)],
)
def test_drops_superseded_writes(wire: str, reasoning: bool) -> None:
    plain, _ = run_without(wire, writes(5), reasoning=reasoning)
    server, _ = run(wire, writes(5), EAGER, reasoning=reasoning)
    judge(server, plain)
    assert calls_of(server.bodies[-1]) < calls_of(plain.bodies[-1])


@pytest.mark.parametrize("reasoning", [False, True])
@pytest.mark.parametrize("wire", WIRES)
def test_folds(wire: str, reasoning: bool) -> None:
    plain, _ = run_without(wire, reads(24), reasoning=reasoning)
    server, _ = run(wire, reads(24), FOLDING, reasoning=reasoning)
    judge(server, plain)
    assert server.breaks() == epochs(server)
    assert calls_of(server.bodies[-1]) < calls_of(plain.bodies[-1])


@pytest.mark.parametrize("wire", WIRES)
def test_parallel_calls(wire: str) -> None:
    plain, _ = run_without(wire, reads(10, 3))
    server, _ = run(wire, reads(10, 3), FOLDING)
    judge(server, plain)


@pytest.mark.parametrize("wire", WIRES)
def test_errors_of_tools(wire: str) -> None:
    script = reads(10)
    script[2] = [("read_file", {"path": MISSING}), *script[2]]
    script[3] = [("read_file", {"file": "no such argument"}), *script[3]]
    plain, whole = run_without(wire, script)
    server, result = run(wire, script, EAGER)
    judge(server, plain)
    parts = [part for message in result.all_messages() for part in message.parts]
    outcomes = {part.outcome for part in parts if isinstance(part, ToolReturnPart)}
    assert outcomes == {"success", "failed", "retried"}
    assert plain_messages(result) == plain_messages(whole)


@pytest.mark.parametrize("wire", WIRES)
def test_streaming(wire: str) -> None:
    plain, whole = run_without(wire, reads(12, 2), mode="stream", reasoning=True)
    server, result = run(wire, reads(12, 2), FOLDING, mode="stream", reasoning=True)
    judge(server, plain)
    assert plain_messages(result) == plain_messages(whole)


@pytest.mark.parametrize("wire", ["anthropic", "responses", "gemini"])
def test_reasoning_stays_where_its_calls_stay(wire: str) -> None:
    plain, _ = run_without(wire, reads(12), reasoning=True)
    server, _ = run(wire, reads(12), EAGER.replace(passes=("stub_results",)), reasoning=True)
    judge(server, plain)
    assert SIGNATURES[wire] in plain.raw[-1]
    for sent, whole in zip(server.raw, plain.raw, strict=True):
        assert sent.count(SIGNATURES[wire]) == whole.count(SIGNATURES[wire])


@pytest.mark.parametrize("wire", WIRES)
def test_stored_history_stays_whole(wire: str) -> None:
    _, whole = run_without(wire, writes(5) + reads(12, 2), reasoning=True)
    server, result = run(wire, writes(5) + reads(12, 2), FOLDING, reasoning=True)
    assert any(marks(server))
    assert MARKER not in str(result.all_messages())
    assert plain_messages(result) == plain_messages(whole)


@pytest.mark.parametrize(
    "settings",
    [
        {"openai_previous_response_id": "auto", "openai_store": True},
        {"openai_conversation_id": "conv_1"},
    ],
)
def test_stored_history_of_the_server_is_left_alone(settings: dict[str, Any]) -> None:
    plain, _ = run_without("responses", reads(8), settings=settings)
    compaction = Compaction(EAGER, expand=False)
    server, _ = run("responses", reads(8), None, compaction=compaction, settings=settings)
    assert server.bodies == plain.bodies
    assert server.bodies[-1].get("previous_response_id") or server.bodies[-1].get("conversation")
    assert compaction.compactor.savings.requests == 0


@pytest.mark.parametrize("mode", ["async", "stream"])
@pytest.mark.parametrize("wire", WIRES)
def test_refused_projection_is_sent_again_as_it_came(wire: str, mode: str) -> None:
    plain, _ = run_without(wire, reads(8), mode=mode)
    server, result = run(wire, reads(8), EAGER, mode=mode, refuse=400)
    assert server.refused
    assert not any(server.markers())
    assert server.bodies == plain.bodies
    assert FINAL in str(result.all_messages()[-1])


def test_refused_original_reaches_the_caller() -> None:
    """Every request of the second turn is refused: the provider's own error is raised."""
    script = [[("read_file", {"path": MARKER})]]
    with pytest.raises(ModelHTTPError, match="no such thing is accepted"):
        run("anthropic", script, EAGER, refuse=400, tools=[lambda path: path])


@pytest.mark.parametrize("wire", WIRES)
def test_expand_tool(wire: str) -> None:
    server, result = run(wire, Expanding(reads(8)), EAGER)
    assert server.problems() == []
    parts = [part for message in result.all_messages() for part in message.parts]
    found = [one for one in parts if isinstance(one, ToolReturnPart)][-1]
    assert found.tool_name == EXPAND_TOOL
    assert found.content in {read_text(f"/w/file_{at}.py") for at in range(6)}


def test_expand_tool_without_a_reference_says_so() -> None:
    _, result = run("anthropic", [[(EXPAND_TOOL, {"id": 3})]], EAGER)
    assert "Copy the reference from a marker" in str(result.all_messages())


def test_expand_tool_can_be_left_out() -> None:
    assert Compaction(expand=False).get_toolset() is None


def test_loops_are_advised_on_and_refused() -> None:
    made: list[str] = []

    def read_file(path: str) -> str:
        made.append(path)
        return "nothing new"

    script: list[list[Ask]] = [[("read_file", {"path": "/w/a"})] for _ in range(10)]
    compaction = Compaction(Policy(tools=TOOLS), loops=True)
    server, result = run("anthropic", script, None, compaction=compaction, tools=[read_file])
    assert server.problems() == []
    parts = [part for message in result.all_messages() for part in message.parts]
    texts = [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]
    assert texts[:2] == ["nothing new"] * 2
    assert texts[2].startswith("nothing new\n[respool noticed:")
    assert len(made) < len(texts) == 10
    assert "[respool" in texts[-1]
    assert "nothing new" not in texts[-1]


def test_loops_of_errors_are_advised_on() -> None:
    def write_file(path: str) -> str:
        raise ToolFailed(f"{path} is locked")

    def read_file(path: str) -> dict[str, str]:
        return {"found": path}

    script: list[list[Ask]] = [[("write_file", {"path": "/w/a"})] for _ in range(4)]
    script += [[("read_file", {"path": "/w/b"})] for _ in range(4)]
    compaction = Compaction(Policy(tools=TOOLS), loops=True)
    tools = [write_file, read_file]
    _, result = run("anthropic", script, None, compaction=compaction, tools=tools)
    parts = [part for message in result.all_messages() for part in message.parts]
    returns = [part for part in parts if isinstance(part, ToolReturnPart)]
    assert [part.outcome for part in returns] == ["failed"] * 4 + ["success"] * 4
    assert returns[0].content == "/w/a is locked"
    assert any("[respool noticed:" in str(part.content) for part in returns[:4])
    assert returns[4].content == {"found": "/w/b"}
    assert str(returns[6].content).startswith('{"found":"/w/b"}\n[respool noticed:')


def test_loops_are_left_alone_by_default() -> None:
    script: list[list[Ask]] = [[("read_file", {"path": "/w/a"})] for _ in range(10)]
    tool = Tool(lambda path: "nothing new", name="read_file")
    compaction = Compaction(Policy(tools=TOOLS))
    server, _ = run("anthropic", script, None, compaction=compaction, tools=[tool])
    assert "noticed" not in str(server.bodies[-1])


def test_edits_know_the_annotations_of_mcp_tools() -> None:
    """A read-only tool of an MCP server is cut; without annotations a tool counts as a write."""
    fresh = EAGER.replace(tools=Policy().tools)
    found = []
    for metadata in ({"annotations": {"readOnlyHint": True}}, None):
        tool = Tool(read_text, name="get_page", metadata=metadata)
        script: list[list[Ask]] = [[("get_page", {"path": "/p"})] for _ in range(8)]
        server, _ = run("anthropic", script, fresh, tools=[tool])
        assert server.problems() == []
        found.append(max(marks(server)))
    read_only, unknown = found
    assert read_only > unknown


def test_edits_leave_other_parts_the_same_objects() -> None:
    """New arguments, dropped calls and reasoning; media of a result stay."""
    thought, text = ThinkingPart("hm", signature="s", id="rs"), TextPart("said")
    calls = [ToolCallPart("write_file", "{}", id, id=f"fc_{id}") for id in ("a", "b", "c")]
    message = ModelResponse([thought, text, *calls])
    change = RowChange(
        dropped_calls=frozenset({0}), arguments={1: {"content": "y"}}, drops_reasoning=True
    )
    made = list(adapter._answer_parts(message, change))
    assert made[0] is text
    assert [(one.tool_call_id, one.args, one.id) for one in made[1:]] == [
        ("b", {"content": "y"}, None),
        ("c", "{}", None),
    ]
    assert message.parts == [thought, text, *calls]
    image = BinaryContent(b"x", media_type="image/png")
    result = ToolReturnPart("look", ["old", image], "a")
    [new] = adapter._request_parts(ModelRequest([result]), {0: RowChange(text="new")})
    assert new.content == ["new", image]


@pytest.mark.parametrize("mode", ["async", "stream"])
def test_streaming_usage_is_learnt(mode: str) -> None:
    compaction = Compaction(EAGER)
    server, _ = run("anthropic", reads(4), None, mode=mode, compaction=compaction)
    assert compaction.compactor.savings.requests == 5
    assert compaction.compactor.savings.usage.input == sum(len(raw) // 4 for raw in server.raw)
    assert not compaction._pending


def test_wrong_use() -> None:
    with pytest.raises(MissingFramework, match=r"pip install 'pydantic-ai-slim>=99'"):
        require("pydantic-ai-slim", "99")
    with pytest.raises(PolicyError, match="name of a preset"):
        Compaction("quick")
    with pytest.raises(WrongUse, match="leave out policy="):
        Compaction(EAGER, compactor=FrameworkCompactor())
    with pytest.raises(WrongUse, match="FrameworkCompactor"):
        Compaction(compactor="x")
    with pytest.raises(WrongUse, match="capabilities="):
        Compaction()([ModelRequest([])])


def test_edits_in_the_snippet(monkeypatch: pytest.MonkeyPatch) -> None:
    with upstream(reads(6)) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        found = runpy.run_path(str(SNIPPET))
        found["main"]()
    assert server.problems() == []
    assert len(server.bodies) == 7
    assert EXPAND_TOOL in str(server.bodies[0]["tools"])
