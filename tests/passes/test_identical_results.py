"""The pass identical_results."""

from __future__ import annotations

from typing import Any

import pytest

import respool
from respool.edits import Replace
from respool.engine import Compaction, build_compaction, fold_request
from respool.facts import Facts
from respool.history.failures import MAX_OPEN_ERROR_CHARS
from respool.markers import OmissionMarker, find_marker, reference
from respool.passes.cap_results import cap_results
from respool.passes.identical_results import identical_results
from respool.passes.tidy_results import tidy_results
from respool.policy import Policy
from tests.support.formats import FIELD, FORMATS, PIXEL, Exchange, request, results

formats = pytest.mark.parametrize("format", FORMATS)
EAGER = Policy(
    cap_chars=None, reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, keep_exchanges=0
)
LINES = "".join(f"src/part_{number}.py:{number}: thread_end = loom()\n" for number in range(40))
REF = reference(LINES)

RUN: dict[str, Any] = {"tool": "Bash", "args": {"command": "pytest -q"}}
FIND: dict[str, Any] = {"tool": "Grep", "args": {"pattern": "loom", "output_mode": "content"}}
READ: dict[str, Any] = {"tool": "Read", "args": {"file_path": "/r/loom.py"}}
EDIT: dict[str, Any] = {
    "tool": "Edit",
    "args": {"file_path": "/r/loom.py", "old_string": "a", "new_string": "b"},
}
EDIT_OTHER: dict[str, Any] = {
    "tool": "Edit",
    "args": {"file_path": "/r/other.py", "old_string": "a", "new_string": "b"},
}
LOOK: dict[str, Any] = {"tool": "Bash", "args": {"command": "ls"}}
SOURCES = {
    ("Bash", "pytest -q"): "the run of pytest",
    ("Grep", None): "the search for loom",
    ("Read", None): "the read of /r/loom.py",
    ("Bash", "ls"): "the run of ls",
}
UNKNOWN: dict[str, Any] = {"tool": "mystery", "args": {"x": 1}}


def compacts(
    format: str, *steps: Any, passes: Any = (identical_results,), policy: Policy = EAGER
) -> tuple[Compaction[Any], list[str]]:
    """The request under these passes, and its results."""
    before = request(format, *steps)
    out = build_compaction(
        fold_request(before, format=format, policy=policy, facts=Facts(), memo=None, passes=passes),
        before,
    )
    assert respool.check(out.request, format=format) == []
    assert out.report.failures == {}
    return out, results(format, out.request)


def twice(about: dict[str, Any], *between: list[Exchange], text: str = LINES) -> tuple[Any, ...]:
    first, second = Exchange(text, id="call_1", **about), Exchange(text, id="call_9", **about)
    return ("go", [first], *between, [second])


@formats
@pytest.mark.parametrize("about", [RUN, FIND, READ, LOOK], ids=["run", "find", "read", "list"])
def test_the_later_of_two_names_the_first(format: str, about: dict[str, Any]) -> None:
    _, (first, second) = compacts(format, *twice(about))
    assert first == LINES
    source = SOURCES[about["tool"], about["args"].get("command")]
    assert second == f"[respool: 40 lines left out, the same as in {source} above; ref {REF}]"


@formats
def test_it_is_so_from_its_first_request_on(format: str) -> None:
    _, before = compacts(format, *twice(RUN))
    _, after = compacts(format, *twice(RUN), [Exchange("done", id="call_10")])
    assert after[:2] == before


@formats
def test_all_later_ones_name_the_first(format: str) -> None:
    steps = [[Exchange(LINES, id=f"call_{number}", **FIND)] for number in range(5)]
    out, (first, *others) = compacts(format, "go", *steps)
    assert first == LINES
    assert len(set(others)) == 1
    assert "the same as in the search for loom above;" in others[0]
    assert [edit.evidence for edit in out.report.edits] == [
        f"same as call call_0, {len(LINES):,} chars"
    ] * 4


@formats
def test_parallel_copies_name_the_first_of_them(format: str) -> None:
    step = [Exchange(LINES, id=f"call_{number}", **FIND) for number in range(3)]
    out, (first, *others) = compacts(format, "go", step)
    assert first == LINES
    assert all("the same as in the search for loom above;" in other for other in others)
    assert all("same as call call_0," in edit.evidence for edit in out.report.edits)


