"""The pass stub_results."""

from __future__ import annotations

from typing import Any

import pytest

import respool
from respool import Policy, Tools
from respool.edits import Replace
from respool.engine import Compaction, build_compaction, fold_request
from respool.facts import Facts
from respool.markers import OmissionMarker, find_marker
from respool.passes.stub_results import stub_results
from tests.support.formats import FIELD, FORMATS, PIXEL, Exchange, request, results

formats = pytest.mark.parametrize("format", FORMATS)
TOOL = {
    "anthropic": "Bash",
    "openai-chat": "shell",
    "openai-responses": "shell",
    "gemini": "run_shell_command",
}
CODE = "\n".join(f"def thread_{number}(spool): return spool.turn({number})" for number in range(40))
LOG = "\n".join(f"compiling unit {number} of the whole lot" for number in range(60))


def stubbed(
    format: str, *steps: Any, keep: int = 1, verbatim: bool = True
) -> tuple[Compaction[Any], list[str]]:
    """The request after compaction at every boundary, and its results."""
    policy = Policy(
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        eager=True,
        keep_exchanges=keep,
        errors_verbatim=verbatim,
    )
    source = request(format, *steps)
    folded = fold_request(
        source, format=format, policy=policy, facts=Facts(), memo=None, passes=(stub_results,)
    )
    out = build_compaction(folded, source)
    assert out.report.failures == {}
    assert respool.check(out.request, format=format) == []
    return out, results(format, out.request)


def ran(format: str, command: str, printed: str, id: str = "call_1", **about: Any) -> Exchange:
    return Exchange(printed, tool=TOOL[format], id=id, args={"command": command}, **about)


def then_others(format: str, *first: Exchange) -> tuple[Any, ...]:
    """A session in which these exchanges are old."""
    later = [[ran(format, f"echo {number}", "done", f"later_{number}")] for number in range(3)]
    return ("go", *([one] for one in first), *later)


CASES = {
    "a file": ("cat src/app.py", CODE, "read src/app.py, 40 lines", "40 lines left out; safe"),
    "lines of it": (
        "sed -n '100,139p' src/app.py", CODE, "read src/app.py, lines 100-139", "40 lines left out",
    ),
    "a run": ("make", f"{LOG}\n41 tests passed", "ran make; 41 tests passed", "61 lines"),
    "a search": (
        "rg -n turn src", "\n".join(f"src/m{n % 3}.py:{n}: spool.turn({n})" for n in range(41)),
        "ran rg -n turn src: 41 hits in 3 files", "41 lines left out",
    ),
    "a change": ("sed -i s/a/b/ src/app.py", LOG, "changed src/app.py", "60 lines left out"),
}  # fmt: skip


@formats
@pytest.mark.parametrize(("command", "printed", "line", "marked"), CASES.values(), ids=CASES)
def test_an_old_result_becomes_a_line(
    format: str, command: str, printed: str, line: str, marked: str
) -> None:
    out, (first, *_) = stubbed(format, *then_others(format, ran(format, command, printed)))
    told, marker = first.split("\n")
    assert told == line
    assert marked in marker
    found = find_marker(first)
    assert isinstance(found, OmissionMarker)
    assert respool.expand(found.ref, out) == printed


@formats
def test_recent_results_stay_whole(format: str) -> None:
    steps = then_others(format, ran(format, "cat a.py", CODE), ran(format, "cat b.py", CODE, "b"))
    _, texts = stubbed(format, *steps, keep=4)
    assert texts[1] == CODE
    _, texts = stubbed(format, *steps, keep=6)
    assert texts[0] == CODE


@formats
def test_to_keep_none_means_none_not_all(format: str) -> None:
    steps = ("go", [ran(format, "cat a.py", CODE)], [ran(format, "echo", "done", "b")])
    _, (first, last) = stubbed(format, *steps, keep=0)
    assert first.startswith("read a.py")
    assert last == "done", "what the model has not seen yet stays"


@formats
def test_an_open_error_stays_word_for_word(format: str) -> None:
    error = f"Exit code 2\n{LOG[:900]}\nerror: undefined symbol thread_end in loom.o"
    _, (first, *_) = stubbed(format, *then_others(format, ran(format, "make", error)))
    assert first == error


