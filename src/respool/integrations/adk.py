# pyright: basic, reportMissingImports=false
"""Compaction for agents of Google's Agent Development Kit, as a plugin.

>>> app = App(name="app", root_agent=agent, plugins=[CompactionPlugin()])  # doctest: +SKIP
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from typing import Any, Final, NamedTuple

from ..policy import Policy
from ..pricing import Usage
from ..providers.gemini.codec import SKIP_SIGNATURE, response_text, response_with_text
from ..store import DecisionStore
from .loop_guard import LoopGuard, with_advice
from .requirement import WrongUse, build_compactor, require
from .shadow import (
    EXPAND_DESCRIPTION,
    EXPAND_TOOL,
    Call,
    FrameworkCompactor,
    Row,
    RowChange,
    Shadow,
    ShadowRequest,
)

require("google-adk", "2.13.0")

from google.adk.plugins.base_plugin import BasePlugin  # noqa: E402
from google.adk.tools.function_tool import FunctionTool  # noqa: E402

_MAX_PENDING: Final = 1000  # requests without a response yet; others were abandoned
_UNSIGNED: Final = SKIP_SIGNATURE.encode()
_log = logging.getLogger(__name__)


class _Place(NamedTuple):
    """Where a row comes from; without a part it is an answer of the model."""

    content: int
    part: int | None


class _Sent(NamedTuple):
    """A request that waits for its response."""

    shadow: Shadow
    contents: list[Any]  # as they came
    places: list[_Place]


class CompactionPlugin(BasePlugin):
    """Sends the projection of an agent's contents; the events of its session stay whole.

    Put it last in the list, so that other plugins see the contents as they are.
    With `loops` it advises on calls that repeat without a new result, and refuses them in the end.
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
        super().__init__(name="respool")
        self.compactor = build_compactor(compactor, policy, store, deadline)
        self.expand_tool = _expand_tool(self.compactor) if expand else None
        self._guard = LoopGuard(self.compactor.policy.tools) if loops else None
        self._pending: dict[Any, _Sent] = {}

    def __call__(self, *given: Any, **named: Any) -> Any:
        """A plugin is no callback of an agent: raises WrongUse."""
        raise WrongUse(
            "CompactionPlugin goes into the plugins of an app: "
            "App(name=…, root_agent=agent, plugins=[CompactionPlugin()])."
        )

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        """Put the projection in place of the contents."""
        if self.expand_tool is not None and _can_expand(llm_request):
            llm_request.append_tools([self.expand_tool])
        if llm_request.previous_interaction_id:  # the provider keeps the history
            return
        try:
            contents = llm_request.contents
            request, places = _read(llm_request)
            shadow = await self.compactor.shadow_async(request)
            while len(self._pending) >= _MAX_PENDING:
                self._pending.pop(next(iter(self._pending)), None)
            self._pending[_key(callback_context)] = _Sent(shadow, contents, places)
            llm_request.contents = _changed(contents, shadow, places)
        except Exception:  # noqa: BLE001 - law 9: a fault of respool fails no request
            _log.exception("A request could not be compacted; it is sent as it came")

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        """Learn from the whole response."""
        if llm_response.partial:
            return
        sent = self._pending.pop(_key(callback_context), None)
        if sent is not None:
            self.compactor.accepted(sent.shadow.sent)
            self.compactor.used(sent.shadow.sent, _usage(llm_response.usage_metadata))

    async def on_model_error_callback(
        self, *, callback_context: Any, llm_request: Any, error: Exception
    ) -> Any:
        """Send a request as it came if its projection was refused; None: the error stands."""
        key = _key(callback_context)
        sent = self._pending.pop(key, None)
        again = sent and self.compactor.after_error(sent.shadow, error)
        if sent is None or again is None:
            return None
        llm_request.contents = _changed(sent.contents, again, sent.places)
        try:
            agent = callback_context.get_invocation_context().agent
            model = await agent.canonical_model_async(callback_context)
            async with aclosing(model.generate_content_async(llm_request)) as responses:
                *_, response = [one async for one in responses]
        except Exception as other:  # noqa: BLE001 - the first error is the one to show
            _log.warning("The original was refused as well: %s", other)
            self.compactor.failed(again.sent)
            return None
        self._pending[key] = sent._replace(shadow=again)
        return response

    # --- loops -----------------------------------------------------------------------------

    async def on_user_message_callback(self, *, invocation_context: Any, user_message: Any) -> None:
        """After a user's message repeated calls have a new reason."""
        if self._guard is not None:
            self._guard.heard(invocation_context.session.id)

    async def before_tool_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any
    ) -> dict[str, Any] | None:
        """Refuse a call that only repeats."""
        if self._guard is None:
            return None
        session, call = tool_context.session, tool_context.function_call_id
        batch = session.events[-1].id if session.events else None
        verdict = self._guard.begin(session.id, call, tool.name, tool_args, batch=batch)
        return {"error": verdict.message} if verdict.action == "refuse" else None

    async def after_tool_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any, result: Any
    ) -> dict[str, Any] | None:
        """Record the result of a call, and append advice to it."""
        if self._guard is None:
            return None
        response = result if isinstance(result, dict) else {"result": result}
        session, call, text = tool_context.session, tool_context.function_call_id, _text(response)
        verdict = self._guard.end(session.id, call, text, bool(response.get("error")))
        if verdict.action != "advise":
            return None
        return dict(response_with_text(response, with_advice(text, verdict)))

    async def on_tool_error_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any, error: Any
    ) -> None:
        """Record that a call failed."""
        if self._guard is not None:
            session, call = tool_context.session, tool_context.function_call_id
            self._guard.end(session.id, call, str(error), error=True)


