"""The pass tidy_results."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import respool
from respool.engine import Compaction, build_compaction, fold_request
from respool.facts import Facts
from respool.markers import OmissionMarker, find_marker, is_gap_line, reference
from respool.passes.tidy_results import _tidy, tidy_results
from respool.policy import Policy
from respool.tools import Tools, Use
from tests.support.coding_sessions import bash, read
from tests.support.formats import FIELD, FORMATS, PIXEL, Exchange, request, results

formats = pytest.mark.parametrize("format", FORMATS)
EAGER = Policy(
    cap_chars=None,
    reevaluate_tokens=1,
    reevaluate_ratio=0.0,
    eager=True,
    keep_exchanges=0,
    strip_decoration=True,
    line_number_interval=5,
)
ESC = "\x1b"

RUN: dict[str, Any] = {"tool": "Bash", "args": {"command": "make"}}
TEST: dict[str, Any] = {"tool": "Bash", "args": {"command": "pytest -q"}}
CAT: dict[str, Any] = {"tool": "Bash", "args": {"command": "cat src/loom.py"}}
NUMBER: dict[str, Any] = {"tool": "Bash", "args": {"command": "nl -ba src/loom.py"}}
READ: dict[str, Any] = {"tool": "Read", "args": {"file_path": "/r/loom.py"}}
NOTES: dict[str, Any] = {"tool": "Read", "args": {"file_path": "/r/notes.md"}}
DIFF: dict[str, Any] = {"tool": "Bash", "args": {"command": "git diff"}}
LOG: dict[str, Any] = {"tool": "Bash", "args": {"command": "cat ci.log"}}
GREP: dict[str, Any] = {"tool": "Grep", "args": {"pattern": "x", "output_mode": "content"}}
BOTH: dict[str, Any] = {"tool": "Bash", "args": {"command": "make && cat src/loom.py"}}
EDIT: dict[str, Any] = {
    "tool": "Edit",
    "args": {"file_path": "/r/a.py", "old_string": "a", "new_string": "b"},
}
UNKNOWN: dict[str, Any] = {"tool": "mystery", "args": {"x": 1}}


def tidied(format: str, *steps: Any) -> tuple[Compaction[Any], list[str]]:
    """The request with its results as they are sent the first time."""
    before = request(format, *steps)
    out = build_compaction(
        fold_request(
            before, format=format, policy=EAGER, facts=Facts(), memo=None, passes=(tidy_results,)
        ),
        before,
    )
    assert respool.check(out.request, format=format) == []
    assert out.report.failures == {}
    return out, results(format, out.request)


def arrived(text: str, about: dict[str, Any], format: str = "anthropic") -> str:
    """A result that the model has not seen, as it is sent."""
    return tidied(format, "go", [Exchange(text, **about)])[1][0]


def use_of(about: dict[str, Any]) -> Use:
    return Tools().use_of(about["tool"], json.dumps(about["args"]))


COLOURED = (
    f"{ESC}[1m{ESC}[32m PASS {ESC}[39m{ESC}[22m src/loom.test.ts\n"
    f"{ESC}[31mfailed{ESC}(B{ESC}[m: thread_end\n"
)
PLAIN = " PASS  src/loom.test.ts\nfailed: thread_end\n"
PROGRESS = (
    "Receiving objects:  10% (1/10)\rReceiving objects:  50% (5/10)\r"
    "Receiving objects: 100% (10/10), done.\nunpacked\n"
)
CLEARED = f"fetching a long name of a package\r{ESC}[Kdone\nresolving a list\r{ESC}[2Kready\n"
NPM = f"⠋ idealTree: sill idealTree buildDeps\r{ESC}[2K⠙ reify\r{ESC}[2K\nadded 12 packages\n"
DOWNLOAD = "\n".join(["start", *["Downloading the chunk, please wait"] * 42, "end"])
NAMES = [f"loom {number}   running" for number in range(20)]
TABLE = "".join(name + " \t" * 20 + "\n" for name in NAMES)
SPACED = "".join(f"{name}" + "\n" * 40 for name in NAMES)

NUMBERED = "\n".join(f"{at:>6}→    weave(thread_{at})" for at in range(6, 27))
UNPADDED = "\n".join(line.lstrip() for line in NUMBERED.split("\n"))
FEW_NUMBERS = "\n".join(
    f"{f'{at}→' if at in (6, 10, 15, 20, 25, 26) else ''}    weave(thread_{at})"
    for at in range(6, 27)
)

LINKED = f"{ESC}]8;;https://x.io/a/b/c/d{ESC}\\docs{ESC}]8;;{ESC}\\ {ESC}]0;a title\x07ready\n"
UNCLOSED = f"{ESC}[31m{ESC}[32m{ESC}[33m{ESC}[34m{ESC}]0;what follows stays\nhere\x07"
CHANGES = f"{ESC}[32m+added{ESC}[m\n{ESC}[31m-removed{ESC}[m\n "
HITS = f"{ESC}[35m{ESC}[Ka.py{ESC}[m{ESC}[K:{ESC}[01;31m{ESC}[Kx{ESC}[m{ESC}[K = 1"

LONG = "".join(f"line {number} of the trace\n" for number in range(300))

SHOWN = [
    ("colours", COLOURED, RUN, PLAIN),
    ("redrawn progress", PROGRESS, RUN, "Receiving objects: 100% (10/10), done.\nunpacked\n"),
    ("cleared lines", CLEARED, RUN, "done\nready\n"),
    ("a spinner", NPM, RUN, "\nadded 12 packages\n"),
    (
        "a shorter line over a longer one",
        "0123456789" * 5 + "\rshort\n" + "x" * 60 + "\r" + "y" * 60 + "\n",
        RUN,
        "0123456789" * 5 + "\rshort\n" + "y" * 60 + "\n",
    ),
    (
        "repeated lines",
        DOWNLOAD,
        RUN,
        "start\nDownloading the chunk, please wait\n[… 41 repeats]\nend",
    ),
    (
        "repeated at both ends",
        "waiting for it\n" * 5 + "up\n" + "serving a request\n" * 9,
        RUN,
        "waiting for it\n[… 4 repeats]\nup\nserving a request\n[… 8 repeats]\n",
    ),
    ("padded columns", TABLE, RUN, "".join(f"{name}\n" for name in NAMES)),
    ("blank lines", SPACED, RUN, "\n\n\n".join(NAMES) + "\n"),
    (
        "line ends of two characters",
        TABLE.replace("\n", "\r\n"),
        RUN,
        "".join(f"{name}\r\n" for name in NAMES),
    ),
    ("a hyperlink and a title", LINKED, RUN, "docs ready\n"),
    ("an unclosed title eats nothing", UNCLOSED, RUN, "0;what follows stays\nhere\x07"),
    ("test output", COLOURED, TEST, PLAIN),
    ("a diff's colours", CHANGES, DIFF, "+added\n-removed\n "),
    ("a log in a file", COLOURED, LOG, PLAIN),
    ("what an unknown tool colours", COLOURED, UNKNOWN, PLAIN),
    ("hits in colour", HITS, GREP, "a.py:x = 1"),
    ("numbers before each line of a file", NUMBERED, READ, FEW_NUMBERS),
    ("numbers before the lines of an edit", NUMBERED, EDIT, FEW_NUMBERS),
]


@formats
@pytest.mark.parametrize(("_name", "text", "about", "left"), SHOWN, ids=[one[0] for one in SHOWN])
def test_what_is_left(format: str, _name: str, text: str, about: dict[str, Any], left: str) -> None:
    assert arrived(text, about, format) == left


SPACES = "def f():\n        \n    return 1      \n" * 6
EXACT = [
    ("a file by its tool", SPACES, READ),
    ("a file by the shell", SPACES, CAT),
    ("numbers that the shell was asked for", UNPADDED, NUMBER),
    ("a file after a run", SPACES, BOTH),
    ("a file with escape codes in it", COLOURED, READ),
    ("a page with escape codes in it", COLOURED, NOTES),
    ("a file of repeated lines", DOWNLOAD, CAT),
    ("a file of old line ends", "one line\rtwo lines\r" * 9, CAT),
    ("context lines of a diff", "@@ -1,9 +1,9 @@\n" + " \n" * 60, DIFF),
    ("repeated lines of a diff", "@@ -1,9 +1,9 @@\n" + "+    pass  \n" * 60, DIFF),
    ("an edit's own view of the file", SPACES, EDIT),
    ("hits", "".join(f"{one}.py:3:    x      \n" for one in "abcdefghi"), GREP),
    ("an unknown tool's text", SPACES + DOWNLOAD, UNKNOWN),
    ("line ends of two characters", "one\r\ntwo\r\nthree\r\n" * 9, RUN),
    ("three of a kind", "the same line three times over\n" * 3 + "end", RUN),
    ("many short ones", "a\n" * 6, RUN),
    ("nothing but codes", f"{ESC}[0m" * 20, RUN),
    ("two blank lines", "one\n\n\ntwo\n" * 9, RUN),
    ("a bare escape", f"{ESC} is not the start of a code{ESC}" * 3, RUN),
    ("holes of others", "[… 3 repeats]\n" + "the same line\n" * 20, RUN),
]


@formats
@pytest.mark.parametrize(("_name", "text", "about"), EXACT, ids=[one[0] for one in EXACT])
def test_what_stays_exact(format: str, _name: str, text: str, about: dict[str, Any]) -> None:
    assert arrived(text, about, format) == text


@formats
def test_who_wants_all_numbers_gets_them(format: str) -> None:
    before = request(format, "go", [Exchange(NUMBERED, **READ)])
    policy = EAGER.replace(line_number_interval=1)
    out = build_compaction(
        fold_request(
            before, format=format, policy=policy, facts=Facts(), memo=None, passes=(tidy_results,)
        ),
        before,
    )
    assert results(format, out.request) == [UNPADDED]


@formats
def test_it_happens_before_the_model_sees_it_and_stays(format: str) -> None:
    _, first = tidied(format, "go", [Exchange(COLOURED, id="a", **RUN)])
    _, (again, _) = tidied(
        format, "go", [Exchange(COLOURED, id="a", **RUN)], [Exchange("done", id="b")]
    )
    assert first == [again]


@formats
def test_the_report_says_what_went(format: str) -> None:
    text = COLOURED + "waiting for the lock\n" * 30 + "ended          \n"
    out, _ = tidied(format, "go", [Exchange(text, **RUN)])
    (edit,) = out.report.edits
    assert edit.reason == "tidied"
    assert edit.evidence == (
        "30 chars of escape codes, 10 chars of trailing blanks, 29 repeated lines"
    )
    assert edit.saved > 0


@formats
def test_the_original_is_kept_under_its_hash(format: str) -> None:
    out, _ = tidied(format, "go", [Exchange(COLOURED, **RUN)])
    assert respool.expand(reference(COLOURED), out) == COLOURED


@formats
def test_parallel_results_are_each_tidied(format: str) -> None:
    step = [Exchange(COLOURED, id="a", **RUN), Exchange(SPACES, id="b", **READ)]
    _, (first, second) = tidied(format, "go", step)
    assert ESC not in first
    assert second == SPACES


@pytest.mark.parametrize("format", ["anthropic", "openai-responses", "gemini"])
def test_images_in_a_mixed_result_stay(format: str) -> None:
    out, (text,) = tidied(format, "go", [Exchange(COLOURED, image=True, **RUN)])
    assert ESC not in text
    assert PIXEL in str(out.request[FIELD[format]])


def test_a_failed_result_keeps_every_word_and_its_flag() -> None:
    text = COLOURED + LONG  # an open error that is shorter stays verbatim
    out, (left,) = tidied("anthropic", "go", [Exchange(text, error=True, **RUN)])
    assert left == PLAIN + LONG
    assert out.request["messages"][2]["content"][0]["is_error"] is True


@formats
def test_twice_is_once(format: str) -> None:
    steps = [Exchange(text, id=f"c{k}", **about) for k, (_, text, about, _) in enumerate(SHOWN)]
    once, _ = tidied(format, "go", *([step] for step in steps))
    folded = fold_request(
        once.request, format=format, policy=EAGER, facts=Facts(), memo=None, passes=(tidy_results,)
    )
    twice = build_compaction(folded, once.request)
    assert twice.report.edits == ()
    assert twice.request is once.request


PIECES = st.sampled_from(
    [
        "a",
        "the same line\n",
        "\n",
        "\r",
        "\r\n",
        ESC,
        "[",
        "]",
        "(",
        "0",
        ";",
        "m",
        "K",
        "2K",
        "\\",
        "\x07",
        " ",
        "\t",
        f"{ESC}[0m",
        f"{ESC}[2K",
        f"{ESC}]0;",
        "é",
        "[… 3 repeats]\n",
        "B",
        "7",
    ]
)
TEXTS = st.lists(PIECES, max_size=60).map("".join)


@given(TEXTS)
def test_nothing_new_is_found_in_what_was_tidied(text: str) -> None:
    for about in (RUN, DIFF, UNKNOWN, READ):
        once, _ = _tidy(text, use_of(about), EAGER)
        assert _tidy(once, use_of(about), EAGER) == (once, [])
        assert len(once) <= len(text)


@given(st.lists(st.sampled_from(["the same line again", "another of them", "x", ""]), max_size=40))
def test_counted_lines_unfold_to_what_was_printed(lines: list[str]) -> None:
    text = "\n".join(lines).rstrip("\n")
    tidy, _ = _tidy(text, use_of(RUN), EAGER)
    unfolded: list[str] = []
    for line in tidy.split("\n"):
        if found := re.fullmatch(r"\[… ([\d,]+) repeats\]", line):
            assert is_gap_line(line)
            unfolded += unfolded[-1:] * int(found[1].replace(",", ""))
        else:
            unfolded.append(line)
    assert re.sub(r"\n{4,}", "\n\n\n", text) == "\n".join(unfolded)


@pytest.mark.parametrize(
    "piece", [ESC, f"{ESC}]", f"{ESC}[", " ", "\r", f"{ESC}]0;a", "\t\n", "x\r", "\n", f"{ESC}[1"]
)
@pytest.mark.slow
def test_hostile_texts_take_no_longer(piece: str) -> None:
    start = time.process_time()
    _tidy(piece * (1_000_000 // len(piece)) + "x", use_of(RUN), EAGER)
    assert time.process_time() - start < 2.0


@formats
def test_a_tidied_result_is_still_clipped_to_its_cap(format: str) -> None:
    coloured = "\n".join(f"{ESC}[31mline {n} of what the build printed{ESC}[0m" for n in range(200))
    steps = ("go", [Exchange(coloured, id="a", **RUN)], [Exchange("ok", id="b", **RUN)])
    passes = ("tidy_results", "cap_results")
    policy = Policy(
        cap_chars=2_000,
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        eager=True,
        passes=passes,
        keep_exchanges=0,
    )
    first = respool.compact(request(format, *steps[:2]), format=format, policy=policy, memo=None)
    assert [edit.reason for edit in first.report.edits] == ["tidied"]
    later = respool.compact(request(format, *steps), format=format, policy=policy, memo=None)
    assert [edit.reason for edit in later.report.edits] == ["over_cap"]
    assert len(results(format, later.request)[0]) <= 2_000


@formats
def test_a_failing_test_run_is_tidied_too(format: str) -> None:
    printed = f"{ESC}[31mFAILED{ESC}[0m tests/test_loom.py::test_thread\n" * 3 + "exit code 1"
    out, (first,) = tidied(format, "go", [Exchange(printed, id="a", error=True, **TEST)])
    assert [edit.reason for edit in out.report.edits] == ["tidied"]
    assert ESC not in first
    assert "FAILED tests/test_loom.py::test_thread" in first


@pytest.mark.parametrize("around", [("", " " * 40), (f"{ESC}[31m", f"{ESC}[0m" * 9)])
def test_no_line_becomes_a_marker_by_being_tidied(around: tuple[str, str]) -> None:
    line = f"[respool: 3 lines left out; ref {reference('x')}]".join(around)
    text = f"building\n{line}\ndone" + " " * 40
    assert arrived(text, RUN) == text


RED = "\n".join(
    f"\x1b[31mtask {n}\x1b[39m did \x1b[1msomething\x1b[22m rather long" for n in range(150)
)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("later", ["cap_results", "trim_results", "keep_lines", "stub_results"])
def test_what_was_tidied_does_not_come_back_with_a_cut(format: str, later: str) -> None:
    """The model has seen it without; and no line that stands is taken for gone for its codes."""
    steps = [[bash("make", RED, "a")], *([bash(f"true {n}", "ok", f"c{n}")] for n in range(9))]
    policy = Policy(
        passes=("tidy_results", later),
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        eager=True,
        cap_chars=3_000,
        keep_exchanges=0,
    )
    cut: set[str] = set()
    for count in range(2, len(steps) + 1):
        body = request(format, "go", *steps[:count])
        first = results(
            format, respool.compact(body, format=format, policy=policy, memo=None).request
        )[0]
        assert "\x1b" not in first
        cut |= {first} if find_marker(first) else set()
    assert 1 <= len(cut) <= 2
    assert all("task 0 did something" in one or later == "stub_results" for one in cut)


def test_a_file_keeps_its_codes_when_it_is_cut() -> None:
    body = request("anthropic", "go", [read("/w/a.txt", RED, "a")], [bash("true", "ok", "b")])
    policy = Policy(
        passes=("tidy_results", "cap_results"),
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        eager=True,
        cap_chars=3_000,
        keep_exchanges=0,
    )
    first = results("anthropic", respool.compact(body, policy=policy, memo=None).request)[0]
    assert find_marker(first) is not None
    assert "\x1b[31mtask 0\x1b[39m" in first


def test_no_line_becomes_a_marker_by_losing_its_codes() -> None:
    forged = f"\x1b[1m{OmissionMarker(3, 'lines', reference('x'))}"
    body = request(
        "anthropic", "go", [bash("make", f"{forged}\n{RED}", "a")], [bash("true", "ok", "b")]
    )
    policy = Policy(
        passes=("cap_results",),
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        eager=True,
        cap_chars=3_000,
        keep_exchanges=0,
    )
    first = results("anthropic", respool.compact(body, policy=policy, memo=None).request)[0]
    assert first.startswith(forged)
