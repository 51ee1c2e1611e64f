"""pi sessions: one session per branch of the record tree.

In version 1 the records are one linear conversation. From version 2 on each names its parent, and
going back in the tree starts another branch: a session of its own, with the requests that no
earlier branch has. Answers of every provider are read as Anthropic messages; other providers'
reasoning is text, as pi sends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

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

AGENT = "pi"

_COMPACTION_INTRO = (
    "The conversation history before this point was compacted into the following summary:"
)
_BRANCH_INTRO = "The following is a summary of a branch that this conversation came back from:"
_BOOKKEEPING = frozenset(
    {"session", "thinking_level_change", "model_change", "label", "session_info", "custom"}
)
_INVALID_ID_CHARS = lazy_compile(r"[^a-zA-Z0-9_-]")


def recognizes(head: bytes, name: str) -> bool:
    """Check if the first record is the header of a session."""
    try:
        first = msgspec.json.decode(head.split(b"\n", 1)[0])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return get(first, ("type",)) == "session" and "cwd" in first and "id" in first


def read(records: Iterable[JSON], source: str) -> Iterator[RecordedSession | Skipped]:
    """A session for each branch, in segments that end at pi's compactions."""
    entries = objects_in(list(records))
    header = next((entry for entry in entries if entry.get("type") == "session"), None)
    id = text_at(header, "id")
    seen: set[int] = set()
    found = False
    for branch in _branches(entries):
        name = f"{id}/{text_at(branch[-1], 'id')}" if found else id
        for session in _segments(branch, seen, name, source):
            found = True
            yield session
    if not found:
        yield Skipped(source, NO_REQUEST)


def _branches(entries: Sequence[Object]) -> Iterator[list[Object]]:
    """Every way from the root of the tree to a leaf, in the order of the leaves."""
    place: dict[str, int] = {}
    parents: list[int | None] = []
    for position, entry in enumerate(entries):
        parents.append(place.get(text_at(entry, "parentId")))
        if "parentId" in entry and (id := text_at(entry, "id")):
            place[id] = position
    if not place:
        if entries:
            yield list(entries)
        return
    inner = set(parents)
    for leaf in place.values():
        if leaf not in inner:
            yield _branch_to(entries, parents, leaf)


def _branch_to(entries: Sequence[Object], parents: Sequence[int | None], leaf: int) -> list[Object]:
    way: list[Object] = []
    at: int | None = leaf
    while at is not None:  # a parent always comes before its children
        way.append(entries[at])
        at = parents[at]
    return way[::-1]


def _segments(
    branch: Sequence[Object], repeated: set[int], id: str, source: str
) -> Iterator[RecordedSession]:
    history, segment = SessionBuilder("anthropic"), 0
    for position, entry in enumerate(branch):
        if entry.get("type") != "compaction":
            _read_entry(history, entry, repeated)
            continue
        if session := history.build(id, AGENT, source, segment=segment):
            yield session
        history, segment = SessionBuilder("anthropic"), segment + 1
        history.add_input(
            _text_block(
                f"{_COMPACTION_INTRO}\n\n<summary>\n{text_at(entry, 'summary')}\n</summary>"
            )
        )
        for kept in _preserved_entries(branch, position):
            _read_entry(history, kept, repeated)
    if session := history.build(id, AGENT, source, segment=segment):
        yield session


def _preserved_entries(branch: Sequence[Object], position: int) -> Sequence[Object]:
    """Return the records that a compaction preserves."""
    first = branch[position].get("firstKeptEntryIndex")
    if isinstance(first, int) and first >= 0:
        return branch[first:position]
    id = text_at(branch[position], "firstKeptEntryId")
    for start in range(position) if id else ():
        if branch[start].get("id") == id:
            return branch[start:position]
    return ()


def _read_entry(history: SessionBuilder, entry: Object, is_repeated: set[int]) -> None:
    kind = text_at(entry, "type")
    if kind == "message":
        _read_message(history, entry, is_repeated)
    elif kind == "custom_message":
        history.add_input(*_content_blocks(history, entry.get("content")))
    elif kind == "branch_summary":
        history.add_input(_branch_summary(entry))
    elif kind not in _BOOKKEEPING and kind != "compaction":
        history.count_unknown(kind)


def _read_message(history: SessionBuilder, entry: Object, is_repeated: set[int]) -> None:
    message = entry.get("message")
    role, content = get(message, ("role",)), get(message, ("content",))
    if role == "assistant":
        _read_answer(history, entry, is_repeated)
    elif role == "toolResult":
        result: Object = {"type": "tool_result", "tool_use_id": _call_id(message, "toolCallId")}
        result["content"] = _content_blocks(history, content)
        history.add_result(
            _call_id(message, "toolCallId"), {**result, "is_error": _is_failed(message)}
        )
    elif role in ("user", "custom", "hookMessage"):
        history.add_input(*_content_blocks(history, content))
    elif role == "bashExecution":
        if not get(message, ("excludeFromContext",)):
            history.add_input(_text_block(_command_text(message)))
    elif role == "branchSummary":
        history.add_input(_branch_summary(message))
    else:
        history.count_unknown(role)


