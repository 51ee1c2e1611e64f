"""Briefs of conversations: what the agent did, as facts.

Claude Code's own compaction gets one before it starts, and the new context gets one after it. When
a session is resumed, only what an earlier compaction took out of it is told.
"""

from __future__ import annotations

import contextlib
import heapq
import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from ..engine import fold_request
from ..facts import Facts
from ..policy import Policy
from ..sessions import claude_code
from ..sessions.readers import READERS, find_transcripts, read_file
from ..sessions.session import RecordedSession, text_at
from ..sessions.transcript_file import HEAD_BYTES, UnreadableFile, open_regular
from ..wire.json import JSON, Object
from .timeline import EVENT_FORMATS, ToolResult, events_of
from .transcripts import Transcripts

BRIEF_EVENTS = ("PreCompact", "SessionStart")
MAX_TOKENS = 2_000
_MAX_HEADS = 200  # transcripts looked into for the one of a folder
_BEFORE = "Facts about this conversation, from a record of its tool calls (respool brief):"
_AFTER = (
    "Facts about the part of this conversation that a compaction took out, from a record of its "
    "tool calls (respool brief):"
)


def answer_brief(event: Object, transcripts: Transcripts) -> bytes:
    """The answer to an event around a compaction; empty: there is nothing to tell."""
    path = text_at(event, "transcript_path")
    segments = read_segments(transcripts.records(Path(path)), path)
    if event.get("hook_event_name") == "PreCompact":
        text = describe(segments)
        return f"{_BEFORE}\n{text}\n".encode("utf-8", "replace") if text else b""
    gone = _segments_before(segments, text_at(event, "source"))
    text = describe(gone)
    if not text:
        return b""
    specific = {"hookEventName": "SessionStart", "additionalContext": f"{_AFTER}\n{text}"}
    return msgspec.json.encode({"hookSpecificOutput": specific})


def read_segments(records: Sequence[JSON], source: str) -> list[RecordedSession]:
    """The conversation of Claude Code in these records, split where it was compacted."""
    found = claude_code.read(iter(records), source)
    return [one for one in found if isinstance(one, RecordedSession) and one.parent is None]


def _segments_before(segments: Sequence[RecordedSession], source: str) -> list[RecordedSession]:
    """The segments that the model no longer sees when a session starts for this reason."""
    if source == "compact":
        return list(segments)
    if source != "resume" or not segments:
        return []
    last = segments[-1].segment
    return [one for one in segments if one.segment < last]


def find_current_transcript(
    folder: Path, home: Path, environ: Mapping[str, str], session: str | None = None
) -> Path | None:
    """The transcript, written last or of this session, of an agent that works in this folder."""
    found: list[tuple[float, Path]] = []
    for path in find_transcripts(home, environ=environ):
        with contextlib.suppress(OSError):
            if path.suffix != ".db" and (session is None or session in path.stem):
                found.append((path.stat().st_mtime, path))
    latest = heapq.nlargest(_MAX_HEADS, found)
    return next((path for _, path in latest if _is_from(path, folder)), None)


def _is_from(path: Path, folder: Path) -> bool:
    """Return whether the head of a transcript names the folder, or its hash as Gemini CLI does."""
    try:
        with open_regular(path) as stream:
            head = stream.read(HEAD_BYTES)
    except (OSError, UnreadableFile):
        return False
    name = str(folder)
    return json.dumps(name).encode() in head or sha256(name.encode()).hexdigest().encode() in head


def describe_transcript(path: Path, max_tokens: int) -> str:
    """The conversation in a transcript of any agent, in a reader's words; empty: no calls."""
    found = [
        one
        for one in read_file(path, READERS)
        if isinstance(one, RecordedSession) and one.parent is None
    ]
    return describe(found, max_tokens)


def describe(segments: Sequence[RecordedSession], max_tokens: int = MAX_TOKENS) -> str:
    """All calls of these segments in a reader's words; empty: there are none."""
    last = segments[-1] if segments else None
    if last is not None and (len(segments) == 1 or last.format not in EVENT_FORMATS):
        return _describe(list(last.messages), last.format, max_tokens)
    messages: list[JSON] = []
    known: set[str] = set()
    for segment in segments:
        for event in events_of(segment):
            if not isinstance(event, ToolResult):
                messages.append({"role": event.role, "content": event.text})
            elif event.call not in known:
                known.add(event.call)
                messages += event.messages()
    return _describe(messages, "anthropic", max_tokens) if known else ""


def _describe(messages: list[JSON], format: str, max_tokens: int) -> str:
    folded = fold_request(
        messages, format=format, policy=Policy(), facts=Facts(), memo=None, passes=()
    )
    return folded.describe_calls(max_tokens)
