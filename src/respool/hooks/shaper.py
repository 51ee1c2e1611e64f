"""Shape a new result with an agent's transcript as history, by the passes that act on arrival.

The new result is put into the transcript's records as the agent would write it, so that the agent's
reader finds the conversation that it ends, whatever compactions and rewinds came before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import cast

import msgspec
from msgspec import Struct

from ..compaction.memo import Memo
from ..engine import Session
from ..errors import MAX_VALUE
from ..facts import Facts
from ..passes import OPT_IN, PASSES, Pass
from ..passes.base import is_arrival_pass
from ..plugins import pass_name
from ..policy import Policy
from ..sessions import claude_code, gemini_cli, opencode, pi
from ..sessions.session import RecordedSession, Skipped
from ..wire.json import JSON, Object, get
from .hook_command import AgentName
from .timeline import Timeline, ToolResult

_REQUEST_RECORDS = ("api-request", "api-request-blob", "progress")  # of no use here, and large
_PROMPT = "(The conversation up to here is not known.)"
_MAX_TIMELINES = 16
_MAX_STATES = 4 * _MAX_TIMELINES
_MAX_MEMO_BYTES = 150_000_000  # in a process that stays: a few long conversations
_OVERLAP_RECORDS = 60  # of what is known, in which calls without a result may stand


class ShapedResult(Struct, frozen=True):
    """The text that takes the place of a result, and the originals behind its markers."""

    text: str
    originals: Mapping[str, str]


class History(Struct, frozen=True):
    """The records of a conversation, and the name of the transcript that they are from."""

    agent: AgentName
    records: Sequence[JSON]
    source: str


class _Known(Struct):
    """A conversation that results were shaped in, and the records read of it."""

    timeline: Timeline
    count: int = 0
    last: JSON = None


class Shaper:
    """Shapes results; what it remembers of a conversation makes the next one faster."""

    def __init__(self) -> None:
        self._session = Session(Memo(max_states=_MAX_STATES, max_bytes=_MAX_MEMO_BYTES))
        self._known: dict[str, _Known] = {}  # by transcript, the latest last

    def shape(
        self, history: History, result: ToolResult, policy: Policy, expand_tool: str = ""
    ) -> ShapedResult | None:
        """The text in place of a result that ends this history; None: it stays as it is."""
        known = self._conversation(history.source)
        if not (_update_from_end(known, history, result) or _update(known, history, result)):
            return None
        known.count = len(history.records)
        known.last = history.records[-1] if history.records else None
        return self._shape(known.timeline, result, policy, expand_tool)

    def _shape(
        self, timeline: Timeline, result: ToolResult, policy: Policy, expand_tool: str
    ) -> ShapedResult | None:
        schema: Object = {"type": "object", "properties": {"ref": {"type": "string"}}}
        tools = [{"name": expand_tool, "input_schema": schema}] if expand_tool else []
        request = timeline.request(msgspec.json.encode(tools))
        history = self._session.parse(request, "anthropic")
        folded = self._session.fold(history, _arrival_policy(policy), Facts())
        if not folded.edits:
            return None
        projected, _ = self._session.project(folded, request)
        text = _last_text(projected)
        if text is None or text == result.text:
            return None
        kept = folded.originals
        return ShapedResult(text, {ref: kept[ref] for ref in kept if ref in text})

    def set_sent(self, history: History, call: str, text: str) -> None:
        """Note the text that the agent was told to send as a call's result."""
        self._conversation(history.source).timeline.set_sent(call, text)

    def _conversation(self, source: str) -> _Known:
        known = self._known.pop(source, None) or _Known(Timeline())
        self._known[source] = known
        while len(self._known) > _MAX_TIMELINES:
            del self._known[next(iter(self._known))]
        return known


def _last_text(request: bytes) -> str | None:
    """The text of the result that ends a request."""
    messages = msgspec.json.decode(request, type=_Messages).messages
    text: JSON = msgspec.json.decode(messages[-1])["content"][-1].get("content")
    return text if isinstance(text, str) else None


