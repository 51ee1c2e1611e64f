# pyright: basic, reportMissingImports=false
"""Compaction for agents of CrewAI, as an interceptor of a model's HTTP requests.

>>> llm = LLM("anthropic/claude-sonnet-4-5", interceptor=CompactionInterceptor())  # doctest: +SKIP
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from typing import Any

from ..policy import Policy
from ..store import DecisionStore
from .loop_guard import LoopGuard, with_advice
from .request_compactor import RequestCompactor
from .requirement import WrongUse, build_compactor, require
from .shadow import EXPAND_ARGUMENT, EXPAND_DESCRIPTION, EXPAND_TOOL
from .transport import AsyncTransport, Decided, SyncTransport, Wrapping

require("crewai", "1.15.30")

import httpx  # noqa: E402
from crewai.hooks import (  # noqa: E402
    register_after_tool_call_hook,
    register_before_tool_call_hook,
    unregister_after_tool_call_hook,
    unregister_before_tool_call_hook,
)
from crewai.llms.hooks.base import BaseInterceptor  # noqa: E402
from crewai.tools import BaseTool  # noqa: E402
from pydantic import BaseModel, Field, PrivateAttr  # noqa: E402

_FAILED = "Error executing tool"  # how CrewAI begins the result of a tool that raised


class CompactionInterceptor(BaseInterceptor[httpx.Request, httpx.Response]):
    """Sends the projections of a model's requests; an agent's messages stay whole.

    With `loops` it advises on calls of a task that repeat without a new result, and refuses them in
    the end. This is for agents whose model has this interceptor, until `close` is called.
    """

    def __init__(
        self,
        policy: Policy | str | None = None,
        *,
        store: DecisionStore | str | os.PathLike[str] | None = None,
        deadline: float | None = None,
        compactor: RequestCompactor | None = None,
        loops: bool = False,
    ) -> None:
        self.compactor = build_compactor(compactor, policy, store, deadline, RequestCompactor)
        self.expand_tool: BaseTool = _ExpandTool.of(self.compactor)
        self._wrapping = Wrapping(self.compactor, None, is_own=compactor is None)
        self._decided: ContextVar[Decided | None] = ContextVar("respool_decided", default=None)
        self._guard = LoopGuard(self.compactor.policy.tools) if loops else None
        if loops:
            register_before_tool_call_hook(self._ask)
            register_after_tool_call_hook(self._tell)

    # CrewAI's own transport sends the request between the two; its settings are httpx's defaults,
    # so a request that is sent again goes through a transport with the same ones.

    def on_outbound(self, message: httpx.Request) -> httpx.Request:
        """Put the projection in place of a request."""
        decided = self._transport().decide(_checked(message))
        self._decided.set(decided)
        return message if decided is None else decided.request(httpx)

    def on_inbound(self, message: httpx.Response) -> httpx.Response:
        """Learn from a response; a refused request is sent again as it came."""
        decided = self._decided.get()
        self._decided.set(None)
        return message if decided is None else self._transport().receive(message, decided)

    async def aon_outbound(self, message: httpx.Request) -> httpx.Request:
        """The same for models that are called asynchronously."""
        decided = await self._async_transport().decide(_checked(message))
        self._decided.set(decided)
        return message if decided is None else decided.request(httpx)

    async def aon_inbound(self, message: httpx.Response) -> httpx.Response:
        """The same for models that are called asynchronously."""
        decided = self._decided.get()
        self._decided.set(None)
        if decided is None:
            return message
        return await self._async_transport().receive(message, decided)

    def close(self) -> None:
        """Stop detecting loops, and write what is not written yet."""
        unregister_before_tool_call_hook(self._ask)
        unregister_after_tool_call_hook(self._tell)
        if self._wrapping.is_own:
            self.compactor.close()

    def _transport(self) -> SyncTransport:
        return SyncTransport(_Unpooled(), self._wrapping, httpx)

    def _async_transport(self) -> AsyncTransport:
        return AsyncTransport(_Unpooled(), self._wrapping, httpx)

    # --- loops -----------------------------------------------------------------------------

    def _ask(self, context: Any) -> bool | None:
        """Refuse a call that only repeats; both hooks get the same arguments."""
        conversation, given = self._conversation(context), context.tool_input
        if self._guard is None or conversation is None:
            return None
        verdict = self._guard.begin(conversation, id(given), context.tool_name, given)
        return False if verdict.action == "refuse" else None

    def _tell(self, context: Any) -> str | None:
        """Record the result of a call, and append advice to it or put a refusal in its place."""
        conversation, text = self._conversation(context), str(context.tool_result or "")
        if self._guard is None or conversation is None:
            return None
        failed = text.startswith(_FAILED)
        verdict = self._guard.end(conversation, id(context.tool_input), text, failed)
        if verdict.action == "refuse":
            return verdict.message
        return with_advice(text, verdict) if verdict.action == "advise" else None

    def _conversation(self, context: Any) -> str | None:
        """The name of one execution of a task; None: another model's, or not of a task."""
        own = getattr(getattr(context.agent, "llm", None), "interceptor", None) is self
        task = context.task
        return f"{context.agent.id} {task.id} {task.start_time}" if own and task else None


class _Unpooled:
    """Transports for single requests: their connections are closed with the response."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.HTTPTransport(limits=_LIMITS).handle_request(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await httpx.AsyncHTTPTransport(limits=_LIMITS).handle_async_request(request)


_LIMITS = httpx.Limits(max_keepalive_connections=0)


def _checked(message: Any) -> httpx.Request:
    if not isinstance(message, httpx.Request):
        raise WrongUse(
            "CompactionInterceptor goes into the model of an agent: "
            "LLM(…, interceptor=CompactionInterceptor())."
        )
    return message


class _ExpandArguments(BaseModel):
    ref: str = Field(description=EXPAND_ARGUMENT)


class _ExpandTool(BaseTool):
    name: str = EXPAND_TOOL
    description: str = EXPAND_DESCRIPTION
    args_schema: type[BaseModel] = _ExpandArguments
    _compactor: RequestCompactor = PrivateAttr()

    @classmethod
    def of(cls, compactor: RequestCompactor) -> BaseTool:
        """The tool for a compactor's originals."""
        made = cls()
        made._compactor = compactor
        return made

    def _run(self, ref: str) -> str:
        return self._compactor.answer(ref)


__all__ = ["CompactionInterceptor"]
