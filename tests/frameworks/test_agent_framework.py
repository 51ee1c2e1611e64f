"""Microsoft Agent Framework with Compaction: requests at the provider, and sessions."""

from __future__ import annotations

import asyncio
import json
import logging
import runpy
from itertools import pairwise
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
    read_text,
    reads,
    upstream,
    writes,
)

pytestmark = pytest.mark.frameworks
pytest.importorskip("agent_framework")
pytest.importorskip("agent_framework_openai")

from agent_framework import (  # noqa: E402
    Agent,
    ChatContext,
    ChatMiddleware,
    Content,
    InMemoryHistoryProvider,
    Message,
    tool,
)
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient  # noqa: E402
from openai import AsyncOpenAI  # noqa: E402

from respool.integrations import agent_framework as adapter  # noqa: E402
from respool.integrations.agent_framework import Compaction, LoopMiddleware  # noqa: E402
from respool.integrations.requirement import MissingFramework, WrongUse, require  # noqa: E402

SNIPPET = Path(__file__).parents[2] / "docs" / "snippets" / "frameworks" / "agent_framework.py"
WIRES = ("responses", "chat")
PROMPT = "Read the files, then say so."


@tool
def read_file(path: str) -> str:
    """Read a file."""
    if path == MISSING:
        raise FileNotFoundError(f"No such file: {path}. " + "Look elsewhere. " * 40)
    return read_text(path)


@tool
def write_file(path: str, content: str) -> str:
    """Write a file."""
    return f"{len(content)} characters written to {path}"


class Run:
    """One run of an agent: what the provider received, the response, and the session's messages."""

    def __init__(
        self,
        wire: str,
        script: list[list[Ask]],
        policy: Policy | None,
        *,
        compaction: Compaction | None = None,
        stream: bool = False,
        store: bool | None = False,
        **options: Any,
    ) -> None:
        more = options.pop("middleware", [])
        self.tools = options.pop("tools", [read_file, write_file])
        self.compaction = Compaction(policy) if policy is not None else compaction
        if self.compaction is not None and "refuse" not in options:
            self.tools = [*self.tools, self.compaction.expand_tool]
        self.middleware = [*more, *([self.compaction] if self.compaction else [])]
        with upstream(script, **options) as self.server:
            if isinstance(script, Expanding):
                script.server = self.server
            self.response = asyncio.run(self._run(wire, stream, store))

    async def _run(self, wire: str, stream: bool, store: bool | None) -> Any:
        url = f"{self.server.url}/v1"
        async with AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as openai:
            kind = OpenAIChatClient if wire == "responses" else OpenAIChatCompletionClient
            client = kind(model="gpt-5.2", async_client=openai)
            given: dict[str, Any] = {}
            if wire == "responses" and store is not None:
                given = {"store": store, "include": ["reasoning.encrypted_content"]}
            history = InMemoryHistoryProvider()
            agent = Agent(
                client,
                "You read and write files.",
                tools=self.tools,
                middleware=self.middleware,
                default_options=given,
                context_providers=[] if store is not False else [history],
            )
            session = agent.create_session()
            if stream:
                streamed = agent.run(PROMPT, session=session, stream=True)
                self.updates = [update async for update in streamed]
                response = await streamed.get_final_response()
            else:
                response = await agent.run(PROMPT, session=session)
            state = session.state.get(history.source_id) or {}
            self.stored: list[Any] = await history.get_messages(session.session_id, state=state)
            return response


_WITHOUT: dict[str, Run] = {}


def run_without(wire: str, script: list[list[Ask]], **options: Any) -> Run:
    """The same run without respool; several tests share it."""
    key = json.dumps([wire, script, options])
    if key not in _WITHOUT:
        _WITHOUT[key] = Run(wire, script, None, **options)
    return _WITHOUT[key]


