# pyright: basic, reportMissingImports=false
"""Compaction for the Microsoft Agent Framework, as a chat middleware.

>>> agent = Agent(client, middleware=[Compaction()])  # doctest: +SKIP
"""

from __future__ import annotations

import copy
import json
import logging
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ..policy import Policy
from ..pricing import Usage
from ..store import DecisionStore
from ..tools import Tools
from .loop_guard import MAX_CONVERSATIONS, LoopGuard
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
    lacks_calls,
)

require("agent-framework-core", "1.20.0")

from agent_framework import (  # noqa: E402
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    Content,
    FunctionInvocationContext,
    FunctionMiddleware,
    FunctionTool,
    ResponseStream,
)
from agent_framework.exceptions import MiddlewareException  # noqa: E402

_ROLES: Final[Mapping[str, Role]] = {"assistant": "assistant", "system": "system", "tool": "tool"}
_SERVER_HISTORY: Final = ("conversation_id", "previous_response_id", "conversation")
_LOCAL_HISTORY: Final = "agent_framework_local_history_persistence"  # an id that names no server
_ITEM_ID: Final = ("openai", "fc_id")  # where a call keeps the id of the server's own copy
_log = logging.getLogger(__name__)


class _Place(NamedTuple):
    """Where a row comes from; without a content it is a whole message."""

    message: int
    content: int | None


class Compaction(ChatMiddleware):
    """Sends the projection of an agent's messages; its sessions keep them whole.

    Conversations that the provider stores are left alone: `default_options={"store": False}` keeps
    them here.
    """

    def __init__(
        self,
        policy: Policy | str | None = None,
        *,
        store: DecisionStore | str | os.PathLike[str] | None = None,
        deadline: float | None = None,
        compactor: FrameworkCompactor | None = None,
    ) -> None:
        self.compactor = build_compactor(compactor, policy, store, deadline)
        self._has_warned = False

    @property
    def expand_tool(self) -> FunctionTool:
        """The expand tool, for the `tools` of an agent."""

        def answer(ref: str = "", **_: object) -> str:
            return self.compactor.answer(str(ref))

        return FunctionTool(
            name=EXPAND_TOOL,
            description=EXPAND_DESCRIPTION,
            func=answer,
            input_model=dict(EXPAND_PARAMETERS),
        )

    async def process(self, context: Any, call_next: Callable[[], Awaitable[None]]) -> None:
        """Send the projection of a request, and the request as it came if that is refused."""
        if not isinstance(context, ChatContext):
            raise WrongUse("Compaction is a chat middleware: Agent(…, middleware=[Compaction()]).")
        request, places = _read(context)
        if self._is_server_held(context) or lacks_calls(request.rows):
            await call_next()
            return
        messages = context.messages

        async def call(shadow: Shadow) -> Any:
            context.messages = _changed(messages, shadow, places) if shadow.changes else messages
            await call_next()
            if isinstance(context.result, ResponseStream):
                context.result = await self._opened(context, context.result, shadow)
            return context.result

        await self.compactor.send_async(request, call, _usage_of)

    async def _opened(self, context: Any, stream: Any, shadow: Shadow) -> Any:
        """The stream behind its first update, so that a refusal is seen before anything is sent."""
        first = await anext(stream, None)

        async def replay() -> AsyncIterator[Any]:
            try:
                if first is not None:
                    yield first
                async for update in stream:
                    yield update
            finally:
                await stream.close()

        async def finish(made: Any) -> Any:
            whole = await stream.get_final_response()
            self.compactor.used(shadow.sent, _usage_of(whole))
            form = (context.options or {}).get("response_format")
            return ChatResponse.from_updates(made, output_format_type=form)

        return ResponseStream(replay(), finalizer=finish)

    def _is_server_held(self, context: Any) -> bool:
        """True if the provider keeps the history: all that is sent would be stored there."""
        options = context.options or {}
        stores = options.get("store")
        if stores is None:
            stores = getattr(context.client, "STORES_BY_DEFAULT", False)
        if not (
            stores
            or any(options.get(key) not in (None, "", _LOCAL_HISTORY) for key in _SERVER_HISTORY)
        ):
            return False
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "The provider stores this conversation, so nothing of it is compacted; "
                "Agent(…, default_options={'store': False}) keeps it here."
            )
        return True


class LoopMiddleware(FunctionMiddleware):
    """Refuses a call that repeats without effect, or advises on it in its result."""

    def __init__(self, tools: Tools | None = None) -> None:
        self._guard = LoopGuard(tools)
        self._runs: OrderedDict[int, tuple[Any, str]] = OrderedDict()
        self._count = 0

    async def process(self, context: Any, call_next: Callable[[], Awaitable[None]]) -> None:
        """Decide on a call, then record its result."""
        if not isinstance(context, FunctionInvocationContext):
            raise WrongUse("LoopMiddleware is a function middleware: Agent(…, middleware=[…]).")
        run, name, arguments = self._run(context.tools), context.function.name, context.arguments
        given = arguments if isinstance(arguments, Mapping) else arguments.model_dump()
        verdict = self._guard.ask(run, name, given)
        if verdict.action == "refuse":
            context.result = verdict.message
            return
        try:
            await call_next()
        except Exception as error:
            if not isinstance(error, MiddlewareException):  # which ends a run, not a call
                self._guard.tell(run, name, given, str(error), error=True)
            raise
        items = _items(context.result)
        self._guard.tell(run, name, given, _text(items))
        if verdict.action == "advise":
            context.result = [*items, Content.from_text(verdict.message)]

    def _run(self, tools: Any) -> str:
        """The name of an agent's run, which has a list of tools of its own."""
        known = self._runs.get(id(tools))
        if known is None:
            self._count += 1
            known = self._runs[id(tools)] = (
                tools,
                str(self._count),
            )  # held, so its id stays its own
            if len(self._runs) > MAX_CONVERSATIONS:
                self._runs.popitem(last=False)
        return known[1]


