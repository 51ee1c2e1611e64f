"""SQLite's SQL in PostgreSQL: placeholders, types, and the functions that the tables use.

The tables' statements are written once, for SQLite. Most run here as they are, once their
placeholders are numbered. Functions that PostgreSQL lacks are made in respool's schema, and the few
statements that differ have a version of their own here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from ..regex import lazy_compile
from ..tokens import MAX_SCALES, OPENAI_MODELS, OTHER_MODELS
from ..wire.base import known_formats
from .connection import Parameters
from .database_file import MIGRATIONS, Migration
from .meta import READ_CLOCK, READ_STAMP_AND_TRUSTED, WRITE_CLOCK

_PLACEHOLDER = lazy_compile(r"'(?:[^']|'')*'|(?:\?(\d+)|(\?)|(?<!:):([a-z]\w*))( IS NULL)?")
_TRUNCATED = lazy_compile(r"CAST\((.+?) AS INTEGER\)")  # PostgreSQL's rounds
_INSERT_NEW = "INSERT OR IGNORE INTO"
# A column of SQLite takes values of any type; here numbers have a column of their own.
_OWN_STATEMENTS: Final = {
    READ_STAMP_AND_TRUSTED: READ_STAMP_AND_TRUSTED.replace("(SELECT value", "(SELECT number"),
    READ_CLOCK: "SELECT key, number FROM meta WHERE key >= 'clock ' AND key < 'clock!'",
    WRITE_CLOCK: "INSERT INTO meta (key, number) VALUES (?, ?)"
    " ON CONFLICT (key) DO UPDATE SET number = excluded.number",
}
_TYPES: Final = (
    (r"\bINTEGER PRIMARY KEY\b", "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
    (r"\b(counted|notable|pinned) INTEGER\b", r"\1 boolean"),
    (r"\bboolean NOT NULL DEFAULT 0\b", "boolean NOT NULL DEFAULT false"),
    (r"\bINTEGER\b", "bigint"),
    (r"\bREAL\b", "double precision"),
    (r"\bBLOB\b", "bytea"),
    (r"\bTEXT\b", 'text COLLATE "C"'),  # compared as bytes, as SQLite does
    (r" WITHOUT ROWID$", ""),
)
_TOTAL: Final = (
    "CREATE OR REPLACE AGGREGATE total(float8) (SFUNC = float8pl, STYPE = float8,"
    " INITCOND = '0', COMBINEFUNC = float8pl, PARALLEL = SAFE)"
)
# What follows a migration here, by its number.
_ADDITIONS: Final[dict[int, Migration]] = {
    1: (
        "ALTER TABLE meta ALTER COLUMN value DROP NOT NULL, ADD COLUMN number double precision",
        'ALTER TABLE facts ALTER COLUMN tokens TYPE text COLLATE "C"',
        "ALTER TABLE originals ALTER COLUMN body SET STORAGE EXTERNAL",  # it is packed already
        "ALTER TABLE requests ADD COLUMN rowid bigint GENERATED ALWAYS AS IDENTITY UNIQUE",
        (
            "ALTER TABLE requests ADD COLUMN max_scale bigint"
            " GENERATED ALWAYS AS (max_scale(format, model)) STORED"
        ),
        (
            'CREATE TABLE search_words (ref text COLLATE "C" PRIMARY KEY'
            " REFERENCES originals (ref) ON DELETE CASCADE, words tsvector)"
        ),
        "CREATE INDEX search_words_by_word ON search_words USING gin (words)",
        "CREATE INDEX search_words_unknown ON search_words (ref) WHERE words IS NULL",
    ),
    8: (
        "DELETE FROM search_words",  # the next search finds them again, by team
        (
            'ALTER TABLE search_words ADD COLUMN space text COLLATE "C"'
            " GENERATED ALWAYS AS (substr(ref, 22)) STORED"
        ),
        "CREATE INDEX search_words_by_space ON search_words (space)",
        "DROP INDEX search_words_unknown",
        "CREATE INDEX search_words_unknown ON search_words (space) WHERE words IS NULL",
    ),
}


def translate_migrations() -> tuple[Migration, ...]:
    """The migrations in PostgreSQL's words."""
    return tuple(
        (*(translate_definition(one) for one in migration), *_ADDITIONS.get(number, ()))
        for number, migration in enumerate(MIGRATIONS, 1)
    )


