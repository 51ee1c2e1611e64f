"""`respool loops`: list the loops of a session, their cost, and when advice would have come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from ..errors import PassedThrough, RespoolError
from ..loops import Loop, find_loops
from ..loops.detector import index_history
from ..providers.base import Codec
from ..providers.registry import PROVIDERS
from ..providers.tool_definitions import tool_definitions
from ..sessions.readers import READERS, UNKNOWN_AGENT, read_file
from ..sessions.session import RecordedSession, Skipped
from ..tokens import counter_for, part_tokens
from ..tools import Tools
from ..wire.body import read_body
from ..wire.detect import detect_format
from ..wire.json import JSON
from .console import CommandError, Table, pluralize, show
from .options import (
    STANDARD_STREAM,
    display_name,
    file_argument,
    format_option,
    json_option,
    read_input,
    to_json,
    tools_option,
)

_COLUMNS = ("kind", "what", "target", "calls", "tokens", "told after", "message")


class _LoopEntry(Struct, frozen=True):
    """Loop of one conversation, and the tokens of its wasted calls."""

    session: str  # empty for a request
    loop: Loop
    tokens: int

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON data."""
        one = self.loop
        return {
            "session": self.session or None,
            "kind": one.kind,
            "tool": one.tool,
            "operation": one.operation,
            "target": one.target,
            "calls": len(one.calls),
            "count": one.count,
            "tokens": self.tokens,
            "first_call": one.calls[0],
            "told_after": one.advised_after,
            "told": len(one.advised),
            "level": one.level,
            "message": one.message,
        }


class _Scan(Struct, frozen=True):
    """Result of scanning a file."""

    entries: list[_LoopEntry]
    conversations: int
    calls: int


@click.command()
@file_argument
@format_option
@tools_option
@json_option
def loops(file: str, format: str | None, tools: Tools, as_json: bool) -> None:
    """List the loops of the agent in FILE.

    FILE is an agent's transcript, or a request. A loop is a call that is repeated and returns
    nothing new, with nothing changed in between.
    """
    read = _scan(file, format, tools)
    if as_json:
        click.echo(to_json([one.to_dict() for one in read.entries]))
        return
    show(_summary_line(read), *([_table(read.entries)] if read.entries else []))


def _summary_line(scan: _Scan) -> str:
    calls = pluralize(scan.calls, "call")
    where = f"{calls} in {scan.conversations:,} conversations" if scan.conversations > 1 else calls
    if not scan.entries:
        return f"No loops in {where}."
    count, tokens = len(scan.entries), sum(one.tokens for one in scan.entries)
    again = sum(len(one.loop.repeated) for one in scan.entries)
    return (
        f"{pluralize(count, 'loop')} in {where}: "
        f"{again:,} of the calls brought nothing new, with {tokens:,} tokens."
    )


def _table(entries: Sequence[_LoopEntry]) -> Table:
    several = len({one.session for one in entries}) > 1
    rows = [(*((one.session,) if several else ()), *_row(one)) for one in entries]
    columns = (*(("conversation",) if several else ()), *_COLUMNS)
    return Table("Loops", columns, rows, frozenset({"calls", "tokens"}))


def _row(entry: _LoopEntry) -> tuple[str, ...]:
    loop = entry.loop
    what = loop.tool if loop.operation == "default" else f"{loop.tool} {loop.operation}"
    return (
        loop.kind,
        what,
        " ".join((loop.target or "").split()),
        f"{len(loop.calls):,}",
        f"{entry.tokens:,}",
        f"{loop.advised_after} of {len(loop.calls)}",
        loop.message,
    )


def _scan(file: str, format: str | None, tools: Tools) -> _Scan:
    """Find the loops of a transcript, or of a request."""
    if file == STANDARD_STREAM or format is not None:
        return _scan_request(file, format, tools)
    read, why = _scan_transcript(file, tools)
    if read.conversations:
        return read
    try:
        return _scan_request(file, None, tools)
    except PassedThrough as error:
        raise CommandError(f"{display_name(file)}: {error}") from None
    except RespoolError as error:
        reason = f"This is no transcript{why}, and no request: {error}"
        raise CommandError(f"{display_name(file)}: {reason}") from None


def _scan_transcript(file: str, tools: Tools) -> tuple[_Scan, str]:
    """Find the loops of each conversation in a file; if it has none, say why."""
    found: list[_LoopEntry] = []
    conversations, calls, why = 0, 0, ""
    for one in read_sessions(file):
        if isinstance(one, Skipped):
            why = "" if one.reason == UNKNOWN_AGENT else f" ({one.reason})"
            continue
        read = _scan_session(one, tools)
        found += read.entries
        conversations, calls = conversations + 1, calls + read.calls
    return _Scan(found, conversations, calls), why


def read_sessions(file: str) -> Iterator[RecordedSession | Skipped]:
    """Read the conversations of a transcript; nothing if there is no such file."""
    path = Path(file)
    if "\0" in file or not path.is_file():
        return
    yield from read_file(path, READERS)


def _scan_session(session: RecordedSession, tools: Tools) -> _Scan:
    models = (sent.model for sent in session.requests if sent.model)
    name = f"{session.id} ({session.segment})" if session.segment else session.id
    codec, model = PROVIDERS[session.format].codec, next(models, None)
    return _scan_messages(name, codec, model, session.messages, tools, {})


def _scan_request(file: str, format: str | None, tools: Tools) -> _Scan:
    body = read_body(read_input(file))
    codec = PROVIDERS[detect_format(body, format, allow_server_held=True)].codec
    fields = body.fields or {}
    model = fields.get("model")
    messages = [body.message(at) for at in range(len(body))]
    definitions = tool_definitions(body.fields)
    named = model if isinstance(model, str) else None
    return _scan_messages("", codec, named, messages, tools, definitions)


def _scan_messages(
    name: str,
    codec: Codec,
    model: str | None,
    messages: Sequence[JSON],
    tools: Tools,
    definitions: Any,
) -> _Scan:
    history, ledger = index_history(codec, messages, tools, definitions)
    counter = counter_for(codec.name, model)
    found: list[_LoopEntry] = []
    for loop in find_loops(history, ledger):
        exchanges = (history.exchanges[ordinal] for ordinal in loop.repeated)
        places = (at for one in exchanges for at in (one.call, one.result) if at is not None)
        tokens = sum(part_tokens(history.parts[at], counter) for at in places)
        found.append(_LoopEntry(name, loop, tokens))
    return _Scan(found, 1, len(history.exchanges))