def _expand_tool(compactor: FrameworkCompactor) -> FunctionTool:
    def respool_expand(ref: str) -> str:
        return compactor.answer(ref)

    respool_expand.__doc__ = EXPAND_DESCRIPTION
    return FunctionTool(respool_expand)


def _can_expand(llm_request: Any) -> bool:
    """True if there are functions: Gemini refuses some of its own tools beside them."""
    tools = llm_request.config.tools or ()
    has_functions = any(getattr(tool, "function_declarations", None) for tool in tools)
    return has_functions and EXPAND_TOOL not in llm_request.tools_dict


def _key(context: Any) -> tuple[Any, ...]:
    """A model is called once at a time by an agent in a branch of an invocation."""
    return context.session.id, context.invocation_id, context.branch, context.agent_name


def _usage(used: Any) -> Usage | None:
    if used is None:
        return None
    read = used.cached_content_token_count or 0
    output = (used.candidates_token_count or 0) + (used.thoughts_token_count or 0)
    plain = max(0, (used.prompt_token_count or 0) - read)
    return Usage(input=plain, cache_read=read, output=output)


# --- contents ------------------------------------------------------------------------------------


def _read(llm_request: Any) -> tuple[ShadowRequest, list[_Place]]:
    rows: list[Row] = []
    places: list[_Place] = []
    for at, content in enumerate(llm_request.contents):
        if content.role == "model":
            rows.append(_answer_row(content))
            places.append(_Place(at, None))
            continue
        for number, part in enumerate(content.parts or ()):
            found = part.function_response
            if found is None:
                rows.append(Row(role="user", text=part.text or ""))
            else:
                failed = bool((found.response or {}).get("error"))
                text = "" if found.parts else _text(found.response)
                rows.append(Row(role="tool", text=text, call_id=found.id or "", is_error=failed))
            places.append(_Place(at, number))
    config = llm_request.config
    request = ShadowRequest(
        rows=rows,
        model=llm_request.model or "",
        tools=list(_define(llm_request)),
        system=_system(config.system_instruction),
        max_tokens=config.max_output_tokens or 0,
    )
    return request, places


def _text(response: Any) -> str:
    return response_text({"response": response})


def _answer_row(content: Any) -> Row:
    parts = content.parts or ()
    calls = (part.function_call for part in parts if part.function_call)
    return Row(
        role="assistant",
        text="".join(part.text for part in parts if part.text and not part.thought),
        calls=tuple(Call(call.id or "", call.name or "", call.args or {}) for call in calls),
        reasoning=tuple(
            part.thought_signature.hex() if part.thought_signature else "unsigned"
            for part in parts
            if part.thought or (part.function_call and part.thought_signature)
        ),
    )


def _system(given: Any) -> str:
    parts = getattr(given, "parts", given)
    if isinstance(parts, list):
        return "\n".join(str(getattr(part, "text", part) or "") for part in parts)
    return given if isinstance(given, str) else str(getattr(given, "text", "") or "")


def _define(llm_request: Any) -> Iterator[Mapping[str, Any]]:
    for tool in llm_request.config.tools or ():
        for one in getattr(tool, "function_declarations", None) or ():
            schema = one.parameters_json_schema
            if schema is None and one.parameters is not None:
                schema = one.parameters.model_dump(mode="json", exclude_none=True)
            made = {"name": one.name, "description": one.description or "", "parameters": schema}
            server = getattr(llm_request.tools_dict.get(one.name), "raw_mcp_tool", None)
            hints = getattr(server, "annotations", None)
            if hints is not None:
                made["annotations"] = hints.model_dump(by_alias=True, exclude_none=True)
            yield made


def _changed(contents: list[Any], shadow: Shadow, places: list[_Place]) -> list[Any]:
    """The contents with the changes in copies of them."""
    changes: dict[int, dict[int | None, RowChange]] = {}
    for row, change in shadow.changes.items():
        changes.setdefault(places[row].content, {})[places[row].part] = change
    kept: list[Any] = []
    for at, content in enumerate(contents):
        if at not in changes:
            kept.append(content)
            continue
        if content.role == "model":
            parts = list(_answer_parts(content.parts, changes[at][None]))
            is_bare = all(part.thought for part in parts)
        else:
            parts = list(_result_parts(content.parts, changes[at]))
            is_bare = not parts
        if not is_bare:
            kept.append(content.model_copy(update={"parts": parts}))
    return kept


def _result_parts(parts: list[Any], changes: Mapping[int | None, RowChange]) -> Iterator[Any]:
    for number, part in enumerate(parts):
        change = changes.get(number)
        if change is None:
            yield part
        elif not change.is_dropped:
            old = part.function_response
            response = response_with_text(old.response, change.text or "")
            new = old.model_copy(update={"response": response})
            yield part.model_copy(update={"function_response": new})


def _answer_parts(parts: list[Any], change: RowChange) -> Iterator[Any]:
    """The parts of an answer, of which Gemini signs the first call only."""
    number, was_signed = -1, False
    for part in parts:
        call, update = part.function_call, {}
        number += call is not None
        if call is None and part.thought and change.drops_reasoning:
            continue
        if call is not None and number in change.dropped_calls:
            was_signed = was_signed or bool(part.thought_signature)
            continue
        if call is not None and was_signed:
            was_signed = False
            update["thought_signature"] = part.thought_signature or _UNSIGNED
        if call is not None and number in change.arguments:
            new = {"args": dict(change.arguments[number])}
            update["function_call"] = call.model_copy(update=new)
        yield part.model_copy(update=update) if update else part


__all__ = ["CompactionPlugin"]
