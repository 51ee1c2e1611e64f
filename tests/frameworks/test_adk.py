"""ADK agents with CompactionPlugin: requests at the provider, and the session's events."""

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
from tests.integrations.upstream import (
    FINAL,
    MARKER,
    Ask,
    Upstream,
    read_text,
    reads,
    upstream,
)

pytestmark = pytest.mark.frameworks
pytest.importorskip("google.adk")

from google.adk.agents import LlmAgent, RunConfig  # noqa: E402
from google.adk.agents.run_config import StreamingMode  # noqa: E402
from google.adk.apps import App  # noqa: E402
from google.adk.models import Gemini, LlmRequest  # noqa: E402
from google.adk.models.lite_llm import LiteLlm  # noqa: E402
from google.adk.runners import InMemoryRunner  # noqa: E402
from google.genai import types  # noqa: E402

from respool.integrations import adk as adapter  # noqa: E402
from respool.integrations.adk import CompactionPlugin  # noqa: E402

WIRES = ("gemini", "chat", "anthropic")
SNIPPET = Path(__file__).parents[2] / "docs" / "snippets" / "frameworks" / "adk.py"


def build_model(wire: str, url: str, reasoning: bool) -> Any:
    """A real model of ADK that talks to the scripted provider."""
    if wire == "gemini":
        name = "gemini-3-pro" if reasoning else "gemini-2.5-pro"  # 3 wants signed calls
        return Gemini(model=name, base_url=url, client_kwargs={"api_key": "k"})
    if wire == "chat":
        return LiteLlm("openai/gpt-5.2", api_base=f"{url}/v1", api_key="k")
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}} if reasoning else {}
    return LiteLlm("anthropic/claude-sonnet-4-5", api_base=url, api_key="k", **thinking)


def read_file(path: str) -> str | dict[str, str]:
    """Read a file."""
    if path == MISSING:
        return {"error": f"No such file: {path}. " + "Look elsewhere. " * 40}
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
    plugin: CompactionPlugin | None = None,
    tools: tuple[Any, ...] = (read_file, write_file),
    **options: Any,
) -> tuple[Upstream, list[Any]]:
    """One run of an agent: what the provider received, and the events of the session."""
    if policy is not None:
        plugin = CompactionPlugin(policy, expand="refuse" not in options)
    with upstream(script, **options) as server:
        if isinstance(script, Expanding):
            script.server = server
        agent = LlmAgent(
            name="reader",
            model=build_model(wire, server.url, bool(options.get("reasoning"))),
            instruction="You read and write files.",
            tools=list(tools),
        )
        app = App(name="tests", root_agent=agent, plugins=[plugin] if plugin else [])
        events = asyncio.run(_events(app, mode))
    return server, events


async def _events(app: Any, mode: str) -> list[Any]:
    runner = InMemoryRunner(app=app)
    sessions = runner.session_service
    session = await sessions.create_session(app_name="tests", user_id="u")
    asked = types.Content(role="user", parts=[types.Part(text="Read the files, then say so.")])
    config = RunConfig(streaming_mode=StreamingMode.SSE if mode == "stream" else StreamingMode.NONE)
    given = {"user_id": "u", "session_id": session.id, "new_message": asked, "run_config": config}
    if mode == "sync":
        await asyncio.to_thread(lambda: list(runner.run(**given)))
    else:
        async for _ in runner.run_async(**given):
            pass
    found = await sessions.get_session(app_name="tests", user_id="u", session_id=session.id)
    assert found is not None
    return found.events


def plain_events(events: list[Any]) -> Any:
    """The contents of events without what differs between two runs."""
    contents = [event.content.model_dump(mode="json", exclude_none=True) for event in events]
    ids: dict[str, str] = {}
    for event in events:
        for call in event.get_function_calls():
            ids[call.id] = f"call-{len(ids)}"
    text = json.dumps(contents)
    for id, name in ids.items():
        text = text.replace(id, name)
    return json.loads(text)


def results(events: list[Any]) -> list[Any]:
    """The results of tools, in order."""
    return [one for event in events for one in event.get_function_responses()]


@cache
def without(
    wire: str, script: str, reasoning: bool = False, mode: str = "async"
) -> tuple[Upstream, list[Any]]:
    """A run without respool, which several tests compare with."""
    server, events = run(wire, SCRIPTS[script], None, reasoning=reasoning, mode=mode)
    assert server.problems() == []
    return server, events


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("wire", WIRES)
def test_edits(wire: str, mode: str) -> None:
    plain, _ = without(wire, "reads")
    server, events = run(wire, SCRIPTS["reads"], EAGER, mode=mode)
    judge(server, plain)
    assert plain.breaks() == 0
    assert events[-1].content.parts[0].text == FINAL


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


@pytest.mark.parametrize("wire", ["anthropic", "gemini"])
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
    server, events = run(wire, SCRIPTS["failing"], EAGER)
    judge(server, plain)
    assert [one for one in results(events) if "error" in one.response]


@pytest.mark.parametrize("wire", WIRES)
def test_streaming(wire: str) -> None:
    plain, whole = without(wire, "all", reasoning=True, mode="stream")
    server, events = run(wire, SCRIPTS["all"], FOLDING, mode="stream", reasoning=True)
    judge(server, plain, most=0.8)
    assert plain_events(events) == plain_events(whole)


@pytest.mark.parametrize("wire", ["anthropic", "gemini"])
def test_reasoning_stays_where_its_calls_stay(wire: str) -> None:
    plain, _ = without(wire, "reads", reasoning=True)
    server, _ = run(wire, SCRIPTS["reads"], EAGER, reasoning=True)
    judge(server, plain)
    for sent, whole in zip(server.raw, plain.raw, strict=True):
        assert sent.count(SIGNATURES[wire]) == whole.count(SIGNATURES[wire])


