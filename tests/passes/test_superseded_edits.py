"""The pass superseded_edits."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import respool
from respool.edits import DropExchange
from respool.markers import reference
from respool.passes.superseded_edits import superseded_edits, written_lines
from tests.effort import examples
from tests.support.coding_sessions import (
    bash,
    done,
    edit,
    hold_the_laws,
    read,
    run,
    run_on,
    write,
)
from tests.support.formats import FIELD, FORMATS, Exchange, request

formats = pytest.mark.parametrize("format", FORMATS)
A, B = "/w/loom.py", "/w/heddle.py"


def code(word: str, first: int = 1, last: int = 12) -> str:
    """Lines of code that occur nowhere else."""
    return "\n".join(f"    {word}_{n}(cloth, {n})" for n in range(first, last + 1))


WARP, WEFT, WOOF = code("warp"), code("weft"), code("woof")


def patch(path: str, old: str, new: str, id: str, **about: Any) -> Exchange:
    """A change by Codex's tool, whose arguments are a patch."""
    body = [*(f"-{line}" for line in old.split("\n")), *(f"+{line}" for line in new.split("\n"))]
    text = "\n".join(("*** Begin Patch", f"*** Update File: {path}", "@@", *body, "*** End Patch"))
    said = about.pop("result", f"Success. Updated the following files:\nM {path}\n")
    return Exchange(said, tool="apply_patch", id=id, args={"input": text}, **about)


def dropped(format: str, *steps: Any, keep: int = 0) -> list[int]:
    """The exchanges that went; what is left is what the provider accepts."""
    out = run(superseded_edits, format, *steps, done(), keep=keep)
    assert [p for p in respool.check(out.request, format=format) if p.severity == "error"] == []
    edits = [edit for edit in out.report.edits if isinstance(edit, DropExchange)]
    assert len(edits) == len(out.report.edits)
    return [edit.exchange for edit in edits]


@formats
@pytest.mark.parametrize("change", [edit, patch])
def test_an_edit_whose_lines_were_replaced_goes(format: str, change: Any) -> None:
    steps = [change(A, WARP, WEFT, "e1")], [change(A, WEFT, WOOF, "e2")]
    out = run(superseded_edits, format, *steps, done())
    sent = json.dumps(out.request)
    assert "warp_7" not in sent
    assert "woof_7" in sent
    assert '"e1"' not in sent, "its result goes along"


@formats
def test_the_report_says_why_and_counts_what_goes(format: str) -> None:
    steps = [patch(A, WARP, WEFT, "e1")], [patch(A, WEFT, WOOF, "e2")]
    out = run(superseded_edits, format, *steps, done())
    (one,) = out.report.edits
    said = "12 lines for /w/loom.py were written again or removed, last by call e2"
    assert (one.reason, one.evidence) == ("overwritten", said)
    assert out.report.tokens_before - out.report.tokens_after == one.saved


@formats
def test_its_original_is_kept(format: str) -> None:
    steps = [edit(A, WARP, WEFT, "e1")], [edit(A, WEFT, WOOF, "e2")]
    out = run(superseded_edits, format, *steps, done())
    assert any("warp_7" in text for text in out.originals.values())
    assert all(reference(text) == ref for ref, text in out.originals.items())


FAILED = {"result": "Error: the text to replace was not found.", "error": True}


@formats
@pytest.mark.parametrize(
    ("first", "then", "goes"),
    [
        (edit(A, WARP, WEFT, "e1"), edit(A, WEFT, WOOF, "e2"), True),
        (edit(A, WARP, WEFT, "e1"), write(A, WEFT, "w2"), True),
        (edit(A, WARP, WEFT, "e1"), write(A, WOOF, "w2"), False),
        (write(A, WARP, "w1"), edit(A, WARP, WEFT, "e2"), True),
        (edit(A, WARP, WEFT, "e1"), edit(A, code("weft", 1, 11), WOOF, "e2"), False),
        (edit(A, WARP, WEFT, "e1"), edit(B, WEFT, WOOF, "e2"), False),
        (edit(A, WARP, WEFT, "e1"), edit(A, WEFT, WOOF, "e2", **FAILED), False),
        (edit(A, WARP, WEFT, "e1", **FAILED), edit(A, WARP, WEFT, "e2"), True),
        (edit(A, WARP, WEFT, "e1", **FAILED), edit(A, WARP, WEFT, "e2", **FAILED), False),
        (edit(A, WARP, WEFT, "e1"), read(A, WEFT, "r1"), False),
        (edit(A, WARP, "", "e1"), edit(A, WEFT, WOOF, "e2"), False),
        (edit(A, "warp", "weft", "e1"), edit(A, "weft", "woof", "e2"), False),
    ],
    ids=[
        "replaced", "in a whole write", "another whole write", "a write edited", "one line stays",
        "another file", "by one that failed", "failed, then done", "failed twice", "only read",
        "a deletion", "short",
    ],
)  # fmt: skip
def test_only_a_write_of_which_later_ones_name_every_line_goes(
    format: str, first: Exchange, then: Exchange, goes: bool
) -> None:
    assert dropped(format, [first], [then]) == ([0] if goes else [])


