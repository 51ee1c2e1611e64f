"""Facts, by conversation: written once, and the first writer wins."""

from __future__ import annotations

import sqlite3
from typing import Any

from ..errors import PolicyError
from ..facts import Facts

_SETS = ("skipped", "left_alone", "cold", "changed")
_WINDOWS, _MARKS, _SUMMARIES = "windows", "marks", "summaries"

Row = tuple[str, str, int | str]  # kind, prefix or reference, tokens or words
_SIGN = "="  # before words, for the column would take a text of figures for a number


def facts(connection: sqlite3.Connection, conversation: str) -> Facts:
    """All that is known of a conversation."""
    rows = connection.execute(
        "SELECT kind, prefix, tokens FROM facts WHERE conversation = ?", (conversation,)
    ).fetchall()
    sets = {name: frozenset(prefix for kind, prefix, _ in rows if kind == name) for name in _SETS}
    windows = tuple((prefix, tokens) for kind, prefix, tokens in rows if kind == _WINDOWS)
    told: dict[str, Any] = {
        name: tuple((key, str(words)[1:]) for kind, key, words in rows if kind == name)
        for name in (_MARKS, _SUMMARIES)
    }
    try:
        return Facts(**sets, windows=windows, **told)
    except PolicyError as error:  # a byte of the file has changed
        raise sqlite3.DataError(str(error)) from error


def note(connection: sqlite3.Connection, conversation: str, new: list[Row], time: float) -> None:
    """Write facts down, but for those that are known already."""
    connection.executemany(
        "INSERT OR IGNORE INTO facts (conversation, kind, prefix, tokens, time)"
        " VALUES (?, ?, ?, ?, ?)",
        [(conversation, *row, time) for row in new],
    )


def unknown(new: Facts, known: Facts) -> list[Row]:
    """What the one says and the other does not, a row each."""
    rows: list[Row] = []
    for kind in _SETS:
        there: frozenset[str] = getattr(new, kind) - getattr(known, kind)
        rows += [(kind, prefix, 0) for prefix in sorted(there)]
    rows += [
        (_WINDOWS, prefix, tokens)
        for prefix, tokens in new.windows
        if known.window_at(prefix) is None
    ]
    for kind in (_MARKS, _SUMMARIES):
        told: dict[str, str] = dict(getattr(known, kind))
        words: tuple[tuple[str, str], ...] = getattr(new, kind)
        rows += [(kind, key, _SIGN + said) for key, said in words if key not in told]
    return rows
