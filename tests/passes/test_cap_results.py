"""The pass cap_results."""

from __future__ import annotations

from typing import Any

import pytest

import respool
from respool import UNLIMITED, Policy, Tool, Tools
from respool.markers import MAX_MARKER_CHARS, ClipMarker, find_marker, gap_line, parse_marker
from respool.passes.cap_results import _character_border
from tests.support.formats import FIELD, FORMATS, PIXEL, Exchange, request, results

formats = pytest.mark.parametrize("format", FORMATS)
LINES = "\n".join(f"line {number} of what the tool printed" for number in range(200))


def capped(format: str, *steps: Any, cap: int | None = 1_000, tools: Tools | None = None) -> Any:
    """The request after compaction at every boundary, and its results."""
    tools = tools or Tools()
    policy = Policy(
        cap_chars=cap,
        tools=tools,
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        eager=True,
        passes=("cap_results",),
        keep_exchanges=0,
    )
    out = respool.compact(request(format, *steps), format=format, policy=policy, memo=None)
    assert respool.check(out.request, format=format) == []
    return out, results(format, out.request)


def old(text: str, **about: Any) -> tuple[Any, ...]:
    """A session in which this result has been seen, and another one has not."""
    return ("go", [Exchange(text, id="call_1", **about)], [Exchange("done", id="call_2")])


@formats
def test_clips_oversize_tool_results_above_default_cap(format: str) -> None:
    steps = ("hi", [Exchange(LINES, id="a")], "again", [Exchange(LINES, id="b")])
    _, (first, last) = capped(format, *steps)
    assert find_marker(first) is not None
    assert len(first) <= 1_000
    assert last == LINES, "the newest result stays verbatim"


@formats
def test_preserves_tool_results_within_cap(format: str) -> None:
    out, _ = capped(format, *old("x" * 50))
    assert out.report.edits == ()


@formats
def test_per_tool_override_unlimited_keeps_verbatim(format: str) -> None:
    tools = Tools([Tool("publish", cap_chars=UNLIMITED)])
    _, (first, _) = capped(format, *old(LINES, tool="publish"), tools=tools)
    assert first == LINES


@formats
def test_per_tool_override_smaller_clips_below_default(format: str) -> None:
    tools = Tools([Tool("verbose", cap_chars=400)])
    _, (first, _) = capped(format, *old(LINES, tool="verbose"), cap=1_000_000, tools=tools)
    marker = find_marker(first)
    assert isinstance(marker, ClipMarker)
    assert marker.cap == 400


@formats
def test_per_tool_override_larger_wins_too(format: str) -> None:
    tools = Tools([Tool("verbose", cap_chars=1_000_000)])
    _, (first, _) = capped(format, *old(LINES, tool="verbose"), cap=100, tools=tools)
    assert first == LINES


@formats
def test_idempotent_across_repeated_apply(format: str) -> None:
    policy = Policy(
        cap_chars=500, reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, keep_exchanges=0
    )
    once, _ = capped(format, *old(LINES), cap=500)
    twice = respool.compact(once.request, format=format, policy=policy, memo=None)
    assert twice.request is once.request
    assert twice.report.edits == ()


@formats
def test_unknown_tool_falls_back_to_default_cap(format: str) -> None:
    tools = Tools([Tool("other", cap_chars=UNLIMITED)])
    _, (first, _) = capped(format, *old(LINES, tool="synthetic"), tools=tools)
    assert find_marker(first) is not None


def test_the_default_cap_is_the_sources() -> None:
    assert Policy().cap_chars == 32_000


@formats
def test_all_unseen_results_stay_not_just_the_last_one(format: str) -> None:
    parallel = [Exchange(LINES, id=f"p{number}") for number in range(3)]
    _, texts = capped(format, "go", [Exchange(LINES, id="a")], parallel)
    assert find_marker(texts[0]) is not None
    assert texts[1:] == [LINES] * 3


@formats
def test_head_and_tail_stay_on_line_borders(format: str) -> None:
    _, (first, _) = capped(format, *old(LINES))
    lines = first.split("\n")
    at = next(k for k, line in enumerate(lines) if parse_marker(line))
    assert 0 < at < len(lines) - 1
    assert LINES.startswith("\n".join(lines[:at]) + "\n")
    assert LINES.endswith("\n" + "\n".join(lines[at + 1 :]))


@formats
def test_the_marker_names_tool_size_cap_and_command(format: str) -> None:
    _, (first, _) = capped(format, *old(LINES))
    marker = find_marker(first)
    assert isinstance(marker, ClipMarker)
    assert (marker.tool, marker.size, marker.cap, marker.subject) == (
        "shell",
        len(LINES),
        1_000,
        "make",
    )
    kept = len(first.split("\n")) - 1
    assert (marker.total, marker.omitted, marker.unit) == (200, 200 - kept, "lines")


