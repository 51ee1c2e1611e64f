"""The pass contained_results."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import respool
from respool.engine import Compaction, build_compaction, fold_request
from respool.facts import Facts
from respool.markers import OmissionMarker, find_marker, reference
from respool.passes.contained_results import _find_contained_lines, contained_results
from respool.passes.covered_reads import covered_reads
from respool.policy import Policy
from tests.support.formats import FORMATS, Exchange, request, results

formats = pytest.mark.parametrize("format", FORMATS)
EAGER = Policy(
    cap_chars=None,
    reevaluate_tokens=1,
    reevaluate_ratio=0.0,
    eager=True,
    keep_exchanges=0,
    strip_decoration=True,
)
FILE = [f"def weave_{number}(thread): return loom[{number}]" for number in range(1, 201)]
NOTE = "\n\n<system-reminder>\nConsider whether this file is what it seems.\n</system-reminder>\n"
DONE = [Exchange("done", id="last")]


def arrow(first: int, last: int, note: str = "") -> str:
    return _numbered(first, last, "{:6}→{}") + note


def tabbed(first: int, last: int) -> str:
    return _numbered(first, last, "{:6}\t{}") + "\n"


def bare(first: int, last: int) -> str:
    return "\n".join(FILE[first - 1 : last]) + "\n"


def _numbered(first: int, last: int, spelled: str) -> str:
    lines = enumerate(FILE[first - 1 : last], first)
    return "\n".join(spelled.format(number, line) for number, line in lines)


def read(id: str, text: str, first: int | None = None, count: int | None = None) -> list[Exchange]:
    """A read by an editor's tool, of all or of some lines."""
    args: dict[str, Any] = {"file_path": "/r/loom.py"}
    if first is not None:
        args |= {"offset": first, "limit": count}
    return [Exchange(text, id=id, tool="Read", args=args)]


def shell(id: str, command: str, text: str) -> list[Exchange]:
    return [Exchange(text, id=id, tool="Bash", args={"command": command})]


EDIT_ARGS = {"file_path": "/r/loom.py", "old_string": "a", "new_string": "b"}
EDIT = [Exchange("ok", id="edit", tool="Edit", args=EDIT_ARGS)]
UNKNOWN = [Exchange("ok", id="edit", tool="mystery", args={"x": 1})]


def compacts(format: str, *steps: Any, policy: Policy = EAGER) -> tuple[Compaction[Any], list[str]]:
    before = request(format, *steps)
    folded = fold_request(
        before,
        format=format,
        policy=policy,
        facts=Facts(),
        memo=None,
        passes=(contained_results, covered_reads),
    )
    out = build_compaction(folded, before)
    assert respool.check(out.request, format=format) == []
    assert out.report.failures == {}
    return out, results(format, out.request)


def marker(text: str, why: str, gone: int, all: int | None = None) -> str:
    return str(OmissionMarker(gone, "lines", reference(text), all, why))


@formats
def test_a_new_range_of_a_file_that_stands_whole(format: str) -> None:
    part = arrow(40, 64, NOTE)
    out, (first, second) = compacts(
        format, "go", read("a", arrow(1, 200, NOTE)), read("b", part, 40, 25)
    )
    assert first == arrow(1, 200, NOTE)
    assert second == marker(part, "lines 40-64 stand in the read of /r/loom.py above", 29)
    assert [edit.evidence for edit in out.report.edits] == ["29 lines are in call a"]


@formats
def test_a_note_that_the_other_read_has_not_stays(format: str) -> None:
    part = arrow(40, 64, NOTE)
    _, (_, second) = compacts(format, "go", read("a", arrow(1, 200)), read("b", part, 40, 25))
    why = "lines 40-64 stand in the read of /r/loom.py above"
    assert second == marker(part, why, 25, 29) + NOTE


@formats
def test_an_old_range_that_stands_in_a_later_read(format: str) -> None:
    part = arrow(40, 64)
    steps = ("go", read("a", part, 40, 25), read("b", arrow(1, 200)))
    _, before = compacts(format, *steps)
    assert before == [part, arrow(1, 200)], "the later one has not been seen yet"
    _, (first, second, _) = compacts(format, *steps, DONE)
    assert first == marker(part, "lines 40-64 stand in the read of /r/loom.py further down", 25)
    assert second == arrow(1, 200)


