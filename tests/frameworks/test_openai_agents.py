"""The OpenAI Agents SDK with Compaction: requests at the provider, results and sessions."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from respool import Policy, PolicyError
from respool.integrations.requirement import MissingFramework, WrongUse, require
from respool.integrations.shadow import EXPAND_TOOL
from respool.markers import ADVICE_START
from respool.passes import OPT_IN, PASSES
from tests.frameworks.agent_runs import (
    EAGER,
    FOLDING,
    MISSING,
    SIGNATURES,
    Expanding,
    calls_of,
    judge,
    judge_loops,
    judge_reasoning,
    marks,
    repeats,
)
from tests.integrations.upstream import (
    FINAL,
    MARKER,
    Ask,
    read_text,
    reads,
    upstream,
    writes,
)

pytestmark = pytest.mark.frameworks
pytest.importorskip("agents")

from agents import (  # noqa: E402
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    SQLiteSession,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    Usage,
    WebSearchTool,
    function_tool,
    set_tracing_disabled,
)
from agents.run_config import CallModelData, ModelInputData  # noqa: E402
from openai import AsyncOpenAI, BadRequestError  # noqa: E402

from respool.integrations import openai_agents as adapter  # noqa: E402
from respool.integrations.openai_agents import Compaction  # noqa: E402

SNIPPET = Path(__file__).parents[2] / "docs" / "snippets" / "frameworks" / "openai_agents.py"
WIRES = ("responses", "chat")
set_tracing_disabled(True)


def tell_error(context: Any, error: Exception) -> str:
    """The words of a tool's error, which the SDK hides from the model otherwise."""
    return f"Error: {error}"


@function_tool(failure_error_function=tell_error)
def read_file(path: str) -> str:
    """Read a file."""
    if path == MISSING:
        raise FileNotFoundError(f"No such file: {path}. " + "Look elsewhere. " * 40)
    return read_text(path)


@function_tool
def write_file(path: str, content: str) -> str:
    """Write a file."""
    return f"{len(content)} characters written to {path}"


class Run:
    """One run of an agent: what the provider received, and all that the SDK keeps."""

    def __init__(
        self,
        wire: str,
        script: list[list[Ask]],
        policy: Policy | None,
        *,
        stream: bool = False,
        stateful: bool = False,
        loops: bool = False,
        **options: Any,
    ) -> None:
        self.compaction = None if policy is None else Compaction(policy, loops=loops)
        self.tools = [read_file, write_file]
        if self.compaction is not None and loops:
            self.tools = self.compaction.guard(self.tools)
        self.stored: list[Any] = []
        with upstream(script, **options) as self.server:
            if isinstance(script, Expanding):
                script.server = self.server
            self.result = asyncio.run(self._run(wire, stream, stateful))

    async def _run(self, wire: str, stream: bool, stateful: bool) -> Any:
        tools = list(self.tools)
        if self.compaction is not None:
            tools.append(self.compaction.expand_tool)
        session = SQLiteSession("s")
        async with AsyncOpenAI(
            base_url=f"{self.server.url}/v1", api_key="k", max_retries=0
        ) as client:
            kind = OpenAIResponsesModel if wire == "responses" else OpenAIChatCompletionsModel
            model = kind("gpt-5.2", client)
            settings = ModelSettings(response_include=["reasoning.encrypted_content"], store=False)
            agent = Agent(
                name="reader",
                instructions="You read and write files.",
                model=model,
                tools=tools,
                model_settings=settings if wire == "responses" else ModelSettings(),
            )
            more: dict[str, Any] = {"session": session, "max_turns": 100, "hooks": self.compaction}
            if stateful:
                more |= {"session": None, "auto_previous_response_id": True}
            more["run_config"] = RunConfig(call_model_input_filter=self.compaction)
            if stream:
                result = Runner.run_streamed(agent, "Read the files, then say so.", **more)
                async for _ in result.stream_events():
                    pass
            else:
                result = await Runner.run(agent, "Read the files, then say so.", **more)
            self.stored = await session.get_items()
            return result


PLAIN: dict[str, Run] = {}


def plain_run(wire: str, script: list[list[Ask]], **options: Any) -> Run:
    """A run without respool, to compare with; it is made once."""
    key = json.dumps([wire, script, options])
    if key not in PLAIN:
        PLAIN[key] = Run(wire, script, None, **options)
    return PLAIN[key]


@pytest.mark.parametrize("wire", WIRES)
def test_edits(wire: str) -> None:
    plain = plain_run(wire, reads(12))
    run = Run(wire, reads(12), EAGER)
    judge(run.server, plain.server)
    assert run.result.final_output == FINAL


