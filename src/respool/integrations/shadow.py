"""A framework's messages translated only to decide, and the changes to put into copies of them.

An adapter reads its framework's messages into rows. The rows are written as a request, decided on,
and compared with the projection. What comes back are changes by row: new text of a result, new
arguments of a call, calls and reasoning that go. So an adapter copies only the messages that
change, and every other one stays the same object, with its signatures and ids.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar, cast

import msgspec
from msgspec import Struct

from ..model_names import parse_model_name
from ..policy import Policy
from ..pricing import Usage
from ..store import DecisionStore
from .request_compactor import Outgoing, RequestCompactor, check_policy, unread

Role = Literal["system", "user", "assistant", "tool"]
EXPAND_TOOL: Final = "respool_expand"  # respool.tools.identity recognises it
EXPAND_DESCRIPTION: Final = (
    "Get back what respool took out of this conversation: the original behind a marker "
    "[respool: … ref REF]."
)
EXPAND_ARGUMENT: Final = "The reference that the marker names: 20 characters."
EXPAND_PARAMETERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"ref": {"type": "string", "description": EXPAND_ARGUMENT}},
    "required": ["ref"],
}
MEDIA_TEXT: Final = "[media]"  # stands for a result that holds no text
T = TypeVar("T")
_log = logging.getLogger(__name__)
_JSON: Final = msgspec.json.Decoder()


class Call(Struct, frozen=True):
    """A tool call of an assistant's row."""

    id: str
    name: str
    arguments: Mapping[str, Any] | str  # an object, or JSON


class Row(Struct, frozen=True, kw_only=True):
    """One message of a framework; each result is a row of its own."""

    role: Role
    text: str = ""
    calls: tuple[Call, ...] = ()  # of an assistant
    reasoning: tuple[str, ...] = ()  # of an assistant: signature, encrypted content or id of each
    call_id: str = ""  # of a result
    is_error: bool = False  # of a result


class RowChange(Struct, frozen=True, kw_only=True):
    """A difference between a row and what goes out in its place."""

    text: str | None = None  # new text of a result
    is_dropped: bool = False  # a result that goes with its call
    arguments: Mapping[int, Mapping[str, Any]] = {}  # new ones, by the position of the call
    dropped_calls: frozenset[int] = frozenset()  # by position
    drops_reasoning: bool = False

    def empties(self, row: Row) -> bool:
        """True if nothing is left of a row: then its message goes."""
        if self.is_dropped:
            return True
        return bool(self.dropped_calls) and not (
            row.text.strip() or len(self.dropped_calls) < len(row.calls)
        )


NO_CHANGE: Final = RowChange()


class ShadowRequest(Struct, frozen=True, kw_only=True):
    """All that a decision needs of a framework's request."""

    rows: Sequence[Row]
    model: str
    tools: Sequence[Mapping[str, Any]] = ()  # each with name, description and parameters
    system: str = ""
    max_tokens: int = 0


def lacks_calls(rows: Sequence[Row]) -> bool:
    """True if results came without their calls: the provider keeps the history."""
    known: set[str] = set()
    for row in rows:
        known.update(call.id for call in row.calls)
        if row.role == "tool" and row.call_id not in known:
            return True
    return False


class Shadow(Struct, frozen=True):
    """The changes to a framework's messages, and the request that they were decided for."""

    request: ShadowRequest
    sent: Outgoing
    changes: Mapping[int, RowChange]  # by row; without an entry a row stays

    def of(self, row: int) -> RowChange:
        """The change of a row."""
        return self.changes.get(row, NO_CHANGE)