def plain(messages: list[Any]) -> str:
    """Messages without the ids that the framework makes up."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(one) for key, one in value.items() if not _is_made_up(key, one)}
        return [strip(one) for one in value] if isinstance(value, list) else value

    return json.dumps([strip(message.to_dict()) for message in messages], default=str)


def _is_made_up(key: str, value: Any) -> bool:
    return key == "id" and not str(value).startswith(("rs_", "fc_", "msg_"))


def results(run: Run) -> list[Any]:
    """The results in a session."""
    contents = (content for message in run.stored for content in message.contents)
    return [content for content in contents if content.type == "function_result"]


@pytest.mark.parametrize("wire", WIRES)
def test_edits(wire: str) -> None:
    whole = run_without(wire, reads(12))
    run = Run(wire, reads(12), EAGER)
    judge(run.server, whole.server)
    assert whole.server.breaks() == 0
    assert run.response.text == FINAL


@pytest.mark.parametrize("wire", WIRES)
def test_edits_of_the_default_policy_rarely_break_the_prefix(wire: str) -> None:
    run = Run(wire, reads(24), Policy(tools=TOOLS))
    assert run.server.problems() == []
    assert any(marks(run.server))
    assert run.server.breaks() <= 3


@pytest.mark.parametrize("stream", [False, True])
def test_edits_learn_the_usage(stream: bool) -> None:
    run = Run("responses", reads(8), EAGER, stream=stream)
    assert run.compaction is not None
    savings = run.compaction.compactor.savings
    assert savings.requests == 9
    assert savings.usage.input == sum(len(raw) // 4 for raw in run.server.raw)
    assert savings.tokens_saved > 0


@pytest.mark.parametrize("wire", WIRES)
def test_drops_superseded_writes(wire: str) -> None:
    whole = run_without(wire, writes(5))
    run = Run(wire, writes(5), EAGER)
    judge(run.server, whole.server)
    assert calls_of(run.server.bodies[-1]) < calls_of(whole.server.bodies[-1])


@pytest.mark.parametrize("reasoning", [False, True])
@pytest.mark.parametrize("wire", WIRES)
def test_folds(wire: str, reasoning: bool) -> None:
    whole = run_without(wire, reads(24), reasoning=reasoning)
    run = Run(wire, reads(24), FOLDING, reasoning=reasoning)
    judge(run.server, whole.server)
    assert run.server.breaks() == epochs(run.server)
    assert calls_of(run.server.bodies[-1]) < calls_of(whole.server.bodies[-1])


@pytest.mark.parametrize("wire", WIRES)
def test_parallel_calls(wire: str) -> None:
    whole = run_without(wire, reads(10, 3))
    run = Run(wire, reads(10, 3), FOLDING)
    judge(run.server, whole.server)


@pytest.mark.parametrize("wire", WIRES)
def test_errors_of_tools(wire: str) -> None:
    script = reads(10)
    script[2] = [("read_file", {"path": MISSING}), *script[2]]
    whole = run_without(wire, script)
    run = Run(wire, script, EAGER)
    judge(run.server, whole.server)
    assert [one for one in results(run) if one.exception]


@pytest.mark.parametrize("wire", WIRES)
def test_streaming(wire: str) -> None:
    whole = run_without(wire, reads(12, 2), stream=True, reasoning=True)
    run = Run(wire, reads(12, 2), FOLDING, stream=True, reasoning=True)
    judge(run.server, whole.server)
    assert run.response.text == FINAL
    assert len(run.updates) == len(whole.updates)
    assert plain(run.stored) == plain(whole.stored)


def test_reasoning_stays_where_its_calls_stay() -> None:
    whole = run_without("responses", reads(12), reasoning=True)
    policy = EAGER.replace(passes=("stub_results",))
    run = Run("responses", reads(12), policy, reasoning=True)
    judge(run.server, whole.server)
    key = SIGNATURES["responses"]
    assert key in whole.server.raw[-1]
    for sent, before in zip(run.server.raw, whole.server.raw, strict=True):
        assert sent.count(key) == before.count(key)


def test_reasoning_may_go_without_its_calls() -> None:
    run = Run("responses", reads(12), EAGER, reasoning=True)
    assert run.server.problems() == []
    items = run.server.bodies[-1]["input"]
    kinds = [item.get("type") for item in items]
    assert 0 < kinds.count("reasoning") < kinds.count("function_call")
    bare = [
        item["id"]
        for before, item in pairwise(items)
        if item.get("type") == "function_call" and before.get("type") != "reasoning"
    ]
    assert bare
    assert not {id for id in bare if id in {f"fc_{turn}_0" for turn in range(12)}}


@pytest.mark.parametrize("wire", WIRES)
def test_stored_history_stays_whole(wire: str) -> None:
    script = writes(5) + reads(12, 2)
    whole = run_without(wire, script, reasoning=True)
    run = Run(wire, script, FOLDING, reasoning=True)
    assert any(marks(run.server))
    assert len(results(run)) == 34
    assert MARKER not in plain(run.stored) + plain(run.response.messages)
    assert plain(run.stored) == plain(whole.stored)


@pytest.mark.parametrize("store", [None, True])
def test_stored_history_of_the_server_is_left_alone(
    store: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    whole = run_without("responses", reads(8), store=store)
    compaction = Compaction(EAGER)
    with caplog.at_level(logging.WARNING):
        run = Run("responses", reads(8), None, compaction=compaction, store=store)
    assert run.server.bodies[-1]["previous_response_id"]
    sent = [body["input"] for body in run.server.bodies]
    assert sent == [body["input"] for body in whole.server.bodies]
    assert compaction.compactor.savings.requests == 0
    assert caplog.text.count("default_options={'store': False}") == 1


@pytest.mark.parametrize(
    ("options", "cut", "is_sent_whole"),
    [
        ({"store": False}, 0, False),
        (
            {"store": False, "conversation_id": "agent_framework_local_history_persistence"},
            0,
            False,
        ),
        ({"store": True}, 0, True),
        ({}, 0, True),  # the client stores by default
        ({"store": False, "conversation_id": "conv_1"}, 0, True),
        ({"store": False, "previous_response_id": "resp_1"}, 0, True),
        ({"store": False}, 2, True),  # results whose calls only the server has
    ],
)
def test_stored_history_is_recognised(
    options: dict[str, Any], cut: int, is_sent_whole: bool
) -> None:
    messages = run_without("responses", reads(12)).stored[cut:]
    client = OpenAIChatClient(model="gpt-5.2", api_key="k")
    context = ChatContext(client, list(messages), options)

    async def call_next() -> None:
        return

    asyncio.run(Compaction(EAGER).process(context, call_next))
    whole = [one is before for one, before in zip(context.messages, messages, strict=True)]
    assert all(whole) is is_sent_whole


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", WIRES)
def test_refused_projection_is_sent_again_as_it_came(wire: str, stream: bool) -> None:
    whole = run_without(wire, reads(8), stream=stream)
    run = Run(wire, reads(8), EAGER, stream=stream, refuse=400)
    assert run.server.refused
    assert not any(run.server.markers())
    assert run.server.bodies == whole.server.bodies
    assert run.response.text == FINAL
    assert run.compaction is not None
    assert run.compaction.compactor.savings.refused == 1


@pytest.mark.parametrize("wire", WIRES)
def test_expand_tool(wire: str) -> None:
    run = Run(wire, Expanding(reads(8)), EAGER)
    assert run.server.problems() == []
    assert EXPAND_TOOL in str(run.server.bodies[0]["tools"])
    assert results(run)[-1].result in {read_text(f"/w/file_{at}.py") for at in range(6)}


def test_loops_are_advised_on_and_refused() -> None:
    made: list[str] = []

    @tool(name="read_file")
    def read_again(path: str) -> str:
        """Read a file."""
        made.append(path)
        return "nothing new"

    script: list[list[Ask]] = [[("read_file", {"path": "/w/a"})] for _ in range(10)]
    guard = LoopMiddleware(TOOLS)
    for _ in range(2):  # a run of its own each time
        made.clear()
        run = Run("responses", script, None, middleware=[guard], tools=[read_again])
        assert run.server.problems() == []
        texts = [one.result for one in results(run)]
        assert texts[:2] == ["nothing new"] * 2
        assert texts[2].startswith("nothing new\n[respool noticed:")
        assert len(made) < len(texts) == 10
        assert "nothing new" not in texts[-1]
        assert "[respool" in texts[-1]


def test_loops_of_errors_are_known() -> None:
    @tool(name="write_file")
    def write_again(path: str) -> str:
        """Write a file."""
        raise PermissionError(f"{path} is locked")

    asked: list[str] = []

    class Guard(LoopMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            run, name = self._run(context.tools), context.function.name
            asked.append(self._guard.ask(run, name, context.arguments).action)
            await super().process(context, call_next)

    script: list[list[Ask]] = [[("write_file", {"path": "/w/a"})] for _ in range(3)]
    Run("responses", script, None, middleware=[Guard(TOOLS)], tools=[write_again])
    assert asked[:2] == ["allow", "advise"]


def test_edits_leave_other_contents_the_same_objects() -> None:
    """New arguments, dropped calls and reasoning; media of a result stay."""
    thought, text = Content.from_text_reasoning(id="rs", text=""), Content.from_text("said")
    known = {"fc_id": "fc_1", "openai": {"item_id": "fc_1"}, "x": 1}
    calls = [
        Content.from_function_call(id, "write_file", arguments="{}", additional_properties=known)
        for id in ("a", "b", "c")
    ]
    message = Message("assistant", [thought, text, *calls])
    change = RowChange(
        dropped_calls=frozenset({0}), arguments={1: {"content": "y"}}, drops_reasoning=True
    )
    made = list(adapter._contents(message, {None: change}))
    assert made[0] is text
    assert [(one.call_id, one.arguments) for one in made[1:]] == [
        ("b", '{"content": "y"}'),
        ("c", "{}"),
    ]
    assert made[1].additional_properties == {"x": 1}
    assert message.contents == [thought, text, *calls]
    image = Content.from_data(b"x", media_type="image/png")
    result = Content.from_function_result("a", result=[Content.from_text("old"), image])
    [new] = adapter._contents(Message("tool", [result]), {0: RowChange(text="new")})
    assert new.result == "new"
    assert new.items[1] is image
    assert result.result == "old"


class _Seen(ChatMiddleware):
    """Another middleware, before Compaction in the list."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    async def process(self, context: Any, call_next: Any) -> None:
        self.messages = [str(message.to_dict()) for message in context.messages]
        await call_next()
        self.messages += [str(message.to_dict()) for message in context.messages[-1:]]


