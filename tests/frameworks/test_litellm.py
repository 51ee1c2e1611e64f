"""LiteLLM's SDK with a callback, and with CompactionClient: requests at the provider."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from respool import Policy, PolicyError
from respool.integrations.chat_messages import ChatRequest
from respool.integrations.requirement import MissingFramework, WrongUse, require
from respool.integrations.shadow import EXPAND_TOOL, FrameworkCompactor
from respool.pricing import Usage
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
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # the list of prices is not fetched
litellm = pytest.importorskip("litellm")

from respool.integrations.litellm import (  # noqa: E402
    EXPAND_FUNCTION,
    CompactionClient,
    CompactionGuardrail,
    CompactionLogger,
    usage_of,
)

SNIPPET = Path(__file__).parents[2] / "docs" / "snippets" / "frameworks" / "litellm.py"
WIRES = ("chat", "anthropic", "gemini")
WAYS = (*((wire, "callback") for wire in WIRES), ("chat", "client"), ("anthropic", "sync"))
MODELS = {
    "chat": ("openai/gpt-5.2", "/v1"),
    "anthropic": ("anthropic/claude-sonnet-4-5", ""),
    "gemini": ("gemini/gemini-3-pro", ""),
}
FUNCTIONS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name} of a file",
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "string"} for key in keys},
                "required": list(keys),
            },
        },
    }
    for name, keys in (("read_file", ("path",)), ("write_file", ("path", "content")))
]


@pytest.fixture(autouse=True)
def _callbacks() -> Iterator[None]:
    yield
    litellm.logging_callback_manager._reset_all_callbacks()


def result_of(name: str, arguments: dict[str, Any], compactor: Any) -> str:
    if name == EXPAND_TOOL:
        return compactor.answer(arguments["ref"])
    if arguments["path"] == MISSING:
        return f"No such file: {MISSING}. " + "Look elsewhere. " * 40
    if name == "read_file":
        return read_text(arguments["path"])
    return f"{len(arguments['content'])} characters written to {arguments['path']}"


class Run:
    """An agent in a loop of LiteLLM's own functions: what arrived, and its messages."""

    def __init__(
        self,
        wire: str,
        script: list[list[Ask]],
        policy: Policy | None,
        *,
        way: str = "callback",
        stream: bool = False,
        arguments: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.way, self.stream = way, stream
        self.messages: list[Any] = [
            {"role": "system", "content": "You read and write files."},
            {"role": "user", "content": "Read the files, then say so."},
        ]
        self.adapter: Any = None
        if policy is not None:
            self.adapter = (CompactionLogger if way == "callback" else CompactionClient)(policy)
        litellm.logging_callback_manager._reset_all_callbacks()
        litellm.callbacks = [self.adapter] if policy is not None and way == "callback" else []
        tools = [*FUNCTIONS, EXPAND_FUNCTION] if isinstance(script, Expanding) else FUNCTIONS
        with upstream(script, **options) as self.server:
            if isinstance(script, Expanding):
                script.server = self.server
            model, path = MODELS[wire]
            base = self.server.url + path
            if wire == "gemini":
                base += "/v1beta/models/gemini-3-pro"
            self._arguments = {
                "model": model,
                "api_base": base,
                "api_key": "k",
                "tools": tools,
                "max_retries": 0,
                **(arguments or {}),
            }
            if options.get("reasoning") and wire == "anthropic":
                thinking = {"type": "enabled", "budget_tokens": 1024}
                self._arguments |= {"thinking": thinking, "max_tokens": 4096}
            asyncio.run(self._loop())

    async def _loop(self) -> None:
        while True:
            message = await self._ask()
            self.messages.append(message)
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                given = json.loads(call.function.arguments)
                compactor = self.adapter.compactor if self.adapter else None
                text = result_of(call.function.name, given, compactor)
                self.messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
        if self.stream and self.adapter:
            await asyncio.sleep(0.2)  # the usage of a stream is learnt in the background

    async def _ask(self) -> Any:
        arguments = {**self._arguments, "messages": self.messages, "stream": self.stream}
        client = self.adapter if self.way != "callback" and self.adapter else litellm
        if self.way == "sync":
            answer = await asyncio.to_thread(client.completion, **arguments)
            chunks = list(answer) if self.stream else []
        else:
            answer = await client.acompletion(**arguments)
            chunks = [chunk async for chunk in answer] if self.stream else []
        if self.stream:
            answer = litellm.stream_chunk_builder(chunks, messages=self.messages)
        return answer.choices[0].message

    @property
    def stored(self) -> list[Any]:
        """The messages without the ids that LiteLLM makes up."""
        dumped = [one if isinstance(one, dict) else one.model_dump() for one in self.messages]
        text, ids = json.dumps(dumped), {}
        for message in dumped:
            for call in message.get("tool_calls") or ():
                ids.setdefault(call["id"], f"call-{len(ids)}")
        for id, name in ids.items():
            text = text.replace(json.dumps(id)[1:-1], name)
        return json.loads(text)


@cache
def _plain_run(wire: str, script: str, **options: Any) -> Run:
    return Run(wire, json.loads(script), None, **options)


def plain_run(wire: str, script: list[list[Ask]], **options: Any) -> Run:
    """A run without respool."""
    return _plain_run(wire, json.dumps(script), **options)


@pytest.mark.parametrize(("wire", "way"), WAYS)
def test_edits(wire: str, way: str) -> None:
    plain = plain_run(wire, reads(12))
    run = Run(wire, reads(12), EAGER, way=way)
    judge(run.server, plain.server)
    assert plain.server.breaks() == 0
    assert run.messages[-1].content == FINAL
    savings = run.adapter.compactor.savings
    assert savings.requests == 13
    assert savings.tokens_saved > 0
    assert savings.usage.input == sum(len(raw) // 4 for raw in run.server.raw)


@pytest.mark.parametrize("wire", WIRES)
def test_edits_of_the_default_policy_rarely_break_the_prefix(wire: str) -> None:
    run = Run(wire, reads(24), Policy(tools=TOOLS))
    assert run.server.problems() == []
    assert any(marks(run.server))
    assert run.server.breaks() <= 3


@pytest.mark.parametrize(
    ("wire", "reasoning"), [("chat", False), ("anthropic", True), ("gemini", True)]
)
def test_drops_superseded_writes(wire: str, reasoning: bool) -> None:
    plain = plain_run(wire, writes(5), reasoning=reasoning)
    run = Run(wire, writes(5), EAGER, reasoning=reasoning)
    judge(run.server, plain.server)
    assert calls_of(run.server.bodies[-1]) < calls_of(plain.server.bodies[-1])


@pytest.mark.parametrize(
    ("wire", "reasoning"), [("chat", False), ("anthropic", True), ("gemini", True)]
)
def test_folds(wire: str, reasoning: bool) -> None:
    plain = plain_run(wire, reads(18), reasoning=reasoning)
    run = Run(wire, reads(18), FOLDING, reasoning=reasoning)
    judge(run.server, plain.server)
    assert run.server.breaks() == epochs(run.server)
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
    assert "No such file" in str(run.server.bodies[3])


@pytest.mark.parametrize(("wire", "way"), WAYS)
def test_streaming(wire: str, way: str) -> None:
    plain = plain_run(wire, reads(10, 2), stream=True, reasoning=True)
    run = Run(wire, reads(10, 2), FOLDING, way=way, stream=True, reasoning=True)
    judge(run.server, plain.server)
    assert run.stored == plain.stored
    assert run.adapter.compactor.savings.requests == 11
    if way == "callback":
        assert run.adapter.compactor.savings.usage.prompt > 1000


@pytest.mark.parametrize("wire", ["anthropic", "gemini"])
def test_reasoning_stays_where_its_calls_stay(wire: str) -> None:
    plain = plain_run(wire, reads(12), reasoning=True)
    run = Run(wire, reads(12), EAGER, reasoning=True)
    judge(run.server, plain.server)
    for sent, whole in zip(run.server.raw, plain.server.raw, strict=True):
        assert sent.count(SIGNATURES[wire]) == whole.count(SIGNATURES[wire])
    assert run.server.raw[-1].count(SIGNATURES[wire])


@pytest.mark.parametrize("wire", WIRES)
def test_stored_history_stays_whole(wire: str) -> None:
    script = writes(5) + reads(12, 2)
    plain = plain_run(wire, script, reasoning=True)
    run = Run(wire, script, FOLDING, reasoning=True)
    assert any(marks(run.server))
    assert MARKER not in str(run.messages)
    assert run.stored == plain.stored


@pytest.mark.parametrize(
    ("wire", "way", "stream"),  # a stream of Gemini is requested after the call has returned
    [
        ("chat", "client", True),
        ("chat", "sync", False),
        ("anthropic", "client", False),
        ("anthropic", "sync", True),
        ("gemini", "client", False),
    ],
)
def test_refused_projection_is_sent_again_as_it_came(wire: str, way: str, stream: bool) -> None:
    plain = plain_run(wire, reads(8), stream=stream)
    run = Run(wire, reads(8), EAGER, way=way, stream=stream, refuse=400)
    assert run.server.refused
    assert not any(run.server.markers())
    assert run.messages[-1].content == FINAL
    assert len(run.server.bodies) == len(plain.server.bodies)
    assert run.adapter.compactor.savings.refused == 1


@pytest.mark.parametrize(("wire", "way"), WAYS)
def test_expand_tool(wire: str, way: str) -> None:
    run = Run(wire, Expanding(reads(12)), EAGER, way=way)
    assert run.server.problems() == []
    assert run.messages[-2]["content"] in {read_text(f"/w/file_{at}.py") for at in range(6)}


def test_refused_request_of_a_callback_is_sent_as_it_came_when_it_comes_again() -> None:
    """A hook cannot send again: the error reaches the caller, whose next attempt passes."""
    history = plain_run("chat", reads(8)).messages[:-1]
    litellm.callbacks = [adapter := CompactionLogger(EAGER)]

    async def ask(url: str, image: str = "AAAA") -> Any:
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}
        return await litellm.acompletion(
            model="openai/gpt-5.2",
            messages=[{"role": "user", "content": [picture]}, *history],
            api_base=f"{url}/v1",
            api_key="k",
            tools=FUNCTIONS,
            max_retries=0,
        )

    with upstream([], refuse=400) as server:
        with pytest.raises(litellm.BadRequestError):
            asyncio.run(ask(server.url))
        answer = asyncio.run(ask(server.url, "BBBB"))  # decided alike, but another request
        again = asyncio.run(ask(server.url))
    assert answer.choices[0].message.content == again.choices[0].message.content == FINAL
    assert len(server.refused) == 1
    assert adapter.compactor.savings.refused == 1
    assert server.bodies[0]["messages"][1:] == server.bodies[1]["messages"][1:]
    assert "base64,BBBB" in str(server.bodies[0])
    assert "base64,AAAA" in str(server.bodies[1])
    assert len(server.bodies[0]["messages"]) == 1 + len(history)


def test_edits_of_requests_to_other_endpoints() -> None:
    """aresponses and anthropic_messages, also where LiteLLM sends them to another endpoint."""
    chat = plain_run("chat", reads(8)).stored[:-1]
    items: list[dict[str, Any]] = [{"role": "user", "content": "Read."}]
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read."}]
    for one in chat:
        for call in one.get("tool_calls") or ():
            id, function = call["id"], call["function"]
            items.append({"type": "function_call", "call_id": id, **function})
            block = {"type": "tool_use", "id": id, "name": function["name"]}
            block["input"] = json.loads(function["arguments"])
            messages.append({"role": "assistant", "content": [block]})
        if one["role"] == "tool":
            id, text = one["tool_call_id"], one["content"]
            items.append({"type": "function_call_output", "call_id": id, "output": text})
            result = {"type": "tool_result", "tool_use_id": id, "content": text}
            messages.append({"role": "user", "content": [result]})
    litellm.logging_callback_manager._reset_all_callbacks()
    litellm.callbacks = [adapter := CompactionLogger(EAGER)]
    definition = {**FUNCTIONS[0]["function"], "type": "function"}
    claude = {"name": "read_file", "input_schema": definition["parameters"]}

    async def ask(url: str) -> None:
        for model, path in (MODELS["chat"], MODELS["anthropic"]):
            place = {"model": model, "api_base": url + path, "api_key": "k"}
            await litellm.aresponses(input=items, tools=[definition], **place)
            await litellm.anthropic.messages.acreate(
                messages=messages, max_tokens=99, tools=[claude], **place
            )

    with upstream([]) as server:
        asyncio.run(ask(server.url))
        litellm.responses(
            input=items,
            tools=[definition],
            model="openai/gpt-5.2",
            api_base=f"{server.url}/v1",
            api_key="k",
        )
    assert server.problems() == []
    assert adapter.compactor.savings.requests == 5
    assert adapter.compactor.savings.usage.output >= 4 * 5
    assert all(found >= 3 for found in marks(server))
    assert MARKER not in str([items, messages])
    assert [path for path, _ in server.received] == [
        "/v1/responses",
        "/v1/responses",
        "/v1/messages",
        "/v1/messages",
        "/v1/responses",
    ]


def test_stored_history_of_the_provider_is_left_alone() -> None:
    for way in ("callback", "client", "sync"):
        extra = {"previous_response_id": "resp_1", "model": "openai/responses/gpt-5.2"}
        run = Run("chat", reads(6), EAGER, way=way, arguments=extra)
        assert run.server.bodies[-1]["previous_response_id"] == "resp_1"
        assert not any(marks(run.server))
        assert run.adapter.compactor.savings.requests == 0


def test_edits_leave_other_messages_the_same_objects() -> None:
    run = plain_run("anthropic", writes(5), reasoning=True)
    chat = ChatRequest({"model": "claude-sonnet-4-5", "messages": run.messages})
    shadow = FrameworkCompactor(EAGER).shadow(chat.shadow_request)
    found = chat.changed(shadow)
    changed = [one for one in found if not any(one is given for given in run.messages)]
    assert 0 < len(changed) < len(found) < len(run.messages)
    assert all(isinstance(one, dict) for one in changed)


def test_wrong_use(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(MissingFramework, match=r"pip install 'litellm>=99'"):
        require("litellm", "99")
    with pytest.raises(PolicyError, match="name of a preset"):
        CompactionLogger("quick")
    with pytest.raises(WrongUse, match="FrameworkCompactor"):
        CompactionClient(compactor=object())  # type: ignore[arg-type]
    with pytest.raises(WrongUse, match="allowed: pre_call"):
        CompactionGuardrail(guardrail_name="respool", event_hook="post_call")
    litellm.callbacks = [CompactionLogger()]
    with caplog.at_level(logging.WARNING), upstream([]) as server:
        for _ in range(2):
            litellm.completion(
                "openai/gpt-5.2",
                [{"role": "user", "content": "hi"}],
                api_base=f"{server.url}/v1",
                api_key="k",
            )
    told = [one.getMessage() for one in caplog.records if one.name.startswith("respool")]
    assert len(told) == 1
    assert "CompactionClient().completion()" in told[0]


def test_wrong_use_of_positional_messages_gets_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    """LiteLLM shows a callback only what was given by name."""
    history = plain_run("chat", reads(8)).messages[:-1]
    litellm.callbacks = [adapter := CompactionLogger(EAGER)]
    with upstream([]) as server:
        place = {"api_base": f"{server.url}/v1", "api_key": "k", "tools": FUNCTIONS}
        asyncio.run(litellm.acompletion("openai/gpt-5.2", history, **place))
        assert "Give messages= or input= by name" in caplog.text
        asyncio.run(litellm.acompletion("openai/gpt-5.2", messages=history, **place))
    assert [found > 0 for found in marks(server)] == [False, True]
    assert adapter.compactor.savings.requests == 1


def test_wrong_use_of_messages_is_left_to_litellm() -> None:
    """What cannot be read is sent as it came, and LiteLLM's own error reaches the caller."""
    with pytest.raises(litellm.InternalServerError, match="not JSON serializable"):
        CompactionClient().completion("openai/gpt-5.2", [{"content": object()}], api_key="k")


def test_edits_count_cached_tokens_once() -> None:
    whole = {"prompt_tokens": 100, "completion_tokens": 7}
    cached = {"cache_read_input_tokens": 60, "cache_creation_input_tokens": 30}
    assert usage_of({"usage": {**whole, **cached}}) == Usage(10, 60, 30, output=7)
    apart = {"input_tokens": 10, "output_tokens": 7, **cached}
    assert usage_of({"usage": apart}) == Usage(10, 60, 30, output=7)
    inside = {"input_tokens": 100, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 9}}
    assert usage_of({"usage": inside}) == Usage(91, 9, output=7)
    assert usage_of({}) is None


def test_edits_in_the_snippet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    with upstream([[("read_file", {"path": "README.md"})]] * 6) as server:
        monkeypatch.setenv("ANTHROPIC_API_BASE", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        found = runpy.run_path(str(SNIPPET))
        asyncio.run(found["main"]())
    assert server.problems() == []
    assert found["compaction"].compactor.savings.requests == 7