class FrameworkCompactor(RequestCompactor):
    """Decides on the messages of a framework; threads may share it.

    Nothing is repaired: frameworks build valid histories, and what they leave to the server would
    look like an orphan.
    """

    def __init__(
        self,
        policy: Policy | str | None = None,
        *,
        store: DecisionStore | str | os.PathLike[str] | None = None,
        deadline: float | None = None,
    ) -> None:
        bare = check_policy(policy).replace(repair=False, rendering="calls")
        super().__init__(bare, store=store, deadline=deadline)

    def shadow(self, request: ShadowRequest) -> Shadow:
        """Decide on a request; never raises."""
        try:
            written = _Written(request)
            sent = self.decide(written.body, written.format, model=request.model)
            return _shadow(written, sent)
        except Exception as error:  # noqa: BLE001 - law 9: a fault of respool fails no request
            return _unchanged(request, error)

    async def shadow_async(self, request: ShadowRequest) -> Shadow:
        """The same in a thread, so that the event loop goes on."""
        try:
            written = await asyncio.to_thread(_Written, request)
            sent = await self.decide_async(written.body, written.format, model=request.model)
            return await asyncio.to_thread(_shadow, written, sent)
        except Exception as error:  # noqa: BLE001 - law 9: a fault of respool fails no request
            return _unchanged(request, error)

    def send(
        self,
        request: ShadowRequest,
        call: Callable[[Shadow], T],
        usage: Callable[[T], Usage | None],
    ) -> T:
        """Send the projection of a request, and the request as it came if that is refused.

        `call` applies the changes and calls the model; `usage` reads what its response reports.
        """
        shadow = self.shadow(request)
        try:
            response = call(shadow)
        except Exception as error:
            again = self.after_error(shadow, error)
            if again is None:
                raise
            shadow = again
            try:
                response = call(shadow)
            except Exception:
                self.failed(shadow.sent)
                raise
        return self._learn(shadow, response, usage)

    async def send_async(
        self,
        request: ShadowRequest,
        call: Callable[[Shadow], Awaitable[T]],
        usage: Callable[[T], Usage | None],
    ) -> T:
        """The same, awaited."""
        shadow = await self.shadow_async(request)
        try:
            response = await call(shadow)
        except Exception as error:
            again = self.after_error(shadow, error)
            if again is None:
                raise
            shadow = again
            try:
                response = await call(shadow)
            except Exception:
                self.failed(shadow.sent)
                raise
        return self._learn(shadow, response, usage)

    def _learn(self, shadow: Shadow, response: T, usage: Callable[[T], Usage | None]) -> T:
        self.accepted(shadow.sent)
        try:
            self.used(shadow.sent, usage(response))
        except Exception:  # noqa: BLE001 - law 9: the response goes on
            _log.exception("The usage of a response could not be read")
        return response

    def after_error(self, shadow: Shadow, error: BaseException) -> Shadow | None:
        """Decide what to send after a provider's error; None: the error stands.

        The shadow that is returned has no changes, unless reasoning must go.
        """
        status = status_of(error)
        if status is None or not shadow.changes:
            return None
        again = self.retry(shadow.sent, status, str(error).encode("utf-8", "replace"))
        return None if again is None else _shadow(_Written(shadow.request), again)


def status_of(error: BaseException) -> int | None:
    """The HTTP status of a provider's error, wherever a client keeps it."""
    for one in _chain(error):
        response = getattr(one, "response", None)
        for holder in (one, response):
            for name in ("status_code", "http_status", "status", "code"):
                found = getattr(holder, name, None)
                if isinstance(found, int) and 400 <= found <= 599:
                    return found
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen = 0
    found: BaseException | None = error
    while found is not None and seen < 8:
        yield found
        found, seen = found.__cause__ or found.__context__, seen + 1


# --- rows as a request ---------------------------------------------------------------------------


