# pyright: basic, reportMissingImports=false
"""Compaction for agents of Strands, as a plugin.

>>> agent = Agent(model, tools=tools, plugins=[CompactionPlugin()])  # doctest: +SKIP
"""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from itertools import count
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from ..policy import Policy
from ..pricing import Usage
from ..providers.gemini.codec import SKIP_SIGNATURE
from ..store import DecisionStore
from .loop_guard import LoopGuard
from .requirement import WrongUse, build_compactor, require
from .shadow import (
    EXPAND_DESCRIPTION,
    EXPAND_PARAMETERS,
    EXPAND_TOOL,
    Call,
    FrameworkCompactor,
    Row,
    RowChange,
    Shadow,
    ShadowRequest,
)

require("strands-agents", "1.62.0")

import strands  # noqa: E402
from strands.hooks import (  # noqa: E402
    AfterToolCallEvent,
    BeforeInvocationEvent,
    BeforeToolCallEvent,
)
from strands.middleware import InvokeModelStage  # noqa: E402
from strands.plugins import Plugin  # noqa: E402

_UNSIGNED: Final = base64.b64encode(SKIP_SIGNATURE.encode()).decode()
_BARE: Final = ({"reasoningContent"}, {"cachePoint"})  # blocks that no message consists of
_log = logging.getLogger(__name__)


class _Place(NamedTuple):
    """Where a row comes from; without a block it is an answer of the model."""

    message: int
    block: int | None


class CompactionPlugin(Plugin):
    """Sends the projection of an agent's messages; `agent.messages` stay whole.

    With `loops` it advises on calls that repeat without a new result, and refuses them in the end.
    """

    name = "respool"

    def __init__(
        self,
        policy: Policy | str | None = None,
        *,
        store: DecisionStore | str | os.PathLike[str] | None = None,
        deadline: float | None = None,
        compactor: FrameworkCompactor | None = None,
        expand: bool = True,
        loops: bool = False,
    ) -> None:
        super().__init__()
        self.compactor = build_compactor(compactor, policy, store, deadline)
        if expand:
            self._tools.append(_expand_tool(self.compactor))
        self._guard = LoopGuard(self.compactor.policy.tools) if loops else None
        self._names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # of conversations, by agent
        self._count = count()

    def init_agent(self, agent: Any) -> None:
        """Add the middleware, and the hooks for loops."""
        agent.add_middleware(InvokeModelStage, self._invoke)
        if self._guard is not None:
            self._names[agent] = str(next(self._count))
            agent.add_hook(self._heard, BeforeInvocationEvent)
            agent.add_hook(self._ask, BeforeToolCallEvent)
            agent.add_hook(self._tell, AfterToolCallEvent)

    def register_hooks(self, registry: Any, **named: Any) -> None:
        """A plugin is no provider of hooks: raises WrongUse."""
        raise WrongUse("CompactionPlugin goes into Agent(…, plugins=[CompactionPlugin()]).")

    async def _invoke(self, context: Any, call: Callable[[Any], Any]) -> AsyncIterator[Any]:
        """Send the projection of a request, and the request as it came if that is refused."""
        request = None if context.model.stateful else self._read(context)
        if request is None:  # the provider keeps the history
            async for event in call(context):
                yield event
            return
        shadow, stop = await self.compactor.shadow_async(request[0]), None
        while True:
            try:
                async for event in call(_changed(context, shadow, request[1])):
                    stop = event if isinstance(event, InvokeModelStage.result_event) else stop
                    yield event
                break
            except Exception as error:
                again = self.compactor.after_error(shadow, error)
                if again is None:
                    self.compactor.failed(shadow.sent)
                    raise
                shadow = again
        self.compactor.accepted(shadow.sent)
        if stop is not None:
            self.compactor.used(shadow.sent, _usage(stop.usage))

    def _read(self, context: Any) -> tuple[ShadowRequest, list[_Place]] | None:
        try:
            return _read(context)
        except Exception:  # noqa: BLE001 - law 9: a fault of respool fails no request
            _log.exception("A request could not be compacted; it is sent as it came")
            return None

    # --- loops -----------------------------------------------------------------------------

    def _heard(self, event: Any) -> None:
        if self._guard is not None:
            self._guard.heard(self._names[event.agent])

    def _ask(self, event: Any) -> None:
        """Refuse a call that only repeats."""
        if self._guard is None or event.cancel_tool:
            return
        agent, use = self._names[event.agent], event.tool_use
        cycle = event.invocation_state.get("event_loop_cycle_id")
        call = (agent, use["toolUseId"], use["name"], use["input"])
        verdict = self._guard.begin(*call, batch=cycle)
        if verdict.action == "refuse":
            event.cancel_tool = verdict.message

    def _tell(self, event: Any) -> None:
        """Record the result of a call, and append advice to it."""
        if self._guard is None or event.cancel_message:
            return
        agent, result = self._names[event.agent], event.result
        failed = result["status"] == "error"
        verdict = self._guard.end(agent, event.tool_use["toolUseId"], _text(result), failed)
        if verdict.action == "advise":
            event.result = {**result, "content": [*result["content"], {"text": verdict.message}]}


