"""Line numbers, escape codes and shell notes around results."""

from __future__ import annotations

import json
import re
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.shapes.decoration import strip_decoration, strip_padding, thin_line_numbers
from respool.tools import Tool, Tools, Use

CODEX = "Chunk ID: 1a2b3c\nWall time: {} seconds\nProcess exited with code 0\n{}Output:\n{}"
COUNT = "Original token count: 1234\n"

# What came, and what is left of it.
CASES: dict[str, tuple[str, str]] = {
    "padding before an arrow": (
        "     8→def weave():\n     9→    pass\n    10→\n    11→rest()",
        "8→def weave():\n9→    pass\n10→\n11→rest()",
    ),
    "padding before a tab": (
        "     1\tone\n     2\ttwo\n     3\tthree\n",
        "1\tone\n2\ttwo\n3\tthree\n",
    ),
    "from the middle of a file": ("  998→a\n  999→b\n 1000→c", "998→a\n999→b\n1000→c"),
    "lines around the numbered ones stay": (
        "<file>\n  1→a\n  2→b\n  3→c\n  </file>\n  (end)",
        "<file>\n1→a\n2→b\n3→c\n  </file>\n  (end)",
    ),
    "blanks behind the number are the file's": ("  1→  a\n  2→\tb\n  3→ ", "1→  a\n2→\tb\n3→ "),
    "the idle head of a shell tool": (
        CODEX.format("0.0512", COUNT, "done\n"),
        "Process exited with code 0\nOutput:\ndone\n",
    ),
    "a time that tells something": (
        CODEX.format("12.0512", COUNT, "done\n"),
        "Wall time: 12.0512 seconds\nProcess exited with code 0\nOutput:\ndone\n",
    ),
    "one second is no idle time": (
        CODEX.format("1.0000", "", "done\n"),
        "Wall time: 1.0000 seconds\nProcess exited with code 0\nOutput:\ndone\n",
    ),
    "the command, which the call says": (
        "Command: /bin/sh -lc 'ls lib'\nProcess exited with code 0\nOutput:\nx",
        "Process exited with code 0\nOutput:\nx",
    ),
    "a head of nothing else": ("Chunk ID: 9\nOutput:\nx", "Output:\nx"),
    "a head, and numbered lines behind it": (
        "Wall time: 0.1 seconds\nOutput:\n  1\ta\n  2\tb\n  3\tc",
        "Output:\n1\ta\n2\tb\n3\tc",
    ),
    "what looks like a head, in the output": (
        "Chunk ID: 9\nOutput:\nChunk ID: 8\nWall time: 0.1 seconds\nOutput:\n",
        "Output:\nChunk ID: 8\nWall time: 0.1 seconds\nOutput:\n",
    ),
}

