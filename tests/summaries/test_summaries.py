"""Outcomes of runs, stubs of results, summaries of batches."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.summaries.batch import describe_batch, min_batch_tokens
from respool.summaries.call_summary import (
    CallSummary,
    build_stub,
    first_sentences,
    line_range_text,
    summarize_call,
)
from respool.summaries.outcome import (
    _ERROR_PATTERN,
    _FILE_POSITION,
    _SUMS_UP,
    CallOutcome,
    _has_file_position,
    _is_error_line,
    _is_total_line,
    clip_text,
    error_line_numbers,
    final_line,
    first_error,
    parse_outcome,
)
from respool.tools import Tools
from respool.tools.use import Span, ToolKind
from respool.transcript import Part, Ref
from tests.effort import examples

NO_REF = Ref(0, ())
TOOLS = Tools()


def words(text: str) -> int:
    return len(text.split())


def called(tool: str, arguments: str, result: str) -> CallSummary:
    """Summary of a call of a custom tool."""
    call = Part(NO_REF, "call", "model", arguments, tool)
    return summarize_call(
        call, TOOLS.use_of(tool, arguments), Part(NO_REF, "result", "tool", result)
    )


def ran(
    command: str, printed: str = "", *, error: bool = False, why: str = "", resolved: bool = False
) -> CallSummary:
    """The summary of a command that printed this."""
    arguments = json.dumps({"command": command})
    use = TOOLS.use_of("bash", arguments, None)
    call = Part(NO_REF, "call", "model", arguments, "bash")
    result = Part(NO_REF, "result", "tool", printed, error=error)
    return summarize_call(call, use, result, why=why, resolved=resolved)


def stub(one: CallSummary, *, verbatim: bool = True) -> str:
    return build_stub(one, errors_verbatim=verbatim).text


ENDINGS: dict[str, tuple[str, bool, ToolKind, tuple[bool, int | None, str]]] = {
    "plain output": ("all good\n", False, "run", (False, None, "all good\n")),
    "flagged by its sender": ("no such table", True, "other", (True, None, "no such table")),
    "a status in front": ("Exit code 1\nboom", False, "run", (True, 1, "boom")),
    "a frame around it": (
        "Wall time: 0.1 seconds\nProcess exited with code 0\nOutput:\nok\n", False, "run",
        (False, 0, "ok\n"),
    ),
    "a frame with a failure": (
        "Wall time: 0.1 seconds\nProcess exited with code 2\nOutput:\nbad\n", False, "read",
        (True, 2, "bad\n"),
    ),
    "JSON around it": (
        '{"output":"Success.\\n","metadata":{"exit_code":0,"duration_seconds":0.0}}', False,
        "write", (False, 0, "Success.\n"),
    ),
    "JSON of its own": ('{"name": "x"}', False, "read", (False, None, '{"name": "x"}')),
    "failed behind a pipe": ("--- FAIL: X\nFAIL", False, "run", (True, None, "--- FAIL: X\nFAIL")),
    "a make that stopped": (
        "cc a.c\nmake: *** [Makefile:3: all] Error 1", False, "run",
        (True, None, "cc a.c\nmake: *** [Makefile:3: all] Error 1"),
    ),
    "a crate that cannot be built": (
        "error[E0308]: x\ncould not compile `loom`", False, "run",
        (True, None, "error[E0308]: x\ncould not compile `loom`"),
    ),
    "errors that tests wanted": (
        "error: the third item failed\n 12 pass\n 0 fail\nRan 12 tests", False, "run",
        (False, None, "error: the third item failed\n 12 pass\n 0 fail\nRan 12 tests"),
    ),
    "an error after tests that went well": (
        "12 passed\nerror: script lint failed", False, "run",
        (True, None, "12 passed\nerror: script lint failed"),
    ),
    "a suite that failed before one that did not": (
        "1 failed\n12 pass\n0 fail", False, "run", (True, None, "1 failed\n12 pass\n0 fail"),
    ),
    "types that do not fit": (
        "src/a.ts(3,1): error TS2339: no 'x'", False, "run",
        (True, None, "src/a.ts(3,1): error TS2339: no 'x'"),
    ),
    "npm as it speaks now": (
        'npm error Missing script: "check"', False, "run",
        (True, None, 'npm error Missing script: "check"'),
    ),
    "a compiler's word": (
        "a.c:3:1: error: expected ';'", False, "run", (True, None, "a.c:3:1: error: expected ';'"),
    ),
    "words about an error": ("no error TS-1", False, "run", (False, None, "no error TS-1")),
    "a failure in red": (
        "\x1b[2m Tests \x1b[22m \x1b[31m2 failed\x1b[39m", False, "run",
        (True, None, " Tests  2 failed"),
    ),
    "errors of Go's compiler": (
        "# loom\nloom/a.go:8:1: undefined: warp\n", False, "run",
        (True, None, "# loom\nloom/a.go:8:1: undefined: warp\n"),
    ),
    "no failures": ("12 passed, 0 failed", False, "run", (False, None, "12 passed, 0 failed")),
    "a search without hits": ("Exit code 1\n", False, "search", (False, 1, "")),
    "a file that speaks of errors": ("error: x", False, "read", (False, None, "error: x")),
    "a refused edit": ("Error: no match", False, "write", (True, None, "Error: no match")),
    "nothing": ("", False, "run", (False, None, "")),
    # as Copilot says it
    "a status below": ("built\n<exited with exit code 0>", False, "run", (False, 0, "built")),
    "a failure below": ("built\n<exited with exit code 3>", False, "run", (True, 3, "built")),
    "a status and nothing else": ("<exited with exit code 1>", False, "run", (True, 1, "")),
    # as OpenHands does
    "a status in brackets": (
        "built\n[The command completed with exit code 2.]", False, "run", (True, 2, "built"),
    ),
    "a status among notes": (
        ("built\n[The command completed with exit code 0.]\n[Current working directory: /w]\n"
        "[Python interpreter: /usr/bin/python]\n[Command finished with exit code 0]"),
        False, "run", (False, 0, "built"),
    ),
    "a folder, and no status": (
        "built\n[Current working directory: /w]", False, "run",
        (False, None, "built\n[Current working directory: /w]"),
    ),
    "a read that failed": (
        "cat: a: No such file or directory\n[The command completed with exit code 1.]", False,
        "read", (True, 1, "cat: a: No such file or directory"),
    ),
    # pi
    "a failed run of pi": (
        "built\n\nCommand exited with code 2", False, "run", (True, 2, "built\n"),
    ),
    # Gemini CLI and qwen-code
    "notes on all sides": (
        ("Command: make\nDirectory: (root)\nOutput: built\nall\nError: (none)\nExit Code: 0\n"
        "Signal: (none)\nBackground PIDs: (none)\nProcess Group PGID: 4242"), False, "run",
        (False, 0, "built\nall"),
    ),
    "a failure among notes": (
        ("Command: cat <<E\nDirectory: x\nE\nDirectory: (root)\nOutput: (empty)\nError: (none)\n"
        "Exit Code: 7\nSignal: (none)\nBackground PIDs: (none)\nProcess Group PGID: 4242"), False,
        "run", (True, 7, "(empty)"),
    ),
    "a read that failed, among notes": (
        "Output: cat: a: No such file\nExit Code: 1\nProcess Group PGID: 4242", False, "read",
        (True, 1, "cat: a: No such file"),
    ),
    "output, and who ran it": (
        "Output: built\nProcess Group PGID: 4242", False, "run", (False, None, "built"),
    ),
    "a failure that is told apart": (
        "Output: bad\nExit Code: 2\nProcess Group PGID: 4242", False, "run", (True, 2, "bad"),
    ),
    "a page that begins so": ("Output: is what it is.", False, "read",
                              (False, None, "Output: is what it is.")),
    # mini-swe-agent
    "tags around it": (
        "<returncode>0</returncode>\n<output>\nbuilt\n</output>", False, "run",
        (False, 0, "built"),
    ),
    "tags around a failure": (
        "<returncode>2</returncode>\n<output>\nbad\n</output>", False, "run", (True, 2, "bad"),
    ),
    "tags around nothing": (
        "<returncode>0</returncode>\n<output>\n</output>", False, "run", (False, 0, ""),
    ),
    "a file with such a tag": ("<a>\n</output>", False, "read", (False, None, "<a>\n</output>")),
}  # fmt: skip


@pytest.mark.parametrize(("text", "flagged", "kind", "expected"), ENDINGS.values(), ids=ENDINGS)
def test_how_a_call_ended(
    text: str, flagged: bool, kind: ToolKind, expected: tuple[bool, int | None, str]
) -> None:
    ending = parse_outcome(text, flagged, kind)
    assert (ending.failed, ending.status, ending.body) == expected


def test_a_run_that_goes_on_is_neither_failed_nor_done() -> None:
    text = "Wall time: 5 seconds\nProcess running with session ID 4711\nOutput:\n"
    assert parse_outcome(text, False, "run") == CallOutcome("", running="4711")


LOG = "\n".join(f"compiling unit {number}" for number in range(60))
GO_TEST = f"{LOG}\n--- FAIL: TestParse (0.00s)\n    parse_test.go:23: Expected 42 but got 7\nFAIL\n"

PYTEST = """\
tests/test_loom.py F     [100%]
____________________ test_warp ____________________
    def test_warp():
