"""The pass stale_reads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from respool.api import expand
from respool.engine import fold_request
from respool.facts import Facts
from respool.markers import OmissionMarker, find_marker, reference
from respool.passes.stale_reads import stale_reads
from respool.policy import Policy
from tests.effort import examples
from tests.support.coding_sessions import (
    bash,
    done,
    edit,
    hold_the_laws,
    lines,
    read,
    run,
    run_on,
    sessions,
    write,
)
from tests.support.formats import FIELD, FORMATS, PIXEL, Exchange, request, results

formats = pytest.mark.parametrize("format", FORMATS)
A, B = "/w/loom.py", "/w/heddle.py"
AGAIN = "shown again in the read of /w/loom.py further down"
TEXT = lines(1, 40)
KEPT = "<persisted-output>\nOutput too large (9KB). Full output saved to: /tmp/all\n\n"


def left(format: str, *steps: Any, **about: Any) -> list[str]:
    """Text of every result except the last, unseen one."""
    out = run(stale_reads, format, *steps, done(), **about)
    return results(format, out.request)[:-1]


def put_aside(by: str, text: str = TEXT, rerun: bool = True) -> str:
    """The marker that stands for a whole read."""
    return str(
        OmissionMarker(
            text.count("\n") + 1, "lines", reference(text), reason=by, is_rerun_safe=rerun
        )
    )


@formats
def test_a_read_that_was_read_again_leaves_a_marker(format: str) -> None:
    texts = left(format, [read(A, TEXT, "r1")], [read(A, TEXT, "r2")])
    assert texts == [put_aside(AGAIN), TEXT]


def test_the_marker_says_what_happened() -> None:
    texts = left("anthropic", [read(A, TEXT, "toolu_01")], [read(A, TEXT, "toolu_09")])
    assert texts[0] == (
        "[respool: 40 lines left out, shown again in the read of /w/loom.py further down; "
        f"safe to run again; ref {reference(TEXT)}]"
    )


@pytest.mark.parametrize(
    ("later", "evidence"),
    [
        (read(A, TEXT, "r2"), "read again by call r2, 40 lines"),
        (write(A, lines(1, 40, "weft"), "w1"), "written anew by call w1, 40 lines"),
    ],
)
def test_the_report_says_by_which_call(later: Exchange, evidence: str) -> None:
    out = run(stale_reads, "anthropic", [read(A, TEXT, "r1")], [later], done())
    assert [(one.reason, one.evidence) for one in out.report.edits] == [("stale", evidence)]


@formats
def test_the_original_comes_back(format: str) -> None:
    out = run(stale_reads, format, [read(A, TEXT, "r1")], [read(A, TEXT, "r2")], done())
    marker = find_marker(results(format, out.request)[0])
    assert marker is not None
    assert expand(marker.ref, out) == TEXT


@formats
@pytest.mark.parametrize(
    ("first", "then", "goes"),
    [
        ((11, 20), (1, 40), True),
        ((11, 30), (11, 30), True),
        ((1, 40), (11, 30), False),
        ((1, 20), (21, 40), False),
        ((1, 20), (15, 35), False),
        ((1, 2_000), (1, 60), True),  # the file has but forty lines
    ],
    ids=["inside", "the same", "wider", "paging", "crossing", "longer than the file"],
)
def test_only_a_read_that_covers_it_makes_a_read_stale(
    format: str, first: tuple[int, int], then: tuple[int, int], goes: bool
) -> None:
    one, two = (lines(a, min(b, 40)) for a, b in (first, then))
    texts = left(
        format,
        [read(A, one, "r1", offset=first[0], limit=first[1] - first[0] + 1)],
        [read(A, two, "r2", offset=then[0], limit=then[1] - then[0] + 1)],
    )
    again = AGAIN.replace("of /w", f"of lines {then[0]}-{then[1]} of /w")
    assert texts == [put_aside(again, one) if goes else one, two]


@formats
@pytest.mark.parametrize(
    ("keep", "more", "goes"),
    [(1, 0, True), (2, 0, False), (2, 1, True), (3, 1, False)],
    ids=["the later is recent", "both", "the earlier is not now", "both still"],
)
def test_the_later_read_may_still_be_recent(format: str, keep: int, more: int, goes: bool) -> None:
    between = [done(f"d{number}") for number in range(more)]
    texts = left(format, [read(A, TEXT, "r1")], [read(A, TEXT, "r2")], *between, keep=keep)
    assert texts[:2] == [put_aside(AGAIN) if goes else TEXT, TEXT]


@formats
def test_a_file_that_was_replaced_is_known_from_the_write(format: str) -> None:
    texts = left(format, [read(A, TEXT, "r1")], [write(A, lines(1, 40, "weft"), "w1")])
    said = "/w/loom.py was written as a whole since"
    assert texts[0] == put_aside(said, rerun=False), "running it again would show another text"


@formats
def test_an_edit_does_not_make_the_latest_read_stale(format: str) -> None:
    change = edit(A, "thread_3", "weft_3", "e1")
    assert left(format, [read(A, TEXT, "r1")], [change])[0] == TEXT


@formats
def test_an_earlier_read_of_an_edited_file_goes_when_it_was_read_again(format: str) -> None:
    after = TEXT.replace("thread_3 ", "weft_3 ")
    texts = left(
        format, [read(A, TEXT, "r1")], [edit(A, "thread_3", "weft_3", "e1")], [read(A, after, "r2")]
    )
    assert texts == [put_aside(AGAIN), "Edited.", after]


@formats
@pytest.mark.parametrize("first", [1, 11])
def test_a_part_of_an_edited_file_read_again_does_not_make_the_rest_stale(
    format: str, first: int
) -> None:
    part = lines(first, first + 29).replace("thread_13 ", "weft_13 ")
    texts = left(
        format,
        [read(A, TEXT, "r1")],
        [edit(A, "thread_13", "weft_13", "e1")],
        [read(A, part, "r2", offset=first, limit=30)],
    )
    assert texts[0] == TEXT


@formats
def test_a_marker_never_names_a_write_that_may_go_itself(format: str) -> None:
    first, then = write(A, lines(1, 40, "weft"), "w1"), write(A, lines(1, 40, "shed"), "w2")
    texts = left(format, [read(A, TEXT, "r1")], [first], [then])
    assert "w1" not in texts[0]
    assert "w2" not in texts[0]


@formats
def test_a_later_read_that_failed_makes_nothing_stale(format: str) -> None:
    gone = read(A, "Error: no such file: /w/loom.py", "r2", error=True)
    assert left(format, [read(A, TEXT, "r1")], [gone])[0] == TEXT


@formats
def test_a_write_that_failed_makes_nothing_stale(format: str) -> None:
    failed = write(A, lines(1, 40, "weft"), "w1", result="Error: read-only file system", error=True)
    assert left(format, [read(A, TEXT, "r1")], [failed])[0] == TEXT


@formats
def test_a_read_that_failed_is_no_read(format: str) -> None:
    failed = "Error: could not read it.\n" + TEXT
    texts = left(format, [read(A, failed, "r1", error=True)], [read(A, TEXT, "r2")])
    assert texts[0] == failed


@formats
def test_a_tool_that_answers_unchanged_makes_nothing_stale(format: str) -> None:
    stub = "File unchanged since last read. Refer to the earlier result."
    assert left(format, [read(A, TEXT, "r1")], [read(A, stub, "r2")]) == [TEXT, stub]


@formats
def test_a_tool_that_shows_less_than_asked_makes_nothing_stale(format: str) -> None:
    clipped = lines(1, 12) + "\n... truncated ..."
    assert left(format, [read(A, TEXT, "r1")], [read(A, clipped, "r2")])[0] == TEXT


@formats
@pytest.mark.parametrize("cat", ["cat loom.py", "cat ./loom.py"])
def test_a_name_may_be_another_file_in_another_folder(format: str, cat: str) -> None:
    other = lines(1, 40, "shed")
    steps = [[bash(cat, TEXT, "r1")], [edit("/w/x.py", "a", "b", "e1")], [bash(cat, other, "r2")]]
    moved = [*steps[:2], [bash("cd sub && make", "", "c1")], steps[2]]
    assert left(format, *moved)[0] == TEXT


@formats
@pytest.mark.parametrize(
    "shown",
    [
        f"{KEPT}Preview (first 2KB):\n{lines(1, 25)}",
        f"{lines(1, 14)}\n…612 tokens truncated…\n{lines(30, 40)}",
    ],
)
def test_what_is_shown_in_part_after_an_edit_makes_nothing_stale(format: str, shown: str) -> None:
    change = edit(A, "thread_3", "weft_3", "e1")
    assert left(format, [read(A, TEXT, "r1")], [change], [read(A, shown, "r2")])[0] == TEXT


@formats
@pytest.mark.parametrize(
    "command",
    ["grep -n thread /w/loom.py", "cat /w/loom.py | grep thread", "tail -40 /w/loom.py",
     "git diff /w/loom.py", "wc -l /w/loom.py"],
)  # fmt: skip
def test_what_shows_an_unknown_part_makes_nothing_stale(format: str, command: str) -> None:
    assert left(format, [read(A, TEXT, "r1")], [bash(command, TEXT, "b1")])[0] == TEXT


@formats
@pytest.mark.parametrize(
    ("path", "other"), [("loom.py", "/w/loom.py"), ("/w/loom.py", "/v/loom.py")]
)
def test_only_exactly_the_same_path_counts(format: str, path: str, other: str) -> None:
    assert left(format, [read(path, TEXT, "r1")], [read(other, TEXT, "r2")])[0] == TEXT


@formats
def test_paths_are_compared_in_one_spelling(format: str) -> None:
    texts = left(format, [read("/w/./x/../loom.py", TEXT, "r1")], [bash(f"cat {A}", TEXT, "b1")])
    assert texts[0] == put_aside(AGAIN)


@formats
def test_several_files_in_one_result_go_only_when_all_are_stale(format: str) -> None:
    both = f"{TEXT}\n{lines(1, 40, 'shed')}"
    shown = bash(f"cat {A} {B}", both, "b1")
    one = left(format, [shown], [read(A, TEXT, "r1")])
    assert one[0] == both
    all_of_it = left(format, [shown], [read(A, TEXT, "r1")], [read(B, lines(1, 40, "shed"), "r2")])
    assert all_of_it[0].startswith(
        "[respool: 80 lines left out, shown again in the reads of /w/loom.py and "
    )


@formats
@pytest.mark.parametrize(
    "other",
    [
        read(B, "File unchanged since last read. Refer to the earlier result.", "r2"),
        read(B, "Error: no such file: /w/heddle.py", "r2", error=True),
        write(B, lines(1, 40, "weft"), "w1"),
    ],
    ids=["unchanged", "gone", "written anew"],
)
def test_several_files_stay_while_one_of_them_is_not_shown_again(
    format: str, other: Exchange
) -> None:
    both = f"{TEXT}\n{lines(1, 40, 'shed')}"
    texts = left(format, [bash(f"cat {A} {B}", both, "b1")], [read(A, TEXT, "r1")], [other])
    assert texts[0] == both


@formats
def test_a_command_that_did_more_than_read_stays(format: str) -> None:
    ran = bash(f"cat {A} && pytest -q", TEXT + "\n3 passed", "b1")
    assert left(format, [ran], [read(A, TEXT, "r2")])[0] == TEXT + "\n3 passed"


@formats
@pytest.mark.parametrize("command", ["rm /w/loom.py", "cp /v/loom.py /w/loom.py"])
def test_a_write_whose_text_is_not_known_makes_nothing_stale(format: str, command: str) -> None:
    assert left(format, [read(A, TEXT, "r1")], [bash(command, "", "b1")])[0] == TEXT


@formats
def test_pages_asked_in_another_way_are_not_the_same_page(format: str) -> None:
    url = "https://docs.example/loom"
    texts = left(
        format,
        [bash(f"curl {url}", TEXT, "c1")],
        [bash("python build.py", "built", "b1")],  # may have written anything
        [bash(f"curl {url}", lines(1, 40, "shed"), "c2")],
    )
    assert texts[0] == TEXT


@formats
def test_a_chain_of_reads_and_edits_leaves_the_last_read(format: str) -> None:
    steps = []
    for number in range(5):
        steps += [[read(A, TEXT, f"r{number}")], [edit(A, f"thread_{number}", "x", f"e{number}")]]
    texts = left(format, *steps)
    whole = [at for at, text in enumerate(texts) if text == TEXT]
    assert whole == [8]


@formats
def test_a_read_depends_on_the_later_reads_that_show_it_and_on_no_write(format: str) -> None:
    both = bash(f"cat {A} {B}", f"{TEXT}\n{lines(1, 40, 'shed')}", "b1")
    later = [read(A, TEXT, "r1"), read(B, lines(1, 40, "shed"), "r2")]
    assert needed(format, [both], later) == {0: (1, 2)}
    assert needed(format, [read(A, TEXT, "r1")], [write(A, lines(1, 40, "weft"), "w1")]) == {}


@formats
def test_in_a_chain_each_read_depends_on_the_next_one(format: str) -> None:
    steps = [[read(A, TEXT, f"r{number}")] for number in range(4)]
    assert needed(format, *steps) == {0: (1,), 1: (2,), 2: (3,)}


def needed(format: str, *steps: Any) -> dict[int, tuple[int, ...]]:
    """The results that edits on results need whole, all by number."""
    policy = Policy(passes=(stale_reads,), eager=True, keep_exchanges=0, reevaluate_tokens=1)
    body = request(format, "go", *steps, done())
    state = fold_request(body, format=format, policy=policy, facts=Facts(), memo=None).state
    number = {part: at for at, part in enumerate(state.transcript.results)}
    found = state.edits.dependencies.items()
    return {number[part]: tuple(number[one] for one in needs) for part, needs in found}


@formats
def test_what_was_not_seen_yet_makes_nothing_stale_and_stays(format: str) -> None:
    out = run(stale_reads, format, [read(A, TEXT, "r1")], [read(A, TEXT, "r2")])
    assert results(format, out.request) == [TEXT, TEXT]


@formats
def test_parallel_reads_of_one_file_leave_one(format: str) -> None:
    texts = left(format, [read(A, TEXT, "r1"), read(A, TEXT, "r2")])
    assert texts == [put_aside(AGAIN), TEXT]


@pytest.mark.parametrize("format", ["anthropic", "openai-responses", "gemini"])
def test_images_beside_the_text_stay(format: str) -> None:
    steps = ([read(A, TEXT, "r1", image=True)], [read(A, TEXT, "r2")], done())
    out = run(stale_reads, format, *steps)
    assert find_marker(results(format, out.request)[0]) is not None
    assert PIXEL in str(out.request[FIELD[format]])


@formats
def test_short_reads_are_left(format: str) -> None:
    short = lines(1, 3)
    assert left(format, [read(A, short, "r1")], [read(A, short, "r2")])[0] == short


@formats
def test_repeated_ids_are_told_apart(format: str) -> None:
    body = request(format, "go", [read(A, TEXT, "same")], [read(A, TEXT, "same")], done())
    out = run_on(stale_reads, format, body)
    assert results(format, out.request)[0] == put_aside(AGAIN)
    (edit,) = out.report.edits
    assert "call no. 2," in edit.evidence or "call same_2," in edit.evidence


@pytest.mark.laws
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sessions)
def test_the_laws_hold(session: tuple[str, dict[str, Any]]) -> None:
    hold_the_laws(stale_reads, *session, FIELD[session[0]])