@formats
def test_of_reads_inside_one_another_all_name_the_largest(format: str) -> None:
    policy = EAGER.replace(reevaluate_tokens=100_000)
    steps = (read("a", arrow(50, 60), 50, 11), read("b", arrow(40, 90), 40, 51))
    before = request(format, "go", *steps, read("c", arrow(1, 200)), DONE)
    folded = fold_request(
        before,
        format=format,
        policy=policy,
        facts=Facts(),
        memo=None,
        passes=(contained_results, covered_reads),
    )
    assert folded.state.edits.by_part == {}, "not evaluated yet"
    _, (first, second, third, _) = compacts(
        format, "go", [*steps[0], *steps[1], *read("c", arrow(1, 200))], DONE
    )
    assert "stand in the read of /r/loom.py further down;" in first
    assert "stand in the read of /r/loom.py further down;" in second
    assert third == arrow(1, 200)


@formats
def test_a_shell_s_frame_stays(format: str) -> None:
    """All of it that tells something: neither the tool's own ids do, nor that it took no time."""
    told = "Wall time: 7.1 seconds\nProcess exited with code 0\nOutput:\n"
    head = "Chunk ID: {}\n" + told
    whole, part = head.format("aa11") + bare(1, 200), head.format("bb22") + bare(10, 60)
    steps = (
        shell("a", "cat /r/loom.py", whole),
        shell("b", "sed -n 10,60p /r/loom.py", part),
    )
    _, (_, second) = compacts(format, "go", *steps)
    why = "lines 10-60 stand in the read of /r/loom.py above"
    assert second == told + marker(part, why, 51, 55)


@formats
def test_the_same_read_again_with_another_frame(format: str) -> None:
    head = "Chunk ID: {}\nWall time: {} seconds\nProcess exited with code 0\nOutput:\n"
    first, again = (head.format(*one) + bare(1, 80) for one in (("aa", "0.1"), ("bb", "0.1")))
    command = "sed -n 1,80p /r/loom.py"
    _, (_, second) = compacts(format, "go", shell("a", command, first), shell("b", command, again))
    why = "lines 1-80 stand in the read of lines 1-80 of /r/loom.py above"
    assert second == "Process exited with code 0\nOutput:\n" + marker(again, why, 80, 84)


@formats
def test_numbers_may_be_missing_in_what_goes_and_not_in_what_stays(format: str) -> None:
    part = bare(40, 64)
    command = "sed -n 40,64p /r/loom.py"
    _, (_, second) = compacts(format, "go", read("a", arrow(1, 200)), shell("b", command, part))
    assert second == marker(part, "lines 40-64 stand in the read of /r/loom.py above", 25)
    steps = (shell("a", "cat /r/loom.py", bare(1, 200)), read("b", arrow(40, 64), 40, 25))
    out, _ = compacts(format, "go", *steps, DONE)
    assert out.report.edits == ()


def numbered(id: str, first: int, last: int) -> list[Exchange]:
    command = f"nl -ba /r/loom.py | sed -n {first},{last}p"
    return shell(id, command, tabbed(first, last))


def changed(id: str) -> list[Exchange]:
    text = arrow(40, 64).replace("weave_50", "unravel_50")
    return read(id, text, 40, 25)


