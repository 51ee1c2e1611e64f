"""The pass resolved_errors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from respool.api import expand
from respool.history.failures import (
    clip_error_line,
    error_line,
    exit_code,
    has_failed_ending,
    has_failure_count,
    is_failed,
    is_failed_call,
    is_success,
    is_user_refusal,
    is_write_confirmed,
    is_write_refused,
    running_session,
)
from respool.markers import OmissionMarker, find_marker, reference
from respool.passes.resolved_errors import resolved_errors
from tests.effort import examples
from tests.support.coding_sessions import (
    bash,
    done,
    edit,
    hold_the_laws,
    lines,
    read,
    run,
    sessions,
    write,
)
from tests.support.formats import FIELD, FORMATS, Exchange, results

formats = pytest.mark.parametrize("format", FORMATS)
A = "/w/loom.py"
TOLD = "E       AssertionError: assert weave(3) == 4"
FAILED = f"Exit code 1\n{lines(1, 10)}\n    def test_loom():\n{TOLD}\n{lines(20, 30)}\n1 failed"
PASSED = "3 passed in 0.02s"
TEST = "pytest tests/test_loom.py -q"
RUN = "the run of pytest tests/test_loom.py"


def left(format: str, *steps: Any, keep: int = 0) -> list[str]:
    """Text of every result except the last, unseen one."""
    out = run(resolved_errors, format, *steps, done(), keep=keep)
    return results(format, out.request)[:-1]


def told(line: str, text: str, by: str) -> str:
    """A line of an error, and the marker for the rest."""
    all = text.count("\n") + 1
    marker = OmissionMarker(
        all - 1, "lines", reference(text), all, reason=f"{by} succeeded further down"
    )
    return f"{line}\n{marker}"


def classic(error: bool = True) -> list[Any]:
    """A test fails, the code is mended, the test passes."""
    return [
        [bash(TEST, FAILED, "t1", error=error)],
        [edit(A, "weave(3)", "weave(4)", "e1")],
        [bash(TEST, PASSED, "t2")],
    ]


@formats
def test_the_classic_case_test_failed_edit_test_passed(format: str) -> None:
    texts = left(format, *classic())
    assert texts == [told(TOLD, FAILED, RUN), "Edited.", PASSED]


def test_what_a_reader_sees() -> None:
    assert left("anthropic", *classic())[0] == (
        "E       AssertionError: assert weave(3) == 4\n"
        f"[respool: 24 of 25 lines left out, "
        f"the run of pytest tests/test_loom.py succeeded further down; ref {reference(FAILED)}]"
    )


@formats
def test_the_original_comes_back(format: str) -> None:
    out = run(resolved_errors, format, *classic(), done())
    marker = find_marker(results(format, out.request)[0])
    assert marker is not None
    assert expand(marker.ref, out) == FAILED


def test_a_failed_result_stays_marked_as_failed() -> None:
    out = run(resolved_errors, "anthropic", *classic(), done())
    assert out.request["messages"][2]["content"][0]["is_error"] is True


@formats
def test_an_error_still_open_stays(format: str) -> None:
    steps = ([bash(TEST, FAILED, "t1", error=True)], [edit(A, "weave(3)", "weave(4)", "e1")])
    assert left(format, *steps, [read(A, "x", "r1")])[0] == FAILED


@formats
def test_an_error_that_came_back_is_open(format: str) -> None:
    texts = left(format, *classic(), [bash(TEST, FAILED, "t3", error=True)])
    assert texts[0] == told(TOLD, FAILED, RUN)
    assert texts[3] == FAILED


@formats
def test_all_failures_before_the_success_are_resolved(format: str) -> None:
    steps = [[bash(TEST, FAILED, f"t{n}", error=True)] for n in range(3)]
    texts = left(format, *steps, [bash(TEST, PASSED, "t9")])
    assert texts == [told(TOLD, FAILED, RUN)] * 3 + [PASSED]


@formats
def test_a_run_that_counts_failures_resolves_nothing_whatever_it_is_flagged_as(format: str) -> None:
    again = bash(TEST, "= 1 failed, 3 passed in 0.2s =", "t2")
    assert left(format, [bash(TEST, FAILED, "t1", error=True)], [again])[0] == FAILED


def test_the_report_says_by_which_call() -> None:
    out = run(resolved_errors, "anthropic", *classic(), done())
    told = [(one.reason, one.evidence) for one in out.report.edits]
    assert told == [("resolved", "resolved by call t2, 25 lines")]


@formats
def test_another_target_resolves_nothing(format: str) -> None:
    other = bash("pytest tests/test_heddle.py -q", PASSED, "t2")
    assert left(format, [bash(TEST, FAILED, "t1", error=True)], [other])[0] == FAILED


@formats
def test_a_read_does_not_resolve_a_failed_edit_of_the_same_file(format: str) -> None:
    said = "Error: the file has not been read yet.\n" + lines(1, 12)
    failing = edit(A, "a", "b", "e1", result=said, error=True)
    assert left(format, [failing], [read(A, lines(1, 20), "r1")])[0] == said
    again = left(format, [failing], [read(A, lines(1, 20), "r1")], [edit(A, "a", "b", "e2")])
    assert again[0] == told("Error: the file has not been read yet.", said, f"the edit of {A}")


@formats
@pytest.mark.parametrize(
    ("command", "result", "resolves"),
    [
        (f"{TEST} 2>&1 | tail -5", "3 passed in 0.02s", True),
        (f"{TEST} 2>&1 | tail -5", "1 failed, 2 passed in 0.02s", False),
        (f"{TEST} 2>&1 | grep -E '^(x|y)'", "", False),
        (f"{TEST} 2>&1 | grep -P z", "grep: invalid option -- P", False),
        (f"{TEST} -x", "3 passed in 0.02s", True),
        (TEST, "", True),
    ],
)
def test_what_a_filter_lets_through_must_tell_of_success(
    format: str, command: str, result: str, resolves: bool
) -> None:
    texts = left(format, [bash(TEST, FAILED, "t1", error=True)], [bash(command, result, "t2")])
    assert (texts[0] != FAILED) is resolves


@formats
def test_a_run_that_is_not_done_resolves_nothing_until_it_is(format: str) -> None:
    def exec_command(result: str, id: str) -> Exchange:
        return Exchange(result, tool="exec_command", id=id, args={"cmd": TEST})

    def look(result: str, id: str) -> Exchange:
        return Exchange(result, tool="write_stdin", id=id, args={"session_id": 17, "chars": ""})

    failing = FAILED.replace("Exit code 1", "Process exited with code 1\nOutput:")
    running = "Process running with session ID 17\nOutput:\n"
    start = ([exec_command(failing, "t1")], [exec_command(running, "t2")])
    assert left(format, *start)[0] == failing
    passed = look("Process exited with code 0\nOutput:\nok", "p1")
    assert left(format, *start, [passed], keep=1)[0] == told(TOLD, failing, RUN)
    broken = look("Process exited with code 1\nOutput:\n1 failed", "p1")
    assert left(format, *start, [broken], keep=1)[0] == failing


@formats
def test_what_the_user_said_when_refusing_is_no_error(format: str) -> None:
    said = "The user doesn't want to proceed with this tool use. The user said:\n" + lines(1, 12)
    refused = bash(TEST, said, "t1", error=True)
    assert left(format, [refused], [bash(TEST, PASSED, "t2")])[0] == said


@formats
def test_what_a_failed_read_did_show_stays(format: str) -> None:
    shown = f"Exit code 1\n{lines(1, 30)}\n(eval):1: == not found"
    failing = bash(f"cat {A}; echo ===; cat {A}", shown, "c1", error=True)
    assert left(format, [failing], [bash(f"cat {A}", lines(1, 30), "c2")])[0] == shown


@formats
def test_recency_the_latest_exchanges_stay(format: str) -> None:
    assert left(format, *classic(), keep=3)[0] == FAILED
    aged = left(format, *classic(), done("d1"), keep=3)
    assert aged[0] == told(TOLD, FAILED, RUN), "once it has left the window"


@formats
def test_short_errors_are_left(format: str) -> None:
    steps = ([bash(TEST, "Exit code 1\nfailed", "t1", error=True)], [bash(TEST, PASSED, "t2")])
    assert left(format, *steps)[0] == "Exit code 1\nfailed"


@formats
def test_a_whole_write_that_failed_and_then_succeeded(format: str) -> None:
    said = "Error: ENOSPC: no space left on device\n" + lines(1, 12)
    steps = ([write(A, "x", "w1", result=said, error=True)], [write(A, "x", "w2")])
    assert left(format, *steps)[0] == told(said.split("\n")[0], said, f"the write of {A}")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Process exited with code 1\nOutput:\n", 1),
        ("Chunk ID: 5\nWall time: 1 s\nProcess exited with code 0\nOutput:\nexit code: 3", 0),
        ("Exit code: 2\nWall time: 0.1 seconds\nOutput:\n", 2),
        ("Exit code 1\nboom", 1),
        ('{"output":"boom","metadata":{"exit_code":1,"duration_seconds":0.1}}', 1),
        ('{"output":"fine","metadata":{"exit_code":0,"duration_seconds":0.1}}', 0),
        ("boom\n[Command finished with exit code 127]", 127),
        ("<returncode>1</returncode>\n<output>boom</output>", 1),
        ("<exited with exit code 3>", 3),
        ("x" * 2_000 + "\nexit status 1", 1),
        ("Exit Code: -1", -1),
        ("all is well", None),
        ("def main():\n    exit_code = 1\n", None),
        ("sys.exit(1)", None),
    ],
)
def test_exit_codes_as_agents_print_them(text: str, code: int | None) -> None:
    assert exit_code(text) == code
    assert is_failed(text, False) is (code not in (None, 0))


@pytest.mark.parametrize(
    ("text", "error", "is_one"),
    [
        ("all is well", True, True),
        ("Process exited with code 0", True, True),
        ("Error: no such file", False, True),
        ("<tool_use_error>String not found</tool_use_error>", False, True),
        ("Traceback (most recent call last):\n  File", False, True),
        ("fatal: not a git repository", False, True),
        ("FileNotFoundError: [Errno 2]", False, True),
        ("Error handling, a guide", False, False),
        ("Exit code 0\nError: caught", False, False),
        ("", False, False),
    ],
)
def test_a_flag_or_the_text_itself_tells_of_failure(text: str, error: bool, is_one: bool) -> None:
    assert is_failed(text, error) is is_one


@pytest.mark.parametrize(
    ("before", "line", "after"),
    [
        (lines(1, 10), TOLD, "1 failed"),
        ("# loom", "src/a.go:12:3: undefined: loom", "FAIL loom [build failed]"),
        ("", "src/a.ts(12,3): error TS2304: Cannot find name", ""),
        ("186 |  submitError: new Error('x'),", "error: the queue is full", ""),
        ("   Compiling loom", "error[E0425]: cannot find value `warp`", "  --> src/a.rs:3"),
        ("=== RUN TestLoom", "--- FAIL: TestLoom (0.03s)", "FAIL"),
        ("$ biome check --error-on-warnings", "× This variable is unused.", ""),
        ("", "zsh: command not found: loom", ""),
        ("func (l *loom) Close() error {", "the task failed", ""),
        ("", "nothing telling", "at all"),
    ],
)
def test_the_line_that_tells(before: str, line: str, after: str) -> None:
    assert error_line(f"Exit code 1\n{before}\n{line}\n{after}") == line


def test_where_nothing_tells_the_first_line_does() -> None:
    assert error_line("Exit code 1") == "Exit code 1"
    assert error_line("") == ""


@pytest.mark.parametrize(
    "said",
    [
        "# tests 3\n# pass 2\n# fail 1\n# duration_ms 50",
        "\u2139 pass 2\n\u2139 fail 1\n\u2139 duration_ms 50",
        "[ERROR] Tests run: 5, Failures: 1, Errors: 0\n[INFO] BUILD FAILURE",
        "ERRORS!\nTests: 5, Assertions: 9, Errors: 1.",
        "a.c:(.text+0x5): undefined reference to `foo'",
        "make: *** No rule to make target 'x'.  Stop.",
        "\u2502 Error: Unsupported argument\n\u2502   on main.tf line 5",
        "  \u00d7 No solution found when resolving dependencies:",
        "thread 'main' (123) panicked at src/main.rs:2:5:\nloom",
        'Exception in thread "main" java.lang.IllegalStateException: loom',
        "a.rb:5:in `weave': undefined local variable (NameError)",
        "PHP Fatal error:  Uncaught Error: loom in /a.php:5",
        "Segmentation fault (core dumped)",
        "80% tests passed, 1 tests failed out of 5",
        "//a:b      \x1b[31mFAILED in 0.1s\x1b[0m",
        "ruff.....................Failed\n- hook id: ruff",
        "  py311: FAIL code 1 (3.2 seconds)",
        "ok 1 - warp\nnot ok 2 - weft\n1..2",
        "** TEST FAILED **",
        "CONFLICT (content): Merge conflict in a.py",
        "./a.go:5:2: undefined: warp",
    ],
)
def test_what_ends_badly_is_no_success(said: str) -> None:
    assert has_failed_ending(f"{lines(1, 5)}\n{said}")
    assert not is_success(f"all is ok\n{said}")
    steps = [[bash(TEST, FAILED, "t1", error=True)], [bash(TEST, said, "t2")]]
    assert left("anthropic", *steps)[0] == FAILED


@pytest.mark.parametrize(
    "said",
    [
        "Found 3 errors (3 fixed, 0 remaining).",
        "\u2716 1 problem (0 errors, 1 warning)",
        "ERROR that the test wanted\n5 passed in 1s",
        "[INFO] Tests run: 5, Failures: 0, Errors: 0, Skipped: 0\n[INFO] BUILD SUCCESS",
        "# pass 3\n# fail 0\n# cancelled 0",
        "not ok 2 - weft # TODO later\n# pass 3\n# fail 0",
        "100% tests passed, 0 tests failed out of 5",
        "ok  \tloom/errors\t0.1s\nok  \tloom/fail\t0.1s",
        "Build succeeded.\n    0 Warning(s)\n    0 Error(s)",
        "Output: (empty)\nError: (none)\nExit Code: 0\nSignal: (none)",
        "[main (root-commit) 1a2b3c4] Mend 3 errors in the loom\n 1 file changed, 2 insertions(+)",
        "HEAD is now at 1a2b3c4 Mend 2 failed tests",
    ],
)
def test_what_ends_well_is_no_failure(said: str) -> None:
    assert not has_failed_ending(said)
    assert not has_failure_count(said)


@pytest.mark.parametrize(
    "said",
    [
        "No replacement was performed, old_str `x` did not appear verbatim in /w/a.py.",
        "Your proposed edit has introduced new syntax error(s). Please read this error message.",
        "oldString not found in content",
        "String to replace not found in file.",
        "File has not been read yet. Read it first before writing to it.",
        "File has been modified since read, either by the user or by a linter.",
        "The tool execution failed with the following error:",
        "Found 2 matches of the string to replace, but replace_all is false.",
        "Found multiple matches for oldString.",
        "The user doesn't want to proceed with this tool use.",
        "[Tool call was cancelled by the user]",
        "EACCES: permission denied, open '/w/a.py'",
        "No changes to make: old_string and new_string are exactly the same.",
        '{"error": "no such reservation"}',
        "Payment failed",
    ],
)
def test_a_write_that_was_refused_is_no_write(said: str) -> None:
    assert is_write_refused(said)
    assert is_write_refused(f"<tool_use_error>{said}")
    assert not is_write_confirmed(said)
    assert is_failed_call(said, False, "write")
    assert not is_failed_call(said, False, "read")  # what a file says is no account of a call


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("The file /w/not_found.py has been updated.", True),
        ("Success. Updated the following files:\nM failed.py", True),
        ("Successfully replaced text in failed_test.py. Changed 5 characters", True),
        ("The file /w/a.py has been edited.\n 1\terror: not found", True),
        ('{"status": "failed before, not found", "id": 7}', False),
        ("", False),
        ("[File: /w/a.py (5 lines total)]", False),
    ],
)
def test_only_a_write_that_says_so_is_known_to_have_ended_well(said: str, told: bool) -> None:
    assert not is_write_refused(said)
    assert is_write_confirmed(said) is told


def test_a_line_that_only_announces_an_error_tells_nothing() -> None:
    assert error_line("ERROR:\nNo replacement was performed.") == "No replacement was performed."
    assert error_line("ok  \tloom\t2s\n1 issues:\n* vet: 1") == "1 issues:"


def test_words_of_runs() -> None:
    assert has_failure_count("= 3 failed, 10 passed in 0.2s =")
    assert has_failure_count("FAILED (failures=2)")
    assert has_failure_count("make: *** [Makefile:3: all] Error 2")
    assert has_failure_count("7 issues:\n* gosec: 1")
    assert has_failure_count("\x1b[2m Tests \x1b[22m \x1b[31m2 failed\x1b[39m")
    assert not is_success("\x1b[32m3 passed\x1b[39m \x1b[31m2 failed\x1b[39m")
    assert is_success("\x1b[32m3 passed\x1b[39m")
    assert is_failed("\x1b[31mError: no loom\x1b[39m", False)
    assert error_line("all\n\x1b[31merror: no loom\x1b[39m") == "error: no loom"
    assert has_failure_count("src/a.ts(3,1): error TS2339: no 'x'")
    assert has_failure_count('npm error Missing script: "check"')
    assert error_line('all\nnpm error Missing script: "x"') == 'npm error Missing script: "x"'
    assert not has_failure_count("0 failed, 13 passed")
    assert not has_failure_count("1351 pass\n 0 fail")
    assert is_success("1351 pass\n 0 fail")
    assert is_success("Checked 275 files. No fixes applied.")
    assert not is_success("3 failed, 10 passed")
    assert not is_success("")
    assert running_session("Command running in background with ID: b_1a2") == "b_1a2"
    assert running_session("3 passed") is None
    assert is_user_refusal("Rejected by user")
    assert not is_user_refusal("permission denied")


@given(st.text(min_size=150, max_size=400))
def test_a_line_is_never_cut_inside_a_character(line: str) -> None:
    kept = clip_error_line(line)
    assert len(kept) <= 160
    assert kept == line or line.startswith(kept[:-1])


@given(st.text(), st.booleans())
def test_any_text_can_be_judged(text: str, error: bool) -> None:
    assert is_failed(text, error) or not error
    assert error_line(text) in text


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sessions)
def test_the_laws_hold(session: tuple[str, dict[str, Any]]) -> None:
    hold_the_laws(resolved_errors, *session, FIELD[session[0]])
