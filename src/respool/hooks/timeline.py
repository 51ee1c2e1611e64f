"""Calls and results of an agent's conversation in the order in which they became known.

The transcript of a running conversation changes at its end: calls that were made together complete
one by one, and a result is written in the shape that a hook gave it. A timeline only grows, so that
each result costs what is new. It holds every call with its result as a step of its own, in the
Anthropic format, and a result as it was before it was shaped. When the transcript contradicts it
(a compaction, a rewind, a result that the agent cut itself), it starts anew from the transcript.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import msgspec
from msgspec import Struct

from ..sessions.session import RecordedSession, objects_in, text_at
from ..wire.json import JSON, Object, get


class ToolResult(Struct, frozen=True, kw_only=True):
    """A call that has just ended, with the result that its agent would send."""

    call: str
    tool: str
    arguments: Object
    text: str
    failed: bool = False

    def messages(self) -> list[JSON]:
        """The call and its result as two messages."""
        call: Object = {"type": "tool_use", "id": self.call, "name": self.tool}
        result: Object = {"type": "tool_result", "tool_use_id": self.call, "content": self.text}
        if self.failed:
            result["is_error"] = True
        return [
            _message("assistant", {**call, "input": self.arguments}),
            _message("user", result),
        ]


class _Said(Struct, frozen=True):
    """Words of a user or a model."""

    role: str
    text: str


_Event = _Said | ToolResult


class Timeline:
    """The messages of one conversation, to which results are only appended."""

    def __init__(self) -> None:
        self._messages: list[Object] = []
        self._encoded: list[bytes] = []  # the same as JSON, of which known beginnings are known
        self._sent: dict[str, str] = {}  # by call: the text that the agent is known to send

    def update(
        self, session: RecordedSession, result: ToolResult, *, is_end_only: bool = False
    ) -> bool:
        """Add what the session has beyond this timeline, and then the new result.

        False: the result is not in this session, so nothing can be said about it. A session of
        which only the end was read must begin with what is known; else it is False, too.
        """
        every = list(events_of(session))
        events = [one for one in every if not _is_call(one, result.call)]
        if len(events) == len(every):
            return False
        new = self._new_events(events, is_end_only)
        if new is None and is_end_only:
            return False
        if new is None:
            self._messages, self._encoded, self._sent, new = [], [], {}, events
        for event in new:
            self._append(event)
        self._append(result)
        return True

    def request(self, tools: bytes = b"[]") -> bytes:
        """The conversation as a request."""
        return b'{"tools":%b,"messages":[%b]}' % (tools, b",".join(self._encoded))

    def set_sent(self, call: str, text: str) -> None:
        """Note the text that the agent will send as this call's result."""
        self._sent[call] = text

    def _new_events(self, events: list[_Event], is_end_only: bool) -> list[_Event] | None:
        """The events after the last known call, and unknown calls; None: something is gone."""
        missing, last = set(self._sent), -1
        for at, event in enumerate(events):
            if isinstance(event, ToolResult) and event.call in self._sent:
                if event.text.strip() != self._sent[event.call].strip():
                    return None
                missing.discard(event.call)
                last = at
        if last < 0 if is_end_only else missing:
            return None
        return [
            event
            for at, event in enumerate(events)
            if (at > last and isinstance(event, _Said))
            or (isinstance(event, ToolResult) and event.call not in self._sent)
        ]

    def _append(self, event: _Event) -> None:
        if isinstance(event, _Said):
            self._append_block(event.role, {"type": "text", "text": event.text})
            return
        for message in event.messages():
            self._append_block(message["role"], message["content"][0])
        self._sent[event.call] = event.text

    def _append_block(self, role: str, block: Object) -> None:
        """Add a block; a user's message may not be changed once it ends with a result."""
        last = self._messages[-1] if self._messages else None
        if last is None and role == "assistant":
            self._append_block("user", {"type": "text", "text": "…"})
        if last is not None and last["role"] == role:
            self._messages.pop()
            self._encoded.pop()
            message: Object = {"role": role, "content": [*last["content"], block]}
        else:
            message = _message(role, block)
        self._messages.append(message)
        self._encoded.append(msgspec.json.encode(message))


