# pyright: basic, reportMissingImports=false
"""Compaction for agents of Pydantic AI, as a capability.

>>> agent = Agent(model, capabilities=[Compaction()])  # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, NoReturn

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
    Row,
    RowChange,
    Shadow,
    ShadowRequest,
)

require("pydantic-ai-slim", "2.64.0")

from pydantic_ai import (  # noqa: E402
    FunctionToolset,
    ModelRetry,
    RetryModelRequest,
    Tool,
    ToolFailed,
    ToolReturn,
)
from pydantic_ai.capabilities import AbstractCapability  # noqa: E402
from pydantic_ai.exceptions import ToolFailedError, ToolRetryError  # noqa: E402
from pydantic_ai.messages import (  # noqa: E402
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

_SERVER_HISTORY: Final = ("openai_previous_response_id", "openai_conversation_id")
_MAX_PENDING: Final = 256  # requests without a response yet; others were abandoned
_ERRORS: Final = ("failed", "retried")
_RETRIES: Final = (ModelRetry, ToolRetryError)
_TOOL_ERRORS: Final = (*_RETRIES, ToolFailed, ToolFailedError)


class _Place(NamedTuple):
    """Where a row comes from; without a part it is a response."""

    message: int
    part: int | None


class Compaction(AbstractCapability[Any]):
    """Sends the projection of an agent's messages; its history keeps them whole.

    With `loops`, a call that repeats without effect is advised on in its result, then refused.
    """

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
        self.compactor = build_compactor(compactor, policy, store, deadline)
        self._expand = expand
        self._guard = LoopGuard(self.compactor.policy.tools) if loops else None
        self._pending: dict[tuple[str, int], Shadow] = {}  # by run and step

    def get_toolset(self) -> FunctionToolset[Any] | None:
        """The expand tool."""
        if not self._expand:
            return None

        def answer(ref: object = "", **_: object) -> str:  # the schema is not enforced
            return self.compactor.answer(str(ref))

        tool = Tool.from_schema(answer, EXPAND_TOOL, EXPAND_DESCRIPTION, dict(EXPAND_PARAMETERS))
        return FunctionToolset([tool])

    def __call__(self, *_: Any) -> NoReturn:
        """Refuse to be a history processor, whose result would be stored."""
        raise WrongUse("Compaction is a capability: Agent(…, capabilities=[Compaction()]).")

    async def prepare_model_request(self, ctx: Any, request_context: Any) -> Any:
        """Put the projection in place of the messages, or after a refusal what is sent instead."""
        key = (ctx.run_id or "", ctx.run_step)
        if _is_server_held(request_context):
            self._pending.pop(key, None)
            return request_context
        request, places = _read(request_context)
        shadow = self._pending.get(key)
        if shadow is None or not shadow.sent.retried or request_context.attempt == 1:
            shadow = await self.compactor.shadow_async(request)
            while len(self._pending) >= _MAX_PENDING:
                self._pending.pop(next(iter(self._pending)), None)
            self._pending[key] = shadow
        if not shadow.changes:
            return request_context
        return replace(request_context, messages=_changed(request_context, shadow, places))

    async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
        """Learn from the response."""
        shadow = self._pending.pop((ctx.run_id or "", ctx.run_step), None)
        if shadow is not None:
            self.compactor.accepted(shadow.sent)
            self.compactor.used(shadow.sent, _usage(response.usage))
        return response

    async def on_model_request_error(
        self, ctx: Any, *, request_context: Any, error: Exception
    ) -> Any:
        """Send a request as it came if its projection was refused."""
        key = (ctx.run_id or "", ctx.run_step)
        shadow = self._pending.pop(key, None)
        if shadow is not None:
            again = self.compactor.after_error(shadow, error)
            if again is not None:
                self._pending[key] = again
                raise RetryModelRequest from error
            self.compactor.failed(shadow.sent)
        raise error

    async def wrap_tool_execute(
        self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        """Refuse a call that repeats without effect, or advise on it in its result."""
        guard = self._guard
        if guard is None or tool_def.tool_kind is not None:
            return await handler(args)
        run, name, batch = ctx.run_id or "", call.tool_name, ctx.run_step
        verdict = guard.ask(run, name, args, batch=batch)
        if verdict.action == "refuse":
            return verdict.message
        try:
            result = await handler(args)
        except _TOOL_ERRORS as error:
            guard.tell(run, name, args, str(error), error=True, batch=batch)
            if verdict.action != "advise":
                raise
            kind = ModelRetry if isinstance(error, _RETRIES) else ToolFailed
            raise kind(with_advice(str(error), verdict)) from error
        part = ToolReturnPart(name, getattr(result, "return_value", result))
        text = part.model_response_str()
        guard.tell(run, name, args, text, batch=batch)
        if verdict.action != "advise" or part.files:
            return result
        advised = with_advice(text, verdict)
        return replace(result, return_value=advised) if isinstance(result, ToolReturn) else advised


def _is_server_held(context: Any) -> bool:
    """True if the provider keeps the history, or goes on with an answer that it suspended."""
    model = context.model
    settings = {**(getattr(model, "settings", None) or {}), **(context.model_settings or {})}
    is_socket = settings.get("openai_transport") == "websocket"
    last = context.messages[-1] if context.messages else None
    return (
        is_socket
        or any(settings.get(key) for key in _SERVER_HISTORY)
        or getattr(last, "state", None) == "suspended"
    )


def _usage(used: Any) -> Usage:
    read, write = used.cache_read_tokens or 0, used.cache_write_tokens or 0
    plain = max(0, (used.input_tokens or 0) - read - write)
    return Usage(input=plain, cache_read=read, cache_write=write, output=used.output_tokens or 0)


# --- messages ------------------------------------------------------------------------------------


def _read(context: Any) -> tuple[ShadowRequest, list[_Place]]:
    rows: list[Row] = []
    places: list[_Place] = []
    for at, message in enumerate(context.messages):
        if isinstance(message, ModelResponse):
            rows.append(_answer_row(message))
            places.append(_Place(at, None))
            continue
        for number, part in enumerate(message.parts):
            if (row := _row(part)) is not None:
                rows.append(row)
                places.append(_Place(at, number))
    given, settings = context.model_request_parameters, context.model_settings or {}
    request = ShadowRequest(
        rows=rows,
        model=context.model.model_name,
        tools=[_define(tool) for tool in (*given.function_tools, *given.output_tools)],
        system="\n\n".join(part.content for part in given.instruction_parts or ()),
        max_tokens=settings.get("max_tokens") or 0,
    )
    return request, places


def _define(tool: Any) -> Mapping[str, Any]:
    known = (tool.metadata or {}).get("annotations")  # of MCP tools
    described = {"description": tool.description} if tool.description else {}
    hints = {"annotations": known} if isinstance(known, dict) else {}
    return {"name": tool.name, **described, **hints, "parameters": tool.parameters_json_schema}


def _row(part: Any) -> Row | None:
    """The row of a request's part; None: nothing of it may change, and nothing depends on it."""
    match part:
        case ToolReturnPart(tool_kind=None):
            text = "" if part.files else part.model_response_str(wrap_if_error=False)
            failed = part.outcome in _ERRORS
            return Row(role="tool", text=text, call_id=part.tool_call_id, is_error=failed)
        case SystemPromptPart():
            return Row(role="system", text=part.content)
        case UserPromptPart():
            content = [part.content] if isinstance(part.content, str) else part.content
            texts = (getattr(one, "content", one) for one in content)
            return Row(role="user", text="\n".join(one for one in texts if isinstance(one, str)))
        case _:
            return None


