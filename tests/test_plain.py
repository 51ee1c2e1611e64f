"""What tools put before and around the lines they show goes; a file's own text never does."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.passes.plain import plain

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
    "words that only begin like notes": "Chunk ID: of my own\nOutput:\n",
    "a time of another unit": "Wall time: 0.1 minutes\nOutput:\n",
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_left(case: str) -> None:
    came, left = CASES[case]
    assert plain(came) == left


@pytest.mark.parametrize("case", EXACT)
def test_what_stays_exact(case: str) -> None:
    assert plain(EXACT[case]) == EXACT[case]


@pytest.mark.parametrize("case", CASES)
def test_twice_is_once(case: str) -> None:
    assert plain(plain(CASES[case][0])) == CASES[case][1]


NOTES = ("Chunk ID: 7", "Wall time: 0.5 seconds", "Original token count: 3", "Output:")
LINES = ("  1→a", "     2→", " 3\tb", "4→c", "  5\t", "  words", "")
pieces = st.sampled_from([*NOTES, *LINES])


@given(st.lists(pieces, max_size=12).map("\n".join) | st.text(max_size=80))
def test_nothing_is_found_in_what_is_plain(text: str) -> None:
    once = plain(text)
    assert plain(once) == once
    assert len(once) <= len(text)


@given(st.integers(1, 9_000), st.lists(st.text("ab →\t1", max_size=9), min_size=3, max_size=30))
def test_a_numbered_file_keeps_every_line_and_every_number(first: int, lines: list[str]) -> None:
    told = [f"{first + at:>6}→{line}" for at, line in enumerate(lines)]
    assert plain("\n".join(told)) == "\n".join(line.lstrip(" ") for line in told)


@pytest.mark.parametrize(
    "piece",
    [" ", " 1", "1→", "  1→\n", "1\t", "Output:\n", "\nOutput:\n", "Chunk ID: ", "9" * 40, "\n"],
)
def test_hostile_texts_take_no_longer(piece: str) -> None:
    text = piece * (2_000_000 // len(piece))
    start = time.process_time()
    plain(text)
    assert time.process_time() - start < 2
