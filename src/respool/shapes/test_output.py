"""What a test runner printed: failures and summary stay, what passed goes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .cutting import Span, cut, head_of, lines_in, pick, tail_of
from .log import around
from .shaped import Shaped
from .troubles import TROUBLE, is_trouble, lines_with

_PASSED = re.compile(
    r"\s*(?:---\s+PASS|=== (?:RUN|PAUSE|CONT|NAME)|PASS\b|ok\s|[✓✔√]|\(pass\)"
    r"|test \S+ \.\.\. (?:ok|ignored)|\S+ PASSED|\S+\.py [.sx]+ )"
)
_FAILED = (*TROUBLE, "assert", "expected", "✗", "✕", "✖", "×", "●", "\ne  ", " got ")
_SUMMARY = (
    " passed", " pass\n", "test result:", "tests: ", "tests  ", "test suites:", "test files",
    "ran ", " passing", "ok  \t",
)  # fmt: skip
_SUMMARIES = 6  # lines of summaries that stay, the last ones


def shape_test_output(text: str, budget: int) -> Shaped | None:
    """The summary, the lines that tell of failures, and a few lines after each of them."""
    return cut(text, pick(_ranks(text, budget), budget)[0], budget)


def _ranks(text: str, budget: int) -> Iterator[list[Span]]:
    failed = _not_passed(text, lines_with(text, _FAILED))
    found = [line for line in failed if is_trouble(text, line, _FAILED)]
    ends = lines_in(text, [head_of(text, 0), tail_of(text, budget // 5)])
    yield sorted({*_not_passed(text, ends), tail_of(text, 0)})
    yield lines_with(text, _SUMMARY)[-_SUMMARIES:]
    yield found
    near = {line for one in found for line in lines_in(text, around(text, one, 2, 6))}
    yield _not_passed(text, sorted(near))


def _not_passed(text: str, lines: list[Span]) -> list[Span]:
    """The lines that say more than that something passed, or runs."""
    return [line for line in lines if _PASSED.match(text, line[0], line[1]) is None]