def _read_answer(history: SessionBuilder, entry: Object, is_repeated: set[int]) -> None:
    message = entry.get("message")
    if get(message, ("stopReason",)) == "error":  # pi asks again without it
        history.count_skipped("answer", "that ended in an error")
        return
    sent = None if id(entry) in is_repeated else _request(entry)
    is_repeated.add(id(entry))
    signed = get(message, ("api",)) == "anthropic-messages"
    pieces = (
        _answer_piece(history, block, signed) for block in objects_in(get(message, ("content",)))
    )
    history.add_answer([piece for piece in pieces if piece is not None], sent)


def _request(entry: Object) -> RecordedRequest:
    message = entry.get("message")
    time = parse_timestamp(entry.get("timestamp"))
    usage = get(message, ("usage",))
    read, written = token_count(usage, "cacheRead"), token_count(usage, "cacheWrite")
    billed = Usage(
        input=token_count(usage, "input"),
        cache_read=read,
        cache_write=written,
        cache_write_1h=0,
        output=token_count(usage, "output"),
    )
    if time is None:
        time = parse_timestamp(get(message, ("timestamp",)))
    return RecordedRequest(0, time, usage_or_none(billed), text_at(message, "model") or None)


def _answer_piece(history: SessionBuilder, block: Object, signed: bool) -> TurnPiece | None:
    kind = block.get("type")
    if kind == "toolCall":
        call = _call_id(block, "id")
        given = objects_in(
            [block.get("arguments")]
        )  # half an answer may hold half of them, as text
        tool: Object = {"type": "tool_use", "id": call, "name": text_at(block, "name")}
        return call, {**tool, "input": given[0] if given else {}}
    if kind == "thinking":
        signature = text_at(block, "thinkingSignature")
        if signed and signature:
            return None, _reasoning_block(block, signature)
        kind, block = "text", _text_block(text_at(block, "thinking"))
    if kind != "text":
        history.count_skipped("block", f"of kind {str(kind)[:40]!r}")
        return None
    text = text_at(block, "text")
    return (None, _text_block(text)) if text.strip() else None


def _reasoning_block(block: Object, signature: str) -> Object:
    if block.get("redacted"):
        return {"type": "redacted_thinking", "data": signature}
    said = {"thinking": text_at(block, "thinking"), "signature": signature}
    return {"type": "thinking", **said}


def _content_blocks(history: SessionBuilder, content: JSON) -> list[JSON]:
    """Return the content of a user or a tool; blank text cannot be sent."""
    if isinstance(content, str):
        return [_text_block(content)] if content.strip() else []
    blocks: list[JSON] = []
    for block in objects_in(content):
        if block.get("type") == "text":
            if text_at(block, "text").strip():
                blocks.append(_text_block(text_at(block, "text")))
        elif block.get("type") == "image":
            media = {"media_type": text_at(block, "mimeType"), "data": text_at(block, "data")}
            blocks.append({"type": "image", "source": {"type": "base64", **media}})
        else:
            history.count_skipped("block", f"of kind {str(block.get('type'))[:40]!r}")
    return blocks


def _text_block(text: str) -> Object:
    return {"type": "text", "text": text}


def _branch_summary(holder: JSON) -> Object:
    return _text_block(f"{_BRANCH_INTRO}\n\n<summary>\n{text_at(holder, 'summary')}</summary>")


def _command_text(message: JSON) -> str:
    """Return the text that pi sends for a command that the user ran."""
    output = text_at(message, "output")
    text = f"Ran `{text_at(message, 'command')}`\n"
    text += f"```\n{output}\n```" if output else "(no output)"
    if get(message, ("cancelled",)):
        text += "\n\n(command cancelled)"
    elif code := get(message, ("exitCode",)):
        text += f"\n\nCommand exited with code {code}"
    path = text_at(message, "fullOutputPath")
    cut = bool(get(message, ("truncated",))) and bool(path)
    return f"{text}\n\n[Output truncated. Full output: {path}]" if cut else text


def _call_id(holder: JSON, field: str) -> str:
    """Return a call id without characters that Anthropic rejects."""
    return _INVALID_ID_CHARS.sub("_", text_at(holder, field))[:64]


def _is_failed(message: JSON) -> bool:
    return get(message, ("isError",)) is True
