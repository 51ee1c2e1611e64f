"""Collections of transcripts: JSONL, one whole session of any agent a line.

A line has an `id`, the `agent` or `format`, and the records as `messages` or `recs`; what else its
file held may stand in `meta`. Each is handed to its agent's reader, and told under its own id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import cast

from msgspec.structs import replace

from ..codecs.codec import FORMATS, FormatName
from ..codecs.json_tree import JSON, Object
from . import (
    claude_code,
    codex,
    copilot_cli,
    gemini_cli,
    inspect_log,
    opencode,
    openhands,
    pi,
)
from .heads import first_line, top_fields
from .history import text_at
from .session import Session, Skipped
from .trajectory import conversation

AGENT = "collection"

Records = list[JSON]


def _as_lines(line: Object, records: Records) -> Records:
    return records


def _as_chat(line: Object, records: Records) -> Records:
    """A document whose `messages` were taken out of it."""
    meta = line.get("meta")
    return [{**(cast(Object, meta) if isinstance(meta, dict) else {}), "messages": records}]


def _as_events(line: Object, records: Records) -> Records:
    return [records]


def _as_sample(line: Object, records: Records) -> Records:
    return [{"id": line.get("id"), "messages": records}]


_AGENTS: dict[str, tuple[ModuleType, Callable[[Object, Records], Records]]] = {
    "claude-code": (claude_code, _as_lines),
    "codex": (codex, _as_lines),
    "codex-cli": (codex, _as_lines),
    "pi": (pi, _as_lines),
    "copilot-cli": (copilot_cli, _as_lines),
    "opencode": (opencode, _as_chat),
    "gemini-cli": (gemini_cli, _as_chat),
    "openhands": (openhands, _as_events),
    "openhands-events": (openhands, _as_events),
    "inspect": (inspect_log, _as_sample),
}
_NAMED = re.compile(rb'"([^"\\]{1,40})"')


def recognises(head: bytes, name: str) -> bool:
    """Whether the first line is a session that says whose it is."""
    if not name.removesuffix(".gz").endswith(".jsonl"):
        return False
    fields = top_fields(first_line(head))
    named = [_NAMED.match(fields.get(field, b"")) for field in ("format", "agent")]
    known = any(_name(match[1].decode("utf-8", "replace")) for match in named if match)
    return known and "id" in fields and "type" not in fields


def _name(label: str) -> str | None:
    name = label.lower().replace(" ", "-")
    return name if name in _AGENTS or name in FORMATS else None


def read(records: Iterable[JSON], source: str) -> Iterator[Session | Skipped]:
    """The sessions of each line."""
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict):
            yield Skipped(source, f"session {number:,}: it is no object")
            continue
        try:
            yield from _line(cast(Object, record), number, source)
        except RecursionError:
            yield Skipped(source, f"session {number:,}: a record in it is nested too deeply")


def _line(line: Object, number: int, source: str) -> Iterator[Session | Skipped]:
    id = text_at(line, "id") or f"{source}:{number}"
    name = _name(text_at(line, "format")) or _name(text_at(line, "agent"))
    records = next((line[key] for key in ("messages", "recs") if key in line), None)
    if name is None:
        yield Skipped(
            source, f"session {id}: it is of no agent and in no format that respool knows"
        )
    elif not isinstance(records, list):
        yield Skipped(source, f"session {id}: it has neither messages nor recs")
    elif name in _AGENTS:
        yield from _of_agent(name, line, cast(Records, records), id, source)
    else:
        agent = text_at(line, "agent") or AGENT
        kept = cast(Records, records)
        yield conversation(kept, line.get("meta"), id, source, cast(FormatName, name), agent)


def _of_agent(
    name: str, line: Object, records: Records, id: str, source: str
) -> Iterator[Session | Skipped]:
    module, arranged = _AGENTS[name]
    root = text_at(line, "meta", "sessionId") or text_at(line, "meta", "info", "id")
    for told in cast("Iterator[Session | Skipped]", module.read(arranged(line, records), source)):
        if isinstance(told, Skipped):
            yield Skipped(source, f"session {id}: {told.reason}")
            continue
        root = root or _root(told)
        parent = id if told.parent == root else told.parent
        yield replace(told, id=id + told.id.removeprefix(root), parent=parent)


def _root(session: Session) -> str:
    """The id of the main conversation, which a sub-agent's id begins with."""
    parent = session.parent or ""
    return parent if parent and session.id.startswith(f"{parent}/") else session.id
