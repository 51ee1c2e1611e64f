"""Failing endings of many runners, and endings that only sound like them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.history import failures
from respool.history.failures import failure_hint, has_failed_ending, is_failed_call
from respool.summaries.outcome import parse_outcome

FAILED = (
    "FAIL: x",
    "FAIL: x\nFAIL: y\n",
    "FAILED",
    "[FAIL] adds",
    "x ... FAILED",
    "test x: FAIL",
    "Result: FAIL",
    "  FAIL x.test.ts",
    "--- FAIL: TestX (0.00s)\nFAIL\nFAIL\tpkg\t0.1s",
    "ok 1 - a\nnot ok 2 - b",
    "  ✗ adds numbers",
    "✖ adds (2ms)",
    "✕ adds",
    "× renders",
    "❌ lint",
    "error: no such thing",
    "Error: x is not a function\n    at foo (a.js:1:2)",
    "ERROR: build broke",
    "[ERROR] Failed to execute goal",
    "error[E0425]: cannot find value",
    "src/a.ts(1,2): error TS2304: x",
    "FATAL: db",
    "CRITICAL: x",
    "panic: runtime error: index out of range",
    "thread 'main' (1234) panicked at src/main.rs:2:5:\nboom",
    'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: x',
    "ValueError: bad",
    "Uncaught TypeError: x",
    "java.lang.NullPointerException: null\n\tat x",
    "Unhandled exception. System.Exception: x",
    "npm ERR! code 1",
    "ERR! x",
    "make: *** [all] Error 2",
    "make[1]: *** [Makefile:3: all] Error 2",
    "exit code 3",
    "Process exited with code 2",
    "Segmentation fault (core dumped)",
    "Killed",
    "./run.sh: line 3: 123 Killed   ./prog",
    "Aborted (core dumped)",
    "Bus error",
    "timed out after 30s",
    "Command timed out",
    "AssertionError: 1 != 2",
    "assertion failed: x == y",
    "a.out: a.c:3: main: Assertion `x' failed.",
    "bash: foo: command not found",
    "Tests failed",
    "Some tests failed.",
    "2 of 10 tests failed",
    "BUILD FAILED in 3s",
)
SUCCEEDED = (
    "5 passed, 0 failed",
    "0 FAILED",
    "FAILED: 0",
    "Failed: 0",
    "FAIL 0",
    "FAILED (0)",
    "failures: 0",
    "errors=0 failures=0",
    "error: 0",
    "Error count: 0",
    "Errors: none",
    "no errors",
    "No errors found",
    "no tests failed",
    "Found 0 errors.",
    "Success: no issues found in 3 source files",
    "12 assertions, 0 failures",
    "test result: ok. 3 passed; 0 failed; 0 ignored",
    "test_fail_fast ... ok",
    "ok 3 - handles fail",
    "PASS test_failure",
    "test_fails_when_missing PASSED",
    "✓ reports error: x when missing",
    "✓ fails on bad input (2ms)",
    "compiled error.c",
    "wrote error.log",
    "0 timed out",
    "timed out: 0",
    "killed 3 stale processes",
    "terminated gracefully",
    "exit code 0",
)
# Lines that prove nothing by themselves: the call is no open error, but a summary quotes them.
DOUBTFUL = (
    "sh: 1: foo: not found",
    "E: Unable to locate package x",
    "Permission denied",
    "cp: cannot stat 'x': No such file or directory",
    "mismatch: expected 1, got 2",
    "Timeout: test took too long",
)


@pytest.mark.parametrize("ending", FAILED)
def test_a_failing_ending_is_a_failure(ending: str) -> None:
    text = f"starting\nbuilding\n{ending}"
    assert parse_outcome(text, False, "run").failed
    assert is_failed_call(text, False, "run")


@pytest.mark.parametrize("ending", SUCCEEDED)
def test_another_ending_is_none(ending: str) -> None:
    text = f"starting\nbuilding\n{ending}"
    assert not parse_outcome(text, False, "run").failed
    assert not is_failed_call(text, False, "run")


@pytest.mark.parametrize("ending", FAILED)
def test_what_was_read_does_not_fail(ending: str) -> None:
    text = f"1\timport x\n2\t{ending}"
    assert not parse_outcome(text, False, "read").failed


@pytest.mark.parametrize("ending", DOUBTFUL)
def test_a_doubtful_ending_is_quoted(ending: str) -> None:
    text = f"starting\n{ending}\nsee above"
    assert not parse_outcome(text, False, "run").failed
    assert failure_hint(text) == ending


WORDS = sorted(
    {
        *failures._FAILURE_HINTS, *failures._PASS_WORDS, "0 failed", "3 failed", "1 error", "tests",
        "error TS1", "x.go:1:2: y", "x.rb:3:in `z' (v)", "thread 'main' panicked at", "make: ***",
        "*** [all] error 1", "command failed", "command not found", "build failed", "CONFLICT (",
        "automatic merge failed", "undefined reference to", "err! x", "killed", ": line 7: 12 ",
        "timed out after 3", "assertion x failed", "ValueError: no", "exited", "npm ERR!",
        "2 passed",
        "× no solution", "✗ one", "FAIL: two", "not ok 3", "fail code 2",
        "** BUILD FAILED **", ":",
    }
)  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(" \n")), max_size=12))
def test_a_pattern_is_left_out_only_where_it_cannot_match(pieces: list[tuple[str, str]]) -> None:
    text = "".join(word + end for word, end in pieces)
    assert has_failed_ending(text) == _searched_by_all_patterns(text)


def _searched_by_all_patterns(text: str) -> bool:
    """The same with every pattern, wherever a line may report a failure."""
    tail = failures._SETTLED.sub("", text[-failures._TAIL_CHARS :]).lower()
    hints = (*failures._FAILURE_HINTS, *failures._PASS_WORDS)
    if not any(one in tail for one in failures._FAILURE_HINTS):
        return False
    lines = failures._lines_with(tail, hints)
    last = failures._lines_with(failures._last_lines(tail), hints)
    well, passed = failures._end_of_passed(lines), failures._end_of_passed(last)
    return any(
        found is not None
        for found in (
            failures._ENDS_FAILED.search(lines),
            failures._CRASHED.search(lines, well),
            failures._CRASHED_GO.search(lines, well),
            failures._LAST_FAILED.search(last, passed),
        )
    )
