"""LangChain agents with CompactionMiddleware: requests at the provider, and the agent's state."""

from __future__ import annotations

import asyncio
import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from respool import Policy, PolicyError
from respool.integrations.shadow import EXPAND_TOOL, FrameworkCompactor, RowChange
from respool.markers import ADVICE_START
from respool.passes import OPT_IN, PASSES
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
    judge_loops,
    judge_reasoning,
    marks,
    repeats,
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
pytest.importorskip("langchain")

from langchain.agents import create_agent  # noqa: E402
from langchain.agents.middleware import AgentMiddleware  # noqa: E402
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage  # noqa: E402
from langchain_core.tools import ToolException, tool  # noqa: E402
from langgraph.checkpoint.memory import InMemorySaver  # noqa: E402
from langgraph.types import Command  # noqa: E402

from respool.integrations import langchain as adapter  # noqa: E402
from respool.integrations.langchain import CompactionMiddleware  # noqa: E402
from respool.integrations.requirement import MissingFramework, WrongUse, require  # noqa: E402

PLAIN: dict[str, tuple[Upstream, list[Any]]] = {}
SNIPPET = Path(__file__).parents[2] / "docs" / "snippets" / "frameworks" / "langchain.py"


def chat_model(wire: str, url: str, **more: Any) -> Any:
    """A real chat model of LangChain that talks to the scripted provider."""
    if wire == "anthropic":
        module = pytest.importorskip("langchain_anthropic")
        if more.pop("reasoning", False):
            more["thinking"] = {"type": "enabled", "budget_tokens": 1024}
        return module.ChatAnthropic(
            model="claude-sonnet-4-5", base_url=url, api_key="k", max_retries=0, **more
        )
    if wire == "gemini":
        module = pytest.importorskip("langchain_google_genai")
        more.pop("reasoning", None)
        return module.ChatGoogleGenerativeAI(
            model="gemini-3-pro", base_url=url, api_key="k", max_retries=0, **more
        )
    module = pytest.importorskip("langchain_openai")
    if more.pop("reasoning", False) and wire == "responses":
        more |= {"include": ["reasoning.encrypted_content"], "reasoning": {"effort": "low"}}
    return module.ChatOpenAI(
        model="gpt-5.2",
        base_url=f"{url}/v1",
        api_key="k",
        max_retries=0,
        use_responses_api=wire == "responses",
        **more,
    )


@tool
def read_file(path: str) -> str:
    """Read a file."""
    if path == MISSING:
        raise ToolException(f"No such file: {path}. " + "Look elsewhere. " * 40)
    return read_text(path)


@tool
def write_file(path: str, content: str) -> str:
    """Write a file."""
    return f"{len(content)} characters written to {path}"


@tool
def read_notes(path: str) -> str:
    """Read notes."""
    return read_text(path)


read_file.handle_tool_error = True


def run(
    wire: str,
    script: list[list[Ask]],
    policy: Policy | None,
    *,
    mode: str = "sync",
    middleware: CompactionMiddleware | None = None,
    **options: Any,
) -> tuple[Upstream, list[Any]]:
    """One run of an agent: what the provider received, and the messages in the agent's state.

    Runs without respool, to compare with, are made once.
    """
    if policy is None and middleware is None:
        key = json.dumps([wire, script, mode, options])
        if key not in PLAIN:
            PLAIN[key] = _run(wire, script, mode, None, **options)
        return PLAIN[key]
    if policy is not None:
        middleware = CompactionMiddleware(policy, expand="refuse" not in options)
    return _run(wire, script, mode, middleware, **options)


def _run(
    wire: str, script: list[list[Ask]], mode: str, middleware: Any, **options: Any
) -> tuple[Upstream, list[Any]]:
    reasoning = bool(options.get("reasoning"))
    model_options = dict(options.pop("model", {}))
    with upstream(script, **options) as server:
        if isinstance(script, Expanding):
            script.server = server
        model = chat_model(wire, server.url, reasoning=reasoning, **model_options)
        agent = create_agent(
            model,
            [read_file, write_file],
            system_prompt="You read and write files.",
            middleware=[middleware] if middleware else [],
        )
        given = {"messages": [("user", "Read the files, then say so.")]}
        config = {"recursion_limit": 200}
        if mode == "async":
            state = asyncio.run(agent.ainvoke(given, config))
        elif mode == "stream":
            *_, state = (
                chunk
                for kind, chunk in agent.stream(given, config, stream_mode=["messages", "values"])
                if kind == "values"
            )
        else:
            state = agent.invoke(given, config)
    return server, state["messages"]