# What stays as it is, to the last blank.
EXACT: dict[str, str] = {
    "nothing": "",
    "words": "  no numbers here\n   at all\n",
    "two lines tell too little": "  1→a\n  2→b\n",
    "one line": "     1→a",
    "not consecutive": "  1→a\n  3→b\n  4→c\n",
    "backwards": "  3→a\n  2→b\n  1→c\n",
    "the same number again": "  1\ta\n  1\tb\n  1\tc\n",
    "a file's own numbers in a column": "  10\t20\n  15\t30\n  20\t40\n",
    "two signs": "  1→a\n  2\tb\n  3→c\n",
    "a dot is no sign": "  1. a\n  2. b\n  3. c\n",
    "numbers without padding": "1→a\n2→b\n3→c\n",
    "too much padding": "          1→a\n          2→b\n          3→c\n",
    "notes without an output": "Chunk ID: 1a2b\nWall time: 0.1 seconds\n",
    "an output further down than a head": "Chunk ID: 1a2b\n" + "x" * 600 + "\nOutput:\ny",
    "a document that shows a command": "Command: make build\nOutput:\ndone\n",
    "a document that shows a command further down": "# Use\nCommand: make build\nOutput:\ndone",
    "other words among the notes": "Chunk ID: 7\nCommand: make\nsee below\nOutput:\ndone",
    "a command of several lines": "Command: cat <<E\nx\nE\nProcess exited with code 0\nOutput:\nx",
    "words that only begin like notes": "Chunk ID: of my own\nOutput:\n",
    "a time of another unit": "Wall time: 0.1 minutes\nOutput:\n",
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_left(case: str) -> None:
    came, left = CASES[case]
    assert strip_padding(came) == left


@pytest.mark.parametrize("case", EXACT)
def test_what_stays_exact(case: str) -> None:
    assert strip_padding(EXACT[case]) == EXACT[case]


@pytest.mark.parametrize("case", CASES)
def test_twice_is_once(case: str) -> None:
    assert strip_padding(strip_padding(CASES[case][0])) == CASES[case][1]


NOTES = ("Chunk ID: 7", "Wall time: 0.5 seconds", "Original token count: 3", "Output:")
LINES = ("  1→a", "     2→", " 3\tb", "4→c", "  5\t", "  words", "")
pieces = st.sampled_from([*NOTES, *LINES])


@given(st.lists(pieces, max_size=12).map("\n".join) | st.text(max_size=80))
def test_nothing_is_found_in_what_is_plain(text: str) -> None:
    once = strip_padding(text)
    assert strip_padding(once) == once
    assert len(once) <= len(text)


@given(st.integers(1, 9_000), st.lists(st.text("ab →\t1", max_size=9), min_size=3, max_size=30))
def test_a_numbered_file_keeps_every_line_and_every_number(first: int, lines: list[str]) -> None:
    told = [f"{first + at:>6}→{line}" for at, line in enumerate(lines)]
    assert strip_padding("\n".join(told)) == "\n".join(line.lstrip(" ") for line in told)


@pytest.mark.parametrize(
    "piece",
    [" ", " 1", "1→", "  1→\n", "1\t", "Output:\n", "\nOutput:\n", "Chunk ID: ", "9" * 40, "\n"],
)
def test_hostile_texts_take_no_longer(piece: str) -> None:
    text = piece * (2_000_000 // len(piece))
    start = time.process_time()
    strip_padding(text)
    assert time.process_time() - start < 2


def numbered(first: int, count: int, sign: str = "→") -> str:
    """Lines of a file as a tool shows them: w7, w8 and so on."""
    return "\n".join(f"{at}{sign}w{at}" for at in range(first, first + count))


# What came, and what is left of it where every fifth number stays.
FEWER: dict[str, tuple[str, str]] = {
    "every fifth, the first and the last": (
        numbered(3, 10),
        "3→w3\nw4\n5→w5\nw6\nw7\nw8\nw9\n10→w10\nw11\n12→w12",
    ),
    "behind a tab": (numbered(1, 4, "\t"), "1\tw1\nw2\nw3\n4\tw4"),
    "behind a colon": (numbered(1, 4, ": "), "1: w1\nw2\nw3\n4: w4"),
    "filled up with zeros": (
        "00008| a\n00009| b\n00010| c\n00011| d\n00012| e",
        "00008| a\nb\n00010| c\nd\n00012| e",
    ),
    "a line that begins like a number": ("1→a\n2→7→b\n3→c\n4→d", "1→a\n2→7→b\nc\n4→d"),
    "a line that begins like a number of another tool's": (
        "6→a\n7→3: b\n8→  4|c\n9→5d\n10→e",
        "6→a\n7→3: b\n8→  4|c\n5d\n10→e",
    ),
    "lines that respool itself might have written": (
        "6→a\n7→[… 3 lines]\n8→[respool: 3 lines left out]\n9→[names left out: loom_9]\n10→e",
        "6→a\n7→[… 3 lines]\n8→[respool: 3 lines left out]\n9→[names left out: loom_9]\n10→e",
    ),
    "blank lines, and blanks before words": (
        "6→def weave():\n7→\n8→    rest()\n9→\t\n10→",
        "6→def weave():\n\n    rest()\n\t\n10→",
    ),
    "the last one before something else": (
        f"{numbered(6, 4)}\n\n<system-reminder>\nx\n</system-reminder>",
        "6→w6\nw7\nw8\n9→w9\n\n<system-reminder>\nx\n</system-reminder>",
    ),
    "both sides of a hole": (
        f"{numbered(1, 4)}\n[… 32 lines]\n{numbered(37, 4)}",
        "1→w1\nw2\nw3\n4→w4\n[… 32 lines]\n37→w37\nw38\nw39\n40→w40",
    ),
    "another sign ends it": ("1→a\n2→b\n3→c\n4\td\n5→e", "1→a\nb\n3→c\n4\td\n5→e"),
    "what a tool says above it": (
        f"The file was changed. This is what it says now:\n{numbered(6, 3)}",
        "The file was changed. This is what it says now:\n6→w6\nw7\n8→w8",
    ),
}
# Where all numbers stay.
ALL: dict[str, str] = {
    "no numbers": "one\ntwo\nthree\nfour",
    "too few": numbered(1, 2),
    "not one by one": "1→a\n3→b\n5→c\n7→d",
    "a table behind other numbers": "1→1\tone\n2→2\ttwo\n3→3\tthree\n4→4\tfour",
    "a table behind numbers": "1\t1\tone\n2\t2\ttwo\n3\t3\tthree\n4\t4\tfour",
}


@pytest.mark.parametrize("case", FEWER)
def test_fewer_numbers(case: str) -> None:
    came, left = FEWER[case]
    assert thin_line_numbers(came, 5) == left
    assert thin_line_numbers(left, 5) == left
    assert thin_line_numbers(came, 1) == came


@pytest.mark.parametrize("case", ALL)
def test_where_all_numbers_stay(case: str) -> None:
    assert thin_line_numbers(ALL[case], 5) == ALL[case]


def with_all_numbers(text: str, sign: str) -> str:
    """Line numbers that a reader infers from fewer of them: two numbers fix those between."""
    lines = text.split("\n")
    told = [(at, re.match(rf"(\d+)({re.escape(sign)})", line)) for at, line in enumerate(lines)]
    seen = [(at, int(found[1])) for at, found in told if found is not None]
    for (here, one), (there, other) in pairwise(seen):
        if other - one == there - here:
            for at in range(here + 1, there):
                lines[at] = f"{one + at - here}{sign}{lines[at]}"
    return "\n".join(lines)


files = st.lists(st.text("ab →\t:| 1", max_size=9), min_size=3, max_size=60)


@given(st.integers(1, 9_000), files, st.integers(2, 12), st.sampled_from(["→", "\t", ": ", "| "]))
def test_every_number_can_be_told(first: int, lines: list[str], every: int, sign: str) -> None:
    came = "\n".join(f"{first + at}{sign}{line}" for at, line in enumerate(lines))
    fewer = thin_line_numbers(came, every)
    assert with_all_numbers(fewer, sign) == came
    for line in set(fewer.split("\n")) - set(came.split("\n")):
        assert re.match(r"\s*\d+[→\t:|]", line) is None, "taken for a number"
    assert thin_line_numbers(fewer, every) == fewer


@given(st.integers(1, 9_000), st.integers(3, 80))
def test_no_line_is_far_from_a_number(first: int, count: int) -> None:
    fewer = thin_line_numbers(numbered(first, count), 5).split("\n")
    told = [at for at, line in enumerate(fewer) if "→" in line]
    assert all(min(abs(at - one) for one in told) <= 2 for at in range(count))
    assert len(told) <= count // 5 + 3


def use_of(tool: str, **arguments: Any) -> Use:
    return Tools().use_of(tool, json.dumps(arguments))


SHOWN = numbered(1, 4)
FEW = "1→w1\nw2\nw3\n4→w4"


@pytest.mark.parametrize(
    ("use", "left"),
    [
        (use_of("Read", file_path="/r/loom.py"), FEW),
        (use_of("Edit", file_path="/r/loom.py", old_string="a", new_string="b"), FEW),
        (use_of("read", filePath="/r/loom.py"), FEW),  # opencode's
        (use_of("str_replace_based_edit_tool", command="view", path="/r/loom.py"), FEW),
        (use_of("Read", file_path="/r/rows.csv"), SHOWN),
        (use_of("Read", file_path="/r/ci.log"), SHOWN),
        (use_of("read", path="/r/loom.py"), SHOWN),  # pi's, which shows a file as it is
        (use_of("Bash", command="nl -ba loom.py"), SHOWN),
        (use_of("Bash", command="cat -n loom.py"), SHOWN),
        (use_of("mystery", file_path="/r/loom.py"), SHOWN),
        (None, SHOWN),
    ],
)
def test_only_numbers_that_a_tool_puts_there_unasked(use: Use | None, left: str) -> None:
    assert strip_decoration(SHOWN, use, 5) == left


@pytest.mark.parametrize("command", ["cat /r/rows.tsv", "cat ci.log"])
def test_a_file_of_rows_keeps_its_own_blanks(command: str) -> None:
    rows = "\n".join(f"{at:>4}\tthread" for at in range(1, 9))
    assert strip_decoration(rows, use_of("Bash", command=command), 5) == rows
    assert strip_decoration(rows, use_of("Bash", command="cat -n loom.py"), 5) == rows.replace(
        "   ", ""
    )


def test_what_came_tells_whose_numbers_are_left() -> None:
    came = "\n".join(f"{at:>6}→w{at}" for at in range(1, 60))
    left = "     1→w1\n[… 39 lines]\n    41→w41\n    42→w42\n    43→w43\n[… 16 lines]"
    read = use_of("Read", file_path="/r/loom.py")
    assert (
        strip_decoration(left, read, 5, came)
        == "1→w1\n[… 39 lines]\n41→w41\nw42\n43→w43\n[… 16 lines]"
    )
    assert strip_decoration(left, read, 5) == left  # three numbers that do not go on tell nothing
    assert strip_padding(left, came) == left.replace("    ", "").replace(" 1→", "1→").lstrip()


def test_a_tool_of_ones_own_can_be_declared_to_number_lines() -> None:
    shows = Tool("show", kind="read", reads="path", numbers=True, content="code")
    use = Tools([shows]).use_of("show", json.dumps({"path": "loom.py"}))
    assert strip_decoration(SHOWN, use, 5) == FEW


@pytest.mark.parametrize("piece", ["1→", "  1→\n", "1→a\n2→b\n3→c\n", "\n", "9" * 40])
@pytest.mark.slow
def test_hostile_numbers_take_no_longer(piece: str) -> None:
    text = "1→a\n2→b\n3→c\n" + piece * (1_000_000 // len(piece))
    start = time.process_time()
    thin_line_numbers(text, 5)
    assert time.process_time() - start < 2
