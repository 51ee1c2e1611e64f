"""Loops are found in every wire format; what only resembles one is not."""

from __future__ import annotations

import pytest

from respool.loops import LoopLimits, find_loops
from respool.loops.observations import observe_call, pending_call
from respool.loops.patterns import _MAX_OPEN, MAX_LAP_CALLS, MAX_MEMBERS, LoopTracker
from respool.markers import ADVICE_START
from respool.tools import Tool, Tools
from tests.loops.support import (
    FAILED,
    LOOM,
    MISSING,
    PASSED,
    Step,
    call,
    edit,
    history_of,
    loops_in,
    read,
    run,
)
from tests.support.formats import FORMATS

TAILS: list[Step] = [run(f"pytest -q 2>&1 | tail -{n}", PASSED) for n in (5, 10, 20, 30, 40)]
FRAME = "Chunk ID: {0}\nWall time: {0}.5 seconds\nProcess exited with code 0\nOutput:\nno loom here"
UPDATED = "The file loom.py has been updated."
SCREEN = "| the same screen of the loom, forty threads wide |\n" * 5

# What happens; of what kind the circle is; after how many of its calls it is told.
LOOPS: dict[str, tuple[list[Step], str, int]] = {
    "the same read": ([read()] * 3, "repeat", 3),
    "the same read, others in between": (
        [read(), read("weft.py"), read(), read("warp.py"), read()],
        "repeat",
        3,
    ),
    "the same read of a file that speaks of waiting": (
        [read(result="queue = pending  # still running\n")] * 3,
        "repeat",
        3,
    ),
    "the same command, described otherwise each time": (
        [run("git status", "nothing to commit", description=said) for said in ("a", "b", "c")],
        "repeat",
        3,
    ),
    "results that differ in who ran them only, as Gemini CLI says it": (
        [run("git status", f"Output: no loom\nProcess Group PGID: {n}") for n in (4242, 4301, 7)],
        "repeat",
        3,
    ),
    "the same arguments in another order": (
        [read(offset=1, limit=9), call("Read", LOOM, limit=9, file_path="loom.py", offset=1)] * 2,
        "repeat",
        3,
    ),
    "results that differ in times only": (
        [run("make check", f"12:00:0{n} built in 0.{n}s, and all is well") for n in range(3)],
        "repeat",
        3,
    ),
    "results in a frame that differs": (
        [call("exec_command", FRAME.format(n), cmd="which loom") for n in range(3)],
        "repeat",
        3,
    ),
    "the same edit that does not fit": ([edit("weft", result=MISSING)] * 2, "repeat", 2),
    "the same edit that does not fit, a look in between": (
        [edit("weft", result=MISSING), read(), edit("weft", result=MISSING)],
        "repeat",
        2,
    ),
    "a tool that nobody knows, failing": (
        [call("weave", "Error: no such thread", thread=3)] * 3,
        "repeat",
        3,
    ),
    "a tool that nobody knows, showing the same": (
        [call("press", SCREEN, key="down")] * 3,
        "repeat",
        3,
    ),
    "one word changed, nothing new": (TAILS, "variation", 5),
    "one word changed, the same failure": (
        [read(result="Error: the file is shorter", offset=n) for n in (90, 120, 150)],
        "error",
        3,
    ),
    "two calls in turn": (
        [read(), run("make", FAILED)] * 3,
        "cycle",
        6,
    ),
    "three calls in turn": (
        [read(), run("make", FAILED), read("weft.py")] * 3,
        "cycle",
        9,
    ),
    "edits that take one another back": (
        [edit("a", "b"), run("make", FAILED), edit("b", "a"), run("make", FAILED)] * 3,
        "cycle",
        12,
    ),
    "edits that take one another back, and nothing else": (
        [edit("a", "b", result=UPDATED), edit("b", "a", result=UPDATED)] * 3,
        "cycle",
        6,
    ),
    "a file written again as it is": (
        [call("Write", UPDATED, file_path="loom.py", content=LOOM)] * 3,
        "repeat",
        3,
    ),
    "a command that writes the same again": (
        [run("sed -i s/weft/warp/ loom.py", "")] * 3,
        "repeat",
        3,
    ),
    "edits that never fit": (
        [edit("weft", result=MISSING), read(), edit("warp 2", result=MISSING), read("a.py"),
         edit("three threads", result=MISSING)],
        "error",
        3,
    ),
    "the same failure after every edit": (
        [step for n in range(5) for step in (run("make", FAILED), edit(f"thread {n}"))],
        "error",
        5,
    ),
    "a failure that comes back after a success": (
        [*(step for n in range(4) for step in (run("make", FAILED), edit(f"thread {n}"))),
         run("make", PASSED), edit("weft"), run("make", FAILED), edit("warp"),
         run("make", FAILED)],
        "error",
        6,
    ),
}  # fmt: skip


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("case", LOOPS)
def test_a_circle_is_found(case: str, format: str) -> None:
    steps, kind, after = LOOPS[case]
    found = loops_in(format, steps)
    assert [(one.kind, one.advised_after, one.level) for one in found] == [(kind, after, "advise")]