def plain_messages(messages: list[Any]) -> list[Any]:
    """Messages of a state without what differs between two runs."""
    hidden = ("id", "usage_metadata", "response_metadata")
    dumped = [{k: v for k, v in one.model_dump().items() if k not in hidden} for one in messages]
    ids: dict[str, str] = {}
    text = json.dumps(dumped, sort_keys=True, default=str)
    for message in messages:
        for call in getattr(message, "tool_calls", ()):
            ids[call["id"]] = f"call-{len(ids)}"
    for id, name in ids.items():
        text = text.replace(id, name)
    return json.loads(text)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("wire", WIRES)
def test_edits(wire: str, mode: str) -> None:
    plain, _ = run(wire, reads(12), None)
    server, messages = run(wire, reads(12), EAGER, mode=mode)
    judge(server, plain)
    assert plain.breaks() == 0
    assert messages[-1].text == FINAL


@pytest.mark.parametrize("wire", WIRES)
def test_edits_of_the_default_policy_rarely_break_the_prefix(wire: str) -> None:
    server, _ = run(wire, reads(24), Policy(tools=TOOLS))
    assert server.problems() == []
    assert any(marks(server))
    assert server.breaks() <= 3


@pytest.mark.parametrize("reasoning", [False, True])
@pytest.mark.parametrize("wire", WIRES)
def test_drops_superseded_writes(wire: str, reasoning: bool) -> None:
    plain, _ = run(wire, writes(5), None, reasoning=reasoning)
    server, _ = run(wire, writes(5), EAGER, reasoning=reasoning)
    judge(server, plain)
    assert calls_of(server.bodies[-1]) < calls_of(plain.bodies[-1])


@pytest.mark.parametrize("reasoning", [False, True])
@pytest.mark.parametrize("wire", WIRES)
def test_folds(wire: str, reasoning: bool) -> None:
    plain, _ = run(wire, reads(20), None, reasoning=reasoning)
    server, _ = run(wire, reads(20), FOLDING, reasoning=reasoning)
    judge(server, plain)
    assert server.breaks() == epochs(server)
    assert calls_of(server.bodies[-1]) < calls_of(plain.bodies[-1])


@pytest.mark.parametrize("wire", WIRES)
def test_parallel_calls(wire: str) -> None:
    plain, _ = run(wire, reads(10, 3), None)
    server, _ = run(wire, reads(10, 3), FOLDING)
    judge(server, plain)


@pytest.mark.parametrize("wire", WIRES)
def test_errors_of_tools(wire: str) -> None:
    script = reads(10)
    script[2] = [("read_file", {"path": MISSING}), *script[2]]
    plain, _ = run(wire, script, None)
    server, messages = run(wire, script, EAGER)
    judge(server, plain)
    assert [one for one in messages if getattr(one, "status", "") == "error"]


@pytest.mark.parametrize("wire", WIRES)
def test_streaming(wire: str) -> None:
    plain, whole = run(wire, reads(12, 2), None, mode="stream", reasoning=True)
    server, messages = run(wire, reads(12, 2), FOLDING, mode="stream", reasoning=True)
    judge(server, plain)
    assert plain_messages(messages) == plain_messages(whole)


@pytest.mark.parametrize("wire", ["anthropic", "responses", "gemini"])
def test_reasoning_stays_where_its_calls_stay(wire: str) -> None:
    """Without the pass that drops old reasoning, all of it is there."""
    names = [one.__name__ for one in PASSES if one.__name__ not in ("old_reasoning", *OPT_IN)]
    plain, _ = run(wire, reads(12), None, reasoning=True)
    server, _ = run(wire, reads(12), EAGER.replace(passes=names), reasoning=True)
    judge(server, plain)
    judge_reasoning(server, wire)
    for sent, whole in zip(server.raw, plain.raw, strict=True):
        assert sent.count(SIGNATURES[wire]) == whole.count(SIGNATURES[wire])


