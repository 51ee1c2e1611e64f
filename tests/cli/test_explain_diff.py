"""`respool explain --diff` and `--debug`: before and after, and every offer."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import respool
from respool.cli import main
from respool.cli.explain import PartChange, diff_lines, show_changes
from respool.engine import fold_request
from respool.facts import Facts
from respool.policy import Policy
from tests.support.coding_sessions import write
from tests.support.formats import FIELD, FORMATS, Exchange, request

LINES = "\n".join(f"line {number} of what the tool printed" for number in range(200))
EAGER = (
    "--set",
    "cap_chars=1000",
    "--set",
    "reevaluate_tokens=1",
    "--set",
    "reevaluate_ratio=0",
    "--set",
    "eager=on",
    "--set",
    "keep_exchanges=0",
)
CLIPPED = ("--set", "passes=cap_results")


def body(format: str = "anthropic", said: str = LINES) -> bytes:
    whole = request(format, "go", [Exchange(said, id="a")], [Exchange("done", id="b")])
    return json.dumps(whole).encode()


def explain(*options: str, data: bytes, **about: Any) -> str:
    result = CliRunner().invoke(main, ["explain", "-", *EAGER, *options], input=data, **about)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("format", FORMATS)
def test_each_edited_part_is_shown_before_and_after(format: str) -> None:
    named = (*CLIPPED, "--format", format)
    shown = explain("--diff", *named, data=body(format))
    assert shown.startswith(explain(*named, data=body(format)).rstrip("\n"))
    lines = shown.split("\n")
    taken = [line for line in lines if line.startswith("- ")]
    added = [line for line in lines if line.startswith("+ ")]
    assert len(added) == 1
    assert added[0].startswith("+ [respool: clipped shell result of ")
    assert all(line[2:] in LINES for line in taken)
    assert len(taken) == 9
    assert any(line.endswith(" more lines taken out") for line in lines)
    assert sum(line.endswith(" lines unchanged") for line in lines) == 2
    assert "  result: over_cap, " in shown


def test_without_edits_there_is_nothing_to_show() -> None:
    assert explain("--diff", data=body(said="short")) == explain(data=body(said="short"))


def test_the_report_is_the_same_with_and_without() -> None:
    told = json.loads(explain("--json", "--diff", data=body()))
    assert len(told.pop("changes")) == 1
    assert told == json.loads(explain("--json", data=body()))


def test_what_is_passed_through_has_no_diff() -> None:
    held = b'{"input": [], "previous_response_id": "resp_1"}'
    assert explain("--diff", "--debug", data=held).startswith("Passed through unchanged: ")


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" not in explain("--diff", data=body(), color=True)
    monkeypatch.setattr("respool.cli.explain.is_terminal", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = explain("--diff", data=body(), color=True)
    assert "\x1b[31m- line" in shown
    assert "\x1b[32m+ [respool: " in shown
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in explain("--diff", data=body(), color=True)


def test_nothing_in_a_text_can_move_the_cursor() -> None:
    said = "\n".join(f"\x1b[2J\rline {number}\x07" for number in range(400))
    shown = explain("--diff", data=body(said=said), color=True)
    assert not {"\x1b", "\r", "\x07"} & set(shown)


def test_arguments_are_shown_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.laws.trial_passes import shorten_calls

    monkeypatch.setattr("respool.compaction.evaluation.PASSES", (shorten_calls,))
    args = {"command": "make " + "x " * 100, "cwd": "/w"}
    whole = request("anthropic", "go", [Exchange("ok", id="a", args=args)], [Exchange("b", id="b")])
    shown = explain("--diff", data=json.dumps(whole).encode())
    assert '-   "cwd": "/w"' in shown
    assert '+   "repeat_of": ' in shown


def test_a_dropped_exchange_is_all_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.laws.trial_passes import drop_every_other_exchange

    monkeypatch.setattr("respool.compaction.evaluation.PASSES", (drop_every_other_exchange,))
    shown = explain("--diff", data=body(said="a few\nwords"))
    assert "- a few\n- words\n" in shown
    assert '-   "command": "make"' in shown
    assert "\n+ " not in shown


@given(
    st.lists(st.sampled_from("abcde"), max_size=40), st.lists(st.sampled_from("abcdx"), max_size=40)
)
def test_a_diff_tells_both_texts(old: list[str], new: list[str]) -> None:
    lines = list(diff_lines("\n".join(old), "\n".join(new)))
    if any(sign == "@" for sign, _ in lines):
        return
    assert [text for sign, text in lines if sign in " -"] == old
    assert [text for sign, text in lines if sign in " +"] == new


def test_what_is_folded_is_counted() -> None:
    old = [f"line {number}" for number in range(300)]
    new = [*old[:100], "marker", *old[200:]]
    lines = list(diff_lines("\n".join(old), "\n".join(new)))
    assert [text for sign, text in lines if sign == "@"] == [
        "… 97 lines unchanged",
        "… 91 more lines taken out",
        "… 97 lines unchanged",
    ]
    assert ("+", "marker") in lines
    ((_, long),) = diff_lines("x" * 1_000, "x" * 1_000)
    assert long == "x" * 300 + "… (700 more characters)"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a\nb\n" * 30_000, "x\nb\na\n" * 20_000),
        ("\n" * 50_000 + "a", "b" + "\n" * 50_000),
        ("\n".join(map(str, range(60_000))), "\n".join(map(str, range(0, 60_000, 100)))),
    ],
    ids=["few lines often", "blank lines", "one of a hundred kept"],
)
def test_long_texts_are_compared_in_bounded_time(old: str, new: str) -> None:
    start = time.process_time()
    assert list(diff_lines(old, new))
    assert time.process_time() - start < 10


@pytest.mark.parametrize("format", FORMATS)
def test_before_and_after_are_data_too(format: str) -> None:
    data = json.dumps(request(format, "go", [Exchange(LINES, id="a")], [Exchange("b", id="b")]))
    told = json.loads(explain("--json", "--diff", *CLIPPED, "--format", format, data=data.encode()))
    (change,) = told["changes"]
    (edit,) = told["edits"]
    assert (change["reason"], change["evidence"]) == (edit["reason"], edit["evidence"])
    assert (change["part"], change["before"]) == ("result", LINES)
    assert change["place"].startswith(FIELD[format])
    assert "[respool: clipped shell" in change["after"]
    assert "changes" not in json.loads(explain("--json", *CLIPPED, data=data.encode()))


def test_a_title_cannot_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evidence = "/w/\x1b]0;owned\x07a.py was wholly written again"
    show_changes(iter([PartChange("messages[1]", "call", "superseded", evidence, "a", "")]))
    shown = capsys.readouterr().out
    assert "superseded, /w/" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("format", FORMATS)
def test_what_was_dropped_can_be_got_back_by_what_is_told(format: str) -> None:
    """No marker stands where a superseded write went: the explanation names its originals."""
    steps = [write("/w/a.py", f"{LINES}\n{n}", f"w{n}", f"Wrote it, no. {n}.") for n in range(2)]
    whole = request(format, "go", *([one] for one in steps), [Exchange("done", id="z")])
    data = json.dumps(whole).encode()
    options = ("--set", "passes=superseded_writes", "--format", format)
    shown = explain(*options, data=data)
    policy = Policy(
        reevaluate_tokens=1,
        reevaluate_ratio=0.0,
        eager=True,
        passes=("superseded_writes",),
        keep_exchanges=0,
    )
    out = respool.compact(whole, format=format, policy=policy, memo=None)
    assert len(out.originals) == 2
    assert all(ref in shown for ref in out.originals)
    assert "Wrote it, no. 0." in out.originals.values()


# Debugging.


def test_debug_tells_every_offer() -> None:
    shown = explain("--debug", *CLIPPED, data=body())
    (row,) = [line.split() for line in shown.split("\n") if "cap_results" in line]
    assert row[:4] == ["5", "cap_results", "messages[2].content[0]", "trim"]
    assert row[-1] == "taken"
    assert "Offers, by the number" not in explain(data=body())
    report = json.loads(explain("--debug", "--json", *CLIPPED, data=body()))
    assert [one["outcome"] for one in report["trace"]] == ["taken"]
    assert "trace" not in json.loads(explain("--json", data=body()))


def test_debug_tells_what_was_not_taken_and_what_is_protected() -> None:
    whole = request(
        "anthropic",
        "go",
        [Exchange(LINES, id="a")],
        [Exchange(LINES + "x", id="b")],
        [Exchange("done", id="c")],
    )
    data = json.dumps(whole).encode()
    shown = explain("--debug", "--set", "pin_calls=a", data=data)
    assert "pinned call a" in shown
    assert shown.count("protected") >= 1


@pytest.mark.parametrize("format", FORMATS)
def test_what_waited_is_told_where_it_is_taken(format: str) -> None:
    """By its rows alone a trace tells which edits are in force in the end, and why."""
    steps: list[Any] = [
        [Exchange(f"{LINES}\nno. {n}", id=f"c{n}", tool="Bash", args={"command": f"make t{n}"})]
        for n in range(12)
    ]
    ends = [Exchange("done", id="y")], [Exchange("again", id="z")]  # with which the rest goes
    whole = request(format, "go", *steps, "and now?", *ends)
    prices: dict[str, Any] = {"cache_read_price": 0.1, "cache_write_price": 1.0}
    policy = Policy(
        keep_exchanges=0, reevaluate_tokens=500, passes=["stub_results", "trim_results"], **prices
    )
    plan = respool.plan(whole, format=format, policy=policy, trace=True, memo=None)
    assert plan.trace is not None
    in_force: dict[Any, str] = {}
    waited = set[Any]()
    for one in plan.trace:
        if one.outcome == "taken":
            in_force[one.ref] = one.reason
        elif one.outcome == "taken back":
            del in_force[one.ref]
        elif one.outcome == "not taken":
            waited.add((one.ref, one.reason))
    assert in_force == {edit.ref: edit.reason for edit in plan.edits}
    assert len(in_force) == 11
    assert waited & set(in_force.items()), "of these some had waited"


def test_a_trace_costs_nothing_when_nobody_asks() -> None:
    state = fold_request(
        body(),
        format=None,
        policy=Policy(cap_chars=500, keep_exchanges=0),
        facts=Facts(),
        memo=None,
    ).state
    assert state.evaluation.trace is None


@pytest.mark.parametrize("format", FORMATS)
def test_advice_is_told_apart_and_shown_at_the_end(format: str) -> None:
    steps = [[Exchange(LINES[:500], id=f"c{number}")] for number in range(3)]
    data = json.dumps(request(format, "go", *steps)).encode()
    options = ("--set", "advise=on", "--set", "passes=none", "--format", format)
    shown = explain("--diff", *options, data=data)
    assert "Advice (+" in shown
    assert "\nEdits" not in shown
    added = [line for line in shown.split("\n") if line.startswith("+ ")]
    assert len(added) == 1
    assert added[0].startswith("+ [respool noticed: shell (make) was called 3 times")
    assert not any(line.startswith("- ") for line in shown.split("\n"))
    assert "Advice" not in explain("--set", "passes=none", "--format", format, data=data)


@pytest.mark.parametrize("format", FORMATS)
def test_what_was_fetched_again_is_told(format: str) -> None:
    def see(id: str, tool: str, text: str, **args: Any) -> list[Exchange]:
        return [Exchange(text, id=id, tool=tool, args=args)]

    steps = [
        see("a", "Read", LINES, file_path="/w/a.py"),
        see("b", "Read", "nothing much", file_path="/w/b.py"),
        see("c", "Read", LINES, file_path="/w/a.py"),
    ]
    data = json.dumps(request(format, "go", *steps)).encode()
    shown = explain(*CLIPPED, "--format", format, data=data)
    assert "Fetched again after it was taken out; these copies stay" in shown
    row = next(line for line in shown.split("\n") if "Read /w/a.py" in line)
    assert "over_cap" in row
    told = json.loads(explain(*CLIPPED, "--format", format, "--json", data=data))
    assert [one["target"] for one in told["refetched"]] == ["/w/a.py"]
    again = explain(*CLIPPED, "--debug", "--format", format, data=_and_more(format, data))
    assert "fetched again" in again


def _and_more(format: str, data: bytes) -> bytes:
    """The request with one more exchange, so that the last one was seen."""
    field = {"openai-responses": "input", "gemini": "contents"}.get(format, "messages")
    whole = json.loads(data)
    more = request(format, [Exchange("done", id="z")])[field]
    return json.dumps({**whole, field: [*whole[field], *more]}).encode()