NO_LOOPS: dict[str, list[Step]] = {
    "two calls alike": [read()] * 2,
    "polling that shows something new": [run("tail -1 build.log", f"{n} of 40") for n in range(9)],
    "waiting for what goes on": [run("gh pr checks", "unit tests: pending")] * 9,
    "waiting with a sleep": [run("sleep 20 && cat out.log", "nothing here yet, it seems")] * 9,
    "looking at what runs": [
        call("write_stdin", "Process running with session ID 7\nOutput:\n", session_id=7, chars="")
    ]
    * 9,
    "a file whose times change": [
        read("build.txt", f"started at 12:00:0{n}, in 0.{n} seconds") for n in range(5)
    ],
    "what ran has ended": [
        run("jobs", "running in the background with ID: 7"),
        run("jobs", "running in the background with ID: 7"),
        run("jobs", "nothing runs"),
    ],
    "paging on in a file": [
        read(offset=n, limit=9, result=f"{n}\t}}\n{n + 1}\t}}") for n in range(1, 90, 9)
    ],
    "paging through lines that are the same": [read(offset=n, limit=9) for n in range(1, 90, 9)],
    "a test run again after an edit": [
        step for n in range(4) for step in (run("pytest -q", PASSED), edit(f"thread {n}"))
    ],
    "a file read again after it was edited": [
        step for n in range(4) for step in (read(), edit(f"thread {n}"))
    ],
    "read again after a command that may write": [
        step for n in range(4) for step in (read(), run(f"python weave.py {n}", "woven"))
    ],
    "another result each time": [
        run("make", f"error: thread {'x' * n} is loose") for n in range(9)
    ],
    "fewer errors after each edit": [
        step
        for n in (5, 4, 3, 2, 1, 0)
        for step in (run("make lint", "E501 line too long\n" * n + "Exit code 1"), edit(f"t{n}"))
    ],
    "asked for again by the user": [
        step for said in ("And now?", "Now?", "Again.") for step in (run("make", PASSED), said)
    ],
    "searches for other words that find nothing": [
        call("Grep", "No matches found", pattern=word, path="src") for word in LOOM.split()
    ],
    "the same search of other folders": [
        call("Grep", "No matches found", pattern="loom", path=f"src/{n}") for n in range(9)
    ],
    "a filter that lets nothing by": [
        run(f"cat loom.py | grep {word}", "Exit code 1") for word in ("a1", "b1", "c1", "d1", "e1")
    ],
    "tests of other packages": [
        run(f"go test ./{name}", "ok, all threads are even") for name in "abcdefgh"
    ],
    "a key pressed again": [call("press", "ok", key="down")] * 9,
    "called several times at once": [[read(), read(), read(), read()]],
    "long ago": [
        step for _ in range(4) for step in (read(), *(read(f"{n}.py") for n in range(40)))
    ],
    "stopped by the user": [
        run("make install", "The user doesn't want to proceed with this tool use.")
    ]
    * 5,
    "edits that fit": [edit(f"thread {n}") for n in range(9)],
    "now and then an edit that does not fit": [
        step
        for n in range(6)
        for step in (edit(f"weft {n}", result=MISSING), edit(f"a{n}"), edit(f"b{n}"))
    ],
    "another error each time": [
        edit(f"weft {n}", path=f"{n}.py", result=MISSING) for n in range(9)
    ],
}  # fmt: skip


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("case", NO_LOOPS)
def test_what_is_no_circle(case: str, format: str) -> None:
    assert loops_in(format, NO_LOOPS[case]) == []


@pytest.mark.parametrize("case", NO_LOOPS)
def test_the_limits_keep_some_of_these_silent_and_the_rules_the_others(case: str) -> None:
    loosest = LoopLimits(2, 3, 4, leeway=0, patience=1)
    found = find_loops(*history_of("anthropic", NO_LOOPS[case]), loosest)
    expected = {
        "two calls alike", "waiting for what goes on", "waiting with a sleep",
        "looking at what runs", "what ran has ended",
    }  # fmt: skip
    assert bool(found) == (case in expected)


def test_a_wait_that_takes_too_long_is_told_at_last() -> None:
    waits = [run("gh pr checks", "unit tests: pending")] * 12
    (found,) = loops_in("openai-chat", waits)
    assert (found.advised_after, found.kind) == (12, "repeat")
    assert "Wait longer between two looks" in found.message


@pytest.mark.parametrize("format", FORMATS)
def test_it_says_so_again_when_it_gets_worse_and_not_at_every_call(format: str) -> None:
    (found,) = loops_in(format, [read()] * 21)
    assert [at + 1 for at in found.advised] == [3, 5, 8, 11, 14, 17, 20]
    assert (found.level, found.count, len(found.calls), len(found.repeated)) == ("stop", 20, 21, 20)


