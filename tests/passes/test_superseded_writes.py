"""The pass superseded_writes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import respool
from respool.edits import DropExchange
from respool.markers import reference
from respool.passes.superseded_writes import superseded_writes
from tests.effort import examples
from tests.support.coding_sessions import (
    bash,
    done,
    edit,
    hold_the_laws,
    lines,
    read,
    run,
    sessions,
    write,
)
from tests.support.formats import FIELD, FORMATS

formats = pytest.mark.parametrize("format", FORMATS)
A, B = "/w/loom.py", "/w/heddle.py"
OLD, NEW = lines(1, 20, "warp"), lines(1, 20, "weft")


def dropped(format: str, *steps: Any, keep: int = 0) -> list[int]:
    """The exchanges that went; what is left is what the provider accepts."""
    out = run(superseded_writes, format, *steps, done(), keep=keep)
    assert [p for p in respool.check(out.request, format=format) if p.severity == "error"] == []
    edits = [edit for edit in out.report.edits if isinstance(edit, DropExchange)]
    assert len(edits) == len(out.report.edits)
    return [edit.exchange for edit in edits]


@formats
def test_an_earlier_write_of_a_file_that_was_written_again_goes(format: str) -> None:
    out = run(superseded_writes, format, [write(A, OLD, "w1")], [write(A, NEW, "w2")], done())
    sent = json.dumps(out.request)
    assert "warp_7" not in sent
    assert "weft_7" in sent
    assert '"w1"' not in sent, "a pruned call takes its result along"


@formats
def test_the_report_says_why_and_counts_what_goes(format: str) -> None:
    out = run(superseded_writes, format, [write(A, OLD, "w1")], [write(A, NEW, "w2")], done())
    (one,) = out.report.edits
    assert one.reason == "superseded"
    assert one.evidence.startswith("/w/loom.py was wholly written again by call w2, ")
    assert out.report.tokens_before - out.report.tokens_after == one.saved


@formats
def test_its_original_is_kept(format: str) -> None:
    out = run(superseded_writes, format, [write(A, OLD, "w1")], [write(A, NEW, "w2")], done())
    assert any("warp_7" in text for text in out.originals.values())
    assert all(reference(text) == ref for ref, text in out.originals.items())


@formats
def test_an_edit_is_not_a_superseding_write(format: str) -> None:
    assert dropped(format, [write(A, OLD, "w1")], [edit(A, "warp_3", NEW, "e1")]) == []


@formats
def test_an_edit_is_not_superseded(format: str) -> None:
    assert dropped(format, [edit(A, OLD, "x" * 400, "e1")], [write(A, NEW, "w1")]) == []


@formats
@pytest.mark.parametrize(
    ("command", "gone"),
    [
        ("cat > {} <<'E'\n{}\nE", [0]),
        ("mkdir -p d && cat > {} <<'E'\n{}\nE", []),  # a folder is written, too, in part
        ("[ -f {0} ] || cat > {0} <<'E'\n{1}\nE", []),
        ("if [ -n \"$X\" ]; then cat > {} <<'E'\n{}\nE\nfi", []),
        ("test -w d && cat > {} <<'E'\n{}\nE", []),
        ("cat >> {} <<'E'\n{}\nE", []),
    ],
)
def test_a_command_supersedes_only_if_it_surely_wrote_all(
    format: str, command: str, gone: list[int]
) -> None:
    again = bash(command.format(A, NEW), "", "c1")
    assert dropped(format, [write(A, OLD, "w1")], [again]) == gone


@formats
def test_of_many_writes_the_last_stays(format: str) -> None:
    steps = [[write(A, lines(1, 20, f"v{number}"), f"w{number}")] for number in range(5)]
    assert dropped(format, *steps) == [0, 1, 2, 3]


@formats
def test_a_write_that_failed_supersedes_nothing(format: str) -> None:
    failed = write(A, NEW, "w2", result="Error: read-only file system", error=True)
    assert dropped(format, [write(A, OLD, "w1")], [failed]) == []


@formats
@pytest.mark.parametrize(("path", "gone"), [("loom.py", 0), ("/w/loom.py", 1)])
def test_a_name_may_be_another_file_in_another_folder(format: str, path: str, gone: int) -> None:
    first, then = (
        bash(f"cat > {path} <<'E'\n{text}\nE", "", id) for text, id in ((OLD, "w1"), (NEW, "w2"))
    )
    assert len(dropped(format, [first], [then])) == 1
    assert len(dropped(format, [first], [bash("cd sub", "", "c1")], [then])) == gone


@formats
def test_a_write_that_was_refused_supersedes_nothing_where_no_flag_tells(format: str) -> None:
    refused = write(A, NEW, "w2", result="File has not been read yet. Read it first.")
    assert dropped(format, [write(A, OLD, "w1")], [refused]) == []


@formats
def test_a_write_that_failed_is_an_error_and_stays(format: str) -> None:
    failed = write(A, OLD, "w1", result="Error: read-only file system", error=True)
    assert dropped(format, [failed], [write(A, NEW, "w2")]) == []


@formats
def test_another_file_is_another_write(format: str) -> None:
    assert dropped(format, [write(A, OLD, "w1")], [write(B, NEW, "w2")]) == []


@formats
@pytest.mark.parametrize(
    "more",
    ["", "\npytest -q", "\npython /w/loom.py", f"\ncat {B}"],
    ids=["only writes", "tests", "runs", "shows"],
)
def test_a_command_that_did_more_than_write_stays(format: str, more: str) -> None:
    command = f"cat > {A} <<'EOF'\n{OLD}\nEOF{more}"
    gone = dropped(format, [bash(command, "3 passed", "b1")], [write(A, NEW, "w2")])
    assert gone == ([] if more else [0])


@formats
@pytest.mark.parametrize("command", [f"rm {A}", f"cp {B} {A}", f"echo > {A}"])
def test_a_write_whose_text_is_not_in_its_arguments_supersedes_nothing(
    format: str, command: str
) -> None:
    assert dropped(format, [write(A, OLD, "w1")], [bash(command, "", "b1")]) == []


@formats
def test_several_files_go_only_when_all_were_written_again(format: str) -> None:
    command = f"cat > {A} <<'EOF'\n{OLD}\nEOF\ncat > {B} <<'EOF'\n{OLD}\nEOF"
    both = bash(command, "", "b1")
    assert dropped(format, [both], [write(A, NEW, "w1")]) == []
    assert dropped(format, [both], [write(A, NEW, "w1")], [write(B, NEW, "w2")]) == [0]


@formats
def test_reads_in_between_stay(format: str) -> None:
    shown = read(A, OLD, "r1")
    assert dropped(format, [write(A, OLD, "w1")], [shown], [write(A, NEW, "w2")]) == [0]


@formats
def test_recency_the_latest_exchanges_stay(format: str) -> None:
    steps = ([write(A, OLD, "w1")], [write(A, NEW, "w2")])
    assert dropped(format, *steps, keep=2) == []
    assert dropped(format, *steps, done("d1"), keep=2) == [0], "once it has left the window"


@formats
def test_part_level_one_of_parallel_calls_goes_alone(format: str) -> None:
    together = [write(A, OLD, "w1"), read(B, OLD, "r1")]
    assert dropped(format, together, [write(A, NEW, "w2")]) == [0]


@formats
def test_what_was_not_seen_yet_supersedes_nothing(format: str) -> None:
    out = run(superseded_writes, format, [write(A, OLD, "w1")], [write(A, NEW, "w2")])
    assert out.report.edits == ()


def thinking(id: str, path: str, text: str) -> list[Any]:
    """A turn of Claude's that thinks before it writes."""
    thought = {"type": "thinking", "thinking": "I shall write it.", "signature": "c2lnbmVk"}
    call = {
        "type": "tool_use", "id": id, "name": "Write",
        "input": {"file_path": path, "content": text},
    }  # fmt: skip
    answer = {"type": "tool_result", "tool_use_id": id, "content": "File written."}
    return [
        {"role": "assistant", "content": [thought, call]},
        {"role": "user", "content": [answer]},
    ]


