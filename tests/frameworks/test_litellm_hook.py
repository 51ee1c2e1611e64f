"""respool inside LiteLLM's own proxy: as a callback, and as a guardrail."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from respool import Policy
from respool.integrations.requirement import WrongUse
from tests.frameworks.agent_runs import MISSING, calls_of, judge, marks
from tests.frameworks.litellm_process import KEY, call, free_port, litellm_proxy
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
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # the list of prices is not fetched
pytest.importorskip("litellm")
pytest.importorskip("apscheduler", reason="litellm is installed without its proxy")

from respool.integrations.litellm import CompactionGuardrail  # noqa: E402

ROOT = Path(__file__).parents[2]
CONFIG = """
model_list:
  - model_name: gpt
    litellm_params: {{model: openai/gpt-5.2, api_base: "{url}/v1", api_key: k, max_retries: 0}}
  - model_name: claude
    litellm_params: {{model: anthropic/claude-sonnet-4-5, api_base: "{url}", api_key: k}}
router_settings: {{retry_policy: {{BadRequestErrorRetries: 1}}}}
general_settings: {{master_key: {key}}}
"""
CALLBACK = "litellm_settings: {callbacks: hooks.logger}\n"
GUARDRAIL = """
guardrails:
  - guardrail_name: respool
    litellm_params: {guardrail: hooks.Guardrail, mode: pre_call, default_on: false}
"""
HOOKS = """
from respool.integrations.litellm import CompactionGuardrail, CompactionLogger
from tests.frameworks.agent_runs import EAGER

class Guardrail(CompactionGuardrail):
    def __init__(self, **settings):
        super().__init__(EAGER, **settings)

logger = CompactionLogger(EAGER)
"""
WAYS = [  # an endpoint, and a model behind it
    ("chat", "gpt"),
    ("chat", "claude"),
    ("messages", "claude"),
    ("messages", "gpt"),
    ("responses", "gpt"),
    ("responses", "claude"),
]
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
SCHEMAS = {
    name: {"type": "object", "properties": {key: {"type": "string"} for key in keys}}
    for name, keys in (("read_file", ("path",)), ("write_file", ("path", "content")))
}


class Gateway:
    """LiteLLM's proxy in front of the scripted provider."""

    def __init__(self, port: int, server: Upstream) -> None:
        self.port, self.server = port, server

    def run(self, wire: str, model: str, script: list[list[Ask]], **more: Any) -> Upstream:
        """An agent that follows the provider's script; a copy of all that arrived."""
        server = self.server
        for kept in (server.received, server.raw, server.headers, server.refused):
            kept.clear()
        server.script, server.answered = script, 0
        rows: list[dict[str, Any]] = [{"role": "user", "content": "Read the files."}]
        for _ in range(len(script) + 1):
            status, answer = self.ask(wire, model, rows, **more)
            assert status == 200, answer
            rows += step(wire, json.loads(answer))
        assert MARKER not in str(rows)
        found = Upstream(script)
        found.received, found.raw = list(server.received), list(server.raw)
        found.refused = list(server.refused)
        return found

    def ask(self, wire: str, model: str, rows: list[Any], **more: Any) -> tuple[int, bytes]:
        body: dict[str, Any] = {"model": model, "tools": [define(wire, n) for n in SCHEMAS], **more}
        body["input" if wire == "responses" else "messages"] = rows
        if wire == "messages":
            body["max_tokens"] = 99
        return call(self.port, "POST", PATHS[wire], body)


def define(wire: str, name: str) -> dict[str, Any]:
    if wire == "messages":
        return {"name": name, "input_schema": SCHEMAS[name]}
    function = {"name": name, "parameters": SCHEMAS[name]}
    if wire == "responses":
        return {"type": "function", **function}
    return {"type": "function", "function": function}