def translate_definition(statement: str) -> str:
    """A statement that makes or changes a table.

    >>> translate_definition("CREATE TABLE a (id INTEGER PRIMARY KEY, x REAL) WITHOUT ROWID")
    'CREATE TABLE a (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, x double precision)'
    """
    for ours, theirs in _TYPES:
        statement = re.sub(ours, theirs, statement, flags=re.DOTALL)
    return statement


Key = tuple[int | str, bool]  # of a parameter; True: only whether it is NULL is asked


@lru_cache(1_000)
def translate(statement: str) -> tuple[str, tuple[Key, ...]]:
    """A statement with numbered placeholders, and the key of each one's parameter.

    >>> translate("SELECT a FROM b WHERE (:c IS NULL OR d = :c) AND e > :c")
    ('SELECT a FROM b WHERE ($1 OR d = $2) AND e > $2', (('c', True), ('c', False)))
    """
    statement = _OWN_STATEMENTS.get(statement, statement)
    statement = _TRUNCATED.sub(r"trunc(\1)::bigint", statement)
    statement = statement.replace("max_scale(r.format, r.model)", "r.max_scale")
    if statement.startswith(_INSERT_NEW):
        statement = f"INSERT INTO{statement.removeprefix(_INSERT_NEW)} ON CONFLICT DO NOTHING"
    keys: list[Key] = []
    following = 0

    def number(found: re.Match[str]) -> str:
        nonlocal following
        numbered, plain, named, is_null = found.groups()
        if numbered is plain is named is None:
            return found[0]  # a text
        key: int | str = named
        if numbered is not None:
            key = int(numbered) - 1
        elif plain is not None:
            key, following = following, following + 1
        # PostgreSQL cannot tell the type of a parameter that is only compared with NULL.
        whole = key, is_null is not None
        if whole not in keys:
            keys.append(whole)
        return f"${keys.index(whole) + 1}"

    return _PLACEHOLDER.sub(number, statement), tuple(keys)


def order_parameters(keys: Sequence[Key], given: Parameters) -> list[Any]:
    """The parameters of a translated statement, in their order."""
    values: Any = given
    return [values[key] is None if is_null else _adapt(values[key]) for key, is_null in keys]


def _adapt(value: Any) -> Any:
    """PostgreSQL's texts hold no zero bytes; a prompt or a model's name may."""
    return value.replace("\0", "\u2400") if isinstance(value, str) and "\0" in value else value


def functions() -> tuple[str, ...]:
    """The functions that the tables' statements need, to be made or replaced."""
    return (
        _function("instr(text, text)", "integer", "strpos($1, $2)"),
        _function("min(bigint, bigint)", "bigint", "least($1, $2)"),
        _function("max(float8, float8)", "float8", "greatest($1, $2)"),
        _function("randomblob(integer)", "bytea", "uuid_send(gen_random_uuid())", "VOLATILE"),
        _TOTAL,
        _function("max_scale(text, text)", "bigint", _scale_expression()),
    )


def functions_stamp() -> bytes:
    """A hash of the functions, by which a process sees that another version made them."""
    return hashlib.blake2b("\n".join(functions()).encode(), digest_size=16).digest()


def _function(name: str, result: str, body: str, kind: str = "IMMUTABLE") -> str:
    return (
        f"CREATE OR REPLACE FUNCTION {name} RETURNS {result} LANGUAGE sql {kind}"
        f" PARALLEL SAFE AS $function$ SELECT ({body})::{result} $function$"
    )


def _scale_expression() -> str:
    """`savings.max_scale` in SQL: $1 is the format, $2 the model."""
    name = 'lower($2 COLLATE "C")'
    by_format = " ".join(
        f"WHEN '{format}' THEN {_scale(wire.tokenizer)}"
        for format, wire in sorted(known_formats().items())
    )
    return (
        f"CASE WHEN strpos({name}, 'claude') > 0 THEN {_scale('claude')}"
        f" WHEN strpos({name}, 'gemini') > 0 OR strpos({name}, 'gemma') > 0"
        f" THEN {_scale('gemini')}"
        f" WHEN {name} ~ '{OTHER_MODELS.pattern}' THEN {_scale('other')}"
        f" WHEN {name} ~ '{OPENAI_MODELS.pattern}' THEN {_scale('openai')}"
        f" ELSE CASE $1 {by_format} ELSE {_scale('openai')} END END"
    )


def _scale(family: str) -> int:
    scales: Mapping[str, int] = {**MAX_SCALES}
    return scales[family]
