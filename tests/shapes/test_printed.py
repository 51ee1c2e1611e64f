"""Shapes of listings, search hits, logs and test output."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.shapes.run_output import FAILURE_WORDS, failure_lines, lines_with
from respool.shapes.search_results import group_by_file
from tests.passes.test_tidy_results import GREP, READ, arrived
from tests.shapes.support import Case, holds

# ruff: noqa: E501 (texts as tools print them)


CASES = [
    Case(
        "listing",
        "ls -la",
        420,
        """\
total 96
drwxr-xr-x  14 ann  staff    448 Mar  2 17:38 .
drwxr-xr-x   9 ann  staff    288 Mar  2 11:02 ..
-rw-r--r--   1 ann  staff   1210 Mar  2 17:38 .gitignore
-rw-r--r--   1 ann  staff    640 Mar  2 17:38 Cargo.toml
-rw-r--r--   1 ann  staff  18992 Mar  2 17:38 Cargo.lock
-rw-r--r--   1 ann  staff   1075 Mar  2 17:38 LICENSE
-rw-r--r--   1 ann  staff   5120 Mar  2 17:38 README.md
drwxr-xr-x   6 ann  staff    192 Mar  2 17:38 benches
-rw-r--r--   1 ann  staff    310 Mar  2 17:38 build.rs
-rw-r--r--   1 ann  staff    310 Mar  2 17:38 deny.toml
drwxr-xr-x  22 ann  staff    704 Mar  2 17:38 src
-rw-r--r--   1 ann  staff    128 Mar  2 17:38 rustfmt.toml
-rw-r--r--   1 ann  staff    128 Mar  2 17:38 x.sh
""",
        """\
total 96
drwxr-xr-x  14 ann  staff    448 Mar  2 17:38 .
drwxr-xr-x   9 ann  staff    288 Mar  2 11:02 ..
-rw-r--r--   1 ann  staff   1210 Mar  2 17:38 .gitignore
[… 4 entries]
drwxr-xr-x   6 ann  staff    192 Mar  2 17:38 benches
[… 2 entries]
drwxr-xr-x  22 ann  staff    704 Mar  2 17:38 src
-rw-r--r--   1 ann  staff    128 Mar  2 17:38 rustfmt.toml
-rw-r--r--   1 ann  staff    128 Mar  2 17:38 x.sh\
""",
        (6, 13, "entries"),
    ),
    Case(
        "listing",
        "find",
        140,
        "\n".join(
            f"./src/{d}/{n}.py"
            for d in ("core", "web")
            for n in ("__init__", "errors", "models", "routes", "views", "wire", "zones")
        )
        + "\n",
        """\
./src/core/__init__.py
./src/core/errors.py
./src/core/models.py
./src/core/routes.py
[… 9 entries]
./src/web/zones.py\
""",
        (9, 14, "entries"),
    ),
    Case(
        "listing",
        "glob with a note",
        140,
        "\n".join(f"/repo/packages/p{n}/package.json" for n in range(1, 13))
        + "\n(Results are truncated. Consider using a more specific path or pattern.)",
        """\
/repo/packages/p1/package.json
[… 11 entries]
(Results are truncated. Consider using a more specific path or pattern.)\
""",
        (11, 12, "entries"),
    ),
    Case(
        "hits",
        "rg over files",
        330,
        "\n".join(
            [
                f'src/store.go:{n}:\t\treturn nil, fmt.Errorf("step {n}: %w", err)'
                for n in (12, 19, 31, 44, 58)
            ]
            + [f"src/web/server.go:{n}:\tif err := serve(ctx, {n}); err != nil {{" for n in (8, 77)]
            + ["cmd/main.go:5:\terr := run(os.Args)"]
        )
        + "\n",
        """\