def _message(role: str, block: Object) -> Object:
    return {"role": role, "content": [block]}


def _is_call(event: _Event, call: str) -> bool:
    return isinstance(event, ToolResult) and event.call == call


def events_of(session: RecordedSession) -> Iterator[_Event]:
    """The words, and the calls that have a result, of a recorded session."""
    walk = _WALKS.get(session.format)
    return iter(()) if walk is None else walk(objects_in(list(session.messages)))


def _anthropic_events(messages: list[Object]) -> Iterator[_Event]:
    calls: dict[str, Object] = {}
    for message in messages:
        role, content = text_at(message, "role"), message.get("content")
        if isinstance(content, str):
            yield _Said(role, content)
        for block in objects_in(content):
            kind = block.get("type")
            if kind == "text" and text_at(block, "text").strip():
                yield _Said(role, text_at(block, "text"))
            elif kind == "tool_use":
                calls[text_at(block, "id")] = block
            elif kind == "tool_result":
                called = calls.get(text_at(block, "tool_use_id"))
                text = only_text(block.get("content"))
                if called is not None and text is not None:
                    failed = block.get("is_error") is True
                    yield _result(called, called.get("input"), text, failed=failed)


def _result(call: Object, arguments: JSON, text: str, *, failed: bool = False) -> ToolResult:
    return ToolResult(
        call=text_at(call, "id"),
        tool=text_at(call, "name"),
        arguments=cast(Object, arguments) if isinstance(arguments, dict) else {},
        text=text,
        failed=failed,
    )


def only_text(content: JSON) -> str | None:
    """A text, or the texts of blocks that are nothing else."""
    if isinstance(content, str):
        return content
    blocks = objects_in(content)
    texts = [text_at(block, "text") for block in blocks if block.get("type", "text") == "text"]
    return "\n".join(texts) if texts and len(texts) == len(blocks) else None


def _gemini_events(messages: list[Object]) -> Iterator[_Event]:
    calls: dict[str, Object] = {}
    for message in messages:
        role = "assistant" if message.get("role") == "model" else "user"
        for part in objects_in(message.get("parts")):
            if "functionCall" in part:
                calls[text_at(part, "functionCall", "id")] = part["functionCall"]
            elif "functionResponse" in part:
                called = calls.get(text_at(part, "functionResponse", "id"))
                response = get(part, ("functionResponse", "response"))
                text = text_at(response, "output") or text_at(response, "error")
                if called is not None and text:
                    yield _result(called, called.get("args"), text, failed="error" in response)
            elif text_at(part, "text").strip():
                yield _Said(role, text_at(part, "text"))


def _chat_events(messages: list[Object]) -> Iterator[_Event]:
    calls: dict[str, Object] = {}
    for message in messages:
        role = text_at(message, "role")
        text = only_text(message.get("content"))
        if role == "tool":
            called = calls.get(text_at(message, "tool_call_id"))
            if called is not None and text is not None:
                given = _arguments(text_at(called, "function", "arguments"))
                name = text_at(called, "function", "name")
                yield _result({"id": text_at(called, "id"), "name": name}, given, text)
            continue
        if text and text.strip():
            yield _Said("assistant" if role == "assistant" else "user", text)
        for call in objects_in(message.get("tool_calls")):
            calls[text_at(call, "id")] = call


def _arguments(text: str) -> JSON:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}


_WALKS: dict[str, Callable[[list[Object]], Iterator[_Event]]] = {
    "anthropic": _anthropic_events,
    "gemini": _gemini_events,
    "openai-chat": _chat_events,
}
EVENT_FORMATS = frozenset(_WALKS)
