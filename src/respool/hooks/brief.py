"""Briefs around Claude Code's own compaction: what the conversation did, as facts.

Before a compaction its prompt gets them, after one the new context does. When a session is resumed,
only what an earlier compaction took out of it is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..engine import fold_request
from ..facts import Facts
from ..policy import Policy
from ..sessions import claude_code
from ..sessions.session import RecordedSession, text_at
from ..wire.json import JSON, Object
from .timeline import ToolResult, events_of
from .transcripts import Transcripts

BRIEF_EVENTS = ("PreCompact", "SessionStart")
MAX_TOKENS = 2_000
_BEFORE = "Facts about this conversation, from a record of its tool calls (respool brief):"
_AFTER = "Facts about the part of this conversation that a compaction took out, from a record of "
_AFTER += "its tool calls (respool brief):"


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


def describe(segments: Sequence[RecordedSession], max_tokens: int = MAX_TOKENS) -> str:
    """All calls of these segments in a reader's words; empty: there are none."""
    messages: list[JSON] = []
    known: set[str] = set()
    for segment in segments:
        for event in events_of(segment):
            if not isinstance(event, ToolResult):
                messages.append({"role": event.role, "content": event.text})
            elif event.call not in known:
                known.add(event.call)
                messages += event.messages()
    if not known:
        return ""
    folded = fold_request(
        messages, format="anthropic", policy=Policy(), facts=Facts(), memo=None, passes=()
    )
    return folded.describe_calls(max_tokens)