E       AssertionError: assert 0 == 15

FAILED tests/test_loom.py::test_warp - AssertionError: assert 0 == 15
1 failed, 41 passed in 3.1s
"""

STUBS: dict[str, tuple[CallSummary, str]] = {
    "what was shown in part, and is whole elsewhere": (
        called(
            "glob", '{"pattern": "**/*.ts"}',
            "Output too large to read at once (9 KB). Saved to: /tmp/all.txt\nConsider using grep."
            "\n\nPreview (first 500 chars):\n/w/a.ts\n/w/b.ts\n/w/c",
        ),
        "searched for **/*.ts: 3 lines shown; all of it is in /tmp/all.txt",
    ),
    "a file that was shown in part": (
        ran(
            "cat src/app.py",
            "<persisted-output>\nOutput too large (42KB). Full output saved to: /tmp/all.txt\n\n"
            f"Preview (first 2KB):\n{LOG}",
        ),
        "read src/app.py, 60 lines shown; all of it is in /tmp/all.txt",
    ),
    "a run that was shown in part": (
        ran(
            "npm test",
            "...output truncated...\n\nFull output saved to: /tmp/all.txt\n\nx\n3 passed",
        ),
        "ran npm test; 3 passed; all of it is in /tmp/all.txt",
    ),
    "a failure that was shown in part": (
        ran(
            "make x",
            "x\n1 failed\n\n[Showing lines 3-9 of 90. Full output: /tmp/a]\n\n"
            "Command exited with code 1", resolved=True,
        ),
        "ran make x: failed, exit 1; the same succeeded later; all of it is in /tmp/a: 1 failed",
    ),
    "a failure that npm announces": (
        ran("npm test", "> loom@1 test\n> vitest run\n\n  boom\n1 failed", resolved=True),
        "ran npm test: failed; the same succeeded later: 1 failed",
    ),
    "a file": (ran("cat src/app.py", LOG), "read src/app.py, 60 lines"),
    "some lines of it": (
        ran("sed -n '30,89p' src/app.py", LOG), "read src/app.py, lines 30-89",
    ),
    "fewer lines than asked for": (ran("head -500 src/app.py", LOG), "read src/app.py, 60 lines"),
    "what a command shows": (
        ran("git diff --stat", " a.py | 2 +-\n 1 file changed, 1 insertion(+)"),
        "looked at git diff --stat, 2 lines; 1 file changed, 1 insertion(+)",
    ),
    "a change of which it is not told how it ended": (
        ran("sed -i s/a/b/ src/app.py", LOG), "changed src/app.py",
    ),
    "a change": (
        ran("sed -i s/a/b/ src/app.py", f"{LOG}\n<exited with exit code 0>"),
        "changed src/app.py, ok",
    ),
    "a change that is not done": (
        ran(
            "sed -i s/a/b/ src/app.py",
            "Wall time: 1 seconds\nProcess running with session ID 77\nOutput:\n",
        ),
        "changed src/app.py: still running, session 77",
    ),
    "a change by a tool of its own": (
        called(
            "Edit", '{"file_path": "/w/a.py", "old_string": "a", "new_string": "b"}',
            "The file /w/a.py has been updated.",
        ),
        "changed /w/a.py, ok",
    ),
    "a command that changes nobody knows what": (
        ran("git stash pop", f"{LOG}\nDropped refs/stash"),
        "ran git stash pop; Dropped refs/stash",
    ),
    "a push that failed after what went well": (
        ran(
            "git stash && git push",
            f"{LOG}\nfatal: no remote\n\nand it exists.", resolved=True,
        ),
        "ran git stash && git push: failed; the same succeeded later: fatal: no remote",
    ),
    "a run": (
        ran("make", f"{LOG}\nBUILD SUCCESSFUL"), "ran make; BUILD SUCCESSFUL",
    ),
    "a build whose errors a pipe lets through": (
        ran("go build | head", "# loom\na.go:8:1: undefined: warp\n", resolved=True),
        "ran go build | head: failed; the same succeeded later: a.go:8:1: undefined: warp",
    ),
    "a run whose last lines say nothing": (
        ran("make docs", f"{LOG}\n```\n\n> tsc --noEmit\n</output>\n}}"),
        "ran make docs; compiling unit 59",
    ),
    "tests": (
        ran("pytest -q", f"{LOG}\n41 passed in 3.1s\n"), "ran pytest -q; 41 passed in 3.1s",
    ),
    "a search": (
        ran("rg -n Thing src", "src/a.py:1:Thing\nsrc/a.py:9:Thing\nsrc/b.py:3:Thing\n"),
        "ran rg -n Thing src: 3 hits in 2 files",
    ),
    "a search by a tool of its own": (
        called(
            "Grep", '{"pattern": "Thing", "path": "src", "output_mode": "content"}',
            "src/a.py:1:Thing\nsrc/b.py:3:Thing\n",
        ),
        "searched for Thing: 2 hits in 2 files",
    ),
    "a change that was refused where no flag tells": (
        called(
            "Edit", '{"file_path": "/w/a.py", "old_string": "a", "new_string": "b"}',
            "File has not been read yet. Read it first.",
        ),
        "changed /w/a.py: failed\nFile has not been read yet. Read it first.",
    ),
    "a change that nothing tells the end of": (
        called("Edit", '{"file_path": "/w/a.py", "old_string": "a", "new_string": "b"}', "1: x"),
        "changed /w/a.py",
    ),
    "a folder": (
        called("LS", '{"path": "/w/src"}', "a.py\nb.py\n"),
        "listed /w/src: 2 entries",
    ),
    "a search that shows what is near its hits": (
        ran(
            "rg -n -C1 Thing src",
            "src/a.py-8-import os\nsrc/a.py:9:Thing\nsrc/a.py-10-\n--\nsrc/b.py:3:Thing\n",
        ),
        "ran rg -n -C1 Thing src: 2 hits in 2 files",
    ),
    "a search with its files above its hits": (
        ran("rg --heading -n Thing src", "src/a.py\n1:Thing\n9:Thing\n\nsrc/b.py\n3:Thing\n"),
        "ran rg --heading -n Thing src: 3 hits in 2 files",
    ),
    "a search without line numbers": (
        ran("grep -r Thing src", "src/a.py:Thing\nsrc/a.py:a Thing\nsrc/b.py:Thing\n"),
        "ran grep -r Thing src: 3 hits in 2 files",
    ),
    "a search in one file": (
        ran("grep -n Thing a.py", "1:Thing\n9:Thing\n"), "ran grep -n Thing a.py: 2 hits",
    ),
    "a search of which nobody knows what are hits": (
        called("WebSearch", '{"query": "looms"}', "Looms, a story\nhttps://looms.org\nBy me\n"),
        "searched for looms: 3 lines",
    ),
    "a search for files, which counts them": (
        called("Grep", '{"pattern": "Thing"}', "Found 2 files\n/w/src/a.py\n/w/src/b.py"),
        "searched for Thing: 2 entries",
    ),
    "a list of files that goes on": (
        called(
            "Glob", '{"pattern": "**/*.py"}',
            "/w/a.py\n/w/b.py\n(Results are truncated. Consider using a more specific pattern.)",
        ),
        "searched for **/*.py: 2 entries and more",
    ),
    "a search as opencode shows it": (
        called(
            "grep", '{"pattern": "Thing"}',
            "Found 3 matches\n/w/src/a.ts:\n  Line 1: Thing\n\n  Line 9: Thing\n\n\n/w/src/b.ts:\n"
            "  Line 3: Thing\n\n\n(Results truncated: showing 3 of 9 matches (6 hidden).)",
        ),
        "searched for Thing: 3 hits in 2 files and more",
    ),
    "a search of which Codex shows the ends": (
        ran(
            "rg -n Thing src",
            "Wall time: 0.1 seconds\nProcess exited with code 0\nOutput:\n"
            "Total output lines: 4395\n\nsrc/a.py:1:Thing\nsrc/b…4 tokens truncated…c.py:3:Thing\n",
        ),
        "ran rg -n Thing src: 2 of 4,395 lines",
    ),
    "a command of which Codex shows the ends": (
        ran(
            "git diff --stat",
            "Wall time: 0.1 seconds\nProcess exited with code 0\nOutput:\n"
            "Total output lines: 90\n\n a.py | 2 +-\n 9 files changed\n",
        ),
        "looked at git diff --stat, 2 of 90 lines; 9 files changed",
    ),
    "a file of which Codex shows the ends": (
        ran(
            "sed -n '1,90p' src/app.py",
            "Wall time: 0.1 seconds\nProcess exited with code 0\nOutput:\n"
            "Total output lines: 90\n\nimport a\n…9 tokens truncated…\nend()\n",
        ),
        "read src/app.py, lines 1-90 in part",
    ),
    "a file as opencode shows it": (
        called(
            "read", '{"filePath": "/w/a.c"}',
            "<path>/w/a.c</path>\n<type>file</type>\n<content>\n1: int a;\n2: int b;\n\n"
            "(End of file - total 2 lines)\n</content>",
        ),
        "read /w/a.c, 2 lines",
    ),
    "the rest of a file as opencode shows it": (
        called(
            "read", '{"filePath": "/w/a.c", "offset": 101, "limit": 50}',
            "<path>/w/a.c</path>\n<type>file</type>\n<content>\n101: int a;\n102: int b;\n\n"
            "(End of file - total 102 lines)\n</content>",
        ),
        "read /w/a.c, lines 101-102",
    ),
    "a file as pi shows it": (
        called(
            "read", '{"path": "/w/a.c"}',
            "int a;\nint b;\n\n[481 more lines in file. Use offset=3 to continue]",
        ),
        "read /w/a.c, 2 lines",
    ),
    "a command that ends in a quote": (
        ran("rg -n Thing -g '*.py'", "src/a.py:1:Thing\n"),
        "ran rg -n Thing -g '*.py': 1 hits",
    ),
    "a command in a shell's quotes": (
        ran("bash -lc 'make \"all\"'", f"{LOG}\nmade"), 'ran make "all"; made',
    ),
    "a folder in columns": (
        ran("ls", "BUILD.md  Makefile  src\nLICENSE   lib\n"), "listed .: 2 lines",
    ),
    "a command that is described before it": (
        called(
            "run_shell_command",
            '{"description": "List all files in media/demo.", "command": "ls -1 media/demo/"}',
            "a.gif\nb.gif\n",
        ),
        "ran ls -1 media/demo/: 2 entries",
    ),
    "some lines below a head": (
        called(
            "str_replace_editor",
            '{"command": "view", "path": "/w/a.c", "view_range": [100, 150]}',
            "Here's the result of running `cat -n` on /w/a.c:\n   100\tint a;\n   101\tint b;\n",
        ),
        "read /w/a.c, lines 100-101",
    ),
    "a file with a note below": (
        called(
            "Read", '{"file_path": "/w/a.c"}',
            "1→int a;\n2→int b;\n\n<system-reminder>\nMind the loom.\n</system-reminder>\n",
        ),
        "read /w/a.c, 3 lines",
    ),
    "a folder with its size": (
        ran("ls -l", "total 8\n-rw-r--r-- 1 me me 9 Jan 1 a\n-rw-r--r-- 1 me me 9 Jan 1 b\n"),
        "ran ls -l: 2 entries",
    ),
    "several folders": (
        ran("ls src lib", "lib:\na.py\n\nsrc:\nb.py\nc.py\n"), "ran ls src lib: 3 entries",
    ),
    "a run in an agent's own frame": (
        ran("make", f"{LOG}\nlinked the loom\n<exited with exit code 0>"),
        "ran make: exit 0; linked the loom",
    ),
    "one of Gemini CLI's": (
        ran("make", f"Output: {LOG}\nlinked the loom\nProcess Group PGID: 4242"),
        "ran make; linked the loom",
    ),
    "a search as Gemini CLI shows it": (
        ran(
            "rg Thing",
            'Found 3 matches for pattern "Thing" in path ".":\n---\nFile: src/a.ts\nL1: Thing\n'
            "L8- near it\nL9: Thing\n---\nFile: src/b.ts\nL3: Thing\n---",
        ),
        "ran rg Thing: 3 hits in 2 files",
    ),
    "tests in colours": (
        ran("npx vitest", f"{LOG}\n\x1b[2m Tests \x1b[22m \x1b[32m8 passed\x1b[39m\nTime 9ms"),
        "ran npx vitest; Tests 8 passed",
    ),
    "a failure in its second line": (
        ran("make", f"\nerror: no loom\n{LOG}\n1 error", error=True),
        """\
