"""The pass squeeze_prose."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import respool
from respool.edits import Replace
from respool.engine import Compaction, build_compaction, fold_request
from respool.facts import Facts
from respool.markers import reference
from respool.passes.squeeze_prose import _squeeze, squeeze_prose
from respool.policy import Policy
from tests.support.formats import FIELD, FORMATS, Exchange, request

formats = pytest.mark.parametrize("format", FORMATS)
PROSE = "I looked at it.  " * 12 + "   \n\n\n\nThen I did this.   \n"
LEFT = ("I looked at it. " * 12).rstrip() + "\n\nThen I did this.\n"

CODE = "```\nx  y  \n\n\n\nz\n```"
SQUEEZED = [
    ("trailing blanks", "one   \ntwo\t\n", "one\ntwo\n"),
    ("blank lines", "one\n\n\n\ntwo\n  \n \nthree", "one\n\ntwo\n\nthree"),
    ("double spaces", "One.  Two.  Three.", "One. Two. Three."),
    ("at the ends", "\n\n\none\n\n\n\n", "one\n"),
    ("around a fence", f"a  b\n\n\n{CODE}\n\n\nc", f"a b\n\n{CODE}\n\nc"),
    ("a quoted fence", "> ```\n> a  b\n> ```\nc  d", "> ```\n> a  b\n> ```\nc d"),
    ("a fence inside a longer one", "````\n```\na  b\n````\nc  d", "````\n```\na  b\n````\nc d"),
    ("inline code at the start of a line", "```a  b``` c\n\n\n\nd  e", "```a  b``` c\n\nd e"),
    ("a list's indent", "-   a  b\n    -   x  y\n1.  z  z", "-   a b\n    -   x  y\n1.  z z"),
]
KEPT = [
    ("a fence", "```python\ndef f():   \n\n\n\n    return  1\n```"),
    ("an open fence", "see:\n~~~\na  b   \n\n\n\nc  d"),
    ("indented code", "see:\n\n    a  b   \n\n\n\n    c  d"),
    ("a table", "| a  | b  |\n|----|----|\n| 1  | 2  |"),
    ("columns", "name   size\nloom      3\nreed     10"),
    ("inline code", "use `a  b` here"),
    ("a drawing", "├─  loom\n└─  reed"),
    ("preformatted", "<pre>\na  b   \n\n\n\n</pre>"),
    ("nothing to do", "one\n\ntwo three"),
]


@pytest.mark.parametrize(("_name", "text", "left"), SQUEEZED, ids=[one[0] for one in SQUEEZED])
def test_what_is_left(_name: str, text: str, left: str) -> None:
    assert _squeeze(text) == left


@pytest.mark.parametrize(("_name", "text"), KEPT, ids=[one[0] for one in KEPT])
def test_what_stays(_name: str, text: str) -> None:
    assert _squeeze(text) == text


def said(format: str, request: dict[str, Any], text: str, *, row: int = 1) -> dict[str, Any]:
    """The request with a message in which the model says this, before a row of its history."""
    turn: dict[str, Any] = {"role": "assistant", "content": text}
    if format == "gemini":
        turn = {"role": "model", "parts": [{"text": text}]}
    history = request[FIELD[format]]
    asked = request_words(format)
    return {**request, FIELD[format]: [*history[:row], turn, *asked, *history[row:]]}


def request_words(format: str) -> list[Any]:
    return request(format, "go on")[FIELD[format]]


def compacts(format: str, before: dict[str, Any], keep: int = 1) -> Compaction[Any]:
    policy = Policy(
        cap_chars=None, reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, keep_exchanges=keep
    )
    folded = fold_request(
        before, format=format, policy=policy, facts=Facts(), memo=None, passes=(squeeze_prose,)
    )
    out = build_compaction(folded, before)
    assert respool.check(out.request, format=format) == []
    assert out.report.failures == {}
    return out


def session(format: str, exchanges: int) -> dict[str, Any]:
    steps = [[Exchange(f"result {number}", id=f"c{number}")] for number in range(exchanges)]
    return said(format, request(format, "go", *steps), PROSE)


@formats
def test_old_prose_is_squeezed(format: str) -> None:
    out = compacts(format, session(format, 4))
    (edit,) = out.report.edits
    assert isinstance(edit, Replace)
    assert (edit.reason, edit.text) == ("whitespace", LEFT)
    assert edit.evidence == f"{len(PROSE) - len(LEFT)} of {len(PROSE)} chars"
    assert LEFT in _texts(out.request[FIELD[format]])
    assert respool.expand(reference(PROSE), out) == PROSE


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in _texts(one)]


@formats
def test_recent_prose_stays(format: str) -> None:
    assert compacts(format, session(format, 4), keep=6).report.edits == ()


@formats
def test_what_others_wrote_stays(format: str) -> None:
    steps = [[Exchange(PROSE, id=f"c{number}")] for number in range(4)]
    assert compacts(format, request(format, PROSE, *steps)).report.edits == ()


def test_what_is_signed_itself_stays() -> None:
    before = session("gemini", 4)
    before["contents"][1]["parts"][0]["thoughtSignature"] = "c2lnbmVk"
    assert compacts("gemini", before).report.edits == ()


@formats
def test_twice_is_once(format: str) -> None:
    once = compacts(format, session(format, 4))
    again = compacts(format, once.request)
    assert again.report.edits == ()
    assert again.request is once.request


PIECES = st.sampled_from(
    [
        "word",
        " ",
        "  ",
        "   ",
        "\n",
        "\n\n\n",
        "\t",
        "```",
        "```py\n",
        "~~~\n",
        "    ",
        "- ",
        "| ",
        "`",
        "1. ",
        "> ",
        "<pre>",
        "é",
        "\r",
    ]
)


@given(st.lists(PIECES, max_size=40).map("".join))
def test_only_white_space_goes_and_twice_is_once(text: str) -> None:
    once = _squeeze(text)
    assert _squeeze(once) == once
    assert "".join(once.split()) == "".join(text.split())
    assert len(once) <= len(text)
