"""Shapes of logs, test output, edit results and unknown text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from ..regex import lazy_compile
from .excerpt import (
    LineSpan,
    ShapedText,
    cut_to_spans,
    head_of,
    line_at,
    line_end,
    line_start,
    select_spans,
    split_lines,
    tail_of,
)

FAILURE_WORDS: Final = (
    "error", "fail", "exception", "traceback", "fatal", "panic", "denied", "not found", "cannot",
    "abort", "undefined", "no such", "refused", "timed out",
)  # fmt: skip
WARNING_WORDS: Final = ("warning", "warn:", "deprecated")
_HARMLESS = lazy_compile(
    r"\b(?:0|no) (?:error|fail|problem)|fail(?:ed|ures?)?[:=] ?0\b|errors?[:=] ?0\b|without error",
    re.IGNORECASE,
)
_HARMLESS_HINTS = ("0 ", ": 0", "=0", ":0", "= 0", "no ", "No ", "without")  # fast to search
_MAX_LINES_PER_WORD = 2_000  # lines per word that are checked, from the start of a text

_PASSED = lazy_compile(
    r"\s*(?:---\s+PASS|=== (?:RUN|PAUSE|CONT|NAME)|PASS\b|ok\s|[✓✔√]|\(pass\)"
    r"|test \S+ \.\.\. (?:ok|ignored)|\S+ PASSED|\S+\.py [.sx]+ )"
)
_TEST_FAILURE_WORDS = (
    *FAILURE_WORDS,
    "assert",
    "expected",
    "✗",
    "✕",
    "✖",
    "×",
    "●",
    "\ne  ",
    " got ",
)
_SUMMARY_WORDS = (
    " passed", " pass\n", "test result:", "tests: ", "tests  ", "test suites:", "test files",
    "ran ", " passing", "ok  \t",
)  # fmt: skip
_MAX_SUMMARIES = 6  # summary lines that stay, the last ones


def lines_with(text: str, words: Sequence[str]) -> list[LineSpan]:
    """The lines that contain one of these words, case-insensitive, in order.

    A word that starts with a line break matches at the start of a line.
    """
    small = f"\n{text.lower()}"
    if len(small) != len(text) + 1:  # a few letters change length in lower case
        small = f"\n{text}"
    found: dict[int, int] = {}
    for word in words:
        at = small.find(word)
        seen = 0
        while at >= 0 and seen < _MAX_LINES_PER_WORD:
            start, end = line_at(text, at + len(word) - 2)  # the line of its last character
            found[start] = end
            seen += 1
            at = small.find(word, max(at + 1, end))
    return sorted(found.items())


def failure_lines(text: str, words: Sequence[str], budget: int) -> tuple[list[LineSpan], int]:
    """The lines that report a failure, the first and last if not all fit; the remaining budget."""
    found = [line for line in lines_with(text, words) if is_failure_line(text, line, words)]
    return select_spans([found], budget)


def is_failure_line(text: str, line: LineSpan, words: Sequence[str]) -> bool:
    """Check whether a line with such a word says more than that nothing failed."""
    line_text = text[line[0] : min(line[1], line[0] + 400)]
    if not any(word in line_text for word in _HARMLESS_HINTS):
        return True
    rest, found = _HARMLESS.subn("", line_text)
    return not found or any(word in f"\n{rest.lower()}" for word in words)


def shape_ends(text: str, budget: int) -> ShapedText | None:
    """Keep head, tail, and the lines between them that report a failure."""
    failures, left = failure_lines(text, FAILURE_WORDS, budget // 4)
    left += budget - budget // 4
    return cut_to_spans(
        text, [head_of(text, left * 3 // 5), *failures, tail_of(text, left * 2 // 5)], budget
    )


def shape_edit(text: str, budget: int) -> ShapedText | None:
    """Keep the first line."""
    first = (0, line_end(text, 0))
    failures = [] if _has_file_content(text) else failure_lines(text, FAILURE_WORDS, budget // 2)[0]
    return cut_to_spans(text, [first, *failures], budget)


def _has_file_content(text: str) -> bool:
    """Check whether the first line is followed by the file, whose words report no failure."""
    return "cat -n" in text[: line_end(text, 0)]


def shape_log(text: str, budget: int) -> ShapedText | None:
    """Keep first and last lines, errors, warnings, then the lines around them."""
    chosen, left = select_spans(_log_ranks(text, budget), budget)
    more = [head_of(text, budget // 8 + left // 3), tail_of(text, budget // 4 + left // 2)]
    return cut_to_spans(text, [*chosen, *more], budget)


def _log_ranks(text: str, budget: int) -> Iterator[list[LineSpan]]:
    found = [
        line
        for line in lines_with(text, FAILURE_WORDS)
        if is_failure_line(text, line, FAILURE_WORDS)
    ]
    yield split_lines(text, [head_of(text, budget // 8), tail_of(text, budget // 4)])
    yield _distinct_lines(text, found)
    yield [one for line in found for one in surrounding_lines(text, line, 1, 1)]
    yield _distinct_lines(text, lines_with(text, WARNING_WORDS))


def surrounding_lines(text: str, line: LineSpan, before: int, after: int) -> list[LineSpan]:
    """The lines next to a line."""
    start, end = line
    first, last = start, end
    for _ in range(before):
        first = line_start(text, first - 1) if first else first
    for _ in range(after):
        last = line_end(text, last) if last < len(text) else last
    return [span for span in ((first, start), (end, last)) if span[0] < span[1]]


def _distinct_lines(text: str, lines: list[LineSpan]) -> list[LineSpan]:
    """The lines without repeats that differ only in their time."""
    seen: set[str] = set()
    found: list[LineSpan] = []
    for start, end in lines:
        content = text[start:end].lstrip("0123456789 :.,-/[]TZ")
        if content not in seen:
            seen.add(content)
            found.append((start, end))
    return found


def shape_test_output(text: str, budget: int) -> ShapedText | None:
    """Keep the summary, the lines that report failures, and a few lines after each."""
    return cut_to_spans(text, select_spans(_test_ranks(text, budget), budget)[0], budget)


def _test_ranks(text: str, budget: int) -> Iterator[list[LineSpan]]:
    failed = _without_passed(text, lines_with(text, _TEST_FAILURE_WORDS))
    found = [line for line in failed if is_failure_line(text, line, _TEST_FAILURE_WORDS)]
    ends = split_lines(text, [head_of(text, 0), tail_of(text, budget // 5)])
    yield sorted({*_without_passed(text, ends), tail_of(text, 0)})
    yield lines_with(text, _SUMMARY_WORDS)[-_MAX_SUMMARIES:]
    yield found
    near = {line for one in found for line in split_lines(text, surrounding_lines(text, one, 2, 6))}
    yield _without_passed(text, sorted(near))


def _without_passed(text: str, lines: list[LineSpan]) -> list[LineSpan]:
    """The lines that say more than that something passed or runs."""
    return [line for line in lines if _PASSED.match(text, line[0], line[1]) is None]