ran make: failed

error: no loom
[… 60 lines]
1 error""",
    ),
    "tests between rules": (
        ran("pytest", f"{LOG}\n{'=' * 30} 41 passed in 3.1s {'=' * 30}\n"),
        "ran pytest; 41 passed in 3.1s",
    ),
    "a report": (
        called(
            "Task", '{"prompt": "look", "description": "Look"}',
            "## Findings\n\nThe loom is **not** bound.\n\n- x",
        ),
        "ran Look; Findings: The loom is **not** bound.",
    ),
    "a failure among names that tell of none": (
        ran("pytest", f"tests/test_errors.py ....s. [ 36%]\n{PYTEST}"),
        """\
ran pytest: failed
[… 4 lines]
E       AssertionError: assert 0 == 15

FAILED tests/test_loom.py::test_warp - AssertionError: assert 0 == 15
1 failed, 41 passed in 3.1s""",
    ),
    "such a failure that was mended since": (
        ran("pytest", f"tests/test_errors.py ....s. [ 36%]\n{PYTEST}", resolved=True),
        "ran pytest: failed; the same succeeded later: E AssertionError: assert 0 == 15",
    ),
    "a failure": (
        ran("go test ./...", GO_TEST),
        """\
ran go test ./...: failed
[… 60 lines]
--- FAIL: TestParse (0.00s)
    parse_test.go:23: Expected 42 but got 7
