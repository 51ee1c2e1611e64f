"""Inspect with compaction enabled: requests at the provider, and the state of samples."""

from __future__ import annotations

import asyncio
import json
import runpy
import subprocess
import sys
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
    read_text,
    reads,
    upstream,
    writes,
)

pytestmark = pytest.mark.frameworks
pytest.importorskip("inspect_ai")

from inspect_ai import Task, eval  # noqa: E402
from inspect_ai.approval import ApprovalPolicy  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.hooks import BeforeModelGenerate  # noqa: E402
from inspect_ai.model import (  # noqa: E402
    ChatMessageAssistant,
    ChatMessageTool,
    ContentImage,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    get_model,
)
from inspect_ai.solver import generate, use_tools  # noqa: E402
from inspect_ai.tool import ToolCall, ToolDef, ToolError, tool  # noqa: E402

from respool.integrations import inspect_ai as adapter  # noqa: E402
from respool.integrations.inspect_ai import Compaction, enable  # noqa: E402
from respool.integrations.requirement import MissingFramework, WrongUse, require  # noqa: E402

SNIPPET = Path(__file__).parents[2] / "docs" / "snippets" / "frameworks" / "inspect_ai.py"
PROMPT = "Read the files, then say so."


@tool
def read_file() -> Any:
    async def execute(path: str) -> str:
        """Read a file.

        Args:
            path: Its path.
        """
        if path == MISSING:
            raise ToolError(f"No such file: {path}. " + "Look elsewhere. " * 40)
        return read_text(path)

    return execute


@tool
def write_file() -> Any:
    async def execute(path: str, content: str) -> str:
        """Write a file.

        Args:
            path: Its path.
            content: All that it will hold.
        """
        return f"{len(content)} characters written to {path}"

    return execute


def chat_model(wire: str, url: str, **more: Any) -> Any:
    """A real model of Inspect that talks to the scripted provider."""
    reasoning = more.pop("reasoning", False)
    config = GenerateConfig(max_retries=more.pop("retries", 0), max_tokens=4096)
    if wire == "anthropic":
        if reasoning:
            config = config.merge(GenerateConfig(reasoning_tokens=1024, max_tokens=8192))
        name = "anthropic/claude-sonnet-4-5"
    elif wire == "gemini":
        name = "google/gemini-3-pro"
    else:
        name, url = "openai/gpt-5.2", f"{url}/v1"
        more["responses_api"] = wire == "responses"
        config = config.merge(GenerateConfig(reasoning_summary="none"))  # no request of its own
    return get_model(name, config=config, base_url=url, api_key="k", memoize=False, **more)


class Run:
    """One sample of an evaluation: what the provider received, and the sample's messages."""

    def __init__(
        self,
        wire: str,
        script: list[list[Ask]],
        policy: Policy | None,
        *,
        compaction: Compaction | None = None,
        **options: Any,
    ) -> None:
        tools = options.pop("tools", None) or [read_file(), write_file()]
        approval = options.pop("approval", None)
        self.compaction = compaction if policy is None else enable(policy)
        if self.compaction is not None:
            tools = [*tools, self.compaction.expand_tool]
        model = {"reasoning": bool(options.get("reasoning")), **options.pop("model", {})}
        if wire == "gemini":
            options["reasoning"] = True  # without signatures, Inspect sends what Gemini 3 refuses
        try:
            with upstream(script, **options) as self.server:
                if isinstance(script, Expanding):
                    script.server = self.server
                task = Task(
                    [Sample(PROMPT)], solver=[use_tools(*tools), generate()], approval=approval
                )
                [self.log] = eval(
                    task,
                    chat_model(wire, self.server.url, **model),
                    display="none",
                    log_samples=True,
                    score=False,
                    fail_on_error=True,
                )
        finally:
            if self.compaction is not None:
                self.compaction.is_enabled = False
        [self.sample] = self.log.samples or []
        self.messages = self.sample.messages

    @property
    def results(self) -> list[Any]:
        """The results in the state of the sample."""
        return [message for message in self.messages if message.role == "tool"]