@pytest.mark.parametrize("wire", ["anthropic", "responses", "gemini"])
def test_reasoning_goes_with_what_binds_calls_to_it(wire: str) -> None:
    """OpenAI's may go from calls that stay; the others' stays for as long as the turn runs."""
    plain, _ = run(wire, reads(12, 2), None, reasoning=True)
    server, _ = run(wire, reads(12, 2), EAGER, reasoning=True)
    judge(server, plain)
    judge_reasoning(server, wire)
    sent, whole = server.raw[-1].count(SIGNATURES[wire]), plain.raw[-1].count(SIGNATURES[wire])
    assert (sent < whole) == (wire == "responses")


@pytest.mark.parametrize("wire", WIRES)
def test_stored_history_stays_whole(wire: str) -> None:
    _, whole = run(wire, writes(5) + reads(12, 2), None, reasoning=True)
    server, messages = run(wire, writes(5) + reads(12, 2), FOLDING, reasoning=True)
    assert any(marks(server))
    assert MARKER not in str(messages)
    assert plain_messages(messages) == plain_messages(whole)


@pytest.mark.parametrize("mode", ["sync", "async", "stream"])
@pytest.mark.parametrize("wire", WIRES)
def test_refused_projection_is_sent_again_as_it_came(wire: str, mode: str) -> None:
    plain, _ = run(wire, reads(8), None, mode=mode)
    server, messages = run(wire, reads(8), EAGER, mode=mode, refuse=400)
    assert server.refused
    assert not any(server.markers())
    assert server.bodies == plain.bodies
    assert messages[-1].text == FINAL


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("wire", WIRES)
def test_expand_tool(wire: str, mode: str) -> None:
    server, messages = run(wire, Expanding(reads(12)), EAGER, mode=mode)
    assert server.problems() == []
    result = next(one for one in messages if getattr(one, "name", "") == EXPAND_TOOL)
    assert result.text in {read_text(f"/w/file_{at}.py") for at in range(6)}


@pytest.mark.parametrize("model", [{"use_previous_response_id": True}])
def test_stored_history_of_the_server_is_left_alone(model: dict[str, Any]) -> None:
    plain, _ = run("responses", reads(8), None, model=dict(model))
    middleware = CompactionMiddleware(EAGER, expand=False)
    server, _ = run("responses", reads(8), None, middleware=middleware, model=dict(model))
    assert server.bodies == plain.bodies
    assert server.bodies[-1]["previous_response_id"]
    assert middleware.compactor.savings.requests == 0


def test_edits_in_deepagents() -> None:
    deepagents = pytest.importorskip("deepagents")
    with upstream([[("read_notes", {"path": f"/n/{at}.md"})] for at in range(10)]) as server:
        middleware = CompactionMiddleware(EAGER)
        agent = deepagents.create_deep_agent(
            chat_model("anthropic", server.url), [read_notes], middleware=[middleware]
        )
        state = agent.invoke({"messages": [("user", "Read the notes.")]}, {"recursion_limit": 99})
    assert server.problems() == []
    assert any(marks(server))
    assert MARKER not in str(state["messages"])
    assert middleware.compactor.savings.tokens_saved > 0
    assert EXPAND_TOOL in str(server.bodies[0]["tools"])


def test_edits_leave_other_messages_the_same_objects() -> None:
    """New arguments, dropped calls and reasoning in every place where LangChain keeps them."""
    calls = [
        {"type": "tool_call", "id": id, "name": "write_file", "args": {"content": "x"}}
        for id in ("a", "b")
    ]
    blocks = [
        {"type": "reasoning", "id": "rs", "encrypted_content": "e"},
        {"type": "function_call", "id": "fc_a", "call_id": "a", "arguments": "{}"},
        {"type": "function_call", "id": "fc_b", "call_id": "b", "arguments": "{}"},
        {"type": "tool_use", "id": "a", "input": {}},
        {"type": "tool_use", "id": "b", "input": {}},
    ]
    message = AIMessage(blocks, tool_calls=calls, additional_kwargs={"tool_calls": [1], "x": 1})
    change = RowChange(
        dropped_calls=frozenset({0}), arguments={1: {"content": "y"}}, drops_reasoning=True
    )
    made = adapter._answer(message, change)
    assert [call["args"] for call in made.tool_calls] == [{"content": "y"}]
    assert made.content == [
        {"type": "function_call", "call_id": "b", "arguments": '{"content": "y"}'},
        {"type": "tool_use", "id": "b", "input": {"content": "y"}},
    ]
    assert made.additional_kwargs == {"x": 1}
    assert len(message.content) == 5
    image = {"type": "image", "base64": "AA==", "mime_type": "image/png"}
    result = ToolMessage([{"type": "text", "text": "old"}, image], tool_call_id="b")
    assert adapter._result(result, RowChange(text="new")).content[1] == image


