"""opencode's sessions, exported or in its own storage: messages that hold calls and results.

Each step of a message is an answer. opencode clears old results in later requests; the record
keeps them, so they are read as they first stood, and a note counts them. The request for a
summary holds a prompt that is not recorded: it is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..codecs.json_tree import JSON, Object, get
from . import opencode_store
from .history import (
    History,
    Piece,
    chat_call,
    chat_result,
    count,
    objects,
    reported,
    seconds,
    text_at,
)
from .session import NO_REQUEST, Sent, Session, Skipped, Usage

AGENT = "opencode"

_EXPORT = re.compile(rb'\s*\{\s*"info"\s*:\s*\{\s*"')
_STORED = re.compile(rb'\s*\{.{0,400}?"id"\s*:\s*"ses_', re.DOTALL)
_DATABASE = b"SQLite format 3\0"
_RECAP = "What did we do so far?"  # stands for the history before a summary
_TASK = "The following tool was executed by the user"
_BOOKKEEPING = frozenset({"step-start", "step-finish", "patch", "snapshot", "retry", "agent"})


def recognises(head: bytes, name: str) -> bool:
    """Whether a file is one exported session, one in its storage, or its database."""
    if head.startswith(_DATABASE):
        return name.startswith("opencode")
    if name.startswith("ses_") and _STORED.match(head):
        return b'"messages"' not in head
    return bool(_EXPORT.match(head)) and b'"ses_' in head


def stored(path: Path) -> Iterator[JSON | Skipped] | None:
    """The sessions of a storage, which holds them in pieces."""
    if path.suffix == ".db":
        return opencode_store.database(path)
    session = path.name.startswith("ses_") and path.parent.parent.name == "session"
    return opencode_store.split(path) if session else None


def read(records: Iterable[JSON], source: str) -> Iterator[Session | Skipped]:
    """Each export as segments that end at opencode's compactions."""
    found = False
    for record in records:
        for session in _segments(record, source):
            found = True
            yield session
    if not found:
        yield Skipped(source, NO_REQUEST)


def _segments(record: JSON, source: str) -> Iterator[Session]:
    id = text_at(record, "info", "id")
    parent = text_at(record, "info", "parentID") or None
    history, segment = History("openai-chat"), 0
    messages = objects(get(record, ("messages",)))
    for position, message in enumerate(messages):
        if not _is_summary(message):
            _read_message(history, message, is_repeated=False)
            continue
        history.count_skipped("request", "for a summary")
        if session := history.build(id, AGENT, source, segment, parent):
            yield session
        history, segment = History("openai-chat"), segment + 1
        history.add_input({"role": "user", "content": _RECAP})
        _read_message(history, message, is_repeated=True)
        for kept in _tail(messages[:position]):
            _read_message(history, kept, is_repeated=True)
    if session := history.build(id, AGENT, source, segment, parent):
        yield session


def _is_summary(message: Object) -> bool:
    info = message.get("info")
    return get(info, ("role",)) == "assistant" and get(info, ("summary",)) is True


def _tail(before: Sequence[Object]) -> Sequence[Object]:
    """The messages that a compaction keeps beside its summary, if it names the first of them."""
    for message in reversed(before):
        for part in objects(message.get("parts")):
            if part.get("type") == "compaction":
                first = text_at(part, "tail_start_id")
                ids = [text_at(kept, "info", "id") for kept in before]
                return before[ids.index(first) :] if first in ids else ()
    return ()


def _read_message(history: History, message: Object, is_repeated: bool) -> None:
    info, parts = message.get("info"), objects(message.get("parts"))
    role = get(info, ("role",))
    if role == "user":
        _read_user(history, parts)
    elif role == "assistant":
        steps = _steps(parts)
        for step in steps:
            sent = None if is_repeated else _sent(info, step, len(steps) == 1)
            _read_answer(history, step, sent)
    else:
        history.count_unknown(role)


def _read_user(history: History, parts: Sequence[Object]) -> None:
    content: list[JSON] = []
    for part in parts:
        kind = text_at(part, "type")
        if kind == "text":
            if text_at(part, "text") and not part.get("ignored"):
                content.append({"type": "text", "text": text_at(part, "text")})
        elif kind == "subtask":
            content.append({"type": "text", "text": _TASK})
        elif kind == "file":
            content += _file(history, part)
        elif kind != "compaction" and kind not in _BOOKKEEPING:
            history.count_unknown(kind)
    if content:
        history.add_input({"role": "user", "content": content})


def _file(history: History, part: Object) -> list[JSON]:
    """An image; a text file is told in a text part beside it."""
    kind, url = text_at(part, "mime"), text_at(part, "url")
    if kind.startswith("image/") and url:
        return [{"type": "image_url", "image_url": {"url": url}}]
    if kind not in ("text/plain", "application/x-directory"):
        history.count_skipped("file", f"of kind {kind[:40]!r}")
    return []


def _steps(parts: Sequence[Object]) -> list[list[Object]]:
    """The parts of each request that a message took; most took one."""
    steps: list[list[Object]] = [[]]
    for part in parts:
        if part.get("type") == "step-start" and steps[-1]:
            steps.append([])
        steps[-1].append(part)
    return steps


def _sent(info: JSON, step: Sequence[Object], alone: bool) -> Sent:
    """The time and usage of a step: its own, or the message's if it is the only one."""
    ends = [part for part in step if part.get("type") == "step-finish"]
    tokens = get(ends[-1], ("tokens",)) if ends else None
    if alone and tokens is None:
        tokens = get(info, ("tokens",))
    starts = (get(part, ("time", "start")) for part in step)
    first = None if alone else next((time for time in starts if time is not None), None)
    time = seconds(get(info, ("time", "created")) if first is None else first)
    return Sent(0, time, _usage(tokens), text_at(info, "modelID") or None)


def _usage(tokens: JSON) -> Usage | None:
    """The input is counted without the cache, and the output without reasoning."""
    read, written = count(tokens, "cache", "read"), count(tokens, "cache", "write")
    output = count(tokens, "output") + count(tokens, "reasoning")
    return reported(Usage(count(tokens, "input"), read, written, 0, output))


def _read_answer(history: History, step: Sequence[Object], sent: Sent | None) -> None:
    said: dict[str, list[str]] = {"text": [], "reasoning": []}
    calls: list[Piece] = []
    for part in step:
        kind = text_at(part, "type")
        if kind in ("text", "reasoning"):
            said[kind].append(text_at(part, "text"))
        elif kind == "tool":
            input = get(part, ("state", "input"))
            calls.append(chat_call(text_at(part, "callID"), text_at(part, "tool"), input))
        elif kind not in _BOOKKEEPING and kind != "compaction":
            history.count_unknown(kind)
    fields: Object = {"content": "".join(said["text"]) or None}
    if thought := "\n".join(text for text in said["reasoning"] if text):
        fields["reasoning_content"] = thought
    history.add_answer([(None, fields), *calls], sent)
    for part in step:
        if part.get("type") == "tool":
            _read_result(history, part)


def _read_result(history: History, part: Object) -> None:
    call, state = text_at(part, "callID"), part.get("state")
    if get(state, ("status",)) == "completed":
        history.add_result(call, chat_result(call, text_at(state, "output")))
    elif get(state, ("status",)) == "error":
        history.add_result(call, chat_result(call, text_at(state, "error")))
    for _ in objects(get(state, ("attachments",))):
        history.count_skipped("file", "attached to a result")
    if get(state, ("time", "compacted")) is not None:
        history.count_skipped("clearing", "of an old result")