@pytest.mark.parametrize(
    ("model", "goes"),
    [("claude-opus-4-5", True), ("claude-opus-5-5", False), ("a-model-nobody-knows", False)],
)
def test_bound_reasoning_is_not_taken_along(model: str, goes: bool) -> None:
    from tests.support.coding_sessions import run_on

    history = [{"role": "user", "content": "go"}]
    for id, text in (("w1", OLD), ("w2", NEW), ("w3", NEW)):
        history += thinking(id, A if id != "w3" else B, text)
    body = {
        "model": model, "max_tokens": 100, "messages": history,
        "tools": [{"name": "Write", "input_schema": {"type": "object"}}],
    }  # fmt: skip
    out = run_on(superseded_writes, "anthropic", body)
    assert bool(out.report.edits) is goes
    assert respool.check(out.request) == []


def test_locked_units_stay_whole() -> None:
    """In Responses reasoning binds all calls behind it: none of them can go alone."""
    from tests.support.coding_sessions import run_on
    from tests.support.formats import request

    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "eA=="}
    body = request(
        "openai-responses",
        "go",
        [write(A, OLD, "w1"), read(B, OLD, "r1")],
        [write(A, NEW, "w2")],
        done(),
    )
    body["input"].insert(1, reasoning)
    assert run_on(superseded_writes, "openai-responses", body).report.edits == ()


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sessions)
def test_the_laws_hold(session: tuple[str, dict[str, Any]]) -> None:
    hold_the_laws(superseded_writes, *session, FIELD[session[0]])


def responses_of(*writes: str) -> dict[str, Any]:
    """Writes of one file, each after encrypted reasoning, in the Responses wire."""
    items: list[dict[str, Any]] = [{"role": "user", "content": "Write it."}]
    for at, text in enumerate(writes):
        given = json.dumps({"file_path": A, "content": text} if text else {"command": "ls"})
        call = {"name": "Write" if text else "Bash", "arguments": given, "call_id": f"w{at}"}
        items += [
            {
                "type": "reasoning",
                "id": f"rs_{at}",
                "summary": [],
                "encrypted_content": f"Z0FB{at}" * 40,
            },
            {"type": "function_call", "id": f"fc_{at}", **call},
            {"type": "function_call_output", "call_id": f"w{at}", "output": "done"},
        ]
    return {"model": "gpt-5.2", "input": items}


@pytest.mark.parametrize("between", [0, 6])  # 6: its reasoning is gone before it is superseded
def test_a_write_goes_whether_its_reasoning_is_old_or_gone(between: int) -> None:
    policy = respool.Policy(
        eager=True,
        keep_exchanges=2,
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        passes=("superseded_writes", "old_reasoning"),
    )
    request = responses_of(OLD, *[""] * between, NEW, "", "", "")
    out = respool.compact(request, policy=policy)
    sent = json.dumps(out.request)
    assert "warp_7" not in sent
    assert "weft_7" in sent
    assert '"rs_0"' not in sent
    assert respool.check(out.request) == []
    reasons = [edit.reason for edit in out.report.edits]
    assert reasons.count("superseded") == 1
    assert "old_reasoning" in reasons