def test_expand_tool_can_be_left_out() -> None:
    assert CompactionMiddleware(expand=False).tools == []


def test_streaming_usage_is_learnt() -> None:
    middleware = CompactionMiddleware(EAGER)
    server, _ = run("anthropic", reads(4), None, mode="stream", middleware=middleware)
    assert middleware.compactor.savings.requests == 5
    assert middleware.compactor.savings.usage.prompt == sum(len(raw) // 4 for raw in server.raw)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("wire", WIRES)
def test_loops_are_advised_on_and_refused(wire: str, mode: str) -> None:
    middleware = CompactionMiddleware(EAGER, loops=True)
    server, messages = run(wire, repeats(10), None, mode=mode, middleware=middleware)
    assert server.problems() == []
    results = [one for one in messages if one.type == "tool"]
    judge_loops([one.text for one in results], 10)
    assert results[-1].status == "error"
    assert messages[-1].text == FINAL


def test_loops_end_where_the_user_speaks() -> None:
    """Each input is a new reason, and each thread a conversation of its own."""
    middleware = CompactionMiddleware(EAGER, loops=True)
    with upstream([*repeats(2), [], *repeats(2), [], *repeats(2)]) as server:
        agent = create_agent(
            chat_model("chat", server.url),
            [read_file],
            middleware=[middleware],
            checkpointer=InMemorySaver(),
        )
        for thread in ("one", "one", "two"):
            said = {"messages": [HumanMessage("Read it.", id="same" if thread == "two" else None)]}
            state = agent.invoke(said, {"configurable": {"thread_id": thread}})
            assert ADVICE_START not in str(state["messages"])
    assert len(server.raw) == 9


def test_loops_in_results_of_other_kinds() -> None:
    """Advice behind blocks; commands to the graph go through."""
    image = {"type": "image", "base64": "AA==", "mime_type": "image/png"}
    middleware = CompactionMiddleware(EAGER, loops=True)
    call = {"name": "read_file", "args": {"path": "/w/a.png"}, "id": "a"}
    state = {"messages": [HumanMessage("Look.", id="h"), AIMessage("", id="a")]}
    request = SimpleNamespace(
        tool_call=call, state=state, runtime=SimpleNamespace(config={"configurable": {}})
    )
    results = []
    for turn in range(3):
        state["messages"][1] = AIMessage("", id=f"a{turn}")
        results.append(
            middleware.wrap_tool_call(request, lambda _: ToolMessage([image], tool_call_id="a"))
        )
    assert [len(one.content) for one in results] == [1, 1, 2]
    assert ADVICE_START in results[-1].content[1]["text"]
    command = Command(update={})
    assert middleware.wrap_tool_call(request, lambda _: command) is command


def test_loops_are_no_business_of_others() -> None:
    """Hooks around tools change what create_agent checks, so they are there only if wanted."""
    plain, guarded = CompactionMiddleware(), CompactionMiddleware(loops=True)
    assert type(plain).wrap_tool_call is AgentMiddleware.wrap_tool_call
    assert type(guarded).wrap_tool_call is not AgentMiddleware.wrap_tool_call
    assert isinstance(guarded, CompactionMiddleware)
    assert plain.name == guarded.name == "CompactionMiddleware"


def test_wrong_use() -> None:
    with pytest.raises(MissingFramework, match=r"pip install 'langchain>=99'"):
        require("langchain", "99")
    with pytest.raises(MissingFramework, match=r"not installed: pip install 'lang-chain-x>=1'"):
        require("lang-chain-x", "1")
    with pytest.raises(PolicyError, match="name of a preset"):
        CompactionMiddleware("quick")
    with pytest.raises(WrongUse, match="leave out policy="):
        CompactionMiddleware(EAGER, compactor=FrameworkCompactor())
    with pytest.raises(WrongUse, match="FrameworkCompactor"):
        CompactionMiddleware(compactor="x")
    with pytest.raises(WrongUse, match="create_agent"):
        CompactionMiddleware().wrap_model_call({"messages": []}, print)


def test_edits_in_the_snippet(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("langchain_anthropic")
    with upstream(reads(6)) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        found = runpy.run_path(str(SNIPPET))
        found["main"]()
    assert server.problems() == []
    assert EXPAND_TOOL in str(server.bodies[0]["tools"])