@formats
def test_two_tools_may_say_the_same(format: str) -> None:
    steps = ([Exchange(LINES, id="call_1", **FIND)], [Exchange(LINES, id="call_2", **RUN)])
    _, (first, second) = compacts(format, "go", *steps)
    assert first == LINES
    assert find_marker(second) is not None


KEPT = [
    ("tests before and after an edit", RUN, EDIT),
    ("a search before and after an edit", FIND, EDIT_OTHER),
    ("a file that was edited", READ, EDIT),
    ("a read before and after what may do anything", READ, UNKNOWN),
    ("tests before and after what may do anything", RUN, UNKNOWN),
]


@formats
@pytest.mark.parametrize(("_name", "about", "between"), KEPT, ids=[one[0] for one in KEPT])
def test_a_write_in_between_makes_it_another_result(
    format: str, _name: str, about: dict[str, Any], between: dict[str, Any]
) -> None:
    out, texts = compacts(format, *twice(about, [Exchange("ok", id="call_5", **between)]))
    assert [texts[0], texts[2]] == [LINES, LINES]
    assert out.report.edits == ()


@formats
def test_a_write_elsewhere_leaves_a_read_what_it_was(format: str) -> None:
    steps = twice(READ, [Exchange("ok", id="call_5", **EDIT_OTHER)])
    _, (_, _, second) = compacts(format, *steps)
    assert find_marker(second) is not None


@formats
def test_after_a_write_the_first_copy_since_is_named(format: str) -> None:
    steps = (
        *twice(RUN, [Exchange("ok", id="call_5", **EDIT)]),
        [Exchange(LINES, id="call_10", **RUN)],
        [Exchange(LINES, id="call_11", **RUN)],
    )
    out, texts = compacts(format, *steps)
    assert texts[2] == LINES
    assert find_marker(texts[3]) == find_marker(texts[4]) is not None
    assert all("same as call call_9," in edit.evidence for edit in out.report.edits)


@formats
@pytest.mark.parametrize(
    ("text", "goes"),
    [("x" * 255, False), ("one\n" * 90, True), ("あ" * 85, False), ("一二三四五六" * 20, True)],
)
def test_short_results_stay(format: str, text: str, goes: bool) -> None:
    _, (_, second) = compacts(format, *twice(RUN, text=text))
    assert (find_marker(second) is not None) is goes


@formats
def test_one_long_line_is_told_in_characters(format: str) -> None:
    text = '{"thread": "loom"}, ' * 40
    _, (_, second) = compacts(format, *twice(RUN, text=text))
    assert second.startswith(
        "[respool: 800 chars left out, the same as in the run of pytest above;"
    )


@formats
def test_one_character_makes_it_another_result(format: str) -> None:
    steps = ([Exchange(LINES, id="a", **RUN)], [Exchange(LINES + ".", id="b", **RUN)])
    out, _ = compacts(format, "go", *steps)
    assert out.report.edits == ()


@formats
def test_the_original_comes_back_by_its_reference(format: str) -> None:
    out, (_, second) = compacts(format, *twice(RUN))
    marker = find_marker(second)
    assert isinstance(marker, OmissionMarker)
    assert respool.expand(marker.ref, out) == LINES


@pytest.mark.parametrize("format", ["anthropic", "openai-responses", "gemini"])
def test_images_in_a_mixed_result_stay(format: str) -> None:
    step = [Exchange(LINES, id="call_9", image=True, **RUN)]
    out, (_, second) = compacts(format, "go", [Exchange(LINES, id="call_1", **RUN)], step)
    assert find_marker(second) is not None
    assert PIXEL in str(out.request[FIELD[format]])


TRACE = "\n".join(["Exit code 1", *(LINES * 3).splitlines(), "ValueError: no thread"])
assert len(TRACE) > MAX_OPEN_ERROR_CHARS  # shorter ones stay as they are while they are open


def failing(text: str) -> tuple[Any, ...]:
    first, second = (Exchange(text, id=id, error=True, **RUN) for id in ("call_1", "call_9"))
    return ("go", [first], [second])