CAT_X, CAT_Y = shell("a", "cat /r/x.py", bare(1, 200)), shell("b", "cat /r/y.py", bare(1, 50))
CAT, GREP = shell("a", "cat /r/loom.py", bare(1, 200)), shell("b", "grep f /r/loom.py", bare(1, 60))
KEPT = [
    ("paging on", [read("a", arrow(1, 100), 1, 100), read("b", arrow(101, 200), 101, 100)]),
    ("an overlap", [read("a", arrow(1, 100), 1, 100), read("b", arrow(60, 160), 60, 101)]),
    ("a step back", [read("a", arrow(60, 160), 60, 101), read("b", arrow(1, 100), 1, 100)]),
    ("an edit in between", [read("a", arrow(1, 200)), EDIT, read("b", arrow(40, 64), 40, 25)]),
    ("an edit after the range", [read("a", arrow(40, 64), 40, 25), EDIT, read("b", arrow(1, 200))]),
    ("anything in between", [read("a", arrow(1, 200)), UNKNOWN, read("b", arrow(40, 64), 40, 25)]),
    ("another text at those lines", [read("a", arrow(1, 200)), changed("b")]),
    ("another text before", [changed("a"), read("b", arrow(1, 200))]),
    ("other numbers", [read("a", arrow(1, 200)), numbered("b", 40, 64)]),
    ("a short range", [read("a", arrow(1, 200)), read("b", arrow(40, 43), 40, 4)]),
    ("another file", [CAT_X, CAT_Y]),
    ("two files at once", [read("a", arrow(1, 200)), shell("b", "cat /r/loom.py x", bare(1, 50))]),
    ("a search", [CAT, GREP]),
]  # fmt: skip


@formats
@pytest.mark.parametrize(("_name", "steps"), KEPT, ids=[one[0] for one in KEPT])
def test_what_stays(format: str, _name: str, steps: Any) -> None:
    out, _ = compacts(format, "go", *steps, DONE)
    assert out.report.edits == ()


@formats
def test_a_write_elsewhere_does_not_matter(format: str) -> None:
    elsewhere = [Exchange("ok", id="x", tool="Edit", args={**EDIT_ARGS, "file_path": "/r/x.py"})]
    steps = (read("a", arrow(1, 200)), elsewhere, read("b", arrow(40, 64), 40, 25))
    _, (_, _, last) = compacts(format, "go", *steps)
    assert find_marker(last) is not None


@formats
def test_nothing_leans_on_what_its_cap_will_clip(format: str) -> None:
    steps = (read("a", arrow(1, 200)), read("b", arrow(40, 64), 40, 25), DONE)
    out, _ = compacts(format, "go", *steps, policy=EAGER.replace(cap_chars=5_000))
    assert out.report.edits == ()


@formats
def test_a_read_that_is_named_is_not_taken_out_later(format: str) -> None:
    steps = (
        read("a", arrow(50, 60), 50, 11),
        read("b", arrow(40, 90), 40, 51),
        DONE,
        read("c", arrow(1, 200)),
        [Exchange("done", id="end")],
    )
    once, texts = compacts(format, "go", *steps)
    assert "stand in the read of lines 40-90 of /r/loom.py further down;" in texts[0]
    assert texts[1] == arrow(40, 90)
    folded = fold_request(
        once.request,
        format=format,
        policy=EAGER,
        facts=Facts(),
        memo=None,
        passes=(contained_results, covered_reads),
    )
    again = build_compaction(folded, once.request)
    assert again.report.edits == (), "nor when the projection itself comes back"
    assert again.request is once.request


@formats
def test_the_original_comes_back_by_its_reference(format: str) -> None:
    part = arrow(40, 64)
    steps = (read("a", arrow(1, 200)), read("b", part, 40, 25))
    out, (_, second) = compacts(format, "go", *steps)
    found = find_marker(second)
    assert found is not None
    assert respool.expand(found.ref, out) == part


LINE = st.sampled_from(["", "}", "    pass", "def weave(thread):", "return loom", "x = 1  ", "#"])


@given(st.lists(LINE, max_size=30), st.lists(LINE, max_size=30), st.lists(LINE, max_size=60))
def test_a_text_is_found_in_a_longer_one_and_not_in_a_shorter(
    head: list[str], tail: list[str], body: list[str]
) -> None:
    unique = [*body, "the one line that is like no other", *body]
    inner, outer = "\n".join(unique), "\n".join([*head, *unique, *tail])
    run = _find_contained_lines(inner, outer)
    assert run is not None
    assert (run.first, run.end) == (0, len(unique))
    assert "\n" not in run.replaced("x", "a" * 20)
    if any(line.strip() for line in (*head, *tail)):
        assert _find_contained_lines(outer, inner) is None