def test_edits_learn_the_usage() -> None:
    run = Run("responses", reads(12), EAGER)
    assert run.compaction is not None
    savings = run.compaction.compactor.savings
    assert savings.requests == 13
    assert savings.usage.input == sum(len(raw) // 4 for raw in run.server.raw)
    assert savings.tokens_saved > 0


def test_edits_keep_untouched_items_the_same_objects() -> None:
    run = Run("responses", reads(12), None)
    items = run.result.to_input_list()
    agent = run.result.last_agent
    data = CallModelData(ModelInputData(list(items), "You read."), agent, None)
    found = asyncio.run(Compaction(EAGER)(data)).input
    changed = [item for item in found if not any(item is one for one in items)]
    assert len(found) == len(items)
    assert changed
    assert all(MARKER in item["output"] for item in changed)


@pytest.mark.parametrize("reasoning", [False, True])
@pytest.mark.parametrize("wire", WIRES)
def test_drops_superseded_writes(wire: str, reasoning: bool) -> None:
    plain = plain_run(wire, writes(6), reasoning=reasoning)
    run = Run(wire, writes(6), EAGER, reasoning=reasoning)
    judge(run.server, plain.server)
    assert calls_of(run.server.bodies[-1]) < calls_of(plain.server.bodies[-1])


@pytest.mark.parametrize("reasoning", [False, True])
@pytest.mark.parametrize("wire", WIRES)
def test_folds(wire: str, reasoning: bool) -> None:
    plain = plain_run(wire, reads(24), reasoning=reasoning)
    run = Run(wire, reads(24), FOLDING, reasoning=reasoning)
    judge(run.server, plain.server)
    assert calls_of(run.server.bodies[-1]) < calls_of(plain.server.bodies[-1])


@pytest.mark.parametrize("wire", WIRES)
def test_parallel_calls(wire: str) -> None:
    plain = plain_run(wire, reads(10, 3))
    run = Run(wire, reads(10, 3), FOLDING)
    judge(run.server, plain.server)


@pytest.mark.parametrize("wire", WIRES)
def test_errors_of_tools(wire: str) -> None:
    script = reads(10)
    script[2] = [("read_file", {"path": MISSING}), *script[2]]
    plain = plain_run(wire, script)
    run = Run(wire, script, EAGER)
    judge(run.server, plain.server)
    assert "No such file" in str(run.stored)


@pytest.mark.parametrize("wire", WIRES)
def test_streaming(wire: str) -> None:
    plain = plain_run(wire, reads(12, 2), stream=True, reasoning=True)
    run = Run(wire, reads(12, 2), FOLDING, stream=True, reasoning=True)
    judge(run.server, plain.server)
    assert run.stored == plain.stored
    assert run.compaction is not None
    assert run.compaction.compactor.savings.usage.input > 0


def test_reasoning_stays_where_its_calls_stay() -> None:
    """Without the pass that drops old reasoning, all of it is there."""
    names = [one.__name__ for one in PASSES if one.__name__ not in ("old_reasoning", *OPT_IN)]
    plain = plain_run("responses", reads(12), reasoning=True)
    run = Run("responses", reads(12), EAGER.replace(passes=names), reasoning=True)
    judge(run.server, plain.server)
    judge_reasoning(run.server, "responses")
    key = SIGNATURES["responses"]
    for sent, whole in zip(run.server.raw, plain.server.raw, strict=True):
        assert sent.count(key) == whole.count(key)


def test_reasoning_goes_with_what_binds_calls_to_it() -> None:
    plain = plain_run("responses", reads(12, 2), reasoning=True)
    run = Run("responses", reads(12, 2), EAGER, reasoning=True)
    judge(run.server, plain.server)
    judge_reasoning(run.server, "responses")
    key = SIGNATURES["responses"]
    assert run.server.raw[-1].count(key) < plain.server.raw[-1].count(key)


@pytest.mark.parametrize("wire", WIRES)
def test_stored_history_stays_whole(wire: str) -> None:
    script = writes(5) + reads(12, 2)
    plain = plain_run(wire, script, reasoning=True)
    run = Run(wire, script, FOLDING, reasoning=True)
    assert any(marks(run.server))
    assert MARKER not in json.dumps([run.stored, run.result.to_input_list()])
    assert run.stored == plain.stored
    assert run.result.to_input_list() == plain.result.to_input_list()


def test_stored_history_of_the_provider_is_left_alone() -> None:
    plain = plain_run("responses", reads(8, 2), stateful=True)
    run = Run("responses", reads(8, 2), EAGER.replace(trim_on_arrival=True), stateful=True)
    assert run.server.bodies[-1]["previous_response_id"]
    assert not any(marks(run.server))
    assert [b["input"] for b in run.server.bodies] == [b["input"] for b in plain.server.bodies]


def test_a_refusal_reaches_the_caller() -> None:
    """A filter cannot send again; respool.integrations.transport can."""
    with pytest.raises(BadRequestError):
        Run("responses", reads(8), EAGER, refuse=400)


@pytest.mark.parametrize("wire", WIRES)
def test_expand_tool(wire: str) -> None:
    run = Run(wire, Expanding(reads(12)), EAGER)
    assert run.server.problems() == []
    call = next(one for one in run.stored if one.get("name") == EXPAND_TOOL)
    result = next(
        one["output"]
        for one in run.stored
        if one.get("type") == "function_call_output" and one["call_id"] == call["call_id"]
    )
    assert result in {read_text(f"/w/file_{at}.py") for at in range(6)}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", WIRES)
def test_loops_are_advised_on_and_refused(wire: str, stream: bool) -> None:
    run = Run(wire, repeats(10), EAGER, stream=stream, loops=True)
    assert run.server.problems() == []
    outputs = [one for one in run.stored if one.get("type") == "function_call_output"]
    judge_loops([one["output"] for one in outputs], 10)
    assert run.result.final_output == FINAL


def test_loops_of_other_runs_are_no_loops() -> None:
    """Runs side by side, and one after the other, read the same file twice each."""
    compaction = Compaction(EAGER, loops=True)
    tools = compaction.guard([read_file])

    async def one_run() -> str:
        with upstream(repeats(2)) as server:
            async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="k") as client:
                model = OpenAIResponsesModel("gpt-5.2", client)
                agent = Agent(name="reader", model=model, tools=tools)
                config = RunConfig(call_model_input_filter=compaction)
                result = await Runner.run(agent, "Read it.", run_config=config)
                return str(result.to_input_list())

    async def all_runs() -> list[str]:
        return [await one_run(), await one_run(), *await asyncio.gather(one_run(), one_run())]

    found = asyncio.run(all_runs())
    assert len(found) == 4
    assert not any(ADVICE_START in one for one in found)
    assert compaction._guard is not None
    gc.collect()
    assert not compaction._guard._runs  # nothing is kept of runs that are over