def _answer_row(message: Any) -> Row:
    calls = (Call(one.tool_call_id, one.tool_name, one.args or {}) for one in _calls(message))
    return Row(
        role="assistant",
        text="".join(part.content for part in message.parts if isinstance(part, TextPart)),
        calls=tuple(calls),
        reasoning=tuple(_reasoning(message)),
    )


def _calls(message: Any) -> Iterator[Any]:
    """The calls that may go; one with a kind (it loads tools) may not."""
    for part in message.parts:
        if isinstance(part, ToolCallPart) and part.tool_kind is None:
            yield part


def _reasoning(message: Any) -> Iterator[str]:
    for part in message.parts:
        if isinstance(part, ThinkingPart):
            yield part.signature or part.id or "unsigned"
        elif signed := (getattr(part, "provider_details", None) or {}).get("thought_signature"):
            yield str(signed)


def _changed(context: Any, shadow: Shadow, places: list[_Place]) -> list[Any]:
    """The messages with the changes in copies of them."""
    changes: dict[int, dict[int | None, RowChange]] = {}
    for row, change in shadow.changes.items():
        changes.setdefault(places[row].message, {})[places[row].part] = change
    kept: list[Any] = []
    for at, message in enumerate(context.messages):
        if at not in changes:
            kept.append(message)
            continue
        if isinstance(message, ModelResponse):
            parts = list(_answer_parts(message, changes[at][None]))
            is_bare = all(isinstance(part, ThinkingPart) for part in parts)
        else:
            parts = list(_request_parts(message, changes[at]))
            is_bare = not parts
        if not is_bare:
            kept.append(replace(message, parts=parts))
    return kept


def _request_parts(message: Any, changes: Mapping[int | None, RowChange]) -> Iterator[Any]:
    for number, part in enumerate(message.parts):
        change = changes.get(number)
        if change is None:
            yield part
        elif not change.is_dropped:
            files = part.files  # which stay
            yield replace(part, content=[change.text, *files] if files else change.text)


def _answer_parts(message: Any, change: RowChange) -> Iterator[Any]:
    numbers = {id(call): number for number, call in enumerate(_calls(message))}
    for part in message.parts:
        number = numbers.get(id(part))
        if number in change.dropped_calls or (
            change.drops_reasoning and isinstance(part, ThinkingPart)
        ):
            continue
        # An item with an id stands for the server's own copy, and asks for the reasoning before it.
        if number is not None and number in change.arguments:
            yield replace(part, args=dict(change.arguments[number]), id=None)
        elif change.drops_reasoning and getattr(part, "id", None) and number is not None:
            yield replace(part, id=None)
        else:
            yield part


__all__ = ["Compaction"]
