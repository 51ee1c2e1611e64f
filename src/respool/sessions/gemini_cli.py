"""Gemini CLI chats as `generateContent` requests.

A log repeats a message whenever it changes; `$rewindTo` removes a message and all after it, and
`$set` may replace the history, as a compaction does. Older documents do not show compactions. If a
message for the user came in between, the calls of an answer are in a separate record and are joined
again. Results may be with their calls, in a record of their own, or both. Thoughts are not sent
again and their signatures are not recorded; the tool's name before a call id is not sent either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import cast

from ..pricing import Usage
from ..regex import lazy_compile
from ..wire.json import JSON, Object, get
from .session import (
    NO_REQUEST,
    RecordedRequest,
    RecordedSession,
    SessionBuilder,
    Skipped,
    TurnPiece,
    objects_in,
    parse_timestamp,
    text_at,
    token_count,
    usage_or_none,
)

AGENT = "gemini-cli"

_CHAT_HEAD = lazy_compile(rb'\s*\{\s*"sessionId"\s*:\s*"[^"]*"\s*,\s*"projectHash"\s*:')
_BOOKKEEPING = frozenset({"info", "warning", "error"})  # for the user, not sent to the model


def recognizes(head: bytes, name: str) -> bool:
    """Check if a file is a recorded chat."""
    return bool(_CHAT_HEAD.match(head))


def read(records: Iterable[JSON], source: str) -> Iterator[RecordedSession | Skipped]:
    """Yield the chat as segments, and rewound turns as sessions of their own."""
    found = False
    chat = _Chat(source)
    for record in records:
        for session in chat.add(record):
            found = True
            yield session
    if (session := chat.session()) is not None:
        found = True
        yield session
    if not found:
        yield Skipped(source, NO_REQUEST)


class _Chat:
    """The document as the changes so far made it."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._about: Object = {}
        self._messages: dict[str, Object] = {}
        self._told: set[str] = set()  # answers whose requests are in a session already
        self._segment = 0
        self._rewound = 0

    def add(self, record: JSON) -> Iterator[RecordedSession]:
        """Apply one record; yield first the session that it makes unreachable."""
        if not isinstance(record, dict):
            return
        change = cast(Object, record)
        if "$rewindTo" in change:
            if session := self.session(f"/rewound-{self._rewound + 1}"):
                self._rewound += 1
                yield session
            self._rewind(text_at(change, "$rewindTo"))
        elif "type" in change:
            self._upsert(change)
        else:
            about = change.get("$set", change)
            if isinstance(about, dict):
                yield from self._describe(cast(Object, about))

    def _upsert(self, message: Object) -> None:
        self._messages[text_at(message, "id") or f"#{len(self._messages)}"] = message

    def _rewind(self, target: str) -> None:
        ids = list(self._messages)
        for id in ids[ids.index(target) if target in ids else 0 :]:
            del self._messages[id]

    def _describe(self, about: Object) -> Iterator[RecordedSession]:
        self._about.update({key: value for key, value in about.items() if key != "messages"})
        if "messages" not in about:
            return
        messages = objects_in(about["messages"])
        ids = [text_at(message, "id") for message in messages]
        if not all(id in ids for id in self._messages):  # something is gone: a compaction
            if session := self.session():
                yield session
            self._segment += 1
        self._messages = {}
        for message in messages:
            self._upsert(message)

    def session(self, suffix: str = "") -> RecordedSession | None:
        """Return the current messages as a session, with the requests that no session has yet."""
        history = SessionBuilder("gemini")
        for id, message in self._messages.items():
            _read_message(history, message, id in self._told)
        name = text_at(self._about, "sessionId") + suffix
        session = history.build(
            name, AGENT, self._source, segment=self._segment, parent=self._parent()
        )
        self._told.update(self._messages)
        return session

    def _parent(self) -> str | None:
        """Return a sub-agent's parent: its folder is named after the parent's chat."""
        return PurePath(self._source).parent.name if self._about.get("kind") == "subagent" else None