def test_loops_of_agents_that_are_tools_are_their_own() -> None:
    """A sub-agent that is asked for three things reads one file for each of them."""
    compaction = Compaction(EAGER, loops=True)
    asks = [[("helper", {"input": f"Look for {name}."})] for name in ("a", "b", "c")]
    script = [one for ask in asks for one in (ask, *repeats(1), [])]

    async def run() -> tuple[Any, Any]:
        with upstream(script) as server:
            async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="k") as client:
                model = OpenAIResponsesModel("gpt-5.2", client)
                inner = Agent(name="inner", model=model, tools=compaction.guard([read_file]))
                helper = inner.as_tool("helper", "Looks for things.")
                agent = Agent(name="outer", model=model, tools=compaction.guard([helper]))
                return server, await Runner.run(agent, "Find all.")

    server, result = asyncio.run(run())
    assert len(server.raw) == 10
    assert ADVICE_START.encode() not in b"".join(server.raw)
    assert result.final_output == FINAL


def test_loops_keep_a_tool_as_it_is() -> None:
    """Other kinds of tools and guardrails stay; only strings can carry advice."""
    guardrail = ToolInputGuardrail(lambda data: ToolGuardrailFunctionOutput.allow())
    given = copy.copy(read_file)
    given.tool_input_guardrails = [guardrail]
    hosted = WebSearchTool()
    compaction = Compaction(EAGER, loops=True)
    made, same = compaction.guard([given, hosted])
    assert same is hosted
    assert given.tool_input_guardrails == [guardrail]
    assert made.tool_input_guardrails[0] is guardrail
    assert made.params_json_schema == given.params_json_schema
    context = SimpleNamespace(
        tool_name="read_file", tool_arguments='{"path": "/w/a.png"}', turn_input=[], usage=Usage()
    )
    data = SimpleNamespace(
        context=context,
        agent=SimpleNamespace(name="a"),
        output=[{"type": "image", "image_url": "data:"}],
    )
    found = [made.tool_output_guardrails[0].guardrail_function(data) for _ in range(4)]
    assert {one.behavior["type"] for one in found} == {"allow"}


def test_edits_know_the_annotations_of_tools() -> None:
    mcp_types = pytest.importorskip("mcp.types")
    tool = copy.copy(write_file)
    tool._mcp_annotations = mcp_types.ToolAnnotations(readOnlyHint=True)
    body = adapter._body(ModelInputData([], "You read."), Agent(name="a", tools=[tool]), "gpt-5.2")
    [definition] = json.loads(body)["tools"]
    assert definition["annotations"] == {"readOnlyHint": True}


def test_wrong_use() -> None:
    with pytest.raises(WrongUse, match="loops=True"):
        Compaction().guard([read_file])
    with pytest.raises(MissingFramework, match=r"pip install 'openai-agents>=99'"):
        require("openai-agents", "99")
    with pytest.raises(PolicyError, match="preset"):
        Compaction("no such preset")
    with pytest.raises(WrongUse, match="compactor="):
        Compaction(compactor=object())  # type: ignore[arg-type]
    with pytest.raises(WrongUse, match="call_model_input_filter"):
        asyncio.run(Compaction()([{"role": "user", "content": "hi"}]))


def test_edits_in_the_snippet(monkeypatch: pytest.MonkeyPatch) -> None:
    with upstream(reads(6)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        found = runpy.run_path(str(SNIPPET))
        found["main"]()
    assert server.problems() == []
    assert [tool["name"] for tool in server.bodies[0]["tools"]] == ["read_file", EXPAND_TOOL]
    assert found["compaction"].compactor.savings.requests == 7
