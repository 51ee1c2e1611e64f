"""What is cut before the model has seen it, where the policy asks for that, and what never is."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import respool
from respool.edits import KEPT_LINES
from respool.marker import Short, find_marker
from respool.policy import Policy
from tests.busy_sessions import bash, read
from tests.formats import FORMATS, Exchange, request, results
from tests.laws.sessions import prose

formats = pytest.mark.parametrize("format", FORMATS)
LEAN = Policy(trim_on_arrival=True)
BOLD = LEAN.replace(miss_penalty=0.5)


def code(functions: int) -> str:
    """Repetitive code, as a model hardly ever needs it line by line."""
    return "".join(
        f"{at * 10 + 1:6}→def weave_{at}(thread):\n"
        + "".join(f"{at * 10 + n:6}→    thread = turn(thread, {n})\n" for n in range(2, 11))
        for at in range(functions)
    )


FILE, LONG = code(30), code(40)
DIFF = "diff --git a/loom.py b/loom.py\n@@ -1,99 +1,99 @@\n" + "".join(
    f"-    thread = turn(thread, {n})\n+    thread = spin(thread, {n})\n" for n in range(99)
)
SEARCH: dict[str, Any] = {"tool": "Bash", "args": {"command": "rg -n thread src"}}


def arrived(format: str, *steps: Any, policy: Policy = LEAN) -> tuple[Any, list[str]]:
    """A session compacted, and its results."""
    out = respool.compact(request(format, "go", *steps), format=format, policy=policy)
    assert respool.check(out.request, format=format) == []
    return out, results(format, out.request)


def is_cut(text: str) -> bool:
    return isinstance(find_marker(text.rpartition("\n")[2]), Short)


@formats
def test_only_where_the_policy_asks(format: str) -> None:
    steps = [[Exchange(FILE.replace("turn", "spin"), **SEARCH), bash("cat src/loom.py", FILE, "b")]]
    _, texts = arrived(format, *steps, policy=Policy())
    assert not any(map(is_cut, texts))
    out, texts = arrived(format, *steps)
    assert all(map(is_cut, texts))
    assert {edit.reason for edit in out.report.edits} == {KEPT_LINES}
    assert out.report.epochs == 0, "what was never sent breaks no prefix"


@formats
def test_what_was_left_out_can_be_had(format: str) -> None:
    out, (text,) = arrived(format, [bash("cat src/loom.py", FILE, "b")])
    marker = find_marker(text.rpartition("\n")[2])
    assert isinstance(marker, Short)
    assert out.originals[marker.ref] == FILE
    assert (marker.total, marker.unit) == (300, "lines")
    assert f"[… {marker.omitted} lines]" in text or text.count("[… ") > 1


@formats
@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("sed -n '1,300p' src/loom.py", FILE),
        ("head -300 src/loom.py", FILE),
        ("git diff", DIFF),
    ],
)
def test_a_part_that_was_asked_for_comes_as_asked(format: str, command: str, text: str) -> None:
    _, (said,) = arrived(format, [bash(command, text, "a")], policy=BOLD)
    assert not is_cut(said)


@formats
def test_a_very_long_part_may_be_cut(format: str) -> None:
    _, (said,) = arrived(format, [bash("sed -n '1,400p' src/loom.py", LONG, "a")], policy=BOLD)
    assert len(LONG) > 12_000
    assert is_cut(said)


@formats
def test_what_was_read_again_for_a_cut_comes_whole(format: str) -> None:
    """Whoever asks again after a cut gets it all: nobody is sent in circles."""
    printed = prose(Random(1), 9_000)
    out, (first, again) = arrived(
        format,
        [bash("make release", printed, "a")],
        [bash("make release", printed, "b")],
    )
    assert is_cut(first)
    assert not is_cut(again)
    assert len(out.report.refetched) == 1


@formats
def test_short_results_and_what_writes_say_stays(format: str) -> None:
    short = FILE[:700].replace("turn", "spin")
    write = Exchange(FILE, tool="Edit", args={"file_path": "/w/a.py", "new_string": "x"}, id="w")
    _, texts = arrived(format, [bash("make", short, "a"), write])
    assert not any(map(is_cut, texts))


@formats
def test_each_request_extends_the_last(format: str) -> None:
    """What was cut at arrival stays as it was sent; nothing later brings it back."""
    steps: list[Any] = []
    before: list[str] = []
    for n in range(4):
        steps.append([bash(f"cat src/loom_{n}.py", FILE.replace("weave", f"w{n}"), f"c{n}")])
        # With dearer reads, so that it pays to have less than a provider would cache.
        policy = LEAN.replace(reevaluate_tokens=10**9, reevaluate_ratio=0.0, cache_read_price=0.5)
        _, said = arrived(format, *steps, policy=policy)
        assert said[: len(before)] == before
        assert is_cut(said[-1])
        before = said


@formats
def test_a_file_that_is_short_comes_whole(format: str) -> None:
    whole = FILE[:1_900]
    _, (said,) = arrived(format, [read("/w/loom.py", whole, "a")])
    assert not is_cut(said)


FAILED = FILE.replace("turn(thread, 7)", "spin(thread, 7)", 1) + "\n".join(
    ["src/loom.c:57:5: error: expected ';' before 'return'", "make: *** [loom.o] Error 1"]
)


@formats
def test_what_failed_comes_whole(format: str) -> None:
    short = f"Exit code 2\n{FAILED[-3_800:]}"
    _, (said,) = arrived(format, [bash("make release", short, "a", error=True)], policy=BOLD)
    assert not is_cut(said)


@formats
def test_a_long_failure_still_says_why(format: str) -> None:
    _, (said,) = arrived(format, [bash("make release", FAILED, "a", error=True)], policy=BOLD)
    assert is_cut(said)
    assert "error: expected ';' before 'return'" in said