def step(wire: str, answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows that an agent appends after an answer."""
    if wire == "chat":
        message = answer["choices"][0]["message"]
        yield message
        for one in message.get("tool_calls") or ():
            text = result_of(json.loads(one["function"]["arguments"]))
            yield {"role": "tool", "tool_call_id": one["id"], "content": text}
    elif wire == "messages":
        yield {"role": "assistant", "content": answer["content"]}
        asked = [one for one in answer["content"] if one["type"] == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": one["id"], "content": result_of(one["input"])}
            for one in asked
        ]
        yield from [{"role": "user", "content": results}] if results else []
    else:
        yield from answer["output"]
        for one in answer["output"]:
            if one["type"] == "function_call":
                text = result_of(json.loads(one["arguments"]))
                yield {"type": "function_call_output", "call_id": one["call_id"], "output": text}


def result_of(arguments: dict[str, Any]) -> str:
    if arguments["path"] == MISSING:
        return f"No such file: {MISSING}. " + "Look elsewhere. " * 40
    if "content" in arguments:
        return f"{len(arguments['content'])} characters written to {arguments['path']}"
    return read_text(arguments["path"])


@contextmanager
def gateway(folder: Path, settings: str) -> Iterator[Gateway]:
    with upstream([]) as server:
        (folder / "hooks.py").write_text(HOOKS)
        config, port = folder / "config.yaml", free_port()
        config.write_text(CONFIG.format(url=server.url, key=KEY) + settings)
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        with litellm_proxy(sys.executable, config, port, PYTHONPATH=path):
            yield Gateway(port, server)


@pytest.fixture(scope="module")
def callback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway(tmp_path_factory.mktemp("callback"), CALLBACK) as found:
        yield found


@pytest.fixture(scope="module")
def guardrail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway(tmp_path_factory.mktemp("guardrail"), GUARDRAIL) as found:
        yield found


@pytest.mark.parametrize(("wire", "model"), WAYS)
def test_edits(callback: Gateway, guardrail: Gateway, wire: str, model: str) -> None:
    plain = guardrail.run(wire, model, reads(8))
    judge(callback.run(wire, model, reads(8)), plain)
    judge(guardrail.run(wire, model, reads(8), guardrails=["respool"]), plain)


@pytest.mark.parametrize(("wire", "model"), WAYS[::2])
def test_drops_superseded_writes(
    callback: Gateway, guardrail: Gateway, wire: str, model: str
) -> None:
    plain = guardrail.run(wire, model, writes(4))
    server = callback.run(wire, model, writes(4))
    judge(server, plain)
    assert calls_of(server.bodies[-1]) < calls_of(plain.bodies[-1])


def test_parallel_calls(callback: Gateway, guardrail: Gateway) -> None:
    plain = guardrail.run("messages", "claude", reads(6, 3))
    judge(callback.run("messages", "claude", reads(6, 3)), plain)


def test_errors_of_tools(callback: Gateway) -> None:
    server = callback.run("chat", "gpt", [[("read_file", {"path": MISSING})], *reads(6)])
    assert server.problems() == []
    assert any(marks(server))
    assert "No such file" in str(server.bodies[1])


@pytest.mark.parametrize(("wire", "model"), WAYS[::2])
def test_streaming(callback: Gateway, wire: str, model: str) -> None:
    rows: list[dict[str, Any]] = [{"role": "user", "content": "Read the files."}]
    callback.server.script, callback.server.answered = reads(7), 0
    for _ in range(7):
        rows += step(wire, json.loads(callback.ask(wire, model, rows)[1]))
    callback.server.received.clear()
    callback.server.raw.clear()
    status, stream = callback.ask(wire, model, rows, stream=True)
    assert status == 200, stream
    assert FINAL.encode() in stream
    assert marks(callback.server)[0] >= 2
    assert callback.server.problems() == []


@pytest.mark.parametrize(("wire", "model"), [("chat", "gpt"), ("messages", "claude")])
@pytest.mark.parametrize("way", ["callback", "guardrail"])
def test_refused_projection_is_sent_again_as_it_came(
    request: pytest.FixtureRequest, guardrail: Gateway, way: str, wire: str, model: str
) -> None:
    """By the router's policy: it tries again after a bad request."""
    script = reads(7)
    plain = guardrail.run(wire, model, script)
    found: Gateway = request.getfixturevalue(way)
    found.server.refuse = 400
    try:
        server = found.run(wire, model, script, guardrails=["respool"])
    finally:
        found.server.refuse = 0
    assert len(server.refused) == 1
    assert [body["messages"] for body in server.bodies] == [
        body["messages"] for body in plain.bodies
    ]


def test_stored_history_of_the_provider_is_left_alone(callback: Gateway) -> None:
    callback.server.received.clear()
    output = {"type": "function_call_output", "call_id": "call_1", "output": read_text("/w/a.py")}
    more = {"previous_response_id": "resp_1"}
    status, _ = callback.ask("responses", "gpt", [output], **more)
    assert status == 200
    assert callback.server.bodies[0]["input"] == [output]


def test_wrong_use_of_a_guardrail_gets_a_sentence() -> None:
    """The arguments are those that LiteLLM makes of a configuration."""
    given = {"guardrail_name": "respool", "default_on": True, "policy": "lean", "api_base": "x"}
    with pytest.raises(WrongUse, match="post_call changes no request; allowed: pre_call"):
        CompactionGuardrail(event_hook="post_call", **given)
    made = CompactionGuardrail(event_hook="pre_call", **given)
    assert made.compactor.policy.trim_on_arrival
    assert not Policy().trim_on_arrival
