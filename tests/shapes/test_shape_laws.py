"""Laws of shapes: any text, any kind, any budget."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.markers import OmissionMarker
from respool.shapes import SHAPES, ShapeKind, classify, shape
from respool.tools.use import CONTENTS
from tests.shapes.support import HOLE, accounts_for, number

LINES = st.one_of(
    st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=90),
    st.sampled_from(
        [
            "",
            "   ",
            "def run(self) -> None:",
            "    12→func main() {",
            "12\tclass A:",
            "src/a.py:12:    x = 1",
            "src/a.py-13-    y = 2",
            "--",
            "src/b.py:3:fail",
            "ERROR: it broke",
            "--- FAIL: TestA (0.01s)",
            "--- PASS: TestB",
            "ok  \tpkg\t0.1s",
            "diff --git a/x b/x",
            "@@ -1,3 +1,4 @@ def f():",
            "+added",
            "-gone",
            " same",
            "--- a/x",
            "+++ b/x",
            "# Title",
            "## Part",
            "A sentence. And one more.",
            "| a | b |",
            "|---|---|",
            "| 1 | 2 |",
            "a,b,c",
            "1,2,3",
            "(2 rows)",
            "drwxr-xr-x 2 me me 64 src",
            "src/",
            "src/main.py",
            "total 8",
            "key: value",
            "[section]",
            "  name = 1",
            "x" * 700,
            "The file /a.py has been updated.",
            "Output:",
            "Chunk ID: 12ab",
            "/** What. */",
            "e\u0301" * 300,
            "👩\u200d👩\u200d👧🏽" * 60,
        ]
    ),
)
TEXTS = st.lists(LINES, max_size=120).map("\n".join)
ROOMS = st.integers(0, 3_000)
BY_LINES = sorted(kind for kind in SHAPES if kind != "json")


@pytest.mark.parametrize("kind", BY_LINES)
@given(text=TEXTS, room=ROOMS)
def test_what_stays_is_the_texts_own_and_the_rest_is_counted(
    kind: ShapeKind, text: str, room: int
) -> None:
    shaped = shape(text, kind, room)
    if shaped is not None:
        assert len(shaped.text) < len(text)
        accounts_for(text, shaped, counts=kind == "diff")


@pytest.mark.parametrize("kind", BY_LINES)
@given(text=TEXTS, room=st.integers(300, 3_000))
def test_the_room_is_kept_to_roughly(kind: ShapeKind, text: str, room: int) -> None:
    shaped = shape(text, kind, room)
    if shaped is not None:
        assert len(shaped.text) <= 3 * room + 1_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('abc \\"é-:,{}[]', max_size=200),
    lambda inner: (
        st.lists(inner, max_size=12)
        | st.dictionaries(st.text("abcdef", min_size=1, max_size=8), inner, max_size=12)
    ),
    max_leaves=60,
)


@given(value=JSON, room=ROOMS, indent=st.sampled_from([None, 2]))
def test_json_keeps_what_it_says_in_order_and_counts_the_rest(
    value: object, room: int, indent: int | None
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    shaped = SHAPES["json"](text, room)
    if shaped is None:
        return
    holes = [HOLE.fullmatch(line) for line in shaped.text.split("\n")]
    gone = sum(number(hole[1]) for hole in holes if hole is not None)
    clipped = re.findall(r"\[… ([\d,]+) chars\]", shaped.text)
    unsaid = sum(number(digits) for digits in clipped)
    assert shaped.removed == (unsaid if shaped.unit == "chars" else gone)
    assert 0 < shaped.removed <= shaped.total
    with pytest.raises(ValueError, match=r".*"):
        json.loads(shaped.text)  # what is not whole never looks whole
    _stands_in_order(shaped.text, text)


def _stands_in_order(said: str, text: str) -> None:
    bare = re.sub(r"\s", "", text)
    at = 0
    for piece in re.split(r"\[… [\d,]+ [a-z]+\]|\n", said):
        wanted = re.sub(r"\s", "", piece).rstrip(",")
        found = bare.find(wanted, at)
        assert found >= 0, f"{piece!r} does not stand there"
        at = found + len(wanted)


@given(text=st.text(max_size=4_000), hint=st.sampled_from([None, *CONTENTS]))
def test_every_text_has_a_kind_and_a_shape(text: str, hint: str | None) -> None:
    kind = classify(text, hint)  # type: ignore[arg-type]
    shaped = shape(text, kind, 200)
    assert shaped is None or len(shaped.text) < len(text)


@pytest.mark.parametrize("kind", sorted(SHAPES))
def test_a_shaped_text_is_not_shaped_again(kind: ShapeKind) -> None:
    text = "\n".join(f"src/f{number}.py:1:def f(): pass" for number in range(200))
    shaped = shape(text, kind, 500)
    assert shaped is not None
    marker = OmissionMarker(shaped.removed, shaped.unit, "a" * 20, shaped.total)
    assert shape(f"{shaped.text}\n{marker}", kind, 100) is None


HOSTILE = {
    "one line": "x" * 10_000,
    "blank lines": "\n" * 10_000,
    "open brackets": "(" * 10_000,
    "spaces": " " * 10_000,
    "many words": "def " * 2_666,
    "errors": "error: it broke\n" * 666,
    "definitions": "def f(\n" * 1_333,
    "hits": "a/b.py:1:x\n" * 1_000,
    "hunks": "@@ -1 +1 @@\n+x\n" * 666,
    "arrays": "[" * 500 + "1" + "]" * 500,
    "rows": "a,b,c\n" * 1_666,
    "rules": "-" * 5_000 + "x\n" + "-|" * 2_666,
    "accents": "e\u0301" * 5_000,
    "tags": "<h1" * 3_333,
    "comments": "// x\n" * 2_000,
    "assignments": "a" * 5_000 + " = " + "b" * 5_000,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("kind", sorted(SHAPES))
@pytest.mark.slow
def test_ten_times_the_text_costs_about_ten_times_the_time(kind: ShapeKind, name: str) -> None:
    text = HOSTILE[name]
    once, tenfold = _seconds(kind, text), _seconds(kind, text * 10)
    assert tenfold <= 30 * once + 0.05


def _seconds(kind: ShapeKind, text: str) -> float:
    best = 9.0
    for _ in range(2):
        start = time.process_time()
        classify(text, None)
        shape(text, kind, 2_000)
        best = min(best, time.process_time() - start)
    return best


@pytest.mark.parametrize("kind", sorted(SHAPES))
def test_what_has_holes_is_not_cut_again(kind: ShapeKind) -> None:
    """Nobody could tell whose holes they are, and the marker would not count all of them."""
    text = "\n".join(f"{n}: loom_{n} = weave({n * 7})" for n in range(400))
    assert shape(text, kind, 2_000) is not None
    assert shape(f"{text}\n[… 3 lines]\ndone", kind, 2_000) is None
