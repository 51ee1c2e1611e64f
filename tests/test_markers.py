"""Markers: grammar, rendering and parsing."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.markers import (
    MAX_MARKER_CHARS,
    UNITS,
    ClipMarker,
    OmissionMarker,
    find_marker,
    gap_line,
    has_gaps,
    is_gap_line,
    parse_gap,
    parse_marker,
    reference,
)

REF = reference("what was there")
WHOLE = str(ClipMarker("Bash", 48_213, 32_000, 590, 1_024, "lines", 0, "npm test", False, REF))
numbers = st.integers(0, 10**11)


def test_it_reads_as_it_should() -> None:
    assert (
        "[respool: clipped Bash result of 48,213 chars to 32,000; 590 of 1,024 lines left out "
        "here; "
        f"from npm test; ref {REF}]"
    ) == WHOLE


@given(
    st.text(), numbers, numbers, numbers, numbers, st.sampled_from(["lines", "chars"]), numbers,
    st.text(), st.booleans(), st.none() | st.text(min_size=1),
)  # fmt: skip
def test_whatever_the_names_it_is_short_and_parses_back(
    tool: str,
    size: int,
    cap: int,
    gone: int,
    all: int,
    unit: str,
    errors: int,
    subject: str,
    rerun: bool,
    fetch: str | None,
) -> None:
    text = str(ClipMarker(tool, size, cap, gone, all, unit, errors, subject, rerun, REF, fetch))
    assert len(text) <= MAX_MARKER_CHARS
    assert "\n" not in text
    back = parse_marker(text)
    assert back is not None
    assert str(back) == text
    assert isinstance(back, ClipMarker)
    assert (back.size, back.omitted, back.ref, back.is_rerun_safe) == (size, gone, REF, rerun)


def test_the_longest_names_leave_it_a_marker() -> None:
    marker = ClipMarker("t" * 64, 987_654, 32_000, 9_876, 10_000, "lines", 120, "c" * 64, True, REF)
    assert find_marker(f"a\n{marker}\nb") is not None
    assert f"clipped {'t' * 46}.. result" in str(marker)
    assert len(str(marker)) == MAX_MARKER_CHARS
    assert "ccc..; safe" in str(marker), "the command is cut to what is left"


def test_without_room_for_a_few_words_the_command_is_left_out() -> None:
    def told(tool: str, subject: str) -> str:
        counts = (987_654, 32_000, 98_765, 98_765)
        return str(ClipMarker(tool, *counts, "lines", 120, subject, True, REF, "respool_expand"))

    words = "npm run build --workspace=loom"
    found = {told("t" * chars, words).count("; from npm run build") for chars in range(1, 49)}
    assert found == {0, 1}
    assert "; from " not in told("t" * 48, words)
    assert "; from m;" in told("t" * 30, "m"), "what fits stays"


def test_the_tool_that_gets_it_back_is_named_whole_or_not_at_all() -> None:
    def told(tool: str, number: int) -> str:
        fetch = "mcp__respool__respool_expand"
        return str(ClipMarker(tool, number, 32_000, 9, 10, "lines", 120, tool, True, REF, fetch))

    assert f"; mcp__respool__respool_expand gets it back; ref {REF}]" in told("Bash", 48_213)
    assert f"; mcp__respool__respool_expand gets it back; ref {REF}]" in told("t" * 64, 48_213)
    most = 10**11
    long = "t" * 64
    huge = ClipMarker(
        long, most, most, most, most, "lines", most, long, True, REF, "respool_expand"
    )
    assert find_marker(str(huge)) is not None
    assert "respool_expand" not in str(huge)


@pytest.mark.parametrize(
    "line",
    [
        WHOLE[:-1],
        WHOLE + " ",
        " " + WHOLE,
        WHOLE.replace("respool: ", "respool:"),
        WHOLE.replace("lines", "rows"),
        WHOLE.replace(REF, REF[:-1]),
        WHOLE.replace(REF, REF.upper()),
        WHOLE.replace("Bash", "Ba sh"),
        WHOLE.replace("from npm test", "call toolu_01"),
        "[respool: clipped]",
        "[respool: ]",
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
    assert find_marker("[respool: " * 10_000) is None
    assert find_marker(f"[respool: not one\n{WHOLE}") is not None


def test_references_are_hashes_of_what_is_said() -> None:
    assert reference("a") == reference("a") != reference("b")
    assert len(reference("\ud800")) == 20


@given(st.text())
def test_a_reference_is_the_beginning_of_a_hash_in_base_32(text: str) -> None:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    assert reference(text) == base64.b32encode(digest).decode()[:20].lower()


# Short ones.

SHORT = str(
    OmissionMarker(
        412,
        "lines",
        REF,
        1_024,
        "shown again in the read of größe.py, below",
        True,
        "respool_expand",
    )
)
figures = st.integers(0, 999_999_999)
signs = st.text(alphabet="abzABZ019_.:/@-", min_size=1, max_size=48)
reasons = st.lists(
    st.text(alphabet="azAZ09,._/:@'()+*=-&|$`\"<>ß字", min_size=1, max_size=12), max_size=6
)
whys = reasons.map(" ".join).filter(lambda why: len(why) <= 80)
units = st.sampled_from(UNITS)


def test_a_short_one_reads_as_it_should() -> None:
    assert str(OmissionMarker(3, "rows", REF)) == f"[respool: 3 rows left out; ref {REF}]"
    assert (
        "[respool: 412 of 1,024 lines left out, shown again in the read of größe.py, below; "
        f"safe to run again; respool_expand gets it back; ref {REF}]"
    ) == SHORT


TOLD: dict[str, tuple[str, str, str]] = {
    "as they are": ("seen by call c9", "expand", "seen by call c9; expand"),
    "as long as may be": ("w" * 120, "n" * 48, f"{'w' * 120}; {'n' * 48}"),
    "longer": ("w" * 121, "n" * 49, f"{'w' * 118}..; {'n' * 46}.."),
    "cut behind a word": (f"{'w' * 117} {'w' * 9}", "n", f"{'w' * 117}..; n"),
    "signs that end one": ("a; [b]\n  c\u2028d", "a b;c", "a b c d; a_b_c"),
}


@pytest.mark.parametrize("case", TOLD)
def test_reasons_and_names_are_made_to_fit(case: str) -> None:
    why, fetch, told = TOLD[case]
    line = str(OmissionMarker(3, "rows", REF, reason=why, fetch_tool=fetch))
    assert line == f"[respool: 3 rows left out, {told} gets it back; ref {REF}]"


def test_what_has_no_name_is_called_unknown() -> None:
    line = str(ClipMarker("", 9, 8, 1, 9, "lines", 2, "", True, REF))
    assert line == (
        "[respool: clipped unknown result of 9 chars to 8; 1 of 9 lines left out here, "
        f"2 error lines of them kept below; safe to run again; ref {REF}]"
    )


@given(
    st.builds(
        OmissionMarker,
        figures,
        units,
        st.just(REF),
        st.none() | figures,
        whys,
        st.booleans(),
        st.none() | signs,
    )
)
def test_a_short_one_parses_back_to_what_it_was(marker: OmissionMarker) -> None:
    text = str(marker)
    assert len(text) <= MAX_MARKER_CHARS
    assert parse_marker(text) == marker
    assert find_marker(f"before\n{text}\nafter") == marker


@given(figures, units, st.none() | figures, st.text(), st.booleans(), st.none() | st.text())
def test_whatever_it_is_told_a_short_one_is_a_marker(
    gone: int, unit: str, all: int | None, why: str, rerun: bool, fetch: str | None
) -> None:
    text = str(OmissionMarker(gone, unit, REF, all, why, rerun, fetch))
    assert len(text) <= MAX_MARKER_CHARS
    back = parse_marker(text)
    assert back is not None
    assert (str(back), back.omitted, back.ref) == (text, gone, REF)


@pytest.mark.parametrize(
    "line",
    [
        SHORT[:-1],
        SHORT + ".",
        f"> {SHORT}",
        SHORT.replace("[respool: ", "[respool "),
        SHORT.replace("[respool: ", "[Respool: "),
        SHORT.replace("lines", "stanzas"),
        SHORT.replace("lines", "line"),
        SHORT.replace("412", "-412"),
        SHORT.replace("412", "many"),
        SHORT.replace("412", "٤١٢"),
        SHORT.replace("412", "1" * 16),
        SHORT.replace("left out", "removed"),
        SHORT.replace("shown again", "shown; again"),
        SHORT.replace("shown again", "shown [again]"),
        SHORT.replace("shown again in the read of größe.py, below", "x" * 121),
        SHORT.replace("; safe to run again; respool_expand gets it back",
                      "; respool_expand gets it back; safe to run again"),
        SHORT.replace("respool_expand", "respool expand"),
        SHORT.replace(REF, REF + "a"),
        SHORT.replace(REF, "0" * 20),
        f"[respool: 3 rows left out; ref {REF}\n]",
    ],
)  # fmt: skip
def test_a_near_miss_is_no_marker(line: str) -> None:
    assert parse_marker(line) is None
    assert find_marker(f"a\n{line}\nb") is None


@given(figures, units)
def test_a_hole_is_a_hole(gone: int, unit: str) -> None:
    assert is_gap_line(gap_line(gone, unit))
    assert parse_marker(gap_line(gone, unit)) is None


@pytest.mark.parametrize(
    "line",
    ["[… 37 stanzas]", "[... 37 lines]", " [… 37 lines]", "[… 37 lines] ", "[… lines]", "[…]"],
)
def test_what_only_looks_like_a_hole_is_none(line: str) -> None:
    assert not is_gap_line(line)


@pytest.mark.parametrize(
    ("text", "gaps"),
    [
        ("a\nb", False),
        (f"a\n{SHORT}", True),
        (f"{WHOLE}\nb", True),
        ("a\n[… 3 lines]\nb", True),
        ("a\r\n[… 3 lines]\r\nb", True),
        ("a  # [… 3 lines]\nb", False),
        (f"a {SHORT}\n[… and so on]", False),
    ],
)
def test_whether_something_was_taken_out_before(text: str, gaps: bool) -> None:
    assert has_gaps(text) is gaps


@pytest.mark.parametrize(
    ("line", "told"), [("[… 1,204 rows]", (1_204, "rows")), ("a [… 3 rows]", None)]
)
def test_what_a_hole_tells(line: str, told: tuple[int, str] | None) -> None:
    assert parse_gap(line) == told