@formats
def test_a_marker_is_short_and_whole_whatever_the_names(format: str) -> None:
    id = "call_" + "x" * 35
    named = Exchange(LINES, id=id, tool="a_tool_with_a_very_long_name_" * 2)
    _, (first, _) = capped(format, "go", [named], [Exchange("done", id="call_2")])
    line = next(line for line in first.split("\n") if line.startswith("[respool"))
    assert len(line) <= MAX_MARKER_CHARS
    assert parse_marker(line) is not None
    assert line.endswith("]")


@formats
def test_one_endless_line_is_cut_between_characters(format: str) -> None:
    text = "é\u0301👩\u200d👩\u200d👧🏽" * 500
    _, (first, _) = capped(format, *old(text))
    head, marker, tail = first.split("\n")
    parsed = parse_marker(marker)
    assert parsed is not None
    assert parsed.unit == "chars"
    assert (parsed.omitted, parsed.total) == (len(text) - len(head) - len(tail), len(text))
    assert text.startswith(head)
    assert text.endswith(tail)
    assert _character_border(text, len(head)) == len(head)


@pytest.mark.parametrize("format", ["anthropic", "openai-responses", "gemini"])
def test_images_in_a_mixed_result_stay(format: str) -> None:
    out, (first, _) = capped(format, *old(LINES, image=True))
    assert find_marker(first) is not None
    assert PIXEL in str(out.request[FIELD[format]])


@pytest.mark.parametrize("format", ["anthropic", "gemini"])
def test_a_failed_result_keeps_its_error(format: str) -> None:
    noise = [f"compiling unit number {number} of the whole lot" for number in range(300)]
    noise[150] = "error: undefined symbol thread_end in loom.o"
    _, (first, _) = capped(format, *old("\n".join(noise), error=True), cap=2_000)
    assert noise[150] in first.split("\n")
    marker = find_marker(first)
    assert isinstance(marker, ClipMarker)
    assert marker.errors == 1
    assert len(first) <= 2_000


@formats
@pytest.mark.parametrize("cap", [0, 100, 300, 1_000, 4_096])
@pytest.mark.parametrize("length", [0, 150, 900, 2_500])
@pytest.mark.parametrize("after", [0, 40, 400])
def test_the_line_that_tells_the_error_stays_however_small_the_cap(
    format: str, cap: int, length: int, after: int
) -> None:
    """However long the line is, and however many others speak of errors after it."""
    noise = [f"compiling unit number {number} of the whole lot" for number in range(300)]
    error = f"error: undefined symbol thread_end in loom.o {'x' * length}".rstrip()
    noise[0] = "\x1b[2mcompiling in colours\x1b[22m"
    others = [f"while failing for error number {number}: gave up" for number in range(after)]
    text = "\n".join([*noise, error, *noise, *others, *noise, "Process exited with code 2"])
    _, (first, _) = capped(format, *old(text), cap=cap)
    (told,) = [line for line in first.split("\n") if error[:100] in line]
    assert told == error or told == f"{error[:136]}{gap_line(len(error) - 136, 'chars')}"
    assert len(first) <= max(cap, 256 + 162)


@formats
@pytest.mark.parametrize("at", [0, 150, 299])
def test_an_error_in_red_is_told_once(format: str, at: int) -> None:
    noise = [f"compiling unit number {number} of the whole lot" for number in range(300)]
    noise[at] = "\x1b[31merror: no loom\x1b[39m"
    text = "\n".join([*noise, "Process exited with code 2"])
    _, (first, _) = capped(format, *old(text), cap=2_000)
    assert first.count("error: no loom") == 1


def test_a_failed_result_stays_marked_as_failed() -> None:
    out, _ = capped("anthropic", *old(LINES, error=True))
    assert out.request["messages"][2]["content"][0]["is_error"] is True


@formats
def test_run_again_is_said_only_where_that_is_safe(format: str) -> None:
    _, (plain, _) = capped(format, *old(LINES))
    _, (safe, _) = capped(format, *old(LINES), tools=Tools([Tool("shell", rerun=True)]))
    assert "run again" not in plain
    assert "safe to run again" in safe


@formats
def test_a_call_that_is_known_to_read_may_be_run_again(format: str) -> None:
    reads = Tools([Tool("shell", kind="read")])
    writes = Tools([Tool("shell", kind="write")])
    _, (safe, _) = capped(format, *old(LINES), tools=reads)
    _, (plain, _) = capped(format, *old(LINES), tools=writes)
    assert "; safe to run again; ref " in safe
    assert "run again" not in plain


@formats
def test_the_original_comes_back_exactly(format: str) -> None:
    out, (first, _) = capped(format, *old(LINES))
    marker = find_marker(first)
    assert isinstance(marker, ClipMarker)
    assert respool.expand(marker.ref, out) == LINES


