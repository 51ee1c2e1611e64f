# pyright: basic, reportMissingImports=false
"""Compaction for evaluations and agents of Inspect, as hooks that `enable` registers.

>>> compaction = enable()  # doctest: +SKIP
"""

from __future__ import annotations

import dataclasses
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Final, Literal, NamedTuple

from ..policy import Policy
from ..pricing import Usage
from ..store import DecisionStore
from .loop_guard import MAX_CONVERSATIONS, LoopGuard
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
    lacks_calls,
)

require("inspect-ai", "0.3.280")

from inspect_ai.approval import Approval, Approver, approver  # noqa: E402
from inspect_ai.hooks import BeforeModelGenerate, Hooks, ModelUsageData, hooks  # noqa: E402
from inspect_ai.model import ContentReasoning, ContentText  # noqa: E402
from inspect_ai.tool import Tool, ToolDef  # noqa: E402

_NATIVE_CALLS: Final = ("computer", "tool_search")  # items of their own kind at the provider
_NAME: Final = "compaction"
_DESCRIPTION: Final = "Sends smaller projections of messages; respool.integrations.inspect_ai"


class _Sent(NamedTuple):
    """A request of this context: Inspect's list, what it held, and the decision."""

    input: list[Any]
    messages: list[Any]
    shadow: Shadow


class Compaction(Hooks):
    """Sends the projection of messages to every model; the state of samples keeps them whole.

    `enable` makes and registers it. Events of the log show what was sent.
    """

    def __init__(self, compactor: FrameworkCompactor) -> None:
        self.compactor = compactor
        self.is_enabled = True
        self._sent: ContextVar[_Sent | None] = ContextVar("respool_sent", default=None)

    def enabled(self) -> bool:
        """True unless it was switched off."""
        return self.is_enabled

    @property
    def expand_tool(self) -> Tool:
        """The expand tool, for the tools of a solver or an agent."""

        async def answer(ref: str) -> str:
            return self.compactor.answer(ref)

        described = {"ref": EXPAND_ARGUMENT}
        return ToolDef(answer, EXPAND_TOOL, EXPAND_DESCRIPTION, described).as_tool()

    def loop_approver(self, otherwise: Literal["approve", "escalate"] = "approve") -> Approver:
        """Reject calls that repeat without effect; `otherwise` is the decision on other calls."""
        return _loop_approver(LoopGuard(self.compactor.policy.tools), otherwise)

    async def on_before_model_generate(self, data: BeforeModelGenerate) -> None:
        """Put the projection in place of the messages."""
        before = self._sent.get()
        self._sent.set(None)
        if before is not None and before.input is data.input:  # the request is tried again
            data.input[:] = before.messages
        messages = list(data.input)
        request = _read(data, messages)
        if lacks_calls(request.rows):
            return
        shadow = await self.compactor.shadow_async(request)
        self._sent.set(_Sent(data.input, messages, shadow))
        if shadow.changes:
            data.input[:] = _changed(messages, shadow)

    async def on_model_usage(self, data: ModelUsageData) -> None:
        """Learn from the response to the request of this context."""
        sent = self._sent.get()
        self._sent.set(None)
        if sent is not None:
            self.compactor.accepted(sent.shadow.sent)
            self.compactor.used(sent.shadow.sent, _usage(data.usage))


def enable(
    policy: Policy | str | None = None,
    *,
    store: DecisionStore | str | os.PathLike[str] | None = None,
    deadline: float | None = None,
    compactor: FrameworkCompactor | None = None,
) -> Compaction:
    """Compact the requests of every model in this process; a later call replaces an earlier one."""
    if callable(policy):
        raise WrongUse("enable is no decorator: call enable() beside the task.")
    found = build_compactor(compactor, policy, store, deadline)
    made: list[Compaction] = []

    class Registered(Compaction):
        def __init__(self) -> None:
            super().__init__(found)
            made.append(self)

    hooks(_NAME, _DESCRIPTION)(Registered)
    return made[0]


def _usage(used: Any) -> Usage:
    return Usage(
        input=used.input_tokens,
        cache_read=used.input_tokens_cache_read or 0,
        cache_write=used.input_tokens_cache_write or 0,
        output=used.output_tokens,
    )


# --- messages ------------------------------------------------------------------------------------


def _read(data: BeforeModelGenerate, messages: list[Any]) -> ShadowRequest:
    return ShadowRequest(
        rows=[_row(message) for message in messages],
        model=data.model_name,
        tools=[
            {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters.model_dump(exclude_none=True),
            }
            for tool in data.tools
        ],
        max_tokens=data.config.max_tokens or 0,
    )


