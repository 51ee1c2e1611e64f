"""`expand`: originals whole, by lines, by pattern; whatever is asked for, in bounded time."""

from __future__ import annotations

import time
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import respool
from respool import Policy
from respool.marker import reference
from tests.formats import FORMATS, Exchange, request

TEXT = "one\ntwo\nthree\n"
texts = st.text(alphabet="ab\n\r\x0b\u2028\x0c é")


def expand(text: str = TEXT, **asked: Any) -> str:
    return respool.expand("ref", {"ref": text}, **asked)


@pytest.mark.parametrize("format", FORMATS)
@given(said=st.text(alphabet="line 1\né", min_size=500, max_size=600))
@settings(max_examples=30)
def test_the_original_comes_back_exactly(format: str, said: str) -> None:
    whole = request(format, "go", [Exchange(said, id="a")], [Exchange("ok", id="b")])
    policy = Policy(cap_chars=300, reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True)
    out = respool.compact(whole, format=format, policy=policy, memo=None)
    for edit in out.report.edits:
        assert respool.expand(edit.original, out) == said  # type: ignore[union-attr]
        assert respool.expand(reference(said), dict(out.originals)) == said


@pytest.mark.parametrize(
    ("asked", "given_back"),
    [
        ({}, TEXT),
        ({"lines": (1, 1)}, "one\n"),
        ({"lines": (2, 3)}, "two\nthree\n"),
        ({"lines": [2, 3]}, "two\nthree\n"),
        ({"lines": (3, 10**12)}, "three\n"),
        ({"pattern": "t"}, "two\nthree\n"),
        ({"pattern": "^t.*e$"}, "three\n"),
        ({"pattern": "(?i)TWO|ONE"}, "one\ntwo\n"),
        ({"pattern": "four"}, ""),
        ({"pattern": r"\s"}, ""),
        ({"lines": (1, 2), "pattern": "t"}, "two\n"),
    ],
)
def test_whole_by_lines_and_by_pattern(asked: Any, given_back: str) -> None:
    assert expand(**asked) == given_back


@given(texts)
def test_lines_together_are_the_whole_and_counted_as_markers_count(text: str) -> None:
    count = text.count("\n") + (not text.endswith("\n") and text != "")
    apart = [expand(text, lines=(at, at)) for at in range(1, count + 1)]
    assert "".join(apart) == text
    assert expand(text, lines=(1, max(count, 1))) == text
    assert expand(text, pattern="") == text
    with pytest.raises(ValueError, match=f"this original has {count} lines"):
        expand(text, lines=(max(count, 1) + 1, count + 5))


@pytest.mark.parametrize(
    "lines", [(0, 1), (2, 1), (-1, 2), (1,), (1, 2, 3), 3, "12", (1.0, 2.0), (True, 2), ()]
)  # fmt: skip
def test_bad_ranges_are_refused(lines: Any) -> None:
    with pytest.raises(ValueError, match="allowed is"):
        expand(lines=lines)


@pytest.mark.parametrize("pattern", ["(", "*", "(?=x)y*", r"(a+)\1", "a" * 1_001, 7, b"one"])
def test_bad_patterns_are_refused(pattern: Any) -> None:
    with pytest.raises(ValueError, match=r"^pattern="):
        expand(pattern=pattern)


@pytest.mark.parametrize("ref", ["", "nothing", None, 7, ("ref",), ["ref"]])
def test_what_is_not_kept_is_an_error(ref: Any) -> None:
    with pytest.raises(respool.UnknownReference, match="No original is kept under"):
        respool.expand(ref, {"ref": TEXT})


def test_any_mapping_is_a_source_and_nothing_else() -> None:
    assert respool.expand("ref", MappingProxyType({"ref": TEXT})) == TEXT
    for source in (None, "ref", ["ref"], {"ref"}):
        with pytest.raises(ValueError, match="a Compaction, or a mapping"):
            respool.expand("ref", source)  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)*b", r"(\w+\s?)*:", "(.*)*x", ".*.*.*.*!$"])
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    start = time.process_time()
    expand("a" * 20_000 + " \n" + "aaaa\n" * 2_000, pattern=pattern)
    assert time.process_time() - start < 5


def test_a_huge_text_is_no_trouble() -> None:
    text = "a line of some words, as tools print them\n" * 200_000
    start = time.process_time()
    assert expand(text, lines=(150_000, 150_001)).count("\n") == 2
    assert expand(text, pattern="nothing like it") == ""
    assert time.process_time() - start < 5
