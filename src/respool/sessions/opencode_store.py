"""opencode's own storage, as the exports that opencode would write of it.

In older versions a session is a file, and so is each of its messages, and each part of a message.
Newer ones keep all of them in a SQLite database. It is opened to be read only; while opencode
writes to it, what was there before is read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

from ..codecs.json_tree import JSON, Object
from .history import text_at
from .records import LARGEST_CONVERSATION, Unreadable, decoded, value_in, values_in
from .session import Skipped

_SESSIONS = "SELECT id, parent_id FROM session ORDER BY time_created, id"
_SIZE = "SELECT total(length(data)) FROM part WHERE session_id = ?"
_MESSAGES = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
_PARTS = "SELECT message_id, data FROM part WHERE session_id = ? ORDER BY message_id, id"
_WAIT = 2.0  # seconds for which a writer may hold the database


def database(path: Path) -> Iterator[JSON | Skipped]:
    """Each session in a database."""
    with closing(_connected(path)) as connection:
        for id, parent in connection.execute(_SESSIONS).fetchall():
            yield from session(connection, str(path), id, parent)


def _connected(path: Path) -> sqlite3.Connection:
    """A connection that cannot write; where not even its lock may be written, one without."""
    uri = path.absolute().as_uri()
    connection = sqlite3.connect(f"{uri}?mode=ro", uri=True, timeout=_WAIT)
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


def session(
    connection: sqlite3.Connection, source: str, id: JSON, parent: JSON
) -> Iterator[JSON | Skipped]:
    """One session as its export."""
    ((size,),) = connection.execute(_SIZE, (id,)).fetchall()
    if size > LARGEST_CONVERSATION:
        yield Skipped(source, f"session {id} has more than {LARGEST_CONVERSATION:,} bytes")
        return
    rows = [(key, _value(data)) for key, data in connection.execute(_MESSAGES, (id,))]
    told = [(key, _value(data)) for key, data in connection.execute(_PARTS, (id,))]
    parts: dict[JSON, list[JSON]] = {}
    for key, part in told:
        parts.setdefault(key, []).append(part)
    messages = [_message(info, key, parts.get(key, ())) for key, info in rows]
    yield {"info": {"id": id, "parentID": parent}, "messages": messages}
    odd = sum(not isinstance(value, dict) for _, value in (*rows, *told))
    if odd:
        yield Skipped(source, f"session {id}: {odd:,} rows are no JSON objects")


def _value(data: JSON) -> JSON:
    return decoded(data.encode("utf-8", "replace")) if isinstance(data, str) else None


def _message(info: JSON, id: JSON, parts: Iterable[JSON]) -> Object:
    about = cast(Object, info) if isinstance(info, dict) else {}
    return {"info": {**about, "id": id}, "parts": list(parts)}


def split(path: Path) -> Iterator[JSON | Skipped]:
    """The session that a file is about, with its messages and parts from beside it."""
    info, root = value_in(path), path.parents[2]
    if not isinstance(info, dict):
        raise Unreadable("it is no session")
    problems: list[str] = []
    messages: list[JSON] = []
    for message in values_in(_files(root / "message" / text_at(info, "id")), problems):
        id = text_at(message, "id")
        parts = values_in(_files(root / "part" / id) if id else (), problems)
        messages.append(_message(message, id, parts))
    yield {"info": info, "messages": messages}
    if problems:
        more = f", and {len(problems) - 1:,} more" if len(problems) > 1 else ""
        yield Skipped(str(path), f"{problems[0]}{more}")


def _files(folder: Path) -> list[Path]:
    """The files in the order of their names, which is that of their making."""
    return sorted(folder.glob("*.json"))
