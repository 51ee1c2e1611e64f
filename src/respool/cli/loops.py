"""`respool loops`: where an agent went in circles, what that cost, when it would have been told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from ..codecs.codec import Codec
from ..codecs.definitions import definitions_in
from ..codecs.detect import detect
from ..codecs.formats import CODECS
from ..codecs.json_tree import JSON
from ..codecs.reading import read_body
from ..errors import PassedThrough, RespoolError
from ..loops import Circle, circles_in
from ..loops.reading import read_history
from ..sessions.readers import READERS
from ..sessions.reading import UNKNOWN, read_file
from ..sessions.session import Session, Skipped
from ..tokens import counter_for, part_tokens
from ..tools import Tools
from .ending import Failure
from .reading import (
    STANDARD,
    file_argument,
    format_option,
    json_option,
    read_input,
    shown_name,
    takes_tools,
    to_json,
)
from .showing import Table, counted, show

_COLUMNS = ("kind", "what", "target", "calls", "tokens", "told after", "message")


class _Found(Struct, frozen=True):
    """One circle of one conversation, and the tokens of the calls that were for nothing."""

    session: str  # "" for a request
    loop: Circle
    tokens: int

    def to_dict(self) -> dict[str, Any]:
        """The circle as JSON."""
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


class _Read(Struct, frozen=True):
    """All that was read."""

    entries: list[_Found]
    conversations: int
    calls: int


@click.command()
@file_argument
@format_option
@takes_tools
@json_option
def loops(file: str, format: str | None, tools: Tools, as_json: bool) -> None:
    """Say where the agent of FILE went in circles.

    FILE is a transcript of an agent, or a request. A circle is a call that was made again and again
    and brought nothing new, with nothing changed in between.
    """
    read = _read(file, format, tools)
    if as_json:
        click.echo(to_json([one.to_dict() for one in read.entries]))
        return
    show(_summary(read), *([_table(read.entries)] if read.entries else []))


def _summary(scan: _Read) -> str:
    calls = counted(scan.calls, "call")
    where = f"{calls} in {scan.conversations:,} conversations" if scan.conversations > 1 else calls
    if not scan.entries:
        return f"No circles in {where}."
    count, tokens = len(scan.entries), sum(one.tokens for one in scan.entries)
    again = sum(len(one.loop.repeated) for one in scan.entries)
    return (
        f"{counted(count, 'circle')} in {where}: "
        f"{again:,} of the calls brought nothing new, with {tokens:,} tokens."
    )


def _table(entries: Sequence[_Found]) -> Table:
    several = len({one.session for one in entries}) > 1
    rows = [(*((one.session,) if several else ()), *_cells(one)) for one in entries]
    columns = (*(("conversation",) if several else ()), *_COLUMNS)
    return Table("Circles", columns, rows, frozenset({"calls", "tokens"}))


def _cells(entry: _Found) -> tuple[str, ...]:
    circle = entry.loop
    what = circle.tool if circle.operation == "default" else f"{circle.tool} {circle.operation}"
    return (
        circle.kind,
        what,
        " ".join((circle.target or "").split()),
        f"{len(circle.calls):,}",
        f"{entry.tokens:,}",
        f"{circle.advised_after} of {len(circle.calls)}",
        circle.message,
    )


# --- what is read ------------------------------------------------------------------------------


def _read(file: str, format: str | None, tools: Tools) -> _Read:
    """The circles of a transcript, or of a request where it is none."""
    if file == STANDARD or format is not None:
        return _of_request(file, format, tools)
    read, why = _of_transcript(file, tools)
    if read.conversations:
        return read
    try:
        return _of_request(file, None, tools)
    except PassedThrough as error:
        raise Failure(f"{shown_name(file)}: {error}") from None
    except RespoolError as error:
        told = f"This is no transcript{why}, and no request: {error}"
        raise Failure(f"{shown_name(file)}: {told}") from None


def _of_transcript(file: str, tools: Tools) -> tuple[_Read, str]:
    """The circles of all conversations in a file, one after the other; if it has none, why."""
    found: list[_Found] = []
    conversations, calls, why = 0, 0, ""
    for one in _items(file):
        if isinstance(one, Skipped):
            why = "" if one.reason == UNKNOWN else f" ({one.reason})"
            continue
        read = _of_session(one, tools)
        found += read.entries
        conversations, calls = conversations + 1, calls + read.calls
    return _Read(found, conversations, calls), why


def _items(file: str) -> Iterator[Session | Skipped]:
    path = Path(file)
    if "\0" in file or not path.is_file():
        return
    yield from read_file(path, READERS)


def _of_session(session: Session, tools: Tools) -> _Read:
    models = (sent.model for sent in session.requests if sent.model)
    name = f"{session.id} ({session.segment})" if session.segment else session.id
    codec, model = CODECS[session.format], next(models, None)
    return _circles(name, codec, model, session.messages, tools, {})


def _of_request(file: str, format: str | None, tools: Tools) -> _Read:
    body = read_body(read_input(file))
    codec = CODECS[detect(body, format, allow_server_held=True)]
    fields = body.fields or {}
    model = fields.get("model")
    messages = [body.message(at) for at in range(len(body))]
    definitions = definitions_in(body.fields)
    named = model if isinstance(model, str) else None
    return _circles("", codec, named, messages, tools, definitions)


def _circles(
    name: str, codec: Codec, model: str | None, messages: Sequence[JSON], tools: Tools,
    definitions: Any,
) -> _Read:  # fmt: skip
    history, ledger = read_history(codec, messages, tools, definitions)
    counter = counter_for(codec.name, model)
    found: list[_Found] = []
    for circle in circles_in(history, ledger):
        exchanges = (history.exchanges[ordinal] for ordinal in circle.repeated)
        places = (at for one in exchanges for at in (one.call, one.result) if at is not None)
        tokens = sum(part_tokens(history.parts[at], counter) for at in places)
        found.append(_Found(name, circle, tokens))
    return _Read(found, 1, len(history.exchanges))
