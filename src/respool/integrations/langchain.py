# pyright: basic, reportMissingImports=false
"""Compaction for agents of LangChain, LangGraph and deepagents, as a middleware.

>>> agent = create_agent(model, tools, middleware=[CompactionMiddleware()])  # doctest: +SKIP
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

from ..policy import Policy
from ..pricing import Usage
from ..store import DecisionStore
from .loop_guard import LoopGuard, with_advice
from .requirement import WrongUse, build_compactor, require
from .shadow import (
    EXPAND_DESCRIPTION,
    EXPAND_PARAMETERS,
    EXPAND_TOOL,
    Call,
    FrameworkCompactor,
    Role,
    Row,
    RowChange,
    Shadow,
    ShadowRequest,
)

require("langchain", "1.0.0")

from langchain.agents.middleware import AgentMiddleware  # noqa: E402
from langchain_core.messages import ToolMessage  # noqa: E402
from langchain_core.tools import BaseTool, StructuredTool  # noqa: E402
from langchain_core.utils.function_calling import convert_to_openai_tool  # noqa: E402

_ROLES: Final[Mapping[str, Role]] = {"ai": "assistant", "system": "system", "tool": "tool"}
_CALL_BLOCKS: Final = ("tool_use", "function_call", "custom_tool_call", "tool_call")
_REASONING_BLOCKS: Final = ("thinking", "redacted_thinking", "reasoning")
_THOUGHT_SIGNATURES: Final = "__gemini_function_call_thought_signatures__"
_SERVER_HISTORY: Final = ("previous_response_id", "conversation")
_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


class CompactionMiddleware(AgentMiddleware):
    """Sends the projection of an agent's messages; its state keeps them whole.

    Put it last in the list, so that other middleware sees the messages as they are. With `loops`,
    calls that repeat without progress are advised on in their results, and in the end refused.
    """

    def __new__(cls, *_: Any, loops: bool = False, **__: Any) -> CompactionMiddleware:
        """An instance with hooks around tools only if loops are watched for.

        create_agent looks for them on the class, and does not check its tools where it finds them.
        """
        return super().__new__(type(cls.__name__, (_LoopHooks, cls), {}) if loops else cls)

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
        self.guard = LoopGuard(self.compactor.policy.tools) if loops else None
        self.tools = [_expand_tool(self.compactor)] if expand else []
        self._definitions: tuple[list[Any], list[dict[str, Any]]] = ([], [])

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Send the projection of a request, and the request as it came if that is refused."""
        if _is_server_held(request):
            return handler(request)
        return self.compactor.send(
            self._read(request), lambda shadow: handler(_changed(request, shadow)), _usage_of
        )

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """The same for agents that run asynchronously."""
        if _is_server_held(request):
            return await handler(request)
        return await self.compactor.send_async(
            self._read(request), lambda shadow: handler(_changed(request, shadow)), _usage_of
        )

    def _read(self, request: Any) -> ShadowRequest:
        model, settings = request.model, request.model_settings
        name = settings.get("model") or _first(model, "model_name", "model", "model_id")
        limit = settings.get("max_tokens") or _first(model, "max_tokens", "max_output_tokens")
        known, definitions = self._definitions
        if len(known) != len(request.tools) or any(map(_is_other, known, request.tools)):
            definitions = list(_define(request.tools))
            self._definitions = (list(request.tools), definitions)
        return ShadowRequest(
            rows=[_row(message) for message in request.messages],
            model=str(name or ""),
            tools=definitions,
            system=str(request.system_prompt or ""),
            max_tokens=limit if isinstance(limit, int) else 0,
        )


def _expand_tool(compactor: FrameworkCompactor) -> BaseTool:
    return StructuredTool.from_function(
        compactor.answer,
        name=EXPAND_TOOL,
        description=EXPAND_DESCRIPTION,
        args_schema=dict(EXPAND_PARAMETERS),
        metadata={"readOnlyHint": True},
    )


