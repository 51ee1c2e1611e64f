"""Search hits by file: nothing is lost but the paths that come again."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.shapes.grouped import by_file
from tests.test_tidy_results import GREP, READ, arrived

RG = {"tool": "Bash", "args": {"command": "rg -n warp lib"}}
CAT = {"tool": "Bash", "args": {"command": "cat lib/loom.py"}}

TOLD: dict[str, tuple[str, str]] = {
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


@pytest.mark.parametrize("case", TOLD)
def test_the_path_stands_once(case: str) -> None:
    before, after = TOLD[case]
    assert by_file(before) == after
    assert by_file(after) == after


@pytest.mark.parametrize("case", LEFT)
def test_it_stays_as_it_is(case: str) -> None:
    assert by_file(LEFT[case]) == LEFT[case]


def told_apart(text: str) -> list[str]:
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
    assert told_apart(by_file("\n".join(kept))) == kept


@given(st.lists(HITS | OTHERS, max_size=12))
def test_done_twice_is_done_once(lines: list[str]) -> None:
    once = by_file("\n".join(lines))
    assert by_file(once) == once
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