def _read_message(history: SessionBuilder, message: Object, is_repeated: bool) -> None:
    kind = text_at(message, "type")
    if kind == "user":
        history.add_input(*_add_content(history, message.get("content")))
    elif kind == "gemini":
        _read_answer(history, message, is_repeated)
    elif kind not in _BOOKKEEPING:
        history.count_unknown(kind)


def _add_content(history: SessionBuilder, content: JSON) -> list[JSON]:
    """Add content; a result goes to its call, unless the call has it already."""
    said: list[JSON] = []
    for part in _content_parts(content):
        result = _result_part(part)
        call = _result_call(result)
        if not call:
            said.append(result)
        elif history.is_pending(call):
            history.add_result(call, result)
    return said


def _result_part(part: JSON) -> JSON:
    """A result with the id of its call as it is sent."""
    response = get(part, ("functionResponse",))
    if not isinstance(response, dict) or not text_at(response, "id"):
        return part
    return {**part, "functionResponse": {**cast(Object, response), "id": _call_id(response)}}


def _result_call(part: JSON) -> str:
    """The call that a part is a result of, if it is one."""
    return text_at(part, "functionResponse", "id")


def _call_id(call: JSON) -> str:
    return text_at(call, "id").removeprefix(f"{text_at(call, 'name')}__")


def _content_parts(content: JSON) -> list[JSON]:
    """Content as parts; a part may be a plain string."""
    parts = cast(list[JSON], content) if isinstance(content, list) else [content]
    texts: list[JSON] = [{"text": part} if isinstance(part, str) else part for part in parts]
    return [
        part for part in objects_in(texts) if part.get("text") != "" and not part.get("thought")
    ]


def _read_answer(history: SessionBuilder, message: Object, is_repeated: bool) -> None:
    calls = objects_in(message.get("toolCalls"))
    told_apart = {_call_id(call) for call in calls}  # which the content may hold too
    said = map(_answer_piece, _content_parts(message.get("content")))
    pieces: list[TurnPiece] = [piece for piece in said if piece[0] not in told_apart]
    for call in calls:
        args = call.get("args")
        asked: Object = {"id": _call_id(call), "name": text_at(call, "name")}
        asked["args"] = args if isinstance(args, dict) else {}
        pieces.append((asked["id"], {"functionCall": asked}))
    history.add_answer(pieces, None if is_repeated else _request(message))
    for call in calls:
        if result := _result_parts(call):
            history.add_result(_call_id(call), *result)


def _answer_piece(part: JSON) -> TurnPiece:
    """A part of an answer; a call has its id as it is sent."""
    call = get(part, ("functionCall",))
    if not isinstance(call, dict) or not text_at(call, "id"):
        return None, part
    return _call_id(call), {**part, "functionCall": {**cast(Object, call), "id": _call_id(call)}}


def _result_parts(call: Object) -> list[JSON]:
    """Return a call's result or error; plain text is wrapped as Gemini CLI does."""
    result = call.get("result")
    parts: list[JSON] = [*objects_in(result if isinstance(result, list) else [result])]
    if any("functionResponse" in part for part in parts):
        named = [_result_part(part) for part in parts]  # possibly with those of parallel calls
        return [part for part in named if _result_call(part) in ("", _call_id(call))]
    if not isinstance(result, str):
        return []
    about = {"id": _call_id(call), "name": text_at(call, "name")}
    return [{"functionResponse": {**about, "response": {"output": result}}}]


def _request(message: Object) -> RecordedRequest:
    """Parse a request; the input includes cache reads, and thoughts are counted apart."""
    tokens = get(message, ("tokens",))
    read = token_count(tokens, "cached")
    given = max(0, token_count(tokens, "input") - read) + token_count(tokens, "tool")
    usage = Usage(
        input=given,
        cache_read=read,
        cache_write=0,
        cache_write_1h=0,
        output=token_count(tokens, "output") + token_count(tokens, "thoughts"),
    )
    time = parse_timestamp(message.get("timestamp"))
    return RecordedRequest(0, time, usage_or_none(usage), text_at(message, "model") or None)
