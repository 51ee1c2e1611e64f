"""`respool statusline`: one short line for the status line of Claude Code."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from datetime import datetime
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final, cast

import click

from ..store.periods import midnight
from ..store.savings import Saving, add_savings, describe_saving
from .console import escape_unprintable
from .options import resolve_store_location, store_option
from .stats import saving_between, saving_of_conversation, savings_by_origin

if TYPE_CHECKING:
    from ..store import SQLStore

_MAX_WAIT: Final = 0.5  # seconds, for standard input
_MAX_BYTES: Final = 1_000_000  # of standard input
_LOCK_WAIT: Final = 0.2  # seconds, for another process that holds the store
_CONVERSATIONS: Final = 50  # the latest, among which a session is looked for


@click.command()
@store_option
def statusline(store_file: str | None) -> None:
    """Print what respool saved in this session of Claude Code, else today in its folder.

    For statusLine in Claude Code's settings.json: it reads what Claude Code writes to a status
    line's standard input and prints one line, or nothing if there is nothing to say. It never
    fails.
    """
    try:
        line = _line(*_read_session(), store_file)
    except Exception:  # noqa: BLE001 - a status line has no place for it; respool doctor has
        return
    if line:
        click.echo(escape_unprintable(line))


def _line(session: str, folder: str, store_file: str | None) -> str:
    """Line of a session if the store knows it, else of the project's day or of today.

    Empty if there is nothing to say.
    """
    location = resolve_store_location(store_file)
    if isinstance(location, Path) and not location.exists():
        return ""
    from ..store import open_store  # lazily: without a file it is not needed

    store = open_store(location, create=False, wait=_LOCK_WAIT)
    try:
        found = _saving_of_session(store, session) if session else Saving()
        if found.requests:
            return _format(found, "this session")
        today = midnight(datetime.now().date())
        found = savings_by_origin(store, today).projects.get(folder) if folder else None
        if found is not None:
            return _format(found, f"today in {PurePath(folder).name}")
        return _format(saving_between(store, today), "today")
    finally:
        store.close()


def _format(saving: Saving, when: str) -> str:
    if not saving.requests:
        return ""
    if not (saving.tokens or saving.would_tokens):
        return f"respool saved nothing yet {when}"
    return f"respool {describe_saving(saving)} {when}"


def _saving_of_session(store: SQLStore, session: str) -> Saving:
    """Saving of the latest conversations that a client sent with this session id."""
    from ..proxy.auth import keyed_hash  # lazily: nothing else of the proxy is needed

    id = session.encode("utf-8", "surrogatepass")
    return add_savings(
        saving_of_conversation(store, one)
        for one in store.conversations(None, limit=_CONVERSATIONS)
        if one.session == keyed_hash(one.owner.encode(), "session", id)
    )


def _read_session() -> tuple[str, str]:
    """Read the session id and the folder from standard input; empty if there are none."""
    try:
        found: Any = json.loads(_read_input())
    except (ValueError, RecursionError):
        return "", ""
    fields = cast(dict[str, Any], found) if isinstance(found, dict) else {}
    workspace: Any = fields.get("workspace")
    session, folder = fields.get("session_id"), fields.get("cwd")
    if isinstance(workspace, dict):
        folder = cast(dict[str, Any], workspace).get("project_dir", folder)
    return (
        session if isinstance(session, str) else "",
        folder if isinstance(folder, str) else "",
    )


def _read_input() -> bytes:
    """Read standard input, for a moment at most; empty on a terminal."""
    if sys.stdin is None or sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        return b""
    try:
        file = sys.stdin.fileno()
    except (OSError, ValueError):
        return sys.stdin.buffer.read(_MAX_BYTES)
    if sys.platform == "win32":  # where only sockets can be waited for
        return sys.stdin.buffer.read(_MAX_BYTES)
    read, until = bytearray(), time.monotonic() + _MAX_WAIT
    while len(read) < _MAX_BYTES:
        ready, _, _ = select.select([file], [], [], max(0.0, until - time.monotonic()))
        chunk = os.read(file, 65_536) if ready else b""
        if not chunk:
            break
        read += chunk
    return bytes(read)
