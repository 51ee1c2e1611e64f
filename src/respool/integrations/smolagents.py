# pyright: basic, reportMissingImports=false
"""Compaction for agents of smolagents, as a model around another one.

>>> agent = ToolCallingAgent(tools, CompactionModel(OpenAIModel("gpt-5.2")))  # doctest: +SKIP

smolagents writes calls and results as plain text, so no provider sees them as such. Here they
still have their own roles, and each step's calls share one observation.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ..policy import Policy
from ..pricing import Usage
from ..store import DecisionStore
from .requirement import WrongUse, build_compactor, require
from .shadow import (
    EXPAND_ARGUMENT,
    EXPAND_DESCRIPTION,
    EXPAND_TOOL,
    Call,
    FrameworkCompactor,
    Row,
    RowChange,
    Shadow,
    ShadowRequest,
)

require("smolagents", "1.24.0")

from smolagents import Tool  # noqa: E402
from smolagents.models import (  # noqa: E402
    ChatMessage,
    MessageRole,
    Model,
    get_tool_json_schema,
)

_CALLS: Final = "Calling tools:\n"
_OBSERVATION: Final = "Observation:\n"
_TOGETHER: Final = "parallel_calls"  # several calls, whose results cannot be told apart
_CODE: Final = "code"  # stands for the argument of a CodeAgent's call, which is a text


class CompactionModel(Model):
    """Sends the projection of an agent's messages; its memory keeps them whole."""

    def __init__(
        self,
        model: Model,
        policy: Policy | str | None = None,
        *,
        store: DecisionStore | str | os.PathLike[str] | None = None,
        deadline: float | None = None,
        compactor: FrameworkCompactor | None = None,
    ) -> None:
        if not isinstance(model, Model):
            name = type(model).__name__
            raise WrongUse(f"{name} is no model of smolagents: CompactionModel(OpenAIModel(…)).")
        self.model = model
        self.compactor = build_compactor(compactor, policy, store, deadline)

    def __getattr__(self, name: str) -> Any:
        """All else is the model's; it may have no `generate_stream`, which agents ask for."""
        if name.startswith("__") or name == "model":
            raise AttributeError(name)
        found = getattr(self.model, name)
        return partial(self._stream, found) if name == "generate_stream" else found

    @property
    def expand_tool(self) -> Tool:
        """The expand tool, for the `tools` of an agent."""
        return _ExpandTool(self.compactor)

    def generate(self, messages: list[Any], *args: Any, **kwargs: Any) -> ChatMessage:
        """Send the projection of a request, and the request as it came if that is refused."""
        return self.compactor.send(
            self._read(messages, kwargs),
            lambda shadow: self.model.generate(_changed(messages, shadow), *args, **kwargs),
            lambda answer: _usage(answer.token_usage),
        )

    def _stream(
        self, generate: Callable[..., Iterator[Any]], messages: list[Any], **kwargs: Any
    ) -> Iterator[Any]:
        """The same as a stream; it is refused, if at all, before its first part."""
        shadows: list[Shadow] = []

        def begin(shadow: Shadow) -> tuple[list[Any], Iterator[Any]]:
            shadows.append(shadow)
            parts = iter(generate(_changed(messages, shadow), **kwargs))
            return [part for part in (next(parts, None),) if part is not None], parts

        first, rest = self.compactor.send(self._read(messages, kwargs), begin, lambda _: None)
        for parts in (first, rest):
            for part in parts:
                self.compactor.used(shadows[-1].sent, _usage(part.token_usage))
                yield part

    def to_dict(self) -> dict[str, Any]:
        """The settings of the model inside."""
        return self.model.to_dict()

    def _read(self, messages: Sequence[Any], kwargs: Mapping[str, Any]) -> ShadowRequest:
        tools = [get_tool_json_schema(tool) for tool in kwargs.get("tools_to_call_from") or ()]
        limit = self.model.kwargs.get("max_tokens")
        return ShadowRequest(
            rows=list(_rows(messages)),
            model=str(self.model.model_id or ""),
            tools=[tool["function"] for tool in tools],
            max_tokens=limit if isinstance(limit, int) else 0,
        )