def test_a_cycle_is_told_once_and_its_calls_are_not_told_beside_it() -> None:
    (found,) = loops_in("anthropic", [read(), run("make", FAILED)] * 9)
    assert found.kind == "cycle"
    assert [at + 1 for at in found.advised] == [6, 10, 16]
    assert len(found.repeated) == 16


def test_one_matter_is_not_told_twice_by_different_names() -> None:
    """The same failing call is a repeat and an error: it is told as a repeat."""
    found = loops_in("anthropic", [run("make", FAILED)] * 9)
    assert [(one.kind, len(one.advised)) for one in found] == [("repeat", 3)]


MESSAGES: dict[str, tuple[list[Step], str]] = {
    "repeat": (
        [read()] * 3,
        (
            "Read (loom.py) was called 3 times with the same result, and nothing was changed in "
            "between. Use what it returned, or change something before calling it again."
        ),
    ),
    "refused edit": (
        [edit("weft", result=MISSING)] * 2,
        (
            "Edit (loom.py) was called twice with the same result, and nothing was changed in "
            "between. The error is: Error: String to replace not found in file. Look at what the "
            "error names before trying again, or take another way."
        ),
    ),
    "variation": (
        TAILS,
        (
            "Bash (pytest) was called 5 times with one word changed, and brought nothing new. The "
            "change makes no difference: look for the cause elsewhere."
        ),
    ),
    "cycle": (
        [read(), run("make", FAILED)] * 3,
        (
            "The same 2 calls in the same order had the same results 3 times: Read (loom.py), Bash "
            "(make). Leave this order: decide by what is known by now, or try something else."
        ),
    ),
    "error": (
        LOOPS["the same failure after every edit"][0],
        (
            "Bash (make) failed 5 times with the same error: FAILED tests/test_loom.py::test_weft "
            "- AssertionError: 3 != 4. Look at what the error names, or take another way to the "
            "same end."
        ),
    ),
    "insisting": (
        [read()] * 5,
        (
            "Read (loom.py) was called 5 times with the same result, and nothing was changed in "
            "between. Use what it returned, or change something before calling it again. This was "
            "said before, and it goes on."
        ),
    ),
    "stopping": (
        [read()] * 8,
        (
            "Read (loom.py) was called 8 times with the same result, and nothing was changed in "
            "between. Use what it returned, or change something before calling it again. Stop this "
            "now; if there is no other way, say so and ask."
        ),
    ),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_what_is_said(case: str) -> None:
    steps, message = MESSAGES[case]
    assert [one.message for one in loops_in("anthropic", steps)] == [message]


def test_operation_and_target_are_those_that_the_tool_declares() -> None:
    office = Tool("office", kind="read", operation="action", target="path")
    steps = [call("office", LOOM, action="fields", path=" a.pdf ", at=3)] * 3
    (found,) = loops_in("gemini", steps, Tools([office]))
    assert (found.operation, found.target) == ("fields", "a.pdf")
    assert found.message.startswith("office fields (a.pdf) was called 3 times")
    by_target = Tool("office", kind="read", target="path", key="target")
    pages = [call("office", LOOM, path="a.pdf", page=n) for n in range(3)]
    assert [one.kind for one in loops_in("gemini", pages, Tools([by_target]))] == ["repeat"]
    assert loops_in("gemini", pages, Tools([office])) == []


def test_a_long_name_is_cut_and_stays_on_one_line() -> None:
    (found,) = loops_in("anthropic", [read("a\n" * 200, "nothing")] * 3)
    assert "\n" not in found.message
    assert len(found.message) < 400


def test_what_we_said_ourselves_does_not_make_a_result_new() -> None:
    said = f"\n{ADVICE_START}Read (loom.py) was called 3 times.]"
    steps: list[Step] = [read(), read(), read(result=LOOM + said), read(), read()]
    (found,) = loops_in("openai-chat", steps)
    assert [at + 1 for at in found.advised] == [3, 5]


def test_memory_is_bounded_whatever_is_called() -> None:
    watch, tools = LoopTracker(LoopLimits()), Tools()
    for number in range(3_000):
        arguments = f'{{"command": "look {number}"}}'
        asking = pending_call("Bash", arguments, tools.use_of("Bash", arguments))
        for at, why in enumerate(("gone", "torn")):
            seen = observe_call(asking, f"Error: {number} is {why}", True)
            assert seen is not None
            watch.note(seen, 2 * number + at, number)
    tables = [part._open for part in (watch._repeats, watch._variations, watch._errors)]
    assert [len(table) for table in tables] == [_MAX_OPEN, 0, _MAX_OPEN]
    assert len(watch._cycles._steps) == 2 * MAX_LAP_CALLS


def test_a_circle_that_never_ends_takes_no_more_memory() -> None:
    watch, use = LoopTracker(LoopLimits()), Tools().use_of("Read", '{"file_path": "a"}')
    seen = observe_call(pending_call("Read", '{"file_path": "a"}', use), LOOM, False)
    assert seen is not None
    rounds = [watch.note(seen, number, number) for number in range(2_000)]
    assert max(len(one.members) for one in rounds if one is not None) == MAX_MEMBERS
