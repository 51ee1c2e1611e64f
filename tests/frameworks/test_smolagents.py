"""smolagents with CompactionModel: requests at the provider, and the agent's memory."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from respool import Policy, PolicyError, Tool, Tools
from respool.integrations.requirement import MissingFramework, WrongUse, require
from respool.integrations.shadow import EXPAND_TOOL
from tests.frameworks.agent_runs import (
    EAGER,
    FOLDING,
    MISSING,
    TOOLS,
    epochs,
    judge,
    marks,
)
from tests.integrations.upstream import (
    FINAL,
    MARKER,
    Ask,
    Upstream,
    history_of,
    read_text,
    reads,
    upstream,
    writes,
)

pytestmark = pytest.mark.frameworks
smolagents = pytest.importorskip("smolagents")

from respool.integrations.smolagents import CompactionModel  # noqa: E402

SNIPPET = Path(__file__).parents[2] / "docs" / "snippets" / "frameworks" / "smolagents.py"
MODELS = ("gpt-5.2", "claude-sonnet-4-5")
CALLS = "Calling tools:"
EXPAND: list[Ask] = [(EXPAND_TOOL, {})]


@smolagents.tool
def read_file(path: str) -> str:
    """Read a file.

    Args:
        path: The file.
    """
    if path == MISSING:
        raise FileNotFoundError(f"No such file: {path}. " + "Look elsewhere. " * 40)
    return read_text(path)


@smolagents.tool
def write_file(path: str, content: str) -> str:
    """Write a file.

    Args:
        path: The file.
        content: Its new text.
    """
    return f"{len(content)} characters written to {path}"


class Asking(list[list[Ask]]):
    """A script that asks for the original behind the first marker at the provider."""

    server: Upstream

    def __getitem__(self, turn: Any) -> Any:
        found = super().__getitem__(turn)
        return [(EXPAND_TOOL, {"ref": self.server.refs()[0]})] if found == EXPAND else found


class Run:
    """One run of an agent: what the provider received, and the agent's memory."""

    def __init__(
        self,
        script: list[list[Ask]],
        policy: Policy | None,
        *,
        model: str = "gpt-5.2",
        stream: bool = False,
        **options: Any,
    ) -> None:
        asking = Asking([*script, [("final_answer", {"answer": FINAL})]])
        with upstream(asking, **options) as self.server:
            asking.server = self.server
            made: Any = smolagents.OpenAIModel(
                model,
                f"{self.server.url}/v1",
                "k",
                client_kwargs={"max_retries": 0},
            )
            tools = [read_file, write_file]
            if policy is not None:
                made = CompactionModel(made, policy)
                # The tool's description, which names a marker, is part of the system prompt.
                tools += [made.expand_tool] if EXPAND in script else []
            self.model = made
            self.agent = smolagents.ToolCallingAgent(
                tools, made, stream_outputs=stream, verbosity_level=-1, max_steps=99
            )
            self.result = self.agent.run("Read the files, then say so.")
        assert self.result == FINAL

    @property
    def stored(self) -> str:
        """All that the agent remembers, its requests too, without the system prompt."""
        rows = self.agent.write_memory_to_messages()[1:]
        for step in self.agent.memory.steps[1:]:
            rows += step.model_input_messages[1:]
        return json.dumps([[str(row.role), row.content] for row in rows])


def calls_of(server: Upstream) -> int:
    """The number of steps with calls in the last request; they are texts."""
    return "".join(history_of(server.bodies[-1])[1:]).count(CALLS)