def test_reasoning_of_a_dropped_call_leaves_a_step_that_is_accepted() -> None:
    calls = [types.FunctionCall(id=id, name="read_file", args={}) for id in "abc"]
    parts = [types.Part(function_call=call) for call in calls]
    parts[0].thought_signature = b"signed"
    change = RowChange(dropped_calls=frozenset({0}), arguments={2: {"path": "/w"}})
    made = list(adapter._answer_parts(parts, change))
    assert [part.function_call.args for part in made] == [{}, {"path": "/w"}]
    assert made[0].thought_signature == b"skip_thought_signature_validator"
    assert made[1].thought_signature is None
    assert parts[1].thought_signature is None


@pytest.mark.parametrize("wire", WIRES)
def test_stored_history_stays_whole(wire: str) -> None:
    _, whole = without(wire, "all", reasoning=True)
    server, events = run(wire, SCRIPTS["all"], FOLDING, reasoning=True)
    assert any(marks(server))
    assert MARKER not in str(events)
    assert plain_events(events) == plain_events(whole)


@pytest.mark.parametrize("mode", ["async", "stream"])
@pytest.mark.parametrize("wire", WIRES)
def test_refused_projection_is_sent_again_as_it_came(wire: str, mode: str) -> None:
    plain, _ = without(wire, "reads")
    server, events = run(wire, SCRIPTS["reads"], EAGER, mode=mode, refuse=400)
    assert server.refused
    assert not any(server.markers())
    assert [history(body) for body in server.bodies] == [history(body) for body in plain.bodies]
    assert events[-1].content.parts[0].text == FINAL


@pytest.mark.parametrize("wire", WIRES)
def test_expand_tool(wire: str) -> None:
    server, events = run(wire, Expanding(reads(12)), EAGER)
    assert server.problems() == []
    found = next(one for one in results(events) if one.name == EXPAND_TOOL)
    assert found.response["result"] in {read_text(f"/w/file_{at}.py") for at in range(6)}
    declared = json.dumps(server.bodies[0]["tools"])
    assert EXPAND_TOOL in declared
    assert "ref REF" in declared


@pytest.mark.parametrize("wire", WIRES)
def test_loops_are_advised_on_and_refused(wire: str) -> None:

    plugin = CompactionPlugin(Policy(tools=TOOLS), loops=True)
    server, events = run(wire, SCRIPTS["loop"], None, plugin=plugin)
    assert server.problems() == []
    texts = [json.dumps(one.response) for one in results(events)]
    assert "respool noticed" not in texts[1]
    assert "respool noticed" in texts[2]
    assert read_text("/w/file_0.py")[-30:] in results(events)[2].response["result"]
    assert "error" in results(events)[-1].response


def test_loops_know_calls_that_raise() -> None:
    def fail(path: str) -> str:
        """Read a file."""
        raise OSError(path)

    plugin = CompactionPlugin(loops=True)
    with pytest.raises(OSError, match="/w/x"):
        run("chat", [[("fail", {"path": "/w/x"})]], None, plugin=plugin, tools=(fail,))
    assert plugin._guard is not None
    assert len(plugin._guard._detectors.values()) == 1
    assert not plugin._guard._pending


def test_expand_tool_is_not_put_beside_tools_of_the_provider() -> None:
    plugin = CompactionPlugin()
    request = LlmRequest(previous_interaction_id="i")
    request.config.tools = [types.Tool(google_search=types.GoogleSearch())]
    asyncio.run(plugin.before_model_callback(callback_context=None, llm_request=request))
    assert EXPAND_TOOL not in request.tools_dict
    assert len(request.config.tools) == 1


def test_edits_leave_contents_of_the_server_alone() -> None:
    plugin = CompactionPlugin(EAGER, expand=False)
    content = types.Content(role="user", parts=[types.Part(text="go on")])
    request = LlmRequest(contents=[content], previous_interaction_id="i")
    asyncio.run(plugin.before_model_callback(callback_context=None, llm_request=request))
    assert request.contents[0] is content
    assert not plugin._pending


def test_edits_survive_a_fault_of_respool(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(adapter, "_read", fail)
    server, events = run("chat", reads(4), EAGER)
    assert len(server.raw) == 5
    assert events[-1].content.parts[0].text == FINAL


def test_streaming_usage_is_learnt() -> None:
    for wire in WIRES:
        plugin = CompactionPlugin(EAGER)
        run(wire, reads(4), None, mode="stream", plugin=plugin)
        assert plugin.compactor.savings.requests == 5
        assert plugin.compactor.savings.usage.prompt > 1000


def test_wrong_use() -> None:
    with pytest.raises(MissingFramework, match=r"pip install 'google-adk>=99'"):
        require("google-adk", "99")
    with pytest.raises(PolicyError, match="name of a preset"):
        CompactionPlugin("quick")
    with pytest.raises(WrongUse, match="leave out policy="):
        CompactionPlugin(EAGER, compactor=FrameworkCompactor())
    with pytest.raises(WrongUse, match=r"plugins=\[CompactionPlugin\(\)\]"):
        CompactionPlugin()(None, None)


def test_edits_in_the_snippet(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    with upstream(reads(6), reasoning=True) as server:
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server.url)
        monkeypatch.setenv("GEMINI_API_KEY", "k")
        found = runpy.run_path(str(SNIPPET))
        asyncio.run(found["main"]())
    assert server.problems() == []
    assert EXPAND_TOOL in json.dumps(server.bodies[0]["tools"])
    assert FINAL in capsys.readouterr().out


def history(body: dict[str, Any]) -> Any:
    """What differs between a streamed request and one that is not left out."""
    return {key: body.get(key) for key in ("messages", "contents", "tools", "model")}