FAIL""",
    ),
    "a failure that was mended since": (
        ran("go test ./...", GO_TEST, resolved=True),
        "ran go test ./...: failed; the same succeeded later: --- FAIL: TestParse (0.00s)",
    ),
    "a failure with a line that is long": (
        ran("push", f"Pushing\nerror: failed: {'/ up ' * 900}\nhint: x\n" * 2, error=True),
        f"""\
ran push: failed
Pushing
error: failed: {'/ up ' * 60}/ up[… 4,195 chars]
[… 2 lines]
error: failed: {'/ up ' * 60}/ up[… 4,195 chars]
[… 1 lines]""",
    ),
    "nothing printed": (ran("make", ""), "ran make"),
}  # fmt: skip


@pytest.mark.parametrize(("one", "expected"), STUBS.values(), ids=STUBS)
def test_one_call_in_a_line(one: CallSummary, expected: str) -> None:
    assert stub(one) == expected


def test_errors_need_not_stay_verbatim() -> None:
    told_short = "ran go test ./...: failed: --- FAIL: TestParse (0.00s)"
    assert stub(ran("go test ./...", GO_TEST), verbatim=False) == told_short


def test_lines_left_out_between_the_lines_of_an_error_are_counted() -> None:
    text = "error: first\n" + "noise\n" * 5 + "error: second\nExit code 1"
    kept = build_stub(ran("make", "Exit code 1\n" + text), errors_verbatim=True)
    told = "ran make: failed, exit 1\nerror: first\n[… 5 lines]\nerror: second\n[… 1 lines]"
    assert kept.text == told
    assert kept.kept_lines == 2


def test_a_single_line_between_two_is_said_and_not_counted() -> None:
    text = "error: first\nat the loom\nerror: second\n"
    assert "at the loom" in stub(ran("make", "Exit code 1\n" + text))


def test_a_path_is_short_where_the_call_says_it_whole() -> None:
    assert (
        stub(ran("cat /home/me/repo/src/respool/app.py", "x\ny"))
        == "read src/respool/app.py, 2 lines"
    )


SPANS = [
    (Span("a"), 40, ""),
    (Span("a", (1, 2_000)), 40, ""),
    (Span("a", (1, 40)), 40, "1-40"),
    (Span("a", (30, 79)), 50, "30-79"),
    (Span("a", (30, 79)), 10, "30-39"),
    (Span("a", (30, 1_000_000_000)), 10, "30-39"),
    (Span("a", part=True), 10, ""),
]


@pytest.mark.parametrize(("span", "shown", "expected"), SPANS)
def test_which_lines_were_read(span: Span, shown: int, expected: str) -> None:
    assert line_range_text(span, shown) == expected


SENTENCES = [
    ("The lock is taken twice. Let me fix it. And more.", 40, "The lock is taken twice."),
    ("Fix it. It breaks.", 40, "Fix it. It breaks."),
    ("one endless sentence without any end to it", 22, "one endless sentence…"),
    ("  First line\n\nsecond paragraph", 60, "First line second paragraph"),
    ("", 10, ""),
    (
        "Right. I put the lock around the whole loop of writes.",
        40,
        "Right. I put the lock around the whole…",
    ),
    ("The lock is taken. I put it around all of the loop, and more.", 40, "The lock is taken."),
]


@pytest.mark.parametrize(("text", "room", "expected"), SENTENCES)
def test_the_first_sentences(text: str, room: int, expected: str) -> None:
    assert first_sentences(text, room) == expected


@pytest.mark.parametrize("room", [500, 60])
def test_long_commands_that_begin_alike_are_not_one(room: int) -> None:
    """Else the one that went well would tell that the other did."""
    start = f"pytest -q {' '.join(f'tests/folder_{number}' for number in range(20))}"
    failing = ran(f"{start}/test_loom.py", "1 failed, 3 passed in 0.1s")
    passing = ran(f"{start}/test_warp.py", "4 passed in 0.1s")
    text = describe_batch([failing, passing], room, words)
    (line_of_runs,) = [line for line in text.split("\n") if line.startswith("- ran: ")]
    assert "times" not in line_of_runs
    assert line_of_runs.index("(failed)") < line_of_runs.index("(4 passed in 0.1s)")
    again = describe_batch([failing, failing], room, words)
    assert "2 times, 2 failed; last failed" in again


def test_small_parts() -> None:
    assert final_line("noise\n3 passed\nbye\n", 40) == "3 passed"
    assert (
        final_line(" 12 pass\n 0 fail\n 30 expect() calls\nRan 12 tests in 2 files", 40) == "0 fail"
    )
    assert final_line(f"noise\nit {'grows ' * 900}", 20) == "it grows grows…"
    assert first_error("Found 2 errors\na.ts:4: bad name", 80) == "a.ts:4: bad name"
    assert error_line_numbers("one\ntwo", 100, 5) == [0, 1]
    assert clip_text("a word too many", 12) == "a word too…"


BATCH = [
    ran("cat src/app.py", "x\n" * 40, why="Let me look at the app."),
    ran("sed -n '1,20p' src/db.py", "x\n" * 20),
    ran("sed -n '21,60p' src/db.py", "x\n" * 40),
    ran("rg -n retry src", "src/a.py:1:retry"),
    ran("sed -i s/1/2/ src/app.py", "", why="The client never retries. So I raise the limit."),
    ran("sed -i s/3/4/ src/app.py", "", why="The client never retries. So I raise the limit."),
    ran("touch src/new.py", "", why="The helper moves out."),
    ran("pytest -q", "E assert 1 == 2\n1 failed", error=True, resolved=True),
    ran("pytest -q", "3 passed in 0.2s"),
    ran("mypy src", "src/app.py:4: error: Name 'x' is not defined\nFound 1 error", error=True),
]

EXPECTED = """\
Earlier in this session, 10 tool calls of the assistant, in short:
- changed:
  src/app.py (2 edits): “The client never retries. So I raise the limit.”
  src/new.py: “The helper moves out.”