@pytest.mark.parametrize("model", MODELS)
def test_edits(model: str) -> None:
    plain = Run(reads(12), None, model=model)
    run = Run(reads(12), EAGER, model=model)
    judge(run.server, plain.server)
    savings = run.model.compactor.savings
    assert savings.requests == 13
    assert savings.usage.input == sum(len(raw) // 4 for raw in run.server.raw)


def test_edits_of_the_default_policy_rarely_break_the_prefix() -> None:
    run = Run(reads(24), Policy(tools=TOOLS))
    assert run.server.problems() == []
    assert any(marks(run.server))
    assert run.server.breaks() <= 4


@pytest.mark.parametrize("model", MODELS)
def test_drops_superseded_writes(model: str) -> None:
    plain = Run(writes(5), None, model=model)
    run = Run(writes(5), EAGER, model=model)
    judge(run.server, plain.server)
    assert calls_of(run.server) < calls_of(plain.server)


def test_folds() -> None:
    plain = Run(reads(18), None)
    run = Run(reads(18), FOLDING)
    judge(run.server, plain.server)
    assert run.server.breaks() == epochs(run.server)
    assert calls_of(run.server) < calls_of(plain.server)


def test_parallel_calls() -> None:
    plain = Run(reads(10, 3), None)
    run = Run(reads(10, 3), EAGER)
    judge(run.server, plain.server)
    assert run.stored == plain.stored


def test_errors_of_tools() -> None:
    script = reads(10)
    script[2] = [("read_file", {"path": MISSING})]
    plain = Run(script, None)
    run = Run(script, EAGER)
    judge(run.server, plain.server)
    assert "No such file" in str(run.server.bodies[3])
    assert run.stored == plain.stored


def test_streaming() -> None:
    plain = Run(reads(12), None, stream=True)
    run = Run(reads(12), EAGER, stream=True)
    judge(run.server, plain.server)
    assert run.stored == plain.stored
    savings = run.model.compactor.savings
    assert savings.usage.input == sum(len(raw) // 4 for raw in run.server.raw)


def test_stored_history_stays_whole() -> None:
    script = writes(5) + reads(12, 2)
    plain = Run(script, None)
    run = Run(script, FOLDING)
    assert any(marks(run.server))
    assert MARKER not in run.stored
    assert run.stored == plain.stored


@pytest.mark.parametrize("stream", [False, True])
def test_refused_projection_is_sent_again_as_it_came(stream: bool) -> None:
    plain = Run(reads(8), None, stream=stream)
    run = Run(reads(8), EAGER, stream=stream, refuse=400)
    assert len(run.server.refused) == 1
    assert run.server.bodies == plain.server.bodies
    assert run.model.compactor.savings.refused == 1


def test_expand_tool() -> None:
    run = Run([*reads(12), EXPAND], EAGER)
    assert run.server.problems() == []
    assert EXPAND_TOOL in str(run.server.bodies[0]["tools"])
    step = run.agent.memory.steps[-2]
    assert step.tool_calls[0].name == EXPAND_TOOL
    assert step.observations in {read_text(f"/w/file_{at}.py") for at in range(6)}


def test_edits_of_a_code_agent() -> None:
    """Its calls are programs; what they print is one result."""
    codes = [f"print(read_file('/w/file_{at % 6}.py'))" for at in range(10)]
    codes.append(f"final_answer({FINAL!r})")
    sizes = []
    for policy in (None, EAGER.replace(tools=Tools([Tool("python_interpreter", kind="run")]))):
        with upstream([]) as server:
            made: Any = smolagents.OpenAIModel("gpt-5.2", f"{server.url}/v1", "k")
            answers = iter(codes)
            inner = made.generate

            def generate(messages: Any, *, inner: Any = inner, codes: Any = answers, **more: Any):
                answer = inner(messages, **more)
                answer.content = f"<code>\n{next(codes)}\n</code>"
                return answer

            made.generate = generate
            if policy is not None:
                made = CompactionModel(made, policy)
            agent = smolagents.CodeAgent([read_file], made, verbosity_level=-1, max_steps=99)
            assert agent.run("Read the files.") == FINAL
        assert server.problems() == []
        assert any(marks(server)) == (policy is not None)
        sizes.append(server.size)
    assert sizes[1] < 0.7 * sizes[0]


def test_wrong_use() -> None:
    with pytest.raises(MissingFramework, match=r"pip install 'smolagents>=99'"):
        require("smolagents", "99")
    with pytest.raises(WrongUse, match=r"str is no model of smolagents"):
        CompactionModel("gpt-5.2")
    model = smolagents.OpenAIModel("gpt-5.2", api_key="k")
    with pytest.raises(PolicyError, match="name of a preset"):
        CompactionModel(model, "quick")
    with pytest.raises(WrongUse, match="FrameworkCompactor"):
        CompactionModel(model, compactor=object())
    assert CompactionModel(model).model_id == "gpt-5.2"
    assert not hasattr(CompactionModel(smolagents.Model()), "generate_stream")


def test_edits_in_the_snippet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    script = [[("read_file", {"path": "README.md"})]] * 6 + [[("final_answer", {"answer": FINAL})]]
    with upstream(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        found = runpy.run_path(str(SNIPPET))
        assert found["agent"].run("Sum up README.md.") == FINAL
    assert server.problems() == []
    assert found["model"].compactor.savings.requests == 7