def _is_server_held(request: Any) -> bool:
    """True if the provider keeps the history, and the messages before its last answer stay here."""
    if not hasattr(request, "override"):
        raise WrongUse("CompactionMiddleware goes into create_agent(…, middleware=[…]).")
    settings = {**(getattr(request.model, "model_kwargs", None) or {}), **request.model_settings}
    held = getattr(request.model, "use_previous_response_id", False)
    return bool(held) or any(settings.get(key) for key in _SERVER_HISTORY)


def _first(holder: object, *names: str) -> Any:
    return next((found for name in names if (found := getattr(holder, name, None))), None)


def _is_other(one: object, other: object) -> bool:
    return one is not other


def _define(tools: list[Any]) -> Iterator[dict[str, Any]]:
    for tool in tools:
        try:
            made = convert_to_openai_tool(tool).get("function")
        except Exception:  # noqa: BLE001, S112 - a provider's own tool has no definition here
            continue
        if made:
            known = getattr(tool, "metadata", None) or {}  # of MCP tools: the server's annotations
            hints = {key: known[key] for key in _HINTS if key in known}
            yield {**made, "annotations": hints} if hints else made


def _usage_of(response: Any) -> Usage | None:
    answer = getattr(response, "model_response", response)
    messages = reversed(getattr(answer, "result", [answer]))
    return next((_usage(one) for it in messages if (one := _first(it, "usage_metadata"))), None)


def _usage(used: Mapping[str, Any]) -> Usage:
    details = used.get("input_token_details") or {}
    hour = details.get("ephemeral_1h_input_tokens") or 0
    short = details.get("ephemeral_5m_input_tokens") or 0
    read, write = details.get("cache_read") or 0, details.get("cache_creation") or hour + short
    plain = max(0, (used.get("input_tokens") or 0) - read - write)
    output = used.get("output_tokens") or 0
    return Usage(
        input=plain, cache_read=read, cache_write=write, cache_write_1h=hour, output=output
    )


# --- loops ---------------------------------------------------------------------------------------