class _ExpandTool(Tool):
    name = EXPAND_TOOL
    description = EXPAND_DESCRIPTION
    inputs = {"ref": {"type": "string", "description": EXPAND_ARGUMENT}}  # noqa: RUF012
    output_type = "string"

    def __init__(self, compactor: FrameworkCompactor) -> None:
        super().__init__()
        self._compactor = compactor

    def forward(self, ref: str) -> str:
        """The original behind a marker."""
        return self._compactor.answer(ref)


def _usage(used: Any) -> Usage | None:
    if used is None:
        return None
    return Usage(input=used.input_tokens or 0, output=used.output_tokens or 0)


# --- messages ------------------------------------------------------------------------------------


def _rows(messages: Sequence[Any]) -> Iterator[Row]:
    """A row for each message; an error of smolagents after a call is no result of it."""
    open_call = ""
    for at, message in enumerate(messages):
        text, role = _text(message), _role(message)
        call = _call(text, at) if role == MessageRole.TOOL_CALL else None
        if call is not None:
            open_call = call.id
            yield Row(role="assistant", calls=(call,))
        elif role == MessageRole.TOOL_RESPONSE and open_call and text.startswith(_OBSERVATION):
            yield Row(role="tool", text=text.removeprefix(_OBSERVATION), call_id=open_call)
            open_call = ""
        elif role in (MessageRole.ASSISTANT, MessageRole.TOOL_CALL):
            yield Row(role="assistant", text=text)
        else:
            yield Row(role="system" if role == MessageRole.SYSTEM else "user", text=text)


def _role(message: Any) -> str:
    return message["role"] if isinstance(message, dict) else message.role


def _text(message: Any) -> str:
    content = message.get("content") if isinstance(message, dict) else message.content
    if not isinstance(content, list):
        return content or ""
    return "\n".join(block["text"] for block in content if block.get("type") == "text")


def _calls(text: str) -> list[dict[str, Any]]:
    """The calls in a message, which is the text of a Python list."""
    try:
        found = ast.literal_eval(text.removeprefix(_CALLS))
        return [one for one in found if isinstance(one["function"]["name"], str)]
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError):
        return []


def _call(text: str, at: int) -> Call | None:
    found = _calls(text)
    if not found:
        return None
    if len(found) > 1:
        return Call(f"step_{at}", _TOGETHER, {"calls": [one["function"] for one in found]})
    function = found[0]["function"]
    arguments = function["arguments"]
    is_object = isinstance(arguments, dict)
    return Call(f"step_{at}", function["name"], arguments if is_object else {_CODE: str(arguments)})


def _changed(messages: list[Any], shadow: Shadow) -> list[Any]:
    """The messages with the changes in copies of them."""
    if not shadow.changes:
        return messages
    kept: list[Any] = []
    for at, message in enumerate(messages):
        change = shadow.changes.get(at)
        if change is None:
            kept.append(message)
        elif not change.empties(shadow.request.rows[at]):
            kept.append(_with_text(message, _new_text(_text(message), change)))
    return kept


def _new_text(text: str, change: RowChange) -> str:
    if change.text is not None:
        return _OBSERVATION + change.text
    calls, arguments = _calls(text), dict(change.arguments.get(0, {}))
    if len(calls) != 1:  # what several calls were asked for stays
        return text
    [call] = calls
    is_object = isinstance(call["function"]["arguments"], dict)
    new = arguments if is_object else arguments.get(_CODE, str(arguments))
    return _CALLS + str([{**call, "function": {**call["function"], "arguments": new}}])


def _with_text(message: Any, text: str) -> Any:
    content = [{"type": "text", "text": text}]
    if isinstance(message, dict):
        return {**message, "content": content}
    return replace(message, content=content)


__all__ = ["CompactionModel"]