- failed: mypy src
  src/app.py:4: error: Name 'x' is not defined
  Found 1 error
- ran: pytest -q (2 times, 1 failed; last 3 passed in 0.2s); mypy src (failed)
- read: src/app.py, src/db.py 1-60
- failed at first, then succeeded: pytest -q: E assert 1 == 2
- searched once"""


def test_a_batch_by_what_it_did() -> None:
    assert describe_batch(BATCH, 500, words) == EXPECTED


def test_what_a_command_that_failed_may_have_changed_is_told() -> None:
    calls = [
        ran("sed -i s/1/2/ a.py && make", "Exit code 2\nerror: no loom"),
        ran("sed -i s/1/2/ b.py && make", "error: no loom"),
        ran("sed -i s/1/2/ b.py && make", ""),
        called("Edit", '{"file_path": "/w/c.py", "old_string": "a"}', "Error: no match"),
    ]
    lines = describe_batch(calls, 500, words).split("\n")
    assert lines[1:4] == [
        "- changed:",
        "  a.py (by a command that failed), b.py (2 edits)",
        lines[3],
    ]
    assert lines[3].startswith("- failed")


def test_a_reason_is_told_once() -> None:
    why, other = "The client never retries.", "The limit is too low."
    calls = [
        ran("sed -i s/1/2/ a.py", "", why=why),
        ran("sed -i s/1/2/ a.py", "", why=other),
        ran("sed -i s/1/2/ b.py", "", why=why),
        ran("sed -i s/1/2/ c.py", "", why=""),
    ]
    assert describe_batch(calls, 500, words).split("\n")[2:] == [
        "  a.py (2 edits): “The client never retries.” “The limit is too low.”",
        "  b.py: for a reason given above",
        "  c.py",
    ]


def test_a_reason_that_is_not_shown_is_not_referred_to() -> None:
    whys = [f"Reason {number} why." for number in range(30)]
    calls = [ran(f"sed -i s/1/2/ f{n}.py", "", why=why) for n, why in enumerate(whys)]
    first_again = [ran("sed -i s/1/2/ f0.py", "", why="Then more."), *calls, *calls[:1]]
    text = describe_batch([*first_again, ran("sed -i s/1/2/ g.py", "", why=whys[0])], 10_000, words)
    assert "for a reason given above" not in text
    assert "  g.py: “Reason 0 why.”" in text.split("\n")


def test_long_paths_are_told_once() -> None:
    calls = [ran(f"cat /home/me/repo/src/{name}.py", "x\ny") for name in "abc"]
    head, line = describe_batch(calls, 500, words).split("\n")
    assert head.endswith("in short; … stands for /home/me/repo/src:")
    assert line == "- read: …/a.py, …/b.py, …/c.py"


def test_of_folders_with_as_many_files_the_first_one_named_is_told_once() -> None:
    names = [f"/home/me/repo{number}/a/x.py" for number in range(12)]
    calls = [ran(f"cat {name}", "x\ny") for name in names]
    head, line = describe_batch(calls, 500, words).split("\n")
    assert head.endswith("in short; … stands for /home/me/repo0/a:")
    assert line.startswith("- read: …/x.py, /home/me/repo1/a/x.py, ")


def test_a_run_that_was_waited_for_is_told_as_it_was_started() -> None:
    frame = "Wall time: 1 seconds\n{}\nOutput:\n"
    started = ran("make all", frame.format("Process running with session ID 77"))
    arguments = json.dumps({"session_id": 77, "chars": ""})
    use = TOOLS.use_of("write_stdin", arguments, None)
    ended = summarize_call(
        Part(NO_REF, "call", "model", arguments, "write_stdin"),
        use,
        Part(NO_REF, "result", "tool", frame.format("Process exited with code 0") + "done"),
    )
    assert ended.session == "77"
    assert "- ran: make all (ok)" in describe_batch([started, ended], 500, words).split("\n")


def test_how_runs_ended_is_told_where_it_is_known() -> None:
    made = ran("make", LOG)
    done = ran("make dist", f"{LOG}\n<exited with exit code 0>")
    broke = ran("make", "Exit code 2\nerror: no loom", resolved=True)
    (line_of_runs,) = [
        line
        for line in describe_batch(
            [broke, made, made, done, done, ran("make clean", LOG)], 500, words
        ).split("\n")
        if line.startswith("- ran: ")
    ]
    assert (
        line_of_runs == "- ran: make (3 times, 1 failed); make dist (2 times; last ok); make clean"
    )


FRAGMENTS = (
    "Error", "fail", "EXCEPTION", "Traceback", "fatal", "panic", "denied", "not found", "no such",
    "Cannot", "could not", "abort", "undefined", "unexpected", "expected", "rejected", "refused",
    "doesn't want", "the user said", "assert", "should", "shoulder", "got", "forgot", "× ", "E ",
    "e ", "> ", "\x1c", "\t", " ", "3 passed", "12 errors", "1 example", "0 skipped", "2 issues",
    "7 problems", "1 warning", "PASS", "FAIL", "DONE", "ok", "Tests:", "Test:", "test result:",
    "BUILD", "Finished", "files changed", "src/a.py:12", "fine", "é", "ſ", "K",
)  # fmt: skip


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=6), st.sampled_from(["", " "]))
def test_a_quick_look_for_words_finds_what_the_patterns_find(said: list[str], by: str) -> None:
    line = by.join(said)
    assert _is_error_line(line) == (_ERROR_PATTERN.search(line) is not None)
    assert _has_file_position(line) == (_FILE_POSITION.search(line) is not None)
    assert _is_total_line(line) == (_SUMS_UP.search(line) is not None)


@pytest.mark.parametrize("room", [150, 100, 60, 30, 12, 3])
def test_a_summary_is_never_longer_than_it_may_be(room: int) -> None:
    text = describe_batch(BATCH * 8, room, words)
    assert words(text) <= room


def test_what_does_not_fit_is_counted() -> None:
    calls: list[CallSummary] = [ran(f"cat src/file{number}.py", "x\ny") for number in range(60)]
    text = describe_batch(calls, 60, words)
    shown = text.count("src/file")
    assert f"{60 - shown} other things" in text


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.sampled_from(BATCH), min_size=1, max_size=30), st.integers(1, 400))
def test_any_batch_fits_and_counts_its_calls(calls: list[Any], room: int) -> None:
    text = describe_batch(calls, room, words)
    assert words(text) <= room
    if room > 100:
        assert text.startswith(f"Earlier in this session, {len(calls)} tool calls")


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.sampled_from(BATCH), min_size=1, max_size=30), st.integers(0, 200))
def test_what_was_changed_and_what_is_broken_is_never_left_out(calls: list[Any], more: int) -> None:
    text = describe_batch(calls, min_batch_tokens(calls, words) + more, words)
    for one in calls:
        assert all(span.path in text for span in one.writes)
        if one.outcome.failed and not one.resolved:
            assert "src/app.py:4: error: Name 'x' is not defined" in text


def test_the_same_failure_is_told_once() -> None:
    broken = [ran("mypy src", f"src/a.py:{n}: error: no", error=True) for n in (1, 2, 2, 2)]
    lines = describe_batch(broken, 500, words).split("\n")
    assert lines[1:5] == [
        "- failed: mypy src (3 times)",
        "  src/a.py:2: error: no",
        "- failed: mypy src",
        "  src/a.py:1: error: no",
    ]


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ("FAIL: x\nFAIL: y", "FAIL: x"),
        ("✗ adds numbers", "✗ adds numbers"),
        ("Killed", "Killed"),
        ("E: Unable to locate package x\nsee above", "E: Unable to locate package x"),
        ("sh: 1: foo: not found\n", "sh: 1: foo: not found"),
    ],
)
def test_a_summary_tells_of_the_failure_that_the_last_lines_report(ending: str, said: str) -> None:
    """Of an unknown runner, without an error flag: in the summary of a batch, and in a stub."""
    one = ran("./vt.sh", f"starting\nbuilding\n{ending}")
    assert said in describe_batch([one], 500, words)
    assert said in stub(one)