def test_edits_stay_unseen_by_middleware_before() -> None:
    seen = _Seen()
    run = Run("chat", reads(8), EAGER, middleware=[seen])
    assert any(marks(run.server))
    assert MARKER not in "".join(seen.messages)


def test_wrong_use() -> None:
    with pytest.raises(MissingFramework, match=r"pip install 'agent-framework-core>=99'"):
        require("agent-framework-core", "99")
    with pytest.raises(PolicyError, match="name of a preset"):
        Compaction("quick")
    with pytest.raises(WrongUse, match="FrameworkCompactor"):
        Compaction(compactor="x")
    with pytest.raises(WrongUse, match="leave out policy="):
        Compaction(EAGER, compactor=FrameworkCompactor())
    for wrong in (Compaction(), LoopMiddleware()):
        with pytest.raises(WrongUse, match=r"Agent\(…, middleware="):
            asyncio.run(wrong.process([Message("user", ["hi"])], None))


def test_edits_in_the_snippet(monkeypatch: pytest.MonkeyPatch) -> None:
    with upstream(reads(6)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        found = runpy.run_path(str(SNIPPET))
        asyncio.run(found["main"]())
    assert server.problems() == []
    assert len(server.bodies) == 7
    assert EXPAND_TOOL in str(server.bodies[0]["tools"])