@formats
def test_several_later_writes_together_overwrite_one(format: str) -> None:
    first, half, rest = (
        edit(A, WARP, WEFT, "e1"),
        edit(A, code("weft", 1, 6), WOOF, "e2"),
        edit(A, code("weft", 7, 12), code("wool"), "e3"),
    )
    assert dropped(format, [first], [half]) == []
    assert dropped(format, [first], [half], [rest]) == [0]


@formats
def test_of_a_chain_of_edits_the_last_stays(format: str) -> None:
    words = ["warp", "weft", "woof", "wool", "yarn"]
    steps = [[edit(A, code(old), code(new), f"e{new}")] for old, new in pairwise(words)]
    assert dropped(format, *steps) == [0, 1, 2]


@formats
def test_a_command_that_did_more_than_write_stays(format: str) -> None:
    command = f"cat > {A} <<'EOF'\n{WARP}\nEOF"
    again = [bash(command, "", "c2")]
    assert dropped(format, [bash(command, "", "c1")], again) == [0]
    tested = bash(f"{command}\npytest -q", "3 passed", "c1")
    assert dropped(format, [tested], again) == []


@formats
def test_recency_the_latest_exchanges_stay(format: str) -> None:
    steps = ([edit(A, WARP, WEFT, "e1")], [edit(A, WEFT, WOOF, "e2")])
    assert dropped(format, *steps, keep=2) == []
    assert dropped(format, *steps, done("d1"), keep=2) == [0], "the later one is recent still"


@formats
def test_what_was_not_seen_yet_overwrites_nothing(format: str) -> None:
    out = run(superseded_edits, format, [edit(A, WARP, WEFT, "e1")], [edit(A, WEFT, WOOF, "e2")])
    assert out.report.edits == ()


@formats
def test_one_of_parallel_calls_goes_alone(format: str) -> None:
    together = [edit(A, WARP, WEFT, "e1"), read(B, WARP, "r1")]
    assert dropped(format, together, [edit(A, WEFT, WOOF, "e2")]) == [0]


def test_locked_units_stay_whole() -> None:
    """In Responses reasoning binds all calls behind it: none of them can go alone."""
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "eA=="}
    together = [edit(A, WARP, WEFT, "e1"), read(B, WARP, "r1")]
    body = request("openai-responses", "go", together, [edit(A, WEFT, WOOF, "e2")], done())
    body["input"].insert(1, reasoning)
    assert run_on(superseded_edits, "openai-responses", body).report.edits == ()


PATCH = """\
*** Begin Patch
*** Update File: a
@@ def
 kept()
-warp()
+weft()
woof()
*** End Patch"""


@pytest.mark.parametrize(
    ("arguments", "added", "named"),
    [
        ({"path": "a.py", "new_string": "  weft()\n}", "old_string": "warp()"},
         ["weft()"], ["warp()", "weft()"]),
        ({"edits": [{"oldText": "warp()", "newText": "weft()"}]}, ["weft()"], ["warp()", "weft()"]),
        ({"command": "tee a <<E\nweft()\nE", "description": "Write it."},
         ["tee a <<E", "weft()"], ["tee a <<E", "weft()"]),
        ({"content": "How to patch:\n\n\n\n\n*** Begin Patch\n*** Add File: a\n weft()"},
         ["*** Add File: a", "*** Begin Patch", "How to patch:", "weft()"],
         ["*** Add File: a", "*** Begin Patch", "How to patch:", "weft()"]),
        ({"command": ["bash", "-lc", f"apply_patch <<'P'\n{PATCH}\nP\nmake all"]},
         ["make all", "weft()", "woof()"], ["make all", "warp()", "weft()", "woof()"]),
    ],
    ids=["edit", "edits", "command", "a patch quoted", "a patch in a command"],
)  # fmt: skip
def test_the_lines_of_a_call(arguments: Any, added: list[str], named: list[str]) -> None:
    lines = written_lines(json.dumps(arguments))
    assert (sorted(lines.added), sorted(lines.named)) == (added, named)


@st.composite
def _overwriting(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A session of writes of a few texts into two files, so that many overwrite one another."""
    format, texts = draw(st.sampled_from(FORMATS)), st.sampled_from([WARP, WEFT, WOOF])
    steps: list[Any] = []
    for number in range(draw(st.integers(2, 9))):
        path, old, new = draw(st.sampled_from([A, B])), draw(texts), draw(texts)
        about = FAILED if draw(st.integers(0, 4)) == 0 else {}
        change = draw(st.sampled_from([edit, patch]))
        step = [change(path, old, new, f"e{number}", **about)]
        if draw(st.booleans()):
            step.append(write(path, new, f"w{number}"))
        steps.append(step)
    return format, request(format, "Weave.", *steps, done())


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_overwriting())
def test_the_laws_hold(session: tuple[str, dict[str, Any]]) -> None:
    hold_the_laws(superseded_edits, *session, FIELD[session[0]])
