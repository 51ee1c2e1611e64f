"""Tables of many small cases, each run as one test: an id costs more than such a case does.

A test whose `parametrize` marks name all that it takes, and make six cases or more, runs once over
all of them, and names those that fail. `pytest --cases` makes a test of each case, to run one by
its id; so does the mark `cases`, for those that are long.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sized
from itertools import product
from typing import Any

import pytest

MANY = 6
SHOWN = 5  # tracebacks of one table
NAMED = type(pytest.param())

Case = tuple[str, dict[str, Any]]


class Rows(list[Case]):
    """All cases of a test: what stands in place of each argument until it runs."""


def rows_of(test: Callable[..., Any], marks: list[pytest.Mark]) -> Rows | None:
    """The cases of a test that is to run over all of them; None for any other."""
    tables = [mark for mark in marks if mark.name == "parametrize"]
    if not tables or any(mark.name in ("cases", "usefixtures") for mark in marks):
        return None
    if hasattr(test, "hypothesis") or any(mark.kwargs.keys() - {"ids"} for mark in tables):
        return None
    if not all(isinstance(mark.args[1], Sized) for mark in tables):
        return None  # it can be gone through once
    cases = [list(_cases(mark)) for mark in tables]
    if any(case is None for table in cases for case in table):
        return None
    rows = Rows()
    for row in product(*(filter(None, table) for table in reversed(cases))):
        values = {key: value for _, case in row for key, value in case.items()}
        rows.append(("-".join(name for name, _ in row), values))
    wanted = inspect.signature(test).parameters.keys() - {"self"}
    return rows if len(rows) >= MANY and rows[0][1].keys() == wanted else None


def _cases(mark: pytest.Mark) -> Iterator[Case | None]:
    """The cases of one mark; None for one that has marks of its own."""
    argnames, argvalues = mark.args
    names = [one.strip() for one in argnames.split(",")] if isinstance(argnames, str) else argnames
    ids = mark.kwargs.get("ids")
    listed = None if ids is None or callable(ids) else [*ids]
    tell = ids if callable(ids) else lambda value: None
    for at, one in enumerate(argvalues):
        named = isinstance(one, NAMED)
        values = one.values if named else (one,) if len(names) == 1 else one
        if (named and one.marks) or len(values) != len(names):
            yield None
            continue
        said = one.id if named else listed[at] if listed else None
        told = said or "-".join(str(tell(value) or _told(value)) for value in values)
        yield str(told), dict(zip(names, values, strict=True))


def _told(value: object) -> str:
    text = getattr(value, "__name__", None) or (value if isinstance(value, str) else repr(value))
    return text if len(text) <= 60 else f"{text[:59]}…"


def run_rows(test: Callable[..., Any], rows: Rows) -> None:
    """Run a test over all its cases; those that fail are named."""
    failed: dict[str, BaseException] = {}
    skipped: list[BaseException] = []
    for name, values in rows:
        try:
            test(**values)
        except pytest.skip.Exception as why:
            skipped.append(why)
        except (Exception, pytest.fail.Exception) as problem:  # noqa: BLE001 - told below
            problem.add_note(f"This was the case: {name}")
            failed[name] = problem
    if failed:
        listed = "\n  ".join(failed)
        raise BaseExceptionGroup(
            f"{len(failed)} of {len(rows)} cases failed:\n  {listed}\n", [*failed.values()][:SHOWN]
        )
    if len(skipped) == len(rows):
        raise skipped[0]
