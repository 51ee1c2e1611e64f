# pyright: basic, reportMissingImports=false
"""Compaction for the OpenAI Agents SDK, as a filter of the model's input.

>>> run_config = RunConfig(call_model_input_filter=Compaction())  # doctest: +SKIP
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Final

import msgspec

from ..policy import Policy
from ..pricing import Usage
from ..store import DecisionStore
from .request_compactor import Outgoing
from .requirement import WrongUse, build_compactor, require
from .shadow import EXPAND_DESCRIPTION, EXPAND_PARAMETERS, EXPAND_TOOL, FrameworkCompactor

require("openai-agents", "0.20.0")

from agents import FunctionTool, RunHooks  # noqa: E402
from agents.models.default_models import get_default_model  # noqa: E402
from agents.run_config import ModelInputData  # noqa: E402

_CALL: Final = "call_id"
_OUTPUT: Final = "_output"
_log = logging.getLogger(__name__)


class Compaction(RunHooks[Any]):
    """Sends the projection of a run's items; results and sessions keep them whole.

    Given as `hooks=` of a run as well, it learns the provider's usage. `model` is needed only if
    the run's configuration names a model that its agents do not name.
    """

    def __init__(
        self,
        policy: Policy | str | None = None,
        *,
        store: DecisionStore | str | os.PathLike[str] | None = None,
        deadline: float | None = None,
        compactor: FrameworkCompactor | None = None,
        model: str | None = None,
    ) -> None:
        self.compactor = build_compactor(compactor, policy, store, deadline)
        self._model = model
        self._sent: ContextVar[Outgoing | None] = ContextVar("respool_sent", default=None)

    @property
    def expand_tool(self) -> FunctionTool:
        """The expand tool, for the `tools` of an agent."""

        async def answer(context: Any, arguments: str) -> str:
            try:
                ref = str(msgspec.json.decode(arguments)["ref"])
            except (msgspec.DecodeError, KeyError, TypeError):
                ref = arguments
            return self.compactor.answer(ref)

        return FunctionTool(
            name=EXPAND_TOOL,
            description=EXPAND_DESCRIPTION,
            params_json_schema={**EXPAND_PARAMETERS, "additionalProperties": False},
            on_invoke_tool=answer,
        )

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
        }
        for tool in agent.tools
        if isinstance(tool, FunctionTool)
    ]
    head = {"model": model, "instructions": found.instructions or "", "tools": tools}
    return msgspec.json.encode({**head, "input": found.input}, enc_hook=_plain)


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