class _Written:
    """Rows written as a request, with an id of its own for each call."""

    def __init__(self, request: ShadowRequest) -> None:
        self.request = request
        self.call_ids, self.result_ids = _unique_ids(request.rows)
        name = parse_model_name(request.model)
        is_claude = name is not None and name.maker == "anthropic"
        self.is_gemini = name is not None and name.maker == "google"
        self.format: Literal["anthropic", "openai-responses"] = (
            "anthropic" if is_claude else "openai-responses"
        )
        written = self._anthropic() if is_claude else self._responses()
        self.body = msgspec.json.encode({"model": request.model, **written})

    def _anthropic(self) -> dict[str, Any]:
        messages: list[dict[str, Any]] = []
        system = [self.request.system] if self.request.system else []
        for at, row in enumerate(self.request.rows):
            if row.role == "system":
                system.append(row.text)
                continue
            role = "assistant" if row.role == "assistant" else "user"
            blocks = self._blocks(at, row)
            if messages and messages[-1]["role"] == role and row.role != "assistant":
                messages[-1]["content"] += blocks
            else:
                messages.append({"role": role, "content": blocks})
        tools = [
            {**_definition(one), "input_schema": one.get("parameters") or {"type": "object"}}
            for one in self.request.tools
        ]
        made: dict[str, Any] = {"max_tokens": self.request.max_tokens or 4096}
        if system:
            made["system"] = "\n\n".join(system)
        return {**made, "tools": tools, "messages": messages}

    def _blocks(self, at: int, row: Row) -> list[dict[str, Any]]:
        if row.role == "tool":
            result = {"type": "tool_result", "tool_use_id": self.result_ids[at]}
            flag = {"is_error": True} if row.is_error else {}
            return [{**result, "content": row.text or MEDIA_TEXT, **flag}]
        blocks: list[dict[str, Any]] = [
            {"type": "thinking", "thinking": "", "signature": key} for key in row.reasoning
        ]
        if row.text.strip():
            blocks.append({"type": "text", "text": row.text})
        for call, id in zip(row.calls, self.call_ids[at], strict=True):
            arguments = _arguments(call)
            blocks.append({"type": "tool_use", "id": id, "name": call.name, "input": arguments})
        return blocks or [{"type": "text", "text": MEDIA_TEXT}]

    def _responses(self) -> dict[str, Any]:
        items: list[dict[str, Any]] = []
        for at, row in enumerate(self.request.rows):
            items += self._items(at, row)
        tools = [
            {
                "type": "function",
                **_definition(one),
                "parameters": one.get("parameters") or {"type": "object"},
            }
            for one in self.request.tools
        ]
        made: dict[str, Any] = {}
        if self.request.system:
            made["instructions"] = self.request.system
        if self.request.max_tokens:
            made["max_output_tokens"] = self.request.max_tokens
        return {**made, "tools": tools, "input": items}

    def _items(self, at: int, row: Row) -> list[dict[str, Any]]:
        if row.role == "tool":
            output = {"type": "function_call_output", "call_id": self.result_ids[at]}
            return [{**output, "output": row.text or MEDIA_TEXT}]
        if row.role != "assistant":
            return [{"role": row.role, "content": row.text or MEDIA_TEXT}]
        items: list[dict[str, Any]] = [
            {
                "type": "reasoning",
                "id": f"rs_{at}_{number}",
                "summary": [],
                "encrypted_content": key,
            }
            for number, key in enumerate(row.reasoning)
        ]
        if row.text.strip():
            said = [{"type": "output_text", "text": row.text}]
            items.append({"type": "message", "role": "assistant", "content": said})
        for call, id in zip(row.calls, self.call_ids[at], strict=True):
            given = call.arguments
            text = given if isinstance(given, str) else msgspec.json.encode(given).decode()
            items.append(
                {"type": "function_call", "call_id": id, "name": call.name, "arguments": text}
            )
        return items