@pytest.mark.parametrize("format", ["anthropic", "gemini"])
def test_a_second_failure_still_says_that_it_failed_and_how(format: str) -> None:
    _, (first, second) = compacts(format, *failing(TRACE))
    assert first == TRACE
    assert second == (
        "Exit code 1\n"
        "[respool: 120 of 122 lines left out, the same as in the run of pytest above; "
        f"ref {reference(TRACE)}]\n"
        "ValueError: no thread"
    )


@pytest.mark.parametrize("format", ["anthropic", "gemini"])
@pytest.mark.parametrize(
    "text", ["error: " + "x" * 5_000, "a\nb\n" + "c" * 5_000, TRACE + "y" * 400]
)
def test_a_failure_that_cannot_be_told_shorter_stays(format: str, text: str) -> None:
    out, _ = compacts(format, *failing(text))
    assert out.report.edits == ()


@pytest.mark.parametrize("format", ["anthropic", "gemini"])
def test_a_short_failure_stays_as_it_is(format: str) -> None:
    out, _ = compacts(format, *failing(f"Exit code 1\n{LINES}"))
    assert out.report.edits == ()


@formats
def test_a_short_failure_stays_whoever_hides_its_exit_code(format: str) -> None:
    about: Any = {"tool": "Bash", "args": {"command": "pytest | tail -90"}}
    calls = [Exchange(f"{LINES}\n1 failed in 0.2s", id=id, **about) for id in ("call_1", "call_9")]
    out, _ = compacts(format, "go", *([call] for call in calls))
    assert out.report.edits == ()


@formats
def test_nothing_leans_on_a_copy_that_its_cap_will_clip(format: str) -> None:
    policy = EAGER.replace(cap_chars=600)
    steps = (*twice(RUN), [Exchange("done", id="call_10")])
    _, texts = compacts(format, *steps, passes=(identical_results, cap_results), policy=policy)
    assert all(len(text) <= 600 for text in texts)
    assert all("the same as" not in text for text in texts)


@formats
def test_a_copy_that_is_leaned_on_stays_whole(format: str) -> None:
    policy = EAGER.replace(cap_chars=10_000)
    steps = (*twice(RUN), [Exchange("done", id="call_10")])
    before = request(format, *steps)
    folded = fold_request(
        before, format=format, policy=policy, facts=Facts(), memo=None, passes=(identical_results,)
    )
    assert list(folded.state.edits.dependencies.values()) == [(folded.state.transcript.results[0],)]


@formats
def test_a_tidied_copy_still_stands(format: str) -> None:
    text = LINES.replace("loom", "\x1b[31mloom\x1b[0m")
    passes = (tidy_results, identical_results)
    _, (first, second) = compacts(format, *twice(RUN, text=text), passes=passes)
    assert first == LINES
    assert "the same as in the run of pytest above" in second


@formats
def test_a_result_that_is_a_marker_already_is_left(format: str) -> None:
    marked = f"{LINES}{OmissionMarker(12, 'lines', REF)}"
    out, _ = compacts(format, *twice(RUN, text=marked))
    assert out.report.edits == ()


@formats
def test_twice_is_once(format: str) -> None:
    steps = (*twice(RUN), *twice(READ)[1:], [Exchange("done", id="call_10")])
    once, _ = compacts(format, *steps)
    assert once.report.edits
    folded = fold_request(
        once.request,
        format=format,
        policy=EAGER,
        facts=Facts(),
        memo=None,
        passes=(identical_results,),
    )
    again = build_compaction(folded, once.request)
    assert again.report.edits == ()
    assert again.request is once.request


def test_a_call_whose_id_came_again_is_named_by_its_number() -> None:
    steps = ("go", [Exchange(LINES, id="same", **RUN)], [Exchange(LINES, id="same", **RUN)])
    before = request("gemini", *steps)
    folded = fold_request(
        before, format="gemini", policy=EAGER, facts=Facts(), memo=None, passes=(identical_results,)
    )
    (edit,) = build_compaction(folded, before).report.edits
    assert isinstance(edit, Replace)
    assert "same as call no. 1," in edit.evidence


def test_many_copies_cost_no_more_than_few() -> None:
    steps = [[Exchange(LINES, id=f"call_{number}", **FIND)] for number in range(400)]
    out, _ = compacts("anthropic", "go", *steps)
    assert len(out.report.edits) == 399
