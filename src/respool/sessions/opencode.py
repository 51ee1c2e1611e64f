"""opencode sessions: exports, split storage files and the SQLite database.

In older versions each session, message and part is a file. Newer ones keep them in a SQLite
database, which is opened read-only; during a write the previous state is read.

Each step of a message is an answer. opencode clears old results in later requests; the record keeps
them, so they are read as first sent, and a note counts them. The prompt of the request for a
summary is not recorded, so that request is skipped.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
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
    chat_call,
    chat_result,
    objects_in,
    parse_timestamp,
    text_at,
    token_count,
    usage_or_none,
)
from .transcript_file import (
    MAX_CONVERSATION_BYTES,
    UnreadableFile,
    decode_json,
    read_value,
    read_values,
)

_SESSIONS = "SELECT id, parent_id FROM session ORDER BY time_created, id"
_SIZE = "SELECT total(length(data)) FROM part WHERE session_id = ?"
_MESSAGES = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
_PARTS = "SELECT message_id, data FROM part WHERE session_id = ? ORDER BY message_id, id"
_LOCK_TIMEOUT = 2.0  # seconds

AGENT = "opencode"
_EXPORT_HEAD = lazy_compile(rb'\s*\{\s*"info"\s*:\s*\{\s*"')
_STORED_HEAD = lazy_compile(rb'\s*\{.{0,400}?"id"\s*:\s*"ses_', re.DOTALL)
_SQLITE_HEAD = b"SQLite format 3\0"
_RECAP = "What did we do so far?"  # replaces the history before a summary
_TASK = "The following tool was executed by the user"
_BOOKKEEPING = frozenset({"step-start", "step-finish", "patch", "snapshot", "retry", "agent"})


def _database_sessions(path: Path) -> Iterator[JSON | Skipped]:
    """Each session in a database."""
    with closing(_connect_readonly(path)) as connection:
        for id, parent in connection.execute(_SESSIONS).fetchall():
            yield from _exported_session(connection, str(path), id, parent)


def read_stored_session(path: Path, session: str) -> JSON:
    """The export of one session in a database; None if it is not there."""
    with closing(_connect_readonly(path)) as connection:
        if not connection.execute("SELECT 1 FROM session WHERE id = ?", (session,)).fetchall():
            return None
        found = _exported_session(connection, str(path), session, None)
        return next((one for one in found if not isinstance(one, Skipped)), None)


def _connect_readonly(path: Path) -> sqlite3.Connection:
    """A connection that cannot write; where not even its lock may be written, one without."""
    uri = path.absolute().as_uri()
    connection = sqlite3.connect(f"{uri}?mode=ro", uri=True, timeout=_LOCK_TIMEOUT)
    try:
        connection.execute("SELECT 1 FROM session LIMIT 1").fetchall()
    except sqlite3.OperationalError as why:
        connection.close()
        if "open" not in str(why):
            raise
        return sqlite3.connect(f"{uri}?immutable=1", uri=True)
    except BaseException:
        connection.close()
        raise
    return connection


def _exported_session(
    connection: sqlite3.Connection, source: str, id: JSON, parent: JSON
) -> Iterator[JSON | Skipped]:
    """One session as its export."""
    ((size,),) = connection.execute(_SIZE, (id,)).fetchall()
    if size > MAX_CONVERSATION_BYTES:
        yield Skipped(source, f"session {id} has more than {MAX_CONVERSATION_BYTES:,} bytes")
        return
    rows = [(key, _decode_column(data)) for key, data in connection.execute(_MESSAGES, (id,))]
    decoded = [(key, _decode_column(data)) for key, data in connection.execute(_PARTS, (id,))]
    parts: dict[JSON, list[JSON]] = {}
    for key, part in decoded:
        parts.setdefault(key, []).append(part)
    messages = [_exported_message(info, key, parts.get(key, ())) for key, info in rows]
    yield {"info": {"id": id, "parentID": parent}, "messages": messages}
    odd = sum(not isinstance(value, dict) for _, value in (*rows, *decoded))
    if odd:
        yield Skipped(source, f"session {id}: {odd:,} rows are no JSON objects")


def _decode_column(data: JSON) -> JSON:
    return decode_json(data.encode("utf-8", "replace")) if isinstance(data, str) else None


def _exported_message(info: JSON, id: JSON, parts: Iterable[JSON]) -> Object:
    about = cast(Object, info) if isinstance(info, dict) else {}
    return {"info": {**about, "id": id}, "parts": list(parts)}


def _split_session(path: Path) -> Iterator[JSON | Skipped]:
    """Return the session of a split-storage file, with its messages and parts."""
    info, root = read_value(path), path.parents[2]
    if not isinstance(info, dict):
        raise UnreadableFile("it is no session")
    problems: list[str] = []
    messages: list[JSON] = []
    for message in read_values(_json_files(root / "message" / text_at(info, "id")), problems):
        id = text_at(message, "id")
        parts = read_values(_json_files(root / "part" / id) if id else (), problems)
        messages.append(_exported_message(message, id, parts))
    yield {"info": info, "messages": messages}
    if problems:
        more = f", and {len(problems) - 1:,} more" if len(problems) > 1 else ""
        yield Skipped(str(path), f"{problems[0]}{more}")


def _json_files(folder: Path) -> list[Path]:
    """The files in the order of their names, which is that of their making."""
    return sorted(folder.glob("*.json"))


def recognizes(head: bytes, name: str) -> bool:
    """Check if a file is an exported session, one in split storage, or the database."""
    if head.startswith(_SQLITE_HEAD):
        return name.startswith("opencode")
    if name.startswith("ses_") and _STORED_HEAD.match(head):
        return b'"messages"' not in head
    return bool(_EXPORT_HEAD.match(head)) and b'"ses_' in head


def stored_records(path: Path) -> Iterator[JSON | Skipped] | None:
    """The sessions of a storage, which holds them in pieces."""
    if path.suffix == ".db":
        return _database_sessions(path)
    session = path.name.startswith("ses_") and path.parent.parent.name == "session"
    return _split_session(path) if session else None


def read(records: Iterable[JSON], source: str) -> Iterator[RecordedSession | Skipped]:
    """Each export as segments that end at opencode's compactions."""
    found = False
    for record in records:
        for session in _segments(record, source):
            found = True
            yield session
    if not found:
        yield Skipped(source, NO_REQUEST)