class _LoopHooks(AgentMiddleware):
    """The hooks around tool calls that watch for loops."""

    guard: LoopGuard

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Make a call and append advice to its result, or refuse it."""
        call = _GuardedCall(self.guard, request)
        return call.refusal or call.advised(handler(request))

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """The same for agents that run asynchronously."""
        call = _GuardedCall(self.guard, request)
        return call.refusal or call.advised(await handler(request))


class _GuardedCall:
    """A tool call and the verdict on it."""

    def __init__(self, guard: LoopGuard, request: Any) -> None:
        self._guard, self._call = guard, request.tool_call
        messages = request.state["messages"]
        asked = next((one.id for one in reversed(messages) if one.type == "human"), "")
        thread = (request.runtime.config.get("configurable") or {}).get("thread_id", "")
        self._key = f"{thread}/{asked}"  # what the user says gives repeated calls a new reason
        self._batch = next((one.id for one in reversed(messages) if one.type == "ai"), None)
        self._verdict = guard.ask(
            self._key, self._call["name"], self._call["args"], batch=self._batch
        )

    @property
    def refusal(self) -> ToolMessage | None:
        """The message in place of a result; None: the call is to be made."""
        if self._verdict.action != "refuse":
            return None
        id, name = self._call["id"], self._call["name"]
        return ToolMessage(self._verdict.message, tool_call_id=id, name=name, status="error")

    def advised(self, result: Any) -> Any:
        """Record the result of the call; return it, with advice if there is any."""
        if not isinstance(result, ToolMessage):  # commands to the graph
            return result
        name, arguments, failed = self._call["name"], self._call["args"], result.status == "error"
        said = str(result.text) or result.content
        self._guard.tell(self._key, name, arguments, said, failed, batch=self._batch)
        if self._verdict.action != "advise":
            return result
        content = result.content
        if isinstance(content, str):
            return result.model_copy(update={"content": with_advice(content, self._verdict)})
        advice = {"type": "text", "text": self._verdict.message}
        return result.model_copy(update={"content": [*content, advice]})


# --- messages ------------------------------------------------------------------------------------


def _row(message: Any) -> Row:
    role: Role = _ROLES.get(message.type, "user")
    text = str(message.text)
    if role == "tool":
        failed = message.status == "error"
        return Row(role=role, text=text, call_id=message.tool_call_id, is_error=failed)
    if role != "assistant":
        return Row(role=role, text=text)
    calls = tuple(
        Call(call["id"] or "", call["name"] or "", call["args"] or "")
        for call in (*message.tool_calls, *message.invalid_tool_calls)
    )
    return Row(role=role, text=text, calls=calls, reasoning=tuple(_reasoning(message)))


def _reasoning(message: Any) -> Iterator[str]:
    for block in _blocks(message):
        if block.get("type") in _REASONING_BLOCKS:
            extras = block.get("extras") or {}
            names = ("signature", "encrypted_content", "data", "id")
            found = (block.get(name) or extras.get(name) for name in names)
            yield str(next(filter(None, found), "unsigned"))
    yield from map(str, (message.additional_kwargs.get(_THOUGHT_SIGNATURES) or {}).values())
    if held := message.additional_kwargs.get("reasoning"):
        yield str(held.get("encrypted_content") or held.get("id"))


def _blocks(message: Any) -> Iterator[dict[str, Any]]:
    if isinstance(message.content, list):
        yield from (block for block in message.content if isinstance(block, dict))


def _changed(request: Any, shadow: Shadow) -> Any:
    """The request with the changes in copies of its messages."""
    if not shadow.changes:
        return request
    kept: list[Any] = []
    for at, message in enumerate(request.messages):
        change = shadow.changes.get(at)
        if change is None:
            kept.append(message)
        elif not change.empties(shadow.request.rows[at]):
            is_answer = message.type == "ai"
            kept.append(_answer(message, change) if is_answer else _result(message, change))
    return request.override(messages=kept)


def _result(message: Any, change: RowChange) -> Any:
    """A result with its new text; media that it also holds stay."""
    media = [block for block in _blocks(message) if block.get("type") != "text"]
    content = [{"type": "text", "text": change.text}, *media] if media else change.text
    return message.model_copy(update={"content": content})


def _answer(message: Any, change: RowChange) -> Any:
    """An answer without its dropped calls; each stands in `tool_calls` and often in the content."""
    every = (*message.tool_calls, *message.invalid_tool_calls)
    gone = {every[at]["id"] for at in change.dropped_calls}
    new = {every[at]["id"]: dict(arguments) for at, arguments in change.arguments.items()}
    update: dict[str, Any] = {
        "tool_calls": [
            {**call, "args": new[call["id"]]} if call["id"] in new else call
            for call in message.tool_calls
            if call["id"] not in gone
        ],
        "invalid_tool_calls": [
            call for call in message.invalid_tool_calls if call["id"] not in gone
        ],
    }
    if isinstance(message.content, list):
        blocks = (_block(block, gone, new, change.drops_reasoning) for block in message.content)
        update["content"] = [block for block in blocks if block is not None]
    raw = {"tool_calls", "function_call"} | ({"reasoning"} if change.drops_reasoning else set())
    update["additional_kwargs"] = {
        key: value for key, value in message.additional_kwargs.items() if key not in raw
    }
    return message.model_copy(update=update)


def _block(block: Any, gone: set[Any], new: Mapping[Any, Any], drops_reasoning: bool) -> Any:
    """A block as it goes out; None: it does not."""
    kind = block.get("type") if isinstance(block, dict) else None
    if kind in _REASONING_BLOCKS:
        return None if drops_reasoning else block
    if kind == "function_call_signature":  # names its call by position
        return None if gone else block
    if kind not in _CALL_BLOCKS:
        return block
    id = block.get("call_id") or block.get("id")
    if id in gone:
        return None
    if id not in new and not drops_reasoning:
        return block
    # An item with an id stands for the server's own copy, and asks for the reasoning before it.
    hidden = ("id",) if "call_id" in block else ("extras", "partial_json")
    block = {key: value for key, value in block.items() if key not in hidden}
    if id in new:
        name = {"tool_use": "input", "tool_call": "args"}.get(kind, "arguments")
        block[name] = json.dumps(new[id]) if name == "arguments" else new[id]
    return block


__all__ = ["CompactionMiddleware"]