@pytest.fixture(autouse=True)
def log_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs of evaluations go where tests may write."""
    monkeypatch.setenv("INSPECT_LOG_DIR", str(tmp_path))


_WITHOUT: dict[str, Run] = {}


def run_without(wire: str, script: list[list[Ask]], **options: Any) -> Run:
    """The same run without respool; several tests share it."""
    key = json.dumps([wire, script, options])
    if key not in _WITHOUT:
        _WITHOUT[key] = Run(wire, script, None, **options)
    return _WITHOUT[key]


def plain(messages: list[Any]) -> list[Any]:
    """Messages without what differs between two runs."""
    hidden = {"id", "source", "metadata"}
    dumped = [message.model_dump(exclude=hidden, mode="json") for message in messages]
    ids = [call.id for message in messages for call in getattr(message, "tool_calls", None) or ()]
    text = json.dumps(dumped, sort_keys=True)
    for number, id in enumerate(ids):
        text = text.replace(f'"{id}"', f'"call-{number}"')
    return json.loads(text)


@pytest.mark.parametrize("wire", WIRES)
def test_edits(wire: str) -> None:
    whole = run_without(wire, reads(12))
    run = Run(wire, reads(12), EAGER)
    judge(run.server, whole.server)
    assert whole.server.breaks() == 0
    assert run.messages[-1].text == FINAL


@pytest.mark.parametrize("wire", ["anthropic", "responses"])
def test_edits_of_the_default_policy_rarely_break_the_prefix(wire: str) -> None:
    run = Run(wire, reads(24), Policy(tools=TOOLS))
    assert run.server.problems() == []
    assert any(marks(run.server))
    assert run.server.breaks() <= 3


def test_edits_learn_the_usage() -> None:
    run = Run("anthropic", reads(8), EAGER)
    assert run.compaction is not None
    savings = run.compaction.compactor.savings
    assert savings.requests == 9
    assert savings.usage.input == sum(len(raw) // 4 for raw in run.server.raw)
    assert savings.tokens_saved > 0


@pytest.mark.parametrize(
    ("wire", "reasoning"),
    [*((wire, False) for wire in WIRES if wire != "gemini"), ("anthropic", True)],
)
def test_drops_superseded_writes(wire: str, reasoning: bool) -> None:
    whole = run_without(wire, writes(5), reasoning=reasoning)
    run = Run(wire, writes(5), EAGER, reasoning=reasoning)
    judge(run.server, whole.server)
    assert calls_of(run.server.bodies[-1]) < calls_of(whole.server.bodies[-1])


@pytest.mark.parametrize(
    ("wire", "reasoning"),
    [*((wire, True) for wire in WIRES), ("anthropic", False), ("responses", False)],
)
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
    assert [one for one in run.results if one.error]
    assert plain(run.messages) == plain(whole.messages)


def test_streaming() -> None:
    whole = run_without("anthropic", reads(12, 2), reasoning=True, model={"streaming": True})
    run = Run("anthropic", reads(12, 2), FOLDING, reasoning=True, model={"streaming": True})
    assert whole.server.bodies[0]["stream"]
    judge(run.server, whole.server)
    assert plain(run.messages) == plain(whole.messages)


@pytest.mark.parametrize("wire", ["anthropic", "responses", "gemini"])
def test_reasoning_stays_where_its_calls_stay(wire: str) -> None:
    whole = run_without(wire, reads(12), reasoning=True)
    run = Run(wire, reads(12), EAGER.replace(passes=("stub_results",)), reasoning=True)
    judge(run.server, whole.server)
    key = SIGNATURES[wire]
    assert key in whole.server.raw[-1]
    for sent, before in zip(run.server.raw, whole.server.raw, strict=True):
        assert sent.count(key) == before.count(key)


def test_reasoning_may_go_without_its_calls() -> None:
    run = Run("responses", reads(12), EAGER, reasoning=True)
    assert run.server.problems() == []
    items = run.server.bodies[-1]["input"]
    bare = [
        item
        for before, item in pairwise(items)
        if item.get("type") == "function_call" and before.get("type") != "reasoning"
    ]
    assert bare
    assert not [item for item in bare if "id" in item]


@pytest.mark.parametrize("wire", WIRES)
def test_stored_history_stays_whole(wire: str) -> None:
    script = writes(5) + reads(12, 2)
    whole = run_without(wire, script, reasoning=True)
    run = Run(wire, script, FOLDING, reasoning=True)
    assert any(marks(run.server))
    assert len(run.results) == 34
    assert MARKER not in str(run.messages)
    assert plain(run.messages) == plain(whole.messages)


def test_a_refusal_reaches_the_caller() -> None:
    """Hooks cannot send again; respool.integrations.transport can."""
    run = Run("anthropic", reads(8), EAGER, refuse=400)
    assert run.log.status == "error"
    assert "no such thing is accepted" in str(run.log.error)


def test_edits_are_made_once_if_a_request_is_tried_again() -> None:
    run = run_without("anthropic", reads(8))
    messages = [*run.messages[:-1]]
    compaction = enable(EAGER)
    data = BeforeModelGenerate(
        "anthropic/claude-sonnet-4-5", messages, [], "auto", GenerateConfig(), None
    )

    async def attempts() -> list[list[Any]]:
        found = []
        for _ in range(2):
            await compaction.on_before_model_generate(data)
            found.append(list(data.input))
        decided_on = compaction._sent.get()
        assert decided_on is not None
        assert MARKER not in str(decided_on.messages)
        return found

    first, second = asyncio.run(attempts())
    compaction.is_enabled = False
    assert MARKER in str(first)
    assert first == second
    same = [after for before, after in zip(run.messages, first, strict=False) if before is after]
    assert same
    assert all(MARKER in one.text for one in first if not any(one is old for old in run.messages))


def test_edits_leave_a_history_without_its_calls_alone() -> None:
    lone = [ChatMessageTool(content="x" * 9000, tool_call_id=f"call_{at}") for at in range(9)]
    compaction = enable(EAGER)
    data = BeforeModelGenerate("openai/gpt-5.2", list(lone), [], "auto", GenerateConfig(), None)
    asyncio.run(compaction.on_before_model_generate(data))
    compaction.is_enabled = False
    assert all(one is before for one, before in zip(data.input, lone, strict=True))


@pytest.mark.parametrize("wire", ["anthropic", "responses"])
def test_expand_tool(wire: str) -> None:
    run = Run(wire, Expanding(reads(8)), EAGER)
    assert run.server.problems() == []
    assert run.results[-1].function == EXPAND_TOOL
    assert run.results[-1].text in {read_text(f"/w/file_{at}.py") for at in range(6)}


def test_loops_are_refused() -> None:
    made: list[str] = []

    async def read_again(path: str) -> str:
        made.append(path)
        return "nothing new"

    again = ToolDef(read_again, "read_file", "Read a file.", {"path": "Its path."}).as_tool()
    script: list[list[Ask]] = [[("read_file", {"path": "/w/a"})] for _ in range(10)]
    compaction = enable(Policy(tools=TOOLS))
    for _ in range(2):  # a conversation of its own each time
        made.clear()
        compaction.is_enabled = True
        run = Run(
            "anthropic",
            script,
            None,
            compaction=compaction,
            tools=[again],
            approval=[ApprovalPolicy(compaction.loop_approver(), "*")],
        )
        assert run.server.problems() == []
        assert len(run.results) == 10
        assert 2 < len(made) < 10
        assert [one.error is None for one in run.results] == [at < len(made) for at in range(10)]
        assert "[respool" in run.results[-1].error.message


def test_edits_leave_other_contents_the_same_objects() -> None:
    """New arguments, dropped calls and reasoning; media of a result stay."""
    thought, text = ContentReasoning(reasoning="hm", signature="s"), ContentText(text="said")
    calls = [ToolCall(id, "write_file", {}) for id in ("a", "b", "c")]
    message = ChatMessageAssistant(content=[thought, text], tool_calls=calls)
    change = RowChange(
        dropped_calls=frozenset({0}), arguments={1: {"content": "y"}}, drops_reasoning=True
    )
    renamed: dict[str, str] = {}
    made = adapter._answer(message, change, renamed)
    assert made.content == [text]
    sent = [(one.id, one.arguments) for one in made.tool_calls]
    assert sent == [("b_r", {"content": "y"}), ("c_r", {})]
    assert renamed == {"b": "b_r", "c": "c_r"}
    assert message.content == [thought, text]
    assert message.tool_calls == calls
    image = ContentImage(image="data:image/png;base64,AA==")
    result = ChatMessageTool(content=[ContentText(text="old"), image], tool_call_id="a")
    assert adapter._result(result, None, None) is result
    new = adapter._result(result, "new", None)
    assert new.text == "new"
    assert new.content[1] is image


def test_wrong_use() -> None:
    with pytest.raises(MissingFramework, match=r"pip install 'inspect-ai>=99'"):
        require("inspect-ai", "99")
    with pytest.raises(PolicyError, match="name of a preset"):
        enable("quick")
    with pytest.raises(WrongUse, match="leave out policy="):
        enable(EAGER, compactor=FrameworkCompactor())
    with pytest.raises(WrongUse, match="FrameworkCompactor"):
        enable(compactor="x")
    with pytest.raises(WrongUse, match="call enable"):
        enable(Task)


def test_nothing_is_compacted_by_an_import_alone() -> None:
    """An evaluation is not to change because respool is installed."""
    code = (
        "import respool.integrations.inspect_ai\n"
        "from inspect_ai.hooks._hooks import get_all_hooks\n"
        "print(len(get_all_hooks()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"


def test_edits_in_the_snippet(monkeypatch: pytest.MonkeyPatch) -> None:
    with upstream(reads(6)) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        monkeypatch.setenv("INSPECT_DISPLAY", "none")
        found = runpy.run_path(str(SNIPPET))
        eval(found["reader"](), "anthropic/claude-sonnet-4-5", display="none")
    found["compaction"].is_enabled = False
    assert server.problems() == []
    assert len(server.bodies) == 7
    assert EXPAND_TOOL in str(server.bodies[0]["tools"])
    assert found["compaction"].compactor.savings.requests == 7