def _segments(record: JSON, source: str) -> Iterator[RecordedSession]:
    id = text_at(record, "info", "id")
    parent = text_at(record, "info", "parentID") or None
    history, segment = SessionBuilder("openai-chat"), 0
    messages = objects_in(get(record, ("messages",)))
    for position, message in enumerate(messages):
        if not _is_summary(message):
            _read_message(history, message, is_repeated=False)
            continue
        history.count_skipped("request", "for a summary")
        if session := history.build(id, AGENT, source, segment=segment, parent=parent):
            yield session
        history, segment = SessionBuilder("openai-chat"), segment + 1
        history.add_input({"role": "user", "content": _RECAP})
        _read_message(history, message, is_repeated=True)
        for kept in _preserved_messages(messages[:position]):
            _read_message(history, kept, is_repeated=True)
    if session := history.build(id, AGENT, source, segment=segment, parent=parent):
        yield session


def _is_summary(message: Object) -> bool:
    info = message.get("info")
    return get(info, ("role",)) == "assistant" and get(info, ("summary",)) is True


def _preserved_messages(before: Sequence[Object]) -> Sequence[Object]:
    """Return the messages that a compaction preserves, if it names the first of them."""
    for message in reversed(before):
        for part in objects_in(message.get("parts")):
            if part.get("type") == "compaction":
                first = text_at(part, "tail_start_id")
                ids = [text_at(kept, "info", "id") for kept in before]
                return before[ids.index(first) :] if first in ids else ()
    return ()


def _read_message(history: SessionBuilder, message: Object, is_repeated: bool) -> None:
    info, parts = message.get("info"), objects_in(message.get("parts"))
    role = get(info, ("role",))
    if role == "user":
        _read_user(history, parts)
    elif role == "assistant":
        steps = _steps(parts)
        for step in steps:
            sent = None if is_repeated else _request(info, step, len(steps) == 1)
            _read_answer(history, step, sent)
    else:
        history.count_unknown(role)


def _read_user(history: SessionBuilder, parts: Sequence[Object]) -> None:
    content: list[JSON] = []
    for part in parts:
        kind = text_at(part, "type")
        if kind == "text":
            if text_at(part, "text") and not part.get("ignored"):
                content.append({"type": "text", "text": text_at(part, "text")})
        elif kind == "subtask":
            content.append({"type": "text", "text": _TASK})
        elif kind == "file":
            content += _image_parts(history, part)
        elif kind != "compaction" and kind not in _BOOKKEEPING:
            history.count_unknown(kind)
    if content:
        history.add_input({"role": "user", "content": content})


def _image_parts(history: SessionBuilder, part: Object) -> list[JSON]:
    """Return an image part; a text file has its own text part."""
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


def _request(info: JSON, step: Sequence[Object], alone: bool) -> RecordedRequest:
    """The time and usage of a step: its own, or the message's if it is the only one."""
    ends = [part for part in step if part.get("type") == "step-finish"]
    tokens = get(ends[-1], ("tokens",)) if ends else None
    if alone and tokens is None:
        tokens = get(info, ("tokens",))
    starts = (get(part, ("time", "start")) for part in step)
    first = None if alone else next((time for time in starts if time is not None), None)
    time = parse_timestamp(get(info, ("time", "created")) if first is None else first)
    return RecordedRequest(0, time, _parse_usage(tokens), text_at(info, "modelID") or None)


def _parse_usage(tokens: JSON) -> Usage | None:
    """The input is counted without the cache, and the output without reasoning."""
    read, written = token_count(tokens, "cache", "read"), token_count(tokens, "cache", "write")
    output = token_count(tokens, "output") + token_count(tokens, "reasoning")
    return usage_or_none(
        Usage(
            input=token_count(tokens, "input"),
            cache_read=read,
            cache_write=written,
            cache_write_1h=0,
            output=output,
        )
    )


def _read_answer(
    history: SessionBuilder, step: Sequence[Object], sent: RecordedRequest | None
) -> None:
    said: dict[str, list[str]] = {"text": [], "reasoning": []}
    calls: list[TurnPiece] = []
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


def _read_result(history: SessionBuilder, part: Object) -> None:
    call, state = text_at(part, "callID"), part.get("state")
    if get(state, ("status",)) == "completed":
        history.add_result(call, chat_result(call, text_at(state, "output")))
    elif get(state, ("status",)) == "error":
        history.add_result(call, chat_result(call, text_at(state, "error")))
    for _ in objects_in(get(state, ("attachments",))):
        history.count_skipped("file", "attached to a result")
    if get(state, ("time", "compacted")) is not None:
        history.count_skipped("clearing", "of an old result")
