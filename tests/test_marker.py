"""Markers are parsed strictly: what is not whole is not taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.marker import MOST, Marker, find_marker, parse_marker, reference

REF = reference("what was there")
WHOLE = str(Marker("Bash", 48_213, 32_000, 590, 1_024, "lines", 0, "toolu_01", False, REF))
numbers = st.integers(0, 10**11)


def test_it_reads_as_it_should() -> None:
    assert (
        "[clew: clipped Bash result of 48,213 chars to 32,000; 590 of 1,024 lines left out here; "
        f"call toolu_01; ref {REF}]"
    ) == WHOLE


@given(
    st.text(), numbers, numbers, numbers, numbers, st.sampled_from(["lines", "chars"]), numbers,
    st.text(), st.booleans(),
)  # fmt: skip
def test_whatever_the_names_it_is_short_and_parses_back(
    tool: str, size: int, cap: int, gone: int, all: int, unit: str, errors: int, call: str,
    rerun: bool,
) -> None:  # fmt: skip
    text = str(Marker(tool, size, cap, gone, all, unit, errors, call, rerun, REF))
    assert len(text) <= MOST
    assert "\n" not in text
    back = parse_marker(text)
    assert back is not None
    assert str(back) == text
    assert (back.size, back.gone, back.ref, back.rerun) == (size, gone, REF, rerun)


@pytest.mark.parametrize(
    "line",
    [
        WHOLE[:-1],
        WHOLE + " ",
        " " + WHOLE,
        WHOLE.replace("clew: ", "clew:"),
        WHOLE.replace("lines", "rows"),
        WHOLE.replace(REF, REF[:-1]),
        WHOLE.replace(REF, REF.upper()),
        WHOLE.replace("Bash", "Ba sh"),
        WHOLE.replace("; call toolu_01", ""),
        "[clew: clipped]",
        "[clew: ]",
        "",
    ],
)
def test_what_is_not_whole_is_no_marker(line: str) -> None:
    assert parse_marker(line) is None


def test_it_is_found_on_a_line_of_its_own_only() -> None:
    assert find_marker(f"before\n{WHOLE}\nafter") is not None
    assert find_marker(WHOLE) is not None
    assert find_marker(f"someone wrote {WHOLE}\n") is None
    assert find_marker(f"{WHOLE} and went on") is None
    assert find_marker("[clew: " * 10_000) is None
    assert find_marker(f"[clew: not one\n{WHOLE}") is not None


def test_references_are_hashes_of_what_is_said() -> None:
    assert reference("a") == reference("a") != reference("b")
    assert len(reference("\ud800")) == 20
