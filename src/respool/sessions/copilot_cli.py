"""Copilot CLI events as chat messages.

Usage comes from `session.usage_record` or `assistant.usage` events; older files hold only the
output tokens of each answer. A sub-agent's events name the call that started it, or an agent that a
call started. After a compaction only the summary is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from ..pricing import Usage
from ..wire.json import JSON, Object, compact_json, get
from .session import (
    NO_REQUEST,
    RecordedRequest,
    RecordedSession,
    SessionBuilder,
    Skipped,
    TurnPiece,
    chat_call,
    chat_result,
    objects_in,
    parse_timestamp,
    text_at,
    token_count,
    usage_or_none,
)

AGENT = "copilot-cli"

_EVENT_FAMILIES = frozenset(
    """abort assistant command elicitation external_tool hook mcp pending_messages permission
    session skill subagent system tool user user_input""".split()  # noqa: SIM905 - reads better
)


def recognizes(head: bytes, name: str) -> bool:
    """Check if the first event starts a session."""
    try:
        first = msgspec.json.decode(head.split(b"\n", 1)[0])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return text_at(first, "type").startswith("session.") and isinstance(get(first, ("data",)), dict)


def read(records: Iterable[JSON], source: str) -> Iterator[RecordedSession | Skipped]:
    """The conversation as segments, then those of its sub-agents."""
    found = False
    events = _EventStream(source)
    for record in records:
        if session := events.add(record):
            found = True
            yield session
    for session in events.finish():
        found = True
        yield session
    if not found:
        yield Skipped(source, NO_REQUEST)


class _EventStream:
    """The conversations of one file, built from its events."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._id = ""
        self._model: str | None = None
        self._segment = 0
        self._rewound = 0
        self._before: dict[str, object] = {}  # event -> the last builder event before it
        self._system: list[JSON] = []
        self._main = SessionBuilder("openai-chat")
        self._others: dict[str, SessionBuilder] = {}  # by the call that started the sub-agent
        self._tasks: dict[str, str] = {}  # the task that each call gives a sub-agent
        self._starters: dict[str, str] = {}  # the call that started each sub-agent
        self._usage: dict[str, Usage] = {}  # for the answer that comes next, by conversation

    def add(self, event: JSON) -> RecordedSession | None:
        """Follow one event; a compaction ends a segment."""
        kind, data = text_at(event, "type"), get(event, ("data",))
        if id := text_at(event, "id"):
            self._before[id] = self._main.last_event()
        if not isinstance(data, dict):
            self._main.count_unknown(kind)
        elif kind == "session.compaction_complete" and get(data, ("success",)) is not False:
            return self._end_segment(data)
        elif kind == "session.start":
            self._id = text_at(data, "sessionId")
            self._model = text_at(data, "selectedModel") or self._model
        elif kind == "session.model_change" and not text_at(event, "agentId"):
            self._model = text_at(data, "newModel") or self._model
        elif kind == "session.snapshot_rewind":
            return self._rewind(text_at(data, "upToEventId"))
        else:
            self._apply(kind, data, event)
        return None

    def finish(self) -> Iterator[RecordedSession]:
        """Yield the segments still open at the end of the file."""
        if session := self._main.build(self._id, AGENT, self._source, segment=self._segment):
            yield session
        for call, history in self._others.items():
            name = f"{self._id}/{call}"
            if session := history.build(name, AGENT, self._source, parent=self._id):
                yield session

    def _rewind(self, event: str) -> RecordedSession | None:
        """Remove an event and all after it; return them if the model answered in them."""
        if event not in self._before:
            return None
        branch = self._main.split_off(self._before[event])
        name = f"{self._id}/rewound-{self._rewound + 1}"
        session = branch.build(name, AGENT, self._source, segment=self._segment)
        self._rewound += session is not None
        return session

    def _end_segment(self, data: JSON) -> RecordedSession | None:
        session = self._main.build(self._id, AGENT, self._source, segment=self._segment)
        self._segment += 1
        self._before = {}
        self._main = SessionBuilder("openai-chat")
        self._main.add_input(*self._system)
        if summary := text_at(data, "summaryContent"):
            self._main.add_input({"role": "user", "content": summary})
        return session

    def _apply(self, kind: str, data: JSON, event: JSON) -> None:
        starter = self._starter(kind, data, text_at(event, "agentId"))
        history = self._history(starter)
        if kind == "system.message":
            self._set_prompt(history, starter, text_at(data, "content"))
        elif kind == "user.message":
            text = text_at(data, "transformedContent") or text_at(data, "content")
            history.add_input({"role": "user", "content": text})
        elif kind == "assistant.usage":
            self._usage[starter] = _parse_usage(data)
        elif kind == "session.usage_record":
            self._usage[starter] = _parse_usage(get(data, ("usage",)))
        elif kind == "assistant.message":
            self._add_answer(history, starter, data, event)
        elif kind == "tool.execution_complete":
            call = text_at(data, "toolCallId")
            history.add_result(call, chat_result(call, _result_text(data)))
        elif kind.partition(".")[0] not in _EVENT_FAMILIES:
            history.count_unknown(kind)

    def _starter(self, kind: str, data: JSON, agent: str) -> str:
        """The call that started the sub-agent whose event this is; none for the main one."""
        if not agent:
            return text_at(data, "parentToolCallId")
        if kind == "subagent.started":
            self._starters[agent] = text_at(data, "toolCallId") or agent
            self._others[self._starters[agent]] = SessionBuilder(
                "openai-chat"
            )  # its task is recorded
        return self._starters.get(agent, agent)

    def _history(self, starter: str) -> SessionBuilder:
        """The conversation an event belongs to."""
        if not starter:
            return self._main
        if starter not in self._others:
            self._others[starter] = SessionBuilder("openai-chat")
            if task := self._tasks.get(starter):
                self._others[starter].add_input({"role": "user", "content": task})
        return self._others[starter]

    def _set_prompt(self, history: SessionBuilder, starter: str, text: str) -> None:
        """Put the system prompt first, although the task is recorded before it."""
        prompt: list[JSON] = [{"role": "system", "content": text}]
        if starter:
            history.add_first(*prompt)
        elif not self._system:
            self._main.add_first(*prompt)
            self._system = prompt
        elif self._system != prompt:
            self._main.add_input(*prompt)
            self._system = prompt

    def _add_answer(self, history: SessionBuilder, starter: str, data: JSON, event: JSON) -> None:
        requests = objects_in(get(data, ("toolRequests",)))
        for asked in requests:
            self._tasks[text_at(asked, "toolCallId")] = text_at(asked, "arguments", "prompt")
        fields: Object = {"content": text_at(data, "content") or None}
        if thought := text_at(data, "reasoningText"):
            fields["reasoning_content"] = thought
        model = text_at(data, "model") or self._model
        sent = RecordedRequest(0, parse_timestamp(get(event, ("timestamp",))), model=model)
        if usage := self._usage.pop(starter, None):
            sent = replace(sent, usage=usage_or_none(usage))
        history.add_answer([(None, fields), *(_call(asked) for asked in requests)], sent)


def _parse_usage(data: JSON) -> Usage:
    """Parse usage; the input includes cache reads and writes."""
    read, written = token_count(data, "cacheReadTokens"), token_count(data, "cacheWriteTokens")
    given = max(0, token_count(data, "inputTokens") - read - written)
    return Usage(
        input=given,
        cache_read=read,
        cache_write=written,
        cache_write_1h=0,
        output=token_count(data, "outputTokens"),
    )


def _call(request: Object) -> TurnPiece:
    id, name = text_at(request, "toolCallId"), text_at(request, "name")
    if request.get("type") != "custom":
        return chat_call(id, name, request.get("arguments"))
    custom = {"name": name, "input": compact_json(request.get("arguments"))}
    return id, {"id": id, "type": "custom", "custom": custom}


def _result_text(data: JSON) -> str:
    """Return a tool's output, or its error if it failed."""
    said = text_at(data, "result", "content")
    if get(data, ("success",)) is not False:
        return said
    error = get(data, ("error",))
    return text_at(error, "message") or said or compact_json("" if error is None else error)