class _Messages(Struct):
    """A request of which only the last message is decoded."""

    messages: list[msgspec.Raw]


def _update(known: _Known, history: History, result: ToolResult) -> bool:
    """Bring a timeline up to date with all records."""
    session = SESSION_OF[history.agent](history.records, history.source, result)
    return session is not None and known.timeline.update(session, result)


def _update_from_end(known: _Known, history: History, result: ToolResult) -> bool:
    """Bring a timeline up to date with the last records alone; False: they may not tell it all."""
    count, records = known.count, history.records
    if history.agent != "claude" or not 0 < count <= len(records):
        return False
    if records[count - 1] is not known.last or any(map(_is_turn, records[count:])):
        return False
    end = records[max(0, count - _OVERLAP_RECORDS) :]
    session = claude_session(end, history.source, result)
    return session is not None and known.timeline.update(session, result, is_end_only=True)


def _is_turn(record: JSON) -> bool:
    """Return whether a record may begin a turn: a prompt, or a compaction."""
    kind = get(record, ("type",))
    if kind == "system" or kind is None:
        return kind is None or _is_compaction(record)
    content = get(record, ("message", "content"))
    return kind == "user" and not (
        isinstance(content, list)
        and any(get(one, ("type",)) == "tool_result" for one in cast(list[JSON], content))
    )


def _arrival_policy(policy: Policy) -> Policy:
    """The policy with the passes that act on arrival, and without epochs."""
    named = {pass_name(one): one for one in PASSES}
    wanted: Sequence[str | Pass] = (
        [name for name in named if name not in OPT_IN] if policy.passes is None else policy.passes
    )
    arriving = [
        one for one in wanted if is_arrival_pass(named[one] if isinstance(one, str) else one)
    ]
    return policy.replace(
        passes=tuple(arriving),
        repair=False,
        rendering="calls",
        budget=None,
        fold_over_chars=None,
        reevaluate_tokens=MAX_VALUE,
    )


# --- the new result in each agent's records -----------------------------------------------------


def claude_session(
    records: Sequence[JSON], source: str, result: ToolResult
) -> RecordedSession | None:
    """The conversation of Claude Code that a result ends; a sub-agent's has its own file."""
    alone = PurePath(source).parent.name == "subagents"
    current = [
        {**one, "isSidechain": False} if alone else one
        for one in _current_records(cast(Sequence[Object], records))
        if one.get("type") not in _REQUEST_RECORDS and bool(one.get("isSidechain")) is alone
    ]
    if not _begins_with_prompt(current):
        current.insert(0, _claude_record("user", _PROMPT))
    call, block = (message["content"] for message in result.messages())
    if not any(_names_call(one, result.call) for one in reversed(current)):
        current.append(_claude_record("assistant", call))
    current.append(_claude_record("user", block))
    return _last(claude_code.read(current, source))


def _current_records(records: Sequence[Object]) -> list[Object]:
    """The records since the last compaction, or since the one before if it preserved messages."""
    known = [one for one in records if type(one) is dict]
    starts = (at for at in range(len(known) - 1, -1, -1) if _is_compaction(known[at]))
    start = next(starts, 0)
    if known and get(known[start], ("compactMetadata", "preservedMessages", "uuids")):
        start = next(starts, 0)
    return known[start:]


def _begins_with_prompt(records: Sequence[Object]) -> bool:
    first = next((one for one in records if one.get("type") in ("user", "assistant")), None)
    content = get(first, ("message", "content"))
    blocks = cast(list[JSON], content) if isinstance(content, list) else []
    said = isinstance(content, str) or any(get(one, ("type",)) == "text" for one in blocks)
    return get(first, ("type",)) == "user" and said


def _is_compaction(record: Object) -> bool:
    return record.get("subtype") == "compact_boundary" and record.get("type") == "system"


