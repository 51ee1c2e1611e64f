"""Anthropic's repairs at the end of a history and of its cache marks."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from respool.repair.words import BLANK, CONTINUE
from tests.anthropic_mended import Mended, Messages, same
from tests.anthropic_messages import (
    HOUR,
    MARK,
    NEW,
    OLD,
    SEARCH,
    THINKING,
    m,
    res,
    s,
    said,
    text,
    u,
    use,
)


def marked(*marks: Any) -> dict[str, Any]:
    return u(*(text(cache_control=mark) if mark else text() for mark in marks))


# The name, the history, the fields beside it, the history after.
ENDS: list[tuple[str, Messages, dict[str, Any], Messages]] = [
    ("words at the end", [u(), m()], {"model": NEW}, [u(), m(), u(text(CONTINUE))]),
    ("words at the end of an older model", [u(), m()], {"model": OLD}, [u(), m()]),
    ("white space at the end", [u(), m(text("x \n"))], {"model": OLD}, [u(), m(text("x"))]),
    (
        "white space at the end of a string",
        [u(), said("assistant", "x ")],
        {"model": OLD},
        [u(), said("assistant", "x")],
    ),
    (
        "nothing at the end",
        [u(), said("assistant", "")],
        {"model": NEW},
        [u(), m(text(BLANK)), u(text(CONTINUE))],
    ),
    ("a pending call", [u(), m(use())], {"model": NEW}, [u(), m(use())]),
    ("a paused turn", [u(), m(SEARCH)], {"model": NEW}, [u(), m(SEARCH)]),
    (
        "a paused turn with words",
        [u(), m(SEARCH, text())],
        {"model": NEW},
        [u(), m(SEARCH, text())],
    ),
    (
        "thinking at the end",
        [u(), m(THINKING, text())],
        {"model": OLD, "thinking": {"type": "disabled"}},
        [u(), m(text())],
    ),
    (
        "thinking with a call at the end",
        [u(), m(THINKING, use())],
        {"model": OLD, "thinking": {"type": "disabled"}},
        [u(), m(use())],
    ),
    (
        "thinking at the end of a newer model",
        [u(), m(THINKING, text())],
        {"model": NEW, "thinking": {"type": "disabled"}},
        [u(), m(text()), u(text(CONTINUE))],
    ),
    (
        "thinking and white space",
        [u(), m(THINKING, text("x "))],
        {"model": OLD, "thinking": {"type": "disabled"}},
        [u(), m(text("x"))],
    ),
    (
        "five marks",
        [marked(MARK, MARK), marked(MARK, MARK, MARK)],
        {},
        [marked(None, MARK), marked(MARK, MARK, MARK)],
    ),
    (
        "five marks with the head's",
        [marked(MARK, MARK, MARK)],
        {"system": [text(cache_control=MARK)] * 2},
        [marked(None, MARK, MARK)],
    ),
    (
        "five marks with the automatic one",
        [marked(MARK, MARK, MARK, MARK)],
        {"cache_control": MARK},
        [marked(None, MARK, MARK, MARK)],
    ),
    (
        "a mark inside a result",
        [u(), m(use()), u(res(content=[text(cache_control=MARK)])), marked(MARK, MARK, MARK, MARK)],
        {},
        [u(), m(use()), u(res(content=[text()])), marked(MARK, MARK, MARK, MARK)],
    ),
    ("an hour behind five minutes", [marked(MARK, HOUR)], {}, [marked(MARK, MARK)]),
    (
        "an hour behind five minutes of the head",
        [marked(HOUR)],
        {"system": [text(cache_control=MARK)]},
        [marked(MARK)],
    ),
    (
        "an hour behind a mark that goes",
        [marked(MARK, HOUR, HOUR, HOUR, HOUR)],
        {},
        [marked(None, HOUR, HOUR, HOUR, HOUR)],
    ),
    ("an hour, then five minutes", [marked(HOUR, MARK)], {}, [marked(HOUR, MARK)]),
    (
        "what only looks like marks",
        [u(), m(*(use(str(n), input={"cache_control": MARK}) for n in range(6)))],
        {},
        [u(), m(*(use(str(n), input={"cache_control": MARK}) for n in range(6)))],
    ),
    (
        "a mark on what is to be cleared",
        [u(), s(text(cache_control=MARK), clear_at="x")],
        {},
        [u(), s(text(), clear_at="x")],
    ),
    (
        "a head with too many marks",
        [marked(MARK)],
        {"system": [text(cache_control=MARK)] * 5},
        [marked(MARK)],
    ),
]


@pytest.mark.parametrize(
    ("name", "messages", "fields", "expected"), ENDS, ids=[row[0] for row in ENDS]
)
def test_an_end(name: str, messages: Messages, fields: dict[str, Any], expected: Messages) -> None:
    before = copy.deepcopy(messages)
    mended = Mended(messages, fields)
    assert mended.rows == expected
    assert messages == before
    assert bool(mended.repairs) == (messages != expected)
    assert same(mended.rows, messages) == (messages == expected)