def _definition(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A definition without its parameters; annotations tell the registry what a tool does."""
    return {key: tool[key] for key in ("name", "description", "annotations") if key in tool}


def _arguments(call: Call) -> Mapping[str, Any]:
    if not isinstance(call.arguments, str):
        return call.arguments
    try:
        found: object = _JSON.decode(call.arguments or "{}")
    except msgspec.DecodeError:
        return {"arguments": call.arguments}
    return cast(dict[str, Any], found) if isinstance(found, dict) else {"arguments": found}


def _unique_ids(rows: Sequence[Row]) -> tuple[dict[int, list[str]], dict[int, str]]:
    """An id of its own for each call, by row, and for each result that of the call it answers."""
    calls: dict[int, list[str]] = {}
    results: dict[int, str] = {}
    seen: set[str] = set()
    open_calls: defaultdict[str, deque[str]] = defaultdict(deque)
    for at, row in enumerate(rows):
        calls[at] = []
        for call in row.calls:
            id = call.id if call.id and call.id not in seen else f"{call.id or 'call'}~{len(seen)}"
            seen.add(id)
            calls[at].append(id)
            open_calls[call.id].append(id)
        if row.role == "tool":
            waiting = open_calls.get(row.call_id)
            results[at] = waiting.popleft() if waiting else row.call_id or f"result~{at}"
    return calls, results


# --- the projection back as changes --------------------------------------------------------------


class _Projected:
    """Results, calls and reasoning that are still in a projection."""

    def __init__(self, body: bytes) -> None:
        self.results: dict[str, str] = {}
        self.calls: dict[str, Mapping[str, Any]] = {}
        self.reasoning: set[str] = set()
        request: dict[str, Any] = _JSON.decode(body)
        for item in cast(list[dict[str, Any]], request.get("input") or ()):
            self._take(item)
        for message in cast(list[dict[str, Any]], request.get("messages") or ()):
            content = message["content"]
            for block in cast(list[dict[str, Any]], content if isinstance(content, list) else ()):
                self._take(block)

    def _take(self, item: Mapping[str, Any]) -> None:
        match item.get("type"):
            case "tool_result":
                self.results[item["tool_use_id"]] = _text(item.get("content"))
            case "function_call_output":
                self.results[item["call_id"]] = _text(item.get("output"))
            case "tool_use":
                self.calls[item["id"]] = item["input"]
            case "function_call":
                call = Call(item["call_id"], item["name"], item["arguments"])
                self.calls[call.id] = _arguments(call)
            case "thinking":
                self.reasoning.add(item["signature"])
            case "reasoning":
                self.reasoning.add(item.get("encrypted_content") or "")
            case _:
                pass


def _text(content: object) -> str:
    """The text of a result, as a string or as blocks."""
    if isinstance(content, str):
        return content
    blocks = cast(Iterable[Mapping[str, Any]], content or ())
    return "".join(str(block.get("text", "")) for block in blocks)


def _unchanged(request: ShadowRequest, error: Exception) -> Shadow:
    """Every message as it came, after a fault."""
    _log.error("A request could not be compacted; it is sent as it came", exc_info=error)
    return Shadow(request, unread("failed"), {})


def _shadow(written: _Written, sent: Outgoing) -> Shadow:
    request = written.request
    if not sent.is_changed:
        return Shadow(request, sent, {})
    left = _Projected(sent.body)
    changes = {
        at: change
        for at, row in enumerate(request.rows)
        if (change := _change(at, row, written, left)) != NO_CHANGE
    }
    return Shadow(request, sent, changes)


def _change(at: int, row: Row, written: _Written, left: _Projected) -> RowChange:
    if row.role == "tool":
        text = left.results.get(written.result_ids[at])
        if text is None:
            return RowChange(is_dropped=True)
        return NO_CHANGE if text == (row.text or MEDIA_TEXT) else RowChange(text=text)
    if row.role != "assistant":
        return NO_CHANGE
    dropped: set[int] = set()
    arguments: dict[int, Mapping[str, Any]] = {}
    for number, (call, id) in enumerate(zip(row.calls, written.call_ids[at], strict=True)):
        if id not in left.calls:
            dropped.add(number)
        elif left.calls[id] != _arguments(call):
            arguments[number] = left.calls[id]
    is_bare = len(dropped) == len(row.calls)
    lost = bool(row.reasoning) and not left.reasoning.issuperset(row.reasoning)
    return RowChange(
        arguments=arguments,
        dropped_calls=frozenset(dropped),
        # Gemini wants the signature of a turn for as long as one of its calls stays.
        drops_reasoning=lost and (is_bare or not written.is_gemini),
    )