@formats
def test_a_long_open_error_keeps_its_telling_lines(format: str) -> None:
    error = f"Exit code 2\n{LOG}\nerror: undefined symbol thread_end in loom.o\n{LOG}"
    _, (first, *_) = stubbed(format, *then_others(format, ran(format, "make", error)))
    *kept, marker = first.split("\n")
    assert kept == [
        "ran make: failed, exit 2",
        "[… 61 lines]",
        "error: undefined symbol thread_end in loom.o",
        "[… 60 lines]",
    ]
    assert "121 of 122 lines left out" in marker


@formats
def test_an_error_that_was_mended_since_becomes_a_line(format: str) -> None:
    error = f"Exit code 2\n{LOG}\nerror: undefined symbol thread_end in loom.o"
    steps = then_others(format, ran(format, "make", error), ran(format, "make", "fine", "call_2"))
    _, (first, *_) = stubbed(format, *steps, keep=2)
    assert first.startswith("ran make: failed, exit 2; the same succeeded later: error: undefined")


@formats
def test_errors_may_be_told_in_a_line(format: str) -> None:
    error = f"Exit code 2\n{LOG}\nerror: undefined symbol thread_end in loom.o"
    steps = then_others(format, ran(format, "make", error))
    _, (first, *_) = stubbed(format, *steps, verbatim=False)
    assert first.split("\n")[0] == (
        "ran make: failed, exit 2: error: undefined symbol thread_end in loom.o"
    )


@formats
def test_a_pipe_that_ended_well_mends_nothing(format: str) -> None:
    error = f"Exit code 2\n{LOG[:900]}\nerror: undefined symbol thread_end in loom.o"
    piped = ran(format, "make | sort | uniq -c", "3 warnings", "call_2")
    _, (first, *_) = stubbed(format, *then_others(format, ran(format, "make", error), piped))
    assert first == error


@formats
def test_short_results_stay(format: str) -> None:
    out, _ = stubbed(format, *then_others(format, ran(format, "cat a.py", "x\n" * 20)))
    assert out.report.edits == ()


@formats
def test_only_a_call_that_is_safe_to_repeat_is_advised_again(format: str) -> None:
    steps = then_others(format, ran(format, "cat a.py", CODE), ran(format, "./deploy", LOG, "b"))
    _, (read, run, *_) = stubbed(format, *steps)
    assert "safe to run again" in read
    assert "run again" not in run


@formats
def test_a_line_is_written_once(format: str) -> None:
    steps = then_others(format, ran(format, "cat a.py", CODE))
    before, _ = stubbed(format, *steps)
    longer, _ = stubbed(format, *steps, [ran(format, "echo more", "done", "more")])
    assert before.report.edits == longer.report.edits
    again, _ = stubbed(format, *steps)
    assert again.request == before.request


@formats
def test_nothing_is_offered_on_its_own_output(format: str) -> None:
    out, _ = stubbed(format, *then_others(format, ran(format, "cat a.py", CODE)))
    policy = Policy(reevaluate_tokens=1, reevaluate_ratio=0.0, eager=True, keep_exchanges=1)
    folded = fold_request(
        out.request, format=format, policy=policy, facts=Facts(), memo=None, passes=(stub_results,)
    )
    assert build_compaction(folded, out.request).report.edits == ()


@pytest.mark.parametrize("format", ["anthropic", "openai-responses", "gemini"])
def test_images_in_a_mixed_result_stay(format: str) -> None:
    steps = then_others(format, ran(format, "cat a.py", CODE, image=True))
    out, (first, *_) = stubbed(format, *steps)
    assert first.startswith("read a.py")
    assert PIXEL in str(out.request[FIELD[format]])


@formats
def test_what_a_tool_says_that_nobody_knows_stays(format: str) -> None:
    unknown = Exchange(LOG, tool="weave", args={"pattern": "twill"})
    assert Tools().use_of("weave", "{}", None).kind == "other"
    out, _ = stubbed(format, *then_others(format, unknown))
    assert out.report.edits == ()


def test_what_an_agent_of_the_agent_found_out_stays() -> None:
    asked = {"description": "Look into the loom", "prompt": "Why does it jam?"}
    report = Exchange(LOG, tool="Agent", args=asked)
    out, _ = stubbed("anthropic", *then_others("anthropic", report))
    assert out.report.edits == ()


@formats
def test_the_report_says_why(format: str) -> None:
    out, _ = stubbed(format, *then_others(format, ran(format, "cat a.py", CODE)))
    (edit,) = out.report.edits
    assert isinstance(edit, Replace)
    assert (edit.reason, edit.evidence) == ("stubbed", "read, 40 lines")