def _expand_tool(compactor: FrameworkCompactor) -> Any:
    def respool_expand(ref: str) -> str:
        return compactor.answer(ref)

    schema = {"json": dict(EXPAND_PARAMETERS)}
    make = strands.tool(name=EXPAND_TOOL, description=EXPAND_DESCRIPTION, inputSchema=schema)
    return make(respool_expand)


def _usage(used: Mapping[str, Any]) -> Usage:
    read, write = used.get("cacheReadInputTokens") or 0, used.get("cacheWriteInputTokens") or 0
    plain, output = used.get("inputTokens") or 0, used.get("outputTokens") or 0
    return Usage(input=plain, cache_read=read, cache_write=write, output=output)


# --- messages ------------------------------------------------------------------------------------


def _read(context: Any) -> tuple[ShadowRequest, list[_Place]]:
    rows: list[Row] = []
    places: list[_Place] = []
    for at, message in enumerate(context.messages):
        if message["role"] == "assistant":
            rows.append(_answer_row(message["content"]))
            places.append(_Place(at, None))
            continue
        for number, block in enumerate(message["content"]):
            result = block.get("toolResult")
            if result is None:
                rows.append(Row(role="user", text=block.get("text") or ""))
            else:
                failed, id = result.get("status") == "error", result["toolUseId"]
                rows.append(Row(role="tool", text=_text(result), call_id=id, is_error=failed))
            places.append(_Place(at, number))
    config = context.model.get_config()
    system = context.system_prompt or ""
    limits = {**config, **(config.get("params") or {})}
    request = ShadowRequest(
        rows=rows,
        model=str(config.get("model_id") or ""),
        tools=[_define(spec) for spec in context.tool_specs or ()],
        system=system if isinstance(system, str) else _joined(system),
        max_tokens=limits.get("max_tokens") or limits.get("max_output_tokens") or 0,
    )
    return request, places


def _define(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    known = {key: spec[key] for key in ("name", "description", "annotations") if spec.get(key)}
    schema = spec["inputSchema"]
    return {**known, "parameters": schema.get("json", schema)}


def _joined(blocks: list[Any]) -> str:
    return "\n".join(block["text"] for block in blocks if block.get("text"))


def _text(result: Mapping[str, Any]) -> str:
    """The text of a result, with JSON as Strands writes it."""
    texts = (
        json.dumps(block["json"], ensure_ascii=False) if "json" in block else block.get("text")
        for block in result["content"]
    )
    return "\n".join(filter(None, texts))


def _answer_row(blocks: list[Any]) -> Row:
    uses = [block["toolUse"] for block in blocks if "toolUse" in block]
    return Row(
        role="assistant",
        text=_joined(blocks),
        calls=tuple(Call(use["toolUseId"], use["name"], use["input"] or {}) for use in uses),
        reasoning=tuple(_reasoning(blocks)),
    )


def _reasoning(blocks: list[Any]) -> Iterator[str]:
    for block in blocks:
        if "reasoningContent" in block:
            signed = (block["reasoningContent"].get("reasoningText") or {}).get("signature")
            hidden = block["reasoningContent"].get("redactedContent")
            yield signed or (hidden.hex() if isinstance(hidden, bytes) else "unsigned")
        elif signed := block.get("toolUse", {}).get("reasoningSignature"):  # of Gemini
            yield signed


def _changed(context: Any, shadow: Shadow, places: list[_Place]) -> Any:
    """The context with the changes in copies of its messages."""
    if not shadow.changes:
        return context
    changes: dict[int, dict[int | None, RowChange]] = {}
    for row, change in shadow.changes.items():
        changes.setdefault(places[row].message, {})[places[row].block] = change
    kept: list[Any] = []
    for at, message in enumerate(context.messages):
        if at not in changes:
            kept.append(message)
            continue
        of = changes[at]
        change_blocks = _answer_blocks if None in of else _result_blocks
        blocks = list(change_blocks(message["content"], of))
        if not all(block.keys() in _BARE for block in blocks):
            kept.append({**message, "content": blocks})
    return context.replace(messages=kept)


def _result_blocks(blocks: list[Any], changes: Mapping[int | None, RowChange]) -> Iterator[Any]:
    """The blocks of a message with results; media in them stay."""
    for number, block in enumerate(blocks):
        change = changes.get(number)
        if change is None:
            yield block
        elif not change.is_dropped:
            result = block["toolResult"]
            media = [one for one in result["content"] if not {"text", "json"} & one.keys()]
            content = [{"text": change.text}, *media]
            yield {**block, "toolResult": {**result, "content": content}}


def _answer_blocks(blocks: list[Any], changes: Mapping[int | None, RowChange]) -> Iterator[Any]:
    """The blocks of an answer, of which Gemini signs the first call only."""
    change, number, was_signed = changes[None], -1, False
    for block in blocks:
        use = block.get("toolUse")
        if use is None:
            if not ("reasoningContent" in block and change.drops_reasoning):
                yield block
            continue
        number += 1
        if number in change.dropped_calls:
            was_signed = was_signed or "reasoningSignature" in use
            continue
        if number in change.arguments:
            use = {**use, "input": dict(change.arguments[number])}
        if was_signed:
            use, was_signed = {"reasoningSignature": _UNSIGNED, **use}, False
        yield {**block, "toolUse": use}


__all__ = ["CompactionPlugin"]
