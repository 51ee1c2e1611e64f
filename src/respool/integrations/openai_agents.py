# pyright: basic, reportMissingImports=false
"""Compaction for the OpenAI Agents SDK, as a filter of the model's input.

>>> run_config = RunConfig(call_model_input_filter=Compaction())  # doctest: +SKIP
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from copy import copy
from typing import Any, Final
from uuid import uuid4
from weakref import ReferenceType, ref

import msgspec

from ..history.ledger import text_hash
from ..policy import Policy
from ..pricing import Usage
from ..store import DecisionStore
from .loop_guard import LoopGuard, with_advice
from .request_compactor import Outgoing
from .requirement import WrongUse, build_compactor, require
from .shadow import EXPAND_DESCRIPTION, EXPAND_PARAMETERS, EXPAND_TOOL, FrameworkCompactor

require("openai-agents", "0.20.0")

from agents import (  # noqa: E402
    FunctionTool,
    RunHooks,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolOutputGuardrail,
)
from agents.models.default_models import get_default_model  # noqa: E402
from agents.run_config import ModelInputData  # noqa: E402

_CALL: Final = "call_id"
_OUTPUT: Final = "_output"
_log = logging.getLogger(__name__)


class Compaction(RunHooks[Any]):
    """Sends the projection of a run's items; results and sessions keep them whole.

    Given as `hooks=` of a run as well, it learns the provider's usage. `model` is needed only if
    the run's configuration names a model that its agents do not name. With `loops`, tools that
    went through `guard` advise on calls that repeat without progress, and in the end refuse them.
    """

    def __init__(
        self,
        policy: Policy | str | None = None,
        *,
        store: DecisionStore | str | os.PathLike[str] | None = None,
        deadline: float | None = None,
        compactor: FrameworkCompactor | None = None,
        model: str | None = None,
        loops: bool = False,
    ) -> None:
        self.compactor = build_compactor(compactor, policy, store, deadline)
        self._model = model
        self._guard = _Guardrails(LoopGuard(self.compactor.policy.tools)) if loops else None
        self._sent: ContextVar[Outgoing | None] = ContextVar("respool_sent", default=None)

    @property
    def expand_tool(self) -> FunctionTool:
        """The expand tool, for the `tools` of an agent."""

        async def answer(context: Any, arguments: str) -> str:
            try:
                name = str(msgspec.json.decode(arguments)["ref"])
            except (msgspec.DecodeError, KeyError, TypeError):
                name = arguments
            return self.compactor.answer(name)

        return FunctionTool(
            name=EXPAND_TOOL,
            description=EXPAND_DESCRIPTION,
            params_json_schema={**EXPAND_PARAMETERS, "additionalProperties": False},
            on_invoke_tool=answer,
        )

    def guard(self, tools: Iterable[Any]) -> list[Any]:
        """Copies of an agent's tools that watch for loops."""
        if self._guard is None:
            raise WrongUse("Only Compaction(loops=True) can guard tools.")
        return [
            self._guard.guarded(tool) if isinstance(tool, FunctionTool) else tool for tool in tools
        ]

    async def __call__(self, data: Any) -> ModelInputData:
        """Put the projection in place of the items; the untouched ones stay the same objects."""
        found: Any = getattr(data, "model_data", None)
        if not isinstance(found, ModelInputData):
            raise WrongUse(
                "Compaction is a filter of input: RunConfig(call_model_input_filter=Compaction())."
            )
        self._sent.set(None)
        if _is_server_held(found.input):
            return found
        try:
            model = self._model or _model_name(data.agent)
            body = _body(found, data.agent, model)
            sent = await self.compactor.decide_async(body, "openai-responses", model=model)
            items = _changed(found.input, body, sent) if sent.is_changed else found.input
        except Exception:  # noqa: BLE001 - law 9: a fault of respool fails no request
            _log.exception("A request could not be compacted; it is sent as it came")
            return found
        self.compactor.accepted(sent)  # a filter does not see the response
        self._sent.set(sent)
        return ModelInputData(input=items, instructions=found.instructions)

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        """Learn the usage of the request that was filtered last in this run."""
        sent = self._sent.get()
        self._sent.set(None)
        if sent is not None and response.usage.input_tokens:
            self.compactor.used(sent, _usage(response.usage))


# --- loops ---------------------------------------------------------------------------------------