@formats
def test_a_cap_too_small_for_anything_leaves_the_marker(format: str) -> None:
    _, (first, _) = capped(format, *old(LINES), cap=10)
    assert parse_marker(first) is not None


@formats
def test_what_would_not_become_smaller_is_left(format: str) -> None:
    out, _ = capped(format, *old("a short result"), cap=5)
    assert out.report.edits == ()


@formats
def test_a_cap_of_none_clips_nothing(format: str) -> None:
    out, _ = capped(format, *old(LINES), cap=None)
    assert out.report.edits == ()


@formats
def test_a_resumed_session_gives_the_same_projection(format: str) -> None:
    first, _ = capped(format, *old(LINES))
    again, _ = capped(format, *old(LINES))
    assert first.request == again.request


@formats
def test_repeated_ids_do_not_mix_the_tools_up(format: str) -> None:
    tools = Tools([Tool("quiet", cap_chars=UNLIMITED)])
    steps = (
        "go",
        [Exchange(LINES, id="same", tool="quiet")],
        [Exchange(LINES, id="same", tool="shell")],
        [Exchange("done", id="last")],
    )
    _, (first, second, _) = capped(format, *steps, tools=tools)
    assert first == LINES
    assert find_marker(second) is not None


def lines_kept(original: str, clipped: str) -> int:
    """Number of whole lines of the original in a clipped text."""
    at = next(k for k, line in enumerate(clipped.split("\n")) if parse_marker(line))
    lines = clipped.split("\n")
    head, tail = lines[:at], lines[at + 1 :]
    assert original.startswith("".join(f"{line}\n" for line in head))
    assert original.endswith("\n".join(tail))
    return len(head) + len(tail) - (1 if original.endswith("\n") and tail else 0)


@formats
@pytest.mark.parametrize(
    "text",
    [
        "a line\n" * 60 + "\n" * 900 + "b line\n" * 200,
        "\n" * 3_000,
        "x\n" + "\n" * 2_000 + "y",
        LINES + "\n\n\n",
        "\n\n" + LINES,
    ],
    ids=[
        "blank lines at the border",
        "only blank lines",
        "blank between",
        "at the end",
        "in front",
    ],
)
def test_blank_lines_are_counted_too(format: str, text: str) -> None:
    out, (first, _) = capped(format, *old(text))
    if not out.report.edits:
        return
    marker = find_marker(first)
    assert isinstance(marker, ClipMarker)
    assert marker.unit == "lines"
    assert marker.omitted == marker.total - lines_kept(text, first)


@formats
def test_one_long_line_between_short_ones_does_not_waste_the_room(format: str) -> None:
    text = "HTTP/1.1 200 OK\n" + '{"key": "value"}, ' * 3_000 + "\ndone\n"
    _, (first, _) = capped(format, *old(text), cap=4_000)
    assert 3_000 < len(first) <= 4_000
    assert first.startswith("HTTP/1.1 200 OK\n")
    assert first.endswith("\ndone\n")
    marker = find_marker(first)
    assert isinstance(marker, ClipMarker)
    assert marker.unit == "chars"


@formats
def test_a_result_that_tells_of_its_failure_keeps_the_error(format: str) -> None:
    noise = [f"compiling unit number {number} of the whole lot" for number in range(300)]
    noise[150] = "error: undefined symbol thread_end in loom.o"
    text = "\n".join([*noise, "Process exited with code 2"])
    _, (first, _) = capped(format, *old(text), cap=2_000)
    assert noise[150] in first.split("\n")


@formats
def test_a_run_keeps_its_error_whoever_hides_its_exit_code(format: str) -> None:
    noise = [f"compiling unit number {number} of the whole lot" for number in range(300)]
    noise[150] = "error: undefined symbol thread_end in loom.o"
    text = "\n".join([*noise, "make: *** [Makefile:3: all] Error 2"])
    about: Any = {"tool": "Bash", "args": {"command": "make 2>&1 | cat"}}
    _, (first, _) = capped(format, *old(text, **about), cap=2_000)
    assert noise[150] in first.split("\n")


@formats
def test_a_failed_result_of_long_lines_is_told_in_characters(format: str) -> None:
    long = "x" * 3_000
    text = "\n".join(["error: it broke", long, "error: in the middle", long, "exited with code 1"])
    _, (first, _) = capped(format, *old(text), cap=2_000)
    marker = find_marker(first)
    assert isinstance(marker, ClipMarker)
    assert (marker.unit, marker.errors) == ("chars", 1)
    told = "error: in the middle"
    assert told in first.split("\n")
    kept = len(first) - len(str(marker)) - len(told) - 3  # the line breaks around them
    assert marker.omitted == marker.total - kept
