"""Classification of a text by its content and its call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.shapes import SHAPES, ShapeKind, can_be, classify, shape
from respool.shapes.decoration import split_frame
from respool.tools.use import CONTENTS, Content
from tests.shapes.support import accounts_for

PYTHON = "import os\n\n\ndef first():\n    return 1\n\n\nclass Second:\n    pass\n"
NUMBERED = "".join(f"{n:6}→    value_{n} = {n}\n" for n in range(30, 60))
MARKDOWN = "# One\n\nText.\n\n## Two\n\nText.\n\n## Three\n\nText.\n"
HITS = "".join(f"src/a{n}.py:{n}:import os\n" for n in range(1, 9))
DIFF = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
JSON = '{"a": [1, 2, 3]}'
GO_TEST = "=== RUN   TestA\n--- PASS: TestA (0.00s)\nPASS\nok  \tshop\t0.1s\n"
BUILD = "compiling a\ncompiling b\nlinking\ndone\n"
LISTING = "README.md\nsrc/\nsrc/main.py\ntests/test_main.py\nuv.lock\n"
CSV = "a,b,c\n1,2,3\n4,5,6\n7,8,9\n"
PROSE = "We met in the morning.\nIt rained a little.\nThen we left again.\n"
EDITED = (
    "The file /a.py has been updated. Here's the result of running `cat -n` on a snippet:\n"
    "     1→import os\n"
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (PYTHON, "code"), (NUMBERED, "code"), (MARKDOWN, "page"), (HITS, "hits"), (DIFF, "diff"),
        (JSON, "json"), (GO_TEST, "test"), (LISTING, "listing"), (CSV, "table"), (PROSE, "other"),
        (EDITED, "edit"), ("", "other"), ("\n\n", "other"), ("<!DOCTYPE html>\n<p>", "page"),
        ("[INFO] started\n[INFO] stopped]", "other"),
    ],
)  # fmt: skip
def test_a_text_is_known_by_its_looks(text: str, kind: ShapeKind) -> None:
    assert classify(text, None) == kind


@pytest.mark.parametrize(
    ("hint", "text", "kind"),
    [
        ("code", PYTHON, "code"),
        ("code", JSON, "json"),  # cat package.json
        ("code", MARKDOWN, "page"),  # cat README
        ("code", DIFF, "diff"),  # cat fix.patch
        ("page", PROSE, "page"),
        ("log", GO_TEST, "test"),  # make check
        ("log", JSON, "json"),  # curl
        ("log", BUILD, "log"),
        ("test", BUILD, "log"),  # the tests did not even begin
        ("diff", PROSE, "other"),  # nothing changed, in somebody's words
        ("json", PROSE, "other"),  # jq failed
        ("json", CSV, "table"),  # jq -r '… | @csv'
        ("hits", LISTING, "hits"),
        ("hits", DIFF, "hits"),  # a search in a patch
        ("edit", EDITED, "edit"),
        ("edit", GO_TEST, "test"),  # an edit and then the tests, in one command
        ("table", PROSE, "other"),
    ],
)
def test_what_is_known_of_a_call_is_held_against_the_text(
    hint: Content, text: str, kind: ShapeKind
) -> None:
    assert classify(text, hint) == kind


FRAMES = {
    "bare": ("a\nb\n", ("", "a\nb\n", "")),
    "codex": (
        "Chunk ID: 1f\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\nrows\n",
        (
            "Chunk ID: 1f\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\n",
            "rows\n",
            "",
        ),
    ),
    "a note at the end": (
        "     1→x\n\n<system-reminder>\nBe careful.\n</system-reminder>\n",
        ("", "     1→x\n\n", "<system-reminder>\nBe careful.\n</system-reminder>\n"),
    ),
    "Gemini CLI": (
        "Output: rows\nExit Code: 1\nProcess Group PGID: 4242",
        ("", "Output: rows\n", "Exit Code: 1\nProcess Group PGID: 4242"),
    ),
    "who ran what, in a file": (
        "rows\nProcess Group PGID: 4242",
        ("", "rows\nProcess Group PGID: 4242", ""),
    ),
    "a note in the middle": (
        "a\n<system-reminder>\nx\n</system-reminder>\nb",
        ("", "a\n<system-reminder>\nx\n</system-reminder>\nb", ""),
    ),
}


@pytest.mark.parametrize("name", FRAMES)
def test_an_output_is_taken_out_of_its_frame(name: str) -> None:
    text, (head, body, note) = FRAMES[name]
    frame = split_frame(text)
    assert (frame.head, frame.body, frame.note) == (head, body, note)


TEXTS = (
    PYTHON, NUMBERED, MARKDOWN, HITS, DIFF, JSON, GO_TEST, BUILD, LISTING, CSV, PROSE, EDITED, "",
)  # fmt: skip


@given(
    st.lists(st.sampled_from(TEXTS), max_size=3).map("".join), st.sampled_from((None, *CONTENTS))
)
def test_a_kind_is_one_that_its_hint_allows(text: str, hint: Content | None) -> None:
    assert can_be({classify(text, hint)}, hint)


@pytest.mark.parametrize(
    ("hint", "never"),
    [
        ("hits", ["page", "log", "diff"]),
        ("listing", ["page", "hits"]),
        ("log", ["page", "hits", "code"]),
        ("code", ["log", "hits", "other"]),
    ],
)
def test_some_kinds_need_no_look(hint: Content, never: list[ShapeKind]) -> None:
    assert not can_be(never, hint)
    assert can_be([*never, "json"], hint)


def test_without_a_hint_a_text_may_be_anything() -> None:
    assert all(can_be([kind], None) for kind in SHAPES)


def test_the_frame_does_not_hide_the_kind() -> None:
    assert classify(f"Chunk ID: 1f\nProcess exited with code 0\nOutput:\n{JSON}", "log") == "json"


def test_a_frame_stays_around_what_is_left_of_an_output() -> None:
    head, note = "Exit code: 0\nOutput:\n", "<system-reminder>\nBe careful.\n</system-reminder>\n"
    text = f"{head}{BUILD * 40}{note}"
    shaped = shape(text, "log", 200)
    assert shaped is not None
    assert shaped.text.startswith(f"{head}compiling a\n")
    assert shaped.text.endswith(f"done\n{note}".rstrip())
    accounts_for(text, shaped)
