"""Linear-time search agrees with Python's engine, and outlasts it."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool import line_search
from respool.line_search import MAX_PATTERN_CHARS, Unsearchable, searcher, whole_matcher
from tests.effort import examples
from tests.support.timing import takes_at_most

ATOMS = st.sampled_from(
    [
        "a",
        "b",
        "c",
        " ",
        ".",
        "[ab]",
        "[^a]",
        r"\d",
        r"\w",
        r"\s",
        r"\W",
        r"\.",
        "é",
        "^",
        "$",
        r"\b",
        r"\B",
        "[a-c]",
        r"[]x]",
        r"\x41",
        "-",
    ]
)
REPEATS = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,2}", "{,2}", "{1,}", "*?", "+?"])


def _repeatable(atom: str) -> bool:
    return atom not in ("^", "$", r"\b", r"\B")


patterns = st.recursive(
    st.tuples(ATOMS, REPEATS).map(lambda p: p[0] + (p[1] if _repeatable(p[0]) else "")),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.tuples(st.lists(inner, min_size=1, max_size=3), REPEATS).map(
            lambda p: f"({'|'.join(p[0])}){p[1]}"
        ),
        st.lists(inner, min_size=1, max_size=2).map("|".join),
    ),
    max_leaves=6,
)
lines = st.text(alphabet="abc Aé1.-x", max_size=12)


@given(patterns, st.lists(lines, min_size=1, max_size=4))
@settings(max_examples=examples(400), deadline=None)
def test_it_finds_what_python_finds(pattern: str, texts: list[str]) -> None:
    finds = searcher(pattern)
    for text in texts if r"\B" not in pattern else filter(None, texts):  # Pythons disagree on that
        assert finds(text) == (re.search(pattern, text) is not None), (pattern, text)


@given(patterns, st.lists(lines, min_size=1, max_size=4))
@settings(max_examples=examples(200), deadline=None)
def test_it_matches_whole_texts_as_python_does(pattern: str, texts: list[str]) -> None:
    fits = whole_matcher(pattern)
    for text in texts if r"\B" not in pattern else filter(None, texts):
        assert fits(text) == (re.fullmatch(pattern, text, re.DOTALL) is not None), (pattern, text)


def test_no_length_is_too_long_for_a_pattern_of_our_own() -> None:
    fits = whole_matcher("ab" * 2_000 + ".*")
    assert fits("ab" * 2_001)
    assert not fits("ab" * 1_999)


def test_steps_that_are_forgotten_are_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_search, "_MAX_CACHED_STEPS", 3)
    finds = searcher("a+b*c|d")
    for text in ("xxaabbc", "xyz", "aab", "abcd", "d", ""):
        assert finds(text) == (re.search("a+b*c|d", text) is not None)


# RE2 differs in all of these, so it does not take this place (docs/reference/dependencies.md).
@pytest.mark.parametrize(
    ("pattern", "found", "missed"),
    [
        (r"\bfoo.*", "é foo", "éfoo"),
        (r"naïve|\w{4}x", "übärx", "übx"),
        (r"[^\W_]+é\Z", "abé", "_é_"),
        (r"\d+", "٣", "x"),
        (r"a\s+b", "a\u00a0b", "a_b"),
        (r"xa{,2}b", "xaab", "xaaab"),
        (r"(?a)\w+", "a", "é"),
        (r"\u00e9+", "é", "e"),
        (r"(?:a{1500})", "a" * 1500, "a" * 1499),
    ],
)
def test_letters_and_repeats_mean_what_they_mean_in_python(
    pattern: str, found: str, missed: str
) -> None:
    finds = searcher(pattern)
    assert finds(found)
    assert not finds(missed)


@pytest.mark.parametrize(
    ("pattern", "found", "missed"),
    [
        (r"def \w+\(", "def load(path):", "define load(path)"),
        (r"(?i)error|fail(ed|ure)", "BUILD FAILED", "all fine"),
        (r"^\s*#", "   # a comment", "x = 1  # trailing"),
        (r"\bfoo\b.*;$", "call foo(1);", "call food(1);"),
        (r"a{3,5}b", "xaaab", "aab"),
        (r"(?:GET|POST) /\S+ 5\d\d", "POST /a/b 503", "GET /a/b 200"),
        (r"(?P<name>x+)y", "xxy", "xz"),
        (r"(a)\1", "aa", "ab"),
        ("", "anything", None),
        (r"\{.*\}", "x {1} y", "x 1 y"),
        (r"x*", "", None),
    ],
)
def test_patterns_people_write(pattern: str, found: str, missed: str | None) -> None:
    finds = searcher(pattern)
    assert finds(found)
    assert missed is None or not finds(missed)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$", "(a|a)*$", "(a|aa)+$", "(.*)(.*)(.*)(.*)(.*)x", "(a*)*b", "(?:a?){30}a{30}",
        "([a-z]+)*=", ".*.*.*.*=.*",
    ],
)  # fmt: skip
def test_patterns_that_never_end_elsewhere_end_here(pattern: str) -> None:
    finds = searcher(pattern)
    start = time.process_time()
    finds("a" * 5_000 + "!")
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    "pattern",
    ["(", "[", "a**", "(a+)+" * 300, "(?=a)b*", "(?<!a)b*", r"(a*)\1", "a*+", "(?>a*)", "(?(1)a|b)",
     "(a{50}){50}", "((()" + "{99}){99}){99}", "(" * 400 + "a*" + ")" * 400],
)  # fmt: skip
def test_what_cannot_be_searched_for_is_refused(pattern: str) -> None:
    with pytest.raises(Unsearchable):
        searcher(pattern)


def test_long_patterns_are_refused() -> None:
    assert searcher("a" * MAX_PATTERN_CHARS)("a" * MAX_PATTERN_CHARS)
    with pytest.raises(Unsearchable, match="1,000 characters"):
        searcher("a" * (MAX_PATTERN_CHARS + 1))


def test_time_grows_with_the_text_alone() -> None:
    finds = searcher(r"(\w+\s*)+:$")

    takes_at_most(12, lambda: finds("word " * 40_000), lambda: finds("word " * 10_000))