def _names_call(record: JSON, call: str) -> bool:
    blocks = get(record, ("message", "content"))
    return isinstance(blocks, list) and any(
        get(one, ("id",)) == call for one in cast(list[JSON], blocks)
    )


def _claude_record(kind: str, content: JSON) -> Object:
    return {"type": kind, "sessionId": "", "message": {"role": kind, "content": content}}


def gemini_session(
    records: Sequence[JSON], source: str, result: ToolResult
) -> RecordedSession | None:
    """The conversation of Gemini CLI that a result ends."""
    about: Object = {"id": result.call, "name": result.tool}
    response: Object = {**about, "response": {"output": result.text}}
    added: list[JSON] = [
        {
            "type": "gemini",
            "id": "respool-call",
            "toolCalls": [{**about, "args": result.arguments}],
        },
        {"type": "user", "id": "respool-result", "content": [{"functionResponse": response}]},
    ]
    start: list[JSON] = [{"type": "user", "id": "respool-start", "content": _PROMPT}]
    known = any(get(record, ("type",)) == "user" or "$set" in record for record in records)
    return _last(gemini_cli.read([*([] if known else start), *records, *added], source))


def pi_session(records: Sequence[JSON], source: str, result: ToolResult) -> RecordedSession | None:
    """The conversation of pi that a result ends."""
    every = list(records)
    ids = [get(record, ("id",)) for record in every[1:]]
    last: JSON = ids[-1] if ids else None
    asked = any(_pi_names_call(record, result.call) for record in every)
    call: Object = {"type": "toolCall", "id": result.call, "name": result.tool}
    call["arguments"] = result.arguments
    answer: Object = {"role": "assistant", "content": [call]}
    said: Object = {"role": "toolResult", "toolCallId": result.call, "isError": result.failed}
    said["content"] = [{"type": "text", "text": result.text}]
    messages = [said] if asked else [answer, said]
    if not any(get(record, ("message", "role")) == "user" for record in every):
        messages.insert(0, {"role": "user", "content": _PROMPT})
    for at, message in enumerate(messages):
        own = f"respool-{at}"
        every.append({"type": "message", "id": own, "parentId": last, "message": message})
        last = own
    return _last(pi.read(every, source))


def _pi_names_call(record: JSON, call: str) -> bool:
    blocks = get(record, ("message", "content"))
    return isinstance(blocks, list) and any(
        get(one, ("type",)) == "toolCall" and get(one, ("id",)) == call
        for one in cast(list[JSON], blocks)
    )


def opencode_session(
    records: Sequence[JSON], source: str, result: ToolResult
) -> RecordedSession | None:
    """The conversation of opencode that a result ends."""
    export = records[0] if records else None
    known = get(export, ("messages",))
    messages = list(cast(list[JSON], known)) if isinstance(known, list) else []
    if not messages:
        text: Object = {"type": "text", "text": _PROMPT}
        messages.append({"info": {"role": "user"}, "parts": [text]})
    state: Object = {"status": "completed", "input": result.arguments, "output": result.text}
    part: Object = {"type": "tool", "callID": result.call, "tool": result.tool, "state": state}
    messages.append({"info": {"role": "assistant"}, "parts": [part]})
    info = get(export, ("info",)) or {"id": ""}
    return _last(opencode.read([{"info": info, "messages": messages}], source))


def _last(found: Iterator[RecordedSession | Skipped]) -> RecordedSession | None:
    """The last conversation that is no sub-agent's."""
    last = None
    for one in found:
        if isinstance(one, RecordedSession) and one.parent is None:
            last = one
    return last


SESSION_OF: dict[AgentName, Callable[[Sequence[JSON], str, ToolResult], RecordedSession | None]] = {
    "claude": claude_session,
    "gemini": gemini_session,
    "opencode": opencode_session,
    "pi": pi_session,
}