def _usage_of(response: Any) -> Usage | None:
    used = getattr(response, "usage_details", None)
    if not used:
        return None
    read = used.get("cache_read_input_token_count") or 0
    write = used.get("cache_creation_input_token_count") or 0
    plain = max(0, (used.get("input_token_count") or 0) - read - write)
    output = used.get("output_token_count") or 0
    return Usage(input=plain, cache_read=read, cache_write=write, output=output)


# --- messages ------------------------------------------------------------------------------------


def _read(context: Any) -> tuple[ShadowRequest, list[_Place]]:
    rows: list[Row] = []
    places: list[_Place] = []
    for at, message in enumerate(context.messages):
        results = [
            (number, content)
            for number, content in enumerate(message.contents)
            if content.type == "function_result"
        ]
        for number, content in results:
            failed = content.exception is not None
            text = _text(_items(content.items or content.result))
            rows.append(Row(role="tool", text=text, call_id=content.call_id, is_error=failed))
            places.append(_Place(at, number))
        if len(results) < len(message.contents):
            rows.append(_row(message))
            places.append(_Place(at, None))
    options = context.options or {}
    model = options.get("model") or getattr(context.client, "model", None)
    limit = options.get("max_tokens")
    request = ShadowRequest(
        rows=rows,
        model=str(model or ""),
        tools=[_define(tool) for tool in _tools(options.get("tools"))],
        system=str(options.get("instructions") or ""),
        max_tokens=limit if isinstance(limit, int) else 0,
    )
    return request, places


def _tools(given: Any) -> Iterator[FunctionTool]:
    for tool in given if isinstance(given, list | tuple) else [given]:
        if isinstance(tool, FunctionTool):
            yield tool


def _define(tool: FunctionTool) -> Mapping[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters()}


def _row(message: Any) -> Row:
    role: Role = _ROLES.get(message.role, "user")
    if role != "assistant":
        return Row(role="user" if role == "tool" else role, text=message.text)
    calls = (
        Call(one.call_id or "", one.name or "", one.arguments or {}) for one in _calls(message)
    )
    return Row(
        role=role, text=message.text, calls=tuple(calls), reasoning=tuple(_reasoning(message))
    )


def _calls(message: Any) -> Iterator[Any]:
    """The calls that are made here; the provider answers the others itself."""
    for content in message.contents:
        if content.type == "function_call" and not content.informational_only:
            yield content


def _reasoning(message: Any) -> Iterator[str]:
    for content in message.contents:
        if content.type == "text_reasoning":
            yield str(content.protected_data or content.id or "unsigned")


def _items(result: Any) -> list[Any]:
    """A result as contents."""
    if isinstance(result, list | tuple) and all(isinstance(one, Content) for one in result):
        return list(result)
    if isinstance(result, str):
        return [Content.from_text(result)]
    return list(Content.from_function_result("", result=result).items or ())


def _text(items: list[Any]) -> str:
    return "\n".join(item.text or "" for item in items if item.type == "text")


def _changed(messages: Any, shadow: Shadow, places: list[_Place]) -> list[Any]:
    """The messages with the changes in copies of them."""
    changes: dict[int, dict[int | None, RowChange]] = {}
    for row, change in shadow.changes.items():
        changes.setdefault(places[row].message, {})[places[row].content] = change
    kept: list[Any] = []
    for at, message in enumerate(messages):
        if at not in changes:
            kept.append(message)
            continue
        contents = list(_contents(message, changes[at]))
        if any(content.type != "text_reasoning" for content in contents):
            made = copy.copy(message)
            made.contents = contents
            kept.append(made)
    return kept


def _contents(message: Any, changes: Mapping[int | None, RowChange]) -> Iterator[Any]:
    numbers = {id(call): number for number, call in enumerate(_calls(message))}
    answer = changes.get(None, RowChange())
    for at, content in enumerate(message.contents):
        result = changes.get(at)
        if result is not None:
            if not result.is_dropped:
                yield _result(content, result.text or "")
        elif id(content) in numbers:
            number = numbers[id(content)]
            if number not in answer.dropped_calls:
                yield _call(content, answer.arguments.get(number), answer.drops_reasoning)
        elif not (answer.drops_reasoning and content.type == "text_reasoning"):
            yield content


def _result(content: Any, text: str) -> Any:
    """A result with its new text; media that it also holds stay."""
    media = [item for item in content.items or () if item.type != "text"]
    made = copy.copy(content)
    made.items, made.result = [Content.from_text(text), *media], text
    return made


def _call(content: Any, arguments: Mapping[str, Any] | None, drops_reasoning: bool) -> Any:
    if arguments is None and not drops_reasoning:
        return content
    made = copy.copy(content)
    # An item with an id stands for the server's own copy, and asks for the reasoning before it.
    known = content.additional_properties.items()
    made.additional_properties = {key: value for key, value in known if key not in _ITEM_ID}
    if arguments is not None:
        made.arguments = json.dumps(arguments)
    return made


__all__ = ["Compaction", "LoopMiddleware"]
