"""Collections of transcripts: JSONL with one whole session of any agent per line.

A line has an `id`, the `agent` or `format`, and the records as `messages` or `recs`; `meta` may
hold the rest of the original file. Each line is read by its agent's reader, under its own id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import cast

from msgspec.structs import replace

from ..regex import lazy_compile
from ..wire.base import known_formats
from ..wire.json import JSON, Object
from . import claude_code, codex, copilot_cli, gemini_cli, inspect_log, opencode, openhands, pi
from .session import RecordedSession, Skipped, text_at
from .trajectory import conversation_session
from .transcript_file import first_line, top_fields

AGENT = "collection"

Records = list[JSON]

_NAME = lazy_compile(rb'"([^"\\]{1,40})"')


def _line_records(line: Object, records: Records) -> Records:
    return records


def _chat_document(line: Object, records: Records) -> Records:
    """A document whose `messages` were taken out of it."""
    meta = line.get("meta")
    return [{**(cast(Object, meta) if isinstance(meta, dict) else {}), "messages": records}]


def _event_list(line: Object, records: Records) -> Records:
    return [records]


def _inspect_sample(line: Object, records: Records) -> Records:
    return [{"id": line.get("id"), "messages": records}]


_AGENTS: dict[str, tuple[ModuleType, Callable[[Object, Records], Records]]] = {
    "claude-code": (claude_code, _line_records),
    "codex": (codex, _line_records),
    "codex-cli": (codex, _line_records),
    "pi": (pi, _line_records),
    "copilot-cli": (copilot_cli, _line_records),
    "opencode": (opencode, _chat_document),
    "gemini-cli": (gemini_cli, _chat_document),
    "openhands": (openhands, _event_list),
    "openhands-events": (openhands, _event_list),
    "inspect": (inspect_log, _inspect_sample),
}


def recognizes(head: bytes, name: str) -> bool:
    """Check if the first line is a session that names its agent."""
    if not name.removesuffix(".gz").endswith(".jsonl"):
        return False
    fields = top_fields(first_line(head))
    named = [_NAME.match(fields.get(field, b"")) for field in ("format", "agent")]
    known = any(_known_name(match[1].decode("utf-8", "replace")) for match in named if match)
    return known and "id" in fields and "type" not in fields


def _known_name(label: str) -> str | None:
    name = label.lower().replace(" ", "-")
    return name if name in _AGENTS or name in known_formats() else None


def read(records: Iterable[JSON], source: str) -> Iterator[RecordedSession | Skipped]:
    """The sessions of each line."""
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict):
            yield Skipped(source, f"session {number:,}: it is no object")
            continue
        try:
            yield from _read_line(cast(Object, record), number, source)
        except RecursionError:
            yield Skipped(source, f"session {number:,}: a record in it is nested too deeply")


def _read_line(line: Object, number: int, source: str) -> Iterator[RecordedSession | Skipped]:
    id = text_at(line, "id") or f"{source}:{number}"
    name = _known_name(text_at(line, "format")) or _known_name(text_at(line, "agent"))
    records = next((line[key] for key in ("messages", "recs") if key in line), None)
    if name is None:
        yield Skipped(
            source, f"session {id}: it is of no agent and in no format that respool knows"
        )
    elif not isinstance(records, list):
        yield Skipped(source, f"session {id}: it has neither messages nor recs")
    elif name in _AGENTS:
        yield from _read_agent_line(name, line, cast(Records, records), id=id, source=source)
    else:
        agent = text_at(line, "agent") or AGENT
        kept = cast(Records, records)
        yield conversation_session(
            kept, line.get("meta"), id=id, source=source, format=name, agent=agent
        )


def _read_agent_line(
    name: str, line: Object, records: Records, *, id: str, source: str
) -> Iterator[RecordedSession | Skipped]:
    module, arranged = _AGENTS[name]
    root = text_at(line, "meta", "sessionId") or text_at(line, "meta", "info", "id")
    for item in cast(
        "Iterator[RecordedSession | Skipped]", module.read(arranged(line, records), source)
    ):
        if isinstance(item, Skipped):
            yield Skipped(source, f"session {id}: {item.reason}")
            continue
        root = root or _root_id(item)
        parent = id if item.parent == root else item.parent
        yield replace(item, id=id + item.id.removeprefix(root), parent=parent)


def _root_id(session: RecordedSession) -> str:
    """The id of the main conversation, which a sub-agent's id begins with."""
    parent = session.parent or ""
    return parent if parent and session.id.startswith(f"{parent}/") else session.id