src/store.go:12:		return nil, fmt.Errorf("step 12: %w", err)
src/store.go:19:		return nil, fmt.Errorf("step 19: %w", err)
[… 3 hits]
src/web/server.go:8:	if err := serve(ctx, 8); err != nil {
[… 1 hits]
cmd/main.go:5:	err := run(os.Args)\
""",
        (4, 8, "hits"),
    ),
    Case(
        "hits",
        "one file's code, in which nothing names a file",
        120,
        "function weave() {\n"
        + "".join(f"\tthread({n});\n" for n in range(20))
        + "}\n/**\n * It is\n */\n",
        """\
function weave() {
	thread(0);
	thread(1);
	thread(2);
	thread(3);
[… 14 lines]
	thread(18);
	thread(19);
}
/**
 * It is
 */\
""",
        (14, 25, "lines"),
    ),
    Case(
        "hits",
        "files named above their hits, as Gemini CLI shows them",
        300,
        'Found 9 matches for pattern "weave" in path "src":\n---\nFile: src/loom.ts\n'
        + "".join(
            f"L{n}: weave(thread, {n});\nL{n + 1}- // near it, and nothing else\n"
            for n in (3, 9, 40, 77, 90)
        )
        + "---\nFile: src/warp.ts\n"
        + "".join(f"L{n}: const cloth_{n} = weave(warp, {n});\n" for n in (5, 18, 33))
        + "---\nFile: src/knot.ts\nL2: weave(knot);\n---\n",
        """\
Found 9 matches for pattern "weave" in path "src":
---
File: src/loom.ts
L3: weave(thread, 3);
L4- // near it, and nothing else
L9: weave(thread, 9);
[… 8 lines]
File: src/warp.ts
L5: const cloth_5 = weave(warp, 5);
[… 3 lines]
File: src/knot.ts
L2: weave(knot);
---\
""",
        (11, 22, "lines"),
    ),
    Case(
        "hits",
        "files named above their hits, as opencode shows them",
        220,
        "Found 6 matches\n/w/src/loom.ts:\n"
        + "".join(f"  Line {n}: \tweave(thread, {n});\n\n" for n in (3, 9, 40, 77))
        + "\n/w/src/warp.ts:\n"
        + "".join(f"  Line {n}: const cloth_{n} = weave(warp, {n});\n\n" for n in (5, 18)),
        """\
Found 6 matches
/w/src/loom.ts:
  Line 3: \tweave(thread, 3);

  Line 9: \tweave(thread, 9);
[… 6 lines]
/w/src/warp.ts:
  Line 5: const cloth_5 = weave(warp, 5);
[… 3 lines]\
""",
        (9, 16, "lines"),
    ),
    Case(
        "hits",
        "grep with context",
        330,
        """\
src/a.py-10-def first():
src/a.py:11:    retry(3)
src/a.py-12-    return None
--
src/a.py-40-def second():
src/a.py:41:    retry(5)
src/a.py-42-    return None
--
src/b.py-7-def third():
src/b.py:8:    retry(1)
src/b.py-9-    return None
--
src/b.py-90-class Fourth:
src/b.py-91-    \"\"\"A longer context that nobody needs for long.\"\"\"
src/b.py:92:    attempts = retry(9)
src/b.py-93-    return None
""",
        """\
src/a.py-10-def first():
src/a.py:11:    retry(3)
[… 3 lines]
src/a.py:41:    retry(5)
[… 3 lines]
src/b.py:8:    retry(1)
[… 4 lines]
src/b.py:92:    attempts = retry(9)
src/b.py-93-    return None\
""",
        (10, 16, "lines"),
    ),
    Case(
        "hits",
        "hits in one file",
        120,
        "\n".join(f"{n}:## Part {n} of the handbook" for n in range(10, 130, 10)) + "\n",
        """\
10:## Part 10 of the handbook
20:## Part 20 of the handbook
[… 9 hits]
120:## Part 120 of the handbook\
""",
        (9, 12, "hits"),
    ),
    Case(
        "hits",
        "below headings",
        170,
        """\
src/a.ts
12:  const token = read();
19:  const token = write();
31:  const token = clear();

src/b.ts
4:import { token } from "./a";
88:  return token;
120:  token.refresh();
""",
        """\
src/a.ts
12:  const token = read();
19:  const token = write();
[… 2 lines]
src/b.ts
4:import { token } from "./a";
[… 2 lines]\
""",
        (4, 9, "lines"),
    ),
    Case(
        "hits",
        "below headings, one of which is no name of a file",
        200,
        """\
src/loom.py
12:def weave(threads):
30:    weave(warp)
44:    weave(weft)

src/heddle.py
7:from loom import weave
19:weave([])

docs/a page.md
3:how to weave
9:weave on
""",
        """\
src/loom.py
12:def weave(threads):
30:    weave(warp)
44:    weave(weft)

src/heddle.py
7:from loom import weave
19:weave([])
[… 4 lines]\
""",
        (4, 12, "lines"),
    ),
    Case(
        "hits",
        "context of several files",
        200,
        """\
src/loom.py-11-# the loom
src/loom.py:12:def weave(threads):
src/loom.py-13-    return threads
--
src/heddle.py-6-# the heddle
src/heddle.py:7:from loom import weave
src/heddle.py-8-
--
src/shed.py:19:weave([])
src/shed.py:29:weave([1])
src/shed.py:39:weave([2])
""",
        """\
src/loom.py-11-# the loom
src/loom.py:12:def weave(threads):
[… 3 lines]
src/heddle.py:7:from loom import weave
src/heddle.py-8-
--
src/shed.py:19:weave([])
src/shed.py:29:weave([1])
src/shed.py:39:weave([2])\
""",
        (3, 11, "lines"),
    ),
    Case(
        "log",
        "a build that failed",
        330,
        "\n".join(
            ["$ make release", "cc -O2 -c src/main.c -o build/main.o"]
            + [f"cc -O2 -c src/part{n}.c -o build/part{n}.o" for n in range(1, 9)]
            + [
                "src/part9.c: In function 'load':",
                "src/part9.c:41:12: warning: unused variable 'n' [-Wunused-variable]",
                "src/part9.c:57:5: error: expected ';' before 'return'",
                "   57 |     return 0;",
                "      |     ^~~~~~",
            ]
            + [f"cc -O2 -c src/more{n}.c -o build/more{n}.o" for n in range(1, 9)]
            + ["make: *** [Makefile:12: build/part9.o] Error 1"]
        )
        + "\n",
        """\
$ make release
[… 10 lines]
src/part9.c:41:12: warning: unused variable 'n' [-Wunused-variable]
src/part9.c:57:5: error: expected ';' before 'return'
   57 |     return 0;
[… 9 lines]
make: *** [Makefile:12: build/part9.o] Error 1\
""",
        (19, 24, "lines"),
    ),
    Case(
        "log",
        "an install that went well",
        160,
        "\n".join(
            ["Resolving dependencies..."]
            + [f"  + package-{n} 1.{n}.0" for n in range(1, 30)]
            + ["0 errors, 0 warnings", "Done in 4.2s"]
        )
        + "\n",
        """\
Resolving dependencies...
[… 28 lines]
  + package-29 1.29.0
0 errors, 0 warnings
Done in 4.2s\
""",
        (28, 32, "lines"),
    ),
    Case(
        "log",
        "the same error again and again",
        400,
        "\n".join(
            ["worker started"]
            + [
                f"2026-01-02 10:00:{n:02d} ERROR connection refused by 10.0.0.7:5432, retrying"
                for n in range(20)
            ]
            + ["2026-01-02 10:00:20 FATAL giving up", "worker stopped"]
        )
        + "\n",
        """\
worker started
2026-01-02 10:00:00 ERROR connection refused by 10.0.0.7:5432, retrying
2026-01-02 10:00:01 ERROR connection refused by 10.0.0.7:5432, retrying
2026-01-02 10:00:02 ERROR connection refused by 10.0.0.7:5432, retrying
[… 17 lines]
2026-01-02 10:00:20 FATAL giving up
worker stopped\
""",
        (17, 23, "lines"),
    ),
    Case(
        "log",
        "a count of failures beside one of no errors",
        260,
        """\
[INFO] Scanning for projects...
[INFO] Downloaded from central: part 1 of the artefacts
[INFO] Downloaded from central: part 2 of the artefacts
[INFO] Downloaded from central: part 3 of the artefacts
[INFO] Downloaded from central: part 4 of the artefacts
[INFO] Downloaded from central: part 5 of the artefacts
[INFO] Downloaded from central: part 6 of the artefacts
[INFO] Downloaded from central: part 7 of the artefacts
[INFO] Downloaded from central: part 8 of the artefacts
[INFO] Running org.example.ShopTest
[ERROR] Tests run: 12, Failures: 3, Errors: 0, Skipped: 0
[INFO] Running org.example.StockTest
[INFO] Tests run: 4, Failures: 0, Errors: 0, Skipped: 0
[INFO] Wrote report 1 of the tests that ran
[INFO] Wrote report 2 of the tests that ran
[INFO] Wrote report 3 of the tests that ran
[INFO] Wrote report 4 of the tests that ran
[INFO] Wrote report 5 of the tests that ran
[INFO] Wrote report 6 of the tests that ran
[INFO] Wrote report 7 of the tests that ran
[INFO] Wrote report 8 of the tests that ran
[INFO] Total time: 4 s
""",
        """\
[INFO] Scanning for projects...
[… 8 lines]
[INFO] Running org.example.ShopTest
[ERROR] Tests run: 12, Failures: 3, Errors: 0, Skipped: 0
[… 10 lines]
[INFO] Total time: 4 s\
""",
        (18, 22, "lines"),
    ),
    Case(
        "test",
        "go test -v",
        330,
        "\n".join(
            [f"=== RUN   TestPart{n}\n--- PASS: TestPart{n} (0.00s)" for n in range(1, 9)]
            + [
                "=== RUN   TestTotal",
                "    total_test.go:31: total = 12, want 14",
                "--- FAIL: TestTotal (0.01s)",
            ]
            + [f"=== RUN   TestEnd{n}\n--- PASS: TestEnd{n} (0.00s)" for n in range(1, 9)]
            + ["FAIL", "FAIL\texample.org/shop\t0.312s", "FAIL"]
        )
        + "\n",
        """\
[… 17 lines]
    total_test.go:31: total = 12, want 14
--- FAIL: TestTotal (0.01s)
[… 16 lines]
FAIL
FAIL	example.org/shop	0.312s
FAIL\
""",
        (33, 38, "lines"),
    ),
    Case(
        "test",
        "pytest",
        620,
        """\
============================= test session starts ==============================
platform linux -- Python 3.12.1, pytest-8.0.0
collected 41 items

tests/test_cart.py ..........                                            [ 24%]
tests/test_items.py ...............                                      [ 60%]
tests/test_price.py ....F...........                                     [100%]

=================================== FAILURES ===================================
_________________________________ test_rounding ________________________________

    def test_rounding():
        price = Price("1.005")
>       assert price.rounded() == Decimal("1.01")
E       AssertionError: assert Decimal('1.00') == Decimal('1.01')
E        +  where Decimal('1.00') = rounded()

tests/test_price.py:31: AssertionError
=========================== short test summary info ============================
FAILED tests/test_price.py::test_rounding - AssertionError: assert Decimal('1.0...
========================= 1 failed, 40 passed in 0.52s =========================
""",
        """\
============================= test session starts ==============================
[… 7 lines]
=================================== FAILURES ===================================
[… 4 lines]
>       assert price.rounded() == Decimal("1.01")
E       AssertionError: assert Decimal('1.00') == Decimal('1.01')
E        +  where Decimal('1.00') = rounded()

tests/test_price.py:31: AssertionError
[… 1 lines]
FAILED tests/test_price.py::test_rounding - AssertionError: assert Decimal('1.0...
========================= 1 failed, 40 passed in 0.52s =========================\
""",
        (12, 21, "lines"),
    ),
    Case(
        "test",
        "cargo test, all well",
        200,
        "\n".join(
            ["running 12 tests"]
            + [f"test cache::tests::case_{n} ... ok" for n in range(1, 13)]
            + [
                "",
                "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            ]
        )
        + "\n",
        """\
running 12 tests
[… 13 lines]
test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\
""",
        (13, 15, "lines"),
    ),
    Case(
        "test",
        "vitest",
        300,
        "\n".join(
            [" RUN  v2.0.1 /repo", ""]
            + [f" ✓ src/part{n}.test.ts (4)" for n in range(1, 10)]
            + [
                " ❯ src/sum.test.ts (2)",
                "   × sum > adds two numbers",
                "     → expected 5 to be 4",
                " FAIL  src/sum.test.ts > sum > adds two numbers",
                "AssertionError: expected 5 to be 4 // Object.is equality",
                "",
                " Test Files  1 failed | 9 passed (10)",
                "      Tests  1 failed | 37 passed (38)",
            ]
        )
        + "\n",
        """\
 RUN  v2.0.1 /repo
[… 11 lines]
   × sum > adds two numbers
     → expected 5 to be 4
 FAIL  src/sum.test.ts > sum > adds two numbers
AssertionError: expected 5 to be 4 // Object.is equality

 Test Files  1 failed | 9 passed (10)
      Tests  1 failed | 37 passed (38)\
""",
        (11, 19, "lines"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_exactly_this_stays(case: Case) -> None:
    holds(case)


# A line, and whether it tells of trouble.
TOLD: dict[str, bool] = {
    "error: no rule to make target": True,
    "ERROR in app.ts": True,
    "3 tests FAILED": True,
    "java.lang.NullPointerException": True,
    "Traceback (most recent call last):": True,
    "fatal: not a repository": True,
    "panic: index out of range": True,
    "permission denied": True,
    "make: cc: Command not found": True,
    "cannot open shared object": True,
    "Aborted (core dumped)": True,
    "undefined reference to `main'": True,
    "No such file or directory": True,
    "connection refused": True,
    "the request timed out": True,
    "all is well": False,
    "0 errors": False,
    "no errors, 0 failures": False,
    "5 passed, 0 failed": False,
    "Failures: 0, Errors: 0": False,
    "failed=0": False,
    "errors = 1": True,
    "done without errors": False,
    "10 errors": True,
    "0 errors, 3 failures": True,
    "Tests run: 12, Failures: 3, Errors: 0": True,
    "no errors so far, but cannot go on": True,
}


@pytest.mark.parametrize("line", TOLD)
def test_which_lines_tell_of_trouble(line: str) -> None:
    text = f"one\n{line}\nthree\n"
    found, left = failure_lines(text, FAILURE_WORDS, 200)
    assert [text[start:end] for start, end in found] == [f"{line}\n"] * TOLD[line]
    assert (left < 200) is TOLD[line]


def test_a_word_is_found_in_every_line_and_at_the_start_of_one() -> None:
    text = "E  one\nE  two\nthe E  three\nfour E"
    assert [text[a:b] for a, b in lines_with(text, ("\ne  ",))] == ["E  one\n", "E  two\n"]
    assert [text[a:b] for a, b in lines_with(text, ("e",))] == text.splitlines(keepends=True)


RG = {"tool": "Bash", "args": {"command": "rg -n warp lib"}}
CAT = {"tool": "Bash", "args": {"command": "cat lib/loom.py"}}

TOLD_GROUPED: dict[str, tuple[str, str]] = {
    "two hits of a file": (
        "lib/loom.py:3:import warp\nlib/loom.py:9:warp()",
        "lib/loom.py\n3:import warp\n9:warp()",
    ),
    "a line's end stays": (
        "lib/loom.py:3:import warp\nlib/loom.py:9:warp()\n",
        "lib/loom.py\n3:import warp\n9:warp()\n",
    ),
    "several files": (
        "lib/loom.py:3:a: b\nlib/loom.py:9:c\nlib/weft/thread.py:1:d\nlib/weft/thread.py:2:e",
        "lib/loom.py\n3:a: b\n9:c\n\nlib/weft/thread.py\n1:d\n2:e",
    ),
    "one hit alone, and then several": (
        "lib/warp.py:7:x\nlib/loom/threads.py:3:a\nlib/loom/threads.py:9:b",
        "lib/warp.py:7:x\n\nlib/loom/threads.py\n3:a\n9:b",
    ),
    "several, and then one alone": (
        "lib/loom/threads.py:3:a\nlib/loom/threads.py:9:b\nlib/warp.py:7:x",
        "lib/loom/threads.py\n3:a\n9:b\n\nlib/warp.py:7:x",
    ),
    "lines around a hit": (
        (
            "lib/loom.py-2-\nlib/loom.py:3:import warp\nlib/loom.py-4-x\n--\nlib/loom.py-8-y\n"
            "lib/loom.py:9:warp()"
        ),
        "lib/loom.py\n2-\n3:import warp\n4-x\n\n--\n\nlib/loom.py\n8-y\n9:warp()",
    ),
    "a shell tool's head": (
        "Process exited with code 0\nOutput:\nlib/loom.py:3:a\nlib/loom.py:9:b\n",
        "Process exited with code 0\nOutput:\n\nlib/loom.py\n3:a\n9:b\n",
    ),
    "a file that comes back": (
        "lib/loom.py:3:a\nlib/loom.py:4:b\nnothing\nlib/loom.py:9:c\nlib/loom.py:12:d",
        "lib/loom.py\n3:a\n4:b\n\nnothing\n\nlib/loom.py\n9:c\n12:d",
    ),
}
LEFT: dict[str, str] = {
    "nothing": "",
    "no hits": "weaving\n12:30:00 a time\n12:30:01 another",
    "each of another file": "lib/a.py:3:x\nlib/b.py:3:x\nlib/c.py:3:x",
    "numbers of lines alone": "3:import warp\n9:warp()",
    "counts": "lib/loom.py:3\nlib/loom.py:9",
    "hits without a number": "lib/loom.py:import warp\nlib/loom.py:warp()",
    "words before a place": "see lib/loom.py:3:a\nsee lib/loom.py:9:b",
    "what is by file already": "lib/loom.py\n3:import warp\n9:warp()",
}


@pytest.mark.parametrize("case", TOLD_GROUPED)
def test_the_path_stands_once(case: str) -> None:
    before, after = TOLD_GROUPED[case]
    assert group_by_file(before) == after
    assert group_by_file(after) == after


@pytest.mark.parametrize("case", LEFT)
def test_it_stays_as_it_is(case: str) -> None:
    assert group_by_file(LEFT[case]) == LEFT[case]


def ungroup(text: str) -> list[str]:
    """The lines as they came, by a reader who knows what a heading is."""
    found: list[str] = []
    path = ""
    for line in text.split("\n"):
        numbered = re.match(r"\d+([:-])", line)
        if re.fullmatch(r"[^\s:]+", line) and numbered is None:
            path = line
        elif path and numbered:
            found.append(f"{path}{numbered[1]}{line}")
        elif line:
            path = ""
            found.append(line)
    return found


PATHS = st.sampled_from(["lib/loom.py", "lib/loom", "lib/weft/thread.py", "a-1-b.py", "x"])
HITS = st.builds(
    "{}:{}:{}".format, PATHS, st.integers(0, 10**6), st.sampled_from(["x y", "", "z:"])
)
OTHERS = st.sampled_from(["none of these", "-- no", "12:x y", "", "lib/loom.py-7-x y"])


@given(st.lists(HITS | OTHERS, max_size=12))
def test_a_reader_can_tell_every_line(lines: list[str]) -> None:
    kept = [line for line in lines if line and not line[0].isdigit()]
    assert ungroup(group_by_file("\n".join(kept))) == kept


@given(st.lists(HITS | OTHERS, max_size=12))
def test_done_twice_is_done_once(lines: list[str]) -> None:
    once = group_by_file("\n".join(lines))
    assert group_by_file(once) == once
    assert len(once) <= len("\n".join(lines))


BOTH = "".join(f"lib/loom/of/threads.py:{n}:thread_{n} = weave(warp)\n" for n in range(20))


@pytest.mark.parametrize("about", [GREP, RG], ids=["a tool that searches", "a command"])
def test_hits_are_told_by_file_when_they_come(about: dict[str, object]) -> None:
    assert arrived(BOTH, about) == "lib/loom/of/threads.py\n" + "".join(
        f"{n}:thread_{n} = weave(warp)\n" for n in range(20)
    )


@pytest.mark.parametrize("about", [READ, CAT], ids=["a tool that reads", "a command"])
def test_a_file_that_looks_like_hits_is_left_as_it_is(about: dict[str, object]) -> None:
    assert arrived(BOTH, about) == BOTH
