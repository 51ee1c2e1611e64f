"""The tables, and every step that led to them: a file of any version is brought to the latest.

The version stands in the file's header (`PRAGMA user_version`): how many migrations it has had.
A migration that was released is never changed; the next one is added behind it.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Sequence

Migration = tuple[str, ...]

APPLICATION = 0x434C4557  # "RESPOOL", in the header of each of our files

_FIRST: Migration = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    # One row for each history of each API key; nothing of it is kept longer than its row.
    """CREATE TABLE conversations (
        id INTEGER PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL, session TEXT NOT NULL,
        started REAL NOT NULL, last REAL NOT NULL, UNIQUE (owner, name))""",
    "CREATE INDEX conversations_by_last ON conversations (last, id)",
    "CREATE INDEX conversations_by_name ON conversations (name)",
    """CREATE TABLE originals (
        ref TEXT NOT NULL UNIQUE, size INTEGER NOT NULL, packing INTEGER NOT NULL,
        body BLOB NOT NULL)""",
    """CREATE TABLE kept (
        conversation INTEGER NOT NULL, ref TEXT NOT NULL, time REAL NOT NULL,
        PRIMARY KEY (conversation, ref)) WITHOUT ROWID""",
    "CREATE INDEX kept_by_ref ON kept (ref)",
    """CREATE TABLE facts (
        conversation TEXT NOT NULL, kind TEXT NOT NULL, prefix TEXT NOT NULL,
        tokens INTEGER NOT NULL, time REAL NOT NULL,
        PRIMARY KEY (conversation, kind, prefix)) WITHOUT ROWID""",
    "CREATE INDEX facts_by_time ON facts (time)",
    # What is long stands last: a row is read from its front, and only as far as is asked.
    """CREATE TABLE requests (
        id TEXT NOT NULL UNIQUE, conversation INTEGER NOT NULL, time REAL NOT NULL,
        format TEXT NOT NULL, model TEXT NOT NULL, mode TEXT NOT NULL, status INTEGER NOT NULL,
        tokens_before INTEGER NOT NULL, tokens_after INTEGER NOT NULL, saved INTEGER NOT NULL,
        counted INTEGER NOT NULL, input INTEGER, cache_read INTEGER, cache_write INTEGER,
        output INTEGER, cost_before REAL, cost_after REAL, cost_uncached REAL,
        epochs INTEGER NOT NULL, refetched INTEGER NOT NULL, loops INTEGER NOT NULL,
        notable INTEGER NOT NULL, prefix_break TEXT NOT NULL, fallback TEXT NOT NULL,
        milliseconds REAL NOT NULL, edited INTEGER NOT NULL, made INTEGER NOT NULL,
        terms TEXT NOT NULL, sent_as TEXT NOT NULL, notes TEXT NOT NULL,
        size INTEGER NOT NULL, packing INTEGER NOT NULL, edits BLOB NOT NULL)""",
    "CREATE INDEX requests_by_conversation ON requests (conversation, time)",
    "CREATE INDEX requests_by_time ON requests (time)",
    "CREATE INDEX requests_of_note ON requests (time) WHERE notable",
    """CREATE TABLE reproductions (
        id INTEGER PRIMARY KEY, conversation INTEGER NOT NULL, time REAL NOT NULL,
        size INTEGER NOT NULL, packing INTEGER NOT NULL, body BLOB NOT NULL)""",
    "CREATE INDEX reproductions_by_conversation ON reproductions (conversation)",
)

_LINEAGE: Migration = (
    # What a request goes on from is found by the hash of that history.
    "ALTER TABLE requests ADD COLUMN prefix TEXT NOT NULL DEFAULT ''",
    "CREATE INDEX requests_by_prefix ON requests (prefix)",
)

_BRANCHES: Migration = (
    # And of requests that lie apart, which go on from one another, long after.
    "ALTER TABLE requests ADD COLUMN parent TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE requests ADD COLUMN again TEXT NOT NULL DEFAULT ''",
)

MIGRATIONS: tuple[Migration, ...] = (_FIRST, _LINEAGE, _BRANCHES)


class NewerFile(Exception):
    """The file has had migrations that this version does not know."""


class ForeignFile(Exception):
    """The file is a database of something else."""


def migrate(
    connection: sqlite3.Connection,
    salt: bytes | None,
    migrations: Sequence[Migration],
) -> None:
    """Bring a file to the latest version, whole steps at a time; a new one gets its salt."""
    refuse_others(connection, len(migrations))
    if version_of(connection) == len(migrations):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for at in range(version_of(connection), len(migrations)):  # another may have been quicker
            for statement in migrations[at]:
                connection.execute(statement)
            if at == 0:
                _name(connection, salt or secrets.token_bytes(32))
            connection.execute(f"PRAGMA user_version = {at + 1}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def refuse_others(connection: sqlite3.Connection, latest: int) -> None:
    """Leave alone what is not ours, or not ours yet."""
    ((application,),) = connection.execute("PRAGMA application_id").fetchall()
    ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    if application != APPLICATION and (application or tables):
        raise ForeignFile
    if version_of(connection) > latest:
        raise NewerFile


def version_of(connection: sqlite3.Connection) -> int:
    """How many migrations a file has had."""
    ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    return version


def salt_of(connection: sqlite3.Connection) -> bytes:
    """What makes the hashes of API keys in this file unlike those in any other."""
    ((salt,),) = connection.execute("SELECT value FROM meta WHERE key = 'salt'").fetchall()
    return bytes(salt)


def stamp_of(connection: sqlite3.Connection) -> bytes:
    """The file's stamp: while it is the same, nothing was deleted."""
    ((stamp,),) = connection.execute("SELECT value FROM meta WHERE key = 'stamp'").fetchall()
    return bytes(stamp)


def stamp_anew(connection: sqlite3.Connection) -> None:
    """Let all who use the file know that something is deleted, in the same transaction."""
    connection.execute("UPDATE meta SET value = randomblob(16) WHERE key = 'stamp'")


def _name(connection: sqlite3.Connection, salt: bytes) -> None:
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute("INSERT INTO meta VALUES ('salt', ?)", (salt,))
    connection.execute("INSERT INTO meta VALUES ('stamp', randomblob(16))")