def _row(message: Any) -> Row:
    if message.role == "tool":
        error = message.error
        text = message.text if error is None else error.message
        return Row(role="tool", text=text, call_id=message.tool_call_id or "", is_error=bool(error))
    if message.role != "assistant":
        return Row(role=message.role, text=message.text)
    calls = (Call(one.id, one.function, one.arguments) for one in message.tool_calls or ())
    return Row(
        role="assistant",
        text=message.text,
        calls=tuple(calls),
        reasoning=tuple(_reasoning(message)),
    )


def _reasoning(message: Any) -> Iterator[str]:
    for content in _contents(message):
        if isinstance(content, ContentReasoning):
            hidden = content.reasoning if content.redacted else None
            yield hidden or content.signature or content.reasoning or "unsigned"


def _contents(message: Any) -> list[Any]:
    return message.content if isinstance(message.content, list) else []


def _changed(messages: list[Any], shadow: Shadow) -> Iterator[Any]:
    """The messages with the changes in copies of them."""
    renamed: dict[str, str] = {}
    for at, message in enumerate(messages):
        change = shadow.changes.get(at)
        if message.role == "tool":
            if change is None or not change.is_dropped:
                id = renamed.pop(message.tool_call_id, None)
                yield _result(message, None if change is None else change.text, id)
        elif change is None:
            yield message
        elif not change.empties(shadow.request.rows[at]):
            yield _answer(message, change, renamed)


def _result(message: Any, text: str | None, id: str | None) -> Any:
    """A result with its new text, if any; media that it also holds stay."""
    update: dict[str, Any] = {} if id is None else {"tool_call_id": id}
    if text is not None:
        media = [one for one in _contents(message) if not isinstance(one, ContentText)]
        update["content"] = [ContentText(text=text), *media] if media else text
        if message.error is not None:
            update["error"] = dataclasses.replace(message.error, message=text)
    return message.model_copy(update=update) if update else message


def _answer(message: Any, change: RowChange, renamed: dict[str, str]) -> Any:
    """An answer without what goes, its calls under new ids.

    For OpenAI's Responses, Inspect keeps a call as it came under its id, and would send that: with
    the arguments it had, and the id of an item that asks for the reasoning before it.
    """
    calls: list[Any] = []
    for number, call in enumerate(message.tool_calls or ()):
        if number in change.dropped_calls:
            continue
        is_changed = number in change.arguments or change.drops_reasoning
        if is_changed and call.type == "function" and call.function not in _NATIVE_CALLS:
            arguments = dict(change.arguments.get(number, call.arguments))
            renamed[call.id] = f"{call.id}_r"
            calls.append(dataclasses.replace(call, id=renamed[call.id], arguments=arguments))
        else:
            calls.append(call)
    update: dict[str, Any] = {"tool_calls": calls or None}
    if change.drops_reasoning:
        kept = (one for one in _contents(message) if not isinstance(one, ContentReasoning))
        update["content"] = list(kept)
    return message.model_copy(update=update)


# --- loops ---------------------------------------------------------------------------------------


class _History:
    """Calls of a conversation that were told to the guard."""

    def __init__(self) -> None:
        self.messages = 0  # which were read
        self.calls: dict[str, tuple[Any, Any]] = {}  # without a result yet, each with its batch


def _loop_approver(guard: LoopGuard, otherwise: str) -> Approver:
    known: OrderedDict[str, _History] = OrderedDict()

    @approver(name="respool_loops")
    def build(otherwise: str) -> Approver:
        async def approve(message: str, call: Any, view: Any, history: list[Any]) -> Approval:
            name = str(history[0].id) if history else ""
            _tell(guard, name, known.setdefault(name, _History()), history)
            known.move_to_end(name)
            if len(known) > MAX_CONVERSATIONS:
                known.popitem(last=False)
            _, batch = known[name].calls.get(call.id, (None, None))
            verdict = guard.ask(name, call.function, call.arguments, batch=batch)
            if verdict.action == "refuse":
                return Approval(decision="reject", explanation=verdict.message)
            return Approval(decision=otherwise, explanation="It is no loop.")

        return approve

    return build(otherwise)


def _tell(guard: LoopGuard, name: str, known: _History, history: list[Any]) -> None:
    for message in history[known.messages :]:
        if message.role == "user":
            guard.heard(name)
        elif message.role == "assistant":
            known.calls.update({one.id: (one, message.id) for one in message.tool_calls or ()})
        elif message.role == "tool":
            call, batch = known.calls.pop(message.tool_call_id, (None, None))
            error = message.error
            if call is None or (error is not None and error.type == "approval"):
                continue  # a refused call was not made
            text = message.text if error is None else error.message
            guard.tell(name, call.function, call.arguments, text, error is not None, batch=batch)
    known.messages = len(history)


__all__ = ["Compaction", "enable"]