class _Guardrails:
    """Guardrails around tool calls that watch for loops."""

    def __init__(self, guard: LoopGuard) -> None:
        self._guard = guard
        self._runs: dict[int, tuple[ReferenceType[Any], str]] = {}  # by the id of a run's usage

    def guarded(self, tool: FunctionTool) -> FunctionTool:
        """A copy of a tool with both guardrails behind its own."""
        made = copy(tool)
        before, after = tool.tool_input_guardrails or (), tool.tool_output_guardrails or ()
        made.tool_input_guardrails = [*before, ToolInputGuardrail(self._refuse)]
        made.tool_output_guardrails = [*after, ToolOutputGuardrail(self._advise)]
        return made

    def _refuse(self, data: Any) -> ToolGuardrailFunctionOutput:
        verdict = self._guard.ask(**self._call(data))
        if verdict.action == "refuse":
            return ToolGuardrailFunctionOutput.reject_content(verdict.message)
        return ToolGuardrailFunctionOutput.allow()

    def _advise(self, data: Any) -> ToolGuardrailFunctionOutput:
        call = self._call(data)
        verdict = self._guard.ask(**call)  # as it was before the call was made
        self._guard.tell(**call, result=data.output)
        if verdict.action == "advise" and isinstance(data.output, str):
            return ToolGuardrailFunctionOutput.reject_content(with_advice(data.output, verdict))
        return ToolGuardrailFunctionOutput.allow()

    def _call(self, data: Any) -> dict[str, Any]:
        context = data.context
        call = {"name": context.tool_name, "arguments": context.tool_arguments}
        # An agent that is another's tool shares the usage of its run, and has input of its own.
        asked = text_hash(str(context.turn_input[-1:]))
        key = f"{self._run(context.usage)}/{data.agent.name}/{asked}"
        return {**call, "conversation": key, "batch": context.usage.requests}

    def _run(self, usage: Any) -> str:
        """The name of a run, which has no id; its usage is counted in one object."""
        at = id(usage)
        found = self._runs.get(at)
        if found is None or found[0]() is not usage:
            found = (ref(usage, lambda _: self._runs.pop(at, None)), uuid4().hex)
            self._runs[at] = found
        return found[1]


# --- items ---------------------------------------------------------------------------------------


def _is_server_held(items: Sequence[Any]) -> bool:
    """True if results came without their calls: the provider keeps the history."""
    known: set[Any] = set()
    for item in items:
        kind = item.get("type") or ""
        if not kind.endswith(_OUTPUT):
            known.add(item.get(_CALL))
        elif item.get(_CALL) not in known:
            return True
    return False


def _model_name(agent: Any) -> str:
    model = agent.model
    name = model if isinstance(model, str) else getattr(model, "model", None)
    return str(name or get_default_model())


def _body(found: ModelInputData, agent: Any, model: str) -> bytes:
    tools = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.params_json_schema,
            **_annotations(tool),
        }
        for tool in agent.tools
        if isinstance(tool, FunctionTool)
    ]
    head = {"model": model, "instructions": found.instructions or "", "tools": tools}
    return msgspec.json.encode({**head, "input": found.input}, enc_hook=_plain)


def _annotations(tool: FunctionTool) -> dict[str, Any]:
    """The annotations of an MCP server, which say what a tool does."""
    found: Any = getattr(tool, "mcp_annotations", None)
    return (
        {} if found is None else {"annotations": found.model_dump(exclude_none=True, by_alias=True)}
    )


def _plain(value: Any) -> Any:
    """An object of the OpenAI client as a dict."""
    return value.model_dump(exclude_unset=True)


def _changed(items: Sequence[Any], body: bytes, sent: Outgoing) -> list[Any]:
    """The projection, made of the same objects wherever nothing changed."""
    before = msgspec.json.decode(body)["input"]
    made: list[Any] = []
    at = 0
    for item in msgspec.json.decode(sent.body)["input"]:
        while _identity(before[at]) != _identity(item):
            at += 1
        made.append(items[at] if before[at] == item else item)
        at += 1
    return made


def _identity(item: dict[str, Any]) -> Any:
    """Calls and results are known by the id of the call; nothing else is ever changed."""
    call_id = item.get(_CALL)
    return item if call_id is None else (item.get("type"), call_id)


def _usage(used: Any) -> Usage:
    read = used.input_tokens_details.cached_tokens or 0
    write = getattr(used.input_tokens_details, "cache_write_tokens", 0) or 0
    plain = max(0, used.input_tokens - read - write)
    return Usage(input=plain, cache_read=read, cache_write=write, output=used.output_tokens)


__all__ = ["Compaction"]
